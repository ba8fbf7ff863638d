//! What a node with [`Config::last_known_good`](crate::Config) has kept in a file, without a node.

use crate::{Bytes, Path, Stat, Text, Zxid};
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use zoolet_engine::store::image::{Image, ImageError};

/// A subtree as it was when a node wrote it down: for the time before there is an ensemble. The file is mapped, so several processes share one copy; a node
/// that writes a newer one puts it in the place of the file, and what is open stays what it is.
///
/// Ephemerals are not in it, and nobody is refused by ACLs: who may read the file may read all of it.
#[derive(Clone, Debug)]
pub struct LastKnownGood(Image);

/// Opens what is kept in the file `path`, and checks all of it. A file on a disk with a bad sector may end the process when that is read, as with every
/// file that is mapped.
///
/// # Errors
/// There is none, it is damaged, or it cannot be read.
///
/// ```
/// use zoolet::{LastKnownGoodError, last_known_good};
///
/// let path = std::env::temp_dir().join("zoolet-there-is-none.image");
/// assert_eq!(last_known_good(&path).unwrap_err(), LastKnownGoodError::Missing(path));
/// ```
pub fn last_known_good(path: impl Into<PathBuf>) -> Result<LastKnownGood, LastKnownGoodError> {
    let path = path.into();
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(LastKnownGoodError::Missing(path)),
        Err(error) => return Err(LastKnownGoodError::Unreadable(path, error.to_string())),
        // An empty file cannot be mapped.
        Ok(file) if file.is_file() && file.len() == 0 => {
            return Err(LastKnownGoodError::Damaged(path, "the image is damaged: it is empty".to_owned()));
        }
        Ok(_) => {}
    }
    let opened = Image::open(&path).and_then(|image| image.verify().map(|()| image));
    opened.map(LastKnownGood).map_err(|error| match error {
        ImageError::Damaged(_) => LastKnownGoodError::Damaged(path, error.to_string()),
        ImageError::NoSpace
        | ImageError::NoRoom { .. }
        | ImageError::TooLarge(_)
        | ImageError::Io(_)
        | ImageError::Source(_) => LastKnownGoodError::Unreadable(path, error.to_string()),
    })
}

impl LastKnownGood {
    /// The data of a znode, not copied; null data is empty. `None` when there is no such znode.
    pub fn get(&self, path: &Path) -> Option<Bytes> {
        self.znode(path).map(|(data, _)| data.unwrap_or_default())
    }

    /// The data of a znode, where null and empty are different, and its stat. Its counts of children are those of the file.
    pub fn znode(&self, path: &Path) -> Option<(Option<Bytes>, Stat)> {
        // What was sound when it was opened and is not any more is not there.
        self.0.znode(path).ok().flatten()
    }

    /// The names of its children, in order; none when there is no such znode.
    pub fn children(&self, path: &Path) -> Vec<Text> {
        let mut names = Vec::new();
        let scanned = self.0.children(path.as_str(), &mut |name| {
            names.push(Text::from(name));
            true
        });
        if scanned.is_ok() { names } else { Vec::new() }
    }

    /// The newest change that it has.
    pub fn zxid(&self) -> Zxid {
        self.0.meta().zxid
    }
}

/// Why a file of [`last_known_good`] cannot be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LastKnownGoodError {
    /// There is no such file: no node has seen the subtree yet.
    Missing(PathBuf),
    /// It is no image, or not what was written.
    Damaged(PathBuf, String),
    /// The system does not let it be read.
    Unreadable(PathBuf, String),
}

impl fmt::Display for LastKnownGoodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "{}: there is no such file yet", path.display()),
            Self::Damaged(path, what) | Self::Unreadable(path, what) => write!(f, "{}: {what}", path.display()),
        }
    }
}

impl std::error::Error for LastKnownGoodError {}
