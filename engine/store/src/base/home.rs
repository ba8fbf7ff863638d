//! The permanent store of znodes: redb, reopened after every error.
//!
//! redb answers nothing after an error, so it is reopened over the same files. Then every held
//! state gets a new snapshot. Merges since the old snapshot do not change the answers of a state
//! that holds the merged runs itself. If redb has merged newer runs, the held generation ends: its
//! reads fail.

use super::{
    BaseError,
    backend::{Backend, SPARE_BYTES},
    database::{Entries, Mark, Opened, STRETCHES, Snapshot, Step, Trouble},
    ledger::Ledger,
    names::{home_name, side_name},
    redb_panic,
    run::unseal,
    side::{BLOCK, Side},
};
use crate::disk::{Disk, DiskFile};
use crate::image::record;
use bytes::Bytes;
use std::{
    fmt, io,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use zoolet_model::Zxid;

/// Attempts per question. Each attempt after the first follows another caller's error and a
/// reopening.
const ATTEMPTS_MAX: usize = 8;

pub(super) struct Home {
    disk: Arc<dyn Disk>,
    id: u64,
    cache_bytes: usize,
    ledger: Arc<Ledger>,
    /// Opened once and kept open. On a disk that has become read-only they could not be opened
    /// again, but stay readable.
    files: OnceLock<Files>,
    /// Held by the thread that writes or reopens. `None` after reopening failed; the next question
    /// or step retries.
    opened: Mutex<Option<Opened>>,
    pins: Mutex<Vec<Weak<Pin>>>,
    /// Bytes written plus bytes of values removed since redb was last compacted.
    loose_bytes: AtomicU64,
    /// Length of redb's file when last measured, bytes.
    bytes: AtomicU64,
    /// Bytes of that file with checksums in memory.
    checksummed_bytes: AtomicU64,
    /// Bytes in memory when last measured.
    memory_bytes: AtomicU64,
    is_garbage: AtomicBool,
}

/// redb's file and the side file with its checksums.
struct Files {
    base: Arc<dyn DiskFile>,
    side: Arc<dyn DiskFile>,
}

impl Drop for Home {
    fn drop(&mut self) {
        if *self.is_garbage.get_mut() {
            // redb may write to its file while it closes.
            *self.opened.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
            let _ = self.disk.remove(&home_name(self.id));
            let _ = self.disk.remove(&side_name(self.id));
        }
    }
}

impl Home {
    pub(super) fn new(disk: &Arc<dyn Disk>, id: u64, cache_bytes: usize, ledger: &Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self {
            disk: disk.clone(),
            id,
            cache_bytes,
            ledger: ledger.clone(),
            files: OnceLock::new(),
            opened: Mutex::default(),
            pins: Mutex::default(),
            loose_bytes: AtomicU64::new(u64::MAX / 2),
            bytes: AtomicU64::new(0),
            checksummed_bytes: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            is_garbage: AtomicBool::new(false),
        })
    }

    /// Creates the files and lets `fill` fill them.
    pub(super) fn create<T, E: From<BaseError>>(&self, fill: impl FnOnce(&Opened) -> Result<T, E>) -> Result<T, E> {
        let opened = self.create_files().and_then(|backend| Opened::create(backend, self.cache_bytes))?;
        let filled = fill(&opened)?;
        self.put(&mut self.opened(), opened);
        Ok(filled)
    }

    fn create_files(&self) -> Result<Backend, BaseError> {
        let (base, side) = (self.disk.create(&home_name(self.id))?, self.disk.create(&side_name(self.id))?);
        let Files { base, side } = self.files.get_or_init(|| Files { base, side });
        let side = Side::create(side.clone(), self.id, self.ledger.clone());
        Ok(Backend::new(self.disk.clone(), base.clone(), side, self.ledger.clone()))
    }

    fn files(&self) -> Result<&Files, BaseError> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        redb_panic::look_for_note(&*self.disk, self.id)?;
        let open = |name: String| self.disk.open(&name).map_err(|error| missing_is_damage(error).of(&name));
        let (base, side) = (open(home_name(self.id))?, open(side_name(self.id))?);
        Ok(self.files.get_or_init(|| Files { base, side }))
    }

    fn open_files(&self) -> Result<Opened, BaseError> {
        let (home_name, side_name) = (home_name(self.id), side_name(self.id));
        let Files { base, side } = self.files()?;
        let bytes = base.len()?;
        if bytes < BLOCK as u64 {
            // redb would treat the empty file as a new database.
            return Err(BaseError::Damaged(format!("{home_name} is empty")));
        }
        if !self.ledger.sync_failed() {
            // A process that crashed may have left the header in the page cache only. If a sync of it
            // failed, the page cache may show it forever without it being on the device. So it is synced
            // and read back from the device.
            self.ledger.sync(&**side)?;
            side.forget_cached()?;
        }
        let side = Side::open(side.clone(), self.id, self.ledger.clone()).map_err(|error| error.of(&side_name))?;
        side.truncate(bytes.div_ceil(BLOCK as u64));
        let backend = Backend::new(self.disk.clone(), base.clone(), side, self.ledger.clone());
        Opened::open(backend, self.cache_bytes).map_err(|error| error.of(&home_name))
    }

    fn opened(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, place: &mut Option<Opened>, opened: Opened) {
        *place = Some(opened);
        self.look_at_sizes(place.as_ref());
    }

    /// Lets the files be removed once they are closed; they are never opened again.
    pub(super) fn set_garbage(&self) {
        self.is_garbage.store(true, Ordering::Release);
    }

    /// Measures the length of the file and its memory.
    fn look_at_sizes(&self, opened: Option<&Opened>) {
        if let Some(opened) = opened {
            self.bytes.store(opened.backend.file_bytes().unwrap_or(0), Ordering::Relaxed);
            self.checksummed_bytes.store(opened.backend.checksummed_bytes(), Ordering::Relaxed);
        }
        self.memory_bytes.store(opened.map_or(0, Opened::memory_bytes) as u64, Ordering::Relaxed);
    }

    /// Returns the open redb, reopening it if necessary.
    fn whole<'a>(&self, opened: &'a mut Option<Opened>) -> Result<&'a mut Opened, BaseError> {
        if opened.as_ref().is_none_or(|opened| opened.backend.fault().is_some()) {
            if opened.take().is_some() {
                self.ledger.reopenings.add(1);
            }
            self.put(opened, self.open_files()?);
        }
        opened.as_mut().ok_or_else(|| BaseError::Io("redb is closed".into()))
    }

    /// Holds redb's current state for the base's state at `zxid`.
    pub(super) fn pin(self: &Arc<Self>, zxid: Zxid) -> Result<Arc<Pin>, BaseError> {
        let snapshot = self.whole(&mut self.opened())?.snapshot()?;
        Ok(self.pin_with(zxid, Some(Arc::new(snapshot))))
    }

    /// Returns a pin that holds no snapshot. It takes one when first asked.
    pub(super) fn unpinned(self: &Arc<Self>) -> Arc<Pin> {
        self.pin_with(Zxid::ZERO, None)
    }

    fn pin_with(self: &Arc<Self>, zxid: Zxid, snapshot: Option<Arc<Snapshot>>) -> Arc<Pin> {
        let mark = snapshot.as_ref().map(|snapshot| snapshot.mark);
        let pin = Arc::new(Pin { home: self.clone(), zxid, mark, snapshot: RwLock::new(snapshot) });
        let mut pins = self.pins();
        pins.retain(|pin| pin.strong_count() > 0);
        pins.push(Arc::downgrade(&pin));
        pin
    }

    fn pins(&self) -> MutexGuard<'_, Vec<Weak<Pin>>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a step in one durable transaction. Its runs hold nothing newer than `zxid`.
    pub(super) fn write(&self, step: &Step, zxid: Zxid) -> Result<(), BaseError> {
        let mut opened = self.opened();
        // A smaller step than the failed one may need less space.
        let missing = self.ledger.missing_bytes().min(step.estimate_bytes() + SPARE_BYTES);
        if missing > 0 && self.disk.free_bytes()? < missing {
            return Err(BaseError::NoSpace);
        }
        let before = self.ledger.bytes_written.now();
        let database = self.whole(&mut opened)?;
        // The count continues from redb's own mark, not from a held state. A step that became
        // durable without being reported has used its number.
        let mark = Mark { zxid, steps: database.snapshot()?.mark.steps + 1 };
        let outcome = database.commit(step, mark);
        let freed = *outcome.as_ref().unwrap_or(&0);
        self.loose_bytes.fetch_add(self.ledger.bytes_written.now() - before + freed, Ordering::Relaxed);
        let outcome = outcome.map(drop).or_else(|error| {
            // If only the second copy of the header could not be written, the step is durable all
            // the same. If reopening fails too, the next question retries it.
            let is_durable = |opened: &mut Opened| opened.snapshot().is_ok_and(|snapshot| snapshot.mark == mark);
            let done = self.reopen(&mut opened).is_ok_and(is_durable);
            if done && !self.ledger.sync_failed() { Ok(()) } else { Err(error) }
        });
        if outcome.is_ok() {
            self.ledger.set_missing_bytes(0);
        }
        self.look_at_sizes(opened.as_ref());
        outcome
    }

    /// Appends records in one durable transaction. All keys must come after redb's keys.
    ///
    /// After an error redb may hold the records or not.
    pub(super) fn append(&self, step: &Step, zxid: Zxid) -> Result<(), BaseError> {
        let mut opened = self.opened();
        let before = self.ledger.bytes_written.now();
        let database = self.whole(&mut opened)?;
        let mark = Mark { zxid, steps: database.snapshot()?.mark.steps + 1 };
        let outcome = database
            .load(step.appended_bytes(), mark, |insert| step.iter().try_for_each(|(key, stored)| insert(key, stored)));
        self.loose_bytes.fetch_add(self.ledger.bytes_written.now() - before, Ordering::Relaxed);
        self.look_at_sizes(opened.as_ref());
        outcome
    }

    fn reopen<'a>(&self, opened: &'a mut Option<Opened>) -> Result<&'a mut Opened, BaseError> {
        *opened = None;
        self.ledger.reopenings.add(1);
        self.whole(opened)
    }

    /// Gives free space in redb's file back to the file system.
    ///
    /// Does nothing in two cases:
    ///
    /// - A held state is older than redb's. Without its snapshot redb could no longer answer for
    ///   it.
    /// - Too little may be free. The threshold is `missing_bytes`, but at least 1/1024 and at most
    ///   1/32 of the file; without `missing_bytes` it is 1/32. Freeing less is not worth reading
    ///   all of redb.
    pub(super) fn compact(&self, missing_bytes: Option<u64>) -> Result<(), BaseError> {
        // The file's length includes holes, which are at most about as large as its content.
        let much = self.bytes() / 32;
        let enough = missing_bytes.map_or(much, |missing| missing.clamp(much / 32, much));
        if self.loose_bytes.load(Ordering::Relaxed) < enough {
            return Ok(());
        }
        let mut opened = self.opened();
        let mark = self.whole(&mut opened)?.snapshot()?.mark;
        let pins: Vec<_> = self.pins().iter().filter_map(Weak::upgrade).collect();
        if pins.iter().any(|pin| pin.zxid < mark.zxid && pin.snapshot().is_some()) {
            return Ok(());
        }
        pins.iter().for_each(|pin| pin.put(None));
        let outcome = self.compact_unheld(&mut opened, mark);
        if outcome.is_err() {
            let _ = self.reopen(&mut opened);
        }
        // Every pin that held the current state holds it again. Without a snapshot, a pin takes one
        // when it is next asked.
        let snapshot = self.whole(&mut opened).and_then(|opened| opened.snapshot()).ok().map(Arc::new);
        pins.iter().filter(|pin| pin.zxid >= mark.zxid).for_each(|pin| pin.put(snapshot.clone()));
        self.look_at_sizes(opened.as_ref());
        outcome
    }

    fn compact_unheld(&self, opened: &mut Option<Opened>, mark: Mark) -> Result<(), BaseError> {
        let opened = self.whole(opened)?;
        if opened.compact()? {
            self.loose_bytes.store(0, Ordering::Relaxed);
            opened.commit(&Step::default(), Mark { steps: mark.steps + 1, ..mark })?;
        }
        Ok(())
    }

    /// Returns bytes in memory. During a write it returns the last value, because the caller should
    /// not wait for the writer.
    pub(super) fn memory_bytes(&self) -> u64 {
        if let Ok(opened) = self.opened.try_lock() {
            self.memory_bytes.store(opened.as_ref().map_or(0, Opened::memory_bytes) as u64, Ordering::Relaxed);
        }
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of redb's file up to its highest block with a checksum in memory.
    ///
    /// This is the highest block written since the file was last cut there.
    pub(super) fn checksummed_bytes(&self) -> u64 {
        self.checksummed_bytes.load(Ordering::Relaxed)
    }

    /// Returns the length of redb's file, bytes. The file has holes, so it takes less space on the
    /// disk.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A held state of redb for one state of the base.
///
/// When redb is reopened, another snapshot takes the place of the held one.
pub(super) struct Pin {
    home: Arc<Home>,
    /// Last entry of the base's state. The state's runs also hold everything that was merged into
    /// redb up to here.
    zxid: Zxid,
    mark: Option<Mark>,
    snapshot: RwLock<Option<Arc<Snapshot>>>,
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin").field("zxid", &self.zxid).finish_non_exhaustive()
    }
}

impl Pin {
    /// Returns a pin of the same redb state for a later state of the base.
    pub(super) fn at(&self, zxid: Zxid) -> Arc<Self> {
        self.home.pin_with(zxid, self.snapshot())
    }

    /// Returns a lower bound on the number of redb's transactions.
    pub(super) fn steps(&self) -> u64 {
        self.snapshot().map(|snapshot| snapshot.mark).or(self.mark).map_or(0, |mark| mark.steps)
    }

    pub(super) fn mark(&self) -> Result<Mark, BaseError> {
        self.ask(|snapshot| Ok(snapshot.mark))
    }

    pub(super) fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        self.ask(|snapshot| {
            let found = snapshot.stored(key, |stored| Ok(record::shared(unseal(key, stored)?)))?;
            found.transpose().map_err(Trouble::Own)
        })
    }

    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put(&self, snapshot: Option<Arc<Snapshot>>) {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    /// Asks redb a question.
    ///
    /// redb answers nothing after an error of any caller. Then it is reopened and the question is
    /// asked again.
    fn ask<T>(&self, mut question: impl FnMut(&Snapshot) -> Result<T, Trouble>) -> Result<T, BaseError> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(snapshot) = self.snapshot() {
                match question(&snapshot) {
                    Ok(answer) => return Ok(answer),
                    Err(Trouble::Own(failure)) if !snapshot.backend.is_shut() => {
                        if snapshot.backend.fault().is_some() {
                            // Reopens redb for later callers. If this fails, the next question
                            // reports it.
                            let _ = self.mend();
                        }
                        return Err(failure);
                    }
                    Err(Trouble::Own(_) | Trouble::Latched) => {}
                }
            }
            self.mend()?;
        }
        Err(BaseError::Io("redb keeps failing".into()))
    }

    fn mend(&self) -> Result<(), BaseError> {
        let snapshot = self.home.whole(&mut self.home.opened())?.snapshot()?;
        if snapshot.mark.zxid > self.zxid {
            return Err(BaseError::Io("this generation ended when redb was opened again".into()));
        }
        self.put(Some(Arc::new(snapshot)));
        Ok(())
    }
}

/// Walks redb's records in key order.
pub(super) struct HomeCursor {
    pin: Arc<Pin>,
    stretch: usize,
    /// `None` before the first record of a stretch, and after an error.
    entries: Option<Entries>,
    /// Key and stored value of the current record; `None` at the end.
    at: Option<(Vec<u8>, Vec<u8>)>,
}

impl HomeCursor {
    /// Returns a cursor at the first record at or after `key`.
    pub(super) fn seek(pin: Arc<Pin>, key: &[u8]) -> Result<Self, BaseError> {
        let stretch = STRETCHES.iter().position(|stretch| stretch.to.is_none_or(|to| key < to)).unwrap_or(0);
        let mut cursor = Self { pin, stretch, entries: None, at: Some((key.to_vec(), Vec::new())) };
        cursor.step(Bound::Included(key))?;
        Ok(cursor)
    }

    pub(super) fn key(&self) -> Option<&[u8]> {
        self.at.as_ref().map(|(key, _)| &**key)
    }

    pub(super) fn stored(&self) -> &[u8] {
        self.at.as_ref().map_or(&[], |(_, stored)| stored)
    }

    pub(super) fn advance(&mut self) -> Result<(), BaseError> {
        match self.at.as_ref().map(|(key, _)| key.clone()) {
            Some(key) => self.step(Bound::Excluded(&key)),
            None => Ok(()),
        }
    }

    /// Moves to the next record. If redb must be asked anew, the search begins at `from`.
    fn step(&mut self, from: Bound<&[u8]>) -> Result<(), BaseError> {
        let Self { pin, stretch, entries, at } = self;
        let first = *stretch;
        let outcome = pin.clone().ask(|snapshot| {
            while let Some(now) = STRETCHES.get(*stretch) {
                let mut going = match entries.take() {
                    Some(going) => going,
                    None => snapshot.entries(now, if *stretch == first { from } else { Bound::Included(now.from) })?,
                };
                let is_there = snapshot.show_next(&mut going, |key, stored| {
                    let (to_key, to_stored) = at.get_or_insert_default();
                    to_key.clear();
                    to_key.extend_from_slice(key);
                    to_stored.clear();
                    to_stored.extend_from_slice(stored);
                })?;
                if is_there {
                    *entries = Some(going);
                    return Ok(());
                }
                *stretch += 1;
            }
            *at = None;
            Ok(())
        });
        if outcome.is_err() {
            self.entries = None;
        }
        outcome
    }
}

/// An incomplete base is never opened, so a missing file was lost.
fn missing_is_damage(error: io::Error) -> BaseError {
    if error.kind() == io::ErrorKind::NotFound {
        BaseError::Damaged("the file is missing".into())
    } else {
        error.into()
    }
}
