//! The bytes of everything that servers say to each other. Pure.
//!
//! All of it is frames (docs/FORMATS.md, "Between servers"): a length, a kind, a body; but the bytes of a snapshot, which are the image itself. The first
//! frame of a stream says what the stream is ([`Opening`]); a lane is a row of messages ([`encode`], [`Frames`]); a datagram is one message without the
//! length ([`encode_datagram`], [`decode_datagram`]).
//!
//! Every value has one form, so what decodes encodes to the same bytes; what nobody may send is refused here, and its frame named. A
//! decoder takes no more memory than what came justifies: a payload is a slice of its frame, and room for a list is made when its
//! elements are seen to be there.

mod error;
mod frames;
mod hello;
mod kind;
mod message;
mod opening;
mod reader;
mod writer;
mod zab;

pub use error::CodecError;
pub use frames::{Frames, SHARED_BYTES};
pub use hello::{ADDRESS_BYTES_MAX, ADDRESSES_MAX, EXTENSION_BYTES_MAX, Hello, MINOR_VERSION, SITE_BYTES_MAX};
pub use kind::Kind;
pub use opening::{OPENING_BYTES_MAX, Opening, REASON_BYTES_MAX, SnapshotReply, SnapshotRequest, StreamLane};

use bytes::{BufMut, Bytes, BytesMut};
use zoolet_engine::Limits;
use zoolet_engine::peer::{CLAIMS_MAX, ENTRIES_BYTES_MAX, Lane, PeerEntry, PeerMessage};

/// Appends one frame.
pub fn encode(message: &PeerMessage, out: &mut BytesMut) {
    writer::frame(out, message::kind_of(message), |out| message::encode(message, out));
}

/// Appends a message of [`Lane::Datagram`] as one datagram is: without a length.
pub fn encode_datagram(message: &PeerMessage, out: &mut BytesMut) {
    debug_assert_eq!(message.lane(), Lane::Datagram, "what may not be lost goes on a stream");
    out.put_u8(message::kind_of(message).byte());
    message::encode(message, out);
}

/// The message that is all of a datagram.
///
/// # Errors
/// What is wrong with it.
pub fn decode_datagram(datagram: Bytes) -> Result<PeerMessage, CodecError> {
    frames::decode(datagram, Lane::Datagram)
}

/// Bytes of the longest frame, without its length, that a server with these limits sends: one entry that is as large as its log takes, a whole batch of
/// small ones, or all its sessions.
pub fn frame_bytes_max(limits: &Limits) -> usize {
    // Then what the machine takes for a full batch is not longer here.
    const { assert!(message::ENTRY_BYTES <= size_of::<PeerEntry>()) };
    let payloads = limits.payload_bytes_max().max(ENTRIES_BYTES_MAX);
    let sessions = CLAIMS_MAX * message::CLAIM_BYTES + limits.sessions_max as usize * message::SESSION_BYTES;
    (message::ENTRIES_BYTES + message::ENTRY_BYTES + payloads).max(message::TOUCH_BYTES + sessions)
}
