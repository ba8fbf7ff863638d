//! An event handle: many wait for a signal; one that stays, or one that the first to take it uses up.
//!
//! # Guarantees
//! - [`Reset::Manual`]: waiters continue once the handle is signalled, until it is reset. A signal
//!   that was reset before [`EventHandle::wait`] was called does not count. The call begins with a
//!   write, so that this also holds against Apache ZooKeeper, where `sync` asks no quorum.
//! - [`Reset::Auto`]: one goes on for each signal that was not there already, also when a reply is lost.
//!
//! # Does not guarantee
//! - Order among those who wait. With [`Reset::Auto`] each signal wakes all of them, and one takes it.
//! - A count: signals that nobody took yet are one. A [semaphore](crate::semaphore) counts.
//!
//! # Znodes
//! The path, persistent: there while it is signalled; `path-receipts` has an ephemeral for each participant by which a lost reply is resolved.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the reply to a signal, to taking it or to taking it back is lost | it is found out whether it was done: a signal that somebody else has given since stays |
//! | the session is suspended while it waits | a signal meanwhile is told by the next server |
//! | the session ends | its error; a signal stays, whoever gave it |
//! | a future is dropped while it takes a signal | it may have used it up; one that gives a signal or takes it back may have done so |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, EventHandle, Reset};
//!
//! async fn wait_for_delivery<C: Coordinator>(session: C) -> Result<(), Error> {
//!     EventHandle::new(session, &Path::from_static("/delivery"), Reset::Auto).wait().await
//! }
//! ```

use crate::ask::{data, write_through};
use crate::barrier::{make_parent, wait_there};
use crate::line::wait_gone;
use crate::once::Once;
use crate::{Coordinator, Error};
use zoolet_model::{CreateKind, ErrorCode, Path, WriteOp};

/// What becomes of the signal when somebody has waited for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// It stays until somebody resets it: all who wait go on.
    Manual,
    /// Whoever takes it first uses it up: one goes on for each signal. All who wait wake, because any of them may be the one.
    Auto,
}

/// An event handle at a path: signalled while its znode exists.
#[derive(Debug)]
pub struct EventHandle<C: Coordinator> {
    coordinator: C,
    path: Path,
    reset: Reset,
    once: Once<C>,
}

impl<C: Coordinator> EventHandle<C> {
    /// The handle at `path`. All who use it say the same of its reset.
    pub fn new(coordinator: C, path: &Path, reset: Reset) -> Self {
        Self { once: Once::new(coordinator.clone(), path), coordinator, path: path.clone(), reset }
    }

    /// Signals; says whether it was not signalled already. Signals that nobody took yet are one.
    ///
    /// # Errors
    /// The session's.
    pub async fn set(&self) -> Result<bool, Error> {
        let op = crate::ask::create(self.path.text().clone(), None, CreateKind::Persistent, false);
        loop {
            match self.once.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => return Ok(true),
                Err((_, ErrorCode::NodeExists)) => return Ok(false),
                Err((_, ErrorCode::NoNode)) => make_parent(&self.coordinator, &self.path).await?,
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Takes the signal back.
    ///
    /// # Errors
    /// The session's.
    pub async fn reset(&self) -> Result<(), Error> {
        let delete = WriteOp::Delete { path: self.path.text().clone(), version: -1 };
        match self.once.transact(&[delete]).await? {
            Ok(()) | Err((_, ErrorCode::NoNode)) => Ok(()),
            Err((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }

    /// Whether it is signalled, as this server knows it.
    ///
    /// # Errors
    /// The session's.
    pub async fn is_set(&self) -> Result<bool, Error> {
        Ok(data(&self.coordinator, self.path.text()).await?.is_some())
    }

    /// Waits for the signal, and uses it up if it resets itself. Dropping the future leaves nothing behind; one that was dropped while it took a
    /// signal may have used it up.
    ///
    /// # Errors
    /// The session's.
    pub async fn wait(&self) -> Result<(), Error> {
        if self.reset == Reset::Manual {
            // A server that is behind would show a signal that was taken back before.
            write_through(&self.coordinator).await?;
        }
        loop {
            wait_there(&self.coordinator, self.path.text()).await?;
            if self.reset == Reset::Manual {
                return Ok(());
            }
            let take = WriteOp::Delete { path: self.path.text().clone(), version: -1 };
            match self.once.transact(&[take]).await? {
                Ok(()) => return Ok(()),
                Err((_, ErrorCode::NoNode)) => {}
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Waits until it is not signalled.
    ///
    /// # Errors
    /// The session's.
    pub async fn wait_reset(&self) -> Result<(), Error> {
        write_through(&self.coordinator).await?;
        wait_gone(&self.coordinator, self.path.text()).await
    }
}
