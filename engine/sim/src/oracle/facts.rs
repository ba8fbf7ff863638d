//! What follows from a history before any rule is judged: entries decoded, and which session and connections they concern.

use super::history::{Committed, Connection, History, Moment, Operation};
use super::identity::Identities;
use super::violation::Violation;
use crate::reference::Reference;
use std::collections::BTreeMap;
use zoolet_engine::txn::{self, Txn};
use zoolet_model::{ErrorCode, Request, SessionId, SessionSecret};

/// A committed entry, decoded.
#[derive(Debug)]
pub(super) struct Entry<'h> {
    pub(super) zxid: i64,
    /// When the first server applied it.
    pub(super) at: Moment,
    pub(super) wall_ms: i64,
    /// `None`: bytes that mean nothing.
    pub(super) txn: Option<Txn<'h>>,
}

impl<'h> Entry<'h> {
    fn of(committed: &'h Committed) -> Self {
        let (wall_ms, txn) = match txn::decode(&committed.payload) {
            Ok((header, txn)) => (header.wall_ms, Some(txn)),
            Err(_) => (0, None),
        };
        Self { zxid: committed.zxid.as_i64(), at: committed.at, wall_ms, txn }
    }

    /// The session on whose behalf, or about whose end, it is.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self.txn.as_ref()? {
            Txn::Write { session, .. } | Txn::Multi { session, .. } | Txn::CloseSession { session } => Some(*session),
            Txn::NoOp
            | Txn::CreateSession { .. }
            | Txn::RenewSession { .. }
            | Txn::Reap { .. }
            | Txn::Membership(_) => None,
        }
    }

    /// Timeout in milliseconds and secret of the session that it begins.
    pub(super) fn begins(&self) -> Option<(u32, SessionSecret)> {
        if let Some(Txn::CreateSession { timeout_ms, secret, .. }) = self.txn {
            Some((timeout_ms, secret))
        } else {
            None
        }
    }

    pub(super) fn is_close(&self) -> bool {
        matches!(self.txn, Some(Txn::CloseSession { .. }))
    }
}

/// What there is about one session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The entry that began it.
    pub(super) created: Option<usize>,
    /// Entries on its behalf or about its end, in order.
    pub(super) entries: Vec<usize>,
    /// The first entry that ends it.
    pub(super) closed: Option<usize>,
    /// Its connections, in the order in which they were told so.
    pub(super) connections: Vec<usize>,
}

/// A history with what follows from it.
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
            if entry.begins().is_some() {
                sessions.entry(SessionId(entry.zxid)).or_default().created = Some(at);
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

    /// The index of the entry with this zxid.
    pub(super) fn entry_at(&self, zxid: i64) -> Option<usize> {
        self.entries.binary_search_by_key(&zxid, |entry| entry.zxid).ok()
    }

    pub(super) fn operation(&self, at: usize) -> &'h Operation {
        &self.history.operations[at]
    }

    pub(super) fn connection(&self, at: usize) -> &'h Connection {
        &self.history.connections[at]
    }

    /// Every operation of a session, in the order of its connections and then as it was asked.
    pub(super) fn operations_of<'f>(&'f self, session: &'f Session) -> impl Iterator<Item = usize> + 'f {
        session.connections.iter().flat_map(|&at| self.history.connections[at].operations.iter().copied())
    }
}

/// The session that a connection carries, or may carry without its client having heard of it.
pub(super) fn session_of(connection: &Connection) -> Option<SessionId> {
    match &connection.reply {
        Some((_, reply)) => Some(reply.session),
        None => Some(connection.request.session),
    }
    .filter(|session| session.0 != 0)
}

/// Whether the answer's header says which state it was given from. Identities have none, and what no server knows neither.
pub(super) fn has_place(request: &Request) -> bool {
    !matches!(request, Request::Auth { .. } | Request::Sasl | Request::Unknown)
}

/// Whether it was refused before it could become an entry, or could read anything.
pub(super) fn is_refused(operation: &Operation) -> bool {
    operation.answer.as_ref().is_some_and(|answer| answer.result == Err(ErrorCode::SystemError))
}

/// Whether it takes its place among the writes.
pub(super) fn is_ordered(operation: &Operation) -> bool {
    Reference::is_ordered(&operation.request)
}
