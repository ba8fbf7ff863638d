//! The tree of znodes: the effects of entries and the results of reads.
//!
//! It knows nothing of peers, quorums or connections. It reads the state through [`View`], which
//! may answer "not in memory". Nothing has changed in that case, and the caller repeats the call
//! once the record was fetched.

pub mod acl;
mod apply;
mod attempt;
mod birth;
mod needs;
mod overlay;
mod read;
pub mod record;
mod view;

pub use apply::{Applied, Buffers, Fired, MultiFailure, OpOutcome, Outcome, apply};
pub use birth::birth;
pub use needs::{Need, foreseen_names, needs};
pub use overlay::{Change, Overlay};
pub(crate) use read::{Determined, Remembered, missed, read, waits_for_bytes};
pub use view::{Found, Stuck, View};

#[cfg(test)]
mod tests;
