//! The threads of a node, their shared state, and how a failure of one ends them all.

use super::base_threads::BaseWork;
use super::catch_up::{self, CatchUp};
use super::checkpoint_thread::CheckpointWork;
use super::core::Core;
use super::current::CurrentBase;
use super::figures::{AtDisk, Figures};
use super::flash::{self, Flash};
#[cfg(feature = "port")]
use super::io_thread::{self, Sockets};
use super::links::{self, PeerLinks, PeerPort, Received};
use super::log_thread::LogWork;
use super::node::{Files, Sessions};
use super::session_environment::NodeEnvironment;
use super::status_stream::StatusFeed;
use super::subtree_file::SubtreeFile;
use super::turns::MachineLock;
use super::{Inbox, Input, Latch, Mailbox, StartError, base_threads, checkpoint_thread, log_thread};
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use zoolet_machine::Status;
use zoolet_machine::status::DiskTroubles;
use zoolet_session::LostReason;
use zoolet_store::Reserve;
use zoolet_store::disk::Disk;
use zoolet_store::log::Log;
#[cfg(feature = "port")]
use zoolet_transport::client_port::ClientPort;

/// Why a node failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Going on could break a promise: the disk failed, or its data is damaged.
    Failed(String),
    /// An assertion in zoolet did not hold.
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

impl End {
    pub(super) fn lost_reason(&self) -> LostReason {
        match self {
            Self::Stopped => LostReason::Stopped,
            Self::Failed(failure) => lost_reason(Some(failure)),
        }
    }

    pub(super) fn failure(self) -> Option<Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Stopped => None,
        }
    }
}

/// A request for the machine's status; `None`: the node ended before the answer.
pub(crate) type Question = Latch<Option<Status>>;

/// State that all threads of a node share.
pub(crate) struct Shared {
    pub(super) inbox: Arc<Inbox>,
    /// Clock, timers and randomness for sessions of this process.
    pub(super) here: Arc<NodeEnvironment>,
    pub(super) machine: MachineLock,
    pub(super) log: Mailbox<LogWork>,
    /// Reads for the core, which entries wait for.
    pub(super) base: Mailbox<BaseWork>,
    /// Answers to assemble, which only their clients wait for.
    pub(super) completions: Mailbox<BaseWork>,
    pub(super) checkpoint: Mailbox<CheckpointWork>,
    pub(super) catch_up: Mailbox<CatchUp>,
    pub(super) links: Option<Arc<PeerLinks>>,
    pub(super) received: Received,
    #[cfg(feature = "port")]
    pub(super) sockets: Option<Arc<Sockets>>,
    pub(super) ended: Arc<Latch<End>>,
    pub(super) serving: Arc<Latch<()>>,
    pub(super) statuses: Arc<StatusFeed>,
    pub(super) sessions_closed: Arc<Latch<()>>,
    pub(super) handed_over: Arc<Latch<()>>,
    /// Threads that have not ended.
    running: AtomicUsize,
    pub(super) all_ended: Arc<Latch<()>>,
    pub(super) log_counts: log_thread::Counts,
    /// Wait of the thread `base` for the disk.
    asking: AtDisk,
    scrubs: checkpoint_thread::Scrubs,
    presence: checkpoint_thread::Presence,
    pub(super) disk: Arc<dyn Disk>,
    store: CurrentBase,
    pub(super) reserve: Reserve,
    pub(super) flash: Flash,
    /// The disk took no writes at the start: nothing is appended, and no checkpoint is written.
    pub(super) is_read_only: bool,
}

impl Shared {
    pub(super) fn new(
        files: Files,
        links: Option<Arc<PeerLinks>>,
        has_port: bool,
        here: Arc<NodeEnvironment>,
        inbox: Arc<Inbox>,
    ) -> Arc<Self> {
        #[cfg(not(feature = "port"))]
        let _ = has_port;
        let Files { disk, base, reserve, flash, is_read_only, .. } = files;
        Arc::new(Self {
            inbox,
            here,
            machine: MachineLock::default(),
            log: Mailbox::new(),
            base: Mailbox::new(),
            completions: Mailbox::new(),
            checkpoint: Mailbox::new(),
            catch_up: Mailbox::new(),
            links,
            received: Received::default(),
            #[cfg(feature = "port")]
            sockets: has_port.then(Arc::default),
            ended: Latch::new(),
            serving: Latch::new(),
            statuses: Arc::default(),
            sessions_closed: Latch::new(),
            handed_over: Latch::new(),
            running: AtomicUsize::new(0),
            all_ended: Latch::new(),
            log_counts: log_thread::Counts::default(),
            asking: AtDisk::default(),
            scrubs: checkpoint_thread::Scrubs::default(),
            presence: checkpoint_thread::Presence::default(),
            disk,
            store: CurrentBase::new(base),
            reserve,
            flash,
            is_read_only,
        })
    }

    pub(super) fn figures(&self) -> Figures {
        let (scrubs_sound, scrubs_failed) = self.scrubs.figures();
        let log = self.log_counts.figures();
        let at_disk = log.at_disk.max(self.asking.age());
        let is_directory_gone = self.presence.is_gone();
        Figures { at_disk, base: self.store.base().counters(), scrubs_sound, scrubs_failed, is_directory_gone, ..log }
    }

    /// Returns the troubles of the disk, except a lack of space.
    pub(super) fn disk_troubles(&self) -> DiskTroubles {
        let mut status = Status::default();
        self.fill_in(&mut status);
        zoolet_machine::status::disk_troubles(&status)
    }

    /// Adds figures and troubles of the disk, wear of the medium and lack of space to a status.
    pub(super) fn fill_in(&self, status: &mut Status) {
        let figures = self.figures();
        let flash = self.flash.status(figures.log.entry_bytes);
        status.disk = figures.lines(status.writes_acknowledged);
        status.disk.extend(flash::lines(&flash));
        status.flash = Some(flash);
        status.base_trouble = self.scrubs.trouble();
        status.lack = self.reserve.lack();
    }

    pub(super) fn base_memory_bytes(&self) -> u64 {
        self.store.base().memory_bytes()
    }

    /// Returns the disk space of the data directory's files as of the last look, bytes.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.reserve.taken_bytes()
    }

    pub(super) fn tell_serving(&self) {
        self.serving.set(());
    }

    pub(super) fn tell_handed_over(&self) {
        self.handed_over.set(());
    }

    pub(super) fn tell_sessions_closed(&self) {
        self.sessions_closed.set(());
    }

    /// Poisons the node: it promises and acknowledges nothing more.
    pub(super) fn fail(&self, failure: Failure) {
        tracing::error!(%failure, "the node has failed");
        self.ended.set(End::Failed(failure));
        self.inbox.push(Input::Stop);
        self.stop_port();
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.ended.value().and_then(End::failure)
    }

    pub(super) fn stop_port(&self) {
        #[cfg(feature = "port")]
        if let Some(sockets) = &self.sockets {
            sockets.stop();
        }
    }

    /// Starts the threads that answer the core, even while it reads its log.
    pub(super) fn start_base_threads(self: &Arc<Self>) -> Result<(), StartError> {
        self.start_base_readers()?;
        self.spawn("checkpoint", |shared| {
            let thread = checkpoint_thread::CheckpointThread {
                disk: &*shared.disk,
                base: &shared.store,
                received: &shared.received,
                reserve: &shared.reserve,
                readers: [&shared.base, &shared.completions],
                log: &shared.log,
                core: &shared.inbox,
                scrubs: &shared.scrubs,
                presence: &shared.presence,
                flash: &shared.flash,
                log_counts: &shared.log_counts,
                log_limit: Mutex::default(),
                is_over: Cell::new(false),
            };
            thread.run(&shared.checkpoint)
        })
    }

    /// Starts the threads that read the base for the core, without the one that writes it.
    pub(super) fn start_base_readers(self: &Arc<Self>) -> Result<(), StartError> {
        let (generation, reader) = self.store.reader();
        self.base.push(BaseWork::Serve(generation, reader.clone()));
        self.completions.push(BaseWork::Serve(generation, reader));
        self.spawn("base", |shared| {
            base_threads::run(&shared.base, &shared.inbox, &shared.asking);
            Ok(())
        })?;
        // On a separate thread, because one client's long listing must not delay reads that another
        // client's write waits for.
        self.spawn("completion", |shared| {
            base_threads::run(&shared.completions, &shared.inbox, &AtDisk::default());
            Ok(())
        })
    }

    /// Starts the threads of a machine that has read its log.
    pub(super) fn start_core_threads(self: &Arc<Self>, log: Log, core: Core) -> Result<(), StartError> {
        if self.links.is_some() {
            self.spawn("catch-up", |shared| {
                catch_up::run(&shared.catch_up, &shared.inbox);
                Ok(())
            })?;
        }
        self.spawn("log", move |shared| log_thread::run(shared, log))?;
        self.start_core(core)
    }

    /// Starts the thread of the machine.
    pub(super) fn start_core(self: &Arc<Self>, core: Core) -> Result<(), StartError> {
        self.spawn("core", move |shared| {
            run_core(core, shared);
            Ok(())
        })
    }

    /// Starts the thread of the client port.
    #[cfg(feature = "port")]
    pub(super) fn start_port(self: &Arc<Self>, port: ClientPort) -> Result<(), StartError> {
        let Some(sockets) = self.sockets.clone() else { return Ok(()) };
        self.spawn("io", move |shared| io_thread::run(port, &sockets, Arc::clone(shared)))
    }

    /// Starts the thread of the links to other servers.
    pub(super) fn start_links(self: &Arc<Self>, port: PeerPort) -> Result<(), StartError> {
        let Some(links) = self.links.clone() else { return Ok(()) };
        self.spawn("peers", move |shared| links::run(port, &links, Arc::clone(shared)))
    }

    /// Starts the thread that keeps a subtree in a file.
    pub(super) fn start_subtree_file(
        self: &Arc<Self>,
        subtree_file: SubtreeFile,
        sessions: Sessions,
    ) -> Result<(), StartError> {
        self.spawn("subtree", move |_| {
            subtree_file.run(&sessions);
            Ok(())
        })
    }

    /// Runs `body` on a new thread. A panic or an error in it poisons the node.
    fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Arc<Self>) -> Result<(), String> + Send + 'static,
    ) -> Result<(), StartError> {
        let shared = Arc::clone(self);
        self.running.fetch_add(1, SeqCst);
        let spawned = thread::Builder::new().name(format!("zoolet-{name}")).spawn(move || {
            match catch_unwind(AssertUnwindSafe(|| body(&shared))) {
                Ok(Ok(())) => {}
                Ok(Err(why)) => shared.fail(Failure::Failed(why)),
                Err(panic) => shared.fail(Failure::Bug(message(&*panic))),
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

/// Runs the core until it ends.
///
/// A panic in the machine poisons the node, and every session of the process learns of it.
fn run_core(core: Core, shared: &Shared) {
    let (core, ended) = shared.drive(core);
    let failure = ended.err();
    match failure {
        Some(failure) => shared.fail(failure),
        None => shared.ended.set(End::Stopped),
    }
    core.end(lost_reason(shared.failure().as_ref()));
    shared.stop_port();
    // Waiting appends still become durable. Then each thread finds its mailbox closed.
    shared.log.close();
    shared.checkpoint.close();
    shared.base.close();
    shared.completions.close();
    shared.catch_up.close();
    if let Some(links) = &shared.links {
        links.stop();
    }
}

pub(super) fn lost_reason(failure: Option<&Failure>) -> LostReason {
    match failure {
        None => LostReason::Stopped,
        Some(Failure::Failed(_)) => LostReason::Failed,
        Some(Failure::Bug(_)) => LostReason::Bug,
    }
}

/// Returns the message of a panic.
pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}
