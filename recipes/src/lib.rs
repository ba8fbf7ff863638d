//! The recipes of ZooKeeper, safe by default, over any session that implements [`Coordinator`].
//!
//! | for | see |
//! |---|---|
//! | one at a time | [`lock`]: [`Lock`], [`ReentrantLock`]; [`gate`] for the one without an order |
//! | readers and writers | [`read_write_lock`] |
//! | so many at a time | [`semaphore`], [`rolling_restart`] for what has to outlive its process |
//! | one who decides | [`election`] |
//! | what a holder has, and how it writes | [`grant`]: [`Grant`], [`FencingToken`], [`FencedWriter`], [`Holding`] |
//! | who holds and waits, asking and breaking | [`contention`] |
//! | waiting for others | [`barrier`], [`double_barrier`], [`latch`], [`event_handle`] |
//! | work for one of many | [`queue`]: [`Queue`], [`PriorityQueue`] |
//! | all or none | [`two_phase_commit`] |
//! | who is there | [`persistent`]: [`Group`], [`PersistentZnode`]; [`names`] |
//! | what others say | [`cache`], [`configuration`] |
//! | a number | [`counter`] |
//! | all of it over TCP, also against Apache ZooKeeper | `remote`, with the feature of that name |
//!
//! Each page says what the recipe guarantees and what not, which znodes it uses, and what comes of failures.
//!
//! Nothing here does IO, reads a clock, spawns or needs a runtime: futures are polled by whoever waits for them, and what a dropped one leaves
//! behind is cleared away by its session ([`Errand`]). Only the feature `remote` brings a runtime. No protocol step depends on a timer; only what a caller says he has patience for does.

mod ask;
pub mod barrier;
mod board;
pub mod cache;
pub mod configuration;
pub mod contention;
pub mod counter;
pub mod double_barrier;
pub mod election;
mod error;
pub mod event_handle;
pub mod gate;
pub mod grant;
pub mod latch;
mod line;
pub mod lock;
#[doc(hidden)]
pub mod mutation;
pub mod names;
mod naming;
mod once;
pub mod persistent;
mod preference;
pub mod queue;
pub mod read_write_lock;
#[cfg(feature = "remote")]
pub mod remote;
pub mod rolling_restart;
pub mod semaphore;
pub mod two_phase_commit;

pub use barrier::Barrier;
pub use cache::{Change, ChildrenCache, Content, NodeCache, NodeChange, catch_up};
pub use configuration::{Configuration, Update};
pub use contention::{Contender, Contention, Revoked};
pub use counter::Counter;
pub use double_barrier::{DoubleBarrier, Meeting};
pub use election::{Election, Leadership, Observer, Office};
pub use error::Error;
pub use event_handle::{EventHandle, Reset};
pub use gate::{Gate, Passage};
pub use grant::{FencedWriter, FencingToken, Grant, Holding, Holdings};
pub use latch::Latch;
pub use lock::{Lock, ReentrantLock};
pub use names::{Names, Registration};
pub use naming::{Mode, Naming};
pub use persistent::{Group, Member, PersistentZnode};
pub use preference::Preference;
pub use queue::{Claim, ITEMS_MAX, Lifetime, Priority, PriorityQueue, Queue};
pub use read_write_lock::ReadWriteLock;
#[cfg(feature = "remote")]
pub use remote::Remote;
pub use rolling_restart::{Permit, RollingRestart};
pub use semaphore::Semaphore;
pub use two_phase_commit::{Notification, Outcome, Participant, ParticipantLog, Record, Transaction, Vote};
pub use zoolet_coordinator::{Coordinator, Errand, Guid, Instant, Left};
