//! Errors of the log, by cause.

use std::{convert::Infallible, fmt, io};

/// Why the log cannot be opened or read. Each is one line for an operator.
#[derive(Debug)]
pub enum LogError {
    /// There is no log: none was ever created completely.
    Empty,
    /// There already is a log.
    Exists,
    /// Durable records have changed or are missing. The server must neither vote nor serve as if
    /// the log were whole.
    Damaged {
        /// The file.
        file: String,
        /// Position in the file, bytes.
        offset: u64,
        /// The problem found.
        what: String,
    },
    /// A newer release wrote this.
    Unsupported {
        /// The file.
        file: String,
        /// The part that this release does not know.
        what: String,
    },
    /// The options are invalid.
    Options(&'static str),
    /// The device or the file system returned an error.
    Io {
        /// The file; empty for the directory.
        file: String,
        /// The error returned.
        error: io::Error,
    },
}

impl LogError {
    pub(super) fn io(file: &str, error: io::Error) -> Self {
        Self::Io { file: file.to_owned(), error }
    }

    pub(super) fn damaged(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), offset, what: what.into() }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("this directory has no log"),
            Self::Exists => f.write_str("this directory has a log already"),
            Self::Damaged { file, offset, what } => write!(f, "the log is damaged: {file} at byte {offset}: {what}"),
            Self::Unsupported { file, what } => {
                write!(f, "the log was written by a newer release: {file}: {what}")
            }
            Self::Options(what) => f.write_str(what),
            Self::Io { file, error } if file.is_empty() => {
                write!(f, "cannot read or write the log's directory: {error}")
            }
            Self::Io { file, error } => write!(f, "cannot read or write the log's file {file}: {error}"),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Empty | Self::Exists | Self::Damaged { .. } | Self::Unsupported { .. } | Self::Options(_) => None,
        }
    }
}

/// Why an append did not become durable.
#[derive(Debug)]
pub enum AppendError {
    /// The disk is full or read-only, or the ring is full until a checkpoint
    /// ([`io::ErrorKind::WouldBlock`]).
    ///
    /// Records of this call that are not durable were not kept. The same call may be repeated at
    /// any time, with more appends behind it.
    Stalled(io::Error),
    /// The content of the disk is unknown, or the caller asked for a record that would break a
    /// promise.
    ///
    /// The log refuses every further call, and the server must stop.
    Fatal(io::Error),
}

impl AppendError {
    /// Classifies the error of a write or an allocation. A failed sync is always fatal and never
    /// comes here.
    pub(super) fn of_write(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::QuotaExceeded => {
                Self::Stalled(error)
            }
            _ => Self::Fatal(error),
        }
    }

    /// Converts the error while a log is created or opened.
    pub(super) fn of_recovery(self, file: &str) -> LogError {
        match self {
            Self::Stalled(error) | Self::Fatal(error) => LogError::io(file, error),
        }
    }

    pub(super) fn misuse(what: impl Into<String>) -> Self {
        Self::Fatal(io::Error::new(io::ErrorKind::InvalidInput, what.into()))
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled(error) => write!(f, "the log cannot write now: {error}"),
            Self::Fatal(error) => write!(f, "the log has stopped: {error}"),
        }
    }
}

impl std::error::Error for AppendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stalled(error) | Self::Fatal(error) => Some(error),
        }
    }
}

/// Why a replay ended early.
#[derive(Debug)]
pub enum ReplayError<E> {
    /// The log could not be read, or does not continue the base.
    Log(LogError),
    /// The caller's visitor returned this error.
    Visit(E),
}

impl<E> From<LogError> for ReplayError<E> {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<ReplayError<Infallible>> for LogError {
    fn from(error: ReplayError<Infallible>) -> Self {
        match error {
            ReplayError::Log(error) => error,
            ReplayError::Visit(never) => match never {},
        }
    }
}

impl<E: fmt::Display> fmt::Display for ReplayError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::Visit(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ReplayError<E> {}

/// The error that stopped the log, kept to be returned again.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    kind: io::ErrorKind,
    what: String,
}

impl Failure {
    pub(super) fn of(error: &io::Error) -> Self {
        Self { kind: error.kind(), what: error.to_string() }
    }

    pub(super) fn again(&self) -> AppendError {
        AppendError::Fatal(io::Error::new(self.kind, self.what.clone()))
    }
}
