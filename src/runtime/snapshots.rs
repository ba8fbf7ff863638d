//! Snapshots on their way between disks: where the bytes of one that is sent come from, and where those of one that comes in go.
//!
//! All of it is called on threads that may wait for a disk, never on the core's or the links'.

use super::base::BaseWork;
use super::threads::Shared;
use super::{Input, Latch, lock};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zoolet_engine::action::{CheckpointMeta, Generation};
use zoolet_engine::event::BaseFailure;
use zoolet_engine::peer::ReceivedSnapshot;
use zoolet_engine::store::SnapshotSink;
use zoolet_engine::store::base::{Base, BaseReader};
use zoolet_engine::store::disk::Disk;
use zoolet_engine::store::image::{ImageError, SnapshotSource};
use zoolet_engine::{Event, Limits};
use zoolet_transport::peer::{SnapshotBytes, SnapshotSize, SnapshotTaker};

/// How long a transfer waits for the thread that reads the base.
const READER_PATIENCE: Duration = Duration::from_secs(10);

/// A reader of one generation, on its way to a transfer.
pub(super) type LentReader = Latch<Result<BaseReader, BaseFailure>>;

/// The bytes of one generation.
pub(super) struct Outgoing {
    shared: Arc<Shared>,
    generation: Generation,
    chain: u128,
    source: Option<SnapshotSource>,
}

impl Outgoing {
    pub(super) fn new(shared: Arc<Shared>, generation: Generation, chain: u128) -> Self {
        Self { shared, generation, chain, source: None }
    }

    fn reader(&self) -> Result<BaseReader, BaseFailure> {
        let lent = LentReader::new();
        self.shared.base.push(BaseWork::Lend(self.generation, Arc::clone(&lent)));
        let never = || Err(BaseFailure::Io("nobody reads the base any more".to_owned()));
        lent.wait_until(Instant::now() + READER_PATIENCE).unwrap_or_else(never)
    }

    /// Damage is the machine's to know; the peer hears only that nothing more comes.
    fn note(&self, failure: BaseFailure) -> String {
        match failure {
            BaseFailure::Damaged(what) => {
                self.shared.inbox.push(Input::Event(Event::BaseDamaged { what: what.clone() }));
                what
            }
            BaseFailure::Io(what) => what,
        }
    }
}

impl SnapshotBytes for Outgoing {
    fn open(&mut self) -> Result<SnapshotSize, String> {
        let reader = self.reader().map_err(|failure| self.note(failure))?;
        let source = SnapshotSource::open(reader, self.chain).map_err(|error| self.note(error.into()))?;
        let bytes = source.bytes();
        self.source = Some(source);
        Ok(SnapshotSize { bytes })
    }

    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, String> {
        let source = self.source.as_ref().ok_or("it was never opened")?;
        source.read(offset, bytes_max).map_err(|error| self.note(error.into()))
    }
}

/// A base that came in whole, until the log names it or nobody wants it; and the part of one that broke off.
#[derive(Default)]
pub(super) struct Received {
    whole: Mutex<Option<Base>>,
    part: Mutex<Option<Part>>,
}

/// What came of a snapshot before its link went.
struct Part {
    meta: CheckpointMeta,
    base: u64,
    sink: SnapshotSink,
}

impl Received {
    /// The base of this number, if it came in.
    pub(super) fn take(&self, base: u64) -> Option<Base> {
        lock(&self.whole).take_if(|received| received.id() == base)
    }

    /// Nobody wants what came in. What came of a snapshot that broke off stays: the next transfer may be of the same.
    pub(super) fn drop_whole(&self) {
        if let Some(unwanted) = lock(&self.whole).take() {
            unwanted.retire();
        }
    }

    /// A part of a snapshot that is this one. Any other goes: two would take the disk of two.
    fn take_part(&self, meta: &CheckpointMeta) -> Option<(u64, SnapshotSink)> {
        let part = lock(&self.part).take().filter(|part| part.meta == *meta);
        part.map(|part| (part.base, part.sink))
    }
}

/// A snapshot that comes in.
pub(super) struct Incoming {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    limits: Limits,
    meta: CheckpointMeta,
    sink: Option<(u64, SnapshotSink)>,
}

impl Incoming {
    pub(super) fn new(shared: Arc<Shared>, disk: Arc<dyn Disk>, limits: Limits, meta: CheckpointMeta) -> Self {
        Self { shared, disk, limits, meta, sink: None }
    }

    /// A base that comes in has an id that no other on this disk has: one that was lost is still there, and so may be what a crash left of another.
    fn begin(&self) -> Result<(u64, SnapshotSink), ImageError> {
        let id = Base::list(&*self.disk)?.last().map_or(0, |id| id + 1);
        Ok((id, SnapshotSink::begin(Arc::clone(&self.disk), id, &self.limits)?))
    }
}

impl SnapshotTaker for Incoming {
    fn open(&mut self) -> Result<u64, String> {
        let (base, sink) = match self.shared.received.take_part(&self.meta) {
            Some(part) => part,
            None => self.begin().map_err(|error| error.to_string())?,
        };
        let received = sink.received();
        self.sink = Some((base, sink));
        Ok(received)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (_, sink) = self.sink.as_mut().ok_or("it was never opened")?;
        let written = sink.write(bytes);
        if written.is_err() {
            // What is damaged is not gone on with.
            self.sink = None;
        }
        written.map_err(|error| error.to_string())
    }

    fn finish(mut self: Box<Self>) -> Result<ReceivedSnapshot, String> {
        let (base, sink) = self.sink.take().ok_or("it was never opened")?;
        let received = sink.finish().map_err(|error| error.to_string())?;
        let state = received.state.ok_or("a snapshot of nothing")?;
        *lock(&self.shared.received.whole) = Some(received.base);
        Ok(ReceivedSnapshot { base, state })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some((base, sink)) = self.sink.take() {
            let part = Part { meta: self.meta.clone(), base, sink };
            *lock(&self.shared.received.part) = Some(part);
        }
    }
}
