//! Mounts the volume with FUSE, with a plug that can be pulled.
//!
//! Several threads answer the kernel. A sync takes a while, and other calls go on meanwhile. When
//! the plug is pulled at an operation, the volume at that moment is kept. Every later change or
//! sync blocks until [`Mounted::release`], which the harness calls once the process is killed. So
//! nothing after the cut can be seen or acknowledged.

use crate::random::Random;
use crate::volume::{Ino, Volume};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Only the kernel changes the files, so its cache entries need not expire during a run.
const TTL: Duration = Duration::from_secs(3600);
const BLOCK: u32 = 4096;
/// Log, base, reads and one spare.
const THREADS: usize = 4;
const GENERATION: Generation = Generation(0);
/// Time limit for unmounting.
const LEAVE: Duration = Duration::from_secs(5);
/// Reported size of the file system. The volume grows with use, and a run needs less.
const VOLUME_BYTES: u64 = 8 << 30;

/// Kinds of operation at which a cut may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Any change or sync.
    Any,
    /// A write to a file whose name contains this text.
    Write(&'static str),
    /// A sync of a file whose name contains this text.
    Sync(&'static str),
    /// A change of names, or a sync of the directory.
    Names,
}

/// Point at which the plug is pulled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Kind of operation counted.
    pub kind: Kind,
    /// Which matching operation: 1 is the next.
    pub count: u64,
    /// Whether the cut comes before the operation takes effect, or after it and before its reply.
    pub before: bool,
}

/// An operation as a trigger sees it.
#[derive(Clone, Copy)]
enum Operation {
    Write(Ino),
    Sync(Ino),
    Names,
    Other,
}

impl Kind {
    fn matches(self, operation: Operation, volume: &Volume) -> bool {
        match (self, operation) {
            (Self::Any, _) | (Self::Names, Operation::Names) => true,
            (Self::Write(part), Operation::Write(ino)) | (Self::Sync(part), Operation::Sync(ino)) => {
                volume.name(ino).is_some_and(|name| name.contains(part))
            }
            (Self::Write(_) | Self::Sync(_) | Self::Names, _) => false,
        }
    }
}

/// A mounted volume.
pub struct Mounted {
    session: Option<BackgroundSession>,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    volume: Volume,
    trigger: Option<Trigger>,
    /// The disk at the moment of the cut.
    cut: Option<Volume>,
    /// The process is killed: blocked threads may go on.
    over: bool,
    seen: Seen,
    random: Random,
    syncs: SyncTimes,
    /// Every change is refused, as on a file system that is mounted read-only.
    is_read_only: bool,
}

/// Durations of syncs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyncTimes {
    /// Upper bound of the drawn duration, in microseconds.
    pub us_max: u64,
    /// Number of slow syncs per 1,000.
    pub tail_per_mille: u64,
    /// Duration of a slow sync.
    pub tail: Duration,
    /// Write rate beyond the first block of a sync, in bytes per second; 0: bytes take no time.
    pub bytes_per_second: u64,
}

impl SyncTimes {
    fn draw(&self, random: &mut Random) -> Duration {
        if self.tail_per_mille > 0 && random.below(1000) < self.tail_per_mille {
            return self.tail;
        }
        Duration::from_micros(random.below(self.us_max + 1))
    }

    fn writing(&self, bytes: u64) -> Duration {
        let more = bytes.saturating_sub(BLOCK.into());
        Duration::from_micros(more.saturating_mul(1_000_000).checked_div(self.bytes_per_second).unwrap_or(0))
    }
}

/// Counts of the operations that a server has requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Writes.
    pub writes: u64,
    /// Syncs of log segments.
    pub log_syncs: u64,
    /// Syncs of base files.
    pub base_syncs: u64,
    /// Changes of names and syncs of the directory.
    pub names: u64,
}

impl Seen {
    fn count(&mut self, operation: Operation, volume: &Volume) {
        match operation {
            Operation::Write(_) => self.writes += 1,
            Operation::Sync(ino) if volume.name(ino).is_some_and(|name| name.starts_with("base-")) => {
                self.base_syncs += 1;
            }
            Operation::Sync(ino) if volume.name(ino).is_some_and(|name| name.starts_with("seg-")) => {
                self.log_syncs += 1;
            }
            Operation::Names => self.names += 1,
            Operation::Sync(_) | Operation::Other => {}
        }
    }
}

impl Mounted {
    /// Mounts `volume` over an empty directory; a trigger pulls the plug.
    ///
    /// `random` draws an upper bound first, then the duration of each sync up to that bound.
    ///
    /// # Errors
    /// When the system refuses the mount.
    pub fn new(volume: Volume, directory: &Path, trigger: Option<Trigger>, mut random: Random) -> io::Result<Self> {
        let us_max = *random.pick(&[0, 200, 1000, 3000]);
        Self::with_syncs(volume, directory, trigger, SyncTimes { us_max, ..SyncTimes::default() }, random)
    }

    /// Mounts `volume` with the given sync durations.
    ///
    /// # Errors
    /// As [`Mounted::new`].
    pub fn with_syncs(
        volume: Volume,
        directory: &Path,
        trigger: Option<Trigger>,
        syncs: SyncTimes,
        random: Random,
    ) -> io::Result<Self> {
        let state = State {
            volume,
            trigger,
            cut: None,
            over: false,
            seen: Seen::default(),
            random,
            syncs,
            is_read_only: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("zoolet-powercut".to_owned()), MountOption::NoDev];
        config.n_threads = Some(THREADS);
        let session = fuser::spawn_mount(Server(Arc::clone(&shared)), directory, &config)?;
        Ok(Self { session: Some(session), shared })
    }

    /// Pulls the plug at a later operation.
    pub fn arm(&self, trigger: Trigger) {
        self.shared.state().trigger = Some(trigger);
    }

    /// Sets the sync durations from now on.
    pub fn slow_down(&self, syncs: SyncTimes) {
        self.shared.state().syncs = syncs;
    }

    /// Refuses every change from now on, or accepts changes again.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.shared.state().is_read_only = is_read_only;
    }

    /// Makes every later sync do nothing.
    pub fn lie(&self) {
        self.shared.state().volume.lie();
    }

    /// Waits up to `patience` for the cut; returns whether it happened.
    pub fn wait_for_cut(&self, patience: Duration) -> bool {
        let state = self.shared.state();
        let waited = self.shared.changed.wait_timeout_while(state, patience, |state| state.cut.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.cut.is_some()
    }

    /// Returns whether the plug was pulled.
    pub fn is_cut(&self) -> bool {
        self.shared.state().cut.is_some()
    }

    /// Pulls the plug now, unless it is already pulled.
    pub fn cut_now(&self) {
        let mut state = self.shared.state();
        if state.cut.is_none() {
            state.cut = Some(state.volume.clone());
        }
        self.shared.changed.notify_all();
    }

    /// Unblocks waiting threads; call it after the process was sent SIGKILL.
    pub fn release(&self) {
        self.shared.state().over = true;
        self.shared.changed.notify_all();
    }

    /// Returns the counts so far.
    pub fn seen(&self) -> Seen {
        self.shared.state().seen
    }

    /// Unmounts after the process has exited; returns the disk at the cut, or now without a cut.
    ///
    /// # Errors
    /// When something still holds the mount.
    pub fn unmount(mut self) -> io::Result<Volume> {
        self.release();
        if let Some(session) = self.session.take() {
            let (done, is_done) = mpsc::channel();
            std::thread::spawn(move || done.send(session.umount_and_join()));
            match is_done.recv_timeout(LEAVE) {
                // Unmounting races with the thread that serves the kernel, which may see an aborted
                // connection.
                Ok(Err(error)) if error.kind() != io::ErrorKind::ConnectionAborted => return Err(error),
                // A mount namespace created meanwhile also holds the mount. The kernel then keeps
                // the connection until that namespace ends.
                Ok(_) | Err(_) => {}
            }
        }
        let mut state = self.shared.state();
        let now = std::mem::replace(&mut state.volume, Volume::new(crate::volume::Rules::Bare));
        Ok(state.cut.take().unwrap_or(now))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.release();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a change or a sync, or cuts the power at it.
    fn change<T>(
        &self,
        operation: Operation,
        carry_out: impl FnOnce(&mut Volume) -> io::Result<T>,
    ) -> Result<T, Errno> {
        let mut guard = self.state();
        if guard.cut.is_some() {
            return Err(self.held(guard));
        }
        if guard.is_read_only && !matches!(operation, Operation::Sync(_)) {
            return Err(Errno::EROFS);
        }
        let State { volume, trigger, cut, seen, .. } = &mut *guard;
        seen.count(operation, volume);
        let is_due = trigger.as_mut().is_some_and(|trigger| {
            let matches = trigger.kind.matches(operation, volume);
            trigger.count -= u64::from(matches);
            matches && trigger.count == 0
        });
        if !is_due {
            return carry_out(volume).map_err(Errno::from);
        }
        if trigger.take().is_some_and(|trigger| !trigger.before) {
            // The caller never receives this result.
            let _ = carry_out(volume);
        }
        *cut = Some(volume.clone());
        self.changed.notify_all();
        Err(self.held(guard))
    }

    /// Carries out a sync: it takes a while, and covers the changes made before it began.
    fn sync(
        &self,
        operation: Operation,
        carry_out: impl FnOnce(&mut Volume, u64) -> io::Result<()>,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        let until = state.volume.now();
        let State { volume, syncs, random, .. } = &mut *state;
        let bytes = match operation {
            Operation::Sync(ino) => volume.unsynced_bytes(ino, until),
            Operation::Write(_) | Operation::Names | Operation::Other => 0,
        };
        let pause = syncs.draw(random) + syncs.writing(bytes);
        drop(state);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        self.change(operation, |volume| carry_out(volume, until))
    }

    fn held(&self, state: MutexGuard<'_, State>) -> Errno {
        drop(self.changed.wait_while(state, |state| !state.over));
        Errno::EIO
    }
}

/// Answers the kernel's requests.
struct Server(Arc<Shared>);

impl Server {
    fn attributes(volume: &Volume, ino: Ino) -> Option<FileAttr> {
        if ino == INodeNo::ROOT.0 {
            return Some(attributes(ino, FileType::Directory, 0));
        }
        Some(attributes(ino, FileType::RegularFile, volume.read(ino).ok()?.len() as u64))
    }

    fn entry(&self, name: &OsStr) -> Result<FileAttr, Errno> {
        let state = self.0.state();
        let ino = name.to_str().and_then(|name| state.volume.lookup(name)).ok_or(Errno::ENOENT)?;
        Self::attributes(&state.volume, ino).ok_or(Errno::ENOENT)
    }
}

fn attributes(ino: Ino, kind: FileType, size: u64) -> FileAttr {
    let (perm, nlink) = if kind == FileType::Directory { (0o755, 2) } else { (0o644, 1) };
    let time: SystemTime = UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

fn plain(name: &OsStr) -> io::Result<&str> {
    name.to_str().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn answer(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // One write per log batch, instead of one per page.
        let _ = config.add_capabilities(InitFlags::FUSE_BIG_WRITES);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.entry(name) {
            Ok(attributes) => reply.entry(&TTL, &attributes, GENERATION),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match Self::attributes(&self.0.state().volume, ino.0) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(size) = size
            && let Err(error) = self.0.change(Operation::Other, |volume| volume.set_len(ino.0, size))
        {
            return reply.error(error);
        }
        match Self::attributes(&self.0.state().volume, ino.0) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.0.change(Operation::Names, |volume| volume.remove(plain(name)?)));
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        answer(reply, self.0.change(Operation::Names, |volume| volume.rename(plain(name)?, plain(new_name)?)));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.0.change(Operation::Names, |volume| volume.create(plain(name)?)) {
            Ok(ino) => {
                let attributes = attributes(ino, FileType::RegularFile, 0);
                reply.created(&TTL, &attributes, GENERATION, FileHandle(0), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.0.state();
        match state.volume.read(ino.0) {
            Ok(content) => {
                let from = content.len().min(offset as usize);
                let to = content.len().min(from + size as usize);
                reply.data(&content[from..to]);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.change(Operation::Write(ino.0), |volume| volume.write(ino.0, offset, data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer(reply, self.0.sync(Operation::Sync(ino.0), |volume, until| volume.sync(ino.0, until)));
    }

    fn fsyncdir(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let sync = |volume: &mut Volume, until| {
            volume.sync_names(until);
            Ok(())
        };
        answer(reply, self.0.sync(Operation::Names, sync));
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // Hole punching and other modes.
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        answer(reply, self.0.change(Operation::Other, |volume| volume.allocate(ino.0, offset + length)));
    }

    fn readdir(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let state = self.0.state();
        let own = [(".", INodeNo::ROOT.0, FileType::Directory), ("..", INodeNo::ROOT.0, FileType::Directory)];
        let files = state.volume.names().map(|(name, ino)| (name, ino, FileType::RegularFile));
        for (place, (name, ino, kind)) in own.into_iter().chain(files).enumerate().skip(offset as usize) {
            if reply.add(INodeNo(ino), place as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let state = self.0.state();
        let free = VOLUME_BYTES.saturating_sub(state.volume.bytes()) / u64::from(BLOCK);
        reply.statfs(VOLUME_BYTES / u64::from(BLOCK), free, free, 1 << 20, 1 << 20, BLOCK, 255, BLOCK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_write_time_grows_with_bytes_beyond_the_first_block() {
        let syncs = SyncTimes { bytes_per_second: 1 << 20, ..SyncTimes::default() };
        let took = [0, 4096, 4096 + (1 << 19), 4096 + (3 << 20)].map(|bytes| syncs.writing(bytes).as_millis());
        assert_eq!(took, [0, 0, 500, 3000]);
        assert_eq!(SyncTimes::default().writing(1 << 30), Duration::ZERO);
    }
}
