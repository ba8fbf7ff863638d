//! Clients that write and read through all servers, and keep every answer.
//!
//! Each client has a connection with several requests in flight. It sets shared keys to values that
//! no other client ever writes, and reads keys after a sync. When its server fails, the client
//! continues its session at the next server. The outcome of the requests in flight is then unknown.

use crate::history::{Act, Answer, Operation};
use crate::{Outcome, said};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zoolet_model::{ConnectReply, CreateKind, CreateMode, Reply, Request, WriteOp};
use zoolet_powercut::client::{Client, Joined};
use zoolet_powercut::load::create;
use zoolet_powercut::random::Random;
use zoolet_transport::wire::client_side::Shape as ReplyShape;

/// Delay between two attempts to connect.
const RETRY: Duration = Duration::from_millis(10);
/// Value of every key at first.
pub const FIRST: u64 = 0;
/// Parent of all keys.
pub const TOP: &str = "/load";

/// Parameters of a load.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Number of clients, spread over the servers.
    pub clients: usize,
    /// Requests in flight of each client.
    pub outstanding: usize,
    /// Number of keys, shared by all clients.
    pub keys: usize,
    /// Bytes of each value; at least 16.
    pub bytes: usize,
    /// Reads among 100 requests.
    pub reads_per_cent: u64,
    /// Pause of a client between two batches of requests; zero for full speed.
    pub pause: Duration,
    /// Timeout of each session, in milliseconds.
    pub session_timeout_ms: i32,
    /// Time that a client waits for an answer before it goes to the next server.
    pub patience: Duration,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            clients: 6,
            outstanding: 8,
            keys: 40,
            bytes: 100,
            reads_per_cent: 30,
            pause: Duration::from_millis(2),
            session_timeout_ms: 10_000,
            patience: Duration::from_secs(3),
        }
    }
}

/// Running clients.
pub struct Load {
    epoch: Instant,
    shape: Shape,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Done>>,
}

/// Observations of one client.
#[derive(Default)]
struct Done {
    operations: Vec<Operation>,
    errors: BTreeMap<String, u64>,
    sessions_lost: u64,
    moves: u64,
    wrong: Option<String>,
}

/// Observations of all clients.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Every request with its answer.
    pub operations: Vec<Operation>,
    /// Errors that servers returned, by name. A write with an error has no effect.
    pub errors: BTreeMap<String, u64>,
    /// Sessions that had ended when a client tried to continue them.
    pub sessions_lost: u64,
    /// Connections that ended before the load was over.
    pub moves: u64,
}

impl Seen {
    /// Returns the number of acknowledged writes.
    pub fn acknowledged(&self) -> usize {
        let is_write = |operation: &&Operation| matches!(operation.act, Act::Set(_)) && operation.answer.is_some();
        self.operations.iter().filter(is_write).count()
    }
}

/// Returns the path of a key.
pub fn path(key: usize) -> String {
    format!("{TOP}/k{key}")
}

/// Reads the value from the data of a znode; `None` if there is none.
pub fn value(data: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(data.get(..16)?).ok()?, 16).ok()
}

fn data(value: u64, bytes: usize) -> Bytes {
    let mut data = format!("{value:016x}").into_bytes();
    data.resize(bytes.max(16), b'.');
    data.into()
}

/// Creates all keys, which must not exist.
///
/// # Errors
/// A server does not answer, or refuses.
pub fn make_keys(server: SocketAddr, shape: &Shape) -> Outcome<()> {
    let joined = Client::join(server, None, shape.session_timeout_ms, shape.patience).map_err(said(server))?;
    let Joined::Client(mut client) = joined else { return Err(format!("{server} gives no session")) };
    let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
    for path in std::iter::once(TOP.to_owned()).chain((0..shape.keys).map(path)) {
        let answer = client.ask(&Request::Write(create(&path, data(FIRST, shape.bytes), mode))).map_err(said(&path))?;
        match answer {
            Some((_, Ok(_))) => {}
            other => return Err(format!("create {path}: {other:?}")),
        }
    }
    client.ask(&Request::CloseSession).map(drop).map_err(said(server))
}

impl Load {
    /// Starts the clients. The keys have to exist.
    pub fn start(servers: &[SocketAddr], shape: &Shape, seed: u64) -> Self {
        let (epoch, is_over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let start = |number: usize| {
            let worker = Worker {
                number,
                servers: servers.to_vec(),
                at: number,
                shape: shape.clone(),
                random: Random::new(seed).fork(number as u64),
                epoch,
                is_over: is_over.clone(),
                acknowledged: acknowledged.clone(),
                values: 0,
                session: None,
                done: Done::default(),
            };
            std::thread::spawn(move || worker.run())
        };
        let threads = (0..shape.clients).map(start).collect();
        Self { epoch, shape: shape.clone(), is_over, acknowledged, threads }
    }

    /// Returns the time on the clock of the operations.
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Returns the number of acknowledged writes so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Relaxed)
    }

    /// Waits until `writes` more writes are acknowledged.
    ///
    /// # Errors
    /// They are not acknowledged within `patience`.
    pub fn wait_for(&self, writes: u64, patience: Duration) -> Outcome<()> {
        let (until, target) = (Instant::now() + patience, self.acknowledged() + writes);
        while self.acknowledged() < target {
            if Instant::now() > until {
                let missing = target - self.acknowledged();
                return Err(format!("of {writes} writes {missing} are not acknowledged after {patience:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Ends the load, and returns what the clients saw.
    ///
    /// # Errors
    /// A client got an answer that does not fit its request, or panicked.
    pub fn finish(self) -> Outcome<Seen> {
        self.is_over.store(true, Relaxed);
        let mut seen = Seen::default();
        for (number, thread) in self.threads.into_iter().enumerate() {
            let done = thread.join().map_err(|_| format!("client {number} of {:?} panicked", self.shape))?;
            if let Some(wrong) = done.wrong {
                return Err(format!("client {number}: {wrong}"));
            }
            seen.operations.extend(done.operations);
            done.errors.into_iter().for_each(|(code, count)| *seen.errors.entry(code).or_default() += count);
            seen.sessions_lost += done.sessions_lost;
            seen.moves += done.moves;
        }
        Ok(seen)
    }
}

/// A request in flight.
#[derive(Clone, Copy)]
struct UnderWay {
    /// Index among the client's operations.
    operation: usize,
    /// Xid of the last request of the operation.
    xid: i32,
}

struct Worker {
    number: usize,
    servers: Vec<SocketAddr>,
    at: usize,
    shape: Shape,
    random: Random,
    epoch: Instant,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    values: u64,
    session: Option<ConnectReply>,
    done: Done,
}

impl Worker {
    fn run(mut self) -> Done {
        while !self.is_over.load(Relaxed) && self.done.wrong.is_none() {
            match self.connect() {
                Some(mut client) => {
                    self.exchange(&mut client);
                    self.done.moves += u64::from(!self.is_over.load(Relaxed));
                }
                None => std::thread::sleep(RETRY),
            }
            self.at += 1;
        }
        self.done
    }

    fn connect(&mut self) -> Option<Client> {
        let server = self.servers[self.at % self.servers.len()];
        let Shape { session_timeout_ms, patience, .. } = self.shape;
        match Client::join(server, self.session.as_ref(), session_timeout_ms, patience).ok()? {
            Joined::Client(client) => {
                self.session = Some(client.session);
                Some(client)
            }
            Joined::Refused => {
                self.session = None;
                self.done.sessions_lost += 1;
                None
            }
            Joined::Gone => None,
        }
    }

    /// Exchanges requests and answers until the connection fails or the load is over.
    ///
    /// At the end of the load it closes the session.
    fn exchange(&mut self, client: &mut Client) {
        let mut under_way: VecDeque<UnderWay> = VecDeque::new();
        loop {
            let is_over = self.is_over.load(Relaxed);
            while !is_over && under_way.len() < self.shape.outstanding {
                under_way.push_back(self.queue(client));
            }
            if !matches!(client.flush(), Ok(true)) {
                return;
            }
            let left = if is_over { 0 } else { self.shape.outstanding / 2 };
            while under_way.len() > left {
                let Some(&next) = under_way.front() else { break };
                if !self.receive(client, next) {
                    return;
                }
                under_way.pop_front();
            }
            if is_over {
                // If the server does not receive this, the session ends by its timeout.
                let _ = client.ask(&Request::CloseSession);
                return;
            }
            std::thread::sleep(self.shape.pause);
        }
    }

    fn queue(&mut self, client: &mut Client) -> UnderWay {
        let key = self.random.below(self.shape.keys as u64) as usize;
        let (act, xid) = if self.random.chance(self.shape.reads_per_cent) {
            client.queue(&Request::Sync { path: Some(path(key).as_str().into()) });
            (Act::Read, client.queue(&Request::GetData { path: path(key).as_str().into(), watch: false }))
        } else {
            self.values += 1;
            let value = (self.number as u64 + 1) << 40 | self.values;
            let data = Some(data(value, self.shape.bytes));
            let set = WriteOp::SetData { path: path(key).as_str().into(), data, version: -1 };
            (Act::Set(value), client.queue(&Request::Write(set)))
        };
        let server = (self.at % self.servers.len()) as u8 + 1;
        let sent = self.epoch.elapsed();
        self.done.operations.push(Operation { key, act, sent, client: self.number, server, answer: None });
        UnderWay { operation: self.done.operations.len() - 1, xid }
    }

    /// Receives the answer to an operation. Returns false if the connection failed or the answer is
    /// wrong.
    fn receive(&mut self, client: &mut Client, UnderWay { operation, xid }: UnderWay) -> bool {
        let act = self.done.operations[operation].act;
        let shape = match act {
            Act::Set(_) => ReplyShape::Stat,
            Act::Read => {
                if !matches!(client.receive(ReplyShape::Synced), Ok(Some(_))) {
                    return false;
                }
                ReplyShape::Data
            }
        };
        let Ok(Some((header, reply))) = client.receive(shape) else { return false };
        let at = self.epoch.elapsed();
        if header.xid != xid {
            self.done.wrong = Some(format!("request {xid} is answered as {}", header.xid));
            return false;
        }
        let answer = match (act, reply) {
            (Act::Set(value), Ok(Reply::Stat(stat))) => Answer { at, version: stat.version, value },
            (Act::Read, Ok(Reply::Data(data, stat))) => match data.as_deref().and_then(value) {
                Some(value) => Answer { at, version: stat.version, value },
                None => {
                    self.done.wrong = Some(format!("key {} holds {data:?}", self.done.operations[operation].key));
                    return false;
                }
            },
            (_, Err(code)) => {
                *self.done.errors.entry(format!("{code:?}")).or_default() += 1;
                return true;
            }
            (act, Ok(reply)) => {
                self.done.wrong = Some(format!("{act:?} is answered {reply:?}"));
                return false;
            }
        };
        self.done.operations[operation].answer = Some(answer);
        self.acknowledged.fetch_add(u64::from(matches!(act, Act::Set(_))), Relaxed);
        true
    }
}
