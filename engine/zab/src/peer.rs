//! What a server knows of another one.

use crate::{Attempt, Credentials, Epoch, Incarnation, LinkId, Notification, ServerId, Zxid};

/// A peer with a live link.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: ServerId,
    pub(crate) link: LinkId,
    pub(crate) disk: Incarnation,
    /// When anything came from it.
    pub(crate) heard_ms: Option<u64>,
    /// The last notification, and when it came.
    pub(crate) said: Option<(Notification, u64)>,
    /// A notification has to go to it.
    pub(crate) owes_notification: bool,
    /// What it is to this server as a leader; `None` while it has not asked to join.
    pub(crate) learner: Option<Learner>,
}

impl Peer {
    pub(crate) fn new(id: ServerId, link: LinkId, disk: Incarnation) -> Self {
        Self { id, link, disk, heard_ms: None, said: None, owes_notification: true, learner: None }
    }

    pub(crate) fn is_fresh(&self, now: u64, fresh_ms: u32) -> bool {
        self.heard_ms.is_some_and(|heard| now.saturating_sub(heard) <= u64::from(fresh_ms))
    }

    /// What it said, if that was not long ago.
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
    /// When it last said anything in this attempt.
    pub(crate) heard_ms: u64,
    /// The newest confirmation it answered.
    pub(crate) ponged: u64,
    pub(crate) owes_ping: bool,
    pub(crate) disk_age_ms: u32,
    /// Its last Pong said that its disk has room for writes.
    pub(crate) has_room: bool,
    /// Its oldest question for a point to read at that is not answered, with the round that answers it, and its newest: one that comes meanwhile does
    /// not put off the answer.
    pub(crate) sync: Option<(u64, u64)>,
    pub(crate) sync_next: Option<(u64, u64)>,
    /// The answer that has to go to it.
    pub(crate) owes_synced: Option<u64>,
    pub(crate) owes_hand_over: bool,
}

/// How far a learner has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It asked; LeaderInfo goes out when the epoch's promise is durable here.
    Asked { accepted: Epoch },
    /// LeaderInfo went out. Its promise counts only if it is new: an old one may have been given to another leader of this epoch number.
    Invited { counts: bool },
    /// It promised, durably. `committed`: what it knows to be. `common`: the last entry both have; `None` when that was too long ago to tell.
    Promised { counts: bool, credentials: Credentials, committed: Zxid, common: Option<Zxid>, is_damaged: bool },
    /// It receives a snapshot that must hold at least so much.
    Snapping { at_least: Zxid, is_told: bool },
    /// It is on the stream.
    Streaming(Stream),
}

/// Where a learner is on the stream of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    /// Diff or Trunc has to go first, and which.
    pub(crate) opening: Option<Opening>,
    /// The last entry sent.
    pub(crate) sent: Zxid,
    /// The last one it has, durably.
    pub(crate) acked: Zxid,
    /// The commit watermark it was told.
    pub(crate) told: Zxid,
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
            ponged: 0,
            owes_ping: true,
            disk_age_ms: 0,
            has_room: false,
            sync: None,
            sync_next: None,
            owes_synced: None,
            owes_hand_over: false,
        }
    }

    pub(crate) fn is_snapping(&self) -> bool {
        matches!(self.stage, Stage::Snapping { .. })
    }

    /// The last entry it is known to have durably.
    pub(crate) fn acked(&self) -> Zxid {
        if let Stage::Streaming(stream) = &self.stage { stream.acked } else { Zxid::ZERO }
    }
}
