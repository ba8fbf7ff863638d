//! Batched queues between the client port and the engine: events in, outputs out.

use super::lock;
use super::output_writer::OutputWriter;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};
use tokio::sync::Notify;
use zoolet_machine::{ConnId, Event, Status};
use zoolet_model::{ConnectReply, ErrorCode, Reply, WatchEvent};

/// Delivers events to the engine.
pub trait EventSink: Send + Sync + 'static {
    /// Drains `events`, in order. Never blocks: the port bounds outstanding requests before it
    /// submits.
    fn submit(&self, events: &mut Vec<Event>);
}

/// An output of the engine for a client.
#[derive(Debug)]
pub enum Output {
    /// The answer to Connect. A `Close` follows when the session is refused.
    Connected {
        /// The connection.
        conn: ConnId,
        /// The message to send.
        reply: ConnectReply,
    },
    /// The answer to a request: one per request, in the order of the requests.
    Reply {
        /// The connection.
        conn: ConnId,
        /// The request's xid.
        xid: i32,
        /// The zxid of the reply header.
        zxid: i64,
        /// The body, or the error.
        result: Result<Reply, ErrorCode>,
    },
    /// A watch event.
    Notify {
        /// The connection.
        conn: ConnId,
        /// The event.
        event: WatchEvent,
    },
    /// Sends the queue, then closes. `Event::Disconnected` comes back.
    Close {
        /// The connection.
        conn: ConnId,
    },
    /// Reserves the place of an answer that is completed elsewhere. Precedes its `Filled`.
    Pending {
        /// The connection.
        conn: ConnId,
        /// Names the place for its `Filled`; unique within the connection.
        ticket: u64,
    },
    /// The answer for the place of a `Pending`.
    Filled {
        /// The connection.
        conn: ConnId,
        /// The place's ticket.
        ticket: u64,
        /// The request's xid.
        xid: i32,
        /// The zxid of the reply header.
        zxid: i64,
        /// The body, or the error.
        result: Result<Reply, ErrorCode>,
    },
    /// The answer to `Event::Status` or `Event::List`.
    ///
    /// The port ignores tickets that it did not issue (see [`ConnIds::next_ticket`]).
    Status {
        /// The question's ticket.
        ticket: u64,
        /// The engine's status.
        status: Box<Status>,
    },
}

impl Output {
    /// Whether encoding and sending costs next to nothing: no list, and little data.
    fn is_small(&self) -> bool {
        match self {
            Self::Reply { result, .. } | Self::Filled { result, .. } => result.as_ref().map_or(true, is_small),
            Self::Connected { .. } | Self::Notify { .. } | Self::Close { .. } | Self::Pending { .. } => true,
            Self::Status { .. } => false,
        }
    }
}

/// Maximum outputs that a thread other than the port's delivers at once.
const LITTLE: usize = 4;
/// Maximum bytes of data in a small reply.
const SMALL_BYTES: usize = 4 << 10;

fn is_small(reply: &Reply) -> bool {
    match reply {
        Reply::Empty
        | Reply::Path(_)
        | Reply::PathStat(..)
        | Reply::Stat(_)
        | Reply::Count(_)
        | Reply::Ttl(_)
        | Reply::Synced(_)
        | Reply::NullToken
        | Reply::WatchAdded => true,
        Reply::Data(data, _) => data.as_ref().is_none_or(|data| data.len() <= SMALL_BYTES),
        Reply::Names(_)
        | Reply::NamesStat(..)
        | Reply::Acl(..)
        | Reply::Ids(_)
        | Reply::Multi(_)
        | Reply::MultiRead(_)
        | Reply::MultiReadBroken(_) => false,
    }
}

/// Queue of outputs from other threads to the client port.
#[derive(Debug, Default)]
pub struct OutputQueue {
    queue: Mutex<Vec<Output>>,
    arrived: Notify,
    /// Delivers the outputs while the port is served.
    ///
    /// Outputs leave the queue only under this lock, so they stay in order whichever thread
    /// delivers.
    writer: Mutex<Option<OutputWriter>>,
}

impl OutputQueue {
    /// Returns an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Drains `outputs`, in order; blocks no longer than the move takes.
    ///
    /// The vector comes back empty but with capacity, so a caller that reuses it does not allocate.
    pub fn push(&self, outputs: &mut Vec<Output>) {
        // One wake-up covers all outputs pushed until the port takes them.
        if self.put(outputs) {
            self.arrived.notify_one();
        }
    }

    /// Queues outputs like [`OutputQueue::push`], without waking the port.
    ///
    /// The caller must call [`OutputQueue::deliver_little`] soon, in every case.
    pub fn leave(&self, outputs: &mut Vec<Output>) {
        self.put(outputs);
    }

    /// Delivers a small queue on the calling thread.
    ///
    /// That is faster than waking the port's thread. If the queue is large, or another thread is
    /// delivering, the call wakes the port's thread instead. Never waits for a client.
    pub fn deliver_little(&self) {
        if lock(&self.queue).is_empty() {
            return;
        }
        let delivered = match self.writer.try_lock() {
            Ok(mut writer) => self.deliver_if_little(writer.as_mut()),
            Err(TryLockError::Poisoned(writer)) => self.deliver_if_little(writer.into_inner().as_mut()),
            Err(TryLockError::WouldBlock) => false,
        };
        if !delivered {
            self.arrived.notify_one();
        }
    }

    fn deliver_if_little(&self, writer: Option<&mut OutputWriter>) -> bool {
        let Some(writer) = writer else { return false };
        let mut queue = lock(&self.queue);
        if queue.len() > LITTLE || !queue.iter().all(Output::is_small) {
            return false;
        }
        writer.take(&mut queue);
        drop(queue);
        writer.deliver();
        true
    }

    /// Drains `outputs` into the queue; returns whether the queue was empty and now is not.
    fn put(&self, outputs: &mut Vec<Output>) -> bool {
        if outputs.is_empty() {
            return false;
        }
        let mut queue = lock(&self.queue);
        let was_empty = queue.is_empty();
        if was_empty {
            mem::swap(&mut *queue, outputs);
        } else {
            queue.append(outputs);
        }
        was_empty
    }

    /// Waits until an output is queued.
    pub(crate) async fn arrived(&self) {
        while lock(&self.queue).is_empty() {
            self.arrived.notified().await;
        }
    }

    /// Installs the writer; the guard removes it.
    pub(super) fn served_by(&self, writer: OutputWriter) -> Served<'_> {
        *lock(&self.writer) = Some(writer);
        Served(self)
    }

    /// Delivers all queued outputs.
    pub(super) fn deliver(&self) {
        if let Some(writer) = &mut *lock(&self.writer) {
            writer.take(&mut lock(&self.queue));
            writer.deliver();
        }
    }
}

/// Keeps the writer installed until dropped.
pub(super) struct Served<'a>(&'a OutputQueue);

impl Drop for Served<'_> {
    fn drop(&mut self) {
        *lock(&self.0.writer) = None;
    }
}

/// Issues ids of connections and tickets of questions.
///
/// The client port and embedded sessions share one source, so no number names two things in one
/// process.
#[derive(Debug, Default)]
pub struct ConnIds(AtomicU64);

impl ConnIds {
    /// Returns a source whose first number is 1.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an unused connection id.
    pub fn next_conn(&self) -> ConnId {
        ConnId(self.next_ticket())
    }

    /// Returns an unused ticket for `Event::Status` or `Event::List`.
    pub fn next_ticket(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }
}
