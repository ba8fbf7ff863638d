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
//! | hardware, such as a motor | [`Grant::doubted`] or [`Grant::run`] stops it when in doubt |
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
//!   react. Hardware needs an instant at which it stops by itself. Pass [`Grant::safe_until`] to
//!   the hardware repeatedly while the grant is held.
//! - The instant does not hold once the process has died. If the session ran inside a server's
//!   process, that server ends it as soon as it restarts, which frees its grants. Stop the hardware
//!   before the node starts.
//! - A fenced write whose reply is lost may or may not have been done; it is not sent again. Read
//!   the znode, or write with a version.
//! - [`FencedWriter::set`] does not create the znode.
//!
//! # Znodes
//! [`Grant::path`] is an ephemeral: the participant's place in the line of its lock, semaphore or
//! election. Where one kind [overtakes](crate::Preference) the other, the data of its parent also
//! has a line for each holder.
//!
//! # Failures
//! - **The connection is lost**: [`Holding::Doubtful`]. Fenced writes fail with [`Error::Doubtful`]
//!   and are not sent. [`Grant::doubted`] and [`Grant::run`] return.
//! - **The connection returns in time**: [`Holding::Held`]. Fenced writes are done.
//! - **The process stops beyond the safe instant**: [`Holding::Doubtful`], once the process
//!   continues. Fenced writes are done if the grant stands, and otherwise fail with
//!   [`Error::Lost`]. [`Grant::ended`] returns as well.
//! - **The session ends**: [`Holding::Lost`]. Fenced writes fail with [`Error::Lost`]. All waiting
//!   calls return.
//! - **The grant is revoked safely**: [`Holding::Doubtful`] with an instant that no longer moves,
//!   then [`Holding::Lost`]. Fenced writes are done until the grant is broken. [`Grant::doubted`]
//!   and [`Grant::run`] return at once, and the other waiting calls at the end.
//! - **The server has no room for the watch of the grant's znode**: the holding is unchanged.
//!   Checks of the znode, each of them a write, move [`Grant::safe_until`] on. Fenced writes are
//!   done.
//! - **The grant is broken**: [`Holding::Lost`] as soon as the holder hears of it. Fenced writes
//!   fail with [`Error::Lost`] from the break on. All waiting calls return.
//! - **The reply to a fenced write is lost**: the holding is unchanged. The write fails with
//!   `ConnectionLoss` and may or may not have been done.
//! - **The grant is dropped without a connection**: its znode is deleted as soon as there is a
//!   connection, or with the session.
//!
//! # Example
//! ```
//! use zoolet_recipes::{Coordinator, Grant, Holding};
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

use crate::ask::{First, UNEXPECTED, ask_watching, fired, first, is_disconnection, next};
use crate::contention::{asks, is_withdrawn};
use crate::line::{Fate, Place};
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Error, Instant};
use bytes::Bytes;
use futures_core::Stream;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use zoolet_model::{ErrorCode, EventKind, OpResult, Path, Reply, Request, SessionState, Stat, Text, WriteOp};

/// Number that is larger for each later grant of the same path.
///
/// It also grows when the path is deleted and created again. A store that remembers the largest
/// token it has seen can refuse every holder whose grant is over, however late its write arrives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FencingToken(pub i64);

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

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
    pub(crate) fn new(place: Place<C>) -> Self {
        Self { place }
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
    pub fn path(&self) -> &Text {
        self.place.path()
    }

    /// Returns the present state, without asking the ensemble.
    ///
    /// It is [`Holding::Lost`] as well once a fenced write or [`Grant::holdings`] has found the
    /// grant broken.
    pub fn holding(&self) -> Holding {
        holding(self.coordinator(), self.coordinator().state(), self.place.known_fate())
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
    /// The instant moves on only while one of these is polled: [`Grant::holdings`], [`Grant::run`],
    /// [`Grant::doubted`] or [`Grant::ended`]. It is [`Instant::START`] until the first of them has
    /// read the grant's znode.
    pub fn safe_until(&self) -> Instant {
        self.place.known_fate().map_or(Instant::START, Fate::safe_until)
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
        Holdings::new(self.coordinator().clone(), self.path().clone(), Arc::clone(self.place.fate()))
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

    /// Runs `work`, and drops it once the grant is in doubt.
    ///
    /// # Errors
    /// [`Error::Doubtful`] if `work` was dropped.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        match first(self.doubted(), work).await {
            First::Left(()) => Err(Error::Doubtful),
            First::Right(output) => Ok(output),
        }
    }

    /// Waits until the holder is asked to release the grant. Cancel-safe.
    ///
    /// The request is the documentation's `unlock`, Curator's `__REVOKE__`, or a withdrawal by
    /// [`Contention::revoke_safely`](crate::Contention::revoke_safely).
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant is over. [`Error::Session`] if the session ends or a request is
    /// refused.
    pub async fn asked_to_release(&self) -> Result<(), Error> {
        let request = Request::GetData { path: self.path().clone(), watch: true };
        loop {
            let (there, watch) = ask_watching(self.coordinator(), &request).await?;
            match there {
                Some(Reply::Data(word, stat)) if asks(word.as_ref(), &stat) => return Ok(()),
                Some(_) => {}
                None => return Err(Error::Lost),
            }
            fired(self.coordinator(), watch).await?;
        }
    }

    /// Returns a writer whose writes are done only while the grant stands.
    pub fn fenced(&self) -> FencedWriter<'_, C> {
        // No turn to check: no other grant gets the path before this one is dropped.
        let fence = Fence { znode: self.path(), turn: None };
        FencedWriter::new(self.coordinator(), fence, &self.place.fate().is_gone)
    }

    /// Gives the grant up, and waits until its znode is deleted.
    ///
    /// Dropping the grant does the same without waiting.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends, and the grant with it, or if the read that confirms
    /// the deletion is refused. The grant is given up in either case.
    pub async fn release(self) -> Result<(), Error> {
        let (coordinator, path) = (self.coordinator().clone(), self.path().clone());
        drop(self);
        // The session sends this read after the deletion that the drop asked for.
        crate::line::wait_gone(&coordinator, &path).await
    }

    fn coordinator(&self) -> &C {
        self.place.line().coordinator()
    }
}

fn holding<C: Coordinator>(coordinator: &C, state: SessionState, fate: Option<&Fate>) -> Holding {
    if fate.is_some_and(|fate| fate.is_gone.load(Relaxed)) {
        return Holding::Lost;
    }
    let withdrawn = fate.filter(|fate| fate.is_withdrawn.load(Relaxed));
    let safe_until = withdrawn.map_or_else(|| coordinator.safe_until(), Fate::safe_until);
    match state {
        SessionState::Lost(_) | SessionState::AuthFailed | SessionState::Closed => Holding::Lost,
        // A process that was stopped may find itself connected although its safe time has passed.
        SessionState::Connected if withdrawn.is_none() && coordinator.now() < safe_until => Holding::Held,
        SessionState::Connected | SessionState::Suspended | SessionState::ReadOnly => Holding::Doubtful { safe_until },
    }
}

/// Stream of a grant's states that ends after [`Holding::Lost`].
///
/// A slow reader may miss intermediate states, but never the last.
#[derive(Debug)]
pub struct Holdings<C: Coordinator> {
    coordinator: C,
    znode: Text,
    states: C::States,
    state: SessionState,
    /// Read of the grant's znode, in flight. It arms the watch.
    looking: Option<C::Ticket>,
    /// Also `None` once the session may have missed the watch's event.
    watch: Option<C::Watch>,
    /// [`Coordinator::gaps`] when the watch was requested.
    gaps: u64,
    /// Version at which the last read found no withdrawal. A later version may be withdrawn.
    version: Option<i32>,
    /// Check of the grant's znode, in flight. As a write it proves that the session lives.
    confirming: Option<Confirming<C::Ticket>>,
    /// Earliest instant for the next check.
    confirms_at: Instant,
    timer: Option<(Instant, C::Timer)>,
    /// Shared with the grant.
    fate: Arc<Fate>,
    told: Option<Holding>,
}

/// A check of the grant's znode that has no answer yet.
#[derive(Debug)]
struct Confirming<T> {
    ticket: T,
    /// Version that the check requires; `None` is any.
    version: Option<i32>,
    /// End of the safe time if the znode has that version.
    safe_until: Instant,
}

/// Bounds the drift between two clocks: 1 part in 1,000.
///
/// NTP corrects up to 500 ppm, and each of the two clocks may be off by that.
const DRIFT_ONE_IN: u32 = 1000;

impl<C: Coordinator> Holdings<C> {
    fn new(coordinator: C, znode: Text, fate: Arc<Fate>) -> Self {
        let (states, state) = (coordinator.states(), coordinator.state());
        let mut holdings = Self {
            coordinator,
            znode,
            states,
            state,
            looking: None,
            watch: None,
            gaps: 0,
            version: None,
            confirming: None,
            confirms_at: Instant::START,
            timer: None,
            fate,
            told: None,
        };
        holdings.look();
        holdings
    }

    /// Whether a withdrawal's event would arrive before any later answer.
    fn is_told_of_changes(&self) -> bool {
        self.looking.is_none() && self.watch.is_some()
    }

    /// Moves the safe instant on, unless the grant is withdrawn or gone.
    ///
    /// `safe_until` follows from a sign of life of the session. The caller knows that the grant
    /// stood and was not withdrawn when the session sent that sign of life.
    fn extend(&self, safe_until: Instant) {
        if !self.fate.is_withdrawn.load(Relaxed) && !self.fate.is_gone.load(Relaxed) {
            self.fate.extend(safe_until);
        }
    }

    fn look(&mut self) {
        self.gaps = self.coordinator.gaps();
        let request = Request::GetData { path: self.znode.clone(), watch: true };
        let (ticket, watch) = self.coordinator.submit_watching(request);
        (self.looking, self.watch) = (Some(ticket), Some(watch));
    }

    /// Sends a check of the grant's znode, as a write.
    ///
    /// Reads and pings show only an earlier state of the ensemble. With these alone, an idle
    /// session with a short timeout would come into doubt between two pings.
    ///
    /// Without a watch, the check also shows that the grant is not withdrawn. It succeeds only if
    /// the znode still has the version that was read. Any withdrawal is then ordered after the
    /// check, and is answered after the check was sent. The revoker breaks the grant `timeout_max`
    /// after that answer. The holder's own timeout is no longer than `timeout_max`. So the grant is
    /// safe for that timeout from the moment before the check was sent, less the drift of the two
    /// clocks.
    fn confirm(&mut self) {
        let (now, timeout, version) = (self.coordinator.now(), self.coordinator.timeout(), self.version);
        let check = WriteOp::Check { path: self.znode.clone(), version: version.unwrap_or(-1) };
        let ticket = self.coordinator.submit(Request::Multi(vec![check]));
        let safe_until = now.saturating_add(timeout - timeout / DRIFT_ONE_IN);
        self.confirming = Some(Confirming { ticket, version, safe_until });
        self.confirms_at = now.saturating_add(timeout / 8);
    }

    /// Handles the answer to a check.
    fn confirmed(
        &mut self,
        answer: &Result<Reply, zoolet_model::Error>,
        version: Option<i32>,
        safe_until: Instant,
        context: &Context<'_>,
    ) {
        let Ok(Reply::Multi(results)) = answer else { return };
        match zoolet_model::first_failure(results) {
            // The session may be safe for less, for example if its server's leader hears late of
            // requests.
            None if version.is_some() => self.extend(safe_until.min(self.coordinator.safe_until())),
            Some((_, ErrorCode::NoNode)) => self.fate.is_gone.store(true, Relaxed),
            // Read the later version. That read may be in flight already, because of the event of
            // the same change.
            Some((_, ErrorCode::BadVersion)) if self.version == version => {
                self.version = None;
                if self.looking.is_none() && self.watch.take().is_some() {
                    context.waker().wake_by_ref();
                }
            }
            Some(_) | None => {}
        }
    }

    /// Processes pending states, answers and events.
    ///
    /// `gaps` is the session's count when the caller had read the instant to which it may extend
    /// the grant.
    fn hear(&mut self, gaps: u64, context: &mut Context<'_>) {
        while let Poll::Ready(Some(state)) = Pin::new(&mut self.states).poll_next(context) {
            self.state = state;
        }
        if self.looking.is_none() && self.watch.is_none() && self.state == SessionState::Connected {
            self.look();
        }
        if let Some(ticket) = &mut self.looking
            && let Poll::Ready(answer) = Pin::new(ticket).poll(context)
        {
            self.looking = None;
            match answer {
                Ok(Reply::Data(word, stat)) if is_withdrawn(word.as_ref(), &stat) => {
                    self.version = None;
                    self.fate.is_withdrawn.store(!is_on(Mutation::WithdrawalUnheard), Relaxed);
                }
                Ok(Reply::Data(_, stat)) => self.version = Some(stat.version),
                Ok(_) => {}
                Err(zoolet_model::Error::Refused(ErrorCode::NoNode)) => self.fate.is_gone.store(true, Relaxed),
                // The server has no room for the watch, so it refused the read as well. Checks need
                // a version: read without a watch.
                Err(zoolet_model::Error::Refused(ErrorCode::SystemError))
                    if self.version.is_none() && self.watch.take().is_some() =>
                {
                    let request = Request::GetData { path: self.znode.clone(), watch: false };
                    self.looking = Some(self.coordinator.submit(request));
                    context.waker().wake_by_ref();
                }
                // The read is retried once there is a connection, which may be so already.
                Err(error) => {
                    self.watch = None;
                    if is_disconnection(error) && self.coordinator.state() == SessionState::Connected {
                        context.waker().wake_by_ref();
                    }
                }
            }
        }
        // After a gap the watch may be gone: a server without room refuses to register it again.
        // The next read finds out, and shows any missed change.
        if self.looking.is_none() && self.gaps != gaps && !is_on(Mutation::GapUnheard) && self.watch.take().is_some() {
            context.waker().wake_by_ref();
        }
        if let Some(Confirming { ticket, version, safe_until }) = &mut self.confirming
            && let Poll::Ready(answer) = Pin::new(ticket).poll(context)
        {
            let (version, safe_until) = (*version, *safe_until);
            self.confirming = None;
            self.confirmed(&answer, version, safe_until, context);
        }
        if self.looking.is_none()
            && let Some(watch) = &mut self.watch
            && let Poll::Ready(event) = Pin::new(watch).poll(context)
        {
            self.watch = None;
            match event {
                Some(event) if event.kind == EventKind::NodeDeleted => self.fate.is_gone.store(true, Relaxed),
                Some(_) => {
                    self.version = None;
                    self.look();
                    context.waker().wake_by_ref();
                }
                // The session is over, as its states will show.
                None => {}
            }
        }
    }

    /// Schedules the checks that keep the grant out of doubt.
    ///
    /// If nothing is heard, a held grant comes into doubt by time alone. So one check is sent
    /// before that instant, and another one after it.
    fn arm(&mut self, context: &mut Context<'_>) {
        let (now, safe_until) = (self.coordinator.now(), self.coordinator.safe_until());
        // Without a watch, only checks extend the grant.
        let is_extended_by_checks = !self.is_told_of_changes() && self.version.is_some();
        let extended = if is_extended_by_checks { safe_until.min(self.fate.safe_until()) } else { safe_until };
        let soon = extended.saturating_sub(self.coordinator.timeout() / 4).max(self.confirms_at);
        if self.confirming.is_none() && now >= soon {
            self.confirm();
            // Poll again, so that the answer to the check wakes this task.
            context.waker().wake_by_ref();
            return;
        }
        let next = if self.confirming.is_some() { safe_until } else { soon };
        // The grant is in doubt already. The answer to the check will wake this task.
        if next <= now {
            return;
        }
        let at = if now < safe_until { next.min(safe_until) } else { next };
        if self.timer.as_ref().is_none_or(|(armed, _)| *armed != at) {
            self.timer = Some((at, self.coordinator.timer(at)));
        }
        if let Some((_, timer)) = &mut self.timer
            && Pin::new(timer).poll(context).is_ready()
        {
            self.timer = None;
            context.waker().wake_by_ref();
        }
    }
}

impl<C: Coordinator> Unpin for Holdings<C> {}

impl<C: Coordinator> Stream for Holdings<C> {
    type Item = Holding;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Holding>> {
        if self.told == Some(Holding::Lost) {
            return Poll::Ready(None);
        }
        // Read both before the pending events. Outside a gap, the event of a withdrawal is
        // delivered before every answer given after the withdrawal. The gap count is read last, so
        // a gap that begins between the two reads counts. That is conservative: `safe_until` does
        // not depend on answers after such a gap.
        let (safe_until, gaps) = (self.coordinator.safe_until(), self.coordinator.gaps());
        self.hear(gaps, context);
        if self.is_told_of_changes() {
            self.extend(safe_until);
        }
        let now = holding(&self.coordinator, self.state, Some(&self.fate));
        if self.told != Some(now) {
            self.told = Some(now);
            return Poll::Ready(Some(now));
        }
        match now {
            Holding::Held => self.arm(context),
            // Only time made the grant doubtful. The answer to a write removes that doubt.
            Holding::Doubtful { .. } if self.state == SessionState::Connected => self.arm(context),
            Holding::Doubtful { .. } | Holding::Lost => {}
        }
        Poll::Pending
    }
}

impl<C: Coordinator> Holdings<C> {
    /// Returns the next state; `None` after [`Holding::Lost`]. Cancel-safe.
    #[allow(
        clippy::should_implement_trait,
        reason = "a stream's next, as futures name it: what it returns is a future"
    )]
    pub fn next(&mut self) -> impl Future<Output = Option<Holding>> + '_ {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context))
    }
}

/// Checks that a fenced writer adds to its transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence<'a> {
    /// The grant's znode, at any version.
    ///
    /// A request to release the grant changes its version.
    pub(crate) znode: &'a Text,
    /// Second znode and version to check, if others may recreate `znode`.
    ///
    /// Each creation of `znode` writes to the second znode in the same transaction.
    pub(crate) turn: Option<(&'a Text, i32)>,
}

impl Fence<'_> {
    fn checks(self) -> impl Iterator<Item = WriteOp> {
        let check = |(path, version): (&Text, i32)| WriteOp::Check { path: path.clone(), version };
        [(self.znode, -1)].into_iter().chain(self.turn).map(check)
    }
}

/// Writes that check the grant in the same transaction.
///
/// They are done only while the grant stands, however late they arrive and even if the holder is
/// mistaken.
#[derive(Clone, Copy, Debug)]
pub struct FencedWriter<'a, C> {
    coordinator: &'a C,
    fence: Fence<'a>,
    is_gone: &'a AtomicBool,
}

impl<'a, C> FencedWriter<'a, C> {
    pub(crate) fn new(coordinator: &'a C, fence: Fence<'a>, is_gone: &'a AtomicBool) -> Self {
        Self { coordinator, fence, is_gone }
    }
}

impl<C: Coordinator> FencedWriter<'_, C> {
    /// Does all operations, or none if one fails; returns their results.
    ///
    /// None is done if the grant is over.
    ///
    /// # Errors
    /// - [`Error::Lost`] if the grant is over. Nothing was done.
    /// - [`Error::Doubtful`] if the session has no connection. Nothing was sent.
    /// - [`Error::Session`] with the server's answer to the first operation that failed. Nothing
    ///   was done.
    /// - [`Error::Session`] with `ConnectionLoss`, or because the session ended meanwhile: the
    ///   operations may or may not have been done.
    pub async fn multi(&self, ops: impl IntoIterator<Item = WriteOp>) -> Result<Vec<OpResult>, Error> {
        // A doubtful grant may write while connected: the check decides, and its answer removes the
        // doubt.
        match self.coordinator.state() {
            SessionState::Connected => {}
            SessionState::Suspended | SessionState::ReadOnly => return Err(Error::Doubtful),
            SessionState::Lost(_) | SessionState::AuthFailed | SessionState::Closed => return Err(Error::Lost),
        }
        let checks: Vec<_> = self.fence.checks().filter(|_| !is_on(Mutation::FencedUnchecked)).collect();
        let count = checks.len();
        let request = Request::Multi(checks.into_iter().chain(ops).collect());
        let mut results = match self.coordinator.submit(request).await {
            Ok(Reply::Multi(results)) => results,
            Ok(_) => return Err(UNEXPECTED),
            Err(error) => return Err(not_sent_or(error)),
        };
        match zoolet_model::first_failure(&results) {
            Some((at, ErrorCode::NoNode | ErrorCode::BadVersion)) if at < count => {
                self.is_gone.store(true, Relaxed);
                Err(Error::Lost)
            }
            Some((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
            None => Ok(results.split_off(count)),
        }
    }

    /// Sets the data of a znode; version -1 matches any.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn set(&self, path: &Path, data: impl Into<Option<Bytes>>, version: i32) -> Result<Stat, Error> {
        let op = WriteOp::SetData { path: path.text().clone(), data: data.into(), version };
        match self.multi([op]).await?.pop() {
            Some(OpResult::SetData(stat)) => Ok(stat),
            _ => Err(UNEXPECTED),
        }
    }

    /// Creates a persistent znode.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn create(&self, path: &Path, data: impl Into<Option<Bytes>>) -> Result<Stat, Error> {
        let kind = zoolet_model::CreateKind::Persistent;
        let op = crate::ask::create(path.text().clone(), data.into(), kind, false);
        match self.multi([op]).await?.pop() {
            Some(OpResult::CreateStat(_, stat)) => Ok(stat),
            // Apache ZooKeeper returns no stat for a create in a multi, up to 3.8.0 at least.
            Some(OpResult::Create(path)) => crate::ask::stat(self.coordinator, &path)
                .await?
                .ok_or(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))),
            _ => Err(UNEXPECTED),
        }
    }

    /// Deletes a znode; version -1 matches any.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn delete(&self, path: &Path, version: i32) -> Result<(), Error> {
        self.multi([WriteOp::Delete { path: path.text().clone(), version }]).await.map(drop)
    }
}

/// Maps the session's error to a writer's.
///
/// The connection may have ended after the state was read and before the request was submitted.
fn not_sent_or(error: zoolet_model::Error) -> Error {
    match error {
        zoolet_model::Error::Suspended => Error::Doubtful,
        // A request in flight when the session ends may or may not have been done.
        other => Error::Session(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::Error as SessionError;

    #[test]
    fn what_was_not_sent_is_doubtful_and_what_may_have_been_done_is_not_lost() {
        assert_eq!(not_sent_or(SessionError::Suspended), Error::Doubtful);
        for error in [SessionError::ConnectionLoss, SessionError::Closed] {
            assert_eq!(not_sent_or(error), Error::Session(error));
        }
    }
}
