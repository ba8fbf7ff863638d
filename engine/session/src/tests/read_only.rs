//! Sessions that read while their server has no leader.

use super::*;
use zoolet_model::SessionState;

fn reply(session: i64, read_only_ms: Option<u64>) -> ConnectReply {
    let secret = SessionSecret([9; 16]);
    ConnectReply { timeout_ms: 1000, session: SessionId(session), secret, read_only_byte: true, read_only_ms }
}

#[test]
fn session_reads_an_old_state_while_there_is_no_leader() {
    let (mut machine, session) = Machine::connected();
    assert_eq!(session.outdated_for(), None);
    let safe_until = Coordinator::safe_until(&session);
    assert!(machine.embedded.close(machine.conn).is_some());
    machine.link.allow_read_only();
    let request = machine.dial();
    assert_eq!((request.session, request.read_only), (SessionId(7), Some(true)));
    machine.link.connected(machine.conn, &reply(7, Some(3000)));
    assert_eq!((session.state(), session.id()), (SessionState::ReadOnly, SessionId(7)));
    assert!(session.outdated_for().is_some_and(|age| age <= Duration::from_millis(3000)));
    for (xid, _) in machine.ping() {
        machine.link.reply(xid, 5, Ok(Reply::Empty));
    }
    assert_eq!(Coordinator::safe_until(&session), safe_until, "no sign of life reaches a leader");
    assert!(machine.embedded.close(machine.conn).is_some());
    assert_eq!((session.state(), session.outdated_for()), (SessionState::Suspended, None));
    assert_eq!(machine.dial().session, SessionId(7));
    machine.link.connected(machine.conn, &reply(7, None));
    assert_eq!((session.state(), session.outdated_for()), (SessionState::Connected, None));
}

/// Returns the machine's side of a session that reads without a leader.
fn reading() -> (Machine, Session) {
    let (mut machine, session) = Machine::connected();
    machine.link.allow_read_only();
    assert!(machine.embedded.close(machine.conn).is_some());
    machine.dial();
    machine.link.connected(machine.conn, &reply(7, Some(3000)));
    assert_eq!((session.state(), machine.link.may_read_only()), (SessionState::ReadOnly, true));
    machine.requests();
    (machine, session)
}

/// Checks that the session ends on the next connection, after `errands`.
fn ends_on_the_next_connection(machine: &mut Machine, errands: &[Request]) {
    assert_eq!(machine.requests(), [], "the server would refuse the end");
    assert!(!machine.link.may_read_only());
    assert!(machine.embedded.close(machine.conn).is_some(), "it connects again");
    let request = machine.dial();
    assert_eq!((request.session, request.read_only), (SessionId(7), Some(false)));
    let first: Vec<_> = machine.link.connected(machine.conn, &reply(7, None)).into_iter().map(|(_, one)| one).collect();
    assert_eq!(first, [errands, &[Request::CloseSession]].concat());
    machine.link.reply(XID_END, 9, Ok(Reply::Empty));
    assert!(machine.embedded.close(machine.conn).is_none());
}

#[test]
fn session_dropped_while_it_only_reads_ends_on_the_next_connection() {
    let (mut machine, session) = reading();
    session.run_errand(Errand::delete("/lock".into()));
    drop(session);
    assert!(machine.embedded.is_empty(), "a shutdown does not wait for a leader");
    ends_on_the_next_connection(&mut machine, &[delete("/lock")]);
}

#[test]
fn shutdown_waits_for_a_session_that_only_reads_and_may_own_ephemerals() {
    let (mut machine, session) = Machine::connected();
    let mode = CreateMode::Valid { kind: CreateKind::Ephemeral, sequential: false };
    let create = Create { path: "/1".into(), data: None, acl: None, mode, with_stat: false };
    drop(submit(&session, Request::Write(WriteOp::Create(create))));
    machine.link.allow_read_only();
    assert!(machine.embedded.close(machine.conn).is_some());
    machine.requests();
    machine.dial();
    machine.link.connected(machine.conn, &reply(7, Some(3000)));
    machine.embedded.close_all();
    assert!(!machine.embedded.is_empty());
    ends_on_the_next_connection(&mut machine, &[]);
    assert!(machine.embedded.is_empty());
}

#[test]
fn session_closed_while_it_only_reads_ends_on_the_next_connection() {
    let (mut machine, session) = reading();
    assert_eq!(session.close().wait().unwrap_err().kind(), ErrorKind::Suspended, "as without a connection");
    ends_on_the_next_connection(&mut machine, &[]);
}

#[test]
fn session_dropped_before_its_reader_is_connected_ends_on_the_next_connection() {
    let (mut machine, session) = Machine::connected();
    machine.link.allow_read_only();
    assert!(machine.embedded.close(machine.conn).is_some());
    assert_eq!(machine.dial().read_only, Some(true));
    session.run_errand(Errand::delete("/lock".into()));
    drop(session);
    assert!(!machine.embedded.is_empty(), "the server may have a leader");
    assert_eq!(machine.link.connected(machine.conn, &reply(7, Some(3000))), []);
    assert!(machine.embedded.is_empty(), "a shutdown does not wait for a leader");
    ends_on_the_next_connection(&mut machine, &[delete("/lock")]);
}

#[test]
fn request_in_flight_fails_when_a_closed_reader_loses_its_connection() {
    let (mut machine, session) = reading();
    let asked = submit(&session, Request::Exists { path: "/a".into(), watch: false });
    machine.requests();
    drop(session);
    ends_on_the_next_connection(&mut machine, &[]);
    assert_eq!(asked.wait(), Err(RequestError::Closed));
}

#[test]
fn untouched_session_that_only_reads_ends_on_the_next_connection() {
    let (mut machine, session) = reading();
    machine.link.watch_over(Duration::from_millis(100));
    machine.world.set(1000);
    assert_eq!(session.state(), SessionState::Lost(LostReason::Untouched));
    assert!(machine.embedded.is_empty(), "a shutdown does not wait for a leader");
    ends_on_the_next_connection(&mut machine, &[]);
}

#[test]
fn session_opened_without_a_leader_begins_when_there_is_one() {
    let (mut machine, _) = Machine::connected();
    let limits = Limits::default();
    let world: Arc<World> = Arc::default();
    machine.link = Link::new(machine.sent.clone(), world, 1000, &limits, Arc::clone(&machine.budget));
    machine.link.allow_read_only();
    let session = Session::new(Arc::clone(&machine.link));
    assert_eq!(machine.dial().session, SessionId(0));
    machine.link.connected(machine.conn, &reply(-5, Some(100)));
    assert_eq!((session.state(), session.id()), (SessionState::ReadOnly, SessionId(0)));
    assert!(machine.embedded.close(machine.conn).is_some());
    let request = machine.dial();
    assert_eq!((request.session, request.password), (SessionId(0), None));
    machine.link.connected(machine.conn, &reply(8, None));
    assert_eq!((session.state(), session.id()), (SessionState::Connected, SessionId(8)));
}
