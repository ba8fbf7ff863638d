//! A virtual disk that distinguishes the effects of a process crash from those of a power loss.
//!
//! Every operation that changes something is a *step*, counted from 0. A test runs a history once
//! to learn its number of steps. Then it runs the history again for every step with
//! [`SimDisk::set_crash_at`], and reopens from [`SimDisk::after_process_crash`] or
//! [`SimDisk::after_power_loss`]. The seeds determine everything.

mod fate;
mod file;
mod random;

pub use random::Random;

use fate::Fate;
use file::{Change, FileState, SimFile};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};
use zoolet_store::MARKER;
use zoolet_store::disk::{Disk, DiskFile};

/// Bytes that a device writes atomically.
const SECTOR: usize = 512;
/// Bytes in a unit of space reservation.
const BLOCK: usize = 4096;

/// Kinds of operations, for fault hooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Opening a file; not a step.
    Open,
    /// Reading from a file; not a step.
    Read,
    /// Creating a file.
    Create,
    /// Removing a file.
    Remove,
    /// Renaming a file.
    Rename,
    /// Syncing the directory.
    SyncDirectory,
    /// Writing to a file.
    Write,
    /// Syncing a file.
    Sync,
    /// Truncating or extending a file.
    SetLen,
    /// Reserving space.
    Allocate,
}

/// One operation, as a fault hook sees it.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// The kind of operation.
    pub kind: OperationKind,
    /// The file's name; "" for the directory.
    pub name: &'a str,
    /// First byte, for reads and writes.
    pub offset: u64,
    /// Number of bytes, for reads and writes; the new length for SetLen and Allocate.
    pub bytes: u64,
    /// The number of this step; for Open and Read, of the next step.
    pub step: u64,
}

/// Counts of a disk's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes made durable by syncs, in blocks of 4 KiB, each counted once per sync.
    pub synced_bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Number of file syncs.
    pub syncs: u64,
    /// Number of directory syncs.
    pub directory_syncs: u64,
}

type Hook = Box<dyn Fn(&Operation<'_>) -> Option<io::ErrorKind> + Send>;

/// An in-memory [`Disk`]; clones share it.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

struct State {
    files: Vec<FileState>,
    /// Unused indices of `files`.
    vacant: Vec<usize>,
    /// Names as the running process sees them.
    names: BTreeMap<String, usize>,
    /// The names that remain after any power loss.
    durable_names: BTreeMap<String, usize>,
    /// Changes of names since the directory was last synced.
    name_changes: Vec<NameChange>,
    random: Random,
    step: u64,
    crash_at: Option<u64>,
    dead: bool,
    capacity: Option<u64>,
    /// Space is reserved by writing zeroes, as on file systems without another way.
    reserves_by_writing: bool,
    hook: Option<Hook>,
    counters: Counters,
}

#[derive(Clone)]
enum NameChange {
    Link { name: String, file: usize },
    Unlink { name: String },
    Rename { from: String, to: String, file: usize },
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SimDisk").field("names", &state.names.keys()).field("step", &state.step).finish()
    }
}

impl SimDisk {
    /// Creates an empty disk.
    ///
    /// The seed decides how much of a write remains after a crash within it, and the effect of a
    /// failed sync.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            files: Vec::new(),
            vacant: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            random: Random::new(seed),
            step: 0,
            crash_at: None,
            dead: false,
            capacity: None,
            reserves_by_writing: false,
            hook: None,
            counters: Counters::default(),
        })))
    }

    /// Returns the number of steps done so far.
    pub fn steps(&self) -> u64 {
        self.state().step
    }

    /// Returns the counts of work done so far.
    pub fn counters(&self) -> Counters {
        self.state().counters
    }

    /// Lets the process die in step `step`.
    ///
    /// If that step is a write, a prefix of it may reach the page cache. Any other operation has no
    /// effect. Every later operation fails, including reads.
    pub fn set_crash_at(&self, step: u64) {
        self.state().crash_at = Some(step);
    }

    /// Lets the process die now.
    pub fn crash(&self) {
        self.state().dead = true;
    }

    /// Returns whether the process is dead.
    pub fn crashed(&self) -> bool {
        self.state().dead
    }

    /// Fails every operation for which `hook` returns an error, until [`SimDisk::heal`].
    ///
    /// A failed write has written an arbitrary prefix. A failed sync has made an arbitrary part
    /// durable and drops the rest, as Linux does.
    pub fn fail_with(&self, hook: impl Fn(&Operation<'_>) -> Option<io::ErrorKind> + Send + 'static) {
        self.state().hook = Some(Box::new(hook));
    }

    /// Fails every operation of this kind, until [`SimDisk::heal`].
    pub fn fail(&self, kind: OperationKind, error: io::ErrorKind) {
        self.fail_with(move |operation| (operation.kind == kind).then_some(error));
    }

    /// Lets all operations succeed again.
    pub fn heal(&self) {
        self.state().hook = None;
    }

    /// Limits the disk to this many bytes, counted in blocks of 4 KiB; `None` removes the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// From now on reserves space by writing zeroes, as on UBIFS.
    pub fn reserve_by_writing(&self) {
        self.state().reserves_by_writing = true;
    }

    /// Returns the bytes reserved by the named files.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// Returns a file's contents as the running process sees them.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(name).map(|&file| state.files[file].cached.clone())
    }

    /// Returns a file's contents after a power loss that loses as much as possible.
    pub fn durable_contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.durable_names.get(name).map(|&file| state.files[file].durable.clone())
    }

    /// Returns the names and sizes in bytes of all files, as the running process sees them.
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.state();
        let bytes = |file: &usize| state.files[*file].cached.len() as u64;
        state.names.iter().map(|(name, file)| (name.clone(), bytes(file))).collect()
    }

    /// Returns one byte as the running process sees it; `None` beyond the end or without the file.
    pub fn byte(&self, name: &str, offset: u64) -> Option<u8> {
        let state = self.state();
        let file = &state.files[*state.names.get(name)?];
        file.cached.get(usize::try_from(offset).ok()?).copied()
    }

    /// Flips the bits of `mask` in one byte, in memory and on the medium.
    ///
    /// Returns false if the byte does not exist.
    pub fn corrupt(&self, name: &str, offset: u64, mask: u8) -> bool {
        let mut state = self.state();
        let Some(&file) = state.names.get(name) else { return false };
        let Ok(at) = usize::try_from(offset) else { return false };
        let file = &mut state.files[file];
        let Some(byte) = file.cached.get_mut(at) else { return false };
        *byte ^= mask;
        if let Some(byte) = file.durable.get_mut(at) {
            *byte ^= mask;
        }
        for change in &mut file.changes {
            if let Change::Sectors { first, bytes } = change
                && let Some(byte) = at.checked_sub(*first * SECTOR).and_then(|at| bytes.get_mut(at))
            {
                *byte ^= mask;
            }
        }
        true
    }

    /// Returns the disk that the next process finds after a crash of the process alone.
    ///
    /// The page cache survives, and is still not durable.
    pub fn after_process_crash(&self) -> Self {
        let state = self.state();
        Self::found(State {
            files: state.files.clone(),
            vacant: state.vacant.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            name_changes: state.name_changes.clone(),
            random: state.random.clone(),
            step: 0,
            crash_at: None,
            dead: false,
            capacity: state.capacity,
            reserves_by_writing: state.reserves_by_writing,
            hook: None,
            counters: Counters::default(),
        })
    }

    /// Returns the disk that the next process finds after a power loss.
    ///
    /// An arbitrary part of the unsynced changes survives, in arbitrary order, torn at sectors.
    /// Seed 0 keeps no unsynced change, seed 1 all of them.
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let state = self.state();
        let mut fate = Fate::new(seed);
        let mut names = state.durable_names.clone();
        for change in &state.name_changes {
            if fate.keeps_whole() {
                change.apply(&mut names);
            }
        }
        let files: Vec<FileState> = state.files.iter().map(|file| file.after_power_loss(&mut fate)).collect();
        Self::found(State {
            files,
            vacant: state.vacant.clone(),
            durable_names: names.clone(),
            names,
            name_changes: Vec::new(),
            random: Random::new(seed),
            step: 0,
            crash_at: None,
            dead: false,
            capacity: state.capacity,
            reserves_by_writing: state.reserves_by_writing,
            hook: None,
            counters: Counters::default(),
        })
    }

    /// Creates the disk for a new process, which has no open files.
    fn found(mut state: State) -> Self {
        state.files.iter_mut().for_each(|file| file.open = 0);
        state.forget_unreachable();
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, state: &mut State, file: usize) -> Arc<dyn DiskFile> {
        state.files[file].open += 1;
        Arc::new(SimFile { disk: self.clone(), file })
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link { name, file } => {
                names.insert(name.clone(), *file);
            }
            Self::Unlink { name } => {
                names.remove(name);
            }
            Self::Rename { from, to, file } => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }
}

impl State {
    fn used_bytes(&self) -> u64 {
        self.names.values().map(|file| self.files[*file].taken_bytes()).sum()
    }

    fn free_blocks(&self) -> usize {
        let Some(capacity) = self.capacity else { return usize::MAX };
        usize::try_from(capacity.saturating_sub(self.used_bytes()) / BLOCK as u64).unwrap_or(usize::MAX)
    }

    /// Begins an operation. Fails if the process is dead, dies in this step, or the hook returns an
    /// error.
    fn enter(&mut self, kind: OperationKind, name: &str, offset: u64, bytes: u64) -> io::Result<()> {
        if self.dead {
            return Err(dead());
        }
        let operation = Operation { kind, name, offset, bytes, step: self.step };
        let fault = self.hook.as_ref().and_then(|hook| hook(&operation));
        if !matches!(kind, OperationKind::Open | OperationKind::Read) {
            self.dead = self.crash_at == Some(self.step);
            self.step += 1;
        }
        if self.dead {
            return Err(dead());
        }
        fault.map_or(Ok(()), |kind| Err(io::Error::new(kind, "injected fault")))
    }

    fn enter_file(&mut self, kind: OperationKind, file: usize, offset: u64, bytes: u64) -> io::Result<()> {
        let name = std::mem::take(&mut self.files[file].name);
        let entered = self.enter(kind, &name, offset, bytes);
        self.files[file].name = name;
        entered
    }

    fn lookup(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no file {name}")))
    }

    /// Frees files that are closed and have no name, neither now nor after a power loss.
    ///
    /// Otherwise a long run would keep every checkpoint.
    fn forget_unreachable(&mut self) {
        let mut is_reachable: Vec<bool> = self.files.iter().map(|file| file.open > 0).collect();
        let linked = self.name_changes.iter().filter_map(|change| match change {
            NameChange::Link { file, .. } | NameChange::Rename { file, .. } => Some(file),
            NameChange::Unlink { .. } => None,
        });
        let named = self.names.values().chain(self.durable_names.values());
        linked.chain(named).for_each(|&file| is_reachable[file] = true);
        self.vacant.clear();
        for (file, _) in is_reachable.iter().enumerate().filter(|(_, is_reachable)| !**is_reachable) {
            self.files[file] = FileState::new("");
            self.vacant.push(file);
        }
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the virtual disk is full")
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}

impl Disk for SimDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state.enter(OperationKind::Open, name, 0, 0)?;
        let file = state.lookup(name)?;
        Ok(self.handle(&mut state, file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state.enter(OperationKind::Create, name, 0, 0)?;
        if state.names.contains_key(name) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is a file {name}")));
        }
        let file = state.vacant.pop().unwrap_or(state.files.len());
        if file == state.files.len() {
            state.files.push(FileState::new(name));
        } else {
            state.files[file] = FileState::new(name);
        }
        state.change_names(NameChange::Link { name: name.to_owned(), file });
        Ok(self.handle(&mut state, file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.enter(OperationKind::Remove, name, 0, 0)?;
        state.lookup(name)?;
        state.change_names(NameChange::Unlink { name: name.to_owned() });
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.enter(OperationKind::Rename, from, 0, 0)?;
        let file = state.lookup(from)?;
        to.clone_into(&mut state.files[file].name);
        state.change_names(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), file });
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.enter(OperationKind::Read, "", 0, 0)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state();
        state.enter(OperationKind::SyncDirectory, "", 0, 0)?;
        state.counters.directory_syncs += 1;
        state.durable_names = state.names.clone();
        state.name_changes.clear();
        state.forget_unreachable();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let mut state = self.state();
        state.enter(OperationKind::Read, "", 0, 0)?;
        Ok(state.capacity.map_or(1 << 40, |capacity| capacity.saturating_sub(state.used_bytes())))
    }

    fn taken_bytes(&self, name: &str) -> io::Result<u64> {
        let state = self.state();
        let file = state.lookup(name)?;
        Ok(state.files[file].taken_bytes())
    }

    /// Returns whether the marker exists. Only this process can reach the files, so tests rename
    /// the marker to play another program.
    fn is_in_place(&self) -> io::Result<bool> {
        Ok(self.state().names.contains_key(MARKER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn written(disk: &SimDisk) -> Arc<dyn DiskFile> {
        let file = disk.create("a").unwrap();
        file.write_at(0, &[1; 2048]).unwrap();
        file.sync().unwrap();
        disk.sync_directory().unwrap();
        file
    }

    #[test]
    fn synced_state_survives_every_power_loss() {
        let disk = SimDisk::new(1);
        let file = written(&disk);
        file.write_at(512, &[2; 1024]).unwrap();
        disk.remove("a").unwrap();
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let after = disk.after_power_loss(seed);
            if let Some(contents) = after.contents("a") {
                assert_eq!((contents.len(), &contents[..512], &contents[1536..]), (2048, &[1; 512][..], &[1; 512][..]));
                seen.insert((contents[512], contents[1024]));
            }
            assert_eq!(after.contents("a"), after.durable_contents("a"));
        }
        assert_eq!(seen, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)]), "sectors tear in every way");
        assert!(disk.after_power_loss(1).contents("a").is_none(), "seed 1 keeps the removal");
        assert!(disk.after_power_loss(0).contents("a").is_some(), "seed 0 keeps nothing that was not synced");
    }

    #[test]
    fn a_process_crash_keeps_the_page_cache_and_does_not_make_it_durable() {
        let disk = SimDisk::new(1);
        written(&disk).write_at(0, &[7; 512]).unwrap();
        let again = disk.after_process_crash();
        assert_eq!(again.contents("a").unwrap()[..512], [7; 512]);
        assert_eq!(again.after_power_loss(0).contents("a").unwrap()[..512], [1; 512]);
        again.open("a").unwrap().sync().unwrap();
        assert_eq!(again.after_power_loss(0).contents("a").unwrap()[..512], [7; 512]);
    }

    #[test]
    fn operations_after_the_crash_step_fail_and_change_nothing() {
        let disk = SimDisk::new(3);
        let file = written(&disk);
        disk.set_crash_at(disk.steps());
        assert!(file.write_at(0, &[9; 2048]).is_err());
        let after = disk.contents("a").unwrap();
        let torn = after.iter().take_while(|&&byte| byte == 9).count();
        assert!(after[torn..].iter().all(|&byte| byte == 1), "a beginning of the write may be there");
        assert!(file.sync().is_err() && file.read_at(0, &mut [0]).is_err() && disk.create("b").is_err());
        assert_eq!(disk.contents("a").unwrap(), after);
    }

    #[test]
    fn sync_after_a_failed_sync_succeeds_although_pages_are_lost() {
        let lost = (0..20).any(|seed| {
            let disk = SimDisk::new(seed);
            let file = written(&disk);
            file.write_at(0, &[2; 2048]).unwrap();
            disk.fail(OperationKind::Sync, io::ErrorKind::Other);
            file.sync().unwrap_err();
            disk.heal();
            file.sync().unwrap();
            disk.contents("a").unwrap() == [2; 2048] && disk.durable_contents("a").unwrap() != [2; 2048]
        });
        assert!(lost, "a second sync says yes to data that is gone");
    }

    #[test]
    fn full_disk_refuses_new_blocks_and_accepts_overwrites() {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(3 * 4096));
        let file = disk.create("a").unwrap();
        file.allocate(8192).unwrap();
        assert_eq!(disk.free_bytes().unwrap(), 4096);
        assert_eq!(file.allocate(16384).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.write_at(8000, &[1; 8192]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.len().unwrap(), 12288, "what fits is written");
        file.write_at(0, &[2; 12288]).unwrap();
        disk.remove("a").unwrap();
        assert_eq!(disk.free_bytes().unwrap(), 3 * 4096);
    }

    #[test]
    fn removed_file_is_freed_once_closed_with_its_removal_durable() {
        let disk = SimDisk::new(1);
        let file = written(&disk);
        disk.remove("a").unwrap();
        assert_eq!(disk.after_power_loss(0).contents("a").unwrap().len(), 2048, "the removal is not durable");
        disk.sync_directory().unwrap();
        file.read_at(0, &mut [0; 2048]).unwrap();
        drop(file);
        disk.sync_directory().unwrap();
        let bytes = |disk: &SimDisk| disk.state().files.iter().map(|file| file.cached.len()).sum::<usize>();
        assert_eq!(bytes(&disk), 0, "nobody can reach it");
        let again = written(&disk);
        assert_eq!(bytes(&disk), 2048);
        assert_eq!(disk.state().files.len(), 1, "its place is used again");
        disk.remove("a").unwrap();
        disk.sync_directory().unwrap();
        assert_eq!(bytes(&disk.after_process_crash()), 0, "the next process has nothing open");
        again.read_at(0, &mut [0; 2048]).unwrap();
    }

    #[test]
    fn flipped_bit_persists_across_any_power_loss() {
        let disk = SimDisk::new(1);
        written(&disk).write_at(0, &[2; 512]).unwrap();
        assert!(disk.corrupt("a", 3, 0x80));
        assert!(!disk.corrupt("a", 2048, 1) && !disk.corrupt("b", 0, 1));
        assert_eq!(disk.contents("a").unwrap()[3], 0x82);
        assert_eq!(disk.after_power_loss(1).contents("a").unwrap()[3], 0x82);
        assert_eq!(disk.after_power_loss(0).contents("a").unwrap()[3], 0x81);
    }
}
