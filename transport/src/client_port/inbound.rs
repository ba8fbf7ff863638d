//! Bytes that a connection has received and not yet decoded.

use super::listener::Port;
use crate::wire::{FrameError, Opcode, announced};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, ready};
use std::{future::Future, io, mem};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use zoolet_machine::budget::Part;
use zoolet_machine::{Budget, ConnId};

/// Undecoded bytes that a connection may hold within its fixed budget.
///
/// A paused connection is read ahead by this much, so that its pings are seen.
pub(super) const LOOKAHEAD_BYTES: usize = 4096;
/// Maximum bytes of one read. More would let one connection hold the thread, less would cost system
/// calls.
pub(super) const READ_BYTES_MAX: usize = 32 << 10;

/// A connection's undecoded bytes.
///
/// Reads go into one buffer that all connections share, and small leftovers are copied out of it. A
/// connection owns a buffer only while part of a frame waits in it.
#[derive(Debug)]
pub(super) struct Inbound {
    budget: Arc<Budget>,
    /// Bytes that all connections charge for incomplete requests.
    begun: Arc<AtomicU64>,
    buffer: BytesMut,
    /// Whether `buffer` is the shared one, which must be returned before any await.
    borrowed: bool,
    /// Whether a frame was taken out of `buffer`; the frame may keep the memory alive.
    taken_from: bool,
    /// Bytes charged to the budget: as requests, and as part of the connection.
    charged: u64,
    charged_ahead: u64,
    /// End of the bytes already searched for pings.
    ///
    /// The search runs while the first frame is held back. Pings before this offset are answered.
    searched: usize,
}

/// The next frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Next {
    /// Length in bytes, the length field included.
    pub(super) bytes: usize,
    /// Whether the frame is a ping, and whether it was answered already.
    pub(super) ping: Ping,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ping {
    No,
    Unanswered,
    Answered,
}

impl Inbound {
    /// Starts with the bytes that followed the handshake.
    pub(super) fn new(port: &Port, buffer: BytesMut) -> Self {
        Self {
            budget: port.budget.clone(),
            begun: port.begun.clone(),
            buffer,
            borrowed: false,
            taken_from: false,
            charged: 0,
            charged_ahead: 0,
            searched: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Reads once, at most `limit` bytes.
    ///
    /// Other connections may have used up part of the room meanwhile. Returns the bytes read, 0 at
    /// the end of the stream, or `None` when the caller must plan anew. Allocates nothing until
    /// bytes arrive.
    pub(super) async fn fill(
        &mut self,
        read: &mut OwnedReadHalf,
        port: &Port,
        conn: ConnId,
        limit: usize,
    ) -> io::Result<Option<usize>> {
        poll_fn(|cx| {
            ready!(read.as_ref().poll_read_ready(cx))?;
            let limit = limit.min(self.room(port, conn));
            if limit == 0 {
                return Poll::Ready(Ok(None));
            }
            self.prepare(port, limit);
            let poll = {
                let mut room = (&mut self.buffer).limit(limit);
                pin!(read.read_buf(&mut room)).poll(cx)
            };
            match &poll {
                Poll::Ready(Ok(bytes)) => port.traffic.on_read(*bytes),
                Poll::Ready(Err(_)) | Poll::Pending => self.charge_rest(port),
            }
            poll.map_ok(Some)
        })
        .await
    }

    /// Returns the bytes that may be read now.
    ///
    /// All connections wait for the same room, and each read reduces it. When the room is used up,
    /// each connection still has its look-ahead, so that a small request arrives whole.
    fn room(&self, port: &Port, conn: ConnId) -> usize {
        if port.has_turn(conn) || !self.budget.is_full(Part::Outstanding) {
            READ_BYTES_MAX
        } else {
            LOOKAHEAD_BYTES.saturating_sub(self.buffer.len())
        }
    }

    /// Returns the first frame if it is complete.
    pub(super) fn next(&self, frame_bytes_max: usize) -> Result<Option<Next>, FrameError> {
        let next = frame_at(&self.buffer, frame_bytes_max)?;
        Ok(next.map(|next| match next.ping {
            Ping::Unanswered if self.searched > 0 => Next { ping: Ping::Answered, ..next },
            Ping::No | Ping::Unanswered | Ping::Answered => next,
        }))
    }

    /// Takes the first frame, which must be complete, without its length field.
    pub(super) fn take(&mut self, next: Next) -> Bytes {
        self.searched = self.searched.saturating_sub(next.bytes);
        self.taken_from = true;
        self.buffer.advance(4);
        self.buffer.split_to(next.bytes - 4).freeze()
    }

    /// Returns the xid of the next unanswered ping behind the first frame.
    ///
    /// Called while the first frame is held back.
    pub(super) fn take_ping(&mut self, frame_bytes_max: usize) -> Option<i32> {
        loop {
            let rest = &self.buffer[self.searched..];
            // An invalid length is reported when its frame becomes the first.
            let next = frame_at(rest, frame_bytes_max).ok().flatten()?;
            let xid = rest[4..].first_chunk().copied().map(i32::from_be_bytes);
            self.searched += next.bytes;
            if next.ping == Ping::Unanswered {
                return xid;
            }
        }
    }

    /// Whether the next read exceeds the look-ahead, so that the budget must allow it.
    pub(super) fn wants_much(&self) -> bool {
        self.buffer.len() >= LOOKAHEAD_BYTES
    }

    /// Charges the bytes left and returns the shared buffer.
    ///
    /// Must be called after a read, before any await.
    pub(super) fn charge_rest(&mut self, port: &Port) {
        if self.buffer.is_empty() || self.borrowed || self.taken_from {
            let rest = BytesMut::from(&self.buffer[..]);
            let mut used = mem::replace(&mut self.buffer, rest);
            if self.borrowed {
                used.clear();
                port.give_back_reading(used);
            }
        }
        self.borrowed = false;
        self.taken_from = false;
        if self.buffer.len() > LOOKAHEAD_BYTES {
            self.charge(self.buffer.len() as u64, 0);
        } else {
            self.charge(0, self.buffer.len() as u64);
        }
    }

    /// Stops charging: the bytes decoded next are charged as requests.
    pub(super) fn uncharge(&mut self) {
        self.charge(0, 0);
    }

    fn charge(&mut self, bytes: u64, ahead: u64) {
        self.begun.fetch_add(bytes.wrapping_sub(self.charged), Relaxed);
        self.budget.recharge(Part::Outstanding, &mut self.charged, bytes);
        self.budget.recharge(Part::ConnectionBytes, &mut self.charged_ahead, ahead);
    }

    /// Makes room for a read.
    ///
    /// With at most the look-ahead waiting, the read goes into the shared buffer. Otherwise it goes
    /// into the connection's buffer, which grows with the bytes that arrived. An announced frame
    /// length alone allocates nothing.
    fn prepare(&mut self, port: &Port, limit: usize) {
        if self.buffer.len() <= LOOKAHEAD_BYTES && !self.borrowed {
            let mut shared = port.take_reading();
            shared.reserve(self.buffer.len() + limit.min(READ_BYTES_MAX / 2));
            shared.extend_from_slice(&self.buffer);
            self.buffer = shared;
            self.borrowed = true;
        } else {
            self.buffer.reserve(limit.min(READ_BYTES_MAX));
        }
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        self.uncharge();
    }
}

/// Returns the frame at the start of `bytes` if it is complete.
fn frame_at(bytes: &[u8], frame_bytes_max: usize) -> Result<Option<Next>, FrameError> {
    let Some(length) = announced(bytes, frame_bytes_max)? else { return Ok(None) };
    let frame = &bytes[4..];
    if frame.len() < length {
        return Ok(None);
    }
    let is_ping = length >= 8 && frame[4..8] == Opcode::Ping.code().to_be_bytes();
    Ok(Some(Next { bytes: 4 + length, ping: if is_ping { Ping::Unanswered } else { Ping::No } }))
}
