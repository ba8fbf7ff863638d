//! Delivery of engine outputs to connections.

use super::connection::{Connection, Touched};
use super::listener::Port;
use super::lock;
use super::output_queue::Output;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

/// Encodes outputs and writes them to their sockets, on the calling thread.
#[derive(Debug)]
pub(super) struct OutputWriter {
    port: Arc<Port>,
    outputs: Vec<Output>,
    touched: Vec<Arc<Connection>>,
}

impl OutputWriter {
    pub(super) fn new(port: Arc<Port>) -> Self {
        Self { port, outputs: Vec::new(), touched: Vec::new() }
    }

    /// Takes all queued outputs.
    pub(super) fn take(&mut self, queue: &mut Vec<Output>) {
        debug_assert!(self.outputs.is_empty());
        mem::swap(queue, &mut self.outputs);
    }

    /// Encodes the outputs taken into their connections' queues, then writes each queue once.
    pub(super) fn deliver(&mut self) {
        let Self { port, outputs, touched } = self;
        let now = Instant::now();
        let connections = lock(&port.connections);
        for output in outputs.drain(..) {
            let conn = match &output {
                Output::Connected { conn, .. }
                | Output::Reply { conn, .. }
                | Output::Notify { conn, .. }
                | Output::Close { conn }
                | Output::Pending { conn, .. }
                | Output::Filled { conn, .. } => *conn,
                Output::Status { .. } => {
                    port.answer(output);
                    continue;
                }
            };
            // The connection is gone: its output is discarded.
            let Some(connection) = connections.get(&conn) else { continue };
            let touch = match output {
                Output::Connected { reply, .. } => connection.on_connected(port, now, &reply),
                Output::Reply { xid, zxid, result, .. } => connection.on_reply(port, now, xid, zxid, &result),
                Output::Notify { event, .. } => connection.on_event(port, now, &event),
                Output::Close { .. } => connection.on_close(now),
                Output::Pending { ticket, .. } => {
                    connection.on_pending(ticket);
                    Touched(false)
                }
                Output::Filled { ticket, xid, zxid, result, .. } => {
                    connection.on_filled(port, now, ticket, (xid, zxid), &result)
                }
                Output::Status { .. } => Touched(false),
            };
            if touch == Touched(true) {
                touched.push(connection.clone());
            }
            port.drop_greediest(&connections);
        }
        drop(connections);
        for connection in touched.drain(..) {
            connection.write_out(port, now);
        }
        port.on_delivered();
    }
}
