//! An event handle: participants wait for a signal.
//!
//! The signal stays until it is reset ([`Reset::Manual`]), or the first waiter to take it uses it
//! up ([`Reset::Auto`]).
//!
//! # Guarantees
//! - [`Reset::Manual`]: waiters continue once the handle is signalled, until it is reset. A signal
//!   that was reset before [`EventHandle::wait`] was called does not count. The call begins with a
//!   write, so that this also holds against Apache ZooKeeper, where `sync` asks no quorum.
//! - [`Reset::Auto`]: one waiter continues for each new signal, even if a reply is lost.
//!
//! # Does not guarantee
//! - Order among the waiters. With [`Reset::Auto`] each signal wakes all of them, and one takes it.
//! - A count: signals that were not taken yet are one signal. A [semaphore](crate::semaphore)
//!   counts.
//!
//! # Znodes
//! The path, persistent, which exists while the handle is signalled. `path-receipts` has an
//! ephemeral for each participant, which resolves lost replies.
//!
//! # Failures
//! - **The reply to a set, reset or take is lost**: the call finds out whether it was done. A
//!   signal that another participant has given since stays.
//! - **The session is suspended while it waits**: the next server reports a signal given meanwhile.
//! - **The session ends**: its error. A signal stays, whichever session gave it.
//! - **A future of [`EventHandle::wait`] is dropped while it takes a signal**: the signal may be
//!   used up.
//! - **A future of [`EventHandle::set`] or [`EventHandle::reset`] is dropped**: it may have been
//!   done.
//!
//! # Example
//! ```
//! use zoolet::recipes::{EventHandle, Reset};
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn wait_for_delivery<C: Coordinator>(session: C) -> Result<(), Error> {
//!     EventHandle::new(session, &Path::from_static("/delivery"), Reset::Auto).wait().await
//! }
//! ```

use crate::ask::{data, write_through};
use crate::barrier::wait_there;
use crate::line::wait_gone;
use crate::once::Once;
use crate::{Coordinator, Error};
use zoolet_model::{ErrorCode, Path, WriteOp};

/// How a signal ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// The signal stays until it is reset: all waiters continue.
    Manual,
    /// The first waiter to take the signal uses it up: one waiter continues for each signal.
    ///
    /// Every waiter wakes, because any of them may be first.
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
    /// Returns the handle at `path`. All participants must use the same `reset`.
    pub fn new(coordinator: C, path: &Path, reset: Reset) -> Self {
        Self { once: Once::new(coordinator.clone(), path), coordinator, path: path.clone(), reset }
    }

    /// Signals; returns false if the handle was signalled already.
    ///
    /// Signals that were not taken yet are one signal.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn set(&self) -> Result<bool, Error> {
        self.once.create(&self.path).await
    }

    /// Takes the signal back.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn reset(&self) -> Result<(), Error> {
        let delete = WriteOp::Delete { path: self.path.text().clone(), version: -1 };
        match self.once.transact(&[delete]).await? {
            Ok(()) | Err((_, ErrorCode::NoNode)) => Ok(()),
            Err((_, code)) => Err(Error::at(code, "change the event", self.path.text())),
        }
    }

    /// Whether the handle is signalled, as this server knows it.
    ///
    /// # Errors
    /// Fails if the session ends or the request is refused.
    pub async fn is_set(&self) -> Result<bool, Error> {
        Ok(data(&self.coordinator, self.path.text()).await?.is_some())
    }

    /// Waits for the signal, and uses it up with [`Reset::Auto`].
    ///
    /// Dropping the future leaves nothing behind. If it is dropped while it takes a signal, the
    /// signal may be used up.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn wait(&self) -> Result<(), Error> {
        if self.reset == Reset::Manual {
            // A lagging server would show a signal that was reset before.
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
                Err((_, code)) => return Err(Error::at(code, "change the event", self.path.text())),
            }
        }
    }

    /// Waits until the handle is not signalled.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn wait_reset(&self) -> Result<(), Error> {
        write_through(&self.coordinator).await?;
        wait_gone(&self.coordinator, self.path.text()).await
    }
}
