//! Names of a directory's open files, to detect replacement by another program.

use rustix::fs::{AtFlags, Stat, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs::File, io};

/// Identity of a file or directory, independent of its path. Unique while the file is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    #[allow(clippy::unnecessary_cast, reason = "the fields are narrower on some machines")]
    fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
    }

    fn of_open(file: &File) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }
}

/// Returns the file that a name refers to; `None` if it does not exist.
fn found(directory: impl AsFd, name: &str) -> io::Result<Option<FileId>> {
    match statat(directory, name, AtFlags::empty()) {
        Ok(stat) => Ok(Some(FileId::of(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The files of one directory that this process has open.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: BTreeMap<FileId, Open>,
    /// Renames and removals in progress.
    under_way: usize,
    /// Renames and removals started so far.
    begun: u64,
}

#[derive(Debug)]
struct Open {
    /// Name under which the next start will look for the file.
    ///
    /// `None` if the file has no name or its name is unknown.
    name: Option<String>,
    handles: usize,
}

impl Inner {
    /// Returns a number for the current state of the names; `None` during a change.
    fn state(&self) -> Option<u64> {
        (self.under_way == 0).then_some(self.begun)
    }
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a file under a name, until [`Names::close`].
    ///
    /// # Errors
    /// Errors from `open`.
    pub(super) fn open(&self, name: &str, open: impl FnOnce() -> io::Result<File>) -> io::Result<(File, FileId)> {
        let before = self.lock().state();
        let file = open()?;
        let id = FileId::of_open(&file)?;
        let mut inner = self.lock();
        // A rename or removal during the open may have changed the name, so it is unknown.
        let is_known = before.is_some() && before == inner.state();
        let open = inner.open.entry(id).or_insert(Open { name: None, handles: 0 });
        open.handles += 1;
        if is_known {
            open.name = Some(name.to_owned());
        }
        Ok((file, id))
    }

    pub(super) fn close(&self, id: FileId) {
        let mut inner = self.lock();
        if let Some(open) = inner.open.get_mut(&id) {
            open.handles -= 1;
            if open.handles == 0 {
                inner.open.remove(&id);
            }
        }
    }

    /// Renames a file, or removes it if `to` is `None`.
    ///
    /// # Errors
    /// Errors from `change`.
    pub(super) fn change(
        &self,
        from: &str,
        to: Option<&str>,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        {
            let mut inner = self.lock();
            inner.under_way += 1;
            inner.begun += 1;
        }
        let changed = change();
        let mut inner = self.lock();
        inner.under_way -= 1;
        // A file that this process wants to remove is not missed if it is already gone.
        let is_gone = to.is_none() && changed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if changed.is_ok() || is_gone {
            for open in inner.open.values_mut() {
                if open.name.as_deref() == Some(from) {
                    open.name = to.map(str::to_owned);
                } else if open.name.is_some() && open.name.as_deref() == to {
                    open.name = None;
                }
            }
        }
        changed
    }

    /// Returns whether the next start will find the directory and its files.
    ///
    /// The directory must be at `path`, contain a file `needed`, and hold each open file under its
    /// name.
    ///
    /// # Errors
    /// The file system's error, or [`io::ErrorKind::WouldBlock`] if names change meanwhile. The
    /// answer is then unknown.
    pub(super) fn are_in_place(&self, directory: &File, path: &Path, needed: &str) -> io::Result<bool> {
        let at_path = match rustix::fs::stat(path) {
            Ok(stat) => Some(FileId::of(&stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(error) => return Err(error.into()),
        };
        if at_path != Some(FileId::of_open(directory)?) {
            return Ok(false);
        }
        // Check without the lock: if the disk hangs here, the log must still reach its files.
        let (state, open) = {
            let inner = self.lock();
            let named = |(id, open): (&FileId, &Open)| Some((*id, open.name.clone()?));
            (inner.state(), inner.open.iter().filter_map(named).collect::<Vec<_>>())
        };
        let mut outcome = found(directory, needed).map(|found| found.is_some());
        for (id, name) in open {
            match found(directory, &name) {
                Ok(found) if found == Some(id) => {}
                // A certain mismatch outweighs an error.
                Ok(_) => outcome = Ok(false),
                Err(error) if matches!(outcome, Ok(true)) => outcome = Err(error),
                Err(_) => {}
            }
        }
        if matches!(outcome, Ok(false)) && (state.is_none() || self.lock().state() != state) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A directory with an open file `a`.
    struct Scene {
        path: PathBuf,
        directory: File,
        names: Names,
        open: Vec<File>,
    }

    impl Scene {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("zoolet-names-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("needed"), "").unwrap();
            fs::write(path.join("a"), "").unwrap();
            let directory = File::open(&path).unwrap();
            let mut scene = Self { path, directory, names: Names::default(), open: Vec::new() };
            scene.open("a");
            scene
        }

        fn open(&mut self, name: &str) {
            let (file, _) = self.names.open(name, || File::open(self.path.join(name))).unwrap();
            self.open.push(file);
        }

        fn are_in_place(&self) -> io::Result<bool> {
            self.names.are_in_place(&self.directory, &self.path, "needed")
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }

    #[test]
    fn file_check_during_a_rename_returns_would_block() {
        let scene = Scene::new("look");
        let rename = || {
            fs::rename(scene.path.join("a"), scene.path.join("b"))?;
            assert_eq!(scene.are_in_place().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            Ok(())
        };
        scene.names.change("a", Some("b"), rename).unwrap();
        assert!(scene.are_in_place().unwrap());
    }

    #[test]
    fn file_renamed_while_being_opened_counts_as_in_place() {
        let scene = Scene::new("open");
        let [from, to] = ["b", "c"].map(|name| scene.path.join(name));
        fs::write(&from, "").unwrap();
        let open = || {
            let file = File::open(&from)?;
            scene.names.change("b", Some("c"), || fs::rename(&from, &to))?;
            Ok(file)
        };
        let _opened = scene.names.open("b", open).unwrap();
        assert!(scene.are_in_place().unwrap());
    }

    #[test]
    fn failed_rename_keeps_the_recorded_name() {
        let scene = Scene::new("failed");
        let failed = || Err(io::ErrorKind::StorageFull.into());
        assert!(scene.names.change("a", Some("b"), failed).is_err());
        assert!(scene.are_in_place().unwrap());
        fs::remove_file(scene.path.join("a")).unwrap();
        assert!(!scene.are_in_place().unwrap());
    }
}
