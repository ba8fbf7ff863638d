//! Recently used records of the base, absence included.

use crate::budget::allocated;
use crate::record::key::{Key, KeyHash};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};

/// Overhead of a cached key beyond the allocations of key and record.
///
/// Its share of a map about two thirds full, and the bookkeeping for shared ownership of the
/// record.
const ENTRY_BYTES: usize = 108;

/// A number that grows each time the young generation is sealed.
pub(crate) type Stamp = u64;

type Records = HashMap<Key, Option<Bytes>, KeyHash>;

/// A bounded cache of generations, without per-use bookkeeping.
///
/// A used record moves to the young generation. When that generation reaches half the bound, it is
/// sealed, and the oldest generation is dropped whole.
///
/// A caller that waits for several records must find all of them when the last one arrives, even in
/// a cache too small for them. It notes the [`RecordCache::stamp`] at its lookups. The records
/// found are in that generation or a later one, and these generations stay while the caller waits.
/// So while a caller waits, all records used since its lookups stay, and the cache exceeds its bound.
#[derive(Debug)]
pub(super) struct RecordCache {
    young: Records,
    young_bytes: usize,
    /// Sealed generations with their bytes, newest first.
    sealed: VecDeque<(Records, usize)>,
    /// Number of the young generation; sealed generations count down from it.
    stamp: Stamp,
    /// Generations from this one on must stay; `None` if no caller waits.
    needed: Option<Stamp>,
    bytes_max: usize,
}

impl RecordCache {
    pub(super) fn new(bytes_max: usize, seed: u64) -> Self {
        // The seed keeps clients from choosing names whose hashes collide.
        let young = HashMap::with_hasher(KeyHash::new(seed));
        Self { young, young_bytes: 0, sealed: VecDeque::new(), stamp: 0, needed: None, bytes_max }
    }

    pub(super) fn bytes(&self) -> usize {
        self.young_bytes + self.sealed.iter().map(|(_, bytes)| bytes).sum::<usize>()
    }

    /// Recomputes [`RecordCache::bytes`] from the records.
    pub(super) fn counted_bytes(&self) -> usize {
        let generations = self.sealed.iter().map(|(records, _)| records).chain([&self.young]);
        generations.flatten().map(|(key, record)| cost(key, record.as_ref())).sum()
    }

    /// Returns the oldest generation that can hold a record looked up from now on.
    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Returns the record or its absence; `None` if unknown.
    pub(super) fn lookup(&mut self, key: &[u8]) -> Option<Option<Bytes>> {
        if let Some(record) = self.young.get(key) {
            return Some(record.clone());
        }
        let (key, record) = self.take_sealed(key)?;
        self.add(key, record.clone());
        Some(record)
    }

    /// Returns the young generation's copy of the key, to share its allocation.
    pub(super) fn key(&self, key: &[u8]) -> Option<&Key> {
        self.young.get_key_value(key).map(|(key, _)| key)
    }

    pub(super) fn insert(&mut self, key: Key, record: Option<Bytes>) {
        self.remove(&key);
        self.add(key, record);
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some((key, record)) = self.young.remove_entry(key) {
            self.young_bytes -= cost(&key, record.as_ref());
        }
        self.take_sealed(key);
    }

    /// Keeps all generations from `needed` on; `None` if no caller waits.
    pub(super) fn keep_from(&mut self, needed: Option<Stamp>) {
        self.needed = needed;
        self.trim();
    }

    fn add(&mut self, key: Key, record: Option<Bytes>) {
        self.young_bytes += cost(&key, record.as_ref());
        self.young.insert(key, record);
        if self.young_bytes * 2 > self.bytes_max {
            let empty = HashMap::with_hasher(*self.young.hasher());
            let full = std::mem::replace(&mut self.young, empty);
            self.sealed.push_front((full, std::mem::take(&mut self.young_bytes)));
            self.stamp += 1;
            self.trim();
        }
    }

    fn take_sealed(&mut self, key: &[u8]) -> Option<(Key, Option<Bytes>)> {
        let (records, bytes) = self.sealed.iter_mut().find(|(records, _)| records.contains_key(key))?;
        let (key, record) = records.remove_entry(key)?;
        *bytes -= cost(&key, record.as_ref());
        Some((key, record))
    }

    /// Drops the oldest generations. One sealed generation is half of the cache; more stay only for
    /// waiting callers.
    fn trim(&mut self) {
        while self.sealed.len() > 1 {
            let oldest = self.stamp - self.sealed.len() as Stamp;
            if self.needed.is_some_and(|needed| needed <= oldest) {
                return;
            }
            self.sealed.pop_back();
        }
    }
}

fn cost(key: &Key, record: Option<&Bytes>) -> usize {
    ENTRY_BYTES + allocated(key.len()) + record.map_or(0, |record| allocated(record.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Key {
        n.to_be_bytes().into()
    }

    #[test]
    fn record_cache_stays_within_its_bound_and_keeps_used_records() {
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
    fn record_cache_remembers_absent_records() {
        let mut cache = RecordCache::new(1 << 20, 1);
        cache.insert(key(1), None);
        assert_eq!(cache.lookup(&key(1)), Some(None));
        cache.remove(&key(1));
        assert_eq!((cache.lookup(&key(1)), cache.bytes()), (None, 0));
    }

    #[test]
    fn cache_keeps_records_a_waiter_needs_until_it_is_served() {
        let mut cache = RecordCache::new(1000, 1);
        cache.insert(key(0), None);
        for n in 1..100 {
            cache.insert(key(n), None);
        }
        let needed = cache.stamp();
        cache.keep_from(Some(needed));
        for n in 100..200 {
            cache.insert(key(n), None);
        }
        assert!((100..200).all(|n| cache.lookup(&key(n)).is_some()));
        assert_eq!(cache.lookup(&key(1)), None, "it was there before anybody waited");
        // The same caller looks again: it finds all its records again, so they move to the young
        // generation.
        cache.keep_from(Some(cache.stamp()));
        assert!(cache.bytes() <= 1500);
        cache.keep_from(None);
        assert!(cache.bytes() <= 1200);
    }
}
