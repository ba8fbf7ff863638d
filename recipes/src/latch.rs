//! A countdown latch: participants wait until a count has reached 0.
//!
//! # Guarantees
//! - The latch opens once it was counted down as often as it was set to, and stays open. Each
//!   [`Latch::count_down`] counts once, even if its reply is lost.
//! - Waiters continue once the count is 0.
//!
//! # Does not guarantee
//! - That different processes count: a process that counts twice counts for two.
//! - Few wake-ups: each count changes the one znode and so wakes every waiter. For many waiters use
//!   a [barrier](crate::barrier) that the last participant opens.
//!
//! # Znodes
//! The path, persistent, whose data is `left/total`. `path-receipts` has an ephemeral for each
//! participant, which resolves lost replies.
//!
//! # Failures
//! - **The reply to a count is lost**: the call finds out whether it counted.
//! - **The session is suspended while it waits**: the next server tells the remaining count.
//! - **The session ends**: its error. Its counts stay.
//! - **The future of a count is dropped**: it may have counted.
//! - **The znode has other data**: [`ErrorKind::Malformed`].
//!
//! # Example
//! ```
//! use zoolet::recipes::Latch;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn started<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let started = Latch::new(session, &Path::from_static("/started"));
//!     started.set(3).await?;
//!     started.count_down().await?;
//!     started.wait().await
//! }
//! ```

use crate::ask::{ask_watching, connected, create, data, fired, is_disconnection};
use crate::barrier::make_parent;
use crate::mutation::{Mutation, is_on};
use crate::once::Once;
use crate::{Coordinator, Error, ErrorKind};
use bytes::Bytes;
use zoolet_model::{CreateKind, ErrorCode, Path, Request, RequestError, WriteOp};

/// A latch that opens for good once its count is 0.
#[derive(Debug)]
pub struct Latch<C: Coordinator> {
    coordinator: C,
    path: Path,
    once: Once<C>,
}

impl<C: Coordinator> Latch<C> {
    /// Returns the latch at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { once: Once::new(coordinator.clone(), path), coordinator, path: path.clone() }
    }

    /// Creates the latch with `count`; does nothing if it exists already.
    ///
    /// # Errors
    /// - [`ErrorKind::Disagreement`] if it was created with another count.
    /// - [`ErrorKind::Malformed`] if the znode has other data.
    /// - Fails if the session ends or a request is refused.
    pub async fn set(&self, count: u32) -> Result<(), Error> {
        let content = Some(Bytes::from(format!("{count}/{count}")));
        let op = create(self.path.text().clone(), content, CreateKind::Persistent, false);
        loop {
            match self.coordinator.submit(Request::Write(op.clone())).await {
                Ok(_) => return Ok(()),
                Err(RequestError::Refused(ErrorCode::NodeExists)) => {
                    let Some((_, total, _)) = self.read().await? else { continue };
                    return if total == count { Ok(()) } else { Err(ErrorKind::Disagreement.into()) };
                }
                Err(RequestError::Refused(ErrorCode::NoNode)) => make_parent(&self.coordinator, &self.path).await?,
                Err(error) if is_disconnection(error) => connected(&self.coordinator).await?,
                Err(error) => return Err(Error::at(error, "count down the latch", self.path.text())),
            }
        }
    }

    /// Returns the remaining count; `None` if there is no such latch.
    ///
    /// # Errors
    /// - [`ErrorKind::Malformed`] if the znode has other data.
    /// - Fails if the session ends or a request is refused.
    pub async fn count(&self) -> Result<Option<u32>, Error> {
        Ok(self.read().await?.map(|(left, ..)| left))
    }

    /// Counts down once; returns the remaining count.
    ///
    /// It counts once even if the reply is lost. A count of 0 stays 0.
    ///
    /// # Errors
    /// - [`ErrorKind::Malformed`] if the znode has other data.
    /// - Fails if the session ends, a request is refused, or there is no such latch
    ///   (NoNode).
    pub async fn count_down(&self) -> Result<u32, Error> {
        loop {
            let Some((left, total, version)) = self.read().await? else {
                return Err(RequestError::Refused(ErrorCode::NoNode).into());
            };
            let Some(less) = left.checked_sub(1) else { return Ok(0) };
            let data = Some(Bytes::from(format!("{less}/{total}")));
            let version = if is_on(Mutation::LatchUnversioned) { -1 } else { version };
            let op = WriteOp::SetData { path: self.path.text().clone(), data, version };
            match self.once.transact(&[op]).await? {
                Ok(()) => return Ok(less),
                Err((_, ErrorCode::BadVersion)) => {}
                Err((_, code)) => return Err(Error::at(code, "count down the latch", self.path.text())),
            }
        }
    }

    /// Waits until the count is 0. Waits also for the latch to be created.
    ///
    /// # Errors
    /// - [`ErrorKind::Malformed`] if the znode has other data.
    /// - Fails if the session ends or a request is refused.
    pub async fn wait(&self) -> Result<(), Error> {
        let request = Request::Exists { path: self.path.text().clone(), watch: true };
        loop {
            let (_, watch) = ask_watching(&self.coordinator, &request).await?;
            if matches!(self.read().await?, Some((0, ..))) {
                return Ok(());
            }
            fired(&self.coordinator, watch).await?;
        }
    }

    /// Returns the remaining count, the total and the version; `None` if there is no such latch.
    async fn read(&self) -> Result<Option<(u32, u32, i32)>, Error> {
        let Some((data, stat)) = data(&self.coordinator, self.path.text()).await? else { return Ok(None) };
        let (left, total) = parse(data.as_deref().unwrap_or_default()).ok_or(ErrorKind::Malformed)?;
        Ok(Some((left, total, stat.version)))
    }
}

fn parse(data: &[u8]) -> Option<(u32, u32)> {
    let (left, total) = std::str::from_utf8(data).ok()?.split_once('/')?;
    Some((left.parse().ok()?, total.parse().ok()?))
}
