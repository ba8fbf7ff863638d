//! The recipes of ZooKeeper, safe by default, over any session that implements [`Coordinator`].
//!
//! Nothing here does IO, reads a clock, spawns or needs a runtime: futures are polled by whoever waits for them, and what a dropped one leaves
//! behind is cleared away by its session ([`Errand`]).

mod ask;
mod barrier;
mod cache;
mod configuration;
mod contention;
mod coordinator;
mod counter;
mod double_barrier;
mod election;
mod errand;
mod error;
mod event_handle;
mod gate;
mod grant;
mod guid;
mod latch;
mod line;
mod lock;
mod name;
mod names;
mod naming;
mod once;
mod persistent;
mod queue;
mod read_write_lock;
mod rolling_restart;
mod semaphore;
mod two_phase_commit;

pub use barrier::Barrier;
pub use cache::{Change, ChildrenCache, Content, NodeCache, catch_up};
pub use configuration::{Configuration, Update};
pub use contention::{Contender, Contention, Revoked};
pub use coordinator::Coordinator;
pub use counter::Counter;
pub use double_barrier::{DoubleBarrier, Meeting};
pub use election::{Election, Leadership, Observer, Office};
pub use errand::{Errand, Left};
pub use error::Error;
pub use event_handle::{EventHandle, Reset};
pub use gate::{Gate, Passage};
pub use grant::{FencedWriter, FencingToken, Grant, Holding, Holdings};
pub use guid::Guid;
pub use latch::Latch;
pub use lock::{Lock, ReentrantLock};
pub use names::{Names, Registration};
pub use naming::{Mode, Naming};
pub use persistent::{Group, Member, PersistentZnode};
pub use queue::{Claim, ITEMS_MAX, Lifetime, Priority, PriorityQueue, Queue};
pub use read_write_lock::ReadWriteLock;
pub use rolling_restart::{Permit, RollingRestart};
pub use semaphore::Semaphore;
pub use two_phase_commit::{Notification, Outcome, Participant, ParticipantLog, Record, Transaction, Vote};
