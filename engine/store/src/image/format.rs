//! The bytes of an image.
//!
//! Every number read from a file is checked against its bounds before use. An unverified image may
//! therefore give wrong answers, but never a panic.

use super::{ImageError, damaged, too_large};
use std::ops::Range;
use zoolet_model::Zxid;

/// Unit of alignment, checksums and reads, in bytes.
pub(crate) const BLOCK: usize = 4096;
/// [`BLOCK`] in the type of file positions.
pub(crate) const BLOCK_BYTES: u64 = BLOCK as u64;

pub(super) const MAGIC: [u8; 8] = *b"zltimg\0\x01";

/// The first block, decoded and checked.
///
/// Ranges are byte ranges of the file, which may exceed the memory of a 32-bit machine. Only
/// [`in_memory`] converts them to `usize`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) zxid: Zxid,
    pub(crate) digest: u128,
    pub(crate) records: u64,
    /// Starts on a block boundary, as do the checksums.
    pub(crate) sparse: Range<u64>,
    pub(crate) totals: Range<u64>,
    pub(crate) checksums: Range<u64>,
    pub(crate) file_bytes: u64,
    /// XXH3-128 of everything after the first block.
    pub(crate) hash: u128,
    /// The log's chain hash after the entry `zxid`; 0 if unknown.
    pub(crate) chain: u128,
    /// Upper bound of redb's bytes for a base built from this stream; 0 if not computed.
    pub(crate) room: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            block[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&self.zxid.to_bits().to_le_bytes());
        put(&self.digest.to_le_bytes());
        put(&self.records.to_le_bytes());
        for range in [&self.sparse, &self.totals, &self.checksums] {
            put(&range.start.to_le_bytes());
            put(&length(range).to_le_bytes());
        }
        put(&self.file_bytes.to_le_bytes());
        put(&self.hash.to_le_bytes());
        put(&self.chain.to_le_bytes());
        put(&self.room.to_le_bytes());
        let checksum = crc32c::crc32c(&block[..BLOCK - 4]);
        block[BLOCK - 4..].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    pub(crate) fn decode(block: &[u8], file_bytes: u64) -> Result<Self, ImageError> {
        let header = Self::decode_alone(block)?;
        if header.is_stream() {
            return Err(damaged("it has no table: it is a stream between servers, not a file"));
        }
        if header.file_bytes != file_bytes {
            return Err(damaged(format!("it is {file_bytes} bytes long and should be {}", header.file_bytes)));
        }
        Ok(header)
    }

    /// Decodes the header of a file or a stream, without checking the file's length.
    pub(crate) fn decode_alone(block: &[u8]) -> Result<Self, ImageError> {
        if !block.starts_with(&MAGIC) {
            return Err(damaged("it does not begin like an image of this version"));
        }
        if block.get(BLOCK - 4..) != Some(&crc32c::crc32c(&block[..BLOCK - 4]).to_le_bytes()) {
            return Err(damaged("its header does not match its checksum"));
        }
        Self::decode_fields(block).ok_or_else(|| damaged("its header is invalid"))
    }

    fn decode_fields(block: &[u8]) -> Option<Self> {
        let mut rest = &block[MAGIC.len()..];
        let mut word = || {
            let (word, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(u64::from_le_bytes(*word))
        };
        let zxid = Zxid::from_bits(word()?)?;
        let digest = u128::from(word()?) | u128::from(word()?) << 64;
        let records = word()?;
        let mut range = || {
            let (start, bytes) = (word()?, word()?);
            Some(start..start.checked_add(bytes)?)
        };
        let (sparse, totals, checksums) = (range()?, range()?, range()?);
        let file_bytes = word()?;
        let hash = u128::from(word()?) | u128::from(word()?) << 64;
        let chain = u128::from(word()?) | u128::from(word()?) << 64;
        let room = word()?;
        let header = Self { zxid, digest, records, sparse, totals, checksums, file_bytes, hash, chain, room };
        header.makes_sense().then_some(header)
    }

    /// Returns whether this is the header of a stream between servers.
    ///
    /// A stream has no sparse table and no checksums: the sender would have to hold them in memory,
    /// and the receiver does not need them.
    fn is_stream(&self) -> bool {
        self.sparse.is_empty() && self.checksums.is_empty()
    }

    /// Checks the layout: header, records, sparse table, totals, checksums, in this order.
    ///
    /// Every block between header and checksums has a checksum, except in a
    /// [stream](Self::is_stream).
    fn makes_sense(&self) -> bool {
        let Self { sparse, totals, checksums, .. } = self;
        sparse.start >= BLOCK_BYTES
            && sparse.start.is_multiple_of(BLOCK_BYTES)
            && sparse.end == totals.start
            && totals.end <= checksums.start
            && checksums.start.is_multiple_of(BLOCK_BYTES)
            && (length(checksums) == (checksums.start / BLOCK_BYTES - 1) * 4 || self.is_stream())
            && checksums.end <= self.file_bytes
    }
}

/// Records in key order.
///
/// Layout; numbers are little-endian and take 4 bytes:
/// - number of records
/// - offset of each record from the start of the extent
/// - each record: key length, length of the stored value, key, stored value
pub(crate) struct Extent<'a>(pub(crate) &'a [u8]);

impl<'a> Extent<'a> {
    pub(crate) fn len(&self) -> Result<usize, ImageError> {
        number(self.0, 0)
    }

    /// Returns a record's key and the range of its stored value.
    pub(crate) fn entry(&self, slot: usize) -> Result<(&'a [u8], Range<usize>), ImageError> {
        let at = number(self.0, place_of(slot))?;
        let (key, value) = (number(self.0, at)?, number(self.0, at.saturating_add(4))?);
        let start = at.saturating_add(8);
        let bytes = text(self.0, start, key.saturating_add(value))?;
        Ok((&bytes[..key], start + key..start + key + value))
    }

    fn key(&self, slot: usize) -> Result<&'a [u8], ImageError> {
        let at = number(self.0, place_of(slot))?;
        text(self.0, at.saturating_add(8), number(self.0, at)?)
    }

    /// Returns the slot of the first record whose key is `key` or greater.
    pub(crate) fn first_from(&self, key: &[u8]) -> Result<usize, ImageError> {
        let (mut low, mut high) = (0, self.len()?);
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle)? < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Range<usize>>, ImageError> {
        let slot = self.first_from(key)?;
        if slot == self.len()? {
            return Ok(None);
        }
        let (found, stored) = self.entry(slot)?;
        Ok((found == key).then_some(stored))
    }
}

/// Builds one extent.
#[derive(Default)]
pub(crate) struct ExtentBuilder {
    places: Vec<u32>,
    entries: Vec<u8>,
    first_key: Vec<u8>,
}

impl ExtentBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn first_key(&self) -> &[u8] {
        &self.first_key
    }

    /// Returns whether a record of this size still fits into one block.
    ///
    /// The first record always fits: its extent takes the blocks it needs.
    pub(crate) fn has_room(&self, key: &[u8], stored: &[u8]) -> bool {
        self.is_empty() || 4 + (self.places.len() + 1) * 4 + self.entries.len() + 8 + key.len() + stored.len() <= BLOCK
    }

    /// Appends a record; returns false if the format cannot hold it (4 GiB).
    pub(crate) fn push(&mut self, key: &[u8], stored: &[u8]) -> bool {
        let (Ok(key_bytes), Ok(stored_bytes)) = (u32::try_from(key.len()), u32::try_from(stored.len())) else {
            return false;
        };
        let Ok(place) = u32::try_from(self.entries.len()) else { return false };
        if self.is_empty() {
            self.first_key.clear();
            self.first_key.extend_from_slice(key);
        }
        self.places.push(place);
        for part in [&key_bytes.to_le_bytes()[..], &stored_bytes.to_le_bytes(), key, stored] {
            self.entries.extend_from_slice(part);
        }
        true
    }

    /// Appends the extent to `out`, padded to whole blocks, and starts the next one.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        let entries = 4 + self.places.len() as u32 * 4;
        // Reserve once: padding a large extent could double the buffer's capacity.
        out.reserve(entries as usize + self.entries.len() + BLOCK);
        out.extend_from_slice(&(self.places.len() as u32).to_le_bytes());
        for place in self.places.drain(..) {
            out.extend_from_slice(&(entries + place).to_le_bytes());
        }
        out.append(&mut self.entries);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
}

/// The first key of every extent.
///
/// Layout; numbers are little-endian and take 4 bytes:
/// - number of extents
/// - offset of each entry from the start of the table
/// - each entry: the extent's first block, its number of blocks, key length, key
pub(crate) struct Sparse<'a>(pub(crate) &'a [u8]);

impl<'a> Sparse<'a> {
    pub(crate) fn len(&self) -> usize {
        number(self.0, 0).unwrap_or(0)
    }

    /// Returns an extent's first key and its byte range in the file.
    pub(crate) fn entry(&self, at: usize) -> Result<(&'a [u8], Range<u64>), ImageError> {
        let place = number(self.0, place_of(at))?;
        let (block, blocks) = (number(self.0, place)? as u64, number(self.0, place.saturating_add(4))? as u64);
        let key = text(self.0, place.saturating_add(12), number(self.0, place.saturating_add(8))?)?;
        Ok((key, block * BLOCK_BYTES..(block + blocks) * BLOCK_BYTES))
    }

    fn key(&self, at: usize) -> Result<&'a [u8], ImageError> {
        let place = number(self.0, place_of(at))?;
        text(self.0, place.saturating_add(12), number(self.0, place.saturating_add(8))?)
    }

    /// Returns the only extent that can hold `key`; `None` if `key` precedes all extents.
    pub(crate) fn position(&self, key: &[u8]) -> Result<Option<usize>, ImageError> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle)? <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.checked_sub(1))
    }
}

/// Builds the sparse table.
#[derive(Default)]
pub(crate) struct SparseBuilder {
    places: Vec<u32>,
    entries: Vec<u8>,
}

impl SparseBuilder {
    /// Appends an extent; returns false if the image is too large for the format.
    pub(crate) fn push(&mut self, key: &[u8], first_block: u64, blocks: usize) -> bool {
        let numbers = [u32::try_from(first_block), u32::try_from(blocks), u32::try_from(key.len())];
        let (Ok(place), [Ok(first_block), Ok(blocks), Ok(key_bytes)]) = (u32::try_from(self.entries.len()), numbers)
        else {
            return false;
        };
        self.places.push(place);
        for number in [first_block, blocks, key_bytes] {
            self.entries.extend_from_slice(&number.to_le_bytes());
        }
        self.entries.extend_from_slice(key);
        true
    }

    /// Returns the table; `None` if it is too large for the format.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        let entries = u32::try_from(4 + self.places.len() * 4).ok()?;
        u32::try_from(entries as usize + self.entries.len()).ok()?;
        let mut table = Vec::with_capacity(entries as usize + self.entries.len());
        table.extend_from_slice(&u32::try_from(self.places.len()).ok()?.to_le_bytes());
        for place in self.places {
            table.extend_from_slice(&(entries + place).to_le_bytes());
        }
        table.extend_from_slice(&self.entries);
        Some(table)
    }
}

/// Position of an entry's offset, in an extent or in the sparse table.
///
/// Arithmetic saturates here and above: on a 32-bit machine a damaged number could otherwise wrap
/// around to a plausible position.
const fn place_of(entry: usize) -> usize {
    entry.saturating_mul(4).saturating_add(4)
}

/// Returns a range's length in bytes.
pub(crate) fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Converts a length in bytes for use in memory.
///
/// # Errors
/// [`ImageError::TooLarge`] if this machine cannot hold that much; the file may be sound.
pub(crate) fn in_memory(bytes: u64) -> Result<usize, ImageError> {
    usize::try_from(bytes).map_err(|_| too_large("one of its parts is larger than this machine can address"))
}

fn number(bytes: &[u8], at: usize) -> Result<usize, ImageError> {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(outside)?;
    usize::try_from(u32::from_le_bytes(*four)).map_err(|_| outside())
}

fn text(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], ImageError> {
    bytes.get(at..).and_then(|rest| rest.get(..length)).ok_or_else(outside)
}

fn outside() -> ImageError {
    damaged("one of its lengths points beyond its end")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            zxid: Zxid::from_bits(0x0102_0304_0506_0708).unwrap(),
            digest: 0x1112_1314_1516_1718_2122_2324_2526_2728,
            records: 3,
            sparse: 8192..8200,
            totals: 8200..8210,
            checksums: 12288..12296,
            file_bytes: 12296,
            hash: 5,
            chain: 6,
            room: 0,
        }
    }

    #[test]
    fn golden_header() {
        let block = header().encode();
        assert_eq!(&block[..8], b"zltimg\0\x01");
        assert_eq!(block[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
        let digest = [0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11];
        assert_eq!(block[16..32], digest);
        let words = [3, 8192, 8, 8200, 10, 12288, 8, 12296, 5, 0, 6, 0_u64];
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(block[32..128], words);
        assert!(block[128..BLOCK - 4].iter().all(|&byte| byte == 0));
        assert_eq!(block[BLOCK - 4..], 0x8268_c0fc_u32.to_le_bytes());
        assert_eq!(Header::decode(&block, 12296), Ok(header()));
    }

    /// Earlier builds ignore `room` when they read it, and write zeroes there.
    #[test]
    fn golden_header_of_a_stream_with_its_room() {
        let stream = Header { room: 0x0102, sparse: 8192..8192, totals: 8192..8202, ..header() };
        let stream = Header { checksums: 12288..12288, file_bytes: 12288, ..stream };
        let block = stream.encode();
        assert_eq!(block[128..136], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert!(block[136..BLOCK - 4].iter().all(|&byte| byte == 0));
        assert_eq!(Header::decode_alone(&block), Ok(stream));
    }

    #[test]
    fn flipped_or_inconsistent_image_header_is_refused() {
        let block = header().encode();
        for at in 0..BLOCK {
            let mut flipped = block;
            flipped[at] ^= 1;
            assert!(Header::decode(&flipped, 12296).is_err());
        }
        assert!(Header::decode(&block, 12295).is_err());
        let wrong = [
            Header { sparse: 8191..8200, ..header() },
            Header { sparse: 0..8200, ..header() },
            Header { totals: 8201..8210, ..header() },
            Header { totals: 8200..12289, ..header() },
            Header { checksums: 12288..12292, ..header() },
            Header { file_bytes: 12295, ..header() },
        ];
        for header in wrong {
            assert!(Header::decode(&header.encode(), header.file_bytes).is_err(), "{header:?}");
        }
    }

    /// File positions beyond 4 GiB must survive on a 32-bit machine too.
    #[test]
    fn image_header_and_table_hold_positions_beyond_4_gib() {
        let start = 5 << 30;
        let checksums = start + BLOCK_BYTES..start + BLOCK_BYTES + start / BLOCK_BYTES * 4;
        let file_bytes = checksums.end;
        let header =
            Header { sparse: start..start + 8, totals: start + 8..start + 18, checksums, file_bytes, ..header() };
        assert_eq!(Header::decode(&header.encode(), file_bytes), Ok(header));

        let mut sparse = SparseBuilder::default();
        assert!(sparse.push(b"a", start / BLOCK_BYTES, 2));
        let table = sparse.finish().unwrap();
        assert_eq!(Sparse(&table).entry(0), Ok((&b"a"[..], start..start + 2 * BLOCK_BYTES)));
    }

    #[test]
    fn golden_extent_and_sparse_table() {
        let mut builder = ExtentBuilder::default();
        assert!(builder.push(b"a", b"1234") && builder.push(b"bc", b"5678"));
        let mut extent = Vec::new();
        builder.finish(&mut extent);
        assert_eq!(extent.len(), BLOCK);
        let expected = b"\x02\0\0\0\x0c\0\0\0\x19\0\0\0\x01\0\0\0\x04\0\0\0a1234\x02\0\0\0\x04\0\0\0bc5678\0\0";
        assert!(extent.starts_with(expected), "{:?}", &extent[..48]);
        let extent = Extent(&extent);
        assert_eq!(extent.find(b"a"), Ok(Some(21..25)));
        assert_eq!(extent.find(b"bc"), Ok(Some(35..39)));
        assert_eq!(extent.find(b"b"), Ok(None));
        assert_eq!(extent.find(b"c"), Ok(None));

        let mut sparse = SparseBuilder::default();
        assert!(sparse.push(b"a", 1, 1) && sparse.push(b"d", 2, 3));
        let table = sparse.finish().unwrap();
        assert_eq!(
            table,
            b"\x02\0\0\0\x0c\0\0\0\x19\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0a\x02\0\0\0\x03\0\0\0\x01\0\0\0d"
        );
        let sparse = Sparse(&table);
        assert_eq!(sparse.entry(1), Ok((&b"d"[..], 2 * BLOCK_BYTES..5 * BLOCK_BYTES)));
        assert_eq!(
            [&b""[..], b"a", b"c", b"d", b"e"].map(|key| sparse.position(key).unwrap()),
            [None, Some(0), Some(0), Some(1), Some(1)]
        );
    }

    #[test]
    fn record_larger_than_a_block_gets_an_extent_of_its_own() {
        let mut builder = ExtentBuilder::default();
        let large = vec![7; 3 * BLOCK];
        assert!(builder.has_room(b"a", &large) && builder.push(b"a", &large));
        assert!(!builder.has_room(b"b", b""));
        let mut out = Vec::new();
        builder.finish(&mut out);
        assert_eq!(out.len(), 4 * BLOCK);
        assert!(builder.is_empty());
    }
}
