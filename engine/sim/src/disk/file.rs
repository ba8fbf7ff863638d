//! One file: its contents, the changes since its last sync, and the handle of an open one.

use super::fate::Fate;
use super::{BLOCK, OperationKind, Random, SECTOR, SimDisk, dead, full, position};
use std::collections::BTreeSet;
use std::io;
use zoolet_store::disk::DiskFile;

#[derive(Clone)]
pub(super) struct FileState {
    /// The file's newest name, for fault hooks.
    pub(super) name: String,
    /// Contents as the running process sees them.
    pub(super) cached: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// Changes since the last sync.
    pub(super) changes: Vec<Change>,
    /// Whether space is reserved, by block.
    pub(super) blocks: Vec<bool>,
    /// Number of open handles. A removed file exists until all are closed.
    pub(super) open: usize,
}

#[derive(Clone)]
pub(super) enum Change {
    /// Whole sectors, as the page cache held them after the write.
    Sectors {
        first: usize,
        bytes: Vec<u8>,
    },
    Length(usize),
}

impl FileState {
    /// Returns the number of blocks written since the last sync.
    fn changed_blocks(&self) -> u64 {
        let mut blocks = BTreeSet::new();
        for change in &self.changes {
            if let Change::Sectors { first, bytes } = change {
                let start = first * SECTOR;
                blocks.extend(start / BLOCK..(start + bytes.len()).div_ceil(BLOCK));
            }
        }
        blocks.len() as u64
    }

    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cached: Vec::new(),
            durable: Vec::new(),
            changes: Vec::new(),
            blocks: Vec::new(),
            open: 0,
        }
    }

    /// Returns the contents of the medium after a power loss. It held `medium` at the last sync.
    fn survivor(&self, mut medium: Vec<u8>, fate: &mut Fate) -> Vec<u8> {
        let lengths = self.changes.iter().filter(|change| matches!(change, Change::Length(_))).count();
        let mut lengths_kept = fate.keeps_first(lengths);
        let mut length = medium.len();
        for change in &self.changes {
            match change {
                Change::Length(bytes) if lengths_kept > 0 => {
                    lengths_kept -= 1;
                    length = *bytes;
                    medium.truncate(length);
                    medium.resize(length, 0);
                }
                Change::Length(_) => {}
                Change::Sectors { first, bytes } => {
                    let mut sectors = fate.keeps_sectors();
                    for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                        if !sectors.keeps() {
                            continue;
                        }
                        let at = (first + number) * SECTOR;
                        if medium.len() < at + sector.len() {
                            medium.resize(at + sector.len(), 0);
                        }
                        medium[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
        // Blocks beyond the end of the file are lost.
        medium.resize(length, 0);
        medium
    }

    pub(super) fn after_power_loss(&self, fate: &mut Fate) -> Self {
        let medium = self.survivor(self.durable.clone(), fate);
        let mut blocks = self.blocks.clone();
        blocks.truncate(medium.len().div_ceil(BLOCK));
        Self { name: self.name.clone(), cached: medium.clone(), durable: medium, changes: Vec::new(), blocks, open: 0 }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.cached.len() < end {
            self.resize(end);
        }
        self.cached[at..end].copy_from_slice(bytes);
        let first = at / SECTOR;
        let sectors_end = end.next_multiple_of(SECTOR).min(self.cached.len());
        let sectors = self.cached[first * SECTOR..sectors_end].to_vec();
        self.changes.push(Change::Sectors { first, bytes: sectors });
    }

    fn resize(&mut self, bytes: usize) {
        self.cached.resize(bytes, 0);
        self.blocks.truncate(bytes.div_ceil(BLOCK));
        self.changes.push(Change::Length(bytes));
    }

    pub(super) fn taken_bytes(&self) -> u64 {
        self.blocks.iter().filter(|&&kept| kept).count() as u64 * BLOCK as u64
    }

    fn blocks_missing(&self, at: usize, end: usize) -> usize {
        (at / BLOCK..end.div_ceil(BLOCK)).filter(|&block| !self.blocks.get(block).is_some_and(|&kept| kept)).count()
    }

    fn reserve(&mut self, at: usize, end: usize) {
        let end = end.div_ceil(BLOCK);
        if self.blocks.len() < end {
            self.blocks.resize(end, false);
        }
        self.blocks[(at / BLOCK).min(end)..end].fill(true);
    }
}

pub(super) struct SimFile {
    pub(super) disk: SimDisk,
    pub(super) file: usize,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.state().files[self.file].open -= 1;
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.enter_file(OperationKind::Read, self.file, 0, 0)?;
        Ok(state.files[self.file].cached.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        state.enter_file(OperationKind::Read, self.file, offset, buffer.len() as u64)?;
        let at = position(offset)?;
        let cached = &state.files[self.file].cached;
        let bytes = cached.get(at..at.saturating_add(buffer.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        state.counters.reads += 1;
        state.counters.read_bytes += buffer.len() as u64;
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let state = &mut *state;
        if state.dead {
            return Err(dead());
        }
        let mut entered = state.enter_file(OperationKind::Write, self.file, offset, bytes.len() as u64);
        let at = position(offset)?;
        let mut count = bytes.len();
        if entered.is_err() {
            // A write that fails midway leaves an arbitrary prefix.
            count = usize::try_from(state.random.below(count as u64 + 1)).unwrap_or(0);
        }
        let free = state.free_blocks();
        while count > 0 && state.files[self.file].blocks_missing(at, at + count) > free {
            // Write the part that fits, as a file system does.
            count = ((at + count - 1) / BLOCK * BLOCK).saturating_sub(at);
        }
        if entered.is_ok() && count < bytes.len() {
            entered = Err(full());
        }
        if count > 0 {
            let file = &mut state.files[self.file];
            file.write(at, &bytes[..count]);
            file.reserve(at, at + count);
        }
        state.counters.writes += 1;
        state.counters.written_bytes += count as u64;
        entered
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let state = &mut *state;
        let entered = state.enter_file(OperationKind::Sync, self.file, 0, 0);
        if state.dead {
            return entered;
        }
        let mut fate = if entered.is_ok() { Fate::Everything } else { Fate::Some(Random::new(state.random.bits())) };
        state.counters.syncs += 1;
        state.counters.synced_bytes += state.files[self.file].changed_blocks() * BLOCK as u64;
        let file = &mut state.files[self.file];
        let durable = std::mem::take(&mut file.durable);
        file.durable = file.survivor(durable, &mut fate);
        file.changes.clear();
        entered
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.enter_file(OperationKind::SetLen, self.file, 0, bytes)?;
        state.files[self.file].resize(position(bytes)?);
        Ok(())
    }

    fn forget_cached(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.enter_file(OperationKind::Read, self.file, 0, 0)?;
        let file = &mut state.files[self.file];
        if file.changes.is_empty() {
            file.cached.clone_from(&file.durable);
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.enter_file(OperationKind::Allocate, self.file, 0, bytes)?;
        let end = position(bytes)?;
        if state.files[self.file].blocks_missing(0, end) > state.free_blocks() {
            return Err(full());
        }
        let file = &mut state.files[self.file];
        if file.cached.len() < end {
            file.resize(end);
        }
        file.reserve(0, end);
        Ok(if state.reserves_by_writing { bytes } else { 0 })
    }
}
