//! zoolet's server as one deterministic, sans-IO state machine.
//!
//! The machine takes [`Event`]s and returns [`Action`]s. Time, entropy and bytes are arguments: the
//! machine reads no clock, spawns no thread and opens no socket or file. Its driver (the runtime or
//! the simulator) carries the actions out. No dependency of this crate does IO.
//!
//! | room | what it holds |
//! |---|---|
//! | [`seam`] | events, actions and messages between servers |
//! | [`server`] | the machine: it routes events to the rooms below |
//! | [`sessions`], [`watch`] | sessions, and watches |
//! | [`tree`] | the effects of entries and the results of reads |
//! | [`state`] | the layers of memory above the base |
//! | [`record`] | stored records: keys, bytes, permissions, hashes |
//! | [`status`] | the state of the server, and its alarms |

pub mod budget;
pub mod derived;
pub mod limits;
pub mod network;
pub mod record;
pub mod seam;
pub mod server;
pub mod sessions;
pub mod state;
pub mod status;
pub mod tree;
pub mod txn;
pub mod watch;
pub mod wear;

pub use budget::Budget;
pub use limits::{Limits, Settings};
pub use seam::action::Action;
pub use seam::event::{ConnId, Event, Now};
pub use seam::peer::PeerMessage;
pub use server::{BaseState, Server, Start};
pub use status::Status;
