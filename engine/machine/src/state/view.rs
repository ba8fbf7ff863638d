//! The tree's view of the state.

use crate::record::key::Key;
use crate::seam::action::FetchWhat;
use crate::tree::{COUNTED_AT_ONCE, Room};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Result of looking up a record in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// The record.
    Record(Bytes),
    /// The record does not exist.
    Absent,
    /// Memory does not know: the base must be read.
    Unknown,
}

/// The first keys of a range, at most [`FIRST_KEYS_MAX`](crate::seam::action::FIRST_KEYS_MAX).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct First {
    /// Existing keys, in order.
    pub keys: Vec<Key>,
    /// Where the search goes on after them; `None` if no key follows.
    pub next: Option<Key>,
}

/// The applied state, as far as it is in memory.
pub trait View {
    /// Looks up a record.
    fn record(&mut self, key: &[u8]) -> Found;

    /// Looks up a record, and returns the stored key if the lookup met one.
    ///
    /// Without it the caller gets the key from [`View::key`].
    fn record_with_key(&mut self, key: &[u8]) -> (Found, Option<Key>) {
        (self.record(key), None)
    }

    /// Returns whether a record exists; `None` if the base must be read.
    fn holds(&mut self, key: &[u8]) -> Option<bool> {
        match self.record(key) {
            Found::Record(_) => Some(true),
            Found::Absent => Some(false),
            Found::Unknown => None,
        }
    }

    /// Returns an owned copy of this key, shared with the state if the state has it.
    fn key(&mut self, key: &[u8]) -> Key {
        key.into()
    }

    /// Returns this record written into reused memory. `None` if it needs a new allocation.
    fn pooled(&mut self, _record: &[u8]) -> Option<Bytes> {
        None
    }

    /// Returns every key under a prefix, in order. `None` if the base must be read.
    fn keys_under(&mut self, prefix: &[u8]) -> Option<Vec<Key>>;

    /// Returns the first znodes with keys in `from..to`, in order, with the length of their data.
    ///
    /// They end with the znode that uses up the room, or with the range.
    ///
    /// # Errors
    /// [`Stuck`] if the base must be read, or a record is damaged.
    fn weights(&mut self, from: &[u8], to: &[u8], room: Room) -> Result<Vec<(Key, u32)>, Stuck>;

    /// Returns whether the base's first znodes from this key on are in memory.
    fn has_weights(&self, _from: &[u8]) -> bool {
        true
    }

    /// Returns whether such znodes in memory show that this key has no record.
    ///
    /// Only lookups of quotas may rely on it. A record that changes must be known by
    /// [`View::holds`]: a fetch for its key may still be in flight.
    fn lacks(&self, _key: &[u8]) -> bool {
        false
    }

    /// Returns the room for counting of one entry. It is equal on all servers.
    fn counted_at_once(&self) -> Room {
        COUNTED_AT_ONCE
    }

    /// Returns the keys under a prefix whose state in memory is newer than the base.
    ///
    /// Each item is the rest of the key after the prefix, and whether the key exists.
    fn newer(&self, prefix: &[u8]) -> BTreeMap<Key, bool>;
}

/// Why a call cannot finish now. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stuck {
    /// Records are missing: fetch them and call again.
    Missing(Vec<FetchWhat>),
    /// A record is damaged: the state cannot be trusted.
    Damaged(&'static str),
}
