//! Znodes that are kept in existence, and groups of them.
//!
//! # Guarantees
//! - While [`PersistentZnode::keep`] is polled and the session lives, the znode is created again
//!   each time another client deletes it.
//! - If an ephemeral of a former session is there, the call waits until it goes and then replaces
//!   it. A [member](Member) that came again has a larger incarnation.
//! - Dropping a [`PersistentZnode`] deletes its ephemeral, and never another one.
//!
//! # Does not guarantee
//! - That the znode outlives the session. For that, open another session and make another
//!   [`PersistentZnode`].
//! - That a member works: its znode shows only that its session lives.
//!
//! # Znodes
//! The path. A group also has an ephemeral below it for each member, with the member's data.
//!
//! # Failures
//! - **Another client deletes the znode**: it is created again.
//! - **Another [`PersistentZnode`] of the session is put at the same path**: it takes the place
//!   over. The first one comes back when the second has gone.
//! - **Another client's persistent znode is there**: its data is set, and it is not deleted in the
//!   end.
//! - **The session ends**: `keep` ends with an error.
//!
//! # Example
//! ```
//! use zoolet::recipes::Group;
//! use zoolet::{Coordinator, Error, Path};
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

use crate::ask::{ask, ask_watching, bytes, connected, create, data, fired, is_disconnection};
use crate::barrier::make_parent;
use crate::line::wait_gone;
use crate::mutation::{Mutation, is_on};
use crate::{ChildrenCache, Coordinator, Errand, Error, FencingToken};
use bytes::Bytes;
use zoolet_model::{
    CreateKind, ErrorCode, EventKind, IntoData, OpResult, Path, Reply, Request, RequestError, Stat, Text, WriteOp,
    first_failure,
};

/// A znode that is created again when another client deletes it.
///
/// This holds while [`PersistentZnode::keep`] is polled and the session lives. When the value is
/// dropped, an ephemeral is deleted and any other znode stays.
#[derive(Debug)]
pub struct PersistentZnode<C: Coordinator> {
    coordinator: C,
    path: Path,
    content: Bytes,
    kind: CreateKind,
    own: Own,
}

/// The state of the znode that is to be deleted on drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Own {
    /// No znode was created.
    Never,
    /// A create is in flight, and its zxid is unknown.
    UnderWay,
    /// The znode was created with this zxid.
    Made(i64),
}

impl<C: Coordinator> PersistentZnode<C> {
    /// Returns a znode for `path`. It is ephemeral unless [`PersistentZnode::kind`] says otherwise.
    pub fn new(coordinator: C, path: &Path, content: impl IntoData) -> Self {
        Self { coordinator, path: path.clone(), content: bytes(content), kind: CreateKind::Ephemeral, own: Own::Never }
    }

    /// Sets the kind of the znode.
    #[must_use]
    pub fn kind(mut self, kind: CreateKind) -> Self {
        self.kind = kind;
        self
    }

    /// Creates the znode if it does not exist, and sets its data.
    ///
    /// If an ephemeral of another session is there, the call waits until it goes. An ephemeral that
    /// another [`PersistentZnode`] of this session has created is replaced; that one then waits
    /// until this one goes.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
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
                Ok(_) => return Err(Error::unexpected()),
                Err(RequestError::Refused(ErrorCode::NodeExists)) => {
                    let Some((content, stat)) = data(&c, self.path.text()).await? else { continue };
                    let is_of_this_session = stat.ephemeral_owner == c.session().0;
                    if stat.ephemeral_owner != 0 && !is_of_this_session {
                        // Most likely it is of the client's former session, and goes with it.
                        wait_gone(&c, self.path.text()).await?;
                        continue;
                    }
                    if is_of_this_session && before != Own::Made(stat.czxid) {
                        match before {
                            Own::Made(_) if !is_doubtful => {
                                // A later [`PersistentZnode`] has replaced the znode. If this one
                                // is dropped now, it must delete nothing.
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
                Err(RequestError::Refused(ErrorCode::NoNode)) => {
                    // No znode was created. If the parent cannot be created either, nothing is to
                    // be cleared away.
                    if !is_doubtful {
                        self.own = before;
                    }
                    make_parent(&c, &self.path).await?;
                    self.own = Own::UnderWay;
                }
                Err(error) if is_disconnection(error) => {
                    is_doubtful |= error == RequestError::ConnectionLoss;
                    connected(&c).await?;
                }
                Err(error) => {
                    if matches!(error, RequestError::Refused(_)) && !is_doubtful {
                        // No znode was created. An errand for each attempt would pile up if the
                        // server refuses again and again.
                        self.own = before;
                    }
                    return Err(Error::at(error, "put", self.path.text()));
                }
            }
        }
    }

    /// Replaces an ephemeral of this session with a new one; `None` if it was changed meanwhile.
    ///
    /// The [`PersistentZnode`] that created the old one would delete it when dropped.
    async fn replace(&self, make: &WriteOp, version: i32) -> Result<Option<Stat>, Error> {
        let delete = WriteOp::Delete { path: self.path.text().clone(), version };
        // After a lost reply the retry replaces the znode once more.
        let Reply::Multi(results) = ask(&self.coordinator, &Request::Multi(vec![delete, make.clone()])).await? else {
            return Err(Error::unexpected());
        };
        match (first_failure(&results), results.last()) {
            (None, Some(OpResult::CreateStat(_, stat))) => Ok(Some(*stat)),
            // Apache ZooKeeper gives no stat for a create in a multi, up to 3.8.0 at least.
            (None, _) => crate::ask::stat(&self.coordinator, self.path.text()).await,
            (Some((0, ErrorCode::NoNode | ErrorCode::BadVersion)), _) => Ok(None),
            (Some((_, code)), _) => Err(Error::at(code, "put", self.path.text())),
        }
    }

    /// Sets other data, which is also used when the znode is created again.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn set(&mut self, content: impl IntoData) -> Result<Stat, Error> {
        self.content = bytes(content);
        // Without a znode of its own, the one there may be of the client's former session.
        let Own::Made(czxid) = self.own else { return self.put().await };
        match self.write().await? {
            Some(stat) if stat.czxid == czxid => Ok(stat),
            Some(_) | None => self.put().await,
        }
    }

    /// Sets the data of the znode; `None` if it does not exist.
    async fn write(&self) -> Result<Option<Stat>, Error> {
        let data = Some(self.content.clone());
        let op = WriteOp::SetData { path: self.path.text().clone(), data, version: -1 };
        match ask(&self.coordinator, &Request::Write(op)).await {
            Ok(Reply::Stat(stat)) => Ok(Some(stat)),
            Ok(_) => Err(Error::unexpected()),
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the znode, and again after each deletion, until the session ends. Cancel-safe.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused. To go on, open another
    /// session and make another [`PersistentZnode`].
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

/// A group, whose members are the children of a znode.
///
/// Clones are handles to the same group.
#[derive(Clone, Debug)]
pub struct Group<C: Coordinator> {
    coordinator: C,
    path: Path,
}

/// A member of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Member {
    /// The member's name in the group.
    pub name: Text,
    /// The member's data; `None` if it has none.
    pub content: Option<Bytes>,
    /// The zxid at which the member's znode was created. It grows each time the member comes again.
    pub incarnation: FencingToken,
}

impl<C: Coordinator> Group<C> {
    /// Returns the group at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { coordinator, path: path.clone() }
    }

    /// Returns a membership with this name.
    ///
    /// It begins with [`PersistentZnode::put`] or [`PersistentZnode::keep`]. It ends when it is
    /// dropped or its session ends.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName) if no znode can have that name.
    pub fn member(&self, name: &str, content: impl IntoData) -> Result<PersistentZnode<C>, Error> {
        let path = crate::ask::named(&self.path, name)?;
        Ok(PersistentZnode::new(self.coordinator.clone(), &path, content))
    }

    /// Returns the present members, in order of their names.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
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

    /// Follows the members: which come, change their data, and go.
    pub fn watch(&self) -> ChildrenCache<C> {
        ChildrenCache::new(self.coordinator.clone(), &self.path)
    }
}
