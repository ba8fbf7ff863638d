//! What participants tell the log and the recorder of their session.
//!
//! A wait and a grant each have a span in the log, with the path and, for a grant, the token. The
//! work of a grant runs in its span.

use crate::{Coordinator, FencingToken, GrantChange, GrantEnd, GrantStep, Instant};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{Span, debug, debug_span, info, info_span, warn};
use zoolet_model::Path;

/// Number of participations of this process so far.
static PARTICIPATIONS: AtomicU64 = AtomicU64::new(1);

/// A participant that waits for a grant, or has one.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
    /// Number of the participation, unique in this process.
    id: u64,
    /// Path of the lock, election or semaphore.
    subject: Path,
    znode: Path,
    /// `None` while it waits.
    token: Option<FencingToken>,
    /// Begin of the wait or of the grant.
    since: Instant,
    span: Span,
}

impl Telling {
    /// Tells that the participant with this znode stands in line; `since`: when its caller began.
    pub(crate) fn waits(coordinator: &impl Coordinator, subject: &Path, znode: &Path, since: Instant) -> Self {
        let span = debug_span!("wait", path = %subject, znode = %znode);
        debug!(parent: &span, path = %subject, "stands in line");
        let id = PARTICIPATIONS.fetch_add(1, Relaxed);
        let telling = Self { id, subject: subject.clone(), znode: znode.clone(), token: None, since, span };
        telling.record(coordinator, GrantStep::Waits);
        telling
    }

    /// Tells that the wait is over.
    pub(crate) fn granted(&mut self, coordinator: &impl Coordinator, znode: &Path, token: FencingToken) {
        let now = coordinator.now();
        let waited = now - self.since;
        let span = info_span!("grant", path = %self.subject, token = token.0);
        debug!(parent: &span, path = %self.subject, token = token.0, waited_ms = ms(waited), "granted");
        (self.znode, self.token, self.since, self.span) = (znode.clone(), Some(token), now, span);
        self.record(coordinator, GrantStep::Granted { waited });
    }

    /// Tells that the wait or grant has ended; `end` says why unless it was given up.
    pub(crate) fn over(&self, coordinator: &impl Coordinator, end: Option<GrantEnd>) {
        let lasted = coordinator.now() - self.since;
        let (path, token) = (&self.subject, self.token.map(|token| token.0));
        let step = match (self.token, end) {
            (None, _) => {
                debug!(parent: &self.span, %path, waited_ms = ms(lasted), "left the line");
                GrantStep::Left { waited: lasted }
            }
            (Some(_), None) => {
                debug!(parent: &self.span, %path, token, held_ms = ms(lasted), "released");
                GrantStep::Released { held: lasted }
            }
            (Some(_), Some(end)) => {
                warn!(parent: &self.span, %path, token, held_ms = ms(lasted), ?end, "the grant is lost");
                GrantStep::Lost { end, held: lasted }
            }
        };
        self.record(coordinator, step);
    }

    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    fn record(&self, coordinator: &impl Coordinator, step: GrantStep) {
        coordinator.record(&GrantChange::new(self.id, &self.subject, &self.znode, self.token, step));
    }
}

/// The reports about a grant that has listeners.
#[derive(Debug)]
pub(crate) struct Told {
    telling: Telling,
    state: Mutex<ToldState>,
}

#[derive(Debug, Default)]
struct ToldState {
    /// The doubt, while there is one: its beginning and its span.
    doubt: Option<(Instant, Span)>,
    is_over: bool,
}

impl Told {
    pub(crate) fn new(telling: Telling) -> Self {
        Self { telling, state: Mutex::default() }
    }

    // Loggers and recorders run code of others: never under the lock.
    fn lock(&self) -> MutexGuard<'_, ToldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn doubted(&self, coordinator: &impl Coordinator) {
        let Telling { subject: path, token, span, .. } = &self.telling;
        let token = token.map(|token| token.0);
        let doubt = info_span!(parent: span, "doubt", %path, token);
        let began = Some((coordinator.now(), doubt.clone()));
        let mut state = self.lock();
        if state.is_over || state.doubt.is_some() {
            return;
        }
        state.doubt = began;
        drop(state);
        info!(parent: &doubt, %path, token, "the grant is in doubt");
        self.telling.record(coordinator, GrantStep::Doubted);
    }

    pub(crate) fn held_again(&self, coordinator: &impl Coordinator) {
        let doubt = self.lock().doubt.take();
        let Some((since, span)) = doubt else { return };
        let doubted = coordinator.now() - since;
        let Telling { subject: path, token, .. } = &self.telling;
        let token = token.map(|token| token.0);
        info!(parent: &span, %path, token, doubted_ms = ms(doubted), "the grant is held again");
        self.telling.record(coordinator, GrantStep::HeldAgain { doubted });
    }

    /// As [`Telling::over`], the first time.
    pub(crate) fn over(&self, coordinator: &impl Coordinator, end: Option<GrantEnd>) {
        let mut state = self.lock();
        let (was_over, doubt) = (std::mem::replace(&mut state.is_over, true), state.doubt.take());
        drop(state);
        drop(doubt);
        if !was_over {
            self.telling.over(coordinator, end);
        }
    }
}

/// Returns milliseconds, as the log shows times.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
