//! Contention: lists holders and waiters, and revokes grants.
//!
//! The participants of a lock, a read-write lock or an election stand in a line. Each has a place:
//! a sequential znode below the path. The holders come first, then the waiters.
//!
//! # Guarantees
//! - [`Contention::contenders`] lists the participants in their order in the line, with session,
//!   age and description.
//! - [`Contention::break_grant`] deletes a place, and a leader's office with it, and writes an
//!   audit line, in one transaction. From then on the grant's fenced writes are refused.
//! - [`Contention::revoke`] asks first, and breaks the grant if the holder has not released it in
//!   time.
//! - [`Contention::revoke_safely`] does the same, but waits before it breaks the grant. It waits
//!   until every `safe_until` that the holder has read has passed, so hardware that obeys it has
//!   stopped. The transaction that breaks the grant checks that the announcement still stands.
//! - [`Revoked::Released`] never hides a break by the same call.
//!
//! # Does not guarantee
//! - The list may be outdated when the caller reads it.
//! - A broken holder may go on. Only its fenced writes are prevented.
//! - A holder that is asked may not listen: it has to wait for
//!   [`Grant::asked_to_release`](crate::Grant::asked_to_release).
//!
//! # Znodes
//! Contention creates no znodes. It writes one of these words into the holder's znode:
//! - `unlock` asks for the release, or `__REVOKE__` if the znode has a name of Curator's. Holders
//!   accept both.
//! - `downgraded unlock` asks a writer that became a reader.
//! - `withdrawn` or `downgraded withdrawn` announces that the grant will be broken safely.
//!
//! The data with which a znode was created is never taken for a request, even if it is one of these
//! words. Audit lines are in the data of the path itself; the newest 1 KiB are kept.
//!
//! # Failures
//! - **The holder goes meanwhile**: [`Revoked::Released`].
//! - **The reply to a break is lost**: the retry finds the place gone. It returns
//!   [`Revoked::Broken`] if the audit names the place, and otherwise [`Revoked::Released`].
//! - **The reply to a break is lost, and the retry is refused**: the audit tells whether the grant
//!   was broken.
//! - **The reply to a break is lost, and the audit cannot be read**: the call fails with
//!   `ConnectionLoss`, and the grant may have been broken or not. Either the server refuses that
//!   request as well, or the ensemble has deleted the path, a container without children.
//! - **Another client overwrites `withdrawn`**, as Curator's revoker does: the grant is withdrawn
//!   again, and the wait begins anew.
//! - **Two operators break two grants at once**: both audit lines are kept.
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use zoolet::recipes::Contention;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn free_valve<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let line = Contention::new(session, &Path::from_static("/locks/valve-7"));
//!     if let Some(holder) = line.contenders().await?.first() {
//!         line.revoke(holder, Duration::from_secs(5), "maintenance at night").await?;
//!     }
//!     Ok(())
//! }
//! ```

use crate::ask::{First, ask, connected, data, first, is_disconnection, write_through};
use crate::board::Board;
use crate::election::{office_of, token_in};
use crate::line::{DOWNGRADED, Line, Standing, wait_gone};
use crate::mutation::{Mutation, is_on};
use crate::naming::Stands;
use crate::{Coordinator, Error, ErrorKind, Mode, Naming};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use zoolet_model::{ErrorCode, Path, Reply, Request, RequestError, SessionId, Stat, Text, WriteOp};

/// Asks the holder for a release, in the documentation's word.
const UNLOCK: &[u8] = b"unlock";
/// The same in Curator's word.
const REVOKE: &[u8] = b"__REVOKE__";

/// The same for a downgraded writer, whose znode keeps saying so.
const DOWNGRADED_UNLOCK: &[u8] = b"downgraded unlock";
/// Tells a holder that its grant will be broken.
///
/// Its `safe_until` then no longer advances.
const WITHDRAWN: &[u8] = b"withdrawn";
/// The same for a downgraded writer.
const DOWNGRADED_WITHDRAWN: &[u8] = b"downgraded withdrawn";

/// Whether one of `words` was written into a znode after its creation.
///
/// An owner's description, there from the creation on, may be any of these words.
fn is_written(content: Option<&Bytes>, stat: &Stat, words: &[&[u8]]) -> bool {
    stat.version > 0 && content.is_some_and(|content| words.contains(&&content[..]))
}

/// Whether a znode asks its owner to release its grant.
pub(crate) fn asks(content: Option<&Bytes>, stat: &Stat) -> bool {
    is_written(content, stat, &[UNLOCK, REVOKE, DOWNGRADED_UNLOCK]) || is_withdrawn(content, stat)
}

/// Whether a znode tells its owner that the grant will be broken.
pub(crate) fn is_withdrawn(content: Option<&Bytes>, stat: &Stat) -> bool {
    is_written(content, stat, &[WITHDRAWN, DOWNGRADED_WITHDRAWN])
}

/// Whether a znode shows that its writer has become a reader.
pub(crate) fn is_downgraded(content: Option<&Bytes>, stat: &Stat) -> bool {
    is_written(content, stat, &[DOWNGRADED, DOWNGRADED_UNLOCK, DOWNGRADED_WITHDRAWN])
}

/// Returns the data for a writer that becomes a reader.
///
/// The data keeps an earlier request.
pub(crate) fn downgraded(content: Option<&Bytes>, stat: &Stat) -> &'static [u8] {
    if is_withdrawn(content, stat) {
        DOWNGRADED_WITHDRAWN
    } else if asks(content, stat) {
        DOWNGRADED_UNLOCK
    } else {
        DOWNGRADED
    }
}

/// A participant in a line: a holder or a waiter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Contender {
    /// Path of its znode.
    pub path: Path,
    /// Whether it holds: no conflicting participant is before it.
    ///
    /// If one kind [overtakes](crate::Preference) the other, the list of holders decides instead.
    pub holds: bool,
    /// Whether it is exclusive or shares with others.
    pub mode: Mode,
    /// The session that owns it.
    pub session: SessionId,
    /// Creation time by the ensemble's wall clock.
    pub since: SystemTime,
    /// Data of its znode: its description, or the last request.
    ///
    /// A request overwrites the description.
    pub content: Option<Bytes>,
}

/// Result of a revocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Revoked {
    /// The holder gave up the grant, or was gone already.
    Released,
    /// The grant was broken.
    Broken,
}

/// Operator's view of a line: a lock, read-write lock or election.
#[derive(Debug)]
pub struct Contention<C: Coordinator> {
    line: Arc<Line<C>>,
}

impl<C: Coordinator> Contention<C> {
    /// Returns the view of the line at `path`.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self { line: Line::new(coordinator, path, Naming::default(), Stands::Lock, 0, Bytes::new()) }
    }

    /// Lists the participants in their order in the line.
    ///
    /// Participants that leave during the call are omitted.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
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
                // If one kind overtakes the other, the data of the line's path lists the holders.
                _ if !listed.is_empty() => listed.iter().any(|(holder, _)| *holder == number),
                Mode::Exclusive => contenders.is_empty(),
                Mode::Shared => contenders.iter().all(|before| before.mode == Mode::Shared),
            };
            let session = SessionId(stat.ephemeral_owner);
            contenders.push(Contender {
                path: Path::of_existing(path),
                holds,
                mode,
                session,
                since: SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(stat.ctime).unwrap_or(0)),
                content,
            });
        }
        Ok(contenders)
    }

    /// Asks a holder to release its grant.
    ///
    /// The request is the documentation's or Curator's word. The holder decides
    /// ([`Grant::asked_to_release`](crate::Grant::asked_to_release)).
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn ask_to_release(&self, contender: &Contender) -> Result<(), Error> {
        let name = contender.path.name();
        self.tell(contender, |content, stat| match is_downgraded(content, stat) {
            // A withdrawal also asks for the release, and must stay.
            _ if is_withdrawn(content, stat) => None,
            true => Some(DOWNGRADED_UNLOCK),
            false if name.starts_with("_c_") => Some(REVOKE),
            false => Some(UNLOCK),
        })
        .await
        .map(drop)
    }

    /// Announces that the grant will be broken safely.
    ///
    /// Returns the version of its znode, which shows the announcement; `None` if it is gone.
    async fn withdraw(&self, contender: &Contender) -> Result<Option<i32>, Error> {
        self.tell(contender, |content, stat| match is_downgraded(content, stat) {
            // Another write would make another revoker wait anew.
            _ if is_withdrawn(content, stat) => None,
            true => Some(DOWNGRADED_WITHDRAWN),
            false => Some(WITHDRAWN),
        })
        .await
    }

    /// Writes a word into a contender's znode, for its owner to read.
    ///
    /// `word` chooses it by the present data; `None` writes nothing. Returns the version of the znode
    /// with that word; `None` if the contender is gone.
    async fn tell(
        &self,
        contender: &Contender,
        word: impl Fn(Option<&Bytes>, &Stat) -> Option<&'static [u8]>,
    ) -> Result<Option<i32>, Error> {
        loop {
            let Some((content, stat)) = data(self.line.coordinator(), contender.path.text()).await? else {
                return Ok(None);
            };
            let Some(word) = word(content.as_ref(), &stat) else { return Ok(Some(stat.version)) };
            let data = Some(Bytes::from_static(word));
            let op = WriteOp::SetData { path: contender.path.text().clone(), data, version: stat.version };
            match ask(self.line.coordinator(), &Request::Write(op)).await {
                Ok(Reply::Stat(stat)) => return Ok(Some(stat.version)),
                Ok(_) => return Err(Error::unexpected()),
                Err(error) if error.is_no_node() => return Ok(None),
                // The contender has just become a reader, or this write was done and its reply
                // lost.
                Err(error) if error.is_bad_version() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks a holder; breaks a grant not released within `patience`.
    ///
    /// Fenced writes of a broken grant are not done. Other actions of its holder cannot be
    /// prevented.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn revoke(&self, contender: &Contender, patience: Duration, why: &str) -> Result<Revoked, Error> {
        self.ask_to_release(contender).await?;
        match self.is_gone_within(contender, patience).await? {
            true => Ok(Revoked::Released),
            false => self.break_grant(contender, why).await,
        }
    }

    /// Revokes a grant so that the hardware of two holders cannot overlap.
    ///
    /// First asks, like [`Contention::revoke`]. A grant that is not released within `patience` is
    /// withdrawn: once its holder hears of that, [`Grant::safe_until`](crate::Grant::safe_until) no
    /// longer advances. The grant is broken `timeout_max` after the withdrawal, when every instant
    /// that the holder has read has passed. Until then the grant stands, and no other participant
    /// is granted the same.
    ///
    /// If another client writes to the holder's znode meanwhile, the holder may have missed the
    /// withdrawal. Then the grant is withdrawn again, and the wait begins anew. A downgrade by the
    /// holder is such a write as well.
    ///
    /// `timeout_max` is the longest session timeout that a holder may have negotiated: the servers'
    /// `maxSessionTimeout`. Followers of Apache ZooKeeper may lag by `syncLimit` ticks: add those
    /// to `timeout_max` there. Holders must take their instants from
    /// [`Grant::safe_until`](crate::Grant::safe_until), not from their session.
    ///
    /// If the future is dropped after the withdrawal, the grant stays in place and withdrawn.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
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
        let timeout_max = if is_on(Mutation::WithdrawnAtOnce) { Duration::ZERO } else { timeout_max };
        loop {
            let Some(version) = self.withdraw(contender).await? else { return Ok(Revoked::Released) };
            // The wait begins at the answer to the withdrawal, which is later than the withdrawal
            // itself.
            if self.is_gone_within(contender, timeout_max).await? {
                return Ok(Revoked::Released);
            }
            let version = if is_on(Mutation::WithdrawalUnchecked) { -1 } else { version };
            if let Some(revoked) = self.break_at(contender, version, why).await? {
                return Ok(revoked);
            }
        }
    }

    async fn is_gone_within(&self, contender: &Contender, patience: Duration) -> Result<bool, Error> {
        let coordinator = self.line.coordinator();
        let timer = coordinator.timer(coordinator.now().saturating_add(patience));
        match first(wait_gone(coordinator, contender.path.text()), timer).await {
            First::Left(gone) => gone.map(|()| true),
            First::Right(()) => Ok(false),
        }
    }

    /// Deletes a place or a grant, and writes an audit line.
    ///
    /// The audit line is `session 0x.. of <name>: why`, in the data of the path itself. The newest
    /// audit lines are kept, up to 1 KiB. The time of the newest is the path's mtime.
    ///
    /// # Errors
    /// - [`ErrorKind::ConnectionLoss`] if the reply was lost and the audit line cannot be looked up:
    ///   the grant may have been broken or not.
    /// - Fails if the session ends or a request is refused.
    pub async fn break_grant(&self, contender: &Contender, why: &str) -> Result<Revoked, Error> {
        self.break_at(contender, -1, why).await?.ok_or(Error::unexpected())
    }

    /// Does [`Contention::break_grant`] if the grant's znode has this version; -1 is any.
    ///
    /// Returns `None` if it has another version.
    async fn break_at(&self, contender: &Contender, version: i32, why: &str) -> Result<Option<Revoked>, Error> {
        let coordinator = self.line.coordinator();
        let parent = self.line.parent().text();
        let name = contender.path.name();
        // The czxid of the parent, once the reply to an attempt was lost.
        let mut doubtful = None;
        loop {
            // Read before the office: taking office meanwhile raises this version.
            let Some((written, stat)) = data(coordinator, parent).await? else {
                return if doubtful.is_some() { Err(in_doubt(contender)) } else { Ok(Some(Revoked::Released)) };
            };
            let mut board = Board::of(written.as_deref().unwrap_or_default());
            board.audit(contender.session.0, name, why);
            let mut ops = vec![
                WriteOp::Delete { path: contender.path.text().clone(), version },
                WriteOp::SetData { path: parent.clone(), data: Some(board.data()), version: stat.version },
            ];
            ops.extend(self.office_of(contender).await?.map(|path| WriteOp::Delete { path, version: -1 }));
            let results = match coordinator.submit(Request::Multi(ops)).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(Error::unexpected()),
                Err(error) if is_disconnection(error) => {
                    connected(coordinator).await?;
                    if error == RequestError::ConnectionLoss {
                        doubtful = doubtful.or(Some(stat.czxid));
                    }
                    continue;
                }
                // The refusal says nothing about an attempt whose reply was lost.
                Err(error @ RequestError::Refused(_)) => {
                    return match doubtful {
                        Some(czxid) if self.is_audited(contender, czxid).await? => Ok(Some(Revoked::Broken)),
                        _ => Err(Error::at(error, "break the grant", contender.path.text())),
                    };
                }
                Err(error) => return Err(Error::at(error, "break the grant", contender.path.text())),
            };
            return match zoolet_model::first_failure(&results) {
                None => Ok(Some(Revoked::Broken)),
                Some((0, ErrorCode::NoNode)) => match doubtful {
                    Some(czxid) if self.is_audited(contender, czxid).await? => Ok(Some(Revoked::Broken)),
                    _ => Ok(Some(Revoked::Released)),
                },
                Some((0, ErrorCode::BadVersion)) => Ok(None),
                // Another process has written a line, or the contender took office.
                Some((1, ErrorCode::BadVersion)) => continue,
                Some((_, code)) => Err(Error::at(code, "break the grant", contender.path.text())),
            };
        }
    }

    /// Whether the audit names the contender, so that an operator has broken its place.
    ///
    /// It begins with a write: an attempt that was still in flight is then done, or never will be.
    ///
    /// # Errors
    /// [`ErrorKind::ConnectionLoss`] if a request is refused, or the audit went with the parent of
    /// this czxid: the place may have been broken or not. Fails if the session is over.
    async fn is_audited(&self, contender: &Contender, czxid: i64) -> Result<bool, Error> {
        if is_on(Mutation::AuditUnread) {
            return Ok(false);
        }
        let looks = async {
            write_through(self.line.coordinator()).await?;
            data(self.line.coordinator(), self.line.parent().text()).await
        };
        match looks.await {
            Ok(Some((written, stat))) if stat.czxid == czxid => {
                let board = Board::of(written.as_deref().unwrap_or_default());
                Ok(board.audits(contender.session.0, contender.path.name()))
            }
            Err(error) if error.is_session_over() => Err(error),
            Ok(_) | Err(_) => Err(in_doubt(contender)),
        }
    }
}

/// Returns the error of a break whose outcome is unknown.
fn in_doubt(contender: &Contender) -> Error {
    Error::at(ErrorKind::ConnectionLoss, "break the grant", contender.path.text())
}

impl<C: Coordinator> Contention<C> {
    /// Returns the path of the election's office if the contender holds it.
    ///
    /// No other candidate takes the office while the contender's place stands.
    async fn office_of(&self, contender: &Contender) -> Result<Option<Text>, Error> {
        let office = office_of(self.line.parent());
        let Some((Some(content), _)) = data(self.line.coordinator(), &office).await? else { return Ok(None) };
        let Some(token) = token_in(&content) else { return Ok(None) };
        let place = crate::ask::stat(self.line.coordinator(), contender.path.text()).await?;
        Ok(place.is_some_and(|stat| stat.czxid == token.0).then_some(office))
    }
}

impl Contender {
    /// Returns the age at `now`, at least zero.
    ///
    /// `now` is the ensemble's wall clock, which the ctime of a new znode shows.
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.since).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender() -> Contender {
        Contender {
            path: Path::from_static("/locks/door/a-lock-0000000001"),
            holds: true,
            mode: Mode::Exclusive,
            session: SessionId(0x15),
            since: SystemTime::UNIX_EPOCH + Duration::from_secs(1),
            content: None,
        }
    }

    #[test]
    fn initial_content_of_a_place_is_no_request_and_no_downgrade() {
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
    fn contender_age_is_never_negative() {
        let age = |at_ms| contender().age(SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms));
        assert_eq!((age(1_500), age(500)), (Duration::from_millis(500), Duration::ZERO));
    }
}
