//! Live sessions, with their deadlines and connections.

use crate::derived::Derived;
use crate::network::Source;
use crate::record::znode::Session;
use crate::seam::ids::ConnId;
use crate::seam::peer::Attachment;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use zoolet_model::{ServerId, SessionId, SessionSecret, Zxid};

/// The place of a session's owner, one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On no known connection. A new leader accepts the first claim; a claim with a later
    /// attachment supersedes it.
    Nowhere,
    /// It left its connection on this server. Claims by other connections are outdated: a client
    /// that continues the session presents its secret first.
    Left,
    /// On a connection of this server.
    Here(ConnId),
    /// On a connection of another server. Only a leader knows this place.
    There(ServerId, ConnId),
}

/// A session as its leader sees it.
#[derive(Clone, Debug)]
pub struct Live {
    /// Negotiated timeout, milliseconds.
    pub timeout_ms: u32,
    /// Timeout of the newest proposed entry for this session, milliseconds. Differs from
    /// `timeout_ms` while a renewal is in flight.
    pub next_timeout_ms: u32,
    /// Secret that the owner presents to continue the session.
    pub secret: SessionSecret,
    /// Place of the owner.
    pub place: Place,
    /// Attachment of the session to its place, or to the last known one.
    pub since: Attachment,
    /// Its end is proposed: no client can continue it.
    pub closing: bool,
    /// Its last connection here was that of a reader.
    pub is_reader: bool,
    /// The newest entry proposed here that the session requested, or that renews it.
    pub last_write: Zxid,
    /// Network of the client. Known only for a session begun at this server's port since its start.
    source: Option<Source>,
    /// Deadline by which the owner must be heard, milliseconds of the caller's clock.
    deadline_ms: u64,
    /// Deadline it is filed under in `due`. Never later than the real one, so that a touch costs
    /// nothing.
    filed_ms: u64,
}

impl Live {
    /// Moves the deadline to the end of a timeout that begins at `now_ms`, but never to an earlier time.
    fn extend(&mut self, timeout_ms: u32, now_ms: u64) {
        self.deadline_ms = self.deadline_ms.max(deadline(timeout_ms, now_ms));
    }

    /// Returns the connection of this server that the session is on.
    pub fn conn(&self) -> Option<ConnId> {
        if let Place::Here(conn) = self.place { Some(conn) } else { None }
    }
}

/// Every replicated session with its liveness.
///
/// Liveness is not replicated: a server that starts grants each session a full timeout.
///
/// Invariants:
/// - `due` holds exactly one entry per session that is not closing, at `filed_ms <= deadline_ms`.
/// - `of_source` counts for each source its sessions, and the [charges](SessionTable::charge) that
///   no session has taken over yet.
#[derive(Debug, Default)]
pub struct SessionTable {
    sessions: BTreeMap<SessionId, Live>,
    due: BTreeSet<(u64, SessionId)>,
    /// Number of sessions with a short timeout.
    short: usize,
    of_source: BTreeMap<Source, u32>,
}

/// Timeouts below this are short, milliseconds: a lost leader must be detected sooner for them.
const SHORT_MS: u32 = 4000;

/// Bytes of one session in the three B-trees that hold it. These are the replicated state, the
/// table and the deadlines. They fill in order, which leaves six entries in a leaf for eleven; the
/// rest is inner nodes.
const SESSION_BYTES: usize =
    (size_of::<(SessionId, Session, u64)>() + size_of::<(SessionId, Live)>() + size_of::<(u64, SessionId)>()) * 16 / 7;

/// Bytes of one network's count in its B-tree.
const SOURCE_BYTES: usize = size_of::<(Source, u32)>() * 16 / 7;

impl SessionTable {
    /// Returns the sum of the counts by network, including sessions being created.
    pub(crate) fn counted(&self) -> usize {
        self.of_source.values().map(|&count| count as usize).sum()
    }

    /// Returns the number of sessions whose network is known.
    pub(crate) fn sourced(&self) -> usize {
        self.sessions.values().filter(|live| live.source.is_some()).count()
    }

    pub(crate) fn derived(&self, derived: &mut Vec<Derived>) {
        let short = self.sessions.values().filter(|live| live.timeout_ms < SHORT_MS).count();
        let due = self.sessions.iter().filter(|(_, live)| !live.closing);
        let filed = due.clone().filter(|&(&id, live)| self.due.contains(&(live.filed_ms, id)));
        derived.extend([
            Derived::new("sessions_short", self.short, short),
            Derived::new("sessions_due", self.due.len(), due.count()),
            Derived::new("sessions_filed", self.due.len(), filed.count()),
        ]);
    }

    /// Returns the bytes of all sessions and of the counts by network. The sessions' part of the
    /// replicated state is included.
    pub fn bytes(&self) -> usize {
        self.sessions.len() * SESSION_BYTES + self.of_source.len() * SOURCE_BYTES
    }

    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns whether some session has a short timeout.
    pub fn has_short(&self) -> bool {
        self.short > 0
    }

    /// Returns a session.
    pub fn lookup(&self, id: SessionId) -> Option<&Live> {
        self.sessions.get(&id)
    }

    /// Adds a session that begins, or is found at start, with a full timeout.
    pub fn insert(&mut self, id: SessionId, session: Session, now_ms: u64) {
        let deadline_ms = deadline(session.timeout_ms, now_ms);
        let Session { timeout_ms, secret, .. } = session;
        let live = Live {
            timeout_ms,
            next_timeout_ms: timeout_ms,
            secret,
            place: Place::Nowhere,
            since: Attachment::default(),
            closing: false,
            is_reader: false,
            last_write: Zxid::ZERO,
            source: None,
            deadline_ms,
            filed_ms: deadline_ms,
        };
        self.short += usize::from(timeout_ms < SHORT_MS);
        if let Some(replaced) = self.sessions.insert(id, live) {
            self.short -= usize::from(replaced.timeout_ms < SHORT_MS);
            self.due.remove(&(replaced.filed_ms, id));
            self.release(replaced.source);
        }
        self.due.insert((deadline_ms, id));
    }

    /// Removes a session; returns the connection of this server that carried it.
    pub fn remove(&mut self, id: SessionId) -> Option<ConnId> {
        let live = self.sessions.remove(&id)?;
        self.short -= usize::from(live.timeout_ms < SHORT_MS);
        self.due.remove(&(live.filed_ms, id));
        self.release(live.source);
        live.conn()
    }

    /// Returns the number of sessions from this source, including those being created.
    pub fn count_of(&self, source: Source) -> u32 {
        self.of_source.get(&source).copied().unwrap_or(0)
    }

    /// Charges a source for a session being created.
    ///
    /// [`SessionTable::release`] or [`SessionTable::began_from`] takes the charge over.
    pub fn charge(&mut self, source: Option<Source>) {
        if let Some(source) = source {
            *self.of_source.entry(source).or_default() += 1;
        }
    }

    /// Releases a charge: the session was not created, or has ended.
    pub fn release(&mut self, source: Option<Source>) {
        let Some(source) = source else { return };
        if let Some(count) = self.of_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.of_source.remove(&source);
            }
        }
    }

    /// Transfers the charge of `source` to its created session.
    pub fn began_from(&mut self, id: SessionId, source: Option<Source>) {
        match self.sessions.get_mut(&id) {
            Some(live) => live.source = source,
            None => self.release(source),
        }
    }

    /// Returns the network of a session's client, if it is known.
    pub fn source(&self, id: SessionId) -> Option<Source> {
        self.lookup(id)?.source
    }

    /// Copies the sources of the sessions that `former` also has.
    pub fn adopt_sources(&mut self, former: &Self) {
        for (&id, source) in former.sessions.iter().filter_map(|(id, live)| Some((id, live.source?))) {
            self.charge(Some(source));
            self.began_from(id, Some(source));
        }
    }

    /// Moves the owner to a new place; returns the former place.
    pub fn attach(&mut self, id: SessionId, place: Place, since: Attachment) -> Place {
        self.sessions.get_mut(&id).map_or(Place::Nowhere, |live| {
            live.since = since;
            std::mem::replace(&mut live.place, place)
        })
    }

    /// Returns the attachment of a session to its place.
    pub fn since(&self, id: SessionId) -> Attachment {
        self.lookup(id).map_or(Attachment::default(), |live| live.since)
    }

    /// Records an entry that the session requested.
    pub fn wrote(&mut self, id: SessionId, zxid: Zxid) {
        if let Some(live) = self.sessions.get_mut(&id) {
            live.last_write = zxid;
        }
    }

    /// Detaches a session from a connection, if it is still on that one.
    pub fn detach(&mut self, id: SessionId, conn: ConnId) {
        if let Some(live) = self.sessions.get_mut(&id)
            && live.place == Place::Here(conn)
        {
            live.place = Place::Left;
        }
    }

    /// Forgets state known only to a leader. Session ends that the leader proposed may never
    /// commit.
    pub fn forget_leadership(&mut self) {
        for (&id, live) in &mut self.sessions {
            live.last_write = Zxid::ZERO;
            if std::mem::replace(&mut live.next_timeout_ms, live.timeout_ms) > live.timeout_ms {
                // The longer timeout may never commit. The next leader gives the session a full one.
                live.deadline_ms = 0;
            }
            match live.place {
                Place::There(..) | Place::Left => live.place = Place::Nowhere,
                Place::Here(_) | Place::Nowhere => {}
            }
            if std::mem::take(&mut live.closing) {
                self.due.insert((live.filed_ms, id));
            }
        }
    }

    /// Iterates over sessions whose owners are on this server.
    pub fn here(&self) -> impl Iterator<Item = (SessionId, ConnId)> + '_ {
        self.sessions.iter().filter_map(|(&id, live)| Some((id, live.conn()?)))
    }

    /// Notes whether the session's connection is that of a reader.
    pub fn note_reader(&mut self, id: SessionId, is_reader: bool) {
        if let Some(live) = self.sessions.get_mut(&id) {
            live.is_reader = is_reader;
        }
    }

    /// Extends a session's deadline after a sign of life.
    pub fn touch(&mut self, id: SessionId, now_ms: u64) {
        if let Some(live) = self.sessions.get_mut(&id) {
            live.extend(live.timeout_ms, now_ms);
        }
    }

    /// Notes that the owner came back and a renewal with this timeout is proposed.
    ///
    /// The session lives at least as long as the longer of the two timeouts allows.
    pub fn begin_renewal(&mut self, id: SessionId, timeout_ms: u32, zxid: Zxid, now_ms: u64) {
        if let Some(live) = self.sessions.get_mut(&id) {
            (live.next_timeout_ms, live.last_write) = (timeout_ms, zxid);
            live.extend(timeout_ms, now_ms);
        }
    }

    /// Gives every session at least its full timeout again, when serving begins or after a pause.
    ///
    /// No client could reach this server meanwhile. A session keeps a later deadline: a learner may
    /// have reported it just before, or a renewal with a longer timeout may be in flight. All sessions
    /// are refiled, because a deadline in the past would look as if this server were late.
    pub fn touch_all(&mut self, now_ms: u64) {
        self.due.clear();
        for (&id, live) in self.sessions.iter_mut().filter(|(_, live)| !live.closing) {
            live.extend(live.timeout_ms, now_ms);
            live.filed_ms = live.deadline_ms;
            self.due.insert((live.filed_ms, id));
        }
    }

    /// Returns each session's remaining time in milliseconds, soonest first.
    pub fn deadlines(&self, now_ms: u64) -> Vec<(u64, SessionId)> {
        let mut all: Vec<_> =
            self.sessions.iter().map(|(&id, live)| (live.deadline_ms.saturating_sub(now_ms), id)).collect();
        all.sort_unstable();
        all
    }

    /// Returns each session's timeout in milliseconds, in the order of ids.
    pub fn timeouts(&self) -> Vec<(SessionId, u32)> {
        self.sessions.iter().map(|(&id, live)| (id, live.timeout_ms)).collect()
    }

    /// Applies a renewal: the new timeout counts from now on.
    pub fn renew(&mut self, id: SessionId, timeout_ms: u32, now_ms: u64) {
        let deadline_ms = deadline(timeout_ms, now_ms);
        if let Some(live) = self.sessions.get_mut(&id) {
            self.short += usize::from(timeout_ms < SHORT_MS);
            self.short -= usize::from(live.timeout_ms < SHORT_MS);
            if live.next_timeout_ms == live.timeout_ms {
                // A leader keeps the timeout of a later renewal that it has proposed.
                live.next_timeout_ms = timeout_ms;
            }
            (live.timeout_ms, live.deadline_ms) = (timeout_ms, deadline_ms);
            if deadline_ms < live.filed_ms && !live.closing {
                self.due.remove(&(live.filed_ms, id));
                live.filed_ms = deadline_ms;
                self.due.insert((deadline_ms, id));
            }
        }
    }

    /// Marks a session whose end is proposed.
    pub fn close(&mut self, id: SessionId) {
        if let Some(live) = self.sessions.get_mut(&id) {
            live.closing = true;
            self.due.remove(&(live.filed_ms, id));
        }
    }

    /// Returns when to look for expired sessions again, on the caller's clock.
    pub fn next_deadline(&self) -> Option<u64> {
        self.due.first().map(|&(due_ms, _)| due_ms)
    }

    /// Returns the first `count` sessions in the order in which they may expire, without those that
    /// `is_spared` names.
    pub fn soonest(&mut self, count: usize, is_spared: impl Fn(SessionId) -> bool) -> Vec<SessionId> {
        let (mut soonest, mut behind) = (Vec::new(), Bound::Unbounded);
        while soonest.len() < count {
            let Some(&(filed_ms, id)) = self.due.range((behind, Bound::Unbounded)).next() else { break };
            if !self.refile(filed_ms, id) {
                behind = Bound::Excluded((filed_ms, id));
                soonest.extend(Some(id).filter(|&id| !is_spared(id)));
            }
        }
        soonest
    }

    /// Files a session by its present deadline. Returns whether that is later than `filed_ms`.
    fn refile(&mut self, filed_ms: u64, id: SessionId) -> bool {
        let Some(live) = self.sessions.get_mut(&id).filter(|live| live.deadline_ms > filed_ms) else { return false };
        self.due.remove(&(filed_ms, id));
        live.filed_ms = live.deadline_ms;
        self.due.insert((live.filed_ms, id));
        true
    }

    /// Returns the next session whose silence lasted its timeout.
    ///
    /// Call [`SessionTable::close`] or [`SessionTable::touch`] on it, then call this again.
    pub fn expired(&mut self, now_ms: u64) -> Option<SessionId> {
        loop {
            let &(filed_ms, id) = self.due.first()?;
            if filed_ms > now_ms {
                return None;
            }
            if !self.refile(filed_ms, id) {
                return Some(id);
            }
        }
    }
}

/// Returns a deadline just after the timeout: a silence of exactly the timeout is still alive.
fn deadline(timeout_ms: u32, now_ms: u64) -> u64 {
    now_ms + u64::from(timeout_ms) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn table() -> SessionTable {
        let mut table = SessionTable::default();
        for (id, timeout_ms) in [(A, 1000), (B, 3000)] {
            table.insert(id, Session { timeout_ms, secret: SessionSecret([0; 16]), home: None }, 10_000);
        }
        table
    }

    #[test]
    fn session_expires_exactly_after_its_timeout_of_silence() {
        let mut table = table();
        assert_eq!(table.next_deadline(), Some(11_001));
        assert_eq!(table.expired(11_000), None);
        assert_eq!(table.expired(11_001), Some(A));
        table.close(A);
        assert_eq!(table.expired(12_999), None);
        assert_eq!(table.remove(A), None);
        assert_eq!(table.expired(13_001), Some(B));
    }

    #[test]
    fn touch_extends_the_deadline_from_its_own_time() {
        let mut table = table();
        table.touch(A, 10_900);
        assert_eq!(table.expired(11_500), None);
        assert_eq!(table.next_deadline(), Some(11_901));
        assert_eq!(table.expired(11_901), Some(A));
    }

    #[test]
    fn soonest_sessions_come_in_the_order_of_their_deadlines_without_the_spared_ones() {
        let mut table = table();
        let c = SessionId(3);
        table.insert(c, Session { timeout_ms: 2000, secret: SessionSecret([0; 16]), home: None }, 10_000);
        // A is filed first and has the most time left.
        table.touch(A, 13_000);
        assert_eq!(table.soonest(2, |_| false), [c, B]);
        assert_eq!(table.soonest(2, |id| id == c), [B, A]);
        assert_eq!(table.soonest(9, |id| id == B), [c, A]);
        assert_eq!(table.expired(12_001), Some(c), "all are still filed");
    }

    #[test]
    fn touch_all_grants_each_session_a_full_timeout() {
        let mut table = table();
        table.touch_all(50_000);
        assert_eq!(table.next_deadline(), Some(51_001));
        assert_eq!(table.expired(51_000), None);
        assert_eq!(table.expired(51_001), Some(A));
    }

    /// Regression: a learner may report a sign of life before a new leader serves. Such a session lost
    /// the time that makes up for the delay of the report.
    #[test]
    fn touch_all_takes_no_time_from_a_session() {
        let mut table = table();
        table.touch(A, 50_200);
        table.begin_renewal(B, 5000, Zxid::ZERO, 49_000);
        table.touch_all(50_000);
        assert_eq!(table.next_deadline(), Some(51_201));
        assert_eq!(table.deadlines(50_000), [(1201, A), (4001, B)]);
        assert_eq!(table.expired(51_200), None);
        assert_eq!(table.expired(51_201), Some(A));
    }

    /// Regression: a session kept the deadline of a longer timeout that was never committed.
    #[test]
    fn deadline_of_a_lost_renewal_is_forgotten() {
        let mut table = table();
        table.begin_renewal(A, 40_000, Zxid::ZERO, 49_000);
        table.forget_leadership();
        table.touch_all(50_000);
        let timeout_ms = table.lookup(A).unwrap().timeout_ms;
        assert!(timeout_ms < 40_000);
        assert_eq!(table.deadlines(50_000).iter().find(|(_, id)| *id == A), Some(&(u64::from(timeout_ms) + 1, A)));
    }

    #[test]
    fn renewing_with_a_shorter_timeout_moves_the_deadline() {
        let mut table = table();
        table.renew(B, 500, 10_000);
        assert_eq!(table.expired(10_501), Some(B));
        table.renew(B, 5000, 10_000);
        table.touch(B, 10_400);
        assert_eq!(table.expired(11_000), None);
        assert_eq!(table.expired(11_001), Some(A));
    }

    #[test]
    fn session_counts_as_short_by_its_current_timeout() {
        let mut table = table();
        assert!(table.has_short());
        table.renew(A, SHORT_MS, 0);
        table.renew(B, SHORT_MS, 0);
        assert!(!table.has_short());
        table.renew(A, SHORT_MS - 1, 0);
        table.remove(A);
        assert!(!table.has_short());
    }

    #[test]
    fn proposed_timeout_never_expires_early_and_ends_with_leadership() {
        let mut table = table();
        table.begin_renewal(A, 5000, Zxid::from_bits(7).unwrap(), 10_000);
        table.begin_renewal(B, 500, Zxid::from_bits(8).unwrap(), 10_000);
        assert_eq!(table.expired(12_999), None);
        assert_eq!(table.expired(13_001), Some(B), "the former timeout counts until the entry is applied");
        table.close(B);
        assert_eq!((table.expired(14_999), table.expired(15_001)), (None, Some(A)));
        let timeouts = |table: &SessionTable| table.lookup(A).map(|live| (live.timeout_ms, live.next_timeout_ms));
        assert_eq!(timeouts(&table), Some((1000, 5000)));
        table.forget_leadership();
        assert_eq!(timeouts(&table), Some((1000, 1000)));
        table.renew(A, 5000, 20_000);
        assert_eq!(timeouts(&table), Some((5000, 5000)));
    }

    #[test]
    fn source_count_includes_sessions_being_created() {
        let source = Source::of([10, 0, 0, 1].into(), 0);
        let mut table = table();
        for _ in 0..3 {
            table.charge(Some(source));
        }
        table.began_from(A, Some(source));
        table.began_from(B, Some(source));
        assert_eq!(table.count_of(source), 3);
        table.release(Some(source));
        table.remove(A);
        assert_eq!(table.count_of(source), 1);
        // A snapshot replaced the state, and still has B.
        let mut after = SessionTable::default();
        after.insert(B, Session { timeout_ms: 3000, secret: SessionSecret([0; 16]), home: None }, 10_000);
        after.adopt_sources(&table);
        assert_eq!(after.count_of(source), 1);
        after.remove(B);
        assert_eq!((after.count_of(source), after.of_source.len()), (0, 0));
    }

    /// `tests/limits/sessions.rs` holds 10,000 sessions to their bound with this size.
    #[test]
    fn session_table_entry_takes_88_bytes() {
        assert_eq!(size_of::<Live>(), 88);
    }

    #[test]
    fn only_the_owning_connection_detaches_a_session() {
        let mut table = table();
        assert_eq!(table.attach(A, Place::Here(ConnId(1)), Attachment::default()), Place::Nowhere);
        assert_eq!(table.attach(A, Place::Here(ConnId(2)), Attachment::default()), Place::Here(ConnId(1)));
        table.detach(A, ConnId(1));
        assert_eq!(table.lookup(A).unwrap().place, Place::Here(ConnId(2)));
        table.detach(A, ConnId(2));
        assert_eq!(table.lookup(A).unwrap().place, Place::Left);
        table.forget_leadership();
        assert_eq!(table.lookup(A).unwrap().place, Place::Nowhere);
    }

    #[test]
    fn losing_leadership_clears_remote_connections_and_proposed_ends() {
        let mut table = table();
        table.attach(A, Place::There(ServerId::STANDALONE, ConnId(1)), Attachment::default());
        table.attach(B, Place::Here(ConnId(2)), Attachment::default());
        table.close(A);
        assert_eq!(table.expired(12_000), None, "its end is proposed");
        table.forget_leadership();
        assert_eq!(table.lookup(A).map(|live| (live.place, live.closing)), Some((Place::Nowhere, false)));
        assert_eq!(table.here().collect::<Vec<_>>(), [(B, ConnId(2))]);
        assert_eq!(table.expired(12_000), Some(A), "the end that was proposed may never come");
    }
}
