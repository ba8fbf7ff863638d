//! Clients that return to another server.
//!
//! Only a leader that a quorum has just confirmed decides whether a session is alive.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members, Told, born, write};
use zoolet_machine::seam::peer::{Attachment, Claim};
use zoolet_machine::{Event, PeerMessage};
use zoolet_model::{ConnectRequest, CreateKind, ErrorCode, EventKind, Reply, Request, SessionId, SetWatches, Text};
use zoolet_sim::client::{create, get};

const TIMEOUT_MS: i32 = 9000;

fn version(answer: Result<Reply, ErrorCode>) -> i32 {
    let Ok(Reply::Data(_, stat) | Reply::Stat(stat)) = answer else { panic!("{answer:?}") };
    stat.version
}

fn is_continued(members: &mut Members, client: &Client) -> bool {
    match members.told(client)[..] {
        [Told::Connected(reply)] => reply.session == client.session && reply.timeout_ms == client.timeout_ms,
        _ => false,
    }
}

fn is_over(members: &mut Members, client: &Client) -> bool {
    match members.told(client)[..] {
        [Told::Connected(reply), Told::Closed] => reply.session == SessionId(0) && reply.timeout_ms == 0,
        _ => false,
    }
}

#[test]
fn session_continues_at_any_server() {
    let mut members = Members::born(3);
    for from in members.ids() {
        for to in members.ids() {
            let mut client = members.client(from, TIMEOUT_MS);
            let path = format!("/from{from}to{to}");
            members.ask(&client, Request::Write(create(path.clone(), 1, CreateKind::Ephemeral))).unwrap();
            members.leave(&client);
            members.come_back(&mut client, to, 0);
            members.settle();
            assert!(is_continued(&mut members, &client), "from {from} to {to}");
            assert_eq!(version(members.ask(&client, write(&path))), 1);
        }
    }
}

#[test]
fn old_connection_of_a_moved_session_is_closed_at_any_server() {
    let mut members = Members::born(3);
    for from in members.ids() {
        for to in members.ids() {
            let old = members.client(from, TIMEOUT_MS);
            let mut new = old;
            members.come_back(&mut new, to, 0);
            members.settle();
            assert!(is_continued(&mut members, &new), "from {from} to {to}");
            assert!(members.is_just_closed(&old), "from {from} to {to}");
        }
    }
}

#[test]
fn late_write_on_a_moved_sessions_old_connection_is_dropped() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let old = members.client(servers[0], TIMEOUT_MS);
    members.ask(&old, born("/a")).unwrap();
    members.hold(servers[0], leader);
    members.send(&old, 1, write("/a"));
    let mut new = old;
    members.come_back(&mut new, servers[1], 0);
    members.settle();
    assert!(is_continued(&mut members, &new));
    members.release_all();
    assert!(members.is_just_closed(&old));
    assert_eq!(version(members.ask(&new, get("/a"))), 0);
    assert_eq!(version(members.ask(&new, write("/a"))), 1);
}

/// Regression: seed 277 without faults. The session had moved to the leader and left it again. The
/// leader knew no connection of it and trusted the old one.
#[test]
fn late_write_is_dropped_after_the_sessions_newer_connection_ended() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let old = members.client(servers[0], TIMEOUT_MS);
    members.ask(&old, born("/a")).unwrap();
    members.hold(servers[0], leader);
    members.send(&old, 1, write("/a"));
    let mut new = old;
    members.come_back(&mut new, leader, 0);
    members.settle();
    assert!(is_continued(&mut members, &new));
    members.leave(&new);
    members.release_all();
    assert!(members.is_just_closed(&old));
    members.come_back(&mut new, servers[1], 0);
    members.settle();
    assert!(is_continued(&mut members, &new));
    assert_eq!(version(members.ask(&new, get("/a"))), 0);
    assert_eq!(version(members.ask(&new, write("/a"))), 1);
}

#[test]
fn returning_session_reads_wait_for_its_earlier_write() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let old = members.client(servers[0], TIMEOUT_MS);
    members.ask(&old, born("/a")).unwrap();
    // Proposed, but not committed yet.
    members.hanging = members.ids().collect();
    members.send(&old, 1, write("/a"));
    members.settle();
    let mut new = old;
    members.come_back(&mut new, servers[1], 0);
    members.send(&new, 2, get("/a"));
    members.settle();
    assert!(members.told(&new).is_empty(), "it is not known yet whether the write comes");
    // This server learns of the commit later than the others.
    members.hold(leader, servers[1]);
    members.hanging.clear();
    members.settle();
    assert!(members.told(&new).is_empty());
    members.release_all();
    let told = members.told(&new);
    assert!(
        matches!(&told[..], [Told::Connected(_), Told::Reply(2, _, Ok(Reply::Data(_, stat)))] if stat.version == 1),
        "{told:?}"
    );
}

/// Moves a session to another server before its leader has applied its beginning.
///
/// The leader's disk is the slowest. The session sends `asks_for` to its first server, and returns
/// at a third one before that request commits. Returns the client on its new connection, which has
/// received nothing yet.
fn comes_back_before_its_leader_knows_it(members: &mut Members, asks_for: Request) -> Client {
    let (leader, servers) = (members.leader(), members.learners());
    members.hanging.insert(leader);
    let old = members.client(servers[0], TIMEOUT_MS);
    members.hanging = members.ids().collect();
    members.send(&old, 1, asks_for);
    members.settle();
    let mut new = old;
    members.come_back(&mut new, servers[1], 0);
    members.settle();
    members.hanging.remove(&leader);
    members.settle();
    assert!(members.told(&new).is_empty(), "it is not known yet whether that comes");
    new
}

/// Regression: seed 143 without faults. When the leader applied a session's beginning, it forgot
/// the session's earlier requests.
#[test]
fn returning_session_sees_writes_from_before_its_leader_knew_it() {
    let mut members = Members::born(3);
    let other = members.client(members.leader(), TIMEOUT_MS);
    members.ask(&other, born("/a")).unwrap();
    let new = comes_back_before_its_leader_knows_it(&mut members, write("/a"));
    members.send(&new, 2, get("/a"));
    members.hanging.clear();
    members.settle();
    let told = members.told(&new);
    assert!(
        matches!(&told[..], [Told::Connected(_), Told::Reply(2, _, Ok(Reply::Data(_, stat)))] if stat.version == 1),
        "{told:?}"
    );
}

#[test]
fn returning_client_waits_for_a_close_sent_before_its_leader_knew_it() {
    let mut members = Members::born(3);
    let new = comes_back_before_its_leader_knows_it(&mut members, Request::CloseSession);
    members.hanging.clear();
    members.settle();
    assert!(is_over(&mut members, &new));
}

/// Returns a session on two connections; only the leader knows the second.
fn on_two_connections(count: u8, from: u8, to: u8) -> (Members, Client, Client) {
    let mut members = Members::born(count);
    let old = members.client(from, TIMEOUT_MS);
    let mut new = old;
    members.is_moved_lost = true;
    members.come_back(&mut new, to, 0);
    members.settle();
    assert!(is_continued(&mut members, &new), "from {from} to {to}");
    assert!(members.told(&old).is_empty());
    members.is_moved_lost = false;
    (members, old, new)
}

#[test]
fn next_leader_keeps_the_newest_connection_of_a_session() {
    // The next leader is one of the two servers, or neither.
    for (count, from, to) in [(3, 1, 2), (3, 2, 1), (5, 1, 2), (5, 2, 1), (5, 4, 1), (5, 1, 4)] {
        let (mut members, old, new) = on_two_connections(count, from, to);
        members.stop(count);
        members.until_all_serve();
        members.settle();
        let story = format!("of {count}, from {from} to {to}; {} leads", members.leader());
        assert!(members.is_just_closed(&old), "{story}");
        assert_eq!(members.ask(&new, born("/a")), Ok(Reply::Path("/a".into())), "{story}");
    }
}

#[test]
fn next_leader_prefers_a_newer_connection_it_learns_of_later() {
    let (mut members, old, new) = on_two_connections(5, 1, 2);
    members.hold(2, 4);
    members.stop(5);
    members.until_serves(1);
    members.settle();
    assert!(members.leader() == 4 && members.told(&old).is_empty(), "it is believed until more is known");
    members.release_all();
    members.until_all_serve();
    members.settle();
    assert!(members.is_just_closed(&old));
    assert_eq!(members.ask(&new, born("/a")), Ok(Reply::Path("/a".into())));
}

/// Returns the number of sessions on each running server.
fn sessions(members: &Members) -> Vec<usize> {
    members.ids().filter(|&id| members.runs(id)).map(|id| members.server(id).sessions()).collect()
}

/// Regression: the next leader granted the session's first timeout. A session of 4 s that had
/// returned with 40 s ended 4 s after its leader died.
#[test]
fn changed_session_timeout_holds_under_the_next_leader() {
    for (first_ms, second_ms) in [(4000, 40_000), (40_000, 4000)] {
        for to_leader in [true, false] {
            let mut members = Members::born(3);
            let (leader, learner) = (members.leader(), members.learners()[0]);
            let mut client = members.client(learner, first_ms);
            client.timeout_ms = second_ms;
            members.come_back(&mut client, if to_leader { leader } else { learner }, 0);
            members.settle();
            assert!(is_continued(&mut members, &client));
            members.stop(leader);
            members.until_all_serve();
            if !to_leader {
                members.leave(&client);
            }
            let story = format!("{first_ms} ms, then {second_ms} ms, at the leader: {to_leader}");
            members.advance(second_ms as u64 - 1000);
            assert_eq!(sessions(&members), [1, 1], "{story}");
            members.advance(2000);
            assert_eq!(sessions(&members), [0, 0], "{story}");
        }
    }
}

#[test]
fn changed_session_timeout_survives_a_restart_of_all_servers() {
    for count in [1, 3] {
        let mut members = Members::born(count);
        let mut client = members.client(1, 4000);
        client.timeout_ms = 40_000;
        members.come_back(&mut client, 1, 0);
        members.settle();
        assert!(is_continued(&mut members, &client));
        members.ids().for_each(|server| members.stop(server));
        members.ids().for_each(|server| members.start(server));
        members.until_all_serve();
        members.advance(39_000);
        assert_eq!(sessions(&members), vec![1; usize::from(count)]);
        members.advance(2000);
        assert_eq!(sessions(&members), vec![0; usize::from(count)]);
    }
}

#[test]
fn returning_session_writes_an_entry_only_if_its_timeout_changes() {
    for count in [1, 3] {
        let mut members = Members::born(count);
        let mut client = members.client(1, TIMEOUT_MS);
        for (timeout_ms, entries) in [(TIMEOUT_MS, 0), (TIMEOUT_MS + 1000, 1), (TIMEOUT_MS + 1000, 0)] {
            let before = members.server(1).applied().as_i64();
            client.timeout_ms = timeout_ms;
            members.come_back(&mut client, 1, 0);
            members.settle();
            assert!(is_continued(&mut members, &client));
            assert_eq!(members.server(1).applied().as_i64() - before, entries, "{timeout_ms} ms, {count} servers");
        }
    }
}

#[test]
fn client_returning_during_a_log_stall_keeps_its_old_timeout() {
    let mut members = Members::born(1);
    let mut client = members.client(1, TIMEOUT_MS);
    members.handle(1, Event::LogStalled { is_read_only: false });
    let kept = client;
    client.timeout_ms = 2 * TIMEOUT_MS;
    members.come_back(&mut client, 1, 0);
    members.settle();
    let told = members.told(&client);
    assert!(matches!(told[..], [Told::Connected(reply)] if reply.timeout_ms == kept.timeout_ms), "{told:?}");
}

/// Each change is in flight when the client returns again.
#[test]
fn last_of_several_quick_timeout_changes_wins() {
    let mut members = Members::born(3);
    let mut client = members.client(1, 4000);
    members.hanging = members.ids().collect();
    for (to, timeout_ms) in [(2, 20_000), (3, 4000), (1, 30_000)] {
        client.timeout_ms = timeout_ms;
        members.come_back(&mut client, to, 0);
        members.settle();
    }
    members.hanging.clear();
    members.settle();
    assert!(is_continued(&mut members, &client));
    members.leave(&client);
    members.advance(29_000);
    assert_eq!(sessions(&members), [1, 1, 1]);
    members.advance(2000);
    assert_eq!(sessions(&members), [0, 0, 0]);
}

/// The leader attaches the session to its new connection, then applies a write from the old one.
#[test]
fn old_write_applied_late_does_not_close_the_new_connection() {
    let mut members = Members::born(3);
    let (leader, server) = (members.leader(), members.learners()[0]);
    let mut client = members.client(server, TIMEOUT_MS);
    members.ask(&client, born("/a")).unwrap();
    members.hanging = members.ids().collect();
    members.send(&client, 1, write("/a"));
    members.settle();
    members.come_back(&mut client, leader, 0);
    members.settle();
    assert!(members.told(&client).is_empty(), "it is not known yet whether the write comes");
    members.hanging.clear();
    members.settle();
    assert!(is_continued(&mut members, &client));
    assert_eq!(version(members.ask(&client, get("/a"))), 1);
}

/// Requests waiting on the old connection would take effect after the client's later ones.
#[test]
fn half_open_connection_closes_once_its_session_writes_elsewhere() {
    for (from, to) in [(1, 2), (2, 1)] {
        let mut members = Members::born(3);
        let leader = members.leader();
        let old = members.client(from, TIMEOUT_MS);
        members.ask(&old, born("/a")).unwrap();
        let mut new = old;
        members.is_moved_lost = true;
        members.come_back(&mut new, to, 0);
        members.settle();
        assert!(is_continued(&mut members, &new));
        assert!(members.told(&old).is_empty(), "it is half open");
        assert_eq!(version(members.ask(&new, write("/a"))), 1);
        members.stop(leader);
        members.send(&old, 9, write("/a"));
        members.until_all_serve();
        members.settle();
        assert!(members.is_just_closed(&old), "from {from} to {to}");
        assert_eq!(version(members.ask(&new, get("/a"))), 1, "from {from} to {to}");
    }
}

/// The leader examines the returning clients one after another, each once.
#[test]
fn thousands_of_clients_returning_at_once_are_all_answered() {
    const CLIENTS: usize = 3000;
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| members.client(servers[0], TIMEOUT_MS)).collect();
    for client in &mut clients {
        members.come_back(client, leader, 0);
    }
    members.settle();
    assert!(clients.iter().all(|client| is_continued(&mut members, client)));
}

/// Regression: a quorum of one confirms each question as soon as it is asked. Only the last answer
/// was handled.
#[test]
fn many_clients_returning_at_once_to_a_single_voter_are_answered() {
    const CLIENTS: usize = 100;
    for observers in [0, 1, 2] {
        let mut members = Members::born_of_one_voter(observers);
        let leader = members.leader();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| members.client(leader, TIMEOUT_MS)).collect();
        members.come_back_at_once(&mut clients, leader);
        members.settle();
        assert!(clients.iter().all(|client| is_continued(&mut members, client)), "{observers} observers");
    }
}

#[test]
fn wrong_session_secret_does_not_end_the_owners_session() {
    let mut members = Members::born(3);
    for to in members.ids() {
        let owner = members.client(members.leader(), TIMEOUT_MS);
        let mut thief = Client { secret: [1; 16], ..owner };
        members.come_back(&mut thief, to, 0);
        members.settle();
        assert!(is_over(&mut members, &thief));
        assert_eq!(members.ask(&owner, Request::Ping), Ok(Reply::Empty));
    }
}

#[test]
fn server_behind_a_clients_last_zxid_closes_its_connection() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let mut client = members.client(leader, TIMEOUT_MS);
    members.hold(leader, servers[0]);
    members.ask(&client, born("/a")).unwrap();
    let seen = members.server(leader).applied().as_i64();
    members.come_back(&mut client, servers[0], seen);
    members.settle();
    assert!(members.is_just_closed(&client));
    members.come_back(&mut client, servers[1], seen);
    members.settle();
    assert!(is_continued(&mut members, &client));
}

/// A leader that was deposed without noticing never heard of this session, and must not call it
/// over.
#[test]
fn unconfirmed_deposed_leader_never_reports_a_session_as_expired() {
    let mut members = Members::born(3);
    let (deposed, servers) = (members.leader(), members.learners());
    servers.iter().for_each(|&other| members.cut(deposed, other));
    members.paused.insert(deposed);
    for _ in 0..300 {
        members.advance(10);
        if servers.iter().any(|&server| members.server(server).leads()) {
            break;
        }
    }
    servers.iter().for_each(|&server| members.until_serves(server));
    let client = members.client(servers[0], TIMEOUT_MS);
    assert_eq!(members.ask(&client, born("/a")), Ok(Reply::Path("/a".into())));
    members.paused.clear();
    assert!(members.server(deposed).leads(), "it does not know yet");
    let mut there = client;
    members.come_back(&mut there, deposed, 0);
    members.advance(5000);
    assert!(members.is_just_closed(&there));
    members.release_all();
    members.until_all_serve();
    members.come_back(&mut there, deposed, 0);
    members.advance(100);
    assert!(is_continued(&mut members, &there), "the session lives");
}

#[test]
fn session_end_is_not_reported_before_it_is_committed() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let old = members.client(servers[0], TIMEOUT_MS);
    servers.iter().for_each(|&from| members.hold(from, leader));
    members.said.clear();
    members.hanging.insert(leader);
    members.release_all();
    servers.iter().for_each(|&server| {
        members.hanging.insert(server);
    });
    members.send(&old, 1, Request::CloseSession);
    members.settle();
    let mut new = old;
    members.come_back(&mut new, servers[1], 0);
    members.settle();
    assert!(members.told(&new).is_empty());
    members.hanging.clear();
    members.settle();
    assert!(is_over(&mut members, &new));
}

/// Lets the leader apply nothing more, so that it answers no question about a session.
fn stop_answers(members: &mut Members, leader: u8, client: &Client) {
    members.mute.insert(leader);
    members.ask(client, born("/fetched")).unwrap();
}

#[test]
fn question_about_a_session_is_answered_once_over_a_lost_link() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let old = members.client(servers[1], TIMEOUT_MS);
    members.ask(&old, born("/a")).unwrap();
    stop_answers(&mut members, leader, &old);
    let mut new = old;
    members.come_back(&mut new, servers[0], 0);
    members.settle();
    members.unlink(servers[0], leader);
    members.link(servers[0], leader);
    members.until_all_serve();
    members.ask(&old, write("/a")).unwrap();
    assert!(members.told(&new).is_empty());
    members.mute.clear();
    members.settle();
    let count = |is_one: fn(&PeerMessage) -> bool| members.said.iter().filter(|said| is_one(&said.2)).count();
    let questions = count(|message| matches!(message, PeerMessage::Revalidate { .. }));
    let answers = count(|message| matches!(message, PeerMessage::Revalidated { .. }));
    assert_eq!((questions, answers), (2, 1));
    assert!(is_continued(&mut members, &new) && members.is_just_closed(&old));
    assert_eq!(version(members.ask(&new, get("/a"))), 1, "the session sees its write on the old connection");
    assert_eq!(version(members.ask(&new, write("/a"))), 2);
}

/// Regression: a restarted server took the answer to its former process for its own. The connections of
/// both have the same numbers.
#[test]
fn answer_to_a_former_process_lets_no_client_with_a_wrong_secret_in() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let owner = members.client(servers[1], TIMEOUT_MS);
    stop_answers(&mut members, leader, &owner);
    let mut former = owner;
    members.come_back(&mut former, servers[0], 0);
    members.settle();
    members.stop(servers[0]);
    members.start(servers[0]);
    members.until_all_serve();
    let request = ConnectRequest {
        last_zxid_seen: 0,
        timeout_ms: TIMEOUT_MS,
        session: owner.session,
        password: Some(vec![0; 16].into()),
        read_only: None,
    };
    members.handle(servers[0], Event::Connect { conn: former.conn, peer: Some([127, 0, 0, 1].into()), request });
    members.settle();
    members.mute.clear();
    members.settle();
    let told = members.told(&former);
    assert!(matches!(told[..], [Told::Connected(reply), Told::Closed] if reply.session == SessionId(0)), "{told:?}");
    assert_eq!(version(members.ask(&owner, get("/fetched"))), 0, "the owner keeps its connection");
}

#[test]
fn server_without_a_leader_closes_new_and_returning_connections() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let client = members.client(servers[0], TIMEOUT_MS);
    members.stop(leader);
    members.stop(servers[1]);
    members.advance(5000);
    assert!(!members.server(servers[0]).is_serving());
    let mut again = client;
    members.come_back(&mut again, servers[0], 0);
    assert!(members.is_just_closed(&again));
    let new = members.connect(servers[0], zoolet_model::ConnectRequest::for_new_session(TIMEOUT_MS));
    assert!(matches!(members.take(servers[0], new)[..], [Told::Closed]));
}

#[test]
fn watches_set_again_at_another_server_report_missed_changes() {
    let mut members = Members::born(3);
    let servers = members.learners();
    let mut client = members.client(servers[0], TIMEOUT_MS);
    for path in ["/seen", "/missed"] {
        members.ask(&client, born(path)).unwrap();
    }
    let seen = members.server(servers[0]).applied().as_i64();
    members.leave(&client);
    let other = members.client(members.leader(), TIMEOUT_MS);
    members.ask(&other, write("/missed")).unwrap();
    members.come_back(&mut client, servers[1], seen);
    let data = vec![Text::from("/seen"), Text::from("/missed")];
    let (exist, child, persistent, persistent_recursive) = Default::default();
    let watches = SetWatches { relative_zxid: seen, data, exist, child, persistent, persistent_recursive };
    members.send(&client, 3, Request::SetWatches(watches));
    members.settle();
    let told = members.told(&client);
    let [Told::Connected(_), Told::Notified(missed), Told::Reply(3, _, Ok(Reply::Empty))] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((missed.kind, &*missed.path), (EventKind::NodeDataChanged, "/missed"));
    members.ask(&other, write("/seen")).unwrap();
    assert!(matches!(&members.told(&client)[..], [Told::Notified(event)] if &*event.path == "/seen"));
}

#[test]
fn touch_of_an_older_epoch_moves_no_session() {
    let mut members = Members::born(3);
    let (leader, servers) = (members.leader(), members.learners());
    let client = members.client(servers[0], TIMEOUT_MS);
    let epoch = zoolet_zab::Epoch::new(0).unwrap();
    let since = Attachment { epoch: zoolet_zab::Epoch::MAX, round: 1 };
    let sessions = vec![Claim { session: client.session, conn: zoolet_machine::ConnId(4000), since }];
    let stale = PeerMessage::Touch { epoch, sessions, of_this_process: None };
    members.inject(servers[1], leader, stale);
    members.settle();
    assert_eq!(members.ask(&client, Request::Ping), Ok(Reply::Empty));
    assert!(members.said.iter().all(|(_, _, message)| !matches!(message, PeerMessage::Moved { .. })));
}
