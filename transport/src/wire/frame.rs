//! Frames: a signed length, then that many bytes (surface 1.1).

use bytes::{Buf, Bytes, BytesMut};
use core::fmt;

/// An invalid length. The rest of the stream is meaningless, so the connection must close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The length is negative.
    Negative(i32),
    /// The length exceeds the maximum.
    TooLong {
        /// The announced length, bytes.
        length: usize,
        /// The maximum, bytes.
        max: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negative(length) => write!(f, "frame of {length} bytes"),
            Self::TooLong { length, max } => write!(f, "frame of {length} bytes, {max} are allowed"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Takes the first frame from `buffer`, without its length; `None` while it is incomplete.
///
/// # Errors
/// The length is negative or above `max`. A frame of exactly `max` bytes is accepted.
pub fn split_frame(buffer: &mut BytesMut, max: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(length) = announced(buffer, max)? else { return Ok(None) };
    if buffer.len() - 4 < length {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Returns the length of the first frame of `bytes`; `None` before the length has arrived.
pub(crate) fn announced(bytes: &[u8], max: usize) -> Result<Option<usize>, FrameError> {
    let Some(length) = bytes.first_chunk().copied().map(i32::from_be_bytes) else { return Ok(None) };
    match usize::try_from(length) {
        Err(_) => Err(FrameError::Negative(length)),
        Ok(length) if length > max => Err(FrameError::TooLong { length, max }),
        Ok(length) => Ok(Some(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(bytes: &[u8]) -> Result<Option<Bytes>, FrameError> {
        split_frame(&mut BytesMut::from(bytes), 5)
    }

    #[test]
    fn frame_is_taken_only_once_complete() {
        let mut buffer = BytesMut::new();
        for byte in [0, 0, 0, 2, 7] {
            buffer.extend_from_slice(&[byte]);
            assert_eq!(split_frame(&mut buffer, 5), Ok(None));
        }
        buffer.extend_from_slice(&[8, 0, 0]);
        assert_eq!(split_frame(&mut buffer, 5), Ok(Some(Bytes::from_static(&[7, 8]))));
        assert_eq!(&buffer[..], &[0, 0]);
    }

    #[test]
    fn largest_frame_is_accepted_and_a_byte_more_is_refused() {
        assert_eq!(split(b"\0\0\0\x05hello"), Ok(Some(Bytes::from_static(b"hello"))));
        assert_eq!(split(b"\0\0\0\x06"), Err(FrameError::TooLong { length: 6, max: 5 }));
        assert_eq!(split(b"\xff\xff\xff\xff"), Err(FrameError::Negative(-1)));
        assert_eq!(split(b"\0\0\0\0"), Ok(Some(Bytes::new())));
    }
}
