//! Queues: each item goes to one consumer, in put order.
//!
//! These are small work queues. Every consumer lists all items, so a queue has a bound
//! ([`ITEMS_MAX`]).
//!
//! # Guarantees
//! - An item that was put is there once, even if the reply is lost.
//! - [`Queue::take`] gives an item to at most one consumer, at most once.
//! - [`Queue::claim`] processes an item at least once. One consumer at a time works on the item,
//!   which stays until [`Claim::complete`]. That call removes the item and writes its results in
//!   one transaction, so the results in the ensemble are written once.
//! - No consumer takes an item that another consumer has claimed.
//! - Items are tried in the order in which they were put; in a [`PriorityQueue`], lower priorities
//!   come first. A dropped claim returns its item to its former place. Consumers find it when they
//!   next list the items: once their list is used up, or at each call in a [`PriorityQueue`].
//! - Dropping a `take` or `claim` keeps the order. The next call on the same [`Queue`] value tries
//!   the same item first, unless the dropped `take` removed it.
//! - [`Claim::attempts`] counts claims, so that an item that kills its consumers can be
//!   [buried](Claim::bury).
//!
//! # Does not guarantee
//! - Several consumers may *finish* items out of order.
//! - An item that was taken rather than claimed is lost if its consumer dies.
//! - Clients that may write below the path and `path-claims` can interfere. An item with a child
//!   can be neither taken nor completed (NotEmpty). A foreign znode in place of a claim blocks its
//!   item for every consumer.
//! - There is a herd: an item put into an empty queue wakes every waiting consumer, and one gets
//!   it, as in the published recipe.
//! - The bound is not exact: each concurrent put may exceed it by one item.
//!
//! # Znodes
//! - The path, with a child `queue-NNNNNNNNNN` for each item, or `queue-YYNNNNNNNNNN` with a
//!   priority of two digits. Items are persistent, or ephemerals of their producer
//!   ([`Lifetime::Producer`], as published).
//! - `path-claims`: an ephemeral for each claimed item, and for an item at the moment when it is
//!   taken. It is Curator's `lockPath`.
//! - `path-dead`: the buried items.
//! - `path-receipts`: an ephemeral for each participant, which resolves lost replies.
//!
//! # Failures
//! - **The reply to a put, take or complete is lost**: the call finds out whether it was done.
//! - **A consumer dies with a claim**: other consumers get the item once the session ends.
//! - **A claim is broken, or its session ended**: [`Claim::complete`] fails with [`ErrorKind::GrantLost`],
//!   and nothing was done.
//! - **The session ends during [`Claim::complete`]**: the call fails with [`Error`]. The
//!   item may or may not have been completed.
//! - **A claim is broken while its owner gives it up**: no other claim is deleted. The deletion
//!   checks, in the same transaction, that the item has not been claimed since.
//! - **A future of [`Queue::take`] is dropped**: the first item may be lost. Use [`Queue::claim`]
//!   where that matters.
//! - **A future of [`Queue::claim`] is dropped**: its item stays in the queue. Its claim, if it was
//!   created, is deleted before the item is tried again.
//!
//! # Example
//! ```
//! use zoolet::recipes::Queue;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn work<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let queue = Queue::new(session, &Path::from_static("/jobs"));
//!     queue.put("weld 17").await?;
//!     let claim = queue.claim().await?;
//!     if claim.attempts() > 3 {
//!         return claim.bury().await;
//!     }
//!     println!("{:?}", claim.item());
//!     claim.complete([]).await
//! }
//! ```

use crate::ask::{
    BROKEN, any_fired, ask_watching, beside, bytes, children, connected, create, data, fired, is_disconnection,
    make_container, make_persistent, stat,
};
use crate::mutation::{Mutation, is_on};
use crate::naming::name_of;
use crate::once::Once;
use crate::{Coordinator, Errand, Error, ErrorKind, FencingToken, GrantEnd, Guid, Op};
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zoolet_model::{
    CreateKind, ErrorCode, IntoData, Names, OpResult, Path, Reply, Request, RequestError, Text, WriteOp,
};

/// Default bound on the items in a queue.
///
/// Clients list all items, and 10,000 items break every queue on ZooKeeper.
pub const ITEMS_MAX: u32 = 1_000;

/// Operations that end a claim; they precede the caller's.
const ENDING: usize = 2;

/// Lifetime of an item that no consumer takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lifetime {
    /// Until the item is taken.
    #[default]
    Persistent,
    /// Until its producer's session ends, as in the published recipe.
    Producer,
}

/// Priority from 0 to 99; lower ones come first, as in UNIX.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority(u8);

impl Priority {
    /// Returns `None` above 99: the name reserves two digits.
    pub const fn new(priority: u8) -> Option<Self> {
        if priority < 100 { Some(Self(priority)) } else { None }
    }
}

/// A queue that tries items in the order of the puts.
///
/// Clones are handles to the same queue.
#[derive(Clone, Debug)]
pub struct Queue<C: Coordinator> {
    items: Arc<Items<C>>,
    puts: Puts,
}

/// A queue that tries items by priority.
///
/// Items of the same priority keep the order of their puts.
///
/// Clones are handles to the same queue.
#[derive(Clone, Debug)]
pub struct PriorityQueue<C: Coordinator> {
    items: Arc<Items<C>>,
    puts: Puts,
}

/// How one handle puts items.
#[derive(Clone, Copy, Debug)]
struct Puts {
    lifetime: Lifetime,
    items_max: u32,
}

impl Default for Puts {
    fn default() -> Self {
        Self { lifetime: Lifetime::default(), items_max: ITEMS_MAX }
    }
}

/// Shared implementation of both queues.
#[derive(Debug)]
struct Items<C: Coordinator> {
    coordinator: C,
    path: Path,
    claims: Path,
    dead: Path,
    once: Once<C>,
    /// Names that were listed and not yet tried.
    listed: Mutex<VecDeque<String>>,
    /// Dropped claims that the session may not have deleted yet.
    dropped: Mutex<Vec<(Text, Guid)>>,
    is_prioritized: bool,
}

impl<C: Coordinator> Queue<C> {
    /// Returns the queue at `path`.
    ///
    /// Claims are below `path-claims`, buried items below `path-dead`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { items: Arc::new(Items::new(coordinator, path, false)), puts: Puts::default() }
    }

    /// Sets the lifetime of items put by this value.
    #[must_use]
    pub fn lifetime(self, lifetime: Lifetime) -> Self {
        Self { puts: Puts { lifetime, ..self.puts }, ..self }
    }

    /// Sets the bound on items, instead of [`ITEMS_MAX`].
    #[must_use]
    pub fn items_max(self, items_max: u32) -> Self {
        Self { puts: Puts { items_max, ..self.puts }, ..self }
    }

    /// Puts an item once, even if the reply is lost.
    ///
    /// # Errors
    /// - [`ErrorKind::Full`] at the bound. Each concurrent put may exceed the bound by one item.
    /// - [`ErrorKind::Exhausted`] if the sequence numbers below the path are used up.
    /// - Fails if a request is refused.
    /// - Fails if the session ends. The item may have been put: see [`Queue::put_with`].
    pub async fn put(&self, item: impl IntoData) -> Result<(), Error> {
        self.put_with(item, []).await
    }

    /// As [`Queue::put`], in one transaction with `also`.
    ///
    /// To put a job once over all sessions, let `also` create a znode with the job's own name. If
    /// that name exists, the put fails with NodeExists and adds nothing, in any session.
    ///
    /// ```
    /// # use zoolet::recipes::Queue;
    /// # use zoolet::{Coordinator, CoordinatorExt, Error, Op, path};
    /// /// Puts the job with this number, unless it was put before, also in an earlier session.
    /// async fn put_once<C: Coordinator>(session: &C, queue: &Queue<C>, number: u64, job: &str) -> Result<(), Error> {
    ///     session.ensure(path!("/jobs-put")).await?;
    ///     let name = path!("/jobs-put").join(number.to_string())?;
    ///     match queue.put_with(job, [Op::create(&name, "")]).await {
    ///         Err(error) if error.is_node_exists() => Ok(()),
    ///         put => put,
    ///     }
    /// }
    /// ```
    ///
    /// - The names stay. Delete a name only when nobody can put its job again.
    /// - Items of [`Lifetime::Producer`] end with their session. Create their names as ephemerals.
    /// - A full queue refuses a repeated put with [`ErrorKind::Full`] too.
    ///
    /// # Errors
    /// As [`Queue::put`]. If an operation of `also` is refused, the error has its position in `also`.
    /// In both cases nothing was written, unless the session ended.
    pub async fn put_with(&self, item: impl IntoData, also: impl IntoIterator<Item = Op>) -> Result<(), Error> {
        self.items.put(self.puts, "queue-", bytes(item), also).await
    }

    /// Waits for the first item and takes it out.
    ///
    /// The caller is the only consumer that gets the item. If the caller dies with it, the item is
    /// lost. Dropping the future leaves nothing behind. A future dropped while it took an item may
    /// have taken it.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn take(&self) -> Result<Bytes, Error> {
        self.items.take().await
    }

    /// Waits for the first item that is not claimed, and claims it.
    ///
    /// The item stays in the queue until the claim is completed or buried. If the claim is dropped
    /// or its session ends, other consumers can claim the item again.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn claim(&self) -> Result<Claim<C>, Error> {
        self.items.claim().await
    }

    /// Returns the number of items in the queue, claimed ones included.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn size(&self) -> Result<u32, Error> {
        self.items.size().await
    }
}

impl<C: Coordinator> PriorityQueue<C> {
    /// As [`Queue::new`].
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { items: Arc::new(Items::new(coordinator, path, true)), puts: Puts::default() }
    }

    /// As [`Queue::lifetime`].
    #[must_use]
    pub fn lifetime(self, lifetime: Lifetime) -> Self {
        Self { puts: Puts { lifetime, ..self.puts }, ..self }
    }

    /// As [`Queue::items_max`].
    #[must_use]
    pub fn items_max(self, items_max: u32) -> Self {
        Self { puts: Puts { items_max, ..self.puts }, ..self }
    }

    /// As [`Queue::put`].
    ///
    /// # Errors
    /// As [`Queue::put`].
    pub async fn put(&self, priority: Priority, item: impl IntoData) -> Result<(), Error> {
        self.put_with(priority, item, []).await
    }

    /// As [`Queue::put_with`].
    ///
    /// # Errors
    /// As [`Queue::put_with`].
    pub async fn put_with(
        &self,
        priority: Priority,
        item: impl IntoData,
        also: impl IntoIterator<Item = Op>,
    ) -> Result<(), Error> {
        self.items.put(self.puts, &format!("queue-{:02}", priority.0), bytes(item), also).await
    }

    /// As [`Queue::take`].
    ///
    /// # Errors
    /// As [`Queue::take`].
    pub async fn take(&self) -> Result<Bytes, Error> {
        self.items.take().await
    }

    /// As [`Queue::claim`].
    ///
    /// # Errors
    /// As [`Queue::claim`].
    pub async fn claim(&self) -> Result<Claim<C>, Error> {
        self.items.claim().await
    }

    /// As [`Queue::size`].
    ///
    /// # Errors
    /// As [`Queue::size`].
    pub async fn size(&self) -> Result<u32, Error> {
        self.items.size().await
    }
}

impl<C: Coordinator> Items<C> {
    fn new(coordinator: C, path: &Path, is_prioritized: bool) -> Self {
        Self {
            claims: beside(path, "claims"),
            dead: beside(path, "dead"),
            once: Once::new(coordinator.clone(), path),
            coordinator,
            path: path.clone(),
            listed: Mutex::new(VecDeque::new()),
            dropped: Mutex::new(Vec::new()),
            is_prioritized,
        }
    }

    fn child(&self, name: &str) -> Text {
        zoolet_model::path::child(self.path.as_str(), name)
    }

    async fn size(&self) -> Result<u32, Error> {
        let stat = stat(&self.coordinator, self.path.text()).await?;
        Ok(stat.map_or(0, |stat| stat.num_children.unsigned_abs()))
    }

    async fn put(
        &self,
        puts: Puts,
        prefix: &str,
        item: Bytes,
        also: impl IntoIterator<Item = Op>,
    ) -> Result<(), Error> {
        let kind = match puts.lifetime {
            Lifetime::Persistent => CreateKind::Persistent,
            Lifetime::Producer => CreateKind::Ephemeral,
        };
        let mut ops = vec![create(self.child(prefix), Some(item), kind, true)];
        ops.extend(also.into_iter().map(WriteOp::from));
        loop {
            if self.size().await? >= puts.items_max {
                return Err(Error::at(ErrorKind::Full, "put into", self.path.text()));
            }
            match self.once.transact(&ops).await? {
                Ok(()) => return Ok(()),
                Err((0, ErrorCode::NoNode)) => make_persistent(&self.coordinator, &self.path).await?,
                // At the end of its range, the parent assigns the same number again and again.
                Err((0, ErrorCode::NodeExists)) => {
                    return Err(Error::at(ErrorKind::Exhausted, "put into", self.path.text()));
                }
                Err((0, code)) => return Err(Error::at(code, "use the queue", self.path.text())),
                Err((at, code)) => return Err(Error::of_multi(&ops, at, code).counted_from(1)),
            }
        }
    }

    async fn take(&self) -> Result<Bytes, Error> {
        self.begin();
        loop {
            let mut claimed = Vec::new();
            while let Some(name) = self.next_listed() {
                match self.attempt(self.try_take(&name)).await? {
                    Tried::Got(item) => return Ok(item),
                    Tried::ByAnother => claimed.push(name),
                    Tried::Gone => {}
                }
            }
            self.wait_listed(claimed).await?;
        }
    }

    async fn claim(self: &Arc<Self>) -> Result<Claim<C>, Error> {
        self.begin();
        loop {
            let mut claimed = Vec::new();
            while let Some(name) = self.next_listed() {
                match self.attempt(self.try_claim(&name)).await? {
                    Tried::Got(claim) => return Ok(claim),
                    Tried::ByAnother => claimed.push(name),
                    Tried::Gone => {}
                }
            }
            self.wait_listed(claimed).await?;
        }
    }

    /// Discards the list of a priority queue.
    ///
    /// A more urgent item may have come since the listing.
    fn begin(&self) {
        if self.is_prioritized {
            self.set_listed(Vec::new());
        }
    }

    /// Tries an item.
    ///
    /// If the attempt is dropped or fails, the next one lists the items again and finds this item
    /// in its former place.
    async fn attempt<T>(&self, tries: impl Future<Output = Result<Tried<T>, Error>>) -> Result<Tried<T>, Error> {
        let attempt = Attempt { items: self, is_over: is_on(Mutation::DroppedAttemptForgotten) };
        let tried = tries.await?;
        attempt.end();
        Ok(tried)
    }

    /// Takes an item, unless another consumer has claimed it.
    ///
    /// The transaction creates a claim and deletes it together with the item.
    async fn try_take(&self, name: &str) -> Result<Tried<Bytes>, Error> {
        let c = &self.coordinator;
        let (path, claim) = (self.child(name), zoolet_model::path::child(self.claims.as_str(), name));
        let delete = |path: &Text| WriteOp::Delete { path: path.clone(), version: -1 };
        let Some((item, _)) = data(c, &path).await? else { return Ok(Tried::Gone) };
        let ops = [create(claim.clone(), None, CreateKind::Ephemeral, false), delete(&claim), delete(&path)];
        let ops = if is_on(Mutation::ClaimNotInTake) { vec![delete(&path)] } else { ops.to_vec() };
        loop {
            match self.once.transact(&ops).await? {
                Ok(()) => return Ok(Tried::Got(item.unwrap_or_default())),
                Err((0, ErrorCode::NoNode)) if is_on(Mutation::ClaimNotInTake) => return Ok(Tried::Gone),
                Err((0, ErrorCode::NoNode)) => make_container(c, &self.claims).await?,
                Err((0, ErrorCode::NodeExists)) => {
                    if !self.dropped_is_gone(&claim).await? {
                        return Ok(Tried::ByAnother);
                    }
                }
                Err((2, ErrorCode::NoNode)) => return Ok(Tried::Gone),
                Err((_, code)) => return Err(Error::at(code, "use the queue", self.path.text())),
            }
        }
    }

    async fn try_claim(self: &Arc<Self>, name: &str) -> Result<Tried<Claim<C>>, Error> {
        let c = &self.coordinator;
        let guid = Guid::from_random_bits(c.random_bits());
        let content = Bytes::from(guid.to_string());
        // Built before the first write: its drop deletes the claim even if the reply is lost.
        let mut claim = Claim {
            items: Arc::clone(self),
            item: self.child(name),
            path: zoolet_model::path::child(self.claims.as_str(), name),
            guid,
            content: Bytes::new(),
            version: 0,
            zxid: 0,
            is_over: true,
        };
        let mut is_doubtful = false;
        loop {
            let Some((item, stat)) = data(c, &claim.item).await? else { return Ok(Tried::Gone) };
            let ops = vec![
                create(claim.path.clone(), Some(content.clone()), CreateKind::Ephemeral, false),
                // The item's version counts its claims.
                WriteOp::SetData { path: claim.item.clone(), data: item.clone(), version: stat.version },
            ];
            claim.is_over = false;
            let results = match c.submit(Request::Multi(ops)).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(Error::unexpected()),
                Err(error) if is_disconnection(error) => {
                    is_doubtful |= error == RequestError::ConnectionLoss;
                    connected(c).await?;
                    continue;
                }
                Err(error) => {
                    // A refused request created no claim.
                    claim.is_over = !is_doubtful && matches!(error, RequestError::Refused(_));
                    return Err(Error::at(error, "use the queue", self.path.text()));
                }
            };
            let failure = zoolet_model::first_failure(&results);
            claim.is_over = failure.is_some() && !is_doubtful;
            match failure {
                None => {
                    let Some(OpResult::SetData(stat)) = results.last() else { return Err(Error::unexpected()) };
                    lock(&self.dropped).retain(|(dropped, _)| *dropped != claim.path);
                    return Ok(Tried::Got(claim.made(item.unwrap_or_default(), stat)));
                }
                Some((0, ErrorCode::NodeExists)) => {
                    // Read the item before its claim. If the claim turns out to be this one, whose
                    // reply was lost, no other consumer can have claimed the item between the two
                    // reads.
                    let found = data(c, &claim.item).await?;
                    let Some((there, _)) = data(c, &claim.path).await? else { continue };
                    if there != Some(content.clone()) {
                        claim.is_over = true;
                        if self.dropped_is_gone(&claim.path).await? {
                            continue;
                        }
                        return Ok(Tried::ByAnother);
                    }
                    let Some((item, stat)) = found else { return Ok(Tried::Gone) };
                    return Ok(Tried::Got(claim.made(item.unwrap_or_default(), &stat)));
                }
                Some((0, ErrorCode::NoNode)) => make_container(c, &self.claims).await?,
                Some((1, ErrorCode::BadVersion)) => {}
                Some((1, ErrorCode::NoNode)) => return Ok(Tried::Gone),
                Some((_, code)) => return Err(Error::at(code, "use the queue", self.path.text())),
            }
        }
    }

    /// Waits until this queue's dropped claim at `path` is gone.
    ///
    /// The item is then free. Returns `false` if the claim there is another consumer's.
    async fn dropped_is_gone(&self, path: &Text) -> Result<bool, Error> {
        let guids: Vec<Bytes> = lock(&self.dropped)
            .iter()
            .filter(|(dropped, _)| dropped == path)
            .map(|(_, guid)| Bytes::from(guid.to_string()))
            .collect();
        if guids.is_empty() {
            return Ok(false);
        }
        let request = Request::GetData { path: path.clone(), watch: true };
        let is_gone = loop {
            let (there, watch) = ask_watching(&self.coordinator, &request).await?;
            match there {
                Some(Reply::Data(Some(guid), _)) if guids.contains(&guid) => {
                    fired(&self.coordinator, watch).await?;
                }
                Some(_) => break false,
                None => break true,
            }
        };
        lock(&self.dropped).retain(|(dropped, _)| dropped != path);
        Ok(is_gone)
    }

    /// Removes and returns the next name to try.
    fn next_listed(&self) -> Option<String> {
        lock(&self.listed).pop_front()
    }

    /// Lists the items again.
    ///
    /// If all of them are in `claimed`, waits first for a change of the items or the end of a
    /// claim.
    async fn wait_listed(&self, claimed: Vec<String>) -> Result<(), Error> {
        let c = &self.coordinator;
        loop {
            let request = Request::GetChildren { path: self.path.text().clone(), watch: true, with_stat: false };
            let (names, changed) = ask_watching(c, &request).await?;
            let Some(Reply::Names(names)) = names else {
                make_persistent(c, &self.path).await?;
                continue;
            };
            let sorted = self.sorted(&names);
            if sorted.iter().any(|name| !claimed.contains(name)) {
                // A removed item is not tried again: forget its dropped claims.
                lock(&self.dropped).retain(|(path, _)| names.iter().any(|name| name == name_of(path)));
                self.set_listed(sorted);
                return Ok(());
            }
            let mut watches = vec![changed];
            for name in &claimed {
                let path = zoolet_model::path::child(self.claims.as_str(), name);
                let (there, watch) = ask_watching(c, &Request::GetData { path, watch: true }).await?;
                if there.is_none() {
                    self.set_listed(sorted);
                    return Ok(());
                }
                watches.push(watch);
            }
            any_fired(c, &mut watches).await?;
            let names = children(c, self.path.text()).await?;
            self.set_listed(self.sorted(&names));
            return Ok(());
        }
    }

    fn set_listed(&self, names: Vec<String>) {
        *lock(&self.listed) = names.into();
    }

    fn sorted(&self, names: &Names) -> Vec<String> {
        let mut places: Vec<_> = names.iter().filter_map(|name| Some((self.place(name)?, name))).collect();
        places.sort_unstable();
        places.into_iter().map(|(_, name)| name.to_owned()).collect()
    }

    /// Returns an item's rank: its priority, then its number.
    ///
    /// `None` if the name is not that of an item of this queue.
    fn place(&self, name: &str) -> Option<(u8, u32)> {
        let number = crate::naming::number(name)?;
        let before = name.get(..name.len() - 10)?.strip_prefix("queue-")?;
        match (self.is_prioritized, before) {
            (false, "") => Some((0, number)),
            (true, digits) if digits.len() == 2 => Some((digits.parse().ok()?, number)),
            (false | true, _) => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An item that is being tried. Its name has left the list.
struct Attempt<'a, C: Coordinator> {
    items: &'a Items<C>,
    is_over: bool,
}

impl<C: Coordinator> Attempt<'_, C> {
    fn end(mut self) {
        self.is_over = true;
    }
}

impl<C: Coordinator> Drop for Attempt<'_, C> {
    fn drop(&mut self) {
        if !self.is_over {
            self.items.set_listed(Vec::new());
        }
    }
}

enum Tried<T> {
    Got(T),
    ByAnother,
    Gone,
}

/// An item that one consumer works on. Dropping it frees the item.
///
/// It borrows nothing, so it may move to another task.
#[derive(Debug)]
#[must_use = "dropping it returns the item to other consumers"]
pub struct Claim<C: Coordinator> {
    items: Arc<Items<C>>,
    item: Text,
    path: Text,
    guid: Guid,
    content: Bytes,
    /// The item's version, which counts its claims.
    version: i32,
    zxid: i64,
    is_over: bool,
}

impl<C: Coordinator> Claim<C> {
    fn made(mut self, content: Bytes, stat: &zoolet_model::Stat) -> Self {
        self.content = content;
        self.version = stat.version;
        self.zxid = stat.mzxid;
        self
    }

    /// Returns the item.
    pub fn item(&self) -> &Bytes {
        &self.content
    }

    /// Returns the name of the item's znode, which no other item of the queue has.
    pub fn name(&self) -> &str {
        name_of(&self.item)
    }

    /// Returns the number of claims of the item, this one included.
    ///
    /// A claim that was given back counts too. [Bury](Claim::bury) an item that kills each of its
    /// consumers.
    pub fn attempts(&self) -> u32 {
        self.version.unsigned_abs()
    }

    /// Returns the fencing token: the zxid of the claim.
    pub fn token(&self) -> FencingToken {
        FencingToken(self.zxid)
    }

    /// Removes the item as done, in one transaction with `also`.
    ///
    /// Put the writes of the item's results into `also`, so that the results and the removal happen
    /// together.
    ///
    /// # Errors
    /// - [`ErrorKind::GrantLost`] if the claim is over. Nothing was done, and another consumer may work on
    ///   the item.
    /// - [`ErrorKind::Refused`] with the server's answer to the first operation of `also` that failed.
    ///   Nothing was done.
    /// - Fails if a request is refused. Nothing was done.
    /// - [`ErrorKind::SessionLost`] because the session ended meanwhile: the operations may or may not have
    ///   been done.
    pub async fn complete(mut self, also: impl IntoIterator<Item = Op>) -> Result<(), Error> {
        self.check_session()?;
        let mut ops = self.end();
        ops.extend(also.into_iter().map(WriteOp::from));
        self.transact(&ops).await
    }

    /// Moves an item that cannot be done below `path-dead`, for inspection.
    ///
    /// # Errors
    /// As [`Claim::complete`].
    pub async fn bury(self) -> Result<(), Error> {
        self.bury_with([]).await
    }

    /// As [`Claim::bury`], in one transaction with `also`, such as a note of the reason.
    ///
    /// # Errors
    /// As [`Claim::complete`].
    pub async fn bury_with(mut self, also: impl IntoIterator<Item = Op>) -> Result<(), Error> {
        self.check_session()?;
        make_persistent(&self.items.coordinator, &self.items.dead).await?;
        let name = name_of(&self.item);
        let grave = zoolet_model::path::child(self.items.dead.as_str(), name);
        let mut ops = self.end();
        ops.push(create(grave, Some(self.content.clone()), CreateKind::Persistent, false));
        ops.extend(also.into_iter().map(WriteOp::from));
        self.transact(&ops).await
    }

    /// Returns the [`ENDING`] operations that end the claim.
    fn end(&self) -> Vec<WriteOp> {
        let delete = |path: &Text, version| WriteOp::Delete { path: path.clone(), version };
        // The version check fails if this claim was broken and another consumer has claimed the
        // item since.
        vec![delete(&self.path, -1), delete(&self.item, self.version)]
    }

    /// Returns [`ErrorKind::GrantLost`] if the session is over: the claim ended with it.
    fn check_session(&self) -> Result<(), Error> {
        if self.items.coordinator.state().is_over() {
            return Err(Error::at(ErrorKind::GrantLost(GrantEnd::Session), "complete the claim", &self.path));
        }
        Ok(())
    }

    async fn transact(&mut self, ops: &[WriteOp]) -> Result<(), Error> {
        match self.items.once.transact(ops).await? {
            Ok(()) => {
                self.is_over = true;
                Ok(())
            }
            Err((0, ErrorCode::NoNode) | (1, ErrorCode::NoNode | ErrorCode::BadVersion)) => {
                Err(Error::at(BROKEN, "complete the claim", &self.path))
            }
            Err((at, code)) => Err(Error::of_multi(ops, at, code).counted_from(ENDING)),
        }
    }
}

impl<C: Coordinator> Drop for Claim<C> {
    fn drop(&mut self) {
        if !self.is_over {
            // The next list has the item in its former place.
            self.items.set_listed(Vec::new());
            lock(&self.items.dropped).push((self.path.clone(), self.guid));
            // Each claim writes to its item, so the item's version tells claims apart.
            let (path, item) = (self.path.clone(), self.item.clone());
            self.items.coordinator.run_errand(match self.zxid {
                // No reply to the claim was seen.
                0 => Errand::find_and_delete_claim(path, item, self.guid),
                _ => Errand::delete_claim(path, item, self.guid),
            });
        }
    }
}
