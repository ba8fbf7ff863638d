//! Where the client port meets the machine: events one way, outputs the other, both in batches.

use super::courier::Courier;
use super::lock;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};
use tokio::sync::Notify;
use zoolet_engine::{ConnId, Event, Status};
use zoolet_model::{ConnectReply, ErrorCode, Reply, WatchEvent};

/// Takes events to the machine.
pub trait EventSink: Send + Sync + 'static {
    /// Drains `events`, in order. Never blocks: what may be outstanding is bounded before it gets here.
    fn submit(&self, events: &mut Vec<Event>);
}

/// What the machine has for the clients.
#[derive(Debug)]
pub enum Output {
    /// The answer to Connect. When the session is refused a `Close` follows.
    Connected {
        /// To whom.
        conn: ConnId,
        /// What to send.
        reply: ConnectReply,
    },
    /// The answer to a request; one for each, in the order of the requests.
    Reply {
        /// To whom.
        conn: ConnId,
        /// As asked.
        xid: i32,
        /// What the reply header carries.
        zxid: i64,
        /// The body, or why not.
        result: Result<Reply, ErrorCode>,
    },
    /// A watch fired.
    Notify {
        /// For whom.
        conn: ConnId,
        /// What happened.
        event: WatchEvent,
    },
    /// Send what is queued, then close. Event::Disconnected comes back.
    Close {
        /// Which connection.
        conn: ConnId,
    },
    /// An answer is being put together elsewhere: keep its place. Must be pushed before its `Filled`.
    Pending {
        /// To whom.
        conn: ConnId,
        /// Which `Filled` goes here; unique in one connection.
        ticket: u64,
    },
    /// What goes into the place of a `Pending`.
    Filled {
        /// To whom.
        conn: ConnId,
        /// Which place.
        ticket: u64,
        /// As asked.
        xid: i32,
        /// What the reply header carries.
        zxid: i64,
        /// The body, or why not.
        result: Result<Reply, ErrorCode>,
    },
    /// The answer to Event::Status. Tickets that this port did not give out (see [`ConnIds::next_ticket`]) are ignored.
    Status {
        /// Which question.
        ticket: u64,
        /// How the machine is.
        status: Box<Status>,
    },
}

impl Output {
    /// Whether encoding and sending it takes next to nothing: no list, and little data.
    fn is_small(&self) -> bool {
        match self {
            Self::Reply { result, .. } | Self::Filled { result, .. } => result.as_ref().map_or(true, is_small),
            Self::Connected { .. } | Self::Notify { .. } | Self::Close { .. } | Self::Pending { .. } => true,
            Self::Status { .. } => false,
        }
    }
}

/// Outputs that are little.
const LITTLE: usize = 4;
/// Bytes that are little.
const SMALL_BYTES: usize = 4 << 10;

fn is_small(reply: &Reply) -> bool {
    match reply {
        Reply::Empty
        | Reply::Path(_)
        | Reply::PathStat(..)
        | Reply::Stat(_)
        | Reply::Count(_)
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

/// Outputs on their way from other threads to the client port.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: Mutex<Vec<Output>>,
    arrived: Notify,
    /// Who brings them to their connections while the port is served. Outputs are taken from the queue with this held, so
    /// whoever delivers, they stay in order.
    courier: Mutex<Option<Courier>>,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Drains `outputs`, in order. Never blocks for longer than it takes to move them. The vector comes back empty and
    /// with room in it, so that a caller who reuses it does not allocate.
    pub fn push(&self, outputs: &mut Vec<Output>) {
        // One wake-up for all that is pushed until the port takes it.
        if self.put(outputs) {
            self.arrived.notify_one();
        }
    }

    /// As [`Outbox::push`], and wakes nobody: the caller calls [`Outbox::deliver_little`] soon, whatever happens.
    pub fn leave(&self, outputs: &mut Vec<Output>) {
        self.put(outputs);
    }

    /// If all that waits is little, and no other thread is about it, it is encoded and written to the sockets here and now: waking the port's thread
    /// takes longer. Never waits for a client.
    pub fn deliver_little(&self) {
        if lock(&self.queue).is_empty() {
            return;
        }
        let delivered = match self.courier.try_lock() {
            Ok(mut courier) => self.deliver_if_little(courier.as_mut()),
            Err(TryLockError::Poisoned(courier)) => self.deliver_if_little(courier.into_inner().as_mut()),
            Err(TryLockError::WouldBlock) => false,
        };
        if !delivered {
            self.arrived.notify_one();
        }
    }

    fn deliver_if_little(&self, courier: Option<&mut Courier>) -> bool {
        let Some(courier) = courier else { return false };
        let mut queue = lock(&self.queue);
        if queue.len() > LITTLE || !queue.iter().all(Output::is_small) {
            return false;
        }
        courier.take(&mut queue);
        drop(queue);
        courier.deliver();
        true
    }

    /// Drains `outputs` into the queue; says whether it was empty before and is not any more.
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

    /// Waits until there is something.
    pub(crate) async fn arrived(&self) {
        while lock(&self.queue).is_empty() {
            self.arrived.notified().await;
        }
    }

    /// From here on there is somebody to deliver, until the guard goes.
    pub(super) fn served_by(&self, courier: Courier) -> Served<'_> {
        *lock(&self.courier) = Some(courier);
        Served(self)
    }

    /// Brings all there is to its connections.
    pub(super) fn deliver(&self) {
        if let Some(courier) = &mut *lock(&self.courier) {
            courier.take(&mut lock(&self.queue));
            courier.deliver();
        }
    }
}

/// While this lives an outbox has a courier.
pub(super) struct Served<'a>(&'a Outbox);

impl Drop for Served<'_> {
    fn drop(&mut self) {
        *lock(&self.0.courier) = None;
    }
}

/// Gives out the numbers of connections, and of questions for the status. The client port and embedded sessions share
/// one, so no number names two things in one process.
#[derive(Debug, Default)]
pub struct ConnIds(AtomicU64);

impl ConnIds {
    /// Starts at 1.
    pub fn new() -> Self {
        Self::default()
    }

    /// A number not given out before.
    pub fn next_conn(&self) -> ConnId {
        ConnId(self.next_ticket())
    }

    /// A number not given out before, for Event::Status.
    pub fn next_ticket(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }
}
