//! Errands: their order, their steps, and their retries.

use super::*;

#[test]
fn errands_are_sent_in_submit_order_even_without_a_free_slot() {
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
fn errand_sends_each_step_after_the_previous_reply() {
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
fn errands_on_one_parent_share_their_list_requests() {
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
fn errand_does_not_share_a_list_requested_before_it_began() {
    let (mut machine, session) = Machine::connected();
    let [first, second] = [1, 2].map(|bits| Guid::from_random_bits(bits << 80));
    session.run_errand(Errand::find_and_delete("/locks".into(), first));
    let check = machine.requests().remove(0);
    session.run_errand(Errand::find_and_delete("/locks".into(), second));
    assert_eq!(machine.requests(), [], "it waits for its turn");
    machine.link.reply(check.0, 1, Ok(Reply::Multi(vec![OpResult::Check])));
    let sent = machine.requests();
    assert!(matches!(&sent[..], [(_, Request::Multi(_)), (_, Request::GetChildren { .. })]), "{sent:?}");
    machine.embedded.close(machine.conn).unwrap();
    machine.dial();
    assert!(matches!(&machine.accept(7)[..], [Request::Multi(_)]), "both of them, behind one write");
    assert!(machine.charged() > 0);
}

#[test]
fn failed_errand_is_retried_with_the_next_ping() {
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
fn unanswered_errands_are_resent_first_after_a_reconnect() {
    let (mut machine, session) = Machine::connected();
    session.run_errand(Errand::delete("/1".into()));
    session.run_errand(Errand::delete("/2".into()));
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 1, Ok(Reply::Empty));
    machine.embedded.close(machine.conn).unwrap();
    session.run_errand(Errand::delete("/3".into()));
    machine.dial();
    assert_eq!(machine.requests(), [], "nothing goes before the handshake is answered");
    assert_eq!(machine.accept(7), [delete("/2"), delete("/3")]);
    let _late = submit(&session, delete("/4"));
    assert_eq!(only_requests(&machine.requests()), [delete("/4")]);
    machine.embedded.close(machine.conn).unwrap();
    machine.dial();
    assert_eq!(machine.accept(7), [delete("/2"), delete("/3")], "until they are answered");
}

/// Regression: the next holder of a gate creates its znode again. A deletion that was carried out,
/// but sent again because its answer was lost, deleted the new znode and let a second session pass.
#[test]
fn conditional_delete_errand_checks_the_data_again_before_a_resend() {
    let (mut machine, session) = Machine::connected();
    let guid = Guid::from_random_bits(7);
    session.run_errand(Errand::delete_saying("/gate".into(), guid));
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 1, Ok(Reply::Data(Some(guid.to_string().into()), zoolet_model::Stat::default())));
    assert_eq!(only_requests(&machine.requests()), [delete("/gate")]);
    machine.embedded.close(machine.conn).unwrap();
    machine.dial();
    let check = Request::Multi(vec![WriteOp::Check { path: "/gate".into(), version: -1 }]);
    assert_eq!(machine.accept(7), std::slice::from_ref(&check), "and then it looks whose it is");
    machine.embedded.close(machine.conn).unwrap();
    session.run_errand(Errand::delete_saying("/gate".into(), guid));
    machine.dial();
    assert_eq!(machine.accept(7), [check.clone(), check], "what is under way comes before a look as well");
}

#[test]
fn closing_session_sends_its_errands_before_the_close_request() {
    let (mut machine, session) = Machine::connected();
    session.run_errand(Errand::delete("/1".into()));
    let (xid, _) = machine.requests().remove(0);
    machine.link.reply(xid, 1, Err(ErrorCode::SystemError));
    drop(session);
    assert_eq!(only_requests(&machine.requests()), [delete("/1"), Request::CloseSession]);
    assert!(machine.embedded.close(machine.conn).is_some());
    machine.dial();
    assert_eq!(machine.accept(7), [delete("/1"), Request::CloseSession], "the server has not answered");
    machine.link.reply(XID_END, 3, Ok(Reply::Empty));
    assert!(machine.embedded.close(machine.conn).is_none());
    assert_eq!(machine.charged(), 0);

    let (mut machine, session) = Machine::connected();
    machine.embedded.close(machine.conn).unwrap();
    session.run_errand(Errand::delete("/2".into()));
    drop(session);
    machine.dial();
    assert_eq!(machine.accept(7), [delete("/2"), Request::CloseSession]);
}
