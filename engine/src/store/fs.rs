//! A directory of the real file system.

use super::disk::{Disk, DiskFile};
use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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

/// A directory of the real file system, held by this process alone until dropped.
#[derive(Debug)]
pub struct FsDisk {
    path: PathBuf,
    directory: File,
    /// This lock and the directory's go with the descriptor, so a killed process leaves none behind. `None` in a directory that is everybody's.
    lock: Option<File>,
    /// The files that were opened or made here, by name. Held while one is made, removed or renamed.
    files: Mutex<BTreeMap<String, FileId>>,
}

/// Which file or directory it is, whatever leads to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Whether this path leads to it.
    fn is_at(self, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Self::of(&metadata) == self),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }
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
        Ok(Self { path: path.to_path_buf(), directory, lock, files: Mutex::default() })
    }

    /// Opens an existing directory that others use too: nothing is locked, and nothing left in it. What is made there everybody may read, whatever the
    /// process's umask is.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none.
    pub fn shared(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), directory: File::open(path)?, lock: None, files: Mutex::default() })
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

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, FileId>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, name: &str) -> io::Result<PathBuf> {
        let plain = !name.is_empty() && name != "." && name != ".." && name != LOCK && !name.contains(['/', '\0']);
        if plain {
            Ok(self.path.join(name))
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no plain file name")))
        }
    }
}

fn lock(path: &Path) -> io::Result<File> {
    // Who may open the file may lock it, and keep the server from starting.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE);
    // What a link leads to, which may be anybody's file, would be emptied.
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
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
        let mut files = self.files();
        let file = OpenOptions::new().read(true).write(true).open(self.place(name)?)?;
        files.insert(name.to_owned(), FileId::of(&file.metadata()?));
        Ok(Arc::new(FsFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mode = if self.lock.is_some() { PRIVATE } else { PUBLIC };
        let mut files = self.files();
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(self.place(name)?)?;
        has_mode(&file, mode)?;
        files.insert(name.to_owned(), FileId::of(&file.metadata()?));
        Ok(Arc::new(FsFile(file)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut files = self.files();
        fs::remove_file(self.place(name)?)?;
        files.remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files();
        fs::rename(self.place(from)?, self.place(to)?)?;
        match files.remove(from) {
            Some(file) => files.insert(to.to_owned(), file),
            None => files.remove(to),
        };
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // A name that is no text was not made by us, nor was a directory.
            if let Ok(name) = entry.file_name().into_string()
                && name != LOCK
                && entry.file_type()?.is_file()
            {
                names.push(name);
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
        // In units of 512 bytes, whatever the file system's blocks are.
        Ok(fs::metadata(self.place(name)?)?.blocks() * 512)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        if !FileId::of(&self.directory.metadata()?).is_at(&self.path)? {
            return Ok(false);
        }
        // Looked at without the lock: a disk that hangs must not keep the log from its files for longer than it must.
        let files = self.files().clone();
        for (name, &file) in &files {
            let path = self.path.join(name);
            if file.is_at(&path)? {
                continue;
            }
            // This process may have removed or renamed it meanwhile.
            let now = self.files();
            if now.get(name) == Some(&file) && !file.is_at(&path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[derive(Debug)]
struct FsFile(File);

impl DiskFile for FsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn forget_cached(&self) -> io::Result<()> {
        use rustix::{fs::Advice, io::Errno};
        match rustix::fs::fadvise(&self.0, 0, None, Advice::DontNeed) {
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
            match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
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

    /// A copy in the place of the directory, or of a file of it, has what was there when it was made.
    #[test]
    fn a_directory_that_was_moved_and_files_that_were_removed_or_replaced_are_noticed() {
        let dir = TempDir::new("in-place");
        let path = dir.0.join("data");
        fs::create_dir(&path).unwrap();
        let disk = FsDisk::open(&path).unwrap();
        let is_in_place = || disk.is_in_place().unwrap();
        for name in ["a", "b", "c"] {
            disk.create(name).unwrap();
        }
        disk.remove("a").unwrap();
        disk.rename("b", "a").unwrap();
        disk.rename("a", "c").unwrap();
        assert!(is_in_place(), "what this process does itself is no surprise");
        let [elsewhere, file] = [dir.0.join("elsewhere"), path.join("c")];
        let kept = dir.0.join("kept");
        fs::rename(&file, &kept).unwrap();
        assert!(!is_in_place(), "the file is gone");
        fs::copy(&kept, &file).unwrap();
        assert!(!is_in_place(), "a copy has its name");
        fs::rename(&kept, &file).unwrap();
        assert!(is_in_place(), "it is back");
        fs::rename(&path, &elsewhere).unwrap();
        assert!(!is_in_place(), "the directory is gone");
        fs::create_dir(&path).unwrap();
        fs::copy(elsewhere.join("c"), &file).unwrap();
        assert!(!is_in_place(), "a copy has its path");
        fs::remove_dir_all(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(!is_in_place(), "a file has its path");
        fs::remove_file(&path).unwrap();
        fs::rename(&elsewhere, &path).unwrap();
        assert!(is_in_place(), "it is back");
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
