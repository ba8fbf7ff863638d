//! The true state of the ensemble, as only the harness knows it.
//!
//! It records what each disk holds, which server broadcast which entries, and which entries are
//! committed.

use super::history::{History, Link};
use super::seen::{Seen, State};
use crate::replica::Replica;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use zoolet_machine::record::chain_after;
use zoolet_machine::seam::action::LogRecord;
use zoolet_machine::server::Counts;
use zoolet_machine::tree::Applied;
use zoolet_store::log::Facts;
use zoolet_zab::{AppendSeq, Config, Epoch, Incarnation, Kind, Message, ServerId, Zxid};

/// The configurations that a log knows; `None` before the first one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Configs {
    /// The newest one that the log knows to be committed.
    pub committed: Option<Config>,
    /// The newest one seen, if it differs from `committed`.
    pub pending: Option<Config>,
}

impl Configs {
    fn decode(committed: &[u8], last_seen: &[u8]) -> Self {
        let committed = Config::decode(committed);
        Self { pending: Config::decode(last_seen).filter(|last_seen| Some(last_seen) != committed.as_ref()), committed }
    }

    /// Returns both configurations; the founders' configuration stands in for a missing committed
    /// one.
    pub fn in_force<'a>(&'a self, founders: &'a Config) -> Vec<&'a Config> {
        let committed = self.committed.as_ref().unwrap_or(founders);
        std::iter::once(committed).chain(&self.pending).collect()
    }
}

/// The contents of a log up to one of its records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// The newest promised epoch (f.p).
    pub accepted: Epoch,
    /// The newest epoch whose initial history the log holds (f.a).
    pub current: Epoch,
    /// The last entry.
    pub last: Link,
    /// The configurations.
    pub configs: Arc<Configs>,
}

impl Held {
    fn of(facts: &Facts) -> Self {
        let mut configs = Configs::decode(&facts.config_committed, &facts.config_last_seen);
        // The record of a change precedes its entry. After a crash between the two, only the record
        // remains, and the configuration never took effect.
        configs.committed = configs.committed.filter(|config| config.version <= facts.last);
        configs.pending = configs.pending.filter(|config| config.version <= facts.last);
        Self {
            accepted: facts.accepted,
            current: facts.current,
            last: Link { zxid: facts.last, chain: facts.chain },
            configs: Arc::new(configs),
        }
    }

    /// Compares everything that a restart must find again. The invariants about configurations
    /// compare those.
    fn is_same(&self, other: &Self) -> bool {
        (self.accepted, self.current, self.last) == (other.accepted, other.current, other.last)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Fact,
    Entry,
    Truncate(Zxid),
    Snapshot(Link),
}

#[derive(Clone, Debug)]
struct Waiting {
    seq: AppendSeq,
    change: Change,
    after: Held,
}

/// The state in which a process found its disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// A disk that was not seen before.
    New,
    /// Everything that was durable, and perhaps some of the records in flight.
    Everything,
    /// Less than was durable, or something else. This is allowed, because the harness had damaged
    /// the disk.
    Damaged,
    /// Less than was durable, or something else, on an undamaged disk: the durable contents and
    /// those found.
    Lost(Box<(Held, Held)>),
}

/// One server, with its present disk.
#[derive(Clone, Debug)]
pub struct Host {
    /// The disk.
    pub disk: Incarnation,
    /// The process that runs on it, or ran last.
    pub process: u64,
    /// Whether the process runs.
    pub is_running: bool,
    /// The state in which this process found its disk.
    pub found: Found,
    /// The contents that survive a power loss.
    pub durable: Held,
    /// The contents that the process was told are durable.
    pub told: Held,
    /// The contents handed to the log.
    pub tail: Held,
    /// The durable entries.
    pub history: History,
    /// The server's own report of its state.
    pub state: State,
    /// The last entry in the base.
    pub checkpoint: Zxid,
    /// Whether the base is a snapshot that the machine has not been told of yet.
    pub has_unheard_base: bool,
    /// The log may have purged entries up to here.
    pub purged: Zxid,
    /// Whether something durable was lost, and no snapshot has replaced it since.
    is_damaged: bool,
    waiting: VecDeque<Waiting>,
    /// Number of records in `waiting` that are durable but not yet reported to the process.
    synced: usize,
}

impl Host {
    fn new(process: u64, facts: &Facts) -> Self {
        let held = Held::of(facts);
        Self {
            disk: Incarnation(facts.disk_incarnation),
            process,
            is_running: true,
            found: Found::New,
            history: History::from(held.last),
            state: State { committed: facts.watermark, ..State::default() },
            checkpoint: Zxid::ZERO,
            has_unheard_base: false,
            purged: Zxid::ZERO,
            durable: held.clone(),
            told: held.clone(),
            tail: held,
            is_damaged: false,
            waiting: VecDeque::new(),
            synced: 0,
        }
    }

    /// Returns whether the disk holds everything that was ever made durable on it.
    pub fn is_whole(&self) -> bool {
        !self.is_damaged
    }

    /// Returns the link of `zxid` in the history as handed to the log.
    pub fn tail_at(&self, zxid: Zxid) -> Option<Link> {
        for waiting in self.waiting.iter().skip(self.synced).rev() {
            let last = waiting.after.last;
            match waiting.change {
                Change::Entry if last.zxid == zxid => return Some(last),
                Change::Snapshot(link) if link.zxid == zxid => return Some(link),
                Change::Truncate(to) | Change::Snapshot(Link { zxid: to, .. }) if zxid > to => return None,
                // A snapshot's earlier entries are known only to its sender, not here.
                Change::Snapshot(_) => return None,
                Change::Entry if last.zxid < zxid => return None,
                Change::Entry | Change::Truncate(_) | Change::Fact => {}
            }
        }
        self.history.at(zxid)
    }

    /// Returns the links after `zxid` up to `to` in the history as handed to the log.
    pub fn tail_links(&self, after: Zxid, to: Zxid) -> Vec<Link> {
        let mut links: Vec<Link> = self.history.after(after).to_vec();
        for waiting in self.waiting.iter().skip(self.synced) {
            match waiting.change {
                Change::Entry if waiting.after.last.zxid > after => links.push(waiting.after.last),
                Change::Truncate(to) => links.retain(|link| link.zxid <= to),
                Change::Snapshot(_) => links.clear(),
                Change::Entry | Change::Fact => {}
            }
        }
        links.retain(|link| link.zxid <= to);
        links
    }

    /// Returns the floor of the history as handed to the log; single entries are known only above
    /// it.
    pub fn tail_floor(&self) -> Link {
        let snapshot = self.waiting.iter().skip(self.synced).rev().find_map(|waiting| match waiting.change {
            Change::Snapshot(link) => Some(link),
            Change::Entry | Change::Truncate(_) | Change::Fact => None,
        });
        snapshot.unwrap_or(self.history.floor())
    }

    /// Returns the number of records that were handed to the log and are not durable.
    pub fn unsynced(&self) -> usize {
        self.waiting.len() - self.synced
    }

    /// Yields the ends of history left by truncations not yet reported as durable, newest first.
    pub fn cuts(&self) -> impl Iterator<Item = Zxid> + '_ {
        self.waiting.iter().rev().filter_map(|waiting| match waiting.change {
            Change::Truncate(to) | Change::Snapshot(Link { zxid: to, .. }) => Some(to),
            Change::Entry | Change::Fact => None,
        })
    }

    fn append(&mut self, seq: AppendSeq, record: &LogRecord) {
        let mut after = self.tail.clone();
        let change = match record {
            LogRecord::Entry { zxid, payload } => {
                after.last = Link { zxid: *zxid, chain: chain_after(after.last.chain, *zxid, payload) };
                Change::Entry
            }
            LogRecord::Promise(epoch) => {
                after.accepted = *epoch;
                Change::Fact
            }
            LogRecord::Epoch(epoch) => {
                after.current = *epoch;
                Change::Fact
            }
            LogRecord::Truncate { to } => {
                // The log itself reports an entry that is missing.
                after.last = self.tail_at(*to).unwrap_or(Link { zxid: *to, chain: 0 });
                Change::Truncate(*to)
            }
            LogRecord::Config { committed, last_seen } => {
                after.configs = Arc::new(Configs::decode(committed, last_seen));
                Change::Fact
            }
            LogRecord::SnapEnd { zxid, chain, .. } => {
                after.last = Link { zxid: *zxid, chain: *chain };
                Change::Snapshot(after.last)
            }
            LogRecord::SnapBegin { .. } | LogRecord::Birth { .. } | LogRecord::Damaged => Change::Fact,
        };
        self.tail = after.clone();
        self.waiting.push_back(Waiting { seq, change, after });
    }

    fn sync_one(&mut self) {
        let waiting = &self.waiting[self.synced];
        match waiting.change {
            Change::Fact => {}
            Change::Entry => self.history.push(waiting.after.last),
            Change::Truncate(to) => drop(self.history.truncate(to)),
            Change::Snapshot(link) => {
                self.history = History::from(link);
                self.is_damaged = false;
            }
        }
        self.durable = waiting.after.clone();
        self.synced += 1;
    }

    fn sync(&mut self, seq: AppendSeq) {
        while self.waiting.get(self.synced).is_some_and(|waiting| waiting.seq <= seq) {
            self.sync_one();
        }
    }

    fn tell(&mut self, seq: AppendSeq) {
        self.sync(seq);
        while self.waiting.front().is_some_and(|waiting| waiting.seq <= seq) {
            if let Some(waiting) = self.waiting.pop_front() {
                self.told = waiting.after;
                self.synced -= 1;
            }
        }
    }

    fn restart(&mut self, process: u64, facts: &Facts, is_damaged: bool) {
        let found = Held::of(facts);
        // Find the longest prefix of the records in flight that yields the contents found.
        let mut rest = self.waiting.iter().skip(self.synced);
        let survived = rest.rposition(|waiting| waiting.after.is_same(&found)).map(|at| at + 1);
        let survived = survived.or_else(|| self.durable.is_same(&found).then_some(0));
        self.found = match survived {
            Some(count) => {
                (0..count).for_each(|_| self.sync_one());
                Found::Everything
            }
            None => {
                self.is_damaged = true;
                if self.history.at(found.last.zxid) == Some(found.last) {
                    let _ = self.history.truncate(found.last.zxid);
                } else {
                    self.history = History::from(found.last);
                }
                if is_damaged { Found::Damaged } else { Found::Lost(Box::new((self.durable.clone(), found.clone()))) }
            }
        };
        if is_damaged {
            // The base may be damaged. The next checkpoint shows what it holds.
            (self.checkpoint, self.purged) = (Zxid::ZERO, Zxid::ZERO);
        }
        self.has_unheard_base = false;
        self.waiting.clear();
        self.synced = 0;
        (self.durable, self.told, self.tail) = (found.clone(), found.clone(), found);
        (self.process, self.is_running) = (process, true);
        self.state = State { committed: facts.watermark, ..State::default() };
    }
}

/// The contents of a disk that was replaced or damaged.
///
/// Acknowledgements that it gave remain valid, because it did hold the entries.
#[derive(Clone, Debug)]
pub struct Retired {
    /// The server it belonged to.
    pub server: ServerId,
    /// The disk.
    pub disk: Incarnation,
    /// Its promises and facts.
    pub durable: Held,
    /// Its entries.
    pub history: History,
}

/// The server that broadcasts in an epoch.
#[derive(Clone, Debug)]
pub struct Primary {
    /// The server.
    pub server: ServerId,
    /// Its process. A server that restarts is another primary.
    pub process: u64,
    /// Its disk.
    pub disk: Incarnation,
    /// The epoch's initial history.
    pub initial: Link,
    /// The entries it broadcast, from counter 0 on.
    pub broadcast: History,
}

/// An entry that changes the membership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The entry.
    pub link: Link,
    /// The new configuration.
    pub config: Config,
}

/// An entry that became committed and that the naive state machine has applied.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Its zxid.
    pub zxid: Zxid,
    /// Its bytes.
    pub payload: Bytes,
    /// The changes it made.
    pub applied: Applied,
}

/// The books of the harness.
#[derive(Debug)]
pub struct Ghost {
    /// The founders' configuration.
    pub founders: Config,
    /// Every server seen so far.
    pub hosts: BTreeMap<ServerId, Host>,
    /// Contents of replaced or damaged disks.
    pub retired: Vec<Retired>,
    /// The primary of each epoch.
    pub primaries: BTreeMap<Epoch, Primary>,
    /// Every change of the membership that was ever broadcast.
    pub memberships: BTreeMap<Zxid, Vec<Membership>>,
    /// The committed history: the history of the first server that declared each part committed.
    pub committed: History,
    /// The digest of the naive state machine's state after each committed entry.
    pub digests: BTreeMap<Zxid, u128>,
    /// The derived numbers after each committed entry, counted from the naive state machine's
    /// records.
    pub counts: BTreeMap<Zxid, Counts>,
    /// A contradiction within those records, if any.
    pub contradiction: Option<String>,
    /// The naive state machine; `None` after it failed to apply an entry.
    pub model: Option<Replica>,
    /// Why it failed.
    pub stuck: Option<String>,
    /// The entries that became committed by the latest event.
    pub settled: Vec<Settled>,
    payloads: BTreeMap<Zxid, Bytes>,
}

impl Ghost {
    /// Creates the books of an ensemble, before anything has happened.
    pub fn new(founders: Config) -> Self {
        Self {
            founders,
            hosts: BTreeMap::new(),
            retired: Vec::new(),
            primaries: BTreeMap::new(),
            memberships: BTreeMap::new(),
            committed: History::default(),
            digests: BTreeMap::new(),
            counts: BTreeMap::new(),
            contradiction: None,
            model: Some(Replica::new(false)),
            stuck: None,
            settled: Vec::new(),
            payloads: BTreeMap::new(),
        }
    }

    /// Returns a server.
    ///
    /// # Panics
    /// If the server never started.
    pub fn host(&self, server: ServerId) -> &Host {
        self.hosts.get(&server).unwrap_or_else(|| panic!("server {} never started", server.as_u8()))
    }

    /// Returns whether a present or former `disk` of `server` holds `link`, and so everything
    /// before it.
    pub fn holds(&self, server: ServerId, disk: Incarnation, link: Link) -> bool {
        let now = self.hosts.get(&server).filter(|host| host.disk == disk).map(|host| &host.history);
        let before = self.retired.iter().filter(|retired| (retired.server, retired.disk) == (server, disk));
        now.into_iter().chain(before.map(|retired| &retired.history)).any(|history| self.is_in(history, link))
    }

    /// Returns whether `history` contains `link`.
    ///
    /// Below its floor, which a snapshot made, it contains every committed entry.
    pub fn is_in(&self, history: &History, link: Link) -> bool {
        if link.zxid < history.floor().zxid {
            return self.is_committed(link) && self.is_committed(history.floor());
        }
        history.at(link.zxid) == Some(link)
    }

    /// Returns whether `link` and everything before it was handed to the log of `server`.
    ///
    /// The history is then on the disk unless a crash intervenes.
    pub fn has(&self, server: ServerId, link: Link) -> bool {
        let host = self.host(server);
        let floor = host.tail_floor();
        if link.zxid < floor.zxid {
            return self.is_committed(link) && self.is_committed(floor);
        }
        host.tail_at(link.zxid) == Some(link)
    }

    /// Returns the entry that the primary broadcast with this zxid, which every server must hold
    /// there.
    pub fn broadcast(&self, zxid: Zxid) -> Option<Link> {
        self.primaries.get(&zxid.epoch())?.broadcast.at(zxid).filter(|_| zxid != Zxid::ZERO)
    }

    /// Returns whether `link` is in the committed history. Forgotten entries were compared before
    /// they were forgotten.
    pub fn is_committed(&self, link: Link) -> bool {
        link.zxid < self.committed.floor().zxid || self.committed.at(link.zxid) == Some(link)
    }

    /// Returns the newest epoch that a present or former `disk` of `server` has durably entered.
    pub fn entered(&self, server: ServerId, disk: Incarnation) -> Epoch {
        let now = self.hosts.get(&server).filter(|host| host.disk == disk).map(|host| &host.durable);
        let before = self.retired.iter().filter(|retired| (retired.server, retired.disk) == (server, disk));
        let held = now.into_iter().chain(before.map(|retired| &retired.durable));
        held.map(|held| held.current).max().unwrap_or_default()
    }

    /// Returns whether `link` is committed or may be declared committed.
    ///
    /// It may be declared if a quorum of every configuration that `server` knows durably holds it.
    ///
    /// # Errors
    /// The servers that hold it.
    pub fn is_chosen(&self, server: ServerId, link: Link) -> Result<(), Vec<ServerId>> {
        if link.zxid <= self.committed.last().zxid && self.is_committed(link) {
            return Ok(());
        }
        for config in self.host(server).tail.configs.in_force(&self.founders) {
            let (holders, decide) = self.count(config, |server, disk| self.holds(server, disk, link));
            if !decide {
                return Err(holders);
            }
        }
        Ok(())
    }

    /// Yields every disk that ever existed.
    pub fn disks(&self) -> impl Iterator<Item = (ServerId, Incarnation)> + '_ {
        let now = self.hosts.iter().map(|(&server, host)| (server, host.disk));
        now.chain(self.retired.iter().map(|retired| (retired.server, retired.disk)))
    }

    /// Counts the voters of `config` that have the disk it names, with `holds` true for that disk.
    ///
    /// Also returns whether they decide: more than half of the voters, or all founders before
    /// birth. A voter without a named disk counts with any disk. This rule is implemented here,
    /// independently of the protocol's own.
    pub fn count(
        &self,
        config: &Config,
        mut holds: impl FnMut(ServerId, Incarnation) -> bool,
    ) -> (Vec<ServerId>, bool) {
        let voters: Vec<_> = config.members().iter().filter(|member| member.kind == Kind::Voter).collect();
        let mut who = Vec::new();
        for voter in &voters {
            let of_voter = self.disks().filter(|&(server, disk)| {
                server == voter.id && (disk == voter.disk || voter.disk == Incarnation::default())
            });
            if of_voter.into_iter().any(|(server, disk)| holds(server, disk)) {
                who.push(voter.id);
            }
        }
        let decide = if config.is_born() { who.len() * 2 > voters.len() } else { who.len() == voters.len() };
        (who, decide)
    }

    /// Returns the newest configuration committed by the entries up to `zxid`.
    pub fn config_at(&self, zxid: Zxid) -> &Config {
        let committed = self.memberships.range(..=zxid).rev().flat_map(|(_, changes)| changes);
        let mut committed = committed.filter(|change| self.is_committed(change.link));
        committed.next().map_or(&self.founders, |change| &change.config)
    }

    /// Forgets entries that are committed, applied and durable on every server, except the newest
    /// `kept`.
    ///
    /// A run of a simulated day broadcasts millions of entries. A server that joins later gets a
    /// snapshot.
    pub fn forget(&mut self, kept: usize) {
        let everywhere = self.hosts.values().map(|host| host.durable.last.zxid.min(host.state.applied)).min();
        let everywhere = everywhere.unwrap_or(Zxid::ZERO).min(self.committed.last().zxid);
        let links = self.committed.links();
        let at = links.partition_point(|link| link.zxid <= everywhere);
        let Some(&Link { zxid, .. }) = at.checked_sub(kept).and_then(|at| links.get(at)) else { return };
        let committed = &self.committed;
        self.memberships.retain(|&version, changes| {
            changes.retain(|change| version > zxid || committed.at(version).is_none_or(|link| link == change.link));
            !changes.is_empty()
        });
        self.committed.forget_below(zxid);
        self.hosts.values_mut().for_each(|host| host.history.forget_below(zxid));
        self.retired.iter_mut().for_each(|retired| retired.history.forget_below(zxid));
        self.primaries.values_mut().for_each(|primary| primary.broadcast.forget_below(zxid));
        self.digests = self.digests.split_off(&zxid);
        self.counts = self.counts.split_off(&zxid);
        self.payloads = self.payloads.split_off(&zxid);
    }

    /// Updates the books by an event, without judging it.
    pub(super) fn note(&mut self, server: ServerId, seen: &Seen<'_>) {
        self.settled.clear();
        match seen {
            Seen::Started { process, facts, is_damaged } => self.start(server, *process, facts, *is_damaged),
            Seen::Stopped => {
                // A server that failed to open its disk was never seen.
                if let Some(host) = self.hosts.get_mut(&server) {
                    host.is_running = false;
                }
            }
            Seen::Record(seq, record) => self.append(server, *seq, record),
            Seen::Appended(_) => {}
            Seen::Durable(seq) => self.host_mut(server).sync(*seq),
            Seen::Told(seq) => self.host_mut(server).tell(*seq),
            Seen::Checkpointed(zxid) | Seen::Installed(zxid) => {
                let host = self.host_mut(server);
                host.checkpoint = *zxid;
                host.has_unheard_base = matches!(seen, Seen::Installed(_));
            }
            Seen::Recycled(zxid) => self.host_mut(server).purged = *zxid,
            Seen::Sent { message, .. } => self.sent(server, message),
            Seen::Received { .. }
            | Seen::Parted { .. }
            | Seen::Refused { .. }
            | Seen::Kept { .. }
            | Seen::SentAway(_)
            | Seen::Holds { .. } => {}
            Seen::State(state) => {
                self.host_mut(server).state = *state;
                self.declare(server, state.committed);
            }
        }
    }

    fn host_mut(&mut self, server: ServerId) -> &mut Host {
        self.hosts.get_mut(&server).unwrap_or_else(|| panic!("server {} never started", server.as_u8()))
    }

    fn start(&mut self, server: ServerId, process: u64, facts: &Facts, is_damaged: bool) {
        match self.hosts.get_mut(&server) {
            Some(host) if host.disk == Incarnation(facts.disk_incarnation) => {
                let durable = host.durable.accepted.max(facts.accepted);
                let (disk, before, history) = (host.disk, host.durable.clone(), host.history.clone());
                host.restart(process, facts, is_damaged);
                if host.found == Found::Damaged {
                    self.retired.push(Retired { server, disk, durable: before, history });
                }
                self.take_back(server, durable);
            }
            _ => {
                let mut host = Host::new(process, facts);
                host.history = self.history_of(host.durable.last);
                if let Some(Host { disk, durable, history, .. }) = self.hosts.insert(server, host) {
                    self.retired.push(Retired { server, disk, durable, history });
                }
            }
        }
        self.declare(server, facts.watermark);
    }

    /// Returns the history that leads to `last`, on a disk that already has a history.
    ///
    /// Equal links stand for equal histories, so it is taken from the broadcasts. The server that
    /// the disk was copied from may have truncated its log since.
    fn history_of(&self, last: Link) -> History {
        let (mut links, mut floor) = (Vec::new(), last);
        while let Some(primary) = self.primaries.get(&floor.zxid.epoch()) {
            let broadcast = &primary.broadcast;
            if broadcast.at(floor.zxid) != Some(floor) || broadcast.floor() == floor {
                break;
            }
            links.extend(broadcast.links().iter().rev().skip_while(|link| link.zxid > floor.zxid));
            floor = broadcast.floor();
        }
        let mut history = History::from(floor);
        links.into_iter().rev().for_each(|link| history.push(link));
        history
    }

    /// Removes epochs whose leader held them only in memory: they never began.
    ///
    /// No message mentioned such an epoch; otherwise INV-PROMISE-MONOTONIC reports it.
    fn take_back(&mut self, server: ServerId, durable: Epoch) {
        let disk = self.host(server).disk;
        let is_its = |primary: &Primary| (primary.server, primary.disk) == (server, disk);
        let of_server = self.primaries.iter().filter(|(epoch, primary)| is_its(primary) && **epoch > durable);
        for epoch in of_server.map(|(epoch, _)| *epoch).collect::<Vec<_>>() {
            self.primaries.remove(&epoch);
            self.memberships.retain(|version, _| version.epoch() != epoch);
            self.payloads.retain(|zxid, _| zxid.epoch() != epoch);
        }
    }

    fn append(&mut self, server: ServerId, seq: AppendSeq, record: &LogRecord) {
        let host = self.host_mut(server);
        let before = host.tail.last;
        host.append(seq, record);
        let (process, disk, link) = (host.process, host.disk, host.tail.last);
        let configs = Arc::clone(&host.tail.configs);
        let LogRecord::Entry { zxid, payload } = record else { return };
        if zxid.counter() == 0 {
            let broadcast = History::from(before);
            let new = Primary { server, process, disk, initial: before, broadcast };
            self.primaries.entry(zxid.epoch()).or_insert(new);
        }
        let Some(primary) = self.primaries.get_mut(&zxid.epoch()) else { return };
        let is_primary = (primary.server, primary.process) == (server, process);
        if !is_primary || link.zxid <= primary.broadcast.last().zxid {
            return;
        }
        primary.broadcast.push(link);
        self.payloads.insert(*zxid, payload.clone());
        let newest = configs.pending.iter().chain(&configs.committed).find(|config| config.version == *zxid);
        if let Some(config) = newest {
            let change = Membership { link, config: config.clone() };
            self.memberships.entry(*zxid).or_default().push(change);
        }
    }

    fn sent(&mut self, server: ServerId, message: &Message) {
        match message {
            Message::Commit { to, .. } => self.declare(server, *to),
            Message::Proposal { committed, .. } => self.declare(server, *committed),
            Message::Synced { up_to, .. } => self.declare(server, *up_to),
            Message::Notification(_)
            | Message::FollowerInfo { .. }
            | Message::LeaderInfo { .. }
            | Message::AckEpoch { .. }
            | Message::Diff { .. }
            | Message::Trunc { .. }
            | Message::Snap { .. }
            | Message::NewLeader { .. }
            | Message::Ack { .. }
            | Message::Sync { .. }
            | Message::HandOver { .. }
            | Message::Ping { .. }
            | Message::Pong { .. } => {}
        }
    }

    /// Records that `server` declares everything up to `to` committed.
    ///
    /// The server's history becomes the committed one, unless it contradicts the entries committed
    /// so far.
    fn declare(&mut self, server: ServerId, to: Zxid) {
        let last = self.committed.last();
        let host = self.host(server);
        if to <= last.zxid || host.tail_at(last.zxid) != Some(last) {
            return;
        }
        for link in host.tail_links(last.zxid, to) {
            self.committed.push(link);
            self.settle(link.zxid);
        }
    }

    fn settle(&mut self, zxid: Zxid) {
        let Some(model) = &mut self.model else { return };
        let outcome = match self.payloads.remove(&zxid) {
            Some(payload) => model.apply(zxid, &payload).map(|applied| Settled { zxid, payload, applied }),
            None => Err("nobody broadcast it"),
        };
        match outcome {
            Ok(settled) => {
                self.digests.insert(zxid, model.digest);
                match model.counts() {
                    Ok(counts) => drop(self.counts.insert(zxid, counts)),
                    Err(what) => self.contradiction = Some(format!("after {zxid:?}: {what}")),
                }
                self.settled.push(settled);
            }
            Err(why) => {
                self.stuck = Some(format!("{zxid:?} is committed and cannot be applied: {why}"));
                self.model = None;
            }
        }
    }
}
