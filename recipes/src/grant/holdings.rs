//! The states of a grant, as they change.

use super::{Holding, holding};
use crate::ask::is_disconnection;
use crate::contention::is_withdrawn;
use crate::line::{Fate, Stamp};
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Instant};
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use zoolet_model::{ErrorCode, EventKind, Reply, Request, RequestError, SessionState, Text, WriteOp};

/// Stream of a grant's states that ends after [`Holding::Lost`].
///
/// A slow reader may miss intermediate states, but never the last.
#[derive(Debug)]
#[must_use = "it reports only while it is polled"]
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
    reported: Option<Holding>,
}

/// A check of the grant's znode that has no answer yet.
#[derive(Debug)]
struct Confirming<T> {
    ticket: T,
    /// Version that the check requires; `None` is any.
    version: Option<i32>,
    /// End of the safe time if the znode has that version.
    safe_until: Instant,
    /// What was known before it was sent.
    sent: Stamp,
}

/// Bounds the drift between two clocks: 1 part in 1,000.
///
/// NTP corrects up to 500 ppm, and each of the two clocks may be off by that.
const DRIFT_ONE_IN: u32 = 1000;

impl<C: Coordinator> Holdings<C> {
    pub(super) fn new(coordinator: C, znode: Text, fate: Arc<Fate>) -> Self {
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
            reported: None,
        };
        holdings.look();
        holdings
    }

    /// Whether a withdrawal's event would arrive before any later answer.
    fn hears_of_changes(&self) -> bool {
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
        let (now, timeout, version) = (self.coordinator.now(), self.coordinator.session_timeout(), self.version);
        let check = WriteOp::Check { path: self.znode.clone(), version: version.unwrap_or(-1) };
        let sent = self.fate.stamp(&self.coordinator);
        let ticket = self.coordinator.submit(Request::Multi(vec![check]));
        let safe_until = now.saturating_add(timeout - timeout / DRIFT_ONE_IN);
        self.confirming = Some(Confirming { ticket, version, safe_until, sent });
        self.confirms_at = now.saturating_add(timeout / 8);
    }

    /// Handles the answer to a check.
    fn confirmed(
        &mut self,
        answer: &Result<Reply, RequestError>,
        version: Option<i32>,
        (safe_until, sent): (Instant, Stamp),
        context: &Context<'_>,
    ) {
        let Ok(Reply::Multi(results)) = answer else { return };
        let failure = zoolet_model::first_failure(results);
        if failure.is_none() {
            self.fate.found(&self.coordinator, sent);
        }
        match failure {
            // The session may be safe for less, for example if its server's leader hears late of
            // requests.
            None if version.is_some() => self.extend(safe_until.min(self.coordinator.safe_until())),
            Some((_, ErrorCode::NoNode)) => self.fate.is_gone.store(true, Relaxed),
            // Read the later version. That read may be in flight already, because of the event of
            // the same change.
            Some((_, ErrorCode::BadVersion)) if self.version == version => {
                self.version = None;
                self.confirms_at = Instant::START;
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
            self.confirms_at = Instant::START;
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
                Err(RequestError::Refused(ErrorCode::NoNode)) => self.fate.is_gone.store(true, Relaxed),
                // The server has no room for the watch, so it refused the read as well. Checks need
                // a version: read without a watch.
                Err(RequestError::Refused(ErrorCode::SystemError))
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
        if let Some(Confirming { ticket, version, safe_until, sent }) = &mut self.confirming
            && let Poll::Ready(answer) = Pin::new(ticket).poll(context)
        {
            let (version, sent) = (*version, (*safe_until, *sent));
            self.confirming = None;
            self.confirmed(&answer, version, sent, context);
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
        let is_extended_by_checks = !self.hears_of_changes() && self.version.is_some();
        let extended = if is_extended_by_checks { safe_until.min(self.fate.safe_until()) } else { safe_until };
        let is_withdrawn = self.fate.is_withdrawn.load(Relaxed);
        // Its end comes as an event of the watch, and nothing removes its doubt.
        if is_withdrawn && self.hears_of_changes() {
            return;
        }
        let must_check = !is_withdrawn && self.fate.must_be_checked(self.coordinator.gaps());
        let soon = if must_check { now } else { extended.saturating_sub(self.coordinator.session_timeout() / 4) };
        let soon = soon.max(self.confirms_at);
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
        if self.reported == Some(Holding::Lost) {
            return Poll::Ready(None);
        }
        // Read both before the pending events. Outside a gap, the event of a withdrawal is
        // delivered before every answer given after the withdrawal. The gap count is read last, so
        // a gap that begins between the two reads counts. That is conservative: `safe_until` does
        // not depend on answers after such a gap.
        let (safe_until, gaps) = (self.coordinator.safe_until(), self.coordinator.gaps());
        self.hear(gaps, context);
        if self.hears_of_changes() {
            self.extend(safe_until);
        }
        let now = holding(&self.coordinator, self.state, gaps, Some(&self.fate));
        if matches!(now, Holding::Doubtful { .. }) {
            self.fate.doubt(&self.coordinator);
        }
        if now == Holding::Lost {
            self.fate.lost(&self.coordinator);
        }
        if self.reported != Some(now) {
            self.reported = Some(now);
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
