//! Whole servers with the real log and base, wired by hand.
//!
//! Messages are delivered and appends are durable at once. Time passes only when a test advances
//! it.
#![allow(dead_code, reason = "each file of tests uses a part")]
#![allow(unreachable_pub, reason = "shared by several files")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use zoolet_machine::seam::action::{Append, Checkpoint, Fetch, Generation, ReadLog};
use zoolet_machine::seam::event::{BaseFailure, Fetched};
use zoolet_machine::seam::peer::{
    Incarnation, Lane, LinkId, LogRange, LogReadFailure, NotReceived, NotSent, ReceivedSnapshot, TransferId,
};
use zoolet_machine::{Action, ConnId, Event, Limits, Now, PeerMessage, Server, Settings, Start, Status};
use zoolet_model::{ConnectReply, ConnectRequest, ErrorCode, Reply, Request, ServerId, Zxid};
use zoolet_sim::client::NOW;
use zoolet_sim::disk::SimDisk;
use zoolet_store::base::{Base, BaseReader};
use zoolet_store::log::{AppendError, Log, ReadError};
use zoolet_store::{Reserve, SnapshotSink, SnapshotSource, Store, Strategy};
use zoolet_zab::{Config, Timing};

/// An answer that a connection received.
#[derive(Clone, Debug)]
pub enum Told {
    Connected(ConnectReply),
    Reply(Result<Reply, ErrorCode>),
    Closed,
}

/// One running server process.
pub struct Running {
    pub server: Server,
    log: Log,
    base: Base,
    /// A received snapshot that the log does not name yet.
    next_base: Option<Base>,
    reserve: Reserve,
    readers: BTreeMap<Generation, BaseReader>,
    /// Generation of the current base's first reader. A received base counts its readers from 0.
    generations_before: u64,
    waiting: Vec<Append>,
    /// The log cannot write, and the server knows.
    is_stalled: bool,
    /// A checkpoint that neither ends nor fails.
    unfinished: Option<Checkpoint>,
    floor: Zxid,
    receiving: Option<(ServerId, TransferId)>,
    pub told: BTreeMap<ConnId, Vec<Told>>,
    pub status: Option<Box<Status>>,
}

/// Servers 1 to n, their disks and the network between them.
pub struct Boxes {
    pub now: Now,
    pub limits: Limits,
    pub settings: Settings,
    members: Config,
    disks: Vec<SimDisk>,
    running: Vec<Option<Running>>,
    links: BTreeMap<(u8, u8), LinkId>,
    wires: BTreeMap<(u8, u8), VecDeque<PeerMessage>>,
    snapshots: BTreeMap<(u8, u8, TransferId), Vec<u8>>,
    /// Directions in which nothing is delivered.
    pub cut: BTreeSet<(u8, u8)>,
    /// Number of snapshot transfers still to fail.
    pub snapshots_fail: u32,
    /// Number of snapshot transfers still to be cancelled by their receivers.
    pub snapshots_cancelled: u32,
    /// How many earlier snapshots arrived too late, for each snapshot sent.
    pub too_late: Vec<u32>,
    /// Links that a server closed. They come up again when time passes.
    closed: Vec<(u8, u8)>,
    /// Keeps sent snapshots in flight.
    pub snapshots_wait: bool,
    /// When a receiver requested each snapshot's bytes, in milliseconds.
    pub snapshots_asked: Vec<u64>,
    /// Servers whose disks complete nothing.
    pub hanging: BTreeSet<u8>,
    /// Servers whose bases answer nothing.
    pub fetches_wait: BTreeSet<u8>,
    /// Servers whose checkpoints neither end nor fail, until [`Boxes::end_checkpoint`].
    pub checkpoints_hang: BTreeSet<u8>,
    /// Every delivered message with its sender and receiver.
    pub said: Vec<(u8, u8, PeerMessage)>,
    numbers: u64,
}

/// Limits so small that a few writes rotate the log.
///
/// After a short silence a server lags further than the log reaches back.
pub fn small_limits() -> Limits {
    Limits {
        memtable_bytes: 16 << 10,
        record_cache_bytes: 8 << 10,
        base_cache_bytes: 64 << 10,
        log_segment_bytes: 16 << 10,
        log_segments: 8,
        frame_bytes_max: 2 << 10,
        outstanding_bytes_max: 64 << 10,
        disk_reserve_bytes: 256 << 10,
        ..Limits::default()
    }
}

/// Rounds of delivery at one instant; no test needs as many.
const ROUNDS_MAX: u32 = 100_000;

fn id(server: u8) -> ServerId {
    ServerId::new(server).unwrap()
}

impl Boxes {
    /// Creates `count` servers with empty disks; none of them runs.
    pub fn new(count: u8, limits: Limits) -> Self {
        let ids: Vec<_> = (1..=count).map(id).collect();
        Self {
            now: NOW,
            limits,
            settings: Settings::default(),
            members: Config::of_voters(&ids).unwrap(),
            disks: (1..=count).map(|server| SimDisk::new(server.into())).collect(),
            running: (1..=count).map(|_| None).collect(),
            links: BTreeMap::new(),
            wires: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            cut: BTreeSet::new(),
            snapshots_fail: 0,
            snapshots_cancelled: 0,
            too_late: Vec::new(),
            closed: Vec::new(),
            snapshots_wait: false,
            snapshots_asked: Vec::new(),
            hanging: BTreeSet::new(),
            fetches_wait: BTreeSet::new(),
            checkpoints_hang: BTreeSet::new(),
            said: Vec::new(),
            numbers: 100,
        }
    }

    /// Returns `count` servers whose ensemble is born and serves.
    pub fn born(count: u8, limits: Limits) -> Self {
        let mut boxes = Self::new(count, limits);
        (1..=count).for_each(|server| boxes.start(server));
        boxes.until_all_serve();
        boxes
    }

    pub fn ids(&self) -> impl Iterator<Item = u8> + use<> {
        1..=self.disks.len() as u8
    }

    pub fn runs(&self, server: u8) -> bool {
        self.running[usize::from(server) - 1].is_some()
    }

    pub fn at(&self, server: u8) -> &Running {
        self.running[usize::from(server) - 1].as_ref().expect("it runs")
    }

    fn at_mut(&mut self, server: u8) -> &mut Running {
        self.running[usize::from(server) - 1].as_mut().expect("it runs")
    }

    pub fn server(&self, server: u8) -> &Server {
        &self.at(server).server
    }

    pub fn disk(&self, server: u8) -> &SimDisk {
        &self.disks[usize::from(server) - 1]
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Returns the only server that leads and serves.
    pub fn leader(&self) -> u8 {
        let leads = |&server: &u8| self.runs(server) && self.server(server).leads() && self.server(server).is_serving();
        let all: Vec<_> = self.ids().filter(leads).collect();
        assert_eq!(all.len(), 1, "one leads");
        all[0]
    }

    pub fn learners(&self) -> Vec<u8> {
        let leader = self.leader();
        self.ids().filter(|&server| server != leader && self.runs(server)).collect()
    }

    /// Starts a server from its disk's contents.
    pub fn start(&mut self, server: u8) {
        let incarnation = u128::from(self.number()) << 64;
        let disk = self.disk(server).clone();
        let store = Store::open_member(Arc::new(disk), Strategy::Recycle, &self.limits, incarnation).unwrap();
        // Each process has another seed.
        let mut seed = [server; 32];
        seed[..16].copy_from_slice(&incarnation.to_le_bytes());
        let start = Start {
            limits: self.limits,
            settings: self.settings.clone(),
            id: id(server),
            members: self.members.clone(),
            timing: Timing::default(),
            recovered: store.recovered.clone(),
            base: store.state.clone(),
            chain_at_base: store.chain_at_base,
            seed,
            log_bytes_used: store.log.used_bytes(),
        };
        let mut machine = Server::new(start, self.now);
        let now = self.now;
        store
            .replay(|event| {
                machine.handle(now, event);
                Ok::<(), String>(())
            })
            .unwrap();
        let Store { log, base, reserve, log_floor, .. } = store;
        let reader = base.reader();
        self.running[usize::from(server) - 1] = Some(Running {
            server: machine,
            log,
            readers: BTreeMap::from([(reader.generation(), reader)]),
            base,
            next_base: None,
            reserve,
            generations_before: 0,
            waiting: Vec::new(),
            is_stalled: false,
            unfinished: None,
            floor: log_floor,
            receiving: None,
            told: BTreeMap::new(),
            status: None,
        });
        self.carry_out(server);
        self.at_mut(server).server.start(now);
        self.carry_out(server);
        for other in self.ids().filter(|&other| other != server) {
            if self.runs(other) {
                self.link(server, other);
            }
        }
        self.settle();
    }

    /// Kills the process and cuts the power; unsynced writes may be lost.
    pub fn kill(&mut self, server: u8) {
        for other in self.ids().filter(|&other| other != server) {
            self.unlink(server, other);
        }
        self.running[usize::from(server) - 1] = None;
        let (seed, at) = (self.number(), usize::from(server) - 1);
        self.disks[at] = self.disks[at].after_power_loss(seed);
        self.settle();
    }

    /// Replaces a server's disk with an empty one.
    pub fn wipe(&mut self, server: u8) {
        assert!(!self.runs(server));
        let seed = self.number();
        self.disks[usize::from(server) - 1] = SimDisk::new(seed);
    }

    pub fn link(&mut self, a: u8, b: u8) {
        let link = LinkId(self.number());
        for (from, to) in [(a, b), (b, a)] {
            self.links.insert((from, to), link);
            self.wires.insert((from, to), VecDeque::new());
        }
        for (at, peer) in [(a, b), (b, a)] {
            let disk = Incarnation(self.at(peer).log.facts().disk_incarnation);
            self.handle(at, Event::PeerUp { peer: id(peer), link, disk });
        }
    }

    pub fn unlink(&mut self, a: u8, b: u8) {
        for (at, peer) in [(a, b), (b, a)] {
            self.wires.remove(&(at, peer));
            self.snapshots.retain(|(from, to, _), _| (*from, *to) != (at, peer));
            if let Some(link) = self.links.remove(&(at, peer))
                && self.runs(at)
            {
                self.handle(at, Event::PeerDown { peer: id(peer), link });
            }
        }
    }

    /// Stops deliveries between this server and the others.
    ///
    /// Messages wait; datagrams are lost.
    pub fn isolate(&mut self, server: u8) {
        for other in self.ids().filter(|&other| other != server) {
            self.cut.extend([(server, other), (other, server)]);
        }
    }

    /// Ends a server's isolation with new links to all running servers.
    pub fn rejoin(&mut self, server: u8) {
        self.cut.retain(|&(from, to)| from != server && to != server);
        for other in self.ids().filter(|&other| other != server) {
            if self.runs(other) {
                self.unlink(server, other);
                self.link(server, other);
            }
        }
        self.settle();
    }

    pub fn handle(&mut self, server: u8, event: Event) {
        let now = self.now;
        self.at_mut(server).server.handle(now, event);
        self.carry_out(server);
    }

    /// Runs an operator's command.
    pub fn command<T>(&mut self, server: u8, command: impl FnOnce(&mut Server, Now) -> T) -> T {
        let now = self.now;
        let outcome = command(&mut self.at_mut(server).server, now);
        self.carry_out(server);
        outcome
    }

    fn carry_out(&mut self, server: u8) {
        while let Some(action) = self.at_mut(server).server.poll_action() {
            self.carry_out_one(server, action);
        }
    }

    fn carry_out_one(&mut self, server: u8, action: Action) {
        let (now, is_sent, is_wanted) = (self.now, self.snapshots_fail == 0, self.snapshots_cancelled == 0);
        let fetches_wait = self.fetches_wait.contains(&server);
        let checkpoints_hang = self.checkpoints_hang.contains(&server);
        let box_of = self.at_mut(server);
        match action {
            Action::Append(append) => box_of.waiting.push(append),
            Action::Fetch(_) if fetches_wait => {}
            Action::Fetch(fetch) => {
                let result = box_of.read(&fetch);
                box_of.server.handle(now, Event::Fetched { id: fetch.id, result });
            }
            Action::Checkpoint(checkpoint) if checkpoints_hang => box_of.unfinished = Some(checkpoint),
            Action::Checkpoint(checkpoint) => box_of.write(now, &checkpoint),
            Action::ReleaseGenerations { below, .. } => {
                box_of.readers = box_of.readers.split_off(&below);
                box_of.merge(now);
            }
            Action::Connected { conn, reply } => box_of.tell(conn, Told::Connected(reply)),
            Action::Reply { conn, result, .. } => box_of.tell(conn, Told::Reply(result)),
            Action::Complete(completion) => {
                let (result, _) = completion.run(&box_of.readers[&completion.generation]);
                box_of.tell(completion.conn, Told::Reply(result));
                box_of.server.handle(now, Event::Completed { bytes: completion.bytes });
            }
            Action::Notify { .. } => {}
            Action::Close { conn } => {
                box_of.tell(conn, Told::Closed);
                box_of.server.handle(now, Event::Disconnected { conn });
            }
            Action::Status { status, .. } => box_of.status = Some(status),
            Action::Fail(reason) => panic!("server {server} stopped: {reason}"),
            Action::PeerSend { peer, link, message } => {
                let way = (server, peer.as_u8());
                if self.links.get(&way) == Some(&link) && !(message.lane() == Lane::Datagram && self.cut.contains(&way))
                {
                    self.wires.entry(way).or_default().push_back(message);
                }
            }
            Action::PeerClose { peer, link, .. } => {
                if self.links.get(&(server, peer.as_u8())) == Some(&link) {
                    self.unlink(server, peer.as_u8());
                    self.closed.push((server, peer.as_u8()));
                }
            }
            Action::ReadLog(ReadLog { id, after, to, bytes_max }) => {
                let result = match box_of.log.read_entries(after, to, bytes_max) {
                    Ok(read) => Ok(LogRange { chain_before: read.chain, entries: read.entries }),
                    Err(ReadError::Gone) => Err(LogReadFailure::Gone),
                    Err(ReadError::Log(error)) => Err(LogReadFailure::Unreadable(error.to_string())),
                };
                box_of.server.handle(now, Event::LogRead { id, result });
            }
            Action::HoldLog { above } => box_of.log.hold(above),
            Action::SendSnapshot { transfer, .. } if !is_sent => {
                let result = Err(NotSent::Failed("chosen by a test".to_owned()));
                box_of.server.handle(now, Event::SnapshotSent { transfer, result });
                self.snapshots_fail -= 1;
            }
            Action::SendSnapshot { transfer, too_late, .. } if !is_wanted => {
                let result = Err(NotSent::Cancelled);
                box_of.server.handle(now, Event::SnapshotSent { transfer, result });
                self.snapshots_cancelled -= 1;
                self.too_late.push(too_late);
            }
            Action::SendSnapshot { peer, transfer, generation, chain, too_late, .. } => {
                let source = SnapshotSource::open(box_of.serve_again(generation), chain).unwrap();
                let mut bytes = Vec::new();
                while (bytes.len() as u64) < source.bytes() {
                    bytes.extend(source.read(bytes.len() as u64, 10_000).unwrap());
                }
                box_of.server.handle(now, Event::SnapshotSent { transfer, result: Ok(()) });
                self.snapshots.insert((server, peer.as_u8(), transfer), bytes);
                self.too_late.push(too_late);
            }
            Action::ReceiveSnapshot { peer, transfer, .. } => {
                box_of.receiving = Some((peer, transfer));
                self.snapshots_asked.push(now.mono_ms);
            }
            Action::DropSnapshot { peer, transfer } => {
                if box_of.receiving == Some((peer, transfer)) {
                    box_of.receiving = None;
                }
                if let Some(base) = box_of.next_base.take() {
                    base.retire();
                }
            }
            Action::InstallSnapshot { base } => {
                let next = box_of.next_base.take().expect("it was received");
                assert_eq!(box_of.log.facts().base_id, base, "the log names it");
                let newest = *box_of.readers.keys().next_back().unwrap();
                std::mem::replace(&mut box_of.base, next).retire();
                box_of.generations_before = newest.0 + 1;
                let generation = box_of.serve();
                box_of.server.handle(now, Event::SnapshotInstalled { generation });
            }
        }
    }

    pub fn is_checkpoint_unfinished(&self, server: u8) -> bool {
        self.at(server).unfinished.is_some()
    }

    /// Ends the hanging checkpoint of a server, if it has one.
    pub fn end_checkpoint(&mut self, server: u8) {
        let now = self.now;
        let box_of = self.at_mut(server);
        if let Some(checkpoint) = box_of.unfinished.take() {
            box_of.write(now, &checkpoint);
        }
        self.carry_out(server);
        self.settle();
    }

    /// Runs until nothing moves: all appends are durable and all messages delivered.
    pub fn settle(&mut self) {
        // All of this happens at one instant. Servers that answer each other without end fail the
        // test.
        for _ in 0..ROUNDS_MAX {
            let mut moved = false;
            for server in self.ids().filter(|server| !self.hanging.contains(server)).collect::<Vec<_>>() {
                if self.runs(server) {
                    moved |= self.persist(server) | self.receive(server);
                }
            }
            let ways: Vec<_> = self.wires.keys().copied().collect();
            for way in ways {
                moved |= self.deliver(way);
            }
            for server in self.ids() {
                let now = self.now;
                // A turn applies a bounded number of entries. A deadline that is due now continues
                // with the rest.
                if self.runs(server) && self.server(server).next_deadline() == Some(now.mono_ms) {
                    let applied = self.server(server).applied();
                    self.at_mut(server).server.handle_deadline(now);
                    self.carry_out(server);
                    moved |= self.server(server).applied() > applied;
                }
            }
            if !moved {
                return;
            }
        }
        panic!("the servers do not come to rest");
    }

    fn persist(&mut self, server: u8) -> bool {
        let now = self.now;
        let box_of = self.at_mut(server);
        if box_of.waiting.is_empty() {
            return false;
        }
        let has_moved = box_of.append(now);
        self.carry_out(server);
        has_moved
    }

    fn deliver(&mut self, way: (u8, u8)) -> bool {
        let (from, to) = way;
        if self.cut.contains(&way) || !self.runs(to) {
            return false;
        }
        let Some(messages) = self.wires.get_mut(&way).map(std::mem::take) else { return false };
        let (moved, link) = (!messages.is_empty(), self.links[&way]);
        for message in messages {
            if self.links.get(&way) == Some(&link) {
                self.said.push((from, to, message.clone()));
                self.handle(to, Event::PeerMessage { peer: id(from), link, message });
            }
        }
        moved
    }

    fn receive(&mut self, server: u8) -> bool {
        let Some((peer, transfer)) = self.at(server).receiving.filter(|_| !self.snapshots_wait) else { return false };
        let Some(bytes) = self.snapshots.remove(&(peer.as_u8(), server, transfer)) else { return false };
        let (disk, limits) = (Arc::new(self.disk(server).clone()), self.limits);
        let box_of = self.at_mut(server);
        box_of.receiving = None;
        let base = Base::list(&*disk).unwrap().last().map_or(0, |id| id + 1);
        let taken = SnapshotSink::begin(disk, base, &limits).and_then(|mut sink| {
            bytes.chunks(7_000).try_for_each(|chunk| sink.write(chunk))?;
            sink.finish()
        });
        let result = taken.map_err(|error| NotReceived::NotTaken(error.to_string())).map(|received| {
            box_of.next_base = Some(received.base);
            ReceivedSnapshot { base, state: received.state.unwrap() }
        });
        self.handle(server, Event::SnapshotReceived { peer, transfer, result });
        true
    }

    /// Puts a message on the wire that its sender did not send.
    pub fn inject(&mut self, from: u8, to: u8, message: PeerMessage) {
        self.wires.entry((from, to)).or_default().push_back(message);
    }

    /// Lets time pass, 10 ms at a time.
    pub fn advance(&mut self, ms: u64) {
        let until = self.now.mono_ms + ms;
        while self.now.mono_ms < until {
            self.now.mono_ms += 10;
            self.now.wall_ms += 10;
            for (a, b) in std::mem::take(&mut self.closed) {
                if self.runs(a) && self.runs(b) && !self.links.contains_key(&(a, b)) {
                    self.link(a, b);
                }
            }
            self.settle();
            for server in self.ids() {
                let now = self.now;
                if self.runs(server) && self.at(server).reserve.is_short() {
                    self.at_mut(server).merge(now);
                    self.carry_out(server);
                }
                if self.runs(server) && self.server(server).next_deadline().is_some_and(|at| at <= now.mono_ms) {
                    self.at_mut(server).server.handle_deadline(now);
                    self.carry_out(server);
                }
            }
            self.settle();
        }
    }

    /// Lets time pass until `is_so` holds.
    ///
    /// # Panics
    /// If `is_so` does not hold within ten seconds.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if is_so(self) {
                return;
            }
            self.advance(10);
        }
        panic!("not within ten seconds: {what}");
    }

    pub fn until_all_serve(&mut self) {
        self.until("everybody serves", |boxes| {
            boxes.ids().all(|server| !boxes.runs(server) || boxes.server(server).is_serving())
        });
    }

    /// Lets time pass until all running servers serve the same state.
    pub fn until_equal(&mut self) {
        self.until_all_serve();
        self.until("everybody has applied the same", |boxes| {
            let running = boxes.ids().filter(|&server| boxes.runs(server));
            let mut states =
                running.map(|server| boxes.server(server)).map(|server| (server.applied(), server.digest()));
            let first = states.next().unwrap();
            states.all(|state| state == first)
        });
    }

    /// Opens a session on this server and returns its connection.
    pub fn connect(&mut self, server: u8) -> ConnId {
        let conn = ConnId(self.number());
        let request = ConnectRequest::for_new_session(30_000);
        self.handle(server, Event::Connect { conn, peer: None, request });
        self.until("a session", |boxes| boxes.at(server).told.contains_key(&conn));
        let told = self.at_mut(server).told.remove(&conn);
        assert!(matches!(told.as_deref(), Some([Told::Connected(_)])), "{told:?}");
        conn
    }

    /// Sends a request; nothing is delivered yet.
    pub fn send(&mut self, server: u8, conn: ConnId, request: Request) {
        self.handle(server, Event::Request { conn, xid: 1, request });
    }

    /// Sends a request and returns its answer.
    pub fn ask(&mut self, server: u8, conn: ConnId, request: Request) -> Result<Reply, ErrorCode> {
        self.send(server, conn, request);
        self.until("an answer", |boxes| boxes.at(server).told.contains_key(&conn));
        match self.at_mut(server).told.remove(&conn).as_deref() {
            Some([Told::Reply(result)]) => result.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Takes what a connection received since the last call.
    pub fn told(&mut self, server: u8, conn: ConnId) -> Vec<Told> {
        self.at_mut(server).told.remove(&conn).unwrap_or_default()
    }

    /// Returns the server's status.
    pub fn status(&mut self, server: u8) -> Status {
        self.handle(server, Event::Status { ticket: 1 });
        *self.at_mut(server).status.take().expect("a status")
    }

    /// Returns whether `from` sent such a message to `to`.
    pub fn was_said(&self, from: u8, to: u8, is_it: impl Fn(&PeerMessage) -> bool) -> bool {
        self.said.iter().any(|(sender, receiver, message)| (*sender, *receiver) == (from, to) && is_it(message))
    }
}

impl Running {
    fn tell(&mut self, conn: ConnId, told: Told) {
        self.told.entry(conn).or_default().push(told);
    }

    fn tell_persisted(&mut self, now: Now) {
        let (seq, log_bytes_used, checkpoint) = (self.log.appended(), self.log.used_bytes(), self.log.checkpoint());
        self.server.handle(now, Event::Persisted { seq, log_bytes_used, checkpoint });
        let floor = self.log.floor();
        if std::mem::replace(&mut self.floor, floor) != floor {
            self.server.handle(now, Event::LogFloor { floor });
        }
    }

    /// Appends everything that waits, as the log thread does. Returns whether anything happened.
    fn append(&mut self, now: Now) -> bool {
        let before = self.log.appended();
        let error = match self.log.append(&self.waiting) {
            Ok(_) => {
                self.waiting.clear();
                if std::mem::take(&mut self.is_stalled) {
                    self.server.handle(now, Event::LogResumed);
                }
                self.tell_persisted(now);
                return true;
            }
            Err(AppendError::Stalled(error)) => error,
            Err(error @ AppendError::Fatal(_)) => panic!("{error}"),
        };
        let appended = self.log.appended();
        if appended > before {
            self.waiting.retain(|append| append.seq > appended);
            self.tell_persisted(now);
        }
        if let Some(shortage) = self.reserve.make_way(&error) {
            self.server.handle(now, Event::Space { shortage: Some(shortage) });
            return true;
        }
        let was_stalled = std::mem::replace(&mut self.is_stalled, true);
        if !was_stalled {
            self.server.handle(now, Event::LogStalled { is_read_only: false });
        }
        !was_stalled || appended > before
    }

    /// Merges and checks for room, as the checkpoint thread does.
    ///
    /// A merge during which readers hold an older generation takes more space.
    fn merge(&mut self, now: Now) {
        while self.reserve.merge(&self.base).unwrap_or(false) {
            self.serve();
        }
        self.recheck_space(now);
    }

    fn recheck_space(&mut self, now: Now) {
        if self.reserve.recheck(&self.base) {
            self.server.handle(now, Event::Space { shortage: self.reserve.shortage() });
        }
    }

    fn write(&mut self, now: Now, checkpoint: &Checkpoint) {
        let written = self.reserve.checkpoint(&self.base, checkpoint);
        self.recheck_space(now);
        if let Err(error) = written {
            return self.server.handle(now, Event::CheckpointFailed { reason: error.to_string() });
        }
        let generation = self.serve();
        self.log.recycle(checkpoint.meta.zxid);
        self.server.handle(now, Event::Checkpointed { generation });
        self.tell_persisted(now);
    }

    fn serve(&mut self) -> Generation {
        let reader = self.base.reader();
        let generation = Generation(self.generations_before + reader.generation().0);
        self.readers.insert(generation, reader);
        generation
    }

    fn serve_again(&self, generation: Generation) -> BaseReader {
        assert!(self.readers.contains_key(&generation), "it is held");
        self.base.reader()
    }

    fn read(&self, fetch: &Fetch) -> Result<Fetched, BaseFailure> {
        self.readers[&fetch.generation].fetch(&fetch.what)
    }
}
