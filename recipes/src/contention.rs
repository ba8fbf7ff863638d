//! Looking at a line from outside: who has a lock or an office, who waits, and what can be done about that.
//!
//! # Guarantees
//! - [`Contention::contenders`] lists who stands in line, the first first, with session, age and what each says of itself.
//! - [`Contention::break_grant`] deletes the place, the office of a leader with it, and writes a line of audit in one transaction. From then on the fenced
//!   writes of that grant are refused.
//! - [`Contention::revoke`] asks first, and takes the grant away when the holder has not given it up in time.
//! - [`Contention::revoke_safely`] does the same, but breaks the grant only after every
//!   `safe_until` that the holder has read has passed, so hardware that obeys it has stopped.
//!
//! # Does not guarantee
//! - That the list is still true when it is read. That a holder which was broken stops: only what it writes fenced is prevented.
//! - That a holder listens when it is asked: it has to wait for [`Grant::asked_to_release`](crate::Grant::asked_to_release).
//!
//! # Znodes
//! No own. A request is written into the holder's znode: `unlock`, or `__REVOKE__` where its name is Curator's; holders take both. To a writer that became a reader it is `downgraded unlock`. A grant that
//! is going to be broken safely says `withdrawn`, or `downgraded withdrawn`. What a znode was created with is never taken for a request, whatever it says. Lines of audit are in the data of the line's own
//! znode, the newest 1 KiB of them.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the holder goes meanwhile | [`Revoked::Released`] |
//! | the reply to a break is lost | it is tried again, and finds the place gone: [`Revoked::Released`], with the line of audit written |
//! | two operators break two grants at once | both lines of audit are kept |
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use zoolet_model::Path;
//! use zoolet_recipes::{Contention, Coordinator, Error};
//!
//! async fn free_valve<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let line = Contention::new(session, &Path::from_static("/locks/valve-7"));
//!     if let Some(holder) = line.contenders().await?.first() {
//!         line.revoke(holder, Duration::from_secs(5), "maintenance at night").await?;
//!     }
//!     Ok(())
//! }
//! ```

use crate::ask::{First, UNEXPECTED, ask, data, first};
use crate::board::Board;
use crate::election::{office_of, token_in};
use crate::line::{DOWNGRADED, Line, Standing, wait_gone};
use crate::mutation::{Mutation, is_on};
use crate::naming::Stands;
use crate::{Coordinator, Error, Mode, Naming};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use zoolet_model::{ErrorCode, Path, Reply, Request, SessionId, Stat, Text, WriteOp};

/// What a holder finds in its znode when somebody asks for what it has, in the words of the documentation.
const UNLOCK: &[u8] = b"unlock";
/// The same in Curator's.
const REVOKE: &[u8] = b"__REVOKE__";

/// The same for a writer that became a reader, whose znode goes on saying that.
const DOWNGRADED_UNLOCK: &[u8] = b"downgraded unlock";
/// Tells a holder that its grant will be broken: `safe_until` no longer advances.
const WITHDRAWN: &[u8] = b"withdrawn";
/// The same for a writer that became a reader.
const DOWNGRADED_WITHDRAWN: &[u8] = b"downgraded withdrawn";

/// Whether somebody has written this into a place after it was taken. What its owner says of itself may be any of these words, and is there from the
/// creation on.
fn is_written(content: Option<&Bytes>, stat: &Stat, words: &[&[u8]]) -> bool {
    stat.version > 0 && content.is_some_and(|content| words.contains(&&content[..]))
}

/// Whether a place says that its owner is asked to give up what it has.
pub(crate) fn asks(content: Option<&Bytes>, stat: &Stat) -> bool {
    is_written(content, stat, &[UNLOCK, REVOKE, DOWNGRADED_UNLOCK]) || is_withdrawn(content, stat)
}

/// Whether a place says that it is going to be broken.
pub(crate) fn is_withdrawn(content: Option<&Bytes>, stat: &Stat) -> bool {
    is_written(content, stat, &[WITHDRAWN, DOWNGRADED_WITHDRAWN])
}

/// Whether a place says that a writer only reads.
pub(crate) fn is_downgraded(content: Option<&Bytes>, stat: &Stat) -> bool {
    is_written(content, stat, &[DOWNGRADED, DOWNGRADED_UNLOCK, DOWNGRADED_WITHDRAWN])
}

/// What a writer that becomes a reader writes there: it may have been asked before.
pub(crate) fn downgraded(content: Option<&Bytes>, stat: &Stat) -> &'static [u8] {
    if is_withdrawn(content, stat) {
        DOWNGRADED_WITHDRAWN
    } else if asks(content, stat) {
        DOWNGRADED_UNLOCK
    } else {
        DOWNGRADED
    }
}

/// One who stands in a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contender {
    /// Its znode.
    pub path: Text,
    /// Whether it has what it stands for: nobody whom it minds is before it.
    pub holds: bool,
    /// Whether it shares it.
    pub mode: Mode,
    /// Whose it is.
    pub session: SessionId,
    /// When it came, by the ensemble's wall clock: milliseconds since 1970.
    pub since_ms: i64,
    /// What it says of itself.
    pub content: Option<Bytes>,
}

/// What became of a request to give up a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Revoked {
    /// Its holder gave it up, or was not there any more.
    Released,
    /// It was taken away.
    Broken,
}

/// The line of a lock, of readers and writers, or of an election, seen from outside.
#[derive(Debug)]
pub struct Contention<C: Coordinator> {
    line: Arc<Line<C>>,
}

impl<C: Coordinator> Contention<C> {
    /// Of the line at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { line: Line::new(coordinator, path, Naming::default(), Stands::Lock, 0, Bytes::new()) }
    }

    /// Everybody in the line, the first first. Those who left while it was looked at are not in it.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn contenders(&self) -> Result<Vec<Contender>, Error> {
        let mut contenders: Vec<Contender> = Vec::new();
        let written = data(self.line.coordinator(), self.line.parent().text()).await?.and_then(|(data, _)| data);
        let listed = Board::of(written.as_deref().unwrap_or_default()).holders;
        for Standing { path, number, mut mode, .. } in self.line.standing().await? {
            let Some((content, stat)) = data(self.line.coordinator(), &path).await? else { continue };
            if is_downgraded(content.as_ref(), &stat) {
                mode = Mode::Shared;
            }
            let holds = match mode {
                // Where one kind overtakes the other there is a list of the holders.
                _ if !listed.is_empty() => listed.iter().any(|(holder, _)| *holder == number),
                Mode::Exclusive => contenders.is_empty(),
                Mode::Shared => contenders.iter().all(|before| before.mode == Mode::Shared),
            };
            let session = SessionId(stat.ephemeral_owner);
            contenders.push(Contender { path, holds, mode, session, since_ms: stat.ctime, content });
        }
        Ok(contenders)
    }

    /// Asks a holder to give up what it has, in words that Curator and the documentation both define. Whether it does is up to it
    /// ([`Grant::asked_to_release`](crate::Grant::asked_to_release)).
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn ask_to_release(&self, contender: &Contender) -> Result<(), Error> {
        let name = contender.path.rsplit('/').next().unwrap_or_default();
        self.tell(contender, |content, stat| match is_downgraded(content, stat) {
            // This asks for it as well, and must stay.
            _ if is_withdrawn(content, stat) => None,
            true => Some(DOWNGRADED_UNLOCK),
            false if name.starts_with("_c_") => Some(REVOKE),
            false => Some(UNLOCK),
        })
        .await
    }

    /// Writes a word into a contender's znode, for its owner to read. `word` chooses it by what stands there; `None` leaves that.
    async fn tell(
        &self,
        contender: &Contender,
        word: impl Fn(Option<&Bytes>, &Stat) -> Option<&'static [u8]>,
    ) -> Result<(), Error> {
        loop {
            // Nobody is there to be told any more.
            let Some((content, stat)) = data(self.line.coordinator(), &contender.path).await? else { return Ok(()) };
            let Some(word) = word(content.as_ref(), &stat) else { return Ok(()) };
            let data = Some(Bytes::from_static(word));
            let op = WriteOp::SetData { path: contender.path.clone(), data, version: stat.version };
            match ask(self.line.coordinator(), &Request::Write(op)).await {
                Ok(_) | Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))) => return Ok(()),
                // It became a reader in this moment, or this was done and its reply lost.
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::BadVersion))) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks a holder, and takes the grant away if it has not given it up within `patience`. What it writes fenced from then on is not done;
    /// what it does otherwise nobody can prevent.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn revoke(&self, contender: &Contender, patience: Duration, why: &str) -> Result<Revoked, Error> {
        self.ask_to_release(contender).await?;
        match self.is_gone_within(contender, patience).await? {
            true => Ok(Revoked::Released),
            false => self.break_grant(contender, why).await,
        }
    }

    /// Takes a grant away so that its holder's hardware cannot overlap with that of the next holder.
    ///
    /// Asks first, as [`Contention::revoke`]. A grant that is not released within `patience` is
    /// withdrawn: once its holder hears of that, [`Grant::safe_until`](crate::Grant::safe_until) no
    /// longer advances. The grant is broken `timeout_max` after the withdrawal, when every instant
    /// that the holder has read has passed. Until then the grant stands, and nobody else is granted
    /// the same.
    ///
    /// `timeout_max` is the longest session timeout that a holder may have negotiated: the servers' `maxSessionTimeout`. Holders must take their instants
    /// from [`Grant::safe_until`](crate::Grant::safe_until) and not from their session. Followers of Apache ZooKeeper may lag by `syncLimit` ticks: add
    /// those to `timeout_max` there. Dropping the future after the withdrawal leaves the grant standing and withdrawn.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn revoke_safely(
        &self,
        contender: &Contender,
        patience: Duration,
        timeout_max: Duration,
        why: &str,
    ) -> Result<Revoked, Error> {
        self.ask_to_release(contender).await?;
        if self.is_gone_within(contender, patience).await? {
            return Ok(Revoked::Released);
        }
        self.tell(contender, |content, stat| {
            Some(if is_downgraded(content, stat) { DOWNGRADED_WITHDRAWN } else { WITHDRAWN })
        })
        .await?;
        // From here on: the answer to that write came after it.
        let timeout_max = if is_on(Mutation::WithdrawnAtOnce) { Duration::ZERO } else { timeout_max };
        match self.is_gone_within(contender, timeout_max).await? {
            true => Ok(Revoked::Released),
            false => self.break_grant(contender, why).await,
        }
    }

    async fn is_gone_within(&self, contender: &Contender, patience: Duration) -> Result<bool, Error> {
        let coordinator = self.line.coordinator();
        let timer = coordinator.timer(coordinator.now().saturating_add(patience));
        match first(wait_gone(coordinator, &contender.path), timer).await {
            First::Left(gone) => gone.map(|()| true),
            First::Right(()) => Ok(false),
        }
    }

    /// Takes a place or a grant away, and leaves a line in the data of the line's own znode that says so: `session 0x.. of <name>: why`.
    /// The newest lines are kept, up to 1 KiB; the znode's mtime is when.
    ///
    /// # Errors
    /// [`Error::Session`] if the session ends or a request is refused.
    pub async fn break_grant(&self, contender: &Contender, why: &str) -> Result<Revoked, Error> {
        let coordinator = self.line.coordinator();
        let parent = self.line.parent().text();
        let name = contender.path.rsplit('/').next().unwrap_or_default();
        loop {
            // Before its office: if it takes that meanwhile, the version is another one.
            let Some((written, stat)) = data(coordinator, parent).await? else { return Ok(Revoked::Released) };
            let mut board = Board::of(written.as_deref().unwrap_or_default());
            board.audit(contender.session.0, name, why);
            let mut ops = vec![
                WriteOp::Delete { path: contender.path.clone(), version: -1 },
                WriteOp::SetData { path: parent.clone(), data: Some(board.data()), version: stat.version },
            ];
            ops.extend(self.office_of(contender).await?.map(|path| WriteOp::Delete { path, version: -1 }));
            let request = Request::Multi(ops);
            let Reply::Multi(results) = ask(coordinator, &request).await? else { return Err(UNEXPECTED) };
            match zoolet_model::first_failure(&results) {
                None => return Ok(Revoked::Broken),
                Some((0, ErrorCode::NoNode)) => return Ok(Revoked::Released),
                // Somebody else wrote a line, or took office.
                Some((1, ErrorCode::BadVersion)) => {}
                Some((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }
}

impl<C: Coordinator> Contention<C> {
    /// The office of an election, if it is this one's. As long as its place stands nobody else takes it.
    async fn office_of(&self, contender: &Contender) -> Result<Option<Text>, Error> {
        let office = office_of(self.line.parent());
        let Some((Some(content), _)) = data(self.line.coordinator(), &office).await? else { return Ok(None) };
        let Some(token) = token_in(&content) else { return Ok(None) };
        let place = crate::ask::stat(self.line.coordinator(), &contender.path).await?;
        Ok(place.is_some_and(|stat| stat.czxid == token.0).then_some(office))
    }
}

impl Contender {
    /// How long it has stood there at this time of the ensemble's wall clock, which a fresh znode's ctime tells.
    pub fn age_ms(&self, now_ms: i64) -> u64 {
        u64::try_from(now_ms.saturating_sub(self.since_ms)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender() -> Contender {
        Contender {
            path: "/locks/door/a-lock-0000000001".into(),
            holds: true,
            mode: Mode::Exclusive,
            session: SessionId(0x15),
            since_ms: 1_000,
            content: None,
        }
    }

    #[test]
    fn what_a_place_was_created_with_is_no_request_and_no_downgrade() {
        let stat = |version| Stat { version, ..Stat::default() };
        for word in [UNLOCK, REVOKE, DOWNGRADED_UNLOCK, DOWNGRADED, WITHDRAWN, DOWNGRADED_WITHDRAWN] {
            let content = Bytes::from_static(word);
            let said = |stat| (asks(Some(&content), &stat), is_downgraded(Some(&content), &stat));
            assert_eq!(said(stat(0)), (false, false), "{content:?}");
            assert_eq!(said(stat(1)), (word != DOWNGRADED, word.starts_with(DOWNGRADED)));
        }
        assert!(!asks(None, &stat(1)) && !is_downgraded(Some(&Bytes::new()), &stat(1)));
    }

    #[test]
    fn an_age_is_never_negative() {
        assert_eq!((contender().age_ms(1_500), contender().age_ms(500)), (500, 0));
    }
}
