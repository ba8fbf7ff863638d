//! Counts how much there was to judge: a run in which nothing happens breaks no rule.

use super::history::{End, History, Received};
use super::request::{is_ordered, is_refused};
use std::collections::BTreeMap;
use zoolet_machine::txn::{self, Txn};
use zoolet_model::{Request, SessionId};

/// Counts of a history's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Requests.
    pub operations: u64,
    /// Answered writes, refusals excluded.
    pub writes: u64,
    /// Answered requests that write nothing, such as reads and pings; syncs and refusals excluded.
    pub reads: u64,
    /// Answered syncs.
    pub syncs: u64,
    /// Requests answered with SYSTEMERROR.
    pub refused: u64,
    /// Writes of unknown outcome.
    pub unknown: u64,
    /// Watch events that arrived, including those of setWatches.
    pub events: u64,
    /// Entries.
    pub entries: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Sessions that ended.
    pub closed: u64,
    /// Clients that were told that their session had expired.
    pub told_expired: u64,
    /// Connections that continued a session.
    pub continued: u64,
    /// Connections that continued a session on another server than before.
    pub moved: u64,
    /// Connections that broke.
    pub lost: u64,
}

impl Summary {
    /// Counts a history.
    pub fn of(history: &History) -> Self {
        let mut summary = Self { operations: history.operations.len() as u64, ..Self::default() };
        for operation in &history.operations {
            let counted = match &operation.answer {
                None if is_ordered(operation) => &mut summary.unknown,
                None => continue,
                Some(_) if is_refused(operation) => &mut summary.refused,
                Some(_) if is_ordered(operation) => &mut summary.writes,
                Some(_) if matches!(operation.request, Request::Sync { .. }) => &mut summary.syncs,
                Some(_) => &mut summary.reads,
            };
            *counted += 1;
        }
        for entry in &history.committed {
            summary.entries += 1;
            match txn::decode(&entry.payload) {
                Ok((_, Txn::CreateSession { .. })) => summary.sessions += 1,
                Ok((_, Txn::CloseSession { .. })) => summary.closed += 1,
                Ok(_) | Err(_) => {}
            }
        }
        let mut last_server: BTreeMap<SessionId, _> = BTreeMap::new();
        for connection in &history.connections {
            let events = connection.received.iter().filter(|received| matches!(received, Received::Event(..)));
            summary.events += events.count() as u64;
            summary.lost += u64::from(matches!(connection.ended, Some((_, End::Lost))));
            summary.told_expired += u64::from(!connection.wants_new_session() && connection.refused().is_some());
            let Some(session) = connection.session() else { continue };
            let before = last_server.insert(session, connection.server);
            summary.continued += u64::from(!connection.wants_new_session());
            summary.moved += u64::from(before.is_some_and(|before| before != connection.server));
        }
        summary
    }
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        let Self {
            operations,
            writes,
            reads,
            syncs,
            refused,
            unknown,
            events,
            entries,
            sessions,
            closed,
            told_expired,
            continued,
            moved,
            lost,
        } = other;
        self.operations += operations;
        self.writes += writes;
        self.reads += reads;
        self.syncs += syncs;
        self.refused += refused;
        self.unknown += unknown;
        self.events += events;
        self.entries += entries;
        self.sessions += sessions;
        self.closed += closed;
        self.told_expired += told_expired;
        self.continued += continued;
        self.moved += moved;
        self.lost += lost;
    }
}
