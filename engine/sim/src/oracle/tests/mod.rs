//! Good histories break no rule. Every rule is broken by some good history with one change.

mod answers;
mod connection;
mod sessions;
mod writes;

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
    reap_us: None,
    last_words_us: u64::MAX,
    staleness_us: Some(60_000_000),
};

#[test]
fn valid_histories_break_no_rule() {
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

/// The documents and failing seeds cite a rule by its sentence. So a violation prints the sentence
/// first, then its story.
#[test]
fn violation_prints_its_rule_first_and_then_the_evidence() {
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
