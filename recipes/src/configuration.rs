//! Configuration: one typed znode, with a last good value to fall back on.
//!
//! The fallback serves while there is no ensemble, or the znode does not parse.
//!
//! # Guarantees
//! - Each final state is reported. Data that does not parse is reported too, and the previous value
//!   stays.
//! - Without an ensemble, or before its first answer, the value is the last good one that the
//!   caller handed in.
//!
//! # Does not guarantee
//! - Every intermediate state.
//! - That all participants have the same value at the same moment.
//! - Storage of the last good value. [`Update::Accepted`] has its bytes, and the caller keeps them.
//!   A node in the same process can do it for a whole subtree. `Config::last_known_good` names the
//!   file. `zoolet::last_known_good` reads it without a node and without a quorum.
//!
//! # Znodes
//! The path. Keep the data small: a znode holds at most 1 MiB, and each change is sent whole to
//! every follower.
//!
//! # Failures
//! - **The znode does not parse**: [`Update::Rejected`]; the value stays.
//! - **The znode is deleted**: [`Update::Absent`]; the value stays.
//! - **The session is suspended or ends**: the value stays. After a reconnect, changes made
//!   meanwhile are reported.
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

/// Follows a configuration.
///
/// It reports each final state, not every intermediate one. A value that does not parse never
/// replaces a good one.
pub struct Configuration<C: Coordinator, T, F> {
    coordinator: C,
    path: Path,
    /// `None` until the ensemble is first asked.
    cache: Option<NodeCache<C>>,
    parse: F,
    good: Option<T>,
}

/// A report about a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update<E> {
    /// A new value that parses. Keep its bytes for a start without an ensemble.
    Accepted(Bytes),
    /// New bytes that do not parse; the previous value stays.
    Rejected(E),
    /// There is no znode; the previous value stays.
    Absent,
}

impl<C: Coordinator, T, E, F: FnMut(&[u8]) -> Result<T, E>> Configuration<C, T, F> {
    /// Returns a configuration for the znode at `path`. It sends nothing before
    /// [`Configuration::next`].
    ///
    /// `last_good` is the value until the ensemble reports another one: parse the bytes kept at the
    /// last [`Update::Accepted`].
    pub fn new(coordinator: C, path: &Path, last_good: Option<T>, parse: F) -> Self {
        Self { coordinator, path: path.clone(), cache: None, parse, good: last_good }
    }

    /// Returns the newest value that parsed; `None` if there was no value yet.
    pub fn value(&self) -> Option<&T> {
        self.good.as_ref()
    }

    /// Waits for the next report. Cancel-safe.
    ///
    /// The first call reports the present state at once. Each later call waits until the state has
    /// changed.
    ///
    /// # Errors
    /// As [`NodeCache::new`]. The value stays.
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
