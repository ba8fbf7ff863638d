//! The base: applied state as of a checkpoint, in redb and in immutable sorted files above it.
//!
//! A checkpoint writes its changes in key order as one new file, a *run*. A look-up asks the runs,
//! newest first, then redb. Most runs answer "surely not" from a filter in memory. When enough runs
//! have piled up, they are merged into redb in key order (`merge.rs`). A single checkpoint of
//! random znodes would make redb copy one page per znode; merging many at once shares these copies.
//!
//! The *manifest*, a small file that is always replaced as a whole, names the files of the base.
//! The log says which base is current.
//!
//! # Why no crash gives a false alarm and no flip is missed
//!
//! No byte of a run or a manifest is ever written again. Every step is durable before the next one:
//!
//! 1. A run and its name are synced before a manifest names the run.
//! 2. A manifest is synced before it is renamed into place.
//! 3. The directory is synced before the change is reported.
//!
//! So a crash leaves the old manifest or the new one, and either leads to complete files. All other
//! files are removed when the base is opened next. Opening syncs the directory first, because a
//! rename by a crashed process may exist in the page cache only.
//!
//! An interrupted merge leaves redb with parts of runs that the manifest still names. These runs
//! are merged again, and until then they take precedence over redb. The manifest drops fully merged
//! runs only after redb's transaction is durable. It also records the number of merge transactions.
//!
//! The manifest has a checksum and holds the hash of each run, so no other file can stand in for a
//! run. Every block of a run, from the table of first keys to the last record, has a CRC32C. It is
//! checked on every read. Every record has a CRC32C over key and value as well. The top of
//! `backend.rs` explains how redb's pages are guarded.

mod backend;
mod backlog;
mod cache;
mod database;
mod error;
mod filter;
mod home;
mod install;
mod ledger;
mod manifest;
mod merge;
mod names;
mod reader;
mod receive;
mod redb_panic;
mod run;
mod run_id;
mod scrub;
mod side;
mod version;

pub use error::BaseError;
pub use ledger::Counters;
pub(super) use names::id_of;
pub use reader::BaseReader;
pub use receive::{BaseSink, copy_bytes_max};
pub use redb_panic::PanicNote;
pub use scrub::{Patrol, Scrub, Scrubbed};

use crate::disk::Disk;
use crate::image::record;
use bytes::Bytes;
use cache::BlockCache;
use database::{Mark, Opened, Step};
use home::Home;
use ledger::Ledger;
use manifest::Manifest;
use merge::Merge;
use names::{home_name, manifest_name, note_name, number_of, run_name, side_name, unfinished_name};
use run::{DELETED, Run, RunWriter};
use run_id::RunId;
use std::{
    collections::BTreeSet,
    fmt, io,
    ops::Not,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use version::Version;
use zoolet_machine::seam::action::{Checkpoint, CheckpointMeta, Generation};
use zoolet_machine::state::Changes;
use zoolet_model::Zxid;

/// Largest file of a base without records, bytes.
const NEWBORN_BYTES_MAX: u64 = 2 << 20;

/// How a base uses memory and disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of blocks kept in memory: a quarter for the runs, the rest for redb.
    pub cache_bytes: usize,
    /// Approximate bytes of records that one merge step takes; at least 16 KiB.
    pub merge_step_bytes: u64,
    /// Number of runs at which a merge begins; at least 1.
    pub runs_max: usize,
    /// Approximate bound on the memory of the runs' tables and filters, bytes. The run that a merge
    /// is writing counts too.
    pub table_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 4 << 20, merge_step_bytes: 256 << 10, runs_max: 16, table_bytes_max: 4 << 20 }
    }
}

/// An open base. Clones share it; dropping the last one writes nothing.
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
    /// Held by the thread that writes.
    writing: Mutex<Writing>,
    live: RwLock<Live>,
}

struct Writing {
    /// Number of the next run file.
    numbers: u64,
    merge: Option<Merge>,
    /// The log names another base as the current one.
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
    /// Creates an empty base: zxid 0, digest 0, no records.
    ///
    /// The base is complete and durable on return.
    ///
    /// # Errors
    /// See [`BaseError`]. Files with this id must be removed first, including files left by a crash
    /// during this call.
    pub fn create(disk: Arc<dyn Disk>, id: u64, options: Options) -> Result<Self, BaseError> {
        Self::create_with(disk, id, options, |opened| {
            opened.commit(&Step::default(), Mark { zxid: Zxid::ZERO, steps: 1 })?;
            Ok::<_, BaseError>(CheckpointMeta { zxid: Zxid::ZERO, digest: 0, totals: Bytes::new() })
        })
    }

    /// Opens a base that [`Base::create`] or [`Base::install`] completed.
    ///
    /// Reads the tables that must be in memory, about 30 bytes per block of a run. Removes files
    /// left by a crash.
    ///
    /// # Errors
    /// See [`BaseError`].
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

    /// Removes the files of a base that is not open.
    ///
    /// # Errors
    /// See [`BaseError`].
    pub fn remove(disk: &dyn Disk, id: u64) -> Result<(), BaseError> {
        let names = disk.list()?;
        // The manifest goes first: without it the other files belong to no base.
        let (manifest, others): (Vec<_>, Vec<_>) =
            names.iter().filter(|name| id_of(name) == Some(id)).partition(|name| **name == manifest_name(id));
        for name in manifest.into_iter().chain(others) {
            disk.remove(name)?;
        }
        Ok(disk.sync_directory()?)
    }

    /// Returns the ids of all bases on a disk, complete or not, ascending.
    ///
    /// # Errors
    /// See [`BaseError`].
    pub fn list(disk: &dyn Disk) -> Result<Vec<u64>, BaseError> {
        let ids: BTreeSet<u64> = disk.list()?.iter().filter_map(|name| id_of(name)).collect();
        Ok(ids.into_iter().collect())
    }

    /// Removes the files of every other base. The caller must know that this base is current.
    ///
    /// A crash left the others: an incomplete snapshot, or the base that this one replaced.
    pub fn remove_others(&self) {
        let core = &self.0;
        for id in Self::list(&*core.disk).unwrap_or_default() {
            if id != core.id {
                // On a read-only disk the files stay, which does no harm.
                let _ = Self::remove(&*core.disk, id);
            }
        }
    }

    /// Returns true if the base with this id was never completed.
    ///
    /// Such a base has no manifest and no file that only a complete base can have.
    ///
    /// # Errors
    /// See [`BaseError`].
    pub fn is_unfinished(disk: &Arc<dyn Disk>, id: u64) -> Result<bool, BaseError> {
        let newborn = [unfinished_name(id), home_name(id), side_name(id), note_name(id)];
        for name in disk.list()?.iter().filter(|name| id_of(name) == Some(id)) {
            let is_newborn = newborn.contains(name) && disk.open(name)?.len()? <= NEWBORN_BYTES_MAX;
            if !is_newborn {
                return Ok(false);
            }
        }
        let home = Home::new(disk, id, NEWBORN_BYTES_MAX as usize, &Arc::default());
        // A redb file that cannot be opened was never completed: it is too small to hold much, and
        // a complete base has a manifest.
        Ok(home.pin(Zxid::ZERO).and_then(|pin| pin.mark()).is_ok_and(|mark| mark.zxid > Zxid::ZERO).not())
    }

    /// Applies a checkpoint's changes and meta, durably and atomically. Reads go on meanwhile.
    ///
    /// # Errors
    /// See [`BaseError`]. After an error the base serves the same state as before.
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

    /// Does one merge step; returns false if there is nothing to merge.
    ///
    /// The content of the base does not change. With `eagerly`, a merge begins even with few runs,
    /// because space is short.
    ///
    /// # Errors
    /// See [`BaseError`]. After an error the base is unchanged.
    pub fn merge(&self, eagerly: bool) -> Result<bool, BaseError> {
        let mut writing = self.0.writing();
        writing.check_current()?;
        let Writing { numbers, merge, .. } = &mut *writing;
        merge::step(&self.0, merge, numbers, eagerly, 0)
    }

    /// Returns unused space at the end of redb's file to the file system.
    ///
    /// Does nothing if too little may be free. The threshold is `missing_bytes`, but at least
    /// 1/1024 and at most 1/32 of the file. Call it when [`Base::merge`] has nothing to do.
    ///
    /// # Errors
    /// See [`BaseError`]. After an error the base is unchanged.
    pub fn compact(&self, missing_bytes: u64) -> Result<(), BaseError> {
        let writing = self.0.writing();
        writing.check_current()?;
        self.0.home.compact(Some(missing_bytes))
    }

    /// Retires this base, because the log now names another one.
    ///
    /// Waits for a write in progress; nothing is written to this base afterwards. Its files are
    /// removed when their last reader is dropped.
    pub fn retire(&self) {
        let core = &self.0;
        let mut writing = core.writing();
        (writing.merge, writing.is_retired) = (None, true);
        // Without the manifest the other files belong to no base. Files left here are removed at
        // the next start.
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

    /// Returns the meta of the state that the base holds.
    pub fn meta(&self) -> CheckpointMeta {
        self.0.live().version.meta.clone()
    }

    /// Returns the number of that state in this process: 0 when opened, one more after each
    /// checkpoint.
    pub fn generation(&self) -> Generation {
        self.0.live().generation
    }

    /// Returns true if a sync failed in this process.
    ///
    /// No later checkpoint succeeds, and the server must stop: the kernel may have dropped the
    /// unsynced blocks. Reads go on until it stops.
    pub fn sync_failed(&self) -> bool {
        self.0.ledger.sync_failed()
    }

    /// Returns the id in the names of the base's files.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the total length of the base's files, bytes. redb's file has holes, so it takes less
    /// space on the disk.
    pub fn file_bytes(&self) -> u64 {
        self.run_bytes() + self.0.home.bytes()
    }

    /// Returns the bytes of redb's file whose checksums are in memory.
    ///
    /// They end at the highest block written. redb doubles its file when it is full, so the file
    /// may be longer.
    pub fn checksummed_bytes(&self) -> u64 {
        self.0.home.checksummed_bytes()
    }

    /// Returns the bytes of the runs, which are still to be merged.
    pub fn run_bytes(&self) -> u64 {
        self.0.version().run_bytes()
    }

    /// Returns the memory of the base, bytes: cached blocks, tables and filters of runs, and redb.
    /// Never waits for a writer.
    pub fn memory_bytes(&self) -> u64 {
        self.0.cache.memory_bytes() + self.0.ledger.table_bytes.now() + self.0.home.memory_bytes()
    }

    /// Returns counts of file operations since the base was opened.
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
            return Err(BaseError::Io(format!("base {id} exists already")).into());
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
                // An incomplete base must not keep the space that was lacking. If removal fails,
                // the next attempt removes the files.
                let _ = Self::remove(&*core.disk, id);
                Err(error)
            }
        }
    }
}

impl Core {
    /// Creates the core without any state.
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
                BaseError::Io(_) if !self.has(&name) => BaseError::Damaged(format!("{name} is missing")),
                error => error.of(&name),
            })?;
            if run.id() == id {
                Ok(Arc::new(run))
            } else {
                Err(BaseError::Damaged(format!("{name} is not the file that the manifest names")))
            }
        };
        manifest.runs.iter().map(|&id| open(id)).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.disk.list().is_ok_and(|names| names.iter().any(|found| found == name))
    }

    /// Removes files that the manifest does not name. Returns a number above those of all runs
    /// found.
    fn remove_strangers(&self, runs: &[Arc<Run>]) -> Result<u64, BaseError> {
        let known: BTreeSet<u64> = runs.iter().map(|run| run.id().number).collect();
        let mut numbers = 0;
        for name in self.disk.list()?.iter().filter(|name| id_of(name) == Some(self.id)) {
            let number = number_of(name);
            numbers = number.map_or(numbers, |number| numbers.max(number + 1));
            let is_known = [manifest_name(self.id), home_name(self.id), side_name(self.id)].contains(name)
                || number.is_some_and(|number| known.contains(&number));
            if !is_known {
                // On a read-only disk the file stays, which does no harm.
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

    /// Makes `next` the state of the base, durably.
    ///
    /// Its new files must be complete and synced. This call makes their names durable.
    fn publish(&self, next: Version) -> Result<(), BaseError> {
        let before = self.version();
        if let Err(error) = self.write_manifest(&next.manifest()) {
            // No manifest names the new files. If the last sync failed, the next process may still
            // find the new manifest, so its files must stay.
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

/// Marks runs that only `old` has. Each is removed when its last holder drops it.
fn mark_garbage(old: &Version, new: &Version) {
    let kept: BTreeSet<u64> = new.runs.iter().map(|run| run.id().number).collect();
    old.runs.iter().filter(|run| !kept.contains(&run.id().number)).for_each(|run| run.set_garbage());
}

/// Returns an upper bound on the size of a run with these changes, bytes.
fn estimate_bytes(changes: &Changes) -> u64 {
    let records: u64 =
        changes.iter().map(|(key, value)| run::record_bytes(key, value.as_ref().map_or(0, Bytes::len))).sum();
    records + records / 8 + (64 << 10)
}

fn read_manifest(disk: &dyn Disk, id: u64) -> Result<Vec<u8>, BaseError> {
    let file = disk.open(&manifest_name(id)).map_err(|error| {
        // An incomplete base is never opened, so a missing manifest was lost.
        if error.kind() == io::ErrorKind::NotFound {
            BaseError::Damaged("its manifest is missing".into())
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
