//! Copies of parts of the tree that follow it.
//!
//! # Guarantees
//! - What is there in the end is told, whatever happened in between.
//! - Where changes may have been missed (the session was suspended, or the reader was slow) [`Change::Gap`] or [`NodeChange::Gap`] says so, everything
//!   is read again, and what is different is told.
//! - Nothing is told twice: the same zxid is the same state.
//!
//! # Does not guarantee
//! - Each intermediate state: what changed several times before it was read is told once. Use versions.
//! - That it is newer than what others have seen: the server may be behind. [`catch_up`] waits until it is not; against Apache ZooKeeper almost always, see there.
//! - Room: a cache of the children holds all of them in memory.
//!
//! # Znodes
//! Only what is watched: one persistent watch on the server for each cache.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the session is suspended | what was told stays; after the reconnect a gap and the difference |
//! | the session ends | an error; what was told stays readable |
//! | the server has as many watches as it may | SystemError when the cache is made |
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

/// What one znode holds.
pub type Content = (Option<Bytes>, Stat);

/// What a node cache tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeChange {
    /// What there is; `None`: no znode.
    Now(Option<Content>),
    /// Changes may have been missed. If something else is there than what was told, it is told next.
    Gap,
}

/// Follows one znode, which need not exist.
#[derive(Debug)]
pub struct NodeCache<C: Coordinator> {
    coordinator: C,
    path: Path,
    events: C::Events,
    told: Option<Option<Content>>,
    /// Nothing has happened since it was read last.
    is_read: bool,
}

impl<C: Coordinator> NodeCache<C> {
    /// Of the znode at `path`.
    ///
    /// # Errors
    /// SystemError when the server has as many watches as it may; the session's.
    pub async fn new(coordinator: C, path: &Path) -> Result<Self, Error> {
        let events = watch(&coordinator, path, AddWatchMode::Persistent).await?;
        Ok(Self { coordinator, path: path.clone(), events, told: None, is_read: false })
    }

    /// What was told last; `None` when there was no znode, or nothing was told yet.
    pub fn current(&self) -> Option<&Content> {
        self.told.as_ref().and_then(Option::as_ref)
    }

    /// What there is, at once when it is asked first, and then each time that it is something else, or may have been meanwhile. Cancel-safe.
    ///
    /// # Errors
    /// The session's.
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
            if self.told.as_ref().is_none_or(|told| version(told) != version(&now)) {
                self.told = Some(now.clone());
                return Ok(NodeChange::Now(now));
            }
        }
    }
}

/// What changed below a znode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// This child is there, or has other data than before.
    Put {
        /// Its name.
        name: Text,
        /// Its data and stat.
        content: Content,
    },
    /// This child is gone.
    Gone {
        /// Its name.
        name: Text,
    },
    /// Changes may have been missed; what follows, up to [`Change::Complete`], is the difference between what was told and what is.
    Gap,
    /// Everything that was there when this began, or after a gap, has been told.
    Complete,
}

/// Follows the children of one znode and their data. The znode need not exist.
#[derive(Debug)]
pub struct ChildrenCache<C: Coordinator> {
    coordinator: C,
    path: Path,
    events: C::Events,
    children: BTreeMap<String, Content>,
    /// Changes that are known and not told.
    changes: VecDeque<Change>,
    /// Children that are to be read again.
    stale: VecDeque<String>,
    must_list: bool,
    is_complete: bool,
}

impl<C: Coordinator> ChildrenCache<C> {
    /// Of the children of `path`.
    ///
    /// # Errors
    /// SystemError when the server has as many watches as it may; the session's.
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

    /// The children as they were told, by name.
    pub fn children(&self) -> impl Iterator<Item = (&str, &Content)> {
        self.children.iter().map(|(name, content)| (name.as_str(), content))
    }

    /// One of them.
    pub fn child(&self, name: &str) -> Option<&Content> {
        self.children.get(name)
    }

    /// The next change. Cancel-safe.
    ///
    /// # Errors
    /// The session's.
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

    /// Something happened to this znode: to one of the children, to the parent, or further below, which is not followed. Nor is the parent's data.
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

    /// Which children there are: those that are gone, and all others are to be read.
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
                let is_new = self.children.get(&name).is_none_or(|told| version(told) != version(&content));
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

/// Brings the session's server up to date with every write before this call: a cache then hears of
/// nothing older.
///
/// It sends a `sync`. A leader of zoolet asks a quorum before it answers one, and the promise holds always. A leader of Apache ZooKeeper answers without asking:
/// one that was replaced, and has not noticed yet, answers with what it knows. Over [`Remote`](crate::remote) against Apache ZooKeeper, a reader that must not
/// miss an earlier write has to write something itself first.
///
/// # Errors
/// The session's.
pub async fn catch_up<C: Coordinator>(coordinator: &C) -> Result<(), Error> {
    ask(coordinator, &Request::Sync { path: None }).await.map(drop)
}
