//! One session that sends reads and writes without waiting.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::{Event, Limits};
use zoolet_model::{CreateKind, ErrorCode, ReadOp, ReadResult, Reply, Request, Text};
use zoolet_sim::client::{CONN, NOW, create, get, set};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, Told, tiny_limits};

fn send(machine: &mut Machine, requests: Vec<Request>) {
    machine.told.clear();
    for (xid, request) in (1..).zip(requests) {
        machine.handle(Event::Request { conn: CONN, xid, request }).unwrap();
    }
}

/// Writes until only the base has the earlier records.
fn fill_memory(machine: &mut Machine) {
    for round in 0..200 {
        machine.write(create(format!("/fill{round}"), 200, CreateKind::Persistent)).unwrap();
    }
}

/// The xid of each answer, with its error or the version shown.
///
/// The version is -1 if a success shows none.
type Answers = Vec<(i32, Result<i32, ErrorCode>)>;

fn answers(machine: &Machine) -> Answers {
    let answer = |told: &Told| match told {
        Told::Reply(_, xid, _, Ok(Reply::Data(_, stat) | Reply::Stat(stat))) => Some((*xid, Ok(stat.version))),
        Told::Reply(_, xid, _, Ok(_)) => Some((*xid, Ok(-1))),
        Told::Reply(_, xid, _, Err(code)) => Some((*xid, Err(*code))),
        Told::Connected(..) | Told::Closed(_) => None,
    };
    machine.told.iter().filter_map(answer).collect()
}

#[test]
fn pipelined_writes_persist_together_and_reads_see_earlier_writes() {
    let mut machine = Machine::connected(&SimDisk::new(1), Limits::default());
    machine.write(create("/a", 1, CreateKind::Persistent)).unwrap();
    let write = || Request::Write(set("/a", 1));
    send(&mut machine, vec![write(), get("/a"), write(), get("/a"), Request::Ping, write(), get("/a")]);
    assert_eq!(machine.server.unapplied(), 3, "all three are with the log");
    machine.settle().unwrap();
    let versions = [(1, 1), (2, 1), (3, 2), (4, 2), (-2, -1), (6, 3), (7, 3)];
    assert_eq!(answers(&machine), versions.map(|(xid, version)| (xid, Ok(version))));
}

#[test]
fn barrier_requests_hold_back_later_pipelined_writes() {
    let barriers = [
        Request::Sync { path: Some(Text::from("/")) },
        Request::GetChildren { path: Text::from("/"), watch: false, with_stat: false },
        Request::Auth { scheme: Some(Text::from("digest")), auth: Some("a:b".into()) },
        Request::Write(create("/e", 1, CreateKind::Ephemeral)),
        // The data of this znode is only in the base.
        get("/large"),
    ];
    for barrier in barriers {
        let mut machine = Machine::connected(&SimDisk::new(1), tiny_limits());
        machine.write(create("/large", 4000, CreateKind::Persistent)).unwrap();
        fill_memory(&mut machine);
        machine.write(create("/a", 1, CreateKind::Persistent)).unwrap();
        let write = || Request::Write(set("/a", 1));
        send(&mut machine, vec![write(), get("/a"), barrier.clone(), write()]);
        assert_eq!(machine.server.unapplied(), 1, "{barrier:?}");
        machine.settle().unwrap();
        assert_eq!(answers(&machine).len(), 4, "{barrier:?}");
        assert_eq!(answers(&machine)[3], (4, Ok(2)), "{barrier:?}");
    }
}

#[test]
fn entry_waits_for_an_earlier_read_until_that_read_fails() {
    let mut machine = Machine::connected(&SimDisk::new(1), tiny_limits());
    machine.write(create("/cold", 1, CreateKind::Persistent)).unwrap();
    machine.write(create("/a", 1, CreateKind::Persistent)).unwrap();
    fill_memory(&mut machine);
    machine.unreadable = vec![zoolet_machine::record::key::with_znode("/cold", |key| key.into()).unwrap()];
    let write = || Request::Write(set("/a", 1));
    send(&mut machine, vec![write(), get("/cold"), write()]);
    machine.settle().unwrap();
    assert_eq!(answers(&machine), [(1, Ok(1)), (2, Err(ErrorCode::SystemError)), (3, Ok(2))]);
    assert_eq!(machine.server.unapplied(), 0);
}

const COLD: [&str; 5] = ["/cold0", "/cold1", "/cold2", "/cold3", "/cold4"];

/// Returns a server that has every record of [`COLD`] only in its base.
fn with_cold_znodes() -> Machine {
    let mut machine = Machine::connected(&SimDisk::new(1), tiny_limits());
    for path in COLD.into_iter().chain(["/a"]) {
        machine.write(create(path, 1, CreateKind::Persistent)).unwrap();
    }
    fill_memory(&mut machine);
    machine
}

fn io(count: usize) -> Vec<BaseFailure> {
    vec![BaseFailure::Io("this generation ended".into()); count]
}

/// Returns the answers to a read and three more requests, and the fetches.
///
/// The base answers the first fetches with the failures in `failing`.
fn answers_from(read: Request, failing: Vec<BaseFailure>) -> (Answers, u64) {
    let mut machine = with_cold_znodes();
    machine.ask(get("/a")).unwrap();
    machine.told.clear();
    machine.failing = failing;
    let asked = machine.server.fetches_asked();
    // The base answers no fetch before the last request has arrived.
    for (xid, request) in (1..).zip([read, get("/a"), Request::Write(set("/a", 1)), get("/a")]) {
        machine.server.handle(NOW, Event::Request { conn: CONN, xid, request });
    }
    machine.settle().unwrap();
    assert_eq!(machine.server.unapplied(), 0);
    (answers(&machine), machine.server.fetches_asked() - asked)
}

/// Regression: a base that is reopened after a disk error ends its open generations. A client got
/// SYSTEMERROR for that, in one of some thousands of reads while a disk became read-only.
#[test]
fn read_that_fails_once_is_retried_and_answered_in_order() {
    let (told, asked) = answers_from(get("/cold0"), io(1));
    assert_eq!(told, [(1, Ok(0)), (2, Ok(0)), (3, Ok(1)), (4, Ok(1))]);
    assert_eq!(asked, 2);
    let all = Request::MultiRead(COLD.map(|path| ReadOp::GetData { path: path.into() }).into());
    // Each record is fetched once more.
    let (told, _) = answers_from(all, io(COLD.len()));
    assert_eq!(told, [(1, Ok(-1)), (2, Ok(0)), (3, Ok(1)), (4, Ok(1))]);
}

#[test]
fn read_that_fails_twice_or_hits_damage_is_refused_in_order() {
    let damage = || BaseFailure::Damaged("a checksum".into());
    for (failing, asked) in [(io(2), 2), (vec![damage()], 1), ([vec![damage()], io(1)].concat(), 2)] {
        let context = format!("{failing:?}");
        let refused = vec![(1, Err(ErrorCode::SystemError)), (2, Ok(0)), (3, Ok(1)), (4, Ok(1))];
        assert_eq!(answers_from(get("/cold0"), failing), (refused, asked), "{context}");
    }
}

/// Regression: the failures of all records were counted together, and four records with the same
/// error exceeded the limit for one entry.
#[test]
fn entry_survives_four_failed_fetches_of_each_record() {
    let sets: Vec<_> = COLD.iter().map(|path| set(*path, 1)).collect();
    let answers_after = |rounds| {
        let mut machine = with_cold_znodes();
        machine.failing = io(rounds * COLD.len());
        send(&mut machine, vec![Request::Multi(sets.clone())]);
        machine.settle().map(|()| answers(&machine))
    };
    // The records are first fetched while the entry is being persisted, when nothing waits for
    // them. Then they are fetched up to four times.
    for rounds in 0..=4 {
        assert_eq!(answers_after(rounds), Ok(vec![(1, Ok(-1))]), "{rounds}");
    }
    assert!(answers_after(5).is_err(), "it cannot be skipped");
}

/// Regression: reads of a multiRead without data cost nothing, so one request could make the server
/// hold a hundred bytes for each of 70,000 of them.
#[test]
fn multi_read_is_charged_for_each_read() {
    let limits = Limits { outbound_bytes_max: 64 << 10, ..Limits::default() };
    let mut machine = Machine::connected(&SimDisk::new(1), limits);
    for (count, is_allowed) in [(500, true), (1000, false)] {
        let read = ReadOp::GetData { path: Text::from("/no") };
        send(&mut machine, vec![Request::MultiRead(vec![read; count])]);
        machine.settle().unwrap();
        let told: Vec<_> = machine.told.drain(..).collect();
        let is_as_expected = match &told[..] {
            [Told::Reply(_, 1, _, Ok(Reply::MultiRead(results)))] => is_allowed && results.len() == count,
            [Told::Reply(_, 1, _, Err(ErrorCode::BadArguments))] => !is_allowed,
            _ => false,
        };
        assert!(is_as_expected, "{count} reads");
    }
}

/// Surface 2.5, with at most eight reads, which a server completes at once, and with many more.
#[test]
fn broken_multi_read_returns_the_results_before_its_unreadable_op() {
    let mut machine = Machine::connected(&SimDisk::new(1), Limits::default());
    machine.write(create("/a", 1, CreateKind::Persistent)).unwrap();
    let read = |path| ReadOp::GetChildren { path: Text::from(path) };
    for count in [0, 1, 20] {
        let mut reads = vec![read("/a"); count];
        reads.extend([read("/no"), ReadOp::Unreadable, read("/a")]);
        send(&mut machine, vec![Request::MultiRead(reads)]);
        machine.settle().unwrap();
        let mut results = vec![ReadResult::Children(vec![].into()); count];
        results.push(ReadResult::Failed(ErrorCode::NoNode));
        let told: Vec<_> = machine.told.drain(..).collect();
        assert!(
            matches!(&told[..], [Told::Reply(_, 1, _, Ok(Reply::MultiReadBroken(told)))] if *told == results),
            "{told:?}"
        );
    }
}
