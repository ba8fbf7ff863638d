//! How long a session is certain to live, at a server of which only the protocol is known.

use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of signs of life kept.
const SIGNS_MAX: usize = 16;

/// Two clocks may differ in speed by one part in this number. Each is off by at most 500 parts per
/// million, which is the most that NTP corrects.
const DRIFT_ONE_IN: u32 = 1000;

/// Answered signs of life, and the time until which they keep the session safe.
///
/// The leader ends sessions, and the client may be connected to a follower. A follower of Apache
/// ZooKeeper reports the sessions that it heard from in its answers to the leader's pings. Those
/// come every half tick. The shortest timeout is two ticks, so the report is late by at most a
/// quarter of any timeout.
///
/// A follower that is cut off from its leader still answers reads, of which the leader does not
/// hear. A write or a sync goes through the leader, on the same connection as the pings. Its answer
/// proves that the leader has been told of all requests answered a quarter of the timeout before it
/// was sent. The write or sync itself is no sign of life: the leader checks the session of a
/// forwarded request, and does not touch it.
///
/// This assumes that a server's `minSessionTimeout` is two ticks or more, as it is by default.
#[derive(Debug)]
pub(super) struct Life {
    timeout: Duration,
    /// When the newest sign was sent of which the leader certainly knows.
    confirmed: Option<Duration>,
    /// When the newest request was sent that the leader has answered.
    answered: Option<Duration>,
    /// When a sign was sent that the first answer through the leader will confirm.
    presumed: Option<Duration>,
    /// Later signs, some time apart: when each was sent and when it was answered.
    signs: VecDeque<(Duration, Duration)>,
}

impl Life {
    pub(super) fn new(timeout: Duration, confirmed: Option<Duration>, presumed: Option<Duration>) -> Self {
        Self { timeout, confirmed, answered: confirmed, presumed, signs: VecDeque::new() }
    }

    /// Maximum delay before the leader learns that a follower heard from the session.
    fn liveness_delay_max(&self) -> Duration {
        self.timeout / 4
    }

    /// Notes that the session was resumed on a new connection since the last answer.
    ///
    /// The leader itself confirms a session that comes back, and counts that as a sign of life. The
    /// client asked for it after the old connection had ended, so after each request that the old
    /// connection answered.
    pub(super) fn resumed(&mut self) {
        self.confirmed = self.confirmed.max(self.answered);
    }

    /// Notes the answer to a request that went through the leader.
    pub(super) fn answered(&mut self, sent: Duration, now: Duration) {
        self.confirmed = self.confirmed.max(self.presumed.take());
        while let Some((first, _)) =
            self.signs.front().filter(|(_, answered)| *answered + self.liveness_delay_max() <= sent)
        {
            self.confirmed = self.confirmed.max(Some(*first));
            self.signs.pop_front();
        }
        let apart = self.liveness_delay_max() / (SIGNS_MAX as u32 / 2);
        if self.signs.back().is_none_or(|(last, _)| sent >= *last + apart) && self.signs.len() < SIGNS_MAX {
            self.signs.push_back((sent, now));
        }
        self.answered = self.answered.max(Some(sent));
    }

    /// Returns the time until which the session is safe; zero before anything is known.
    pub(super) fn safe_until(&self) -> Duration {
        self.confirmed.map_or(Duration::ZERO, |confirmed| confirmed + self.timeout - self.timeout / DRIFT_ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The part of a timeout of 4 s that counts as safe.
    const SAFE: Duration = ms(3996);

    #[test]
    fn sign_of_life_counts_once_a_request_1_s_later_is_answered() {
        let mut life = Life::new(ms(4000), None, None);
        life.answered(ms(100), ms(150));
        assert_eq!(life.safe_until(), Duration::ZERO);
        life.answered(ms(1149), ms(1200));
        assert_eq!(life.safe_until(), Duration::ZERO, "its follower may not have told of it yet");
        life.answered(ms(1150), ms(1200));
        assert_eq!(life.safe_until(), ms(100) + SAFE);
        // The process was stopped for long. The leader last heard of a sign sent before that.
        life.answered(ms(5000), ms(5010));
        assert_eq!(life.safe_until(), ms(1149) + SAFE);
        life.answered(ms(6010), ms(6020));
        assert_eq!(life.safe_until(), ms(5000) + SAFE);
    }

    /// After a restart of its server a session was in doubt for a third of its timeout, although the
    /// server had just confirmed it.
    #[test]
    fn resumed_session_is_safe_from_the_last_answered_request_on() {
        let mut life = Life::new(ms(4000), Some(ms(0)), None);
        life.answered(ms(900), ms(910));
        life.answered(ms(1200), ms(1210));
        assert_eq!(life.safe_until(), SAFE);
        life.resumed();
        life.answered(ms(3000), ms(3010));
        assert_eq!(life.safe_until(), ms(1200) + SAFE, "not from the first answer of the new connection on");
    }

    #[test]
    fn number_of_stored_signs_of_life_is_bounded() {
        let mut life = Life::new(ms(4000), Some(ms(1)), None);
        assert_eq!(life.safe_until(), ms(1) + SAFE);
        (0..100_000).for_each(|at| life.answered(ms(at), ms(at + 1)));
        assert!(life.signs.len() <= SIGNS_MAX);
        let behind = ms(99_999) + SAFE - life.safe_until();
        assert!(behind <= ms(1000 + 2 * 125 + 1), "{behind:?}");
    }
}
