//! An attempt to apply one entry: its lookups, and its changes laid over the state.
//!
//! The rules of each operation are in [`mod@super::apply`]. This module keeps records, digest and
//! totals consistent.

use super::apply::Buffers;
use super::fired::Fired;
use super::needs::{Names, foreseen_names, needs};
use super::quota::{Tally, foreseen_quotas};
use super::usage::Room;
use crate::record::digest::record_hash;
use crate::record::key::{self, Key};
use crate::record::znode::{Data, INLINE_DATA_MAX, Kind, Mark, Totals, Znode};
use crate::seam::action::FetchWhat;
use crate::state::{Change, Overlay};
use crate::state::{Found, View};
use crate::txn::{Header, Txn};
use bytes::Bytes;
use zoolet_model::{ErrorCode, EventKind, Path, SessionId, Text};
use zoolet_zab::{Mutation, mutation};

/// Why an operation stopped.
pub(super) enum Stop {
    /// A record is not in memory; it is listed in `missing`.
    Missing,
    /// A record is damaged.
    Damaged(&'static str),
    /// ZooKeeper's error for the client.
    Failed(ErrorCode),
}

impl From<ErrorCode> for Stop {
    fn from(code: ErrorCode) -> Self {
        Self::Failed(code)
    }
}

/// A znode's record.
#[derive(Debug)]
pub(super) struct Loaded {
    record: Bytes,
    /// The stored key, if the lookup met one.
    key: Option<Key>,
}

impl Loaded {
    pub(super) fn znode(&self) -> Result<Znode<'_>, Stop> {
        Znode::decode(&self.record).map_err(|_| Stop::Damaged("a znode's record does not decode"))
    }

    pub(super) fn acl(&self, znode: &Znode<'_>) -> Bytes {
        self.record.slice_ref(znode.acl)
    }
}

/// A parent whose children are being deleted.
pub(super) struct Bereaved {
    path: Text,
    acl: Bytes,
}

/// An attempt to apply one entry. Its changes are installed only if all of it succeeds.
pub(super) struct Attempt<'a, V> {
    pub(super) view: &'a mut V,
    pub(super) payload: &'a Bytes,
    pub(super) zxid: i64,
    pub(super) header: Header,
    pub(super) changes: Overlay,
    pub(super) fired: Vec<Fired>,
    pub(super) names: Names,
    pub(super) totals: Totals,
    pub(super) digest: u128,
    pub(super) tally: Tally,
    pub(super) missing: Vec<FetchWhat>,
    /// Room that is left to the entry for counting.
    pub(super) room: Room,
    /// Whether the entry read znodes to count them.
    pub(super) counts: bool,
    /// Prefixes of the lists of quotas that this attempt requested.
    pub(super) lists: Vec<Key>,
}

impl<'a, V: View> Attempt<'a, V> {
    /// Creates an attempt without changes, on a state with empty totals.
    pub(super) fn new(view: &'a mut V, payload: &'a Bytes, header: Header, buffers: Buffers) -> Self {
        let room = view.counted_at_once();
        let Buffers { changes, fired, names } = buffers;
        Self {
            view,
            payload,
            zxid: 0,
            header,
            changes,
            fired,
            names,
            totals: Totals::default(),
            digest: 0,
            tally: Tally::default(),
            missing: Vec::new(),
            room,
            counts: false,
            lists: Vec::new(),
        }
    }

    /// Requests all records that the entry is known to need, in one round of fetches.
    pub(super) fn want(&mut self, txn: &Txn<'_>) {
        let Self { view, missing, .. } = self;
        needs(txn, &mut |need| missing.extend(need.missing_in(*view)));
        foreseen_names(txn, *view, missing);
        if self.totals.quotas > 0 {
            foreseen_quotas(txn, *view, missing);
        }
    }

    /// Fails with `SessionExpired` if the session has ended.
    ///
    /// The state does not have local sessions. Their server judges them before it requests an entry.
    pub(super) fn live(&mut self, session: SessionId) -> Result<(), Stop> {
        let is_taken = mutation::is_on(Mutation::LocalSeenAsGlobal) && session.began_local();
        if session.is_named_local() || is_taken {
            return Ok(());
        }
        let key = key::session_bytes(session);
        let lives = match self.changes.get(&key) {
            Some(change) => Some(change.after.is_some()),
            None => self.view.holds(&key),
        };
        match lives {
            Some(true) => Ok(()),
            Some(false) => Err(ErrorCode::SessionExpired.into()),
            None => {
                self.missing.push(FetchWhat::Record(key.into()));
                Err(Stop::Missing)
            }
        }
    }

    pub(super) fn existing(&mut self, path: &str) -> Result<Loaded, Stop> {
        self.load(path)?.ok_or(Stop::Failed(ErrorCode::NoNode))
    }

    pub(super) fn load(&mut self, path: &str) -> Result<Option<Loaded>, Stop> {
        match key::with_znode(path, |key| self.get_with_key(key)) {
            Some(found) => Ok(found?.map(|(record, key)| Loaded { record, key })),
            None => Ok(None),
        }
    }

    pub(super) fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, Stop> {
        Ok(self.get_with_key(key)?.map(|(record, _)| record))
    }

    fn get_with_key(&mut self, key: &[u8]) -> Result<Option<(Bytes, Option<Key>)>, Stop> {
        if let Some(change) = self.changes.get(key) {
            return Ok(change.after.clone().map(|record| (record, None)));
        }
        match self.view.record_with_key(key) {
            (Found::Record(record), key) => Ok(Some((record, key))),
            (Found::Absent, _) => Ok(None),
            (Found::Unknown, _) => {
                self.missing.push(FetchWhat::Record(key.into()));
                Err(Stop::Missing)
            }
        }
    }

    /// Lays a change over the state. `before` is the hash of the record it replaces, if one
    /// existed.
    pub(super) fn put(&mut self, key: Key, before: Option<u128>, after: Option<Bytes>) {
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(before);
        }
        if let Some(after) = &after {
            self.digest = self.digest.wrapping_add(record_hash(&key, after));
        }
        self.changes.put(key, Change { existed: before.is_some(), after });
    }

    /// Replaces a znode's record.
    ///
    /// `is_brief` means that the record may be replaced or deleted soon, for example by the next
    /// child's creation.
    fn put_znode(&mut self, path: &str, before: Option<&Loaded>, after: Option<&Znode<'_>>, is_brief: bool) {
        let found = before.and_then(|loaded| loaded.key.clone());
        // The key exists: the znode was loaded by this path, or the path was validated.
        if let Some(key) = found.or_else(|| key::with_znode(path, |key| self.view.key(key))) {
            let before = before.map(|loaded| record_hash(&key, &loaded.record));
            let after =
                after.map(
                    |znode| if is_brief { znode.encode_on(|record| self.view.pooled(record)) } else { znode.encode() },
                );
            self.put(key, before, after);
        }
    }

    pub(super) fn put_mark(&mut self, key: Key, there: bool) {
        let hash = record_hash(&key, &[]);
        if there {
            self.put(key, None, Some(Bytes::new()));
        } else {
            self.put(key, Some(hash), None);
        }
    }

    /// Stores data in its place and returns its form in the znode's record.
    pub(super) fn put_data<'d>(&mut self, path: &str, before: Option<&Znode<'_>>, data: Option<&'d [u8]>) -> Data<'d> {
        let old = before.and_then(|znode| if let Data::Large { hash, .. } = znode.data { Some(hash) } else { None });
        let large = data.filter(|bytes| bytes.len() > INLINE_DATA_MAX);
        if (old.is_some() || large.is_some())
            && let Some(key) = key::data(path)
        {
            // Copy the data: a slice would keep alive the whole buffer, which many entries share.
            let after = large.map(Bytes::copy_from_slice);
            let hash = large.map_or(0, |bytes| record_hash(&key, bytes));
            self.put(key, old, after);
            if let Some(bytes) = large {
                return Data::Large { length: u32::try_from(bytes.len()).unwrap_or(u32::MAX), hash };
            }
        }
        data.map_or(Data::Null, Data::Inline)
    }

    /// Replaces a znode's record and updates the reaper's marks.
    pub(super) fn replace(&mut self, path: &str, loaded: &Loaded, before: &Znode<'_>, after: &Znode<'_>) {
        // setData uses no pooled buffer: searching one for each of a thousand busy znodes costs
        // more than allocating.
        self.put_znode(path, Some(loaded), Some(after), before.num_children != after.num_children);
        self.mark(path, before.mark(), after.mark());
    }

    /// Replaces the reaper's mark of a znode.
    fn mark(&mut self, path: &str, before: Option<Mark>, after: Option<Mark>) {
        if before == after {
            return;
        }
        for (mark, there) in [(before, false), (after, true)] {
            let (key, count) = match mark {
                Some(Mark::Emptied) => (key::with_reapable(path, |key| self.view.key(key)), &mut self.totals.reapable),
                Some(Mark::Due(due_ms)) => {
                    (key::with_due(due_ms, path, |key| self.view.key(key)), &mut self.totals.ttl)
                }
                None => continue,
            };
            *count = if there { *count + 1 } else { count.saturating_sub(1) };
            self.put_mark(key, there);
        }
    }

    /// Updates the bytes of data after a znode's data was replaced.
    pub(super) fn note_data_length(&mut self, before: &Znode<'_>, after: &Znode<'_>) {
        let bytes = self.totals.data_bytes.wrapping_sub(before.data.length().into());
        self.totals.data_bytes = bytes.wrapping_add(after.data.length().into());
    }

    /// Adds a znode to the tree; the caller updates its parent.
    pub(super) fn birth(&mut self, path: &str, znode: &Znode<'_>) {
        self.put_znode(path, None, Some(znode), true);
        self.mark(path, None, znode.mark());
        self.totals.znodes += 1;
        self.totals.data_bytes += weight(path, znode);
        self.tally(path, 1, znode.data.length().into());
        if let Data::Usage(usage) = znode.data {
            self.usage_begins(path, usage);
        }
        if let Kind::Ephemeral(owner) = znode.kind {
            let key = key::with_ephemeral(owner, path, |key| self.view.key(key));
            self.put_mark(key, true);
            self.totals.ephemerals += 1;
        }
    }

    /// Subtracts `deaths` children from a znode before they are deleted.
    ///
    /// Returns the path and ACL of the parent, for the events of the deletions.
    pub(super) fn shrink(&mut self, path: Text, loaded: &Loaded, deaths: i32) -> Result<Bereaved, Stop> {
        let znode = loaded.znode()?;
        let num_children = znode.num_children.wrapping_sub(deaths);
        // A time to live counts from the end of the last child.
        let kind = if num_children == 0 { znode.kind.renewed(self.totals.ensemble_ms) } else { znode.kind };
        let shrunk = Znode { num_children, pzxid: self.zxid, kind, ..znode };
        self.replace(&path, loaded, &znode, &shrunk);
        Ok(Bereaved { acl: loaded.acl(&znode), path })
    }

    /// Removes a znode from the tree. Its parent was already updated by `shrink`.
    pub(super) fn death(&mut self, path: &Text, loaded: &Loaded, parent: &Bereaved) -> Result<(), Stop> {
        let znode = loaded.znode()?;
        self.put_znode(path, Some(loaded), None, false);
        self.put_data(path, Some(&znode), None);
        self.mark(path, znode.mark(), None);
        self.totals.znodes = self.totals.znodes.saturating_sub(1);
        self.totals.data_bytes = self.totals.data_bytes.saturating_sub(weight(path, &znode));
        self.tally(path, -1, -i64::from(znode.data.length()));
        if let Data::Usage(usage) = znode.data {
            self.usage_ends(path, usage);
        }
        if let Kind::Ephemeral(owner) = znode.kind {
            let key = key::with_ephemeral(owner, path, |key| self.view.key(key));
            self.put_mark(key, false);
            self.totals.ephemerals = self.totals.ephemerals.saturating_sub(1);
        }
        self.fire(EventKind::NodeDeleted, path.clone(), loaded.acl(&znode));
        self.fire(EventKind::NodeChildrenChanged, parent.path.clone(), parent.acl.clone());
        Ok(())
    }

    pub(super) fn fire(&mut self, kind: EventKind, path: Text, acl: Bytes) {
        self.fired.push(Fired { kind, path, acl });
    }

    /// Returns a parent's path, shared with the entry's text except for the root.
    pub(super) fn parent_text(&self, parent: &str) -> Text {
        if parent == "/" { Path::ROOT.text().clone() } else { self.text(parent) }
    }

    /// Returns a part of the entry's own text, shared.
    pub(super) fn text(&self, part: &str) -> Text {
        Text::from_utf8_lossy(self.payload.slice_ref(part.as_bytes()))
    }
}

/// Returns a znode's share of ZooKeeper's approximate_data_size.
fn weight(path: &str, znode: &Znode<'_>) -> u64 {
    path.len() as u64 + u64::from(znode.data.length())
}
