//! The machine never allocates, and its size is bounded.
//!
//! The allocator counts over a million proposals and thousands of elections, Diffs, Truncs and
//! Snaps. The machine must fit in 32 KiB.

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::collections::VecDeque;
use zoolet_zab::{
    Action, AppendSeq, Config, Incarnation, LinkId, Message, Recovered, Role, ServerId, Timing, Zab, Zxid,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SERVERS: usize = 3;

fn id(at: usize) -> ServerId {
    ServerId::new(at as u8 + 1).expect("ids start at 1")
}

/// Three connected machines; the wiring itself does not allocate once it runs.
struct Wired {
    now: u64,
    zabs: Vec<Zab>,
    /// Indexed by receiver, then sender.
    queues: Vec<Vec<VecDeque<Message>>>,
    links: [[Option<LinkId>; SERVERS]; SERVERS],
    newest_link: u64,
    appended: [AppendSeq; SERVERS],
    /// The server whose log hangs.
    hangs: Option<usize>,
    birth: Option<Config>,
    /// A pending snapshot: its receiver and its sender.
    snapshot: Option<(usize, usize)>,
    leads: Option<usize>,
    epochs: u64,
    diffs: u64,
    truncs: u64,
    snaps: u64,
}

impl Wired {
    fn new() -> Self {
        let ids: Vec<ServerId> = (0..SERVERS).map(id).collect();
        let config = Config::of_voters(&ids).expect("three voters");
        let zab = |at: usize| {
            let recovered = Recovered::empty(Incarnation(at as u128 + 1), config.clone());
            Zab::new(id(at), Timing::default(), recovered, at as u64)
        };
        let queue = |_| VecDeque::with_capacity(1 << 12);
        Self {
            now: 1000,
            zabs: (0..SERVERS).map(zab).collect(),
            queues: (0..SERVERS).map(|_| (0..SERVERS).map(queue).collect()).collect(),
            links: [[None; SERVERS]; SERVERS],
            newest_link: 0,
            appended: [AppendSeq(0); SERVERS],
            hangs: None,
            birth: None,
            snapshot: None,
            leads: None,
            epochs: 0,
            diffs: 0,
            truncs: 0,
            snaps: 0,
        }
    }

    fn start(&mut self) {
        for at in 0..SERVERS {
            self.zabs[at].start(self.now);
            self.drain(at);
        }
        for a in 0..SERVERS {
            for b in 0..a {
                self.connect(a, b);
            }
        }
    }

    fn connect(&mut self, a: usize, b: usize) {
        self.newest_link += 1;
        let link = LinkId(self.newest_link);
        for (a, b) in [(a, b), (b, a)] {
            self.links[a][b] = Some(link);
            self.zabs[a].handle_link_up(self.now, id(b), link, Incarnation(b as u128 + 1));
            self.drain(a);
        }
    }

    fn disconnect(&mut self, a: usize, b: usize) {
        for (a, b) in [(a, b), (b, a)] {
            self.queues[a][b].clear();
            if let Some(link) = self.links[a][b].take() {
                self.zabs[a].handle_link_down(self.now, id(b), link);
                self.drain(a);
            }
        }
    }

    fn drain(&mut self, at: usize) {
        while let Some(action) = self.zabs[at].poll_action(self.now) {
            match action {
                Action::Promise { seq, .. }
                | Action::Epoch { seq, .. }
                | Action::Birth { seq, .. }
                | Action::Damaged { seq }
                | Action::Configs { seq }
                | Action::Truncate { seq, .. }
                | Action::SnapEnd { seq, .. } => self.appended[at] = seq,
                Action::Append { seq, from, .. } => {
                    self.appended[at] = seq;
                    if self.zabs[at].config().version == from && self.birth.is_none() {
                        self.birth = Some(self.zabs[at].config().clone());
                    }
                }
                Action::Become(role) => {
                    if role == Role::Leading {
                        (self.leads, self.epochs) = (Some(at), self.epochs + 1);
                    } else if self.leads == Some(at) {
                        self.leads = None;
                    }
                }
                Action::Send { peer, link, message } => {
                    let to = usize::from(peer.as_u8()) - 1;
                    match message {
                        Message::Diff { .. } => self.diffs += 1,
                        Message::Trunc { .. } => self.truncs += 1,
                        Message::Snap { .. } => (self.snaps, self.snapshot) = (self.snaps + 1, Some((to, at))),
                        _ => {}
                    }
                    if self.links[at][to] == Some(link) {
                        self.queues[to][at].push_back(message);
                    }
                }
                Action::Commit { .. } | Action::Confirmed { .. } => {}
                Action::Close { peer, fault, .. } => panic!("{} closes its link to {peer:?}: {fault:?}", at + 1),
            }
        }
    }

    fn persist(&mut self, at: usize) -> bool {
        let seq = self.appended[at];
        if self.hangs == Some(at) || seq == AppendSeq(0) {
            return false;
        }
        self.zabs[at].handle_persisted(self.now, seq);
        self.drain(at);
        self.appended[at] != seq
    }

    fn hear(&mut self, to: usize, from: usize, message: Message) {
        let Some(link) = self.links[to][from] else { return };
        if let Message::Proposal { attempt, epoch, from: first, to: last, committed } = message {
            // A membership entry is handled alone.
            let birth = self.birth.as_ref().filter(|birth| birth.version == first).cloned();
            if birth.is_some() && first < last {
                let one = Message::Proposal { attempt, epoch, from: first, to: first, committed };
                self.zabs[to].handle_message(self.now, id(from), link, one, birth);
                self.drain(to);
                let Some(next) = first.next() else { return };
                let rest = Message::Proposal { attempt, epoch, from: next, to: last, committed };
                self.zabs[to].handle_message(self.now, id(from), link, rest, None);
            } else {
                self.zabs[to].handle_message(self.now, id(from), link, message, birth);
            }
        } else {
            self.zabs[to].handle_message(self.now, id(from), link, message, None);
        }
        self.drain(to);
    }

    /// Delivers and persists until nothing is in flight.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for to in 0..SERVERS {
                for from in 0..SERVERS {
                    while let Some(message) = self.queues[to][from].pop_front() {
                        self.hear(to, from, message);
                        moved = true;
                    }
                }
            }
            // The Snap message must arrive before the snapshot.
            if !moved && let Some((to, from)) = self.snapshot.take() {
                let zxid = self.zabs[from].applicable();
                self.zabs[to].handle_snapshot(self.now, zxid);
                self.drain(to);
                moved = true;
            }
            for at in 0..SERVERS {
                moved |= self.persist(at);
            }
            if !moved {
                return;
            }
        }
    }

    /// Lets time pass until the next deadline.
    fn tick(&mut self) {
        let next = self.zabs.iter().filter_map(Zab::next_deadline).min().unwrap_or(self.now + 1);
        self.now = self.now.max(next);
        for at in 0..SERVERS {
            if self.zabs[at].next_deadline().is_some_and(|due| due <= self.now) {
                self.zabs[at].handle_deadline(self.now);
                self.drain(at);
            }
        }
        self.settle();
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if done(self) {
                return;
            }
            self.tick();
        }
        let state = |zab: &Zab| (zab.role(), zab.leader(), zab.epoch(), zab.accepted(), zab.last(), zab.applicable());
        panic!("it takes for ever: {:#?} at {}", self.zabs.iter().map(state).collect::<Vec<_>>(), self.now);
    }

    fn all_follow(&self) -> bool {
        let Some(leader) = self.leads else { return false };
        let last = self.zabs[leader].last();
        self.zabs.iter().all(|zab| zab.role() != Role::Looking && zab.applicable() == last)
    }

    fn propose(&mut self, count: u64) {
        let leader = self.leads.expect("somebody leads");
        for _ in 0..count {
            self.zabs[leader].propose(self.now).expect("it leads");
            self.drain(leader);
        }
    }
}

fn main() {
    let mut wired = Wired::new();
    wired.start();
    wired.until(Wired::all_follow);

    let region = Region::new(ALLOCATOR);
    for _ in 0..1_000_000 / 64 {
        wired.propose(64);
        wired.settle();
        if wired.leads.is_none() {
            wired.until(Wired::all_follow);
        }
    }
    assert_eq!(region.change().allocations, 0, "in a million proposals");
    wired.until(Wired::all_follow);

    for round in 0..3000 {
        let old = wired.leads.expect("somebody leads");
        // The old leader's proposals reach no other server, so it must truncate them later.
        if round % 3 == 0 {
            wired.propose(2);
        }
        let others = [(old + 1) % SERVERS, (old + 2) % SERVERS];
        others.iter().for_each(|other| wired.disconnect(old, *other));
        wired.until(|it| it.leads.is_some_and(|leader| leader != old));
        wired.propose(5);
        wired.settle();
        if round % 5 == 0 {
            for zab in &mut wired.zabs {
                zab.handle_log_floor(zab.applicable());
            }
        }
        others.iter().for_each(|other| wired.connect(old, *other));
        wired.until(Wired::all_follow);
        wired.zabs[old].confirm(wired.now).expect("it follows");
        wired.drain(old);
        wired.settle();
    }
    assert_eq!(region.change().allocations, 0, "in {} epochs", wired.epochs);
    assert!(
        wired.epochs > 3000 && wired.diffs > 4000 && wired.truncs > 500 && wired.snaps > 300,
        "all of it happened: \
        {} epochs, {} Diffs, {} Truncs, {} Snaps",
        wired.epochs,
        wired.diffs,
        wired.truncs,
        wired.snaps
    );
    assert!(wired.zabs[0].last() > Zxid::ZERO);
}

const _: () = assert!(size_of::<Zab>() <= 32 * 1024);
