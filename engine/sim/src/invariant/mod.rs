//! The invariants of Zab, each recomputed from what really happened.
//!
//! The simulator tells [`Checks`] everything that happens at a server as it happens: [`Checks::see`] with a [`Seen`]. From that the harness
//! keeps its own books ([`Ghost`]): what each disk holds, who broadcast what in which epoch, what is committed, and the state that follows from
//! it. Nothing is taken from the protocol's own counters. Every [`Invariant`] is asked before and after each of these changes; once in a while, and
//! at the end, each counts everything again ([`Checks::recount`]). What does not hold becomes a [`Violation`], which is a text.
//!
//! A call costs a few comparisons, and a binary search in a history when entries are named.

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

pub use ghost::{Configs, Found, Ghost, Held, Host, Membership, Primary, Retired, Settled};
pub use history::{History, Link};
pub use seen::{Queue, Seen, State};

use std::fmt;
use zoolet_zab::{AppendSeq, Config, ServerId};

/// Something that must always be true.
pub trait Invariant: fmt::Debug {
    /// What it is called, as in docs/SAFETY.md.
    fn name(&self) -> &'static str;

    /// Judges what is about to change the books: they still say what was true when it happened.
    ///
    /// # Errors
    /// What is wrong.
    fn before(&mut self, _ghost: &Ghost, _server: ServerId, _seen: &Seen<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Judges what the books say now.
    ///
    /// # Errors
    /// What is wrong.
    fn after(&mut self, _ghost: &Ghost, _server: ServerId, _seen: &Seen<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Counts everything again.
    ///
    /// # Errors
    /// What is wrong.
    fn recount(&mut self, _ghost: &Ghost) -> Result<(), String> {
        Ok(())
    }
}

/// Something that was not true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which invariant.
    pub invariant: &'static str,
    /// By what number of [`Checks::see`] it was noticed.
    pub step: u64,
    /// Which servers, entries and epochs.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (step {})", self.invariant, self.what, self.step)
    }
}

/// Violations that are kept: the first explains, the rest follow from it.
const KEPT_MAX: usize = 16;

/// Committed entries that are remembered one by one although every server has them.
const REMEMBERED: usize = 20_000;

/// The books and everything that is checked in them.
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
    /// Every invariant there is, for an ensemble that this configuration file founds. Everything is counted again after so many steps.
    pub fn new(founders: Config, recount_every: u64) -> Self {
        Self::of(founders, recount_every, every())
    }

    fn of(founders: Config, recount_every: u64, invariants: Vec<Box<dyn Invariant>>) -> Self {
        Self { ghost: Ghost::new(founders), invariants, violations: Vec::new(), steps: 0, recount_every }
    }

    /// Something happened at a server.
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

    /// Counts everything again, from the beginning: at the end of a run, and every so often.
    pub fn recount(&mut self) {
        let ghost = &self.ghost;
        let outcomes = self.invariants.iter_mut().map(|invariant| (invariant.name(), invariant.recount(ghost)));
        let wrong = outcomes.filter_map(|(name, outcome)| Some((name, outcome.err()?))).collect();
        self.keep(wrong);
    }

    /// Whether everything was true until now.
    ///
    /// # Errors
    /// The first violation.
    pub fn verdict(&self) -> Result<(), &Violation> {
        self.violations.first().map_or(Ok(()), Err)
    }

    /// What was not true, the first first.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Steps until now.
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

/// Every invariant there is.
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
