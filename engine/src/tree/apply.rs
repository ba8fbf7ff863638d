//! What an entry does: a function of the state and of the entry, and of nothing else.
//!
//! Total: any bytes have an outcome. The order of checks is ZooKeeper's (surface 2.3, 13.7).

use super::acl::Identity;
use super::overlay::{Change, Overlay};
use super::record::{Data, INLINE_DATA_MAX, Kind, Session, Totals, Znode};
use super::view::{Found, Stuck, View};
use crate::action::FetchWhat;
use crate::store::digest::record_hash;
use crate::store::key::{self, Key};
use crate::txn::{self, Header, Op, Txn};
use bytes::Bytes;
use zoolet_model::{
    CreateKind, ErrorCode, EventKind, Perms, SessionId, Stat, Text, Zxid,
    path::{self, parent_and_name},
};

/// What one entry did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// For whoever asked.
    pub outcome: Outcome,
    /// Records to install, all of them or none.
    pub changes: Overlay,
    /// Watches to fire, in order.
    pub fired: Vec<Fired>,
    /// The counts afterwards.
    pub totals: Totals,
    /// The digest afterwards.
    pub digest: u128,
}

/// Something a watch may have waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fired {
    /// What happened.
    pub kind: EventKind,
    /// To which znode.
    pub path: Text,
    /// The stored ACL that decides who may be told (surface 5.3): the znode's own, its last one, or its parent's.
    pub acl: Bytes,
}

/// What an entry came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A no-op, or bytes that mean nothing to this release.
    Nothing,
    /// A single operation.
    Write(Result<OpOutcome, ErrorCode>),
    /// Several, all or none; what failed, and where.
    Multi(Result<Vec<OpOutcome>, MultiFailure>),
    /// A session began.
    SessionCreated(Session),
    /// A session was given another timeout.
    SessionRenewed {
        /// Which.
        session: SessionId,
        /// As it is now, unless it is gone.
        renewed: Result<Session, ErrorCode>,
    },
    /// A session ended, or had ended before.
    SessionClosed(SessionId),
    /// A container was looked at; true when it went.
    Reaped(bool),
}

/// Where a multi failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MultiFailure {
    /// Operations in it.
    pub ops: usize,
    /// The first that failed.
    pub at: usize,
    /// Why.
    pub code: ErrorCode,
}

/// What one operation came to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the operations'")]
pub enum OpOutcome {
    Created { path: Text, stat: Stat, with_stat: bool },
    Deleted,
    DataSet(Stat),
    AclSet(Stat),
    Checked,
}

/// Applies one entry.
///
/// # Errors
/// [`Stuck`] when a record is not in memory; the state is as before.
pub fn apply(
    view: &mut impl View,
    totals: Totals,
    digest: u128,
    zxid: Zxid,
    payload: &Bytes,
) -> Result<Applied, Stuck> {
    let Ok((header, txn)) = txn::decode(payload) else {
        return Ok(Applied {
            outcome: Outcome::Nothing,
            changes: Overlay::default(),
            fired: Vec::new(),
            totals,
            digest,
        });
    };
    let mut attempt = Attempt {
        view,
        payload,
        zxid: zxid.as_i64(),
        header,
        changes: Overlay::default(),
        fired: Vec::new(),
        totals: Totals { ensemble_ms: totals.ensemble_ms.max(header.ensemble_ms), ..totals },
        digest,
        missing: Vec::new(),
    };
    let outcome = attempt.run(&txn);
    if matches!(outcome, Err(Stop::Missing)) {
        attempt.want(&txn);
    }
    let Attempt { changes, fired, totals, digest, missing, .. } = attempt;
    match outcome {
        Ok(outcome) => Ok(Applied { outcome, changes, fired, totals, digest }),
        Err(Stop::Damaged(what)) => Err(Stuck::Damaged(what)),
        Err(Stop::Missing | Stop::Failed(_)) => Err(Stuck::Missing(missing)),
    }
}

/// A record that an entry is known to need before anything else is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need<'a> {
    /// The znode of this path, if one can have it.
    Znode(&'a str),
    /// The list of what this session owns.
    Ephemerals(SessionId),
}

/// Names everything that an entry is known to need, so that it is fetched while the log syncs.
pub fn needs<'a>(txn: &Txn<'a>, need: &mut impl FnMut(Need<'a>)) {
    match txn {
        Txn::Write { op, .. } => op_needs(op, need),
        Txn::Multi { ops, .. } => ops.iter().for_each(|op| op_needs(op, need)),
        Txn::CloseSession { session } => need(Need::Ephemerals(*session)),
        Txn::Reap { path } => path_needs(path, need),
        Txn::NoOp | Txn::CreateSession { .. } | Txn::RenewSession { .. } => {}
    }
}

fn op_needs<'a>(op: &Op<'a>, need: &mut impl FnMut(Need<'a>)) {
    match *op {
        // A sequential znode's name is known only when its turn comes.
        Op::Create { path, sequential: true, .. } => {
            if let Some(parent) = parent_of(path) {
                need(Need::Znode(parent));
            }
        }
        Op::Create { path, .. } | Op::Delete { path, .. } => path_needs(path, need),
        Op::SetData { path, .. } | Op::SetAcl { path, .. } | Op::Check { path, .. } => need(Need::Znode(path)),
        Op::Refused(_) => {}
    }
}

fn path_needs<'a>(path: &'a str, need: &mut impl FnMut(Need<'a>)) {
    if let Some(parent) = parent_of(path) {
        need(Need::Znode(parent));
    }
    need(Need::Znode(path));
}

impl Need<'_> {
    /// What to fetch, unless memory has it.
    pub fn missing_in(self, view: &mut impl View) -> Option<FetchWhat> {
        match self {
            Need::Znode(path) => {
                key::with_znode(path, |key| view.holds(key).is_none().then(|| FetchWhat::Record(key.into())))?
            }
            Need::Ephemerals(session) => {
                let prefix = key::ephemerals_prefix(session);
                view.keys_under(&prefix).is_none().then_some(FetchWhat::KeysUnder(prefix))
            }
        }
    }
}

/// The parent as create and delete see it: `/` is in `/`, so that creating it says NodeExists (surface 13.12).
fn parent_of(path: &str) -> Option<&str> {
    if path == "/" { Some("/") } else { parent_and_name(path).map(|(parent, _)| parent) }
}

/// Why an operation stopped.
enum Stop {
    /// A record is not in memory; which one is noted.
    Missing,
    /// A record is not what was written.
    Damaged(&'static str),
    /// ZooKeeper's answer.
    Failed(ErrorCode),
}

impl From<ErrorCode> for Stop {
    fn from(code: ErrorCode) -> Self {
        Self::Failed(code)
    }
}

/// A znode's record.
struct Loaded {
    record: Bytes,
}

impl Loaded {
    fn znode(&self) -> Result<Znode<'_>, Stop> {
        Znode::decode(&self.record).map_err(|_| Stop::Damaged("a znode's record does not decode"))
    }

    fn acl(&self, znode: &Znode<'_>) -> Bytes {
        self.record.slice_ref(znode.acl)
    }
}

/// One entry being tried: changes are laid over the state and installed only when all of it succeeded.
struct Attempt<'a, V> {
    view: &'a mut V,
    payload: &'a Bytes,
    zxid: i64,
    header: Header,
    changes: Overlay,
    fired: Vec<Fired>,
    totals: Totals,
    digest: u128,
    missing: Vec<FetchWhat>,
}

/// Whom an operation is done for.
#[derive(Clone, Copy)]
struct Asker<'a> {
    session: SessionId,
    identity: &'a Identity,
}

impl<V: View> Attempt<'_, V> {
    /// Asks for everything at once that the entry is known to need: one round of fetches instead of one per record.
    fn want(&mut self, txn: &Txn<'_>) {
        let Self { view, missing, .. } = self;
        needs(txn, &mut |need| missing.extend(need.missing_in(*view)));
    }

    fn run(&mut self, txn: &Txn<'_>) -> Result<Outcome, Stop> {
        match txn {
            Txn::NoOp => Ok(Outcome::Nothing),
            Txn::Write { session, identity, op } => {
                let asker = Asker { session: *session, identity };
                let done = self.live(asker.session).and_then(|()| self.op(asker, op));
                settle(done).map(Outcome::Write)
            }
            Txn::Multi { session, identity, ops } => {
                self.multi(Asker { session: *session, identity }, ops).map(Outcome::Multi)
            }
            Txn::CreateSession { timeout_ms, secret } => {
                let session = Session { timeout_ms: *timeout_ms, secret: *secret };
                self.put(key::session(SessionId(self.zxid)), None, Some(session.encode()));
                Ok(Outcome::SessionCreated(session))
            }
            Txn::RenewSession { session, timeout_ms } => {
                let renewed = self.renew(*session, *timeout_ms);
                settle(renewed).map(|renewed| Outcome::SessionRenewed { session: *session, renewed })
            }
            Txn::CloseSession { session } => self.close(*session).map(|()| Outcome::SessionClosed(*session)),
            Txn::Reap { path } => self.reap(path).map(Outcome::Reaped),
        }
    }

    fn multi(&mut self, asker: Asker<'_>, ops: &[Op<'_>]) -> Result<Result<Vec<OpOutcome>, MultiFailure>, Stop> {
        let (totals, digest) = (self.totals, self.digest);
        let mut outcomes = Vec::with_capacity(ops.len());
        let mut failure = None;
        for (at, op) in ops.iter().enumerate() {
            match settle(self.live(asker.session).and_then(|()| self.op(asker, op)))? {
                Ok(outcome) => outcomes.push(outcome),
                Err(code) => {
                    failure = Some(MultiFailure { ops: ops.len(), at, code });
                    break;
                }
            }
        }
        let Some(failure) = failure else { return Ok(Ok(outcomes)) };
        self.changes.clear();
        self.fired.clear();
        (self.totals, self.digest) = (totals, digest);
        Ok(Err(failure))
    }

    fn op(&mut self, asker: Asker<'_>, op: &Op<'_>) -> Result<OpOutcome, Stop> {
        match *op {
            Op::Create { path, data, acl, kind, sequential, with_stat } => {
                let (path, stat) = self.create(asker, path, data, acl, kind, sequential)?;
                Ok(OpOutcome::Created { path, stat, with_stat })
            }
            Op::Delete { path, version } => self.delete(asker, path, version).map(|()| OpOutcome::Deleted),
            Op::SetData { path, data, version } => self.set_data(asker, path, data, version).map(OpOutcome::DataSet),
            Op::SetAcl { path, acl, version } => self.set_acl(asker, path, acl, version).map(OpOutcome::AclSet),
            Op::Check { path, version } => {
                let loaded = self.existing(path)?;
                let znode = loaded.znode()?;
                permit(asker, Perms::READ, &znode)?;
                match_version(version, znode.version)?;
                Ok(OpOutcome::Checked)
            }
            Op::Refused(code) => Err(code.into()),
        }
    }

    fn create(
        &mut self,
        asker: Asker<'_>,
        asked: &str,
        data: Option<&[u8]>,
        acl: &[u8],
        kind: CreateKind,
        sequential: bool,
    ) -> Result<(Text, Stat), Stop> {
        let parent_path = parent_of(asked).ok_or(ErrorCode::BadArguments)?;
        let parent = self.existing(parent_path)?;
        let parent_znode = parent.znode()?;
        permit(asker, Perms::CREATE, &parent_znode)?;
        let path =
            if sequential { Text::from(format!("{asked}{:010}", parent_znode.creates)) } else { self.text(asked) };
        if !path::is_valid(&path) {
            return Err(ErrorCode::BadArguments.into());
        }
        if self.load(&path)?.is_some() {
            return Err(ErrorCode::NodeExists.into());
        }
        if matches!(parent_znode.kind, Kind::Ephemeral(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals.into());
        }
        let znode = Znode {
            czxid: self.zxid,
            mzxid: self.zxid,
            pzxid: self.zxid,
            ctime: self.header.wall_ms,
            mtime: self.header.wall_ms,
            version: 0,
            creates: 0,
            aversion: 0,
            num_children: 0,
            kind: Kind::of(kind, asker.session),
            data: self.put_data(&path, None, data),
            acl,
        };
        // Sticks at the maximum, and then neither count nor pzxid move on (surface 4, overflow).
        let counted = parent_znode.creates < i32::MAX;
        let grown = Znode {
            creates: parent_znode.creates + i32::from(counted),
            pzxid: if counted { self.zxid } else { parent_znode.pzxid },
            num_children: parent_znode.num_children.wrapping_add(1),
            ..parent_znode
        };
        self.replace(parent_path, &parent, &parent_znode, &grown);
        self.birth(&path, &znode);
        let (own_acl, parent_acl) = (Bytes::copy_from_slice(acl), parent.acl(&parent_znode));
        self.fire(EventKind::NodeCreated, path.clone(), own_acl);
        self.fire(EventKind::NodeChildrenChanged, Text::from(parent_path), parent_acl);
        Ok((path, znode.stat()))
    }

    fn delete(&mut self, asker: Asker<'_>, path: &str, version: i32) -> Result<(), Stop> {
        let parent_path = parent_of(path).ok_or(ErrorCode::BadArguments)?;
        let parent = self.existing(parent_path)?;
        permit(asker, Perms::DELETE, &parent.znode()?)?;
        let loaded = self.existing(path)?;
        let znode = loaded.znode()?;
        match_version(version, znode.version)?;
        if znode.num_children > 0 {
            return Err(ErrorCode::NotEmpty.into());
        }
        let path = self.text(path);
        self.death(&path, parent_path, &parent, &loaded)
    }

    fn set_data(&mut self, asker: Asker<'_>, path: &str, data: Option<&[u8]>, version: i32) -> Result<Stat, Stop> {
        let loaded = self.existing(path)?;
        let znode = loaded.znode()?;
        permit(asker, Perms::WRITE, &znode)?;
        match_version(version, znode.version)?;
        let changed = Znode {
            mzxid: self.zxid,
            mtime: self.header.wall_ms,
            version: znode.version.wrapping_add(1),
            data: self.put_data(path, Some(&znode), data),
            ..znode
        };
        self.totals.data_bytes = self
            .totals
            .data_bytes
            .wrapping_sub(u64::from(znode.data.length()))
            .wrapping_add(u64::from(changed.data.length()));
        self.replace(path, &loaded, &znode, &changed);
        let path = self.text(path);
        self.fire(EventKind::NodeDataChanged, path, loaded.acl(&znode));
        Ok(changed.stat())
    }

    fn set_acl(&mut self, asker: Asker<'_>, path: &str, acl: &[u8], version: i32) -> Result<Stat, Stop> {
        let loaded = self.existing(path)?;
        let znode = loaded.znode()?;
        permit(asker, Perms::ADMIN, &znode)?;
        match_version(version, znode.aversion)?;
        let changed = Znode { aversion: znode.aversion.wrapping_add(1), acl, ..znode };
        self.replace(path, &loaded, &znode, &changed);
        Ok(changed.stat())
    }

    fn renew(&mut self, id: SessionId, timeout_ms: u32) -> Result<Session, Stop> {
        let key = key::session(id);
        let record = self.get(&key)?.ok_or(ErrorCode::SessionExpired)?;
        let stored = Session::decode(&record).map_err(|_| Stop::Damaged("a session's record does not decode"))?;
        let renewed = Session { timeout_ms, ..stored };
        let before = record_hash(&key, &record);
        self.put(key, Some(before), Some(renewed.encode()));
        Ok(renewed)
    }

    /// Ends a session and everything that lived with it, in one step (surface 2.3, closeSession).
    fn close(&mut self, id: SessionId) -> Result<(), Stop> {
        let session = key::session(id);
        let Some(record) = self.get(&session)? else { return Ok(()) };
        let prefix = key::ephemerals_prefix(id);
        let owned = self.view.keys_under(&prefix).ok_or(Stop::Missing)?;
        let paths: Vec<&str> = owned.iter().filter_map(|key| std::str::from_utf8(&key[prefix.len()..]).ok()).collect();
        for path in &paths {
            path_needs(path, &mut |need| self.missing.extend(need.missing_in(self.view)));
        }
        if !self.missing.is_empty() {
            return Err(Stop::Missing);
        }
        for path in paths {
            let parent_path = parent_of(path).ok_or(Stop::Damaged("an ephemeral without a parent"))?;
            let (Some(parent), Some(loaded)) = (self.load(parent_path)?, self.load(path)?) else {
                return Err(Stop::Damaged("a session owns an ephemeral that is not there"));
            };
            self.death(&Text::from(path), parent_path, &parent, &loaded)?;
        }
        let before = record_hash(&session, &record);
        self.put(session, Some(before), None);
        Ok(())
    }

    fn reap(&mut self, path: &str) -> Result<bool, Stop> {
        let Some(loaded) = self.load(path)? else { return Ok(false) };
        if !loaded.znode()?.is_reapable() {
            return Ok(false);
        }
        let parent_path = parent_of(path).ok_or(Stop::Damaged("a container without a parent"))?;
        let parent = self.load(parent_path)?.ok_or(Stop::Damaged("a container without a parent"))?;
        let path = self.text(path);
        self.death(&path, parent_path, &parent, &loaded).map(|()| true)
    }

    fn live(&mut self, session: SessionId) -> Result<(), Stop> {
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

    fn existing(&mut self, path: &str) -> Result<Loaded, Stop> {
        self.load(path)?.ok_or(Stop::Failed(ErrorCode::NoNode))
    }

    fn load(&mut self, path: &str) -> Result<Option<Loaded>, Stop> {
        match key::with_znode(path, |key| self.get(key)) {
            Some(found) => Ok(found?.map(|record| Loaded { record })),
            None => Ok(None),
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, Stop> {
        if let Some(change) = self.changes.get(key) {
            return Ok(change.after.clone());
        }
        match self.view.record(key) {
            Found::Record(record) => Ok(Some(record)),
            Found::Absent => Ok(None),
            Found::Unknown => {
                self.missing.push(FetchWhat::Record(key.into()));
                Err(Stop::Missing)
            }
        }
    }

    /// Lays a change over the state. `before` is the hash of the record that was there.
    fn put(&mut self, key: Key, before: Option<u128>, after: Option<Bytes>) {
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(before);
        }
        if let Some(after) = &after {
            self.digest = self.digest.wrapping_add(record_hash(&key, after));
        }
        self.changes.put(key, Change { existed: before.is_some(), after });
    }

    fn put_znode(&mut self, path: &str, before: Option<&Loaded>, after: Option<&Znode<'_>>) {
        // It was loaded by this path, or its path is valid: there is such a key.
        if let Some(key) = key::znode(path) {
            let before = before.map(|loaded| record_hash(&key, &loaded.record));
            self.put(key, before, after.map(Znode::encode));
        }
    }

    fn put_mark(&mut self, key: Key, there: bool) {
        let hash = record_hash(&key, &[]);
        if there {
            self.put(key, None, Some(Bytes::new()));
        } else {
            self.put(key, Some(hash), None);
        }
    }

    /// Puts data where it belongs and says what the znode's record holds of it.
    fn put_data<'d>(&mut self, path: &str, before: Option<&Znode<'_>>, data: Option<&'d [u8]>) -> Data<'d> {
        let old = before.and_then(|znode| if let Data::Large { hash, .. } = znode.data { Some(hash) } else { None });
        let large = data.filter(|bytes| bytes.len() > INLINE_DATA_MAX);
        if let (Some(key), true) = (key::data(path), old.is_some() || large.is_some()) {
            // Copied: a slice would keep the whole buffer that many entries share.
            let after = large.map(Bytes::copy_from_slice);
            let hash = large.map_or(0, |bytes| record_hash(&key, bytes));
            self.put(key, old, after);
            if let Some(bytes) = large {
                return Data::Large { length: u32::try_from(bytes.len()).unwrap_or(u32::MAX), hash };
            }
        }
        data.map_or(Data::Null, Data::Inline)
    }

    /// Replaces a znode's record, and keeps the reaper's list true.
    fn replace(&mut self, path: &str, loaded: &Loaded, before: &Znode<'_>, after: &Znode<'_>) {
        self.put_znode(path, Some(loaded), Some(after));
        self.mark_reapable(path, before.is_reapable(), after.is_reapable());
    }

    fn mark_reapable(&mut self, path: &str, before: bool, after: bool) {
        if before != after {
            self.put_mark(key::reapable(path), after);
            self.totals.reapable =
                if after { self.totals.reapable + 1 } else { self.totals.reapable.saturating_sub(1) };
        }
    }

    fn birth(&mut self, path: &str, znode: &Znode<'_>) {
        self.put_znode(path, None, Some(znode));
        self.totals.znodes += 1;
        self.totals.data_bytes += weight(path, znode);
        if let Kind::Ephemeral(owner) = znode.kind {
            self.put_mark(key::ephemeral(owner, path), true);
            self.totals.ephemerals += 1;
        }
    }

    /// Takes a znode out of the tree and tells its parent.
    fn death(&mut self, path: &Text, parent_path: &str, parent: &Loaded, loaded: &Loaded) -> Result<(), Stop> {
        let (parent_znode, znode) = (parent.znode()?, loaded.znode()?);
        let shrunk =
            Znode { num_children: parent_znode.num_children.wrapping_sub(1), pzxid: self.zxid, ..parent_znode };
        self.replace(parent_path, parent, &parent_znode, &shrunk);
        self.put_znode(path, Some(loaded), None);
        self.put_data(path, Some(&znode), None);
        self.mark_reapable(path, znode.is_reapable(), false);
        self.totals.znodes = self.totals.znodes.saturating_sub(1);
        self.totals.data_bytes = self.totals.data_bytes.saturating_sub(weight(path, &znode));
        if let Kind::Ephemeral(owner) = znode.kind {
            self.put_mark(key::ephemeral(owner, path), false);
            self.totals.ephemerals = self.totals.ephemerals.saturating_sub(1);
        }
        self.fire(EventKind::NodeDeleted, path.clone(), loaded.acl(&znode));
        self.fire(EventKind::NodeChildrenChanged, Text::from(parent_path), parent.acl(&parent_znode));
        Ok(())
    }

    fn fire(&mut self, kind: EventKind, path: Text, acl: Bytes) {
        self.fired.push(Fired { kind, path, acl });
    }

    /// The text of the entry itself, shared.
    fn text(&self, part: &str) -> Text {
        Text::from_utf8_lossy(self.payload.slice_ref(part.as_bytes()))
    }
}

fn permit(asker: Asker<'_>, perms: Perms, znode: &Znode<'_>) -> Result<(), Stop> {
    if asker.identity.may(perms, znode.acl) { Ok(()) } else { Err(ErrorCode::NoAuth.into()) }
}

fn match_version(asked: i32, version: i32) -> Result<(), Stop> {
    if asked == -1 || asked == version { Ok(()) } else { Err(ErrorCode::BadVersion.into()) }
}

/// Separates ZooKeeper's answers from what stops an attempt.
fn settle<T>(done: Result<T, Stop>) -> Result<Result<T, ErrorCode>, Stop> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Failed(code)) => Ok(Err(code)),
        Err(stop @ (Stop::Missing | Stop::Damaged(_))) => Err(stop),
    }
}

/// What a znode adds to ZooKeeper's approximate_data_size.
fn weight(path: &str, znode: &Znode<'_>) -> u64 {
    path.len() as u64 + u64::from(znode.data.length())
}
