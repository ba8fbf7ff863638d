//! Reads little-endian values from a frame; errors carry the frame's kind.

use super::{CodecError, Kind};
use bytes::Bytes;
use zoolet_machine::seam::peer::Attachment;
use zoolet_model::{ServerId, SessionId, Zxid};
use zoolet_zab::{Attempt, Credentials, EnsembleId, Epoch};

/// Result of a read.
pub(super) type Read<T> = Result<T, CodecError>;

/// A position in a frame. Returned bytes share the frame's buffer.
#[derive(Debug)]
pub(super) struct Reader {
    frame: Bytes,
    at: usize,
    kind: Kind,
    /// Where the frame arrived, for the operator.
    place: &'static str,
}

impl Reader {
    /// Starts after the kind, the first byte of `frame`.
    pub(super) fn new(frame: Bytes, place: &'static str) -> Read<Self> {
        let &byte = frame.first().ok_or(CodecError::Empty)?;
        let kind = Kind::from_byte(byte).ok_or(CodecError::UnknownKind(byte))?;
        Ok(Self { frame, at: 1, kind, place })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Fails unless the whole frame was read.
    pub(super) fn end(&self) -> Read<()> {
        match self.left() {
            0 => Ok(()),
            bytes => Err(CodecError::Trailing { kind: self.kind, bytes }),
        }
    }

    /// Returns the number of unread bytes.
    pub(super) fn left(&self) -> usize {
        self.frame.len() - self.at
    }

    pub(super) fn invalid(&self, what: &'static str) -> CodecError {
        CodecError::Invalid { kind: self.kind, what }
    }

    /// Returns the error for a kind that is not allowed at this place.
    pub(super) fn misplaced(&self) -> CodecError {
        CodecError::Misplaced { kind: self.kind, place: self.place }
    }

    /// Reads the kind of a nested frame, which takes the rest.
    pub(super) fn nested(&mut self) -> Read<Kind> {
        let byte = self.u8()?;
        Kind::from_byte(byte).ok_or(CodecError::UnknownKind(byte))
    }

    pub(super) fn u8(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Read<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Read<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Read<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// Accepts only 0 and 1, so that each value has one encoding.
    pub(super) fn bool(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.invalid("a flag that is neither 0 nor 1")),
        }
    }

    /// Reads a flag and, if it is set, a value.
    pub(super) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// Reads the length of a list whose elements have at least `bytes` each.
    ///
    /// Rejects a length that the rest of the frame cannot hold, before the caller allocates.
    pub(super) fn count(&mut self, bytes: usize) -> Read<usize> {
        let count = self.u32()? as usize;
        if count > self.left() / bytes { Err(CodecError::TooShort(self.kind)) } else { Ok(count) }
    }

    /// Returns the next `length` bytes.
    pub(super) fn bytes(&mut self, length: usize) -> Read<Bytes> {
        if length > self.left() {
            return Err(CodecError::TooShort(self.kind));
        }
        let start = self.at;
        self.at += length;
        Ok(self.frame.slice(start..self.at))
    }

    /// Reads a length and that many bytes.
    pub(super) fn counted_bytes(&mut self) -> Read<Bytes> {
        let length = self.u32()? as usize;
        self.bytes(length)
    }

    /// Reads a length and that many elements of exactly `bytes` each.
    pub(super) fn vector<T>(&mut self, bytes: usize, read: impl Fn(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.count(bytes)?;
        let mut things = Vec::with_capacity(count);
        for _ in 0..count {
            things.push(read(self)?);
        }
        Ok(things)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let bytes = self.frame[self.at..].first_chunk().copied().ok_or(CodecError::TooShort(self.kind))?;
        self.at += N;
        Ok(bytes)
    }

    /// Reads at most `max` bytes of printable UTF-8 text.
    pub(super) fn text(&mut self, max: usize) -> Read<String> {
        let length = usize::from(self.u16()?);
        if length > max {
            return Err(self.invalid("a text that is too long"));
        }
        let bytes = self.bytes(length)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| self.invalid("a text that is not UTF-8"))?;
        match text.chars().any(char::is_control) {
            false => Ok(text.to_owned()),
            true => Err(self.invalid("control characters in a text")),
        }
    }

    pub(super) fn server(&mut self) -> Read<ServerId> {
        let id = self.u8()?;
        ServerId::new(id).ok_or_else(|| self.invalid("server id 0"))
    }

    pub(super) fn epoch(&mut self) -> Read<Epoch> {
        let epoch = self.u32()?;
        Epoch::new(epoch).ok_or_else(|| self.invalid("an epoch of more than 23 bits"))
    }

    pub(super) fn zxid(&mut self) -> Read<Zxid> {
        let bits = self.u64()?;
        Zxid::from_bits(bits).ok_or_else(|| self.invalid("a negative zxid"))
    }

    pub(super) fn attempt(&mut self) -> Read<Attempt> {
        self.u32().map(Attempt)
    }

    pub(super) fn ensemble(&mut self) -> Read<EnsembleId> {
        self.u128().map(EnsembleId)
    }

    pub(super) fn credentials(&mut self) -> Read<Credentials> {
        Ok(Credentials { current: self.epoch()?, last: self.zxid()? })
    }

    pub(super) fn session(&mut self) -> Read<SessionId> {
        self.array().map(i64::from_le_bytes).map(SessionId)
    }

    pub(super) fn attachment(&mut self) -> Read<Attachment> {
        Ok(Attachment { epoch: self.epoch()?, round: self.u64()? })
    }
}
