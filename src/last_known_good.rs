//! Reads the file of [`Config::last_known_good`](crate::Config), without a node.

use crate::{Bytes, Path, Text, Znode, Zxid};
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use zoolet_store::image::{Image, ImageError};

/// A subtree as a node last saved it, for use while no ensemble is reachable.
///
/// The file is mapped, so several processes share one copy. A node that saves a newer state
/// replaces the file; an open image does not change.
///
/// The image has no ephemerals. ACLs do not apply: a process that may read the file may read all of
/// it.
#[derive(Clone, Debug)]
pub struct LastKnownGood(Image);

/// Opens the image in the file `path` and checks all of it.
///
/// If the disk has a bad sector, reading the image may end the process, as with every mapped file.
///
/// # Errors
/// The file is missing, damaged or unreadable.
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
    /// Returns a znode's data without copying it; null data becomes empty. `None`: no such znode.
    #[must_use]
    pub fn get(&self, path: &Path) -> Option<Bytes> {
        self.znode(path).map(|znode| znode.data.unwrap_or_default())
    }

    /// Returns a znode's data and stat; `None`: no such znode.
    ///
    /// The data distinguishes null from empty. The stat counts the children in the file.
    #[must_use]
    pub fn znode(&self, path: &Path) -> Option<Znode> {
        // Damage that appears after opening counts as absence.
        self.0.znode(path).ok().flatten().map(|(data, stat)| Znode::new(data, stat))
    }

    /// Returns the names of a znode's children, in order; none if the znode does not exist.
    #[must_use]
    pub fn children(&self, path: &Path) -> Vec<Text> {
        let mut names = Vec::new();
        let scanned = self.0.children(path.as_str(), &mut |name| {
            names.push(Text::from(name));
            true
        });
        if scanned.is_ok() { names } else { Vec::new() }
    }

    /// Returns the zxid of the newest change in the image.
    #[must_use]
    pub fn zxid(&self) -> Zxid {
        self.0.meta().zxid
    }
}

/// Why [`last_known_good`] cannot open a file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LastKnownGoodError {
    /// The file does not exist: no node has saved the subtree yet.
    Missing(PathBuf),
    /// It is not an image, or its bytes are not those written.
    Damaged(PathBuf, String),
    /// The system does not let the process read it.
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
