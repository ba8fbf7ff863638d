//! How a session at a server is, and becomes.

use crate::ask::{First, first};
use futures_core::Stream;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::watch;
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

type Changed = Pin<Box<dyn Future<Output = (SessionState, zk::StateWatcher)> + Send>>;

/// The state now and then each later one. A slow reader misses intermediate ones, never the last.
pub struct States {
    told: Option<SessionState>,
    now: Option<SessionState>,
    changed: Changed,
    runtime: watch::Receiver<()>,
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("States").field("told", &self.told).finish_non_exhaustive()
    }
}

impl States {
    /// `watcher` was made before it was found out how the session is `now`.
    pub(super) fn new(watcher: zk::StateWatcher, now: SessionState, runtime: watch::Receiver<()>) -> Self {
        Self { told: None, now: Some(now), changed: wait(watcher, runtime.clone()), runtime }
    }
}

fn wait(mut watcher: zk::StateWatcher, mut runtime: watch::Receiver<()>) -> Changed {
    Box::pin(async move {
        let changed = first(watcher.changed(), async { while runtime.changed().await.is_ok() {} }).await;
        let now = match changed {
            First::Left(now) => state(now),
            // With its runtime the client is gone, and says nothing more.
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
            if self.told.is_some_and(SessionState::is_over) {
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
            if self.told != Some(now) {
                self.told = Some(now);
                return Poll::Ready(Some(now));
            }
        }
    }
}
