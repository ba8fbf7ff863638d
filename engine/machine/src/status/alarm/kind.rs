//! Kinds of alarms, for programs that react to one.

use super::Trouble;
use crate::status::DiskTrouble;
use zoolet_model::ServerId;

/// Kind of an [`Alarm`](super::Alarm).
///
/// Its server is [`Alarm::server`](super::Alarm::server), or this server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AlarmKind {
    /// The server serves no client.
    NotServing,
    /// The leader has not been heard, and no other server was elected.
    LeaderSilent,
    /// The leader refuses the server, because an older copy of its data was put back.
    WentBack,
    /// The server has not caught up after several snapshots.
    NotCatchingUp,
    /// The server's state differs from this server's.
    StateDiffers,
    /// The disk does not answer.
    DiskHangs,
    /// The data directory, or a file in it, was removed, moved or replaced.
    DataDirectoryGone,
    /// A scrub found damage in the base.
    BaseDamaged,
    /// Consecutive scrubs could not read the base.
    BaseUnreadable,
    /// The disk is read-only.
    DiskReadOnly,
    /// The server leads and refuses writes.
    WritesRefused,
    /// Writes wait for a checkpoint that does not end.
    WritesWait,
    /// The server would refuse writes if it led.
    CannotLead,
    /// The disk of another server has this trouble.
    OtherDisk(DiskTrouble),
    /// The server has been behind for 10 s.
    Lags,
    /// The leader does not hear the server.
    NotHeardByLeader,
    /// This server does not reach the server.
    NotReached,
    /// The server's disk does not count: it is new, and no leader has admitted it yet.
    DiskNotCounted,
    /// New sessions are refused.
    SessionsRefused,
    /// A server that a configuration names as a voter is no member of the ensemble.
    NotAMember,
    /// The disk is slow.
    DiskSlow,
    /// More is written to the medium than its budget.
    FlashOverBudget,
    /// The medium has used up most of its life or of its spare blocks.
    DeviceWorn,
    /// The number of voters is even.
    EvenVoters,
    /// The server's engine does not answer.
    Stuck,
    /// Clients that ask to read only are not served either.
    ReadersNotServed,
}

impl AlarmKind {
    pub(super) const fn here(self) -> Trouble {
        Trouble(self, None)
    }

    pub(super) const fn of(self, server: ServerId) -> Trouble {
        Trouble(self, Some(server))
    }
}
