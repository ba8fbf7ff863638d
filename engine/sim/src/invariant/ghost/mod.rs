//! The true state of the ensemble, as only the harness knows it.
//!
//! It records what each disk holds, which server broadcast which entries, and which entries are
//! committed.

mod held;
mod host;

pub use held::{Configs, Held};
pub use host::{Found, Host};

use super::history::{History, Link};
use super::seen::Seen;
use crate::replica::Replica;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use zoolet_machine::seam::action::LogRecord;
use zoolet_machine::server::Counts;
use zoolet_machine::tree::Applied;
use zoolet_store::log::Facts;
use zoolet_zab::{AppendSeq, Config, Epoch, Incarnation, Kind, Message, ServerId, Zxid};

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
pub struct AppliedEntry {
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
    pub newly_applied: Vec<AppliedEntry>,
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
            newly_applied: Vec::new(),
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
        self.newly_applied.clear();
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
            self.apply_committed(link.zxid);
        }
    }

    fn apply_committed(&mut self, zxid: Zxid) {
        let Some(model) = &mut self.model else { return };
        let outcome = match self.payloads.remove(&zxid) {
            Some(payload) => model.apply(zxid, &payload).map(|applied| AppliedEntry { zxid, payload, applied }),
            None => Err("nobody broadcast it"),
        };
        match outcome {
            Ok(entry) => {
                self.digests.insert(zxid, model.digest);
                match model.counts() {
                    Ok(counts) => drop(self.counts.insert(zxid, counts)),
                    Err(what) => self.contradiction = Some(format!("after {zxid:?}: {what}")),
                }
                self.newly_applied.push(entry);
            }
            Err(why) => {
                self.stuck = Some(format!("{zxid:?} is committed and cannot be applied: {why}"));
                self.model = None;
            }
        }
    }
}
