//! Three nodes in one process, with real sockets and disks: guarantees for a daemon that is a
//! member.

#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::scratch::Scratch;
use crate::statuses::until;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use zoolet::config::{Ensemble, Server, SiteKey, TrustSource};
use zoolet::recipes::{ZnodeCache, ZnodeChange};
use zoolet::status::{Alarm, AlarmKind, ServerRole, Summary};
use zoolet::{Config, Consistency, CreateOptions, ErrorCode, ErrorKind, Node, Session, SessionOptions};
use zoolet::{SessionState, ShutdownError, Version, Wait, path};

const PATIENCE: Duration = Duration::from_secs(30);
/// The longest session timeout of a node with the default settings. It exceeds `PATIENCE`.
const TIMEOUT_MAX: Duration = Duration::from_secs(40);

/// A site of three members, each with a directory.
struct Site {
    scratch: Scratch,
    members: Vec<Server>,
}

impl Site {
    fn new() -> Self {
        // All at once, so that the ports differ.
        let ports: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = ports.iter().map(|port| port.local_addr().unwrap().to_string());
        let members = (1..).zip(addresses).map(|(id, address)| Server::new(id, &address)).collect();
        Self { scratch: Scratch::new(), members }
    }

    fn start(&self, id: u8) -> Node {
        self.start_with(id, |_| ())
    }

    fn start_with(&self, id: u8, change: impl FnOnce(&mut Config)) -> Node {
        let mut config = Config::new(self.scratch.join(&id.to_string()));
        config.server_id = id;
        config.ensemble = Some(Ensemble::new(self.members.clone(), TrustSource::Loopback));
        change(&mut config);
        Node::start(config).unwrap()
    }
}

fn session(node: &Node) -> Session {
    node.session().wait_timeout(PATIENCE).unwrap().unwrap()
}

fn wait_until_served(nodes: &[Node]) {
    for node in nodes {
        node.ready().wait_timeout(PATIENCE).expect("serves").unwrap();
    }
}

fn role(node: &Node) -> &'static str {
    node.status().wait_timeout(PATIENCE).unwrap().unwrap().server.role
}

#[test]
fn three_nodes_serve_one_tree_and_survive_losing_the_leader() {
    let site = Site::new();
    let mut nodes: Vec<_> = (1..=3).map(|id| site.start(id)).collect();
    wait_until_served(&nodes);
    session(&nodes[0]).create(path!("/door"), "closed").wait().unwrap();
    let leader = nodes.iter().position(|node| role(node) == "leader").unwrap();
    // Dropped without a shutdown, as in a power loss.
    drop(nodes.remove(leader));
    let until = Instant::now() + PATIENCE;
    while let Err(error) = session(&nodes[0]).set(path!("/door"), "open", Version::Any).wait() {
        assert!(Instant::now() < until, "{error}");
    }
    let seen = session(&nodes[1]);
    seen.sync().wait().unwrap();
    assert_eq!(seen.get(path!("/door")).wait().unwrap().text(), Some("open"));
}

#[test]
fn follower_streams_its_role_its_voters_and_their_alarms() {
    let site = Site::new();
    let mut nodes: Vec<_> = (1..=3).map(|id| site.start(id)).collect();
    let mut stream = nodes[0].watch_status();
    let whole = |status: &Summary| status.is_serving() && status.quorum.heard.len() == 3 && status.alarms.is_empty();
    let leader = until(&mut stream, whole).leader.expect("it serves").as_u8();
    let watcher = if leader == 1 { 2_u8 } else { 1 };
    let mut stream = nodes[usize::from(watcher) - 1].watch_status();
    let first = until(&mut stream, whole);
    assert_eq!((first.role, first.quorum.needed()), (ServerRole::Follower, 2));
    drop(nodes.remove(usize::from(leader) - 1));
    let is_lost = |alarm: &Alarm| {
        alarm.kind == AlarmKind::NotReached && alarm.server.is_some_and(|server| server.as_u8() == leader)
    };
    let after = until(&mut stream, |status| status.is_serving() && status.alarms.iter().any(is_lost));
    assert!(after.leader.is_some_and(|now| now.as_u8() != leader) && after.quorum.is_heard());
    assert_eq!(after.quorum.heard.len(), 2);
    nodes.push(site.start(leader));
    until(&mut stream, whole);
}

#[test]
fn site_key_in_memory_admits_its_servers_and_no_others() {
    let site = Site::new();
    let (key, other) = (SiteKey::generate().unwrap(), SiteKey::generate().unwrap());
    let start = |id: u8, key: &SiteKey| {
        site.start_with(id, |config| config.ensemble.as_mut().unwrap().trust = TrustSource::SiteKey(key.clone()))
    };
    let stranger = start(3, &other);
    let mut nodes = vec![start(1, &key), start(2, &key)];
    let until = Instant::now() + PATIENCE;
    let refusal = |node: &Node| {
        let peers = node.status().wait_timeout(PATIENCE).unwrap().unwrap().server.peers;
        peers.into_iter().find_map(|peer| peer.refusal.filter(|why| why.contains("site key")))
    };
    while refusal(&stranger).is_none() {
        assert!(Instant::now() < until, "the stranger was not refused");
    }
    // The ensemble begins only when all its voters have met.
    assert_eq!((role(&nodes[0]), role(&stranger)), ("", ""));
    drop(stranger);
    nodes.push(start(3, &key));
    wait_until_served(&nodes);
}

/// A daemon on a gateway goes on reading its configuration after the gateway lost its site.
#[test]
fn session_on_a_member_without_a_leader_reads_and_ends_at_the_next_leader() {
    let site = Site::new();
    let start = |id: u8| site.start_with(id, |config| config.settings.read_only = true);
    let mut nodes: Vec<_> = (1..=3).map(start).collect();
    wait_until_served(&nodes);
    let gateway = nodes.remove(2);
    let options = SessionOptions { timeout: Some(TIMEOUT_MAX), read_only: true, ..SessionOptions::default() };
    let reader = gateway.session_with(&options).wait_timeout(PATIENCE).unwrap().unwrap();
    let id = reader.id();
    reader.create(path!("/config"), "old").wait().unwrap();
    reader.create_with(path!("/lock"), None, &CreateOptions::ephemeral()).wait().unwrap();
    assert_eq!(reader.outdated_for(), None);
    drop(nodes);
    let began = Instant::now();
    let mut states = reader.states();
    while states.next().wait_timeout(PATIENCE).expect("it reads") != Some(SessionState::ReadOnly) {}
    assert_eq!(reader.get(path!("/config")).wait().unwrap().text(), Some("old"));
    assert_eq!(reader.id(), id, "its session is the one that waits for a leader");
    let age = reader.outdated_for().unwrap();
    assert!((Duration::from_secs(1)..began.elapsed() + Duration::from_secs(5)).contains(&age), "{age:?}");
    let refused = reader.set(path!("/config"), "new", Version::Any).wait();
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::NotReadOnly));
    // A session that begins now reads too.
    let late = gateway.session_with(&options).wait_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(late.state(), SessionState::ReadOnly);
    assert_eq!(late.get(path!("/config")).wait().unwrap().text(), Some("old"));
    // A cache that begins now reads too, and goes on over the same session.
    let mut cache = ZnodeCache::new(late.clone(), path!("/config"));
    let mut read = || loop {
        if let ZnodeChange::Now(now) = cache.next().wait_timeout(PATIENCE).expect("it reads").unwrap() {
            return now.unwrap().text().unwrap().to_owned();
        }
    };
    assert_eq!(read(), "old");
    // Each connection learns the age anew, with the delay of its thread.
    assert!(late.reading(Consistency::Local).outdated_for().unwrap() >= Duration::from_secs(1));
    // The next leader gives the session its timeout anew. Its end comes before.
    assert_eq!(reader.close().wait().unwrap_err().kind(), ErrorKind::Suspended);
    let back = start(1);
    let mut states = late.states();
    while states.next().wait_timeout(PATIENCE).expect("there is a leader") != Some(SessionState::Connected) {}
    let seen = session(&back);
    let until = Instant::now() + PATIENCE;
    while seen.exists(path!("/lock")).wait().unwrap().is_some() {
        assert!(Instant::now() < until, "its end was not sent");
    }
    late.set(path!("/config"), "new", Version::Any).wait().unwrap();
    assert_eq!(read(), "new");
    // Without a leader, a shutdown does not wait for the end of a session that only reads.
    drop(back);
    while states.next().wait_timeout(PATIENCE).expect("it reads") != Some(SessionState::ReadOnly) {}
    gateway.shutdown(PATIENCE).unwrap();
}

fn create_lock(session: &Session) {
    session.create_with(path!("/lock"), None, &CreateOptions::ephemeral()).wait().unwrap();
}

/// Returns a node without a leader, and its session, which owns `/lock`.
fn holder_without_a_leader(site: &Site) -> (Node, Session) {
    let mut nodes: Vec<_> = (1..=3).map(|id| site.start(id)).collect();
    wait_until_served(&nodes);
    let (node, options) = (nodes.remove(2), SessionOptions { timeout: Some(TIMEOUT_MAX), ..SessionOptions::default() });
    let session = node.session_with(&options).wait_timeout(PATIENCE).unwrap().unwrap();
    create_lock(&session);
    (node, session)
}

fn wait_for_state(session: &Session, state: SessionState) {
    let mut states = session.states();
    loop {
        let next = states.next().wait_timeout(PATIENCE).expect("it comes");
        match next {
            Some(next) if next == state => return,
            Some(_) => {}
            None => panic!("not {state:?}, but {:?}", session.state()),
        }
    }
}

/// Regression: the server had closed the session's connection, and the shutdown missed the session.
#[test]
fn shutdown_without_a_leader_ends_sessions_at_the_next_leader() {
    let site = Site::new();
    let (node, session) = holder_without_a_leader(&site);
    wait_for_state(&session, SessionState::Suspended);
    let stopping = node.shutdown_async(PATIENCE);
    // It ends for its owner first.
    wait_for_state(&session, SessionState::Closed);
    let back = site.start(1);
    assert_eq!(stopping.wait_timeout(PATIENCE).unwrap(), Ok(()));
    // Not the third server again: its next process would end the sessions of the former one.
    let nodes = [back, site.start(2)];
    wait_until_served(&nodes);
    let seen = self::session(&nodes[0]);
    seen.sync().wait().unwrap();
    assert_eq!(seen.exists(path!("/lock")).wait().unwrap(), None);
}

/// Regression: the shutdown was clean, although the session's end was not sent.
#[test]
fn shutdown_without_a_leader_is_late_while_a_session_owns_ephemerals() {
    let site = Site::new();
    let (node, session) = holder_without_a_leader(&site);
    wait_for_state(&session, SessionState::Suspended);
    assert_eq!(node.shutdown(Duration::from_secs(1)), Err(ShutdownError::Late));
    // The shutdown begins while the server still keeps its connections, and goes on after that.
    let site = Site::new();
    let (node, session) = holder_without_a_leader(&site);
    assert_eq!(node.shutdown(Duration::from_secs(6)), Err(ShutdownError::Late));
    assert_eq!(session.state(), SessionState::Closed);
}

/// An embedder's daemon need not wait for a leader if it has nothing to free.
#[test]
fn shutdown_without_a_leader_does_not_wait_for_sessions_without_ephemerals() {
    let site = Site::new();
    let mut nodes: Vec<_> = (1..=3).map(|id| site.start(id)).collect();
    wait_until_served(&nodes);
    let node = nodes.remove(2);
    let session = session(&node);
    session.create(path!("/kept"), "1").wait().unwrap();
    drop(nodes);
    wait_for_state(&session, SessionState::Suspended);
    let began = Instant::now();
    node.shutdown(PATIENCE * 2).unwrap();
    assert!(began.elapsed() < PATIENCE, "it waited for half of its deadline");
}

#[test]
fn largest_client_request_is_replicated_between_servers() {
    // Small and large frames for clients: messages between servers have other limits.
    for (frame_bytes_max, writes) in [(4096, 200), (1 << 20, 3)] {
        let site = Site::new();
        let start = |id: u8| site.start_with(id, |config| config.limits.frame_bytes_max = frame_bytes_max);
        let mut nodes: Vec<_> = (1..=3).map(start).collect();
        wait_until_served(&nodes);
        let largest = vec![b'x'; frame_bytes_max as usize - 100];
        let follower = nodes.iter().position(|node| role(node) == "follower").unwrap();
        session(&nodes[follower]).create(path!("/largest"), &largest[..]).wait().unwrap();
        // A member that was away receives many of them at once.
        drop(nodes.remove(follower));
        let writer = session(&nodes[0]);
        for _ in 0..writes {
            writer.set(path!("/largest"), &largest[..], Version::Any).wait().unwrap();
        }
        let back = start(follower as u8 + 1);
        back.ready().wait_timeout(PATIENCE).expect("serves").unwrap();
        let seen = session(&back);
        seen.sync().wait().unwrap();
        let read = seen.get(path!("/largest")).wait().unwrap();
        assert_eq!((read.bytes(), read.stat.version), (&largest[..], writes));
    }
}

#[test]
fn member_with_a_damaged_log_is_repaired_by_its_peers() {
    let site = Site::new();
    // Small segments, none of which a checkpoint removes.
    let start = |id: u8| {
        site.start_with(id, |config| {
            config.limits.frame_bytes_max = 16 << 10;
            config.limits.log_segment_bytes = 64 << 10;
            config.limits.log_segments = 64;
        })
    };
    let mut nodes: Vec<_> = (1..=3).map(start).collect();
    wait_until_served(&nodes);
    let data = vec![b'x'; 4000];
    let writer = session(&nodes[0]);
    writer.create(path!("/much"), &data[..]).wait().unwrap();
    for _ in 0..100 {
        writer.set(path!("/much"), &data[..], Version::Any).wait().unwrap();
    }
    let victim = nodes.remove(2);
    let directory = victim.data().to_owned();
    drop(victim);
    damage_the_middle(&directory);
    let back = start(3);
    back.ready().wait_timeout(PATIENCE).expect("serves").unwrap();
    let seen = session(&back);
    seen.sync().wait().unwrap();
    let found = seen.get(path!("/much")).wait().unwrap();
    assert_eq!((found.bytes(), found.stat.version), (&data[..], 100));
    // The member counts again: with another member away, nothing is committed without it.
    drop(nodes.remove(0));
    let until = Instant::now() + PATIENCE;
    while let Err(error) = session(&back).set(path!("/much"), None, Version::Any).wait() {
        assert!(Instant::now() < until, "{error}");
    }
}

/// Overwrites a block in the middle of the log's entries: the first block of the fourth segment.
fn damage_the_middle(directory: &Path) {
    let file = fs::OpenOptions::new().write(true).open(directory.join("seg-03.log")).unwrap();
    file.write_all_at(&[0xA5; 4096], 0).unwrap();
}
