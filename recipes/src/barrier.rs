//! Barriers: participants wait until another participant lets them continue.
//!
//! # Guarantees
//! - A waiter continues only after the barrier was open at some moment since [`Barrier::wait`] was
//!   called. The call begins with a write, so that this also holds against Apache ZooKeeper, where
//!   `sync` asks no quorum.
//! - Opening wakes each waiter once.
//! - Each call of [`Barrier::close`] or [`Barrier::open`] changes the barrier at most once, even if
//!   its reply is lost, and tells whether it did.
//!
//! # Does not guarantee
//! - That a barrier which is opened and closed again at once lets every participant through. A
//!   waiter continues, because its watch has fired. A participant that asks afterwards finds the
//!   barrier closed.
//! - That the participant that closed the barrier lives: the znode is persistent.
//!
//! # Znodes
//! The path, persistent, which exists while the barrier is closed. `path-receipts` has an ephemeral
//! for each participant that closed or opened it, which resolves lost replies.
//!
//! # Failures
//! - **The session is suspended while it waits**: the next server reports an opening meanwhile.
//! - **The session ends**: waiting calls return its error. The barrier stays as it is.
//! - **The reply to close or open is lost**: the call finds out whether it was done. A later change
//!   by another participant stays.
//! - **The future of a close or open is dropped**: it may have been done or not.
//!
//! # Example
//! ```
//! use zoolet::recipes::Barrier;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn start_together<C: Coordinator>(session: C) -> Result<(), Error> {
//!     Barrier::new(session, &Path::from_static("/line-3/stopped")).wait().await
//! }
//! ```

use crate::ask::{ask_watching, fired, make_persistent, write_through};
use crate::once::Once;
use crate::{Coordinator, Error};
use zoolet_model::{ErrorCode, EventKind, Path, Request, WriteOp};

/// A barrier that is closed while its znode exists.
///
/// It stays closed even if the participant that closed it is gone.
#[derive(Debug)]
pub struct Barrier<C: Coordinator> {
    coordinator: C,
    path: Path,
    once: Once<C>,
}

impl<C: Coordinator> Barrier<C> {
    /// Returns the barrier at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { once: Once::new(coordinator.clone(), path), coordinator, path: path.clone() }
    }

    /// Closes the barrier; returns whether it was open.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn close(&self) -> Result<bool, Error> {
        self.once.create(&self.path).await
    }

    /// Opens the barrier, so that all waiters continue; returns whether it was closed.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn open(&self) -> Result<bool, Error> {
        let delete = WriteOp::Delete { path: self.path.text().clone(), version: -1 };
        match self.once.transact(&[delete]).await? {
            Ok(()) => Ok(true),
            Err((_, ErrorCode::NoNode)) => Ok(false),
            Err((_, code)) => Err(Error::at(code, "open the barrier", self.path.text())),
        }
    }

    /// Waits until the barrier is open. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn wait(&self) -> Result<(), Error> {
        // A lagging server would show as open a barrier that was closed before.
        write_through(&self.coordinator).await?;
        crate::line::wait_gone(&self.coordinator, self.path.text()).await
    }
}

/// Makes sure that the parent of `path` exists.
pub(crate) async fn make_parent<C: Coordinator>(coordinator: &C, path: &Path) -> Result<(), Error> {
    match path.parent() {
        Some(parent) => make_persistent(coordinator, &parent).await,
        None => Ok(()),
    }
}

/// Waits until the znode exists.
pub(crate) async fn wait_there<C: Coordinator>(coordinator: &C, path: &zoolet_model::Text) -> Result<(), Error> {
    let request = Request::Exists { path: path.clone(), watch: true };
    loop {
        let (there, watch) = ask_watching(coordinator, &request).await?;
        if there.is_some() || fired(coordinator, watch).await?.kind == EventKind::NodeCreated {
            return Ok(());
        }
    }
}
