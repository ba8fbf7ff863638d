//! Which sessions live, until when, and on which connection.

use crate::event::ConnId;
use crate::peer::Attachment;
use crate::tree::record::Session;
use std::collections::{BTreeMap, BTreeSet};
use zoolet_model::{ServerId, SessionId, SessionSecret, Zxid};

/// Where a session's owner is: one place at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On no connection that this server knows of. A leader that has just begun believes whoever speaks for it first.
    Nowhere,
    /// It has left the connection of this server that it was on. What another connection says for it now is late: whoever continues it
    /// shows its secret first.
    Left,
    /// On a connection of this server.
    Here(ConnId),
    /// On a connection of another server. Only a leader knows.
    There(ServerId, ConnId),
}

/// A session as its leader sees it.
#[derive(Clone, Debug)]
pub struct Live {
    /// Negotiated, milliseconds.
    pub timeout_ms: u32,
    /// What its owner shows to continue it.
    pub secret: SessionSecret,
    /// Where its owner is.
    pub place: Place,
    /// Since when it is there, or was when it was last known to be anywhere.
    pub since: Attachment,
    /// Its end is proposed: it is continued by nobody.
    pub closing: bool,
    /// The last entry it asked for here.
    pub last_write: Zxid,
    /// When silence ends it, milliseconds of the caller's clock.
    deadline_ms: u64,
    /// The deadline it is filed under: not later than the real one, so that a touch costs nothing.
    filed_ms: u64,
}

impl Live {
    /// The connection of this server that it is on.
    pub fn conn(&self) -> Option<ConnId> {
        if let Place::Here(conn) = self.place { Some(conn) } else { None }
    }
}

/// Every replicated session with its liveness, which is not replicated: a server that starts grants each a full timeout.
///
/// Invariant: `due` holds exactly one place per session that is not closing, at `filed_ms <= deadline_ms`.
#[derive(Debug, Default)]
pub struct SessionTable {
    sessions: BTreeMap<SessionId, Live>,
    due: BTreeSet<(u64, SessionId)>,
    /// How many have a short timeout.
    short: usize,
}

/// Timeouts below this are short: a leader that is lost must be found out sooner for them, milliseconds.
const SHORT_MS: u32 = 4000;

/// What one session takes in the three B-trees that know it (replicated state, table, deadlines). They fill in order, which leaves six entries
/// in a leaf for eleven; the rest is inner nodes.
const SESSION_BYTES: usize =
    (size_of::<(SessionId, Session, u64)>() + size_of::<(SessionId, Live)>() + size_of::<(u64, SessionId)>()) * 16 / 7;

impl SessionTable {
    /// Bytes of all sessions, with their place in the replicated state.
    pub fn bytes(&self) -> usize {
        self.sessions.len() * SESSION_BYTES
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether some session ends after a short silence.
    pub fn has_short(&self) -> bool {
        self.short > 0
    }

    /// One session.
    pub fn lookup(&self, id: SessionId) -> Option<&Live> {
        self.sessions.get(&id)
    }

    /// A session begins, or is found in the state at start, with a full timeout.
    pub fn insert(&mut self, id: SessionId, session: Session, now_ms: u64) {
        let deadline_ms = deadline(session.timeout_ms, now_ms);
        let Session { timeout_ms, secret, .. } = session;
        let live = Live {
            timeout_ms,
            secret,
            place: Place::Nowhere,
            since: Attachment::default(),
            closing: false,
            last_write: Zxid::ZERO,
            deadline_ms,
            filed_ms: deadline_ms,
        };
        self.short += usize::from(timeout_ms < SHORT_MS);
        if let Some(replaced) = self.sessions.insert(id, live) {
            self.short -= usize::from(replaced.timeout_ms < SHORT_MS);
            self.due.remove(&(replaced.filed_ms, id));
        }
        self.due.insert((deadline_ms, id));
    }

    /// A session is gone. Gives back the connection of this server that it was on.
    pub fn remove(&mut self, id: SessionId) -> Option<ConnId> {
        let live = self.sessions.remove(&id)?;
        self.short -= usize::from(live.timeout_ms < SHORT_MS);
        self.due.remove(&(live.filed_ms, id));
        live.conn()
    }

    /// Its owner has come to this place; gives back where it was.
    pub fn attach(&mut self, id: SessionId, place: Place, since: Attachment) -> Place {
        self.sessions.get_mut(&id).map_or(Place::Nowhere, |live| {
            live.since = since;
            std::mem::replace(&mut live.place, place)
        })
    }

    /// Since when it is where it is.
    pub fn since(&self, id: SessionId) -> Attachment {
        self.lookup(id).map_or(Attachment::default(), |live| live.since)
    }

    /// It asked for this entry.
    pub fn wrote(&mut self, id: SessionId, zxid: Zxid) {
        if let Some(live) = self.sessions.get_mut(&id) {
            live.last_write = zxid;
        }
    }

    /// Takes a session off a connection, if it still is on that one.
    pub fn detach(&mut self, id: SessionId, conn: ConnId) {
        if let Some(live) = self.sessions.get_mut(&id)
            && live.place == Place::Here(conn)
        {
            live.place = Place::Left;
        }
    }

    /// A leadership ended: what only its leader knew is over, and ends that it proposed may never come.
    pub fn forget_leadership(&mut self) {
        for (&id, live) in &mut self.sessions {
            live.last_write = Zxid::ZERO;
            match live.place {
                Place::There(..) | Place::Left => live.place = Place::Nowhere,
                Place::Here(_) | Place::Nowhere => {}
            }
            if std::mem::take(&mut live.closing) {
                self.due.insert((live.filed_ms, id));
            }
        }
    }

    /// Sessions whose owners are on this server.
    pub fn here(&self) -> impl Iterator<Item = (SessionId, ConnId)> + '_ {
        self.sessions.iter().filter_map(|(&id, live)| Some((id, live.conn()?)))
    }

    /// The owner gave a sign of life.
    pub fn touch(&mut self, id: SessionId, now_ms: u64) {
        if let Some(live) = self.sessions.get_mut(&id) {
            live.deadline_ms = live.deadline_ms.max(deadline(live.timeout_ms, now_ms));
        }
    }

    /// Serving begins, or this server was paused: nobody could speak to it, so every session has its whole timeout again. All are filed
    /// anew, because a place in the past would look as if this server were late.
    pub fn touch_all(&mut self, now_ms: u64) {
        self.due.clear();
        for (&id, live) in self.sessions.iter_mut().filter(|(_, live)| !live.closing) {
            live.deadline_ms = deadline(live.timeout_ms, now_ms);
            live.filed_ms = live.deadline_ms;
            self.due.insert((live.filed_ms, id));
        }
    }

    /// In how many milliseconds silence ends each session, soonest first.
    pub fn deadlines(&self, now_ms: u64) -> Vec<(u64, SessionId)> {
        let mut all: Vec<_> =
            self.sessions.iter().map(|(&id, live)| (live.deadline_ms.saturating_sub(now_ms), id)).collect();
        all.sort_unstable();
        all
    }

    /// Another timeout counts from now on.
    pub fn renew(&mut self, id: SessionId, timeout_ms: u32, now_ms: u64) {
        let deadline_ms = deadline(timeout_ms, now_ms);
        if let Some(live) = self.sessions.get_mut(&id) {
            self.short += usize::from(timeout_ms < SHORT_MS);
            self.short -= usize::from(live.timeout_ms < SHORT_MS);
            (live.timeout_ms, live.deadline_ms) = (timeout_ms, deadline_ms);
            if deadline_ms < live.filed_ms && !live.closing {
                self.due.remove(&(live.filed_ms, id));
                live.filed_ms = deadline_ms;
                self.due.insert((deadline_ms, id));
            }
        }
    }

    /// Its end is proposed.
    pub fn close(&mut self, id: SessionId) {
        if let Some(live) = self.sessions.get_mut(&id) {
            live.closing = true;
            self.due.remove(&(live.filed_ms, id));
        }
    }

    /// When to look again, on the caller's clock.
    pub fn next_deadline(&self) -> Option<u64> {
        self.due.first().map(|&(due_ms, _)| due_ms)
    }

    /// The next session whose silence lasted its timeout. Call [`SessionTable::close`] or [`SessionTable::touch`] on it, then again.
    pub fn expired(&mut self, now_ms: u64) -> Option<SessionId> {
        loop {
            let &(filed_ms, id) = self.due.first()?;
            if filed_ms > now_ms {
                return None;
            }
            let live = self.sessions.get_mut(&id)?;
            if live.deadline_ms <= filed_ms {
                return Some(id);
            }
            self.due.remove(&(filed_ms, id));
            live.filed_ms = live.deadline_ms;
            self.due.insert((live.filed_ms, id));
        }
    }
}

/// Strictly after the timeout: a silence of exactly the timeout is still alive.
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
    fn a_session_expires_after_its_timeout_of_silence_and_not_before() {
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
    fn a_touch_counts_from_when_it_came() {
        let mut table = table();
        table.touch(A, 10_900);
        assert_eq!(table.expired(11_500), None);
        assert_eq!(table.next_deadline(), Some(11_901));
        assert_eq!(table.expired(11_901), Some(A));
    }

    #[test]
    fn whoever_was_silent_before_serving_began_has_a_whole_timeout() {
        let mut table = table();
        table.touch_all(50_000);
        assert_eq!(table.next_deadline(), Some(51_001));
        assert_eq!(table.expired(51_000), None);
        assert_eq!(table.expired(51_001), Some(A));
    }

    #[test]
    fn a_shorter_timeout_is_filed_anew() {
        let mut table = table();
        table.renew(B, 500, 10_000);
        assert_eq!(table.expired(10_501), Some(B));
        table.renew(B, 5000, 10_000);
        table.touch(B, 10_400);
        assert_eq!(table.expired(11_000), None);
        assert_eq!(table.expired(11_001), Some(A));
    }

    #[test]
    fn a_session_is_short_by_the_timeout_that_it_has_now() {
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
    fn only_the_owning_connection_detaches() {
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
    fn what_a_leader_knew_ends_with_its_leadership() {
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
