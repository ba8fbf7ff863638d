//! A countdown latch: many wait until something has happened so many times.
//!
//! # Guarantees
//! - It opens when it was counted down as often as it was set to, and stays open. Each [`Latch::count_down`] counts once, also when its reply is lost.
//! - Whoever waits goes on when nothing is left to count.
//!
//! # Does not guarantee
//! - Who counted: a process that counts twice counts for two.
//! - Few wake-ups: each count wakes everybody who waits, because it changes the one znode. For many who wait, use a [barrier](crate::barrier) that the last one opens.
//!
//! # Znodes
//! The path, whose data is `left/total`, persistent; `path-receipts` has an ephemeral for each participant by which a lost reply is resolved.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the reply to a count is lost | it is found out whether it was done |
//! | the session is suspended while it waits | the next server tells how much is left |
//! | the session ends | its error; what it has counted stays counted |
//! | a future of a count is dropped | it may have counted |
//! | the znode has other data | [`Error::Malformed`] |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, Latch};
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
use crate::{Coordinator, Error};
use bytes::Bytes;
use zoolet_model::{CreateKind, ErrorCode, Path, Request, WriteOp};

/// A latch that opens for good when it was counted down as often as it was set to.
#[derive(Debug)]
pub struct Latch<C: Coordinator> {
    coordinator: C,
    path: Path,
    once: Once<C>,
}

impl<C: Coordinator> Latch<C> {
    /// The latch at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { once: Once::new(coordinator.clone(), path), coordinator, path: path.clone() }
    }

    /// Makes it, with so many to count; nothing if it is there already.
    ///
    /// # Errors
    /// [`Error::Disagreement`] when it was made with another count; the session's.
    pub async fn set(&self, count: u32) -> Result<(), Error> {
        let content = Some(Bytes::from(format!("{count}/{count}")));
        let op = create(self.path.text().clone(), content, CreateKind::Persistent, false);
        loop {
            match self.coordinator.submit(Request::Write(op.clone())).await {
                Ok(_) => return Ok(()),
                Err(zoolet_model::Error::Refused(ErrorCode::NodeExists)) => {
                    let Some((_, total, _)) = self.read().await? else { continue };
                    return if total == count { Ok(()) } else { Err(Error::Disagreement) };
                }
                Err(zoolet_model::Error::Refused(ErrorCode::NoNode)) => {
                    make_parent(&self.coordinator, &self.path).await?
                }
                Err(error) if is_disconnection(error) => connected(&self.coordinator).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How often it is still to be counted down; `None` when there is no such latch.
    ///
    /// # Errors
    /// [`Error::Malformed`]; the session's.
    pub async fn count(&self) -> Result<Option<u32>, Error> {
        Ok(self.read().await?.map(|(left, ..)| left))
    }

    /// Counts down once, also when the reply is lost; gives what is left. At 0 it stays there.
    ///
    /// # Errors
    /// NoNode when there is no such latch; [`Error::Malformed`]; the session's.
    pub async fn count_down(&self) -> Result<u32, Error> {
        loop {
            let Some((left, total, version)) = self.read().await? else {
                return Err(zoolet_model::Error::Refused(ErrorCode::NoNode).into());
            };
            let Some(less) = left.checked_sub(1) else { return Ok(0) };
            let data = Some(Bytes::from(format!("{less}/{total}")));
            let version = if is_on(Mutation::LatchUnversioned) { -1 } else { version };
            let op = WriteOp::SetData { path: self.path.text().clone(), data, version };
            match self.once.transact(&[op]).await? {
                Ok(()) => return Ok(less),
                Err((_, ErrorCode::BadVersion)) => {}
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Waits until nothing is left to count, also for the latch to be made.
    ///
    /// # Errors
    /// [`Error::Malformed`]; the session's.
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

    /// What is left, of how many, and the version.
    async fn read(&self) -> Result<Option<(u32, u32, i32)>, Error> {
        let Some((data, stat)) = data(&self.coordinator, self.path.text()).await? else { return Ok(None) };
        let (left, total) = parse(data.as_deref().unwrap_or_default()).ok_or(Error::Malformed)?;
        Ok(Some((left, total, stat.version)))
    }
}

fn parse(data: &[u8]) -> Option<(u32, u32)> {
    let (left, total) = std::str::from_utf8(data).ok()?.split_once('/')?;
    Some((left.parse().ok()?, total.parse().ok()?))
}
