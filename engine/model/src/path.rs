//! Paths of znodes, validated once.

use crate::{ErrorCode, Text};
use alloc::string::String;
use core::fmt;

/// The valid path of a znode, by ZooKeeper's rules (surface 7.4).
///
/// A path starts with `/`. It has:
/// - no empty, `.` or `..` component
/// - no trailing slash, except `/` itself
/// - no control, surrogate, private-use or U+FFF0..U+FFFF character
/// - no character beyond the basic plane.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Text);

impl Path {
    /// The path `/`.
    pub const ROOT: Self = Self(Text::from_static("/"));
    /// The reserved subtree.
    pub const ZOOKEEPER: Self = Self(Text::from_static("/zookeeper"));
    /// The znode under which quotas are configured.
    pub const QUOTA: Self = Self(Text::from_static("/zookeeper/quota"));
    /// The znode that shows the ensemble's configuration to clients.
    pub const CONFIG: Self = Self(Text::from_static("/zookeeper/config"));

    /// Validates `text`.
    ///
    /// # Errors
    /// [`ErrorCode::BadArguments`], ZooKeeper's answer to every illegal path.
    pub fn new(text: Text) -> Result<Self, ErrorCode> {
        if is_valid(&text) { Ok(Self(text)) } else { Err(ErrorCode::BadArguments) }
    }

    /// Validates a static text.
    ///
    /// # Panics
    /// When `text` breaks a rule. In a constant, this stops the compilation.
    pub const fn from_static(text: &'static str) -> Self {
        assert!(is_valid_bytes(text.as_bytes()), "not the path of a znode");
        Self(Text::from_static(text))
    }

    /// Returns the path as a string.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the path's shared text.
    pub fn text(&self) -> &Text {
        &self.0
    }

    /// Returns the parent's path; `None` for `/`.
    pub fn parent(&self) -> Option<&str> {
        parent_and_name(self.as_str()).map(|(parent, _)| parent)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Splits `/a/b` into `/a` and `b`, and `/a` into `/` and `a`.
///
/// Returns `None` for `/` and for text without a slash. Does not validate, so it also serves
/// ZooKeeper's checks that precede validation.
pub fn parent_and_name(path: &str) -> Option<(&str, &str)> {
    if path == "/" {
        return None;
    }
    let slash = path.rfind('/')?;
    Some((if slash == 0 { "/" } else { &path[..slash] }, &path[slash + 1..]))
}

/// Returns the path of a child. Not validated: `name` may contain a slash.
pub fn child(parent: &str, name: &str) -> Text {
    let slash = if parent == "/" { "" } else { "/" };
    let mut path = String::with_capacity(parent.len() + slash.len() + name.len());
    path.push_str(parent);
    path.push_str(slash);
    path.push_str(name);
    path.into()
}

/// Returns whether `path` obeys every rule of surface 7.4.
pub fn is_valid(path: &str) -> bool {
    if path == "/" {
        return true;
    }
    let Some(rest) = path.strip_prefix('/') else { return false };
    rest.split('/').all(|name| !matches!(name, "" | "." | "..")) && rest.chars().all(is_legal)
}

fn is_legal(c: char) -> bool {
    !matches!(u32::from(c), 0x00..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// [`is_valid`] in const code, where `split` and `chars` are missing. `path` must be UTF-8.
const fn is_valid_bytes(path: &[u8]) -> bool {
    if path.is_empty() || path[0] != b'/' {
        return false;
    }
    let mut at = 1;
    let mut name_starts = 1;
    while at < path.len() {
        let (code, bytes) = decode(path, at);
        if matches!(code, 0x00..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..) {
            return false;
        }
        if code == b'/' as u32 {
            if is_dots_or_empty(path, name_starts, at) {
                return false;
            }
            name_starts = at + 1;
        }
        at += bytes;
    }
    path.len() == 1 || !is_dots_or_empty(path, name_starts, at)
}

/// Returns the code point at `at` and its length in bytes.
const fn decode(utf8: &[u8], at: usize) -> (u32, usize) {
    let first = utf8[at] as u32;
    let (mut code, bytes) = match first {
        0..=0x7f => return (first, 1),
        0x80..=0xdf => (first & 0x1f, 2),
        0xe0..=0xef => (first & 0x0f, 3),
        _ => (first & 0x07, 4),
    };
    let mut next = 1;
    while next < bytes {
        code = code << 6 | (utf8[at + next] as u32 & 0x3f);
        next += 1;
    }
    (code, bytes)
}

const fn is_dots_or_empty(path: &[u8], from: usize, to: usize) -> bool {
    match to - from {
        0 => true,
        1 => path[from] == b'.',
        2 => path[from] == b'.' && path[from + 1] == b'.',
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_rules_equal_zookeepers() {
        for good in ["/", "/a", "/a b", "/...", "/a./b", "/.a", "/\u{e9}", "/\u{20ac}", "/\u{f900}"] {
            assert!(is_valid(good) && is_valid_bytes(good.as_bytes()), "{good:?}");
        }
        for bad in [
            "",
            "a",
            "a/b",
            "//",
            "/a/",
            "/a//b",
            "/.",
            "/..",
            "/a/./b",
            "/a/../b",
            "/\0",
            "/a\u{1}",
            "/\u{1f}",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{f8ff}",
            "/\u{fff0}",
            "/\u{fffd}",
            "/\u{ffff}",
            "/\u{1f600}",
        ] {
            assert!(!is_valid(bad) && !is_valid_bytes(bad.as_bytes()), "{bad:?}");
        }
    }

    #[test]
    fn child_path_joins_parent_and_name() {
        assert_eq!(child("/a", "b"), "/a/b");
        assert_eq!(child("/", "b"), "/b");
    }

    #[test]
    fn parent_is_the_text_before_the_last_slash() {
        assert_eq!(parent_and_name("/a/b"), Some(("/a", "b")));
        assert_eq!(parent_and_name("/a"), Some(("/", "a")));
        assert_eq!(parent_and_name("/a/"), Some(("/a", "")));
        assert_eq!(parent_and_name("foo/bar"), Some(("foo", "bar")));
        assert_eq!(parent_and_name("/"), None);
        assert_eq!(parent_and_name("foo"), None);
        assert_eq!(parent_and_name(""), None);
    }
}
