//! The embedding contract: a node and its sessions inside a process.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::scratch::Scratch;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use zoolet::recipes::{Holding, Lock};
use zoolet::{
    AddWatchMode, Client, Config, Consistency, CreateOptions, Error, ErrorCode, ErrorKind, EventKind, LostReason, Node,
    Op, Request, RequestError, Session, SessionOptions, SessionState, TimeToLive, Version, Wait, WatchItem, path,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn start(scratch: &Scratch) -> Node {
    Node::start(small(scratch)).unwrap()
}

/// A small log, so that tests write little.
fn small(scratch: &Scratch) -> Config {
    let mut config = Config::new(scratch.join("data"));
    config.limits.log_segment_bytes = 256 << 10;
    config.limits.log_segments = 8;
    config.limits.frame_bytes_max = 100_000;
    config
}

fn session(node: &Node) -> Session {
    node.session().wait_timeout(PATIENCE).unwrap().unwrap()
}

#[test]
fn session_in_process_supports_the_operations_of_a_client() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    node.ready().wait().unwrap();
    let session = session(&node);
    let made = session.create(path!("/a"), "one").wait().unwrap();
    assert_eq!((made.path.as_str(), made.stat.version), ("/a", 0));
    assert_eq!(session.create(path!("/a"), None).wait().unwrap_err().code(), Some(ErrorCode::NodeExists));
    let sequential = CreateOptions::persistent().sequential();
    let made = session.create_with(path!("/a/n-"), None, &sequential).wait().unwrap();
    assert_eq!(made.path.as_str(), "/a/n-0000000000");
    assert_eq!(session.set(path!("/a"), "two", Version::Is(0)).wait().unwrap().version, 1);
    assert_eq!(
        session.set(path!("/a"), "three", Version::Is(0)).wait().unwrap_err().code(),
        Some(ErrorCode::BadVersion)
    );
    let read = session.get(path!("/a")).wait().unwrap();
    assert_eq!((read.text(), read.stat.version), (Some("two"), 1));
    assert_eq!(session.get(path!("/a/n-0000000000")).wait().unwrap().data, None, "null is not empty");
    assert_eq!(session.exists(path!("/none")).wait().unwrap(), None);
    let children = session.children(path!("/a")).wait().unwrap();
    assert_eq!(children.iter().collect::<Vec<_>>(), ["n-0000000000"]);
    session.delete(path!("/a/n-0000000000"), Version::Any).wait().unwrap();
    let stat = session.reading(Consistency::Linearizable).exists(path!("/a")).wait().unwrap().unwrap();
    assert_eq!((stat.num_children, stat.version), (0, 1));
    let (acl, _) = session.acl(path!("/a")).wait().unwrap();
    assert_eq!(acl, zoolet::open_acl());
    let ops = [Op::create(path!("/b"), None), Op::create(path!("/a"), None)];
    let exists = session.multi(ops).wait().unwrap_err();
    assert_eq!((exists.code(), exists.index()), (Some(ErrorCode::NodeExists), Some(1)));
    assert_eq!(session.exists(path!("/b")).wait().unwrap(), None);
    session.close().wait().unwrap();
    node.shutdown(PATIENCE).unwrap();
}

#[test]
fn acked_writes_survive_a_dropped_node_and_a_shutdown() {
    let scratch = Scratch::new();
    for round in 0..6 {
        let node = start(&scratch);
        let session = session(&node);
        for earlier in 0..round {
            let path = zoolet::Path::new(format!("/round-{earlier}")).unwrap();
            assert!(session.exists(&path).wait().unwrap().is_some(), "{path} in round {round}");
        }
        let path = zoolet::Path::new(format!("/round-{round}")).unwrap();
        session.create(&path, "x").wait().unwrap();
        if round % 2 == 0 {
            drop(node);
        } else {
            node.shutdown(PATIENCE).unwrap();
        }
    }
}

#[test]
fn ephemerals_end_with_the_last_handle_or_a_clean_shutdown() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let (owner, witness) = (session(&node), session(&node));
    owner.create_with(path!("/mine"), None, &CreateOptions::ephemeral()).wait().unwrap();
    let (stat, gone) = witness.exists_and_watch(path!("/mine")).wait().unwrap();
    assert_eq!(stat.unwrap().ephemeral_owner, owner.id().0);
    let clone = owner.clone();
    drop(owner);
    assert!(witness.exists(path!("/mine")).wait().unwrap().is_some());
    drop(clone);
    assert_eq!(gone.wait_timeout(PATIENCE).unwrap().unwrap().kind, EventKind::NodeDeleted);

    let owner = session(&node);
    owner.create_with(path!("/mine"), None, &CreateOptions::ephemeral()).wait().unwrap();
    node.shutdown(PATIENCE).unwrap();
    assert_eq!(owner.state(), SessionState::Closed);
    let node = start(&scratch);
    assert_eq!(session(&node).exists(path!("/mine")).wait().unwrap(), None);
}

#[test]
fn watches_deliver_their_events_in_order_and_no_other_events() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let session = session(&node);
    session.create(path!("/w"), None).wait().unwrap();
    let mut tree = session.watch(path!("/w"), AddWatchMode::PersistentRecursive).wait().unwrap();
    let mut one = session.watch(path!("/w"), AddWatchMode::Persistent).wait().unwrap();
    let (_, children) = session.children_and_watch(path!("/w")).wait().unwrap();
    let (_, data) = session.get_and_watch(path!("/w")).wait().unwrap();
    let (none, birth) = session.exists_and_watch(path!("/w/a")).wait().unwrap();
    assert_eq!(none, None);
    assert_eq!(session.get_and_watch(path!("/absent")).wait().unwrap_err().code(), Some(ErrorCode::NoNode));

    session.create(path!("/w/a"), None).wait().unwrap();
    session.set(path!("/w"), "x", Version::Any).wait().unwrap();
    session.delete(path!("/w/a"), Version::Any).wait().unwrap();

    let kinds = |items: &[Option<WatchItem>]| -> Vec<(EventKind, String)> {
        let event = |item: &Option<WatchItem>| match item {
            Some(WatchItem::Event(event)) => (event.kind, event.path.to_string()),
            other => panic!("{other:?}"),
        };
        items.iter().map(event).collect()
    };
    let next = |stream: &mut zoolet::WatchStream| stream.next().wait_timeout(PATIENCE).unwrap();
    let seen = [next(&mut tree), next(&mut tree), next(&mut tree)];
    assert_eq!(
        kinds(&seen),
        [
            (EventKind::NodeCreated, "/w/a".to_owned()),
            (EventKind::NodeDataChanged, "/w".to_owned()),
            (EventKind::NodeDeleted, "/w/a".to_owned()),
        ]
    );
    let seen = [next(&mut one), next(&mut one), next(&mut one)];
    assert_eq!(
        kinds(&seen),
        [
            (EventKind::NodeChildrenChanged, "/w".to_owned()),
            (EventKind::NodeDataChanged, "/w".to_owned()),
            (EventKind::NodeChildrenChanged, "/w".to_owned()),
        ]
    );
    assert_eq!(children.wait().unwrap().kind, EventKind::NodeChildrenChanged);
    assert_eq!(data.wait().unwrap().kind, EventKind::NodeDataChanged);
    let birth = birth.wait().unwrap();
    assert_eq!((birth.kind, birth.state), (EventKind::NodeCreated, SessionState::Connected));

    // A dropped watch receives nothing; the remaining one still does.
    drop(one);
    session.set(path!("/w"), "y", Version::Any).wait().unwrap();
    assert_eq!(kinds(&[next(&mut tree)]), [(EventKind::NodeDataChanged, "/w".to_owned())]);
}

#[test]
fn slow_watch_reader_gets_a_gap() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let session = session(&node);
    let mut slow = session.watch(path!("/"), AddWatchMode::PersistentRecursive).wait().unwrap();
    for number in 0..200 {
        let path = zoolet::Path::new(format!("/n-{number}")).unwrap();
        session.create(&path, None).wait().unwrap();
    }
    assert_eq!(slow.next().wait(), Some(WatchItem::Gap));
    assert!(matches!(slow.next().wait(), Some(WatchItem::Event(_))));
}

#[test]
fn state_stream_follows_the_session_to_its_end() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let session = session(&node);
    let mut states = session.states();
    assert_eq!(states.next().wait(), Some(SessionState::Connected));
    let mut pending = pin!(states.next());
    assert!(pending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(node);
    assert_eq!(pending.wait_timeout(PATIENCE).unwrap(), Some(SessionState::Lost(LostReason::Stopped)));
    assert_eq!(session.exists(path!("/")).wait().unwrap_err().kind(), ErrorKind::SessionLost(LostReason::Stopped));
}

#[test]
fn watchdog_takes_the_lock_of_a_hung_daemon() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let watchdog = Some(Duration::from_millis(300));
    let daemon = node.session_with(&SessionOptions { watchdog, ..SessionOptions::default() }).wait().unwrap();
    let other = session(&node);
    let grant = Lock::new(daemon.clone(), path!("/locks/door")).acquire().wait().unwrap();
    daemon.touch();
    // From here on the daemon does nothing, while another session waits for the lock.
    let others = Lock::new(other, path!("/locks/door")).acquire().wait_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(daemon.state(), SessionState::Lost(LostReason::Untouched));
    assert_eq!(grant.holding(), Holding::Lost);
    assert_eq!(others.holding(), Holding::Held);
}

/// Another session would only give the hung daemon its locks again.
#[test]
fn watchdog_ends_the_client_of_a_hung_daemon() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let watchdog = Some(Duration::from_millis(300));
    let client = Client::new(node.sessions(SessionOptions { watchdog, ..SessionOptions::default() }));
    let ended = client.run(async |_| std::future::pending::<Result<(), Error>>().await).wait_timeout(PATIENCE).unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::SessionLost(LostReason::Untouched));
}

#[test]
fn streams_end_and_requests_fail_when_the_node_is_dropped() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let session = session(&node);
    let mut watch = session.watch(path!("/"), AddWatchMode::Persistent).wait().unwrap();
    drop(node);
    assert_eq!(watch.next().wait_timeout(PATIENCE).unwrap(), None);
    assert_eq!(session.try_submit(Request::Ping).unwrap_err(), RequestError::Lost(LostReason::Stopped));
}

#[test]
fn nodes_share_a_process_but_not_a_data_directory() {
    let (one, two) = (Scratch::new(), Scratch::new());
    let (first, second) = (start(&one), start(&two));
    session(&first).create(path!("/first"), None).wait().unwrap();
    assert_eq!(session(&second).exists(path!("/first")).wait().unwrap(), None);
    let refused = Node::start(small(&one)).unwrap_err();
    assert!(refused.to_string().contains("is in use by process"), "{refused}");
    drop(first);
    // A dropped node may still be shutting down: the next node waits for it.
    assert!(session(&start(&one)).exists(path!("/first")).wait().unwrap().is_some());
}

#[test]
fn watch_event_never_overtakes_the_large_read_from_the_base() {
    let scratch = Scratch::new();
    let mut config = small(&scratch);
    config.limits.memtable_bytes = 64 << 10;
    config.limits.record_cache_bytes = 64 << 10;
    let node = Node::start(config).unwrap();
    let session = session(&node);
    let name = |number: u32| zoolet::Path::new(format!("/large-{number}")).unwrap();
    for number in 0..40 {
        session.create(&name(number), vec![number as u8; 50_000]).wait().unwrap();
    }
    for number in 0..40 {
        let read = session.get(&name(number)).wait().unwrap();
        assert_eq!((read.bytes(), read.stat.data_length), (&[number as u8; 50_000][..], 50_000));
    }
    let status = node.status().wait().unwrap();
    assert!(status.server.checkpoints > 0 && status.disk.base.base_bytes_written > 0, "{status:?}");
    assert!(status.disk.log.fdatasyncs > 0 && status.disk.fdatasync.count > 0, "{status:?}");

    // The read that arms a watch is completed off the core thread. The event of the write behind it
    // must not come first.
    for number in 0..40 {
        let path = name(number);
        let mut read = pin!(session.get_and_watch(&path));
        let first = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let write = session.set(&path, None, Version::Any);
        let answer = match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => read.wait(),
        };
        let (read, event) = answer.unwrap();
        assert_eq!(read.bytes().len(), 50_000);
        write.wait().unwrap();
        assert_eq!(event.wait_timeout(PATIENCE).unwrap().unwrap().kind, EventKind::NodeDataChanged);
    }
}

#[test]
fn full_pipeline_returns_busy_or_waits_and_drops_keep_sent_requests() {
    let scratch = Scratch::new();
    let mut config = small(&scratch);
    config.limits.outstanding_max = 2;
    let node = Node::start(config).unwrap();
    let session = session(&node);
    let sync = || Request::Sync { path: None };
    // The futures are not polled, so their slots stay taken with or without an answer.
    let (first, second) = (session.try_submit(sync()).unwrap(), session.try_submit(sync()).unwrap());
    assert_eq!(session.try_submit(sync()).unwrap_err(), RequestError::Busy);
    let mut third = pin!(session.create(path!("/third"), None));
    assert!(third.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(first);
    second.wait().unwrap();
    third.wait_timeout(PATIENCE).unwrap().unwrap();
    {
        let mut cancelled = pin!(session.create(path!("/cancelled"), None));
        let _ = cancelled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    session.sync().wait().unwrap();
    assert!(session.exists(path!("/cancelled")).wait().unwrap().is_some());
}

#[test]
fn futures_move_between_threads_and_run_on_any_executor() {
    fn moves<T: Send>(value: T) -> T {
        value
    }
    let scratch = Scratch::new();
    let node = moves(start(&scratch));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let seen = runtime.block_on(async {
        let session = moves(node.session()).await.unwrap();
        let mut stream = moves(session.watch(path!("/"), AddWatchMode::Persistent)).await.unwrap();
        let (made, item) = tokio::join!(moves(session.create(path!("/a"), None)), stream.next());
        made.unwrap();
        let _ = moves(session.children_and_watch(path!("/"))).await.unwrap();
        moves(session.close()).await.unwrap();
        item
    });
    assert!(matches!(seen, Some(WatchItem::Event(event)) if event.kind == EventKind::NodeChildrenChanged));
}

#[test]
fn request_above_frame_bytes_max_fails_and_the_session_continues() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let session = session(&node);
    let large = vec![0; 100_001];
    assert_eq!(session.create(path!("/large"), large).wait().unwrap_err().kind(), ErrorKind::TooLarge);
    session.create(path!("/small"), None).wait().unwrap();
}

#[test]
fn ttl_znode_tells_how_long_is_left_and_goes() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let session = session(&node);
    let create = |ttl_ms| {
        let options = CreateOptions::ttl(Duration::from_millis(ttl_ms));
        session.create_with(path!("/brief"), None, &options).wait().unwrap();
    };
    create(50_000);
    let lives = session.time_to_live(path!("/brief")).wait().unwrap();
    let chosen = Duration::from_secs(50);
    assert_eq!(lives.chosen(), Some(chosen));
    assert!(lives.left().is_some_and(|left| !left.is_zero() && left <= chosen), "{lives:?}");
    assert_eq!(session.time_to_live(path!("/")).wait().unwrap(), TimeToLive::default());
    session.delete(path!("/brief"), Version::Any).wait().unwrap();
    create(1);
    while session.exists(path!("/brief")).wait().unwrap().is_some() {
        std::thread::yield_now();
    }
}

/// Over the wire the codec refuses it. A session in process has no codec.
#[test]
fn ttl_znode_is_refused_as_unimplemented_where_it_is_switched_off() {
    let scratch = Scratch::new();
    let mut config = small(&scratch);
    config.settings.ttl_znodes = false;
    let node = Node::start(config).unwrap();
    let session = session(&node);
    let options = CreateOptions::ttl(Duration::from_millis(1));
    let refused = session.create_with(path!("/brief"), None, &options).wait();
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::Unimplemented));
    let among = [Op::create_with(path!("/brief"), None, &options)];
    assert_eq!(session.multi(among).wait().unwrap_err().code(), Some(ErrorCode::Unimplemented));
    assert!(session.exists(path!("/brief")).wait().unwrap().is_none());
}

#[test]
fn shutdown_accepts_the_maximum_duration() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    node.shutdown(Duration::MAX).unwrap();
}

#[test]
fn refused_authentication_ends_the_session() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let session = session(&node);
    session.add_auth("digest", "me:secret").wait().unwrap();
    assert_eq!(session.add_auth("nonsense", "x").wait().unwrap_err().kind(), ErrorKind::AuthFailed);
    assert_eq!(session.state(), SessionState::AuthFailed);
    assert_eq!(session.exists(path!("/")).wait().unwrap_err().kind(), ErrorKind::AuthFailed);
}

#[test]
fn contradictory_configuration_is_refused() {
    let scratch = Scratch::new();
    let mut config = small(&scratch);
    config.settings.session_timeout_min_ms = 50_000;
    let refused = Node::start(config).unwrap_err();
    assert!(refused.is_for_the_operator(), "{refused}");
    let mut config = small(&scratch);
    config.limits.log_segment_bytes = 5000;
    assert!(Node::start(config).is_err());
}
