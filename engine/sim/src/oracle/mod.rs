//! What clients of an ensemble may observe, checked after a run.
//!
//! Pure code over a recorded [`History`]: no oracle knows how a server works. Whoever drives an ensemble records into a
//! [`Recorder`]:
//!
//! - a client begins a connection: [`Recorder::connecting`]; the answer: [`Recorder::connected`]; its end: [`Recorder::ended`],
//! - a request leaves it: [`Recorder::invoked`]; an answer or an event arrives: [`Recorder::answered`], [`Recorder::notified`],
//! - a server applies an entry: [`Recorder::committed`], for every server and entry, no-ops and sessions too,
//! - links, leaders and full disks: [`Recorder::serving`], [`Recorder::healthy`], [`Recorder::refusing`], [`Recorder::leader_refusing`].
//!
//! Then [`check_with`] judges what was recorded: at the end, or [so far](Recorder::so_far) (what is owed at the end is then not asked for). It
//! takes a few microseconds for each operation. [`Summary`] says whether there was anything to judge, [`load`] is a workload made for this.

mod cut_short;
mod ephemeral;
mod expiry;
mod facts;
mod fifo;
mod history;
mod identity;
pub mod load;
mod order;
mod origin;
mod realtime;
mod replay;
mod session;
mod summary;
mod timeliness;
mod violation;
mod watch;

pub use history::{
    Answer, ClientId, Committed, Connection, Disagreement, End, History, Moment, Operation, Received, Recorder, Span,
};
pub use replay::Changed;
pub use summary::Summary;
pub use violation::Violation;

use facts::Facts;

/// How fast an ensemble promises to be, where a rule is about time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// Until the leader knows that a session was heard by a server that follows it, microseconds.
    pub propagation_us: u64,
    /// Until a session whose timeout is over is closed, while the ensemble is well, microseconds.
    pub expiry_us: u64,
    /// For how long a server's clock may stand still, before it jumps to true time, without any server noticing, microseconds.
    pub unnoticed_us: u64,
    /// How far a server's clock may run from true time, millionths.
    pub drift_ppm: u64,
    /// Until a request is answered or its connection ends, while the ensemble is well, microseconds.
    pub answer_us: u64,
    /// For how long a state may be shown after another server had a newer one, microseconds; `None` when that is not bounded.
    pub staleness_us: Option<u64>,
}

impl Default for Promises {
    fn default() -> Self {
        Self {
            propagation_us: 1_000_000,
            expiry_us: 5_000_000,
            unnoticed_us: 0,
            drift_ppm: 0,
            answer_us: 10_000_000,
            staleness_us: None,
        }
    }
}

impl Promises {
    /// What a server's clock may take for so long, at least; a millisecond is its grain.
    fn shortest_us(&self, us: u64) -> u64 {
        (us - us.saturating_mul(self.drift_ppm.min(1_000_000)) / 1_000_000).saturating_sub(1000)
    }

    /// What a server's clock may take for so long, at most.
    fn longest_us(&self, us: u64) -> u64 {
        us + us.saturating_mul(self.drift_ppm) / 1_000_000 + 2000
    }
}

/// Judges a run, with the promises that an ensemble makes when nothing else was said.
///
/// # Errors
/// The first broken rule, and the story of how it was broken.
pub fn check(history: &History) -> Result<(), Violation> {
    check_with(history, &Promises::default())
}

/// Judges a run.
///
/// # Errors
/// The first broken rule, and the story of how it was broken.
pub fn check_with(history: &History, promises: &Promises) -> Result<(), Violation> {
    if let Some(Disagreement { zxid, at, what }) = &history.disagreement {
        return Err(Violation::of("there is one history")
            .and(format!("at {} a server applied {zxid}: {what}", violation::clock(*at))));
    }
    let facts = Facts::of(history)?;
    order::check(&facts)?;
    session::check(&facts)?;
    let origins = origin::check(&facts)?;
    realtime::check(&facts, &origins)?;
    fifo::check(&facts, &origins)?;
    ephemeral::check(&facts)?;
    expiry::check(&facts, &origins, promises)?;
    timeliness::check(&facts, promises)?;
    let scripts = replay::check(&facts, &origins)?;
    watch::check(&facts, &scripts)
}

/// Every change of a znode, in order: what judges of something else than the ensemble need where its clients cannot know what became of a write.
///
/// # Errors
/// As [`check`].
pub fn changed(history: &History) -> Result<Vec<Changed>, Violation> {
    let facts = Facts::of(history)?;
    let origins = origin::check(&facts)?;
    replay::changed(&facts, &origins)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod toy;
#[cfg(test)]
mod wing_gong;
