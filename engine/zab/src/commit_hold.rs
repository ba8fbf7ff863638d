//! Decides when a Commit waits for the next Proposal, which carries the commit watermark too.
//!
//! A Commit of its own costs a datagram to each learner. While entries follow each other closely, it
//! tells the learner nothing that the next Proposal does not. So a leader holds it back once many
//! consecutive entries came that closely. When they stop, the last Commit leaves after [`HOLD_MS`].

use crate::peer::Stage;
use crate::zab::State;
use crate::{Message, Mutation, ServerId, Zab, Zxid, mutation};

/// Maximum time for which a Commit waits, in milliseconds.
const HOLD_MS: u64 = 2;

/// The pace of a leader's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CommitHold {
    /// When the watermark rose last, unless an entry was proposed since.
    committed_ms: Option<u64>,
    /// Number of consecutive entries that were proposed within [`HOLD_MS`] of the latest commit.
    ///
    /// Of several entries between two commits, only the first counts.
    in_time: u32,
    /// End of the current hold.
    until_ms: Option<u64>,
}

impl CommitHold {
    /// Notes a proposed entry, whose Proposal carries the watermark.
    pub(crate) fn propose(&mut self, now: u64) {
        if let Some(committed_ms) = self.committed_ms.take() {
            let is_in_time = now.saturating_sub(committed_ms) <= HOLD_MS;
            self.in_time = if is_in_time { self.in_time.saturating_add(1) } else { 0 };
        }
        self.until_ms = None;
    }

    /// Notes that the watermark rose. A hold begins once `in_time` has reached `entries`.
    pub(crate) fn commit(&mut self, now: u64, entries: u32) {
        self.committed_ms = Some(now);
        if self.in_time >= entries {
            self.until_ms.get_or_insert(now + HOLD_MS);
        }
    }

    /// Ends the hold if its time is over. The count then starts from zero.
    pub(crate) fn judge(&mut self, now: u64) {
        if mutation::is_on(Mutation::HeldForEver) {
            return;
        }
        if self.until_ms.is_some_and(|until_ms| until_ms <= now) {
            *self = Self::default();
        }
    }

    /// Returns the end of the current hold, if any.
    pub(crate) fn until_ms(&self) -> Option<u64> {
        self.until_ms
    }
}

/// Leader.
impl Zab {
    /// Command: tells that clients of `peer` wait for the commit of an entry.
    ///
    /// The Commit of that entry does not wait for the next Proposal.
    pub fn expect_commit(&mut self, peer: ServerId, zxid: Zxid) {
        if let Some(learner) = self.learner(peer) {
            learner.expects = learner.expects.max(zxid);
        }
    }

    /// Command: returns a Commit of everything committed, unless `peer` was told already.
    ///
    /// The driver sends it before a message of its own that must follow what is committed.
    pub fn take_commit(&mut self, peer: ServerId) -> Option<Message> {
        let State::Leading(prospect) = &self.state else { return None };
        let (epoch, committed) = (prospect.epoch?, self.committed);
        let learner = self.learner(peer)?;
        let Stage::Streaming(stream) = &mut learner.stage else { return None };
        let is_synchronized = stream.opening.is_none() && stream.is_led;
        let is_new = stream.reported < committed && stream.sent >= committed;
        (is_synchronized && is_new).then(|| {
            stream.reported = committed;
            Message::Commit { attempt: learner.attempt, epoch, to: committed }
        })
    }

    /// Excludes the Commit of this entry from the hold, for every learner.
    pub(crate) fn hasten_commit(&mut self, zxid: Zxid) {
        for learner in self.peers.iter_mut().filter_map(|peer| peer.learner.as_mut()) {
            learner.expects = learner.expects.max(zxid);
        }
    }

    /// Returns the end of the current hold; `None` if this server holds no Commits back.
    pub(crate) fn holds_commits_until_ms(&self) -> Option<u64> {
        match &self.state {
            // Each learner needs all that is committed before it hears of the hand-over.
            State::Leading(prospect) if prospect.handing_over.is_none() => prospect.commit_hold.until_ms(),
            State::Leading(_) | State::Learning(_) | State::Looking { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: u32 = 4;

    /// Proposes `entries` entries, each committed 1 ms later, when the next one comes. Returns that
    /// time.
    fn pace(hold: &mut CommitHold, entries: u64, mut now: u64) -> u64 {
        for _ in 0..entries {
            hold.propose(now);
            now += 1;
            hold.commit(now, ENTRIES);
        }
        now
    }

    #[test]
    fn commits_wait_once_entries_follow_each_other_closely() {
        let mut hold = CommitHold::default();
        let now = pace(&mut hold, 4, 100);
        assert_eq!(hold.until_ms(), None, "the first of four entries followed none");
        let now = pace(&mut hold, 1, now);
        assert_eq!(hold.until_ms(), Some(now + HOLD_MS));
        hold.propose(now);
        assert_eq!(hold.until_ms(), None, "its Proposal carries the watermark");
    }

    #[test]
    fn later_commits_do_not_extend_the_wait_of_the_first() {
        let mut hold = CommitHold::default();
        let now = pace(&mut hold, 5, 100);
        hold.commit(now + 1, ENTRIES);
        assert_eq!(hold.until_ms(), Some(now + HOLD_MS));
    }

    #[test]
    fn commit_without_a_next_entry_goes_after_the_wait_and_the_next_ones_do_not_wait() {
        let mut hold = CommitHold::default();
        let now = pace(&mut hold, 5, 100);
        hold.judge(now + HOLD_MS - 1);
        assert!(hold.until_ms().is_some());
        hold.judge(now + HOLD_MS);
        assert_eq!(hold.until_ms(), None);
        pace(&mut hold, 4, now + 10);
        assert_eq!(hold.until_ms(), None);
    }

    #[test]
    fn entry_after_a_pause_starts_the_count_again() {
        let mut hold = CommitHold::default();
        let now = pace(&mut hold, 4, 100);
        hold.propose(now + HOLD_MS + 1);
        hold.commit(now + HOLD_MS + 1, ENTRIES);
        assert_eq!(hold.until_ms(), None);
    }
}
