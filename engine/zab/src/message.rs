//! What servers say to each other. Names are those of the Zab papers; docs/ARCHITECTURE.md maps them.

use crate::{Attempt, Config, EnsembleId, Epoch, ServerId, Spans, Zxid};

/// How much history a server holds durably. The greater one wins an election: newest epoch first, then the last entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Credentials {
    /// The newest epoch whose initial history it holds (f.a).
    pub current: Epoch,
    /// Its last durable entry.
    pub last: Zxid,
}

/// What the sender of a [`Notification`] does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stance {
    /// It knows no leader and wants this server to lead, itself perhaps. `None`: it cannot vote, or nobody is fit.
    Looking {
        /// Whom.
        vote: Option<ServerId>,
    },
    /// It was elected; `established` once its epoch's first entry is committed.
    Leading {
        /// Whether it is established.
        established: bool,
    },
    /// It follows or observes this server.
    Following {
        /// Whom.
        leader: ServerId,
        /// It has not heard that leader for too long, and would leave it together with a quorum.
        suspects: bool,
    },
}

/// Where the sender stands. Said whenever it changes, again and again while looking, and in answer to one who is looking.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Notification {
    /// The ensemble its disk belongs to.
    pub ensemble: EnsembleId,
    /// What it does.
    pub stance: Stance,
    /// The newest epoch it promised; of one that leads or follows, the epoch it does that in.
    pub epoch: Epoch,
    /// What it holds.
    pub credentials: Credentials,
    /// The version of the newest configuration that it knows to be committed: whoever has that one proposed knows it too then.
    pub config: Zxid,
    /// Whom it hears, and would hear as leader or follower.
    pub hears: Servers,
}

/// A message from one server to another. Everything but Ping and Pong travels on the link's ordered streams.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "nothing is allocated, so nothing is boxed")]
pub enum Message {
    /// See [`Notification`].
    Notification(Notification),
    /// A learner asks to join (CEPOCH).
    FollowerInfo {
        /// Its number; all that follows carries it.
        attempt: Attempt,
        /// The newest epoch it promised (f.p).
        accepted: Epoch,
        /// What it holds.
        credentials: Credentials,
    },
    /// The leader's epoch (NEWEPOCH).
    LeaderInfo {
        /// As asked.
        attempt: Attempt,
        /// The epoch to promise.
        epoch: Epoch,
    },
    /// The learner promised it, durably (ACK-E); everything said here is durable.
    AckEpoch {
        /// As begun.
        attempt: Attempt,
        /// The promised epoch.
        epoch: Epoch,
        /// What it holds.
        credentials: Credentials,
        /// What it knows to be committed.
        committed: Zxid,
        /// Its history above that: one span for each epoch that has an entry there.
        tail: Spans,
        /// Its history is damaged, or differs from a leader's where it should not: it counts in no quorum and gets a snapshot.
        is_damaged: bool,
    },
    /// The learner's history, up to `from`, is a prefix of the leader's: what is missing follows as Proposals. After a Trunc it keeps
    /// entries up to `from` only.
    Diff {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The learner's last entry that both have.
        from: Zxid,
    },
    /// The learner has entries that the leader does not have: they go, all after `to`. What is missing follows as Proposals.
    Trunc {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The last entry that both have.
        to: Zxid,
    },
    /// A snapshot follows, outside this machine, on a stream of its own. Nothing else is sent before its Ack.
    Snap {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The snapshot must hold at least everything up to here.
        at_least: Zxid,
        /// The configuration the leader knows to be committed.
        config: Config,
    },
    /// The initial history of the epoch is complete (NEWLEADER); the epoch's first entry comes next, and its Ack is ACK-LD.
    NewLeader {
        /// As begun.
        attempt: Attempt,
        /// The epoch.
        epoch: Epoch,
        /// The leader's commit watermark: the learner serves nothing older.
        committed: Zxid,
    },
    /// Entries, of one epoch, directly after what was sent before. Whoever carries the message adds their bytes.
    Proposal {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch, not that of the entries.
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
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The watermark.
        to: Zxid,
    },
    /// Everything up to `to` is durable at the learner. `to` in the leader's epoch counts for the commit rule.
    Ack {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The learner's last durable entry.
        to: Zxid,
    },
    /// A learner asks for a point that a linearizable read must have applied.
    Sync {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The learner's number for it.
        round: u64,
    },
    /// The answer; it follows the Commit of `up_to`.
    Synced {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// As asked.
        round: u64,
        /// The point.
        up_to: Zxid,
    },
    /// The leader stops and wants this voter, which has everything, to lead.
    HandOver {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// Who should lead.
        to: ServerId,
        /// The leader's last entry.
        last: Zxid,
    },
    /// A heartbeat, a datagram.
    Ping {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// The newest confirmation asked for; 0 before the first.
        round: u64,
        /// Until the next one, milliseconds at most.
        interval_ms: u32,
        /// How long the leader's oldest append that is not durable has waited, milliseconds.
        disk_age_ms: u32,
    },
    /// The answer, a datagram.
    Pong {
        /// As begun.
        attempt: Attempt,
        /// The leader's epoch.
        epoch: Epoch,
        /// That of the ping.
        round: u64,
        /// How long the learner's oldest append that is not durable has waited, milliseconds.
        disk_age_ms: u32,
        /// Whether the learner would admit writes if it led: its disk has room.
        has_room: bool,
    },
}

impl Message {
    /// Whether it may be lost, repeated and overtaken.
    pub fn is_datagram(&self) -> bool {
        matches!(self, Self::Ping { .. } | Self::Pong { .. })
    }
}

/// A set of servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Servers([u64; 4]);

impl Servers {
    /// Nobody.
    pub const NOBODY: Self = Self([0; 4]);

    /// Adds one.
    pub fn insert(&mut self, id: ServerId) {
        self.0[usize::from(id.as_u8() >> 6)] |= 1 << (id.as_u8() & 63);
    }

    /// Whether it is in.
    pub fn contains(&self, id: ServerId) -> bool {
        self.0[usize::from(id.as_u8() >> 6)] & (1 << (id.as_u8() & 63)) != 0
    }
}
