//! The watches of a session, kept so that they outlive its connections.

use std::collections::BTreeSet;
use zoolet_model::{AddWatchMode, EventKind, Request, SetWatches, Text, WatcherType};

/// Bytes of paths in one setWatches; the limit of ZooKeeper's own client.
const PATHS_BYTES_MAX: usize = 128 << 10;

/// The watches that the server holds for this session, by its own paths.
#[derive(Default, Debug)]
pub(super) struct Registered {
    data: BTreeSet<Text>,
    exist: BTreeSet<Text>,
    child: BTreeSet<Text>,
    persistent: BTreeSet<Text>,
    recursive: BTreeSet<Text>,
}

impl Registered {
    /// Notes the watch that a request registered; `found` tells whether its znode exists.
    pub(super) fn note(&mut self, request: &Request, found: bool) {
        match request {
            Request::GetData { path, watch: true } if found => self.data.insert(path.clone()),
            Request::Exists { path, watch: true } if found => self.data.insert(path.clone()),
            Request::Exists { path, watch: true } => self.exist.insert(path.clone()),
            Request::GetChildren { path, watch: true, .. } if found => self.child.insert(path.clone()),
            Request::AddWatch { path, mode: AddWatchMode::Persistent } if found => self.persistent.insert(path.clone()),
            Request::AddWatch { path, mode: AddWatchMode::PersistentRecursive } if found => {
                self.recursive.insert(path.clone())
            }
            _ => false,
        };
    }

    /// Forgets the one-shot watches that an event used up.
    pub(super) fn fire(&mut self, kind: EventKind, path: &Text) {
        match kind {
            EventKind::NodeCreated | EventKind::NodeDataChanged => {
                self.data.remove(path);
                self.exist.remove(path);
            }
            EventKind::NodeChildrenChanged => _ = self.child.remove(path),
            EventKind::NodeDeleted => {
                self.data.remove(path);
                self.exist.remove(path);
                self.child.remove(path);
            }
        }
    }

    /// Forgets the watches of a path; returns the event types with which ZooKeeper's client says so.
    pub(super) fn remove(&mut self, path: &Text, kind: WatcherType) -> Vec<&'static str> {
        let any = kind == WatcherType::Any;
        let mut removed = Vec::new();
        if any || kind == WatcherType::Children {
            removed.extend(self.child.remove(path).then_some("ChildWatchRemoved"));
        }
        if any || kind == WatcherType::Data {
            let (data, exist) = (self.data.remove(path), self.exist.remove(path));
            removed.extend((data || exist).then_some("DataWatchRemoved"));
        }
        let persistent = (any || kind == WatcherType::Persistent) && self.persistent.remove(path);
        let recursive = (any || kind == WatcherType::PersistentRecursive) && self.recursive.remove(path);
        removed.extend((persistent || recursive).then_some("PersistentWatchRemoved"));
        removed
    }

    /// Returns the modes of the persistent watches on a znode.
    pub(super) fn persistent(&self, path: &Text) -> Vec<AddWatchMode> {
        let modes =
            [(&self.persistent, AddWatchMode::Persistent), (&self.recursive, AddWatchMode::PersistentRecursive)];
        modes.into_iter().filter(|(paths, _)| paths.contains(path)).map(|(_, mode)| mode).collect()
    }

    /// Returns the requests that register all watches on a new connection.
    pub(super) fn again(&self, relative_zxid: i64) -> Vec<SetWatches> {
        let mut requests: Vec<SetWatches> = Vec::new();
        let mut bytes = PATHS_BYTES_MAX;
        type Field = fn(&mut SetWatches) -> &mut Vec<Text>;
        let kinds: [(&BTreeSet<Text>, Field); 5] = [
            (&self.data, |request| &mut request.data),
            (&self.exist, |request| &mut request.exist),
            (&self.child, |request| &mut request.child),
            (&self.persistent, |request| &mut request.persistent),
            (&self.recursive, |request| &mut request.persistent_recursive),
        ];
        for (paths, field) in kinds {
            for path in paths {
                if bytes + path.len() > PATHS_BYTES_MAX {
                    requests.push(SetWatches { relative_zxid, ..SetWatches::default() });
                    bytes = 0;
                }
                bytes += path.len();
                if let Some(request) = requests.last_mut() {
                    field(request).push(path.clone());
                }
            }
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shot_watches_end_with_their_event_and_persistent_ones_stay() {
        let mut watches = Registered::default();
        let path = Text::from("/a");
        watches.note(&Request::GetData { path: path.clone(), watch: true }, true);
        watches.note(&Request::GetData { path: "/gone".into(), watch: true }, false);
        watches.note(&Request::Exists { path: "/new".into(), watch: true }, false);
        watches.note(&Request::GetChildren { path: path.clone(), watch: true, with_stat: true }, true);
        watches.note(&Request::AddWatch { path: path.clone(), mode: AddWatchMode::Persistent }, true);
        let all = watches.again(7);
        assert_eq!((all.len(), all[0].relative_zxid), (1, 7));
        assert_eq!(
            (&all[0].data, &all[0].exist, &all[0].child),
            (&vec!["/a".into()], &vec!["/new".into()], &vec!["/a".into()])
        );
        watches.fire(EventKind::NodeDataChanged, &path);
        assert!(watches.again(7)[0].data.is_empty() && watches.again(7)[0].child.len() == 1);
        watches.fire(EventKind::NodeDeleted, &path);
        watches.fire(EventKind::NodeCreated, &"/new".into());
        assert_eq!(
            watches.again(7),
            [SetWatches { relative_zxid: 7, persistent: vec![path.clone()], ..SetWatches::default() }]
        );
        assert_eq!(watches.remove(&path, WatcherType::Data), Vec::<&str>::new());
        assert_eq!(watches.persistent(&path), [AddWatchMode::Persistent]);
        assert_eq!(watches.remove(&path, WatcherType::Any), ["PersistentWatchRemoved"]);
        assert!(watches.again(7).is_empty());
    }

    #[test]
    fn many_watches_are_registered_with_several_requests() {
        let mut watches = Registered::default();
        for number in 0..300 {
            let path = format!("/{number:01000}").into();
            watches.note(&Request::GetData { path, watch: true }, true);
        }
        let requests = watches.again(0);
        assert_eq!(requests.iter().map(|request| request.data.len()).sum::<usize>(), 300);
        assert_eq!(requests.len(), 3);
    }
}
