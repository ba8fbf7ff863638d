//! A subtree that a node keeps in a file.

use super::ConfigError;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default of [`KeptImage::min_interval`].
pub const DEFAULT_MIN_INTERVAL: Duration = Duration::from_secs(600);

/// Bounds of the interval: flash wears out, and a file that is never written is useless.
pub(super) const MIN_INTERVAL_MIN: Duration = Duration::from_secs(1);
pub(super) const MIN_INTERVAL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// A subtree and the file that a node keeps it in.
///
/// [`last_known_good`](crate::last_known_good()) reads the file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KeptImage {
    /// Root of the subtree.
    ///
    /// All its znodes must be readable without authentication. Otherwise no file is written, and
    /// the log says why.
    pub subtree: zoolet_model::Path,
    /// The file, in an existing directory outside the data directory.
    pub path: PathBuf,
    /// Minimum time between two writes of the file, 1 s to 7 days.
    ///
    /// The file is written only after a change of the subtree.
    pub min_interval: Duration,
}

impl KeptImage {
    /// Keeps `subtree` in the file `path`, written at most every 10 minutes.
    ///
    /// [`KeptImage::min_interval`] can be set.
    #[must_use]
    pub fn new(subtree: zoolet_model::Path, path: impl Into<PathBuf>) -> Self {
        Self { subtree, path: path.into(), min_interval: DEFAULT_MIN_INTERVAL }
    }

    /// Returns the directory and the name of the file.
    pub(crate) fn place(&self) -> Option<(&Path, &str)> {
        let name = self.path.file_name()?.to_str()?;
        let directory = self.path.parent()?;
        Some((if directory.as_os_str().is_empty() { Path::new(".") } else { directory }, name))
    }

    /// Checks this configuration for a node with the data directory `data`.
    pub(crate) fn check(&self, data: &Path) -> Result<(), ConfigError> {
        let refuse = |line: String| Err(ConfigError::new(line));
        if !(MIN_INTERVAL_MIN..=MIN_INTERVAL_MAX).contains(&self.min_interval) {
            let seconds = self.min_interval.as_secs_f64();
            return refuse(format!("last_known_good.min_interval = {seconds} s: allowed is 1 s to 7 days"));
        }
        let shown = self.path.display();
        match self.place() {
            None => refuse(format!("last_known_good.path = \"{shown}\": allowed is the name of a file")),
            // The file's readers may not enter the data directory, and the kept file could
            // overwrite a file of the log or the base.
            Some(_) if real(&self.path).starts_with(real(data)) => refuse(format!(
                "last_known_good.path = \"{shown}\": allowed is a file outside the data directory (data = {}), which only the server may use",
                data.display()
            )),
            Some((directory, _)) if !directory.is_dir() => {
                refuse(format!("last_known_good.path = \"{shown}\": allowed is a file in an existing directory"))
            }
            Some(_) if self.path.is_dir() => {
                refuse(format!("last_known_good.path = \"{shown}\": allowed is a file, not a directory"))
            }
            Some((directory, name)) => match self.may_be_replaced() {
                Ok(true) => may_be_written(directory, name).or_else(|(unfinished, error)| {
                    refuse(format!(
                        "last_known_good.path = \"{shown}\": cannot look at {unfinished}, the file's name until it is complete: {error}; choose a shorter name"
                    ))
                }),
                Ok(false) => refuse(format!(
                    "last_known_good.path = \"{shown}\": allowed is a new file, an empty one or an image"
                )),
                Err(error) => refuse(format!(
                    "last_known_good.path = \"{shown}\": cannot look at this file: {error}; give the server access to its directory, or name another"
                )),
            },
        }
    }

    /// Returns whether replacing the file loses nothing: it is absent, empty or an image.
    ///
    /// A file that cannot be read counts as foreign.
    ///
    /// # Errors
    /// The system's, if it does not tell whether there is a file. The server could not write it.
    fn may_be_replaced(&self) -> std::io::Result<bool> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) => Ok(found.is_file() && (found.len() == 0 || zoolet_store::image::is_one(&self.path))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Checks that the file system allows the name of an unfinished image, which is longer.
///
/// # Errors
/// That name, and the system's error.
fn may_be_written(directory: &Path, name: &str) -> Result<(), (String, std::io::Error)> {
    let unfinished = zoolet_store::image::unfinished_name(name);
    match std::fs::symlink_metadata(directory.join(&unfinished)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err((unfinished, error)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Resolves the links in `path`. A part that does not exist yet stays as written.
fn real(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found =
        whole.ancestors().find_map(|there| Some(there.canonicalize().ok()?.join(whole.strip_prefix(there).ok()?)));
    found.unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: each error counted as "no file". The server started, and only a line of the log
    /// told that there was no image.
    #[test]
    fn a_path_that_the_server_cannot_look_at_is_refused() {
        // Stands for a directory that the server may not enter. Root may enter every directory.
        let path = std::env::temp_dir().join("x".repeat(300));
        let kept =
            KeptImage { subtree: zoolet_model::Path::from_static("/conf"), path, min_interval: DEFAULT_MIN_INTERVAL };
        let said = kept.check(Path::new("/nowhere/data")).unwrap_err().to_string();
        assert!(said.contains("cannot look at this file: File name too long"), "{said}");
    }

    /// Regression: the start looked at the final name alone, and each write failed.
    #[test]
    fn a_name_is_refused_if_the_unfinished_file_has_a_longer_name_than_allowed() {
        let check = |length| {
            let path = std::env::temp_dir().join("x".repeat(length));
            let subtree = zoolet_model::Path::from_static("/conf");
            let kept = KeptImage { subtree, path, min_interval: DEFAULT_MIN_INTERVAL };
            kept.check(Path::new("/nowhere/data")).map_err(|error| error.to_string())
        };
        assert_eq!(check(243), Ok(()));
        let said = check(244).unwrap_err();
        assert!(said.contains(".zoolet-tmp, the file's name until it is complete: File name too long"), "{said}");
    }
}
