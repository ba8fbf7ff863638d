//! When a client pings its server, and when it counts the server as silent.

use std::time::Duration;
use tokio::time::Instant;

/// The last signs of life on a connection, in both directions.
#[derive(Debug)]
pub(super) struct Pulse {
    /// The session timeout, as the server granted it.
    timeout: Duration,
    /// The last bytes to the server.
    spoke: Instant,
    /// The last bytes from the server.
    heard: Instant,
}

/// What a client does at the end of a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    Ping,
    /// Leave the server.
    Leave,
}

impl Pulse {
    /// Returns the pulse of a connection whose handshake has just ended.
    pub(super) fn new(timeout: Duration, now: Instant) -> Self {
        Self { timeout, spoke: now, heard: now }
    }

    pub(super) fn note_spoken(&mut self, now: Instant) {
        self.spoke = now;
    }

    pub(super) fn note_heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Returns what is due next without further bytes, and when.
    ///
    /// As in ZooKeeper's client, a ping follows a third of the timeout without bytes to the server, and the server
    /// is left after two thirds without bytes from it. The last third is for the next server: a session that
    /// reaches it within this third has not expired. `is_writing` tells whether bytes wait for the connection; a
    /// ping behind them would say nothing.
    pub(super) fn next(&self, is_writing: bool) -> (Instant, Due) {
        let ping = self.spoke + self.timeout / 3;
        let leave = self.heard + self.timeout * 2 / 3;
        if is_writing || leave <= ping { (leave, Due::Leave) } else { (ping, Due::Ping) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Returns the actions of an idle client, in thirds of the timeout, whose server answers its first pings at once.
    fn actions(answered: usize) -> Vec<(u64, Due)> {
        let begin = Instant::now();
        let mut pulse = Pulse::new(TIMEOUT, begin);
        let mut actions = Vec::new();
        loop {
            let (now, due) = pulse.next(false);
            actions.push(((now - begin).as_secs() / 10, due));
            match due {
                Due::Leave => return actions,
                Due::Ping => pulse.note_spoken(now),
            }
            if actions.len() <= answered {
                pulse.note_heard(now);
            }
        }
    }

    #[test]
    fn idle_client_pings_each_third_and_leaves_a_mute_server_after_two() {
        assert_eq!(actions(0), [(1, Due::Ping), (2, Due::Leave)]);
        let pings = (1..=4).map(|third| (third, Due::Ping));
        assert_eq!(actions(3), pings.chain([(5, Due::Leave)]).collect::<Vec<_>>());
    }

    #[test]
    fn request_defers_the_ping_and_an_answer_the_end() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut pulse = Pulse::new(TIMEOUT, begin);
        pulse.note_spoken(at(5));
        assert_eq!(pulse.next(false), (at(15), Due::Ping));
        pulse.note_spoken(at(15));
        assert_eq!(pulse.next(false), (at(20), Due::Leave));
        pulse.note_heard(at(16));
        assert_eq!(pulse.next(false), (at(25), Due::Ping));
    }

    #[test]
    fn no_ping_waits_behind_bytes_that_the_server_does_not_take() {
        let begin = Instant::now();
        assert_eq!(Pulse::new(TIMEOUT, begin).next(true), (begin + Duration::from_secs(20), Due::Leave));
    }
}
