//! A gate for rolling restarts: it bounds how many boxes are down.
//!
//! A box that does not come back stops the others.
//!
//! # Guarantees
//! - No more boxes have a permit than may be down at once. Boxes get permits in order of arrival,
//!   and each returned permit wakes one box.
//! - A permit that was returned before [`RollingRestart::begin`] was called is not reported as
//!   kept. The call starts with a write, so this also holds against Apache ZooKeeper, where `sync`
//!   asks no quorum.
//! - A permit outlives the process that took it: after the restart [`RollingRestart::begin`]
//!   returns [`Permit::Kept`].
//!
//! # Does not guarantee
//! - That a box with a permit is down, or that a box without one is well. A box that never calls
//!   [`RollingRestart::done`] stops the others, on purpose. An operator can call it for the box.
//!
//! # Znodes
//! The path. Below it are `line`, a [lock](crate::lock), and `boxes`, with a persistent znode for
//! each permit. `path-receipts` has an ephemeral for each participant, which resolves lost replies.
//!
//! # Failures
//! - **The process dies with the permit**: the box has the permit after the restart.
//! - **A reply is lost**: the call finds out whether the permit was given or returned.
//! - **The session is suspended while it waits for a permit**: its place in the line stays.
//! - **The session ends while it waits**: its error, and its place is gone. Permits stay.
//! - **The future is dropped just when the permit is given**: the next call returns
//!   [`Permit::Kept`], or [`RollingRestart::done`] returns the permit.
//!
//! # Example
//! ```
//! use zoolet::recipes::{Permit, RollingRestart};
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn told_to_restart<C: Coordinator>(session: C) -> Result<Permit, Error> {
//!     RollingRestart::new(session, &Path::from_static("/restarts"), 1).begin("gw-a").await
//! }
//!
//! async fn started<C: Coordinator>(session: C, is_well: bool) -> Result<(), Error> {
//!     let gate = RollingRestart::new(session, &Path::from_static("/restarts"), 1);
//!     if is_well && gate.down().await?.iter().any(|name| name == "gw-a") {
//!         gate.done("gw-a").await?;
//!     }
//!     Ok(())
//! }
//! ```

use crate::ask::{First, ask_watching, below, create, fired, first, named, write_through};
use crate::barrier::wait_there;
use crate::once::Once;
use crate::{Coordinator, Error, Lock};
use zoolet_model::{CreateKind, ErrorCode, Path, Reply, Request, Text, WriteOp};

/// The gate at a path.
///
/// A box's permit is a persistent znode with the box's name, below `boxes`. It outlives the session
/// that took it, because often the process that owns the session is to be restarted.
#[derive(Debug)]
pub struct RollingRestart<C: Coordinator> {
    coordinator: C,
    boxes: Path,
    at_once: usize,
    lock: Lock<C>,
    once: Once<C>,
}

/// How a box got its permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// The permit was given now: restart.
    Given,
    /// The box had the permit already. This is the process after the restart, or after a crash on
    /// the way to the restart.
    Kept,
}

impl<C: Coordinator> RollingRestart<C> {
    /// Returns the gate at `path` for `at_once` boxes, at least one.
    ///
    /// All participants must use the same number.
    pub fn new(coordinator: C, path: &Path, at_once: usize) -> Self {
        Self {
            boxes: below(path, "boxes"),
            at_once: at_once.max(1),
            lock: Lock::new(coordinator.clone(), &below(path, "line")),
            once: Once::new(coordinator.clone(), path),
            coordinator,
        }
    }

    /// Waits until this box may go down, and takes its permit.
    ///
    /// Boxes are served in order of arrival. Dropping the future leaves nothing behind, except a
    /// permit given in that moment; [`RollingRestart::done`] returns it.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName) if no znode can have that name.
    /// - Fails if the session ends or a request is refused.
    /// - The errors of [`Lock::acquire`] on the line.
    pub async fn begin(&self, name: &str) -> Result<Permit, Error> {
        let own = self.permit(name)?;
        let c = &self.coordinator;
        crate::ask::make_persistent(c, &self.boxes).await?;
        // A lagging server would show a permit that an earlier process has returned.
        write_through(c).await?;
        // The permit may also appear during the wait: an earlier attempt, whose reply was lost or
        // whose future was dropped, has taken it. Then the box ahead in the line waits for that
        // very permit to come back.
        let _turn = match first(wait_there(c, &own), self.lock.acquire()).await {
            First::Left(there) => return there.map(|()| Permit::Kept),
            First::Right(turn) => turn?,
        };
        let list = Request::GetChildren { path: self.boxes.text().clone(), watch: true, with_stat: true };
        loop {
            let (listed, watch) = ask_watching(c, &list).await?;
            let Some(Reply::NamesStat(names, stat)) = listed else { return Err(Error::unexpected()) };
            if names.len() >= self.at_once && !names.iter().any(|other| other == name) {
                fired(c, watch).await?;
                continue;
            }
            // The list may have changed if two boxes use different numbers, or a former holder of
            // the turn is late. So the write names the list's version.
            let ops = [
                WriteOp::SetData { path: self.boxes.text().clone(), data: None, version: stat.version },
                create(own.clone(), None, CreateKind::Persistent, false),
            ];
            match self.once.transact(&ops).await? {
                Ok(()) => return Ok(Permit::Given),
                Err((0, ErrorCode::BadVersion)) => {}
                Err((1, ErrorCode::NodeExists)) => return Ok(Permit::Kept),
                Err((_, code)) => return Err(Error::at(code, "use the permits", self.boxes.text())),
            }
        }
    }

    /// Returns the permit: this box is well again, and the next may go down.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName) if no znode can have that name. Fails if the session ends or a
    /// request is refused.
    pub async fn done(&self, name: &str) -> Result<(), Error> {
        // Once: when a lost reply is noticed, the box may already have another permit.
        let delete = WriteOp::Delete { path: self.permit(name)?, version: -1 };
        match self.once.transact(&[delete]).await? {
            Ok(()) | Err((_, ErrorCode::NoNode)) => Ok(()),
            Err((_, code)) => Err(Error::at(code, "use the permits", self.boxes.text())),
        }
    }

    /// Returns the boxes that have a permit: they are down, or have not called `done` yet.
    ///
    /// # Errors
    /// Fails if the session ends or the request is refused.
    pub async fn down(&self) -> Result<Vec<String>, Error> {
        let names = crate::ask::children(&self.coordinator, self.boxes.text()).await?;
        Ok(names.iter().map(str::to_owned).collect())
    }

    fn permit(&self, name: &str) -> Result<Text, Error> {
        Ok(named(&self.boxes, name)?.text().clone())
    }
}
