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

use super::apply::Buffers;
use super::attempt::{Attempt, Loaded, Stop};
use super::needs::parent_of;
use crate::record::key::{self, Key};
use crate::record::znode::{Data, Usage, Znode};
use crate::seam::action::{FetchWhat, WEIGHTS_MAX};
use crate::state::View;
use crate::txn::{Header, Op, Txn};
use bytes::Bytes;
use zoolet_model::{ErrorCode, Text};
use zoolet_zab::{Mutation, mutation};

/// Parent of all quotas.
const QUOTAS: &str = "/zookeeper/quota";
/// Name of the znode with a subtree's limits.
const LIMITS: &str = "/zookeeper_limits";
/// Name of the znode with a subtree's usage.
const STATS: &str = "/zookeeper_stats";

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
    /// Levels above the znode that the present operation changes.
    walk: Option<Walk>,
    pub(super) exceeded: Option<Exceeded>,
}

/// A change of one znode that no usage includes yet.
#[derive(Debug)]
struct Changed {
    path: Text,
    znodes: i64,
    bytes: i64,
}

/// Children of a quota's znode that are listed even for one path below it.
///
/// The list stays in memory for later paths. Without it, each new name would cost a read of the
/// base, and a place in the record cache for a quota that does not exist.
const LISTED: usize = 256;
/// Lists of children that one attempt requests at most. Each takes up to about 150 KiB.
const LISTS_MAX: usize = 4;

/// Paths of the znodes of one subtree's quota, built in one buffer.
struct Place {
    path: String,
    end: usize,
}

impl Place {
    /// Creates the place of all quotas, with room for those above and at `path`.
    fn above(path: &str) -> Self {
        let mut place = Self { path: String::with_capacity(QUOTAS.len() + path.len() + LIMITS.len()), end: 0 };
        place.path.push_str(QUOTAS);
        place.end = place.path.len();
        place
    }

    /// Moves to the quota of another subtree; the root is the parent of all.
    fn enter(&mut self, subtree: &str) -> &str {
        self.path.truncate(QUOTAS.len());
        self.path.push_str(if subtree == "/" { "" } else { subtree });
        self.end = self.path.len();
        &self.path
    }

    /// Returns the path of a child of the quota's znode.
    fn child(&mut self, name: &str) -> &str {
        self.path.truncate(self.end);
        self.path.push_str(name);
        &self.path
    }
}

/// One level of the trie: the quota of a subtree, as far as it exists.
#[derive(Debug)]
struct Level {
    limits: Option<Loaded>,
    stats: Option<Loaded>,
    /// Whether a deeper level may exist.
    has_more: bool,
}

/// The levels above a path, found when its limits were checked.
///
/// The change of that znode leaves them as they are, so its usages need no second lookup.
#[derive(Debug)]
struct Walk {
    path: Text,
    /// Ends of the subtrees within the path, with their levels.
    levels: Vec<(usize, Level)>,
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
    ///
    /// A missing record does not stop the others from being looked up. So one round of fetches
    /// brings the records of all siblings.
    pub(super) fn count_tally(&mut self) -> Result<(), Stop> {
        if self.tally.changes.is_empty() {
            self.tally.walk = None;
            return Ok(());
        }
        let changes = std::mem::take(&mut self.tally.changes);
        if let (Some(walk), [changed]) = (self.tally.walk.take(), &*changes)
            && walk.path == changed.path
        {
            let mut place = Place::above(&walk.path);
            let mut levels = walk.levels.iter();
            return levels.try_for_each(|(end, level)| {
                let subtree = &walk.path[..*end];
                place.enter(subtree);
                self.add_usage(&mut place, subtree, level, &changes)
            });
        }
        let mut families = changes.chunk_by(|one, next| parent_of(&one.path) == parent_of(&next.path));
        families.try_fold(Ok(()), |so_far, siblings| gather(so_far, self.count_siblings(siblings)))?
    }

    fn count_siblings(&mut self, siblings: &[Changed]) -> Result<(), Stop> {
        let Some(first) = siblings.first() else { return Ok(()) };
        let Some(parent) = parent_of(&first.path) else { return Ok(()) };
        let mut place = Place::above(&first.path);
        for subtree in with_ancestors(parent) {
            let Some(level) = self.level(&mut place, subtree)? else { return Ok(()) };
            self.add_usage(&mut place, subtree, &level, siblings)?;
            if !level.has_more {
                return Ok(());
            }
        }
        self.find_levels(&mut place, parent, siblings.iter().map(|changed| &*changed.path))?;
        let mut all = siblings.iter();
        all.try_fold(Ok(()), |so_far, changed| gather(so_far, self.count_sibling(&mut place, changed)))?
    }

    fn count_sibling(&mut self, place: &mut Place, changed: &Changed) -> Result<(), Stop> {
        let Some(level) = self.level(place, &changed.path)? else { return Ok(()) };
        self.add_usage(place, &changed.path, &level, std::slice::from_ref(changed))
    }

    /// Requests what memory lacks to tell which of these children of `parent` have a quota.
    ///
    /// Few quotas are listed, for all children at once. Among many quotas each child is looked up.
    fn find_levels<'p>(
        &mut self,
        place: &mut Place,
        parent: &str,
        children: impl Iterator<Item = &'p str>,
    ) -> Result<(), Stop> {
        let children = children.filter_map(|path| key::with_znode(place.enter(path), |key| self.unknown(key))?);
        let unknown: Vec<Key> = children.collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let Some(loaded) = self.load(place.enter(parent))? else { return Ok(()) };
        let quotas = usize::try_from(loaded.znode()?.num_children).unwrap_or(usize::MAX);
        let is_list = quotas <= LISTED || (quotas < unknown.len() && quotas <= WEIGHTS_MAX);
        let prefix = key::children_prefix(&place.path);
        if self.lists.contains(&prefix) {
            // Each operation of a multi looks for itself; the list answers all of them.
            return Err(Stop::Missing);
        }
        if is_list && self.lists.len() < LISTS_MAX && self.foresee_weights(&prefix) {
            self.lists.push(prefix);
        } else {
            // Also if the list is too long for one fetch, and does not reach these children.
            self.missing.extend(unknown.into_iter().map(FetchWhat::Record));
        }
        Err(Stop::Missing)
    }

    /// Returns the key if memory does not know whether its znode exists.
    fn unknown(&mut self, key: &[u8]) -> Option<Key> {
        let is_known = self.changes.get(key).is_some() || self.view.holds(key).is_some() || self.view.lacks(key);
        (!is_known).then(|| key.into())
    }

    fn add_usage(&mut self, place: &mut Place, subtree: &str, level: &Level, changes: &[Changed]) -> Result<(), Stop> {
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
            self.put_usage(place.child(STATS), loaded, &znode, Usage { count, bytes, ..usage });
        }
        Ok(())
    }

    /// Stores a usage. Neither version nor times of its znode move, and no watch fires.
    pub(super) fn put_usage(&mut self, path: &str, loaded: &Loaded, znode: &Znode<'_>, usage: Usage<'_>) {
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
        let (mut levels, mut place) = (Vec::new(), Place::above(path));
        for subtree in with_ancestors(path) {
            if subtree.len() == path.len() {
                let parent = parent_of(path).unwrap_or("/");
                self.find_levels(&mut place, parent, std::iter::once(path))?;
            }
            let Some(level) = self.level(&mut place, subtree)? else { break };
            let has_more = level.has_more;
            levels.push((subtree.len(), level));
            if !has_more {
                break;
            }
        }
        let checked = self.check_levels(path, &levels, znodes, bytes);
        self.tally.walk = Some(Walk { path: path.into(), levels });
        checked
    }

    fn check_levels(&mut self, path: &str, levels: &[(usize, Level)], znodes: i64, bytes: i64) -> Result<(), Stop> {
        let mut with_limits = levels.iter().rev().filter_map(|(end, level)| Some((end, level.limits.as_ref()?, level)));
        let Some((end, limits, Level { stats: Some(stats), .. })) = with_limits.next() else { return Ok(()) };
        let subtree = &path[..*end];
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
    fn level(&mut self, place: &mut Place, subtree: &str) -> Result<Option<Level>, Stop> {
        let own = place.enter(subtree);
        let is_lacking = |attempt: &mut Self, key: &[u8]| attempt.view.lacks(key) && attempt.changes.get(key).is_none();
        if key::with_znode(own, |key| is_lacking(self, key)) == Some(true) {
            return Ok(None);
        }
        let Some(loaded) = self.load(own)? else { return Ok(None) };
        let children = loaded.znode()?.num_children;
        if children == 0 {
            return Ok(Some(Level { limits: None, stats: None, has_more: false }));
        }
        // Look up both before failing, so that one round of fetches brings both.
        let (limits, stats) = (self.load(place.child(LIMITS)), self.load(place.child(STATS)));
        let (limits, stats) = (limits?, stats?);
        let mut has_more = children > i32::from(limits.is_some()) + i32::from(stats.is_some());
        for own in [&limits, &stats].into_iter().flatten() {
            has_more |= own.znode()?.num_children > 0;
        }
        Ok(Some(Level { limits, stats, has_more }))
    }

    /// Requests the records that an entry is known to need for quotas, and that memory lacks.
    ///
    /// It makes the lookups of the entry without its changes. So it requests no other record.
    fn foresee(&mut self, txn: &Txn<'_>) {
        match txn {
            Txn::Write { op, .. } => self.foresee_op(op),
            Txn::Multi { ops, .. } => ops.iter().for_each(|op| self.foresee_op(op)),
            Txn::CloseSession { session } => {
                let prefix = key::ephemerals_prefix(*session);
                let owned = self.view.keys_under(&prefix).unwrap_or_default();
                self.foresee_paths(owned.iter().filter_map(|key| std::str::from_utf8(&key[prefix.len()..]).ok()));
            }
            Txn::Reap { path } => self.foresee_paths(std::iter::once(*path)),
            // A damaged record stops the entry itself.
            Txn::CountUsage { path } => drop(self.foresee_count(path)),
            Txn::NoOp
            | Txn::CreateSession { .. }
            | Txn::RenewSession { .. }
            | Txn::UpgradeSession { .. }
            | Txn::Membership(_) => {}
        }
    }

    fn foresee_op(&mut self, op: &Op<'_>) {
        match *op {
            // Its own name is known only when its turn comes.
            Op::Create { path, sequential: true, .. } => self.foresee_paths(parent_of(path).into_iter()),
            Op::Create { path, .. } => {
                self.foresee_paths(std::iter::once(path));
                if let Some(subtree) = shown_by(path) {
                    self.foresee_begin(subtree);
                }
            }
            Op::Delete { path, .. } | Op::SetData { path, .. } => self.foresee_paths(std::iter::once(path)),
            Op::SetAcl { .. } | Op::Check { .. } | Op::Refused(_) => {}
        }
    }

    fn foresee_paths<'p>(&mut self, paths: impl Iterator<Item = &'p str>) {
        let paths = paths.filter(|path| path.starts_with('/') && !is_exempt(path));
        self.tally.changes.extend(paths.map(|path| Changed { path: path.into(), znodes: 0, bytes: 0 }));
        // Missing records are noted. Damage stops the entry itself.
        let _ = self.count_tally();
    }
}

/// Goes on after a missing record, so that the records missing elsewhere are noted too.
fn gather(so_far: Result<(), Stop>, next: Result<(), Stop>) -> Result<Result<(), Stop>, Stop> {
    match next {
        Ok(()) => Ok(so_far),
        Err(Stop::Missing) => Ok(Err(Stop::Missing)),
        Err(stop) => Err(stop),
    }
}

pub(super) fn stats_of(subtree: &str) -> String {
    [QUOTAS, subtree, STATS].concat()
}

/// Adds to `missing` the records that an entry needs next for its quotas, and that memory lacks.
///
/// Each level of nested quotas is known only once the level above it is in memory. Later entries
/// usually find all of them there.
pub fn foreseen_quotas(txn: &Txn<'_>, view: &mut impl View, missing: &mut Vec<FetchWhat>) {
    let payload = Bytes::new();
    let mut attempt = Attempt::new(view, &payload, Header::default(), Buffers::default());
    attempt.missing = std::mem::take(missing);
    attempt.foresee(txn);
    *missing = attempt.missing;
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
