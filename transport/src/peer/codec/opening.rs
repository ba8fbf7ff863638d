//! What a stream begins with.

use super::frames::{LENGTH_BYTES, announced};
use super::reader::{Read, Reader};
use super::{CodecError, Hello, Kind, writer};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use zoolet_engine::peer::{Lane, TransferId};

/// Bytes of a frame that a stream may begin with, at most: whoever has proved nothing yet makes nobody hold more.
pub const OPENING_BYTES_MAX: usize = 4096;
/// Bytes of a refusal's reason at most.
pub const REASON_BYTES_MAX: usize = 256;

/// The first frame of a stream: what the rest of it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Who speaks. Nothing follows.
    Hello(Hello),
    /// The frames of a lane follow, see [`super::Frames`].
    Lane(StreamLane),
    /// The receiver of a snapshot asks for its bytes. Nothing follows; the answer comes the other way.
    SnapshotRequest(SnapshotRequest),
}

/// A lane that is a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamLane {
    /// [`Lane::Log`].
    Log,
    /// [`Lane::Forward`].
    Forward,
}

impl StreamLane {
    /// As messages say it.
    pub fn lane(self) -> Lane {
        match self {
            Self::Log => Lane::Log,
            Self::Forward => Lane::Forward,
        }
    }
}

/// Which snapshot's bytes are asked for, and from where on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotRequest {
    /// The sender's number.
    pub transfer: TransferId,
    /// Bytes that are there already, of an earlier transfer that broke off.
    pub offset: u64,
}

/// The answer to a [`SnapshotRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotReply {
    /// The bytes from the offset on follow, as they are, to the end of the stream.
    Bytes {
        /// Bytes of the snapshot in all, those before the offset among them.
        bytes: u64,
    },
    /// Nothing follows.
    Refused {
        /// For people. What is longer than [`REASON_BYTES_MAX`] is cut off.
        reason: String,
    },
}

impl Opening {
    /// Appends it.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Hello(hello) => writer::frame(out, Kind::Hello, |out| hello.encode(out)),
            Self::Lane(lane) => writer::frame(out, Kind::OpenLane, |out| {
                out.put_u8(match lane {
                    StreamLane::Log => 1,
                    StreamLane::Forward => 2,
                });
            }),
            Self::SnapshotRequest(SnapshotRequest { transfer, offset }) => {
                writer::frame(out, Kind::SnapshotRequest, |out| {
                    out.put_u64_le(transfer.0);
                    out.put_u64_le(*offset);
                });
            }
        }
    }

    /// Takes it off the front of what has come of a stream; `None` until it is whole.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn take(received: &mut BytesMut) -> Result<Option<Self>, CodecError> {
        let Some(frame) = take_frame(received)? else { return Ok(None) };
        let mut reader = Reader::new(frame, "at the beginning of a stream")?;
        let opening = match reader.kind() {
            Kind::Hello => Self::Hello(Hello::decode(&mut reader)?),
            Kind::OpenLane => Self::Lane(match reader.u8()? {
                1 => StreamLane::Log,
                2 => StreamLane::Forward,
                _ => return Err(reader.invalid("a lane that this release does not know")),
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
    /// Appends it.
    pub fn encode(&self, out: &mut BytesMut) {
        writer::frame(out, Kind::SnapshotReply, |out| match self {
            Self::Bytes { bytes } => {
                out.put_u8(0);
                out.put_u64_le(*bytes);
            }
            Self::Refused { reason } => {
                out.put_u8(1);
                writer::text(out, reason, REASON_BYTES_MAX);
            }
        });
    }

    /// Takes it off the front of what has come of a stream; `None` until it is whole. The bytes of the snapshot may stand behind it.
    ///
    /// # Errors
    /// What is wrong with it.
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

/// Takes the first frame off, without its length; `None` until it is whole.
fn take_frame(received: &mut BytesMut) -> Result<Option<Bytes>, CodecError> {
    match announced(received, OPENING_BYTES_MAX)? {
        Some(length) if received.len() >= LENGTH_BYTES + length => {
            received.advance(LENGTH_BYTES);
            Ok(Some(received.split_to(length).freeze()))
        }
        Some(_) | None => Ok(None),
    }
}
