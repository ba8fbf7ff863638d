//! Keeps a subtree in a file: an image that is written when the subtree has changed, and not too often.
//!
//! A session of this process like any other, on a thread that mostly waits for its watch. It reads the subtree until nothing changed while it did, so an image is
//! one state. Nothing is written while nothing changes, and what a crash leaves is the image before or the one after.

use super::node::Sessions;
use crate::config::KeptImage;
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};
use zoolet_engine::store::image::{Image, Subtree};
use zoolet_engine::store::{Cause, FsDisk, Meter, MeteredDisk};
use zoolet_model::{AddWatchMode, Path, Stat, Zxid};
use zoolet_recipes::{Coordinator as _, Instant};
use zoolet_session::{Error, LostReason, Session, SessionOptions, SessionState, Wait, WatchStream};

/// A configuration is no larger; bytes of paths and data.
const BYTES_MAX: u64 = 16 << 20;
/// Readings in a row that may be disturbed by changes.
const READINGS: usize = 8;
/// After something went wrong.
const PAUSE: Duration = Duration::from_secs(10);
/// The same when it was only that the session had no connection.
const SHORT_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Keeper {
    kept: KeptImage,
    /// Of what the file is on.
    meter: Arc<Meter>,
    /// What the file holds, as far as that is known.
    digest: Option<u128>,
    /// When it was written last, by this process.
    written: Option<Instant>,
    /// What was told last, so that it is told once.
    told: Option<String>,
}

/// Why there is no new image.
enum Trouble {
    Session(Error),
    /// In words.
    Other(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Session(error)
    }
}

impl Keeper {
    pub(super) fn new(kept: KeptImage, meter: Arc<Meter>) -> Self {
        let image = Image::open(&kept.path).and_then(|image| image.verify().map(|()| image));
        if let Some(directory) = closed(&kept) {
            warn!(path = %kept.path.display(), directory = %directory.display(), "others cannot read the image: they may not enter its directory");
        }
        Self { digest: image.ok().map(|image| image.meta().digest), kept, meter, written: None, told: None }
    }

    /// Until the node ends.
    pub(super) fn run(mut self, sessions: &Sessions) {
        // One whose session the ensemble has closed begins another one.
        while let Ok(session) = sessions.open(&SessionOptions::default()).wait() {
            self.follow(&session);
            if session.state() != SessionState::Lost(LostReason::Expired) {
                return;
            }
        }
    }

    /// Until the session is over.
    fn follow(&mut self, session: &Session) {
        let mut watching = None;
        while !session.state().is_over() {
            let pause = match self.keep(session, &mut watching) {
                Ok(()) => {
                    let changed = watching.as_mut().and_then(|changes: &mut WatchStream| changes.next().wait());
                    if changed.is_none() {
                        return;
                    }
                    let due = self.written.map(|written| written + self.kept.min_interval);
                    due.unwrap_or_default().remaining(session.now())
                }
                Err(Trouble::Session(Error::ConnectionLoss | Error::Suspended | Error::Lost(_) | Error::Closed)) => {
                    SHORT_PAUSE
                }
                Err(Trouble::Session(error)) => self.tell(format!("the subtree cannot be read: {error}")),
                Err(Trouble::Other(what)) => self.tell(what),
            };
            // Ready at once when the node ends.
            session.timer(session.now() + pause).wait();
        }
    }

    fn tell(&mut self, what: String) -> Duration {
        if self.told.as_ref() != Some(&what) {
            warn!(subtree = self.kept.subtree.as_str(), path = %self.kept.path.display(), "no image is written: {what}");
            self.told = Some(what);
        }
        PAUSE
    }

    /// The file is what the subtree is.
    fn keep(&mut self, session: &Session, watching: &mut Option<WatchStream>) -> Result<(), Trouble> {
        let changes = match watching {
            Some(changes) => changes,
            None => {
                let changes = session.watch(&self.kept.subtree, AddWatchMode::PersistentRecursive).wait()?;
                watching.insert(changes)
            }
        };
        let (subtree, zxid) = undisturbed(changes, || read(session, &self.kept.subtree))?;
        // One that is gone was perhaps deleted by mistake: what was good is kept.
        if subtree.is_empty() || self.digest == Some(subtree.digest()) {
            return Ok(());
        }
        // However it ends: a disk that fails is not tried more often than one that works.
        self.written = Some(session.now());
        let (directory, name) = self.kept.place().ok_or_else(|| Trouble::Other("the file has no name".to_owned()))?;
        let disk = FsDisk::shared(directory).map_err(|error| Trouble::Other(error.to_string()))?;
        let disk = MeteredDisk::all_for(disk, Arc::clone(&self.meter), Cause::Image);
        let bytes = subtree.write(&disk, name, zxid).map_err(|error| Trouble::Other(error.to_string()))?;
        (self.digest, self.told) = (Some(subtree.digest()), None);
        info!(subtree = self.kept.subtree.as_str(), path = %self.kept.path.display(), %zxid, bytes, "an image was written");
        Ok(())
    }
}

/// The directory on the way to the file that lets only some pass.
fn closed(kept: &KeptImage) -> Option<PathBuf> {
    let whole = kept.place()?.0.canonicalize().ok()?;
    let closed = whole
        .ancestors()
        .find(|directory| directory.metadata().is_ok_and(|directory| directory.permissions().mode() & 0o001 == 0));
    closed.map(Into::into)
}

/// What `read` gives when nothing changed meanwhile: an event is there before any answer that shows its change.
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

/// The whole subtree without ephemerals, and the zxid of its newest change.
fn read(session: &Session, top: &Path) -> Result<(Subtree, Zxid), Trouble> {
    let (mut todo, mut found, mut newest) = (vec![top.clone()], Vec::new(), 0);
    let mut bytes = 0;
    while let Some(path) = todo.pop() {
        let Some((data, stat)) = existing(session.get(&path).wait()).map_err(|error| named(&path, error))? else {
            continue;
        };
        newest = newest.max(stat.czxid).max(stat.mzxid).max(stat.pzxid);
        if stat.ephemeral_owner != 0 {
            continue;
        }
        if stat.num_children > 0 {
            let names = existing(session.children(&path).wait()).map_err(|error| named(&path, error))?;
            let parent = path.as_str().trim_end_matches('/');
            let paths = names
                .iter()
                .flat_map(|names| names.iter())
                .filter_map(|name| Path::new(format!("{parent}/{name}").into()).ok());
            todo.extend(paths);
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
    let mut children: HashMap<&str, i32> = HashMap::new();
    for parent in found.iter().filter_map(|(path, ..)| path.parent()) {
        *children.entry(parent).or_default() += 1;
    }
    let mut subtree = Subtree::default();
    for (path, data, stat) in found {
        subtree.add(path, data.as_deref(), stat, children.get(path.as_str()).copied().unwrap_or_default());
    }
    subtree
}

/// What is not there is nothing; whoever saw that it went hears of it.
fn existing<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(there) => Ok(Some(there)),
        Err(Error::Refused(zoolet_model::ErrorCode::NoNode)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn named(path: &Path, error: Error) -> Trouble {
    match error {
        Error::Refused(code) => Trouble::Other(format!("{} cannot be read: {code}", path.as_str())),
        error => Trouble::Session(error),
    }
}
