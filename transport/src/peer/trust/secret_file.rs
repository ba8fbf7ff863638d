//! Files with a secret as one line, readable by their owner only.

use super::checked_text;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Above the size of all these files. The largest is a chain of 8 certificates, of a few KB each.
const FILE_BYTES_MAX: u64 = 65_536;

/// Mode bits of the group and of others.
const OTHERS: u32 = 0o077;

/// Kind of a file: the label before the colon, and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) label: &'static str,
    pub(super) name: &'static str,
    /// The remedy if the file is damaged.
    pub(super) remedy: &'static str,
}

/// Why a file's secret is not used.
///
/// Displayed as one line for the operator that names the file and the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum SecretFileError {
    /// The file cannot be read or written.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Others may read the file, or replace its content. It is no longer secret.
    Readable {
        /// The file.
        path: PathBuf,
        /// Its kind, for the operator.
        name: &'static str,
        /// Its mode bits.
        mode: u32,
    },
    /// The content is of another kind, or damaged.
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The file exists, and is not overwritten.
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The directory of a new file does not exist.
    NoDirectory {
        /// The file.
        path: PathBuf,
    },
    /// The system provides no random numbers.
    Random,
}

impl fmt::Display for SecretFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } if error.kind() == io::ErrorKind::PermissionDenied => write!(
                f,
                "{}: permission denied: make the user of this process its owner (chown), mode 0600",
                path.display()
            ),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Readable { path, name, mode } => write!(
                f,
                "{}: other users may read or change this {name} (mode {mode:04o}): make a new one, or, if no other user can have \
                 read or changed it, run `chmod 600 {}`",
                path.display(),
                path.display()
            ),
            Self::Content { path, what, remedy } => write!(f, "{}: {what}: {remedy}", path.display()),
            Self::Exists { path } => write!(
                f,
                "{} exists and is not overwritten: servers may authenticate each other with it",
                path.display()
            ),
            Self::NoDirectory { path } => write!(f, "{}: its directory does not exist", path.display()),
            Self::Random => f.write_str("cannot make a key: the system provides no random numbers"),
        }
    }
}

impl std::error::Error for SecretFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Returns 32 random bytes.
pub(super) fn random() -> Result<[u8; 32], SecretFileError> {
    let mut secret = [0; 32];
    SystemRandom::new().fill(&mut secret).map_err(|_| SecretFileError::Random)?;
    Ok(secret)
}

/// Returns the file's text: one line with its line feed.
pub(super) fn text(kind: Kind, secret: &[u8; 32]) -> String {
    format!("{}:{}\n", kind.label, checked_text::encode(kind.label, secret))
}

/// Reads the secret in `path`; `None` if the file does not exist.
pub(super) fn read(kind: Kind, path: &Path) -> Result<Option<[u8; 32]>, SecretFileError> {
    match read_private(path, kind.name) {
        Ok(bytes) => parse(kind, &bytes).map(Some).map_err(|what| SecretFileError::Content {
            path: path.to_owned(),
            what,
            remedy: kind.remedy,
        }),
        Err(SecretFileError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a file that only its owner may access. `name` is its kind, for the operator.
pub(super) fn read_private(path: &Path, name: &'static str) -> Result<Vec<u8>, SecretFileError> {
    let file = open(path)?;
    let mode = file.metadata().map_err(|error| io_error(path, error))?.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(SecretFileError::Readable { path: path.to_owned(), name, mode });
    }
    read_whole(path, file)
}

/// Reads a file that anyone may read.
#[cfg(feature = "certificates")]
pub(super) fn read_public(path: &Path) -> Result<Vec<u8>, SecretFileError> {
    read_whole(path, open(path)?)
}

fn open(path: &Path) -> Result<File, SecretFileError> {
    // Opening a named pipe would block until a writer opens it.
    if !fs::metadata(path).map_err(|error| io_error(path, error))?.is_file() {
        return Err(SecretFileError::Content {
            path: path.to_owned(),
            what: "not a regular file".to_owned(),
            remedy: "name the file with the key or certificate",
        });
    }
    File::open(path).map_err(|error| io_error(path, error))
}

fn read_whole(path: &Path, file: File) -> Result<Vec<u8>, SecretFileError> {
    let mut bytes = Vec::new();
    // A longer file is truncated, and then its checks fail: every kind is checked as a whole.
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| io_error(path, error))?;
    Ok(bytes)
}

fn io_error(path: &Path, error: io::Error) -> SecretFileError {
    SecretFileError::Io { path: path.to_owned(), error }
}

/// Decodes a secret. Errors contain no character of the file, which may hold another secret.
fn parse(kind: Kind, bytes: &[u8]) -> Result<[u8; 32], String> {
    let foreign = || format!("this is not a {}, which begins with `{}:`", kind.name, kind.label);
    let text = std::str::from_utf8(bytes).map_err(|_| foreign())?.trim();
    if text.is_empty() {
        return Err(format!("this {} is empty", kind.name));
    }
    let body = text.strip_prefix(kind.label).and_then(|rest| rest.strip_prefix(':')).ok_or_else(foreign)?;
    if body.len() < checked_text::CHARACTERS {
        let wanted = checked_text::CHARACTERS;
        return Err(format!("this {} is too short: {} of {wanted} characters follow the colon", kind.name, body.len()));
    }
    checked_text::decode(kind.label, body)
        .ok_or_else(|| format!("this {} is damaged: its checksum does not match", kind.name))
}

/// Creates a file that must not exist: overwriting a key would lock out its servers.
pub(super) fn create_new(kind: Kind, path: &Path, secret: &[u8; 32]) -> Result<(), SecretFileError> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => SecretFileError::Exists { path: path.to_owned() },
            io::ErrorKind::NotFound => SecretFileError::NoDirectory { path: path.to_owned() },
            _ => io_error(path, error),
        })?;
    // Syncs the directory too, because it holds the name. Otherwise a power cut could lose this
    // file, although servers already have copies of the key.
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let written = file
        .write_all(text(kind, secret).as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| File::open(directory)?.sync_all());
    written.map_err(|error| {
        // A partial key is useless, and would block the next attempt.
        let _ = fs::remove_file(path);
        io_error(path, error)
    })
}

/// Creates `directory/name` atomically, also across a power failure.
///
/// Writes a temporary file, syncs it, renames it, and syncs the directory.
pub(super) fn create(kind: Kind, directory: &Path, name: &str, secret: &[u8; 32]) -> Result<(), SecretFileError> {
    let path = directory.join(name);
    let aside = directory.join(format!("{name}.new"));
    let write = || -> io::Result<()> {
        // Left by an interrupted start. It is not reused, because it may have any mode.
        match fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        file.write_all(text(kind, secret).as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|error| io_error(&path, error))
}
