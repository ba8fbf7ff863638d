//! Checks after a run what clients of an ensemble could observe.
//!
//! The oracles are pure code over a recorded [`History`]. None knows how a server works. The driver
//! of an ensemble records into a [`Recorder`]:
//!
//! - a client begins a connection: [`Recorder::connecting`]; the answer: [`Recorder::connected`];
//!   its end: [`Recorder::ended`],
//! - a request leaves it: [`Recorder::invoked`]; an answer or an event arrives:
//!   [`Recorder::answered`], [`Recorder::notified`],
//! - a server applies an entry: [`Recorder::committed`], for every server and entry, including
//!   no-ops and sessions,
//! - links, leaders and full disks: [`Recorder::serving`], [`Recorder::healthy`],
//!   [`Recorder::refusing`], [`Recorder::leader_refusing`].
//!
//! Then [`check_with`] judges the history at the end of the run. It can also judge the history [so
//! far](Recorder::so_far), without the rules that hold only at the end. It takes a few microseconds
//! per operation. [`Summary`] counts how much there was to judge. [`load`] is a workload made for
//! these oracles.

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
mod reader;
mod realtime;
mod replay;
mod request;
mod session;
mod summary;
mod timeliness;
mod ttl;
mod violation;
mod watch;

pub use history::{
    Answer, ClientId, Committed, Connection, Disagreement, End, History, Moment, Operation, Received, Recorder, Span,
};
pub use replay::Changed;
pub use summary::Summary;
pub use violation::Violation;

use facts::Facts;

/// The timing that an ensemble promises, for the rules about time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// Maximum delay in microseconds before the leader knows that a follower heard from a session.
    pub propagation_us: u64,
    /// Maximum delay in microseconds before an expired session is closed, in a healthy ensemble.
    pub expiry_us: u64,
    /// Maximum time in microseconds that a server's clock may stand still unnoticed, before it
    /// jumps to true time.
    pub unnoticed_us: u64,
    /// Maximum drift of a server's clock from true time, in parts per million.
    pub drift_ppm: u64,
    /// Maximum time in microseconds until a request is answered or its connection ends, in a
    /// healthy ensemble.
    pub answer_us: u64,
    /// Maximum time in microseconds by which a TTL znode outlives its time, in a healthy ensemble.
    /// `None` if it is unbounded.
    pub reap_us: Option<u64>,
    /// Maximum time in microseconds until a server has heard the last words of a leader that ended.
    pub last_words_us: u64,
    /// Maximum age in microseconds of a state shown to a client; `None` if it is unbounded.
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
            reap_us: None,
            last_words_us: u64::MAX,
            staleness_us: None,
        }
    }
}

impl Promises {
    /// Returns the shortest time that a server's clock may show for `us`. The clock's grain is 1
    /// ms.
    fn shortest_us(&self, us: u64) -> u64 {
        (us - us.saturating_mul(self.drift_ppm.min(1_000_000)) / 1_000_000).saturating_sub(1000)
    }

    /// Returns the longest time that a server's clock may show for `us`.
    fn longest_us(&self, us: u64) -> u64 {
        us + us.saturating_mul(self.drift_ppm) / 1_000_000 + 2000
    }
}

/// Judges a run by the default promises.
///
/// # Errors
/// The first broken rule, with the story of how it was broken.
pub fn check(history: &History) -> Result<(), Violation> {
    check_with(history, &Promises::default())
}

/// Judges a run by the given promises.
///
/// # Errors
/// The first broken rule, with the story of how it was broken.
pub fn check_with(history: &History, promises: &Promises) -> Result<(), Violation> {
    if let Some(Disagreement { zxid, at, what }) = &history.disagreement {
        return Err(Violation::of("there is one history")
            .and(format!("at {} a server applied {zxid}: {what}", violation::clock(*at))));
    }
    let facts = Facts::of(history)?;
    order::check(&facts)?;
    session::check(&facts)?;
    reader::check(&facts)?;
    let origins = origin::check(&facts)?;
    realtime::check(&facts, &origins)?;
    fifo::check(&facts, &origins)?;
    ephemeral::check(&facts)?;
    expiry::check(&facts, &origins, promises)?;
    timeliness::check(&facts, promises)?;
    let (scripts, lives) = replay::check(&facts, &origins)?;
    ttl::check(&facts, &origins, promises, &lives)?;
    watch::check(&facts, &scripts)
}

/// Returns every change of a znode, in order.
///
/// Checkers outside the ensemble need it when its clients cannot know the outcome of a write.
///
/// # Errors
/// As for [`check`].
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
