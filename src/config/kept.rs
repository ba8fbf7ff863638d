//! A subtree that is kept in a file.

use super::ConfigError;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often an image is written at most, when nothing else is said.
pub const DEFAULT_MIN_INTERVAL: Duration = Duration::from_secs(600);

/// Flash wears out, and a file that is never written is none.
const MIN_INTERVAL_MIN: Duration = Duration::from_secs(1);
const MIN_INTERVAL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Which subtree a node keeps in which file: [`last_known_good`](crate::last_known_good()) reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptImage {
    /// The znode at its top. Znodes that not everybody may read are an obstacle, which the log tells.
    pub subtree: zoolet_model::Path,
    /// The file, in a directory that is there and is not among the data.
    pub path: PathBuf,
    /// The file is written when the subtree has changed, but not sooner than so long after it was written last: 1 s to 7 days.
    pub min_interval: Duration,
}

impl KeptImage {
    /// The directory and the name of the file.
    pub(crate) fn place(&self) -> Option<(&Path, &str)> {
        let name = self.path.file_name()?.to_str()?;
        let directory = self.path.parent()?;
        Some((if directory.as_os_str().is_empty() { Path::new(".") } else { directory }, name))
    }

    /// For a node that keeps its data there.
    pub(crate) fn check(&self, data: &Path) -> Result<(), ConfigError> {
        let refuse = |line: String| Err(ConfigError::new(line));
        if !(MIN_INTERVAL_MIN..=MIN_INTERVAL_MAX).contains(&self.min_interval) {
            let seconds = self.min_interval.as_secs_f64();
            return refuse(format!("last_known_good.min_interval = {seconds} s: allowed is 1 s to 7 days"));
        }
        let shown = self.path.display();
        match self.place() {
            None => refuse(format!("last_known_good.path = \"{shown}\": allowed is the name of a file")),
            // Whoever it is for may not enter there, and a name that the log or the base has would be written over.
            Some(_) if real(&self.path).starts_with(real(data)) => refuse(format!(
                "last_known_good.path = \"{shown}\": allowed is a file outside the data directory (data = {}), which is the server's alone",
                data.display()
            )),
            Some((directory, _)) if !directory.is_dir() => {
                refuse(format!("last_known_good.path = \"{shown}\": allowed is a file in a directory that is there"))
            }
            Some(_) if self.path.is_dir() => {
                refuse(format!("last_known_good.path = \"{shown}\": allowed is a file, and this is a directory"))
            }
            Some(_) if !self.may_be_replaced() => {
                refuse(format!("last_known_good.path = \"{shown}\": allowed is a file that is none yet, or an image"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether there is nothing that somebody could miss. What cannot be read is somebody else's.
    fn may_be_replaced(&self) -> bool {
        let Ok(found) = std::fs::symlink_metadata(&self.path) else { return true };
        found.is_file() && (found.len() == 0 || zoolet_engine::store::image::is_one(&self.path))
    }
}

/// Where it is, whatever leads there; of what is not there yet, where it would be made.
fn real(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found =
        whole.ancestors().find_map(|there| Some(there.canonicalize().ok()?.join(whole.strip_prefix(there).ok()?)));
    found.unwrap_or(whole)
}
