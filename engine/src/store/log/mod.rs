//! The log: every durable fact of this server, in a recycled ring of preallocated segments.
//!
//! A *batch* is what one write and one fdatasync make durable: a header, records, padding to 4 KiB. One batch is in flight at a
//! time, and a block that holds an acknowledged record is never written again before its whole segment is recycled. So an
//! invalid batch with nothing after it is a torn tail, which was never acknowledged and is overwritten, while a valid batch
//! after an invalid one proves damage. Bytes: docs/FORMATS.md.
//!
//! Each *segment* starts with a batch that restates all [`Facts`], so that no record of an older segment is needed to know
//! them. Segments are numbered by *incarnation*: a recycled one gets the next number, and every checksum in it is seeded with
//! that number, so nothing of its former life can look valid.
//!
//! When the first batch of a segment is durable, and before that is told to anybody, the one before it is *ended* by a batch in its
//! last block. So a newest segment that is ended has lost the one that followed it: nothing acknowledged goes in silence with a file.
//!
//! Everything here is synchronous and belongs to the log thread.

mod append;
mod batch;
mod chain;
mod end;
mod entries;
mod error;
mod facts;
mod read;
mod record;
mod recover;
mod replay;
mod ring;
mod salvage;
mod walk;

pub use chain::chain_after;
pub use entries::{Entries, LogReader, ReadError};
pub use error::{AppendError, LogError, ReplayError};
pub use facts::{Facts, Receiving};
pub use salvage::Salvaged;

use super::{Strategy, disk::Disk};
use end::End;
use entries::Cut;
use error::Failure;
use ring::{Ring, held};
use std::{collections::VecDeque, sync::Arc};
use zoolet_model::Zxid;
use zoolet_zab::AppendSeq;

/// What the device and every file system we know of write in one piece or page: batches start on multiples of it.
pub const BLOCK_BYTES: u32 = 4096;

/// Shape of the log on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Bytes of one segment: a multiple of [`BLOCK_BYTES`], at least four of them.
    pub segment_bytes: u32,
    /// Segments there may be at most, at least 2.
    pub segments: u32,
    /// Overwrite segments in place, or make new ones and delete the old.
    pub strategy: Strategy,
}

/// Kept free in every segment for its header and the facts: 64 epochs and two configurations of 3 KiB.
const FACTS_BYTES: u32 = 2 * BLOCK_BYTES;
/// Kept free in every segment for the batch that ends it.
const END_BYTES: u32 = BLOCK_BYTES;

/// The largest payload of an entry that surely fits a segment of so many bytes.
pub const fn payload_bytes_max(segment_bytes: u32) -> u32 {
    segment_bytes.saturating_sub(FACTS_BYTES + END_BYTES)
}

impl LogOptions {
    /// The largest payload of an entry that surely fits, bytes. Whoever admits requests must not let a larger one through: it could
    /// never be made durable.
    pub const fn payload_bytes_max(&self) -> u32 {
        payload_bytes_max(self.segment_bytes)
    }

    fn check(&self) -> Result<(), LogError> {
        let blocks = self.segment_bytes / BLOCK_BYTES;
        if !self.segment_bytes.is_multiple_of(BLOCK_BYTES) || blocks < 4 {
            return Err(LogError::Options("segment_bytes must be a multiple of 4096, at least 16384"));
        }
        if self.segments < 2 {
            return Err(LogError::Options("segments must be at least 2"));
        }
        Ok(())
    }
}

/// What [`Log::open`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The facts as of the last durable record.
    pub facts: Facts,
    /// The number of the last record; the next one is one more.
    pub appended: AppendSeq,
    /// File and byte offset of a batch that a crash had left incomplete: it was never acknowledged and is not there any more.
    pub torn_tail: Option<(String, u64)>,
}

/// The answer to an append: what is durable now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Persisted {
    /// Every append up to here.
    pub seq: AppendSeq,
    /// Bytes of the ring that hold entries above the durable checkpoint, in whole segments except for the newest.
    pub used_bytes: u64,
}

/// What the log has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Successful calls of [`Log::append`] that wrote something.
    pub appends: u64,
    /// Batches written.
    pub batches: u64,
    /// Syncs of a file's data, those that prepare segments included.
    pub fdatasyncs: u64,
    /// Entries made durable.
    pub entries: u64,
    /// Bytes of entries with their record headers.
    pub entry_bytes: u64,
    /// Bytes of all other records: facts restated, promises, epochs and so on.
    pub fact_bytes: u64,
    /// Bytes of batch headers and of padding.
    pub padding_bytes: u64,
    /// Zeroes written once into new segments.
    pub prepared_bytes: u64,
}

/// The log of one server.
///
/// Invariants: `facts` and `next_seq` describe exactly what is durable; the newest segment's blocks before `tail` hold
/// acknowledged records, those from `tail` on none.
pub struct Log {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    facts: Facts,
    next_seq: AppendSeq,
    ring: Ring,
    /// Where in the newest segment the next batch goes.
    tail: u64,
    /// Everything up to here is in a durable checkpoint of the base.
    checkpoint: Zxid,
    /// Somebody will need the entries above it.
    hold: Option<Zxid>,
    /// The cuts in the live segments, as far as they can be read, in order.
    cuts: VecDeque<Cut>,
    /// Segments of an older incarnation are damaged, or of no use because a later one is.
    readable: u64,
    /// What ends the segment before the newest, while that is not durable.
    end: Option<End>,
    /// The batch being built; its capacity is kept between appends.
    buffer: Vec<u8>,
    counters: Counters,
    /// Set by the first error that leaves the disk in an unknown state; nothing is tried after it.
    failure: Option<Failure>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("last", &self.facts.last).field("tail", &self.tail).finish_non_exhaustive()
    }
}

/// Getters.
impl Log {
    /// The facts as of the last durable record.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The number of the last durable record.
    pub fn appended(&self) -> AppendSeq {
        AppendSeq(self.next_seq.0 - 1)
    }

    /// What has been done since it was opened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes of the ring that hold entries above the durable checkpoint, in whole segments except for the newest.
    pub fn used_bytes(&self) -> u64 {
        if self.checkpoint >= self.facts.last { 0 } else { self.ring.bytes_since(self.checkpoint, self.tail) }
    }

    /// The durable checkpoint up to which segments may be used again.
    pub fn checkpoint(&self) -> Zxid {
        self.checkpoint
    }

    /// Bytes of the whole ring.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.options.segment_bytes) * u64::from(self.options.segments)
    }
}

/// Commands, other than [`Log::append`].
impl Log {
    /// Everything up to `durable_checkpoint` is durable in the base: segments that hold nothing newer may be used again.
    pub fn recycle(&mut self, durable_checkpoint: Zxid) {
        self.checkpoint = self.checkpoint.max(durable_checkpoint);
        if self.options.strategy == Strategy::Append && self.failure.is_none() {
            self.ring.delete_up_to(&*self.disk, held(self.checkpoint, self.hold));
        }
    }

    /// Keeps the segments with entries above `above`, also those that a checkpoint has, for whoever will need them; until it is called again, or
    /// until an append needs the room: nobody who lags stops the log.
    pub fn hold(&mut self, above: Option<Zxid>) {
        self.hold = above;
        self.recycle(self.checkpoint);
    }

    /// Does one bounded step (at most 256 KiB) of making the next segment ready, so that no append has to wait for it. For idle
    /// moments; true while there is more to do.
    ///
    /// # Errors
    /// As [`Log::append`]; a stall only means that there is no next segment yet.
    pub fn prepare_ahead(&mut self) -> Result<bool, AppendError> {
        self.check_alive()?;
        let outcome =
            self.ring.prepare_step(&*self.disk, &self.options, held(self.checkpoint, self.hold), &mut self.counters);
        self.judge(outcome)
    }
}
