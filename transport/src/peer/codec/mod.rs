//! The encoding of all messages between servers. Pure functions, no I/O.
//!
//! Everything is a frame of a length, a kind and a body (docs/reference/formats.md, "Between
//! servers"). The one exception is a snapshot's bytes, which are the raw image. The first frame of
//! a stream says how the stream is used ([`Opening`]). A lane is a sequence of messages
//! ([`encode`], [`Frames`]). A datagram is one message without the length field
//! ([`encode_datagram`], [`decode_datagram`]).
//!
//! Every message except Health has exactly one encoding, so a decoded message encodes to the same
//! bytes. Decoders reject invalid values and name the frame's kind in the error. A decoder
//! allocates no more than the received bytes justify. A payload is a slice of its frame. A list is
//! allocated only after its length was checked against the rest of the frame.

mod error;
mod frame_reader;
mod frame_writer;
mod frames;
mod hello;
mod kind;
mod opening;
mod peer_message;
mod zab_message;

pub use error::CodecError;
pub use frames::{Frames, SHARED_BYTES};
pub use hello::{ADDRESS_BYTES_MAX, ADDRESSES_MAX, EXTENSION_BYTES_MAX, Hello, MINOR_VERSION, SITE_BYTES_MAX};
pub use kind::Kind;
pub use opening::{OPENING_BYTES_MAX, Opening, REASON_BYTES_MAX, SnapshotReply, SnapshotRequest, StreamLane};

use bytes::{BufMut, Bytes, BytesMut};
use zoolet_machine::Limits;
use zoolet_machine::seam::peer::{CLAIMS_MAX, ENTRIES_BYTES_MAX, Lane, PeerEntry, PeerMessage};

/// Appends `message` as one frame.
pub fn encode(message: &PeerMessage, out: &mut BytesMut) {
    frame_writer::frame(out, peer_message::kind_of(message), |out| peer_message::encode(message, out));
}

/// Appends a message of [`Lane::Datagram`] as a frame without its length field.
pub fn encode_datagram(message: &PeerMessage, out: &mut BytesMut) {
    debug_assert_eq!(message.lane(), Lane::Datagram, "what may not be lost goes on a stream");
    out.put_u8(peer_message::kind_of(message).byte());
    peer_message::encode(message, out);
}

/// Decodes the one message in a datagram.
///
/// # Errors
/// [`CodecError`]: the datagram is not exactly one valid message of [`Lane::Datagram`].
pub fn decode_datagram(datagram: Bytes) -> Result<PeerMessage, CodecError> {
    frames::decode(datagram, Lane::Datagram)
}

/// Returns the longest frame, in bytes, of servers with these limits.
///
/// Does not count the length field. The longest frame is the largest entry of the log, a full batch
/// of small entries, or a Touch that lists all sessions.
pub fn frame_bytes_max(limits: &Limits) -> usize {
    // The engine counts `size_of::<PeerEntry>()` for each entry of a batch, so a full batch is no
    // longer on the wire.
    const { assert!(peer_message::ENTRY_BYTES <= size_of::<PeerEntry>()) };
    let payloads = limits.payload_bytes_max().max(ENTRIES_BYTES_MAX);
    let sessions = CLAIMS_MAX * peer_message::CLAIM_BYTES + limits.sessions_max as usize * peer_message::SESSION_BYTES;
    (peer_message::ENTRIES_BYTES + peer_message::ENTRY_BYTES + payloads).max(peer_message::TOUCH_BYTES + sessions)
}
