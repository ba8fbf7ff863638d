//! What waits for one stream of one link to take it.

use super::lock;
use bytes::{Bytes, BytesMut};
use quinn::{SendStream, WriteError};
use std::mem;
use std::slice;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A peer that takes nothing while so much waits for it does not read. The machine itself never has more on the way to one peer than it means to.
const STUCK_BYTES: usize = 16 << 20;
/// For how long it takes nothing. A learner that writes a checkpoint still reads.
const STUCK: Duration = Duration::from_secs(1);
/// More than this does not wait for anybody, however fast it reads.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Whole frames in order. Filled by whoever has something to say, taken by the one task that writes the stream.
#[derive(Debug)]
pub(super) struct SendQueue {
    state: Mutex<State>,
    arrived: Notify,
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
    pub(super) fn new(waiting: BytesMut) -> Self {
        let state = State { waiting, in_writing: 0, progress: Instant::now(), is_ended: false };
        Self { state: Mutex::new(state), arrived: Notify::new() }
    }

    /// Adds what `encode` appends, about `bytes`, for the next [`SendQueue::wake`]: what is put until then is written at once.
    pub(super) fn put<T>(&self, bytes: usize, encode: impl FnOnce(&mut BytesMut) -> T) -> T {
        let mut state = lock(&self.state);
        if state.waiting.is_empty() && state.in_writing == 0 {
            state.progress = Instant::now();
        }
        state.waiting.reserve(bytes);
        encode(&mut state.waiting)
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
        let bytes = state.waiting.len() + state.in_writing;
        bytes > QUEUE_BYTES_MAX || bytes > STUCK_BYTES && now.duration_since(state.progress) > STUCK
    }

    /// Writes whatever comes, until the stream or the queue ends.
    pub(super) async fn write_to(&self, stream: &mut SendStream) -> Result<(), WriteError> {
        while let Some(mut bytes) = self.take().await {
            while !bytes.is_empty() {
                let written = stream.write_chunks(slice::from_mut(&mut bytes)).await?;
                let mut state = lock(&self.state);
                state.in_writing -= written.bytes;
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
