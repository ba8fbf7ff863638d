//! The recipes of ZooKeeper, safe by default, over any session that implements [`Coordinator`].
//!
//! Nothing here does IO, reads a clock, spawns or needs a runtime: futures are polled by whoever waits for them, and what a dropped one leaves
//! behind is cleared away by its session ([`Errand`]).

mod coordinator;
mod errand;
mod guid;
mod name;

pub use coordinator::Coordinator;
pub use errand::{Errand, Left};
pub use guid::Guid;
