//! The replicated state as one server holds it: memory above a base, and every session.

use crate::record::key::{self, Key};
use crate::record::znode::{NotARecord, Session, Totals};
use crate::seam::checkpoint::CheckpointMeta;
use crate::seam::ids::Generation;
use crate::state::Changes;
use crate::state::Memory;
use crate::state::{Change, Found, Stuck, View};
use crate::tree::{Applied, Room, birth};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use zoolet_model::{ServerId, SessionId, Zxid};
use zoolet_zab::{Mutation, mutation};

/// The part of a base's contents that is needed at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BaseState {
    zxid: Zxid,
    digest: u128,
    totals: Totals,
    sessions: BTreeMap<SessionId, Session>,
}

impl BaseState {
    /// Returns the checkpoint meta of this base.
    pub(super) fn meta(&self) -> CheckpointMeta {
        CheckpointMeta { zxid: self.zxid, digest: self.digest, totals: self.totals.encode() }
    }

    /// Reads the meta record and all records under the tag [`key::SESSION`].
    ///
    /// # Errors
    /// [`NotARecord`] if a record is not in the expected format.
    pub fn read(meta: &CheckpointMeta, sessions: impl IntoIterator<Item = (Key, Bytes)>) -> Result<Self, NotARecord> {
        let sessions = sessions
            .into_iter()
            .map(|(key, record)| Ok((session_of(&key).ok_or(NotARecord)?, Session::decode(&record)?)));
        Ok(Self {
            zxid: meta.zxid,
            digest: meta.digest,
            totals: Totals::decode(&meta.totals)?,
            sessions: sessions.collect::<Result<_, NotARecord>>()?,
        })
    }
}

/// Returns the session named by a key under the tag [`key::SESSION`].
fn session_of(key: &[u8]) -> Option<SessionId> {
    key.get(1..)?.try_into().ok().map(i64::from_be_bytes).map(SessionId)
}

/// A session and its number of ephemerals. `None` if a session from the base is not counted yet.
#[derive(Clone, Copy, Debug)]
struct Owner {
    session: Session,
    ephemerals: Option<u32>,
}

/// The applied state.
///
/// All session records stay in memory: expiry needs them, and their number is bounded.
#[derive(Debug)]
pub(super) struct State {
    memory: Memory,
    sessions: BTreeMap<SessionId, Owner>,
    applied: Zxid,
    totals: Totals,
    digest: u128,
    counted_at_once: Room,
}

impl State {
    pub(super) fn new(base: Option<BaseState>, cache_bytes_max: usize, counted_at_once: Room, seed: u64) -> Self {
        let mut memory = Memory::new(cache_bytes_max, seed);
        match base {
            Some(BaseState { zxid, digest, totals, sessions }) => {
                let sessions = sessions.into_iter().map(|(id, session)| (id, Owner { session, ephemerals: None }));
                let sessions = sessions.collect();
                Self { memory, sessions, applied: zxid, totals, digest, counted_at_once }
            }
            None => {
                let (changes, totals, digest) = birth();
                let born = |(key, after): (&Key, &Option<Bytes>)| {
                    (key.clone(), Change { existed: false, after: after.clone() })
                };
                memory.install(changes.iter().map(born));
                let sessions = BTreeMap::new();
                Self { memory, sessions, applied: Zxid::ZERO, totals, digest, counted_at_once }
            }
        }
    }

    pub(super) fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    pub(super) fn memory_ref(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn applied(&self) -> Zxid {
        self.applied
    }

    pub(super) fn totals(&self) -> &Totals {
        &self.totals
    }

    pub(super) fn digest(&self) -> u128 {
        self.digest
    }

    pub(super) fn sessions(&self) -> Vec<(SessionId, Session)> {
        self.sessions.iter().map(|(&id, owner)| (id, owner.session)).collect()
    }

    /// Returns the sessions whose owners live in a process of this server, current or former.
    pub(super) fn sessions_at_home(&self, server: ServerId) -> Vec<SessionId> {
        let at_home = self.sessions.iter().filter(|(_, owner)| owner.session.home == Some(server));
        at_home.map(|(&id, _)| id).collect()
    }

    /// Installs an entry's changes.
    pub(super) fn install(&mut self, zxid: Zxid, applied: &mut Applied) {
        let changes = &mut applied.changes;
        for (key, change) in changes.iter().filter(|(key, _)| key.first() == Some(&key::SESSION)) {
            let (Some(id), record) = (session_of(key), &change.after) else { continue };
            match record.as_deref().map(Session::decode) {
                Some(Ok(session)) => {
                    let owner = self.sessions.entry(id).or_insert(Owner { session, ephemerals: Some(0) });
                    owner.session = session;
                }
                Some(Err(NotARecord)) | None => drop(self.sessions.remove(&id)),
            }
        }
        for (key, change) in changes.iter().filter(|(key, _)| key.first() == Some(&key::EPHEMERAL)) {
            let owner = key.get(..9).and_then(session_of).and_then(|id| self.sessions.get_mut(&id));
            let Some(Owner { ephemerals: Some(count), .. }) = owner else { continue };
            // A multi may delete and recreate an ephemeral: count only records that did not exist
            // before the entry.
            let drifts = mutation::is_on(Mutation::EphemeralsDrift);
            if change.is_birth() || (drifts && change.after.is_some()) {
                *count += 1;
            } else if change.is_death() || (drifts && change.after.is_none()) {
                *count = count.saturating_sub(1);
            }
        }
        self.memory.install(changes.drain());
        self.memory.trim_weights(applied.counts);
        (self.applied, self.totals, self.digest) = (zxid, applied.totals, applied.digest);
    }

    /// Returns how many ephemerals a session owns, if known.
    pub(super) fn ephemerals(&self, session: SessionId) -> Option<u32> {
        self.sessions.get(&session)?.ephemerals
    }

    /// Returns the sessions whose ephemerals are counted, with their counts.
    pub(super) fn owned(&self) -> impl Iterator<Item = (SessionId, u32)> + '_ {
        self.sessions.iter().filter_map(|(&id, owner)| Some((id, owner.ephemerals?)))
    }

    pub(super) fn learn_ephemerals(&mut self, session: SessionId, count: u32) {
        if let Some(owner) = self.sessions.get_mut(&session) {
            owner.ephemerals = Some(count);
        }
    }

    /// Freezes the changes that the base does not have yet, for a checkpoint.
    pub(super) fn freeze(&mut self) -> (Arc<Changes>, CheckpointMeta) {
        let meta = CheckpointMeta { zxid: self.applied, digest: self.digest, totals: self.totals.encode() };
        (self.memory.freeze(), meta)
    }

    pub(super) fn generation(&self) -> Generation {
        self.memory.generation()
    }
}

impl View for State {
    fn record(&mut self, key: &[u8]) -> Found {
        if key.first() == Some(&key::SESSION) {
            let session = session_of(key).and_then(|id| self.sessions.get(&id));
            return session.map_or(Found::Absent, |owner| Found::Record(owner.session.encode()));
        }
        self.memory.record(key)
    }

    fn record_with_key(&mut self, key: &[u8]) -> (Found, Option<Key>) {
        if key.first() == Some(&key::SESSION) { (self.record(key), None) } else { self.memory.record_with_key(key) }
    }

    fn holds(&mut self, key: &[u8]) -> Option<bool> {
        if key.first() == Some(&key::SESSION) {
            return Some(session_of(key).is_some_and(|id| self.sessions.contains_key(&id)));
        }
        self.memory.holds(key)
    }

    fn key(&mut self, key: &[u8]) -> Key {
        self.memory.key(key)
    }

    fn pooled(&mut self, record: &[u8]) -> Option<Bytes> {
        self.memory.pooled(record)
    }

    fn keys_under(&mut self, prefix: &[u8]) -> Option<Vec<Key>> {
        self.memory.keys_under(prefix)
    }

    fn weights(&mut self, from: &[u8], to: &[u8], room: Room) -> Result<Vec<(Key, u32)>, Stuck> {
        self.memory.weights(from, to, room)
    }

    fn has_weights(&self, from: &[u8]) -> bool {
        self.memory.has_weights(from)
    }

    fn lacks(&self, key: &[u8]) -> bool {
        self.memory.lacks(key)
    }

    fn counted_at_once(&self) -> Room {
        self.counted_at_once
    }

    fn newer(&self, prefix: &[u8]) -> BTreeMap<Key, bool> {
        self.memory.newer(prefix)
    }
}
