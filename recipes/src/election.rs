//! An election: one leader at a time, whom everybody can see.
//!
//! Candidates stand in line. Whoever comes first leads, but that it has nobody before it does not mean that others know: it takes office by
//! creating the znode `leader` below the election's own, and that is what observers look at.
//!
//! # Guarantees
//! - Nobody takes office while another candidate's place before it stands.
//! - The leader has a [fencing token](Leadership::token), larger than that of every earlier leader, and [writes that check it](Leadership::fenced).
//! - A leader that goes wakes one candidate; a candidate that goes wakes one other, or nobody.
//! - Of candidates with [ranks](Election::rank) the one of the lowest rank that is there leads next; with [`Leadership::hand_over`] the one that was named.
//! - [`Election::observe`] tells who is in office in the end, whatever happened in between.
//!
//! # Does not guarantee
//! - What a [lock](crate::lock) does not guarantee: a leader that was stopped may believe for a while that it leads.
//! - That somebody is in office: between two leaders nobody is, for as long as a session lives after its process died.
//! - Ranks and hand-over among candidates of other libraries: those do not know of them.
//!
//! # Znodes
//! The path, and below it one ephemeral sequential znode for each candidate and, ephemeral, `leader`: the token on a line of its own, and what the leader says of itself. The path's data
//! names who leads next after a hand-over; whoever takes office writes it as it is, so that its version grows, and somebody who breaks a place in that moment looks for its office again.
//!
//! # Failures
//! Those of a [lock](crate::lock), and:
//! | what happens | what comes of it |
//! |---|---|
//! | the leader is [broken](crate::Contention::break_grant) | it is out of office at once |
//! | it is broken while it takes office | it never was in office, or is out of it at once |
//! | somebody else deletes the leader's place | the next one replaces `leader`, which is the former one's and stands until then |
//! | somebody else deletes `leader`, or puts something of his own there that is no office | the leader leads on, its writes are fenced by its place; observers hear that nobody is in office until it [says so](Leadership::proclaim) |
//! | the reply to taking office is lost | it is looked up by the token |
//! | who was named to lead next is gone | the next one in line leads |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, Election, Error};
//!
//! async fn lead<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let election = Election::new(session, &Path::from_static("/election")).described("gw-a");
//!     loop {
//!         let leadership = election.campaign().await?;
//!         let work = async { leadership.fenced().set(&Path::from_static("/plan"), None, -1).await };
//!         match leadership.run(work).await {
//!             Ok(done) => return done.map(drop),
//!             // Not leader any more, or nobody knows: stand again.
//!             Err(_) => continue,
//!         }
//!     }
//! }
//! ```

use crate::ask::{UNEXPECTED, ask_watching, connected, create, data, is_disconnection};
use crate::board::Board;
use crate::line::Line;
use crate::mutation::{Mutation, is_on};
use crate::naming::{Stands, name_of};
use crate::{Contender, Coordinator, Error, FencedWriter, FencingToken, Grant, Holding, Holdings, Naming};
use bytes::Bytes;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use zoolet_model::{CreateKind, ErrorCode, Path, Reply, Request, SessionId, Text, WriteOp};

/// The name of the znode that says who is in office.
const OFFICE: &str = "leader";

/// An election. One value is one candidate or observer.
#[derive(Debug)]
pub struct Election<C: Coordinator> {
    line: Arc<Line<C>>,
    office: Text,
}

/// Who is in office.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Office {
    /// What the leader says of itself.
    pub content: Option<Bytes>,
    /// Whose session it is.
    pub session: SessionId,
    /// The fencing token of the leader's term.
    pub token: FencingToken,
}

impl<C: Coordinator> Election<C> {
    /// The election at `path`, with the names of the documentation, no data and rank 0.
    pub fn new(coordinator: C, path: &Path) -> Self {
        Self::over(Line::new(coordinator, path, Naming::default(), Stands::Election, 0, Bytes::new()))
    }

    fn over(line: Arc<Line<C>>) -> Self {
        Self { office: office_of(line.parent()), line }
    }

    /// With other names.
    #[must_use]
    pub fn naming(self, naming: Naming) -> Self {
        Self::over(self.line.with(naming, self.line.rank(), self.line.content().clone()))
    }

    /// With data in the znodes of this candidate: who it is and where.
    #[must_use]
    pub fn described(self, content: impl Into<Bytes>) -> Self {
        Self::over(self.line.with(self.line.naming(), self.line.rank(), content.into()))
    }

    /// A candidate of a higher rank lets those of a lower one go first: 0, the default, for the gateway on mains power, 1 for that on batteries.
    /// Who leads already is not put out of office by it, and who has let somebody go first and is on its way back into the line is not waited for. Only
    /// zoolet's candidates know of ranks.
    #[must_use]
    pub fn rank(self, rank: u8) -> Self {
        Self::over(self.line.with(self.line.naming(), rank, self.line.content().clone()))
    }

    /// Stands for election, waits until it is won, and takes office. Dropping the future leaves the line.
    ///
    /// # Errors
    /// [`Error::Broken`] when somebody deleted the own znode meanwhile; [`Error::Exhausted`]; the session's.
    pub async fn campaign(&self) -> Result<Leadership<C>, Error> {
        loop {
            let (place, is_alone) = self.line.enter().await?;
            if !is_alone {
                place.wait_turn().await?;
            }
            let grant = Grant::new(place);
            if !self.must_yield(&grant).await?
                && let Some(leadership) = self.take_office(grant).await?
            {
                return Ok(leadership);
            }
            // Given up, and to the end of the line.
        }
    }

    /// Whether a candidate whose turn it is has to let somebody go first: one that was named for it, or one of a lower rank.
    async fn must_yield(&self, grant: &Grant<C>) -> Result<bool, Error> {
        let standing = self.line.standing().await?;
        let (written, _) = data(self.line.coordinator(), self.line.parent().text()).await?.unwrap_or_default();
        if let Some(named) = Board::of(written.as_deref().unwrap_or_default()).next
            && standing.iter().any(|other| name_of(&other.path) == named)
        {
            return Ok(name_of(grant.path()) != named);
        }
        Ok(standing.iter().any(|other| other.rank < self.line.rank()))
    }

    /// `None` when the grant was broken before.
    async fn take_office(&self, grant: Grant<C>) -> Result<Option<Leadership<C>>, Error> {
        let grant = grant.with_companion(self.office.clone());
        let coordinator = self.line.coordinator();
        let content = office_content(grant.token(), self.line.content());
        let (mut is_taken, mut was_lost) = (false, false);
        loop {
            let election = self.line.parent().text();
            let Some((lines, stat)) = data(coordinator, election).await? else { return Ok(None) };
            let checked = if is_on(Mutation::OfficeUnchecked) { election } else { grant.path() };
            let mut ops = vec![
                WriteOp::Check { path: checked.clone(), version: -1 },
                // Whoever breaks the place has looked whether it is in office, and names the version that this had before.
                WriteOp::SetData { path: election.clone(), data: lines, version: stat.version },
            ];
            if is_taken {
                ops.push(WriteOp::Delete { path: self.office.clone(), version: -1 });
            }
            ops.push(create(self.office.clone(), Some(content.clone()), CreateKind::Ephemeral, false));
            let results = match coordinator.submit(Request::Multi(ops)).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(UNEXPECTED),
                Err(error) if is_disconnection(error) => {
                    connected(coordinator).await?;
                    was_lost |= error == zoolet_model::Error::ConnectionLoss;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            match zoolet_model::first_failure(&results) {
                None => return Ok(Some(self.in_office(grant))),
                Some((0, ErrorCode::NoNode)) => return Ok(None),
                // The predecessor's, whose place was broken, or the own one of an attempt whose reply was lost.
                Some((_, ErrorCode::NodeExists)) => {
                    if was_lost && self.office().await?.is_some_and(|office| office.token == grant.token()) {
                        return Ok(Some(self.in_office(grant)));
                    }
                    is_taken = true;
                }
                // Somebody wrote a line, or this was done and its reply lost.
                Some((1, ErrorCode::BadVersion)) => {}
                Some((2, ErrorCode::NoNode)) if is_taken => is_taken = false,
                Some((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    fn in_office(&self, grant: Grant<C>) -> Leadership<C> {
        Leadership { grant, office: self.office.clone(), line: Arc::clone(&self.line) }
    }

    /// Who is in office now; `None` when nobody is.
    ///
    /// # Errors
    /// The session's.
    pub async fn office(&self) -> Result<Option<Office>, Error> {
        read_office(self.line.coordinator(), &self.office).await
    }

    /// Watches who is in office.
    pub fn observe(&self) -> Observer<C> {
        Observer { coordinator: self.line.coordinator().clone(), office: self.office.clone(), told: None, watch: None }
    }

    /// Everybody in the line, the leader first.
    ///
    /// # Errors
    /// The session's.
    pub async fn candidates(&self) -> Result<Vec<Contender>, Error> {
        crate::Contention::new(self.line.coordinator().clone(), self.line.parent()).contenders().await
    }
}

/// Tells who is in office, each time that it is somebody else. Who led for a moment only may be left out; who leads in the end never is.
#[derive(Debug)]
pub struct Observer<C: Coordinator> {
    coordinator: C,
    office: Text,
    told: Option<Option<Office>>,
    watch: Option<C::Watch>,
}

impl<C: Coordinator> Observer<C> {
    /// Who is in office, at once when it is asked first, and then when it is somebody else. Cancel-safe.
    ///
    /// # Errors
    /// The session's.
    pub async fn next(&mut self) -> Result<Option<Office>, Error> {
        loop {
            if let Some(watch) = &mut self.watch {
                let event = poll_fn(|context| Pin::new(&mut *watch).poll(context)).await;
                self.watch = None;
                if event.is_none() {
                    return Err(zoolet_model::Error::of(self.coordinator.state()).into());
                }
            }
            let (now, watch) = self.look().await?;
            self.watch = Some(watch);
            if self.told.as_ref() != Some(&now) {
                self.told = Some(now.clone());
                return Ok(now);
            }
        }
    }

    async fn look(&self) -> Result<(Option<Office>, C::Watch), Error> {
        // Exists and not getData, because it hears of the next one to take office as well.
        let exists = Request::Exists { path: self.office.clone(), watch: true };
        let (_, watch) = ask_watching(&self.coordinator, &exists).await?;
        Ok((read_office(&self.coordinator, &self.office).await?, watch))
    }
}

/// The office of a leader, from the moment it was taken. Dropped, it is given up without waiting.
#[derive(Debug)]
#[must_use = "whoever drops it resigns"]
pub struct Leadership<C: Coordinator> {
    grant: Grant<C>,
    office: Text,
    line: Arc<Line<C>>,
}

impl<C: Coordinator> Leadership<C> {
    /// The fencing token of this term.
    pub fn token(&self) -> FencingToken {
        self.grant.token()
    }

    /// How it is now, as far as is known without asking.
    pub fn holding(&self) -> Holding {
        self.grant.holding()
    }

    /// How it is and becomes.
    pub fn holdings(&self) -> Holdings<C> {
        self.grant.holdings()
    }

    /// [`Grant::doubted`].
    pub async fn doubted(&self) {
        self.grant.doubted().await;
    }

    /// [`Grant::ended`].
    pub async fn ended(&self) {
        self.grant.ended().await;
    }

    /// [`Grant::run`]: leads as long as the office is held.
    ///
    /// # Errors
    /// As there.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        self.grant.run(work).await
    }

    /// [`Grant::asked_to_release`]: waits until somebody asks for the office to be given up, with
    /// [`Contention::ask_to_release`](crate::Contention::ask_to_release) or [`Contention::revoke`](crate::Contention::revoke). Cancel-safe.
    ///
    /// # Errors
    /// As there.
    pub async fn asked_to_release(&self) -> Result<(), Error> {
        self.grant.asked_to_release().await
    }

    /// Writes that are done only if this is still the leader when they are.
    pub fn fenced(&self) -> FencedWriter<'_, C> {
        self.grant.fenced()
    }

    /// Tells observers something else than what the candidate said of itself; also that there is a leader, where somebody else has deleted or replaced
    /// `leader`.
    ///
    /// # Errors
    /// [`Error::Lost`]; the session's.
    pub async fn proclaim(&self, content: impl Into<Bytes>) -> Result<(), Error> {
        let data = Some(office_content(self.token(), &content.into()));
        let delete = WriteOp::Delete { path: self.office.clone(), version: -1 };
        let create = create(self.office.clone(), data, CreateKind::Ephemeral, false);
        let mut is_there = true;
        loop {
            // Anew, because what is there need not be this leader's.
            let ops = is_there.then(|| delete.clone()).into_iter().chain([create.clone()]);
            match self.grant.fenced().multi(ops).await.map(drop) {
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))) if is_there => is_there = false,
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NodeExists))) if !is_there => {
                    is_there = true
                }
                proclaimed => return proclaimed,
            }
        }
    }

    /// Gives the office up, and waits until that is done.
    ///
    /// # Errors
    /// The session is over; then the office is given up as well.
    pub async fn resign(self) -> Result<(), Error> {
        self.grant.release().await
    }

    /// Gives the office up to this candidate: everybody before it in the line lets it go first. If it leaves the line meanwhile, the next one leads.
    ///
    /// # Errors
    /// [`Error::Lost`]; the session's. Then the office is given up all the same, and anybody may lead next.
    pub async fn hand_over(self, successor: &Contender) -> Result<(), Error> {
        let name = name_of(&successor.path);
        let election = self.line.parent();
        loop {
            let (written, stat) = data(self.line.coordinator(), election.text()).await?.ok_or(Error::Lost)?;
            let mut board = Board::of(written.as_deref().unwrap_or_default());
            board.next = Some(name.to_owned());
            match self.grant.fenced().set(election, board.data(), stat.version).await {
                Ok(_) => return self.resign().await,
                // Somebody wrote a line of the audit.
                Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::BadVersion))) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn read_office<C: Coordinator>(coordinator: &C, path: &Text) -> Result<Option<Office>, Error> {
    let Some((content, stat)) = data(coordinator, path).await? else { return Ok(None) };
    // A leader's is an ephemeral of its own; anything else is somebody's who is not in this line.
    let of_leader = content.as_ref().filter(|_| stat.ephemeral_owner != 0).and_then(parse_office);
    Ok(of_leader.map(|(token, content)| Office { content, session: SessionId(stat.ephemeral_owner), token }))
}

/// The znode that says who is in office.
pub(crate) fn office_of(election: &Path) -> Text {
    zoolet_model::path::child(election.as_str(), OFFICE)
}

/// The token of whoever is in office, where this is what an office says.
pub(crate) fn token_in(content: &Bytes) -> Option<FencingToken> {
    parse_office(content).map(|(token, _)| token)
}

/// The token on a line of its own, and what the leader says of itself.
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
    fn an_office_is_read_as_it_was_written() {
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
