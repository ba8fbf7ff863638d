//! The way from a session to the machine.

use std::fmt::Debug;
use zoolet_engine::ConnId;
use zoolet_model::Request;

/// What takes the requests of sessions to the machine that serves them.
pub trait Outbox: Debug + Send + Sync {
    /// Hands `request` over as [`zoolet_engine::Event::Request`], in the order of calls. Called under the session's lock, also from within what the
    /// machine's side calls: it neither blocks nor calls back. What comes after the end of the machine is dropped.
    fn request(&self, conn: ConnId, xid: i32, request: Request);
}
