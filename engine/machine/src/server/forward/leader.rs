//! The leader's side: entries received from learners, and proposed or refused.

use super::table::{Inbound, Joining, Wanted};
use super::{FORWARD_BYTES_MAX, FORWARDS_MAX, SESSION_FORWARD_BYTES, SESSION_FORWARDS_MAX};
use crate::seam::ids::{ConnId, LinkId};
use crate::seam::peer::{Attachment, Claim, PeerMessage};
use crate::server::Server;
use crate::server::admission::{Admission, Need, need_of};
use crate::server::history::Origin;
use crate::sessions::Place;
use crate::txn::{self, Forwarder, Header, Txn};
use bytes::Bytes;
use zoolet_model::{ErrorCode, ServerId, SessionId, Zxid};
use zoolet_zab::{Mutation, mutation};

/// The leader's decision on a learner's entry.
enum Verdict {
    Proposed,
    Wait,
    Refuse(ErrorCode),
    /// No correct server sends this entry.
    Fault(&'static str),
}

impl Server {
    /// Handles an entry that a learner's client requests.
    pub(in crate::server) fn on_forward(&mut self, peer: ServerId, link: LinkId, wanted: Wanted) {
        if self.is_of_earlier_attempt(peer, &wanted) {
            return;
        }
        let attempt = wanted.attempt;
        let inbound = self.forwards.inbound.entry(peer).or_insert_with(|| Inbound::new(link));
        let has_rejoined = inbound.waiting.front().is_some_and(|oldest| oldest.attempt != attempt);
        if inbound.link != link || has_rejoined {
            *inbound = Inbound::new(link);
        }
        inbound.bytes += wanted.payload.len();
        inbound.waiting.push_back(wanted);
        // A learner of this release stops at `FORWARD_BYTES_MAX`. The entry that reaches this limit
        // may have the maximum entry size.
        let bytes_max = FORWARD_BYTES_MAX
            + self.limits.payload_bytes_max()
            + (SESSION_FORWARDS_MAX - FORWARDS_MAX) * SESSION_FORWARD_BYTES;
        if inbound.waiting.len() > SESSION_FORWARDS_MAX || inbound.bytes > bytes_max {
            return self.drop_learner(peer, link, "it forwarded more entries than allowed");
        }
        self.take_forwarded(peer);
    }

    /// Returns whether the learner has left since it sent this entry. It may ask for the entry again.
    fn is_of_earlier_attempt(&self, peer: ServerId, wanted: &Wanted) -> bool {
        self.zab.attempt_of(peer) != Some(wanted.attempt) && !mutation::is_on(Mutation::OldForwardTaken)
    }

    /// Proposes learners' entries while there is room.
    pub(in crate::server) fn take_all_forwarded(&mut self) {
        let waiting: Vec<_> = self
            .forwards
            .inbound
            .iter()
            .filter(|(_, inbound)| !inbound.waiting.is_empty())
            .map(|(&peer, _)| peer)
            .collect();
        waiting.into_iter().for_each(|peer| self.take_forwarded(peer));
    }

    fn take_forwarded(&mut self, peer: ServerId) {
        loop {
            let Some(inbound) = self.forwards.inbound.get_mut(&peer) else { return };
            let (Some(wanted), link) = (inbound.waiting.pop_front(), inbound.link) else { return };
            inbound.bytes -= wanted.payload.len();
            if self.is_of_earlier_attempt(peer, &wanted) {
                continue;
            }
            let Wanted { attempt, conn, since, payload } = wanted;
            let (verdict, number) = match txn::decode(&payload) {
                Ok((Header { forwarder: Some(Forwarder { server, number }), .. }, txn)) if server == peer => {
                    (self.answer_forwarded(peer, (conn, since), &payload, &txn), number)
                }
                Ok(_) => (Verdict::Fault("a forwarded entry does not name the server that sent it"), 0),
                Err(txn::Undecodable) => (Verdict::Fault("a forwarded entry does not decode"), 0),
            };
            match verdict {
                Verdict::Proposed => {}
                Verdict::Wait => {
                    if let Some(inbound) = self.forwards.inbound.get_mut(&peer) {
                        inbound.bytes += payload.len();
                        inbound.waiting.push_front(Wanted { attempt, conn, since, payload });
                    }
                    return;
                }
                Verdict::Refuse(code) => {
                    self.send_to(peer, PeerMessage::Refused { number, code });
                }
                Verdict::Fault(reason) => return self.drop_learner(peer, link, reason),
            }
        }
    }

    fn answer_forwarded(
        &mut self,
        peer: ServerId,
        from: (ConnId, Attachment),
        payload: &Bytes,
        txn: &Txn<'_>,
    ) -> Verdict {
        let (conn, since) = from;
        if !self.is_serving() {
            // A learner may serve before this leader has applied its own history, which may begin the
            // session.
            return Verdict::Wait;
        }
        if self.zab.is_handing_over() {
            // Wait instead of refusing, because the hand-over may fail and this leader go on. The
            // learner hears of a refusal late. Requests that it forwards meanwhile for the same
            // connection must not take effect behind the refused one.
            return Verdict::Wait;
        }
        match txn {
            Txn::CreateSession { .. } => {
                if self.is_full_of_sessions() || self.admission(Need::Session) != Admission::Go {
                    return Verdict::Refuse(ErrorCode::SystemError);
                }
            }
            Txn::UpgradeSession { session, .. } => {
                let is_known = self.sessions.lookup(*session).is_some() || self.forwards.joining.contains_key(session);
                match self.admission(Need::Session) {
                    _ if is_known || self.is_full_of_sessions() => return Verdict::Refuse(ErrorCode::SystemError),
                    Admission::Go => {}
                    // The client's request waits, as any other write does.
                    Admission::Wait => return Verdict::Wait,
                    Admission::Refuse => return Verdict::Refuse(ErrorCode::SystemError),
                }
            }
            Txn::CloseSession { session } | Txn::Write { session, .. } | Txn::Multi { session, .. } => {
                // Only its own server judges a local session.
                let is_local =
                    session.is_named_local() || mutation::is_on(Mutation::LocalSeenAsGlobal) && session.began_local();
                if !is_local && !self.is_owner(peer, Claim { session: *session, conn, since }) {
                    // The session moved or ended; the client learns which when it reconnects.
                    return Verdict::Refuse(ErrorCode::SessionExpired);
                }
                self.touch_from(*session);
                if payload.len() > self.limits.payload_bytes_max() {
                    // No log segment could hold this entry.
                    return Verdict::Refuse(ErrorCode::BadArguments);
                }
                match need_of(txn).map_or(Admission::Go, |need| self.admission(need)) {
                    Admission::Go => {}
                    Admission::Wait => return Verdict::Wait,
                    Admission::Refuse => return Verdict::Refuse(ErrorCode::SystemError),
                }
            }
            Txn::NoOp | Txn::RenewSession { .. } | Txn::Reap { .. } | Txn::CountUsage { .. } | Txn::Membership(_) => {
                return Verdict::Fault("no client requests an entry of the forwarded kind");
            }
        }
        let header = self.history.header(self.now);
        let Some(stamped) = txn::stamp(header, payload, self.history.buffer()) else {
            return Verdict::Fault("a forwarded entry has no header");
        };
        if !self.propose_encoded(stamped, txn, Origin::Forwarded) {
            // The epoch has no zxids left. The client reconnects and asks the next leader.
            return Verdict::Refuse(ErrorCode::SessionExpired);
        }
        self.zab.expect_commit(peer, self.zab.last());
        self.note_forwarded(Place::There(peer, conn), txn);
        Verdict::Proposed
    }

    fn note_forwarded(&mut self, from: Place, txn: &Txn<'_>) {
        let zxid = self.zab.last();
        match txn {
            Txn::CreateSession { .. } => self.note_joining(SessionId(zxid.as_i64()), from, zxid),
            Txn::UpgradeSession { session, .. } => self.note_joining(*session, from, zxid),
            Txn::CloseSession { session } => self.note_asked(*session, zxid, true),
            Txn::Write { session, .. } | Txn::Multi { session, .. } => self.note_asked(*session, zxid, false),
            Txn::NoOp | Txn::RenewSession { .. } | Txn::Reap { .. } | Txn::CountUsage { .. } | Txn::Membership(_) => {}
        }
    }

    fn note_joining(&mut self, session: SessionId, place: Place, last_write: Zxid) {
        self.forwards.joining.insert(session, Joining { place, last_write, is_ending: false });
    }

    fn note_asked(&mut self, session: SessionId, zxid: Zxid, is_end: bool) {
        if let Some(joining) = self.forwards.joining.get_mut(&session) {
            (joining.last_write, joining.is_ending) = (zxid, is_end);
            return;
        }
        self.sessions.wrote(session, zxid);
        if is_end {
            self.sessions.close(session);
        }
    }

    /// Attaches a session created by a learner's client, now that it is applied here.
    ///
    /// `birth` is the entry that created it, or made it global.
    pub(in crate::server) fn on_session_began(&mut self, session: SessionId, birth: Zxid) {
        let Some(Joining { place, last_write, is_ending }) = self.forwards.joining.remove(&session) else { return };
        self.sessions.attach(session, place, Attachment::of_birth(birth));
        self.note_asked(session, last_write, is_ending);
    }

    /// Returns whether a learner's connection owns the session.
    ///
    /// A new leader knows only its own connections. Among claims by learners, the one with the
    /// latest attachment wins. An earlier connection may be half open: its session moved away under
    /// a leader that died, and its server was never told.
    pub(in crate::server) fn is_owner(&mut self, peer: ServerId, claim: Claim) -> bool {
        let Claim { session, conn, since } = claim;
        let place = Place::There(peer, conn);
        match self.sessions.lookup(session) {
            Some(live) if live.closing => false,
            Some(live) if live.place == place => true,
            Some(live) if since > live.since || (since == live.since && live.place == Place::Nowhere) => {
                let old = self.sessions.attach(session, place, since);
                self.evict(session, old);
                true
            }
            Some(_) => mutation::is_on(Mutation::OldOwnerGoesOn),
            // The session may be unknown here because a learner, with a faster disk, has applied
            // more than this leader.
            None => {
                let joining = self.forwards.joining.get(&session);
                joining.is_some_and(|joining| joining.place == place && !joining.is_ending)
            }
        }
    }

    pub(in crate::server) fn drop_learner(&mut self, peer: ServerId, link: LinkId, reason: &'static str) {
        self.forwards.forget_learner(peer);
        self.refuse_link(peer, link, reason);
    }
}
