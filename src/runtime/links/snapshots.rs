//! Snapshots in transfer: the source of bytes to send, and the destination of received bytes.
//!
//! Everything that touches a disk runs on threads that may wait for it, never on the core's or the
//! links' thread. A cancelled transfer may still be in the middle of a write. Its result is
//! removed, and never replaces the result of another transfer.

use crate::runtime::threads::Shared;
use crate::runtime::{Input, Latch, lock};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use zoolet_machine::seam::action::CheckpointMeta;
use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::seam::peer::{ReceivedSnapshot, TransferId};
use zoolet_machine::{Event, Limits};
use zoolet_model::ServerId;
use zoolet_store::SnapshotSink;
use zoolet_store::SnapshotSource;
use zoolet_store::base::{Base, BaseReader};
use zoolet_store::disk::Disk;
use zoolet_store::image::ImageError;
use zoolet_transport::peer::{SnapshotBytes, SnapshotSize, SnapshotTaker};

/// Maximum wait of a transfer for the thread that reads the base.
const READER_PATIENCE: Duration = Duration::from_secs(10);

/// Error of a transfer whose node has ended.
const ENDED: &str = "the node has ended";

/// A reader of one generation, on its way to a transfer.
///
/// It is requested when the transfer is decided on, so that the generation stays.
pub(in crate::runtime) type LentReader = Latch<Result<BaseReader, BaseFailure>>;

/// The peer, and the sender's number of the transfer.
pub(super) type Transfer = (ServerId, TransferId);

/// An outgoing snapshot: the bytes of one generation.
pub(super) struct Outgoing {
    shared: Weak<Shared>,
    lent: Arc<LentReader>,
    chain: u128,
    source: Option<SnapshotSource>,
}

impl Outgoing {
    pub(super) fn new(shared: Weak<Shared>, lent: Arc<LentReader>, chain: u128) -> Self {
        Self { shared, lent, chain, source: None }
    }

    fn reader(&self) -> Result<BaseReader, BaseFailure> {
        let never = || Err(BaseFailure::Io("the reader of the base did not answer in time".to_owned()));
        self.lent.wait_until(Instant::now() + READER_PATIENCE).unwrap_or_else(never)
    }

    /// Returns the error's text, and reports damage to the machine.
    ///
    /// The peer only learns that no more bytes come.
    fn note(&self, failure: BaseFailure) -> String {
        match failure {
            BaseFailure::Damaged(what) => {
                if let Some(shared) = self.shared.upgrade() {
                    shared.inbox.push(Input::Event(Event::BaseDamaged { what: what.clone() }));
                }
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
        let source = self.source.as_ref().ok_or("the snapshot was not opened")?;
        source.read(offset, bytes_max).map_err(|error| self.note(error.into()))
    }
}

/// Received snapshots: a whole base, and a part of a snapshot that broke off.
///
/// The base stays here until the log names it or its transfer is cancelled.
#[derive(Default)]
pub(in crate::runtime) struct Received {
    held: Mutex<Held>,
    /// Held while a base begins, so that no two choose one id.
    beginning: Mutex<()>,
}

#[derive(Default)]
struct Held {
    /// The transfer that is wanted.
    wanted: Option<Transfer>,
    whole: Option<(Transfer, Base)>,
    part: Option<Part>,
}

/// The received part of a snapshot whose link broke.
struct Part {
    meta: CheckpointMeta,
    base: u64,
    sink: SnapshotSink,
}

impl Received {
    /// Makes this transfer the only one that is wanted.
    pub(super) fn want(&self, transfer: Transfer) {
        lock(&self.held).wanted = Some(transfer);
    }

    /// Cancels a transfer, and returns its base for removal if it was whole.
    ///
    /// A part that broke off stays, because the next transfer may be of the same snapshot.
    #[must_use]
    pub(super) fn give_up(&self, transfer: Transfer) -> Option<Base> {
        let mut held = lock(&self.held);
        held.wanted = held.wanted.filter(|wanted| *wanted != transfer);
        held.whole.take_if(|(whole, _)| *whole == transfer).map(|(_, base)| base)
    }

    /// Returns the base with this id, if it was received.
    pub(in crate::runtime) fn take(&self, base: u64) -> Option<Base> {
        lock(&self.held).whole.take_if(|(_, whole)| whole.id() == base).map(|(_, base)| base)
    }

    /// Drops the part that broke off, since the history goes on without it.
    pub(in crate::runtime) fn forget_part(&self) {
        let part = lock(&self.held).part.take();
        drop(part);
    }

    /// Returns the part of this snapshot, and drops any other part.
    ///
    /// Two parts would take the disk space of two snapshots.
    fn take_part(&self, meta: &CheckpointMeta) -> Option<(u64, SnapshotSink)> {
        let part = lock(&self.held).part.take();
        part.filter(|part| part.meta == *meta).map(|part| (part.base, part.sink))
    }

    /// Keeps a part, unless another transfer has begun since.
    fn keep_part(&self, transfer: Transfer, part: Part) {
        let mut held = lock(&self.held);
        let is_last = held.wanted.is_none_or(|wanted| wanted == transfer) && held.part.is_none();
        let unwanted = if is_last { held.part.replace(part) } else { Some(part) };
        drop(held);
        drop(unwanted);
    }

    /// Keeps a whole base if its transfer is wanted.
    ///
    /// Returns whether the base is kept, and an unwanted base for removal.
    fn keep_whole(&self, transfer: Transfer, base: Base) -> (bool, Option<Base>) {
        let mut held = lock(&self.held);
        if held.wanted != Some(transfer) {
            return (false, Some(base));
        }
        (true, held.whole.replace((transfer, base)).map(|(_, before)| before))
    }
}

/// An incoming snapshot.
pub(super) struct Incoming {
    shared: Weak<Shared>,
    disk: Arc<dyn Disk>,
    limits: Limits,
    transfer: Transfer,
    meta: CheckpointMeta,
    sink: Option<(u64, SnapshotSink)>,
}

impl Incoming {
    pub(super) fn new(
        shared: Weak<Shared>,
        disk: Arc<dyn Disk>,
        limits: Limits,
        transfer: Transfer,
        meta: CheckpointMeta,
    ) -> Self {
        Self { shared, disk, limits, transfer, meta, sink: None }
    }

    /// Begins a base with an id that no other base on this disk has.
    ///
    /// A lost base is still on the disk, and so may be a crash's leftovers.
    fn begin(&self) -> Result<(u64, SnapshotSink), ImageError> {
        let id = Base::list(&*self.disk)?.last().map_or(0, |id| id + 1);
        Ok((id, SnapshotSink::begin(Arc::clone(&self.disk), id, &self.limits)?))
    }
}

impl SnapshotTaker for Incoming {
    fn open(&mut self) -> Result<u64, String> {
        let shared = self.shared.upgrade().ok_or(ENDED)?;
        let beginning = lock(&shared.received.beginning);
        let (base, sink) = match shared.received.take_part(&self.meta) {
            Some(part) => part,
            None => self.begin().map_err(|error| error.to_string())?,
        };
        drop(beginning);
        let received = sink.received();
        self.sink = Some((base, sink));
        Ok(received)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (_, sink) = self.sink.as_mut().ok_or("the snapshot was not opened")?;
        let written = sink.write(bytes);
        if written.is_err() {
            // After an error the part is not continued.
            self.sink = None;
        }
        written.map_err(|error| error.to_string())
    }

    fn finish(mut self: Box<Self>) -> Result<ReceivedSnapshot, String> {
        let (base, sink) = self.sink.take().ok_or("the snapshot was not opened")?;
        let received = sink.finish().map_err(|error| error.to_string())?;
        let state = received.state.ok_or("the snapshot has no state")?;
        let shared = self.shared.upgrade().ok_or(ENDED)?;
        let (is_wanted, unwanted) = shared.received.keep_whole(self.transfer, received.base);
        if let Some(unwanted) = unwanted {
            unwanted.retire();
        }
        if is_wanted { Ok(ReceivedSnapshot { base, state }) } else { Err("the transfer was cancelled".to_owned()) }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let (Some((base, sink)), Some(shared)) = (self.sink.take(), self.shared.upgrade()) {
            shared.received.keep_part(self.transfer, Part { meta: self.meta.clone(), base, sink });
        }
    }
}
