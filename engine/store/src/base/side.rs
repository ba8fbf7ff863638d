//! The side file of a base: two copies of redb's header, and a CRC32C for every block of the base
//! file.
//!
//! Nothing live is overwritten in place. A table block overwrites the older of its two copies. The
//! header decides which state is the durable one. It is written over one copy and, once that copy
//! is durable, over the other.

use super::{BaseError, ledger::Ledger};
use crate::disk::DiskFile;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};
use zoolet_machine::budget::allocated;

/// Bytes covered by one checksum in the base and in the image; redb's page size.
pub(super) const BLOCK: usize = 4096;
/// Bytes of the base's first block that redb uses. They are stored only in the side file.
pub(super) const HEADER_BYTES: usize = 512;

const MAGIC: [u8; 8] = *b"zltbase\x01";
const MAGIC_END: usize = 8;
const ID_END: usize = 16;
const SEQUENCE_END: usize = 24;
const HEADER_END: usize = SEQUENCE_END + HEADER_BYTES;
/// Checksums per table block.
const ENTRIES: usize = 1020;
/// Growth step of the checksums in memory. Doubling could take twice the memory that their bound
/// allows.
const GROWTH: usize = 4096;
const TABLE_SEQUENCE: usize = ENTRIES * 4;
const TABLE_CHECKSUM: usize = TABLE_SEQUENCE + 8;
/// Start of the table, after the two copies of the header.
const TABLE_OFFSET: u64 = 2 * BLOCK as u64;

type Block = [u8; BLOCK];

/// The open side file of one base.
pub(super) struct Side {
    file: Arc<dyn DiskFile>,
    id: u64,
    ledger: Arc<Ledger>,
    header: Mutex<Header>,
    table: RwLock<Table>,
}

/// Invariant: one copy on the disk always holds `durable`; both do when `sealed`.
struct Header {
    /// The header as redb last wrote it.
    current: [u8; HEADER_BYTES],
    /// The header that the next process would find.
    durable: [u8; HEADER_BYTES],
    sequence: u64,
    sealed: bool,
    /// The copy that holds `durable` when the other does not.
    newest: Twin,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Twin {
    First,
    Second,
}

impl Twin {
    const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    const fn offset(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => BLOCK as u64,
        }
    }
}

#[derive(Default)]
struct Table {
    checksums: Vec<u32>,
    blocks: Vec<TableBlock>,
}

struct TableBlock {
    sequence: u64,
    newest: Twin,
    dirty: bool,
}

impl TableBlock {
    const fn never_written() -> Self {
        Self { sequence: 0, newest: Twin::Second, dirty: false }
    }
}

impl Side {
    /// Starts the side file of a new base: no header yet, no checksums.
    pub(super) fn create(file: Arc<dyn DiskFile>, id: u64, ledger: Arc<Ledger>) -> Self {
        let header = Header {
            current: [0; HEADER_BYTES],
            durable: [0; HEADER_BYTES],
            sequence: 0,
            sealed: true,
            newest: Twin::Second,
        };
        Self { file, id, ledger, header: Mutex::new(header), table: RwLock::default() }
    }

    /// Reads the header and the table, which must be durable.
    pub(super) fn open(file: Arc<dyn DiskFile>, id: u64, ledger: Arc<Ledger>) -> Result<Self, BaseError> {
        let header = Header::read(&*file, id)?;
        let table = Table::read(&*file, id)?;
        Ok(Self { file, id, ledger, header: Mutex::new(header), table: RwLock::new(table) })
    }

    /// Returns the id of the base.
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// Makes everything written durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.ledger.sync(&*self.file)
    }

    pub(super) fn read_header(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let header = self.header();
        let part = header.current.get(offset..offset + buffer.len()).ok_or_else(beyond_header)?;
        buffer.copy_from_slice(part);
        Ok(())
    }

    /// Changes the header in memory; [`Side::persist_header`] makes the change durable.
    pub(super) fn write_header(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let mut header = self.header();
        let part = header.current.get_mut(offset..offset + bytes.len()).ok_or_else(beyond_header)?;
        part.copy_from_slice(bytes);
        Ok(())
    }

    /// Returns the memory of the table, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        allocated(table.checksums.capacity() * 4) + allocated(table.blocks.capacity() * size_of::<TableBlock>())
    }

    /// Returns the bytes of the base file up to its highest block with a checksum in memory.
    pub(super) fn checksummed_bytes(&self) -> u64 {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        (table.checksums.len() * BLOCK) as u64
    }

    pub(super) fn header_changed(&self) -> bool {
        let header = self.header();
        header.current != header.durable
    }

    /// Returns the CRC32C of a block as last written; 0 if it was never written.
    pub(super) fn checksum(&self, block: u64) -> u32 {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        usize::try_from(block).ok().and_then(|block| table.checksums.get(block)).copied().unwrap_or(0)
    }

    /// Records, in memory, the checksums of `blocks`, which are about to be written from block
    /// `first` on.
    ///
    /// Returns true if any checksum changed.
    pub(super) fn note(&self, first: u64, blocks: &[u8]) -> io::Result<bool> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let first = usize::try_from(first).map_err(io::Error::other)?;
        table.grow(first + blocks.len() / BLOCK);
        let mut changed = false;
        for (at, bytes) in (first..).zip(blocks.chunks_exact(BLOCK)) {
            let checksum = crc32c::crc32c(bytes);
            if table.checksums[at] != checksum {
                table.checksums[at] = checksum;
                table.blocks[at / ENTRIES].dirty = true;
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Forgets the checksums of all blocks from `blocks` on, where the base file now ends.
    pub(super) fn truncate(&self, blocks: u64) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.truncate(usize::try_from(blocks).unwrap_or(usize::MAX));
    }

    /// Reserves space for the checksums of this many blocks.
    pub(super) fn reserve(&self, blocks: u64) -> io::Result<()> {
        self.file.allocate(TABLE_OFFSET + blocks.div_ceil(ENTRIES as u64) * 2 * BLOCK as u64).map(drop)
    }

    /// Writes the changed table blocks; durable only after [`Side::sync`].
    pub(super) fn write_table(&self) -> io::Result<()> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Table { checksums, blocks } = &mut *table;
        for (number, block) in blocks.iter_mut().enumerate().filter(|(_, block)| block.dirty) {
            let end = checksums.len();
            let entries = &checksums[end.min(number * ENTRIES)..end.min((number + 1) * ENTRIES)];
            let copy = block.newest.other();
            let bytes = encode_table_block(self.id, number as u64, block.sequence + 1, entries);
            self.write(table_offset(number as u64) + copy.offset(), &bytes)?;
            *block = TableBlock { sequence: block.sequence + 1, newest: copy, dirty: false };
        }
        Ok(())
    }

    /// Makes both copies of the header equal to the durable one.
    ///
    /// This must happen before any block of an older state is overwritten. Otherwise a flip in the
    /// only newest copy would bring the older state back.
    pub(super) fn seal(&self) -> io::Result<()> {
        let mut header = self.header();
        if header.sealed {
            return Ok(());
        }
        let bytes = encode_header(self.id, header.sequence, &header.durable);
        self.write(header.newest.other().offset(), &bytes)?;
        self.sync()?;
        header.sealed = true;
        Ok(())
    }

    /// Makes the header durable.
    ///
    /// Once the first copy is durable, the new state counts; the second copy is insurance.
    /// Everything that the header leads to must be durable before the call, and both copies must be
    /// equal ([`Side::seal`]).
    pub(super) fn persist_header(&self) -> io::Result<()> {
        let mut header = self.header();
        assert!(header.sealed, "the header's first copy would be overwritten while it is the only one");
        let sequence = header.sequence + 1;
        let bytes = encode_header(self.id, sequence, &header.current);
        header.sealed = false;
        header.newest = Twin::Second;
        self.write(Twin::First.offset(), &bytes)?;
        self.sync()?;
        header.newest = Twin::First;
        header.sequence = sequence;
        header.durable = header.current;
        drop(header);
        self.seal()
    }

    fn write(&self, offset: u64, block: &Block) -> io::Result<()> {
        self.ledger.bytes_written.add(block.len() as u64);
        self.file.write_at(offset, block)
    }

    fn header(&self) -> MutexGuard<'_, Header> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Header {
    fn read(file: &dyn DiskFile, id: u64) -> Result<Self, BaseError> {
        let mut copies = [Twin::First, Twin::Second].map(|copy| {
            let mut block = [0; BLOCK];
            file.read_at(copy.offset(), &mut block).map(|()| (copy, block))
        });
        // If the device cannot read one copy, it may still be able to read the other.
        let found: Vec<(Twin, u64, [u8; HEADER_BYTES])> = copies
            .iter_mut()
            .filter_map(|copy| copy.as_ref().ok())
            .filter_map(|(copy, block)| decode_header(id, block).map(|(sequence, header)| (*copy, sequence, header)))
            .collect();
        let Some(&(newest, sequence, durable)) = found.iter().max_by_key(|(_, sequence, _)| *sequence) else {
            return match copies.into_iter().find_map(Result::err) {
                Some(error) => Err(error.into()),
                None => Err(BaseError::Damaged(format!("neither header of base {id} is valid"))),
            };
        };
        let sealed = found.len() == 2 && found[0].1 == found[1].1;
        Ok(Self { current: durable, durable, sequence, sealed, newest })
    }
}

impl Table {
    fn read(file: &dyn DiskFile, id: u64) -> Result<Self, BaseError> {
        let mut table = Self::default();
        let end = file.len()?;
        let mut pair = vec![0; 2 * BLOCK];
        while table_offset(table.blocks.len() as u64 + 1) <= end {
            let number = table.blocks.len() as u64;
            file.read_at(table_offset(number), &mut pair)?;
            table.push(number, id, &pair);
        }
        // The side file is reserved for all blocks of the base file, including holes. Memory needs
        // the checksums up to the last written block only.
        let written = table.checksums.iter().rposition(|checksum| *checksum != 0).map_or(0, |last| last + 1);
        table.checksums.truncate(written);
        Ok(table)
    }

    /// Adds a table block from its two copies. If both are invalid, the block was never written or
    /// is damaged. Either way no block that it covers can be read.
    fn push(&mut self, number: u64, id: u64, pair: &[u8]) {
        let copies = [(Twin::First, &pair[..BLOCK]), (Twin::Second, &pair[BLOCK..])];
        let valid = copies.into_iter().filter_map(|(copy, block)| {
            let sequence = decode_table_block(id, number, block)?;
            Some((sequence, copy, block))
        });
        let first = self.blocks.len() * ENTRIES;
        match valid.max_by_key(|(sequence, _, _)| *sequence) {
            Some((sequence, newest, block)) => {
                self.blocks.push(TableBlock { sequence, newest, dirty: false });
                self.grow(first + ENTRIES);
                let entries = block[..TABLE_SEQUENCE].chunks_exact(4);
                for (checksum, entry) in self.checksums[first..].iter_mut().zip(entries) {
                    *checksum = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
                }
            }
            None => self.blocks.push(TableBlock::never_written()),
        }
    }

    fn grow(&mut self, blocks: usize) {
        if self.checksums.capacity() < blocks {
            self.checksums.reserve_exact(blocks.next_multiple_of(GROWTH) - self.checksums.len());
        }
        if self.checksums.len() < blocks {
            self.checksums.resize(blocks, 0);
        }
        let table_blocks = blocks.div_ceil(ENTRIES).max(self.blocks.len());
        self.blocks.resize_with(table_blocks, TableBlock::never_written);
    }

    /// Forgets the checksums from `blocks` on, and marks their table blocks dirty so that the next
    /// process does not find them.
    ///
    /// The table blocks themselves are kept, because their sequence numbers tell the newer of two
    /// copies.
    fn truncate(&mut self, blocks: usize) {
        if self.checksums.len() > blocks {
            let changed = blocks / ENTRIES..self.checksums.len().div_ceil(ENTRIES);
            self.blocks[changed].iter_mut().for_each(|block| block.dirty = true);
            self.checksums.truncate(blocks);
            self.checksums.shrink_to(blocks.next_multiple_of(GROWTH));
        }
    }
}

const fn table_offset(number: u64) -> u64 {
    TABLE_OFFSET + number * 2 * BLOCK as u64
}

fn encode_header(id: u64, sequence: u64, header: &[u8; HEADER_BYTES]) -> Block {
    let mut block = [0; BLOCK];
    block[..MAGIC_END].copy_from_slice(&MAGIC);
    block[MAGIC_END..ID_END].copy_from_slice(&id.to_le_bytes());
    block[ID_END..SEQUENCE_END].copy_from_slice(&sequence.to_le_bytes());
    block[SEQUENCE_END..HEADER_END].copy_from_slice(header);
    let checksum = crc32c::crc32c(&block[..BLOCK - 4]);
    block[BLOCK - 4..].copy_from_slice(&checksum.to_le_bytes());
    block
}

fn decode_header(id: u64, block: &Block) -> Option<(u64, [u8; HEADER_BYTES])> {
    let checksum = crc32c::crc32c(&block[..BLOCK - 4]).to_le_bytes();
    let valid = block[BLOCK - 4..] == checksum && block[..MAGIC_END] == MAGIC && u64_at(block, MAGIC_END) == id;
    if !valid {
        return None;
    }
    let mut header = [0; HEADER_BYTES];
    header.copy_from_slice(&block[SEQUENCE_END..HEADER_END]);
    Some((u64_at(block, ID_END), header))
}

fn encode_table_block(id: u64, number: u64, sequence: u64, entries: &[u32]) -> Block {
    let mut block = [0; BLOCK];
    for (at, entry) in block.chunks_exact_mut(4).zip(entries) {
        at.copy_from_slice(&entry.to_le_bytes());
    }
    block[TABLE_SEQUENCE..TABLE_CHECKSUM].copy_from_slice(&sequence.to_le_bytes());
    let checksum = table_block_checksum(id, number, &block);
    block[TABLE_CHECKSUM..TABLE_CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// Returns the sequence number; `None` if the block is invalid.
fn decode_table_block(id: u64, number: u64, block: &[u8]) -> Option<u64> {
    let checksum = table_block_checksum(id, number, block).to_le_bytes();
    (block[TABLE_CHECKSUM..TABLE_CHECKSUM + 4] == checksum).then(|| u64_at(block, TABLE_SEQUENCE))
}

/// Covers the base's id and the block's position too, so a block that the device wrote to the wrong
/// place is invalid there.
fn table_block_checksum(id: u64, number: u64, block: &[u8]) -> u32 {
    let place = crc32c::crc32c_append(crc32c::crc32c(&id.to_le_bytes()), &number.to_le_bytes());
    crc32c::crc32c_append(place, &block[..TABLE_CHECKSUM])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn beyond_header() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "redb's header outgrew the place kept for it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_header() {
        let mut redb = [0; HEADER_BYTES];
        redb[0] = 0xaa;
        redb[HEADER_BYTES - 1] = 0xbb;
        let block = encode_header(7, 3, &redb);
        assert_eq!(&block[..25], b"zltbase\x01\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\xaa");
        assert_eq!(block[HEADER_END - 1..HEADER_END + 1], [0xbb, 0]);
        assert_eq!(block[BLOCK - 4..], 0x59e0_7b40_u32.to_le_bytes());
        assert_eq!(decode_header(7, &block), Some((3, redb)));
        assert_eq!(decode_header(8, &block), None);
    }

    #[test]
    fn golden_table_block() {
        let block = encode_table_block(7, 2, 5, &[1, 0x0403_0201]);
        assert_eq!(&block[..12], b"\x01\0\0\0\x01\x02\x03\x04\0\0\0\0");
        assert_eq!(&block[4080..4088], b"\x05\0\0\0\0\0\0\0");
        assert_eq!(block[4088..4092], 0xef1f_6cd4_u32.to_le_bytes());
        assert_eq!(block[4092..], [0; 4]);
        assert_eq!(decode_table_block(7, 2, &block), Some(5));
        assert_eq!(decode_table_block(7, 3, &block), None);
    }

    #[test]
    fn growing_checksum_table_allocates_little_spare_memory() {
        let mut table = Table::default();
        for blocks in (0..300_000).step_by(100) {
            table.grow(blocks);
            assert!(table.checksums.capacity() < blocks + GROWTH, "{} for {blocks}", table.checksums.capacity());
        }
        table.truncate(1000);
        assert!(table.checksums.capacity() <= GROWTH);
    }
}
