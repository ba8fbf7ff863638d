//! Long lists of names in one buffer.

use crate::Text;
use alloc::vec::Vec;
use bytes::{BufMut, Bytes, BytesMut};
use core::fmt;

/// Names of children, or paths of ephemerals.
///
/// The list takes one allocation, even for a hundred thousand names, and the bytes of its wire
/// form. There, each name is a 4-byte big-endian length and its UTF-8.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Names {
    count: usize,
    encoded: Bytes,
}

impl Names {
    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + '_ {
        let mut rest = &self.encoded[..];
        core::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk()?;
            let (name, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            rest = after;
            Some(core::str::from_utf8(name).unwrap_or_default())
        })
    }

    /// Returns the wire form of the names, without their count.
    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }
}

/// Builds [`Names`].
#[derive(Debug, Default)]
pub struct NamesBuilder {
    count: usize,
    encoded: BytesMut,
}

impl NamesBuilder {
    /// Appends a name. [`Names::iter`] shows invalid UTF-8 as the empty text.
    pub fn push(&mut self, name: &[u8]) {
        self.count += 1;
        self.encoded.put_u32(u32::try_from(name.len()).unwrap_or(u32::MAX));
        self.encoded.put_slice(name);
    }

    /// Returns the list.
    pub fn finish(self) -> Names {
        Names { count: self.count, encoded: self.encoded.freeze() }
    }
}

impl<T: AsRef<str>> FromIterator<T> for Names {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut builder = NamesBuilder::default();
        names.into_iter().for_each(|name| builder.push(name.as_ref().as_bytes()));
        builder.finish()
    }
}

impl From<Vec<Text>> for Names {
    fn from(names: Vec<Text>) -> Self {
        names.iter().collect()
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_through_their_encoded_buffer() {
        let names: Names = ["", "a", "h\u{e9}"].into_iter().collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["", "a", "h\u{e9}"]);
        assert_eq!((names.len(), names.is_empty()), (3, false));
        assert_eq!(&names.encoded()[..], b"\0\0\0\0\0\0\0\x01a\0\0\0\x03h\xc3\xa9");
        assert!(Names::default().is_empty());
    }
}
