//! The memtable: records newer than the layer below.

use crate::budget::allocated;
use crate::record::key::{Key, KeyHash, end_of_prefix};
use bytes::Bytes;
use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

/// Overhead of a key beyond its allocation, in bytes.
///
/// Its share of a hash table about two thirds full.
const KEY_BYTES: usize = 76;
/// Overhead of a record beyond its allocation: the bookkeeping for shared ownership, in bytes.
const RECORD_BYTES: usize = 32;
/// Overhead of a name beyond its bytes: its share of a B-tree leaf, in bytes.
///
/// A name shares the key of its record, but is charged as if it had a copy. The surcharge covers
/// the reference counts of keys, which are not counted elsewhere.
const NAME_BYTES: usize = 44;

/// Changed records, or their absence.
///
/// Most changes replace an existing record and need only a hash lookup. Only keys whose existence
/// differs from the layer below are also kept in order, because only they can change a list of
/// children.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    records: HashMap<Key, Option<Bytes>, KeyHash>,
    /// Keys created or deleted here, in order.
    names: BTreeMap<Key, Life>,
    /// Memory charged for all of this, in bytes.
    bytes: usize,
}

/// How the existence of a key changed here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    /// Exists here and not below. Deleting it leaves nothing to write.
    Born,
    /// Exists below; deleted here.
    Dead,
    /// Exists below; deleted and created again here.
    Reborn,
}

impl Changes {
    /// Creates an empty memtable. `seed` keeps clients from choosing names whose hashes collide.
    pub(super) fn with_seed(seed: u64) -> Self {
        Self { records: HashMap::with_hasher(KeyHash::new(seed)), names: BTreeMap::new(), bytes: 0 }
    }

    /// Takes all changes and leaves an empty memtable with the same seed.
    pub(super) fn take(&mut self) -> Self {
        let empty = Self { records: HashMap::with_hasher(*self.records.hasher()), names: BTreeMap::new(), bytes: 0 };
        std::mem::replace(self, empty)
    }

    /// Returns the number of records, absences included.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the memory charged for the changes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Recomputes [`Changes::bytes`] from records and names.
    pub(super) fn counted_bytes(&self) -> usize {
        let records = self.records.iter();
        let records = records.map(|(key, record)| key_cost(key) + record.as_ref().map_or(0, record_cost));
        records.sum::<usize>() + self.names.keys().map(name_cost).sum::<usize>()
    }

    /// Returns the record or its absence; `None` if the key is unchanged here.
    pub fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.records.get(key)
    }

    /// Returns the record or its absence, with the stored copy of the key; `None` if the key is
    /// unchanged here.
    pub(super) fn entry(&self, key: &[u8]) -> Option<(&Key, &Option<Bytes>)> {
        self.records.get_key_value(key)
    }

    /// Returns the stored copy of the key, to share its allocation.
    pub(super) fn key(&self, key: &[u8]) -> Option<&Key> {
        self.entry(key).map(|(key, _)| key)
    }

    /// Iterates in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Option<Bytes>)> {
        self.records.iter()
    }

    /// Returns all changes in key order.
    pub fn in_order(&self) -> Vec<(&Key, &Option<Bytes>)> {
        let mut all: Vec<_> = self.records.iter().collect();
        all.sort_unstable_by_key(|&(key, _)| key);
        all
    }

    /// Sets or deletes a record without regard to the layer below.
    pub fn insert(&mut self, key: Key, record: Option<Bytes>) {
        match record {
            Some(record) => self.set(key, record, true, |_| {}),
            None => self.unset(key),
        }
    }

    /// Sets a record.
    ///
    /// `existed` says whether the record existed before, here or below. Calls `is_new` if this
    /// memtable did not hold the key.
    pub(super) fn set(&mut self, key: Key, record: Bytes, existed: bool, is_new: impl FnOnce(&Key)) {
        self.bytes += record_cost(&record);
        match self.records.entry(key) {
            Entry::Occupied(mut here) => {
                if here.get().is_none() {
                    self.names.insert(here.key().clone(), Life::Reborn);
                }
                let replaced = here.insert(Some(record));
                self.bytes -= replaced.map_or(0, |replaced| record_cost(&replaced));
            }
            Entry::Vacant(place) => {
                self.bytes += key_cost(place.key());
                if !existed {
                    self.bytes += name_cost(place.key());
                    self.names.insert(place.key().clone(), Life::Born);
                }
                is_new(place.key());
                place.insert(Some(record));
            }
        }
    }

    /// Deletes a record; returns false if nothing is left to write.
    ///
    /// This is the case for a record created here.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        match self.names.remove_entry(key) {
            Some((key, Life::Born)) => {
                self.bytes -= name_cost(&key);
                self.forget_record(&key);
                false
            }
            Some((key, Life::Dead | Life::Reborn)) => {
                if let Some(record) = self.records.get_mut(&key) {
                    self.bytes -= record.take().map_or(0, |record| record_cost(&record));
                }
                self.names.insert(key, Life::Dead);
                true
            }
            None => {
                self.unset(key.into());
                true
            }
        }
    }

    fn unset(&mut self, key: Key) {
        match self.names.entry(key) {
            btree_map::Entry::Occupied(mut name) => {
                name.insert(Life::Dead);
                if let Some(record) = self.records.get_mut(name.key()) {
                    self.bytes -= record.take().map_or(0, |record| record_cost(&record));
                }
            }
            btree_map::Entry::Vacant(place) => {
                let key = place.key().clone();
                self.bytes += name_cost(&key);
                place.insert(Life::Dead);
                match self.records.entry(key) {
                    Entry::Occupied(mut here) => {
                        self.bytes -= here.insert(None).map_or(0, |record| record_cost(&record));
                    }
                    Entry::Vacant(place) => {
                        self.bytes += key_cost(place.key());
                        place.insert(None);
                    }
                }
            }
        }
    }

    fn forget(&mut self, key: &[u8]) {
        self.forget_record(key);
        if let Some((key, _)) = self.names.remove_entry(key) {
            self.bytes -= name_cost(&key);
        }
    }

    fn forget_record(&mut self, key: &[u8]) {
        if let Some((key, record)) = self.records.remove_entry(key) {
            self.bytes -= key_cost(&key) + record.map_or(0, |record| record_cost(&record));
        }
    }

    /// Applies newer changes on top of these.
    ///
    /// Calls `gone` with each key created in the older and deleted in the newer memtable: nothing
    /// is left to write for it.
    pub(super) fn lay_over(&mut self, newer: Self, mut gone: impl FnMut(Key)) {
        for (key, record) in newer.records {
            let life = match (self.names.get(&key), newer.names.get(&key)) {
                (Some(Life::Born), Some(Life::Dead)) => {
                    self.forget(&key);
                    gone(key);
                    continue;
                }
                // The key was deleted and created again since, but still does not exist below the
                // older memtable.
                (Some(Life::Born), Some(_)) => Some(Life::Born),
                // The older memtable had deleted the key, so the newer one saw nothing below. The
                // key does exist below the older one.
                (Some(Life::Dead), Some(Life::Born)) => Some(Life::Reborn),
                (older, None) => older.copied(),
                (_, Some(newer)) => Some(*newer),
            };
            if let Some(life) = life
                && self.names.insert(key.clone(), life).is_none()
            {
                self.bytes += name_cost(&key);
            }
            self.bytes += record.as_ref().map_or(0, record_cost);
            match self.records.entry(key) {
                Entry::Occupied(mut here) => {
                    self.bytes -= here.insert(record).map_or(0, |replaced| record_cost(&replaced));
                }
                Entry::Vacant(place) => {
                    self.bytes += key_cost(place.key());
                    place.insert(record);
                }
            }
        }
    }

    /// Iterates as [`Changes::names_under`], over the keys from `from` on that have its tag.
    pub(super) fn names_from<'a>(&'a self, from: &[u8]) -> impl Iterator<Item = (&'a Key, bool)> + use<'a> {
        let end = from.get(..1).and_then(end_of_prefix);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<[u8], _>((Bound::Included(from), upper));
        names.map(|(key, life)| (key, *life != Life::Dead))
    }

    /// Iterates the keys under a prefix created or deleted here, in order.
    ///
    /// The flag says whether the key exists now.
    pub(super) fn names_under<'a>(&'a self, prefix: &[u8]) -> impl Iterator<Item = (&'a Key, bool)> + use<'a> {
        let end = end_of_prefix(prefix);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<[u8], _>((Bound::Included(prefix), upper));
        names.map(|(key, life)| (key, *life != Life::Dead))
    }

    /// Iterates the keys in `from..to` created or deleted here, in order.
    pub(super) fn names_in<'a>(&'a self, from: &[u8], to: &[u8]) -> impl Iterator<Item = &'a Key> + use<'a> {
        // A range whose end precedes its start would panic.
        let to = to.max(from);
        self.names.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))).map(|(key, _)| key)
    }
}

impl FromIterator<(Key, Option<Bytes>)> for Changes {
    fn from_iter<I: IntoIterator<Item = (Key, Option<Bytes>)>>(records: I) -> Self {
        let mut changes = Self::default();
        records.into_iter().for_each(|(key, record)| changes.insert(key, record));
        changes
    }
}

impl<const N: usize> From<[(Key, Option<Bytes>); N]> for Changes {
    fn from(records: [(Key, Option<Bytes>); N]) -> Self {
        records.into_iter().collect()
    }
}

/// Iterates in arbitrary order.
impl IntoIterator for Changes {
    type Item = (Key, Option<Bytes>);
    type IntoIter = std::collections::hash_map::IntoIter<Key, Option<Bytes>>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.into_iter()
    }
}

/// Iterates in key order.
impl<'a> IntoIterator for &'a Changes {
    type Item = (&'a Key, &'a Option<Bytes>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.in_order().into_iter()
    }
}

fn key_cost(key: &Key) -> usize {
    KEY_BYTES + allocated(key.len())
}

fn record_cost(record: &Bytes) -> usize {
    RECORD_BYTES + allocated(record.len())
}

fn name_cost(key: &Key) -> usize {
    NAME_BYTES + allocated(key.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays random creations, deletions and replacements over `below`; returns the resulting
    /// state.
    fn play(changes: &mut Changes, below: &BTreeMap<Key, Bytes>, seed: &mut u64) -> BTreeMap<Key, Bytes> {
        let mut now = below.clone();
        for _ in 0..40 {
            *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (choice, key) = ((*seed >> 40) % 3, Key::from([(*seed >> 33) as u8 % 8]));
            if choice == 0 {
                if now.remove(&key).is_some() {
                    changes.remove(&key);
                }
            } else {
                let record = Bytes::from(vec![choice as u8; (*seed >> 50) as usize % 30]);
                changes.set(key.clone(), record.clone(), now.contains_key(&key), |_| {});
                now.insert(key, record);
            }
            assert_eq!(changes.bytes(), changes.counted_bytes());
        }
        now
    }

    fn overlaid(below: &BTreeMap<Key, Bytes>, changes: &Changes) -> BTreeMap<Key, Bytes> {
        let mut all = below.clone();
        for (key, record) in changes {
            match record {
                Some(record) => drop(all.insert(key.clone(), record.clone())),
                None => drop(all.remove(key)),
            }
        }
        all
    }

    fn overlaid_names(below: &BTreeMap<Key, Bytes>, changes: &Changes) -> Vec<Key> {
        let mut names: BTreeMap<&Key, bool> = below.keys().map(|key| (key, true)).collect();
        names.extend(changes.names_under(b""));
        names.into_iter().filter(|&(_, there)| there).map(|(key, _)| key.clone()).collect()
    }

    #[test]
    fn changes_laid_over_the_base_equal_the_model() {
        let mut seed = 1;
        for _ in 0..500 {
            let below = play(&mut Changes::default(), &BTreeMap::new(), &mut seed);
            let mut changes = Changes::with_seed(seed);
            let now = play(&mut changes, &below, &mut seed);
            assert_eq!(overlaid(&below, &changes), now);
            assert_eq!(overlaid_names(&below, &changes), now.keys().cloned().collect::<Vec<_>>());
            // A key created and deleted here must leave nothing to write.
            assert!(changes.iter().all(|(key, record)| record.is_some() || below.contains_key(key)));
        }
    }

    #[test]
    fn two_merged_change_layers_equal_the_model_and_accept_more() {
        let mut seed = 7;
        for _ in 0..500 {
            let below = play(&mut Changes::default(), &BTreeMap::new(), &mut seed);
            let mut older = Changes::with_seed(1);
            let between = play(&mut older, &below, &mut seed);
            let mut newer = Changes::with_seed(1);
            let now = play(&mut newer, &between, &mut seed);
            let mut gone = Vec::new();
            older.lay_over(newer, |key| gone.push(key));
            assert_eq!(older.bytes(), older.counted_bytes());
            assert_eq!(overlaid(&below, &older), now);
            assert!(gone.iter().all(|key| !below.contains_key(key) && !now.contains_key(key)));
            let later = play(&mut older, &now, &mut seed);
            assert_eq!(overlaid(&below, &older), later, "what died after the merge is dead below too");
            assert_eq!(overlaid_names(&below, &older), later.keys().cloned().collect::<Vec<_>>());
        }
    }
}
