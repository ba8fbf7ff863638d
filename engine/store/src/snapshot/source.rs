//! An image generated on demand from a pinned generation, never stored.
//!
//! One pass over the generation yields the header and the total length, and keeps the starts of
//! some extents, at most `PLACES_MAX`. Any range can then be generated again, always with the same
//! bytes, so an interrupted stream resumes where it stopped. Nothing is written, and the server
//! meanwhile writes later generations.
//!
//! The stream has no sparse table and no checksums. Both grow with the tree, and the receiver
//! builds a base from the records alone.

use crate::base::BaseReader;
use crate::image::format::{BLOCK_BYTES, ExtentBuilder, Header, in_memory};
use crate::image::write::not_its_digest;
use crate::image::{ImageError, damaged, record, too_large};
use std::{
    fmt,
    sync::{Mutex, PoisonError},
};
use xxhash_rust::xxh3::Xxh3Default;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::record::key::Key;
use zoolet_machine::seam::action::CheckpointMeta;
use zoolet_machine::seam::event::BaseFailure;
use zoolet_model::Zxid;

/// Maximum number of extent starts kept for one image.
const PLACES_MAX: usize = 256;
/// Longest key kept with an extent start, in bytes; the first extent is exempt.
const PLACE_KEY_BYTES_MAX: usize = 1 << 10;

/// The image of one generation, in chunks.
pub struct SnapshotSource {
    reader: BaseReader,
    header: Header,
    /// Everything after the extents.
    tail: Vec<u8>,
    places: Places,
    /// Start of the last extent that was read; resumes a sequential read.
    next: Mutex<Option<Place>>,
}

impl fmt::Debug for SnapshotSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotSource")
            .field("zxid", &self.header.zxid)
            .field("bytes", &self.header.file_bytes)
            .finish_non_exhaustive()
    }
}

impl SnapshotSource {
    /// Reads the generation once and checks it against its digest.
    ///
    /// `chain` is the log's chain hash after the generation's last entry.
    ///
    /// # Errors
    /// - [`ImageError::Source`] if the generation cannot be read or does not match its digest.
    /// - [`ImageError::Damaged`] if a record does not match its checksum.
    /// - [`ImageError::TooLarge`] if a record exceeds the format.
    pub fn open(reader: BaseReader, chain: u128) -> Result<Self, ImageError> {
        let mut survey = Survey::new();
        let (mut digest, mut outcome) = (0_u128, Ok(()));
        let scanned = reader.scan(b"", None, &mut |key, stored| {
            outcome = match record::unseal(key, stored) {
                Some(value) => {
                    digest = digest.wrapping_add(record_hash(key, value));
                    survey.push(key, stored)
                }
                None => Err(damaged(format!("record {} does not match its checksum", key.escape_ascii()))),
            };
            outcome.is_ok()
        });
        scanned.map_err(ImageError::Source)?;
        outcome?;
        let meta = reader.meta();
        if digest != meta.digest {
            return Err(not_its_digest());
        }
        let (header, tail, places) = survey.finish(&meta, chain);
        Ok(Self { reader, header, tail, places, next: Mutex::default() })
    }

    /// Returns the length of the whole image in bytes.
    pub fn bytes(&self) -> u64 {
        self.header.file_bytes
    }

    /// Returns the zxid of the last entry in the image.
    pub fn zxid(&self) -> Zxid {
        self.header.zxid
    }

    /// Returns the log's chain hash after the last entry in the image.
    pub fn chain(&self) -> u128 {
        self.header.chain
    }

    /// Returns up to `bytes_max` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// [`ImageError::Source`] if the base cannot be read or now returns different records;
    /// [`ImageError::TooLarge`] if a size exceeds the format or memory.
    pub fn read(&self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, ImageError> {
        let end = offset.saturating_add(bytes_max as u64).min(self.bytes());
        let mut bytes = Vec::with_capacity(in_memory(end.saturating_sub(offset))?);
        let tail = self.header.sparse.start;
        // Each part starts where the previous one ended.
        let at = |bytes: &Vec<u8>| offset + bytes.len() as u64;
        if at(&bytes) < end && at(&bytes) < BLOCK_BYTES {
            append_part(&mut bytes, &self.header.encode(), 0, offset, end);
        }
        if at(&bytes) < end && at(&bytes) < tail {
            let here = at(&bytes);
            self.append_extents(&mut bytes, here, end.min(tail))?;
        }
        if at(&bytes) < end {
            let here = at(&bytes);
            append_part(&mut bytes, &self.tail, tail, here, end);
        }
        Ok(bytes)
    }

    /// Appends the extents' bytes between `from` and `to`.
    fn append_extents(&self, bytes: &mut Vec<u8>, from: u64, to: u64) -> Result<(), ImageError> {
        let begin = self.place_before(from)?;
        let (mut extent, mut made, mut at) = (ExtentBuilder::default(), Vec::new(), begin.at);
        let (mut outcome, mut next) = (Ok(()), None);
        let mut finish = |extent: &mut ExtentBuilder, at: &mut u64| {
            next = Some(Place { at: *at, key: extent.first_key().into() });
            made.clear();
            extent.finish(&mut made);
            append_part(bytes, &made, *at, from, to);
            *at += made.len() as u64;
        };
        let scanned = self.reader.scan(&begin.key, None, &mut |key, stored| {
            if !extent.has_room(key, stored) {
                finish(&mut extent, &mut at);
                if at >= to {
                    return false;
                }
            }
            if extent.is_empty() && self.places.is_another(at, key) {
                outcome = Err(changed());
            } else if !extent.push(key, stored) {
                outcome = Err(beyond_format());
            }
            outcome.is_ok()
        });
        scanned.map_err(ImageError::Source)?;
        outcome?;
        if at < to && !extent.is_empty() {
            finish(&mut extent, &mut at);
        }
        if at < to || at > self.header.sparse.start {
            return Err(changed());
        }
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// Returns the nearest known extent start at or before `byte`.
    fn place_before(&self, byte: u64) -> Result<Place, ImageError> {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        let kept = self.places.before(byte).cloned();
        next.filter(|next| next.at <= byte).into_iter().chain(kept).max_by_key(|place| place.at).ok_or_else(changed)
    }
}

/// Position and first key of an extent.
#[derive(Clone)]
struct Place {
    at: u64,
    key: Key,
}

/// Starts of some extents; their minimum distance doubles whenever the list is full.
struct Places {
    places: Vec<Place>,
    apart: u64,
}

impl Places {
    fn note(&mut self, at: u64, key: &[u8]) {
        let is_near = |places: &[Place], apart| places.last().is_some_and(|last| at < last.at + apart);
        if !self.places.is_empty() && key.len() > PLACE_KEY_BYTES_MAX || is_near(&self.places, self.apart) {
            return;
        }
        if self.places.len() == PLACES_MAX {
            let mut number = 0;
            self.places.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.apart *= 2;
        }
        if !is_near(&self.places, self.apart) {
            self.places.push(Place { at, key: key.into() });
        }
    }

    fn before(&self, byte: u64) -> Option<&Place> {
        let after = self.places.partition_point(|place| place.at <= byte);
        self.places.get(after.checked_sub(1)?)
    }

    /// Returns whether the first pass saw a different key at this position.
    fn is_another(&self, at: u64, key: &[u8]) -> bool {
        self.before(at).is_some_and(|place| place.at == at && *place.key != *key)
    }
}

/// The first pass over the generation.
struct Survey {
    extent: ExtentBuilder,
    made: Vec<u8>,
    end: u64,
    records: u64,
    hash: Xxh3Default,
    places: Places,
    room: Room,
}

impl Survey {
    fn new() -> Self {
        Self {
            extent: ExtentBuilder::default(),
            made: Vec::new(),
            end: BLOCK_BYTES,
            records: 0,
            hash: Xxh3Default::new(),
            places: Places { places: Vec::new(), apart: 1 },
            room: Room::default(),
        }
    }

    fn push(&mut self, key: &[u8], stored: &[u8]) -> Result<(), ImageError> {
        if !self.extent.has_room(key, stored) {
            self.finish_extent();
        }
        self.records += 1;
        if self.extent.push(key, stored) { Ok(()) } else { Err(beyond_format()) }
    }

    fn finish_extent(&mut self) {
        self.places.note(self.end, self.extent.first_key());
        self.made.clear();
        self.extent.finish(&mut self.made);
        self.hash.update(&self.made);
        self.room.add(self.made.len() as u64, self.extent.first_key().len() as u64);
        self.end += self.made.len() as u64;
    }

    fn finish(mut self, meta: &CheckpointMeta, chain: u128) -> (Header, Vec<u8>, Places) {
        if !self.extent.is_empty() {
            self.finish_extent();
        }
        let mut tail = meta.totals.to_vec();
        tail.resize(tail.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        self.hash.update(&tail);
        let totals = self.end..self.end + meta.totals.len() as u64;
        let file_bytes = self.end + tail.len() as u64;
        let header = Header {
            zxid: meta.zxid,
            digest: meta.digest,
            records: self.records,
            sparse: self.end..self.end,
            totals,
            checksums: file_bytes..file_bytes,
            file_bytes,
            hash: self.hash.digest128(),
            chain,
            room: self.room.bytes_max(),
        };
        (header, tail, self.places)
    }
}

/// Upper bound of redb's bytes for the extents.
///
/// Each extent becomes a leaf, rounded up to a power of two of blocks, and its key goes into the
/// branches above.
#[derive(Default)]
struct Room {
    bytes: u64,
    largest_leaf: u64,
}

impl Room {
    fn add(&mut self, extent_bytes: u64, key_bytes: u64) {
        let leaf = (extent_bytes / BLOCK_BYTES).next_power_of_two() * BLOCK_BYTES;
        // Count the key twice, because a branch is rounded up to a power of two of blocks too.
        self.bytes += leaf + 2 * key_bytes;
        self.largest_leaf = self.largest_leaf.max(leaf);
    }

    /// Returns the bound, with one more largest leaf.
    ///
    /// A leaf starts at a multiple of its size, so up to that much space may stay free before the
    /// largest leaf.
    const fn bytes_max(&self) -> u64 {
        self.bytes + self.largest_leaf
    }
}

/// Appends the bytes of `part` between `from` and `to`; `part` begins at `start`.
fn append_part(bytes: &mut Vec<u8>, part: &[u8], start: u64, from: u64, to: u64) {
    // The clamped offset is at most `part.len()`, so it fits a `usize`.
    let within = |at: u64| at.saturating_sub(start).min(part.len() as u64) as usize;
    bytes.extend_from_slice(&part[within(from)..within(to)]);
}

fn changed() -> ImageError {
    ImageError::Source(BaseFailure::Damaged("its records changed between two reads".into()))
}

fn beyond_format() -> ImageError {
    too_large("a record is too large for the format")
}
