//! A gate: everybody tries to create one znode, and whoever does may pass; the others wait until it is gone and race again.
//!
//! This circulates as "barrier" and as "exclusive lock". It is a herd by design: each release wakes everybody who waits, and one of them wins, in no
//! order. A [`Lock`](crate::Lock) wakes one, in the order in which they came.
//!
//! # Guarantees
//! - Nobody passes while another one's znode is there. It is ephemeral: a process that dies frees the gate when its session ends.
//! - Each passage has a fencing token, and [writes that check it](Passage::fenced).
//!
//! # Does not guarantee
//! - Any order, or that everybody passes some time.
//! - That a passage whose znode somebody else deleted is found out, but by a [fenced write](Passage::fenced). When it is dropped it deletes the znode only if that is its own, in one transaction with the check that nobody has
//!   passed since it looked; a program of another library that passes without writing to `path-passages` is not seen by that check.
//!
//! # Znodes
//! The path, ephemeral, with the GUID of whoever passed for its data; and `path-passages`, persistent, whose version counts passages. What is above them is persistent.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the reply to the create is lost | the znode is recognised by its GUID and its owner |
//! | the reply to the deletion is lost | it is looked up whose znode is there before anything is deleted again: whoever has passed since stays |
//! | the session is suspended while it waits | the next server tells that the gate is free; it races again |
//! | the session is suspended when [`Gate::try_pass`] is called, or before its answer | [`Error::Disconnected`] at once; nothing stays |
//! | the session is suspended behind the gate | the passage does not tell: act only before [`Coordinator::safe_until`], or let what is written to compare [tokens](Passage::token) |
//! | the session ends | the gate is free, whatever whoever is behind it believes |
//! | a passage is dropped without a connection | the gate is free as soon as there is one, or with the session |
//! | somebody deletes the znode, and another one passes | whoever had passed before ends nothing of the other one's |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, Gate};
//!
//! async fn sweep<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let Some(passage) = Gate::new(session, &Path::from_static("/sweeping")).try_pass().await? else { return Ok(()) };
//!     println!("sweeping, token {}", passage.token());
//!     Ok(())
//! }
//! ```

use crate::ask::{at_once, connected, create, data, is_disconnection, make_persistent, stat};
use crate::barrier::make_parent;
use crate::grant::Fence;
use crate::line::wait_gone;
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Errand, Error, FencedWriter, FencingToken, Guid};
use bytes::Bytes;
use std::sync::atomic::AtomicBool;
use zoolet_model::{CreateKind, ErrorCode, OpResult, Path, Reply, Request, Text, WriteOp};

/// A gate at a path.
#[derive(Debug)]
pub struct Gate<C: Coordinator> {
    coordinator: C,
    path: Path,
    /// The version of this znode counts passages.
    passages: Path,
}

/// The right to be behind the gate. Dropped, the gate is free, without waiting for that.
#[derive(Debug)]
#[must_use = "it is given up when it is dropped"]
pub struct Passage<C: Coordinator> {
    coordinator: C,
    path: Text,
    passages: Text,
    guid: Guid,
    /// `None` until the create was answered.
    czxid: Option<i64>,
    /// The version that `passages` has since.
    turn: i32,
    /// Whether its znode is there, or may be.
    is_through: bool,
    /// Whether a fenced write found that it is not.
    is_gone: AtomicBool,
}

impl<C: Coordinator> Gate<C> {
    /// The gate at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        let passages = Path::new(format!("{path}-passages").into()).unwrap_or_else(|_| path.clone());
        Self { coordinator, path: path.clone(), passages }
    }

    /// Passes if nobody else is behind it. Waits for no connection.
    ///
    /// # Errors
    /// [`Error::Disconnected`] if the session has no connection, or loses it before the answer: the
    /// call cannot tell whether the gate is free. [`Error::Session`] if the session ends or a
    /// request is refused.
    pub async fn try_pass(&self) -> Result<Option<Passage<C>>, Error> {
        at_once(&self.coordinator, self.pass_if_free()).await
    }

    async fn pass_if_free(&self) -> Result<Option<Passage<C>>, Error> {
        let guid = Guid::from_random_bits(self.coordinator.random_bits());
        let content = Bytes::from(guid.to_string());
        let request = Request::Multi(vec![
            create(self.path.text().clone(), Some(content.clone()), CreateKind::Ephemeral, false),
            WriteOp::SetData { path: self.passages.text().clone(), data: None, version: -1 },
        ]);
        // From here on, so that it goes also if the reply is lost.
        let mut passage = Passage {
            coordinator: self.coordinator.clone(),
            path: self.path.text().clone(),
            passages: self.passages.text().clone(),
            guid,
            czxid: None,
            turn: 0,
            is_through: true,
            is_gone: AtomicBool::new(false),
        };
        let mut is_doubtful = false;
        loop {
            let results = match self.coordinator.submit(request.clone()).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(crate::ask::UNEXPECTED),
                Err(error) if is_disconnection(error) => {
                    is_doubtful |= error == zoolet_model::Error::ConnectionLoss;
                    connected(&self.coordinator).await?;
                    continue;
                }
                Err(error) => {
                    // What was refused is not there.
                    passage.is_through = is_doubtful || !matches!(error, zoolet_model::Error::Refused(_));
                    return Err(error.into());
                }
            };
            match zoolet_model::first_failure(&results) {
                None => {
                    let Some(OpResult::SetData(stat)) = results.last() else { return Err(crate::ask::UNEXPECTED) };
                    (passage.czxid, passage.turn) = (Some(stat.mzxid), stat.version);
                    return Ok(Some(passage));
                }
                Some((0, ErrorCode::NodeExists)) => {
                    // Before whose the znode is: whoever passes from here on makes that another number.
                    let turn = stat(&self.coordinator, self.passages.text()).await?;
                    let own = data(&self.coordinator, self.path.text()).await?;
                    let own = own.filter(|(there, stat)| {
                        there.as_ref() == Some(&content) && stat.ephemeral_owner == self.coordinator.session().0
                    });
                    let Some(((_, stat), turn)) = own.zip(turn) else {
                        // Nothing to clear away: no create of it was carried out before, and none will be.
                        passage.is_through = false;
                        return Ok(None);
                    };
                    (passage.czxid, passage.turn) = (Some(stat.czxid), turn.version);
                    return Ok(Some(passage));
                }
                Some((missing, ErrorCode::NoNode)) => {
                    // None was made. If what is missing cannot be made either, nothing is to be cleared away.
                    passage.is_through = is_doubtful;
                    match missing {
                        0 => make_parent(&self.coordinator, &self.path).await?,
                        _ => make_persistent(&self.coordinator, &self.passages).await?,
                    }
                    passage.is_through = true;
                }
                Some((_, code)) => {
                    passage.is_through = is_doubtful;
                    return Err(zoolet_model::Error::Refused(code).into());
                }
            }
        }
    }

    /// Waits until it could pass. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn pass(&self) -> Result<Passage<C>, Error> {
        loop {
            if let Some(passage) = self.pass_if_free().await? {
                return Ok(passage);
            }
            wait_gone(&self.coordinator, self.path.text()).await?;
        }
    }
}

impl<C: Coordinator> Passage<C> {
    /// The fencing token.
    pub fn token(&self) -> FencingToken {
        FencingToken(self.czxid.unwrap_or_default())
    }

    /// Writes that are done only if nobody has deleted its znode when they are.
    pub fn fenced(&self) -> FencedWriter<'_, C> {
        let fence = Fence { znode: &self.path, turn: Some((&self.passages, self.turn)) };
        FencedWriter::new(&self.coordinator, fence, &self.is_gone)
    }
}

impl<C: Coordinator> Drop for Passage<C> {
    fn drop(&mut self) {
        if self.is_through {
            let (path, passages) = (self.path.clone(), self.passages.clone());
            self.coordinator.run_errand(match self.czxid {
                _ if is_on(Mutation::GateOpenedBlindly) => Errand::delete(path),
                Some(_) => Errand::delete_claim(path, passages, self.guid),
                None => Errand::find_and_delete_claim(path, passages, self.guid),
            });
        }
    }
}
