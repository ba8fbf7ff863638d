//! Compares the oracles with a linearizability check that knows no zxids.
//!
//! Wing and Gong's search asks: is there an order of the operations on one znode that agrees with
//! true time and makes each answer right? It takes exponential time, and looks only at requests,
//! answers and their times. It must accept every history that the oracles accept.

use super::*;
use crate::reference::{RefOutput, Reference};
use crate::workload::Random;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;
use zoolet_machine::ConnId;
use zoolet_machine::record::acl::Identity;
use zoolet_machine::txn::{self, Header, Op, Txn};
use zoolet_model::{
    ConnectReply, ConnectRequest, ErrorCode, Reply, Request, ServerId, SessionId, SessionSecret, WriteOp, Zxid,
};

// The search.

/// The znode: its data, and how often it was set; `None` if it does not exist.
type State = Option<(Bytes, i32)>;

#[derive(Clone, Debug)]
enum Act {
    Set(Bytes),
    Delete,
    Create(Bytes),
    Read,
}

#[derive(Clone, Debug)]
struct Call {
    act: Act,
    from_us: u64,
    /// `u64::MAX` if never answered.
    to_us: u64,
    /// The result that the caller saw; an error as its code.
    ///
    /// A write of data shows the version, a read shows data and version.
    saw: Option<Result<State, ErrorCode>>,
}

/// Returns the znode's next state, and the result that the caller sees.
fn sequentially(state: &State, act: &Act) -> (State, Result<State, ErrorCode>) {
    match (act, state) {
        (Act::Set(_) | Act::Delete, None) => (None, Err(ErrorCode::NoNode)),
        (Act::Set(data), Some((_, version))) => {
            let after = Some((data.clone(), version + 1));
            (after.clone(), Ok(after))
        }
        (Act::Delete, Some(_)) => (None, Ok(None)),
        (Act::Create(_), Some(_)) => (state.clone(), Err(ErrorCode::NodeExists)),
        (Act::Create(data), None) => {
            let after = Some((data.clone(), 0));
            (after.clone(), Ok(after))
        }
        (Act::Read, None) => (None, Err(ErrorCode::NoNode)),
        (Act::Read, Some(_)) => (state.clone(), Ok(state.clone())),
    }
}

/// Returns whether some order of the calls is valid.
fn is_linearizable(calls: &[Call]) -> bool {
    assert!(calls.len() <= 32, "short histories only");
    let mut hopeless: BTreeSet<(u32, State)> = BTreeSet::new();
    search(calls, 0, &None, &mut hopeless)
}

fn search(calls: &[Call], done: u32, state: &State, hopeless: &mut BTreeSet<(u32, State)>) -> bool {
    let left = |at: usize| done & (1 << at) == 0;
    let must = (0..calls.len()).filter(|&at| left(at) && calls[at].to_us < u64::MAX);
    // An answered call takes effect before every call that began after its answer.
    let Some(bound_us) = must.map(|at| calls[at].to_us).min() else { return true };
    if hopeless.contains(&(done, state.clone())) {
        return false;
    }
    for at in (0..calls.len()).filter(|&at| left(at) && calls[at].from_us <= bound_us) {
        let (after, seen) = sequentially(state, &calls[at].act);
        if calls[at].saw.as_ref().is_none_or(|saw| *saw == seen) && search(calls, done | 1 << at, &after, hopeless) {
            return true;
        }
    }
    hopeless.insert((done, state.clone()));
    false
}

// Runs on one znode, right or wrong.

const SERVER: ServerId = ServerId::STANDALONE;
const PATH: &str = "/r";

/// A planned call. `effect_us` is the time at which it takes effect or reads the state; `None` if
/// never.
struct Planned {
    call: Call,
    client: u32,
    effect_us: Option<u64>,
}

/// Plans clients that each make one call at a time. In a wrong run some effects lie outside of
/// their calls.
fn plan(random: &mut Random, is_right: bool) -> Vec<Planned> {
    let mut planned = Vec::new();
    for client in 0..3 {
        let mut now_us = 10_000 + random.below(200);
        for serial in 0..4 {
            let from_us = now_us + 1 + random.below(100);
            let to_us = from_us + 2 + random.below(200);
            now_us = to_us;
            let data = Bytes::from(format!("{client}.{serial}"));
            let act = match random.below(8) {
                0 | 1 => Act::Create(data),
                2 => Act::Delete,
                3 | 4 => Act::Set(data),
                _ => Act::Read,
            };
            // A client without an answer goes on all the same, on another connection.
            let unanswered = random.one_in(8) && !matches!(act, Act::Read);
            let mut effect_us = Some(from_us + 1 + random.below(to_us - from_us - 1));
            if unanswered && random.one_in(2) {
                effect_us = None;
            }
            if !is_right && random.one_in(4) {
                let shifted = effect_us.map(|at| (at + random.below(400)).saturating_sub(200));
                effect_us = shifted;
            }
            let to_us = if unanswered { u64::MAX } else { to_us };
            planned.push(Planned { call: Call { act, from_us, to_us, saw: None }, client, effect_us });
        }
    }
    planned
}

/// Computes each call's result with the reference, and records it all as a run of one server.
///
/// A read is a sync and a getData.
fn carry_out(planned: &mut [Planned]) -> History {
    let mut events: Vec<(u64, u8, usize)> = Vec::new();
    for (at, one) in planned.iter().enumerate() {
        events.push((one.call.from_us, 0, at));
        events.extend(one.effect_us.map(|effect_us| (effect_us, 1, at)));
        events.push((one.call.to_us.min(one.call.from_us + 300), 2, at));
    }
    events.sort_unstable();
    let mut recorder = Recorder::new();
    let mut reference = Reference::new(None);
    let mut last = Zxid::ZERO;
    let entry = |recorder: &mut Recorder, at_us: u64, last: &mut Zxid, txn: &Txn<'_>| {
        *last = last.next().unwrap();
        let payload = txn::encode(Header::default(), txn, &mut BytesMut::new());
        recorder.committed(at_us, *last, &payload);
        last.as_i64()
    };
    // Each call has its own session and connection. So only true time orders the calls, not a
    // session's order.
    for (at, one) in planned.iter().enumerate() {
        let (conn, client) = (ConnId(at as u64 + 1), ClientId(one.client));
        recorder.connecting(1, client, conn, SERVER, None, ConnectRequest::for_new_session(9000));
        let secret = SessionSecret([at as u8; 16]);
        let session = entry(&mut recorder, 1, &mut last, &Txn::CreateSession { timeout_ms: 9000, secret, home: None });
        reference.create_session(session);
        reference.attach(conn, session, None);
        let reply = ConnectReply {
            timeout_ms: 9000,
            session: SessionId(session),
            secret,
            read_only_byte: false,
            read_only_ms: None,
        };
        recorder.connected(1, conn, reply);
    }
    let mut answers: Vec<Vec<(i64, Result<Reply, ErrorCode>)>> = planned.iter().map(|_| Vec::new()).collect();
    let before = reference.clone();
    for (at_us, what, at) in events {
        let conn = ConnId(at as u64 + 1);
        let requests = requests(&planned[at].call.act);
        match what {
            0 => {
                for (xid, request) in (1..).zip(&requests) {
                    recorder.invoked(at_us, conn, xid, request.clone());
                }
            }
            1 => {
                for (xid, request) in (1..).zip(&requests) {
                    if Reference::is_ordered(request) {
                        let session = SessionId(at as i64 + 1);
                        let op = op(request);
                        entry(
                            &mut recorder,
                            at_us,
                            &mut last,
                            &Txn::Write { session, identity: Identity::default(), op },
                        );
                    }
                    for output in reference.apply(conn, xid, request, last.as_i64(), 0) {
                        if let RefOutput::Reply { zxid, result, .. } = output {
                            answers[at].push((zxid, result));
                        }
                    }
                }
            }
            _ => {
                let one = &mut planned[at].call;
                if one.to_us == u64::MAX {
                    recorder.ended(at_us, conn, End::Lost);
                    continue;
                }
                // The effect comes after the answer. The answer shows the state before all calls.
                if answers[at].is_empty() {
                    let mut before = before.clone();
                    let zxid = before.last_zxid() + 1000;
                    for (xid, request) in (1..).zip(&requests) {
                        for output in before.apply(conn, xid, request, zxid, 0) {
                            if let RefOutput::Reply { zxid, result, .. } = output {
                                answers[at].push((zxid, result));
                            }
                        }
                    }
                }
                one.saw = answers[at].last().map(|(_, result)| seen(&one.act, result));
                for (xid, (zxid, result)) in (1..).zip(answers[at].clone()) {
                    recorder.answered(at_us, conn, xid, zxid, result);
                }
            }
        }
    }
    recorder.finish(1_000_000, false)
}

fn requests(act: &Act) -> Vec<Request> {
    use crate::client;
    use zoolet_model::{CreateKind, Text};
    let path = Text::from_static(PATH);
    match act {
        Act::Create(data) => {
            let WriteOp::Create(create) = client::create(PATH, 0, CreateKind::Persistent) else { return Vec::new() };
            vec![Request::Write(WriteOp::Create(zoolet_model::Create { data: Some(data.clone()), ..create }))]
        }
        Act::Delete => vec![Request::Write(WriteOp::Delete { path, version: -1 })],
        Act::Set(data) => vec![Request::Write(WriteOp::SetData { path, data: Some(data.clone()), version: -1 })],
        Act::Read => vec![Request::Sync { path: None }, Request::GetData { path, watch: false }],
    }
}

fn op(request: &Request) -> Op<'_> {
    match request {
        Request::Write(WriteOp::Create(create)) => Op::Create {
            path: PATH,
            data: create.data.as_deref(),
            acl: &[],
            kind: zoolet_model::CreateKind::Persistent,
            sequential: false,
            with_stat: false,
        },
        Request::Write(WriteOp::Delete { version, .. }) => Op::Delete { path: PATH, version: *version },
        Request::Write(WriteOp::SetData { data, version, .. }) => {
            Op::SetData { path: PATH, data: data.as_deref(), version: *version }
        }
        other => panic!("never asked for here: {other:?}"),
    }
}

fn seen(act: &Act, result: &Result<Reply, ErrorCode>) -> Result<State, ErrorCode> {
    match (act, result) {
        (_, Err(code)) => Err(*code),
        (Act::Create(data), Ok(_)) => Ok(Some((data.clone(), 0))),
        (Act::Set(data), Ok(Reply::Stat(stat))) => Ok(Some((data.clone(), stat.version))),
        (Act::Delete, Ok(_)) => Ok(None),
        (Act::Read, Ok(Reply::Data(data, stat))) => Ok(Some((data.clone().unwrap_or_default(), stat.version))),
        (act, Ok(reply)) => panic!("{act:?} is never answered {reply:?}"),
    }
}

#[test]
fn histories_the_oracles_accept_are_linearizable() {
    let (mut right, mut wrong, mut caught) = (0, 0, 0);
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let is_right = random.one_in(3);
        let mut planned = plan(&mut random, is_right);
        let history = carry_out(&mut planned);
        let calls: Vec<Call> = planned.into_iter().map(|one| one.call).collect();
        let verdict = check(&history);
        let linearizable = is_linearizable(&calls);
        if is_right {
            right += 1;
            assert_eq!(verdict, Ok(()), "seed {seed}");
            assert!(linearizable, "seed {seed}: {calls:#?}");
        } else {
            assert!(verdict.is_err() || linearizable, "seed {seed}: only the search objects: {calls:#?}");
            wrong += u64::from(!linearizable);
            caught += u64::from(verdict.is_err());
        }
    }
    // Not every wrong run shows in the values. Where it does, both checks must have found it often.
    assert!(right > 500 && wrong > 300 && caught >= wrong, "{right} {wrong} {caught}");
}

#[test]
fn linearizability_search_accepts_valid_and_rejects_invalid_histories() {
    let call = |act: Act, from_us: u64, to_us: u64, saw: Result<State, ErrorCode>| Call {
        act,
        from_us,
        to_us,
        saw: Some(saw),
    };
    let a = Some((Bytes::from_static(b"a"), 0));
    let create = |from_us, to_us| call(Act::Create(Bytes::from_static(b"a")), from_us, to_us, Ok(a.clone()));
    let there = |from_us, to_us| call(Act::Read, from_us, to_us, Ok(a.clone()));
    let absent = |from_us, to_us| call(Act::Read, from_us, to_us, Err(ErrorCode::NoNode));
    assert!(is_linearizable(&[create(1, 4), there(2, 3), there(5, 6)]));
    assert!(is_linearizable(&[create(1, 4), absent(2, 3), there(2, 3)]));
    assert!(!is_linearizable(&[create(1, 4), there(2, 3), absent(4, 6)]), "a read goes back behind another");
    assert!(!is_linearizable(&[create(1, 2), absent(3, 4)]), "a read misses what was acknowledged");
    assert!(!is_linearizable(&[there(1, 2), create(3, 4)]), "a read from the future");
    let never = Call { to_us: u64::MAX, saw: None, ..create(1, 1) };
    assert!(is_linearizable(&[never.clone(), absent(2, 3), there(4, 5)]), "it may take effect late");
    assert!(is_linearizable(&[never, absent(2, 3)]), "or never");
}
