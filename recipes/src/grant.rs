//! What somebody has who was granted something: a token that only grows, and the knowledge whether it still stands.
//!
//! Holding is not having. A lock tells its holder that nobody else was granted it; it cannot tell whether that is still so a moment later, when the process may have been stopped for longer than
//! its session lives. So a grant has three things for three needs:
//!
//! | need | use |
//! |---|---|
//! | what is written is in the ensemble | [`Grant::fenced`]: the write and the check that the grant stands are one transaction |
//! | it is elsewhere, and can compare numbers | [`Grant::token`]: whoever is written to refuses tokens smaller than the largest that it has seen |
//! | it is a motor | [`Grant::doubted`], [`Grant::run`]: stop as soon as it is in doubt; [`Holding::Doubtful`] says until when nobody else can have it |
//!
//! # Guarantees
//! - The token of a later grant of a path is larger, also after the path was deleted and made again.
//! - A fenced write is done only while the grant stands, however late it comes.
//! - [`Grant::safe_until`] and [`Holding::Doubtful`] say until when no server can have ended the session. While this process lives, and nobody [breaks](crate::contention) the grant at once, nobody
//!   else is granted the same before that instant. A [safe revocation](crate::Contention::revoke_safely) waits for it.
//! - A grant that is over is found out: [`Holdings`] watches the own znode, and ends with [`Holding::Lost`].
//! - Dropped, it is given up without waiting.
//!
//! # Does not guarantee
//! - That what is not fenced, and carries no token, stops in time: nothing can stop a process that stands still. Hardware needs an instant at which it stops by itself:
//!   [`Grant::safe_until`], told again while the grant is held.
//! - That instant for a process that dies: when the server is back in whose process a session was, the session ends at once, and what it held is free. Tell the hardware to stop before the node is
//!   started.
//! - That a fenced write whose reply is lost was done, or was not: it is not sent again. Read, or write with a version.
//! - That what is written fenced is there: [`FencedWriter::set`] makes no znode.
//!
//! # Znodes
//! The one of the place that was granted, an ephemeral: [`Grant::path`]. Where one kind [overtakes](crate::Preference) the other, also a line in the data of its parent.
//!
//! # Failures
//! | what happens | holding | fenced writes | who waits for it to end |
//! |---|---|---|---|
//! | the connection is lost | [`Holding::Doubtful`] | [`Error::Doubtful`], not sent | [`Grant::doubted`], [`Grant::run`] |
//! | it comes back in time | [`Holding::Held`] | done | |
//! | the process stands still beyond that instant | [`Holding::Doubtful`], once it goes on | done if the grant stands, else [`Error::Lost`] | [`Grant::ended`] |
//! | the session ends | [`Holding::Lost`] | [`Error::Lost`] | all of them |
//! | somebody revokes the grant safely | [`Holding::Doubtful`] with an instant that stays, then [`Holding::Lost`] | done until it is broken | [`Grant::doubted`], [`Grant::run`], then all of them |
//! | the server has no room for the watch of the own znode | as it is; [`Grant::safe_until`] moves on by checks of the znode, each a write | done | |
//! | somebody breaks the grant | [`Holding::Lost`] as soon as it is heard | [`Error::Lost`] from that moment on | all of them |
//! | the reply to a fenced write is lost | as it is | `ConnectionLoss`: done or not | |
//! | it is dropped without a connection | | | its znode goes as soon as there is one, or with the session |
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

/// A number that is larger for each later grant of the same path, also after the path was deleted and made again. Whoever is written to and
/// remembers the largest one that it has seen can refuse everybody whose grant is over, however late their writes come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FencingToken(pub i64);

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How a grant is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holding {
    /// It stands, as far as its session knows.
    Held,
    /// The session has no connection, or has heard nothing for too long. Or the grant is withdrawn
    /// and will be broken ([`Contention::revoke_safely`](crate::Contention::revoke_safely));
    /// `safe_until` then no longer moves. Nobody else is granted the same before `safe_until`,
    /// unless somebody [breaks](crate::Contention::break_grant) it.
    Doubtful {
        /// By the clock of the session. It may lie beyond a withdrawal that the holder has not heard of: hardware that obeys safe
        /// revocations stops at [`Grant::safe_until`] instead.
        safe_until: Instant,
    },
    /// It is over. Somebody else may have been granted the same.
    Lost,
}

/// Something that is granted to this participant until it is released or dropped, which gives it up without waiting.
///
/// Holding is not having: between two looks at [`Grant::holding`] a process may be stopped for longer than its session lives. What must never be
/// done by two at once is written through [`Grant::fenced`], or carries [`Grant::token`].
#[derive(Debug)]
#[must_use = "it is given up when it is dropped"]
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

    /// With another znode that goes when this grant goes, and not when somebody else has broken it.
    pub(crate) fn with_companion(mut self, companion: Text) -> Self {
        self.place.set_companion(companion);
        self
    }

    /// The fencing token: the zxid of the creation of the own znode, or of the write by which the grant was given where some overtake others.
    pub fn token(&self) -> FencingToken {
        FencingToken(self.place.token())
    }

    /// The own znode.
    pub fn path(&self) -> &Text {
        self.place.path()
    }

    /// How it is now, as far as is known without asking: [`Holding::Lost`] as well once a fenced write or [`Grant::holdings`] has found that somebody broke it.
    pub fn holding(&self) -> Holding {
        holding(self.coordinator(), self.coordinator().state(), self.place.known_fate())
    }

    /// Returns the instant until which hardware may act on this grant.
    ///
    /// It holds while this process lives, even if the process stands still. If the process dies,
    /// its session may end earlier: stop the hardware before the node is started again.
    ///
    /// Nobody else is granted the same before it, even if the grant is [revoked safely](crate::Contention::revoke_safely); a grant that is
    /// [broken](crate::Contention::break_grant) at once ends earlier. The instant moves on only while a listener is polled: [`Grant::holdings`], [`Grant::run`],
    /// [`Grant::doubted`] or [`Grant::ended`]. [`Instant::START`] before the first of them has heard of the znode.
    pub fn safe_until(&self) -> Instant {
        self.place.known_fate().map_or(Instant::START, Fate::safe_until)
    }

    /// Whether a listener heard that it is going to be broken.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.place.known_fate().is_some_and(|fate| fate.is_withdrawn.load(Relaxed))
    }

    /// How it is and becomes. This watches the own znode as well, so that a grant which somebody breaks is found to be lost; and when pings alone
    /// would leave it in doubt, it checks the znode by a write.
    pub fn holdings(&self) -> Holdings<C> {
        Holdings::new(self.coordinator().clone(), self.path().clone(), Arc::clone(self.place.fate()))
    }

    /// Waits until it is not [`Holding::Held`] any more. Cancel-safe.
    pub async fn doubted(&self) {
        let mut holdings = self.holdings();
        while next(&mut holdings).await == Some(Holding::Held) {}
    }

    /// Waits until somebody else may have been granted the same: it is lost, or the instant until which it was safe has passed. Cancel-safe.
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

    /// Does `work` as long as the grant is held, and drops it as soon as that is in doubt.
    ///
    /// # Errors
    /// [`Error::Doubtful`] when it was dropped.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        match first(self.doubted(), work).await {
            First::Left(()) => Err(Error::Doubtful),
            First::Right(output) => Ok(output),
        }
    }

    /// Waits until somebody asks for it to be given up, in the words of the documentation (`unlock`) or Curator's (`__REVOKE__`). Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Lost`] when it is over; the session's.
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

    /// Writes that are done only if the grant stands when they are.
    pub fn fenced(&self) -> FencedWriter<'_, C> {
        // The path is not given to another grant before this one is dropped.
        let fence = Fence { znode: self.path(), turn: None };
        FencedWriter::new(self.coordinator(), fence, &self.place.fate().is_gone)
    }

    /// Gives it up, and waits until that is done. Dropping it does the same without waiting.
    ///
    /// # Errors
    /// The session is over; then the grant is as well.
    pub async fn release(self) -> Result<(), Error> {
        let (coordinator, path) = (self.coordinator().clone(), self.path().clone());
        drop(self);
        // Behind the errand: once this is answered, that is done.
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
        // A process that was stopped finds itself connected, and its time is over.
        SessionState::Connected if withdrawn.is_none() && coordinator.now() < safe_until => Holding::Held,
        SessionState::Connected | SessionState::Suspended | SessionState::ReadOnly => Holding::Doubtful { safe_until },
    }
}

/// How a grant is, and becomes: each change, until it is [`Holding::Lost`]. A slow reader misses intermediate ones, never the last.
#[derive(Debug)]
pub struct Holdings<C: Coordinator> {
    coordinator: C,
    znode: Text,
    states: C::States,
    state: SessionState,
    /// The answer to the look at the own znode that arms the watch.
    looking: Option<C::Ticket>,
    /// Also `None` once the session may have missed its event.
    watch: Option<C::Watch>,
    /// The session's gaps when the watch was asked for.
    gaps: u64,
    /// The version of the own znode that was read last and is not withdrawn. A later one may be.
    version: Option<i32>,
    /// A check of the own znode: as a write it shows for certain that the session lives.
    confirming: Option<Confirming<C::Ticket>>,
    /// It is not confirmed again before.
    confirms_at: Instant,
    timer: Option<(Instant, C::Timer)>,
    /// The grant's as well.
    fate: Arc<Fate>,
    told: Option<Holding>,
}

/// A check of the own znode that is not answered.
#[derive(Debug)]
struct Confirming<T> {
    ticket: T,
    /// The version that it checks; `None` is any.
    version: Option<i32>,
    /// Until when the grant is safe if the version is that one.
    safe_until: Instant,
}

/// Two clocks drift apart by at most one part in so many: NTP corrects up to 500 millionths, and each may be off by that.
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

    /// Whether a withdrawal would have been heard of before whatever the session was answered.
    fn is_told_of_changes(&self) -> bool {
        self.looking.is_none() && self.watch.is_some()
    }

    /// For a caller that knows that the grant stood, not withdrawn, when the session sent the sign of life that makes it safe until then.
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

    /// A read shows only what was known to the ensemble some time before it, and so do pings: a session with a short timeout that does nothing else
    /// would come into doubt between two of them.
    ///
    /// It also shows that the grant is not withdrawn, where no watch does. A check succeeds only if the znode still has the version that was read. So a
    /// withdrawal comes behind it in the order of writes, and is answered later than the check was sent. The grant is broken `timeout_max` after that
    /// answer. The holder may count on its own timeout, which is no longer, from the moment before it sent the check, less the drift of the two clocks.
    fn confirm(&mut self) {
        let (now, timeout, version) = (self.coordinator.now(), self.coordinator.timeout(), self.version);
        let check = WriteOp::Check { path: self.znode.clone(), version: version.unwrap_or(-1) };
        let ticket = self.coordinator.submit(Request::Multi(vec![check]));
        let safe_until = now.saturating_add(timeout - timeout / DRIFT_ONE_IN);
        self.confirming = Some(Confirming { ticket, version, safe_until });
        self.confirms_at = now.saturating_add(timeout / 8);
    }

    /// Hears what became of a check.
    fn confirmed(
        &mut self,
        answer: &Result<Reply, zoolet_model::Error>,
        version: Option<i32>,
        safe_until: Instant,
        context: &Context<'_>,
    ) {
        let Ok(Reply::Multi(results)) = answer else { return };
        match zoolet_model::first_failure(results) {
            // The session may be safe for less, for example at a server elsewhere, whose leader hears late of what it was asked.
            None if version.is_some() => self.extend(safe_until.min(self.coordinator.safe_until())),
            Some((_, ErrorCode::NoNode)) => self.fate.is_gone.store(true, Relaxed),
            // The next look reads the later one. It may be under way already, because of the event of the same change.
            Some((_, ErrorCode::BadVersion)) if self.version == version => {
                self.version = None;
                if self.looking.is_none() && self.watch.take().is_some() {
                    context.waker().wake_by_ref();
                }
            }
            Some(_) | None => {}
        }
    }

    /// Hears of everything that has happened. `gaps` is how many the session had when the caller had read the time to which it may extend the grant.
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
                // The server has no room for the watch, and then it does not read either. Checks need a version.
                Err(zoolet_model::Error::Refused(ErrorCode::SystemError))
                    if self.version.is_none() && self.watch.take().is_some() =>
                {
                    let request = Request::GetData { path: self.znode.clone(), watch: false };
                    self.looking = Some(self.coordinator.submit(request));
                    context.waker().wake_by_ref();
                }
                // It is looked at again once there is a connection, and that may be so already.
                Err(error) => {
                    self.watch = None;
                    if is_disconnection(error) && self.coordinator.state() == SessionState::Connected {
                        context.waker().wake_by_ref();
                    }
                }
            }
        }
        // A server that has no room for the watch refuses to register it again. The next look finds out, and reads what was missed.
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
                // The session is over, and says so itself.
                None => {}
            }
        }
    }

    /// While it is held, doubt comes by time alone when nothing is heard: it is asked for before, and again after.
    fn arm(&mut self, context: &mut Context<'_>) {
        let (now, safe_until) = (self.coordinator.now(), self.coordinator.safe_until());
        // Without a watch checks alone extend the grant.
        let is_extended_by_checks = !self.is_told_of_changes() && self.version.is_some();
        let extended = if is_extended_by_checks { safe_until.min(self.fate.safe_until()) } else { safe_until };
        let soon = extended.saturating_sub(self.coordinator.timeout() / 4).max(self.confirms_at);
        if self.confirming.is_none() && now >= soon {
            self.confirm();
            // Polled, so that its answer is heard.
            context.waker().wake_by_ref();
            return;
        }
        let next = if self.confirming.is_some() { safe_until } else { soon };
        // Doubt has come, and its answer wakes.
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
        // Both are read before the news. Outside a gap the event of a withdrawal is delivered before every answer that was given after the withdrawal. The
        // gaps are read last, so that one which begins now counts although `safe_until` does not depend on answers behind it.
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
            // Time alone made it doubtful, and the answer to a write dispels that.
            Holding::Doubtful { .. } if self.state == SessionState::Connected => self.arm(context),
            Holding::Doubtful { .. } | Holding::Lost => {}
        }
        Poll::Pending
    }
}

impl<C: Coordinator> Holdings<C> {
    /// The next one; `None` after [`Holding::Lost`]. Cancel-safe.
    #[allow(
        clippy::should_implement_trait,
        reason = "a stream's next, as futures name it: what it returns is a future"
    )]
    pub fn next(&mut self) -> impl Future<Output = Option<Holding>> + '_ {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context))
    }
}

/// What a fenced writer checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence<'a> {
    /// The znode of the grant. Not its version: a request to release it is written into it.
    pub(crate) znode: &'a Text,
    /// Where others may make that znode anew: another one that each of them writes to, and its version.
    pub(crate) turn: Option<(&'a Text, i32)>,
}

impl Fence<'_> {
    fn checks(self) -> impl Iterator<Item = WriteOp> {
        let check = |(path, version): (&Text, i32)| WriteOp::Check { path: path.clone(), version };
        [(self.znode, -1)].into_iter().chain(self.turn).map(check)
    }
}

/// Writes that check the grant in the transaction that does them. So they are done only while the grant stands, whatever the one who holds it
/// believes and however long they were under way.
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
    /// All operations or none, and none if the grant is over. The results are those of `ops`.
    ///
    /// # Errors
    /// [`Error::Lost`]: the grant is over, nothing was done. [`Error::Doubtful`]: there is no connection, and nothing was sent. [`Error::Session`]: the server's answer to the
    /// first operation that failed, or, as `ConnectionLoss` or because the session ended meanwhile, nobody knows whether they were done.
    pub async fn multi(&self, ops: impl IntoIterator<Item = WriteOp>) -> Result<Vec<OpResult>, Error> {
        // Connected and doubtful: the check says what is so, and its answer dispels the doubt.
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

    /// Sets the data of a znode; version -1 is any.
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
            // Apache ZooKeeper has no stat for it inside a multi, up to 3.8.0 at least.
            Some(OpResult::Create(path)) => crate::ask::stat(self.coordinator, &path)
                .await?
                .ok_or(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))),
            _ => Err(UNEXPECTED),
        }
    }

    /// Deletes a znode; version -1 is any.
    ///
    /// # Errors
    /// As [`FencedWriter::multi`].
    pub async fn delete(&self, path: &Path, version: i32) -> Result<(), Error> {
        self.multi([WriteOp::Delete { path: path.text().clone(), version }]).await.map(drop)
    }
}

/// What a writer is told: the connection may have gone between the look at the session and the submit.
fn not_sent_or(error: zoolet_model::Error) -> Error {
    match error {
        zoolet_model::Error::Suspended => Error::Doubtful,
        // A session that ends leaves what was under way undecided.
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
