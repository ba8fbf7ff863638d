//! Recently used records of the base, absence included.

use super::key::Key;
use bytes::Bytes;
use std::collections::HashMap;
use xxhash_rust::xxh3::Xxh3Builder;

/// What a cached key costs beside its bytes: the map's entry, the handle of the value and two allocations.
const ENTRY_BYTES: usize = 112;

/// A bounded cache in two halves: what is used moves to the young half, and when that is full the old half is dropped whole. So nothing
/// is linked or counted per use.
#[derive(Debug)]
pub(super) struct RecordCache {
    young: HashMap<Key, Option<Bytes>, Xxh3Builder>,
    old: HashMap<Key, Option<Bytes>, Xxh3Builder>,
    young_bytes: usize,
    old_bytes: usize,
    bytes_max: usize,
    /// While an entry or a request waits for several records, none of them may be dropped before the last has come.
    held: bool,
}

impl RecordCache {
    pub(super) fn new(bytes_max: usize, seed: u64) -> Self {
        // Seeded, so that no client can choose names that collide.
        let map = || HashMap::with_hasher(Xxh3Builder::new().with_seed(seed));
        Self { young: map(), old: map(), young_bytes: 0, old_bytes: 0, bytes_max, held: false }
    }

    pub(super) fn bytes(&self) -> usize {
        self.young_bytes + self.old_bytes
    }

    /// The record or its absence, if known.
    pub(super) fn lookup(&mut self, key: &[u8]) -> Option<Option<Bytes>> {
        if let Some(record) = self.young.get(key) {
            return Some(record.clone());
        }
        let (key, record) = self.old.remove_entry(key)?;
        self.old_bytes -= cost(&key, record.as_ref());
        self.insert(key, record.clone());
        Some(record)
    }

    pub(super) fn insert(&mut self, key: Key, record: Option<Bytes>) {
        self.remove(&key);
        self.young_bytes += cost(&key, record.as_ref());
        self.young.insert(key, record);
        self.trim();
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some((key, record)) = self.young.remove_entry(key) {
            self.young_bytes -= cost(&key, record.as_ref());
        }
        if let Some((key, record)) = self.old.remove_entry(key) {
            self.old_bytes -= cost(&key, record.as_ref());
        }
    }

    /// Whether everything fetched must stay for now.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
        if !held && self.young_bytes > self.bytes_max {
            self.young.clear();
            self.young_bytes = 0;
        }
        self.trim();
    }

    fn trim(&mut self) {
        if self.young_bytes * 2 > self.bytes_max && !self.held {
            self.old = std::mem::replace(&mut self.young, HashMap::with_hasher(*self.old.hasher()));
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
    }
}

fn cost(key: &Key, record: Option<&Bytes>) -> usize {
    ENTRY_BYTES + key.len() + record.map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Key {
        n.to_be_bytes().into()
    }

    #[test]
    fn the_cache_keeps_to_its_bound_and_to_what_is_used() {
        let mut cache = RecordCache::new(64 << 10, 1);
        cache.insert(key(0), Some(Bytes::from_static(b"hot")));
        for n in 1..5000 {
            cache.insert(key(n), Some(Bytes::from(vec![0; 50])));
            assert!(cache.lookup(&key(0)).is_some());
            assert!(cache.bytes() <= (64 << 10) + 200);
        }
        assert_eq!(cache.lookup(&key(1)), None);
        assert_eq!(cache.lookup(&key(4999)), Some(Some(Bytes::from(vec![0; 50]))));
    }

    #[test]
    fn absence_is_knowledge() {
        let mut cache = RecordCache::new(1 << 20, 1);
        cache.insert(key(1), None);
        assert_eq!(cache.lookup(&key(1)), Some(None));
        cache.remove(&key(1));
        assert_eq!((cache.lookup(&key(1)), cache.bytes()), (None, 0));
    }

    #[test]
    fn nothing_is_dropped_while_held() {
        let mut cache = RecordCache::new(1000, 1);
        cache.hold(true);
        for n in 0..100 {
            cache.insert(key(n), None);
        }
        assert!((0..100).all(|n| cache.lookup(&key(n)).is_some()));
        cache.hold(false);
        assert!(cache.bytes() <= 1000);
    }
}
