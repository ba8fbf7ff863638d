//! The port for links: its settings, and the keys and certificates that it needs.

use crate::config::{Config, ConfigError, Ensemble, TrustSource};
use crate::obstacle;
use crate::runtime::{StartError, member};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use zoolet_machine::Budget;
use zoolet_model::ServerId;
use zoolet_transport::peer::codec;
use zoolet_transport::peer::trust::{Authority, Identity, PublicKey, SiteKey, Trust};
use zoolet_transport::peer::{PeerMember, PeerPort, PeerSettings, lane_bytes_max, window_bytes};
use zoolet_zab::Incarnation;

/// File with addresses at which peers were reached, beside the configured ones.
const HINTS: &str = "peers";

/// Rate limit of outgoing snapshots, in bytes per second of the network and both disks.
const BULK_BYTES_PER_SECOND: u64 = 20 << 20;

/// Checks the keys and certificates that the port for links would need.
pub(in crate::runtime) fn check(config: &Config) -> Result<(), StartError> {
    let Some(ensemble) = &config.ensemble else { return Ok(()) };
    peers(ensemble)?;
    trust(ensemble, member::id(config)).map(drop)
}

/// Opens the port for links; `None` for a standalone server.
pub(in crate::runtime) fn bind(
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
        id: member::id(config),
        disk,
        process,
        listen,
        members: peers(ensemble)?,
        trust: trust(ensemble, member::id(config))?,
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
