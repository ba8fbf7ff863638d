//! A server whose disk takes no writes when it starts.
//!
//! If the process ended, it would be restarted forever and no operator would know why. So it
//! reports the problem on its client port until it can start. With `read_only = true` it meanwhile
//! serves readers what base and log hold, if both can be read without any write.
//!
//! Such a server takes no part in its ensemble: it has no links, no log thread and no checkpoints.
//! The machine applies the entries that are known to be committed, and its protocol never starts.

use super::core::Core;
use super::data::{self, StartError};
use super::flash::Flash;
use super::node::{Files, Node, Running, machine_start};
use super::threads::Shared;
use super::{Failure, io_thread, member, store};
use crate::config::Config;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use zoolet_machine::budget::Part;
use zoolet_machine::status::{self, Alarm, AlarmKind, Status};
use zoolet_machine::{Budget, Event};
use zoolet_model::{ServerId, Zxid};
use zoolet_store::disk::Disk;
use zoolet_store::log::Log;
use zoolet_store::{FileSystem, MARKER, MeteredDisk, Store};
use zoolet_transport::client_port::{ClientPort, EventSink, Output, OutputQueue};
use zoolet_zab::{Incarnation, Recovered};

/// Maximum wait for the end of a server of readers, and then for that of its last thread.
///
/// The next server locks the directory and opens the same port. A connection with unsent answers
/// stays for up to 2 s.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Client port of a server that waits for its disk.
///
/// It answers requests for the status. It serves readers if it may and can, and refuses all other
/// clients. Dropping it closes the port.
#[derive(Debug)]
pub struct ReadOnly {
    port: Port,
    /// Whether the directory had data.
    had_data: bool,
}

#[derive(Debug)]
enum Port {
    /// Serves readers.
    Readers(Readers),
    /// Serves no client.
    Closed(Closed),
}

impl ReadOnly {
    /// Opens the port that `config` names, if it names one.
    ///
    /// # Errors
    /// The port cannot be opened, or a thread cannot start.
    pub fn tell(config: &Config) -> Result<Self, StartError> {
        let port = if config.settings.read_only {
            match Readers::start(config) {
                Ok(readers) => Port::Readers(readers),
                Err(error @ (StartError::Port(_) | StartError::Thread(_))) => return Err(error),
                Err(error) => Port::Closed(Closed::open(config, Some(error.to_string()))?),
            }
        } else {
            Port::Closed(Closed::open(config, None)?)
        };
        Ok(Self { port, had_data: has_data(config) })
    }

    /// Describes for the log what this server does until its disk is writable.
    pub fn meanwhile(&self) -> String {
        match &self.port {
            Port::Readers(_) => "does not vote, and serves only clients that ask to read only".to_owned(),
            Port::Closed(Closed { why: None, .. }) => "neither votes nor serves".to_owned(),
            Port::Closed(Closed { why: Some(why), .. }) => {
                format!("neither votes nor serves, not even clients that ask to read only ({why})")
            }
        }
    }

    /// Returns whether another attempt to start makes sense.
    ///
    /// It does not while the file system is unmounted for a check: the directory at the mount point
    /// does not have the data.
    pub fn is_over(&self, config: &Config) -> bool {
        let is_read_only = || match &self.port {
            // It has said why in the log, and gives way to the next attempt.
            Port::Readers(readers) if readers.has_failed() => false,
            Port::Readers(_) => data::is_still_read_only(&config.data),
            Port::Closed(_) => data::is_on_read_only_disk(&config.data),
        };
        has_data(config) == self.had_data && !is_read_only()
    }
}

fn has_data(config: &Config) -> bool {
    config.data.join(MARKER).exists()
}

/// A node that serves readers from a disk that takes no writes.
#[derive(Debug)]
pub(super) struct Readers {
    /// `Some` until dropped.
    node: Option<Node>,
    /// Gone when the last thread has ended.
    disk: Weak<dyn Disk>,
}

impl Readers {
    /// Opens log and base, applies what may be shown, and opens the port.
    ///
    /// # Errors
    /// Log or base cannot be read without a repair, or the entries do not fit into memory.
    fn start(config: &Config) -> Result<Self, StartError> {
        let (path, disk) = data::open_read_only(config)?;
        let file_system = disk.file_system().ok();
        Self::start_on(disk, file_system, path, config)
    }

    /// Starts with log and base on `disk`, which refuses every write.
    pub(super) fn start_on(
        disk: impl Disk + 'static,
        file_system: Option<FileSystem>,
        path: PathBuf,
        config: &Config,
    ) -> Result<Self, StartError> {
        let flash = Flash::new(config.medium, &path);
        let disk: Arc<dyn Disk> = Arc::new(MeteredDisk::new(disk, Arc::clone(flash.meter())));
        let Store { log, base, reserve, mut recovered, facts, state, chain_at_base, .. } =
            store::open_read_only(config, &path, file_system, &disk)?;
        member::check_owner(&path, member::id(config), Incarnation(facts.disk_incarnation), &recovered.config)?;
        recovered.committed = last_shown(config, &recovered)?;
        let (checkpointed, last) = (base.meta().zxid, recovered.committed);
        let start = machine_start(config, recovered, state, chain_at_base, &log)?;
        let budget = Arc::new(Budget::new(&config.limits));
        let files = Files { path, disk, base, reserve, flash, is_read_only: true };
        let (running, shared, core) = Running::assemble(config, files, None, start, Arc::clone(&budget))?;
        let disk = Arc::downgrade(&shared.disk);
        let begun = Self::begin(config, running, shared, core, log, (checkpointed, last), budget);
        match begun {
            Ok(node) => Ok(Self { node: Some(node), disk }),
            Err(error) => {
                wait_for_end(&disk);
                Err(error)
            }
        }
    }

    /// Applies the log's entries from `checkpointed` to `last`, and opens the port.
    fn begin(
        config: &Config,
        mut running: Running,
        shared: Arc<Shared>,
        mut core: Core,
        log: Log,
        (checkpointed, last): (Zxid, Zxid),
        budget: Arc<Budget>,
    ) -> Result<Node, StartError> {
        shared.start_base_readers()?;
        let mut replayed = 0_u64;
        store::replay(config, running.data(), &log, checkpointed, &mut |zxid, payload| {
            if zxid > last {
                return Ok(());
            }
            replayed += 1;
            core.recover(zxid, payload)?;
            check_memory(&budget)
        })?;
        drop(log);
        core.start_reading(last).map_err(StartError::Failed)?;
        let port = io_thread::bind(config, running.data(), budget)?;
        running.client_address = port.as_ref().and_then(|port| port.local_addresses().first().copied());
        shared.start_core(core)?;
        if let Some(port) = port {
            shared.start_port(port)?;
        }
        tracing::info!(
            data = %running.data().display(),
            clients = running.client_address.map(tracing::field::display),
            base = %checkpointed,
            replayed,
            zxid = %last,
            "serves readers from a read-only disk"
        );
        Ok(running.into_node())
    }

    pub(super) fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn has_failed(&self) -> bool {
        self.node().is_some_and(|node| node.failed().is_some())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        let Some(node) = self.node.take() else { return };
        // No session of this process is open, so nothing is left undone.
        let _ = node.shutdown(END_PATIENCE);
        drop(node);
        wait_for_end(&self.disk);
    }
}

/// Waits until no thread of a server of readers has the disk open.
fn wait_for_end(disk: &Weak<dyn Disk>) {
    let until = Instant::now() + END_PATIENCE;
    while disk.strong_count() > 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the last entry that readers may see.
///
/// A server that is the only voter decides alone, so it commits its whole log at its next start.
/// The other voters of a larger ensemble may cut off what is not known to be committed.
fn last_shown(config: &Config, recovered: &Recovered) -> Result<Zxid, StartError> {
    let of_file = member::members(config)?;
    let members = if recovered.config.is_born() { &recovered.config } else { &of_file };
    let decides_alone = members.voters().count() == 1
        && members.counts(member::id(config), recovered.disk)
        && recovered.pending.is_none();
    Ok(if decides_alone { recovered.history.last() } else { recovered.committed })
}

/// Fails once the replayed changes take more memory than a running server admits.
///
/// Without checkpoints all of them stay in memory. A process that the system ends for lack of memory
/// would be restarted forever.
pub(super) fn check_memory(budget: &Budget) -> Result<(), Failure> {
    let memtable = budget.limit(Part::Memtable);
    // A running server lets deletes use an eighth more, and admits entries before it adds their size.
    let bytes_max = memtable + memtable / 8 + budget.limit(Part::Unapplied);
    let bytes = budget.current(Part::Memtable);
    if bytes <= bytes_max {
        return Ok(());
    }
    let what = format!("the log has more changes than fit into memory: {bytes} bytes, allowed are {bytes_max}");
    Err(Failure::Failed(format!("{what}; raise memtable_bytes")))
}

/// The port of a server that serves no client.
#[derive(Debug)]
struct Closed {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    /// Why readers are not served, if they should be.
    why: Option<String>,
}

impl Closed {
    fn open(config: &Config, why: Option<String>) -> Result<Self, StartError> {
        let stop = Arc::new(Notify::new());
        let budget = Arc::new(Budget::new(&config.limits));
        let port = io_thread::bind(config, &config.data, budget)?;
        let (stop_signal, id, for_status) = (Arc::clone(&stop), ServerId::new(config.server_id), why.clone());
        let thread = match port {
            Some(port) => {
                let thread = thread::Builder::new().name("zoolet-io".to_owned());
                let spawned = thread.spawn(move || serve(port, id, for_status, &stop_signal));
                Some(spawned.map_err(StartError::Thread)?)
            }
            None => None,
        };
        Ok(Self { stop, thread, why })
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // The next server opens the same port.
            let _ = thread.join();
        }
    }
}

fn serve(port: ClientPort, id: Option<ServerId>, why: Option<String>, stop: &Notify) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(1).build();
    let Ok(runtime) = runtime else { return };
    let outbox = Arc::new(OutputQueue::new());
    let answers = Arc::new(Answers { outbox: Arc::clone(&outbox), id, why });
    if let Err(error) = runtime.block_on(port.serve(answers, outbox, stop.notified())) {
        tracing::warn!("the client port failed: {error}");
    }
    runtime.shutdown_background();
}

/// Answers in place of the machine.
struct Answers {
    outbox: Arc<OutputQueue>,
    id: Option<ServerId>,
    why: Option<String>,
}

impl EventSink for Answers {
    fn submit(&self, events: &mut Vec<Event>) {
        let answer = |event| match event {
            Event::Connect { conn, .. } => Some(Output::Close { conn }),
            Event::Status { ticket } | Event::List { ticket, .. } => {
                Some(Output::Status { ticket, status: Box::new(self.status()) })
            }
            // From connections that were refused.
            _ => None,
        };
        self.outbox.push(&mut events.drain(..).filter_map(answer).collect());
    }
}

impl Answers {
    fn status(&self) -> Status {
        let mut status = Status {
            id: self.id,
            is_read_only: true,
            refusing_writes: Some("the disk is read-only"),
            ..Status::default()
        };
        status.alarms = status::alarms(&status);
        status.alarms.extend(self.why.as_ref().map(|why| {
            Alarm::of_this_server(
                AlarmKind::ReadersNotServed,
                format!("clients that ask to read only are not served: {why}"),
                "make the disk writable: the server then starts, and repairs what it can",
            )
        }));
        status
    }
}
