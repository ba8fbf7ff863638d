//! The states of a session at a server.

use crate::ask::{First, first};
use futures_core::Stream;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::sync::watch;
use tokio::task::unconstrained;
use zookeeper_client as zk;
use zoolet_model::{LostReason, SessionState};

pub(super) fn state(state: zk::SessionState) -> SessionState {
    match state {
        zk::SessionState::SyncConnected => SessionState::Connected,
        zk::SessionState::ConnectedReadOnly => SessionState::ReadOnly,
        zk::SessionState::Disconnected => SessionState::Suspended,
        zk::SessionState::Expired => SessionState::Lost(LostReason::Expired),
        zk::SessionState::AuthFailed => SessionState::AuthFailed,
        zk::SessionState::Closed => SessionState::Closed,
    }
}

/// Counts connections: each may mean that the event of a one-shot watch was missed.
///
/// The client does not tell whether the next server registered its watches. It does not ask again
/// after a refusal.
pub(super) struct Gaps {
    watcher: zk::StateWatcher,
    /// Whether the state changed since a connection was last counted.
    has_changed: bool,
    /// Whether the state has changed since an answer last proved to come from a new connection.
    may_be_new: bool,
    count: u64,
}

impl Gaps {
    pub(super) fn new(watcher: zk::StateWatcher) -> Self {
        Self { watcher, has_changed: false, may_be_new: false, count: 0 }
    }

    pub(super) fn count(&mut self) -> u64 {
        self.look();
        if self.has_changed && self.watcher.peek_state() != zk::SessionState::Disconnected {
            self.add();
        }
        self.count
    }

    /// Notes an answer. A connection may have begun before it and ended after it, and only the last
    /// state is known.
    ///
    /// Returns whether the session has certainly been resumed since the last answer.
    pub(super) fn answered(&mut self) -> bool {
        self.look();
        if self.has_changed {
            self.add();
        }
        // Without a connection now, the answer may be of the connection that has ended.
        let is_resumed = self.may_be_new && self.watcher.peek_state() == zk::SessionState::SyncConnected;
        self.may_be_new &= !is_resumed;
        is_resumed
    }

    fn add(&mut self) {
        self.has_changed = false;
        self.count += 1;
    }

    /// Looks for a change. The client publishes its state before it reads any answer of the
    /// connection.
    fn look(&mut self) {
        // Polled outside of tokio's budget for one task: once that is used up, a change would not
        // be seen.
        let changed = pin!(unconstrained(self.watcher.changed()));
        let has_changed = changed.poll(&mut Context::from_waker(Waker::noop())).is_ready();
        self.has_changed |= has_changed;
        self.may_be_new |= has_changed;
    }
}

type Changed = Pin<Box<dyn Future<Output = (SessionState, zk::StateWatcher)> + Send>>;

/// The present state, then each later one. A slow reader may miss intermediate states, never the
/// last.
pub struct States {
    reported: Option<SessionState>,
    now: Option<SessionState>,
    changed: Changed,
    runtime: watch::Receiver<()>,
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("States").field("reported", &self.reported).finish_non_exhaustive()
    }
}

impl States {
    /// `watcher` must have been made before the state `now` was read.
    pub(super) fn new(watcher: zk::StateWatcher, now: SessionState, runtime: watch::Receiver<()>) -> Self {
        Self { reported: None, now: Some(now), changed: wait(watcher, runtime.clone()), runtime }
    }
}

fn wait(mut watcher: zk::StateWatcher, mut runtime: watch::Receiver<()>) -> Changed {
    Box::pin(async move {
        let changed = first(watcher.changed(), async { while runtime.changed().await.is_ok() {} }).await;
        let now = match changed {
            First::Left(now) => state(now),
            // The client has ended with its runtime, and reports nothing more.
            First::Right(()) if watcher.peek_state().is_terminated() => state(watcher.peek_state()),
            First::Right(()) => SessionState::Closed,
        };
        (now, watcher)
    })
}

impl Stream for States {
    type Item = SessionState;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SessionState>> {
        loop {
            if self.reported.is_some_and(SessionState::is_over) {
                return Poll::Ready(None);
            }
            let now = match self.now.take() {
                Some(now) => now,
                None => {
                    let Poll::Ready((now, watcher)) = self.changed.as_mut().poll(context) else { return Poll::Pending };
                    self.changed = wait(watcher, self.runtime.clone());
                    now
                }
            };
            if self.reported != Some(now) {
                self.reported = Some(now);
                return Poll::Ready(Some(now));
            }
        }
    }
}
