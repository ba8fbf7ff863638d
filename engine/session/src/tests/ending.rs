//! How a session ends.

use super::*;

#[test]
fn session_refused_at_reconnect_is_lost_as_expired() {
    let (mut machine, session) = Machine::connected();
    machine.embedded.close(machine.conn).unwrap();
    machine.dial();
    assert_eq!(machine.accept(0), []);
    assert_eq!(session.state(), SessionState::Lost(LostReason::Expired));
    assert!(machine.embedded.close(machine.conn).is_none(), "there is nothing to connect again");
}

/// Another server may apply the end first. It may then grant the owner's lock to another session
/// before this server has answered.
#[test]
fn closing_session_is_over_for_its_owner_before_the_server_replies() {
    let (machine, session) = Machine::connected();
    let other = session.clone();
    let before = submit(&session, delete("/1"));
    let (xid, _) = machine.requests().remove(0);
    let mut watch = pin!(OneShotWatch::new(&machine.link, "/w".into(), crate::watch::Arm::Data));
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
    assert_eq!(submit(&other, delete("/2")).wait(), Err(RequestError::Closed));
    // Earlier requests are answered first, then the end.
    machine.link.reply(xid, 1, Ok(Reply::Empty));
    assert_eq!(before.wait(), Ok(Reply::Empty));
    machine.link.reply(close_xid, 2, Ok(Reply::Empty));
    assert_eq!(closing.wait(), Ok(()));
    assert!(machine.embedded.find(machine.conn).is_some_and(|link| !link.closed()));
    assert_eq!((other.state(), machine.requests()), (SessionState::Closed, vec![]));
}

#[test]
fn waiters_fail_when_a_closing_session_loses_its_connection() {
    let (mut machine, session) = Machine::connected();
    let before = submit(&session, delete("/1"));
    drop(session);
    assert!(machine.embedded.close(machine.conn).is_some(), "the server may not know of the end");
    assert_eq!(before.wait(), Err(RequestError::Closed));

    let (machine, session) = Machine::connected();
    let closing = session.close();
    machine.link.lost(LostReason::Stopped);
    assert_eq!(closing.wait().unwrap_err().kind(), ErrorKind::SessionLost(LostReason::Stopped), "it had not begun");
    let (machine, session) = Machine::connected();
    let mut closing = pin!(session.close());
    assert!(poll(closing.as_mut()).is_pending());
    machine.link.lost(LostReason::Stopped);
    assert_eq!(closing.wait().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn session_dropped_while_disconnected_closes_on_reconnect() {
    let (mut machine, session) = Machine::connected();
    machine.embedded.close(machine.conn).unwrap();
    drop(session);
    machine.dial();
    assert_eq!(machine.accept(7), [Request::CloseSession]);
}

/// Otherwise the session's locks live until its timeout.
#[test]
fn end_is_sent_again_until_the_server_answers_it() {
    let ways: [fn(&Machine, Session); 3] = [
        |_, session| drop(session),
        |_, session| assert!(poll(pin!(session.close())).is_pending()),
        |machine, _session| {
            machine.link.watch_over(Duration::from_millis(100));
            machine.world.set(1000);
        },
    ];
    for end in ways {
        let (mut machine, session) = Machine::connected();
        end(&machine, session);
        assert_eq!(only_requests(&machine.requests()), [Request::CloseSession]);
        for _ in 0..2 {
            assert!(machine.embedded.close(machine.conn).is_some(), "the server has not answered");
            assert_eq!(machine.dial().session, SessionId(7));
            assert_eq!(machine.accept(7), [Request::CloseSession]);
        }
        machine.link.reply(XID_END, 2, Ok(Reply::Empty));
        assert!(machine.embedded.close(machine.conn).is_none());
    }
}

fn create(kind: CreateKind) -> WriteOp {
    let mode = CreateMode::Valid { kind, sequential: false };
    WriteOp::Create(Create { path: "/1".into(), data: None, acl: None, mode, with_stat: false })
}

/// A shutdown without a leader waits for such a session, because others wait for its ephemerals.
#[test]
fn closed_session_holds_ephemerals_until_the_server_answers_its_end() {
    let kept = [Request::Write(create(CreateKind::Persistent)), delete("/1")];
    let ephemerals = [create(CreateKind::Ephemeral), create(CreateKind::Persistent)].to_vec();
    let owned = [Request::Write(create(CreateKind::Ephemeral)), Request::Multi(ephemerals)];
    let requests = kept.map(|request| (request, false)).into_iter().chain(owned.map(|request| (request, true)));
    for (request, holds) in requests {
        let (mut machine, session) = Machine::connected();
        drop(submit(&session, request));
        machine.requests();
        assert!(machine.embedded.close(machine.conn).is_some());
        assert!(!machine.link.holds_until_end(), "it is not closed");
        machine.link.close_unheard();
        for _ in 0..2 {
            assert_eq!(machine.link.holds_until_end(), holds);
            machine.dial();
            assert_eq!(machine.accept(7), [Request::CloseSession]);
            assert_eq!((machine.link.holds_until_end(), machine.embedded.is_empty()), (holds, false));
            assert!(machine.embedded.close(machine.conn).is_some(), "the server has not answered");
        }
        machine.dial();
        machine.accept(7);
        machine.link.reply(XID_END, 2, Ok(Reply::Empty));
        assert!(!machine.link.holds_until_end());
        assert!(machine.embedded.close(machine.conn).is_none() && machine.embedded.is_empty());
    }
}

#[test]
fn end_that_the_server_answered_is_not_sent_again() {
    for is_dropped in [true, false] {
        let (mut machine, session) = Machine::connected();
        let mut closing = pin!(if is_dropped { None } else { Some(session.clone().close()) });
        if let Some(closing) = closing.as_mut().as_pin_mut() {
            assert!(poll(closing).is_pending());
        }
        drop(session);
        let [(xid, Request::CloseSession)] = machine.requests()[..] else { panic!("one end") };
        machine.link.reply(xid, 2, Ok(Reply::Empty));
        assert!(machine.embedded.close(machine.conn).is_none());
    }
}

#[test]
fn end_that_finds_the_session_expired_is_not_sent_again() {
    let (mut machine, session) = Machine::connected();
    drop(session);
    assert!(machine.embedded.close(machine.conn).is_some());
    machine.dial();
    assert_eq!(machine.accept(0), []);
    assert!(machine.embedded.close(machine.conn).is_none());
}

#[test]
fn requests_queued_behind_a_close_are_not_sent() {
    let (machine, session) = Machine::with(Limits { outstanding_max: 2, ..Limits::default() });
    let first = submit(&session, delete("/1"));
    let closing = [submit(&session, delete("/2")), submit(&session, Request::CloseSession)];
    let behind = submit(&session, delete("/3"));
    let sent = machine.requests();
    machine.link.reply(sent[0].0, 1, Ok(Reply::Empty));
    assert_eq!((first.wait(), session.state()), (Ok(Reply::Empty), SessionState::Closed));
    let close = machine.requests();
    assert_eq!(only_requests(&close), [Request::CloseSession]);
    assert_eq!(behind.wait(), Err(RequestError::Closed));
    machine.link.reply(sent[1].0, 2, Ok(Reply::Empty));
    machine.link.reply(close[0].0, 3, Ok(Reply::Empty));
    assert_eq!(closing.map(Wait::wait), [Ok(Reply::Empty), Ok(Reply::Empty)]);
}
