//! Which member of its ensemble a node is, and its port for links to the other members.

use super::StartError;
use crate::config::{Config, ConfigError, Ensemble, TrustSource};
use crate::obstacle;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use zoolet_machine::Budget;
use zoolet_model::ServerId;
use zoolet_transport::peer::codec;
use zoolet_transport::peer::trust::{Authority, Identity, PublicKey, SiteKey, Trust};
use zoolet_transport::peer::{PeerMember, PeerPort, PeerSettings, lane_bytes_max, window_bytes};
use zoolet_zab::{EnsembleId, Incarnation, Kind, Member, Timing, Zxid};

/// File with addresses at which peers were reached, beside the configured ones.
const HINTS: &str = "peers";

/// Rate limit of outgoing snapshots, in bytes per second of the network and both disks.
const BULK_BYTES_PER_SECOND: u64 = 20 << 20;

pub(super) fn id(config: &Config) -> ServerId {
    ServerId::new(config.server_id).unwrap_or(ServerId::STANDALONE)
}

/// Returns the configured members, which count until the ensemble is born.
pub(super) fn members(config: &Config) -> Result<zoolet_zab::Config, StartError> {
    let Some(ensemble) = &config.ensemble else { return Ok(zoolet_zab::Config::standalone(id(config))) };
    let member = |member: &crate::config::Server| {
        let kind = if member.is_observer { Kind::Observer } else { Kind::Voter };
        ServerId::new(member.id).map(|id| Member { id, kind, disk: Incarnation(0) })
    };
    let members: Option<Vec<_>> = ensemble.members.iter().map(member).collect();
    let config = members.and_then(|members| zoolet_zab::Config::new(EnsembleId::UNBORN, Zxid::ZERO, &members));
    config.ok_or_else(|| StartError::Config(ConfigError::new("the configured servers do not form an ensemble")))
}

pub(super) fn timing(config: &Config) -> Timing {
    config.ensemble.as_ref().map_or_else(Timing::default, |ensemble| ensemble.timing)
}

/// Warns if the configuration names other members than the ensemble.
///
/// A born ensemble decides on its members itself. The warning tells an operator that changing the
/// file has no effect.
pub(super) fn tell_differences(config: &Config, found: &zoolet_zab::Config) {
    let Ok(file) = members(config) else { return };
    let of = |config: &zoolet_zab::Config| {
        let mut members: Vec<_> = config.members().iter().map(|m| (m.id, m.kind == Kind::Voter)).collect();
        members.sort_unstable();
        members
    };
    if found.is_born() && of(found) != of(&file) {
        tracing::warn!(
            configured = %list(&file),
            decided = %list(found),
            "the configuration and the ensemble name different servers: the ensemble's list counts"
        );
    }
}

/// Refuses the data of another member.
///
/// With these data, this server would wait forever for admission.
///
/// # Errors
/// `found`, the ensemble's configuration, assigns this disk to another server.
pub(super) fn check_owner(
    data: &Path,
    own: ServerId,
    disk: Incarnation,
    found: &zoolet_zab::Config,
) -> Result<(), StartError> {
    let is_of_other = |member: &&Member| disk != Incarnation(0) && member.disk == disk && member.id != own;
    let Some(other) = found.members().iter().find(is_of_other) else { return Ok(()) };
    let (data, own, other) = (data.display(), own.as_u8(), other.id.as_u8());
    Err(StartError::Directory(format!(
        "data = {data}: this is server {own}, and server {other} used this data last: name this server's own directory, or put \
         the disk back into the box of server {other}; empty it only if its data may be lost"
    )))
}

fn list(config: &zoolet_zab::Config) -> String {
    let name = |member: &Member| match member.kind {
        Kind::Voter => member.id.as_u8().to_string(),
        Kind::Observer => format!("{} (observer)", member.id.as_u8()),
    };
    config.members().iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Checks the keys and certificates that the port for links would need.
pub(super) fn check(config: &Config) -> Result<(), StartError> {
    let Some(ensemble) = &config.ensemble else { return Ok(()) };
    peers(ensemble)?;
    trust(ensemble, id(config)).map(drop)
}

/// Opens the port for links; `None` for a standalone server.
pub(super) fn bind(
    config: &Config,
    data: &Path,
    disk: Incarnation,
    process: u64,
    budget: Arc<Budget>,
) -> Result<Option<PeerPort>, StartError> {
    let Some(ensemble) = &config.ensemble else { return Ok(None) };
    let listen = ensemble.listen_address(config.server_id);
    let identity = Identity::open(data).map_err(|error| StartError::Peers(error.to_string()))?;
    let settings = PeerSettings {
        id: id(config),
        disk,
        process,
        listen,
        members: peers(ensemble)?,
        trust: trust(ensemble, id(config))?,
        identity,
        site: config.site.clone().unwrap_or_default(),
        hints: Some(data.join(HINTS)),
        frame_bytes_max: codec::frame_bytes_max(&config.limits),
        lane_bytes_max: lane_bytes_max(&config.limits),
        window_bytes: window_bytes(&config.limits),
        bulk_bytes_per_second: BULK_BYTES_PER_SECOND,
    };
    PeerPort::bind(settings, budget).map(Some).map_err(|error| bind_error(listen, &error))
}

fn bind_error(listen: SocketAddr, error: &std::io::Error) -> StartError {
    StartError::Peers(format!("links to other servers, UDP {listen}: {}", obstacle::listening(error, "u")))
}

fn peers(ensemble: &Ensemble) -> Result<Vec<PeerMember>, StartError> {
    let peer = |member: &crate::config::Server| {
        let id = ServerId::new(member.id)
            .ok_or_else(|| refuse(format!("server {}: allowed ids are 1 to 255", member.id)))?;
        let key = member.key.as_ref().map(|text| text.parse::<PublicKey>()).transpose();
        let key = key.map_err(|error| refuse(format!("server {}: key: {error}", member.id)))?;
        Ok(PeerMember { id, addresses: member.addresses.clone(), key })
    };
    ensemble.members.iter().map(peer).collect()
}

fn trust(ensemble: &Ensemble, own: ServerId) -> Result<Trust, StartError> {
    match &ensemble.trust {
        TrustSource::Loopback => Ok(Trust::Loopback),
        TrustSource::SiteKey(key) => Ok(Trust::Site(key.clone())),
        TrustSource::SiteKeyFile(path) => SiteKey::read(path).map(Trust::Site).map_err(refuse),
        TrustSource::Pinned => Ok(Trust::Pinned),
        TrustSource::Ca { ca_file, certificate_file, key_file } => {
            Authority::read(ca_file, certificate_file, key_file, own).map(Trust::Ca).map_err(refuse)
        }
    }
}

fn refuse(line: impl std::fmt::Display) -> StartError {
    StartError::Config(ConfigError::new(line.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_directory_of_another_member_is_refused_and_names_its_id() {
        let ids = [1, 2, 3].map(|id| ServerId::new(id).unwrap());
        let member = |id: ServerId| Member { id, kind: Kind::Voter, disk: Incarnation(u128::from(id.as_u8()) * 10) };
        let born = |ids: &[ServerId]| {
            let members: Vec<_> = ids.iter().copied().map(member).collect();
            zoolet_zab::Config::new(EnsembleId(7), Zxid::ZERO, &members).unwrap()
        };
        let refusal = |own: ServerId, disk: u128, found: &zoolet_zab::Config| {
            check_owner(Path::new("/d"), own, Incarnation(disk), found)
                .map_err(|error| (error.is_for_the_operator(), error.to_string()))
        };
        let line = "data = /d: this is server 2, and server 3 used this data last: name this server's own directory, or put \
                    the disk back into the box of server 3; empty it only if its data may be lost";
        assert_eq!(refusal(ids[1], 30, &born(&ids)), Err((true, line.to_owned())));
        assert_eq!(refusal(ids[2], 30, &born(&ids)), Ok(()));
        // A new disk belongs to no server, and neither does a disk in an unborn ensemble.
        assert_eq!(refusal(ids[1], 40, &born(&ids)), Ok(()));
        assert_eq!(refusal(ids[1], 0, &zoolet_zab::Config::of_voters(&ids).unwrap()), Ok(()));
    }
}
