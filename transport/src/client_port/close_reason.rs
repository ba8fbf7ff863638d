//! Reasons for which a connection ends.

use crate::wire::{FrameError, TooShort};
use std::fmt;
use std::io::ErrorKind;

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CloseReason {
    /// The engine, or the shutdown of the server, closed it.
    Asked,
    /// The client closed it.
    Left,
    /// The socket failed.
    Broken(ErrorKind),
    /// The client made no session in time.
    Sessionless,
    /// The last queued bytes could not be sent in time.
    Lingered,
    /// The client sent an invalid frame length.
    BadFrame(FrameError),
    /// A frame is too short for a request.
    TooShort,
    /// The first message is not a handshake.
    BadHandshake,
    /// The client began with TLS.
    SpeaksTls,
    /// The client does not read: this many bytes are queued for it.
    DoesNotRead(usize),
    /// The connection blocks others: its unfinished request holds this many bytes, and its time is
    /// up.
    HoldsUp(usize),
    /// It had the most bytes queued when all clients together exceeded the limit.
    Greediest(usize),
}

impl CloseReason {
    /// Whether the client is at fault, so that an operator should know.
    pub(super) fn is_refusal(self) -> bool {
        match self {
            Self::Asked | Self::Left | Self::Broken(_) | Self::Lingered => false,
            Self::Sessionless
            | Self::BadFrame(_)
            | Self::TooShort
            | Self::BadHandshake
            | Self::SpeaksTls
            | Self::DoesNotRead(_)
            | Self::HoldsUp(_)
            | Self::Greediest(_) => true,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("by the server"),
            Self::Left => f.write_str("by the client"),
            Self::Broken(kind) => write!(f, "{kind}"),
            Self::Sessionless => f.write_str("the client opened no session in time"),
            Self::Lingered => f.write_str("the client did not read its last bytes in time"),
            Self::BadFrame(error) => write!(f, "{error}"),
            Self::TooShort => write!(f, "{TooShort}"),
            Self::BadHandshake => f.write_str("the client's first message is not a handshake"),
            Self::SpeaksTls => f.write_str("the client speaks TLS, and this port is unencrypted: connect without TLS"),
            Self::DoesNotRead(bytes) => write!(f, "the client does not read: {bytes} bytes are queued for it"),
            Self::HoldsUp(bytes) => write!(f, "an unfinished request of {bytes} bytes blocks other clients"),
            Self::Greediest(bytes) => {
                write!(f, "too many bytes are queued for all clients, {bytes} of them for this client")
            }
        }
    }
}
