//! setWatches: a client that comes back tells what it watched, up to a frame full of it.

use super::Server;
use super::fetches::Waiter;
use super::pipeline::Step;
use crate::event::ConnId;
use crate::session::Waiting;
use crate::tree::{self, Remembered, Stuck};
use crate::watch::WatchKind;
use zoolet_model::{ErrorCode, EventKind, Reply, Request, SetWatches, Text, WatchEvent};

/// Paths that are looked at together: what they need from the base is fetched, and held in memory, at once.
const PATHS_AT_ONCE: usize = 1024;

/// A watch that a client asks for again, and what it was set by; a lasting one misses nothing.
type Wanted<'a> = (&'a Text, WatchKind, Option<Remembered>);

impl Server {
    /// Goes on with the setWatches at the head of a pipeline, some paths at a time: what was missed is told, the rest is registered (surface
    /// 5.5). There is room for all of it before the first is registered.
    pub(super) fn set_watches(&mut self, conn: ConnId, mut head: Waiting) -> Step {
        let Request::SetWatches(watches) = &head.request else { return Step::Wait(head) };
        let zxid = self.state.applied().as_i64();
        if head.done == 0 && !self.watches.has_room_for(wanted(watches).map(|(path, ..)| path.as_str())) {
            // It may have been here before, and fetched something.
            self.let_go(Waiter::Request(conn, head.number));
            return self.done(conn, head.xid, zxid, Err(ErrorCode::SystemError));
        }
        let (since_zxid, count) = (watches.relative_zxid, wanted(watches).count());
        while head.done < count {
            let since = self.state.memory_ref().stamp();
            let Request::SetWatches(watches) = &head.request else { return Step::Wait(head) };
            let events = match self.missed(wanted(watches).skip(head.done).take(PATHS_AT_ONCE), since_zxid) {
                Ok(events) => events,
                Err(stuck) => return self.stuck(conn, head, stuck, since),
            };
            self.let_go(Waiter::Request(conn, head.number));
            for ((path, kind, _), event) in wanted(watches).skip(head.done).zip(&events) {
                if let Some(kind) = *event {
                    self.notify(conn, WatchEvent { kind, path: path.clone(), zxid: -1 });
                } else if self.watches.add(conn, path, kind).is_err() {
                    // Others took the room while records were fetched. With its connection all of a client's watches go.
                    self.close(conn);
                    return Step::Done;
                }
            }
            head.done += events.len();
        }
        self.done(conn, head.xid, zxid, Ok(Reply::Empty))
    }

    /// For each watch the event that it missed.
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

fn each(paths: &[Text], kind: WatchKind, set_by: Option<Remembered>) -> impl Iterator<Item = Wanted<'_>> {
    paths.iter().map(move |path| (path, kind, set_by))
}

/// In the order in which ZooKeeper looks at them.
fn wanted(watches: &SetWatches) -> impl Iterator<Item = Wanted<'_>> {
    let SetWatches { data, exist, child, persistent, persistent_recursive, .. } = watches;
    each(data, WatchKind::Data, Some(Remembered::Data))
        .chain(each(exist, WatchKind::Data, Some(Remembered::Absence)))
        .chain(each(child, WatchKind::Child, Some(Remembered::Children)))
        .chain(each(persistent, WatchKind::Persistent, None))
        .chain(each(persistent_recursive, WatchKind::PersistentRecursive, None))
}
