//! Writes of a learner's clients: sent to the leader, returned as entries.
//!
//! The learner encodes an entry once; the leader fills in its times and proposes those bytes. The
//! entry names the learner and its number for the entry, which identifies the waiting request. So
//! the learner knows the entry again, whichever leader sends it.
//!
//! When the leader is lost, the learner keeps its clients' entries. Once it serves again, an entry
//! that is not in its history can never be committed any more, and the learner forwards it again
//! (docs/design/sessions.md, "A lost leader").

use super::Server;
use super::admission::{Admission, Need, need_of};
use super::history::Origin;
use crate::derived::Derived;
use crate::seam::ids::ConnId;
use crate::seam::ids::LinkId;
use crate::seam::peer::{Attachment, Claim, PeerMessage};
use crate::sessions::Place;
use crate::txn::{self, Forwarder, Header, Txn};
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

/// An entry forwarded to a leader under one number, and neither returned nor refused.
#[derive(Debug)]
struct Sent {
    number: u64,
    to: ServerId,
    asker: Origin,
    payload: Bytes,
}

/// An entry that a learner's client requests.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The attempt to join in which the learner sent the entry.
    pub(super) attempt: Attempt,
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
    /// The last number used. Each entry that is forwarded has its own, also one that is forwarded
    /// again, so a late answer matches no request.
    number: u64,
    /// Oldest first, by number.
    sent: VecDeque<Sent>,
    /// The first of `sent` that wait to be asked of a new leader: they are those of a lost one's time.
    kept: usize,
    /// Numbers of the kept entries, in the order of their requests. Some may have an answer by now.
    ///
    /// An entry that was asked again has a larger number than one that still waits for that, although
    /// it may be older.
    kept_order: VecDeque<u64>,
    /// Payload bytes of `sent`, and those of the kept ones.
    bytes: usize,
    kept_bytes: usize,
    /// Number of entries with an answer, or given up, since the start.
    answered_total: u64,
    /// Number of entries forwarded again, because their leader was lost, since the start.
    again: u64,
    /// Refused requests with their xid and error. Each is reported once all earlier requests of its
    /// connection are answered.
    refused: BTreeMap<(ConnId, u64), (i32, ErrorCode)>,
    /// Leader: sessions that learners' clients are creating.
    joining: BTreeMap<SessionId, Joining>,
    /// Leader: received entries by learner.
    inbound: BTreeMap<ServerId, Inbound>,
}

impl Forwards {
    /// Numbers entries from `number` on. It must differ between processes: entries that a former
    /// process forwarded may still arrive.
    pub(super) fn new(number: u64) -> Self {
        // A process never comes to the end of the numbers.
        Self { number: number >> 1, ..Self::default() }
    }

    /// Returns the number of waiting entries.
    pub(super) fn len(&self) -> usize {
        let inbound = self.inbound.values().map(|inbound| inbound.waiting.len()).sum::<usize>();
        self.sent.len() + self.refused.len() + inbound
    }

    /// Returns the number of the next entry.
    pub(super) fn next_number(&self) -> u64 {
        self.number + 1
    }

    /// Returns whether entries of a lost leader's time wait to be asked of the new one.
    pub(super) fn is_any_kept(&self) -> bool {
        self.kept > 0
    }

    /// Keeps everything in flight for the next leader.
    pub(super) fn keep_all(&mut self) {
        (self.kept, self.kept_bytes) = (self.sent.len(), self.bytes);
        let mut order: Vec<_> = self.sent.iter().map(|sent| (sent.asker.request(), sent.number)).collect();
        order.sort_unstable();
        self.kept_order = order.into_iter().map(|(_, number)| number).collect();
    }

    /// Returns the number of sessions that learners' clients are creating.
    pub(super) fn joining(&self) -> usize {
        self.joining.len()
    }

    /// Returns the bytes of entries in flight, and of learners' entries that wait for room at this
    /// leader, with their places in the tables.
    pub(super) fn held_bytes(&self) -> usize {
        let here = self.bytes + self.sent.len() * size_of::<Sent>() + self.kept_order.len() * size_of::<u64>();
        let inbound = |inbound: &Inbound| inbound.bytes + inbound.waiting.len() * size_of::<Wanted>();
        here + self.inbound.values().map(inbound).sum::<usize>()
    }

    pub(super) fn admission(&self, need: Need) -> Admission {
        let (in_flight, bytes) = (self.sent.len() - self.kept, self.bytes - self.kept_bytes);
        let has_room = match need {
            Need::Session => in_flight < SESSION_FORWARDS_MAX,
            Need::Write | Need::Delete => in_flight < FORWARDS_MAX && bytes < FORWARD_BYTES_MAX,
        };
        if has_room { Admission::Go } else { Admission::Wait }
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.sent.binary_search_by_key(&number, |sent| sent.number).ok()
    }

    /// Removes an entry that was returned, refused or given up, or that is asked again.
    fn remove(&mut self, at: usize) -> Option<Sent> {
        let sent = self.sent.remove(at)?;
        let bytes = sent.payload.len();
        self.answered_total += 1;
        self.bytes -= bytes;
        if at < self.kept {
            self.kept -= 1;
            self.kept_bytes -= bytes;
            if self.kept == 0 {
                self.kept_order = VecDeque::new();
            }
        }
        Some(sent)
    }

    /// Returns the position of the kept entry that is asked next.
    fn next_kept(&mut self) -> Option<usize> {
        if mutation::is_on(Mutation::ForwardedAgainInReverse) {
            return self.kept.checked_sub(1);
        }
        while let Some(&number) = self.kept_order.front() {
            if let Some(at) = self.position(number) {
                return Some(at);
            }
            self.kept_order.pop_front();
        }
        None
    }

    /// Removes the kept entry that is asked next.
    fn pop_kept(&mut self) -> Option<Sent> {
        let at = self.next_kept()?;
        self.kept_order.pop_front();
        self.remove(at)
    }

    /// Holds an entry until it returns or is refused.
    fn hold(&mut self, sent: Sent) {
        self.bytes += sent.payload.len();
        let at = self.sent.partition_point(|other| other.number < sent.number);
        self.sent.insert(at, sent);
    }

    /// Forgets everything in flight: this server stops leading, or its state is replaced.
    pub(super) fn clear(&mut self) {
        // Numbering continues.
        let Self { number, answered_total, again, .. } = *self;
        *self = Self { number, answered_total, again, ..Self::default() };
    }

    /// Forgets what learners forwarded to this server.
    pub(super) fn forget_learners(&mut self) {
        self.joining.clear();
        self.inbound.clear();
    }

    /// Returns the number of connections whose session entry has neither returned nor been refused.
    pub(super) fn joining_here(&self) -> usize {
        self.sent.iter().filter(|sent| matches!(sent.asker, Origin::Connect { .. })).count()
    }

    /// Returns the connections that requested writes that have neither returned nor been refused.
    pub(super) fn writers(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.sent.iter().filter_map(|sent| sent.asker.writer())
    }

    /// Returns the number of entries with an answer, or given up, since the start.
    pub(super) fn answered_total(&self) -> u64 {
        self.answered_total
    }

    pub(super) fn derived(&self, derived: &mut Vec<Derived>) {
        let (kept, inbound) = (self.sent.iter().take(self.kept), || self.inbound.values());
        let waiting = inbound().flat_map(|inbound| &inbound.waiting).map(|wanted| wanted.payload.len());
        derived.extend([
            Derived::new("forward_bytes", self.bytes, self.sent.iter().map(|sent| sent.payload.len()).sum()),
            Derived::new("kept_forward_bytes", self.kept_bytes, kept.map(|sent| sent.payload.len()).sum()),
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
    /// Returns the number of writes that were asked of a next leader again, since the start.
    pub fn writes_asked_again(&self) -> u64 {
        self.forwards.again
    }

    /// Sends a client's entry to the leader. Returns false if it cannot be sent.
    ///
    /// That is the case without a leader, and for an entry without a requester: a learner proposes
    /// nothing by itself.
    pub(super) fn forward(&mut self, payload: Bytes, asker: Origin) -> bool {
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
    pub(super) fn claim(&mut self, payload: &[u8]) -> Origin {
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
    pub(super) fn take_back(&mut self, cut: Vec<(Origin, Bytes)>) {
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
    pub(super) fn ask_again(&mut self) {
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
    pub(super) fn asks_kept_first(&self) -> bool {
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
    pub(super) fn propose_kept(&mut self) {
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
    pub(super) fn on_refused(&mut self, peer: ServerId, number: u64, code: ErrorCode) {
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
    pub(super) fn is_next_refused(&self, conn: ConnId) -> bool {
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
    pub(super) fn close_behind_a_lost_refusal(&mut self, conn: ConnId, number: u64) {
        let oldest = self.connections.get(&conn).and_then(|connection| connection.proposed.front());
        if oldest.is_some_and(|&oldest| oldest < number) && !mutation::is_on(Mutation::LostRefusalIgnored) {
            self.close(conn);
        }
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

    /// Returns whether the learner has left since it sent this entry. It may ask for the entry again.
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
