//! Expiry of silent sessions.
//!
//! Only the leader judges silence, and only while a quorum confirms that it leads.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members, Told};
use zoolet_machine::seam::event::{List, Shortage};
use zoolet_machine::{Event, Limits, PeerMessage, Settings};
use zoolet_model::{CreateKind, ErrorCode, Reply, Request, Text};
use zoolet_sim::client::{create, get};
use zoolet_zab::Timing;

const TIMEOUT_MS: i32 = 4000;

fn sessions(members: &Members) -> Vec<usize> {
    members.ids().filter(|&id| members.runs(id)).map(|id| members.server(id).sessions()).collect()
}

/// Lets time pass while these clients ping every second.
fn keep_alive(members: &mut Members, clients: &[Client], seconds: u32) {
    for _ in 0..seconds {
        for client in clients {
            assert_eq!(members.ask(client, Request::Ping), Ok(Reply::Empty), "{client:?}");
        }
        members.advance(1000);
    }
}

#[test]
fn session_that_only_reads_does_not_expire() {
    let mut members = Members::born(3);
    let clients: Vec<_> = members.ids().map(|server| members.client(server, TIMEOUT_MS)).collect();
    for _ in 0..20 {
        for client in &clients {
            assert_eq!(members.ask(client, get("/none")), Err(ErrorCode::NoNode));
        }
        // The longest silence allowed.
        members.advance(3990);
    }
    assert_eq!(sessions(&members), [3, 3, 3]);
}

/// The learner had not reported the ping to the leader when the connection ended.
#[test]
fn session_lives_a_full_timeout_from_a_ping_just_before_disconnect() {
    let mut members = Members::born(3);
    let learner = members.learners()[0];
    let client = members.client(learner, TIMEOUT_MS);
    members.advance(2000);
    assert_eq!(members.ask(&client, Request::Ping), Ok(Reply::Empty));
    members.leave(&client);
    members.advance(3900);
    assert_eq!(sessions(&members), [1, 1, 1]);
    members.advance(600);
    assert_eq!(sessions(&members), [0, 0, 0]);
}

/// Regression: `dump` on a learner showed a session at another server as expired, although its
/// client pinged.
#[test]
fn learner_lists_deadlines_of_its_own_connections_and_timeouts_of_all() {
    let mut members = Members::born(3);
    let (leader, learner) = (members.leader(), members.learners()[0]);
    let (here, there) = (members.client(learner, TIMEOUT_MS), members.client(leader, 2 * TIMEOUT_MS));
    keep_alive(&mut members, &[here, there], 10);

    let at_learner = members.list(learner, List::Deadlines);
    let mut timeouts = vec![(here.session, 4000), (there.session, 8000)];
    timeouts.sort_unstable();
    assert_eq!(at_learner.timeouts, Some(timeouts));
    // Both clients pinged a second ago.
    assert_eq!(at_learner.deadlines, [(3001, here.session)]);

    let at_leader = members.list(leader, List::Deadlines);
    assert_eq!(at_leader.timeouts, None);
    let [(here_ms, first), (there_ms, second)] = at_leader.deadlines[..] else { panic!("{:?}", at_leader.deadlines) };
    assert_eq!((first, second, there_ms), (here.session, there.session, 7001));
    assert!((3001..=4001).contains(&here_ms), "{here_ms}: the learner reports signs of life late");
}

/// The xid of pings.
const PING: i32 = -2;

/// The learner dies before it would have reported the sign of life by itself.
#[test]
fn sync_ping_is_answered_only_after_the_leader_counted_it() {
    let mut members = Members::born(3);
    let learner = members.learners()[0];
    let client = members.client(learner, TIMEOUT_MS);
    members.advance(3900);
    members.send(&client, PING, Request::Sync { path: None });
    members.settle();
    let told = members.told(&client);
    assert!(matches!(told[..], [Told::Reply(PING, _, Ok(Reply::Synced(None)))]), "{told:?}");
    members.stop(learner);
    members.advance(3990);
    assert_eq!(sessions(&members), [1, 1]);
    members.advance(600);
    assert_eq!(sessions(&members), [0, 0]);
}

/// The session's end is proposed but not committed when the sync arrives.
#[test]
fn sync_ping_of_an_ending_session_is_not_answered() {
    let mut members = Members::born(3);
    for server in members.ids() {
        let client = members.client(server, TIMEOUT_MS);
        members.advance(1000);
        members.told(&client);
        members.hanging = members.ids().collect();
        members.advance(4000);
        members.send(&client, PING, Request::Sync { path: None });
        members.advance(100);
        let told = members.told(&client);
        assert!(matches!(told[..], [Told::Closed]), "at server {server}: {told:?}");
        members.hanging.clear();
        members.advance(1000);
        assert_eq!(sessions(&members), [0, 0, 0]);
    }
}

#[test]
fn silent_session_expires_everywhere_at_its_timeout_not_earlier() {
    let mut members = Members::born(3);
    for server in members.ids() {
        let client = members.client(server, TIMEOUT_MS);
        let path = format!("/e{server}");
        members.ask(&client, Request::Write(create(path, 1, CreateKind::Ephemeral))).unwrap();
        members.advance(4000);
        assert_eq!(sessions(&members), [1, 1, 1], "at server {server}");
        // A learner reports signs of life with a delay, and a quorum must confirm the leader.
        members.advance(500);
        assert_eq!(sessions(&members), [0, 0, 0], "at server {server}");
        assert!(members.is_just_closed(&client));
        let other = members.client(server, TIMEOUT_MS);
        members.send(&other, 1, Request::CloseSession);
        members.settle();
    }
}

#[test]
fn client_waiting_for_a_reply_does_not_expire() {
    let mut members = Members::born(3);
    for server in members.ids() {
        let client = members.client(server, TIMEOUT_MS);
        members.hanging = members.ids().collect();
        members.send(&client, 1, Request::Write(create(format!("/late{server}"), 1, CreateKind::Persistent)));
        members.advance(9000);
        members.hanging.clear();
        members.advance(100);
        let told = members.told(&client);
        assert!(matches!(told[..], [Told::Reply(1, _, Ok(_))]), "at server {server}: {told:?}");
        members.send(&client, 2, Request::CloseSession);
        members.settle();
    }
}

#[test]
fn new_leader_grants_each_session_a_full_timeout() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let silent = members.client(servers[0], TIMEOUT_MS);
    members.leave(&silent);
    members.advance(3900);
    members.stop(leader);
    let at = members.now.mono_ms;
    members.until_all_serve();
    while members.now.mono_ms < at + 4000 {
        members.advance(10);
        assert_eq!(sessions(&members), [1, 1]);
    }
    members.advance(1500);
    assert_eq!(sessions(&members), [0, 0]);
}

/// zab.md C3: all clients kept touching their sessions, and only this server did not hear them.
#[test]
fn paused_leader_expires_no_session() {
    for pause_ms in [1_000, 3_000, 60_000] {
        let mut members = Members::born(3);
        let (leader, servers) = (members.leader(), members.learners());
        let clients: Vec<_> = members.ids().map(|server| members.client(server, TIMEOUT_MS)).collect();
        keep_alive(&mut members, &clients, 5);
        let expired = members.server(leader).sessions();
        members.paused.insert(leader);
        members.jump(pause_ms);
        members.paused.clear();
        members.judge();
        members.advance(100);
        assert_eq!(sessions(&members), [3, 3, 3], "after {pause_ms} ms");
        assert_eq!(expired, 3);
        members.until_all_serve();
        let _ = servers;
    }
}

/// The leader does not know yet that the others follow a new one. Its clients' sessions live on
/// there.
#[test]
fn leader_cut_from_its_quorum_expires_no_session() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let silent = members.client(leader, TIMEOUT_MS);
    members.advance(3500);
    servers.iter().for_each(|&other| members.cut(leader, other));
    let before = members.server(leader).unapplied();
    while members.server(leader).leads() {
        members.advance(10);
        assert_eq!(members.server(leader).unapplied(), before, "no end of a session is proposed");
    }
    members.release_all();
    members.until_all_serve();
    let mut back = silent;
    members.come_back(&mut back, servers[0], 0);
    members.advance(100);
    assert!(matches!(members.told(&back)[..], [Told::Connected(reply)] if reply.session == back.session));
}

#[test]
fn learner_batches_touches_into_one_message_to_the_leader() {
    let mut members = Members::born(3);
    let (leader, server) = (members.leader(), members.learners()[0]);
    let clients: Vec<_> = (0..10).map(|_| members.client(server, TIMEOUT_MS)).collect();
    members.advance(1000);
    members.said.clear();
    for client in &clients {
        (0..5).for_each(|_| members.send(client, 1, Request::Ping));
    }
    members.advance(1000);
    let touches: Vec<_> = members
        .said
        .iter()
        .filter_map(|(from, to, message)| match message {
            PeerMessage::Touch { sessions, .. } => Some((*from, *to, sessions.len())),
            _ => None,
        })
        .collect();
    assert_eq!(touches, [(server, leader, 10)]);
}

#[test]
fn new_leader_learns_which_sessions_its_learners_hold() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let old = members.client(servers[0], 30_000);
    // The former leader already knows of the session, so the learner has nothing left to report.
    members.advance(1000);
    members.stop(leader);
    members.until_all_serve();
    members.advance(100);
    let mut new = old;
    members.come_back(&mut new, servers[1], 0);
    members.advance(100);
    assert!(matches!(members.told(&new)[..], [Told::Connected(_)]));
    assert!(members.is_just_closed(&old));
}

/// Regression: the learner counted its state as newer by the length of its pause. So it showed
/// state older than allowed.
#[test]
fn paused_learner_does_not_answer_reads_from_stale_state() {
    let mut members = Members::born(3);
    let (leader, server) = (members.leader(), members.learners()[0]);
    let (reader, writer) = (members.client(server, TIMEOUT_MS), members.client(leader, TIMEOUT_MS));
    members.cut(leader, server);
    members.ask(&writer, Request::Write(create("/new", 1, CreateKind::Persistent))).unwrap();
    members.advance(1500);
    members.paused.insert(server);
    members.jump(2000);
    members.paused.clear();
    members.judge();
    members.send(&reader, 1, Request::Exists { path: Text::from("/new"), watch: false });
    members.advance(10);
    let told = members.told(&reader);
    assert!(!told.iter().any(|told| matches!(told, Told::Reply(1, ..))), "after 3.5 s: {told:?}");
}

/// Returns the number of pings to a learner since the last call.
fn pings(members: &mut Members, learner: u8) -> usize {
    let is_ping = |(_, to, message): &(u8, u8, PeerMessage)| {
        let PeerMessage::Zab(message) = message else { return false };
        *to == learner && matches!(**message, zoolet_zab::Message::Ping { .. })
    };
    std::mem::take(&mut members.said).iter().filter(|said| is_ping(said)).count()
}

/// Each write is durable and applied long before the next heartbeat is due. So no write is in
/// flight at that moment.
#[test]
fn heartbeats_speed_up_from_the_first_light_write() {
    let mut members = Members::born(3);
    let (leader, learner) = (members.leader(), members.learners()[0]);
    let client = members.client(leader, 9000);
    members.advance(3000);
    pings(&mut members, learner);
    members.advance(1000);
    assert!(pings(&mut members, learner) <= 4, "nobody writes");
    members.ask(&client, Request::Write(create("/first", 5, CreateKind::Persistent))).unwrap();
    members.advance(120);
    assert!(pings(&mut members, learner) >= 2, "the first write");
    for number in 0..10 {
        members.ask(&client, Request::Write(create(format!("/z{number}"), 5, CreateKind::Persistent))).unwrap();
        members.advance(100);
    }
    assert!(pings(&mut members, learner) >= 15, "a write each 100 ms");
    members.advance(2000);
    pings(&mut members, learner);
    members.advance(1000);
    assert!(pings(&mut members, learner) <= 4, "nobody writes any more");
}

#[test]
fn heartbeats_are_frequent_while_a_short_session_exists() {
    let settings = Settings { session_timeout_min_ms: 500, ..Settings::default() };
    let mut members = Members::born_with(3, settings, Limits::default());
    let learner = members.learners()[0];
    members.advance(3000);
    let client = members.client(learner, 1000);
    for _ in 0..3 {
        pings(&mut members, learner);
        for _ in 0..10 {
            members.ask(&client, Request::Ping).unwrap();
            members.advance(100);
        }
        assert!(pings(&mut members, learner) >= 15);
    }
}

/// Counts the pings to a learner during the next three heartbeat intervals of the busy pace.
///
/// Pings in the same millisecond count as one, because one fault of the network can lose them all.
fn answer_pings(members: &mut Members, learner: u8) -> usize {
    let answer_ms = 3 * Timing::default().heartbeat_busy_ms;
    let is_pinged = |_: &u32| {
        members.advance(1);
        pings(members, learner) > 0
    };
    (0..answer_ms).filter(is_pinged).count()
}

/// Returns an idle ensemble, a learner, and its client.
///
/// No heartbeat of the idle pace is due in the next milliseconds.
fn idle_learner() -> (Members, u8, Client) {
    let mut members = Members::born(3);
    let learner = members.learners()[0];
    let client = members.client(learner, 9000);
    members.advance(3000);
    pings(&mut members, learner);
    while pings(&mut members, learner) == 0 {
        members.advance(1);
    }
    members.advance(u64::from(Timing::default().heartbeat_busy_ms));
    assert_eq!(pings(&mut members, learner), 0);
    (members, learner, client)
}

/// A learner suspects an idle leader that does not answer. Two of the answers may be lost. A refusal
/// does not count, because it is no message of the protocol.
#[test]
fn idle_leader_pings_a_learner_whose_write_it_refuses() {
    let (mut members, learner, client) = idle_learner();
    let leader = members.leader();
    members.handle(leader, Event::Space { shortage: Some(Shortage::Disk) });
    members.send(&client, 1, Request::Write(create("/refused", 1, CreateKind::Persistent)));
    assert!(answer_pings(&mut members, learner) >= 3);
    let told = members.told(&client);
    assert!(matches!(told[..], [Told::Reply(1, _, Err(_))]), "{told:?}");
}

/// The leader also pings to confirm that it leads, but it stops once a quorum has answered.
#[test]
fn idle_leader_pings_a_learner_whose_client_returns() {
    let (mut members, learner, mut client) = idle_learner();
    members.come_back(&mut client, learner, 0);
    assert!(answer_pings(&mut members, learner) >= 3);
}

/// Returns the intervals announced to a learner since the last call, milliseconds.
fn announced(members: &mut Members, learner: u8) -> Vec<u32> {
    let interval = |(_, to, message): (u8, u8, PeerMessage)| match message {
        PeerMessage::Zab(message) if to == learner => match *message {
            zoolet_zab::Message::Ping { interval_ms, .. } => Some(interval_ms),
            _ => None,
        },
        _ => None,
    };
    std::mem::take(&mut members.said).into_iter().filter_map(interval).collect()
}

/// Runs until a heartbeat announces the idle interval; returns its receiver.
fn until_idle_is_announced(members: &mut Members, timing: Timing) -> u8 {
    let (leader, learner) = (members.leader(), members.learners()[0]);
    let client = members.client(leader, 9000);
    members.ask(&client, Request::Write(create("/last", 5, CreateKind::Persistent))).unwrap();
    members.advance(100);
    announced(members, learner);
    for _ in 0..5000 {
        members.advance(1);
        if announced(members, learner).contains(&timing.heartbeat_idle_ms) {
            return learner;
        }
    }
    panic!("the idle interval was never announced");
}

/// Regression: on a bad link, both followers of three lost the only heartbeat that announced the
/// idle interval. They suspected their leader before its next one.
#[test]
fn idle_heartbeat_interval_is_announced_three_times_at_the_busy_pace() {
    let timing = Timing::default();
    let mut members = Members::born(3);
    let learner = until_idle_is_announced(&mut members, timing);
    let (mut gaps, mut gap_ms) = (Vec::new(), 0);
    while gaps.len() < 4 {
        members.advance(1);
        gap_ms += 1;
        for _ in announced(&mut members, learner) {
            gaps.push(std::mem::take(&mut gap_ms));
        }
        assert!(gap_ms < 2000, "{gaps:?} ms, and no other heartbeat");
    }
    let (busy, idle) = (timing.heartbeat_busy_ms, timing.heartbeat_idle_ms);
    assert!(gaps[..2].iter().all(|&gap_ms| gap_ms <= busy + 5), "{gaps:?} ms");
    assert!(gaps[2..].iter().all(|&gap_ms| gap_ms >= idle - 5), "{gaps:?} ms");
}

#[test]
fn learner_joining_an_idle_leader_hears_the_interval_three_times() {
    let timing = Timing::default();
    let mut members = Members::born(3);
    let learner = members.learners()[0];
    members.advance(3000);
    members.stop(learner);
    members.start(learner);
    members.said.clear();
    members.advance(4 * u64::from(timing.heartbeat_busy_ms));
    assert!(members.server(learner).is_serving());
    let intervals = announced(&mut members, learner);
    assert!(intervals.len() >= 3 && intervals.iter().all(|&ms| ms == timing.heartbeat_idle_ms), "{intervals:?}");
}

/// Returns how long a learner follows an unreachable leader, milliseconds.
///
/// A learner leaves its leader only once a quorum suspects it, so the other learners count as well.
fn patience_ms(members: &mut Members, learner: u8) -> u32 {
    let (leader, first) = (members.leader(), members.server(learner).leader());
    members.learners().into_iter().for_each(|learner| members.cut(leader, learner));
    let mut waited_ms = 0;
    while members.server(learner).leader() == first {
        members.advance(1);
        waited_ms += 1;
        assert!(waited_ms < 10_000, "it is never suspected");
    }
    waited_ms
}

/// Returns how long a learner trusts a leader that it alone does not hear, milliseconds.
///
/// No other learner's suspicion shortens its patience.
fn lone_patience_ms(members: &mut Members, learner: u8) -> u32 {
    let leader = members.leader();
    members.hold(leader, learner);
    let mut waited_ms = 0;
    // A learner that suspects its leader knows when it will count as cut off.
    while members.server(learner).zab().cut_off_at_ms().is_none() {
        members.advance(1);
        waited_ms += 1;
        assert!(waited_ms < 10_000, "it is never suspected");
    }
    waited_ms
}

/// A heartbeat earlier than announced says nothing about the link. A learner that counted it as
/// jitter would suspect a dead leader later.
#[test]
fn early_idle_announcements_do_not_delay_suspecting_a_dead_leader() {
    let timing = Timing::default();
    let mut members = Members::born(3);
    let learner = until_idle_is_announced(&mut members, timing);
    for _ in 0..2 {
        while announced(&mut members, learner).is_empty() {
            members.advance(1);
        }
    }
    // Three intervals, plus the jitter that three heartbeats show on a link without delays.
    let waited_ms = patience_ms(&mut members, learner);
    assert!(waited_ms <= 3 * timing.heartbeat_idle_ms + timing.heartbeat_busy_ms, "{waited_ms} ms");
}

/// Nor do early heartbeats prove that the link is good.
#[test]
fn early_heartbeats_do_not_erase_the_learners_estimate_of_jitter() {
    let timing = Timing::default();
    let mut members = Members::born(3);
    let (leader, learner) = (members.leader(), members.learners()[0]);
    let client = members.client(learner, 9000);
    members.advance(3000);
    for _ in 0..3 {
        members.hold(leader, learner);
        members.advance(300);
        members.release(leader, learner);
        members.advance(700);
    }
    for _ in 0..20 {
        assert_eq!(members.ask(&client, Request::Sync { path: None }), Ok(Reply::Synced(None)));
        members.advance(20);
    }
    let waited_ms = lone_patience_ms(&mut members, learner);
    assert!(waited_ms >= 3 * timing.heartbeat_idle_ms + 2 * timing.heartbeat_busy_ms, "{waited_ms} ms");
}
