//! Clients in this process that meet a fault: newcomers, and a writer that knows all servers.

use crate::gap::longest;
use bytes::Bytes;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zoolet_model::{ConnectReply, CreateKind, CreateMode, ErrorCode, Reply, Request, WriteOp};
use zoolet_powercut::client::{Client, Joined};
use zoolet_powercut::load::create;

const SESSION_TIMEOUT_MS: i32 = 10_000;
/// Bound on a handshake: the session timeout over three servers, as in ZooKeeper's Java client. The
/// same bound holds for an answer.
const PATIENCE: Duration = Duration::from_millis(3333);
/// Interval between two newcomers at one server.
const NEWCOMERS_EVERY: Duration = Duration::from_millis(50);
/// Pause of the roaming writer after each write, and before it tries another server.
const PAUSE: Duration = Duration::from_millis(5);

/// Outcomes of the newcomers' handshakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handshakes {
    /// Newcomers that connected.
    pub all: u64,
    /// Connections that the server closed or refused without an answer.
    pub turned_away: u64,
    /// Handshakes without an answer in time.
    pub unanswered: u64,
    /// Longest wait of a newcomer that got a session.
    pub longest: Duration,
}

impl Handshakes {
    /// Adds the handshakes of another run or server.
    pub fn add(&mut self, other: &Self) {
        self.all += other.all;
        self.turned_away += other.turned_away;
        self.unanswered += other.unanswered;
        self.longest = self.longest.max(other.longest);
    }
}

/// Clients that connect to servers at regular intervals, each only once.
pub struct Newcomers {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Handshakes>>,
}

impl Newcomers {
    /// Starts to send newcomers to these servers.
    pub fn start(servers: &[SocketAddr]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = |server: &SocketAddr| {
            let (server, is_over) = (*server, is_over.clone());
            std::thread::spawn(move || send_newcomers(server, &is_over))
        };
        let threads = servers.iter().map(thread).collect();
        Self { is_over, threads }
    }

    /// Sends no more newcomers, and waits for the outcomes of all.
    pub fn finish(self) -> Handshakes {
        self.is_over.store(true, Relaxed);
        let mut all = Handshakes::default();
        self.threads.into_iter().for_each(|thread| all.add(&thread.join().unwrap_or_default()));
        all
    }
}

/// A handshake that is held must not delay the next newcomer, so each has a thread.
fn send_newcomers(server: SocketAddr, is_over: &AtomicBool) -> Handshakes {
    let mut newcomers = Vec::new();
    while !is_over.load(Relaxed) {
        newcomers.push(std::thread::spawn(move || shake_hands(server)));
        std::thread::sleep(NEWCOMERS_EVERY);
    }
    let mut all = Handshakes::default();
    newcomers.into_iter().for_each(|newcomer| all.add(&newcomer.join().unwrap_or_default()));
    all
}

fn shake_hands(server: SocketAddr) -> Handshakes {
    let began = Instant::now();
    let mut one = Handshakes { all: 1, ..Handshakes::default() };
    match Client::join(server, None, SESSION_TIMEOUT_MS, PATIENCE) {
        Ok(Joined::Client(client)) => {
            one.longest = began.elapsed();
            close(client);
        }
        Ok(Joined::Refused | Joined::Gone) => one.turned_away = 1,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => one.unanswered = 1,
        Err(_) => one.turned_away = 1,
    }
    one
}

/// Closes the session, so that it does not expire later.
fn close(mut client: Client) {
    // If the server does not receive this, the session ends by its timeout.
    let _ = client.ask(&Request::CloseSession);
}

/// Everything that the roaming writer noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Journey {
    /// Acknowledged writes.
    pub writes: u64,
    /// Connections that it lost.
    pub losses: u64,
    /// Writes that were answered with an error.
    pub failed: u64,
    /// Writes that took effect twice.
    pub twice: u64,
    /// Longest time between two acknowledged writes that ends after the fault.
    pub gap: Duration,
}

/// A writer that moves to the next server when its connection ends.
pub struct Roamer {
    epoch: Instant,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<(Journey, Vec<Duration>)>,
}

impl Roamer {
    /// Starts a writer of one znode. It connects to the first server.
    pub fn start(servers: Vec<SocketAddr>, path: String) -> Self {
        let (epoch, is_over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let over = is_over.clone();
        let roam = move || {
            let mut writer =
                Writer { path, epoch, session: None, version: None, unknown: 0, journey: Journey::default() };
            let mut acknowledged = Vec::new();
            for server in servers.iter().cycle() {
                if over.load(Relaxed) {
                    break;
                }
                writer.write_at(*server, &over, &mut acknowledged);
                std::thread::sleep(PAUSE);
            }
            (writer.journey, acknowledged)
        };
        Self { epoch, is_over, thread: std::thread::spawn(roam) }
    }

    /// Ends the writer. `fault` is the time of the fault.
    pub fn finish(self, fault: Instant) -> Journey {
        let end = self.epoch.elapsed();
        self.is_over.store(true, Relaxed);
        let (mut journey, mut acknowledged) = self.thread.join().unwrap_or_default();
        // A gap that is open at the end counts up to there, unless its write ended it meanwhile.
        if acknowledged.last().is_none_or(|last| *last < end) {
            acknowledged.push(end);
        }
        journey.gap = longest(&acknowledged, fault.saturating_duration_since(self.epoch)).unwrap_or(end);
        journey
    }
}

struct Writer {
    path: String,
    epoch: Instant,
    session: Option<ConnectReply>,
    /// Version after the last acknowledged write.
    version: Option<i32>,
    /// Writes without an answer, each of which may take effect.
    unknown: i32,
    journey: Journey,
}

impl Writer {
    /// Writes until the connection ends, or the load.
    fn write_at(&mut self, server: SocketAddr, is_over: &AtomicBool, acknowledged: &mut Vec<Duration>) {
        let Some(mut client) = self.connect(server) else { return };
        while !is_over.load(Relaxed) {
            let data = Some(Bytes::from_static(b"roaming"));
            let set = WriteOp::SetData { path: self.path.as_str().into(), data, version: -1 };
            match client.ask(&Request::Write(set)) {
                Ok(Some((_, Ok(Reply::Stat(stat))))) => {
                    acknowledged.push(self.epoch.elapsed());
                    self.on_version(stat.version);
                }
                Ok(Some((_, Err(ErrorCode::NoNode)))) => {
                    let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
                    let _ = client.ask(&Request::Write(create(&self.path, Bytes::new(), mode)));
                }
                Ok(Some(_)) => {
                    self.unknown += 1;
                    self.journey.failed += 1;
                }
                Ok(None) | Err(_) => {
                    self.unknown += 1;
                    self.journey.losses += 1;
                    return;
                }
            }
            std::thread::sleep(PAUSE);
        }
        close(client);
    }

    fn on_version(&mut self, version: i32) {
        self.journey.writes += 1;
        let more = self.version.map_or(0, |last| version - last - 1);
        let excused = more.clamp(0, self.unknown);
        self.unknown -= excused;
        self.journey.twice += u64::try_from(more - excused).unwrap_or(0);
        self.version = Some(version);
    }

    fn connect(&mut self, server: SocketAddr) -> Option<Client> {
        match Client::join(server, self.session.as_ref(), SESSION_TIMEOUT_MS, PATIENCE) {
            Ok(Joined::Client(client)) => {
                self.session = Some(client.session);
                Some(client)
            }
            Ok(Joined::Refused) => {
                self.session = None;
                None
            }
            Ok(Joined::Gone) | Err(_) => None,
        }
    }
}
