//! Batched queues between the links and the engine: events in, instructions out.

use std::fmt;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use zoolet_machine::Event;
use zoolet_machine::seam::peer::{LinkId, PeerMessage, ReceivedSnapshot, TransferId};
use zoolet_model::ServerId;

/// Delivers events from the links to the engine.
///
/// Only these events: PeerUp, PeerDown, PeerMessage, SnapshotSent, SnapshotReceived.
pub trait PeerEvents: Send + Sync + 'static {
    /// Drains `events` in order. Never blocks.
    fn submit(&self, events: &mut Vec<Event>);
}

/// Source of an outgoing snapshot's bytes.
///
/// Its methods may block on disk, so the links call them on blocking threads.
pub trait SnapshotBytes: Send + 'static {
    /// Opens the snapshot. Called once, before the first read.
    ///
    /// # Errors
    /// A message for the operator.
    fn open(&mut self) -> Result<SnapshotSize, String>;

    /// Returns between 1 and `bytes_max` bytes, starting at `offset`.
    ///
    /// # Errors
    /// A message for the operator. The links do not read again after an error.
    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, String>;
}

/// Size of an outgoing snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotSize {
    /// Total bytes.
    pub bytes: u64,
}

/// Destination of an incoming snapshot's bytes.
///
/// Its methods may block on disk, so the links call them on blocking threads. If it is dropped
/// before [`SnapshotTaker::finish`], it may keep the bytes received, so that the next transfer of
/// the same snapshot can resume.
pub trait SnapshotTaker: Send + 'static {
    /// Opens the destination; returns the bytes kept from an earlier, interrupted transfer.
    ///
    /// # Errors
    /// A message for the operator.
    fn open(&mut self) -> Result<u64, String>;

    /// Appends the next bytes.
    ///
    /// # Errors
    /// A message for the operator. The links do not write again after an error.
    fn write(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// Verifies the complete snapshot and makes it durable.
    ///
    /// # Errors
    /// A message for the operator.
    fn finish(self: Box<Self>) -> Result<ReceivedSnapshot, String>;
}

/// A command from the engine to the links.
pub enum Instruction {
    /// See [`zoolet_machine::Action::PeerSend`].
    Send {
        /// The receiver.
        peer: ServerId,
        /// The link to send on.
        link: LinkId,
        /// The message.
        message: PeerMessage,
    },
    /// See [`zoolet_machine::Action::PeerClose`]. Answered by PeerDown.
    Close {
        /// The link's peer.
        peer: ServerId,
        /// The link to close.
        link: LinkId,
        /// The reason, for the operator.
        reason: &'static str,
    },
    /// See [`zoolet_machine::Action::SendSnapshot`]. Answered by SnapshotSent.
    SendSnapshot {
        /// The receiver.
        peer: ServerId,
        /// The link to send on.
        link: LinkId,
        /// The number of this transfer.
        transfer: TransferId,
        /// The snapshot's bytes.
        source: Box<dyn SnapshotBytes>,
        /// Earlier snapshots that reached this peer too late. Each one doubles this transfer's
        /// rate.
        too_late: u32,
    },
    /// See [`zoolet_machine::Action::ReceiveSnapshot`]. Answered by SnapshotReceived.
    ReceiveSnapshot {
        /// The sender.
        peer: ServerId,
        /// The link to receive on.
        link: LinkId,
        /// The sender's number for this transfer.
        transfer: TransferId,
        /// The destination.
        taker: Box<dyn SnapshotTaker>,
    },
    /// See [`zoolet_machine::Action::DropSnapshot`]. Has no answer.
    DropSnapshot {
        /// The sender.
        peer: ServerId,
        /// The sender's number for this transfer.
        transfer: TransferId,
    },
}

impl fmt::Debug for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send { peer, link, message } => write!(f, "Send to {peer:?} on {link:?}: {message:?}"),
            Self::Close { peer, link, reason } => write!(f, "Close {link:?} to {peer:?}: {reason}"),
            Self::SendSnapshot { peer, transfer, .. } => write!(f, "SendSnapshot {transfer:?} to {peer:?}"),
            Self::ReceiveSnapshot { peer, transfer, .. } => write!(f, "ReceiveSnapshot {transfer:?} from {peer:?}"),
            Self::DropSnapshot { peer, transfer } => write!(f, "DropSnapshot {transfer:?} from {peer:?}"),
        }
    }
}

/// Queue of instructions from other threads to the links.
#[derive(Debug, Default)]
pub struct InstructionQueue {
    queue: Mutex<Vec<Instruction>>,
    arrived: Notify,
}

impl InstructionQueue {
    /// Returns an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves `instructions` to the queue, in order.
    ///
    /// Blocks only for the time of the move. The vector comes back empty, usually with spare
    /// capacity.
    pub fn push(&self, instructions: &mut Vec<Instruction>) {
        if instructions.is_empty() {
            return;
        }
        let mut queue = lock(&self.queue);
        let was_empty = queue.is_empty();
        if was_empty {
            mem::swap(&mut *queue, instructions);
        } else {
            queue.append(instructions);
        }
        drop(queue);
        // One wake-up covers all instructions pushed until the links take them.
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Waits for instructions and swaps them into `instructions`, which must be empty.
    pub async fn take(&self, instructions: &mut Vec<Instruction>) {
        loop {
            mem::swap(&mut *lock(&self.queue), instructions);
            if !instructions.is_empty() {
                return;
            }
            self.arrived.notified().await;
        }
    }
}

/// Locks `mutex`, even if a thread panicked while it held the lock.
///
/// The protected data is consistent after every statement, so a poisoned lock is still usable.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
