//! Events on their way from the session's thread to a reader, which may be slow or blocked.

use super::client::{Event, Interrupts};
use super::depth_first::is_within;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Bytes of events that wait for one reader; later events are counted and lost.
const BYTES_MAX: usize = 1 << 20;
/// Bytes of an event beside its path.
const EVENT_BYTES: usize = 96;
/// Longest time until a wait notices Ctrl-C.
const LOOK_AFTER: Duration = Duration::from_millis(50);

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
    /// Number of events that were ever added, also of those that were lost.
    added: u64,
    /// Number of them that the reader has taken, and that it has dealt with.
    taken: u64,
    settled: u64,
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
        waiting.added += 1;
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
                // The reader is back for more, so it has dealt with the last batch.
                waiting.settled = waiting.taken;
                self.settled.notify_all();
                if !waiting.batch.is_empty() {
                    waiting.bytes = 0;
                    waiting.taken = waiting.added;
                    return std::mem::take(&mut waiting.batch);
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Blocks until the reader has dealt with the events that were added before; false after Ctrl-C.
    ///
    /// It does not wait for later ones: a busy subtree always has some.
    pub(super) fn settle(&self, interrupts: &Interrupts) -> bool {
        let mut waiting = self.lock();
        let added = waiting.added;
        while waiting.settled < added {
            if interrupts.is_struck() {
                return false;
            }
            waiting = self.settled.wait_timeout(waiting, LOOK_AFTER).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
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
    use std::sync::{Arc, mpsc};
    use std::thread;
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
    fn settling_ends_although_events_keep_coming() {
        let queue = Arc::<Queue>::default();
        queue.push(event("NodeDataChanged", "/busy"));
        let read = queue.clone();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().build().unwrap();
            loop {
                let batch = runtime.block_on(read.take());
                // The next one comes before the reader has dealt with this one.
                batch.seen.into_iter().for_each(|seen| read.push(seen.event));
            }
        });
        assert_eq!(settled(&queue, &Interrupts::new()), Some(true));
    }

    #[test]
    fn settling_ends_with_ctrl_c_although_nothing_reads() {
        let (queue, interrupts) = (Arc::<Queue>::default(), Interrupts::new());
        queue.push(event("NodeDataChanged", "/a"));
        interrupts.strike();
        assert_eq!(settled(&queue, &interrupts), Some(false));
    }

    /// Returns the outcome of settling; `None` if it does not end.
    fn settled(queue: &Arc<Queue>, interrupts: &Arc<Interrupts>) -> Option<bool> {
        let (queue, interrupts) = (queue.clone(), interrupts.clone());
        let (ended, end) = mpsc::channel();
        thread::spawn(move || ended.send(queue.settle(&interrupts)));
        end.recv_timeout(Duration::from_secs(20)).ok()
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
