//! A lock: one holder at a time, the others in the order in which they came.
//!
//! # Guarantees
//! - Nobody is granted the lock while another grant stands in the ensemble's order of events: the ensemble, and not any clock, says whose turn it is.
//! - First come, first served. A release wakes one participant.
//! - Each grant has a [fencing token](crate::Grant::token), larger than that of every earlier grant of the path, and [writes that check it](crate::Grant::fenced).
//! - An attempt that times out, is cancelled or loses a reply leaves no znode behind while its session lives.
//!
//! # Does not guarantee
//! - That the holder *knows* that it holds. A process that is stopped, or cut off, goes on believing it until it looks again: what two must never do at once goes
//!   through [`Grant::fenced`](crate::Grant::fenced), or carries the token.
//! - That others follow the protocol: whoever may write below the path can break it. Locks of Curator and kazoo stand in line only with [their names](Lock::naming): with zoolet's
//!   default they do not see this holder, and have the lock beside it.
//! - Re-entrancy: whoever holds it and asks again waits for itself. [`ReentrantLock`] is for that.
//!
//! # See also
//! - [`Grant`](crate::grant): what a holder has, and what becomes of it.
//! - [`Naming`]: which other libraries may stand in the same line, and with which names.
//! - [`Contention`](crate::contention): who holds and waits, asking a holder to give it up, breaking.
//! - [`ReadWriteLock`](crate::read_write_lock) for readers and writers, [`Preference`](crate::Preference) for which of them goes first.
//!
//! # Znodes
//! The path, a container (reaped by the ensemble when nobody has used it for a while), and below it one ephemeral sequential znode for each participant, named as [`Naming`] says.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the reply to the create is lost | the znode is found again by its GUID and its owner |
//! | the session is suspended while it waits | it goes on waiting; its place stays |
//! | the session is suspended when [`Lock::try_acquire`] is called, or before its answer | [`Error::Disconnected`] at once; nothing is left in the line |
//! | the session is suspended, or the grant may be broken, when a [`ReentrantLock`] is taken again | a write asks whether the grant stands; a broken one is not given again |
//! | somebody deletes the path with everybody in it | as if each znode was deleted: places of a new line are not taken for the own one, though numbers begin again |
//! | the session is suspended while it holds | [`Holding::Doubtful`], with the instant until which nobody else can hold |
//! | the session ends | [`Holding::Lost`]; the next one is granted the lock |
//! | the grant is dropped without a connection | the znode is deleted as soon as there is one, or with the session |
//! | somebody deletes the znode | a waiting one gets [`Error::Broken`], a holder is `Lost` and its fenced writes are refused |
//! | 2,147,418,111 acquisitions under one path | [`Error::Exhausted`]: the server's numbers end soon after |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, Lock};
//!
//! async fn open_valve<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let lock = Lock::new(session, &Path::from_static("/locks/valve-7")).described("gw-a");
//!     let grant = lock.acquire().await?;
//!     // Refused by the ensemble if somebody else has the lock by now. The znode is there since the valve is: otherwise this were NoNode.
//!     grant.fenced().set(&Path::from_static("/valves/7"), bytes::Bytes::from_static(b"open"), -1).await?;
//!     grant.release().await
//! }
//! ```

use crate::ask::{First, at_once, first};
use crate::line::Line;
use crate::mutation::{Mutation, is_on};
use crate::naming::Stands;
use crate::read_write_lock::{acquire, acquire_within};
use crate::{Coordinator, Error, Grant, Holding, Naming};
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use zoolet_model::Path;

/// A lock that is not re-entrant: whoever holds it and asks for it again waits for itself.
#[derive(Debug)]
pub struct Lock<C: Coordinator> {
    line: Arc<Line<C>>,
}

impl<C: Coordinator> Lock<C> {
    /// The lock at `path`, with the names of the documentation and no data.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { line: Line::new(coordinator, path, Naming::default(), Stands::Lock, 0, Bytes::new()) }
    }

    /// With the names of another library, whose locks on the path then count this one; with the default they do not. See [`Naming`].
    #[must_use]
    pub fn naming(self, naming: Naming) -> Self {
        Self { line: self.line.with(naming, 0, self.line.content().clone()) }
    }

    /// With data in the znode of whoever stands in line: who it is, for people who look.
    #[must_use]
    pub fn described(self, content: impl Into<Bytes>) -> Self {
        Self { line: self.line.with(self.line.naming(), 0, content.into()) }
    }

    /// Waits for the lock. Dropping the future leaves the line.
    ///
    /// # Errors
    /// [`Error::Broken`] when somebody deleted the own znode meanwhile; [`Error::Exhausted`]; the session's.
    pub async fn acquire(&self) -> Result<Grant<C>, Error> {
        acquire(&self.line).await
    }

    /// The lock if nobody has it or waits for it. Waits for no connection.
    ///
    /// # Errors
    /// [`Error::Disconnected`] if the session has no connection, or loses it before the answer: the
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

    /// Waits for the lock at most so long; `None` when that was not enough, and nothing is left in the line.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire_within(&self, patience: Duration) -> Result<Option<Grant<C>>, Error> {
        acquire_within(&self.line, patience).await
    }

    /// The same lock for an owner who may take it again while he has it.
    pub fn reentrant(self) -> ReentrantLock<C> {
        ReentrantLock { lock: self, held: Mutex::new(Weak::new()) }
    }
}

/// A lock whose owner may take it again while he has it; it is released when his last grant is dropped.
///
/// The owner is whoever has this value: there are no threads to tell owners by where futures move between them. Two who share it share the lock.
#[derive(Debug)]
pub struct ReentrantLock<C: Coordinator> {
    lock: Lock<C>,
    held: Mutex<Weak<Grant<C>>>,
}

impl<C: Coordinator> ReentrantLock<C> {
    /// The grant that this owner has, or waits for it.
    ///
    /// A grant that it has is given again once a write has shown that it stands. If somebody broke it, this stands in line anew; while the session has no
    /// connection, this waits for one.
    ///
    /// Two calls at once, with none held, stand in line twice, and the second waits for the first to be released.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Arc<Grant<C>>, Error> {
        if let Some(grant) = self.regain().await? {
            return Ok(grant);
        }
        Ok(self.hold(self.lock.acquire().await?))
    }

    /// The same without waiting for others or for a connection.
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

    /// The same within this time.
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

    /// The grant that this owner has, once it is known to stand.
    async fn regain(&self) -> Result<Option<Arc<Grant<C>>>, Error> {
        while let Some(grant) = self.held() {
            let is_known = is_on(Mutation::GrantUnconfirmed)
                || (grant.place().stands().await? && grant.holding() == Holding::Held);
            if is_known {
                return Ok(Some(grant));
            }
            // Broken, and so not held any more; or in doubt again since the answer.
        }
        Ok(None)
    }

    /// The grant that this owner has and that is not known to be over. One that is withdrawn is going to be: whoever wants the lock again stands in line.
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
