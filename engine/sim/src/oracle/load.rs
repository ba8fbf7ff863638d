//! A workload for clients of an ensemble, designed so that the oracles find violations.
//!
//! It uses few znodes, so that clients compete. Each piece of data is unique, so that it identifies
//! its writer. It includes syncs followed by reads, watches of every kind, ends of sessions, and
//! reconnects.
//!
//! A [`Program`] is one client. It chooses its next action and remembers the answers, as a real
//! client does. It knows neither time nor servers: its driver decides when to ask it and where it
//! connects.

use super::history::ClientId;
use crate::ensemble::Asks;
use crate::workload::{Random, over_one_path, ttl};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zoolet_model::{
    AddWatchMode, ConnectReply, ConnectRequest, Create, CreateKind, CreateMode, ErrorCode, EventKind, ReadOp, Reply,
    Request, RequestedAcl, SessionId, SetWatches, Text, WatchEvent, WatcherType, WriteOp,
};

/// A client's next action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Send this request.
    Ask(Request),
    /// Leave the connection, and return with the same session to any server.
    Leave,
    /// Send no requests for this many thousandths of the session timeout, but go on with pings.
    Think(u64),
    /// Send nothing for this many thousandths of the session timeout, not even pings.
    Silence(u64),
}

/// Relative frequencies of the clients' actions in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the requests'")]
pub struct Mix {
    pub creates: u64,
    pub deletes: u64,
    pub sets: u64,
    pub multis: u64,
    pub reads: u64,
    pub syncs: u64,
    pub watches: u64,
    pub pings: u64,
    /// Thoughts and silences.
    pub pauses: u64,
    /// Connections left.
    pub leaves: u64,
    /// Sessions closed.
    pub closes: u64,
}

impl Mix {
    /// Draws the frequencies for a run.
    pub fn drawn(random: &mut Random) -> Self {
        let mut around = |parts: u64| parts / 2 + random.below(parts + 1);
        Self {
            creates: around(160),
            deletes: around(100),
            sets: around(160),
            multis: around(100),
            reads: around(240),
            syncs: around(60),
            watches: around(60),
            pings: around(20),
            pauses: around(40),
            leaves: around(10),
            closes: around(5),
        }
    }
}

/// The kinds of a client's watches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Watched {
    Data,
    Absent,
    Child,
    Persistent,
    Recursive,
}

/// Znodes that exist always or nearly always.
const PARENTS: [&str; 3] = ["/a", "/b", "/a/d"];
/// Names of the znodes that come and go below `PARENTS`.
const NAMES: [&str; 4] = ["x", "y", "z", "d"];
/// Sequential znodes that a client keeps; it deletes older ones.
const OWN_MAX: usize = 4;

/// One client.
#[derive(Clone, Debug)]
pub struct Program {
    random: Random,
    /// Draws the multis over one path. A separate stream keeps the other requests of each seed
    /// unchanged.
    repeats: Random,
    /// Draws the times to live, in a separate stream as well.
    ttls: Random,
    mix: Mix,
    client: ClientId,
    timeout_ms: i32,
    serial: u64,
    session: Option<ConnectReply>,
    last_zxid: i64,
    watched: BTreeSet<(Text, Watched)>,
    versions: BTreeMap<Text, i32>,
    /// Sequential znodes that it created, oldest first.
    own: VecDeque<Text>,
    /// Requests to send before any other.
    next: VecDeque<Request>,
}

impl Program {
    /// Creates a client that requests sessions with this timeout.
    pub fn new(seed: u64, client: ClientId, mix: Mix, timeout_ms: i32) -> Self {
        let mixed = seed ^ u64::from(client.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self {
            random: Random::new(mixed),
            repeats: Random::new(mixed ^ 0x07e9_ea75),
            ttls: Random::new(mixed ^ 0x0077_1771),
            mix,
            client,
            timeout_ms,
            serial: 0,
            session: None,
            last_zxid: 0,
            watched: BTreeSet::new(),
            versions: BTreeMap::new(),
            own: VecDeque::new(),
            next: VecDeque::new(),
        }
    }

    /// Returns its current session.
    pub fn session(&self) -> Option<&ConnectReply> {
        self.session.as_ref()
    }

    /// Returns the session timeout in milliseconds, as granted; before that, as it will request it.
    pub fn timeout_ms(&self) -> u64 {
        let timeout_ms = self.session.as_ref().map_or(self.timeout_ms, |session| session.timeout_ms);
        u64::try_from(timeout_ms).unwrap_or(0)
    }

    /// Returns the connect request of its next connection.
    pub fn connect(&self) -> ConnectRequest {
        match &self.session {
            None => {
                ConnectRequest { last_zxid_seen: self.last_zxid, ..ConnectRequest::for_new_session(self.timeout_ms) }
            }
            Some(session) => ConnectRequest {
                last_zxid_seen: self.last_zxid,
                timeout_ms: self.timeout_ms,
                session: session.session,
                password: Some(Bytes::copy_from_slice(&session.secret.0)),
                read_only: None,
            },
        }
    }

    /// Handles the answer to its connect request.
    pub fn connected(&mut self, reply: ConnectReply) {
        self.next.clear();
        if reply.session == SessionId(0) {
            return self.ended();
        }
        let is_new = self.session.is_none_or(|session| session.session != reply.session);
        if is_new {
            self.ended();
        }
        self.session = Some(reply);
        if is_new {
            // The first client creates the parents; for all others they exist already.
            self.next = PARENTS.iter().map(|path| self.create((*path).into(), CreateKind::Persistent, false)).collect();
        } else {
            let again = self.watches_again();
            self.next.push_back(Request::SetWatches(again));
        }
    }

    /// Handles an answer.
    pub fn answered(&mut self, request: &Request, zxid: i64, result: &Result<Reply, ErrorCode>) {
        self.last_zxid = self.last_zxid.max(zxid);
        self.learn(request, result);
        if *request == Request::CloseSession || *result == Err(ErrorCode::SessionExpired) {
            self.ended();
        }
    }

    /// Handles an event. As in real clients, the event's zxid does not count as seen.
    pub fn notified(&mut self, event: &WatchEvent) {
        let WatchEvent { kind, path, zxid: _ } = event;
        let gone: &[Watched] = match kind {
            EventKind::NodeCreated | EventKind::NodeDataChanged => &[Watched::Data, Watched::Absent],
            EventKind::NodeDeleted => &[Watched::Data, Watched::Absent, Watched::Child],
            EventKind::NodeChildrenChanged => &[Watched::Child],
        };
        for kind in gone {
            self.watched.remove(&(path.clone(), *kind));
        }
        if self.random.one_in(3) {
            // Often a client reads after an event, and watches again.
            let (path, watch) = (path.clone(), self.random.one_in(2));
            self.next.push_back(match kind {
                EventKind::NodeChildrenChanged => Request::GetChildren { path, watch, with_stat: true },
                EventKind::NodeDeleted => Request::Exists { path, watch },
                EventKind::NodeCreated | EventKind::NodeDataChanged => Request::GetData { path, watch },
            });
        }
    }

    fn ended(&mut self) {
        self.session = None;
        self.watched.clear();
        self.own.clear();
        self.next.clear();
    }

    fn learn(&mut self, request: &Request, result: &Result<Reply, ErrorCode>) {
        let (path, kind) = match (request, result) {
            (Request::GetData { path, watch }, Ok(Reply::Data(_, stat))) => {
                self.versions.insert(path.clone(), stat.version);
                (watch.then_some(path), Watched::Data)
            }
            (Request::Exists { path, watch }, Ok(Reply::Stat(stat))) => {
                self.versions.insert(path.clone(), stat.version);
                (watch.then_some(path), Watched::Data)
            }
            (Request::Exists { path, watch }, Err(ErrorCode::NoNode)) => (watch.then_some(path), Watched::Absent),
            (Request::GetChildren { path, watch, .. }, Ok(_)) => (watch.then_some(path), Watched::Child),
            (Request::AddWatch { path, mode }, Ok(_)) => (
                Some(path),
                match mode {
                    AddWatchMode::Persistent => Watched::Persistent,
                    AddWatchMode::PersistentRecursive => Watched::Recursive,
                },
            ),
            (Request::RemoveWatches { path, .. }, Ok(_)) => {
                // The request removes watches of all kinds.
                self.watched.retain(|(watched, _)| watched != path);
                return;
            }
            (Request::Write(WriteOp::SetData { path, .. }), Ok(Reply::Stat(stat))) => {
                self.versions.insert(path.clone(), stat.version);
                return;
            }
            (Request::Write(WriteOp::Create(create)), Ok(Reply::Path(path) | Reply::PathStat(path, _))) => {
                if *path != create.path {
                    self.own.push_back(path.clone());
                }
                self.versions.insert(path.clone(), 0);
                return;
            }
            _ => return,
        };
        if let Some(path) = path {
            self.watched.insert((path.clone(), kind));
        }
    }

    /// Returns its next action on an open connection.
    pub fn deed(&mut self) -> Deed {
        if let Some(request) = self.next.pop_front() {
            return Deed::Ask(request);
        }
        if self.own.len() > OWN_MAX
            && let Some(path) = self.own.pop_front()
        {
            return Deed::Ask(Request::Write(WriteOp::Delete { path, version: -1 }));
        }
        let Mix { creates, deletes, sets, multis, reads, syncs, watches, pings, pauses, leaves, closes } = self.mix;
        let parts = [creates, deletes, sets, multis, reads, syncs, watches, pings, pauses, leaves, closes];
        let mut at = self.random.below(parts.iter().sum::<u64>().max(1));
        let choice = parts.iter().position(|&part| {
            let is_it = at < part;
            at = at.saturating_sub(part);
            is_it
        });
        Deed::Ask(match choice {
            Some(0) => self.any_create(),
            Some(1) => Request::Write(self.delete()),
            Some(2) => Request::Write(self.set()),
            Some(3) => self.multi(),
            Some(5) => {
                let behind = 1 + self.random.below(3);
                for _ in 0..behind {
                    let read = self.read();
                    self.next.push_back(read);
                }
                Request::Sync { path: Some(self.parent()) }
            }
            Some(6) => self.watch(),
            Some(7) => Request::Ping,
            // Silences rarely exceed the session timeout, and then by a wide margin.
            Some(8) => {
                return match self.random.below(16) {
                    0 => Deed::Silence(1500 + self.random.below(1500)),
                    1..=3 => Deed::Silence(self.random.below(700)),
                    _ => Deed::Think(self.random.below(2000)),
                };
            }
            Some(9) => return Deed::Leave,
            Some(10) => Request::CloseSession,
            _ => self.read(),
        })
    }

    fn any_create(&mut self) -> Request {
        let kind = match self.random.below(8) {
            0..=2 => CreateKind::Persistent,
            3..=6 => CreateKind::Ephemeral,
            _ => CreateKind::Container,
        };
        if self.random.one_in(3) {
            let path = format!("{}/s-", self.parent());
            return self.create(path.into(), kind, true);
        }
        let path = self.path();
        self.create(path, kind, false)
    }

    fn create(&mut self, path: Text, kind: CreateKind, sequential: bool) -> Request {
        Request::Write(self.create_op(path, kind, sequential))
    }

    fn create_op(&mut self, path: Text, kind: CreateKind, sequential: bool) -> WriteOp {
        let lives_shortly = kind == CreateKind::Persistent && self.ttls.one_in(4);
        let kind = if lives_shortly { ttl(&mut self.ttls) } else { kind };
        let (data, with_stat) = (self.data(), self.random.one_in(2));
        let mode = CreateMode::Valid { kind, sequential };
        WriteOp::Create(Create { path, data, acl: Some(RequestedAcl::open()), mode, with_stat })
    }

    fn delete(&mut self) -> WriteOp {
        let path = self.path();
        let version = self.version(&path);
        WriteOp::Delete { path, version }
    }

    fn set(&mut self) -> WriteOp {
        let path = if self.random.one_in(4) { self.parent() } else { self.path() };
        let (data, version) = (self.data(), self.version(&path));
        WriteOp::SetData { path, data, version }
    }

    /// Returns a multi that mostly succeeds: it uses known versions and related znodes.
    fn multi(&mut self) -> Request {
        let mut ops = Vec::new();
        if self.random.one_in(2) {
            let path = self.path();
            let version = self.version(&path);
            ops.push(WriteOp::Check { path, version });
        }
        for _ in 0..self.random.below(4) {
            let op = match self.random.below(5) {
                0 => self.delete(),
                1 | 2 => {
                    let path = self.parent();
                    WriteOp::SetData { path, data: self.data(), version: -1 }
                }
                3 => {
                    let (path, kind) = (format!("{}/s-", self.parent()), self.ephemeral_or_not());
                    self.create_op(path.into(), kind, true)
                }
                _ => {
                    let (path, kind) = (self.path(), self.ephemeral_or_not());
                    self.create_op(path, kind, false)
                }
            };
            ops.push(op);
        }
        Request::Multi(if self.repeats.one_in(4) { self.over_one_path() } else { ops })
    }

    /// Returns several creates and deletes of one path.
    fn over_one_path(&mut self) -> Vec<WriteOp> {
        let path = Text::from(format!("{}/{}", self.repeats.pick(&PARENTS), self.repeats.pick(&NAMES)));
        let (serial, client) = (&mut self.serial, self.client);
        over_one_path(&mut self.repeats, &path, |random| {
            *serial += 1;
            Create {
                path: Text::EMPTY,
                data: Some(format!("{}:{serial}", client.0).into_bytes().into()),
                acl: Some(RequestedAcl::open()),
                mode: CreateMode::Valid {
                    kind: *random.pick(&[CreateKind::Ephemeral, CreateKind::Ephemeral, CreateKind::Persistent]),
                    sequential: false,
                },
                with_stat: random.one_in(2),
            }
        })
    }

    fn ephemeral_or_not(&mut self) -> CreateKind {
        if self.random.one_in(2) { CreateKind::Ephemeral } else { CreateKind::Persistent }
    }

    fn read(&mut self) -> Request {
        let watch = self.random.one_in(3);
        match self.random.below(16) {
            0..=5 => Request::GetData { path: self.path(), watch },
            6..=8 => Request::Exists { path: self.path(), watch },
            9..=12 => Request::GetChildren { path: self.parent(), watch, with_stat: self.random.one_in(2) },
            13 => Request::GetEphemerals { prefix: None },
            14 => Request::GetAllChildrenNumber { path: self.parent() },
            _ => Request::MultiRead(vec![
                ReadOp::GetData { path: self.path() },
                ReadOp::GetChildren { path: self.parent() },
                ReadOp::GetData { path: self.parent() },
            ]),
        }
    }

    fn watch(&mut self) -> Request {
        let path = if self.random.one_in(2) { self.parent() } else { self.path() };
        match self.random.below(8) {
            0..=2 => Request::AddWatch { path, mode: AddWatchMode::Persistent },
            3..=4 => Request::AddWatch { path, mode: AddWatchMode::PersistentRecursive },
            5 => Request::CheckWatches { path, kind: WatcherType::Any },
            6 => Request::RemoveWatches { path, kind: WatcherType::Any },
            _ => Request::SetWatches(self.watches_again()),
        }
    }

    /// Returns all its watches, with the newest zxid that it has seen.
    fn watches_again(&self) -> SetWatches {
        let of = |kind: Watched| {
            let paths = self.watched.iter().filter(|(_, watched)| *watched == kind);
            paths.map(|(path, _)| path.clone()).collect::<Vec<_>>()
        };
        SetWatches {
            relative_zxid: self.last_zxid,
            data: of(Watched::Data),
            exist: of(Watched::Absent),
            child: of(Watched::Child),
            persistent: of(Watched::Persistent),
            persistent_recursive: of(Watched::Recursive),
        }
    }

    fn parent(&mut self) -> Text {
        (*self.random.pick(&PARENTS)).into()
    }

    fn path(&mut self) -> Text {
        if self.random.one_in(10)
            && let Some(own) = self.own.front()
        {
            return own.clone();
        }
        let name = *self.random.pick(&NAMES);
        format!("{}/{name}", self.parent()).into()
    }

    /// Returns the newest known version, any version, or one that is hardly ever right.
    fn version(&mut self, path: &Text) -> i32 {
        match self.random.below(4) {
            0 => -1,
            1 => self.random.below(3) as i32,
            _ => self.versions.get(path).copied().unwrap_or(-1),
        }
    }

    /// Returns data that is unique in the run.
    fn data(&mut self) -> Option<Bytes> {
        self.serial += 1;
        let mut data = format!("{}:{}", self.client.0, self.serial).into_bytes();
        if self.random.one_in(40) {
            // Large data is stored elsewhere than small data.
            data.resize(1100, b'.');
        }
        Some(data.into())
    }
}

/// A [`Program`] as a client of the [simulator of ensembles](crate::ensemble).
///
/// The program chooses the requests; the simulator's client does everything else, such as pings and
/// pauses.
#[derive(Debug)]
pub struct Asking {
    program: Program,
    under_way: VecDeque<Request>,
}

impl Asking {
    /// Creates the requests of one client.
    pub fn new(seed: u64, client: ClientId, mix: Mix) -> Self {
        Self { program: Program::new(seed, client, mix, 0), under_way: VecDeque::new() }
    }
}

impl Asks for Asking {
    fn next(&mut self, _last_zxid: i64) -> Request {
        let request = loop {
            match self.program.deed() {
                // The simulator's client sends the pings.
                Deed::Ask(Request::Ping) => break Request::Sync { path: None },
                Deed::Ask(request) => break request,
                Deed::Leave | Deed::Think(_) | Deed::Silence(_) => {}
            }
        };
        self.under_way.push_back(request.clone());
        request
    }

    fn connected(&mut self, reply: &ConnectReply) {
        self.under_way.clear();
        self.program.connected(*reply);
    }

    fn answered(&mut self, zxid: i64, result: &Result<Reply, ErrorCode>) {
        if let Some(request) = self.under_way.pop_front() {
            self.program.answered(&request, zxid, result);
        }
    }

    fn notified(&mut self, event: &WatchEvent) {
        self.program.notified(event);
    }
}
