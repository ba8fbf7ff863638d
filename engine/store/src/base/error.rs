//! Errors of a base.

use crate::image::ImageError;
use std::{fmt, io};
use zoolet_machine::seam::event::BaseFailure;

/// Why creating, opening or updating the base failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BaseError {
    /// The disk is full. Reads go on, and the same checkpoint may be retried.
    NoSpace,
    /// Stored bytes differ from the bytes written. The base must be replaced.
    Damaged(String),
    /// A number exceeds the range of the format or of this machine. Stored data is sound, and reads
    /// go on.
    TooLarge(String),
    /// The device reported an error. After a failed sync, every later checkpoint fails too
    /// ([`super::Base::sync_failed`]).
    Io(String),
}

impl BaseError {
    pub(super) fn from_io(error: &io::Error) -> Self {
        ImageError::from_io(error).into()
    }

    /// Adds the file name to the message.
    pub(super) fn of(self, name: &str) -> Self {
        let say = |what: String| if what.contains(name) { what } else { format!("{name}: {what}") };
        match self {
            Self::Damaged(what) => Self::Damaged(say(what)),
            Self::TooLarge(what) => Self::TooLarge(say(what)),
            Self::Io(what) => Self::Io(say(what)),
            Self::NoSpace => Self::NoSpace,
        }
    }
}

impl From<io::Error> for BaseError {
    fn from(error: io::Error) -> Self {
        Self::from_io(&error)
    }
}

impl From<ImageError> for BaseError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::NoSpace | ImageError::NoRoom { .. } => Self::NoSpace,
            ImageError::Damaged(what) | ImageError::Source(BaseFailure::Damaged(what)) => Self::Damaged(what),
            ImageError::TooLarge(what) => Self::TooLarge(what),
            ImageError::Io(what) | ImageError::Source(BaseFailure::Io(what)) => Self::Io(what),
        }
    }
}

impl From<BaseError> for ImageError {
    fn from(error: BaseError) -> Self {
        match error {
            BaseError::NoSpace => Self::NoSpace,
            BaseError::Damaged(what) => Self::Damaged(what),
            BaseError::TooLarge(what) => Self::TooLarge(what),
            BaseError::Io(what) => Self::Io(what),
        }
    }
}

impl fmt::Display for BaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("no space left for the base"),
            Self::Damaged(what) => write!(f, "the base is damaged: {what}"),
            Self::TooLarge(what) => write!(f, "the base is too large: {what}"),
            Self::Io(what) => write!(f, "the base cannot be read or written: {what}"),
        }
    }
}

impl std::error::Error for BaseError {}

impl From<BaseError> for BaseFailure {
    fn from(error: BaseError) -> Self {
        match error {
            BaseError::Damaged(what) => Self::Damaged(what),
            BaseError::NoSpace | BaseError::TooLarge(_) | BaseError::Io(_) => Self::Io(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reported as damage, this error would make a leader discard its sound base.
    #[test]
    fn image_too_large_for_its_format_is_an_io_failure_of_the_base() {
        let error = BaseError::from(ImageError::TooLarge("a number".into()));
        assert!(matches!(BaseFailure::from(error.clone()), BaseFailure::Io(_)), "{error}");
    }
}
