//! Drives `engine::Server` with real threads, sockets, disks and clocks.
//!
//! The runtime decides nothing: it passes events in and carries out actions.
//!
//! | thread | owns | blocks on |
//! |---|---|---|
//! | io | sockets, the codec | sockets |
//! | core | the machine, which it lends ([`turns`]) | its inbox |
//! | peers | links to other servers | sockets |
//! | log | the log | fdatasync |
//! | catch-up | readers of the log, for peers that lack entries | reads |
//! | base | readers of the base, for records that entries and requests wait for | reads |
//! | completion | readers of the base, for answers assembled from it | reads |
//! | checkpoint | writing the base | writes |
//!
//! A standalone server has neither `peers` nor `catch-up`. A server that keeps a subtree in a file
//! has one more thread, [`subtree_file`], which owns an ordinary session. The threads that read and
//! write a snapshot end with its transfer.
//!
//! Work crosses threads in batches, through one [`Mailbox`] per thread. No thread holds a lock
//! during IO.

mod base_threads;
mod blocking;
mod catch_up;
mod checkpoint_thread;
mod clock;
mod core;
mod current;
mod data;
#[cfg(test)]
#[cfg(feature = "port")]
mod failing_disk;
mod figures;
mod flash;
#[cfg(feature = "port")]
mod io_thread;
mod latch;
#[cfg(feature = "ensemble")]
mod links;
#[cfg(not(feature = "ensemble"))]
#[path = "no_links.rs"]
mod links;
mod log_thread;
mod mailbox;
mod member;
mod node;
#[cfg(feature = "port")]
mod read_only;
mod session_environment;
mod status_stream;
mod store;
mod subtree_file;
mod threads;
mod turns;
mod waiting;

pub use blocking::{ShuttingDown, Starting};
pub use data::{StartError, check_data_directory};
pub use figures::{Figures, Percentiles};
pub(crate) use latch::{Latch, Set};
pub(crate) use mailbox::{Mailbox, lock};
pub use node::{Node, Sessions, ShutdownError};
#[cfg(feature = "port")]
pub use read_only::ReadOnly;
pub use status_stream::StatusStream;
pub use threads::Failure;
pub use waiting::{NodeStatus, Opening, Ready, StatusAnswer, Stopped};

use std::sync::Arc;
use zoolet_machine::{ConnId, Event};
use zoolet_model::Request;
use zoolet_session::{Link, RequestSink};

/// Input of the core thread.
#[derive(Debug)]
pub(crate) enum Input {
    /// An event for the machine.
    Event(Event),
    /// A session of this process wants to be connected.
    Dial(Arc<Link>),
    /// This process requests the machine's status.
    Ask(Arc<threads::Question>),
    /// An owner watches the status, and waits for its first item.
    LookAtStatus,
    /// Close the sessions of this process, and report when all are closed.
    CloseSessions,
    /// If this server leads, let another one lead.
    HandOver,
    /// Carry out pending actions, then end.
    Stop,
    /// Break an assertion.
    #[cfg(test)]
    Panic,
}

/// Mailbox of the core thread.
pub(crate) type Inbox = Mailbox<Input>;

impl RequestSink for Inbox {
    fn request(&self, conn: ConnId, xid: i32, request: Request) {
        self.push(Input::Event(Event::Request { conn, xid, request }));
    }
}
