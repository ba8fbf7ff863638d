//! The Zab broadcast protocol alone: sans-IO, `no_std`, no allocation.
//!
//! Events go in through `handle_*` methods and commands; [`Action`]s come out of
//! [`Zab::poll_action`]. Bytes never pass through the machine. Actions name entries by zxid and
//! appends by number, and the program that drives the machine (the driver) keeps the bytes.
//!
//! Each phase has its file: election, discovery, synchronization, broadcast. Heartbeats and
//! linearizable reads have their own.
#![no_std]

mod action;
mod appends;
mod broadcast;
mod commit_hold;
mod discovery;
mod election;
mod heartbeat;
mod member;
mod message;
pub mod mutation;
mod peer;
mod quorum;
mod reads;
mod recovered;
mod refused;
mod sent_by_disk;
mod spans;
mod synchronization;
mod timing;
mod zab;
mod zxid;

pub use action::{Action, Fault, Role, Round};
pub use member::{CONFIG_BYTES_MAX, Config, Kind, MEMBERS_MAX, Member};
pub use message::{CANNOT_LEAD_MS, Credentials, Message, Notification, Servers, Stance};
pub use mutation::Mutation;
pub use quorum::Voters;
pub use recovered::Recovered;
pub use refused::Refused;
pub use spans::{SPANS_MAX, Span, Spans};
pub use timing::Timing;
pub use zab::{PEERS_MAX, Zab};
pub use zxid::{AppendSeq, Attempt, EnsembleId, Epoch, Incarnation, LinkId, ServerId, Zxid};
