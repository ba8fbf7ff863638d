//! Measures how long no write is acknowledged when the leader fails.
//!
//! Each writer has one write in flight. A writer belongs to one server, and returns to it as soon
//! as the server accepts it. So the result is the time for which the ensemble stands still, without
//! the time in which a client looks for another server. It is measured in the same way for every
//! product.

use crate::etcd::Http;
use crate::product::Product;
use bytes::Bytes;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zoolet_model::{CreateKind, CreateMode, ErrorCode, Request, WriteOp};
use zoolet_powercut::client::{Client, Joined};
use zoolet_powercut::load::create;

/// Time that a writer waits for an answer before it reconnects.
const ANSWER_PATIENCE: Duration = Duration::from_millis(1000);
/// The same for a client that writes alone: the wait of a client with the default session timeout.
const IDLER_PATIENCE: Duration = Duration::from_secs(5);
/// Delay between two attempts to connect.
const RETRY: Duration = Duration::from_millis(5);
const SESSION_TIMEOUT_MS: i32 = 10_000;

/// A connection to one server, to set keys.
enum Connection {
    ZooKeeper(Box<Client>),
    Etcd(Http),
}

impl Connection {
    fn open(product: &Product, address: SocketAddr, patience: Duration) -> io::Result<Self> {
        if !product.speaks_zookeeper() {
            return Http::connect(address, patience).map(Self::Etcd);
        }
        match Client::join(address, None, SESSION_TIMEOUT_MS, patience)? {
            Joined::Client(client) => Ok(Self::ZooKeeper(Box::new(client))),
            Joined::Refused | Joined::Gone => Err(ErrorKind::ConnectionReset.into()),
        }
    }

    /// Sets a key, or creates it, and returns when the write is acknowledged.
    fn set(&mut self, path: &str, data: &Bytes) -> io::Result<()> {
        match self {
            Self::Etcd(http) => http.put(path, data),
            Self::ZooKeeper(client) => {
                let set = WriteOp::SetData { path: path.into(), data: Some(data.clone()), version: -1 };
                match client.ask(&Request::Write(set))? {
                    Some((_, Ok(_))) => Ok(()),
                    Some((_, Err(ErrorCode::NoNode))) => Self::make(client, path, data),
                    Some((_, Err(error))) => Err(io::Error::other(format!("{error:?}"))),
                    None => Err(ErrorKind::ConnectionReset.into()),
                }
            }
        }
    }

    /// Closes the session.
    ///
    /// The expiry of an abandoned session would be one more write, during the next run.
    fn close(self) {
        if let Self::ZooKeeper(mut client) = self {
            client.queue(&Request::CloseSession);
            let _ = client.flush();
        }
    }

    fn make(client: &mut Client, path: &str, data: &Bytes) -> io::Result<()> {
        let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
        match client.ask(&Request::Write(create(path, data.clone(), mode)))? {
            Some((_, Ok(_) | Err(ErrorCode::NodeExists))) => Ok(()),
            Some((_, Err(error))) => Err(io::Error::other(format!("{error:?}"))),
            None => Err(ErrorKind::ConnectionReset.into()),
        }
    }
}

/// Parameters of the writers.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Number of writers, spread over the servers.
    pub writers: usize,
    /// Bytes of each value.
    pub bytes: usize,
    /// Keys of each writer.
    pub keys: usize,
}

/// Running writers.
pub struct Writers {
    epoch: Instant,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
}

impl Writers {
    /// Starts the writers.
    pub fn start(product: &Product, servers: &[SocketAddr], shape: &Shape) -> Self {
        let (epoch, is_over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let thread = |number: usize| {
            let (product, servers, shape, is_over) =
                (product.clone(), servers.to_vec(), shape.clone(), is_over.clone());
            std::thread::spawn(move || write(&product, &servers, &shape, number, epoch, &is_over))
        };
        let threads = (0..shape.writers).map(thread).collect();
        Self { epoch, is_over, threads }
    }

    /// Returns the time on the writers' clock.
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Ends the writers, and returns the times of all acknowledgements, in order.
    pub fn finish(self) -> Vec<Duration> {
        self.is_over.store(true, Relaxed);
        let mut all: Vec<Duration> =
            self.threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
        all.sort_unstable();
        all
    }
}

fn write(
    product: &Product,
    servers: &[SocketAddr],
    shape: &Shape,
    number: usize,
    epoch: Instant,
    is_over: &AtomicBool,
) -> Vec<Duration> {
    let data = Bytes::from(vec![b'x'; shape.bytes]);
    let mut acknowledged = Vec::new();
    let (server, mut count) = (servers[number % servers.len()], 0);
    while !is_over.load(Relaxed) {
        let Ok(mut connection) = Connection::open(product, server, ANSWER_PATIENCE) else {
            std::thread::sleep(RETRY);
            continue;
        };
        while !is_over.load(Relaxed) {
            let path = format!("/gap-{number}-{}", count % shape.keys.max(1));
            count += 1;
            if connection.set(&path, &data).is_err() {
                break;
            }
            acknowledged.push(epoch.elapsed());
        }
        connection.close();
    }
    acknowledged
}

/// Returns the longest time between two acknowledgements that ends after `from`.
pub fn longest(acknowledged: &[Duration], from: Duration) -> Option<Duration> {
    let gaps = acknowledged.windows(2).filter(|pair| pair[1] > from);
    gaps.map(|pair| pair[1] - pair[0]).max()
}

/// A client of an idle ensemble, with an open connection.
pub struct Idler {
    product: Product,
    server: SocketAddr,
    connection: Connection,
}

impl Idler {
    /// Connects, and makes sure that the client's key exists.
    ///
    /// # Errors
    /// No write was acknowledged within `patience`.
    pub fn connect(product: &Product, server: SocketAddr, patience: Duration) -> Result<Self, String> {
        let connection = write_in_time(product, server, None, patience)?;
        Ok(Self { product: product.clone(), server, connection })
    }

    /// Repeats a write until it is acknowledged, and returns how long that took.
    ///
    /// # Errors
    /// No write was acknowledged within `patience`.
    pub fn write(self, patience: Duration) -> Result<Duration, String> {
        let began = Instant::now();
        write_in_time(&self.product, self.server, Some(self.connection), patience)?;
        Ok(began.elapsed())
    }
}

/// Writes on this connection, and on new ones after a failure.
fn write_in_time(
    product: &Product,
    server: SocketAddr,
    mut connection: Option<Connection>,
    patience: Duration,
) -> Result<Connection, String> {
    let (until, data) = (Instant::now() + patience, Bytes::from_static(b"one"));
    loop {
        let opened = match connection.take() {
            Some(connection) => Ok(connection),
            None => Connection::open(product, server, IDLER_PATIENCE),
        };
        let failure = match opened.and_then(|mut connection| connection.set("/gap-one", &data).map(|()| connection)) {
            Ok(connection) => return Ok(connection),
            Err(failure) => failure,
        };
        if Instant::now() > until {
            return Err(format!("{server} acknowledges no write within {patience:?}: {failure}"));
        }
        std::thread::sleep(RETRY);
    }
}

/// Returns the latency of each write of one client, made one after another for `long`.
///
/// # Errors
/// The first failure, because nothing disturbs the servers meanwhile.
pub fn latencies(product: &Product, server: SocketAddr, bytes: usize, long: Duration) -> io::Result<Vec<Duration>> {
    let (mut connection, data) = (Connection::open(product, server, IDLER_PATIENCE)?, Bytes::from(vec![b'x'; bytes]));
    let (until, mut all) = (Instant::now() + long, Vec::new());
    while Instant::now() < until {
        let began = Instant::now();
        connection.set(&format!("/latency-{}", all.len() % 1000), &data)?;
        all.push(began.elapsed());
    }
    connection.close();
    Ok(all)
}

/// Returns the median and the maximum; `None` without durations.
pub fn median_and_worst(all: &[Duration]) -> Option<(Duration, Duration)> {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    Some((*sorted.get(sorted.len() / 2)?, *sorted.last()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(all: &[u64]) -> Vec<Duration> {
        all.iter().map(|ms| Duration::from_millis(*ms)).collect()
    }

    #[test]
    fn longest_gap_is_of_acks_after_the_given_time() {
        let acknowledged = ms(&[0, 500, 510, 515, 700, 705]);
        assert_eq!(longest(&acknowledged, Duration::ZERO), Some(Duration::from_millis(500)));
        assert_eq!(longest(&acknowledged, Duration::from_millis(512)), Some(Duration::from_millis(185)));
        // A gap that began earlier counts as a whole.
        assert_eq!(longest(&acknowledged, Duration::from_millis(600)), Some(Duration::from_millis(185)));
        assert_eq!(longest(&acknowledged, Duration::from_millis(705)), None);
    }

    #[test]
    fn median_and_worst_of_a_list() {
        assert_eq!(median_and_worst(&ms(&[3, 1, 2])), Some((Duration::from_millis(2), Duration::from_millis(3))));
        assert_eq!(median_and_worst(&[]), None);
    }
}
