//! A correct ensemble made of naive references, which provides good histories for the oracles'
//! tests.
//!
//! It contains nothing of the engine. One list of steps is the history. Each server has carried out
//! a prefix of it and answers from that state. Reads and watches are handled by the server that a
//! client is connected to.

use super::history::{ClientId, End, History, Recorder};
use super::load::{Deed, Mix, Program};
use crate::reference::{Ids, RefOutput, Reference, Tree, Writer};
use crate::workload::Random;
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};
use zoolet_machine::ConnId;
use zoolet_machine::record::acl::Identity;
use zoolet_machine::txn::{self, Header, Op, Txn};
use zoolet_model::{
    ConnectReply, CreateMode, Epoch, ErrorCode, Request, ServerId, SessionId, SessionSecret, WriteOp, Zxid,
};

const WALL_MS: i64 = 1_700_000_000_000;

/// A step that every server carries out, in order.
#[derive(Clone, Debug)]
enum Step {
    Entry {
        zxid: Zxid,
        wall_ms: i64,
        payload: Bytes,
        what: What,
    },
    /// A connection takes over a session, if the session is alive. The connection's server then
    /// answers.
    Attach {
        conn: ConnId,
        session: i64,
    },
    Detach {
        conn: ConnId,
    },
}

#[derive(Clone, Debug)]
enum What {
    Nothing,
    Session,
    Request(ConnId, i32, Request),
    Expiry(i64),
}

struct Server {
    id: ServerId,
    done: usize,
    reference: Reference,
}

struct Client {
    program: Program,
    conn: Option<ConnId>,
    is_open: bool,
    /// Unanswered requests, as the server has them. `head_is_proposed` says that the write at the
    /// head is already proposed.
    queue: VecDeque<(i32, Request)>,
    head_is_proposed: bool,
    /// Number of steps that a sync at the head waits for.
    sync_from: Option<usize>,
    quiet_until_us: u64,
    next_ping_us: u64,
}

pub(super) struct Toy {
    random: Random,
    recorder: Recorder,
    now_us: u64,
    steps: Vec<Step>,
    last: Zxid,
    servers: Vec<Server>,
    clients: Vec<Client>,
    home: BTreeMap<ConnId, (usize, usize)>,
    /// Secret, timeout and last sign of life.
    sessions: BTreeMap<i64, (SessionSecret, u32, u64)>,
    next_conn: u64,
    next_xid: i32,
    /// Maximum number of requests that a client has in flight.
    depth: usize,
}

/// Runs the toy for `steps` steps.
pub(super) fn history(seed: u64, steps: u64) -> History {
    let mut toy = Toy::new(seed);
    for _ in 0..steps {
        toy.go_on();
    }
    toy.finish()
}

impl Toy {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let servers = (1..=1 + random.below(4) as u8).map(|id| Server {
            id: ServerId::new(id).expect("from 1"),
            done: 0,
            reference: Reference::new(None),
        });
        let servers: Vec<_> = servers.collect();
        let mix = Mix::drawn(&mut random);
        let clients = (0..4)
            .map(|number| Client {
                program: Program::new(seed, ClientId(number), mix, 1000 * (1 + number as i32)),
                conn: None,
                is_open: false,
                queue: VecDeque::new(),
                head_is_proposed: false,
                sync_from: None,
                quiet_until_us: 0,
                next_ping_us: 0,
            })
            .collect();
        let depth = 1 + random.below(4) as usize;
        let mut toy = Self {
            random,
            recorder: Recorder::new(),
            now_us: 1_000_000,
            steps: Vec::new(),
            last: Zxid::ZERO,
            servers,
            clients,
            home: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_conn: 0,
            next_xid: 0,
            depth,
        };
        for server in &toy.servers {
            toy.recorder.serving(toy.now_us, server.id, true);
        }
        toy.new_epoch();
        toy
    }

    fn new_epoch(&mut self) {
        self.last = Zxid::first_of(self.last.epoch().next().unwrap_or(Epoch::MAX));
        self.push(self.last, &Txn::NoOp, What::Nothing);
    }

    fn propose(&mut self, txn: &Txn<'_>, what: What) {
        self.last = self.last.next().expect("few entries");
        self.push(self.last, txn, what);
    }

    fn push(&mut self, zxid: Zxid, txn: &Txn<'_>, what: What) {
        let wall_ms = WALL_MS + (self.now_us / 1000) as i64;
        let header = Header { wall_ms, ensemble_ms: self.now_us / 1000, ..Header::default() };
        let payload = txn::encode(header, txn, &mut BytesMut::new());
        self.steps.push(Step::Entry { zxid, wall_ms, payload, what });
    }

    fn go_on(&mut self) {
        self.now_us += self.random.below(3000);
        match self.random.below(40) {
            0 if self.random.one_in(10) => self.new_epoch(),
            0..=17 => {
                let server = self.random.below(self.servers.len() as u64) as usize;
                self.carry_out(server);
            }
            18..=26 => {
                let client = self.random.below(self.clients.len() as u64) as usize;
                self.serve(client);
            }
            27 => self.expire(),
            28 if self.random.one_in(30) => {
                let client = self.random.below(self.clients.len() as u64) as usize;
                let end = if self.random.one_in(2) { End::Lost } else { End::ByServer };
                self.disconnect(client, end);
            }
            _ => {
                let client = self.random.below(self.clients.len() as u64) as usize;
                self.act(client);
            }
        }
        for client in 0..self.clients.len() {
            self.ping(client);
        }
    }

    // Clients.

    fn act(&mut self, who: usize) {
        let client = &mut self.clients[who];
        if client.quiet_until_us > self.now_us {
            return;
        }
        if client.conn.is_none() {
            return self.connect(who);
        }
        if !client.is_open || client.queue.len() >= self.depth {
            return;
        }
        match client.program.deed() {
            Deed::Ask(request) => self.ask(who, request),
            Deed::Leave => self.disconnect(who, End::ByClient),
            Deed::Think(thousandths) => {
                client.quiet_until_us = self.now_us + client.program.timeout_ms() * thousandths;
            }
            Deed::Silence(thousandths) => {
                client.quiet_until_us = self.now_us + client.program.timeout_ms() * thousandths;
                client.next_ping_us = client.quiet_until_us;
            }
        }
    }

    fn ping(&mut self, who: usize) {
        let client = &mut self.clients[who];
        if client.is_open && client.queue.is_empty() && client.next_ping_us <= self.now_us {
            self.ask(who, Request::Ping);
        }
    }

    fn ask(&mut self, who: usize, request: Request) {
        let client = &mut self.clients[who];
        let Some(conn) = client.conn else { return };
        self.next_xid += 1;
        self.recorder.invoked(self.now_us, conn, self.next_xid, request.clone());
        client.next_ping_us = self.now_us + client.program.timeout_ms() * 300;
        client.queue.push_back((self.next_xid, request));
        if let Some((_, _, heard_us)) =
            client.program.session().and_then(|reply| self.sessions.get_mut(&reply.session.0))
        {
            *heard_us = self.now_us;
        }
    }

    fn connect(&mut self, who: usize) {
        let server = self.random.below(self.servers.len() as u64) as usize;
        let client = &mut self.clients[who];
        let request = client.program.connect();
        if self.servers[server].reference.last_zxid() < request.last_zxid_seen {
            // The server lags behind the client, and a real one would close the connection.
            return;
        }
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        self.recorder.connecting(
            self.now_us,
            ClientId(who as u32),
            conn,
            self.servers[server].id,
            None,
            request.clone(),
        );
        (client.conn, client.is_open) = (Some(conn), false);
        self.home.insert(conn, (server, who));
        if request.session.0 == 0 {
            let timeout_ms = request.timeout_ms as u32;
            let secret = SessionSecret(std::array::from_fn(|_| self.random.below(256) as u8));
            self.propose(&Txn::CreateSession { timeout_ms, secret, home: None }, What::Session);
            self.sessions.insert(self.last.as_i64(), (secret, timeout_ms, self.now_us));
            self.steps.push(Step::Attach { conn, session: self.last.as_i64() });
        } else {
            if let Some((_, _, heard_us)) = self.sessions.get_mut(&request.session.0) {
                *heard_us = self.now_us;
            }
            self.steps.push(Step::Attach { conn, session: request.session.0 });
        }
    }

    fn disconnect(&mut self, who: usize, end: End) {
        let client = &mut self.clients[who];
        let Some(conn) = client.conn.take() else { return };
        client.is_open = false;
        client.queue.clear();
        (client.head_is_proposed, client.sync_from) = (false, None);
        self.recorder.ended(self.now_us, conn, end);
        self.home.remove(&conn);
        self.steps.push(Step::Detach { conn });
    }

    // The ensemble.

    fn expire(&mut self) {
        let now_us = self.now_us;
        let late =
            |(_, timeout_ms, heard_us): &(SessionSecret, u32, u64)| now_us > heard_us + u64::from(*timeout_ms) * 1000;
        // A client that waits for an answer is not silent.
        let busy: Vec<i64> = self
            .clients
            .iter()
            .filter(|client| !client.queue.is_empty() || client.conn.is_some() && !client.is_open)
            .filter_map(|client| Some(client.program.session()?.session.0))
            .collect();
        let due = self.sessions.iter().find(|(session, life)| late(life) && !busy.contains(session));
        if let Some((&session, _)) = due {
            self.sessions.remove(&session);
            self.propose(&Txn::CloseSession { session: SessionId(session) }, What::Expiry(session));
        }
    }

    /// A server handles the request at the head of a client's queue.
    fn serve(&mut self, who: usize) {
        let client = &mut self.clients[who];
        let (Some(conn), Some((xid, request))) = (client.conn, client.queue.front().cloned()) else { return };
        if !client.is_open || client.head_is_proposed {
            return;
        }
        let (server, _) = self.home[&conn];
        if Reference::is_ordered(&request) {
            client.head_is_proposed = true;
            let Some(session) = client.program.session().map(|reply| reply.session) else { return };
            if request == Request::CloseSession {
                self.sessions.remove(&session.0);
            }
            let what = What::Request(conn, xid, request.clone());
            with_txn(session, &request, |txn| self.propose(txn, what));
            return;
        }
        if matches!(request, Request::Sync { .. }) {
            let from = *client.sync_from.get_or_insert(self.steps.len());
            if self.servers[server].done < from {
                return;
            }
            client.sync_from = None;
        }
        let outputs = self.servers[server].reference.apply(conn, xid, &request, 0, 0);
        self.deliver(server, outputs);
    }

    fn carry_out(&mut self, at: usize) {
        let server = &mut self.servers[at];
        let Some(step) = self.steps.get(server.done).cloned() else { return };
        server.done += 1;
        let outputs = match step {
            Step::Entry { zxid, wall_ms, payload, what } => {
                self.recorder.committed(self.now_us, zxid, &payload);
                let number = zxid.as_i64();
                let header = txn::header(&payload).expect("the toy encodes its entries");
                server.reference.pass_time(header.ensemble_ms);
                match what {
                    What::Nothing => {
                        server.reference.pass_zxid(number);
                        Vec::new()
                    }
                    What::Session => {
                        server.reference.create_session(number);
                        Vec::new()
                    }
                    What::Request(conn, xid, request) => server.reference.apply(conn, xid, &request, number, wall_ms),
                    What::Expiry(session) => server.reference.expire(session, number),
                }
            }
            Step::Attach { conn, session } => return self.attach(at, conn, session),
            Step::Detach { conn } => {
                server.reference.disconnect(conn);
                Vec::new()
            }
        };
        self.deliver(at, outputs);
    }

    fn attach(&mut self, at: usize, conn: ConnId, session: i64) {
        let server = &mut self.servers[at];
        let lives = server.reference.sessions().any(|live| live == session);
        let outputs = if lives { server.reference.attach(conn, session, None) } else { Vec::new() };
        if let Some(&(home, who)) = self.home.get(&conn)
            && home == at
        {
            let (secret, timeout_ms) = match self.sessions.get(&session) {
                Some(&(secret, timeout_ms, _)) if lives => (secret, timeout_ms),
                // The session's end is in flight and will close the connection.
                _ if lives => (self.clients[who].program.session().expect("its own").secret, 1000),
                _ => (SessionSecret([0; 16]), 0),
            };
            let reply = ConnectReply {
                timeout_ms: timeout_ms as i32,
                session: SessionId(if lives { session } else { 0 }),
                secret,
                read_only_byte: false,
                read_only_ms: None,
            };
            self.recorder.connected(self.now_us, conn, reply);
            let client = &mut self.clients[who];
            client.program.connected(reply);
            client.is_open = lives;
            client.next_ping_us = self.now_us;
            if !lives {
                self.disconnect(who, End::ByServer);
            }
        }
        self.deliver(at, outputs);
    }

    fn deliver(&mut self, at: usize, outputs: Vec<RefOutput>) {
        for output in outputs {
            let Some(&(home, who)) = self.home.get(&output.conn()) else { continue };
            if home != at {
                continue;
            }
            let client = &mut self.clients[who];
            match output {
                RefOutput::Notify { conn, event } => {
                    self.recorder.notified(self.now_us, conn, event.clone());
                    client.program.notified(&event);
                }
                RefOutput::Reply { conn, xid, zxid, result } => {
                    self.recorder.answered(self.now_us, conn, xid, zxid, result.clone());
                    let Some((_, request)) = client.queue.pop_front() else { continue };
                    client.head_is_proposed = false;
                    client.program.answered(&request, zxid, &result);
                }
                RefOutput::Close { .. } => self.disconnect(who, End::ByServer),
            }
        }
    }

    fn settle(&mut self) {
        loop {
            let before = self.steps.len();
            for server in 0..self.servers.len() {
                while self.servers[server].done < self.steps.len() {
                    self.carry_out(server);
                }
            }
            for client in 0..self.clients.len() {
                self.serve(client);
            }
            let idle = self.clients.iter().all(|client| client.queue.is_empty());
            if before == self.steps.len() && idle {
                return;
            }
        }
    }

    fn finish(mut self) -> History {
        self.recorder.healthy(self.now_us, true);
        self.settle();
        // One client stays connected and goes on. All others fall silent, and their sessions end.
        for who in 1..self.clients.len() {
            self.disconnect(who, End::ByClient);
        }
        for _ in 0..200 {
            self.now_us += 100_000;
            self.ping(0);
            self.expire();
            self.settle();
        }
        let now_us = self.now_us;
        self.recorder.finish(now_us, true)
    }
}

fn with_txn(session: SessionId, request: &Request, then: impl FnOnce(&Txn<'_>)) {
    let identity = Identity::default();
    match request {
        Request::CloseSession => then(&Txn::CloseSession { session }),
        Request::Write(write) => then(&Txn::Write { session, identity, op: op(write) }),
        Request::Multi(writes) => then(&Txn::Multi { session, identity, ops: writes.iter().map(op).collect() }),
        other => panic!("the load has no {other:?}"),
    }
}

/// Returns the operation of a write. Every znode is open to every client.
fn op(write: &WriteOp) -> Op<'_> {
    let writer = Writer { session: 0, ids: Ids::of_peer(None), zxid: 0, wall_ms: 0, enforces_quotas: false };
    if let Err(code @ (ErrorCode::BadArguments | ErrorCode::Unimplemented)) =
        Tree::new().answer_write(&writer, write, &mut Vec::new())
    {
        return Op::Refused(code);
    }
    match write {
        WriteOp::Create(create) => {
            let CreateMode::Valid { kind, sequential } = create.mode else { panic!("the load makes no such create") };
            let (data, with_stat) = (create.data.as_deref(), create.with_stat);
            Op::Create { path: &create.path, data, acl: &[], kind, sequential, with_stat }
        }
        WriteOp::Delete { path, version } => Op::Delete { path, version: *version },
        WriteOp::SetData { path, data, version } => Op::SetData { path, data: data.as_deref(), version: *version },
        WriteOp::SetAcl { path, version, .. } => Op::SetAcl { path, acl: &[], version: *version },
        WriteOp::Check { path, version } => Op::Check { path, version: *version },
    }
}
