//! Bytes that wait for one stream of a link.

use super::lock;
use bytes::{Bytes, BytesMut};
use quinn::{SendStream, WriteError};
use std::mem;
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use zoolet_machine::Budget;
use zoolet_machine::budget::Part;

/// Bytes that must wait before a stalled peer counts as not reading.
///
/// The engine itself bounds the bytes it has in flight to one peer.
const STUCK_BYTES: usize = 16 << 20;
/// Time without progress before a peer counts as not reading.
///
/// A learner that writes a checkpoint still reads.
const STUCK: Duration = Duration::from_secs(1);
/// Bounds of a queue.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// Maximum bytes that may wait in one queue, however fast the peer reads.
    pub(super) bytes_max: usize,
    pub(super) budget: Arc<Budget>,
}

/// Complete frames, in order. Any task may append; one task writes them to the stream.
#[derive(Debug)]
pub(super) struct SendQueue {
    state: Mutex<State>,
    arrived: Notify,
    room: Room,
}

#[derive(Debug)]
struct State {
    waiting: BytesMut,
    /// Bytes handed to the writer and not yet taken by the stream.
    in_writing: usize,
    /// When the stream last took bytes, or had none left to take.
    progress: Instant,
    /// Set when no more frames will come.
    is_ended: bool,
}

impl SendQueue {
    /// Returns a queue that starts with `waiting`.
    pub(super) fn new(waiting: BytesMut, room: &Room) -> Self {
        room.budget.charge(Part::Links, waiting.len() as u64);
        let state = State { waiting, in_writing: 0, progress: Instant::now(), is_ended: false };
        Self { state: Mutex::new(state), arrived: Notify::new(), room: room.clone() }
    }

    /// Appends the output of `encode`, about `bytes` long. The next [`SendQueue::wake`] writes it.
    ///
    /// All appends before that call are written together.
    pub(super) fn put<T>(&self, bytes: usize, encode: impl FnOnce(&mut BytesMut) -> T) -> T {
        let mut state = lock(&self.state);
        if state.waiting.is_empty() && state.in_writing == 0 {
            state.progress = Instant::now();
        }
        state.waiting.reserve(bytes);
        let before = state.waiting.len();
        let result = encode(&mut state.waiting);
        self.room.budget.charge(Part::Links, (state.waiting.len() - before) as u64);
        result
    }

    /// Wakes the task that writes.
    pub(super) fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Finishes the stream after the queued bytes.
    pub(super) fn end(&self) {
        lock(&self.state).is_ended = true;
        self.wake();
    }

    /// Returns whether the peer does not read.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        let state = lock(&self.state);
        let bytes = state.bytes();
        bytes > self.room.bytes_max || bytes > STUCK_BYTES && now.duration_since(state.progress) > STUCK
    }

    /// Writes the queue to `stream`, until either ends.
    pub(super) async fn write_to(&self, stream: &mut SendStream) -> Result<(), WriteError> {
        while let Some(mut bytes) = self.take().await {
            while !bytes.is_empty() {
                let written = stream.write_chunks(slice::from_mut(&mut bytes)).await?;
                let mut state = lock(&self.state);
                state.in_writing -= written.bytes;
                self.room.budget.release(Part::Links, written.bytes as u64);
                state.progress = Instant::now();
            }
        }
        Ok(())
    }

    /// Waits for bytes and takes all of them; `None` at the queue's end.
    async fn take(&self) -> Option<Bytes> {
        loop {
            let is_ended = {
                let mut state = lock(&self.state);
                if !state.waiting.is_empty() {
                    state.in_writing = state.waiting.len();
                    // Moves the allocation out too, so that an idle link holds none after a burst.
                    return Some(mem::take(&mut state.waiting).freeze());
                }
                state.is_ended
            };
            if is_ended {
                return None;
            }
            self.arrived.notified().await;
        }
    }
}

impl State {
    fn bytes(&self) -> usize {
        self.waiting.len() + self.in_writing
    }
}

impl Drop for SendQueue {
    fn drop(&mut self) {
        let left = lock(&self.state).bytes();
        self.room.budget.release(Part::Links, left as u64);
    }
}
