//! Which member of its ensemble a node is.

use super::StartError;
use crate::config::Config;
#[cfg(feature = "ensemble")]
use crate::config::{ConfigError, Ensemble};
use std::path::Path;
use zoolet_model::ServerId;
#[cfg(feature = "ensemble")]
use zoolet_zab::{EnsembleId, Zxid};
use zoolet_zab::{Incarnation, Kind, Member, Timing};

pub(super) fn id(config: &Config) -> ServerId {
    ServerId::new(config.server_id).unwrap_or(ServerId::STANDALONE)
}

/// Returns the configured members, which count until the ensemble is born.
pub(super) fn members(config: &Config) -> Result<zoolet_zab::Config, StartError> {
    #[cfg(feature = "ensemble")]
    if let Some(ensemble) = &config.ensemble {
        return members_of(ensemble);
    }
    Ok(zoolet_zab::Config::standalone(id(config)))
}

#[cfg(feature = "ensemble")]
fn members_of(ensemble: &Ensemble) -> Result<zoolet_zab::Config, StartError> {
    let member = |member: &crate::config::Server| {
        let kind = if member.is_observer { Kind::Observer } else { Kind::Voter };
        ServerId::new(member.id).map(|id| Member { id, kind, disk: Incarnation(0) })
    };
    let members: Option<Vec<_>> = ensemble.members.iter().map(member).collect();
    let config = members.and_then(|members| zoolet_zab::Config::new(EnsembleId::UNBORN, Zxid::ZERO, &members));
    config.ok_or_else(|| StartError::Config(ConfigError::new("the configured servers do not form an ensemble")))
}

pub(super) fn timing(config: &Config) -> Timing {
    #[cfg(feature = "ensemble")]
    if let Some(ensemble) = &config.ensemble {
        return ensemble.timing;
    }
    #[cfg(not(feature = "ensemble"))]
    let _ = config;
    Timing::default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_zab::{EnsembleId, Zxid};

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
