//! Lines: the queueing that locks and elections have in common.
//!
//! Each participant creates a sequential ephemeral znode below one parent. The server appends a
//! number that tells the order of arrival. A participant has its turn once no conflicting
//! participant is before it. Until then it watches the nearest one, so each departure wakes one
//! participant.
//!
//! If the reply to the create is lost, the participant finds its znode by the GUID in the name.

use crate::ask::{ask, ask_watching, children, connected, create, data, fired, is_disconnection, make_container};
use crate::contention::is_downgraded;
use crate::mutation::{Mutation, is_on};
use crate::naming::{self, Mode, Stands};
use crate::telling::{Telling, Told};
use crate::{Coordinator, Errand, Error, ErrorKind, FencingToken, GrantEnd, Guid, Instant, Naming, Preference};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tracing::Span;
use zoolet_model::{
    CreateKind, ErrorCode, EventKind, Names, OpResult, Path, Reply, Request, RequestError, SessionState, Stat, Text,
    WriteOp,
};

/// Numbers kept in reserve below `i32::MAX`, where the server stops counting. Beyond it two
/// participants would get the same number.
const NUMBERS_LEFT_MIN: u32 = 1 << 16;

/// One participant's side of a line.
#[derive(Debug)]
pub(crate) struct Line<C> {
    coordinator: C,
    parent: Path,
    naming: Naming,
    stands: Stands,
    rank: u8,
    /// Whether readers or writers overtake the other kind. All participants of a line must use the
    /// same preference: see [`Line::refuse_another_preference`].
    preference: Preference,
    mode: Mode,
    content: Bytes,
    guid: Guid,
    /// The path of this participant's znodes, without the number.
    prefix: Text,
    /// Whether a place with this GUID is taken or being taken.
    ///
    /// A second place needs another GUID: after a lost reply, a search by GUID must not find the
    /// first one. After an abandoned attempt the flag stays set, because every znode with this GUID
    /// is going to be deleted.
    is_taken: AtomicBool,
    /// A copy of this line with another GUID, for use while this GUID is taken.
    spare: Mutex<Option<Arc<Self>>>,
    /// The largest known czxid of a znode with this GUID.
    newest: AtomicI64,
}

impl<C: Coordinator> Line<C> {
    pub(crate) fn new(
        coordinator: C,
        parent: &Path,
        naming: Naming,
        stands: Stands,
        rank: u8,
        content: Bytes,
    ) -> Arc<Self> {
        Self::preferring(coordinator, parent, naming, stands, rank, Preference::Fair, content)
    }

    fn preferring(
        coordinator: C,
        parent: &Path,
        naming: Naming,
        stands: Stands,
        rank: u8,
        preference: Preference,
        content: Bytes,
    ) -> Arc<Self> {
        let guid = Guid::from_random_bits(coordinator.random_bits());
        let mode = if stands == Stands::Read { Mode::Shared } else { Mode::Exclusive };
        Arc::new(Self {
            prefix: naming::path_prefix(parent.as_str(), naming, guid, stands, rank, preference),
            coordinator,
            parent: parent.clone(),
            naming,
            stands,
            rank,
            preference,
            mode,
            content,
            guid,
            is_taken: AtomicBool::new(false),
            spare: Mutex::new(None),
            newest: AtomicI64::new(-1),
        })
    }

    /// Returns a copy of this line with another naming, rank and content.
    pub(crate) fn with(&self, naming: Naming, rank: u8, content: Bytes) -> Arc<Self> {
        let c = self.coordinator.clone();
        Self::preferring(c, &self.parent, naming, self.stands, rank, self.preference, content)
    }

    /// Returns a copy of this line for another purpose, such as writing instead of reading.
    pub(crate) fn standing_for(&self, stands: Stands) -> Arc<Self> {
        let (c, content) = (self.coordinator.clone(), self.content.clone());
        Self::preferring(c, &self.parent, self.naming, stands, self.rank, self.preference, content)
    }

    /// Returns a copy of this line for a participant with this preference.
    pub(crate) fn with_preference(&self, preference: Preference) -> Arc<Self> {
        let (c, content) = (self.coordinator.clone(), self.content.clone());
        Self::preferring(c, &self.parent, self.naming, self.stands, self.rank, preference, content)
    }

    /// Refuses to queue behind a participant with another preference.
    ///
    /// If the two followed different rules, both could hold the lock. Each participant creates its
    /// znode before it lists the others, and the znode's name tells its preference. So the later of
    /// two participants finds the earlier one while that still stands in the line. Only the later
    /// one is refused.
    pub(crate) fn refuse_another_preference(&self, names: &Names, own: u32) -> Result<(), Error> {
        if !matches!(self.stands, Stands::Read | Stands::Write) || is_on(Mutation::PreferenceUnchecked) {
            return Ok(());
        }
        let differs = |name: &str| {
            naming::number(name).is_some_and(|number| number < own) && naming::preference(name) != self.preference
        };
        if names.iter().any(differs) { Err(ErrorKind::Disagreement.into()) } else { Ok(()) }
    }

    pub(crate) fn coordinator(&self) -> &C {
        &self.coordinator
    }

    pub(crate) fn parent(&self) -> &Path {
        &self.parent
    }

    pub(crate) fn naming(&self) -> Naming {
        self.naming
    }

    pub(crate) fn rank(&self) -> u8 {
        self.rank
    }

    pub(crate) fn content(&self) -> &Bytes {
        &self.content
    }

    /// Returns the participants in the line, in order of arrival.
    pub(crate) async fn standing(&self) -> Result<Vec<Standing>, Error> {
        let names = children(&self.coordinator, self.parent.text()).await?;
        let mut standing: Vec<_> = names.iter().filter_map(|name| Standing::of(self.parent.as_str(), name)).collect();
        standing.sort_by_key(|standing| standing.number);
        Ok(standing)
    }

    /// Returns this line, or a copy with another GUID if this GUID is taken. Marks the GUID taken.
    fn untaken(self: &Arc<Self>) -> Arc<Self> {
        if !self.is_taken.swap(true, SeqCst) {
            return Arc::clone(self);
        }
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = spare.as_ref().filter(|line| !line.is_taken.swap(true, SeqCst)) {
            return Arc::clone(line);
        }
        let line = self.with(self.naming, self.rank, self.content.clone());
        line.is_taken.store(true, SeqCst);
        *spare = Some(Arc::clone(&line));
        line
    }

    /// Takes a place; also returns whether the line was empty before.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<(Place<C>, bool), Error> {
        self.enter_for(&self.parent).await
    }

    /// As [`Line::enter`], and tells of the place as one of the recipe at `subject`.
    pub(crate) async fn enter_for(self: &Arc<Self>, subject: &Path) -> Result<(Place<C>, bool), Error> {
        let since = self.coordinator.now();
        let (mut place, is_alone) = self.enter_untold().await?;
        place.telling = Some(Telling::waits(&self.coordinator, subject, &place.path, since));
        Ok((place, is_alone))
    }

    /// As [`Line::enter`], for a place that is not reported.
    pub(crate) async fn enter_untold(self: &Arc<Self>) -> Result<(Place<C>, bool), Error> {
        let line = self.untaken();
        let entering = Entering { line: Some(line) };
        let entered = entering.enter().await?;
        let is_alone = entered.is_alone;
        Ok((entering.arrived(entered)?, is_alone))
    }
}

/// A place that is being taken. Dropping it deletes any znode it may have created.
struct Entering<C: Coordinator> {
    /// `None` once there is a [`Place`].
    line: Option<Arc<Line<C>>>,
}

/// The znode of a place that was taken.
struct Entered {
    path: Text,
    stat: Stat,
    /// Whether the line was empty before.
    is_alone: bool,
    /// [`Coordinator::gaps`] before the znode was created.
    gaps: u64,
}

impl<C: Coordinator> Entering<C> {
    async fn enter(&self) -> Result<Entered, Error> {
        let Some(line) = &self.line else { return Err(ErrorKind::Broken.into()) };
        let c = &line.coordinator;
        loop {
            // Read before the create: its answer, over the same connection, shows that the place
            // stood.
            let gaps = c.gaps();
            let created = c.submit(Request::Write(create(
                line.prefix.clone(),
                Some(line.content.clone()),
                CreateKind::Ephemeral,
                true,
            )));
            // Pipelined with the create. Usually the line is empty, and then this answer saves
            // listing the children.
            let parent = c.submit(Request::Exists { path: line.parent.text().clone(), watch: false });
            match created.await {
                Ok(Reply::PathStat(path, stat)) => {
                    let is_alone = matches!(parent.await, Ok(Reply::Stat(parent))
                        if parent.num_children == 1 && parent.pzxid == stat.czxid);
                    return Ok(Entered { path, stat, is_alone, gaps });
                }
                Ok(_) => return Err(Error::unexpected()),
                Err(RequestError::Refused(ErrorCode::NoNode)) => make_container(c, &line.parent).await?,
                Err(error) if is_disconnection(error) => {
                    connected(c).await?;
                    if error == RequestError::ConnectionLoss
                        && !is_on(Mutation::OwnNotSought)
                        && let Some((path, stat)) = line.find_own().await?
                    {
                        return Ok(Entered { path, stat, is_alone: false, gaps });
                    }
                }
                Err(error) => return Err(Error::at(error, "enter the line", line.parent.text())),
            }
        }
    }

    fn arrived(mut self, entered: Entered) -> Result<Place<C>, Error> {
        let Entered { path, stat, gaps, .. } = entered;
        let number = naming::number(&path).ok_or(Error::unexpected())?;
        let line = self.line.take().ok_or(Error::unexpected())?;
        line.newest.fetch_max(stat.czxid, SeqCst);
        let path = Path::of_existing(path);
        let token = stat.czxid;
        let place = Place { line, path, number, token, companion: None, gaps, fate: OnceLock::new(), telling: None };
        if number > i32::MAX as u32 - NUMBERS_LEFT_MIN {
            return Err(ErrorKind::Exhausted.into());
        }
        Ok(place)
    }
}

impl<C: Coordinator> Drop for Entering<C> {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            if is_on(Mutation::GuidReused) {
                line.is_taken.store(false, SeqCst);
            }
            if is_on(Mutation::CancelLeavesPlace) {
                return;
            }
            line.coordinator.run_errand(Errand::find_and_delete(line.parent.text().clone(), line.guid));
        }
    }
}

impl<C: Coordinator> Line<C> {
    /// Returns the znode whose create was carried out but not answered, if there is one.
    async fn find_own(&self) -> Result<Option<(Text, Stat)>, Error> {
        let Some(names) = self.settled_children().await? else { return Ok(None) };
        for name in names.iter().filter(|name| self.guid.is_in(name)) {
            let path = zoolet_model::path::child(self.parent.as_str(), name);
            // The name alone proves nothing. A znode of a former session disappears with that
            // session, and a place that this line gave up may still exist.
            let owner = self.coordinator.session().0;
            let is_own = |stat: &Stat| stat.ephemeral_owner == owner || is_on(Mutation::OwnerUnchecked);
            let is_new = |stat: &Stat| stat.czxid > self.newest.load(SeqCst);
            match data(&self.coordinator, &path).await? {
                Some((_, stat)) if is_own(&stat) && is_new(&stat) => return Ok(Some((path, stat))),
                Some(_) | None => {}
            }
        }
        Ok(None)
    }

    /// Returns the children, after a write; `None` if there is no parent.
    ///
    /// A create still in flight on an old connection is carried out before the write, or never.
    async fn settled_children(&self) -> Result<Option<Names>, Error> {
        let c = &self.coordinator;
        let check = Request::Multi(vec![WriteOp::Check { path: self.parent.text().clone(), version: -1 }]);
        match crate::ask::ask(c, &check).await? {
            Reply::Multi(results) if results.iter().any(|result| matches!(result, OpResult::Failed(_))) => Ok(None),
            Reply::Multi(_) => children(c, self.parent.text()).await.map(Some),
            _ => Err(Error::unexpected()),
        }
    }
}

/// A place in the line. Dropping it gives the place up without waiting.
#[derive(Debug)]
pub(crate) struct Place<C: Coordinator> {
    line: Arc<Line<C>>,
    path: Path,
    number: u32,
    /// The fencing token.
    token: i64,
    /// Another znode that is deleted together with this one.
    companion: Option<Text>,
    /// [`Coordinator::gaps`] when the place was created, or a write found it before the grant.
    gaps: u64,
    /// Created for the first listener, so that merely taking a lock allocates nothing.
    fate: OnceLock<Arc<Fate>>,
    /// `None` for a place that is not reported.
    telling: Option<Telling>,
}

impl<C: Coordinator> Drop for Place<C> {
    fn drop(&mut self) {
        let end = self.end();
        // Handles to the grant may outlive it.
        if let Some(fate) = self.fate.get() {
            fate.is_gone.store(true, Relaxed);
        }
        self.line.coordinator.run_errand(match self.companion.take() {
            None => Errand::delete(self.path.text().clone()),
            Some(companion) => Errand::delete_both(self.path.text().clone(), companion),
        });
        self.line.is_taken.store(false, SeqCst);
        // Last, because a logger or recorder may panic.
        self.tell_end(end);
    }
}

/// State of a place's znode, as its listeners know it.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// The znode was deleted: the place was broken.
    pub(crate) is_gone: AtomicBool,
    /// The place is going to be broken: see
    /// [`Contention::revoke_safely`](crate::Contention::revoke_safely).
    pub(crate) is_withdrawn: AtomicBool,
    /// The latest instant that a listener may have reported, in nanoseconds since the start of the
    /// session's clock.
    safe_until_ns: AtomicU64,
    /// Number of doubts begun and ended so far: odd while the grant is in doubt.
    ///
    /// A doubt lasts until a write that was sent during it has found the znode.
    doubts: AtomicU64,
    /// [`Coordinator::gaps`] when a write last found the znode.
    checked_gaps: AtomicU64,
    /// `None` if the place is not reported.
    told: Option<Told>,
}

impl Fate {
    fn created(gaps: u64, told: Option<Told>) -> Self {
        Self { checked_gaps: AtomicU64::new(gaps), told, ..Self::default() }
    }

    /// Returns the latest safe instant that a listener may have reported; none once the znode is
    /// gone, or the grant was given up.
    pub(crate) fn safe_until(&self) -> Instant {
        if self.is_gone.load(Relaxed) {
            return Instant::START;
        }
        Instant::at(Duration::from_nanos(self.safe_until_ns.load(SeqCst)))
    }

    /// Whether the place may have been broken, and another participant granted the same, since a
    /// write last found its znode.
    ///
    /// That is so after a doubt, and after a gap: the session was away, perhaps for so short a time
    /// that its reader never saw it suspended. `gaps` is the present count.
    pub(crate) fn must_be_checked(&self, gaps: u64) -> bool {
        is_doubt(self.doubts.load(SeqCst)) || self.checked_gaps.load(SeqCst) != gaps
    }

    /// Returns what is known now, for a write that is sent next.
    pub(crate) fn stamp(&self, coordinator: &impl Coordinator) -> Stamp {
        Stamp { doubts: self.doubts.load(SeqCst), gaps: coordinator.gaps() }
    }

    pub(crate) fn doubt(&self, coordinator: &impl Coordinator) {
        let begun = |doubts| (!is_doubt(doubts)).then_some(doubts + 1);
        if self.doubts.fetch_update(SeqCst, SeqCst, begun).is_ok()
            && let Some(told) = &self.told
        {
            told.doubted(coordinator);
        }
    }

    /// Notes that a write has found the znode. `sent` is the stamp from before it was sent.
    ///
    /// The doubt ends if it had begun by then, and the session was not away since. A withdrawn grant
    /// is not held again.
    pub(crate) fn found(&self, coordinator: &impl Coordinator, sent: Stamp) {
        self.checked_gaps.fetch_max(sent.gaps, SeqCst);
        if is_doubt(sent.doubts)
            && coordinator.gaps() == sent.gaps
            && coordinator.state() == SessionState::Connected
            && !self.is_withdrawn.load(Relaxed)
            && self.doubts.compare_exchange(sent.doubts, sent.doubts + 1, SeqCst, SeqCst).is_ok()
            && let Some(told) = &self.told
        {
            told.held_again(coordinator);
        }
    }

    /// Tells that a listener found the grant lost.
    pub(crate) fn lost(&self, coordinator: &impl Coordinator) {
        if let Some(told) = &self.told {
            told.over(coordinator, Some(end(coordinator)));
        }
    }

    /// Extends the safe instant. The place must have stood, and not have been withdrawn, when the
    /// session was known to be safe until `safe_until`.
    pub(crate) fn extend(&self, safe_until: Instant) {
        let ns = u64::try_from(safe_until.since_start().as_nanos()).unwrap_or(u64::MAX);
        self.safe_until_ns.fetch_max(ns, SeqCst);
    }
}

/// What was known of a place when a write was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    doubts: u64,
    gaps: u64,
}

/// Whether a count of doubts begun and ended is that of a doubt.
const fn is_doubt(doubts: u64) -> bool {
    doubts % 2 == 1
}

/// Returns why a grant is over that was not given up.
fn end(coordinator: &impl Coordinator) -> GrantEnd {
    if coordinator.state().is_over() { GrantEnd::Session } else { GrantEnd::Broken }
}

/// Whether a place has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn<'a> {
    /// It has its turn.
    Now,
    /// The participant with this name is the nearest conflicting one before it.
    Behind(&'a str),
    /// The place's own znode does not exist.
    Gone,
}

impl<C: Coordinator> Place<C> {
    pub(crate) fn path(&self) -> &Text {
        self.path.text()
    }

    pub(crate) const fn znode(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Whether the parent's children `names` include this place.
    ///
    /// The whole name counts. Numbers begin again after the parent was deleted and recreated, so
    /// another participant may have this place's number.
    pub(crate) fn is_among(&self, names: &Names) -> bool {
        names.iter().any(|name| name == self.path.name())
    }

    /// Asks the ensemble whether the place still stands.
    ///
    /// It sends a write, because a lagging server would answer a read from the past.
    pub(crate) async fn stands(&self) -> Result<bool, Error> {
        let check = Request::Multi(vec![WriteOp::Check { path: self.path.text().clone(), version: -1 }]);
        let c = &self.line.coordinator;
        let sent = self.known_fate().map(|fate| fate.stamp(c));
        let Reply::Multi(results) = ask(c, &check).await? else { return Err(Error::unexpected()) };
        match zoolet_model::first_failure(&results) {
            None => {
                if let (Some(fate), Some(sent)) = (self.known_fate(), sent) {
                    fate.found(c, sent);
                }
                Ok(true)
            }
            Some((_, ErrorCode::NoNode)) => {
                self.fate().is_gone.store(true, Relaxed);
                Ok(false)
            }
            Some((_, code)) => Err(Error::at(code, "check", self.path.text())),
        }
    }

    /// Checks the place by a write if the session was away since it was created.
    ///
    /// A grant that begins now would otherwise begin in doubt.
    ///
    /// # Errors
    /// [`ErrorKind::Broken`] if the place is gone.
    pub(crate) async fn settle(&mut self) -> Result<(), Error> {
        while self.gaps != self.line.coordinator.gaps() {
            let gaps = self.line.coordinator.gaps();
            if !self.stands().await? {
                return Err(ErrorKind::Broken.into());
            }
            self.found_at(gaps);
        }
        Ok(())
    }

    /// Notes that a write has found the znode, sent when [`Coordinator::gaps`] was this.
    pub(crate) fn found_at(&mut self, gaps: u64) {
        self.gaps = self.gaps.max(gaps);
    }

    /// Replaces the token, where grants do not follow the order of creation.
    pub(crate) fn set_token(&mut self, zxid: i64) {
        self.token = zxid;
    }

    /// Notes and tells that it was granted.
    pub(crate) fn granted(&mut self) {
        if let Some(telling) = &mut self.telling {
            telling.granted(&self.line.coordinator, &self.path, FencingToken(self.token));
        }
    }

    /// Takes over the reports of `former`, which reports no more.
    pub(crate) fn tell_instead_of(&mut self, former: &mut Self) {
        self.telling = former.telling.take();
    }

    /// Returns why the place is over; `None` if it stands, as far as is known.
    fn end(&self) -> Option<GrantEnd> {
        let c = &self.line.coordinator;
        let is_gone = self.known_fate().is_some_and(|fate| fate.is_gone.load(Relaxed));
        (is_gone || c.state().is_over()).then(|| end(c))
    }

    /// Tells that the place is given up, or was lost before.
    fn tell_end(&self, end: Option<GrantEnd>) {
        let Some(telling) = &self.telling else { return };
        let c = &self.line.coordinator;
        match self.known_fate().and_then(|fate| fate.told.as_ref()) {
            Some(told) => told.over(c, end),
            None => telling.over(c, end),
        }
    }

    /// Returns the span of the wait or grant.
    pub(crate) fn span(&self) -> Span {
        self.telling.as_ref().map_or_else(Span::none, Telling::span)
    }

    pub(crate) fn set_companion(&mut self, companion: Text) {
        self.companion = Some(companion);
    }

    /// Returns the state that listeners have recorded; `None` before the first listener.
    pub(crate) fn known_fate(&self) -> Option<&Fate> {
        self.fate.get().map(|fate| &**fate)
    }

    /// Returns the state that listeners record, creating it for the first one.
    pub(crate) fn fate(&self) -> &Arc<Fate> {
        self.fate.get_or_init(|| Arc::new(Fate::created(self.gaps, self.telling.clone().map(Told::new))))
    }

    pub(crate) fn token(&self) -> i64 {
        self.token
    }

    pub(crate) fn line(&self) -> &Arc<Line<C>> {
        &self.line
    }

    /// Whether this place has its turn now.
    pub(crate) async fn has_turn(&self) -> Result<bool, Error> {
        let mut tolerated = Vec::new();
        loop {
            let Some(name) = self.blocked_by(&tolerated).await? else { return Ok(true) };
            match data(&self.line.coordinator, &self.sibling(&name)).await? {
                Some((content, stat)) if self.tolerates(content.as_ref(), &stat) => {
                    tolerated.extend(naming::number(&name))
                }
                Some(_) => return Ok(false),
                None => {}
            }
        }
    }

    /// Waits until this place has its turn.
    pub(crate) async fn wait_turn(&self) -> Result<(), Error> {
        let mut tolerated = Vec::new();
        while let Some(name) = self.blocked_by(&tolerated).await? {
            if self.wait_for(&self.sibling(&name)).await? == Waited::Tolerated {
                tolerated.extend(naming::number(&name));
            }
        }
        Ok(())
    }

    /// Returns the nearest conflicting participant before this place.
    async fn blocked_by(&self, tolerated: &[u32]) -> Result<Option<String>, Error> {
        let names = children(&self.line.coordinator, self.line.parent.text()).await?;
        self.line.refuse_another_preference(&names, self.number)?;
        match turn(&names, self.path.name(), self.line.mode, tolerated) {
            Turn::Now => Ok(None),
            Turn::Gone => Err(ErrorKind::Broken.into()),
            Turn::Behind(name) => Ok(Some(name.to_owned())),
        }
    }

    /// Waits until an earlier participant is gone, or has become a reader that this place
    /// tolerates.
    async fn wait_for(&self, path: &Text) -> Result<Waited, Error> {
        let c = &self.line.coordinator;
        let request = Request::GetData { path: path.clone(), watch: true };
        loop {
            let (there, watch) = ask_watching(c, &request).await?;
            match there {
                None => return Ok(Waited::Gone),
                Some(Reply::Data(content, stat)) if self.tolerates(content.as_ref(), &stat) => {
                    return Ok(Waited::Tolerated);
                }
                Some(_) => {}
            }
            if fired(c, watch).await?.kind == EventKind::NodeDeleted {
                return Ok(Waited::Gone);
            }
        }
    }

    fn tolerates(&self, content: Option<&Bytes>, stat: &Stat) -> bool {
        self.line.mode == Mode::Shared && is_downgraded(content, stat)
    }

    fn sibling(&self, name: &str) -> Text {
        zoolet_model::path::child(self.line.parent.as_str(), name)
    }
}

/// How a wait for an earlier participant ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waited {
    Gone,
    /// It was a writer and became a reader.
    Tolerated,
}

/// Data that a writer writes into its znode when it becomes a reader.
///
/// The znode's name still says writer, so a participant that does not know this word waits for the
/// znode to go.
pub(crate) const DOWNGRADED: &[u8] = b"downgraded";

/// Waits until the znode does not exist.
///
/// It uses `GetData`, not `Exists`: if the znode is already gone, `Exists` would leave a watch on a
/// path that may never be used again.
pub(crate) async fn wait_gone<C: Coordinator>(coordinator: &C, path: &Text) -> Result<(), Error> {
    let request = Request::GetData { path: path.clone(), watch: true };
    loop {
        let (there, watch) = ask_watching(coordinator, &request).await?;
        if there.is_none() || fired(coordinator, watch).await?.kind == EventKind::NodeDeleted {
            return Ok(());
        }
    }
}

/// Whether the place named `own` has its turn among `names`.
fn turn<'a>(names: &'a Names, own: &str, mode: Mode, tolerated: &[u32]) -> Turn<'a> {
    if is_on(Mutation::NamesComparedAsStrings) {
        return turn_by_names(names, own);
    }
    let Some(own_number) = naming::number(own) else { return Turn::Gone };
    let is_nearer =
        |number: u32, before: u32| if is_on(Mutation::WatchSmallest) { number < before } else { number > before };
    let mut nearest: Option<(u32, &str)> = None;
    let mut is_there = false;
    for name in names.iter() {
        let Some(number) = naming::number(name) else { continue };
        // The number alone may belong to another participant: see [`Place::is_among`].
        is_there |= name == own || (is_on(Mutation::PlaceKnownByNumber) && number == own_number);
        let minds = mode == Mode::Exclusive || naming::mode(name) == Mode::Exclusive;
        if number < own_number
            && minds
            && !tolerated.contains(&number)
            && nearest.is_none_or(|(before, _)| is_nearer(number, before))
        {
            nearest = Some((number, name));
        }
    }
    match nearest {
        _ if !is_there => Turn::Gone,
        Some((_, name)) => Turn::Behind(name),
        None => Turn::Now,
    }
}

/// The faulty variant of [`turn`] that compares whole names, prefix included.
fn turn_by_names<'a>(names: &'a Names, own: &str) -> Turn<'a> {
    let Some(mine) = names.iter().find(|name| *name == own) else { return Turn::Gone };
    let before = names.iter().filter(|name| naming::number(name).is_some() && *name < mine);
    before.max().map_or(Turn::Now, Turn::Behind)
}

/// A participant that stands in a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    pub(crate) path: Text,
    pub(crate) number: u32,
    pub(crate) mode: Mode,
    pub(crate) rank: u8,
}

impl Standing {
    fn of(parent: &str, name: &str) -> Option<Self> {
        let number = naming::number(name)?;
        Some(Self {
            path: zoolet_model::path::child(parent, name),
            number,
            mode: naming::mode(name),
            rank: naming::rank(name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Names {
        names.iter().collect()
    }

    #[test]
    fn waiter_watches_the_nearest_lower_number_whatever_its_prefix() {
        // As strings these names sort in another order.
        let all = names(&["z-lock-0000000001", "_c_b-lock-0000000002", "a__lock__0000000010", "x-1-0000000009"]);
        let turn = |own| turn(&all, own, Mode::Exclusive, &[]);
        assert_eq!(turn("z-lock-0000000001"), Turn::Now);
        assert_eq!(turn("_c_b-lock-0000000002"), Turn::Behind("z-lock-0000000001"));
        assert_eq!(turn("a__lock__0000000010"), Turn::Behind("x-1-0000000009"));
        assert_eq!(turn("a__lock__0000000011"), Turn::Gone);
    }

    /// The parent was deleted and recreated, so another participant now has this number.
    #[test]
    fn place_is_recognized_by_its_whole_name_not_its_number() {
        let all = names(&["z-lock-0000000000", "other-lock-0000000001"]);
        assert_eq!(turn(&all, "own-lock-0000000001", Mode::Exclusive, &[]), Turn::Gone);
        assert_eq!(turn(&names(&["other-lock-0000000001"]), "own-lock-0000000001", Mode::Shared, &[]), Turn::Gone);
    }

    #[test]
    fn writer_waits_for_the_nearest_place_and_a_reader_for_a_writer() {
        let all = names(&["a-write-0000000001", "b-read-0000000002", "c__rlock__0000000003", "d-read-0000000004"]);
        let own = "d-read-0000000004";
        assert_eq!(turn(&all, own, Mode::Shared, &[]), Turn::Behind("a-write-0000000001"));
        assert_eq!(turn(&all, own, Mode::Exclusive, &[]), Turn::Behind("c__rlock__0000000003"));
        assert_eq!(turn(&all, own, Mode::Shared, &[1]), Turn::Now);
        let readers = names(&["b-read-0000000002", "c__rlock__0000000003"]);
        assert_eq!(turn(&readers, "c__rlock__0000000003", Mode::Shared, &[]), Turn::Now);
    }

    #[test]
    fn children_without_a_sequence_number_are_not_in_the_line() {
        let all = names(&["audit", "leases", "a-lock-0000000001"]);
        assert_eq!(turn(&all, "a-lock-0000000001", Mode::Exclusive, &[]), Turn::Now);
    }
}
