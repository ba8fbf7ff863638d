//! Answers to writes and reads of the tree, independent of connections, sessions and watches.

use super::WatchKindOrd;
use super::acl::{self, Ids};
use super::tree::{self, Change, Done, RefKind, RefTtl, RefZnode, Tree, Writer};
use zoolet_model::{
    ErrorCode, EventKind, Names, OpResult, Perms, ReadOp, ReadResult, Reply, Request, Stat, Text, TimeToLive, WriteOp,
};

impl Tree {
    /// Answers a write of one operation.
    pub(crate) fn answer_write(
        &mut self,
        writer: &Writer,
        op: &WriteOp,
        changes: &mut Vec<Change>,
    ) -> Result<Reply, ErrorCode> {
        let done = self.write(writer, op, changes)?;
        let with_stat = matches!(op, WriteOp::Create(create) if create.with_stat);
        Ok(match done {
            Done::Created(path, stat) if with_stat => Reply::PathStat(path.into(), stat),
            Done::Created(path, _) => Reply::Path(path.into()),
            Done::Deleted | Done::Checked => Reply::Empty,
            Done::DataSet(stat) | Done::AclSet(stat) => Reply::Stat(stat),
        })
    }

    /// Answers a multi on a copy of the tree: all or nothing (surface 2.4).
    pub(crate) fn answer_multi(
        &mut self,
        writer: &Writer,
        ops: &[WriteOp],
        all_changes: &mut Vec<Change>,
    ) -> Result<Reply, ErrorCode> {
        let mut tree = self.clone();
        let mut changes = Vec::new();
        let mut results = Vec::new();
        for (at, op) in ops.iter().enumerate() {
            match tree.write(writer, op, &mut changes) {
                Ok(done) => {
                    let with_stat = matches!(op, WriteOp::Create(create) if create.with_stat);
                    results.push(match done {
                        Done::Created(path, stat) if with_stat => OpResult::CreateStat(path.into(), stat),
                        Done::Created(path, _) => OpResult::Create(path.into()),
                        Done::Deleted => OpResult::Delete,
                        Done::DataSet(stat) | Done::AclSet(stat) => OpResult::SetData(stat),
                        Done::Checked => OpResult::Check,
                    });
                }
                Err(ErrorCode::MarshallingError) => return Err(ErrorCode::MarshallingError),
                Err(error) => {
                    let code = |other: usize| match other.cmp(&at) {
                        std::cmp::Ordering::Less => None,
                        std::cmp::Ordering::Equal => Some(error),
                        std::cmp::Ordering::Greater => Some(ErrorCode::RuntimeInconsistency),
                    };
                    return Ok(Reply::Multi((0..ops.len()).map(|other| OpResult::Failed(code(other))).collect()));
                }
            }
        }
        *self = tree;
        all_changes.append(&mut changes);
        Ok(Reply::Multi(results))
    }

    /// Ends a session and deletes its ephemerals.
    pub(crate) fn end_session(&mut self, session: i64, zxid: i64, changes: &mut Vec<Change>) {
        for path in self.ephemerals_of(session) {
            self.remove(&path, zxid, changes);
        }
        self.recount_usages();
    }

    /// Answers a read; `None` for any other request. The caller sets the watch, if any.
    pub(crate) fn answer_read(&self, ids: &Ids, session: i64, request: &Request) -> Option<Result<Reply, ErrorCode>> {
        Some(match request {
            Request::GetData { path, .. } => self.read_data(ids, path).map(|(data, stat)| Reply::Data(data, stat)),
            Request::GetChildren { path, with_stat, .. } => self
                .read_children(ids, path)
                .map(|(names, stat)| (Names::from(names), stat))
                .map(|(names, stat)| if *with_stat { Reply::NamesStat(names, stat) } else { Reply::Names(names) }),
            Request::Exists { path, .. } => self.exists(ids, path),
            Request::GetAcl { path } => self.get_acl(ids, path),
            Request::GetEphemerals { prefix } => Ok(self.get_ephemerals(session, prefix.as_deref())),
            Request::GetAllChildrenNumber { path } => {
                self.readable(ids, path).map(|_| Reply::Count(self.descendants(path) as i32))
            }
            Request::GetTtl { path } => {
                self.readable(ids, path).map(|znode| Reply::Ttl(self.time_to_live(path, znode)))
            }
            Request::MultiRead(reads) => {
                let results: Vec<_> = reads.iter().map_while(|read| self.read(ids, read)).collect();
                let whole = results.len() == reads.len();
                Ok(if whole { Reply::MultiRead(results) } else { Reply::MultiReadBroken(results) })
            }
            Request::Write(_)
            | Request::Multi(_)
            | Request::Sync { .. }
            | Request::Ping
            | Request::Auth { .. }
            | Request::Sasl
            | Request::WhoAmI
            | Request::SetWatches(_)
            | Request::AddWatch { .. }
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. }
            | Request::Reconfig
            | Request::CloseSession
            | Request::Malformed { .. }
            | Request::Unknown => return None,
        })
    }

    fn readable(&self, ids: &Ids, path: &str) -> Result<&RefZnode, ErrorCode> {
        let znode = self.get(path).ok_or(ErrorCode::NoNode)?;
        if ids.may(&znode.acl, Perms::READ) { Ok(znode) } else { Err(ErrorCode::NoAuth) }
    }

    fn read_data(&self, ids: &Ids, path: &str) -> Result<(Option<bytes::Bytes>, Stat), ErrorCode> {
        let znode = self.readable(ids, path)?;
        Ok((znode.data.clone().map(Into::into), self.stat(path, znode)))
    }

    fn read_children(&self, ids: &Ids, path: &str) -> Result<(Vec<Text>, Stat), ErrorCode> {
        let znode = self.readable(ids, path)?;
        let names = self.children(path).into_iter().map(Into::into).collect();
        Ok((names, self.stat(path, znode)))
    }

    /// Returns the time to live as of the newest entry. A server's clock may be ahead of that.
    fn time_to_live(&self, path: &str, znode: &RefZnode) -> TimeToLive {
        let RefKind::Ttl(RefTtl { ttl_ms, since_ms, .. }) = znode.kind else { return TimeToLive::default() };
        let left_ms = (since_ms + ttl_ms).saturating_sub(self.ensemble_ms);
        let is_alone = self.children(path).is_empty();
        TimeToLive { ttl_ms: Some(ttl_ms), left_ms: is_alone.then_some(left_ms) }
    }

    fn exists(&self, ids: &Ids, path: &str) -> Result<Reply, ErrorCode> {
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        self.readable(ids, path).map(|znode| Reply::Stat(self.stat(path, znode)))
    }

    fn get_acl(&self, ids: &Ids, path: &str) -> Result<Reply, ErrorCode> {
        let znode = self.get(path).ok_or(ErrorCode::NoNode)?;
        if !ids.may(&znode.acl, Perms::READ.union(Perms::ADMIN)) {
            return Err(ErrorCode::NoAuth);
        }
        let full = ids.may(&znode.acl, Perms::ADMIN);
        let shown = if full { znode.acl.clone() } else { acl::redacted(&znode.acl) };
        Ok(Reply::Acl(shown, self.stat(path, znode)))
    }

    fn get_ephemerals(&self, session: i64, prefix: Option<&str>) -> Reply {
        let trimmed = prefix.map(|prefix| prefix.trim_matches(|character| character <= '\u{20}'));
        let prefix = if matches!(trimmed, None | Some("" | "/")) { "" } else { prefix.unwrap_or("") };
        let paths = self.ephemerals_of(session).into_iter().filter(|path| path.starts_with(prefix));
        Reply::Names(paths.collect())
    }

    /// Returns `None` for an operation that is not a read.
    fn read(&self, ids: &Ids, read: &ReadOp) -> Option<ReadResult> {
        Some(match read {
            ReadOp::GetData { path } => {
                self.read_data(ids, path).map_or_else(ReadResult::Failed, |(data, stat)| ReadResult::Data(data, stat))
            }
            ReadOp::GetChildren { path } => self
                .read_children(ids, path)
                .map_or_else(ReadResult::Failed, |(names, _)| ReadResult::Children(names.into())),
            ReadOp::Unreadable => return None,
        })
    }
}

/// Returns the watch that a request sets, given its answer (surface 5.2).
pub(crate) fn watch_set_by<'a>(
    request: &'a Request,
    result: &Result<Reply, ErrorCode>,
) -> Option<(&'a Text, WatchKindOrd)> {
    let (path, kind, is_set) = match request {
        Request::Exists { path, watch: true } => {
            (path, WatchKindOrd::Data, !matches!(result, Err(ErrorCode::NoAuth | ErrorCode::BadArguments)))
        }
        Request::GetData { path, watch: true } => (path, WatchKindOrd::Data, result.is_ok()),
        Request::GetChildren { path, watch: true, .. } => (path, WatchKindOrd::Child, result.is_ok()),
        Request::Exists { .. }
        | Request::GetData { .. }
        | Request::GetChildren { .. }
        | Request::GetAcl { .. }
        | Request::GetEphemerals { .. }
        | Request::GetAllChildrenNumber { .. }
        | Request::GetTtl { .. }
        | Request::MultiRead(_)
        | Request::Write(_)
        | Request::Multi(_)
        | Request::Sync { .. }
        | Request::Ping
        | Request::Auth { .. }
        | Request::Sasl
        | Request::WhoAmI
        | Request::SetWatches(_)
        | Request::AddWatch { .. }
        | Request::CheckWatches { .. }
        | Request::RemoveWatches { .. }
        | Request::Reconfig
        | Request::CloseSession
        | Request::Malformed { .. }
        | Request::Unknown => return None,
    };
    is_set.then_some((path, kind))
}

/// Returns whether a watch of this kind on `watched` hears of the change (table 5.3).
pub(crate) fn concerns(kind: WatchKindOrd, watched: &str, change: &Change) -> bool {
    let path = &change.path;
    match (kind, change.kind) {
        (WatchKindOrd::Data, EventKind::NodeChildrenChanged) => false,
        (WatchKindOrd::Data, _) => watched == path,
        (WatchKindOrd::Child, EventKind::NodeChildrenChanged | EventKind::NodeDeleted) => watched == path,
        (WatchKindOrd::Child, _) => false,
        (WatchKindOrd::Persistent, _) => watched == path,
        (WatchKindOrd::Recursive, EventKind::NodeChildrenChanged) => false,
        (WatchKindOrd::Recursive, _) => watched == path || tree::is_below(path, watched),
    }
}

/// Returns the event that replaces the registration of a watch after a reconnect, if any (surface
/// 5.5).
///
/// The client watched in this way, and has seen everything up to `since`.
pub(crate) fn missed(tree: &Tree, kind: WatchKindOrd, absent: bool, path: &str, since: i64) -> Option<EventKind> {
    match (kind, tree.get(path)) {
        (WatchKindOrd::Persistent | WatchKindOrd::Recursive, _) => None,
        (WatchKindOrd::Data, znode) if absent => znode.map(|_| EventKind::NodeCreated),
        (WatchKindOrd::Data | WatchKindOrd::Child, None) => Some(EventKind::NodeDeleted),
        (WatchKindOrd::Data, Some(znode)) => (znode.mzxid > since).then_some(EventKind::NodeDataChanged),
        (WatchKindOrd::Child, Some(znode)) => (znode.pzxid > since).then_some(EventKind::NodeChildrenChanged),
    }
}
