//! One test for each sentence of the Zab papers that the core alone can show.
//!
//! The papers are Junqueira, Reed, Serafini (DSN 2011) and Medeiros (2012). Each test is a claim,
//! with the phase or rule it stands for. D1 to D9 are the durability contract: each names data that
//! must be on disk before a certain message. Numbers such as 1.5 are sections of the project's
//! protocol notes, facts/zab.md.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::net::link::Item;
use crate::net::log::Record;
use crate::net::server_id;
use crate::net::stage::Stage;
use zoolet_zab::{
    Action, AppendSeq, Attempt, Config, Credentials, EnsembleId, Epoch, Kind, LinkId, Member, Message, Notification,
    Recovered, Refused, Role, Servers, Stance, Timing, Zab, Zxid,
};

fn epoch(number: u32) -> Epoch {
    Epoch::new(number).unwrap()
}

fn zxid(number: u32, counter: u64) -> Zxid {
    Zxid::new(epoch(number), counter).unwrap()
}

/// Returns voters of an ensemble born long ago; none of them runs.
///
/// Each has the entries 1.0 to 1.5 and knows that 1.2 is committed.
fn born(voters: &[u8]) -> Stage {
    let mut stage = Stage::new(voters);
    voters.iter().for_each(|id| stage.history(*id, &[(1, 5)], zxid(1, 2)));
    stage
}

/// Like `born`, but running, with the last voter leading in epoch 2.
fn led(voters: &[u8]) -> Stage {
    let mut stage = born(voters);
    stage.start(voters);
    stage.connect_all();
    stage.run(1000);
    assert_eq!(stage.net.world.server(*voters.last().unwrap()).role, Role::Leading);
    stage
}

/// Returns how many messages that start with `what` one server has sent another.
fn sent(stage: &Stage, from: u8, to: u8, what: &str) -> usize {
    let start = format!("{from} -> {to} {what}");
    let trace = stage.net.trace.as_ref().unwrap();
    trace.iter().filter(|line| line.split_once(": ").is_some_and(|(_, line)| line.starts_with(&start))).count()
}

fn role(stage: &Stage, id: u8) -> Role {
    stage.net.world.server(id).role
}

fn applied(stage: &Stage, id: u8) -> Zxid {
    stage.net.world.server(id).applied
}

fn durable(stage: &Stage, id: u8) -> Zxid {
    stage.net.world.server(id).log.durable.last()
}

fn committed(stage: &Stage) -> Zxid {
    stage.net.world.last_committed()
}

fn members(stage: &Stage, voters: &[u8], observers: &[u8]) -> Vec<Member> {
    let member = |id: &u8, kind| Member { id: server_id(*id), kind, disk: stage.net.world.server(*id).log.disk };
    let voters = voters.iter().map(|id| member(id, Kind::Voter));
    voters.chain(observers.iter().map(|id| member(id, Kind::Observer))).collect()
}

// ---- Phase 0: election.

// "The server with the latest history leads": newest epoch first, then the last zxid, then the id.
#[test]
fn server_with_the_latest_history_is_elected_despite_a_lower_id() {
    let mut stage = Stage::new(&[1, 2, 3]);
    stage.history(1, &[(1, 2), (2, 0)], zxid(1, 2));
    stage.history(2, &[(1, 9)], zxid(1, 2));
    stage.history(3, &[(1, 8)], zxid(1, 2));
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    stage.run(1000);
    assert_eq!(role(&stage, 1), Role::Leading);
}

// 1.2: votes and reports name the durable end of the log, never the last applied entry.
#[test]
fn vote_names_the_durable_end_of_the_log() {
    let mut stage = led(&[1, 2, 3]);
    stage.hung.insert(1);
    stage.net.propose(3).unwrap();
    stage.settle();
    let zab = stage.net.world.server(1).zab();
    assert_eq!((zab.last(), zab.credentials().last), (zxid(2, 1), zxid(2, 0)));
}

// 2.5: a server votes only for a server that it hears itself.
#[test]
fn server_votes_only_for_peers_it_hears_directly() {
    let mut stage = born(&[1, 2, 3]);
    stage.start(&[1, 2, 3]);
    // Server 3 has the greatest id, but 1 and 3 do not hear each other. Servers 2 and 3 are a
    // quorum, and 1 does not wait for 3.
    stage.net.connect(1, 2);
    stage.net.connect(2, 3);
    stage.run(1000);
    assert_ne!(stage.net.world.server(1).zab().leader(), Some(server_id(3)));
    assert_eq!(stage.net.world.servers.values().filter(|server| server.role == Role::Leading).count(), 1);
}

// 2.5: a server that was isolated for long deposes no leader when it comes back.
#[test]
fn server_back_from_isolation_deposes_no_leader() {
    let mut stage = led(&[1, 2, 3]);
    stage.reset(1, 2);
    stage.reset(1, 3);
    stage.run(10_000);
    assert_eq!(role(&stage, 1), Role::Looking);
    stage.connect_all();
    stage.run(1000);
    assert_eq!((role(&stage, 1), role(&stage, 3)), (Role::Following(server_id(3)), Role::Leading));
    assert_eq!(stage.net.world.server(3).zab().epoch(), epoch(2));
}

// ---- Phase 1: discovery.

// "The leader picks an epoch e' greater than all it received in CEPOCH messages."
#[test]
fn new_epoch_exceeds_every_promise_of_the_quorum() {
    let mut stage = born(&[1, 2, 3]);
    let seq = stage.net.log_mut(1).append(Record::Promise(epoch(7)), Zxid::ZERO);
    stage.net.log_mut(1).persist(seq);
    stage.start(&[1, 3]);
    stage.connect_all();
    stage.run(1000);
    assert_eq!(stage.net.world.server(3).zab().epoch(), epoch(8));
}

// D1: the leader's own promise is durable before NEWEPOCH.
#[test]
fn leader_announces_an_epoch_only_after_its_promise_is_durable() {
    let mut stage = born(&[1, 2, 3]);
    stage.hung.insert(3);
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    stage.settle();
    assert_eq!(sent(&stage, 3, 1, "LeaderInfo"), 0);
    stage.persist_all(3);
    assert_eq!(sent(&stage, 3, 1, "LeaderInfo"), 1);
}

// D2: "f.p is set before ACK-E is sent."
#[test]
fn follower_sends_ack_epoch_only_after_its_promise_is_durable() {
    let mut stage = born(&[1, 2, 3]);
    stage.hung.insert(1);
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    stage.settle();
    assert_eq!(sent(&stage, 1, 3, "AckEpoch"), 0);
    stage.persist_all(1);
    assert_eq!(sent(&stage, 1, 3, "AckEpoch"), 1);
}

// D3: the history in ACK-E is durable. This holds for a second attempt in one epoch too, when the
// promise was durable before.
#[test]
fn follower_reports_no_entry_it_could_lose_in_ack_epoch() {
    let mut stage = led(&[1, 2, 3]);
    stage.hung.insert(1);
    stage.net.propose(3).unwrap();
    stage.settle();
    stage.reset(1, 3);
    stage.settle();
    stage.connect_all();
    stage.settle();
    let before = sent(&stage, 1, 3, "AckEpoch");
    assert_eq!(sent(&stage, 1, 3, "FollowerInfo"), 2);
    stage.persist_all(1);
    assert_eq!((before, sent(&stage, 1, 3, "AckEpoch 2 holds 2/2.1")), (1, 1));
}

// "A follower does not follow an epoch below its promise": the leader begins a newer one.
#[test]
fn follower_with_a_newer_promise_causes_a_newer_epoch() {
    let mut stage = born(&[1, 2, 3]);
    let seq = stage.net.log_mut(1).append(Record::Promise(epoch(9)), Zxid::ZERO);
    stage.net.log_mut(1).persist(seq);
    stage.start(&[2, 3]);
    stage.connect_all();
    stage.run(1000);
    assert_eq!(stage.net.world.server(3).zab().epoch(), epoch(2));
    stage.start(&[1]);
    stage.connect_all();
    stage.run(3000);
    assert!(stage.net.world.servers.values().all(|server| server.zab().epoch() == epoch(10)));
}

// ---- Phase 2: synchronization.

fn joined(first: &[(u32, u64)], others: &[(u32, u64)], floor: Option<Zxid>) -> Stage {
    let mut stage = Stage::new(&[1, 2, 3]);
    stage.history(1, first, zxid(1, 2));
    stage.history(2, others, zxid(1, 2));
    stage.history(3, others, zxid(1, 2));
    stage.start(&[2, 3]);
    stage.connect_all();
    stage.run(1000);
    if let Some(floor) = floor {
        // The watermark reaches the disk with the next entry.
        stage.net.propose(3).unwrap();
        stage.settle();
        stage.net.raise_floor(3, floor);
    }
    stage.start(&[1]);
    stage.connect_all();
    stage.run(1000);
    assert_eq!(role(&stage, 1), Role::Following(server_id(3)));
    assert_eq!(stage.net.world.server(1).log.durable.entries, stage.net.world.server(3).log.durable.entries);
    stage
}

// 1.5, rows 2 and 4: a learner whose history is a prefix gets the missing entries.
#[test]
fn learner_with_a_prefix_of_the_history_gets_a_diff() {
    let stage = joined(&[(1, 3)], &[(1, 5)], None);
    assert_eq!(sent(&stage, 3, 1, "Diff 2 from 1.3"), 1);
}

// 1.5, row 3: a learner removes entries that the leader does not have.
#[test]
fn learner_with_a_longer_history_is_truncated_to_the_common_end() {
    let stage = joined(&[(1, 9)], &[(1, 5)], None);
    assert_eq!(sent(&stage, 3, 1, "Trunc 2 to 1.5"), 1);
}

// 1.5, row 4: a history that diverged in an older epoch is truncated to the common end. Then it is
// completed, across epochs.
#[test]
fn learner_with_a_diverged_history_is_truncated_across_epochs() {
    let stage = joined(&[(1, 7), (2, 3)], &[(1, 9), (3, 4)], None);
    assert_eq!(sent(&stage, 3, 1, "Trunc 4 to 1.7"), 1);
}

// 1.5, row 6: a learner below the start of the leader's log gets a snapshot.
#[test]
fn learner_below_the_start_of_the_leaders_log_gets_a_snapshot() {
    let stage = joined(&[(1, 3)], &[(1, 9)], Some(zxid(1, 8)));
    assert_eq!(sent(&stage, 3, 1, "Snap"), 1);
    assert_eq!(sent(&stage, 3, 1, "Snap 2 at least 1.8"), 1, "the log goes on where it ends");
}

// D4: "f accepts the history and sets f.a" before ACK-LD. The history is recorded first, then the
// epoch, then its first entry, and all of them are durable.
#[test]
fn ack_ld_is_sent_only_after_history_and_epoch_are_durable() {
    let mut stage = Stage::new(&[1, 2, 3]);
    stage.history(1, &[(1, 3)], zxid(1, 2));
    stage.history(2, &[(1, 5)], zxid(1, 2));
    stage.history(3, &[(1, 5)], zxid(1, 2));
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    stage.hung.insert(1);
    stage.settle();
    stage.persist_all(1);
    stage.settle();
    let records: Vec<Record> = stage.net.world.server(1).log.in_flight().cloned().collect();
    let is = |at: usize, zxid: Zxid| matches!(&records[at], Record::Entry(entry) if entry.zxid == zxid);
    assert!(is(0, zxid(1, 4)) && is(1, zxid(1, 5)) && is(3, zxid(2, 0)) && records.len() == 4);
    assert_eq!(records[2], Record::Epoch(epoch(2)));
    for _ in 0..3 {
        stage.persist(1, 1);
        assert_eq!(sent(&stage, 1, 3, "Ack 2.0"), 0);
    }
    stage.persist(1, 1);
    assert_eq!(sent(&stage, 1, 3, "Ack 2.0"), 1);
}

// D5, "upon receiving ACK-LD from a quorum": only then the leader serves, and the whole initial
// history is committed.
#[test]
fn initial_history_commits_once_a_quorum_acks_it_in_the_new_epoch() {
    let mut stage = born(&[1, 2, 3]);
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    stage.hung.extend([1, 2]);
    stage.settle();
    stage.persist_all(1);
    stage.persist_all(2);
    stage.settle();
    // All three servers have 1.5, and server 3 has 2.0.
    assert_eq!((durable(&stage, 1), durable(&stage, 2), durable(&stage, 3)), (zxid(1, 5), zxid(1, 5), zxid(2, 0)));
    assert_eq!((committed(&stage), role(&stage, 3)), (zxid(1, 2), Role::Looking));
    assert_eq!(stage.net.propose(3), Err(Refused::NotLeading));
    stage.persist_all(2);
    stage.settle();
    assert_eq!((committed(&stage), role(&stage, 3)), (zxid(2, 0), Role::Leading));
}

// ---- Phase 3: broadcast.

// "Zxids of an epoch are consecutive", and every server delivers them in that order.
#[test]
fn proposals_have_consecutive_zxids_and_are_delivered_in_order() {
    let mut stage = led(&[1, 2, 3]);
    let proposed: Vec<Zxid> = (0..5).map(|_| stage.net.propose(3).unwrap()).collect();
    assert_eq!(proposed, (1..=5).map(|counter| zxid(2, counter)).collect::<Vec<_>>());
    stage.settle();
    for id in 1..=3 {
        let delivered = stage.net.world.server(id).delivered();
        let last: Vec<Zxid> = delivered[delivered.len() - 5..].iter().map(|entry| entry.zxid).collect();
        assert_eq!(last, proposed);
    }
}

// D6: "a follower acknowledges once the proposal is on stable storage". One Ack covers all entries
// before it.
#[test]
fn follower_acks_durable_entries_and_all_before_them() {
    let mut stage = led(&[1, 2, 3]);
    stage.hung.insert(1);
    for _ in 0..3 {
        stage.net.propose(3).unwrap();
    }
    stage.settle();
    let acks = sent(&stage, 1, 3, "Ack");
    stage.persist(1, 2);
    stage.persist(1, 1);
    assert_eq!(sent(&stage, 1, 3, "Ack"), acks + 2);
    assert_eq!((sent(&stage, 1, 3, "Ack 2.2"), sent(&stage, 1, 3, "Ack 2.3")), (1, 1));
}

// D7: the leader proposes an entry before its own disk has it. It counts itself in the quorum only
// once its disk has the entry.
#[test]
fn leader_counts_itself_only_once_its_disk_has_the_entry() {
    let mut stage = led(&[1, 2, 3]);
    stage.hung.extend([1, 3]);
    stage.net.propose(3).unwrap();
    stage.settle();
    assert_eq!((durable(&stage, 2), committed(&stage)), (zxid(2, 1), zxid(2, 0)));
    stage.persist_all(3);
    assert_eq!(committed(&stage), zxid(2, 1));
}

// 1.6: "acks need not include the leader's". The leader applies an entry only once its own disk has
// it.
#[test]
fn followers_alone_can_commit_before_the_leaders_disk_has_the_entry() {
    let mut stage = led(&[1, 2, 3]);
    stage.hung.insert(3);
    stage.net.propose(3).unwrap();
    stage.settle();
    assert_eq!((committed(&stage), applied(&stage, 1), applied(&stage, 3)), (zxid(2, 1), zxid(2, 1), zxid(2, 0)));
    stage.persist_all(3);
    assert_eq!(applied(&stage, 3), zxid(2, 1));
}

// "Upon receiving acknowledgements from a quorum": two of five are no quorum.
#[test]
fn acks_of_two_of_five_voters_commit_nothing() {
    let mut stage = led(&[1, 2, 3, 4, 5]);
    stage.hung.extend([1, 2, 3]);
    stage.net.propose(5).unwrap();
    stage.settle();
    assert_eq!(committed(&stage), zxid(2, 0));
    stage.persist_all(1);
    stage.settle();
    assert_eq!(committed(&stage), zxid(2, 1));
}

// "A follower delivers when it receives COMMIT": having an entry is not enough.
#[test]
fn follower_applies_an_entry_only_after_the_leaders_commit() {
    let mut stage = led(&[1, 2, 3]);
    stage.cut(1, 3, true);
    stage.cut(2, 3, true);
    stage.net.propose(3).unwrap();
    stage.settle();
    assert_eq!((durable(&stage, 1), applied(&stage, 1)), (zxid(2, 1), zxid(2, 0)));
}

// "A follower acknowledges proposals of its current leader alone."
#[test]
fn proposals_of_a_former_leader_are_dropped() {
    let mut stage = led(&[1, 2, 3]);
    stage.cut(3, 1, true);
    stage.cut(3, 2, true);
    stage.net.propose(3).unwrap();
    stage.run(4000);
    assert_eq!(role(&stage, 1), Role::Following(server_id(2)));
    stage.cut(3, 1, false);
    stage.settle();
    assert!(stage.net.world.server(1).log.written.entry(zxid(2, 1)).is_none());
}

// ---- 1.7: when a leader may serve.

#[test]
fn leader_that_hears_no_quorum_stops_leading() {
    let mut stage = led(&[1, 2, 3]);
    stage.cut(1, 3, true);
    stage.cut(2, 3, true);
    stage.run(10_000);
    assert_ne!(role(&stage, 3), Role::Leading);
}

/// Returns voters under load, led by the last one, long after it began to lead.
fn busy(voters: &[u8]) -> Stage {
    let mut stage = led(voters);
    stage.net.set_busy(*voters.last().unwrap(), true);
    stage.run(3000);
    stage
}

#[test]
fn busy_leader_steps_down_after_five_unanswered_pings() {
    let mut stage = busy(&[1, 2, 3]);
    stage.cut(1, 3, true);
    stage.cut(2, 3, true);
    let pings = sent(&stage, 3, 1, "Ping");
    stage.run(245);
    assert_eq!(role(&stage, 3), Role::Leading);
    stage.run(55);
    assert_ne!(role(&stage, 3), Role::Leading);
    assert_eq!(sent(&stage, 3, 1, "Ping") - pings, 5);
}

#[test]
fn idle_leader_pings_at_the_busy_pace_once_a_quorum_owes_it_a_pong() {
    let mut stage = led(&[1, 2, 3]);
    stage.run(3000);
    stage.cut(1, 3, true);
    stage.run(1000);
    assert_eq!(role(&stage, 3), Role::Leading, "a quorum answers");
    let pings = sent(&stage, 3, 2, "Ping");
    stage.run(3500);
    assert_eq!(sent(&stage, 3, 2, "Ping") - pings, 10, "one lost learner is no reason to hurry");
    stage.cut(2, 3, true);
    stage.run(350 + 250);
    assert_ne!(role(&stage, 3), Role::Leading);
}

#[test]
fn leader_that_was_paused_steps_down_late() {
    let mut stage = busy(&[1, 2, 3]);
    stage.net.world.now += 300;
    stage.run(5);
    stage.cut(1, 3, true);
    stage.cut(2, 3, true);
    stage.run(1500);
    assert_eq!(role(&stage, 3), Role::Leading);
    stage.run(1000);
    assert_ne!(role(&stage, 3), Role::Leading);
}

fn is_cut_off(stage: &Stage, id: u8) -> bool {
    let server = stage.net.world.server(id);
    server.zab().cut_off_at_ms().is_some_and(|at_ms| at_ms <= server.now(stage.net.world.now))
}

#[test]
fn learner_that_does_not_hear_its_leader_is_cut_off_until_it_does() {
    let mut stage = busy(&[1, 2, 3]);
    stage.cut(3, 1, true);
    stage.run(250);
    assert!(!is_cut_off(&stage, 1));
    stage.run(100);
    assert!(is_cut_off(&stage, 1) && !is_cut_off(&stage, 2));
    assert_eq!(role(&stage, 1), Role::Following(server_id(3)));
    stage.cut(3, 1, false);
    stage.run(60);
    assert!(!is_cut_off(&stage, 1));
}

#[test]
fn learner_that_awaits_an_answer_is_cut_off_after_one_idle_interval() {
    let mut stage = led(&[1, 2, 3]);
    stage.run(3000);
    stage.cut(3, 1, true);
    stage.net.confirm(1).unwrap();
    stage.run(440);
    assert!(!is_cut_off(&stage, 1));
    stage.run(20);
    assert!(is_cut_off(&stage, 1));
    stage.cut(3, 1, false);
    stage.run(400);
    assert!(!is_cut_off(&stage, 1));
}

#[test]
fn learner_that_its_leader_does_not_hear_is_cut_off_until_it_does() {
    let mut stage = busy(&[1, 2, 3]);
    stage.cut(1, 3, true);
    stage.run(350);
    assert!(!is_cut_off(&stage, 1));
    stage.run(150);
    assert!(is_cut_off(&stage, 1) && !is_cut_off(&stage, 2));
    assert_eq!(role(&stage, 1), Role::Following(server_id(3)));
    stage.cut(1, 3, false);
    stage.run(110);
    assert!(!is_cut_off(&stage, 1));
}

#[test]
fn follower_that_alone_misses_its_leader_keeps_following() {
    let mut stage = led(&[1, 2, 3]);
    stage.cut(3, 1, true);
    stage.run(5000);
    assert_eq!(role(&stage, 1), Role::Following(server_id(3)));
    assert_eq!(stage.net.world.server(3).zab().epoch(), epoch(2));
}

// ---- 1.8: observers.

#[test]
fn observer_receives_committed_entries_and_counts_in_no_quorum() {
    let mut stage = born(&[1, 2, 3]);
    stage.spare(4);
    stage.start(&[2, 3, 4]);
    stage.connect_all();
    stage.run(1000);
    assert_eq!(role(&stage, 4), Role::Observing(server_id(3)));
    stage.hung.insert(2);
    stage.net.propose(3).unwrap();
    stage.settle();
    // Only servers 3 and 4 have working disks, and only 3 votes.
    assert_eq!((committed(&stage), stage.net.world.server(4).log.written.last()), (zxid(2, 0), zxid(2, 0)));
    stage.persist_all(2);
    stage.settle();
    assert_eq!(applied(&stage, 4), zxid(2, 1));
}

// A server that lost acknowledged entries gets everything its leader has, however far it is behind.
#[test]
fn damaged_server_far_behind_gets_a_snapshot_of_the_whole_history() {
    let mut stage = Stage::new(&[1, 2, 3]);
    let epochs: Vec<(u32, u64)> = (1..=100).map(|epoch| (epoch, 1)).collect();
    for id in [2, 3] {
        stage.history(id, &epochs, zxid(100, 1));
    }
    stage.history(1, &[(1, 1), (2, 1)], zxid(1, 1));
    stage.net.rot(1, 1);
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    stage.run(1000);
    assert_eq!(sent(&stage, 3, 1, "Snap 101 at least 101.0"), 1, "and not the oldest entry that is remembered");
    assert_eq!(durable(&stage, 1), zxid(101, 0));
}

// A snapshot from an earlier leader does not pass for one that holds this leader's minimum.
#[test]
fn snapshot_older_than_the_leaders_minimum_is_refused() {
    let stage = Stage::new(&[1, 2, 3]);
    let members = members(&stage, &[1, 2, 3], &[]);
    let config = Config::new(EnsembleId(1), zxid(1, 0), &members).unwrap();
    let mut recovered = Recovered::empty(stage.net.world.server(1).log.disk, config.clone());
    (recovered.ensemble, recovered.is_whole) = (EnsembleId(1), false);
    let mut zab = Zab::new(server_id(1), Timing::default(), recovered, 7);
    let (peer, link, attempt, epoch) = (server_id(3), LinkId(1), Attempt(1), epoch(3));
    zab.start(0);
    zab.handle_link_up(0, peer, link, stage.net.world.server(3).log.disk);
    let mut hears = Servers::NOBODY;
    hears.insert(server_id(1));
    let leads = Notification {
        ensemble: EnsembleId(1),
        stance: Stance::Leading { established: true },
        epoch,
        credentials: Credentials { current: epoch, last: zxid(3, 0) },
        config: config.version,
        hears,
    };
    zab.handle_message(0, peer, link, Message::Notification(leads), None);
    zab.handle_message(0, peer, link, Message::LeaderInfo { attempt, epoch }, None);
    while zab.poll_action(0).is_some() {}
    zab.handle_persisted(0, AppendSeq(1));
    while zab.poll_action(0).is_some() {}
    let snap = Message::Snap { attempt, epoch, at_least: zxid(3, 0), config };
    zab.handle_message(0, peer, link, snap, None);
    assert!(zab.awaits_snapshot(peer, attempt) && !zab.awaits_snapshot(server_id(2), attempt));
    zab.handle_snapshot(0, zxid(2, 5));
    let actions: Vec<Action> = std::iter::from_fn(|| zab.poll_action(0)).collect();
    assert!(actions.iter().any(|action| matches!(action, Action::Close { .. })), "{actions:?}");
    assert!(!actions.iter().any(|action| matches!(action, Action::SnapEnd { .. })), "{actions:?}");
}

// ---- 1.10: reads.

#[test]
fn leadership_confirmation_needs_a_quorum_asked_after_the_request() {
    let mut stage = led(&[1, 2, 3]);
    stage.cut(1, 3, true);
    stage.cut(2, 3, true);
    let round = stage.net.confirm(3).unwrap();
    stage.settle();
    assert!(stage.net.world.server(3).questions.contains_key(&round));
    stage.cut(1, 3, false);
    stage.run(200);
    assert!(!stage.net.world.server(3).questions.contains_key(&round));
    assert_eq!(role(&stage, 3), Role::Leading);
}

// Reads that are asked for faster than the peers answer are still answered.
#[test]
fn frequent_syncs_do_not_postpone_their_reply() {
    let mut stage = led(&[1, 2, 3]);
    let ask = |stage: &mut Stage| {
        stage.net.confirm(1).unwrap();
        stage.deliver_until(1, 3, |message| matches!(message, Message::Sync { .. }));
    };
    for _ in 0..10 {
        // The next question arrives before the answers to the pings of the previous one.
        ask(&mut stage);
        stage.deliver_datagrams();
    }
    assert!(sent(&stage, 3, 1, "Synced") > 0);
}

// ---- 1.11: membership.

// D9: a server records a membership change before it appends the change's entry.
#[test]
fn membership_is_logged_before_its_entry() {
    let mut stage = led(&[1, 2, 3]);
    stage.hung.insert(1);
    let members = members(&stage, &[1, 2], &[3]);
    let change = stage.net.reconfigure(3, &members).unwrap();
    stage.settle();
    let records: Vec<Record> = stage.net.world.server(1).log.in_flight().cloned().collect();
    let is_pending =
        |record: &Record| matches!(record, Record::Configs { pending: Some(p), .. } if p.version == change);
    let recorded = records.iter().position(is_pending).unwrap();
    assert!(matches!(&records[recorded + 1], Record::Entry(entry) if entry.zxid == change));
}

// A voter not heard lately may be dead. A change that needs it could be neither committed nor taken
// back.
#[test]
fn membership_change_that_needs_silent_voters_is_refused() {
    let mut stage = led(&[1, 2, 3, 4, 5]);
    stage.cut(1, 5, true);
    stage.cut(2, 5, true);
    stage.run(u64::from(Timing::default().fresh_ms) + 500);
    let members = members(&stage, &[1, 2, 5], &[]);
    assert_eq!(stage.net.reconfigure(5, &members), Err(Refused::NoQuorum));
    assert_eq!(role(&stage, 5), Role::Leading);
}

// "From the proposal of the change until its commit, quorums of both are needed."
#[test]
fn membership_change_needs_quorums_of_old_and_new_voters() {
    let mut stage = led(&[1, 2, 3]);
    stage.spare(4);
    stage.spare(5);
    stage.start(&[4, 5]);
    stage.connect_all();
    stage.run(1000);
    stage.hung.extend([4, 5]);
    let change = stage.net.reconfigure(3, &members(&stage, &[3, 4, 5], &[])).unwrap();
    let next = stage.net.propose(3).unwrap();
    stage.settle();
    // The old quorum has both entries; the new one does not.
    assert!(durable(&stage, 1) >= next && committed(&stage) < change);
    assert_eq!(stage.net.reconfigure(3, &members(&stage, &[1, 2, 3], &[])), Err(Refused::ConfigPending));
    stage.persist_all(4);
    stage.settle();
    assert_eq!(committed(&stage), next);
}

#[test]
fn server_must_catch_up_before_it_becomes_a_voter() {
    let mut stage = led(&[1, 2, 3]);
    stage.spare(4);
    let refused = stage.net.reconfigure(3, &members(&stage, &[1, 2, 3, 4], &[]));
    assert_eq!(refused, Err(Refused::NotCaughtUp(server_id(4))));
    stage.start(&[4]);
    stage.connect_all();
    stage.run(1000);
    assert!(stage.net.reconfigure(3, &members(&stage, &[1, 2, 3, 4], &[])).is_ok());
}

// An ensemble is born in one epoch by all voters of the file, all with empty disks.
#[test]
fn ensemble_is_born_only_with_all_voters_present() {
    let mut stage = Stage::new(&[1, 2, 3]);
    stage.start(&[1, 2]);
    stage.connect_all();
    stage.run(10_000);
    assert!(stage.net.world.primaries.is_empty());
    stage.start(&[3]);
    stage.connect_all();
    stage.run(2000);
    assert_eq!(stage.net.world.primaries.keys().collect::<Vec<_>>(), [&epoch(1)]);
    let config = stage.net.world.committed[0].config.clone().unwrap();
    for voter in config.voters() {
        assert_eq!(voter.disk, stage.net.world.server(voter.id.as_u8()).log.disk);
    }
}

// A message in flight when its sender crashes still arrives; no rule depends on its loss.
#[test]
fn proposal_in_flight_at_a_leader_crash_survives_on_its_followers() {
    let mut stage = led(&[1, 2, 3]);
    stage.net.propose(3).unwrap();
    stage.net.crash(3, 0, true);
    let on_its_way = stage.net.world.links.values().flat_map(|link| &link.streams).flatten();
    let proposals =
        on_its_way.filter(|item| matches!(item, Item::Letter(l) if matches!(l.message, Message::Proposal { .. })));
    assert_eq!(proposals.count(), 2);
    stage.run(3000);
    // The proposal reached both followers, so it lives: the next leader's initial history holds it.
    assert!(committed(&stage) == zxid(3, 0) && stage.net.world.committed.iter().any(|entry| entry.zxid == zxid(2, 1)));
}
