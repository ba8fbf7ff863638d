//! Appends that are not durable yet.

use crate::{AppendSeq, Zxid};
use heapless::Deque;

/// Maximum number of runs tracked separately.
///
/// Beyond it, new entries join the newest run. That run then counts only when all of it is durable.
const RUNS_MAX: usize = 16;

/// Consecutive appends of consecutive entries.
///
/// Facts appended between entries have append numbers but no run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    first: AppendSeq,
    last: AppendSeq,
    /// Last entry; `None` when a truncation removed all of them.
    to: Option<Zxid>,
    /// Whether each append number stands for one entry; if not, the run counts only as a whole.
    is_exact: bool,
}

/// Maps durable append numbers to durable entries.
#[derive(Debug)]
pub(crate) struct Appends {
    /// Newest append number given out.
    pub(crate) last: AppendSeq,
    /// Every append up to this number is durable.
    pub(crate) durable: AppendSeq,
    /// Newest durable entry of the history.
    pub(crate) persisted: Zxid,
    runs: Deque<Run, RUNS_MAX>,
    /// When the log last made progress, while appends are pending.
    waiting_since_ms: Option<u64>,
    /// Since when the disk refuses appends, whether or not any are pending.
    refused_since_ms: Option<u64>,
    room: Room,
}

/// Whether the disk has room for writes, and since when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    /// The disk has had room since the start.
    Always,
    LackedSince(u64),
    /// The disk has room again.
    BackSince(u64),
}

impl Appends {
    pub(crate) fn new(last: AppendSeq, persisted: Zxid) -> Self {
        Self {
            last,
            durable: last,
            persisted,
            runs: Deque::new(),
            waiting_since_ms: None,
            refused_since_ms: None,
            room: Room::Always,
        }
    }

    pub(crate) fn fact(&mut self, now: u64) -> AppendSeq {
        self.last = self.last.next();
        self.waiting_since_ms.get_or_insert(now);
        self.last
    }

    /// Appends the entries `from` to `to`, all of one epoch.
    pub(crate) fn entries(&mut self, now: u64, from: Zxid, to: Zxid) -> AppendSeq {
        let first = self.last.next();
        self.last = AppendSeq(self.last.0 + (to.to_bits() - from.to_bits()) + 1);
        self.waiting_since_ms.get_or_insert(now);
        let run = Run { first, last: self.last, to: Some(to), is_exact: true };
        let is_full = self.runs.is_full();
        match self.runs.back_mut() {
            Some(run) if run.is_exact && run.last.next() == first && run.to.and_then(Zxid::next) == Some(from) => {
                (run.last, run.to) = (self.last, Some(to));
            }
            Some(newest) if is_full => (newest.last, newest.to, newest.is_exact) = (self.last, Some(to), false),
            _ => {
                let pushed = self.runs.push_back(run);
                debug_assert!(pushed.is_ok(), "there was room");
            }
        }
        self.last
    }

    /// Removes entries above `to` from the runs.
    ///
    /// Completions of their appends still arrive, but make no entry durable any more.
    pub(crate) fn truncate(&mut self, to: Zxid) {
        self.persisted = self.persisted.min(to);
        for run in self.runs.iter_mut() {
            let Some(last) = run.to else { continue };
            if last <= to {
                continue;
            }
            let first = Zxid::from_bits(last.to_bits() - (run.last.0 - run.first.0));
            let keeps = run.is_exact && last.epoch() == to.epoch() && first.is_some_and(|first| first <= to);
            if keeps {
                // The run now ends earlier; the append numbers after it have no entry.
                run.last = AppendSeq(run.last.0 - (last.to_bits() - to.to_bits()));
                run.to = Some(to);
            } else {
                run.to = None;
            }
        }
    }

    /// Replaces the history by a snapshot ending at `zxid`, durable with append `seq`.
    ///
    /// Until then a crash brings the old history back. If the old history reaches beyond the
    /// snapshot, only its part up to `committed` counts as persisted.
    pub(crate) fn replace(&mut self, seq: AppendSeq, zxid: Zxid, committed: Zxid) {
        self.runs.clear();
        if self.persisted > zxid {
            self.persisted = committed;
        }
        let pushed = self.runs.push_back(Run { first: seq, last: seq, to: Some(zxid), is_exact: false });
        debug_assert!(pushed.is_ok(), "it was cleared");
    }

    pub(crate) fn persisted(&mut self, now: u64, seq: AppendSeq) {
        assert!(seq <= self.last, "nothing is durable before it is appended");
        if seq <= self.durable {
            return;
        }
        self.durable = seq;
        self.waiting_since_ms = (self.durable < self.last).then_some(now);
        while let Some(run) = self.runs.front().copied() {
            if seq >= run.last {
                self.persisted = run.to.unwrap_or(self.persisted).max(self.persisted);
                self.runs.pop_front();
                continue;
            }
            if seq >= run.first
                && run.is_exact
                && let Some(to) = run.to
            {
                self.persisted = Zxid::from_bits(to.to_bits() - (run.last.0 - seq.0)).unwrap_or(self.persisted);
            }
            break;
        }
    }

    pub(crate) fn set_refused(&mut self, now: u64, is_refused: bool) {
        self.refused_since_ms = is_refused.then(|| self.refused_since_ms.unwrap_or(now));
    }

    pub(crate) fn set_room(&mut self, now: u64, has_room: bool) {
        self.room = match (self.room, has_room) {
            (Room::LackedSince(_), true) => Room::BackSince(now),
            (Room::Always | Room::BackSince(_), false) => Room::LackedSince(now),
            (unchanged, _) => unchanged,
        };
    }

    /// Returns how long the disk has lacked room; `None` while it has some.
    pub(crate) fn lacks_room_ms(&self, now: u64) -> Option<u64> {
        match self.room {
            Room::LackedSince(since) => Some(now.saturating_sub(since)),
            Room::Always | Room::BackSince(_) => None,
        }
    }

    /// Returns whether the disk has had room for at least `room_ms`.
    pub(crate) fn has_lasting_room(&self, now: u64, room_ms: u32) -> bool {
        match self.room {
            Room::Always => true,
            Room::LackedSince(_) => false,
            Room::BackSince(since) => now.saturating_sub(since) >= u64::from(room_ms),
        }
    }

    /// Returns how long the log has made no progress, in milliseconds.
    ///
    /// 0 while no append is pending and the disk does not refuse appends.
    pub(crate) fn age_ms(&self, now: u64) -> u64 {
        let since = [self.waiting_since_ms, self.refused_since_ms].into_iter().flatten().min();
        since.map_or(0, |since| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    fn zxid(epoch: u32, counter: u64) -> Zxid {
        Zxid::new(Epoch::new(epoch).unwrap(), counter).unwrap()
    }

    #[test]
    fn persisted_append_number_marks_the_entries_up_to_it_durable() {
        let mut appends = Appends::new(AppendSeq(10), Zxid::ZERO);
        assert_eq!(appends.fact(0), AppendSeq(11));
        assert_eq!(appends.entries(0, zxid(1, 0), zxid(1, 2)), AppendSeq(14));
        assert_eq!(appends.entries(0, zxid(1, 3), zxid(1, 3)), AppendSeq(15));
        appends.persisted(0, AppendSeq(11));
        assert_eq!(appends.persisted, Zxid::ZERO);
        appends.persisted(0, AppendSeq(13));
        assert_eq!(appends.persisted, zxid(1, 1));
        appends.persisted(0, AppendSeq(12));
        assert_eq!(appends.persisted, zxid(1, 1), "a late completion changes nothing");
        appends.persisted(0, AppendSeq(15));
        assert_eq!(appends.persisted, zxid(1, 3));
    }

    #[test]
    fn completion_of_truncated_entries_does_not_cover_reappended_ones() {
        let mut appends = Appends::new(AppendSeq(0), Zxid::ZERO);
        appends.entries(0, zxid(1, 0), zxid(1, 5));
        appends.truncate(zxid(1, 2));
        appends.fact(0);
        appends.entries(0, zxid(1, 3), zxid(1, 5));
        appends.persisted(0, AppendSeq(6));
        assert_eq!(appends.persisted, zxid(1, 2));
        appends.persisted(0, AppendSeq(8));
        assert_eq!(appends.persisted, zxid(1, 3));
    }

    #[test]
    fn truncation_across_epochs_drops_whole_append_runs() {
        let mut appends = Appends::new(AppendSeq(0), Zxid::ZERO);
        appends.entries(0, zxid(1, 0), zxid(1, 5));
        appends.entries(0, zxid(2, 0), zxid(2, 5));
        appends.persisted(0, AppendSeq(8));
        assert_eq!(appends.persisted, zxid(2, 1));
        appends.truncate(zxid(1, 5));
        appends.persisted(0, AppendSeq(12));
        assert_eq!(appends.persisted, zxid(1, 5));
    }

    #[test]
    fn merged_append_runs_count_as_durable_late_but_never_early() {
        let mut appends = Appends::new(AppendSeq(0), Zxid::ZERO);
        for epoch in 1..=40 {
            appends.entries(0, zxid(epoch, 0), zxid(epoch, 0));
        }
        appends.persisted(0, AppendSeq(39));
        assert_eq!(appends.persisted, zxid(15, 0));
        appends.persisted(0, AppendSeq(40));
        assert_eq!(appends.persisted, zxid(40, 0));
    }

    #[test]
    fn append_age_counts_from_the_last_progress() {
        let mut appends = Appends::new(AppendSeq(0), Zxid::ZERO);
        appends.fact(100);
        appends.fact(150);
        assert_eq!(appends.age_ms(400), 300);
        appends.persisted(500, AppendSeq(1));
        assert_eq!(appends.age_ms(600), 100);
        appends.persisted(600, AppendSeq(2));
        assert_eq!(appends.age_ms(900), 0);
    }

    #[test]
    fn refusing_disk_ages_a_log_with_no_pending_appends() {
        let mut appends = Appends::new(AppendSeq(0), Zxid::ZERO);
        appends.set_refused(100, true);
        appends.set_refused(200, true);
        assert_eq!(appends.age_ms(400), 300);
        appends.set_refused(500, false);
        assert_eq!(appends.age_ms(600), 0);
    }

    #[test]
    fn regained_disk_room_counts_only_after_it_has_lasted() {
        let mut appends = Appends::new(AppendSeq(0), Zxid::ZERO);
        appends.set_room(50, true);
        assert!(appends.has_lasting_room(50, 1000), "a disk that never lacked room has some");
        appends.set_room(100, false);
        appends.set_room(200, false);
        assert_eq!((appends.lacks_room_ms(400), appends.has_lasting_room(400, 1000)), (Some(300), false));
        appends.set_room(500, true);
        appends.set_room(600, true);
        assert_eq!((appends.lacks_room_ms(600), appends.has_lasting_room(1499, 1000)), (None, false));
        assert!(appends.has_lasting_room(1500, 1000));
    }
}
