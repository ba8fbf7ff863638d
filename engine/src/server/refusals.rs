//! What clients were refused since the start, and who asked last: for metrics, and for the log of the process that drives the machine.

use super::Server;
use crate::event::ConnId;
use crate::network::{Source, network};
use crate::session::{Guesses, SessionTable};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Refusals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals {
    /// Sessions not begun because there were as many as `sessions_max`.
    pub sessions: u64,
    /// Sessions not begun because clients of that address had their share of them.
    pub sessions_of_address: Refused,
    /// Proofs of the super user with a wrong password, and those that were not looked at because there had been too many.
    pub super_guesses: Refused,
}

/// Refusals of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refused {
    /// How many.
    pub count: u64,
    /// The client that was refused last.
    pub last: Option<IpAddr>,
}

impl Refused {
    fn note(&mut self, client: IpAddr) {
        self.count += 1;
        self.last = Some(client);
    }
}

/// Sessions that are being created for connections of this server, with the sources that they were charged to.
#[derive(Debug, Default)]
pub(super) struct Joining(BTreeMap<ConnId, Option<Source>>);

impl Joining {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The entry of its session is proposed, or on its way to the leader.
    pub(super) fn begin(&mut self, sessions: &mut SessionTable, conn: ConnId, source: Option<Source>) {
        sessions.charge(source);
        sessions.release(self.0.insert(conn, source).flatten());
    }

    /// The session is there. Gives back what it was charged to.
    pub(super) fn end(&mut self, conn: ConnId) -> Option<Source> {
        self.0.remove(&conn).flatten()
    }

    /// The session will not be, or is not told of.
    pub(super) fn lose(&mut self, sessions: &mut SessionTable, conn: ConnId) {
        sessions.release(self.end(conn));
    }

    /// Those whose network is known.
    pub(super) fn sourced(&self) -> usize {
        self.0.values().flatten().count()
    }

    pub(super) fn lose_all(&mut self, sessions: &mut SessionTable) {
        std::mem::take(&mut self.0).into_values().for_each(|source| sessions.release(source));
    }
}

/// What is refused, and what decides it.
#[derive(Debug, Default)]
pub(super) struct Refusing {
    pub(super) refusals: Refusals,
    guesses: Guesses,
}

impl Server {
    /// What clients were refused since the start.
    pub fn refusals(&self) -> Refusals {
        self.refusing.refusals
    }

    /// Sessions, and those that are being created: what counts against `sessions_max`.
    pub fn sessions_taken(&self) -> usize {
        self.sessions.len() + self.joining.len() + self.forwards.joining()
    }

    /// Whether one more session may begin here, of a client at this address; none of a client in this process.
    pub(super) fn has_room_for_session(&mut self, client: Option<IpAddr>, source: Option<Source>) -> bool {
        if self.is_full_of_sessions() {
            return false;
        }
        let share = self.limits.sessions_per_address_max(self.zab.config().members().len() as u32);
        let (Some(client), Some(source), Some(share)) = (client, source, share) else { return true };
        let has_room = self.sessions.count_of(source) < share;
        if !has_room {
            self.refusing.refusals.sessions_of_address.note(client);
        }
        has_room
    }

    /// Whether there are as many sessions as there may be. Notes the refusal.
    pub(super) fn is_full_of_sessions(&mut self) -> bool {
        let is_full = self.sessions_taken() >= self.limits.sessions_max as usize;
        self.refusing.refusals.sessions += u64::from(is_full);
        is_full
    }

    /// Whether a proof of the super user may be looked at. A client in this process is not slowed: it has all of the server anyway.
    pub(super) fn may_guess_super(&mut self, client: Option<IpAddr>) -> bool {
        let Some(client) = client else { return true };
        let may_try = self.refusing.guesses.may_try(network(client), self.now.mono_ms);
        if !may_try {
            self.refusing.refusals.super_guesses.note(client);
        }
        may_try
    }

    /// The super user's password was wrong.
    pub(super) fn on_wrong_super(&mut self, client: Option<IpAddr>) {
        if let Some(client) = client {
            self.refusing.guesses.on_wrong(network(client), self.now.mono_ms);
            self.refusing.refusals.super_guesses.note(client);
        }
    }
}
