//! Quotas: limits on the znodes and bytes of a subtree, and their usage (surface 7.1).
//!
//! The limits of the subtree P are the data of `/zookeeper/quota/P/zookeeper_limits`. Its usage is
//! the data of `zookeeper_stats` beside them, as [`Data::Usage`]. The parents of these two znodes
//! form a trie, so a write looks up only the part of the trie above its path.
//!
//! The usage of a large subtree is counted in steps, in the order of keys. Each step is an entry.
//! [`Usage::next`] separates descendants already counted from the rest. A write changes the usage
//! only if its path is counted already, because the count will see its effect otherwise. So the
//! usage is exact when the count ends, through any writes and changes of leader.

use super::attempt::{Attempt, Loaded, Stop};
use super::needs::parent_of;
use crate::record::key::{self, Key};
use crate::record::znode::{Data, Usage, Znode};
use crate::seam::action::FetchWhat;
use crate::state::{Found, Stuck, View};
use crate::txn::{Op, Txn};
use bytes::Bytes;
use std::collections::BTreeMap;
use zoolet_model::{ErrorCode, Text};
use zoolet_zab::{Mutation, mutation};

/// Parent of all quotas.
const QUOTAS: &str = "/zookeeper/quota";
/// Name of the znode with a subtree's limits.
const LIMITS: &str = "/zookeeper_limits";
/// Name of the znode with a subtree's usage.
const STATS: &str = "/zookeeper_stats";

/// Znodes that one entry counts at most. A smaller subtree is counted when its quota is created.
///
/// Apply takes about 0.2 ms for them, besides their fetch.
pub const COUNTED_AT_ONCE: usize = 1000;

/// A write that passed a limit, or was refused because of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exceeded {
    /// Root of the subtree.
    pub subtree: Text,
    /// The limited quantity: `znodes` or `bytes`.
    pub what: &'static str,
    /// Usage that the write asked for.
    pub wanted: i64,
    /// The limit.
    pub limit: i64,
    /// Whether the write failed. Otherwise the limit is soft, or not enforced.
    pub is_refused: bool,
}

/// Changes of usage within an entry, and the limit that it passed first.
#[derive(Debug, Default)]
pub(super) struct Tally {
    changes: Vec<Changed>,
    pub(super) exceeded: Option<Exceeded>,
}

/// A change of one znode that no usage includes yet.
#[derive(Debug)]
struct Changed {
    path: Text,
    znodes: i64,
    bytes: i64,
}

/// One level of the trie: the quota of a subtree, as far as it exists.
struct Level {
    limits: Option<Loaded>,
    stats: Option<Loaded>,
    /// Whether a deeper level may exist.
    has_more: bool,
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

/// Returns the subtree whose usage this znode shows. `None` for any other znode.
///
/// The root has no usage, as in ZooKeeper. `/zookeeper` and its descendants have none because a
/// usage there would include itself.
pub(super) fn shown_by(path: &str) -> Option<&str> {
    let subtree = path.strip_prefix(QUOTAS)?.strip_suffix(STATS)?;
    (subtree.starts_with('/') && !is_exempt(subtree)).then_some(subtree)
}

/// Returns whether no quota counts this path.
fn is_exempt(path: &str) -> bool {
    path == "/" || path.strip_prefix("/zookeeper").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Yields `/a`, `/a/b` and `/a/b/c` for `/a/b/c`, and nothing for the root.
fn with_ancestors(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain((path != "/").then_some(path.len()));
    ends.map(|end| &path[..end])
}

impl<V: View> Attempt<'_, V> {
    /// Notes a change of one znode for the quotas above it.
    pub(super) fn tally(&mut self, path: &str, znodes: i64, bytes: i64) {
        if self.totals.quotas > 0 && (znodes, bytes) != (0, 0) && !is_exempt(path) {
            self.tally.changes.push(Changed { path: path.into(), znodes, bytes });
        }
    }

    /// Drops the noted changes of an entry that fails, and a limit that it only passed.
    pub(super) fn forget_tally(&mut self) {
        self.tally.changes.clear();
        self.tally.exceeded = self.tally.exceeded.take().filter(|exceeded| exceeded.is_refused);
    }

    /// Drops the noted deletions of a session's end or a reaping, under `QuotaForgetsEnded`.
    pub(super) fn forget_ended(&mut self) {
        if mutation::is_on(Mutation::QuotaForgetsEnded) {
            self.forget_tally();
        }
    }

    /// Adds all noted changes to the usage of each quota above them.
    ///
    /// Each operation calls this first, so that it sees the usage after the operations before it.
    /// Siblings are counted together: a session's end deletes thousands of them.
    pub(super) fn count_tally(&mut self) -> Result<(), Stop> {
        if self.tally.changes.is_empty() {
            return Ok(());
        }
        let changes = std::mem::take(&mut self.tally.changes);
        changes.chunk_by(|one, next| parent_of(&one.path) == parent_of(&next.path)).try_for_each(|siblings| {
            let Some(parent) = siblings.first().and_then(|first| parent_of(&first.path)) else { return Ok(()) };
            for subtree in with_ancestors(parent) {
                let Some(level) = self.level(subtree)? else { return Ok(()) };
                self.add_usage(subtree, &level, siblings)?;
                if !level.has_more {
                    return Ok(());
                }
            }
            for changed in siblings {
                if let Some(level) = self.level(&changed.path)? {
                    self.add_usage(&changed.path, &level, std::slice::from_ref(changed))?;
                }
            }
            Ok(())
        })
    }

    fn add_usage(&mut self, subtree: &str, level: &Level, changes: &[Changed]) -> Result<(), Stop> {
        let Some(loaded) = &level.stats else { return Ok(()) };
        let znode = loaded.znode()?;
        let Data::Usage(usage) = znode.data else { return Ok(()) };
        let is_counted = |path: &str| {
            // The root is counted first, and its key is not among those of its descendants.
            usage.is_complete()
                || path == subtree
                || mutation::is_on(Mutation::QuotaCountsAhead)
                || key::with_znode(path, |key| key < usage.next).unwrap_or(false)
        };
        let (mut count, mut bytes) = (usage.count, usage.bytes);
        for changed in changes.iter().filter(|changed| is_counted(&changed.path)) {
            count = count.saturating_add(changed.znodes);
            bytes = bytes.saturating_add(changed.bytes);
        }
        if (count, bytes) != (usage.count, usage.bytes) {
            self.put_usage(&stats_of(subtree), loaded, &znode, Usage { count, bytes, ..usage });
        }
        Ok(())
    }

    /// Stores a usage. Neither version nor times of its znode move, and no watch fires.
    fn put_usage(&mut self, path: &str, loaded: &Loaded, znode: &Znode<'_>, usage: Usage<'_>) {
        let changed = Znode { data: Data::Usage(usage), ..*znode };
        self.note_data_length(znode, &changed);
        self.replace(path, loaded, znode, &changed);
    }

    /// Fails with `QuotaExceeded` if a change of this znode would pass an enforced hard limit.
    ///
    /// The deepest subtree with limits decides. Limits that cannot be parsed, or longer than 1 KiB,
    /// limit nothing. Neither do limits without a usage, or while it is being counted.
    pub(super) fn check_quota(&mut self, path: &str, znodes: i64, bytes: i64) -> Result<(), Stop> {
        if self.totals.quotas == 0 || (znodes, bytes) == (0, 0) || is_exempt(path) {
            return Ok(());
        }
        let mut deepest = None;
        for subtree in with_ancestors(path) {
            let Some(Level { limits, stats, has_more }) = self.level(subtree)? else { break };
            if let Some(limits) = limits {
                deepest = Some((subtree, limits, stats));
            }
            if !has_more {
                break;
            }
        }
        let Some((subtree, limits, Some(stats))) = deepest else { return Ok(()) };
        let (limits, stats) = (limits.znode()?, stats.znode()?);
        let (Data::Inline(text), Data::Usage(usage)) = (limits.data, stats.data) else { return Ok(()) };
        let Some(limits) = Limits::parse(text).filter(|_| usage.is_complete()) else { return Ok(()) };
        let quantities = [("znodes", limits.znodes, usage.count, znodes), ("bytes", limits.bytes, usage.bytes, bytes)];
        for (what, limit, used, change) in quantities {
            let wanted = used.saturating_add(change);
            let Some((limit, is_hard)) = limit.effective().filter(|(limit, _)| change != 0 && wanted > *limit) else {
                continue;
            };
            let is_refused = is_hard && self.header.enforces_quotas;
            if is_refused || self.tally.exceeded.is_none() {
                self.tally.exceeded = Some(Exceeded { subtree: subtree.into(), what, wanted, limit, is_refused });
            }
            if is_refused {
                return Err(ErrorCode::QuotaExceeded.into());
            }
        }
        Ok(())
    }

    /// Looks up the quota of one subtree. `None` if neither it nor a deeper one exists.
    fn level(&mut self, subtree: &str) -> Result<Option<Level>, Stop> {
        let place = [QUOTAS, subtree].concat();
        let Some(loaded) = self.load(&place)? else { return Ok(None) };
        let children = loaded.znode()?.num_children;
        if children == 0 {
            return Ok(Some(Level { limits: None, stats: None, has_more: false }));
        }
        // Look up both before failing, so that one round of fetches brings both.
        let (limits, stats) = (self.load(&[&place, LIMITS].concat()), self.load(&[&place, STATS].concat()));
        let (limits, stats) = (limits?, stats?);
        let mut has_more = children > i32::from(limits.is_some()) + i32::from(stats.is_some());
        for own in [&limits, &stats].into_iter().flatten() {
            has_more |= own.znode()?.num_children > 0;
        }
        Ok(Some(Level { limits, stats, has_more }))
    }

    /// Counts a subtree whose usage is about to be shown, or the first part of a large one.
    pub(super) fn begin_usage(&mut self, subtree: &str) -> Result<Counted, Stop> {
        let mut counted = Counted { count: 0, bytes: 0, next: key::children_prefix(subtree) };
        match self.load(subtree)? {
            Some(root) => {
                counted.add(root.znode()?.data.length());
                self.count_on(subtree, &mut counted)?;
            }
            None => counted.next = Key::default(),
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
        let znode = loaded.znode()?;
        let Data::Usage(usage) = znode.data else { return Ok(true) };
        if usage.is_complete() {
            return Ok(true);
        }
        let mut counted = Counted { count: usage.count, bytes: usage.bytes, next: usage.next.into() };
        self.count_on(subtree, &mut counted)?;
        self.put_usage(&path, &loaded, &znode, counted.usage());
        if counted.next.is_empty() {
            self.mark_counting(subtree, false);
        }
        Ok(counted.next.is_empty())
    }

    /// Counts the next znodes behind the position, at most as many as one entry may count.
    fn count_on(&mut self, subtree: &str, counted: &mut Counted) -> Result<(), Stop> {
        let mut room = self.view.counted_at_once();
        for from in [key::children_prefix(subtree), key::descendants_prefix(subtree)] {
            let to = key::end_of_prefix(&from).ok_or(Stop::Damaged("a prefix without an end"))?;
            if counted.next >= to {
                continue;
            }
            counted.next = counted.next.clone().max(from);
            if room == 0 {
                return Ok(());
            }
            let found = self.lengths(&counted.next, &to, room)?;
            found.iter().take(room).for_each(|(_, length)| counted.add(*length));
            if let Some((last, _)) = found.get(room - 1) {
                counted.next = key::after(last);
                return Ok(());
            }
            counted.next = to;
            room -= found.len();
        }
        counted.next = Key::default();
        Ok(())
    }

    /// Returns the znodes with keys in `from..to`, in order, with the length of their data.
    ///
    /// Returns at least the first `max` of them, or all.
    fn lengths(&mut self, from: &Key, to: &Key, max: usize) -> Result<Vec<(Key, u32)>, Stop> {
        let own = self.changes.iter().filter(|(key, _)| (from..to).contains(key));
        let own: Vec<(Key, Option<Bytes>)> = own.map(|(key, change)| (key.clone(), change.after.clone())).collect();
        // Each znode that this entry deleted may take the place of another one.
        let max = max + own.iter().filter(|(_, after)| after.is_none()).count();
        let found = match self.view.weights(from, to, max) {
            Ok(found) => found,
            Err(Stuck::Missing(missing)) => {
                self.missing.extend(missing);
                return Err(Stop::Missing);
            }
            Err(Stuck::Damaged(what)) => return Err(Stop::Damaged(what)),
        };
        let end = found.last().filter(|_| found.len() >= max).map_or_else(|| to.clone(), |(last, _)| key::after(last));
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

fn stats_of(subtree: &str) -> String {
    [QUOTAS, subtree, STATS].concat()
}

/// Adds to `missing` the first record that an entry needs for its quotas and memory lacks.
///
/// Later entries usually find all of them in memory.
pub fn foreseen_quotas(txn: &Txn<'_>, view: &mut impl View, missing: &mut Vec<FetchWhat>) {
    let ops = match txn {
        Txn::Write { op, .. } => std::slice::from_ref(op),
        Txn::Multi { ops, .. } => ops.as_slice(),
        Txn::NoOp
        | Txn::CreateSession { .. }
        | Txn::CloseSession { .. }
        | Txn::RenewSession { .. }
        | Txn::UpgradeSession { .. }
        | Txn::Reap { .. }
        | Txn::CountUsage { .. }
        | Txn::Membership(_) => &[],
    };
    for op in ops {
        let (Op::Create { path, .. } | Op::Delete { path, .. } | Op::SetData { path, .. }) = *op else { continue };
        if is_exempt(path) || !path.starts_with('/') {
            continue;
        }
        for subtree in with_ancestors(path) {
            let place = [QUOTAS, subtree].concat();
            let Some(found) = key::with_znode(&place, |key| view.record(key)) else { break };
            let children = match found {
                Found::Record(record) => Znode::decode(&record).map_or(0, |znode| znode.num_children),
                Found::Absent => 0,
                Found::Unknown => {
                    missing.extend(key::znode(&place).map(FetchWhat::Record));
                    break;
                }
            };
            if children == 0 {
                break;
            }
            for name in [LIMITS, STATS] {
                let own = key::znode(&[&place, name].concat());
                missing.extend(own.filter(|key| view.holds(key).is_none()).map(FetchWhat::Record));
            }
        }
    }
}

/// Both limits on one quantity; -1 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limit {
    soft: i64,
    hard: i64,
}

impl Limit {
    /// Returns the limit that counts, and whether it is hard. A soft limit counts only alone.
    fn effective(self) -> Option<(i64, bool)> {
        if self.hard > -1 {
            return Some((self.hard, true));
        }
        (self.soft > -1).then_some((self.soft, false))
    }
}

/// The limits of a subtree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limits {
    znodes: Limit,
    bytes: Limit,
}

impl Limits {
    /// Parses limits as ZooKeeper does; `None` for text on which its parser fails.
    ///
    /// The text is a list of `key=value`, separated by runs of `,` or `;`. Further `=` and keys are
    /// ignored. An empty value is none.
    fn parse(text: &[u8]) -> Option<Self> {
        let none = Limit { soft: -1, hard: -1 };
        let mut limits = Self { znodes: none, bytes: none };
        let text = String::from_utf8_lossy(text);
        if text.is_empty() {
            return Some(limits);
        }
        // Java drops empty parts at the end, and a leading separator leaves an empty first part.
        let parts = text.trim_end_matches([',', ';']).split([',', ';']).enumerate();
        for (_, part) in parts.filter(|(at, part)| *at == 0 || !part.is_empty()) {
            let mut pair = part.trim_end_matches('=').split('=');
            let (key, value) = (pair.next()?, pair.next()?);
            let value = if value.is_empty() { -1 } else { value.parse().ok()? };
            match key {
                "count" => limits.znodes.soft = value,
                "countHardLimit" => limits.znodes.hard = value,
                "bytes" => limits.bytes.soft = value,
                "byteHardLimit" => limits.bytes.hard = value,
                _ => {}
            }
        }
        Some(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed_as_zookeeper_parses_them() {
        let limits = |text: &str| {
            Limits::parse(text.as_bytes())
                .map(|Limits { znodes, bytes }| (znodes.soft, znodes.hard, bytes.soft, bytes.hard))
        };
        assert_eq!(limits("count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=9"), Some((5, 9, -1, -1)));
        assert_eq!(limits("bytes=1;;,byteHardLimit=+2,other=7"), Some((-1, -1, 1, 2)));
        assert_eq!(limits("count=1,count=2,"), Some((2, -1, -1, -1)));
        assert_eq!(limits("count==7"), Some((-1, -1, -1, -1)), "an empty value is none");
        assert_eq!(limits(""), Some((-1, -1, -1, -1)));
        for unparsable in ["count", "count=", ",count=1", "count=x", "count=1 ", " count=1,bytes", ",", "=", "x"] {
            assert_eq!(limits(unparsable), None, "{unparsable:?}");
        }
    }

    #[test]
    fn hard_limit_counts_before_a_soft_one() {
        assert_eq!(Limit { soft: 3, hard: 0 }.effective(), Some((0, true)));
        assert_eq!(Limit { soft: 3, hard: -1 }.effective(), Some((3, false)));
        assert_eq!(Limit { soft: -1, hard: -5 }.effective(), None);
    }

    #[test]
    fn only_subtrees_outside_zookeeper_have_a_usage() {
        assert_eq!(shown_by("/zookeeper/quota/a/b/zookeeper_stats"), Some("/a/b"));
        assert_eq!(shown_by("/zookeeper/quota/a/zookeeper_stats/zookeeper_stats"), Some("/a/zookeeper_stats"));
        for other in [
            "/zookeeper/quota/zookeeper_stats",
            "/zookeeper/quotaX/zookeeper_stats",
            "/zookeeper/quota/zookeeper/zookeeper_stats",
            "/zookeeper/quota/zookeeper/x/zookeeper_stats",
            "/zookeeper/quota/a/zookeeper_limits",
            "/a/zookeeper_stats",
        ] {
            assert_eq!(shown_by(other), None, "{other}");
        }
        assert_eq!(shown_by("/zookeeper/quota/zookeeper2/zookeeper_stats"), Some("/zookeeper2"));
        assert_eq!(with_ancestors("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(with_ancestors("/").count(), 0);
    }
}
