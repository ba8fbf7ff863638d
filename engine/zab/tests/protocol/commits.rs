//! When a leader tells its learners what is committed.

use crate::net::server_id;
use crate::net::stage::Stage;
use zoolet_zab::{Message, Role, Timing, Zxid};

/// Returns an ensemble of 3, led by server 3, after so many close entries that Commits wait.
fn paced() -> Stage {
    let mut stage = Stage::new(&[1, 2, 3]);
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    stage.run(3000);
    assert_eq!(stage.net.world.server(3).role, Role::Leading);
    for _ in 0..=Timing::default().commit_hold_entries {
        enter(&mut stage);
    }
    stage
}

/// Proposes one entry and delivers and persists everything, without letting time pass.
fn enter(stage: &mut Stage) -> Zxid {
    let zxid = stage.net.propose(3).unwrap();
    stage.settle();
    zxid
}

fn applied(stage: &Stage, id: u8) -> Zxid {
    stage.net.world.server(id).applied
}

/// Returns how many messages that start with `what` server 3 has sent to a learner.
fn sent(stage: &Stage, to: u8, what: &str) -> usize {
    let start = format!("3 -> {to} {what}");
    let trace = stage.net.trace.as_ref().unwrap();
    trace.iter().filter(|line| line.split_once(": ").is_some_and(|(_, line)| line.starts_with(&start))).count()
}

#[test]
fn close_entries_in_a_row_cost_each_learner_one_message_each() {
    let mut stage = paced();
    let commits = [1, 2].map(|to| sent(&stage, to, "Commit"));
    let proposals = [1, 2].map(|to| sent(&stage, to, "Proposal"));
    for _ in 0..20 {
        let before = applied(&stage, 3);
        let zxid = enter(&mut stage);
        assert_eq!([1, 2, 3].map(|id| applied(&stage, id)), [before, before, zxid]);
    }
    assert_eq!([1, 2].map(|to| sent(&stage, to, "Commit")), commits);
    assert_eq!([1, 2].map(|to| sent(&stage, to, "Proposal")), proposals.map(|count| count + 20));
}

#[test]
fn last_commit_of_close_entries_leaves_within_2_ms() {
    let mut stage = paced();
    let zxid = enter(&mut stage);
    stage.run(2);
    assert_eq!([1, 2, 3].map(|id| applied(&stage, id)), [zxid; 3]);
    let zxid = enter(&mut stage);
    assert_eq!([1, 2, 3].map(|id| applied(&stage, id)), [zxid; 3], "the pause ended the waiting");
}

#[test]
fn commit_that_a_learners_clients_wait_for_leaves_at_once() {
    let mut stage = paced();
    let zxid = stage.net.propose(3).unwrap();
    stage.net.expect_commit(3, server_id(1), zxid);
    stage.settle();
    assert!(applied(&stage, 1) == zxid && applied(&stage, 2) < zxid);
}

#[test]
fn driver_can_take_a_held_commit_to_send_it_before_its_own_message() {
    let mut stage = paced();
    let zxid = enter(&mut stage);
    let commits = sent(&stage, 1, "Commit");
    let taken = stage.net.take_commit(3, server_id(1));
    assert!(matches!(taken, Some(Message::Commit { to, .. }) if to == zxid), "{taken:?}");
    assert_eq!(stage.net.take_commit(3, server_id(1)), None);
    stage.run(2);
    assert_eq!(sent(&stage, 1, "Commit"), commits, "the leader does not send what the driver took");
    assert_eq!(applied(&stage, 2), zxid);
}

#[test]
fn answer_to_a_question_brings_what_is_committed() {
    let mut stage = paced();
    let zxid = enter(&mut stage);
    assert!(applied(&stage, 2) < zxid);
    stage.net.confirm(2).unwrap();
    stage.settle();
    assert_eq!(applied(&stage, 2), zxid);
}

#[test]
fn learner_that_joins_among_close_entries_serves_at_once() {
    let mut stage = paced();
    stage.net.crash(1, 0, true);
    stage.net.start(1);
    stage.connect_all();
    stage.settle();
    assert_eq!(stage.net.world.server(1).role, Role::Following(server_id(3)));
}

#[test]
fn hand_over_and_change_of_members_do_not_wait() {
    let mut stage = paced();
    let members: Vec<_> = stage.net.world.server(3).zab().config().members().to_vec();
    let zxid = stage.net.reconfigure(3, &members).unwrap();
    stage.settle();
    assert_eq!([1, 2].map(|id| applied(&stage, id)), [zxid; 2]);
    let mut stage = paced();
    enter(&mut stage);
    let commits = [1, 2].map(|to| sent(&stage, to, "Commit"));
    stage.net.hand_over(3);
    stage.settle();
    assert_ne!(stage.net.world.server(3).role, Role::Leading);
    assert_eq!([1, 2].map(|to| sent(&stage, to, "Commit")), commits.map(|count| count + 1));
}
