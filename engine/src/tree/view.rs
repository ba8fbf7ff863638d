//! How the tree looks at the state.

use crate::action::FetchWhat;
use crate::store::key::Key;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What memory knows of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// This is it.
    Record(Bytes),
    /// There is none.
    Absent,
    /// Only the base knows.
    Unknown,
}

/// The applied state as far as it is in memory.
pub trait View {
    /// One record.
    fn record(&mut self, key: &[u8]) -> Found;

    /// Whether there is such a record; `None` when only the base knows.
    fn holds(&mut self, key: &[u8]) -> Option<bool> {
        match self.record(key) {
            Found::Record(_) => Some(true),
            Found::Absent => Some(false),
            Found::Unknown => None,
        }
    }

    /// This key, to be kept; shared with the state where that has it already.
    fn key(&mut self, key: &[u8]) -> Key {
        key.into()
    }

    /// This record, written where one was that nobody has any more; `None` when it is to have memory of its own.
    fn slate(&mut self, _record: &[u8]) -> Option<Bytes> {
        None
    }

    /// Every key under a prefix, in order; `None` when the base must be asked.
    fn keys_under(&mut self, prefix: &[u8]) -> Option<Vec<Key>>;

    /// What memory knows better than the base of the keys under a prefix: rest of the key, and whether it is there.
    fn newer(&self, prefix: &[u8]) -> BTreeMap<Key, bool>;
}

/// Why a call could not be finished now. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stuck {
    /// Fetch these and call again.
    Missing(Vec<FetchWhat>),
    /// A record is not what was written: the state cannot be trusted.
    Damaged(&'static str),
}
