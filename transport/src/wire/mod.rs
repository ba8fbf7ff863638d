//! ZooKeeper's codec: bytes to requests, replies to bytes, and the same for clients. Pure.
//!
//! Two ideas: a [`Reader`] that slices the frame it reads without copying, so that paths and data share the buffer the
//! socket was read into; and writers that append to a [`bytes::BytesMut`] and go back to fill in lengths. "surface N" names a
//! numbered section of ZooKeeper's client-visible behaviour, as docs/ARCHITECTURE.md lists them.
//!
//! What a decoder allocates is bounded by the frame: texts and data share it, and a vector is allocated only after its
//! elements were seen to be there. The worst case is a vector of empty strings: 4 bytes on the wire, one `Text` here.

pub mod client;
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
