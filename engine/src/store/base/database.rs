//! How we use redb: every setting, every table, one place.

use super::{BaseError, backend::Backend, record, side::BLOCK};
use crate::{
    action::{Changes, CheckpointMeta},
    store::key,
};
use bytes::Bytes;
use redb::{Builder, Database, ReadOnlyTable, ReadableDatabase, TableDefinition, WriteTransaction};
use std::{ops::Bound, sync::Arc};
use zoolet_model::Zxid;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;
pub(super) type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Every record but those of tag `d`.
const RECORDS: Definition = TableDefinition::new("records");
/// Tag `d`: large data, in a table of its own so that the birth of a child does not rewrite its parent's megabyte.
const DATA: Definition = TableDefinition::new("data");
/// One entry: which state this is.
const META: Definition = TableDefinition::new("meta");
const META_KEY: &[u8] = b"checkpoint";
/// What redb begins with, about.
const CREATION_BYTES: u64 = 4 << 20;
/// zxid and digest; the rest is the totals.
const META_FIXED: usize = 8 + 16;

/// One opening: redb over one [`Backend`]. Dropping it writes nothing.
pub(super) struct Opened {
    database: Database,
    pub(super) backend: Backend,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.backend.shut();
    }
}

/// One state of the base, held.
pub(super) struct Snapshot {
    pub(super) records: Table,
    pub(super) data: Table,
    pub(super) backend: Backend,
}

impl Opened {
    /// Opens what the backend holds; `cache_bytes` bounds redb's pages in memory, of which at most half are dirty ones.
    pub(super) fn open(backend: Backend, cache_bytes: usize) -> Result<Arc<Self>, BaseError> {
        let database = builder(cache_bytes).create_with_backend(backend.clone()).map_err(redb::Error::from);
        Ok(Arc::new(Self { database: database.map_err(|error| classify(&backend, error))?, backend }))
    }

    /// Lays out an empty database; it has no state before the first commit.
    pub(super) fn create(backend: Backend, cache_bytes: usize) -> Result<Arc<Self>, BaseError> {
        backend.begin_writing(CREATION_BYTES)?;
        Self::open(backend, cache_bytes)
    }

    /// Which state this is.
    pub(super) fn meta(&self) -> Result<CheckpointMeta, BaseError> {
        let read = || -> Result<Option<CheckpointMeta>, redb::Error> {
            let table = self.database.begin_read()?.open_table(META)?;
            let stored = table.get(META_KEY)?;
            Ok(stored.and_then(|stored| decode_meta(record::unseal(META_KEY, stored.value())?)))
        };
        let meta = read().map_err(|error| classify(&self.backend, error))?;
        meta.ok_or_else(|| BaseError::Damaged("the base does not say which state it is".into()))
    }

    /// Holds the current state.
    pub(super) fn snapshot(&self) -> Result<Snapshot, BaseError> {
        let read = || -> Result<Snapshot, redb::Error> {
            let transaction = self.database.begin_read()?;
            let (records, data) = (transaction.open_table(RECORDS)?, transaction.open_table(DATA)?);
            Ok(Snapshot { records, data, backend: self.backend.clone() })
        };
        read().map_err(|error| classify(&self.backend, error))
    }

    /// Writes changes and meta in one durable transaction.
    pub(super) fn commit(&self, changes: &Changes, meta: &CheckpointMeta) -> Result<(), BaseError> {
        let written = self.transact(estimate_bytes(changes), |transaction| {
            let mut records = transaction.open_table(RECORDS)?;
            let mut data = transaction.open_table(DATA)?;
            let mut stored = Vec::new();
            for (key, value) in changes {
                let table = if in_data(key) { &mut data } else { &mut records };
                match value {
                    Some(value) => {
                        stored.clear();
                        record::seal(key, value, &mut stored);
                        table.insert(&**key, stored.as_slice())?;
                    }
                    None => {
                        table.remove(&**key)?;
                    }
                }
            }
            drop((records, data));
            write_meta(transaction, meta)
        });
        written.map_err(|error| classify(&self.backend, error))
    }

    /// Fills an empty base from records in key order, packing pages full: `fill` calls its argument with each key and its stored
    /// value.
    pub(super) fn load<E: From<BaseError>>(
        &self,
        estimate: u64,
        meta: &CheckpointMeta,
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
            write_meta(transaction, meta)
        });
        outcome?;
        written.map_err(|error| classify(&self.backend, error).into())
    }

    fn transact(
        &self,
        estimate: u64,
        body: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        self.backend.begin_writing(estimate)?;
        let mut transaction = self.database.begin_write()?;
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

fn builder(cache_bytes: usize) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    // Page size (4 KiB = our checksummed block) and region size (4 GiB) are redb's own: it lets nobody change them.
    builder
}

/// Whether a record lives in the second table.
pub(super) fn in_data(key: &[u8]) -> bool {
    key.first() == Some(&key::DATA)
}

/// What a checkpoint writes at most: each change its own leaf, and its value; then branches, allocator state and free lists.
fn estimate_bytes(changes: &Changes) -> u64 {
    let leaves = changes.iter().map(|(key, value)| {
        let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
        // redb gives a value beyond a page a power of two of pages.
        BLOCK as u64 + if bytes > BLOCK / 2 { 2 * bytes as u64 } else { 0 }
    });
    let leaves: u64 = leaves.sum();
    leaves + leaves / 8 + 64 * BLOCK as u64
}

fn write_meta(transaction: &WriteTransaction, meta: &CheckpointMeta) -> Result<(), redb::Error> {
    let mut stored = Vec::new();
    record::seal(META_KEY, &encode_meta(meta), &mut stored);
    transaction.open_table(META)?.insert(META_KEY, stored.as_slice())?;
    Ok(())
}

fn encode_meta(meta: &CheckpointMeta) -> Vec<u8> {
    [&meta.zxid.to_bits().to_le_bytes()[..], &meta.digest.to_le_bytes(), &meta.totals].concat()
}

fn decode_meta(bytes: &[u8]) -> Option<CheckpointMeta> {
    let (fixed, totals) = bytes.split_at_checked(META_FIXED)?;
    let (zxid, digest) = fixed.split_at_checked(8)?;
    Some(CheckpointMeta {
        zxid: Zxid::from_bits(u64::from_le_bytes(zxid.try_into().ok()?))?,
        digest: u128::from_le_bytes(digest.try_into().ok()?),
        totals: Bytes::copy_from_slice(totals),
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
    fn golden_meta() {
        let meta = CheckpointMeta {
            zxid: Zxid::from_bits(0x0102_0304_0506_0708).unwrap(),
            digest: 0x11,
            totals: Bytes::from_static(b"totals"),
        };
        let bytes = encode_meta(&meta);
        assert_eq!(bytes, b"\x08\x07\x06\x05\x04\x03\x02\x01\x11\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0totals");
        assert_eq!(decode_meta(&bytes), Some(meta));
        assert_eq!(decode_meta(&bytes[..META_FIXED - 1]), None);
    }
}
