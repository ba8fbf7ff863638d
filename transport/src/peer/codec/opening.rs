//! The first frame of a stream.

use super::frame_reader::{Read, Reader};
use super::frames::{LENGTH_BYTES, announced};
use super::{CodecError, Hello, Kind, frame_writer};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use zoolet_machine::seam::peer::{Lane, TransferId};

/// Maximum bytes of a stream's first frame. Bounds the memory that an unproved peer can consume.
pub const OPENING_BYTES_MAX: usize = 4096;
/// Maximum bytes of a refusal's reason.
pub const REASON_BYTES_MAX: usize = 256;

/// The first frame of a stream; determines how the rest is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// The sender introduces itself. Nothing follows.
    Hello(Hello),
    /// The frames of one lane follow, see [`super::Frames`].
    Lane(StreamLane),
    /// The receiver of a snapshot requests its bytes. The reply comes on the same stream.
    SnapshotRequest(SnapshotRequest),
}

/// A lane that travels on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamLane {
    /// [`Lane::Log`].
    Log,
    /// [`Lane::Forward`].
    Forward,
}

impl StreamLane {
    /// Converts to the [`Lane`] of messages.
    pub fn lane(self) -> Lane {
        match self {
            Self::Log => Lane::Log,
            Self::Forward => Lane::Forward,
        }
    }
}

/// Requests a snapshot's bytes from an offset on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotRequest {
    /// The sender's number for this transfer.
    pub transfer: TransferId,
    /// Bytes that the receiver kept from an earlier, interrupted transfer.
    pub offset: u64,
}

/// The answer to a [`SnapshotRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotReply {
    /// The raw bytes from the offset to the end follow.
    Bytes {
        /// Total bytes of the snapshot, including those before the offset.
        bytes: u64,
    },
    /// The request is refused. Nothing follows.
    Refused {
        /// The reason, for the operator. The encoder truncates it to [`REASON_BYTES_MAX`].
        reason: String,
    },
}

impl Opening {
    /// Appends the opening as one frame.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Hello(hello) => frame_writer::frame(out, Kind::Hello, |out| hello.encode(out)),
            Self::Lane(lane) => frame_writer::frame(out, Kind::OpenLane, |out| {
                out.put_u8(match lane {
                    StreamLane::Log => 1,
                    StreamLane::Forward => 2,
                });
            }),
            Self::SnapshotRequest(SnapshotRequest { transfer, offset }) => {
                frame_writer::frame(out, Kind::SnapshotRequest, |out| {
                    out.put_u64_le(transfer.0);
                    out.put_u64_le(*offset);
                });
            }
        }
    }

    /// Removes the opening from the front of `received`; `None` until it is complete.
    ///
    /// # Errors
    /// [`CodecError`]: the first frame is invalid or not an opening.
    pub fn take(received: &mut BytesMut) -> Result<Option<Self>, CodecError> {
        let Some(frame) = take_frame(received)? else { return Ok(None) };
        let mut reader = Reader::new(frame, "at the beginning of a stream")?;
        let opening = match reader.kind() {
            Kind::Hello => Self::Hello(Hello::decode(&mut reader)?),
            Kind::OpenLane => Self::Lane(match reader.u8()? {
                1 => StreamLane::Log,
                2 => StreamLane::Forward,
                _ => return Err(reader.invalid("an unknown lane")),
            }),
            Kind::SnapshotRequest => {
                let (transfer, offset) = (TransferId(reader.u64()?), reader.u64()?);
                Self::SnapshotRequest(SnapshotRequest { transfer, offset })
            }
            _ => return Err(reader.misplaced()),
        };
        reader.end()?;
        Ok(Some(opening))
    }
}

impl SnapshotReply {
    /// Appends the reply as one frame.
    pub fn encode(&self, out: &mut BytesMut) {
        frame_writer::frame(out, Kind::SnapshotReply, |out| match self {
            Self::Bytes { bytes } => {
                out.put_u8(0);
                out.put_u64_le(*bytes);
            }
            Self::Refused { reason } => {
                out.put_u8(1);
                frame_writer::text(out, reason, REASON_BYTES_MAX);
            }
        });
    }

    /// Removes the reply from the front of `received`; `None` until it is complete.
    ///
    /// Bytes of the snapshot may follow it in `received`.
    ///
    /// # Errors
    /// [`CodecError`]: the first frame is invalid or not a reply.
    pub fn take(received: &mut BytesMut) -> Result<Option<Self>, CodecError> {
        let Some(frame) = take_frame(received)? else { return Ok(None) };
        let mut reader = Reader::new(frame, "as the answer to a SnapshotRequest")?;
        if reader.kind() != Kind::SnapshotReply {
            return Err(reader.misplaced());
        }
        let reply = Self::body(&mut reader)?;
        reader.end()?;
        Ok(Some(reply))
    }

    fn body(reader: &mut Reader) -> Read<Self> {
        match reader.u8()? {
            0 => Ok(Self::Bytes { bytes: reader.u64()? }),
            1 => Ok(Self::Refused { reason: reader.text(REASON_BYTES_MAX)? }),
            _ => Err(reader.invalid("neither bytes nor a refusal")),
        }
    }
}

/// Removes the first frame, without its length field; `None` until it is complete.
fn take_frame(received: &mut BytesMut) -> Result<Option<Bytes>, CodecError> {
    match announced(received, OPENING_BYTES_MAX)? {
        Some(length) if received.len() >= LENGTH_BYTES + length => {
            received.advance(LENGTH_BYTES);
            Ok(Some(received.split_to(length).freeze()))
        }
        Some(_) | None => Ok(None),
    }
}
