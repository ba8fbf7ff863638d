//! Applies entries. The result is a function of the state and the entry alone.
//!
//! Apply is total: any bytes have an outcome. Checks run in ZooKeeper's order (surface 2.3, 13.7).

use super::attempt::{Attempt, Stop};
use super::fired::Fired;
use super::needs::{Names, Need, parent_of};
use super::quota::{self, Exceeded, Tally};
use crate::record::acl::Identity;
use crate::record::digest::record_hash;
use crate::record::key;
use crate::record::znode::{Data, Kind, Mark, Session, Totals, Znode};
use crate::state::Overlay;
use crate::state::{Stuck, View};
use crate::txn::{self, Op, Txn};
use bytes::Bytes;
use std::mem;
use zoolet_model::{CreateKind, ErrorCode, EventKind, Perms, SessionId, Stat, Text, Zxid, path};
use zoolet_zab::{Mutation, mutation};

/// The effects of one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// Result for the requester.
    pub outcome: Outcome,
    /// Records to install, all or none.
    pub changes: Overlay,
    /// Watches to fire, in order.
    pub fired: Vec<Fired>,
    /// Totals after the entry.
    pub totals: Totals,
    /// Digest after the entry.
    pub digest: u128,
    /// The limit of a quota that the entry passed, or that refused it.
    pub exceeded: Option<Exceeded>,
    /// Whether the entry read znodes to count them for a quota.
    pub counts: bool,
    names: Names,
}

/// Empty buffers for trying an entry, reused between entries.
#[derive(Debug, Default)]
pub struct Buffers {
    pub(super) changes: Overlay,
    pub(super) fired: Vec<Fired>,
    pub(super) names: Names,
}

/// Maximum capacity of reused buffers, in items. Larger buffers are freed.
const BUFFERED: usize = 64;

impl Applied {
    /// Takes the buffers, emptied, for the next entry.
    pub fn take_buffers(&mut self) -> Buffers {
        let Self { changes, fired, names, .. } = self;
        if changes.capacity() > BUFFERED || fired.capacity() > BUFFERED {
            return Buffers::default();
        }
        changes.clear();
        fired.clear();
        Buffers { changes: mem::take(changes), fired: mem::take(fired), names: mem::take(names) }
    }
}

/// The result of one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A no-op, or bytes that this release cannot decode.
    Nothing,
    /// A single operation.
    Write(Result<OpOutcome, ErrorCode>),
    /// Several operations, all applied or none; the error names the failed one.
    Multi(Result<Vec<OpOutcome>, MultiFailure>),
    /// A session began.
    SessionCreated(Session),
    /// A local session became global.
    SessionUpgraded(SessionId, Session),
    /// A session ended, or had ended before.
    SessionClosed(SessionId),
    /// A session's new timeout in milliseconds. `None` if the session had ended before.
    SessionRenewed(SessionId, Option<u32>),
    /// A container or TTL znode was examined; true if it was deleted.
    Reaped(bool),
    /// More of a subtree was counted; true if nothing of it is left to count.
    Counted(bool),
}

/// The failed operation of a multi.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MultiFailure {
    /// Number of operations in the multi.
    pub ops: usize,
    /// Index of the first operation that failed.
    pub at: usize,
    /// Reason of the failure.
    pub code: ErrorCode,
}

/// The result of one successful operation.
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
/// [`Stuck`] if a record is not in memory or is damaged; the state is unchanged.
pub fn apply(
    view: &mut impl View,
    totals: Totals,
    digest: u128,
    zxid: Zxid,
    payload: &Bytes,
    buffers: Buffers,
) -> Result<Applied, Stuck> {
    let Ok((header, txn)) = txn::decode(payload) else {
        let Buffers { changes, fired, names } = buffers;
        let (outcome, exceeded, counts) = (Outcome::Nothing, None, false);
        return Ok(Applied { outcome, changes, fired, totals, digest, exceeded, counts, names });
    };
    let mut attempt = Attempt::new(view, payload, header, buffers);
    attempt.zxid = zxid.as_i64();
    attempt.totals = Totals { ensemble_ms: totals.ensemble_ms.max(header.ensemble_ms), ..totals };
    attempt.digest = digest;
    let outcome = attempt.run(&txn).and_then(|outcome| attempt.count_tally().map(|()| outcome));
    if matches!(outcome, Err(Stop::Missing)) {
        attempt.want(&txn);
    }
    let Attempt { changes, fired, names, totals, digest, tally: Tally { exceeded, .. }, missing, counts, .. } = attempt;
    match outcome {
        Ok(outcome) => Ok(Applied { outcome, changes, fired, totals, digest, exceeded, counts, names }),
        Err(Stop::Damaged(what)) => Err(Stuck::Damaged(what)),
        Err(Stop::Missing | Stop::Failed(_)) => Err(Stuck::Missing(missing)),
    }
}

/// The session and identity that request an operation.
#[derive(Clone, Copy)]
struct Asker<'a> {
    session: SessionId,
    identity: &'a Identity,
}

impl<V: View> Attempt<'_, V> {
    fn run(&mut self, txn: &Txn<'_>) -> Result<Outcome, Stop> {
        match txn {
            Txn::NoOp | Txn::Membership(_) => Ok(Outcome::Nothing),
            Txn::Write { session, identity, op } => {
                let asker = Asker { session: *session, identity };
                let done = self.live(asker.session).and_then(|()| self.op(asker, op));
                separate_errors(done).map(Outcome::Write)
            }
            Txn::Multi { session, identity, ops } => {
                self.multi(Asker { session: *session, identity }, ops).map(Outcome::Multi)
            }
            Txn::CreateSession { timeout_ms, secret, home } => {
                let session = Session { timeout_ms: *timeout_ms, secret: *secret, home: *home };
                self.put(key::session(SessionId(self.zxid)), None, Some(session.encode()));
                Ok(Outcome::SessionCreated(session))
            }
            Txn::CloseSession { session } => self.close(*session).map(|()| Outcome::SessionClosed(*session)),
            Txn::RenewSession { session, timeout_ms } => {
                let renewed = self.renew(*session, *timeout_ms)?;
                Ok(Outcome::SessionRenewed(*session, renewed.then_some(*timeout_ms)))
            }
            Txn::UpgradeSession { session, timeout_ms, secret } => {
                let begun = Session { timeout_ms: *timeout_ms, secret: *secret, home: None };
                let upgraded = self.upgrade(*session, begun)?;
                Ok(if upgraded { Outcome::SessionUpgraded(*session, begun) } else { Outcome::Nothing })
            }
            Txn::Reap { path } => self.reap(path).map(Outcome::Reaped),
            Txn::CountUsage { path } => self.count_usage(path).map(Outcome::Counted),
        }
    }

    fn multi(&mut self, asker: Asker<'_>, ops: &[Op<'_>]) -> Result<Result<Vec<OpOutcome>, MultiFailure>, Stop> {
        let (totals, digest) = (self.totals, self.digest);
        let mut outcomes = Vec::with_capacity(ops.len());
        let mut failure = None;
        for (at, op) in ops.iter().enumerate() {
            match separate_errors(self.live(asker.session).and_then(|()| self.op(asker, op)))? {
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
        self.forget_tally();
        (self.totals, self.digest) = (totals, digest);
        Ok(Err(failure))
    }

    fn op(&mut self, asker: Asker<'_>, op: &Op<'_>) -> Result<OpOutcome, Stop> {
        self.count_tally()?;
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
        if kind == CreateKind::Ephemeral && asker.session.is_named_local() {
            // No session of the state could own it.
            return Err(ErrorCode::EphemeralOnLocalSession.into());
        }
        let parent_path = parent_of(asked).ok_or(ErrorCode::BadArguments)?;
        let parent = self.existing(parent_path)?;
        let parent_znode = parent.znode()?;
        permit(asker, Perms::CREATE, &parent_znode)?;
        let path = if sequential { self.names.text(asked, parent_znode.creates) } else { self.text(asked) };
        if !path::is_valid(&path) {
            return Err(ErrorCode::BadArguments.into());
        }
        if self.load(&path)?.is_some() {
            return Err(ErrorCode::NodeExists.into());
        }
        if matches!(parent_znode.kind, Kind::Ephemeral(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals.into());
        }
        let bytes = data.map_or(0, <[u8]>::len) as i64;
        self.check_quota(&path, 1, bytes)?;
        let counted = quota::shown_by(&path).map(|subtree| self.begin_usage(subtree)).transpose()?;
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
            kind: Kind::of(kind, asker.session, self.totals.ensemble_ms),
            data: match &counted {
                Some(counted) => Data::Usage(counted.usage()),
                None => self.put_data(&path, None, data),
            },
            acl,
        };
        // At the maximum, neither the count nor pzxid moves any more (surface 4, overflow).
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
        self.fire(EventKind::NodeChildrenChanged, self.parent_text(parent_path), parent_acl);
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
        let parent = self.shrink(self.parent_text(parent_path), &parent, 1)?;
        self.death(&path, &loaded, &parent)
    }

    fn set_data(&mut self, asker: Asker<'_>, path: &str, data: Option<&[u8]>, version: i32) -> Result<Stat, Stop> {
        let loaded = self.existing(path)?;
        let znode = loaded.znode()?;
        permit(asker, Perms::WRITE, &znode)?;
        let bytes = data.map_or(0, <[u8]>::len) as i64 - i64::from(znode.data.length());
        self.check_quota(path, 0, bytes)?;
        match_version(version, znode.version)?;
        let changed = Znode {
            mzxid: self.zxid,
            mtime: self.header.wall_ms,
            version: znode.version.wrapping_add(1),
            kind: znode.kind.renewed(self.totals.ensemble_ms),
            data: match znode.data {
                // Clients cannot falsify a usage, but the Stat shows that they tried.
                Data::Usage(_) => znode.data,
                Data::Null | Data::Inline(_) | Data::Large { .. } => self.put_data(path, Some(&znode), data),
            },
            ..znode
        };
        self.note_data_length(&znode, &changed);
        self.tally(path, 0, bytes);
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

    /// Ends a session and deletes its ephemerals in one step (surface 2.3, closeSession).
    fn close(&mut self, id: SessionId) -> Result<(), Stop> {
        let session = key::session(id);
        let Some(record) = self.get(&session)? else { return Ok(()) };
        let prefix = key::ephemerals_prefix(id);
        let owned = self.view.keys_under(&prefix).ok_or(Stop::Missing)?;
        let paths: Vec<&str> = owned.iter().filter_map(|key| std::str::from_utf8(&key[prefix.len()..]).ok()).collect();
        // Siblings are mostly adjacent: their parent is looked up and changed once for all of them.
        let families: Vec<&[&str]> = paths.chunk_by(|one, next| parent_of(one) == parent_of(next)).collect();
        for family in &families {
            for need in parent_of(family[0]).iter().chain(*family).map(|path| Need::Znode(path)) {
                self.missing.extend(need.missing_in(self.view));
            }
        }
        if !self.missing.is_empty() {
            return Err(Stop::Missing);
        }
        for family in families {
            let parent_path = parent_of(family[0]).ok_or(Stop::Damaged("an ephemeral without a parent"))?;
            let parent = self.load(parent_path)?.ok_or(Stop::Damaged("an ephemeral without a parent"))?;
            let parent = self.shrink(Text::from(parent_path), &parent, family.len() as i32)?;
            for path in family {
                let there = self.load(path)?;
                let loaded = there.ok_or(Stop::Damaged("a session owns an ephemeral that is missing"))?;
                self.death(&Text::from(*path), &loaded, &parent)?;
            }
        }
        let before = record_hash(&session, &record);
        self.put(session, Some(before), None);
        self.forget_ended();
        Ok(())
    }

    /// Adds a session that began local; returns false if the state has it already.
    fn upgrade(&mut self, id: SessionId, session: Session) -> Result<bool, Stop> {
        let key = key::session(id);
        if !id.began_local() || id.is_named_local() || self.get(&key)?.is_some() {
            return Ok(false);
        }
        self.put(key, None, Some(session.encode()));
        Ok(true)
    }

    /// Replaces a session's timeout; returns false if the session has ended.
    fn renew(&mut self, id: SessionId, timeout_ms: u32) -> Result<bool, Stop> {
        let key = key::session(id);
        let Some(record) = self.get(&key)? else { return Ok(false) };
        let session = Session::decode(&record).map_err(|_| Stop::Damaged("a session's record does not decode"))?;
        let before = record_hash(&key, &record);
        self.put(key, Some(before), Some(Session { timeout_ms, ..session }.encode()));
        Ok(true)
    }

    fn is_due(&self, znode: &Znode<'_>, due_ms: u64) -> bool {
        if mutation::is_on(Mutation::ReapByWallClock)
            && let Kind::Ttl { ttl_ms, .. } = znode.kind
        {
            return self.header.wall_ms.saturating_sub(znode.mtime) >= i64::try_from(ttl_ms).unwrap_or(i64::MAX);
        }
        due_ms <= self.totals.ensemble_ms
    }

    /// Deletes a znode that the reaper may delete now.
    ///
    /// A write that was in flight when the deletion was proposed may have saved it: a new child, or
    /// new data of a TTL znode.
    fn reap(&mut self, path: &str) -> Result<bool, Stop> {
        let Some(loaded) = self.load(path)? else { return Ok(false) };
        let znode = loaded.znode()?;
        match znode.mark() {
            Some(Mark::Emptied) => {}
            Some(Mark::Due(due_ms)) if self.is_due(&znode, due_ms) => {}
            Some(Mark::Due(_)) | None => return Ok(false),
        }
        let parent_path = parent_of(path).ok_or(Stop::Damaged("a reapable znode without a parent"))?;
        let parent = self.load(parent_path)?.ok_or(Stop::Damaged("a reapable znode without a parent"))?;
        let path = self.text(path);
        let parent = self.shrink(self.parent_text(parent_path), &parent, 1)?;
        self.death(&path, &loaded, &parent)?;
        self.forget_ended();
        Ok(true)
    }
}

fn permit(asker: Asker<'_>, perms: Perms, znode: &Znode<'_>) -> Result<(), Stop> {
    if asker.identity.may(perms, znode.acl) { Ok(()) } else { Err(ErrorCode::NoAuth.into()) }
}

fn match_version(asked: i32, version: i32) -> Result<(), Stop> {
    if asked == -1 || asked == version { Ok(()) } else { Err(ErrorCode::BadVersion.into()) }
}

/// Separates ZooKeeper errors from reasons to abandon the attempt.
fn separate_errors<T>(done: Result<T, Stop>) -> Result<Result<T, ErrorCode>, Stop> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Failed(code)) => Ok(Err(code)),
        Err(stop @ (Stop::Missing | Stop::Damaged(_))) => Err(stop),
    }
}
