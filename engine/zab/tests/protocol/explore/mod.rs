//! Random runs of whole ensembles; every invariant is checked after every step.
//!
//! Each seed draws its own size, latencies and mix of faults:
//! - crashes at any step of the log, with and without word to the peers;
//! - wiped and damaged disks;
//! - resets, one-way cuts, partitions, pauses, drifting clocks;
//! - changes of membership and hand-overs.
//!
//! Then a part of the ensemble that can decide is healed. It must elect a leader, commit, and stay
//! quiet while idle.
//!
//! `ZAB_SEEDS` sets the number of seeds, `ZAB_SEED` the first one. `ZAB_GO_ON=1` continues after a
//! failing seed. A failure prints the end of its trace and the command that repeats it;
//! `ZAB_TRACE=FILE` writes the whole trace.

mod faults;
mod mix;
mod recovery;

use crate::net::rng::Rng;
use crate::net::{Net, Wake, server_id};
use mix::Mix;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use zoolet_zab::{AppendSeq, Config, LinkId, Message, Role, Timing};

#[allow(clippy::large_enum_variant, reason = "there are few of them")]
#[derive(Clone, Debug)]
enum Event {
    Stream(LinkId, usize),
    Datagram(LinkId, usize, Message),
    Parcel(LinkId, usize),
    /// Completion of an append, for one process of a server.
    Persist(u8, u64, AppendSeq),
    Deadline(u8),
    Start(u8),
    Resume(u8),
    /// Ends the cuts from the first server of each pair to the second.
    Mend(Vec<(u8, u8)>),
    Connect,
    Client,
    Fault,
}

impl Event {
    /// Returns the rank among events of one moment.
    ///
    /// Deadlines come last: they are judged after everything readable was handled.
    fn class(&self) -> u8 {
        u8::from(matches!(self, Self::Deadline(_)))
    }
}

struct Explorer {
    net: Net,
    rng: Rng,
    mix: Mix,
    queue: BinaryHeap<Reverse<(u64, u8, u64)>>,
    events: BTreeMap<u64, Event>,
    numbers: u64,
    /// Arrival time of the newest item of each stream; `disks` has the newest completion of each
    /// log.
    streams: BTreeMap<(LinkId, usize), u64>,
    disks: BTreeMap<u8, u64>,
    held: Vec<Event>,
    cuts: BTreeSet<(u8, u8)>,
    paused: BTreeMap<u8, u64>,
    /// Appends left before the server crashes.
    armed: BTreeMap<u8, u64>,
    /// Deadline of each server that is in the queue.
    deadlines: BTreeMap<u8, u64>,
    calm: bool,
    core: BTreeSet<u8>,
    steps: u64,
}

fn timing() -> Timing {
    // These runs have too few consecutive entries for the default.
    Timing { commit_hold_entries: 2, ..Timing::default() }
}

fn file_of(voters: u8) -> Config {
    let ids: Vec<_> = (1..=voters).map(server_id).collect();
    Config::of_voters(&ids).expect("a configuration")
}

impl Explorer {
    fn new(seed: u64, traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mix = Mix::draw(&mut rng);
        let mut net = Net::new(seed, timing());
        net.trace = traced.then(Vec::new);
        for id in 1..=mix.voters + mix.spares {
            net.add(id, file_of(mix.voters));
            let clock = (rng.below(1 << 40), rng.between(990, 1010));
            net.world.servers.get_mut(&id).expect("added").clock = clock;
        }
        let core = (1..=mix.voters + mix.spares).collect();
        Self {
            net,
            rng,
            mix,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            numbers: 0,
            streams: BTreeMap::new(),
            disks: BTreeMap::new(),
            held: Vec::new(),
            cuts: BTreeSet::new(),
            paused: BTreeMap::new(),
            armed: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            calm: false,
            core,
            steps: 0,
        }
    }

    fn now(&self) -> u64 {
        self.net.world.now
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.numbers += 1;
        self.queue.push(Reverse((at, event.class(), self.numbers)));
        self.events.insert(self.numbers, event);
    }

    fn plan_in(&mut self, ms: u64, event: Event) {
        self.plan(self.now() + ms, event);
    }

    fn ids(&self) -> Vec<u8> {
        self.net.world.servers.keys().copied().collect()
    }

    fn runs(&self, id: u8) -> bool {
        self.net.world.server(id).runs()
    }

    fn running(&self) -> Vec<u8> {
        self.ids().into_iter().filter(|id| self.runs(*id)).collect()
    }

    fn leader(&self) -> Option<u8> {
        let servers = self.net.world.servers.values();
        servers.filter(|server| server.role == Role::Leading).max_by_key(|server| server.zab().epoch()).map(|s| s.id)
    }

    // ---- the run

    fn storm(&mut self) {
        for id in self.ids() {
            let delay = self.rng.below(300);
            self.plan_in(delay, Event::Start(id));
        }
        self.plan_in(0, Event::Connect);
        self.plan_in(100, Event::Client);
        self.plan_in(500, Event::Fault);
        let end = self.now() + self.mix.storm_ms;
        self.run_until(end, |_| false);
    }

    /// Runs until `done` holds (true) or the time is up (false).
    fn run_until(&mut self, end: u64, done: impl Fn(&Self) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            let Some(Reverse((at, _, number))) = self.queue.peek().copied() else { return false };
            if at > end {
                self.net.world.now = end;
                return false;
            }
            self.queue.pop();
            let event = self.events.remove(&number).expect("planned");
            self.net.world.now = self.now().max(at);
            self.step(event);
            self.steps += 1;
            self.after();
        }
    }

    /// Returns the server whose pause delays this event.
    fn receiver(&self, event: &Event) -> Option<u8> {
        match event {
            Event::Stream(link, end) | Event::Datagram(link, end, _) | Event::Parcel(link, end) => {
                self.net.world.links.get(link).map(|link| link.ids[*end])
            }
            Event::Persist(id, _, _) | Event::Deadline(id) => Some(*id),
            _ => None,
        }
    }

    fn step(&mut self, event: Event) {
        if let Some(until) = self.receiver(&event).and_then(|id| self.paused.get(&id)).copied() {
            self.plan(until, event);
            return;
        }
        match event {
            Event::Stream(link, end) => {
                let is_cut = self.net.world.links.get(&link).is_some_and(|link| link.cut[end]);
                if is_cut {
                    self.held.push(event);
                } else {
                    self.net.deliver(link, end);
                }
            }
            Event::Datagram(link, end, message) => self.net.datagram(link, end, message),
            Event::Parcel(link, end) => {
                let is_cut = self.net.world.links.get(&link).is_some_and(|link| link.cut[end]);
                // The Snap message must arrive before the snapshot.
                let is_early = self.net.world.links.get(&link).is_some_and(|link| !link.streams[end].is_empty());
                if is_cut {
                    self.held.push(event);
                } else if is_early {
                    self.plan_in(5, event);
                } else {
                    let is_complete = self.calm || !self.rng.once_in(10);
                    self.net.parcel(link, end, is_complete);
                }
            }
            Event::Persist(id, process, seq) => {
                let server = self.net.world.server(id);
                if server.runs() && server.process == process && server.log.persisted < seq {
                    self.net.persist(id, seq);
                }
            }
            Event::Deadline(id) => {
                self.deadlines.remove(&id);
                let is_due = self.net.next_deadline(id).is_some_and(|at| at <= self.now());
                if self.runs(id) && is_due {
                    // A handled deadline may set another one that is due at once, but not for ever.
                    for _ in 0..10 {
                        self.net.deadline(id);
                        if self.net.next_deadline(id).is_none_or(|at| at > self.now()) {
                            return;
                        }
                    }
                    panic!("the deadline of server {id} does not pass");
                }
            }
            Event::Start(id) => {
                if !self.runs(id) && (!self.calm || self.core.contains(&id)) {
                    self.net.start(id);
                    let busy = self.rng.once_in(2);
                    self.net.set_busy(id, busy);
                }
            }
            Event::Resume(id) => {
                self.paused.remove(&id);
            }
            Event::Mend(pairs) => self.mend(&pairs),
            Event::Connect => self.connect(),
            Event::Client => self.client(),
            Event::Fault => self.fault(),
        }
    }

    /// Schedules the consequences of the last step.
    fn after(&mut self) {
        let mut crash = None;
        for wake in std::mem::take(&mut self.net.wakes) {
            match wake {
                Wake::Stream { link, end } => {
                    let arrives = self.now() + self.latency();
                    let last = self.streams.entry((link, end)).or_default();
                    *last = arrives.max(*last);
                    let at = *last;
                    self.plan(at, Event::Stream(link, end));
                }
                Wake::Datagram { link, end, message } => {
                    if self.calm || !self.rng.once_in(self.mix.lost) {
                        let latency = self.latency();
                        self.plan_in(latency, Event::Datagram(link, end, message.clone()));
                    }
                    if !self.calm && self.rng.once_in(self.mix.repeated) {
                        let latency = self.latency() + self.rng.below(300);
                        self.plan_in(latency, Event::Datagram(link, end, message));
                    }
                }
                Wake::Parcel { link, end } => {
                    let most = if self.rng.once_in(4) { 1500 } else { 50 };
                    let latency = self.latency() + self.rng.below(most);
                    self.plan_in(latency, Event::Parcel(link, end));
                }
                Wake::Append { server, process, seq } => {
                    if let Some(left) = self.armed.get_mut(&server) {
                        *left = left.saturating_sub(1);
                        if *left == 0 {
                            crash = Some(server);
                        }
                    }
                    // In a burst of appends, only the last completion may be reported.
                    if self.net.world.server(server).log.appended != seq && self.rng.once_in(2) {
                        continue;
                    }
                    let at = self.now() + self.disk_latency();
                    let last = self.disks.entry(server).or_default();
                    *last = at.max(*last);
                    let at = *last;
                    self.plan(at, Event::Persist(server, process, seq));
                }
            }
        }
        if let Some(id) = crash {
            self.armed.remove(&id);
            self.crash(id);
        }
        for id in self.ids() {
            if let Some(at) = self.net.next_deadline(id) {
                let at = at.max(self.now());
                if self.deadlines.get(&id).is_none_or(|planned| at < *planned) {
                    self.deadlines.insert(id, at);
                    self.plan(at, Event::Deadline(id));
                }
            }
        }
    }

    fn latency(&mut self) -> u64 {
        let (from, to) = if self.calm { (0, 5) } else { self.mix.stream_ms };
        let spike = if !self.calm && self.rng.once_in(200) { self.rng.below(600) } else { 0 };
        self.rng.between(from, to) + spike
    }

    fn disk_latency(&mut self) -> u64 {
        let (from, to) = if self.calm { (0, 10) } else { self.mix.disk_ms };
        let hang = if !self.calm && self.rng.once_in(self.mix.hangs) { self.rng.below(4000) } else { 0 };
        self.rng.between(from, to) + hang
    }

    // ---- links

    fn connect(&mut self) {
        let ids = self.running();
        for (at, &a) in ids.iter().enumerate() {
            for &b in &ids[at + 1..] {
                let is_cut = self.cuts.contains(&(a, b)) || self.cuts.contains(&(b, a));
                let is_paused = self.paused.contains_key(&a) || self.paused.contains_key(&b);
                let is_core = !self.calm || self.core.contains(&a) && self.core.contains(&b);
                if self.net.world.link_between(a, b).is_none()
                    && !is_cut
                    && !is_paused
                    && is_core
                    && self.rng.once_in(2)
                {
                    if self.rng.once_in(2) {
                        self.net.connect(a, b)
                    } else {
                        self.net.connect(b, a)
                    };
                }
            }
        }
        // A server that hears nothing on a link gives it up sooner or later.
        let silent: Vec<_> = self
            .net
            .world
            .links
            .values()
            .filter(|link| {
                let [a, b] = link.ids;
                link.cut.contains(&true) || !self.runs(a) || !self.runs(b) || !link.is_whole()
            })
            .map(|link| link.id)
            .collect();
        for link in silent {
            if self.rng.once_in(40) {
                let end = self.rng.below(2) as usize;
                self.net.time_out(link, end);
            }
        }
        let delay = self.rng.between(10, 60);
        self.plan_in(delay, Event::Connect);
    }

    fn cut(&mut self, pairs: &[(u8, u8)]) {
        for &(from, to) in pairs {
            self.cuts.insert((from, to));
            for link in self.net.world.links.values_mut() {
                if let (Some(_), Some(end)) = (link.end_of(from), link.end_of(to)) {
                    link.cut[end] = true;
                }
            }
        }
    }

    fn mend(&mut self, pairs: &[(u8, u8)]) {
        for &(from, to) in pairs {
            self.cuts.remove(&(from, to));
            for link in self.net.world.links.values_mut() {
                if let (Some(_), Some(end)) = (link.end_of(from), link.end_of(to)) {
                    link.cut[end] = false;
                }
            }
        }
        for event in std::mem::take(&mut self.held) {
            self.plan_in(0, event);
        }
    }

    // ---- clients

    fn client(&mut self) {
        let ids = self.running();
        if let Some(&id) = self.rng.pick(&ids) {
            if self.rng.once_in(3) {
                let _ = self.net.confirm(id);
            }
            if self.rng.once_in(20) {
                let busy = self.rng.once_in(2);
                self.net.set_busy(id, busy);
            }
        }
        for id in ids {
            if self.net.world.server(id).role == Role::Leading {
                for _ in 0..self.rng.between(1, 4) {
                    let _ = self.net.propose(id);
                }
            }
        }
        if !self.calm {
            let delay = self.rng.between(1, 2 * self.mix.propose_ms);
            self.plan_in(delay, Event::Client);
        }
    }

    fn note(&mut self, line: String) {
        let now = self.now();
        if let Some(trace) = &mut self.net.trace {
            trace.push(format!("{now}: {line}"));
        }
    }
}

fn run(seed: u64, traced: bool) -> (Explorer, Option<String>) {
    let mut explorer = Explorer::new(seed, traced);
    let result = catch_unwind(AssertUnwindSafe(|| {
        explorer.storm();
        explorer.recover();
    }));
    let failure = result.err().map(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    });
    (explorer, failure)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

const SEEDS: u64 = 40;

#[test]
fn no_seed_breaks_an_invariant_or_ends_without_a_leader() {
    let first = number("ZAB_SEED");
    let count = number("ZAB_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let first = first.unwrap_or(1);
    break_a_rule();
    let (mut steps, mut committed, mut epochs, mut ms) = (0, 0, 0, 0);
    let mut failed = Vec::new();
    for seed in first..first + count {
        let (explorer, failure) = run(seed, false);
        steps += explorer.steps;
        committed += explorer.net.world.committed.len();
        epochs += explorer.net.world.primaries.len();
        ms += explorer.now();
        if let Some(failure) = failure {
            let kind = failure.lines().next().unwrap_or_default();
            report(&format!("seed {seed} ({} steps): {kind}", explorer.steps));
            failed.push((seed, failure));
            if number("ZAB_GO_ON").is_none() {
                break;
            }
        }
    }
    report(&format!(
        "{count} seeds: {steps} steps, {committed} entries in {epochs} epochs, {} simulated seconds",
        ms / 1000
    ));
    let Some((seed, failure)) = failed.first() else { return };
    let (explorer, again) = run(*seed, true);
    let trace = explorer.net.trace.unwrap_or_default();
    if let Ok(path) = std::env::var("ZAB_TRACE") {
        std::fs::write(path, trace.join("\n")).expect("the trace can be written");
    }
    let tail = trace[trace.len().saturating_sub(150)..].join("\n");
    panic!(
        "{:?}\n{tail}\n\nseed {seed}: {failure}\n{}repeat: ZAB_SEED={seed} cargo test -p zoolet-zab --test protocol explore::",
        explorer.mix,
        if again.as_ref() == Some(failure) { "" } else { "it failed otherwise the second time!\n" }
    );
}

/// Breaks the rule that `ZAB_MUTATION` names: a test of this test.
fn break_a_rule() {
    #[cfg(feature = "mutations")]
    if let Ok(name) = std::env::var("ZAB_MUTATION") {
        let mutation = zoolet_zab::Mutation::ALL.iter().find(|mutation| mutation.name() == name);
        zoolet_zab::mutation::set(Some(*mutation.expect("such a mutation")));
    }
}

/// Each seed that docs/explanation/safety.md names for a rule of the core finds that rule broken.
///
/// With the rule in force, the same seed passes.
#[cfg(feature = "mutations")]
#[test]
fn every_broken_rule_of_the_core_is_found() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explanation/safety.md");
    let text = std::fs::read_to_string(table).expect("the table can be read");
    let seed_of = |name: &str| {
        let row = text.lines().find_map(|line| line.strip_prefix("| ")?.strip_prefix(name)?.strip_prefix(" | "))?;
        row.split(" | ").next()?.parse().ok()
    };
    let mut found = 0;
    for &mutation in zoolet_zab::Mutation::ALL {
        let Some(seed) = seed_of(mutation.name()) else { continue };
        zoolet_zab::mutation::set(Some(mutation));
        let broken = run(seed, false).1;
        zoolet_zab::mutation::set(None);
        assert!(broken.is_some(), "{}: seed {seed} does not find it", mutation.name());
        assert_eq!(run(seed, false).1, None, "seed {seed} fails anyway");
        found += 1;
    }
    assert!(found >= 25, "{found} rules have a seed");
}

#[allow(clippy::print_stderr, reason = "what a long run has done is asked for")]
fn report(line: &str) {
    eprintln!("{line}");
}
