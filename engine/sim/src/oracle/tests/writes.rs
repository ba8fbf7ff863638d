//! The rules of writes and their order.

use super::*;

#[test]
fn acked_write_without_a_matching_entry_is_reported() {
    let lost = |history: &mut History| {
        let Some(write) = answered(history, is_write) else { return false };
        let zxid = answer(history, write).zxid;
        history.committed.retain(|entry| entry.zxid.as_i64() != zxid);
        true
    };
    let rule = "an acknowledged write is in the history";
    assert_eq!(broken_by(none, lost), rule);
    let altered = |history: &mut History| {
        let write =
            answered(history, |one| matches!(one.request, Request::Write(zoolet_model::WriteOp::SetData { .. })));
        let Some(write) = write else { return false };
        history.operations[write].request =
            Request::Write(zoolet_model::WriteOp::SetData { path: "/a".into(), data: None, version: -1 });
        true
    };
    assert_eq!(broken_by(none, altered), rule);
    let of_another = |history: &mut History| {
        let Some(one) = answered(history, is_write) else { return false };
        let client = history.connection_of(&history.operations[one]).client;
        let fits = |other: &Operation| is_write(other) && history.connection_of(other).client != client;
        let Some(other) = answered(history, fits) else { return false };
        answer(history, one).zxid = answer(history, other).zxid;
        true
    };
    assert_eq!(broken_by(none, of_another), rule);
}

#[test]
fn entries_duplicated_reordered_or_never_requested_are_reported() {
    let shared = |history: &mut History| {
        for connection in 0..history.connections.len() {
            let writes: Vec<_> =
                placed(history, connection).into_iter().filter(|&at| is_write(&history.operations[at])).collect();
            if let [first, second, ..] = writes[..] {
                history.operations[second].request = history.operations[first].request.clone();
                answer(history, second).zxid = answer(history, first).zxid;
                return true;
            }
        }
        false
    };
    assert_eq!(broken_by(none, shared), "a session's writes take effect once, in the order in which it asked");
    let rule = "a write has at most one entry, an entry is asked for, and nothing takes effect behind what was lost on the same connection";
    let twice = |history: &mut History| {
        let Some(write) = answered(history, is_write) else { return false };
        let entry = history.entry(zxid_of(history, write)).unwrap();
        let (payload, zxid) = (entry.payload.clone(), last_zxid(history).next().unwrap());
        let at = history.ended;
        history.committed.push(Committed { zxid, payload, at });
        true
    };
    assert_eq!(broken_by(none, twice), rule);
    // The toy proposes one write per connection at a time. So this test builds two writes in flight
    // itself.
    let two_under_way = |history: &mut History| {
        let Some(write) =
            answered(history, |one| matches!(one.request, Request::Write(zoolet_model::WriteOp::SetData { .. })))
        else {
            return false;
        };
        let connection = history.operations[write].connection;
        let entry = history.entry(zxid_of(history, write)).unwrap().payload.clone();
        let Some(last) = history.connections[connection].operations.last().copied() else { return false };
        if history.operations[last].answer.is_none() || history.connections[connection].ended.is_none() {
            return false;
        }
        let request = history.operations[write].request.clone();
        ask(history, connection, Request::Multi(Vec::new()), 0, None);
        ask(history, connection, request, 0, None);
        let zxid = last_zxid(history).next().unwrap();
        let at = history.ended;
        history.committed.push(Committed { zxid, payload: entry, at });
        true
    };
    assert_eq!(broken_by(none, two_under_way), rule);
    // A lost write may have been refused, if a server refuses requests.
    let refused = (0..60).any(|seed| {
        let mut history = toy::history(seed, 3000);
        two_under_way(&mut history) && {
            history.leader_refusing.push(Span { from_us: 0, to_us: history.ended.us });
            origin::check(&Facts::of(&history).unwrap()).is_ok()
        }
    });
    assert!(refused);
    let begun = |history: &mut History| {
        append(history, &Txn::CreateSession { timeout_ms: 1000, secret: SessionSecret([1; 16]), home: None });
        true
    };
    assert_eq!(broken_by(none, begun), "a session begins once for each time that one was asked for");
}

#[test]
fn writes_syncs_and_sessions_that_break_real_time_order_are_reported() {
    // Moves a request to a later time, by which more had been seen.
    let late = |operation: Option<usize>, history: &mut History| {
        operation.is_some_and(|operation| {
            history.operations[operation].invoked.step = history.ended.step;
            true
        })
    };
    let write = |history: &mut History| late(answered(history, is_write), history);
    assert_eq!(
        broken_by(realtime::check, write),
        "a write takes effect after all that was seen before it was asked for"
    );
    let sync =
        |history: &mut History| late(answered(history, |one| matches!(one.request, Request::Sync { .. })), history);
    assert_eq!(broken_by(realtime::check, sync), "a sync shows all that was seen before it was asked for");
    let unknown = |history: &mut History| {
        let facts = Facts::of(history).unwrap();
        let origins = origin::check(&facts).unwrap();
        let found = (0..history.operations.len())
            .find(|&at| history.operations[at].answer.is_none() && origins.effect[at].is_some());
        late(found, history)
    };
    assert_eq!(
        broken_by(realtime::check, unknown),
        "a write takes effect after all that was seen before it was asked for"
    );
    let session = |history: &mut History| {
        let last = history.connections.iter().rposition(|one| one.wants_new_session() && one.session().is_some());
        last.is_some_and(|last| {
            history.connections[last].begun.step = history.ended.step;
            true
        })
    };
    assert_eq!(broken_by(realtime::check, session), "a session begins after all that was seen before it was asked for");
}

#[test]
fn reads_that_miss_earlier_writes_or_show_later_ones_are_reported() {
    let pairs = |history: &mut History, write_first: bool| {
        for connection in 0..history.connections.len() {
            for two in placed(history, connection).windows(2) {
                let [first, second] = [two[0], two[1]].map(|at| &history.operations[at]);
                let (wanted, write, read) = if write_first {
                    (is_write(first) && is_read(second), two[0], two[1])
                } else {
                    (is_read(first) && is_write(second), two[1], two[0])
                };
                if wanted {
                    answer(history, read).zxid = answer(history, write).zxid - i64::from(write_first);
                    return true;
                }
            }
        }
        false
    };
    let (own, later) = ("a session sees its own earlier writes", "a session sees none of its later writes");
    assert_eq!(broken_by(fifo::check, |history| pairs(history, true)), own);
    assert_eq!(broken_by(fifo::check, |history| pairs(history, false)), later);
    // A write of unknown outcome, on an earlier connection.
    let across = |history: &mut History| {
        let facts = Facts::of(history).unwrap();
        let origins = origin::check(&facts).unwrap();
        let found = facts.sessions.values().find_map(|session| {
            let operations: Vec<_> = facts.operations_of(session).collect();
            let lost = operations.iter().position(|&at| {
                facts.operation(at).answer.is_none()
                    && origins.effect[at].is_some()
                    && facts.operation(at).request != Request::Multi(Vec::new())
            })?;
            let read = operations[lost..].iter().find(|&&at| {
                let one = facts.operation(at);
                one.answer.is_some() && !request::is_ordered(one) && request::has_place(&one.request)
            })?;
            Some((*read, facts.entries[origins.effect[operations[lost]]?].zxid))
        });
        found.is_some_and(|(read, zxid)| {
            answer(history, read).zxid = zxid - 1;
            true
        })
    };
    assert_eq!(broken_by(fifo::check, across), own);
}
