//! The whole table for somebody who looks at it, a page at a time: whoever asks for the next one brings back where this one ended.
//!
//! Nothing is held between two pages. One by path looks at a bounded part of the table. One by connection also looks through all numbers of
//! the connection it is at, once or twice, and they are at most twice `watches_max`: 0.7 ms for 200,000, 3.2 ms for a million, in the order that
//! takes longest.
//! Watches that come and go meanwhile may be in the list or not; those that stay are in it once.

use super::watchers::KindSet;
use super::{PathId, WatchKind, WatchTable, Watched};
use crate::event::ConnId;
use std::ops::Bound;

/// Rows of one page, at most. Whoever wants fewer gets a page that is smaller in every way.
pub const ROWS_MAX: usize = 4096;
/// Bytes of paths for each row a page may have, after which it ends: one path may be as long as a frame.
const BYTES_PER_ROW: usize = 64;
/// Places of the table for each row a page may have that it looks at, about, before it ends; many may hold nothing of what is asked for.
const STEPS_PER_ROW: usize = 4;
/// Numbers compared in the time of one other step.
const COMPARED_PER_STEP: usize = 32;

/// By what watches are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListedBy {
    /// All of one connection together.
    Connection,
    /// All of one path together.
    Path,
}

/// Where a page ended. The beginning is the default. By connection, one without a path is done with its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    conn: Option<ConnId>,
    path: Option<PathId>,
}

/// Watches on data, which ZooKeeper's four-letter words show, and not those on children (surface 9.1).
fn listed() -> KindSet {
    KindSet::from(WatchKind::Data) | WatchKind::Persistent.into() | WatchKind::PersistentRecursive.into()
}

/// What is left of a page.
struct Page<'a> {
    rows_max: usize,
    rows: usize,
    bytes: usize,
    steps: usize,
    row: &'a mut dyn FnMut(ConnId, &str),
}

impl Page<'_> {
    fn is_full(&self) -> bool {
        self.is_long() || self.steps >= self.rows_max * STEPS_PER_ROW
    }

    fn is_long(&self) -> bool {
        self.rows >= self.rows_max || self.bytes >= self.rows_max * BYTES_PER_ROW
    }

    fn add(&mut self, conn: ConnId, path: &str) {
        self.rows += 1;
        self.bytes += path.len();
        (self.row)(conn, path);
    }
}

impl WatchTable {
    /// Calls `row` with the connection and the path of some watches on data, from `from` on; a connection's several watches on one path are
    /// one row. Gives where the next page begins; `None` after the last.
    pub fn page(&self, by: ListedBy, from: Mark, rows_max: usize, row: &mut dyn FnMut(ConnId, &str)) -> Option<Mark> {
        let mut page = Page { rows_max: rows_max.clamp(1, ROWS_MAX), rows: 0, bytes: 0, steps: 0, row };
        match by {
            ListedBy::Connection => self.page_by_connection(from, &mut page),
            ListedBy::Path => self.page_by_path(from, &mut page),
        }
    }

    fn page_by_connection(&self, from: Mark, page: &mut Page<'_>) -> Option<Mark> {
        let first = match from {
            Mark { conn: None, .. } => Bound::Unbounded,
            Mark { conn: Some(conn), path: None } => Bound::Excluded(conn),
            Mark { conn: Some(conn), path: Some(_) } => Bound::Included(conn),
        };
        for (&conn, watched) in self.connections.range((first, Bound::Unbounded)) {
            let mut after = from.path.filter(|_| from.conn == Some(conn));
            loop {
                let (ids, looked_at) = watched.next_ids(after, page.rows_max);
                page.steps += looked_at;
                if ids.is_empty() {
                    break;
                }
                for id in ids {
                    after = Some(id);
                    // A number that is left behind may name nothing, or a path that somebody else watches.
                    if self.paths.watchers(id).kinds(conn).intersects(listed())
                        && let Some(path) = self.paths.text(id)
                    {
                        page.add(conn, path);
                    }
                    if page.is_long() {
                        return Some(Mark { conn: Some(conn), path: after });
                    }
                }
                if page.is_full() {
                    return Some(Mark { conn: Some(conn), path: after });
                }
            }
            if page.is_full() {
                return Some(Mark { conn: Some(conn), path: None });
            }
        }
        None
    }

    fn page_by_path(&self, from: Mark, page: &mut Page<'_>) -> Option<Mark> {
        let first = from.path.unwrap_or(0);
        for id in first..self.paths.end() {
            page.steps += 1;
            let mut after = from.conn.filter(|_| from.path == Some(id));
            if let Some(path) = self.paths.text(id) {
                let mut stopped = false;
                self.paths.watchers(id).each_after(after, &mut |conn, kinds| {
                    stopped = page.is_full();
                    if stopped {
                        return false;
                    }
                    page.steps += 1;
                    if kinds.intersects(listed()) {
                        page.add(conn, path);
                    }
                    after = Some(conn);
                    true
                });
                if stopped {
                    return Some(Mark { conn: after, path: Some(id) });
                }
            }
            if page.is_full() {
                return Some(Mark { conn: None, path: Some(id + 1) });
            }
        }
        None
    }
}

impl Watched {
    /// Of its numbers above `after` the smallest, each once, in order, and how many were looked at. The list is in no order and may name one
    /// twice: so each page looks through all of it, and keeps no more than it may need.
    fn next_ids(&self, after: Option<PathId>, rows_max: usize) -> (Vec<PathId>, usize) {
        let ids = match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(watched) => &watched.ids,
        };
        let (mut next, mut end) = (Vec::new(), PathId::MAX);
        for &id in ids.iter().filter(|id| after.is_none_or(|after| **id > after)) {
            if id < end {
                next.push(id);
            }
            if next.len() == 2 * rows_max {
                end = *next.select_nth_unstable(rows_max).1;
                next.truncate(rows_max);
            }
        }
        next.sort_unstable();
        next.dedup();
        let looked_at = ids.len() / COMPARED_PER_STEP + next.len() + 1;
        (next, looked_at)
    }
}
