//! Quorums: the sets of voters that decide.

use crate::{Config, Incarnation, Mutation, ServerId, mutation};

/// How the voters of one configuration decide.
///
/// Only majorities and unanimity for now; weights, groups and a witness would be further variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// More than half of the voters.
    Majority,
    /// All voters: an ensemble is born only by all of them.
    Unanimous,
}

impl Rule {
    fn of(config: &Config) -> Self {
        if config.is_born() { Self::Majority } else { Self::Unanimous }
    }

    fn agrees(self, config: &Config, holds: &mut impl FnMut(ServerId, Incarnation) -> bool) -> bool {
        let (mut voters, mut held) = (0usize, 0usize);
        for voter in config.voters() {
            voters += 1;
            held += usize::from(holds(voter.id, voter.disk));
        }
        match self {
            Self::Majority => held > voters / 2,
            Self::Unanimous => held == voters,
        }
    }
}

/// The voters that decide.
///
/// They are the voters of the committed configuration. While a change is in progress, the voters of
/// the last seen configuration must decide as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Voters {
    committed: Config,
    /// The configuration last seen, while it is not committed.
    pending: Option<Config>,
}

impl Voters {
    /// Creates the voters from the configurations of a log or a file.
    pub fn new(committed: Config, pending: Option<Config>) -> Self {
        Self { committed, pending }
    }

    /// Returns the newest configuration known to be committed.
    pub fn committed(&self) -> &Config {
        &self.committed
    }

    /// Returns the proposed configuration, if a change is in progress.
    pub fn pending(&self) -> Option<&Config> {
        self.pending.as_ref()
    }

    /// Sets the pending configuration.
    ///
    /// A configuration that was pending becomes the committed one. The leader committed it before
    /// proposing the next, though this server may not have heard of that yet.
    pub fn propose(&mut self, config: Config) {
        if let Some(former) = self.pending.replace(config) {
            self.commit(former);
        }
    }

    /// Drops the pending configuration, whose entry is no longer in the history.
    pub fn withdraw(&mut self) {
        self.pending = None;
    }

    /// Sets the committed configuration.
    ///
    /// A pending one of the same or an older version is dropped.
    pub fn commit(&mut self, config: Config) {
        if self.pending.as_ref().is_some_and(|pending| pending.version <= config.version) {
            self.pending = None;
        }
        self.committed = config;
    }

    /// Returns whether the voters for which `holds` is true form a quorum.
    ///
    /// They must do so in every configuration that counts.
    pub fn is_quorum(&self, mut holds: impl FnMut(ServerId, Incarnation) -> bool) -> bool {
        self.configs().all(|config| Rule::of(config).agrees(config, &mut holds))
    }

    /// Returns whether this disk counts as a voter in any configuration that counts.
    pub fn counts(&self, id: ServerId, disk: Incarnation) -> bool {
        self.configs().any(|config| config.counts(id, disk))
    }

    fn configs(&self) -> impl Iterator<Item = &Config> {
        let is_joint = !mutation::is_on(Mutation::JointDropped);
        core::iter::once(&self.committed).chain(self.pending.as_ref().filter(|_| is_joint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EnsembleId, Kind, Member, Zxid};

    fn config(ids: &[u8]) -> Config {
        let mut members = heapless::Vec::<Member, 16>::new();
        for &id in ids {
            let id = ServerId::new(id).unwrap();
            members.push(Member { id, kind: Kind::Voter, disk: Incarnation(1) }).unwrap();
        }
        Config::new(EnsembleId(1), Zxid::ZERO, &members).unwrap()
    }

    #[test]
    fn half_of_the_voters_is_no_quorum() {
        let voters = Voters::new(config(&[1, 2, 3, 4]), None);
        assert!(!voters.is_quorum(|id, _| id.as_u8() <= 2));
        assert!(voters.is_quorum(|id, _| id.as_u8() <= 3));
    }

    #[test]
    fn a_joint_quorum_needs_both_majorities() {
        let voters = Voters::new(config(&[1, 2, 3]), Some(config(&[3, 4, 5])));
        assert!(!voters.is_quorum(|id, _| id.as_u8() <= 3));
        assert!(!voters.is_quorum(|id, _| id.as_u8() >= 3));
        assert!(voters.is_quorum(|id, _| [2, 3, 4].contains(&id.as_u8())));
    }

    /// A learner may get two membership changes before it hears that the first is committed. If it
    /// used only the oldest and the newest configuration, voters 1 and 2 would decide beside 3 and
    /// 4.
    #[test]
    fn proposing_a_second_change_implies_the_first_is_committed() {
        let version = |counter, ids: &[u8]| {
            let members: heapless::Vec<Member, 16> = config(ids).members().iter().copied().collect();
            let version = Zxid::new(crate::Epoch::new(1).unwrap(), counter).unwrap();
            Config::new(EnsembleId(1), version, &members).unwrap()
        };
        let (first, second, third) = (version(1, &[1, 2, 3]), version(2, &[2, 3, 4]), version(3, &[3, 4, 5]));
        let mut voters = Voters::new(first, None);
        voters.propose(second.clone());
        voters.propose(third.clone());
        assert_eq!((voters.committed(), voters.pending()), (&second, Some(&third)));
        assert!(!voters.is_quorum(|id, _| [1, 3, 5].contains(&id.as_u8())), "1 counts no more");
        voters.withdraw();
        assert_eq!((voters.committed(), voters.pending()), (&second, None));
    }

    #[test]
    fn quorum_of_an_unborn_ensemble_is_all_voters() {
        let ids = [1, 2, 3].map(|id| ServerId::new(id).unwrap());
        let voters = Voters::new(Config::of_voters(&ids).unwrap(), None);
        assert!(!voters.is_quorum(|id, _| id.as_u8() <= 2));
        assert!(voters.is_quorum(|_, _| true));
    }
}
