//! The replicated state as one server holds it: memory above a base, sessions in full.

use crate::action::{Changes, CheckpointMeta, Generation};
use crate::store::Memory;
use crate::store::key::{self, Key};
use crate::tree::record::{NotARecord, Session, Totals};
use crate::tree::{Applied, Change, Found, View, birth};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use zoolet_model::{SessionId, Zxid};

/// What a base holds, as far as it is needed at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BaseState {
    zxid: Zxid,
    digest: u128,
    totals: Totals,
    sessions: BTreeMap<SessionId, Session>,
}

impl BaseState {
    /// From the meta record and every record under the tag [`key::SESSION`].
    ///
    /// # Errors
    /// [`NotARecord`] when a record was written by something else.
    pub fn read(meta: &CheckpointMeta, sessions: impl IntoIterator<Item = (Key, Bytes)>) -> Result<Self, NotARecord> {
        let sessions = sessions.into_iter().map(|(key, record)| {
            let id = key.get(1..).and_then(|id| id.try_into().ok()).map(i64::from_be_bytes).ok_or(NotARecord)?;
            Ok((SessionId(id), Session::decode(&record)?))
        });
        Ok(Self {
            zxid: meta.zxid,
            digest: meta.digest,
            totals: Totals::decode(&meta.totals)?,
            sessions: sessions.collect::<Result<_, NotARecord>>()?,
        })
    }
}

/// Applied state.
///
/// Every session's record is in memory all the time: expiry needs them, and their number is bounded.
#[derive(Debug)]
pub(super) struct State {
    memory: Memory,
    sessions: BTreeMap<Key, Bytes>,
    applied: Zxid,
    totals: Totals,
    digest: u128,
}

impl State {
    pub(super) fn new(base: Option<BaseState>, cache_bytes_max: usize, seed: u64) -> Self {
        let mut memory = Memory::new(cache_bytes_max, seed);
        match base {
            Some(BaseState { zxid, digest, totals, sessions }) => {
                let sessions = sessions.into_iter().map(|(id, session)| (key::session(id), session.encode())).collect();
                Self { memory, sessions, applied: zxid, totals, digest }
            }
            None => {
                let (changes, totals, digest) = birth();
                memory
                    .install(changes.into_iter().map(|(key, after)| (key, Change { existed: false, after })).collect());
                Self { memory, sessions: BTreeMap::new(), applied: Zxid::ZERO, totals, digest }
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
        let decode = |(key, record): (&Key, &Bytes)| {
            let id = i64::from_be_bytes(key.get(1..)?.try_into().ok()?);
            Some((SessionId(id), Session::decode(record).ok()?))
        };
        self.sessions.iter().filter_map(decode).collect()
    }

    /// Makes an entry's changes the state.
    pub(super) fn install(&mut self, zxid: Zxid, applied: &mut Applied) {
        let changes = std::mem::take(&mut applied.changes);
        for (key, change) in changes.range(Key::from([key::SESSION])..Key::from([key::SESSION + 1])) {
            match &change.after {
                Some(record) => drop(self.sessions.insert(key.clone(), record.clone())),
                None => drop(self.sessions.remove(key)),
            }
        }
        self.memory.install(changes);
        (self.applied, self.totals, self.digest) = (zxid, applied.totals, applied.digest);
    }

    /// Freezes what the base does not have yet.
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
            return self.sessions.get(key).map_or(Found::Absent, |record| Found::Record(record.clone()));
        }
        self.memory.record(key)
    }

    fn keys_under(&mut self, prefix: &[u8]) -> Option<Vec<Key>> {
        self.memory.keys_under(prefix)
    }

    fn newer(&self, prefix: &[u8]) -> BTreeMap<Key, bool> {
        self.memory.newer(prefix)
    }
}
