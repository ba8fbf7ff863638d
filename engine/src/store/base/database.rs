//! How we use redb: every setting, every table, one place.

use super::{BaseError, backend::Backend, record, run::DELETED, senseless::ours, side::BLOCK};
use crate::store::key::{self, Key};
use redb::{
    Builder, Database, Range, ReadOnlyTable, ReadableDatabase, StorageError, TableDefinition, WriteTransaction,
};
use std::ops::Bound;
use zoolet_model::Zxid;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;
type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;
pub(super) type Entries = Range<'static, &'static [u8], &'static [u8]>;

/// Every record but those of tag `d`.
const RECORDS: Definition = TableDefinition::new("records");
/// Tag `d`: large data, in a table of its own so that the birth of a child does not rewrite its parent's megabyte.
const DATA: Definition = TableDefinition::new("data");
/// One entry: how far merges have come.
const META: Definition = TableDefinition::new("meta");
const META_KEY: &[u8] = b"merged";
/// What redb begins with, about.
const CREATION_BYTES: u64 = 4 << 20;

/// What moving pages takes beside those that are free already, about.
const COMPACTION_BYTES: u64 = 256 << 10;

/// What a page in redb's memory takes beside itself: its allocation, and its place in a table. With 9,000 to 16,000 pages read, an
/// allocator that counts found 120 to 123 bytes.
const PAGE_OVERHEAD_BYTES: usize = 128;
/// What redb takes when it is open and has read nothing, found in the same way; 45 KiB more with a file of 257 MiB.
const OPEN_BYTES: usize = 64 << 10;

/// How far merges have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// Nothing in redb is newer than this.
    pub(super) zxid: Zxid,
    /// Transactions so far.
    pub(super) steps: u64,
}

/// What one transaction writes: changes in key order, all in one piece of memory.
#[derive(Default)]
pub(super) struct Step {
    bytes: Vec<u8>,
    /// For each change, where its key ends and where its stored value does; an empty one deletes.
    ends: Vec<(usize, usize)>,
}

impl Step {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn push(&mut self, key: &[u8], stored: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(stored);
        self.ends.push((key_end, self.bytes.len()));
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back the later half, and returns its first key.
    pub(super) fn halve(&mut self) -> Key {
        let kept = self.len() / 2;
        let start = self.start(kept);
        let first = self.ends.get(kept).map_or(Key::default(), |(key_end, _)| self.bytes[start..*key_end].into());
        self.ends.truncate(kept);
        self.bytes.truncate(start);
        first
    }

    /// What writing it takes at most: each change its own leaf, and its value; then branches, allocator state and free lists.
    pub(super) fn estimate_bytes(&self) -> u64 {
        let leaves = self.iter().map(|(key, stored)| {
            let bytes = key.len() + stored.len();
            // redb gives a value beyond a page a power of two of pages.
            BLOCK as u64 + if bytes > BLOCK / 2 { 2 * bytes as u64 } else { 0 }
        });
        let leaves: u64 = leaves.sum();
        leaves + leaves / 8 + 64 * BLOCK as u64
    }

    /// The same where all its keys come after those that are there: full pages, but what is larger than one.
    pub(super) fn appended_bytes(&self) -> u64 {
        let bytes = self.bytes.len() as u64;
        2 * bytes + 64 * BLOCK as u64
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ends
            .iter()
            .enumerate()
            .map(|(at, &(key_end, end))| (&self.bytes[self.start(at)..key_end], &self.bytes[key_end..end]))
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before].1)
    }
}

/// One opening: redb over one [`Backend`]. Dropping it writes nothing.
///
/// Whatever has redb read its file goes through [`Backend::guarded`].
pub(super) struct Opened {
    /// There until it is dropped.
    database: Option<Database>,
    pub(super) backend: Backend,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.backend.shut();
        let database = self.database.take();
        // It reads what it would say good-bye to.
        let _ = self.backend.guarded(|| {
            drop(database);
            Ok::<(), BaseError>(())
        });
    }
}

/// One state of redb, held.
pub(super) struct Snapshot {
    records: Table,
    data: Table,
    pub(super) mark: Mark,
    pub(super) backend: Backend,
}

impl Opened {
    /// Opens what the backend holds; `cache_bytes` bounds redb's pages in memory, of which at most half are dirty ones.
    pub(super) fn open(backend: Backend, cache_bytes: usize) -> Result<Self, BaseError> {
        backend.check_length()?;
        let database = backend.guarded(|| {
            let opened = builder(cache_bytes).create_with_backend(backend.clone());
            opened.map_err(|error| classify(&backend, error.into()))
        })?;
        Ok(Self { database: Some(database), backend })
    }

    /// Lays out an empty database; it has no state before the first commit.
    pub(super) fn create(backend: Backend, cache_bytes: usize) -> Result<Self, BaseError> {
        backend.begin_writing(CREATION_BYTES)?;
        Self::open(backend, cache_bytes)
    }

    /// Bytes in memory: redb's pages, what it keeps beside them, and our checksums.
    pub(super) fn memory_bytes(&self) -> usize {
        let pages = self.database().cache_stats().used_bytes();
        pages + pages / BLOCK * PAGE_OVERHEAD_BYTES + OPEN_BYTES + self.backend.memory_bytes()
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("only dropping takes it")
    }

    /// Holds the current state.
    pub(super) fn snapshot(&self) -> Result<Snapshot, BaseError> {
        let read = || -> Result<Option<Snapshot>, redb::Error> {
            let transaction = self.database().begin_read()?;
            let (records, data) = (transaction.open_table(RECORDS)?, transaction.open_table(DATA)?);
            let stored = transaction.open_table(META)?.get(META_KEY)?;
            let mark = stored.and_then(|stored| decode_mark(record::unseal(META_KEY, stored.value())?));
            Ok(mark.map(|mark| Snapshot { records, data, mark, backend: self.backend.clone() }))
        };
        let snapshot = self.backend.guarded(|| read().map_err(|error| classify(&self.backend, error)))?;
        snapshot.ok_or_else(|| BaseError::Damaged("redb does not say how far merges have come".into()))
    }

    /// Writes a step in one durable transaction; how many bytes of values it took out, or replaced.
    pub(super) fn commit(&self, step: &Step, mark: Mark) -> Result<u64, BaseError> {
        let mut freed = 0;
        let mut write = || {
            self.transact(step.estimate_bytes(), |transaction| {
                let mut records = transaction.open_table(RECORDS)?;
                let mut data = transaction.open_table(DATA)?;
                for (key, stored) in step.iter() {
                    let table = if in_data(key) { &mut data } else { &mut records };
                    let old = if stored == DELETED { table.remove(key)? } else { table.insert(key, stored)? };
                    freed += old.map_or(0, |old| old.value().len() as u64);
                }
                drop((records, data));
                write_mark(transaction, mark)
            })
        };
        self.backend.guarded(|| write().map_err(|error| classify(&self.backend, error)))?;
        Ok(freed)
    }

    /// Takes records whose keys come after all that it has, in key order, packing pages full: `fill` calls its argument with each key and its stored
    /// value. For a file that this process has made: redb reads nothing else here, and what panics in `fill` is no word on it.
    pub(super) fn load<E: From<BaseError>>(
        &self,
        estimate: u64,
        mark: Mark,
        fill: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> Result<(), BaseError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut outcome = Ok(());
        let written = self.transact(estimate, |transaction| {
            let mut records = transaction.open_table(RECORDS)?;
            let mut data = transaction.open_table(DATA)?;
            let mut record_end = records.upper_bound_mut(Bound::<&[u8]>::Unbounded)?;
            let mut data_end = data.upper_bound_mut(Bound::<&[u8]>::Unbounded)?;
            outcome = fill(&mut |key, stored| {
                let end = if in_data(key) { &mut data_end } else { &mut record_end };
                end.insert_before(key, stored).map_err(|error| classify(&self.backend, error.into()))
            });
            if outcome.is_err() {
                return Err(redb::Error::Corrupted("the source of the records failed".into()));
            }
            record_end.close()?;
            data_end.close()?;
            drop((records, data));
            write_mark(transaction, mark)
        });
        outcome?;
        written.map_err(|error| classify(&self.backend, error).into())
    }

    /// Moves pages together and gives the end of the file back. False when somebody holds a snapshot. Commit after it: only then opening
    /// after a crash reads little again.
    pub(super) fn compact(&mut self) -> Result<bool, BaseError> {
        self.backend.begin_writing(COMPACTION_BYTES)?;
        let Self { database, backend } = self;
        let compacted = backend.guarded(|| match database.as_mut().map(Database::compact) {
            Some(Ok(_)) => Ok(true),
            Some(Err(redb::CompactionError::TransactionInProgress)) | None => Ok(false),
            Some(Err(error)) => Err(classify(backend, error.into())),
        })?;
        self.backend.end_writing();
        Ok(compacted)
    }

    fn transact(
        &self,
        estimate: u64,
        body: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        self.backend.begin_writing(estimate)?;
        let mut transaction = self.database().begin_write()?;
        // Two phases: pages and checksums are durable before the header that leads to them is written. Quick repair: the state of
        // the page allocator goes into every commit, so that opening after a crash reads a few pages and not the whole file.
        transaction.set_two_phase_commit(true);
        transaction.set_quick_repair(true);
        body(&transaction)?;
        transaction.commit()?;
        self.backend.end_writing();
        Ok(())
    }
}

/// Why an answer did not come.
pub(super) enum Trouble {
    /// This question met it.
    Own(BaseError),
    /// redb refuses since somebody else's question or step met an error.
    Latched,
}

impl From<BaseError> for Trouble {
    fn from(error: BaseError) -> Self {
        Self::Own(error)
    }
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::PreviousIo | StorageError::DatabaseClosed => Self::Latched,
            StorageError::Io(error) => Self::Own(BaseError::from_io(&error)),
            StorageError::Corrupted(what) => Self::Own(BaseError::Damaged(what)),
            error => Self::Own(BaseError::Io(error.to_string())),
        }
    }
}

impl Snapshot {
    /// The stored value of a key.
    pub(super) fn stored<R>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Trouble> {
        let table = if in_data(key) { &self.data } else { &self.records };
        self.backend.guarded(|| {
            let Some(stored) = table.get(key)? else { return Ok(None) };
            let stored = stored.value();
            Ok(Some(ours(|| look(stored))))
        })
    }

    /// The entries of one stretch of keys, from `from` on.
    pub(super) fn entries(&self, stretch: &Stretch, from: Bound<&[u8]>) -> Result<Entries, Trouble> {
        let table = if stretch.in_data { &self.data } else { &self.records };
        let to = stretch.to.map_or(Bound::Unbounded, Bound::Excluded);
        self.backend.guarded(|| Ok(table.range::<&[u8]>((from, to))?))
    }

    /// Shows the next of these entries; whether there was one.
    pub(super) fn show_next(&self, entries: &mut Entries, show: impl FnOnce(&[u8], &[u8])) -> Result<bool, Trouble> {
        self.backend.guarded(|| {
            let next = entries.next().transpose()?;
            let is_there = next.is_some();
            if let Some((key, stored)) = next {
                let (key, stored) = (key.value(), stored.value());
                ours(|| show(key, stored));
            }
            Ok(is_there)
        })
    }
}

/// Keys that one table holds without a gap.
#[derive(Debug)]
pub(super) struct Stretch {
    in_data: bool,
    pub(super) from: &'static [u8],
    pub(super) to: Option<&'static [u8]>,
}

/// Both tables as one sequence of keys: the data's keys lie together, in the middle of the records'.
pub(super) static STRETCHES: [Stretch; 3] = [
    Stretch { in_data: false, from: b"", to: Some(&[key::DATA]) },
    Stretch { in_data: true, from: &[key::DATA], to: Some(&[key::DATA + 1]) },
    Stretch { in_data: false, from: &[key::DATA + 1], to: None },
];

fn builder(cache_bytes: usize) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    // Page size (4 KiB = our checksummed block) and region size (4 GiB) are redb's own: it lets nobody change them.
    builder
}

/// Whether a record lives in the second table.
fn in_data(key: &[u8]) -> bool {
    key.first() == Some(&key::DATA)
}

fn write_mark(transaction: &WriteTransaction, mark: Mark) -> Result<(), redb::Error> {
    let mut stored = Vec::new();
    record::seal(META_KEY, &encode_mark(mark), &mut stored);
    transaction.open_table(META)?.insert(META_KEY, stored.as_slice())?;
    Ok(())
}

fn encode_mark(mark: Mark) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mark.zxid.to_bits().to_le_bytes());
    bytes[8..].copy_from_slice(&mark.steps.to_le_bytes());
    bytes
}

fn decode_mark(bytes: &[u8]) -> Option<Mark> {
    let (zxid, steps) = bytes.split_at_checked(8)?;
    Some(Mark {
        zxid: Zxid::from_bits(u64::from_le_bytes(zxid.try_into().ok()?))?,
        steps: u64::from_le_bytes(steps.try_into().ok()?),
    })
}

/// What redb's error means, once the backend's own first word on it is heard: redb only repeats that something failed.
pub(super) fn classify(backend: &Backend, error: redb::Error) -> BaseError {
    if let Some(fault) = backend.fault() {
        return fault;
    }
    match error {
        redb::Error::Io(error) => BaseError::from_io(&error),
        redb::Error::Corrupted(what) => BaseError::Damaged(what),
        error => BaseError::Io(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_mark() {
        let mark = Mark { zxid: Zxid::from_bits(0x0102_0304_0506_0708).unwrap(), steps: 9 };
        let bytes = encode_mark(mark);
        assert_eq!(&bytes, b"\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\0\0\0\0");
        assert_eq!(decode_mark(&bytes), Some(mark));
        assert_eq!(decode_mark(&bytes[..15]), None);
    }
}
