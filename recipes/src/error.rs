//! The error type of recipes.

use std::fmt;

/// Why a recipe did not do what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The session's error, or the server's refusal.
    ///
    /// After `ConnectionLoss` a write may have been done or not. Recipes resolve that themselves
    /// where they can. It remains for a caller's write, such as a fenced one.
    Session(zoolet_model::Error),
    /// Another client deleted this participant's znode: an operator broke its place in the line.
    Broken,
    /// The grant is in doubt.
    ///
    /// A fenced write was not sent, because the session has no connection. Or
    /// [`Grant::run`](crate::Grant::run) has dropped its work, which may have written before.
    Doubtful,
    /// A `try_*` call has no answer: the session has no connection, or lost it. The call holds
    /// nothing, and leaves nothing behind.
    Disconnected,
    /// The grant is over. A fenced write was not done.
    Lost,
    /// The parent's numbers are nearly used up. Use another parent: equal numbers would mean two
    /// holders.
    Exhausted,
    /// The queue is full. The item was not put.
    Full,
    /// The sum does not fit 64 bits. The counter was not changed.
    Overflow,
    /// The path holds data that is not the recipe's.
    Malformed,
    /// Another participant uses another size, count or preference for the same path.
    Disagreement,
}

impl From<zoolet_model::Error> for Error {
    fn from(error: zoolet_model::Error) -> Self {
        Self::Session(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(error) => fmt::Display::fmt(error, f),
            Self::Broken => f.write_str("another client deleted the znode of this participant"),
            Self::Doubtful => f.write_str("in doubt: the session is not connected, or the grant may be over"),
            Self::Disconnected => {
                f.write_str("no answer: the session has no connection; try again once it is connected")
            }
            Self::Lost => f.write_str("the grant is over"),
            Self::Exhausted => f.write_str("the sequence numbers below this znode are used up; use another znode"),
            Self::Full => f.write_str("the queue is full; take or delete items, or use another path"),
            Self::Overflow => f.write_str("the sum does not fit 64 bits; the counter is unchanged"),
            Self::Malformed => {
                f.write_str("the recipe's znode holds data that the recipe did not write; use another path")
            }
            Self::Disagreement => {
                f.write_str("another participant uses other settings for this path; all must use the same")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Session(error) => Some(error),
            Self::Broken
            | Self::Doubtful
            | Self::Disconnected
            | Self::Lost
            | Self::Exhausted
            | Self::Full
            | Self::Overflow
            | Self::Malformed
            | Self::Disagreement => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the text said "not sent", also of work that may have written before
    /// [`Grant::run`](crate::Grant::run) dropped it.
    #[test]
    fn doubtful_error_does_not_say_that_nothing_was_sent() {
        let text = Error::Doubtful.to_string();
        assert!(text.contains("in doubt") && !text.contains("sent"), "{text}");
    }
}
