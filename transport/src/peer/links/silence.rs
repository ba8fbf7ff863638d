//! Detects a link on which nothing arrives any more.
//!
//! QUIC's own idle timeout is too late for an ensemble, and so is QUIC's recovery. After a cut, an
//! end that had a whole congestion window in flight sends nothing, not even acknowledgements, until
//! its next loss probe. Each loss probe waits twice as long as the one before. So the end may stay
//! mute for up to as long again as the cut lasted. A new link has no such state.

use super::link_tasks::LOOK;
use crate::peer::table::heard_frames;
use quinn::Connection;
use std::time::Instant;

/// Number of consecutive checks, [`LOOK`] apart, that find an unanswered question.
///
/// The first check may find a question that was just sent, so a peer has at least one interval less
/// than this to answer: 1 s, as long as [`dial`](super::dial) waits for the answer to a handshake.
/// A question that was sent before the last received frame was noticed counts only once QUIC repeats
/// it. So the link may end 2 s after the question.
const UNANSWERED_MAX: u32 = 3;

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

    /// Checks the link, once per [`LOOK`]. Returns whether the peer no longer answers.
    pub(super) fn lasts(&mut self, now: Instant, traffic: Traffic) -> bool {
        let is_late = now.duration_since(self.checked) >= 2 * LOOK;
        self.checked = now;
        if traffic.heard != self.traffic.heard {
            (self.traffic, self.unanswered) = (traffic, 0);
        } else if is_late {
            // This server was paused. The answers may be in the buffer of its socket.
            self.unanswered = 0;
        } else if traffic.asked != self.traffic.asked {
            self.unanswered += 1;
        }
        self.unanswered == UNANSWERED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks once per interval; each pair is the frames heard and asked so far.
    fn ends_at(checks: &[(u64, u64)]) -> Option<usize> {
        let begun = Instant::now();
        let mut silence = Silence::new(begun, Traffic::default());
        let traffic = |&(heard, asked)| Traffic { heard, asked };
        (1..).zip(checks).position(|(check, now)| silence.lasts(begun + LOOK * check, traffic(now)))
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
        let mut at = |looks: u32| silence.lasts(begun + LOOK * looks, Traffic { heard: 0, asked: 1 });
        assert!(!at(1) && !at(2));
        assert!(!at(10), "the pause ends before this server reads its socket");
        assert!(!at(11) && !at(12));
        assert!(at(13), "after the pause the peer is silent too");
    }
}
