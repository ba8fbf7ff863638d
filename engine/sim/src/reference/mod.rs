//! ZooKeeper as its clients see it, implemented again and naively.
//!
//! It is one sequential machine over plain ordered maps. It was written from the rules ("surface
//! N") alone, without looking at the engine. So a misreading would have to happen twice. Nothing
//! here is fast: every request scans the whole tree, and a multi copies it. Two choices that the
//! rules leave open follow zoolet: a session's id is the zxid of its creation, and a failed write
//! costs a zxid.
//!
//! The reference and the oracles match on `Request` themselves, because no comparison finds an error
//! in `Request::class` if both sides ask it.
//!
//! The machine does not choose zxids or times. Its driver passes the ones that the engine chose.

mod acl;
mod answers;
mod quota;
mod tree;

pub(crate) use acl::shown;
pub use acl::{Ids, digest_of};
pub use quota::COUNTED_AT_ONCE;
pub use tree::{RefKind, RefTtl, RefZnode, Tree};

pub(crate) use answers::{concerns, missed, watch_set_by};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
pub(crate) use tree::{Change, Writer};
use zoolet_machine::ConnId;
use zoolet_machine::server::Counts;
use zoolet_machine::watch::WatchKind;
use zoolet_model::{
    AuthId, ErrorCode, Perms, Reply, Request, SessionId, SetWatches, Text, WatchEvent, WatcherType, WriteOp,
};

/// A message of the server, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RefOutput {
    /// A watch event.
    Notify {
        /// The receiving connection.
        conn: ConnId,
        /// The event.
        event: WatchEvent,
    },
    /// An answer.
    Reply {
        /// The receiving connection.
        conn: ConnId,
        /// The request's xid.
        xid: i32,
        /// The zxid in the header.
        zxid: i64,
        /// The body, or the error.
        result: Result<Reply, ErrorCode>,
    },
    /// The server closes the connection.
    Close {
        /// The connection.
        conn: ConnId,
    },
}

impl RefOutput {
    /// Returns the connection that it is sent to.
    pub fn conn(&self) -> ConnId {
        match self {
            Self::Notify { conn, .. } | Self::Reply { conn, .. } | Self::Close { conn } => *conn,
        }
    }
}

/// The whole server.
#[derive(Clone, Debug)]
pub struct Reference {
    tree: Tree,
    /// Sessions, with the connection that each is attached to.
    sessions: BTreeMap<i64, Option<ConnId>>,
    connections: BTreeMap<ConnId, Connection>,
    watches: BTreeSet<(ConnId, String, WatchKindOrd)>,
    last_zxid: i64,
    super_digest: Option<String>,
    enforces_quotas: bool,
}

#[derive(Clone, Debug)]
struct Connection {
    session: i64,
    ids: Ids,
}

/// [`WatchKind`] with an order, so that it fits a set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum WatchKindOrd {
    Data,
    Child,
    Persistent,
    Recursive,
}

impl WatchKindOrd {
    /// Returns whether checkWatches and removeWatches of this type apply to it.
    pub(crate) fn is_meant_by(self, kind: WatcherType) -> bool {
        match kind {
            WatcherType::Data => self == Self::Data,
            WatcherType::Children => self == Self::Child,
            WatcherType::Persistent => self == Self::Persistent,
            WatcherType::PersistentRecursive => self == Self::Recursive,
            WatcherType::Any => true,
        }
    }
}

impl From<WatchKind> for WatchKindOrd {
    fn from(kind: WatchKind) -> Self {
        match kind {
            WatchKind::Data => Self::Data,
            WatchKind::Child => Self::Child,
            WatchKind::Persistent => Self::Persistent,
            WatchKind::PersistentRecursive => Self::Recursive,
        }
    }
}

impl Reference {
    /// Creates a new server.
    ///
    /// `super_digest` is `user:hash` of the digest identity that passes every check.
    pub fn new(super_digest: Option<String>) -> Self {
        Self {
            tree: Tree::new(),
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            watches: BTreeSet::new(),
            last_zxid: 0,
            super_digest,
            enforces_quotas: false,
        }
    }

    /// Enforces hard limits of quotas from now on.
    pub fn enforce_quotas(&mut self) {
        self.enforces_quotas = true;
    }

    /// Returns the current tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Yields the live sessions.
    pub fn sessions(&self) -> impl Iterator<Item = i64> {
        self.sessions.keys().copied()
    }

    /// Returns the last used zxid.
    pub fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// Counts every number that is derived from the tree and the sessions.
    pub fn counts(&self) -> Counts {
        let (quotas, counting) = self.tree.usages();
        let mut counts = Counts { sessions: self.sessions.len() as u64, quotas, counting, ..Counts::default() };
        counts.owned = self.sessions.keys().map(|session| (SessionId(*session), 0)).collect();
        for path in self.tree.paths() {
            let Some(znode) = self.tree.get(path) else { continue };
            counts.znodes += 1;
            counts.data_bytes += (path.len() + znode.data.as_ref().map_or(0, Vec::len)) as u64;
            match znode.kind {
                RefKind::Ephemeral(owner) => {
                    counts.ephemerals += 1;
                    *counts.owned.entry(SessionId(owner)).or_default() += 1;
                }
                RefKind::Container => {
                    counts.reapable += u64::from(znode.creates > 0 && self.tree.children(path).is_empty());
                }
                RefKind::Ttl(_) => counts.ttl += u64::from(self.tree.children(path).is_empty()),
                RefKind::Persistent => {}
            }
        }
        counts
    }

    /// Returns the number of watches, over all kinds and connections.
    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// Returns the number of connections with a watch.
    pub fn watching_connections(&self) -> usize {
        self.watches.iter().map(|(conn, _, _)| conn).collect::<BTreeSet<_>>().len()
    }

    /// Returns the number of paths with a watch.
    pub fn watched_paths(&self) -> usize {
        self.watches.iter().map(|(_, path, _)| path).collect::<BTreeSet<_>>().len()
    }

    /// Records an entry that clients cannot see.
    pub fn pass_zxid(&mut self, zxid: i64) {
        assert!(zxid > self.last_zxid, "zxids only grow: {zxid:#x} after {:#x}", self.last_zxid);
        self.last_zxid = zxid;
    }

    /// Advances ensemble time to that of the next entry.
    pub fn pass_time(&mut self, ensemble_ms: u64) {
        self.tree.pass_time(ensemble_ms);
    }

    /// Creates a session; its id is `zxid`.
    pub fn create_session(&mut self, zxid: i64) {
        self.pass_zxid(zxid);
        self.sessions.insert(zxid, None);
    }

    /// Attaches a connection to a session, and closes the session's other connection, if any.
    ///
    /// # Panics
    /// If the session does not exist: the driver must have seen its refusal.
    pub fn attach(&mut self, conn: ConnId, session: i64, peer: Option<IpAddr>) -> Vec<RefOutput> {
        let attached = self.sessions.get_mut(&session).expect("an attached session is alive");
        let old = attached.replace(conn);
        self.connections.insert(conn, Connection { session, ids: Ids::of_peer(peer) });
        let mut outputs = Vec::new();
        if let Some(old) = old {
            self.forget_connection(old);
            outputs.push(RefOutput::Close { conn: old });
        }
        outputs
    }

    /// Removes a connection; its session stays.
    pub fn disconnect(&mut self, conn: ConnId) {
        self.forget_connection(conn);
        for attached in self.sessions.values_mut() {
            if *attached == Some(conn) {
                *attached = None;
            }
        }
    }

    fn forget_connection(&mut self, conn: ConnId) {
        self.connections.remove(&conn);
        self.watches.retain(|(watcher, _, _)| *watcher != conn);
    }

    /// Expires a session.
    pub fn expire(&mut self, session: i64, zxid: i64) -> Vec<RefOutput> {
        self.pass_zxid(zxid);
        let mut outputs = Vec::new();
        self.end_session(session, zxid, &mut outputs);
        if let Some(conn) = self.sessions.remove(&session).flatten() {
            self.forget_connection(conn);
            outputs.push(RefOutput::Close { conn });
        }
        outputs
    }

    /// Applies the reaper's txn.
    pub fn reap(&mut self, path: &str, zxid: i64) -> Vec<RefOutput> {
        self.pass_zxid(zxid);
        let mut changes = Vec::new();
        self.tree.reap(path, zxid, &mut changes);
        let mut outputs = Vec::new();
        self.fire_all(&changes, zxid, &mut outputs);
        outputs
    }

    /// Counts the next part of a subtree for its quota.
    pub fn count_usage(&mut self, subtree: &str, zxid: i64) {
        self.pass_zxid(zxid);
        self.tree.count_usage(subtree, zxid);
    }

    /// Returns whether the request is ordered among the writes, and so costs a zxid.
    pub fn is_ordered(request: &Request) -> bool {
        match request {
            Request::Write(_)
            | Request::Multi(_)
            | Request::CloseSession
            | Request::Reconfig
            | Request::Malformed { write: true } => true,
            Request::Exists { .. }
            | Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::GetAcl { .. }
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::GetTtl { .. }
            | Request::MultiRead(_)
            | Request::Sync { .. }
            | Request::Ping
            | Request::Auth { .. }
            | Request::Sasl
            | Request::WhoAmI
            | Request::SetWatches(_)
            | Request::AddWatch { .. }
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. }
            | Request::Malformed { write: false }
            | Request::Unknown => false,
        }
    }

    /// Carries out one request. `zxid` and `wall_ms` count for ordered requests only.
    pub fn apply(&mut self, conn: ConnId, xid: i32, request: &Request, zxid: i64, wall_ms: i64) -> Vec<RefOutput> {
        if Self::is_ordered(request) {
            self.pass_zxid(zxid);
        }
        // A request in flight when its session expired is ordered, fails, and is never answered.
        if !self.connections.contains_key(&conn) {
            return Vec::new();
        }
        let mut outputs = Vec::new();
        let (result, closes) = self.answer(conn, request, wall_ms, &mut outputs);
        // Surface 1.7: the zxid in each reply's header.
        let zxid = match request {
            Request::Auth { .. } | Request::Sasl => 0,
            Request::Unknown => -1,
            _ => self.last_zxid,
        };
        // Surface 1.6: a ping's answer has this xid, not the ping's own.
        let xid = if *request == Request::Ping { -2 } else { xid };
        outputs.push(RefOutput::Reply { conn, xid, zxid, result });
        if closes {
            self.disconnect(conn);
            outputs.push(RefOutput::Close { conn });
        }
        outputs
    }

    /// Returns the answer, and whether the connection is closed after it. Its events go to
    /// `outputs` first.
    fn answer(
        &mut self,
        conn: ConnId,
        request: &Request,
        wall_ms: i64,
        outputs: &mut Vec<RefOutput>,
    ) -> (Result<Reply, ErrorCode>, bool) {
        let result = match request {
            Request::Write(op) => self.write(conn, op, wall_ms, outputs),
            Request::Multi(ops) => self.multi(conn, ops, wall_ms, outputs),
            Request::CloseSession => {
                let session = self.connections[&conn].session;
                self.end_session(session, self.last_zxid, outputs);
                self.sessions.remove(&session);
                return (Ok(Reply::Empty), true);
            }
            Request::Auth { scheme, auth } => {
                let accepted = self.authenticate(conn, scheme.as_deref(), auth.as_deref());
                return if accepted { (Ok(Reply::Empty), false) } else { (Err(ErrorCode::AuthFailed), true) };
            }
            Request::Unknown => return (Err(ErrorCode::Unimplemented), true),
            Request::Exists { .. }
            | Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::GetAcl { .. }
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::GetTtl { .. }
            | Request::MultiRead(_) => self.read(conn, request),
            Request::Sync { path } => Ok(Reply::Synced(path.clone())),
            Request::Ping => Ok(Reply::Empty),
            Request::Sasl => Ok(Reply::NullToken),
            Request::WhoAmI => Ok(Reply::Ids(self.who_am_i(conn))),
            Request::SetWatches(watches) => {
                self.set_watches(conn, watches, outputs);
                Ok(Reply::Empty)
            }
            Request::AddWatch { path, mode } => {
                self.watches.insert((conn, path.to_string(), WatchKind::from(*mode).into()));
                Ok(Reply::WatchAdded)
            }
            Request::CheckWatches { path, kind } => {
                if self.matching(conn, path, *kind).is_empty() {
                    Err(ErrorCode::NoWatcher)
                } else {
                    Ok(Reply::Empty)
                }
            }
            Request::RemoveWatches { path, kind } => {
                let matching = self.matching(conn, path, *kind);
                matching.iter().for_each(|watch| {
                    self.watches.remove(watch);
                });
                if matching.is_empty() { Err(ErrorCode::NoWatcher) } else { Ok(Reply::Empty) }
            }
            Request::Reconfig => Err(ErrorCode::ReconfigDisabled),
            Request::Malformed { .. } => Err(ErrorCode::MarshallingError),
        };
        (result, false)
    }

    // Writes.

    fn writer(&self, conn: ConnId, wall_ms: i64) -> Writer {
        let connection = &self.connections[&conn];
        Writer {
            session: connection.session,
            ids: connection.ids.clone(),
            zxid: self.last_zxid,
            wall_ms,
            enforces_quotas: self.enforces_quotas,
        }
    }

    fn write(
        &mut self,
        conn: ConnId,
        op: &WriteOp,
        wall_ms: i64,
        outputs: &mut Vec<RefOutput>,
    ) -> Result<Reply, ErrorCode> {
        let writer = self.writer(conn, wall_ms);
        let mut changes = Vec::new();
        let result = self.tree.answer_write(&writer, op, &mut changes);
        self.fire_all(&changes, writer.zxid, outputs);
        result
    }

    fn multi(
        &mut self,
        conn: ConnId,
        ops: &[WriteOp],
        wall_ms: i64,
        outputs: &mut Vec<RefOutput>,
    ) -> Result<Reply, ErrorCode> {
        let writer = self.writer(conn, wall_ms);
        let mut changes = Vec::new();
        let result = self.tree.answer_multi(&writer, ops, &mut changes);
        self.fire_all(&changes, writer.zxid, outputs);
        result
    }

    fn end_session(&mut self, session: i64, zxid: i64, outputs: &mut Vec<RefOutput>) {
        let mut changes = Vec::new();
        self.tree.end_session(session, zxid, &mut changes);
        self.fire_all(&changes, zxid, outputs);
    }

    fn read(&mut self, conn: ConnId, request: &Request) -> Result<Reply, ErrorCode> {
        let Connection { session, ids } = &self.connections[&conn];
        let result = self.tree.answer_read(ids, *session, request).unwrap_or(Err(ErrorCode::SystemError));
        if let Some((path, kind)) = watch_set_by(request, &result) {
            self.watches.insert((conn, path.to_string(), kind));
        }
        result
    }

    /// Sorted, because the rules leave the order open.
    fn who_am_i(&self, conn: ConnId) -> Vec<AuthId> {
        let mut ids: Vec<AuthId> = self.connections[&conn].ids.iter().map(acl::shown).collect();
        ids.sort_by(|a, b| (a.scheme.as_str(), a.id.as_str()).cmp(&(b.scheme.as_str(), b.id.as_str())));
        ids
    }

    fn authenticate(&mut self, conn: ConnId, scheme: Option<&str>, auth: Option<&[u8]>) -> bool {
        let super_digest = self.super_digest.clone();
        match self.connections.get_mut(&conn) {
            Some(connection) => connection.ids.authenticate(scheme, auth, super_digest.as_deref()),
            None => false,
        }
    }

    // Watches.

    fn matching(&self, conn: ConnId, path: &str, kind: WatcherType) -> Vec<(ConnId, String, WatchKindOrd)> {
        self.watches.iter().filter(|(c, p, k)| *c == conn && p == path && k.is_meant_by(kind)).cloned().collect()
    }

    fn fire_all(&mut self, changes: &[Change], zxid: i64, outputs: &mut Vec<RefOutput>) {
        for change in changes {
            self.fire(change, zxid, outputs);
        }
    }

    /// Table 5.3: fires watches, uses up one-shot watches, and filters by READ permission.
    fn fire(&mut self, change: &Change, zxid: i64, outputs: &mut Vec<RefOutput>) {
        let Change { kind, path, acl } = change;
        let concerned = |(_, watched, have): &(ConnId, String, WatchKindOrd)| concerns(*have, watched, change);
        let told: BTreeSet<ConnId> =
            self.watches.iter().filter(|watch| concerned(watch)).map(|watch| watch.0).collect();
        self.watches.retain(|watch| !(concerned(watch) && matches!(watch.2, WatchKindOrd::Data | WatchKindOrd::Child)));
        for conn in told {
            if self.connections.get(&conn).is_some_and(|connection| connection.ids.may(acl, Perms::READ)) {
                let event = WatchEvent { kind: *kind, path: path.as_str().into(), zxid };
                outputs.push(RefOutput::Notify { conn, event });
            }
        }
    }

    /// Surface 5.5.
    fn set_watches(&mut self, conn: ConnId, watches: &SetWatches, outputs: &mut Vec<RefOutput>) {
        for (path, kind, absent) in listed(watches) {
            match missed(&self.tree, kind, absent, path, watches.relative_zxid) {
                Some(kind) => {
                    let event = WatchEvent { kind, path: path.clone(), zxid: -1 };
                    outputs.push(RefOutput::Notify { conn, event });
                }
                None => {
                    self.watches.insert((conn, path.to_string(), kind));
                }
            }
        }
    }
}

/// Yields every watch of a list, in order, and whether it waits for a missing znode.
pub(crate) fn listed(watches: &SetWatches) -> impl Iterator<Item = (&Text, WatchKindOrd, bool)> {
    let SetWatches { relative_zxid: _, data, exist, child, persistent, persistent_recursive } = watches;
    let data = data.iter().map(|path| (path, WatchKindOrd::Data, false));
    let exist = exist.iter().map(|path| (path, WatchKindOrd::Data, true));
    let child = child.iter().map(|path| (path, WatchKindOrd::Child, false));
    let persistent = persistent.iter().map(|path| (path, WatchKindOrd::Persistent, false));
    let recursive = persistent_recursive.iter().map(|path| (path, WatchKindOrd::Recursive, false));
    data.chain(exist).chain(child).chain(persistent).chain(recursive)
}

#[cfg(test)]
mod tests;
