//! A reader of jute's primitives (surface 1.2).

use bytes::Bytes;
use core::fmt;
use zoolet_model::{Stat, Text};

/// The bytes violate the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed message")
    }
}

impl std::error::Error for Malformed {}

/// The result of one read.
pub(super) type Read<T> = Result<T, Malformed>;

/// A read position in a frame. The texts and buffers it returns share the frame.
#[derive(Clone, Debug)]
pub struct Reader {
    frame: Bytes,
    at: usize,
}

impl Reader {
    /// Returns a reader at the start of `frame`.
    pub fn new(frame: Bytes) -> Self {
        Self { frame, at: 0 }
    }

    /// Returns the number of unread bytes.
    pub fn left(&self) -> usize {
        self.frame.len() - self.at
    }

    pub(crate) fn byte(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a bool: any byte but zero is true.
    pub(crate) fn bool(&mut self) -> Read<bool> {
        Ok(self.byte()? != 0)
    }

    pub(crate) fn i32(&mut self) -> Read<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Read<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// Reads a buffer; `None` is null, which differs from empty.
    pub(crate) fn buffer(&mut self) -> Read<Option<Bytes>> {
        let Some(length) = self.length()? else { return Ok(None) };
        let start = self.at;
        self.skip(length)?;
        Ok(Some(self.frame.slice(start..self.at)))
    }

    /// Reads a string; `None` is null.
    ///
    /// Invalid UTF-8 becomes replacement characters, not an error (surface 13.42).
    pub(crate) fn nullable_text(&mut self) -> Read<Option<Text>> {
        Ok(self.buffer()?.map(Text::from_utf8_lossy))
    }

    /// Reads a string that must not be null.
    pub(crate) fn text(&mut self) -> Read<Text> {
        self.nullable_text()?.ok_or(Malformed)
    }

    pub(crate) fn stat(&mut self) -> Read<Stat> {
        Ok(Stat {
            czxid: self.i64()?,
            mzxid: self.i64()?,
            ctime: self.i64()?,
            mtime: self.i64()?,
            version: self.i32()?,
            cversion: self.i32()?,
            aversion: self.i32()?,
            ephemeral_owner: self.i64()?,
            data_length: self.i32()?,
            num_children: self.i32()?,
            pzxid: self.i64()?,
        })
    }

    /// Reads a vector; `None` is null, and any other negative count is an empty vector.
    ///
    /// The elements are skipped once before anything is allocated, so a count larger than the frame
    /// costs nothing.
    pub(crate) fn vector<T>(
        &mut self,
        pass_over: fn(&mut Self) -> Read<()>,
        read: fn(&mut Self) -> Read<T>,
    ) -> Read<Option<Vec<T>>> {
        let count = self.i32()?;
        if count == -1 {
            return Ok(None);
        }
        let count = usize::try_from(count).unwrap_or(0);
        let start = self.at;
        for _ in 0..count {
            pass_over(self)?;
        }
        self.at = start;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(read(self)?);
        }
        Ok(Some(elements))
    }

    /// Reads a vector of strings that must not be null.
    pub(crate) fn texts(&mut self) -> Read<Option<Vec<Text>>> {
        self.vector(Self::skip_text, Self::text)
    }

    /// Skips a string or buffer.
    pub(crate) fn skip_text(&mut self) -> Read<()> {
        match self.length()? {
            Some(length) => self.skip(length),
            None => Ok(()),
        }
    }

    pub(crate) fn skip(&mut self, bytes: usize) -> Read<()> {
        if bytes > self.left() {
            return Err(Malformed);
        }
        self.at += bytes;
        Ok(())
    }

    /// Reads a length that fits the rest of the frame; `None` is null.
    fn length(&mut self) -> Read<Option<usize>> {
        match self.i32()? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) if length <= self.left() => Ok(Some(length)),
                _ => Err(Malformed),
            },
        }
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let bytes = self.frame[self.at..].first_chunk().copied().ok_or(Malformed)?;
        self.at += N;
        Ok(bytes)
    }
}
