//! Where znodes live for good: redb, opened again whenever an error has latched it.
//!
//! redb answers nothing after an error, so it is opened anew, over the same files. Whoever holds a state gets another snapshot then: what redb has got
//! since of runs that he holds himself changes no answer of his. Only when it has got newer ones than he knows of, his generation ends.

use super::{
    BaseError,
    backend::{Backend, SPARE_BYTES},
    database::{Entries, Mark, Opened, STRETCHES, Snapshot, Step, Trouble},
    ledger::Ledger,
    record,
    run::unseal,
    senseless,
    side::{BLOCK, Side},
};
use crate::store::disk::{Disk, DiskFile};
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

/// Attempts at one question; each but the first follows somebody else's error, mended.
const ATTEMPTS_MAX: usize = 8;

pub(super) struct Home {
    disk: Arc<dyn Disk>,
    id: u64,
    cache_bytes: usize,
    ledger: Arc<Ledger>,
    /// Open for good: a disk that has become read-only lets nobody open them again, and is read on.
    files: OnceLock<Files>,
    /// Held by whoever writes or opens again. `None`: opening again failed; the next question or step tries once more.
    opened: Mutex<Option<Opened>>,
    pins: Mutex<Vec<Weak<Pin>>>,
    /// Bytes written and bytes of values taken out since redb was last compacted.
    loose_bytes: AtomicU64,
    /// Bytes of the file, as last seen.
    bytes: AtomicU64,
    /// Those of them that have checksums in memory.
    checksummed_bytes: AtomicU64,
    /// Bytes in memory, as last seen.
    memory_bytes: AtomicU64,
    is_garbage: AtomicBool,
}

/// redb's file, and the one with its checksums.
struct Files {
    base: Arc<dyn DiskFile>,
    side: Arc<dyn DiskFile>,
}

impl Drop for Home {
    fn drop(&mut self) {
        if *self.is_garbage.get_mut() {
            // redb may say good-bye to its file when it is closed.
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

    /// Makes the files and fills them.
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
        senseless::look_for_note(&*self.disk, self.id)?;
        let open = |name: String| self.disk.open(&name).map_err(|error| missing_is_damage(error).of(&name));
        let (base, side) = (open(home_name(self.id))?, open(side_name(self.id))?);
        Ok(self.files.get_or_init(|| Files { base, side }))
    }

    fn open_files(&self) -> Result<Opened, BaseError> {
        let (home_name, side_name) = (home_name(self.id), side_name(self.id));
        let Files { base, side } = self.files()?;
        let bytes = base.len()?;
        if bytes < BLOCK as u64 {
            // redb would take it for a new one.
            return Err(BaseError::Damaged(format!("{home_name} is empty")));
        }
        let side = Side::open(side.clone(), self.id, self.ledger.clone()).map_err(|error| error.of(&side_name))?;
        if !self.ledger.sync_failed() {
            side.sync()?;
        }
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

    /// Nobody will open it again once it is closed.
    pub(super) fn set_garbage(&self) {
        self.is_garbage.store(true, Ordering::Release);
    }

    /// How large its file is, and what it takes in memory, now.
    fn look_at_sizes(&self, opened: Option<&Opened>) {
        if let Some(opened) = opened {
            self.bytes.store(opened.backend.file_bytes().unwrap_or(0), Ordering::Relaxed);
            self.checksummed_bytes.store(opened.backend.checksummed_bytes(), Ordering::Relaxed);
        }
        self.memory_bytes.store(opened.map_or(0, Opened::memory_bytes) as u64, Ordering::Relaxed);
    }

    /// redb as it is open, opened again where it has to be.
    fn whole<'a>(&self, opened: &'a mut Option<Opened>) -> Result<&'a mut Opened, BaseError> {
        if opened.as_ref().is_none_or(|opened| opened.backend.fault().is_some()) {
            if opened.take().is_some() {
                self.ledger.reopenings.add(1);
            }
            self.put(opened, self.open_files()?);
        }
        opened.as_mut().ok_or_else(|| BaseError::Io("redb is closed".into()))
    }

    /// Holds redb's state for the base's state at `zxid`.
    pub(super) fn pin(self: &Arc<Self>, zxid: Zxid) -> Result<Arc<Pin>, BaseError> {
        let snapshot = self.whole(&mut self.opened())?.snapshot()?;
        Ok(self.pin_with(zxid, Some(Arc::new(snapshot))))
    }

    /// Holds nothing; asks for it when it must.
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

    /// One durable transaction, of runs in which nothing is newer than `zxid`.
    pub(super) fn write(&self, step: &Step, zxid: Zxid) -> Result<(), BaseError> {
        let mut opened = self.opened();
        // A smaller step than the one that failed may do with less.
        let missing = self.ledger.missing_bytes().min(step.estimate_bytes() + SPARE_BYTES);
        if missing > 0 && self.disk.free_bytes()? < missing {
            return Err(BaseError::NoSpace);
        }
        let before = self.ledger.bytes_written.now();
        let database = self.whole(&mut opened)?;
        // Counted from what redb has, not from what anybody holds: a step of which nobody heard that it is durable has had its number.
        let mark = Mark { zxid, steps: database.snapshot()?.mark.steps + 1 };
        let outcome = database.commit(step, mark);
        let freed = *outcome.as_ref().unwrap_or(&0);
        self.loose_bytes.fetch_add(self.ledger.bytes_written.now() - before + freed, Ordering::Relaxed);
        let outcome = outcome.map(drop).or_else(|error| {
            // When only the second copy of the header could not be written, the step is durable all the same. When opening fails
            // too, whoever asks next tries again.
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

    /// One durable transaction, of records whose keys come after all that redb has. After an error it may have them or not.
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

    /// Gives space back to the file system, if there may be some to give and nobody holds a state that redb could not answer for
    /// afterwards. Who lacks fewer than a thirty-second of the file says how many: less is worth the work then, but not next to nothing, for all
    /// of redb is read.
    pub(super) fn compact(&self, missing_bytes: Option<u64>) -> Result<(), BaseError> {
        // Its file has holes, at most about as large as what it holds.
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
        // Who held a state before holds it again. Where that fails he asks for it himself.
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

    /// Bytes in memory. While somebody writes, as they were before: nobody should wait for him just to know this.
    pub(super) fn memory_bytes(&self) -> u64 {
        if let Ok(opened) = self.opened.try_lock() {
            self.memory_bytes.store(opened.as_ref().map_or(0, Opened::memory_bytes) as u64, Ordering::Relaxed);
        }
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of redb's file up to the highest block that ever was written, since it was last cut there: each block has a checksum in memory.
    pub(super) fn checksummed_bytes(&self) -> u64 {
        self.checksummed_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of redb's file; it has holes, so what it takes on the disk is less.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A state of redb that is held, for a state of the base. redb opened again, another snapshot comes in its place.
pub(super) struct Pin {
    home: Arc<Home>,
    /// Of the base's state: what redb has got up to here is in its runs too.
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
    /// The same state of redb for a later state of the base.
    pub(super) fn at(&self, zxid: Zxid) -> Arc<Self> {
        self.home.pin_with(zxid, self.snapshot())
    }

    /// How far merges had come at least.
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

    /// redb answers nothing more after an error, whoever met it: then it is opened again and the question asked again.
    fn ask<T>(&self, mut question: impl FnMut(&Snapshot) -> Result<T, Trouble>) -> Result<T, BaseError> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(snapshot) = self.snapshot() {
                match question(&snapshot) {
                    Ok(answer) => return Ok(answer),
                    Err(Trouble::Own(failure)) if !snapshot.backend.is_shut() => {
                        if snapshot.backend.fault().is_some() {
                            // For everybody else; if it does not work, the next question says so.
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
    /// What it stands on; `None` at the end.
    at: Option<(Vec<u8>, Vec<u8>)>,
}

impl HomeCursor {
    /// Stands on the first record from `key` on.
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

    /// Goes to the next record; `from` is where it begins when redb must be asked anew.
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

/// Nobody opens a base that was not completed, so a file that is gone was lost.
fn missing_is_damage(error: io::Error) -> BaseError {
    if error.kind() == io::ErrorKind::NotFound { BaseError::Damaged("it is gone".into()) } else { error.into() }
}

pub(super) fn home_name(id: u64) -> String {
    format!("base-{id}.redb")
}

pub(super) fn side_name(id: u64) -> String {
    format!("base-{id}.crc")
}
