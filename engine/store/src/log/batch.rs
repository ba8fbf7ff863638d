//! Encodes batches: a header of 64 bytes, records, and padding to a block.

use super::{
    BLOCK_BYTES,
    record::{RECORD_HEADER_BYTES, length},
};
use zoolet_model::Zxid;

pub(super) const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"zlog";
/// Newest format that this release writes and reads.
pub(super) const VERSION: u16 = 1;
/// The batch is the first of its segment and starts with the facts.
const FLAG_FIRST: u16 = 1;
/// The batch has no records and ends its segment, because the next segment was begun.
const FLAG_END: u16 = 2;
/// The checksum covers everything from here on: the rest of the header and the records.
const COVERED: usize = 8;

/// The header before a batch's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) version: u16,
    pub(super) is_first: bool,
    pub(super) is_end: bool,
    /// Bytes of the records.
    pub(super) payload_bytes: u32,
    /// Incarnation of the segment.
    pub(super) incarnation: u64,
    /// Number of the first numbered record: one more than the last number before the batch.
    pub(super) append_seq: u64,
    /// Entries up to this one are committed; at most the last entry of this batch.
    pub(super) watermark: Zxid,
    /// Last entry before the batch.
    pub(super) last: Zxid,
    /// Chain hash before the batch.
    pub(super) chain: u128,
}

/// Seed of a checksum. It makes batches of another disk or an earlier use of the file invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seed {
    pub(super) disk_incarnation: u128,
    pub(super) incarnation: u64,
}

impl Seed {
    fn as_crc(self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.disk_incarnation.to_le_bytes()), &self.incarnation.to_le_bytes())
    }

    fn checksum(self, covered: &[u8]) -> u32 {
        crc32c::crc32c_append(self.as_crc(), covered)
    }
}

impl Header {
    /// Returns the bytes of the batch without padding.
    pub(super) fn batch_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes as usize
    }

    /// Fills in the header of `batch` and pads it to whole blocks.
    ///
    /// `batch` has space for the header, followed by the records.
    pub(super) fn seal(&self, disk_incarnation: u128, batch: &mut Vec<u8>) {
        debug_assert_eq!(batch.len(), self.batch_bytes(), "the header tells the length");
        let end = batch.len();
        batch[0..4].copy_from_slice(&MAGIC);
        batch[8..10].copy_from_slice(&self.version.to_le_bytes());
        let flags = if self.is_first { FLAG_FIRST } else { 0 } | if self.is_end { FLAG_END } else { 0 };
        batch[10..12].copy_from_slice(&flags.to_le_bytes());
        batch[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        batch[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        batch[24..32].copy_from_slice(&self.append_seq.to_le_bytes());
        batch[32..40].copy_from_slice(&self.watermark.to_bits().to_le_bytes());
        batch[40..48].copy_from_slice(&self.last.to_bits().to_le_bytes());
        batch[48..64].copy_from_slice(&self.chain.to_le_bytes());
        let crc = Seed { disk_incarnation, incarnation: self.incarnation }.checksum(&batch[COVERED..end]);
        batch[4..8].copy_from_slice(&crc.to_le_bytes());
        batch.resize(end.next_multiple_of(BLOCK_BYTES as usize), 0);
    }

    /// Reads a header from arbitrary bytes; `None` if they are not a header. Does not check the
    /// checksum.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        if bytes[0..4] != MAGIC {
            return None;
        }
        let flags = u16::from_le_bytes([bytes[10], bytes[11]]);
        Some(Self {
            version: u16::from_le_bytes([bytes[8], bytes[9]]),
            is_first: flags & FLAG_FIRST != 0,
            is_end: flags & FLAG_END != 0,
            payload_bytes: u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
            incarnation: u64_at(bytes, 16),
            append_seq: u64_at(bytes, 24),
            watermark: Zxid::from_bits(u64_at(bytes, 32))?,
            last: Zxid::from_bits(u64_at(bytes, 40))?,
            chain: u128::from(u64_at(bytes, 48)) | (u128::from(u64_at(bytes, 56)) << 64),
        })
    }

    /// Returns true if `batch`, header and records without padding, matches its checksum.
    ///
    /// The version is not checked here.
    pub(super) fn is_intact(&self, disk_incarnation: u128, batch: &[u8]) -> bool {
        let Some(stored) = batch.get(4..8) else { return false };
        let seed = Seed { disk_incarnation, incarnation: self.incarnation };
        batch.len() == self.batch_bytes() && seed.checksum(&batch[COVERED..]).to_le_bytes() == *stored
    }

    pub(super) fn append_seq_after(&self, numbered: u64) -> u64 {
        self.append_seq + numbered
    }
}

/// Returns the disk incarnation that the facts in a segment's first batch claim.
///
/// The checksum seeded with it covers these facts, so a false claim is detected.
pub(super) fn claimed_disk_incarnation(batch: &[u8]) -> Option<u128> {
    let at = HEADER_BYTES + RECORD_HEADER_BYTES;
    let claim = batch.get(at..at + 16)?;
    Some(u128::from_le_bytes(claim.try_into().ok()?))
}

/// Returns the length of the records, for the header.
pub(super) fn payload_bytes(batch: &[u8]) -> u32 {
    length(batch.len() - HEADER_BYTES)
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}
