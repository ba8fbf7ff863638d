//! The ordered send queue of one connection.

use bytes::{Buf, BytesMut};
use std::collections::VecDeque;

/// Encoded messages, with holes for answers that are completed later.
///
/// Invariant: only `ready` may be written. Everything after the first hole is in `held`, in order.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    ready: BytesMut,
    /// Bytes written from the front of `ready`'s buffer, still allocated.
    spent: usize,
    held: VecDeque<Held>,
    held_bytes: usize,
}

/// A hole, and the bytes that wait behind it.
#[derive(Debug)]
struct Held {
    ticket: u64,
    /// The hole's answer, kept here while an earlier hole is open.
    filling: Option<BytesMut>,
    after: BytesMut,
    /// Number of answers in `after`.
    answers: usize,
}

/// Number of answers that became writable. Their requests are no longer outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub(super) struct Answered(pub(super) usize);

impl Outgoing {
    /// Returns the queued bytes, those behind holes included.
    pub(super) fn queued(&self) -> usize {
        self.ready.len() + self.held_bytes
    }

    /// Returns the bytes of memory that the queue takes.
    pub(super) fn bytes(&self) -> usize {
        self.queued() + self.spent
    }

    /// Returns the bytes that may be written now.
    pub(super) fn ready(&self) -> &[u8] {
        &self.ready
    }

    /// Whether neither bytes nor holes are queued.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.held.is_empty()
    }

    /// Whether the next append needs a buffer first.
    pub(super) fn has_no_buffer(&self) -> bool {
        self.ready.capacity() == 0
    }

    /// Lends the queue a buffer.
    pub(super) fn lend(&mut self, buffer: BytesMut) {
        debug_assert!(buffer.is_empty() && self.ready.is_empty());
        self.ready = buffer;
    }

    /// Returns the lent buffer once everything in it is written.
    pub(super) fn give_back(&mut self) -> Option<BytesMut> {
        (self.ready.is_empty() && !self.has_no_buffer()).then(|| {
            self.spent = 0;
            let mut buffer = std::mem::take(&mut self.ready);
            buffer.clear();
            buffer
        })
    }

    /// Marks the first `bytes` of `ready` as written.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.ready.advance(bytes);
        self.spent += bytes;
    }

    /// Frees the memory of written bytes if that is worth the copy.
    ///
    /// It is when they exceed a quarter of the unwritten bytes, which must be moved.
    pub(super) fn compact(&mut self) {
        if self.spent > self.ready.len() / 4 {
            self.ready = BytesMut::from(&self.ready[..]);
            self.spent = 0;
        }
    }

    /// Appends an answer.
    pub(super) fn answer(&mut self, write: impl FnOnce(&mut BytesMut)) -> Answered {
        match self.append(write) {
            Some(held) => {
                held.answers += 1;
                Answered(0)
            }
            None => Answered(1),
        }
    }

    /// Appends a message that answers no request.
    pub(super) fn event(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.append(write);
    }

    /// Leaves a hole for the next answer.
    pub(super) fn hold(&mut self, ticket: u64) {
        self.held.push_back(Held { ticket, filling: None, after: BytesMut::new(), answers: 0 });
    }

    /// Fills the hole `ticket`; `None` if that hole does not exist.
    pub(super) fn fill(&mut self, ticket: u64, write: impl FnOnce(&mut BytesMut)) -> Option<Answered> {
        let position = self.held.iter().position(|held| held.ticket == ticket && held.filling.is_none())?;
        if position > 0 {
            let mut filling = BytesMut::new();
            write(&mut filling);
            self.held_bytes += filling.len();
            self.held[position].filling = Some(filling);
            return Some(Answered(0));
        }
        write(&mut self.ready);
        let mut answered = self.release_first();
        while self.held.front().is_some_and(|held| held.filling.is_some()) {
            answered += self.release_first();
        }
        if self.held.is_empty() {
            self.held = VecDeque::new();
        }
        Some(Answered(answered))
    }

    /// Moves the first hole's bytes to `ready`; returns the number of answers, the hole's included.
    fn release_first(&mut self) -> usize {
        let Some(held) = self.held.pop_front() else { return 0 };
        for bytes in held.filling.iter().chain([&held.after]) {
            self.held_bytes -= bytes.len();
            self.ready.extend_from_slice(bytes);
        }
        // The caller wrote this filling to `ready` directly, so `held_bytes` never included it.
        1 + held.answers
    }

    /// Appends at the end; returns the last hole if the bytes are behind one.
    fn append(&mut self, write: impl FnOnce(&mut BytesMut)) -> Option<&mut Held> {
        let Some(held) = self.held.back_mut() else {
            let before = self.ready.as_ptr();
            write(&mut self.ready);
            if self.ready.as_ptr() != before {
                // The buffer was reallocated, which freed the written bytes.
                self.spent = 0;
            }
            return None;
        };
        let before = held.after.len();
        write(&mut held.after);
        self.held_bytes += held.after.len() - before;
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(text: &'static str) -> impl FnOnce(&mut BytesMut) {
        |out| out.extend_from_slice(text.as_bytes())
    }

    #[test]
    fn bytes_behind_a_pending_reply_wait_for_it() {
        let mut out = Outgoing::default();
        assert_eq!(out.answer(put("a")), Answered(1));
        out.hold(1);
        out.event(put("b"));
        assert_eq!(out.answer(put("c")), Answered(0));
        assert_eq!((out.ready(), out.queued()), (b"a".as_slice(), 3));
        assert_eq!(out.fill(2, put("x")), None);
        assert_eq!(out.fill(1, put("1")), Some(Answered(2)));
        assert_eq!((out.ready(), out.queued()), (b"a1bc".as_slice(), 4));
        assert_eq!(out.answer(put("d")), Answered(1));
    }

    #[test]
    fn replies_completed_out_of_order_are_sent_in_order() {
        let mut out = Outgoing::default();
        out.hold(1);
        out.hold(2);
        assert_eq!(out.answer(put("after two")), Answered(0));
        out.hold(3);
        assert_eq!(out.fill(2, put("two ")), Some(Answered(0)));
        assert_eq!(out.fill(2, put("again")), None);
        assert_eq!((out.ready(), out.queued()), (b"".as_slice(), 13));
        assert_eq!(out.fill(1, put("one ")), Some(Answered(3)));
        assert_eq!(out.ready(), b"one two after two");
        assert_eq!(out.fill(3, put(" three")), Some(Answered(1)));
        assert_eq!((out.ready(), out.queued()), (b"one two after two three".as_slice(), 23));
    }

    #[test]
    fn sent_bytes_of_a_long_queue_are_released() {
        let mut out = Outgoing::default();
        let _ = out.answer(|bytes| bytes.extend_from_slice(&[7; 1000]));
        out.advance(100);
        out.compact();
        assert_eq!((out.queued(), out.bytes()), (900, 1000));
        out.advance(300);
        out.compact();
        assert_eq!((out.queued(), out.bytes(), out.ready()), (600, 600, [7; 600].as_slice()));
    }

    #[test]
    fn output_buffer_is_kept_only_while_bytes_are_queued() {
        let mut out = Outgoing::default();
        assert!(out.has_no_buffer());
        out.lend(BytesMut::with_capacity(64));
        assert_eq!(out.answer(put("abc")), Answered(1));
        out.advance(2);
        assert!(out.give_back().is_none());
        out.advance(1);
        assert!(out.give_back().is_some() && out.has_no_buffer());
    }
}
