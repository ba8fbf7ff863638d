//! Who drives the machine: the core thread; and, when that sleeps and there is little to do, whoever brings it.
//!
//! Waking a sleeping thread takes longer than most requests: one write, alone, would wait for the core thread twice. So a thread that brings a
//! little and finds the core thread asleep takes the seat for one turn. There is one seat, so the machine still sees one event after
//! another. Whoever brings more hands it over: what is long is done by the core thread, while the others read, persist and send.

use super::Input;
use super::core::{Core, Flow};
use super::threads::{Failure, Shared, message};
use super::{clock, lock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// How many events, and entries persisted, are little.
pub(super) const LITTLE: usize = 4;

/// A turn may apply all entries that are not applied, and one event may let it: with more of them there is much to do.
const LITTLE_TO_APPLY: usize = 32;

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Driver {
    /// The core thread's.
    Core,
    /// Who reads what clients ask.
    #[cfg(feature = "port")]
    Reader,
    /// Who reads what peers say.
    Peers,
    /// Who made entries durable. It has time to send a little: what comes next is on its way from the clients.
    Persister,
}

/// The machine's place, and what is known about its next turn.
#[derive(Default)]
pub(super) struct Seat(Mutex<Option<Seated>>);

struct Seated {
    core: Box<Core>,
    /// When the core thread wakes by itself, on [`zoolet_engine::Now::mono_ms`]; `None` for never.
    wakes_ms: Option<u64>,
    /// Set by the turn that was the last.
    ended: Option<Result<(), Failure>>,
}

impl Seated {
    /// Handles all there is, and judges what time has passed. A panic in the machine is the end of it, on whatever thread it happens.
    fn turn(&mut self, by: Driver) {
        if self.ended.is_some() {
            return;
        }
        let turn = catch_unwind(AssertUnwindSafe(|| self.core.turn(by)));
        self.ended = match turn {
            Ok(Ok(Flow::On)) => None,
            Ok(Ok(Flow::End)) => Some(Ok(())),
            Ok(Err(failure)) => Some(Err(failure)),
            Err(panic) => Some(Err(Failure::Bug(message(&*panic)))),
        };
    }

    /// Whether the core thread must be up before it would wake.
    fn wants_the_core_thread(&self) -> bool {
        let due_ms = self.core.due_ms();
        self.ended.is_some() || due_ms.is_some_and(|due| self.wakes_ms.is_none_or(|wakes| due < wakes))
    }
}

impl Shared {
    /// The core thread's life: turns until one of them was the last. Gives the machine back, and why it ended.
    pub(super) fn drive(&self, core: Core) -> (Core, Result<(), Failure>) {
        *lock(&self.seat.0) = Some(Seated { core: Box::new(core), wakes_ms: None, ended: None });
        loop {
            let patience = match self.before_sleep() {
                Ok(patience) => patience,
                Err((core, ended)) => return (*core, ended),
            };
            self.inbox.wait(patience);
            if let Some(seated) = &mut *lock(&self.seat.0) {
                seated.turn(Driver::Core);
            }
        }
    }

    /// How long the core thread may sleep; or the machine, when a turn was its last.
    #[allow(clippy::type_complexity, reason = "what drive gives, boxed")]
    fn before_sleep(&self) -> Result<Option<Duration>, (Box<Core>, Result<(), Failure>)> {
        let mut seat = lock(&self.seat.0);
        match seat.take() {
            Some(Seated { core, ended: Some(ended), .. }) => Err((core, ended)),
            Some(mut seated) => {
                seated.wakes_ms = seated.core.due_ms();
                let patience = seated.wakes_ms.map(|due| Duration::from_millis(due.saturating_sub(clock::mono_ms())));
                *seat = Some(seated);
                Ok(patience)
            }
            None => unreachable!("only the core thread takes the machine away"),
        }
    }

    /// Brings something to the machine. `is_little`: it is handled here and now if the core thread sleeps.
    pub(super) fn bring(&self, inputs: impl ExactSizeIterator<Item = Input>, is_little: bool, by: Driver) {
        if !is_little {
            self.inbox.push_all(inputs);
        } else if self.inbox.leave_all(inputs) && !self.take_a_turn(by) {
            self.inbox.nudge();
        }
    }

    /// One turn of the machine on this thread; false when another one drives it.
    fn take_a_turn(&self, by: Driver) -> bool {
        let mut seat = match self.seat.0.try_lock() {
            Ok(seat) => seat,
            Err(TryLockError::Poisoned(seat)) => seat.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Some(seated) = seat.as_mut().filter(|seated| seated.core.unapplied() <= LITTLE_TO_APPLY) else {
            return false;
        };
        seated.turn(by);
        if seated.wants_the_core_thread() {
            self.inbox.nudge();
        }
        drop(seat);
        #[cfg(feature = "port")]
        if let Some(sockets) = &self.sockets {
            sockets.after_turn(by);
        }
        true
    }
}
