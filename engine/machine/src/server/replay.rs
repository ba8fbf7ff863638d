//! setWatches: a returning client sends the watches it had, up to a full frame of them.

use super::Server;
use super::fetches::Waiter;
use super::pipeline::Step;
use crate::seam::ids::ConnId;
use crate::sessions::Waiting;
use crate::state::Stuck;
use crate::tree::{self, Remembered};
use crate::watch::WatchKind;
use zoolet_model::{ErrorCode, EventKind, Reply, Request, SetWatches, Text, WatchEvent};

/// Paths processed together: their records are fetched at once and held in memory.
const PATHS_AT_ONCE: usize = 1024;

/// A watch to restore and the read that set it. `None` for a persistent watch, which misses
/// nothing.
type Wanted<'a> = (&'a Text, WatchKind, Option<Remembered>);

impl Server {
    /// Continues the setWatches at the head of a pipeline, a batch of paths at a time.
    ///
    /// Missed events are sent; the other watches are registered (surface 5.5). Room for those that the
    /// connection lacks is checked before the first is registered. Without that room none is registered,
    /// and the request is refused after the missed events. A client that waits for one of these events, for
    /// example for a lock, would otherwise wait forever.
    pub(super) fn set_watches(&mut self, conn: ConnId, head: &mut Waiting) -> Step {
        let Request::SetWatches(watches) = &head.request else { return Step::Wait };
        let zxid = self.state.applied().as_i64();
        if head.done == 0 {
            let watches = wanted(watches).map(|(path, kind, _)| (path.as_str(), kind));
            head.lacks_room = !self.watches.has_room_for(conn, watches);
        }
        let (since_zxid, count) = (watches.relative_zxid, wanted(watches).count());
        while head.done < count {
            let watch_bytes = self.watches.bytes();
            let since = self.state.memory_ref().stamp();
            let Request::SetWatches(watches) = &head.request else { return Step::Wait };
            let events = match self.missed(wanted(watches).skip(head.done).take(PATHS_AT_ONCE), since_zxid) {
                Ok(events) => events,
                Err(stuck) => return self.stuck(conn, head, stuck, since),
            };
            self.let_go(Waiter::Request(conn, head.number));
            for ((path, kind, _), event) in wanted(watches).skip(head.done).zip(&events) {
                if head.lacks_room && self.watches.has(conn, path, kind) {
                    // A session in this process repeats a refused request. The connection has set this
                    // watch meanwhile, and the client knows the state of then.
                } else if let Some(kind) = *event {
                    self.notify(conn, WatchEvent { kind, path: path.clone(), zxid: -1 });
                } else if !head.lacks_room && self.watches.add(conn, path, kind).is_err() {
                    // Other clients took the room during the fetches. Closing the connection
                    // removes all its watches.
                    self.close(conn);
                    return Step::Done;
                }
            }
            head.done += events.len();
            // One turn may register a million watches.
            let added = self.watches.bytes().saturating_sub(watch_bytes);
            self.state.memory().allow_less_spare(added);
        }
        let result = if head.lacks_room { Err(ErrorCode::SystemError) } else { Ok(Reply::Empty) };
        self.done(conn, head.xid, zxid, result)
    }

    /// Returns the missed event of each watch, if any.
    fn missed<'a>(
        &mut self,
        watches: impl Iterator<Item = Wanted<'a>>,
        since_zxid: i64,
    ) -> Result<Vec<Option<EventKind>>, Stuck> {
        let (mut events, mut missing) = (Vec::with_capacity(PATHS_AT_ONCE), Vec::new());
        for (path, _, remembered) in watches {
            let missed = remembered.map(|set_by| tree::missed(&mut self.state, set_by, path, since_zxid));
            match missed.transpose() {
                Ok(event) => events.push(event.flatten()),
                Err(Stuck::Missing(mut more)) => missing.append(&mut more),
                Err(damaged @ Stuck::Damaged(_)) => return Err(damaged),
            }
        }
        if missing.is_empty() { Ok(events) } else { Err(Stuck::Missing(missing)) }
    }
}

fn each(paths: &[Text], kind: WatchKind, set_by: Option<Remembered>) -> impl Iterator<Item = Wanted<'_>> + Clone {
    paths.iter().map(move |path| (path, kind, set_by))
}

/// Returns the watches in the order in which ZooKeeper examines them.
fn wanted(watches: &SetWatches) -> impl Iterator<Item = Wanted<'_>> + Clone {
    let SetWatches { data, exist, child, persistent, persistent_recursive, .. } = watches;
    each(data, WatchKind::Data, Some(Remembered::Data))
        .chain(each(exist, WatchKind::Data, Some(Remembered::Absence)))
        .chain(each(child, WatchKind::Child, Some(Remembered::Children)))
        .chain(each(persistent, WatchKind::Persistent, None))
        .chain(each(persistent_recursive, WatchKind::PersistentRecursive, None))
}
