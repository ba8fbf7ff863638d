//! Standing in line: what locks and elections have in common.
//!
//! Each participant creates a sequential ephemeral znode below one parent; the number that the server appends says who came first. Whoever has
//! nobody before it that it minds has its turn; everybody else watches the nearest one before it, so that each departure wakes one participant.
//! A reply that is lost leaves a znode of which its creator does not know: it is found again by the GUID in its name.

use crate::ask::{
    UNEXPECTED, ask, ask_watching, children, connected, create, data, fired, is_disconnection, make_container,
};
use crate::contention::is_downgraded;
use crate::mutation::{Mutation, is_on};
use crate::naming::{self, Mode, Stands};
use crate::{Coordinator, Errand, Error, Guid, Instant, Naming, Preference};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use zoolet_model::{CreateKind, ErrorCode, EventKind, Names, OpResult, Path, Reply, Request, Stat, Text, WriteOp};

/// Numbers that are left over: at the last one the server stops counting, and two participants would have the same.
const NUMBERS_LEFT_MIN: u32 = 1 << 16;

/// One participant's side of a line.
#[derive(Debug)]
pub(crate) struct Line<C> {
    coordinator: C,
    parent: Path,
    naming: Naming,
    stands: Stands,
    rank: u8,
    /// Which kind overtakes the other. All participants of a line must say the same: see [`Line::refuse_another_preference`].
    preference: Preference,
    mode: Mode,
    content: Bytes,
    guid: Guid,
    /// The path of the own znodes, without the number.
    prefix: Text,
    /// Whether a place with this GUID is taken, or being taken: a second one needs another GUID, or a lost reply could not be told from it. After an
    /// attempt that was given up it stays so, because whatever has this GUID is going to be deleted.
    is_taken: AtomicBool,
    /// The same line with another GUID, for when this one is taken.
    spare: Mutex<Option<Arc<Self>>>,
    /// The newest czxid that a znode with this GUID is known to have had.
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

    /// The same with other words.
    pub(crate) fn with(&self, naming: Naming, rank: u8, content: Bytes) -> Arc<Self> {
        let c = self.coordinator.clone();
        Self::preferring(c, &self.parent, naming, self.stands, rank, self.preference, content)
    }

    /// Returns the same line for a participant that stands for something else.
    pub(crate) fn standing_for(&self, stands: Stands) -> Arc<Self> {
        let (c, content) = (self.coordinator.clone(), self.content.clone());
        Self::preferring(c, &self.parent, self.naming, stands, self.rank, self.preference, content)
    }

    /// Returns the same line for a participant with this preference.
    pub(crate) fn with_preference(&self, preference: Preference) -> Arc<Self> {
        let (c, content) = (self.coordinator.clone(), self.content.clone());
        Self::preferring(c, &self.parent, self.naming, self.stands, self.rank, preference, content)
    }

    /// Refuses a participant that came after one with another preference: by different rules both could hold the lock.
    ///
    /// Each participant creates its znode before it lists the others, and its name tells its preference. So of any two the later one finds the
    /// earlier one, for as long as that stands in the line, and only the later one is refused.
    pub(crate) fn refuse_another_preference(&self, names: &Names, own: u32) -> Result<(), Error> {
        if !matches!(self.stands, Stands::Read | Stands::Write) || is_on(Mutation::PreferenceUnchecked) {
            return Ok(());
        }
        let differs = |name: &str| {
            naming::number(name).is_some_and(|number| number < own) && naming::preference(name) != self.preference
        };
        if names.iter().any(differs) { Err(Error::Disagreement) } else { Ok(()) }
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

    /// Whoever stands in the line, the first first.
    pub(crate) async fn standing(&self) -> Result<Vec<Standing>, Error> {
        let names = children(&self.coordinator, self.parent.text()).await?;
        let mut standing: Vec<_> = names.iter().filter_map(|name| Standing::of(self.parent.as_str(), name)).collect();
        standing.sort_by_key(|standing| standing.number);
        Ok(standing)
    }

    /// This line, or one like it with another GUID; taken now.
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

    /// Takes a place, and says whether nobody else stood there.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<(Place<C>, bool), Error> {
        let line = self.untaken();
        let entering = Entering { line: Some(line) };
        let (path, stat, is_alone) = entering.enter().await?;
        let place = entering.arrived(path, &stat)?;
        Ok((place, is_alone))
    }
}

/// A place that is being taken. Dropped, it sees to it that nothing of it stays.
struct Entering<C: Coordinator> {
    /// `None` once there is a [`Place`].
    line: Option<Arc<Line<C>>>,
}

impl<C: Coordinator> Entering<C> {
    async fn enter(&self) -> Result<(Text, Stat, bool), Error> {
        let Some(line) = &self.line else { return Err(Error::Broken) };
        let c = &line.coordinator;
        loop {
            let created = c.submit(Request::Write(create(
                line.prefix.clone(),
                Some(line.content.clone()),
                CreateKind::Ephemeral,
                true,
            )));
            // Sent along, and answered in the same moment: usually nobody else is there, and then nothing needs to be listed.
            let parent = c.submit(Request::Exists { path: line.parent.text().clone(), watch: false });
            match created.await {
                Ok(Reply::PathStat(path, stat)) => {
                    let is_alone = matches!(parent.await, Ok(Reply::Stat(parent))
                        if parent.num_children == 1 && parent.pzxid == stat.czxid);
                    return Ok((path, stat, is_alone));
                }
                Ok(_) => return Err(UNEXPECTED),
                Err(zoolet_model::Error::Refused(ErrorCode::NoNode)) => make_container(c, &line.parent).await?,
                Err(error) if is_disconnection(error) => {
                    connected(c).await?;
                    if error == zoolet_model::Error::ConnectionLoss
                        && !is_on(Mutation::OwnNotSought)
                        && let Some((path, stat)) = line.find_own().await?
                    {
                        return Ok((path, stat, false));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn arrived(mut self, path: Text, stat: &Stat) -> Result<Place<C>, Error> {
        let number = naming::number(&path).ok_or(UNEXPECTED)?;
        let line = self.line.take().ok_or(UNEXPECTED)?;
        line.newest.fetch_max(stat.czxid, SeqCst);
        let place = Place { line, path, number, token: stat.czxid, companion: None, fate: OnceLock::new() };
        if number > i32::MAX as u32 - NUMBERS_LEFT_MIN {
            return Err(Error::Exhausted);
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
    /// The znode of a create whose reply was lost, if there is one.
    async fn find_own(&self) -> Result<Option<(Text, Stat)>, Error> {
        let Some(names) = self.settled_children().await? else { return Ok(None) };
        for name in names.iter().filter(|name| self.guid.is_in(name)) {
            let path = zoolet_model::path::child(self.parent.as_str(), name);
            // A name alone proves nothing: what a former session left behind will go when that session does, and what this one gave up may
            // still be there.
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

    /// The children, after a write: a create of a left connection that is still under way comes before it, or not at all. `None` when there is no
    /// parent.
    async fn settled_children(&self) -> Result<Option<Names>, Error> {
        let c = &self.coordinator;
        let check = Request::Multi(vec![WriteOp::Check { path: self.parent.text().clone(), version: -1 }]);
        match crate::ask::ask(c, &check).await? {
            Reply::Multi(results) if results.iter().any(|result| matches!(result, OpResult::Failed(_))) => Ok(None),
            Reply::Multi(_) => children(c, self.parent.text()).await.map(Some),
            _ => Err(UNEXPECTED),
        }
    }
}

/// A place in the line. Dropped, it is given up, without waiting for that.
#[derive(Debug)]
pub(crate) struct Place<C: Coordinator> {
    line: Arc<Line<C>>,
    path: Text,
    number: u32,
    /// The fencing token.
    token: i64,
    /// Another znode that stands for as long as this one.
    companion: Option<Text>,
    /// Made for the first listener, so that a lock that is only taken allocates nothing.
    fate: OnceLock<Arc<Fate>>,
}

impl<C: Coordinator> Drop for Place<C> {
    fn drop(&mut self) {
        self.line.coordinator.run_errand(match self.companion.take() {
            None => Errand::delete(self.path.clone()),
            Some(companion) => Errand::delete_both(self.path.clone(), companion),
        });
        self.line.is_taken.store(false, SeqCst);
    }
}

/// What the listeners of a place have heard of its znode.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// The znode was deleted: the place was broken.
    pub(crate) is_gone: AtomicBool,
    /// The place is going to be broken: see [`Contention::revoke_safely`](crate::Contention::revoke_safely).
    pub(crate) is_withdrawn: AtomicBool,
    /// The latest instant that a listener may have told, in nanoseconds from the start of the session's clock.
    safe_until_ns: AtomicU64,
}

impl Fate {
    pub(crate) fn safe_until(&self) -> Instant {
        Instant::at(Duration::from_nanos(self.safe_until_ns.load(SeqCst)))
    }

    /// The place stands, and nobody had withdrawn it when the session was known to be safe until then.
    pub(crate) fn extend(&self, safe_until: Instant) {
        let ns = u64::try_from(safe_until.since_start().as_nanos()).unwrap_or(u64::MAX);
        self.safe_until_ns.fetch_max(ns, SeqCst);
    }
}

/// Whether it is somebody's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn<'a> {
    /// It is.
    Now,
    /// This one is the nearest before.
    Behind(&'a str),
    /// The own znode is not there.
    Gone,
}

impl<C: Coordinator> Place<C> {
    pub(crate) fn path(&self) -> &Text {
        &self.path
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Whether the parent's children `names` include this place. The whole name counts: after the parent was deleted and created anew, numbers begin again, and
    /// another participant may have the number of this place.
    pub(crate) fn is_among(&self, names: &Names) -> bool {
        names.iter().any(|name| name == naming::name_of(&self.path))
    }

    /// Asks the ensemble whether the place still stands. A write, because a server that is behind answers a read from the past.
    pub(crate) async fn stands(&self) -> Result<bool, Error> {
        let check = Request::Multi(vec![WriteOp::Check { path: self.path.clone(), version: -1 }]);
        let Reply::Multi(results) = ask(&self.line.coordinator, &check).await? else { return Err(UNEXPECTED) };
        match zoolet_model::first_failure(&results) {
            None => Ok(true),
            Some((_, ErrorCode::NoNode)) => {
                self.fate().is_gone.store(true, Relaxed);
                Ok(false)
            }
            Some((_, code)) => Err(zoolet_model::Error::Refused(code).into()),
        }
    }

    /// Where grants are not given in the order of creations.
    pub(crate) fn set_token(&mut self, zxid: i64) {
        self.token = zxid;
    }

    pub(crate) fn set_companion(&mut self, companion: Text) {
        self.companion = Some(companion);
    }

    /// Returns what is known of the own znode, if anything ever listened for news of it.
    pub(crate) fn known_fate(&self) -> Option<&Fate> {
        self.fate.get().map(|fate| &**fate)
    }

    /// Returns the place where a listener notes what it hears of the own znode.
    pub(crate) fn fate(&self) -> &Arc<Fate> {
        self.fate.get_or_init(Arc::default)
    }

    pub(crate) fn token(&self) -> i64 {
        self.token
    }

    pub(crate) fn line(&self) -> &Arc<Line<C>> {
        &self.line
    }

    /// Whether it is this place's turn now.
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

    /// Waits for its turn.
    pub(crate) async fn wait_turn(&self) -> Result<(), Error> {
        let mut tolerated = Vec::new();
        while let Some(name) = self.blocked_by(&tolerated).await? {
            if self.wait_for(&self.sibling(&name)).await? == Waited::Tolerated {
                tolerated.extend(naming::number(&name));
            }
        }
        Ok(())
    }

    /// The nearest one before it that it minds.
    async fn blocked_by(&self, tolerated: &[u32]) -> Result<Option<String>, Error> {
        let names = children(&self.line.coordinator, self.line.parent.text()).await?;
        self.line.refuse_another_preference(&names, self.number)?;
        match turn(&names, naming::name_of(&self.path), self.line.mode, tolerated) {
            Turn::Now => Ok(None),
            Turn::Gone => Err(Error::Broken),
            Turn::Behind(name) => Ok(Some(name.to_owned())),
        }
    }

    /// Waits until somebody before has gone, or shares.
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

/// What became of somebody who stood before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waited {
    Gone,
    /// It was exclusive, and shares now.
    Tolerated,
}

/// What a writer that became a reader writes into its znode. Its name still says that it is a writer, and so whoever does not know this waits for it to go.
pub(crate) const DOWNGRADED: &[u8] = b"downgraded";

/// Waits until there is no such znode. `GetData` and not `Exists`: if it has gone already, no watch for one that never comes again is left.
pub(crate) async fn wait_gone<C: Coordinator>(coordinator: &C, path: &Text) -> Result<(), Error> {
    let request = Request::GetData { path: path.clone(), watch: true };
    loop {
        let (there, watch) = ask_watching(coordinator, &request).await?;
        if there.is_none() || fired(coordinator, watch).await?.kind == EventKind::NodeDeleted {
            return Ok(());
        }
    }
}

/// Whether it is the turn of the place with the name `own` among `names`.
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
        // Its number alone may be another participant's: [`Place::is_among`].
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

/// What it is when names are compared, with whatever stands before the number.
fn turn_by_names<'a>(names: &'a Names, own: &str) -> Turn<'a> {
    let Some(mine) = names.iter().find(|name| *name == own) else { return Turn::Gone };
    let before = names.iter().filter(|name| naming::number(name).is_some() && *name < mine);
    before.max().map_or(Turn::Now, Turn::Behind)
}

/// Somebody who stands in a line.
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
    fn each_waits_for_the_nearest_before_it_whatever_the_names_begin_with() {
        // As strings they are in another order.
        let all = names(&["z-lock-0000000001", "_c_b-lock-0000000002", "a__lock__0000000010", "x-1-0000000009"]);
        let turn = |own| turn(&all, own, Mode::Exclusive, &[]);
        assert_eq!(turn("z-lock-0000000001"), Turn::Now);
        assert_eq!(turn("_c_b-lock-0000000002"), Turn::Behind("z-lock-0000000001"));
        assert_eq!(turn("a__lock__0000000010"), Turn::Behind("x-1-0000000009"));
        assert_eq!(turn("a__lock__0000000011"), Turn::Gone);
    }

    /// The parent was deleted and created anew: another participant has the number now.
    #[test]
    fn a_place_is_known_by_its_whole_name() {
        let all = names(&["z-lock-0000000000", "other-lock-0000000001"]);
        assert_eq!(turn(&all, "own-lock-0000000001", Mode::Exclusive, &[]), Turn::Gone);
        assert_eq!(turn(&names(&["other-lock-0000000001"]), "own-lock-0000000001", Mode::Shared, &[]), Turn::Gone);
    }

    #[test]
    fn a_reader_waits_for_the_nearest_writer_and_a_writer_for_anybody() {
        let all = names(&["a-write-0000000001", "b-read-0000000002", "c__rlock__0000000003", "d-read-0000000004"]);
        let own = "d-read-0000000004";
        assert_eq!(turn(&all, own, Mode::Shared, &[]), Turn::Behind("a-write-0000000001"));
        assert_eq!(turn(&all, own, Mode::Exclusive, &[]), Turn::Behind("c__rlock__0000000003"));
        assert_eq!(turn(&all, own, Mode::Shared, &[1]), Turn::Now);
        let readers = names(&["b-read-0000000002", "c__rlock__0000000003"]);
        assert_eq!(turn(&readers, "c__rlock__0000000003", Mode::Shared, &[]), Turn::Now);
    }

    #[test]
    fn what_has_no_number_does_not_stand_in_the_line() {
        let all = names(&["audit", "leases", "a-lock-0000000001"]);
        assert_eq!(turn(&all, "a-lock-0000000001", Mode::Exclusive, &[]), Turn::Now);
    }
}
