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
    /// Its session is being created.
    Joining,
    /// It has a session.
    Open,
    /// Its last request is under way (closeSession): nothing more is taken from it.
    Leaving,
    /// Close went out: nothing more is sent to it.
    Closed,
}

/// A connection's pipeline. Requests are determined strictly in order: a read when every write before it is applied, a write when
/// every read before it is determined, so replies need no reordering: they leave as outcomes fall.
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
    /// Writes that are proposed and not yet applied.
    pub proposed: u32,
    /// Ephemerals that those writes, and others since there was none, asked for.
    pub births: u32,
    /// A sync at the head of `waiting` is being confirmed, or a record it needs is being fetched.
    pub blocked: bool,
}

impl Connection {
    /// A connection from `peer` whose session is being created.
    pub fn new(peer: Option<IpAddr>, skip_acl: bool) -> Self {
        Self {
            session: SessionId::default(),
            phase: Phase::Joining,
            identity: Arc::new(Identity { is_super: skip_acl, ip: peer, ids: Vec::new() }),
            waiting: VecDeque::new(),
            proposed: 0,
            births: 0,
            blocked: false,
        }
    }

    /// The request of this number, if it still is at the head of those that wait.
    pub fn take_head(&mut self, number: u64) -> Option<Waiting> {
        if self.waiting.front()?.number == number { self.waiting.pop_front() } else { None }
    }

    /// Forgets what it proved; gives the bytes that this took.
    pub fn forget_identities(&mut self) -> usize {
        let identity = std::mem::take(&mut self.identity);
        identity.ids.iter().map(identity_bytes).sum()
    }

    /// Requests read and not answered.
    pub fn outstanding(&self) -> usize {
        self.waiting.len() + self.proposed as usize
    }
}
