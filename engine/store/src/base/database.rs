//! How redb is used: every setting and every table.

use super::{BaseError, backend::Backend, redb_panic::ours, run::DELETED, side::BLOCK};
use crate::image::record;
use redb::{
    Builder, Database, Range, ReadOnlyTable, ReadableDatabase, StorageError, TableDefinition, WriteTransaction,
};
use std::ops::Bound;
use zoolet_machine::record::key::{self, Key};
use zoolet_model::Zxid;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;
type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;
pub(super) type Entries = Range<'static, &'static [u8], &'static [u8]>;

/// Every record except those with tag `d`.
const RECORDS: Definition = TableDefinition::new("records");
/// Records with tag `d`: large data. In its own table, so that the birth of a child does not
/// rewrite its parent's megabyte.
const DATA: Definition = TableDefinition::new("data");
/// One entry: the progress of merges.
const META: Definition = TableDefinition::new("meta");
const META_KEY: &[u8] = b"merged";
/// Approximate size of a new redb file, bytes.
const CREATION_BYTES: u64 = 4 << 20;

/// Approximate space that moving pages takes beyond the free pages, bytes.
const COMPACTION_BYTES: u64 = 256 << 10;

/// Memory that redb takes per page in memory, beside the page itself, bytes.
///
/// It covers the allocation and the page's place in a table. With 9,000 to 16,000 pages read, a
/// counting allocator found 120 to 123 bytes.
const PAGE_OVERHEAD_BYTES: usize = 128;
/// Memory of an open redb that has read nothing, bytes. Measured in the same way; 45 KiB more with
/// a file of 257 MiB.
const OPEN_BYTES: usize = 64 << 10;

/// Progress of merges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// redb holds nothing newer than this entry.
    pub(super) zxid: Zxid,
    /// Number of transactions so far.
    pub(super) steps: u64,
}

/// The changes of one transaction in key order, in one buffer.
#[derive(Default)]
pub(super) struct Step {
    bytes: Vec<u8>,
    /// End of the key and end of the stored value of each change. An empty value is a deletion.
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

    /// Removes the later half and returns its first key.
    pub(super) fn halve(&mut self) -> Key {
        let kept = self.len() / 2;
        let start = self.start(kept);
        let first = self.ends.get(kept).map_or(Key::default(), |(key_end, _)| self.bytes[start..*key_end].into());
        self.ends.truncate(kept);
        self.bytes.truncate(start);
        first
    }

    /// Returns an upper bound on the bytes that writing the step takes.
    ///
    /// Each change counts for a leaf page and its value. Branches, allocator state and free lists
    /// come on top.
    pub(super) fn estimate_bytes(&self) -> u64 {
        let leaves = self.iter().map(|(key, stored)| {
            let bytes = key.len() + stored.len();
            // redb gives a value larger than a page a power of two of pages.
            BLOCK as u64 + if bytes > BLOCK / 2 { 2 * bytes as u64 } else { 0 }
        });
        let leaves: u64 = leaves.sum();
        leaves + leaves / 8 + 64 * BLOCK as u64
    }

    /// Returns the same bound for keys that all come after the stored ones.
    ///
    /// Appending fills pages completely. Only values larger than a page waste space.
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
/// Every call that lets redb read its file goes through [`Backend::guarded`].
pub(super) struct Opened {
    /// `Some` until dropped.
    database: Option<Database>,
    pub(super) backend: Backend,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.backend.shut();
        let database = self.database.take();
        // redb reads its file while it closes.
        let _ = self.backend.guarded(|| {
            drop(database);
            Ok::<(), BaseError>(())
        });
    }
}

/// A held state of redb.
pub(super) struct Snapshot {
    records: Table,
    data: Table,
    pub(super) mark: Mark,
    pub(super) backend: Backend,
}

impl Opened {
    /// Opens the backend's files. `cache_bytes` bounds redb's pages in memory, of which at most
    /// half are dirty.
    pub(super) fn open(backend: Backend, cache_bytes: usize) -> Result<Self, BaseError> {
        backend.check_length()?;
        let database = backend.guarded(|| {
            let opened = builder(cache_bytes).create_with_backend(backend.clone());
            opened.map_err(|error| classify(&backend, error.into()))
        })?;
        Ok(Self { database: Some(database), backend })
    }

    /// Lays out an empty database. It has no state before the first commit.
    pub(super) fn create(backend: Backend, cache_bytes: usize) -> Result<Self, BaseError> {
        backend.begin_writing(CREATION_BYTES)?;
        Self::open(backend, cache_bytes)
    }

    /// Returns bytes in memory: redb's pages, its overhead, and the checksums.
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
        snapshot.ok_or_else(|| BaseError::Damaged("redb's mark of the last merge is missing".into()))
    }

    /// Writes a step in one durable transaction. Returns the bytes of values that it removed or
    /// replaced.
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

    /// Appends records in key order, packing pages full.
    ///
    /// All keys must come after the stored ones. `fill` calls its argument with each key and its
    /// stored value. Use it only on a file that this process created. redb then reads only bytes
    /// that this process wrote, so the call is not guarded. A panic in `fill` does not mean that
    /// the file is damaged.
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

    /// Moves pages together and cuts off the free end of the file.
    ///
    /// Returns false if a snapshot is held. Commit afterwards: only then does an opening after a
    /// crash read little.
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
        // Two-phase commit: pages and checksums are durable before the header that leads to them is
        // written. Quick repair: every commit holds the state of the page allocator. So an opening
        // after a crash reads a few pages, not the whole file.
        transaction.set_two_phase_commit(true);
        transaction.set_quick_repair(true);
        body(&transaction)?;
        transaction.commit()?;
        self.backend.end_writing();
        Ok(())
    }
}

/// Why redb did not answer a question.
pub(super) enum Trouble {
    /// This question met the error.
    Own(BaseError),
    /// redb refuses to answer because an earlier question or step met an error.
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
    /// Calls `look` with the stored value of a key; `None` if there is no such key.
    pub(super) fn stored<R>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Trouble> {
        let table = if in_data(key) { &self.data } else { &self.records };
        self.backend.guarded(|| {
            let Some(stored) = table.get(key)? else { return Ok(None) };
            let stored = stored.value();
            Ok(Some(ours(|| look(stored))))
        })
    }

    /// Returns the entries of one stretch of keys, from `from` on.
    pub(super) fn entries(&self, stretch: &Stretch, from: Bound<&[u8]>) -> Result<Entries, Trouble> {
        let table = if stretch.in_data { &self.data } else { &self.records };
        let to = stretch.to.map_or(Bound::Unbounded, Bound::Excluded);
        self.backend.guarded(|| Ok(table.range::<&[u8]>((from, to))?))
    }

    /// Calls `show` with the next entry. Returns false if there are no more entries.
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

/// A range of keys that all live in one table.
#[derive(Debug)]
pub(super) struct Stretch {
    in_data: bool,
    pub(super) from: &'static [u8],
    pub(super) to: Option<&'static [u8]>,
}

/// Both tables as one sequence of keys. Keys of data lie together, between the keys of the other
/// records.
pub(super) static STRETCHES: [Stretch; 3] = [
    Stretch { in_data: false, from: b"", to: Some(&[key::DATA]) },
    Stretch { in_data: true, from: &[key::DATA], to: Some(&[key::DATA + 1]) },
    Stretch { in_data: false, from: &[key::DATA + 1], to: None },
];

fn builder(cache_bytes: usize) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    // redb does not let callers change the page size (4 KiB, one checksummed block) or the region
    // size (4 GiB).
    builder
}

/// Returns true if a record lives in the data table.
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

/// Returns the meaning of redb's error.
///
/// The fault that the backend noted first takes precedence, because redb only repeats that an
/// operation failed.
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
