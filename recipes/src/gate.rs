//! A gate: one participant passes, and the others race when it leaves.
//!
//! Every participant tries to create one znode, and the participant that creates it may pass. The
//! others wait until the znode is gone and race again.
//!
//! This recipe circulates as "barrier" and as "exclusive lock". It is a herd by design: each
//! release wakes every waiter, and one of them wins, in no order. A [`Lock`](crate::Lock) wakes one
//! waiter, in order of arrival.
//!
//! # Guarantees
//! - No participant passes while another one's znode exists. The znode is ephemeral: if a process
//!   dies, the gate is free when its session ends.
//! - Each passage has a fencing token, and [writes that check it](Passage::fenced).
//!
//! # Does not guarantee
//! - Order or fairness: a waiter may never pass.
//! - That a passage notices when another client deletes its znode. Only a [fenced
//!   write](Passage::fenced) does.
//! - Protection of programs that pass without writing to `path-passages`. A dropped passage deletes
//!   the znode only if it is its own. The same transaction checks that there was no passage since,
//!   and that check does not see such programs.
//!
//! # Znodes
//! - The path: an ephemeral, whose data is the GUID of the participant that passed.
//! - `path-passages`: persistent; its version counts passages.
//!
//! Their ancestors are persistent.
//!
//! # Failures
//! - **The reply to the create is lost**: the znode is recognised by its GUID and its owner.
//! - **The reply to the deletion is lost**: before it deletes again, the session looks whose znode
//!   is there. A later passage stays.
//! - **The session is suspended while it waits**: the next server tells when the gate is free, and
//!   the participant races again.
//! - **The session is suspended in [`Gate::try_pass`]**: [`ErrorKind::Disconnected`](crate::ErrorKind::Disconnected) at once, and
//!   nothing stays.
//! - **The session is suspended behind the gate**: the passage does not tell. Act only before
//!   [`Coordinator::safe_until`], or let the resource compare [tokens](Passage::token).
//! - **The session ends**: the gate is free, even if its process still believes it is behind the
//!   gate.
//! - **A passage is dropped without a connection**: the gate is free after the reconnect, or when
//!   the session ends.
//! - **Another client deletes the znode, and a second participant passes**: dropping the first
//!   passage does not end the second one.
//!
//! # Example
//! ```
//! use zoolet::recipes::Gate;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn sweep<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let Some(passage) = Gate::new(session, &Path::from_static("/sweeping")).try_pass().await? else { return Ok(()) };
//!     println!("sweeping, token {}", passage.token());
//!     Ok(())
//! }
//! ```

use crate::ask::{at_once, beside, connected, create, data, is_disconnection, make_persistent, stat};
use crate::barrier::make_parent;
use crate::grant::Fence;
use crate::line::{Fate, wait_gone};
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Errand, Error, FencedWriter, FencingToken, Guid};
use bytes::Bytes;
use std::sync::Arc;
use zoolet_model::{CreateKind, ErrorCode, OpResult, Path, Reply, Request, RequestError, Text, WriteOp};

/// A gate at a path.
#[derive(Debug)]
pub struct Gate<C: Coordinator> {
    coordinator: C,
    path: Path,
    /// The version of this znode counts passages.
    passages: Path,
}

/// The right to be behind the gate. Dropping it frees the gate without waiting.
#[derive(Debug)]
#[must_use = "dropping it gives it up"]
pub struct Passage<C: Coordinator> {
    coordinator: C,
    path: Text,
    passages: Text,
    guid: Guid,
    /// `None` until the create was answered.
    czxid: Option<i64>,
    /// The version of `passages` since this passage.
    turn: i32,
    /// Whether the passage's znode exists, or may exist.
    is_through: bool,
    /// Whether a fenced write found that the znode is gone.
    fate: Arc<Fate>,
}

impl<C: Coordinator> Gate<C> {
    /// Returns the gate at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        let passages = beside(path, "passages");
        Self { coordinator, path: path.clone(), passages }
    }

    /// Passes if the gate is free; `None` if it is not. Does not wait for a connection.
    ///
    /// # Errors
    /// - [`ErrorKind::Disconnected`](crate::ErrorKind::Disconnected) if the session has no connection, or loses it before the answer:
    ///   the call cannot tell whether the gate is free.
    /// - Fails if the session ends or a request is refused.
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
        // Created before the request, so that a drop also deletes the znode after a lost reply.
        let mut passage = Passage {
            coordinator: self.coordinator.clone(),
            path: self.path.text().clone(),
            passages: self.passages.text().clone(),
            guid,
            czxid: None,
            turn: 0,
            is_through: true,
            fate: Arc::default(),
        };
        let mut is_doubtful = false;
        loop {
            let results = match self.coordinator.submit(request.clone()).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(Error::unexpected()),
                Err(error) if is_disconnection(error) => {
                    is_doubtful |= error == RequestError::ConnectionLoss;
                    connected(&self.coordinator).await?;
                    continue;
                }
                Err(error) => {
                    // A refused create leaves no znode.
                    passage.is_through = is_doubtful || !matches!(error, RequestError::Refused(_));
                    return Err(Error::at(error, "pass the gate", self.path.text()));
                }
            };
            match zoolet_model::first_failure(&results) {
                None => {
                    let Some(OpResult::SetData(stat)) = results.last() else { return Err(Error::unexpected()) };
                    (passage.czxid, passage.turn) = (Some(stat.mzxid), stat.version);
                    return Ok(Some(passage));
                }
                Some((0, ErrorCode::NodeExists)) => {
                    // Read before the owner: every passage from here on changes this version.
                    let turn = stat(&self.coordinator, self.passages.text()).await?;
                    let own = data(&self.coordinator, self.path.text()).await?;
                    let own = own.filter(|(there, stat)| {
                        there.as_ref() == Some(&content) && stat.ephemeral_owner == self.coordinator.session().0
                    });
                    let Some(((_, stat), turn)) = own.zip(turn) else {
                        // Nothing to clear away: no create of this call was carried out, and none
                        // will be.
                        passage.is_through = false;
                        return Ok(None);
                    };
                    (passage.czxid, passage.turn) = (Some(stat.czxid), turn.version);
                    return Ok(Some(passage));
                }
                Some((missing, ErrorCode::NoNode)) => {
                    // Nothing was created. If the missing znode cannot be created, nothing is to be
                    // cleared away.
                    passage.is_through = is_doubtful;
                    match missing {
                        0 => make_parent(&self.coordinator, &self.path).await?,
                        _ => make_persistent(&self.coordinator, &self.passages).await?,
                    }
                    passage.is_through = true;
                }
                Some((_, code)) => {
                    passage.is_through = is_doubtful;
                    return Err(Error::at(code, "pass the gate", self.path.text()));
                }
            }
        }
    }

    /// Waits until it passes. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
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
    /// Returns the fencing token.
    pub fn token(&self) -> FencingToken {
        FencingToken(self.czxid.unwrap_or_default())
    }

    /// Returns a writer whose writes are done only while the passage's znode exists.
    pub fn fenced(&self) -> FencedWriter<C> {
        let fence = Fence { znode: self.path.clone(), turn: Some((self.passages.clone(), self.turn)) };
        FencedWriter::new(self.coordinator.clone(), fence, Arc::clone(&self.fate))
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
