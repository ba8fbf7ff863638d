//! A node: its threads, their end, and what an embedder holds of it.

use super::base::BaseWork;
use super::core::Core;
use super::figures::Figures;
use super::log::LogWork;
#[cfg(feature = "port")]
use super::port::{self, Sockets};
use super::store;
use super::{Inbox, Input, Latch, Mailbox, Set, StartError, base, checkpoint, clock, data, log};
use crate::config::{Config, ConfigError};
use crate::session::{Error, Link, LostReason, Session};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use zoolet_engine::action::Checkpoint;
use zoolet_engine::store::Store;
use zoolet_engine::store::base::Base;
use zoolet_engine::{Budget, Limits, Server, Status, server};
use zoolet_model::ServerId;
use zoolet_zab::Voters;

/// How long a dropped node waits for its threads. What they still do afterwards is safe: they hold the directory until
/// they end.
const DROP_PATIENCE: Duration = Duration::from_millis(80);

/// Why a node failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Going on could have broken a promise: the disk failed, or what it holds is damaged.
    Failed(String),
    /// An assertion of zoolet's own did not hold.
    Bug(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => f.write_str(why),
            Self::Bug(what) => write!(f, "a bug in zoolet: {what}"),
        }
    }
}

/// How a node ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Stopped,
    Failed(Failure),
}

/// A question for the machine's status; `None` when the node ended before it was answered.
pub(crate) type Question = Latch<Option<Status>>;

/// What all threads of a node share.
pub(crate) struct Shared {
    pub(super) inbox: Arc<Inbox>,
    pub(super) log: Mailbox<LogWork>,
    pub(super) base: Mailbox<BaseWork>,
    pub(super) checkpoint: Mailbox<Checkpoint>,
    #[cfg(feature = "port")]
    pub(super) sockets: Option<Arc<Sockets>>,
    ended: Arc<Latch<End>>,
    serving: Arc<Latch<()>>,
    sessions_closed: Arc<Latch<()>>,
    /// Threads that have not ended.
    running: AtomicUsize,
    all_ended: Arc<Latch<()>>,
    pub(super) log_counts: log::Counts,
    store: Base,
}

impl Shared {
    fn new(store: Base, has_port: bool) -> Arc<Self> {
        #[cfg(not(feature = "port"))]
        let _ = has_port;
        Arc::new(Self {
            inbox: Arc::new(Inbox::new()),
            log: Mailbox::new(),
            base: Mailbox::new(),
            checkpoint: Mailbox::new(),
            #[cfg(feature = "port")]
            sockets: has_port.then(Arc::default),
            ended: Latch::new(),
            serving: Latch::new(),
            sessions_closed: Latch::new(),
            running: AtomicUsize::new(0),
            all_ended: Latch::new(),
            log_counts: log::Counts::default(),
            store,
        })
    }

    pub(super) fn figures(&self) -> Figures {
        Figures { base: self.store.counters(), ..self.log_counts.figures() }
    }

    pub(super) fn tell_serving(&self) {
        self.serving.set(());
    }

    pub(super) fn tell_sessions_closed(&self) {
        self.sessions_closed.set(());
    }

    /// The node is poisoned: nothing more is promised or acknowledged.
    pub(super) fn fail(&self, failure: Failure) {
        tracing::error!(%failure, "the node has failed");
        self.ended.set(End::Failed(failure));
        self.inbox.push(Input::Stop);
        self.stop_port();
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        match self.ended.value() {
            Some(End::Failed(failure)) => Some(failure),
            Some(End::Stopped) | None => None,
        }
    }

    fn stop_port(&self) {
        #[cfg(feature = "port")]
        if let Some(sockets) = &self.sockets {
            sockets.stop();
        }
    }

    /// Runs `body` on a thread of its own; a panic in it poisons the node.
    fn spawn(self: &Arc<Self>, name: &str, body: impl FnOnce(&Arc<Self>) + Send + 'static) -> Result<(), StartError> {
        let shared = Arc::clone(self);
        self.running.fetch_add(1, SeqCst);
        let spawned = thread::Builder::new().name(format!("zoolet-{name}")).spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&shared))) {
                shared.fail(Failure::Bug(message(&*panic)));
            }
            shared.thread_ended();
        });
        spawned.map(drop).map_err(|error| {
            self.thread_ended();
            StartError::Thread(error)
        })
    }

    fn thread_ended(&self) {
        if self.running.fetch_sub(1, SeqCst) == 1 {
            self.all_ended.set(());
        }
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}

/// A server in this process, with threads of its own: whatever the rest of the process does, its heartbeats and disk
/// go on. Several can live in one process, each with its own directory.
///
/// Dropping it ends it abruptly, as a power loss would, but within 100 ms and with nothing acknowledged lost; call
/// [`Node::shutdown`] to let sessions of this process close and their ephemerals go.
pub struct Node {
    shared: Arc<Shared>,
    data: PathBuf,
    client_address: Option<SocketAddr>,
    session_timeout_ms: u32,
    limits: Limits,
    /// Of all sessions of this process. Apart from the client port's, which would not hear when there is room again.
    budget: Arc<Budget>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("data", &self.data).field("clients", &self.client_address).finish_non_exhaustive()
    }
}

impl Node {
    /// Opens the data, binds the port, starts the threads. Returns when all that is done; does not wait until the server
    /// serves (see [`Node::ready`]).
    ///
    /// # Errors
    /// One line for people.
    pub fn start(config: Config) -> Result<Self, StartError> {
        check(&config)?;
        let (path, disk) = data::open(&config)?;
        let budget = Arc::new(Budget::new(&config.limits));
        #[cfg(feature = "port")]
        let port = port::bind(&config, &path, Arc::clone(&budget))?;
        #[cfg(feature = "port")]
        let client_address = port.as_ref().and_then(|port| port.local_addresses().first().copied());
        #[cfg(not(feature = "port"))]
        let client_address = None;

        let seed = entropy()?;
        let Store { log: opened_log, base: store, recovered, state: base_state, .. } =
            store::open(disk, &config.limits, u128::from_ne_bytes(entropy()?))?;
        let shared = Shared::new(store.clone(), client_address.is_some());
        let id = ServerId::new(config.server_id).unwrap_or(ServerId::STANDALONE);
        let voters = Voters::majority(&[id]).ok_or_else(|| StartError::Directory("no voter".to_owned()))?;
        let server = Server::new(
            server::Start {
                limits: config.limits,
                settings: config.settings.clone(),
                id,
                voters,
                recovered,
                base: base_state,
                seed,
                log_bytes_used: opened_log.used_bytes(),
            },
            clock::now(),
        );
        let node = Self {
            shared: Arc::clone(&shared),
            data: path,
            client_address,
            session_timeout_ms: config.settings.session_timeout_max_ms.min(DEFAULT_TIMEOUT_MS),
            limits: config.limits,
            budget: Arc::clone(&budget),
        };
        let store_zxid = store.meta().zxid;
        shared.base.push(BaseWork::Serve(store.reader()));
        shared.spawn("base", |shared| base::run(&shared.base, &shared.inbox))?;
        shared.spawn("checkpoint", move |shared| {
            let run = checkpoint::run(&shared.checkpoint, &store, &shared.base, &shared.log, &shared.inbox);
            if let Err(why) = run {
                shared.fail(Failure::Failed(why));
            }
        })?;
        let mut core = Core::new(server, Arc::clone(&shared), budget);
        let mut replayed = 0_u64;
        store::replay(&opened_log, store_zxid, &mut |zxid, payload| {
            replayed += 1;
            core.recover(zxid, payload)
        })?;
        core.start().map_err(StartError::Failed)?;
        shared.spawn("log", move |shared| {
            if let Err(why) = log::run(&shared.log, opened_log, &shared.inbox, &shared.log_counts) {
                shared.fail(Failure::Failed(why));
            }
        })?;
        shared.spawn("core", move |shared| run_core(core, shared))?;
        #[cfg(feature = "port")]
        if let (Some(port), Some(sockets)) = (port, shared.sockets.clone()) {
            shared.spawn("io", move |shared| {
                if let Err(why) = port::run(port, &sockets, Arc::clone(&shared.inbox)) {
                    shared.fail(Failure::Failed(why));
                }
            })?;
        }
        tracing::info!(
            data = %node.data.display(),
            clients = node.client_address.map(tracing::field::display),
            base = %store_zxid,
            replayed,
            "started"
        );
        Ok(node)
    }

    /// The data directory, absolute.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Where ZooKeeper clients connect; `None` without a client port.
    pub fn client_address(&self) -> Option<SocketAddr> {
        self.client_address
    }

    /// Ready once clients are served; the error is why they never will be.
    pub fn ready(&self) -> Ready {
        Ready { serving: self.shared.serving.wait(), ended: self.shared.ended.wait() }
    }

    /// Why the node failed, if it has.
    pub fn failed(&self) -> Option<Failure> {
        self.shared.failure()
    }

    /// Ready when the node fails.
    pub fn stopped(&self) -> Stopped {
        Stopped(self.shared.ended.wait())
    }

    /// How the machine is, and what the disk was asked for.
    pub fn status(&self) -> StatusAnswer {
        let question = Question::new();
        if !self.shared.inbox.push(Input::Ask(Arc::clone(&question))) {
            question.set(None);
        }
        StatusAnswer { answer: question.wait(), figures: self.figures() }
    }

    /// What the disk has been asked for since the node started.
    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// Opens a session of this process, with a timeout of 10 s (less when `session_timeout_max_ms` is).
    pub fn session(&self) -> Opening {
        self.session_with(Duration::from_millis(self.session_timeout_ms.into()))
    }

    /// Opens a session of this process. The node keeps it alive: the timeout matters when the process dies, and is how long
    /// its ephemerals then stay.
    pub fn session_with(&self, timeout: Duration) -> Opening {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).min(i32::MAX as u32);
        let link = Link::new(Arc::clone(&self.shared.inbox), timeout_ms, &self.limits, Arc::clone(&self.budget));
        if !self.shared.inbox.push(Input::Dial(Arc::clone(&link))) {
            link.lost(lost_reason(self.failed().as_ref()));
        }
        Opening { reader: link.new_number(), session: Some(Session::new(Arc::clone(&link))), link }
    }

    /// Closes the sessions of this process, sends clients what is queued, makes everything durable, ends the threads.
    /// Sessions of clients stay: they go on with whoever opens the directory next.
    ///
    /// # Errors
    /// When `deadline` passed first: then it ended abruptly, which is safe but leaves ephemerals of this process behind until
    /// their sessions' timeouts; or when the node had failed.
    pub fn shutdown(self, deadline: Duration) -> Result<(), ShutdownError> {
        let until = Instant::now() + deadline;
        let shared = &self.shared;
        if let Some(failure) = self.failed() {
            return Err(ShutdownError::Failed(failure));
        }
        shared.inbox.push(Input::CloseSessions);
        let closed = shared.sessions_closed.wait_until(until).is_some();
        shared.stop_port();
        shared.inbox.push(Input::Stop);
        let ended = shared.all_ended.wait_until(until).is_some();
        match self.failed() {
            Some(failure) => Err(ShutdownError::Failed(failure)),
            None if closed && ended => Ok(()),
            None => Err(ShutdownError::Late),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.stop_port();
        shared.inbox.push(Input::Stop);
        shared.log.close_and_clear();
        shared.checkpoint.close_and_clear();
        shared.base.close_and_clear();
        shared.all_ended.wait_until(Instant::now() + DROP_PATIENCE);
    }
}

/// The session timeout when an embedder names none, milliseconds.
const DEFAULT_TIMEOUT_MS: u32 = 10_000;

/// The core's life, whole: a panic in the machine poisons the node and every session of the process hears of it.
fn run_core(mut core: Core, shared: &Shared) {
    let outcome = catch_unwind(AssertUnwindSafe(|| core.run()));
    let failure = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => Some(Failure::Bug(message(&*panic))),
    };
    match failure {
        Some(failure) => shared.fail(failure),
        None => shared.ended.set(End::Stopped),
    }
    core.end(lost_reason(shared.failure().as_ref()));
    shared.stop_port();
    // What was appended is still made durable; then each thread finds its mailbox closed.
    shared.log.close();
    shared.checkpoint.close();
    shared.base.close();
}

fn lost_reason(failure: Option<&Failure>) -> LostReason {
    match failure {
        None => LostReason::Stopped,
        Some(Failure::Failed(_)) => LostReason::Failed,
        Some(Failure::Bug(_)) => LostReason::Bug,
    }
}

/// What would otherwise be found out late.
fn check(config: &Config) -> Result<(), StartError> {
    let (settings, limits) = (&config.settings, &config.limits);
    let refuse = |line: String| Err(StartError::Config(ConfigError::new(line)));
    let (min_ms, max_ms) = (settings.session_timeout_min_ms, settings.session_timeout_max_ms);
    if min_ms > max_ms {
        return refuse(format!(
            "session_timeout_min_ms = {min_ms}: allowed is at most session_timeout_max_ms = {max_ms}"
        ));
    }
    let (frame, segment) = (limits.frame_bytes_max, limits.log_segment_bytes);
    if frame > segment / 2 {
        return refuse(format!("frame_bytes_max = {frame}: allowed is at most half of log_segment_bytes = {segment}"));
    }
    if limits.log_segments < LOG_SEGMENTS_MIN {
        return refuse(format!("log_segments = {}: allowed is at least {LOG_SEGMENTS_MIN}", limits.log_segments));
    }
    if cfg!(not(feature = "port")) && config.clients.is_some() {
        return refuse("clients: this build has no client port (feature `port`)".to_owned());
    }
    Ok(())
}

/// Three segments are kept free and a checkpoint starts when half the ring is used: with fewer, writes would wait for a
/// checkpoint that nothing starts.
const LOG_SEGMENTS_MIN: u32 = 6;

/// Entropy of the operating system.
fn entropy<const BYTES: usize>() -> Result<[u8; BYTES], StartError> {
    let mut seed = [0; BYTES];
    let mut filled = 0;
    while filled < seed.len() {
        filled += rustix::rand::getrandom(&mut seed[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| StartError::Disk(format!("the system gives no random numbers: {error}")))?;
    }
    Ok(seed)
}

/// Waits until clients are served. Cancel-safe.
#[derive(Debug)]
pub struct Ready {
    serving: Set<()>,
    ended: Set<End>,
}

impl Future for Ready {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if Pin::new(&mut self.serving).poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.ended).poll(context).map(|end| Err(Error::Lost(end.lost_reason())))
    }
}

impl End {
    fn lost_reason(&self) -> LostReason {
        match self {
            Self::Stopped => LostReason::Stopped,
            Self::Failed(failure) => lost_reason(Some(failure)),
        }
    }
}

/// Waits until the node fails. Cancel-safe.
#[derive(Debug)]
pub struct Stopped(Set<End>);

impl Future for Stopped {
    type Output = Failure;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Failure> {
        Pin::new(&mut self.0).poll(context).map(|end| match end {
            End::Failed(failure) => failure,
            End::Stopped => Failure::Failed("the node was stopped".to_owned()),
        })
    }
}

/// How a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStatus {
    /// The machine's part.
    pub server: Status,
    /// The disk's part.
    pub disk: Figures,
}

/// Waits for a [`NodeStatus`]; `None` when the node has ended. Cancel-safe.
#[derive(Debug)]
pub struct StatusAnswer {
    answer: Set<Option<Status>>,
    figures: Figures,
}

impl Future for StatusAnswer {
    type Output = Option<NodeStatus>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let disk = self.figures;
        Pin::new(&mut self.answer).poll(context).map(|status| status.map(|server| NodeStatus { server, disk }))
    }
}

/// Waits until a session is served. Dropping it gives the session up.
#[derive(Debug)]
#[must_use = "the session comes when this is awaited"]
pub struct Opening {
    link: Arc<Link>,
    reader: u64,
    session: Option<Session>,
}

impl Future for Opening {
    type Output = Result<Session, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let opened = self.link.poll_open(self.reader, context);
        match opened {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(self.session.take().ok_or(Error::Closed)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.link.forget_reader(self.reader);
    }
}

/// Why a shutdown was not clean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShutdownError {
    /// The deadline passed first.
    Late,
    /// The node had failed.
    Failed(Failure),
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("the shutdown did not finish in time"),
            Self::Failed(failure) => fmt::Display::fmt(failure, f),
        }
    }
}

impl std::error::Error for ShutdownError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionState;
    use crate::{Wait, path};

    #[test]
    fn a_broken_assertion_poisons_its_node_and_no_other() {
        let root = std::env::temp_dir().join(format!("zoolet-poison-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let (bad, good) =
            (Node::start(Config::new(root.join("bad"))).unwrap(), Node::start(Config::new(root.join("good"))).unwrap());
        let (hurt, healthy) = (bad.session().wait().unwrap(), good.session().wait().unwrap());
        let mut watch = hurt.watch(path!("/"), crate::AddWatchMode::Persistent).wait().unwrap();
        bad.shared.inbox.push(Input::Panic);
        assert_eq!(bad.stopped().wait(), Failure::Bug("told to".to_owned()));
        assert_eq!(bad.failed(), Some(Failure::Bug("told to".to_owned())));
        assert_eq!(watch.next().wait(), None);
        assert_eq!(hurt.state(), SessionState::Lost(LostReason::Bug));
        assert_eq!(hurt.exists(path!("/")).wait().unwrap_err(), Error::Lost(LostReason::Bug));
        assert_eq!(bad.session().wait().unwrap_err(), Error::Lost(LostReason::Bug));
        assert_eq!(bad.status().wait(), None);
        assert!(matches!(bad.shutdown(Duration::from_secs(5)), Err(ShutdownError::Failed(Failure::Bug(_)))));
        assert!(healthy.exists(path!("/")).wait().unwrap().is_some());
        good.shutdown(Duration::from_secs(5)).unwrap();
        // What was acknowledged before is there.
        let again = Node::start(Config::new(root.join("bad"))).unwrap();
        assert!(again.session().wait().unwrap().exists(path!("/")).wait().unwrap().is_some());
        drop(again);
        std::fs::remove_dir_all(root).unwrap();
    }
}
