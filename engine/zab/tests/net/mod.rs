//! A network of protocol machines that runs one step at a time.
//!
//! The test's driver decides which message is delivered or lost, which append becomes durable, and
//! which server crashes. The invariants are checked after every step.

// Each test binary uses only a part of this module.
#![allow(dead_code)]

pub(crate) mod delivery;
#[path = "../invariant/mod.rs"]
pub(crate) mod invariant;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod rng;
pub(crate) mod short;
pub(crate) mod stage;

use invariant::{Checks, Fact};
use link::{End, Item, Letter, Link, Parcel};
use log::{Entry, Log, Record, State, chain_after};
use short::Short;
use std::collections::BTreeMap;
use std::rc::Rc;
use zoolet_zab::{
    Action, AppendSeq, Attempt, Config, Epoch, Incarnation, LinkId, Member, Message, Refused, Role, Round, ServerId,
    Timing, Zab, Zxid,
};

pub(crate) fn server_id(id: u8) -> ServerId {
    ServerId::new(id).expect("ids start at 1")
}

/// One server: a disk that lasts, and a process that may end.
pub(crate) struct Server {
    pub(crate) id: u8,
    pub(crate) log: Log,
    /// Content of its configuration file.
    pub(crate) file: Config,
    /// The process, while it runs.
    pub(crate) zab: Option<Box<Zab>>,
    /// Number of the process in the whole run.
    pub(crate) process: u64,
    pub(crate) applied: Zxid,
    pub(crate) role: Role,
    /// Entries of the Proposal being handled.
    arrived: Vec<Entry>,
    /// Snapshot announced last; a driver drops every other one.
    announced: Option<(LinkId, Attempt)>,
    /// Snapshot being handled.
    received: Option<Rc<Vec<Entry>>>,
    /// Open confirmations, each with the last entry committed anywhere when it was asked for.
    pub(crate) questions: BTreeMap<Round, Zxid>,
    /// Its clock: the reading at world time 0, and the speed in thousandths.
    pub(crate) clock: (u64, u64),
}

impl Server {
    pub(crate) fn zab(&self) -> &Zab {
        self.zab.as_ref().expect("it runs")
    }

    pub(crate) fn runs(&self) -> bool {
        self.zab.is_some()
    }

    /// Returns its clock's reading at world time `now`.
    pub(crate) fn now(&self, now: u64) -> u64 {
        self.clock.0 + now * self.clock.1 / 1000
    }

    /// Returns the delivered entries: the applied part of its history.
    pub(crate) fn delivered(&self) -> &[Entry] {
        self.log.written.up_to(self.applied)
    }
}

/// The server that proposed in an epoch, and its proposals.
#[derive(Clone, Debug)]
pub(crate) struct Primary {
    pub(crate) server: u8,
    pub(crate) process: u64,
    /// The epoch's initial history: the primary's history when the epoch began.
    pub(crate) initial: Vec<Entry>,
    /// Its proposals, in order.
    pub(crate) proposed: Vec<Entry>,
    /// Last entry it had delivered at its first proposal.
    pub(crate) delivered: Zxid,
}

/// An event that a driver may want to schedule.
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
#[derive(Clone, Debug)]
pub(crate) enum Wake {
    /// One more item is in flight to this end of a link.
    Stream { link: LinkId, end: usize },
    /// A datagram was sent to this end of a link; the driver has the only copy.
    Datagram { link: LinkId, end: usize, message: Message },
    /// A snapshot was sent to this end of a link.
    Parcel { link: LinkId, end: usize },
    /// A record was appended.
    Append { server: u8, process: u64, seq: AppendSeq },
}

/// The simulated world, without its checks.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) timing: Timing,
    pub(crate) seed: u64,
    pub(crate) servers: BTreeMap<u8, Server>,
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) primaries: BTreeMap<Epoch, Primary>,
    /// Every entry that any server ever committed.
    pub(crate) committed: Vec<Entry>,
    /// Epoch in which each of these entries was committed.
    pub(crate) committed_in: Vec<Epoch>,
    /// Durable states of disks before they were wiped or damaged.
    pub(crate) lost: Vec<(u8, Incarnation, State)>,
    disks: u128,
    processes: u64,
    payloads: u64,
}

impl World {
    pub(crate) fn server(&self, id: u8) -> &Server {
        &self.servers[&id]
    }

    /// Returns the last entry ever committed.
    pub(crate) fn last_committed(&self) -> Zxid {
        self.committed.last().map_or(Zxid::ZERO, |entry| entry.zxid)
    }

    /// Returns whether this disk holds this exact entry durably, or did before it was lost.
    pub(crate) fn held(&self, id: u8, disk: Incarnation, entry: &Entry) -> bool {
        let is_it = |other: Incarnation| disk == Incarnation(0) || disk == other;
        self.servers.get(&id).is_some_and(|server| is_it(server.log.disk) && server.log.durable.holds(entry))
            || self.lost.iter().any(|(server, lost, state)| *server == id && is_it(*lost) && state.holds(entry))
    }

    /// Returns the newest link between two servers that neither end has left.
    pub(crate) fn link_between(&self, a: u8, b: u8) -> Option<&Link> {
        self.links.values().rev().find(|link| link.is_whole() && link.end_of(a).is_some() && link.end_of(b).is_some())
    }
}

/// A world and its checks.
pub(crate) struct Net {
    pub(crate) world: World,
    pub(crate) checks: Checks,
    pub(crate) wakes: Vec<Wake>,
    /// Events so far, if a trace is recorded.
    pub(crate) trace: Option<Vec<String>>,
    links: u64,
}

impl Net {
    pub(crate) fn new(seed: u64, timing: Timing) -> Self {
        let world = World {
            now: 1000,
            timing,
            seed,
            servers: BTreeMap::new(),
            links: BTreeMap::new(),
            primaries: BTreeMap::new(),
            committed: Vec::new(),
            committed_in: Vec::new(),
            lost: Vec::new(),
            disks: 0,
            processes: 0,
            payloads: 0,
        };
        Self { world, checks: Checks::all(), wakes: Vec::new(), trace: None, links: 0 }
    }

    fn say(&mut self, line: impl FnOnce(&World) -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{}: {}", self.world.now, line(&self.world)));
        }
    }

    fn check(&mut self, fact: &Fact<'_>) {
        self.checks.see(&self.world, fact);
    }

    // ---- servers

    /// Adds a server with an empty disk; it does not run yet.
    pub(crate) fn add(&mut self, id: u8, file: Config) {
        let disk = self.new_disk(id);
        let server = Server {
            id,
            log: Log::empty(disk),
            file,
            zab: None,
            process: 0,
            applied: Zxid::ZERO,
            role: Role::Looking,
            arrived: Vec::new(),
            announced: None,
            received: None,
            questions: BTreeMap::new(),
            clock: (0, 1000),
        };
        self.world.servers.insert(id, server);
    }

    fn new_disk(&mut self, id: u8) -> Incarnation {
        self.world.disks += 1;
        Incarnation(u128::from(id) << 64 | self.world.disks)
    }

    fn server_mut(&mut self, id: u8) -> &mut Server {
        self.world.servers.get_mut(&id).expect("there is such a server")
    }

    pub(crate) fn log_mut(&mut self, id: u8) -> &mut Log {
        let server = self.server_mut(id);
        assert!(server.zab.is_none(), "its log is its own while it runs");
        &mut server.log
    }

    /// Appends an entry to a stopped server's log, as if left by an earlier epoch.
    pub(crate) fn preset(&mut self, id: u8, zxid: Zxid, payload: u64, config: Option<Rc<Config>>) {
        let log = self.log_mut(id);
        let chain = chain_after(log.written.chain(), zxid, payload);
        let seq = log.append(Record::Entry(Entry { zxid, payload, chain, config }), Zxid::ZERO);
        log.persist(seq);
    }

    pub(crate) fn start(&mut self, id: u8) {
        self.world.processes += 1;
        let (timing, process) = (self.world.timing, self.world.processes);
        let seed = self.world.seed ^ process.wrapping_mul(0x9e37_79b9);
        self.say(|_| format!("{id} starts"));
        let server = self.server_mut(id);
        assert!(server.zab.is_none(), "it does not run");
        let recovered = server.log.recovered(&server.file);
        server.process = process;
        server.applied = recovered.committed;
        server.role = Role::Looking;
        let zab = Zab::new(server_id(id), timing, recovered, seed);
        server.zab = Some(Box::new(zab));
        self.check(&Fact::Started { by: id });
        self.turn(id, |zab, now| zab.start(now));
    }

    /// Ends the process of a server.
    ///
    /// `keep` of its records in flight survive. If `is_told` is false, its peers have to find out.
    pub(crate) fn crash(&mut self, id: u8, keep: usize, is_told: bool) {
        self.say(|_| format!("{id} crashes"));
        let server = self.server_mut(id);
        server.zab = None;
        (server.role, server.applied) = (Role::Looking, Zxid::ZERO);
        server.announced = None;
        server.log.crash(keep);
        server.questions.clear();
        let mine: Vec<LinkId> =
            self.world.links.values().filter(|link| link.end_of(id).is_some()).map(|link| link.id).collect();
        for link in mine {
            self.hang_up(link, id, is_told);
        }
        self.check(&Fact::Crashed { by: id });
    }

    /// Replaces the disk of a stopped server by an empty one.
    pub(crate) fn wipe(&mut self, id: u8) {
        self.say(|_| format!("{id} gets an empty disk"));
        let disk = self.new_disk(id);
        let server = self.server_mut(id);
        assert!(server.zab.is_none(), "nobody pulls a disk out of a running server");
        let old = std::mem::replace(&mut server.log, Log::empty(disk));
        self.world.lost.push((id, old.disk, old.durable));
        self.check(&Fact::Wiped { by: id });
    }

    /// Makes a log lose its last entries; the server knows of the loss.
    pub(crate) fn rot(&mut self, id: u8, entries: usize) {
        self.say(|_| format!("the log of {id} lost {entries} entries"));
        let log = self.log_mut(id);
        let (disk, before) = (log.disk, log.durable.clone());
        log.rot(entries);
        self.world.lost.push((id, disk, before));
    }

    /// Makes appends up to `seq` durable.
    pub(crate) fn persist(&mut self, id: u8, seq: AppendSeq) {
        self.say(|_| format!("{id} has #{} durable", seq.0));
        let log = &mut self.server_mut(id).log;
        log.persist(seq);
        self.check(&Fact::Persisted { by: id });
        self.turn(id, |zab, now| zab.handle_persisted(now, seq));
    }

    /// Drops log entries up to `to`, as if a checkpoint held them.
    pub(crate) fn raise_floor(&mut self, id: u8, to: Zxid) {
        let to = to.min(self.world.server(id).log.durable.watermark);
        if to > self.world.server(id).log.written.floor {
            self.say(|_| format!("the log of {id} begins after {to:?}"));
            self.server_mut(id).log.raise_floor(to);
            self.turn(id, |zab, _| zab.handle_log_floor(to));
        }
    }

    // ---- time

    /// Returns a server's next deadline in world time.
    pub(crate) fn next_deadline(&self, id: u8) -> Option<u64> {
        let server = self.world.server(id);
        let deadline = server.zab.as_ref().and_then(|zab| zab.next_deadline())?;
        let (offset, rate) = server.clock;
        Some((deadline.saturating_sub(offset).saturating_mul(1000)).div_ceil(rate))
    }

    /// Reports a possible deadline, after everything readable was handled.
    pub(crate) fn deadline(&mut self, id: u8) {
        self.turn(id, |zab, now| zab.handle_deadline(now));
    }

    // ---- commands

    pub(crate) fn propose(&mut self, id: u8) -> Result<Zxid, Refused> {
        let proposed = self.turn(id, |zab, now| zab.propose(now));
        if let Ok(zxid) = proposed {
            self.say(|_| format!("{id} proposes {zxid:?}"));
        }
        proposed
    }

    pub(crate) fn confirm(&mut self, id: u8) -> Result<Round, Refused> {
        let least = self.world.last_committed();
        let now = self.world.server(id).now(self.world.now);
        let server = self.server_mut(id);
        let round = server.zab.as_mut().expect("it runs").confirm(now)?;
        server.questions.insert(round, least);
        self.say(|_| format!("{id} asks for confirmation {}", round.0));
        self.pump(id);
        Ok(round)
    }

    pub(crate) fn reconfigure(&mut self, id: u8, members: &[Member]) -> Result<Zxid, Refused> {
        let proposed = self.turn(id, |zab, now| zab.reconfigure(now, members));
        if let Ok(zxid) = proposed {
            self.say(|_| format!("{id} proposes members as {zxid:?}"));
        }
        proposed
    }

    pub(crate) fn hand_over(&mut self, id: u8) {
        self.say(|_| format!("{id} hands over"));
        self.turn(id, |zab, now| zab.hand_over(now));
    }

    pub(crate) fn expect_commit(&mut self, id: u8, peer: ServerId, zxid: Zxid) {
        self.turn(id, |zab, _| zab.expect_commit(peer, zxid));
    }

    pub(crate) fn take_commit(&mut self, id: u8, peer: ServerId) -> Option<Message> {
        self.turn(id, |zab, _| zab.take_commit(peer))
    }

    pub(crate) fn set_has_room(&mut self, id: u8, has_room: bool) {
        self.say(|_| format!("the disk of {id} {}", if has_room { "has room" } else { "is full" }));
        self.turn(id, |zab, now| zab.set_has_room(now, has_room));
    }

    pub(crate) fn answer_learners(&mut self, id: u8) {
        self.turn(id, |zab, now| zab.answer_learners(now));
    }

    pub(crate) fn ping_on_time(&mut self, id: u8) {
        self.turn(id, |zab, now| zab.ping_on_time(now));
    }

    pub(crate) fn expect_leader(&mut self, id: u8) {
        self.turn(id, |zab, now| zab.expect_leader(now));
    }

    pub(crate) fn set_busy(&mut self, id: u8, busy: bool) {
        self.turn(id, |zab, now| zab.set_busy(now, busy));
    }

    // ---- one server's turn

    fn hear(&mut self, me: u8, peer: u8, link: LinkId, letter: Letter) {
        self.say(|_| format!("{me} <- {peer} {}", Short(&letter.message)));
        let Letter { message, entries } = letter;
        self.check(&Fact::Heard { by: me, from: peer, link, message: &message });
        if let Message::Snap { attempt, .. } = message {
            self.server_mut(me).announced = Some((link, attempt));
        }
        let Message::Proposal { attempt, epoch, committed, .. } = message else {
            self.turn(me, |zab, now| zab.handle_message(now, server_id(peer), link, message, None));
            return;
        };
        // A membership entry is handled alone.
        for part in entries.chunk_by(|one, next| one.config.is_none() && next.config.is_none()) {
            let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
            let config = first.config.as_ref().map(|config| Config::clone(config));
            let message = Message::Proposal { attempt, epoch, from: first.zxid, to: last.zxid, committed };
            self.server_mut(me).arrived = part.to_vec();
            self.turn(me, |zab, now| zab.handle_message(now, server_id(peer), link, message, config));
            if let Some(server) = self.world.servers.get_mut(&me) {
                server.arrived.clear();
            }
        }
    }

    fn turn<T>(&mut self, id: u8, call: impl FnOnce(&mut Zab, u64) -> T) -> T {
        let now = self.world.server(id).now(self.world.now);
        let zab = self.server_mut(id).zab.as_mut().expect("it runs");
        let result = call(zab, now);
        self.pump(id);
        result
    }

    fn pump(&mut self, id: u8) {
        let mut unreadable = Vec::new();
        let now = self.world.server(id).now(self.world.now);
        loop {
            self.declare(id);
            let server = self.server_mut(id);
            let Some(action) = server.zab.as_mut().expect("it runs").poll_action(now) else { break };
            self.act(id, action, &mut unreadable);
        }
        for peer in unreadable {
            self.say(|_| format!("{id} has no more of what {peer} needs in its log"));
            self.turn(id, |zab, now| zab.handle_unreadable(now, server_id(peer)));
        }
        self.check(&Fact::Turn { by: id });
    }

    /// Records a commit as soon as any server knows of it.
    ///
    /// A leader may know of a commit before its own disk has the entry, and so before it can apply
    /// it.
    fn declare(&mut self, id: u8) {
        let server = self.world.server(id);
        let (known, committed) = (self.world.last_committed(), server.zab().committed());
        if committed > known && server.log.written.last() >= committed {
            let history: Vec<Entry> = server.log.written.up_to(committed).to_vec();
            self.say(|_| format!("{committed:?} is committed"));
            self.check(&Fact::Declared { by: id, before: known, history: &history });
            let epoch = self.world.server(id).zab().epoch();
            self.world.committed.extend(history.into_iter().filter(|entry| entry.zxid > known));
            self.world.committed_in.resize(self.world.committed.len(), epoch);
        }
    }

    fn act(&mut self, id: u8, action: Action, unreadable: &mut Vec<u8>) {
        match action {
            Action::Promise { seq, epoch } => self.append(id, seq, Record::Promise(epoch), false),
            Action::Epoch { seq, epoch } => self.append(id, seq, Record::Epoch(epoch), false),
            Action::Birth { seq, ensemble } => self.append(id, seq, Record::Birth(ensemble), false),
            Action::Damaged { seq } => self.append(id, seq, Record::Damaged, false),
            Action::Configs { seq } => {
                let zab = self.world.server(id).zab();
                let committed = Rc::new(zab.config().clone());
                let pending = zab.pending_config().map(|config| Rc::new(config.clone()));
                self.append(id, seq, Record::Configs { committed, pending }, false);
            }
            Action::Truncate { seq, to } => self.append(id, seq, Record::Truncate(to), false),
            Action::SnapEnd { seq, zxid } => {
                let received = self.server_mut(id).received.take().expect("a snapshot was received");
                assert_eq!(received.last().map(|entry| entry.zxid), Some(zxid), "that snapshot");
                self.server_mut(id).applied = zxid;
                self.append(id, seq, Record::SnapEnd(received), false);
            }
            Action::Append { seq, from, to } => self.append_entries(id, seq, from, to),
            Action::Commit { to } => {
                self.say(|_| format!("{id}: commit {to:?}"));
                let server = self.server_mut(id);
                let before = server.applied;
                server.applied = to;
                self.check(&Fact::Committed { by: id, before, to });
            }
            Action::Become(role) => {
                self.say(|_| format!("{id}: {}", Short(&role)));
                self.server_mut(id).role = role;
                self.check(&Fact::Became { by: id, role });
            }
            Action::Confirmed { round, up_to } => {
                self.say(|_| match up_to {
                    Some(up_to) => format!("{id}: confirmation {} up to {up_to:?}", round.0),
                    None => format!("{id}: no confirmation {}", round.0),
                });
                // This answers every earlier question as well.
                let later = self.server_mut(id).questions.split_off(&Round(round.0 + 1));
                let answered = std::mem::replace(&mut self.server_mut(id).questions, later);
                let least = answered.into_values().max();
                self.check(&Fact::Confirmed { by: id, round, least, up_to });
            }
            Action::Send { peer, link, message } => self.send(id, peer.as_u8(), link, message, unreadable),
            Action::Close { peer, link, fault } => {
                self.say(|_| format!("{id}: closes the link to {}: {fault:?}", peer.as_u8()));
                self.hang_up(link, id, true);
                self.check(&Fact::Closed { by: id, peer: peer.as_u8(), fault: &fault });
            }
        }
    }

    fn append(&mut self, id: u8, seq: AppendSeq, record: Record, is_own: bool) {
        self.say(|_| format!("{id}: #{} {}", seq.0, Short(&record)));
        let server = self.server_mut(id);
        let (applied, process) = (server.applied, server.process);
        let appended = server.log.append(record.clone(), applied);
        assert_eq!(appended, seq, "{id} numbers its appends one by one");
        self.wakes.push(Wake::Append { server: id, process, seq });
        self.check(&Fact::Appended { by: id, record: &record, is_own });
    }

    fn append_entries(&mut self, id: u8, seq: AppendSeq, from: Zxid, to: Zxid) {
        let arrived = std::mem::take(&mut self.server_mut(id).arrived);
        let first = AppendSeq(seq.0 - (to.to_bits() - from.to_bits()));
        if !arrived.is_empty() {
            let range = arrived.first().zip(arrived.last()).map(|(first, last)| (first.zxid, last.zxid));
            assert_eq!(range, Some((from, to)), "a learner appends what came");
            for (entry, seq) in arrived.into_iter().zip(first.0..) {
                self.append(id, AppendSeq(seq), Record::Entry(entry), false);
            }
            return;
        }
        for (bits, seq) in (from.to_bits()..=to.to_bits()).zip(first.0..) {
            let zxid = Zxid::from_bits(bits).expect("between two zxids");
            self.world.payloads += 1;
            let payload = self.world.payloads;
            let server = self.world.server(id);
            let (zab, state, process) = (server.zab(), &server.log.written, server.process);
            let config = [Some(zab.config()), zab.pending_config()].into_iter().flatten().find(|c| c.version == zxid);
            let config = config.map(|config| Rc::new(config.clone()));
            let entry = Entry { zxid, payload, chain: chain_after(state.chain(), zxid, payload), config };
            let new = Primary {
                server: id,
                process,
                initial: state.entries.clone(),
                proposed: Vec::new(),
                delivered: server.applied,
            };
            // A lone voter promises, begins the epoch and proposes in one batch. If a crash loses
            // the whole batch, that primary is forgotten.
            let servers = &self.world.servers;
            self.world.primaries.retain(|epoch, old| {
                *epoch != zxid.epoch()
                    || (old.server, old.process) == (id, process)
                    || servers.values().any(|server| server.log.written.holds(&old.proposed[0]))
            });
            let primary = self.world.primaries.entry(zxid.epoch()).or_insert(new);
            primary.proposed.push(entry.clone());
            self.append(id, AppendSeq(seq), Record::Entry(entry), true);
        }
    }

    fn send(&mut self, id: u8, peer: u8, link: LinkId, message: Message, unreadable: &mut Vec<u8>) {
        self.check(&Fact::Sent { by: id, to: peer, link, message: &message });
        let mut entries = Vec::new();
        let state = &self.world.server(id).log.written;
        if let Message::Proposal { from, to, .. } = message {
            if from <= state.floor {
                unreadable.push(peer);
                return;
            }
            entries = state.up_to(to).iter().filter(|entry| entry.zxid >= from).cloned().collect();
            let range = entries.first().zip(entries.last()).map(|(first, last)| (first.zxid, last.zxid));
            assert_eq!(range, Some((from, to)), "{id} proposes what is in its history");
        }
        let mut parcel = None;
        if let Message::Snap { attempt, at_least, config, .. } = &message {
            let applied = self.world.server(id).applied;
            assert!(applied >= *at_least, "{id} announces a snapshot of what it applied");
            // A server's newest checkpoint may hold only the required minimum, so half of the links
            // send that.
            let held = if link.0.is_multiple_of(2) { applied } else { config.version.max(*at_least) };
            parcel = Some(Parcel { attempt: *attempt, entries: Rc::new(state.up_to(held).to_vec()) });
        }
        self.say(|_| format!("{id} -> {peer} {}", Short(&message)));
        let it =
            self.world.links.get_mut(&link).filter(|link| link.end_of(id).is_some() && link.end_of(peer).is_some());
        let Some(it) = it else {
            panic!("{id} sends to {peer} on a link that they never had, or that it knows to be gone")
        };
        let end = it.end_of(peer).expect("it is an end");
        assert_eq!(it.ends[1 - end], End::Up, "{id} sends to {peer} on a link that it does not have");
        if it.broken || it.ends[end] == End::Gone {
            return;
        }
        if message.is_datagram() {
            self.wakes.push(Wake::Datagram { link, end, message });
            return;
        }
        it.streams[end].push_back(Item::Letter(Letter { message, entries }));
        self.wakes.push(Wake::Stream { link, end });
        if let Some(parcel) = parcel {
            it.parcels[end].push_back(parcel);
            self.wakes.push(Wake::Parcel { link, end });
        }
    }
}
