//! Changes of grants, for metrics.

use crate::GrantEnd;
use std::fmt;
use std::time::Duration;
use zoolet_model::Path;

/// Number that is larger for each later grant of the same path.
///
/// It also grows when the path is deleted and created again. A store that remembers the largest
/// token it has seen can refuse every holder whose grant is over, however late its write arrives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FencingToken(pub i64);

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A change of one participant in a lock, read-write lock, election or semaphore.
///
/// [`Recorded`](crate::Recorded) passes each one to a function of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GrantChange<'a> {
    /// Number of this wait and its grant, unique in the process.
    pub id: u64,
    /// Path of the lock, election or semaphore.
    pub path: &'a Path,
    /// The participant's znode. In a semaphore, a wait and its grant have different ones.
    pub znode: &'a Path,
    /// The token at the grant; `None` while the participant waits.
    pub token: Option<FencingToken>,
    /// What has happened.
    pub step: GrantStep,
}

impl<'a> GrantChange<'a> {
    #[doc(hidden)]
    pub const fn new(id: u64, path: &'a Path, znode: &'a Path, token: Option<FencingToken>, step: GrantStep) -> Self {
        Self { id, path, znode, token, step }
    }
}

/// What has happened to a participant.
///
/// `Waits` comes first, then `Left` or `Granted`. After `Granted`, `Doubted` and `HeldAgain` may
/// alternate; one `Released` or `Lost` ends the report. Times are of the session's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GrantStep {
    /// It stands in line.
    Waits,
    /// It has left the line without a grant, after waiting this long.
    Left {
        /// Time from the call until it left.
        waited: Duration,
    },
    /// It was granted what it waited for.
    Granted {
        /// Time from the call until the grant.
        waited: Duration,
    },
    /// The grant is in doubt. Reported only while the program polls the grant's states or its work.
    Doubted,
    /// A write has found the grant's znode: the grant is held again.
    HeldAgain {
        /// Time since the doubt.
        doubted: Duration,
    },
    /// The grant is over, and its holder did not give it up.
    ///
    /// Reported at the next poll of the grant's states or work, or when the grant is dropped.
    Lost {
        /// Why it is over.
        end: GrantEnd,
        /// Time since the grant.
        held: Duration,
    },
    /// The holder has given the grant up.
    Released {
        /// Time since the grant.
        held: Duration,
    },
}
