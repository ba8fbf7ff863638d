//! Writing an image: one pass over the source, under a temporary name, renamed when it is whole and durable.

use super::{
    ImageError, damaged,
    format::{BLOCK, ExtentBuilder, Header, SparseBuilder},
};
use crate::{
    action::{BaseRead, CheckpointMeta},
    event::BaseFailure,
    store::{
        base::record,
        digest::record_hash,
        disk::{Disk, DiskFile},
    },
};
use std::{io, sync::Arc};
use xxhash_rust::xxh3::Xxh3Default;
use zoolet_model::Zxid;

/// Bytes written at once.
const STRIDE: usize = 64 * BLOCK;

/// Writes what `source` holds, which must be the state that `meta` describes, as the image `name`, and returns its length in
/// bytes. An image of that name is replaced, at once and whole. Needs about 30 bytes of memory per block of the image.
///
/// # Errors
/// As [`ImageError`] says; what `name` was before is then untouched.
pub fn write(disk: &dyn Disk, name: &str, source: &dyn BaseRead, meta: &CheckpointMeta) -> Result<u64, ImageError> {
    let unfinished = format!("{name}.tmp");
    remove_if_there(disk, &unfinished)?;
    let written = disk.create(&unfinished).map_err(ImageError::from).and_then(|file| {
        let bytes = write_all(Writer::new(file), source, meta)?;
        disk.rename(&unfinished, name)?;
        disk.sync_directory()?;
        Ok(bytes)
    });
    if written.is_err() {
        // The space may be what was lacking.
        let _ = remove_if_there(disk, &unfinished);
    }
    written
}

fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A sorted file in the making.
pub(in crate::store) struct Writer {
    /// `None` when only its header and what follows the records are wanted.
    file: Option<Arc<dyn DiskFile>>,
    /// Whole blocks that wait to be written at `end`.
    waiting: Vec<u8>,
    end: usize,
    checksums: Vec<u8>,
    hash: Xxh3Default,
    extent: ExtentBuilder,
    sparse: SparseBuilder,
    records: u64,
}

fn write_all(mut writer: Writer, source: &dyn BaseRead, meta: &CheckpointMeta) -> Result<u64, ImageError> {
    let file = writer.file.clone();
    let digest = fill(&mut writer, source)?;
    if digest != meta.digest {
        return Err(not_its_digest());
    }
    let (header, _) = writer.finish(meta.zxid, digest, &meta.totals, 0)?;
    file.map_or(Ok(()), |file| file.sync())?;
    Ok(header.file_bytes)
}

/// Every record of `source`; their digest.
fn fill(writer: &mut Writer, source: &dyn BaseRead) -> Result<u128, ImageError> {
    let mut stored = Vec::new();
    let (mut digest, mut outcome) = (0_u128, Ok(()));
    let scanned = source.keys(b"", None, &mut |key| {
        outcome = source.record(key).map_err(ImageError::Source).and_then(|value| {
            let value =
                value.ok_or_else(|| ImageError::Source(BaseFailure::Damaged("a listed key is absent".into())))?;
            stored.clear();
            record::seal(key, &value, &mut stored);
            digest = digest.wrapping_add(record_hash(key, &value));
            writer.push(key, &stored)
        });
        outcome.is_ok()
    });
    scanned.map_err(ImageError::Source)?;
    outcome?;
    Ok(digest)
}

pub(super) fn not_its_digest() -> ImageError {
    ImageError::Source(BaseFailure::Damaged("its records do not add up to its digest".into()))
}

impl Writer {
    pub(in crate::store) fn new(file: Arc<dyn DiskFile>) -> Self {
        Self { file: Some(file), ..Self::of_nothing() }
    }

    /// Writes nothing.
    pub(super) fn of_nothing() -> Self {
        Self {
            file: None,
            waiting: Vec::with_capacity(STRIDE + BLOCK),
            end: BLOCK,
            checksums: Vec::new(),
            hash: Xxh3Default::new(),
            extent: ExtentBuilder::default(),
            sparse: SparseBuilder::default(),
            records: 0,
        }
    }

    /// Bytes so far, about.
    pub(in crate::store) fn bytes(&self) -> u64 {
        (self.end + self.waiting.len()) as u64
    }

    /// The next record in key order.
    pub(in crate::store) fn push(&mut self, key: &[u8], stored: &[u8]) -> Result<(), ImageError> {
        if !self.extent.has_room(key, stored) {
            self.finish_extent()?;
        }
        self.records += 1;
        if self.extent.push(key, stored) { Ok(()) } else { Err(too_large()) }
    }

    fn finish_extent(&mut self) -> Result<(), ImageError> {
        let (block, before) = ((self.end + self.waiting.len()) / BLOCK, self.waiting.len());
        self.extent.finish(&mut self.waiting);
        let blocks = (self.waiting.len() - before) / BLOCK;
        if !self.sparse.push(self.extent.first_key(), block as u64, blocks) {
            return Err(too_large());
        }
        if self.waiting.len() >= STRIDE { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<(), ImageError> {
        for block in self.waiting.chunks(BLOCK) {
            self.checksums.extend_from_slice(&crc32c::crc32c(block).to_le_bytes());
        }
        self.hash.update(&self.waiting);
        self.put(self.end, &self.waiting)?;
        self.end = self.end.checked_add(self.waiting.len()).ok_or_else(too_large)?;
        self.waiting.clear();
        Ok(())
    }

    fn put(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.write_at(at as u64, bytes))
    }

    /// Writes what is left, the header last; the caller syncs. Gives it and, if there is no file, everything from the sparse table on.
    pub(in crate::store) fn finish(
        mut self,
        zxid: Zxid,
        digest: u128,
        totals: &[u8],
        chain: u128,
    ) -> Result<(Header, Vec<u8>), ImageError> {
        if !self.extent.is_empty() {
            self.finish_extent()?;
        }
        let start = self.end + self.waiting.len();
        let table = std::mem::take(&mut self.sparse).finish().ok_or_else(too_large)?;
        let sparse = start..start + table.len();
        let totals_range = sparse.end..sparse.end + totals.len();
        self.waiting.extend_from_slice(&table);
        self.waiting.extend_from_slice(totals);
        self.waiting.resize(self.waiting.len().next_multiple_of(BLOCK), 0);
        let mut tail = Vec::new();
        if self.file.is_none() {
            tail.extend_from_slice(&self.waiting[start - self.end..]);
        }
        self.write_out()?;

        // The checksums themselves have none: the hash covers them.
        let checksums = self.end..self.end + self.checksums.len();
        self.hash.update(&self.checksums);
        self.put(self.end, &self.checksums)?;
        if self.file.is_none() {
            tail.append(&mut self.checksums);
        }
        let header = Header {
            zxid,
            digest,
            records: self.records,
            sparse,
            totals: totals_range,
            file_bytes: checksums.end as u64,
            checksums,
            hash: self.hash.digest128(),
            chain,
        };
        self.put(0, &header.encode())?;
        Ok((header, tail))
    }
}

fn too_large() -> ImageError {
    damaged("the tree is too large for the format")
}
