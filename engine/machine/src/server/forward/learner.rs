//! The learner's side: entries sent to the leader, and kept for the next one.

use super::table::Sent;
use crate::seam::ids::ConnId;
use crate::seam::peer::PeerMessage;
use crate::server::Server;
use crate::server::admission::{Admission, Need, need_of};
use crate::server::history::Origin;
use crate::txn::{self, Forwarder, Txn};
use bytes::Bytes;
use zoolet_model::{ErrorCode, ServerId};
use zoolet_zab::{Mutation, mutation};

impl Server {
    /// Returns the number of writes that were asked of a next leader again, since the start.
    pub fn writes_asked_again(&self) -> u64 {
        self.forwards.again
    }

    /// Sends a client's entry to the leader. Returns false if it cannot be sent.
    ///
    /// That is the case without a leader, and for an entry without a requester: a learner proposes
    /// nothing by itself.
    pub(in crate::server) fn forward(&mut self, payload: Bytes, asker: Origin) -> bool {
        let Some(leader) = self.leader().filter(|_| self.is_serving()) else { return false };
        let (Some(conn), Some(Forwarder { number, .. })) = (asker.conn(), txn::forwarder(&payload)) else {
            return false;
        };
        let session = self.connections.get(&conn).map(|connection| connection.session).unwrap_or_default();
        let since = self.sessions.since(session);
        let (epoch, attempt) = (self.zab.epoch(), self.zab.attempt());
        self.forwards.number = number;
        self.forwards.hold(Sent { number, to: leader, asker, payload: payload.clone() });
        self.zab.expect_leader(self.now.mono_ms);
        // Without a link the leader is about to be lost, and the next one gets the entry.
        self.send_to(leader, PeerMessage::Forward { epoch, attempt, conn, since, payload });
        true
    }

    /// Returns the requester of an entry that is being appended here, if this server forwarded it.
    pub(in crate::server) fn claim(&mut self, payload: &[u8]) -> Origin {
        let forwarder = txn::forwarder(payload).filter(|forwarder| forwarder.server == self.zab.id());
        let Some(Forwarder { number, .. }) = forwarder else { return Origin::None };
        if !self.is_serving() && mutation::is_on(Mutation::ForwardedAgainBlindly) {
            let sent = self.forwards.sent.iter().find(|sent| sent.number == number);
            return sent.map_or(Origin::None, |sent| sent.asker);
        }
        let sent = self.forwards.position(number).and_then(|at| self.forwards.remove(at));
        self.room_for_forwards();
        sent.map_or(Origin::None, |sent| sent.asker)
    }

    /// Keeps the entries that a new leader's history does not have. They were appended here.
    pub(in crate::server) fn take_back(&mut self, cut: Vec<(Origin, Bytes)>) {
        for (asker, payload) in cut {
            if let (Some(_), Some(Forwarder { server, number })) = (asker.conn(), txn::forwarder(&payload)) {
                self.forwards.hold(Sent { number, to: server, asker, payload });
            }
        }
        self.forwards.keep_all();
    }

    /// Forwards or proposes the entries of a lost leader's time again, while there is room.
    ///
    /// Called when this server begins to serve, before any pipeline goes on. The first entry of the
    /// leader's epoch is committed and applied here, so these entries can never be committed any
    /// more. Other writes of this server's clients wait behind them.
    pub(in crate::server) fn ask_again(&mut self) {
        if self.leads() {
            self.lose_departed();
            return self.propose_kept();
        }
        while self.is_serving()
            && self.forwards.admission(Need::Write) == Admission::Go
            && let Some(Sent { asker, payload, .. }) = self.forwards.pop_kept()
        {
            let number = self.forwards.next_number();
            let payload = txn::renumbered(&payload, number, self.history.buffer());
            if let Some(payload) = payload.filter(|_| self.is_still_asked(asker)) {
                self.forwards.again += u64::from(self.forward(payload, asker));
            }
        }
    }

    /// Returns whether other writes of this server's clients wait behind kept entries.
    ///
    /// Before this server serves, its clients' writes wait anyway.
    pub(in crate::server) fn asks_kept_first(&self) -> bool {
        self.forwards.is_any_kept() && self.is_serving()
    }

    /// Gives up the sessions that clients have asked for and left. They count as sessions until then.
    fn lose_departed(&mut self) {
        let asking = self.forwards.sent.iter().filter_map(|sent| match sent.asker {
            Origin::Connect { conn, .. } => Some(conn),
            Origin::Request { .. } | Origin::Upgrade { .. } | Origin::None | Origin::Forwarded => None,
        });
        for conn in asking.collect::<Vec<_>>() {
            if !self.is_open(conn) {
                self.joining.lose(&mut self.sessions, conn);
            }
        }
    }

    /// Returns whether the requester of a kept entry still waits for it.
    fn is_still_asked(&mut self, asker: Origin) -> bool {
        match asker {
            Origin::Request { conn, .. } => self.is_open(conn),
            Origin::Connect { conn, .. } => {
                let is_open = self.is_open(conn);
                if !is_open {
                    self.joining.lose(&mut self.sessions, conn);
                }
                is_open
            }
            // The request at the head of its pipeline asks again.
            Origin::Upgrade { .. } | Origin::None | Origin::Forwarded => false,
        }
    }

    /// Proposes kept entries while this leader has room. Its clients' other writes wait for that.
    pub(in crate::server) fn propose_kept(&mut self) {
        while self.is_serving()
            && self.leads()
            && let Some(at) = self.forwards.next_kept()
            && let Some(Sent { asker, payload, .. }) = self.forwards.sent.get(at)
        {
            let (asker, payload) = (*asker, payload.clone());
            let Ok((_, txn)) = txn::decode(&payload) else {
                self.forwards.pop_kept();
                continue;
            };
            let admission = match need_of(&txn) {
                _ if self.zab.is_handing_over() => Admission::Wait,
                // The lost leader may have begun other sessions than those that this server asked for.
                _ if matches!(txn, Txn::CreateSession { .. }) && self.has_too_many_sessions() => Admission::Refuse,
                None => Admission::Go,
                Some(need) => self.room(need),
            };
            if admission == Admission::Wait {
                return;
            }
            self.forwards.pop_kept();
            if !self.is_still_asked(asker) {
                continue;
            }
            let stamped = txn::stamp(self.history.header(self.now), &payload, self.history.buffer());
            let is_proposed =
                admission == Admission::Go && stamped.is_some_and(|stamped| self.propose_encoded(stamped, &txn, asker));
            match &txn {
                _ if !is_proposed => self.refuse(asker, ErrorCode::SystemError),
                Txn::CloseSession { session } => {
                    self.sessions.wrote(*session, self.zab.last());
                    self.sessions.close(*session);
                }
                Txn::Write { session, .. } | Txn::Multi { session, .. } => {
                    self.sessions.wrote(*session, self.zab.last());
                }
                _ => {}
            }
            self.forwards.again += u64::from(is_proposed);
        }
    }

    /// Handles the leader's refusal of a forwarded entry.
    ///
    /// It may come from a leader that was lost meanwhile: that leader will never propose the entry
    /// under this number. Another server's word does not count.
    pub(in crate::server) fn on_refused(&mut self, peer: ServerId, number: u64, code: ErrorCode) {
        let at = self.forwards.position(number).filter(|&at| self.forwards.sent[at].to == peer);
        let Some(Sent { asker, .. }) = at.and_then(|at| self.forwards.remove(at)) else { return };
        self.refuse(asker, code);
        self.room_for_forwards();
    }

    fn refuse(&mut self, asker: Origin, code: ErrorCode) {
        match asker {
            Origin::Request { conn, xid, number }
                if matches!(code, ErrorCode::SystemError | ErrorCode::BadArguments) =>
            {
                if self.is_open(conn) {
                    self.forwards.refused.insert((conn, number), (xid, code));
                    self.ready.push_back(conn);
                }
            }
            // A write's answer does not report that its session is over. The client learns that
            // when it reconnects (surface 1.5, 13.21).
            Origin::Request { conn, .. } => self.close(conn),
            Origin::Connect { conn, .. } => {
                self.joining.lose(&mut self.sessions, conn);
                self.close(conn);
            }
            Origin::Upgrade { conn, session } => self.on_upgrade_refused(conn, session, code),
            Origin::None | Origin::Forwarded => {}
        }
    }

    fn room_for_forwards(&mut self) {
        if self.forwards.is_any_kept() && !self.leads() {
            self.ask_again();
        }
        if !self.waiting_for_room.is_empty() && self.admission(Need::Write) == Admission::Go {
            self.ready.extend(std::mem::take(&mut self.waiting_for_room));
        }
    }

    /// Returns whether the oldest unanswered write of this connection was refused.
    pub(in crate::server) fn is_next_refused(&self, conn: ConnId) -> bool {
        if self.forwards.refused.is_empty() {
            return false;
        }
        let oldest = self.connections.get(&conn).and_then(|connection| connection.proposed.front());
        oldest.is_some_and(|&number| self.forwards.refused.contains_key(&(conn, number)))
    }

    /// Closes a connection whose oldest write without an answer is older than this one, which is
    /// applied.
    ///
    /// A leader refused that older write, and was lost with the refusal. The next leader would take
    /// the older write, behind this one.
    pub(in crate::server) fn close_behind_a_lost_refusal(&mut self, conn: ConnId, number: u64) {
        let oldest = self.connections.get(&conn).and_then(|connection| connection.proposed.front());
        if oldest.is_some_and(|&oldest| oldest < number) && !mutation::is_on(Mutation::LostRefusalIgnored) {
            self.close(conn);
        }
    }

    /// Answers refused writes whose turn has come.
    pub(in crate::server) fn answer_refused(&mut self, conn: ConnId) {
        while self.is_next_refused(conn)
            && let Some(connection) = self.connections.get(&conn)
            && !connection.has_requests_before_writes()
            && let Some(&number) = connection.proposed.front()
            && let Some((xid, code)) = self.forwards.refused.remove(&(conn, number))
        {
            self.reply(conn, xid, self.state.applied().as_i64(), Err(code));
            self.on_write_done(conn);
        }
    }
}
