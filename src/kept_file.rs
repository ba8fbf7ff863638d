//! A small file that is replaced in one step.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Writes of this process so far, for names that no two of them share.
static WRITES: AtomicUsize = AtomicUsize::new(0);

/// A small file that holds a program's last good value, over crashes and power losses.
///
/// A write replaces the file in one step, and is durable when it returns. So after a crash the file
/// has its former data or the new data, never a part.
///
/// ```
/// # let directory = std::env::temp_dir().join(format!("zoolet-doc-kept-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let file = zoolet::KeptFile::new(directory.join("interval"));
/// assert_eq!(file.read()?, None);
/// file.write("60")?;
/// assert_eq!(file.read()?.as_deref(), Some(&b"60"[..]));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptFile {
    path: PathBuf,
}

impl KeptFile {
    /// Returns the file at `path`, which need not exist. Its directory must.
    ///
    /// A write first creates a file beside it, whose name ends with the numbers of the process and
    /// of the write, and `.new`. A crash may leave that file, which no program reads.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what was written last; `None` if the file does not exist.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(data) => Ok(Some(data)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(about("read", &self.path, &error)),
        }
    }

    /// Replaces the file's data. Waits for two syncs of the disk: of the file and of its directory.
    ///
    /// The new file has the permissions that a created file has. If several writers write at once,
    /// the file has the whole data of one of them. Data that the file has already is not written
    /// again, which spares the flash. It is still synced, because an earlier write may have failed
    /// or died before its last sync.
    ///
    /// # Errors
    /// The system's error, with the path. The file then has its former data. Only if the last step,
    /// the sync of the directory, fails, it may have the new data.
    pub fn write(&self, data: impl AsRef<[u8]>) -> io::Result<()> {
        self.write_on(&System, data.as_ref())
    }

    fn write_on(&self, files: &impl Files, data: &[u8]) -> io::Result<()> {
        let has_data = files.read(&self.path).is_ok_and(|former| former == data);
        // Pages that a failed sync dropped stay lost, so the data is then written again.
        if !has_data || files.sync(&self.path).is_err() {
            self.replace(files, data).map_err(|error| about("write", &self.path, &error))?;
        }
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        files.sync_directory(directory).map_err(|error| about("sync", directory, &error))
    }

    fn replace(&self, files: &impl Files, data: &[u8]) -> io::Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(format!(".{}.{}.new", std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed)));
        let new = PathBuf::from(new);
        // Synced before it gets its name: no crash leaves the name to a part of the data.
        let replaced = files.create(&new, data).and_then(|()| files.rename(&new, &self.path));
        replaced.inspect_err(|_| {
            // Not there, or of no use.
            let _ = files.remove(&new);
        })
    }
}

/// The file operations of a write. The tests have them on a disk that fails and loses its power.
trait Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Creates a file with this data, and syncs it.
    fn create(&self, path: &Path, data: &[u8]) -> io::Result<()>;

    fn sync(&self, path: &Path) -> io::Result<()>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// The file system of this machine.
///
/// The store's `FsDisk` does not suit: its names are UTF-8, and its files have a fixed mode.
struct System;

impl Files for System {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn create(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(data)?;
        file.sync_all()
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

fn about(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_sim::disk::{OperationKind, SimDisk};
    use zoolet_store::disk::Disk;

    /// One directory, whatever the paths say.
    impl Files for SimDisk {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            let file = self.open(path.to_str().unwrap())?;
            let mut data = vec![0; usize::try_from(file.len()?).unwrap()];
            file.read_at(0, &mut data).map(|()| data)
        }

        fn create(&self, path: &Path, data: &[u8]) -> io::Result<()> {
            let file = Disk::create(self, path.to_str().unwrap())?;
            file.write_at(0, data)?;
            file.sync()
        }

        fn sync(&self, path: &Path) -> io::Result<()> {
            self.open(path.to_str().unwrap())?.sync()
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            Disk::rename(self, from.to_str().unwrap(), to.to_str().unwrap())
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            Disk::remove(self, path.to_str().unwrap())
        }

        fn sync_directory(&self, _: &Path) -> io::Result<()> {
            Disk::sync_directory(self)
        }
    }

    /// Returns a disk whose file has `former`, and that file.
    fn kept(seed: u64, former: &[u8]) -> (SimDisk, KeptFile) {
        let (disk, file) = (SimDisk::new(seed), KeptFile::new("value"));
        file.write_on(&disk, former).unwrap();
        (disk, file)
    }

    fn in_directory(name: &str, test: impl FnOnce(&Path)) {
        let directory = std::env::temp_dir().join(format!("zoolet-kept-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        test(&directory);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn kept_file_has_its_last_data_and_outlives_an_unfinished_write() {
        in_directory("last", |directory| {
            let file = KeptFile::new(directory.join("value"));
            assert_eq!(file.read().unwrap(), None);
            file.write("first, and long").unwrap();
            file.write("second").unwrap();
            assert_eq!(file.read().unwrap().as_deref(), Some(&b"second"[..]));
            assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
            // A crash left a part of the third.
            fs::write(directory.join("value.1.2.new"), "third, torn in the midd").unwrap();
            assert_eq!(file.read().unwrap().as_deref(), Some(&b"second"[..]));
            file.write("4").unwrap();
            assert_eq!(file.read().unwrap().as_deref(), Some(&b"4"[..]));
            let missing = KeptFile::new(directory.join("missing").join("value")).write("x").unwrap_err();
            assert!(missing.to_string().contains("missing/value"), "{missing}");
        });
    }

    #[test]
    fn concurrent_writers_leave_the_whole_data_of_one_of_them() {
        in_directory("writers", |directory| {
            let file = KeptFile::new(directory.join("value"));
            std::thread::scope(|scope| {
                for writer in [1, 5000] {
                    let file = file.clone();
                    scope.spawn(move || (0..20).for_each(|round| file.write(vec![round; writer]).unwrap()));
                }
            });
            let data = file.read().unwrap().unwrap();
            assert!(data == [19] || data == vec![19; 5000], "{} bytes", data.len());
            assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
        });
    }

    /// Regression: a write that failed at the sync of the directory had renamed its file already. The
    /// repeated write found its data there and reported success without a sync.
    #[test]
    fn repeated_write_is_durable_after_any_operation_of_the_first_failed() {
        use OperationKind::{Create, Rename, Sync, SyncDirectory, Write};
        for kind in [Create, Write, Sync, Rename, SyncDirectory] {
            let (disk, file) = kept(1, b"old");
            disk.fail(kind, io::ErrorKind::Other);
            file.write_on(&disk, b"new").unwrap_err();
            disk.heal();
            file.write_on(&disk, b"new").unwrap();
            assert_eq!(disk.durable_contents("value").as_deref(), Some(&b"new"[..]), "{kind:?}");
            assert_eq!(disk.files().len(), 1, "{kind:?}");
        }
    }

    /// The same, for a process that died before the sync.
    #[test]
    fn write_of_the_next_process_is_durable_whenever_the_former_died() {
        for step in 0.. {
            let (disk, file) = kept(1, b"old");
            disk.set_crash_at(disk.steps() + step);
            let is_done = file.write_on(&disk, b"new").is_ok();
            let durable = disk.durable_contents("value").unwrap();
            assert!(durable == b"new" || !is_done && durable == b"old", "step {step}: {durable:?}");
            let disk = disk.after_process_crash();
            file.write_on(&disk, b"new").unwrap();
            assert_eq!(disk.durable_contents("value").as_deref(), Some(&b"new"[..]), "step {step}");
            if is_done {
                assert_eq!(step, 5, "a write creates, writes, syncs, renames and syncs the directory");
                break;
            }
        }
    }

    #[test]
    fn data_of_another_program_is_synced_but_not_written_again() {
        let (disk, file) = (SimDisk::new(1), KeptFile::new("value"));
        Disk::create(&disk, "value").unwrap().write_at(0, b"new").unwrap();
        file.write_on(&disk, b"new").unwrap();
        assert_eq!(disk.durable_contents("value").as_deref(), Some(&b"new"[..]));
        assert_eq!(disk.counters().writes, 1);
    }

    #[test]
    fn data_that_cannot_be_synced_is_written_again() {
        let (disk, file) = kept(1, b"old");
        disk.fail_with(|operation| {
            (operation.kind == OperationKind::Sync && operation.name == "value").then_some(io::ErrorKind::Other)
        });
        Disk::open(&disk, "value").unwrap().write_at(0, b"new").unwrap();
        file.write_on(&disk, b"new").unwrap();
        assert_eq!(disk.durable_contents("value").as_deref(), Some(&b"new"[..]));
    }
}
