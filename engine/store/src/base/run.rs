//! One immutable sorted file of the base, in the format of an image's extents.
//!
//! Unlike an image, a run is not a whole tree. It holds the changes of one checkpoint, or of
//! several merged, including deletions. Every block and every record has a CRC32C that is checked
//! on every read. The manifest holds the hash of the whole file.

use super::run_id::RunId;
use super::{
    BaseError,
    cache::BlockCache,
    filter::{self, Filter},
    ledger::Ledger,
};
use crate::disk::{Disk, DiskFile};
use crate::image::format::{BLOCK, BLOCK_BYTES, Extent, Header, Sparse, in_memory, length};
use crate::image::record;
use crate::image::write::Writer;
use bytes::Bytes;
use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use zoolet_machine::budget::allocated;
use zoolet_model::Zxid;
use zoolet_zab::{Mutation, mutation};

/// The stored value of a deleted key. The stored value of a record is never empty.
pub(super) const DELETED: &[u8] = &[];

/// Run numbers are below this. A thousand checkpoints a second would reach it in a hundred million
/// years.
pub(super) const NUMBERS_END: u64 = 1 << 62;

/// Returns the bytes that a record takes in a run.
///
/// This includes its share of the table, and the unused rest of its block if all records are of
/// this size.
pub(super) fn record_bytes(key: &[u8], value_bytes: usize) -> u64 {
    let (room, bytes) = (BLOCK - 4, 12 + key.len() + value_bytes + record::CHECKSUM_BYTES);
    let bytes = if bytes > room { (bytes + 4).next_multiple_of(BLOCK) } else { BLOCK / (room / bytes) };
    let table = (key.len() + 16) * bytes.min(BLOCK) / BLOCK;
    (bytes + table) as u64
}

/// An open run.
///
/// If the base no longer needs the file, dropping the last holder removes it.
pub(super) struct Run {
    disk: Arc<dyn Disk>,
    name: String,
    id: RunId,
    file: Arc<dyn DiskFile>,
    ledger: Arc<Ledger>,
    cache: Arc<BlockCache>,
    sparse: Vec<u8>,
    filter: Filter,
    checksums: Vec<u32>,
    records: u64,
    bytes: u64,
    is_garbage: AtomicBool,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("name", &self.name).field("records", &self.records).finish_non_exhaustive()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.ledger.table_bytes.take(self.memory_bytes());
        if *self.is_garbage.get_mut() {
            // A file left here is removed when the base is opened next.
            let _ = self.disk.remove(&self.name);
        }
    }
}

/// A run's answer for a key: its record, or `None` if it was deleted.
pub(super) type Said = Option<Bytes>;

impl Run {
    /// Opens a run and loads its table and filter.
    ///
    /// With both in memory a look-up takes one read. The table takes about 30 bytes per block.
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        name: String,
        number: u64,
        ledger: &Arc<Ledger>,
        cache: &Arc<BlockCache>,
    ) -> Result<Self, BaseError> {
        let file = disk.open(&name)?;
        let read = |range: Range<u64>| -> Result<Vec<u8>, BaseError> {
            let mut bytes = vec![0; in_memory(length(&range))?];
            file.read_at(range.start, &mut bytes)?;
            ledger.bytes_read.add(bytes.len() as u64);
            Ok(bytes)
        };
        let header = Header::decode(&read(0..BLOCK_BYTES)?, file.len()?)?;
        let checksums: Vec<u32> = read(header.checksums.clone())?
            .chunks_exact(4)
            .map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]))
            .collect();
        // The table and the filter are adjacent and start at a block boundary.
        let mut sparse = read(header.sparse.start..header.checksums.start)?;
        check_blocks(&name, &checksums, header.sparse.start / BLOCK_BYTES, &sparse)?;
        let table_bytes = in_memory(length(&header.sparse))?;
        let filter = Filter::from_bytes(&sparse[table_bytes..][..in_memory(length(&header.totals))?]);
        sparse.truncate(table_bytes);
        check_table(&header, &sparse).map_err(|what| BaseError::Damaged(format!("{name}: {what}")))?;
        sparse.shrink_to_fit();
        let run = Self {
            disk: disk.clone(),
            name,
            id: RunId { number, hash: header.hash },
            file,
            ledger: ledger.clone(),
            cache: cache.clone(),
            sparse,
            filter,
            checksums,
            records: header.records,
            bytes: header.file_bytes,
            is_garbage: AtomicBool::new(false),
        };
        ledger.table_bytes.add(run.memory_bytes());
        Ok(run)
    }

    /// Returns bytes in memory, which never change.
    pub(super) fn memory_bytes(&self) -> u64 {
        let tables = [self.sparse.capacity(), self.filter.as_bytes().len(), self.checksums.capacity() * 4];
        let tables: usize = tables.into_iter().map(allocated).sum();
        (tables + allocated(size_of::<Self>())) as u64
    }

    pub(super) fn id(&self) -> RunId {
        self.id
    }

    /// Returns the length of the file, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Lets the file be removed once its last holder is dropped; it is never opened again.
    pub(super) fn set_garbage(&self) {
        self.is_garbage.store(true, Ordering::Release);
    }

    /// Returns false if the filter rules out this key's hash.
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        self.filter.may_hold(hash)
    }

    /// Returns the run's answer for a key; `None` if the run does not hold the key.
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<Said>, BaseError> {
        let Some(at) = self.sparse().position(key)? else { return Ok(None) };
        let (first_key, blocks) = self.sparse().entry(at)?;
        if length(&blocks) == BLOCK_BYTES {
            let first = blocks.start / BLOCK_BYTES;
            return self.cache.with(self.id, first, |block| self.read(blocks, block), |block| self.look(block, key))?;
        }
        if first_key != key {
            return Ok(None);
        }
        let mut bytes = vec![0; in_memory(length(&blocks))?];
        self.read(blocks, &mut bytes)?;
        self.look(&bytes, key)
    }

    fn look(&self, extent: &[u8], key: &[u8]) -> Result<Option<Said>, BaseError> {
        let Some(stored) = Extent(extent).find(key)? else { return Ok(None) };
        let stored = &extent[stored];
        if stored == DELETED {
            return Ok(Some(None));
        }
        Ok(Some(Some(record::shared(unseal(key, stored)?))))
    }

    fn sparse(&self) -> Sparse<'_> {
        Sparse(&self.sparse)
    }

    fn read(&self, blocks: Range<u64>, bytes: &mut [u8]) -> Result<(), BaseError> {
        self.file.read_at(blocks.start, bytes)?;
        self.ledger.bytes_read.add(bytes.len() as u64);
        check_blocks(&self.name, &self.checksums, blocks.start / BLOCK_BYTES, bytes)
    }

    fn damaged(&self, what: &str) -> BaseError {
        BaseError::Damaged(format!("{}: {what}", self.name))
    }
}

/// Returns the record in a stored value, checked against its checksum.
pub(super) fn unseal<'a>(key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], BaseError> {
    record::unseal(key, stored)
        .ok_or_else(|| BaseError::Damaged(format!("record {} does not match its checksum", key.escape_ascii())))
}

/// Checks that the table can belong to this file.
///
/// - Extents are contiguous up to the table.
/// - Their first keys ascend.
/// - They have room for as many records as the header says.
///
/// A cursor checks later that each extent begins with its key.
fn check_table(header: &Header, sparse: &[u8]) -> Result<(), String> {
    let sparse = Sparse(sparse);
    let (mut end, mut last) = (BLOCK_BYTES, None);
    for at in 0..sparse.len() {
        let (key, blocks) = sparse.entry(at).map_err(|error| error.to_string())?;
        if blocks.start != end || blocks.is_empty() || last.is_some_and(|last| last >= key) {
            return Err("its table is not sorted and contiguous".into());
        }
        (end, last) = (blocks.end, Some(key));
    }
    // A record takes twelve bytes beside its key.
    if end != header.sparse.start || header.records > (end - BLOCK_BYTES) / 12 {
        return Err("its table does not match its records".into());
    }
    Ok(())
}

fn check_blocks(name: &str, checksums: &[u32], first: u64, bytes: &[u8]) -> Result<(), BaseError> {
    for (block, content) in (first..).zip(bytes.chunks(BLOCK)) {
        let checksum = || usize::try_from(block - 1).ok().and_then(|at| checksums.get(at));
        let is_right = || checksum() == Some(&crc32c::crc32c(content));
        if !mutation::is_on(Mutation::PageUnverified) && !is_right() {
            return Err(BaseError::Damaged(format!("{name}: block {block} does not match its checksum")));
        }
    }
    Ok(())
}

/// Walks one file in key order.
///
/// A record larger than a block has an extent to itself, which is read only on demand. Dozens of
/// runs that are walked together may each be at a record as long as a frame.
pub(super) struct Cursor {
    run: Arc<Run>,
    /// The current extent, and the number of extents.
    extent: usize,
    extents: usize,
    /// Bytes of the current extent. While it is unread, the key it begins with.
    bytes: Vec<u8>,
    is_unread: bool,
    /// The current record, and the number of records in the extent. Equal at the end.
    slot: usize,
    slots: usize,
    key: Range<usize>,
    stored: Range<usize>,
}

impl Cursor {
    /// Returns a cursor at the first record at or after `key`.
    pub(super) fn seek(run: Arc<Run>, key: &[u8]) -> Result<Self, BaseError> {
        let (extents, extent) = (run.sparse().len(), run.sparse().position(key)?.unwrap_or(0));
        let (bytes, at) = (Vec::new(), 0..0);
        let mut cursor =
            Self { run, extent, extents, bytes, is_unread: false, slot: 0, slots: 0, key: at.clone(), stored: at };
        if extents > 0 {
            cursor.enter()?;
            if cursor.key() < Some(key) {
                // An unread extent holds one record, which comes before `key`.
                cursor.slot = if cursor.is_unread { cursor.slots } else { Extent(&cursor.bytes).first_from(key)? };
                cursor.enter_next_extent()?;
            }
        }
        Ok(cursor)
    }

    /// Returns the current key; `None` at the end.
    pub(super) fn key(&self) -> Option<&[u8]> {
        (self.slot < self.slots).then(|| &self.bytes[self.key.clone()])
    }

    /// Returns the current stored value, which must have been [read](Self::read). Empty for a
    /// deletion.
    pub(super) fn stored(&self) -> &[u8] {
        debug_assert!(!self.is_unread, "an unread value would look like a deletion");
        &self.bytes[self.stored.clone()]
    }

    /// Reads the current extent if that was deferred.
    pub(super) fn read(&mut self) -> Result<(), BaseError> {
        if self.is_unread {
            self.load()?;
            self.stand()?;
        }
        Ok(())
    }

    pub(super) fn advance(&mut self) -> Result<(), BaseError> {
        self.read()?;
        self.slot += 1;
        if self.slot < self.slots && Extent(&self.bytes).entry(self.slot)?.0 <= &self.bytes[self.key.clone()] {
            return Err(self.run.damaged("its keys are not in order"));
        }
        self.enter_next_extent()
    }

    /// Moves to the next extent when this one is used up.
    fn enter_next_extent(&mut self) -> Result<(), BaseError> {
        if self.slot < self.slots {
            return self.stand();
        }
        if self.extent + 1 < self.extents {
            self.extent += 1;
            self.enter()?;
        }
        Ok(())
    }

    fn stand(&mut self) -> Result<(), BaseError> {
        let (key, stored) = Extent(&self.bytes).entry(self.slot)?;
        self.key = stored.start - key.len()..stored.start;
        self.stored = stored;
        Ok(())
    }

    /// Moves to the first record of the current extent.
    fn enter(&mut self) -> Result<(), BaseError> {
        self.slot = 0;
        let (first_key, blocks) = self.run.sparse().entry(self.extent)?;
        if length(&blocks) == BLOCK_BYTES {
            self.load()?;
            return self.stand();
        }
        self.bytes = first_key.to_vec();
        (self.is_unread, self.slots, self.key, self.stored) = (true, 1, 0..self.bytes.len(), 0..0);
        Ok(())
    }

    fn load(&mut self) -> Result<(), BaseError> {
        let (first_key, blocks) = self.run.sparse().entry(self.extent)?;
        let bytes = in_memory(length(&blocks))?;
        if self.bytes.capacity() > bytes.max(2 * BLOCK) {
            self.bytes = Vec::new();
        }
        self.bytes.resize(bytes, 0);
        self.run.read(blocks, &mut self.bytes)?;
        self.is_unread = false;
        let extent = Extent(&self.bytes);
        self.slots = extent.len()?;
        if bytes > BLOCK && self.slots != 1 {
            return Err(self.run.damaged("an extent of several blocks holds more than one record"));
        }
        let (last_key, _) = extent.entry(self.slots.saturating_sub(1))?;
        let is_before_next = match self.extent + 1 < self.extents {
            true => last_key < self.run.sparse().entry(self.extent + 1)?.0,
            false => true,
        };
        // Otherwise `find` would look in a different extent from the one that holds the record.
        if self.slots > 0 && extent.entry(0)?.0 == first_key && is_before_next {
            Ok(())
        } else {
            Err(self.run.damaged("its table does not match the first and last key of an extent"))
        }
    }
}

/// A run being written. If it is dropped before it is finished, its file is removed.
pub(super) struct RunWriter {
    disk: Arc<dyn Disk>,
    name: String,
    number: u64,
    ledger: Arc<Ledger>,
    cache: Arc<BlockCache>,
    file: Arc<dyn DiskFile>,
    writer: Option<Writer>,
    filter: Option<Filter>,
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if self.writer.is_some() {
            let _ = self.disk.remove(&self.name);
        }
    }
}

impl RunWriter {
    /// Creates the file. `keys` is the maximum number of keys, for a run that gets a filter.
    pub(super) fn create(
        disk: &Arc<dyn Disk>,
        name: String,
        number: u64,
        ledger: &Arc<Ledger>,
        cache: &Arc<BlockCache>,
        keys: Option<u64>,
    ) -> Result<Self, BaseError> {
        let file = disk.create(&name)?;
        Ok(Self {
            disk: disk.clone(),
            name,
            number,
            ledger: ledger.clone(),
            cache: cache.clone(),
            writer: Some(Writer::new(file.clone())),
            file,
            filter: keys.map(Filter::for_keys),
        })
    }

    /// Appends a stored value or [`DELETED`]. Keys must ascend.
    pub(super) fn push(&mut self, key: &[u8], stored: &[u8]) -> Result<(), BaseError> {
        if let Some(filter) = &mut self.filter {
            filter.add(filter::hash(key));
        }
        match &mut self.writer {
            Some(writer) => Ok(writer.push(key, stored)?),
            None => Ok(()),
        }
    }

    /// Returns the bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::bytes)
    }

    /// Makes the file durable. Its name becomes durable with the next sync of the directory.
    pub(super) fn finish(mut self, zxid: Zxid) -> Result<Run, BaseError> {
        let Some(writer) = self.writer.take() else { return Err(BaseError::Io("a run was finished twice".into())) };
        let filter = self.filter.take().unwrap_or_default();
        let finished = writer.finish(zxid, 0, filter.as_bytes()).map_err(BaseError::from).and_then(|header| {
            // Opening reads the filter again. Without this drop, memory would hold it three times.
            drop(filter);
            self.ledger.sync(&*self.file)?;
            self.ledger.bytes_written.add(header.file_bytes);
            Run::open(&self.disk, self.name.clone(), self.number, &self.ledger, &self.cache)
        });
        if finished.is_err() {
            let _ = self.disk.remove(&self.name);
        }
        finished
    }
}
