//! Clients that behave as ZooKeeper's libraries do.
//!
//! A client has one connection at a time and keeps its session from one connection to the next. It
//! pings, and gives up a connection that stays silent.

use super::owners::Line;
use super::wire::ToServer;
use super::witness::Witness;
use super::{MS, SECOND, Sent, Wires};
use crate::oracle::{ClientId, End};
use crate::workload::{Random, Workload};
use bytes::Bytes;
use std::fmt;
use zoolet_machine::ConnId;
use zoolet_model::{ConnectReply, ConnectRequest, ErrorCode, Reply, Request, SessionId, SessionSecret, WatchEvent};
use zoolet_zab::ServerId;

/// The xid of every ping.
const PING_XID: i32 = -2;

/// Something that reaches a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToClient {
    /// A message of the server; never [`Sent::Close`].
    Sent(Sent),
    /// The server closed the connection.
    Fin,
    /// There is no such connection, or no such process.
    Reset,
}

/// Decides which requests a client sends.
pub trait Asks: fmt::Debug {
    /// Returns the next request; `last_zxid` is the newest that the client has seen.
    fn next(&mut self, last_zxid: i64) -> Request;

    /// Tells that the client has a session on a new connection, possibly another session than
    /// before.
    fn connected(&mut self, _reply: &ConnectReply) {}

    /// Tells that the oldest unanswered request of this connection was answered.
    ///
    /// Pings do not count: the client sends them itself.
    fn answered(&mut self, _zxid: i64, _result: &Result<Reply, ErrorCode>) {}

    /// Tells that a watch fired.
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

/// The behaviour of a client.
#[derive(Clone, Debug)]
pub struct Habits {
    /// The session timeout that it requests, in milliseconds.
    pub timeout_ms: i32,
    /// Maximum number of requests in flight.
    pub window: usize,
    /// Mean time between two requests, in microseconds.
    pub think_us: u64,
    /// One request in this many is followed by the next at once; 0 means never.
    pub at_once_one_in: u64,
    /// One request in this many is followed by a move to a new connection; 0 means never.
    ///
    /// The same holds for answers with a newer zxid. The client draws the server of the new
    /// connection from all its servers.
    pub moves_one_in: u64,
    /// One request in this many is followed by silence for one or two timeouts; 0 means never.
    pub vanishes_one_in: u64,
    /// How the client changes its timeout when it reconnects; `None` keeps it.
    pub renews: Option<Renews>,
    /// Whether the client also connects to a server that lets it only read.
    pub may_read_only: bool,
}

/// Draws new session timeouts for a client that reconnects.
///
/// It has a separate generator, so that nothing else that the client does depends on it.
#[derive(Clone, Debug)]
pub struct Renews {
    random: Random,
    /// One reconnection in this many requests another timeout; 0 means never.
    one_in: u64,
}

impl Renews {
    /// Draws the habit from the client's seed; half of all clients have it.
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
    /// Draws the habits of a client.
    pub fn drawn(random: &mut Random) -> Self {
        Self {
            timeout_ms: random.logarithmic(2000, 16_000) as i32,
            window: random.logarithmic(1, 16) as usize,
            think_us: random.logarithmic(20 * MS, 200 * MS),
            at_once_one_in: if random.one_in(2) { random.between(2, 8) } else { 0 },
            moves_one_in: if random.one_in(2) { random.between(20, 100) } else { 0 },
            vanishes_one_in: if random.one_in(3) { random.between(50, 200) } else { 0 },
            renews: None,
            may_read_only: false,
        }
    }

    /// Returns the habits of a client whose requests come from futures.
    fn owned(timeout_ms: i32) -> Self {
        Self {
            timeout_ms,
            window: 0,
            think_us: 0,
            at_once_one_in: 0,
            moves_one_in: 0,
            vanishes_one_in: 0,
            renews: None,
            may_read_only: false,
        }
    }
}

/// The source of a client's requests.
#[derive(Debug)]
enum Voice {
    /// Requests are drawn, at times that the client chooses.
    Drawn(Box<dyn Asks>),
    /// Requests come from futures, over the link of their session.
    Owned(Line),
}

/// Whether a client with futures is to lose an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loses {
    Nothing,
    /// The answer to its next write.
    NextWrite,
    /// The answer to a write in flight, after this many other answers.
    AnswerAfter(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Without a connection until this time.
    Away { until_us: u64 },
    /// The connection request or its answer is in flight.
    Joining { conn: ConnId, since_us: u64 },
    /// Connected, with a session.
    Open { conn: ConnId },
    /// Without a connection for ever: its session is over, or its owner is dead.
    Gone,
}

/// A simulated client.
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
    /// The server in whose process the client lives.
    home: Option<ServerId>,
    /// The client sends no more requests and keeps its session.
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

    /// Creates a client that sends the requests of futures, with their session.
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

    /// Moves the client into a server's process.
    ///
    /// It then knows no other server, and ends with that process.
    pub(super) fn in_process(self, home: ServerId) -> Self {
        let habits = Habits { moves_one_in: 0, ..self.habits };
        Self { servers: vec![home], server: home, habits, home: Some(home), ..self }
    }

    /// Returns the server in whose process the client lives, if any.
    pub fn home(&self) -> Option<ServerId> {
        self.home
    }

    /// Handles the end of the process that the client lives in.
    ///
    /// The client loses everything it knew. A client with drawn requests begins anew in the next
    /// process.
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

    /// Returns an open connection with nothing in flight, and its server.
    pub(super) fn attached(&self) -> Option<(ServerId, ConnId)> {
        match self.place {
            Place::Open { conn } if self.outstanding + self.pings == 0 => Some((self.server, conn)),
            Place::Open { .. } | Place::Joining { .. } | Place::Away { .. } | Place::Gone => None,
        }
    }

    /// Returns the time of the client's next action, unless it is already scheduled.
    pub(super) fn arm(&mut self) -> Option<u64> {
        let due_us = self.due_us();
        if due_us == u64::MAX || self.wakes_us.is_some_and(|wakes_us| wakes_us <= due_us) {
            return None;
        }
        self.wakes_us = Some(due_us);
        Some(due_us)
    }

    /// Runs the client when its time has come.
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

    /// Handles something that reached the client.
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
                // A client that has just seen something new is the likeliest to find a server that
                // has not.
                if is_news && self.habits.moves_one_in > 0 && self.random.one_in(self.habits.moves_one_in) {
                    self.leave(now_us, conn, wires, witness);
                    self.place = Place::Away { until_us: now_us };
                }
            }
            ToClient::Sent(Sent::Event(event)) => {
                // An event does not raise `last_zxid`, as in real clients: more events of the same
                // zxid may follow.
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

    /// Returns when the client gives up a silent connection, as ZooKeeper's client does.
    ///
    /// A client inside the server's process never gives up, because no network is between them.
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
            read_only: Some(self.habits.may_read_only && self.home.is_none()),
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
            // The client sends nothing more on this session, even if the close fails.
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
        // A session held by futures is pinged on schedule, even while it sends other requests.
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
            // The connection ended before the chosen answer, so the write may not have been carried
            // out. The fate waits for the next write.
            self.loses = if let Loses::AnswerAfter(_) = self.loses { Loses::NextWrite } else { self.loses };
            if !line.on_closed() {
                self.place = Place::Gone;
            }
        }
    }
}

/// Methods for clients whose requests come from futures.
impl Client {
    /// Returns whether the client's requests come from futures.
    pub(super) fn is_owned(&self) -> bool {
        matches!(self.voice, Voice::Owned(_))
    }

    /// Returns whether the client will never have a connection again.
    pub(super) fn is_gone(&self) -> bool {
        self.place == Place::Gone
    }

    /// Returns the session that the client believes it has.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.session.map(|(session, ..)| session).filter(|_| !self.is_gone())
    }

    /// Begins another life of the client, with a new session.
    pub(super) fn revive(&mut self, now_us: u64, line: Line) {
        self.voice = Voice::Owned(line);
        self.place = Place::Away { until_us: now_us };
        (self.session, self.last_zxid, self.loses) = (None, 0, Loses::Nothing);
    }

    /// Sends the requests of the client's futures, in order.
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

    /// Loses the answer to the next write: the connection breaks before it arrives.
    pub(super) fn lose_next_reply(&mut self) {
        self.loses = Loses::NextWrite;
    }

    /// Ends the client.
    ///
    /// Its kernel closes the connection; after a loss of power the connection stays open.
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
