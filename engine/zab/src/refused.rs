//! The reasons for which a command is refused.

use crate::ServerId;

/// Why a command was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// This server has no established leader, or the command needs it to lead.
    ///
    /// Only an established leader proposes. An established leader and its learners can confirm.
    NotLeading,
    /// All zxids of this epoch are used; a new epoch must begin.
    EpochFull,
    /// The leader is handing over; ask the next leader.
    HandingOver,
    /// A change of membership is already in progress.
    ConfigPending,
    /// The members do not form a valid configuration.
    ConfigInvalid,
    /// This new voter is not caught up.
    NotCaughtUp(ServerId),
    /// No quorum of the new configuration is caught up.
    NoQuorum,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotLeading => "this server does not lead",
            Self::EpochFull => "the zxids of this epoch are used up",
            Self::HandingOver => "this leader is handing over",
            Self::ConfigPending => "a change of membership is under way",
            Self::ConfigInvalid => "not a configuration: no voter, an id twice, or too many members",
            Self::NotCaughtUp(server) => return write!(f, "server {} is not caught up", server.as_u8()),
            Self::NoQuorum => "no quorum of the new configuration is caught up",
        })
    }
}

impl core::error::Error for Refused {}
