//! Streams of a node's state. The core looks at it only while a stream exists.

use super::{Inbox, Input, lock};
use futures_core::Stream;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use zoolet_machine::status::{Alarm, AlarmKind, Summary};

/// Minimum interval between two looks at the state, milliseconds.
///
/// A look costs as much as an answer to `srvr`. A change of the role does not wait for it.
pub(super) const LOOK_MS: u64 = 1_000;

/// Interval at which the core wakes for a look if it has nothing else to do, milliseconds.
///
/// Only an idle server without other servers sleeps that long. Heartbeats come more often.
pub(super) const WAKE_MS: u64 = 5_000;

/// How long a state that each start and each election has for a moment must last to be an alarm.
const ROUTINE_MAX: Duration = Duration::from_secs(1);

/// Whether each start and each election raises this alarm for a moment.
const fn is_routine(kind: AlarmKind) -> bool {
    matches!(
        kind,
        AlarmKind::NotServing | AlarmKind::LeaderSilent | AlarmKind::NotHeardByLeader | AlarmKind::NotReached
    )
}

/// The state of a node as the core last saw it, and the tasks that wait for a change.
#[derive(Debug, Default)]
pub(super) struct StatusFeed {
    watchers: AtomicUsize,
    state: Mutex<Feed>,
}

#[derive(Debug, Default)]
struct Feed {
    latest: Option<Arc<Summary>>,
    /// The routine alarms of the last look, and since when each look has had them.
    routine: Vec<(Alarm, Instant)>,
    /// Looks so far.
    looks: u64,
    /// Whether a stream waits for its first look.
    is_awaited: bool,
    /// The node has ended.
    is_over: bool,
    numbers: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl StatusFeed {
    /// Returns whether a stream exists.
    pub(super) fn is_watched(&self) -> bool {
        self.watchers.load(Relaxed) > 0
    }

    /// Makes a stream, and lets the core look at the state for its first item.
    pub(super) fn watch(self: &Arc<Self>, core: &Inbox) -> StatusStream {
        self.watchers.fetch_add(1, Relaxed);
        let mut feed = lock(&self.state);
        feed.numbers += 1;
        feed.is_awaited = true;
        let (number, looks) = (feed.numbers, feed.looks);
        drop(feed);
        core.push(Input::LookAtStatus);
        StatusStream { feed: Arc::clone(self), number, looks, shown: None }
    }

    /// Shows the present state to all streams. Wakes their tasks if it is news.
    ///
    /// A [routine](is_routine) alarm is shown once it has lasted.
    pub(super) fn show(&self, mut summary: Summary, now: Instant) {
        let mut feed = lock(&self.state);
        let former = std::mem::take(&mut feed.routine);
        summary.alarms.retain(|alarm| {
            if !is_routine(alarm.kind) {
                return true;
            }
            let since = former.iter().find(|(other, _)| other.is_same_as(alarm)).map_or(now, |(_, since)| *since);
            feed.routine.push((alarm.clone(), since));
            now.duration_since(since) >= ROUTINE_MAX
        });
        let is_news = feed.latest.as_ref().is_none_or(|latest| summary.is_news_after(latest));
        let is_awaited = std::mem::take(&mut feed.is_awaited);
        feed.latest = Some(Arc::new(summary));
        feed.looks += 1;
        if is_news || is_awaited {
            let waiting = std::mem::take(&mut feed.waiting);
            drop(feed);
            waiting.into_values().for_each(Waker::wake);
        }
    }

    /// Ends all streams.
    pub(super) fn end(&self) {
        let mut feed = lock(&self.state);
        feed.is_over = true;
        let waiting = std::mem::take(&mut feed.waiting);
        drop(feed);
        waiting.into_values().for_each(Waker::wake);
    }
}

/// A stream of a node's state: the present state, then each state that differs.
///
/// [`Summary::is_news_after`] defines which differences count. A task that is slow to take an item
/// finds only the newest state. The stream ends when the node does; it does not keep the node
/// alive.
#[derive(Debug)]
#[must_use = "the node looks at its state only for this stream"]
pub struct StatusStream {
    feed: Arc<StatusFeed>,
    number: u64,
    /// Looks before this stream began.
    looks: u64,
    /// The last item.
    shown: Option<Arc<Summary>>,
}

impl StatusStream {
    /// Returns the next state; `None` after the node's end. Cancel-safe.
    #[allow(
        clippy::should_implement_trait,
        reason = "a stream's next, as futures name it: what it returns is a future"
    )]
    pub fn next(&mut self) -> impl Future<Output = Option<Summary>> + '_ {
        std::future::poll_fn(|context| self.poll(context))
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<Summary>> {
        let mut feed = lock(&self.feed.state);
        if feed.is_over {
            return Poll::Ready(None);
        }
        let is_news = |latest: &Arc<Summary>| match &self.shown {
            None => feed.looks > self.looks,
            Some(shown) => latest.is_news_after(shown),
        };
        if let Some(latest) = feed.latest.clone().filter(is_news) {
            self.shown = Some(Arc::clone(&latest));
            return Poll::Ready(Some(Summary::clone(&latest)));
        }
        feed.waiting.insert(self.number, context.waker().clone());
        Poll::Pending
    }
}

impl Stream for StatusStream {
    type Item = Summary;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Summary>> {
        self.poll(context)
    }
}

impl Drop for StatusStream {
    fn drop(&mut self) {
        lock(&self.feed.state).waiting.remove(&self.number);
        self.feed.watchers.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use zoolet_machine::Status;
    use zoolet_machine::status::ServerRole;

    fn summary(role: &'static str, znodes: u64) -> Summary {
        Status { role, znodes, ..Status::default() }.summary()
    }

    fn next(stream: &mut StatusStream) -> Poll<Option<ServerRole>> {
        let next = pin!(stream.next());
        next.poll(&mut Context::from_waker(Waker::noop())).map(|item| item.map(|summary| summary.role))
    }

    #[test]
    fn stream_shows_the_present_state_and_then_only_news() {
        let (feed, core, now) = (Arc::new(StatusFeed::default()), Inbox::new(), Instant::now());
        let mut first = feed.watch(&core);
        assert_eq!(next(&mut first), Poll::Pending);
        feed.show(summary("leader", 1), now);
        assert_eq!(next(&mut first), Poll::Ready(Some(ServerRole::Leader)));
        feed.show(summary("leader", 2), now);
        assert_eq!(next(&mut first), Poll::Pending);
        // A state from before is not the present one.
        let mut second = feed.watch(&core);
        assert_eq!(next(&mut second), Poll::Pending);
        feed.show(summary("leader", 3), now);
        assert_eq!(next(&mut second), Poll::Ready(Some(ServerRole::Leader)));
        // A slow task finds the newest state, and nothing if that is the one it knows.
        feed.show(summary("", 3), now);
        feed.show(summary("follower", 3), now);
        assert_eq!(next(&mut first), Poll::Ready(Some(ServerRole::Follower)));
        feed.show(summary("leader", 3), now);
        assert_eq!(next(&mut second), Poll::Pending);
        feed.end();
        assert_eq!((next(&mut first), next(&mut second)), (Poll::Ready(None), Poll::Ready(None)));
        drop((first, second));
        assert!(!feed.is_watched());
    }

    /// A daemon that prints alarms would otherwise print several at each start and election.
    #[test]
    fn state_of_each_start_is_an_alarm_only_once_it_lasts() {
        let (feed, core, now) = (Arc::new(StatusFeed::default()), Inbox::new(), Instant::now());
        let mut stream = feed.watch(&core);
        let mut shown = |summary: Summary, at_ms: u64| {
            assert!(summary.role != ServerRole::Looking || !summary.alarms.is_empty(), "the test raises an alarm");
            feed.show(summary, now + Duration::from_millis(at_ms));
            let next = pin!(stream.next()).poll(&mut Context::from_waker(Waker::noop()));
            next.map(|item| item.unwrap().alarms.len())
        };
        let looking = || {
            let mut status = Status::default();
            status.alarms = zoolet_machine::status::alarms(&status);
            status.summary()
        };
        assert_eq!(shown(looking(), 0), Poll::Ready(0));
        assert_eq!(shown(looking(), 999), Poll::Pending);
        assert_eq!(shown(looking(), 1_000), Poll::Ready(1));
        // Another time begins anew.
        assert_eq!(shown(summary("leader", 1), 2_000), Poll::Ready(0));
        assert_eq!(shown(looking(), 3_000), Poll::Ready(0));
        assert_eq!(shown(looking(), 4_000), Poll::Ready(1));
    }
}
