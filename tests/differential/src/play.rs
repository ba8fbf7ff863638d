//! Plays a script to one server and records every answer.
//!
//! One session acts at a time. When all its replies are in, every other connection sends a sync. A
//! server queues events before the reply to the write that fired them, so all events of the step
//! arrive before the sync's answer. In an ensemble the player first waits until every server has
//! applied the step's changes, and each connection sends a read instead.

use crate::reply::{self, Item, Reply, What};
use crate::script::{Action, Claim, Connect, Op, Script, code};
use crate::value::{Place, Value};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time after which a reply counts as missing. On a busy machine, both servers have waited more
/// than 10 s for the disk.
const PATIENCE: Duration = Duration::from_secs(40);
/// Number of replies per session of which a script can name the zxid.
const SEEN: usize = 16;
/// Wait for the end of a connection before a ping probes it. Too short costs only a ping.
const END_PATIENCE: Duration = Duration::from_millis(300);
/// Time limit for requests of a vanished connection to take effect.
const EFFECT_PATIENCE: Duration = Duration::from_secs(4);
/// Ends the error of a play that a server left without an answer.
pub const NO_ANSWER: &str = "no answer";
const PING: i32 = 11;
const PING_XID: i32 = -2;
const AUTH: i32 = 100;
const EXISTS: i32 = 3;
/// Parent of the marks of vanished connections; outside every root, so that a restricted root does
/// not hide it.
const MARKS: &str = "/vanished";

/// Everything one server answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transcript {
    /// For each step, the items of each connection that was read. The play ends when a server
    /// answers a request never.
    pub steps: Vec<Vec<Lane>>,
    /// For each step that may have spent different numbers of zxids, the zxid of a write by the
    /// player after it.
    pub anchors: Vec<Option<i64>>,
    /// The ids of the sessions, in order of creation.
    pub sessions: Vec<i64>,
    /// The newest zxid before the script began.
    pub began: i64,
    /// Wall clock at the start and the end of the play, in ms.
    pub clock_ms: (i64, i64),
}

/// The items of one connection during one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// The session of the connection.
    pub session: usize,
    /// Whether the session has just left this connection for another.
    pub left: bool,
    /// The items in order of arrival.
    pub items: Vec<Item>,
}

/// The servers that a script is played to.
pub trait Servers {
    /// Returns the address of each server for clients.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Ends all servers but this one, and waits until it is read-only.
    ///
    /// # Errors
    /// It does not become read-only.
    fn alone(&mut self, server: usize) -> io::Result<()>;

    /// Starts the servers that do not run, and waits until all serve.
    ///
    /// # Errors
    /// One does not start or does not serve.
    fn together(&mut self) -> io::Result<()>;
}

/// Plays `script` under the znode `root`, which must be unused on these servers.
///
/// # Errors
/// A server cannot be reached or does not serve the player's requests. The transcript records all
/// other failures.
pub fn play(script: &Script, servers: &mut dyn Servers, root: &str) -> io::Result<Transcript> {
    let mut player = Player::start(servers, root, script.sessions())?;
    for (number, step) in script.steps.iter().enumerate() {
        let at = |error| io::Error::other(format!("step {number}: {error}"));
        let lanes = player.step(number, step.session, &step.action).map_err(at)?;
        let silent = lanes.iter().flat_map(|lane| &lane.items).any(|item| item.what == What::Silence);
        player.transcript.steps.push(lanes);
        if silent {
            // Each further step might wait for this connection again.
            break;
        }
    }
    player.finish()
}

struct Player<'a> {
    servers: &'a mut dyn Servers,
    addresses: Vec<SocketAddr>,
    root: &'a str,
    sessions: Vec<PlayedSession>,
    /// The player's own sessions, one at each server that runs. The first one asks and anchors.
    controls: Vec<Link>,
    /// Every session that was opened. All are closed at the end, so that none expires during a
    /// later play.
    opened: Vec<Opened>,
    /// Whether only a read-only server runs.
    read_only: bool,
    transcript: Transcript,
}

/// The state of one session.
#[derive(Default)]
struct PlayedSession {
    id: i64,
    password: Vec<u8>,
    /// The newest zxid shown to it, at each of its last replies.
    seen: Vec<i64>,
    /// The server that its next connection is to.
    server: usize,
    link: Option<Link>,
    /// The server that its connection is to.
    linked: usize,
}

/// A session, and the server that it was opened at.
struct Opened {
    id: i64,
    password: Vec<u8>,
    server: usize,
}

impl<'a> Player<'a> {
    fn start(servers: &'a mut dyn Servers, root: &'a str, sessions: usize) -> io::Result<Self> {
        let addresses = servers.addresses();
        let count = addresses.len();
        let at = |number: usize| PlayedSession { server: number % count, ..PlayedSession::default() };
        let mut player = Self {
            servers,
            addresses,
            root,
            sessions: (0..sessions).map(at).collect(),
            controls: Vec::new(),
            opened: Vec::new(),
            read_only: false,
            transcript: Transcript { clock_ms: (wall_clock_ms(), 0), ..Transcript::default() },
        };
        player.control(0..count, 0)?;
        player.transcript.began = player.ask("create", mark_values(MARKS))?.zxid;
        player.settle()?;
        Ok(player)
    }

    /// Opens the player's own sessions at these servers.
    fn control(&mut self, servers: std::ops::Range<usize>, read_only: u8) -> io::Result<()> {
        self.controls.clear();
        self.read_only = read_only != 0;
        for server in servers {
            let mut link = self.open(server)?;
            let answer = link.shake_hands(&new_session(read_only))?.filter(|(id, ..)| *id != 0);
            let (id, password, _) = answer.ok_or_else(|| broken("no session for the player"))?;
            self.transcript.sessions.push(id);
            self.opened.push(Opened { id, password, server });
            self.controls.push(link);
        }
        Ok(())
    }

    fn open(&self, server: usize) -> io::Result<Link> {
        // A read-only server refuses a sync, and a settled ensemble needs none.
        let barrier = if self.addresses.len() == 1 { "sync" } else { "exists" };
        Link::open(self.addresses[server], barrier)
    }

    /// Waits until all servers of an ensemble have applied all changes.
    ///
    /// Without sync: a follower of ZooKeeper 3.8 leaves one in some thousands unanswered.
    fn settle(&mut self) -> io::Result<()> {
        if self.controls.len() > 1 {
            let newest = self.anchor()?;
            let read = || vec![Value::text(MARKS), Value::Byte(0)];
            let deadline = Instant::now() + PATIENCE;
            for control in 0..self.controls.len() {
                while self.ask_at(control, "exists", read())?.zxid < newest {
                    if Instant::now() > deadline {
                        return Err(broken(&format!("a change at another server: {NO_ANSWER}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends a request of the player.
    fn ask(&mut self, name: &str, values: Vec<Value>) -> io::Result<Reply> {
        self.ask_at(0, name, values)
    }

    fn ask_at(&mut self, control: usize, name: &str, values: Vec<Value>) -> io::Result<Reply> {
        self.controls[control].send(None, &Op::new(name, values), Place { root: "", seen: &[] })?;
        loop {
            match self.controls[control].item(PATIENCE)?.what {
                What::Reply(reply) => return Ok(reply),
                What::Event { .. } => {}
                What::Silence => return Err(broken(&format!("the player's own {name}: {NO_ANSWER}"))),
                other => return Err(broken(&format!("the player's own {name}: {other:?}"))),
            }
        }
    }

    fn step(&mut self, number: usize, session: usize, action: &Action) -> io::Result<Vec<Lane>> {
        let mut lanes = Vec::new();
        match action {
            Action::Connect(connect) => self.connect(session, connect, &mut lanes)?,
            Action::Send { pieces, ops } => lanes.push(self.send(session, *pieces, ops)?),
            Action::Fatal(ops) => lanes.push(self.fatal(session, ops)?),
            Action::Vanish(ops) => lanes.push(self.vanish(number, session, ops)?),
            Action::Cut(partial) => self.cut(session, partial.as_ref()),
            Action::Stranger(bytes) => lanes.push(lane(session, vec![self.stranger(session, bytes)?])),
            Action::Wait(ms) => lanes.push(self.wait(session, Duration::from_millis(*ms))?),
            Action::At(server) => self.sessions[session].server = (*server).min(self.addresses.len() - 1),
            Action::Alone => self.alone(session, &mut lanes)?,
            Action::Together => self.together(session, &mut lanes)?,
        }
        let anchor = match action {
            Action::Connect(_) | Action::Fatal(_) | Action::Wait(_) | Action::Together => Some(self.anchor()?),
            Action::Send { .. } | Action::Vanish(_) | Action::Cut(_) | Action::Stranger(_) => None,
            Action::At(_) | Action::Alone => None,
        };
        self.transcript.anchors.push(anchor);
        self.settle()?;
        if action.ops().iter().any(Op::is_write) || matches!(action, Action::Wait(_)) {
            for other in 0..self.sessions.len() {
                if other != session && self.sessions[other].link.is_some() {
                    let items = self.barrier(other)?;
                    lanes.push(lane(other, items));
                }
            }
        }
        Ok(lanes)
    }

    /// Sends a write that fails, and so only takes a zxid above all earlier ones.
    fn anchor(&mut self) -> io::Result<i64> {
        Ok(self.ask("delete", vec![Value::text(format!("{MARKS}/nothing")), Value::Int(-1)])?.zxid)
    }

    fn connect(&mut self, session: usize, connect: &Connect, lanes: &mut Vec<Lane>) -> io::Result<()> {
        let server = self.sessions[session].server;
        let mut link = self.open(server)?;
        let played = &mut self.sessions[session];
        let place = Place { root: self.root, seen: &played.seen };
        let frame = handshake(connect, played.id, &played.password, place);
        let old = played.link.take();
        match link.shake_hands(&frame)? {
            Some((id, password, answer)) => {
                lanes.push(lane(session, vec![Item { op: None, what: answer }]));
                if id != 0 {
                    played.id = id;
                    if !self.transcript.sessions.contains(&id) {
                        self.transcript.sessions.push(id);
                        played.seen.clear();
                    }
                    self.opened.retain(|opened| opened.id != id);
                    self.opened.push(Opened { id, password: password.clone(), server });
                    played.password = password;
                    // A claim that should be refused leaves no connection behind, whatever the
                    // server answered.
                    if !matches!(connect.claim, Claim::Wrong | Claim::Derived | Claim::Unknown) {
                        (played.link, played.linked) = (Some(link), server);
                    }
                } else {
                    let ended = link.until_closed(END_PATIENCE)?;
                    lanes.last_mut().into_iter().for_each(|lane| lane.items.extend(ended.iter().cloned()));
                }
            }
            None => lanes.push(lane(session, vec![Item { op: None, what: What::Closed }])),
        }
        if let Some(mut old) = old {
            // A claim on this connection's session ends the connection. A connection of another
            // session lives until here.
            if !matches!(connect.claim, Claim::New | Claim::NewNull | Claim::Unknown) {
                let items = old.until_closed(END_PATIENCE)?;
                lanes.push(Lane { session, left: true, items });
            }
            old.leave();
        }
        Ok(())
    }

    fn send(&mut self, session: usize, pieces: usize, ops: &[Op]) -> io::Result<Lane> {
        let played = &mut self.sessions[session];
        let Some(link) = &mut played.link else { return Ok(lane(session, vec![not_connected()])) };
        let bytes = link.frames(ops, Place { root: self.root, seen: &played.seen });
        let items = if link.write(&bytes, pieces) { link.barrier()? } else { link.until_closed(END_PATIENCE)? };
        self.heard(session, &items);
        Ok(lane(session, items))
    }

    fn fatal(&mut self, session: usize, ops: &[Op]) -> io::Result<Lane> {
        let played = &mut self.sessions[session];
        let Some(mut link) = played.link.take() else { return Ok(lane(session, vec![not_connected()])) };
        let bytes = link.frames(ops, Place { root: self.root, seen: &played.seen });
        link.write(&bytes, 1);
        let items = link.until_closed(END_PATIENCE)?;
        self.heard(session, &items);
        Ok(lane(session, items))
    }

    /// The last request leaves a mark; the player waits until the mark is visible.
    fn vanish(&mut self, number: usize, session: usize, ops: &[Op]) -> io::Result<Lane> {
        let played = &mut self.sessions[session];
        let Some(mut link) = played.link.take() else { return Ok(lane(session, vec![not_connected()])) };
        let mark = format!("{MARKS}{}-{number}", self.root);
        let mut all = ops.to_vec();
        all.push(Op::new("create", mark_values(&mark)));
        let bytes = link.frames(&all, Place { root: self.root, seen: &played.seen });
        link.write(&bytes, 1);
        link.leave();
        let deadline = Instant::now() + EFFECT_PATIENCE;
        let mut there = false;
        while !there && Instant::now() < deadline {
            there = self.ask("exists", vec![Value::text(&mark), Value::Byte(0)])?.error == 0;
        }
        Ok(lane(session, vec![Item { op: None, what: What::TookEffect(there) }]))
    }

    fn cut(&mut self, session: usize, partial: Option<&(Op, usize)>) {
        let played = &mut self.sessions[session];
        let Some(mut link) = played.link.take() else { return };
        if let Some((op, bytes)) = partial {
            let frame = op.frame(link.next_xid, Place { root: self.root, seen: &played.seen });
            // Never the whole frame: [`Action::Vanish`] tests whether that takes effect.
            link.write(&frame[..(*bytes).min(frame.len() - 1)], 1);
        }
        // The server drops its watches when it sees the end, which checkWatches of other sessions
        // shows.
        link.leave();
    }

    /// Only the waiting session may have a timeout below `time`.
    fn wait(&mut self, session: usize, time: Duration) -> io::Result<Lane> {
        std::thread::sleep(time);
        let Some(mut link) = self.sessions[session].link.take() else { return Ok(lane(session, Vec::new())) };
        Ok(lane(session, link.until_closed(END_PATIENCE)?))
    }

    /// Every connection to the servers that end is lost, and the other connections show what they
    /// hear of that.
    fn alone(&mut self, session: usize, lanes: &mut Vec<Lane>) -> io::Result<()> {
        let server = self.sessions[session].server;
        self.servers.alone(server)?;
        self.sessions.iter_mut().filter(|played| played.linked != server).for_each(|played| played.link = None);
        self.hear_all(session, lanes)?;
        self.control(server..server + 1, 1)
    }

    fn together(&mut self, session: usize, lanes: &mut Vec<Lane>) -> io::Result<()> {
        self.servers.together()?;
        self.hear_all(session, lanes)?;
        self.control(0..self.addresses.len(), 0)
    }

    /// Reads from every connection, that of `session` first.
    fn hear_all(&mut self, session: usize, lanes: &mut Vec<Lane>) -> io::Result<()> {
        let others = (0..self.sessions.len()).filter(|other| *other != session);
        for heard in std::iter::once(session).chain(others) {
            if self.sessions[heard].link.is_some() {
                let items = self.barrier(heard)?;
                lanes.push(lane(heard, items));
            }
        }
        Ok(())
    }

    fn stranger(&mut self, session: usize, bytes: &[u8]) -> io::Result<Item> {
        let mut link = self.open(self.sessions[session].server)?;
        link.write(bytes, 1);
        let what = match link.raw_frame(PATIENCE)? {
            Incoming::Closed => What::Closed,
            Incoming::Silence => What::Silence,
            Incoming::Frame(frame) => reply::connected(&frame).map_or(What::Closed, |(_, _, answer)| answer),
        };
        Ok(Item { op: None, what })
    }

    fn barrier(&mut self, session: usize) -> io::Result<Vec<Item>> {
        let Some(link) = &mut self.sessions[session].link else { return Ok(Vec::new()) };
        let items = link.barrier()?;
        self.heard(session, &items);
        Ok(items)
    }

    /// Notes the newest zxid shown to the session, and the end of its connection.
    fn heard(&mut self, session: usize, items: &[Item]) {
        let played = &mut self.sessions[session];
        for item in items {
            match &item.what {
                What::Reply(reply) if reply.zxid > 0 => {
                    let newest = played.seen.last().map_or(reply.zxid, |newest| reply.zxid.max(*newest));
                    played.seen.push(newest);
                    let surplus = played.seen.len().saturating_sub(SEEN);
                    played.seen.drain(..surplus);
                }
                What::Closed => played.link = None,
                _ => {}
            }
        }
    }

    fn finish(mut self) -> io::Result<Transcript> {
        self.sessions.clear();
        for Opened { id, password, server } in &self.opened {
            let mut link = self.open(*server)?;
            let claim = Connect { claim: Claim::Right, zxid: Value::Long(0), timeout_ms: 0, read_only: Some(0) };
            if link.shake_hands(&handshake(&claim, *id, password, Place { root: "", seen: &[] }))?.is_some() {
                let close = link.frame(None, &Op::new("closeSession", Vec::new()), Place { root: "", seen: &[] });
                link.write(&close, 1);
                link.until_closed(END_PATIENCE)?;
            }
        }
        self.transcript.clock_ms.1 = wall_clock_ms();
        Ok(self.transcript)
    }
}

fn lane(session: usize, items: Vec<Item>) -> Lane {
    Lane { session, left: false, items }
}

fn not_connected() -> Item {
    Item { op: None, what: What::NotConnected }
}

fn broken(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}

fn wall_clock_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

fn mark_values(path: &str) -> Vec<Value> {
    let open = vec![Value::Int(31), Value::text("world"), Value::text("anyone")];
    vec![Value::text(path), Value::Bytes(None), Value::List(vec![open]), Value::Int(0)]
}

fn new_session(read_only: u8) -> Vec<u8> {
    let connect = Connect { claim: Claim::New, zxid: Value::Long(0), timeout_ms: i32::MAX, read_only: Some(read_only) };
    handshake(&connect, 0, &[], Place { root: "", seen: &[] })
}

/// Returns the first frame of a connection.
fn handshake(connect: &Connect, id: i64, password: &[u8], place: Place<'_>) -> Vec<u8> {
    let (id, password) = match connect.claim {
        Claim::New => (0, Value::text([0; 16])),
        Claim::NewNull => (0, Value::Bytes(None)),
        Claim::Right => (id, Value::text(password)),
        Claim::Wrong => (id, Value::text([7; 16])),
        Claim::Derived => (id, Value::text(derived_password(id))),
        Claim::Unknown => (0x0123_4567_89ab, Value::text([7; 16])),
    };
    let mut body = Vec::new();
    // A password may begin with the character that stands for the root of paths.
    let place = Place { root: "~", ..place };
    let fields = [Value::Int(0), connect.zxid.clone(), Value::Int(connect.timeout_ms), Value::Long(id), password];
    fields.iter().for_each(|value| value.encode(place, &mut body));
    body.extend(connect.read_only);
    [&(body.len() as i32).to_be_bytes()[..], &body].concat()
}

/// Derives the password that Apache ZooKeeper gives a session id (surface 1.5).
///
/// It is 16 bytes of java.util.Random, seeded with the id.
fn derived_password(id: i64) -> [u8; 16] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = ((id as u64 ^ 0xB341_5C00) ^ MULTIPLIER) & MASK;
    let mut password = [0; 16];
    for word in password.chunks_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        word.copy_from_slice(&((state >> 16) as u32).to_le_bytes());
    }
    password
}

/// A request that waits for its reply.
struct Pending {
    xid: i32,
    code: i32,
    op: Option<usize>,
}

enum Incoming {
    Frame(Vec<u8>),
    Closed,
    Silence,
}

/// One connection.
struct Link {
    stream: TcpStream,
    buffer: Vec<u8>,
    pending: VecDeque<Pending>,
    next_xid: i32,
    /// The read that the player awaits behind all other requests.
    barrier: &'static str,
}

impl Link {
    fn open(address: SocketAddr, barrier: &'static str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: Vec::new(), pending: VecDeque::new(), next_xid: 1, barrier })
    }

    /// Returns `None` when the server closes instead of answering.
    fn shake_hands(&mut self, frame: &[u8]) -> io::Result<Option<(i64, Vec<u8>, What)>> {
        self.write(frame, 1);
        match self.raw_frame(PATIENCE)? {
            Incoming::Frame(frame) => {
                let unknown = || (0, Vec::new(), What::Unknown(crate::value::quoted(&frame)));
                Ok(Some(reply::connected(&frame).unwrap_or_else(unknown)))
            }
            Incoming::Closed => Ok(None),
            Incoming::Silence => Err(broken("a handshake was not answered")),
        }
    }

    /// Encodes requests and expects a reply to each.
    ///
    /// A read of the same path follows each `exists`. Only the read tells the difference of surface
    /// 15 from a wrong answer.
    fn frames(&mut self, ops: &[Op], place: Place<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, op) in ops.iter().enumerate() {
            bytes.extend(self.frame(Some(number), op, place));
            if op.code == EXISTS
                && op.lacks == 0
                && let [path, Value::Byte(_)] = &op.values[..]
            {
                let probe = Op::new("getData", vec![path.clone(), Value::Byte(0)]);
                bytes.extend(self.frame(None, &probe, place));
            }
        }
        bytes
    }

    fn frame(&mut self, number: Option<usize>, op: &Op, place: Place<'_>) -> Vec<u8> {
        let xid = op.xid.unwrap_or(self.next_xid);
        if op.xid.is_none() {
            self.next_xid += 1;
        }
        let expected = if op.code == PING { PING_XID } else { xid };
        self.pending.push_back(Pending { xid: expected, code: op.code, op: number });
        op.frame(xid, place)
    }

    fn send(&mut self, number: Option<usize>, op: &Op, place: Place<'_>) -> io::Result<()> {
        let bytes = self.frame(number, op, place);
        if self.write(&bytes, 1) { Ok(()) } else { Err(broken("a connection of the player's own was closed")) }
    }

    /// Returns whether the connection took the bytes.
    fn write(&mut self, bytes: &[u8], pieces: usize) -> bool {
        let size = bytes.len().div_ceil(pieces.max(1)).max(1);
        bytes.chunks(size).all(|piece| self.stream.write_all(piece).is_ok())
    }

    /// Receives everything up to the answer of a request sent now, or to the end.
    ///
    /// A ping would not do: zoolet answers pings early while it owes the connection much data
    /// (docs/explanation/safety.md).
    fn barrier(&mut self) -> io::Result<Vec<Item>> {
        let more = (self.barrier == "exists").then_some(Value::Byte(0));
        let op = Op::new(self.barrier, [Value::text("/")].into_iter().chain(more).collect());
        let frame = self.frame(None, &op, Place { root: "", seen: &[] });
        if !self.write(&frame, 1) {
            return self.until_closed(END_PATIENCE);
        }
        let mut items = Vec::new();
        loop {
            let item = self.item(PATIENCE)?;
            let answered = matches!(&item.what, What::Reply(reply) if reply.code == op.code && item.op.is_none());
            let over = matches!(item.what, What::Closed | What::Silence);
            items.push(item);
            if answered || over {
                return Ok(items);
            }
        }
    }

    /// Receives everything up to the end of the connection, or to the answer of a ping.
    fn until_closed(&mut self, patience: Duration) -> io::Result<Vec<Item>> {
        let mut items = Vec::new();
        let mut asked = false;
        loop {
            let item = self.item(if asked { PATIENCE } else { patience })?;
            match &item.what {
                What::Silence if !asked => {
                    asked = true;
                    let ping = Op { xid: Some(PING_XID), ..Op::new("ping", Vec::new()) };
                    let frame = self.frame(None, &ping, Place { root: "", seen: &[] });
                    self.write(&frame, 1);
                    continue;
                }
                What::Closed | What::Silence => {
                    items.push(item);
                    return Ok(items);
                }
                What::Reply(reply) if asked && reply.code == PING && item.op.is_none() => {
                    items.push(item);
                    return Ok(items);
                }
                _ => items.push(item),
            }
        }
    }

    fn item(&mut self, patience: Duration) -> io::Result<Item> {
        let frame = match self.raw_frame(patience)? {
            Incoming::Frame(frame) => frame,
            Incoming::Closed => return Ok(Item { op: None, what: What::Closed }),
            Incoming::Silence => return Ok(Item { op: None, what: What::Silence }),
        };
        let unknown = |frame: &[u8]| Item { op: None, what: What::Unknown(crate::value::quoted(frame)) };
        let Some((header, body)) = reply::header(&frame) else { return Ok(unknown(&frame)) };
        if header.xid == -1
            && let Some(event) = reply::event(header, body)
        {
            return Ok(Item { op: None, what: event });
        }
        // Replies come in order, except those that ZooKeeper gives at once (surface 13.24).
        let Some(at) = self.pending.iter().position(|pending| pending.xid == header.xid) else {
            return Ok(unknown(&frame));
        };
        let Some(pending) = self.pending.remove(at) else { return Ok(unknown(&frame)) };
        let parts = reply::parts(pending.code, header.error, body);
        let reply = Reply { code: pending.code, xid: header.xid, zxid: header.zxid, error: header.error, parts };
        Ok(Item { op: pending.op, what: What::Reply(reply) })
    }

    fn raw_frame(&mut self, patience: Duration) -> io::Result<Incoming> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>() {
                let length = i32::from_be_bytes(*length) as usize;
                if rest.len() >= length {
                    let frame = rest[..length].to_vec();
                    self.buffer.drain(..4 + length);
                    return Ok(Incoming::Frame(frame));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Incoming::Silence);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut bytes = [0; 65536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(Incoming::Closed),
                Ok(count) => self.buffer.extend(&bytes[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return Ok(Incoming::Closed),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Closes for writing, and discards input until the server closes too.
    ///
    /// A close with unread bytes would send a reset, which may destroy requests that the server has
    /// not read.
    fn leave(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(END_PATIENCE));
        let mut bytes = [0; 65536];
        while self.stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
    }
}

/// Returns whether ZooKeeper may send the reply to this request before earlier replies.
pub fn may_overtake(op: i32) -> bool {
    op == AUTH || op == code("sasl")
}
