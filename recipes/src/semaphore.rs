//! A semaphore: a limited number of permits, granted in arrival order.
//!
//! The layout is Curator's. A participant that wants a permit first acquires the lock at `locks`.
//! Only the holder of that lock looks at the permits that are out, below `leases`. So a returned
//! permit wakes one participant, and none overtakes another.
//!
//! # Guarantees
//! - Grants never exceed the size. The size is in the tree, and a participant with another one gets
//!   [`ErrorKind::Disagreement`].
//! - First come, first served. Each returned permit wakes one participant.
//! - Everything that a [`Grant`] has. The token is larger than the token of every earlier grant.
//!
//! # Does not guarantee
//! - A [`Semaphore::resize`] to a smaller size does not take permits back. The new size applies to
//!   permits granted from then on.
//! - Curator does not read the size. Programs that share a semaphore with Curator have to agree on
//!   it themselves.
//!
//! # Znodes
//! - The path, persistent, with the size in decimal as its data.
//! - `locks` (a [lock](crate::lock)) and `leases` below it: containers with an ephemeral sequential
//!   znode for each participant.
//! - `path-receipts`: an ephemeral for each participant that has [resized](Semaphore::resize) the
//!   semaphore, which resolves lost replies.
//!
//! # Failures
//! - **The reply to a create is lost**: the participant finds its place by the GUID, in `locks` and
//!   in `leases`.
//! - **The session is suspended while it waits**: the next server reports missed changes, and the
//!   place is kept.
//! - **The session is suspended when [`Semaphore::try_acquire`] is called, or before its answer**:
//!   [`ErrorKind::Disconnected`] at once. No znode is left.
//! - **The session ends**: its permit is free. A waiting call returns the session's error.
//! - **A holder is [doubtful](crate::Holding)**: as for a [lock](crate::lock), another participant
//!   may get the permit as soon as the session is over.
//! - **A permit is broken**: its grant is lost, and the next participant gets the permit.
//! - **The place of a waiter is broken**: [`ErrorKind::Broken`]. The next participant in the line waits
//!   for a permit instead.
//! - **[`Semaphore::resize`] to a larger size**: the participant that waits for a permit is
//!   notified and gets one.
//! - **[`Semaphore::resize`] to a smaller size**: no further permits are granted until enough have
//!   been returned.
//! - **The reply to a resize is lost**: the call finds out whether it was done. A size that another
//!   participant has set since stays.
//! - **No size was set**: NoNode or [`ErrorKind::Malformed`].
//!
//! # Example
//! ```
//! use zoolet::recipes::Semaphore;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn update<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let downloads = Semaphore::new(session, &Path::from_static("/downloads"));
//!     downloads.set_size(2).await?;
//!     let permit = downloads.acquire().await?;
//!     permit.release().await
//! }
//! ```

use crate::ask::{First, ask, ask_watching, at_once, below, bytes, children, data, fired, first};
use crate::line::{Line, Place};
use crate::mutation::{Mutation, is_on};
use crate::naming::{self, Stands};
use crate::once::Once;
use crate::read_write_lock::within;
use crate::{Coordinator, Error, ErrorKind, Grant, Naming};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use zoolet_model::{ErrorCode, IntoData, Names, Path, Reply, Request, WriteOp};

/// A semaphore whose size is in the tree.
///
/// So its participants cannot disagree about the size. Clones are handles to the same participant.
#[derive(Clone, Debug)]
pub struct Semaphore<C: Coordinator> {
    path: Path,
    locks: Arc<Line<C>>,
    leases: Arc<Line<C>>,
    /// Resizes exactly once: any participant may change the size meanwhile.
    once: Arc<Once<C>>,
}

impl<C: Coordinator> Semaphore<C> {
    /// Returns the semaphore at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        let (locks, leases) = (below(path, "locks"), below(path, "leases"));
        let naming = Naming::default();
        Self {
            path: path.clone(),
            once: Arc::new(Once::new(coordinator.clone(), path)),
            locks: Line::new(coordinator.clone(), &locks, naming, Stands::Lock, 0, Bytes::new()),
            leases: Line::new(coordinator, &leases, naming, Stands::Lease, 0, Bytes::new()),
        }
    }

    /// Uses the znode names of another library.
    ///
    /// [`Naming::Curator`] works together with Curator's `InterProcessSemaphoreV2` of the same
    /// number of leases.
    #[must_use]
    pub fn naming(self, naming: Naming) -> Self {
        let with = |line: &Arc<Line<C>>| line.with(naming, 0, line.content().clone());
        Self { locks: with(&self.locks), leases: with(&self.leases), ..self }
    }

    /// Describes this participant in the znodes of its permits.
    #[must_use]
    pub fn described(self, content: impl IntoData) -> Self {
        let leases = self.leases.with(self.leases.naming(), 0, bytes(content));
        Self { leases, ..self }
    }

    /// Sets the number of permits, or confirms the present one.
    ///
    /// The first call creates the semaphore with that size.
    ///
    /// # Errors
    /// - [`ErrorKind::Disagreement`] if the semaphore has another size.
    /// - [`ErrorKind::Malformed`] if the path's data is not a size.
    /// - Fails if the session ends or a request is refused.
    pub async fn set_size(&self, size: u32) -> Result<(), Error> {
        let coordinator = self.locks.coordinator();
        loop {
            let Some((data, stat)) = data(coordinator, self.path.text()).await? else {
                crate::ask::make_persistent(coordinator, &self.path).await?;
                continue;
            };
            match data.as_deref().unwrap_or_default() {
                // The znode was created only as a parent.
                [] => {}
                text if parse(text)? == size => return Ok(()),
                _ => return Err(Error::at(ErrorKind::Disagreement, "set the size of", self.path.text())),
            }
            let data = Some(Bytes::from(size.to_string()));
            let op = WriteOp::SetData { path: self.path.text().clone(), data, version: stat.version };
            match ask(coordinator, &Request::Write(op)).await {
                // On `BadVersion` another participant was faster. Check the size that is set now.
                Ok(_) => {}
                Err(error) if error.is_bad_version() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Changes the number of permits.
    ///
    /// Permits that are out stay out. A waiting participant learns the new size.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn resize(&self, size: u32) -> Result<(), Error> {
        let data = Some(Bytes::from(size.to_string()));
        let op = WriteOp::SetData { path: self.path.text().clone(), data, version: -1 };
        loop {
            match self.once.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => return Ok(()),
                Err((_, ErrorCode::NoNode)) => {
                    crate::ask::make_persistent(self.locks.coordinator(), &self.path).await?;
                }
                Err((_, code)) => return Err(Error::at(code, "use the semaphore", self.path.text())),
            }
        }
    }

    /// Returns the number of participants below `leases`.
    ///
    /// These are the permits that are out, and at times a participant that still waits for its
    /// permit.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn taken(&self) -> Result<usize, Error> {
        Ok(self.leases.standing().await?.len())
    }

    /// Returns a permit if one is free; `None` otherwise.
    ///
    /// None is free while another participant waits. The call does not wait for a connection.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] if the session has no connection, or loses it before the answer: the
    /// call cannot tell whether a permit is free. Otherwise as [`Semaphore::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Grant<C>>, Error> {
        at_once(self.locks.coordinator(), self.take_if_free()).await
    }

    async fn take_if_free(&self) -> Result<Option<Grant<C>>, Error> {
        if !self.locks.standing().await?.is_empty() {
            return Ok(None);
        }
        let (mut turn, is_alone) = self.locks.enter_for(&self.path).await?;
        if !is_alone && !turn.has_turn().await? {
            return Ok(None);
        }
        let (mut place, _) = self.leases.enter_untold().await?;
        place.tell_instead_of(&mut turn);
        let is_free = self.has_permit_now(&place).await?;
        drop(turn);
        Ok(is_free.then(|| Grant::new(place)))
    }

    /// Waits for a permit for at most `patience`.
    ///
    /// After that it returns `None`, and nothing is left in the lines.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub async fn acquire_within(&self, patience: Duration) -> Result<Option<Grant<C>>, Error> {
        within(self.locks.coordinator(), patience, self.acquire()).await
    }

    /// Whether `place` has a permit now; sets no watch.
    async fn has_permit_now(&self, place: &Place<C>) -> Result<bool, Error> {
        let coordinator = self.leases.coordinator();
        let names = children(coordinator, self.leases.parent().text()).await?;
        let size = data(coordinator, self.path.text()).await?.map(|(data, _)| data);
        has_permit(place, &names, size)
    }

    /// Waits for a permit. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// - [`ErrorKind::Refused`] with `NoNode`, or [`ErrorKind::Malformed`], if the path's data is no size.
    /// - Otherwise as [`Lock::acquire`](crate::Lock::acquire).
    pub async fn acquire(&self) -> Result<Grant<C>, Error> {
        let (mut turn, is_alone) = self.locks.enter_for(&self.path).await?;
        if !is_alone {
            turn.wait_turn().await?;
        }
        let (mut place, _) = self.leases.enter_untold().await?;
        place.tell_instead_of(&mut turn);
        let coordinator = self.leases.coordinator();
        let path = self.leases.parent().text();
        let leases = Request::GetChildren { path: path.clone(), watch: true, with_stat: false };
        let size = Request::GetData { path: self.path.text().clone(), watch: true };
        loop {
            // Look without a watch first: a call that need not wait leaves no watch behind.
            if self.has_permit_now(&place).await? {
                break;
            }
            let (names, changed) = ask_watching(coordinator, &leases).await?;
            let Some(Reply::Names(names)) = names else { return Err(ErrorKind::Broken.into()) };
            let (now, resized) = ask_watching(coordinator, &size).await?;
            let now = now.map(|reply| if let Reply::Data(data, _) = reply { data } else { None });
            if has_permit(&place, &names, now)? {
                break;
            }
            match first(fired(coordinator, changed), fired(coordinator, resized)).await {
                First::Left(event) | First::Right(event) => event?,
            };
        }
        drop(turn);
        place.settle().await?;
        Ok(Grant::new(place))
    }
}

/// Whether this place has a permit.
///
/// It has one if fewer participants are before it than there are permits. The caller reads `names`
/// before `size`. A list that has aged can only have become shorter, because only the holder of the
/// lock at `locks` adds places. A size that has aged may have become smaller.
///
/// Participants behind this place do not count. They wait as well, after a place in the line of
/// `locks` was broken.
fn has_permit<C: Coordinator>(place: &Place<C>, names: &Names, size: Option<Option<Bytes>>) -> Result<bool, Error> {
    let size = size.ok_or(ErrorKind::Refused(ErrorCode::NoNode))?;
    let size = parse(size.as_deref().unwrap_or_default())?;
    if !place.is_among(names) {
        return Err(ErrorKind::Broken.into());
    }
    let own = naming::number(place.path());
    let before = names
        .iter()
        .filter_map(naming::number)
        .filter(|number| Some(*number) < own || is_on(Mutation::SemaphoreCountsLater));
    Ok(before.count() < size as usize)
}

fn parse(text: &[u8]) -> Result<u32, Error> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(ErrorKind::Malformed.into())
}
