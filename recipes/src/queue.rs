//! Queues: producers put items in, each item is worked on by one consumer, in order.
//!
//! These are small work queues: every consumer lists all items, so a queue has a bound ([`ITEMS_MAX`]).
//!
//! # Guarantees
//! - An item that was put in is there once, also when the reply is lost.
//! - [`Queue::take`]: at most one consumer gets it, and nobody a second time (at most once).
//! - [`Queue::claim`]: one consumer at a time works on it, and it stays until [`Claim::complete`] (at least once). Completing it and what came of it are
//!   one transaction, so that what is in the ensemble happens once.
//! - Nobody takes an item that somebody works on.
//! - Items are tried in the order in which they were put in; in a [`PriorityQueue`] lower priorities first. A claim that is given up puts its item back
//!   where it was, and consumers come to it with their next list: when the last one is used up, or with priorities each time.
//! - Dropping a `take` or `claim` keeps the order: the next call on the same [`Queue`] value tries
//!   the same item first, unless the dropped `take` removed it.
//! - [`Claim::attempts`] counts, so that an item that kills whoever works on it can be [buried](Claim::bury).
//!
//! # Does not guarantee
//! - With several consumers, that items are *finished* in order.
//! - That an item which was taken and not claimed is worked on: it is lost if its consumer dies.
//! - Anything against whoever may write below the path and `path-claims`: an item with a child can be neither taken nor completed (NotEmpty), and a
//!   foreign znode in place of a claim keeps its item from everybody.
//! - No herd: an item put into an empty queue wakes every consumer that waits, and one gets it, as in the published recipe.
//! - The exact bound: those who put in at the same moment may exceed it by as many as they are.
//!
//! # Znodes
//! The path, and below it `queue-NNNNNNNNNN`, or `queue-YYNNNNNNNNNN` with the priority in two digits: persistent, or as ephemerals of their producer
//! ([`Lifetime::Producer`], as published). `path-claims` has an ephemeral for each claimed item, also for the moment in which one is taken, and is what
//! Curator's `lockPath` is; `path-dead` the buried ones; `path-receipts` an ephemeral for each participant by which a lost reply is resolved.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the reply to put, take or complete is lost | it is found out whether it was done |
//! | a consumer dies with a claim | the item is there for others when its session ends |
//! | a claim is broken, or its session ended | [`Claim::complete`] is [`Error::Lost`], and nothing was done |
//! | a claim is broken and given up at once | it ends nobody else's: its end is one transaction with the check that nobody has claimed the item since |
//! | a future is dropped in [`Queue::take`] | the first item may be lost; use [`Queue::claim`] where that matters |
//! | a future is dropped in [`Queue::claim`] | its item is there as before; the claim, if it was made, is cleared away first |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, Queue};
//!
//! async fn work<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let queue = Queue::new(session, &Path::from_static("/jobs"))?;
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
    any_fired, ask_watching, children, connected, create, data, fired, is_disconnection, make_container,
    make_persistent, stat,
};
use crate::mutation::{Mutation, is_on};
use crate::naming::name_of;
use crate::once::Once;
use crate::{Coordinator, Errand, Error, FencingToken, Guid};
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use zoolet_model::{CreateKind, ErrorCode, Names, OpResult, Path, Reply, Request, Text, WriteOp};

/// Items that a queue takes unless it is told otherwise: clients list all of them, and 10,000 break every queue on ZooKeeper.
pub const ITEMS_MAX: u32 = 1_000;

/// How long an item that nobody took lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lifetime {
    /// Until it is taken.
    #[default]
    Persistent,
    /// As long as the session of its producer, as in the published recipe.
    Producer,
}

/// An item's place before the others: 0 to 99, lower ones first, as in UNIX.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority(u8);

impl Priority {
    /// `None` beyond 99: two digits of the name are for it.
    pub const fn new(priority: u8) -> Option<Self> {
        if priority < 100 { Some(Self(priority)) } else { None }
    }
}

/// A queue in the order in which items were put in.
#[derive(Debug)]
pub struct Queue<C: Coordinator>(Items<C>);

/// A queue in the order of priorities, and of items of the same priority in the order in which they were put in.
#[derive(Debug)]
pub struct PriorityQueue<C: Coordinator>(Items<C>);

/// What both are.
#[derive(Debug)]
struct Items<C: Coordinator> {
    coordinator: C,
    path: Path,
    claims: Path,
    dead: Path,
    lifetime: Lifetime,
    items_max: u32,
    once: Once<C>,
    /// Names that were listed and not tried yet.
    listed: Mutex<VecDeque<String>>,
    /// Claims that were dropped, and whose znodes may still stand until the session has deleted them.
    dropped: Mutex<Vec<(Text, Guid)>>,
    is_prioritized: bool,
}

impl<C: Coordinator> Queue<C> {
    /// The queue at `path`. Claims are below `path-claims`, buried items below `path-dead`.
    ///
    /// # Errors
    /// BadArguments for `/`.
    pub fn new(coordinator: C, path: &Path) -> Result<Self, Error> {
        Items::new(coordinator, path, false).map(Self)
    }

    /// With items of another lifetime.
    #[must_use]
    pub fn lifetime(self, lifetime: Lifetime) -> Self {
        Self(Items { lifetime, ..self.0 })
    }

    /// With another bound than [`ITEMS_MAX`].
    #[must_use]
    pub fn items_max(self, items_max: u32) -> Self {
        Self(Items { items_max, ..self.0 })
    }

    /// Puts an item in, once, also when the reply is lost.
    ///
    /// # Errors
    /// [`Error::Full`] at the bound, which those who put in at the same moment may exceed; [`Error::Exhausted`]; the session's.
    pub async fn put(&self, item: impl Into<Bytes>) -> Result<(), Error> {
        self.0.put("queue-", item.into()).await
    }

    /// Waits for the first item and takes it out: whoever gets it is the only one, and if he dies with it, it is lost. Dropping the future leaves
    /// nothing behind; one that was dropped while it took an item may have taken it.
    ///
    /// # Errors
    /// The session's.
    pub async fn take(&self) -> Result<Bytes, Error> {
        self.0.take().await
    }

    /// Waits for the first item that nobody works on, and claims it: it stays in the queue until it is done, and is there for others again if the
    /// claim is dropped or its session ends.
    ///
    /// # Errors
    /// The session's.
    pub async fn claim(&self) -> Result<Claim<'_, C>, Error> {
        self.0.claim().await
    }

    /// Items in the queue, claimed ones among them.
    ///
    /// # Errors
    /// The session's.
    pub async fn size(&self) -> Result<u32, Error> {
        self.0.size().await
    }
}

impl<C: Coordinator> PriorityQueue<C> {
    /// As [`Queue::new`].
    ///
    /// # Errors
    /// As there.
    pub fn new(coordinator: C, path: &Path) -> Result<Self, Error> {
        Items::new(coordinator, path, true).map(Self)
    }

    /// As [`Queue::lifetime`].
    #[must_use]
    pub fn lifetime(self, lifetime: Lifetime) -> Self {
        Self(Items { lifetime, ..self.0 })
    }

    /// As [`Queue::items_max`].
    #[must_use]
    pub fn items_max(self, items_max: u32) -> Self {
        Self(Items { items_max, ..self.0 })
    }

    /// As [`Queue::put`].
    ///
    /// # Errors
    /// As there.
    pub async fn put(&self, priority: Priority, item: impl Into<Bytes>) -> Result<(), Error> {
        self.0.put(&format!("queue-{:02}", priority.0), item.into()).await
    }

    /// As [`Queue::take`].
    ///
    /// # Errors
    /// As there.
    pub async fn take(&self) -> Result<Bytes, Error> {
        self.0.take().await
    }

    /// As [`Queue::claim`].
    ///
    /// # Errors
    /// As there.
    pub async fn claim(&self) -> Result<Claim<'_, C>, Error> {
        self.0.claim().await
    }

    /// As [`Queue::size`].
    ///
    /// # Errors
    /// As there.
    pub async fn size(&self) -> Result<u32, Error> {
        self.0.size().await
    }
}

impl<C: Coordinator> Items<C> {
    fn new(coordinator: C, path: &Path, is_prioritized: bool) -> Result<Self, Error> {
        let beside = |suffix: &str| {
            let path = if path.as_str() == "/" { None } else { Some(format!("{path}{suffix}")) };
            Path::new(path.unwrap_or_default().into()).map_err(|code| Error::from(zoolet_model::Error::Refused(code)))
        };
        Ok(Self {
            claims: beside("-claims")?,
            dead: beside("-dead")?,
            once: Once::new(coordinator.clone(), path),
            coordinator,
            path: path.clone(),
            lifetime: Lifetime::default(),
            items_max: ITEMS_MAX,
            listed: Mutex::new(VecDeque::new()),
            dropped: Mutex::new(Vec::new()),
            is_prioritized,
        })
    }

    fn child(&self, name: &str) -> Text {
        zoolet_model::path::child(self.path.as_str(), name)
    }

    async fn size(&self) -> Result<u32, Error> {
        let stat = stat(&self.coordinator, self.path.text()).await?;
        Ok(stat.map_or(0, |stat| stat.num_children.unsigned_abs()))
    }

    async fn put(&self, prefix: &str, item: Bytes) -> Result<(), Error> {
        let kind = match self.lifetime {
            Lifetime::Persistent => CreateKind::Persistent,
            Lifetime::Producer => CreateKind::Ephemeral,
        };
        let op = create(self.child(prefix), Some(item), kind, true);
        loop {
            if self.size().await? >= self.items_max {
                return Err(Error::Full);
            }
            match self.once.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => return Ok(()),
                Err((_, ErrorCode::NoNode)) => make_persistent(&self.coordinator, &self.path).await?,
                // The parent gives the same number again and again.
                Err((_, ErrorCode::NodeExists)) => return Err(Error::Exhausted),
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
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

    async fn claim(&self) -> Result<Claim<'_, C>, Error> {
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

    /// A more urgent item may have come since the list.
    fn begin(&self) {
        if self.is_prioritized {
            self.set_listed(Vec::new());
        }
    }

    /// Tries an item. If that is dropped or fails, the next attempt lists the items anew and finds this one where it was.
    async fn attempt<T>(&self, tries: impl Future<Output = Result<Tried<T>, Error>>) -> Result<Tried<T>, Error> {
        let attempt = Attempt { items: self, is_over: is_on(Mutation::DroppedAttemptForgotten) };
        let tried = tries.await?;
        attempt.end();
        Ok(tried)
    }

    /// A claim that ends with the item, so that nobody takes what another one works on.
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
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    async fn try_claim(&self, name: &str) -> Result<Tried<Claim<'_, C>>, Error> {
        let c = &self.coordinator;
        let guid = Guid::from_random_bits(c.random_bits());
        let content = Bytes::from(guid.to_string());
        // From here on, so that the claim goes also if its reply is lost.
        let mut claim = Claim {
            items: self,
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
                // The item's version counts how often it was claimed.
                WriteOp::SetData { path: claim.item.clone(), data: item.clone(), version: stat.version },
            ];
            claim.is_over = false;
            let results = match c.submit(Request::Multi(ops)).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(crate::ask::UNEXPECTED),
                Err(error) if is_disconnection(error) => {
                    is_doubtful |= error == zoolet_model::Error::ConnectionLoss;
                    connected(c).await?;
                    continue;
                }
                Err(error) => {
                    // What was refused is not there.
                    claim.is_over = !is_doubtful && matches!(error, zoolet_model::Error::Refused(_));
                    return Err(error.into());
                }
            };
            let failure = zoolet_model::first_failure(&results);
            claim.is_over = failure.is_some() && !is_doubtful;
            match failure {
                None => {
                    let Some(OpResult::SetData(stat)) = results.last() else { return Err(crate::ask::UNEXPECTED) };
                    lock(&self.dropped).retain(|(dropped, _)| *dropped != claim.path);
                    return Ok(Tried::Got(claim.made(item.unwrap_or_default(), stat)));
                }
                Some((0, ErrorCode::NodeExists)) => {
                    // The item before its claim: if that is the own one, whose reply was lost, nobody else has claimed it in between.
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
                Some((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Waits until the claim at this path is gone, if this queue has dropped it: nobody works on its item. `false` when it is another one.
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

    /// The next name to try.
    fn next_listed(&self) -> Option<String> {
        lock(&self.listed).pop_front()
    }

    /// Lists the items; if there is none that was not found claimed, waits until there are others or a claim is gone, and lists again.
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
                // Claims on items that are gone are gone as well.
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

    /// Where an item stands: by priority, then by number. `None` for what is no item of this queue.
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

/// An item that is being tried: its name is not on the list.
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

/// An item that one consumer works on. Dropped, it is there for others again.
#[derive(Debug)]
#[must_use = "dropped, the item is there for others again"]
pub struct Claim<'a, C: Coordinator> {
    items: &'a Items<C>,
    item: Text,
    path: Text,
    guid: Guid,
    content: Bytes,
    /// The item's: it counts claims.
    version: i32,
    zxid: i64,
    is_over: bool,
}

impl<C: Coordinator> Claim<'_, C> {
    fn made(mut self, content: Bytes, stat: &zoolet_model::Stat) -> Self {
        self.content = content;
        self.version = stat.version;
        self.zxid = stat.mzxid;
        self
    }

    /// The item.
    pub fn item(&self) -> &Bytes {
        &self.content
    }

    /// How often it was claimed, this time included: an item that kills whoever works on it is one to [bury](Claim::bury).
    pub fn attempts(&self) -> u32 {
        self.version.unsigned_abs()
    }

    /// The fencing token: the zxid of the claim.
    pub fn token(&self) -> FencingToken {
        FencingToken(self.zxid)
    }

    /// The item is done, and taken out: in one transaction with `also`, so that what came of it and its end happen together.
    ///
    /// # Errors
    /// [`Error::Lost`] when the claim is over, and somebody else may work on the item; then nothing was done. The server's answer to the first
    /// operation of `also` that failed; the session's.
    pub async fn complete(mut self, also: impl IntoIterator<Item = WriteOp>) -> Result<(), Error> {
        let mut ops = self.end();
        ops.extend(also);
        self.transact(&ops).await
    }

    /// The item cannot be done: it is moved below `path-dead`, for people to look at.
    ///
    /// # Errors
    /// As [`Claim::complete`].
    pub async fn bury(mut self) -> Result<(), Error> {
        make_persistent(&self.items.coordinator, &self.items.dead).await?;
        let name = name_of(&self.item);
        let grave = zoolet_model::path::child(self.items.dead.as_str(), name);
        let mut ops = self.end();
        ops.push(create(grave, Some(self.content.clone()), CreateKind::Persistent, false));
        self.transact(&ops).await
    }

    fn end(&self) -> Vec<WriteOp> {
        let delete = |path: &Text, version| WriteOp::Delete { path: path.clone(), version };
        // If the claim was broken and somebody else has claimed the item since, the claim that is there is not this one.
        vec![delete(&self.path, -1), delete(&self.item, self.version)]
    }

    async fn transact(&mut self, ops: &[WriteOp]) -> Result<(), Error> {
        let done = self.items.once.transact(ops).await;
        // The claim was the session's.
        if done.is_err() && self.items.coordinator.state().is_over() {
            return Err(Error::Lost);
        }
        match done? {
            Ok(()) => {
                self.is_over = true;
                Ok(())
            }
            Err((0, ErrorCode::NoNode) | (1, ErrorCode::NoNode | ErrorCode::BadVersion)) => Err(Error::Lost),
            Err((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }
}

impl<C: Coordinator> Drop for Claim<'_, C> {
    fn drop(&mut self) {
        if !self.is_over {
            // The next list has it where it was.
            self.items.set_listed(Vec::new());
            lock(&self.items.dropped).push((self.path.clone(), self.guid));
            // Each claim sets the item's data.
            let (path, item) = (self.path.clone(), self.item.clone());
            self.items.coordinator.run_errand(match self.zxid {
                // Nobody has seen the answer.
                0 => Errand::find_and_delete_claim(path, item, self.guid),
                _ => Errand::delete_claim(path, item, self.guid),
            });
        }
    }
}
