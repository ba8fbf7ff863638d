//! Znodes that are kept there, and groups of them.
//!
//! # Guarantees
//! - While [`PersistentZnode::keep`] is polled and the session lives, the znode is made again each time that somebody deleted it.
//! - An ephemeral of a former session is waited for, and replaced when it goes; a [member](Member) that came again has a larger incarnation.
//! - Dropped, an ephemeral goes; and only if it is the own one.
//!
//! # Does not guarantee
//! - That it outlives the session: whoever wants that opens another session and makes another of these.
//! - That a member works: it says that its session lives.
//!
//! # Znodes
//! The path; of a group the path, and an ephemeral below it for each member, with what it says of itself for its data.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | somebody deletes it | it is made again |
//! | another one of the same session is put at the same path | it takes the place over; this one comes back when that has gone |
//! | a persistent znode of others is there | its data is set; it is not deleted in the end |
//! | the session ends | `keep` ends with an error |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, Group};
//!
//! async fn join<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let group = Group::new(session, &Path::from_static("/sensors"));
//!     let mut own = group.member("thermometer-4", "21 degrees")?;
//!     own.put().await?;
//!     for member in group.members().await? {
//!         println!("{} since {}", member.name, member.incarnation);
//!     }
//!     match own.keep().await? {}
//! }
//! ```

use crate::ask::{UNEXPECTED, ask, ask_watching, connected, create, data, fired, is_disconnection};
use crate::barrier::make_parent;
use crate::line::wait_gone;
use crate::mutation::{Mutation, is_on};
use crate::{ChildrenCache, Coordinator, Errand, Error, FencingToken};
use bytes::Bytes;
use zoolet_model::{
    CreateKind, ErrorCode, EventKind, OpResult, Path, Reply, Request, Stat, Text, WriteOp, first_failure,
};

/// A znode that is made again when somebody deletes it, for as long as [`PersistentZnode::keep`] is polled and the session lives. Dropped, it stays, or
/// goes if it is ephemeral.
#[derive(Debug)]
pub struct PersistentZnode<C: Coordinator> {
    coordinator: C,
    path: Path,
    content: Bytes,
    kind: CreateKind,
    own: Own,
}

/// What is known of the znode that is to go when its owner is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Own {
    /// None was made.
    Never,
    /// One is being made, and nobody knows its zxid.
    UnderWay,
    /// It was created with this zxid.
    Made(i64),
}

impl<C: Coordinator> PersistentZnode<C> {
    /// Of the znode at `path`, ephemeral unless it is told otherwise.
    pub fn new(coordinator: C, path: &Path, content: impl Into<Bytes>) -> Self {
        Self { coordinator, path: path.clone(), content: content.into(), kind: CreateKind::Ephemeral, own: Own::Never }
    }

    /// Of another kind.
    #[must_use]
    pub fn kind(mut self, kind: CreateKind) -> Self {
        self.kind = kind;
        self
    }

    /// Makes the znode if it is not there, or is an ephemeral of another session, which is waited for; then sets its data. An ephemeral that another
    /// one of this session has made is replaced, and that one then waits until this one goes.
    ///
    /// # Errors
    /// The session's.
    pub async fn put(&mut self) -> Result<Stat, Error> {
        let c = self.coordinator.clone();
        let make = create(self.path.text().clone(), Some(self.content.clone()), self.kind, false);
        let before = std::mem::replace(&mut self.own, Own::UnderWay);
        let mut is_doubtful = before == Own::UnderWay;
        loop {
            match c.submit(Request::Write(make.clone())).await {
                Ok(Reply::PathStat(_, stat)) => {
                    self.own = Own::Made(stat.czxid);
                    return Ok(stat);
                }
                Ok(_) => return Err(UNEXPECTED),
                Err(zoolet_model::Error::Refused(ErrorCode::NodeExists)) => {
                    let Some((content, stat)) = data(&c, self.path.text()).await? else { continue };
                    let is_of_this_session = stat.ephemeral_owner == c.session().0;
                    if stat.ephemeral_owner != 0 && !is_of_this_session {
                        // The own former session's, most likely: it goes with that.
                        wait_gone(&c, self.path.text()).await?;
                        continue;
                    }
                    if is_of_this_session && before != Own::Made(stat.czxid) {
                        match before {
                            Own::Made(_) if !is_doubtful => {
                                // A later one has replaced it. Nothing there is its own, whenever it is dropped.
                                self.own = before;
                                wait_gone(&c, self.path.text()).await?;
                                self.own = Own::UnderWay;
                            }
                            Own::Never | Own::UnderWay | Own::Made(_) => {
                                if let Some(stat) = self.replace(&make, stat.version).await? {
                                    self.own = Own::Made(stat.czxid);
                                    return Ok(stat);
                                }
                            }
                        }
                        continue;
                    }
                    self.own = Own::Made(stat.czxid);
                    if content.as_ref() == Some(&self.content) {
                        return Ok(stat);
                    }
                    if let Some(stat) = self.write().await? {
                        return Ok(stat);
                    }
                    self.own = Own::UnderWay;
                }
                Err(zoolet_model::Error::Refused(ErrorCode::NoNode)) => {
                    // None was made. If the parent cannot be made either, nothing is to be cleared away.
                    if !is_doubtful {
                        self.own = before;
                    }
                    make_parent(&c, &self.path).await?;
                    self.own = Own::UnderWay;
                }
                Err(error) if is_disconnection(error) => {
                    is_doubtful |= error == zoolet_model::Error::ConnectionLoss;
                    connected(&c).await?;
                }
                Err(error) => {
                    if matches!(error, zoolet_model::Error::Refused(_)) && !is_doubtful {
                        // None was made, and nothing is to be cleared away: what a server refuses again and again would be more with each attempt.
                        self.own = before;
                    }
                    return Err(error.into());
                }
            }
        }
    }

    /// Makes the znode anew where this session has one already: whoever made that would delete it when he is dropped. `None` when something came between.
    async fn replace(&self, make: &WriteOp, version: i32) -> Result<Option<Stat>, Error> {
        let delete = WriteOp::Delete { path: self.path.text().clone(), version };
        // A lost reply is found out by trying again: it is replaced once more.
        let Reply::Multi(results) = ask(&self.coordinator, &Request::Multi(vec![delete, make.clone()])).await? else {
            return Err(UNEXPECTED);
        };
        match (first_failure(&results), results.last()) {
            (None, Some(OpResult::CreateStat(_, stat))) => Ok(Some(*stat)),
            // Apache ZooKeeper has no stat for it inside a multi, up to 3.8.0 at least.
            (None, _) => crate::ask::stat(&self.coordinator, self.path.text()).await,
            (Some((0, ErrorCode::NoNode | ErrorCode::BadVersion)), _) => Ok(None),
            (Some((_, code)), _) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }

    /// Sets other data, which is also that of the znode when it is made again.
    ///
    /// # Errors
    /// The session's.
    pub async fn set(&mut self, content: impl Into<Bytes>) -> Result<Stat, Error> {
        self.content = content.into();
        match self.write().await? {
            Some(stat) => Ok(stat),
            None => self.put().await,
        }
    }

    /// `None` when there is no znode.
    async fn write(&self) -> Result<Option<Stat>, Error> {
        let data = Some(self.content.clone());
        let op = WriteOp::SetData { path: self.path.text().clone(), data, version: -1 };
        match ask(&self.coordinator, &Request::Write(op)).await {
            Ok(Reply::Stat(stat)) => Ok(Some(stat)),
            Ok(_) => Err(UNEXPECTED),
            Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes it, and makes it again each time that it was deleted; ends only with the session. Cancel-safe.
    ///
    /// # Errors
    /// The session's. Whoever wants the znode to outlive the session opens another one and makes another of these.
    pub async fn keep(&mut self) -> Result<std::convert::Infallible, Error> {
        loop {
            self.put().await?;
            let request = Request::GetData { path: self.path.text().clone(), watch: true };
            loop {
                let (there, watch) = ask_watching(&self.coordinator, &request).await?;
                if there.is_none() || fired(&self.coordinator, watch).await?.kind == EventKind::NodeDeleted {
                    break;
                }
            }
        }
    }
}

impl<C: Coordinator> Drop for PersistentZnode<C> {
    fn drop(&mut self) {
        let (path, session) = (self.path.text().clone(), self.coordinator.session());
        let errand = match self.own {
            _ if self.kind != CreateKind::Ephemeral => None,
            Own::Never => None,
            Own::UnderWay | Own::Made(_) if is_on(Mutation::MemberDeletedBlindly) => Some(Errand::delete(path)),
            Own::UnderWay => Some(Errand::find_and_delete_owned(path, session)),
            Own::Made(czxid) => Some(Errand::delete_owned(path, session, czxid)),
        };
        if let Some(errand) = errand {
            self.coordinator.run_errand(errand);
        }
    }
}

/// A group: its members are the children of a znode.
#[derive(Debug)]
pub struct Group<C: Coordinator> {
    coordinator: C,
    path: Path,
}

/// One who is in a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name in the group.
    pub name: Text,
    /// What it says of itself.
    pub content: Option<Bytes>,
    /// Larger each time that the member came again: the zxid of its coming.
    pub incarnation: FencingToken,
}

impl<C: Coordinator> Group<C> {
    /// The group at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { coordinator, path: path.clone() }
    }

    /// A membership, which begins when it is put or kept, and ends when it is dropped or its session ends.
    ///
    /// # Errors
    /// BadArguments for a name that no znode can have.
    pub fn member(&self, name: &str, content: impl Into<Bytes>) -> Result<PersistentZnode<C>, Error> {
        let path = crate::ask::named(&self.path, name)?;
        Ok(PersistentZnode::new(self.coordinator.clone(), &path, content))
    }

    /// Who is in it now, by name.
    ///
    /// # Errors
    /// The session's.
    pub async fn members(&self) -> Result<Vec<Member>, Error> {
        let mut members = Vec::new();
        for name in crate::ask::children(&self.coordinator, self.path.text()).await?.iter() {
            let found = data(&self.coordinator, &zoolet_model::path::child(self.path.as_str(), name)).await?;
            members.extend(found.map(|(content, stat)| Member {
                name: name.into(),
                content,
                incarnation: FencingToken(stat.czxid),
            }));
        }
        Ok(members)
    }

    /// Who comes and goes.
    ///
    /// # Errors
    /// As [`ChildrenCache::new`].
    pub async fn watch(&self) -> Result<ChildrenCache<C>, Error> {
        ChildrenCache::new(self.coordinator.clone(), &self.path).await
    }
}
