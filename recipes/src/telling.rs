//! What participants tell the log and the recorder of their session.
//!
//! A wait and a grant each have a span in the log, with the path and, for a grant, the token. The
//! work of a grant runs in its span.

use crate::{Coordinator, FencingToken, GrantChange, GrantEnd, GrantStep, Instant};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tracing::{Span, debug, debug_span, info, info_span, warn};
use zoolet_model::Path;

/// A participant that waits for a grant, or has one.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
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
        let telling = Self { subject: subject.clone(), znode: znode.clone(), token: None, since, span };
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
        coordinator.record(&GrantChange::new(&self.subject, &self.znode, self.token, step));
    }
}

/// The reports about a grant that has listeners.
#[derive(Debug)]
pub(crate) struct Told {
    telling: Telling,
    /// The doubt, while there is one: its beginning and its span.
    doubt: Mutex<Option<(Instant, Span)>>,
    is_over: AtomicBool,
}

impl Told {
    pub(crate) fn new(telling: Telling) -> Self {
        Self { telling, doubt: Mutex::default(), is_over: AtomicBool::new(false) }
    }

    pub(crate) fn doubted(&self, coordinator: &impl Coordinator) {
        let Telling { subject: path, token, span, .. } = &self.telling;
        let token = token.map(|token| token.0);
        let doubt = info_span!(parent: span, "doubt", %path, token);
        info!(parent: &doubt, %path, token, "the grant is in doubt");
        *self.doubt.lock().unwrap_or_else(PoisonError::into_inner) = Some((coordinator.now(), doubt));
        self.telling.record(coordinator, GrantStep::Doubted);
    }

    pub(crate) fn held_again(&self, coordinator: &impl Coordinator) {
        let doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((since, span)) = doubt else { return };
        let doubted = coordinator.now() - since;
        let Telling { subject: path, token, .. } = &self.telling;
        let token = token.map(|token| token.0);
        info!(parent: &span, %path, token, doubted_ms = ms(doubted), "the grant is held again");
        self.telling.record(coordinator, GrantStep::HeldAgain { doubted });
    }

    /// As [`Telling::over`], the first time.
    pub(crate) fn over(&self, coordinator: &impl Coordinator, end: Option<GrantEnd>) {
        if !self.is_over.swap(true, SeqCst) {
            drop(self.doubt.lock().unwrap_or_else(PoisonError::into_inner).take());
            self.telling.over(coordinator, end);
        }
    }
}

/// Returns milliseconds, as the log shows times.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
