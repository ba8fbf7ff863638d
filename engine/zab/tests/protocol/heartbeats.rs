//! How soon learners suspect a dead leader, by the heartbeats that they heard before.

use crate::net::server_id;
use crate::net::stage::Stage;
use zoolet_zab::{Role, Timing};

/// Returns a busy ensemble of 3, led by server 3, at the moment of a heartbeat.
fn busy() -> Stage {
    let mut stage = Stage::new(&[1, 2, 3]);
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    stage.run(3000);
    assert_eq!(stage.net.world.server(3).role, Role::Leading);
    stage.net.set_busy(3, true);
    stage.run(0);
    stage
}

/// Returns an idle ensemble of 3, led by server 3, between two heartbeats.
///
/// Every message arrives `hop_ms` after it was sent.
fn idle(hop_ms: u64) -> Stage {
    let mut stage = Stage::new(&[1, 2, 3]);
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    hops(&mut stage, hop_ms, 6000);
    assert_eq!(stage.net.world.server(3).role, Role::Leading);
    assert!(follows(&stage, 1) && follows(&stage, 2));
    stage
}

/// Lets `ms` milliseconds pass, in which every message arrives `hop_ms` after it was sent.
fn hops(stage: &mut Stage, hop_ms: u64, ms: u64) {
    if hop_ms == 0 {
        return stage.run(ms);
    }
    for _ in 0..ms / hop_ms {
        stage.tick(hop_ms);
        stage.deliver_once();
    }
}

/// Asks the leader 100 questions, each 20 ms after the former. Each hastens the next heartbeat.
fn hasten_heartbeats(stage: &mut Stage) {
    for _ in 0..100 {
        stage.net.confirm(3).unwrap();
        stage.run(20);
    }
}

/// Delivers every second heartbeat `late_ms` late, and the others at once.
fn delay_heartbeats(stage: &mut Stage, late_ms: u64) {
    let interval_ms = u64::from(Timing::default().heartbeat_busy_ms);
    for _ in 0..100 {
        stage.tick(interval_ms + late_ms);
        stage.deliver_datagrams();
        stage.tick(interval_ms - late_ms);
        stage.deliver_datagrams();
    }
}

/// Delivers every second heartbeat to learner 2 `late_ms` late. Everything else is delivered at once.
fn delay_heartbeats_of_learner_2(stage: &mut Stage, late_ms: u64) {
    let interval_ms = u64::from(Timing::default().heartbeat_busy_ms);
    for _ in 0..100 {
        stage.tick(interval_ms);
        stage.deliver_datagrams_to(1);
        stage.deliver_datagrams_to(3);
        stage.tick(late_ms);
        stage.deliver_datagrams();
        stage.tick(interval_ms - late_ms);
        stage.deliver_datagrams();
        stage.deliver_datagrams();
    }
}

/// Lets the heartbeats come later and later, up to 200 ms. Each is little later than those before it,
/// so learner 2 does not suspect the leader.
fn delay_heartbeats_more_and_more(stage: &mut Stage) {
    for late_ms in (10..200).step_by(5) {
        for _ in 0..4 {
            stage.tick(u64::from(Timing::default().heartbeat_busy_ms) + late_ms);
            stage.settle();
        }
        assert!(follows(stage, 2), "heartbeats come {late_ms} ms late");
    }
}

fn is_cut_off(stage: &Stage, id: u8) -> bool {
    let server = stage.net.world.server(id);
    server.zab().cut_off_at_ms().is_some_and(|at_ms| at_ms <= server.now(stage.net.world.now))
}

fn doubts_since_ms(stage: &Stage, id: u8) -> Option<u64> {
    let server = stage.net.world.server(id);
    // The clocks of servers differ.
    let ahead_ms = server.now(stage.net.world.now) - stage.net.world.now;
    Some(server.zab().doubts_since_ms()? - ahead_ms)
}

fn follows(stage: &Stage, id: u8) -> bool {
    stage.net.world.server(id).zab().leader() == Some(server_id(3))
}

/// Returns how long the learners follow a leader that dies now, milliseconds.
fn patience_ms(mut stage: Stage) -> u64 {
    stage.net.crash(3, 0, false);
    let died_ms = stage.net.world.now;
    while stage.net.world.server(1).zab().leader() == Some(server_id(3)) {
        stage.run(1);
        assert!(stage.net.world.now < died_ms + 10_000, "it is never suspected");
    }
    stage.net.world.now - died_ms
}

/// Three heartbeats of the busy interval.
fn patience_without_lateness_ms() -> u64 {
    3 * u64::from(Timing::default().heartbeat_busy_ms)
}

/// Regression: learners took heartbeats that questions hastened for a link of bad timing. They
/// suspected a dead leader 160 ms later.
#[test]
fn hastened_busy_heartbeats_do_not_delay_suspecting_a_dead_leader() {
    let mut stage = busy();
    hasten_heartbeats(&mut stage);
    let waited_ms = patience_ms(stage);
    assert!(waited_ms <= patience_without_lateness_ms(), "{waited_ms} ms");
}

/// Each late heartbeat is followed by an early gap, which must not halve what the late one taught.
#[test]
fn late_busy_heartbeats_extend_patience_by_four_times_their_lateness() {
    let mut stage = busy();
    delay_heartbeats(&mut stage, 30);
    let more_ms = patience_ms(stage) - patience_without_lateness_ms();
    assert!((110..=120).contains(&more_ms), "{more_ms} ms");
}

#[test]
fn hastened_busy_heartbeats_do_not_erase_the_learners_estimate_of_lateness() {
    let mut stage = busy();
    delay_heartbeats(&mut stage, 30);
    hasten_heartbeats(&mut stage);
    let waited_ms = patience_ms(stage);
    assert!(waited_ms >= patience_without_lateness_ms() + 90, "{waited_ms} ms");
}

/// Regression: learner 1 suspected the dead leader, and learner 2, whose heartbeats had been late,
/// did not for another 180 ms. Meanwhile learner 1 counted as cut off, and closed its clients'
/// connections.
#[test]
fn learner_with_late_heartbeats_suspects_a_dead_leader_with_the_first_one() {
    let mut stage = busy();
    delay_heartbeats_of_learner_2(&mut stage, 45);
    assert!(follows(&stage, 1) && follows(&stage, 2));
    stage.net.crash(3, 0, false);
    let died_ms = stage.net.world.now;
    while follows(&stage, 1) || follows(&stage, 2) {
        stage.run(1);
        let waited_ms = stage.net.world.now - died_ms;
        assert!(waited_ms <= patience_without_lateness_ms(), "{waited_ms} ms");
        assert!(!is_cut_off(&stage, 1) && !is_cut_off(&stage, 2), "after {waited_ms} ms");
    }
}

/// Otherwise one learner that is cut off for long would make the others leave a leader whose
/// heartbeats are late as usual.
#[test]
fn old_suspicion_of_another_learner_does_not_shorten_patience() {
    let mut stage = busy();
    stage.cut(3, 1, true);
    stage.run(1000);
    delay_heartbeats_more_and_more(&mut stage);
}

/// A learner must not send its clients away before it would suspect the leader.
#[test]
fn unanswered_request_does_not_cut_off_a_learner_before_it_suspects_its_leader() {
    let mut stage = busy();
    delay_heartbeats_more_and_more(&mut stage);
    stage.net.crash(3, 0, false);
    stage.net.expect_leader(1);
    let died_ms = stage.net.world.now;
    while follows(&stage, 1) {
        stage.run(1);
        assert!(!is_cut_off(&stage, 1), "after {} ms", stage.net.world.now - died_ms);
    }
    assert!(stage.net.world.now - died_ms > 450, "the patience is too short to show anything");
}

/// Regression: each learner of an idle ensemble waited for three heartbeats, 1,050 ms. The client's
/// server counted as cut off after 450 ms, and closed the connection of the client.
#[test]
fn idle_learners_leave_a_dead_leader_before_the_one_with_a_request_is_cut_off() {
    for hop_ms in [0, 5, 20] {
        let mut stage = idle(hop_ms);
        stage.net.crash(3, 0, false);
        stage.net.expect_leader(1);
        let died_ms = stage.net.world.now;
        // Three busy intervals, and four times the delay of an answer.
        let answer_ms = patience_without_lateness_ms() + 4 * 2 * hop_ms;
        while follows(&stage, 1) || follows(&stage, 2) {
            hops(&mut stage, hop_ms, hop_ms.max(1));
            let waited_ms = stage.net.world.now - died_ms;
            // The first learner waits for the answer to its request, then the other one for an
            // answer of its own.
            assert!(waited_ms <= 2 * answer_ms + 3 * hop_ms + 1, "{waited_ms} ms, messages take {hop_ms} ms");
            let is_cut_off = is_cut_off(&stage, 1) || is_cut_off(&stage, 2);
            assert!(!is_cut_off, "after {waited_ms} ms, messages take {hop_ms} ms");
        }
    }
}

/// Regression: on links with a longer delay, the learner with a request counted as cut off after 450 ms,
/// and suspected the leader after 1,050 ms.
#[test]
fn request_over_a_slow_link_does_not_hasten_the_cut_off() {
    for hop_ms in [30, 50, 100] {
        let mut stage = idle(hop_ms);
        stage.net.crash(3, 0, false);
        stage.net.expect_leader(1);
        let died_ms = stage.net.world.now;
        while follows(&stage, 1) || follows(&stage, 2) {
            hops(&mut stage, hop_ms, hop_ms);
            let waited_ms = stage.net.world.now - died_ms;
            assert!(waited_ms < 5000, "messages take {hop_ms} ms");
            let is_cut_off = is_cut_off(&stage, 1) || is_cut_off(&stage, 2);
            assert!(!is_cut_off, "after {waited_ms} ms, messages take {hop_ms} ms");
        }
    }
}

/// Regression: learner 1 had missed the last heartbeat. So it suspected the dead leader first, and
/// counted as cut off before learner 2 suspected it.
#[test]
fn learner_that_missed_the_last_heartbeat_is_not_cut_off_from_a_dead_leader() {
    for hop_ms in [0, 20, 30, 50, 100] {
        let mut stage = idle(hop_ms);
        stage.cut(3, 1, true);
        // One heartbeat.
        hops(&mut stage, hop_ms, u64::from(Timing::default().heartbeat_idle_ms));
        stage.net.crash(3, 0, false);
        let died_ms = stage.net.world.now;
        while follows(&stage, 1) || follows(&stage, 2) {
            hops(&mut stage, hop_ms, hop_ms.max(1));
            let waited_ms = stage.net.world.now - died_ms;
            assert!(waited_ms < 5000, "messages take {hop_ms} ms");
            let is_cut_off = is_cut_off(&stage, 1) || is_cut_off(&stage, 2);
            assert!(!is_cut_off, "after {waited_ms} ms, messages take {hop_ms} ms");
        }
    }
}

/// Regression: a learner that heard no other server counted as cut off from its leader alone. After
/// 0.3 s its clients lost their connections, although the others may have lost the leader too.
#[test]
fn learner_that_hears_no_server_does_not_count_as_cut_off() {
    let mut stage = busy();
    let began_ms = stage.net.world.now;
    stage.cut(3, 1, true);
    stage.cut(2, 1, true);
    stage.run(1000);
    assert!(follows(&stage, 1) && !is_cut_off(&stage, 1));
    let doubts_ms = doubts_since_ms(&stage, 1).expect("it suspects its leader") - began_ms;
    assert!((100..=200).contains(&doubts_ms), "since {doubts_ms} ms after the cut");
    // The other learner says that it hears the leader.
    stage.cut(2, 1, false);
    stage.run(200);
    assert!(follows(&stage, 1) && is_cut_off(&stage, 1));
    assert_eq!(doubts_since_ms(&stage, 1), None);
    stage.cut(3, 1, false);
    stage.run(200);
    assert!(follows(&stage, 1) && !is_cut_off(&stage, 1));
    assert_eq!(doubts_since_ms(&stage, 1), None);
}

/// Regression: a new leader died while one learner was still joining it. That learner waited for
/// `join_ms`. Meanwhile the other one counted as cut off from its leader alone, and the clients of
/// that one lost their connections.
#[test]
fn learner_is_not_cut_off_from_a_dead_leader_that_another_one_was_joining() {
    let mut stage = busy();
    stage.net.crash(2, 0, false);
    stage.run(1000);
    stage.start(&[2]);
    stage.connect_all();
    for _ in 0..100 {
        if follows(&stage, 2) {
            break;
        }
        stage.tick(1);
        stage.deliver_once();
    }
    assert!(follows(&stage, 2) && stage.net.world.server(2).role == Role::Looking, "it joins");
    stage.net.crash(3, 0, false);
    let died_ms = stage.net.world.now;
    while follows(&stage, 1) || follows(&stage, 2) {
        stage.run(1);
        assert!(!is_cut_off(&stage, 1));
        let waited_ms = stage.net.world.now - died_ms;
        assert!(waited_ms <= patience_without_lateness_ms() + 1, "they follow it for {waited_ms} ms");
    }
}

/// Regression: an observer followed a dead leader of the idle pace for 1,050 ms, although a new leader
/// had told it of its epoch. Writes of the observer's clients waited for that.
#[test]
fn observer_follows_a_new_leader_as_soon_as_it_hears_of_it() {
    let mut stage = Stage::new(&[1, 2, 3]);
    stage.spare(4);
    stage.start(&[1, 2, 3, 4]);
    stage.connect_all();
    stage.run(6000);
    assert!(follows(&stage, 4));
    stage.net.crash(3, 0, false);
    stage.net.expect_leader(1);
    let died_ms = stage.net.world.now;
    let new = loop {
        let leads = |id: &u8| stage.net.world.server(*id).role == Role::Leading;
        if let Some(id) = [1, 2].into_iter().find(leads) {
            break id;
        }
        stage.run(1);
        assert!(stage.net.world.now - died_ms < 1000, "nobody leads");
    };
    stage.run(1);
    assert_eq!(stage.net.world.server(4).zab().leader(), Some(server_id(new)));
}

#[test]
fn idle_leader_that_answers_the_other_learner_keeps_leading() {
    let mut stage = idle(0);
    let epoch = stage.net.world.server(3).zab().epoch();
    stage.cut(3, 1, true);
    stage.net.confirm(1).unwrap();
    let asked_ms = stage.net.world.now;
    while !is_cut_off(&stage, 1) {
        stage.run(1);
        assert!(stage.net.world.now - asked_ms <= 500, "the client waits for more than 500 ms");
    }
    stage.run(5000);
    assert!(follows(&stage, 1) && follows(&stage, 2));
    assert_eq!((stage.net.world.server(3).role, stage.net.world.server(3).zab().epoch()), (Role::Leading, epoch));
}

/// The learners ask the leader now and then, together or alone.
#[test]
fn idle_leader_with_a_long_round_trip_is_not_suspected() {
    for hop_ms in [5, 20, 50, 70, 80, 90, 100] {
        let mut stage = idle(hop_ms);
        for round in 0..50 {
            stage.net.confirm(1).unwrap();
            if round % 3 != 0 {
                stage.net.confirm(2).unwrap();
            }
            for _ in 0..(700 + 10 * round) / hop_ms {
                stage.tick(hop_ms);
                assert!(!stage.is_suspicion_in_flight(), "messages take {hop_ms} ms");
                stage.deliver_once();
            }
            assert!(!is_cut_off(&stage, 1) && !is_cut_off(&stage, 2), "messages take {hop_ms} ms");
        }
    }
}

/// Heartbeats are datagrams.
#[test]
fn idle_leader_whose_first_answers_are_lost_keeps_leading() {
    let mut stage = idle(0);
    let epoch = stage.net.world.server(3).zab().epoch();
    stage.cut(3, 1, true);
    stage.net.expect_leader(1);
    stage.run(patience_without_lateness_ms() - 1);
    // Learner 1 suspects the leader with the next step, and learner 2 asks it.
    stage.loses_datagrams = true;
    stage.run(u64::from(2 * Timing::default().heartbeat_busy_ms) - 1);
    stage.loses_datagrams = false;
    stage.run(3000);
    assert!(follows(&stage, 2));
    assert_eq!(stage.net.world.server(3).zab().epoch(), epoch);
}

/// The caller refuses each request. So only pings answer it.
#[test]
fn idle_leader_that_refuses_every_request_keeps_leading() {
    let mut stage = idle(0);
    let epoch = stage.net.world.server(3).zab().epoch();
    for _ in 0..3000 {
        stage.net.answer_learners(3);
        stage.net.expect_leader(1);
        stage.net.expect_leader(2);
        stage.run(1);
        assert!(!stage.is_suspicion_in_flight());
        assert!(!is_cut_off(&stage, 1) && !is_cut_off(&stage, 2));
    }
    assert_eq!(stage.net.world.server(3).zab().epoch(), epoch);
}

/// Regression: the learners suspected a leader that worked off thousands of requests: it sent no
/// heartbeat before it had handled all of them.
#[test]
fn leader_that_works_off_requests_sends_its_heartbeats_on_time() {
    let mut stage = busy();
    stage.work(3, 1000);
    assert!(follows(&stage, 1) && follows(&stage, 2));
    // The answers of its learners were unread meanwhile. It does not take them for silent.
    stage.net.deadline(3);
    assert_eq!(stage.net.world.server(3).role, Role::Leading);
    stage.run(1000);
    assert_eq!(stage.net.world.server(3).role, Role::Leading);
    assert!(follows(&stage, 1) && follows(&stage, 2));
}

/// A leader that is not established tells nothing of a quorum. On a box that has run for 50 days, its
/// pings must not date the learners' state back.
#[test]
fn pings_before_an_election_ends_do_not_age_the_learners_state() {
    let mut stage = Stage::new(&[1, 2, 3]);
    stage.net.world.now = 2 * u64::from(u32::MAX);
    stage.start(&[1, 2, 3]);
    stage.connect_all();
    for _ in 0..3000 {
        stage.tick(1);
        stage.deliver_once();
        for id in [1, 2] {
            let server = stage.net.world.server(id);
            let now = server.now(stage.net.world.now);
            let heard_ms = server.zab().quorum_heard_ms(now);
            assert!(heard_ms.is_none_or(|at_ms| now - at_ms < 3000), "{id}: {heard_ms:?} at {now}");
        }
    }
    assert!(follows(&stage, 1) && follows(&stage, 2));
}
