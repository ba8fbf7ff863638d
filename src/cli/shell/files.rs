//! Files that commands write and read.

use super::failure::Failure;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of a file that becomes the data of a znode; no server takes as many.
const DATA_BYTES_MAX: u64 = 64 << 20;

/// A new file, written beside its place and renamed when it is complete.
///
/// Without [`Saved::finish`] nothing is left.
pub(super) struct Saved {
    place: PathBuf,
    unfinished: PathBuf,
    file: BufWriter<File>,
    is_finished: bool,
    force: bool,
}

impl Saved {
    /// Creates the file; `force` replaces one that exists.
    ///
    /// # Errors
    /// The file exists, or the system refuses to create it.
    pub(super) fn create(name: &str, force: bool) -> Result<Self, Failure> {
        let place = PathBuf::from(name);
        let Some(file_name) = place.file_name() else { return Err(Failure::Text(format!("{name} names no file"))) };
        refuse_existing(&place, force)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(file_name);
        hidden.push(format!(".zoolet-{}", std::process::id()));
        let unfinished = place.with_file_name(hidden);
        let opened = OpenOptions::new().write(true).create_new(true).open(&unfinished);
        let file = opened.map_err(|error| cannot("create", &unfinished, &error))?;
        Ok(Self { place, unfinished, file: BufWriter::new(file), is_finished: false, force })
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|error| cannot("write", &self.unfinished, &error))
    }

    /// Syncs the file and gives it its name.
    ///
    /// # Errors
    /// The system refuses, or the file exists by now.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(|error| cannot("write", &self.unfinished, &error))?;
        refuse_existing(&self.place, self.force)?;
        fs::rename(&self.unfinished, &self.place).map_err(|error| cannot("replace", &self.place, &error))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

/// Writes a whole file.
///
/// # Errors
/// As [`Saved`].
pub(super) fn save(name: &str, bytes: &[u8], force: bool) -> Result<(), Failure> {
    let mut saved = Saved::create(name, force)?;
    saved.write(bytes)?;
    saved.finish()
}

/// Reads the data of a znode from a file; `-` is standard input.
///
/// # Errors
/// The file cannot be read, or is too large.
pub(super) fn read(name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if name == "-" {
        io::stdin().lock().take(DATA_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        File::open(name).and_then(|file| file.take(DATA_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| cannot("read", Path::new(name), &error))?;
    if bytes.len() as u64 > DATA_BYTES_MAX {
        return Err(Failure::Text(format!("{name} is larger than 64 MiB; no server stores as much in one znode")));
    }
    Ok(bytes)
}

/// Opens a file for reading.
///
/// # Errors
/// The system refuses.
pub(super) fn open(name: &str) -> Result<File, Failure> {
    File::open(name).map_err(|error| cannot("read", Path::new(name), &error))
}

fn refuse_existing(place: &Path, force: bool) -> Result<(), Failure> {
    match fs::symlink_metadata(place) {
        Ok(found) if found.is_dir() => {
            Err(Failure::Text(format!("{} is a directory; name a file in it", place.display())))
        }
        Ok(_) if !force => Err(Failure::Text(format!("{} exists; --force replaces it", place.display()))),
        _ => Ok(()),
    }
}

fn cannot(what: &str, place: &Path, error: &io::Error) -> Failure {
    Failure::Text(format!("cannot {what} {}: {error}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_complete_or_absent_and_replaced_only_by_force() {
        let directory = std::env::temp_dir().join(format!("zoolet-shell-files-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let place = directory.join("out");
        let name = place.to_str().unwrap();
        save(name, b"one", false).unwrap();
        assert_eq!(save(name, b"two", false), Err(Failure::Text(format!("{name} exists; --force replaces it"))));
        assert_eq!(read(name).unwrap(), b"one");
        save(name, b"two", true).unwrap();
        assert_eq!(read(name).unwrap(), b"two");
        let mut given_up = Saved::create(name, true).unwrap();
        given_up.write(b"half").unwrap();
        drop(given_up);
        assert_eq!((read(name).unwrap(), fs::read_dir(&directory).unwrap().count()), (b"two".to_vec(), 1));
        assert!(save(directory.to_str().unwrap(), b"", true).unwrap_err().message("").contains("is a directory"));
        assert!(read(directory.join("none").to_str().unwrap()).unwrap_err().message("").starts_with("cannot read "));
        fs::remove_dir_all(&directory).unwrap();
    }
}
