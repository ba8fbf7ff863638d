//! Where the links meet the machine: events one way, instructions the other, both in batches.

use std::fmt;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use zoolet_engine::Event;
use zoolet_engine::peer::{LinkId, PeerMessage, ReceivedSnapshot, TransferId};
use zoolet_model::ServerId;

/// Takes events to the machine: PeerUp, PeerDown, PeerMessage, SnapshotSent, SnapshotReceived, and nothing else.
pub trait PeerEvents: Send + Sync + 'static {
    /// Drains `events`, in order. Never blocks.
    fn submit(&self, events: &mut Vec<Event>);
}

/// The bytes of a snapshot that is sent. Its calls may block for a disk, and are made where that hurts nobody.
pub trait SnapshotBytes: Send + 'static {
    /// Opens it, before the first read.
    ///
    /// # Errors
    /// For people.
    fn open(&mut self) -> Result<SnapshotSize, String>;

    /// The bytes from `offset` on, at most `bytes_max` of them and at least one.
    ///
    /// # Errors
    /// For people. Nothing more is read then.
    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, String>;
}

/// How much there is to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotSize {
    /// Bytes in all.
    pub bytes: u64,
}

/// Where the bytes of a snapshot go that comes in. Its calls may block for a disk, and are made where that hurts nobody.
///
/// Dropped before [`SnapshotTaker::finish`], it keeps what it has for the next transfer of the same snapshot, if it likes.
pub trait SnapshotTaker: Send + 'static {
    /// Opens it: says how many bytes are here already, of an earlier transfer that broke off.
    ///
    /// # Errors
    /// For people.
    fn open(&mut self) -> Result<u64, String>;

    /// Takes the next bytes.
    ///
    /// # Errors
    /// For people. Nothing more is written then.
    fn write(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// All bytes are here: verifies the whole and makes it durable.
    ///
    /// # Errors
    /// For people.
    fn finish(self: Box<Self>) -> Result<ReceivedSnapshot, String>;
}

/// What the machine wants of the links.
pub enum Instruction {
    /// As [`zoolet_engine::Action::PeerSend`].
    Send {
        /// To whom.
        peer: ServerId,
        /// On which link.
        link: LinkId,
        /// What.
        message: PeerMessage,
    },
    /// As [`zoolet_engine::Action::PeerClose`]. PeerDown comes back.
    Close {
        /// Whose.
        peer: ServerId,
        /// Which.
        link: LinkId,
        /// Why, for people.
        reason: &'static str,
    },
    /// As [`zoolet_engine::Action::SendSnapshot`]. SnapshotSent comes back.
    SendSnapshot {
        /// To whom.
        peer: ServerId,
        /// On which link.
        link: LinkId,
        /// Its number.
        transfer: TransferId,
        /// Its bytes.
        source: Box<dyn SnapshotBytes>,
        /// How many before it came too late: each of them doubles the rate at which this one may go.
        too_late: u32,
    },
    /// As [`zoolet_engine::Action::ReceiveSnapshot`]. SnapshotReceived comes back.
    ReceiveSnapshot {
        /// From whom.
        peer: ServerId,
        /// On which link.
        link: LinkId,
        /// The sender's number.
        transfer: TransferId,
        /// Where it goes.
        taker: Box<dyn SnapshotTaker>,
    },
    /// As [`zoolet_engine::Action::DropSnapshot`]. Nothing comes back.
    DropSnapshot {
        /// From whom.
        peer: ServerId,
        /// The sender's number.
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

/// Instructions on their way from other threads to the links.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: Mutex<Vec<Instruction>>,
    arrived: Notify,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Drains `instructions`, in order. Never blocks for longer than it takes to move them. The vector comes back empty and with room in it.
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
        // One wake-up for all that is pushed until they are taken.
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Swaps what is there into `instructions`, which must be empty; waits until there is something.
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

/// Locks. What these locks protect is whole after every statement, so a thread that died with one leaves it usable.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
