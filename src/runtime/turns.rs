//! Runs the machine's turns on the core thread, or on a thread that brings it a little work.
//!
//! Waking a sleeping thread takes longer than most requests: a lone write would wait for the core
//! thread twice. So a thread with a little work that finds the core thread asleep locks the machine
//! for one turn. There is one lock, so the machine still handles one event after another.
//!
//! A thread with more work hands it over. The core thread does what is long, while the other
//! threads read, persist and send.

use super::Input;
use super::core::{Core, Flow};
use super::threads::{Failure, Shared, message};
use super::{clock, lock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// Maximum number of events, or of persisted entries, that count as little work.
pub(super) const LITTLE: usize = 4;

/// Maximum number of unapplied entries for a turn that counts as little work.
///
/// One event may let a turn apply all of them.
const LITTLE_TO_APPLY: usize = 32;

/// The thread that runs a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Driver {
    /// The core thread.
    Core,
    /// The io thread, which reads clients' requests.
    #[cfg(feature = "port")]
    Reader,
    /// The links' thread, which reads peers' messages.
    #[cfg(feature = "ensemble")]
    Peers,
    /// The log thread, after it has made entries durable.
    ///
    /// It has time to send a little: its next work is still on its way from the clients.
    Persister,
}

/// The machine, and when its next turn is due.
#[derive(Default)]
pub(super) struct MachineLock(Mutex<Option<Driven>>);

#[cfg(test)]
impl MachineLock {
    /// Returns when the core thread wakes without input; `None`: never.
    pub(super) fn wakes_ms(&self) -> Option<u64> {
        lock(&self.0).as_ref()?.wakes_ms
    }
}

struct Driven {
    core: Box<Core>,
    /// When the core thread wakes without input, on [`zoolet_machine::Now::mono_ms`]; `None`: never.
    wakes_ms: Option<u64>,
    /// Set by the last turn.
    ended: Option<Result<(), Failure>>,
}

impl Driven {
    /// Handles all waiting inputs and all due work. A panic in the machine ends it, on any thread.
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

    /// Returns whether the core thread must wake earlier than planned.
    fn wants_the_core_thread(&self) -> bool {
        let due_ms = self.core.due_ms();
        self.ended.is_some() || due_ms.is_some_and(|due| self.wakes_ms.is_none_or(|wakes| due < wakes))
    }
}

impl Shared {
    /// Runs turns on the core thread until the last one. Returns the machine and why it ended.
    pub(super) fn drive(&self, core: Core) -> (Core, Result<(), Failure>) {
        *lock(&self.machine.0) = Some(Driven { core: Box::new(core), wakes_ms: None, ended: None });
        loop {
            let patience = match self.before_sleep() {
                Ok(patience) => patience,
                Err((core, ended)) => return (*core, ended),
            };
            self.inbox.wait(patience);
            if let Some(driven) = &mut *lock(&self.machine.0) {
                driven.turn(Driver::Core);
            }
        }
    }

    /// Returns how long the core thread may sleep, or the machine after its last turn.
    #[allow(clippy::type_complexity, reason = "what drive gives, boxed")]
    fn before_sleep(&self) -> Result<Option<Duration>, (Box<Core>, Result<(), Failure>)> {
        let mut machine = lock(&self.machine.0);
        match machine.take() {
            Some(Driven { core, ended: Some(ended), .. }) => Err((core, ended)),
            Some(mut driven) => {
                driven.wakes_ms = driven.core.due_ms();
                let patience = driven.wakes_ms.map(|due| Duration::from_millis(due.saturating_sub(clock::mono_ms())));
                *machine = Some(driven);
                Ok(patience)
            }
            None => unreachable!("only the core thread takes the machine away"),
        }
    }

    /// Brings inputs to the machine.
    ///
    /// With `is_little`, and if the core thread sleeps, this thread handles them at once.
    pub(super) fn bring(&self, inputs: impl ExactSizeIterator<Item = Input>, is_little: bool, by: Driver) {
        if !is_little {
            self.inbox.push_all(inputs);
        } else if self.inbox.leave_all(inputs) && !self.take_a_turn(by) {
            self.inbox.nudge();
        }
    }

    /// Runs one turn on this thread.
    ///
    /// Returns false if another thread has locked the machine or there may be much to apply.
    fn take_a_turn(&self, by: Driver) -> bool {
        let mut machine = match self.machine.0.try_lock() {
            Ok(machine) => machine,
            Err(TryLockError::Poisoned(machine)) => machine.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Some(driven) = machine.as_mut().filter(|driven| driven.core.unapplied() <= LITTLE_TO_APPLY) else {
            return false;
        };
        driven.turn(by);
        if driven.wants_the_core_thread() {
            self.inbox.nudge();
        }
        drop(machine);
        #[cfg(feature = "port")]
        if let Some(sockets) = &self.sockets {
            sockets.after_turn(by);
        }
        true
    }
}
