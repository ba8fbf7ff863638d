//! zoolet's server as one deterministic, sans-IO state machine, and its store.
//!
//! The machine takes [`Event`]s and returns [`Action`]s. Time, entropy and bytes are arguments: the
//! machine reads no clock, spawns no thread and opens no socket. Its driver (the runtime or the
//! simulator) carries the actions out. Only the store's modules do disk IO, through
//! [`store::disk::Disk`], and only when the driver calls them.

pub mod action;
pub mod budget;
mod completion;
pub mod event;
pub mod limits;
pub mod network;
pub mod notices;
pub mod peer;
pub mod server;
pub mod session;
pub mod status;
pub mod store;
pub mod tree;
pub mod txn;
pub mod watch;
pub mod wear;

pub use action::Action;
pub use budget::Budget;
pub use event::{ConnId, Event, Now};
pub use limits::{Limits, Settings};
pub use peer::PeerMessage;
pub use server::{BaseState, Server, Start};
pub use status::Status;
