//! Expiry: a session with signs of life does not expire, and a silent one does.
//!
//! A client cannot see when its signs of life reach the leader. So a sign counts from the time when
//! it was sent. It must certainly have arrived before the session's time was up:
//!
//! - A write has arrived if its entry was committed before the session's end.
//! - Any other request has arrived `propagation_us` after its answer, if its server was connected
//!   to a leader from the request until then.
//!
//! A sign counts for the timeout that its client was told last. If a client returns with another
//! timeout and gets no answer, either timeout may be in force.

use super::Promises;
use super::facts::{Facts, Session};
use super::history::{Connection, End};
use super::origin::{Origin, Origins};
use super::request::{has_place, is_refused};
use super::violation::{Violation, clock};
use zoolet_machine::txn::Txn;
use zoolet_model::{Request, SessionId};

/// Maximum time that the request of an unanswered connection is in flight to the leader, in
/// microseconds.
const LATE_WORD_US: u64 = 10_000_000;
/// The lower bound to which a server may raise a requested timeout, in microseconds.
const RAISED_US: u64 = 4_000_000;

/// A timeout that may be in force in a period. All times are in microseconds.
#[derive(Debug)]
struct Promised {
    from_us: u64,
    until_us: u64,
    timeout_us: u64,
}

/// Every timeout that a session had or may have had.
#[derive(Debug)]
struct Timeouts(Vec<Promised>);

/// A sign of life. All times are in microseconds.
struct Sign {
    /// Earliest time at which the leader may date the sign.
    sent_us: u64,
    /// The sign counts for timeouts in force at or after this time.
    counts_us: u64,
    /// Time by which the leader knows of the sign; `None` if it certainly arrived in time.
    known_us: Option<u64>,
}

pub(super) fn check(facts: &Facts<'_>, origins: &Origins, promises: &Promises) -> Result<(), Violation> {
    for (&id, session) in &facts.sessions {
        not_early(facts, origins, promises, id, session)?;
        not_never(facts, origins, promises, id, session)?;
    }
    Ok(())
}

impl Timeouts {
    fn of(facts: &Facts<'_>, session: &Session) -> Option<Self> {
        let created = &facts.entries[session.created?];
        let first_us = u64::from(created.begins()?.0) * 1000;
        let mut told: Vec<(u64, u64, u64)> = vec![(created.at.us, created.at.us, first_us)];
        let mut untold = Vec::new();
        for &at in &session.connections {
            let connection = facts.connection(at);
            match &connection.reply {
                Some((told_at, reply)) => {
                    let timeout_us = u64::try_from(reply.timeout_ms).unwrap_or(0) * 1000;
                    told.push((connection.begun.us, told_at.us, timeout_us));
                }
                None => untold.push(connection.begun.us),
            }
        }
        told.sort_by_key(|&(_, told_us, _)| told_us);
        let until_us = |at: usize| told.get(at + 1).map_or(u64::MAX, |&(_, told_us, _)| told_us);
        let known = told.iter().enumerate().map(|(at, &(from_us, _, timeout_us))| Promised {
            from_us,
            until_us: until_us(at),
            timeout_us,
        });
        // It is unknown whether the request of such a connection arrived. It may arrive after the
        // request of the next connection.
        let unknown = untold.into_iter().map(|from_us| {
            let later = told.iter().find(|(begun_us, ..)| *begun_us >= from_us + LATE_WORD_US);
            Promised { from_us, until_us: later.map_or(u64::MAX, |&(_, told_us, _)| told_us), timeout_us: 0 }
        });
        Some(Self(known.chain(unknown).collect()))
    }

    /// Returns the shortest timeout that may have been in force in this period.
    fn shortest_us(&self, from_us: u64, to_us: u64) -> u64 {
        let counts = self.0.iter().filter(|promised| promised.from_us <= to_us && promised.until_us > from_us);
        counts.map(|promised| promised.timeout_us).min().unwrap_or(0)
    }

    /// Returns the longest timeout that may be in force at the end.
    fn longest_us(&self, facts: &Facts<'_>, session: &Session) -> u64 {
        let last = self.0.iter().filter(|promised| promised.until_us == u64::MAX);
        let last_us = last.map(|promised| promised.timeout_us).max().unwrap_or(0);
        let untold = session.connections.iter().map(|&at| facts.connection(at)).filter(|one| one.reply.is_none());
        let asked = untold.map(|one| u64::try_from(one.request.timeout_ms).unwrap_or(0) * 1000);
        match asked.max() {
            // Any earlier timeout may have stayed in force.
            Some(asked_us) => {
                let all_us = self.0.iter().map(|promised| promised.timeout_us).max().unwrap_or(0);
                all_us.max(asked_us).max(RAISED_US)
            }
            None => last_us,
        }
    }
}

/// Returns the entry that ended the session, if no client asked for the end.
fn expired(facts: &Facts<'_>, origins: &Origins, session: &Session) -> Option<usize> {
    let closed = session.closed?;
    let by = facts.entries[closed].at;
    let asked = facts.operations_of(session).any(|operation| {
        let asked = facts.operation(operation);
        asked.request == Request::CloseSession && asked.invoked.us <= by.us
    });
    (origins.of_entry[closed] == Origin::Expiry && !asked).then_some(closed)
}

fn is_lost_embedded(connection: &Connection) -> bool {
    connection.embedded && (connection.orphaned.is_some() || matches!(connection.ended, Some((_, End::Lost))))
}

/// Returns whether an in-process session's owner was never told of the session.
///
/// The owner left or lost the connection before the answer. The server then does not list the
/// session among its own, so the session ends.
fn is_lost_untold(facts: &Facts<'_>, session: &Session) -> bool {
    let Some(Txn::CreateSession { home: Some(home), .. }) =
        session.created.and_then(|created| facts.entries[created].txn.as_ref())
    else {
        return false;
    };
    let has_left = |one: &Connection| one.ended.is_some() || is_lost_embedded(one);
    let lost = |one: &Connection| one.embedded && has_left(one) && one.server == *home && one.reply.is_none();
    session.connections.is_empty() && facts.history.connections.iter().any(lost)
}

fn not_early(
    facts: &Facts<'_>,
    origins: &Origins,
    promises: &Promises,
    id: SessionId,
    session: &Session,
) -> Result<(), Violation> {
    let (Some(closed), Some(timeouts)) = (expired(facts, origins, session), Timeouts::of(facts, session)) else {
        return Ok(());
    };
    // When a process ends, its own sessions may end at once.
    if session.connections.iter().any(|&at| is_lost_embedded(facts.connection(at))) || is_lost_untold(facts, session) {
        return Ok(());
    }
    let end = &facts.entries[closed];
    let Some(created) = session.created.map(|created| &facts.entries[created]) else { return Ok(()) };
    let granted_us = |from_us| promises.shortest_us(timeouts.shortest_us(from_us, end.at.us));
    // The leader reads its clock when it applies the session's creation.
    let begun_us = facts.history.clock_at(created.at.us, promises.unnoticed_us);
    let mut alive_until_us = begun_us + granted_us(created.at.us);
    let mut last = None;
    for (sign, operation) in signs(facts, origins, promises, session, end.zxid) {
        let granted_us = granted_us(sign.counts_us);
        if sign.known_us.is_none_or(|known_us| known_us <= alive_until_us) && sign.sent_us + granted_us > alive_until_us
        {
            alive_until_us = sign.sent_us + granted_us;
            last = operation;
        }
    }
    if end.at.us >= alive_until_us {
        return Ok(());
    }
    let mut broken = Violation::of("a session that keeps giving signs of life does not expire").and(format!(
        "session {:#x} of {} ms was ended by {:#x}, applied first at {}, although it was alive until {}.{:06} s at least",
        id.0,
        timeouts.shortest_us(end.at.us, end.at.us) / 1000,
        end.zxid,
        clock(end.at),
        alive_until_us / 1_000_000,
        alive_until_us % 1_000_000
    ));
    if let Some(operation) = last {
        broken = broken.and("its last sign of life that counts:").and_operation(facts.history, operation);
    }
    for &at in &session.connections {
        broken = broken.and_connection(facts.connection(at));
    }
    Err(broken)
}

/// Returns the session's signs of life, in the order in which the leader knew of them.
fn signs(
    facts: &Facts<'_>,
    origins: &Origins,
    promises: &Promises,
    session: &Session,
    end_zxid: i64,
) -> Vec<(Sign, Option<usize>)> {
    let served = |connection: &Connection, from_us: u64, to_us: u64| {
        let spans = facts.history.serving.get(&connection.server);
        spans.is_some_and(|spans| spans.iter().any(|span| span.covers(from_us, to_us)))
    };
    let mut signs = Vec::new();
    for &at in &session.connections {
        let connection = facts.connection(at);
        if let Some((told, reply)) = &connection.reply
            && reply.session.0 != 0
        {
            let known_us = told.us + promises.propagation_us;
            if served(connection, connection.begun.us, known_us) {
                let (sent_us, counts_us) = (connection.begun.us, told.us);
                signs.push((Sign { sent_us, counts_us, known_us: Some(known_us) }, None));
            }
        }
        for &operation in &connection.operations {
            let asked = facts.operation(operation);
            let sent_us = asked.invoked.us;
            if let Some(entry) = origins.effect[operation] {
                if facts.entries[entry].zxid < end_zxid {
                    // The leader reads its clock when it receives the write.
                    let read_us = facts.history.clock_at(sent_us, promises.unnoticed_us);
                    signs.push((Sign { sent_us: read_us, counts_us: sent_us, known_us: None }, Some(operation)));
                }
            } else if let Some(answer) = &asked.answer
                && (has_place(&asked.request) || is_refused(asked))
            {
                let known_us = answer.at.us + promises.propagation_us;
                if served(connection, sent_us, known_us) {
                    signs.push((Sign { sent_us, counts_us: sent_us, known_us: Some(known_us) }, Some(operation)));
                }
            }
        }
    }
    signs.sort_by_key(|(sign, _)| (sign.known_us.unwrap_or(sign.sent_us), sign.sent_us));
    signs
}

fn not_never(
    facts: &Facts<'_>,
    origins: &Origins,
    promises: &Promises,
    id: SessionId,
    session: &Session,
) -> Result<(), Violation> {
    let Some(timeouts) = Timeouts::of(facts, session) else { return Ok(()) };
    let timeout_us = timeouts.longest_us(facts, session);
    if session.closed.is_some() && expired(facts, origins, session).is_none() {
        return Ok(());
    }
    let created = session.created.map_or(0, |created| facts.entries[created].at.us);
    let mut silent_since_us = created;
    // Without an answer, the client's connection is not among the session's connections.
    let told = session.connections.iter().any(|&at| facts.connection(at).reply.is_some());
    let orphan = !told;
    for &at in &session.connections {
        let connection = facts.connection(at);
        let mut heard_us = connection.begun.us.max(connection.reply.as_ref().map_or(0, |(told, _)| told.us));
        let mut waits = false;
        for &operation in &connection.operations {
            let asked = facts.operation(operation);
            waits |= asked.answer.is_none();
            heard_us = heard_us.max(asked.answer.as_ref().map_or(asked.invoked, |answer| answer.at).us);
        }
        match connection.ended {
            // Requests in flight may arrive until the connection ends.
            Some((ended, _)) => heard_us = heard_us.max(ended.us),
            // A client that waits for an answer is not silent.
            None if waits => return Ok(()),
            None => {}
        }
        silent_since_us = silent_since_us.max(heard_us).max(connection.orphaned.map_or(0, |at| at.us));
    }
    if orphan {
        // The unanswered client's connection may have stayed open without a message.
        let last = facts.history.connections.iter().filter(|one| one.wants_new_session() && one.reply.is_none());
        let last = last.map(|one| one.ended.map_or(u64::MAX, |(ended, _)| ended.us)).max();
        silent_since_us = silent_since_us.max(last.unwrap_or(0));
    }
    let by_us = session.closed.map_or(facts.history.ended.us, |closed| facts.entries[closed].at.us);
    // In a healthy ensemble every server runs. So the leader knows that the session's process was
    // replaced, and ends the session at once.
    let is_over = session.connections.iter().any(|&at| facts.connection(at).orphaned.is_some());
    let patience_us = if is_over { 0 } else { promises.longest_us(timeout_us) };
    let silence_us = patience_us.saturating_add(promises.expiry_us);
    for span in &facts.history.healthy {
        let from_us = span.from_us.max(silent_since_us);
        if from_us.saturating_add(silence_us) < span.to_us.min(by_us) {
            let mut broken = Violation::of("a session that gives no sign of life expires").and(format!(
                "session {:#x} of {} ms was silent since {}.{:06} s, in an ensemble that was well from {}.{:06} s to {}.{:06} s, and \
                 was not ended by {}.{:06} s",
                id.0,
                timeout_us / 1000,
                silent_since_us / 1_000_000,
                silent_since_us % 1_000_000,
                span.from_us / 1_000_000,
                span.from_us % 1_000_000,
                span.to_us / 1_000_000,
                span.to_us % 1_000_000,
                by_us / 1_000_000,
                by_us % 1_000_000
            ));
            for &at in &session.connections {
                broken = broken.and_connection(facts.connection(at));
            }
            return Err(broken);
        }
    }
    Ok(())
}
