//! Broken connections, lost replies, and owners that no longer wait.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use bytes::Bytes;
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use zookeeper_client::Client;
use zoolet_model::{
    AddWatchMode, Create, CreateKind, CreateMode, LostReason, Path, Reply, Request, RequestError, RequestedAcl,
    SessionState, WatchItem, WriteOp,
};
use zoolet_recipes::{Change, ChildrenCache, Coordinator, Holding, Instant, Lock, Remote};
use zoolet_remote_tests::{LONG, Proxy, Server, below, children, connect, run, site, until, within};

/// create2, which the client uses for every create.
const CREATE: i32 = 15;
const DELETE: i32 = 2;
const GET_DATA: i32 = 4;
const MULTI: i32 = 14;
const ADD_WATCH: i32 = 106;
/// The error of a server without room.
const SYSTEM_ERROR: i32 = -1;
/// Timeout of a session that pauses briefly before it repeats something.
const SHORT: Duration = Duration::from_secs(4);
/// Registers the client's watches after a reconnect.
const SET_WATCHES: i32 = 101;

async fn becomes(session: &Remote, wanted: SessionState) {
    let mut states = session.states();
    within(async { while poll_fn(|context| Pin::new(&mut states).poll_next(context)).await != Some(wanted) {} }).await;
}

async fn behind(proxy: &Proxy) -> Remote {
    connect(proxy.address(), LONG).await
}

fn create(path: &Path, data: &'static str) -> Request {
    Request::Write(WriteOp::Create(Create {
        path: path.text().clone(),
        data: Some(Bytes::from_static(data.as_bytes())),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind: CreateKind::Persistent, sequential: false },
        with_stat: true,
    }))
}

fn pending(future: Pin<&mut impl Future>) {
    assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn waiting_lock_is_acquired_after_a_reconnect() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (holder, waiter) = (server.session().await, behind(&proxy).await);
        let path = site(&holder).await;
        let grant = within(Lock::new(holder.clone(), &path).acquire()).await.unwrap();
        let waiting = tokio::spawn({
            let lock = Lock::new(waiter.clone(), &path);
            async move { lock.acquire().await }
        });
        until(async || proxy.requests(GET_DATA) == 1).await;
        // Answered after the read, so the lock watches by now.
        within(waiter.submit(Request::Sync { path: None })).await.unwrap();
        proxy.cut();
        until(async || proxy.requests(SET_WATCHES) == 1).await;
        becomes(&waiter, SessionState::Connected).await;
        within(grant.release()).await.unwrap();
        let grant = within(waiting).await.unwrap().unwrap();
        assert_eq!(children(&holder, &path).await, [grant.path().name()]);
        within(grant.release()).await.unwrap();
        assert_eq!(children(&holder, &path).await.len(), 0);
    });
}

#[test]
fn waiting_lock_learns_of_a_release_made_while_disconnected() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (holder, waiter) = (server.session().await, behind(&proxy).await);
        let path = site(&holder).await;
        let grant = within(Lock::new(holder.clone(), &path).acquire()).await.unwrap();
        let waiting = tokio::spawn({
            let lock = Lock::new(waiter.clone(), &path);
            async move { lock.acquire().await }
        });
        until(async || children(&holder, &path).await.len() == 2).await;
        proxy.down();
        becomes(&waiter, SessionState::Suspended).await;
        within(grant.release()).await.unwrap();
        proxy.up();
        let grant = within(waiting).await.unwrap().unwrap();
        assert_eq!(children(&holder, &path).await, [grant.path().name()]);
    });
}

#[test]
fn lock_with_a_lost_create_reply_creates_no_second_znode() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (session, other) = (behind(&proxy).await, server.session().await);
        let path = site(&session).await;
        let lock = Lock::new(session.clone(), &path);
        // Creates the parent, so that the next create is for the place.
        within(within(lock.acquire()).await.unwrap().release()).await.unwrap();
        let before = proxy.requests(CREATE);
        proxy.lose_reply(CREATE);
        let grant = within(lock.acquire()).await.unwrap();
        assert_eq!((proxy.lost(), proxy.requests(CREATE) - before), (1, 1));
        assert_eq!(children(&other, &path).await, [grant.path().name()]);
        assert_eq!(grant.holding(), Holding::Held);
        within(grant.release()).await.unwrap();
        assert_eq!(children(&other, &path).await.len(), 0);
    });
}

#[test]
fn grant_dropped_while_disconnected_is_released_after_the_reconnect() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (session, other) = (behind(&proxy).await, server.session().await);
        let path = site(&session).await;
        let grant = within(Lock::new(session.clone(), &path).acquire()).await.unwrap();
        let next = Lock::new(other.clone(), &path);
        let mut next = pin!(next.acquire());
        pending(next.as_mut());
        proxy.down();
        becomes(&session, SessionState::Suspended).await;
        assert!(matches!(grant.holding(), Holding::Doubtful { .. }));
        // On a thread without a runtime.
        std::thread::spawn(move || drop(grant)).join().unwrap();
        proxy.up();
        let grant = within(next).await.unwrap();
        assert_eq!(children(&other, &path).await, [grant.path().name()]);
        becomes(&session, SessionState::Connected).await;
    });
}

#[test]
fn release_with_a_lost_reply_is_sent_again() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (session, other) = (behind(&proxy).await, server.session().await);
        let path = site(&session).await;
        let lock = Lock::new(session.clone(), &path);
        let grant = within(lock.acquire()).await.unwrap();
        proxy.lose_reply(DELETE);
        within(grant.release()).await.unwrap();
        assert_eq!(proxy.lost(), 1);
        until(async || proxy.requests(DELETE) == 2).await;
        assert_eq!(children(&other, &path).await.len(), 0);
    });
}

#[test]
fn dropped_session_completes_its_errands_before_it_closes() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (session, other) = (behind(&proxy).await, server.session().await);
        let path = site(&session).await;
        let grant = within(Lock::new(session.clone(), &path).acquire()).await.unwrap();
        proxy.down();
        becomes(&session, SessionState::Suspended).await;
        drop(session);
        drop(grant);
        proxy.up();
        until(async || children(&other, &path).await.is_empty()).await;
        assert_eq!(proxy.requests(DELETE), 1);
    });
}

#[test]
fn clean_up_of_a_dropped_acquire_spares_the_next_acquire() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (session, other) = (behind(&proxy).await, server.session().await);
        let path = site(&session).await;
        let lock = Lock::new(session.clone(), &path);
        within(within(lock.acquire()).await.unwrap().release()).await.unwrap();
        proxy.hold(true);
        let (creates, multis) = (proxy.requests(CREATE), proxy.requests(MULTI));
        {
            let mut first = pin!(lock.acquire());
            pending(first.as_mut());
        }
        // Its create is in flight, and its clean-up starts behind that. The second attempt comes
        // before the clean-up is done.
        let mut second = pin!(lock.acquire());
        pending(second.as_mut());
        until(async || (proxy.requests(CREATE), proxy.requests(MULTI)) == (creates + 2, multis + 1)).await;
        proxy.hold(false);
        let grant = within(second).await.unwrap();
        until(async || children(&other, &path).await == [grant.path().name()]).await;
        // The clean-up precedes this request, so it is done by now.
        within(session.submit(Request::Sync { path: None })).await.unwrap();
        assert_eq!(children(&other, &path).await.len(), 1);
        within(grant.fenced().create(&below(&path, "written"), None)).await.unwrap();
    });
}

#[test]
fn cache_catches_up_and_continues_after_a_reconnect() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (session, other) = (behind(&proxy).await, server.session().await);
        let path = site(&session).await;
        within(other.submit(create(&path, ""))).await.unwrap();
        within(other.submit(create(&below(&path, "a"), "1"))).await.unwrap();
        let mut cache = ChildrenCache::new(session.clone(), &path);
        while within(cache.next()).await.unwrap() != Change::Complete {}
        proxy.down();
        becomes(&session, SessionState::Suspended).await;
        within(other.submit(create(&below(&path, "b"), "2"))).await.unwrap();
        proxy.up();
        while cache.child("b").is_none() {
            within(cache.next()).await.unwrap();
        }
        within(other.submit(create(&below(&path, "c"), "3"))).await.unwrap();
        while cache.child("c").is_none() {
            within(cache.next()).await.unwrap();
        }
        assert_eq!(cache.children().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b", "c"]);
    });
}

/// Regression: a watch request that the server throttled was treated as lost with its connection.
/// The cache showed the same state forever, and reported no gap.
#[test]
fn cache_continues_after_a_reconnect_to_a_throttling_server() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (session, other) = (behind(&proxy).await, server.session().await);
        let path = site(&session).await;
        within(other.submit(create(&path, ""))).await.unwrap();
        let mut cache = ChildrenCache::new(session.clone(), &path);
        while within(cache.next()).await.unwrap() != Change::Complete {}
        proxy.down();
        becomes(&session, SessionState::Suspended).await;
        within(other.submit(create(&below(&path, "a"), "1"))).await.unwrap();
        proxy.throttle(ADD_WATCH);
        proxy.up();
        while cache.child("a").is_none() {
            within(cache.next()).await.unwrap();
        }
        within(other.submit(create(&below(&path, "b"), "2"))).await.unwrap();
        while cache.child("b").is_none() {
            within(cache.next()).await.unwrap();
        }
        assert_eq!(proxy.requests(ADD_WATCH), 3, "at first, in vain, and again");
    });
}

/// Regression: after a server without room for the watch, the cache showed the same state forever.
#[test]
fn cache_watches_again_after_a_server_without_room_refused_its_watch() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (session, other) = (behind(&proxy).await, server.session().await);
        let path = site(&session).await;
        within(other.submit(create(&path, ""))).await.unwrap();
        let mut cache = ChildrenCache::new(session.clone(), &path);
        while within(cache.next()).await.unwrap() != Change::Complete {}
        proxy.down();
        becomes(&session, SessionState::Suspended).await;
        within(other.submit(create(&below(&path, "a"), "1"))).await.unwrap();
        proxy.refuse(ADD_WATCH, SYSTEM_ERROR);
        proxy.up();
        assert_eq!(within(cache.next()).await.unwrap(), Change::Gap);
        while cache.child("a").is_none() {
            within(cache.next()).await.unwrap();
        }
        within(other.submit(create(&below(&path, "b"), "2"))).await.unwrap();
        while cache.child("b").is_none() {
            within(cache.next()).await.unwrap();
        }
        assert_eq!(proxy.requests(ADD_WATCH), 3, "at first, refused, and again");
    });
}

/// The gap is told once the watch is registered again: who reads then misses nothing later.
#[test]
fn watch_refused_at_a_reconnect_tells_its_gap_when_it_is_registered() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let session = connect(proxy.address(), SHORT).await;
        let path = site(&session).await;
        let client = zoolet_recipes::Client::with_session(std::future::pending, session.clone());
        let mut watch = client.watch(&path, AddWatchMode::Persistent);
        assert!(tokio::time::timeout(Duration::from_millis(200), watch.next()).await.is_err(), "nothing has happened");
        proxy.down();
        becomes(&session, SessionState::Suspended).await;
        proxy.refuse(ADD_WATCH, SYSTEM_ERROR);
        proxy.up();
        assert_eq!(within(watch.next()).await.unwrap(), WatchItem::Gap);
        assert_eq!(proxy.requests(ADD_WATCH), 3, "at first, refused, and again");
        within(server.session().await.submit(create(&path, ""))).await.unwrap();
        assert!(matches!(within(watch.next()).await.unwrap(), WatchItem::Event(_)));
    });
}

/// A client's stream repeats a watch that the server has no room for: its reader sees no error.
#[test]
fn stream_of_a_client_waits_for_room_for_its_watch() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let session = connect(proxy.address(), SHORT).await;
        let path = site(&session).await;
        within(session.submit(create(&path, ""))).await.unwrap();
        let client = zoolet_recipes::Client::with_session(std::future::pending, session.clone());
        proxy.refuse(ADD_WATCH, SYSTEM_ERROR);
        let mut children = client.children(&path);
        assert_eq!(within(children.next()).await.unwrap(), Change::Complete);
        assert_eq!((proxy.requests(ADD_WATCH), children.session_number()), (2, 1));
    });
}

/// Regression: a client that was cut off and kept sending impossible requests believed that its
/// session, and so its lock, was alive.
#[test]
fn requests_refused_by_the_client_prove_no_live_session() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let (connector, address) = (Client::connector().with_session_timeout(LONG), proxy.address().to_string());
        let client = within(connector.connect(&address)).await.unwrap();
        proxy.hold(true);
        let session = Remote::new(client);
        let check = |path: &str| WriteOp::Check { path: path.into(), version: -1 };
        let acl = WriteOp::SetAcl { path: "/a".into(), acl: Some(RequestedAcl::open()), version: -1 };
        for ops in [vec![check("/"), acl], vec![check("no path")], vec![]] {
            let answer = within(session.submit(Request::Multi(ops.clone()))).await;
            assert!(matches!(answer, Ok(Reply::Multi(results)) if results.len() == ops.len()));
            assert_eq!(session.safe_until(), Instant::START, "{ops:?}");
        }
        proxy.hold(false);
        within(session.submit(Request::Multi(vec![check("/")]))).await.unwrap();
        assert!(session.safe_until() > Instant::START);
    });
}

#[test]
fn request_without_a_connection_fails_as_suspended_and_is_not_sent() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let session = behind(&proxy).await;
        let path = site(&session).await;
        proxy.down();
        becomes(&session, SessionState::Suspended).await;
        assert_eq!(within(session.submit(create(&path, "x"))).await, Err(RequestError::Suspended));
        let (ticket, watch) = session.submit_watching(Request::Exists { path: path.text().clone(), watch: true });
        assert_eq!((within(ticket).await, within(watch).await), (Err(RequestError::Suspended), None));
        proxy.up();
        becomes(&session, SessionState::Connected).await;
        assert!(within(session.submit(create(&path, "x"))).await.is_ok());
    });
}

#[test]
fn request_on_a_lost_connection_fails_with_connection_loss() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let session = behind(&proxy).await;
        let path = site(&session).await;
        proxy.lose_reply(CREATE);
        assert_eq!(within(session.submit(create(&path, "x"))).await, Err(RequestError::ConnectionLoss));
        becomes(&session, SessionState::Connected).await;
        let again = within(session.submit(create(&path, "x"))).await;
        assert_eq!(again, Err(RequestError::Refused(zoolet_model::ErrorCode::NodeExists)));
    });
}

#[test]
fn idle_session_stays_safe_and_a_disconnected_session_expires() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let timeout = Duration::from_secs(4);
        let session = connect(proxy.address(), timeout).await;
        let path = site(&session).await;
        assert_eq!(session.session_timeout(), timeout);
        let grant = within(Lock::new(session.clone(), &path).acquire()).await.unwrap();
        assert_eq!(grant.holding(), Holding::Held);
        let first = session.safe_until();
        assert!(first > session.now() && first <= session.now() + timeout);
        until(async || session.safe_until() > first + timeout / 2).await;
        assert_eq!(grant.holding(), Holding::Held);
        proxy.down();
        becomes(&session, SessionState::Suspended).await;
        let Holding::Doubtful { safe_until } = grant.holding() else { panic!("nobody knows") };
        assert!(safe_until <= session.now() + timeout);
        within(grant.ended()).await;
        assert!(session.now() >= safe_until, "not before somebody else may have it");
        becomes(&session, SessionState::Lost(LostReason::Expired)).await;
        assert_eq!(grant.holding(), Holding::Lost);
        let gone = within(session.submit(Request::Sync { path: None })).await;
        assert_eq!(gone, Err(RequestError::Lost(LostReason::Expired)));
        proxy.up();
        assert_eq!(session.state(), SessionState::Lost(LostReason::Expired));
    });
}

#[test]
fn watches_and_streams_of_an_expired_session_end() {
    let server = Server::start();
    run(async {
        let proxy = Proxy::start(server.address()).await;
        let session = connect(proxy.address(), Duration::from_secs(4)).await;
        let path = site(&session).await;
        let (ticket, watch) = session.submit_watching(Request::Exists { path: path.text().clone(), watch: true });
        assert!(within(ticket).await.is_err());
        let (added, events) =
            session.add_watch(&Path::from_static("/"), zoolet_model::AddWatchMode::PersistentRecursive);
        within(added).await.unwrap();
        proxy.down();
        assert_eq!(within(watch).await, None);
        let mut events = pin!(events);
        while within(poll_fn(|context| events.as_mut().poll_next(context))).await.is_some() {}
        let mut states = session.states();
        assert_eq!(
            within(poll_fn(|context| Pin::new(&mut states).poll_next(context))).await,
            Some(SessionState::Lost(LostReason::Expired))
        );
        let ended = poll_fn(|context| Poll::Ready(Pin::new(&mut states).poll_next(context))).await;
        assert_eq!(ended, Poll::Ready(None));
    });
}
