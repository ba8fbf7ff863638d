//! How a session is, and why a request has no answer: what every kind of session tells its owner.

use crate::{ErrorCode, EventKind, Text};
use core::fmt;

/// How a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionState {
    /// Requests are answered.
    Connected,
    /// The server cannot serve it now; the session may live on, its ephemerals too.
    Suspended,
    /// Reads are answered, writes are refused. For servers of an ensemble: one that is alone never is.
    ReadOnly,
    /// It is over, its ephemerals are or will be deleted.
    Lost(LostReason),
    /// It is over: an identity was refused.
    AuthFailed,
    /// Its owner closed it.
    Closed,
}

impl SessionState {
    /// Whether no other state can follow.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Lost(_) | Self::AuthFailed | Self::Closed)
    }
}

/// Why a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostReason {
    /// Nothing was heard of it for its timeout.
    Expired,
    /// Its owner did not touch it for as long as its watchdog waits, so it was closed.
    Untouched,
    /// The node has shut down.
    Stopped,
    /// The node failed: its disk, or a bug in zoolet. `Node::failed` says what.
    Failed,
    /// The node failed an assertion of its own. `Node::failed` says which.
    Bug,
}

/// Why a request has no answer, or what the server answered instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The server's answer.
    Refused(ErrorCode),
    /// It was sent and the connection went away: nobody knows whether a write happened.
    ConnectionLoss,
    /// It was not sent: the session is suspended.
    Suspended,
    /// It was not sent: `outstanding_max` requests are under way.
    Busy,
    /// It was not sent: it is larger than `frame_bytes_max`.
    TooLarge,
    /// It was not sent, or its outcome is unknown: the session is over.
    Lost(LostReason),
    /// The session is over: an identity was refused.
    AuthFailed,
    /// The session was closed by its owner.
    Closed,
}

impl Error {
    /// What a request gets that cannot be sent because its session is like this.
    pub const fn of(state: SessionState) -> Self {
        match state {
            SessionState::Connected | SessionState::ReadOnly | SessionState::Suspended => Self::Suspended,
            SessionState::Lost(reason) => Self::Lost(reason),
            SessionState::AuthFailed => Self::AuthFailed,
            SessionState::Closed => Self::Closed,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code) => fmt::Display::fmt(code, f),
            Self::ConnectionLoss => f.write_str("the connection went away before the answer"),
            Self::Suspended => f.write_str("not sent: the session is suspended"),
            Self::Busy => f.write_str("not sent: too many requests are under way"),
            Self::TooLarge => f.write_str("not sent: the request is too large"),
            Self::Lost(LostReason::Expired) => f.write_str("the session has expired"),
            Self::Lost(LostReason::Untouched) => {
                f.write_str("the session was closed because its owner did not touch it")
            }
            Self::Lost(LostReason::Stopped) => f.write_str("the node has shut down"),
            Self::Lost(LostReason::Failed | LostReason::Bug) => f.write_str("the node has failed"),
            Self::AuthFailed => f.write_str("authentication failed"),
            Self::Closed => f.write_str("the session is closed"),
        }
    }
}

impl core::error::Error for Error {}

/// A watch event as the owner of a session hears it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    /// How the session was when it came.
    pub state: SessionState,
    /// What happened.
    pub kind: EventKind,
    /// To which znode.
    pub path: Text,
    /// The zxid of the change; -1 when it happened while the session was suspended.
    pub zxid: i64,
}

/// What a watch stream yields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchItem {
    /// A change.
    Event(Watched),
    /// Changes before this point were missed, because the reader was slow or the session suspended: read again.
    Gap,
}
