//! Short stories for the invariants' own tests: the writes, disks and messages of three servers.

use super::history::Link;
use super::{Checks, Invariant, Seen, State};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use zoolet_machine::record::chain_after;
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_machine::txn::{self, Header, Txn};
use zoolet_store::log::Facts;
use zoolet_zab::{
    AppendSeq, Attempt, Config, EnsembleId, Epoch, Incarnation, Kind, LinkId, Member, Message, Role, ServerId, Zxid,
};

pub(crate) fn id(server: u8) -> ServerId {
    ServerId::new(server).unwrap()
}

pub(crate) fn epoch(epoch: u32) -> Epoch {
    Epoch::new(epoch).unwrap()
}

/// A zxid.
pub(crate) fn zxid(epoch: u32, counter: u64) -> Zxid {
    Zxid::new(super::story::epoch(epoch), counter).unwrap()
}

/// The link of an entry without predecessors.
pub(crate) fn link(epoch: u32, counter: u64) -> Link {
    links(Link::default(), &[(epoch, counter)])[0]
}

/// The links of no-op entries that follow `after`.
pub(crate) fn links(after: Link, of: &[(u32, u64)]) -> Vec<Link> {
    let next = |last: &mut Link, &(epoch, counter): &(u32, u64)| {
        let zxid = zxid(epoch, counter);
        *last = Link { zxid, chain: chain_after(last.chain, zxid, &payload(&Txn::NoOp)) };
        Some(*last)
    };
    of.iter().scan(after, next).collect()
}

pub(crate) fn payload(txn: &Txn<'_>) -> Bytes {
    txn::encode(Header::default(), txn, &mut BytesMut::new())
}

/// A no-op entry.
pub(crate) fn entry(epoch: u32, counter: u64) -> LogRecord {
    LogRecord::Entry { zxid: zxid(epoch, counter), payload: payload(&Txn::NoOp) }
}

/// The record of a promised epoch.
pub(crate) fn promise(epoch: u32) -> LogRecord {
    LogRecord::Promise(super::story::epoch(epoch))
}

/// The record of an entered epoch: its initial history is complete.
pub(crate) fn entered(epoch: u32) -> LogRecord {
    LogRecord::Epoch(super::story::epoch(epoch))
}

/// The record of a truncation to this zxid.
pub(crate) fn cut(epoch: u32, counter: u64) -> LogRecord {
    LogRecord::Truncate { to: zxid(epoch, counter) }
}

/// A born ensemble of these voters. Each has the disk with its own number.
pub(crate) fn config(version: Zxid, voters: &[u8]) -> Config {
    let of = |&voter: &u8| Member { id: id(voter), kind: Kind::Voter, disk: Incarnation(voter.into()) };
    Config::new(EnsembleId(77), version, &voters.iter().map(of).collect::<Vec<_>>()).unwrap()
}

/// The record of the configurations.
pub(crate) fn configs(committed: &Config, last_seen: &Config) -> LogRecord {
    let encoded = |config: &Config| Bytes::copy_from_slice(&config.encode());
    LogRecord::Config { committed: encoded(committed), last_seen: encoded(last_seen) }
}

pub(crate) struct Story {
    pub(crate) checks: Checks,
    appended: BTreeMap<u8, u64>,
    processes: u64,
}

impl Story {
    /// Starts servers 1, 2 and 3 on empty disks, with only this invariant.
    pub(crate) fn of(invariant: impl Invariant + 'static) -> Self {
        let founders = config(Zxid::ZERO, &[1, 2, 3]);
        let checks = Checks::of(founders, 1, vec![Box::new(invariant)]);
        let mut story = Self { checks, appended: BTreeMap::new(), processes: 0 };
        for server in 1..=3 {
            story.start(server, &Facts::birth(77, server.into()));
        }
        story
    }

    pub(crate) fn see(&mut self, server: u8, seen: Seen<'_>) {
        self.checks.see(id(server), seen);
    }

    /// A process starts and finds these facts.
    pub(crate) fn start(&mut self, server: u8, facts: &Facts) {
        self.processes += 1;
        self.see(server, Seen::Started { process: self.processes, facts, is_damaged: false });
    }

    /// Returns the facts in the log of `server` if it holds everything durable.
    pub(crate) fn facts(&self, server: u8) -> Facts {
        let host = self.checks.ghost.host(id(server));
        let mut facts = Facts::birth(77, host.disk.0);
        let held = &host.durable;
        (facts.accepted, facts.current) = (held.accepted, held.current);
        (facts.last, facts.chain) = (held.last.zxid, held.last.chain);
        facts
    }

    /// The process dies, and another one finds everything durable.
    pub(crate) fn restart(&mut self, server: u8) {
        self.see(server, Seen::Stopped);
        let facts = self.facts(server);
        self.start(server, &facts);
    }

    /// Hands records to the log; they are not durable yet.
    pub(crate) fn append(&mut self, server: u8, records: &[LogRecord]) {
        let appended = self.appended.entry(server).or_default();
        *appended += records.len() as u64;
        let append =
            Append { seq: AppendSeq(*appended), records: records.to_vec().into(), watermark: Zxid::ZERO, expect: None };
        self.see(server, Seen::Appended(&append));
    }

    /// Makes everything durable and tells the server.
    pub(crate) fn sync(&mut self, server: u8) {
        let seq = AppendSeq(self.appended.get(&server).copied().unwrap_or_default());
        self.see(server, Seen::Durable(seq));
        self.see(server, Seen::Told(seq));
    }

    /// Writes records and makes them durable.
    pub(crate) fn write(&mut self, server: u8, records: &[LogRecord]) {
        self.append(server, records);
        self.sync(server);
    }

    pub(crate) fn say(&mut self, from: u8, to: u8, message: &Message) {
        self.see(from, Seen::Sent { peer: id(to), link: LinkId(1), message });
    }

    /// Sends a message that arrives at once.
    pub(crate) fn tell(&mut self, from: u8, to: u8, message: &Message) {
        self.say(from, to, message);
        let process = self.checks.ghost.host(id(from)).process;
        self.see(to, Seen::Received { peer: id(from), process, message });
    }

    pub(crate) fn state(&mut self, server: u8, role: Role, epoch: u32, committed: Zxid, applied: Zxid) {
        let digest = self.checks.ghost.digests.get(&applied).copied();
        let state = State { role, epoch: super::story::epoch(epoch), committed, applied, digest };
        self.see(server, Seen::State(state));
    }

    /// A new epoch begins: all promise it, server 1 leads, and `followers` have its first entry.
    ///
    /// Nothing is committed yet.
    pub(crate) fn reign(&mut self, epoch: u32, followers: &[u8]) {
        self.write(1, &[promise(epoch)]);
        for &follower in followers {
            self.tell(follower, 1, &follower_info(epoch - 1));
            self.tell(1, follower, &leader_info(epoch));
            self.write(follower, &[promise(epoch)]);
            self.tell(follower, 1, &ack_epoch(epoch));
        }
        self.write(1, &[entered(epoch), entry(epoch, 0)]);
        for &follower in followers {
            self.tell(1, follower, &new_leader(epoch));
            self.write(follower, &[entered(epoch), entry(epoch, 0)]);
            self.tell(follower, 1, &ack(epoch, zxid(epoch, 0)));
        }
    }

    /// Returns all reported violations.
    pub(crate) fn wrong(&self) -> String {
        self.checks.violations().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    pub(crate) fn is_fine(&mut self) {
        self.checks.recount();
        assert_eq!(self.wrong(), "");
    }

    /// Checks that the first violation's text contains all of `says`.
    #[track_caller]
    pub(crate) fn is_wrong(&mut self, says: &[&str]) {
        self.checks.recount();
        let wrong = self.checks.verdict().expect_err("nothing is wrong").to_string();
        for part in says {
            assert!(wrong.contains(part), "{part:?} is not in {wrong:?}");
        }
    }
}

/// FollowerInfo of a learner that promised `accepted` before.
pub(crate) fn follower_info(accepted: u32) -> Message {
    let accepted = super::story::epoch(accepted);
    Message::FollowerInfo { attempt: Attempt(1), accepted, credentials: zoolet_zab::Credentials::default() }
}

pub(crate) fn leader_info(epoch: u32) -> Message {
    Message::LeaderInfo { attempt: Attempt(1), epoch: super::story::epoch(epoch) }
}

/// AckEpoch of a learner without any history.
pub(crate) fn ack_epoch(epoch: u32) -> Message {
    ack_epoch_of(epoch, zoolet_zab::Credentials::default())
}

pub(crate) fn ack_epoch_of(epoch: u32, credentials: zoolet_zab::Credentials) -> Message {
    Message::AckEpoch {
        attempt: Attempt(1),
        epoch: super::story::epoch(epoch),
        credentials,
        committed: Zxid::ZERO,
        tail: zoolet_zab::Spans::EMPTY,
        is_damaged: false,
    }
}

pub(crate) fn new_leader(epoch: u32) -> Message {
    Message::NewLeader { attempt: Attempt(1), epoch: super::story::epoch(epoch), serves_from: Zxid::ZERO }
}

pub(crate) fn ack(epoch: u32, to: Zxid) -> Message {
    Message::Ack { attempt: Attempt(1), epoch: super::story::epoch(epoch), to }
}

pub(crate) fn commit(epoch: u32, to: Zxid) -> Message {
    Message::Commit { attempt: Attempt(1), epoch: super::story::epoch(epoch), to }
}
