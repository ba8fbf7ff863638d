//! ZooKeeper's recipes, safe by default, over any [`Coordinator`] session.
//!
//! | to | see |
//! |---|---|
//! | go on when a session is lost | [`client`]: [`Client`] |
//! | let one participant in at a time | [`lock`]: [`Lock`], [`ReentrantLock`] |
//! | the same, in no order | [`gate`] |
//! | coordinate readers and writers | [`read_write_lock`] |
//! | let a limited number in at a time | [`semaphore`] |
//! | the same, for permits that outlive a process | [`rolling_restart`] |
//! | elect a leader | [`election`] |
//! | act while holding | [`grant`]: [`Grant`], [`FencingToken`], [`FencedWriter`], [`Holding`] |
//! | list holders and waiters, revoke grants | [`contention`] |
//! | wait for others | [`barrier`], [`double_barrier`], [`latch`], [`event_handle`] |
//! | hand each item of work to one consumer | [`queue`]: [`Queue`], [`PriorityQueue`] |
//! | decide together: all or none | [`two_phase_commit`] |
//! | find members and names | [`persistent`]: [`Group`], [`PersistentZnode`]; [`names`] |
//! | follow data of others | [`cache`], [`configuration`] |
//! | share a number | [`counter`] |
//! | use recipes over TCP, also with Apache ZooKeeper | `remote`, with the feature of that name |
//!
//! Each page states the recipe's guarantees and their limits, its znodes, and how it handles
//! failures.
//!
//! Recipes do no IO, read no clock, spawn no tasks and need no runtime. The caller polls the
//! futures. If a future is dropped, its session cleans up after it ([`Errand`]). Only the feature
//! `remote` brings a runtime. No protocol step depends on a timer, except for a time limit that the
//! caller sets.

mod ask;
pub mod barrier;
mod board;
pub mod cache;
pub mod client;
pub mod configuration;
pub mod contention;
pub mod counter;
pub mod double_barrier;
pub mod election;
pub mod event_handle;
mod feed;
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
mod telling;
pub mod two_phase_commit;
mod wakers;
mod watched;

pub use barrier::Barrier;
pub use cache::{Change, ChildrenCache, ZnodeCache, ZnodeChange, catch_up};
pub use client::{Client, Follow, Following, MemberEvent, Membership, SessionEvent, SessionEvents, Watching};
pub use configuration::{Configuration, Update};
pub use contention::{Contender, Contention, Revoked};
pub use counter::Counter;
pub use double_barrier::{DoubleBarrier, Meeting};
pub use election::{Election, Leadership, Observer, Office};
pub use event_handle::{EventHandle, Reset};
pub use gate::{Gate, Passage};
pub use grant::{FencedWriter, Grant, Hold, Holding, Holdings, SafeInstants, SafeUntil};
pub use latch::Latch;
pub use lock::{Lock, ReentrantLock};
pub use names::{NameService, Registration};
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
pub use watched::Watched;
pub use zoolet_coordinator::{
    Coordinator, CoordinatorExt, CreateOptions, Created, Done, Errand, Error, ErrorKind, FencingToken, GrantChange,
    GrantEnd, GrantStep, Guid, Instant, Left, Op, OpenSession, Prepared, Recorded, RecordedOpening, Znode,
};
