//! A name service: unique names, and the data registered under them.
//!
//! # Guarantees
//! - A name is given to one participant only, even if a reply is lost.
//! - [`NameService::unique`] gives a name that was never given before.
//! - A [claimed](NameService::claim) name is free again when its session ends or the registration is
//!   dropped. A [bound](NameService::bind) name stays.
//!
//! # Does not guarantee
//! - That a registered service is present: a name only leads to the registered data.
//!
//! # Znodes
//! A path for each name, and its ancestors. So registries with other layouts can be read and
//! written unchanged. Dubbo's is one: `/dubbo/<service>/providers/<encoded URL>`, ephemerals, with
//! a watch on the children. `root-receipts` has an ephemeral for each participant, which resolves
//! lost replies.
//!
//! # Failures
//! - **A reply is lost**: the call finds out whether the name was given.
//! - **Another client deletes the name at once**: [`ErrorKind::Broken`].
//! - **The session is suspended**: claimed names stay; requests are repeated at the next server.
//! - **The session ends**: claimed names are free and bound names stay. Waiting calls return the
//!   session's error. Claim again with another session.
//! - **A registration is dropped without a connection**: the name is free after the reconnect, or
//!   when the session ends.
//!
//! # Example
//! ```
//! use zoolet::recipes::NameService;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn register<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let names = NameService::new(session, &Path::from_static("/services"));
//!     let Some(name) = names.claim("camera/1", "http://10.0.3.11").await? else { return Ok(()) };
//!     println!("{:?}", names.resolve("camera/1").await?);
//!     drop(name);
//!     Ok(())
//! }
//! ```

use crate::ask::{bytes, create, data};
use crate::barrier::make_parent;
use crate::mutation::{Mutation, is_on};
use crate::once::Once;
use crate::{Coordinator, Errand, Error, ErrorKind, ZnodeCache};
use bytes::Bytes;
use zoolet_model::{CreateKind, ErrorCode, IntoData, Path, Text};

/// Names below one znode.
///
/// A name is a path: `door/3` is below `door`. `providers/http%3A%2F%2Fgw-a` is a name too, so
/// registries of other programs can be read and written unchanged.
#[derive(Debug)]
pub struct NameService<C: Coordinator> {
    coordinator: C,
    root: Path,
    once: Once<C>,
}

/// A name that this session has claimed.
///
/// The name is free again when this is dropped or the session ends.
#[derive(Debug)]
#[must_use = "dropping it frees the name"]
pub struct Registration<C: Coordinator> {
    coordinator: C,
    path: Text,
    /// `None` until the new znode's czxid has been read.
    czxid: Option<i64>,
}

impl<C: Coordinator> NameService<C> {
    /// Returns the names below `root`.
    pub fn new(coordinator: C, root: &Path) -> Self {
        Self { once: Once::new(coordinator.clone(), root), coordinator, root: root.clone() }
    }

    fn path(&self, name: &str) -> Result<Path, Error> {
        self.root.join(name).map_err(|_| Error::at(ErrorKind::InvalidName, "use the name", &name.into()))
    }

    /// Registers a name for good; returns false if it is taken.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] if no znode can have the name. Fails if the session ends or a
    /// request is refused.
    pub async fn bind(&self, name: &str, content: impl IntoData) -> Result<bool, Error> {
        let path = self.path(name)?;
        let op = create(path.text().clone(), Some(bytes(content)), CreateKind::Persistent, false);
        loop {
            match self.once.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => return Ok(true),
                Err((_, ErrorCode::NodeExists)) => return Ok(false),
                Err((_, ErrorCode::NoNode)) => make_parent(&self.coordinator, &path).await?,
                Err((_, code)) => return Err(Error::at(code, "register at", self.root.text())),
            }
        }
    }

    /// Claims a name for this session; `None` if it is taken.
    ///
    /// # Errors
    /// - [`ErrorKind::Broken`] if another client deletes the name at once.
    /// - [`ErrorKind::InvalidName`] if no znode can have the name.
    /// - Fails if the session ends or a request is refused.
    pub async fn claim(&self, name: &str, content: impl IntoData) -> Result<Option<Registration<C>>, Error> {
        let path = self.path(name)?;
        let op = create(path.text().clone(), Some(bytes(content)), CreateKind::Ephemeral, false);
        loop {
            // If the future is dropped, the name is deleted only if this transaction created it:
            // another registration of the same session may have it.
            match self.once.transact_or_undo(std::slice::from_ref(&op), Some(path.text().clone())).await? {
                Ok(()) => {
                    let coordinator = self.coordinator.clone();
                    let mut registration = Registration { coordinator, path: path.text().clone(), czxid: None };
                    let own = self.coordinator.session().0;
                    let there = data(&self.coordinator, path.text()).await?;
                    let Some((_, stat)) = there.filter(|(_, stat)| stat.ephemeral_owner == own) else {
                        return Err(ErrorKind::Broken.into());
                    };
                    registration.czxid = Some(stat.czxid);
                    return Ok(Some(registration));
                }
                Err((_, ErrorCode::NodeExists)) => return Ok(None),
                Err((_, ErrorCode::NoNode)) => make_parent(&self.coordinator, &path).await?,
                Err((_, code)) => return Err(Error::at(code, "register at", self.root.text())),
            }
        }
    }

    /// Registers and returns a name never used before: `prefix`, a GUID and a number.
    ///
    /// # Errors
    /// - [`ErrorKind::Exhausted`] if the parent's numbers are used up.
    /// - [`ErrorKind::Broken`] if another client deletes the name at once.
    /// - [`ErrorKind::InvalidName`] if no znode can have the name.
    /// - Fails if the session ends or a request is refused.
    pub async fn unique(&self, prefix: &str, content: impl IntoData) -> Result<Text, Error> {
        let guid = crate::Guid::from_random_bits(self.coordinator.random_bits());
        let path = self.path(&format!("{prefix}{guid}-"))?;
        let op = create(path.text().clone(), Some(bytes(content)), CreateKind::Persistent, true);
        loop {
            match self.once.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => break,
                Err((_, ErrorCode::NoNode)) => make_parent(&self.coordinator, &path).await?,
                Err((_, ErrorCode::NodeExists)) => return Err(ErrorKind::Exhausted.into()),
                Err((_, code)) => return Err(Error::at(code, "register at", self.root.text())),
            }
        }
        let parent = path.parent().unwrap_or(Path::ROOT).into_text();
        let names = crate::ask::children(&self.coordinator, &parent).await?;
        let name = names.iter().find(|name| guid.is_in(name)).ok_or(ErrorKind::Broken)?;
        let below = zoolet_model::path::child(&parent, name);
        let root = self.root.as_str().trim_end_matches('/').len() + 1;
        Ok(below.get(root..).unwrap_or_default().into())
    }

    /// Returns the data registered under a name; `None` if the name is free.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] if no znode can have the name. Fails if the session ends or a
    /// request is refused.
    pub async fn resolve(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let found = data(&self.coordinator, self.path(name)?.text()).await?;
        Ok(found.map(|(content, _)| content.unwrap_or_default()))
    }

    /// Follows the data registered under a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] if no znode can have the name.
    pub fn watch(&self, name: &str) -> Result<ZnodeCache<C>, Error> {
        Ok(ZnodeCache::new(self.coordinator.clone(), &self.path(name)?))
    }
}

impl<C: Coordinator> Drop for Registration<C> {
    fn drop(&mut self) {
        let (path, session) = (self.path.clone(), self.coordinator.session());
        self.coordinator.run_errand(match self.czxid {
            _ if is_on(Mutation::NameGivenUpBlindly) => Errand::delete(path),
            Some(czxid) => Errand::delete_owned(path, session, czxid),
            None => Errand::find_and_delete_owned(path, session),
        });
    }
}
