//! Caches: copies of parts of the tree that follow its changes.
//!
//! # Guarantees
//! - The final state is always reported, even if intermediate ones were missed.
//! - If changes may have been missed, [`Change::Gap`] or [`NodeChange::Gap`] reports it. The cache
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
//! - **The server's limit of watches is reached**: SystemError when the cache is created.
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Change, ChildrenCache, Coordinator, Error};
//!
//! async fn sensors<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let mut sensors = ChildrenCache::new(session, &Path::from_static("/sensors")).await?;
//!     while sensors.next().await? != Change::Complete {}
//!     for (name, (data, _)) in sensors.children() {
//!         println!("{name} {data:?}");
//!     }
//!     Ok(())
//! }
//! ```

use crate::ask::{ask, connected, data, is_disconnection, next};
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Error};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use zoolet_model::{AddWatchMode, EventKind, Names, Path, Reply, Request, Stat, Text, WatchItem};

/// Data and stat of one znode.
pub type Content = (Option<Bytes>, Stat);

/// A report of a [`NodeCache`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeChange {
    /// The present state; `None` if there is no znode.
    Now(Option<Content>),
    /// Changes may have been missed. If the state is not the last one reported, it follows next.
    Gap,
}

/// Follows one znode, which need not exist.
#[derive(Debug)]
pub struct NodeCache<C: Coordinator> {
    coordinator: C,
    path: Path,
    events: C::Events,
    reported: Option<Option<Content>>,
    /// Whether nothing has happened since the last read.
    is_read: bool,
}

impl<C: Coordinator> NodeCache<C> {
    /// Returns a cache of the znode at `path`.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or the request is refused, with SystemError if the
    /// server's limit of watches is reached.
    pub async fn new(coordinator: C, path: &Path) -> Result<Self, Error> {
        let events = watch(&coordinator, path, AddWatchMode::Persistent).await?;
        Ok(Self { coordinator, path: path.clone(), events, reported: None, is_read: false })
    }

    /// Returns the last state reported; `None` if there was no znode, or before the first report.
    pub fn current(&self) -> Option<&Content> {
        self.reported.as_ref().and_then(Option::as_ref)
    }

    /// Waits for the next report. Cancel-safe.
    ///
    /// The first call reports the present state at once. Each later call waits until the state has
    /// changed, or may have changed meanwhile.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn next(&mut self) -> Result<NodeChange, Error> {
        loop {
            if self.is_read {
                self.is_read = match next(&mut self.events).await {
                    Some(WatchItem::Event(event)) => event.kind == EventKind::NodeChildrenChanged,
                    Some(WatchItem::Gap) => {
                        self.is_read = false;
                        return Ok(NodeChange::Gap);
                    }
                    None => return Err(over(&self.coordinator)),
                };
                continue;
            }
            let now = data(&self.coordinator, self.path.text()).await?;
            self.is_read = true;
            let version = |content: &Option<Content>| content.as_ref().map(|(_, stat)| (stat.czxid, stat.mzxid));
            if self.reported.as_ref().is_none_or(|reported| version(reported) != version(&now)) {
                self.reported = Some(now.clone());
                return Ok(NodeChange::Now(now));
            }
        }
    }
}

/// A report of a [`ChildrenCache`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A child that is new, or that has new data.
    Put {
        /// The child's name.
        name: Text,
        /// The child's data and stat.
        content: Content,
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
#[derive(Debug)]
pub struct ChildrenCache<C: Coordinator> {
    coordinator: C,
    path: Path,
    events: C::Events,
    children: BTreeMap<String, Content>,
    /// Changes that are known and not yet reported.
    changes: VecDeque<Change>,
    /// Children to read again.
    stale: VecDeque<String>,
    must_list: bool,
    is_complete: bool,
}

impl<C: Coordinator> ChildrenCache<C> {
    /// Returns a cache of the children of `path`.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or the request is refused, with SystemError if the
    /// server's limit of watches is reached.
    pub async fn new(coordinator: C, path: &Path) -> Result<Self, Error> {
        let events = watch(&coordinator, path, AddWatchMode::PersistentRecursive).await?;
        Ok(Self {
            coordinator,
            path: path.clone(),
            events,
            children: BTreeMap::new(),
            changes: VecDeque::new(),
            stale: VecDeque::new(),
            must_list: true,
            is_complete: false,
        })
    }

    /// Returns the children as known to the cache, in byte order of their names.
    pub fn children(&self) -> impl Iterator<Item = (&str, &Content)> {
        self.children.iter().map(|(name, content)| (name.as_str(), content))
    }

    /// Returns one child as known to the cache; `None` if it is absent.
    pub fn child(&self, name: &str) -> Option<&Content> {
        self.children.get(name)
    }

    /// Waits for the next report. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn next(&mut self) -> Result<Change, Error> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            if self.must_list {
                self.list().await?;
            } else if let Some(name) = self.stale.front().cloned() {
                self.read(name).await?;
            } else if !self.is_complete {
                self.is_complete = true;
                self.changes.push_back(Change::Complete);
            } else {
                match next(&mut self.events).await {
                    Some(WatchItem::Event(event)) => self.hear(event.kind, &event.path),
                    Some(WatchItem::Gap) => {
                        (self.must_list, self.is_complete) = (true, false);
                        self.changes.extend((!is_on(Mutation::GapNotTold)).then_some(Change::Gap));
                    }
                    None => return Err(over(&self.coordinator)),
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
    async fn list(&mut self) -> Result<(), Error> {
        let names = crate::ask::children(&self.coordinator, self.path.text()).await?;
        let is_there = |name: &str, names: &Names| names.iter().any(|other| other == name);
        let gone: Vec<String> = self.children.keys().filter(|name| !is_there(name, &names)).cloned().collect();
        for name in gone {
            self.children.remove(&name);
            self.changes.push_back(Change::Gone { name: name.into() });
        }
        self.stale = names.iter().map(str::to_owned).collect();
        self.must_list = false;
        Ok(())
    }

    async fn read(&mut self, name: String) -> Result<(), Error> {
        let now = data(&self.coordinator, &zoolet_model::path::child(self.path.as_str(), &name)).await?;
        self.stale.retain(|stale| *stale != name);
        match now {
            Some(content) => {
                let version = |content: &Content| (content.1.czxid, content.1.mzxid);
                let is_new = self.children.get(&name).is_none_or(|reported| version(reported) != version(&content));
                if is_new {
                    self.children.insert(name.clone(), content.clone());
                    self.changes.push_back(Change::Put { name: name.into(), content });
                }
            }
            None if self.children.remove(&name).is_some() => self.changes.push_back(Change::Gone { name: name.into() }),
            None => {}
        }
        Ok(())
    }
}

fn over<C: Coordinator>(coordinator: &C) -> Error {
    zoolet_model::Error::of(coordinator.state()).into()
}

async fn watch<C: Coordinator>(coordinator: &C, path: &Path, mode: AddWatchMode) -> Result<C::Events, Error> {
    loop {
        let (ticket, events) = coordinator.watch(path, mode);
        match ticket.await {
            Ok(Reply::WatchAdded | Reply::Empty) => return Ok(events),
            Ok(_) => return Err(crate::ask::UNEXPECTED),
            Err(error) if is_disconnection(error) => connected(coordinator).await?,
            Err(error) => return Err(error.into()),
        }
    }
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
/// [`Error::Session`] if the session ends or the request is refused.
pub async fn catch_up<C: Coordinator>(coordinator: &C) -> Result<(), Error> {
    ask(coordinator, &Request::Sync { path: None }).await.map(drop)
}
