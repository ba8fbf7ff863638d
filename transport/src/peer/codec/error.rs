//! Errors of decoding a peer's bytes.

use super::Kind;
use core::fmt;

/// Why bytes from a peer could not be decoded.
///
/// The rest of the stream cannot be interpreted, so the link is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodecError {
    /// The frame exceeds this server's limit: garbage, or the servers' limits differ.
    TooLong {
        /// Announced length in bytes, without the length field.
        length: usize,
        /// Largest length allowed, in bytes.
        max: usize,
    },
    /// A frame or datagram that ends before its kind.
    Empty,
    /// A kind unknown to this release: from a later one, or garbage.
    UnknownKind(u8),
    /// A kind that is not allowed at this place.
    Misplaced {
        /// The frame's kind.
        kind: Kind,
        /// Where the frame arrived, for the operator.
        place: &'static str,
    },
    /// A frame that ends before its last field.
    TooShort(Kind),
    /// A frame with bytes after its last field.
    Trailing {
        /// The frame's kind.
        kind: Kind,
        /// Number of extra bytes.
        bytes: usize,
    },
    /// A value outside its allowed range.
    Invalid {
        /// Kind of the frame that holds the value.
        kind: Kind,
        /// The value, for the operator.
        what: &'static str,
    },
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length, max } => {
                write!(f, "frame of {length} bytes exceeds this server's limit of {max}")
            }
            Self::Empty => f.write_str("frame without a kind"),
            Self::UnknownKind(kind) => write!(f, "frame of unknown kind {kind}"),
            Self::Misplaced { kind, place } => write!(f, "{kind:?} is not allowed {place}"),
            Self::TooShort(kind) => write!(f, "{kind:?} is cut off"),
            Self::Trailing { kind, bytes } => write!(f, "{kind:?} has {bytes} bytes too many"),
            Self::Invalid { kind, what } => write!(f, "{kind:?} with {what}"),
        }
    }
}

impl std::error::Error for CodecError {}
