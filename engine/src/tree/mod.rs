//! The tree of znodes: what an entry does to it and what a read sees of it.
//!
//! It knows nothing of peers, quorums or connections. It looks at the state through [`View`], which may answer "not in memory";
//! then nothing has happened yet, and the same call is made again once the record was fetched.

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
