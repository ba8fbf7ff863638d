//! Messages between servers.
//!
//! Names are those of the Zab papers; docs/design/protocol.md maps them.

use crate::{Attempt, Config, EnsembleId, Epoch, ServerId, Spans, Zxid};

/// How much history a server holds durably.
///
/// The greater value wins an election: the newest epoch first, then the last entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Credentials {
    /// Newest epoch whose initial history the server holds (f.a).
    pub current: Epoch,
    /// The server's last durable entry.
    pub last: Zxid,
}

/// The age of the log that a learner reports while it could not serve as leader, in milliseconds.
pub const CANNOT_LEAD_MS: u32 = u32::MAX >> 1;

/// The activity of a [`Notification`]'s sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stance {
    /// Looking for a leader.
    Looking {
        /// The server it votes for, possibly itself.
        ///
        /// `None`: the sender cannot vote, or no server is fit to lead.
        vote: Option<ServerId>,
    },
    /// Elected.
    Leading {
        /// Whether its epoch's first entry is committed.
        established: bool,
    },
    /// Following or observing a leader.
    Following {
        /// The leader.
        leader: ServerId,
        /// Whether the leader has been silent for too long.
        ///
        /// The sender leaves a suspected leader together with a quorum.
        suspects: bool,
    },
}

/// The sender's view of the election.
///
/// A server sends it when its view changes, repeatedly while looking, and in answer to a looking
/// server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Notification {
    /// Ensemble that the sender's disk belongs to.
    pub ensemble: EnsembleId,
    /// The sender's activity.
    pub stance: Stance,
    /// Newest epoch the sender promised; for a leader or learner, its current leadership's epoch.
    pub epoch: Epoch,
    /// The sender's durable history.
    pub credentials: Credentials,
    /// Version of the newest configuration the sender knows to be committed.
    ///
    /// A receiver with this configuration proposed learns that it is committed.
    pub config: Zxid,
    /// Peers the sender has heard lately.
    ///
    /// Election and data share a link, so the sender can hear these peers as leader or follower
    /// too.
    pub hears: Servers,
}

/// A message from one server to another.
///
/// All messages except Ping and Pong travel on the link's ordered streams.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "nothing is allocated, so nothing is boxed")]
pub enum Message {
    /// See [`Notification`].
    Notification(Notification),
    /// A learner asks to join (CEPOCH).
    FollowerInfo {
        /// Number of this join attempt; every message that follows carries it.
        attempt: Attempt,
        /// Newest epoch the learner promised (f.p).
        accepted: Epoch,
        /// The learner's durable history.
        credentials: Credentials,
    },
    /// The leader announces its epoch (NEWEPOCH).
    LeaderInfo {
        /// The join attempt.
        attempt: Attempt,
        /// The epoch to promise.
        epoch: Epoch,
    },
    /// The learner has promised the epoch (ACK-E).
    ///
    /// The promise and everything else in this message are durable.
    AckEpoch {
        /// The join attempt.
        attempt: Attempt,
        /// The promised epoch.
        epoch: Epoch,
        /// The learner's durable history.
        credentials: Credentials,
        /// Last entry the learner knows to be committed.
        committed: Zxid,
        /// The learner's history above `committed`: one span for each epoch with an entry there.
        tail: Spans,
        /// Whether the learner's history is damaged or wrongly differs from a leader's.
        ///
        /// Such a learner counts in no quorum and gets a snapshot.
        is_damaged: bool,
    },
    /// The learner's history is a prefix of the leader's; Proposals complete it.
    Diff {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The learner's last entry, which the leader has too.
        from: Zxid,
    },
    /// The learner must drop all entries after `to`, which the leader does not have.
    ///
    /// Proposals then complete its history.
    Trunc {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// Last entry that both have.
        to: Zxid,
    },
    /// A snapshot follows on a separate stream, outside this machine.
    ///
    /// The leader sends nothing else of the synchronization before the learner's Ack.
    Snap {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The snapshot must hold everything up to this entry.
        at_least: Zxid,
        /// Configuration the leader knows to be committed.
        config: Config,
    },
    /// The initial history of the epoch is complete (NEWLEADER).
    ///
    /// The epoch's first entry comes next, unless the learner has it already. The learner's Ack of
    /// that entry is ACK-LD.
    NewLeader {
        /// The join attempt.
        attempt: Attempt,
        /// The epoch.
        epoch: Epoch,
        /// The learner serves nobody before it has committed up to here.
        ///
        /// This is the leader's commit watermark. If the learner already has entries of the epoch,
        /// it is the leader's last entry.
        serves_from: Zxid,
    },
    /// Entries of one epoch, directly after the ones sent before.
    ///
    /// The driver adds their bytes.
    Proposal {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch, not the entries' epoch.
        epoch: Epoch,
        /// First entry.
        from: Zxid,
        /// Last entry.
        to: Zxid,
        /// The leader's commit watermark.
        committed: Zxid,
    },
    /// Everything up to `to` is committed.
    Commit {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The commit watermark.
        to: Zxid,
    },
    /// Everything up to `to` is durable at the learner.
    ///
    /// The commit rule counts it if `to` is in the leader's epoch.
    Ack {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The learner's last durable entry.
        to: Zxid,
    },
    /// A learner asks which entry a linearizable read must have applied.
    Sync {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The learner's number for the question.
        round: u64,
    },
    /// Answers Sync; the Commit of `up_to` precedes it.
    Synced {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The learner's number for the question.
        round: u64,
        /// A read that has applied this entry is linearizable.
        up_to: Zxid,
    },
    /// The leader stops and names a voter with its whole history as successor.
    HandOver {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The voter that should lead.
        to: ServerId,
        /// The leader's last entry.
        last: Zxid,
    },
    /// A heartbeat, sent as a datagram.
    Ping {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// Newest confirmation round the leader asks for; 0 before the first.
        round: u64,
        /// Maximum time until the next Ping, in milliseconds.
        interval_ms: u32,
        /// Time since the leader last heard a quorum, in milliseconds; `u32::MAX` if the leader is not
        /// established, or has no quorum of learners.
        quorum_age_ms: u32,
    },
    /// Answers a Ping, as a datagram.
    Pong {
        /// The join attempt.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// Newest round of the Pings it answers.
        round: u64,
        /// Time for which the learner's log has made no progress, in milliseconds.
        ///
        /// 0 if no append is pending and the disk does not refuse appends; at least [`CANNOT_LEAD_MS`] while
        /// a snapshot replaces the learner's state.
        disk_age_ms: u32,
        /// Whether the learner's disk has room, so it could admit writes as leader.
        has_room: bool,
    },
}

impl Message {
    /// Returns whether the message may be lost, repeated or overtaken.
    pub fn is_datagram(&self) -> bool {
        matches!(self, Self::Ping { .. } | Self::Pong { .. })
    }
}

/// A set of servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Servers([u64; 4]);

impl Servers {
    /// The empty set.
    pub const NOBODY: Self = Self([0; 4]);

    /// Adds a server.
    pub fn insert(&mut self, id: ServerId) {
        self.0[usize::from(id.as_u8() >> 6)] |= 1 << (id.as_u8() & 63);
    }

    /// Returns whether the set contains this server.
    pub fn contains(&self, id: ServerId) -> bool {
        self.0[usize::from(id.as_u8() >> 6)] & (1 << (id.as_u8() & 63)) != 0
    }
}
