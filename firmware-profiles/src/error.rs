//! The error of a profile that cannot be used.

use std::fmt;

/// A mistake in a profile, in one line.
///
/// The line names the file, the place, the key, the value and the allowed values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileError(String);

impl ProfileError {
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }

    /// Prefixes the error with its file and line.
    pub(crate) fn at(self, file: &str, line: usize) -> Self {
        Self(format!("{file}:{line}: {}", self.0))
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProfileError {}
