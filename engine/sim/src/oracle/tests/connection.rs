//! The rules of one connection.

use super::*;

#[test]
fn misplaced_or_missing_replies_are_reported() {
    let stray = |history: &mut History| {
        let Some(open) = open(history) else { return false };
        let at = history.ended;
        history.connections[open].received.push(Received::Stray(at, 5, 7));
        true
    };
    assert_eq!(broken_by(everything, stray), "an answer belongs to a request");
    let swapped = |history: &mut History| {
        history.connections.iter_mut().any(|connection| {
            let received = &mut connection.received;
            let two = received.windows(2).position(|two| matches!(two, [Received::Answer(_), Received::Answer(_)]));
            two.is_some_and(|at| {
                received.swap(at, at + 1);
                true
            })
        })
    };
    assert_eq!(broken_by(everything, swapped), "answers come in the order of the requests");
    let untold = |history: &mut History| {
        let all = &mut history.connections;
        let one = all.iter_mut().find(|one| !one.received.is_empty() && !one.wants_new_session());
        one.is_some_and(|one| one.reply.take().is_some())
    };
    assert_eq!(broken_early_by(order::check, untold), "nobody is answered before he has a session");
    let waiting = |history: &mut History| {
        open(history).is_some_and(|open| {
            ask(history, open, Request::Ping, 0, None);
            true
        })
    };
    assert_eq!(broken_by(everything, waiting), "every request is answered while its connection lasts");
}

#[test]
fn replies_with_decreasing_or_uncommitted_zxids_are_reported() {
    let back = |history: &mut History| {
        for connection in 0..history.connections.len() {
            let placed = placed(history, connection);
            for two in placed.windows(2) {
                let zxid = answer(history, two[0]).zxid;
                if is_read(&history.operations[two[1]]) && history.entry(zxid - 1).is_some() {
                    answer(history, two[1]).zxid = zxid - 1;
                    return true;
                }
            }
        }
        false
    };
    assert_eq!(broken_by(everything, back), "the zxids that a client sees never go back");
    let elsewhere = |history: &mut History| {
        let fits = |one: &Connection| one.request.last_zxid_seen > 0 && !one.operations.is_empty();
        let Some(at) = continued(history, |one| fits(one)) else { return false };
        let Some(&first) = history.connections[at].operations.first() else { return false };
        let seen = history.connections[at].request.last_zxid_seen;
        if history.operations[first].answer.is_none() || history.entry(seen - 1).is_none() {
            return false;
        }
        answer(history, first).zxid = seen - 1;
        true
    };
    assert_eq!(broken_by(everything, elsewhere), "the zxids that a client sees never go back");
    let future = |history: &mut History| {
        let zxid = last_zxid(history).as_i64() + 5;
        let read = history.operations.iter().rposition(|one| one.answer.is_some());
        read.is_some_and(|read| {
            answer(history, read).zxid = zxid;
            true
        })
    };
    assert_eq!(broken_by(everything, future), "clients see committed states only");
    let too_early = |history: &mut History| {
        let Some(write) = answered(history, is_write) else { return false };
        let (zxid, late) = (answer(history, write).zxid, history.ended);
        let entry = history.committed.iter_mut().find(|entry| entry.zxid.as_i64() == zxid);
        entry.is_some_and(|entry| {
            entry.at = late;
            true
        })
    };
    assert_eq!(broken_by(everything, too_early), "clients see committed states only");
    let named = |history: &mut History| {
        open(history).is_some_and(|open| {
            ask(history, open, Request::Sasl, 5, Some(Ok(Reply::NullToken)));
            true
        })
    };
    assert_eq!(broken_by(everything, named), "what reads no state names none");
    let denied = |history: &mut History| {
        open(history).is_some_and(|open| {
            let auth = Request::Auth { scheme: Some("digest".into()), auth: Some(Bytes::from_static(b"ann:1")) };
            ask(history, open, auth, 0, Some(Err(ErrorCode::AuthFailed)));
            true
        })
    };
    assert_eq!(mutated(denied, |history| check_with(history, &PROMISES)), "an identity is accepted if it is one");
}

#[test]
fn disagreement_between_servers_is_reported() {
    let other = |history: &mut History| {
        let (zxid, at) = (last_zxid(history), history.ended);
        history.disagreement = Some(Disagreement { zxid, at, what: "other bytes".into() });
        true
    };
    assert_eq!(mutated(other, |history| check_with(history, &PROMISES)), "there is one history");
}
