//! Why connections end.

use crate::wire::{FrameError, TooShort};
use std::fmt;
use std::io::ErrorKind;

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// The machine, or the server's end, asked for it.
    Asked,
    /// The client closed.
    Left,
    /// The socket failed.
    Broken(ErrorKind),
    /// No session within the time for it.
    Sessionless,
    /// What was queued could not be sent in time.
    Lingered,
    /// The bytes make no sense.
    BadFrame(FrameError),
    /// A frame without room for a request.
    TooShort,
    /// A first message that is none.
    BadHandshake,
    /// It began with TLS.
    SpeaksTls,
    /// More waits for it than one client may have.
    DoesNotRead(usize),
    /// A part of a request takes room that others wait for, and the rest of it does not come.
    HoldsUp(usize),
    /// It had most waiting when all clients together had too much.
    Greediest(usize),
}

impl Why {
    /// Whether the client is to blame, so that an operator should know.
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

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("closed by the server"),
            Self::Left => f.write_str("the client closed"),
            Self::Broken(kind) => write!(f, "{kind}"),
            Self::Sessionless => f.write_str("made no session in time"),
            Self::Lingered => f.write_str("did not take its last bytes in time"),
            Self::BadFrame(error) => write!(f, "{error}"),
            Self::TooShort => write!(f, "{TooShort}"),
            Self::BadHandshake => f.write_str("not a handshake"),
            Self::SpeaksTls => f.write_str("speaks TLS, and this port is in clear: the client must connect without"),
            Self::DoesNotRead(bytes) => write!(f, "does not read, {bytes} bytes wait for it"),
            Self::HoldsUp(bytes) => write!(f, "others wait for the room of {bytes} bytes of an unfinished request"),
            Self::Greediest(bytes) => write!(f, "too much waits for all clients, {bytes} bytes of it for this one"),
        }
    }
}
