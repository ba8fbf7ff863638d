//! The meeting point of a session's owner and the machine.
//!
//! The owner's side opens slots and sends requests. The machine's side fills the slots, in the
//! machine's order. Both hold the lock only to move data, never while user code runs.

mod machine_side;
mod owner_side;
mod ticket;

pub(crate) use ticket::Ticket;

use super::errands::Errands;
use super::liveness::{Life, Sign};
use super::slots::{Answer, Slots};
use super::wakers::Wakers;
use super::watch::Watches;
use crate::watchdog::Watchdog;
use crate::{Environment, RequestSink};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::time::Duration;
use zoolet_machine::{Budget, ConnId, Limits};
use zoolet_model::{ErrorCode, Reply, RequestError, SessionId, SessionSecret, SessionState, Text, WatchEvent};

/// The xid of requests whose answers are ignored; it names no slot.
const XID_UNHEARD: i32 = -9;

/// The xid of a session's end that no request of its owner waits for.
pub(super) const XID_END: i32 = -10;

/// The xid of requests that register watches again, as in ZooKeeper's clients.
pub(super) const XID_WATCHES: i32 = -8;

/// The xid of pings. Their answers wake no waiter, but they show that the session lives.
pub(super) const XID_PING: i32 = -2;

/// One in-process session.
#[derive(Debug)]
pub struct Link {
    sink: Arc<dyn RequestSink>,
    environment: Arc<dyn Environment>,
    request_bytes_max: u64,
    numbers: AtomicU64,
    watchdog: OnceLock<Watchdog>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    session_state: SessionState,
    /// The connection that requests go to, while connected.
    conn: Option<ConnId>,
    opened: bool,
    /// The session is over for its owner. Nothing but its end is sent.
    closing: bool,
    /// The machine has not answered the end of the session. The next connection sends it again.
    is_end_due: bool,
    /// The xid of the end, if it was sent on this connection.
    end_xid: Option<i32>,
    /// The machine serves this connection without a leader.
    is_reader: bool,
    /// The owner has requested an ephemeral.
    may_own_ephemerals: bool,
    timeout_ms: u32,
    session: SessionId,
    secret: Option<SessionSecret>,
    last_zxid: i64,
    auths: Vec<(Text, Bytes)>,
    slots: Slots,
    /// Whether the session's owner asked to read while there is no leader.
    may_read_only: bool,
    /// Since when the state that it reads may be outdated; `None` while it is current.
    outdated_since: Option<Duration>,
    errands: Errands,
    life: Life,
    /// The number of unanswered pings, and the first of them.
    pinged: Option<(u32, Sign)>,
    watches: Watches,
    /// The zxid after which watches may have missed events.
    ///
    /// It is set until the server has registered the watches again, and after events were dropped.
    missed_since: Option<i64>,
    /// The counter behind [`zoolet_coordinator::Coordinator::gaps`].
    gaps: u64,
    /// Number of unanswered requests to register watches again.
    asked_missed: u32,
    behind: VecDeque<Behind>,
    behind_overflowed: bool,
    readers: BTreeMap<u64, Waker>,
}

/// Maximum number of items that wait behind one answer completed off the core.
///
/// Beyond it, watch events are dropped, and the session asks for them afterwards.
pub(super) const BEHIND_MAX: usize = 4096;

/// An item that waits for an answer completed off the core.
#[derive(Debug)]
enum Behind {
    /// The place of that answer.
    Pending {
        xid: i32,
    },
    Reply {
        xid: i32,
        zxid: i64,
        result: Result<Reply, ErrorCode>,
    },
    Notify(WatchEvent),
}

impl Link {
    /// Creates a session that requests `timeout_ms` and is not connected yet.
    ///
    /// `limits` and `budget` belong to the session's server. Unanswered requests are charged to
    /// `budget`.
    pub fn new(
        sink: Arc<dyn RequestSink>,
        environment: Arc<dyn Environment>,
        timeout_ms: u32,
        limits: &Limits,
        budget: Arc<Budget>,
    ) -> Arc<Self> {
        Arc::new(Self {
            sink,
            environment,
            request_bytes_max: limits.frame_bytes_max.into(),
            numbers: AtomicU64::new(0),
            watchdog: OnceLock::new(),
            state: Mutex::new(State {
                session_state: SessionState::Suspended,
                conn: None,
                opened: false,
                closing: false,
                is_end_due: false,
                end_xid: None,
                is_reader: false,
                may_own_ephemerals: false,
                timeout_ms,
                session: SessionId(0),
                secret: None,
                last_zxid: 0,
                auths: Vec::new(),
                slots: Slots::new(limits.outstanding_max, Arc::clone(&budget)),
                may_read_only: false,
                outdated_since: None,
                errands: Errands::new(budget),
                life: Life::default(),
                pinged: None,
                watches: Watches::default(),
                missed_since: None,
                gaps: 0,
                asked_missed: 0,
                behind: VecDeque::new(),
                behind_overflowed: false,
                readers: BTreeMap::new(),
            }),
        })
    }
}

impl State {
    /// Returns the connection on which the session can end now.
    ///
    /// A server without a leader refuses the end of a global session. It ends a session that exists
    /// for reading only.
    fn conn_for_end(&self) -> Option<ConnId> {
        self.conn.filter(|_| self.outdated_since.is_none() || self.secret.is_none())
    }

    fn suspend(&mut self) -> Wakers {
        self.disconnect();
        self.errands.unsend();
        let mut wakers = self.become_state(SessionState::Suspended);
        wakers.0.append(&mut self.slots.fail_all(RequestError::ConnectionLoss));
        wakers.0.append(&mut self.slots.refuse_queued(RequestError::Suspended));
        wakers
    }

    /// Loses the connection of a session that is over, and keeps the errands that precede its end.
    fn leave(&mut self) -> Wakers {
        self.disconnect();
        self.errands.unsend();
        Wakers(self.slots.fail_all(RequestError::of(self.session_state)), None)
    }

    /// Ends the session: nothing arrives any more. An earlier reason of its end stays.
    fn end(&mut self, over: SessionState) -> Wakers {
        let over = if self.session_state.is_over() { self.session_state } else { over };
        self.disconnect();
        self.errands.clear();
        let mut wakers = self.become_state(over);
        wakers.0.append(&mut self.slots.fail_all(RequestError::of(over)));
        wakers.0.append(&mut self.watches.end());
        wakers.0.append(&mut self.slots.refuse_queued(RequestError::of(over)));
        wakers
    }

    fn disconnect(&mut self) {
        self.conn = None;
        self.outdated_since = None;
        self.pinged = None;
        self.asked_missed = 0;
        self.behind.clear();
        self.behind_overflowed = false;
    }

    fn become_state(&mut self, next: SessionState) -> Wakers {
        self.session_state = next;
        Wakers(std::mem::take(&mut self.readers).into_values().collect(), None)
    }
}
