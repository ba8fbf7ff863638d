//! Builds a base from a peer's snapshot while the bytes of its image arrive.
//!
//! Records go into an empty redb as they arrive. So no table of them is kept in memory, which would
//! grow with the tree. The manifest turns the files into a base. It is written only after the whole
//! image is verified:
//!
//! - Every record matches its checksum.
//! - The keys ascend.
//! - The records add up to the digest and to the number in the header.
//! - The bytes match the hash.

use super::{
    Base, BaseError, Core, Options,
    database::{Mark, Opened, Step},
    id_of, record,
    version::Version,
};
use crate::disk::Disk;
use crate::image::ImageError;
use crate::image::format::{BLOCK, Extent, Header, length};
use bytes::Bytes;
use std::{fmt, ops::Range, sync::Arc};
use xxhash_rust::xxh3::Xxh3Default;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::seam::action::{CheckpointMeta, Generation};
use zoolet_model::Zxid;

/// Largest extent, bytes. Frames are smaller, and so is every record.
const EXTENT_BYTES_MAX: usize = 64 << 20;
/// Largest totals, bytes. They have 44.
const TOTALS_BYTES_MAX: u64 = 64 << 10;
/// Free space needed beside the records, bytes.
///
/// It covers an empty redb and the manifest. Space must also be free before redb's file grows for
/// the last records ([`APPEND_BYTES`] and a large one).
const SPARE_BYTES: u64 = 4 << 20;
/// Approximate bytes of records per transaction of redb.
///
/// A transaction costs four syncs. For a snapshot of 1 GiB they take 5 s on an SD card, where the
/// bytes take 100 s.
const APPEND_BYTES: usize = 1 << 20;

/// Accepts the bytes of an image in order. If it is dropped before it is finished, it leaves
/// nothing.
pub struct BaseSink {
    core: Option<Arc<Core>>,
    header: Option<Header>,
    /// Records that redb does not have yet.
    step: Step,
    /// Bytes accepted.
    received: u64,
    /// Accepted bytes not decoded yet: the beginning of an extent.
    waiting: Vec<u8>,
    hash: Xxh3Default,
    digest: u128,
    records: u64,
    last_key: Vec<u8>,
    totals: Vec<u8>,
}

impl fmt::Debug for BaseSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BaseSink")
            .field("received", &self.received)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

impl Drop for BaseSink {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            let (disk, id) = (core.disk.clone(), core.id);
            drop(core);
            // Files left here are removed at the next start.
            let _ = Base::remove(&*disk, id);
        }
    }
}

impl Base {
    /// Begins a base that a peer's image fills. Only the log makes it current.
    ///
    /// # Errors
    /// See [`BaseError`]. Files with this id must be removed first.
    pub fn receive(disk: Arc<dyn Disk>, id: u64, options: Options) -> Result<BaseSink, BaseError> {
        if disk.list()?.iter().any(|name| id_of(name) == Some(id)) {
            return Err(BaseError::Io(format!("base {id} exists already")));
        }
        let core = Arc::new(Core::new(disk, id, options));
        let sink = BaseSink {
            core: Some(core.clone()),
            header: None,
            step: Step::default(),
            received: 0,
            waiting: Vec::new(),
            hash: Xxh3Default::new(),
            digest: 0,
            records: 0,
            last_key: Vec::new(),
            totals: Vec::new(),
        };
        core.home.create(|opened: &Opened| opened.commit(&Step::default(), Mark { zxid: Zxid::ZERO, steps: 1 }))?;
        Ok(sink)
    }
}

impl BaseSink {
    /// Returns the offset of the next chunk in the image, bytes.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the length of the image, bytes; `None` before its first block has arrived.
    pub fn bytes(&self) -> Option<u64> {
        self.header.as_ref().map(|header| header.file_bytes)
    }

    /// Accepts the next bytes, from [`BaseSink::received`] on. A chunk may have any length.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] if the bytes cannot belong to an image, [`ImageError::NoRoom`] if
    /// the disk is too full, otherwise the error of the disk. After an error the sink must be
    /// dropped.
    pub fn write(&mut self, mut chunk: &[u8]) -> Result<(), ImageError> {
        while !chunk.is_empty() {
            let Some(header) = &self.header else {
                let missing = BLOCK - self.waiting.len();
                let taken = self.take(&mut chunk, missing);
                self.waiting.extend_from_slice(taken);
                if self.waiting.len() == BLOCK {
                    self.begin()?;
                }
                continue;
            };
            let (sparse, totals) = (header.sparse.start, header.totals.clone());
            if self.received < sparse {
                let missing = (sparse - self.received).min(EXTENT_BYTES_MAX as u64) as usize;
                let taken = self.take(&mut chunk, missing);
                self.hash.update(taken);
                self.waiting.extend_from_slice(taken);
                self.read_extents()?;
            } else if self.received < header.file_bytes {
                let (from, missing) = (self.received, header.file_bytes - self.received);
                let taken = self.take(&mut chunk, usize::try_from(missing).unwrap_or(usize::MAX));
                self.hash.update(taken);
                self.totals.extend_from_slice(&taken[part_of(&totals, from, taken.len())]);
            } else {
                return Err(damaged("it is longer than its header says"));
            }
        }
        Ok(())
    }

    fn take<'a>(&mut self, chunk: &mut &'a [u8], bytes_max: usize) -> &'a [u8] {
        let (taken, rest) = chunk.split_at(bytes_max.min(chunk.len()));
        self.received += taken.len() as u64;
        *chunk = rest;
        taken
    }

    fn begin(&mut self) -> Result<(), ImageError> {
        let header = Header::decode_alone(&self.waiting)?;
        self.waiting.clear();
        if length(&header.totals) > TOTALS_BYTES_MAX {
            return Err(damaged("its totals are too long"));
        }
        // A record takes twelve bytes beside its key.
        if header.records > header.sparse.start / 12 {
            return Err(damaged("it is too short for its number of records"));
        }
        let core = self.core.as_ref().ok_or_else(finished)?;
        // An earlier build sends no `room`. The length of its image then takes the place of `room`,
        // although redb needs up to twice that for records larger than a page.
        let (free_bytes, needed_bytes) = (core.disk.free_bytes()?, copy_bytes_max(header.file_bytes.max(header.room)));
        if free_bytes < needed_bytes {
            return Err(ImageError::NoRoom { free_bytes, needed_bytes });
        }
        self.header = Some(header);
        Ok(())
    }

    /// Decodes the extents that have arrived completely.
    fn read_extents(&mut self) -> Result<(), ImageError> {
        let mut at = 0;
        while let Some(bytes) = extent_bytes(&self.waiting[at..])? {
            let Some(extent) = self.waiting.get(at..at + bytes) else { break };
            for slot in 0..Extent(extent).len()? {
                let (key, stored) = Extent(extent).entry(slot)?;
                if self.records > 0 && *self.last_key >= *key {
                    return Err(damaged("its keys are not in order"));
                }
                let stored = &extent[stored];
                let value = record::unseal(key, stored)
                    .ok_or_else(|| damaged(format!("record {} does not match its checksum", key.escape_ascii())))?;
                self.digest = self.digest.wrapping_add(record_hash(key, value));
                self.records += 1;
                self.last_key.clear();
                self.last_key.extend_from_slice(key);
                self.step.push(key, stored);
            }
            if self.step.bytes() >= APPEND_BYTES {
                self.append()?;
            }
            at += bytes;
        }
        self.waiting.drain(..at);
        Ok(())
    }

    fn append(&mut self) -> Result<(), ImageError> {
        let (Some(core), Some(header)) = (&self.core, &self.header) else { return Err(finished()) };
        core.home.append(&self.step, header.zxid)?;
        self.step.clear();
        Ok(())
    }

    /// Verifies the image and makes it a base, complete and durable on return.
    ///
    /// Also returns the log's chain hash after the last entry in the base.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] if a part is missing or wrong, otherwise the error of the disk.
    pub fn finish(mut self) -> Result<(Base, u128), ImageError> {
        let header = self.header.clone().ok_or_else(|| damaged("it ends within its header"))?;
        if self.received != header.file_bytes || !self.waiting.is_empty() {
            return Err(damaged("it is shorter than its header says"));
        }
        if self.hash.digest128() != header.hash {
            return Err(damaged("it does not match its hash"));
        }
        if (self.records, self.digest) != (header.records, header.digest) {
            return Err(damaged("its records do not match its digest"));
        }
        if self.step.len() > 0 {
            self.append()?;
        }
        let core = self.core.clone().ok_or_else(finished)?;
        let totals = Bytes::from(std::mem::take(&mut self.totals));
        let meta = CheckpointMeta { zxid: header.zxid, digest: header.digest, totals };
        let home = core.home.pin(meta.zxid)?;
        core.publish(Version { meta, runs: Vec::new(), home })?;
        core.live_mut().generation = Generation::default();
        self.core = None;
        Ok((Base(core), header.chain))
    }
}

/// Returns the free bytes needed to build a base whose redb leaves take `bytes`.
///
/// An eighth is added for branches, for the checksums of a file that redb doubles, and for copied
/// pages that are not free again yet. The file of redb becomes two to five times as long as the
/// received image. The length costs nothing, because a block takes space only when it is written. A
/// disk bound with room for a second base beside one of `bytes` must leave this much.
pub const fn copy_bytes_max(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8).saturating_add(SPARE_BYTES)
}

/// Returns the length of the extent that begins with `bytes`.
///
/// `None` if too few bytes have arrived to tell.
fn extent_bytes(bytes: &[u8]) -> Result<Option<usize>, ImageError> {
    let number = |at: usize| {
        let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        four.map(|four| u32::from_le_bytes(*four) as usize)
    };
    match number(0) {
        None => Ok(None),
        Some(0) => Err(damaged("one of its extents has no record")),
        Some(1) => {
            let Some(place) = number(4) else { return Ok(None) };
            if place != 8 {
                return Err(damaged("the only record of an extent is not at the extent's beginning"));
            }
            let (Some(key), Some(stored)) = (number(8), number(12)) else { return Ok(None) };
            let whole = key.saturating_add(stored).saturating_add(16);
            if whole > EXTENT_BYTES_MAX {
                return Err(damaged("one of its records is too large"));
            }
            Ok(Some(whole.next_multiple_of(BLOCK)))
        }
        Some(_) => Ok(Some(BLOCK)),
    }
}

/// Returns the part of `length` bytes, which start at offset `from`, that lies in `range`.
fn part_of(range: &Range<u64>, from: u64, length: usize) -> Range<usize> {
    let within = |at: u64| at.saturating_sub(from).min(length as u64) as usize;
    within(range.start)..within(range.end)
}

fn damaged(what: impl Into<String>) -> ImageError {
    ImageError::Damaged(what.into())
}

fn finished() -> ImageError {
    ImageError::Io("it is finished already".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Must hold on 32-bit machines too.
    #[test]
    fn totals_beyond_4_gib_of_a_received_snapshot_are_found() {
        let (start, end) = ((5 << 30) + 100, (5 << 30) + 144);
        assert_eq!(part_of(&(start..end), 5 << 30, 4096), 100..144);
        assert_eq!(part_of(&(start..end), start + 10, 20), 0..20);
        assert_eq!(part_of(&(start..end), end, 20), 0..0);
        assert_eq!(part_of(&(start..end), 5 << 29, 4096), 4096..4096);
    }
}
