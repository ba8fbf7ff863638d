//! Watches of a session at a server.

use super::remote_errands::{Asking, PAUSE};
use super::request::error;
use super::{Inner, Ticket};
use crate::ask::{First, first};
use futures_core::Stream;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};
use zookeeper_client as zk;
use zoolet_model::{AddWatchMode, EventKind, Path, Reply, RequestError, SessionState, WatchItem, WatchedEvent};

/// Maximum events of one watch buffered for its reader. Beyond it the reader gets a gap.
const EVENTS_MAX: usize = 256;

/// A one-shot watch.
///
/// The client registers it again at the next server, which reports what happened meanwhile.
/// Dropping it ends the watch.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct Watch(Option<oneshot::Receiver<WatchedEvent>>);

impl Watch {
    /// Returns the watch of a request that was not sent.
    pub(super) fn of_nothing() -> Self {
        Self(None)
    }
}

impl Future for Watch {
    type Output = Option<WatchedEvent>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchedEvent>> {
        match &mut self.0 {
            None => Poll::Ready(None),
            Some(event) => Pin::new(event).poll(context).map(Result::ok),
        }
    }
}

/// Hands on the answer to a watching read, and then the event of its watch.
pub(super) fn follow(
    inner: &Arc<Inner>,
    asking: Asking<(Result<Reply, RequestError>, Option<zk::OneshotWatcher>)>,
) -> (Ticket, Watch) {
    let (answered, answer) = oneshot::channel();
    let (mut heard, event) = oneshot::channel();
    inner.handle.spawn(async move {
        let (answer, watcher) = asking.await;
        let _ = answered.send(answer);
        let Some(watcher) = watcher else { return };
        // A separate task goes on when the ticket is dropped. The client panics when it is asked
        // after its runtime has ended, but then this task is gone too.
        if let First::Left(event) = first(watcher.changed(), heard.closed()).await
            && let Some(event) = watched(event)
        {
            let _ = heard.send(event);
        }
    });
    (Ticket::waiting(answer), Watch(Some(event)))
}

/// Translates an event; `None` if it reports only the state of the session.
fn watched(event: zk::WatchedEvent) -> Option<WatchedEvent> {
    let kind = match event.event_type {
        zk::EventType::NodeCreated => EventKind::NodeCreated,
        zk::EventType::NodeDeleted => EventKind::NodeDeleted,
        zk::EventType::NodeDataChanged => EventKind::NodeDataChanged,
        zk::EventType::NodeChildrenChanged => EventKind::NodeChildrenChanged,
        zk::EventType::Session => return None,
    };
    Some(WatchedEvent { state: SessionState::Connected, kind, path: Path::new(event.path).ok()?, zxid: event.zxid })
}

/// The events of a persistent watch. Dropping it ends the watch.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct Events(mpsc::Receiver<WatchItem>);

impl Events {
    /// Returns the events of a request that was not sent.
    pub(super) fn of_nothing() -> Self {
        Self(mpsc::channel(1).1)
    }
}

impl Stream for Events {
    type Item = WatchItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        self.0.poll_recv(context)
    }
}

/// Requests a persistent watch. The client is held only until the answer.
pub(super) fn add(
    client: Arc<zk::Client>,
    path: &Path,
    mode: AddWatchMode,
) -> Asking<Result<zk::PersistentWatcher, RequestError>> {
    let path = path.text().clone();
    let mode = match mode {
        AddWatchMode::Persistent => zk::AddWatchMode::Persistent,
        AddWatchMode::PersistentRecursive => zk::AddWatchMode::PersistentRecursive,
    };
    Box::pin(async move { client.watch(&path, mode).await.map_err(error) })
}

/// Hands on the answer, and then the events.
pub(super) fn follow_all(
    inner: &Arc<Inner>,
    path: Path,
    mode: AddWatchMode,
    asking: Asking<Result<zk::PersistentWatcher, RequestError>>,
) -> (Ticket, Events) {
    let (answered, answer) = oneshot::channel();
    let (events, reader) = mpsc::channel(EVENTS_MAX);
    let session = Arc::downgrade(inner);
    inner.handle.spawn(async move {
        match asking.await {
            Ok(watcher) => {
                let _ = answered.send(Ok(Reply::WatchAdded));
                let follower = Follower { session, path, mode, watcher, events, has_gap: false };
                follower.run().await;
            }
            Err(error) => {
                let _ = answered.send(Err(error));
            }
        }
    });
    (Ticket::waiting(answer), Events(reader))
}

struct Follower {
    session: Weak<Inner>,
    path: Path,
    mode: AddWatchMode,
    watcher: zk::PersistentWatcher,
    events: mpsc::Sender<WatchItem>,
    /// Whether events were dropped since the last one that was handed on.
    has_gap: bool,
}

impl Follower {
    async fn run(mut self) {
        loop {
            let event = match first(self.watcher.changed(), report_gap(&self.events, self.has_gap)).await {
                First::Left(event) => event,
                First::Right(true) => {
                    self.has_gap = false;
                    continue;
                }
                First::Right(false) => return,
            };
            match event.session_state {
                _ if event.event_type != zk::EventType::Session => {
                    if let Some(event) = watched(event) {
                        let is_late = self.has_gap || self.events.try_send(WatchItem::Event(event)).is_err();
                        self.has_gap = is_late;
                    }
                }
                zk::SessionState::SyncConnected | zk::SessionState::ConnectedReadOnly => {
                    if !self.register_again().await {
                        return;
                    }
                }
                zk::SessionState::Disconnected => {}
                zk::SessionState::AuthFailed | zk::SessionState::Expired | zk::SessionState::Closed => return,
            }
        }
    }

    /// Registers the watch at the next server; returns whether the session goes on.
    ///
    /// The client registers only one-shot watches again (0.11.2 leaves out the others), and no
    /// server reports the events in between. The old watcher is dropped only after a success: it
    /// hears of the next connection if this one is lost again.
    async fn register_again(&mut self) -> bool {
        loop {
            let Some(session) = self.session.upgrade() else { return false };
            let asking = session.begin(add(Arc::clone(&session.client), &self.path, self.mode));
            drop(session);
            match asking.await {
                Ok(watcher) => {
                    self.watcher = watcher;
                    self.has_gap = true;
                    return true;
                }
                // The old watcher hears of the next connection.
                Err(RequestError::ConnectionLoss | RequestError::Suspended) => return true,
                // Without a retry the watch would stay unregistered on this connection.
                Err(RequestError::Busy) => {
                    if let First::Right(()) = first(tokio::time::sleep(PAUSE), self.events.closed()).await {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
    }
}

/// Reports a gap, if there is one, once there is room; false if the reader is gone.
async fn report_gap(events: &mpsc::Sender<WatchItem>, has_gap: bool) -> bool {
    if !has_gap {
        events.closed().await;
        return false;
    }
    events.send(WatchItem::Gap).await.is_ok()
}
