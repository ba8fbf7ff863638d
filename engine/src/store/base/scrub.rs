//! Reading the whole base now and then, slowly, to find what no question would find.

use super::{BaseReader, record};
use crate::{action::CheckpointMeta, event::BaseFailure, store::digest::record_hash};

/// One pass over one generation. It holds the generation: a pass left lying makes the file grow.
pub struct Scrub {
    pub(super) reader: BaseReader,
    pub(super) meta: CheckpointMeta,
    pub(super) next: Vec<u8>,
    pub(super) digest: u128,
    pub(super) records: u64,
}

/// How far a scrub is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scrubbed {
    /// More is left.
    More,
    /// All is read, every record matches its checksum, and the whole matches the digest of the checkpoint.
    Sound {
        /// Records read.
        records: u64,
    },
}

impl Scrub {
    /// Reads records until they are `bytes` or more, or all.
    ///
    /// # Errors
    /// Damage, also when the records do not add up to the checkpoint's digest. After any error this pass is over.
    pub fn step(&mut self, bytes: usize) -> Result<Scrubbed, BaseFailure> {
        let Self { reader, meta, next, digest, records } = self;
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
        } else if *digest == meta.digest {
            Ok(Scrubbed::Sound { records: *records })
        } else {
            let expected = meta.digest;
            Err(BaseFailure::Damaged(format!("the base adds up to {digest:032x}, its checkpoint to {expected:032x}")))
        }
    }
}
