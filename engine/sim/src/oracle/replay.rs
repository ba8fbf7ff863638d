//! Compares every answer with the naive reference, and computes the events owed to each connection.
//!
//! The history is replayed in zxid order. An entry changes the reference's tree and fires watches.
//! Then every answer with that zxid is compared, and sets its watch. The result is a script per
//! connection: its answers, and the events it is owed between them. The script is exact, because an
//! answer's zxid names the state it was computed from. An event comes before the first answer from
//! a state that includes the change, and after every answer from an earlier state (surface 5.4).

use super::cut_short::CutShort;
use super::facts::Facts;
use super::history::Answer;
use super::origin::{Origin, Origins, refusal_of};
use super::request::{has_place, is_refused};
use super::ttl::Life;
use super::violation::Violation;
use super::watch::{Script, Watches};
use crate::reference::{Change, Tree, Writer, listed, missed, watch_set_by};
use bytes::Bytes;
use std::collections::BTreeSet;
use zoolet_machine::txn::Txn;
use zoolet_model::{ErrorCode, EventKind, Reply, Request, SessionId, SetWatches};

/// A change of a znode: created, deleted, or given other data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// Zxid of the entry that changed it.
    pub zxid: i64,
    /// Time at which the first server applied the entry, in microseconds.
    pub at_us: u64,
    /// The session that the entry acts for or ends; `None` if the ensemble reaped the znode.
    pub session: Option<SessionId>,
    /// Whether the change is part of that session's end.
    pub is_end: bool,
    /// The kind of change.
    pub kind: EventKind,
    /// The znode's path.
    pub path: String,
    /// Its data after the entry; `None` if it has none or is deleted.
    pub data: Option<Bytes>,
}

struct Replay<'f, 'h> {
    facts: &'f Facts<'h>,
    tree: Tree,
    live: BTreeSet<SessionId>,
    watches: Watches,
    scripts: Vec<Script>,
    cut_short: Vec<CutShort<'h>>,
    zxid: i64,
    changed: Vec<Changed>,
    /// TTL znodes that were reaped.
    lives: Vec<Life>,
}

/// Compares every answer. Returns each connection's script, and the ends of all TTL znodes.
pub(super) fn check(facts: &Facts<'_>, origins: &Origins) -> Result<(Vec<Script>, Vec<Life>), Violation> {
    let Replay { tree, scripts, mut lives, .. } = replay(facts, origins)?;
    lives.extend(tree.childless_ttls().map(|(path, ttl)| Life { path: path.to_owned(), ttl, reaped: None }));
    Ok((scripts, lives))
}

/// Compares every answer and returns all changes of the tree, in order.
pub(super) fn changed(facts: &Facts<'_>, origins: &Origins) -> Result<Vec<Changed>, Violation> {
    replay(facts, origins).map(|replay| replay.changed)
}

fn replay<'f, 'h>(facts: &'f Facts<'h>, origins: &Origins) -> Result<Replay<'f, 'h>, Violation> {
    let mut replay = Replay {
        facts,
        tree: Tree::new(),
        live: BTreeSet::new(),
        watches: Watches::default(),
        scripts: facts.history.connections.iter().map(|_| Script::default()).collect(),
        cut_short: CutShort::all(facts),
        zxid: 0,
        changed: Vec::new(),
        lives: Vec::new(),
    };
    let mut reads: Vec<(i64, usize)> = Vec::new();
    for (at, operation) in facts.history.operations.iter().enumerate() {
        if let Some(answer) = &operation.answer
            && has_place(&operation.request)
            && origins.effect[at].is_none()
        {
            reads.push((answer.zxid, at));
        }
    }
    reads.sort_unstable();
    let mut reads = reads.into_iter().peekable();
    for (at, entry) in facts.entries.iter().enumerate() {
        while let Some((_, read)) = reads.next_if(|(zxid, _)| *zxid < entry.zxid) {
            replay.read(read)?;
        }
        replay.cut_short();
        replay.zxid = entry.zxid;
        replay.entry(at, origins.of_entry[at])?;
    }
    reads.try_for_each(|(_, read)| replay.read(read))?;
    replay.cut_short();
    Ok(replay)
}

impl Replay<'_, '_> {
    fn entry(&mut self, at: usize, origin: Origin) -> Result<(), Violation> {
        let entry = &self.facts.entries[at];
        let mut changes = Vec::new();
        self.tree.pass_time(entry.ensemble_ms);
        match (&entry.txn, origin) {
            (Some(Txn::CreateSession { .. } | Txn::UpgradeSession { .. }), _) => self.live.extend(entry.begun()),
            (Some(Txn::CloseSession { session }), _) => {
                if self.live.contains(session) {
                    self.tree.end_session(session.0, entry.zxid, &mut changes);
                }
            }
            (Some(Txn::Reap { path }), _) => {
                let ttl = self.tree.ttl(path);
                self.tree.reap(path, entry.zxid, &mut changes);
                if let Some(ttl) = ttl.filter(|_| self.tree.get(path).is_none()) {
                    self.lives.push(Life { path: (*path).to_owned(), ttl, reaped: Some(at) });
                }
            }
            (Some(Txn::CountUsage { path }), _) => self.tree.count_usage(path, entry.zxid),
            (Some(Txn::Write { session, .. } | Txn::Multi { session, .. }), Origin::Operation(operation)) => {
                let expected = self.write(*session, operation, (entry.wall_ms, entry.enforces_quotas), &mut changes);
                self.record(at, &changes);
                self.fire(&changes);
                return self.answered(operation, expected);
            }
            // A write without a request is already a violation. Meaningless bytes change nothing.
            (
                Some(Txn::Write { .. } | Txn::Multi { .. } | Txn::NoOp | Txn::RenewSession { .. } | Txn::Membership(_))
                | None,
                _,
            ) => {}
        }
        self.record(at, &changes);
        self.fire(&changes);
        if let Some(Txn::CloseSession { session }) = entry.txn {
            if let Origin::Operation(operation) = origin {
                self.answered(operation, Ok(Reply::Empty))?;
            }
            self.live.remove(&session);
            if let Some(session) = self.facts.sessions.get(&session) {
                self.watches.forget(&session.connections);
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        session: SessionId,
        operation: usize,
        (wall_ms, enforces_quotas): (i64, bool),
        changes: &mut Vec<Change>,
    ) -> Result<Reply, ErrorCode> {
        let asked = self.facts.operation(operation);
        // Its own server judges a local session, and no entry says that it ended.
        if !session.is_named_local() && !self.live.contains(&session) {
            return Err(ErrorCode::SessionExpired);
        }
        if let Some(refusal) = refusal_of(&asked.request) {
            return Err(refusal);
        }
        let ids = self.facts.identities.of_operation(operation).clone();
        let writer = Writer { session: session.0, ids, zxid: self.zxid, wall_ms, enforces_quotas };
        match &asked.request {
            Request::Write(op) => self.tree.answer_write(&writer, op, changes),
            Request::Multi(ops) => self.tree.answer_multi(&writer, ops, changes),
            other => unreachable!("no other request becomes an entry: {other:?}"),
        }
    }

    fn record(&mut self, at: usize, changes: &[Change]) {
        let entry = &self.facts.entries[at];
        for change in changes.iter().filter(|change| change.kind != EventKind::NodeChildrenChanged) {
            self.changed.push(Changed {
                zxid: entry.zxid,
                at_us: entry.at.us,
                session: entry.session(),
                is_end: entry.is_close(),
                kind: change.kind,
                path: change.path.clone(),
                data: self.tree.get(&change.path).and_then(|znode| znode.data.clone()).map(Bytes::from),
            });
        }
    }

    fn fire(&mut self, changes: &[Change]) {
        for change in changes {
            let (zxid, identities, scripts) = (self.zxid, &self.facts.identities, &mut self.scripts);
            self.watches.fire(change, |connection, is_certain| {
                let (may, must) = identities.may_read(connection, zxid, &change.acl);
                if may {
                    scripts[connection].owe(zxid, change, must && is_certain);
                }
            });
        }
    }

    /// Compares an answer that belongs to no entry.
    fn read(&mut self, operation: usize) -> Result<(), Violation> {
        let asked = self.facts.operation(operation);
        let connection = asked.connection;
        let Some(answer) = &asked.answer else { return Ok(()) };
        if is_refused(asked) {
            if let Request::SetWatches(watches) = &asked.request
                && answer.result == Err(ErrorCode::SystemError)
            {
                self.refused_set_watches(connection, watches, !self.facts.base_may_fail(asked));
            }
            self.scripts[connection].answer(operation);
            self.perhaps_watch(operation);
            return Ok(());
        }
        if self.facts.is_ordered(operation) {
            // The client was told without an entry that its session is gone.
            let session = self.facts.connection(connection).session();
            if session.is_some_and(|session| self.live.contains(&session)) {
                return Err(Violation::of("only a session that is gone is told so")
                    .and_operation(self.facts.history, operation));
            }
            self.scripts[connection].answer(operation);
            return Ok(());
        }
        let expected = match &asked.request {
            // Only the end of a local session gets here.
            Request::Ping | Request::CloseSession => Ok(Reply::Empty),
            Request::Sync { path } => Ok(Reply::Synced(path.clone())),
            Request::WhoAmI => Ok(Reply::Ids(self.facts.identities.shown(operation, answer))),
            Request::SetWatches(watches) => {
                self.set_watches(connection, watches);
                Ok(Reply::Empty)
            }
            Request::AddWatch { path, mode } => {
                self.watches.add(connection, path, zoolet_machine::watch::WatchKind::from(*mode).into(), true);
                Ok(Reply::WatchAdded)
            }
            Request::CheckWatches { path, kind } => found(self.watches.has(connection, path, *kind), answer),
            Request::RemoveWatches { path, kind } => {
                let there = self.watches.has(connection, path, *kind);
                self.watches.remove(connection, path, *kind);
                found(there, answer)
            }
            request => match refusal_of(request) {
                Some(refusal) => Err(refusal),
                None => {
                    let result = self.state_says(operation);
                    if let Some((path, kind)) = watch_set_by(request, &result) {
                        self.watches.add(connection, path, kind, true);
                    }
                    result
                }
            },
        };
        self.answered(operation, expected)
    }

    fn set_watches(&mut self, connection: usize, watches: &SetWatches) {
        for (path, kind, absent) in listed(watches) {
            match missed(&self.tree, kind, absent, path, watches.relative_zxid) {
                Some(kind) => self.scripts[connection].owe_made_up(kind, path, true),
                None => self.watches.add(connection, path, kind, true),
            }
        }
    }

    /// Adds the missed events of a setWatches that was refused.
    ///
    /// `must` is false if the base may have failed: then the server does not know the events.
    fn refused_set_watches(&mut self, connection: usize, watches: &SetWatches, must: bool) {
        for (path, kind, absent) in listed(watches) {
            if let Some(kind) = missed(&self.tree, kind, absent, path, watches.relative_zxid) {
                self.scripts[connection].owe_made_up(kind, path, must);
            }
        }
    }

    /// Assigns each cut-short setWatches to the first state that fits. In a later state the
    /// connection would be owed at least as many events before it.
    fn cut_short(&mut self) {
        let Self { tree, zxid, scripts, .. } = self;
        self.cut_short.retain(|one| {
            let fits = one.fits(tree, *zxid);
            if fits {
                let script = &mut scripts[one.connection];
                one.told.iter().for_each(|event| script.owe_made_up(event.kind, &event.path, true));
                script.answer(one.operation);
            }
            !fits
        });
    }

    fn state_says(&self, operation: usize) -> Result<Reply, ErrorCode> {
        let asked = self.facts.operation(operation);
        let session = self.facts.connection(asked.connection).session().map_or(0, |session| session.0);
        let ids = self.facts.identities.of_operation(operation);
        self.tree.answer_read(ids, session, &asked.request).unwrap_or(Err(ErrorCode::SystemError))
    }

    /// Registers the watch of a refused read as uncertain.
    ///
    /// The answer was determined before the base failed to read the data, and the watch may have
    /// been set then.
    fn perhaps_watch(&mut self, operation: usize) {
        let asked = self.facts.operation(operation);
        let says = self.state_says(operation);
        if let Some((path, kind)) = watch_set_by(&asked.request, &says) {
            self.watches.add(asked.connection, path, kind, false);
        }
    }

    fn answered(&mut self, operation: usize, expected: Result<Reply, ErrorCode>) -> Result<(), Violation> {
        let asked = self.facts.operation(operation);
        let Some(answer) = &asked.answer else { return Ok(()) };
        self.scripts[asked.connection].answer(operation);
        if answer.result == expected {
            return Ok(());
        }
        let rule = if self.facts.is_ordered(operation) {
            "a write is answered with what its entry came to"
        } else {
            "a read shows the state whose zxid it names"
        };
        Err(Violation::of(rule)
            .and_operation(self.facts.history, operation)
            .and(format!("expected: {expected:?}"))
            .and(format!("answered: {:?}", answer.result)))
    }
}

/// Returns the expected answer about a watch. If its existence is uncertain, the given answer is
/// right.
fn found(there: Option<bool>, answer: &Answer) -> Result<Reply, ErrorCode> {
    let nothing = Err(ErrorCode::NoWatcher);
    if there.unwrap_or(answer.result != nothing) { Ok(Reply::Empty) } else { nothing }
}
