//! Leader election: one leader at a time, visible to every participant.
//!
//! Candidates wait in a line. The first candidate leads, but the others do not know it yet. So it
//! takes office: it creates the znode `leader` below the election's path, which observers watch.
//!
//! # Guarantees
//! - No candidate takes office while an earlier candidate's place stands.
//! - The leader has a [fencing token](Leadership::token), larger than the token of every earlier
//!   leader, and [writes that check the office](Leadership::fenced).
//! - When the leader goes, one candidate wakes. When another candidate goes, at most one wakes.
//! - Among candidates with [ranks](Election::rank), the one with the lowest rank leads next. After
//!   [`Leadership::hand_over`], the named candidate does.
//! - [`Election::observe`] always reports the latest leader, even if it skips short terms.
//!
//! # Does not guarantee
//! - Anything that a [lock](crate::lock) does not guarantee: a leader that was stopped may believe
//!   for a while that it leads.
//! - A leader at all times: the office is vacant while the session of a dead leader has not
//!   expired. The same holds for a dead candidate that is next in line.
//! - Ranks and hand-over for candidates of other libraries, which do not know them.
//!
//! # Znodes
//! - The path, with one ephemeral sequential child for each candidate. The path's data names the
//!   next leader after a hand-over.
//! - `leader`, an ephemeral child of the path: the token on the first line, then the leader's
//!   description.
//!
//! A candidate that takes office rewrites the path's data unchanged, which raises its version. An
//! operator that breaks a place at that moment then looks for its office again.
//!
//! # Failures
//! Those of a [lock](crate::lock), and:
//! - **The leader is [broken](crate::Contention::break_grant)**: it is out of office at once.
//! - **A candidate is broken while it takes office**: it never was in office, or is out at once.
//! - **A foreign client deletes the leader's place**: the former leader's `leader` znode stands
//!   until the next leader replaces it.
//! - **A foreign client deletes `leader`, or replaces it by data of another form**: the leader
//!   still leads, and its place fences its writes. Observers see a vacant office until the leader
//!   calls [`Leadership::proclaim`].
//! - **The reply to taking office is lost**: the candidate finds its office by the token.
//! - **The candidate that was named to lead next is gone**: the next one in line leads.
//!
//! # Example
//! ```
//! use zoolet::recipes::{Election, Hold};
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn lead<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let election = Election::new(session, &Path::from_static("/election")).described("gw-a");
//!     // Paused in doubt. Each term begins the work anew; the call returns when the work has ended.
//!     let work = |term: Hold<C>| async move { term.fenced().put(&Path::from_static("/plan"), "go").await };
//!     election.lead(work).await?.map(drop)
//! }
//! ```

use crate::ask::{BROKEN, bytes, connected, create, data, is_disconnection};
use crate::board::Board;
use crate::feed::{Asking, AskingOnce};
use crate::grant::InDoubt;
use crate::line::Line;
use crate::mutation::{Mutation, is_on};
use crate::naming::{Stands, name_of};
use crate::{
    Contender, Coordinator, CreateOptions, Error, ErrorKind, FencedWriter, FencingToken, Grant, GrantEnd, Hold,
    Holding, Holdings, Naming, Op, SafeUntil,
};
use bytes::Bytes;
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use zoolet_model::{
    CreateKind, ErrorCode, IntoData, Path, Reply, Request, RequestError, SessionId, Stat, Text, Version, WriteOp,
};

/// Name of the znode that shows the leader in office.
const OFFICE: &str = "leader";

/// An election, as one candidate or observer sees it.
///
/// Clones are handles to the same candidate.
#[derive(Clone, Debug)]
pub struct Election<C: Coordinator> {
    line: Arc<Line<C>>,
    office: Text,
}

/// The leader in office.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Office {
    /// The leader's description; `None` if it is empty.
    pub content: Option<Bytes>,
    /// The leader's session.
    pub session: SessionId,
    /// Fencing token of the leader's term.
    pub token: FencingToken,
}

impl<C: Coordinator> Election<C> {
    /// Returns the election at `path`.
    ///
    /// It uses the documentation's znode names, no description and rank 0.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self::over(Line::new(coordinator, path, Naming::default(), Stands::Election, 0, Bytes::new()))
    }

    fn over(line: Arc<Line<C>>) -> Self {
        Self { office: office_of(line.parent()), line }
    }

    /// Uses the znode names of another library.
    #[must_use]
    pub fn naming(self, naming: Naming) -> Self {
        Self::over(self.line.with(naming, self.line.rank(), self.line.content().clone()))
    }

    /// Describes this candidate in its znodes: its name and address, for example.
    #[must_use]
    pub fn described(self, content: impl IntoData) -> Self {
        Self::over(self.line.with(self.line.naming(), self.line.rank(), bytes(content)))
    }

    /// Sets this candidate's rank; candidates with lower ranks go first.
    ///
    /// The default is 0. For example, use 0 for a gateway on mains power and 1 for one on
    /// batteries. A rank does not remove a leader from office. A candidate that lets another one go
    /// first leaves the line and enters it again. Meanwhile, no candidate waits for it. Only
    /// zoolet's candidates know ranks.
    #[must_use]
    pub fn rank(self, rank: u8) -> Self {
        Self::over(self.line.with(self.line.naming(), rank, self.line.content().clone()))
    }

    /// Stands for election, waits for its turn, and takes office.
    ///
    /// Dropping the future leaves the line.
    ///
    /// # Errors
    /// - [`ErrorKind::Broken`] if another client deleted this candidate's znode meanwhile.
    /// - [`ErrorKind::Exhausted`] if the sequence numbers below the path are nearly used up.
    /// - Fails if the session ends or a request is refused.
    pub async fn campaign(&self) -> Result<Leadership<C>, Error> {
        loop {
            let (place, is_alone) = self.line.enter().await?;
            if !is_alone {
                place.wait_turn().await?;
            }
            // Told once the candidate is in office.
            let grant = Grant::untold(place);
            if !self.must_yield(&grant).await?
                && let Some(leadership) = self.take_office(grant).await?
            {
                return Ok(leadership);
            }
            // The place was given up. Enter again at the end of the line.
        }
    }

    /// Stands for election and leads, again and again, until the work has ended.
    ///
    /// In each term it begins the work, which is paused in doubt as by [`Leadership::lead`]. If the
    /// office is lost while the session lives, the candidate stands again. When the work has ended,
    /// the leader resigns without waiting.
    ///
    /// # Errors
    /// As [`Election::campaign`], except [`ErrorKind::Broken`]: then the
    /// candidate stands again. [`ErrorKind::GrantLost`] if the session
    /// ended during a term.
    pub async fn lead<F: Future>(&self, work: impl FnMut(Hold<C>) -> F) -> Result<F::Output, Error> {
        self.lead_with(InDoubt::Pause, work).await
    }

    /// As [`Election::lead`], but the work is cancelled in doubt and begun anew after that, as by
    /// [`Leadership::lead_restarting`].
    ///
    /// # Errors
    /// As [`Election::lead`].
    pub async fn lead_restarting<F: Future>(&self, work: impl FnMut(Hold<C>) -> F) -> Result<F::Output, Error> {
        self.lead_with(InDoubt::Restart, work).await
    }

    async fn lead_with<F: Future>(
        &self,
        in_doubt: InDoubt,
        mut work: impl FnMut(Hold<C>) -> F,
    ) -> Result<F::Output, Error> {
        loop {
            let leadership = match self.campaign().await {
                Err(error) if error.kind() == ErrorKind::Broken => continue,
                campaigned => campaigned?,
            };
            match leadership.grant.hold_with(in_doubt, &mut work).await {
                Err(error) if error.kind() == ErrorKind::GrantLost(GrantEnd::Broken) => {}
                ended => return ended,
            }
        }
    }

    /// Whether a candidate with its turn must let another one go first.
    ///
    /// That is the candidate named by a hand-over, or else one with a lower rank.
    async fn must_yield(&self, grant: &Grant<C>) -> Result<bool, Error> {
        let standing = self.line.standing().await?;
        let (written, _) = data(self.line.coordinator(), self.line.parent().text()).await?.unwrap_or_default();
        if let Some(named) = Board::of(written.as_deref().unwrap_or_default()).next
            && standing.iter().any(|other| name_of(&other.path) == named)
        {
            return Ok(grant.path().name() != named);
        }
        Ok(standing.iter().any(|other| other.rank < self.line.rank()))
    }

    /// Takes office; `None` if the grant was broken before.
    async fn take_office(&self, grant: Grant<C>) -> Result<Option<Leadership<C>>, Error> {
        let mut grant = grant.with_companion(self.office.clone());
        let coordinator = self.line.coordinator();
        let content = office_content(grant.token(), self.line.content());
        let (mut is_taken, mut was_lost) = (false, false);
        loop {
            let election = self.line.parent().text();
            let Some((lines, stat)) = data(coordinator, election).await? else { return Ok(None) };
            let checked = if is_on(Mutation::OfficeUnchecked) { election } else { grant.path().text() };
            let mut ops = vec![
                WriteOp::Check { path: checked.clone(), version: -1 },
                // `break_grant` reads this version, then looks for the office, and requires the
                // same version in its write. So this write makes a concurrent break look again.
                WriteOp::SetData { path: election.clone(), data: lines, version: stat.version },
            ];
            if is_taken {
                ops.push(WriteOp::Delete { path: self.office.clone(), version: -1 });
            }
            ops.push(create(self.office.clone(), Some(content.clone()), CreateKind::Ephemeral, false));
            let gaps = coordinator.gaps();
            let results = match coordinator.submit(Request::Multi(ops)).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(Error::unexpected()),
                Err(error) if is_disconnection(error) => {
                    connected(coordinator).await?;
                    was_lost |= error == RequestError::ConnectionLoss;
                    continue;
                }
                Err(error) => return Err(Error::at(error, "take the office", &self.office)),
            };
            match zoolet_model::first_failure(&results) {
                None => {
                    grant.place_mut().found_at(gaps);
                    return Ok(Some(self.in_office(grant)));
                }
                Some((0, ErrorCode::NoNode)) => return Ok(None),
                // A predecessor's office whose place was deleted, or this candidate's own if a
                // reply was lost.
                Some((_, ErrorCode::NodeExists)) => {
                    if was_lost && self.office().await?.is_some_and(|office| office.token == grant.token()) {
                        return Ok(Some(self.in_office(grant)));
                    }
                    is_taken = true;
                }
                // The election's data has changed, or this write was done and its reply lost.
                Some((1, ErrorCode::BadVersion)) => {}
                Some((2, ErrorCode::NoNode)) if is_taken => is_taken = false,
                Some((_, code)) => return Err(Error::at(code, "take the office", &self.office)),
            }
        }
    }

    fn in_office(&self, mut grant: Grant<C>) -> Leadership<C> {
        grant.tell();
        Leadership { grant, office: self.office.clone(), line: Arc::clone(&self.line) }
    }

    /// Returns the leader in office; `None` if the office is vacant.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn office(&self) -> Result<Option<Office>, Error> {
        read_office(self.line.coordinator(), &self.office).await
    }

    /// Returns an observer of the office.
    pub fn observe(&self) -> Observer<C> {
        Observer::new(Some(self.line.coordinator().clone()), self.office.clone())
    }

    /// Lists the candidates in line, the leader first.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    pub async fn candidates(&self) -> Result<Vec<Contender>, Error> {
        crate::Contention::new(self.line.coordinator().clone(), self.line.parent()).contenders().await
    }
}

/// Reports each change of the office.
///
/// A short term may be skipped, but the latest leader is always reported. As a [`Stream`] it ends
/// after the error that ends its session.
#[derive(Debug)]
#[must_use = "an observer follows the office only while it is polled"]
pub struct Observer<C: Coordinator> {
    /// `None` before the first session, for a client.
    coordinator: Option<C>,
    office: Text,
    reported: Option<Option<Office>>,
    look: Look<C>,
    is_over: bool,
}

/// What an observer waits for.
#[derive(Debug)]
enum Look<C: Coordinator> {
    Begins,
    /// A watch is being registered.
    Arms(AskingOnce<C>),
    /// The office is being read; the watch is registered.
    Reads(Asking<C>, C::Watch),
    /// The office was read.
    Waits(C::Watch),
}

impl<C: Coordinator> Observer<C> {
    /// Returns an observer, of the election at `path`, that waits for its first session.
    pub(crate) fn detached(path: &Path) -> Self {
        Self::new(None, office_of(path))
    }

    fn new(coordinator: Option<C>, office: Text) -> Self {
        Self { coordinator, office, reported: None, look: Look::Begins, is_over: false }
    }

    /// Goes on with another session. If the leader is not the last one reported, it is reported.
    pub fn resume(&mut self, coordinator: C) {
        self.coordinator = Some(coordinator);
        (self.look, self.is_over) = (Look::Begins, false);
    }

    /// Returns the leader that was last reported; `None` if the office was vacant, or before the
    /// first report.
    pub fn current(&self) -> Option<&Office> {
        self.reported.as_ref().and_then(Option::as_ref)
    }

    /// Returns the office: at once first, then after each change.
    ///
    /// `None` if the office is vacant. Cancel-safe.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
    #[allow(clippy::should_implement_trait, reason = "a stream's next, as futures name it: it returns a future")]
    pub fn next(&mut self) -> impl Future<Output = Result<Option<Office>, Error>> + Send + '_ {
        poll_fn(|context| self.poll_office(context))
    }

    pub(crate) fn poll_office(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Office>, Error>> {
        let Self { coordinator: Some(coordinator), office, reported, look, .. } = self else { return Poll::Pending };
        loop {
            match look {
                Look::Begins => {
                    // The watch of `Exists`, unlike that of `GetData`, also fires when the next
                    // leader takes office.
                    let exists = Request::Exists { path: office.clone(), watch: true };
                    *look = Look::Arms(AskingOnce::new(coordinator, exists));
                }
                Look::Arms(asking) => {
                    let armed = ready!(asking.poll(coordinator, context));
                    *look = Look::Begins;
                    let (_, watch) = armed?;
                    let read = Request::GetData { path: office.clone(), watch: false };
                    *look = Look::Reads(Asking::new(coordinator, read), watch);
                }
                Look::Reads(asking, _) => {
                    let answer = ready!(asking.poll(coordinator, context));
                    let Look::Reads(_, watch) = std::mem::replace(look, Look::Begins) else { continue };
                    let now = match answer? {
                        None => None,
                        Some(Reply::Data(content, stat)) => office_of_leader(content.as_ref(), &stat),
                        Some(_) => return Poll::Ready(Err(Error::unexpected())),
                    };
                    *look = Look::Waits(watch);
                    if reported.as_ref() != Some(&now) {
                        *reported = Some(now.clone());
                        return Poll::Ready(Ok(now));
                    }
                }
                Look::Waits(watch) => {
                    let event = ready!(Pin::new(watch).poll(context));
                    *look = Look::Begins;
                    if event.is_none() {
                        return Poll::Ready(Err(Error::at(RequestError::of(coordinator.state()), "watch", office)));
                    }
                }
            }
        }
    }
}

impl<C: Coordinator> Unpin for Observer<C> {}

impl<C: Coordinator> Stream for Observer<C> {
    type Item = Result<Option<Office>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let office = ready!(self.poll_office(context));
        self.is_over = matches!(&office, Err(error) if error.is_session_over());
        Poll::Ready(Some(office))
    }
}

/// A leader's term, from the moment when it took office.
///
/// Dropping it resigns without waiting.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership<C: Coordinator> {
    grant: Grant<C>,
    office: Text,
    line: Arc<Line<C>>,
}

impl<C: Coordinator> Leadership<C> {
    /// Returns the fencing token of this term.
    pub fn token(&self) -> FencingToken {
        self.grant.token()
    }

    /// Returns the present state, without asking the ensemble.
    pub fn holding(&self) -> Holding {
        self.grant.holding()
    }

    /// As [`Grant::safe_until`].
    pub fn safe_until(&self) -> SafeUntil {
        self.grant.safe_until()
    }

    /// Returns a stream of the present state and each change.
    pub fn holdings(&self) -> Holdings<C> {
        self.grant.holdings()
    }

    /// As [`Grant::doubted`].
    pub async fn doubted(&self) {
        self.grant.doubted().await;
    }

    /// As [`Grant::ended`].
    pub async fn ended(&self) {
        self.grant.ended().await;
    }

    /// Runs work while the office is held, and pauses it in doubt: [`Grant::hold_for`].
    ///
    /// # Errors
    /// As [`Grant::hold_for`].
    pub async fn lead<F: Future>(&self, work: impl FnOnce(Hold<C>) -> F) -> Result<F::Output, Error> {
        self.grant.hold_for(work).await
    }

    /// Runs work while the office is held, cancels it in doubt, and begins it anew after that:
    /// [`Grant::hold_restarting`].
    ///
    /// # Errors
    /// As [`Grant::hold_for`].
    pub async fn lead_restarting<F: Future>(&self, work: impl FnMut(Hold<C>) -> F) -> Result<F::Output, Error> {
        self.grant.hold_restarting(work).await
    }

    /// Runs `work`, and drops it once the office is in doubt, as [`Grant::run`].
    ///
    /// # Errors
    /// As [`Grant::run`].
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        self.grant.run(work).await
    }

    /// Waits until the leader is asked to give up the office. Cancel-safe.
    ///
    /// As [`Grant::asked_to_release`].
    /// [`Contention::ask_to_release`](crate::Contention::ask_to_release) and
    /// [`Contention::revoke`](crate::Contention::revoke) ask for it.
    ///
    /// # Errors
    /// As [`Grant::asked_to_release`].
    pub async fn asked_to_release(&self) -> Result<(), Error> {
        self.grant.asked_to_release().await
    }

    /// Returns a writer whose writes are done only while this leader leads.
    pub fn fenced(&self) -> FencedWriter<C> {
        self.grant.fenced()
    }

    /// Replaces the description that observers see.
    ///
    /// Also creates `leader` again if a foreign client has deleted or replaced it.
    ///
    /// # Errors
    /// - [`ErrorKind::GrantLost`] if the office is lost.
    /// - [`ErrorKind::Doubtful`] if the session has no connection. Nothing was sent.
    /// - Fails if the session ends meanwhile or a request is refused.
    pub async fn proclaim(&self, content: impl IntoData) -> Result<(), Error> {
        let data = office_content(self.token(), &bytes(content));
        let office = Path::of_existing(self.office.clone());
        let delete = Op::delete(&office, Version::Any);
        let create = Op::create_with(&office, data, &CreateOptions::ephemeral());
        let mut is_there = true;
        loop {
            // Delete and create anew: the znode there may be another client's.
            let ops = is_there.then(|| delete.clone()).into_iter().chain([create.clone()]);
            match self.grant.fenced().multi(ops).await.map(drop) {
                Err(error) if error.is_no_node() && is_there => is_there = false,
                Err(error) if error.is_node_exists() && !is_there => is_there = true,
                proclaimed => return proclaimed,
            }
        }
    }

    /// Gives up the office, and waits until its place is deleted.
    ///
    /// # Errors
    /// As [`Grant::release`]. The office is given up in any case.
    pub async fn resign(self) -> Result<(), Error> {
        self.grant.release().await
    }

    /// Gives up the office to `successor`: earlier candidates let it go first.
    ///
    /// If it leaves the line meanwhile, the next candidate leads.
    ///
    /// # Errors
    /// After an error the office is given up as well, and any candidate may lead next.
    /// - [`ErrorKind::GrantLost`] if the office is lost.
    /// - [`ErrorKind::Doubtful`] if the session has no connection.
    /// - Fails if the session ends or a request is refused.
    pub async fn hand_over(self, successor: &Contender) -> Result<(), Error> {
        let name = successor.path.name();
        let election = self.line.parent();
        let lost = || Error::at(BROKEN, "hand over", election.text());
        loop {
            let (written, stat) = data(self.line.coordinator(), election.text()).await?.ok_or_else(lost)?;
            let mut board = Board::of(written.as_deref().unwrap_or_default());
            board.next = Some(name.to_owned());
            match self.grant.fenced().set(election, board.data(), &stat).await {
                Ok(_) => return self.resign().await,
                // An operator has written an audit line.
                Err(error) if error.is_bad_version() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn read_office<C: Coordinator>(coordinator: &C, path: &Text) -> Result<Option<Office>, Error> {
    let Some((content, stat)) = data(coordinator, path).await? else { return Ok(None) };
    Ok(office_of_leader(content.as_ref(), &stat))
}

/// Returns the leader that a znode shows; `None` if a foreign client made it.
fn office_of_leader(content: Option<&Bytes>, stat: &Stat) -> Option<Office> {
    // A leader's znode is an ephemeral. A persistent one is from a foreign client.
    let (token, content) = content.filter(|_| stat.ephemeral_owner != 0).and_then(parse_office)?;
    Some(Office { content, session: SessionId(stat.ephemeral_owner), token })
}

/// Returns the path of the znode that shows the leader in office.
pub(crate) fn office_of(election: &Path) -> Text {
    zoolet_model::path::child(election.as_str(), OFFICE)
}

/// Returns the token in a `leader` znode's data; `None` if malformed.
pub(crate) fn token_in(content: &Bytes) -> Option<FencingToken> {
    parse_office(content).map(|(token, _)| token)
}

/// Builds the data of `leader`: the token's line, then the description.
fn office_content(token: FencingToken, content: &Bytes) -> Bytes {
    [token.to_string().as_bytes(), b"\n", content].concat().into()
}

fn parse_office(data: &Bytes) -> Option<(FencingToken, Option<Bytes>)> {
    let end = data.iter().position(|&byte| byte == b'\n')?;
    let token = std::str::from_utf8(&data[..end]).ok()?.parse().ok()?;
    let content = data.slice(end + 1..);
    Some((FencingToken(token), (!content.is_empty()).then_some(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn office_content_round_trips_and_foreign_data_is_refused() {
        for content in [&b""[..], b"gw-a:8080", b"two\nlines"] {
            let data = office_content(FencingToken(77), &Bytes::copy_from_slice(content));
            let expected = (!content.is_empty()).then(|| Bytes::copy_from_slice(content));
            assert_eq!(parse_office(&data), Some((FencingToken(77), expected)));
        }
        for strange in [&b""[..], b"77", b"x\n"] {
            assert_eq!(parse_office(&Bytes::copy_from_slice(strange)), None);
        }
    }
}
