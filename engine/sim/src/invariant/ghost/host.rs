//! The disk of one server: what is durable on it, and what was handed to its log.

use super::super::history::{History, Link};
use super::super::seen::State;
use super::{Configs, Held};
use std::collections::VecDeque;
use std::sync::Arc;
use zoolet_machine::record::chain_after;
use zoolet_machine::seam::action::LogRecord;
use zoolet_store::log::Facts;
use zoolet_zab::{AppendSeq, Incarnation, Zxid};

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

impl Host {
    pub(super) fn new(process: u64, facts: &Facts) -> Self {
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

    pub(super) fn append(&mut self, seq: AppendSeq, record: &LogRecord) {
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

    pub(super) fn sync(&mut self, seq: AppendSeq) {
        while self.waiting.get(self.synced).is_some_and(|waiting| waiting.seq <= seq) {
            self.sync_one();
        }
    }

    pub(super) fn tell(&mut self, seq: AppendSeq) {
        self.sync(seq);
        while self.waiting.front().is_some_and(|waiting| waiting.seq <= seq) {
            if let Some(waiting) = self.waiting.pop_front() {
                self.told = waiting.after;
                self.synced -= 1;
            }
        }
    }

    pub(super) fn restart(&mut self, process: u64, facts: &Facts, is_damaged: bool) {
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
