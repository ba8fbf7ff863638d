//! Paths of znodes, validated once.

use crate::{ErrorCode, Text};
use alloc::string::String;
use core::{fmt, str::FromStr};

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
    /// [`InvalidPath`] with the rule that `text` breaks.
    pub fn new(text: impl Into<Text>) -> Result<Self, InvalidPath> {
        let text = text.into();
        if is_valid(&text) { Ok(Self(text)) } else { Err(InvalidPath(text)) }
    }

    /// Returns the path of a znode that exists, which is valid.
    #[doc(hidden)]
    pub fn of_existing(text: Text) -> Self {
        debug_assert!(is_valid(&text), "{text:?} is not the path of a znode");
        Self(text)
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

    /// Returns the path's shared text, without a copy.
    pub fn into_text(self) -> Text {
        self.0
    }

    /// Returns the parent's path, without a copy; `None` for `/`.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = parent_and_name(self.as_str())?;
        Some(Self(self.0.up_to(parent.len())))
    }

    /// Returns the last component; empty for `/`.
    pub fn name(&self) -> &str {
        parent_and_name(self.as_str()).map_or("", |(_, name)| name)
    }

    /// Returns the path of a znode below this one.
    ///
    /// `below` is one name, or several with slashes between them.
    ///
    /// # Errors
    /// [`InvalidPath`] if the joined path breaks a rule.
    pub fn join(&self, below: impl AsRef<str>) -> Result<Self, InvalidPath> {
        Self::new(child(self.as_str(), below.as_ref()))
    }

    /// Whether this is `ancestor` or a path below it.
    pub fn starts_with(&self, ancestor: &Self) -> bool {
        match self.as_str().strip_prefix(ancestor.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/') || ancestor.as_str() == "/",
            None => false,
        }
    }
}

/// A text that is not the path of a znode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidPath(Text);

impl InvalidPath {
    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn reason(&self) -> &'static str {
        let text = self.0.as_str();
        if !text.starts_with('/') {
            "it must begin with a slash"
        } else if text.ends_with('/') {
            "it must not end with a slash"
        } else if text.split('/').skip(1).any(str::is_empty) {
            "a name between two slashes is empty"
        } else if text.split('/').any(|name| matches!(name, "." | "..")) {
            "no name may be . or .."
        } else {
            "it has a character that ZooKeeper forbids"
        }
    }
}

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not the path of a znode: {}", self.0, self.reason())
    }
}

impl core::error::Error for InvalidPath {}

impl From<InvalidPath> for ErrorCode {
    /// Returns ZooKeeper's answer to every invalid path.
    fn from(_: InvalidPath) -> Self {
        Self::BadArguments
    }
}

impl FromStr for Path {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        Self::new(text)
    }
}

impl TryFrom<&str> for Path {
    type Error = InvalidPath;

    fn try_from(text: &str) -> Result<Self, InvalidPath> {
        Self::new(text)
    }
}

impl TryFrom<String> for Path {
    type Error = InvalidPath;

    fn try_from(text: String) -> Result<Self, InvalidPath> {
        Self::new(text)
    }
}

impl AsRef<str> for Path {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Path {
    fn eq(&self, other: &str) -> bool {
        self.0 == *other
    }
}

impl PartialEq<&str> for Path {
    fn eq(&self, other: &&str) -> bool {
        self.0 == **other
    }
}

impl From<&Path> for Path {
    fn from(path: &Path) -> Self {
        path.clone()
    }
}

impl From<Path> for Text {
    fn from(path: Path) -> Self {
        path.0
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
    // Names are short: a search byte by byte is done before a search by words has begun.
    let slash = path.bytes().rposition(|byte| byte == b'/')?;
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
    if path == "/" || is_plain(path.as_bytes()) {
        return true;
    }
    let Some(rest) = path.strip_prefix('/') else { return false };
    rest.split('/').all(|name| !matches!(name, "" | "." | "..")) && rest.chars().all(is_legal)
}

/// Recognises the common valid paths in one pass: printable ASCII, no empty name, no name that begins
/// with a dot. `false` decides nothing: `/.a` is valid too.
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    for &byte in path {
        let is_bad_start = before == b'/' && matches!(byte, b'/' | b'.');
        if is_bad_start || !matches!(byte, b' '..=b'~') {
            return false;
        }
        before = byte;
    }
    path.first() == Some(&b'/') && before != b'/'
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
    use alloc::string::ToString;
    use alloc::vec::Vec;

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
    fn quick_check_of_a_path_agrees_with_the_rules() {
        let characters = ['/', '.', 'a', '~', ' ', '\u{1f}', '\u{7f}', '\u{e9}'];
        let mut paths = Vec::from([String::new()]);
        for _ in 0..5 {
            let longer = paths.iter().flat_map(|path| characters.map(|c| [path, &*String::from(c)].concat()));
            paths.extend(longer.collect::<Vec<_>>());
            paths.sort();
            paths.dedup();
        }
        for path in &paths {
            assert_eq!(is_valid(path), is_valid_bytes(path.as_bytes()), "{path:?}");
            assert!(!is_plain(path.as_bytes()) || is_valid_bytes(path.as_bytes()), "{path:?}");
        }
        assert!(["/a", "/a/b~ c", "/zookeeper/quota"].iter().all(|path| is_plain(path.as_bytes())));
    }

    #[test]
    fn invalid_path_says_which_rule_it_breaks() {
        let reason = |text| Path::new(text).unwrap_err().to_string();
        assert_eq!(reason("a/b"), "\"a/b\" is not the path of a znode: it must begin with a slash");
        assert_eq!(reason("/a/"), "\"/a/\" is not the path of a znode: it must not end with a slash");
        assert!(reason("/a//b").ends_with("a name between two slashes is empty"));
        assert!(reason("/a/../b").ends_with("no name may be . or .."));
        assert!(reason("/a\u{1}").ends_with("it has a character that ZooKeeper forbids"));
    }

    #[test]
    fn path_joins_and_splits() {
        let path: Path = "/a".parse().unwrap();
        let below = path.join("b").unwrap();
        assert_eq!(below, "/a/b");
        assert_eq!((below.parent(), below.name()), (Some(path.clone()), "b"));
        assert_eq!((path.parent(), path.name()), (Some(Path::ROOT), "a"));
        assert_eq!((Path::ROOT.parent(), Path::ROOT.name()), (None, ""));
        assert_eq!(Path::ROOT.join("a").unwrap(), path);
        assert!(path.join("").is_err() && path.join("../b").is_err());
        let other: Path = "/ab".parse().unwrap();
        assert!(below.starts_with(&path) && path.starts_with(&Path::ROOT) && !other.starts_with(&path));
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
