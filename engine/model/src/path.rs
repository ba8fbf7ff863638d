//! Paths of znodes, checked once.

use crate::{ErrorCode, Text};
use core::fmt;

/// The path of a znode that obeys ZooKeeper's rules (surface 7.4): starts with `/`, no empty, `.` or `..`
/// component, no trailing slash but in `/` itself, no control, surrogate, private-use or U+FFF0..U+FFFF
/// character, nothing beyond the basic plane.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Text);

impl Path {
    /// The path `/`.
    pub const ROOT: Self = Self(Text::from_static("/"));
    /// The reserved subtree.
    pub const ZOOKEEPER: Self = Self(Text::from_static("/zookeeper"));
    /// Where quotas are configured.
    pub const QUOTA: Self = Self(Text::from_static("/zookeeper/quota"));
    /// Where clients read the ensemble's configuration.
    pub const CONFIG: Self = Self(Text::from_static("/zookeeper/config"));

    /// Checks every rule.
    ///
    /// # Errors
    /// [`ErrorCode::BadArguments`], ZooKeeper's answer to each illegal case.
    pub fn new(text: Text) -> Result<Self, ErrorCode> {
        if is_valid(&text) { Ok(Self(text)) } else { Err(ErrorCode::BadArguments) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The shared text.
    pub fn text(&self) -> &Text {
        &self.0
    }

    /// The parent's path; `None` for `/`.
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

/// Splits `/a/b` into `/a` and `b`, and `/a` into `/` and `a`; `None` for `/` and for text without a slash.
/// Purely textual, so it also serves the checks ZooKeeper makes before it validates a path.
pub fn parent_and_name(path: &str) -> Option<(&str, &str)> {
    if path == "/" {
        return None;
    }
    let slash = path.rfind('/')?;
    Some((if slash == 0 { "/" } else { &path[..slash] }, &path[slash + 1..]))
}

/// Whether `path` obeys every rule of surface 7.4.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_rules_are_zookeepers() {
        for good in ["/", "/a", "/a b", "/...", "/a./b", "/.a", "/\u{e9}", "/\u{20ac}", "/\u{f900}"] {
            assert!(is_valid(good), "{good:?}");
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
            assert!(!is_valid(bad), "{bad:?}");
        }
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
