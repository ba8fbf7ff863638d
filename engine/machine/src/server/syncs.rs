//! Connections that wait until this server has applied a certain entry.

use super::Server;
use crate::seam::ids::ConnId;
use crate::sessions::Waiting;
use std::collections::{BTreeMap, VecDeque};
use zoolet_model::{Reply, Request, Zxid};
use zoolet_zab::Round;

/// The reason a connection waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaits {
    /// The sync at the head of its pipeline, by number.
    Sync(u64),
    /// A reconnected session's writes from its old connection.
    OwnWrites,
    /// The start of a connection that takes over a session from another connection.
    Session,
}

/// All waiting connections.
///
/// Thousands wait when a server's clients return at once, so no operation here scans all of them
/// for one. An item whose connection has closed stays until its turn.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    /// Items waiting for a quorum's answer, in the order of their rounds. The answer tells the
    /// entry to wait for.
    asked: VecDeque<(Round, ConnId, Awaits)>,
    /// Items waiting for an applied entry: ordered by its zxid, then by arrival.
    known: BTreeMap<(Zxid, u64), (ConnId, Awaits)>,
    /// Number of items ever added to `known`.
    numbers: u64,
}

impl Syncs {
    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.known.len()
    }

    /// Makes the sync of this number wait for this round.
    pub(super) fn ask(&mut self, conn: ConnId, number: u64, round: Round) {
        self.asked.push_back((round, conn, Awaits::Sync(number)));
    }

    pub(super) fn wait(&mut self, conn: ConnId, awaits: Awaits, up_to: Zxid) {
        self.numbers += 1;
        self.known.insert((up_to, self.numbers), (conn, awaits));
    }

    /// Removes and returns the items that wait for this round or an earlier one.
    fn asked_by(&mut self, round: Round) -> impl Iterator<Item = (ConnId, Awaits)> + use<> {
        let count = self.asked.partition_point(|&(asked, ..)| asked <= round);
        let asked: Vec<_> = self.asked.drain(..count).collect();
        asked.into_iter().map(|(_, conn, awaits)| (conn, awaits))
    }

    fn next(&mut self, applied: Zxid) -> Option<(ConnId, Awaits)> {
        let first = self.known.first_entry()?;
        (first.key().0 <= applied).then(|| first.remove())
    }

    /// Returns the connections of all items, which stay.
    pub(super) fn waiting(&self) -> impl Iterator<Item = ConnId> {
        let asked = self.asked.iter().map(|&(_, conn, _)| conn);
        asked.chain(self.known.values().map(|&(conn, _)| conn))
    }

    /// Returns all items.
    fn items(self) -> impl Iterator<Item = (ConnId, Awaits)> {
        let asked = self.asked.into_iter().map(|(_, conn, awaits)| (conn, awaits));
        asked.chain(self.known.into_values())
    }
}

impl Server {
    /// Handles the answer to this round and all earlier ones. `None` means the leader was lost.
    pub(super) fn on_syncs_confirmed(&mut self, round: Round, up_to: Option<Zxid>) {
        for (conn, awaits) in self.syncs.asked_by(round) {
            match up_to {
                Some(up_to) => self.syncs.wait(conn, awaits, up_to),
                None => self.await_again(conn, awaits),
            }
        }
    }

    /// Lets every waiting connection ask the next leader.
    pub(super) fn await_all_again(&mut self) {
        for (conn, awaits) in std::mem::take(&mut self.syncs).items() {
            self.await_again(conn, awaits);
        }
    }

    fn await_again(&mut self, conn: ConnId, awaits: Awaits) {
        match awaits {
            Awaits::Sync(_) => {
                if let Some(connection) = self.connections.get_mut(&conn) {
                    connection.blocked = false;
                    self.ready.push_back(conn);
                }
            }
            // The next leader is asked after the session when this server serves again.
            Awaits::Session => {}
            // Only a server that decides alone knows these writes.
            Awaits::OwnWrites => self.close(conn),
        }
    }

    /// Blocks a reconnected session until the writes of its old connection are applied.
    ///
    /// Its new requests must see those writes.
    pub(super) fn wait_for_own_writes(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let last = self.sessions.lookup(connection.session).map_or(Zxid::ZERO, |live| live.last_write);
        if last > self.state.applied() {
            connection.blocked = true;
            self.syncs.wait(conn, Awaits::OwnWrites, last);
        }
    }

    /// Resumes connections whose entry is applied, and answers questions about sessions.
    pub(super) fn answer_syncs(&mut self) {
        loop {
            while let Some((conn, awaits)) = self.syncs.next(self.state.applied()) {
                self.go_on(conn, awaits);
            }
            // A session taken over here must wait for its own turn: loop.
            if !self.answer_questions() {
                return;
            }
        }
    }

    fn go_on(&mut self, conn: ConnId, awaits: Awaits) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.blocked = false;
        self.ready.push_back(conn);
        match awaits {
            Awaits::OwnWrites => {}
            Awaits::Session => self.take_in(conn),
            Awaits::Sync(number) => {
                if let Some(Waiting { xid, request: Request::Sync { path }, .. }) = connection.take_head(number) {
                    self.reply(conn, xid, self.state.applied().as_i64(), Ok(Reply::Synced(path)));
                }
            }
        }
    }
}
