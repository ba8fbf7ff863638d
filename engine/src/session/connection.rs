//! One connection's place in the order of things.

use crate::budget::allocated;
use crate::tree::acl::Identity;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use zoolet_model::{AuthId, Request, SessionId};

/// A request that has no outcome yet.
#[derive(Debug)]
pub struct Waiting {
    /// Unique in this server: what waits for the base waits for this request, not for whatever is at the head later.
    pub number: u64,
    /// Echoed in the reply.
    pub xid: i32,
    /// What is asked for.
    pub request: Request,
    /// Of a setWatches: paths that it is through with.
    pub done: usize,
}

/// What one identity takes.
pub fn identity_bytes(id: &AuthId) -> usize {
    size_of::<AuthId>() + allocated(id.scheme.len()) + allocated(id.id.len())
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Its session is being created, or whether it lives is being asked.
    Joining,
    /// It has a session.
    Open,
    /// Its last request is under way (closeSession): nothing more is taken from it.
    Leaving,
    /// Close went out: nothing more is sent to it.
    Closed,
}

/// A connection's pipeline. Requests have their outcomes strictly in order: a read when every write before it is applied, a write when
/// every read before it is determined, so replies need no reordering: they leave as outcomes fall. Writes behind a few reads are proposed while those
/// still wait for an earlier write; then the entry waits for the reads.
#[derive(Debug)]
pub struct Connection {
    /// The session it carries; meaningless while joining.
    pub session: SessionId,
    /// How far it has come.
    pub phase: Phase,
    /// What it may do. Shared with the requests that were read under it.
    pub identity: Arc<Identity>,
    /// Requests that have no outcome and are not proposed, oldest first.
    pub waiting: VecDeque<Waiting>,
    /// So many of them were looked at, and do not keep a write behind them from being proposed.
    pub passed: usize,
    /// Numbers of the writes that are proposed and not yet applied, oldest first.
    pub proposed: VecDeque<u64>,
    /// Ephemerals that those writes, and others since there was none, asked for.
    pub births: u32,
    /// A sync at the head of `waiting` is being confirmed, or a record it needs is being fetched.
    pub blocked: bool,
    /// Its owner gave a sign of life that the leader was not told of.
    pub heard: bool,
}

impl Connection {
    /// A connection from `peer` whose session is being created, or asked after.
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
        }
    }

    /// The request that comes next, if one waits.
    pub fn pop(&mut self) -> Option<Waiting> {
        let head = self.waiting.pop_front()?;
        self.passed = self.passed.saturating_sub(1);
        Some(head)
    }

    /// The request of this number, if it still is at the head of those that wait.
    pub fn take_head(&mut self, number: u64) -> Option<Waiting> {
        if self.waiting.front()?.number == number { self.pop() } else { None }
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.passed = 0;
    }

    /// Whether a write before the request of this number is proposed and not yet applied.
    pub fn has_writes_before(&self, number: u64) -> bool {
        self.proposed.front().is_some_and(|&write| write < number)
    }

    /// Whether a request before the oldest write that is proposed has no outcome yet: its entry has to wait.
    pub fn has_requests_before_writes(&self) -> bool {
        self.waiting.front().is_some_and(|head| self.proposed.front().is_some_and(|&write| head.number < write))
    }

    /// Forgets what it proved; gives the bytes that this took.
    pub fn forget_identities(&mut self) -> usize {
        let identity = std::mem::take(&mut self.identity);
        identity.ids.iter().map(identity_bytes).sum()
    }

    /// Requests read and not answered.
    pub fn outstanding(&self) -> usize {
        self.waiting.len() + self.proposed.len()
    }
}
