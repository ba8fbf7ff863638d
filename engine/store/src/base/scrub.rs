//! Reads the whole base slowly from time to time, to find damage in records that no request reads.

use super::{Base, BaseReader};
use crate::image::record;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::seam::event::{BaseFailure, Shortage};

/// One pass over one generation.
///
/// It holds the generation, so files that are replaced meanwhile stay on the disk.
/// [`Scrub::follow`] releases it.
pub struct Scrub {
    reader: BaseReader,
    /// Digest that the records must add up to; `None` once the pass has read several generations.
    expected: Option<u128>,
    next: Vec<u8>,
    digest: u128,
    records: u64,
}

/// Progress of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scrubbed {
    /// More records remain.
    More,
    /// Every record was read and matches its checksum.
    ///
    /// If the pass stayed in one generation, the records also add up to the checkpoint's digest.
    Sound {
        /// Number of records read.
        records: u64,
    },
}

impl Scrub {
    pub(super) fn of(reader: BaseReader) -> Self {
        let expected = Some(reader.version.meta.digest);
        Self { reader, expected, next: Vec::new(), digest: 0, records: 0 }
    }

    /// Continues in the base's current generation.
    ///
    /// Every record is still verified by its own checksum. The digest is not, because the pass no
    /// longer reads a single state.
    pub fn follow(&mut self, base: &Base) {
        let reader = base.reader();
        if reader.generation() != self.reader.generation() {
            self.expected = None;
        }
        self.reader = reader;
    }

    /// Reads records until their size reaches `bytes`, or to the end.
    ///
    /// # Errors
    /// [`BaseFailure::Damaged`] if a record or the sum of all records is wrong, or the error of the
    /// disk. After any error the pass is over.
    pub fn step(&mut self, bytes: usize) -> Result<Scrubbed, BaseFailure> {
        let Self { reader, expected, next, digest, records } = self;
        let from = std::mem::take(next);
        let mut read = 0;
        let mut damaged = None;
        reader.scan(&from, None, &mut |key, stored| {
            if read >= bytes {
                next.extend_from_slice(key);
                return false;
            }
            let Some(value) = record::unseal(key, stored) else {
                damaged = Some(format!("record {} does not match its checksum", key.escape_ascii()));
                return false;
            };
            *digest = digest.wrapping_add(record_hash(key, value));
            *records += 1;
            read += key.len() + stored.len();
            true
        })?;
        if let Some(damaged) = damaged {
            Err(BaseFailure::Damaged(damaged))
        } else if !next.is_empty() {
            Ok(Scrubbed::More)
        } else if let Some(expected) = expected.filter(|expected| expected != digest) {
            Err(BaseFailure::Damaged(format!("the base has digest {digest:032x}, its checkpoint {expected:032x}")))
        } else {
            Ok(Scrubbed::Sound { records: *records })
        }
    }
}

/// Delay of the first pass after the start, milliseconds. Short, so that a server with frequent
/// starts still gets a pass.
const FIRST_AFTER_MS: u64 = 10 * 60_000;
/// Interval between the beginnings of two passes, milliseconds.
const EVERY_MS: u64 = 24 * 3_600_000;
/// Interval between two steps, milliseconds.
const STEP_MS: u64 = 1000;
/// Bytes read per step. A quarter of a MiB per second takes a thousandth of a core.
const STEP_BYTES: usize = 256 << 10;

/// Delay of a pass that repeats a failed one, milliseconds.
const REPEAT_AFTER_MS: u64 = 60_000;

/// Bytes that may be written while a pass holds one generation, beside a quarter of the base.
const HELD_BYTES: u64 = 1 << 20;

/// Scrubs the base slowly, once a day.
///
/// A pass holds a generation, so files that merges replace stay on the disk. If they become too
/// large, the pass continues in a newer generation. A shortage of disk space ends the pass.
pub struct Patrol {
    next_at_ms: u64,
    began_at_ms: u64,
    /// The pass, and the bytes that the base had written when the pass took its generation.
    scrub: Option<(Scrub, u64)>,
}

impl Patrol {
    /// Creates a patrol. All times are milliseconds of one monotonic clock.
    pub fn new(now_ms: u64) -> Self {
        Self { next_at_ms: now_ms + FIRST_AFTER_MS, began_at_ms: now_ms, scrub: None }
    }

    /// Returns the time at which [`Patrol::step`] is next due.
    pub fn next_at_ms(&self) -> u64 {
        self.next_at_ms
    }

    /// Reads one step if it is due. At the end of a pass, returns the number of sound records or
    /// the failure.
    pub fn step(&mut self, base: &Base, now_ms: u64) -> Option<Result<u64, BaseFailure>> {
        if now_ms < self.next_at_ms {
            return None;
        }
        let written = base.counters().base_bytes_written;
        let (scrub, then) = match &mut self.scrub {
            Some(scrub) => scrub,
            none => {
                self.began_at_ms = now_ms;
                none.insert((base.scrub(), written))
            }
        };
        if written - *then > base.file_bytes() / 4 + HELD_BYTES {
            scrub.follow(base);
            *then = written;
        }
        let outcome = match scrub.step(STEP_BYTES) {
            Ok(Scrubbed::More) => {
                self.next_at_ms = now_ms + STEP_MS;
                return None;
            }
            Ok(Scrubbed::Sound { records }) => Ok(records),
            Err(failure) => Err(failure),
        };
        self.scrub = None;
        self.next_at_ms = (self.began_at_ms + EVERY_MS).max(now_ms + STEP_MS);
        Some(outcome)
    }

    /// Makes the next pass begin in a minute, because an I/O error ended the last one.
    pub fn repeat_soon(&mut self, now_ms: u64) {
        self.next_at_ms = now_ms + REPEAT_AFTER_MS;
    }

    /// Reacts to a shortage. Returns true if the pass may go on.
    ///
    /// A shortage on the disk or under its bound ends the pass, because the held files take space.
    /// A shortage of memory may last, so the pass goes on, but in the current generation. Holding
    /// an older one would keep redb's file from being cut.
    pub fn make_way(&mut self, shortage: Shortage, base: &Base, now_ms: u64) -> bool {
        match shortage {
            Shortage::Disk | Shortage::Bound => self.give_up(now_ms),
            Shortage::Memory => {
                if let Some((scrub, then)) = &mut self.scrub {
                    scrub.follow(base);
                    *then = base.counters().base_bytes_written;
                }
            }
        }
        shortage == Shortage::Memory
    }

    /// Ends the pass, because its files are in the way. The next pass begins an hour later.
    pub fn give_up(&mut self, now_ms: u64) {
        if self.scrub.take().is_some() {
            self.next_at_ms = now_ms + 3_600_000;
        }
    }
}
