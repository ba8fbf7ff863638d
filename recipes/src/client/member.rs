//! A membership that goes on with the next session.

use super::Client;
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Error, Group, OpenSession, PersistentZnode};
use bytes::Bytes;
use std::convert::Infallible;
use std::fmt;
use zoolet_model::{IntoData, Path, SessionId, Stat};

/// A membership that goes on with each later session of its client.
///
/// Dropping it ends the membership.
#[must_use = "dropping it ends the membership"]
pub struct Membership<O: OpenSession> {
    client: Client<O>,
    group: Path,
    name: String,
    content: Bytes,
    /// The member's znode, and the session that owns it.
    own: Option<(SessionId, PersistentZnode<O::Session>)>,
    /// Whether the znode was known to have the content.
    is_written: bool,
}

/// A change of a membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MemberEvent {
    /// The member's znode stands, owned by this session.
    Joined(SessionId),
    /// The session is over, and with it the member's znode. The next session joins again.
    Left(SessionId),
}

impl<O: OpenSession> fmt::Debug for Membership<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("group", &self.group).field("name", &self.name).finish_non_exhaustive()
    }
}

impl<O: OpenSession> Membership<O> {
    pub(super) const fn new(client: Client<O>, group: Path, name: String, content: Bytes) -> Self {
        Self { client, group, name, content, own: None, is_written: false }
    }

    /// Keeps the member in the group. Cancel-safe.
    ///
    /// The znode is created again when another client deletes it, and by each later session. While
    /// the server has no room, this tries again and again.
    ///
    /// # Errors
    /// Fails if a request is refused otherwise, or no session can be opened any more.
    pub async fn keep(&mut self) -> Result<Infallible, Error> {
        self.keep_telling(|_| {}).await
    }

    /// As [`Membership::keep`], and reports each change.
    ///
    /// # Errors
    /// As [`Membership::keep`].
    pub async fn keep_telling(&mut self, mut tell: impl FnMut(MemberEvent)) -> Result<Infallible, Error> {
        let mut joined = None;
        loop {
            let session = self.client.session().await?.session();
            let is_there = self.is_written && self.own.as_ref().is_some_and(|(owner, _)| *owner == session);
            // Not written again, as each write wears the disks of all servers.
            let session = if is_there { session } else { self.put().await?.0 };
            if joined != Some(session) {
                joined.replace(session).into_iter().for_each(|former| tell(MemberEvent::Left(former)));
                tell(MemberEvent::Joined(session));
            }
            let Some((_, own)) = &mut self.own else { continue };
            match own.keep().await {
                Err(error) if error.is_temporary() => {
                    super::pausing(&self.client.session().await?, &error, u32::MAX).await
                }
                Err(error) if error.is_session_over() && !is_on(Mutation::MembershipNotRenewed) => {
                    joined = None;
                    tell(MemberEvent::Left(session));
                }
                ended => return ended,
            }
        }
    }

    /// Sets other content, and joins the group if the member is not there.
    ///
    /// # Errors
    /// As [`Membership::keep`].
    pub async fn set(&mut self, content: impl IntoData) -> Result<Stat, Error> {
        self.content = crate::ask::bytes(content);
        self.is_written = false;
        self.put().await.map(|(_, stat)| stat)
    }

    /// Makes the member's znode with its content, over the present session.
    async fn put(&mut self) -> Result<(SessionId, Stat), Error> {
        loop {
            let session = self.client.session().await?;
            let id = session.session();
            let put = match &mut self.own {
                Some((owner, own)) if *owner == id => own.set(self.content.clone()).await,
                own => {
                    let member = Group::new(session.clone(), &self.group).member(&self.name, self.content.clone())?;
                    own.insert((id, member)).1.put().await
                }
            };
            match put {
                Err(_) if session.state().is_over() => {}
                Err(error) if error.is_temporary() => super::pausing(&session, &error, u32::MAX).await,
                put => {
                    self.is_written = put.is_ok();
                    return put.map(|stat| (id, stat));
                }
            }
        }
    }
}
