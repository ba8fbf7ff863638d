//! Requests over TCP behave like requests of a session in the server's process.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use bytes::Bytes;
use std::borrow::Cow;
use std::pin::pin;
use zoolet_model::{
    AddWatchMode, Create, CreateKind, CreateMode, ErrorCode, EventKind, OpResult, Path, Perms, Reply, Request,
    RequestError, RequestedAcl, SessionState, Text, WatchItem, WriteOp,
};
use zoolet_recipes::{Coordinator, Remote};
use zoolet_remote_tests::{Server, below, run, site, within};

fn create(path: &Path, data: Option<&'static str>, kind: CreateKind, sequential: bool) -> WriteOp {
    WriteOp::Create(Create {
        path: path.text().clone(),
        data: data.map(|data| Bytes::from_static(data.as_bytes())),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind, sequential },
        with_stat: true,
    })
}

fn set(path: &Path, data: &'static str, version: i32) -> WriteOp {
    WriteOp::SetData { path: path.text().clone(), data: Some(Bytes::from_static(data.as_bytes())), version }
}

fn delete(path: &Path, version: i32) -> WriteOp {
    WriteOp::Delete { path: path.text().clone(), version }
}

async fn write(session: &Remote, op: WriteOp) -> Result<Reply, RequestError> {
    within(session.submit(Request::Write(op))).await
}

async fn read(session: &Remote, path: &Path) -> Result<Reply, RequestError> {
    within(session.submit(Request::GetData { path: path.text().clone(), watch: false })).await
}

fn refused<T>(code: ErrorCode) -> Result<T, RequestError> {
    Err(RequestError::Refused(code))
}

#[test]
fn replies_carry_every_field_of_the_servers_answer() {
    let server = Server::start();
    run(async {
        let session = server.session().await;
        let path = site(&session).await;
        let Ok(Reply::PathStat(made, stat)) =
            write(&session, create(&path, Some("one"), CreateKind::Persistent, false)).await
        else {
            panic!("it is made")
        };
        assert_eq!((&made, stat.version, stat.data_length, stat.ephemeral_owner), (path.text(), 0, 3, 0));
        assert!(stat.czxid > 0 && stat.mzxid == stat.czxid && stat.ctime == stat.mtime && stat.ctime > 0);
        assert_eq!(write(&session, set(&path, "two!", 5)).await, refused(ErrorCode::BadVersion));
        let Ok(Reply::Stat(changed)) = write(&session, set(&path, "two!", 0)).await else { panic!("it is set") };
        assert_eq!((changed.version, changed.data_length, changed.czxid), (1, 4, stat.czxid));
        assert!(changed.mzxid > stat.mzxid);

        let ephemeral = below(&path, "e-");
        let Ok(Reply::PathStat(one, own)) =
            write(&session, create(&ephemeral, None, CreateKind::Ephemeral, true)).await
        else {
            panic!("it is made")
        };
        assert_eq!(one, format!("{path}/e-0000000000").as_str());
        assert_eq!(own.ephemeral_owner, session.session().0);
        assert_ne!(session.session().0, 0);
        let container = write(&session, create(&below(&path, "c"), None, CreateKind::Container, false)).await;
        assert!(matches!(container, Ok(Reply::PathStat(..))), "{container:?}");

        assert_eq!(
            read(&session, &path).await,
            Ok(Reply::Data(Some("two!".into()), {
                let Ok(Reply::Stat(now)) =
                    within(session.submit(Request::Exists { path: path.text().clone(), watch: false })).await
                else {
                    panic!("it is there")
                };
                assert_eq!((now.num_children, now.cversion, now.version), (2, 2, 1));
                now
            }))
        );
        let list = |with_stat| Request::GetChildren { path: path.text().clone(), watch: false, with_stat };
        let Ok(Reply::Names(names)) = within(session.submit(list(false))).await else { panic!("names") };
        assert_eq!(names.iter().collect::<Vec<_>>(), ["c", "e-0000000000"]);
        let Ok(Reply::NamesStat(same, stat)) = within(session.submit(list(true))).await else { panic!("names") };
        assert_eq!((same, stat.num_children), (names, 2));
        let Ok(Reply::Data(None, stat)) = read(&session, &below(&path, "e-0000000000")).await else {
            panic!("undefined data is read as such")
        };
        assert_eq!(stat.data_length, 0);

        let none = below(&path, "none");
        assert_eq!(read(&session, &none).await, refused(ErrorCode::NoNode));
        assert_eq!(write(&session, delete(&none, -1)).await, refused(ErrorCode::NoNode));
        assert_eq!(write(&session, delete(&path, -1)).await, refused(ErrorCode::NotEmpty));
        let again = create(&path, None, CreateKind::Persistent, false);
        assert_eq!(write(&session, again).await, refused(ErrorCode::NodeExists));
        let child = create(&below(&Path::new(one).unwrap(), "x"), None, CreateKind::Persistent, false);
        assert_eq!(write(&session, child).await, refused(ErrorCode::NoChildrenForEphemerals));
        let sync = Request::Sync { path: None };
        assert_eq!(within(session.submit(sync)).await, Ok(Reply::Synced(None)));
        let closed = within(session.submit(Request::WhoAmI)).await;
        assert_eq!(closed, refused(ErrorCode::Unimplemented));
    });
}

#[test]
fn permissions_are_set_as_requested() {
    let server = Server::start();
    run(async {
        let session = server.session().await;
        let path = site(&session).await;
        write(&session, create(&path, None, CreateKind::Persistent, false)).await.unwrap();
        let acl = |perms| {
            let entry =
                RequestedAcl { perms, scheme: Some(Text::from_static("world")), id: Some(Text::from_static("anyone")) };
            WriteOp::SetAcl { path: path.text().clone(), acl: Some(Cow::Owned(vec![entry])), version: 0 }
        };
        let Ok(Reply::Stat(stat)) = write(&session, acl(Perms::READ.union(Perms::ADMIN))).await else {
            panic!("it is set")
        };
        assert_eq!(stat.aversion, 1);
        assert_eq!(write(&session, set(&path, "x", -1)).await, refused(ErrorCode::NoAuth));
        assert_eq!(write(&session, acl(Perms::ALL)).await, refused(ErrorCode::BadVersion));
        let none = WriteOp::SetAcl { path: path.text().clone(), acl: None, version: -1 };
        assert_eq!(write(&session, none).await, refused(ErrorCode::InvalidAcl));
    });
}

#[test]
fn each_operation_of_a_multi_has_a_result() {
    let server = Server::start();
    run(async {
        let session = server.session().await;
        let path = site(&session).await;
        let child = below(&path, "child");
        let check = |version| WriteOp::Check { path: path.text().clone(), version };
        let all = vec![
            create(&path, None, CreateKind::Persistent, false),
            create(&below(&path, "n-"), None, CreateKind::Ephemeral, true),
            set(&path, "x", 0),
            check(1),
            create(&child, None, CreateKind::Persistent, false),
            delete(&child, -1),
        ];
        let Ok(Reply::Multi(results)) = within(session.submit(Request::Multi(all))).await else { panic!("results") };
        let [made, number, changed, checked, _, deleted] = &results[..] else { panic!("{results:?}") };
        assert!(matches!(made, OpResult::CreateStat(made, _) | OpResult::Create(made) if made == path.text()));
        let name = format!("{path}/n-0000000000");
        assert!(matches!(number, OpResult::CreateStat(made, _) | OpResult::Create(made) if *made == name.as_str()));
        assert!(matches!(changed, OpResult::SetData(stat) if stat.version == 1));
        assert_eq!((checked, deleted), (&OpResult::Check, &OpResult::Delete));

        let failing = vec![check(1), set(&path, "y", 7), delete(&path, -1)];
        let codes = [None, Some(ErrorCode::BadVersion), Some(ErrorCode::RuntimeInconsistency)];
        let failed = codes.map(OpResult::Failed).to_vec();
        assert_eq!(within(session.submit(Request::Multi(failing))).await, Ok(Reply::Multi(failed)));
        assert!(matches!(read(&session, &path).await, Ok(Reply::Data(Some(data), _)) if data == "x"));
    });
}

#[test]
fn requests_are_sent_even_if_their_tickets_are_dropped() {
    let server = Server::start();
    run(async {
        let session = server.session().await;
        let path = site(&session).await;
        let mut last = None;
        drop(session.submit(Request::Write(create(&path, Some("0"), CreateKind::Persistent, false))));
        for version in 0..100 {
            last = Some(session.submit(Request::Write(set(&path, "again", version))));
        }
        assert!(matches!(within(last.unwrap()).await, Ok(Reply::Stat(stat)) if stat.version == 100));
    });
}

#[test]
fn watching_read_gets_its_reply_and_its_event() {
    let server = Server::start();
    run(async {
        let (session, other) = (server.session().await, server.session().await);
        let path = site(&session).await;
        let exists = Request::Exists { path: path.text().clone(), watch: true };
        let (ticket, watch) = session.submit_watching(exists);
        assert_eq!(within(ticket).await, refused(ErrorCode::NoNode));
        write(&other, create(&path, None, CreateKind::Persistent, false)).await.unwrap();
        let event = within(watch).await.unwrap();
        assert_eq!((event.kind, &event.path, event.state), (EventKind::NodeCreated, &path, SessionState::Connected));

        // The watch works without its ticket.
        let list = Request::GetChildren { path: path.text().clone(), watch: true, with_stat: true };
        let (ticket, children) = session.submit_watching(list);
        drop(ticket);
        let (ticket, data) = session.submit_watching(Request::GetData { path: path.text().clone(), watch: true });
        assert!(within(ticket).await.is_ok());
        write(&other, create(&below(&path, "a"), None, CreateKind::Persistent, false)).await.unwrap();
        assert_eq!(within(children).await.unwrap().kind, EventKind::NodeChildrenChanged);
        write(&other, set(&path, "x", -1)).await.unwrap();
        assert_eq!(within(data).await.unwrap().kind, EventKind::NodeDataChanged);

        let none = Request::GetData { path: below(&path, "none").text().clone(), watch: true };
        let (ticket, watch) = session.submit_watching(none);
        assert_eq!(within(ticket).await, refused(ErrorCode::NoNode));
        assert_eq!(within(watch).await, None);
    });
}

#[test]
fn persistent_watch_covers_its_znode_and_a_recursive_watch_the_subtree() {
    let server = Server::start();
    run(async {
        let (session, other) = (server.session().await, server.session().await);
        let path = site(&session).await;
        write(&session, create(&path, None, CreateKind::Persistent, false)).await.unwrap();
        // In another session, because Apache ZooKeeper keeps only one of the two for a session and
        // path.
        let (added, one) = other.add_watch(&path, AddWatchMode::Persistent);
        assert_eq!(within(added).await, Ok(Reply::WatchAdded));
        let (added, all) = session.add_watch(&path, AddWatchMode::PersistentRecursive);
        assert_eq!(within(added).await, Ok(Reply::WatchAdded));
        let child = below(&path, "a");
        write(&session, create(&child, None, CreateKind::Persistent, false)).await.unwrap();
        write(&session, set(&child, "x", -1)).await.unwrap();
        write(&session, set(&path, "x", -1)).await.unwrap();
        let (mut one, mut all) = (pin!(one), pin!(all));
        assert_eq!(next(&mut one).await, (EventKind::NodeChildrenChanged, path.clone()));
        assert_eq!(next(&mut one).await, (EventKind::NodeDataChanged, path.clone()));
        assert_eq!(next(&mut all).await, (EventKind::NodeCreated, child.clone()));
        assert_eq!(next(&mut all).await, (EventKind::NodeDataChanged, child.clone()));
        assert_eq!(next(&mut all).await, (EventKind::NodeDataChanged, path.clone()));
    });
}

#[test]
fn slow_watch_reader_gets_a_gap_and_later_events() {
    let server = Server::start();
    run(async {
        let session = server.session().await;
        let path = site(&session).await;
        write(&session, create(&path, None, CreateKind::Persistent, false)).await.unwrap();
        let (added, events) = session.add_watch(&path, AddWatchMode::Persistent);
        within(added).await.unwrap();
        let mut last = None;
        for _ in 0..1000 {
            last = Some(session.submit(Request::Write(set(&path, "x", -1))));
        }
        within(last.unwrap()).await.unwrap();
        // This write comes after the events of all those above.
        write(&session, set(&path, "y", -1)).await.unwrap();
        let mut events = pin!(events);
        let mut read = 0;
        while within(std::future::poll_fn(|context| futures_core::Stream::poll_next(events.as_mut(), context))).await
            != Some(WatchItem::Gap)
        {
            read += 1;
        }
        assert!(read < 1000, "{read} events and yet a gap");
        write(&session, create(&below(&path, "a"), None, CreateKind::Persistent, false)).await.unwrap();
        while next(&mut events).await.0 != EventKind::NodeChildrenChanged {}
    });
}

async fn next(events: &mut std::pin::Pin<&mut zoolet_recipes::remote::Events>) -> (EventKind, Path) {
    let item = std::future::poll_fn(|context| futures_core::Stream::poll_next(events.as_mut(), context));
    match within(item).await {
        Some(WatchItem::Event(event)) => (event.kind, event.path),
        other => panic!("{other:?}"),
    }
}

#[test]
fn session_closes_with_its_last_handle() {
    let server = Server::start();
    run(async {
        let (session, other) = (server.session().await, server.session().await);
        let path = site(&session).await;
        write(&session, create(&path, None, CreateKind::Ephemeral, false)).await.unwrap();
        let (ticket, watch) = other.submit_watching(Request::Exists { path: path.text().clone(), watch: true });
        within(ticket).await.unwrap();
        drop((session.states(), session.clone()));
        drop(session);
        assert_eq!(within(watch).await.unwrap().kind, EventKind::NodeDeleted);
    });
}

#[test]
fn oversized_request_is_refused_before_sending() {
    let server = Server::start();
    run(async {
        let session = server.session().await;
        let path = site(&session).await;
        let op = WriteOp::SetData { path: path.text().clone(), data: Some(vec![0; 2 << 20].into()), version: -1 };
        assert_eq!(write(&session, op).await, Err(RequestError::TooLarge));
        assert_eq!(session.state(), SessionState::Connected);
    });
}

#[test]
fn session_without_its_runtime_is_closed_and_never_hangs_or_panics() {
    let server = Server::start();
    let (session, path) = run(async {
        let session = server.session().await;
        let path = site(&session).await;
        (session, path)
    });
    assert_eq!(session.state(), SessionState::Closed);
    let exists = || Request::Exists { path: path.text().clone(), watch: true };
    run(async {
        assert_eq!(within(session.submit(exists())).await, Err(RequestError::Closed));
        let (ticket, watch) = session.submit_watching(exists());
        assert_eq!((within(ticket).await, within(watch).await), (Err(RequestError::Closed), None));
        within(session.timer(session.now() + std::time::Duration::from_secs(3600))).await;
        session.run_errand(zoolet_recipes::Errand::delete(path.text().clone()));
        let mut states = pin!(session.states());
        for state in [Some(SessionState::Closed), None] {
            let next = std::future::poll_fn(|context| futures_core::Stream::poll_next(states.as_mut(), context));
            assert_eq!(within(next).await, state);
        }
    });
}
