//! A server's report of its health: why it refuses writes, and the troubles of its disk.

use zoolet_model::{ServerId, Zxid};
use zoolet_zab::Role;

/// Why a leader with room refuses writes, for an operator.
pub(crate) const QUORUM_LACKS_ROOM: &str = "fewer than a quorum of the voters have room";

/// A server's own report of its health.
///
/// It is for display, with one exception: a leader refuses writes if fewer than a quorum of the
/// voters have room.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Its role; looking while it does not serve.
    pub role: Role,
    /// Last entry it applied.
    pub applied: Zxid,
    /// Entries that it knows to be committed and has not applied.
    pub behind: u64,
    /// Why it would refuse writes if it led.
    pub refusal: Option<Refusal>,
    /// Troubles of its disk, other than a `refusal`.
    pub disk: DiskTroubles,
    /// It has failed to apply a known commit for 10 s.
    pub lags: bool,
    /// From a leader: silent members, at most [`MEMBERS_MAX`](zoolet_zab::MEMBERS_MAX).
    pub silent: Vec<ServerId>,
    /// From a leader: lagging learners, at most [`MEMBERS_MAX`](zoolet_zab::MEMBERS_MAX).
    pub lagging: Vec<ServerId>,
}

impl Health {
    /// Returns whether the two differ in more than progress.
    pub(crate) fn is_news_after(&self, before: &Self) -> bool {
        let Self { role, applied: _, behind: _, refusal, disk, lags, silent, lagging } = self;
        (role, refusal, disk, lags, silent, lagging)
            != (&before.role, &before.refusal, &before.disk, &before.lags, &before.silent, &before.lagging)
    }
}

/// Why a server refuses writes, or would if it led.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// There is room only for deletions.
    Shortage(Shortage),
    /// The disk is mounted read-only.
    ReadOnly,
    /// The log cannot be written.
    Log,
    /// The log cannot grow, because the disk is full.
    LogFull,
    /// The last checkpoint failed, and log or memory is full without it.
    Checkpoint,
    /// The present checkpoint does not end, and log or memory is full without it.
    CheckpointHangs,
    /// A reason from a later release.
    Other,
}

impl Refusal {
    /// Returns whether the server has no room for an entry, except in the space that deletes need.
    ///
    /// A checkpoint that does not end does not count: a leader with such a checkpoint lets writes
    /// wait.
    pub(crate) const fn lacks_room(self) -> bool {
        match self {
            Self::Shortage(_) | Self::ReadOnly | Self::Log | Self::LogFull | Self::Checkpoint => true,
            Self::CheckpointHangs | Self::Other => false,
        }
    }

    /// Returns the reason, for an operator.
    pub fn why(self) -> &'static str {
        match self {
            Self::Shortage(shortage) => shortage.why(),
            Self::ReadOnly => "the disk is read-only",
            Self::Log => "the log cannot be written",
            Self::LogFull => "the disk is full, and the log cannot grow",
            Self::Checkpoint => "the last checkpoint failed, and log or memory is full without it",
            Self::CheckpointHangs => "a checkpoint does not end, and log or memory is full without it",
            Self::Other => "this release does not know the reason",
        }
    }
}

/// The scarce resource that limits new znodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shortage {
    /// Free space on the disk.
    Disk,
    /// The configured bound on disk use
    /// ([`Limits::disk_bytes_max`](crate::Limits::disk_bytes_max)).
    Bound,
    /// Memory for checksums of the base's file, which grow with the file.
    ///
    /// That memory is half of [`Limits::base_cache_bytes`](crate::Limits::base_cache_bytes), at
    /// least 1 MiB. Each GiB of the file takes 1 MiB.
    Memory,
}

impl Shortage {
    /// Returns why writes are refused meanwhile, for an operator.
    pub fn why(self) -> &'static str {
        match self {
            Self::Disk => "the disk is full",
            Self::Bound => "the data directory is as large as disk_bytes_max allows",
            Self::Memory => "the tree is as large as its memory allows",
        }
    }
}

/// One trouble of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskTrouble {
    /// One sync in a hundred takes more than half a second.
    Slow,
    /// The medium has used up most of its life or of its spare blocks.
    Worn,
    /// More is written to the medium than its daily budget.
    OverBudget,
    /// A scrub of the base found damage, or consecutive scrubs could not read it.
    Damaged,
    /// A log write or a base read has been unanswered for two seconds.
    Hangs,
    /// The data directory, or a file in it, was removed, moved away or replaced.
    Gone,
}

impl DiskTrouble {
    /// Every trouble.
    pub const ALL: [Self; 6] = [Self::Slow, Self::Worn, Self::OverBudget, Self::Damaged, Self::Hangs, Self::Gone];

    /// Returns the trouble's bit in messages between servers. A bit is never reused.
    const fn bit(self) -> u8 {
        match self {
            Self::Slow => 1,
            Self::Worn => 2,
            Self::OverBudget => 4,
            Self::Damaged => 8,
            Self::Hangs => 16,
            Self::Gone => 32,
        }
    }

    /// Returns whether the ensemble lacks a server while the trouble lasts.
    pub(crate) const fn costs_a_server(self) -> bool {
        matches!(self, Self::Damaged | Self::Hangs | Self::Gone)
    }

    /// Returns the trouble for an operator, such as "its disk is slow".
    pub fn what(self) -> &'static str {
        match self {
            Self::Slow => "its disk is slow",
            Self::Worn => "its disk is nearly worn out",
            Self::OverBudget => "it writes more to its flash than the budget",
            Self::Damaged => "its base is damaged or unreadable",
            Self::Hangs => "its disk does not answer",
            Self::Gone => "its data directory or a file in it is gone",
        }
    }
}

/// A set of disk troubles.
///
/// It travels with the server's [`Health`], so every other server reports it
/// too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskTroubles(u8);

impl DiskTroubles {
    /// Decodes the set from a message. Bits unknown to this release are kept but not shown.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Encodes the set for a message.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether the set contains `trouble`.
    pub fn contains(self, trouble: DiskTrouble) -> bool {
        self.0 & trouble.bit() != 0
    }

    /// Returns the troubles that this release knows.
    pub fn iter(self) -> impl Iterator<Item = DiskTrouble> {
        DiskTrouble::ALL.into_iter().filter(move |&trouble| self.contains(trouble))
    }
}

impl FromIterator<DiskTrouble> for DiskTroubles {
    fn from_iter<T: IntoIterator<Item = DiskTrouble>>(troubles: T) -> Self {
        Self(troubles.into_iter().fold(0, |bits, trouble| bits | trouble.bit()))
    }
}
