//! Links between the processes of an ensemble, modelled on QUIC.
//!
//! A link has independent streams, each of which keeps its order. It also has datagrams, which may
//! be lost, duplicated or reordered. A message that was sent on one link never arrives on another.
//!
//! A link has two *ends*. Each end learns separately that the link came up or went down. A cut
//! resets nothing: streams wait until it heals. An end that has heard nothing for the idle timeout
//! gives up, and tells its peer nothing. A process that dies or sleeps is silent too.
//!
//! Sans-IO like the engine: commands and [`SimLinks::land`] change the state.
//! [`SimLinks::poll_flight`] returns messages in flight with their arrival times, and
//! [`SimLinks::poll_landed`] returns the events of processes.

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

/// Streams of a link in each direction.
pub const STREAMS: usize = 4;

/// Identifies a link; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// The carrier of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// One of the [`STREAMS`]: everything arrives, in order.
    Stream(usize),
    /// May be lost, duplicated or reordered.
    Datagram,
}

/// Parameters of all links; times are in microseconds.
#[derive(Clone, Debug)]
pub struct Network {
    /// Silence after which an end gives up.
    pub idle_timeout_us: u64,
    /// Interval between the first two attempts to reach a peer; doubles with each attempt.
    pub dial_us: u64,
    /// Maximum interval between two attempts.
    pub dial_us_max: u64,
    /// Whether a process answers packets of an unknown link with a reset.
    pub has_stateless_resets: bool,
}

/// A message in flight, or a scheduled check.
///
/// The caller hands it to [`SimLinks::land`] at its time.
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

/// An event at a process.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are in every variant")]
pub enum Landed<M> {
    /// A peer has proved its identity. `process` is the number of the peer's process.
    Up { at: ServerId, peer: ServerId, link: LinkId, process: u64 },
    /// A message from a peer.
    Message { at: ServerId, peer: ServerId, link: LinkId, carrier: Carrier, message: M },
    /// The link is down.
    Down { at: ServerId, peer: ServerId, link: LinkId },
}

impl<M> Landed<M> {
    /// Returns the server at which the event happens.
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
    /// The handshake is in progress.
    Joining,
    Up,
    Down,
}

#[derive(Debug)]
struct End<M> {
    server: ServerId,
    process: u64,
    state: State,
    /// Messages to this end.
    lanes: [Lane<M>; STREAMS],
    /// The last step of the handshake waits for a cut to heal.
    is_confirm_parked: bool,
    /// Since when the other end cannot reach this one.
    silent_since_us: Option<u64>,
    /// Number of the current silence, which distinguishes it from earlier ones.
    silence: u64,
    /// The idle timeout passed while the process slept; the end gives up when it wakes.
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
    /// Events that arrived while it slept.
    held: VecDeque<Landed<M>>,
}

/// All links of an ensemble.
#[derive(Debug)]
pub struct SimLinks<M> {
    network: Network,
    random: Random,
    paths: BTreeMap<(ServerId, ServerId), Path>,
    hosts: BTreeMap<ServerId, Host<M>>,
    links: BTreeMap<LinkId, Link<M>>,
    /// The link that a server has with a peer: (server, peer).
    up: BTreeMap<(ServerId, ServerId), LinkId>,
    diallers: BTreeMap<(ServerId, ServerId), dial::Dialler>,
    made: u64,
    flights: VecDeque<(u64, Flight<M>)>,
    landed: VecDeque<Landed<M>>,
}

impl<M: Clone> SimLinks<M> {
    /// Creates the links of boxes without processes; `path` gives the path between two boxes.
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

    /// Returns the path from one box to another. For cuts use [`SimLinks::cut`].
    pub fn path_mut(&mut self, from: ServerId, to: ServerId) -> Option<&mut Path> {
        self.paths.get_mut(&(from, to))
    }

    /// Returns the link that a process has with a peer, as the process knows.
    pub fn link(&self, at: ServerId, peer: ServerId) -> Option<LinkId> {
        self.up.get(&(at, peer)).copied()
    }

    /// Returns whether two processes share one link whose paths are both well.
    pub fn is_intact(&self, one: ServerId, other: ServerId) -> bool {
        let is_well = |way| self.paths.get(&way).is_some_and(Path::is_well);
        let link = self.link(one, other);
        link.is_some() && link == self.link(other, one) && is_well((one, other)) && is_well((other, one))
    }

    /// Poll: returns the next message in flight and its arrival time.
    pub fn poll_flight(&mut self) -> Option<(u64, Flight<M>)> {
        self.flights.pop_front()
    }

    /// Poll: returns the next event of a process.
    pub fn poll_landed(&mut self) -> Option<Landed<M>> {
        self.landed.pop_front()
    }

    /// Sends a message of a process; lost if the sender's end is not up.
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

    /// Closes a link at a process.
    ///
    /// The process hears nothing more of the link. Its peer is told, if the message gets through.
    pub fn close(&mut self, now_us: u64, at: ServerId, link: LinkId) {
        if let Some(side) = self.links.get(&link).and_then(|found| found.side_of(at)) {
            self.take_down(now_us, link, side, false);
            self.say_closed(now_us, link, side);
        }
    }

    /// Breaks a link: one end notices at once, the other when the message arrives.
    ///
    /// Returns `false` if there is no such link.
    pub fn reset(&mut self, now_us: u64, at: ServerId, peer: ServerId) -> bool {
        let Some(&link) = self.up.get(&(at, peer)) else { return false };
        let Some(side) = self.links.get(&link).and_then(|found| found.side_of(at)) else { return false };
        self.take_down(now_us, link, side, true);
        self.say_closed(now_us, link, side);
        true
    }

    /// Handles a flight whose time has come.
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

    /// Returns the end that receives messages of `server`, and the path to it.
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
            // The packet was lost in the cut. The sender repeats it, if the sender is still there.
            _ if is_cut && is_sender_there => end.lanes[stream].park(number, message),
            _ if is_cut => {}
            State::Up | State::Joining => {
                end.lanes[stream].arrive(number, message);
                self.read(now_us, link, to);
            }
            State::Down | State::Absent => self.on_message(now_us, link, to, Carrier::Stream(stream), message),
        }
    }

    /// Delivers everything that has arrived on the streams to an end that is up.
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

    /// Returns whether a packet that arrives now reaches the end.
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
