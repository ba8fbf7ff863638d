//! A name service: names that nobody else has, and what is behind them.
//!
//! # Guarantees
//! - A name is given to one only, also when the reply is lost.
//! - [`Names::unique`] gives a name that nobody had before.
//! - A [claimed](Names::claim) name is free again when its session ends or the registration is dropped; a [bound](Names::bind) one stays.
//!
//! # Does not guarantee
//! - That what is behind a name is there: it says what was registered.
//!
//! # Znodes
//! A path for each name, and what is above it. So a registry with a layout of its own is read and written as it is, as Dubbo's
//! (`/dubbo/<service>/providers/<encoded URL>`, ephemerals, with a watch on the children). `root-receipts` has an ephemeral for each participant by which a lost reply is resolved.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the reply is lost | it is found out whether the name was given |
//! | somebody deletes the name at once | [`Error::Broken`] |
//! | the session is suspended | claimed names stay; requests are asked again at the next server |
//! | the session ends | claimed names are free, bound ones stay; its error for whoever waits. Claim again with another session |
//! | a registration is dropped without a connection | the name is free as soon as there is one, or with the session |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Error, Names};
//!
//! async fn register<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let names = Names::new(session, &Path::from_static("/services"));
//!     let Some(name) = names.claim("camera/1", "http://10.0.3.11").await? else { return Ok(()) };
//!     println!("{:?}", names.resolve("camera/1").await?);
//!     drop(name);
//!     Ok(())
//! }
//! ```

use crate::ask::{create, data};
use crate::barrier::make_parent;
use crate::mutation::{Mutation, is_on};
use crate::once::Once;
use crate::{Coordinator, Errand, Error, NodeCache};
use bytes::Bytes;
use zoolet_model::{CreateKind, ErrorCode, Path, Text};

/// Names below one znode. A name is a path: `door/3` is below `door`. `providers/http%3A%2F%2Fgw-a` is one too, so registries of other programs are
/// read and written with it as they are.
#[derive(Debug)]
pub struct Names<C: Coordinator> {
    coordinator: C,
    root: Path,
    once: Once<C>,
}

/// A name that this session has. Dropped, it is free again; it is as well when the session ends.
#[derive(Debug)]
#[must_use = "dropped, the name is free again"]
pub struct Registration<C: Coordinator> {
    coordinator: C,
    path: Text,
    /// `None` while nobody knows whether it was created.
    czxid: Option<i64>,
}

impl<C: Coordinator> Names<C> {
    /// Names below `root`.
    pub fn new(coordinator: C, root: &Path) -> Self {
        Self { once: Once::new(coordinator.clone(), root), coordinator, root: root.clone() }
    }

    fn path(&self, name: &str) -> Result<Path, Error> {
        Ok(Path::new(zoolet_model::path::child(self.root.as_str(), name)).map_err(zoolet_model::Error::Refused)?)
    }

    /// Gives a name for good, if nobody has it; says whether.
    ///
    /// # Errors
    /// BadArguments for what is no name; the session's.
    pub async fn bind(&self, name: &str, content: impl Into<Bytes>) -> Result<bool, Error> {
        let path = self.path(name)?;
        let op = create(path.text().clone(), Some(content.into()), CreateKind::Persistent, false);
        loop {
            match self.once.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => return Ok(true),
                Err((_, ErrorCode::NodeExists)) => return Ok(false),
                Err((_, ErrorCode::NoNode)) => make_parent(&self.coordinator, &path).await?,
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Gives this session a name, if nobody has it.
    ///
    /// # Errors
    /// BadArguments for what is no name; the session's.
    pub async fn claim(&self, name: &str, content: impl Into<Bytes>) -> Result<Option<Registration<C>>, Error> {
        let path = self.path(name)?;
        let op = create(path.text().clone(), Some(content.into()), CreateKind::Ephemeral, false);
        loop {
            // Given up under way, the name goes only if this has made it: another one of the same session may have it.
            match self.once.transact_or_undo(std::slice::from_ref(&op), Some(path.text().clone())).await? {
                Ok(()) => {
                    let coordinator = self.coordinator.clone();
                    let mut registration = Registration { coordinator, path: path.text().clone(), czxid: None };
                    let own = self.coordinator.session().0;
                    let there = data(&self.coordinator, path.text()).await?;
                    let Some((_, stat)) = there.filter(|(_, stat)| stat.ephemeral_owner == own) else {
                        return Err(Error::Broken);
                    };
                    registration.czxid = Some(stat.czxid);
                    return Ok(Some(registration));
                }
                Err((_, ErrorCode::NodeExists)) => return Ok(None),
                Err((_, ErrorCode::NoNode)) => make_parent(&self.coordinator, &path).await?,
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Gives a name that nobody has and nobody had: `prefix` and a number.
    ///
    /// # Errors
    /// BadArguments for what is no name; [`Error::Exhausted`]; the session's.
    pub async fn unique(&self, prefix: &str, content: impl Into<Bytes>) -> Result<Text, Error> {
        let guid = crate::Guid::from_random_bits(self.coordinator.random_bits());
        let path = self.path(&format!("{prefix}{guid}-"))?;
        let op = create(path.text().clone(), Some(content.into()), CreateKind::Persistent, true);
        loop {
            match self.once.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => break,
                Err((_, ErrorCode::NoNode)) => make_parent(&self.coordinator, &path).await?,
                Err((_, ErrorCode::NodeExists)) => return Err(Error::Exhausted),
                Err((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
        let parent = Text::from(path.parent().unwrap_or("/"));
        let names = crate::ask::children(&self.coordinator, &parent).await?;
        let name = names.iter().find(|name| guid.is_in(name)).ok_or(Error::Broken)?;
        let below = zoolet_model::path::child(&parent, name);
        let root = self.root.as_str().trim_end_matches('/').len() + 1;
        Ok(below.get(root..).unwrap_or_default().into())
    }

    /// What is behind a name; `None` when nobody has it.
    ///
    /// # Errors
    /// BadArguments for what is no name; the session's.
    pub async fn resolve(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let found = data(&self.coordinator, self.path(name)?.text()).await?;
        Ok(found.map(|(content, _)| content.unwrap_or_default()))
    }

    /// Follows what is behind a name.
    ///
    /// # Errors
    /// BadArguments for what is no name; as [`NodeCache::new`].
    pub async fn watch(&self, name: &str) -> Result<NodeCache<C>, Error> {
        NodeCache::new(self.coordinator.clone(), &self.path(name)?).await
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
