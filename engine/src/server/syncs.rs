//! Connections that wait until this server has applied so much.

use super::Server;
use crate::event::ConnId;
use crate::session::Waiting;
use std::collections::{BTreeMap, VecDeque};
use zoolet_model::{Reply, Request, Zxid};
use zoolet_zab::Round;

/// What a connection waits with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaits {
    /// The sync at its head, by its number.
    Sync(u64),
    /// A reconnected session's writes from its old connection.
    OwnWrites,
    /// The beginning of a connection that carries a session from another one.
    Session,
}

/// All of them. Thousands wait when a server's clients come back at once: nothing here looks at all for one. So one whose connection has ended stays until
/// its turn.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    /// What has to be applied is not known before the question is answered. In the order of the questions.
    asked: VecDeque<(Round, ConnId, Awaits)>,
    /// By what has to be applied, then in the order in which they came.
    known: BTreeMap<(Zxid, u64), (ConnId, Awaits)>,
    /// Of those so far.
    numbers: u64,
}

impl Syncs {
    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.known.len()
    }

    /// The sync of this number waits for this question.
    pub(super) fn ask(&mut self, conn: ConnId, number: u64, round: Round) {
        self.asked.push_back((round, conn, Awaits::Sync(number)));
    }

    pub(super) fn wait(&mut self, conn: ConnId, awaits: Awaits, up_to: Zxid) {
        self.numbers += 1;
        self.known.insert((up_to, self.numbers), (conn, awaits));
    }

    /// Who waits for this question or an earlier one.
    fn asked_by(&mut self, round: Round) -> impl Iterator<Item = (ConnId, Awaits)> + use<> {
        let count = self.asked.partition_point(|&(asked, ..)| asked <= round);
        let asked: Vec<_> = self.asked.drain(..count).collect();
        asked.into_iter().map(|(_, conn, awaits)| (conn, awaits))
    }

    fn next(&mut self, applied: Zxid) -> Option<(ConnId, Awaits)> {
        let first = self.known.first_entry()?;
        (first.key().0 <= applied).then(|| first.remove())
    }

    /// The connections of all.
    pub(super) fn conns(self) -> impl Iterator<Item = ConnId> {
        let asked = self.asked.into_iter().map(|(_, conn, _)| conn);
        asked.chain(self.known.into_values().map(|(conn, _)| conn))
    }
}

impl Server {
    /// This question and all before it are answered; or, without `up_to`, never will be.
    pub(super) fn on_syncs_confirmed(&mut self, round: Round, up_to: Option<Zxid>) {
        for (conn, awaits) in self.syncs.asked_by(round) {
            match up_to {
                Some(up_to) => self.syncs.wait(conn, awaits, up_to),
                None => self.close(conn),
            }
        }
    }

    /// A session that reconnects may have writes under way from its old connection: what it asks now must see them.
    pub(super) fn wait_for_own_writes(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let last = self.sessions.lookup(connection.session).map_or(Zxid::ZERO, |live| live.last_write);
        if last > self.state.applied() {
            connection.blocked = true;
            self.syncs.wait(conn, Awaits::OwnWrites, last);
        }
    }

    /// Lets all go on for whom enough is applied, and answers whoever asked after a session.
    pub(super) fn answer_syncs(&mut self) {
        loop {
            while let Some((conn, awaits)) = self.syncs.next(self.state.applied()) {
                self.go_on(conn, awaits);
            }
            // A session that is taken in here waits for its turn again.
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
