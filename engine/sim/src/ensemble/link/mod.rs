//! Links between the processes of an ensemble, as QUIC makes them.
//!
//! A link has streams, each first in, first out and independent of the others, and datagrams, which get lost, come twice and overtake. It has two
//! *ends*, and each end learns by itself that the link came up or went down. A cut resets nothing: streams wait for its end, and only when an end
//! has heard nothing for the idle timeout it gives up, silently. A process that dies or sleeps is silence too. What was sent on one link never
//! arrives on another.
//!
//! Sans-IO like the engine: commands and [`Links::land`] change it, [`Links::poll_flight`] gives what lands later, and when, and
//! [`Links::poll_landed`] what the processes hear.

mod dial;
mod path;
mod silence;
#[cfg(test)]
mod tests;

pub use path::Path;

use super::lane::Lane;
use crate::workload::Random;
use std::collections::{BTreeMap, VecDeque};
use zoolet_zab::ServerId;

/// Streams of a link, in each direction.
pub const STREAMS: usize = 4;

/// A link; never used for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// What carries a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// One of the [`STREAMS`]: everything arrives, in order.
    Stream(usize),
    /// May be lost, come twice, or overtake.
    Datagram,
}

/// What is the same for all links of a run, microseconds.
#[derive(Clone, Debug)]
pub struct Network {
    /// Silence after which an end gives up.
    pub idle_timeout_us: u64,
    /// Between the first two attempts to reach a peer; doubled from one to the next.
    pub dial_us: u64,
    /// The most between two attempts.
    pub dial_us_max: u64,
    /// Whether a process says so when it gets packets of a link that it does not know.
    pub has_stateless_resets: bool,
}

/// What is on its way, or will be looked at; to be handed to [`Links::land`] at its time.
#[derive(Debug)]
pub enum Flight<M> {
    #[doc(hidden)]
    Redial { from: ServerId, to: ServerId, attempt: u64 },
    #[doc(hidden)]
    Dial { link: LinkId },
    #[doc(hidden)]
    Accept { link: LinkId },
    #[doc(hidden)]
    Confirm { link: LinkId },
    #[doc(hidden)]
    Stream { link: LinkId, to: Side, stream: usize, number: u64, message: M },
    #[doc(hidden)]
    Datagram { link: LinkId, to: Side, message: M },
    #[doc(hidden)]
    Closed { link: LinkId, to: Side },
    #[doc(hidden)]
    Silence { link: LinkId, end: Side, mark: u64 },
}

/// What a process hears.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are in every variant")]
pub enum Landed<M> {
    /// A peer proved who it is. `process` is the number of the peer's process.
    Up { at: ServerId, peer: ServerId, link: LinkId, process: u64 },
    /// A peer said something.
    Message { at: ServerId, peer: ServerId, link: LinkId, carrier: Carrier, message: M },
    /// Nothing more comes on this link.
    Down { at: ServerId, peer: ServerId, link: LinkId },
}

impl<M> Landed<M> {
    /// Who hears it.
    pub fn at(&self) -> ServerId {
        match self {
            Self::Up { at, .. } | Self::Message { at, .. } | Self::Down { at, .. } => *at,
        }
    }
}

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(hidden)]
pub enum Side {
    Dialler,
    Acceptor,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Dialler, Self::Acceptor];

    const fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Acceptor,
            Self::Acceptor => Self::Dialler,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It has not heard of the link.
    Absent,
    /// The handshake is under way.
    Joining,
    Up,
    Down,
}

#[derive(Debug)]
struct End<M> {
    server: ServerId,
    process: u64,
    state: State,
    /// What is sent to this end.
    lanes: [Lane<M>; STREAMS],
    /// The end of the handshake waits for a cut to heal.
    is_confirm_parked: bool,
    /// Since when it cannot hear the other end.
    silent_since_us: Option<u64>,
    /// Tells a silence from an earlier one.
    silence: u64,
    /// It has given up, and does not know yet because its process sleeps.
    is_overdue: bool,
}

#[derive(Debug)]
struct Link<M> {
    dialler: End<M>,
    acceptor: End<M>,
}

impl<M> Link<M> {
    fn end(&self, side: Side) -> &End<M> {
        match side {
            Side::Dialler => &self.dialler,
            Side::Acceptor => &self.acceptor,
        }
    }

    fn end_mut(&mut self, side: Side) -> &mut End<M> {
        match side {
            Side::Dialler => &mut self.dialler,
            Side::Acceptor => &mut self.acceptor,
        }
    }

    fn side_of(&self, server: ServerId) -> Option<Side> {
        Side::BOTH.into_iter().find(|&side| self.end(side).server == server)
    }
}

/// A box and the process on it.
#[derive(Debug)]
struct Host<M> {
    process: u64,
    is_alive: bool,
    is_asleep: bool,
    /// What came while it slept.
    held: VecDeque<Landed<M>>,
}

/// All links of an ensemble.
#[derive(Debug)]
pub struct Links<M> {
    network: Network,
    random: Random,
    paths: BTreeMap<(ServerId, ServerId), Path>,
    hosts: BTreeMap<ServerId, Host<M>>,
    links: BTreeMap<LinkId, Link<M>>,
    /// The link that an end has with a peer: (end, peer).
    up: BTreeMap<(ServerId, ServerId), LinkId>,
    diallers: BTreeMap<(ServerId, ServerId), dial::Dialler>,
    made: u64,
    flights: VecDeque<(u64, Flight<M>)>,
    landed: VecDeque<Landed<M>>,
}

impl<M: Clone> Links<M> {
    /// Boxes without processes. `path` says how packets fare from one to another.
    pub fn new(
        servers: &[ServerId],
        network: Network,
        mut random: Random,
        mut path: impl FnMut(ServerId, ServerId, &mut Random) -> Path,
    ) -> Self {
        let vacant = || Host { process: 0, is_alive: false, is_asleep: false, held: VecDeque::new() };
        let mut links = Self {
            network,
            paths: BTreeMap::new(),
            hosts: servers.iter().map(|&server| (server, vacant())).collect(),
            links: BTreeMap::new(),
            up: BTreeMap::new(),
            diallers: BTreeMap::new(),
            made: 0,
            flights: VecDeque::new(),
            landed: VecDeque::new(),
            random: random.fork(),
        };
        for &from in servers {
            for &to in servers.iter().filter(|&&to| to != from) {
                links.paths.insert((from, to), path(from, to, &mut random));
                links.diallers.insert((from, to), dial::Dialler::default());
            }
        }
        links
    }

    /// How packets fare from one box to another; not for cuts.
    pub fn path_mut(&mut self, from: ServerId, to: ServerId) -> Option<&mut Path> {
        self.paths.get_mut(&(from, to))
    }

    /// The link that a process has with a peer, as it knows.
    pub fn link(&self, at: ServerId, peer: ServerId) -> Option<LinkId> {
        self.up.get(&(at, peer)).copied()
    }

    /// Whether two processes have one link, and packets fare well on it.
    pub fn is_intact(&self, one: ServerId, other: ServerId) -> bool {
        let is_well = |way| self.paths.get(&way).is_some_and(Path::is_well);
        let link = self.link(one, other);
        link.is_some() && link == self.link(other, one) && is_well((one, other)) && is_well((other, one))
    }

    /// Poll: what lands later, and when.
    pub fn poll_flight(&mut self) -> Option<(u64, Flight<M>)> {
        self.flights.pop_front()
    }

    /// Poll: what a process hears now.
    pub fn poll_landed(&mut self) -> Option<Landed<M>> {
        self.landed.pop_front()
    }

    /// A process says something. On a link that its end does not have it is lost.
    pub fn send(&mut self, now_us: u64, from: ServerId, link: LinkId, carrier: Carrier, message: M) {
        let Some((to, path)) = self.way(from, link) else { return };
        if let Carrier::Stream(stream) = carrier {
            if let Some(found) = self.links.get_mut(&link) {
                let number = found.end_mut(to).lanes[stream].number();
                self.launch(now_us, link, to, stream, number, message);
            }
            return;
        }
        let copies = 1 + usize::from(self.random.in_a_million(path.twice_ppm));
        for _ in 0..copies {
            if !self.random.in_a_million(path.loss_ppm) && !path.is_cut {
                let at_us = now_us + path.packet_us(&mut self.random);
                self.flights.push_back((at_us, Flight::Datagram { link, to, message: message.clone() }));
            }
        }
    }

    /// A process has enough of a link. It hears nothing more of it; its peer is told, if the message gets through.
    pub fn close(&mut self, now_us: u64, at: ServerId, link: LinkId) {
        if let Some(side) = self.links.get(&link).and_then(|found| found.side_of(at)) {
            self.take_down(now_us, link, side, false);
            self.say_closed(now_us, link, side);
        }
    }

    /// The link breaks: one end finds out at once, the other when it is told.
    pub fn reset(&mut self, now_us: u64, at: ServerId, peer: ServerId) -> bool {
        let Some(&link) = self.up.get(&(at, peer)) else { return false };
        let Some(side) = self.links.get(&link).and_then(|found| found.side_of(at)) else { return false };
        self.take_down(now_us, link, side, true);
        self.say_closed(now_us, link, side);
        true
    }

    /// The time of a flight has come.
    pub fn land(&mut self, now_us: u64, flight: Flight<M>) {
        match flight {
            Flight::Redial { from, to, attempt } => self.redial(now_us, from, to, attempt),
            Flight::Dial { link } => self.on_dial(now_us, link),
            Flight::Accept { link } => self.on_accept(now_us, link),
            Flight::Confirm { link } => self.on_confirm(now_us, link),
            Flight::Stream { link, to, stream, number, message } => {
                self.on_stream(now_us, link, to, stream, number, message);
            }
            Flight::Datagram { link, to, message } => self.on_message(now_us, link, to, Carrier::Datagram, message),
            Flight::Closed { link, to } if self.reaches(link, to) => self.take_down(now_us, link, to, true),
            Flight::Closed { .. } => {}
            Flight::Silence { link, end, mark } => self.on_silence(now_us, link, end, mark),
        }
    }

    /// The end that a message from `server` goes to, and how it fares.
    fn way(&self, server: ServerId, link: LinkId) -> Option<(Side, Path)> {
        let found = self.links.get(&link)?;
        let from = found.side_of(server).filter(|&side| found.end(side).state == State::Up)?;
        Some((from.other(), self.path_to(link, from.other())?.clone()))
    }

    fn path_to(&self, link: LinkId, to: Side) -> Option<&Path> {
        let found = self.links.get(&link)?;
        self.paths.get(&(found.end(to.other()).server, found.end(to).server))
    }

    fn launch(&mut self, now_us: u64, link: LinkId, to: Side, stream: usize, number: u64, message: M) {
        let Some(path) = self.path_to(link, to).cloned() else { return };
        if !path.is_cut {
            let at_us = now_us + path.stream_us(&mut self.random);
            self.flights.push_back((at_us, Flight::Stream { link, to, stream, number, message }));
        } else if let Some(found) = self.links.get_mut(&link) {
            found.end_mut(to).lanes[stream].park(number, message);
        }
    }

    fn on_stream(&mut self, now_us: u64, link: LinkId, to: Side, stream: usize, number: u64, message: M) {
        let is_cut = self.path_to(link, to).is_none_or(|path| path.is_cut);
        let Some(found) = self.links.get_mut(&link) else { return };
        let is_sender_there = matches!(found.end(to.other()).state, State::Up | State::Joining);
        let end = found.end_mut(to);
        match end.state {
            // Lost on the way; it will be sent again, if its sender is still there to do so.
            _ if is_cut && is_sender_there => end.lanes[stream].park(number, message),
            _ if is_cut => {}
            State::Up | State::Joining => {
                end.lanes[stream].arrive(number, message);
                self.read(now_us, link, to);
            }
            State::Down | State::Absent => self.on_message(now_us, link, to, Carrier::Stream(stream), message),
        }
    }

    /// What has arrived on the streams to an end, as far as it is up.
    fn read(&mut self, now_us: u64, link: LinkId, to: Side) {
        for stream in 0..STREAMS {
            while let Some(message) = self.next_of(link, to, stream) {
                self.on_message(now_us, link, to, Carrier::Stream(stream), message);
            }
        }
    }

    fn next_of(&mut self, link: LinkId, to: Side, stream: usize) -> Option<M> {
        let found = self.links.get_mut(&link).filter(|found| found.end(to).state == State::Up)?;
        found.end_mut(to).lanes[stream].read()
    }

    fn on_message(&mut self, now_us: u64, link: LinkId, to: Side, carrier: Carrier, message: M) {
        let Some(found) = self.links.get(&link) else { return };
        let (at, peer) = (found.end(to).server, found.end(to.other()).server);
        match found.end(to).state {
            State::Up if self.reaches(link, to) => self.tell(Landed::Message { at, peer, link, carrier, message }),
            State::Down if self.network.has_stateless_resets && self.reaches(link, to) => {
                self.say_closed(now_us, link, to);
            }
            State::Up | State::Down | State::Absent | State::Joining => {}
        }
    }

    /// Whether a packet that is about to arrive at an end does.
    fn reaches(&self, link: LinkId, to: Side) -> bool {
        let server = self.links.get(&link).map(|found| found.end(to).server);
        let is_there = server.and_then(|server| self.hosts.get(&server)).is_some_and(|there| there.is_alive);
        is_there && self.path_to(link, to).is_some_and(|path| !path.is_cut)
    }

    fn say_closed(&mut self, now_us: u64, link: LinkId, from: Side) {
        let to = from.other();
        if let Some(path) = self.path_to(link, to).filter(|path| !path.is_cut).cloned() {
            self.flights.push_back((now_us + path.packet_us(&mut self.random), Flight::Closed { link, to }));
        }
    }

    fn tell(&mut self, landed: Landed<M>) {
        match self.hosts.get_mut(&landed.at()) {
            Some(there) if there.is_asleep => there.held.push_back(landed),
            Some(_) | None => self.landed.push_back(landed),
        }
    }
}
