//! A few whole servers wired by hand.
//!
//! A test decides when messages are delivered and time passes. Every disk is a list in memory.
#![allow(dead_code, reason = "each file of tests uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(unreachable_pub, reason = "shared by several files")]

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zoolet_machine::record::chain_after;
use zoolet_machine::seam::action::{Append, BaseRead, FetchWhat, FirstKeys, LogRecord};
use zoolet_machine::seam::event::{BaseFailure, Fetched, List};
use zoolet_machine::seam::peer::{Lane, LogRange, LogReadFailure};
use zoolet_machine::{Action, ConnId, Event, Limits, Now, PeerMessage, Server, Settings, Start, Status};
use zoolet_model::{
    ConnectReply, ConnectRequest, CreateKind, ErrorCode, Reply, Request, ServerId, SessionId, WatchEvent, Zxid,
};
use zoolet_sim::client::{NOW, create, set};
use zoolet_zab::{AppendSeq, Config, EnsembleId, Incarnation, Kind, LinkId, Member, Recovered, Timing};

/// An answer or event that a connection received.
#[derive(Clone, Debug)]
pub enum Told {
    Connected(ConnectReply),
    Reply(i32, i64, Result<Reply, ErrorCode>),
    Notified(WatchEvent),
    Closed,
}

/// A disk: everything that was made durable.
#[derive(Clone, Debug)]
struct Disk {
    recovered: Recovered,
    entries: Vec<(Zxid, Bytes)>,
}

struct Running {
    server: Server,
    /// Appends that are not durable yet.
    waiting: VecDeque<Append>,
    /// Answers and events by connection.
    told: BTreeMap<ConnId, Vec<Told>>,
    /// Answers of the base that are held back.
    unsaid: Vec<Event>,
}

/// Servers 1 to n and the network between them.
pub struct Members {
    pub now: Now,
    settings: Settings,
    limits: Limits,
    disks: Vec<Disk>,
    running: Vec<Option<Running>>,
    links: BTreeMap<(u8, u8), LinkId>,
    wires: BTreeMap<(u8, u8), VecDeque<PeerMessage>>,
    /// Directions (from, to) in which nothing is delivered; datagrams are lost.
    held: BTreeSet<(u8, u8)>,
    /// Servers whose disks complete nothing.
    pub hanging: BTreeSet<u8>,
    /// Servers whose bases answer no fetch; entries wait to be applied.
    pub mute: BTreeSet<u8>,
    /// Servers whose checkpoints fail.
    pub failing: BTreeSet<u8>,
    /// Last status that a server reported.
    answered: Option<Box<Status>>,
    /// Paused servers: they handle nothing.
    pub paused: BTreeSet<u8>,
    /// Drops Moved messages, as if the leader died before they arrived.
    pub is_moved_lost: bool,
    /// Every delivered message with its sender and receiver.
    pub said: Vec<(u8, u8, PeerMessage)>,
    next_link: u64,
    next_conn: u64,
}

/// A client on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client {
    pub server: u8,
    pub conn: ConnId,
    pub session: SessionId,
    pub secret: [u8; 16],
    pub timeout_ms: i32,
}

impl Client {
    fn shows(&self, last_zxid_seen: i64) -> ConnectRequest {
        ConnectRequest {
            last_zxid_seen,
            timeout_ms: self.timeout_ms,
            session: self.session,
            password: Some(self.secret.to_vec().into()),
            read_only: None,
        }
    }
}

fn id(server: u8) -> ServerId {
    ServerId::new(server).unwrap()
}

impl Members {
    /// Returns an ensemble of `count` voters that was just born and serves.
    pub fn born(count: u8) -> Self {
        Self::born_with(count, Settings::default(), Limits::default())
    }

    pub fn born_with(count: u8, settings: Settings, limits: Limits) -> Self {
        let ids: Vec<_> = (1..=count).map(id).collect();
        Self::born_of(Config::of_voters(&ids).unwrap(), settings, limits)
    }

    /// Returns an ensemble whose only voter is server 1.
    pub fn born_of_one_voter(observers: u8) -> Self {
        let kind = |server| if server == 1 { Kind::Voter } else { Kind::Observer };
        let members: Vec<_> =
            (1..=1 + observers).map(|s| Member { id: id(s), kind: kind(s), disk: Incarnation(0) }).collect();
        let config = Config::new(EnsembleId::UNBORN, Zxid::ZERO, &members).unwrap();
        Self::born_of(config, Settings::default(), Limits::default())
    }

    fn born_of(config: Config, settings: Settings, limits: Limits) -> Self {
        let count = config.members().len() as u8;
        let disk = |server: u8| Disk {
            recovered: Recovered::empty(Incarnation(u128::from(server) + 100), config.clone()),
            entries: Vec::new(),
        };
        let mut members = Self {
            now: NOW,
            settings,
            limits,
            disks: (1..=count).map(disk).collect(),
            running: (1..=count).map(|_| None).collect(),
            links: BTreeMap::new(),
            wires: BTreeMap::new(),
            held: BTreeSet::new(),
            hanging: BTreeSet::new(),
            mute: BTreeSet::new(),
            failing: BTreeSet::new(),
            answered: None,
            paused: BTreeSet::new(),
            is_moved_lost: false,
            said: Vec::new(),
            next_link: 0,
            next_conn: 0,
        };
        (1..=count).for_each(|server| members.start(server));
        members.until_all_serve();
        members
    }

    pub fn ids(&self) -> impl Iterator<Item = u8> + use<> {
        1..=self.disks.len() as u8
    }

    pub fn server(&self, server: u8) -> &Server {
        &self.running[usize::from(server) - 1].as_ref().expect("it runs").server
    }

    fn running(&mut self, server: u8) -> &mut Running {
        self.running[usize::from(server) - 1].as_mut().expect("it runs")
    }

    pub fn runs(&self, server: u8) -> bool {
        self.running[usize::from(server) - 1].is_some()
    }

    /// Returns the server that leads and serves.
    pub fn leader(&self) -> u8 {
        self.leader_of(&self.ids().collect::<Vec<_>>())
    }

    /// Returns the one of `servers` that leads and serves.
    pub fn leader_of(&self, servers: &[u8]) -> u8 {
        let leads =
            |server: &u8| self.runs(*server) && self.server(*server).leads() && self.server(*server).is_serving();
        servers.iter().copied().find(leads).expect("somebody leads")
    }

    /// Returns all running servers except the leader.
    pub fn learners(&self) -> Vec<u8> {
        let leader = self.leader();
        self.ids().filter(|&server| server != leader && self.runs(server)).collect()
    }

    /// Starts a server from its disk, linked to all running servers.
    pub fn start(&mut self, server: u8) {
        let Disk { recovered, entries } = self.disks[usize::from(server) - 1].clone();
        // Each process has another seed.
        let mut seed = [server; 32];
        seed[..8].copy_from_slice(&self.next_link.to_le_bytes());
        let start = Start {
            limits: self.limits,
            settings: self.settings.clone(),
            id: id(server),
            members: recovered.config.clone(),
            timing: Timing::default(),
            recovered,
            base: None,
            chain_at_base: 0,
            seed,
            log_bytes_used: 0,
        };
        let mut machine = Server::new(start, self.now);
        for (zxid, payload) in entries {
            machine.handle(self.now, Event::Recovered { zxid, payload });
        }
        machine.start(self.now);
        self.running[usize::from(server) - 1] =
            Some(Running { server: machine, waiting: VecDeque::new(), told: BTreeMap::new(), unsaid: Vec::new() });
        for other in self.ids().filter(|&other| other != server) {
            if self.runs(other) {
                self.link(server, other);
            }
        }
        self.settle();
    }

    /// Kills the process. Its links and everything that was not durable are lost.
    pub fn stop(&mut self, server: u8) {
        for other in self.ids().filter(|&other| other != server) {
            self.unlink(server, other);
        }
        self.running[usize::from(server) - 1] = None;
        self.paused.remove(&server);
        self.settle();
    }

    pub fn link(&mut self, a: u8, b: u8) {
        self.next_link += 1;
        let link = LinkId(self.next_link);
        for (from, to) in [(a, b), (b, a)] {
            self.links.insert((from, to), link);
            self.wires.insert((from, to), VecDeque::new());
        }
        for (at, peer) in [(a, b), (b, a)] {
            let disk = self.disks[usize::from(peer) - 1].recovered.disk;
            self.handle(at, Event::PeerUp { peer: id(peer), link, disk });
        }
    }

    pub fn unlink(&mut self, a: u8, b: u8) {
        for (at, peer) in [(a, b), (b, a)] {
            self.wires.remove(&(at, peer));
            if let Some(link) = self.links.remove(&(at, peer))
                && self.runs(at)
            {
                self.handle(at, Event::PeerDown { peer: id(peer), link });
            }
        }
    }

    /// Holds back messages in this direction until it is released.
    pub fn hold(&mut self, from: u8, to: u8) {
        self.held.insert((from, to));
    }

    /// Holds back messages in both directions until they are released.
    pub fn cut(&mut self, a: u8, b: u8) {
        self.hold(a, b);
        self.hold(b, a);
    }

    /// Allows delivery of the messages held back in this direction.
    pub fn release(&mut self, from: u8, to: u8) {
        self.held.remove(&(from, to));
    }

    pub fn release_all(&mut self) {
        self.held.clear();
        self.settle();
    }

    pub fn handle(&mut self, server: u8, event: Event) {
        let now = self.now;
        self.running(server).server.handle(now, event);
        self.carry_out(server);
    }

    /// Runs an operator's command.
    pub fn command<T>(&mut self, server: u8, command: impl FnOnce(&mut Server, Now) -> T) -> T {
        let now = self.now;
        let outcome = command(&mut self.running(server).server, now);
        self.carry_out(server);
        outcome
    }

    /// Returns a server's status with its alarms.
    pub fn status(&mut self, server: u8) -> Status {
        self.handle(server, Event::Status { ticket: 1 });
        let mut status = *self.answered.take().expect("it answers");
        status.alarms = zoolet_machine::status::alarms(&status);
        status
    }

    /// Returns a server's answer to a list that it can answer from memory.
    pub fn list(&mut self, server: u8, list: List) -> Status {
        self.handle(server, Event::List { ticket: 1, list });
        *self.answered.take().expect("it answers")
    }

    fn carry_out(&mut self, server: u8) {
        let now = self.now;
        while let Some(action) = self.running(server).server.poll_action() {
            match action {
                Action::Append(append) => self.running(server).waiting.push_back(append),
                Action::Fetch(fetch) => {
                    let found = match fetch.what {
                        FetchWhat::Record(_) => Fetched::Record(None),
                        FetchWhat::KeysUnder(_) => Fetched::Keys(Vec::new()),
                        FetchWhat::FirstKeys(_) => FirstKeys::of([]),
                        FetchWhat::Weights { .. } => Fetched::Weights(Vec::new(), true),
                    };
                    let fetched = Event::Fetched { id: fetch.id, result: Ok(found) };
                    if self.mute.contains(&server) {
                        self.running(server).unsaid.push(fetched);
                    } else {
                        self.running(server).server.handle(now, fetched);
                    }
                }
                Action::Connected { conn, reply } => self.tell(server, conn, Told::Connected(reply)),
                Action::Reply { conn, xid, zxid, result } => self.tell(server, conn, Told::Reply(xid, zxid, result)),
                Action::Notify { conn, event } => self.tell(server, conn, Told::Notified(event)),
                Action::Complete(completion) => {
                    let (result, _) = completion.run(&Empty);
                    self.tell(server, completion.conn, Told::Reply(completion.xid, completion.zxid, result));
                    self.running(server).server.handle(now, Event::Completed { bytes: completion.bytes });
                }
                Action::Close { conn } => {
                    self.tell(server, conn, Told::Closed);
                    self.running(server).server.handle(now, Event::Disconnected { conn });
                }
                Action::PeerSend { peer, link, message } => {
                    let (from, to) = (server, peer.as_u8());
                    if self.links.get(&(from, to)) == Some(&link)
                        && !(message.lane() == Lane::Datagram && self.held.contains(&(from, to)))
                    {
                        self.wires.entry((from, to)).or_default().push_back(message);
                    }
                }
                Action::PeerClose { peer, .. } => self.unlink(server, peer.as_u8()),
                Action::ReadLog(read) => {
                    let held = &self.disks[usize::from(server) - 1].entries;
                    let mut chain_before = 0;
                    for (zxid, payload) in held.iter().take_while(|(zxid, _)| *zxid <= read.after) {
                        chain_before = chain_after(chain_before, *zxid, payload);
                    }
                    let wanted = held.iter().filter(|(zxid, _)| *zxid > read.after && *zxid <= read.to);
                    let entries: Vec<_> = wanted.cloned().collect();
                    let result = if entries.is_empty() {
                        Err(LogReadFailure::Gone)
                    } else {
                        Ok(LogRange { chain_before, entries })
                    };
                    self.running(server).server.handle(now, Event::LogRead { id: read.id, result });
                }
                Action::Checkpoint(_) if self.failing.contains(&server) => {
                    let failed = Event::CheckpointFailed { reason: "the disk is full".to_owned() };
                    self.running(server).server.handle(now, failed);
                }
                Action::Status { status, .. } => self.answered = Some(status),
                Action::HoldLog { .. } | Action::ReleaseGenerations { .. } => {}
                Action::Fail(reason) => panic!("server {server} failed: {reason}"),
                Action::Checkpoint(_)
                | Action::SendSnapshot { .. }
                | Action::ReceiveSnapshot { .. }
                | Action::DropSnapshot { .. }
                | Action::InstallSnapshot { .. } => panic!("server {server} has no base here"),
            }
        }
    }

    fn tell(&mut self, server: u8, conn: ConnId, told: Told) {
        self.running(server).told.entry(conn).or_default().push(told);
    }

    /// Makes appends durable and delivers messages until nothing moves.
    ///
    /// Servers and directions that a test holds back are left out.
    pub fn settle(&mut self) {
        loop {
            let mut moved = false;
            for server in self.ids() {
                if !self.runs(server) || self.paused.contains(&server) {
                    continue;
                }
                self.carry_out(server);
                moved |= self.persist(server) | self.say(server);
                // A turn applies a bounded number of entries; `judge_one` continues with the rest.
                let applied = self.server(server).applied();
                self.judge_one(server);
                moved |= self.server(server).applied() != applied;
            }
            let wires: Vec<_> = self.wires.keys().copied().collect();
            for (from, to) in wires {
                moved |= self.deliver(from, to);
            }
            if !moved {
                return;
            }
        }
    }

    /// Lets servers work in steps, one delivery or sync at a time, until the condition holds.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            for server in self.ids().filter(|&server| self.runs(server)).collect::<Vec<_>>() {
                self.persist(server);
                if holds(self) {
                    return;
                }
                self.judge_one(server);
                if holds(self) {
                    return;
                }
            }
            for (from, to) in self.wires.keys().copied().collect::<Vec<_>>() {
                self.deliver(from, to);
                if holds(self) {
                    return;
                }
            }
            self.now.mono_ms += 1;
            self.now.wall_ms += 1;
        }
        panic!("it does not come");
    }

    /// Delivers the messages on one wire.
    pub fn deliver(&mut self, from: u8, to: u8) -> bool {
        if self.held.contains(&(from, to)) || self.paused.contains(&to) || !self.runs(to) {
            return false;
        }
        let Some(messages) = self.wires.get_mut(&(from, to)).map(std::mem::take) else { return false };
        let (moved, link) = (!messages.is_empty(), self.links[&(from, to)]);
        for message in messages {
            if self.is_moved_lost && matches!(message, PeerMessage::Moved { .. }) {
                continue;
            }
            self.said.push((from, to, message.clone()));
            self.handle(to, Event::PeerMessage { peer: id(from), link, message });
        }
        moved
    }

    /// Delivers the messages on one wire in one turn, held or not.
    ///
    /// No action of the receiver is polled before the last message.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn deliver_in_one_turn(&mut self, from: u8, to: u8) {
        let messages = self.wires.get_mut(&(from, to)).map(std::mem::take).unwrap_or_default();
        let (now, link) = (self.now, self.links[&(from, to)]);
        for message in messages {
            self.said.push((from, to, message.clone()));
            self.running(to).server.handle(now, Event::PeerMessage { peer: id(from), link, message });
        }
        self.carry_out(to);
    }

    /// Returns the number of records in each append that is not durable.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn appends(&mut self, server: u8) -> Vec<usize> {
        self.running(server).waiting.iter().map(|append| append.records.len()).collect()
    }

    /// Puts a message on the wire that its sender did not send.
    pub fn inject(&mut self, from: u8, to: u8, message: PeerMessage) {
        self.wires.entry((from, to)).or_default().push_back(message);
    }

    /// Makes the appends of a hanging disk durable once. Those that follow wait.
    pub fn persist_once(&mut self, server: u8) {
        self.hanging.remove(&server);
        self.persist(server);
        self.hanging.insert(server);
    }

    fn persist(&mut self, server: u8) -> bool {
        if self.hanging.contains(&server) {
            return false;
        }
        let appends = std::mem::take(&mut self.running(server).waiting);
        let Some(seq) = appends.back().map(|append| append.seq) else { return false };
        let disk = &mut self.disks[usize::from(server) - 1];
        appends.into_iter().for_each(|append| disk.take(append));
        self.handle(server, Event::Persisted { seq, log_bytes_used: 0, checkpoint: Zxid::ZERO });
        true
    }

    fn say(&mut self, server: u8) -> bool {
        if self.mute.contains(&server) {
            return false;
        }
        let said = std::mem::take(&mut self.running(server).unsaid);
        let moved = !said.is_empty();
        said.into_iter().for_each(|fetched| self.handle(server, fetched));
        moved
    }

    /// Lets time pass in steps of 10 ms, with all possible deliveries.
    pub fn advance(&mut self, ms: u64) {
        let until = self.now.mono_ms + ms;
        self.settle();
        while self.now.mono_ms < until {
            self.now.mono_ms = (self.now.mono_ms + 10).min(until);
            self.now.wall_ms += 10;
            self.judge();
        }
    }

    /// Advances the monotonic clock; nothing happens in between.
    pub fn jump(&mut self, ms: u64) {
        self.now.mono_ms += ms;
    }

    /// Delivers everything possible, then handles due deadlines.
    pub fn judge(&mut self) {
        self.settle();
        for server in self.ids() {
            if !self.runs(server) || self.paused.contains(&server) {
                continue;
            }
            self.judge_one(server);
        }
        self.settle();
    }

    fn judge_one(&mut self, server: u8) {
        let now = self.now;
        if self.server(server).next_deadline().is_some_and(|at| at <= now.mono_ms) {
            self.running(server).server.handle_deadline(now);
            self.carry_out(server);
        }
    }

    /// Lets time pass until every running server that is not paused serves.
    pub fn until_all_serve(&mut self) {
        for _ in 0..1000 {
            let all = self.ids().all(|s| !self.runs(s) || self.paused.contains(&s) || self.server(s).is_serving());
            if all {
                return;
            }
            self.advance(10);
        }
        panic!("somebody does not serve");
    }

    /// Lets time pass until a server serves.
    pub fn until_serves(&mut self, server: u8) {
        for _ in 0..1000 {
            if self.server(server).is_serving() {
                return;
            }
            self.advance(10);
        }
        panic!("server {server} does not serve");
    }

    /// Returns a new connection number.
    pub fn conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId(self.next_conn)
    }

    /// Opens a connection with its first message.
    pub fn connect(&mut self, server: u8, request: ConnectRequest) -> ConnId {
        let conn = self.conn();
        self.handle(server, Event::Connect { conn, peer: Some(address_of(conn)), request });
        conn
    }

    /// Opens a session over TCP and returns its client.
    pub fn client(&mut self, server: u8, timeout_ms: i32) -> Client {
        let conn = self.connect(server, ConnectRequest::for_new_session(timeout_ms));
        self.began(server, conn, timeout_ms)
    }

    /// Opens a session from inside the server's process.
    pub fn client_in_process(&mut self, server: u8, timeout_ms: i32) -> Client {
        let (conn, request) = (self.conn(), ConnectRequest::for_new_session(timeout_ms));
        self.handle(server, Event::Connect { conn, peer: None, request });
        self.began(server, conn, timeout_ms)
    }

    fn began(&mut self, server: u8, conn: ConnId, timeout_ms: i32) -> Client {
        self.settle();
        let told = self.take(server, conn);
        let [Told::Connected(reply)] = &told[..] else { panic!("{told:?}") };
        Client { server, conn, session: reply.session, secret: reply.secret.0, timeout_ms }
    }

    /// Presents the client's session to a server on a new connection.
    ///
    /// Nothing is delivered yet.
    pub fn come_back(&mut self, client: &mut Client, server: u8, last_zxid_seen: i64) {
        client.server = server;
        client.conn = self.connect(server, client.shows(last_zxid_seen));
    }

    /// Lets all these clients return before the server answers any of them.
    ///
    /// Between any two of them another client requests a new session.
    pub fn come_back_at_once(&mut self, clients: &mut [Client], server: u8) {
        let now = self.now;
        for client in clients {
            let requests = [client.shows(0), ConnectRequest::for_new_session(client.timeout_ms)];
            let [returning, _] = requests.map(|request| {
                let conn = self.conn();
                let peer = Some([127, 0, 0, 1].into());
                self.running(server).server.handle(now, Event::Connect { conn, peer, request });
                conn
            });
            (client.server, client.conn) = (server, returning);
        }
        self.carry_out(server);
    }

    /// Sends a request; nothing is delivered yet.
    pub fn send(&mut self, client: &Client, xid: i32, request: Request) {
        self.handle(client.server, Event::Request { conn: client.conn, xid, request });
    }

    /// Sends a request, lets everything happen and returns the answer.
    pub fn ask(&mut self, client: &Client, request: Request) -> Result<Reply, ErrorCode> {
        self.send(client, 77, request);
        self.settle();
        let told = self.take(client.server, client.conn);
        let answer = told.iter().find_map(|told| match told {
            Told::Reply(77 | -2, _, result) => Some(result.clone()),
            Told::Reply(..) | Told::Connected(_) | Told::Notified(_) | Told::Closed => None,
        });
        answer.unwrap_or_else(|| panic!("no answer: {told:?}"))
    }

    /// Takes what a connection received since the last call.
    pub fn take(&mut self, server: u8, conn: ConnId) -> Vec<Told> {
        self.running(server).told.remove(&conn).unwrap_or_default()
    }

    /// Takes what a client's connection received since the last call.
    pub fn told(&mut self, client: &Client) -> Vec<Told> {
        self.take(client.server, client.conn)
    }

    /// Returns whether the connection was closed and received nothing else.
    pub fn is_just_closed(&mut self, client: &Client) -> bool {
        matches!(self.told(client)[..], [Told::Closed])
    }

    /// Disconnects the client without a message.
    pub fn leave(&mut self, client: &Client) {
        self.handle(client.server, Event::Disconnected { conn: client.conn });
    }
}

impl Disk {
    fn take(&mut self, append: Append) {
        let recovered = &mut self.recovered;
        recovered.appended = AppendSeq(append.seq.0);
        for record in Vec::from(append.records) {
            match record {
                LogRecord::Entry { zxid, payload } => {
                    recovered.history.push(zxid);
                    self.entries.push((zxid, payload));
                }
                LogRecord::Promise(epoch) => recovered.accepted = epoch,
                LogRecord::Epoch(epoch) => {
                    recovered.current = epoch;
                    recovered.accepted = recovered.accepted.max(epoch);
                }
                LogRecord::Truncate { to } => {
                    recovered.history.truncate(to);
                    self.entries.retain(|(zxid, _)| *zxid <= to);
                }
                LogRecord::Config { committed, last_seen } => {
                    recovered.config = Config::decode(&committed).unwrap();
                    recovered.pending = (last_seen != committed).then(|| Config::decode(&last_seen).unwrap());
                }
                LogRecord::Birth { ensemble } => recovered.ensemble = EnsembleId(ensemble),
                LogRecord::Damaged | LogRecord::SnapBegin { .. } | LogRecord::SnapEnd { .. } => panic!("no base here"),
            }
        }
        recovered.committed = recovered.committed.max(append.watermark.min(recovered.history.last()));
    }
}

struct Empty;

impl BaseRead for Empty {
    fn record(&self, _: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        Ok(None)
    }

    fn keys(&self, _: &[u8], _: Option<&[u8]>, _: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        Ok(())
    }
}

/// Returns a distinct address per client: clients share no session limit.
fn address_of(conn: ConnId) -> std::net::IpAddr {
    let [.., high, middle, low] = conn.0.to_be_bytes();
    [127, high, middle, low].into()
}

/// Creates a small znode.
pub fn born(path: &str) -> Request {
    Request::Write(create(path.to_owned(), 5, CreateKind::Persistent))
}

/// Sets a small znode.
pub fn write(path: &str) -> Request {
    Request::Write(set(path.to_owned(), 5))
}
