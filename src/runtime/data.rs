//! The data directory: which one a node may use, and the one-line refusals.

use super::threads::Failure;
use crate::config::{Config, ConfigError, Populate};
use crate::obstacle;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, thread};
use tracing::warn;
use zoolet_store::disk::Disk;
use zoolet_store::{FsDisk, MARKER, MARKER_UNFINISHED, Marker, Opened, make_private};

/// Files that a directory may contain and still count as empty.
///
/// A new file system has some, and an operator prepares some before a first start. Others are left
/// by a start or by `zoolet probe` when the power fails.
const NOT_DATA: [&str; 8] =
    ["lost+found", "myid", "site.key", "server.key", "server.key.new", "LOCK", MARKER_UNFINISHED, "zoolet-probe.tmp"];

/// Key files, which [`close_to_others`] leaves as they are.
///
/// A key that others could read is not secret any more, and a private mode would hide that. So the
/// code that reads such a key refuses it.
const KEYS: [&str; 3] = ["site.key", "server.key", "server.key.new"];

/// Mode bits that let the group or others reach a directory's files.
const OTHERS_MAY_ENTER: u32 = 0o011;

/// Mode bits that let the group or others put files into a directory.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Maximum wait of a start for a dropped node of this process, which may still finish its last
/// write.
const OWN_LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Why a node did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is wrong.
    Config(ConfigError),
    /// The data directory is unsuitable.
    Directory(String),
    /// Another process, or another node of this process, uses the data directory.
    InUse(String),
    /// The disk could not be read or written.
    Disk(String),
    /// The disk takes no writes. It may recover, so another attempt can succeed.
    ReadOnly(String),
    /// The stored data is damaged.
    Damaged(String),
    /// The node failed while it read its log.
    Failed(Failure),
    /// The client port could not be opened.
    Port(String),
    /// The port for links to other servers could not be opened.
    Peers(String),
    /// The system starts no more threads.
    Thread(io::Error),
}

impl StartError {
    /// Returns whether a new attempt needs another configuration or directory first.
    pub fn is_for_the_operator(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Directory(_))
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => fmt::Display::fmt(error, f),
            Self::Directory(line)
            | Self::InUse(line)
            | Self::Disk(line)
            | Self::ReadOnly(line)
            | Self::Damaged(line)
            | Self::Port(line)
            | Self::Peers(line) => f.write_str(line),
            Self::Failed(failure) => fmt::Display::fmt(failure, f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Checks the directory, creates it if allowed, and locks it.
pub(super) fn open(config: &Config) -> Result<(PathBuf, FsDisk), StartError> {
    let path = absolute(config)?;
    prepare(&path, config.populate)?;
    let disk = open_locked(&path)?;
    // With the lock held: a start that is refused changes nothing, and no other node removes files
    // meanwhile.
    close_to_others(&path)?;
    // A crash after this leaves a directory that counts as ours.
    Marker::claim(&disk).map_err(|error| disk_error(&path, &error))?;
    Ok((path, disk))
}

/// Opens a directory with a node's data for reading only; changes nothing.
#[cfg(feature = "port")]
pub(super) fn open_read_only(config: &Config) -> Result<(PathBuf, FsDisk), StartError> {
    let path = absolute(config)?;
    adopt(&path, Populate::Never)?;
    let disk = FsDisk::read_only(&path).map_err(|error| opening_error(&path, &error))?;
    Ok((path, disk))
}

fn absolute(config: &Config) -> Result<PathBuf, StartError> {
    std::path::absolute(&config.data)
        .map_err(|error| StartError::Directory(format!("data = {}: {error}", config.data.display())))
}

fn prepare(path: &Path, populate: Populate) -> Result<(), StartError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => adopt(path, populate),
        Ok(_) => Err(refused(path, "is not a directory: name a directory, or a path that does not exist yet")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => {
                let why =
                    format!("is a link to {}, which does not exist; is its file system mounted?", target.display());
                Err(refused(path, &why))
            }
            Err(_) => create(path, populate),
        },
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let file = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
            Err(refused(path, &format!("{} is not a directory", file.display())))
        }
        Err(error) => Err(refused(path, &obstacle::storing(&error).to_string())),
    }
}

fn create(path: &Path, populate: Populate) -> Result<(), StartError> {
    let parent = path.parent().unwrap_or(path);
    if !parent.is_dir() {
        return Err(without_parent(path, parent, populate));
    }
    may_populate(path, populate, "does not exist.")?;
    // Private, because not every user of the machine may read data that ACLs protect from clients.
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        // Another start has created it meanwhile, and may not have synced the parent yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            adopt(path, populate)?;
            return sync_entry(path, parent);
        }
        Err(error) => return Err(cannot_create(path, parent, &error)),
    }
    // A umask may have removed rights of the owner as well.
    let restricted = fs::set_permissions(path, Permissions::from_mode(0o700)).or_else(|error| match error.kind() {
        // The file system has no modes.
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => Ok(()),
        _ => Err(error),
    });
    restricted.map_err(|error| disk_error(path, &error))?;
    sync_entry(path, parent)
}

/// Makes the entry of the directory `path` in its parent durable.
fn sync_entry(path: &Path, parent: &Path) -> Result<(), StartError> {
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| disk_error(path, &error))
}

/// Returns the error for a data directory whose parent does not exist.
///
/// A missing parent is not created: it may be the mount point of a missing file system, and the
/// data would be on another disk.
fn without_parent(path: &Path, parent: &Path, populate: Populate) -> StartError {
    match populate {
        Populate::IfEmpty => StartError::Directory(format!(
            "cannot create {}: {} does not exist; create it first, or mount its file system",
            path.display(),
            parent.display()
        )),
        Populate::Never => refused(path, &format!("{} does not exist; is its file system mounted?", parent.display())),
    }
}

/// Returns the error for a directory that could not be created.
///
/// It does not exist yet, so denied permission means that the parent is not writable.
fn cannot_create(path: &Path, parent: &Path, error: &io::Error) -> StartError {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return disk_error(path, error);
    }
    let (path, parent) = (path.display(), parent.display());
    StartError::Disk(format!(
        "data = {path}: does not exist, and the user of this process may not create it in {parent}: create it and give it \
         to that user (mkdir, chown)"
    ))
}

/// Makes a directory of ours private, with a warning if other users could reach data in it.
fn close_to_others(path: &Path) -> Result<(), StartError> {
    if let Some(line) = take_from_others(path).map_err(|error| disk_error(path, &error))? {
        warn!("{line}");
    }
    Ok(())
}

/// Makes the modes private. Returns a warning if other users could or still can reach data.
///
/// Modes may be open because `mkdir` made the directory, or because an earlier release left them to
/// the umask.
fn take_from_others(path: &Path) -> io::Result<Option<String>> {
    let Some(Opened { mode, files, is_still_open }) = make_private(path, &KEYS)? else { return Ok(None) };
    let shown = path.display();
    if is_still_open {
        return Ok(Some(format!(
            "data = {shown}: other users of this machine may read it (mode {mode:04o}), and this process may not change that: \
             run `chmod -R go= {shown}` as its owner, or mount its file system with umask=077"
        )));
    }
    // Other users reach no file in a directory that they may not enter, and an empty directory has
    // no files.
    let could_read = mode & OTHERS_MAY_ENTER != 0 && files > 0;
    let could_replace = mode & OTHERS_MAY_WRITE != 0 && fs::read_dir(path)?.next().is_some();
    let line = format!(
        "data = {shown}: other users of this machine could read it (mode {mode:04o}) and {files} of its files; now only its \
         owner can (0700, and 0600 for files{})",
        open_keys(path)
    );
    Ok((could_read || could_replace).then_some(line))
}

/// Returns text about the keys that stay open, for the warning.
fn open_keys(path: &Path) -> String {
    let open = KEYS.iter().filter_map(|name| {
        let mode =
            fs::symlink_metadata(path.join(name)).ok().filter(fs::Metadata::is_file)?.permissions().mode() & 0o7777;
        (mode & 0o077 != 0).then(|| format!(", but {name} stays {mode:04o}"))
    });
    open.collect()
}

/// Accepts a directory that is ours, or that may become ours.
fn adopt(path: &Path, populate: Populate) -> Result<(), StartError> {
    let is_ours = is_ours(path).map_err(|unfit| match unfit {
        Unfit::Content(why) => refused(path, &why),
        Unfit::Disk(error) => disk_error(path, &error),
    })?;
    if is_ours { Ok(()) } else { may_populate(path, populate, "is empty; is its file system mounted?") }
}

/// Checks whether a node could keep its data in the directory `path`.
///
/// It could if the directory has a node's data, or only files that operators put there before a
/// first start.
///
/// # Errors
/// The directory has other content or cannot be read. The error is one line that begins with the
/// directory.
pub fn check_data_directory(path: &Path) -> Result<(), String> {
    let line = |what: &dyn fmt::Display| format!("{}: {what}", path.display());
    match is_ours(path) {
        Ok(_) => Ok(()),
        Err(Unfit::Content(why)) => Err(line(&why)),
        Err(Unfit::Disk(error)) => Err(line(&obstacle::storing(&error))),
    }
}

/// Why a directory cannot be a data directory.
enum Unfit {
    Content(String),
    Disk(io::Error),
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Returns whether the directory has our data; false if it counts as empty.
fn is_ours(path: &Path) -> Result<bool, Unfit> {
    if has_marker(path)? {
        return Ok(true);
    }
    let strangers = check_for_strangers(path);
    // Another start may have written its marker, and then other files, after the first look.
    if strangers.is_err() && has_marker(path)? {
        return Ok(true);
    }
    strangers.map(|()| false)
}

/// Returns whether the directory has our marker, in a format that this release can read.
fn has_marker(path: &Path) -> Result<bool, Unfit> {
    match fs::read(path.join(MARKER)) {
        Ok(bytes) => match Marker::parse(&bytes).refusal() {
            None => Ok(true),
            Some(refusal) => Err(Unfit::Content(refusal.to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Checks that a directory without our marker has only files of [`NOT_DATA`].
fn check_for_strangers(path: &Path) -> Result<(), Unfit> {
    let entries: Result<Vec<_>, _> = fs::read_dir(path).and_then(Iterator::collect);
    let names: Vec<String> = entries?.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if names.iter().any(|name| name == "version-2") {
        return Err(Unfit::Content(
            "holds the data of an Apache ZooKeeper (version-2), which zoolet cannot import yet; give it another directory"
                .to_owned(),
        ));
    }
    if let Some(file) = names.iter().find(|name| ["seg-", "base-"].iter().any(|prefix| name.starts_with(prefix))) {
        return Err(Unfit::Content(format!(
            "holds {file:?} but not {MARKER:?}, which zoolet writes first and never removes: restore {MARKER:?} from a copy of this directory, or name another directory"
        )));
    }
    if let Some(stranger) = names.iter().find(|name| !NOT_DATA.contains(&name.as_str())) {
        return Err(Unfit::Content(format!(
            "is not empty and not zoolet's (it holds {stranger:?}): name a directory for zoolet alone"
        )));
    }
    Ok(())
}

fn may_populate(path: &Path, populate: Populate, what: &str) -> Result<(), StartError> {
    match populate {
        Populate::IfEmpty => Ok(()),
        Populate::Never => Err(refused(path, &format!("{what} For a first start, add --create once"))),
    }
}

fn open_locked(path: &Path) -> Result<FsDisk, StartError> {
    let until = Instant::now() + OWN_LOCK_PATIENCE;
    loop {
        match FsDisk::open(path) {
            Ok(disk) => return Ok(disk),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                if !is_held_by_this_process(path) || Instant::now() >= until {
                    return Err(opening_error(path, &error));
                }
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(opening_error(path, &error)),
        }
    }
}

fn opening_error(path: &Path, error: &io::Error) -> StartError {
    match error.kind() {
        io::ErrorKind::ResourceBusy => {
            StartError::InUse(format!("data = {error}: stop that process, or name another directory"))
        }
        _ => disk_error(path, error),
    }
}

/// Returns whether this process holds the lock, for a dropped node that finishes its last write.
fn is_held_by_this_process(path: &Path) -> bool {
    fs::read_to_string(path.join("LOCK")).is_ok_and(|holder| holder.trim() == std::process::id().to_string())
}

fn refused(path: &Path, why: &str) -> StartError {
    StartError::Directory(format!("data = {}: {why}", path.display()))
}

fn disk_error(path: &Path, error: &io::Error) -> StartError {
    let line = explained(path, error);
    if is_refusal(error) { StartError::ReadOnly(line) } else { StartError::Disk(line) }
}

/// Returns the line about an error in the data directory `path`, with advice.
pub(super) fn explained(path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    if error.kind() == io::ErrorKind::PermissionDenied && is_own(path) {
        return format!(
            "data = {shown}: permission denied, although the user of this process owns the directory and its files: give the \
             owner read and write permission (chmod -R u+rwX {shown})"
        );
    }
    format!("data = {shown}: {}", obstacle::storing(error))
}

/// Returns whether this process's user owns the directory and every file that it can list there.
fn is_own(path: &Path) -> bool {
    let owner = |metadata: io::Result<fs::Metadata>| metadata.map(|metadata| metadata.uid()).ok();
    let user = owner(fs::metadata("/proc/self"));
    if user.is_none() || owner(fs::metadata(path)) != user {
        return false;
    }
    // If the owner may not list the directory, the advice about the owner's rights is the right
    // one.
    let mut files = fs::read_dir(path).into_iter().flatten().flatten();
    files.all(|entry| owner(fs::symlink_metadata(entry.path())).is_none_or(|of_file| Some(of_file) == user))
}

/// Tests whether a disk refuses writes, by writing a small file.
///
/// Its mount options do not tell: a file system that shut down after an error may still be mounted
/// for writing. A leftover of the probe does no harm, because an interrupted first start leaves the
/// same file.
pub(super) fn is_read_only(disk: &dyn Disk) -> bool {
    // One probe at a time. Log and base may both have failed, and their probes use the same file.
    static TRYING: Mutex<()> = Mutex::new(());
    let _trying = TRYING.lock().unwrap_or_else(PoisonError::into_inner);
    match try_to_write(disk) {
        Ok(()) => false,
        Err(error) if is_refusal(&error) => true,
        // After a device error, the file system may notice only at this sync, which then fails with
        // the device's error. The next sync tells.
        Err(_) => try_to_write(disk).is_err_and(|error| is_refusal(&error)),
    }
}

fn try_to_write(disk: &dyn Disk) -> io::Result<()> {
    let removed = disk.remove(MARKER_UNFINISHED).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    });
    let tried = removed.and_then(|()| disk.create(MARKER_UNFINISHED)?.sync());
    tried.and_then(|()| disk.remove(MARKER_UNFINISHED))
}

/// Like [`is_read_only`], for the directory `path`, or for its parent if it does not exist.
#[cfg(feature = "port")]
pub(super) fn is_on_read_only_disk(path: &Path) -> bool {
    match FsDisk::open(path) {
        Ok(disk) => is_read_only(&disk),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            FsDisk::shared(path.parent().unwrap_or(path)).is_ok_and(|disk| is_read_only(&disk))
        }
        Err(error) => is_refusal(&error),
    }
}

/// Like [`is_on_read_only_disk`], for a directory that this process has open for reading.
///
/// This process holds a shared lock, which keeps writers out where directories can be locked. So the
/// probe takes no lock.
#[cfg(feature = "port")]
pub(super) fn is_still_read_only(path: &Path) -> bool {
    match FsDisk::shared(path) {
        Ok(disk) => is_read_only(&disk),
        Err(error) => is_refusal(&error),
    }
}

/// Returns whether an error says that the disk takes no writes.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ReadOnlyFilesystem
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn temporary(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("zoolet-data-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    fn refusal(path: &Path, populate: Populate) -> String {
        let mut config = Config::new(path);
        config.populate = populate;
        open(&config).unwrap_err().to_string()
    }

    #[test]
    fn only_an_absent_or_empty_directory_is_populated() {
        let root = temporary("populate");
        assert!(open(&Config::new(root.join("new"))).is_ok());
        assert!(open(&Config::new(root.join("new"))).is_ok());

        let empty = root.join("empty");
        fs::create_dir(&empty).unwrap();
        fs::write(empty.join("myid"), "1").unwrap();
        assert!(refusal(&empty, Populate::Never).contains("is empty; is its file system mounted?"));
        assert!(open(&Config::new(&empty)).is_ok());

        let strange = root.join("strange");
        fs::create_dir(&strange).unwrap();
        fs::write(strange.join("photo.jpg"), "").unwrap();
        assert!(refusal(&strange, Populate::IfEmpty).contains("not zoolet's (it holds \"photo.jpg\")"));

        let zookeeper = root.join("zookeeper");
        fs::create_dir_all(zookeeper.join("version-2")).unwrap();
        assert!(refusal(&zookeeper, Populate::IfEmpty).contains("Apache ZooKeeper (version-2)"));

        let (child, parent) = (root.join("a/b/c"), root.join("a/b"));
        assert_eq!(
            refusal(&child, Populate::IfEmpty),
            format!(
                "cannot create {}: {} does not exist; create it first, or mount its file system",
                child.display(),
                parent.display()
            )
        );
        assert!(!root.join("a").exists(), "it may be a mount point");
        assert!(refusal(&child, Populate::Never).contains("is its file system mounted?"));
        fs::write(root.join("file"), "").unwrap();
        assert!(refusal(&root.join("file"), Populate::IfEmpty).contains("is not a directory"));
        fs::remove_dir_all(root).unwrap();
    }

    /// Regression: a start failed with "File exists" if another one created the directory meanwhile.
    #[test]
    fn simultaneous_first_starts_succeed_or_report_in_use() {
        const STARTS: usize = 4;
        let root = temporary("turns");
        for round in 0..50 {
            let (config, barrier) = (Config::new(root.join(round.to_string())), Barrier::new(STARTS));
            thread::scope(|scope| {
                for _ in 0..STARTS {
                    scope.spawn(|| {
                        barrier.wait();
                        match open(&config) {
                            // The lock is free again for the next one.
                            Ok(opened) => drop(opened),
                            Err(StartError::InUse(_)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    });
                }
            });
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn directory_that_another_start_claims_meanwhile_is_not_refused() {
        let root = temporary("claimed");
        for round in 0..50 {
            let path = root.join(round.to_string());
            fs::create_dir(&path).unwrap();
            thread::scope(|scope| {
                let start = scope.spawn(|| drop(open(&Config::new(&path)).unwrap()));
                while !start.is_finished() {
                    assert!(is_ours(&path).is_ok(), "refused in round {round}");
                }
            });
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn node_start_removes_access_of_other_users_to_the_data_directory() {
        let root = temporary("others");
        let (data, key) = (root.join("data"), root.join("data/site.key"));
        fs::create_dir(&data).unwrap();
        fs::write(&key, "").unwrap();
        for path in [&data, &key] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        // A refused directory is foreign, so its modes stay.
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert!(refusal(&data, Populate::Never).contains("is empty"));
        assert_eq!(mode(&data), 0o755);
        let (_, disk) = open(&Config::new(&data)).unwrap();
        disk.create("seg-00.log").unwrap();
        let modes =
            [data.clone(), data.join(MARKER), data.join("LOCK"), data.join("seg-00.log"), key].map(|path| mode(&path));
        assert_eq!(modes, [0o700, 0o600, 0o600, 0o600, 0o755]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_directory_of_a_later_format_is_refused() {
        let root = temporary("format");
        fs::write(root.join(MARKER), "zoolet data directory, format 9\n").unwrap();
        assert!(refusal(&root, Populate::IfEmpty).contains("was made by a later release"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn removed_access_is_reported_only_if_other_users_could_reach_data() {
        let root = temporary("reach");
        let data = root.join("data");
        let told = |directory: u32, files: &[(&str, u32)]| {
            let _ = fs::remove_dir_all(&data);
            fs::create_dir(&data).unwrap();
            for (name, mode) in files {
                fs::write(data.join(name), "").unwrap();
                fs::set_permissions(data.join(name), Permissions::from_mode(*mode)).unwrap();
            }
            fs::set_permissions(&data, Permissions::from_mode(directory)).unwrap();
            let told = take_from_others(&data).unwrap();
            let closed = fs::metadata(&data).unwrap().permissions().mode() & 0o777;
            assert_eq!(closed, 0o700);
            told
        };
        // Others could reach no data: the directory is empty or closed, or the file is closed.
        assert_eq!(told(0o755, &[]), None);
        assert_eq!(told(0o777, &[]), None);
        assert_eq!(told(0o700, &[("myid", 0o644)]), None);
        assert_eq!(told(0o755, &[("myid", 0o600)]), None);
        let shown = data.display();
        let could = |mode: &str, files: u32| {
            format!(
                "data = {shown}: other users of this machine could read it (mode {mode}) and {files} of its files; now only its owner can"
            )
        };
        assert_eq!(told(0o755, &[("myid", 0o644)]), Some(could("0755", 1) + " (0700, and 0600 for files)"));
        // A key's mode stays. Reading the key fails instead.
        let but_key = " (0700, and 0600 for files, but server.key stays 0644)";
        assert_eq!(told(0o755, &[("myid", 0o644), ("server.key", 0o644)]), Some(could("0755", 1) + but_key));
        // Others could have replaced the file.
        assert_eq!(told(0o777, &[("myid", 0o600)]), Some(could("0777", 0) + " (0700, and 0600 for files)"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn installer_ignores_the_same_file_names_in_an_empty_directory() {
        let script = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/cross/install")).unwrap();
        let line = script.lines().find(|line| line.contains("grep -qvxF")).unwrap();
        let names: Vec<_> = line.split(" -e ").skip(1).map(str::trim).collect();
        assert_eq!(names, NOT_DATA);
    }

    #[test]
    fn permission_error_advises_chmod_to_the_owner_and_chown_to_others() {
        let root = temporary("rights");
        fs::write(root.join("LOCK"), "").unwrap();
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let own = disk_error(&root, &denied).to_string();
        let shown = root.display();
        assert_eq!(
            own,
            format!(
                "data = {shown}: permission denied, although the user of this process owns the directory and its files: give the \
                 owner read and write permission (chmod -R u+rwX {shown})"
            )
        );
        let others = disk_error(Path::new("/nowhere"), &denied).to_string();
        assert!(
            others.ends_with("give the directory and its files to the user of this process (chown -R)"),
            "{others}"
        );
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn data_path_through_a_file_or_dangling_link_is_refused_clearly() {
        let root = temporary("paths");
        fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(root.join("nowhere"), root.join("link")).unwrap();
        let (file, link) = (root.join("file/x/y"), root.join("link"));
        assert_eq!(
            refusal(&file, Populate::IfEmpty),
            format!("data = {}: {} is not a directory", file.display(), root.join("file").display())
        );
        assert_eq!(
            refusal(&link, Populate::IfEmpty),
            format!(
                "data = {}: is a link to {}, which does not exist; is its file system mounted?",
                link.display(),
                root.join("nowhere").display()
            )
        );
        fs::remove_dir_all(root).unwrap();
    }
}
