//! Benchmark of zoolet's recipes, over TCP or embedded.
//!
//! - `zoolet-recipes-bench HOSTS SHAPE SECONDS` measures them over TCP, as `kazoo_bench.py` and
//!   `CuratorBench.java` measure those of kazoo and Curator.
//! - `zoolet-recipes-bench embedded DATA SERVERS SHAPE SECONDS` measures them in sessions at nodes
//!   of this process.
//!
//! - `zoolet-recipes-bench office SHAPE DATA TIMEOUT_MS TIMES` measures how long a daemon that leads
//!   cannot write when the server leader dies. SHAPE is `busy`, `idle`, `tcp` or `tcp-idle`.
//!
//! Prints one line of JSON. `tests/foreign/recipes-bench/run` runs both and explains shapes and
//! figures.

#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

mod office;

use serde_json::{Value, json};
use std::future::Future;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::LocalSet;
use zoolet::config::{BoxMemory, Ensemble, Server, TrustSource};
use zoolet::recipes::{Coordinator, Error, Lock, Queue, ZnodeCache, ZnodeChange};
use zoolet::{
    Bytes, Config, Create, CreateKind, CreateMode, Node, Path, Request, RequestedAcl, SessionOptions, Wait, WriteOp,
};
use zoolet_recipes::Remote;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Maximum number of sessions, which all contenders or watchers share.
const SESSIONS_MAX: usize = 50;
const SESSION: Duration = Duration::from_secs(30);
const WATCHERS: usize = 1_000;
/// Items in the queue when the consumer begins.
const ITEMS: usize = 500;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let figures = match words[..] {
        ["embedded", data, servers, shape, seconds] => {
            let nodes = start(data, servers.parse()?)?;
            let leading = leader(&nodes);
            let bytes = Written::of(leading);
            let options = SessionOptions { timeout: Some(SESSION), ..SessionOptions::default() };
            let mut bench = Bench::new(&runtime, seconds, || Ok(leading.session_with(&options).wait()?))?;
            let mut figures = bench.measure(shape)?;
            // Only for shapes that write nothing else.
            if bench.cycles > 0
                && let Some(object) = figures.as_object_mut()
            {
                object.insert("flash".to_owned(), bytes.since(leading, bench.cycles));
            }
            figures
        }
        ["node", data, id, ref addresses @ ..] => office::serve(data, id.parse()?, addresses)?,
        ["office", shape, data, timeout_ms, times] => {
            let shape = office::Shape::named(shape).ok_or("SHAPE of office: busy, idle, tcp or tcp-idle")?;
            office::measure(&runtime, data, shape, Duration::from_millis(timeout_ms.parse()?), times.parse()?)?
        }
        [hosts, shape, seconds] => {
            let connect = || {
                let connector = zookeeper_client::Client::connector().with_session_timeout(SESSION);
                Ok(runtime.block_on(Remote::connect(connector, hosts))?)
            };
            Bench::new(&runtime, seconds, connect)?.measure(shape)?
        }
        _ => {
            return Err(
                "zoolet-recipes-bench [embedded DATA SERVERS | HOSTS] SHAPE SECONDS | office SHAPE DATA TIMEOUT_MS TIMES"
                    .into(),
            );
        }
    };
    println!("{figures}");
    Ok(())
}

/// Returns addresses for links that no other process uses.
fn free_addresses(servers: usize) -> Result<Vec<String>, Failure> {
    // All ports are bound at once, so that no two are the same.
    let ports: Vec<_> = (0..servers).map(|_| UdpSocket::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    ports.iter().map(|port| Ok(port.local_addr()?.to_string())).collect()
}

/// Starts nodes in this process: one alone, or an ensemble.
fn start(data: &str, servers: usize) -> Result<Vec<Node>, Failure> {
    let addresses = free_addresses(servers)?;
    let members: Vec<_> = (1..).zip(&addresses).map(|(id, address)| Server::new(id, address)).collect();
    let mut nodes = Vec::new();
    for id in (1..).take(servers) {
        let mut config = Config::for_box(format!("{data}/{id}"), BoxMemory::Mib512);
        config.server_id = id;
        config.ensemble = (servers > 1).then(|| Ensemble::new(members.clone(), TrustSource::Loopback));
        nodes.push(Node::start(config)?);
    }
    for node in &nodes {
        node.ready().wait()?;
    }
    Ok(nodes)
}

fn leader(nodes: &[Node]) -> &Node {
    let leads = |node: &&Node| node.status().wait().is_some_and(|status| status.server.role == "leader");
    nodes.iter().find(leads).unwrap_or(&nodes[0])
}

/// Bytes that a node has written to its disk.
struct Written {
    log: u64,
    base: u64,
}

impl Written {
    fn of(node: &Node) -> Self {
        let figures = node.figures();
        let base = figures.base.base_bytes_written + figures.base.merge_bytes_written;
        Self { log: figures.log.entry_bytes + figures.log.fact_bytes + figures.log.padding_bytes, base }
    }

    fn since(&self, node: &Node, cycles: u64) -> Value {
        let now = Self::of(node);
        json!({ "log_bytes_per_cycle": (now.log - self.log) / cycles, "base_bytes": now.base - self.base })
    }
}

/// One run of one shape.
struct Bench<'a, C, F> {
    runtime: &'a Runtime,
    seconds: Duration,
    connect: F,
    first: C,
    path: Path,
    /// Number of lock cycles, for shapes that write nothing else.
    cycles: u64,
}

impl<C, F> Bench<'_, C, F>
where
    C: Coordinator + Send + Sync + 'static,
    F: Fn() -> Result<C, Failure>,
{
    fn measure(&mut self, shape: &str) -> Result<Value, Failure> {
        match shape.split_once('-').map_or((shape, ""), |(shape, count)| (shape, count)) {
            ("lock", "") => self.lock(),
            ("contended", count) => self.contended(count.parse()?),
            ("handover", "") => self.hand_over(),
            ("queue", "") => self.queue(),
            ("fanout", "") => self.fan_out(),
            _ => Err("SHAPE: lock, contended-N, handover, queue or fanout".into()),
        }
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        Ok(self.runtime.block_on(future)?)
    }

    /// Sets 100 bytes, which is one committed write, and returns its latency.
    fn write(&self) -> Result<Duration, Failure> {
        let data = Some(Bytes::from_static(&[b'x'; 100]));
        let op = WriteOp::SetData { path: self.path.text().clone(), data, version: -1 };
        let began = Instant::now();
        self.runtime.block_on(self.first.submit(Request::Write(op)))?;
        Ok(began.elapsed())
    }

    /// Measures an uncontended lock.
    ///
    /// Lock cycles alternate with single committed writes, so that other load on the machine
    /// affects both.
    fn lock(&mut self) -> Result<Value, Failure> {
        let lock = Lock::new(self.first.clone(), &below(&self.path, "lock")?);
        let (mut takes, mut cycles, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        self.wait(async { lock.acquire().await?.release().await })?;
        let until = Instant::now() + self.seconds;
        while Instant::now() < until {
            let began = Instant::now();
            let grant = self.wait(lock.acquire())?;
            takes.push(began.elapsed());
            self.wait(grant.release())?;
            cycles.push(began.elapsed());
            // Releases without waiting, as a dropped guard does.
            drop(self.wait(lock.acquire())?);
            writes.push(self.write()?);
        }
        let busy: Duration = cycles.iter().sum();
        let ratio = median_us(&takes) / median_us(&writes);
        let per_second = cycles.len() as f64 / busy.as_secs_f64();
        Ok(json!({
            "per_second": per_second, "cycle_us": percentiles(cycles), "take_us": percentiles(takes),
            "write_us": percentiles(writes), "take_per_write": ratio,
        }))
    }

    /// Measures one lock with `contenders` contenders.
    fn contended(&mut self, contenders: usize) -> Result<Value, Failure> {
        let sessions = self.sessions(contenders)?;
        let path = below(&self.path, "lock")?;
        let is_over = Arc::new(AtomicBool::new(false));
        let begin = Arc::new(Barrier::new(contenders + 1));
        let threads: Vec<_> = (0..contenders)
            .map(|number| {
                let lock = Lock::new(sessions[number % sessions.len()].clone(), &path);
                let (is_over, begin, handle) = (Arc::clone(&is_over), Arc::clone(&begin), self.handle());
                std::thread::spawn(move || {
                    begin.wait();
                    let mut cycles = 0_u64;
                    while !is_over.load(SeqCst) {
                        let cycle = handle.block_on(async { lock.acquire().await?.release().await });
                        // Only cycles that end in time count.
                        cycles += u64::from(cycle.is_ok() && !is_over.load(SeqCst));
                    }
                    cycles
                })
            })
            .collect();
        begin.wait();
        let began = Instant::now();
        std::thread::sleep(self.seconds);
        let seconds = began.elapsed().as_secs_f64();
        is_over.store(true, SeqCst);
        let counts: Vec<u64> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        self.cycles = counts.iter().sum();
        let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        Ok(json!({ "per_second": self.cycles as f64 / seconds, "least": least, "most": most }))
    }

    /// Measures the time from the start of a release until the next contender has the lock.
    ///
    /// Hand-overs alternate with single committed writes.
    fn hand_over(&mut self) -> Result<Value, Failure> {
        let sessions = self.sessions(2)?;
        let path = below(&self.path, "lock")?;
        let locks = [0, 1].map(|number| Arc::new(Lock::new(sessions[number].clone(), &path)));
        let (mut hand_overs, mut writes) = (Vec::new(), Vec::new());
        let mut grant = self.wait(locks[0].acquire())?;
        let until = Instant::now() + self.seconds;
        for turn in 1.. {
            if Instant::now() > until {
                break;
            }
            let (lock, handle, (tell, told)) = (Arc::clone(&locks[turn % 2]), self.handle(), mpsc::channel());
            std::thread::spawn(move || {
                let granted = handle.block_on(lock.acquire());
                let _ = tell.send((Instant::now(), granted));
            });
            self.wait_for_line(&path, 2)?;
            // By then the next contender watches the holder's place.
            std::thread::sleep(Duration::from_millis(2));
            writes.push(self.write()?);
            let began = Instant::now();
            drop(grant);
            let (at, granted) = told.recv()?;
            grant = granted?;
            hand_overs.push(at.saturating_duration_since(began));
        }
        self.wait(grant.release())?;
        let ratio = median_us(&hand_overs) / median_us(&writes);
        Ok(
            json!({ "handover_us": percentiles(hand_overs), "write_us": percentiles(writes), "handover_per_write": ratio }),
        )
    }

    fn wait_for_line(&self, path: &Path, standing: usize) -> Result<(), Failure> {
        let list = Request::GetChildren { path: path.text().clone(), watch: false, with_stat: false };
        loop {
            if let zoolet::Reply::Names(names) = self.runtime.block_on(self.first.submit(list.clone()))?
                && names.iter().count() >= standing
            {
                return Ok(());
            }
        }
    }

    /// Measures a queue between two sessions: one puts items, then the other takes them.
    fn queue(&mut self) -> Result<Value, Failure> {
        let sessions = self.sessions(2)?;
        let path = below(&self.path, "queue")?;
        let (producer, consumer) = (Queue::new(sessions[0].clone(), &path), Queue::new(sessions[1].clone(), &path));
        let (mut putting, mut taking, mut items) = (Duration::ZERO, Duration::ZERO, 0_usize);
        while putting + taking < self.seconds {
            let began = Instant::now();
            for _ in 0..ITEMS {
                self.wait(producer.put(Bytes::from_static(&[b'x'; 100])))?;
            }
            putting += began.elapsed();
            // The consumer's server has all items.
            self.wait(zoolet::recipes::catch_up(&sessions[1]))?;
            let began = Instant::now();
            for _ in 0..ITEMS {
                self.wait(consumer.take())?;
            }
            taking += began.elapsed();
            items += ITEMS;
        }
        let (puts, takes) = (items as f64 / putting.as_secs_f64(), items as f64 / taking.as_secs_f64());
        Ok(
            json!({ "per_second": items as f64 / (putting + taking).as_secs_f64(), "puts_per_second": puts, "takes_per_second": takes }),
        )
    }

    /// Measures the time from a set until the last watcher has the new data.
    fn fan_out(&mut self) -> Result<Value, Failure> {
        let sessions = self.sessions(SESSIONS_MAX)?;
        let seen = Arc::new(AtomicU64::new(0));
        let (tell, told) = mpsc::channel();
        let (handle, path, watching) = (self.handle(), self.path.clone(), sessions.clone());
        // One thread runs all watchers, so their futures need not be `Send`.
        std::thread::spawn(move || {
            let watchers = LocalSet::new();
            for number in 0..WATCHERS {
                let (session, path) = (watching[number % watching.len()].clone(), path.clone());
                let (seen, tell) = (Arc::clone(&seen), tell.clone());
                watchers.spawn_local(async move {
                    let mut cache = ZnodeCache::new(session, &path);
                    loop {
                        if cache.next().await? == ZnodeChange::Gap {
                            continue;
                        }
                        if (seen.fetch_add(1, SeqCst) + 1).is_multiple_of(WATCHERS as u64) {
                            let _ = tell.send(Instant::now());
                        }
                    }
                    #[allow(unreachable_code, reason = "it says what the watcher gives when it fails")]
                    Ok::<(), Error>(())
                });
            }
            handle.block_on(watchers);
        });
        told.recv()?;
        let mut all = Vec::new();
        let until = Instant::now() + self.seconds;
        while Instant::now() < until {
            let began = Instant::now();
            self.write()?;
            all.push(told.recv()?.saturating_duration_since(began));
        }
        Ok(json!({ "all_told_us": percentiles(all), "watchers": WATCHERS, "sessions": sessions.len() }))
    }

    fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    fn sessions(&self, wanted: usize) -> Result<Vec<C>, Failure> {
        (0..wanted.min(SESSIONS_MAX)).map(|_| (self.connect)()).collect()
    }
}

impl<'a, C, F> Bench<'a, C, F>
where
    C: Coordinator,
    F: Fn() -> Result<C, Failure>,
{
    fn new(runtime: &'a Runtime, seconds: &str, connect: F) -> Result<Self, Failure> {
        let first = connect()?;
        let path = Path::new(format!("/bench-{:032x}", first.random_bits()))?;
        let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
        let acl = Some(RequestedAcl::open());
        let create = Create { path: path.text().clone(), data: None, acl, mode, with_stat: false };
        runtime.block_on(first.submit(Request::Write(WriteOp::Create(create))))?;
        Ok(Self { runtime, seconds: Duration::from_secs_f64(seconds.parse()?), connect, first, path, cycles: 0 })
    }
}

fn below(path: &Path, name: &str) -> Result<Path, Failure> {
    Ok(path.join(name)?)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn median_us(durations: &[Duration]) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().map_or(0.0, micros)
}

fn percentiles(mut durations: Vec<Duration>) -> Value {
    durations.sort_unstable();
    let at = |part: f64| durations.get((durations.len() as f64 * part) as usize).copied().map_or(0.0, micros);
    json!({ "count": durations.len(), "p50": at(0.5), "p99": at(0.99) })
}
