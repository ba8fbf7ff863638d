//! A semaphore: so many at a time, the others in the order in which they came.
//!
//! The layout is Curator's: whoever wants a permit first takes the lock at `locks`, and only the one who has it looks at the permits that are out,
//! below `leases`. So a permit that comes back wakes one participant, and nobody overtakes.
//!
//! # Guarantees
//! - Never more grants stand than the size says; the size is in the tree, and a participant that says another one gets [`Error::Disagreement`].
//! - First come, first served, and one participant wakes for each permit that comes back.
//! - Everything a [`Grant`] has. The token is larger than that of every earlier grant.
//!
//! # Does not guarantee
//! - After [`Semaphore::resize`] to less, that permits which are out come back: it holds for those that are given from then on.
//! - Curator does not read the size: all programs that use it with Curator have to agree by themselves.
//!
//! # Znodes
//! The path, persistent, whose data is the size in decimal; `locks` (a [lock](crate::lock)) and `leases` below it: containers with an ephemeral
//! sequential znode for each participant. `path-receipts` has an ephemeral for each participant that has [resized](Semaphore::resize) it, by which a
//! lost reply is resolved.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the reply to a create is lost | the own place is looked for by its GUID, in `locks` as in `leases` |
//! | the session is suspended while it waits | the next server tells what happened; the place is kept |
//! | the session is suspended when [`Semaphore::try_acquire`] is called, or before its answer | [`Error::Disconnected`] at once; nothing stays |
//! | the session ends | its permit is free; whoever waits gets its error |
//! | a holder is [Doubtful](crate::Holding) | as of a [lock](crate::lock): its permit may be somebody else's as soon as its session is over |
//! | somebody breaks a permit | the grant is lost, the next one gets it |
//! | somebody breaks the place of one who waits | [`Error::Broken`]; the next in the line waits for a permit instead |
//! | [`Semaphore::resize`] to more | whoever waits for a permit hears of it and gets one |
//! | to less | nobody new gets one until enough came back |
//! | the reply to resize is lost | it is found out whether it was done: a size that somebody else has set since stays |
//! | nobody said a size | NoNode or [`Error::Malformed`] |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, Semaphore};
//!
//! async fn update<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let downloads = Semaphore::new(session, &Path::from_static("/downloads"))?;
//!     downloads.set_size(2).await?;
//!     let permit = downloads.acquire().await?;
//!     permit.release().await
//! }
//! ```

use crate::ask::{First, ask, ask_watching, at_once, children, data, fired, first};
use crate::line::{Line, Place};
use crate::mutation::{Mutation, is_on};
use crate::naming::{self, Stands};
use crate::once::Once;
use crate::read_write_lock::{acquire, within};
use crate::{Coordinator, Error, Grant, Naming};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use zoolet_model::{ErrorCode, Names, Path, Reply, Request, WriteOp};

/// A semaphore, whose size everybody reads from the tree: participants cannot disagree.
#[derive(Debug)]
pub struct Semaphore<C: Coordinator> {
    path: Path,
    locks: Arc<Line<C>>,
    leases: Arc<Line<C>>,
    /// For sizes, which anybody may change.
    once: Once<C>,
}

impl<C: Coordinator> Semaphore<C> {
    /// The semaphore at `path`.
    ///
    /// # Errors
    /// BadArguments when nothing can be below that path.
    pub fn new(coordinator: C, path: &Path) -> Result<Self, Error> {
        let below = |name: &str| {
            Path::new(zoolet_model::path::child(path.as_str(), name)).map_err(zoolet_model::Error::Refused)
        };
        let (locks, leases) = (below("locks")?, below("leases")?);
        let naming = Naming::default();
        Ok(Self {
            path: path.clone(),
            once: Once::new(coordinator.clone(), path),
            locks: Line::new(coordinator.clone(), &locks, naming, Stands::Lock, 0, Bytes::new()),
            leases: Line::new(coordinator, &leases, naming, Stands::Lease, 0, Bytes::new()),
        })
    }

    /// With other names. `Curator` mixes with its `InterProcessSemaphoreV2` of the same number of leases.
    #[must_use]
    pub fn naming(self, naming: Naming) -> Self {
        let with = |line: &Arc<Line<C>>| line.with(naming, 0, line.content().clone());
        Self { locks: with(&self.locks), leases: with(&self.leases), ..self }
    }

    /// With data in the znode of whoever has a permit.
    #[must_use]
    pub fn described(self, content: impl Into<Bytes>) -> Self {
        let leases = self.leases.with(self.leases.naming(), 0, content.into());
        Self { leases, ..self }
    }

    /// Says how many permits there are. The first one makes the semaphore with that size.
    ///
    /// # Errors
    /// [`Error::Disagreement`] when it has another size; [`Error::Malformed`]; the session's.
    pub async fn set_size(&self, size: u32) -> Result<(), Error> {
        let coordinator = self.locks.coordinator();
        loop {
            let Some((data, stat)) = data(coordinator, self.path.text()).await? else {
                crate::ask::make_persistent(coordinator, &self.path).await?;
                continue;
            };
            match data.as_deref().unwrap_or_default() {
                // Made as somebody's parent only.
                [] => {}
                text if parse(text)? == size => return Ok(()),
                _ => return Err(Error::Disagreement),
            }
            let data = Some(Bytes::from(size.to_string()));
            let op = WriteOp::SetData { path: self.path.text().clone(), data, version: stat.version };
            match ask(coordinator, &Request::Write(op)).await {
                // Or somebody else was faster: what there is now decides.
                Ok(_) | Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::BadVersion))) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Changes how many permits there are. Those that are out stay out; whoever waits hears of it.
    ///
    /// # Errors
    /// The session's.
    pub async fn resize(&self, size: u32) -> Result<(), Error> {
        let data = Some(Bytes::from(size.to_string()));
        let op = WriteOp::SetData { path: self.path.text().clone(), data, version: -1 };
        loop {
            match self.once.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => return Ok(()),
                Err((_, ErrorCode::NoNode)) => {
                    crate::ask::make_persistent(self.locks.coordinator(), &self.path).await?;
                }
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// How many permits are out.
    ///
    /// # Errors
    /// The session's.
    pub async fn taken(&self) -> Result<usize, Error> {
        Ok(self.leases.standing().await?.len())
    }

    /// A permit if one is free and nobody waits for it. Waits for no connection.
    ///
    /// # Errors
    /// [`Error::Disconnected`] if the session has no connection, or loses it before the answer: the
    /// call cannot tell whether a permit is free. Otherwise as [`Semaphore::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Grant<C>>, Error> {
        at_once(self.locks.coordinator(), self.take_if_free()).await
    }

    async fn take_if_free(&self) -> Result<Option<Grant<C>>, Error> {
        if !self.locks.standing().await?.is_empty() {
            return Ok(None);
        }
        let (turn, is_alone) = self.locks.enter().await?;
        if !is_alone && !turn.has_turn().await? {
            return Ok(None);
        }
        let (place, _) = self.leases.enter().await?;
        let is_free = self.has_permit_now(&place).await?;
        drop(turn);
        Ok(is_free.then(|| Grant::new(place)))
    }

    /// Waits for a permit at most so long; `None` when that was not enough, and nothing is left in the lines.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub async fn acquire_within(&self, patience: Duration) -> Result<Option<Grant<C>>, Error> {
        within(self.locks.coordinator(), patience, self.acquire()).await
    }

    /// Without a watch.
    async fn has_permit_now(&self, place: &Place<C>) -> Result<bool, Error> {
        let coordinator = self.leases.coordinator();
        let names = children(coordinator, self.leases.parent().text()).await?;
        let size = data(coordinator, self.path.text()).await?.map(|(data, _)| data);
        has_permit(place, &names, size)
    }

    /// Waits for a permit. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// NoNode when nobody has said how many there are; [`Error::Malformed`]; as [`Lock::acquire`](crate::Lock::acquire).
    pub async fn acquire(&self) -> Result<Grant<C>, Error> {
        let turn = acquire(&self.locks).await?;
        let (place, _) = self.leases.enter().await?;
        let coordinator = self.leases.coordinator();
        let path = self.leases.parent().text();
        let leases = Request::GetChildren { path: path.clone(), watch: true, with_stat: false };
        let size = Request::GetData { path: self.path.text().clone(), watch: true };
        loop {
            // Without a watch first: whoever need not wait leaves none behind.
            if self.has_permit_now(&place).await? {
                break;
            }
            let (names, changed) = ask_watching(coordinator, &leases).await?;
            let Some(Reply::Names(names)) = names else { return Err(Error::Broken) };
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
        Ok(Grant::new(place))
    }
}

/// Whether fewer stand before this place than there are permits, when those were `names` and then there were `size`. In this order: while the list
/// grows old it only gets shorter, because nobody else comes in; a size that grows old may have become less.
///
/// Whoever stands behind does not count: it waits too, after somebody broke a place in the other line.
fn has_permit<C: Coordinator>(place: &Place<C>, names: &Names, size: Option<Option<Bytes>>) -> Result<bool, Error> {
    let size = size.ok_or(zoolet_model::Error::Refused(ErrorCode::NoNode))?;
    let size = parse(size.as_deref().unwrap_or_default())?;
    if !place.is_among(names) {
        return Err(Error::Broken);
    }
    let own = naming::number(place.path());
    let before = names
        .iter()
        .filter_map(naming::number)
        .filter(|number| Some(*number) < own || is_on(Mutation::SemaphoreCountsLater));
    Ok(before.count() < size as usize)
}

fn parse(text: &[u8]) -> Result<u32, Error> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Error::Malformed)
}
