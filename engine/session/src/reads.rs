//! Reads that choose how much they must have seen.

use super::{Error, Session, Znode};
use bytes::Bytes;
use zoolet_model::{Names, Path, Stat};

/// What a read must at least have seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Consistency {
    /// Whatever this server has applied.
    Local,
    /// Everything this session has seen or written.
    #[default]
    Session,
    /// Everything that was acknowledged to anybody before the read began.
    Linearizable,
}

/// Reads of a chosen consistency.
#[derive(Clone, Copy, Debug)]
pub struct Reads<'a> {
    session: &'a Session,
    consistency: Consistency,
}

impl<'a> Reads<'a> {
    pub(super) fn new(session: &'a Session, consistency: Consistency) -> Self {
        Self { session, consistency }
    }

    /// [`Session::get`].
    ///
    /// # Errors
    /// As there.
    pub async fn get(self, path: &Path) -> Result<(Option<Bytes>, Stat), Error> {
        self.catch_up().await?;
        self.session.get(path).await
    }

    /// [`Session::get_with`].
    ///
    /// # Errors
    /// As there.
    pub async fn get_with<R>(self, path: &Path, read: impl FnOnce(Znode<'_>) -> R) -> Result<R, Error> {
        self.catch_up().await?;
        self.session.get_with(path, read).await
    }

    /// [`Session::exists`].
    ///
    /// # Errors
    /// As there.
    pub async fn exists(self, path: &Path) -> Result<Option<Stat>, Error> {
        self.catch_up().await?;
        self.session.exists(path).await
    }

    /// [`Session::children`].
    ///
    /// # Errors
    /// As there.
    pub async fn children(self, path: &Path) -> Result<Names, Error> {
        self.catch_up().await?;
        self.session.children(path).await
    }

    async fn catch_up(self) -> Result<(), Error> {
        match self.consistency {
            // A session talks to one server, so what it has seen that server has.
            Consistency::Local | Consistency::Session => Ok(()),
            Consistency::Linearizable => self.session.sync().await,
        }
    }
}
