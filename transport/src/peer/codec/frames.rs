//! From what a stream brings to messages.

use super::reader::{Read, Reader};
use super::{CodecError, message};
use bytes::{Buf, Bytes, BytesMut};
use zoolet_engine::peer::{Lane, PeerMessage};

/// Frames up to this length share buffers of this size, so that many small ones cost few allocations; a longer one has its own when so much of it
/// has come: a length alone never costs more than this.
pub const SHARED_BYTES: usize = 32 << 10;
/// The length that every frame begins with.
pub(super) const LENGTH_BYTES: usize = 4;

/// The messages of one lane, from its bytes in pieces of any size.
///
/// What is decoded shares the buffer of its frame, which has been copied once out of what was received: entries that are kept for long keep
/// neither packets alive nor more than [`SHARED_BYTES`] of their neighbours.
#[derive(Debug)]
pub struct Frames {
    lane: Lane,
    frame_bytes_max: usize,
    /// The beginning of the next frame, its length first; behind it, room.
    frame: BytesMut,
    /// What came and was not looked at.
    received: Bytes,
    /// Set once: nothing that follows means anything.
    failed: Option<CodecError>,
}

impl Frames {
    /// Of a stream that carries `lane`. `frame_bytes_max`: bytes of a frame at most without its length, as [`super::frame_bytes_max`] says.
    pub fn new(lane: Lane, frame_bytes_max: usize) -> Self {
        Self { lane, frame_bytes_max, frame: BytesMut::new(), received: Bytes::new(), failed: None }
    }

    /// Adds what was received. Cheap when [`Frames::next`] has said `None` since the last time, and else copied.
    pub fn push(&mut self, received: Bytes) {
        if self.received.is_empty() {
            self.received = received;
        } else {
            self.received = [&self.received[..], &received].concat().into();
        }
    }

    /// The next message; `None` until more comes.
    ///
    /// # Errors
    /// What the peer said wrong, again with every call from then on.
    #[allow(clippy::should_implement_trait, reason = "an iterator ends, and this goes on when more has come")]
    pub fn next(&mut self) -> Result<Option<PeerMessage>, CodecError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.take().and_then(|frame| frame.map(|frame| decode(frame, self.lane)).transpose());
        if let Err(error) = result {
            (self.failed, self.frame, self.received) = (Some(error), BytesMut::new(), Bytes::new());
        }
        result
    }

    /// The next frame without its length, when it is whole.
    fn take(&mut self) -> Result<Option<Bytes>, CodecError> {
        if !self.fill(LENGTH_BYTES) {
            return Ok(None);
        }
        let Some(length) = announced(&self.frame, self.frame_bytes_max)? else { return Ok(None) };
        let bytes = LENGTH_BYTES + length;
        if !self.fill(bytes) {
            return Ok(None);
        }
        // A frame that has its own buffer takes it along, and nobody else holds it.
        let has_more_room = self.frame.capacity() > bytes;
        let mut frame = if has_more_room { self.frame.split_to(bytes) } else { std::mem::take(&mut self.frame) };
        frame.advance(LENGTH_BYTES);
        Ok(Some(frame.freeze()))
    }

    /// Moves what was received to the frame until that has `bytes`; false when it does not suffice.
    fn fill(&mut self, bytes: usize) -> bool {
        while self.frame.len() < bytes && self.received.has_remaining() {
            self.make_room(bytes);
            let room = bytes.min(self.frame.capacity()) - self.frame.len();
            let part = self.received.split_to(room.min(self.received.len()));
            self.frame.extend_from_slice(&part);
        }
        self.frame.len() >= bytes
    }

    /// Room for more of a frame of `bytes`, though not for all of it as long as that is only said.
    fn make_room(&mut self, bytes: usize) {
        if self.frame.capacity() < bytes.min(SHARED_BYTES) {
            // The same buffer again if nobody holds a part of it any more.
            self.frame.reserve(SHARED_BYTES - self.frame.len());
        } else if self.frame.len() == self.frame.capacity() {
            let mut own = BytesMut::with_capacity(bytes);
            own.extend_from_slice(&self.frame);
            self.frame = own;
        }
    }
}

/// The message that is all of `frame`, which came on `lane`.
pub(super) fn decode(frame: Bytes, lane: Lane) -> Read<PeerMessage> {
    let place = match lane {
        Lane::Datagram => "as a datagram",
        Lane::Log => "on the log lane",
        Lane::Forward => "on the forward lane",
    };
    let reader = Reader::new(frame, place)?;
    let misplaced = reader.misplaced();
    let message = message::decode(reader)?;
    if message.lane() == lane { Ok(message) } else { Err(misplaced) }
}

/// The length of the frame that `bytes` begin with; `None` before it is there.
pub(super) fn announced(bytes: &[u8], max: usize) -> Result<Option<usize>, CodecError> {
    let Some(length) = bytes.first_chunk().copied().map(u32::from_le_bytes) else { return Ok(None) };
    match usize::try_from(length) {
        Ok(length) if length <= max => Ok(Some(length)),
        _ => Err(CodecError::TooLong { length: length as usize, max }),
    }
}
