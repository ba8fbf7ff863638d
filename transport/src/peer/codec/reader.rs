//! Reads little-endian values from a frame, and gives its errors their frame's name.

use super::{CodecError, Kind};
use bytes::Bytes;
use zoolet_engine::peer::Attachment;
use zoolet_model::{ServerId, SessionId, Zxid};
use zoolet_zab::{Attempt, Credentials, EnsembleId, Epoch};

/// What a read gives.
pub(super) type Read<T> = Result<T, CodecError>;

/// A place in a frame. Bytes that it hands out share the frame.
#[derive(Debug)]
pub(super) struct Reader {
    frame: Bytes,
    at: usize,
    kind: Kind,
    /// Where the frame came, for people.
    place: &'static str,
}

impl Reader {
    /// Behind the kind that `frame` begins with.
    pub(super) fn new(frame: Bytes, place: &'static str) -> Read<Self> {
        let &byte = frame.first().ok_or(CodecError::Empty)?;
        let kind = Kind::from_byte(byte).ok_or(CodecError::UnknownKind(byte))?;
        Ok(Self { frame, at: 1, kind, place })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The end of the frame has to be here.
    pub(super) fn end(&self) -> Read<()> {
        match self.left() {
            0 => Ok(()),
            bytes => Err(CodecError::Trailing { kind: self.kind, bytes }),
        }
    }

    /// Bytes not yet read.
    pub(super) fn left(&self) -> usize {
        self.frame.len() - self.at
    }

    pub(super) fn invalid(&self, what: &'static str) -> CodecError {
        CodecError::Invalid { kind: self.kind, what }
    }

    /// A frame of this kind never comes here.
    pub(super) fn misplaced(&self) -> CodecError {
        CodecError::Misplaced { kind: self.kind, place: self.place }
    }

    /// A frame inside the frame: its kind stands for the rest.
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

    /// One form for each value: what is neither 0 nor 1 is refused.
    pub(super) fn bool(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.invalid("a flag that is neither 0 nor 1")),
        }
    }

    /// What follows a flag, if the flag is set.
    pub(super) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// How many things of at least `bytes` each follow. More than the rest of the frame can hold are refused before anybody makes room for them.
    pub(super) fn count(&mut self, bytes: usize) -> Read<usize> {
        let count = self.u32()? as usize;
        if count > self.left() / bytes { Err(CodecError::TooShort(self.kind)) } else { Ok(count) }
    }

    /// The next `length` bytes.
    pub(super) fn bytes(&mut self, length: usize) -> Read<Bytes> {
        if length > self.left() {
            return Err(CodecError::TooShort(self.kind));
        }
        let start = self.at;
        self.at += length;
        Ok(self.frame.slice(start..self.at))
    }

    /// Bytes behind their number.
    pub(super) fn counted_bytes(&mut self) -> Read<Bytes> {
        let length = self.u32()? as usize;
        self.bytes(length)
    }

    /// Things of exactly `bytes` each behind their number.
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

    /// Text of at most `max` bytes that can be shown as it is.
    pub(super) fn text(&mut self, max: usize) -> Read<String> {
        let length = usize::from(self.u16()?);
        if length > max {
            return Err(self.invalid("a text that is too long"));
        }
        let bytes = self.bytes(length)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| self.invalid("a text that is none"))?;
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
