//! Memory above the base: the active memtable, the frozen memtable and the record cache.

use crate::derived::Derived;
use crate::record::key::{self, Key, KeyHash};
use crate::seam::action::{FIRST_KEYS_BYTES_MAX, FIRST_KEYS_MAX};
use crate::seam::ids::Generation;
use crate::state::buffer_pool::BufferPool;
use crate::state::cache::{RecordCache, Stamp};
use crate::state::changes::Changes;
use crate::state::spare::SpareCache;
use crate::state::weights::Weights;
use crate::state::{Change, First, Found, Stuck, View};
use crate::tree::Room;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Applied state newer than the base, and recently used records of the base.
///
/// A lookup goes through four layers: active memtable, frozen memtable, record cache, spare cache.
/// These rules ensure that no answer is older than the applied state:
/// - The record cache holds only keys that neither memtable holds.
/// - Each change and each answer of the base also goes into the spare cache. For each key it holds
///   the newest record, or its absence, or no entry.
/// - The base is asked only for keys unknown to all layers, with one fetch per key at a time.
/// - A znode's record changes only while it is in memory. Large data and marks are written without a
///   lookup, and are never fetched as records.
#[derive(Debug)]
pub struct Memory {
    active: Changes,
    frozen: Option<Arc<Changes>>,
    cache: RecordCache,
    spare: SpareCache,
    /// The base's keys under each fetched prefix, in the current generation.
    ranges: BTreeMap<Key, Vec<Key>>,
    /// The base's first keys from the last fetched key on, in the current generation.
    first: Option<FirstOfBase>,
    /// Portions of the base's znodes, fetched to be counted, in the current generation.
    weights: Weights,
    generation: Generation,
    buffers: BufferPool,
}

/// The base's first keys from `from` on. `is_cut`: more may follow.
#[derive(Debug)]
struct FirstOfBase {
    from: Key,
    keys: Vec<Key>,
    is_cut: bool,
}

impl Memory {
    /// Creates an empty memory above a base of the first generation.
    ///
    /// `seed` keeps clients from choosing names whose hashes collide.
    pub fn new(cache_bytes_max: usize, seed: u64) -> Self {
        Self {
            active: Changes::with_seed(seed),
            frozen: None,
            cache: RecordCache::new(cache_bytes_max, seed),
            spare: SpareCache::new(KeyHash::new(seed)),
            ranges: BTreeMap::new(),
            first: None,
            weights: Weights::default(),
            generation: Generation::default(),
            buffers: BufferPool::default(),
        }
    }

    /// Returns the generation of the base to fetch unknown records from.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the bytes of the active memtable.
    pub fn active_bytes(&self) -> usize {
        self.active.bytes()
    }

    /// Returns the bytes of both memtables.
    pub fn memtable_bytes(&self) -> usize {
        self.active.bytes() + self.frozen.as_ref().map_or(0, |frozen| frozen.bytes())
    }

    /// Returns the bytes of the reusable buffers for records and keys.
    pub fn pool_bytes(&self) -> usize {
        self.buffers.bytes()
    }

    /// Returns the bytes of the record cache.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Returns the bytes of the spare cache.
    pub fn spare_bytes(&self) -> usize {
        self.spare.bytes()
    }

    /// Sets the bound of the spare cache, which drops its oldest records above it.
    pub fn allow_spare(&mut self, bytes_max: usize) {
        self.spare.allow(bytes_max);
    }

    /// Lowers the bound of the spare cache until [`Memory::allow_spare`].
    pub(crate) fn allow_less_spare(&mut self, bytes: usize) {
        self.spare.allow_less(bytes);
    }

    pub(crate) fn derived(&self, derived: &mut Vec<Derived>) {
        let frozen = |bytes: fn(&Changes) -> usize| self.frozen.as_deref().map_or(0, bytes);
        derived.extend([
            Derived::new("memtable_bytes", self.active.bytes(), self.active.counted_bytes()),
            Derived::new("frozen_bytes", frozen(Changes::bytes), frozen(Changes::counted_bytes)),
            Derived::new("cache_bytes", self.cache.bytes(), self.cache.counted_bytes()),
            Derived::new("spare_bytes", self.spare.bytes(), self.spare.counted_bytes()),
            Derived::new("weights_bytes", self.weights.bytes(), self.weights.counted_bytes()),
        ]);
    }

    /// Returns whether a checkpoint is in progress.
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Installs the changes of one entry.
    pub fn install(&mut self, changes: impl IntoIterator<Item = (Key, Change)>) {
        for (key, Change { existed, after }) in changes {
            self.set(key, existed, after);
        }
    }

    fn set(&mut self, key: Key, existed: bool, after: Option<Bytes>) {
        self.keep_spare(&key, after.as_deref());
        let Self { active, cache, .. } = self;
        match after {
            Some(record) => active.set(key, record, existed, |key| cache.remove(key)),
            // Created and deleted in one entry: nothing has changed.
            None if !existed => {}
            None if active.remove(&key) => cache.remove(&key),
            // Marks are never looked up by key, so their absence need not be cached.
            None if key::is_mark(&key) => {}
            None => cache.insert(key, None),
        }
    }

    /// Freezes the active memtable for a checkpoint and starts a new one.
    ///
    /// # Panics
    /// If a memtable is already frozen.
    pub fn freeze(&mut self) -> Arc<Changes> {
        assert!(self.frozen.is_none(), "one checkpoint at a time");
        let frozen = Arc::new(self.active.take());
        self.frozen = Some(frozen.clone());
        frozen
    }

    /// Releases the frozen memtable: the base now holds it, as of `generation`.
    ///
    /// Returns the memtable, so that another thread can spend the milliseconds of freeing it.
    pub fn thaw(&mut self, generation: Generation) -> Option<Arc<Changes>> {
        self.ranges.clear();
        self.first = None;
        self.weights.clear();
        self.generation = generation;
        self.frozen.take()
    }

    /// Merges the frozen memtable back after a failed checkpoint.
    ///
    /// The next checkpoint skips records that were created in the frozen memtable and deleted
    /// since. That may free the space it needs.
    pub fn unfreeze(&mut self) {
        let Some(frozen) = self.frozen.take() else { return };
        let newer = self.active.take();
        self.active = Arc::unwrap_or_clone(frozen);
        // A key deleted in the frozen memtable may have been created and deleted again since, which
        // cached its absence. The cache must not hold a memtable's keys.
        self.active.iter().for_each(|(key, _)| self.cache.remove(key));
        self.active.lay_over(newer, |key| self.cache.insert(key, None));
    }

    /// Caches the base's answer for a key unknown to memory.
    pub fn fetched(&mut self, key: Key, record: Option<Bytes>) {
        debug_assert!(self.active.get(&key).is_none(), "a record changes only while it is in memory");
        self.keep_spare(&key, record.as_deref());
        self.cache.insert(key, record);
    }

    /// Keeps the base's keys under a prefix until the generation changes.
    ///
    /// Ignores keys of another generation.
    pub fn fetched_keys(&mut self, prefix: Key, keys: Vec<Key>, generation: Generation) {
        if generation == self.generation {
            self.ranges.insert(prefix, keys);
        }
    }

    /// Keeps the base's first keys from `from` on until they are used or the generation changes.
    ///
    /// Ignores keys of another generation.
    pub fn fetched_first_keys(&mut self, from: Key, keys: Vec<Key>, is_cut: bool, generation: Generation) {
        if generation == self.generation {
            self.first = Some(FirstOfBase { from, keys, is_cut });
        }
    }

    /// Returns the first keys from `from` on that have its tag. `None` if the base must be read.
    ///
    /// It uses up the fetched keys: the caller asks again from where these end.
    pub fn first_keys(&mut self, from: &[u8]) -> Option<First> {
        let base = self.first.take_if(|first| *first.from == *from)?;
        let newer = self.frozen.as_deref().into_iter().chain([&self.active]).map(|layer| layer.names_from(from));
        let mut layers: Vec<_> = newer.map(Iterator::peekable).collect();
        let (mut of_base, last) = (base.keys.iter().peekable(), base.keys.last().filter(|_| base.is_cut));
        let (mut first, mut bytes) = (First::default(), 0);
        loop {
            let newer = layers.iter_mut().filter_map(|layer| layer.peek().map(|&(key, _)| key));
            let Some(key) = newer.chain(of_base.peek().copied()).min().cloned() else { break };
            let mut exists = of_base.next_if(|other| ***other == *key).is_some();
            for layer in &mut layers {
                if let Some((_, there)) = layer.next_if(|(other, _)| **other == key) {
                    exists = there;
                }
            }
            // Memory alone does not know the base's keys after the last one fetched.
            let is_last = last.is_some_and(|last| *last <= key);
            if exists {
                bytes += key.len();
                first.keys.push(key.clone());
            }
            if is_last || first.keys.len() >= FIRST_KEYS_MAX || bytes >= FIRST_KEYS_BYTES_MAX {
                first.next = Some([&key[..], &[0]].concat().into());
                break;
            }
        }
        Some(first)
    }

    /// Keeps the base's first znodes in `from..to` until an entry has used them.
    ///
    /// Ignores znodes of another generation.
    pub fn fetched_weights(
        &mut self,
        (from, to): (Key, Key),
        mut found: Vec<(Key, u32)>,
        is_end: bool,
        generation: Generation,
    ) {
        if generation != self.generation {
            return;
        }
        let end = found.last().filter(|_| !is_end).map_or(to, |(last, _)| key::after(last));
        // The memtables hold deletions until the next generation. A range that was deleted takes no
        // memory here.
        found.retain(|(key, _)| self.newest(key) != Some(&None));
        found.shrink_to_fit();
        self.weights.insert(from, found, end);
    }

    /// Returns the bytes of the base's znodes kept to be counted.
    pub fn weights_bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Returns whether no more of the base's znodes may be fetched ahead to be counted.
    pub(crate) fn weights_are_many(&self) -> bool {
        self.weights.are_many()
    }

    /// Drops the base's znodes after an entry that counted them, or if they are many.
    pub(crate) fn trim_weights(&mut self, is_used: bool) {
        self.weights.trim(is_used);
    }

    /// Drops the base's keys under a prefix after use.
    pub fn forget_keys(&mut self, prefix: &[u8]) {
        self.ranges.remove(prefix);
    }

    /// Tells the spare cache a record of a znode or of its data. Others are not looked up here.
    fn keep_spare(&mut self, key: &[u8], record: Option<&[u8]>) {
        if matches!(key.first(), Some(&(key::ZNODE | key::DATA))) {
            self.spare.insert(key, record);
        }
    }

    /// Returns what the memtables hold for a key: a record or its absence.
    fn newest(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.active.get(key).or_else(|| self.frozen.as_ref().and_then(|frozen| frozen.get(key)))
    }

    /// Returns what the layers below the active memtable know of a key: a record, its absence, or
    /// nothing.
    fn known_below(&mut self, key: &[u8]) -> Option<Option<Bytes>> {
        match self.frozen.as_ref().and_then(|frozen| frozen.get(key)) {
            Some(record) => Some(record.clone()),
            None => self.cache.lookup(key).or_else(|| self.spare.lookup(key)),
        }
    }

    /// Returns the stamp to pass to [`Memory::keep_from`].
    ///
    /// A caller that looks up records and then waits for others uses it to find the same records
    /// again.
    pub(crate) fn stamp(&self) -> Stamp {
        self.cache.stamp()
    }

    /// Keeps everything looked up since `oldest`, the earliest stamp of a waiting caller.
    pub(crate) fn keep_from(&mut self, oldest: Option<Stamp>) {
        self.cache.keep_from(oldest);
    }
}

fn found(known: Option<Option<Bytes>>) -> Found {
    match known {
        Some(Some(record)) => Found::Record(record),
        Some(None) => Found::Absent,
        None => Found::Unknown,
    }
}

impl View for Memory {
    fn record(&mut self, key: &[u8]) -> Found {
        found(match self.active.get(key) {
            Some(record) => Some(record.clone()),
            None => self.known_below(key),
        })
    }

    fn record_with_key(&mut self, key: &[u8]) -> (Found, Option<Key>) {
        match self.active.entry(key) {
            Some((key, Some(record))) => (Found::Record(record.clone()), Some(key.clone())),
            Some((_, None)) => (Found::Absent, None),
            None => (found(self.known_below(key)), None),
        }
    }

    fn holds(&mut self, key: &[u8]) -> Option<bool> {
        match self.newest(key) {
            Some(record) => Some(record.is_some()),
            None => self.cache.lookup(key).map(|record| record.is_some()).or_else(|| self.spare.holds(key)),
        }
    }

    fn key(&mut self, key: &[u8]) -> Key {
        let known = self.active.key(key).or_else(|| self.cache.key(key));
        known.map_or_else(|| self.buffers.key(key), Key::clone)
    }

    fn pooled(&mut self, record: &[u8]) -> Option<Bytes> {
        self.buffers.record(record)
    }

    fn keys_under(&mut self, prefix: &[u8]) -> Option<Vec<Key>> {
        let base = self.ranges.get(prefix)?;
        let mut keys: BTreeMap<&[u8], bool> = base.iter().map(|key| (&**key, true)).collect();
        for layer in self.frozen.as_deref().into_iter().chain([&self.active]) {
            keys.extend(layer.names_under(prefix).map(|(key, there)| (&**key, there)));
        }
        Some(keys.into_iter().filter(|&(_, there)| there).map(|(key, _)| key.into()).collect())
    }

    fn weights(&mut self, from: &[u8], to: &[u8], room: Room) -> Result<Vec<(Key, u32)>, Stuck> {
        self.weights.merge([Some(&self.active), self.frozen.as_deref()], from, to, room)
    }

    fn has_weights(&self, from: &[u8]) -> bool {
        self.weights.has(from)
    }

    fn lacks(&self, key: &[u8]) -> bool {
        self.weights.lacks(key) && !matches!(self.newest(key), Some(Some(_)))
    }

    fn newer(&self, prefix: &[u8]) -> BTreeMap<Key, bool> {
        let layers = self.frozen.as_deref().into_iter().chain([&self.active]);
        layers
            .flat_map(|layer| layer.names_under(prefix))
            .map(|(key, there)| (key[prefix.len()..].into(), there))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        text.as_bytes().into()
    }

    fn change(existed: bool, after: Option<&'static str>) -> Change {
        Change { existed, after: after.map(|text| Bytes::from_static(text.as_bytes())) }
    }

    fn install(memory: &mut Memory, changes: &[(&str, bool, Option<&'static str>)]) {
        memory.install(changes.iter().map(|&(k, existed, after)| (key(k), change(existed, after))));
    }

    fn found(memory: &mut Memory, text: &str) -> Found {
        memory.record(text.as_bytes())
    }

    fn record(text: &'static str) -> Found {
        Found::Record(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn record_created_and_deleted_between_checkpoints_is_not_written() {
        let mut memory = Memory::new(1 << 20, 1);
        for _ in 0..100 {
            install(&mut memory, &[("lock", false, Some("held"))]);
            install(&mut memory, &[("lock", true, None)]);
        }
        assert_eq!(memory.active_bytes(), 0);
        assert_eq!(found(&mut memory, "lock"), Found::Absent);
        assert!(memory.freeze().is_empty());
    }

    #[test]
    fn record_created_and_deleted_in_one_entry_takes_no_memory() {
        let mut memory = Memory::new(1 << 20, 1);
        install(&mut memory, &[("lock", false, None)]);
        assert_eq!((memory.active_bytes(), memory.freeze().len()), (0, 0));
    }

    #[test]
    fn deleting_a_record_of_the_base_writes_its_deletion() {
        let mut memory = Memory::new(1 << 20, 1);
        memory.fetched(key("a"), Some(Bytes::from_static(b"old")));
        install(&mut memory, &[("a", true, None)]);
        assert_eq!(found(&mut memory, "a"), Found::Absent);
        // Created and deleted again: the base still holds the first record.
        install(&mut memory, &[("a", false, Some("new"))]);
        install(&mut memory, &[("a", true, None)]);
        assert_eq!(memory.freeze().get(&key("a")), Some(&None));
    }

    #[test]
    fn deleting_a_record_of_the_frozen_memtable_writes_its_deletion() {
        let mut memory = Memory::new(1 << 20, 1);
        install(&mut memory, &[("a", false, Some("1"))]);
        memory.freeze();
        install(&mut memory, &[("a", true, None)]);
        assert_eq!(found(&mut memory, "a"), Found::Absent);
        memory.thaw(Generation(1));
        assert_eq!(found(&mut memory, "a"), Found::Absent);
        assert_eq!(memory.freeze().get(&key("a")), Some(&None));
    }

    #[test]
    fn newest_memory_layer_answers_first() {
        let mut memory = Memory::new(1 << 20, 1);
        assert_eq!(found(&mut memory, "a"), Found::Unknown);
        memory.fetched(key("a"), Some(Bytes::from_static(b"base")));
        assert_eq!(found(&mut memory, "a"), record("base"));
        install(&mut memory, &[("a", true, Some("frozen"))]);
        memory.freeze();
        assert_eq!(found(&mut memory, "a"), record("frozen"));
        install(&mut memory, &[("a", true, Some("active"))]);
        assert_eq!(found(&mut memory, "a"), record("active"));
        memory.thaw(Generation(1));
        assert_eq!(found(&mut memory, "a"), record("active"));
    }

    #[test]
    fn record_is_the_same_with_its_key_and_the_key_is_the_one_looked_up() {
        let mut memory = Memory::new(1 << 20, 1);
        install(&mut memory, &[("frozen", false, Some("1")), ("dead", false, Some("1"))]);
        memory.freeze();
        memory.fetched(key("cached"), Some(Bytes::from_static(b"2")));
        install(&mut memory, &[("active", false, Some("3")), ("dead", true, None)]);
        let expected = [("frozen", "1"), ("cached", "2"), ("active", "3")];
        for (text, data) in expected {
            assert_eq!(memory.record_with_key(text.as_bytes()).0, record(data), "{text}");
        }
        for text in ["frozen", "dead", "cached", "active", "unknown"] {
            let (found, stored) = memory.record_with_key(text.as_bytes());
            assert_eq!(found, memory.record(text.as_bytes()), "{text}");
            assert!(stored.is_none_or(|stored| *stored == *text.as_bytes()), "{text}");
        }
        assert!(memory.record_with_key(b"active").1.is_some(), "a set of a busy znode builds no key");
    }

    #[test]
    fn spare_cache_answers_with_the_newest_record_of_every_kind() {
        let mut memory = Memory::new(0, 1);
        memory.allow_spare(1 << 20);
        for text in ["n/a", "d/a"] {
            memory.fetched(key(text), Some(Bytes::from_static(b"old")));
            install(&mut memory, &[(text, true, Some("new"))]);
            memory.freeze();
            memory.thaw(Generation(1));
            assert_eq!(found(&mut memory, text), record("new"));
            install(&mut memory, &[(text, true, None)]);
            memory.freeze();
            memory.thaw(Generation(2));
            assert_eq!((found(&mut memory, text), memory.holds(text.as_bytes())), (Found::Absent, Some(false)));
        }
    }

    #[test]
    fn failed_checkpoint_leaves_the_newest_record_in_the_spare_cache() {
        let mut memory = Memory::new(0, 1);
        memory.allow_spare(1 << 20);
        memory.fetched(key("n/a"), Some(Bytes::from_static(b"base")));
        install(&mut memory, &[("n/a", true, Some("frozen")), ("n/b", false, Some("frozen"))]);
        drop(memory.freeze());
        install(&mut memory, &[("n/a", true, Some("newest")), ("n/b", true, None)]);
        memory.unfreeze();
        drop(memory.freeze());
        memory.thaw(Generation(1));
        assert_eq!(found(&mut memory, "n/a"), record("newest"));
        assert_eq!(found(&mut memory, "n/b"), Found::Absent);
    }

    #[test]
    fn record_deleted_after_a_failed_checkpoint_is_not_written() {
        let mut memory = Memory::new(1 << 20, 1);
        install(&mut memory, &[("a", false, Some("1")), ("b", false, Some("1"))]);
        drop(memory.freeze());
        install(&mut memory, &[("a", true, None), ("b", true, Some("2")), ("c", false, Some("1"))]);
        memory.unfreeze();
        assert_eq!(found(&mut memory, "a"), Found::Absent);
        assert_eq!(found(&mut memory, "b"), record("2"));
        install(&mut memory, &[("c", true, None)]);
        let bytes = memory.active_bytes();
        let written = memory.freeze();
        assert_eq!(written.len(), 1, "{written:?}");
        assert_eq!(bytes, written.bytes());
    }

    #[test]
    fn record_recreated_over_a_failed_delete_is_deleted_from_the_base() {
        let mut memory = Memory::new(1 << 20, 1);
        memory.fetched(key("a"), Some(Bytes::from_static(b"base")));
        install(&mut memory, &[("a", true, None)]);
        drop(memory.freeze());
        install(&mut memory, &[("a", false, Some("again"))]);
        memory.unfreeze();
        install(&mut memory, &[("a", true, None)]);
        assert_eq!(memory.freeze().get(b"a"), Some(&None), "the base has it still");
    }

    #[test]
    fn record_recreated_over_a_failed_delete_clears_its_cached_absence() {
        let mut memory = Memory::new(1 << 20, 1);
        memory.fetched(key("a"), Some(Bytes::from_static(b"base")));
        install(&mut memory, &[("a", true, None)]);
        drop(memory.freeze());
        install(&mut memory, &[("a", false, Some("again"))]);
        install(&mut memory, &[("a", true, None)]);
        memory.unfreeze();
        install(&mut memory, &[("a", false, Some("third"))]);
        drop(memory.freeze());
        memory.thaw(Generation(1));
        assert_eq!(found(&mut memory, "a"), Found::Unknown, "the base is to be asked");
    }

    #[test]
    fn keys_under_a_prefix_merge_the_base_with_memory() {
        let mut memory = Memory::new(1 << 20, 1);
        assert_eq!(memory.keys_under(b"p"), None);
        memory.fetched_keys(key("p"), vec![key("p1"), key("p2"), key("p3")], Generation(0));
        install(&mut memory, &[("p1", true, None), ("p4", false, Some(""))]);
        memory.freeze();
        install(&mut memory, &[("p2", true, None), ("p5", false, Some("")), ("q", false, Some(""))]);
        assert_eq!(memory.keys_under(b"p"), Some(vec![key("p3"), key("p4"), key("p5")]));
        let newer = memory.newer(b"p");
        assert_eq!(newer.get(&b"1"[..]), Some(&false));
        assert_eq!(newer.get(&b"5"[..]), Some(&true));
        memory.thaw(Generation(1));
        assert_eq!(memory.keys_under(b"p"), None, "another generation must be asked again");
    }

    fn first(memory: &mut Memory, from: &str) -> (String, Option<String>) {
        let first = memory.first_keys(from.as_bytes()).unwrap();
        let text = |key: &Key| String::from_utf8(key.to_vec()).unwrap();
        (first.keys.iter().map(text).collect::<Vec<_>>().join(" "), first.next.as_ref().map(text))
    }

    #[test]
    fn first_keys_end_with_the_last_key_that_the_base_answered() {
        let mut memory = Memory::new(1 << 20, 1);
        install(&mut memory, &[("p1", true, None), ("p4", false, Some("")), ("q", false, Some(""))]);
        memory.freeze();
        install(&mut memory, &[("p2", true, None), ("p5", false, Some("")), ("p9", false, Some(""))]);
        assert_eq!(memory.first_keys(b"p"), None);
        let of_base = || vec![key("p1"), key("p2"), key("p3"), key("p6")];
        memory.fetched_first_keys(key("p"), of_base(), true, Generation(0));
        assert_eq!(first(&mut memory, "p"), ("p3 p4 p5 p6".into(), Some("p6\0".into())));
        assert_eq!(memory.first_keys(b"p"), None, "they are used up");
        memory.fetched_first_keys(key("p"), of_base(), false, Generation(0));
        assert_eq!(first(&mut memory, "p"), ("p3 p4 p5 p6 p9".into(), None));
        memory.fetched_first_keys(key("p4"), vec![key("p6")], false, Generation(0));
        assert_eq!(first(&mut memory, "p4"), ("p4 p5 p6 p9".into(), None));
        memory.fetched_first_keys(key("p"), of_base(), true, Generation(0));
        install(&mut memory, &[("p6", true, None)]);
        assert_eq!(first(&mut memory, "p"), ("p3 p4 p5".into(), Some("p6\0".into())), "the last one is dead");
        memory.thaw(Generation(1));
        memory.fetched_first_keys(key("p"), of_base(), false, Generation(0));
        assert_eq!(memory.first_keys(b"p"), None, "another generation must be asked again");
    }

    #[test]
    fn first_keys_are_bounded_in_number_and_bytes() {
        let mut memory = Memory::new(1 << 20, 1);
        let name = |number: usize| Key::from(format!("t{number:05}").as_bytes());
        memory.install((0..200).map(|number| (name(number), change(false, Some("")))));
        memory.fetched_first_keys(key("t"), Vec::new(), false, Generation(0));
        let some = memory.first_keys(b"t").unwrap();
        assert_eq!((some.keys.len(), some.next.as_deref()), (FIRST_KEYS_MAX, Some(&b"t00063\0"[..])));
        let long = |number: usize| Key::from(format!("t1{number:030000}").as_bytes());
        memory.install((0..9).map(|number| (long(number), change(false, Some("")))));
        memory.fetched_first_keys(key("t1"), Vec::new(), false, Generation(0));
        assert_eq!(memory.first_keys(b"t1").unwrap().keys.len(), 3);
    }
}
