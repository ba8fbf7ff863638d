//! The listening sockets and the state that all connections share.

use super::close_reason::CloseReason;
use super::connection::{Connection, Touched};
use super::connection_task;
use super::handshake_rate::HandshakeRate;
use super::lock;
use super::output_queue::{ConnIds, EventSink, Output, OutputQueue};
use super::output_writer::OutputWriter;
use super::refusal_lines::Refusals;
use super::traffic::Traffic;
use super::words::{Whitelist, is_here};
use bytes::BytesMut;
use std::collections::{BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io, mem};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep_until, timeout};
use zoolet_machine::budget::{Part, REQUEST_BYTES};
use zoolet_machine::network::network;
use zoolet_machine::seam::event::List;
use zoolet_machine::{Budget, ConnId, Event, Limits, Status};

/// Bytes of the shared read buffer.
const READING_BYTES: usize = 64 << 10;
/// Write buffers kept for reuse, and the maximum bytes of one.
const WRITING_BUFFERS_MAX: usize = 8;
const WRITING_BYTES: usize = 64 << 10;
/// Maximum wait for an answer of the engine or of the disk.
pub(super) const QUESTION: Duration = Duration::from_secs(2);
/// Bytes of a connection without its task.
///
/// The figure covers its state, its entries in this port's tables and its pipeline in the engine.
/// It also covers the runtime's registration of its socket. The test `tests/limits/connections.rs`
/// compares the figure with the memory used.
const CONNECTION_BYTES: u64 = 2816;
/// Words-only connections accepted from this host above a limit.
///
/// They may ask four-letter words and nothing else: an operator must be able to query a full
/// server.
const WORDS_MAX: u32 = 4;
/// Pause after a failed accept. The usual cause is a lack of file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The operator's settings of the client port.
#[derive(Clone, Debug)]
pub struct PortSettings {
    /// The limits. The port uses those of frames, connections, outstanding requests and outbound
    /// bytes.
    pub limits: Limits,
    /// Maximum time without a session (nio.sessionlessCnxnTimeout), milliseconds.
    pub handshake_timeout_ms: u32,
    /// Maximum time to send the queued bytes of a closing connection, milliseconds.
    pub linger_ms: u32,
    /// Whether creates with a time to live are accepted (extendedTypesEnabled).
    pub ttl_znodes: bool,
    /// The four-letter words that are answered.
    pub four_letter_words: Whitelist,
    /// The texts of `srvr`, `envi` and `conf`.
    pub about: About,
}

impl Default for PortSettings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            handshake_timeout_ms: 10_000,
            linger_ms: 2_000,
            ttl_znodes: true,
            four_letter_words: Whitelist::default(),
            about: About::default(),
        }
    }
}

/// The server's description of itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// zoolet's version; clients see `3.9.5-zoolet-<version>`.
    pub version: String,
    /// Date and source of the build; empty when unknown.
    pub built_on: String,
    /// The `key=value` lines of `conf`, in order: clientPort, dataDir, tickTime...
    pub conf: Vec<(String, String)>,
    /// The id of this server.
    pub server_id: u8,
    /// Addresses of the ensemble's servers, as far as configured; empty for a standalone server.
    ///
    /// `conf` shows those that are members.
    pub servers: Vec<ServerAddresses>,
}

/// A server's addresses, as `conf` shows them.
#[derive(Clone, Debug)]
pub struct ServerAddresses {
    /// The server's id.
    pub id: u8,
    /// Each is `host:port:port`: the port of links between servers, then ZooKeeper's election port.
    pub addresses: Vec<String>,
    /// The client address, `host:port`; shown only when it is known for every member.
    pub client: Option<String>,
}

/// The client port, bound and not yet served.
#[derive(Debug)]
pub struct ClientPort {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    settings: PortSettings,
    ids: Arc<ConnIds>,
    budget: Arc<Budget>,
    traffic: Arc<Traffic>,
}

impl ClientPort {
    /// Binds every address.
    ///
    /// An address in use is thus reported before the server starts. Needs no runtime.
    ///
    /// # Errors
    /// The error of the first address that could not be bound.
    pub fn bind(
        addresses: &[SocketAddr],
        settings: PortSettings,
        ids: Arc<ConnIds>,
        budget: Arc<Budget>,
    ) -> io::Result<Self> {
        // The standard library sets SO_REUSEADDR: a restarted server must not wait until old
        // connections time out.
        let listeners = addresses.iter().map(TcpListener::bind).collect::<io::Result<Vec<_>>>()?;
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { listeners, addresses, settings, ids, budget, traffic: Arc::default() })
    }

    /// Returns the bound addresses, in the order of `bind`.
    ///
    /// Port 0 is replaced by the port that the system chose.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the port's counters, which keep counting.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    /// Serves until `stop` is ready, then closes every connection and returns.
    ///
    /// After `stop`, the port accepts no more and sends what is queued, for `linger_ms` at most.
    /// Runs inside a tokio runtime with IO and time, preferably of one thread.
    ///
    /// # Errors
    /// The runtime cannot take the sockets.
    pub async fn serve(
        self,
        sink: Arc<dyn EventSink>,
        outbox: Arc<OutputQueue>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let listeners =
            self.listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<io::Result<Vec<_>>>()?;
        let started = Instant::now();
        let port = Arc::new(Port {
            handshakes: HandshakeRate::new(&self.settings.limits, started),
            settings: self.settings,
            ids: self.ids,
            budget: self.budget,
            traffic: self.traffic,
            refusals: Refusals::new(started),
            started,
            sink,
            connections: Mutex::default(),
            networks: Mutex::default(),
            words: AtomicU32::new(0),
            questions: Mutex::default(),
            starved: Mutex::default(),
            deliveries: AtomicU64::new(0),
            begun: Arc::default(),
            turn: AtomicU64::new(0),
            reading: Mutex::default(),
            writing: Mutex::default(),
            events: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let _served = outbox.served_by(OutputWriter::new(port.clone()));
        let mut stop = pin!(stop);
        let mut accept_after = Instant::now();
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = outbox.arrived() => {
                    outbox.deliver();
                    // Lets the reading tasks run, however many outputs the engine produces.
                    tokio::task::consume_budget().await;
                }
                accepted = accept(&listeners, accept_after) => match accepted {
                    Ok((stream, peer)) => port.welcome(stream, peer, &mut tasks),
                    Err(error) => {
                        port.refusals.log_accept(&error);
                        accept_after = Instant::now() + ACCEPT_REST;
                    }
                },
                Some(ended) = tasks.join_next() => report(ended),
            }
        }
        drop(listeners);
        // Answers that the engine gave before the stop.
        outbox.deliver();
        port.close_all();
        let _ = timeout(port.linger(), async {
            while !lock(&port.connections).is_empty() {
                tokio::select! {
                    () = outbox.arrived() => outbox.deliver(),
                    Some(ended) = tasks.join_next() => report(ended),
                }
            }
        })
        .await;
        // The tasks left have no session, or their clients do not read.
        tasks.shutdown().await;
        Ok(())
    }
}

/// Accepts from whichever listener has a connection waiting, not before `after`.
async fn accept(listeners: &[tokio::net::TcpListener], after: Instant) -> io::Result<(TcpStream, SocketAddr)> {
    if Instant::now() < after {
        sleep_until(after.into()).await;
    }
    poll_fn(|cx| {
        let accepted = listeners.iter().find_map(|listener| match listener.poll_accept(cx) {
            Poll::Ready(accepted) => Some(accepted),
            Poll::Pending => None,
        });
        accepted.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Logs a panic of a connection's task. Its guard has already told the engine.
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a connection's task failed: {error}");
    }
}

/// The state that all connections share.
pub(super) struct Port {
    pub(super) settings: PortSettings,
    pub(super) ids: Arc<ConnIds>,
    pub(super) budget: Arc<Budget>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) handshakes: HandshakeRate,
    pub(super) refusals: Refusals,
    pub(super) started: Instant,
    sink: Arc<dyn EventSink>,
    pub(super) connections: Mutex<HashMap<ConnId, Arc<Connection>>>,
    /// Number of connections of each network.
    networks: Mutex<HashMap<IpAddr, u32>>,
    /// Number of words-only connections.
    words: AtomicU32,
    questions: Mutex<HashMap<u64, oneshot::Sender<Box<Status>>>>,
    /// Connections that wait until requests of others are answered.
    starved: Mutex<BTreeSet<ConnId>>,
    deliveries: AtomicU64,
    /// Bytes of incomplete requests; a part of the outstanding bytes.
    pub(super) begun: Arc<AtomicU64>,
    /// The connection that may finish its large request above the limit, by id; 0 for none.
    turn: AtomicU64,
    reading: Mutex<BytesMut>,
    writing: Mutex<Vec<BytesMut>>,
    events: Mutex<Vec<Event>>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A count of deliveries, compared to detect a delivery in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Deliveries(u64);

/// A connection's place within the limits, given back when dropped.
pub(super) struct Slot {
    port: Arc<Port>,
    place: Place,
    bytes: u64,
}

/// The limit that a connection counts against.
enum Place {
    /// The limits of all connections and of its network.
    Full(IpAddr),
    /// None: the limit named here is reached, so the connection may ask words only.
    Words(&'static str),
}

impl Slot {
    /// Returns the limit that restricts this connection to four-letter words.
    pub(super) fn words_only(&self) -> Option<&'static str> {
        match self.place {
            Place::Full(_) => None,
            Place::Words(limit) => Some(limit),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.port.budget.release(Part::ConnectionBytes, self.bytes);
        let network = match self.place {
            Place::Full(network) => network,
            Place::Words(_) => {
                self.port.words.fetch_sub(1, Relaxed);
                return;
            }
        };
        self.port.budget.release(Part::Connections, 1);
        let mut networks = lock(&self.port.networks);
        if let Some(count) = networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                networks.remove(&network);
            }
        }
    }
}

impl Port {
    /// Starts the task of an accepted socket, or closes it at a limit.
    fn welcome(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, tasks: &mut JoinSet<()>) {
        self.traffic.on_accepted();
        // Limits and ACLs compare IPv4 clients by their IPv4 address.
        let peer = crate::canonical(peer);
        let slot = self.slot(peer.ip()).or_else(|limit| {
            let own = stream.local_addr().ok().map(|own| own.ip().to_canonical());
            if is_here(peer.ip(), own) { self.words_slot(limit) } else { Err(limit) }
        });
        match slot {
            Ok(slot) => {
                tasks.spawn(connection_task::run(self.clone(), stream, peer, slot));
            }
            Err(limit) => self.reject(peer, limit),
        }
    }

    /// Counts and logs a connection closed because of a limit.
    pub(super) fn reject(&self, peer: SocketAddr, limit: &'static str) {
        self.traffic.on_rejected();
        self.refusals.log(peer.ip(), limit, limit);
    }

    /// Begins the close of every connection, for the shutdown of the server.
    fn close_all(&self) {
        let connections: Vec<_> = lock(&self.connections).values().cloned().collect();
        for connection in connections {
            let now = Instant::now();
            if connection.on_close(now) == Touched(true) {
                connection.write_out(self, now);
            }
        }
    }

    fn slot(self: &Arc<Self>, address: IpAddr) -> Result<Slot, &'static str> {
        let mut networks = lock(&self.networks);
        let network = network(address);
        let max = self.settings.limits.connections_per_address_max;
        if max > 0 && networks.get(&network).is_some_and(|count| *count >= max) {
            return Err("too many connections from this address (maxClientCnxns)");
        }
        if !self.budget.try_charge(Part::Connections, 1) {
            return Err("too many connections (maxCnxns)");
        }
        *networks.entry(network).or_default() += 1;
        Ok(self.charged(Place::Full(network)))
    }

    /// Returns a words-only place; `limit`, which caused the request, when all of them are taken.
    fn words_slot(self: &Arc<Self>, limit: &'static str) -> Result<Slot, &'static str> {
        let one_more = |taken: u32| (taken < WORDS_MAX).then_some(taken + 1);
        self.words.fetch_update(Relaxed, Relaxed, one_more).map_err(|_| limit)?;
        Ok(self.charged(Place::Words(limit)))
    }

    fn charged(self: &Arc<Self>, place: Place) -> Slot {
        let bytes = connection_task::task_bytes() as u64 + CONNECTION_BYTES;
        self.budget.charge(Part::ConnectionBytes, bytes);
        Slot { port: self.clone(), place, bytes }
    }

    pub(super) fn register(&self, connection: Arc<Connection>) {
        lock(&self.connections).insert(connection.id, connection);
    }

    pub(super) fn unregister(&self, conn: ConnId) {
        lock(&self.connections).remove(&conn);
        lock(&self.starved).remove(&conn);
        // The caller wakes the starved connections in any case.
        let _ = self.pass_turn(conn);
    }

    /// Returns every connection that has sent Connect, oldest first.
    pub(super) fn connections(&self) -> Vec<Arc<Connection>> {
        let mut connections: Vec<_> = lock(&self.connections).values().cloned().collect();
        connections.sort_unstable_by_key(|connection| connection.id);
        connections
    }

    /// Collects events in a reused buffer and submits them to the engine.
    pub(super) fn submit(&self, collect: impl FnOnce(&mut Vec<Event>)) {
        let mut events = mem::take(&mut *lock(&self.events));
        collect(&mut events);
        if !events.is_empty() {
            self.sink.submit(&mut events);
            events.clear();
        }
        *lock(&self.events) = events;
    }

    /// Asks the engine for its status; `None` when it does not answer within [`QUESTION`].
    pub(super) async fn ask(&self) -> Option<Box<Status>> {
        self.question(|ticket| Event::Status { ticket }).await
    }

    /// Asks for a list, or a page of one, that is too long for the status.
    pub(super) async fn ask_for(&self, list: List) -> Option<Box<Status>> {
        self.question(|ticket| Event::List { ticket, list }).await
    }

    async fn question(&self, event: impl FnOnce(u64) -> Event) -> Option<Box<Status>> {
        let ticket = self.ids.next_ticket();
        let (sender, answer) = oneshot::channel();
        lock(&self.questions).insert(ticket, sender);
        self.submit(|events| events.push(event(ticket)));
        let status = timeout(QUESTION, answer).await.ok().and_then(Result::ok);
        lock(&self.questions).remove(&ticket);
        status
    }

    pub(super) fn answer(&self, output: Output) {
        if let Output::Status { ticket, status } = output
            && let Some(question) = lock(&self.questions).remove(&ticket)
        {
            // The asker may have timed out.
            let _ = question.send(status);
        }
    }

    /// Whether a request of `bytes` may be admitted.
    ///
    /// When all connections together reach the limit, a client with nothing in flight may still
    /// send a small request. Otherwise other clients could shut it out.
    pub(super) fn may_hold(&self, bytes: usize, nothing_in_flight: bool) -> bool {
        let held = self.budget.current(Part::Outstanding);
        held + (bytes + REQUEST_BYTES) as u64 <= self.budget.limit(Part::Outstanding)
            || held == 0
            || nothing_in_flight && bytes <= super::inbound::LOOKAHEAD_BYTES
    }

    /// Registers the connection to be woken when requests of others are answered.
    ///
    /// Returns false if another thread delivered answers since `seen`. The connection must then
    /// look again at once, because no later delivery may come to wake it.
    #[must_use]
    pub(super) fn starve(&self, conn: ConnId, seen: Deliveries) -> bool {
        lock(&self.starved).insert(conn);
        seen == self.deliveries()
    }

    /// Returns the number of deliveries.
    pub(super) fn deliveries(&self) -> Deliveries {
        Deliveries(self.deliveries.load(Relaxed))
    }

    /// Counts a delivery, and wakes the connections that waited for one.
    pub(super) fn on_delivered(&self) {
        self.deliveries.fetch_add(1, Relaxed);
        self.feed_starved();
    }

    /// Whether this connection may go on above the limit of outstanding bytes.
    ///
    /// Without turns, the halves of many large requests could fill the limit and none would ever be
    /// complete. A turn ends when its request is answered, so only one request at a time exceeds
    /// the limit.
    pub(super) fn take_turn(&self, conn: ConnId) -> bool {
        let limits = &self.settings.limits;
        let whole = self.budget.current(Part::Outstanding).saturating_sub(self.begun.load(Relaxed));
        // While complete requests fill the limit, no turn is needed: their answers will make room.
        let may = whole == 0 || whole + u64::from(limits.frame_bytes_max) <= limits.outstanding_bytes_max.into();
        self.has_turn(conn) || may && self.turn.compare_exchange(0, conn.0, Relaxed, Relaxed).is_ok()
    }

    pub(super) fn has_turn(&self, conn: ConnId) -> bool {
        self.turn.load(Relaxed) == conn.0
    }

    /// Ends the connection's turn; returns whether it had the turn.
    ///
    /// Called when its request is answered or needs the turn no longer. If true, the caller must
    /// wake the starved connections.
    #[must_use]
    pub(super) fn pass_turn(&self, conn: ConnId) -> bool {
        self.turn.compare_exchange(conn.0, 0, Relaxed, Relaxed).is_ok()
    }

    /// Wakes the starved connections if there is room or the turn is free.
    pub(super) fn feed_starved(&self) {
        let starved = {
            let mut starved = lock(&self.starved);
            let nobodys_turn = self.turn.load(Relaxed) == 0;
            if starved.is_empty() || self.budget.is_full(Part::Outstanding) && !nobodys_turn {
                return;
            }
            mem::take(&mut *starved)
        };
        let connections = lock(&self.connections);
        for connection in starved.iter().filter_map(|conn| connections.get(conn)) {
            connection.wake();
        }
    }

    /// Drops the clients with the most queued bytes while all together exceed the limit.
    ///
    /// So the latest client does not pay for the greediest.
    pub(super) fn drop_greediest(&self, connections: &HashMap<ConnId, Arc<Connection>>) {
        while self.budget.current(Part::Outbound) > self.budget.limit(Part::Outbound) {
            let Some(greediest) = connections.values().max_by_key(|connection| connection.out_charged()) else {
                return;
            };
            let bytes = greediest.out_charged();
            if bytes == 0 {
                return;
            }
            greediest.give_up(self, CloseReason::Greediest(bytes as usize));
        }
    }

    /// Takes the shared read buffer, which must be returned before any await.
    pub(super) fn take_reading(&self) -> BytesMut {
        let buffer = mem::take(&mut *lock(&self.reading));
        if buffer.capacity() == 0 { BytesMut::with_capacity(READING_BYTES) } else { buffer }
    }

    pub(super) fn give_back_reading(&self, buffer: BytesMut) {
        *lock(&self.reading) = buffer;
    }

    /// Returns an empty buffer to encode into.
    pub(super) fn take_writing(&self) -> BytesMut {
        lock(&self.writing).pop().unwrap_or_default()
    }

    pub(super) fn give_back_writing(&self, buffer: BytesMut) {
        let mut writing = lock(&self.writing);
        if writing.len() < WRITING_BUFFERS_MAX && buffer.capacity() <= WRITING_BYTES {
            writing.push(buffer);
        }
    }

    pub(super) fn handshake_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.handshake_timeout_ms.into())
    }

    pub(super) fn linger(&self) -> Duration {
        Duration::from_millis(self.settings.linger_ms.into())
    }

    /// Returns the microseconds from the port's start to `now`.
    pub(super) fn us_since_start(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.started).as_micros()).unwrap_or(u64::MAX)
    }
}

/// Returns the milliseconds since 1970, for display only.
pub(super) fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0))
}
