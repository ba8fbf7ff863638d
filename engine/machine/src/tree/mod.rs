//! The tree of znodes: the effects of entries and the results of reads.
//!
//! It knows nothing of peers, quorums or connections. It reads the state through
//! [`View`](crate::state::View), which may answer "not in memory". Nothing has changed in that
//! case, and the caller repeats the call once the record was fetched.

mod apply;
mod attempt;
mod birth;
mod fired;
mod needs;
mod quota;
mod read;
mod usage;

pub use apply::{Applied, Buffers, MultiFailure, OpOutcome, Outcome, apply};
pub use birth::birth;
pub use fired::Fired;
pub use needs::{Need, foreseen_names, needs};
pub use quota::{Exceeded, foreseen_quotas};
pub(crate) use read::{Determined, Remembered, missed, read, waits_for_bytes};
pub use usage::{COUNTED_AT_ONCE, Room};

#[cfg(test)]
mod tests;
