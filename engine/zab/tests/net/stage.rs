//! A network that follows commands; everything else happens in a fixed order, without delay.

use super::link::End;
use super::log::Record;
use super::{Item, Net, Wake, server_id};
use std::collections::BTreeSet;
use std::rc::Rc;
use zoolet_zab::{Config, EnsembleId, Epoch, Kind, LinkId, Member, Message, Stance, Timing, Zxid};

pub(crate) struct Stage {
    pub(crate) net: Net,
    /// Servers whose disks make nothing durable.
    pub(crate) hung: BTreeSet<u8>,
    pub(crate) loses_datagrams: bool,
    datagrams: Vec<(LinkId, usize, Message)>,
}

impl Stage {
    /// Creates the voters of a configuration file, with empty disks.
    pub(crate) fn new(voters: &[u8]) -> Self {
        let mut net = Net::new(7, Timing::default());
        net.trace = Some(Vec::new());
        let ids: Vec<_> = voters.iter().map(|id| server_id(*id)).collect();
        let file = Config::of_voters(&ids).expect("a configuration");
        voters.iter().for_each(|id| net.add(*id, file.clone()));
        Self { net, hung: BTreeSet::new(), loses_datagrams: false, datagrams: Vec::new() }
    }

    /// Adds a server that the configuration file does not name.
    pub(crate) fn spare(&mut self, id: u8) {
        let file = self.net.world.servers.values().next().expect("there are voters").file.clone();
        self.net.add(id, file);
    }

    /// Fills a disk as if its ensemble was born long ago.
    ///
    /// Each `(epoch, last)` adds the entries 0 to `last` of an epoch. `committed` is the disk's
    /// watermark.
    pub(crate) fn history(&mut self, id: u8, epochs: &[(u32, u64)], committed: Zxid) {
        let zxid = |epoch, counter| Zxid::new(Epoch::new(epoch).expect("an epoch"), counter).expect("a zxid");
        let Some(&(newest, _)) = epochs.last() else { return };
        let disks: Vec<_> = self.net.world.servers.values().map(|server| (server.id, server.log.disk)).collect();
        let file = self.net.world.server(id).file.clone();
        let members: Vec<_> = file
            .voters()
            .map(|voter| {
                let disk = disks.iter().find(|(id, _)| *id == voter.id.as_u8()).expect("a server").1;
                Member { id: voter.id, kind: Kind::Voter, disk }
            })
            .collect();
        let birth = Config::new(EnsembleId(1), zxid(epochs[0].0, 0), &members).expect("a configuration");
        let birth = Rc::new(birth);
        let log = self.net.log_mut(id);
        log.append(Record::Birth(EnsembleId(1)), Zxid::ZERO);
        log.append(Record::Configs { committed: birth.clone(), pending: None }, Zxid::ZERO);
        let newest = Epoch::new(newest).expect("an epoch");
        log.append(Record::Promise(newest), Zxid::ZERO);
        let seq = log.append(Record::Epoch(newest), Zxid::ZERO);
        log.persist(seq);
        for &(epoch, last) in epochs {
            for counter in 0..=last {
                let config = (zxid(epoch, counter) == birth.version).then(|| birth.clone());
                self.net.preset(id, zxid(epoch, counter), zxid(epoch, counter).to_bits(), config);
            }
        }
        let log = self.net.log_mut(id);
        let seq = log.append(Record::Promise(newest), committed);
        log.persist(seq);
    }

    pub(crate) fn start(&mut self, ids: &[u8]) {
        ids.iter().for_each(|id| self.net.start(*id));
    }

    /// Connects all running servers that have no link yet.
    pub(crate) fn connect_all(&mut self) {
        let ids: Vec<u8> = self.net.world.servers.values().filter(|server| server.runs()).map(|s| s.id).collect();
        for (at, &a) in ids.iter().enumerate() {
            for &b in &ids[at + 1..] {
                if self.net.world.link_between(a, b).is_none() {
                    self.net.connect(a, b);
                }
            }
        }
    }

    pub(crate) fn link(&self, from: u8, to: u8) -> (LinkId, usize) {
        let link = self.net.world.link_between(from, to).expect("they have a link");
        (link.id, link.end_of(to).expect("it is an end"))
    }

    /// Delivers the next `count` items from one server to another.
    pub(crate) fn deliver(&mut self, from: u8, to: u8, count: usize) {
        let (link, end) = self.link(from, to);
        for _ in 0..count {
            self.net.deliver(link, end);
        }
        self.collect();
    }

    /// Delivers items until a message that satisfies `is_it` was delivered.
    pub(crate) fn deliver_until(&mut self, from: u8, to: u8, is_it: impl Fn(&Message) -> bool) {
        let (link, end) = self.link(from, to);
        loop {
            let next = self.net.world.links.get(&link).and_then(|link| link.streams[end].front()).cloned();
            let Some(item) = next else { panic!("it is not on its way from {from} to {to}") };
            self.net.deliver(link, end);
            self.collect();
            if matches!(item, super::Item::Letter(letter) if is_it(&letter.message)) {
                return;
            }
        }
    }

    /// Breaks the link of two servers; all items in flight on it are lost.
    pub(crate) fn reset(&mut self, a: u8, b: u8) {
        let (link, _) = self.link(a, b);
        self.net.reset(link, [0, 0]);
    }

    pub(crate) fn cut(&mut self, from: u8, to: u8, is_cut: bool) {
        for link in self.net.world.links.values_mut() {
            if let (Some(_), Some(end)) = (link.end_of(from), link.end_of(to)) {
                link.cut[end] = is_cut;
            }
        }
    }

    pub(crate) fn persist(&mut self, id: u8, count: u64) {
        let log = &self.net.world.server(id).log;
        let to = zoolet_zab::AppendSeq((log.persisted.0 + count).min(log.appended.0));
        self.net.persist(id, to);
        self.collect();
    }

    pub(crate) fn persist_all(&mut self, id: u8) -> bool {
        let log = &self.net.world.server(id).log;
        let (persisted, appended) = (log.persisted, log.appended);
        if persisted < appended {
            self.net.persist(id, appended);
        }
        self.collect();
        persisted < appended
    }

    fn collect(&mut self) {
        for wake in std::mem::take(&mut self.net.wakes) {
            if let Wake::Datagram { link, end, message } = wake {
                self.datagrams.push((link, end, message));
            }
        }
    }

    /// Delivers the datagrams in flight; datagrams they cause come later.
    pub(crate) fn deliver_datagrams(&mut self) {
        self.collect();
        for (link, end, message) in std::mem::take(&mut self.datagrams) {
            self.net.datagram(link, end, message);
        }
        self.collect();
    }

    /// Delivers the datagrams in flight to one server.
    pub(crate) fn deliver_datagrams_to(&mut self, to: u8) {
        self.collect();
        let links = &self.net.world.links;
        let is_for_it = |(link, end, _): &(LinkId, usize, Message)| {
            links.get(link).is_some_and(|link| link.end_of(to) == Some(*end))
        };
        let (now, later) = std::mem::take(&mut self.datagrams).into_iter().partition(is_for_it);
        self.datagrams = later;
        let now: Vec<_> = now;
        for (link, end, message) in now {
            self.net.datagram(link, end, message);
        }
        self.collect();
    }

    /// Returns whether a message in flight says that its sender suspects its leader.
    pub(crate) fn is_suspicion_in_flight(&self) -> bool {
        let is_suspicion = |item: &Item| {
            let Item::Letter(letter) = item else { return false };
            let Message::Notification(said) = &letter.message else { return false };
            matches!(said.stance, Stance::Following { suspects: true, .. })
        };
        self.net.world.links.values().any(|link| link.streams.iter().flatten().any(is_suspicion))
    }

    /// Delivers and persists the messages in flight. The answers to them stay in flight.
    pub(crate) fn deliver_once(&mut self) {
        self.collect();
        let datagrams = std::mem::take(&mut self.datagrams);
        let links = self.net.world.links.iter();
        let waiting: Vec<_> =
            links.flat_map(|(link, it)| [0, 1].map(|end| (*link, end, it.streams[end].len()))).collect();
        for (link, end, count) in waiting {
            for _ in 0..count {
                self.net.deliver(link, end);
            }
        }
        for (link, end, message) in datagrams {
            self.net.datagram(link, end, message);
        }
        let ids: Vec<u8> = self.net.world.servers.keys().copied().collect();
        for id in ids {
            self.persist_all(id);
        }
    }

    /// Delivers and persists everything, without letting time pass.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            self.collect();
            let mut moved = false;
            let ends: Vec<_> = self.net.world.links.keys().flat_map(|link| [(*link, 0), (*link, 1)]).collect();
            for (link, end) in ends {
                while self.net.deliver(link, end) {
                    moved = true;
                }
                let has_parcel = self.net.world.links.get(&link).is_some_and(|it| {
                    !it.parcels[end].is_empty() && it.streams[end].is_empty() && !it.cut[end] && it.ends[end] == End::Up
                });
                if has_parcel {
                    self.net.parcel(link, end, true);
                    moved = true;
                }
            }
            self.collect();
            for (link, end, message) in std::mem::take(&mut self.datagrams) {
                if !self.loses_datagrams {
                    self.net.datagram(link, end, message);
                    moved = true;
                }
            }
            let ids: Vec<u8> = self.net.world.servers.keys().copied().collect();
            for id in ids {
                if !self.hung.contains(&id) && self.net.world.server(id).runs() {
                    moved |= self.persist_all(id);
                }
            }
            if !moved {
                return;
            }
        }
        panic!("it goes on for ever");
    }

    /// Lets `ms` milliseconds pass without delivering anything.
    pub(crate) fn tick(&mut self, ms: u64) {
        let end = self.net.world.now + ms;
        while let Some((at, id)) = self.next_deadline().filter(|(at, _)| *at <= end) {
            self.net.world.now = self.net.world.now.max(at);
            self.net.deadline(id);
            self.collect();
        }
        self.net.world.now = end;
    }

    /// Lets `ms` milliseconds pass, delivering and persisting everything at once.
    pub(crate) fn run(&mut self, ms: u64) {
        let end = self.net.world.now + ms;
        self.settle();
        while let Some((at, id)) = self.next_deadline().filter(|(at, _)| *at <= end) {
            self.net.world.now = self.net.world.now.max(at);
            self.net.deadline(id);
            self.settle();
        }
        self.net.world.now = end;
    }

    /// Lets `ms` milliseconds pass in which one server handles events of its clients: it reads no
    /// message and no deadline comes. The others get its datagrams.
    pub(crate) fn work(&mut self, busy: u8, ms: u64) {
        let others: Vec<u8> = self.net.world.servers.keys().copied().filter(|&id| id != busy).collect();
        for _ in 0..ms {
            self.net.world.now += 1;
            self.net.ping_on_time(busy);
            for &id in &others {
                self.deliver_datagrams_to(id);
                if self.net.next_deadline(id).is_some_and(|at| at <= self.net.world.now) {
                    self.net.deadline(id);
                }
                self.collect();
            }
        }
    }

    fn next_deadline(&self) -> Option<(u64, u8)> {
        let running = self.net.world.servers.values().filter(|server| server.runs());
        running.filter_map(|server| Some((self.net.next_deadline(server.id)?, server.id))).min()
    }
}
