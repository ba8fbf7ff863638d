//! Files that commands write and read.

use super::client::Interrupts;
use super::failure::Failure;
use super::input::{Input, STRUCK};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file that becomes the data of a znode; no server takes as many.
const DATA_BYTES_MAX: u64 = 64 << 20;

/// Attempts to find a name for an unfinished file that no other file has.
const NAMES_MAX: usize = 8;
/// Mode of a new file: data and ACLs may be secret.
const MODE: u32 = 0o600;

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
    /// Creates the file, mode 0600; `force` replaces a regular file and keeps its mode and owner.
    ///
    /// # Errors
    /// The file exists, or is no regular file, or the system refuses to create it. `-` is refused: as
    /// a file to read, it is standard input.
    pub(super) fn create(name: &str, force: bool) -> Result<Self, Failure> {
        if name == "-" {
            return Err(Failure::text(
                "-o - is no file; without -o the result goes to standard output (get --raw: the bytes as they are); \
                 ./- is a file of that name",
            ));
        }
        let place = PathBuf::from(name);
        let Some(file_name) = place.file_name() else { return Err(Failure::Text(format!("{name} names no file"))) };
        let replaced = replaceable(&place, force)?;
        let (unfinished, file) = unfinished(&place, file_name)?;
        let saved = Self { place, unfinished, file: BufWriter::new(file), is_finished: false, force };
        match replaced {
            Some(replaced) => saved.resemble(&replaced).map(|()| saved),
            None => Ok(saved),
        }
    }

    /// Takes over mode and owner of the file that is replaced.
    fn resemble(&self, replaced: &Metadata) -> Result<(), Failure> {
        let file = self.file.get_ref();
        let own = file.metadata().map_err(|error| cannot("create", &self.unfinished, &error))?;
        if (own.uid(), own.gid()) != (replaced.uid(), replaced.gid()) {
            fchown(file, Some(replaced.uid()), Some(replaced.gid()))
                .map_err(|error| cannot("keep the owner of", &self.place, &error))?;
        }
        // A set-user-id bit was meant for the old content.
        file.set_permissions(Permissions::from_mode(replaced.mode() & 0o777))
            .map_err(|error| cannot("keep the mode of", &self.place, &error))
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
        replaceable(&self.place, self.force)?;
        let renamed = if self.force {
            fs::rename(&self.unfinished, &self.place)
        } else {
            rename_new(&self.unfinished, &self.place)
        };
        renamed.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists if !self.force => exists(&self.place),
            _ => cannot("replace", &self.place, &error),
        })?;
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
/// The file cannot be read, or is too large, or Ctrl-C ended the wait for it.
pub(super) fn read(name: &str, interrupts: &Arc<Interrupts>) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let input = if name == "-" { Input::standard(interrupts) } else { Input::open(name, interrupts) };
    let read = input.and_then(|input| input.take(DATA_BYTES_MAX + 1).read_to_end(&mut bytes));
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
pub(super) fn open(name: &str, interrupts: &Arc<Interrupts>) -> Result<Input, Failure> {
    Input::open(name, interrupts).map_err(|error| cannot("read", Path::new(name), &error))
}

/// Returns the regular file that stands at a place and may be replaced; `None` if there is no file.
fn replaceable(place: &Path, force: bool) -> Result<Option<Metadata>, Failure> {
    let found = match fs::symlink_metadata(place) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot("create", place, &error)),
    };
    let (shown, kind) = (place.display(), found.file_type());
    if kind.is_dir() {
        return Err(Failure::Text(format!("{shown} is a directory; name a file in it")));
    }
    if kind.is_symlink() {
        let target = fs::read_link(place).unwrap_or_default();
        return Err(Failure::Text(format!("{shown} is a symbolic link to {}; name that file", target.display())));
    }
    if !kind.is_file() {
        return Err(Failure::Text(format!(
            "{shown} is a device, pipe or socket; leave out -o and redirect the output"
        )));
    }
    if force { Ok(Some(found)) } else { Err(exists(place)) }
}

fn exists(place: &Path) -> Failure {
    Failure::Text(format!("{} exists; --force replaces it", place.display()))
}

/// Renames a file; fails if a file of the new name exists, even one that has just appeared.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not know the flag, or the kernel does not know the call.
        Err(Errno::INVAL | Errno::NOSYS) => link_new(from, to),
        renamed => Ok(renamed?),
    }
}

/// Does the same as [`rename_new`] by a hard link.
fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        // The file system has no hard links either. The caller has looked for a file of the new name.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
            fs::rename(from, to)
        }
        Err(error) => Err(error),
    }
}

/// Creates the file beside its place.
///
/// Its name is random: a killed process leaves its file, and the next one may have the same PID.
fn unfinished(place: &Path, file_name: &OsStr) -> Result<(PathBuf, File), Failure> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut hidden = OsString::from(".");
        hidden.push(file_name);
        hidden.push(format!(".zoolet-{:016x}", RandomState::new().hash_one(attempts)));
        let unfinished = place.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).mode(MODE).open(&unfinished) {
            Ok(file) => return Ok((unfinished, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempts < NAMES_MAX => {}
            Err(error) => return Err(cannot("create", &unfinished, &error)),
        }
    }
}

fn cannot(what: &str, place: &Path, error: &io::Error) -> Failure {
    if error.kind() == STRUCK {
        return Failure::interrupted();
    }
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
        let read = |name: &str| read(name, &Interrupts::new());
        save(name, b"one", false).unwrap();
        assert_eq!(save(name, b"two", false), Err(Failure::Text(format!("{name} exists; --force replaces it"))));
        assert_eq!(read(name).unwrap(), b"one");
        save(name, b"two", true).unwrap();
        assert_eq!(read(name).unwrap(), b"two");
        let mut given_up = Saved::create(name, true).unwrap();
        given_up.write(b"half").unwrap();
        drop(given_up);
        assert_eq!((read(name).unwrap(), fs::read_dir(&directory).unwrap().count()), (b"two".to_vec(), 1));
        assert!(save(directory.to_str().unwrap(), b"", true).unwrap_err().message().contains("is a directory"));
        assert!(read(directory.join("none").to_str().unwrap()).unwrap_err().message().starts_with("cannot read "));
        assert!(save("-", b"", true).unwrap_err().message().starts_with("-o - is no file; "));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn new_file_is_private_and_a_replaced_one_keeps_mode_and_owner() {
        let directory = std::env::temp_dir().join(format!("zoolet-shell-modes-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let place = directory.join("key");
        let name = place.to_str().unwrap();
        save(name, b"one", false).unwrap();
        let mode = |place: &Path| fs::metadata(place).unwrap().mode() & 0o7777;
        assert_eq!(mode(&place), 0o600);
        fs::set_permissions(&place, Permissions::from_mode(0o4750)).unwrap();
        // Only root can give a file away.
        let is_root = std::os::unix::fs::chown(&place, Some(4321), Some(1234)).is_ok();
        if is_root {
            fs::set_permissions(&place, Permissions::from_mode(0o4750)).unwrap();
        }
        save(name, b"two", true).unwrap();
        let found = fs::metadata(&place).unwrap();
        assert_eq!((fs::read(&place).unwrap(), mode(&place)), (b"two".to_vec(), 0o750));
        assert!(!is_root || (found.uid(), found.gid()) == (4321, 1234));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let directory = std::env::temp_dir().join(format!("zoolet-shell-kinds-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (target, link) = (directory.join("target"), directory.join("link"));
        fs::write(&target, b"kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for force in [false, true] {
            let refused = save(link.to_str().unwrap(), b"new", force).unwrap_err().message();
            assert!(refused.ends_with(&format!("is a symbolic link to {}; name that file", target.display())));
            let refused = save("/dev/null", b"new", force).unwrap_err().message();
            assert!(refused.starts_with("/dev/null is a device, pipe or socket; leave out -o"), "{refused}");
        }
        assert_eq!((fs::read(&target).unwrap(), fs::read_dir(&directory).unwrap().count()), (b"kept".to_vec(), 2));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn file_that_appears_before_the_rename_is_kept() {
        let directory = std::env::temp_dir().join(format!("zoolet-shell-appears-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let [new, other, place] = ["new", "other", "place"].map(|name| directory.join(name));
        for rename in [rename_new, link_new] {
            fs::write(&new, b"new").unwrap();
            fs::write(&place, b"kept").unwrap();
            assert_eq!(rename(&new, &place).unwrap_err().kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&place).unwrap(), b"kept");
            rename(&new, &other).unwrap();
            assert!(fs::read(&other).unwrap() == b"new" && !new.exists());
            fs::remove_file(&other).unwrap();
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn file_of_a_killed_process_hinders_no_later_one() {
        let directory = std::env::temp_dir().join(format!("zoolet-shell-left-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let place = directory.join("out");
        // A process with the same PID was killed: nothing removes its file.
        std::mem::forget(Saved::create(place.to_str().unwrap(), false).unwrap());
        save(place.to_str().unwrap(), b"new", false).unwrap();
        assert_eq!((fs::read(&place).unwrap(), fs::read_dir(&directory).unwrap().count()), (b"new".to_vec(), 2));
        fs::remove_dir_all(&directory).unwrap();
    }
}
