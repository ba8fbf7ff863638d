//! A small file that is replaced in one step.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Writes of all kept files of this process, one at a time.
static WRITING: Mutex<()> = Mutex::new(());

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
    /// A write first creates a file beside it, whose name ends with the number of the process and
    /// `.new`. A crash may leave that file.
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

    /// Replaces the file's data. Waits for two syncs of the disk, and for other writers of this
    /// process.
    ///
    /// The new file has the permissions that a created file has. Data that the file has already is
    /// not written again, which spares the flash.
    ///
    /// # Errors
    /// The system's error, with the path. The file then has its former data. Only if the last step,
    /// the sync of the directory, fails, it may have the new data.
    pub fn write(&self, data: impl AsRef<[u8]>) -> io::Result<()> {
        let data = data.as_ref();
        let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        if self.read().is_ok_and(|former| former.as_deref() == Some(data)) {
            return Ok(());
        }
        let mut new = self.path.clone().into_os_string();
        new.push(format!(".{}.new", std::process::id()));
        let new = PathBuf::from(new);
        let replaced = write_durably(&new, data).and_then(|()| fs::rename(&new, &self.path));
        if let Err(error) = replaced {
            // Not there, or of no use.
            let _ = fs::remove_file(&new);
            return Err(about("write", &self.path, &error));
        }
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| about("sync", directory, &error))
    }
}

fn write_durably(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(data)?;
    file.sync_all()
}

fn about(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            // A crash left a part of the third.
            let unfinished = directory.join(format!("value.{}.new", std::process::id()));
            fs::write(unfinished, "third, torn in the midd").unwrap();
            assert_eq!(file.read().unwrap().as_deref(), Some(&b"second"[..]));
            file.write("4").unwrap();
            assert_eq!(file.read().unwrap().as_deref(), Some(&b"4"[..]));
            assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
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
        });
    }
}
