//! What is wrong with a profile.

use std::fmt;

/// What is wrong with a profile, in one line that names the file, the place, the key, the value and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileError(String);

impl ProfileError {
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }

    /// The same, with where it was found.
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
