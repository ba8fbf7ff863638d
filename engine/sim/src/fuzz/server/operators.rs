//! Requests of operators: lists, a page at a time.

use super::Run;
use super::clients::Client;
use crate::fuzz::listing::{Listing, Row};
use std::collections::BTreeSet;
use zoolet_machine::record::key::ephemerals_prefix;
use zoolet_machine::seam::event::List;
use zoolet_machine::watch::{ListedBy, Mark, ROWS_MAX};
use zoolet_machine::{Event, Status};
use zoolet_model::SessionId;

impl Run {
    pub(super) fn list(&mut self) {
        match self.random().below(4) {
            0 => drop(self.ask(List::Deadlines)),
            1 => {
                let known = self.sessions.iter().map(|(session, _)| *session).collect::<Vec<_>>();
                let session = if known.is_empty() { SessionId(7) } else { *self.random().pick(&known) };
                drop(self.ask(List::Ephemerals(session)));
            }
            by => {
                let by = if by == 2 { ListedBy::Connection } else { ListedBy::Path };
                let rows_max = 1 + self.below(5);
                let there = self.watches();
                self.listing = Some(Listing::begin(by, rows_max, there));
            }
        }
    }

    /// Requests a list; returns the answer if it comes at once.
    fn ask(&mut self, list: List) -> Option<Box<Status>> {
        self.tickets += 1;
        self.asked.insert(self.tickets, list);
        self.answer = None;
        self.happen(Event::List { ticket: self.tickets, list });
        self.answer.take()
    }

    pub(super) fn next_page(&mut self) {
        let Some(mut listing) = self.listing.take() else { return };
        let (by, from, rows_max) = (listing.by, listing.next, listing.rows_max);
        let page = self.ask(List::Watches { by, from, rows_max }).expect("watches are in memory");
        if !listing.page(page.listed, page.next) {
            self.listing = Some(listing);
        }
    }

    /// Returns all watches on data, requested without events in between.
    fn watches(&mut self) -> BTreeSet<Row> {
        let (by, from, rows_max) = (ListedBy::Path, Mark::default(), ROWS_MAX);
        let page = self.ask(List::Watches { by, from, rows_max }).expect("watches are in memory");
        assert_eq!(page.next, None, "the limits of these runs are far below a page");
        page.listed.into_iter().collect()
    }

    pub(super) fn answered_list(&mut self, ticket: u64, status: Box<Status>) {
        let list = self.asked.remove(&ticket);
        assert!(list.is_some(), "an answer that nobody waits for: {status:?}");
        self.answer = Some(status);
    }

    /// Drops the rows from the listing's expectations that went, or may have gone and come back.
    pub(super) fn watch_the_listing(&mut self) {
        let Some(mut listing) = self.listing.take() else { return };
        // The caller of another list request still needs its answer.
        let answer = self.answer.take();
        let there = self.watches();
        self.answer = answer;
        let removing = |client: &&mut Client| client.removes_watches;
        let removing: BTreeSet<_> = self.clients.values_mut().filter(removing).map(|client| client.session).collect();
        listing.retain(|row| there.contains(row) && !removing.contains(&row.0));
        self.clients.values_mut().for_each(|client| client.removes_watches &= !client.unanswered.is_empty());
        self.listing = Some(listing);
    }

    /// Checks, once nothing happens any more, that lists contain exactly the existing rows.
    pub(super) fn lists_are_whole(&mut self) {
        while self.listing.is_some() {
            self.next_page();
        }
        assert!(self.asked.is_empty() || self.harmed, "nobody answers {:?}", self.asked);
        for by in [ListedBy::Connection, ListedBy::Path] {
            let there = self.watches();
            self.listing = Some(Listing::begin(by, 2, there));
            while self.listing.is_some() {
                self.next_page();
            }
        }
        let Status { deadlines, timeouts, .. } = *self.ask(List::Deadlines).expect("sessions are in memory");
        // A server that does not lead tells no deadlines of sessions without a connection.
        let ids = deadlines.iter().map(|(_, session)| *session);
        let listed =
            timeouts.map_or_else(|| ids.collect::<Vec<_>>(), |all| all.into_iter().map(|(id, _)| id).collect());
        let sessions: BTreeSet<SessionId> = listed.iter().copied().collect();
        assert_eq!((sessions.len(), sessions.len()), (listed.len(), self.server.sessions()));
        for session in sessions {
            let mut status = self.ask(List::Ephemerals(session));
            if status.is_none() {
                self.settle();
                status = self.answer.take();
            }
            let Some(status) = status else {
                assert!(self.failed, "nobody says what {session:?} owns");
                return;
            };
            let prefix = ephemerals_prefix(session);
            let paths = status.listed.iter().map(|(owner, path)| {
                assert_eq!(*owner, session);
                path.as_bytes()
            });
            assert!(paths.eq(self.replica.records.keys().filter_map(|key| key.strip_prefix(&*prefix))));
        }
    }
}
