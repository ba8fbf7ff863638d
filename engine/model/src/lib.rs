//! zoolet's data model: requests, replies, and their shared types.
//!
//! This crate does no IO, reads no clock and decides nothing. "Surface N" refers to section N of
//! docs/reference/zookeeper.md.
#![no_std]

extern crate alloc;

mod acl;
mod class;
mod error;
mod into_data;
mod name_list;
pub mod path;
mod reply;
mod request;
mod session;
mod stat;
mod text;
mod version;

pub use acl::{AclEntry, AskedAcl, AuthId, Perms, RequestedAcl, open_acl};
pub use class::{Class, OneShot, Read};
pub use error::ErrorCode;
pub use into_data::IntoData;
pub use name_list::{Names, NamesBuilder};
pub use path::{InvalidPath, Path};
pub use reply::{EventKind, OpResult, ReadResult, Reply, TimeToLive, WatchEvent, first_failure};
pub use request::{
    AddWatchMode, ConnectReply, ConnectRequest, Create, CreateKind, CreateMode, ReadOp, Request, SessionId,
    SessionSecret, SetWatches, TTL_MAX_MS, WatcherType, WriteOp,
};
pub use session::{LostReason, RequestError, SessionState, WatchItem, WatchedEvent};
pub use stat::Stat;
pub use text::Text;
pub use version::Version;
pub use zoolet_zab::{Epoch, ServerId, Zxid};
