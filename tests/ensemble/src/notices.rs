//! What one client noticed of a fault, judged from the lines that its program reported.

use crate::programs::{Answer, Call, Line};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Everything that one client noticed in one run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notices {
    /// Calls that ended.
    pub calls: u64,
    /// Failed calls, by kind and error.
    pub failed: BTreeMap<String, u64>,
    /// Changes of the connection to any state but connected.
    pub losses: u64,
    /// 1 if the session at the end is another one, or does not own its ephemeral.
    pub sessions_lost: u64,
    /// Watches without an event, or with more than one.
    pub watches_wrong: u64,
    /// Writes that took effect twice.
    pub twice: u64,
    /// Answers that miss an acknowledged write.
    pub stale: u64,
    /// Longest time between two answers that ends after the fault.
    pub gap: Duration,
    /// The same before the fault: the noise of this machine.
    pub gap_before: Duration,
}

impl Notices {
    /// Returns the number of failed calls.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Whether the client noticed nothing but the gap.
    pub fn is_empty(&self) -> bool {
        self.failures() + self.losses + self.sessions_lost + self.watches_wrong + self.twice + self.stale == 0
    }

    /// Adds what another client noticed; of the gaps it keeps the longest.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        other.failed.iter().for_each(|(what, count)| *self.failed.entry(what.clone()).or_default() += count);
        self.losses += other.losses;
        self.sessions_lost += other.sessions_lost;
        self.watches_wrong += other.watches_wrong;
        self.twice += other.twice;
        self.stale += other.stale;
        self.gap = self.gap.max(other.gap);
        self.gap_before = self.gap_before.max(other.gap_before);
    }
}

/// The times of a run.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The load began.
    pub begin: Instant,
    /// The fault struck.
    pub fault: Instant,
    /// The load was told to end.
    pub end: Instant,
}

/// Judges the lines of a client's run, without the line that began it.
///
/// `session` is the client's session at the beginning. A run without its last line has a call that
/// was not answered in time; it counts as failed.
pub fn judge(session: u64, times: Times, lines: &[(Instant, Line)]) -> Notices {
    let mut judge = Judge {
        notices: Notices::default(),
        value: Counter { last: 0, unknown: 0 },
        children: Counter { last: -1, unknown: 0 },
        watched: Counter { last: 0, unknown: 0 },
        data: 0,
        armed: 0,
        events: 0,
        times,
        answered: times.begin,
    };
    let mut has_ended = false;
    for (at, line) in lines {
        match line {
            Line::Begun { .. } => {}
            Line::State(is_good) => judge.notices.losses += u64::from(!is_good),
            Line::Event => judge.events += 1,
            Line::Call(call, outcome) => judge.on_call(*at, *call, outcome),
            Line::Ended { session: last, owner, .. } => {
                let is_other = *last != session || owner.is_some_and(|owner| owner != session);
                judge.notices.sessions_lost += u64::from(is_other);
                has_ended = true;
            }
        }
    }
    if !has_ended {
        judge.fail("unanswered".to_owned());
    }
    judge.notices.watches_wrong += judge.events.saturating_sub(judge.armed);
    // A call in flight at the end has a gap, too.
    judge.on_gap(times.end);
    judge.notices
}

/// A number that each write of one client raises by one.
struct Counter {
    last: i64,
    /// Failed writes, each of which may take effect later or not at all.
    unknown: i64,
}

impl Counter {
    /// Steps that are too many (positive) or missing (negative), if `number` answers `writes` writes.
    fn advance(&mut self, number: i64, writes: i64) -> i64 {
        let more = number - self.last - writes;
        self.last = number;
        let excused = more.clamp(0, self.unknown);
        self.unknown -= excused;
        more - excused
    }
}

struct Judge {
    notices: Notices,
    value: Counter,
    children: Counter,
    watched: Counter,
    /// Data of the last acknowledged write of the value.
    data: i64,
    /// Watches that were registered, and their events.
    armed: u64,
    events: u64,
    times: Times,
    /// Time of the last answer.
    answered: Instant,
}

impl Judge {
    fn on_call(&mut self, at: Instant, call: Call, outcome: &Result<Answer, String>) {
        self.notices.calls += 1;
        match outcome {
            Ok(answer) => {
                self.on_gap(at);
                self.answered = at;
                self.on_answer(call, *answer);
            }
            Err(error) => self.on_failure(call, error),
        }
    }

    fn on_gap(&mut self, until: Instant) {
        let gap = until.saturating_duration_since(self.answered);
        let longest = if until > self.times.fault { &mut self.notices.gap } else { &mut self.notices.gap_before };
        *longest = gap.max(*longest);
    }

    fn on_answer(&mut self, call: Call, answer: Answer) {
        let steps = match call {
            Call::Set | Call::Conditional => {
                self.data = answer.data;
                self.value.advance(answer.number, 1)
            }
            Call::Get => {
                // A failed write that took effect brings its own version and data.
                let is_same = answer.number == self.value.last;
                self.notices.stale += u64::from(is_same && answer.data != self.data);
                self.data = answer.data;
                self.value.advance(answer.number, 0)
            }
            Call::Create => self.children.advance(answer.number, 1),
            Call::Trigger => self.watched.advance(answer.number, 1),
            Call::Arm => {
                // The client has waited for the event of the watch before.
                self.notices.watches_wrong += self.armed.abs_diff(self.events);
                (self.armed, self.events) = (1, 0);
                self.watched.advance(answer.number, 0)
            }
            Call::Sync => 0,
        };
        self.notices.twice += u64::try_from(steps).unwrap_or(0);
        self.notices.stale += u64::from(steps < 0);
    }

    fn on_failure(&mut self, call: Call, error: &str) {
        // The condition fails only if another write took effect, and there is no other writer.
        if call == Call::Conditional && error.to_ascii_lowercase().replace('_', "").starts_with("badversion") {
            self.notices.twice += u64::from(self.value.unknown == 0);
            return;
        }
        match call {
            Call::Set | Call::Conditional => self.value.unknown += 1,
            Call::Create => self.children.unknown += 1,
            Call::Trigger => self.watched.unknown += 1,
            Call::Get | Call::Sync | Call::Arm => {}
        }
        self.fail(format!("{call:?} {error}").to_ascii_lowercase());
    }

    fn fail(&mut self, what: String) {
        *self.notices.failed.entry(what).or_default() += 1;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may unwrap")]
mod tests {
    use super::*;

    /// Judges lines that arrive 10 ms apart, with the fault after `before` of them.
    fn judged(before: u32, lines: &[&str]) -> Notices {
        let begin = Instant::now();
        let at = |number: u32| begin + Duration::from_millis(10) * number;
        let lines: Vec<_> = (1..).map(at).zip(lines.iter().map(|line| Line::parse(line).unwrap())).collect();
        let end = at(u32::try_from(lines.len()).unwrap());
        judge(7, Times { begin, fault: at(before), end }, &lines)
    }

    #[test]
    fn peace_is_not_noticed() {
        let lines = [
            "set ok 1 1",
            "get ok 1 1",
            "conditional ok 2 1",
            "create ok 0",
            "create ok 1",
            "sync ok",
            "arm ok 0",
            "event",
            "trigger ok 1",
            "arm ok 1",
            "ended 1 7 7",
        ];
        let notices = judged(3, &lines);
        assert!(notices.is_empty(), "{notices:?}");
        assert_eq!((notices.calls, notices.gap.as_millis()), (9, 20));
    }

    #[test]
    fn write_done_twice_shows_in_versions_numbers_and_conditions() {
        assert_eq!(judged(0, &["set ok 1 1", "set ok 3 2", "ended 1 7 7"]).twice, 1);
        assert_eq!(judged(0, &["create ok 0", "create ok 2", "ended 1 7 7"]).twice, 1);
        assert_eq!(judged(0, &["conditional failed BADVERSION", "ended 1 7 7"]).twice, 1);
        assert_eq!(judged(0, &["conditional failed BadVersionError", "ended 1 7 7"]).twice, 1);
        assert_eq!(judged(0, &["set ok 1 1", "get ok 2 1", "ended 1 7 7"]).twice, 1);
    }

    #[test]
    fn failed_write_may_take_effect_once() {
        let notices = judged(0, &["set ok 1 1", "set failed LOSS", "get ok 2 2", "set ok 3 3", "ended 1 7 7"]);
        assert_eq!((notices.failures(), notices.twice, notices.stale), (1, 0, 0));
        let notices = judged(0, &["set ok 1 1", "set failed LOSS", "get ok 1 1", "set ok 3 3", "ended 1 7 7"]);
        assert_eq!((notices.failures(), notices.twice, notices.stale), (1, 0, 0));
        assert_eq!(judged(0, &["set failed LOSS", "set ok 3 3", "ended 1 7 7"]).twice, 1);
    }

    #[test]
    fn forgotten_write_is_stale() {
        assert_eq!(judged(0, &["set ok 1 1", "get ok 0 0", "ended 1 7 7"]).stale, 1);
        assert_eq!(judged(0, &["set ok 1 1", "get ok 1 9", "ended 1 7 7"]).stale, 1);
        assert_eq!(judged(0, &["create ok 0", "create ok 0", "ended 1 7 7"]).stale, 1);
    }

    #[test]
    fn watch_fires_exactly_once() {
        assert_eq!(judged(0, &["arm ok 0", "trigger ok 1", "arm ok 1", "ended 1 7 7"]).watches_wrong, 1);
        assert_eq!(judged(0, &["arm ok 0", "event", "event", "ended 1 7 7"]).watches_wrong, 1);
        assert_eq!(judged(0, &["arm ok 0", "ended 1 7 7"]).watches_wrong, 0);
    }

    #[test]
    fn lost_connections_and_sessions_count() {
        let notices = judged(0, &["state suspended", "state connected", "ended 1 8 8"]);
        assert_eq!((notices.losses, notices.sessions_lost), (1, 1));
        assert_eq!(judged(0, &["ended 1 7 0"]).sessions_lost, 1);
        assert_eq!(judged(0, &["ended 1 7 ?"]).sessions_lost, 0);
    }

    #[test]
    fn call_without_an_answer_fails_and_its_gap_counts() {
        let notices = judged(1, &["set ok 1 1", "state suspended", "state connected"]);
        assert_eq!((notices.failures(), notices.gap.as_millis()), (1, 20));
    }
}
