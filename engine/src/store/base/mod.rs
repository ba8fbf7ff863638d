//! The base: applied state in redb, every block and record checksummed.
//!
//! One base is two files: `base-<id>.redb` with redb's pages and `base-<id>.crc`, the side file, with redb's header and a
//! checksum for every block. Which id is current the log says. Why a crash never looks like damage, and damage never like an
//! answer, stands at the top of `backend.rs`.

mod backend;
mod database;
mod install;
mod ledger;
mod reader;
pub(crate) mod record;
mod scrub;
mod side;

pub use ledger::Counters;
pub use reader::BaseReader;
pub use scrub::{Scrub, Scrubbed};

use crate::{
    action::{Changes, Checkpoint, CheckpointMeta, Generation},
    event::BaseFailure,
    store::disk::Disk,
};
use backend::Backend;
use bytes::Bytes;
use database::Opened;
use ledger::Ledger;
use reader::Pin;
use side::{BLOCK, Side};
use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use zoolet_model::Zxid;

/// Why the base could not be made, opened or brought forward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BaseError {
    /// The disk is full. What was served is served on, and the same checkpoint may be tried again.
    NoSpace,
    /// Stored bytes are not what was written: the base must be replaced.
    Damaged(String),
    /// The device said no. After a failed sync every later checkpoint says so too ([`Base::sync_failed`]).
    Io(String),
}

impl BaseError {
    fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            // A file shorter than its header says has lost its end.
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damaged(error.to_string()),
            _ => Self::Io(error.to_string()),
        }
    }
}

impl From<io::Error> for BaseError {
    fn from(error: io::Error) -> Self {
        Self::from_io(&error)
    }
}

impl fmt::Display for BaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("no space left for the base"),
            Self::Damaged(what) => write!(f, "the base is damaged: {what}"),
            Self::Io(what) => write!(f, "the base cannot be read or written: {what}"),
        }
    }
}

impl std::error::Error for BaseError {}

impl From<BaseError> for BaseFailure {
    fn from(error: BaseError) -> Self {
        match error {
            BaseError::Damaged(what) => Self::Damaged(what),
            BaseError::NoSpace | BaseError::Io(_) => Self::Io(error.to_string()),
        }
    }
}

/// The base, open. Clones share it; dropping the last one writes nothing.
#[derive(Clone)]
pub struct Base(Arc<Core>);

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live = self.0.live();
        f.debug_struct("Base").field("id", &self.0.files.id).field("zxid", &live.meta.zxid).finish_non_exhaustive()
    }
}

/// What [`Base`] and its readers share.
struct Core {
    files: Files,
    /// Held by whoever writes a checkpoint or opens the files again.
    writer: Mutex<()>,
    live: RwLock<Live>,
}

/// Where a base is, and how to open it.
struct Files {
    disk: Arc<dyn Disk>,
    id: u64,
    cache_bytes: usize,
    ledger: Arc<Ledger>,
}

struct Live {
    /// `None`: opening the files again failed; the next question or checkpoint tries once more.
    opened: Option<Arc<Opened>>,
    meta: CheckpointMeta,
    /// What readers of the current generation share.
    pin: Arc<Pin>,
}

impl Base {
    /// Makes an empty base: zxid 0, digest 0, no records. Complete and durable when it returns.
    ///
    /// # Errors
    /// As [`BaseError`] says; files of this id, also those that a crash in here left, must be removed first.
    pub fn create(disk: Arc<dyn Disk>, id: u64, cache_bytes: usize) -> Result<Self, BaseError> {
        let empty = CheckpointMeta { zxid: Zxid::ZERO, digest: 0, totals: Bytes::new() };
        Self::create_with(disk, id, cache_bytes, |opened| opened.commit(&Changes::default(), &empty))
    }

    /// Opens a base that [`Base::create`] or [`Base::install`] completed. Reads a few blocks, however large the base and however
    /// the last process ended.
    ///
    /// # Errors
    /// As [`BaseError`] says.
    pub fn open(disk: Arc<dyn Disk>, id: u64, cache_bytes: usize) -> Result<Self, BaseError> {
        let files = Files { disk, id, cache_bytes, ledger: Arc::default() };
        let opened = files.open()?;
        Self::start(files, opened)
    }

    /// Removes the files of a base that nobody has open; those that are missing do not matter.
    ///
    /// # Errors
    /// As [`BaseError`] says.
    pub fn remove(disk: &dyn Disk, id: u64) -> Result<(), BaseError> {
        for name in [base_name(id), side_name(id)] {
            match disk.remove(&name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(disk.sync_directory()?)
    }

    /// The ids of all bases on a disk, whole or not, ascending.
    ///
    /// # Errors
    /// As [`BaseError`] says.
    pub fn list(disk: &dyn Disk) -> Result<Vec<u64>, BaseError> {
        let mut ids: Vec<u64> = disk.list()?.iter().filter_map(|name| id_of(name)).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Makes the checkpoint's changes and its meta true in one durable transaction. Readers go on meanwhile.
    ///
    /// # Errors
    /// As [`BaseError`] says. Then the base serves what it served before, also to readers that hold its current generation.
    pub fn checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), BaseError> {
        let core = &self.0;
        let _writing = core.writing();
        let ledger = &core.files.ledger;
        if ledger.sync_failed() {
            return Err(BaseError::Io("an earlier sync failed".into()));
        }
        let missing = ledger.missing_bytes();
        if missing > 0 && core.files.disk.free_bytes()? < missing {
            return Err(BaseError::NoSpace);
        }
        let opened = core.opened()?;
        match opened.commit(&checkpoint.changes, &checkpoint.meta) {
            Ok(()) => {
                ledger.set_missing_bytes(0);
                core.advance(&opened, &checkpoint.meta);
                Ok(())
            }
            Err(error) => core.settle(opened, error),
        }
    }

    /// Holds the current generation for reading.
    pub fn reader(&self) -> BaseReader {
        BaseReader { core: self.0.clone(), pin: self.0.live().pin.clone() }
    }

    /// Begins a pass over every record of the current generation.
    pub fn scrub(&self) -> Scrub {
        let live = self.0.live();
        let reader = BaseReader { core: self.0.clone(), pin: live.pin.clone() };
        Scrub { reader, meta: live.meta.clone(), next: Vec::new(), digest: 0, records: 0 }
    }

    /// Which state the base is in.
    pub fn meta(&self) -> CheckpointMeta {
        self.0.live().meta.clone()
    }

    /// The number of that state in this process: 0 as opened, one more after each checkpoint.
    pub fn generation(&self) -> Generation {
        self.0.live().pin.generation
    }

    /// Whether a sync failed in this process. Then no checkpoint succeeds any more and the server must stop: what the kernel made
    /// of the unsynced blocks nobody can know. Reads go on until it does.
    pub fn sync_failed(&self) -> bool {
        self.0.files.ledger.sync_failed()
    }

    /// The number in its files' names.
    pub fn id(&self) -> u64 {
        self.0.files.id
    }

    /// Length of the base file in bytes; it has holes, so what it takes on the disk is less.
    ///
    /// # Errors
    /// Whatever asking the file system says.
    pub fn file_bytes(&self) -> Result<u64, BaseError> {
        let live = self.0.live();
        let opened = live.opened.as_ref().ok_or_else(closed)?;
        Ok(opened.backend.file_bytes()?)
    }

    /// What has been done to the files since the base was opened.
    pub fn counters(&self) -> Counters {
        self.0.files.ledger.counters()
    }

    fn create_with<E: From<BaseError>>(
        disk: Arc<dyn Disk>,
        id: u64,
        cache_bytes: usize,
        fill: impl FnOnce(&Opened) -> Result<(), E>,
    ) -> Result<Self, E> {
        let files = Files { disk, id, cache_bytes, ledger: Arc::default() };
        let backend = files.create()?;
        let made = Opened::create(backend, cache_bytes).map_err(E::from).and_then(|opened| {
            fill(&opened)?;
            files.disk.sync_directory().map_err(BaseError::from)?;
            Ok(opened)
        });
        match made {
            Ok(opened) => Ok(Self::start(files, opened)?),
            Err(error) => {
                // What is half made must not keep the space that was lacking; whoever tries again removes it anyway.
                let _ = Self::remove(&*files.disk, id);
                Err(error)
            }
        }
    }

    fn start(files: Files, opened: Arc<Opened>) -> Result<Self, BaseError> {
        let snapshot = Arc::new(opened.snapshot()?);
        let pin = Arc::new(Pin::new(Generation::default(), Some(snapshot)));
        let live = Live { meta: opened.meta()?, opened: Some(opened), pin };
        Ok(Self(Arc::new(Core { files, writer: Mutex::new(()), live: RwLock::new(live) })))
    }
}

impl Core {
    fn live(&self) -> RwLockReadGuard<'_, Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn live_mut(&self) -> RwLockWriteGuard<'_, Live> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files as they are open, opened again where a reader met an error or an earlier attempt failed.
    fn opened(&self) -> Result<Arc<Opened>, BaseError> {
        let mut live = self.live_mut();
        if live.needs_opening() {
            self.open_again(&mut live)?;
        }
        live.opened.clone().ok_or_else(closed)
    }

    /// A checkpoint is durable: from now on readers hold its generation.
    fn advance(&self, opened: &Opened, meta: &CheckpointMeta) {
        let snapshot = opened.snapshot().ok().map(Arc::new);
        let mut live = self.live_mut();
        live.meta = meta.clone();
        live.pin = Arc::new(Pin::new(live.pin.next_generation(), snapshot));
    }

    /// A checkpoint failed. Nearly always its state is lost and the one before is served again; but when only the second copy of
    /// the header could not be written, the checkpoint is durable all the same.
    fn settle(&self, failed: Arc<Opened>, error: BaseError) -> Result<(), BaseError> {
        drop(failed);
        let mut live = self.live_mut();
        let before = live.pin.generation;
        // When this fails too, readers say so, and the next question or checkpoint tries again.
        let _ = self.open_again(&mut live);
        if live.pin.generation != before && !self.files.ledger.sync_failed() { Ok(()) } else { Err(error) }
    }

    /// Opens the files again if the current opening has failed. An error when that did not work, or when `pin` is of an older
    /// generation.
    fn mend(&self, pin: &Arc<Pin>) -> Result<(), BaseFailure> {
        let _writing = self.writing();
        let mut live = self.live_mut();
        if live.needs_opening() {
            self.open_again(&mut live)?;
        }
        if Arc::ptr_eq(pin, &live.pin) {
            Ok(())
        } else {
            Err(BaseFailure::Io("this generation ended when the base was opened again".into()))
        }
    }

    /// redb answers nothing after an error, so this opens the files anew. The current generation goes on with its readers: what
    /// it holds is what the files hold. Older ones end: only the process's memory kept their pages from being used again.
    fn open_again(&self, live: &mut Live) -> Result<(), BaseError> {
        if let Some(opened) = live.opened.take() {
            opened.backend.shut();
        }
        self.files.ledger.reopenings.add(1);
        let opened = self.files.open()?;
        let (meta, snapshot) = (opened.meta()?, Arc::new(opened.snapshot()?));
        live.opened = Some(opened);
        if meta == live.meta {
            live.pin.replace(snapshot);
        } else {
            live.meta = meta;
            live.pin = Arc::new(Pin::new(live.pin.next_generation(), Some(snapshot)));
        }
        Ok(())
    }
}

impl Live {
    fn needs_opening(&self) -> bool {
        self.opened.as_ref().is_none_or(|opened| opened.backend.fault().is_some()) || !self.pin.holds()
    }
}

impl Files {
    fn create(&self) -> Result<Backend, BaseError> {
        let base = self.disk.create(&base_name(self.id))?;
        let side = self.disk.create(&side_name(self.id)).inspect_err(|_| {
            let _ = self.disk.remove(&base_name(self.id));
        })?;
        let side = Side::create(side, self.id, self.ledger.clone());
        Ok(Backend::new(self.disk.clone(), base, side, self.ledger.clone()))
    }

    fn open(&self) -> Result<Arc<Opened>, BaseError> {
        let base = self.disk.open(&base_name(self.id)).map_err(missing_is_damage)?;
        let side = self.disk.open(&side_name(self.id)).map_err(missing_is_damage)?;
        if base.len()? < BLOCK as u64 {
            // redb would take it for a new one.
            return Err(BaseError::Damaged("its file is empty".into()));
        }
        let side = Side::open(side, self.id, self.ledger.clone())?;
        if !self.ledger.sync_failed() {
            side.sync()?;
        }
        Opened::open(Backend::new(self.disk.clone(), base, side, self.ledger.clone()), self.cache_bytes)
    }
}

fn closed() -> BaseError {
    BaseError::Io("the base could not be opened again after an error".into())
}

/// Nobody opens a base that was not completed, so a file that is gone was lost.
fn missing_is_damage(error: io::Error) -> BaseError {
    if error.kind() == io::ErrorKind::NotFound {
        BaseError::Damaged("a file of it is gone".into())
    } else {
        error.into()
    }
}

fn base_name(id: u64) -> String {
    format!("base-{id}.redb")
}

fn side_name(id: u64) -> String {
    format!("base-{id}.crc")
}

fn id_of(name: &str) -> Option<u64> {
    let name = name.strip_prefix("base-")?;
    name.strip_suffix(".redb").or_else(|| name.strip_suffix(".crc"))?.parse().ok()
}
