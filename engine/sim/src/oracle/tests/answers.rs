//! The rules of answers and watch events.

use super::*;

fn replayed(facts: &Facts<'_>, origins: &Origins) -> Result<(), Violation> {
    replay::check(facts, origins).map(drop)
}

fn watched(facts: &Facts<'_>, origins: &Origins) -> Result<(), Violation> {
    watch::check(facts, &replay::check(facts, origins)?.0)
}

#[test]
fn replies_that_differ_from_a_replay_are_reported() {
    let write = |history: &mut History| {
        answered(history, is_write).is_some_and(|write| {
            answer(history, write).result = Err(ErrorCode::NoNode);
            true
        })
    };
    assert_eq!(broken_by(replayed, write), "a write is answered with what its entry came to");
    let read = |history: &mut History| {
        answered(history, |one| matches!(one.request, Request::GetData { .. })).is_some_and(|read| {
            let Ok(Reply::Data(data, _)) = &mut answer(history, read).result else { return false };
            *data = Some(Bytes::from_static(b"never written"));
            true
        })
    };
    let rule = "a read shows the state whose zxid it names";
    assert_eq!(broken_by(replayed, read), rule);
    // Shows the znode's data before the last change, with a zxid that includes the change.
    let stale = |history: &mut History| {
        let reads: Vec<_> = (0..history.operations.len())
            .filter_map(|at| {
                let one = &history.operations[at];
                let Some(Answer { result: Ok(Reply::Data(data, stat)), .. }) = &one.answer else { return None };
                let Request::GetData { path, .. } = &one.request else { return None };
                Some((at, path.clone(), data.clone(), *stat))
            })
            .collect();
        for (at, path, data, stat) in &reads {
            if let Some((later, ..)) =
                reads.iter().find(|(other, same, _, newer)| other > at && same == path && newer.mzxid > stat.mzxid)
            {
                answer(history, *later).result = Ok(Reply::Data(data.clone(), *stat));
                return true;
            }
        }
        false
    };
    assert_eq!(broken_by(replayed, stale), rule);
    let gone = |history: &mut History| {
        let Some(open) = open(history) else { return false };
        let zxid = last_zxid(history).as_i64();
        let write = Request::Write(zoolet_model::WriteOp::Delete { path: "/nowhere".into(), version: 5 });
        ask(history, open, write, zxid, Some(Err(ErrorCode::SessionExpired)));
        true
    };
    assert_eq!(broken_by(replayed, gone), "only a session that is gone is told so");
}

/// In a whole check, order.rs reports this first. So this test compares the scripts alone.
#[test]
fn replies_out_of_state_order_are_reported() {
    let out_of_order = |history: &mut History| {
        let found = next_to(history, |one, next| matches!((one, next), (Received::Answer(_), Received::Answer(_))));
        found.is_some_and(|(connection, at)| {
            history.connections[connection].received.swap(at, at + 1);
            true
        })
    };
    assert_eq!(broken_by(watched, out_of_order), "answers come in the order of their states");
}

/// Returns the first position of two adjacent items that fit.
fn next_to(history: &History, fits: impl Fn(&Received, &Received) -> bool) -> Option<(usize, usize)> {
    history.connections.iter().enumerate().find_map(|(connection, one)| {
        Some((connection, one.received.windows(2).position(|two| fits(&two[0], &two[1]))?))
    })
}

fn is_event(received: &Received) -> bool {
    matches!(received, Received::Event(..))
}

#[test]
fn lost_duplicated_or_misordered_watch_events_are_reported() {
    let behind = |history: &mut History| {
        let found = next_to(history, |one, next| is_event(one) && matches!(next, Received::Answer(_)));
        found.is_some_and(|(connection, at)| {
            history.connections[connection].received.swap(at, at + 1);
            true
        })
    };
    let shown_before = "no answer shows a change before the event that tells of it";
    assert_eq!(broken_by(watched, behind), shown_before);
    let lost = |history: &mut History| {
        let found = next_to(history, |one, next| is_event(one) && matches!(next, Received::Answer(_)));
        found.is_some_and(|(connection, at)| {
            history.connections[connection].received.remove(at);
            true
        })
    };
    assert_eq!(broken_by(watched, lost), shown_before);
    let swapped = |history: &mut History| {
        let differ = |one: &Received, next: &Received| match (one, next) {
            (Received::Event(_, one), Received::Event(_, next)) => one != next,
            _ => false,
        };
        next_to(history, differ).is_some_and(|(connection, at)| {
            history.connections[connection].received.swap(at, at + 1);
            true
        })
    };
    let in_order = "events come in the order of the entries, none is left out, and none overtakes an answer";
    assert_eq!(broken_by(watched, swapped), in_order);
    let overtakes = |history: &mut History| {
        let found = next_to(history, |one, next| is_event(next) && matches!(one, Received::Answer(_)));
        found.is_some_and(|(connection, at)| {
            history.connections[connection].received.swap(at, at + 1);
            true
        })
    };
    assert_eq!(broken_by(watched, overtakes), in_order);
    let twice = |history: &mut History| {
        let found = next_to(history, |one, _| matches!(one, Received::Event(_, event) if event.zxid > 0));
        found.is_some_and(|(connection, at)| {
            let again = history.connections[connection].received[at].clone();
            history.connections[connection].received.insert(at + 1, again);
            true
        })
    };
    assert_eq!(broken_by(watched, twice), "a watch tells once, and before any answer that shows the change");
    let other = |history: &mut History| {
        let all = history.connections.iter_mut().flat_map(|one| &mut one.received);
        let event = all.filter_map(|received| match received {
            Received::Event(_, event) => Some(event),
            Received::Answer(_) | Received::Stray(..) => None,
        });
        let created = event.into_iter().find(|event| event.kind == EventKind::NodeCreated);
        created.is_some_and(|event| {
            event.path = "/elsewhere".into();
            true
        })
    };
    assert_eq!(broken_by(watched, other), "an event tells of a change that a watch of this connection waited for");
    let at_the_end = |history: &mut History| {
        let Some(open) = open(history) else { return false };
        let received = &mut history.connections[open].received;
        let Some(event) = received.iter().position(is_event) else { return false };
        received.truncate(event);
        true
    };
    assert_eq!(broken_by(watched, at_the_end), "no event is lost while its connection lasts");
}

/// A failing base may fail before or after the watch is set.
#[test]
fn failed_read_may_or_may_not_register_its_watch() {
    let verdict = |asked: bool, tell: usize| {
        let mut recorder = Recorder::new();
        let mut zxid = Zxid::ZERO;
        let mut commit = |recorder: &mut Recorder, at_us: u64, txn: &Txn<'_>| {
            zxid = zxid.next().unwrap();
            recorder.committed(at_us, zxid, &txn::encode(Header::default(), txn, &mut BytesMut::new()));
        };
        let secret = SessionSecret([3; 16]);
        let (reader, writer) = (ConnId(1), ConnId(2));
        for (conn, session) in [(reader, 1), (writer, 2)] {
            let client = ClientId(conn.0 as u32);
            recorder.connecting(1, client, conn, ServerId::STANDALONE, None, ConnectRequest::for_new_session(9000));
            commit(&mut recorder, 1, &Txn::CreateSession { timeout_ms: 9000, secret, home: None });
            let reply = ConnectReply {
                timeout_ms: 9000,
                session: SessionId(session),
                secret,
                read_only_byte: false,
                read_only_ms: None,
            };
            recorder.connected(1, conn, reply);
        }
        if asked {
            recorder.invoked(2, reader, 1, Request::GetChildren { path: "/".into(), watch: true, with_stat: false });
            recorder.answered(2, reader, 1, 2, Err(ErrorCode::SystemError));
        }
        for path in ["/a", "/b"] {
            recorder.invoked(3, writer, 1, Request::Write(crate::client::create(path, 0, CreateKind::Persistent)));
            let kind = CreateKind::Persistent;
            let op = Op::Create { path, data: Some(b""), acl: &[], kind, sequential: false, with_stat: false };
            commit(&mut recorder, 3, &Txn::Write { session: SessionId(2), identity: Identity::default(), op });
        }
        recorder.ended(3, writer, End::Lost);
        for zxid in (3..).take(tell) {
            let event = WatchEvent { kind: EventKind::NodeChildrenChanged, path: "/".into(), zxid };
            recorder.notified(4, reader, event);
        }
        recorder.invoked(5, reader, 2, Request::Sync { path: None });
        recorder.answered(5, reader, 2, 4, Ok(Reply::Synced(None)));
        check(&recorder.finish(6, false)).err().map(|violation| violation.rule)
    };
    assert_eq!(verdict(true, 0), None);
    assert_eq!(verdict(true, 1), None);
    let unasked = Some("an event tells of a change that a watch of this connection waited for");
    assert_eq!(verdict(true, 2), unasked, "it tells once");
    assert_eq!(verdict(false, 0), None);
    assert_eq!(verdict(false, 1), unasked);
}
