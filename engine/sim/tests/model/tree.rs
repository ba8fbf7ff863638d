//! The real machine against the naive reference.
//!
//! Every answer, watch event and header must be equal, in order, for each connection.
//!
//! Clients send without waiting. The machine answers as soon as its log, base and checkpoints
//! allow. At quiet moments the reference replays the same requests in the order that the machine
//! chose (the zxids). It must have sent the same messages to the same connections.
//!
//! `MODEL_SEED=n` runs one seed, `MODEL_SEEDS=n` runs n seeds.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use zoolet_machine::txn::{self, Header, Txn};
use zoolet_machine::{ConnId, Limits, Settings};
use zoolet_model::{ConnectRequest, ErrorCode, Reply, Request, SessionId, SessionSecret, Zxid};
use zoolet_sim::{
    machine::SPARE_CACHE_BYTES,
    one_server::{Conditions, Entry, Sent, World},
    reference::{COUNTED_AT_ONCE, RefOutput, Reference, digest_of},
    workload::{SUPER_USER, Workload},
};

const CLIENTS: usize = 4;
const STEPS: u64 = 400;

/// A program that keeps one session over several connections.
#[derive(Default)]
struct Client {
    session: Option<(i64, SessionSecret)>,
    conn: Option<ConnId>,
    last_zxid: i64,
}

/// A connection, from its first message until all its effects are compared.
#[derive(Default)]
struct Connection {
    session: i64,
    /// Requests not replayed to the reference yet, oldest first.
    sent: VecDeque<Asked>,
    /// The newest zxid in any message that the connection received.
    newest: i64,
    /// Zxid of the state and error of each reply to `sent`.
    replies: VecDeque<(i64, Option<ErrorCode>)>,
    expected: Vec<Sent>,
    actual: Vec<Sent>,
    /// The server did not end the connection, so answers may be missing.
    lost: bool,
}

struct Asked {
    xid: i32,
    request: Request,
    at_ms: u64,
}

struct SessionLife {
    /// The timeout in the last entry about the session. It survives restarts.
    timeout_ms: u64,
    /// When the owner gave a sign of life or the server started.
    heard_ms: Vec<u64>,
}

impl SessionLife {
    /// Returns how long the session had been silent.
    fn silent_ms(&self, at_ms: u64) -> u64 {
        at_ms - self.heard_ms.iter().copied().filter(|&heard_ms| heard_ms < at_ms).max().unwrap_or(0)
    }
}

struct Run {
    seed: u64,
    world: World,
    reference: Reference,
    workload: Workload,
    clients: Vec<Client>,
    connections: BTreeMap<ConnId, Connection>,
    lives: BTreeMap<i64, SessionLife>,
    /// Sessions that began without an address. They end with the process in which they began.
    of_processes: BTreeSet<i64>,
    /// Number of entries replayed to the reference.
    replayed: usize,
    attaching: Option<(ConnId, i64, Option<IpAddr>)>,
    /// The log stalled since the last [`Run::settle`]. A stall closes connections whose writes
    /// wait.
    stalled: bool,
    /// Sessions own many ephemerals and end often.
    short_lives: bool,
    /// Writes may be refused. If a connection is lost, it is unknown which of its writes were
    /// refused.
    refuses: bool,
    next_conn: u64,
    next_xid: i32,
    trace: Vec<String>,
}

impl Drop for Run {
    #[allow(clippy::print_stderr, reason = "what to repeat a failure with")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.trace.len().saturating_sub(80);
            eprintln!("MODEL_SEED={}; the last of {} steps:", self.seed, self.trace.len());
            self.trace[from..].iter().for_each(|line| eprintln!("  {line}"));
        }
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut workload = Workload::new(seed);
        let conditions = conditions(&mut workload);
        let short_lives = seed % 3 == 2;
        if short_lives {
            workload.mostly_ephemeral();
        }
        let refuses = conditions.checkpoint_fails_one_in > 0;
        let mut reference = Reference::new(Some(digest_of(SUPER_USER)));
        reference.enforce_quotas();
        let mut world = World::new(conditions, seed);
        world.start();
        Self {
            seed,
            world,
            reference,
            workload,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            connections: BTreeMap::new(),
            lives: BTreeMap::new(),
            of_processes: BTreeSet::new(),
            replayed: 0,
            attaching: None,
            stalled: false,
            short_lives,
            refuses,
            next_conn: 0,
            next_xid: 0,
            trace: Vec::new(),
        }
    }

    fn note(&mut self, mut line: String) {
        if let Some((cut, _)) = line.char_indices().nth(240) {
            line.truncate(cut);
            line.push_str(" ...");
        }
        self.trace.push(format!("{} ms: {line}", self.world.now().mono_ms));
    }

    // Actions of clients.

    fn step(&mut self) {
        match self.workload.random().below(100) {
            0..=5 if self.short_lives => {
                let client = self.any_client();
                self.ask(client, Request::CloseSession);
            }
            0..=69 => self.burst(),
            70..=76 => self.settle(),
            77..=80 => {
                let client = self.any_client();
                self.lose(client);
            }
            81..=86 => {
                let client = self.any_client();
                self.settle();
                self.connect(client);
            }
            87..=89 => {
                // Nothing else is in flight: an identity decides the answers to other requests.
                self.settle();
                let client = self.any_client();
                let request = self.workload.auth();
                self.ask(client, request);
                self.settle();
            }
            90 => {
                self.settle();
                let client = self.any_client();
                let request = self.workload.last_request();
                self.ask(client, request);
                self.settle();
            }
            91 => {
                let client = self.any_client();
                self.ask(client, Request::CloseSession);
            }
            92..=96 => {
                let milliseconds = self.workload.random().below(1500);
                self.note(format!("{milliseconds} ms pass"));
                self.world.run_for(milliseconds);
            }
            97 => self.look_at_everything(),
            98 if self.workload.random().one_in(3) => self.crash(),
            98 => {
                let milliseconds = 1 + self.workload.random().below(300);
                self.note(format!("the log stalls for {milliseconds} ms"));
                self.stalled = true;
                self.world.stall_log(milliseconds);
            }
            _ => {
                let milliseconds = self.workload.random().below(6000);
                self.note(format!("{milliseconds} ms pass"));
                self.world.run_for(milliseconds);
            }
        }
    }

    fn any_client(&mut self) -> usize {
        self.workload.random().below(CLIENTS as u64) as usize
    }

    fn burst(&mut self) {
        for _ in 0..=self.workload.random().below(10) {
            let client = self.any_client();
            if self.clients[client].conn.is_none() {
                if self.workload.random().one_in(4) {
                    self.settle();
                    self.connect(client);
                }
                continue;
            }
            let request = self.workload.request(self.clients[client].last_zxid);
            self.ask(client, request);
            let pause_ms = self.workload.random().below(3);
            if pause_ms < 2 {
                self.world.run_for(pause_ms);
            }
        }
    }

    fn ask(&mut self, client: usize, request: Request) {
        let Some(conn) = self.clients[client].conn.filter(|&conn| self.world.is_open(conn)) else { return };
        self.next_xid += 1;
        let xid = self.next_xid;
        self.note(format!("{conn:?} asks {xid}: {request:?}"));
        let connection = self.connections.get_mut(&conn).expect("a client's connection is known");
        connection.sent.push_back(Asked { xid, request: request.clone(), at_ms: self.world.now().mono_ms });
        self.hear(connection_session(&self.connections, conn));
        let closes = request == Request::CloseSession;
        self.world.request(conn, xid, request);
        if closes {
            // Nothing may follow a close.
            self.clients[client].conn = None;
            self.clients[client].session = None;
        }
    }

    fn hear(&mut self, session: i64) {
        if let Some(life) = self.lives.get_mut(&session) {
            life.heard_ms.push(self.world.now().mono_ms);
        }
    }

    fn lose(&mut self, client: usize) {
        if self.refuses {
            self.settle();
        }
        let Some(conn) = self.clients[client].conn.take() else { return };
        self.note(format!("{conn:?} is lost"));
        self.connections.get_mut(&conn).expect("a client's connection is known").lost = true;
        self.collect(conn);
        self.world.disconnect(conn);
    }

    /// Connects a client after everything is settled.
    ///
    /// If the session is on another connection, it moves to the new one.
    fn connect(&mut self, client: usize) {
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        let timeout_ms = 4000 + self.workload.random().below(4) as i32 * 1500;
        let wrong = self.workload.random().one_in(20);
        let session = self.clients[client].session;
        let (id, password) = match session {
            Some((id, secret)) => (id, if wrong { vec![1; 16] } else { secret.0.to_vec() }),
            None => (0, vec![0; 16]),
        };
        self.note(format!("{conn:?} connects client {client} to session {id:#x} for {timeout_ms} ms, wrong: {wrong}"));
        let request = ConnectRequest {
            last_zxid_seen: self.clients[client].last_zxid,
            timeout_ms,
            session: SessionId(id),
            password: Some(password.into()),
            read_only: Some(false),
        };
        let heard_ms = vec![self.world.now().mono_ms];
        let peers = [
            Some([127, 0, 0, 1].into()),
            Some([10, 0, 0, 1].into()),
            Some(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])),
            None,
        ];
        let peer = *self.workload.random().pick(&peers);
        self.world.connect(conn, peer, request);
        self.world.run_until_quiet();
        let mut sent = self.world.take(conn).into_iter();
        let Some(Sent::Connected(reply)) = sent.next() else { panic!("{conn:?}: no answer to connect") };
        self.note(format!("{conn:?} got {reply:?}"));
        if reply.session == SessionId(0) {
            assert!(wrong || !self.reference.sessions().any(|known| known == id), "a living session was refused");
            assert_eq!(sent.collect::<Vec<_>>(), [Sent::Close]);
            self.settle();
            if !wrong {
                self.clients[client].session = None;
            }
            return;
        }
        assert!(id == 0 || !wrong, "a wrong password opened a session");
        assert!(id == 0 || reply.session == SessionId(id));
        // If the log accepts nothing, a session keeps its timeout.
        let kept = self.lives.get(&id).map(|life| life.timeout_ms as i32);
        assert!(
            reply.timeout_ms == timeout_ms || Some(reply.timeout_ms) == kept,
            "{timeout_ms} ms were asked for: {reply:?}"
        );
        assert_eq!(sent.next(), None);
        self.lives.insert(reply.session.0, SessionLife { timeout_ms: reply.timeout_ms as u64, heard_ms });
        self.connections.insert(conn, Connection { session: reply.session.0, ..Connection::default() });
        self.attaching = Some((conn, reply.session.0, peer));
        self.settle();
        self.clients[client].session = Some((reply.session.0, reply.secret));
        self.clients[client].conn = Some(conn).filter(|&conn| self.world.is_open(conn));
        if self.workload.random().one_in(2) {
            let watches = self.workload.set_watches(self.clients[client].last_zxid);
            self.ask(client, Request::SetWatches(watches));
        }
    }

    fn crash(&mut self) {
        if self.refuses {
            self.settle();
        }
        let power = self.workload.random().one_in(2);
        self.note(format!("crash, power: {power}"));
        for conn in self.connections.keys().copied().collect::<Vec<_>>() {
            self.collect(conn);
            self.connections.get_mut(&conn).expect("just listed").lost = true;
        }
        self.clients.iter_mut().for_each(|client| client.conn = None);
        self.world.crash(power);
        let now_ms = self.world.now().mono_ms;
        self.lives.values_mut().for_each(|life| life.heard_ms.push(now_ms));
        // Settle at once: requests from before the crash are judged by the state of that time.
        self.settle();
    }

    /// Reads the whole tree through the machine as the super user.
    fn look_at_everything(&mut self) {
        self.settle();
        let client = self.any_client();
        if self.clients[client].conn.is_none() {
            self.connect(client);
        }
        let root = Request::Auth { scheme: Some("digest".into()), auth: Some(SUPER_USER.as_bytes().to_vec().into()) };
        self.ask(client, root);
        self.settle();
        let paths: Vec<String> = self.reference.tree().paths().map(Into::into).collect();
        for path in &paths {
            self.ask(client, Request::GetData { path: path.as_str().into(), watch: false });
            self.ask(client, Request::GetChildren { path: path.as_str().into(), watch: false, with_stat: true });
            self.ask(client, Request::GetAcl { path: path.as_str().into() });
            self.ask(client, Request::GetAllChildrenNumber { path: path.as_str().into() });
        }
        self.ask(client, Request::GetEphemerals { prefix: None });
        self.settle();
        let status = self.world.status();
        assert_eq!((status.outstanding, status.unapplied), (0, 0));
        for session in self.reference.sessions() {
            let life = &self.lives[&session];
            let silent_ms = life.silent_ms(self.world.now().mono_ms + 1);
            assert!(
                silent_ms <= life.timeout_ms + 2500,
                "session {session:#x} lives on after {silent_ms} ms of silence"
            );
        }
    }

    // The reference.

    /// Waits until nothing is in flight, then compares machine and reference.
    fn settle(&mut self) {
        self.world.run_until_quiet();
        for conn in self.connections.keys().copied().collect::<Vec<_>>() {
            self.collect(conn);
        }
        self.attach();
        let entries = self.world.entries()[self.replayed..].to_vec();
        self.replayed = self.world.entries().len();
        for (at, entry) in entries.iter().enumerate() {
            let zxid = entry.zxid.as_i64();
            self.run_local(zxid);
            let (header, txn) = txn::decode(&entry.payload).expect("the machine proposes what it understands");
            self.reference.pass_time(header.ensemble_ms);
            match txn {
                Txn::NoOp | Txn::Membership(_) => self.reference.pass_zxid(zxid),
                Txn::RenewSession { session, timeout_ms } => {
                    self.reference.pass_zxid(zxid);
                    if let Some(life) = self.lives.get_mut(&session.0) {
                        life.timeout_ms = u64::from(timeout_ms);
                    }
                }
                Txn::CreateSession { home, .. } => {
                    if home.is_some() {
                        self.of_processes.insert(zxid);
                    }
                    self.reference.create_session(zxid);
                    let heard_ms = vec![self.world.now().mono_ms];
                    // The connection crashed before it learned of its session.
                    self.lives.entry(zxid).or_insert(SessionLife { timeout_ms: 10_000, heard_ms });
                    self.attach();
                }
                Txn::CountUsage { path } => self.reference.count_usage(path, zxid),
                Txn::UpgradeSession { .. } => unreachable!("no session of this server is local"),
                Txn::Reap { path } => {
                    let outputs = self.reference.reap(path, zxid);
                    self.expect(outputs);
                }
                // Each process opens an epoch, and ends the sessions of the previous process.
                Txn::CloseSession { session }
                    if self.of_processes.contains(&session.0) && session.0 >> 40 < zxid >> 40 =>
                {
                    self.note(format!("session {:#x} ended with its process at {zxid:#x}", session.0));
                    let outputs = self.reference.expire(session.0, zxid);
                    self.expect(outputs);
                }
                Txn::CloseSession { session }
                    if ends_again(&entries[at + 1..], session)
                        || !self.asked_to_close(session.0, self.ms_of(header)) =>
                {
                    let silent_ms = self.lives[&session.0].silent_ms(self.ms_of(header));
                    let life = &self.lives[&session.0];
                    // Allow 20 ms: a client may still send on a connection that the server has
                    // already closed.
                    assert!(silent_ms + 20 >= life.timeout_ms, "session {session:?} expired after {silent_ms} ms");
                    self.note(format!("session {:#x} expires at {zxid:#x}", session.0));
                    let outputs = self.reference.expire(session.0, zxid);
                    self.expect(outputs);
                }
                Txn::CloseSession { session } | Txn::Write { session, .. } | Txn::Multi { session, .. } => {
                    self.run_ordered(session.0, zxid, header.wall_ms);
                }
            }
            self.compare_counts(entry.zxid);
        }
        self.run_local(i64::MAX);
        self.compare();
        self.compare_watches();
        self.stalled = false;
    }

    /// Compares the machine's counts after this entry with those of the reference.
    ///
    /// Entries for which the world did not record counts are skipped.
    fn compare_counts(&self, zxid: Zxid) {
        let Some(kept) = self.world.counts().get(&zxid) else { return };
        kept.agree(&self.reference.counts()).unwrap_or_else(|what| panic!("after {zxid:?}: {what}"));
    }

    fn compare_watches(&mut self) {
        let status = self.world.status();
        assert_eq!(status.watches as usize, self.reference.watches());
        assert_eq!(status.watched_paths as usize, self.reference.watched_paths());
        assert_eq!(status.watching_connections as usize, self.reference.watching_connections());
    }

    fn attach(&mut self) {
        let Some((conn, session, peer)) = self.attaching else { return };
        if self.reference.sessions().any(|known| known == session) {
            let outputs = self.reference.attach(conn, session, peer);
            self.expect(outputs);
            self.attaching = None;
        }
    }

    /// Collects the messages of a connection, and its replies in order.
    fn collect(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        for sent in self.world.take(conn) {
            if let Sent::Event(event) = &sent {
                connection.newest = connection.newest.max(event.zxid);
            }
            if let Sent::Reply { zxid, result, .. } = &sent {
                connection.newest = connection.newest.max(*zxid);
                // Some headers carry no zxid. Then the newest earlier zxid identifies the state.
                let seen = if *zxid > 0 { *zxid } else { connection.newest };
                connection.replies.push_back((seen, result.as_ref().err().copied()));
                for client in self.clients.iter_mut().filter(|client| client.conn == Some(conn)) {
                    client.last_zxid = client.last_zxid.max(*zxid);
                }
            }
            connection.lost |= self.stalled && sent == Sent::Close;
            connection.actual.push(sorted(sent));
        }
    }

    /// Replays all requests to the reference that were answered before `zxid`.
    fn run_local(&mut self, zxid: i64) {
        for conn in self.connections.keys().copied().collect::<Vec<_>>() {
            while let Some(connection) = self.connections.get_mut(&conn) {
                let Some(asked) = connection.sent.front() else { break };
                let ordered = Reference::is_ordered(&asked.request);
                match connection.replies.front() {
                    Some((seen, _)) if *seen >= zxid => break,
                    // A full server refuses a write without ordering it.
                    Some((_, Some(ErrorCode::SystemError))) if ordered => {
                        connection.replies.pop_front();
                        let Asked { xid, .. } = connection.sent.pop_front().expect("just looked at");
                        let zxid = self.reference.last_zxid();
                        connection.expected.push(Sent::Reply { xid, zxid, result: Err(ErrorCode::SystemError) });
                    }
                    _ if ordered => break,
                    Some(_) => {
                        connection.replies.pop_front();
                        let Asked { xid, request, .. } = connection.sent.pop_front().expect("just looked at");
                        let outputs = self.reference.apply(conn, xid, &request, 0, 0);
                        self.expect(outputs);
                    }
                    None if connection.lost => drop(connection.sent.pop_front()),
                    // The session has expired. Reads behind a write that comes too late have no
                    // outcome, but later writes do.
                    None if connection.actual.last() == Some(&Sent::Close) => drop(connection.sent.pop_front()),
                    None => break,
                }
            }
        }
    }

    /// Replays a session's next write at its place in the order.
    fn run_ordered(&mut self, session: i64, zxid: i64, wall_ms: i64) {
        let asked = self.connections.iter_mut().find_map(|(&conn, connection)| {
            let next = connection.session == session
                && connection.sent.front().is_some_and(|asked| Reference::is_ordered(&asked.request));
            next.then_some((conn, connection))
        });
        let Some((conn, connection)) = asked else {
            panic!(
                "entry {zxid:#x} of session {session:#x}: nobody asked for it, or a request before it has no outcome"
            );
        };
        connection.replies.pop_front();
        let Asked { xid, request, .. } = connection.sent.pop_front().expect("just looked at");
        let outputs = self.reference.apply(conn, xid, &request, zxid, wall_ms);
        self.expect(outputs);
    }

    /// Returns whether the owner had already requested the session's end.
    ///
    /// Otherwise the session expired. `at_ms` is when the end was proposed.
    fn asked_to_close(&self, session: i64, at_ms: u64) -> bool {
        let own = self.connections.values().filter(|connection| connection.session == session);
        let mut next = own.filter_map(|connection| connection.sent.front());
        next.any(|asked| asked.request == Request::CloseSession && asked.at_ms <= at_ms)
    }

    /// Returns when an entry was proposed, on the world's clock in milliseconds.
    fn ms_of(&self, header: Header) -> u64 {
        let now = self.world.now();
        now.mono_ms - (now.wall_ms - header.wall_ms) as u64
    }

    fn expect(&mut self, outputs: Vec<RefOutput>) {
        for output in outputs {
            let Some(connection) = self.connections.get_mut(&output.conn()) else { continue };
            connection.expected.push(sorted(match output {
                RefOutput::Notify { event, .. } => Sent::Event(event),
                RefOutput::Reply { xid, zxid, result, .. } => Sent::Reply { xid, zxid, result },
                RefOutput::Close { .. } => Sent::Close,
            }));
        }
    }

    fn compare(&mut self) {
        for conn in self.connections.keys().copied().collect::<Vec<_>>() {
            let connection = self.connections.get_mut(&conn).expect("just listed");
            let mut actual = std::mem::take(&mut connection.actual);
            let mut expected = std::mem::take(&mut connection.expected);
            if connection.lost {
                // Messages in flight are lost. The received ones must be a prefix of the expected
                // ones.
                let answered =
                    actual.iter().rposition(|sent| matches!(sent, Sent::Reply { .. })).map_or(0, |at| at + 1);
                actual.truncate(answered);
                expected.truncate(answered);
            } else if actual.last() != Some(&Sent::Close) {
                let waiting: Vec<_> = connection.sent.iter().map(|asked| (asked.xid, &asked.request)).collect();
                assert!(waiting.is_empty(), "{conn:?}: never answered: {waiting:?}");
            }
            if actual != expected {
                let at = actual.iter().zip(&expected).take_while(|(actual, expected)| actual == expected).count();
                panic!(
                    "{conn:?} after {at} equal messages:\n  machine   {:#?}\n  reference {:#?}",
                    actual.get(at),
                    expected.get(at)
                );
            }
            if connection.lost || actual.last() == Some(&Sent::Close) {
                self.reference.disconnect(conn);
                self.connections.remove(&conn);
                for client in self.clients.iter_mut().filter(|client| client.conn == Some(conn)) {
                    client.conn = None;
                }
            }
        }
    }
}

/// Returns whether another end of the session follows.
///
/// The owner requested the end while the session's expiry was in flight.
fn ends_again(later: &[Entry], session: SessionId) -> bool {
    later.iter().any(|entry| matches!(txn::decode(&entry.payload), Ok((_, Txn::CloseSession { session: ended })) if ended == session))
}

fn connection_session(connections: &BTreeMap<ConnId, Connection>, conn: ConnId) -> i64 {
    connections.get(&conn).map_or(0, |connection| connection.session)
}

/// Sorts the ids in a whoAmI reply, which have no defined order.
fn sorted(mut sent: Sent) -> Sent {
    if let Sent::Reply { result: Ok(Reply::Ids(ids)), .. } = &mut sent {
        ids.sort_by(|a, b| (a.scheme.as_str(), a.id.as_str()).cmp(&(b.scheme.as_str(), b.id.as_str())));
    }
    sent
}

/// Draws conditions, from ample memory and instant disks to the opposite.
fn conditions(workload: &mut Workload) -> Conditions {
    let random = workload.random();
    let settings = Settings {
        super_digest: Some(digest_of(SUPER_USER)),
        container_check_interval_ms: *random.pick(&[500, 5000]),
        enforce_quotas: true,
        counted_at_once: COUNTED_AT_ONCE,
        ..Settings::default()
    };
    let limits = Limits {
        memtable_bytes: *random.pick(&[1 << 10, 4 << 10, 16 << 10, 8 << 20]),
        record_cache_bytes: *random.pick(&[0, 512, 8 << 10, 4 << 20]),
        spare_cache_bytes: *random.pick(&[0, SPARE_CACHE_BYTES]),
        ..Limits::default()
    };
    Conditions {
        limits,
        settings,
        persist_ms_max: *random.pick(&[0, 1, 5, 20]),
        fetch_ms_max: *random.pick(&[0, 2, 10]),
        checkpoint_ms_max: *random.pick(&[0, 10, 60]),
        complete_ms_max: *random.pick(&[0, 3, 15]),
        checkpoint_fails_one_in: *random.pick(&[0, 0, 2]),
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn machine_sends_the_same_messages_as_the_reference() {
    let seeds = match setting("MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("MODEL_SEEDS").unwrap_or(90),
    };
    let (mut fetches, mut checkpoints, mut expired) = (0, 0, 0);
    for seed in seeds.clone() {
        let mut run = Run::new(seed);
        run.settle();
        for _ in 0..STEPS {
            run.step();
        }
        run.look_at_everything();
        let status = run.world.status();
        fetches += status.fetches;
        checkpoints += status.checkpoints;
        expired += status.sessions_expired;
    }
    if seeds.end - seeds.start > 10 {
        assert!(
            fetches > 1000 && checkpoints > 100 && expired > 10,
            "{fetches} fetches, {checkpoints} checkpoints, {expired} expired"
        );
    }
}
