//! Bytes of a peer that mean nothing.

use super::Kind;
use core::fmt;

/// Why bytes of a peer were not understood. Nothing that follows them on their stream means anything: the link closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodecError {
    /// A frame longer than this server's limits let its sender make one: noise, or limits that differ between servers.
    TooLong {
        /// What it announced, bytes after the length itself.
        length: usize,
        /// What is allowed, bytes.
        max: usize,
    },
    /// A frame, or a datagram, without a kind.
    Empty,
    /// A kind that this release does not know: a newer one's, or noise.
    UnknownKind(u8),
    /// A kind that never comes here.
    Misplaced {
        /// Which.
        kind: Kind,
        /// Where it came, for people.
        place: &'static str,
    },
    /// A frame that ends before what it has to say.
    TooShort(Kind),
    /// A frame with something behind what it has to say.
    Trailing {
        /// Which.
        kind: Kind,
        /// How much, bytes.
        bytes: usize,
    },
    /// A value that nobody may send.
    Invalid {
        /// Of which frame.
        kind: Kind,
        /// What, for people.
        what: &'static str,
    },
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length, max } => {
                write!(f, "frame of {length} bytes, the limits of this server allow {max}")
            }
            Self::Empty => f.write_str("frame without a kind"),
            Self::UnknownKind(kind) => write!(f, "frame of kind {kind}, which this release does not know"),
            Self::Misplaced { kind, place } => write!(f, "{kind:?} {place}"),
            Self::TooShort(kind) => write!(f, "{kind:?} is cut off"),
            Self::Trailing { kind, bytes } => write!(f, "{kind:?} has {bytes} bytes too many"),
            Self::Invalid { kind, what } => write!(f, "{kind:?} with {what}"),
        }
    }
}

impl std::error::Error for CodecError {}
