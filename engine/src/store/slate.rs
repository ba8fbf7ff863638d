//! Memory that records and their keys are written in, wiped, and written again.

use super::key::Key;
use crate::budget::allocated;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// How many there are of each kind. A lock that is taken and released needs three for records: two for its parent's, before and after, and its own.
const SLATES: usize = 16;
/// What is longer has memory of its own.
const SLATE_BYTES: usize = 256;
/// What makes the bytes of a record shared, and those of a key.
const RECORD_SHARED_BYTES: usize = 40;
const KEY_SHARED_BYTES: usize = 16;
/// How many of those of records are looked at each time, so that who finds none has not looked for long. One more than a lock needs.
const LOOKS: usize = 4;
/// So many times none is found that can be wiped before one is given up for a new one.
const PATIENCE: u32 = 64;

/// A few records and keys that are written over when nobody else has them any more: so what changes often, or lives for a moment, costs no
/// allocation, and what stays takes the memory that it needs.
///
/// Slates are known here for as long as they are in the set. Who has one need not give it back: as long as he has it, it is not wiped. Those that
/// stay are given up for new ones, slowly, and are then memory as any other.
#[derive(Debug, Default)]
pub(super) struct Slates {
    records: Set<Bytes>,
    keys: Set<Key>,
}

impl Slates {
    /// What they take, bytes.
    pub(super) fn bytes(&self) -> usize {
        let keys = self.keys.slates.iter().map(|key| allocated(KEY_SHARED_BYTES + key.len()));
        self.records.slates.len() * (allocated(SLATE_BYTES) + allocated(RECORD_SHARED_BYTES)) + keys.sum::<usize>()
    }

    /// The record on a slate; `None` when it is long, or there is none.
    pub(super) fn record(&mut self, record: &[u8]) -> Option<Bytes> {
        let wipe = |slate: &mut Bytes| {
            if !slate.is_unique() {
                return false;
            }
            let mut wiped = BytesMut::from(std::mem::take(slate));
            wiped.clear();
            wiped.extend_from_slice(record);
            *slate = wiped.freeze();
            true
        };
        if record.len() <= SLATE_BYTES { self.records.write(LOOKS, wipe, || wipeable(record)) } else { None }
    }

    /// The key, on a slate if there is one of its length.
    pub(super) fn key(&mut self, key: &[u8]) -> Key {
        let wipe = |slate: &mut Key| {
            let wiped = if slate.len() == key.len() { Arc::get_mut(slate) } else { None };
            wiped.map(|wiped| wiped.copy_from_slice(key)).is_some()
        };
        let written = if key.len() <= SLATE_BYTES { self.keys.write(SLATES, wipe, || key.into()) } else { None };
        written.unwrap_or_else(|| key.into())
    }
}

/// A record of the kind of [`Bytes`] that can be wiped: a part of what can grow.
fn wipeable(record: &[u8]) -> Bytes {
    let mut whole = BytesMut::with_capacity(SLATE_BYTES);
    whole.extend_from_slice(record);
    whole.split().freeze()
}

#[derive(Debug)]
struct Set<T> {
    slates: Vec<T>,
    /// The one that was looked at last.
    turn: usize,
    /// How often none could be wiped.
    missed: u32,
}

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self { slates: Vec::new(), turn: 0, missed: 0 }
    }
}

impl<T: Clone> Set<T> {
    /// One of the next `looks` that `wipe` has written on, or a new one where there is room for it.
    fn write(&mut self, looks: usize, wipe: impl Fn(&mut T) -> bool, new: impl FnOnce() -> T) -> Option<T> {
        for _ in 0..self.slates.len().min(looks) {
            self.turn = (self.turn + 1) % self.slates.len();
            let slate = &mut self.slates[self.turn];
            if wipe(slate) {
                return Some(slate.clone());
            }
        }
        if self.slates.len() < SLATES {
            let slate = new();
            self.slates.push(slate.clone());
            return Some(slate);
        }
        self.missed = self.missed.wrapping_add(1);
        if !self.missed.is_multiple_of(PATIENCE) {
            return None;
        }
        // Somebody has this one: it was looked at.
        let slate = new();
        self.slates[self.turn] = slate.clone();
        Some(slate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_somebody_has_is_not_wiped_and_the_memory_of_others_is_used_again() {
        let mut slates = Slates::default();
        let held: Vec<Bytes> = (1..LOOKS as u8).filter_map(|number| slates.record(&[number; 99])).collect();
        let mut places = std::collections::BTreeSet::new();
        for number in 0..1000u32 {
            let record = slates.record(&number.to_be_bytes()).unwrap();
            assert_eq!(record, &number.to_be_bytes()[..]);
            places.insert(record.as_ptr());
        }
        assert!(places.len() <= LOOKS, "{places:?}");
        assert!(held.iter().zip(1..).all(|(record, number)| *record == vec![number; 99]));
    }

    #[test]
    fn slates_whose_records_stay_are_given_up_so_that_what_changes_often_gets_some() {
        let mut slates = Slates::default();
        let stay: Vec<Bytes> = (0..SLATES).filter_map(|_| slates.record(b"stays")).collect();
        let bytes = slates.bytes();
        assert!((1..PATIENCE).all(|_| slates.record(b"goes").is_none()));
        (0..10_000).for_each(|_| drop(slates.record(b"goes")));
        assert!((0..1000).all(|_| slates.record(b"goes").is_some()));
        assert!(stay.iter().all(|record| record == "stays"));
        assert_eq!(slates.bytes(), bytes);
    }

    #[test]
    fn a_key_is_written_where_one_of_its_length_was_and_is_never_another() {
        let mut slates = Slates::default();
        let held = slates.key(b"held");
        let place = slates.key(b"gone").as_ptr();
        for _ in 0..100 {
            let (same, longer) = (slates.key(b"next"), slates.key(b"longer"));
            assert_eq!((same.as_ptr(), &*same, &*longer), (place, &b"next"[..], &b"longer"[..]));
        }
        assert_eq!(&*held, b"held");
    }

    #[test]
    fn what_is_long_is_not_kept() {
        let mut slates = Slates::default();
        let long = [7; SLATE_BYTES + 1];
        assert_eq!(slates.record(&long), None);
        assert_eq!(*slates.key(&long), long);
        assert_eq!(slates.bytes(), 0);
    }
}
