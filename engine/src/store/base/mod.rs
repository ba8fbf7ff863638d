//! The base: applied state as of a checkpoint, in redb and in immutable sorted files above it.
//!
//! A checkpoint writes its changes as one new file, a *run*, in key order. A look-up asks the runs, newest first, then redb; most runs say
//! "surely not" from a filter in memory. When enough runs have piled up redb gets them (`merge.rs`), sorted: a checkpoint of random
//! znodes alone would have it copy a page for each of them. Which files make up the base the *manifest* says, a small file that is
//! replaced whole; which base is current the log says.
//!
//! # Why no crash gives a false alarm and no flip is missed
//!
//! No byte of a run or a manifest is ever written again. A run is complete and synced, and its name too, before a manifest names it;
//! a manifest is complete and synced before it is renamed into place, and the directory is synced before anybody is told. So a crash leaves the
//! old manifest or the new one, and either leads to whole files; what else lies there is removed when the base is opened next. Whoever
//! opens it syncs the directory first: what a crashed process renamed may live in the page cache alone. What redb has got of
//! runs that the manifest still names it will get again, and until then they answer before it. Runs that redb has got wholly the manifest
//! forgets only after redb's transaction is durable, and it says how many of those there were.
//!
//! The manifest has a checksum and holds the hash of each run, so that no other file can stand in for it. Every block of a run has a CRC32C
//! that is checked whenever it is read, from the table of first keys to the last record, and every record one over key and value. How
//! redb's pages are guarded stands at the top of `backend.rs`.

mod backend;
mod cache;
mod database;
mod filter;
mod home;
mod install;
mod ledger;
mod manifest;
mod merge;
mod reader;
mod receive;
pub(crate) mod record;
mod run;
mod scrub;
mod senseless;
mod side;
mod version;

pub use ledger::Counters;
pub use reader::BaseReader;
pub use receive::{BaseSink, copy_bytes_max};
pub use scrub::{Patrol, Scrub, Scrubbed};
pub use senseless::PanicNote;

use crate::{
    action::{Changes, Checkpoint, CheckpointMeta, Generation},
    event::BaseFailure,
    store::{disk::Disk, image::ImageError},
};
use bytes::Bytes;
use cache::BlockCache;
use database::{Mark, Opened, Step};
use home::{Home, home_name, side_name};
use ledger::Ledger;
use manifest::Manifest;
use merge::Merge;
use run::{DELETED, Run, RunId, RunWriter};
use senseless::note_name;
use std::{
    collections::BTreeSet,
    fmt, io,
    ops::Not,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use version::Version;
use zoolet_model::Zxid;

/// While a merge has room there are never more runs than this many times those that make merges begin. From half of that on a checkpoint does its part of
/// the merge first: otherwise one of them would have to wait for all of it.
const RUNS_LIMIT: usize = 4;
/// The same while no merge has room: what would free some are deletes, which come in checkpoints. Each run is one more file that is open.
const RUNS_LIMIT_WITHOUT_ROOM: usize = 2 * RUNS_LIMIT;

/// What any file of a base without records may have.
const NEWBORN_BYTES_MAX: u64 = 2 << 20;

/// How a base uses memory and disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of blocks kept in memory: a quarter of the runs, the rest of redb.
    pub cache_bytes: usize,
    /// Bytes of records that one step of a merge takes, about; 16 KiB at least.
    pub merge_step_bytes: u64,
    /// Runs from which on they are merged; 1 at least.
    pub runs_max: usize,
    /// Bytes of memory that the tables and filters of runs take, about, those of a run that is being made of them included.
    pub table_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 4 << 20, merge_step_bytes: 256 << 10, runs_max: 16, table_bytes_max: 4 << 20 }
    }
}

/// Why the base could not be made, opened or brought forward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BaseError {
    /// The disk is full. What was served is served on, and the same checkpoint may be tried again.
    NoSpace,
    /// Stored bytes are not what was written: the base must be replaced.
    Damaged(String),
    /// More than a format or this machine has numbers for. What is stored is sound, and what was served is served on.
    TooLarge(String),
    /// The device said no. After a failed sync every later checkpoint says so too ([`Base::sync_failed`]).
    Io(String),
}

impl BaseError {
    fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            // A file shorter than its header says has lost its end.
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damaged(error.to_string()),
            io::ErrorKind::FileTooLarge => Self::TooLarge(error.to_string()),
            _ => Self::Io(error.to_string()),
        }
    }

    /// The same, and of which file.
    fn of(self, name: &str) -> Self {
        let say = |what: String| if what.contains(name) { what } else { format!("{name}: {what}") };
        match self {
            Self::Damaged(what) => Self::Damaged(say(what)),
            Self::TooLarge(what) => Self::TooLarge(say(what)),
            Self::Io(what) => Self::Io(say(what)),
            Self::NoSpace => Self::NoSpace,
        }
    }
}

impl From<io::Error> for BaseError {
    fn from(error: io::Error) -> Self {
        Self::from_io(&error)
    }
}

impl From<ImageError> for BaseError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::NoSpace | ImageError::NoRoom { .. } => Self::NoSpace,
            ImageError::Damaged(what) | ImageError::Source(BaseFailure::Damaged(what)) => Self::Damaged(what),
            ImageError::TooLarge(what) => Self::TooLarge(what),
            ImageError::Io(what) | ImageError::Source(BaseFailure::Io(what)) => Self::Io(what),
        }
    }
}

impl fmt::Display for BaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("no space left for the base"),
            Self::Damaged(what) => write!(f, "the base is damaged: {what}"),
            Self::TooLarge(what) => write!(f, "the base is too large: {what}"),
            Self::Io(what) => write!(f, "the base cannot be read or written: {what}"),
        }
    }
}

impl std::error::Error for BaseError {}

impl From<BaseError> for BaseFailure {
    fn from(error: BaseError) -> Self {
        match error {
            BaseError::Damaged(what) => Self::Damaged(what),
            BaseError::NoSpace | BaseError::TooLarge(_) | BaseError::Io(_) => Self::Io(error.to_string()),
        }
    }
}

/// The base, open. Clones share it; dropping the last one writes nothing.
#[derive(Clone)]
pub struct Base(Arc<Core>);

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base").field("id", &self.0.id).field("zxid", &self.meta().zxid).finish_non_exhaustive()
    }
}

struct Core {
    disk: Arc<dyn Disk>,
    id: u64,
    options: Options,
    ledger: Arc<Ledger>,
    cache: Arc<BlockCache>,
    home: Arc<Home>,
    /// Held by whoever writes.
    writing: Mutex<Writing>,
    live: RwLock<Live>,
}

struct Writing {
    /// The number of the next file.
    numbers: u64,
    merge: Option<Merge>,
    /// Another base is current.
    is_retired: bool,
}

impl Writing {
    fn check_current(&self) -> Result<(), BaseError> {
        if self.is_retired { Err(BaseError::Io("another base is current".into())) } else { Ok(()) }
    }
}

struct Live {
    version: Arc<Version>,
    generation: Generation,
}

impl Base {
    /// Makes an empty base: zxid 0, digest 0, no records. Complete and durable when it returns.
    ///
    /// # Errors
    /// As [`BaseError`] says; files of this id, also those that a crash in here left, must be removed first.
    pub fn create(disk: Arc<dyn Disk>, id: u64, options: Options) -> Result<Self, BaseError> {
        Self::create_with(disk, id, options, |opened| {
            opened.commit(&Step::default(), Mark { zxid: Zxid::ZERO, steps: 1 })?;
            Ok::<_, BaseError>(CheckpointMeta { zxid: Zxid::ZERO, digest: 0, totals: Bytes::new() })
        })
    }

    /// Opens a base that [`Base::create`] or [`Base::install`] completed: reads what must be in memory, about 30 bytes for each of its blocks,
    /// and removes what a crash left.
    ///
    /// # Errors
    /// As [`BaseError`] says.
    pub fn open(disk: Arc<dyn Disk>, id: u64, options: Options) -> Result<Self, BaseError> {
        let core = Core::new(disk, id, options);
        let manifest = Manifest::decode(id, &read_manifest(&*core.disk, id)?)?;
        core.ledger.sync_directory(&*core.disk)?;
        let home = core.home.pin(manifest.meta.zxid)?;
        let mark = home.mark()?;
        if mark.steps < manifest.steps || mark.zxid > manifest.meta.zxid {
            return Err(BaseError::Damaged("its redb file is of another state".into()));
        }
        let runs = core.open_runs(&manifest)?;
        let numbers = core.remove_strangers(&runs)?;
        core.live_mut().version = Arc::new(Version { meta: manifest.meta, runs, home });
        core.writing().numbers = numbers;
        Ok(Self(Arc::new(core)))
    }

    /// Removes the files of a base that nobody has open.
    ///
    /// # Errors
    /// As [`BaseError`] says.
    pub fn remove(disk: &dyn Disk, id: u64) -> Result<(), BaseError> {
        let names = disk.list()?;
        // The manifest first: without it the others are nobody's.
        let (manifest, others): (Vec<_>, Vec<_>) =
            names.iter().filter(|name| id_of(name) == Some(id)).partition(|name| **name == manifest_name(id));
        for name in manifest.into_iter().chain(others) {
            disk.remove(name)?;
        }
        Ok(disk.sync_directory()?)
    }

    /// The ids of all bases on a disk, whole or not, ascending.
    ///
    /// # Errors
    /// As [`BaseError`] says.
    pub fn list(disk: &dyn Disk) -> Result<Vec<u64>, BaseError> {
        let ids: BTreeSet<u64> = disk.list()?.iter().filter_map(|name| id_of(name)).collect();
        Ok(ids.into_iter().collect())
    }

    /// Removes the files of every other base: a crash left them, of a snapshot that never was complete, or of the base that one replaced. For
    /// whoever knows that this one is current.
    pub fn remove_others(&self) {
        let core = &self.0;
        for id in Self::list(&*core.disk).unwrap_or_default() {
            if id != core.id {
                // On a read-only disk it stays, and harms nobody.
                let _ = Self::remove(&*core.disk, id);
            }
        }
    }

    /// Whether a base of this id was never completed: it has no manifest, nor a file of which one must have told.
    ///
    /// # Errors
    /// As [`BaseError`] says.
    pub fn is_unfinished(disk: &Arc<dyn Disk>, id: u64) -> Result<bool, BaseError> {
        let newborn = [unfinished_name(id), home_name(id), side_name(id), note_name(id)];
        for name in disk.list()?.iter().filter(|name| id_of(name) == Some(id)) {
            let is_newborn = newborn.contains(name) && disk.open(name)?.len()? <= NEWBORN_BYTES_MAX;
            if !is_newborn {
                return Ok(false);
            }
        }
        let home = Home::new(disk, id, NEWBORN_BYTES_MAX as usize, &Arc::default());
        // What cannot be opened was never completed: it is too small to hold much, and a base that is complete has a manifest.
        Ok(home.pin(Zxid::ZERO).and_then(|pin| pin.mark()).is_ok_and(|mark| mark.zxid > Zxid::ZERO).not())
    }

    /// Makes the checkpoint's changes and its meta true, durably and at once. Readers go on meanwhile.
    ///
    /// # Errors
    /// As [`BaseError`] says. Then the base serves what it served before.
    pub fn checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), BaseError> {
        let core = &self.0;
        let mut writing = core.writing();
        writing.check_current()?;
        if core.ledger.sync_failed() {
            return Err(BaseError::Io("an earlier sync failed".into()));
        }
        let needed_bytes = if checkpoint.changes.is_empty() { 0 } else { estimate_bytes(&checkpoint.changes) };
        core.merge_before_checkpoint(&mut writing, needed_bytes)?;
        let version = core.version();
        if checkpoint.changes.is_empty() && checkpoint.meta == version.meta {
            return Ok(());
        }
        let meta = checkpoint.meta.clone();
        let mut next = Version { home: version.home.at(meta.zxid), runs: version.runs.clone(), meta };
        if !checkpoint.changes.is_empty() {
            core.need_space(needed_bytes)?;
            let run = core.write_run(&checkpoint.changes, checkpoint.meta.zxid, &mut writing.numbers)?;
            next.runs.insert(0, Arc::new(run));
        }
        core.publish(next)
    }

    /// Does one step of what merging there is to do; false when there is none. What the base holds stays the same. `eagerly`: also when few
    /// files have piled up, because space is short.
    ///
    /// # Errors
    /// As [`BaseError`] says. Then everything is as before.
    pub fn merge(&self, eagerly: bool) -> Result<bool, BaseError> {
        let mut writing = self.0.writing();
        writing.check_current()?;
        let Writing { numbers, merge, .. } = &mut *writing;
        merge::step(&self.0, merge, numbers, eagerly, 0)
    }

    /// Cuts off the end of redb's file, if what may be free in it is as much as is missing: for when [`Base::merge`] has nothing to do.
    ///
    /// # Errors
    /// As [`BaseError`] says. Then everything is as before.
    pub fn compact(&self, missing_bytes: u64) -> Result<(), BaseError> {
        let writing = self.0.writing();
        writing.check_current()?;
        self.0.home.compact(Some(missing_bytes))
    }

    /// The log names another base now: this one's files go when nobody reads them any more. Nothing more is written to it. Waits for whoever
    /// writes to it.
    pub fn retire(&self) {
        let core = &self.0;
        let mut writing = core.writing();
        (writing.merge, writing.is_retired) = (None, true);
        // Without it the others are nobody's. What stays behind is removed at the next start.
        let _ = core.disk.remove(&manifest_name(core.id));
        core.version().runs.iter().for_each(|run| run.set_garbage());
        core.home.set_garbage();
    }

    /// Holds the current generation for reading.
    pub fn reader(&self) -> BaseReader {
        let live = self.0.live();
        BaseReader { generation: live.generation, version: live.version.clone() }
    }

    /// Begins a pass over every record of the current generation.
    pub fn scrub(&self) -> Scrub {
        Scrub::of(self.reader())
    }

    /// Which state the base is in.
    pub fn meta(&self) -> CheckpointMeta {
        self.0.live().version.meta.clone()
    }

    /// The number of that state in this process: 0 as opened, one more after each checkpoint.
    pub fn generation(&self) -> Generation {
        self.0.live().generation
    }

    /// Whether a sync failed in this process. Then no checkpoint succeeds any more and the server must stop: what the kernel made
    /// of the unsynced blocks nobody can know. Reads go on until it does.
    pub fn sync_failed(&self) -> bool {
        self.0.ledger.sync_failed()
    }

    /// The number in its files' names.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Bytes of its files; that of redb has holes, so what it takes on the disk is less.
    pub fn file_bytes(&self) -> u64 {
        self.run_bytes() + self.0.home.bytes()
    }

    /// Bytes of redb's file whose checksums are in memory: up to the highest block that was written. redb makes its file twice as long when it is full.
    pub fn checksummed_bytes(&self) -> u64 {
        self.0.home.checksummed_bytes()
    }

    /// Bytes of what is still to be merged.
    pub fn run_bytes(&self) -> u64 {
        self.0.version().run_bytes()
    }

    /// Bytes it takes in memory: blocks, tables and filters of runs, and redb. Never waits for whoever writes.
    pub fn memory_bytes(&self) -> u64 {
        self.0.cache.memory_bytes() + self.0.ledger.table_bytes.now() + self.0.home.memory_bytes()
    }

    /// What has been done to the files since the base was opened.
    pub fn counters(&self) -> Counters {
        Counters { runs: self.0.version().runs.len() as u64, ..self.0.ledger.counters() }
    }

    fn create_with<E: From<BaseError>>(
        disk: Arc<dyn Disk>,
        id: u64,
        options: Options,
        fill: impl FnOnce(&Opened) -> Result<CheckpointMeta, E>,
    ) -> Result<Self, E> {
        if disk.list().map_err(BaseError::from)?.iter().any(|name| id_of(name) == Some(id)) {
            return Err(BaseError::Io(format!("there is a base {id} already")).into());
        }
        let core = Core::new(disk, id, options);
        let made = core.home.create(fill).and_then(|meta| {
            let home = core.home.pin(meta.zxid)?;
            Ok(core.publish(Version { meta, runs: Vec::new(), home })?)
        });
        match made {
            Ok(()) => {
                core.live_mut().generation = Generation::default();
                Ok(Self(Arc::new(core)))
            }
            Err(error) => {
                // What is half made must not keep the space that was lacking; whoever tries again removes it anyway.
                let _ = Self::remove(&*core.disk, id);
                Err(error)
            }
        }
    }
}

impl Core {
    /// Of no state yet.
    fn new(disk: Arc<dyn Disk>, id: u64, options: Options) -> Self {
        let ledger = Arc::<Ledger>::default();
        let run_cache_bytes = options.cache_bytes / 4;
        let home = Home::new(&disk, id, options.cache_bytes - run_cache_bytes, &ledger);
        let meta = CheckpointMeta { zxid: Zxid::ZERO, digest: 0, totals: Bytes::new() };
        let version = Version { meta, runs: Vec::new(), home: home.unpinned() };
        Self {
            home,
            disk,
            id,
            options: Options {
                merge_step_bytes: options.merge_step_bytes.max(16 << 10),
                runs_max: options.runs_max.max(1),
                ..options
            },
            ledger,
            cache: Arc::new(BlockCache::new(run_cache_bytes)),
            writing: Mutex::new(Writing { numbers: 0, merge: None, is_retired: false }),
            live: RwLock::new(Live { version: Arc::new(version), generation: Generation::default() }),
        }
    }

    fn live(&self) -> RwLockReadGuard<'_, Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn live_mut(&self) -> RwLockWriteGuard<'_, Live> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn version(&self) -> Arc<Version> {
        self.live().version.clone()
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_runs(&self, manifest: &Manifest) -> Result<Vec<Arc<Run>>, BaseError> {
        let open = |id: RunId| -> Result<Arc<Run>, BaseError> {
            let name = run_name(self.id, id.number);
            let run = Run::open(&self.disk, name.clone(), id.number, &self.ledger, &self.cache);
            let run = run.map_err(|error| match error {
                BaseError::Io(_) if !self.has(&name) => BaseError::Damaged(format!("{name} is gone")),
                error => error.of(&name),
            })?;
            if run.id() == id { Ok(Arc::new(run)) } else { Err(BaseError::Damaged(format!("{name} is another file"))) }
        };
        manifest.runs.iter().map(|&id| open(id)).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.disk.list().is_ok_and(|names| names.iter().any(|found| found == name))
    }

    /// Removes files that no manifest names, and says which number no file has had.
    fn remove_strangers(&self, runs: &[Arc<Run>]) -> Result<u64, BaseError> {
        let known: BTreeSet<u64> = runs.iter().map(|run| run.id().number).collect();
        let mut numbers = 0;
        for name in self.disk.list()?.iter().filter(|name| id_of(name) == Some(self.id)) {
            let number = number_of(name);
            numbers = number.map_or(numbers, |number| numbers.max(number + 1));
            let is_known = [manifest_name(self.id), home_name(self.id), side_name(self.id)].contains(name)
                || number.is_some_and(|number| known.contains(&number));
            if !is_known {
                // On a read-only disk it stays, and harms nobody.
                let _ = self.disk.remove(name);
            }
        }
        Ok(numbers)
    }

    fn new_run(&self, numbers: &mut u64, keys: Option<u64>) -> Result<RunWriter, BaseError> {
        let number = *numbers;
        *numbers += 1;
        RunWriter::create(&self.disk, run_name(self.id, number), number, &self.ledger, &self.cache, keys)
    }

    /// Writers may be faster than merges are between checkpoints; then they wait, each a little. `needed_bytes`: what the checkpoint takes.
    fn merge_before_checkpoint(&self, writing: &mut Writing, needed_bytes: u64) -> Result<(), BaseError> {
        let limit = self.options.runs_max.saturating_mul(RUNS_LIMIT);
        let (Writing { numbers, merge, .. }, version) = (writing, self.version());
        let (runs, begin) = (version.runs.len(), limit / 2);
        if runs >= begin {
            let merging = merge.as_ref().map_or(&version.runs, Merge::runs);
            let left_bytes = merge.as_ref().map_or_else(|| merge::left_bytes(merging), Merge::left_bytes);
            // A merge of so many runs is done when as many new ones have come: so there are never more than twice of them.
            let checkpoints = (begin + merging.len().min(begin)).saturating_sub(runs).max(1) as u64;
            for _ in 0..left_bytes.div_ceil(self.options.merge_step_bytes).div_ceil(checkpoints) {
                match merge::step(self, merge, numbers, false, needed_bytes) {
                    Ok(_) => {}
                    // On a full disk it is the checkpoints that bring the deletes: they count before the merge.
                    Err(BaseError::NoSpace) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        self.merge_what_is_too_much(merge, numbers, needed_bytes)?;
        if matches!(merge, Some(Merge::IntoRun(_))) && self.need_space(needed_bytes).is_err() {
            // Its half of a run goes with it.
            *merge = None;
        }
        Ok(())
    }

    /// Until there are few enough runs, and little enough memory of their tables. Where the runs alone are too many, a checkpoint goes before a merge that has
    /// no room beside it, for a while.
    fn merge_what_is_too_much(
        &self,
        merge: &mut Option<Merge>,
        numbers: &mut u64,
        needed_bytes: u64,
    ) -> Result<(), BaseError> {
        let times = |limit| self.options.runs_max.saturating_mul(limit);
        loop {
            let version = self.version();
            let runs = version.runs.len();
            let are_tables_too_large = version.table_bytes() >= self.options.table_bytes_max / 4 * 3;
            if runs < times(RUNS_LIMIT) && !are_tables_too_large {
                return Ok(());
            }
            let may_wait = runs < times(RUNS_LIMIT_WITHOUT_ROOM) && !are_tables_too_large;
            match merge::step(self, merge, numbers, false, if may_wait { needed_bytes } else { 0 }) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(BaseError::NoSpace) if may_wait => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn need_space(&self, bytes: u64) -> Result<(), BaseError> {
        if self.disk.free_bytes()? < bytes { Err(BaseError::NoSpace) } else { Ok(()) }
    }

    fn write_run(&self, changes: &Changes, zxid: Zxid, numbers: &mut u64) -> Result<Run, BaseError> {
        let mut writer = self.new_run(numbers, Some(changes.len() as u64))?;
        let mut stored = Vec::new();
        for (key, value) in changes.in_order() {
            match value {
                Some(value) => {
                    stored.clear();
                    record::seal(key, value, &mut stored);
                    writer.push(key, &stored)?;
                }
                None => writer.push(key, DELETED)?,
            }
        }
        writer.finish(zxid)
    }

    /// Makes this the state of the base; the next process finds it too. Its new files are complete and synced, their names not yet.
    fn publish(&self, next: Version) -> Result<(), BaseError> {
        let before = self.version();
        if let Err(error) = self.write_manifest(&next.manifest()) {
            // Nobody names them. If the sync failed that comes last, the next process may find them named: then they must stay.
            if !self.ledger.sync_failed() {
                mark_garbage(&next, &before);
            }
            return Err(error);
        }
        mark_garbage(&before, &next);
        let mut live = self.live_mut();
        if next.meta != before.meta {
            live.generation.0 += 1;
        }
        live.version = Arc::new(next);
        Ok(())
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<(), BaseError> {
        let (unfinished, name) = (unfinished_name(self.id), manifest_name(self.id));
        let bytes = manifest.encode(self.id);
        let write = || -> io::Result<()> {
            remove_if_there(&*self.disk, &unfinished)?;
            let file = self.disk.create(&unfinished)?;
            file.write_at(0, &bytes)?;
            self.ledger.bytes_written.add(bytes.len() as u64);
            self.ledger.sync(&*file)?;
            self.ledger.sync_directory(&*self.disk)?;
            self.disk.rename(&unfinished, &name)
        };
        if let Err(error) = write() {
            let _ = remove_if_there(&*self.disk, &unfinished);
            return Err(error.into());
        }
        Ok(self.ledger.sync_directory(&*self.disk)?)
    }
}

/// What `old` has and `new` does not goes when nobody holds it any more.
fn mark_garbage(old: &Version, new: &Version) {
    let kept: BTreeSet<u64> = new.runs.iter().map(|run| run.id().number).collect();
    old.runs.iter().filter(|run| !kept.contains(&run.id().number)).for_each(|run| run.set_garbage());
}

/// What a run of these takes at most.
fn estimate_bytes(changes: &Changes) -> u64 {
    let records: u64 =
        changes.iter().map(|(key, value)| run::record_bytes(key, value.as_ref().map_or(0, Bytes::len))).sum();
    records + records / 8 + (64 << 10)
}

fn read_manifest(disk: &dyn Disk, id: u64) -> Result<Vec<u8>, BaseError> {
    let file = disk.open(&manifest_name(id)).map_err(|error| {
        // Nobody opens a base that was not completed, so a manifest that is gone was lost.
        if error.kind() == io::ErrorKind::NotFound {
            BaseError::Damaged("its manifest is gone".into())
        } else {
            error.into()
        }
    })?;
    let bytes = usize::try_from(file.len()?).ok().filter(|bytes| *bytes <= manifest::BYTES_MAX);
    let mut bytes = vec![0; bytes.ok_or_else(|| BaseError::Damaged("its manifest is too long".into()))?];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn manifest_name(id: u64) -> String {
    format!("base-{id}.manifest")
}

fn unfinished_name(id: u64) -> String {
    format!("base-{id}.manifest.tmp")
}

fn run_name(id: u64, number: u64) -> String {
    format!("base-{id}-{number}.run")
}

pub(super) fn id_of(name: &str) -> Option<u64> {
    let name = name.strip_prefix("base-")?;
    let end = name.find(['-', '.'])?;
    let known = [".run", ".manifest", ".manifest.tmp", ".redb", ".crc", ".panic"].iter().any(|end| name.ends_with(end));
    name[..end].parse().ok().filter(|_| known)
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".run")?.rsplit_once('-')?.1.parse().ok().filter(|number| *number < run::NUMBERS_END)
}
