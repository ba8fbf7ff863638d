//! Text that shares the buffer it was read into.

use bytes::Bytes;
use core::{borrow::Borrow, fmt, ops::Deref};

/// UTF-8 text in shared bytes: cloning counts a reference, slicing a frame copies nothing.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

impl Text {
    /// The empty text.
    pub const EMPTY: Self = Self(Bytes::new());

    /// Creates a text from a static string.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Creates a text from bytes, replacing malformed UTF-8 sequences by U+FFFD.
    ///
    /// Valid bytes are taken without a copy. The path rules refuse U+FFFD. So the client gets
    /// BADARGUMENTS as from ZooKeeper, not a closed connection (surface 13.42).
    pub fn from_utf8_lossy(bytes: Bytes) -> Self {
        match core::str::from_utf8(&bytes) {
            Ok(_) => Self(bytes),
            Err(_) => Self::from(alloc::string::String::from_utf8_lossy(&bytes).as_ref()),
        }
    }

    /// Returns the text as a string.
    pub fn as_str(&self) -> &str {
        // Every constructor checked; a second check costs nanoseconds and avoids unsafe code.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns the first `length` bytes as text, without a copy.
    ///
    /// # Panics
    /// If `length` is beyond the end.
    pub(crate) fn up_to(&self, length: usize) -> Self {
        Self(self.0.slice(..length))
    }

    /// Returns the shared bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<alloc::string::String> for Text {
    fn from(text: alloc::string::String) -> Self {
        Self(Bytes::from(text))
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
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
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
