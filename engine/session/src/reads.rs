//! Reads with a chosen consistency.

use super::{Error, Session, Znode};
use std::time::Duration;
use zoolet_model::{Names, Path, Stat};

/// The writes that a read is guaranteed to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Consistency {
    /// All writes that this server has applied.
    Local,
    /// All writes that this session has read or made.
    #[default]
    Session,
    /// All writes acknowledged to any client before the read began.
    Linearizable,
}

/// A handle for reads of a chosen consistency.
#[derive(Clone, Copy, Debug)]
pub struct Reads<'a> {
    session: &'a Session,
    consistency: Consistency,
}

impl<'a> Reads<'a> {
    pub(super) fn new(session: &'a Session, consistency: Consistency) -> Self {
        Self { session, consistency }
    }

    /// Returns how old the state that these reads show may be, like [`Session::outdated_for`].
    pub fn outdated_for(self) -> Option<Duration> {
        self.session.outdated_for()
    }

    /// Reads like [`Session::get`].
    ///
    /// # Errors
    /// Like [`Session::get`].
    pub async fn get(self, path: &Path) -> Result<Znode, Error> {
        self.catch_up().await?;
        self.session.get(path).await
    }

    /// Reads like [`Session::exists`].
    ///
    /// # Errors
    /// Like [`Session::exists`].
    pub async fn exists(self, path: &Path) -> Result<Option<Stat>, Error> {
        self.catch_up().await?;
        self.session.exists(path).await
    }

    /// Reads like [`Session::children`].
    ///
    /// # Errors
    /// Like [`Session::children`].
    pub async fn children(self, path: &Path) -> Result<Names, Error> {
        self.catch_up().await?;
        self.session.children(path).await
    }

    async fn catch_up(self) -> Result<(), Error> {
        match self.consistency {
            // A session talks to one server, which has applied every write the session has seen.
            Consistency::Local | Consistency::Session => Ok(()),
            Consistency::Linearizable => self.session.sync().await,
        }
    }
}
