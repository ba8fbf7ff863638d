//! The record of a run, as its clients and the simulator saw it. The oracles judge nothing else.
//!
//! The driver of an ensemble records into a [`Recorder`], in the order of the run, and passes the
//! resulting [`History`] to [`check`](super::check). Times are microseconds of the simulator's own
//! clock, which shows true time, unlike the servers' clocks. Messages are recorded at the client: a
//! request when it leaves, an answer when it arrives.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::IpAddr;
use zoolet_machine::ConnId;
use zoolet_model::{ConnectReply, ConnectRequest, ErrorCode, Reply, Request, ServerId, SessionId, WatchEvent, Zxid};

/// A client, numbered by the run's driver.
///
/// It may have many connections and sessions, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u32);

/// The time of a recorded event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment {
    /// Microseconds of true time.
    pub us: u64,
    /// Sequence number of the record. It orders records within a microsecond.
    pub step: u64,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The client left it.
    ByClient,
    /// The server closed it, and the close reached the client.
    ByServer,
    /// It broke: the server's process died, or the network failed.
    Lost,
}

/// A message that reached the client, after the answer to its connect request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// The answer to this operation (an index of [`History::operations`]).
    Answer(usize),
    /// A watch event.
    Event(Moment, WatchEvent),
    /// An answer that matches no request: its xid and zxid.
    Stray(Moment, i32, i64),
}

/// One connection of one client to one server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Its number, unique in the run.
    pub id: ConnId,
    /// The client that opened it.
    pub client: ClientId,
    /// The server that it goes to.
    pub server: ServerId,
    /// Whether it is an in-process session of that server's process, which dies with it.
    pub embedded: bool,
    /// For an in-process session, the time when the process ended.
    pub orphaned: Option<Moment>,
    /// The address that `ip` ACLs see.
    pub peer: Option<IpAddr>,
    /// Its connect request.
    pub request: ConnectRequest,
    /// The time when the client sent the connect request.
    pub begun: Moment,
    /// The answer, if one arrived. Its session and timeout are 0 if the session was refused.
    pub reply: Option<(Moment, ConnectReply)>,
    /// The requests on it, in order (indices of [`History::operations`]).
    pub operations: Vec<usize>,
    /// The messages that arrived on it, in order.
    pub received: Vec<Received>,
    /// When and how it ended; `None` if it was open at the end of the run.
    pub ended: Option<(Moment, End)>,
}

impl Connection {
    /// Returns the session named by the answer.
    pub fn session(&self) -> Option<SessionId> {
        self.reply.as_ref().map(|(_, reply)| reply.session).filter(|session| session.0 != 0)
    }

    /// Returns whether the client asked for a new session.
    pub fn wants_new_session(&self) -> bool {
        self.request.session.0 == 0
    }

    /// Returns whether the server lets the client only read.
    pub fn is_reader(&self) -> bool {
        self.reply.as_ref().is_some_and(|(_, reply)| reply.read_only_ms.is_some())
    }

    /// Returns the time when the client was told that its session no longer exists.
    pub fn refused(&self) -> Option<Moment> {
        self.reply.as_ref().filter(|(_, reply)| reply.session.0 == 0).map(|(at, _)| *at)
    }
}

/// The answer to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Time at which it reached the client.
    pub at: Moment,
    /// The zxid in its header.
    pub zxid: i64,
    /// Its body, or the error.
    pub result: Result<Reply, ErrorCode>,
}

/// One request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its connection (an index of [`History::connections`]).
    pub connection: usize,
    /// The xid, as sent.
    pub xid: i32,
    /// The request.
    pub request: Request,
    /// Time at which it left the client.
    pub invoked: Moment,
    /// `None` if the connection or the run ended first. It is then unknown whether it took effect.
    pub answer: Option<Answer>,
}

/// An entry that a server considered committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Its zxid.
    pub zxid: Zxid,
    /// Its bytes.
    pub payload: Bytes,
    /// Time at which the first server applied it.
    pub at: Moment,
}

/// A period in microseconds, from the start up to and excluding the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Start.
    pub from_us: u64,
    /// End, exclusive.
    pub to_us: u64,
}

impl Span {
    /// Returns whether `from_us ..= to_us` lies within the span.
    pub fn covers(&self, from_us: u64, to_us: u64) -> bool {
        self.from_us <= from_us && to_us <= self.to_us
    }

    /// Returns whether the spans overlap or touch.
    fn meets(&self, other: &Self) -> bool {
        self.from_us <= other.to_us && other.from_us <= self.to_us
    }
}

/// The first disagreement of servers about the committed history.
///
/// Two servers applied different entries at one zxid, or a server applied an entry at a zxid that
/// another server had skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// The zxid where they disagree.
    pub zxid: Zxid,
    /// Time of the second apply.
    pub at: Moment,
    /// Description of the disagreement.
    pub what: String,
}

/// A whole run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// Every connection, in the order in which they were opened.
    pub connections: Vec<Connection>,
    /// Every request, in the order in which they left their clients.
    pub operations: Vec<Operation>,
    /// The committed history of the ensemble, from its first entry, in order.
    pub committed: Vec<Committed>,
    /// The first disagreement of the servers about the committed history.
    pub disagreement: Option<Disagreement>,
    /// Per server: when it led a quorum or followed such a leader, all over intact links.
    pub serving: BTreeMap<ServerId, Vec<Span>>,
    /// When an established leader had a quorum and no fault was active.
    pub healthy: Vec<Span>,
    /// Per server: when it may have refused requests, because of a full disk or a failing base.
    pub refusing: BTreeMap<ServerId, Vec<Span>>,
    /// When a leader may have refused requests. It refuses requests of every server's clients.
    ///
    /// A server that believes that it leads counts as well.
    pub leader_refusing: Vec<Span>,
    /// Per server: when it led, or believed so.
    pub leading: BTreeMap<ServerId, Vec<Span>>,
    /// Per server: when its clock stood still while it worked.
    pub standing_still: BTreeMap<ServerId, Vec<Span>>,
    /// Per server: when its clock stood still or its disk was slow. The states that it shows may be
    /// outdated by as much.
    pub held_up: BTreeMap<ServerId, Vec<Span>>,
    /// End of the run.
    pub ended: Moment,
    /// Whether everything committed had reached every server and client before the end.
    pub is_quiet: bool,
    /// `user:hash` of the digest identity that passes every check, if the servers know one.
    pub super_digest: Option<String>,
}

impl History {
    /// Returns the index in [`History::committed`] of the last entry at or below this zxid.
    pub fn committed_up_to(&self, zxid: i64) -> Option<usize> {
        self.committed.partition_point(|entry| entry.zxid.as_i64() <= zxid).checked_sub(1)
    }

    /// Returns the entry with this zxid.
    pub fn entry(&self, zxid: i64) -> Option<&Committed> {
        self.committed_up_to(zxid).map(|at| &self.committed[at]).filter(|entry| entry.zxid.as_i64() == zxid)
    }

    /// Returns the earliest time that a leader's clock may have shown at `at_us`.
    ///
    /// A leader does not notice a clock that stands still for at most `unnoticed_us`. A clock that
    /// stands still for longer does not count here, nor does the clock of a server that led at no
    /// time while the clock stood still.
    pub fn clock_at(&self, at_us: u64, unnoticed_us: u64) -> u64 {
        let led = |server: &ServerId, span: &Span| {
            self.leading.get(server).is_some_and(|leading| leading.iter().any(|led| led.meets(span)))
        };
        let is_unnoticed = |span: &Span| span.covers(at_us, at_us) && span.to_us - span.from_us <= unnoticed_us;
        let spans = self.standing_still.iter().flat_map(|(server, spans)| spans.iter().map(move |span| (server, span)));
        let of_leaders = spans.filter(|(server, span)| is_unnoticed(span) && led(server, span));
        of_leaders.map(|(_, span)| span.from_us).min().unwrap_or(at_us)
    }

    /// Returns the connection of an operation.
    pub fn connection_of(&self, operation: &Operation) -> &Connection {
        &self.connections[operation.connection]
    }
}

/// Records a [`History`] while the run goes on.
///
/// The order of the calls is the order of the run. A request that a client makes because of an
/// answer is recorded after that answer. The recorder judges nothing: it accepts any behaviour of a
/// broken server.
#[derive(Debug, Default)]
pub struct Recorder {
    history: History,
    now: Moment,
    by_id: BTreeMap<ConnId, usize>,
    /// The number of answers that each connection has received.
    answers: Vec<usize>,
    serving_since: BTreeMap<ServerId, u64>,
    healthy_since: Option<u64>,
    refusing_since: BTreeMap<ServerId, u64>,
    leader_refusing_since: Option<u64>,
    leading_since: BTreeMap<ServerId, u64>,
    stands_still_since: BTreeMap<ServerId, u64>,
    held_up_since: BTreeMap<ServerId, u64>,
}

impl Recorder {
    /// Creates a recorder at the beginning of a run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the super user that the servers know, as `user:hash` of its digest.
    pub fn with_super_digest(mut self, super_digest: Option<String>) -> Self {
        self.history.super_digest = super_digest;
        self
    }

    /// Returns the history recorded so far.
    pub fn so_far(&self) -> &History {
        &self.history
    }

    fn moment(&mut self, at_us: u64) -> Moment {
        debug_assert!(at_us >= self.now.us, "time goes on: {at_us} after {}", self.now.us);
        self.now = Moment { us: at_us.max(self.now.us), step: self.now.step + 1 };
        self.now
    }

    fn connection(&mut self, conn: ConnId) -> Option<(usize, &mut Connection)> {
        let index = *self.by_id.get(&conn)?;
        Some((index, self.history.connections.get_mut(index)?))
    }

    // Recorded from the clients' view.

    /// A client opens a connection and sends its connect request.
    ///
    /// `conn` must be unique in the run, across all servers.
    pub fn connecting(
        &mut self,
        at_us: u64,
        client: ClientId,
        conn: ConnId,
        server: ServerId,
        peer: Option<IpAddr>,
        request: ConnectRequest,
    ) {
        let begun = self.moment(at_us);
        debug_assert!(!self.by_id.contains_key(&conn), "{conn:?} is used twice");
        self.by_id.insert(conn, self.history.connections.len());
        self.answers.push(0);
        self.history.connections.push(Connection {
            id: conn,
            client,
            server,
            embedded: false,
            orphaned: None,
            peer,
            request,
            begun,
            reply: None,
            operations: Vec::new(),
            received: Vec::new(),
            ended: None,
        });
    }

    /// Marks a connection as an in-process session, which may end at once with its server's
    /// process.
    pub fn embedded(&mut self, conn: ConnId) {
        if let Some((_, connection)) = self.connection(conn) {
            connection.embedded = true;
        }
    }

    /// A server's process ended, and with it all its in-process sessions.
    pub fn process_ended(&mut self, at_us: u64, server: ServerId) {
        let at = self.moment(at_us);
        let lived = |connection: &&mut Connection| connection.embedded && connection.server == server;
        for connection in self.history.connections.iter_mut().filter(lived) {
            connection.orphaned.get_or_insert(at);
        }
    }

    /// The answer to the connect request reached the client; it may be a refusal.
    pub fn connected(&mut self, at_us: u64, conn: ConnId, reply: ConnectReply) {
        let at = self.moment(at_us);
        if let Some((_, connection)) = self.connection(conn) {
            connection.reply = Some((at, reply));
        }
    }

    /// A client sends a request.
    pub fn invoked(&mut self, at_us: u64, conn: ConnId, xid: i32, request: Request) {
        let invoked = self.moment(at_us);
        let operation = self.history.operations.len();
        if let Some((index, connection)) = self.connection(conn) {
            connection.operations.push(operation);
            self.history.operations.push(Operation { connection: index, xid, request, invoked, answer: None });
        }
    }

    /// An answer reached the client.
    ///
    /// It is matched to the connection's oldest unanswered request with this xid. Pings always
    /// match -2, not their own xid.
    pub fn answered(&mut self, at_us: u64, conn: ConnId, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) {
        let at = self.moment(at_us);
        let Some(&index) = self.by_id.get(&conn) else { return };
        let History { connections, operations, .. } = &mut self.history;
        let connection = &mut connections[index];
        // Answers arrive in order, so the search ends at once unless a server is broken.
        let in_order = connection.operations.get(self.answers[index]).copied();
        let fits = |&at: &usize| {
            let operation: &Operation = &operations[at];
            let expected = if operation.request == Request::Ping { -2 } else { operation.xid };
            operation.answer.is_none() && expected == xid
        };
        let found = in_order.filter(fits).or_else(|| connection.operations.iter().copied().find(fits));
        match found {
            Some(operation) => {
                operations[operation].answer = Some(Answer { at, zxid, result });
                connection.received.push(Received::Answer(operation));
                self.answers[index] += 1;
            }
            None => connection.received.push(Received::Stray(at, xid, zxid)),
        }
    }

    /// A watch event reached the client.
    pub fn notified(&mut self, at_us: u64, conn: ConnId, event: WatchEvent) {
        let at = self.moment(at_us);
        if let Some((_, connection)) = self.connection(conn) {
            connection.received.push(Received::Event(at, event));
        }
    }

    /// The connection is over for the client; messages in flight on it never arrive. Only the first
    /// end counts.
    pub fn ended(&mut self, at_us: u64, conn: ConnId, end: End) {
        let at = self.moment(at_us);
        if let Some((_, connection)) = self.connection(conn) {
            connection.ended.get_or_insert((at, end));
        }
    }

    // Known only to the simulator.

    /// A server applied an entry.
    ///
    /// Call this for every entry and every server, in each server's order. An entry that is already
    /// known is compared with the recorded one.
    pub fn committed(&mut self, at_us: u64, zxid: Zxid, payload: &Bytes) {
        let at = self.moment(at_us);
        let committed = &mut self.history.committed;
        let disagreement = match committed.last() {
            Some(last) if zxid <= last.zxid => {
                let known = committed.partition_point(|entry| entry.zxid < zxid);
                match committed.get(known).filter(|entry| entry.zxid == zxid) {
                    Some(entry) if entry.payload == *payload => None,
                    Some(_) => Some("another server applied other bytes here"),
                    None => Some("other servers applied nothing here, but something later"),
                }
            }
            _ => {
                committed.push(Committed { zxid, payload: payload.clone(), at });
                None
            }
        };
        if let Some(what) = disagreement {
            self.history.disagreement.get_or_insert(Disagreement { zxid, at, what: what.to_owned() });
        }
    }

    /// Starts or ends a period in which the server is serving.
    ///
    /// It then leads a quorum over intact links, or follows such a leader over an intact link, and
    /// nothing delays its process or clock. In doubt pass `false`, which only makes the oracles
    /// less strict.
    pub fn serving(&mut self, at_us: u64, server: ServerId, is_serving: bool) {
        let at = self.moment(at_us);
        if is_serving {
            self.serving_since.entry(server).or_insert(at.us);
        } else if let Some(from_us) = self.serving_since.remove(&server) {
            self.history.serving.entry(server).or_default().push(Span { from_us, to_us: at.us });
        }
    }

    /// Starts or ends a period with an established leader, a serving quorum and no active fault.
    pub fn healthy(&mut self, at_us: u64, is_healthy: bool) {
        let at = self.moment(at_us);
        if is_healthy {
            self.healthy_since.get_or_insert(at.us);
        } else if let Some(from_us) = self.healthy_since.take() {
            self.history.healthy.push(Span { from_us, to_us: at.us });
        }
    }

    /// Starts or ends a period in which the server may refuse requests.
    ///
    /// It answers SYSTEMERROR to requests that it otherwise accepts, because its disk is full or
    /// its base fails.
    pub fn refusing(&mut self, at_us: u64, server: ServerId, may_refuse: bool) {
        let at = self.moment(at_us);
        if may_refuse {
            self.refusing_since.entry(server).or_insert(at.us);
        } else if let Some(from_us) = self.refusing_since.remove(&server) {
            self.history.refusing.entry(server).or_default().push(Span { from_us, to_us: at.us });
        }
    }

    /// Starts or ends a period in which a leader may refuse requests in this way.
    pub fn leader_refusing(&mut self, at_us: u64, may_refuse: bool) {
        let at = self.moment(at_us);
        if may_refuse {
            self.leader_refusing_since.get_or_insert(at.us);
        } else if let Some(from_us) = self.leader_refusing_since.take() {
            self.history.leader_refusing.push(Span { from_us, to_us: at.us });
        }
    }

    /// Starts or ends a period in which the server leads, or believes so.
    pub fn leading(&mut self, at_us: u64, server: ServerId, leads: bool) {
        let at = self.moment(at_us);
        if leads {
            self.leading_since.entry(server).or_insert(at.us);
        } else if let Some(from_us) = self.leading_since.remove(&server) {
            self.history.leading.entry(server).or_default().push(Span { from_us, to_us: at.us });
        }
    }

    /// Starts or ends a period in which the server's clock stands still while it works.
    pub fn standing_still(&mut self, at_us: u64, server: ServerId, stands_still: bool) {
        let at = self.moment(at_us);
        if stands_still {
            self.stands_still_since.entry(server).or_insert(at.us);
        } else if let Some(from_us) = self.stands_still_since.remove(&server) {
            self.history.standing_still.entry(server).or_default().push(Span { from_us, to_us: at.us });
        }
    }

    /// Starts or ends a period in which the server's clock stands still or its disk is unusually
    /// slow.
    pub fn held_up(&mut self, at_us: u64, server: ServerId, is_held_up: bool) {
        let at = self.moment(at_us);
        if is_held_up {
            self.held_up_since.entry(server).or_insert(at.us);
        } else if let Some(from_us) = self.held_up_since.remove(&server) {
            self.history.held_up.entry(server).or_default().push(Span { from_us, to_us: at.us });
        }
    }

    /// Ends the run and returns its history.
    ///
    /// `is_quiet` says that the ensemble ran without faults at the end for long enough. Every
    /// server has then applied every entry, and no message to a client is in flight.
    pub fn finish(mut self, at_us: u64, is_quiet: bool) -> History {
        let ended = self.moment(at_us);
        let servers: Vec<_> = self.serving_since.keys().copied().collect();
        for server in servers {
            self.serving(at_us, server, false);
        }
        let servers: Vec<_> = self.held_up_since.keys().copied().collect();
        for server in servers {
            self.held_up(at_us, server, false);
        }
        self.healthy(at_us, false);
        let servers: Vec<_> = self.refusing_since.keys().copied().collect();
        for server in servers {
            self.refusing(at_us, server, false);
        }
        self.leader_refusing(at_us, false);
        let servers: Vec<_> = self.leading_since.keys().copied().collect();
        for server in servers {
            self.leading(at_us, server, false);
        }
        let servers: Vec<_> = self.stands_still_since.keys().copied().collect();
        for server in servers {
            self.standing_still(at_us, server, false);
        }
        self.history.ended = ended;
        self.history.is_quiet = is_quiet;
        self.history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONN: ConnId = ConnId(7);

    fn begun() -> Recorder {
        let mut recorder = Recorder::new();
        recorder.connecting(1, ClientId(1), CONN, ServerId::STANDALONE, None, ConnectRequest::for_new_session(9000));
        recorder
    }

    #[test]
    fn reply_matches_the_oldest_open_request_with_its_xid() {
        let mut recorder = begun();
        for (xid, request) in [(5, Request::WhoAmI), (5, Request::Sasl), (9, Request::Ping)] {
            recorder.invoked(2, CONN, xid, request);
        }
        for (xid, zxid) in [(5, 1), (-2, 2), (5, 3), (5, 4)] {
            recorder.answered(3, CONN, xid, zxid, Ok(Reply::Empty));
        }
        let history = recorder.finish(4, false);
        let zxids: Vec<_> =
            history.operations.iter().map(|one| one.answer.as_ref().map(|answer| answer.zxid)).collect();
        assert_eq!(zxids, [Some(1), Some(3), Some(2)]);
        let [Received::Answer(0), Received::Answer(2), Received::Answer(1), Received::Stray(_, 5, 4)] =
            history.connections[0].received[..]
        else {
            panic!("{:?}", history.connections[0].received)
        };
    }

    #[test]
    fn servers_that_apply_different_entries_are_recorded_as_disagreeing() {
        let zxid = |counter| Zxid::from_bits(counter).unwrap();
        let apply = |entries: &[(u64, &'static [u8])]| {
            let mut recorder = Recorder::new();
            for &(counter, bytes) in entries {
                recorder.committed(1, zxid(counter), &Bytes::from_static(bytes));
            }
            let history = recorder.finish(2, false);
            (history.committed.len(), history.disagreement.map(|disagreement| disagreement.zxid))
        };
        assert_eq!(apply(&[(1, b"a"), (1, b"a"), (2, b"b"), (1, b"a"), (2, b"b")]), (2, None));
        assert_eq!(apply(&[(1, b"a"), (2, b"b"), (1, b"c")]), (2, Some(zxid(1))));
        assert_eq!(apply(&[(1, b"a"), (3, b"b"), (2, b"c")]), (2, Some(zxid(2))));
    }

    #[test]
    fn a_clock_that_stands_still_counts_if_its_server_led_meanwhile() {
        let server = |id| ServerId::new(id).unwrap();
        let mut recorder = begun();
        recorder.leading(10, server(1), true);
        for id in [1, 2, 3] {
            recorder.standing_still(20 + u64::from(id), server(4 - id), true);
        }
        recorder.leading(30, server(2), true);
        for id in [1, 2, 3] {
            recorder.standing_still(40, server(id), false);
        }
        let history = recorder.finish(50, false);
        assert_eq!(history.standing_still[&server(3)], [Span { from_us: 21, to_us: 40 }]);
        assert_eq!(history.clock_at(35, 19), 22, "server 2, which leads since then; server 3 never led");
        assert_eq!(history.clock_at(35, 17), 23, "server 1 led all the time, server 2 noticed the stop");
        assert_eq!(history.clock_at(35, 16), 35, "each stop was noticed");
        assert_eq!(history.clock_at(45, 18), 45, "all clocks go on");
    }

    #[test]
    fn open_spans_end_with_the_run() {
        let mut recorder = begun();
        recorder.serving(5, ServerId::STANDALONE, true);
        recorder.serving(6, ServerId::STANDALONE, true);
        recorder.serving(8, ServerId::STANDALONE, false);
        recorder.serving(9, ServerId::STANDALONE, true);
        recorder.healthy(9, true);
        let history = recorder.finish(12, true);
        let spans = [Span { from_us: 5, to_us: 8 }, Span { from_us: 9, to_us: 12 }];
        assert_eq!(history.serving[&ServerId::STANDALONE], spans);
        assert_eq!(history.healthy, [Span { from_us: 9, to_us: 12 }]);
        assert!(spans[0].covers(5, 8) && !spans[0].covers(5, 9));
    }
}
