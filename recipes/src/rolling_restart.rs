//! A gate for rolling restarts: so many boxes at a time are down, and a box that does not come back stops the others.
//!
//! # Guarantees
//! - Never more boxes have a permit than may be down at once, in the order in which they came. A permit that comes back wakes one.
//! - A permit that was given back before [`RollingRestart::begin`] was called is not kept: `begin` starts with a write, so that this also holds against
//!   Apache ZooKeeper, where `sync` asks no quorum.
//! - A permit outlives the process that took it: after the restart [`RollingRestart::begin`] says [`Permit::Kept`].
//!
//! # Does not guarantee
//! - That a box with a permit is down, or that one without is well. A box that never says [`RollingRestart::done`] stops the others, on purpose; an operator says it for it.
//!
//! # Znodes
//! The path; below it `line`, a [lock](crate::lock), and `boxes` with a persistent znode for each permit. `path-receipts` has an ephemeral for each participant by which a lost reply is
//! resolved.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the process dies with the permit | it has it after the restart |
//! | the reply is lost | it is found out whether the permit was given, or given back |
//! | the session is suspended while it waits for a permit | its place in the line stays |
//! | the session ends while it waits | its error, and its place is gone; whoever has a permit keeps it |
//! | the future is dropped in that moment | the permit may have been given: [`Permit::Kept`] the next time, or [`RollingRestart::done`] gives it back |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, Permit, RollingRestart};
//!
//! async fn told_to_restart<C: Coordinator>(session: C) -> Result<Permit, Error> {
//!     RollingRestart::new(session, &Path::from_static("/restarts"), 1)?.begin("gw-a").await
//! }
//!
//! async fn started<C: Coordinator>(session: C, is_well: bool) -> Result<(), Error> {
//!     let gate = RollingRestart::new(session, &Path::from_static("/restarts"), 1)?;
//!     if is_well && gate.down().await?.iter().any(|name| name == "gw-a") {
//!         gate.done("gw-a").await?;
//!     }
//!     Ok(())
//! }
//! ```

use crate::ask::{First, UNEXPECTED, ask_watching, create, fired, first, named, write_through};
use crate::barrier::wait_there;
use crate::once::Once;
use crate::{Coordinator, Error, Lock};
use zoolet_model::{CreateKind, ErrorCode, Path, Reply, Request, Text, WriteOp};

/// The gate at a path. A box's permit is a persistent znode with its name below `boxes`: it outlives the session of whoever took it, because what is to
/// be restarted is often that process.
#[derive(Debug)]
pub struct RollingRestart<C: Coordinator> {
    coordinator: C,
    boxes: Path,
    at_once: usize,
    lock: Lock<C>,
    once: Once<C>,
}

/// How a box came to its permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// It was given now: restart.
    Given,
    /// It had it already: this is the process after the restart, or after a crash on the way to it.
    Kept,
}

impl<C: Coordinator> RollingRestart<C> {
    /// The gate at `path` for so many at once, at least one. All who use it say the same.
    ///
    /// # Errors
    /// BadArguments when nothing can be below that path.
    pub fn new(coordinator: C, path: &Path, at_once: usize) -> Result<Self, Error> {
        Ok(Self {
            boxes: named(path, "boxes")?,
            at_once: at_once.max(1),
            lock: Lock::new(coordinator.clone(), &named(path, "line")?),
            once: Once::new(coordinator.clone(), path),
            coordinator,
        })
    }

    /// Waits until this box may go down, in the order in which boxes came, and takes its permit. Dropping the future leaves nothing behind, or the
    /// permit if it was given in that moment; [`RollingRestart::done`] gives that back.
    ///
    /// # Errors
    /// BadArguments for a name that no znode can have; the session's.
    pub async fn begin(&self, name: &str) -> Result<Permit, Error> {
        let own = self.permit(name)?;
        let c = &self.coordinator;
        crate::ask::make_persistent(c, &self.boxes).await?;
        // A server that is behind would show the permit that a former process has given back.
        write_through(c).await?;
        // It may also come while this waits, of an attempt whose reply was lost or that was dropped: then who is before this one in the line waits for
        // that very permit to come back.
        let _turn = match first(wait_there(c, &own), self.lock.acquire()).await {
            First::Left(there) => return there.map(|()| Permit::Kept),
            First::Right(turn) => turn?,
        };
        let list = Request::GetChildren { path: self.boxes.text().clone(), watch: true, with_stat: true };
        loop {
            let (listed, watch) = ask_watching(c, &list).await?;
            let Some(Reply::NamesStat(names, stat)) = listed else { return Err(UNEXPECTED) };
            if names.len() >= self.at_once && !names.iter().any(|other| other == name) {
                fired(c, watch).await?;
                continue;
            }
            // The list may have changed since, if two say different sizes or a former holder of the turn is late: its version counts.
            let ops = [
                WriteOp::SetData { path: self.boxes.text().clone(), data: None, version: stat.version },
                create(own.clone(), None, CreateKind::Persistent, false),
            ];
            match self.once.transact(&ops).await? {
                Ok(()) => return Ok(Permit::Given),
                Err((0, ErrorCode::BadVersion)) => {}
                Err((1, ErrorCode::NodeExists)) => return Ok(Permit::Kept),
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// This box is up and well again: the next one may go down.
    ///
    /// # Errors
    /// BadArguments for a name that no znode can have; the session's.
    pub async fn done(&self, name: &str) -> Result<(), Error> {
        // Once: by the time that a lost reply is noticed, the box may have another permit.
        let delete = WriteOp::Delete { path: self.permit(name)?, version: -1 };
        match self.once.transact(&[delete]).await? {
            Ok(()) | Err((_, ErrorCode::NoNode)) => Ok(()),
            Err((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }

    /// Which boxes have a permit: those that are down, or have not said that they are well again.
    ///
    /// # Errors
    /// The session's.
    pub async fn down(&self) -> Result<Vec<String>, Error> {
        let names = crate::ask::children(&self.coordinator, self.boxes.text()).await?;
        Ok(names.iter().map(str::to_owned).collect())
    }

    fn permit(&self, name: &str) -> Result<Text, Error> {
        Ok(named(&self.boxes, name)?.text().clone())
    }
}
