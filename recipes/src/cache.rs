//! Caches: copies of parts of the tree that follow its changes.
//!
//! # Guarantees
//! - The final state is always reported, even if intermediate ones were missed.
//! - If changes may have been missed, [`Change::Gap`] or [`ZnodeChange::Gap`] reports it. The cache
//!   then reads everything again and reports the differences. This happens when the session was
//!   suspended or the reader was slow.
//! - No state is reported twice: the same zxid is the same state.
//!
//! # Does not guarantee
//! - Every intermediate state: several changes before a read are reported as one. Compare versions
//!   to notice skipped states.
//! - Freshness: the server may lag behind what others have seen. [`catch_up`] brings it up to date;
//!   its page tells the limit against Apache ZooKeeper.
//! - A memory bound: a cache of children holds all of them.
//!
//! # Znodes
//! None. Each cache has one persistent watch at the server.
//!
//! # Failures
//! - **The session is suspended**: the last state stays. After the reconnect a gap and the
//!   differences are reported.
//! - **The session ends**: an error. The last state stays readable.
//! - **The server's limit of watches is reached**: SystemError from the first `next`.
//!
//! # Example
//! ```
//! use zoolet::recipes::{Change, ChildrenCache};
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn sensors<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let mut sensors = ChildrenCache::new(session, &Path::from_static("/sensors"));
//!     while sensors.next().await? != Change::Complete {}
//!     for (name, znode) in sensors.children() {
//!         println!("{name} {:?}", znode.text());
//!     }
//!     Ok(())
//! }
//! ```

use crate::ask::ask;
use crate::feed::{Asking, Feed};
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Error, Znode};
use futures_core::Stream;
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use zoolet_model::{AddWatchMode, EventKind, Names, Path, Reply, Request, Text, WatchItem};

/// A report of a [`ZnodeCache`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ZnodeChange {
    /// The present state; `None` if there is no znode.
    Now(Option<Znode>),
    /// Changes may have been missed. If the state is not the last one reported, it follows next.
    Gap,
}

/// Follows one znode, which need not exist.
///
/// As a [`Stream`] it ends after the error that ends its session.
#[derive(Debug)]
#[must_use = "a cache follows its znode only while it is polled"]
pub struct ZnodeCache<C: Coordinator> {
    /// `None` before the first session, for a client.
    coordinator: Option<C>,
    path: Path,
    feed: Feed<C>,
    /// A read in flight.
    read: Option<Asking<C>>,
    reported: Option<Option<Znode>>,
    /// Whether nothing has happened since the last read.
    is_read: bool,
    must_tell_gap: bool,
    is_over: bool,
}

impl<C: Coordinator> ZnodeCache<C> {
    /// Returns a cache of the znode at `path`. It sends nothing before it is polled.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { coordinator: Some(coordinator), ..Self::detached(path) }
    }

    /// Returns a cache that waits for its first session.
    pub(crate) fn detached(path: &Path) -> Self {
        Self {
            coordinator: None,
            path: path.clone(),
            feed: Feed::new(path, AddWatchMode::Persistent),
            read: None,
            reported: None,
            is_read: false,
            must_tell_gap: false,
            is_over: false,
        }
    }

    /// Returns the last state reported; `None` if there was no znode, or before the first report.
    pub fn current(&self) -> Option<&Znode> {
        self.reported.as_ref().and_then(Option::as_ref)
    }

    /// Goes on with another session.
    ///
    /// The next report is [`ZnodeChange::Gap`], unless nothing was reported yet. The state follows if
    /// it is not the last one reported.
    pub fn resume(&mut self, coordinator: C) {
        self.coordinator = Some(coordinator);
        self.feed.restart();
        (self.read, self.is_read, self.is_over) = (None, false, false);
        self.must_tell_gap = self.reported.is_some() && !is_on(Mutation::SessionGapNotTold);
    }

    /// Waits for the next report. Cancel-safe.
    ///
    /// The first call reports the present state at once. Each later call waits until the state has
    /// changed, or may have changed meanwhile.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused, with SystemError if the server's limit of
    /// watches is reached. After a refusal, the next call asks again.
    #[allow(clippy::should_implement_trait, reason = "a stream's next, as futures name it: it returns a future")]
    pub fn next(&mut self) -> impl Future<Output = Result<ZnodeChange, Error>> + Send + '_ {
        poll_fn(|context| self.poll_change(context))
    }

    /// Whether the error was reported that ends the stream.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Notes that the error was reported that ends the stream.
    pub(crate) const fn end(&mut self) {
        self.is_over = true;
    }

    pub(crate) fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Result<ZnodeChange, Error>> {
        if std::mem::take(&mut self.must_tell_gap) {
            return Poll::Ready(Ok(ZnodeChange::Gap));
        }
        let Some(coordinator) = &self.coordinator else { return Poll::Pending };
        loop {
            ready!(self.feed.poll_registered(coordinator, context))?;
            if self.is_read {
                match ready!(self.feed.poll_item(coordinator, context))? {
                    WatchItem::Event(event) => self.is_read = event.kind == EventKind::NodeChildrenChanged,
                    WatchItem::Gap => {
                        self.is_read = false;
                        return Poll::Ready(Ok(ZnodeChange::Gap));
                    }
                }
                continue;
            }
            let now = ready!(poll_data(&mut self.read, coordinator, self.path.text(), context))?;
            self.is_read = true;
            let version = |znode: &Option<Znode>| znode.as_ref().map(|znode| (znode.stat.czxid, znode.stat.mzxid));
            if self.reported.as_ref().is_none_or(|reported| version(reported) != version(&now)) {
                self.reported = Some(now.clone());
                return Poll::Ready(Ok(ZnodeChange::Now(now)));
            }
        }
    }
}

impl<C: Coordinator> Unpin for ZnodeCache<C> {}

impl<C: Coordinator> Stream for ZnodeCache<C> {
    type Item = Result<ZnodeChange, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let change = ready!(self.poll_change(context));
        self.is_over = matches!(&change, Err(error) if error.is_session_over());
        Poll::Ready(Some(change))
    }
}

/// A report of a [`ChildrenCache`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A child that is new, or that has new data.
    Put {
        /// The child's name.
        name: Text,
        /// The child's data and stat.
        znode: Znode,
    },
    /// A child that is gone.
    Gone {
        /// The child's name.
        name: Text,
    },
    /// Changes may have been missed. The differences to the last reports follow, up to
    /// [`Change::Complete`].
    Gap,
    /// All children present at the start, or after a gap, have been reported.
    Complete,
}

/// Follows the children of one znode and their data. The znode need not exist.
///
/// As a [`Stream`] it ends after the error that ends its session.
#[derive(Debug)]
#[must_use = "a cache follows its znodes only while it is polled"]
pub struct ChildrenCache<C: Coordinator> {
    /// `None` before the first session, for a client.
    coordinator: Option<C>,
    path: Path,
    feed: Feed<C>,
    children: BTreeMap<String, Znode>,
    /// Changes that are known and not yet reported.
    changes: VecDeque<Change>,
    /// Children to read again.
    stale: VecDeque<String>,
    /// The list of the children, or the first stale child: a read in flight.
    read: Option<Asking<C>>,
    must_list: bool,
    is_complete: bool,
    is_over: bool,
}

impl<C: Coordinator> ChildrenCache<C> {
    /// Returns a cache of the children of `path`. It sends nothing before it is polled.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { coordinator: Some(coordinator), ..Self::detached(path) }
    }

    /// Returns a cache that waits for its first session.
    pub(crate) fn detached(path: &Path) -> Self {
        Self {
            coordinator: None,
            path: path.clone(),
            feed: Feed::new(path, AddWatchMode::PersistentRecursive),
            children: BTreeMap::new(),
            changes: VecDeque::new(),
            stale: VecDeque::new(),
            read: None,
            must_list: true,
            is_complete: false,
            is_over: false,
        }
    }

    /// Returns the children as known to the cache, in byte order of their names.
    pub fn children(&self) -> impl Iterator<Item = (&str, &Znode)> {
        self.children.iter().map(|(name, znode)| (name.as_str(), znode))
    }

    /// Returns one child as known to the cache; `None` if it is absent.
    pub fn child(&self, name: &str) -> Option<&Znode> {
        self.children.get(name)
    }

    /// Goes on with another session.
    ///
    /// [`Change::Gap`] is reported, then the differences to the last reports, then
    /// [`Change::Complete`].
    pub fn resume(&mut self, coordinator: C) {
        let is_first = self.coordinator.replace(coordinator).is_none();
        self.feed.restart();
        (self.read, self.is_over) = (None, false);
        if !is_first {
            self.begin_again(Mutation::SessionGapNotTold);
        }
    }

    /// Lists the children again, because changes may have been missed.
    fn begin_again(&mut self, untold: Mutation) {
        (self.must_list, self.is_complete) = (true, false);
        self.changes.extend((!is_on(untold)).then_some(Change::Gap));
    }

    /// Waits for the next report. Cancel-safe.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused, with SystemError if the server's limit of
    /// watches is reached. After a refusal, the next call asks again.
    #[allow(clippy::should_implement_trait, reason = "a stream's next, as futures name it: it returns a future")]
    pub fn next(&mut self) -> impl Future<Output = Result<Change, Error>> + Send + '_ {
        poll_fn(|context| self.poll_change(context))
    }

    pub(crate) fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Result<Change, Error>> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Poll::Ready(Ok(change));
            }
            let Some(coordinator) = self.coordinator.clone() else { return Poll::Pending };
            ready!(self.feed.poll_registered(&coordinator, context))?;
            if self.must_list {
                ready!(self.poll_list(&coordinator, context))?;
            } else if let Some(name) = self.stale.front().cloned() {
                ready!(self.poll_child(&coordinator, name, context))?;
            } else if !self.is_complete {
                self.is_complete = true;
                self.changes.push_back(Change::Complete);
            } else {
                match ready!(self.feed.poll_item(&coordinator, context))? {
                    WatchItem::Event(event) => self.hear(event.kind, event.path.as_str()),
                    WatchItem::Gap => self.begin_again(Mutation::GapNotTold),
                }
            }
        }
    }

    /// Notes an event of the parent, a child or a descendant.
    ///
    /// The cache does not follow the parent's data, nor znodes below the children.
    fn hear(&mut self, kind: EventKind, path: &str) {
        if path == self.path.as_str() {
            self.must_list |= kind != EventKind::NodeDataChanged;
        } else if let Some((parent, name)) = zoolet_model::path::parent_and_name(path)
            && parent == self.path.as_str()
            && !self.stale.iter().any(|stale| stale == name)
        {
            self.stale.push_back(name.to_owned());
        }
    }

    /// Lists the children. Children that are gone are reported; all others are read again.
    fn poll_list(&mut self, coordinator: &C, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let request = || Request::GetChildren { path: self.path.text().clone(), watch: false, with_stat: false };
        let names = match ready!(poll_answer(&mut self.read, coordinator, request, context))? {
            None => Names::default(),
            Some(Reply::Names(names)) => names,
            Some(_) => return Poll::Ready(Err(Error::unexpected())),
        };
        let is_there = |name: &str, names: &Names| names.iter().any(|other| other == name);
        let gone: Vec<String> = self.children.keys().filter(|name| !is_there(name, &names)).cloned().collect();
        for name in gone {
            self.children.remove(&name);
            self.changes.push_back(Change::Gone { name: name.into() });
        }
        self.stale = names.iter().map(str::to_owned).collect();
        self.must_list = false;
        Poll::Ready(Ok(()))
    }

    /// Reads the first stale child.
    fn poll_child(&mut self, coordinator: &C, name: String, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let path = zoolet_model::path::child(self.path.as_str(), &name);
        let now = ready!(poll_data(&mut self.read, coordinator, &path, context))?;
        self.stale.retain(|stale| *stale != name);
        match now {
            Some(znode) => {
                let version = |znode: &Znode| (znode.stat.czxid, znode.stat.mzxid);
                let is_new = self.children.get(&name).is_none_or(|reported| version(reported) != version(&znode));
                if is_new {
                    self.children.insert(name.clone(), znode.clone());
                    self.changes.push_back(Change::Put { name: name.into(), znode });
                }
            }
            None if self.children.remove(&name).is_some() => self.changes.push_back(Change::Gone { name: name.into() }),
            None => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl<C: Coordinator> Unpin for ChildrenCache<C> {}

impl<C: Coordinator> Stream for ChildrenCache<C> {
    type Item = Result<Change, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let change = ready!(self.poll_change(context));
        self.is_over = matches!(&change, Err(error) if error.is_session_over());
        Poll::Ready(Some(change))
    }
}

/// Polls a read in flight, or sends it. `None` if there is no such znode.
fn poll_answer<C: Coordinator>(
    read: &mut Option<Asking<C>>,
    coordinator: &C,
    request: impl FnOnce() -> Request,
    context: &mut Context<'_>,
) -> Poll<Result<Option<Reply>, Error>> {
    let asking = read.get_or_insert_with(|| Asking::new(coordinator, request()));
    let answer = ready!(asking.poll(coordinator, context));
    *read = None;
    Poll::Ready(answer)
}

/// Polls a read of data in flight, or sends it. `None` if there is no such znode.
fn poll_data<C: Coordinator>(
    read: &mut Option<Asking<C>>,
    coordinator: &C,
    path: &Text,
    context: &mut Context<'_>,
) -> Poll<Result<Option<Znode>, Error>> {
    let request = || Request::GetData { path: path.clone(), watch: false };
    Poll::Ready(match ready!(poll_answer(read, coordinator, request, context))? {
        None => Ok(None),
        Some(Reply::Data(data, stat)) => Ok(Some(Znode::new(data, stat))),
        Some(_) => Err(Error::unexpected()),
    })
}

/// Brings the session's server up to date with every write before this call.
///
/// A cache then hears of nothing older. The call sends a `sync`. A leader of zoolet asks a quorum
/// before it answers one, so the promise always holds.
///
/// A leader of Apache ZooKeeper answers without asking. If it was replaced and has not noticed yet,
/// it answers from an outdated state. So over [`Remote`](crate::remote) against Apache ZooKeeper, a
/// reader that must not miss an earlier write has to write something first.
///
/// # Errors
/// Fails if the session ends or the request is refused.
pub async fn catch_up<C: Coordinator>(coordinator: &C) -> Result<(), Error> {
    ask(coordinator, &Request::Sync { path: None }).await.map(drop)
}
