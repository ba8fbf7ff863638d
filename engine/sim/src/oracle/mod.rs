//! What clients of an ensemble may observe, checked after a run.
//!
//! Pure code over a recorded [`History`]: no oracle knows how a server works. Whoever drives an ensemble records into a
//! [`Recorder`]:
//!
//! - a client begins a connection: [`Recorder::connecting`]; the answer: [`Recorder::connected`]; its end: [`Recorder::ended`],
//! - a request leaves it: [`Recorder::invoked`]; an answer or an event arrives: [`Recorder::answered`], [`Recorder::notified`],
//! - a server applies an entry: [`Recorder::committed`], for every server and entry, no-ops and sessions too,
//! - links and leaders: [`Recorder::serving`], [`Recorder::healthy`].

mod history;
#[allow(dead_code, reason = "the oracles that tell these stories follow")]
mod violation;

pub use history::{
    Answer, ClientId, Committed, Connection, Disagreement, End, History, Moment, Operation, Received, Recorder, Span,
};
pub use violation::Violation;

/// Judges a run.
///
/// # Errors
/// The first broken rule, and the story of how it was broken.
pub fn check(history: &History) -> Result<(), Violation> {
    if let Some(Disagreement { zxid, at, what }) = &history.disagreement {
        return Err(Violation::of("there is one history")
            .and(format!("at {} a server applied {zxid}: {what}", violation::clock(*at))));
    }
    Ok(())
}
