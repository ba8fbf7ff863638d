//! Counts the usage of a quota: at once for a small subtree, in steps for a large one.
//!
//! One entry has a [`Room`]: it bounds what the entry reads and holds in memory, however many
//! quotas it creates. A quota without room left begins uncounted, and the steps count all of it.

use super::attempt::{Attempt, Stop};
use super::quota::{shown_by, stats_of};
use crate::record::key::{self, Key};
use crate::record::znode::{Data, Usage, Znode};
use crate::seam::action::FetchWhat;
use crate::state::{Stuck, View};
use bytes::Bytes;
use std::collections::BTreeMap;
use zoolet_zab::{Epoch, Mutation, Zxid, mutation};

/// Znodes, and bytes of their keys, that one entry counts at most for all of its quotas.
///
/// The znode that passes the bytes is still counted. So every step makes progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Number of znodes.
    pub znodes: usize,
    /// Bytes of their keys.
    pub key_bytes: usize,
}

/// Room of each entry. Every server must have the same: it decides what an entry changes.
pub const COUNTED_AT_ONCE: Room = Room { znodes: 1000, key_bytes: 64 << 10 };

/// Subtrees that one entry begins to count at most.
///
/// A subtree takes at least this share of the room. Otherwise, a multi of many quotas could read a
/// range of deleted znodes for each of them.
const BEGUN_AT_ONCE: usize = 4;

impl Room {
    /// Returns whether nothing more may be counted.
    pub fn is_used_up(self) -> bool {
        self.znodes == 0 || self.key_bytes == 0
    }

    /// Takes the znode with this key, if there was room; returns whether there was.
    pub fn admit(&mut self, key: &[u8]) -> bool {
        if self.is_used_up() {
            return false;
        }
        (self.znodes, self.key_bytes) = (self.znodes - 1, self.key_bytes.saturating_sub(key.len()));
        true
    }

    /// Returns the znodes that one subtree takes at least.
    pub fn share(self) -> usize {
        self.znodes.div_ceil(BEGUN_AT_ONCE)
    }
}

/// A usage that owns its position.
pub(super) struct Counted {
    count: i64,
    bytes: i64,
    next: Key,
}

impl Counted {
    pub(super) fn usage(&self) -> Usage<'_> {
        Usage { count: self.count, bytes: self.bytes, next: &self.next }
    }

    fn add(&mut self, length: u32) {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(length.into());
    }
}

impl<V: View> Attempt<'_, V> {
    /// Counts a subtree whose usage is about to be shown, or the first part of a large one.
    pub(super) fn begin_usage(&mut self, subtree: &str) -> Result<Counted, Stop> {
        let mut counted = Counted { count: 0, bytes: 0, next: Key::default() };
        let Some(root) = self.load(subtree)? else { return Ok(counted) };
        let root = root.znode()?;
        counted.add(root.data.length());
        if root.num_children > 0 {
            let left = self.room.znodes.saturating_sub(self.view.counted_at_once().share());
            counted.next = key::children_prefix(subtree);
            self.count_on(subtree, &mut counted)?;
            self.room.znodes = self.room.znodes.min(left);
        }
        Ok(counted)
    }

    /// Counts the next part of a subtree; returns whether nothing is left to count.
    pub(super) fn count_usage(&mut self, subtree: &str) -> Result<bool, Stop> {
        let path = stats_of(subtree);
        if shown_by(&path).is_none() {
            return Ok(true);
        }
        let Some(loaded) = self.load(&path)? else { return Ok(true) };
        let mut znode = loaded.znode()?;
        let Data::Usage(usage) = znode.data else { return Ok(true) };
        if usage.is_complete() {
            return Ok(true);
        }
        let mut counted = Counted { count: usage.count, bytes: usage.bytes, next: usage.next.into() };
        if mutation::is_on(Mutation::QuotaCountedTwice) && epoch_of(znode.mzxid) < epoch_of(self.zxid) {
            counted.next = key::children_prefix(subtree);
            // The leader's further steps go on from the position.
            znode.mzxid = self.zxid;
        }
        self.count_on(subtree, &mut counted)?;
        self.put_usage(&path, &loaded, &znode, counted.usage());
        if counted.next.is_empty() {
            self.mark_counting(subtree, false);
        }
        Ok(counted.next.is_empty())
    }

    /// Counts the next znodes behind the position, as far as the entry has room.
    fn count_on(&mut self, subtree: &str, counted: &mut Counted) -> Result<(), Stop> {
        for from in [key::children_prefix(subtree), key::descendants_prefix(subtree)] {
            let to = key::end_of_prefix(&from).ok_or(Stop::Damaged("a prefix without an end"))?;
            if counted.next >= to {
                continue;
            }
            counted.next = counted.next.clone().max(from);
            if self.room.is_used_up() {
                return Ok(());
            }
            for (key, length) in self.lengths(&counted.next, &to)? {
                counted.add(length);
                self.room.admit(&key);
                if self.room.is_used_up() {
                    counted.next = key::after(&key);
                    return Ok(());
                }
            }
            counted.next = to;
        }
        counted.next = Key::default();
        Ok(())
    }

    /// Returns the znodes with keys in `from..to`, in order, with the length of their data.
    ///
    /// Returns at least as many as the entry has room for, or all.
    fn lengths(&mut self, from: &Key, to: &Key) -> Result<Vec<(Key, u32)>, Stop> {
        self.counts = true;
        let own = self.changes.iter().filter(|(key, _)| (from..to).contains(key));
        let own: Vec<(Key, Option<Bytes>)> = own.map(|(key, change)| (key.clone(), change.after.clone())).collect();
        // Each znode that this entry deleted may take the place of another one.
        let mut room = self.room;
        for (key, _) in own.iter().filter(|(_, after)| after.is_none()) {
            room = Room { znodes: room.znodes + 1, key_bytes: room.key_bytes + key.len() };
        }
        let found = match self.view.weights(from, to, room) {
            Ok(found) => found,
            Err(Stuck::Missing(missing)) => {
                self.missing.extend(missing);
                return Err(Stop::Missing);
            }
            Err(Stuck::Damaged(what)) => return Err(Stop::Damaged(what)),
        };
        for (key, _) in &found {
            room.admit(key);
        }
        let end = found.last().filter(|_| room.is_used_up()).map_or_else(|| to.clone(), |(last, _)| key::after(last));
        let mut lengths: BTreeMap<Key, u32> = found.into_iter().collect();
        for (key, after) in own.into_iter().filter(|(key, _)| *key < end) {
            match after {
                Some(record) => {
                    let znode = Znode::decode(&record);
                    let znode = znode.map_err(|_| Stop::Damaged("a znode's record does not decode"))?;
                    lengths.insert(key, znode.data.length());
                }
                None => drop(lengths.remove(&key)),
            }
        }
        Ok(lengths.into_iter().collect())
    }

    /// Requests what [`Attempt::begin_usage`] will read first.
    pub(super) fn foresee_begin(&mut self, subtree: &str) {
        // A missing record is noted; no other result matters yet.
        let _ = self.load(subtree);
        let share = self.view.counted_at_once().share();
        if self.room.znodes >= share {
            self.room.znodes -= share;
            // A second look finds the children in memory, and requests the descendants below them.
            let _ = self.foresee_weights(&key::children_prefix(subtree))
                || self.foresee_weights(&key::descendants_prefix(subtree));
        }
    }

    /// Requests what the next step of a count will read.
    pub(super) fn foresee_count(&mut self, subtree: &str) -> Result<(), Stop> {
        let Some(loaded) = self.load(&stats_of(subtree))? else { return Ok(()) };
        if let Data::Usage(usage) = loaded.znode()?.data
            && !usage.is_complete()
        {
            let ranges = [key::children_prefix(subtree), key::descendants_prefix(subtree)];
            let mut ends = ranges.iter().filter_map(|from| key::end_of_prefix(from));
            let to = ends.find(|to| *usage.next < **to);
            self.foresee_range(usage.next, to);
        }
        Ok(())
    }

    /// Requests the znodes under a prefix; returns whether they are not in memory.
    pub(super) fn foresee_weights(&mut self, prefix: &[u8]) -> bool {
        self.foresee_range(prefix, key::end_of_prefix(prefix))
    }

    fn foresee_range(&mut self, from: &[u8], to: Option<Key>) -> bool {
        let is_missing = !self.view.has_weights(from);
        if is_missing {
            self.missing.extend(to.map(|to| FetchWhat::Weights { from: from.into(), to }));
        }
        is_missing
    }

    /// Counts a usage that begins to be shown.
    pub(super) fn usage_begins(&mut self, path: &str, usage: Usage<'_>) {
        let Some(subtree) = shown_by(path) else { return };
        self.totals.quotas += 1;
        if !usage.is_complete() {
            self.mark_counting(subtree, true);
        }
    }

    /// Uncounts a usage whose znode is deleted.
    pub(super) fn usage_ends(&mut self, path: &str, usage: Usage<'_>) {
        let Some(subtree) = shown_by(path) else { return };
        self.totals.quotas = self.totals.quotas.saturating_sub(1);
        if !usage.is_complete() {
            self.mark_counting(subtree, false);
        }
    }

    fn mark_counting(&mut self, subtree: &str, is_counting: bool) {
        self.put_mark(key::counting(subtree), is_counting);
        let counting = self.totals.counting;
        self.totals.counting = if is_counting { counting + 1 } else { counting.saturating_sub(1) };
    }
}

/// Returns the epoch of an entry. Only the mutation `QuotaCountedTwice` needs it.
fn epoch_of(zxid: i64) -> Option<Epoch> {
    Zxid::from_bits(zxid as u64).map(Zxid::epoch)
}
