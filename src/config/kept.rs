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
    /// The file, in a directory that is there.
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

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |line: String| Err(ConfigError::new(line));
        if !(MIN_INTERVAL_MIN..=MIN_INTERVAL_MAX).contains(&self.min_interval) {
            let seconds = self.min_interval.as_secs_f64();
            return refuse(format!("last_known_good.min_interval = {seconds} s: allowed is 1 s to 7 days"));
        }
        let shown = self.path.display();
        match self.place() {
            None => refuse(format!("last_known_good.path = \"{shown}\": allowed is the name of a file")),
            Some((directory, _)) if !directory.is_dir() => {
                refuse(format!("last_known_good.path = \"{shown}\": allowed is a file in a directory that is there"))
            }
            Some(_) if self.path.is_dir() => {
                refuse(format!("last_known_good.path = \"{shown}\": allowed is a file, and this is a directory"))
            }
            Some(_) => Ok(()),
        }
    }
}
