//! Configuration: one znode, typed, with the last good value for when there is no ensemble or somebody wrote nonsense.

use crate::{Coordinator, Error, NodeCache};
use bytes::Bytes;
use zoolet_model::Path;

/// Follows a configuration. It tells each final state and not every intermediate one, and never gives up a good value for one that does not parse.
pub struct Configuration<C: Coordinator, T, F> {
    cache: NodeCache<C>,
    parse: F,
    good: Option<T>,
}

/// What there is to know of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update<E> {
    /// There is a new value, which parses. Its bytes are what to keep for a start without an ensemble.
    Accepted(Bytes),
    /// There are new bytes that do not parse; the value from before goes on being the value.
    Rejected(E),
    /// There is no znode; the value from before goes on being the value.
    Absent,
}

impl<C: Coordinator, T, E, F: FnMut(&[u8]) -> Result<T, E>> Configuration<C, T, F> {
    /// Of the znode at `path`. `last_good` is the value until the ensemble has told another one: what was kept at the last [`Update::Accepted`].
    ///
    /// # Errors
    /// As [`NodeCache::new`].
    pub async fn new(coordinator: C, path: &Path, last_good: Option<T>, parse: F) -> Result<Self, Error> {
        Ok(Self { cache: NodeCache::new(coordinator, path).await?, parse, good: last_good })
    }

    /// The value: the newest one that parsed.
    pub fn value(&self) -> Option<&T> {
        self.good.as_ref()
    }

    /// What the ensemble says, at once when it is asked first, and then each time that it says something else. Cancel-safe.
    ///
    /// # Errors
    /// The session's. The value stays what it is.
    pub async fn next(&mut self) -> Result<Update<E>, Error> {
        let Some((content, _)) = self.cache.next().await? else { return Ok(Update::Absent) };
        let content = content.unwrap_or_default();
        Ok(match (self.parse)(&content) {
            Ok(value) => {
                self.good = Some(value);
                Update::Accepted(content)
            }
            Err(error) => Update::Rejected(error),
        })
    }
}

impl<C: Coordinator, T: std::fmt::Debug, F> std::fmt::Debug for Configuration<C, T, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Configuration").field("good", &self.good).finish_non_exhaustive()
    }
}
