//! A thread that does one piece of work after another.
//!
//! The duration of a piece of work is decided when it begins. So work that was requested from a
//! slow disk does not stay slow once the disk is mended.

use std::collections::VecDeque;

/// Queued work, and whether some is in progress.
#[derive(Debug)]
pub(super) struct Thread<W> {
    waiting: VecDeque<W>,
    is_busy: bool,
}

impl<W> Default for Thread<W> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), is_busy: false }
    }
}

impl<W> Thread<W> {
    /// Queues work behind everything requested before.
    pub(super) fn ask(&mut self, work: W) {
        self.waiting.push_back(work);
    }

    /// Starts the next work, if the thread is idle.
    pub(super) fn begin(&mut self) -> Option<W> {
        let work = if self.is_busy { None } else { self.waiting.pop_front() };
        self.is_busy |= work.is_some();
        work
    }

    /// Ends the work in progress.
    pub(super) fn end(&mut self) {
        self.is_busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_runs_one_task_at_a_time_in_order() {
        let mut thread = Thread::default();
        thread.ask("a");
        thread.ask("b");
        assert_eq!((thread.begin(), thread.begin()), (Some("a"), None));
        thread.end();
        assert_eq!((thread.begin(), thread.begin()), (Some("b"), None));
    }
}
