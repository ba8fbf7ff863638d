//! The owner's handles to its watches.

use super::Link;
use super::watch::Arm;
use futures_core::Stream;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use zoolet_model::{AddWatchMode, Path, Text, WatchItem, WatchedEvent};

/// A stream of every change of a znode or subtree.
///
/// Its queue is bounded: a slow reader gets a [`WatchItem::Gap`] in place of the events it missed.
#[derive(Debug)]
pub struct WatchStream(Registration);

impl WatchStream {
    pub(super) fn new(link: &Arc<Link>, path: &Path, mode: AddWatchMode) -> Self {
        let arm = match mode {
            AddWatchMode::Persistent => Arm::Persistent,
            AddWatchMode::PersistentRecursive => Arm::Recursive,
        };
        Self(Registration::new(link, path.text().clone(), arm))
    }

    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the next item; `None` once the session is over. Cancel-safe.
    #[allow(
        clippy::should_implement_trait,
        reason = "a stream's next, as futures name it: what it returns is a future"
    )]
    pub fn next(&mut self) -> impl Future<Output = Option<WatchItem>> + '_ {
        std::future::poll_fn(|context| self.0.poll(context))
    }
}

impl Stream for WatchStream {
    type Item = WatchItem;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        self.0.poll(context)
    }
}

/// A future of the first change after a read; `None` if the session ends before.
#[derive(Debug)]
#[must_use = "await the watch to get its event"]
pub struct OneShotWatch(Registration);

impl OneShotWatch {
    pub(super) fn new(link: &Arc<Link>, path: Text, arm: Arm) -> Self {
        Self(Registration::new(link, path, arm))
    }

    /// Creates a watch that has already ended.
    pub(super) fn of_nothing(link: &Arc<Link>) -> Self {
        Self(Registration { link: Arc::clone(link), id: link.new_number() })
    }

    pub(super) fn id(&self) -> u64 {
        self.0.id
    }
}

impl Future for OneShotWatch {
    type Output = Option<WatchedEvent>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(|item| match item {
            Some(WatchItem::Event(event)) => Some(event),
            Some(WatchItem::Gap) | None => None,
        })
    }
}

/// One registration, which ends when this is dropped.
#[derive(Debug)]
struct Registration {
    link: Arc<Link>,
    id: u64,
}

impl Registration {
    fn new(link: &Arc<Link>, path: Text, arm: Arm) -> Self {
        let id = link.new_number();
        link.with_watches(|watches| watches.add(id, path, arm));
        Self { link: Arc::clone(link), id }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Option<WatchItem>> {
        self.link.with_watches(|watches| watches.poll(self.id, context))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.link.end_watch(self.id);
    }
}
