//! The kinds of requests that the benches measure, and the servers that serve them.

use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use zoolet_machine::seam::action::{FetchWhat, FirstKeys};
use zoolet_machine::seam::event::Fetched;
use zoolet_machine::seam::ids::LinkId;
use zoolet_machine::seam::peer::PeerMessage;
use zoolet_machine::server::Start;
use zoolet_machine::{Action, ConnId, Event, Limits, Now, Server, Settings};
use zoolet_model::{
    ConnectRequest, Create, CreateKind, CreateMode, ErrorCode, Request, RequestedAcl, ServerId, Text, WriteOp, Zxid,
};
use zoolet_zab::{Config, Incarnation, Recovered, Timing};

/// Requests per batch of the log, as 8 connections with 64 in flight produce.
pub(crate) const BATCH: usize = 256;

const CONNECTIONS: u64 = 8;
const KEYS: usize = 1000;
const DATA: Bytes = Bytes::from_static(&[7; 100]);

/// Kinds of requests. Each is measured alone.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Set,
    Get,
    Mix,
    Absent,
    Create,
    Ping,
    Replicated,
    Forwarded,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] =
        [Self::Set, Self::Get, Self::Mix, Self::Absent, Self::Create, Self::Ping, Self::Replicated, Self::Forwarded];

    /// Returns the number of servers that serve the requests together.
    fn servers(self) -> u8 {
        match self {
            Self::Set | Self::Get | Self::Mix | Self::Absent | Self::Create | Self::Ping => 1,
            Self::Replicated | Self::Forwarded => 3,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::Mix => "mix",
            Self::Absent => "absent",
            Self::Create => "create",
            Self::Ping => "ping",
            Self::Replicated => "replicated",
            Self::Forwarded => "forwarded",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Set => "setData of 100 bytes, 1,000 znodes",
            Self::Get => "getData of 100 bytes, 1,000 znodes",
            Self::Mix => "nine getData and one setData",
            Self::Absent => "exists of an absent znode",
            Self::Create => "create and delete",
            Self::Ping => "ping",
            Self::Replicated => "the set at a leader, counting all three servers",
            Self::Forwarded => "the set at a learner, counting all three servers",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:<10} {}", self.name(), self.meaning()))
    }
}

/// Builds requests. The codec, which builds them in a server, is measured elsewhere.
pub(crate) struct Requests {
    paths: Vec<Text>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self { paths: (0..KEYS).map(path).collect() }
    }

    /// Returns batch number `round` of a kind.
    pub(crate) fn batch(&self, kind: Kind, round: usize) -> Vec<Request> {
        (round * BATCH..(round + 1) * BATCH).map(|at| self.request(kind, at)).collect()
    }

    fn request(&self, kind: Kind, at: usize) -> Request {
        match kind {
            Kind::Set | Kind::Replicated | Kind::Forwarded => self.set(at),
            Kind::Get => self.get(at),
            Kind::Mix if at.is_multiple_of(10) => self.set(at),
            Kind::Mix => self.get(at),
            Kind::Absent => Request::Exists { path: Text::from_static("/no"), watch: false },
            Kind::Create => {
                let name = path(KEYS + at / 2 % KEYS);
                if at.is_multiple_of(2) {
                    create(name, DATA)
                } else {
                    Request::Write(WriteOp::Delete { path: name, version: -1 })
                }
            }
            Kind::Ping => Request::Ping,
        }
    }

    fn set(&self, at: usize) -> Request {
        Request::Write(WriteOp::SetData { path: self.paths[at % KEYS].clone(), data: Some(DATA), version: -1 })
    }

    fn get(&self, at: usize) -> Request {
        Request::GetData { path: self.paths[at % KEYS].clone(), watch: false }
    }
}

pub(crate) fn path(at: usize) -> Text {
    Text::from(format!("/bench/{at:07}"))
}

pub(crate) fn create(path: Text, data: Bytes) -> Request {
    let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
    Request::Write(WriteOp::Create(Create {
        path,
        data: Some(data),
        acl: Some(RequestedAcl::open()),
        mode,
        with_stat: false,
    }))
}

/// Servers with 1,000 znodes. Every append is durable at once, and the bases are empty.
pub(crate) struct Machine {
    servers: Vec<Server>,
    /// Index of the server that the clients are connected to.
    port: usize,
    /// Messages in flight: index of the receiver, sender and link.
    wire: VecDeque<(usize, ServerId, LinkId, PeerMessage)>,
    now: Now,
    xid: i32,
    /// Whether each reply must say that the znode does not exist; otherwise each must be a success.
    expects_no_node: bool,
}

/// Virtual time within which the servers finish what they were given, in milliseconds.
const SETTLED_MS: u64 = 60_000;

impl Machine {
    /// Starts the servers that a kind of request is measured with.
    pub(crate) fn start(kind: Kind) -> Self {
        let now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
        let ids: Vec<ServerId> = (1..=kind.servers()).filter_map(ServerId::new).collect();
        let members = Config::of_voters(&ids).unwrap();
        let server = |&id: &ServerId| {
            let start = Start {
                limits: Limits { memtable_bytes: 1 << 30, ..Limits::default() },
                settings: Settings::default(),
                id,
                members: members.clone(),
                timing: Timing::default(),
                recovered: Recovered::empty(disk_of(id), members.clone()),
                base: None,
                chain_at_base: 0,
                seed: [id.as_u8(); 32],
                log_bytes_used: 0,
            };
            Server::new(start, now)
        };
        let servers = ids.iter().map(server).collect();
        let mut machine = Self { servers, port: 0, wire: VecDeque::new(), now, xid: 0, expects_no_node: false };
        machine.servers.iter_mut().for_each(|server| server.start(now));
        for &one in &ids {
            for &peer in ids.iter().filter(|&&peer| peer != one) {
                let (link, disk) = (link_of(one, peer), disk_of(peer));
                machine.servers[index_of(one)].handle(now, Event::PeerUp { peer, link, disk });
            }
        }
        while !machine.servers.iter().all(Server::is_serving) {
            machine.now.mono_ms += 10;
            assert!(machine.now.mono_ms < now.mono_ms + SETTLED_MS, "the servers do not serve");
            machine.servers.iter_mut().for_each(|server| server.handle_deadline(machine.now));
            machine.settle();
        }
        let leads_at_port = !matches!(kind, Kind::Forwarded);
        machine.port = machine.servers.iter().position(|server| server.leads() == leads_at_port).unwrap();
        (1..=CONNECTIONS).for_each(|conn| machine.connect(conn));
        machine.request(1, create(Text::from_static("/bench"), Bytes::new()));
        machine.settle();
        for at in 0..KEYS {
            machine.request(1, create(path(at), DATA));
        }
        machine.settle();
        machine.expects_no_node = matches!(kind, Kind::Absent);
        machine
    }

    pub(crate) fn connect(&mut self, conn: u64) {
        let request = ConnectRequest::for_new_session(30_000);
        self.handle(self.port, Event::Connect { conn: ConnId(conn), peer: None, request });
        self.settle();
    }

    /// Serves a batch; returns the number of replies.
    pub(crate) fn serve(&mut self, batch: Vec<Request>) -> usize {
        for (at, request) in batch.into_iter().enumerate() {
            // Each connection sends contiguous requests, so a znode's create and delete keep
            // their order.
            self.request(1 + at as u64 / (BATCH as u64 / CONNECTIONS), request);
        }
        self.settle()
    }

    pub(crate) fn request(&mut self, conn: u64, request: Request) {
        self.xid += 1;
        self.handle(self.port, Event::Request { conn: ConnId(conn), xid: self.xid, request });
    }

    fn handle(&mut self, at: usize, event: Event) {
        self.servers[at].handle(self.now, event);
    }

    /// Carries out all actions and delivers all messages; returns the number of replies.
    pub(crate) fn settle(&mut self) -> usize {
        let mut replies = 0;
        let until_ms = self.now.mono_ms + SETTLED_MS;
        loop {
            for at in 0..self.servers.len() {
                while let Some(action) = self.servers[at].poll_action() {
                    replies += usize::from(self.carry_out(at, action));
                }
            }
            if !self.wire.is_empty() {
                while let Some((at, peer, link, message)) = self.wire.pop_front() {
                    self.handle(at, Event::PeerMessage { peer, link, message });
                }
                continue;
            }
            let now_ms = self.now.mono_ms;
            let mut is_due = false;
            for server in &mut self.servers {
                if server.next_deadline().is_some_and(|at_ms| at_ms <= now_ms) {
                    server.handle_deadline(self.now);
                    is_due = true;
                }
            }
            if !is_due {
                if self.servers.iter().all(|server| server.unapplied() == 0) {
                    return replies;
                }
                // A leader may hold a Commit back for a moment.
                self.now.mono_ms += 1;
                assert!(self.now.mono_ms < until_ms, "entries are not applied");
            }
        }
    }

    /// Carries out one action; returns whether it is a reply.
    fn carry_out(&mut self, at: usize, action: Action) -> bool {
        match action {
            Action::Append(append) => {
                let persisted = Event::Persisted { seq: append.seq, log_bytes_used: 0, checkpoint: Zxid::ZERO };
                self.handle(at, persisted);
            }
            Action::PeerSend { peer, link, message } => {
                let sender = self.servers[at].zab().id();
                self.wire.push_back((index_of(peer), sender, link, message));
            }
            Action::Fetch(fetch) => {
                let nothing = match fetch.what {
                    FetchWhat::Record(_) => Fetched::Record(None),
                    FetchWhat::KeysUnder(_) => Fetched::Keys(Vec::new()),
                    FetchWhat::FirstKeys(_) => FirstKeys::of([]),
                    FetchWhat::Weights { .. } => Fetched::Weights(Vec::new(), true),
                };
                self.handle(at, Event::Fetched { id: fetch.id, result: Ok(nothing) });
            }
            Action::Reply { result, .. } => {
                assert_eq!(result.err(), self.expects_no_node.then_some(ErrorCode::NoNode));
                return true;
            }
            Action::Connected { .. } | Action::Close { .. } | Action::HoldLog { .. } => {}
            other => panic!("{other:?}"),
        }
        false
    }
}

fn index_of(server: ServerId) -> usize {
    usize::from(server.as_u8()) - 1
}

fn disk_of(server: ServerId) -> Incarnation {
    Incarnation(server.as_u8().into())
}

/// Returns the id of the link between two servers. Both ends use it.
fn link_of(one: ServerId, other: ServerId) -> LinkId {
    LinkId((1_u64 << one.as_u8()) | (1 << other.as_u8()))
}
