//! Keys of the replicated state: a tag byte, then the name.
//!
//! | tag | then | value |
//! |---|---|---|
//! | `n` | parent path, 0x00, name | the znode |
//! | `d` | parent path, 0x00, name | data over 1 KiB |
//! | `s` | session id, 8 bytes big-endian | the session |
//! | `e` | session id, then the path | nothing: this session owns this ephemeral |
//! | `r` | path | nothing: this container may be reaped |
//! | `t` | due time, 8 bytes big-endian, then the path | nothing: this TTL znode may be reaped then |
//! | `q` | path | nothing: the usage of this subtree is being counted |
//!
//! Siblings are adjacent, because no path contains 0x00. The root is `n` 0x00.

use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zoolet_model::{SessionId, path::parent_and_name};

/// Tag of a znode.
pub const ZNODE: u8 = b'n';
/// Tag of data too large for its znode's record.
pub const DATA: u8 = b'd';
/// Tag of a session.
pub const SESSION: u8 = b's';
/// Tag of an ephemeral in its owner's list.
pub const EPHEMERAL: u8 = b'e';
/// Tag of a container that the reaper checks.
pub const REAPABLE: u8 = b'r';
/// Tag of a TTL znode without children, ordered by the time at which it is due.
pub const DUE: u8 = b't';
/// Tag of a subtree whose usage is being counted for its quota.
pub const COUNTING: u8 = b'q';

/// The key of a record.
///
/// All holders share one allocation: a fetch from the base, both tables of the memtable, the record
/// cache.
pub type Key = Arc<[u8]>;

/// Hashes keys with a seed, so that clients cannot choose colliding names.
///
/// Hashes in one pass, without the state of an incremental hasher.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Creates a hasher with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl std::hash::BuildHasher for KeyHash {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0)
    }
}

/// The hash of one key while it is computed.
#[derive(Debug)]
pub struct KeyHasher(u64);

impl std::hash::Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_usize(&mut self, _length: usize) {
        // Ignore the length prefix of a slice: a key is a single slice, and its hash covers the
        // length.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns the key of `path`'s znode; `None` if no znode can have this path.
pub fn znode(path: &str) -> Option<Key> {
    placed(ZNODE, path)
}

/// Returns the key of `path`'s data; `None` if no znode can have this path.
pub fn data(path: &str) -> Option<Key> {
    placed(DATA, path)
}

fn placed(tag: u8, path: &str) -> Option<Key> {
    with_placed(tag, path, |key| key.into())
}

/// Calls `look` with the key of `path`'s znode.
///
/// Returns `None` if no znode can have this path. Does not allocate for paths of usual length: a
/// read from memory does little else.
pub fn with_znode<R>(path: &str, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
    with_placed(ZNODE, path, look)
}

fn with_placed<R>(tag: u8, path: &str, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let (parent, name) = parts(path)?;
    let (path, slash) = (path.as_bytes(), parent.len());
    // The key is the path behind the tag, with 0x00 in place of the last slash. In the keys of the
    // root and its children 0x00 is an extra byte instead.
    if slash > 1 {
        let mut key = [0; KEY_ON_STACK];
        if let Some(place) = key.get_mut(..=path.len()) {
            place[0] = tag;
            place[1..].copy_from_slice(path);
            place[1 + slash] = 0;
            return Some(look(place));
        }
    }
    Some(with_concat([&[tag], parent.as_bytes(), &[0], name.as_bytes()], look))
}

/// Length of the longest key that is built on the stack, in bytes.
const KEY_ON_STACK: usize = 256;

/// Calls `look` with the concatenated parts; allocates only beyond [`KEY_ON_STACK`].
fn with_concat<R, const N: usize>(parts: [&[u8]; N], look: impl FnOnce(&[u8]) -> R) -> R {
    let mut key = [0; KEY_ON_STACK];
    let mut bytes = 0;
    for part in parts {
        let Some(place) = key.get_mut(bytes..bytes + part.len()) else { return look(&parts.concat()) };
        place.copy_from_slice(part);
        bytes += part.len();
    }
    look(&key[..bytes])
}

/// Appends the key of `path` under `tag`.
///
/// Returns false and leaves `key` unchanged if no znode can have this path.
pub fn push_placed(key: &mut Vec<u8>, tag: u8, path: &str) -> bool {
    let Some((parent, name)) = parts(path) else { return false };
    key.push(tag);
    key.extend_from_slice(parent.as_bytes());
    key.push(0);
    key.extend_from_slice(name.as_bytes());
    true
}

/// Splits a valid path into parent and name; both are empty for the root.
fn parts(path: &str) -> Option<(&str, &str)> {
    let bytes = path.as_bytes();
    match *bytes {
        [b'/'] => return Some(("", "")),
        // `//a` would otherwise be `a` in `/`.
        [b'/', next, ..] if next != b'/' => {}
        _ => return None,
    }
    let (parent, name) = parent_and_name(path)?;
    (!name.is_empty() && !bytes.contains(&0)).then_some((parent, name))
}

/// Returns the key prefix of `path`'s children; the child's name follows it.
pub fn children_prefix(path: &str) -> Key {
    with_concat([&[ZNODE], path.as_bytes(), &[0]], |key| key.into())
}

/// Returns the key prefix of `path`'s descendants below its children.
pub fn descendants_prefix(path: &str) -> Key {
    let path = if path == "/" { "" } else { path };
    with_concat([&[ZNODE], path.as_bytes(), b"/"], |key| key.into())
}

/// Returns the key of a session.
pub fn session(id: SessionId) -> Key {
    session_bytes(id).into()
}

/// Returns the key of a session, without an allocation.
pub fn session_bytes(id: SessionId) -> [u8; 9] {
    let mut key = [SESSION; 9];
    key[1..].copy_from_slice(&id.0.to_be_bytes());
    key
}

/// Returns whether records of this key carry no value.
///
/// A mark is found by scanning its neighbours and never looked up by its key.
pub(crate) fn is_mark(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(EPHEMERAL | REAPABLE | DUE | COUNTING)))
}

/// Returns the key prefix of a session's ephemerals; the path follows it.
pub fn ephemerals_prefix(id: SessionId) -> Key {
    with_concat([&[EPHEMERAL], &id.0.to_be_bytes()], |key| key.into())
}

/// Returns the key of one ephemeral in its owner's list.
pub fn ephemeral(id: SessionId, path: &str) -> Key {
    with_ephemeral(id, path, |key| key.into())
}

/// Calls `look` with the key of an ephemeral; does not allocate for usual lengths.
pub fn with_ephemeral<R>(id: SessionId, path: &str, look: impl FnOnce(&[u8]) -> R) -> R {
    with_concat([&[EPHEMERAL], &id.0.to_be_bytes(), path.as_bytes()], look)
}

/// Returns the key of a container that the reaper checks.
pub fn reapable(path: &str) -> Key {
    with_reapable(path, |key| key.into())
}

/// Calls `look` with the key that [`reapable`] returns; does not allocate for usual lengths.
pub fn with_reapable<R>(path: &str, look: impl FnOnce(&[u8]) -> R) -> R {
    with_concat([&[REAPABLE], path.as_bytes()], look)
}

/// Returns the key of a TTL znode that may be reaped at `due_ms` of ensemble time.
pub fn due(due_ms: u64, path: &str) -> Key {
    with_due(due_ms, path, |key| key.into())
}

/// Calls `look` with the key that [`due`] returns; does not allocate for usual lengths.
pub fn with_due<R>(due_ms: u64, path: &str, look: impl FnOnce(&[u8]) -> R) -> R {
    with_concat([&[DUE], &due_ms.to_be_bytes(), path.as_bytes()], look)
}

/// Returns due time and path of a key that [`due`] made; `None` for any other key.
pub fn due_parts(key: &[u8]) -> Option<(u64, &str)> {
    let (due_ms, path) = key.strip_prefix(&[DUE])?.split_first_chunk()?;
    Some((u64::from_be_bytes(*due_ms), std::str::from_utf8(path).ok()?))
}

/// Returns the key of a subtree whose usage is being counted.
pub fn counting(path: &str) -> Key {
    with_concat([&[COUNTING], path.as_bytes()], |key| key.into())
}

/// Returns the smallest key greater than this one.
pub fn after(key: &[u8]) -> Key {
    with_concat([key, &[0]], |key| key.into())
}

/// Returns the first key after all keys with this prefix, if any.
pub fn end_of_prefix(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sibling_keys_are_adjacent_in_key_order() {
        let mut keys: Vec<Key> =
            ["/", "/a", "/a/b", "/a/b/c", "/a/c", "/a.b", "/ab", "/a b/c"].into_iter().filter_map(znode).collect();
        keys.sort();
        let prefix = children_prefix("/a");
        let first = keys.iter().position(|key| key.starts_with(&prefix)).unwrap();
        assert!(keys[first + 1].starts_with(&prefix));
        assert_eq!(keys.iter().filter(|key| key.starts_with(&prefix)).count(), 2);
    }

    #[test]
    fn stack_key_equals_the_heap_key() {
        let long = format!("/{}/x", "y".repeat(300));
        for path in ["/", "/a", "/a/b", "a", "/a/", &long] {
            assert_eq!(with_znode(path, |key| Key::from(key)), znode(path), "{path}");
        }
    }

    #[test]
    fn key_is_its_parts_in_order_whatever_its_length() {
        let mut paths = vec!["/".to_owned(), "/a".into(), "/a/b".into(), "/\u{e9}/\u{20ac}".into()];
        for length in 250..262 {
            paths.extend([format!("/{}", "n".repeat(length - 1)), format!("/{}/n", "p".repeat(length - 3))]);
        }
        for path in &paths {
            let mut expected = Vec::new();
            assert!(push_placed(&mut expected, ZNODE, path));
            assert_eq!(znode(path).as_deref(), Some(&*expected), "{path}");
        }
    }

    #[test]
    fn text_that_cannot_name_a_znode_has_no_key() {
        for path in ["", "a", "foo/bar", "/a/", "//x/", "/a\0b", "/\0", "/\0/a", "//", "//a", "//a/b"] {
            assert_eq!(znode(path), None, "{path:?}");
        }
        assert_eq!(znode("/").as_deref(), Some(&b"n\0"[..]));
    }

    #[test]
    fn due_keys_are_ordered_by_time() {
        let keys = [due(0, "/z"), due(255, "/b"), due(256, "/a"), due(u64::MAX, "/a")];
        assert!(keys.is_sorted());
        assert_eq!(due_parts(&keys[2]), Some((256, "/a")));
        assert_eq!((due_parts(&reapable("/abcdefgh")), due_parts(b"t1234567")), (None, None));
    }

    #[test]
    fn end_of_prefix_is_the_next_key_after_the_prefix() {
        assert_eq!(end_of_prefix(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(end_of_prefix(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(end_of_prefix(b"\xff"), None);
    }
}
