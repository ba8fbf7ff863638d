//! The rules of sessions: their course, their expiry, and the age of what they are shown.

use super::*;
use crate::oracle::history::Span;
use crate::oracle::ttl::{self, Life};
use crate::reference::RefTtl;

#[test]
fn connect_replies_that_contradict_the_session_entries_are_reported() {
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
fn early_missing_and_late_session_expiries_are_reported() {
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
    let reply = |timeout_ms| ConnectReply { timeout_ms, session, secret, read_only_byte: false, read_only_ms: None };
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

/// The znode was made at 6 s with a time to live of 5 s.
#[test]
fn time_without_a_leader_does_not_count_for_a_time_to_live() {
    let early = Some("a TTL znode lives for its time without children and new data");
    let at = |led_again_us: u64, reaped_us: u64| {
        let mut history = came_back((40_000, 40_000), Some(reaped_us), None);
        let led = [Span { from_us: 0, to_us: 8_000_000 }, Span { from_us: led_again_us, to_us: 60_000_000 }];
        history.leading.insert(ServerId::STANDALONE, led.to_vec());
        let facts = Facts::of(&history).unwrap();
        let ttl = RefTtl { ttl_ms: 5000, since_ms: 0, since_zxid: 2 };
        let life = Life { path: "/a".to_owned(), ttl, reaped: Some(2) };
        let promises = Promises { last_words_us: 1_000_000, ..PROMISES };
        ttl::check(&facts, &origin::check(&facts).unwrap(), &promises, &[life]).err().map(|violation| violation.rule)
    };
    assert_eq!(at(8_000_000, 10_900_000), early);
    assert_eq!(at(8_000_000, 11_000_000), None);
    assert_eq!(at(9_000_000, 11_000_000), None, "the next leader may have heard the former one until then");
    assert_eq!(at(30_000_000, 31_900_000), early, "21 s without a leader do not count");
    assert_eq!(at(30_000_000, 32_000_000), None);
}

fn judged(history: &History, promises: &Promises) -> Option<&'static str> {
    let facts = Facts::of(history).unwrap();
    expiry::check(&facts, &origin::check(&facts).unwrap(), promises).err().map(|violation| violation.rule)
}

#[test]
fn expiry_is_judged_by_the_last_promised_timeout() {
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
fn expiry_allows_for_an_unnoticed_stall_of_the_leaders_clock() {
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
fn expiry_allows_for_a_clock_stall_when_the_session_begins() {
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
fn stale_reads_and_endless_waits_are_reported() {
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
