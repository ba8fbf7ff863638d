//! Requests and their answers, in order.

use super::*;

#[test]
fn messages_behind_a_pending_reply_wait_for_it() {
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
fn reply_completed_after_its_connection_ended_is_dropped() {
    let (mut machine, session) = Machine::connected();
    let mut former = pin!(session.get(path!("/a")));
    assert!(poll(former.as_mut()).is_pending());
    let (xid, _) = machine.requests().remove(0);
    let former_conn = machine.conn;
    machine.link.pending(former_conn, xid);
    machine.embedded.close(former_conn).unwrap();
    assert_eq!(former.wait().unwrap_err(), Error::at(ErrorKind::ConnectionLoss, "get", path!("/a").text()));
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
    assert_eq!(reading.wait().unwrap().text(), Some("of b"));
}

#[test]
fn requests_behind_a_refused_add_auth_fail_with_auth_failed() {
    let (machine, session) = Machine::connected();
    let mut adding = pin!(session.add_auth("digest", "a"));
    let mut behind = pin!(session.sync());
    assert!(poll(adding.as_mut()).is_pending() && poll(behind.as_mut()).is_pending());
    let sent = machine.requests();
    machine.link.reply(sent[0].0, 1, Err(ErrorCode::AuthFailed));
    machine.link.reply(sent[1].0, 1, Ok(Reply::Synced(None)));
    let kinds = [adding.wait().unwrap_err().kind(), behind.wait().unwrap_err().kind()];
    assert_eq!(kinds, [ErrorKind::AuthFailed, ErrorKind::AuthFailed]);
}

#[test]
fn broken_multi_read_is_a_marshalling_error_in_process() {
    let (machine, session) = Machine::connected();
    let reading = session.try_submit(Request::MultiRead(vec![ReadOp::Unreadable])).unwrap();
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 5, Ok(Reply::MultiReadBroken(vec![])));
    assert_eq!(reading.wait(), Err(RequestError::Refused(ErrorCode::MarshallingError)));
}

#[test]
fn queued_requests_are_sent_in_order_unless_their_ticket_is_dropped() {
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
    assert_eq!(session.try_submit(delete("/5")).unwrap_err(), RequestError::Busy);
    assert_eq!(first.wait(), Ok(Reply::Empty));
    let fifth = submit(&session, delete("/5"));
    let sent = machine.requests();
    assert_eq!(only_requests(&sent), [delete("/3")], "nobody overtakes it, whoever is polled first");
    assert_eq!(woken.0.load(SeqCst), 0);
    machine.link.reply(sent[0].0, 2, Err(ErrorCode::NoNode));
    assert_eq!((third.wait(), woken.0.load(SeqCst)), (Err(RequestError::Refused(ErrorCode::NoNode)), 1));
    assert_eq!(only_requests(&machine.requests()), [delete("/4")]);
    machine.embedded.close(machine.conn).unwrap();
    assert_eq!(
        (fourth.wait(), fifth.wait()),
        (Err(RequestError::ConnectionLoss), Err(RequestError::Suspended)),
        "it was not sent"
    );
    assert_eq!(machine.charged(), 0);
}
