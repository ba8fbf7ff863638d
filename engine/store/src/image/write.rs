//! Writes an image in one pass over the source.
//!
//! The file has a temporary name until it is complete and durable, and is then renamed.

use super::{
    ImageError,
    format::{BLOCK, BLOCK_BYTES, ExtentBuilder, Header, SparseBuilder},
    record, too_large,
};
use crate::disk::{Disk, DiskFile};
use std::{io, sync::Arc};
use xxhash_rust::xxh3::Xxh3Default;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::seam::action::{BaseRead, CheckpointMeta};
use zoolet_machine::seam::event::BaseFailure;
use zoolet_model::Zxid;

/// Bytes per write.
const STRIDE: usize = 64 * BLOCK;

/// Writes the state in `source` as image `name`; returns its length in bytes.
///
/// `meta` must describe that state. An existing image of this name is replaced atomically. Needs
/// about 30 bytes of memory per block of the image.
///
/// # Errors
/// As [`ImageError`] says; an existing image is then untouched.
pub fn write(disk: &dyn Disk, name: &str, source: &dyn BaseRead, meta: &CheckpointMeta) -> Result<u64, ImageError> {
    let unfinished = unfinished_name(name);
    remove_if_there(disk, &unfinished)?;
    let written = disk.create(&unfinished).map_err(ImageError::from).and_then(|file| {
        let bytes = write_all(Writer::new(file), source, meta)?;
        disk.rename(&unfinished, name)?;
        disk.sync_directory()?;
        Ok(bytes)
    });
    if written.is_err() {
        // Free the file's space: a full disk may be the cause.
        let _ = remove_if_there(disk, &unfinished);
    }
    written
}

/// Returns the name of image `name` while it is being written.
///
/// A crash leaves that file, and the next write removes it. So the name is one that no other
/// program uses: `NAME.tmp` may be another program's file. It is 12 bytes longer than `name`.
pub fn unfinished_name(name: &str) -> String {
    format!(".{name}.zoolet-tmp")
}

fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes one sorted file: an image, or a run of the base.
pub(crate) struct Writer {
    file: Arc<dyn DiskFile>,
    /// Bytes buffered for position `end`.
    waiting: Vec<u8>,
    end: u64,
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
    let header = writer.finish(meta.zxid, digest, &meta.totals)?;
    file.sync()?;
    Ok(header.file_bytes)
}

/// Pushes every record of `source` and returns their digest.
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

pub(crate) fn not_its_digest() -> ImageError {
    ImageError::Source(BaseFailure::Damaged("its records do not match its digest".into()))
}

impl Writer {
    pub(crate) fn new(file: Arc<dyn DiskFile>) -> Self {
        Self {
            file,
            waiting: Vec::with_capacity(STRIDE + BLOCK),
            end: BLOCK_BYTES,
            checksums: Vec::new(),
            hash: Xxh3Default::new(),
            extent: ExtentBuilder::default(),
            sparse: SparseBuilder::default(),
            records: 0,
        }
    }

    /// Returns the approximate length so far, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.end + self.waiting.len() as u64
    }

    /// Appends the next record in key order.
    pub(crate) fn push(&mut self, key: &[u8], stored: &[u8]) -> Result<(), ImageError> {
        if !self.extent.has_room(key, stored) {
            self.finish_extent()?;
        }
        self.records += 1;
        if self.extent.push(key, stored) { Ok(()) } else { Err(beyond_format()) }
    }

    fn finish_extent(&mut self) -> Result<(), ImageError> {
        let (block, before) = (self.bytes() / BLOCK_BYTES, self.waiting.len());
        self.extent.finish(&mut self.waiting);
        let blocks = (self.waiting.len() - before) / BLOCK;
        if !self.sparse.push(self.extent.first_key(), block, blocks) {
            return Err(beyond_format());
        }
        if self.waiting.len() >= STRIDE { self.write_out() } else { Ok(()) }
    }

    /// Writes the whole blocks in the buffer.
    fn write_out(&mut self) -> Result<(), ImageError> {
        let rest = self.waiting.split_off(self.waiting.len() / BLOCK * BLOCK);
        for block in self.waiting.chunks(BLOCK) {
            self.checksums.extend_from_slice(&crc32c::crc32c(block).to_le_bytes());
        }
        self.hash.update(&self.waiting);
        self.put(self.end, &self.waiting)?;
        self.end += self.waiting.len() as u64;
        self.waiting.clear();
        self.waiting.extend_from_slice(&rest);
        Ok(())
    }

    fn put(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(at, bytes)
    }

    /// Writes the rest, the header last, and returns the header. The caller syncs.
    pub(crate) fn finish(mut self, zxid: Zxid, digest: u128, totals: &[u8]) -> Result<Header, ImageError> {
        if !self.extent.is_empty() {
            self.finish_extent()?;
        }
        let start = self.bytes();
        let table = std::mem::take(&mut self.sparse).finish().ok_or_else(beyond_format)?;
        let sparse = start..start + table.len() as u64;
        let totals_range = sparse.end..sparse.end + totals.len() as u64;
        self.append(&table)?;
        drop(table);
        self.append(totals)?;
        self.waiting.resize(self.waiting.len().next_multiple_of(BLOCK), 0);
        self.write_out()?;

        // The checksums have no checksums themselves; the hash covers them.
        let checksums = self.end..self.end + self.checksums.len() as u64;
        self.hash.update(&self.checksums);
        self.put(self.end, &self.checksums)?;
        let header = Header {
            zxid,
            digest,
            records: self.records,
            sparse,
            totals: totals_range,
            file_bytes: checksums.end,
            checksums,
            hash: self.hash.digest128(),
            chain: 0,
            room: 0,
        };
        self.put(0, &header.encode())?;
        Ok(header)
    }

    /// Appends in pieces: memory may not hold a table twice.
    fn append(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        for piece in bytes.chunks(STRIDE) {
            self.waiting.extend_from_slice(piece);
            if self.waiting.len() >= STRIDE {
                self.write_out()?;
            }
        }
        Ok(())
    }
}

fn beyond_format() -> ImageError {
    too_large("the tree is too large for the format")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsDisk;
    use crate::disk::Disk;
    use crate::image::Image;
    use bytes::Bytes;

    /// A writer positioned at `end`; the file before it is a hole.
    fn beyond(file: Arc<dyn DiskFile>, end: u64) -> Writer {
        let checksums = vec![0; usize::try_from((end / BLOCK_BYTES - 1) * 4).unwrap()];
        Writer { end, checksums, ..Writer::new(file) }
    }

    /// Runs `test` with an empty file in a temporary directory.
    fn with_file<T>(name: &str, test: impl FnOnce(&FsDisk, Arc<dyn DiskFile>) -> T) -> T {
        let directory = std::env::temp_dir().join(format!("zoolet-write-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let disk = FsDisk::open(&directory).unwrap();
        let outcome = test(&disk, disk.create(name).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
        outcome
    }

    fn sealed(key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut stored = Vec::new();
        record::seal(key, value, &mut stored);
        stored
    }

    /// Must hold on a 32-bit machine too, whose `usize` ends at 4 GiB.
    #[test]
    fn image_records_beyond_4_gib_are_read_back() {
        with_file("beyond", |disk, file| {
            let start = 5 << 30;
            let mut writer = beyond(file, start);
            for name in [&b"a"[..], b"b"] {
                writer.push(name, &sealed(name, &[name[0]; 3000])).unwrap();
            }
            let header = writer.finish(Zxid::ZERO, 0, b"totals").unwrap();
            assert_eq!((header.sparse.start, header.records), (start + 2 * BLOCK_BYTES, 2));
            let image = Image::open_pread(disk, "beyond").unwrap();
            assert_eq!((image.file_bytes(), image.meta().totals), (header.file_bytes, Bytes::from_static(b"totals")));
            for name in [&b"a"[..], b"b"] {
                assert_eq!(image.get(name).unwrap().unwrap(), &[name[0]; 3000][..]);
            }
        });
    }

    /// Writes an empty image called `conf`.
    fn write_empty(disk: &FsDisk) -> Result<u64, ImageError> {
        crate::image::Subtree::default().write(disk, "conf", Zxid::ZERO)
    }

    /// Regression: the file of another program beside the image was deleted, and a directory of
    /// that name kept the image from being written.
    #[test]
    fn a_foreign_file_beside_the_image_stays() {
        with_file("conf.tmp", |disk, foreign| {
            foreign.write_at(0, b"Dear Sir").unwrap();
            write_empty(disk).unwrap();
            let mut there = [0; 8];
            disk.open("conf.tmp").unwrap().read_at(0, &mut there).unwrap();
            assert_eq!(&there, b"Dear Sir");
        });
    }

    #[test]
    fn an_image_that_a_crash_cut_short_is_removed_by_the_next_write() {
        with_file(&unfinished_name("conf"), |disk, cut| {
            cut.write_at(0, &[0; 5000]).unwrap();
            write_empty(disk).unwrap();
            assert_eq!(disk.list().unwrap(), ["conf"]);
        });
    }

    /// Reported as damage, this error would make a leader discard its sound base.
    #[test]
    fn image_too_large_for_its_format_is_not_reported_as_damage() {
        let error = with_file("too-large", |_, file| {
            let mut writer = Writer { end: BLOCK_BYTES << 32, ..Writer::new(file) };
            writer.push(b"a", &sealed(b"a", b"")).unwrap();
            writer.finish(Zxid::ZERO, 0, b"").unwrap_err()
        });
        assert!(matches!(error, ImageError::TooLarge(_)), "{error}");
        assert!(matches!(BaseFailure::from(error.clone()), BaseFailure::Io(_)), "{error}");
    }
}
