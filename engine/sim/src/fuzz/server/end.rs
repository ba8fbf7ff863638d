//! The end of a run: all work in flight ends, all clients leave, and nothing is left.

use super::Run;
use zoolet_machine::budget::Part;
use zoolet_machine::{Budget, Event};

/// Maximum number of turns in which all work in flight must end.
const TURNS_MAX: u32 = 20_000;
/// Time in which a server that stepped aside must lead again, in ms: its longest pause between two
/// attempts is 2 s.
const LEADS_AGAIN_MS_MAX: u64 = 5000;

impl Run {
    /// Completes all work in flight at once, successfully.
    pub(super) fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            let unpersisted = self.log.last().map(|logged| logged.seq).filter(|seq| *seq > self.persisted);
            if self.failed {
                return;
            } else if std::mem::take(&mut self.stalled) {
                self.happen(Event::LogResumed);
            } else if let Some(seq) = unpersisted {
                self.persisted_up_to(seq, 0);
            } else if !self.fetches.is_empty() {
                self.answered(0, None);
            } else if let Some(checkpoint) = self.checkpoint.take() {
                self.checkpointed(&checkpoint);
            } else if !self.completions.is_empty() {
                self.completed(0, true);
            } else if self.server.next_deadline().is_some_and(|due_ms| due_ms <= self.now.mono_ms) {
                self.deadline();
            } else {
                return;
            }
        }
        panic!("nothing settles: {:?}", self.server);
    }

    pub(super) fn everybody_was_answered(&mut self) {
        // Withdraws the exaggerated log use. A failed checkpoint that other work waits for is
        // retried.
        let persisted = self.persisted;
        self.persisted_up_to(persisted, 0);
        self.settle();
        self.lead_again();
        for (conn, client) in self.clients.iter().filter(|(_, client)| !client.closed) {
            assert!(client.connected, "{conn:?} never heard anything: {:?}", self.server);
            assert!(client.unanswered.is_empty(), "{conn:?} waits for {:?}: {:?}", client.unanswered, self.server);
        }
    }

    /// Lets time pass until the server leads. It has stepped aside if an append took 1 s, and its new
    /// clients wait until it leads again.
    fn lead_again(&mut self) {
        let latest_ms = self.now.mono_ms + LEADS_AGAIN_MS_MAX;
        while !self.failed && !self.server.is_serving() {
            let due_ms = self.server.next_deadline().filter(|&due_ms| due_ms <= latest_ms);
            let due_ms = due_ms.unwrap_or_else(|| panic!("it never leads again: {:?}", self.server));
            self.now.mono_ms = self.now.mono_ms.max(due_ms);
            self.deadline();
            self.settle();
        }
    }

    /// Ends all connections, and then lets all sessions expire.
    pub(super) fn everybody_leaves(&mut self) {
        for conn in std::mem::take(&mut self.clients).into_keys() {
            self.happen(Event::Disconnected { conn });
        }
        if self.space_is_short {
            // While space is short, checkpoints are retried forever.
            self.room(false);
        }
        self.settle();
        for _ in 0..TURNS_MAX {
            let Some(due_ms) = self.server.next_deadline() else { return };
            self.now.mono_ms = self.now.mono_ms.max(due_ms);
            self.deadline();
            self.settle();
            if self.failed {
                return;
            }
        }
        panic!("never idle: {:?}", self.server);
    }

    pub(super) fn nothing_is_left(&mut self) {
        assert_eq!(self.server.sessions(), 0);
        assert_eq!(self.server.unapplied(), 0);
        self.replica.check();
        assert_eq!(self.replica.totals.ephemerals, 0, "ephemerals go with their sessions");
        let budget = Budget::new(&self.conditions.limits);
        self.server.account(&budget);
        for part in [Part::Sessions, Part::Watches, Part::Unapplied, Part::Fetches, Part::Completing] {
            assert_eq!(budget.current(part), 0, "{}", part.name());
        }
        assert_eq!(self.server.under_way(), 0, "{:?}", self.server);
    }
}
