//! ZooKeeper's error codes, and no others.

use core::fmt;

/// Why a request was refused.
///
/// The number travels on the wire. Clients throw on unknown numbers, so this enum has only
/// ZooKeeper's codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum ErrorCode {
    SystemError = -1,
    RuntimeInconsistency = -2,
    MarshallingError = -5,
    Unimplemented = -6,
    BadArguments = -8,
    UnknownSession = -12,
    NoNode = -101,
    NoAuth = -102,
    BadVersion = -103,
    NoChildrenForEphemerals = -108,
    NodeExists = -110,
    NotEmpty = -111,
    SessionExpired = -112,
    InvalidAcl = -114,
    AuthFailed = -115,
    NotReadOnly = -119,
    EphemeralOnLocalSession = -120,
    NoWatcher = -121,
    ReconfigDisabled = -123,
    SessionClosedRequireAuth = -124,
    QuotaExceeded = -125,
}

impl ErrorCode {
    /// Every code, for decoders and tests.
    pub const ALL: [Self; 21] = [
        Self::SystemError,
        Self::RuntimeInconsistency,
        Self::MarshallingError,
        Self::Unimplemented,
        Self::BadArguments,
        Self::UnknownSession,
        Self::NoNode,
        Self::NoAuth,
        Self::BadVersion,
        Self::NoChildrenForEphemerals,
        Self::NodeExists,
        Self::NotEmpty,
        Self::SessionExpired,
        Self::InvalidAcl,
        Self::AuthFailed,
        Self::NotReadOnly,
        Self::EphemeralOnLocalSession,
        Self::NoWatcher,
        Self::ReconfigDisabled,
        Self::SessionClosedRequireAuth,
        Self::QuotaExceeded,
    ];

    /// Returns the number on the wire, always negative.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// Returns the code with this number; `None` for an unknown number.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.code() == code)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?} ({})", self.code())
    }
}

impl core::error::Error for ErrorCode {}
