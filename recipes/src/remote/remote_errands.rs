//! Errands of a session: cleanups for callers that no longer wait.

use super::request::perform;
use crate::{Errand, Left};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Sleep;
use zookeeper_client::Client;
use zoolet_model::{Reply, Request, RequestError};

/// Pause before a request is sent again to a server that could not carry it out.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

pub(super) type Asking<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Unfinished errands, in the order in which they were given.
///
/// Every request of the session passes through here. So the errands that a lost connection left
/// unanswered are sent again before any new request.
#[derive(Debug)]
pub(super) struct Errands {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    entries: VecDeque<Entry>,
    /// Wakes the task that waits for answers.
    waker: Waker,
    /// Whether the session's last clone was dropped, so that no errand can be added.
    is_closed: bool,
}

struct Entry {
    errand: Errand,
    /// Keeps the session open until the errand is done.
    client: Arc<Client>,
    stage: Stage,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.errand, f)
    }
}

enum Stage {
    Sent(Asking<Result<Reply, RequestError>>),
    Later(Duration),
}

impl Errands {
    pub(super) fn new() -> Arc<Self> {
        let state = State { entries: VecDeque::new(), waker: Waker::noop().clone(), is_closed: false };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Adds an errand, and sends its first request before returning.
    pub(super) fn run(&self, client: &Arc<Client>, errand: Errand) {
        let mut state = self.lock();
        let stage = Stage::Sent(send(client, errand.request()));
        state.entries.push_back(Entry { errand, client: Arc::clone(client), stage });
        state.advance();
        state.waker.wake_by_ref();
    }

    /// Calls `begin` after the errands given before it and ahead of those given later.
    pub(super) fn behind<T>(&self, begin: impl FnOnce() -> T) -> T {
        let mut state = self.lock();
        if !state.entries.is_empty() {
            state.advance();
            state.waker.wake_by_ref();
        }
        begin()
    }

    /// Marks that no more errands will be added.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.waker.wake_by_ref();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the answers that have come and sends the requests that follow from them.
    ///
    /// Returns the time until the next retry; `None` if no errand waits for one.
    fn advance(&mut self) -> Option<Duration> {
        let mut context = Context::from_waker(&self.waker);
        let now = super::now();
        self.entries.retain_mut(|entry| !entry.advance(&mut context, now));
        let later = self.entries.iter().filter_map(|entry| match entry.stage {
            Stage::Later(at) => Some(at.saturating_sub(now)),
            Stage::Sent(_) => None,
        });
        later.min()
    }
}

impl Entry {
    /// Continues the errand; returns whether it is done.
    fn advance(&mut self, context: &mut Context<'_>, now: Duration) -> bool {
        let mut is_sent_again = false;
        loop {
            let answer = match &mut self.stage {
                Stage::Later(at) if now < *at => return false,
                Stage::Later(_) => {
                    self.stage = Stage::Sent(send(&self.client, self.errand.request()));
                    continue;
                }
                Stage::Sent(asking) => match asking.as_mut().poll(context) {
                    Poll::Pending => return false,
                    Poll::Ready(answer) => answer,
                },
            };
            let answer = match answer {
                Ok(reply) => Ok(reply),
                Err(RequestError::Refused(code)) => Err(code),
                // The client keeps the request until it is connected. If the request fails at once
                // instead, it is sent again after a pause.
                Err(RequestError::ConnectionLoss | RequestError::Suspended) if !is_sent_again => {
                    is_sent_again = true;
                    self.errand = self.errand.clone().on_another_connection();
                    self.stage = Stage::Sent(send(&self.client, self.errand.request()));
                    continue;
                }
                Err(RequestError::ConnectionLoss | RequestError::Suspended | RequestError::Busy) => {
                    self.errand = self.errand.clone().on_another_connection();
                    self.stage = Stage::Later(now + PAUSE);
                    return false;
                }
                Err(
                    RequestError::TooLarge | RequestError::Lost(_) | RequestError::AuthFailed | RequestError::Closed,
                ) => return true,
            };
            is_sent_again = false;
            match self.errand.clone().answered(&answer) {
                Left::Nothing => return true,
                Left::Now(next) => {
                    self.stage = Stage::Sent(send(&self.client, next.request()));
                    self.errand = next;
                }
                Left::Later(next) => {
                    self.errand = next;
                    self.stage = Stage::Later(now + PAUSE);
                }
            }
        }
    }
}

/// Returns a request that is sent when the future is first polled.
fn send(client: &Arc<Client>, request: Request) -> Asking<Result<Reply, RequestError>> {
    let client = Arc::clone(client);
    Box::pin(async move { perform(&client, &request).await.answer })
}

/// The task that waits for answers. It ends when all errands are done and no more can be added.
pub(super) struct Driver {
    errands: Arc<Errands>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    pub(super) fn new(errands: Arc<Errands>) -> Self {
        Self { errands, pause: None }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let wait = {
                let mut state = self.errands.lock();
                state.waker = context.waker().clone();
                let wait = state.advance();
                if state.is_closed && state.entries.is_empty() {
                    return Poll::Ready(());
                }
                wait
            };
            let Some(wait) = wait else {
                self.pause = None;
                return Poll::Pending;
            };
            let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
            if pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
    }
}
