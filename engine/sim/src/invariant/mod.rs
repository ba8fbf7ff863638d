//! The invariants of Zab, each checked against the recorded events.
//!
//! The simulator reports every event at a server to [`Checks`], by calling [`Checks::see`] with a
//! [`Seen`]. The harness keeps its own books ([`Ghost`]): what each disk holds, the broadcasts of
//! each epoch, the committed entries, and the resulting state. It uses none of the protocol's own
//! counters. Every [`Invariant`] judges each event before and after the books change. At intervals
//! and at the end of a run it counts everything again ([`Checks::recount`]). A failure becomes a
//! [`Violation`], which is a text.
//!
//! Codes such as A15 or B14 in the modules' documentation name known bugs of ZooKeeper and other
//! systems. They come from this project's catalogue of such bugs, which
//! engine/zab/tests/traces/README.md lists with their tests.
//!
//! An event costs a few comparisons, plus a binary search in a history if it names entries.

mod ack_durable;
mod ackld_durable;
mod bounded;
mod commit_quorum;
mod committed_immutable;
mod configuration;
mod continuity;
mod derived;
mod determinism;
mod ephemeral;
mod epoch_after_history;
mod epoch_quorum;
mod ghost;
mod history;
mod integrity;
mod last_zxid_durable;
mod leader_completeness;
mod monotonic;
mod no_fault;
mod no_old_ack;
mod one_primary;
mod prefix;
mod primary_integrity;
mod primary_order;
mod promise_monotonic;
mod quorum_durable;
mod returning;
mod seen;
mod session_ids;
mod snapshot_progress;
mod state_order;
mod stickiness;
#[cfg(test)]
mod story;
mod survives;
mod total_order;

pub use ghost::{AppliedEntry, Configs, Found, Ghost, Held, Host, Membership, Primary, Retired};
pub use history::{History, Link};
pub use seen::{Queue, Seen, State};

use std::fmt;
use zoolet_zab::{AppendSeq, Config, ServerId};

/// A property that must always hold.
pub trait Invariant: fmt::Debug {
    /// Returns the invariant's name, as in docs/explanation/safety.md.
    fn name(&self) -> &'static str;

    /// Judges an event before the books change, by the state in which it happened.
    ///
    /// # Errors
    /// A description of the violation.
    fn before(&mut self, _ghost: &Ghost, _server: ServerId, _seen: &Seen<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Judges an event after the books changed.
    ///
    /// # Errors
    /// A description of the violation.
    fn after(&mut self, _ghost: &Ghost, _server: ServerId, _seen: &Seen<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Counts everything again.
    ///
    /// # Errors
    /// A description of the violation.
    fn recount(&mut self, _ghost: &Ghost) -> Result<(), String> {
        Ok(())
    }
}

/// A violated invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The name of the invariant.
    pub invariant: &'static str,
    /// The step of [`Checks::see`] in which it was noticed.
    pub step: u64,
    /// The servers, entries and epochs concerned.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (step {})", self.invariant, self.what, self.step)
    }
}

/// Maximum number of violations kept. The first one explains; the rest follow from it.
const KEPT_MAX: usize = 16;

/// Number of committed entries that the books keep although every server has them.
const REMEMBERED: usize = 20_000;

/// The books, and all invariants over them.
#[derive(Debug)]
pub struct Checks {
    /// The books.
    pub ghost: Ghost,
    invariants: Vec<Box<dyn Invariant>>,
    violations: Vec<Violation>,
    steps: u64,
    recount_every: u64,
}

impl Checks {
    /// Creates all invariants for an ensemble with these founders.
    ///
    /// Everything is counted again every `recount_every` steps.
    pub fn new(founders: Config, recount_every: u64) -> Self {
        Self::of(founders, recount_every, every())
    }

    fn of(founders: Config, recount_every: u64, invariants: Vec<Box<dyn Invariant>>) -> Self {
        Self { ghost: Ghost::new(founders), invariants, violations: Vec::new(), steps: 0, recount_every }
    }

    /// Records and judges an event at a server.
    pub fn see(&mut self, server: ServerId, seen: Seen<'_>) {
        let Seen::Appended(append) = seen else { return self.see_one(server, seen) };
        let before = append.seq.0 - append.records.len() as u64;
        for (seq, record) in (before + 1..).zip(&append.records) {
            self.see_one(server, Seen::Record(AppendSeq(seq), record));
        }
    }

    fn see_one(&mut self, server: ServerId, seen: Seen<'_>) {
        self.steps += 1;
        let (steps, ghost) = (self.steps, &mut self.ghost);
        let mut wrong: Vec<(&'static str, String)> = Vec::new();
        for invariant in &mut self.invariants {
            let outcome = invariant.before(ghost, server, &seen);
            wrong.extend(outcome.err().map(|what| (invariant.name(), what)));
        }
        ghost.note(server, &seen);
        for invariant in &mut self.invariants {
            let outcome = invariant.after(ghost, server, &seen);
            wrong.extend(outcome.err().map(|what| (invariant.name(), what)));
        }
        self.keep(wrong);
        if steps.is_multiple_of(self.recount_every.max(1)) {
            self.recount();
            self.ghost.forget(REMEMBERED);
        }
    }

    /// Counts everything again. Runs at intervals and at the end of a run.
    pub fn recount(&mut self) {
        let ghost = &self.ghost;
        let outcomes = self.invariants.iter_mut().map(|invariant| (invariant.name(), invariant.recount(ghost)));
        let wrong = outcomes.filter_map(|(name, outcome)| Some((name, outcome.err()?))).collect();
        self.keep(wrong);
    }

    /// Returns whether every invariant held until now.
    ///
    /// # Errors
    /// The first violation.
    pub fn verdict(&self) -> Result<(), &Violation> {
        self.violations.first().map_or(Ok(()), Err)
    }

    /// Returns the violations, oldest first.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Returns the number of steps until now.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn keep(&mut self, wrong: Vec<(&'static str, String)>) {
        for (invariant, what) in wrong {
            if self.violations.len() < KEPT_MAX {
                self.violations.push(Violation { invariant, step: self.steps, what });
            }
        }
    }
}

/// Returns every invariant.
pub fn every() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(promise_monotonic::PromiseMonotonic::default()),
        Box::new(one_primary::OnePrimary::default()),
        Box::new(epoch_quorum::EpochQuorum::default()),
        Box::new(no_old_ack::NoOldAck),
        Box::new(epoch_after_history::EpochAfterHistory::default()),
        Box::new(ackld_durable::AckLdDurable),
        Box::new(integrity::Integrity),
        Box::new(total_order::TotalOrder::default()),
        Box::new(prefix::Prefix),
        Box::new(primary_order::PrimaryOrder::default()),
        Box::new(primary_integrity::PrimaryIntegrity),
        Box::new(continuity::Continuity),
        Box::new(leader_completeness::LeaderCompleteness::default()),
        Box::new(commit_quorum::CommitQuorum::default()),
        Box::new(quorum_durable::QuorumDurable::default()),
        Box::new(ack_durable::AckDurable),
        Box::new(last_zxid_durable::LastZxidDurable),
        Box::new(committed_immutable::CommittedImmutable),
        Box::new(survives::Survives),
        Box::new(state_order::StateOrder),
        Box::new(monotonic::Monotonic::default()),
        Box::new(determinism::Determinism::default()),
        Box::new(derived::Derived::default()),
        Box::new(configuration::Configuration::default()),
        Box::new(ephemeral::Ephemeral::default()),
        Box::new(session_ids::SessionIds::default()),
        Box::new(no_fault::NoFault),
        Box::new(stickiness::Stickiness::default()),
        Box::new(bounded::Bounded),
        Box::new(snapshot_progress::SnapshotProgress::default()),
        Box::new(returning::Returning),
    ]
}
