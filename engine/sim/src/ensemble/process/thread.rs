//! A thread that does one thing after another. How long a thing takes is decided when it begins: what was asked of a slow disk does not stay
//! slow when the disk is mended.

use std::collections::VecDeque;

/// What waits for it, and whether something is under way.
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
    /// After whatever was asked before this.
    pub(super) fn ask(&mut self, work: W) {
        self.waiting.push_back(work);
    }

    /// What begins now.
    pub(super) fn begin(&mut self) -> Option<W> {
        let work = if self.is_busy { None } else { self.waiting.pop_front() };
        self.is_busy |= work.is_some();
        work
    }

    /// What was under way is done.
    pub(super) fn end(&mut self) {
        self.is_busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_at_a_time_and_in_order() {
        let mut thread = Thread::default();
        thread.ask("a");
        thread.ask("b");
        assert_eq!((thread.begin(), thread.begin()), (Some("a"), None));
        thread.end();
        assert_eq!((thread.begin(), thread.begin()), (Some("b"), None));
    }
}
