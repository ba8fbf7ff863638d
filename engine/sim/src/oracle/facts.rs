//! Facts derived from a history before any rule is judged.
//!
//! These are the decoded entries, and the sessions and connections that they concern.

use super::history::{Committed, Connection, History, Moment, Operation};
use super::identity::Identities;
use super::request::is_ordered;
use super::violation::Violation;
use std::collections::BTreeMap;
use zoolet_machine::txn::{self, Header, Txn};
use zoolet_model::{Request, SessionId, SessionSecret};

/// A committed entry, decoded.
#[derive(Debug)]
pub(super) struct Entry<'h> {
    pub(super) zxid: i64,
    /// Time at which the first server applied it.
    pub(super) at: Moment,
    pub(super) wall_ms: i64,
    pub(super) ensemble_ms: u64,
    /// Whether its leader refuses writes beyond a hard limit.
    pub(super) enforces_quotas: bool,
    /// `None` if the bytes cannot be decoded.
    pub(super) txn: Option<Txn<'h>>,
}

impl<'h> Entry<'h> {
    fn of(committed: &'h Committed) -> Self {
        let (header, txn) = match txn::decode(&committed.payload) {
            Ok((header, txn)) => (header, Some(txn)),
            Err(_) => (Header::default(), None),
        };
        let Header { wall_ms, ensemble_ms, enforces_quotas, forwarder: _ } = header;
        Self { zxid: committed.zxid.as_i64(), at: committed.at, wall_ms, ensemble_ms, enforces_quotas, txn }
    }

    /// Returns the session that the entry acts for or ends.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self.txn.as_ref()? {
            Txn::Write { session, .. } | Txn::Multi { session, .. } | Txn::CloseSession { session } => {
                Some(session.of_name())
            }
            Txn::NoOp
            | Txn::CreateSession { .. }
            | Txn::RenewSession { .. }
            | Txn::UpgradeSession { .. }
            | Txn::Reap { .. }
            | Txn::CountUsage { .. }
            | Txn::Membership(_) => None,
        }
    }

    /// Returns timeout in milliseconds and secret of the session that the entry makes global.
    pub(super) fn begins(&self) -> Option<(u32, SessionSecret)> {
        match self.txn {
            Some(Txn::CreateSession { timeout_ms, secret, .. } | Txn::UpgradeSession { timeout_ms, secret, .. }) => {
                Some((timeout_ms, secret))
            }
            Some(_) | None => None,
        }
    }

    /// Returns the session that the entry makes global.
    pub(super) fn begun(&self) -> Option<SessionId> {
        match self.txn {
            Some(Txn::CreateSession { .. }) => Some(SessionId(self.zxid)),
            Some(Txn::UpgradeSession { session, .. }) => Some(session),
            Some(_) | None => None,
        }
    }

    pub(super) fn is_close(&self) -> bool {
        matches!(self.txn, Some(Txn::CloseSession { .. }))
    }
}

/// The facts about one session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The entry that created it or made it global; `None` for a session that stayed local.
    pub(super) created: Option<usize>,
    /// Entries that act for it or end it, in order.
    pub(super) entries: Vec<usize>,
    /// The first entry that ends it.
    pub(super) closed: Option<usize>,
    /// Its connections, in the order in which their answers arrived.
    pub(super) connections: Vec<usize>,
}

/// A history with the facts derived from it.
pub(super) struct Facts<'h> {
    pub(super) history: &'h History,
    pub(super) entries: Vec<Entry<'h>>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    pub(super) identities: Identities,
}

impl<'h> Facts<'h> {
    pub(super) fn of(history: &'h History) -> Result<Self, Violation> {
        let entries: Vec<_> = history.committed.iter().map(Entry::of).collect();
        let mut sessions: BTreeMap<SessionId, Session> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if let Some(session) = entry.begun() {
                // A second upgrade changes nothing.
                sessions.entry(session).or_default().created.get_or_insert(at);
            }
            if let Some(session) = entry.session() {
                let session = sessions.entry(session).or_default();
                session.entries.push(at);
                if entry.is_close() && session.closed.is_none() {
                    session.closed = Some(at);
                }
            }
        }
        for (at, connection) in history.connections.iter().enumerate() {
            if let Some(session) = session_of(connection) {
                sessions.entry(session).or_default().connections.push(at);
            }
        }
        for session in sessions.values_mut() {
            session.connections.sort_by_key(|&at| {
                let connection = &history.connections[at];
                connection.reply.as_ref().map_or(connection.begun, |(at, _)| *at)
            });
        }
        Ok(Self { history, entries, sessions, identities: Identities::of(history)? })
    }

    /// Returns the index of the entry with this zxid.
    pub(super) fn entry_at(&self, zxid: i64) -> Option<usize> {
        self.entries.binary_search_by_key(&zxid, |entry| entry.zxid).ok()
    }

    /// Returns whether a request is ordered among the writes.
    ///
    /// The end of a local session is not: no other server knows the session.
    pub(super) fn is_ordered(&self, operation: usize) -> bool {
        let asked = self.operation(operation);
        is_ordered(asked) && !(asked.request == Request::CloseSession && self.is_local(asked.connection))
    }

    /// Returns whether a connection's session began local and never became global.
    fn is_local(&self, connection: usize) -> bool {
        let session = self.connection(connection).session().filter(|session| session.began_local());
        session.is_some_and(|id| self.sessions.get(&id).is_none_or(|session| session.created.is_none()))
    }

    pub(super) fn operation(&self, at: usize) -> &'h Operation {
        &self.history.operations[at]
    }

    pub(super) fn connection(&self, at: usize) -> &'h Connection {
        &self.history.connections[at]
    }

    /// Returns whether the server's base may have failed while it decided this operation.
    pub(super) fn base_may_fail(&self, operation: &Operation) -> bool {
        let spans = self.history.refusing.get(&self.history.connection_of(operation).server);
        let answered_us = operation.answer.as_ref().map_or(u64::MAX, |answer| answer.at.us);
        spans.into_iter().flatten().any(|span| span.from_us <= answered_us && operation.invoked.us <= span.to_us)
    }

    /// Yields every operation of a session, connection by connection, in the order of requests.
    pub(super) fn operations_of<'f>(&'f self, session: &'f Session) -> impl Iterator<Item = usize> + 'f {
        session.connections.iter().flat_map(|&at| self.history.connections[at].operations.iter().copied())
    }
}

/// Returns the session that a connection carries.
///
/// Without an answer it is the session that the client asked to continue.
pub(super) fn session_of(connection: &Connection) -> Option<SessionId> {
    match &connection.reply {
        Some((_, reply)) => Some(reply.session),
        None => Some(connection.request.session),
    }
    .filter(|session| session.0 != 0)
}
