//! Until when a session surely lives.

use std::collections::VecDeque;
use std::time::Duration;
use zoolet_model::Request;

/// By so much two clocks may differ in speed, one in: each is off by 500 millionths at most, which is what NTP corrects.
const DRIFT_ONE_IN: u32 = 1000;

/// So many times in its timeout a session gives a sign of life.
pub(crate) const PINGS_IN_TIMEOUT: u32 = 3;

/// Signs of life that are remembered, at most.
const SIGNS_MAX: usize = 16;

/// What went out, as far as it says something of the session's life when it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sign {
    pub(crate) sent: Duration,
    pub(crate) shows: Shows,
}

/// What an answer shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shows {
    /// A write's, or that of a ping which goes to the leader: that its leader had it after it was sent, a sign of life to the one who judges silence.
    Itself,
    /// A ping's or a sync's: that the server leads or follows, so its leader had heard of what was sent some time before.
    Earlier,
    /// Reads go on for a while where nobody leads.
    Nothing,
}

impl Shows {
    /// What an answer to `request` will show.
    pub(crate) fn of(request: &Request) -> Self {
        match request {
            Request::Write(_) | Request::Multi(_) => Self::Itself,
            Request::Ping | Request::Sync { .. } => Self::Earlier,
            _ => Self::Nothing,
        }
    }
}

/// How a session gives a sign of life, and what the answer shows. A server answers a ping by itself; where that would say too little about a session with so
/// short a timeout, because between two answers more of it passes than they show, a sync stands for it: its leader hears of that before it is asked, and a
/// quorum says who leads. What is asked behind it waits for its answer.
pub(crate) fn ping(timeout: Duration, told_late: Duration) -> (Request, Shows) {
    if timeout / PINGS_IN_TIMEOUT < told_late {
        (Request::Sync { path: None }, Shows::Itself)
    } else {
        (Request::Ping, Shows::Earlier)
    }
}

/// Signs of life that were answered, and what they show.
///
/// Silence is judged by the leader, and a session may be at another server. That server tells its leader within 200 ms whom it heard, and the leader
/// waits 200 ms longer for those. But it goes on answering while it hears nothing of its leader, for `staleness_max_ms`; and a leader that
/// was deposed goes on for 2 s until it misses its quorum. What is sent in that time is answered, and nobody who decides has heard of it. So an answer
/// shows only that what was sent so much before it ([`crate::Surroundings::told_late`]) had been heard where it matters. An answered write shows it
/// of itself.
///
/// This takes for granted that a link between two servers that works at all works both ways: a learner that hears its leader and is not heard by it is
/// found out only when the link ends, 5 s after the last packet. And that clocks of servers do not stand still.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// When the newest sign was sent that was surely heard.
    heard: Option<Duration>,
    /// Later ones that were answered, in the order of sending and some way apart.
    signs: VecDeque<Duration>,
}

impl Life {
    /// Something was answered.
    pub(crate) fn answered(&mut self, sign: Sign, told_late: Duration) {
        if sign.shows == Shows::Itself {
            self.heard = self.heard.max(Some(sign.sent));
        }
        let apart = told_late / (SIGNS_MAX as u32 / 2);
        if self.signs.back().is_none_or(|last| sign.sent >= *last + apart) && self.signs.len() < SIGNS_MAX {
            self.signs.push_back(sign.sent);
        }
        if sign.shows == Shows::Nothing && told_late > Duration::ZERO {
            return;
        }
        while let Some(first) = self.signs.front().filter(|first| **first + told_late <= sign.sent) {
            self.heard = self.heard.max(Some(*first));
            self.signs.pop_front();
        }
    }

    /// Zero before there is anything to say.
    pub(crate) fn safe_until(&self, timeout: Duration) -> Duration {
        self.heard.map_or(Duration::ZERO, |heard| heard + timeout - timeout / DRIFT_ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);
    /// Of which so much is counted on.
    const SAFE: Duration = Duration::from_millis(9990);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ping(ms: u64) -> Sign {
        Sign { sent: at(ms), shows: Shows::Earlier }
    }

    #[test]
    fn a_server_that_decides_alone_has_heard_what_it_answers() {
        let mut life = Life::default();
        assert_eq!(life.safe_until(TIMEOUT), Duration::ZERO);
        for ms in [100, 90, 200] {
            life.answered(ping(ms), Duration::ZERO);
        }
        assert_eq!(life.safe_until(TIMEOUT), at(200) + SAFE);
        life.answered(Sign { sent: at(300), shows: Shows::Nothing }, Duration::ZERO);
        assert_eq!(life.safe_until(TIMEOUT), at(300) + SAFE);
    }

    #[test]
    fn an_answer_of_a_server_that_may_be_cut_off_shows_what_was_sent_long_before() {
        let mut life = Life::default();
        life.answered(Sign { sent: at(1000), shows: Shows::Nothing }, at(3000));
        life.answered(ping(3999), at(3000));
        assert_eq!(life.safe_until(TIMEOUT), Duration::ZERO);
        life.answered(ping(4000), at(3000));
        assert_eq!(life.safe_until(TIMEOUT), at(1000) + SAFE);
        life.answered(Sign { sent: at(7500), shows: Shows::Nothing }, at(3000));
        assert_eq!(life.safe_until(TIMEOUT), at(1000) + SAFE, "where nobody leads reads are answered too");
        life.answered(Sign { sent: at(7600), shows: Shows::Itself }, at(3000));
        assert_eq!(life.safe_until(TIMEOUT), at(7600) + SAFE);
    }

    #[test]
    fn of_many_signs_few_are_kept_and_little_is_lost() {
        let mut life = Life::default();
        for ms in 0..20_000 {
            life.answered(ping(ms), at(3000));
            assert!(life.signs.len() <= SIGNS_MAX);
        }
        let known = life.safe_until(TIMEOUT) - SAFE;
        assert!(known <= at(16_999) && known > at(16_500), "{known:?}");
    }
}
