//! What a connection has sent and was not decoded yet.

use super::port::Port;
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
use zoolet_engine::budget::Part;
use zoolet_engine::{Budget, ConnId};

/// Bytes of one connection that may wait undecoded and count as part of the connection: what is read ahead of one that
/// is not listened to, so that its pings are seen.
pub(super) const LOOKAHEAD_BYTES: usize = 4096;
/// Bytes of one read. More would let one connection hold the thread, less would cost system calls.
pub(super) const READ_BYTES_MAX: usize = 32 << 10;

/// Undecoded bytes. A connection owns a buffer only while a part of a frame waits in it; reading itself happens in a
/// buffer that all connections share, and small leftovers are copied out of it.
#[derive(Debug)]
pub(super) struct Inbound {
    budget: Arc<Budget>,
    /// What all connections together charge for requests that have begun to arrive.
    begun: Arc<AtomicU64>,
    buffer: BytesMut,
    /// `buffer` is the shared one, to be given back before anything is awaited.
    borrowed: bool,
    /// A frame was taken out of `buffer`, and may keep its memory alive.
    taken_from: bool,
    /// Bytes charged to the budget as requests, and as part of the connection.
    charged: u64,
    charged_ahead: u64,
    /// Up to here, frames were searched for pings while the first of them could not be admitted.
    searched: usize,
}

/// The frame that comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Next {
    /// Its bytes, the length included.
    pub(super) bytes: usize,
    /// Whether it is a ping, and whether that ping was answered already.
    pub(super) ping: Ping,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ping {
    No,
    Unanswered,
    Answered,
}

impl Inbound {
    /// What the handshake left over.
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

    /// Reads once, at most `limit` bytes, or what others have left of it meanwhile: so many bytes, 0 at the end of the stream, `None` when it has to be
    /// planned anew. Allocates nothing before there is something.
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
                Poll::Ready(Err(_)) | Poll::Pending => self.settle(port),
            }
            poll.map_ok(Some)
        })
        .await
    }

    /// What may be read now. All connections wait with the same room before them, and each that reads leaves less of it: once there is none, there is
    /// still the look-ahead of each, so that a small request arrives whole.
    fn room(&self, port: &Port, conn: ConnId) -> usize {
        if port.has_turn(conn) || !self.budget.is_full(Part::Outstanding) {
            READ_BYTES_MAX
        } else {
            LOOKAHEAD_BYTES.saturating_sub(self.buffer.len())
        }
    }

    /// The first frame, if it is whole.
    pub(super) fn next(&self, frame_bytes_max: usize) -> Result<Option<Next>, FrameError> {
        let next = frame_at(&self.buffer, frame_bytes_max)?;
        Ok(next.map(|next| match next.ping {
            Ping::Unanswered if self.searched > 0 => Next { ping: Ping::Answered, ..next },
            Ping::No | Ping::Unanswered | Ping::Answered => next,
        }))
    }

    /// Takes the first frame, which is whole, without its length.
    pub(super) fn take(&mut self, next: Next) -> Bytes {
        self.searched = self.searched.saturating_sub(next.bytes);
        self.taken_from = true;
        self.buffer.advance(4);
        self.buffer.split_to(next.bytes - 4).freeze()
    }

    /// Finds the next unanswered ping behind a frame that has to wait, and gives its xid.
    pub(super) fn take_ping(&mut self, frame_bytes_max: usize) -> Option<i32> {
        loop {
            let rest = &self.buffer[self.searched..];
            // A bad length here is found again when its turn comes.
            let next = frame_at(rest, frame_bytes_max).ok().flatten()?;
            let xid = rest[4..].first_chunk().copied().map(i32::from_be_bytes);
            self.searched += next.bytes;
            if next.ping == Ping::Unanswered {
                return xid;
            }
        }
    }

    /// Whether more than the look-ahead is needed to go on, so that the budget must allow it.
    pub(super) fn wants_much(&self) -> bool {
        self.buffer.len() >= LOOKAHEAD_BYTES
    }

    /// Charges what stays, and gives back what was borrowed. Nothing may be awaited between a read and this.
    pub(super) fn settle(&mut self, port: &Port) {
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

    /// Stops charging: what is decoded next is charged as requests.
    pub(super) fn uncharge(&mut self) {
        self.charge(0, 0);
    }

    fn charge(&mut self, bytes: u64, ahead: u64) {
        self.begun.fetch_add(bytes.wrapping_sub(self.charged), Relaxed);
        self.budget.recharge(Part::Outstanding, &mut self.charged, bytes);
        self.budget.recharge(Part::ConnectionBytes, &mut self.charged_ahead, ahead);
    }

    /// Makes room: in the shared buffer while little waits, in an own one that grows with what arrived otherwise. What
    /// a frame announces is not a reason to allocate.
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

/// The frame at the start of `bytes`, if it is whole.
fn frame_at(bytes: &[u8], frame_bytes_max: usize) -> Result<Option<Next>, FrameError> {
    let Some(length) = announced(bytes, frame_bytes_max)? else { return Ok(None) };
    let frame = &bytes[4..];
    if frame.len() < length {
        return Ok(None);
    }
    let is_ping = length >= 8 && frame[4..8] == Opcode::Ping.code().to_be_bytes();
    Ok(Some(Next { bytes: 4 + length, ping: if is_ping { Ping::Unanswered } else { Ping::No } }))
}
