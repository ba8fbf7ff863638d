//! Detects a link on which nothing arrives any more.
//!
//! QUIC's own idle timeout is too late for an ensemble, and so is QUIC's recovery. After a cut, an
//! end that had a whole congestion window in flight sends nothing, not even acknowledgements, until
//! its next loss probe. Each loss probe waits twice as long as the one before. So the end may stay
//! mute for up to as long again as the cut lasted. A new link has no such state.

use super::link_tasks::LOOK;
use crate::peer::table::heard_frames;
use quinn::Connection;
use std::mem;
use std::time::{Duration, Instant};

/// Number of consecutive checks, [`LOOK`] apart, that find an unanswered question.
///
/// The first check may find a question that was just sent, so a peer has at least one interval less
/// than this to answer: 1 s, as long as [`dial`](super::dial) waits for the answer to a handshake.
/// A question that was sent before the last received frame was noticed counts only once QUIC repeats
/// it. So the link may end 2 s after the question.
const UNANSWERED_MAX: u32 = 3;

/// Minimum delay of a check that counts as a pause of this server.
///
/// A pause may begin up to [`LOOK`] before the check is due. So a check finds each pause of 1 s or
/// longer. Peers begin to end links after 1 s. The clock stops while the machine is suspended, so no
/// check finds that.
const LATE_MIN: Duration = LOOK;

/// What one end has sent and heard, in frames.
#[derive(Clone, Copy, Default)]
pub(super) struct Traffic {
    /// Frames that were received.
    heard: u64,
    /// Frames that were sent, of the common kinds that the peer must acknowledge.
    asked: u64,
}

impl Traffic {
    pub(super) fn of(connection: &Connection) -> Self {
        let stats = connection.stats();
        let sent = stats.frame_tx;
        // A loss probe is often an IMMEDIATE_ACK frame alone.
        let probes = sent.ping + sent.immediate_ack;
        Self { heard: heard_frames(&stats), asked: probes + sent.datagram + sent.stream }
    }
}

/// What a check of a link found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing unusual.
    Nothing,
    /// This server did not run for this time, or longer, before the check.
    Pause(Duration),
    /// The peer no longer answers.
    Silence,
}

/// The silence of one link.
pub(super) struct Silence {
    /// Time of the last check.
    checked: Instant,
    /// Frames at the last check that found received ones.
    traffic: Traffic,
    unanswered: u32,
}

impl Silence {
    pub(super) fn new(now: Instant, traffic: Traffic) -> Self {
        Self { checked: now, traffic, unanswered: 0 }
    }

    /// Checks the link, once per [`LOOK`].
    pub(super) fn check(&mut self, now: Instant, traffic: Traffic) -> Found {
        let since = mem::replace(&mut self.checked, now);
        let late = now.duration_since(since).saturating_sub(LOOK);
        let was_paused = late >= LATE_MIN;
        if traffic.heard != self.traffic.heard {
            (self.traffic, self.unanswered) = (traffic, 0);
        } else if was_paused {
            // The answers may be in the buffer of this server's socket.
            self.unanswered = 0;
        } else if traffic.asked != self.traffic.asked {
            self.unanswered += 1;
        }
        match self.unanswered {
            _ if was_paused => Found::Pause(late),
            UNANSWERED_MAX => Found::Silence,
            _ => Found::Nothing,
        }
    }
}

/// Returns whether a pause is found for the first time. Every link finds it, all within [`LOOK`].
pub(super) fn is_news(last_found: &mut Option<Instant>, now: Instant) -> bool {
    last_found.replace(now).is_none_or(|last| now.duration_since(last) >= LOOK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks once per interval; each pair is the frames heard and asked so far.
    fn ends_at(checks: &[(u64, u64)]) -> Option<usize> {
        let begun = Instant::now();
        let mut silence = Silence::new(begun, Traffic::default());
        let traffic = |&(heard, asked)| Traffic { heard, asked };
        (1..).zip(checks).position(|(check, now)| silence.check(begun + LOOK * check, traffic(now)) == Found::Silence)
    }

    #[test]
    fn link_without_questions_is_not_silent() {
        assert_eq!(ends_at(&[(0, 0); 20]), None);
        assert_eq!(ends_at(&[(5, 5); 20]), None, "the last question came before the last answer");
    }

    #[test]
    fn link_is_silent_at_the_third_check_after_an_unanswered_question() {
        assert_eq!(ends_at(&[(5, 5), (5, 6), (5, 6), (5, 6)]), Some(3));
        assert_eq!(ends_at(&[(5, 5), (5, 6), (5, 8), (5, 9)]), Some(3), "further questions change nothing");
    }

    #[test]
    fn any_received_frame_ends_the_silence() {
        assert_eq!(ends_at(&[(5, 5), (5, 6), (5, 6), (6, 6), (6, 7), (6, 7), (7, 7), (7, 7), (7, 7)]), None);
    }

    #[test]
    fn pause_of_this_server_is_not_the_peers_silence() {
        let begun = Instant::now();
        let mut silence = Silence::new(begun, Traffic::default());
        let mut at = |looks: u32| silence.check(begun + LOOK * looks, Traffic { heard: 0, asked: 1 });
        assert_eq!([at(1), at(2)], [Found::Nothing, Found::Nothing]);
        assert_eq!(at(10), Found::Pause(LOOK * 7), "it ends before this server reads its socket");
        assert_eq!([at(11), at(12)], [Found::Nothing, Found::Nothing]);
        assert_eq!(at(13), Found::Silence, "after the pause the peer is silent too");
    }

    #[test]
    fn pause_is_found_also_if_the_peer_was_heard() {
        let begun = Instant::now();
        let mut silence = Silence::new(begun, Traffic::default());
        assert_eq!(silence.check(begun + LOOK * 5, Traffic { heard: 1, asked: 1 }), Found::Pause(LOOK * 4));
    }

    #[test]
    fn pause_that_several_links_find_is_news_once() {
        let (begun, mut last_found) = (Instant::now(), None);
        let mut is_news_at = |ms| is_news(&mut last_found, begun + Duration::from_millis(ms));
        assert_eq!([0, 1, 2].map(&mut is_news_at), [true, false, false]);
        assert!(is_news_at(1_100), "a check that is late again");
    }

    #[test]
    fn pause_of_one_second_is_found_at_any_time() {
        let begun = Instant::now();
        for ms in 0..500 {
            // It begins this long after a check. The next check is due at 500 ms.
            let ends = begun + Duration::from_millis(ms + 1000);
            let found = Silence::new(begun, Traffic::default()).check(ends, Traffic::default());
            assert!(matches!(found, Found::Pause(least) if least <= Duration::from_secs(1)), "{found:?}");
        }
    }
}
