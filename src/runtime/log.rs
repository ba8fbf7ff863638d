//! The log thread: all that waits becomes durable with one fdatasync.

use super::catch_up::CatchUp;
use super::checkpoint::CheckpointWork;
use super::figures::{AtDisk, Figures, Histogram};
use super::seat::{Driver, LITTLE};
use super::threads::Shared;
use super::{Input, clock, data, lock};
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tracing::{info, warn};
use zoolet_engine::Event;
use zoolet_engine::action::{Append, ReadLog};
use zoolet_engine::notices::Notices;
use zoolet_engine::store::log::{AppendError, Counters, Log};
use zoolet_model::Zxid;

/// How often a log that cannot write tries again.
const RETRY: Duration = Duration::from_millis(250);

const SYNC_FAILED: &str = "a sync of the log failed: nothing is written any more before a restart";
const BASE_SYNC_FAILED: &str = "a sync of the base failed: nothing is written any more before a restart";

/// What the log thread is told.
pub(super) enum LogWork {
    Append(Append),
    /// Entries up to here are durable in the base.
    Recycle {
        checkpoint: Zxid,
    },
    /// Entries above it are wanted by peers.
    Hold {
        above: Option<Zxid>,
    },
    /// A write of the base failed: the disk may take nothing.
    Look,
    /// A sync of the base failed, because the disk became read-only.
    Cease,
    /// A peer lacks these. The log says where they are; reading them is another thread's work.
    Read(ReadLog),
}

/// What the log thread tells about itself.
#[derive(Debug, Default)]
pub(super) struct Counts {
    fdatasync: Histogram,
    log: Mutex<Counters>,
    /// Not of appends alone: one may wait behind the preparation of a segment.
    at_disk: AtDisk,
}

impl Counts {
    pub(super) fn figures(&self) -> Figures {
        let (fdatasync, at_disk_ms) = (self.fdatasync.percentiles(), self.at_disk.age_ms());
        Figures { fdatasync, at_disk_ms, log: *lock(&self.log), ..Figures::default() }
    }
}

/// Runs until its mailbox is closed and what was in it is durable.
///
/// # Errors
/// When nobody knows any more what the disk holds: the node must stop.
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
        notices: Notices::default(),
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
            // It may start a checkpoint.
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
    /// Appends that are not durable; more than those of one batch only while stalled. There may be none then: the base has met the disk.
    waiting: Vec<Append>,
    /// What the machine was told, while the log cannot write: whether the disk is read-only.
    stalled: Option<bool>,
    /// A sync failed, of the log or of the base, because the disk became read-only. What it left behind nobody knows, so nothing more is appended until a restart has looked.
    is_over: bool,
    notices: Notices,
    /// Whether the next segment may need work.
    preparing: bool,
    /// Questions for after what was appended before them.
    reads: Vec<ReadLog>,
    /// Entries above it can be read, as the core knows.
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

    /// Says whether a checkpoint made room.
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
                // Entries that are asked for may be in this very batch.
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

    /// Whether the disk takes anything, while the log has nothing for it.
    fn look(&mut self) {
        if data::is_read_only(&*self.shared.disk) {
            self.note_stall(&io::ErrorKind::ReadOnlyFilesystem.into(), true, "the disk takes no writes");
        } else if self.waiting.is_empty() {
            self.note_resumed();
        }
    }

    /// Nothing more is written.
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
                    // A full ring has room again only when this is applied and in a checkpoint, and for that it has to be known.
                    self.waiting.retain(|append| append.seq > appended);
                    self.tell_persisted(false);
                }
                if let Some(shortage) = self.shared.reserve.make_way(&error) {
                    // Here: the checkpoint thread may be busy for long, and what is admitted meanwhile would take the space.
                    self.shared.inbox.push(Input::Event(Event::Space { shortage: Some(shortage) }));
                    self.shared.checkpoint.push(CheckpointWork::LookForSpace);
                    // So that the next turn tries again without a pause.
                    self.preparing = true;
                    return Ok(());
                }
                self.note_stall(&error, data::is_refusal(&error), "the log cannot write and keeps trying");
                Ok(())
            }
            Err(AppendError::Fatal(error)) => self.cease_or_end(error),
        }
    }

    /// A server that ends is started again and reads from the device what there is; on a disk that has become read-only it would wait there and serve nobody, so
    /// it goes on reading. A device may fail first and its file system notice then: so the disk is asked, whatever the error was.
    fn cease_or_end(&mut self, error: io::Error) -> Result<(), AppendError> {
        let is_of_the_disk = error.kind() != io::ErrorKind::InvalidInput;
        if data::is_refusal(&error) || (is_of_the_disk && data::is_read_only(&*self.shared.disk)) {
            self.cease(SYNC_FAILED, &error);
            return Ok(());
        }
        Err(AppendError::Fatal(error))
    }

    /// The machine is told when it begins, and when the reason is another one; the operator again while it lasts.
    fn note_stall(&mut self, error: &io::Error, is_read_only: bool, what: &str) {
        if let Some(left_out) = self.notices.admit(what, clock::mono_ms()) {
            warn!(%error, left_out, "{what}");
        }
        if self.stalled.replace(is_read_only) != Some(is_read_only) {
            self.shared.inbox.push(Input::Event(Event::LogStalled { is_read_only }));
        }
    }

    fn note_resumed(&mut self) {
        if self.stalled.take().is_some() {
            if self.notices.admit("resumed", clock::mono_ms()).is_some() {
                info!("the log writes again");
            }
            self.shared.inbox.push(Input::Event(Event::LogResumed));
        }
    }

    /// One step towards the next segment, while nobody waits.
    fn prepare_ahead(&mut self) -> Result<(), AppendError> {
        if !self.preparing {
            return Ok(());
        }
        self.preparing = match self.log.prepare_ahead() {
            Ok(more) => more,
            // An append that needs it will say so.
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
