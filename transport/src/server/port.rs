//! The listening sockets, and what all connections share.

use super::connection::{Connection, Touched};
use super::courier::Courier;
use super::ending::Why;
use super::life;
use super::lock;
use super::refusals::Refusals;
use super::seam::{ConnIds, EventSink, Outbox, Output};
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
use zoolet_engine::budget::Part;
use zoolet_engine::event::List;
use zoolet_engine::network::network;
use zoolet_engine::{Budget, ConnId, Event, Limits, Status};

/// Bytes of the buffer all connections are read into.
const READING_BYTES: usize = 64 << 10;
/// Buffers for writing that are kept for the next connection, and how large one may be.
const WRITING_BUFFERS_MAX: usize = 8;
const WRITING_BYTES: usize = 64 << 10;
/// How long a question to the machine, or to the disk, may take.
pub(super) const QUESTION: Duration = Duration::from_secs(2);
/// What a connection takes beside its task, bytes: its state, the runtime's registration of its socket, its places in this port's tables, and
/// its pipeline in the machine. `tests/bounds/connections.rs` holds it to what the process takes.
const CONNECTION_BYTES: u64 = 2816;
/// Connections from this machine that are taken although a bound is reached. They may ask four-letter words and nothing else: an operator must be
/// able to ask a full server how it is.
const WORDS_MAX: u32 = 4;
/// How long nothing is accepted after accepting failed: mostly there are no file descriptors left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// What an operator decides about the client port.
#[derive(Clone, Debug)]
pub struct PortSettings {
    /// The bounds; of them the port uses those of frames, connections, outstanding and outbound.
    pub limits: Limits,
    /// How long a connection may live without a session (nio.sessionlessCnxnTimeout), milliseconds.
    pub handshake_timeout_ms: u32,
    /// How long a closing connection may take for what is still queued to it, milliseconds.
    pub linger_ms: u32,
    /// The four-letter words that are answered.
    pub four_letter_words: Whitelist,
    /// What `srvr`, `envi` and `conf` tell.
    pub about: About,
}

impl Default for PortSettings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            handshake_timeout_ms: 10_000,
            linger_ms: 2_000,
            four_letter_words: Whitelist::default(),
            about: About::default(),
        }
    }
}

/// What the server tells about itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// zoolet's own version; clients see `3.9.5-zoolet-<version>`.
    pub version: String,
    /// When and from what it was built; empty when not known.
    pub built_on: String,
    /// `key=value` lines of `conf`, in order: clientPort, dataDir, tickTime...
    pub conf: Vec<(String, String)>,
    /// The number of this server.
    pub server_id: u8,
    /// Where servers of the ensemble are, as far as this one was told; none of a server alone. `conf` shows those that are members.
    pub servers: Vec<ServerAddresses>,
}

/// Where a server is, as `conf` shows it.
#[derive(Clone, Debug)]
pub struct ServerAddresses {
    /// Its number.
    pub id: u8,
    /// `host:port:port` each: of links between servers, and of ZooKeeper's elections.
    pub addresses: Vec<String>,
    /// Where clients reach it, `host:port`; shown when it is known of every member.
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
    /// Binds every address, so that an address in use is known before the server starts. Needs no runtime.
    ///
    /// # Errors
    /// What the system says to one of the addresses.
    pub fn bind(
        addresses: &[SocketAddr],
        settings: PortSettings,
        ids: Arc<ConnIds>,
        budget: Arc<Budget>,
    ) -> io::Result<Self> {
        // The standard library sets SO_REUSEADDR: a restarted server must not wait for old connections to fade away.
        let listeners = addresses.iter().map(TcpListener::bind).collect::<io::Result<Vec<_>>>()?;
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { listeners, addresses, settings, ids, budget, traffic: Arc::default() })
    }

    /// Where it listens, in the order of `bind`; port 0 is replaced by the port the system chose.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What it counts, from now on.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    /// Serves until `stop` is ready; then accepts no more, sends what is queued, closes every connection and returns,
    /// at the latest after the time to linger. Runs inside a tokio runtime with IO and time, best of one thread.
    ///
    /// # Errors
    /// When the runtime cannot take the sockets.
    pub async fn serve(
        self,
        sink: Arc<dyn EventSink>,
        outbox: Arc<Outbox>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let listeners =
            self.listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<io::Result<Vec<_>>>()?;
        let started = Instant::now();
        let port = Arc::new(Port {
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
        let _served = outbox.served_by(Courier::new(port.clone()));
        let mut stop = pin!(stop);
        let mut accept_after = Instant::now();
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = outbox.arrived() => {
                    outbox.deliver();
                    // Readers get their turn, however much the machine has to say.
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
        // Whoever is left has no session, or does not read.
        tasks.shutdown().await;
        Ok(())
    }
}

/// Accepts on whichever socket has somebody waiting.
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

/// A connection's task has ended. Its guard told the machine, whatever happened.
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a connection's task failed: {error}");
    }
}

/// What all connections share.
pub(super) struct Port {
    pub(super) settings: PortSettings,
    pub(super) ids: Arc<ConnIds>,
    pub(super) budget: Arc<Budget>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) refusals: Refusals,
    pub(super) started: Instant,
    sink: Arc<dyn EventSink>,
    pub(super) connections: Mutex<HashMap<ConnId, Arc<Connection>>>,
    /// Connections of each network.
    networks: Mutex<HashMap<IpAddr, u32>>,
    /// Connections that may ask words only.
    words: AtomicU32,
    questions: Mutex<HashMap<u64, oneshot::Sender<Box<Status>>>>,
    /// Connections that wait for requests of others to be answered.
    starved: Mutex<BTreeSet<ConnId>>,
    deliveries: AtomicU64,
    /// The part of the outstanding bytes that is of requests which are not whole yet.
    pub(super) begun: Arc<AtomicU64>,
    /// The one connection of those that may read its large request to the end, by its number; 0 is none.
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

/// A count of deliveries, to tell whether there was one meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Deliveries(u64);

/// A connection's place among those that are allowed.
pub(super) struct Slot {
    port: Arc<Port>,
    place: Place,
    bytes: u64,
}

/// Which bound a connection counts against.
enum Place {
    /// Those of all connections and of its network.
    Full(IpAddr),
    /// Neither, for this limit is reached: it may ask words only.
    Words(&'static str),
}

impl Slot {
    /// The limit that leaves this connection nothing but four-letter words.
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
    /// Gives an accepted socket its task, or closes it because of a limit.
    fn welcome(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, tasks: &mut JoinSet<()>) {
        self.traffic.on_accepted();
        // On a socket for both families an IPv4 client looks like an IPv6 one; limits and ACLs mean the former.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let slot = self.slot(peer.ip()).or_else(|limit| {
            let own = stream.local_addr().ok().map(|own| own.ip().to_canonical());
            if is_here(peer.ip(), own) { self.words_slot(limit) } else { Err(limit) }
        });
        match slot {
            Ok(slot) => {
                tasks.spawn(life::run(self.clone(), stream, peer, slot));
            }
            Err(limit) => self.reject(peer, limit),
        }
    }

    /// Notes that a connection is closed because of a limit.
    pub(super) fn reject(&self, peer: SocketAddr, limit: &'static str) {
        self.traffic.on_rejected();
        self.refusals.log(peer.ip(), limit, limit);
    }

    /// The server's end: every connection sends what it has and closes.
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

    /// A place for words, because `limit` is reached; the limit again when those are taken too.
    fn words_slot(self: &Arc<Self>, limit: &'static str) -> Result<Slot, &'static str> {
        let one_more = |taken: u32| (taken < WORDS_MAX).then_some(taken + 1);
        self.words.fetch_update(Relaxed, Relaxed, one_more).map_err(|_| limit)?;
        Ok(self.charged(Place::Words(limit)))
    }

    fn charged(self: &Arc<Self>, place: Place) -> Slot {
        let bytes = life::task_bytes() as u64 + CONNECTION_BYTES;
        self.budget.charge(Part::ConnectionBytes, bytes);
        Slot { port: self.clone(), place, bytes }
    }

    pub(super) fn register(&self, connection: Arc<Connection>) {
        lock(&self.connections).insert(connection.id, connection);
    }

    pub(super) fn unregister(&self, conn: ConnId) {
        lock(&self.connections).remove(&conn);
        lock(&self.starved).remove(&conn);
        // Its end feeds the starved anyway.
        let _ = self.pass_turn(conn);
    }

    /// Every connection that has sent Connect, oldest first.
    pub(super) fn connections(&self) -> Vec<Arc<Connection>> {
        let mut connections: Vec<_> = lock(&self.connections).values().cloned().collect();
        connections.sort_unstable_by_key(|connection| connection.id);
        connections
    }

    /// Collects events in a buffer that is used again, and hands them to the machine.
    pub(super) fn submit(&self, collect: impl FnOnce(&mut Vec<Event>)) {
        let mut events = mem::take(&mut *lock(&self.events));
        collect(&mut events);
        if !events.is_empty() {
            self.sink.submit(&mut events);
            events.clear();
        }
        *lock(&self.events) = events;
    }

    /// Asks the machine how it is; `None` when it does not answer.
    pub(super) async fn ask(&self) -> Option<Box<Status>> {
        self.question(|ticket| Event::Status { ticket }).await
    }

    /// Asks for a part of what would be too much for a status.
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
            // Whoever asked may have given up.
            let _ = question.send(status);
        }
    }

    /// Whether a request of so many bytes may be taken in. While the sum of all is reached, a client that has nothing
    /// in flight may still send a small one: nobody is shut out by others.
    pub(super) fn may_hold(&self, bytes: usize, nothing_in_flight: bool) -> bool {
        let held = self.budget.current(Part::Outstanding);
        held + bytes as u64 <= self.budget.limit(Part::Outstanding)
            || held == 0
            || nothing_in_flight && bytes <= super::inbound::LOOKAHEAD_BYTES
    }

    /// Wakes this connection when requests of others are answered. False if some were answered since `seen`, on another thread: it looks again
    /// at once, for nobody may be left to wake it.
    #[must_use]
    pub(super) fn starve(&self, conn: ConnId, seen: Deliveries) -> bool {
        lock(&self.starved).insert(conn);
        seen == self.deliveries()
    }

    /// How often answers were delivered.
    pub(super) fn deliveries(&self) -> Deliveries {
        Deliveries(self.deliveries.load(Relaxed))
    }

    /// Answers were delivered: who waited for that looks again.
    pub(super) fn on_delivered(&self) {
        self.deliveries.fetch_add(1, Relaxed);
        self.feed_starved();
    }

    /// Whether it is this connection's turn to go on although the sum is reached. Otherwise the halves of many large requests could fill it,
    /// and none of them would ever be whole. It is over when that request is answered, so one request exceeds the sum at a time.
    pub(super) fn take_turn(&self, conn: ConnId) -> bool {
        let limits = &self.settings.limits;
        let whole = self.budget.current(Part::Outstanding).saturating_sub(self.begun.load(Relaxed));
        // Answers to what is whole will make room.
        let may = whole == 0 || whole + u64::from(limits.frame_bytes_max) <= limits.outstanding_bytes_max.into();
        self.has_turn(conn) || may && self.turn.compare_exchange(0, conn.0, Relaxed, Relaxed).is_ok()
    }

    pub(super) fn has_turn(&self, conn: ConnId) -> bool {
        self.turn.load(Relaxed) == conn.0
    }

    /// Its request is answered, or needs no turn any more. If true is said, the caller feeds the starved.
    #[must_use]
    pub(super) fn pass_turn(&self, conn: ConnId) -> bool {
        self.turn.compare_exchange(conn.0, 0, Relaxed, Relaxed).is_ok()
    }

    /// Wakes those who waited for requests of others, if there is room now, or it could be their turn.
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

    /// When too much waits for all clients together, the one with most of it goes, not the one that came last.
    pub(super) fn drop_greediest(&self, connections: &HashMap<ConnId, Arc<Connection>>) {
        while self.budget.current(Part::Outbound) > self.budget.limit(Part::Outbound) {
            let Some(greediest) = connections.values().max_by_key(|connection| connection.out_charged()) else {
                return;
            };
            let bytes = greediest.out_charged();
            if bytes == 0 {
                return;
            }
            greediest.give_up(self, Why::Greediest(bytes as usize));
        }
    }

    /// The buffer all connections are read into; to be given back before anything is awaited.
    pub(super) fn take_reading(&self) -> BytesMut {
        let buffer = mem::take(&mut *lock(&self.reading));
        if buffer.capacity() == 0 { BytesMut::with_capacity(READING_BYTES) } else { buffer }
    }

    pub(super) fn give_back_reading(&self, buffer: BytesMut) {
        *lock(&self.reading) = buffer;
    }

    /// An empty buffer to encode into.
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

    /// Microseconds from the port's start to `now`.
    pub(super) fn us_since_start(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.started).as_micros()).unwrap_or(u64::MAX)
    }
}

/// Milliseconds since 1970, only ever shown.
pub(super) fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0))
}
