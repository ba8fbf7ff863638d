//! Flips bits in files.
//!
//! They flip anywhere in the files of the base, and in every batch of the log except the last one.
//! Rot in the last batch cannot be told from a torn write.

use crate::disk::SimDisk;
use crate::ensemble::host::Host;
use crate::workload::Random;
use std::ops::Range;

/// The log's block size, and the header of each batch (docs/reference/formats.md).
const BLOCK_BYTES: usize = 4096;
const HEADER_BYTES: usize = 64;
const MAGIC: &[u8] = b"zlog";
/// Bits that flip together lie within this many bytes.
const SPOT_BYTES: u64 = 512;

/// A range of a file.
type Place = (String, Range<u64>);

impl Host {
    /// Flips some bits; returns `false` if no place is suitable.
    pub(super) fn rot(&mut self) -> bool {
        if self.is_damaged || self.is_disk_full || self.is_disk_blamed {
            return false;
        }
        let is_in_log = self.random.one_in(2);
        let Some((name, within)) = draw_place(&self.disk, is_in_log, &mut self.random) else { return false };
        let first = self.random.between(within.start, within.end);
        for _ in 0..self.random.logarithmic(1, 8) {
            let at = (first + self.random.below(SPOT_BYTES)).min(within.end - 1);
            self.disk.corrupt(&name, at, 1 << self.random.below(8));
            self.rot.retain(|(_, other, _)| *other != at);
            self.rot.extend(self.disk.byte(&name, at).map(|byte| (name.clone(), at, byte)));
        }
        self.is_damaged = true;
        true
    }

    /// Returns whether a flipped byte is still on the disk.
    pub(in crate::ensemble) fn is_rotten(&self) -> bool {
        self.rot.iter().any(|(name, at, byte)| self.disk.byte(name, *at) == Some(*byte))
    }
}

fn draw_place(disk: &SimDisk, is_in_log: bool, random: &mut Random) -> Option<Place> {
    let places = if is_in_log { batches(disk) } else { base_files(disk) };
    if places.is_empty() { None } else { Some(random.pick(&places).clone()) }
}

fn base_files(disk: &SimDisk) -> Vec<Place> {
    let files = disk.files().into_iter().filter(|(name, bytes)| name.starts_with("base-") && *bytes > 0);
    files.map(|(name, bytes)| (name, 0..bytes)).collect()
}

/// Returns all batches of the log except the newest.
///
/// They include batches from earlier uses of recycled segments.
fn batches(disk: &SimDisk) -> Vec<Place> {
    let mut found: Vec<(u64, u64, Place)> = Vec::new();
    for (name, _) in disk.files().into_iter().filter(|(name, _)| name.starts_with("seg-")) {
        let bytes = disk.contents(&name).unwrap_or_default();
        for (block, at) in bytes.chunks(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)) {
            let Some(header) = block.first_chunk::<HEADER_BYTES>().filter(|header| header.starts_with(MAGIC)) else {
                continue;
            };
            let payload_bytes = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
            let mut incarnation = [0; 8];
            incarnation.copy_from_slice(&header[16..24]);
            let end = (at + HEADER_BYTES as u64 + u64::from(payload_bytes)).min(bytes.len() as u64);
            found.push((u64::from_le_bytes(incarnation), at, (name.clone(), at..end)));
        }
    }
    found.sort_by_key(|(incarnation, at, _)| (*incarnation, *at));
    found.pop();
    found.into_iter().map(|(.., place)| place).collect()
}
