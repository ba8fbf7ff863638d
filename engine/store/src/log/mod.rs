//! The log: every durable fact of this server, in a recycled ring of preallocated segments.
//!
//! A *batch* is the unit of one write and one fdatasync: a header, records, and padding to 4 KiB.
//! One batch is in flight at a time. A block with an acknowledged record is not overwritten until
//! its whole segment is recycled. So an invalid batch with nothing after it is a torn tail, which
//! was never acknowledged and is overwritten. A valid batch after an invalid one proves damage.
//! docs/reference/formats.md specifies the bytes.
//!
//! Each *segment* starts with a batch that restates all [`Facts`], so no record of an older segment
//! is needed to know them. Segments are numbered by *incarnation*: a recycled segment gets the next
//! number. Every checksum in a segment is seeded with its incarnation, so batches from an earlier
//! use of the file are never valid.
//!
//! Once the first batch of a segment is durable, a batch in the last block of the previous segment
//! *ends* that one. Only then is the first batch acknowledged. So if the newest segment is ended,
//! its successor is lost. Acknowledged records never disappear unnoticed with a file.
//!
//! Everything here is synchronous and belongs to the log thread.

mod append;
mod batch;
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

/// Alignment of batches, bytes. The device and all known file systems write units of this size.
pub const BLOCK_BYTES: u32 = 4096;

/// Layout of the log on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Bytes per segment: a multiple of [`BLOCK_BYTES`], at least four times it.
    pub segment_bytes: u32,
    /// Maximum number of segments; at least 2.
    pub segments: u32,
    /// Whether segments are overwritten in place, or created anew and deleted.
    pub strategy: Strategy,
}

/// Bytes reserved in every segment for its header and the facts: 64 epochs and two configurations
/// of 3 KiB.
const FACTS_BYTES: u32 = 2 * BLOCK_BYTES;
/// Bytes reserved in every segment for the batch that ends it.
const END_BYTES: u32 = BLOCK_BYTES;

/// The machine refuses entries that would not fit.
const _: () = assert!(zoolet_machine::limits::SEGMENT_RESERVED_BYTES == FACTS_BYTES + END_BYTES);

impl LogOptions {
    /// Returns the largest payload of an entry that always fits, bytes.
    ///
    /// Admission must refuse a larger one, because it could never become durable.
    pub const fn payload_bytes_max(&self) -> u32 {
        zoolet_machine::limits::payload_bytes_max(self.segment_bytes)
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

/// The state that [`Log::open`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Facts as of the last durable record.
    pub facts: Facts,
    /// Number of the last record. The next record gets the next number.
    pub appended: AppendSeq,
    /// File and byte offset of a batch that a crash left incomplete. It was never acknowledged and
    /// is not part of the log.
    pub torn_tail: Option<(String, u64)>,
}

/// The answer to an append: the durable part of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Persisted {
    /// Every append up to this number is durable.
    pub seq: AppendSeq,
    /// Bytes of the ring with entries above the durable checkpoint: whole segments, and the used
    /// part of the newest.
    pub used_bytes: u64,
}

/// Counts of operations since the log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Successful calls of [`Log::append`] that wrote data.
    pub appends: u64,
    /// Batches written.
    pub batches: u64,
    /// Syncs of file data, including those that prepare segments.
    pub fdatasyncs: u64,
    /// Entries made durable.
    pub entries: u64,
    /// Bytes of entries, including their record headers.
    pub entry_bytes: u64,
    /// Bytes of all other records, such as restated facts, promises and epochs.
    pub fact_bytes: u64,
    /// Bytes of batch headers and padding.
    pub padding_bytes: u64,
    /// Zeroes written once into new segments, bytes.
    pub prepared_bytes: u64,
}

/// The log of one server.
///
/// Invariants:
///
/// - `facts` and `next_seq` describe exactly the durable records.
/// - In the newest segment, blocks before `tail` hold acknowledged records, and blocks from `tail`
///   on hold none.
pub struct Log {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    facts: Facts,
    next_seq: AppendSeq,
    ring: Ring,
    /// Offset of the next batch in the newest segment.
    tail: u64,
    /// A durable checkpoint of the base holds everything up to here.
    checkpoint: Zxid,
    /// Entries above this one will be needed.
    hold: Option<Zxid>,
    /// Cuts in the live segments, as far as these can be read, in order.
    cuts: VecDeque<Cut>,
    /// Segments of an older incarnation are damaged, or useless because a later one is.
    readable: u64,
    /// End of the segment before the newest, until it is durable.
    end: Option<End>,
    /// The batch being built. Its capacity is kept between appends.
    buffer: Vec<u8>,
    counters: Counters,
    /// The first error that left the disk in an unknown state. Every later call fails.
    failure: Option<Failure>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("last", &self.facts.last).field("tail", &self.tail).finish_non_exhaustive()
    }
}

/// Getters.
impl Log {
    /// Returns the facts as of the last durable record.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the number of the last record that may be acknowledged.
    ///
    /// It is the last durable one, unless the segment before the newest is not ended yet.
    pub fn appended(&self) -> AppendSeq {
        self.end.as_ref().map_or(AppendSeq(self.next_seq.0 - 1), |end| end.reported)
    }

    /// Returns counts of operations since the log was opened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the bytes of the ring with entries above the durable checkpoint.
    ///
    /// These are whole segments, and the used part of the newest.
    pub fn used_bytes(&self) -> u64 {
        if self.checkpoint >= self.facts.last { 0 } else { self.ring.bytes_since(self.checkpoint, self.tail) }
    }

    /// Returns the durable checkpoint up to which segments may be recycled.
    pub fn checkpoint(&self) -> Zxid {
        self.checkpoint
    }

    /// Returns the bytes of the whole ring.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.options.segment_bytes) * u64::from(self.options.segments)
    }
}

/// Commands, other than [`Log::append`].
impl Log {
    /// Allows segments without entries above `durable_checkpoint` to be recycled.
    ///
    /// The base must hold everything up to it durably.
    pub fn recycle(&mut self, durable_checkpoint: Zxid) {
        self.checkpoint = self.checkpoint.max(durable_checkpoint);
        if self.options.strategy == Strategy::Append && self.failure.is_none() {
            self.ring.delete_up_to(&*self.disk, held(self.checkpoint, self.hold));
        }
    }

    /// Holds the segments with entries above `above`, even if a checkpoint covers them. `None`
    /// holds nothing.
    ///
    /// The hold lasts until the next call, or until the log names a new base. An append that needs
    /// the space recycles held segments too, so a lagging peer cannot stop the log.
    pub fn hold(&mut self, above: Option<Zxid>) {
        self.hold = above;
        self.recycle(self.checkpoint);
    }

    /// Does one bounded step (at most 256 KiB) of preparing the next segment.
    ///
    /// Call it in idle moments, so that no append waits for the preparation. Returns true if more
    /// remains.
    ///
    /// # Errors
    /// See [`Log::append`]. A stall only means that there is no next segment yet.
    pub fn prepare_ahead(&mut self) -> Result<bool, AppendError> {
        self.check_alive()?;
        let outcome =
            self.ring.prepare_step(&*self.disk, &self.options, held(self.checkpoint, self.hold), &mut self.counters);
        self.judge(outcome)
    }
}
