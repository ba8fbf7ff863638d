//! The threads of the base.
//!
//! - The first reads records for the machine.
//! - The second completes answers for clients.
//! - The third writes checkpoints and merges.

use super::reply_queues::Place;
use super::thread::Thread;
use super::{Job, Process, Stopped, check_alive};
use crate::ensemble::host::Context;
use crate::ensemble::world::Happening;
use crate::ensemble::{Rank, SECOND, Sent};
use std::collections::{BTreeMap, VecDeque};
use zoolet_machine::Event;
use zoolet_machine::seam::action::{Checkpoint, Completion, Fetch, Generation};
use zoolet_machine::seam::event::{BaseFailure, Fetched, Shortage};
use zoolet_model::{ErrorCode, Zxid};
use zoolet_store::Reserve;
use zoolet_store::base::{Base, BaseError, BaseReader};

/// Interval between checks of a disk that is short of space.
const SPACE_PAUSE_US: u64 = SECOND;
/// Approximate syncs per checkpoint: its file, its name, the manifest and the manifest's name.
const CHECKPOINT_SYNCS: u64 = 4;

/// A piece of work of one of the threads.
#[derive(Debug)]
pub(in crate::ensemble) enum Work {
    Fetch(Fetch),
    Complete(Place, Box<Completion>),
    Checkpoint(Checkpoint),
    /// The outcome of the checkpoint at that zxid, after the time that its bytes took.
    Written(Zxid, Result<(), BaseError>),
    Merge,
    /// A merge, after the time that its bytes took.
    Merged,
    Look,
    /// All earlier fetches from generations below this one are done.
    Release(Generation),
    /// All earlier completions from generations below this one are done too.
    Forget(Generation),
}

/// The base and the work that waits for it.
pub(super) struct BaseThreads {
    pub(super) base: Base,
    reserve: Reserve,
    readers: BTreeMap<Generation, BaseReader>,
    /// Offset from the current base's generation numbers to the machine's.
    ///
    /// A received base numbers its generations from the start again.
    before: u64,
    fetching: Thread<Work>,
    completing: Thread<Work>,
    checkpoints: VecDeque<Checkpoint>,
    is_writing: bool,
    is_merging: bool,
}

impl BaseThreads {
    pub(super) fn new(base: Base, reserve: Reserve) -> Self {
        let reader = base.reader();
        Self {
            base,
            reserve,
            readers: BTreeMap::from([(reader.generation(), reader)]),
            before: 0,
            fetching: Thread::default(),
            completing: Thread::default(),
            checkpoints: VecDeque::new(),
            is_writing: false,
            is_merging: true,
        }
    }

    /// See [`Reserve::make_way`].
    pub(super) fn make_way(&self, stalled: &std::io::Error) -> Option<Shortage> {
        self.reserve.make_way(stalled)
    }

    pub(super) fn fetch(&mut self, cx: &mut Context<'_>, fetch: Fetch) {
        self.fetching.ask(Work::Fetch(fetch));
        self.read_next(cx);
    }

    pub(super) fn complete(&mut self, cx: &mut Context<'_>, place: Place, completion: Box<Completion>) {
        self.completing.ask(Work::Complete(place, completion));
        self.read_next(cx);
    }

    /// Releases the generations below `below`, after all work that was requested before.
    pub(super) fn release(&mut self, cx: &mut Context<'_>, below: Generation) {
        self.fetching.ask(Work::Release(below));
        self.read_next(cx);
    }

    /// Starts the next work of the two reading threads.
    fn read_next(&mut self, cx: &mut Context<'_>) {
        for thread in [&mut self.fetching, &mut self.completing] {
            if let Some(work) = thread.begin() {
                let is_of_disk = !matches!(work, Work::Release(_) | Work::Forget(_));
                let spent_us = if is_of_disk { cx.speed.read_us() } else { 0 };
                at(cx, cx.now_us + spent_us, work);
            }
        }
    }

    pub(super) fn checkpoint(&mut self, cx: &mut Context<'_>, checkpoint: Checkpoint) {
        self.checkpoints.push_back(checkpoint);
        self.write_next(cx);
    }

    /// Starts the next work of the writing thread.
    fn write_next(&mut self, cx: &mut Context<'_>) {
        if self.is_writing {
            return;
        }
        let (work, spent_us) = if let Some(checkpoint) = self.checkpoints.pop_front() {
            (Work::Checkpoint(checkpoint), (0..CHECKPOINT_SYNCS).map(|_| cx.speed.sync_us(cx.now_us)).sum())
        } else if self.is_merging {
            (Work::Merge, cx.speed.sync_us(cx.now_us))
        } else if self.reserve.is_short() {
            (Work::Look, SPACE_PAUSE_US)
        } else {
            return;
        };
        self.is_writing = true;
        at(cx, cx.now_us + spent_us, work);
    }

    pub(super) fn reader_of(&self, generation: Generation) -> Result<&BaseReader, BaseFailure> {
        self.readers.get(&generation).ok_or_else(|| BaseFailure::Io(format!("{generation:?} is not held any more")))
    }

    fn read(&self, fetch: &Fetch) -> Result<Fetched, BaseFailure> {
        self.reader_of(fetch.generation)?.fetch(&fetch.what)
    }

    fn serve(&mut self) -> Generation {
        let reader = self.base.reader();
        let generation = Generation(reader.generation().0 + self.before);
        self.readers.insert(generation, reader);
        generation
    }

    /// Replaces the current base.
    pub(super) fn replace(&mut self, base: Base) -> Generation {
        let old = std::mem::replace(&mut self.base, base);
        self.before += old.generation().0 + 1;
        old.retire();
        self.checkpoints.clear();
        self.is_merging = true;
        self.serve()
    }
}

fn at(cx: &mut Context<'_>, at_us: u64, work: Work) {
    let job = Job::Base(Box::new(work));
    let happening = Happening::Job { server: cx.id, process: cx.process, job };
    cx.around.agenda.at(at_us, Rank::News, happening);
}

impl Process {
    pub(super) fn on_base(&mut self, cx: &mut Context<'_>, work: Work) -> Result<(), Stopped> {
        match work {
            Work::Fetch(_) | Work::Release(_) => self.base.fetching.end(),
            Work::Complete(..) | Work::Forget(_) => self.base.completing.end(),
            Work::Checkpoint(_) | Work::Written(..) | Work::Merge | Work::Merged | Work::Look => {}
        }
        if let Work::Release(below) = work {
            self.base.completing.ask(Work::Forget(below));
        }
        self.base.read_next(cx);
        match work {
            Work::Release(_) => Ok(()),
            Work::Fetch(fetch) => {
                let result = self.base.read(&fetch);
                self.tell(Event::Fetched { id: fetch.id, result });
                Ok(())
            }
            Work::Complete(place, completion) => {
                self.on_completed(cx, place, &completion);
                Ok(())
            }
            Work::Checkpoint(checkpoint) => self.on_checkpoint(cx, &checkpoint),
            Work::Written(zxid, written) => self.on_written(cx, zxid, written),
            Work::Merge => self.on_merge(cx),
            Work::Merged => self.written(cx),
            Work::Forget(below) => {
                self.base.readers = self.base.readers.split_off(&below);
                Ok(())
            }
            Work::Look => {
                self.base.is_merging = self.base.reserve.is_short();
                self.written(cx)
            }
        }
    }

    fn on_completed(&mut self, cx: &mut Context<'_>, place: Place, completion: &Completion) {
        let (result, failure) = match self.base.reader_of(completion.generation) {
            Ok(reader) => completion.run(reader),
            Err(failure) => (Err(ErrorCode::SystemError), Some(failure)),
        };
        self.replies.fill(place, Sent::Reply { xid: completion.xid, zxid: completion.zxid, result });
        self.deliver(cx, place.conn);
        self.tell(Event::Completed { bytes: completion.bytes });
        if let Some(BaseFailure::Damaged(what)) = failure {
            self.tell(Event::BaseDamaged { what });
        }
    }

    fn on_checkpoint(&mut self, cx: &mut Context<'_>, checkpoint: &Checkpoint) -> Result<(), Stopped> {
        let zxid = checkpoint.meta.zxid;
        let (written, write_us) = cx.timed(|_| self.base.reserve.checkpoint(&self.base.base, checkpoint));
        self.base.is_merging = true;
        check_alive(cx)?;
        if write_us > 0 {
            at(cx, cx.now_us + write_us, Work::Written(zxid, written));
            return Ok(());
        }
        self.on_written(cx, zxid, written)
    }

    fn on_written(&mut self, cx: &mut Context<'_>, zxid: Zxid, written: Result<(), BaseError>) -> Result<(), Stopped> {
        match written {
            Ok(()) => {
                cx.around.witness.checkpointed(cx.now_us, cx.id, zxid);
                self.recheck_space(cx)?;
                let generation = self.base.serve();
                self.log.log.recycle(zxid);
                self.tell(Event::Checkpointed { generation });
                self.recycled(cx, zxid);
            }
            Err(error) if self.base.base.sync_failed() => return Err(Stopped::because(error)),
            Err(error) => {
                self.recheck_space(cx)?;
                self.tell(Event::CheckpointFailed { reason: error.to_string() });
                self.note_damage(&error);
            }
        }
        self.written(cx)
    }

    /// Reports that the log may reuse segments.
    pub(super) fn recycled(&mut self, cx: &mut Context<'_>, checkpoint: Zxid) {
        cx.around.witness.recycled(cx.now_us, cx.id, checkpoint);
        self.tell_persisted();
    }

    fn on_merge(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        let (merged, write_us) = cx.timed(|_| self.base.reserve.merge(&self.base.base));
        check_alive(cx)?;
        match merged {
            // The generation stays the same, in other files. The merged files are deleted when
            // their last reader is gone.
            Ok(true) => drop(self.base.serve()),
            Ok(false) => self.base.is_merging = false,
            Err(error) if self.base.base.sync_failed() => return Err(Stopped::because(error)),
            Err(error) => {
                self.base.is_merging = false;
                self.note_damage(&error);
            }
        }
        if write_us > 0 {
            at(cx, cx.now_us + write_us, Work::Merged);
            return Ok(());
        }
        self.written(cx)
    }

    /// Tells the machine about damage that only the base's threads see.
    pub(super) fn note_damage(&mut self, error: &BaseError) {
        match error {
            BaseError::Damaged(what) => self.tell(Event::BaseDamaged { what: what.clone() }),
            BaseError::NoSpace | BaseError::TooLarge(_) | BaseError::Io(_) => {}
        }
    }

    /// Frees the writing thread for its next work.
    fn written(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        self.recheck_space(cx)?;
        self.base.is_writing = false;
        self.base.write_next(cx);
        Ok(())
    }

    fn recheck_space(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        let has_changed = self.base.reserve.recheck(&self.base.base);
        check_alive(cx)?;
        if has_changed {
            let shortage = self.base.reserve.shortage();
            self.tell(Event::Space { shortage });
        }
        Ok(())
    }
}
