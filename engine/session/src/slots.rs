//! Reply slots, one per request in flight; reused, so a request allocates nothing.

use super::liveness::Sign;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use zoolet_machine::Budget;
use zoolet_machine::budget::Part;
use zoolet_model::{Reply, Request, RequestError};

/// An answer with the zxid of its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) zxid: i64,
    pub(super) reply: Reply,
}

/// A slot's index. The request's xid is the index plus one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotId(u32);

impl SlotId {
    pub(super) fn xid(self) -> i32 {
        i32::try_from(self.0 + 1).unwrap_or(i32::MAX)
    }

    /// Returns `None` for the xids of requests without a slot.
    pub(super) fn of_xid(xid: i32) -> Option<Self> {
        u32::try_from(xid).ok()?.checked_sub(1).map(Self)
    }
}

#[derive(Debug)]
enum Slot {
    Free,
    /// Not sent yet; waits for room.
    Queued {
        request: Request,
        waker: Option<Waker>,
        watch: Option<u64>,
    },
    /// Sent; its ticket still exists.
    Waiting {
        waker: Option<Waker>,
        watch: Option<u64>,
    },
    /// Sent; its ticket was dropped, but the answer still arrives.
    Abandoned {
        watch: Option<u64>,
    },
    Done(Result<Answer, RequestError>),
}

/// The slots of one session.
///
/// Invariants:
/// - `unanswered` is the number of Waiting and Abandoned slots, and their bytes are charged to the
///   budget.
/// - `queue` holds the Queued slots, which do not count against `capacity`.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Size of each slot's request in bytes. `signs` holds what each answer will show.
    bytes: Vec<u64>,
    signs: Vec<Sign>,
    free: Vec<SlotId>,
    queue: VecDeque<SlotId>,
    unanswered: usize,
    capacity: usize,
    budget: Arc<Budget>,
}

impl Slots {
    /// Creates an empty table that allocates its slots as they are needed.
    ///
    /// At most `capacity` slots are in use at a time, besides queued requests.
    pub(super) fn new(capacity: u32, budget: Arc<Budget>) -> Self {
        let capacity = capacity.clamp(1, i32::MAX as u32 - 1) as usize;
        Self {
            slots: Vec::new(),
            bytes: Vec::new(),
            signs: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            unanswered: 0,
            capacity,
            budget,
        }
    }

    /// Opens a slot for a request of `bytes` that arms `watch` when it succeeds.
    ///
    /// `sign` is the request as a sign of life. Returns `None` in three cases: all slots are in
    /// use, the requests of all connections use up the byte budget, or other requests of the
    /// session are queued.
    pub(super) fn open(&mut self, watch: Option<u64>, bytes: u64, sign: Sign) -> Option<SlotId> {
        if !self.queue.is_empty() || !self.charge_if_room(bytes) {
            return None;
        }
        let id = self.take_free(sign);
        self.slots[id.0 as usize] = Slot::Waiting { waker: None, watch };
        self.bytes[id.0 as usize] = bytes;
        Some(id)
    }

    /// Opens a slot for a request that waits for room, behind all queued requests.
    pub(super) fn queue(&mut self, request: Request, watch: Option<u64>, bytes: u64, sign: Sign) -> SlotId {
        let id = self.take_free(sign);
        self.slots[id.0 as usize] = Slot::Queued { request, waker: None, watch };
        self.bytes[id.0 as usize] = bytes;
        self.queue.push_back(id);
        id
    }

    /// Dequeues the oldest queued request if there is room to send it now.
    ///
    /// `sign` returns the sign of life for the request.
    pub(super) fn next_queued(&mut self, sign: impl FnOnce(&Request) -> Sign) -> Option<(SlotId, Request)> {
        let id = *self.queue.front()?;
        let bytes = self.bytes[id.0 as usize];
        if !self.charge_if_room(bytes) {
            return None;
        }
        self.queue.pop_front();
        let slot = &mut self.slots[id.0 as usize];
        let Slot::Queued { request, waker, watch } = std::mem::replace(slot, Slot::Free) else {
            unreachable!("{id:?} is in the queue")
        };
        *slot = Slot::Waiting { waker, watch };
        self.signs[id.0 as usize] = sign(&request);
        Some((id, request))
    }

    /// Counts one more sent request; returns `false` if there is no room for it.
    fn charge_if_room(&mut self, bytes: u64) -> bool {
        let in_use = self.slots.len() - self.free.len() - self.queue.len();
        if in_use >= self.capacity {
            return false;
        }
        if self.unanswered == 0 {
            // With nothing in flight, one request is always sent. Otherwise no answer would wake
            // the session.
            self.budget.charge(Part::Outstanding, bytes);
        } else if !self.budget.try_charge(Part::Outstanding, bytes) {
            return false;
        }
        self.unanswered += 1;
        true
    }

    fn take_free(&mut self, sign: Sign) -> SlotId {
        if let Some(id) = self.free.pop() {
            self.signs[id.0 as usize] = sign;
            return id;
        }
        self.slots.push(Slot::Free);
        self.bytes.push(0);
        self.signs.push(sign);
        SlotId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
    }

    /// Stores the answer in its slot and returns the waker to wake.
    ///
    /// If the ticket was dropped, the slot becomes free.
    pub(super) fn fill(&mut self, id: SlotId, answer: Result<Answer, RequestError>) -> Option<Waker> {
        if !self.is_open(id) {
            // Nothing asked for this answer. The machine has a bug that cannot be repaired here.
            debug_assert!(false, "slot {id:?} answered twice");
            return None;
        }
        self.unanswered -= 1;
        self.budget.release(Part::Outstanding, std::mem::take(&mut self.bytes[id.0 as usize]));
        let slot = &mut self.slots[id.0 as usize];
        match std::mem::replace(slot, Slot::Free) {
            Slot::Waiting { waker, .. } => {
                *slot = Slot::Done(answer);
                waker
            }
            Slot::Abandoned { .. } => {
                self.free.push(id);
                None
            }
            Slot::Free | Slot::Queued { .. } | Slot::Done(_) => None,
        }
    }

    /// Returns the watch that the request in this slot arms.
    pub(super) fn watch_of(&self, id: SlotId) -> Option<u64> {
        match self.slots.get(id.0 as usize)? {
            Slot::Waiting { watch, .. } | Slot::Abandoned { watch } => *watch,
            Slot::Free | Slot::Queued { .. } | Slot::Done(_) => None,
        }
    }

    /// Returns what the answer in this slot will show; `None` if none is due.
    pub(super) fn sign_of(&self, id: SlotId) -> Option<Sign> {
        self.is_open(id).then(|| self.signs[id.0 as usize])
    }

    /// Fails every unanswered request with `error`; returns the wakers to wake.
    pub(super) fn fail_all(&mut self, error: RequestError) -> Vec<Waker> {
        let open = (0..self.slots.len()).filter_map(|index| u32::try_from(index).ok().map(SlotId));
        let open: Vec<SlotId> = open.filter(|id| self.is_open(*id)).collect();
        open.into_iter().filter_map(|id| self.fill(id, Err(error))).collect()
    }

    /// Fails every queued request without sending it; returns the wakers to wake.
    pub(super) fn refuse_queued(&mut self, error: RequestError) -> Vec<Waker> {
        let refuse = |id: SlotId| match std::mem::replace(&mut self.slots[id.0 as usize], Slot::Done(Err(error))) {
            Slot::Queued { waker, .. } => waker,
            Slot::Free | Slot::Waiting { .. } | Slot::Abandoned { .. } | Slot::Done(_) => None,
        };
        self.queue.drain(..).filter_map(refuse).collect()
    }

    fn is_open(&self, id: SlotId) -> bool {
        matches!(self.slots.get(id.0 as usize), Some(Slot::Waiting { .. } | Slot::Abandoned { .. }))
    }

    pub(super) fn poll(&mut self, id: SlotId, context: &Context<'_>) -> Poll<Result<Answer, RequestError>> {
        let Some(slot) = self.slots.get_mut(id.0 as usize) else {
            return Poll::Ready(Err(RequestError::ConnectionLoss));
        };
        if let Slot::Waiting { waker, .. } | Slot::Queued { waker, .. } = slot {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(slot, Slot::Free) {
            Slot::Done(answer) => {
                self.free.push(id);
                Poll::Ready(answer)
            }
            Slot::Free | Slot::Queued { .. } | Slot::Waiting { .. } | Slot::Abandoned { .. } => {
                Poll::Ready(Err(RequestError::ConnectionLoss))
            }
        }
    }

    /// Records that the slot's ticket was dropped.
    pub(super) fn abandon(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get_mut(id.0 as usize) else { return };
        match std::mem::replace(slot, Slot::Free) {
            Slot::Waiting { watch, .. } | Slot::Abandoned { watch } => {
                *slot = Slot::Abandoned { watch };
            }
            Slot::Queued { .. } => {
                self.queue.retain(|queued| *queued != id);
                self.free.push(id);
            }
            Slot::Done(_) => self.free.push(id),
            Slot::Free => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::Shows;
    use zoolet_machine::Limits;

    const SIGN: Sign = Sign { sent: std::time::Duration::ZERO, shows: Shows::Nothing };

    fn answer() -> Result<Answer, RequestError> {
        Ok(Answer { zxid: 1, reply: Reply::Empty })
    }

    fn slots(capacity: u32, outstanding_bytes_max: u32) -> Slots {
        let limits = Limits { outstanding_bytes_max, ..Limits::default() };
        Slots::new(capacity, Arc::new(Budget::new(&limits)))
    }

    #[test]
    fn requests_in_flight_are_bounded_in_bytes_but_one_always_fits() {
        let mut slots = slots(10, 100);
        let large = slots.open(None, 150, SIGN).unwrap();
        assert_eq!(slots.open(None, 1, SIGN), None);
        slots.fill(large, answer());
        let first = slots.open(None, 60, SIGN).unwrap();
        assert_eq!(slots.open(None, 60, SIGN), None);
        slots.open(None, 40, SIGN).unwrap();
        slots.fill(first, answer());
        slots.open(None, 60, SIGN).unwrap();
        slots.fail_all(RequestError::ConnectionLoss);
        assert_eq!(slots.budget.current(Part::Outstanding), 0);
    }

    #[test]
    fn slot_is_reused_only_after_its_reply_arrived_and_was_taken() {
        let context = Context::from_waker(Waker::noop());
        let mut slots = slots(2, 1000);
        let first = slots.open(None, 1, SIGN).unwrap();
        let second = slots.open(None, 1, SIGN).unwrap();
        assert_eq!(slots.open(None, 1, SIGN), None);
        assert!(slots.poll(first, &context).is_pending());
        slots.fill(first, answer());
        assert_eq!(slots.open(None, 1, SIGN), None);
        assert_eq!(slots.poll(first, &context), Poll::Ready(answer()));
        assert_eq!(slots.open(None, 1, SIGN), Some(first));
        slots.abandon(second);
        assert_eq!(slots.open(None, 1, SIGN), None);
        slots.fill(second, answer());
        assert_eq!(slots.open(None, 1, SIGN), Some(second));
    }

    #[test]
    fn slot_xids_are_positive_and_other_xids_map_to_no_slot() {
        assert_eq!(SlotId(0).xid(), 1);
        assert_eq!(SlotId::of_xid(1), Some(SlotId(0)));
        assert_eq!((SlotId::of_xid(0), SlotId::of_xid(-2)), (None, None));
    }
}
