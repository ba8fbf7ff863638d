//! Watches: over gaps, without room, and of every kind.

use super::*;

/// Returns a session with two watches on `/w`: a recursive stream and a one-shot.
fn watching() -> (Machine, Session, WatchStream, OneShotWatch) {
    let (machine, session) = Machine::connected();
    let (lasting, stream) = session.add_watch(path!("/w"), AddWatchMode::PersistentRecursive);
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

#[test]
fn reconnected_session_sets_its_watches_again() {
    let (mut machine, session) = Machine::connected();
    let mut watching = pin!(session.watch(path!("/w"), AddWatchMode::Persistent));
    assert!(poll(watching.as_mut()).is_pending());
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 40, Ok(Reply::WatchAdded));
    let mut stream = watching.wait().unwrap();
    let mut under_way = pin!(session.sync());
    assert!(poll(under_way.as_mut()).is_pending());

    let again = machine.embedded.close(machine.conn).unwrap();
    assert_eq!(under_way.wait().unwrap_err().kind(), ErrorKind::ConnectionLoss);
    assert_eq!(session.state(), SessionState::Suspended);
    assert_eq!(session.exists(path!("/w")).wait().unwrap_err().kind(), ErrorKind::Suspended);
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

/// Regression: one-shot watches did not fire for a gap. A session that waited for a lock waited
/// forever after the holder's znode was deleted.
#[test]
fn one_shot_watch_is_set_again_after_queued_events_overflow() {
    let (machine, session, mut stream, mut watch) = watching();
    let mut slow = pin!(session.get(path!("/slow")));
    assert!(poll(slow.as_mut()).is_pending());
    let (xid, _) = machine.requests().remove(0);
    machine.link.pending(machine.conn, xid);
    for number in 0..crate::link::BEHIND_MAX {
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
fn refused_set_watches_is_retried_with_each_ping_until_accepted() {
    let (mut machine, session, mut stream, mut watch) = watching();
    let gaps = session.gaps();
    machine.embedded.close(machine.conn).unwrap();
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

    machine.embedded.close(machine.conn).unwrap();
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
fn remove_watches_never_follows_the_next_watch_on_the_same_path() {
    const PATHS: usize = 200;
    let paths: Vec<Path> = (0..PATHS).map(|number| Path::new(format!("/{number}")).unwrap()).collect();
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
fn watch_of_each_request_kind_receives_its_event() {
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
        assert_eq!(ticket.wait(), answer.map_err(RequestError::Refused));
        machine.link.notify(WatchEvent { kind, path: path(), zxid: 2 });
        let Poll::Ready(Some(event)) = poll(pin!(watch)) else { panic!("{kind:?} is not heard") };
        assert_eq!(event.kind, kind);
    }
}
