//! Drives `engine::Server` with real threads, sockets, disks and clocks. Nothing here decides: events go in, actions are
//! carried out.
//!
//! | thread | owns | blocks on |
//! |---|---|---|
//! | io | sockets, the codec | sockets |
//! | core | the machine, which it lends ([`seat`]) | its inbox |
//! | peers | links to other servers | sockets |
//! | log | the log | fdatasync |
//! | catch-up | readers of the log, for peers that lack entries | reads |
//! | base | readers of the base, for what entries and requests wait for | reads |
//! | completion | readers of the base, for answers that are put together | reads |
//! | checkpoint | writing the base | writes |
//!
//! A server that is alone has neither `peers` nor `catch-up`. One that keeps a subtree in a file has a thread more, [`keeper`], a session's owner like any. Snapshots are read and written on threads that last as long as they do.
//!
//! Work crosses threads in batches, through a [`Mailbox`] for each thread; no lock is held over IO.

mod base;
mod catch_up;
mod checkpoint;
mod clock;
mod core;
mod current;
mod data;
#[cfg(test)]
mod failing_disk;
mod figures;
mod flash;
mod keeper;
mod latch;
mod log;
mod mailbox;
mod member;
mod node;
mod peers;
#[cfg(feature = "port")]
mod port;
#[cfg(feature = "port")]
mod read_only;
mod seat;
mod snapshots;
mod store;
mod surroundings;
mod threads;
mod waiting;

pub use data::{StartError, check_data_directory};
pub use figures::{Figures, Percentiles};
pub(crate) use latch::{Latch, Set};
pub(crate) use mailbox::{Mailbox, lock};
pub use node::{Node, ShutdownError};
#[cfg(feature = "port")]
pub use read_only::ReadOnly;
pub use threads::Failure;
pub use waiting::{NodeStatus, Opening, Ready, StatusAnswer, Stopped};

use std::sync::Arc;
use zoolet_engine::{ConnId, Event};
use zoolet_model::Request;
use zoolet_session::{Link, Outbox};

/// What the core thread is told.
#[derive(Debug)]
pub(crate) enum Input {
    /// Something for the machine.
    Event(Event),
    /// A session of this process wants to be connected.
    Dial(Arc<Link>),
    /// Somebody of this process wants to know how the machine is.
    Ask(Arc<threads::Question>),
    /// Close the sessions of this process, and tell when all are closed.
    CloseSessions,
    /// Another server shall lead, if this one does.
    HandOver,
    /// Carry out what is decided, then end.
    Stop,
    /// Break an assertion.
    #[cfg(test)]
    Panic,
}

/// The way to the core thread.
pub(crate) type Inbox = Mailbox<Input>;

impl Outbox for Inbox {
    fn request(&self, conn: ConnId, xid: i32, request: Request) {
        self.push(Input::Event(Event::Request { conn, xid, request }));
    }
}
