//! An image that is nowhere: its bytes are made of a pinned generation of the base whenever somebody asks for some of them.
//!
//! One pass over the generation finds where each extent begins and what the header says; that is kept, about 40 bytes for each 4 KiB of the
//! image. Then any stretch of it can be made again, always with the same bytes: a stream that broke off goes on where it was. Nothing is written,
//! and the server goes on: what it writes meanwhile is of later generations.

use super::{
    ImageError, damaged,
    format::{BLOCK, BLOCK_BYTES, ExtentBuilder, Header, Sparse, in_memory, length},
    write::{Writer, not_its_digest},
};
use crate::store::{
    base::{BaseReader, record},
    digest::record_hash,
};
use std::fmt;
use zoolet_model::Zxid;

/// The image of one generation, in chunks.
pub struct SnapshotSource {
    reader: BaseReader,
    header: Header,
    /// Everything from the sparse table on.
    tail: Vec<u8>,
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
    /// Reads the generation once, checked against its digest. `chain` is the log's chain hash after the generation's last entry.
    ///
    /// # Errors
    /// [`ImageError::Source`].
    pub fn open(reader: BaseReader, chain: u128) -> Result<Self, ImageError> {
        let mut writer = Writer::of_nothing();
        let (mut digest, mut outcome) = (0_u128, Ok(()));
        let scanned = reader.scan(b"", None, &mut |key, stored| {
            outcome = match record::unseal(key, stored) {
                Some(value) => {
                    digest = digest.wrapping_add(record_hash(key, value));
                    writer.push(key, stored)
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
        let (header, tail) = writer.finish(meta.zxid, digest, &meta.totals, chain)?;
        Ok(Self { reader, header, tail })
    }

    /// Bytes of the whole image.
    pub fn bytes(&self) -> u64 {
        self.header.file_bytes
    }

    /// The last entry in it.
    pub fn zxid(&self) -> Zxid {
        self.header.zxid
    }

    /// The log's chain hash after it.
    pub fn chain(&self) -> u128 {
        self.header.chain
    }

    /// The bytes from `offset` on, `bytes_max` of them or as many as there are.
    ///
    /// # Errors
    /// [`ImageError::Source`], also when the base does not give what it gave before.
    pub fn read(&self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, ImageError> {
        let end = offset.saturating_add(bytes_max as u64).min(self.bytes());
        let mut bytes = Vec::with_capacity(in_memory(end.saturating_sub(offset))?);
        let tail = self.header.sparse.start;
        // Each part from where the one before ended.
        let at = |bytes: &Vec<u8>| offset + bytes.len() as u64;
        if at(&bytes) < end && at(&bytes) < BLOCK_BYTES {
            append_part(&mut bytes, &self.header.encode(), 0, offset, end);
        }
        while at(&bytes) < end && at(&bytes) < tail {
            let here = at(&bytes);
            let (made, start) = self.extents(here, end.min(tail))?;
            append_part(&mut bytes, &made, start, here, end);
        }
        if at(&bytes) < end {
            let here = at(&bytes);
            append_part(&mut bytes, &self.tail, tail, here, end);
        }
        Ok(bytes)
    }

    /// The extents from the one that has byte `from` up to one that reaches `to`, and where the first begins.
    fn extents(&self, from: u64, to: u64) -> Result<(Vec<u8>, u64), ImageError> {
        let sparse = Sparse(&self.tail[..in_memory(length(&self.header.sparse))?]);
        let first = self.extent_at(&sparse, from)?;
        let (key, range) = sparse.entry(first)?;
        let (key, start) = (key.to_vec(), range.start);
        let (mut made, mut builder, mut outcome) = (Vec::new(), ExtentBuilder::default(), true);
        let scanned = self.reader.scan(&key, None, &mut |key, stored| {
            if !builder.has_room(key, stored) {
                builder.finish(&mut made);
                if start + made.len() as u64 >= to {
                    return false;
                }
            }
            outcome = builder.push(key, stored);
            outcome
        });
        scanned.map_err(ImageError::Source)?;
        if !builder.is_empty() && start + (made.len() as u64) < to {
            builder.finish(&mut made);
        }
        if !outcome || made.is_empty() || !self.is_same(start, &made) {
            return Err(ImageError::Source(crate::event::BaseFailure::Damaged(
                "it does not give the records that it gave before".into(),
            )));
        }
        Ok((made, start))
    }

    /// The extent that has this byte.
    fn extent_at(&self, sparse: &Sparse<'_>, byte: u64) -> Result<usize, ImageError> {
        let (mut low, mut high) = (0, sparse.len());
        while low + 1 < high {
            let middle = low.midpoint(high);
            if sparse.entry(middle)?.1.start <= byte { low = middle } else { high = middle }
        }
        Ok(low)
    }

    /// Whether these blocks have the checksums of the first pass.
    fn is_same(&self, start: u64, blocks: &[u8]) -> bool {
        let from = self.header.checksums.start - self.header.sparse.start + (start / BLOCK_BYTES - 1) * 4;
        let sums = usize::try_from(from).ok().and_then(|from| self.tail.get(from..)).unwrap_or_default();
        let blocks = blocks.chunks(BLOCK);
        sums.len() / 4 >= blocks.len()
            && blocks.zip(sums.chunks_exact(4)).all(|(block, sum)| *sum == crc32c::crc32c(block).to_le_bytes())
    }
}

/// What of `part`, which begins at `start`, lies between `from` and `to`.
fn append_part(bytes: &mut Vec<u8>, part: &[u8], start: u64, from: u64, to: u64) {
    // No part is longer than a `usize` says, whatever position it is asked for.
    let within = |at: u64| at.saturating_sub(start).min(part.len() as u64) as usize;
    bytes.extend_from_slice(&part[within(from)..within(to)]);
}
