//! The table of forwarded entries: those that this server asked for, and those that it received.

use super::{FORWARD_BYTES_MAX, FORWARDS_MAX, SESSION_FORWARDS_MAX};
use crate::derived::Derived;
use crate::seam::ids::{ConnId, LinkId};
use crate::seam::peer::Attachment;
use crate::server::admission::{Admission, Need};
use crate::server::history::Origin;
use crate::sessions::Place;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use zoolet_model::{ErrorCode, ServerId, SessionId, Zxid};
use zoolet_zab::{Attempt, Mutation, mutation};

/// An entry forwarded to a leader under one number, and neither returned nor refused.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) to: ServerId,
    pub(super) asker: Origin,
    pub(super) payload: Bytes,
}

impl Sent {
    fn begins_session(&self) -> bool {
        matches!(self.asker, Origin::Connect { .. })
    }
}

/// An entry that a learner's client requests.
#[derive(Debug)]
pub(in crate::server) struct Wanted {
    /// The attempt to join in which the learner sent the entry.
    pub(in crate::server) attempt: Attempt,
    /// The requesting connection, and since when it holds its session.
    pub(in crate::server) conn: ConnId,
    pub(in crate::server) since: Attachment,
    pub(in crate::server) payload: Bytes,
}

/// Entries received from one learner.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) link: LinkId,
    /// Entries not proposed yet for lack of room. Later entries wait behind them.
    pub(super) waiting: VecDeque<Wanted>,
    /// Payload bytes of `waiting`.
    pub(super) bytes: usize,
}

/// A session that a learner's client is creating, until this leader applies the creation.
///
/// The learner may apply the creation earlier, because its disk is faster. The session can
/// therefore send requests already.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joining {
    pub(super) place: Place,
    /// The last entry that the session requested.
    pub(super) last_write: Zxid,
    /// Whether `last_write` ends the session.
    pub(super) is_ending: bool,
}

/// Forwarded entries in flight.
#[derive(Debug, Default)]
pub(in crate::server) struct Forwards {
    /// The last number used. Each entry that is forwarded has its own, also one that is forwarded
    /// again, so a late answer matches no request.
    pub(super) number: u64,
    /// Oldest first, by number.
    pub(super) sent: VecDeque<Sent>,
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
    /// Number of `sent` that begin sessions and are in flight, so not kept.
    begins: usize,
    /// Number of entries with an answer, or given up, since the start.
    answered_total: u64,
    /// Number of entries forwarded again, because their leader was lost, since the start.
    pub(super) again: u64,
    /// Refused requests with their xid and error. Each is reported once all earlier requests of its
    /// connection are answered.
    pub(super) refused: BTreeMap<(ConnId, u64), (i32, ErrorCode)>,
    /// Leader: sessions that learners' clients are creating.
    pub(super) joining: BTreeMap<SessionId, Joining>,
    /// Leader: received entries by learner.
    pub(super) inbound: BTreeMap<ServerId, Inbound>,
}

impl Forwards {
    /// Numbers entries from `number` on. It must differ between processes: entries that a former
    /// process forwarded may still arrive.
    pub(in crate::server) fn new(number: u64) -> Self {
        // A process never comes to the end of the numbers.
        Self { number: number >> 1, ..Self::default() }
    }

    /// Returns the number of waiting entries.
    pub(in crate::server) fn len(&self) -> usize {
        let inbound = self.inbound.values().map(|inbound| inbound.waiting.len()).sum::<usize>();
        self.sent.len() + self.refused.len() + inbound
    }

    /// Returns the number of the next entry.
    pub(in crate::server) fn next_number(&self) -> u64 {
        self.number + 1
    }

    /// Returns whether entries of a lost leader's time wait to be asked of the new one.
    pub(super) fn is_any_kept(&self) -> bool {
        self.kept > 0
    }

    /// Keeps everything in flight for the next leader.
    pub(in crate::server) fn keep_all(&mut self) {
        (self.kept, self.kept_bytes, self.begins) = (self.sent.len(), self.bytes, 0);
        let mut order: Vec<_> = self.sent.iter().map(|sent| (sent.asker.request(), sent.number)).collect();
        order.sort_unstable();
        self.kept_order = order.into_iter().map(|(_, number)| number).collect();
    }

    /// Returns the number of sessions that learners' clients are creating.
    pub(in crate::server) fn joining(&self) -> usize {
        self.joining.len()
    }

    /// Returns the bytes of entries in flight, and of learners' entries that wait for room at this
    /// leader, with their places in the tables.
    pub(in crate::server) fn held_bytes(&self) -> usize {
        let here = self.bytes + self.sent.len() * size_of::<Sent>() + self.kept_order.len() * size_of::<u64>();
        let inbound = |inbound: &Inbound| inbound.bytes + inbound.waiting.len() * size_of::<Wanted>();
        here + self.inbound.values().map(inbound).sum::<usize>()
    }

    pub(in crate::server) fn admission(&self, need: Need) -> Admission {
        let (in_flight, bytes) = (self.sent.len() - self.kept, self.bytes - self.kept_bytes);
        let has_room = match need {
            Need::Session => in_flight < SESSION_FORWARDS_MAX,
            Need::Write | Need::Delete => in_flight < FORWARDS_MAX && bytes < FORWARD_BYTES_MAX,
        };
        if has_room { Admission::Go } else { Admission::Wait }
    }

    /// Returns whether sessions that begin use at least the room that writes cannot use.
    pub(in crate::server) fn begins_many(&self) -> bool {
        self.begins >= SESSION_FORWARDS_MAX - FORWARDS_MAX
    }

    pub(super) fn position(&self, number: u64) -> Option<usize> {
        self.sent.binary_search_by_key(&number, |sent| sent.number).ok()
    }

    /// Removes an entry that was returned, refused or given up, or that is asked again.
    pub(super) fn remove(&mut self, at: usize) -> Option<Sent> {
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
        } else {
            self.begins -= usize::from(sent.begins_session());
        }
        Some(sent)
    }

    /// Returns the position of the kept entry that is asked next.
    pub(super) fn next_kept(&mut self) -> Option<usize> {
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
    pub(super) fn pop_kept(&mut self) -> Option<Sent> {
        let at = self.next_kept()?;
        self.kept_order.pop_front();
        self.remove(at)
    }

    /// Holds an entry until it returns or is refused.
    pub(super) fn hold(&mut self, sent: Sent) {
        self.bytes += sent.payload.len();
        self.begins += usize::from(sent.begins_session());
        let at = self.sent.partition_point(|other| other.number < sent.number);
        self.sent.insert(at, sent);
    }

    /// Forgets everything in flight: this server stops leading, or its state is replaced.
    pub(in crate::server) fn clear(&mut self) {
        // Numbering continues.
        let Self { number, answered_total, again, .. } = *self;
        *self = Self { number, answered_total, again, ..Self::default() };
    }

    /// Forgets what learners forwarded to this server.
    pub(in crate::server) fn forget_learners(&mut self) {
        self.joining.clear();
        self.inbound.clear();
    }

    /// Returns the number of connections whose session entry has neither returned nor been refused.
    pub(in crate::server) fn joining_here(&self) -> usize {
        self.sent.iter().filter(|sent| sent.begins_session()).count()
    }

    /// Returns the connections that requested writes that have neither returned nor been refused.
    pub(in crate::server) fn writers(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.sent.iter().filter_map(|sent| sent.asker.writer())
    }

    /// Returns the number of entries with an answer, or given up, since the start.
    pub(in crate::server) fn answered_total(&self) -> u64 {
        self.answered_total
    }

    pub(in crate::server) fn derived(&self, derived: &mut Vec<Derived>) {
        let begins = self.sent.iter().skip(self.kept).filter(|sent| sent.begins_session());
        let (kept, inbound) = (self.sent.iter().take(self.kept), || self.inbound.values());
        let waiting = inbound().flat_map(|inbound| &inbound.waiting).map(|wanted| wanted.payload.len());
        derived.extend([
            Derived::new("forward_bytes", self.bytes, self.sent.iter().map(|sent| sent.payload.len()).sum()),
            Derived::new("forwards_that_begin_sessions", self.begins, begins.count()),
            Derived::new("kept_forward_bytes", self.kept_bytes, kept.map(|sent| sent.payload.len()).sum()),
            Derived::new("inbound_bytes", inbound().map(|inbound| inbound.bytes).sum(), waiting.sum()),
        ]);
    }

    pub(in crate::server) fn forget_connection(&mut self, conn: ConnId) {
        if !self.refused.is_empty() {
            self.refused.retain(|&(of, _), _| of != conn);
        }
    }

    pub(in crate::server) fn forget_learner(&mut self, peer: ServerId) {
        self.inbound.remove(&peer);
    }
}

impl Inbound {
    pub(super) fn new(link: LinkId) -> Self {
        Self { link, waiting: VecDeque::new(), bytes: 0 }
    }
}
