//! Watches: which connections are told when a znode changes.
//!
//! Watches are a set of (connection, path, kind): repeating one changes nothing. The four kinds
//! coexist on one path, as in ZooKeeper 3.9. Paths are the text that a client sent, unvalidated; a
//! watch on an impossible path never fires.
//!
//! The table knows neither znodes nor permissions. [`WatchTable::fire`] reports connections in
//! numeric order, so equal inputs give equal outputs. No result depends on the iteration order of a
//! hash table.

mod listing;
mod paths;
mod watchers;

pub use listing::{ListedBy, Mark, ROWS_MAX};

use crate::budget::allocated;
use crate::derived::Derived;
use crate::seam::ids::ConnId;
use paths::{PathId, Paths};
use std::{collections::BTreeMap, mem::size_of};
use watchers::{KindSet, WATCHER_BYTES};
use zoolet_model::{AddWatchMode, EventKind, OneShot, WatcherType, path::parent_and_name};

/// The events that a watch waits for, and how often it fires.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WatchKind {
    /// The next creation, data change or deletion (getData, exists).
    Data,
    /// The next change of the children, or the deletion (getChildren).
    Child,
    /// All events of `Data` and `Child`, until removed.
    Persistent,
    /// Creations, data changes and deletions in the whole subtree, until removed.
    PersistentRecursive,
}

impl From<AddWatchMode> for WatchKind {
    fn from(mode: AddWatchMode) -> Self {
        match mode {
            AddWatchMode::Persistent => Self::Persistent,
            AddWatchMode::PersistentRecursive => Self::PersistentRecursive,
        }
    }
}

impl From<OneShot> for WatchKind {
    fn from(kind: OneShot) -> Self {
        match kind {
            OneShot::Data | OneShot::Exist => Self::Data,
            OneShot::Child => Self::Child,
        }
    }
}

/// The watch table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

/// Every watch of a server.
#[derive(Debug)]
pub struct WatchTable {
    watches: u32,
    watches_max: u32,
    /// Maximum bytes of the table. Clients choose the paths, and a path may be long.
    bytes_max: usize,
    /// Watches of kind `PersistentRecursive`. While 0, `fire` skips the ancestors.
    recursive: u32,
    /// (connection, path) pairs with at least one kind.
    pairs: u32,
    paths: Paths,
    /// Paths by connection, so that dropping a connection costs only its own watches.
    ///
    /// Invariant: every pair is listed here.
    connections: BTreeMap<ConnId, Watched>,
    /// Scratch of [`WatchTable::fire`].
    matched: Vec<ConnId>,
    /// Scratch of [`WatchTable::fire`]: connections whose last kind on the path was used up.
    used_up: Vec<ConnId>,
}

/// The paths one connection watches.
#[derive(Debug)]
enum Watched {
    One(PathId),
    Many(Box<WatchedPaths>),
}

/// A list of watched paths that may contain stale ids.
///
/// Invariant: `live` distinct ids in the list are watched by the connection. The others are stale:
/// a fired watch leaves its id behind, because finding it would cost a search. A stale id may now
/// name another path. That is harmless, because readers of the list also check the path's watchers.
#[derive(Debug, Default)]
struct WatchedPaths {
    live: u32,
    ids: Vec<PathId>,
}

/// Stale ids allowed in a list beyond the number of its live ones.
const STALE_SLACK: usize = 16;

/// Entries of scratch memory that `fire` keeps between calls.
const SCRATCH_MAX: usize = 1024;

impl WatchTable {
    /// Creates an empty table for `watches_max` watches in about `bytes_max` bytes.
    ///
    /// `seed` must be secret: it keeps clients from choosing paths that collide. It influences no
    /// result.
    pub fn new(watches_max: u32, bytes_max: usize, seed: u128) -> Self {
        Self {
            watches: 0,
            watches_max,
            bytes_max,
            recursive: 0,
            pairs: 0,
            paths: Paths::new(seed),
            connections: BTreeMap::new(),
            matched: Vec::new(),
            used_up: Vec::new(),
        }
    }

    /// Returns the number of watches of all kinds.
    pub fn watches(&self) -> u32 {
        self.watches
    }

    /// Returns the number of watched paths.
    pub fn paths(&self) -> u32 {
        self.paths.len()
    }

    /// Returns the number of connections with a watch.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the estimated bytes in use, in O(1).
    ///
    /// `engine/sim/tests/watch_memory.rs` compares the estimate with an allocator's count.
    pub fn bytes(&self) -> usize {
        let (pairs, paths, connections) = (self.pairs as usize, self.paths.len() as usize, self.connections.len());
        // The first watcher of a path and the first path of a connection are stored inline. Arrays
        // and B-tree leaves are about two thirds full.
        self.paths.bytes()
            + (pairs - paths) * WATCHER_BYTES * 3 / 2
            + connections * size_of::<(ConnId, Watched)>() * 2
            + (pairs - connections) * size_of::<PathId>() * 3 / 2
    }

    /// Appends the table's counters, each with its recount from the watchers.
    pub(crate) fn derived(&self, derived: &mut Vec<Derived>) {
        let (mut watches, mut recursive, mut paths, mut text_bytes) = (0, 0, 0, 0);
        let mut pairs: BTreeMap<ConnId, usize> = BTreeMap::new();
        for id in 0..self.paths.end() {
            let Some(path) = self.paths.text(id) else { continue };
            paths += 1;
            text_bytes += allocated(path.len());
            self.paths.watchers(id).each_after(None, &mut |conn, kinds| {
                watches += kinds.len() as usize;
                recursive += kinds.recursive() as usize;
                *pairs.entry(conn).or_default() += 1;
                true
            });
        }
        let listed = |watched: &Watched| match watched {
            Watched::One(_) => 1,
            Watched::Many(list) => list.live as usize,
        };
        let true_lists = self.connections.iter().filter(|(conn, list)| pairs.get(conn) == Some(&listed(list)));
        derived.extend([
            Derived::new("watches", self.watches as usize, watches),
            Derived::new("watches_recursive", self.recursive as usize, recursive),
            Derived::new("watch_pairs", self.pairs as usize, pairs.values().sum()),
            Derived::new("watching_connections", self.connections.len(), pairs.len()),
            Derived::new("watches_of_connections", self.connections.len(), true_lists.count()),
            Derived::new("watched_paths", self.paths.len() as usize, paths),
            Derived::new("watched_path_bytes", self.paths.text_bytes(), text_bytes),
        ]);
    }

    /// Returns whether `conn` may add all these watches. Those that it has already need no room.
    ///
    /// A watch that is named twice counts twice. Usually `conn` has none of them, so the table looks
    /// them up only if it has no room for all.
    pub fn has_room_for<'a>(&self, conn: ConnId, watches: impl Iterator<Item = (&'a str, WatchKind)> + Clone) -> bool {
        let lacks = |&(path, kind): &(&str, WatchKind)| !self.has(conn, path, kind);
        self.has_room_for_new(watches.clone())
            || self.connections.contains_key(&conn) && self.has_room_for_new(watches.filter(lacks))
    }

    fn has_room_for_new<'a>(&self, watches: impl Iterator<Item = (&'a str, WatchKind)>) -> bool {
        let (mut count, mut bytes) = (0, 0);
        for (path, _) in watches {
            count += 1;
            bytes += paths::PATH_BYTES + allocated(path.len());
        }
        let has_room = || self.watches as usize + count <= self.watches_max as usize;
        // The table may be larger than its bound: its arrays grow in steps.
        count == 0 || has_room() && self.bytes() + bytes <= self.bytes_max
    }

    /// Returns whether `conn` has this watch.
    pub fn has(&self, conn: ConnId, path: &str, kind: WatchKind) -> bool {
        self.kinds(conn, path).intersects(kind.into())
    }

    /// Returns the kinds that `conn` watches on `path`.
    fn kinds(&self, conn: ConnId, path: &str) -> KindSet {
        self.paths.find(path).map_or(KindSet::EMPTY, |id| self.paths.watchers(id).kinds(conn))
    }

    /// Returns whether `conn` watches `path` with this kind; `Any` matches every kind.
    pub fn contains(&self, conn: ConnId, path: &str, kind: WatcherType) -> bool {
        self.kinds(conn, path).intersects(kind.into())
    }

    /// Registers a watch.
    ///
    /// # Errors
    /// [`TooMany`] when the table has no room for it; nothing changed.
    pub fn add(&mut self, conn: ConnId, path: &str, kind: WatchKind) -> Result<(), TooMany> {
        let kinds = KindSet::from(kind);
        let known = self.paths.find(path);
        let before = known.map_or(KindSet::EMPTY, |id| self.paths.watchers(id).kinds(conn));
        if before.intersects(kinds) {
            return Ok(());
        }
        if self.watches >= self.watches_max || self.bytes() + path.len() > self.bytes_max {
            return Err(TooMany);
        }
        let id = known.unwrap_or_else(|| self.paths.insert(path));
        self.paths.watchers_mut(id).insert(conn, kinds);
        self.watches += 1;
        self.recursive += kinds.recursive();
        if before == KindSet::EMPTY {
            self.pairs += 1;
            self.list(conn, id);
        }
        Ok(())
    }

    /// Removes watches of `conn` on `path` of this kind; `Any` removes all.
    ///
    /// Returns false when there was nothing to remove.
    pub fn remove(&mut self, conn: ConnId, path: &str, kind: WatcherType) -> bool {
        let Some(id) = self.paths.find(path) else { return false };
        let (removed, gone) = self.take(conn, id, KindSet::from(kind));
        if gone {
            self.unlist(conn);
        }
        removed
    }

    /// Drops every watch of a connection, at a cost proportional to their number.
    pub fn drop_connection(&mut self, conn: ConnId) {
        match self.connections.remove(&conn) {
            None => {}
            Some(Watched::One(id)) => {
                self.take(conn, id, KindSet::ALL);
            }
            Some(Watched::Many(watched)) => {
                for id in watched.ids {
                    self.take(conn, id, KindSet::ALL);
                }
            }
        }
    }

    /// Calls `out` once for each connection that watches for this event.
    ///
    /// Connections come in numeric order. The matching one-shot watches are used up, even when the
    /// caller may not show the event to a connection and drops it (surface 5.3). When a znode is
    /// created or deleted, the caller fires its event first, then NodeChildrenChanged on its
    /// parent.
    pub fn fire(&mut self, kind: EventKind, path: &str, out: &mut impl FnMut(ConnId)) {
        if self.watches == 0 {
            return;
        }
        self.fire_on_path(kind, path);
        let on_path = self.matched.len();
        if self.recursive > 0 && kind != EventKind::NodeChildrenChanged {
            self.match_ancestors(path);
        }
        if self.matched.is_empty() {
            return;
        }
        let mut matched = std::mem::take(&mut self.matched);
        if matched.len() > on_path {
            matched.sort_unstable();
            matched.dedup();
        }
        for &conn in &matched {
            out(conn);
        }
        matched.clear();
        matched.shrink_to(SCRATCH_MAX);
        self.matched = matched;
    }

    fn fire_on_path(&mut self, kind: EventKind, path: &str) {
        let Some(id) = self.paths.find(path) else { return };
        let (matched, used_up) = (&mut self.matched, &mut self.used_up);
        let mut consumed = 0;
        self.paths.watchers_mut(id).trigger(interested(kind), consumed_by(kind), &mut |conn, taken, gone| {
            matched.push(conn);
            consumed += taken.len();
            if gone {
                used_up.push(conn);
            }
        });
        self.watches -= consumed;
        self.paths.remove_if_unwatched(id);
        let mut used_up = std::mem::take(&mut self.used_up);
        self.pairs -= used_up.len() as u32;
        for conn in used_up.drain(..) {
            self.unlist(conn);
        }
        used_up.shrink_to(SCRATCH_MAX);
        self.used_up = used_up;
    }

    fn match_ancestors(&mut self, path: &str) {
        let mut below = path;
        while let Some((ancestor, _)) = parent_and_name(below) {
            if let Some(id) = self.paths.find(ancestor) {
                self.paths.watchers(id).each(KindSet::from(WatchKind::PersistentRecursive), &mut |conn| {
                    self.matched.push(conn);
                });
            }
            below = ancestor;
        }
    }

    /// Removes `kinds` of `conn` from a path, whose id may be stale.
    ///
    /// Returns whether any were removed, and whether `conn` stopped watching the path. Does not
    /// change the connection's list.
    fn take(&mut self, conn: ConnId, id: PathId, kinds: KindSet) -> (bool, bool) {
        let Some(watchers) = self.paths.watchers_if_any(id) else { return (false, false) };
        let (taken, gone) = watchers.remove(conn, kinds);
        self.watches -= taken.len();
        self.recursive -= taken.recursive();
        if gone {
            self.pairs -= 1;
            self.paths.remove_if_unwatched(id);
        }
        (taken != KindSet::EMPTY, gone)
    }

    /// Adds a path to a connection's list.
    fn list(&mut self, conn: ConnId, id: PathId) {
        match self.connections.get_mut(&conn) {
            None => {
                self.connections.insert(conn, Watched::One(id));
            }
            Some(watched) => {
                let list = watched.as_many();
                list.live += 1;
                list.ids.push(id);
                list.forget_stale(conn, &self.paths);
            }
        }
    }

    /// Counts one path less for a connection. The path's id stays in the list as stale.
    fn unlist(&mut self, conn: ConnId) {
        let last = match self.connections.get_mut(&conn) {
            None => false,
            Some(Watched::One(_)) => true,
            Some(Watched::Many(list)) => {
                list.live -= 1;
                list.forget_stale(conn, &self.paths);
                list.live == 0
            }
        };
        if last {
            self.connections.remove(&conn);
        }
    }
}

impl Watched {
    fn as_many(&mut self) -> &mut WatchedPaths {
        if let Self::One(id) = *self {
            *self = Self::Many(Box::new(WatchedPaths { live: 1, ids: vec![id] }));
        }
        match self {
            Self::Many(list) => list,
            Self::One(_) => unreachable!("turned into Many just above"),
        }
    }
}

impl WatchedPaths {
    /// Keeps the list at most about twice as long as its live part.
    ///
    /// The amortized cost is constant: it at least halves the list, and only as many adds or fires
    /// as it removed fill it again.
    fn forget_stale(&mut self, conn: ConnId, paths: &Paths) {
        if self.ids.len() <= 2 * self.live as usize + STALE_SLACK {
            return;
        }
        self.ids.sort_unstable();
        self.ids.dedup();
        self.ids.retain(|&id| paths.is_watched_by(id, conn));
        self.ids.shrink_to(self.ids.len() + STALE_SLACK);
        debug_assert_eq!(self.ids.len(), self.live as usize, "every pair is listed");
    }
}

/// Returns the kinds on the event's own path that the event concerns (surface 5.3).
fn interested(event: EventKind) -> KindSet {
    let data = KindSet::from(WatchKind::Data) | WatchKind::Persistent.into() | WatchKind::PersistentRecursive.into();
    match event {
        EventKind::NodeCreated | EventKind::NodeDataChanged => data,
        EventKind::NodeDeleted => data | WatchKind::Child.into(),
        EventKind::NodeChildrenChanged => KindSet::from(WatchKind::Child) | WatchKind::Persistent.into(),
    }
}

/// Returns the kinds that the event uses up: the one-shot ones that it concerns.
fn consumed_by(event: EventKind) -> KindSet {
    interested(event) & (KindSet::from(WatchKind::Data) | WatchKind::Child.into())
}

#[cfg(test)]
mod tests;
