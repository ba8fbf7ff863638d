//! A [`Disk`] on a directory of the real file system.

use super::disk::{Disk, DiskFile};
use super::marker::MARKER;
use super::open_names::{FileId, Names};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode};
use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Lock file; its lock marks the directory as in use.
///
/// Its text is the holder's process id. [`Disk::list`] leaves it out.
const LOCK: &str = "LOCK";

/// Mode of files in a locked directory. ACLs protect znodes from clients; this mode protects the
/// files from other users of the machine.
const PRIVATE: u32 = 0o600;

/// Mode of files in a directory shared with others.
const PUBLIC: u32 = 0o644;

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// How the log uses its segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// Overwrite a ring of preallocated, already written segments in place. Cheapest where the file
    /// system keeps a block where it is.
    Recycle,
    /// Let new segments grow and delete old ones. On a file system that relocates blocks on each
    /// write, overwriting in place costs a copy and preallocation reserves nothing.
    Append,
}

/// File system type, as identified by the kernel's magic number (linux/magic.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "they are called what everybody calls them")]
pub enum FileSystem {
    Ext,
    Xfs,
    Tmpfs,
    Btrfs,
    F2fs,
    Ubifs,
    Overlay,
    Nfs,
    Fuse,
    /// Any other type, with its magic number.
    Other(u32),
}

impl FileSystem {
    /// Returns the type with this magic number.
    pub const fn of_magic(magic: u32) -> Self {
        match magic {
            0xef53 => Self::Ext,
            0x5846_5342 => Self::Xfs,
            0x0102_1994 => Self::Tmpfs,
            0x9123_683e => Self::Btrfs,
            0xf2f5_2010 => Self::F2fs,
            0x2405_1905 => Self::Ubifs,
            0x794c_7630 => Self::Overlay,
            0x6969 => Self::Nfs,
            0x6573_5546 => Self::Fuse,
            other => Self::Other(other),
        }
    }

    /// Returns the kernel's magic number.
    pub const fn magic(self) -> u32 {
        match self {
            Self::Ext => 0xef53,
            Self::Xfs => 0x5846_5342,
            Self::Tmpfs => 0x0102_1994,
            Self::Btrfs => 0x9123_683e,
            Self::F2fs => 0xf2f5_2010,
            Self::Ubifs => 0x2405_1905,
            Self::Overlay => 0x794c_7630,
            Self::Nfs => 0x6969,
            Self::Fuse => 0x6573_5546,
            Self::Other(magic) => magic,
        }
    }

    /// Returns the common name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext => "ext4",
            Self::Xfs => "xfs",
            Self::Tmpfs => "tmpfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
            Self::Ubifs => "ubifs",
            Self::Overlay => "overlayfs",
            Self::Nfs => "nfs",
            Self::Fuse => "fuse",
            Self::Other(_) => "an unknown file system",
        }
    }

    /// Returns the log strategy that suits this file system.
    ///
    /// A type not known to overwrite blocks in place gets [`Strategy::Append`].
    pub const fn strategy(self) -> Strategy {
        match self {
            Self::Ext | Self::Xfs | Self::Tmpfs => Strategy::Recycle,
            Self::Btrfs | Self::F2fs | Self::Ubifs | Self::Overlay | Self::Nfs | Self::Fuse | Self::Other(_) => {
                Strategy::Append
            }
        }
    }

    /// Returns how the log uses its segments here, in words for the operator.
    pub const fn use_of_log(self) -> &'static str {
        match self.strategy() {
            Strategy::Recycle => "overwrites its segments in place",
            Strategy::Append => "appends to new segments",
        }
    }

    /// Returns a warning for data kept here, if the file system needs one.
    pub const fn warning(self) -> Option<&'static str> {
        match self {
            Self::Tmpfs => Some("tmpfs is memory: its files are lost with the power; put the data on a disk"),
            Self::Overlay => Some(
                "overlayfs: its files may be lost with the container or at the next start of the box; put the data on a separate file system",
            ),
            Self::Nfs => Some("nfs: a remote server keeps the data and decides when it is durable"),
            Self::Ext | Self::Xfs | Self::Btrfs | Self::F2fs | Self::Ubifs | Self::Fuse | Self::Other(_) => None,
        }
    }
}

/// A directory of the real file system, locked until dropped unless shared.
///
/// All operations use the opened directory itself, so they follow it if another program moves it.
#[derive(Debug)]
pub struct FsDisk {
    path: PathBuf,
    directory: File,
    /// The lock file, or `None` in a shared directory. Its lock and the directory's lock end with
    /// their descriptors, so a killed process leaves none behind.
    lock: Option<File>,
    /// Every write fails, also on a file system that accepts it.
    is_read_only: bool,
    names: Arc<Names>,
}

impl FsDisk {
    /// Opens an existing directory and locks it.
    ///
    /// Only the owner can read new files, regardless of the umask.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another process holds the directory,
    /// [`io::ErrorKind::NotFound`] if it does not exist, else the file system's error.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        // Lock the directory too: another program may remove the lock file and create a new one.
        match directory.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(in_use(path)),
            // Some file systems cannot lock directories; the lock file alone must do there.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let lock = Some(lock(path)?);
        Ok(Self { path: path.to_path_buf(), directory, lock, is_read_only: false, names: Arc::default() })
    }

    /// Opens an existing directory for reading only.
    ///
    /// Works on a read-only file system, and changes nothing on any other: every write fails with
    /// [`io::ErrorKind::ReadOnlyFilesystem`]. Other readers may open the directory too. No process can
    /// [open](FsDisk::open) it for writing meanwhile, if the file system can lock a directory.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another process holds the directory for writing,
    /// [`io::ErrorKind::NotFound`] if it does not exist, else the file system's error.
    pub fn read_only(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        // The lock file cannot be created, so the directory's lock alone must do.
        match directory.try_lock_shared() {
            Err(TryLockError::WouldBlock) => return Err(in_use(path)),
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        Ok(Self { path: path.to_path_buf(), directory, lock: None, is_read_only: true, names: Arc::default() })
    }

    /// Opens an existing directory that other programs use too.
    ///
    /// Takes no lock and creates no lock file. All users can read new files, regardless of the
    /// umask.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the directory does not exist, else the file system's error.
    pub fn shared(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        Ok(Self { path: path.to_path_buf(), directory, lock: None, is_read_only: false, names: Arc::default() })
    }

    /// Returns the type of the directory's file system.
    ///
    /// # Errors
    /// The error from `fstatfs`.
    pub fn file_system(&self) -> io::Result<FileSystem> {
        // `f_type` is signed on some machines and has 32 bits on others.
        #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "it is a number of 32 bits")]
        Ok(FileSystem::of_magic(rustix::fs::fstatfs(&self.directory)?.f_type as u32))
    }

    fn file(&self, name: &str, flags: OFlags, mode: u32) -> io::Result<FsFile> {
        let name = plain(name)?;
        let access = if self.is_read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let flags = flags | access | OFlags::CLOEXEC;
        // `RawMode` is narrower than `u32` on some systems.
        let mode = Mode::from_raw_mode(mode as RawMode);
        // A signal can interrupt `openat` on some file systems, such as FUSE and NFS.
        let open = || rustix::io::retry_on_intr(|| rustix::fs::openat(&self.directory, name, flags, mode));
        let open = || Ok(File::from(open()?));
        let (file, id) = self.names.open(name, open)?;
        Ok(FsFile { file, is_read_only: self.is_read_only, id, names: Arc::clone(&self.names) })
    }

    fn check_writable(&self) -> io::Result<()> {
        check_writable(self.is_read_only)
    }

    /// Returns whether a name is a regular file. Some file systems list no types; `statat` tells
    /// there.
    fn is_file(&self, name: &str, listed: FileType) -> io::Result<bool> {
        if listed != FileType::Unknown {
            return Ok(listed == FileType::RegularFile);
        }
        let stat = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(stat.st_mode as RawMode) == FileType::RegularFile)
    }
}

fn check_writable(is_read_only: bool) -> io::Result<()> {
    if is_read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
}

/// Checks that a name is a plain file name, and not the lock file's name.
fn plain(name: &str) -> io::Result<&str> {
    let is_plain = !name.is_empty() && name != "." && name != ".." && name != LOCK && !name.contains(['/', '\0']);
    if is_plain {
        Ok(name)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a plain file name")))
    }
}

fn lock(path: &Path) -> io::Result<File> {
    // Another user who can open the lock file could lock it and keep the server from starting.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE);
    // Following a symbolic link would truncate the file it leads to, even if another user owns it.
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let mut file = options.open(path.join(LOCK)).map_err(|error| match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::LOOP) => io::Error::other("LOCK is a symbolic link: remove it"),
        _ => error,
    })?;
    has_mode(&file, PRIVATE)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use(path)),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // The process id helps an operator find the holder. Ignore errors: a full disk must not prevent
    // the start.
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

/// Sets a file's mode exactly, despite the umask.
///
/// File systems without modes, such as FAT, refuse the change; there the mount options decide who
/// can read.
fn has_mode(file: &File, mode: u32) -> io::Result<()> {
    if file.metadata()?.permissions().mode() & 0o777 == mode {
        return Ok(());
    }
    match file.set_permissions(Permissions::from_mode(mode)) {
        // The file belongs to another user, or the file system has no modes. `make_private` reports
        // a directory that stays accessible.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => Ok(()),
        other => other,
    }
}

/// Result of [`make_private`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Mode bits of the directory before the change.
    pub mode: u32,
    /// Number of files that others could access before the change.
    pub files: usize,
    /// Whether others can still access the directory.
    ///
    /// Three causes: this process does not own it, or the file system has no modes or is read-only.
    pub is_still_open: bool,
}

/// Removes other users' access to a data directory (0700) and its files (0600).
///
/// Returns `None` if other users had no access. Files named in `except`, symbolic links and
/// subdirectories keep their modes.
///
/// # Errors
/// The error from reading the directory or changing a mode.
pub fn make_private(path: &Path, except: &[&str]) -> io::Result<Option<Opened>> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
    let mut opened = Opened { mode, files: 0, is_still_open: false };
    if mode & OTHERS != 0 {
        opened.is_still_open = !takes_from_others(path, mode)?;
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // Metadata of the entry itself, not of a link's target.
        let Ok(metadata) = entry.metadata() else { continue };
        let mode = metadata.permissions().mode() & 0o7777;
        let is_kept = entry.file_name().to_str().is_some_and(|name| except.contains(&name));
        if metadata.is_file() && mode & OTHERS != 0 && !is_kept {
            opened.files += 1;
            takes_from_others(&entry.path(), mode)?;
        }
    }
    Ok((mode & OTHERS != 0 || opened.files > 0).then_some(opened))
}

/// Removes other users' rights; returns whether they are gone.
fn takes_from_others(path: &Path, mode: u32) -> io::Result<bool> {
    match fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)) {
        // FAT accepts some modes without applying them.
        Ok(()) => Ok(fs::metadata(path)?.permissions().mode() & OTHERS == 0),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => Ok(false),
        // Another process removed the file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        // The file system has turned read-only after an error; the next write reports it.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(false),
        Err(error) => Err(error),
    }
}

fn in_use(path: &Path) -> io::Error {
    // The process id is used only in the message: a holder may not have written it yet.
    let holder = fs::read_to_string(path.join(LOCK)).unwrap_or_default();
    let holder = if holder.is_empty() { "another process".into() } else { format!("process {holder}") };
    io::Error::new(io::ErrorKind::ResourceBusy, format!("{} is in use by {holder}", path.display()))
}

impl Disk for FsDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.file(name, OFlags::empty(), 0)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.check_writable()?;
        let mode = if self.lock.is_some() { PRIVATE } else { PUBLIC };
        let file = self.file(name, OFlags::CREATE | OFlags::EXCL, mode)?;
        has_mode(&file.file, mode)?;
        Ok(Arc::new(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        let name = plain(name)?;
        self.names.change(name, None, || Ok(rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_writable()?;
        let (from, to) = (plain(from)?, plain(to)?);
        let rename = || Ok(rustix::fs::renameat(&self.directory, from, &self.directory, to)?);
        self.names.change(from, Some(to), rename)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.directory)? {
            let entry = entry?;
            // Skip directories and names that are not UTF-8: zoolet creates neither.
            if let Ok(name) = entry.file_name().to_str()
                && name != LOCK
                && self.is_file(name, entry.file_type())?
            {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let space = rustix::fs::fstatvfs(&self.directory)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn taken_bytes(&self, name: &str) -> io::Result<u64> {
        let stat = rustix::fs::statat(&self.directory, plain(name)?, AtFlags::empty())?;
        // `st_blocks` counts units of 512 bytes regardless of the block size.
        Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        self.names.are_in_place(&self.directory, &self.path, MARKER)
    }
}

#[derive(Debug)]
struct FsFile {
    file: File,
    is_read_only: bool,
    id: FileId,
    names: Arc<Names>,
}

impl Drop for FsFile {
    fn drop(&mut self) {
        self.names.close(self.id);
    }
}

impl DiskFile for FsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_writable(self.is_read_only)?;
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        check_writable(self.is_read_only)?;
        self.file.set_len(bytes)
    }

    fn forget_cached(&self) -> io::Result<()> {
        use rustix::{fs::Advice, io::Errno};
        match rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed) {
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn allocate(&self, bytes: u64) -> io::Result<u64> {
        use rustix::{fs::FallocateFlags, io::Errno};
        check_writable(self.is_read_only)?;
        if bytes == 0 {
            return Ok(0);
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => return Ok(0),
                Err(Errno::INTR) => {}
                // UBIFS and NFS before 4.2 have no fallocate; writing is the only way to reserve
                // space.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.fill_to(bytes),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl FsFile {
    fn fill_to(&self, bytes: u64) -> io::Result<u64> {
        let at = self.len()?;
        self.write_zeroes(at..bytes)?;
        Ok(bytes.saturating_sub(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TempDir(PathBuf);

    impl TempDir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("zoolet-fs-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_are_private_in_held_and_readable_in_shared_directories() {
        let dir = TempDir::new("modes");
        let held = FsDisk::open(&dir.0).unwrap();
        held.create("seg-00.log").unwrap();
        drop(held);
        FsDisk::shared(&dir.0).unwrap().create("conf.image").unwrap();
        let modes = ["LOCK", "seg-00.log", "conf.image"].map(|name| mode(&dir.0.join(name)));
        assert_eq!(modes, [0o600, 0o600, 0o644]);
    }

    #[test]
    fn make_private_removes_access_of_other_users() {
        let dir = TempDir::new("opened");
        let (kept, read, elsewhere) = (dir.0.join("site.key"), dir.0.join("base-1.redb"), TempDir::new("elsewhere"));
        let target = elsewhere.0.join("target");
        for file in [&kept, &read, &target] {
            fs::write(file, "").unwrap();
            fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
        }
        std::os::unix::fs::symlink(&target, dir.0.join("link")).unwrap();
        fs::set_permissions(&dir.0, Permissions::from_mode(0o755)).unwrap();
        let opened = Opened { mode: 0o755, files: 1, is_still_open: false };
        assert_eq!(make_private(&dir.0, &["site.key"]).unwrap(), Some(opened));
        assert_eq!([&dir.0, &read, &kept, &target].map(|path| mode(path)), [0o700, 0o600, 0o644, 0o644]);
        assert_eq!(make_private(&dir.0, &["site.key"]).unwrap(), None);
    }

    /// Creates a locked directory with its marker and one open file.
    fn kept(dir: &TempDir) -> (PathBuf, FsDisk, Arc<dyn DiskFile>) {
        let path = dir.0.join("data");
        fs::create_dir(&path).unwrap();
        let disk = FsDisk::open(&path).unwrap();
        disk.create(MARKER).unwrap();
        let open = disk.create("c").unwrap();
        (path, disk, open)
    }

    #[test]
    fn removed_or_replaced_open_files_are_detected() {
        let dir = TempDir::new("in-place");
        let (path, disk, open) = kept(&dir);
        let is_in_place = || disk.is_in_place().unwrap();
        let (file, moved) = (path.join("c"), dir.0.join("moved"));
        assert!(is_in_place());
        fs::rename(&file, &moved).unwrap();
        assert!(!is_in_place(), "it is gone");
        fs::copy(&moved, &file).unwrap();
        assert!(!is_in_place(), "a copy has its name");
        disk.open("c").unwrap();
        assert!(!is_in_place(), "the copy was opened");
        fs::rename(&moved, &file).unwrap();
        assert!(is_in_place(), "it is back");
        fs::remove_file(&file).unwrap();
        assert!(!is_in_place(), "it is gone");
        drop(open);
        assert!(is_in_place(), "nobody writes it");
        fs::remove_file(path.join(MARKER)).unwrap();
        assert!(!is_in_place(), "no start takes a directory without its marker");
    }

    #[test]
    fn renames_and_removals_by_the_process_itself_raise_no_alarm() {
        let dir = TempDir::new("own-changes");
        let (path, disk, _c) = kept(&dir);
        let (_a, _b) = (disk.create("a").unwrap(), disk.create("b").unwrap());
        disk.rename("b", "a").unwrap();
        disk.rename("a", "c").unwrap();
        assert!(disk.is_in_place().unwrap());
        fs::remove_file(path.join("c")).unwrap();
        assert!(!disk.is_in_place().unwrap());
        assert_eq!(disk.remove("c").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(disk.is_in_place().unwrap(), "it was to be removed");
    }

    /// The server keeps working in the moved directory, so moving it back loses nothing.
    #[test]
    fn moved_directory_is_detected_and_stays_usable() {
        let dir = TempDir::new("moved");
        let (path, disk, _open) = kept(&dir);
        let moved = dir.0.join("elsewhere");
        fs::rename(&path, &moved).unwrap();
        assert!(!disk.is_in_place().unwrap(), "it is gone");
        fs::create_dir(&path).unwrap();
        for name in ["c", MARKER] {
            fs::copy(moved.join(name), path.join(name)).unwrap();
        }
        assert!(!disk.is_in_place().unwrap(), "a copy has its path");
        let _new = disk.create("new").unwrap();
        disk.rename("new", "newer").unwrap();
        assert_eq!(disk.list().unwrap(), [MARKER, "c", "newer"]);
        fs::remove_dir_all(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(!disk.is_in_place().unwrap(), "a file has its path");
        fs::remove_file(&path).unwrap();
        fs::rename(&moved, &path).unwrap();
        assert!(disk.is_in_place().unwrap(), "it is back");
        assert!(path.join("newer").is_file());
    }

    #[test]
    fn symlink_in_place_of_the_lock_file_is_refused_untouched() {
        let dir = TempDir::new("lock-link");
        let other = dir.0.join("other");
        fs::write(&other, "of somebody else").unwrap();
        fs::create_dir(dir.0.join("data")).unwrap();
        std::os::unix::fs::symlink(&other, dir.0.join("data").join(LOCK)).unwrap();
        let refused = FsDisk::open(&dir.0.join("data")).unwrap_err();
        assert!(refused.to_string().contains("LOCK is a symbolic link"), "{refused}");
        assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
    }

    #[test]
    fn second_opener_is_refused_with_the_holders_process_id() {
        let dir = TempDir::new("lock");
        let first = FsDisk::open(&dir.0).unwrap();
        let refused = FsDisk::open(&dir.0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
        drop(first);
        FsDisk::open(&dir.0).unwrap();
    }

    #[test]
    fn read_only_directory_is_read_without_any_change() {
        let dir = TempDir::new("read-only");
        let writer = FsDisk::open(&dir.0).unwrap();
        writer.create("a").unwrap().write_at(0, b"abc").unwrap();
        let refusal = |opened: io::Result<FsDisk>| opened.unwrap_err().kind();
        assert_eq!(refusal(FsDisk::read_only(&dir.0)), io::ErrorKind::ResourceBusy, "a writer holds it");
        drop(writer);
        fs::remove_file(dir.0.join(LOCK)).unwrap();
        let (disk, _other) = (FsDisk::read_only(&dir.0).unwrap(), FsDisk::read_only(&dir.0).unwrap());
        assert_eq!(refusal(FsDisk::open(&dir.0)), io::ErrorKind::ResourceBusy, "readers hold it");
        let file = disk.open("a").unwrap();
        let mut read = [0; 3];
        file.read_at(0, &mut read).unwrap();
        assert_eq!(&read, b"abc");
        let writes = [
            file.write_at(0, b"x"),
            file.write_zeroes(0..1),
            file.set_len(1),
            file.allocate(8192).map(drop),
            disk.create("b").map(drop),
            disk.remove("a"),
            disk.rename("a", "b"),
        ];
        for write in writes {
            assert_eq!(write.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        }
        // Syncs pass through: they show whether the file system has shut itself off.
        file.sync().unwrap();
        disk.sync_directory().unwrap();
        assert!(!dir.0.join(LOCK).exists());
        assert_eq!((disk.list().unwrap(), file.len().unwrap()), (vec!["a".to_owned()], 3));
    }

    #[test]
    fn removing_the_lock_file_does_not_release_the_directory() {
        let dir = TempDir::new("unlinked");
        let first = FsDisk::open(&dir.0).unwrap();
        fs::remove_file(dir.0.join(LOCK)).unwrap();
        assert_eq!(FsDisk::open(&dir.0).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        FsDisk::open(&dir.0).unwrap();
    }

    #[test]
    fn opening_a_missing_directory_does_not_create_it() {
        let dir = TempDir::new("missing");
        assert_eq!(FsDisk::open(&dir.0.join("mount")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn file_keeps_written_bytes_across_allocate_and_rename() {
        let dir = TempDir::new("files");
        let disk = FsDisk::open(&dir.0).unwrap();
        let file = disk.create("a").unwrap();
        assert_eq!(disk.create("a").err().map(|error| error.kind()), Some(io::ErrorKind::AlreadyExists));
        file.allocate(8192).unwrap();
        file.write_at(8190, b"abcd").unwrap();
        file.allocate(4096).unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 8194);
        disk.rename("a", "b").unwrap();
        disk.sync_directory().unwrap();
        assert_eq!(disk.list().unwrap(), ["b"]);
        let mut read = [0; 6];
        disk.open("b").unwrap().read_at(8188, &mut read).unwrap();
        assert_eq!(&read, b"\0\0abcd");
        assert_eq!(file.read_at(8192, &mut read).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(disk.free_bytes().unwrap() > 0);
        disk.remove("b").unwrap();
        assert!(disk.list().unwrap().is_empty());
    }

    #[test]
    fn file_names_that_are_paths_or_reserved_are_refused() {
        let dir = TempDir::new("names");
        let disk = FsDisk::open(&dir.0).unwrap();
        for name in ["", ".", "..", "a/b", "/etc", "LOCK", "a\0"] {
            let error = disk.create(name).err().map(|error| error.kind());
            assert_eq!(error, Some(io::ErrorKind::InvalidInput), "{name:?}");
        }
    }

    #[test]
    fn copy_on_write_file_systems_use_the_append_strategy() {
        let recycle = [0xef53, 0x5846_5342, 0x0102_1994];
        let append = [0xf2f5_2010, 0x9123_683e, 0x2405_1905, 0x794c_7630, 0];
        assert!(recycle.into_iter().all(|magic| FileSystem::of_magic(magic).strategy() == Strategy::Recycle));
        assert!(append.into_iter().all(|magic| FileSystem::of_magic(magic).strategy() == Strategy::Append));
        assert!(recycle.into_iter().chain(append).all(|magic| FileSystem::of_magic(magic).magic() == magic));
    }
}
