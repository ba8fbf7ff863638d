//! Text that shares the buffer it was read into.

use bytes::Bytes;
use bytestring::ByteString;
use core::{borrow::Borrow, fmt, ops::Deref};

/// UTF-8 text in shared bytes: cloning counts a reference, slicing a frame copies nothing.
///
/// Constructors ensure valid UTF-8; uses do not check again. A text hashes like its `str`, as
/// `Borrow<str>` requires.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(ByteString);

impl Text {
    /// The empty text.
    pub const EMPTY: Self = Self(ByteString::new());

    /// Creates a text from a static string.
    pub const fn from_static(text: &'static str) -> Self {
        Self(ByteString::from_static(text))
    }

    /// Creates a text from bytes, replacing malformed UTF-8 sequences by U+FFFD.
    ///
    /// Valid bytes are taken without a copy. The path rules refuse U+FFFD. So the client gets
    /// BADARGUMENTS as from ZooKeeper, not a closed connection (surface 13.42).
    pub fn from_utf8_lossy(bytes: Bytes) -> Self {
        // The conversion below checks too, but it drops bytes that are not UTF-8.
        if bytes.is_ascii() || core::str::from_utf8(&bytes).is_ok() {
            return Self(ByteString::try_from(bytes).unwrap_or_default());
        }
        Self::from(alloc::string::String::from_utf8_lossy(&bytes).as_ref())
    }

    /// Returns the text as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first `length` bytes as text, without a copy.
    ///
    /// # Panics
    /// If `length` is beyond the end, or inside a character.
    pub(crate) fn up_to(&self, length: usize) -> Self {
        Self(self.0.slice_ref(&self.0[..length]))
    }

    /// Returns the shared bytes.
    pub fn as_bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(ByteString::from(text))
    }
}

impl From<alloc::string::String> for Text {
    fn from(text: alloc::string::String) -> Self {
        Self(ByteString::from(text))
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hash::{Hash, Hasher};

    /// Keeps everything that is hashed.
    #[derive(Default, PartialEq, Eq, Debug)]
    struct Hashed(alloc::vec::Vec<u8>);

    impl Hasher for Hashed {
        fn write(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }

        fn finish(&self) -> u64 {
            0
        }
    }

    fn hashed(value: &(impl Hash + ?Sized)) -> Hashed {
        let mut hashed = Hashed::default();
        value.hash(&mut hashed);
        hashed
    }

    #[test]
    fn text_is_ordered_and_hashed_as_its_str() {
        let texts = ["", "a", "aa", "b", "\u{e9}", "\u{1f600}"];
        for one in texts {
            assert_eq!(hashed(&Text::from(one)), hashed(one));
            for other in texts {
                assert_eq!(Text::from(one).cmp(&Text::from(other)), one.cmp(other));
            }
        }
    }

    #[test]
    fn malformed_bytes_are_replaced_and_others_are_shared() {
        let bytes = Bytes::from("/a\u{e9}");
        let text = Text::from_utf8_lossy(bytes.clone());
        assert_eq!((text.as_str(), text.as_bytes().as_ptr()), ("/a\u{e9}", bytes.as_ptr()));
        assert_eq!(Text::from_utf8_lossy(Bytes::from_static(b"a\xffb")), "a\u{fffd}b");
        assert_eq!(text.up_to(2), "/a");
    }
}
