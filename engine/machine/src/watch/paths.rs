//! The watched paths, each stored once and named by a small id.
//!
//! A hash table of ids (linear probing, backward-shift deletion) over chunks of entries. The
//! standard map would store every path twice, for the way back from id to text, and doubles its
//! memory at once. Chunks grow as needed.

use super::watchers::Watchers;
use crate::budget::allocated;
use crate::seam::ids::ConnId;
use std::{hash::Hasher, mem::size_of};

/// Names a watched path while it is watched; later it may name another path.
pub(super) type PathId = u32;

#[derive(Debug)]
pub(super) struct Paths {
    seed: (u64, u64),
    len: u32,
    /// Grows by half; doubling would leave more slots vacant.
    slots: Vec<Slot>,
    /// Each chunk has capacity `CHUNK` and is full before the next one begins.
    chunks: Vec<Vec<Entry>>,
    first_free: PathId,
    text_bytes: usize,
}

/// Invariant: probing from a slot's hash reaches it without passing a vacant slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    id: PathId,
}

#[derive(Debug)]
enum Entry {
    Used { text: Box<str>, watchers: Watchers },
    Free { next: PathId },
}

const NONE: PathId = PathId::MAX;
const VACANT: Slot = Slot { hash: 0, id: NONE };
/// Bytes per watched path beside its text: entry, slots, listed id.
pub(super) const PATH_BYTES: usize = size_of::<Entry>() + 2 * size_of::<Slot>() + 2 * size_of::<PathId>();
const CHUNK: usize = 256;
const SLOTS_MIN: usize = 16;

// Smaller where pointers are shorter.
const _: () = assert!(size_of::<Entry>() <= 32);

impl Paths {
    pub(super) fn new(seed: u128) -> Self {
        Self {
            seed: ((seed >> 64) as u64, seed as u64),
            len: 0,
            slots: Vec::new(),
            chunks: Vec::new(),
            first_free: NONE,
            text_bytes: 0,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>() + self.chunks.len() * CHUNK * size_of::<Entry>() + self.text_bytes
    }

    /// Returns the bytes of the texts.
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    pub(super) fn find(&self, path: &str) -> Option<PathId> {
        let hash = self.hash(path);
        let mut at = self.home(hash)?;
        loop {
            let slot = self.slots[at];
            if slot.id == NONE {
                return None;
            }
            if slot.hash == hash && self.text(slot.id) == Some(path) {
                return Some(slot.id);
            }
            at = self.after(at);
        }
    }

    /// Adds an absent path, without watchers. The caller must add one.
    pub(super) fn insert(&mut self, path: &str) -> PathId {
        // At most 4/5 full: small, and a miss probes few slots.
        if (self.len as usize + 1) * 5 > self.slots.len() * 4 {
            self.resize((self.slots.len() * 3 / 2).max(SLOTS_MIN));
        }
        let id = self.place(Entry::Used { text: path.into(), watchers: Watchers::None });
        let hash = self.hash(path);
        self.occupy(Slot { hash, id });
        self.len += 1;
        self.text_bytes += allocated(path.len());
        id
    }

    /// Returns the watchers of a path; none when the id names no path.
    pub(super) fn watchers(&self, id: PathId) -> &Watchers {
        match self.entry(id) {
            Entry::Used { watchers, .. } => watchers,
            Entry::Free { .. } => &Watchers::None,
        }
    }

    /// Returns the watchers of a path that must be watched.
    pub(super) fn watchers_mut(&mut self, id: PathId) -> &mut Watchers {
        match self.watchers_if_any(id) {
            Some(watchers) => watchers,
            None => unreachable!("path {id} is not watched"),
        }
    }

    /// Returns the watchers of an id that may be stale.
    pub(super) fn watchers_if_any(&mut self, id: PathId) -> Option<&mut Watchers> {
        match self.chunks.get_mut(id as usize / CHUNK)?.get_mut(id as usize % CHUNK)? {
            Entry::Used { watchers, .. } => Some(watchers),
            Entry::Free { .. } => None,
        }
    }

    /// Returns whether `conn` watches the path that the id names now.
    pub(super) fn is_watched_by(&self, id: PathId, conn: ConnId) -> bool {
        self.watchers(id).kinds(conn).len() > 0
    }

    /// Removes a path that has no watchers left.
    pub(super) fn remove_if_unwatched(&mut self, id: PathId) {
        let Entry::Used { text, watchers } = self.entry(id) else { return };
        if !watchers.is_empty() {
            return;
        }
        let (hash, bytes) = (self.hash(text), allocated(text.len()));
        self.vacate(hash, id);
        self.text_bytes -= bytes;
        self.len -= 1;
        let next = self.first_free;
        self.chunks[id as usize / CHUNK][id as usize % CHUNK] = Entry::Free { next };
        self.first_free = id;
        if self.len == 0 {
            // With no id in use, the chunks can be freed.
            self.chunks = Vec::new();
            self.first_free = NONE;
            self.slots = Vec::new();
        } else if self.slots.len() > SLOTS_MIN && (self.len as usize) * 8 < self.slots.len() {
            self.resize(self.slots.len() / 2);
        }
    }

    fn entry(&self, id: PathId) -> &Entry {
        const GONE: &Entry = &Entry::Free { next: NONE };
        // A stale id may lie beyond the chunks, once they were freed.
        self.chunks.get(id as usize / CHUNK).and_then(|chunk| chunk.get(id as usize % CHUNK)).unwrap_or(GONE)
    }

    /// Returns a bound above every id in use.
    pub(super) fn end(&self) -> PathId {
        (self.chunks.len() * CHUNK) as PathId
    }

    /// Returns the path that the id names now; `None` for a free id.
    pub(super) fn text(&self, id: PathId) -> Option<&str> {
        match self.entry(id) {
            Entry::Used { text, .. } => Some(text),
            Entry::Free { .. } => None,
        }
    }

    fn place(&mut self, entry: Entry) -> PathId {
        if self.first_free != NONE
            && let Entry::Free { next } = *self.entry(self.first_free)
        {
            let id = self.first_free;
            self.first_free = next;
            self.chunks[id as usize / CHUNK][id as usize % CHUNK] = entry;
            return id;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let last = self.chunks.len() - 1;
        self.chunks[last].push(entry);
        (last * CHUNK + self.chunks[last].len() - 1) as PathId
    }

    /// SipHash with a secret seed: clients choose the paths, but cannot choose colliding ones.
    fn hash(&self, path: &str) -> u32 {
        #[expect(deprecated, reason = "its successor in the standard library takes no seed")]
        let mut hasher = std::hash::SipHasher::new_with_keys(self.seed.0, self.seed.1);
        hasher.write(path.as_bytes());
        hasher.finish() as u32
    }

    /// Returns the slot where the probe for a hash begins; `None` without slots.
    fn home(&self, hash: u32) -> Option<usize> {
        // Scales the hash to the table, which has fewer than 2^32 slots.
        if self.slots.is_empty() { None } else { Some(((u64::from(hash) * self.slots.len() as u64) >> 32) as usize) }
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Returns the slots from one position to another, wrapping around.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }

    fn occupy(&mut self, slot: Slot) {
        let Some(mut at) = self.home(slot.hash) else { return };
        while self.slots[at].id != NONE {
            at = self.after(at);
        }
        self.slots[at] = slot;
    }

    fn vacate(&mut self, hash: u32, id: PathId) {
        let Some(mut hole) = self.home(hash) else { return };
        while self.slots[hole].id != id {
            hole = self.after(hole);
        }
        // Shift back the entries displaced past the hole, so that no probe stops there early.
        let mut at = self.after(hole);
        while self.slots[at].id != NONE {
            let home = self.home(self.slots[at].hash).unwrap_or_default();
            if self.distance(home, at) >= self.distance(hole, at) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.slots[hole] = VACANT;
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![VACANT; slots]);
        for slot in old {
            if slot.id != NONE {
                self.occupy(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{WatchKind, watchers::KindSet};
    use std::collections::BTreeMap;

    #[test]
    fn path_is_found_until_it_is_removed_and_not_after() {
        let mut paths = Paths::new(7);
        let mut expected: BTreeMap<String, PathId> = BTreeMap::new();
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let path = format!("/p{}", (state >> 33) % 700);
            if let Some(id) = expected.remove(&path) {
                assert_eq!(paths.find(&path), Some(id));
                paths.watchers_mut(id).remove(ConnId(1), KindSet::ALL);
                paths.remove_if_unwatched(id);
            } else {
                assert_eq!(paths.find(&path), None);
                let id = paths.insert(&path);
                paths.watchers_mut(id).insert(ConnId(1), WatchKind::Data.into());
                expected.insert(path, id);
            }
            assert_eq!(paths.len() as usize, expected.len());
        }
        for (path, id) in &expected {
            assert_eq!(paths.find(path), Some(*id));
        }
    }

    #[test]
    fn emptied_path_table_frees_its_memory() {
        let mut paths = Paths::new(7);
        let ids: Vec<_> = (0..1000).map(|n| paths.insert(&format!("/{n}"))).collect();
        assert!(paths.bytes() > 32_000);
        ids.into_iter().for_each(|id| paths.remove_if_unwatched(id));
        assert_eq!(paths.bytes(), 0);
    }
}
