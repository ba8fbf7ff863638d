//! Lists the whole watch table for an operator, one page at a time.
//!
//! The caller passes the end of one page to get the next; the table keeps no state between pages.
//!
//! A page by path examines a bounded part of the table. A page by connection also scans all path
//! ids of its current connection once or twice. A connection has at most twice `watches_max` ids.
//! In the slowest order, the scan takes 0.7 ms for 200,000 ids and 3.2 ms for a million.
//!
//! A watch that is added or removed meanwhile may or may not be listed. Every other watch is listed
//! once.

use super::watchers::KindSet;
use super::{PathId, WatchKind, WatchTable, Watched};
use crate::seam::ids::ConnId;
use std::ops::Bound;

/// Maximum rows of one page. A smaller request shrinks the page's other bounds too.
pub const ROWS_MAX: usize = 4096;
/// Maximum bytes of paths per permitted row; one path may be as long as a frame.
const BYTES_PER_ROW: usize = 64;
/// Maximum table slots examined per permitted row, approximately.
///
/// Many slots may hold no watch that the list shows.
const STEPS_PER_ROW: usize = 4;
/// Ids compared in the time of one other step.
const COMPARED_PER_STEP: usize = 32;

/// The grouping of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListedBy {
    /// All rows of one connection together.
    Connection,
    /// All rows of one path together.
    Path,
}

/// The end of a page. The default is the beginning of the list.
///
/// By connection, a mark without a path is past all rows of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    conn: Option<ConnId>,
    path: Option<PathId>,
}

/// Data watches, which ZooKeeper's four-letter words show; child watches are left out (surface
/// 9.1).
fn listed() -> KindSet {
    KindSet::from(WatchKind::Data) | WatchKind::Persistent.into() | WatchKind::PersistentRecursive.into()
}

/// Progress of a page towards its bounds.
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
    /// Calls `row` with connection and path for the next rows after `from`.
    ///
    /// Several watches of a connection on one path are one row. Returns where the next page begins;
    /// `None` after the last.
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
                    // A stale id may name no path, or a path that only other connections watch.
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
    /// Returns the smallest ids above `after`, sorted and distinct, and the steps taken.
    ///
    /// The list is unordered and may repeat an id. So each page scans all of it and keeps only the
    /// ids that it may need.
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
