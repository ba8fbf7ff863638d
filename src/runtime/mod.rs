//! Drives `engine::Server` with real threads, sockets, disks and clocks. Nothing here decides: events go in, actions are
//! carried out.
//!
//! | thread | owns | blocks on |
//! |---|---|---|
//! | io | sockets, the codec | sockets |
//! | core | the machine, which it lends ([`seat`]) | its inbox |
//! | log | the log | fdatasync |
//! | base | readers of the base, for what entries and requests wait for | reads |
//! | completion | readers of the base, for answers that are put together | reads |
//! | checkpoint | writing the base | writes |
//!
//! Work crosses threads in batches, through a [`Mailbox`] for each thread; no lock is held over IO.

mod base;
mod checkpoint;
mod clock;
mod core;
mod data;
mod figures;
mod latch;
mod log;
mod mailbox;
mod node;
#[cfg(feature = "port")]
mod port;
mod seat;
mod store;
mod threads;
mod waiting;

pub use data::StartError;
pub use figures::{Figures, Percentiles};
pub(crate) use latch::{Latch, Set};
pub(crate) use mailbox::{Mailbox, lock};
pub use node::{Node, ShutdownError};
pub use threads::Failure;
pub use waiting::{NodeStatus, Opening, Ready, StatusAnswer, Stopped};

use crate::session::Link;
use std::sync::Arc;
use zoolet_engine::Event;

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
    /// Carry out what is decided, then end.
    Stop,
    /// Break an assertion.
    #[cfg(test)]
    Panic,
}

/// The way to the core thread.
pub(crate) type Inbox = Mailbox<Input>;
