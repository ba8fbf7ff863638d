//! A directory of the real file system.

use super::disk::{Disk, DiskFile};
use super::marker::MARKER;
use super::names::{FileId, Names};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode};
use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The file whose lock says that a process uses the directory, and whose text says which. Never listed.
const LOCK: &str = "LOCK";

/// Mode of a file in a directory that one process holds: ACLs keep znodes from clients, and this keeps them from other
/// users of the machine.
const PRIVATE: u32 = 0o600;

/// Mode of a file in a directory that others use too.
const PUBLIC: u32 = 0o644;

/// Mode bits of the group and of everybody else.
const OTHERS: u32 = 0o077;

/// How the log uses its segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// A ring of preallocated, already written segments, overwritten in place: cheapest where a block stays where it is.
    Recycle,
    /// New segments grow and old ones are deleted: on a file system that writes elsewhere anyway, overwriting in place
    /// costs a copy and reserves nothing.
    Append,
}

/// What a directory is on, as far as the kernel's number of it says (linux/magic.h).
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
    /// Any other one, with its number.
    Other(u32),
}

impl FileSystem {
    /// The one with that number.
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

    /// The kernel's number of it.
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

    /// As people call it.
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
            Self::Other(_) => "a file system that is not known here",
        }
    }

    /// The log strategy that suits it. What is not known to overwrite in place is treated as if it did not.
    pub const fn strategy(self) -> Strategy {
        match self {
            Self::Ext | Self::Xfs | Self::Tmpfs => Strategy::Recycle,
            Self::Btrfs | Self::F2fs | Self::Ubifs | Self::Overlay | Self::Nfs | Self::Fuse | Self::Other(_) => {
                Strategy::Append
            }
        }
    }

    /// What that makes of the log, for people.
    pub const fn use_of_log(self) -> &'static str {
        match self.strategy() {
            Strategy::Recycle => "overwrites its segments in place",
            Strategy::Append => "appends to new segments",
        }
    }

    /// What whoever keeps data there should know.
    pub const fn warning(self) -> Option<&'static str> {
        match self {
            Self::Tmpfs => Some("tmpfs is memory: what is kept there is gone with the power; put the data on a disk"),
            Self::Overlay => Some(
                "overlayfs: what is kept there may be gone with the container or the next start of the box; put the data on a file system of its own",
            ),
            Self::Nfs => Some("nfs: a server elsewhere keeps the data, and says when it is durable"),
            Self::Ext | Self::Xfs | Self::Btrfs | Self::F2fs | Self::Ubifs | Self::Fuse | Self::Other(_) => None,
        }
    }
}

/// A directory of the real file system, held by this process alone until dropped. Files are made, found, renamed and removed in the directory that was
/// opened, wherever somebody moves it.
#[derive(Debug)]
pub struct FsDisk {
    path: PathBuf,
    directory: File,
    /// This lock and the directory's go with the descriptor, so a killed process leaves none behind. `None` in a directory that is everybody's.
    lock: Option<File>,
    names: Arc<Names>,
}

impl FsDisk {
    /// Opens an existing directory and locks it. What is made there only its owner may read, whatever the process's umask is.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] when another process holds it, [`io::ErrorKind::NotFound`] when there is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        // The file has a name, which somebody may remove; the directory is what is used, so it is locked too.
        match directory.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(in_use(path)),
            // Some file systems lock no directories; then the file alone must do.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let lock = Some(lock(path)?);
        Ok(Self { path: path.to_path_buf(), directory, lock, names: Arc::default() })
    }

    /// Opens an existing directory that others use too: nothing is locked, and nothing left in it. What is made there everybody may read, whatever the
    /// process's umask is.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none.
    pub fn shared(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), directory: File::open(path)?, lock: None, names: Arc::default() })
    }

    /// What it is on.
    ///
    /// # Errors
    /// Whatever asking the file system says.
    pub fn file_system(&self) -> io::Result<FileSystem> {
        // Signed on some machines, of 32 bits on others.
        #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "it is a number of 32 bits")]
        Ok(FileSystem::of_magic(rustix::fs::fstatfs(&self.directory)?.f_type as u32))
    }

    fn file(&self, name: &str, flags: OFlags, mode: u32) -> io::Result<FsFile> {
        let name = plain(name)?;
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        // Numbers of mode bits are narrower on some systems.
        let mode = Mode::from_raw_mode(mode as RawMode);
        // A signal interrupts an open on some file systems, such as FUSE and NFS.
        let open = || rustix::io::retry_on_intr(|| rustix::fs::openat(&self.directory, name, flags, mode));
        let open = || Ok(File::from(open()?));
        let (file, id) = self.names.open(name, open)?;
        Ok(FsFile { file, id, names: Arc::clone(&self.names) })
    }

    /// Whether it is a file and no link, directory or device. Some file systems do not say so in a list.
    fn is_file(&self, name: &str, listed: FileType) -> io::Result<bool> {
        if listed != FileType::Unknown {
            return Ok(listed == FileType::RegularFile);
        }
        let stat = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(stat.st_mode as RawMode) == FileType::RegularFile)
    }
}

/// A name of a file in the directory itself.
fn plain(name: &str) -> io::Result<&str> {
    let is_plain = !name.is_empty() && name != "." && name != ".." && name != LOCK && !name.contains(['/', '\0']);
    if is_plain {
        Ok(name)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no plain file name")))
    }
}

fn lock(path: &Path) -> io::Result<File> {
    // Who may open the file may lock it, and keep the server from starting.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE);
    // Through a link the file that it leads to, anybody's, would be emptied.
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
    // For people who wonder who holds the directory; a full disk must not keep the server from starting.
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

/// Gives a file its mode, which the umask may have lessened. File systems without modes, such as
/// FAT, refuse to change them: there the mount says who may read.
fn has_mode(file: &File, mode: u32) -> io::Result<()> {
    if file.metadata()?.permissions().mode() & 0o777 == mode {
        return Ok(());
    }
    match file.set_permissions(Permissions::from_mode(mode)) {
        // Another user's file, or a file system without modes: `make_private` says so.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => Ok(()),
        other => other,
    }
}

/// What [`make_private`] found and did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The mode bits that the directory had.
    pub mode: u32,
    /// How many of its files others could read or write.
    pub files: usize,
    /// Whether others may still enter: this process does not own the directory, or the file system has no modes.
    pub is_still_open: bool,
}

/// Takes a data directory and its files from other users of the machine: 0700 and 0600. Returns `None` if none of it was
/// theirs. Files named in `except` stay as they are, and so do symbolic links and directories.
///
/// # Errors
/// Whatever reading the directory says.
pub fn make_private(path: &Path, except: &[&str]) -> io::Result<Option<Opened>> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
    let mut opened = Opened { mode, files: 0, is_still_open: false };
    if mode & OTHERS != 0 {
        opened.is_still_open = !takes_from_others(path, mode)?;
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // Of the entry itself, not of what a link leads to.
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

/// Whether others have no rights there afterwards.
fn takes_from_others(path: &Path, mode: u32) -> io::Result<bool> {
    match fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)) {
        // FAT takes some modes and keeps its own.
        Ok(()) => Ok(fs::metadata(path)?.permissions().mode() & OTHERS == 0),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => Ok(false),
        // Another process removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        // Some file system shut itself off; whatever writes next says so.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(false),
        Err(error) => Err(error),
    }
}

fn in_use(path: &Path) -> io::Error {
    // Only for the message: a holder that has not written its number yet is still a holder.
    let holder = fs::read_to_string(path.join(LOCK)).unwrap_or_default();
    let holder = if holder.is_empty() { "another process".into() } else { format!("process {holder}") };
    io::Error::new(io::ErrorKind::ResourceBusy, format!("{} is in use by {holder}", path.display()))
}

impl Disk for FsDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.file(name, OFlags::empty(), 0)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mode = if self.lock.is_some() { PRIVATE } else { PUBLIC };
        let file = self.file(name, OFlags::CREATE | OFlags::EXCL, mode)?;
        has_mode(&file.file, mode)?;
        Ok(Arc::new(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let name = plain(name)?;
        self.names.change(name, None, || Ok(rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (plain(from)?, plain(to)?);
        let rename = || Ok(rustix::fs::renameat(&self.directory, from, &self.directory, to)?);
        self.names.change(from, Some(to), rename)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.directory)? {
            let entry = entry?;
            // A name that is no text was not made by us, nor was a directory.
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
        // In units of 512 bytes, whatever the file system's blocks are.
        Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        self.names.are_in_place(&self.directory, &self.path, MARKER)
    }
}

#[derive(Debug)]
struct FsFile {
    file: File,
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
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
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
        if bytes == 0 {
            return Ok(0);
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => return Ok(0),
                Err(Errno::INTR) => {}
                // UBIFS and NFS before 4.2 have no fallocate: writing is the only way to reserve.
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
    fn files_of_a_held_directory_are_their_owners_alone_and_those_of_a_shared_one_are_not() {
        let dir = TempDir::new("modes");
        let held = FsDisk::open(&dir.0).unwrap();
        held.create("seg-00.log").unwrap();
        drop(held);
        FsDisk::shared(&dir.0).unwrap().create("conf.image").unwrap();
        let modes = ["LOCK", "seg-00.log", "conf.image"].map(|name| mode(&dir.0.join(name)));
        assert_eq!(modes, [0o600, 0o600, 0o644]);
    }

    #[test]
    fn a_directory_that_others_may_read_is_taken_from_them() {
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

    /// A directory that is held, with its marker and a file that is open.
    fn kept(dir: &TempDir) -> (PathBuf, FsDisk, Arc<dyn DiskFile>) {
        let path = dir.0.join("data");
        fs::create_dir(&path).unwrap();
        let disk = FsDisk::open(&path).unwrap();
        disk.create(MARKER).unwrap();
        let open = disk.create("c").unwrap();
        (path, disk, open)
    }

    #[test]
    fn files_that_somebody_removes_or_replaces_are_noticed_while_they_are_open() {
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
    fn what_the_process_itself_renames_and_removes_is_not_missed() {
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

    /// So that whoever puts it back has all of it.
    #[test]
    fn a_directory_that_is_moved_is_noticed_and_worked_in_on() {
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
    fn what_a_link_in_the_place_of_the_lock_leads_to_is_left_alone() {
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
    fn a_second_holder_is_refused_and_told_who_holds_it() {
        let dir = TempDir::new("lock");
        let first = FsDisk::open(&dir.0).unwrap();
        let refused = FsDisk::open(&dir.0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
        drop(first);
        FsDisk::open(&dir.0).unwrap();
    }

    #[test]
    fn a_lock_file_that_was_removed_lets_nobody_in() {
        let dir = TempDir::new("unlinked");
        let first = FsDisk::open(&dir.0).unwrap();
        fs::remove_file(dir.0.join(LOCK)).unwrap();
        assert_eq!(FsDisk::open(&dir.0).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        FsDisk::open(&dir.0).unwrap();
    }

    #[test]
    fn a_missing_directory_is_not_made() {
        let dir = TempDir::new("missing");
        assert_eq!(FsDisk::open(&dir.0.join("mount")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn files_keep_what_is_written_and_reserve_what_is_allocated() {
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
    fn names_are_never_paths() {
        let dir = TempDir::new("names");
        let disk = FsDisk::open(&dir.0).unwrap();
        for name in ["", ".", "..", "a/b", "/etc", "LOCK", "a\0"] {
            let error = disk.create(name).err().map(|error| error.kind());
            assert_eq!(error, Some(io::ErrorKind::InvalidInput), "{name:?}");
        }
    }

    #[test]
    fn file_systems_that_move_blocks_are_appended_to() {
        let recycle = [0xef53, 0x5846_5342, 0x0102_1994];
        let append = [0xf2f5_2010, 0x9123_683e, 0x2405_1905, 0x794c_7630, 0];
        assert!(recycle.into_iter().all(|magic| FileSystem::of_magic(magic).strategy() == Strategy::Recycle));
        assert!(append.into_iter().all(|magic| FileSystem::of_magic(magic).strategy() == Strategy::Append));
        assert!(recycle.into_iter().chain(append).all(|magic| FileSystem::of_magic(magic).magic() == magic));
    }
}
