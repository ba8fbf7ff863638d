//! Barriers: many wait until somebody lets them go on.
//!
//! # Guarantees
//! - A waiter continues only after the barrier was open at some moment since [`Barrier::wait`] was
//!   called. The call begins with a write, so that this also holds against Apache ZooKeeper, where
//!   `sync` asks no quorum.
//! - Opening wakes all who wait, once.
//! - Each call of [`Barrier::close`] or [`Barrier::open`] changes it once at most, also when its reply is lost, and tells whether it did.
//!
//! # Does not guarantee
//! - That a barrier which is opened and closed again at once lets everybody through: each who waits goes on, because its watch has fired, but one that asks anew finds it closed.
//! - That whoever closed it lives: the znode is persistent.
//!
//! # Znodes
//! The path, persistent: there while the barrier is closed. `path-receipts` has an ephemeral for each participant that closed or opened it, by which a lost reply is resolved.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the session is suspended while it waits | an opening meanwhile is told by the next server |
//! | the session ends | whoever waits gets its error; the barrier stays as it is |
//! | the reply to close or open is lost | it is found out whether it was done: what somebody else has closed or opened since stays so |
//! | a future of close or open is dropped | it may be done, or not |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Barrier, Coordinator, Error};
//!
//! async fn start_together<C: Coordinator>(session: C) -> Result<(), Error> {
//!     Barrier::new(session, &Path::from_static("/line-3/stopped")).wait().await
//! }
//! ```

use crate::ask::{ask_watching, create, fired, make_persistent, write_through};
use crate::once::Once;
use crate::{Coordinator, Error};
use zoolet_model::{CreateKind, ErrorCode, EventKind, Path, Request, WriteOp};

/// A barrier that is closed while its znode exists. Whoever closes it need not be there for it to stay closed.
#[derive(Debug)]
pub struct Barrier<C: Coordinator> {
    coordinator: C,
    path: Path,
    once: Once<C>,
}

impl<C: Coordinator> Barrier<C> {
    /// The barrier at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { once: Once::new(coordinator.clone(), path), coordinator, path: path.clone() }
    }

    /// Closes it; says whether it was open.
    ///
    /// # Errors
    /// The session's.
    pub async fn close(&self) -> Result<bool, Error> {
        let op = create(self.path.text().clone(), None, CreateKind::Persistent, false);
        loop {
            match self.once.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => return Ok(true),
                Err((_, ErrorCode::NodeExists)) => return Ok(false),
                Err((_, ErrorCode::NoNode)) => make_parent(&self.coordinator, &self.path).await?,
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Opens it: all who wait go on. Says whether it was closed.
    ///
    /// # Errors
    /// The session's.
    pub async fn open(&self) -> Result<bool, Error> {
        let delete = WriteOp::Delete { path: self.path.text().clone(), version: -1 };
        match self.once.transact(&[delete]).await? {
            Ok(()) => Ok(true),
            Err((_, ErrorCode::NoNode)) => Ok(false),
            Err((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }

    /// Waits until it is open. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// The session's.
    pub async fn wait(&self) -> Result<(), Error> {
        // A server that is behind would show open a barrier that was closed before.
        write_through(&self.coordinator).await?;
        crate::line::wait_gone(&self.coordinator, self.path.text()).await
    }
}

/// Makes sure that there is a parent.
pub(crate) async fn make_parent<C: Coordinator>(coordinator: &C, path: &Path) -> Result<(), Error> {
    match path.parent().map(|parent| Path::new(parent.into())) {
        Some(Ok(parent)) => make_persistent(coordinator, &parent).await,
        Some(Err(_)) | None => Ok(()),
    }
}

/// Waits until there is such a znode.
pub(crate) async fn wait_there<C: Coordinator>(coordinator: &C, path: &zoolet_model::Text) -> Result<(), Error> {
    let request = Request::Exists { path: path.clone(), watch: true };
    loop {
        let (there, watch) = ask_watching(coordinator, &request).await?;
        if there.is_some() || fired(coordinator, watch).await?.kind == EventKind::NodeCreated {
            return Ok(());
        }
    }
}
