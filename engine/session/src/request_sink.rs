//! The way from a session to the machine.

use std::fmt::Debug;
use zoolet_machine::ConnId;
use zoolet_model::Request;

/// Takes the requests of sessions to the machine that serves them.
pub trait RequestSink: Debug + Send + Sync {
    /// Hands `request` over as [`zoolet_machine::Event::Request`], in the order of calls.
    ///
    /// It is called under the session's lock, and also from within calls of the machine's side. So
    /// it must neither block nor call back. Requests after the end of the machine are dropped.
    fn request(&self, conn: ConnId, xid: i32, request: Request);
}
