//! Clients of a server whose leader is lost or not heard.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Members, Told, born};
use zoolet_model::{ConnectRequest, ErrorCode, Reply, Request, Text};
use zoolet_sim::client::get;

fn sync() -> Request {
    Request::Sync { path: Some(Text::from("/")) }
}

#[test]
fn reads_go_on_without_a_leader_for_2_s_or_three_tenths_of_the_timeout() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let server = servers[0];
    let (short, long) = (members.client(server, 4500), members.client(server, 30_000));
    members.ask(&long, born("/a")).unwrap();
    members.stop(servers[1]);
    members.stop(leader);
    let at = members.now.mono_ms;
    // Reads continue. Pings and writes wait for a leader.
    assert!(members.ask(&long, get("/a")).is_ok());
    members.send(&short, 5, Request::Ping);
    members.send(&long, 6, born("/b"));
    members.advance(1340);
    assert!(members.told(&short).is_empty());
    members.advance(10);
    assert!(members.is_just_closed(&short), "after {} ms", members.now.mono_ms - at);
    members.advance(640);
    assert!(members.told(&long).is_empty());
    members.advance(10);
    assert!(members.is_just_closed(&long));
}

#[test]
fn new_leader_within_2_s_handles_the_waiting_requests() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let clients: Vec<_> = servers.iter().map(|&server| members.client(server, 30_000)).collect();
    members.cut(servers[0], servers[1]);
    members.stop(leader);
    for client in &clients {
        members.send(client, 1, Request::Ping);
        members.send(client, 2, born(&format!("/{}", client.server)));
        members.settle();
        assert!(members.told(client).is_empty());
    }
    members.release_all();
    members.until_all_serve();
    members.settle();
    for client in &clients {
        let told = members.told(client);
        assert!(matches!(told[..], [Told::Reply(-2, _, Ok(_)), Told::Reply(2, _, Ok(Reply::Path(_)))]), "{told:?}");
    }
}

#[test]
fn sync_at_a_learner_waits_for_earlier_commits() {
    let mut members = Members::born(3);
    let (leader, server) = (members.leader(), members.learners()[0]);
    let (writer, reader) = (members.client(leader, 30_000), members.client(server, 30_000));
    members.hold(leader, server);
    members.ask(&writer, born("/a")).unwrap();
    assert_eq!(members.ask(&reader, get("/a")), Err(ErrorCode::NoNode), "this server does not know it yet");
    members.send(&reader, 1, sync());
    members.send(&reader, 2, get("/a"));
    members.settle();
    assert!(members.told(&reader).is_empty());
    members.release_all();
    members.advance(400);
    let told = members.told(&reader);
    assert!(matches!(told[..], [Told::Reply(1, _, Ok(_)), Told::Reply(2, _, Ok(Reply::Data(..)))]), "{told:?}");
}

/// zab.md G1: without a quorum, the leader still believes that it leads.
#[test]
fn leader_cut_from_its_quorum_answers_no_sync() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let reader = members.client(leader, 30_000);
    servers.iter().for_each(|&other| members.cut(leader, other));
    members.send(&reader, 1, sync());
    members.settle();
    assert!(members.server(leader).leads());
    assert!(members.told(&reader).is_empty());
    members.advance(5000);
    assert!(members.is_just_closed(&reader));
}

/// A leader without a quorum leads too shortly for random runs.
#[cfg(feature = "mutations")]
#[test]
#[should_panic(expected = "members.told(&reader).is_empty()")]
fn confirm_without_quorum_mutation_answers_a_sync_of_a_leader_without_one() {
    zoolet_zab::mutation::set(Some(zoolet_zab::Mutation::ConfirmWithoutQuorum));
    leader_cut_from_its_quorum_answers_no_sync();
}

#[test]
fn learner_cut_from_its_leader_closes_its_connections_after_3_s() {
    let mut members = Members::born(3);
    let (leader, server) = (members.leader(), members.learners()[0]);
    let reader = members.client(server, 30_000);
    members.hold(leader, server);
    for _ in 0..26 {
        members.advance(100);
        assert_eq!(members.ask(&reader, get("/a")), Err(ErrorCode::NoNode));
    }
    members.advance(500);
    assert!(members.is_just_closed(&reader));
    assert!(members.server(server).leader().is_some(), "the others hear the leader, so this server does not leave it");
    let refused = members.connect(server, ConnectRequest::for_new_session(4000));
    assert!(matches!(members.take(server, refused)[..], [Told::Closed]));
    members.release_all();
    members.advance(1000);
    assert!(members.client(server, 4000).session.0 != 0);
}

/// Regression: the 2 s for which a server without a leader keeps its clients began when its link ended.
#[test]
fn silence_before_a_link_ends_counts_as_age_of_the_state() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let reader = members.client(servers[0], 30_000);
    members.hold(leader, servers[0]);
    members.advance(2500);
    members.unlink(servers[0], leader);
    members.unlink(servers[0], servers[1]);
    assert_eq!(members.ask(&reader, get("/a")), Err(ErrorCode::NoNode));
    members.advance(600);
    assert!(members.is_just_closed(&reader));
}

/// Regression: the age of the state began when the learner last heard its leader. A leader that just
/// began leads on for 2 s without a quorum, so another one may have led for almost 2 s by then.
///
/// The owner of a session counts on `staleness_max_ms`. Its session could end before it expected that.
#[test]
fn learner_answers_for_staleness_max_after_its_leader_heard_a_quorum() {
    let mut members = Members::born(5);
    let (leader, servers) = (members.leader(), members.learners());
    let reader = members.client(servers[0], 30_000);
    members.advance(100);
    for &other in &servers[1..] {
        members.cut(leader, other);
        members.cut(servers[0], other);
    }
    let cut_ms = members.now.mono_ms;
    // A leader that just began is patient.
    members.advance(1500);
    assert!(members.server(leader).leads());
    members.cut(leader, servers[0]);
    let mut answered_ms = 0;
    for _ in 0..500 {
        members.send(&reader, 1, get("/a"));
        members.settle();
        if members.told(&reader).iter().any(|told| matches!(told, Told::Reply(..))) {
            answered_ms = members.now.mono_ms - cut_ms;
        }
        members.advance(10);
    }
    assert!((2500..=3000).contains(&answered_ms), "{answered_ms} ms");
}

#[test]
fn paused_learner_never_answers_from_its_state_before_the_pause() {
    let mut members = Members::born(3);
    let (leader, server) = (members.leader(), members.learners()[0]);
    let (writer, reader) = (members.client(leader, 30_000), members.client(server, 30_000));
    members.advance(100);
    members.paused.insert(server);
    // A heartbeat from before the write waits on the wire.
    members.advance(400);
    members.hold(leader, server);
    members.ask(&writer, born("/a")).unwrap();
    members.jump(5000);
    members.paused.clear();
    members.send(&reader, 1, get("/a"));
    assert!(members.told(&reader).is_empty(), "it may be as old as the pause");
    members.release_all();
    members.advance(400);
    let told = members.told(&reader);
    assert!(matches!(told[..], [] | [Told::Reply(1, _, Ok(Reply::Data(..)))] | [Told::Closed]), "{told:?}");
}
