//! A lock: one holder at a time, granted in arrival order.
//!
//! # Guarantees
//! - No participant is granted the lock while another grant stands in the ensemble's order of
//!   writes. The ensemble decides the turns, not any clock.
//! - First come, first served. A release wakes one participant.
//! - Each grant has a [fencing token](crate::Grant::token), larger than the token of every earlier
//!   grant of the path, and [writes that check the grant](crate::Grant::fenced).
//! - An attempt that times out, is cancelled or loses a reply leaves no znode behind while its
//!   session lives.
//!
//! # Does not guarantee
//! - A holder may not *know* that it no longer holds. A process that was stopped or cut off still
//!   believes that it holds until it looks again. Anything that two processes must never do at once
//!   has to go through [`Grant::fenced`](crate::Grant::fenced), or carry the token.
//! - Clients that may write below the path can break the protocol. Locks of Curator and kazoo wait
//!   in the same line only with [their names](Lock::naming). With zoolet's default names they do
//!   not see this holder, and acquire the lock at the same time.
//! - The lock is not re-entrant: a holder that acquires it again waits for itself. Use a
//!   [`ReentrantLock`] for that.
//!
//! # See also
//! - [`Grant`](crate::grant): the means that a holder has, and how a grant ends.
//! - [`Naming`]: the libraries that may wait in the same line, and the names for them.
//! - [`Contention`](crate::contention): lists the holder and the waiters, asks for a release,
//!   breaks a grant.
//! - [`ReadWriteLock`](crate::read_write_lock) for readers and writers,
//!   [`Preference`](crate::Preference) for which of them goes first.
//!
//! # Znodes
//! The path is a container, which the ensemble reaps when it has been empty for a while. Below it
//! each participant has one ephemeral sequential znode, named by [`Naming`]. These znodes are the
//! line: the one with the smallest number holds the lock.
//!
//! # Failures
//! - **The reply to the create is lost**: the participant finds its znode by the GUID and the
//!   owner.
//! - **The session is suspended while it waits**: it continues to wait, and keeps its place.
//! - **The session is suspended when [`Lock::try_acquire`] is called, or before its answer**:
//!   [`ErrorKind::Disconnected`] at once. Nothing is left in the line.
//! - **The session is suspended, or the grant may be broken, when a [`ReentrantLock`] is acquired
//!   again**: a write asks whether the grant stands. A broken grant is not returned again.
//! - **A client deletes the path with all znodes below it**: this is as if each znode was deleted.
//!   Numbers begin again in the new line, but no participant mistakes a place there for its former
//!   one.
//! - **The session is suspended while it holds**: [`Holding::Doubtful`], with the instant until
//!   which no other participant can hold the lock.
//! - **The session ends**: [`Holding::Lost`]. The next participant is granted the lock.
//! - **The grant is dropped without a connection**: its znode is deleted as soon as there is a
//!   connection, or with the session.
//! - **A client deletes a znode**: a waiter gets [`ErrorKind::Broken`]. A holder is `Lost`, and its
//!   fenced writes are refused.
//! - **2,147,418,111 acquisitions under one path**: [`ErrorKind::Exhausted`], because the server's
//!   numbers end soon after.
//!
//! # Example
//! ```
//! use zoolet::recipes::Lock;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn open_valve<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let lock = Lock::new(session, &Path::from_static("/locks/valve-7")).described("gw-a");
//!     let grant = lock.acquire().await?;
//!     // The ensemble refuses it if somebody else has the lock by now.
//!     grant.fenced().put(&Path::from_static("/valves/7"), "open").await?;
//!     grant.release().await
//! }
//! ```

use crate::ask::{First, at_once, bytes, first};
use crate::grant::InDoubt;
use crate::line::Line;
use crate::mutation::{Mutation, is_on};
use crate::naming::Stands;
use crate::read_write_lock::{acquire, acquire_within};
use crate::{Coordinator, Error, ErrorKind, Grant, GrantEnd, Hold, Holding, Naming};
use bytes::Bytes;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use zoolet_model::{IntoData, Path};

/// A lock that is not re-entrant.
///
/// A holder that acquires it again waits for itself.
///
/// Clones are handles to the same participant.
#[derive(Clone, Debug)]
pub struct Lock<C: Coordinator> {
    line: Arc<Line<C>>,
}

impl<C: Coordinator> Lock<C> {
    /// Returns the lock at `path`.
    ///
    /// It uses the documentation's znode names and no description.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { line: Line::new(coordinator, path, Naming::default(), Stands::Lock, 0, Bytes::new()) }
    }

    /// Uses the znode names of another library.
    ///
    /// That library's locks on the path then see this one; with the default names they do not. See
    /// [`Naming`].
    #[must_use]
    pub fn naming(self, naming: Naming) -> Self {
        Self { line: self.line.with(naming, 0, self.line.content().clone()) }
    }

    /// Describes this participant in its znodes, for operators.
    #[must_use]
    pub fn described(self, content: impl IntoData) -> Self {
        Self { line: self.line.with(self.line.naming(), 0, bytes(content)) }
    }

    /// Waits for the lock. Dropping the future leaves the line.
    ///
    /// # Errors
    /// - [`ErrorKind::Broken`] if another client deleted this participant's znode meanwhile.
    /// - [`ErrorKind::Exhausted`] if the sequence numbers below the path are nearly used up.
    /// - Fails if the session ends or a request is refused.
    pub async fn acquire(&self) -> Result<Grant<C>, Error> {
        acquire(&self.line).await
    }

    /// Waits for the lock, and works while it is held, until the work has ended.
    ///
    /// The work is paused in doubt, as by [`Grant::hold_for`]. If the lock is lost while the session
    /// lives, this waits for it again, and begins the work anew. When the work has ended, the lock
    /// is given up without waiting.
    ///
    /// # Errors
    /// As [`Lock::acquire`], except [`ErrorKind::Broken`]: then this waits for the lock again.
    /// [`ErrorKind::GrantLost`] if the session ended while the lock was held.
    pub async fn hold<F: Future>(&self, work: impl FnMut(Hold<C>) -> F) -> Result<F::Output, Error> {
        self.hold_with(InDoubt::Pause, work).await
    }

    /// As [`Lock::hold`], but the work is cancelled in doubt and begun anew after that, as by
    /// [`Grant::hold_restarting`].
    ///
    /// # Errors
    /// As [`Lock::hold`].
    pub async fn hold_restarting<F: Future>(&self, work: impl FnMut(Hold<C>) -> F) -> Result<F::Output, Error> {
        self.hold_with(InDoubt::Restart, work).await
    }

    async fn hold_with<F: Future>(
        &self,
        in_doubt: InDoubt,
        mut work: impl FnMut(Hold<C>) -> F,
    ) -> Result<F::Output, Error> {
        loop {
            let grant = match self.acquire().await {
                Err(error) if error.kind() == ErrorKind::Broken => continue,
                acquired => acquired?,
            };
            match grant.hold_with(in_doubt, &mut work).await {
                Err(error) if error.kind() == ErrorKind::GrantLost(GrantEnd::Broken) => {}
                ended => return ended,
            }
        }
    }

    /// Returns the lock if it is free; `None` otherwise.
    ///
    /// The lock is free if no participant holds it or waits for it. The call does not wait for a
    /// connection.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] if the session has no connection, or loses it before the answer: the
    /// call cannot tell whether the lock is free. Otherwise as [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Grant<C>>, Error> {
        at_once(self.line.coordinator(), self.take_if_free()).await
    }

    async fn take_if_free(&self) -> Result<Option<Grant<C>>, Error> {
        if !self.line.standing().await?.is_empty() {
            return Ok(None);
        }
        let (place, is_alone) = self.line.enter().await?;
        let has_turn = is_alone || place.has_turn().await?;
        Ok(has_turn.then(|| Grant::new(place)))
    }

    /// Waits for the lock for at most `patience`.
    ///
    /// After that it returns `None`, and nothing is left in the line.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire_within(&self, patience: Duration) -> Result<Option<Grant<C>>, Error> {
        acquire_within(&self.line, patience).await
    }

    /// Converts this lock into a re-entrant one.
    pub fn reentrant(self) -> ReentrantLock<C> {
        ReentrantLock { lock: self, held: Mutex::new(Weak::new()) }
    }
}

/// A lock that its owner may acquire again while it holds it.
///
/// The lock is released when the owner's last grant is dropped.
///
/// The owner is the code that has this value. Futures move between threads, so a thread cannot
/// identify the owner. Two tasks that share the value share the lock.
#[derive(Debug)]
pub struct ReentrantLock<C: Coordinator> {
    lock: Lock<C>,
    held: Mutex<Weak<Grant<C>>>,
}

impl<C: Coordinator> ReentrantLock<C> {
    /// Returns the grant that this owner holds, or waits for one.
    ///
    /// A grant that is held is returned again once a write has shown that it stands. If it was
    /// broken, this call waits in the line anew. While the session has no connection, this call
    /// waits for one.
    ///
    /// If the lock is not held, two concurrent calls take two places in the line. The second waits
    /// until the first is released.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Arc<Grant<C>>, Error> {
        if let Some(grant) = self.regain().await? {
            return Ok(grant);
        }
        Ok(self.hold(self.lock.acquire().await?))
    }

    /// Returns a grant without waiting for other participants or for a connection.
    ///
    /// `None` if the lock is not free.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Arc<Grant<C>>>, Error> {
        at_once(self.lock.line.coordinator(), async {
            if let Some(grant) = self.regain().await? {
                return Ok(Some(grant));
            }
            Ok(self.lock.take_if_free().await?.map(|grant| self.hold(grant)))
        })
        .await
    }

    /// Acquires the lock within `patience`; `None` after that.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire_within(&self, patience: Duration) -> Result<Option<Arc<Grant<C>>>, Error> {
        let coordinator = self.lock.line.coordinator();
        let timer = coordinator.timer(coordinator.now().saturating_add(patience));
        match first(self.acquire(), timer).await {
            First::Left(grant) => grant.map(Some),
            First::Right(()) => Ok(None),
        }
    }

    /// Returns this owner's grant, once it is known to stand.
    async fn regain(&self) -> Result<Option<Arc<Grant<C>>>, Error> {
        while let Some(grant) = self.held() {
            let is_known = is_on(Mutation::GrantUnconfirmed)
                || (grant.place().stands().await? && grant.holding() == Holding::Held);
            if is_known {
                return Ok(Some(grant));
            }
            // The grant was broken and is no longer held, or it has come into doubt since the
            // answer.
        }
        Ok(None)
    }

    /// Returns the owner's grant unless known to be over or withdrawn.
    ///
    /// A withdrawn grant is about to end, so the owner waits in the line for another.
    fn held(&self) -> Option<Arc<Grant<C>>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        held.filter(|grant| grant.holding() != Holding::Lost && !grant.is_withdrawn())
    }

    fn hold(&self, grant: Grant<C>) -> Arc<Grant<C>> {
        let grant = Arc::new(grant);
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&grant);
        grant
    }
}
