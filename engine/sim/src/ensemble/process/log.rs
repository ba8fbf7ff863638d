//! The log thread: one batch in flight, everything else waits for the next batch.

use super::{Job, Process, Stopped, check_alive};
use crate::ensemble::MS;
use crate::ensemble::host::Context;
use crate::ensemble::world::Happening;
use zoolet_machine::Event;
use zoolet_machine::seam::action::Append;
use zoolet_store::log::{AppendError, Log};

/// Interval at which a log that cannot write retries.
const RETRY_US: u64 = 250 * MS;

/// A batch in flight, with the disk's answer if the disk was asked at the start.
///
/// Otherwise the disk is asked when the batch's time is over. So a crash may find an unreported
/// batch already on the disk, or not yet written.
#[derive(Debug)]
pub(in crate::ensemble) struct Batch(Option<Result<(), AppendError>>);

/// The log and the appends that wait for it.
pub(super) struct LogThread {
    pub(super) log: Log,
    waiting: Vec<Append>,
    /// The number of `waiting` appends in flight.
    in_flight: usize,
    is_stalled: bool,
    is_retrying: bool,
}

impl LogThread {
    pub(super) fn new(log: Log) -> Self {
        Self { log, waiting: Vec::new(), in_flight: 0, is_stalled: false, is_retrying: false }
    }

    pub(super) fn push(&mut self, append: Append) {
        self.waiting.push(append);
    }

    /// Starts a batch of all waiting appends, if none is in flight.
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        if self.in_flight > 0 || self.waiting.is_empty() || self.is_retrying {
            return Ok(());
        }
        self.in_flight = self.waiting.len();
        let (outcome, write_us) = if cx.random.one_in(2) {
            let (outcome, write_us) = cx.timed(|cx| self.write(cx));
            (Some(outcome?), write_us)
        } else {
            (None, 0)
        };
        let spent_us = cx.speed.sync_us(cx.now_us) + write_us;
        self.later(cx, spent_us, Job::Log(Batch(outcome)));
        Ok(())
    }

    pub(super) fn retry(&mut self, _cx: &mut Context<'_>) {
        self.is_retrying = false;
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<Result<(), AppendError>, Stopped> {
        let outcome = self.log.append(&self.waiting[..self.in_flight]).map(drop);
        check_alive(cx)?;
        cx.around.witness.durable(cx.now_us, cx.id, self.log.appended());
        Ok(outcome)
    }

    fn later(&self, cx: &mut Context<'_>, spent_us: u64, job: Job) {
        let happening = Happening::Job { server: cx.id, process: cx.process, job };
        cx.around.agenda.after(spent_us, happening);
    }

    /// Prepares the next segment while no append waits.
    fn prepare_ahead(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        while self.waiting.is_empty() {
            match self.log.prepare_ahead() {
                Ok(true) => {}
                // An append that needs the segment will report the failure.
                Ok(false) | Err(AppendError::Stalled(_)) => break,
                Err(fatal) => return Err(Stopped::because(fatal)),
            }
        }
        check_alive(cx)
    }
}

impl Process {
    pub(super) fn on_log(&mut self, cx: &mut Context<'_>, Batch(outcome): Batch) -> Result<(), Stopped> {
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => {
                let (outcome, write_us) = cx.timed(|cx| self.log.write(cx));
                let outcome = outcome?;
                if write_us > 0 {
                    self.log.later(cx, write_us, Job::Log(Batch(Some(outcome))));
                    return Ok(());
                }
                outcome
            }
        };
        match outcome {
            Ok(()) => {
                self.log.waiting.drain(..std::mem::take(&mut self.log.in_flight));
                if std::mem::take(&mut self.log.is_stalled) {
                    self.tell(Event::LogResumed);
                }
                self.tell_persisted();
                self.log.prepare_ahead(cx)
            }
            Err(AppendError::Stalled(error)) => {
                let shortage = self.base.make_way(&error);
                self.log.in_flight = 0;
                let appended = self.log.log.appended();
                if self.log.waiting.first().is_some_and(|append| append.seq <= appended) {
                    // A full ring has room again only after these entries are applied and in a
                    // checkpoint. So the machine must learn that they are durable.
                    self.log.waiting.retain(|append| append.seq > appended);
                    self.tell_persisted();
                }
                self.log.is_retrying = true;
                self.log.later(cx, RETRY_US, Job::RetryLog);
                if shortage.is_some() {
                    self.tell(Event::Space { shortage });
                    return Ok(());
                }
                if !std::mem::replace(&mut self.log.is_stalled, true) {
                    self.tell(Event::LogStalled { is_read_only: false });
                }
                Ok(())
            }
            Err(fatal) => Err(Stopped::because(fatal)),
        }
    }

    pub(super) fn tell_persisted(&mut self) {
        let log = &self.log.log;
        let (seq, log_bytes_used, checkpoint) = (log.appended(), log.used_bytes(), log.checkpoint());
        let floor = log.floor();
        self.tell(Event::Persisted { seq, log_bytes_used, checkpoint });
        if floor > self.floor {
            self.floor = floor;
            self.tell(Event::LogFloor { floor });
        }
    }
}
