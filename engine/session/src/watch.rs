//! The watches of one session: matches events to watches and bounds their queues.

use super::wakers::Wakers;
use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};
use zoolet_model::{
    EventKind, Path, Request, SessionState, SetWatches, Text, WatchEvent, WatchItem, WatchedEvent, WatcherType,
};

/// Maximum number of undelivered items in a watch stream's queue.
const QUEUE_MAX: usize = 64;

/// The kind of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arm {
    /// One-shot: changes of an existing znode's data, or its deletion.
    Data,
    /// One-shot: creation of a missing znode.
    Exist,
    /// One-shot: changes of the list of children, or deletion of the znode.
    Child,
    Persistent,
    Recursive,
}

impl Arm {
    const fn is_one_shot(self) -> bool {
        match self {
            Self::Data | Self::Exist | Self::Child => true,
            Self::Persistent | Self::Recursive => false,
        }
    }

    /// Returns whether a watch of this kind hears an event of `kind`.
    ///
    /// `same_path` says that the event is on the watched path; otherwise it is on a descendant.
    const fn hears(self, kind: EventKind, same_path: bool) -> bool {
        match (self, kind) {
            (Self::Recursive, EventKind::NodeChildrenChanged) => false,
            (Self::Recursive, _) => true,
            _ if !same_path => false,
            (Self::Persistent, _) => true,
            (Self::Data | Self::Exist, EventKind::NodeChildrenChanged) => false,
            (Self::Data | Self::Exist, _) => true,
            (Self::Child, EventKind::NodeDeleted | EventKind::NodeChildrenChanged) => true,
            (Self::Child, EventKind::NodeCreated | EventKind::NodeDataChanged) => false,
        }
    }
}

#[derive(Debug)]
struct Entry {
    path: Text,
    arm: Arm,
    /// Whether the machine has confirmed the registration.
    active: bool,
    queue: VecDeque<WatchItem>,
    waker: Option<Waker>,
}

impl Entry {
    /// Queues `item`; an overflow replaces the queue's contents by a gap.
    fn push(&mut self, item: WatchItem) {
        if let (Some(WatchItem::Event(last)), WatchItem::Event(new)) = (self.queue.back_mut(), &item)
            && last.kind == new.kind
            && last.path == new.path
        {
            // The same change again: a reader that has not seen the first one loses nothing.
            last.zxid = new.zxid;
            return;
        }
        if self.queue.len() >= QUEUE_MAX || (item == WatchItem::Gap && self.queue.back() == Some(&WatchItem::Gap)) {
            self.queue.clear();
            self.queue.push_back(WatchItem::Gap);
            if item == WatchItem::Gap {
                return;
            }
        }
        self.queue.push_back(item);
    }
}

/// All watches of one session.
#[derive(Debug, Default)]
pub(super) struct Watches {
    entries: BTreeMap<u64, Entry>,
    by_path: BTreeMap<Text, Vec<u64>>,
    over: bool,
}

impl Watches {
    pub(super) fn add(&mut self, id: u64, path: Text, arm: Arm) {
        self.by_path.entry(path.clone()).or_default().push(id);
        self.entries.insert(id, Entry { path, arm, active: false, queue: VecDeque::new(), waker: None });
    }

    /// Activates a watch after its request succeeded. `exists` says that the znode exists.
    pub(super) fn activate(&mut self, id: u64, exists: bool) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.active = true;
            if entry.arm == Arm::Exist && exists {
                entry.arm = Arm::Data;
            }
        }
    }

    /// Removes the watch of a dropped reader.
    ///
    /// Returns the request that ends the registration, if no other reader of the session shares it,
    /// and the reader's waker.
    pub(super) fn remove(&mut self, id: u64) -> (Option<Request>, Option<Waker>) {
        let Some(mut entry) = self.entries.remove(&id) else { return (None, None) };
        let waker = entry.waker.take();
        (self.no_longer(id, entry), waker)
    }

    fn no_longer(&mut self, id: u64, entry: Entry) -> Option<Request> {
        if let Some(ids) = self.by_path.get_mut(entry.path.as_str()) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_path.remove(entry.path.as_str());
            }
        }
        let kind = match entry.arm {
            Arm::Persistent => WatcherType::Persistent,
            Arm::Recursive => WatcherType::PersistentRecursive,
            // The server fires it once and the session ignores the event, as in ZooKeeper's
            // clients.
            Arm::Data | Arm::Exist | Arm::Child => return None,
        };
        let others = self.by_path.get(entry.path.as_str());
        let shared = others.is_some_and(|ids| ids.iter().any(|id| self.entries[id].arm == entry.arm));
        // Correct even while its addWatch is in flight: the server carries out requests in order.
        (!shared).then_some(Request::RemoveWatches { path: entry.path, kind })
    }

    /// Queues an event for every watch that hears it; returns the wakers to wake.
    pub(super) fn fire(&mut self, event: &WatchEvent, state: SessionState) -> Wakers {
        let mut wakers = Wakers::default();
        let mut ancestor = Some(event.path.as_str());
        while let Some(path) = ancestor {
            for id in self.by_path.get(path).map(Vec::as_slice).unwrap_or_default() {
                let Some(entry) = self.entries.get_mut(id) else { continue };
                if !entry.active || !entry.arm.hears(event.kind, path.len() == event.path.len()) {
                    continue;
                }
                entry.active = !entry.arm.is_one_shot();
                let WatchEvent { kind, path, zxid } = event.clone();
                entry.push(WatchItem::Event(WatchedEvent { state, kind, path: Path::of_existing(path), zxid }));
                wakers.add(entry.waker.take());
            }
            ancestor = zoolet_model::path::parent_and_name(path).map(|(parent, _)| parent);
        }
        wakers
    }

    /// Queues a gap for every persistent watch: its events of the meantime are unknown.
    pub(super) fn gap(&mut self) -> Vec<Waker> {
        let persistent = self.entries.values_mut().filter(|entry| entry.active && !entry.arm.is_one_shot());
        persistent
            .filter_map(|entry| {
                entry.push(WatchItem::Gap);
                entry.waker.take()
            })
            .collect()
    }

    /// Ends all watches: no further event will arrive.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        self.over = true;
        self.entries.values_mut().filter_map(|entry| entry.waker.take()).collect()
    }

    /// Returns the watches to register after a reconnect; `None` if there are no watches.
    pub(super) fn registered(&self, relative_zxid: i64) -> Option<SetWatches> {
        let mut set = SetWatches { relative_zxid, ..SetWatches::default() };
        for entry in self.entries.values().filter(|entry| entry.active) {
            let list = match entry.arm {
                Arm::Data => &mut set.data,
                Arm::Exist => &mut set.exist,
                Arm::Child => &mut set.child,
                Arm::Persistent => &mut set.persistent,
                Arm::Recursive => &mut set.persistent_recursive,
            };
            list.push(entry.path.clone());
        }
        (set != SetWatches { relative_zxid, ..SetWatches::default() }).then_some(set)
    }

    pub(super) fn poll(&mut self, id: u64, context: &Context<'_>) -> Poll<Option<WatchItem>> {
        let Some(entry) = self.entries.get_mut(&id) else { return Poll::Ready(None) };
        if let Some(item) = entry.queue.pop_front() {
            return Poll::Ready(Some(item));
        }
        if self.over {
            return Poll::Ready(None);
        }
        entry.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, path: &str, zxid: i64) -> WatchEvent {
        WatchEvent { kind, path: path.into(), zxid }
    }

    fn armed(path: &str, arm: Arm) -> Watches {
        let mut watches = Watches::default();
        watches.add(1, path.into(), arm);
        watches.activate(1, true);
        watches
    }

    fn next(watches: &mut Watches) -> Poll<Option<WatchItem>> {
        watches.poll(1, &Context::from_waker(Waker::noop()))
    }

    #[test]
    fn slow_watch_reader_gets_a_gap_and_then_the_later_events() {
        let mut watches = armed("/a", Arm::Recursive);
        for number in 0..QUEUE_MAX as i64 + 5 {
            let path = format!("/a/{number}");
            watches.fire(&event(EventKind::NodeCreated, &path, number), SessionState::Connected).wake();
        }
        assert_eq!(next(&mut watches), Poll::Ready(Some(WatchItem::Gap)));
        for number in QUEUE_MAX as i64..QUEUE_MAX as i64 + 5 {
            let Poll::Ready(Some(WatchItem::Event(event))) = next(&mut watches) else { panic!("no event {number}") };
            assert_eq!(event.zxid, number);
        }
        assert!(next(&mut watches).is_pending());
    }

    #[test]
    fn equal_queued_watch_events_merge_into_the_newest() {
        let mut watches = armed("/a", Arm::Persistent);
        for zxid in [1, 2, 3] {
            watches.fire(&event(EventKind::NodeDataChanged, "/a", zxid), SessionState::Connected).wake();
        }
        let Poll::Ready(Some(WatchItem::Event(event))) = next(&mut watches) else { panic!("no event") };
        assert_eq!(event.zxid, 3);
        assert!(next(&mut watches).is_pending());
    }

    #[test]
    fn one_shot_watch_fires_once_and_only_for_its_kind() {
        let mut watches = armed("/a", Arm::Child);
        watches.fire(&event(EventKind::NodeDataChanged, "/a", 1), SessionState::Connected).wake();
        assert!(next(&mut watches).is_pending());
        for zxid in [2, 3] {
            watches.fire(&event(EventKind::NodeChildrenChanged, "/a", zxid), SessionState::Connected).wake();
        }
        let Poll::Ready(Some(WatchItem::Event(event))) = next(&mut watches) else { panic!("no event") };
        assert_eq!(event.zxid, 2);
        assert!(next(&mut watches).is_pending());
        assert_eq!(watches.registered(0), None);
    }

    #[test]
    fn only_the_last_reader_of_a_persistent_watch_ends_it() {
        let mut watches = armed("/a", Arm::Persistent);
        watches.add(2, "/a".into(), Arm::Persistent);
        watches.activate(2, true);
        assert_eq!(watches.remove(1).0, None);
        let expected = Request::RemoveWatches { path: "/a".into(), kind: WatcherType::Persistent };
        assert_eq!(watches.remove(2).0, Some(expected));
    }

    #[test]
    fn repeated_gaps_are_delivered_as_one() {
        let mut watches = armed("/a", Arm::Persistent);
        watches.gap();
        watches.gap();
        assert_eq!(next(&mut watches), Poll::Ready(Some(WatchItem::Gap)));
        assert!(next(&mut watches).is_pending());
    }
}
