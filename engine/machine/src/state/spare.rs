//! A second record cache, in memory that is reserved for clients and links and not in use.
//!
//! The cache copies records into segments, so a record needs no allocation of its own. An index with
//! slots of 8 bytes finds them. The server may need the memory for a client at any time: the cache
//! then drops whole segments, the oldest first. The slots of their records stay in the index for a
//! while. They name a segment that is gone, so no look-up finds them.
//!
//! The cache fills its segments in turn. When it needs room, it empties the oldest segment: each
//! record that was read since its last move goes into a new segment, and the rest is dropped. So a
//! walk that reads each record once hardly evicts records that are read repeatedly: at most 1/16 of
//! them, as long as they take less than half of the cache.

use crate::record::key::KeyHash;
use bytes::Bytes;
use std::collections::VecDeque;
use std::hash::BuildHasher;

/// Bytes that a segment takes, with what the allocator adds to it.
const SEGMENT: usize = 256 << 10;
/// Bytes of records in a segment.
const SEGMENT_ROOM: usize = SEGMENT - 64;
/// Minimum free bytes in a new segment after records were moved into it.
const NEW_MIN: usize = SEGMENT_ROOM / 4;
/// Maximum number of old segments that are emptied for these bytes. It bounds the pause.
const EMPTIED_MAX: usize = 4;
/// Maximum length of a record with its key, in bytes. Larger ones are read from the base.
const RECORD_MAX: usize = 8 << 10;
/// Bytes in front of each record: the length of its key, whether it was read, and its length.
const HEADER: usize = 8;
/// Offset in the header of the byte that tells whether the record was read since its last move.
const READ: usize = 2;
/// Records begin at multiples of this.
const ALIGN: usize = 8;
/// A length that stands for a record that does not exist.
const ABSENT: u32 = u32::MAX;
/// With less memory the cache keeps nothing: one segment is filled while another is emptied.
const BYTES_MIN: usize = 2 * SEGMENT;
/// Number of segments that the index can tell apart, 4 TiB of records. Then the cache begins anew.
const SEGMENTS_MAX: Segment = 1 << 24;
/// The index keeps 24 bits of a key's hash.
const TAG_MASK: u32 = 0xff_ffff;
/// The index consists of this many tables, so that growing one is short.
const SHARDS: usize = 256;

/// A bounded cache of records by key, absence included.
#[derive(Debug)]
pub(super) struct SpareCache {
    hash: KeyHash,
    shards: Vec<Shard>,
    /// Oldest first; the last one is being filled.
    segments: VecDeque<Vec<u8>>,
    /// Number of the oldest segment.
    first: Segment,
    bytes_max: usize,
    index_bytes: usize,
}

/// A segment's number, below [`SEGMENTS_MAX`]. Numbers are not reused, so a slot of a dropped segment
/// names no record.
type Segment = u32;

/// Place of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    segment: Segment,
    at: usize,
}

impl SpareCache {
    /// Creates a cache that keeps nothing until it is allowed memory.
    pub(super) fn new(hash: KeyHash) -> Self {
        Self { hash, shards: Vec::new(), segments: VecDeque::new(), first: 0, bytes_max: 0, index_bytes: 0 }
    }

    /// Returns bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT + self.index_bytes
    }

    /// Recomputes [`SpareCache::bytes`].
    pub(super) fn counted_bytes(&self) -> usize {
        let segments: usize = self.segments.iter().map(|segment| segment.capacity() + SEGMENT - SEGMENT_ROOM).sum();
        segments + self.shards.iter().map(Shard::bytes).sum::<usize>()
    }

    /// Changes the bound, and drops the oldest segments above it.
    pub(super) fn allow(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        while self.bytes() > self.bytes_max && self.take_oldest().is_some() {}
    }

    /// Lowers the bound by these bytes until the next [`SpareCache::allow`].
    pub(super) fn allow_less(&mut self, bytes: usize) {
        self.allow(self.bytes_max.saturating_sub(bytes));
    }

    /// Returns the record or its absence; `None` if unknown.
    pub(super) fn lookup(&mut self, key: &[u8]) -> Option<Option<Bytes>> {
        self.read(key).map(|record| record.map(Bytes::copy_from_slice))
    }

    /// Returns whether the record exists; `None` if unknown.
    pub(super) fn holds(&mut self, key: &[u8]) -> Option<bool> {
        self.read(key).map(|record| record.is_some())
    }

    /// Keeps a record, or its absence, in place of what is known of the key.
    pub(super) fn insert(&mut self, key: &[u8], record: Option<&[u8]>) {
        if self.bytes_max < BYTES_MIN && self.segments.is_empty() {
            return;
        }
        let hash = self.hash.hash_one(key);
        let fits = taken(key, record) <= RECORD_MAX && self.bytes_max >= BYTES_MIN;
        if let Some(place) = self.find(hash, key) {
            if fits && self.overwrite(place, key, record) {
                return;
            }
            self.unlink(hash, place);
        }
        if fits {
            self.append(hash, key, record);
            // The tables of the index double at about the same time, and a segment holds thousands of
            // records.
            self.allow(self.bytes_max);
        }
    }

    /// Finds a record and marks it as read.
    fn read(&mut self, key: &[u8]) -> Option<Option<&[u8]>> {
        if self.segments.is_empty() {
            return None;
        }
        let place = self.find(self.hash.hash_one(key), key)?;
        let segment = self.segment_mut(place.segment)?;
        *segment.get_mut(place.at + READ)? = 1;
        parts(segment, place.at).map(|(_, record)| record)
    }

    /// Writes over a record of the same length. Returns false if its length differs.
    fn overwrite(&mut self, place: Place, key: &[u8], record: Option<&[u8]>) -> bool {
        let Some(segment) = self.segment_mut(place.segment) else { return false };
        let Some((_, old)) = parts(segment, place.at) else { return false };
        if old.map(<[u8]>::len) != record.map(<[u8]>::len) {
            return false;
        }
        let (from, record) = (place.at + HEADER + key.len(), record.unwrap_or_default());
        segment[from..from + record.len()].copy_from_slice(record);
        true
    }

    fn append(&mut self, hash: u64, key: &[u8], record: Option<&[u8]>) {
        let bytes = taken(key, record);
        if self.segments.back().is_none_or(|segment| segment.len() + bytes > SEGMENT_ROOM) {
            self.open_segment();
        }
        let number = self.first + self.segments.len().saturating_sub(1) as Segment;
        let Some(segment) = self.segments.back_mut() else { return };
        let at = segment.len();
        let length = record.map_or(ABSENT, |record| record.len() as u32);
        segment.extend_from_slice(&(key.len() as u16).to_le_bytes());
        segment.extend_from_slice(&[0, 0]);
        segment.extend_from_slice(&length.to_le_bytes());
        segment.extend_from_slice(key);
        segment.extend_from_slice(record.unwrap_or_default());
        segment.resize(at + bytes, 0);
        self.link(hash, Place { segment: number, at });
    }

    /// Begins a segment with room for new records, and drops old records if memory is short.
    fn open_segment(&mut self) {
        if self.first + self.segments.len() as Segment + EMPTIED_MAX as Segment > SEGMENTS_MAX {
            self.clear();
        }
        for emptied in 1..=EMPTIED_MAX {
            let oldest = if self.bytes() + SEGMENT > self.bytes_max { self.take_oldest() } else { None };
            // The index may have grown.
            while self.bytes() + SEGMENT > self.bytes_max && self.take_oldest().is_some() {}
            self.segments.push_back(Vec::with_capacity(SEGMENT_ROOM));
            let Some((number, oldest)) = oldest else { return };
            let moved_max = if emptied < EMPTIED_MAX { SEGMENT_ROOM } else { SEGMENT_ROOM - NEW_MIN };
            if SEGMENT_ROOM - self.move_read(number, &oldest, moved_max) >= NEW_MIN {
                return;
            }
        }
    }

    /// Moves the records that were read into the newest segment. Returns their bytes, at most
    /// `bytes_max`.
    fn move_read(&mut self, number: Segment, oldest: &[u8], bytes_max: usize) -> usize {
        let (mut at, mut moved) = (0, 0);
        while let Some((key, record)) = parts(oldest, at) {
            let bytes = taken(key, record);
            if oldest[at + READ] != 0 {
                if moved + bytes > bytes_max {
                    return moved;
                }
                let hash = self.hash.hash_one(key);
                // A record without a slot was replaced.
                if self.unlink(hash, Place { segment: number, at }) {
                    self.append(hash, key, record);
                    moved += bytes;
                }
            }
            at += bytes;
        }
        moved
    }

    /// Takes the oldest segment. Slots of its records stay in the index until their table is full.
    fn take_oldest(&mut self) -> Option<(Segment, Vec<u8>)> {
        let taken = (self.first, self.segments.pop_front()?);
        self.first += 1;
        if self.segments.is_empty() {
            self.clear();
        }
        Some(taken)
    }

    fn clear(&mut self) {
        (self.shards, self.index_bytes) = (Vec::new(), 0);
        (self.segments, self.first) = (VecDeque::new(), 0);
    }

    fn segment_mut(&mut self, number: Segment) -> Option<&mut Vec<u8>> {
        self.segments.get_mut(number.checked_sub(self.first)? as usize)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<Place> {
        let is_key = |place: Place| {
            let position = place.segment.checked_sub(self.first);
            let segment = position.and_then(|position| self.segments.get(position as usize));
            segment.and_then(|segment| parts(segment, place.at)).is_some_and(|(found, _)| found == key)
        };
        self.shards.get(shard_of(hash))?.find(tag_of(hash), is_key)
    }

    fn link(&mut self, hash: u64, place: Place) {
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, Shard::default);
            self.index_bytes = self.shards.iter().map(Shard::bytes).sum();
        }
        if let Some(shard) = self.shards.get_mut(shard_of(hash)) {
            let before = shard.bytes();
            shard.insert(Slot::new(tag_of(hash), place), self.first);
            self.index_bytes = self.index_bytes + shard.bytes() - before;
        }
    }

    /// Removes a record from the index. Returns false if the index does not name that place.
    fn unlink(&mut self, hash: u64, place: Place) -> bool {
        self.shards.get_mut(shard_of(hash)).is_some_and(|shard| shard.remove(Slot::new(tag_of(hash), place)))
    }
}

/// Returns the key and the record at a place of a segment.
fn parts(segment: &[u8], at: usize) -> Option<(&[u8], Option<&[u8]>)> {
    let header = segment.get(at..at + HEADER)?;
    let key_bytes = usize::from(u16::from_le_bytes([header[0], header[1]]));
    let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let (key, rest) = segment[at + HEADER..].split_at_checked(key_bytes)?;
    let record = if length == ABSENT { None } else { Some(rest.get(..length as usize)?) };
    Some((key, record))
}

/// Returns the bytes that a record takes in a segment.
fn taken(key: &[u8], record: Option<&[u8]>) -> usize {
    (HEADER + key.len() + record.map_or(0, <[u8]>::len)).next_multiple_of(ALIGN)
}

fn shard_of(hash: u64) -> usize {
    (hash >> 56) as usize
}

fn tag_of(hash: u64) -> u32 {
    (hash >> 24) as u32 & TAG_MASK
}

/// One place in the index, packed: 24 bits of the key's hash, 24 bits of the segment's number, and 16
/// bits of the offset in units of [`ALIGN`], plus one. An empty slot is 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Slot(u64);

impl Slot {
    const EMPTY: Self = Self(0);

    fn new(tag: u32, place: Place) -> Self {
        let offset = (place.at / ALIGN + 1) as u64;
        Self(u64::from(tag) << 40 | u64::from(place.segment) << 16 | offset)
    }

    fn tag(self) -> u32 {
        (self.0 >> 40) as u32
    }

    fn place(self) -> Place {
        Place { segment: (self.0 >> 16) as u32 & (SEGMENTS_MAX - 1), at: ((self.0 & 0xffff) as usize - 1) * ALIGN }
    }
}

/// A part of the index: a table with linear probing, at most three quarters full.
#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Slot>,
    count: usize,
}

impl Shard {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.slots.capacity() * size_of::<Slot>()
    }

    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    fn find(&self, tag: u32, is_key: impl Fn(Place) -> bool) -> Option<Place> {
        let mut at = tag as usize & self.mask();
        loop {
            let slot = *self.slots.get(at)?;
            if slot == Slot::EMPTY {
                return None;
            }
            if slot.tag() == tag && is_key(slot.place()) {
                return Some(slot.place());
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Inserts a slot. A full table first drops the slots of segments before `first`.
    fn insert(&mut self, slot: Slot, first: Segment) {
        if (self.count + 1) * 4 > self.slots.len() * 3 {
            self.rebuild(first);
        }
        self.put(slot);
        self.count += 1;
    }

    /// Drops the slots of segments before `first`, and fits the table to the others.
    fn rebuild(&mut self, first: Segment) {
        let is_live = |slot: &Slot| *slot != Slot::EMPTY && slot.place().segment >= first;
        self.count = self.slots.iter().filter(|slot| is_live(slot)).count();
        let mut length = self.slots.len().max(8);
        if self.count * 8 > length * 5 {
            length *= 2;
        }
        while length > 8 && self.count * 8 < length {
            length /= 2;
        }
        let old = std::mem::replace(&mut self.slots, vec![Slot::EMPTY; length]);
        old.into_iter().filter(is_live).for_each(|slot| self.put(slot));
    }

    fn put(&mut self, slot: Slot) {
        let mut at = slot.tag() as usize & self.mask();
        while self.slots[at] != Slot::EMPTY {
            at = (at + 1) & self.mask();
        }
        self.slots[at] = slot;
    }

    fn remove(&mut self, slot: Slot) -> bool {
        let mut at = slot.tag() as usize & self.mask();
        loop {
            match self.slots.get(at) {
                None | Some(&Slot::EMPTY) => return false,
                Some(found) if *found == slot => break,
                Some(_) => at = (at + 1) & self.mask(),
            }
        }
        // Closes the gap: each slot behind it must be reachable from its first place.
        let mut next = at;
        loop {
            next = (next + 1) & self.mask();
            let moved = self.slots[next];
            if moved == Slot::EMPTY {
                break;
            }
            let home = moved.tag() as usize & self.mask();
            if next.wrapping_sub(home) & self.mask() >= next.wrapping_sub(at) & self.mask() {
                self.slots[at] = moved;
                at = next;
            }
        }
        self.slots[at] = Slot::EMPTY;
        self.count -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn cache(bytes_max: usize) -> SpareCache {
        let mut cache = SpareCache::new(KeyHash::new(7));
        cache.allow(bytes_max);
        cache
    }

    fn key(number: u32) -> Vec<u8> {
        format!("n/some/parent\0znode-{number}").into_bytes()
    }

    fn is_held(cache: &mut SpareCache, number: u32) -> bool {
        cache.lookup(&key(number)).is_some()
    }

    /// Compares lookups with a map that holds everything.
    #[test]
    fn spare_cache_answers_the_newest_record_or_nothing() {
        let mut random = 1u64;
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut cache, mut model) = (cache(4 * SEGMENT), HashMap::<Vec<u8>, Option<Vec<u8>>>::new());
        let mut hits = 0;
        for step in 0..200_000u64 {
            let key = key(next(6000) as u32);
            match next(10) {
                0..5 => {
                    if let Some(found) = cache.lookup(&key) {
                        hits += 1;
                        assert_eq!(found.as_deref(), model[&key].as_deref());
                    }
                }
                5 => {
                    if let Some(exists) = cache.holds(&key) {
                        assert_eq!(exists, model[&key].is_some());
                    }
                }
                6 => {
                    cache.insert(&key, None);
                    model.insert(key, None);
                }
                _ => {
                    let record = vec![step as u8; [100, 100, 100, 0, 3000, 9000][next(6) as usize]];
                    cache.insert(&key, Some(&record));
                    model.insert(key, Some(record));
                }
            }
            assert!(cache.bytes() <= 4 * SEGMENT, "{}", cache.bytes());
            if step % 1000 == 0 {
                assert_eq!(cache.bytes(), cache.counted_bytes());
                cache.allow([4 * SEGMENT, 2 * SEGMENT, 0][next(3) as usize]);
                assert_eq!(cache.bytes(), cache.counted_bytes());
                cache.allow(4 * SEGMENT);
            }
        }
        assert!(hits > 5000, "{hits}");
    }

    #[test]
    fn walk_through_all_records_evicts_none_that_is_read_repeatedly() {
        let mut cache = cache(8 * SEGMENT);
        let hot = 0..2000;
        let record = [5; 100];
        for number in hot.clone().chain(10_000..100_000) {
            cache.insert(&key(number), Some(&record));
            is_held(&mut cache, number % 2000);
        }
        let held = hot.filter(|&number| is_held(&mut cache, number)).count();
        assert!(held == 2000, "{held} of 2000");
    }

    /// Hot records that fill four segments in a row do not fit into the segments that replace these.
    #[test]
    fn walk_evicts_at_most_a_sixteenth_of_the_hot_records_and_later_none() {
        let (mut cache, record, hot) = (cache(16 * SEGMENT), [5; 100], 0..16_000);
        assert!((8..9).contains(&(hot.len() * taken(&key(0), Some(&record)) / SEGMENT)), "half of the cache");
        let mut walked = 100_000;
        let mut walk = |cache: &mut SpareCache| {
            let mut evicted = 0;
            for number in std::iter::repeat_n(hot.clone(), 10).flatten() {
                if number % 3 == 0 {
                    walked += 1;
                    cache.insert(&key(walked), Some(&record));
                }
                if !is_held(cache, number) {
                    evicted += 1;
                    cache.insert(&key(number), Some(&record));
                    is_held(cache, number);
                }
            }
            evicted
        };
        for number in hot.clone() {
            cache.insert(&key(number), Some(&record));
            is_held(&mut cache, number);
        }
        let evicted = walk(&mut cache);
        assert!((1..=hot.len() / 16).contains(&evicted), "{evicted}");
        assert_eq!(walk(&mut cache), 0);
    }

    #[test]
    fn new_records_find_room_although_every_record_is_read() {
        let mut cache = cache(4 * SEGMENT);
        for number in 0..50_000 {
            cache.insert(&key(number), Some(&[5; 100]));
            assert!(is_held(&mut cache, number));
            assert!(cache.bytes() <= 4 * SEGMENT, "{}", cache.bytes());
        }
        assert_eq!(cache.bytes(), cache.counted_bytes());
    }

    #[test]
    fn spare_cache_gives_memory_back_at_once_and_keeps_the_newest_records() {
        let mut cache = cache(40 * SEGMENT);
        (0..100_000).for_each(|number| cache.insert(&key(number), Some(&[1; 100])));
        assert!(cache.bytes() > 38 * SEGMENT, "{}", cache.bytes());
        cache.allow(30 * SEGMENT);
        assert!((29 * SEGMENT..=30 * SEGMENT).contains(&cache.bytes()), "{}", cache.bytes());
        assert!(is_held(&mut cache, 99_999) && !is_held(&mut cache, 0));
        cache.allow(0);
        assert_eq!((cache.bytes(), cache.counted_bytes()), (0, 0));
        cache.insert(&key(1), Some(&[1]));
        assert!(!is_held(&mut cache, 1));
    }

    /// A record that the cache cannot keep must not leave its former one behind.
    #[test]
    fn record_too_large_for_the_cache_replaces_the_former_one_by_nothing() {
        let mut cache = cache(4 * SEGMENT);
        cache.insert(&key(1), Some(&[1; 100]));
        cache.insert(&key(1), Some(&[2; RECORD_MAX]));
        assert_eq!(cache.lookup(&key(1)), None);
    }

    #[test]
    fn cache_begins_anew_before_numbers_of_segments_repeat() {
        let mut cache = cache(4 * SEGMENT);
        cache.insert(&key(1), Some(&[1; 100]));
        cache.clear();
        cache.first = SEGMENTS_MAX - 2 * EMPTIED_MAX as Segment;
        (0..30_000).for_each(|number| cache.insert(&key(number), Some(&[1; 100])));
        assert!(cache.first < 100, "{}", cache.first);
        assert!(is_held(&mut cache, 29_999) && is_held(&mut cache, 29_000) && !is_held(&mut cache, 1));
    }

    /// Absent records are small, so the index takes as much memory as they do.
    #[test]
    fn index_stays_within_the_bound_and_shrinks_with_it() {
        let mut cache = cache(16 * SEGMENT);
        let fill = |cache: &mut SpareCache, from: u32| {
            for number in from..from + 300_000 {
                cache.insert(&key(number), None);
                assert!(cache.bytes() <= cache.bytes_max, "{}", cache.bytes());
            }
            assert_eq!(cache.bytes(), cache.counted_bytes());
            cache.index_bytes
        };
        let large = fill(&mut cache, 0);
        cache.allow(5 * SEGMENT);
        let small = fill(&mut cache, 300_000);
        assert!(small < large / 2, "{small} of {large}");
        assert!(is_held(&mut cache, 599_999) && is_held(&mut cache, 595_000));
    }

    /// Regression: the tables of the index double at about the same time. In a full cache that took up
    /// to 1 MiB beyond the bound, until the next segment began.
    #[test]
    fn index_that_doubles_within_a_segment_stays_within_the_bound() {
        for segments in 4..24 {
            let mut cache = cache(segments * SEGMENT);
            let mut most = 0;
            for number in 0..200_000u32 {
                cache.insert(&number.to_le_bytes(), None);
                most = most.max(cache.bytes());
            }
            assert!(most <= segments * SEGMENT, "{} bytes beyond {segments} segments", most - segments * SEGMENT);
            assert!(most > (segments - 2) * SEGMENT, "{most} bytes of {segments} segments");
            assert_eq!(cache.bytes(), cache.counted_bytes());
            assert_eq!(cache.lookup(&199_999u32.to_le_bytes()), Some(None));
        }
    }

    #[test]
    fn record_of_the_same_length_is_overwritten_in_place() {
        let mut cache = cache(4 * SEGMENT);
        (0..100_000).for_each(|number: u32| cache.insert(&key(1), Some(&number.to_le_bytes())));
        assert_eq!(cache.segments.len(), 1);
        assert_eq!(cache.lookup(&key(1)), Some(Some(Bytes::copy_from_slice(&99_999u32.to_le_bytes()))));
    }
}
