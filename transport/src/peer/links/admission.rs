//! Which connection becomes the link.
//!
//! Either side may dial, so two servers may have several connections at a time, and must agree on one without a word about it:
//!
//! - of connections that come about at the same time, the one that the smaller id dialled stays: that server decides on one connection after the other,
//!   and on nothing else until the one that it dials has come to its end. The other one always answers, or the two would wait for each other;
//! - a link that lives is not given up for another one to the same process. Who is asked for a second one makes sure that the first one lives.
//!
//! A peer that comes as another process has started again, unless the former process still answers from elsewhere, or lived when this one had begun:
//! then two live servers have one id, and the one that came later is refused, on either side. The second reason is for a former process that stands
//! still when it is asked. When its link ends it is gone, and makes room.

use super::closing::{self, Closing};
use super::greeting::{self, Failed, Proven};
use super::link::Link;
use super::members::Member;
use super::{Links, life};
use crate::peer::trust::{Refused, Why};
use std::sync::Arc;
use zoolet_engine::Event;
use zoolet_model::ServerId;

/// What becomes of a connection that has proved itself.
#[derive(PartialEq, Eq)]
enum Verdict {
    /// It is the link; one that there was is over.
    Welcome,
    /// There is one, and it lives.
    Duplicate,
}

impl Links {
    /// Takes a connection that this server accepted, or closes it.
    pub(super) async fn admit(self: &Arc<Self>, mut proven: Proven) -> Result<(), Failed> {
        let wanted = proven.hello.to;
        if wanted != self.settings.id {
            // The address is wrong there. Nothing but this tells it who is here, and nothing comes of it whatever it says.
            let _ = self.answer(&mut proven).await;
            return Err(proven.guest.refuse(Some(proven.hello.from), Why::AsksForAnother { wanted }).into());
        }
        let Some(member) = self.member(proven.hello.from).cloned() else {
            Closing::NoMember.close(&proven.connection, "");
            let (id, remote) = (proven.hello.from.as_u8(), proven.remote);
            let line = format!(
                "{remote} is server {id}, which this server does not have in its configuration: the same file goes on every server"
            );
            self.notices.warn(("no member", id), &line);
            return Ok(());
        };
        let decides = self.decides(&member);
        let door = member.door().await;
        if self.verdict(&member, &proven).await? == Verdict::Duplicate {
            self.turn_away(member.id, &proven);
            return Ok(());
        }
        // Whoever decides decides on nothing else meanwhile. Whoever does not must not keep the other waiting, who may be at its own dialling.
        let door = if decides {
            self.answer(&mut proven).await?;
            door
        } else {
            drop(door);
            self.answer(&mut proven).await?;
            let door = member.door().await;
            // While it kept its word back, another may have become the link.
            if self.verdict(&member, &proven).await? == Verdict::Duplicate {
                self.turn_away(member.id, &proven);
                return Ok(());
            }
            door
        };
        let linked = self.link(&member, proven).await;
        drop(door);
        Ok(linked?)
    }

    /// Makes a connection that this server dials the link, or closes it. True if there is a link then.
    pub(super) async fn dial(
        self: &Arc<Self>,
        member: &Arc<Member>,
        connection: quinn::Connection,
        who: &str,
    ) -> Result<(), Failed> {
        let decides = self.decides(member);
        let early = if decides { Some(member.door().await) } else { None };
        if decides && member.link().is_some() {
            Closing::Duplicate.close(&connection, "");
            return Ok(());
        }
        let mut proven = self.greet(connection, who, member.id).await?;
        let door = match early {
            Some(door) => door,
            None => member.door().await,
        };
        if self.verdict(member, &proven).await? == Verdict::Duplicate {
            self.turn_away(member.id, &proven);
            return Ok(());
        }
        greeting::go(&mut proven).await?;
        let linked = self.link(member, proven).await;
        drop(door);
        Ok(linked?)
    }

    /// Whether this server decides between connections to that one, which come to it one by one.
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
        // A connection that has ended says nothing of who lives: this machine may have slept, and its clock with it.
        let has_ended = link.connection.close_reason().is_some();
        if !lives && (has_ended || !link.lived_beside(proven.began())) {
            return Ok(Verdict::Welcome);
        }
        let first = link.remote.to_string();
        Err(proven.guest.refuse(Some(member.id), Why::LiveTwice { first }))
    }

    /// A copied data directory under another id has the key of its original.
    fn judge_key(&self, member: &Member, proven: &Proven) -> Result<(), Refused> {
        let mut others = self.members().filter(|other| other.id != member.id).filter_map(|other| other.link());
        match others.find(|link| link.key == proven.key()) {
            Some(link) => {
                let first = format!("{} (server {})", link.remote, link.peer.as_u8());
                Err(proven.guest.refuse(Some(member.id), Why::LiveTwice { first }))
            }
            None => Ok(()),
        }
    }

    /// It does not become the link. Its peer may have given it up before.
    fn turn_away(&self, peer: ServerId, proven: &Proven) {
        match proven.connection.close_reason() {
            Some(error) => closing::keep_why(self, peer, proven.remote, &error),
            None => Closing::Duplicate.close(&proven.connection, ""),
        }
    }

    /// Makes it the link. The machine hears of the end of the one before first.
    async fn link(self: &Arc<Self>, member: &Arc<Member>, proven: Proven) -> Result<(), Refused> {
        if let Some(before) = member.link() {
            Closing::Duplicate.close(&before.connection, "");
            member.unlinked().await;
        }
        // The door is this member's alone: the same key may have come in at another one meanwhile. From here on nothing is waited for.
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
        tokio::spawn(life::run(self.clone(), member.clone(), link, (say, hear), hello.addresses));
        Ok(())
    }
}
