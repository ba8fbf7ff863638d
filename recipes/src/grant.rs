//! Grants: a fencing token that only grows, and the present state.
//!
//! A lock tells its holder that no other participant was granted it. The lock cannot tell whether
//! that is still so a moment later: the process may have been stopped for longer than its session
//! lives. So a grant offers one means for each kind of resource:
//!
//! | the resource | use |
//! |---|---|
//! | a znode | [`Grant::fenced`] writes and checks the grant in one transaction |
//! | a store elsewhere that compares numbers | [`Grant::token`]; it refuses outdated tokens |
//! | hardware, such as a motor | [`Hold::safe_instants`] tells it until when it may run |
//!
//! An outdated token is smaller than the largest one that the store has seen. [`Holding::Doubtful`]
//! tells until when no other participant can have the grant.
//!
//! # Guarantees
//! - A later grant of a path has a larger token, even after the path was deleted and created again.
//! - A fenced write is done only while the grant stands, however late it arrives.
//! - No server can have ended the session before the instant in [`Grant::safe_until`] and
//!   [`Holding::Doubtful`]. No other participant is granted the same before that instant, as long
//!   as this process lives and nothing [breaks](crate::contention) the grant at once. A [safe
//!   revocation](crate::Contention::revoke_safely) waits for it.
//! - The holder learns that its grant is over: [`Holdings`] watches the grant's znode, and ends
//!   with [`Holding::Lost`].
//! - Dropping a grant gives it up without waiting.
//!
//! # Does not guarantee
//! - Work that is neither fenced nor carries a token may not stop in time: a stopped process cannot
//!   react. Hardware needs an instant at which it stops by itself. Give it each instant of
//!   [`Hold::safe_instants`].
//! - The instant does not hold once the process has died. If the session ran inside a server's
//!   process, that server ends it as soon as it restarts, which frees its grants. Stop the hardware
//!   before the node starts.
//! - A fenced write whose reply is lost may have been done. Only [`FencedWriter::put`] sends it
//!   again. After any other call, read the znode, or write with a version.
//! - [`FencedWriter::set`] does not create the znode.
//!
//! # Znodes
//! [`Grant::path`] is an ephemeral: the participant's place in the line of its lock, semaphore or
//! election. Where one kind [overtakes](crate::Preference) the other, the data of its parent also
//! has a line for each holder.
//!
//! # Failures
//! - **The connection is lost**: [`Holding::Doubtful`]. Fenced writes fail with [`ErrorKind::Doubtful`](crate::ErrorKind::Doubtful)
//!   and are not sent; [`FencedWriter::put`] waits. [`Grant::hold_for`] pauses its work.
//!   [`Grant::doubted`] and [`Grant::run`] return.
//! - **The connection returns in time**: [`Holding::Held`]. Fenced writes are done.
//! - **The process stops beyond the safe instant**: [`Holding::Doubtful`], once the process
//!   continues. Fenced writes are done if the grant stands, and otherwise fail with
//!   [`ErrorKind::GrantLost`](crate::ErrorKind::GrantLost). [`Grant::ended`] returns as well.
//! - **The session ends**: [`Holding::Lost`]. Fenced writes fail with [`ErrorKind::GrantLost`](crate::ErrorKind::GrantLost). All waiting
//!   calls return.
//! - **The grant is revoked safely**: [`Holding::Doubtful`] with an instant that no longer moves,
//!   then [`Holding::Lost`]. Fenced writes are done until the grant is broken. [`Grant::doubted`]
//!   and [`Grant::run`] return at once, and the other waiting calls at the end.
//! - **The server has no room for the watch of the grant's znode**: the holding is unchanged.
//!   Checks of the znode, each of them a write, move [`Grant::safe_until`] on. Fenced writes are
//!   done.
//! - **The grant is broken**: [`Holding::Lost`] as soon as the holder hears of it. Fenced writes
//!   fail with [`ErrorKind::GrantLost`](crate::ErrorKind::GrantLost) from the break on. All waiting calls return.
//! - **The reply to a fenced write is lost**: the holding is unchanged. The write fails with
//!   `ConnectionLoss` and may have been done; [`FencedWriter::put`] sends it again.
//! - **The grant is dropped without a connection**: its znode is deleted as soon as there is a
//!   connection, or with the session.
//!
//! # Example
//! ```
//! use zoolet::recipes::{Grant, Holding};
//! use zoolet::Coordinator;
//!
//! async fn drive<C: Coordinator>(grant: &Grant<C>) {
//!     let mut holdings = grant.holdings();
//!     while let Some(holding) = holdings.next().await {
//!         match holding {
//!             Holding::Held => println!("run"),
//!             Holding::Doubtful { .. } => println!("stop, and wait"),
//!             Holding::Lost => println!("over"),
//!         }
//!     }
//! }
//! ```

mod fenced;
mod hold;
mod holdings;
mod safe_until;
mod work;

pub(crate) use fenced::Fence;
pub use fenced::FencedWriter;
pub use hold::{Hold, SafeInstants};
pub use holdings::Holdings;
pub use safe_until::SafeUntil;

use crate::ask::{BROKEN, First, ask_watching, fired, first, next};
use crate::contention::asks;
use crate::line::{Fate, Place};
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Error, FencingToken, Instant};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
pub(crate) use work::InDoubt;
use work::Overseer;
use zoolet_model::{Path, Reply, Request, SessionState, Text};

/// State of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holding {
    /// The grant stands, as far as its session knows.
    Held,
    /// The grant may be over.
    ///
    /// The session has no connection, or has heard nothing for too long. Or the grant is withdrawn
    /// and will be broken ([`Contention::revoke_safely`](crate::Contention::revoke_safely)); then
    /// `safe_until` no longer moves. No other participant is granted the same before `safe_until`,
    /// unless the grant is [broken](crate::Contention::break_grant) at once.
    Doubtful {
        /// End of the safe time, by the session's clock.
        ///
        /// It may lie beyond a withdrawal that the holder has not heard of. Hardware that obeys
        /// safe revocations stops at [`Grant::safe_until`] instead.
        safe_until: Instant,
    },
    /// The grant is over. Another participant may have been granted the same.
    Lost,
}

/// A lock, permit or office that this participant holds.
///
/// Dropping it gives it up without waiting for the deletion of its znode.
///
/// Between two calls of [`Grant::holding`], a process may be stopped for longer than its session
/// lives. Anything that two processes must never do at once has to be written through
/// [`Grant::fenced`], or carry [`Grant::token`].
#[derive(Debug)]
#[must_use = "dropping it gives it up"]
pub struct Grant<C: Coordinator> {
    place: Place<C>,
}

impl<C: Coordinator> Grant<C> {
    /// Returns a grant whose place has its turn, and tells that.
    pub(crate) fn new(place: Place<C>) -> Self {
        let mut grant = Self::untold(place);
        grant.tell();
        grant
    }

    /// Returns a grant whose place has its turn, but which is told later, or never.
    pub(crate) const fn untold(place: Place<C>) -> Self {
        Self { place }
    }

    /// Tells that it was granted.
    pub(crate) fn tell(&mut self) {
        self.place.granted();
    }

    pub(crate) fn place(&self) -> &Place<C> {
        &self.place
    }

    pub(crate) fn place_mut(&mut self) -> &mut Place<C> {
        &mut self.place
    }

    /// Adds a znode that is deleted together with this grant's own.
    ///
    /// It is not deleted if the grant was broken before.
    pub(crate) fn with_companion(mut self, companion: Text) -> Self {
        self.place.set_companion(companion);
        self
    }

    /// Returns the fencing token.
    ///
    /// It is the zxid of the creation of the grant's znode. Where some participants overtake
    /// others, it is the zxid of the write that gave the grant.
    pub fn token(&self) -> FencingToken {
        FencingToken(self.place.token())
    }

    /// Returns the path of the grant's znode.
    pub const fn path(&self) -> &Path {
        self.place.znode()
    }

    /// Returns the present state, without asking the ensemble.
    ///
    /// It is [`Holding::Lost`] as well once a fenced write or [`Grant::holdings`] has found the
    /// grant broken. After a doubt that one of these has seen, it is [`Holding::Doubtful`] until a
    /// write has found the grant's znode.
    pub fn holding(&self) -> Holding {
        let c = self.coordinator();
        holding(c, c.state(), c.gaps(), self.place.known_fate())
    }

    /// Returns the instant until which hardware may act on this grant.
    ///
    /// The instant holds while this process lives, even if the process is stopped. If the process
    /// dies, its session may end earlier: stop the hardware before the node starts again.
    ///
    /// No other participant is granted the same before this instant, even if the grant is [revoked
    /// safely](crate::Contention::revoke_safely). A grant that is
    /// [broken](crate::Contention::break_grant) at once ends earlier.
    ///
    /// The instant moves on only while one of these is polled: [`Grant::hold_for`],
    /// [`Grant::hold_restarting`], [`Grant::holdings`], [`Grant::run`], [`Grant::doubted`] or
    /// [`Grant::ended`]. It is [`Instant::START`] until the first of them has
    /// read the grant's znode.
    pub fn safe_until(&self) -> SafeUntil {
        SafeUntil::new(self.place.known_fate().map_or(Instant::START, Fate::safe_until))
    }

    /// Whether a listener heard that the grant is going to be broken.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.place.known_fate().is_some_and(|fate| fate.is_withdrawn.load(Relaxed))
    }

    /// Returns a stream of the present state and each change.
    ///
    /// The stream also watches the grant's znode, and so detects that the grant was broken. If
    /// pings alone would leave the grant in doubt, it checks the znode by a write.
    pub fn holdings(&self) -> Holdings<C> {
        Holdings::new(self.coordinator().clone(), self.place.path().clone(), Arc::clone(self.place.fate()))
    }

    /// Waits until the grant is no longer [`Holding::Held`]. Cancel-safe.
    pub async fn doubted(&self) {
        let mut holdings = self.holdings();
        while next(&mut holdings).await == Some(Holding::Held) {}
    }

    /// Waits until another participant may have been granted the same. Cancel-safe.
    ///
    /// That is so once the grant is lost, or its safe instant has passed.
    pub async fn ended(&self) {
        let mut holdings = self.holdings();
        let mut now = next(&mut holdings).await;
        loop {
            now = match now {
                Some(Holding::Held) => next(&mut holdings).await,
                Some(Holding::Doubtful { safe_until }) => {
                    match first(next(&mut holdings), self.coordinator().timer(safe_until)).await {
                        First::Left(later) => later,
                        First::Right(()) => return,
                    }
                }
                Some(Holding::Lost) | None => return,
            };
        }
    }

    /// Runs work while the grant is held, and pauses it in doubt.
    ///
    /// The work gets a [handle](Hold) to the grant. In doubt it is not polled. It goes on once the
    /// session is connected again and a write has found the grant's znode. So a short loss of the
    /// connection, such as the election of another server leader, does not cost the grant. Requests
    /// of the work that were in flight may fail with [`ErrorKind::ConnectionLoss`](crate::ErrorKind::ConnectionLoss);
    /// [`FencedWriter::put`] repeats itself.
    ///
    /// A future that is not polled cannot stop hardware. Give the hardware the instant of
    /// [`Hold::safe_instants`], at which it stops by itself.
    ///
    /// # Errors
    /// [`ErrorKind::GrantLost`](crate::ErrorKind::GrantLost) once the grant is over. The work was dropped; it may have written
    /// before.
    pub async fn hold_for<F: Future>(&self, work: impl FnOnce(Hold<C>) -> F) -> Result<F::Output, Error> {
        self.overseer().pause(|| work(self.handle())).await
    }

    /// Runs work while the grant is held, cancels it in doubt, and begins it anew after that.
    ///
    /// As [`Grant::hold_for`], but the work is dropped in doubt. Use it for work that holds something
    /// which its destructors must give up at once.
    ///
    /// # Errors
    /// As [`Grant::hold_for`].
    pub async fn hold_restarting<F: Future>(&self, mut work: impl FnMut(Hold<C>) -> F) -> Result<F::Output, Error> {
        self.overseer().restart(|| work(self.handle())).await
    }

    /// Runs `work`, and drops it once the grant is in doubt.
    ///
    /// If the grant is in doubt already, the work begins after that. A doubt is often short, and the grant then still held: see [`Grant::hold_for`].
    ///
    /// # Errors
    /// [`ErrorKind::Doubtful`](crate::ErrorKind::Doubtful) or [`ErrorKind::GrantLost`](crate::ErrorKind::GrantLost) if `work` was dropped. It may have
    /// written before.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        self.overseer().run(work).await
    }

    /// As [`Grant::hold_for`] or [`Grant::hold_restarting`].
    pub(crate) async fn hold_with<F: Future>(
        &self,
        in_doubt: InDoubt,
        work: impl FnMut(Hold<C>) -> F,
    ) -> Result<F::Output, Error> {
        match in_doubt {
            InDoubt::Pause => self.hold_for(work).await,
            InDoubt::Restart => self.hold_restarting(work).await,
        }
    }

    fn overseer(&self) -> Overseer<C> {
        Overseer::new(self.coordinator().clone(), self.place.path().clone(), self.holdings(), self.place.span())
    }

    /// Returns a handle to this grant, for the work that it protects.
    pub fn handle(&self) -> Hold<C> {
        Hold::new(self.coordinator().clone(), self.place.path().clone(), self.token(), Arc::clone(self.place.fate()))
    }

    /// Waits until the holder is asked to release the grant. Cancel-safe.
    ///
    /// The request is the documentation's `unlock`, Curator's `__REVOKE__`, or a withdrawal by
    /// [`Contention::revoke_safely`](crate::Contention::revoke_safely).
    ///
    /// # Errors
    /// [`ErrorKind::GrantLost`](crate::ErrorKind::GrantLost) if the grant is over. Fails if the session ends or a request is
    /// refused.
    pub async fn asked_to_release(&self) -> Result<(), Error> {
        let request = Request::GetData { path: self.place.path().clone(), watch: true };
        loop {
            let (there, watch) = ask_watching(self.coordinator(), &request).await?;
            match there {
                Some(Reply::Data(word, stat)) if asks(word.as_ref(), &stat) => return Ok(()),
                Some(_) => {}
                None => return Err(Error::at(BROKEN, "hold", self.place.path())),
            }
            fired(self.coordinator(), watch).await?;
        }
    }

    /// Returns a writer whose writes are done only while the grant stands.
    pub fn fenced(&self) -> FencedWriter<C> {
        self.handle().fenced()
    }

    /// Gives the grant up, and waits until its znode is deleted.
    ///
    /// Dropping the grant does the same without waiting.
    ///
    /// # Errors
    /// Fails if the session ends, and the grant with it, or if the read that confirms
    /// the deletion is refused. The grant is given up in either case.
    pub async fn release(self) -> Result<(), Error> {
        let (coordinator, path) = (self.coordinator().clone(), self.place.path().clone());
        drop(self);
        // The session sends this read after the deletion that the drop asked for.
        crate::line::wait_gone(&coordinator, &path).await
    }

    fn coordinator(&self) -> &C {
        self.place.line().coordinator()
    }
}

/// Returns the state of a grant. `gaps` is the session's count, read no later than its other state.
fn holding<C: Coordinator>(coordinator: &C, state: SessionState, gaps: u64, fate: Option<&Fate>) -> Holding {
    if fate.is_some_and(|fate| fate.is_gone.load(Relaxed)) {
        return Holding::Lost;
    }
    let withdrawn = fate.filter(|fate| fate.is_withdrawn.load(Relaxed));
    let safe_until = withdrawn.map_or_else(|| coordinator.safe_until(), Fate::safe_until);
    let is_unchecked = !is_on(Mutation::ResumedUnchecked) && fate.is_some_and(|fate| fate.must_be_checked(gaps));
    match state {
        SessionState::Lost(_) | SessionState::AuthFailed | SessionState::Closed => Holding::Lost,
        SessionState::Connected if is_unchecked => Holding::Doubtful { safe_until },
        // A process that was stopped may find itself connected although its safe time has passed.
        SessionState::Connected if withdrawn.is_none() && coordinator.now() < safe_until => Holding::Held,
        SessionState::Connected | SessionState::Suspended | SessionState::ReadOnly => Holding::Doubtful { safe_until },
    }
}
