//! The changes of one entry, laid over the state until the whole entry has succeeded.

use crate::record::key::Key;
use bytes::Bytes;
use std::collections::HashMap;

/// A change of one record by an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Whether the record existed before the entry.
    pub existed: bool,
    /// The record after the entry; `None` if it is deleted.
    pub after: Option<Bytes>,
}

impl Change {
    /// Returns whether the entry created the record.
    pub fn is_birth(&self) -> bool {
        !self.existed && self.after.is_some()
    }

    /// Returns whether the entry deleted the record.
    pub fn is_death(&self) -> bool {
        self.existed && self.after.is_none()
    }
}

/// Up to this many changes are searched linearly. Most entries make one or two.
const LOOKED_THROUGH: usize = 16;

/// The changes of one entry: each key once, in the order of first change.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    changes: Vec<(Key, Change)>,
    /// Index of each key in `changes`, once there are many. `None` until there have been many.
    places: Option<HashMap<Key, usize>>,
}

impl PartialEq for Overlay {
    fn eq(&self, other: &Self) -> bool {
        self.changes == other.changes
    }
}

impl Eq for Overlay {}

impl Overlay {
    /// Returns the change that an earlier part of the entry made to a record.
    pub fn get(&self, key: &[u8]) -> Option<&Change> {
        self.place(key).map(|at| &self.changes[at].1)
    }

    /// Adds or updates a change. `existed` is kept from the record's first change.
    pub(crate) fn put(&mut self, key: Key, change: Change) {
        if let Some(at) = self.place(&key) {
            self.changes[at].1.after = change.after;
            return;
        }
        if self.changes.len() == LOOKED_THROUGH {
            let all = self.changes.iter().enumerate().map(|(at, (key, _))| (key.clone(), at));
            self.places.get_or_insert_default().extend(all);
        }
        if self.changes.len() >= LOOKED_THROUGH {
            self.places.get_or_insert_default().insert(key.clone(), self.changes.len());
        }
        self.changes.push((key, change));
    }

    fn place(&self, key: &[u8]) -> Option<usize> {
        if self.changes.len() <= LOOKED_THROUGH {
            return self.changes.iter().position(|(changed, _)| **changed == *key);
        }
        self.places.as_ref()?.get(key).copied()
    }

    /// Removes all changes.
    pub(crate) fn clear(&mut self) {
        self.changes.clear();
        self.forget_places();
    }

    fn forget_places(&mut self) {
        if let Some(places) = &mut self.places {
            places.clear();
        }
    }

    /// Iterates over the changes in the order of first change.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Change)> {
        self.changes.iter().map(|(key, change)| (key, change))
    }

    /// Removes and returns all changes in the order of first change. The memory stays allocated.
    pub fn drain(&mut self) -> impl Iterator<Item = (Key, Change)> + '_ {
        self.forget_places();
        self.changes.drain(..)
    }

    /// Returns the number of changes that fit without allocating.
    pub(crate) fn capacity(&self) -> usize {
        self.changes.capacity()
    }

    /// Iterates over the keys.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.changes.iter().map(|(key, _)| key)
    }

    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlay_finds_each_of_any_number_of_changes_in_order() {
        for many in [1, LOOKED_THROUGH, LOOKED_THROUGH + 1, 100] {
            let mut overlay = Overlay::default();
            let key = |number: usize| Key::from(number.to_be_bytes());
            let after = |round: u8| Some(Bytes::from(vec![round]));
            for round in 0..3 {
                for number in 0..many {
                    overlay.put(key(number), Change { existed: round > 0, after: after(round) });
                }
            }
            let expected = Change { existed: false, after: after(2) };
            assert!((0..many).all(|number| overlay.get(&key(number)) == Some(&expected)), "{many}");
            assert_eq!(overlay.get(&key(many)), None);
            assert_eq!(
                overlay.iter().map(|(found, _)| found.clone()).collect::<Vec<_>>(),
                (0..many).map(key).collect::<Vec<_>>()
            );
            let before = overlay.clone();
            overlay.clear();
            assert!(overlay.is_empty() && overlay.get(&key(0)).is_none());
            before.iter().for_each(|(key, change)| overlay.put(key.clone(), change.clone()));
            assert!(overlay == before && (0..many).all(|number| overlay.get(&key(number)) == Some(&expected)));
            assert_eq!(overlay.drain().count(), many);
            assert!(overlay == Overlay::default() && (0..many).all(|number| overlay.get(&key(number)).is_none()));
        }
    }
}
