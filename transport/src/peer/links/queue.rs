//! What waits for one stream of one link to take it.

use super::lock;
use bytes::{Bytes, BytesMut};
use quinn::{SendStream, WriteError};
use std::mem;
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use zoolet_engine::Budget;
use zoolet_engine::budget::Part;

/// A peer that takes nothing while so much waits for it does not read. The machine itself never has more on the way to one peer than it means to.
const STUCK_BYTES: usize = 16 << 20;
/// For how long it takes nothing. A learner that writes a checkpoint still reads.
const STUCK: Duration = Duration::from_secs(1);
/// What may wait.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// More than this does not wait for anybody in one queue, however fast it reads.
    pub(super) bytes_max: usize,
    pub(super) budget: Arc<Budget>,
}

/// Whole frames in order. Filled by whoever has something to say, taken by the one task that writes the stream.
#[derive(Debug)]
pub(super) struct SendQueue {
    state: Mutex<State>,
    arrived: Notify,
    room: Room,
}

#[derive(Debug)]
struct State {
    waiting: BytesMut,
    /// Bytes that were taken to be written, and are not.
    in_writing: usize,
    /// When the stream last took something, or had taken everything.
    progress: Instant,
    /// Nothing comes any more.
    is_ended: bool,
}

impl SendQueue {
    /// With what goes first.
    pub(super) fn new(waiting: BytesMut, room: &Room) -> Self {
        room.budget.charge(Part::Links, waiting.len() as u64);
        let state = State { waiting, in_writing: 0, progress: Instant::now(), is_ended: false };
        Self { state: Mutex::new(state), arrived: Notify::new(), room: room.clone() }
    }

    /// Adds what `encode` appends, about `bytes`, for the next [`SendQueue::wake`]: what is put until then is written at once.
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

    /// Has it written.
    pub(super) fn wake(&self) {
        self.arrived.notify_one();
    }

    /// After what is here the stream is finished.
    pub(super) fn end(&self) {
        lock(&self.state).is_ended = true;
        self.wake();
    }

    /// Whether its peer does not read.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        let state = lock(&self.state);
        let bytes = state.bytes();
        bytes > self.room.bytes_max || bytes > STUCK_BYTES && now.duration_since(state.progress) > STUCK
    }

    /// Writes whatever comes, until the stream or the queue ends.
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

    /// All that waits, as soon as there is something.
    async fn take(&self) -> Option<Bytes> {
        loop {
            let is_ended = {
                let mut state = lock(&self.state);
                if !state.waiting.is_empty() {
                    state.in_writing = state.waiting.len();
                    // The buffer goes with its bytes: after a burst an idle link holds none.
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
