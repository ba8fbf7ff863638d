//! Members and configurations of an ensemble.

use crate::{EnsembleId, Incarnation, ServerId, Zxid};
use heapless::Vec;

/// Maximum members of one configuration, voters and observers together.
pub const MEMBERS_MAX: usize = 16;

/// A member's kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// It counts in quorums and may lead.
    Voter,
    /// It learns committed entries only.
    Observer,
}

/// One member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its id.
    pub id: ServerId,
    /// Whether it votes.
    pub kind: Kind,
    /// The disk that counts.
    ///
    /// [`Incarnation`] 0 in a configuration file, which names no disks: before birth every disk
    /// counts.
    pub disk: Incarnation,
}

/// A configuration of an ensemble.
///
/// Invariants: ids are distinct, and at least one member votes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The ensemble; [`EnsembleId::UNBORN`] in a configuration file.
    pub ensemble: EnsembleId,
    /// The entry that proposed it; [`Zxid::ZERO`] for a configuration file.
    pub version: Zxid,
    members: Vec<Member, MEMBERS_MAX>,
}

/// Maximum bytes of an encoded configuration.
pub const CONFIG_BYTES_MAX: usize = 16 + 8 + 1 + MEMBERS_MAX * MEMBER_BYTES;
const MEMBER_BYTES: usize = 18;

impl Config {
    /// Creates a configuration.
    ///
    /// `None` without a voter, with a duplicate id, or with more than [`MEMBERS_MAX`] members.
    pub fn new(ensemble: EnsembleId, version: Zxid, members: &[Member]) -> Option<Self> {
        let distinct = members.iter().enumerate().all(|(i, member)| members[..i].iter().all(|m| m.id != member.id));
        let votes = members.iter().any(|member| member.kind == Kind::Voter);
        let members = Vec::from_slice(members).ok()?;
        (distinct && votes).then_some(Self { ensemble, version, members })
    }

    /// Creates a configuration file's configuration: voters whose disks are not known yet.
    ///
    /// `None` as for [`Config::new`].
    pub fn of_voters(ids: &[ServerId]) -> Option<Self> {
        let mut members: Vec<Member, MEMBERS_MAX> = Vec::new();
        for &id in ids {
            members.push(Member { id, kind: Kind::Voter, disk: Incarnation(0) }).ok()?;
        }
        Self::new(EnsembleId::UNBORN, Zxid::ZERO, &members)
    }

    /// Creates the configuration of a standalone server.
    pub fn standalone(id: ServerId) -> Self {
        let mut members = Vec::new();
        let pushed = members.push(Member { id, kind: Kind::Voter, disk: Incarnation(0) });
        debug_assert!(pushed.is_ok(), "one fits");
        Self { ensemble: EnsembleId::UNBORN, version: Zxid::ZERO, members }
    }

    /// Returns whether an entry made this configuration, and not a file.
    pub fn is_born(&self) -> bool {
        self.ensemble != EnsembleId::UNBORN
    }

    /// Returns its members.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the member with this id.
    pub fn member(&self, id: ServerId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Returns its voters.
    pub fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.kind == Kind::Voter)
    }

    /// Returns whether `disk` of server `id` counts as a voter.
    pub fn counts(&self, id: ServerId, disk: Incarnation) -> bool {
        self.member(id).is_some_and(|m| m.kind == Kind::Voter && (m.disk == disk || m.disk == Incarnation(0)))
    }

    /// Encodes the configuration, little-endian.
    ///
    /// The layout is ensemble u128, version u64, number of members u8. Then for each member: id u8,
    /// kind u8 (0 voter, 1 observer), disk u128.
    pub fn encode(&self) -> Vec<u8, CONFIG_BYTES_MAX> {
        let mut bytes = Vec::new();
        let mut put = |part: &[u8]| {
            let fits = bytes.extend_from_slice(part);
            debug_assert!(fits.is_ok(), "CONFIG_BYTES_MAX is the most");
        };
        put(&self.ensemble.0.to_le_bytes());
        put(&self.version.to_bits().to_le_bytes());
        put(&[self.members.len() as u8]);
        for member in &self.members {
            put(&[member.id.as_u8(), u8::from(member.kind == Kind::Observer)]);
            put(&member.disk.0.to_le_bytes());
        }
        bytes
    }

    /// Decodes the output of [`Config::encode`]; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (ensemble, bytes) = bytes.split_first_chunk()?;
        let (version, bytes) = bytes.split_first_chunk()?;
        let (&count, bytes) = bytes.split_first()?;
        if bytes.len() != usize::from(count) * MEMBER_BYTES {
            return None;
        }
        let mut members: Vec<Member, MEMBERS_MAX> = Vec::new();
        for bytes in bytes.chunks_exact(MEMBER_BYTES) {
            let kind = match bytes[1] {
                0 => Kind::Voter,
                1 => Kind::Observer,
                _ => return None,
            };
            let disk = Incarnation(u128::from_le_bytes(bytes[2..].try_into().ok()?));
            members.push(Member { id: ServerId::new(bytes[0])?, kind, disk }).ok()?;
        }
        let version = Zxid::from_bits(u64::from_le_bytes(*version))?;
        Self::new(EnsembleId(u128::from_le_bytes(*ensemble)), version, &members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u8, kind: Kind) -> Member {
        Member { id: ServerId::new(id).unwrap(), kind, disk: Incarnation(u128::from(id) << 100) }
    }

    #[test]
    fn encoded_config_round_trips_and_shorter_bytes_are_refused() {
        let members = [member(1, Kind::Voter), member(9, Kind::Observer)];
        let config = Config::new(EnsembleId(7 << 90), Zxid::from_bits(5 << 40).unwrap(), &members).unwrap();
        let bytes = config.encode();
        assert_eq!(Config::decode(&bytes), Some(config));
        for cut in 0..bytes.len() {
            assert_eq!(Config::decode(&bytes[..cut]), None);
        }
    }

    #[test]
    fn largest_configuration_encodes_to_its_byte_limit() {
        let members: std::vec::Vec<_> = (1..=16).map(|id| member(id, Kind::Voter)).collect();
        let config = Config::new(EnsembleId(1), Zxid::ZERO, &members).unwrap();
        assert_eq!(config.encode().len(), CONFIG_BYTES_MAX);
    }

    #[test]
    fn empty_duplicate_or_observer_only_member_lists_are_refused() {
        let voter = member(1, Kind::Voter);
        for members in [&[] as &[Member], &[voter, voter], &[member(1, Kind::Observer)]] {
            assert_eq!(Config::new(EnsembleId(1), Zxid::ZERO, members), None);
        }
    }

    extern crate std;
}
