//! Barriers: many wait until somebody lets them go on.
//!
//! # Guarantees
//! - Whoever waits goes on after the barrier was open at some moment since it began to wait, and not before.
//! - Opening wakes all who wait, once.
//!
//! # Does not guarantee
//! - That a barrier which is opened and closed again at once lets everybody through: each who waits goes on, because its watch has fired, but one that asks anew finds it closed.
//! - That whoever closed it lives: the znode is persistent.
//!
//! # Znodes
//! The path: there while the barrier is closed.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the session is suspended while it waits | an opening meanwhile is told by the next server |
//! | the reply to close or open is lost | it is asked again; whether *this* call changed something is then not known, and what is returned is as it was found |
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

use crate::ask::{ask, ask_watching, create, fired, make_persistent};
use crate::{Coordinator, Error, catch_up};
use zoolet_model::{CreateKind, ErrorCode, EventKind, Path, Request, WriteOp};

/// A barrier that is closed while its znode exists. Whoever closes it need not be there for it to stay closed.
#[derive(Debug)]
pub struct Barrier<C> {
    coordinator: C,
    path: Path,
}

impl<C: Coordinator> Barrier<C> {
    /// The barrier at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { coordinator, path: path.clone() }
    }

    /// Closes it; says whether it was open.
    ///
    /// # Errors
    /// The session's.
    pub async fn close(&self) -> Result<bool, Error> {
        let request = Request::Write(create(self.path.text().clone(), None, CreateKind::Persistent, false));
        loop {
            match ask(&self.coordinator, &request).await {
                Ok(_) => return Ok(true),
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NodeExists))) => return Ok(false),
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))) => {
                    make_parent(&self.coordinator, &self.path).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens it: all who wait go on. Says whether it was closed.
    ///
    /// # Errors
    /// The session's.
    pub async fn open(&self) -> Result<bool, Error> {
        let request = Request::Write(WriteOp::Delete { path: self.path.text().clone(), version: -1 });
        match ask(&self.coordinator, &request).await {
            Ok(_) => Ok(true),
            Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until it is open. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// The session's.
    pub async fn wait(&self) -> Result<(), Error> {
        // A server that is behind would show it open that was closed before.
        catch_up(&self.coordinator).await?;
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
