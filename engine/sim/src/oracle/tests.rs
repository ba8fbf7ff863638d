//! Good histories break no rule. Every rule is broken by some good history with one change.

use super::origin::Origins;
use super::*;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;
use zoolet_machine::ConnId;
use zoolet_machine::record::acl::Identity;
use zoolet_machine::txn::{self, Header, Op, Txn};
use zoolet_model::{
    ConnectReply, ConnectRequest, CreateKind, ErrorCode, EventKind, Reply, Request, ServerId, SessionId, SessionSecret,
    WatchEvent, Zxid,
};

const PROMISES: Promises = Promises {
    propagation_us: 0,
    expiry_us: 3_000_000,
    unnoticed_us: 0,
    drift_ppm: 0,
    answer_us: 1_000_000,
    staleness_us: Some(60_000_000),
};

#[test]
fn good_histories_break_no_rule() {
    let mut all = Summary::default();
    for seed in 0..40 {
        let history = toy::history(seed, 6000);
        if let Err(violation) = check_with(&history, &PROMISES) {
            panic!("seed {seed}: {violation}");
        }
        all += Summary::of(&history);
    }
    let Summary { operations, writes, reads, syncs, unknown, events, told_expired, moved, .. } = all;
    assert!(operations > 40 * 300 && writes > 1000 && reads > 1000 && syncs > 300, "{all:?}");
    assert!(unknown > 20 && events > 1000 && told_expired > 20 && moved > 50, "{all:?}");
}

/// A single oracle, so that no other oracle reports the mutation first.
type Pass = fn(&Facts<'_>, &Origins) -> Result<(), Violation>;

fn none(_: &Facts<'_>, _: &Origins) -> Result<(), Violation> {
    Ok(())
}

fn everything(facts: &Facts<'_>, _: &Origins) -> Result<(), Violation> {
    check_with(facts.history, &PROMISES)
}

/// Mutates good histories until one mutation applies; returns the rule that it breaks.
fn mutated(mutate: impl Fn(&mut History) -> bool, judge: impl Fn(&History) -> Result<(), Violation>) -> &'static str {
    for seed in 0..60 {
        let mut history = toy::history(seed, 3000);
        if mutate(&mut history) {
            return match judge(&history) {
                Ok(()) => panic!("seed {seed}: the mutation was not found"),
                Err(violation) => {
                    assert!(violation.to_string().lines().count() > 1, "a story is told: {violation}");
                    violation.rule
                }
            };
        }
    }
    panic!("no history can be mutated in this way")
}

/// As [`mutated`], judged by one oracle.
fn broken_by(pass: Pass, mutate: impl Fn(&mut History) -> bool) -> &'static str {
    mutated(mutate, |history| {
        let facts = Facts::of(history)?;
        let origins = origin::check(&facts)?;
        pass(&facts, &origins)
    })
}

/// As [`mutated`], judged by one of the oracles that run before the entries' origins are known.
fn broken_early_by(
    pass: fn(&Facts<'_>) -> Result<(), Violation>,
    mutate: impl Fn(&mut History) -> bool,
) -> &'static str {
    mutated(mutate, |history| pass(&Facts::of(history)?))
}

// Positions in a history.

fn answered(history: &History, fits: impl Fn(&Operation) -> bool) -> Option<usize> {
    history
        .operations
        .iter()
        .position(|one| one.answer.as_ref().is_some_and(|answer| answer.result.is_ok()) && fits(one))
}

fn answer(history: &mut History, operation: usize) -> &mut Answer {
    history.operations[operation].answer.as_mut().unwrap()
}

fn zxid_of(history: &History, operation: usize) -> i64 {
    history.operations[operation].answer.as_ref().unwrap().zxid
}

fn continued(history: &History, fits: impl Fn(&Connection) -> bool) -> Option<usize> {
    history.connections.iter().position(|one| !one.wants_new_session() && one.session().is_some() && fits(one))
}

fn placed(history: &History, connection: usize) -> Vec<usize> {
    let all = history.connections[connection].operations.iter().copied();
    all.filter(|&at| history.operations[at].answer.is_some()).collect()
}

fn last_zxid(history: &History) -> Zxid {
    history.committed.last().unwrap().zxid
}

fn append(history: &mut History, txn: &Txn<'_>) {
    let zxid = last_zxid(history).next().unwrap();
    let payload = txn::encode(Header::default(), txn, &mut BytesMut::new());
    history.committed.push(Committed { zxid, payload, at: history.ended });
}

/// Adds a request to a connection, as the last one of the run.
fn ask(
    history: &mut History,
    connection: usize,
    request: Request,
    zxid: i64,
    result: Option<Result<Reply, ErrorCode>>,
) {
    let at = history.ended;
    let answer = result.map(|result| Answer { at, zxid, result });
    let is_answered = answer.is_some();
    history.operations.push(Operation { connection, xid: 77, request, invoked: at, answer });
    let operation = history.operations.len() - 1;
    history.connections[connection].operations.push(operation);
    if is_answered {
        history.connections[connection].received.push(Received::Answer(operation));
    }
}

fn open(history: &History) -> Option<usize> {
    history.connections.iter().position(|one| one.ended.is_none() && one.session().is_some())
}

fn is_write(operation: &Operation) -> bool {
    matches!(operation.request, Request::Write(_))
}

fn is_read(operation: &Operation) -> bool {
    matches!(operation.request, Request::GetData { .. } | Request::GetChildren { .. })
}

// One connection.

#[test]
fn answers_belong_to_requests_in_their_order() {
    let stray = |history: &mut History| {
        let Some(open) = open(history) else { return false };
        let at = history.ended;
        history.connections[open].received.push(Received::Stray(at, 5, 7));
        true
    };
    assert_eq!(broken_by(everything, stray), "an answer belongs to a request");
    let swapped = |history: &mut History| {
        history.connections.iter_mut().any(|connection| {
            let received = &mut connection.received;
            let two = received.windows(2).position(|two| matches!(two, [Received::Answer(_), Received::Answer(_)]));
            two.is_some_and(|at| {
                received.swap(at, at + 1);
                true
            })
        })
    };
    assert_eq!(broken_by(everything, swapped), "answers come in the order of the requests");
    let untold = |history: &mut History| {
        let all = &mut history.connections;
        let one = all.iter_mut().find(|one| !one.received.is_empty() && !one.wants_new_session());
        one.is_some_and(|one| one.reply.take().is_some())
    };
    assert_eq!(broken_early_by(order::check, untold), "nobody is answered before he has a session");
    let waiting = |history: &mut History| {
        open(history).is_some_and(|open| {
            ask(history, open, Request::Ping, 0, None);
            true
        })
    };
    assert_eq!(broken_by(everything, waiting), "every request is answered while its connection lasts");
}

#[test]
fn zxids_never_go_back_and_name_what_is_committed() {
    let back = |history: &mut History| {
        for connection in 0..history.connections.len() {
            let placed = placed(history, connection);
            for two in placed.windows(2) {
                let zxid = answer(history, two[0]).zxid;
                if is_read(&history.operations[two[1]]) && history.entry(zxid - 1).is_some() {
                    answer(history, two[1]).zxid = zxid - 1;
                    return true;
                }
            }
        }
        false
    };
    assert_eq!(broken_by(everything, back), "the zxids that a client sees never go back");
    let elsewhere = |history: &mut History| {
        let fits = |one: &Connection| one.request.last_zxid_seen > 0 && !one.operations.is_empty();
        let Some(at) = continued(history, |one| fits(one)) else { return false };
        let Some(&first) = history.connections[at].operations.first() else { return false };
        let seen = history.connections[at].request.last_zxid_seen;
        if history.operations[first].answer.is_none() || history.entry(seen - 1).is_none() {
            return false;
        }
        answer(history, first).zxid = seen - 1;
        true
    };
    assert_eq!(broken_by(everything, elsewhere), "the zxids that a client sees never go back");
    let future = |history: &mut History| {
        let zxid = last_zxid(history).as_i64() + 5;
        let read = history.operations.iter().rposition(|one| one.answer.is_some());
        read.is_some_and(|read| {
            answer(history, read).zxid = zxid;
            true
        })
    };
    assert_eq!(broken_by(everything, future), "clients see committed states only");
    let too_early = |history: &mut History| {
        let Some(write) = answered(history, is_write) else { return false };
        let (zxid, late) = (answer(history, write).zxid, history.ended);
        let entry = history.committed.iter_mut().find(|entry| entry.zxid.as_i64() == zxid);
        entry.is_some_and(|entry| {
            entry.at = late;
            true
        })
    };
    assert_eq!(broken_by(everything, too_early), "clients see committed states only");
    let named = |history: &mut History| {
        open(history).is_some_and(|open| {
            ask(history, open, Request::Sasl, 5, Some(Ok(Reply::NullToken)));
            true
        })
    };
    assert_eq!(broken_by(everything, named), "what reads no state names none");
    let denied = |history: &mut History| {
        open(history).is_some_and(|open| {
            let auth = Request::Auth { scheme: Some("digest".into()), auth: Some(Bytes::from_static(b"ann:1")) };
            ask(history, open, auth, 0, Some(Err(ErrorCode::AuthFailed)));
            true
        })
    };
    assert_eq!(mutated(denied, |history| check_with(history, &PROMISES)), "an identity is accepted if it is one");
}

#[test]
fn servers_agree_on_one_history() {
    let other = |history: &mut History| {
        let (zxid, at) = (last_zxid(history), history.ended);
        history.disagreement = Some(Disagreement { zxid, at, what: "other bytes".into() });
        true
    };
    assert_eq!(mutated(other, |history| check_with(history, &PROMISES)), "there is one history");
}

// Sessions.

#[test]
fn a_session_is_begun_told_continued_and_ended_as_its_entries_say() {
    let new = |history: &History| history.connections.iter().position(|one| one.session().is_some());
    let reply = |history: &mut History, at: usize, change: fn(&mut zoolet_model::ConnectReply)| {
        change(&mut history.connections[at].reply.as_mut().unwrap().1);
        true
    };
    let session = |mutate: &dyn Fn(&mut History) -> bool| broken_early_by(session::check, mutate);
    assert_eq!(
        session(&|history| new(history).is_some_and(|at| reply(history, at, |reply| reply.session = SessionId(0)))),
        "a client that asks for a new session is not told that it expired"
    );
    assert_eq!(
        session(&|history| new(history).is_some_and(|at| reply(history, at, |reply| reply.session.0 += 1 << 35))),
        "a session begins with a committed entry"
    );
    assert_eq!(
        session(&|history| new(history).is_some_and(|at| reply(history, at, |reply| reply.timeout_ms += 1))),
        "a client is told the secret and the timeout that its session's entry has"
    );
    assert_eq!(
        session(&|history| {
            let mut told = history.connections.iter().filter(|one| one.wants_new_session() && one.session().is_some());
            let (Some(first), Some(second)) = (told.next(), told.next()) else { return false };
            let (taken, second) = (first.reply, second.id);
            history.connections.iter_mut().find(|one| one.id == second).unwrap().reply = taken;
            true
        }),
        "a session's id is never used again"
    );
    assert_eq!(
        session(&|history| {
            continued(history, |_| true).is_some_and(|at| reply(history, at, |reply| reply.session.0 += 1))
        }),
        "a client gets the session that it asked for"
    );
    assert_eq!(
        session(&|history| {
            continued(history, |_| true).is_some_and(|at| {
                history.connections[at].request.password = Some(Bytes::from_static(b"wrong"));
                true
            })
        }),
        "only who knows its secret continues a session"
    );
    let ended = |history: &History, session: SessionId| {
        let is_it = |entry: &&Committed| matches!(txn::decode(&entry.payload), Ok((_, Txn::CloseSession { session: ended })) if ended == session);
        history.committed.iter().position(|entry| is_it(&entry))
    };
    assert_eq!(
        session(&|history| {
            let fits = |one: &Connection| ended(history, one.request.session).is_some();
            continued(history, fits).is_some_and(|at| {
                history.connections[at].request.last_zxid_seen = last_zxid(history).as_i64();
                true
            })
        }),
        "nobody continues a session whose end he has seen"
    );
    assert_eq!(
        session(&|history| {
            let told = history.connections.iter().find(|one| !one.wants_new_session() && one.refused().is_some());
            let Some(entry) = told.and_then(|one| ended(history, one.request.session)) else { return false };
            history.committed[entry].at = history.ended;
            true
        }),
        "expired is said only of a session whose end is committed"
    );
    assert_eq!(
        session(&|history| {
            for connection in 0..history.connections.len() {
                let Some(session) = history.connections[connection].session() else { continue };
                let last = history.connections[connection].operations.last().copied();
                let read = last.filter(|&at| history.operations[at].request != Request::CloseSession);
                let read = read.filter(|&at| history.operations[at].answer.is_some());
                if let (Some(entry), Some(read)) = (ended(history, session), read) {
                    answer(history, read).zxid = history.committed[entry].zxid.as_i64();
                    return true;
                }
            }
            false
        }),
        "a session hears nothing that lies behind its end"
    );
}

#[test]
fn who_gives_signs_of_life_does_not_expire_and_who_gives_none_does() {
    let pass: Pass = |facts, origins| expiry::check(facts, origins, &PROMISES);
    let expired = |history: &History| {
        let facts = Facts::of(history).unwrap();
        let origins = origin::check(&facts).unwrap();
        facts.sessions.values().find_map(|session| {
            let closed = session.closed?;
            let asked = facts.operations_of(session).any(|at| facts.operation(at).request == Request::CloseSession);
            let is_it = origins.of_entry[closed] == origin::Origin::Expiry && !asked;
            let last = facts.operations_of(session).filter(|&at| facts.operation(at).answer.is_some()).last();
            (is_it && session.connections.len() > 1).then_some((closed, last?))
        })
    };
    let early = |history: &mut History| {
        let Some((closed, last)) = expired(history) else { return false };
        history.committed[closed].at.us = history.operations[last].invoked.us + 500_000;
        true
    };
    assert_eq!(broken_by(pass, early), "a session that keeps giving signs of life does not expire");
    let never = |history: &mut History| {
        let Some((closed, _)) = expired(history) else { return false };
        history.committed.remove(closed);
        true
    };
    assert_eq!(broken_by(pass, never), "a session that gives no sign of life expires");
    let late = |history: &mut History| {
        let Some((closed, _)) = expired(history) else { return false };
        history.committed[closed].at = history.ended;
        true
    };
    assert_eq!(broken_by(pass, late), "a session that gives no sign of life expires");
    // A sign of life does not count if its server had no leader, nor if it came too late to reach
    // the leader.
    for (has_leader, propagation_us) in [(false, 0), (true, 1 << 40)] {
        let promises = Promises { propagation_us, ..PROMISES };
        let spared = (0..60).any(|seed| {
            let mut history = toy::history(seed, 3000);
            early(&mut history) && {
                history.serving.retain(|_, _| has_leader);
                let facts = Facts::of(&history).unwrap();
                expiry::check(&facts, &origin::check(&facts).unwrap(), &promises).is_ok()
            }
        });
        assert!(spared, "has_leader {has_leader}");
    }
}

/// A session that returned at 2 s with another timeout, `returns_ms.1`.
///
/// It wrote at 6 s and was silent from then on. It ended at `ends_us`, or never.
fn came_back(returns_ms: (i32, i32), ends_us: Option<u64>, stood_still: Option<(u64, u64)>) -> History {
    let mut recorder = Recorder::new();
    recorder.serving(0, ServerId::STANDALONE, true);
    recorder.healthy(0, true);
    let mut commit = {
        let mut zxid = Zxid::ZERO;
        move |recorder: &mut Recorder, at_us: u64, txn: &Txn<'_>| {
            zxid = zxid.next().unwrap();
            recorder.committed(at_us, zxid, &txn::encode(Header::default(), txn, &mut BytesMut::new()));
        }
    };
    let (secret, client, session) = (SessionSecret([3; 16]), ClientId(1), SessionId(1));
    let reply = |timeout_ms| ConnectReply { timeout_ms, session, secret, read_only_byte: false };
    let (first, second) = (ConnId(1), ConnId(2));
    let request = ConnectRequest::for_new_session(returns_ms.0);
    recorder.leading(0, ServerId::STANDALONE, true);
    recorder.connecting(1_000_000, client, first, ServerId::STANDALONE, None, request.clone());
    let timeout_ms = returns_ms.0 as u32;
    commit(&mut recorder, 1_000_000, &Txn::CreateSession { timeout_ms, secret, home: None });
    recorder.connected(1_000_001, first, reply(returns_ms.0));
    recorder.ended(1_500_000, first, End::ByClient);
    let password = Some(secret.0.to_vec().into());
    let request = ConnectRequest { timeout_ms: returns_ms.1, session, password, ..request };
    recorder.connecting(2_000_000, client, second, ServerId::STANDALONE, None, request);
    recorder.connected(2_000_001, second, reply(returns_ms.1));
    if let Some((from_us, _)) = stood_still {
        recorder.standing_still(from_us, ServerId::STANDALONE, true);
    }
    recorder.invoked(6_000_000, second, 1, Request::Write(crate::client::create("/a", 0, CreateKind::Persistent)));
    let kind = CreateKind::Persistent;
    let op = Op::Create { path: "/a", data: Some(b""), acl: &[], kind, sequential: false, with_stat: false };
    commit(&mut recorder, 6_000_000, &Txn::Write { session, identity: Identity::default(), op });
    recorder.ended(6_000_001, second, End::ByClient);
    if let Some((_, to_us)) = stood_still {
        recorder.standing_still(to_us, ServerId::STANDALONE, false);
    }
    if let Some(at_us) = ends_us {
        commit(&mut recorder, at_us, &Txn::CloseSession { session });
    }
    recorder.finish(60_000_000, true)
}

fn judged(history: &History, promises: &Promises) -> Option<&'static str> {
    let facts = Facts::of(history).unwrap();
    expiry::check(&facts, &origin::check(&facts).unwrap(), promises).err().map(|violation| violation.rule)
}

#[test]
fn the_timeout_that_was_promised_last_counts() {
    let early = Some("a session that keeps giving signs of life does not expire");
    let never = Some("a session that gives no sign of life expires");
    for (returns_ms, ends_us, expected) in [
        ((4000, 40_000), Some(12_000_000), early),
        ((4000, 40_000), Some(46_500_000), None),
        ((40_000, 4000), Some(9_900_000), early),
        ((40_000, 4000), Some(12_000_000), None),
        ((40_000, 4000), Some(46_000_000), never),
        ((40_000, 4000), None, never),
    ] {
        let history = came_back(returns_ms, ends_us, None);
        assert_eq!(judged(&history, &PROMISES), expected, "{returns_ms:?} {ends_us:?}");
    }
}

/// Regression: seed 9107793. The leader's clock had stood still for 42 ms when it took a write, and
/// then jumped to true time. The session ended 33 ms early.
#[test]
fn a_clock_that_stood_still_unnoticed_makes_a_sign_as_old_as_it_showed() {
    let early = Some("a session that keeps giving signs of life does not expire");
    let promises = Promises { unnoticed_us: 600_000, ..PROMISES };
    let at = |stood_still, ends_us| judged(&came_back((4000, 4000), Some(ends_us), stood_still), &promises);
    assert_eq!(at(None, 9_967_000), early);
    assert_eq!(at(Some((5_967_000, 6_009_000)), 9_967_000), None);
    assert_eq!(at(Some((5_967_000, 6_009_000)), 9_960_000), early);
    assert_eq!(at(Some((5_300_000, 6_009_000)), 9_967_000), early, "a leader notices a longer time");
}

/// Regression: seed 604606530. The leader's clock had stood still for about 400 ms when it applied
/// the creation of a session whose client was never told. Then it jumped to true time, and the
/// session ended 366 ms early.
#[test]
fn a_session_that_begins_while_a_clock_stands_still_unnoticed_is_as_old_as_the_clock_showed() {
    let early = Some("a session that keeps giving signs of life does not expire");
    let promises = Promises { unnoticed_us: 600_000, ..PROMISES };
    // Server 1 leads, and server 2 follows it.
    let at = |stood_still: [(u64, u64); 2], ends_us| {
        let mut recorder = Recorder::new();
        let mut changes = vec![(1_000_000, None, true), (ends_us, None, false)];
        for (server, (from_us, to_us)) in (1..).map(|id| ServerId::new(id).unwrap()).zip(stood_still) {
            changes.extend([(from_us, Some(server), true), (to_us, Some(server), false)]);
        }
        changes.sort_unstable();
        let leader = ServerId::new(1).unwrap();
        recorder.leading(0, leader, true);
        recorder.connecting(0, ClientId(1), ConnId(1), leader, None, ConnectRequest::for_new_session(4000));
        recorder.ended(1, ConnId(1), End::Lost);
        let mut zxid = Zxid::ZERO;
        for (at_us, server, begins) in changes {
            let Some(server) = server else {
                zxid = zxid.next().unwrap();
                let create = Txn::CreateSession { timeout_ms: 4000, secret: SessionSecret([3; 16]), home: None };
                let txn = if begins { create } else { Txn::CloseSession { session: SessionId(1) } };
                recorder.committed(at_us, zxid, &txn::encode(Header::default(), &txn, &mut BytesMut::new()));
                continue;
            };
            recorder.standing_still(at_us, server, begins);
        }
        judged(&recorder.finish(60_000_000, true), &promises)
    };
    let never = (2, 3);
    assert_eq!(at([never, never], 4_700_000), early);
    assert_eq!(at([(600_000, 1_100_000), never], 4_700_000), None);
    assert_eq!(at([(600_000, 1_100_000), never], 4_500_000), early);
    assert_eq!(at([(600_000, 1_300_000), never], 4_700_000), early, "the leader notices a longer time");
    assert_eq!(at([never, (600_000, 1_100_000)], 4_700_000), early, "the clock of a follower does not count");
    assert_eq!(at([(600_000, 1_100_000), (1_050_000, 1_600_000)], 4_700_000), None, "each clock counts alone");
}

#[test]
fn what_is_shown_is_not_too_old_and_nobody_waits_for_ever() {
    let pass: Pass = |facts, _| timeliness::check(facts, &PROMISES);
    let stale = |history: &mut History| {
        let Some(read) = answered(history, is_read) else { return false };
        let zxid = zxid_of(history, read);
        let fresh = history.committed.iter().all(|entry| entry.zxid.as_i64() <= zxid);
        history.operations[read].invoked.us += 70_000_000;
        !fresh
    };
    assert_eq!(broken_by(pass, stale), "what a client is shown is not older than promised");
    let rule = "in an ensemble that is well everybody is answered, or sees his connection end";
    let waits = |history: &mut History| {
        let Some(open) = open(history) else { return false };
        let Some(last) = history.connections[open].operations.last().copied() else { return false };
        history.operations[last].invoked.us -= 5_000_000;
        true
    };
    assert_eq!(broken_by(pass, waits), rule);
    let knocks = |history: &mut History| {
        open(history).is_some_and(|open| {
            history.connections[open].reply.as_mut().unwrap().0 = history.ended;
            true
        })
    };
    assert_eq!(broken_by(pass, knocks), rule);
}

// Writes.

#[test]
fn acknowledged_writes_are_in_the_history() {
    let lost = |history: &mut History| {
        let Some(write) = answered(history, is_write) else { return false };
        let zxid = answer(history, write).zxid;
        history.committed.retain(|entry| entry.zxid.as_i64() != zxid);
        true
    };
    let rule = "an acknowledged write is in the history";
    assert_eq!(broken_by(none, lost), rule);
    let altered = |history: &mut History| {
        let write =
            answered(history, |one| matches!(one.request, Request::Write(zoolet_model::WriteOp::SetData { .. })));
        let Some(write) = write else { return false };
        history.operations[write].request =
            Request::Write(zoolet_model::WriteOp::SetData { path: "/a".into(), data: None, version: -1 });
        true
    };
    assert_eq!(broken_by(none, altered), rule);
    let of_another = |history: &mut History| {
        let Some(one) = answered(history, is_write) else { return false };
        let client = history.connection_of(&history.operations[one]).client;
        let fits = |other: &Operation| is_write(other) && history.connection_of(other).client != client;
        let Some(other) = answered(history, fits) else { return false };
        answer(history, one).zxid = answer(history, other).zxid;
        true
    };
    assert_eq!(broken_by(none, of_another), rule);
}

#[test]
fn every_entry_is_asked_for_once_and_in_order() {
    let shared = |history: &mut History| {
        for connection in 0..history.connections.len() {
            let writes: Vec<_> =
                placed(history, connection).into_iter().filter(|&at| is_write(&history.operations[at])).collect();
            if let [first, second, ..] = writes[..] {
                history.operations[second].request = history.operations[first].request.clone();
                answer(history, second).zxid = answer(history, first).zxid;
                return true;
            }
        }
        false
    };
    assert_eq!(broken_by(none, shared), "a session's writes take effect once, in the order in which it asked");
    let rule = "a write has at most one entry, an entry is asked for, and nothing takes effect behind what was lost on the same connection";
    let twice = |history: &mut History| {
        let Some(write) = answered(history, is_write) else { return false };
        let entry = history.entry(zxid_of(history, write)).unwrap();
        let (payload, zxid) = (entry.payload.clone(), last_zxid(history).next().unwrap());
        let at = history.ended;
        history.committed.push(Committed { zxid, payload, at });
        true
    };
    assert_eq!(broken_by(none, twice), rule);
    // The toy proposes one write per connection at a time. So this test builds two writes in flight
    // itself.
    let two_under_way = |history: &mut History| {
        let Some(write) =
            answered(history, |one| matches!(one.request, Request::Write(zoolet_model::WriteOp::SetData { .. })))
        else {
            return false;
        };
        let connection = history.operations[write].connection;
        let entry = history.entry(zxid_of(history, write)).unwrap().payload.clone();
        let Some(last) = history.connections[connection].operations.last().copied() else { return false };
        if history.operations[last].answer.is_none() || history.connections[connection].ended.is_none() {
            return false;
        }
        let request = history.operations[write].request.clone();
        ask(history, connection, Request::Multi(Vec::new()), 0, None);
        ask(history, connection, request, 0, None);
        let zxid = last_zxid(history).next().unwrap();
        let at = history.ended;
        history.committed.push(Committed { zxid, payload: entry, at });
        true
    };
    assert_eq!(broken_by(none, two_under_way), rule);
    // A lost write may have been refused, if a server refuses requests.
    let refused = (0..60).any(|seed| {
        let mut history = toy::history(seed, 3000);
        two_under_way(&mut history) && {
            history.leader_refusing.push(Span { from_us: 0, to_us: history.ended.us });
            origin::check(&Facts::of(&history).unwrap()).is_ok()
        }
    });
    assert!(refused);
    let begun = |history: &mut History| {
        append(history, &Txn::CreateSession { timeout_ms: 1000, secret: SessionSecret([1; 16]), home: None });
        true
    };
    assert_eq!(broken_by(none, begun), "a session begins once for each time that one was asked for");
}

#[test]
fn writes_syncs_and_sessions_agree_with_true_time() {
    // Moves a request to a later time, by which more had been seen.
    let late = |operation: Option<usize>, history: &mut History| {
        operation.is_some_and(|operation| {
            history.operations[operation].invoked.step = history.ended.step;
            true
        })
    };
    let write = |history: &mut History| late(answered(history, is_write), history);
    assert_eq!(
        broken_by(realtime::check, write),
        "a write takes effect after all that was seen before it was asked for"
    );
    let sync =
        |history: &mut History| late(answered(history, |one| matches!(one.request, Request::Sync { .. })), history);
    assert_eq!(broken_by(realtime::check, sync), "a sync shows all that was seen before it was asked for");
    let unknown = |history: &mut History| {
        let facts = Facts::of(history).unwrap();
        let origins = origin::check(&facts).unwrap();
        let found = (0..history.operations.len())
            .find(|&at| history.operations[at].answer.is_none() && origins.effect[at].is_some());
        late(found, history)
    };
    assert_eq!(
        broken_by(realtime::check, unknown),
        "a write takes effect after all that was seen before it was asked for"
    );
    let session = |history: &mut History| {
        let last = history.connections.iter().rposition(|one| one.wants_new_session() && one.session().is_some());
        last.is_some_and(|last| {
            history.connections[last].begun.step = history.ended.step;
            true
        })
    };
    assert_eq!(broken_by(realtime::check, session), "a session begins after all that was seen before it was asked for");
}

#[test]
fn a_session_sees_its_earlier_writes_and_none_of_its_later_ones() {
    let pairs = |history: &mut History, write_first: bool| {
        for connection in 0..history.connections.len() {
            for two in placed(history, connection).windows(2) {
                let [first, second] = [two[0], two[1]].map(|at| &history.operations[at]);
                let (wanted, write, read) = if write_first {
                    (is_write(first) && is_read(second), two[0], two[1])
                } else {
                    (is_read(first) && is_write(second), two[1], two[0])
                };
                if wanted {
                    answer(history, read).zxid = answer(history, write).zxid - i64::from(write_first);
                    return true;
                }
            }
        }
        false
    };
    let (own, later) = ("a session sees its own earlier writes", "a session sees none of its later writes");
    assert_eq!(broken_by(fifo::check, |history| pairs(history, true)), own);
    assert_eq!(broken_by(fifo::check, |history| pairs(history, false)), later);
    // A write of unknown outcome, on an earlier connection.
    let across = |history: &mut History| {
        let facts = Facts::of(history).unwrap();
        let origins = origin::check(&facts).unwrap();
        let found = facts.sessions.values().find_map(|session| {
            let operations: Vec<_> = facts.operations_of(session).collect();
            let lost = operations.iter().position(|&at| {
                facts.operation(at).answer.is_none()
                    && origins.effect[at].is_some()
                    && facts.operation(at).request != Request::Multi(Vec::new())
            })?;
            let read = operations[lost..].iter().find(|&&at| {
                let one = facts.operation(at);
                one.answer.is_some() && !facts::is_ordered(one) && facts::has_place(&one.request)
            })?;
            Some((*read, facts.entries[origins.effect[operations[lost]]?].zxid))
        });
        found.is_some_and(|(read, zxid)| {
            answer(history, read).zxid = zxid - 1;
            true
        })
    };
    assert_eq!(broken_by(fifo::check, across), own);
}

// Answers and events.

fn replayed(facts: &Facts<'_>, origins: &Origins) -> Result<(), Violation> {
    replay::check(facts, origins).map(drop)
}

fn watched(facts: &Facts<'_>, origins: &Origins) -> Result<(), Violation> {
    watch::check(facts, &replay::check(facts, origins)?)
}

#[test]
fn answers_are_what_their_place_says() {
    let write = |history: &mut History| {
        answered(history, is_write).is_some_and(|write| {
            answer(history, write).result = Err(ErrorCode::NoNode);
            true
        })
    };
    assert_eq!(broken_by(replayed, write), "a write is answered with what its entry came to");
    let read = |history: &mut History| {
        answered(history, |one| matches!(one.request, Request::GetData { .. })).is_some_and(|read| {
            let Ok(Reply::Data(data, _)) = &mut answer(history, read).result else { return false };
            *data = Some(Bytes::from_static(b"never written"));
            true
        })
    };
    let rule = "a read shows the state whose zxid it names";
    assert_eq!(broken_by(replayed, read), rule);
    // Shows the znode's data before the last change, with a zxid that includes the change.
    let stale = |history: &mut History| {
        let reads: Vec<_> = (0..history.operations.len())
            .filter_map(|at| {
                let one = &history.operations[at];
                let Some(Answer { result: Ok(Reply::Data(data, stat)), .. }) = &one.answer else { return None };
                let Request::GetData { path, .. } = &one.request else { return None };
                Some((at, path.clone(), data.clone(), *stat))
            })
            .collect();
        for (at, path, data, stat) in &reads {
            if let Some((later, ..)) =
                reads.iter().find(|(other, same, _, newer)| other > at && same == path && newer.mzxid > stat.mzxid)
            {
                answer(history, *later).result = Ok(Reply::Data(data.clone(), *stat));
                return true;
            }
        }
        false
    };
    assert_eq!(broken_by(replayed, stale), rule);
    let gone = |history: &mut History| {
        let Some(open) = open(history) else { return false };
        let zxid = last_zxid(history).as_i64();
        let write = Request::Write(zoolet_model::WriteOp::Delete { path: "/nowhere".into(), version: 5 });
        ask(history, open, write, zxid, Some(Err(ErrorCode::SessionExpired)));
        true
    };
    assert_eq!(broken_by(replayed, gone), "only a session that is gone is told so");
}

/// In a whole check, order.rs reports this first. So this test compares the scripts alone.
#[test]
fn answers_come_in_the_order_of_their_states() {
    let out_of_order = |history: &mut History| {
        let found = next_to(history, |one, next| matches!((one, next), (Received::Answer(_), Received::Answer(_))));
        found.is_some_and(|(connection, at)| {
            history.connections[connection].received.swap(at, at + 1);
            true
        })
    };
    assert_eq!(broken_by(watched, out_of_order), "answers come in the order of their states");
}

/// Returns the first position of two adjacent items that fit.
fn next_to(history: &History, fits: impl Fn(&Received, &Received) -> bool) -> Option<(usize, usize)> {
    history.connections.iter().enumerate().find_map(|(connection, one)| {
        Some((connection, one.received.windows(2).position(|two| fits(&two[0], &two[1]))?))
    })
}

fn is_event(received: &Received) -> bool {
    matches!(received, Received::Event(..))
}

#[test]
fn events_come_once_each_in_order_and_before_what_shows_their_change() {
    let behind = |history: &mut History| {
        let found = next_to(history, |one, next| is_event(one) && matches!(next, Received::Answer(_)));
        found.is_some_and(|(connection, at)| {
            history.connections[connection].received.swap(at, at + 1);
            true
        })
    };
    let shown_before = "no answer shows a change before the event that tells of it";
    assert_eq!(broken_by(watched, behind), shown_before);
    let lost = |history: &mut History| {
        let found = next_to(history, |one, next| is_event(one) && matches!(next, Received::Answer(_)));
        found.is_some_and(|(connection, at)| {
            history.connections[connection].received.remove(at);
            true
        })
    };
    assert_eq!(broken_by(watched, lost), shown_before);
    let swapped = |history: &mut History| {
        let differ = |one: &Received, next: &Received| match (one, next) {
            (Received::Event(_, one), Received::Event(_, next)) => one != next,
            _ => false,
        };
        next_to(history, differ).is_some_and(|(connection, at)| {
            history.connections[connection].received.swap(at, at + 1);
            true
        })
    };
    let in_order = "events come in the order of the entries, none is left out, and none overtakes an answer";
    assert_eq!(broken_by(watched, swapped), in_order);
    let overtakes = |history: &mut History| {
        let found = next_to(history, |one, next| is_event(next) && matches!(one, Received::Answer(_)));
        found.is_some_and(|(connection, at)| {
            history.connections[connection].received.swap(at, at + 1);
            true
        })
    };
    assert_eq!(broken_by(watched, overtakes), in_order);
    let twice = |history: &mut History| {
        let found = next_to(history, |one, _| matches!(one, Received::Event(_, event) if event.zxid > 0));
        found.is_some_and(|(connection, at)| {
            let again = history.connections[connection].received[at].clone();
            history.connections[connection].received.insert(at + 1, again);
            true
        })
    };
    assert_eq!(broken_by(watched, twice), "a watch tells once, and before any answer that shows the change");
    let other = |history: &mut History| {
        let all = history.connections.iter_mut().flat_map(|one| &mut one.received);
        let event = all.filter_map(|received| match received {
            Received::Event(_, event) => Some(event),
            Received::Answer(_) | Received::Stray(..) => None,
        });
        let created = event.into_iter().find(|event| event.kind == EventKind::NodeCreated);
        created.is_some_and(|event| {
            event.path = "/elsewhere".into();
            true
        })
    };
    assert_eq!(broken_by(watched, other), "an event tells of a change that a watch of this connection waited for");
    let at_the_end = |history: &mut History| {
        let Some(open) = open(history) else { return false };
        let received = &mut history.connections[open].received;
        let Some(event) = received.iter().position(is_event) else { return false };
        received.truncate(event);
        true
    };
    assert_eq!(broken_by(watched, at_the_end), "no event is lost while its connection lasts");
}

/// A failing base may fail before or after the watch is set.
#[test]
fn a_read_that_failed_may_have_set_its_watch() {
    let verdict = |asked: bool, tell: usize| {
        let mut recorder = Recorder::new();
        let mut zxid = Zxid::ZERO;
        let mut commit = |recorder: &mut Recorder, at_us: u64, txn: &Txn<'_>| {
            zxid = zxid.next().unwrap();
            recorder.committed(at_us, zxid, &txn::encode(Header::default(), txn, &mut BytesMut::new()));
        };
        let secret = SessionSecret([3; 16]);
        let (reader, writer) = (ConnId(1), ConnId(2));
        for (conn, session) in [(reader, 1), (writer, 2)] {
            let client = ClientId(conn.0 as u32);
            recorder.connecting(1, client, conn, ServerId::STANDALONE, None, ConnectRequest::for_new_session(9000));
            commit(&mut recorder, 1, &Txn::CreateSession { timeout_ms: 9000, secret, home: None });
            let reply = ConnectReply { timeout_ms: 9000, session: SessionId(session), secret, read_only_byte: false };
            recorder.connected(1, conn, reply);
        }
        if asked {
            recorder.invoked(2, reader, 1, Request::GetChildren { path: "/".into(), watch: true, with_stat: false });
            recorder.answered(2, reader, 1, 2, Err(ErrorCode::SystemError));
        }
        for path in ["/a", "/b"] {
            recorder.invoked(3, writer, 1, Request::Write(crate::client::create(path, 0, CreateKind::Persistent)));
            let kind = CreateKind::Persistent;
            let op = Op::Create { path, data: Some(b""), acl: &[], kind, sequential: false, with_stat: false };
            commit(&mut recorder, 3, &Txn::Write { session: SessionId(2), identity: Identity::default(), op });
        }
        recorder.ended(3, writer, End::Lost);
        for zxid in (3..).take(tell) {
            let event = WatchEvent { kind: EventKind::NodeChildrenChanged, path: "/".into(), zxid };
            recorder.notified(4, reader, event);
        }
        recorder.invoked(5, reader, 2, Request::Sync { path: None });
        recorder.answered(5, reader, 2, 4, Ok(Reply::Synced(None)));
        check(&recorder.finish(6, false)).err().map(|violation| violation.rule)
    };
    assert_eq!(verdict(true, 0), None);
    assert_eq!(verdict(true, 1), None);
    let unasked = Some("an event tells of a change that a watch of this connection waited for");
    assert_eq!(verdict(true, 2), unasked, "it tells once");
    assert_eq!(verdict(false, 0), None);
    assert_eq!(verdict(false, 1), unasked);
}

/// The documents and failing seeds cite a rule by its sentence. So a violation prints the sentence
/// first, then its story.
#[test]
fn a_violation_tells_its_story() {
    let mut history = toy::history(3, 3000);
    let read = answered(&history, is_read).unwrap();
    answer(&mut history, read).result = Err(ErrorCode::NoAuth);
    let told = check_with(&history, &PROMISES).unwrap_err().to_string();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[0], "broken: a read shows the state whose zxid it names");
    assert!(
        lines[1].contains("ClientId(") && lines[1].contains("answered at") && lines[1].contains("zxid 0x"),
        "{told}"
    );
    assert!(lines[2].starts_with("  expected: Ok("), "{told}");
    let distinct: BTreeSet<_> = lines.iter().collect();
    assert_eq!(distinct.len(), lines.len());
}
