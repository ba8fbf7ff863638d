//! The image: one immutable file of the whole tree.
//!
//! Snapshot, backup, catch-up transfer and last-known-good all use this format. It is page-aligned
//! and position-independent. An image is written once ([`fn@write`]), renamed into place and
//! verified once ([`Image::verify`]). Opening one takes the time of reading one block.
//!
//! | part | holds |
//! |---|---|
//! | block 0 | the header |
//! | extents | records in key order, each extent as many blocks as its first record needs |
//! | sparse table | the first key of every extent, and where it is |
//! | totals | the replicated totals, as the tree encodes them |
//! | checksums | a CRC32C for every block between header and here |

pub(crate) mod format;
#[cfg(feature = "mmap")]
mod map;
pub(crate) mod record;
mod subtree;
pub(crate) mod write;

pub use subtree::Subtree;
pub use write::{unfinished_name, write};

use crate::disk::{Disk, DiskFile};
use bytes::Bytes;
use format::{BLOCK, BLOCK_BYTES, Extent, Header, Sparse, in_memory, length};
use std::{borrow::Cow, fmt, io, ops::Range, sync::Arc};
use xxhash_rust::xxh3::Xxh3Default;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::record::key;
use zoolet_machine::seam::action::{BaseRead, CheckpointMeta};
use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::wear::shown_bytes;

/// Why an image could not be written, opened, read or installed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImageError {
    /// The disk is full.
    NoSpace,
    /// Too little room for the resulting base, on the disk or under its byte bound. No record was
    /// written.
    NoRoom {
        /// Bytes still free.
        free_bytes: u64,
        /// Bytes the base may occupy.
        needed_bytes: u64,
    },
    /// The bytes are not an image, or were changed after they were written.
    Damaged(String),
    /// A size exceeds the format or this machine's memory. The stored data is sound.
    TooLarge(String),
    /// The device reported an error.
    Io(String),
    /// The state to make the image from could not be read.
    Source(BaseFailure),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("no space left for the image"),
            Self::NoRoom { free_bytes, needed_bytes } => {
                let (free, needed) = (shown_bytes(*free_bytes), shown_bytes(*needed_bytes));
                write!(f, "no space left for the image: {free} are free, and it needs {needed}")
            }
            Self::Damaged(what) => write!(f, "the image is damaged: {what}"),
            Self::TooLarge(what) => write!(f, "the image is too large: {what}"),
            Self::Io(what) => write!(f, "the image cannot be read or written: {what}"),
            Self::Source(BaseFailure::Damaged(what)) => write!(f, "the image's source is damaged: {what}"),
            Self::Source(BaseFailure::Io(what)) => write!(f, "cannot read the image's source: {what}"),
        }
    }
}

impl std::error::Error for ImageError {}

impl ImageError {
    pub(crate) fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            // A file shorter than its header says has lost its end.
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damaged(error.to_string()),
            io::ErrorKind::FileTooLarge => Self::TooLarge(error.to_string()),
            _ => Self::Io(error.to_string()),
        }
    }
}

impl From<io::Error> for ImageError {
    fn from(error: io::Error) -> Self {
        Self::from_io(&error)
    }
}

impl From<ImageError> for BaseFailure {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Damaged(what) => Self::Damaged(what),
            ImageError::Source(failure) => failure,
            ImageError::NoSpace | ImageError::NoRoom { .. } | ImageError::TooLarge(_) | ImageError::Io(_) => {
                Self::Io(error.to_string())
            }
        }
    }
}

/// An image, open for reading.
///
/// Every value read is checked against its checksum. Only [`Image::verify`] proves that nothing is
/// missing; call it once for a file that comes from elsewhere.
#[derive(Clone, Debug)]
pub struct Image {
    header: Header,
    totals: Bytes,
    sparse: Bytes,
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// The whole mapped file; slices of it share the mapping.
    #[cfg_attr(not(feature = "mmap"), allow(dead_code, reason = "without mmap nothing maps"))]
    Mapped(Bytes),
    /// The file, and a checksum for every block after the header.
    Read { file: Arc<dyn DiskFile>, checksums: Arc<[u32]> },
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mapped(_) => "Mapped",
            Self::Read { .. } => "Read",
        })
    }
}

/// Returns whether a file starts like an image, even if the rest is damaged.
pub fn is_one(path: &std::path::Path) -> bool {
    use std::io::Read;
    let mut begins = [0; format::MAGIC.len()];
    std::fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut begins).is_ok()) && begins == format::MAGIC
}

impl Image {
    /// Maps a file; reads one block, and allocates nothing that grows with the image.
    ///
    /// Truncating the mapped file, or an unreadable sector, kills the reading process (SIGBUS). Use
    /// [`Image::open_pread`] where that is unacceptable.
    ///
    /// # Errors
    /// As [`ImageError`] says.
    #[cfg(feature = "mmap")]
    pub fn open(path: &std::path::Path) -> Result<Self, ImageError> {
        let file = map::map(path)?;
        let first = file.get(..BLOCK).ok_or_else(|| damaged("it is shorter than its header"))?;
        let header = Header::decode(first, file.len() as u64)?;
        let (totals, sparse) = (slice(&file, &header.totals)?, slice(&file, &header.sparse)?);
        Ok(Self { header, totals, sparse, source: Source::Mapped(file) })
    }

    /// Opens a file for explicit reads, with every block checked.
    ///
    /// Reads the sparse table and the checksums and keeps them: about 30 bytes per block of the
    /// image.
    ///
    /// # Errors
    /// As [`ImageError`] says.
    pub fn open_pread(disk: &dyn Disk, name: &str) -> Result<Self, ImageError> {
        let file = disk.open(name)?;
        let mut first = [0; BLOCK];
        file.read_at(0, &mut first)?;
        let header = Header::decode(&first, file.len()?)?;
        let checksums = read_range(&*file, header.checksums.clone())?;
        let checksums =
            checksums.chunks_exact(4).map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]])).collect();
        let source = Source::Read { file, checksums };
        // Sparse table and totals are adjacent and start on a block boundary.
        let whole = header.sparse.start..header.checksums.start;
        let both = Bytes::from(source.blocks(whole.clone())?.into_owned());
        let within = |range: &Range<u64>| slice(&both, &(range.start - whole.start..range.end - whole.start));
        let (totals, sparse) = (within(&header.totals)?, within(&header.sparse)?);
        Ok(Self { header, totals, sparse, source })
    }

    /// Returns the zxid, digest and totals of the state in the image.
    pub fn meta(&self) -> CheckpointMeta {
        CheckpointMeta { zxid: self.header.zxid, digest: self.header.digest, totals: self.totals.clone() }
    }

    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.header.records
    }

    /// Returns the length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.header.file_bytes
    }

    /// Reads and checks the whole image.
    ///
    /// Checks every block's checksum, the file's hash, the sparse table, and the order, count and
    /// digest of the records.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] names the first mismatch; else [`ImageError::Io`] or
    /// [`ImageError::TooLarge`].
    pub fn verify(&self) -> Result<(), ImageError> {
        self.verify_blocks()?;
        let sparse = Sparse(&self.sparse);
        let (mut last, mut digest, mut records) = (Vec::new(), 0_u128, 0_u64);
        let mut end = BLOCK_BYTES;
        for at in 0..sparse.len() {
            let (first_key, blocks) = sparse.entry(at)?;
            if blocks.start != end {
                return Err(damaged("its extents are not contiguous"));
            }
            end = blocks.end;
            let bytes = self.extent(at)?;
            let extent = Extent(&bytes);
            if extent.entry(0)?.0 != first_key {
                // `get` would search the wrong extent.
                return Err(damaged("its sparse table does not match the first key of an extent"));
            }
            for slot in 0..extent.len()? {
                let (key, stored) = extent.entry(slot)?;
                if records > 0 && *last >= *key {
                    return Err(damaged("its keys are not in order"));
                }
                last.clear();
                last.extend_from_slice(key);
                digest = digest.wrapping_add(record_hash(key, unseal(key, &bytes[stored])?));
                records += 1;
            }
        }
        if end != self.header.sparse.start {
            return Err(damaged("its extents are not contiguous"));
        }
        if (records, digest) != (self.header.records, self.header.digest) {
            return Err(damaged("its records do not match its digest"));
        }
        Ok(())
    }

    /// Returns the record of a key; borrowed from a mapped file, without allocation.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] and [`ImageError::Io`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, ImageError> {
        let Some(at) = Sparse(&self.sparse).position(key)? else { return Ok(None) };
        let found = |extent: &Extent<'_>| extent.find(key);
        match self.extent(at)? {
            Cow::Borrowed(bytes) => {
                let extent = Extent(bytes);
                let Some(stored) = found(&extent)? else { return Ok(None) };
                Ok(Some(Cow::Borrowed(unseal(key, &bytes[stored])?)))
            }
            Cow::Owned(bytes) => {
                let Some(stored) = found(&Extent(&bytes))? else { return Ok(None) };
                Ok(Some(Cow::Owned(unseal(key, &bytes[stored])?.to_vec())))
            }
        }
    }

    /// Calls `visit` with each child name of `path`, in order, until it returns false.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] and [`ImageError::Io`].
    pub fn children(&self, path: &str, visit: &mut dyn FnMut(&str) -> bool) -> Result<(), ImageError> {
        let prefix = key::children_prefix(path);
        let end = key::end_of_prefix(&prefix);
        let mut nameless = false;
        self.scan(&prefix, end.as_deref(), &mut |key, _| match str::from_utf8(&key[prefix.len()..]) {
            Ok(name) => visit(name),
            Err(_) => {
                nameless = true;
                false
            }
        })?;
        if nameless { Err(damaged("the name of a child is not UTF-8")) } else { Ok(()) }
    }

    /// Calls `visit` with each record in `from..to`, in key order, until it returns false.
    ///
    /// `to` is exclusive; `None` scans to the end.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] and [`ImageError::Io`].
    pub fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), ImageError> {
        let sparse = Sparse(&self.sparse);
        for at in sparse.position(from)?.unwrap_or(0)..sparse.len() {
            let bytes = self.extent(at)?;
            let extent = Extent(&bytes);
            for slot in extent.first_from(from)?..extent.len()? {
                let (key, stored) = extent.entry(slot)?;
                if to.is_some_and(|to| key >= to) || !visit(key, unseal(key, &bytes[stored])?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn extent(&self, at: usize) -> Result<Cow<'_, [u8]>, ImageError> {
        let (_, blocks) = Sparse(&self.sparse).entry(at)?;
        let inside = blocks.start >= BLOCK_BYTES && blocks.end <= self.header.sparse.start;
        if !inside {
            return Err(damaged("its sparse table points outside its records"));
        }
        self.source.blocks(blocks)
    }

    fn verify_blocks(&self) -> Result<(), ImageError> {
        /// Bytes per read.
        const STRIDE: u64 = 64 * BLOCK_BYTES;
        let mut hash = Xxh3Default::new();
        let sums = self.header.checksums.clone();
        let checksums = self.source.raw(sums.clone())?;
        let (mut from, end) = (BLOCK_BYTES, self.header.file_bytes);
        let mut checksums = checksums.chunks_exact(4);
        while from < end {
            let bytes = self.source.raw(from..end.min(from + STRIDE))?;
            hash.update(&bytes);
            // The checksums at the end of the file have no checksums themselves; only the hash
            // covers them.
            let blocks = from / BLOCK_BYTES..sums.start / BLOCK_BYTES;
            for (block, (bytes, sum)) in blocks.zip(bytes.chunks(BLOCK).zip(&mut checksums)) {
                if *sum != crc32c::crc32c(bytes).to_le_bytes() {
                    return Err(damaged(format!("block {block} does not match its checksum")));
                }
            }
            from += bytes.len() as u64;
        }
        if hash.digest128() == self.header.hash { Ok(()) } else { Err(damaged("it does not match its hash")) }
    }
}

impl Source {
    /// Returns whole blocks; explicit reads check each block, a mapped file does not.
    fn blocks(&self, range: Range<u64>) -> Result<Cow<'_, [u8]>, ImageError> {
        let bytes = self.raw(range.clone())?;
        if let Self::Read { checksums, .. } = self {
            for (block, bytes) in (range.start / BLOCK_BYTES..).zip(bytes.chunks(BLOCK)) {
                let sum = usize::try_from(block - 1).ok().and_then(|at| checksums.get(at));
                if sum != Some(&crc32c::crc32c(bytes)) {
                    return Err(damaged(format!("block {block} does not match its checksum")));
                }
            }
        }
        Ok(bytes)
    }

    fn raw(&self, range: Range<u64>) -> Result<Cow<'_, [u8]>, ImageError> {
        match self {
            Self::Mapped(file) => {
                let range = in_memory(range.start)?..in_memory(range.end)?;
                Ok(Cow::Borrowed(file.get(range).ok_or_else(|| damaged("it is too short"))?))
            }
            Self::Read { file, .. } => Ok(Cow::Owned(read_range(&**file, range)?)),
        }
    }
}

impl BaseRead for Image {
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        let Some(found) = self.get(key)? else { return Ok(None) };
        Ok(Some(match (found, &self.source) {
            (Cow::Borrowed(value), Source::Mapped(file)) => file.slice_ref(value),
            (found, _) => record::shared(&found),
        }))
    }

    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        Ok(self.scan(from, to, &mut |key, _| visit(key))?)
    }
}

/// Slices bytes that are in memory.
fn slice(bytes: &Bytes, range: &Range<u64>) -> Result<Bytes, ImageError> {
    Ok(bytes.slice(in_memory(range.start)?..in_memory(range.end)?))
}

fn read_range(file: &dyn DiskFile, range: Range<u64>) -> Result<Vec<u8>, ImageError> {
    let mut bytes = vec![0; in_memory(length(&range))?];
    file.read_at(range.start, &mut bytes)?;
    Ok(bytes)
}

fn unseal<'a>(key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], ImageError> {
    record::unseal(key, stored)
        .ok_or_else(|| damaged(format!("record {} does not match its checksum", key.escape_ascii())))
}

pub(crate) fn damaged(what: impl Into<String>) -> ImageError {
    ImageError::Damaged(what.into())
}

pub(crate) fn too_large(what: impl Into<String>) -> ImageError {
    ImageError::TooLarge(what.into())
}
