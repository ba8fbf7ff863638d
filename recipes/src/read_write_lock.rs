//! A lock that many readers share, or one writer holds.
//!
//! # Guarantees
//! - While a writer holds the lock, no other participant does. Readers may hold it together.
//! - First come, first served: a reader waits for earlier writers, a writer for every earlier
//!   participant. Readers that come later do not starve a writer.
//! - A release wakes only participants that can go on: one writer, or all readers behind a writer.
//! - With a [preference](ReadWriteLock::prefer), one kind overtakes the other. Waiters of the other
//!   kind may then wait for ever.
//! - A writer can become a reader without releasing the lock ([`ReadWriteLock::downgrade`]).
//! - Everything that a [`Grant`] has: token, fenced writes, three states.
//!
//! # Does not guarantee
//! - Anything that a [lock](crate::lock) does not guarantee.
//! - An upgrade: two readers that both want to write would wait for each other for ever.
//! - Re-entrancy, of either side.
//!
//! # Znodes
//! Those of a [lock](crate::lock), with names that tell readers from writers. A writer that becomes
//! a reader writes `downgraded` into its znode. A znode that was created with that word as its data
//! is still a writer's.
//!
//! With a preference, the path's data has a line for each holder. Each name then has `-pr` (readers
//! first) or `-pw` (writers first) before the part that tells readers from writers.
//!
//! # Failures
//! - **The reply to the create is lost**: the participant finds its znode by the GUID and the
//!   owner.
//! - **The session is suspended while it waits**: it continues to wait, and keeps its place.
//! - **The session is suspended when [`ReadWriteLock::try_read`] or [`ReadWriteLock::try_write`] is
//!   called, or before its answer**: [`ErrorKind::Disconnected`](crate::ErrorKind::Disconnected) at once. No znode is left.
//! - **The session is suspended while it holds**: [`Holding::Doubtful`](crate::Holding::Doubtful),
//!   with the instant until which no conflicting participant can hold the lock.
//! - **The session ends**: [`Holding::Lost`](crate::Holding::Lost). The participants behind it go
//!   on.
//! - **A client deletes a znode**: a waiter gets [`ErrorKind::Broken`](crate::ErrorKind::Broken), and a holder is `Lost`. Readers
//!   behind a broken writer go on.
//! - **The reply to a downgrade is lost**: the writer looks it up. It is downgraded once.
//! - **A request to release the lock comes during a downgrade**: both are kept, and the reader
//!   finds the request.
//! - **The writer is broken before it has become a reader**: [`ErrorKind::GrantLost`](crate::ErrorKind::GrantLost).
//! - **With a preference, the reply to taking the lock is lost**: the list of holders is read
//!   again. A holder's line counts only while its znode exists.
//! - **Two participants use different [preferences](Preference)**: the later one gets
//!   [`ErrorKind::Disagreement`](crate::ErrorKind::Disagreement), and the other goes on. The names of the znodes show the preference.
//! - **The sequence numbers are used up**: [`ErrorKind::Exhausted`](crate::ErrorKind::Exhausted), as for a [lock](crate::lock).
//!
//! # See also
//! - [`Grant`](crate::grant), [`Naming`] and [`Preference`].
//! - [`Contention`](crate::contention) asks for a release or breaks a grant.
//!
//! # Example
//! ```
//! use zoolet::recipes::ReadWriteLock;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn replace_recipe<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let lock = ReadWriteLock::new(session, &Path::from_static("/locks/recipe"));
//!     let writing = lock.write().await?;
//!     writing.fenced().put(&Path::from_static("/recipe"), "new").await?;
//!     let reading = lock.downgrade(writing).await?;
//!     reading.release().await
//! }
//! ```

use crate::ask::{BROKEN, First, ask, at_once, bytes, data, first};
use crate::contention::{downgraded, is_downgraded};
use crate::line::Line;
use crate::naming::{Mode, Stands};
use crate::preference;
use crate::{Coordinator, Error, Grant, Naming, Preference};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use zoolet_model::{IntoData, Path, Request, WriteOp};

/// A lock for readers and writers, in arrival order.
///
/// A reader waits for earlier writers, a writer for every earlier participant. Neither is
/// re-entrant. A reader cannot become a writer: two readers that tried would wait for each other. A
/// writer can become a reader ([`ReadWriteLock::downgrade`]). Clones are handles to the same
/// participant.
#[derive(Clone, Debug)]
pub struct ReadWriteLock<C: Coordinator> {
    readers: Arc<Line<C>>,
    writers: Arc<Line<C>>,
    preference: Preference,
}

impl<C: Coordinator> ReadWriteLock<C> {
    /// Returns the lock at `path`.
    ///
    /// It uses the documentation's znode names and no description.
    pub fn new(coordinator: C, path: &Path) -> Self {
        let readers = Line::new(coordinator, path, Naming::default(), Stands::Read, 0, Bytes::new());
        Self { writers: readers.standing_for(Stands::Write), readers, preference: Preference::Fair }
    }

    /// Uses the znode names of another library.
    #[must_use]
    pub fn naming(self, naming: Naming) -> Self {
        let readers = self.readers.with(naming, 0, self.readers.content().clone());
        Self { writers: readers.standing_for(Stands::Write), readers, preference: self.preference }
    }

    /// Describes this participant in its znodes, for operators.
    #[must_use]
    pub fn described(self, content: impl IntoData) -> Self {
        let readers = self.readers.with(self.readers.naming(), 0, bytes(content));
        Self { writers: readers.standing_for(Stands::Write), readers, preference: self.preference }
    }

    /// Lets one kind overtake the other.
    ///
    /// Other libraries know only [`Preference::Fair`]: use no other preference on a lock that they
    /// share.
    #[must_use]
    pub fn prefer(self, preference: Preference) -> Self {
        let readers = self.readers.with_preference(preference);
        Self { writers: readers.standing_for(Stands::Write), readers, preference }
    }

    /// Waits until no earlier writer is left. Dropping the future leaves the line.
    ///
    /// With a [`Preference`], that decides instead of the arrival order.
    ///
    /// # Errors
    /// As [`Lock::acquire`](crate::Lock::acquire). [`ErrorKind::Disagreement`](crate::ErrorKind::Disagreement) if an earlier
    /// participant has another [`Preference`].
    pub async fn read(&self) -> Result<Grant<C>, Error> {
        self.acquire(&self.readers, Mode::Shared).await
    }

    /// Waits until no earlier participant is left. Dropping the future leaves the line.
    ///
    /// With a [`Preference`], that decides instead of the arrival order.
    ///
    /// # Errors
    /// As [`ReadWriteLock::read`].
    pub async fn write(&self) -> Result<Grant<C>, Error> {
        self.acquire(&self.writers, Mode::Exclusive).await
    }

    /// Returns a read grant if no wait is needed; `None` otherwise.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`](crate::Lock::try_acquire). [`ErrorKind::Disagreement`](crate::ErrorKind::Disagreement) as for
    /// [`ReadWriteLock::read`].
    pub async fn try_read(&self) -> Result<Option<Grant<C>>, Error> {
        at_once(self.readers.coordinator(), self.try_acquire(&self.readers, Mode::Shared)).await
    }

    /// Returns a write grant if no wait is needed; `None` otherwise.
    ///
    /// # Errors
    /// As [`ReadWriteLock::try_read`].
    pub async fn try_write(&self) -> Result<Option<Grant<C>>, Error> {
        at_once(self.writers.coordinator(), self.try_acquire(&self.writers, Mode::Exclusive)).await
    }

    /// As [`ReadWriteLock::read`], for at most `patience`.
    ///
    /// After that it returns `None`, and nothing is left in the line.
    ///
    /// # Errors
    /// As [`ReadWriteLock::read`].
    pub async fn read_within(&self, patience: Duration) -> Result<Option<Grant<C>>, Error> {
        within(self.readers.coordinator(), patience, self.read()).await
    }

    /// As [`ReadWriteLock::write`], for at most `patience`.
    ///
    /// After that it returns `None`, and nothing is left in the line.
    ///
    /// # Errors
    /// As [`ReadWriteLock::read`].
    pub async fn write_within(&self, patience: Duration) -> Result<Option<Grant<C>>, Error> {
        within(self.writers.coordinator(), patience, self.write()).await
    }

    /// Makes a writer a reader, without releasing the lock in between.
    ///
    /// The readers up to the next writer are granted the lock as well. Readers of other libraries
    /// wait until this grant is released, because its znode's name is still a writer's.
    ///
    /// # Errors
    /// [`ErrorKind::GrantLost`](crate::ErrorKind::GrantLost) if the grant is over. Fails if the session ends or a request is
    /// refused.
    pub async fn downgrade(&self, mut writer: Grant<C>) -> Result<Grant<C>, Error> {
        if self.preference != Preference::Fair {
            preference::downgrade(writer.place_mut()).await?;
            return Ok(writer);
        }
        let coordinator = self.writers.coordinator();
        let znode = writer.path().text().clone();
        let lost = || Error::at(BROKEN, "hold", &znode);
        loop {
            let (content, stat) = data(coordinator, &znode).await?.ok_or_else(lost)?;
            if is_downgraded(content.as_ref(), &stat) {
                return Ok(writer);
            }
            let data = Some(Bytes::from_static(downgraded(content.as_ref(), &stat)));
            let op = WriteOp::SetData { path: writer.path().text().clone(), data, version: stat.version };
            match ask(coordinator, &Request::Write(op)).await {
                Ok(_) => return Ok(writer),
                Err(error) if error.is_no_node() => return Err(lost()),
                // A request was written at the same moment, or this write was done and its reply
                // lost.
                Err(error) if error.is_bad_version() => {}
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
        place.settle().await?;
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
    let (mut place, is_alone) = line.enter().await?;
    if !is_alone {
        place.wait_turn().await?;
    }
    place.settle().await?;
    Ok(Grant::new(place))
}

pub(crate) async fn acquire_within<C: Coordinator>(
    line: &Arc<Line<C>>,
    patience: Duration,
) -> Result<Option<Grant<C>>, Error> {
    within(line.coordinator(), patience, acquire(line)).await
}

/// Returns the result of `acquire`, or `None` once `patience` has passed.
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
