//! What a session does at an instant: safe time, timers and the watchdog.

use super::*;

/// A timeout of 7 ms less the allowance for clock drift.
const SAFE: Duration = Duration::from_micros(6993);

#[test]
fn safe_until_counts_from_the_send_time_of_an_answered_request() {
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

/// Regression: with a short timeout, `liveness_delay_max` exceeds the time between two pings. A
/// session with a timeout of 4 s was never known to be safe.
#[test]
fn short_session_pings_by_sync_and_is_safe_from_the_send_time() {
    let (mut machine, session) = Machine::connected();
    machine.world.liveness_delay_max_ms.store(3200, SeqCst);
    for (timeout_ms, request) in [(9600, Request::Ping), (9599, Request::Sync { path: None })] {
        machine.embedded.close(machine.conn).unwrap();
        machine.dial();
        machine.accept(timeout_ms);
        assert_eq!(only_requests(&machine.ping()), [request], "{timeout_ms}");
    }
    machine.embedded.close(machine.conn).unwrap();
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

#[test]
fn timer_fires_at_its_instant_and_dropping_it_frees_it() {
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
    let world: Arc<dyn Environment> = machine.world.clone();
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
fn watchdog_closes_a_session_its_owner_does_not_touch() {
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
    assert_eq!(under_way.wait().unwrap_err().kind(), ErrorKind::SessionLost(LostReason::Untouched));
    assert_eq!(session.exists(path!("/")).wait().unwrap_err().kind(), ErrorKind::SessionLost(LostReason::Untouched));
    session.touch();
    assert_eq!(session.state(), UNTOUCHED, "it is too late");
    assert_eq!(machine.world.timers.next(), None, "nobody looks any more");
}

#[test]
fn watchdog_closes_a_disconnected_session_on_reconnect() {
    let (mut machine, session) = watched_over();
    machine.embedded.close(machine.conn).unwrap();
    machine.world.set(7000);
    assert_eq!((session.state(), machine.requests()), (UNTOUCHED, vec![]));
    assert_eq!(machine.dial().session, SessionId(7));
    assert_eq!(machine.accept(7), [Request::CloseSession]);
    assert_eq!(session.state(), UNTOUCHED);
    machine.link.reply(XID_END, 3, Ok(Reply::Empty));
    assert!(machine.embedded.close(machine.conn).is_none());
}

#[test]
fn watchdog_timer_ends_with_its_session() {
    let (machine, session) = watched_over();
    assert_eq!(machine.world.timers.next(), Some(Duration::from_secs(5)), "from when it was made");
    machine.world.set(5000);
    assert_eq!(machine.world.timers.next(), Some(Duration::from_secs(7)), "from when it was served");
    machine.link.lost(LostReason::Stopped);
    machine.world.set(7000);
    assert_eq!((session.state(), machine.world.timers.next()), (SessionState::Lost(LostReason::Stopped), None));

    let (machine, session) = watched_over();
    let Machine { world, embedded, link, .. } = machine;
    drop((session, embedded, link));
    assert_eq!(world.timers.next(), None);
}
