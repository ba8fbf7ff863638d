//! A list of the watches, requested a page at a time with any events between two pages.

use std::collections::BTreeSet;
use zoolet_machine::watch::{ListedBy, Mark};
use zoolet_model::{SessionId, Text};

/// A session and a path whose data it watches.
pub(super) type Row = (SessionId, Text);

/// A list that is not complete yet.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) by: ListedBy,
    pub(super) rows_max: usize,
    pub(super) next: Mark,
    /// Rows that existed at the beginning and ever since.
    stayed: BTreeSet<Row>,
    listed: Vec<Row>,
}

impl Listing {
    pub(super) fn begin(by: ListedBy, rows_max: usize, there: BTreeSet<Row>) -> Self {
        Self { by, rows_max, next: Mark::default(), stayed: there, listed: Vec::new() }
    }

    /// Drops the rows that may have gone since, according to `may_stay`.
    pub(super) fn retain(&mut self, may_stay: impl FnMut(&Row) -> bool) {
        self.stayed.retain(may_stay);
    }

    /// Adds a page; returns whether it was the last.
    pub(super) fn page(&mut self, rows: Vec<Row>, next: Option<Mark>) -> bool {
        assert!(rows.len() <= self.rows_max, "a page of {} rows has {}", self.rows_max, rows.len());
        self.listed.extend(rows);
        match next {
            Some(next) => {
                assert!(next != self.next, "a page gets on: {next:?}");
                self.next = next;
                false
            }
            None => {
                self.all_that_stayed_are_listed_once();
                true
            }
        }
    }

    fn all_that_stayed_are_listed_once(&self) {
        for row in &self.stayed {
            let times = self.listed.iter().filter(|listed| *listed == row).count();
            assert_eq!(times, 1, "{row:?} was there all the time: {self:?}");
        }
    }
}
