//! Requests that are small to send and would be expensive to execute.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use zoolet_machine::{ConnId, Event, Limits};
use zoolet_model::{
    ConnectRequest, Create, CreateKind, CreateMode, ErrorCode, Perms, Reply, Request, RequestedAcl, WriteOp,
};
use zoolet_sim::client::{CONN, NOW, TIMEOUT_MS, create, delete};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, Told, tiny_limits};

fn connected() -> Machine {
    Machine::connected(&SimDisk::new(1), tiny_limits())
}

#[test]
fn multi_that_expands_beyond_the_entry_limit_is_refused() {
    let mut machine = connected();
    for n in 0..60 {
        let auth = Request::Auth { scheme: Some("digest".into()), auth: Some(Bytes::from(format!("user{n}:secret"))) };
        assert_eq!(machine.ask(auth), Ok(Reply::Empty));
    }
    let auth = RequestedAcl { perms: Perms::ALL, scheme: Some("auth".into()), id: Some("".into()) };
    let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
    let create_for_all = |n: usize| {
        let (path, acl) = (format!("/n{n}").into(), Some(vec![auth.clone()].into()));
        WriteOp::Create(Create { path, data: None, acl, mode, with_stat: false })
    };
    let ops = (0..50).map(create_for_all).collect();
    assert_eq!(machine.ask(Request::Multi(ops)), Err(ErrorCode::BadArguments));
    let one = create("/one", 0, CreateKind::Persistent);
    assert_eq!(machine.write(one), Ok(Reply::Path("/one".into())));
}

#[test]
fn connection_holds_at_most_64_identities() {
    let mut machine = connected();
    let mut last = Ok(Reply::Empty);
    for n in 0..100 {
        let auth = Request::Auth { scheme: Some("digest".into()), auth: Some(Bytes::from(format!("user{n}:secret"))) };
        last = machine.ask(auth);
        if last.is_err() {
            assert_eq!(n, 64);
            break;
        }
    }
    assert_eq!(last, Err(ErrorCode::AuthFailed));
}

#[test]
fn closing_3000_ephemerals_fetches_each_record_about_once() {
    let mut machine = connected();
    for n in 0..3000 {
        let ephemeral = create(format!("/e{n}"), 0, CreateKind::Ephemeral);
        assert!(machine.write(ephemeral).is_ok());
    }
    assert!(machine.base().generation().0 > 5, "most of them are only in the base");
    let asked_before = machine.server.fetches_asked();
    assert_eq!(machine.ask(Request::CloseSession), Ok(Reply::Empty));
    let asked = machine.server.fetches_asked() - asked_before;
    assert!(asked <= 3010, "each record is fetched once, not once per look: {asked}");
}

#[test]
fn paused_server_expires_no_session_before_a_full_timeout() {
    let mut machine = connected();
    machine.handle(Event::Disconnected { conn: CONN }).unwrap();
    machine.advance(3_600_000).unwrap();
    for _ in 0..89 {
        machine.advance(100).unwrap();
        assert_eq!(machine.server.sessions(), 1);
    }
    machine.advance(100).unwrap();
    machine.advance(100).unwrap();
    assert_eq!(machine.server.sessions(), 0, "silent for its timeout, and heard out");
}

#[test]
fn failed_fetch_fails_only_the_request_that_needs_it() {
    let disk = SimDisk::new(1);
    let mut machine = Machine::connected(&disk, tiny_limits());
    for path in
        ["/a".to_owned(), "/b".to_owned(), "/c".to_owned()].into_iter().chain((0..300).map(|n| format!("/n{n}")))
    {
        let write = create(path, 0, CreateKind::Persistent);
        assert!(machine.write(write).is_ok());
    }
    drop(machine);
    let mut machine = Machine::connected(&disk, tiny_limits());
    machine.unreadable = ["/a", "/b"].iter().filter_map(|path| zoolet_machine::record::key::znode(path)).collect();
    let get = |path: &str| zoolet_model::ReadOp::GetData { path: path.into() };
    let both = Request::MultiRead(vec![get("/a"), get("/b")]);
    let after = Request::GetData { path: "/c".into(), watch: false };
    machine.server.handle(NOW, Event::Request { conn: CONN, xid: 1, request: both });
    machine.server.handle(NOW, Event::Request { conn: CONN, xid: 2, request: after });
    machine.settle().unwrap();
    let answer = |told: &Told| match told {
        Told::Reply(_, xid, _, result) => (*xid, result.is_ok()),
        other => panic!("{other:?}"),
    };
    let answers: Vec<_> = machine.told.iter().map(answer).collect();
    assert_eq!(answers, [(1, false), (2, true)]);
}

/// Regression: seed 287 of a standalone server. After a restart the session's ephemerals were not
/// known, and the base could not tell. The refusal overtook the answer to an earlier write.
#[test]
fn write_refused_by_a_failed_fetch_is_answered_in_order() {
    let disk = SimDisk::new(1);
    let mut machine = Machine::start(&disk, tiny_limits(), NOW).unwrap();
    let session = machine.connect(CONN, ConnectRequest::for_new_session(TIMEOUT_MS));
    for n in 0..300 {
        assert!(machine.write(create(format!("/n{n}"), 0, CreateKind::Persistent)).is_ok());
    }
    drop(machine);
    let mut machine = Machine::start(&disk, tiny_limits(), NOW).unwrap();
    let password = Some(Bytes::copy_from_slice(&session.secret.0));
    machine.connect(
        CONN,
        ConnectRequest { session: session.session, password, ..ConnectRequest::for_new_session(TIMEOUT_MS) },
    );
    machine.unreadable = vec![zoolet_machine::record::key::ephemerals_prefix(session.session)];
    machine.told.clear();
    let writes = [create("/p", 0, CreateKind::Persistent), create("/e", 0, CreateKind::Ephemeral), delete("/p")];
    for (xid, write) in (1..).zip(writes) {
        machine.handle(Event::Request { conn: CONN, xid, request: Request::Write(write) }).unwrap();
    }
    machine.settle().unwrap();
    let answers = machine.told.iter().map(|told| match told {
        Told::Reply(_, xid, _, result) => (*xid, result.clone().err()),
        other => panic!("{other:?}"),
    });
    assert_eq!(answers.collect::<Vec<_>>(), [(1, None), (2, Some(ErrorCode::SystemError)), (3, None)]);
}

#[test]
fn session_owns_at_most_ephemerals_per_session_max() {
    let disk = SimDisk::new(1);
    let limits = Limits { ephemerals_per_session_max: 100, ..tiny_limits() };
    let mut machine = Machine::start(&disk, limits, NOW).unwrap();
    let ephemeral = |n: usize| create(format!("/e{n}"), 0, CreateKind::Ephemeral);
    let session = machine.connect(CONN, ConnectRequest::for_new_session(TIMEOUT_MS));
    // All at once: requested ephemerals count before they exist.
    machine.told.clear();
    for n in 0..150 {
        let event = Event::Request { conn: CONN, xid: n as i32, request: Request::Write(ephemeral(n)) };
        machine.server.handle(NOW, event);
    }
    machine.settle().unwrap();
    let created = |machine: &Machine| {
        machine.told.iter().filter(|told| matches!(told, Told::Reply(_, _, _, Ok(Reply::Path(_))))).count()
    };
    assert_eq!((created(&machine), machine.told.len()), (100, 150));
    let two = Request::Multi(vec![ephemeral(200), ephemeral(201)]);
    assert_eq!(machine.write(delete("/e7")), Ok(Reply::Empty));
    assert_eq!(machine.ask(two.clone()), Err(ErrorCode::SystemError));
    assert!(machine.write(ephemeral(202)).is_ok());
    assert!(machine.write(create("/p", 0, CreateKind::Persistent)).is_ok());
    drop(machine);

    // The same for a session from before a restart, whose ephemerals are in the base.
    let mut machine = Machine::start(&disk, limits, NOW).unwrap();
    let password = Some(Bytes::copy_from_slice(&session.secret.0));
    let resumed = ConnectRequest { session: session.session, password, ..ConnectRequest::for_new_session(TIMEOUT_MS) };
    machine.connect(CONN, resumed);
    assert_eq!(machine.write(ephemeral(300)), Err(ErrorCode::SystemError));
    assert_eq!(machine.write(delete("/e8")), Ok(Reply::Empty));
    assert!(machine.write(ephemeral(300)).is_ok());
    assert_eq!(machine.ask(Request::CloseSession), Ok(Reply::Empty));
}

/// A multi may delete a znode and create it again, or the reverse. The count depends on the znodes
/// that exist afterwards, and not on the number of operations.
#[test]
fn multis_that_delete_and_recreate_a_path_keep_the_ephemeral_count() {
    const OTHER: ConnId = ConnId(2);
    let disk = SimDisk::new(1);
    let limits = Limits { ephemerals_per_session_max: 10, ..tiny_limits() };
    let mut machine = Machine::start(&disk, limits, NOW).unwrap();
    let ephemeral = |path: &str| create(path.to_owned(), 0, CreateKind::Ephemeral);
    let session = machine.connect(CONN, ConnectRequest::for_new_session(TIMEOUT_MS)).session;
    let other = machine.connect(OTHER, ConnectRequest::for_new_session(TIMEOUT_MS)).session;
    let owned = |machine: &Machine, session| machine.server.counts().owned.get(&session).copied();
    let again = |ops: &[WriteOp], machine: &mut Machine| {
        for _ in 0..20_000 {
            assert!(matches!(machine.ask(Request::Multi(ops.to_vec())), Ok(Reply::Multi(_))));
        }
    };
    assert!(machine.write(ephemeral("/e")).is_ok());
    again(&[delete("/e"), ephemeral("/e")], &mut machine);
    assert_eq!(owned(&machine, session), Some(1), "each multi counted up");
    again(&[ephemeral("/f"), delete("/f")], &mut machine);
    assert_eq!(owned(&machine, session), Some(1), "each multi counted down");
    again(&[delete("/e"), ephemeral("/e"), delete("/e"), ephemeral("/e")], &mut machine);
    assert_eq!((owned(&machine, session), owned(&machine, other)), (Some(1), Some(0)));
    // The bound has not moved, for this session or for another one.
    for n in 0..9 {
        assert!(machine.write(ephemeral(&format!("/e{n}"))).is_ok(), "{n}");
    }
    assert_eq!(machine.write(ephemeral("/e9")), Err(ErrorCode::SystemError));
    let mine = Request::Write(ephemeral("/other"));
    machine.told.clear();
    machine.handle(Event::Request { conn: OTHER, xid: 1, request: mine }).unwrap();
    machine.settle().unwrap();
    assert!(matches!(machine.told[..], [Told::Reply(OTHER, 1, _, Ok(Reply::Path(_)))]), "{:?}", machine.told);
    assert_eq!(machine.server.derived().into_iter().find(|number| !number.is_true()), None);
}

#[test]
fn full_disk_refuses_writes_at_admission_until_there_is_space() {
    let disk = SimDisk::new(1);
    let mut machine = Machine::start(&disk, tiny_limits(), NOW).unwrap();
    machine.connect(CONN, ConnectRequest::for_new_session(40_000));
    let write = |n: usize| create(format!("/n{n}"), 0, CreateKind::Persistent);
    // Write until the ring has all its segments.
    for n in 0..500 {
        assert!(machine.write(write(n)).is_ok());
    }
    disk.set_capacity(Some(disk.used_bytes()));
    let refused = (500..2000).find(|&n| match machine.write(write(n)) {
        Ok(_) => false,
        Err(code) => code == ErrorCode::SystemError || panic!("{code:?}"),
    });
    let refused = refused.expect("memory and log take no more at some point");
    let zxid = machine.server.applied();
    assert_eq!(machine.write(write(refused)), Err(ErrorCode::SystemError));
    assert_eq!(machine.server.applied(), zxid, "what is refused is not ordered");
    let read = Request::GetData { path: "/n7".into(), watch: false };
    assert!(machine.ask(read.clone()).is_ok());
    assert_eq!(machine.write(delete("/n8")), Ok(Reply::Empty), "deletes use the reserve");

    disk.set_capacity(None);
    for _ in 0..40 {
        machine.advance(1000).unwrap();
        machine.handle(Event::Request { conn: CONN, xid: -2, request: Request::Ping }).unwrap();
    }
    assert!(machine.write(write(refused)).is_ok());
    assert!(machine.ask(read).is_ok());
}

#[test]
fn identities_of_all_clients_are_bounded_and_freed_on_close() {
    let limits = Limits { connections_max: 8, ..tiny_limits() };
    let mut machine = Machine::start(&SimDisk::new(1), limits, NOW).unwrap();
    let prove = |machine: &mut Machine, conn: u64| {
        let conn = ConnId(conn);
        machine.connect(conn, ConnectRequest::for_new_session(TIMEOUT_MS));
        (0..64)
            .take_while(|n| {
                machine.told.clear();
                let auth = Some(Bytes::from(format!("{n}{}:secret", "u".repeat(1000))));
                let request = Request::Auth { scheme: Some("digest".into()), auth };
                machine.handle(Event::Request { conn, xid: 1, request }).unwrap();
                matches!(machine.told.first(), Some(Told::Reply(_, _, _, Ok(_))))
            })
            .count()
    };
    // All connections share 64 KiB for identities. One more identity closes the connection.
    assert_eq!(prove(&mut machine, 1), 57);
    assert_eq!(prove(&mut machine, 2), 57, "what the first had is forgotten");
}
