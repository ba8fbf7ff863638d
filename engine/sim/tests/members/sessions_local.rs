//! Local sessions over whole servers: where they live, how they become global, and how they end.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members, Told, born, write};
use zoolet_machine::{Limits, PeerMessage, Settings};
use zoolet_model::{CreateKind, ErrorCode, Reply, Request, ServerId, SessionId};
use zoolet_sim::client::{create, get, set};
use zoolet_zab::{Kind, Role};

const TIMEOUT_MS: i32 = 6000;

fn ensemble(local_sessions_upgrade: bool) -> Members {
    let settings = Settings { local_sessions: true, local_sessions_upgrade, ..Settings::default() };
    Members::born_with(3, settings, Limits::default())
}

fn ephemeral(path: &str) -> Request {
    Request::Write(create(path.to_owned(), 1, CreateKind::Ephemeral))
}

fn owner(members: &mut Members, client: &Client, path: &str) -> Option<SessionId> {
    match members.ask(client, Request::Exists { path: path.into(), watch: false }) {
        Ok(Reply::Stat(stat)) => Some(SessionId(stat.ephemeral_owner)),
        Err(ErrorCode::NoNode) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn local_session_costs_no_entry_and_other_servers_do_not_know_it() {
    let mut members = ensemble(true);
    let before = members.ids().map(|server| members.server(server).applied()).collect::<Vec<_>>();
    for server in members.ids() {
        let client = members.client(server, TIMEOUT_MS);
        assert!(client.session.began_local());
        assert_eq!(members.ask(&client, Request::CloseSession), Ok(Reply::Empty));
        assert!(members.told(&client).is_empty(), "nothing follows the answer but the end, which `ask` took");
        members.client(server, TIMEOUT_MS);
        assert_eq!(members.server(server).sessions(), 1);
    }
    assert_eq!(members.ids().map(|server| members.server(server).applied()).collect::<Vec<_>>(), before);
}

#[test]
fn local_session_reads_and_writes_on_any_server() {
    let mut members = ensemble(true);
    for server in members.ids() {
        let client = members.client(server, TIMEOUT_MS);
        let path = format!("/a{server}");
        members.ask(&client, born(&path)).unwrap();
        members.ask(&client, write(&path)).unwrap();
        assert!(matches!(members.ask(&client, get(path.as_str())), Ok(Reply::Data(..))));
        assert_eq!(owner(&mut members, &client, &path), Some(SessionId(0)));
        assert_eq!(members.status(server).local_sessions, 1, "a write does not make it global");
    }
}

#[test]
fn local_session_returns_to_its_own_server_and_is_expired_elsewhere() {
    let mut members = ensemble(true);
    let (leader, learner) = (members.leader(), members.learners()[0]);
    for (server, other) in [(leader, learner), (learner, leader)] {
        let mut client = members.client(server, TIMEOUT_MS);
        let before = client;
        members.come_back(&mut client, server, 0);
        members.settle();
        assert!(matches!(members.told(&client)[..], [Told::Connected(reply)] if reply.session == before.session));
        assert!(members.is_just_closed(&before));
        let mut wrong = Client { secret: [9; 16], ..client };
        members.come_back(&mut wrong, server, 0);
        members.settle();
        assert!(matches!(members.told(&wrong)[..], [Told::Connected(reply), Told::Closed] if reply.timeout_ms == 0));
        members.ask(&client, Request::Ping).unwrap();
        let mut moved = client;
        members.come_back(&mut moved, other, 0);
        members.settle();
        assert!(matches!(members.told(&moved)[..], [Told::Connected(reply), Told::Closed] if reply.timeout_ms == 0));
        members.ask(&client, Request::Ping).unwrap();
    }
}

#[test]
fn ephemeral_of_a_local_session_is_refused_without_upgrading() {
    let mut members = ensemble(false);
    for server in members.ids() {
        let client = members.client(server, TIMEOUT_MS);
        let refused = Err(ErrorCode::EphemeralOnLocalSession);
        assert_eq!(members.ask(&client, ephemeral("/e")), refused);
        assert_eq!(members.ask(&client, ephemeral("no path")), refused, "before the path is looked at");
        let multi = Request::Multi(vec![
            create(format!("/m{server}"), 1, CreateKind::Persistent),
            create("/e".to_owned(), 1, CreateKind::Ephemeral),
        ]);
        let Ok(Reply::Multi(results)) = members.ask(&client, multi) else { panic!("a multi answers for each") };
        let code = |at: usize| format!("{:?}", results[at]);
        assert!(code(1).contains("EphemeralOnLocalSession"), "{results:?}");
        assert_eq!(owner(&mut members, &client, &format!("/m{server}")), None);
        members.ask(&client, born(&format!("/a{server}"))).unwrap();
        assert_eq!(members.status(server).local_sessions, 1);
    }
}

#[test]
fn first_ephemeral_makes_the_session_global_with_its_id() {
    let mut members = ensemble(true);
    for server in members.ids() {
        let mut client = members.client(server, TIMEOUT_MS);
        let sessions = |members: &Members| members.ids().map(|at| members.server(at).sessions()).collect::<Vec<_>>();
        let before = sessions(&members);
        // The whole pipeline is on the wire before anything happens.
        members.send(&client, 1, born(&format!("/a{server}")));
        members.send(&client, 2, ephemeral(&format!("/e{server}")));
        members.send(&client, 3, get(format!("/e{server}")));
        members.send(&client, 4, write(&format!("/e{server}")));
        members.settle();
        let told = members.told(&client);
        let xids: Vec<i32> = told
            .iter()
            .filter_map(|told| if let Told::Reply(xid, _, Ok(_)) = told { Some(*xid) } else { None })
            .collect();
        assert_eq!(xids, [1, 2, 3, 4], "{told:?}");
        assert_eq!(owner(&mut members, &client, &format!("/e{server}")), Some(client.session));
        for (at, before) in members.ids().zip(before).collect::<Vec<_>>() {
            let own = usize::from(at != server);
            assert_eq!(members.server(at).sessions(), before + own, "server {at} knows it once");
        }
        // It is like any global session now.
        let other = members.ids().find(|&other| other != server).unwrap();
        members.come_back(&mut client, other, 0);
        members.settle();
        assert!(matches!(members.told(&client)[..], [Told::Connected(reply)] if reply.session == client.session));
        members.ask(&client, write(&format!("/e{server}"))).unwrap();
        members.leave(&client);
        members.advance(u64::from(TIMEOUT_MS as u32) + 2000);
        let watcher = members.client(server, TIMEOUT_MS);
        assert_eq!(owner(&mut members, &watcher, &format!("/e{server}")), None, "its silence ended it");
    }
}

#[test]
fn session_stays_global_when_the_create_fails() {
    let mut members = ensemble(true);
    let learner = members.learners()[0];
    let client = members.client(learner, TIMEOUT_MS);
    assert_eq!(members.ask(&client, ephemeral("/no/parent")), Err(ErrorCode::NoNode));
    assert_eq!((members.status(learner).local_sessions, members.status(learner).sessions), (0, 1));
    members.ask(&client, born("/a")).unwrap();
    assert_eq!(members.ask(&client, Request::CloseSession), Ok(Reply::Empty));
    assert!(members.ids().all(|server| members.server(server).sessions() == 0), "its end was an entry");
}

#[test]
fn silent_local_session_expires_at_its_server() {
    let mut members = ensemble(true);
    for server in members.ids() {
        let (silent, lively) = (members.client(server, TIMEOUT_MS), members.client(server, TIMEOUT_MS));
        for _ in 0..7 {
            members.advance(1000);
            members.ask(&lively, Request::Ping).unwrap();
        }
        assert!(members.is_just_closed(&silent));
        assert_eq!(members.server(server).sessions(), 1);
        let mut back = silent;
        members.come_back(&mut back, server, 0);
        members.settle();
        assert!(matches!(members.told(&back)[..], [Told::Connected(reply), Told::Closed] if reply.timeout_ms == 0));
        members.ask(&lively, Request::CloseSession).unwrap();
    }
}

/// The server closes every connection and lets no client in, so no client can be heard.
#[test]
fn local_session_survives_the_time_in_which_its_server_is_stale() {
    // In the shorter time, the session's deadline would come soon after the server is well again.
    for (is_disk, stale_ms) in [(true, 5500), (true, 40_000), (false, 5500), (false, 40_000)] {
        let mut members = ensemble(true);
        let (leader, server) = (members.leader(), members.learners()[0]);
        let (mut client, writer) = (members.client(server, TIMEOUT_MS), members.client(leader, 60_000));
        if is_disk {
            members.hanging.insert(server);
        } else {
            members.hold(leader, server);
        }
        members.ask(&writer, born("/a")).unwrap();
        members.advance(stale_ms);
        assert!(members.is_just_closed(&client), "its state is too old to show");
        members.hanging.clear();
        members.release(leader, server);
        members.advance(u64::from(TIMEOUT_MS as u32) - 1000);
        members.come_back(&mut client, server, 0);
        members.settle();
        let told = members.told(&client);
        assert!(matches!(told[..], [Told::Connected(reply)] if reply.session == client.session), "{told:?}");
        members.leave(&client);
        members.advance(u64::from(TIMEOUT_MS as u32) + 1000);
        assert_eq!(members.status(server).local_sessions, 0, "its client can be heard again, and is silent");
    }
}

#[test]
fn returning_local_session_waits_for_writes_of_its_former_connection() {
    let mut members = ensemble(true);
    for server in [members.leader(), members.learners()[0]] {
        let mut client = members.client(server, TIMEOUT_MS);
        let path = format!("/r{server}");
        members.ask(&client, born(&path)).unwrap();
        members.hanging.extend(members.ids().collect::<Vec<_>>());
        members.send(&client, 1, Request::Write(set(path.clone(), 9)));
        members.settle();
        members.come_back(&mut client, server, 0);
        members.send(&client, 2, get(path.as_str()));
        members.settle();
        assert!(matches!(members.told(&client)[..], [Told::Connected(_)]), "the read waits");
        members.hanging.clear();
        members.settle();
        members.advance(10);
        let told = members.told(&client);
        assert!(
            matches!(&told[..], [Told::Reply(2, _, Ok(Reply::Data(Some(data), _)))] if data.len() == 9),
            "{told:?}"
        );
    }
}

/// Lets `server` and its leader lose their link and find each other again within the epoch. The
/// leader keeps its entries, and commits nothing.
fn rejoin(members: &mut Members, leader: u8, server: u8) {
    let epoch = members.server(leader).zab().epoch();
    members.unlink(leader, server);
    members.hanging.insert(server);
    members.link(leader, server);
    members.advance(200);
    assert!(members.server(leader).leads() && members.server(leader).zab().epoch() == epoch);
}

#[test]
fn returning_local_session_sees_its_write_after_its_server_rejoined_the_leader() {
    let mut members = ensemble(true);
    let (leader, learners) = (members.leader(), members.learners());
    let server = learners[0];
    let mut client = members.client(server, 20_000);
    members.ask(&client, born("/r")).unwrap();
    members.hanging.insert(learners[1]);
    members.send(&client, 1, Request::Write(set("/r", 9)));
    members.deliver(server, leader);
    rejoin(&mut members, leader, server);
    members.come_back(&mut client, server, 0);
    members.send(&client, 2, get("/r"));
    members.settle();
    let told = members.told(&client);
    assert!(!told.iter().any(|told| matches!(told, Told::Reply(..))), "the write has no outcome here: {told:?}");
    members.hanging.clear();
    members.until_all_serve();
    members.come_back(&mut client, server, 0);
    let read = members.ask(&client, get("/r"));
    let Ok(Reply::Data(Some(data), stat)) = read else { panic!("{read:?}") };
    assert_eq!((data.len(), stat.version), (9, 1), "the write is done once");
}

#[test]
fn upgrade_is_proposed_once_although_its_server_rejoined_the_leader() {
    let mut members = ensemble(true);
    let (leader, learners) = (members.leader(), members.learners());
    let server = learners[0];
    let client = members.client(server, 20_000);
    members.hanging.insert(learners[1]);
    members.send(&client, 1, ephemeral("/e"));
    members.deliver(server, leader);
    rejoin(&mut members, leader, server);
    members.hanging.clear();
    members.until_all_serve();
    members.advance(100);
    let told = members.told(&client);
    assert!(matches!(&told[..], [Told::Reply(1, _, Ok(_))]), "{told:?}");
    assert_eq!(owner(&mut members, &client, "/e"), Some(client.session));
    assert!(members.ids().all(|id| members.server(id).sessions() == 1));
}

/// The learner keeps its leader, so what it asked stays asked.
#[test]
fn upgrade_is_proposed_once_although_its_server_ceases_to_vote_meanwhile() {
    let mut members = ensemble(true);
    let (leader, learners) = (members.leader(), members.learners());
    let server = learners[0];
    let client = members.client(server, 20_000);
    members.hold(server, leader);
    members.send(&client, 1, ephemeral("/e"));
    let kinds = [(leader, Kind::Voter), (learners[1], Kind::Voter), (server, Kind::Observer)];
    let kinds = kinds.map(|(server, kind)| (ServerId::new(server).unwrap(), kind));
    members.command(leader, |leader, now| leader.reconfigure(now, &kinds)).unwrap();
    members.settle();
    assert!(matches!(members.server(server).zab().role(), Role::Observing(_)) && members.server(server).is_serving());
    members.release(server, leader);
    members.settle();
    let told = members.told(&client);
    assert!(matches!(&told[..], [Told::Reply(1, _, Ok(_))]), "{told:?}");
    let forwards = members.said.iter().filter(|said| matches!(said.2, PeerMessage::Forward { .. })).count();
    assert_eq!(forwards, 2, "the upgrade and the write");
}

/// Few runs of the simulator let a server return to its leader with a write in flight.
#[cfg(feature = "mutations")]
#[test]
#[should_panic(expected = "the write is done once")]
fn serves_too_early_mutation_does_a_write_in_flight_twice() {
    zoolet_zab::mutation::set(Some(zoolet_zab::Mutation::ServesTooEarly));
    returning_local_session_sees_its_write_after_its_server_rejoined_the_leader();
}

/// The old leader's proposal of the upgrade is cut off. The request asks again under the next one.
#[test]
fn upgrade_lost_with_its_leader_is_asked_again() {
    let mut members = ensemble(true);
    let (leader, learners) = (members.leader(), members.learners());
    let client = members.client(learners[0], 20_000);
    learners.iter().for_each(|&learner| members.hold(leader, learner));
    members.send(&client, 1, ephemeral("/e"));
    members.settle();
    members.stop(leader);
    members.release_all();
    for _ in 0..100 {
        members.advance(10);
    }
    let told = members.told(&client);
    assert!(matches!(&told[..], [Told::Reply(1, _, Ok(_))]), "{told:?}");
    assert_eq!(owner(&mut members, &client, "/e"), Some(client.session));
    assert_eq!(members.status(learners[0]).local_sessions, 0);
}

/// The upgrade is committed, but the learner hears of that only from the next leader.
#[test]
fn upgrade_that_survives_its_leader_happens_once() {
    let mut members = ensemble(true);
    let (leader, learners) = (members.leader(), members.learners());
    let client = members.client(learners[0], 20_000);
    members.send(&client, 1, ephemeral("/e"));
    members.deliver(learners[0], leader);
    // The leader's proposal reaches both learners, and no ack returns.
    learners.iter().for_each(|&learner| members.hold(learner, leader));
    members.settle();
    members.stop(leader);
    members.release_all();
    members.until_all_serve();
    members.advance(100);
    let told = members.told(&client);
    assert!(matches!(&told[..], [Told::Reply(1, _, Ok(_))]), "{told:?}");
    assert_eq!(owner(&mut members, &client, "/e"), Some(client.session));
    assert!(learners.iter().all(|&server| members.server(server).sessions() == 1));
}

#[test]
fn local_sessions_count_against_sessions_max() {
    let settings = Settings { local_sessions: true, local_sessions_upgrade: true, ..Settings::default() };
    let mut members = Members::born_with(3, settings, Limits { sessions_max: 2, ..Limits::default() });
    let learner = members.learners()[0];
    let (first, _second) = (members.client(learner, TIMEOUT_MS), members.client(learner, TIMEOUT_MS));
    let third = members.connect(learner, zoolet_model::ConnectRequest::for_new_session(TIMEOUT_MS));
    assert!(matches!(members.take(learner, third)[..], [Told::Closed]));
    // The leader has two sessions of its own, and no room for another.
    let leader = members.leader();
    let (own, _) = (members.client(leader, TIMEOUT_MS), members.client(leader, TIMEOUT_MS));
    assert_eq!(members.ask(&first, ephemeral("/e")), Err(ErrorCode::SystemError));
    assert_eq!(members.status(learner).local_sessions, 2, "it stays local");
    members.ask(&own, Request::CloseSession).unwrap();
    members.ask(&first, ephemeral("/e")).unwrap();
}

#[test]
fn global_sessions_of_other_servers_end_local_ones_beyond_sessions_max() {
    let settings = Settings { local_sessions: true, local_sessions_upgrade: true, ..Settings::default() };
    let mut members = Members::born_with(3, settings, Limits { sessions_max: 3, ..Limits::default() });
    let (learner, leader) = (members.learners()[0], members.leader());
    let (first, second) = (members.client(learner, TIMEOUT_MS), members.client(learner, TIMEOUT_MS));
    // The first client has the most time left.
    members.advance(1);
    members.ask(&first, Request::Ping).unwrap();
    // They begin at the leader's process, so they are global, and the learner gets them as well.
    let globals: Vec<_> = (0..2).map(|_| members.client_in_process(leader, TIMEOUT_MS)).collect();
    assert_eq!((members.status(learner).sessions, members.status(learner).local_sessions), (3, 1));
    assert!(matches!(members.told(&second)[..], [Told::Closed]));
    let status = members.status(learner);
    assert_eq!((status.local_sessions_displaced, status.sessions_expired), (1, 0));
    members.ask(&first, born("/a")).unwrap();
    for global in &globals {
        members.ask(global, Request::CloseSession).unwrap();
    }
    assert_eq!(members.status(learner).sessions, 1);
}

/// The session that becomes global has the least time left.
#[test]
fn session_that_becomes_global_is_not_ended_to_make_room() {
    let settings = Settings { local_sessions: true, local_sessions_upgrade: true, ..Settings::default() };
    let mut members = Members::born_with(3, settings, Limits { sessions_max: 3, ..Limits::default() });
    let (learner, leader) = (members.learners()[0], members.leader());
    let (upgrading, other) = (members.client(learner, TIMEOUT_MS), members.client(learner, TIMEOUT_MS));
    members.advance(1);
    members.ask(&other, Request::Ping).unwrap();
    members.hold(learner, leader);
    members.send(&upgrading, 1, ephemeral("/e"));
    members.settle();
    for _ in 0..2 {
        members.client_in_process(leader, TIMEOUT_MS);
    }
    assert!(matches!(members.told(&other)[..], [Told::Closed]));
    members.release_all();
    members.settle();
    let told = members.told(&upgrading);
    assert!(matches!(&told[..], [Told::Reply(1, _, Ok(_))]), "{told:?}");
    assert_eq!((members.status(learner).sessions, members.status(learner).local_sessions), (3, 0));
}

#[test]
fn embedded_sessions_stay_global() {
    let mut members = ensemble(true);
    let client = members.client_in_process(1, TIMEOUT_MS);
    assert!(!client.session.began_local());
}
