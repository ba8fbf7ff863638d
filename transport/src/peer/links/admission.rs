//! Chooses which connection becomes the link.
//!
//! Either side may dial, so two servers may have several connections at a time. They must agree on
//! one without an extra message:
//!
//! - Of concurrent connections, the one dialled by the server with the smaller id stays. That
//!   server, the decider, judges one connection at a time. While it dials, it judges no other until
//!   that attempt has ended. The other server always answers at once; otherwise both would wait for
//!   each other.
//! - A live link is kept over a new connection from the same process. Before a server rejects the
//!   new connection, it probes the old link.
//!
//! A new process under the same id is normally a restart, and its link replaces the old one. There
//! are two exceptions:
//!
//! - The old process still answers from another address.
//! - The old process was alive after the new one had started. This covers an old process that is
//!   suspended while it is probed.
//!
//! In both cases two live servers share one id, and the later one is refused, whichever side
//! dialled. Once the old link ends, its process counts as gone and the new one is accepted.

use super::closing::{self, Closing};
use super::greeting::{self, Failed, Proven};
use super::link::Link;
use super::members::Member;
use super::{Links, link_tasks};
use crate::peer::trust::{RefusalReason, Refused};
use std::sync::Arc;
use zoolet_machine::Event;
use zoolet_model::ServerId;

/// Decision about a proved connection.
#[derive(PartialEq, Eq)]
enum Verdict {
    /// It becomes the link and replaces an older one.
    Welcome,
    /// A live link exists already.
    Duplicate,
}

impl Links {
    /// Makes an accepted connection the link, or closes it.
    pub(super) async fn admit(self: &Arc<Self>, mut proven: Proven) -> Result<(), Failed> {
        let wanted = proven.hello.to;
        if wanted != self.settings.id {
            // The dialler's address list is wrong. Only this answer tells it which server is here.
            // The result does not matter, because the connection is refused in any case.
            let _ = self.answer(&mut proven).await;
            return Err(proven.guest.refuse(Some(proven.hello.from), RefusalReason::AsksForAnother { wanted }).into());
        }
        let Some(member) = self.member(proven.hello.from).cloned() else {
            Closing::NoMember.close(&proven.connection, "");
            let (id, remote) = (proven.hello.from.as_u8(), proven.remote);
            let line = format!(
                "{remote} is server {id}, which is not in this server's configuration: use the same file on every server"
            );
            self.warnings.warn(("no member", id), &line);
            return Ok(());
        };
        let decides = self.decides(&member);
        let deciding = member.lock_decision().await;
        if self.verdict(&member, &proven).await? == Verdict::Duplicate {
            self.turn_away(member.id, &proven);
            return Ok(());
        }
        // The decider keeps the member's `deciding` locked while it answers, so it judges one
        // connection at a time. The other server must not: the decider may be dialling, and both
        // would wait.
        let deciding = if decides {
            self.answer(&mut proven).await?;
            deciding
        } else {
            drop(deciding);
            self.answer(&mut proven).await?;
            let deciding = member.lock_decision().await;
            // Another connection may have become the link while `deciding` was unlocked.
            if self.verdict(&member, &proven).await? == Verdict::Duplicate {
                self.turn_away(member.id, &proven);
                return Ok(());
            }
            deciding
        };
        let linked = self.link(&member, proven).await;
        drop(deciding);
        Ok(linked?)
    }

    /// Makes a dialled connection the link, or closes it.
    pub(super) async fn dial(
        self: &Arc<Self>,
        member: &Arc<Member>,
        connection: quinn::Connection,
        who: &str,
    ) -> Result<(), Failed> {
        let decides = self.decides(member);
        let early = if decides { Some(member.lock_decision().await) } else { None };
        if decides && member.link().is_some() {
            Closing::Duplicate.close(&connection, "");
            return Ok(());
        }
        let mut proven = self.greet(connection, who, member.id).await?;
        let deciding = match early {
            Some(deciding) => deciding,
            None => member.lock_decision().await,
        };
        if self.verdict(member, &proven).await? == Verdict::Duplicate {
            self.turn_away(member.id, &proven);
            return Ok(());
        }
        greeting::go(&mut proven).await?;
        let linked = self.link(member, proven).await;
        drop(deciding);
        Ok(linked?)
    }

    /// Returns whether this server is the decider of the pair.
    fn decides(&self, member: &Member) -> bool {
        self.settings.id < member.id
    }

    async fn verdict(&self, member: &Member, proven: &Proven) -> Result<Verdict, Refused> {
        self.judge_key(member, proven)?;
        let Some(link) = member.link() else { return Ok(Verdict::Welcome) };
        let is_same_process = link.process == proven.hello.process;
        let has_moved_in = !is_same_process && link.remote == proven.remote;
        if has_moved_in {
            return Ok(Verdict::Welcome);
        }
        let lives = link.answers().await;
        if is_same_process {
            return Ok(if lives { Verdict::Duplicate } else { Verdict::Welcome });
        }
        // Once the connection has ended, the ages prove nothing: this machine may have been
        // suspended, and its clock with it.
        let has_ended = link.connection.close_reason().is_some();
        if !lives && (has_ended || !link.lived_beside(proven.began())) {
            return Ok(Verdict::Welcome);
        }
        let first = link.remote.to_string();
        Err(proven.guest.refuse(Some(member.id), RefusalReason::LiveTwice { first }))
    }

    /// Refuses a key that is live under another id.
    ///
    /// A copied data directory has its original's key.
    fn judge_key(&self, member: &Member, proven: &Proven) -> Result<(), Refused> {
        let mut others = self.members().filter(|other| other.id != member.id).filter_map(|other| other.link());
        match others.find(|link| link.key == proven.key()) {
            Some(link) => {
                let first = format!("{} (server {})", link.remote, link.peer.as_u8());
                Err(proven.guest.refuse(Some(member.id), RefusalReason::LiveTwice { first }))
            }
            None => Ok(()),
        }
    }

    /// Closes a connection that does not become the link.
    ///
    /// If the peer has closed it before, records the reason.
    fn turn_away(&self, peer: ServerId, proven: &Proven) {
        match proven.connection.close_reason() {
            Some(error) => closing::keep_why(self, peer, proven.remote, &error),
            None => Closing::Duplicate.close(&proven.connection, ""),
        }
    }

    /// Makes a connection the link.
    ///
    /// The engine receives the PeerDown of the previous link first.
    async fn link(self: &Arc<Self>, member: &Arc<Member>, proven: Proven) -> Result<(), Refused> {
        if let Some(before) = member.link() {
            Closing::Duplicate.close(&before.connection, "");
            member.unlinked().await;
        }
        // `deciding` covers only this member, so the same key may have been linked as another
        // member meanwhile. Nothing awaits from here on.
        self.judge_key(member, &proven)?;
        if proven.connection.close_reason().is_some() {
            self.turn_away(member.id, &proven);
            return Ok(());
        }
        let link = Arc::new(Link::new(self.next_link(), &proven, &self.room()));
        let (peer, remote) = (link.peer, link.remote);
        if !member.is_flapping() {
            let side = if proven.connection.side().is_client() { "dialled" } else { "accepted" };
            tracing::info!("linked to server {} at {remote}, {side}", peer.as_u8());
        }
        self.table.linked(peer, remote, proven.connection.clone());
        member.on_found(remote);
        self.submit(Event::PeerUp { peer, link: link.id, disk: proven.hello.disk });
        member.on_linked(link.clone());
        let Proven { say, hear, hello, .. } = proven;
        tokio::spawn(link_tasks::run(self.clone(), member.clone(), link, (say, hear), hello.addresses));
        Ok(())
    }
}
