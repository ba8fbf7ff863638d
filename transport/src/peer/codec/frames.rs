//! Splits a stream's bytes into frames and decodes them.

use super::frame_reader::{Read, Reader};
use super::{CodecError, peer_message};
use bytes::{Buf, Bytes, BytesMut};
use zoolet_machine::seam::peer::{Lane, PeerMessage};

/// Size of the receive buffers that several small frames share.
///
/// Shared buffers save allocations for small frames. A longer frame gets a buffer of its full size
/// only after a shared buffer has filled with its bytes. So an announced length alone never
/// allocates more than this.
pub const SHARED_BYTES: usize = 32 << 10;
/// Bytes of the length field that starts every frame.
pub(super) const LENGTH_BYTES: usize = 4;

/// Decodes the messages of one lane from chunks of any size.
///
/// Each frame is copied once out of the received packets, and decoded values share the frame's
/// buffer. Entries that live long therefore pin no packets, and at most [`SHARED_BYTES`] of
/// neighbouring frames.
#[derive(Debug)]
pub struct Frames {
    lane: Lane,
    frame_bytes_max: usize,
    /// Start of the next frame, including its length field. The spare capacity takes the rest.
    frame: BytesMut,
    /// Received bytes that are not in a frame yet.
    received: Bytes,
    /// Set on the first error: the rest of the stream cannot be decoded.
    failed: Option<CodecError>,
}

impl Frames {
    /// Returns a decoder for a stream that carries `lane`.
    ///
    /// `frame_bytes_max` bounds a frame without its length field, see [`super::frame_bytes_max`].
    pub fn new(lane: Lane, frame_bytes_max: usize) -> Self {
        Self { lane, frame_bytes_max, frame: BytesMut::new(), received: Bytes::new(), failed: None }
    }

    /// Adds received bytes.
    ///
    /// Free of copies if [`Frames::next`] has returned `None` since the last call; otherwise both
    /// chunks are copied.
    pub fn push(&mut self, received: Bytes) {
        if self.received.is_empty() {
            self.received = received;
        } else {
            self.received = [&self.received[..], &received].concat().into();
        }
    }

    /// Returns the next message; `None` until more bytes arrive.
    ///
    /// # Errors
    /// The peer sent an invalid frame. Every later call returns the same error.
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

    /// Returns the next complete frame, without its length field.
    fn take(&mut self) -> Result<Option<Bytes>, CodecError> {
        if !self.fill(LENGTH_BYTES) {
            return Ok(None);
        }
        let Some(length) = announced(&self.frame, self.frame_bytes_max)? else { return Ok(None) };
        let bytes = LENGTH_BYTES + length;
        if !self.fill(bytes) {
            return Ok(None);
        }
        // A frame that fills its buffer takes the whole buffer, so nothing else pins it.
        let has_more_room = self.frame.capacity() > bytes;
        let mut frame = if has_more_room { self.frame.split_to(bytes) } else { std::mem::take(&mut self.frame) };
        frame.advance(LENGTH_BYTES);
        Ok(Some(frame.freeze()))
    }

    /// Moves received bytes to the frame until it has `bytes`. Returns `false` if they run out.
    fn fill(&mut self, bytes: usize) -> bool {
        while self.frame.len() < bytes && self.received.has_remaining() {
            self.make_room(bytes);
            let room = bytes.min(self.frame.capacity()) - self.frame.len();
            let part = self.received.split_to(room.min(self.received.len()));
            self.frame.extend_from_slice(&part);
        }
        self.frame.len() >= bytes
    }

    /// Makes room for more of a frame of `bytes`.
    ///
    /// Allocates the full size only after the frame has filled the current buffer.
    fn make_room(&mut self, bytes: usize) {
        if self.frame.capacity() < bytes.min(SHARED_BYTES) {
            // Reuses the allocation if no decoded frame holds a part of it.
            self.frame.reserve(SHARED_BYTES - self.frame.len());
        } else if self.frame.len() == self.frame.capacity() {
            let mut own = BytesMut::with_capacity(bytes);
            own.extend_from_slice(&self.frame);
            self.frame = own;
        }
    }
}

/// Decodes the one message in `frame`, which arrived on `lane`.
pub(super) fn decode(frame: Bytes, lane: Lane) -> Read<PeerMessage> {
    let place = match lane {
        Lane::Datagram => "as a datagram",
        Lane::Log => "on the log lane",
        Lane::Forward => "on the forward lane",
    };
    let reader = Reader::new(frame, place)?;
    let misplaced = reader.misplaced();
    let message = peer_message::decode(reader)?;
    if message.lane() == lane { Ok(message) } else { Err(misplaced) }
}

/// Returns the first frame's announced length; `None` if the length field is incomplete.
pub(super) fn announced(bytes: &[u8], max: usize) -> Result<Option<usize>, CodecError> {
    let Some(length) = bytes.first_chunk().copied().map(u32::from_le_bytes) else { return Ok(None) };
    match usize::try_from(length) {
        Ok(length) if length <= max => Ok(Some(length)),
        _ => Err(CodecError::TooLong { length: length as usize, max }),
    }
}
