//! Invariants of the protocol, one file each.
//!
//! Each recomputes its facts from observed events, never from the core's own counters.

mod ack_is_durable;
mod ack_of_epoch;
mod agreement;
mod commit_quorum;
mod committed_immutable;
mod confirmed_is_newest;
mod continuity;
mod epoch_after_history;
mod epoch_quorum;
mod integrity;
mod last_zxid_durable;
mod leader_completeness;
mod monotonic;
mod no_fault;
mod no_old_ack;
mod one_change;
mod one_primary;
mod primary_integrity;
mod primary_order;
mod promise_monotonic;
mod quorum_durable;
mod state_order;
mod stickiness;

use super::World;
use super::log::{Entry, Record};
use std::rc::Rc;
use zoolet_zab::{Config, Fault, Incarnation, LinkId, Message, Role, Round, Zxid};

/// An observed event.
#[derive(Debug)]
pub(crate) enum Fact<'a> {
    Started {
        by: u8,
    },
    Crashed {
        by: u8,
    },
    Wiped {
        by: u8,
    },
    /// Seen before the server is told that its link to this peer is gone or replaced.
    Parted {
        by: u8,
        peer: u8,
    },
    /// Seen before the message leaves.
    Sent {
        by: u8,
        to: u8,
        link: LinkId,
        message: &'a Message,
    },
    /// Seen before the message is handled.
    Heard {
        by: u8,
        from: u8,
        link: LinkId,
        message: &'a Message,
    },
    /// `is_own`: this server proposed the entry.
    Appended {
        by: u8,
        record: &'a Record,
        is_own: bool,
    },
    Persisted {
        by: u8,
    },
    /// This server is the first to commit entries after `before`.
    ///
    /// `history` is its history up to the new commit watermark.
    Declared {
        by: u8,
        before: Zxid,
        history: &'a [Entry],
    },
    Committed {
        by: u8,
        before: Zxid,
        to: Zxid,
    },
    Became {
        by: u8,
        role: Role,
    },
    /// `least`: last entry committed anywhere when the confirmation was asked for.
    Confirmed {
        by: u8,
        round: Round,
        least: Option<Zxid>,
        up_to: Option<Zxid>,
    },
    Closed {
        by: u8,
        peer: u8,
        fault: &'a Fault,
    },
    /// All actions of one call were done.
    Turn {
        by: u8,
    },
}

pub(crate) trait Invariant {
    /// Checks one event.
    ///
    /// # Panics
    /// If the invariant does not hold.
    fn see(&mut self, world: &World, fact: &Fact<'_>);
}

pub(crate) struct Checks(Vec<Box<dyn Invariant>>);

impl Checks {
    pub(crate) fn all() -> Self {
        Self(vec![
            Box::new(promise_monotonic::PromiseMonotonic::default()),
            Box::new(one_primary::OnePrimary::default()),
            Box::new(epoch_quorum::EpochQuorum::default()),
            Box::new(no_old_ack::NoOldAck),
            Box::new(epoch_after_history::EpochAfterHistory),
            Box::new(ack_of_epoch::AckOfEpoch),
            Box::new(integrity::Integrity),
            Box::new(agreement::Agreement),
            Box::new(primary_order::PrimaryOrder),
            Box::new(primary_integrity::PrimaryIntegrity),
            Box::new(continuity::Continuity),
            Box::new(leader_completeness::LeaderCompleteness),
            Box::new(commit_quorum::CommitQuorum),
            Box::new(quorum_durable::QuorumDurable),
            Box::new(ack_is_durable::AckIsDurable),
            Box::new(last_zxid_durable::LastZxidDurable::default()),
            Box::new(committed_immutable::CommittedImmutable::default()),
            Box::new(state_order::StateOrder),
            Box::new(monotonic::Monotonic::default()),
            Box::new(one_change::OneChange),
            Box::new(confirmed_is_newest::ConfirmedIsNewest),
            Box::new(no_fault::NoFault),
            Box::new(stickiness::Stickiness::default()),
        ])
    }

    /// Returns no checks, for a world in which a disk lied.
    ///
    /// No invariant can hold there; the script shows the outcome.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn see(&mut self, world: &World, fact: &Fact<'_>) {
        self.0.iter_mut().for_each(|invariant| invariant.see(world, fact));
    }
}

/// Returns the configurations that decide about the last entry of `history`.
///
/// Each comes with the entry that its quorum must hold. Entries up to `before` are committed
/// already. While a change is not committed, the old configuration must hold the change, and the
/// new one must hold everything.
fn deciding(history: &[Entry], before: Zxid, file: &Config) -> Vec<(Rc<Config>, Entry)> {
    let Some(last) = history.last() else { return Vec::new() };
    let mut changes = history.iter().rev().filter(|entry| entry.config.is_some());
    let Some(newest) = changes.next() else {
        // The log has the record of a birth, but its entry was never appended.
        return vec![(Rc::new(file.clone()), last.clone())];
    };
    let config_of = |entry: &Entry| entry.config.clone().unwrap_or_else(|| Rc::new(file.clone()));
    let mut deciding = vec![(config_of(newest), last.clone())];
    if newest.zxid > before
        && let Some(older) = changes.next()
    {
        deciding.push((config_of(older), newest.clone()));
    }
    deciding
}

fn is_majority(config: &Config, holds: impl Fn(u8, Incarnation) -> bool) -> bool {
    let all = config.voters().count();
    let held = config.voters().filter(|voter| holds(voter.id.as_u8(), voter.disk)).count();
    2 * held > all
}
