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
//!   A node keeps a whole subtree if `Config::last_known_good` names a file for it, and
//!   `zoolet::last_known_good` reads that file without a node and without a quorum. The file has
//!   the last data, even if that does not parse.
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
//! use zoolet::recipes::{Configuration, Update};
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn follow<C: Coordinator>(session: C, kept: Option<u32>) -> Result<(), Error> {
//!     let mut interval = Configuration::<C, u32>::from_text(session, &Path::from_static("/conf/interval"), kept);
//!     loop {
//!         match interval.next().await? {
//!             Update::Accepted(bytes) => println!("keep {bytes:?}"),
//!             Update::Rejected(reason) => println!("{reason}; still {:?}", interval.value()),
//!             Update::Absent => println!("nothing there; still {:?}", interval.value()),
//!             _ => {}
//!         }
//!     }
//! }
//! ```

use crate::watched::{Latest, Watched};
use crate::{Coordinator, Error, ZnodeCache, ZnodeChange};
use bytes::Bytes;
use futures_core::Stream;
use std::fmt::{self, Debug, Display};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use zoolet_model::Path;

/// Parses the data of a znode; the error is the reason why it cannot.
type Parse<T> = Box<dyn FnMut(&[u8]) -> Result<T, String> + Send>;

/// Follows a configuration.
///
/// It reports each final state, not every intermediate one. A value that does not parse never
/// replaces a good one. As a [`Stream`] it ends after the error that ends its session.
#[must_use = "a configuration follows its znode only while it is polled"]
pub struct Configuration<C: Coordinator, T> {
    cache: ZnodeCache<C>,
    parse: Parse<T>,
    good: Option<Arc<T>>,
    /// The same value, for other tasks.
    latest: Arc<Latest<T>>,
}

/// A report about a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Update {
    /// A new value that parses. Keep its bytes for a start without an ensemble.
    Accepted(Bytes),
    /// New bytes that do not parse, and the reason; the previous value stays.
    Rejected(String),
    /// There is no znode; the previous value stays.
    Absent,
}

impl<C: Coordinator, T> Configuration<C, T> {
    /// Returns a configuration for the znode at `path`. It sends nothing before it is polled.
    ///
    /// `last_good` is the value until the ensemble reports another one: parse the bytes kept at the
    /// last [`Update::Accepted`].
    pub fn new<E: Display>(
        coordinator: C,
        path: &Path,
        last_good: Option<T>,
        parse: impl FnMut(&[u8]) -> Result<T, E> + Send + 'static,
    ) -> Self {
        let mut configuration = Self::detached(path, last_good, parse);
        configuration.resume(coordinator);
        configuration
    }

    /// Returns a configuration that waits for its first session.
    pub(crate) fn detached<E: Display>(
        path: &Path,
        last_good: Option<T>,
        mut parse: impl FnMut(&[u8]) -> Result<T, E> + Send + 'static,
    ) -> Self {
        let parse = Box::new(move |data: &[u8]| parse(data).map_err(|error| error.to_string()));
        let good = last_good.map(Arc::new);
        Self { cache: ZnodeCache::detached(path), parse, latest: Latest::new(good.clone()), good }
    }

    /// Returns a configuration that is text, such as a number.
    ///
    /// White space around it is ignored.
    pub fn from_text(coordinator: C, path: &Path, last_good: Option<T>) -> Self
    where
        T: FromStr<Err: Display> + 'static,
    {
        Self::new(coordinator, path, last_good, from_text)
    }

    /// Returns a configuration that is JSON.
    #[cfg(feature = "serde")]
    pub fn json(coordinator: C, path: &Path, last_good: Option<T>) -> Self
    where
        T: serde::de::DeserializeOwned,
    {
        Self::new(coordinator, path, last_good, |data| serde_json::from_slice(data))
    }

    /// Returns the newest value that parsed; `None` if there was no value yet.
    pub fn value(&self) -> Option<&T> {
        self.good.as_deref()
    }

    /// Returns a reader of the newest good value, for another task.
    pub fn watched(&self) -> Watched<T> {
        self.latest.watched()
    }

    /// Goes on with another session. If the state is not the last one reported, that is reported.
    pub fn resume(&mut self, coordinator: C) {
        self.cache.resume(coordinator);
    }

    /// Waits for the next report. Cancel-safe.
    ///
    /// The first call reports the present state at once. Each later call waits until the state has
    /// changed.
    ///
    /// # Errors
    /// As [`ZnodeCache::next`]. The value stays.
    #[allow(clippy::should_implement_trait, reason = "a stream's next, as futures name it: it returns a future")]
    pub fn next(&mut self) -> impl Future<Output = Result<Update, Error>> + Send + '_
    where
        T: Send + Sync,
    {
        poll_fn(|context| self.poll_update(context))
    }

    pub(crate) fn poll_update(&mut self, context: &mut Context<'_>) -> Poll<Result<Update, Error>> {
        let now = loop {
            // The state that follows a gap is reported if it differs.
            if let ZnodeChange::Now(now) = ready!(self.cache.poll_change(context))? {
                break now;
            }
        };
        let Some(znode) = now else { return Poll::Ready(Ok(Update::Absent)) };
        Poll::Ready(Ok(match (self.parse)(znode.bytes()) {
            Ok(value) => {
                let value = Arc::new(value);
                self.good = Some(Arc::clone(&value));
                self.latest.set(value);
                Update::Accepted(znode.data.unwrap_or_default())
            }
            Err(reason) => Update::Rejected(reason),
        }))
    }
}

/// Parses text, without the white space around it.
pub(crate) fn from_text<T: FromStr<Err: Display>>(data: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(data).map_err(|error| error.to_string())?;
    text.trim().parse().map_err(|error: T::Err| format!("{text:?}: {error}"))
}

impl<C: Coordinator, T> Drop for Configuration<C, T> {
    fn drop(&mut self) {
        self.latest.end();
    }
}

impl<C: Coordinator, T> Unpin for Configuration<C, T> {}

impl<C: Coordinator, T> Stream for Configuration<C, T> {
    type Item = Result<Update, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.cache.is_over() {
            return Poll::Ready(None);
        }
        let update = ready!(self.poll_update(context));
        if matches!(&update, Err(error) if error.is_session_over()) {
            self.cache.end();
        }
        Poll::Ready(Some(update))
    }
}

impl<C: Coordinator, T: Debug> Debug for Configuration<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration").field("good", &self.good).finish_non_exhaustive()
    }
}
