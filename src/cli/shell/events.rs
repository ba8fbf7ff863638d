//! Events on their way from the session's thread to a reader, which may be slow or blocked.

use super::client::Event;
use super::depth_first::is_within;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Bytes of events that wait for one reader; later events are counted and lost.
const BYTES_MAX: usize = 1 << 20;
/// Bytes of an event beside its path.
const EVENT_BYTES: usize = 96;

/// An event and its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    /// Milliseconds since 1970 at which the session's thread received the event.
    pub(super) ms: i64,
    pub(super) event: Event,
}

/// Events in their order, and the number of those that were lost after them.
#[derive(Default, Debug)]
pub(super) struct Batch {
    pub(super) seen: Vec<Seen>,
    pub(super) missed: u64,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.missed == 0
    }
}

#[derive(Default)]
struct Waiting {
    batch: Batch,
    bytes: usize,
    /// Whether the reader has dealt with all that it took.
    is_idle: bool,
}

/// Events that wait for one reader.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
    settled: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; never blocks.
    pub(super) fn push(&self, event: Event) {
        let mut waiting = self.lock();
        let bytes = EVENT_BYTES + event.path.as_ref().map_or(0, String::len);
        // Once one is lost, all later ones of the batch are, so that the gap has one place.
        if waiting.batch.missed > 0 || waiting.bytes + bytes > BYTES_MAX {
            waiting.batch.missed += 1;
        } else {
            waiting.bytes += bytes;
            waiting.batch.seen.push(Seen { ms: now_ms(), event });
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for events and takes all of them.
    pub(super) async fn take(&self) -> Batch {
        loop {
            {
                let mut waiting = self.lock();
                waiting.is_idle = waiting.batch.is_empty();
                if !waiting.is_idle {
                    waiting.bytes = 0;
                    return std::mem::take(&mut waiting.batch);
                }
                self.settled.notify_all();
            }
            self.arrived.notified().await;
        }
    }

    /// Blocks until the reader has dealt with all events.
    pub(super) fn settle(&self) {
        let mut waiting = self.lock();
        while !(waiting.is_idle && waiting.batch.is_empty()) {
            waiting = self.settled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Returns the milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// The changes that a command follows.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub(super) path: String,
    /// Whether all znodes below the path count, or only the list of its children.
    pub(super) is_recursive: bool,
}

impl Followed {
    /// Returns whether an event belongs to the command; others are those of earlier watches.
    pub(super) fn covers(&self, event: &Event) -> bool {
        let Some(path) = &event.path else { return true };
        // A recursive watch has no events for lists of children.
        let is_list = event.kind == "NodeChildrenChanged";
        if self.is_recursive { !is_list && is_within(path, &self.path) } else { *path == self.path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    fn event(kind: &'static str, path: &str) -> Event {
        Event { state: "SyncConnected", kind, path: Some(path.to_owned()), zxid: -1 }
    }

    #[test]
    fn full_queue_keeps_the_first_events_and_counts_the_lost_ones() {
        let queue = Queue::default();
        let long = format!("/{}", "x".repeat(BYTES_MAX / 4));
        (0..10).for_each(|_| queue.push(event("NodeDataChanged", &long)));
        queue.push(event("NodeDataChanged", "/short"));
        let runtime = Builder::new_current_thread().build().unwrap();
        let batch = runtime.block_on(queue.take());
        assert_eq!((batch.seen.len(), batch.missed), (3, 8));
        assert!(batch.seen.is_sorted_by_key(|seen| seen.ms) && batch.seen[0].ms > 0);
        queue.push(event("NodeDataChanged", "/short"));
        let batch = runtime.block_on(queue.take());
        assert_eq!((batch.seen.len(), batch.missed), (1, 0));
    }

    #[test]
    fn events_of_other_watches_belong_to_no_command() {
        let all = Followed { path: "/app".to_owned(), is_recursive: true };
        let covered = ["/app", "/app/a/b", "/apple", "/"].map(|path| all.covers(&event("NodeCreated", path)));
        assert_eq!(covered, [true, true, false, false]);
        assert!(!all.covers(&event("NodeChildrenChanged", "/app")));
        let one = Followed { path: "/app".to_owned(), is_recursive: false };
        assert!(one.covers(&event("NodeChildrenChanged", "/app")) && !one.covers(&event("NodeCreated", "/app/a")));
        assert!(one.covers(&Event { state: "Disconnected", kind: "None", path: None, zxid: -1 }));
    }
}
