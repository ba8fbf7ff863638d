//! The client port: sockets, their bounds, and the interface to the engine.
//!
//! Everything runs on tasks of one tokio runtime, which is meant to have one thread. A connection's
//! task decodes all that one read brought and submits it in one call. Outputs come through the
//! [`OutputQueue`]. The thread that takes them encodes all outputs for one connection into one
//! buffer and writes it with one system call. Only when the socket is full does the connection's
//! task wait to write the rest. A connection owns a buffer only while bytes wait in it.
//!
//! A client's mistake closes that client's connection and no other. Every bound is charged to the
//! [`zoolet_machine::Budget`].

mod close_reason;
mod connection;
mod connection_figures;
mod connection_task;
mod dump;
mod handshake_rate;
mod inbound;
mod listener;
pub mod metrics;
mod monitor;
mod outgoing;
mod output_queue;
mod output_writer;
mod reading;
#[cfg(test)]
mod reference;
mod refusal_lines;
mod traffic;
mod words;
mod zool;

pub use listener::{About, ClientPort, PortSettings, ServerAddresses};
pub use output_queue::{ConnIds, EventSink, Output, OutputQueue};
pub use traffic::{Traffic, TrafficReading};
pub use words::{Access, Whitelist, Word};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, poisoned or not.
///
/// The guarded data is consistent after every statement, so it stays usable after a thread
/// panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
