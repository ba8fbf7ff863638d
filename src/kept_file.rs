//! A small file that is replaced in one step.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A small file that holds a program's last good value, over crashes and power losses.
///
/// A write replaces the file in one step, and is durable when it returns. After a crash the file has
/// its former data or the new data, never a part. Use one value for a file at a time.
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
    /// A write uses the path with the ending `.new` too.
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
    /// The system's error if the file cannot be read.
    pub fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(data) => Ok(Some(data)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file's data. Blocks for the disk.
    ///
    /// # Errors
    /// The system's error. The former data is there then, or the new data, if only its directory
    /// could not be synced.
    pub fn write(&self, data: impl AsRef<[u8]>) -> io::Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let mut file = File::create(&new)?;
        file.write_all(data.as_ref())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&new, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_file_has_its_last_data_and_outlives_an_unfinished_write() {
        let directory = std::env::temp_dir().join(format!("zoolet-kept-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = KeptFile::new(directory.join("value"));
        assert_eq!(file.read().unwrap(), None);
        file.write("first, and long").unwrap();
        file.write("second").unwrap();
        assert_eq!(file.read().unwrap().as_deref(), Some(&b"second"[..]));
        // A crash left a part of the third.
        fs::write(directory.join("value.new"), "third, torn in the midd").unwrap();
        assert_eq!(file.read().unwrap().as_deref(), Some(&b"second"[..]));
        file.write("4").unwrap();
        assert_eq!(file.read().unwrap().as_deref(), Some(&b"4"[..]));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        assert!(KeptFile::new(directory.join("missing").join("value")).write("x").is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
