//! ZooKeeper's codec for servers and clients, without IO.
//!
//! A [`Reader`] slices its frame without copying, so paths and data share the buffer that the
//! socket was read into. Writers append to a [`bytes::BytesMut`] and go back to fill in lengths.
//! "surface N" names a section of docs/reference/zookeeper.md, which describes ZooKeeper's
//! client-visible behaviour.
//!
//! The frame bounds a decoder's allocations: texts and data share the frame, and a vector is
//! allocated only after its elements were seen. The worst case is a vector of empty strings: 4
//! bytes each on the wire, one `Text` each in memory.

pub mod client_side;
mod connect;
mod frame;
mod opcode;
mod reader;
mod reply;
mod request;
mod writer;

pub use connect::{decode_connect, encode_connect_reply};
pub(crate) use frame::announced;
pub use frame::{FrameError, split_frame};
pub use opcode::Opcode;
pub use reader::{Malformed, Reader};
pub use reply::{encode_event, encode_reply};
pub use request::{DecodeOptions, TooShort, decode_request};

/// The xid of a watch event.
pub const XID_EVENT: i32 = -1;
/// The xid of a ping and of its answer.
pub const XID_PING: i32 = -2;
