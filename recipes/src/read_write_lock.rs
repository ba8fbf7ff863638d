//! A lock that many readers share, or one writer has.
//!
//! # Guarantees
//! - While a writer holds it, nobody else does; readers may hold it together.
//! - First come, first served: a reader waits for the writers before it, a writer for everybody before it. A writer is not starved by readers who come later.
//! - A release wakes those who can go on: one writer, or the readers behind a writer, who all go on.
//! - With a [preference](ReadWriteLock::prefer) one kind overtakes the other; then nobody promises that those who wait have their turn some time.
//! - A writer can become a reader without anybody in between ([`ReadWriteLock::downgrade`]).
//! - Everything a [`Grant`] has: token, fenced writes, three states.
//!
//! # Does not guarantee
//! - What a [lock](crate::lock) does not guarantee.
//! - An upgrade: two readers who both wanted to write would wait for each other for ever.
//!
//! # Znodes
//! As those of a [lock](crate::lock), with names that say who reads and who writes. A writer that became a reader writes `downgraded` into its znode; one that is created with that word for its data is a writer like
//! any other. With a preference the path's data has a line for each holder, and `-pr` (readers first) or `-pw` (writers first) stands in the name
//! before what tells readers from writers.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the reply to the create is lost | the znode is found again by its GUID and its owner |
//! | the session is suspended while it waits | it goes on waiting; its place stays |
//! | the session is suspended when [`ReadWriteLock::try_read`] or [`ReadWriteLock::try_write`] is called, or before its answer | [`Error::Disconnected`] at once; nothing stays |
//! | the session is suspended while it holds | [`Holding::Doubtful`](crate::Holding::Doubtful), with the instant until which no writer, or nobody else, can hold |
//! | the session ends | [`Holding::Lost`](crate::Holding::Lost); those behind go on |
//! | somebody deletes the znode | a waiting one gets [`Error::Broken`], a holder is `Lost`; readers behind a broken writer go on |
//! | the reply to a downgrade is lost | it is looked up: a writer is a reader then, once |
//! | somebody asks for the lock while it is downgraded | both are kept: the request is there for the reader |
//! | the writer is broken before it is a reader | [`Error::Lost`] |
//! | with a preference, the reply to taking it is lost | the list of holders is read again; what a holder left in it counts while its znode is there |
//! | two participants say different [preferences](Preference) | the one that came later gets [`Error::Disagreement`]; the other goes on. The names of the znodes tell the preference |
//! | numbers are used up | [`Error::Exhausted`], as of a [lock](crate::lock) |
//!
//! # See also
//! [`Grant`](crate::grant), [`Naming`], [`Preference`], [`Contention`](crate::contention) for asking and breaking. Neither side is re-entrant.
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, ReadWriteLock};
//!
//! async fn replace_recipe<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let lock = ReadWriteLock::new(session, &Path::from_static("/locks/recipe"));
//!     let writing = lock.write().await?;
//!     writing.fenced().set(&Path::from_static("/recipe"), bytes::Bytes::from_static(b"new"), -1).await?;
//!     let reading = lock.downgrade(writing).await?;
//!     reading.release().await
//! }
//! ```

use crate::ask::{First, ask, at_once, data, first};
use crate::contention::{downgraded, is_downgraded};
use crate::line::Line;
use crate::naming::{Mode, Stands};
use crate::preference;
use crate::{Coordinator, Error, Grant, Naming, Preference};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use zoolet_model::{ErrorCode, Path, Request, WriteOp};

/// A lock for readers and writers, in the order in which they came: a reader waits for writers before it, a writer for everybody before it.
///
/// Neither is re-entrant, and a reader cannot become a writer: two who tried would wait for each other. A writer can become a reader
/// ([`ReadWriteLock::downgrade`]).
#[derive(Debug)]
pub struct ReadWriteLock<C: Coordinator> {
    readers: Arc<Line<C>>,
    writers: Arc<Line<C>>,
    preference: Preference,
}

impl<C: Coordinator> ReadWriteLock<C> {
    /// The lock at `path`, with the names of the documentation and no data.
    pub fn new(coordinator: C, path: &Path) -> Self {
        let readers = Line::new(coordinator, path, Naming::default(), Stands::Read, 0, Bytes::new());
        Self { writers: readers.standing_for(Stands::Write), readers, preference: Preference::Fair }
    }

    /// With other names.
    #[must_use]
    pub fn naming(self, naming: Naming) -> Self {
        let readers = self.readers.with(naming, 0, self.readers.content().clone());
        Self { writers: readers.standing_for(Stands::Write), readers, preference: self.preference }
    }

    /// With data in the znode of whoever stands in line: who it is, for people who look.
    #[must_use]
    pub fn described(self, content: impl Into<Bytes>) -> Self {
        let readers = self.readers.with(self.readers.naming(), 0, content.into());
        Self { writers: readers.standing_for(Stands::Write), readers, preference: self.preference }
    }

    /// Where one kind overtakes the other. Not for locks that others' libraries use as well: those know only [`Preference::Fair`].
    #[must_use]
    pub fn prefer(self, preference: Preference) -> Self {
        let readers = self.readers.with_preference(preference);
        Self { writers: readers.standing_for(Stands::Write), readers, preference }
    }

    /// Waits until no writer is before it. Dropping the future leaves the line.
    ///
    /// # Errors
    /// As [`Lock::acquire`](crate::Lock::acquire). [`Error::Disagreement`]: a participant that came earlier has another [`Preference`].
    pub async fn read(&self) -> Result<Grant<C>, Error> {
        self.acquire(&self.readers, Mode::Shared).await
    }

    /// Waits until nobody is before it. Dropping the future leaves the line.
    ///
    /// # Errors
    /// As [`ReadWriteLock::read`].
    pub async fn write(&self) -> Result<Grant<C>, Error> {
        self.acquire(&self.writers, Mode::Exclusive).await
    }

    /// [`ReadWriteLock::read`] if nothing is to be waited for.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`](crate::Lock::try_acquire).
    pub async fn try_read(&self) -> Result<Option<Grant<C>>, Error> {
        at_once(self.readers.coordinator(), self.try_acquire(&self.readers, Mode::Shared)).await
    }

    /// [`ReadWriteLock::write`] if nothing is to be waited for.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`](crate::Lock::try_acquire).
    pub async fn try_write(&self) -> Result<Option<Grant<C>>, Error> {
        at_once(self.writers.coordinator(), self.try_acquire(&self.writers, Mode::Exclusive)).await
    }

    /// [`ReadWriteLock::read`] within this time, or `None`, and nothing is left in the line.
    ///
    /// # Errors
    /// As [`Lock::acquire`](crate::Lock::acquire).
    pub async fn read_within(&self, patience: Duration) -> Result<Option<Grant<C>>, Error> {
        within(self.readers.coordinator(), patience, self.read()).await
    }

    /// [`ReadWriteLock::write`] within this time, or `None`, and nothing is left in the line.
    ///
    /// # Errors
    /// As [`Lock::acquire`](crate::Lock::acquire).
    pub async fn write_within(&self, patience: Duration) -> Result<Option<Grant<C>>, Error> {
        within(self.writers.coordinator(), patience, self.write()).await
    }

    /// Makes a writer a reader without letting anybody in between: the readers up to the next writer come in as well. Readers of other libraries
    /// go on waiting until this grant is released, because its name still says that it writes.
    ///
    /// # Errors
    /// [`Error::Lost`] when it is none any more; the session's.
    pub async fn downgrade(&self, mut writer: Grant<C>) -> Result<Grant<C>, Error> {
        if self.preference != Preference::Fair {
            preference::downgrade(writer.place_mut()).await?;
            return Ok(writer);
        }
        let coordinator = self.writers.coordinator();
        loop {
            let (content, stat) = data(coordinator, writer.path()).await?.ok_or(Error::Lost)?;
            if is_downgraded(content.as_ref(), &stat) {
                return Ok(writer);
            }
            let data = Some(Bytes::from_static(downgraded(content.as_ref(), &stat)));
            let op = WriteOp::SetData { path: writer.path().clone(), data, version: stat.version };
            match ask(coordinator, &Request::Write(op)).await {
                Ok(_) => return Ok(writer),
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))) => return Err(Error::Lost),
                // Somebody asked for it in this moment, or this was done and its reply lost.
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::BadVersion))) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn acquire(&self, line: &Arc<Line<C>>, mode: Mode) -> Result<Grant<C>, Error> {
        if self.preference == Preference::Fair {
            return acquire(line).await;
        }
        let (mut place, _) = line.enter().await?;
        preference::take(&mut place, mode, self.preference).await?;
        Ok(Grant::new(place))
    }

    async fn try_acquire(&self, line: &Arc<Line<C>>, mode: Mode) -> Result<Option<Grant<C>>, Error> {
        let (mut place, is_alone) = line.enter().await?;
        let has_turn = if self.preference == Preference::Fair {
            is_alone || place.has_turn().await?
        } else {
            preference::try_take(&mut place, mode, self.preference).await?
        };
        Ok(has_turn.then(|| Grant::new(place)))
    }
}

pub(crate) async fn acquire<C: Coordinator>(line: &Arc<Line<C>>) -> Result<Grant<C>, Error> {
    let (place, is_alone) = line.enter().await?;
    if !is_alone {
        place.wait_turn().await?;
    }
    Ok(Grant::new(place))
}

pub(crate) async fn acquire_within<C: Coordinator>(
    line: &Arc<Line<C>>,
    patience: Duration,
) -> Result<Option<Grant<C>>, Error> {
    within(line.coordinator(), patience, acquire(line)).await
}

/// What `acquire` gives within this time.
pub(crate) async fn within<C: Coordinator>(
    coordinator: &C,
    patience: Duration,
    acquire: impl Future<Output = Result<Grant<C>, Error>>,
) -> Result<Option<Grant<C>>, Error> {
    let timer = coordinator.timer(coordinator.now().saturating_add(patience));
    match first(acquire, timer).await {
        First::Left(grant) => grant.map(Some),
        First::Right(()) => Ok(None),
    }
}
