//! A pool of reusable buffers for short-lived records and keys.

use crate::budget::allocated;
use crate::record::key::Key;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Buffers of each kind.
///
/// Taking and releasing a lock needs three for records: the parent's record before and after, and
/// the lock's own record.
const BUFFERS: usize = 16;
/// Largest record or key in a buffer, in bytes.
const BUFFER_BYTES: usize = 256;
/// Overhead for shared ownership of a record or a key, in bytes.
const RECORD_SHARED_BYTES: usize = 40;
const KEY_SHARED_BYTES: usize = 16;
/// Record buffers probed per allocation; bounds the cost of a miss. One more than a lock needs.
const LOOKS: usize = 4;
/// Misses until a buffer in use is replaced by a new one.
const PATIENCE: u32 = 64;

/// A small pool of buffers, each reused once no other holder is left.
///
/// Records that change often or live briefly then cost no allocation, and long-lived records occupy
/// only the memory they need.
///
/// A holder need not return a buffer: no buffer is overwritten while it has another holder. A buffer
/// that stays in use is slowly replaced in the pool by a new one, and is ordinary memory from then
/// on.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    records: Set<Bytes>,
    keys: Set<Key>,
}

impl BufferPool {
    /// Returns the memory of all buffers in the pool, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let keys = self.keys.buffers.iter().map(|key| allocated(KEY_SHARED_BYTES + key.len()));
        self.records.buffers.len() * (allocated(BUFFER_BYTES) + allocated(RECORD_SHARED_BYTES)) + keys.sum::<usize>()
    }

    /// Writes a record into a free buffer.
    ///
    /// `None` if the record is too long or no buffer is free.
    pub(super) fn record(&mut self, record: &[u8]) -> Option<Bytes> {
        let wipe = |buffer: &mut Bytes| {
            if !buffer.is_unique() {
                return false;
            }
            let mut wiped = BytesMut::from(std::mem::take(buffer));
            wiped.clear();
            wiped.extend_from_slice(record);
            *buffer = wiped.freeze();
            true
        };
        if record.len() <= BUFFER_BYTES { self.records.write(LOOKS, wipe, || wipeable(record)) } else { None }
    }

    /// Writes a key into a free buffer of the same length, else allocates.
    pub(super) fn key(&mut self, key: &[u8]) -> Key {
        let wipe = |buffer: &mut Key| {
            let wiped = if buffer.len() == key.len() { Arc::get_mut(buffer) } else { None };
            wiped.map(|wiped| wiped.copy_from_slice(key)).is_some()
        };
        let written = if key.len() <= BUFFER_BYTES { self.keys.write(BUFFERS, wipe, || key.into()) } else { None };
        written.unwrap_or_else(|| key.into())
    }
}

/// Creates a record whose buffer can be overwritten later.
///
/// Only a [`Bytes`] split off a growable buffer allows that.
fn wipeable(record: &[u8]) -> Bytes {
    let mut whole = BytesMut::with_capacity(BUFFER_BYTES);
    whole.extend_from_slice(record);
    whole.split().freeze()
}

#[derive(Debug)]
struct Set<T> {
    buffers: Vec<T>,
    /// Index of the buffer probed last.
    turn: usize,
    /// Number of allocations that found no buffer.
    missed: u32,
}

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self { buffers: Vec::new(), turn: 0, missed: 0 }
    }
}

impl<T: Clone> Set<T> {
    /// Probes the next `looks` buffers for one that `wipe` can overwrite.
    ///
    /// Adds a new buffer while the pool has room.
    fn write(&mut self, looks: usize, wipe: impl Fn(&mut T) -> bool, new: impl FnOnce() -> T) -> Option<T> {
        for _ in 0..self.buffers.len().min(looks) {
            self.turn = (self.turn + 1) % self.buffers.len();
            let buffer = &mut self.buffers[self.turn];
            if wipe(buffer) {
                return Some(buffer.clone());
            }
        }
        if self.buffers.len() < BUFFERS {
            let buffer = new();
            self.buffers.push(buffer.clone());
            return Some(buffer);
        }
        self.missed = self.missed.wrapping_add(1);
        if !self.missed.is_multiple_of(PATIENCE) {
            return None;
        }
        // Replace the buffer probed last, which `wipe` could not overwrite.
        let buffer = new();
        self.buffers[self.turn] = buffer.clone();
        Some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_dropped_records_are_reused_and_held_ones_kept() {
        let mut buffers = BufferPool::default();
        let held: Vec<Bytes> = (1..LOOKS as u8).filter_map(|number| buffers.record(&[number; 99])).collect();
        let mut places = std::collections::BTreeSet::new();
        for number in 0..1000u32 {
            let record = buffers.record(&number.to_be_bytes()).unwrap();
            assert_eq!(record, &number.to_be_bytes()[..]);
            places.insert(record.as_ptr());
        }
        assert!(places.len() <= LOOKS, "{places:?}");
        assert!(held.iter().zip(1..).all(|(record, number)| *record == vec![number; 99]));
    }

    #[test]
    fn pool_full_of_held_records_replaces_them_after_enough_misses() {
        let mut buffers = BufferPool::default();
        let stay: Vec<Bytes> = (0..BUFFERS).filter_map(|_| buffers.record(b"stays")).collect();
        let bytes = buffers.bytes();
        assert!((1..PATIENCE).all(|_| buffers.record(b"goes").is_none()));
        (0..10_000).for_each(|_| drop(buffers.record(b"goes")));
        assert!((0..1000).all(|_| buffers.record(b"goes").is_some()));
        assert!(stay.iter().all(|record| record == "stays"));
        assert_eq!(buffers.bytes(), bytes);
    }

    #[test]
    fn key_reuses_a_dropped_key_slot_of_its_length() {
        let mut buffers = BufferPool::default();
        let held = buffers.key(b"held");
        let place = buffers.key(b"gone").as_ptr();
        for _ in 0..100 {
            let (same, longer) = (buffers.key(b"next"), buffers.key(b"longer"));
            assert_eq!((same.as_ptr(), &*same, &*longer), (place, &b"next"[..], &b"longer"[..]));
        }
        assert_eq!(&*held, b"held");
    }

    #[test]
    fn records_and_keys_larger_than_a_buffer_are_not_pooled() {
        let mut buffers = BufferPool::default();
        let long = [7; BUFFER_BYTES + 1];
        assert_eq!(buffers.record(&long), None);
        assert_eq!(*buffers.key(&long), long);
        assert_eq!(buffers.bytes(), 0);
    }
}
