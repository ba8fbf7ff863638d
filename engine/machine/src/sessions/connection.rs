//! One connection: its pipeline of requests, identities and phase.

use crate::budget::allocated;
use crate::record::acl::Identity;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use zoolet_model::{AuthId, ConnectRequest, Request, SessionId};

/// A request that has no outcome yet.
#[derive(Debug)]
pub struct Waiting {
    /// Number unique in this server. So a fetch unblocks this request and not a later one at the
    /// head.
    pub number: u64,
    /// Echoed in the reply.
    pub xid: i32,
    /// The request itself.
    pub request: Request,
    /// Paths already processed, for a setWatches.
    pub done: usize,
    /// Whether the server has no room for the watches of a setWatches, so that it registers none.
    pub lacks_room: bool,
}

/// Returns the bytes that one identity takes.
pub fn identity_bytes(id: &AuthId) -> usize {
    size_of::<AuthId>() + allocated(id.scheme.len()) + allocated(id.id.len())
}

/// Phase in the life of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Its session is being created, or the leader is checking it.
    Joining,
    /// It has a session.
    Open,
    /// Its closeSession is in flight: no further requests are accepted.
    Leaving,
    /// Close was sent: nothing more is sent to it.
    Closed,
}

/// A client that waits for a leader, or for room for its session.
#[derive(Debug)]
pub struct Newcomer {
    /// The client's first request, apart from its frame.
    pub request: ConnectRequest,
    /// When its wait ends and its connection is closed, in milliseconds. Used while the server serves;
    /// without a leader it is computed anew.
    pub until_ms: u64,
}

/// A connection's pipeline, which gives requests their outcomes strictly in order.
///
/// A read gets its outcome once every earlier write is applied, a write once every earlier read is
/// decided. So replies leave in order without sorting. Writes behind a few reads are proposed while
/// those reads still wait for an earlier write; the entry then waits for the reads.
#[derive(Debug)]
pub struct Connection {
    /// Session of the connection; meaningless while joining.
    pub session: SessionId,
    /// Current phase.
    pub phase: Phase,
    /// Identities and address; shared with the requests that were read under them.
    pub identity: Arc<Identity>,
    /// Requests with no outcome that are not proposed, oldest first.
    pub waiting: VecDeque<Waiting>,
    /// Number of requests at the front of `waiting` already passed over. They do not keep a later
    /// write from being proposed.
    pub passed: usize,
    /// Numbers of the writes proposed and not yet applied, oldest first.
    pub proposed: VecDeque<u64>,
    /// Ephemerals requested by writes since `proposed` was last empty.
    pub births: u32,
    /// A sync at the head of `waiting` is being confirmed, or a record it needs is being fetched.
    pub blocked: bool,
    /// Whether the owner gave a sign of life that the leader was not told about.
    pub heard: bool,
    /// Whether it may only read: this server has no leader, or its disk accepts nothing.
    pub is_reader: bool,
    /// Set while the client waits until this server can decide on its first request.
    pub newcomer: Option<Box<Newcomer>>,
    /// When its client came, in milliseconds, and the timeout that it will be granted.
    pub joined: (u64, u32),
}

impl Connection {
    /// Creates a connection from `peer` whose session is being created or checked.
    pub fn new(peer: Option<IpAddr>, skip_acl: bool) -> Self {
        Self {
            session: SessionId::default(),
            phase: Phase::Joining,
            identity: Arc::new(Identity { is_super: skip_acl, ip: peer, ids: Vec::new() }),
            waiting: VecDeque::new(),
            passed: 0,
            proposed: VecDeque::new(),
            births: 0,
            blocked: false,
            heard: false,
            is_reader: false,
            newcomer: None,
            joined: (0, 0),
        }
    }

    /// Removes and returns the next waiting request.
    pub fn pop(&mut self) -> Option<Waiting> {
        let head = self.waiting.pop_front()?;
        self.passed = self.passed.saturating_sub(1);
        Some(head)
    }

    /// Removes and returns the request of this number if it is still at the head of `waiting`.
    pub fn take_head(&mut self, number: u64) -> Option<Waiting> {
        if self.waiting.front()?.number == number { self.pop() } else { None }
    }

    /// Drops all waiting requests.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.passed = 0;
    }

    /// Returns whether a write before the request of this number is proposed and not yet applied.
    pub fn has_writes_before(&self, number: u64) -> bool {
        self.proposed.front().is_some_and(|&write| write < number)
    }

    /// Returns whether a request before the oldest proposed write has no outcome. That entry must
    /// wait.
    pub fn has_requests_before_writes(&self) -> bool {
        self.waiting.front().is_some_and(|head| self.proposed.front().is_some_and(|&write| head.number < write))
    }

    /// Removes all identities; returns the bytes they took.
    pub fn forget_identities(&mut self) -> usize {
        let identity = std::mem::take(&mut self.identity);
        identity.ids.iter().map(identity_bytes).sum()
    }

    /// Returns the number of requests read and not answered.
    pub fn outstanding(&self) -> usize {
        self.waiting.len() + self.proposed.len()
    }
}
