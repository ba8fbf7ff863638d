//! Reading the whole base now and then, slowly, to find what no question would find.

use super::{Base, BaseReader, record};
use crate::{
    event::{BaseFailure, Shortage},
    store::digest::record_hash,
};

/// One pass over one generation. It holds the generation, so what is replaced meanwhile stays on the disk; [`Scrub::follow`] lets go of it.
pub struct Scrub {
    reader: BaseReader,
    /// What the records must add up to; nothing when the pass has seen several generations.
    expected: Option<u128>,
    next: Vec<u8>,
    digest: u128,
    records: u64,
}

/// How far a scrub is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scrubbed {
    /// More is left.
    More,
    /// All is read, every record matches its checksum, and the whole the digest of the checkpoint, if it was read in one generation.
    Sound {
        /// Records read.
        records: u64,
    },
}

impl Scrub {
    pub(super) fn of(reader: BaseReader) -> Self {
        let expected = Some(reader.version.meta.digest);
        Self { reader, expected, next: Vec::new(), digest: 0, records: 0 }
    }

    /// Goes on in the base's present generation. Every record is still held against its own checksum, but there is no state any more
    /// that the whole could be compared with.
    pub fn follow(&mut self, base: &Base) {
        let reader = base.reader();
        if reader.generation() != self.reader.generation() {
            self.expected = None;
        }
        self.reader = reader;
    }

    /// Reads records until they are `bytes` or more, or all.
    ///
    /// # Errors
    /// Damage, also when the records do not add up to the checkpoint's digest. After any error this pass is over.
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
            Err(BaseFailure::Damaged(format!("the base adds up to {digest:032x}, its checkpoint to {expected:032x}")))
        } else {
            Ok(Scrubbed::Sound { records: *records })
        }
    }
}

/// The first pass begins this long after the start, milliseconds: a server that is started often still gets one.
const FIRST_AFTER_MS: u64 = 10 * 60_000;
/// From the beginning of one pass to that of the next, milliseconds.
const EVERY_MS: u64 = 24 * 3_600_000;
/// From one step to the next, milliseconds.
const STEP_MS: u64 = 1000;
/// Read in one step: a quarter of a MiB each second is a thousandth of a core.
const STEP_BYTES: usize = 256 << 10;

/// What may be written while a pass holds one generation, beside a quarter of the base.
const HELD_BYTES: u64 = 1 << 20;

/// Scrubs the base again and again: once a day, and slowly.
///
/// A pass holds a generation, so what is merged meanwhile stays on the disk. When that becomes too much the pass goes on with a later
/// generation; whoever is short of space ends it.
pub struct Patrol {
    next_at_ms: u64,
    began_at_ms: u64,
    /// And what the base had written when its generation was the present one.
    scrub: Option<(Scrub, u64)>,
}

impl Patrol {
    /// Times are of one clock that only grows, milliseconds.
    pub fn new(now_ms: u64) -> Self {
        Self { next_at_ms: now_ms + FIRST_AFTER_MS, began_at_ms: now_ms, scrub: None }
    }

    /// When [`Patrol::step`] has something to do.
    pub fn next_at_ms(&self) -> u64 {
        self.next_at_ms
    }

    /// Reads a little, if it is time. At the end of a pass it says how many records are sound, or what is wrong.
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

    /// Whether the pass may go on although there is too little of something. It ends where files that it holds take room on the disk. While memory
    /// is short, which may last, it lets go of the past instead: who holds that keeps the file from being cut.
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

    /// Ends the pass, because the files that it holds are in the way; the next one begins an hour later.
    pub fn give_up(&mut self, now_ms: u64) {
        if self.scrub.take().is_some() {
            self.next_at_ms = now_ms + 3_600_000;
        }
    }
}
