//! Znodes of a range of keys with the length of their data, merged from base and memory.

use crate::budget::allocated;
use crate::record::key::Key;
use crate::record::znode::Znode;
use crate::seam::action::FetchWhat;
use crate::state::{Changes, Stuck};
use crate::tree::Room;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Bytes of portions that stay in memory once no entry needs them.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Bytes of a portion beside its keys: its slot in a B-tree, and the end of its range.
const PORTION_BYTES: usize = 96;
/// Bytes of a shared key beside its text.
const SHARED_BYTES: usize = 16;

/// Portions of the base's znodes, by their first possible key, in the current generation.
///
/// Entries may be installed meanwhile: the memtables hold everything newer than the base.
#[derive(Debug, Default)]
pub(super) struct Weights {
    portions: BTreeMap<Key, Portion>,
    bytes: usize,
}

/// All znodes of the base from a key to `end`, less those deleted since.
#[derive(Debug)]
struct Portion {
    znodes: Vec<(Key, u32)>,
    end: Key,
}

impl Portion {
    fn bytes(&self, from: &Key) -> usize {
        let slots = PORTION_BYTES + self.znodes.capacity() * size_of::<(Key, u32)>();
        let keys = self.znodes.iter().map(|(key, _)| key).chain([from, &self.end]);
        slots + keys.map(|key| allocated(SHARED_BYTES + key.len())).sum::<usize>()
    }
}

impl Weights {
    /// Keeps the base's znodes in `from..end`.
    pub(super) fn insert(&mut self, from: Key, znodes: Vec<(Key, u32)>, end: Key) {
        let portion = Portion { znodes, end };
        self.bytes += portion.bytes(&from);
        if let Some(replaced) = self.portions.insert(from.clone(), portion) {
            self.bytes -= replaced.bytes(&from);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops the portions unless they are few and may be used again.
    pub(super) fn trim(&mut self, is_used: bool) {
        if (is_used || self.are_many()) && !self.portions.is_empty() {
            self.clear();
        }
    }

    pub(super) fn are_many(&self) -> bool {
        self.bytes > KEPT_BYTES_MAX
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Recomputes [`Weights::bytes`] from the portions.
    pub(super) fn counted_bytes(&self) -> usize {
        self.portions.iter().map(|(from, portion)| portion.bytes(from)).sum()
    }

    /// Returns the portion whose range has this key.
    fn around(&self, key: &[u8]) -> Option<&Portion> {
        let before = self.portions.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        before.map(|(_, portion)| portion).next_back().filter(|portion| *key < *portion.end)
    }

    pub(super) fn has(&self, from: &[u8]) -> bool {
        self.around(from).is_some()
    }

    /// Returns whether a portion shows that the base does not have this znode.
    pub(super) fn lacks(&self, key: &[u8]) -> bool {
        let portion = self.around(key);
        portion.is_some_and(|portion| portion.znodes.binary_search_by(|(known, _)| (**known).cmp(key)).is_err())
    }

    /// Returns the first znodes with keys in `from..to`, in order, with the length of their data.
    ///
    /// `layers` are the memtables, newest first. The znodes end with the one that uses up the room,
    /// or with the range.
    pub(super) fn merge(
        &self,
        layers: [Option<&Changes>; 2],
        from: &[u8],
        to: &[u8],
        mut room: Room,
    ) -> Result<Vec<(Key, u32)>, Stuck> {
        let layers = || layers.iter().flatten().copied();
        let (mut found, mut from) = (Vec::new(), Key::from(from));
        while *from < *to && !room.is_used_up() {
            let Some(Portion { znodes, end }) = self.around(&from) else {
                return Err(Stuck::Missing(vec![FetchWhat::Weights { from, to: to.into() }]));
            };
            let end = if **end < *to { end.clone() } else { to.into() };
            let first = znodes.partition_point(|(key, _)| *key < from);
            let mut znodes = znodes[first..].iter().take_while(|(key, _)| *key < end).peekable();
            let mut names = layers().map(|layer| layer.names_in(&from, &end).peekable()).collect::<Vec<_>>();
            while !room.is_used_up() {
                let first = names.iter_mut().filter_map(|names| names.peek().copied()).min();
                let Some(key) = first.into_iter().chain(znodes.peek().map(|(key, _)| key)).min() else { break };
                let key = key.clone();
                for names in &mut names {
                    names.next_if(|name| **name == key);
                }
                let in_base = znodes.next_if(|(known, _)| *known == key);
                let length = match layers().find_map(|layer| layer.get(&key)) {
                    Some(Some(record)) => {
                        let znode = Znode::decode(record);
                        Some(znode.map_err(|_| Stuck::Damaged("a znode's record does not decode"))?.data.length())
                    }
                    Some(None) => None,
                    None => in_base.map(|(_, length)| *length),
                };
                if let Some(length) = length {
                    room.admit(&key);
                    found.push((key, length));
                }
            }
            from = end;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::key;

    const ROOM: Room = Room { znodes: 10, key_bytes: 1000 };

    fn path(path: &str) -> Key {
        key::znode(path).unwrap()
    }

    fn range(prefix: Key) -> (Key, Key) {
        (prefix.clone(), key::end_of_prefix(&prefix).unwrap())
    }

    /// Two counts may stand at the same position: at a child of `/a/b`, the end of its own range.
    #[test]
    fn end_of_an_inner_range_is_not_the_end_of_the_outer_one() {
        let mut weights = Weights::default();
        let (from, to) = range(key::children_prefix("/a/b"));
        weights.insert(from.clone(), vec![(path("/a/b/1"), 3)], to.clone());
        assert_eq!(weights.merge([None, None], &from, &to, ROOM), Ok(vec![(path("/a/b/1"), 3)]));
        let (_, outer) = range(key::descendants_prefix("/a"));
        let rest = FetchWhat::Weights { from: to, to: outer.clone() };
        assert_eq!(weights.merge([None, None], &from, &outer, ROOM), Err(Stuck::Missing(vec![rest])));
    }

    #[test]
    fn portion_answers_from_any_key_of_its_range_on() {
        let mut weights = Weights::default();
        let (from, to) = range(key::children_prefix("/a"));
        weights.insert(from, vec![(path("/a/1"), 1), (path("/a/2"), 2)], to.clone());
        assert_eq!(weights.merge([None, None], &key::after(&path("/a/1")), &to, ROOM), Ok(vec![(path("/a/2"), 2)]));
        assert!(weights.lacks(&path("/a/0")) && !weights.lacks(&path("/a/1")) && !weights.lacks(&path("/b")));
        assert_eq!(weights.bytes(), weights.counted_bytes());
        weights.trim(false);
        assert!(weights.has(&path("/a/1")));
        weights.trim(true);
        assert_eq!((weights.bytes(), weights.has(&path("/a/1"))), (0, false));
    }

    #[test]
    fn many_portions_are_dropped_although_none_was_used() {
        let mut weights = Weights::default();
        for number in 0..10 {
            let (from, to) = range(key::children_prefix(&format!("/{number}")));
            weights.insert(from, vec![(path(&format!("/{number}/{}", "x".repeat(30_000))), 1)], to);
            weights.trim(false);
            assert!(weights.bytes() <= KEPT_BYTES_MAX);
        }
        assert!(weights.has(&key::children_prefix("/9")));
    }
}
