//! Session states and request errors, shared by every kind of session.

use crate::{ErrorCode, EventKind, Path};
use core::fmt;

/// The state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionState {
    /// Requests are answered.
    Connected,
    /// The server cannot serve it now. The session and its ephemerals may survive.
    Suspended,
    /// Reads are answered, writes are refused: the server has no leader, or its disk is read-only.
    ReadOnly,
    /// It is over, and its ephemerals are or will be deleted.
    Lost(LostReason),
    /// It is over: an identity was refused.
    AuthFailed,
    /// Its owner closed it.
    Closed,
}

impl SessionState {
    /// Returns whether the state is final.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Lost(_) | Self::AuthFailed | Self::Closed)
    }
}

/// Why a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LostReason {
    /// It was silent for its timeout.
    Expired,
    /// Its owner did not touch it within the watchdog's time, so it was closed.
    Untouched,
    /// The node has shut down.
    Stopped,
    /// The node failed: its disk, or a bug in zoolet. `Node::failed` gives the reason.
    Failed,
    /// The node panicked, as on a failed assertion. `Node::failed` gives the message.
    Bug,
}

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestError {
    /// The server's error.
    Refused(ErrorCode),
    /// Sent, but the connection was lost. A write may or may not have happened.
    ConnectionLoss,
    /// Not sent: the session is suspended.
    Suspended,
    /// Not sent: `outstanding_max` requests are in flight.
    Busy,
    /// Not sent: the request is larger than `frame_bytes_max`.
    TooLarge,
    /// Not sent, or the outcome is unknown: the session is over.
    Lost(LostReason),
    /// The session is over: an identity was refused.
    AuthFailed,
    /// The session was closed by its owner.
    Closed,
}

impl RequestError {
    /// Returns the error for a request that cannot be sent in this state.
    pub const fn of(state: SessionState) -> Self {
        match state {
            SessionState::Connected | SessionState::ReadOnly | SessionState::Suspended => Self::Suspended,
            SessionState::Lost(reason) => Self::Lost(reason),
            SessionState::AuthFailed => Self::AuthFailed,
            SessionState::Closed => Self::Closed,
        }
    }
}

impl fmt::Display for RequestError {
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

impl core::error::Error for RequestError {}

/// A watch event as the owner of a session receives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedEvent {
    /// State of the session when the event came.
    pub state: SessionState,
    /// The change.
    pub kind: EventKind,
    /// The znode's path.
    pub path: Path,
    /// Zxid of the change; -1 when it happened while the session was suspended.
    pub zxid: i64,
}

/// An item of a watch stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchItem {
    /// A change.
    Event(WatchedEvent),
    /// Changes before this point were missed: read again.
    ///
    /// The reader was slow, or the session was suspended.
    Gap,
}
