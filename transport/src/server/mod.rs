//! The client port: sockets, their bounds, and the seam to the machine.
//!
//! Everything runs on the tasks of one tokio runtime, meant to be of one thread. A connection's task reads: it decodes all
//! that one read brought and submits it in one call. Outputs come through the [`Outbox`]; whoever takes them encodes
//! all that is for one connection into one buffer and writes it with one system call; only when the socket takes no
//! more does the connection's task wait to write the rest. Buffers belong to connections only while bytes wait in them.
//!
//! What a client does wrong closes that client's connection and no other; every bound is charged to the
//! [`zoolet_engine::Budget`].

mod connection;
mod courier;
mod dump;
mod ending;
mod inbound;
mod life;
mod monitor;
mod outgoing;
mod port;
mod reading;
mod record;
mod refusals;
mod report;
mod seam;
mod traffic;
mod words;

pub use port::{About, ClientPort, PortSettings, ServerAddresses};
pub use seam::{ConnIds, EventSink, Outbox, Output};
pub use traffic::{Traffic, TrafficReading};
pub use words::{Whitelist, Word};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. What these locks protect is whole after every statement, so a thread that died with one leaves it usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
