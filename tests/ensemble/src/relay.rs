//! Relays datagrams between servers in user space, and loses, delays or cuts them.
//!
//! Each directed pair of servers has a port. A server's configuration names, as the address of each
//! other server, the port of the pair from itself to that server. The relay forwards a datagram
//! that arrives there from the port of the opposite pair. So each server sees each other server at
//! one stable address, whichever of them dialled. Faults are drawn from a seed, packet by packet.

use crate::{Outcome, said};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use zoolet_powercut::random::Random;

/// Bound on the delayed datagrams of one direction; more are dropped, as by any queue.
const WAITING_MAX: usize = 8192;
/// Largest possible datagram.
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// A direction between two servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pair {
    /// The sender.
    pub from: u8,
    /// The receiver.
    pub to: u8,
}

impl Pair {
    /// Returns the direction from `from` to `to`.
    pub fn new(from: u8, to: u8) -> Self {
        Self { from, to }
    }

    /// Returns the opposite direction.
    pub fn back(self) -> Self {
        Self { from: self.to, to: self.from }
    }
}

/// Faults of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Datagrams lost, of 1,000.
    pub loss_per_mille: u32,
    /// Delay of each datagram.
    pub delay: Duration,
    /// Bound on the extra delay, drawn for each datagram; with it, datagrams overtake each other.
    pub jitter: Duration,
    /// Whether all datagrams are lost.
    pub is_cut: bool,
}

impl Faults {
    /// The faults of a pulled cable.
    pub const CUT: Self = Self { loss_per_mille: 0, delay: Duration::ZERO, jitter: Duration::ZERO, is_cut: true };

    /// Returns the delay of a datagram, or `None` if it is lost.
    fn fate(&self, random: &mut Random) -> Option<Duration> {
        // Always two draws, so that a seed means the same whichever faults are set.
        let (loss, late) = (random.below(1000), random.below(1_000_000));
        let is_lost = self.is_cut || loss < u64::from(self.loss_per_mille);
        (!is_lost).then(|| self.delay + self.jitter.mul_f64(late as f64 / 1e6))
    }
}

/// Totals of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Datagrams let through.
    pub datagrams: u64,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// Datagrams lost in the relay.
    pub lost: u64,
    /// Datagrams from any address but the sender's; they are dropped.
    pub strays: u64,
}

struct Direction {
    faults: Faults,
    counters: Counters,
}

type Directions = BTreeMap<Pair, Arc<Mutex<Direction>>>;

/// A running relay. It ends when dropped.
pub struct Relay {
    directions: Directions,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// A server's real address, and the ports that stand for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Id of the server.
    pub id: u8,
    /// Address at which it listens.
    pub real: SocketAddr,
    /// Address at which each other server, by its id, reaches this one.
    pub seen_by: BTreeMap<u8, SocketAddr>,
}

impl Relay {
    /// Binds every port and starts the relay.
    ///
    /// # Errors
    /// An address cannot be bound.
    pub fn start(places: &[Place], seed: u64) -> Outcome<Self> {
        let mut sockets = BTreeMap::new();
        for place in places {
            for (&viewer, &address) in &place.seen_by {
                let socket = UdpSocket::bind(address).map_err(said(format!("relay at {address}")))?;
                socket.set_nonblocking(true).map_err(said("relay"))?;
                sockets.insert(Pair::new(viewer, place.id), socket);
            }
        }
        let real: BTreeMap<u8, SocketAddr> = places.iter().map(|place| (place.id, place.real)).collect();
        let clear = || Arc::new(Mutex::new(Direction { faults: Faults::default(), counters: Counters::default() }));
        let directions: Directions = sockets.keys().map(|&pair| (pair, clear())).collect();
        let (stop, stopped) = watch::channel(false);
        let all = directions.clone();
        let thread = std::thread::spawn(move || {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                runtime.block_on(carry_all(sockets, &real, &all, seed, stopped));
            }
        });
        Ok(Self { directions, stop, thread: Some(thread) })
    }

    /// Sets the faults of one direction from now on.
    pub fn set(&self, pair: Pair, faults: Faults) {
        if let Some(direction) = self.directions.get(&pair) {
            lock(direction).faults = faults;
        }
    }

    /// Sets the faults of every direction from now on.
    pub fn set_all(&self, faults: Faults) {
        self.directions.values().for_each(|direction| lock(direction).faults = faults);
    }

    /// Cuts a server off in both directions.
    pub fn cut_off(&self, server: u8) {
        self.of_server(server).for_each(|direction| lock(direction).faults = Faults::CUT);
    }

    fn of_server(&self, server: u8) -> impl Iterator<Item = &Mutex<Direction>> {
        let of_server = self.directions.iter().filter(move |(pair, _)| pair.from == server || pair.to == server);
        of_server.map(|(_, direction)| &**direction)
    }

    /// Removes the faults of a server's links, in both directions.
    pub fn mend(&self, server: u8) {
        self.of_server(server).for_each(|direction| lock(direction).faults = Faults::default());
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.set_all(Faults::default());
    }

    /// Returns the totals of one direction so far.
    pub fn counters(&self, pair: Pair) -> Counters {
        self.directions.get(&pair).map(|direction| lock(direction).counters).unwrap_or_default()
    }

    /// Returns the sums over all directions.
    pub fn total(&self) -> Counters {
        self.directions.values().fold(Counters::default(), |sum, direction| {
            let of_one = lock(direction).counters;
            Counters {
                datagrams: sum.datagrams + of_one.datagrams,
                bytes: sum.bytes + of_one.bytes,
                lost: sum.lost + of_one.lost,
                strays: sum.strays + of_one.strays,
            }
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(direction: &Mutex<Direction>) -> MutexGuard<'_, Direction> {
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs each direction as a task, all on this thread.
async fn carry_all(
    sockets: BTreeMap<Pair, UdpSocket>,
    real: &BTreeMap<u8, SocketAddr>,
    directions: &Directions,
    seed: u64,
    mut stopped: watch::Receiver<bool>,
) {
    let asynchronous = sockets
        .into_iter()
        .filter_map(|(pair, socket)| Some((pair, Arc::new(tokio::net::UdpSocket::from_std(socket).ok()?))));
    let sockets: BTreeMap<_, _> = asynchronous.collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (&pair, incoming) in &sockets {
        let (Some(outgoing), Some(&from), Some(&to)) =
            (sockets.get(&pair.back()), real.get(&pair.from), real.get(&pair.to))
        else {
            continue;
        };
        let Some(direction) = directions.get(&pair) else { continue };
        let random = Random::new(seed).fork(u64::from(pair.from) << 8 | u64::from(pair.to));
        let way =
            Way { incoming: incoming.clone(), outgoing: outgoing.clone(), from, to, direction: direction.clone() };
        tasks.spawn(way.carry(random));
    }
    let _ = stopped.wait_for(|stop| *stop).await;
    tasks.abort_all();
}

/// A direction at work.
struct Way {
    /// Socket at the address where the sender sees the receiver.
    incoming: Arc<tokio::net::UdpSocket>,
    /// Socket at the address where the receiver sees the sender.
    outgoing: Arc<tokio::net::UdpSocket>,
    from: SocketAddr,
    to: SocketAddr,
    direction: Arc<Mutex<Direction>>,
}

/// Due time, arrival number and payload. Of two datagrams due at once, the first to arrive goes
/// first.
type Waiting = Reverse<(Instant, u64, Vec<u8>)>;

impl Way {
    async fn carry(self, mut random: Random) {
        let mut waiting: BinaryHeap<Waiting> = BinaryHeap::new();
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let mut count = 0;
        loop {
            let due = waiting.peek().map(|Reverse((due, _, _))| *due);
            let received = tokio::select! {
                received = self.incoming.recv_from(&mut buffer) => received,
                () = until(due) => {
                    if let Some(Reverse((_, _, datagram))) = waiting.pop() {
                        self.send(&datagram).await;
                    }
                    continue;
                }
            };
            // An error reports that a port is unreachable; the relay ignores it.
            let Ok((length, sender)) = received else { continue };
            count += 1;
            let Some(late) = self.admit(sender, length, waiting.len(), &mut random) else { continue };
            if late.is_zero() {
                self.send(&buffer[..length]).await;
            } else {
                waiting.push(Reverse((Instant::now() + late, count, buffer[..length].to_vec())));
            }
        }
    }

    /// Counts a datagram and returns its delay, or `None` if it is dropped.
    fn admit(&self, sender: SocketAddr, length: usize, waiting: usize, random: &mut Random) -> Option<Duration> {
        let mut direction = lock(&self.direction);
        if sender != self.from {
            direction.counters.strays += 1;
            return None;
        }
        let fate = direction.faults.fate(random).filter(|late| late.is_zero() || waiting < WAITING_MAX);
        match fate {
            Some(_) => {
                direction.counters.datagrams += 1;
                direction.counters.bytes += length as u64;
            }
            None => direction.counters.lost += 1,
        }
        fate
    }

    async fn send(&self, datagram: &[u8]) {
        // A receiver that does not listen misses the datagram.
        let _ = self.outgoing.send_to(datagram, self.to).await;
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may unwrap")]
mod tests {
    use super::*;
    use crate::site::Subnet;

    /// Two sockets that stand for servers, and the relay between them.
    struct Between {
        one: UdpSocket,
        two: UdpSocket,
        /// Where server 1 sees server 2, and the other way round.
        at: [SocketAddr; 2],
        relay: Relay,
        _subnet: Subnet,
    }

    fn between(seed: u64) -> Between {
        let subnet = Subnet::claim().unwrap();
        let socket = |last| {
            let socket = UdpSocket::bind((subnet.address(last), 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        };
        let (one, two) = (socket(1), socket(2));
        let at: [SocketAddr; 2] = [(subnet.address(12), 2888).into(), (subnet.address(21), 2888).into()];
        let places = [
            Place { id: 1, real: one.local_addr().unwrap(), seen_by: [(2, at[1])].into() },
            Place { id: 2, real: two.local_addr().unwrap(), seen_by: [(1, at[0])].into() },
        ];
        let relay = Relay::start(&places, seed).unwrap();
        Between { one, two, at, relay, _subnet: subnet }
    }

    fn hear(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        let mut buffer = [0; 100];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        (buffer[..length].to_vec(), from)
    }

    #[test]
    fn relayed_peers_see_each_other_at_the_relay_addresses() {
        let b = between(1);
        b.one.send_to(b"there", b.at[0]).unwrap();
        assert_eq!(hear(&b.two), (b"there".to_vec(), b.at[1]));
        b.two.send_to(b"and back", b.at[1]).unwrap();
        assert_eq!(hear(&b.one), (b"and back".to_vec(), b.at[0]));
        assert_eq!(b.relay.counters(Pair::new(1, 2)).bytes, 5);
    }

    #[test]
    fn mended_server_leaves_the_links_of_others_cut() {
        let subnet = Subnet::claim().unwrap();
        let others = |id| [1, 2, 3].into_iter().filter(move |viewer| *viewer != id);
        let place = |id: u8| Place {
            id,
            real: (subnet.address(id), 2888).into(),
            seen_by: others(id).map(|viewer| (viewer, (subnet.address(10 * viewer + id), 2888).into())).collect(),
        };
        let relay = Relay::start(&[1, 2, 3].map(place), 1).unwrap();
        relay.set_all(Faults::CUT);
        relay.mend(2);
        let cut = |pair: &Pair| lock(&relay.directions[pair]).faults == Faults::CUT;
        let cut: Vec<_> = relay.directions.keys().copied().filter(cut).collect();
        assert_eq!(cut, [Pair::new(1, 3), Pair::new(3, 1)]);
    }

    #[test]
    fn relay_drops_packets_from_strangers() {
        let b = between(1);
        b.two.send_to(b"not mine", b.at[0]).unwrap();
        b.one.send_to(b"mine", b.at[0]).unwrap();
        assert_eq!(hear(&b.two).0, b"mine");
        assert_eq!(b.relay.counters(Pair::new(1, 2)).strays, 1);
    }

    #[test]
    fn cut_drops_one_direction_until_healed() {
        let b = between(1);
        b.relay.set(Pair::new(1, 2), Faults::CUT);
        b.one.send_to(b"lost", b.at[0]).unwrap();
        b.two.send_to(b"heard", b.at[1]).unwrap();
        assert_eq!(hear(&b.one).0, b"heard");
        while b.relay.counters(Pair::new(1, 2)).lost == 0 {
            std::thread::yield_now();
        }
        b.relay.heal();
        b.one.send_to(b"again", b.at[0]).unwrap();
        assert_eq!(hear(&b.two).0, b"again");
        b.relay.cut_off(2);
        b.two.send_to(b"lost", b.at[1]).unwrap();
        while b.relay.counters(Pair::new(2, 1)).lost == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn delay_holds_packets_back_and_keeps_their_order() {
        let b = between(1);
        let delay = Duration::from_millis(50);
        b.relay.set_all(Faults { delay, ..Faults::default() });
        let began = std::time::Instant::now();
        for number in 0..10u8 {
            b.one.send_to(&[number], b.at[0]).unwrap();
        }
        let heard: Vec<u8> = (0..10).map(|_| hear(&b.two).0[0]).collect();
        assert!(began.elapsed() >= delay, "{:?}", began.elapsed());
        assert_eq!(heard, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn seed_determines_packet_loss_and_delays_stay_within_jitter() {
        let faults = Faults { loss_per_mille: 300, ..Faults::default() };
        let drawn = |seed| {
            let mut random = Random::new(seed);
            (0..1000).map(|_| faults.fate(&mut random).is_none()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        let lost = drawn(7).iter().filter(|lost| **lost).count();
        assert!((230..370).contains(&lost), "{lost}");
        let late = Faults { delay: Duration::from_millis(5), jitter: Duration::from_millis(10), ..Faults::default() };
        let mut random = Random::new(9);
        let fates: Vec<_> = (0..1000).map(|_| late.fate(&mut random).unwrap()).collect();
        let (least, most) = (fates.iter().min().unwrap(), fates.iter().max().unwrap());
        assert!(*least >= Duration::from_millis(5) && *least < Duration::from_millis(6), "{least:?}");
        assert!(*most <= Duration::from_millis(15) && *most > Duration::from_millis(14), "{most:?}");
    }
}
