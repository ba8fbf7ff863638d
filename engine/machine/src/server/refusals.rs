//! Counts of refused requests since the start, with the last refused client, for metrics and logs.

use super::Server;
use crate::network::{Source, network};
use crate::seam::ids::ConnId;
use crate::sessions::{Guesses, SessionTable};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Refusals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals {
    /// Sessions refused because `sessions_max` was reached.
    pub sessions: u64,
    /// Sessions refused because clients of that address had used up their share.
    pub sessions_of_address: Refused,
    /// Local sessions that this server ended because global sessions took their places under
    /// `sessions_max`.
    pub locals_displaced: u64,
    /// Super-user proofs refused: wrong passwords, and attempts rejected unseen after too many.
    pub super_guesses: Refused,
}

/// Refusals of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refused {
    /// Number of refusals.
    pub count: u64,
    /// The client refused last.
    pub last: Option<IpAddr>,
}

impl Refused {
    fn note(&mut self, client: IpAddr) {
        self.count += 1;
        self.last = Some(client);
    }
}

/// Sessions being created for connections of this server, with the source each is charged to.
#[derive(Debug, Default)]
pub(super) struct Joining(BTreeMap<ConnId, Option<Source>>);

impl Joining {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Charges `source` for a session in creation. Its entry is proposed, or on its way to the
    /// leader.
    pub(super) fn begin(&mut self, sessions: &mut SessionTable, conn: ConnId, source: Option<Source>) {
        sessions.charge(source);
        sessions.release(self.0.insert(conn, source).flatten());
    }

    /// Ends the creation of a session. Returns the source it was charged to.
    pub(super) fn end(&mut self, conn: ConnId) -> Option<Source> {
        self.0.remove(&conn).flatten()
    }

    /// Releases the charge of a session in creation. The session will not exist, or this server
    /// will not learn its outcome.
    pub(super) fn lose(&mut self, sessions: &mut SessionTable, conn: ConnId) {
        sessions.release(self.end(conn));
    }

    /// Returns the number of sessions in creation whose network is known.
    pub(super) fn sourced(&self) -> usize {
        self.0.values().flatten().count()
    }

    pub(super) fn lose_all(&mut self, sessions: &mut SessionTable) {
        std::mem::take(&mut self.0).into_values().for_each(|source| sessions.release(source));
    }
}

/// Refusal counts, and the state that decides refusals.
#[derive(Debug, Default)]
pub(super) struct Refusing {
    pub(super) refusals: Refusals,
    guesses: Guesses,
}

impl Server {
    /// Returns the refusals since the start.
    pub fn refusals(&self) -> Refusals {
        self.refusing.refusals
    }

    /// Returns the sessions that count against `sessions_max`, including those being created.
    pub fn sessions_taken(&self) -> usize {
        self.sessions() + self.joining.len() + self.forwards.joining()
    }

    /// Returns whether a client at this address may begin a session. `client` is `None` for a
    /// client in this process.
    pub(super) fn has_room_for_session(&mut self, client: Option<IpAddr>, source: Option<Source>) -> bool {
        if self.is_full_of_sessions() {
            return false;
        }
        let share = self.limits.sessions_per_address_max(self.zab.config().members().len() as u32);
        let (Some(client), Some(source), Some(share)) = (client, source, share) else { return true };
        let has_room = self.sessions.count_of(source) + self.locals.table().count_of(source) < share;
        if !has_room {
            self.refusing.refusals.sessions_of_address.note(client);
        }
        has_room
    }

    /// Returns whether `sessions_max` is reached, and counts the refusal if so.
    pub(super) fn is_full_of_sessions(&mut self) -> bool {
        let is_full = self.sessions_taken() >= self.limits.sessions_max as usize;
        self.refusing.refusals.sessions += u64::from(is_full);
        is_full
    }

    /// Returns whether there are more sessions than `sessions_max`, and counts a refusal if so.
    ///
    /// Sessions that clients of this server are joining count.
    pub(super) fn has_too_many_sessions(&mut self) -> bool {
        let has_too_many = self.sessions_taken() > self.limits.sessions_max as usize;
        self.refusing.refusals.sessions += u64::from(has_too_many);
        has_too_many
    }

    /// Returns whether a super-user proof may be checked now.
    ///
    /// A client in this process is not rate limited: it has full access to the server anyway.
    pub(super) fn may_guess_super(&mut self, client: Option<IpAddr>) -> bool {
        let Some(client) = client else { return true };
        let may_try = self.refusing.guesses.may_try(network(client), self.now.mono_ms);
        if !may_try {
            self.refusing.refusals.super_guesses.note(client);
        }
        may_try
    }

    /// Records a wrong super-user password.
    pub(super) fn on_wrong_super(&mut self, client: Option<IpAddr>) {
        if let Some(client) = client {
            self.refusing.guesses.on_wrong(network(client), self.now.mono_ms);
            self.refusing.refusals.super_guesses.note(client);
        }
    }
}
