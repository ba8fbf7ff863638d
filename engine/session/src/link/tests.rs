//! A session, and the tests in the place of the machine.

use super::super::{Links, Session, WatchItem};
use super::*;
use crate::{Wait, lock};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use zoolet_engine::Event;
use zoolet_model::{
    AddWatchMode, ConnectReply, ConnectRequest, ErrorCode, EventKind, LostReason, Path, ReadOp, Request, WatchEvent,
};

/// A path that is written out.
macro_rules! path {
    ($text:expr) => {{
        static PATH: Path = Path::from_static($text);
        &PATH
    }};
}

/// What sessions sent.
#[derive(Debug, Default)]
struct Sent(Mutex<Vec<(ConnId, i32, Request)>>);

impl Outbox for Sent {
    fn request(&self, conn: ConnId, xid: i32, request: Request) {
        lock(&self.0).push((conn, xid, request));
    }
}

/// A session, and this test in the place of the machine.
struct Machine {
    sent: Arc<Sent>,
    links: Links,
    link: Arc<Link>,
    conn: ConnId,
}

impl Machine {
    fn connected() -> (Self, Session) {
        let sent = Arc::new(Sent::default());
        let limits = Limits::default();
        let link = Link::new(sent.clone(), 1000, &limits, Arc::new(Budget::new(&limits)));
        let mut machine = Self { sent, links: Links::default(), link: Arc::clone(&link), conn: ConnId(0) };
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

    /// Answers the handshake; gives what the session sends first.
    fn accept(&self, timeout_ms: i32) -> Vec<Request> {
        let secret = SessionSecret([9; 16]);
        let reply = ConnectReply { timeout_ms, session: SessionId(7), secret, read_only_byte: true };
        self.link.connected(self.conn, &reply).into_iter().map(|(_, request)| request).collect()
    }

    /// What was sent since.
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
    machine.link.pending(xids[0]);
    machine.link.notify(WatchEvent { kind: EventKind::NodeDataChanged, path: "/w".into(), zxid: 5 });
    machine.link.reply(xids[1], 5, Ok(Reply::Synced(None)));
    assert!(poll(behind.as_mut()).is_pending());
    machine.link.filled(xids[0], 4, Ok(Reply::Data(None, zoolet_model::Stat::default())));
    let (_, watch) = reading.wait().unwrap();
    // The event came after the reply that armed the watch, so it is not lost.
    assert_eq!(watch.wait().unwrap().zxid, 5);
    behind.wait().unwrap();
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
