//! A node: its start, its owner's handle, and its end.

use super::blocking::{ShuttingDown, Starting};
use super::core::Core;
use super::figures::Figures;
use super::flash::Flash;
#[cfg(feature = "port")]
use super::io_thread;
use super::links::{self, PeerLinks};
use super::session_environment::NodeEnvironment;
use super::status_stream::{StatusFeed, StatusStream};
use super::subtree_file::SubtreeFile;
use super::threads::{End, Failure, Question, Shared, lost_reason};
use super::waiting::{Opening, Ready, StatusAnswer, Stopped};
use super::{Inbox, Input, Latch, StartError, clock, data, lock, member, store};
use crate::config::{Config, ConfigError};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use zoolet_machine::server::BaseState;
use zoolet_machine::wear::shown_bytes;
use zoolet_machine::{Budget, Limits, Server, server};
use zoolet_recipes::{Client, OpenSession};
use zoolet_session::{Link, Session, SessionOptions};
use zoolet_store::base::Base;
use zoolet_store::disk::Disk;
use zoolet_store::log::Log;
use zoolet_store::{FileSystem, MeteredDisk, Reserve, Store, capped, disk_bytes_min};
use zoolet_zab::{Incarnation, Recovered};

/// Maximum wait of a dropped node for its threads.
///
/// Threads that need longer do no harm: they hold the directory's lock until they end.
const DROP_PATIENCE: Duration = Duration::from_millis(80);

/// Maximum wait of a shutdown for another server to lead, and for the answers to clients that waited
/// for that. The protocol waits for less.
const HAND_OVER_MAX: Duration = Duration::from_millis(1500);

/// Longest deadline of a shutdown: a century, which every clock can count.
const SHUTDOWN_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A handle to a server in this process, on separate threads.
///
/// The rest of the process does not hold up its heartbeats or its disk. Several nodes can live in
/// one process, each with a separate directory.
///
/// Clones are handles to the same node. When the last one is dropped, the node ends abruptly, like
/// in a power loss, but within 100 ms and with no acknowledged write lost. In contrast,
/// [`Node::shutdown`] closes sessions of this process, which deletes their ephemerals. Sessions and
/// streams are no handles: they do not keep the node alive.
///
/// Once the node has ended, requests and new sessions fail with
/// [`ErrorKind::SessionLost`](crate::ErrorKind::SessionLost), and [`Node::status`] gives `None`.
#[derive(Clone)]
#[must_use = "the node ends when its last handle is dropped"]
pub struct Node(Arc<Running>);

/// The one owner of a node's threads. Dropping it ends the node.
pub(super) struct Running {
    /// `None` once the node was told to end.
    ///
    /// From then on only the threads hold it, so that the last of them frees the data directory,
    /// even if handles stay.
    shared: Mutex<Option<Arc<Shared>>>,
    /// The disk's figures when the node was told to end.
    last_figures: OnceLock<Figures>,
    /// Whether a shutdown has begun.
    is_shutting_down: AtomicBool,
    sessions: Sessions,
    serving: Arc<Latch<()>>,
    all_ended: Arc<Latch<()>>,
    statuses: Arc<StatusFeed>,
    data: PathBuf,
    pub(super) client_address: Option<SocketAddr>,
}

/// What a start has opened of the data directory.
pub(super) struct Files {
    pub(super) path: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) base: Base,
    pub(super) reserve: Reserve,
    pub(super) flash: Flash,
    /// Nothing may be written.
    pub(super) is_read_only: bool,
}

/// Opens sessions of this process, all with one set of options.
///
/// Clones do not keep the node running.
#[derive(Clone)]
pub struct Sessions {
    inbox: Arc<Inbox>,
    here: Arc<NodeEnvironment>,
    ended: Arc<Latch<End>>,
    timeout_ms: u32,
    limits: Limits,
    /// Budget of all sessions of this process, apart from the client port's budget.
    ///
    /// The client port would not learn when a session here frees room.
    budget: Arc<Budget>,
    options: SessionOptions,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("options", &self.options).finish_non_exhaustive()
    }
}

impl OpenSession for Sessions {
    type Session = Session;
    type Opening = Opening;

    fn open_session(&self) -> Opening {
        self.open(&self.options)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Running { data, client_address, .. } = &*self.0;
        f.debug_struct("Node").field("data", data).field("clients", client_address).finish_non_exhaustive()
    }
}

impl Node {
    /// Checks a configuration, and the keys and certificates that it names, like [`Node::start`].
    ///
    /// Reads no data directory and binds no port.
    ///
    /// # Errors
    /// The first problem found, as text for people.
    pub fn check(config: &Config) -> Result<(), StartError> {
        check(config)?;
        links::check(config)
    }

    /// Opens the data, binds the ports and starts the threads.
    ///
    /// Returns when all this is done, but does not wait until the server serves (see
    /// [`Node::ready`]).
    ///
    /// # Errors
    /// The first problem found, as text for people.
    pub fn start(config: Config) -> Result<Self, StartError> {
        check(&config)?;
        let (path, disk) = data::open(&config)?;
        let file_system = disk.file_system().ok();
        Self::start_on(disk, file_system, path, config)
    }

    /// Starts a node like [`Node::start`], for an executor whose threads must not block.
    ///
    /// The start begins at once, on a thread of its own. If the future is dropped, the node is
    /// stopped, even if it comes up later.
    ///
    /// # Errors
    /// As [`Node::start`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use zoolet::{Config, Node};
    ///
    /// # let data = std::env::temp_dir().join(format!("zoolet-start-async-{}", std::process::id()));
    /// # let config = Config::new(&data);
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let node = Node::start_async(config).await?;
    /// node.ready().await?;
    /// node.shutdown_async(Duration::from_secs(5)).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # std::fs::remove_dir_all(data)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_async(config: Config) -> Starting {
        Starting::begin(move || Self::start(config))
    }

    /// Starts a node with its log and base on `disk` and its other files in the directory `path`.
    pub(super) fn start_on(
        disk: impl Disk + 'static,
        file_system: Option<FileSystem>,
        path: PathBuf,
        config: Config,
    ) -> Result<Self, StartError> {
        let flash = Flash::new(config.medium, &path);
        let metered = Arc::new(MeteredDisk::new(disk, Arc::clone(flash.meter())));
        let disk: Arc<dyn Disk> = capped(metered, config.limits.disk_bytes_max);
        let budget = Arc::new(Budget::new(&config.limits));
        #[cfg(feature = "port")]
        let port = io_thread::bind(&config, &path, Arc::clone(&budget))?;
        #[cfg(feature = "port")]
        let client_address = port.as_ref().and_then(|port| port.local_addresses().first().copied());
        #[cfg(not(feature = "port"))]
        let client_address = None;
        let Store { log, base, reserve, recovered, facts, state, chain_at_base, health, .. } =
            store::open(&config, &path, file_system, &disk, u128::from_ne_bytes(entropy()?))?;
        flash.meter().serve_base(base.id());
        if let Some(line) = reserve.reachable_bytes().ok().and_then(|bytes| small_disk(&config.limits, bytes)) {
            tracing::warn!("data = {}: {line}", path.display());
        }
        let id = member::id(&config);
        member::tell_differences(&config, &recovered.config);
        let (incarnation, process) = (Incarnation(facts.disk_incarnation), u64::from_ne_bytes(entropy()?));
        member::check_owner(&path, id, incarnation, &recovered.config)?;
        let peers = links::bind(&config, &path, incarnation, process, Arc::clone(&budget))?;
        let links = peers.as_ref().map(|peers| PeerLinks::new(peers, Arc::clone(&disk), &config)).transpose()?;
        let start = machine_start(&config, recovered, state, chain_at_base, &log)?;
        let checkpointed = base.meta().zxid;
        let files = Files { path, disk, base, reserve, flash, is_read_only: false };
        let (mut running, shared, mut core) = Running::assemble(&config, files, links, start, budget)?;
        running.client_address = client_address;
        shared.start_base_threads()?;
        let mut replayed = 0_u64;
        // As in `Store::replay`: the rest of a damaged log is not a history, and a snapshot
        // replaces it.
        if health.is_whole() {
            store::replay(&config, running.data(), &log, checkpointed, &mut |zxid, payload| {
                replayed += 1;
                core.recover(zxid, payload)
            })?;
        }
        core.start().map_err(StartError::Failed)?;
        shared.start_core_threads(log, core)?;
        if let Some(peers) = peers {
            shared.start_links(peers)?;
        }
        #[cfg(feature = "port")]
        if let Some(port) = port {
            shared.start_port(port)?;
        }
        if let Some(kept) = config.last_known_good {
            let meter = shared.flash.meter_of(&kept.path);
            shared.start_subtree_file(SubtreeFile::new(kept, meter), running.sessions.clone())?;
        }
        tracing::info!(
            data = %running.data().display(),
            clients = client_address.map(tracing::field::display),
            base = %checkpointed,
            replayed,
            "started"
        );
        Ok(running.into_node())
    }
    /// Returns the absolute path of the data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.0.data()
    }

    /// Returns the address where ZooKeeper clients connect; `None`: no client port.
    #[must_use]
    pub fn client_address(&self) -> Option<SocketAddr> {
        self.0.client_address
    }

    /// Returns a future that is ready once clients are served.
    ///
    /// It fails if the node has ended, with the reason.
    pub fn ready(&self) -> Ready {
        Ready { serving: self.0.serving.wait(), ended: self.0.sessions.ended.wait() }
    }

    /// Returns why the node failed, if it has.
    #[must_use]
    pub fn failed(&self) -> Option<Failure> {
        self.0.failure()
    }

    /// Returns a future that is ready when the node has ended, with the failure if it failed.
    pub fn stopped(&self) -> Stopped {
        Stopped(self.0.sessions.ended.wait())
    }

    /// Returns the machine's status and the disk's figures.
    pub fn status(&self) -> StatusAnswer {
        let question = Question::new();
        if !self.0.sessions.inbox.push(Input::Ask(Arc::clone(&question))) {
            question.set(None);
        }
        StatusAnswer { answer: question.wait(), figures: self.figures() }
    }

    /// Returns a stream of what a daemon must know of its server.
    ///
    /// The first item is the present state: role, voters heard, lag, disk, wear of the flash, and
    /// all alarms with their remedies. Each later item differs from the one before in more than
    /// progress ([`Summary::is_news_after`](crate::status::Summary::is_news_after)), so an idle
    /// node yields nothing.
    ///
    /// An alarm that each start and each election raises for a moment, such as
    /// [`NotReached`](crate::status::AlarmKind::NotReached), shows once it has lasted 1 s.
    ///
    /// Another role or leader shows at once, all else within 1 s, and on an idle standalone node
    /// within 5 s. While a stream exists, such a node wakes every 5 s. Without one it does not look
    /// at its state at all.
    ///
    /// ```
    /// use zoolet::{Config, Node, Wait};
    ///
    /// # let data = std::env::temp_dir().join(format!("zoolet-watch-status-{}", std::process::id()));
    /// let node = Node::start(Config::new(&data))?;
    /// node.ready().wait()?;
    /// let mut statuses = node.watch_status();
    /// let now = statuses.next().wait().expect("the node has not ended");
    /// for alarm in &now.alarms {
    ///     eprintln!("{}: {}", alarm.what, alarm.remedy);
    /// }
    /// assert!(now.is_serving() && !now.disk.is_full());
    /// # drop(node);
    /// # std::fs::remove_dir_all(data)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch_status(&self) -> StatusStream {
        self.0.statuses.watch(&self.0.sessions.inbox)
    }

    /// Returns the disk's figures since the node started, or up to its end.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let shared = self.0.shared().map(|shared| shared.figures());
        shared.or_else(|| self.0.last_figures.get().copied()).unwrap_or_default()
    }

    /// Opens a session of this process, with a timeout of 10 s.
    ///
    /// The timeout is `session_timeout_max_ms` if that is less.
    pub fn session(&self) -> Opening {
        self.session_with(&SessionOptions::default())
    }

    /// Opens a session of this process with other options.
    ///
    /// It can have another timeout, or a watchdog that closes it when its owner hangs.
    ///
    /// ```
    /// use std::time::Duration;
    /// use zoolet::{Config, CreateOptions, Node, SessionOptions, Wait, path};
    ///
    /// # let data = std::env::temp_dir().join(format!("zoolet-watchdog-{}", std::process::id()));
    /// let node = Node::start(Config::new(&data))?;
    /// let watchdog = Some(Duration::from_secs(30));
    /// let session = node.session_with(&SessionOptions { watchdog, ..SessionOptions::default() }).wait()?;
    /// session.create_with(path!("/alive"), None, &CreateOptions::ephemeral()).wait()?;
    /// for _round in 0..3 {
    ///     // What the daemon does; when it hangs here, "/alive" goes.
    ///     session.touch();
    /// }
    /// # drop(node);
    /// # std::fs::remove_dir_all(data)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn session_with(&self, options: &SessionOptions) -> Opening {
        self.0.sessions.open(options)
    }

    /// Returns a client whose sessions are of this process: it opens the next one when one ends.
    ///
    /// ```
    /// use zoolet::{Config, Node, Wait, path};
    ///
    /// # let data = std::env::temp_dir().join(format!("zoolet-client-{}", std::process::id()));
    /// let node = Node::start(Config::new(&data))?;
    /// let client = node.client();
    /// let mut own = client.member(path!("/sensors"), "thermometer-4", "21.5");
    /// own.set("21.7").wait()?;
    /// # drop(node);
    /// # std::fs::remove_dir_all(data)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client(&self) -> Client<Sessions> {
        Client::new(self.sessions(SessionOptions::default()))
    }

    /// As [`Node::client`], with these options for each of its sessions.
    pub fn client_with(&self, options: SessionOptions) -> Client<Sessions> {
        Client::new(self.sessions(options))
    }

    /// Returns what opens sessions of this process with these options, for a [`Client`].
    pub fn sessions(&self, options: SessionOptions) -> Sessions {
        Sessions { options, ..self.0.sessions.clone() }
    }

    /// Ends the node in order, for all its handles.
    ///
    /// A shutdown
    /// - closes the sessions of this process,
    /// - lets another server lead, if this one does, and answers the clients that waited for that,
    /// - sends clients all queued answers, makes everything durable and ends the threads,
    /// - frees the data directory for the next node.
    ///
    /// Sessions of clients survive. They continue with the next node that opens the directory.
    ///
    /// A session of this process may own ephemerals once it has requested one. If this server has no
    /// leader, it waits for one to end such sessions, for half of `deadline`.
    ///
    /// # Errors
    /// - [`ShutdownError::Late`]: the node did not finish in time. That is safe, but ephemerals of
    ///   this process may stay until this node is back, or their sessions time out.
    /// - [`ShutdownError::Failed`]: the node had failed.
    /// - [`ShutdownError::AlreadyShutDown`]: another call shuts the node down. This call has waited
    ///   for its end, or for `deadline` if that comes first.
    pub fn shutdown(&self, deadline: Duration) -> Result<(), ShutdownError> {
        let until = Instant::now() + deadline.min(SHUTDOWN_MAX);
        if self.0.is_shutting_down.swap(true, Relaxed) {
            self.0.all_ended.wait_until(until);
            return Err(ShutdownError::AlreadyShutDown);
        }
        let outcome = self.0.shut_down(until);
        self.0.end();
        outcome
    }

    /// Ends the node like [`Node::shutdown`], for an executor whose threads must not block.
    ///
    /// The shutdown begins at once, on a thread of its own. Dropping the future does not cancel it.
    ///
    /// # Errors
    /// As [`Node::shutdown`], and [`ShutdownError::Thread`] if the system starts no more threads.
    /// Then the node goes on.
    pub fn shutdown_async(&self, deadline: Duration) -> ShuttingDown {
        let node = self.clone();
        ShuttingDown::begin(move || node.shutdown(deadline))
    }
}

impl Running {
    /// Puts a node together, without threads.
    pub(super) fn assemble(
        config: &Config,
        files: Files,
        links: Option<Arc<PeerLinks>>,
        start: server::Start,
        budget: Arc<Budget>,
    ) -> Result<(Self, Arc<Shared>, Core), StartError> {
        let liveness_delay_max_ms =
            links.as_ref().map_or(0, |_| server::liveness_delay_max_ms(&start.settings, &start.timing));
        let inbox = Arc::new(Inbox::new());
        let seed = u128::from_ne_bytes(entropy()?);
        let here = NodeEnvironment::new(Arc::clone(&inbox), Duration::from_millis(liveness_delay_max_ms), seed);
        let data = files.path.clone();
        let shared = Shared::new(files, links, config.has_port(), Arc::clone(&here), Arc::clone(&inbox));
        let sessions = Sessions {
            inbox,
            here,
            ended: Arc::clone(&shared.ended),
            timeout_ms: config.settings.session_timeout_max_ms.min(DEFAULT_TIMEOUT_MS),
            limits: config.limits,
            budget: Arc::new(Budget::new(&config.limits)),
            options: SessionOptions::default(),
        };
        let running = Self {
            shared: Mutex::new(Some(Arc::clone(&shared))),
            last_figures: OnceLock::new(),
            is_shutting_down: AtomicBool::new(false),
            sessions,
            serving: Arc::clone(&shared.serving),
            all_ended: Arc::clone(&shared.all_ended),
            statuses: Arc::clone(&shared.statuses),
            data,
            client_address: None,
        };
        let core = Core::new(Server::new(start, clock::now()), Arc::clone(&shared), budget);
        Ok((running, shared, core))
    }

    pub(super) fn into_node(self) -> Node {
        Node(Arc::new(self))
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the state of the threads; `None` once the node was told to end.
    fn shared(&self) -> Option<Arc<Shared>> {
        lock(&self.shared).clone()
    }

    fn failure(&self) -> Option<Failure> {
        self.sessions.ended.value().and_then(End::failure)
    }

    fn shut_down(&self, until: Instant) -> Result<(), ShutdownError> {
        if let Some(failure) = self.failure() {
            return Err(ShutdownError::Failed(failure));
        }
        let Some(shared) = self.shared() else { return Err(ShutdownError::AlreadyShutDown) };
        let began = Instant::now();
        shared.inbox.push(Input::CloseSessions);
        // A log that cannot write must not use up the time of the other steps.
        let half = began + until.saturating_duration_since(began) / 2;
        let closed = shared.sessions_closed.wait_until(half).is_some();
        if shared.links.is_some() {
            // The machine gives up by itself if no other server can take over.
            shared.inbox.push(Input::HandOver);
            shared.handed_over.wait_until(until.min(Instant::now() + HAND_OVER_MAX));
        }
        shared.stop_port();
        shared.inbox.push(Input::Stop);
        let ended = shared.all_ended.wait_until(until).is_some();
        match self.failure() {
            Some(failure) => Err(ShutdownError::Failed(failure)),
            None if closed && ended => Ok(()),
            None => Err(ShutdownError::Late),
        }
    }

    /// Ends all threads without waiting for their work, and lets go of the data directory.
    fn end(&self) {
        let shared = {
            let mut shared = lock(&self.shared);
            if let Some(shared) = &*shared {
                let _ = self.last_figures.set(shared.figures());
            }
            shared.take()
        };
        let Some(shared) = shared else { return };
        shared.stop_port();
        shared.inbox.push(Input::Stop);
        shared.log.close_and_clear();
        shared.checkpoint.close_and_clear();
        shared.base.close_and_clear();
        shared.completions.close_and_clear();
        shared.catch_up.close_and_clear();
        if let Some(links) = &shared.links {
            links.stop();
        }
        shared.all_ended.wait_until(Instant::now() + DROP_PATIENCE);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Sessions {
    pub(super) fn open(&self, options: &SessionOptions) -> Opening {
        let asked_ms = |timeout: Duration| u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).min(i32::MAX as u32);
        let link = self.new_link(options.timeout.map_or(self.timeout_ms, asked_ms));
        if options.read_only {
            link.allow_read_only();
        }
        if let Some(patience) = options.watchdog {
            link.watch_over(patience);
        }
        if !self.inbox.push(Input::Dial(Arc::clone(&link))) {
            link.lost(lost_reason(self.ended.value().and_then(End::failure).as_ref()));
        }
        Opening { reader: link.new_number(), session: Some(Session::new(Arc::clone(&link))), link }
    }

    fn new_link(&self, timeout_ms: u32) -> Arc<Link> {
        Link::new(self.inbox.clone(), self.here.clone(), timeout_ms, &self.limits, Arc::clone(&self.budget))
    }
}

/// Returns what the machine of a node starts from.
pub(super) fn machine_start(
    config: &Config,
    recovered: Recovered,
    base: Option<BaseState>,
    chain_at_base: u128,
    log: &Log,
) -> Result<server::Start, StartError> {
    Ok(server::Start {
        limits: config.limits,
        settings: config.settings.clone(),
        id: member::id(config),
        members: member::members(config)?,
        timing: member::timing(config),
        recovered,
        base,
        chain_at_base,
        seed: entropy()?,
        log_bytes_used: log.used_bytes(),
    })
}

/// Session timeout if an embedder names none, milliseconds.
const DEFAULT_TIMEOUT_MS: u32 = 10_000;

/// Finds problems of a configuration that would otherwise show late.
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
    let (disk, least) = (limits.disk_bytes_max, disk_bytes_min(limits));
    if (1..least).contains(&disk) {
        return refuse(format!("disk_bytes_max = {disk}: allowed is 0 for no bound, or at least {least}"));
    }
    #[cfg(feature = "ensemble")]
    if let Some(ensemble) = &config.ensemble {
        ensemble.check(config.server_id).map_err(StartError::Config)?;
    }
    if let Some(kept) = &config.last_known_good {
        kept.check(&config.data).map_err(StartError::Config)?;
    }
    Ok(())
}

/// Returns a warning if `reachable_bytes` of the disk are less than this server will need.
fn small_disk(limits: &Limits, reachable_bytes: u64) -> Option<String> {
    let least = disk_bytes_min(limits);
    (reachable_bytes < least).then(|| {
        format!(
            "the disk has {} for this server, and the log's ring, the reserve and two bases need {}: writes will be refused early; give it a larger \
             disk, or set log_segments, log_segment_bytes or disk_reserve_bytes lower",
            shown_bytes(reachable_bytes),
            shown_bytes(least)
        )
    })
}

/// Fewest segments of the log.
///
/// Three segments are kept free, and a checkpoint starts when half the ring is used. With fewer,
/// writes would wait for a checkpoint that never starts.
const LOG_SEGMENTS_MIN: u32 = 6;

/// Returns random bytes from the operating system.
fn entropy<const BYTES: usize>() -> Result<[u8; BYTES], StartError> {
    let mut seed = [0; BYTES];
    let mut filled = 0;
    while filled < seed.len() {
        filled += rustix::rand::getrandom(&mut seed[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| StartError::Disk(format!("the system provides no random numbers: {error}")))?;
    }
    Ok(seed)
}

/// Why a shutdown was not clean.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The deadline passed first.
    Late,
    /// The node had failed.
    Failed(Failure),
    /// Another call shuts the node down, or has done so.
    AlreadyShutDown,
    /// The system starts no more threads. The node goes on.
    Thread(std::io::ErrorKind),
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("the shutdown did not finish in time"),
            Self::Failed(failure) => fmt::Display::fmt(failure, f),
            Self::Thread(kind) => write!(f, "cannot start a thread for the shutdown, and the node goes on: {kind}"),
            Self::AlreadyShutDown => f.write_str("the node was already shut down, by another call"),
        }
    }
}

impl std::error::Error for ShutdownError {}

#[cfg(test)]
#[cfg(all(feature = "ensemble", feature = "port"))]
mod stopping_leader;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes::Coordinator;
    use crate::{Wait, path};
    use zoolet_session::{ErrorKind, LostReason, SessionState};

    #[test]
    fn disk_too_small_for_log_reserve_and_bases_is_warned_of() {
        let limits = Limits::default();
        let least = disk_bytes_min(&limits);
        assert_eq!(small_disk(&limits, least), None);
        let line = small_disk(&limits, 79_000_000).unwrap();
        assert!(
            line.starts_with(
                "the disk has 79.0 MB for this server, and the log's ring, the reserve and two bases need"
            ),
            "{line}"
        );
    }

    #[test]
    fn timer_wakes_at_its_instant_or_when_its_node_ends() {
        let root = std::env::temp_dir().join(format!("zoolet-timers-{}", std::process::id()));
        let node = Node::start(Config::new(&root)).unwrap();
        let session = node.session().wait().unwrap();
        // Before the next ping, which is seconds away.
        let at = session.now() + Duration::from_millis(20);
        session.timer(at).wait();
        assert!(session.now() >= at);
        assert_ne!(session.random_bits(), session.random_bits());
        let never = session.timer(zoolet_recipes::Instant::at(Duration::MAX));
        let waiting = std::thread::spawn(move || never.wait());
        node.shutdown(Duration::from_secs(5)).unwrap();
        waiting.join().unwrap();
        std::fs::remove_dir_all(root).unwrap();
    }

    /// A daemon that does not watch its server pays nothing for those that do.
    #[test]
    fn idle_node_has_no_timer_unless_its_status_is_watched() {
        let root = std::env::temp_dir().join(format!("zoolet-unwatched-{}", std::process::id()));
        let node = Node::start(Config::new(&root)).unwrap();
        node.ready().wait().unwrap();
        let shared = node.0.shared().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let wait_for = |has_timer: bool| {
            while shared.machine.wakes_ms().is_some() != has_timer {
                assert!(Instant::now() < until, "timer: {:?}", shared.machine.wakes_ms());
                std::thread::yield_now();
            }
        };
        wait_for(false);
        let mut stream = node.watch_status();
        assert!(stream.next().wait().is_some());
        wait_for(true);
        drop(stream);
        shared.inbox.nudge();
        wait_for(false);
        drop((shared, node));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn failed_assertion_stops_its_node_and_no_other_node() {
        let root = std::env::temp_dir().join(format!("zoolet-poison-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let (bad, good) =
            (Node::start(Config::new(root.join("bad"))).unwrap(), Node::start(Config::new(root.join("good"))).unwrap());
        let (hurt, healthy) = (bad.session().wait().unwrap(), good.session().wait().unwrap());
        let mut watch = hurt.watch(path!("/"), crate::AddWatchMode::Persistent).wait().unwrap();
        // Inputs of the same batch are answered as well.
        let question = Question::new();
        let link = bad.0.sessions.new_link(1000);
        let together = [Input::Panic, Input::Ask(Arc::clone(&question)), Input::Dial(Arc::clone(&link))];
        bad.0.sessions.inbox.push_all(together.into_iter());
        let opening = Opening {
            reader: link.new_number(),
            session: Some(Session::new(Arc::clone(&link))),
            link: Arc::clone(&link),
        };
        assert_eq!(opening.wait().unwrap_err().kind(), ErrorKind::SessionLost(LostReason::Bug));
        assert_eq!(question.wait().wait(), None);
        assert_eq!(bad.stopped().wait(), Some(Failure::Bug("told to".to_owned())));
        assert_eq!(bad.failed(), Some(Failure::Bug("told to".to_owned())));
        assert_eq!(watch.next().wait(), None);
        assert_eq!(hurt.state(), SessionState::Lost(LostReason::Bug));
        assert_eq!(hurt.exists(path!("/")).wait().unwrap_err().kind(), ErrorKind::SessionLost(LostReason::Bug));
        assert_eq!(bad.session().wait().unwrap_err().kind(), ErrorKind::SessionLost(LostReason::Bug));
        assert_eq!(bad.status().wait(), None);
        assert!(matches!(bad.shutdown(Duration::from_secs(5)), Err(ShutdownError::Failed(Failure::Bug(_)))));
        assert!(healthy.exists(path!("/")).wait().unwrap().is_some());
        good.shutdown(Duration::from_secs(5)).unwrap();
        // Acknowledged writes survive.
        let again = Node::start(Config::new(root.join("bad"))).unwrap();
        assert!(again.session().wait().unwrap().exists(path!("/")).wait().unwrap().is_some());
        drop(again);
        std::fs::remove_dir_all(root).unwrap();
    }
}
