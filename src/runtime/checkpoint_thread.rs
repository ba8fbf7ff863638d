//! The checkpoint thread: makes frozen memtables durable in the base, and merges the base's files
//! in between.
//!
//! All other threads go on meanwhile.

use super::base_threads::BaseWork;
use super::current::CurrentBase;
use super::flash::Flash;
use super::links::Received;
use super::log_thread::{self, LogWork};
use super::{Inbox, Input, Mailbox, clock, data, lock};
use std::cell::Cell;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::{debug, error, info, warn};
use zoolet_machine::Event;
use zoolet_machine::seam::action::{Checkpoint, Generation};
use zoolet_machine::seam::event::{BaseFailure, Shortage};
use zoolet_machine::seam::log_rate_limit::LogRateLimit;
use zoolet_machine::state::Changes;
use zoolet_machine::status::{BaseTrouble, DATA_DIRECTORY_GONE, Lack};
use zoolet_store::Reserve;
use zoolet_store::base::{Base, BaseError, BaseReader, Patrol};
use zoolet_store::disk::Disk;

/// Interval between looks at a disk that is short of space.
const SPACE_PAUSE: Duration = Duration::from_secs(1);

/// Interval between checks whether the data directory is in place, milliseconds.
const PRESENCE_MS: u64 = 5_000;

/// Work of the checkpoint thread, in order.
pub(super) enum CheckpointWork {
    Write(Checkpoint),
    /// The log now names this received base: it replaces the current one.
    Install {
        base: u64,
    },
    /// A received base that is not wanted.
    #[cfg(feature = "ensemble")]
    Remove(Base),
    /// The log has used the reserve.
    LookForSpace,
    /// A memtable that the base holds now. It comes before the next checkpoint.
    Drop(Arc<Changes>),
}

/// State of the checkpoint thread, mostly shared with other threads.
pub(super) struct CheckpointThread<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) base: &'a CurrentBase,
    /// A base that a peer sent, until it is installed.
    pub(super) received: &'a Received,
    pub(super) reserve: &'a Reserve,
    pub(super) readers: [&'a Mailbox<BaseWork>; 2],
    pub(super) log: &'a Mailbox<LogWork>,
    pub(super) core: &'a Inbox,
    pub(super) scrubs: &'a Scrubs,
    pub(super) presence: &'a Presence,
    pub(super) flash: &'a Flash,
    pub(super) log_counts: &'a log_thread::Counts,
    pub(super) log_limit: Mutex<LogRateLimit>,
    /// A sync of the base failed, and the disk is read-only.
    pub(super) is_over: Cell<bool>,
}

/// Counts of scrubs, which read the whole base, and the trouble that the last ones found.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    sound: AtomicU64,
    failed: AtomicU64,
    /// A scrub found damage, and no later one found this base sound.
    is_damaged: AtomicBool,
    /// Consecutive scrubs that an I/O error ended.
    unread: AtomicU32,
}

/// Consecutive scrubs with an I/O error that raise an alarm.
///
/// One read may fail on a sound medium, for example after a reset of its bus.
const UNREAD_MAX: u32 = 2;

impl Scrubs {
    /// Returns the numbers of scrubs that found the base sound, and of other scrubs.
    pub(super) fn figures(&self) -> (u64, u64) {
        (self.sound.load(Relaxed), self.failed.load(Relaxed))
    }

    /// Returns the trouble of the present base that deserves an alarm.
    pub(super) fn trouble(&self) -> Option<BaseTrouble> {
        if self.is_damaged.load(Relaxed) {
            Some(BaseTrouble::Damaged)
        } else {
            (self.unread.load(Relaxed) >= UNREAD_MAX).then_some(BaseTrouble::Unreadable)
        }
    }

    /// Records the outcome of a scrub. Returns whether the next scrub should begin soon.
    fn note(&self, outcome: &Result<u64, BaseFailure>) -> bool {
        let count = if outcome.is_ok() { &self.sound } else { &self.failed };
        count.fetch_add(1, Relaxed);
        match outcome {
            Ok(_) => self.forget(),
            Err(BaseFailure::Damaged(_)) => {
                self.is_damaged.store(true, Relaxed);
                self.unread.store(0, Relaxed);
            }
            Err(BaseFailure::Io(_)) => return self.unread.fetch_add(1, Relaxed) + 1 < UNREAD_MAX,
        }
        false
    }

    /// Ends the trouble: the base is sound, or another one has replaced it.
    fn forget(&self) {
        self.is_damaged.store(false, Relaxed);
        self.unread.store(0, Relaxed);
    }
}

/// Whether the next start will find the data written now: see [`Disk::is_in_place`].
#[derive(Debug, Default)]
pub(super) struct Presence {
    is_gone: AtomicBool,
    look_at_ms: AtomicU64,
}

impl Presence {
    /// Returns whether the directory was gone at the last check.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.look_at_ms.load(Relaxed).saturating_sub(clock::mono_ms()))
    }

    /// Checks, if a check is due. After an error of the disk the answer stays as it was.
    fn look(&self, disk: &dyn Disk) {
        let now_ms = clock::mono_ms();
        if now_ms < self.look_at_ms.load(Relaxed) {
            return;
        }
        self.look_at_ms.store(now_ms + PRESENCE_MS, Relaxed);
        let Ok(is_in_place) = disk.is_in_place() else { return };
        if self.is_gone.swap(!is_in_place, Relaxed) == is_in_place {
            if is_in_place {
                info!("the data directory is back");
            } else {
                error!("{DATA_DIRECTORY_GONE}");
            }
        }
    }
}

impl CheckpointThread<'_> {
    /// Runs until the mailbox is closed.
    ///
    /// # Errors
    /// A sync failed, so the device's content is unknown and the node must stop. On a read-only
    /// disk the thread goes on.
    pub(super) fn run(&self, mailbox: &Mailbox<CheckpointWork>) -> Result<(), String> {
        let (mut batch, mut merging) = (Vec::new(), true);
        let mut patrol = Patrol::new(clock::now().mono_ms);
        while mailbox.take(
            &mut batch,
            Some(self.patience(merging, &patrol).min(self.flash.patience()).min(self.presence.patience())),
        ) {
            self.presence.look(self.disk);
            self.flash.look(self.log_counts.figures().log.entry_bytes);
            if batch.is_empty() && merging {
                merging = self.merge()?;
            } else if batch.is_empty() {
                merging = self.reserve.is_short();
                self.scrub(&mut patrol);
            }
            for work in batch.drain(..) {
                match work {
                    CheckpointWork::Write(checkpoint) => self.write(checkpoint)?,
                    CheckpointWork::Install { base } => {
                        self.install(base)?;
                        // So far the patrol has read the replaced base.
                        patrol = Patrol::new(clock::now().mono_ms);
                    }
                    #[cfg(feature = "ensemble")]
                    CheckpointWork::Remove(base) => base.retire(),
                    CheckpointWork::LookForSpace => {}
                    CheckpointWork::Drop(memtable) => drop(memtable),
                }
                merging = true;
            }
            self.recheck_space();
        }
        Ok(())
    }

    fn recheck_space(&self) {
        if self.reserve.recheck(&self.base.base()) {
            self.core.push(Input::Event(Event::Space { shortage: self.reserve.shortage() }));
            self.note_space();
        } else if self.reserve.is_short() {
            // Also logs a shortage that ended and returned within a minute of its last log line.
            self.note_space();
        }
    }

    fn patience(&self, merging: bool, patrol: &Patrol) -> Duration {
        if merging {
            Duration::ZERO
        } else if self.reserve.is_short() {
            SPACE_PAUSE
        } else {
            Duration::from_millis(patrol.next_at_ms().saturating_sub(clock::now().mono_ms).max(1))
        }
    }

    fn scrub(&self, patrol: &mut Patrol) {
        let now_ms = clock::now().mono_ms;
        let base = self.base.base();
        if let Some(shortage) = self.reserve.shortage()
            && !patrol.make_way(shortage, &base, now_ms)
        {
            return;
        }
        let Some(outcome) = patrol.step(&base, now_ms) else { return };
        let is_repeated = self.scrubs.note(&outcome);
        if is_repeated {
            patrol.repeat_soon(now_ms);
        }
        match outcome {
            Ok(records) => info!(records, "the scrub read the whole base: it is sound"),
            Err(BaseFailure::Damaged(what)) => {
                error!(what, "the scrub found the base damaged");
                self.core.push(Input::Event(Event::BaseDamaged { what }));
            }
            Err(BaseFailure::Io(error)) => error!(error, is_repeated, "the scrub could not read the base"),
        }
    }

    fn write(&self, checkpoint: Checkpoint) -> Result<(), String> {
        let (zxid, changes) = (checkpoint.meta.zxid, checkpoint.changes.len());
        let base = self.base.base();
        let written = self.reserve.checkpoint(&base, &checkpoint);
        // If the checkpoint used the reserve, the core must know before it admits writes that wait
        // for this checkpoint.
        self.recheck_space();
        match written {
            Ok(()) => {
                debug!(%zxid, changes, "checkpoint");
                let generation = self.serve();
                // In this order: the log's next report, after recycling, refers to this generation.
                self.core.push(Input::Event(Event::Checkpointed { generation }));
                self.log.push(LogWork::Recycle { checkpoint: zxid });
                self.received.forget_part();
            }
            Err(error) if self.must_end(&base) => return Err(error.to_string()),
            Err(error) => {
                // The core takes the changes back. As their only owner it need not copy them.
                drop(checkpoint);
                if !self.is_over.get()
                    && let Some(left_out) = self.admit("checkpoint")
                {
                    warn!(%zxid, changes, %error, left_out, "a checkpoint failed and will be retried");
                }
                self.have_the_disk_looked_at(&error);
                self.core.push(Input::Event(Event::CheckpointFailed { reason: error.to_string() }));
                self.note_damage(error);
            }
        }
        Ok(())
    }

    /// Does one step of a merge between two checkpoints; returns whether there may be more.
    fn merge(&self) -> Result<bool, String> {
        let base = self.base.base();
        if self.is_over.get() {
            return Ok(false);
        }
        match self.reserve.merge(&base) {
            Ok(true) => {
                // The same generation from other files. Merged files go when they have no more
                // readers.
                self.serve();
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) if self.must_end(&base) => Err(error.to_string()),
            Err(error) => {
                if !self.is_over.get()
                    && let Some(left_out) = self.admit("merge")
                {
                    warn!(%error, left_out, "a merge failed and will be retried");
                }
                self.have_the_disk_looked_at(&error);
                self.note_damage(error);
                Ok(false)
            }
        }
    }

    /// Returns whether the node must end, because a sync of the base failed.
    ///
    /// After a failed sync the thread writes nothing more to the base. A server that ends is
    /// restarted, and reads what the device really holds. On a disk that has become read-only, a
    /// restarted server would only wait. So this server goes on, and serves reads.
    fn must_end(&self, base: &Base) -> bool {
        if !base.sync_failed() || self.is_over.get() {
            return false;
        }
        self.is_over.set(data::is_read_only(self.disk));
        if self.is_over.get() {
            self.log.push(LogWork::Cease);
        }
        !self.is_over.get()
    }

    /// Makes the log thread check the disk after an I/O error.
    ///
    /// A disk that takes no writes should be known before the log needs one.
    fn have_the_disk_looked_at(&self, error: &BaseError) {
        if matches!(error, BaseError::Io(_)) && !self.is_over.get() {
            self.log.push(LogWork::Look);
        }
    }

    /// Reports damage of the base. A member gets a snapshot to replace it.
    fn note_damage(&self, error: BaseError) {
        if let BaseError::Damaged(what) = error {
            self.core.push(Input::Event(Event::BaseDamaged { what }));
        }
    }

    fn install(&self, id: u64) -> Result<(), String> {
        let received = self.received.take(id).ok_or_else(|| format!("base {id} was not received"))?;
        let zxid = received.meta().zxid;
        self.flash.meter().serve_base(id);
        let generation = self.tell_readers(self.base.replace(received));
        self.scrubs.forget();
        info!(%zxid, "installed a snapshot in place of this server's data");
        self.core.push(Input::Event(Event::SnapshotInstalled { generation }));
        self.received.forget_part();
        self.log.push(LogWork::Recycle { checkpoint: zxid });
        Ok(())
    }

    fn serve(&self) -> Generation {
        self.tell_readers(self.base.reader())
    }

    fn tell_readers(&self, (generation, reader): (Generation, BaseReader)) -> Generation {
        for mailbox in self.readers {
            mailbox.push(BaseWork::Serve(generation, reader.clone()));
        }
        generation
    }

    /// Returns whether a line may be logged, and how many like it were left out.
    fn admit(&self, matter: impl Hash) -> Option<u64> {
        lock(&self.log_limit).admit(matter, clock::mono_ms())
    }

    fn note_space(&self) {
        let lack = self.reserve.lack();
        if let Some(left_out) = self.admit(("space", lack.map(|lack| lack.of))) {
            match lack {
                Some(Lack { of: Shortage::Disk, free_bytes, missing_bytes }) => warn!(
                    free_bytes,
                    missing_bytes,
                    left_out,
                    "the disk is full: a leader or a standalone server refuses writes, except deletes, until \
                     missing_bytes more are free"
                ),
                Some(Lack { of: Shortage::Bound, missing_bytes, .. }) => warn!(
                    missing_bytes,
                    left_out,
                    "the data directory is as large as disk_bytes_max allows: a leader or a standalone server refuses \
                     writes, except deletes, until the directory shrinks by missing_bytes or disk_bytes_max grows by \
                     as much"
                ),
                Some(Lack { of: Shortage::Memory, missing_bytes, .. }) => warn!(
                    missing_bytes,
                    left_out,
                    "the tree is as large as its memory allows: a leader or a standalone server refuses writes, except \
                     deletes, until the used part of the base's file shrinks by missing_bytes or base_cache_bytes \
                     grows by missing_bytes / 512"
                ),
                None => info!("space is available again: this server no longer refuses writes"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged() -> Result<u64, BaseFailure> {
        Err(BaseFailure::Damaged("block 7 of base-1.redb".to_owned()))
    }

    fn unread() -> Result<u64, BaseFailure> {
        Err(BaseFailure::Io("Input/output error".to_owned()))
    }

    #[test]
    fn base_damage_is_shown_until_a_sound_scrub_or_another_base() {
        for is_replaced in [false, true] {
            let scrubs = Scrubs::default();
            assert_eq!(scrubs.trouble(), None);
            assert!(!scrubs.note(&damaged()), "a repeated scrub would find the same");
            assert_eq!(scrubs.trouble(), Some(BaseTrouble::Damaged));
            scrubs.note(&unread());
            assert_eq!(scrubs.trouble(), Some(BaseTrouble::Damaged), "this scrub did not find it sound");
            if is_replaced {
                scrubs.forget();
            } else {
                scrubs.note(&Ok(5));
            }
            assert_eq!(scrubs.trouble(), None);
            assert_eq!(scrubs.figures(), (u64::from(!is_replaced), 2), "the counters only grow");
        }
    }

    #[test]
    fn one_io_error_repeats_the_scrub_and_a_second_is_shown() {
        let scrubs = Scrubs::default();
        assert!(scrubs.note(&unread()));
        assert_eq!(scrubs.trouble(), None);
        assert!(!scrubs.note(&unread()), "the next scrub waits for its day");
        assert_eq!(scrubs.trouble(), Some(BaseTrouble::Unreadable));
        scrubs.note(&Ok(5));
        assert_eq!((scrubs.trouble(), scrubs.figures()), (None, (1, 2)));
        assert!(scrubs.note(&unread()), "the errors before a sound scrub do not count");
        assert_eq!(scrubs.trouble(), None);
        scrubs.forget();
        assert!(scrubs.note(&unread()), "neither do those of another base");
        assert!(!scrubs.note(&damaged()));
        assert_eq!(scrubs.trouble(), Some(BaseTrouble::Damaged));
    }

    #[test]
    fn repeated_scrub_begins_a_minute_after_the_failed_one() {
        let mut patrol = Patrol::new(0);
        patrol.repeat_soon(7_000_000);
        assert_eq!(patrol.next_at_ms(), 7_060_000);
    }
}
