//! The log thread: makes all waiting appends durable with one fdatasync.

use super::catch_up::CatchUp;
use super::checkpoint_thread::CheckpointWork;
use super::figures::{AtDisk, Figures, Histogram};
use super::threads::Shared;
use super::turns::{Driver, LITTLE};
use super::{Input, clock, data, lock};
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tracing::{info, warn};
use zoolet_machine::Event;
use zoolet_machine::seam::action::{Append, ReadLog};
use zoolet_machine::seam::log_rate_limit::LogRateLimit;
use zoolet_model::Zxid;
use zoolet_store::log::{AppendError, Counters, Log};

/// Interval between attempts of a log that cannot write.
const RETRY: Duration = Duration::from_millis(250);

const SYNC_FAILED: &str = "a sync of the log failed: this server writes nothing more until a restart";
const BASE_SYNC_FAILED: &str = "a sync of the base failed: this server writes nothing more until a restart";

/// Work of the log thread.
pub(super) enum LogWork {
    Append(Append),
    /// Entries up to here are durable in the base.
    Recycle {
        checkpoint: Zxid,
    },
    /// Peers need the entries above; `None`: no peer needs any.
    Hold {
        above: Option<Zxid>,
    },
    /// A write of the base failed, so the disk may take no writes.
    Look,
    /// A sync of the base failed, because the disk became read-only.
    Cease,
    /// A peer lacks these entries. The log locates them, and the catch-up thread reads them.
    Read(ReadLog),
}

/// Counters of the log thread.
#[derive(Debug, Default)]
pub(super) struct Counts {
    fdatasync: Histogram,
    log: Mutex<Counters>,
    /// Wait for the disk, also outside appends: an append may wait behind the preparation of a
    /// segment.
    at_disk: AtDisk,
}

impl Counts {
    pub(super) fn figures(&self) -> Figures {
        let (fdatasync, at_disk) = (self.fdatasync.percentiles(), self.at_disk.age());
        Figures { fdatasync, at_disk, log: *lock(&self.log), ..Figures::default() }
    }
}

/// Runs until its mailbox is closed and all work in it is durable.
///
/// # Errors
/// The content of the disk is unknown, so the node must stop.
pub(super) fn run(shared: &Shared, log: Log) -> Result<(), String> {
    let (mailbox, counts) = (&shared.log, &shared.log_counts);
    let floor = log.floor();
    let mut thread = LogThread {
        log,
        shared,
        counts,
        waiting: Vec::new(),
        stalled: None,
        is_over: false,
        log_limit: LogRateLimit::default(),
        preparing: true,
        reads: Vec::new(),
        floor,
    };
    let mut batch = Vec::new();
    loop {
        let open = mailbox.take(&mut batch, thread.patience());
        counts.at_disk.begin();
        let recycled = thread.sort(&mut batch);
        let gone_on = thread.go_on();
        counts.at_disk.end();
        gone_on.map_err(|error| error.to_string())?;
        thread.pass_reads_on();
        if recycled {
            // With more free segments the machine may start a checkpoint.
            thread.tell_persisted(false);
        }
        if !open {
            return Ok(());
        }
    }
}

struct LogThread<'a> {
    log: Log,
    shared: &'a Shared,
    counts: &'a Counts,
    /// Appends that are not durable yet.
    ///
    /// They exceed one batch only while the log is stalled. A stalled log may have none, if the
    /// base met the disk's problem.
    waiting: Vec<Append>,
    /// While the log cannot write: whether the machine was told that the disk is read-only.
    stalled: Option<bool>,
    /// A sync of the log or of the base failed, because the disk became read-only.
    ///
    /// The content of the disk is unknown, so nothing more is appended until a restart has read it.
    is_over: bool,
    log_limit: LogRateLimit,
    /// Whether the next segment may need preparation.
    preparing: bool,
    /// Reads that must wait for the appends before them.
    reads: Vec<ReadLog>,
    /// Oldest readable position that the core knows: entries above it can be read.
    floor: Zxid,
}

impl LogThread<'_> {
    fn patience(&self) -> Option<Duration> {
        if self.is_over {
            None
        } else if self.stalled.is_some() {
            Some(RETRY)
        } else if self.preparing {
            Some(Duration::ZERO)
        } else {
            None
        }
    }

    fn pass_reads_on(&mut self) {
        for read in self.reads.drain(..) {
            self.shared.catch_up.push(CatchUp { reader: self.log.reader(), read });
        }
    }

    /// Sorts the batch. Returns whether a checkpoint freed segments.
    fn sort(&mut self, batch: &mut Vec<LogWork>) -> bool {
        let mut recycled = false;
        for work in batch.drain(..) {
            match work {
                LogWork::Append(append) => self.waiting.push(append),
                LogWork::Recycle { checkpoint } => {
                    self.log.recycle(checkpoint);
                    (recycled, self.preparing) = (true, true);
                }
                LogWork::Hold { above } => self.log.hold(above),
                LogWork::Look if !self.is_over => self.look(),
                LogWork::Look => {}
                LogWork::Cease => self.cease(BASE_SYNC_FAILED, &io::ErrorKind::ReadOnlyFilesystem.into()),
                // The requested entries may be in this same batch.
                LogWork::Read(read) => self.reads.push(read),
            }
        }
        recycled
    }

    fn go_on(&mut self) -> Result<(), AppendError> {
        if self.is_over {
            Ok(())
        } else if !self.waiting.is_empty() {
            self.append()
        } else if self.stalled.is_some() {
            self.look();
            Ok(())
        } else {
            self.prepare_ahead()
        }
    }

    /// Checks whether the disk takes writes while the log has none to make.
    fn look(&mut self) {
        if data::is_read_only(&*self.shared.disk) {
            self.note_stall(&io::ErrorKind::ReadOnlyFilesystem.into(), true, "the disk refuses writes");
        } else if self.waiting.is_empty() {
            self.note_resumed();
        }
    }

    /// Stops all writing until a restart.
    fn cease(&mut self, why: &str, error: &io::Error) {
        self.is_over = true;
        self.note_stall(error, true, why);
    }

    fn append(&mut self) -> Result<(), AppendError> {
        let (began, before) = (Instant::now(), self.log.appended());
        match self.log.append(&self.waiting) {
            Ok(_) => {
                self.counts.fdatasync.record(began.elapsed());
                *lock(&self.counts.log) = self.log.counters();
                let records: usize = self.waiting.drain(..).map(|append| append.records.len()).sum();
                self.preparing = true;
                self.note_resumed();
                self.tell_persisted(records <= LITTLE);
                Ok(())
            }
            Err(AppendError::Stalled(error)) => {
                let appended = self.log.appended();
                if appended > before {
                    // A full ring has room again only when these appends are applied and in a
                    // checkpoint. So the machine must know them.
                    self.waiting.retain(|append| append.seq > appended);
                    self.tell_persisted(false);
                }
                if let Some(shortage) = self.shared.reserve.make_way(&error) {
                    // From this thread, because the checkpoint thread may be busy for long, and
                    // writes admitted meanwhile would use the space.
                    self.shared.inbox.push(Input::Event(Event::Space { shortage: Some(shortage) }));
                    self.shared.checkpoint.push(CheckpointWork::LookForSpace);
                    // The next turn tries again without a pause.
                    self.preparing = true;
                    return Ok(());
                }
                let is_first = self.stalled.is_none();
                self.note_stall(&error, data::is_refusal(&error), "cannot write the log; retrying");
                if is_first {
                    // If the disk is full and no reserve was left, no shortage is reported yet. The
                    // alarm must name the full disk.
                    self.shared.checkpoint.push(CheckpointWork::LookForSpace);
                }
                Ok(())
            }
            Err(AppendError::Fatal(error)) => self.cease_or_end(error),
        }
    }

    /// Stops writing if the disk is read-only, otherwise ends the node.
    ///
    /// A server that ends is restarted, and reads what the device really holds. On a disk that has
    /// become read-only, a restarted server would only wait. So this server goes on, and serves
    /// reads.
    ///
    /// A device may fail first, and its file system notice only then. So the disk is probed after
    /// any error.
    fn cease_or_end(&mut self, error: io::Error) -> Result<(), AppendError> {
        let is_of_the_disk = error.kind() != io::ErrorKind::InvalidInput;
        if data::is_refusal(&error) || (is_of_the_disk && data::is_read_only(&*self.shared.disk)) {
            self.cease(SYNC_FAILED, &error);
            return Ok(());
        }
        Err(AppendError::Fatal(error))
    }

    /// Reports that the log cannot write.
    ///
    /// The machine is told at the beginning and when the reason changes, the operator repeatedly.
    fn note_stall(&mut self, error: &io::Error, is_read_only: bool, what: &str) {
        if let Some(left_out) = self.log_limit.admit(what, clock::mono_ms()) {
            warn!(%error, left_out, "{what}");
        }
        if self.stalled.replace(is_read_only) != Some(is_read_only) {
            self.shared.inbox.push(Input::Event(Event::LogStalled { is_read_only }));
        }
    }

    fn note_resumed(&mut self) {
        if self.stalled.take().is_some() {
            if self.log_limit.admit("resumed", clock::mono_ms()).is_some() {
                info!("the log writes again");
            }
            self.shared.inbox.push(Input::Event(Event::LogResumed));
        }
    }

    /// Does one step of preparing the next segment, while no append waits.
    fn prepare_ahead(&mut self) -> Result<(), AppendError> {
        if !self.preparing {
            return Ok(());
        }
        self.preparing = match self.log.prepare_ahead() {
            Ok(more) => more,
            // The append that needs the segment will report it.
            Err(AppendError::Stalled(_)) => false,
            Err(AppendError::Fatal(error)) => {
                self.cease_or_end(error)?;
                false
            }
        };
        *lock(&self.counts.log) = self.log.counters();
        Ok(())
    }

    fn tell_persisted(&mut self, is_little: bool) {
        let (seq, log_bytes_used) = (self.log.appended(), self.log.used_bytes());
        let checkpoint = self.log.checkpoint();
        let persisted = Event::Persisted { seq, log_bytes_used, checkpoint };
        self.shared.bring([Input::Event(persisted)].into_iter(), is_little, Driver::Persister);
        let floor = self.log.floor();
        if floor > self.floor {
            self.floor = floor;
            self.shared.inbox.push(Input::Event(Event::LogFloor { floor }));
        }
    }
}
