//! Writers that pipeline requests on separate subtrees and keep every answer.

use crate::client::Client;
use crate::random::Random;
use crate::tree::{Outcome, SHARED, Stamp, Step, StepResult, Tree, Value, Write};
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use zoolet_model::{
    ConnectReply, Create, CreateKind, CreateMode, ErrorCode, OpResult, Reply, Request, RequestedAcl, WriteOp,
};
use zoolet_transport::wire::client_side::{Header, Shape};

/// Number of znodes that all writers set.
pub const SHARED_ZNODES: u64 = 3;

/// Directories per writer.
const DIRECTORIES: u64 = 4;

/// Shape of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadShape {
    /// Requests in flight per connection.
    pub window: usize,
    /// Approximate number of znodes per writer.
    pub znodes: usize,
    /// Share of values above 8 KiB, in per cent.
    pub big_per_cent: u64,
    /// Largest value in bytes.
    pub bytes_max: u32,
}

/// One write that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The write.
    pub write: Write,
    /// The session that sent it.
    pub session: i64,
    /// The expected answer.
    pub expected: Outcome,
    /// The zxid of the answer; `None` without an answer.
    pub acknowledged: Option<i64>,
}

/// State of a session as its writer knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionFate {
    /// There has been no session yet.
    None,
    /// It lives.
    Open,
    /// Its end was acknowledged.
    Closed,
    /// Its end was sent.
    Closing,
}

/// One writer.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Number of the writer.
    pub number: u64,
    /// Its part of the tree when the round began.
    pub tree: Tree,
    /// All writes of the round, in order.
    pub sent: Vec<Sent>,
    /// Its latest session.
    pub session: Option<ConnectReply>,
    /// State of that session.
    pub fate: SessionFate,
    random: Random,
    values: u64,
}

/// The tree after all sent writes, and the writes without an answer.
struct Ahead {
    tree: Tree,
    unanswered: VecDeque<usize>,
}

impl Writer {
    /// A writer that has done nothing.
    pub fn new(number: u64, random: Random) -> Self {
        let (tree, sent) = (Tree::default(), Vec::new());
        Self { number, tree, sent, session: None, fate: SessionFate::None, random, values: 0 }
    }

    /// Returns the top of its part of the tree.
    pub fn top(&self) -> String {
        format!("/w{}", self.number)
    }

    /// Counts the acknowledged writes of the round, which are a prefix of all sent.
    pub fn acknowledged(&self) -> usize {
        self.sent.iter().take_while(|sent| sent.acknowledged.is_some()).count()
    }

    /// Writes until the server is gone, or at least `writes` writes are answered.
    ///
    /// # Errors
    /// A wrong answer, with its request.
    pub fn run(
        &mut self,
        address: SocketAddr,
        shape: LoadShape,
        writes: usize,
        patience: Duration,
    ) -> Result<(), String> {
        let mut ahead = Ahead { tree: self.tree.clone(), unanswered: VecDeque::new() };
        while self.sent.len() < writes {
            let Some(mut client) = self.connect(address, patience)? else { return Ok(()) };
            while self.fate == SessionFate::Open && self.sent.len() < writes {
                let mut is_there = true;
                while ahead.unanswered.len() < shape.window && self.fate == SessionFate::Open {
                    let write = self.next_write(&ahead.tree, shape);
                    self.send(&mut client, &mut ahead, write);
                }
                is_there &= client.flush().map_err(|error| format!("writer {}: {error}", self.number))?;
                let left = if self.fate == SessionFate::Open { shape.window / 2 } else { 0 };
                while ahead.unanswered.len() > left {
                    is_there &= self.receive(&mut client, &mut ahead)?;
                    if !is_there {
                        return Ok(());
                    }
                }
            }
            while !ahead.unanswered.is_empty() {
                if !self.receive(&mut client, &mut ahead)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Connects, resuming an open session; `None` when the server is gone.
    fn connect(&mut self, address: SocketAddr, patience: Duration) -> Result<Option<Client>, String> {
        let known = if self.fate == SessionFate::Open { self.session } else { None };
        let client = match Client::connect(address, known.as_ref(), patience) {
            Ok(client) => client,
            // A killed server refuses or resets connections.
            Err(_) => return Ok(None),
        };
        if let Some(client) = &client {
            self.session = Some(client.session);
            self.fate = SessionFate::Open;
        }
        Ok(client)
    }

    fn send(&mut self, client: &mut Client, ahead: &mut Ahead, write: Write) {
        let session = client.session.session.0;
        let number = self.sent.len();
        client.queue(&request(&write));
        let expected = ahead.tree.apply(&write, session, Stamp::By(number));
        if write == Write::Close {
            self.fate = SessionFate::Closing;
        }
        self.sent.push(Sent { write, session, expected, acknowledged: None });
        ahead.unanswered.push_back(number);
    }

    /// Takes one answer; false when the server is gone.
    fn receive(&mut self, client: &mut Client, ahead: &mut Ahead) -> Result<bool, String> {
        let Some(&number) = ahead.unanswered.front() else { return Ok(true) };
        let sent = &mut self.sent[number];
        let complaint = |what: String| format!("writer {} asked {:?}: {what}", self.number, sent.write);
        let shape = Shape::of(&request(&sent.write));
        let Some((header, reply)) = client.receive(shape).map_err(|error| complaint(error.to_string()))? else {
            return Ok(false);
        };
        judge(&sent.expected, &header, &reply).map_err(complaint)?;
        sent.acknowledged = Some(header.zxid);
        if sent.write == Write::Close {
            self.fate = SessionFate::Closed;
        }
        ahead.unanswered.pop_front();
        Ok(true)
    }

    fn value(&mut self, shape: LoadShape) -> Value {
        self.values += 1;
        let random = &mut self.random;
        let bytes = match random.below(100) {
            roll if roll < shape.big_per_cent => 8192 + random.below(u64::from(shape.bytes_max).saturating_sub(8192)),
            roll if roll < 30 => 900 + random.below(300),
            roll if roll < 40 => random.below(8192),
            roll if roll < 45 => 0,
            _ => random.below(200),
        };
        Value { tag: self.number << 48 | self.values, bytes: (bytes as u32).min(shape.bytes_max) }
    }

    fn next_write(&mut self, tree: &Tree, shape: LoadShape) -> Write {
        let top = self.top();
        let count = format!("{top}/count");
        for path in std::iter::once(top.clone())
            .chain((0..DIRECTORIES).map(|number| format!("{top}/d{number}")))
            .chain([count.clone()])
        {
            if !tree.znodes.contains_key(&path) {
                return Write::One(self.create(path, shape));
            }
        }
        match self.random.below(100) {
            0..=9 => {
                // All writers set this znode; the writer's own znode in the same multi counts its
                // sets.
                let number = self.random.below(SHARED_ZNODES);
                // An unanswered set is identified by its data alone, so the data must not be empty.
                let mut value = self.value(shape);
                value.bytes = value.bytes.max(16);
                let shared = Step::Set { path: format!("{SHARED}/s{number}"), value, version: -1 };
                let own = Step::Set { path: count, value: self.value(shape), version: -1 };
                Write::All(if self.random.chance(50) { vec![shared, own] } else { vec![own, shared] })
            }
            10..=24 => {
                let steps = 2 + self.random.below(4);
                let mut after = tree.clone();
                let mut all = Vec::new();
                for _ in 0..steps {
                    let step = self.step(&after, shape);
                    let _ = after.apply(&Write::One(step.clone()), self.session_id(), Stamp::By(0));
                    all.push(step);
                }
                if self.random.chance(25) {
                    let place = self.random.below(all.len() as u64 + 1) as usize;
                    all.insert(place, Step::Check { path: count, version: 1_000_000_000 });
                }
                Write::All(all)
            }
            25 if self.random.chance(25) => Write::Close,
            _ => Write::One(self.step(tree, shape)),
        }
    }

    fn session_id(&self) -> i64 {
        self.session.map_or(0, |session| session.session.0)
    }

    fn create(&mut self, path: String, shape: LoadShape) -> Step {
        Step::Create { path, value: self.value(shape), ephemeral: false, sequential: false }
    }

    fn step(&mut self, tree: &Tree, shape: LoadShape) -> Step {
        let directory = format!("{}/d{}", self.top(), self.random.below(DIRECTORIES));
        let is_full = tree.znodes.len() > shape.znodes;
        match self.random.below(100) {
            0..=44 => match self.victim(tree) {
                Some(path) => {
                    let is = tree.znodes.get(&path).map_or(-1, |znode| znode.version);
                    // One in seven versions is wrong.
                    let version = *self.random.pick(&[-1, -1, is, is, is, is + 1]);
                    Step::Set { path, value: self.value(shape), version }
                }
                None => self.create(format!("{directory}/first"), shape),
            },
            45..=59 if is_full => self.delete(tree, &directory),
            45..=79 if !is_full => {
                let (ephemeral, sequential) = (self.random.chance(15), self.random.chance(30));
                let name = if sequential { "q".to_owned() } else { format!("n{}", self.random.below(400)) };
                let path = format!("{directory}/{name}");
                Step::Create { path, value: self.value(shape), ephemeral, sequential }
            }
            _ => self.delete(tree, &directory),
        }
    }

    fn delete(&mut self, tree: &Tree, directory: &str) -> Step {
        let missing = format!("{directory}/missing");
        let path = if self.random.chance(5) { missing } else { self.victim(tree).unwrap_or(missing) };
        Step::Delete { path, version: -1 }
    }

    /// Picks a znode in one of the directories.
    fn victim(&mut self, tree: &Tree) -> Option<String> {
        let start = format!("{}/d{}/", self.top(), self.random.below(DIRECTORIES));
        let letter = *self.random.pick(&["", "n1", "n2", "n3", "q"]);
        let skip = self.random.below(24) as usize;
        let mut range = tree.znodes.range(format!("{start}{letter}")..format!("{start}~"));
        range
            .nth(skip)
            .or_else(|| tree.znodes.range(start.clone()..format!("{start}~")).next())
            .map(|(path, _)| path.clone())
    }
}

/// Compares an answer with the expected one.
///
/// # Errors
/// Describes the difference.
pub fn judge(expected: &Outcome, header: &Header, reply: &Result<Reply, ErrorCode>) -> Result<(), String> {
    let is_right = match (expected, reply) {
        (Ok(expected), Ok(Reply::Multi(results))) => {
            expected.len() == results.len()
                && expected.iter().zip(results).all(|(expected, result)| is_result(expected, result, header.zxid))
        }
        (Err((place, error)), Ok(Reply::Multi(results))) => {
            results.get(*place) == Some(&OpResult::Failed(Some(*error)))
        }
        (Ok(expected), Ok(Reply::Path(path))) => {
            matches!(expected.as_slice(), [StepResult::Path(expected)] if expected.as_str() == path.as_str())
        }
        (Ok(expected), Ok(Reply::Stat(stat))) => {
            matches!(expected.as_slice(), [StepResult::Version(Some(version))] if *version == stat.version)
                && stat.mzxid == header.zxid
        }
        (Ok(expected), Ok(Reply::Empty)) => matches!(expected.as_slice(), [] | [StepResult::Nothing]),
        (Err((0, expected)), Err(error)) => expected == error,
        _ => false,
    };
    if is_right { Ok(()) } else { Err(format!("{reply:?} came and {expected:?} is right")) }
}

fn is_result(expected: &StepResult, result: &OpResult, zxid: i64) -> bool {
    match (expected, result) {
        (StepResult::Path(expected), OpResult::Create(path)) => expected.as_str() == path.as_str(),
        (StepResult::Version(version), OpResult::SetData(stat)) => {
            version.is_none_or(|version| version == stat.version) && stat.mzxid == zxid
        }
        (StepResult::Nothing, OpResult::Delete | OpResult::Check) => true,
        _ => false,
    }
}

/// Returns the request for a write.
pub fn request(write: &Write) -> Request {
    match write {
        Write::One(step) => Request::Write(operation(step)),
        Write::All(steps) => Request::Multi(steps.iter().map(operation).collect()),
        Write::Close => Request::CloseSession,
    }
}

fn operation(step: &Step) -> WriteOp {
    match step {
        Step::Create { path, value, ephemeral, sequential } => {
            let kind = if *ephemeral { CreateKind::Ephemeral } else { CreateKind::Persistent };
            create(path, value.expand(), CreateMode::Valid { kind, sequential: *sequential })
        }
        Step::Set { path, value, version } => {
            WriteOp::SetData { path: path.as_str().into(), data: Some(value.expand()), version: *version }
        }
        Step::Delete { path, version } => WriteOp::Delete { path: path.as_str().into(), version: *version },
        Step::Check { path, version } => WriteOp::Check { path: path.as_str().into(), version: *version },
    }
}

/// A create with an ACL that is open to all clients.
pub fn create(path: &str, data: Bytes, mode: CreateMode) -> WriteOp {
    WriteOp::Create(Create {
        path: path.into(),
        data: Some(data),
        acl: Some(RequestedAcl::open()),
        mode,
        with_stat: false,
    })
}
