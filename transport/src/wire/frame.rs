//! Frames: a signed length, then that many bytes (surface 1.1).

use bytes::{Buf, Bytes, BytesMut};
use core::fmt;

/// A length after which the stream means nothing: the connection must close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// Less than nothing.
    Negative(i32),
    /// More than allowed.
    TooLong {
        /// What the frame announced, bytes.
        length: usize,
        /// What is allowed, bytes.
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

/// Takes the first frame out of `buffer`, without its length; `None` while it is not whole.
///
/// # Errors
/// A length that is negative or above `max`. A frame of exactly `max` bytes is accepted.
pub fn split_frame(buffer: &mut BytesMut, max: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(length) = announced(buffer, max)? else { return Ok(None) };
    if buffer.len() - 4 < length {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// The length of the frame that `bytes` begin with; `None` before it is there.
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
    fn a_frame_is_taken_only_when_whole() {
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
    fn the_largest_frame_is_accepted_and_one_byte_more_is_not() {
        assert_eq!(split(b"\0\0\0\x05hello"), Ok(Some(Bytes::from_static(b"hello"))));
        assert_eq!(split(b"\0\0\0\x06"), Err(FrameError::TooLong { length: 6, max: 5 }));
        assert_eq!(split(b"\xff\xff\xff\xff"), Err(FrameError::Negative(-1)));
        assert_eq!(split(b"\0\0\0\0"), Ok(Some(Bytes::new())));
    }
}
