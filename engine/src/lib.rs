//! zoolet's server as one deterministic, sans-IO state machine, and the store it stands on.
//!
//! [`Event`]s go in, [`Action`]s come out. Time, entropy and bytes are arguments: nothing here reads a clock, spawns a
//! thread or opens a socket. The store's modules do disk IO, through [`store::disk::Disk`] only, when whoever drives the
//! machine calls them.

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
