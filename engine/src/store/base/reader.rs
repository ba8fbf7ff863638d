//! Reading one state of the base, while the next one is being written.

use super::{
    BaseError, Core,
    database::{Snapshot, Table, in_data},
    record,
};
use crate::{
    action::{BaseRead, Generation},
    event::BaseFailure,
    store::key,
};
use bytes::Bytes;
use redb::StorageError;
use std::{
    fmt,
    ops::Bound,
    sync::{Arc, PoisonError, RwLock},
};

/// Attempts at one question; each but the first follows somebody else's error, mended.
const ATTEMPTS_MAX: usize = 8;

/// Reads one generation of the base until dropped, on any thread. Clones share the hold.
///
/// A held generation costs space: pages that later checkpoints replace are not used again while it is held.
#[derive(Clone)]
pub struct BaseReader {
    pub(super) core: Arc<Core>,
    pub(super) pin: Arc<Pin>,
}

impl fmt::Debug for BaseReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BaseReader").field("generation", &self.pin.generation).finish_non_exhaustive()
    }
}

/// A generation that is held. The base puts another snapshot of the same state there when it had to open its files again.
pub(super) struct Pin {
    pub(super) generation: Generation,
    snapshot: RwLock<Option<Arc<Snapshot>>>,
}

impl Pin {
    pub(super) fn new(generation: Generation, snapshot: Option<Arc<Snapshot>>) -> Self {
        Self { generation, snapshot: RwLock::new(snapshot) }
    }

    pub(super) fn next_generation(&self) -> Generation {
        Generation(self.generation.0 + 1)
    }

    pub(super) fn replace(&self, snapshot: Arc<Snapshot>) {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }

    pub(super) fn holds(&self) -> bool {
        self.snapshot().is_some()
    }

    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why an answer did not come.
enum Trouble {
    /// This question met it.
    Own(BaseFailure),
    /// redb refuses since somebody else's question or checkpoint met an error.
    Latched,
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::PreviousIo | StorageError::DatabaseClosed => Self::Latched,
            StorageError::Io(error) => Self::Own(BaseError::from_io(&error).into()),
            StorageError::Corrupted(what) => Self::Own(BaseFailure::Damaged(what)),
            error => Self::Own(BaseFailure::Io(error.to_string())),
        }
    }
}

impl BaseReader {
    /// The state it reads.
    pub fn generation(&self) -> Generation {
        self.pin.generation
    }

    /// Calls `visit` with every key and stored value from `from` up to, not including, `to`, in order, until it says false.
    pub(crate) fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), BaseFailure> {
        let mut visited = 0;
        self.ask(|snapshot| {
            // A second attempt reads the same state: what was visited already is passed over.
            let mut again = visited;
            snapshot.scan(from, to, &mut |key, stored| {
                if again > 0 {
                    again -= 1;
                    return true;
                }
                visited += 1;
                visit(key, stored)
            })
        })
    }

    /// redb answers nothing more after an error, whoever met it: then the base is opened again and the question asked again.
    fn ask<T>(&self, mut question: impl FnMut(&Snapshot) -> Result<T, Trouble>) -> Result<T, BaseFailure> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(snapshot) = self.pin.snapshot() {
                match question(&snapshot) {
                    Ok(answer) => return Ok(answer),
                    Err(Trouble::Own(failure)) if !snapshot.backend.is_shut() => {
                        if snapshot.backend.fault().is_some() {
                            // For everybody else; if it does not work, the next question says so.
                            let _ = self.core.mend(&self.pin);
                        }
                        return Err(failure);
                    }
                    Err(Trouble::Own(_) | Trouble::Latched) => {}
                }
            }
            self.core.mend(&self.pin)?;
        }
        Err(BaseFailure::Io("the base keeps failing".into()))
    }
}

impl BaseRead for BaseReader {
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        self.ask(|snapshot| snapshot.record(key))
    }

    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        self.scan(from, to, &mut |key, _| visit(key))
    }
}

impl Snapshot {
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, Trouble> {
        let table = if in_data(key) { &self.data } else { &self.records };
        let Some(stored) = table.get(key)? else { return Ok(None) };
        let value = record::unseal(key, stored.value()).ok_or_else(|| damaged_record(key))?;
        Ok(Some(record::shared(value)))
    }

    /// Both tables as one sequence of keys: the data's keys lie together, in the middle of the records'.
    fn scan(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Trouble> {
        const DATA: &[u8] = &[key::DATA];
        const AFTER_DATA: &[u8] = &[key::DATA + 1];
        let below = |end| Some(to.map_or(end, |to| to.min(end)));
        let _ = scan_table(&self.records, from, below(DATA), visit)?
            && scan_table(&self.data, from.max(DATA), below(AFTER_DATA), visit)?
            && scan_table(&self.records, from.max(AFTER_DATA), to, visit)?;
        Ok(())
    }
}

/// False when `visit` said so.
fn scan_table(
    table: &Table,
    from: &[u8],
    to: Option<&[u8]>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<bool, StorageError> {
    if to.is_some_and(|to| to <= from) {
        return Ok(true);
    }
    let to = to.map_or(Bound::Unbounded, Bound::Excluded);
    for entry in table.range::<&[u8]>((Bound::Included(from), to))? {
        let (key, stored) = entry?;
        if !visit(key.value(), stored.value()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn damaged_record(key: &[u8]) -> Trouble {
    Trouble::Own(BaseFailure::Damaged(format!("record {} does not match its checksum", key.escape_ascii())))
}
