//! The instant until which a session is certainly alive.

use std::collections::VecDeque;
use std::time::Duration;
use zoolet_model::{Class, Request};

/// One part in this many by which the speeds of two clocks may differ.
///
/// Each clock is off by at most 500 parts per million, the limit of NTP's frequency correction.
const DRIFT_ONE_IN: u32 = 1000;

/// Signs of life that a session sends per timeout.
pub(crate) const PINGS_IN_TIMEOUT: u32 = 3;

/// Maximum number of remembered signs of life.
const SIGNS_MAX: usize = 16;

/// A sent request, as evidence of the session's life once it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sign {
    pub(crate) sent: Duration,
    pub(crate) shows: Shows,
}

/// The evidence that an answer gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shows {
    /// The leader received the request after it was sent, which counts as a sign of life.
    ///
    /// Answers to writes show this, and answers to a ping that goes to the leader.
    Itself,
    /// The answering server leads or follows, so the leader knows of earlier requests.
    ///
    /// Answers to pings and syncs show this. "Earlier" means some time before the answered request
    /// was sent.
    Earlier,
    /// Nothing: a server without a leader answers reads for a while.
    Nothing,
}

impl Shows {
    /// Returns what an answer to `request` will show.
    pub(crate) fn of(request: &Request) -> Self {
        match request.class() {
            Class::Write(_) | Class::Multi(_) => Self::Itself,
            Class::Ping | Class::Sync => Self::Earlier,
            Class::CloseSession
            | Class::Refusal(_)
            | Class::Read(_)
            | Class::SetWatches(_)
            | Class::Watches
            | Class::Identities
            | Class::Malformed
            | Class::Unknown => Self::Nothing,
        }
    }
}

/// Returns the request to send as a sign of life, with the evidence of its answer.
///
/// A server answers a ping by itself. With a short timeout such answers prove too little:
/// `liveness_delay_max` exceeds the time between two pings. Such a session sends a sync instead.
/// The leader then hears of the session before the sync is answered, and a quorum confirms that it
/// leads. Requests behind the sync wait for its answer.
pub(crate) fn ping(timeout: Duration, liveness_delay_max: Duration) -> (Request, Shows) {
    if timeout / PINGS_IN_TIMEOUT < liveness_delay_max {
        (Request::Sync { path: None }, Shows::Itself)
    } else {
        (Request::Ping, Shows::Earlier)
    }
}

/// Answered signs of life and their evidence.
///
/// The leader expires silent sessions, but a session may be connected to another server. That
/// server tells the leader within 200 ms which sessions it heard, and the leader waits 200 ms
/// longer for them. Two cases delay the news further:
///
/// - A server goes on answering for `staleness_max_ms` after its leader last heard a quorum.
/// - A deposed leader goes on answering for 2 s, until it misses its quorum.
///
/// Requests sent in that time are answered although the server that expires sessions never hears of
/// them. So an answer shows only that the leader knew of requests sent
/// [`crate::Environment::liveness_delay_max`] earlier. An answered write shows it for the write
/// itself.
///
/// This assumes that a link between two servers works in both directions or not at all. A leader
/// that its learner hears, but that does not hear the learner, is noticed only when the link ends.
/// That is 5 s after the last packet. It also assumes that the servers' clocks do not stand still.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Send time of the newest sign that the leader certainly knows of.
    heard: Option<Duration>,
    /// Send times of later answered signs, in order and spaced apart.
    signs: VecDeque<Duration>,
}

impl Life {
    /// Records an answer.
    pub(crate) fn answered(&mut self, sign: Sign, liveness_delay_max: Duration) {
        if sign.shows == Shows::Itself {
            self.heard = self.heard.max(Some(sign.sent));
        }
        let apart = liveness_delay_max / (SIGNS_MAX as u32 / 2);
        if self.signs.back().is_none_or(|last| sign.sent >= *last + apart) && self.signs.len() < SIGNS_MAX {
            self.signs.push_back(sign.sent);
        }
        if sign.shows == Shows::Nothing && liveness_delay_max > Duration::ZERO {
            return;
        }
        while let Some(first) = self.signs.front().filter(|first| **first + liveness_delay_max <= sign.sent) {
            self.heard = self.heard.max(Some(*first));
            self.signs.pop_front();
        }
    }

    /// Returns the instant until which the session is certainly alive; zero before any evidence.
    pub(crate) fn safe_until(&self, timeout: Duration) -> Duration {
        self.heard.map_or(Duration::ZERO, |heard| heard + timeout - timeout / DRIFT_ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);
    /// The part of `TIMEOUT` that remains after clock drift.
    const SAFE: Duration = Duration::from_millis(9990);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ping(ms: u64) -> Sign {
        Sign { sent: at(ms), shows: Shows::Earlier }
    }

    #[test]
    fn reply_of_a_lone_server_extends_safety_from_its_send_time() {
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
    fn reply_of_a_possibly_cut_off_server_proves_only_older_requests() {
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
    fn signs_of_life_are_bounded_with_little_loss_of_safe_time() {
        let mut life = Life::default();
        for ms in 0..20_000 {
            life.answered(ping(ms), at(3000));
            assert!(life.signs.len() <= SIGNS_MAX);
        }
        let known = life.safe_until(TIMEOUT) - SAFE;
        assert!(known <= at(16_999) && known > at(16_500), "{known:?}");
    }
}
