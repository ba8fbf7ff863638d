//! Tests of a session; each test plays the machine.

use super::super::{Links, Session, Timers, WatchItem};
use super::*;
use crate::watch::Arm;
use crate::{OneShotWatch, Wait, WatchStream, lock};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake};
use std::time::Duration;
use zoolet_coordinator::{Coordinator, Errand, Guid, Instant};
use zoolet_machine::Event;
use zoolet_machine::budget::Part;
use zoolet_model::{
    AddWatchMode, ConnectReply, ConnectRequest, ErrorCode, EventKind, LostReason, Names, OpResult, Path, ReadOp,
    Request, WatchEvent, WriteOp,
};

/// A path from a literal.
macro_rules! path {
    ($text:expr) => {{
        static PATH: Path = Path::from_static($text);
        &PATH
    }};
}

/// The requests that sessions sent.
#[derive(Debug, Default)]
struct Sent(Mutex<Vec<(ConnId, i32, Request)>>);

impl Outbox for Sent {
    fn request(&self, conn: ConnId, xid: i32, request: Request) {
        lock(&self.0).push((conn, xid, request));
    }
}

/// A clock that tests set.
#[derive(Debug, Default)]
struct World {
    now_ms: AtomicU64,
    timers: Timers,
    roused: AtomicUsize,
    told_late_ms: AtomicU64,
}

impl World {
    fn set(&self, ms: u64) {
        self.now_ms.store(ms, SeqCst);
        self.timers.wake_due(self.now());
    }
}

impl Surroundings for World {
    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(SeqCst))
    }

    fn random_bits(&self) -> u128 {
        7
    }

    fn told_late(&self) -> Duration {
        Duration::from_millis(self.told_late_ms.load(SeqCst))
    }

    fn timers(&self) -> &Timers {
        &self.timers
    }

    fn rouse(&self) {
        self.roused.fetch_add(1, SeqCst);
    }
}

/// A session, and the test in the place of the machine.
struct Machine {
    sent: Arc<Sent>,
    world: Arc<World>,
    budget: Arc<Budget>,
    links: Links,
    link: Arc<Link>,
    conn: ConnId,
}

impl Machine {
    fn connected() -> (Self, Session) {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> (Self, Session) {
        let sent = Arc::new(Sent::default());
        let world = Arc::new(World::default());
        let budget = Arc::new(Budget::new(&limits));
        let link = Link::new(sent.clone(), world.clone(), 1000, &limits, Arc::clone(&budget));
        let mut machine =
            Self { sent, world, budget, links: Links::default(), link: Arc::clone(&link), conn: ConnId(0) };
        assert_eq!(machine.dial().session, SessionId(0));
        assert_eq!(machine.accept(7), []);
        (machine, Session::new(link))
    }

    fn dial(&mut self) -> ConnectRequest {
        match self.links.dial(Arc::clone(&self.link)) {
            Some(Event::Connect { conn, peer: None, request }) => {
                self.conn = conn;
                request
            }
            other => panic!("{other:?}"),
        }
    }

    /// Answers the handshake and returns the session's first requests.
    fn accept(&self, timeout_ms: i32) -> Vec<Request> {
        let secret = SessionSecret([9; 16]);
        let reply = ConnectReply { timeout_ms, session: SessionId(7), secret, read_only_byte: true };
        self.link.connected(self.conn, &reply).into_iter().map(|(_, request)| request).collect()
    }

    /// Returns the requests sent since the last call.
    fn requests(&self) -> Vec<(i32, Request)> {
        let sent = std::mem::take(&mut *lock(&self.sent.0));
        let request = |(conn, xid, request)| {
            assert_eq!(conn, self.conn, "{request:?}");
            (xid, request)
        };
        sent.into_iter().map(request).collect()
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_session_that_loses_its_connection_goes_on_with_its_watches() {
    let (mut machine, session) = Machine::connected();
    let mut watching = pin!(session.watch(path!("/w"), AddWatchMode::Persistent));
    assert!(poll(watching.as_mut()).is_pending());
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 40, Ok(Reply::WatchAdded));
    let mut stream = watching.wait().unwrap();
    let mut under_way = pin!(session.sync());
    assert!(poll(under_way.as_mut()).is_pending());

    let again = machine.links.close(machine.conn).unwrap();
    assert_eq!(under_way.wait(), Err(Error::ConnectionLoss));
    assert_eq!(session.state(), SessionState::Suspended);
    assert_eq!(session.exists(path!("/w")).wait(), Err(Error::Suspended));
    assert!(Arc::ptr_eq(&again, &machine.link));

    machine.requests();
    let request = machine.dial();
    assert_eq!((request.session, request.last_zxid_seen), (SessionId(7), 40));
    assert_eq!(request.password.unwrap(), [9; 16][..]);
    let [Request::SetWatches(set)] = &machine.accept(7)[..] else { panic!("no watches") };
    assert_eq!((set.relative_zxid, &set.persistent[..]), (40, &[Text::from("/w")][..]));
    assert_eq!(session.state(), SessionState::Connected);
    assert_eq!(stream.next().wait(), Some(WatchItem::Gap));
}

#[test]
fn a_session_that_is_refused_is_lost() {
    let (mut machine, session) = Machine::connected();
    machine.links.close(machine.conn).unwrap();
    machine.dial();
    assert_eq!(machine.accept(0), []);
    assert_eq!(session.state(), SessionState::Lost(LostReason::Expired));
    assert!(machine.links.close(machine.conn).is_none(), "there is nothing to connect again");
}

#[test]
fn what_comes_behind_an_answer_that_is_still_put_together_waits_for_it() {
    let (machine, session) = Machine::connected();
    let mut reading = pin!(session.get_and_watch(path!("/w")));
    let mut behind = pin!(session.sync());
    assert!(poll(reading.as_mut()).is_pending() && poll(behind.as_mut()).is_pending());
    let xids: Vec<i32> = machine.requests().into_iter().map(|(xid, _)| xid).collect();
    machine.link.pending(machine.conn, xids[0]);
    machine.link.notify(WatchEvent { kind: EventKind::NodeDataChanged, path: "/w".into(), zxid: 5 });
    machine.link.reply(xids[1], 5, Ok(Reply::Synced(None)));
    assert!(poll(behind.as_mut()).is_pending());
    machine.link.filled(machine.conn, xids[0], 4, Ok(Reply::Data(None, zoolet_model::Stat::default())));
    let (_, watch) = reading.wait().unwrap();
    // The event came after the reply that armed the watch, so it is not lost.
    assert_eq!(watch.wait().unwrap().zxid, 5);
    behind.wait().unwrap();
}

/// Regression: xids name slots, and slots are reused. A slow read of a former connection became the
/// answer to an unrelated request of the next connection.
#[test]
fn an_answer_that_is_put_together_after_its_connection_is_nobodys() {
    let (mut machine, session) = Machine::connected();
    let mut former = pin!(session.get(path!("/a")));
    assert!(poll(former.as_mut()).is_pending());
    let (xid, _) = machine.requests().remove(0);
    let former_conn = machine.conn;
    machine.link.pending(former_conn, xid);
    machine.links.close(former_conn).unwrap();
    assert_eq!(former.wait(), Err(Error::ConnectionLoss));
    machine.dial();
    machine.accept(7);
    let mut reading = pin!(session.get(path!("/b")));
    assert!(poll(reading.as_mut()).is_pending());
    assert_eq!(machine.requests()[0].0, xid);
    machine.link.pending(machine.conn, xid);
    let data = |text: &'static str| Ok(Reply::Data(Some(Bytes::from(text)), zoolet_model::Stat::default()));
    machine.link.filled(former_conn, xid, 4, data("of a"));
    assert!(poll(reading.as_mut()).is_pending());
    machine.link.filled(machine.conn, xid, 5, data("of b"));
    assert_eq!(reading.wait().unwrap().0.unwrap(), "of b");
}

/// Another server may apply the end first. It may then grant the owner's lock to another session
/// before this server has answered.
#[test]
fn a_session_that_closes_is_over_for_its_owner_before_anybody_else_hears_of_it() {
    let (machine, session) = Machine::connected();
    let other = session.clone();
    let before = submit(&session, delete("/1"));
    let (xid, _) = machine.requests().remove(0);
    let mut watch = pin!(OneShotWatch::new(&machine.link, "/w".into(), Arm::Data));
    machine.link.reply(XID_PING, 1, Ok(Reply::Empty));
    machine.ping();
    machine.link.reply(XID_PING, 1, Ok(Reply::Empty));
    assert!(other.safe_until() > Instant::START);
    let mut states = other.states();
    assert_eq!(states.next().wait(), Some(SessionState::Connected));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(pin!(states.next()).poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());

    let mut closing = pin!(session.close());
    assert!(poll(closing.as_mut()).is_pending());
    let [(close_xid, Request::CloseSession)] = machine.requests()[..] else { panic!("it does not close") };
    assert_eq!((other.state(), other.safe_until()), (SessionState::Closed, Instant::START));
    assert_eq!(
        (woken.0.load(SeqCst), states.next().wait(), states.next().wait()),
        (2, Some(SessionState::Closed), None)
    );
    assert_eq!(watch.wait(), None);
    assert_eq!(submit(&other, delete("/2")).wait(), Err(Error::Closed));
    // Earlier requests are answered first, then the end.
    machine.link.reply(xid, 1, Ok(Reply::Empty));
    assert_eq!(before.wait(), Ok(Reply::Empty));
    machine.link.reply(close_xid, 2, Ok(Reply::Empty));
    assert_eq!(closing.wait(), Ok(()));
    assert!(machine.links.find(machine.conn).is_some_and(|link| !link.closed()));
    assert_eq!((other.state(), machine.requests()), (SessionState::Closed, vec![]));
}

#[test]
fn whoever_still_waits_when_the_connection_of_a_closing_session_ends_waits_no_longer() {
    let (mut machine, session) = Machine::connected();
    let before = submit(&session, delete("/1"));
    drop(session);
    assert!(machine.links.close(machine.conn).is_none());
    assert_eq!(before.wait(), Err(Error::Closed));

    let (machine, session) = Machine::connected();
    let closing = session.close();
    machine.link.lost(LostReason::Stopped);
    assert_eq!(closing.wait(), Err(Error::Lost(LostReason::Stopped)), "it had not begun");
    let (machine, session) = Machine::connected();
    let mut closing = pin!(session.close());
    assert!(poll(closing.as_mut()).is_pending());
    machine.link.lost(LostReason::Stopped);
    assert_eq!(closing.wait(), Err(Error::Closed));
}

#[test]
fn what_is_answered_behind_a_refused_identity_is_nobodys() {
    let (machine, session) = Machine::connected();
    let mut adding = pin!(session.add_auth("digest", "a"));
    let mut behind = pin!(session.sync());
    assert!(poll(adding.as_mut()).is_pending() && poll(behind.as_mut()).is_pending());
    let sent = machine.requests();
    machine.link.reply(sent[0].0, 1, Err(ErrorCode::AuthFailed));
    machine.link.reply(sent[1].0, 1, Ok(Reply::Synced(None)));
    assert_eq!((adding.wait(), behind.wait()), (Err(Error::AuthFailed), Err(Error::AuthFailed)));
}

/// Returns a session with two watches on `/w`: a recursive stream and a one-shot.
fn watching() -> (Machine, Session, WatchStream, OneShotWatch) {
    let (machine, session) = Machine::connected();
    let (lasting, stream) = Coordinator::watch(&session, path!("/w"), AddWatchMode::PersistentRecursive);
    let (once, watch) = session.submit_watching(Request::GetData { path: "/w".into(), watch: true });
    for (xid, _) in machine.requests() {
        machine.link.reply(xid, 40, Ok(Reply::Empty));
    }
    assert_eq!((lasting.wait(), once.wait()), (Ok(Reply::Empty), Ok(Reply::Empty)));
    (machine, session, stream, watch)
}

/// Checks which watches are registered again; returns the zxid since which they may have missed
/// events.
fn set_watches(sent: &[Request]) -> i64 {
    let [Request::SetWatches(set), ..] = sent else { panic!("{sent:?}") };
    assert_eq!((&set.data[..], &set.persistent_recursive[..]), (&[Text::from("/w")][..], &[Text::from("/w")][..]));
    set.relative_zxid
}

/// Regression: one-shot watches did not fire for a gap. A session that waited for a lock waited
/// forever after the holder's znode was deleted.
#[test]
fn what_a_one_shot_missed_behind_a_slow_answer_is_asked_for() {
    let (machine, session, mut stream, mut watch) = watching();
    let mut slow = pin!(session.get(path!("/slow")));
    assert!(poll(slow.as_mut()).is_pending());
    let (xid, _) = machine.requests().remove(0);
    machine.link.pending(machine.conn, xid);
    for number in 0..super::machine::BEHIND_MAX {
        let (kind, path) = (EventKind::NodeCreated, format!("/w/{number}").into());
        machine.link.notify(WatchEvent { kind, path, zxid: 50 });
    }
    let gaps = session.gaps();
    machine.link.notify(WatchEvent { kind: EventKind::NodeDeleted, path: "/w".into(), zxid: 60 });
    assert_eq!(session.gaps(), gaps + 1, "before any later answer");
    assert_eq!(only_requests(&machine.ping()), [Request::Ping], "not before the answer");
    machine.link.filled(machine.conn, xid, 49, Err(ErrorCode::NoNode));
    let (sent, _) = (machine.requests(), slow.wait());
    assert_eq!((sent[0].0, sent.len(), set_watches(&only_requests(&sent))), (XID_WATCHES, 1, 40));
    assert_eq!(stream.next().wait(), Some(WatchItem::Gap));
    assert!(poll(pin!(&mut watch)).is_pending());
    machine.link.notify(WatchEvent { kind: EventKind::NodeDeleted, path: "/w".into(), zxid: -1 });
    assert_eq!(watch.wait().unwrap().kind, EventKind::NodeDeleted);
    machine.link.reply(XID_WATCHES, 61, Ok(Reply::Empty));
    assert_eq!(only_requests(&machine.ping()), [Request::Ping]);
}

/// Regression: other clients had filled the server's watch table while the session was connected
/// elsewhere. All its watches stayed silent until the next reconnect.
#[test]
fn watches_that_a_server_has_no_room_for_are_asked_for_until_it_has_some() {
    let (mut machine, session, mut stream, mut watch) = watching();
    let gaps = session.gaps();
    machine.links.close(machine.conn).unwrap();
    machine.dial();
    assert_eq!(session.gaps(), gaps, "what was answered before came behind its events");
    assert_eq!(set_watches(&machine.accept(7)), 40);
    assert_eq!(session.gaps(), gaps + 1);
    assert_eq!(stream.next().wait(), Some(WatchItem::Gap));
    assert_eq!(only_requests(&machine.ping()), [Request::Ping], "not twice while it is under way");
    machine.link.reply(XID_WATCHES, 70, Err(ErrorCode::SystemError));
    let mut reading = pin!(session.sync());
    assert!(poll(reading.as_mut()).is_pending());
    machine.link.reply(machine.requests()[0].0, 80, Ok(Reply::Synced(None)));
    assert!(poll(pin!(stream.next())).is_pending() && poll(pin!(&mut watch)).is_pending());
    assert_eq!(set_watches(&only_requests(&machine.ping())), 40, "what it has answered since, watches have not seen");
    assert_eq!(stream.next().wait(), Some(WatchItem::Gap), "it looks again behind each attempt");
    machine.link.reply(XID_WATCHES, 90, Err(ErrorCode::SystemError));

    machine.links.close(machine.conn).unwrap();
    machine.dial();
    assert_eq!(set_watches(&machine.accept(7)), 40, "nor on another connection");
    machine.link.notify(WatchEvent { kind: EventKind::NodeDataChanged, path: "/w".into(), zxid: -1 });
    machine.link.reply(XID_WATCHES, 100, Ok(Reply::Empty));
    assert_eq!(watch.wait().unwrap().kind, EventKind::NodeDataChanged);
    assert_eq!(only_requests(&machine.ping()), [Request::Ping]);
}

/// Regression: the end of one watch was sent after the start of a second one on the same path. The
/// server then ended the second watch too.
#[test]
fn the_end_of_a_watch_does_not_overtake_the_beginning_of_the_next() {
    const PATHS: usize = 200;
    let paths: Vec<Path> = (0..PATHS).map(|number| Path::new(format!("/{number}").into()).unwrap()).collect();
    for _ in 0..50 {
        let (machine, _session) = Machine::connected();
        let link = &machine.link;
        let stream = |path: &Path| WatchStream::new(link, path, AddWatchMode::Persistent);
        let former: Vec<_> = paths.iter().map(stream).collect();
        let start = Barrier::new(2);
        let (start, paths) = (&start, &paths);
        let later: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(move || {
                start.wait();
                former.into_iter().for_each(drop);
            });
            start.wait();
            let watch = |path: &Path| {
                let stream = WatchStream::new(link, path, AddWatchMode::Persistent);
                let request = Request::AddWatch { path: path.text().clone(), mode: AddWatchMode::Persistent };
                (link.submit(request, Some(stream.id())).unwrap(), stream)
            };
            paths.iter().map(watch).collect()
        });
        let mut watched = BTreeSet::new();
        for (_, request) in machine.requests() {
            match request {
                Request::AddWatch { path, .. } => assert!(watched.insert(path)),
                Request::RemoveWatches { path, .. } => assert!(!watched.contains(&path), "{path} is not watched"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((watched.len(), later.len()), (PATHS, PATHS));
    }
}

#[test]
fn a_session_given_up_before_it_was_connected_closes_once_it_is() {
    let (mut machine, session) = Machine::connected();
    machine.links.close(machine.conn).unwrap();
    drop(session);
    machine.dial();
    assert_eq!(machine.accept(7), [Request::CloseSession]);
}

#[test]
fn a_multi_read_that_breaks_off_is_an_error_in_process_too() {
    let (machine, session) = Machine::connected();
    let reading = session.submit(Request::MultiRead(vec![ReadOp::Unreadable])).unwrap();
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 5, Ok(Reply::MultiReadBroken(vec![])));
    assert_eq!(reading.wait(), Err(Error::Refused(ErrorCode::MarshallingError)));
}

impl Machine {
    /// Sends pings as the machine's driver does; returns all requests sent. Pings carry the xid of
    /// pings.
    fn ping(&self) -> Vec<(i32, Request)> {
        let pings: Vec<_> = self.links.pings().collect();
        let pings = pings.into_iter().map(|event| match event {
            Event::Request { xid, request, .. } => (xid, request),
            other => panic!("{other:?}"),
        });
        self.requests().into_iter().chain(pings).collect()
    }

    fn charged(&self) -> u64 {
        self.budget.current(Part::Outstanding)
    }
}

fn delete(path: &str) -> Request {
    Request::Write(WriteOp::Delete { path: path.into(), version: -1 })
}

fn submit(session: &Session, request: Request) -> <Session as Coordinator>::Ticket {
    Coordinator::submit(session, request)
}

fn only_requests(sent: &[(i32, Request)]) -> Vec<Request> {
    sent.iter().map(|(_, request)| request.clone()).collect()
}

#[test]
fn an_errand_goes_in_the_order_of_submits_though_no_slot_is_free() {
    let (machine, session) = Machine::with(Limits { outstanding_max: 1, ..Limits::default() });
    let first = submit(&session, delete("/1"));
    session.run_errand(Errand::delete("/2".into()));
    session.run_errand(Errand::delete("/3".into()));
    let sent = machine.requests();
    assert_eq!(only_requests(&sent), [delete("/1"), delete("/2"), delete("/3")]);
    assert!(sent[1].0 < 0 && sent[2].0 < 0 && sent[1].0 != sent[2].0);
    machine.link.reply(sent[0].0, 1, Ok(Reply::Empty));
    assert_eq!(first.wait(), Ok(Reply::Empty));
    assert!(machine.charged() > 0, "errands count as requests do");
    machine.link.reply(sent[1].0, 2, Ok(Reply::Empty));
    machine.link.reply(sent[2].0, 3, Err(ErrorCode::NoNode));
    assert_eq!((machine.charged(), machine.ping().len()), (0, 1), "nothing but the ping is left to send");
}

#[test]
fn an_errand_of_several_steps_takes_each_when_the_one_before_is_answered() {
    let (machine, session) = Machine::connected();
    let guid = Guid::from_random_bits(session.random_bits());
    session.run_errand(Errand::find_and_delete("/locks".into(), guid));
    let answer = |result: Result<Reply, ErrorCode>| {
        let sent = machine.requests();
        let [(xid, request)] = &sent[..] else { panic!("{sent:?}") };
        machine.link.reply(*xid, 1, result);
        request.clone()
    };
    let name = format!("{guid}-lock-0000000001");
    let names: Names = [name.as_str()].into_iter().collect();
    assert!(matches!(answer(Ok(Reply::Multi(vec![OpResult::Check]))), Request::Multi(_)));
    assert!(matches!(answer(Ok(Reply::Names(names))), Request::GetChildren { .. }));
    assert_eq!(answer(Ok(Reply::Empty)), delete(&format!("/locks/{name}")));
    assert!(matches!(answer(Ok(Reply::Names(Names::default()))), Request::GetChildren { .. }));
    assert_eq!((machine.requests(), machine.charged()), (vec![], 0));
}

/// Regression: each errand listed the parent itself. Ten thousand attempts given up at once kept a
/// server busy for seconds, and other sessions expired meanwhile.
#[test]
fn errands_that_look_at_one_parent_share_their_requests() {
    let (machine, session) = Machine::connected();
    let guids: Vec<_> = (0..1000_u128).map(|bits| Guid::from_random_bits(bits << 80)).collect();
    guids.iter().for_each(|guid| session.run_errand(Errand::find_and_delete("/locks".into(), *guid)));
    // The znode of every second attempt exists, and one of another client.
    let mut left: Vec<String> = guids.iter().step_by(2).map(|guid| format!("_c_{guid}-lock-0000000001")).collect();
    left.push("theirs-0000000001".into());
    let (mut asked, mut deleted) = (0, Vec::new());
    loop {
        let sent = machine.requests();
        if sent.is_empty() {
            break;
        }
        for (xid, request) in sent {
            let answer = match request {
                Request::Multi(_) => Reply::Multi(vec![OpResult::Check]),
                Request::GetChildren { .. } => Reply::Names(left.iter().collect()),
                Request::Write(WriteOp::Delete { path, .. }) => {
                    left.retain(|name| *path != format!("/locks/{name}"));
                    deleted.push(path);
                    machine.link.reply(xid, 1, Ok(Reply::Empty));
                    continue;
                }
                other => panic!("{other:?}"),
            };
            asked += 1;
            machine.link.reply(xid, 1, Ok(answer));
        }
    }
    assert_eq!((deleted.len(), left, machine.charged()), (500, vec!["theirs-0000000001".to_owned()], 0));
    assert!(asked <= 10, "{asked} checks and lists");
}

/// An attempt may create its znode after a list was read. So an errand that begins while a list is
/// in flight needs a new list.
#[test]
fn an_errand_does_not_share_a_list_that_was_asked_for_before_it_began() {
    let (mut machine, session) = Machine::connected();
    let [first, second] = [1, 2].map(|bits| Guid::from_random_bits(bits << 80));
    session.run_errand(Errand::find_and_delete("/locks".into(), first));
    let settle = machine.requests().remove(0);
    session.run_errand(Errand::find_and_delete("/locks".into(), second));
    assert_eq!(machine.requests(), [], "it waits for its turn");
    machine.link.reply(settle.0, 1, Ok(Reply::Multi(vec![OpResult::Check])));
    let sent = machine.requests();
    assert!(matches!(&sent[..], [(_, Request::Multi(_)), (_, Request::GetChildren { .. })]), "{sent:?}");
    machine.links.close(machine.conn).unwrap();
    machine.dial();
    assert!(matches!(&machine.accept(7)[..], [Request::Multi(_)]), "both of them, behind one write");
    assert!(machine.charged() > 0);
}

#[test]
fn an_errand_that_the_server_could_not_do_goes_again_with_the_next_ping() {
    let (machine, session) = Machine::connected();
    session.run_errand(Errand::delete("/1".into()));
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 1, Err(ErrorCode::SystemError));
    session.run_errand(Errand::delete("/2".into()));
    assert_eq!(only_requests(&machine.requests()), [delete("/2")], "not before");
    assert_eq!(only_requests(&machine.ping()), [delete("/1"), Request::Ping]);
    assert_eq!(only_requests(&machine.ping()), [Request::Ping], "not twice");
}

#[test]
fn errands_go_again_after_a_reconnect_before_what_the_owner_asks_then() {
    let (mut machine, session) = Machine::connected();
    session.run_errand(Errand::delete("/1".into()));
    session.run_errand(Errand::delete("/2".into()));
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 1, Ok(Reply::Empty));
    machine.links.close(machine.conn).unwrap();
    session.run_errand(Errand::delete("/3".into()));
    machine.dial();
    assert_eq!(machine.requests(), [], "nothing goes before the handshake is answered");
    assert_eq!(machine.accept(7), [delete("/2"), delete("/3")]);
    let _late = submit(&session, delete("/4"));
    assert_eq!(only_requests(&machine.requests()), [delete("/4")]);
    machine.links.close(machine.conn).unwrap();
    machine.dial();
    assert_eq!(machine.accept(7), [delete("/2"), delete("/3")], "until they are answered");
}

/// Regression: the next holder of a gate creates its znode again. A deletion that was carried out,
/// but sent again because its answer was lost, deleted the new znode and let a second session pass.
#[test]
fn a_deletion_of_what_others_may_make_anew_is_not_sent_again_unseen() {
    let (mut machine, session) = Machine::connected();
    let guid = Guid::from_random_bits(7);
    session.run_errand(Errand::delete_saying("/gate".into(), guid));
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 1, Ok(Reply::Data(Some(guid.to_string().into()), zoolet_model::Stat::default())));
    assert_eq!(only_requests(&machine.requests()), [delete("/gate")]);
    machine.links.close(machine.conn).unwrap();
    machine.dial();
    let settle = Request::Multi(vec![WriteOp::Check { path: "/gate".into(), version: -1 }]);
    assert_eq!(machine.accept(7), std::slice::from_ref(&settle), "and then it looks whose it is");
    machine.links.close(machine.conn).unwrap();
    session.run_errand(Errand::delete_saying("/gate".into(), guid));
    machine.dial();
    assert_eq!(machine.accept(7), [settle.clone(), settle], "what is under way comes before a look as well");
}

#[test]
fn a_session_that_closes_sends_its_errands_first_and_forgets_them_with_its_end() {
    let (mut machine, session) = Machine::connected();
    session.run_errand(Errand::delete("/1".into()));
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 1, Err(ErrorCode::SystemError));
    drop(session);
    assert_eq!(only_requests(&machine.requests()), [delete("/1"), Request::CloseSession]);
    assert!(machine.links.close(machine.conn).is_none());
    assert_eq!(machine.charged(), 0);

    let (mut machine, session) = Machine::connected();
    machine.links.close(machine.conn).unwrap();
    session.run_errand(Errand::delete("/2".into()));
    drop(session);
    machine.dial();
    assert_eq!(machine.accept(7), [delete("/2"), Request::CloseSession]);
}

#[test]
fn a_request_without_room_goes_in_its_turn_and_never_if_its_ticket_was_dropped() {
    let (mut machine, session) = Machine::with(Limits { outstanding_max: 1, ..Limits::default() });
    let first = submit(&session, delete("/1"));
    let dropped = submit(&session, delete("/2"));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut third = pin!(submit(&session, delete("/3")));
    assert!(third.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(dropped);
    let sent = machine.requests();
    assert_eq!(only_requests(&sent), [delete("/1")]);
    machine.link.reply(sent[0].0, 1, Ok(Reply::Empty));
    let fourth = submit(&session, delete("/4"));
    assert_eq!(session.submit(delete("/5")).unwrap_err(), Error::Busy);
    assert_eq!(first.wait(), Ok(Reply::Empty));
    let fifth = submit(&session, delete("/5"));
    let sent = machine.requests();
    assert_eq!(only_requests(&sent), [delete("/3")], "nobody overtakes it, whoever is polled first");
    assert_eq!(woken.0.load(SeqCst), 0);
    machine.link.reply(sent[0].0, 2, Err(ErrorCode::NoNode));
    assert_eq!((third.wait(), woken.0.load(SeqCst)), (Err(Error::Refused(ErrorCode::NoNode)), 1));
    assert_eq!(only_requests(&machine.requests()), [delete("/4")]);
    machine.links.close(machine.conn).unwrap();
    assert_eq!((fourth.wait(), fifth.wait()), (Err(Error::ConnectionLoss), Err(Error::Suspended)), "it was not sent");
    assert_eq!(machine.charged(), 0);
}

#[test]
fn what_waits_for_room_when_the_session_closes_is_not_sent() {
    let (machine, session) = Machine::with(Limits { outstanding_max: 2, ..Limits::default() });
    let first = submit(&session, delete("/1"));
    let closing = [submit(&session, delete("/2")), submit(&session, Request::CloseSession)];
    let behind = submit(&session, delete("/3"));
    let sent = machine.requests();
    machine.link.reply(sent[0].0, 1, Ok(Reply::Empty));
    assert_eq!((first.wait(), session.state()), (Ok(Reply::Empty), SessionState::Closed));
    let close = machine.requests();
    assert_eq!(only_requests(&close), [Request::CloseSession]);
    assert_eq!(behind.wait(), Err(Error::Closed));
    machine.link.reply(sent[1].0, 2, Ok(Reply::Empty));
    machine.link.reply(close[0].0, 3, Ok(Reply::Empty));
    assert_eq!(closing.map(Wait::wait), [Ok(Reply::Empty), Ok(Reply::Empty)]);
}

#[test]
fn a_request_that_watches_is_heard_whatever_its_kind() {
    let (machine, session) = Machine::connected();
    let path = || Text::from("/w");
    let cases = [
        (Request::Exists { path: path(), watch: true }, Err(ErrorCode::NoNode), EventKind::NodeCreated),
        (Request::GetData { path: path(), watch: true }, Ok(Reply::Empty), EventKind::NodeDataChanged),
        (
            Request::GetChildren { path: path(), watch: true, with_stat: false },
            Ok(Reply::Empty),
            EventKind::NodeChildrenChanged,
        ),
    ];
    for (request, answer, kind) in cases {
        let (ticket, watch) = session.submit_watching(request);
        let (xid, _) = machine.requests().remove(0);
        machine.link.reply(xid, 1, answer.clone());
        assert_eq!(ticket.wait(), answer.map_err(Error::Refused));
        machine.link.notify(WatchEvent { kind, path: path(), zxid: 2 });
        let Poll::Ready(Some(event)) = poll(pin!(watch)) else { panic!("{kind:?} is not heard") };
        assert_eq!(event.kind, kind);
    }
}

/// A timeout of 7 ms less the allowance for clock drift.
const SAFE: Duration = Duration::from_micros(6993);

#[test]
fn a_session_is_safe_from_when_it_sent_what_was_answered() {
    let (machine, session) = Machine::connected();
    assert_eq!(session.safe_until(), Instant::START);
    machine.world.set(1000);
    let ticket = submit(&session, delete("/1"));
    machine.world.set(5000);
    assert_eq!(session.safe_until(), Instant::START);
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 1, Ok(Reply::Empty));
    assert_eq!(session.safe_until(), Instant::at(Duration::from_millis(1000) + SAFE), "not when the answer came");
    ticket.wait().unwrap();
    // A ping shows the same, for the time when it was sent.
    assert_eq!(only_requests(&machine.ping()), [Request::Ping]);
    machine.world.set(6000);
    machine.ping();
    for _ in 0..2 {
        machine.link.reply(XID_PING, 1, Ok(Reply::Empty));
        assert_eq!(session.safe_until(), Instant::at(Duration::from_millis(5000) + SAFE), "of two the first");
    }
    machine.ping();
    machine.link.reply(XID_PING, 1, Ok(Reply::Empty));
    assert_eq!(session.safe_until(), Instant::at(Duration::from_millis(6000) + SAFE));
}

/// Regression: with a short timeout, `told_late` exceeds the time between two pings. A session with
/// a timeout of 4 s was never known to be safe.
#[test]
fn a_short_session_pings_its_leader_and_is_safe_from_then() {
    let (mut machine, session) = Machine::connected();
    machine.world.told_late_ms.store(3200, SeqCst);
    for (timeout_ms, request) in [(9600, Request::Ping), (9599, Request::Sync { path: None })] {
        machine.links.close(machine.conn).unwrap();
        machine.dial();
        machine.accept(timeout_ms);
        assert_eq!(only_requests(&machine.ping()), [request], "{timeout_ms}");
    }
    machine.links.close(machine.conn).unwrap();
    machine.dial();
    machine.accept(4000);
    let safe = |ms| Instant::at(Duration::from_millis(ms + 3996));
    for ms in [1333, 2666] {
        machine.world.set(ms);
        machine.ping();
        machine.world.set(ms + 20);
        machine.link.reply(XID_PING, 1, Ok(Reply::Synced(None)));
        assert_eq!(session.safe_until(), safe(ms));
    }
    machine.ping();
    machine.link.reply(XID_PING, 1, Err(ErrorCode::SystemError));
    assert_eq!(session.safe_until(), safe(2666), "who refuses may not have asked anybody");
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_timer_is_ready_at_its_instant_and_leaves_nothing_behind_when_it_is_dropped() {
    let (machine, session) = Machine::connected();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut timers = [50, 20, 90].map(|ms| Box::pin(session.timer(Instant::at(Duration::from_millis(ms)))));
    assert!(timers.iter_mut().all(|timer| timer.as_mut().poll(&mut context).is_pending()));
    assert_eq!(machine.world.roused.load(SeqCst), 2, "for each that is the soonest");
    assert_eq!(machine.world.timers.next(), Some(Duration::from_millis(20)));
    machine.world.set(49);
    assert_eq!(woken.0.load(SeqCst), 1);
    machine.world.set(50);
    assert_eq!(woken.0.load(SeqCst), 2);
    let ready = timers.each_mut().map(|timer| timer.as_mut().poll(&mut context).is_ready());
    assert_eq!(ready, [true, true, false]);
    drop(timers);
    assert_eq!(machine.world.timers.next(), None);
    assert_eq!(Arc::strong_count(&woken), 2, "the test's own and its waker");
    // After the end of the machine, no timer would be woken.
    let mut late = pin!(session.timer(Instant::at(Duration::from_millis(100))));
    assert!(late.as_mut().poll(&mut context).is_pending());
    machine.world.timers.end();
    assert_eq!(woken.0.load(SeqCst), 3);
    assert!(late.as_mut().poll(&mut context).is_ready());
    assert!(poll(pin!(session.timer(Instant::at(Duration::MAX)))).is_ready());
}

/// Returns a session, connected at 2 s, that its owner must touch every 5 s.
fn watched_over() -> (Machine, Session) {
    let (mut machine, session) = Machine::connected();
    drop(session);
    machine.requests();
    let world: Arc<dyn Surroundings> = machine.world.clone();
    let limits = Limits::default();
    machine.link = Link::new(machine.sent.clone(), world, 1000, &limits, Arc::clone(&machine.budget));
    machine.link.watch_over(Duration::from_secs(5));
    machine.world.set(2000);
    machine.dial();
    machine.accept(7);
    let session = Session::new(Arc::clone(&machine.link));
    (machine, session)
}

const UNTOUCHED: SessionState = SessionState::Lost(LostReason::Untouched);

#[test]
fn a_session_that_its_owner_does_not_touch_closes_and_one_that_he_touches_lives() {
    let (machine, session) = watched_over();
    for ms in [6999, 11_998, 16_997] {
        machine.world.set(ms);
        assert_eq!((session.state(), machine.requests()), (SessionState::Connected, vec![]), "{ms}");
        session.touch();
    }
    machine.world.set(21_996);
    let mut states = session.states();
    assert_eq!(states.next().wait(), Some(SessionState::Connected));
    let mut under_way = pin!(session.sync());
    assert!(poll(under_way.as_mut()).is_pending());
    let (xid, _) = machine.requests().remove(0);
    machine.world.set(21_997);
    assert_eq!((session.state(), states.next().wait(), states.next().wait()), (UNTOUCHED, Some(UNTOUCHED), None));
    assert_eq!(only_requests(&machine.requests()), [Request::CloseSession]);
    assert_eq!(session.safe_until(), Instant::START);
    // The answer was in flight when the watchdog fired.
    machine.link.reply(xid, 3, Ok(Reply::Synced(None)));
    assert_eq!(under_way.wait(), Err(Error::Lost(LostReason::Untouched)));
    assert_eq!(session.exists(path!("/")).wait(), Err(Error::Lost(LostReason::Untouched)));
    session.touch();
    assert_eq!(session.state(), UNTOUCHED, "it is too late");
    assert_eq!(machine.world.timers.next(), None, "nobody looks any more");
}

#[test]
fn a_session_without_a_connection_when_it_was_not_touched_is_closed_with_the_next() {
    let (mut machine, session) = watched_over();
    machine.links.close(machine.conn).unwrap();
    machine.world.set(7000);
    assert_eq!((session.state(), machine.requests()), (UNTOUCHED, vec![]));
    assert_eq!(machine.dial().session, SessionId(7));
    assert_eq!(machine.accept(7), [Request::CloseSession]);
    assert_eq!(session.state(), UNTOUCHED);
    assert!(machine.links.close(machine.conn).is_none());
}

#[test]
fn a_watchdog_goes_with_its_session() {
    let (machine, session) = watched_over();
    assert_eq!(machine.world.timers.next(), Some(Duration::from_secs(5)), "from when it was made");
    machine.world.set(5000);
    assert_eq!(machine.world.timers.next(), Some(Duration::from_secs(7)), "from when it was served");
    machine.link.lost(LostReason::Stopped);
    machine.world.set(7000);
    assert_eq!((session.state(), machine.world.timers.next()), (SessionState::Lost(LostReason::Stopped), None));

    let (machine, session) = watched_over();
    let Machine { world, links, link, .. } = machine;
    drop((session, links, link));
    assert_eq!(world.timers.next(), None);
}
