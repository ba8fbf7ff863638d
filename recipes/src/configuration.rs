//! Configuration: one znode, typed, with the last good value for when there is no ensemble or somebody wrote nonsense.
//!
//! # Guarantees
//! - Each final state is told. What does not parse is told as well, and the value from before goes on being the value.
//! - Without an ensemble, or before it has answered, the value is the last good one that was handed in.
//!
//! # Does not guarantee
//! - Each intermediate state. That all participants have the same value at the same moment.
//! - Keeping the last good value: [`Update::Accepted`] has the bytes, and where to keep them is up to the caller. A node in the same process does it
//!   for a whole subtree: `Config::last_known_good` says where, and `zoolet::last_known_good` reads the file without a node and without a quorum.
//!
//! # Znodes
//! The path. Small data only: a znode holds 1 MiB at most, and each change is sent whole to everybody who follows it.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the znode does not parse | [`Update::Rejected`]; the value stays |
//! | the znode is deleted | [`Update::Absent`]; the value stays |
//! | the session is suspended or ends | the value stays; what changed meanwhile is told after a reconnect |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Configuration, Coordinator, Error, Update};
//!
//! async fn follow<C: Coordinator>(session: C, kept: Option<u32>) -> Result<(), Error> {
//!     let parse = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap_or_default().parse::<u32>();
//!     let mut interval = Configuration::new(session, &Path::from_static("/conf/interval"), kept, parse);
//!     loop {
//!         match interval.next().await? {
//!             Update::Accepted(bytes) => println!("keep {bytes:?}"),
//!             Update::Rejected(error) => println!("{error}; still {:?}", interval.value()),
//!             Update::Absent => println!("nothing there; still {:?}", interval.value()),
//!         }
//!     }
//! }
//! ```

use crate::{Coordinator, Error, NodeCache, NodeChange};
use bytes::Bytes;
use zoolet_model::Path;

/// Follows a configuration. It tells each final state and not every intermediate one, and never gives up a good value for one that does not parse.
pub struct Configuration<C: Coordinator, T, F> {
    coordinator: C,
    path: Path,
    /// `None` until the ensemble was asked.
    cache: Option<NodeCache<C>>,
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
    /// Of the znode at `path`. `last_good` is the value until the ensemble has told another one: what was kept at the last [`Update::Accepted`]. It asks
    /// nobody before [`Configuration::next`].
    pub fn new(coordinator: C, path: &Path, last_good: Option<T>, parse: F) -> Self {
        Self { coordinator, path: path.clone(), cache: None, parse, good: last_good }
    }

    /// The value: the newest one that parsed.
    pub fn value(&self) -> Option<&T> {
        self.good.as_ref()
    }

    /// What the ensemble says, at once when it is asked first, and then each time that it says something else. Cancel-safe.
    ///
    /// # Errors
    /// As [`NodeCache::new`]. The value stays what it is.
    pub async fn next(&mut self) -> Result<Update<E>, Error> {
        let cache = match &mut self.cache {
            Some(cache) => cache,
            None => self.cache.insert(NodeCache::new(self.coordinator.clone(), &self.path).await?),
        };
        let now = loop {
            if let NodeChange::Now(now) = cache.next().await? {
                break now;
            }
        };
        let Some((content, _)) = now else { return Ok(Update::Absent) };
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
