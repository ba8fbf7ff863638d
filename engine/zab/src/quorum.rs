//! Which sets of voters decide.

use crate::ServerId;
use heapless::Vec;

/// Voters of one configuration at most.
pub const VOTERS_MAX: usize = 16;

/// Who decides. While a change of membership is under way, a majority of the old and of the new configuration each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Voters {
    committed: Majority,
    /// The configuration last seen, while it is not committed.
    joint: Option<Majority>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Majority(Vec<ServerId, VOTERS_MAX>);

impl Voters {
    /// More than half of `voters` decide; `None` when there is nobody, a duplicate, or more than [`VOTERS_MAX`].
    pub fn majority(voters: &[ServerId]) -> Option<Self> {
        Some(Self { committed: Majority::new(voters)?, joint: None })
    }

    /// The same while `next` is proposed and not committed: both configurations must agree.
    pub fn joint_with(mut self, next: &[ServerId]) -> Option<Self> {
        self.joint = Some(Majority::new(next)?);
        Some(self)
    }

    /// Whether those that `holds` is true of decide.
    pub fn is_quorum(&self, holds: impl Fn(ServerId) -> bool) -> bool {
        self.committed.agrees(&holds) && self.joint.as_ref().is_none_or(|joint| joint.agrees(&holds))
    }
}

impl Majority {
    fn new(voters: &[ServerId]) -> Option<Self> {
        let distinct = voters.iter().enumerate().all(|(i, voter)| !voters[..i].contains(voter));
        if voters.is_empty() || !distinct { None } else { Vec::from_slice(voters).ok().map(Self) }
    }

    fn agrees(&self, holds: &impl Fn(ServerId) -> bool) -> bool {
        self.0.iter().filter(|&&voter| holds(voter)).count() > self.0.len() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids<const N: usize>(ids: [u8; N]) -> [ServerId; N] {
        ids.map(|id| ServerId::new(id).unwrap())
    }

    #[test]
    fn half_is_not_a_majority() {
        let voters = Voters::majority(&ids([1, 2, 3, 4])).unwrap();
        assert!(!voters.is_quorum(|id| id.as_u8() <= 2));
        assert!(voters.is_quorum(|id| id.as_u8() <= 3));
    }

    #[test]
    fn a_joint_quorum_needs_both_majorities() {
        let voters = Voters::majority(&ids([1, 2, 3])).unwrap().joint_with(&ids([3, 4, 5])).unwrap();
        assert!(!voters.is_quorum(|id| id.as_u8() <= 3));
        assert!(!voters.is_quorum(|id| id.as_u8() >= 3));
        assert!(voters.is_quorum(|id| [2, 3, 4].contains(&id.as_u8())));
    }

    #[test]
    fn nobody_and_duplicates_are_no_configuration() {
        assert_eq!(Voters::majority(&[]), None);
        assert_eq!(Voters::majority(&ids([1, 1])), None);
    }
}
