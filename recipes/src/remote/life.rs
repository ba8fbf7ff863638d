//! Until when a session surely lives, at a server of which only the protocol is known.

use std::collections::VecDeque;
use std::time::Duration;

/// Signs of life that are remembered, at most.
const SIGNS_MAX: usize = 16;

/// By so much two clocks may differ in speed, one in: each is off by 500 millionths at most, which is what NTP corrects.
const DRIFT_ONE_IN: u32 = 1000;

/// Signs of life that were answered, and what they show.
///
/// The leader ends sessions, and the client may be at a follower. Apache ZooKeeper's follower tells its leader of the sessions that it heard with the
/// answer to the leader's pings, which come every half tick; the shortest timeout is two ticks, so that is a quarter of any timeout at most. It goes on
/// answering reads while it is cut off from its leader, and nobody who decides hears of those. A write or a sync goes through the leader, on the
/// same connection as the pings: once it is answered, the leader has also been told of whatever was answered a quarter of the timeout before it was sent.
/// It is not a sign of life itself: a leader checks the session of what followers forward, and does not touch it.
///
/// This takes for granted that a server's `minSessionTimeout` is two ticks or more, as it is by default.
#[derive(Debug)]
pub(super) struct Life {
    timeout: Duration,
    /// When the newest sign was sent of which the leader surely knows.
    told: Option<Duration>,
    /// Something sent then is taken to be known once the first answer has come through the leader.
    presumed: Option<Duration>,
    /// Later ones, when sent and when answered, some way apart.
    signs: VecDeque<(Duration, Duration)>,
}

impl Life {
    pub(super) fn new(timeout: Duration, told: Option<Duration>, presumed: Option<Duration>) -> Self {
        Self { timeout, told, presumed, signs: VecDeque::new() }
    }

    /// By how much later than its follower the leader may hear of a session.
    fn told_late(&self) -> Duration {
        self.timeout / 4
    }

    /// What went through the leader was answered.
    pub(super) fn answered(&mut self, sent: Duration, now: Duration) {
        self.told = self.told.max(self.presumed.take());
        while let Some((first, _)) = self.signs.front().filter(|(_, answered)| *answered + self.told_late() <= sent) {
            self.told = self.told.max(Some(*first));
            self.signs.pop_front();
        }
        let apart = self.told_late() / (SIGNS_MAX as u32 / 2);
        if self.signs.back().is_none_or(|(last, _)| sent >= *last + apart) && self.signs.len() < SIGNS_MAX {
            self.signs.push_back((sent, now));
        }
    }

    /// Zero before there is anything to say.
    pub(super) fn safe_until(&self) -> Duration {
        self.told.map_or(Duration::ZERO, |told| told + self.timeout - self.timeout / DRIFT_ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Of a timeout of 4 s so much is counted on.
    const SAFE: Duration = ms(3996);

    #[test]
    fn a_sign_counts_once_something_later_came_back_through_the_leader() {
        let mut life = Life::new(ms(4000), None, None);
        life.answered(ms(100), ms(150));
        assert_eq!(life.safe_until(), Duration::ZERO);
        life.answered(ms(1149), ms(1200));
        assert_eq!(life.safe_until(), Duration::ZERO, "its follower may not have told of it yet");
        life.answered(ms(1150), ms(1200));
        assert_eq!(life.safe_until(), ms(100) + SAFE);
        // Stopped for a long time: what was sent before is what its leader last heard of.
        life.answered(ms(5000), ms(5010));
        assert_eq!(life.safe_until(), ms(1149) + SAFE);
        life.answered(ms(6010), ms(6020));
        assert_eq!(life.safe_until(), ms(5000) + SAFE);
    }

    #[test]
    fn many_signs_take_no_more_room_than_few() {
        let mut life = Life::new(ms(4000), Some(ms(1)), None);
        assert_eq!(life.safe_until(), ms(1) + SAFE);
        (0..100_000).for_each(|at| life.answered(ms(at), ms(at + 1)));
        assert!(life.signs.len() <= SIGNS_MAX);
        let behind = ms(99_999) + SAFE - life.safe_until();
        assert!(behind <= ms(1000 + 2 * 125 + 1), "{behind:?}");
    }
}
