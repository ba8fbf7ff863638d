//! Writes of a learner's clients: sent to the leader, returned as entries.
//!
//! The learner encodes an entry once; the leader fills in its times and proposes those bytes. A
//! returning entry carries the learner's number for it, which identifies the waiting request. No
//! write is sent twice: when the leader is lost, the outcome of every forward in flight is unknown.

use super::Server;
use super::admission::{Admission, Need, need_of};
use super::history::Origin;
use crate::derived::Derived;
use crate::seam::ids::ConnId;
use crate::seam::ids::LinkId;
use crate::seam::peer::{Attachment, Claim, PeerMessage};
use crate::sessions::Place;
use crate::txn::{self, Txn};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use zoolet_model::{ErrorCode, ServerId, SessionId, Zxid};
use zoolet_zab::{Attempt, Mutation, mutation};

/// Maximum forwarded entries of one learner in flight; beyond it pipelines wait. An entry is in
/// flight until the leader returns or refuses it.
const FORWARDS_MAX: usize = 1024;
/// Maximum for entries that begin or end a session. Its extra room keeps them from waiting for
/// other clients' writes.
const SESSION_FORWARDS_MAX: usize = FORWARDS_MAX + 256;
/// Maximum payload bytes of forwards in flight. A single larger entry is still sent.
const FORWARD_BYTES_MAX: usize = 2 << 20;

/// Bytes allowed for each session entry beyond `FORWARDS_MAX`, rounded up.
const SESSION_FORWARD_BYTES: usize = 256;

/// An entry sent to the leader under one number.
#[derive(Debug)]
struct Sent {
    seq: u64,
    bytes: usize,
    /// `None` once the leader has answered.
    asker: Option<Asker>,
}

/// The requester of an entry, and the number of its request.
#[derive(Clone, Copy, Debug)]
struct Asker {
    origin: Origin,
    number: u64,
}

/// An entry that a learner's client requests.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The attempt to join in which the learner sent the entry.
    pub(super) attempt: Attempt,
    /// The learner's number for the entry.
    pub(super) seq: u64,
    /// The requesting connection, and since when it holds its session.
    pub(super) conn: ConnId,
    pub(super) since: Attachment,
    pub(super) payload: Bytes,
}

/// Entries received from one learner.
#[derive(Debug)]
struct Inbound {
    link: LinkId,
    /// Entries not proposed yet for lack of room. Later entries wait behind them.
    waiting: VecDeque<Wanted>,
    /// Payload bytes of `waiting`.
    bytes: usize,
}

/// A session that a learner's client is creating, until this leader applies the creation.
///
/// The learner may apply the creation earlier, because its disk is faster. The session can
/// therefore send requests already.
#[derive(Clone, Copy, Debug)]
struct Joining {
    place: Place,
    /// The last entry that the session requested.
    last_write: Zxid,
    /// Whether `last_write` ends the session.
    is_ending: bool,
}

/// Forwarded entries in flight.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    /// The last number used. Numbers are never reused in one process, so a late answer matches no
    /// request.
    seq: u64,
    /// Oldest first, by number.
    sent: VecDeque<Sent>,
    /// Number of entries in `sent` that the leader has not answered.
    unanswered: usize,
    /// Number of entries that a leader has answered since the start.
    answered_total: u64,
    bytes: usize,
    /// Refused requests with their xid and error. Each is reported once all earlier requests of its
    /// connection are answered.
    refused: BTreeMap<(ConnId, u64), (i32, ErrorCode)>,
    /// Leader: sessions that learners' clients are creating.
    joining: BTreeMap<SessionId, Joining>,
    /// Leader: received entries by learner.
    inbound: BTreeMap<ServerId, Inbound>,
}

impl Forwards {
    /// Returns the number of waiting entries.
    pub(super) fn len(&self) -> usize {
        let inbound = self.inbound.values().map(|inbound| inbound.waiting.len()).sum::<usize>();
        self.unanswered + self.refused.len() + inbound
    }

    /// Returns the number of sessions that learners' clients are creating.
    pub(super) fn joining(&self) -> usize {
        self.joining.len()
    }

    /// Returns the payload bytes of learners' entries that wait for room at this leader.
    pub(super) fn held_bytes(&self) -> usize {
        self.inbound.values().map(|inbound| inbound.bytes).sum()
    }

    pub(super) fn admission(&self, need: Need) -> Admission {
        let has_room = match need {
            Need::Session => self.unanswered < SESSION_FORWARDS_MAX,
            Need::Write | Need::Delete => self.unanswered < FORWARDS_MAX && self.bytes < FORWARD_BYTES_MAX,
        };
        if has_room { Admission::Go } else { Admission::Wait }
    }

    fn answered(&mut self, seq: u64) -> Option<Asker> {
        let at = self.sent.binary_search_by_key(&seq, |sent| sent.seq).ok()?;
        let sent = self.sent.get_mut(at)?;
        let asker = sent.asker.take()?;
        self.unanswered -= 1;
        self.answered_total += 1;
        self.bytes -= sent.bytes;
        while self.sent.front().is_some_and(|sent| sent.asker.is_none()) {
            self.sent.pop_front();
        }
        Some(asker)
    }

    /// Forgets everything in flight: the leader is lost, or this server stops leading.
    pub(super) fn clear(&mut self) {
        // Numbering continues.
        *self = Self { seq: self.seq, answered_total: self.answered_total, ..Self::default() };
    }

    /// Returns the number of connections whose session entry the leader has not answered.
    pub(super) fn joining_here(&self) -> usize {
        let askers = self.sent.iter().filter_map(|sent| sent.asker);
        askers.filter(|asker| matches!(asker.origin, Origin::Connect { .. })).count()
    }

    /// Returns the connections that requested writes that the leader has not answered.
    pub(super) fn writers(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.sent.iter().filter_map(|sent| sent.asker?.origin.writer())
    }

    /// Returns the number of entries that a leader has answered since the start.
    pub(super) fn answered_total(&self) -> u64 {
        self.answered_total
    }

    pub(super) fn derived(&self, derived: &mut Vec<Derived>) {
        let unanswered = || self.sent.iter().filter(|sent| sent.asker.is_some());
        let inbound = || self.inbound.values();
        let waiting = inbound().flat_map(|inbound| &inbound.waiting).map(|wanted| wanted.payload.len());
        derived.extend([
            Derived::new("forwards_unanswered", self.unanswered, unanswered().count()),
            Derived::new("forward_bytes", self.bytes, unanswered().map(|sent| sent.bytes).sum()),
            Derived::new("inbound_bytes", inbound().map(|inbound| inbound.bytes).sum(), waiting.sum()),
        ]);
    }

    pub(super) fn forget_connection(&mut self, conn: ConnId) {
        if !self.refused.is_empty() {
            self.refused.retain(|&(of, _), _| of != conn);
        }
    }

    pub(super) fn forget_learner(&mut self, peer: ServerId) {
        self.inbound.remove(&peer);
    }
}

/// On a learner.
impl Server {
    /// Sends a client's entry to the leader. Returns false if it cannot be sent.
    ///
    /// That is the case without a leader, and for an entry without a requester: a learner proposes
    /// nothing by itself.
    pub(super) fn forward(&mut self, payload: Bytes, origin: Origin) -> bool {
        let Some(leader) = self.leader().filter(|_| self.is_serving()) else { return false };
        let (conn, number) = match origin {
            Origin::Request { conn, .. } => {
                let connection = self.connections.get(&conn);
                (conn, connection.and_then(|connection| connection.proposed.back().copied()).unwrap_or(0))
            }
            Origin::Connect { conn, .. } | Origin::Upgrade { conn, .. } => (conn, 0),
            Origin::None | Origin::Forwarded { .. } => return false,
        };
        let (seq, bytes) = (self.forwards.seq + 1, payload.len());
        let session = self.connections.get(&conn).map(|connection| connection.session).unwrap_or_default();
        let since = self.sessions.since(session);
        let (epoch, attempt) = (self.zab.epoch(), self.zab.attempt());
        let message = PeerMessage::Forward { epoch, attempt, seq, conn, since, payload };
        if !self.send_to(leader, message) {
            return false;
        }
        self.forwards.seq = seq;
        self.forwards.sent.push_back(Sent { seq, bytes, asker: Some(Asker { origin, number }) });
        self.forwards.unanswered += 1;
        self.forwards.bytes += bytes;
        true
    }

    /// Returns the requester of a forwarded entry that is being appended here.
    pub(super) fn claim_forwarded(&mut self, seq: u64) -> Origin {
        let asker = self.forwards.answered(seq);
        self.room_for_forwards();
        asker.map_or(Origin::None, |asker| asker.origin)
    }

    /// Handles the leader's refusal of a forwarded entry.
    pub(super) fn on_refused(&mut self, seq: u64, code: ErrorCode) {
        let Some(Asker { origin, number }) = self.forwards.answered(seq) else { return };
        match origin {
            Origin::Request { conn, xid } if matches!(code, ErrorCode::SystemError | ErrorCode::BadArguments) => {
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
            Origin::None | Origin::Forwarded { .. } => {}
        }
        self.room_for_forwards();
    }

    fn room_for_forwards(&mut self) {
        if !self.waiting_for_room.is_empty() && self.forwards.admission(Need::Write) == Admission::Go {
            self.ready.extend(std::mem::take(&mut self.waiting_for_room));
        }
    }

    /// Returns whether the oldest unanswered write of this connection was refused.
    pub(super) fn is_next_refused(&self, conn: ConnId) -> bool {
        if self.forwards.refused.is_empty() {
            return false;
        }
        let oldest = self.connections.get(&conn).and_then(|connection| connection.proposed.front());
        oldest.is_some_and(|&number| self.forwards.refused.contains_key(&(conn, number)))
    }

    /// Answers refused writes whose turn has come.
    pub(super) fn answer_refused(&mut self, conn: ConnId) {
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

/// The leader's decision on a learner's entry.
enum Verdict {
    Proposed,
    Wait,
    Refuse(ErrorCode),
    /// No correct server sends this entry.
    Fault(&'static str),
}

/// On the leader.
impl Server {
    /// Handles an entry that a learner's client requests.
    pub(super) fn on_forward(&mut self, peer: ServerId, link: LinkId, wanted: Wanted) {
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

    /// Returns whether the learner has left since it sent this entry, and treats its outcome as unknown.
    fn is_of_earlier_attempt(&self, peer: ServerId, wanted: &Wanted) -> bool {
        self.zab.attempt_of(peer) != Some(wanted.attempt) && !mutation::is_on(Mutation::OldForwardTaken)
    }

    /// Proposes learners' entries while there is room.
    pub(super) fn take_all_forwarded(&mut self) {
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
            let Wanted { attempt, seq, conn, since, payload } = wanted;
            let verdict = match txn::decode(&payload) {
                Ok((_, txn)) => self.answer_forwarded(peer, (seq, conn, since), &payload, &txn),
                Err(txn::Undecodable) => Verdict::Fault("a forwarded entry does not decode"),
            };
            match verdict {
                Verdict::Proposed => {}
                Verdict::Wait => {
                    if let Some(inbound) = self.forwards.inbound.get_mut(&peer) {
                        inbound.bytes += payload.len();
                        inbound.waiting.push_front(Wanted { attempt, seq, conn, since, payload });
                    }
                    return;
                }
                Verdict::Refuse(code) => {
                    self.send_to(peer, PeerMessage::Refused { seq, code });
                }
                Verdict::Fault(reason) => return self.drop_learner(peer, link, reason),
            }
        }
    }

    fn answer_forwarded(
        &mut self,
        peer: ServerId,
        from: (u64, ConnId, Attachment),
        payload: &Bytes,
        txn: &Txn<'_>,
    ) -> Verdict {
        let (seq, conn, since) = from;
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
        let Some(link) = self.forwards.inbound.get(&peer).map(|inbound| inbound.link) else { return Verdict::Proposed };
        let header = self.history.header(self.now);
        let Some(stamped) = txn::stamp(header, payload, self.history.buffer()) else {
            return Verdict::Fault("a forwarded entry has no header");
        };
        if !self.propose_encoded(stamped, txn, Origin::Forwarded { peer, link, seq }) {
            // The epoch has no zxids left. The client reconnects and asks the next leader.
            return Verdict::Refuse(ErrorCode::SessionExpired);
        }
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
    pub(super) fn on_session_began(&mut self, session: SessionId, birth: Zxid) {
        let Some(Joining { place, last_write, is_ending }) = self.forwards.joining.remove(&session) else { return };
        self.sessions.attach(session, place, Attachment::of_birth(birth));
        self.note_asked(session, last_write, is_ending);
    }

    /// Returns whether a learner's connection owns the session.
    ///
    /// A new leader knows only its own connections. Among claims by learners, the one with the
    /// latest attachment wins. An earlier connection may be half open: its session moved away under
    /// a leader that died, and its server was never told.
    pub(super) fn is_owner(&mut self, peer: ServerId, claim: Claim) -> bool {
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

    pub(super) fn drop_learner(&mut self, peer: ServerId, link: LinkId, reason: &'static str) {
        self.forwards.forget_learner(peer);
        self.refuse_link(peer, link, reason);
    }
}

impl Inbound {
    fn new(link: LinkId) -> Self {
        Self { link, waiting: VecDeque::new(), bytes: 0 }
    }
}
