//! Keeps a subtree in a file: an image that is written after a change, but not too often.
//!
//! Its thread owns an ordinary session of this process, and mostly waits for its watch. It reads
//! the subtree until nothing changes during a reading, so an image is one state. Without a change
//! it writes nothing. A crash leaves the previous image or the new one.

use super::node::Sessions;
use crate::config::KeptImage;
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};
use zoolet_machine::status::Cause;
use zoolet_model::{AddWatchMode, Names, Path, Stat, Zxid};
use zoolet_recipes::{Coordinator as _, Instant};
use zoolet_session::{Error, ErrorKind, LostReason, Session, SessionOptions, SessionState, Wait, WatchStream, Znode};
use zoolet_store::image::{Image, Subtree};
use zoolet_store::{FsDisk, Meter, MeteredDisk};

/// Maximum size of the subtree, in bytes of paths and data. No configuration is larger.
const BYTES_MAX: u64 = 16 << 20;
/// Maximum number of readings in a row that changes disturb.
const READINGS: usize = 8;
/// Pause after a failure; after a failed write, the minimum.
const PAUSE: Duration = Duration::from_secs(10);
/// Pause after a failure that was only a lack of connection.
const SHORT_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct SubtreeFile {
    kept: KeptImage,
    /// Counts bytes written to the file's medium.
    meter: Arc<Meter>,
    /// Digest of the file's content, if known.
    digest: Option<u128>,
    /// When this process last began to write the file.
    written: Option<Instant>,
    /// The last logged problem, so that it is logged once.
    reported: Option<String>,
}

/// Why there is no new image.
enum Trouble {
    Session(Error),
    /// Bytes were written, and then a step failed. Text for the log.
    Write(String),
    /// Nothing was written. Text for the log.
    Other(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Session(error)
    }
}

impl SubtreeFile {
    pub(super) fn new(kept: KeptImage, meter: Arc<Meter>) -> Self {
        let image = Image::open(&kept.path).and_then(|image| image.verify().map(|()| image));
        if let Some(directory) = closed(&kept) {
            warn!(path = %kept.path.display(), directory = %directory.display(), "other users cannot read the image: they may not enter its directory");
        }
        Self { digest: image.ok().map(|image| image.meta().digest), kept, meter, written: None, reported: None }
    }

    /// Runs until the node ends.
    pub(super) fn run(mut self, sessions: &Sessions) {
        // If the ensemble has closed the session, another one begins.
        while let Ok(session) = sessions.open(&SessionOptions::default()).wait() {
            self.follow(&session);
            if session.state() != SessionState::Lost(LostReason::Expired) {
                return;
            }
        }
    }

    /// Follows the subtree until the session is over.
    fn follow(&mut self, session: &Session) {
        let mut watching = None;
        while !session.state().is_over() {
            let pause = match self.keep(session, &mut watching) {
                Ok(()) => {
                    let changed = watching.as_mut().and_then(|changes: &mut WatchStream| changes.next().wait());
                    if changed.is_none() {
                        return;
                    }
                    self.until_due(session.now())
                }
                Err(trouble) => self.pause_after(trouble, session.now()),
            };
            // Ready at once when the node ends.
            session.timer(session.now() + pause).wait();
        }
    }

    /// Returns the time until the file may be written again.
    fn until_due(&self, now: Instant) -> Duration {
        let due = self.written.map(|written| written + self.kept.min_interval);
        due.unwrap_or_default().remaining(now)
    }

    /// Logs a failure, and returns the pause before the next attempt.
    fn pause_after(&mut self, trouble: Trouble, now: Instant) -> Duration {
        match trouble {
            Trouble::Session(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionLoss | ErrorKind::Suspended | ErrorKind::SessionLost(_) | ErrorKind::Closed
                ) =>
            {
                SHORT_PAUSE
            }
            Trouble::Session(error) => self.tell(format!("cannot read the subtree: {error}")),
            Trouble::Other(what) => self.tell(what),
            // A write that fails at its end wears the medium like one that succeeds.
            Trouble::Write(what) => self.tell(what).max(self.until_due(now)),
        }
    }

    fn tell(&mut self, what: String) -> Duration {
        if self.reported.as_ref() != Some(&what) {
            warn!(subtree = self.kept.subtree.as_str(), path = %self.kept.path.display(), "cannot write the image: {what}");
            self.reported = Some(what);
        }
        PAUSE
    }

    /// Makes the file equal to the subtree.
    fn keep(&mut self, session: &Session, watching: &mut Option<WatchStream>) -> Result<(), Trouble> {
        let changes = match watching {
            Some(changes) => changes,
            None => {
                let changes = session.watch(&self.kept.subtree, AddWatchMode::PersistentRecursive).wait()?;
                watching.insert(changes)
            }
        };
        let (subtree, zxid) = undisturbed(changes, || read(session, &self.kept.subtree))?;
        // A missing subtree was perhaps deleted by mistake, so the good image stays.
        if subtree.is_empty() || self.digest == Some(subtree.digest()) {
            return Ok(());
        }
        let (directory, name) = self.kept.place().ok_or_else(|| Trouble::Other("the path names no file".to_owned()))?;
        let disk = FsDisk::shared(directory).map_err(|error| Trouble::Other(error.to_string()))?;
        let disk = MeteredDisk::all_for(disk, Arc::clone(&self.meter), Cause::Image);
        // Noted before the outcome is known, so that a failing disk is not written more often than
        // a working one.
        self.written = Some(session.now());
        let before = self.meter.written().of(Cause::Image);
        let bytes = subtree.write(&disk, name, zxid).map_err(|error| {
            let has_written = self.meter.written().of(Cause::Image) > before;
            if has_written { Trouble::Write(error.to_string()) } else { Trouble::Other(error.to_string()) }
        })?;
        (self.digest, self.reported) = (Some(subtree.digest()), None);
        info!(subtree = self.kept.subtree.as_str(), path = %self.kept.path.display(), %zxid, bytes, "wrote the image");
        Ok(())
    }
}

/// Returns the nearest directory above the file that other users may not enter.
fn closed(kept: &KeptImage) -> Option<PathBuf> {
    let whole = kept.place()?.0.canonicalize().ok()?;
    let closed = whole
        .ancestors()
        .find(|directory| directory.metadata().is_ok_and(|directory| directory.permissions().mode() & 0o001 == 0));
    closed.map(Into::into)
}

/// Returns the result of a `read` during which nothing changed.
///
/// A watch event arrives before any answer that shows its change.
fn undisturbed<T>(changes: &mut WatchStream, read: impl Fn() -> Result<T, Trouble>) -> Result<T, Trouble> {
    for _ in 0..READINGS {
        while changes.next().wait_timeout(Duration::ZERO).flatten().is_some() {}
        let outcome = read()?;
        if changes.next().wait_timeout(Duration::ZERO).is_none() {
            return Ok(outcome);
        }
    }
    Err(Trouble::Other("the subtree changes too often to be read".to_owned()))
}

/// Reads the subtree without ephemerals, and the zxid of its newest change.
fn read(session: &Session, top: &Path) -> Result<(Subtree, Zxid), Trouble> {
    let (mut todo, mut found, mut newest) = (vec![top.clone()], Vec::new(), 0);
    let mut bytes = 0;
    while let Some(path) = todo.pop() {
        let Some(Znode { data, stat, .. }) = existing(session.get(&path).wait()).map_err(trouble)? else { continue };
        newest = newest.max(stat.czxid).max(stat.mzxid).max(stat.pzxid);
        if stat.ephemeral_owner != 0 {
            continue;
        }
        if stat.num_children > 0 {
            let names = existing(session.children(&path).wait()).map_err(trouble)?;
            todo.extend(names.iter().flat_map(Names::iter).filter_map(|name| path.join(name).ok()));
        }
        bytes += path.as_str().len() as u64 + data.as_ref().map_or(0, |data| data.len() as u64);
        if bytes > BYTES_MAX {
            return Err(Trouble::Other(format!("the subtree is larger than {BYTES_MAX} bytes")));
        }
        found.push((path, data, stat));
    }
    Ok((subtree(&found), Zxid::from_bits(newest as u64).unwrap_or(Zxid::ZERO)))
}

fn subtree(found: &[(Path, Option<bytes::Bytes>, Stat)]) -> Subtree {
    let mut children: HashMap<Path, i32> = HashMap::new();
    for parent in found.iter().filter_map(|(path, ..)| path.parent()) {
        *children.entry(parent).or_default() += 1;
    }
    let mut subtree = Subtree::default();
    for (path, data, stat) in found {
        subtree.add(path, data.as_deref(), stat, children.get(path).copied().unwrap_or_default());
    }
    subtree
}

/// Turns the error about a missing znode into `None`. A watch event reports its deletion.
fn existing<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.is_no_node() => Ok(None),
        Err(error) => Err(error),
    }
}

fn trouble(error: Error) -> Trouble {
    if error.code().is_some() { Trouble::Other(error.to_string()) } else { Trouble::Session(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::ErrorCode;

    /// Regression: a failing disk was written every 10 s, up to 130 GiB a day.
    #[test]
    fn failed_image_write_waits_min_interval_like_a_successful_one() {
        let subtree = Path::from_static("/conf");
        let kept = KeptImage { subtree, path: "/nowhere/conf.image".into(), min_interval: Duration::from_secs(600) };
        let mut subtree_file = SubtreeFile::new(kept, Arc::default());
        let written = Instant::default() + Duration::from_secs(1_000);
        let now = written + Duration::from_secs(2);
        subtree_file.written = Some(written);
        let failed = || Trouble::Write("no space left for the image".to_owned());
        assert_eq!(subtree_file.pause_after(failed(), now), Duration::from_secs(598));
        assert_eq!(subtree_file.pause_after(failed(), written + Duration::from_secs(595)), PAUSE);
        // These failures wear nothing.
        assert_eq!(subtree_file.pause_after(Trouble::Other("the directory is gone".to_owned()), now), PAUSE);
        assert_eq!(
            subtree_file.pause_after(Trouble::Session(ErrorKind::Refused(ErrorCode::NoAuth).into()), now),
            PAUSE
        );
        assert_eq!(subtree_file.pause_after(Trouble::Session(ErrorKind::ConnectionLoss.into()), now), SHORT_PAUSE);
    }
}
