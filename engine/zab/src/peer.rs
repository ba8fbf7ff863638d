//! A server's knowledge of its peers.

use crate::{Attempt, Credentials, Epoch, Incarnation, LinkId, Notification, ServerId, Stance, Zxid};

/// Longest delay of a pong that counts, in milliseconds: a longer one says nothing about the link.
const DELAY_MS_MAX: u64 = 1000;

/// A peer with a live link.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: ServerId,
    pub(crate) link: LinkId,
    pub(crate) disk: Incarnation,
    /// When any message last came from it.
    pub(crate) heard_ms: Option<u64>,
    /// Its last notification, and when that came.
    pub(crate) said: Option<(Notification, u64)>,
    /// Since when its notifications say that it suspects its leader.
    pub(crate) suspects_ms: Option<u64>,
    /// A notification to this peer is due.
    pub(crate) owes_notification: bool,
    /// Its state as a learner of this server; `None` until it asks to join.
    pub(crate) learner: Option<Learner>,
}

impl Peer {
    pub(crate) fn new(id: ServerId, link: LinkId, disk: Incarnation) -> Self {
        Self { id, link, disk, heard_ms: None, said: None, suspects_ms: None, owes_notification: true, learner: None }
    }

    pub(crate) fn is_fresh(&self, now: u64, fresh_ms: u32) -> bool {
        self.heard_ms.is_some_and(|heard| now.saturating_sub(heard) <= u64::from(fresh_ms))
    }

    /// Notes a notification from it.
    pub(crate) fn note_said(&mut self, now: u64, said: Notification) {
        let suspects = matches!(said.stance, Stance::Following { suspects: true, .. });
        self.suspects_ms = suspects.then(|| self.suspects_ms.unwrap_or(now));
        self.said = Some((said, now));
    }

    /// Returns since when it suspects this leader.
    pub(crate) fn suspects_since_ms(&self, of: ServerId) -> Option<u64> {
        let (said, _) = self.said.as_ref()?;
        self.suspects_ms.filter(|_| matches!(said.stance, Stance::Following { leader, .. } if leader == of))
    }

    /// Returns whether it has said since `since_ms` that it hears this leader of this epoch.
    pub(crate) fn hears_since(&self, since_ms: u64, leader: ServerId, epoch: Epoch) -> bool {
        let hears = Stance::Following { leader, suspects: false };
        self.said
            .as_ref()
            .is_some_and(|(said, at_ms)| *at_ms >= since_ms && said.stance == hears && said.epoch == epoch)
    }

    /// Returns its last notification if that is at most `fresh_ms` old.
    pub(crate) fn fresh(&self, now: u64, fresh_ms: u32) -> Option<&Notification> {
        let (said, at) = self.said.as_ref()?;
        (now.saturating_sub(*at) <= u64::from(fresh_ms)).then_some(said)
    }
}

/// A learner as its leader sees it.
#[derive(Debug)]
pub(crate) struct Learner {
    pub(crate) attempt: Attempt,
    pub(crate) stage: Stage,
    /// When its last message in this attempt came.
    pub(crate) heard_ms: u64,
    /// When the oldest ping since then was sent.
    pub(crate) pinged_ms: Option<u64>,
    /// Mean delay of its pongs, in eighths of a millisecond.
    pub(crate) delay_8ms: u64,
    /// The leader misses its pongs, and has told it so.
    pub(crate) is_missed: bool,
    /// Newest confirmation round it answered.
    pub(crate) ponged: u64,
    pub(crate) owes_ping: bool,
    pub(crate) disk_age_ms: u32,
    /// Whether its disk has room for writes, by its last Pong.
    pub(crate) has_room: bool,
    /// Its oldest unanswered question: its own number, and the round that answers it.
    ///
    /// `sync_next` is its newest question. Both are kept, so that new questions do not delay the
    /// answer to the oldest one.
    pub(crate) sync: Option<(u64, u64)>,
    pub(crate) sync_next: Option<(u64, u64)>,
    /// Number of the question to answer.
    pub(crate) owes_synced: Option<u64>,
    pub(crate) owes_hand_over: bool,
    /// The Commit of this entry, and of earlier ones, does not wait for the next Proposal.
    pub(crate) expects: Zxid,
}

/// A learner's progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It asked to join. LeaderInfo goes out when the epoch's promise is durable here.
    Asked { accepted: Epoch },
    /// LeaderInfo went out.
    ///
    /// Its promise counts only if it is new. An old promise may have been given to another leader
    /// with the same epoch number.
    Invited { counts: bool },
    /// Its promise is durable.
    ///
    /// `committed` is its last known commit. `common` is the last entry both histories have; `None`
    /// if that is too old to be remembered.
    Promised { counts: bool, credentials: Credentials, committed: Zxid, common: Option<Zxid>, is_damaged: bool },
    /// It receives a snapshot that must hold everything up to `at_least`.
    Snapping { at_least: Zxid, is_sent: bool },
    /// It is on the stream.
    Streaming(Stream),
}

/// A learner's position on the stream of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    /// The message to send first: Diff or Trunc.
    pub(crate) opening: Option<Opening>,
    /// Last entry sent.
    pub(crate) sent: Zxid,
    /// Last entry it holds durably.
    pub(crate) acked: Zxid,
    /// Last commit watermark that the leader sent to it.
    pub(crate) reported: Zxid,
    /// NewLeader went out.
    pub(crate) is_led: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opening {
    Diff,
    Trunc,
}

impl Learner {
    pub(crate) fn new(attempt: Attempt, accepted: Epoch, now: u64) -> Self {
        Self {
            attempt,
            stage: Stage::Asked { accepted },
            heard_ms: now,
            pinged_ms: None,
            delay_8ms: 0,
            is_missed: false,
            ponged: 0,
            owes_ping: true,
            disk_age_ms: 0,
            has_room: false,
            sync: None,
            sync_next: None,
            owes_synced: None,
            owes_hand_over: false,
            expects: Zxid::ZERO,
        }
    }

    /// Notes how long a pong took.
    ///
    /// A smoothed mean, as in TCP: each new sample weighs one eighth.
    pub(crate) fn note_delay(&mut self, now: u64) {
        if let Some(pinged_ms) = self.pinged_ms {
            let took_8ms = now.saturating_sub(pinged_ms).min(DELAY_MS_MAX) * 8;
            self.delay_8ms = (self.delay_8ms * 7 + took_8ms) / 8;
        }
    }

    pub(crate) fn is_snapping(&self) -> bool {
        matches!(self.stage, Stage::Snapping { .. })
    }

    /// Returns whether it has reached the stream of new entries.
    pub(crate) fn is_synced(&self) -> bool {
        matches!(self.stage, Stage::Streaming(Stream { opening: None, is_led: true, .. }))
    }

    /// Returns the last entry it is known to hold durably.
    pub(crate) fn acked(&self) -> Zxid {
        if let Stage::Streaming(stream) = &self.stage { stream.acked } else { Zxid::ZERO }
    }
}
