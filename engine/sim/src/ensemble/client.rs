//! Clients as ZooKeeper's libraries are: one connection at a time, a session kept from one to the next, pings, and patience that ends.

use super::owners::Line;
use super::wire::ToServer;
use super::witness::Witness;
use super::{MS, SECOND, Sent, Wires};
use crate::oracle::{ClientId, End};
use crate::workload::{Random, Workload};
use bytes::Bytes;
use std::fmt;
use zoolet_engine::ConnId;
use zoolet_model::{ConnectReply, ConnectRequest, ErrorCode, Reply, Request, SessionId, SessionSecret, WatchEvent};
use zoolet_zab::ServerId;

/// The xid of every ping.
const PING_XID: i32 = -2;

/// What reaches a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToClient {
    /// What the server says; never [`Sent::Close`].
    Sent(Sent),
    /// The server closed the connection.
    Fin,
    /// There is no such connection, or no such process.
    Reset,
}

/// Decides what a client asks for.
pub trait Asks: fmt::Debug {
    /// The next request; `last_zxid` is the newest that the client has seen.
    fn next(&mut self, last_zxid: i64) -> Request;

    /// It has a session on a new connection, which may be another session than before.
    fn connected(&mut self, _reply: &ConnectReply) {}

    /// The oldest request that it made on this connection and that was not answered yet was answered; pings are the client's own.
    fn answered(&mut self, _zxid: i64, _result: &Result<Reply, ErrorCode>) {}

    /// A watch fired.
    fn notified(&mut self, _event: &WatchEvent) {}
}

impl Asks for Workload {
    fn next(&mut self, last_zxid: i64) -> Request {
        match self.random().below(200) {
            0 => self.last_request(),
            1..=8 => self.auth(),
            _ => self.request(last_zxid),
        }
    }
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Habits {
    /// The session timeout it asks for, milliseconds.
    pub timeout_ms: i32,
    /// Requests it has under way at most.
    pub window: usize,
    /// Between two requests, on average, microseconds.
    pub think_us: u64,
    /// One request in this many is followed by the next in the same moment; 0 is none.
    pub at_once_one_in: u64,
    /// One request in this many is followed by a new connection to another server; 0 is none.
    pub moves_one_in: u64,
    /// One request in this many is followed by silence that is longer than the timeout; 0 is none.
    pub vanishes_one_in: u64,
    /// How it changes its timeout when it comes back, if it does.
    pub renews: Option<Renews>,
}

/// A client that now and then asks for another timeout when it comes back. Draws of its own: nothing else that a client does depends on them.
#[derive(Clone, Debug)]
pub struct Renews {
    random: Random,
    /// One return in this many is with another timeout; 0 is none.
    one_in: u64,
}

impl Renews {
    /// As somebody may do it, by the client's seed.
    pub(super) fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x4e4e5);
        let one_in = if random.one_in(2) { random.between(1, 5) } else { 0 };
        Self { random, one_in }
    }

    fn next(&mut self) -> Option<i32> {
        let is_now = self.one_in > 0 && self.random.one_in(self.one_in);
        is_now.then(|| self.random.logarithmic(1000, 16_000) as i32)
    }
}

impl Habits {
    /// As somebody may have them.
    pub fn drawn(random: &mut Random) -> Self {
        Self {
            timeout_ms: random.logarithmic(2000, 16_000) as i32,
            window: random.logarithmic(1, 16) as usize,
            think_us: random.logarithmic(20 * MS, 200 * MS),
            at_once_one_in: if random.one_in(2) { random.between(2, 8) } else { 0 },
            moves_one_in: if random.one_in(2) { random.between(20, 100) } else { 0 },
            vanishes_one_in: if random.one_in(3) { random.between(50, 200) } else { 0 },
            renews: None,
        }
    }

    /// Those of a client that asks for what futures say, when they say it.
    fn owned(timeout_ms: i32) -> Self {
        Self {
            timeout_ms,
            window: 0,
            think_us: 0,
            at_once_one_in: 0,
            moves_one_in: 0,
            vanishes_one_in: 0,
            renews: None,
        }
    }
}

/// Who says what a client asks for.
#[derive(Debug)]
enum Voice {
    /// It is drawn, in the client's own time.
    Drawn(Box<dyn Asks>),
    /// Somebody's futures, by the link of their session.
    Owned(Line),
}

/// Of an owned client: whether an answer gets lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loses {
    Nothing,
    /// That to its next write.
    NextWrite,
    /// That to a write which is under way: so many other answers come before it.
    AnswerAfter(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Without a connection, until then.
    Away { until_us: u64 },
    /// The first message is on its way, or its answer.
    Joining { conn: ConnId, since_us: u64 },
    /// With a session.
    Open { conn: ConnId },
    /// For ever without a connection: its owner's session is over, or its owner is gone.
    Gone,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    id: ClientId,
    servers: Vec<ServerId>,
    habits: Habits,
    voice: Voice,
    random: Random,
    place: Place,
    server: ServerId,
    session: Option<(SessionId, SessionSecret, u64)>,
    last_zxid: i64,
    xid: i32,
    outstanding: usize,
    pings: usize,
    heard_us: u64,
    said_us: u64,
    asks_us: u64,
    /// The server in whose process it lives.
    home: Option<ServerId>,
    /// It asks for nothing any more, and keeps its session.
    pub(super) is_quiet: bool,
    wakes_us: Option<u64>,
    loses: Loses,
}

impl Client {
    pub(super) fn new(
        id: ClientId,
        servers: Vec<ServerId>,
        habits: Habits,
        asks: Box<dyn Asks>,
        random: Random,
    ) -> Self {
        Self::with_voice(id, servers, habits, Voice::Drawn(asks), random)
    }

    /// One that asks for what futures say, with a session of theirs.
    pub(super) fn owned(id: ClientId, servers: Vec<ServerId>, timeout_ms: i32, line: Line, random: Random) -> Self {
        Self::with_voice(id, servers, Habits::owned(timeout_ms), Voice::Owned(line), random)
    }

    fn with_voice(id: ClientId, servers: Vec<ServerId>, habits: Habits, voice: Voice, mut random: Random) -> Self {
        let place = Place::Away { until_us: random.below(SECOND) };
        let server = *random.pick(&servers);
        Self {
            id,
            servers,
            habits,
            voice,
            random,
            place,
            server,
            session: None,
            last_zxid: 0,
            xid: 0,
            outstanding: 0,
            pings: 0,
            heard_us: 0,
            said_us: 0,
            asks_us: 0,
            home: None,
            is_quiet: false,
            wakes_us: None,
            loses: Loses::Nothing,
        }
    }

    /// The same in a server's process: it knows no other server, and ends with that process.
    pub(super) fn in_process(self, home: ServerId) -> Self {
        let habits = Habits { moves_one_in: 0, ..self.habits };
        Self { servers: vec![home], server: home, habits, home: Some(home), ..self }
    }

    /// The server in whose process it lives, if it does.
    pub fn home(&self) -> Option<ServerId> {
        self.home
    }

    /// The process it lives in is gone, and with it everything that it knew. Another one like it begins in the next process.
    pub(super) fn on_process_end(&mut self, now_us: u64, witness: &mut Witness) {
        match self.place {
            Place::Joining { conn, .. } | Place::Open { conn } => self.on_end(now_us, conn, End::Lost, witness),
            Place::Away { .. } | Place::Gone => {}
        }
        (self.session, self.last_zxid) = (None, 0);
        if matches!(self.voice, Voice::Owned(_)) {
            self.place = Place::Gone;
        }
    }

    /// The connection with a session on which nothing is under way, and whose server it is to.
    pub(super) fn settled(&self) -> Option<(ServerId, ConnId)> {
        match self.place {
            Place::Open { conn } if self.outstanding + self.pings == 0 => Some((self.server, conn)),
            Place::Open { .. } | Place::Joining { .. } | Place::Away { .. } | Place::Gone => None,
        }
    }

    /// When it does something next, if it was not said before.
    pub(super) fn arm(&mut self) -> Option<u64> {
        let due_us = self.due_us();
        if due_us == u64::MAX || self.wakes_us.is_some_and(|wakes_us| wakes_us <= due_us) {
            return None;
        }
        self.wakes_us = Some(due_us);
        Some(due_us)
    }

    /// Its time has come.
    pub(super) fn on_time(&mut self, now_us: u64, wires: &mut Wires, witness: &mut Witness) {
        if self.wakes_us.is_none_or(|wakes_us| wakes_us > now_us) {
            return;
        }
        self.wakes_us = None;
        if self.due_us() > now_us {
            return;
        }
        match self.place {
            Place::Away { .. } => self.connect(now_us, wires, witness),
            Place::Joining { conn, .. } => self.leave(now_us, conn, wires, witness),
            Place::Open { conn } if now_us >= self.patience_us() => self.leave(now_us, conn, wires, witness),
            Place::Open { conn } if now_us >= self.ping_us() => {
                let request = match &self.voice {
                    Voice::Owned(line) => line.ping(),
                    Voice::Drawn(_) => None,
                };
                self.say(now_us, conn, PING_XID, request.unwrap_or(Request::Ping), wires, witness);
            }
            Place::Open { conn } => self.ask(now_us, conn, wires, witness),
            Place::Gone => {}
        }
    }

    /// Something reached it.
    pub(super) fn on_arrival(
        &mut self,
        now_us: u64,
        conn: ConnId,
        what: ToClient,
        wires: &mut Wires,
        witness: &mut Witness,
    ) {
        let is_mine = match self.place {
            Place::Joining { conn: mine, .. } | Place::Open { conn: mine } => mine == conn,
            Place::Away { .. } | Place::Gone => false,
        };
        if !is_mine {
            return;
        }
        if self.is_lost(&what) {
            return self.lose_connection(now_us, conn, wires, witness);
        }
        witness.trace.note(now_us, format_args!("c{}", self.id.0), || format!("{conn:?} <- {what:?}"));
        self.heard_us = now_us;
        match what {
            ToClient::Sent(Sent::Connected(reply)) => self.on_connected(now_us, conn, reply, witness),
            ToClient::Sent(Sent::Reply { xid, zxid, result }) => {
                let under_way = if xid == PING_XID { &mut self.pings } else { &mut self.outstanding };
                *under_way = under_way.saturating_sub(1);
                let is_news = zxid > self.last_zxid;
                self.last_zxid = self.last_zxid.max(zxid);
                match &mut self.voice {
                    Voice::Drawn(asks) if xid != PING_XID => asks.answered(zxid, &result),
                    Voice::Drawn(_) => {}
                    Voice::Owned(line) => line.on_reply(xid, zxid, &result),
                }
                witness.recorder.answered(now_us, conn, xid, zxid, result);
                // Who has just seen something new is most likely to find a server that has not.
                if is_news && self.habits.moves_one_in > 0 && self.random.one_in(self.habits.moves_one_in) {
                    self.leave(now_us, conn, wires, witness);
                    self.place = Place::Away { until_us: now_us };
                }
            }
            ToClient::Sent(Sent::Event(event)) => {
                // Not taken for something that was seen: more events of the same zxid may come, and as real clients do.
                match &mut self.voice {
                    Voice::Drawn(asks) => asks.notified(&event),
                    Voice::Owned(line) => line.on_event(&event),
                }
                witness.recorder.notified(now_us, conn, event);
            }
            ToClient::Fin | ToClient::Sent(Sent::Close) => self.on_end(now_us, conn, End::ByServer, witness),
            ToClient::Reset => self.on_end(now_us, conn, End::Lost, witness),
        }
    }

    fn due_us(&self) -> u64 {
        match self.place {
            Place::Away { until_us } => until_us,
            Place::Joining { since_us, .. } => since_us + self.timeout_us() / 3,
            Place::Open { .. } => {
                let is_drawn = matches!(self.voice, Voice::Drawn(_));
                let asks = is_drawn && !self.is_quiet && self.outstanding < self.habits.window;
                let asks_us = if asks { self.asks_us } else { u64::MAX };
                asks_us.min(self.patience_us()).min(self.ping_us())
            }
            Place::Gone => u64::MAX,
        }
    }

    fn timeout_us(&self) -> u64 {
        self.session.map_or(self.habits.timeout_ms as u64 * MS, |(_, _, timeout_us)| timeout_us)
    }

    /// When it gives the connection up if it hears nothing, as ZooKeeper's client does. One in the server's process waits: no network is between them.
    fn patience_us(&self) -> u64 {
        if self.home.is_some() { u64::MAX } else { self.heard_us + self.timeout_us() * 2 / 3 }
    }

    fn ping_us(&self) -> u64 {
        self.said_us + self.timeout_us() / 3
    }

    fn connect(&mut self, now_us: u64, wires: &mut Wires, witness: &mut Witness) {
        if self.session.is_some()
            && let Some(timeout_ms) = self.habits.renews.as_mut().and_then(Renews::next)
        {
            self.habits.timeout_ms = timeout_ms;
        }
        let request = match &self.voice {
            Voice::Drawn(_) => Some(self.first_message()),
            Voice::Owned(line) => line.dial(),
        };
        let Some(request) = request else {
            self.place = Place::Gone;
            return;
        };
        self.server = *self.random.pick(&self.servers);
        let conn = wires.open(self.id, self.server, self.home.is_some());
        witness.trace.note(now_us, format_args!("c{}", self.id.0), || {
            format!("{conn:?} to s{} {request:?}", self.server.as_u8())
        });
        let peer = wires.address_of(conn);
        witness.recorder.connecting(now_us, self.id, conn, self.server, peer, request.clone());
        if self.home.is_some() {
            witness.recorder.embedded(conn);
        }
        wires.send_to_server(now_us, conn, ToServer::Connect(request));
        self.place = Place::Joining { conn, since_us: now_us };
        (self.heard_us, self.said_us) = (now_us, now_us);
        (self.outstanding, self.pings, self.xid) = (0, 0, 0);
    }

    fn first_message(&self) -> ConnectRequest {
        ConnectRequest {
            last_zxid_seen: self.last_zxid,
            timeout_ms: self.habits.timeout_ms,
            session: self.session.map_or(SessionId(0), |(session, ..)| session),
            password: self.session.map(|(_, secret, _)| Bytes::copy_from_slice(&secret.0)),
            read_only: Some(false),
        }
    }

    fn on_connected(&mut self, now_us: u64, conn: ConnId, reply: ConnectReply, witness: &mut Witness) {
        witness.recorder.connected(now_us, conn, reply);
        if let Voice::Owned(line) = &self.voice {
            line.on_connected(conn, &reply);
        }
        if reply.timeout_ms <= 0 {
            self.session = None;
            return;
        }
        self.session = Some((reply.session, reply.secret, reply.timeout_ms as u64 * MS));
        if let Voice::Drawn(asks) = &mut self.voice {
            asks.connected(&reply);
        }
        self.place = Place::Open { conn };
        self.asks_us = now_us;
    }

    fn ask(&mut self, now_us: u64, conn: ConnId, wires: &mut Wires, witness: &mut Witness) {
        let one_in = |random: &mut Random, n: u64| n > 0 && random.one_in(n);
        let Voice::Drawn(asks) = &mut self.voice else { return };
        let request = asks.next(self.last_zxid);
        let ends = request == Request::CloseSession;
        self.xid += 1;
        self.say(now_us, conn, self.xid, request, wires, witness);
        let is_next_at_once = one_in(&mut self.random, self.habits.at_once_one_in);
        self.asks_us = if is_next_at_once { now_us } else { now_us + self.random.exponential(self.habits.think_us) };
        if ends {
            // It wants nothing more of this session, whatever comes of it.
            self.session = None;
            self.asks_us = u64::MAX;
        } else if one_in(&mut self.random, self.habits.moves_one_in) {
            self.leave(now_us, conn, wires, witness);
            self.place = Place::Away { until_us: now_us };
        } else if one_in(&mut self.random, self.habits.vanishes_one_in) {
            witness.recorder.ended(now_us, conn, End::ByClient);
            self.place = Place::Away { until_us: now_us + self.timeout_us() * self.random.between(1, 3) };
        }
    }

    fn say(&mut self, now_us: u64, conn: ConnId, xid: i32, request: Request, wires: &mut Wires, witness: &mut Witness) {
        let xid = if request == Request::Ping { PING_XID } else { xid };
        witness.trace.note(now_us, format_args!("c{}", self.id.0), || format!("{conn:?} -> {xid} {request:?}"));
        *(if xid == PING_XID { &mut self.pings } else { &mut self.outstanding }) += 1;
        // A session of this process is pinged whatever else it says.
        if xid == PING_XID || matches!(self.voice, Voice::Drawn(_)) {
            self.said_us = now_us;
        }
        witness.recorder.invoked(now_us, conn, xid, request.clone());
        wires.send_to_server(now_us, conn, ToServer::Request(xid, request));
    }

    fn leave(&mut self, now_us: u64, conn: ConnId, wires: &mut Wires, witness: &mut Witness) {
        wires.send_to_server(now_us, conn, ToServer::Fin);
        self.on_end(now_us, conn, End::ByClient, witness);
    }

    fn on_end(&mut self, now_us: u64, conn: ConnId, end: End, witness: &mut Witness) {
        witness.recorder.ended(now_us, conn, end);
        self.place = Place::Away { until_us: now_us + self.random.between(MS, 200 * MS) };
        if let Voice::Owned(line) = &self.voice {
            // Nobody knows whether that write was carried out: another one is to be lost.
            self.loses = if let Loses::AnswerAfter(_) = self.loses { Loses::NextWrite } else { self.loses };
            if !line.on_closed() {
                self.place = Place::Gone;
            }
        }
    }
}

/// What happens to a client whose requests come from futures.
impl Client {
    /// Whether its requests come from futures.
    pub(super) fn is_owned(&self) -> bool {
        matches!(self.voice, Voice::Owned(_))
    }

    /// Whether it never has a connection any more.
    pub(super) fn is_gone(&self) -> bool {
        self.place == Place::Gone
    }

    /// The session that it has, as it believes.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.session.map(|(session, ..)| session).filter(|_| !self.is_gone())
    }

    /// Another life begins, with a session of its own.
    pub(super) fn revive(&mut self, now_us: u64, line: Line) {
        self.voice = Voice::Owned(line);
        self.place = Place::Away { until_us: now_us };
        (self.session, self.last_zxid, self.loses) = (None, 0, Loses::Nothing);
    }

    /// What its futures have said goes out, in order.
    pub(super) fn send_said(&mut self, now_us: u64, wires: &mut Wires, witness: &mut Witness) {
        let Voice::Owned(line) = &self.voice else { return };
        for (of, xid, request) in line.take_said() {
            if self.place != (Place::Open { conn: of }) {
                continue;
            }
            let is_write = matches!(request, Request::Write(_) | Request::Multi(_));
            if self.loses == Loses::NextWrite && is_write {
                self.loses = Loses::AnswerAfter(self.outstanding);
            }
            self.say(now_us, of, xid, request, wires, witness);
        }
    }

    /// Its next write is carried out, and its connection breaks before the answer.
    pub(super) fn lose_next_reply(&mut self) {
        self.loses = Loses::NextWrite;
    }

    /// It is no more. Its kernel closes the connection, or, without power, nobody does.
    pub(super) fn die(&mut self, now_us: u64, has_power: bool, wires: &mut Wires, witness: &mut Witness) {
        if let Place::Joining { conn, .. } | Place::Open { conn } = self.place {
            if has_power {
                wires.send_to_server(now_us, conn, ToServer::Fin);
            }
            witness.recorder.ended(now_us, conn, End::Lost);
        }
        self.place = Place::Gone;
    }

    fn is_lost(&mut self, what: &ToClient) -> bool {
        let ToClient::Sent(Sent::Reply { xid, .. }) = what else { return false };
        match &mut self.loses {
            Loses::AnswerAfter(0) if *xid != PING_XID => return true,
            Loses::AnswerAfter(others) if *xid != PING_XID => *others -= 1,
            Loses::AnswerAfter(_) | Loses::NextWrite | Loses::Nothing => {}
        }
        false
    }

    fn lose_connection(&mut self, now_us: u64, conn: ConnId, wires: &mut Wires, witness: &mut Witness) {
        witness.trace.note(now_us, format_args!("c{}", self.id.0), || format!("{conn:?} breaks before an answer"));
        self.loses = Loses::Nothing;
        wires.send_to_server(now_us, conn, ToServer::Fin);
        self.on_end(now_us, conn, End::Lost, witness);
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, place, server, outstanding, .. } = self;
        write!(f, "c{} {place:?} at s{} with {outstanding} outstanding", id.0, server.as_u8())
    }
}
