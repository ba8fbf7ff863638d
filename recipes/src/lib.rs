//! The recipes of ZooKeeper, safe by default, over any session that implements [`Coordinator`].
//!
//! Nothing here does IO, reads a clock, spawns or needs a runtime: futures are polled by whoever waits for them, and what a dropped one leaves
//! behind is cleared away by its session ([`Errand`]).

mod ask;
mod contention;
mod coordinator;
mod election;
mod errand;
mod error;
mod grant;
mod guid;
mod line;
mod lock;
mod name;
mod naming;
mod read_write_lock;

pub use contention::{Contender, Contention, Revoked};
pub use coordinator::Coordinator;
pub use election::{Election, Leadership, Observer, Office};
pub use errand::{Errand, Left};
pub use error::Error;
pub use grant::{FencedWriter, FencingToken, Grant, Holding, Holdings};
pub use guid::Guid;
pub use lock::{Lock, ReentrantLock};
pub use naming::{Mode, Naming};
pub use read_write_lock::ReadWriteLock;
