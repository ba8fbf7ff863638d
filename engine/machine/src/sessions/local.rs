//! Local sessions: only the server that accepted them knows them.

use super::SessionTable;
use super::auth::Secrets;
use crate::network::Source;
use crate::record::znode::Session;
use crate::seam::ids::ConnId;
use crate::seam::peer::Attachment;
use crate::sessions::{Live, Place};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_model::{Epoch, ServerId, SessionId, Zxid};
use zoolet_zab::{Mutation, mutation};

/// Gives ids to local sessions.
///
/// Global ids are zxids, so their top bit is clear. In a local id the two top bits are 1 and 0,
/// the next 8 are the server's id, and the other 54 are a number. The second bit is set in the
/// session's name in entries. The number starts at a random
/// value in each process and counts up, because a box without a battery may start twice at one
/// time of its clock. No id begins with the byte 0xff, which marks ZooKeeper's TTL znodes.
#[derive(Clone, Debug)]
struct LocalIds {
    server: ServerId,
    next: u64,
}

impl LocalIds {
    fn next(&mut self) -> SessionId {
        let id = SessionId::of_local(self.server, self.next);
        self.next = self.next.wrapping_add(1);
        id
    }
}

/// The local sessions of this server.
#[derive(Debug)]
pub struct LocalSessions {
    ids: LocalIds,
    table: SessionTable,
    /// Sessions whose upgrade is proposed, and the epoch of that entry.
    upgrading: BTreeMap<SessionId, Epoch>,
    /// Sessions whose upgrade the leader refused, until the request that asked for it is answered.
    refused: BTreeSet<SessionId>,
    /// The connection that a session left while some of its writes had no outcome.
    former: BTreeMap<SessionId, ConnId>,
    /// Connections that wait for the writes of their session's former connection: former and new.
    following: Vec<(ConnId, ConnId)>,
    /// The last applied entry and the number of answered forwards when these were last checked.
    settled: Option<(Zxid, u64)>,
    /// The server lets no reader in, or not every client, so the sessions cannot be heard.
    is_unheard: (bool, bool),
}

impl LocalSessions {
    /// Creates an empty table. `secrets` must be seeded with the entropy of this process.
    pub fn new(server: ServerId, secrets: &Secrets) -> Self {
        Self {
            ids: LocalIds { server, next: secrets.first_number() },
            table: SessionTable::default(),
            upgrading: BTreeMap::new(),
            refused: BTreeSet::new(),
            former: BTreeMap::new(),
            following: Vec::new(),
            settled: None,
            is_unheard: (false, false),
        }
    }

    /// Returns the sessions' liveness and places.
    pub fn table(&self) -> &SessionTable {
        &self.table
    }

    /// Returns the sessions' liveness and places, for changes.
    pub fn table_mut(&mut self) -> &mut SessionTable {
        &mut self.table
    }

    /// Returns whether this session is local and at this server.
    pub fn contains(&self, session: SessionId) -> bool {
        session.began_local() && self.table.lookup(session).is_some()
    }

    /// Returns the name of `session` in its entries.
    pub fn named_in_entries(&self, session: SessionId) -> SessionId {
        let is_local = self.contains(session) && !mutation::is_on(Mutation::LocalSeenAsGlobal);
        if is_local { session.named_local() } else { session }
    }

    /// Begins a session on `conn`; returns its id. `is_taken` names ids that former sessions keep.
    pub fn begin(
        &mut self,
        session: Session,
        conn: ConnId,
        source: Option<Source>,
        now_ms: u64,
        is_taken: impl Fn(SessionId) -> bool,
    ) -> SessionId {
        let id = loop {
            let id = self.ids.next();
            if !is_taken(id) && self.table.lookup(id).is_none() {
                break id;
            }
        };
        self.table.insert(id, session, now_ms);
        self.table.charge(source);
        self.table.began_from(id, source);
        self.table.attach(id, Place::Here(conn), Attachment::default());
        id
    }

    /// Removes a session; returns its former entry, with the network of its client.
    pub fn remove(&mut self, session: SessionId) -> Option<(Live, Option<Source>)> {
        let live = self.table.lookup(session)?.clone();
        let source = self.table.source(session);
        self.table.remove(session);
        self.upgrading.remove(&session);
        self.refused.remove(&session);
        self.former.remove(&session);
        Some((live, source))
    }

    /// Forgets every session.
    pub fn clear(&mut self) {
        self.table = SessionTable::default();
        self.upgrading.clear();
        self.refused.clear();
        self.former.clear();
        self.following.clear();
    }

    /// Notes whether readers, and all clients, can be heard; returns true when one begins anew.
    pub fn become_heard(&mut self, hears_readers: bool, hears_all: bool) -> bool {
        let (no_readers, not_all) = std::mem::replace(&mut self.is_unheard, (!hears_readers, !hears_all));
        (no_readers && hears_readers) || (not_all && hears_all)
    }

    /// Notes that a session's upgrade is proposed in this epoch.
    pub fn begin_upgrade(&mut self, session: SessionId, epoch: Epoch) {
        self.upgrading.insert(session, epoch);
    }

    /// Returns whether the session's upgrade is proposed and has no outcome here.
    pub fn is_upgrading(&self, session: SessionId) -> bool {
        self.upgrading.contains_key(&session)
    }

    /// Returns the sessions whose upgrade is proposed and has no outcome here.
    pub fn upgrading(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.upgrading.keys().copied()
    }

    /// Returns the first `count` sessions that may expire, without those that are becoming global.
    pub fn soonest(&mut self, count: usize) -> Vec<SessionId> {
        let upgrading = &self.upgrading;
        self.table.soonest(count, |id| upgrading.contains_key(&id))
    }

    /// Notes that the session's upgrade is refused.
    pub fn refuse_upgrade(&mut self, session: SessionId) {
        if self.upgrading.remove(&session).is_some() {
            self.refused.insert(session);
        }
    }

    /// Returns whether the session's upgrade was refused and its request is not answered.
    pub fn is_refused(&self, session: SessionId) -> bool {
        self.refused.contains(&session)
    }

    /// Notes that the request that asked for a refused upgrade is answered.
    pub fn answer_refusal(&mut self, session: SessionId) {
        self.refused.remove(&session);
    }

    /// Removes and returns the sessions whose upgrade was proposed, with the epochs.
    pub fn take_upgrading(&mut self) -> BTreeMap<SessionId, Epoch> {
        std::mem::take(&mut self.upgrading)
    }

    /// Notes that the session left `conn` while writes of that connection had no outcome.
    pub fn left_writes(&mut self, session: SessionId, conn: ConnId) {
        if self.contains(session) {
            self.former.insert(session, conn);
        }
    }

    /// Returns the connection that the session left with writes that had no outcome then.
    pub fn former(&self, session: SessionId) -> Option<ConnId> {
        self.former.get(&session).copied()
    }

    /// Notes that a new connection waits for the writes of its session's former connection.
    pub fn follow(&mut self, former: ConnId, conn: ConnId) {
        self.following.push((former, conn));
    }

    /// Removes and returns all connections that wait for their session's former connection.
    pub fn take_following(&mut self) -> Vec<(ConnId, ConnId)> {
        std::mem::take(&mut self.following)
    }

    /// Notes how far writes are settled; returns whether some have been settled since.
    pub fn become_settled(&mut self, settled: (Zxid, u64)) -> bool {
        self.settled.replace(settled) != Some(settled)
    }

    /// Returns whether some connection waits for its session's former connection.
    pub fn is_any_following(&self) -> bool {
        !self.following.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::SessionSecret;

    fn sessions(server: u8, seed: u8) -> LocalSessions {
        LocalSessions::new(ServerId::new(server).unwrap(), &Secrets::new([seed; 32]))
    }

    fn begin(sessions: &mut LocalSessions, is_taken: impl Fn(SessionId) -> bool) -> SessionId {
        let session = Session { timeout_ms: 1000, secret: SessionSecret([1; 16]), home: None };
        sessions.begin(session, ConnId(1), None, 0, is_taken)
    }

    #[test]
    fn local_id_is_no_zxid_and_differs_between_servers_and_processes() {
        let ids =
            [(1, 1), (1, 2), (2, 1), (255, 1)].map(|(server, seed)| begin(&mut sessions(server, seed), |_| false));
        for (at, id) in ids.iter().enumerate() {
            assert!(id.began_local() && Zxid::from_bits(id.0 as u64).is_none());
            assert!((id.0 as u64) >> 56 < 0xc0, "the top byte never marks a TTL znode");
            assert_ne!(id.0, i64::MIN, "ZooKeeper's mark of a container");
            assert_eq!(ids.iter().position(|other| other == id), Some(at));
        }
        let server = |id: SessionId| (id.0 as u64) >> 54 & 0xff;
        assert_eq!(ids.map(server), [1, 1, 2, 255]);
        assert_eq!(ids[3].server_of_local(), ServerId::new(255));
        assert_eq!(SessionId(5).server_of_local(), None);
    }

    #[test]
    fn local_id_is_never_that_of_a_known_session() {
        let mut sessions = sessions(1, 1);
        let first = begin(&mut sessions, |_| false);
        sessions.ids.next -= 1;
        let second = begin(&mut sessions, |_| false);
        let third = begin(&mut sessions, |id| id == SessionId(second.0 + 1));
        assert_eq!((second.0 - first.0, third.0 - second.0), (1, 2));
    }

    #[test]
    fn local_numbers_wrap_without_changing_the_servers_part() {
        let mut sessions = sessions(3, 1);
        sessions.ids.next = u64::MAX;
        let (last, first) = (begin(&mut sessions, |_| false), begin(&mut sessions, |_| false));
        assert_eq!((last.0 as u64) >> 54, (first.0 as u64) >> 54);
        assert_eq!(first.0 as u64 & ((1 << 54) - 1), 0);
    }

    #[test]
    fn removal_forgets_everything_about_a_local_session() {
        let mut sessions = sessions(1, 1);
        let session = begin(&mut sessions, |_| false);
        sessions.left_writes(session, ConnId(1));
        sessions.begin_upgrade(session, Epoch::default());
        sessions.refuse_upgrade(session);
        assert!(sessions.is_refused(session) && !sessions.is_upgrading(session));
        sessions.remove(session);
        assert!(!sessions.contains(session) && !sessions.is_refused(session));
        assert_eq!(sessions.former(session), None);
        sessions.left_writes(session, ConnId(1));
        assert_eq!(sessions.former(session), None);
    }
}
