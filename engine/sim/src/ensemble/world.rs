//! The state of a run, and the loop that executes its events.

use super::client::{Client, ToClient};
use super::host::Host;
use super::owners::{Due, Owners};
use super::process::Job;
use super::strike::Struck;
use super::wire::Arrival;
use super::witness::Witness;
use super::{Agenda, Fault, Flight, MS, Rank, Said, Sent, SimLinks, Wires};
use crate::oracle::ClientId;
use crate::workload::Random;
use std::collections::{BTreeMap, BTreeSet};
use zoolet_machine::ConnId;
use zoolet_machine::seam::peer::LinkId;
use zoolet_zab::{Config, Role, ServerId};

/// Events at one instant before the run counts as a livelock.
const AT_ONE_TIME_MAX: u64 = 200_000;

/// Interval at which a client checks whether its stopped process runs again.
const HELD_UP_US: u64 = 10 * MS;

/// An event that is scheduled for a time.
#[derive(Debug)]
pub(super) enum Happening {
    Flight(Flight<Said>),
    Arrival(Arrival),
    Job {
        server: ServerId,
        process: u64,
        job: Job,
    },
    Deadline {
        server: ServerId,
        process: u64,
        at_us: u64,
    },
    /// A turn of a busy core ends, and the core takes the events that arrived meanwhile.
    Turn {
        server: ServerId,
        process: u64,
    },
    /// A server that closed a connection learns that it is gone.
    Closed {
        server: ServerId,
        process: u64,
        conn: ConnId,
    },
    /// A process that closed a link learns that it is gone.
    LinkClosed {
        server: ServerId,
        process: u64,
        peer: ServerId,
        link: LinkId,
    },
    Client(ClientId),
    Start {
        server: ServerId,
    },
    /// A check whether a server that is being stopped has handed over.
    Stop {
        server: ServerId,
        process: u64,
        until_us: u64,
        lasts_us: u64,
    },
    /// The end of a disk hang that a test ordered.
    HangOver {
        server: ServerId,
    },
    /// A check whether the members are the founding ones again.
    Restore,
    Fault(Fault),
    Mend(u64),
    /// An event of a client whose requests come from futures.
    Owner(Due),
}

/// Everything outside the boxes.
pub(super) struct Around {
    pub(super) agenda: Agenda<Happening>,
    pub(super) links: SimLinks<Said>,
    pub(super) wires: Wires,
    pub(super) witness: Witness,
    /// The set of servers that serve clients may have changed.
    pub(super) has_changed: bool,
    /// Servers whose processes ended, unknown yet to the clients inside those processes.
    pub(super) ended: Vec<ServerId>,
    /// The incarnation of the disk under each process of each server.
    pub(super) incarnations: BTreeMap<(ServerId, u64), u128>,
}

impl Around {
    pub(super) fn send_to_client(&mut self, server: ServerId, process: u64, conn: ConnId, sent: Sent) {
        let now_us = self.agenda.now_us();
        if sent == Sent::Close {
            self.wires.send_to_client(now_us, conn, ToClient::Fin);
            self.agenda.after(1, Happening::Closed { server, process, conn });
        } else {
            self.wires.send_to_client(now_us, conn, ToClient::Sent(sent));
        }
    }

    /// Returns the disk incarnation under a process.
    ///
    /// Its peers learn it when a link to the process comes up.
    pub(super) fn incarnation_of(&self, server: ServerId, process: u64) -> u128 {
        self.incarnations.get(&(server, process)).copied().unwrap_or_default()
    }

    /// Resets a connection that the process does not know, as the kernel of its box does.
    pub(super) fn reset_client(&mut self, conn: ConnId) {
        self.wires.send_to_client(self.agenda.now_us(), conn, ToClient::Reset);
    }

    pub(super) fn reset_clients_of(&mut self, server: ServerId) {
        for conn in self.wires.of(server) {
            self.reset_client(conn);
        }
    }

    /// Schedules the arrival of everything that was sent.
    fn note_sent(&mut self) {
        while let Some((at_us, flight)) = self.links.poll_flight() {
            self.agenda.at(at_us, Rank::News, Happening::Flight(flight));
        }
        for (at_us, arrival) in self.wires.take_arrivals() {
            self.agenda.at(at_us, Rank::News, Happening::Arrival(arrival));
        }
    }
}

/// An ensemble and its clients.
pub struct World {
    pub(super) around: Around,
    pub(super) hosts: BTreeMap<ServerId, Host>,
    pub(super) clients: BTreeMap<ClientId, Client>,
    pub(super) owners: Owners,
    pub(super) random: Random,
    pub(super) struck: Struck,
    pub(super) founders: Config,
    /// The operator is restoring the founding members.
    pub(super) is_restoring: bool,
    at_one_time: (u64, u64),
}

impl World {
    pub(super) fn new(
        hosts: Vec<Host>,
        clients: Vec<(ClientId, Client)>,
        links: SimLinks<Said>,
        wires: Wires,
        witness: Witness,
        founders: Config,
        random: Random,
    ) -> Self {
        let mut world = Self {
            around: Around {
                agenda: Agenda::default(),
                links,
                wires,
                witness,
                has_changed: true,
                ended: Vec::new(),
                incarnations: BTreeMap::new(),
            },
            hosts: hosts.into_iter().map(|host| (host.id, host)).collect(),
            clients: clients.into_iter().collect(),
            owners: Owners::new(0),
            random,
            struck: Struck::default(),
            founders,
            is_restoring: false,
            at_one_time: (0, 0),
        };
        let servers: Vec<_> = world.hosts.keys().copied().collect();
        for server in servers {
            let delay_us = world.random.below(super::SECOND / 5);
            world.around.agenda.after(delay_us, Happening::Start { server });
        }
        let ids: Vec<_> = world.clients.keys().copied().collect();
        ids.into_iter().for_each(|id| world.arm_client(id));
        world
    }

    /// Returns the microseconds since the run began.
    pub fn now_us(&self) -> u64 {
        self.around.agenda.now_us()
    }

    /// Returns the number of events that happened.
    pub fn happened(&self) -> u64 {
        self.around.agenda.happened()
    }

    /// Returns the observations of the run.
    pub fn witness(&self) -> &Witness {
        &self.around.witness
    }

    /// Returns the box of a server.
    pub fn host(&self, server: ServerId) -> Option<&Host> {
        self.hosts.get(&server)
    }

    /// Returns the servers of all boxes.
    pub fn servers(&self) -> Vec<ServerId> {
        self.hosts.keys().copied().collect()
    }

    /// Stops a server's process as SIGSTOP does; its box still receives.
    pub fn pause(&mut self, server: ServerId) {
        self.with(server, Host::sleep);
    }

    /// Lets a stopped process continue.
    pub fn resume(&mut self, server: ServerId) {
        self.with(server, Host::wake);
    }

    /// Runs all events up to `until_us`, or up to the first violation.
    ///
    /// # Panics
    /// When too many events happen at one instant.
    pub fn run_until(&mut self, until_us: u64) {
        self.note_sent();
        while self.step(until_us) && self.around.witness.violations().is_empty() {}
    }

    /// Runs the next event and its immediate consequences.
    ///
    /// Returns `false` if no event is due by `until_us`; the time is `until_us` then.
    pub(super) fn step(&mut self, until_us: u64) -> bool {
        let Some(happening) = self.around.agenda.next(until_us) else { return false };
        let now_us = self.now_us();
        self.at_one_time = if self.at_one_time.0 == now_us { (now_us, self.at_one_time.1 + 1) } else { (now_us, 0) };
        assert!(self.at_one_time.1 < AT_ONE_TIME_MAX, "time stands still at {now_us} us: {happening:?}");
        self.owners.set_time(now_us);
        self.take_place(happening);
        self.hear();
        if let Some((by, to)) = self.around.witness.promised.take() {
            self.on_promised(by, to);
        }
        self.end_clients();
        self.run_owners();
        if std::mem::take(&mut self.around.has_changed) {
            self.tell_who_serves();
        }
        self.note_sent();
        true
    }

    /// Schedules the arrival of everything that was sent.
    pub(super) fn note_sent(&mut self) {
        self.around.note_sent();
    }

    /// Reports which servers serve, for the oracles that judge by time.
    ///
    /// A server in doubt counts as one that does not serve.
    fn tell_who_serves(&mut self) {
        let now_us = self.now_us();
        let said = |server: &ServerId| self.around.witness.said(*server);
        let is_sound = |server: &ServerId| self.hosts.get(server).is_some_and(Host::is_sound);
        let serves = |server: &ServerId| is_sound(server) && said(server).is_some_and(|state| state.is_serving);
        let leads = |server: &&ServerId| said(server).is_some_and(|state| state.role == Role::Leading);
        let leader =
            self.hosts.keys().filter(leads).max_by_key(|server| said(server).map(|state| state.epoch)).copied();
        let follows = |server: &ServerId| {
            let (Some(leader), Some(state)) = (leader, said(server)) else { return false };
            let is_led = matches!(state.role, Role::Following(by) | Role::Observing(by) if by == leader);
            *server == leader || (is_led && self.around.links.is_intact(*server, leader))
        };
        let serving: Vec<ServerId> =
            self.hosts.keys().filter(|server| serves(server) && follows(server)).copied().collect();
        let is_quiet = self.struck.is_quiet() && self.owners.are_sound();
        let is_quorum = leader.is_some_and(|leader| serving.contains(&leader) && self.is_quorum(leader, &serving));
        // A hung base fills the log. Then the log refuses writes as it does on a full disk, and the
        // server's state says so.
        let may_refuse = |server: &ServerId, host: &Host| {
            let says_so = said(server).is_some_and(|state| state.is_refusing);
            says_so || host.is_rotten() || self.struck.may_refuse(*server, now_us)
        };
        let refusing: BTreeSet<ServerId> =
            self.hosts.iter().filter(|(server, host)| may_refuse(server, host)).map(|(&server, _)| server).collect();
        let is_leader_refusing = refusing.iter().any(|server| leads(&server));
        let leading: BTreeSet<ServerId> = self.hosts.keys().filter(leads).copied().collect();
        let recorder = &mut self.around.witness.recorder;
        for (&server, host) in &self.hosts {
            recorder.held_up(now_us, server, host.is_held_up());
            recorder.leading(now_us, server, leading.contains(&server));
            recorder.standing_still(now_us, server, host.clock.is_frozen());
            recorder.serving(now_us, server, is_quorum && serving.contains(&server));
            recorder.refusing(now_us, server, refusing.contains(&server));
        }
        recorder.leader_refusing(now_us, is_leader_refusing);
        recorder.healthy(now_us, is_quorum && serving.len() == self.hosts.len() && is_quiet);
    }

    fn take_place(&mut self, happening: Happening) {
        let (now_us, around) = (self.around.agenda.now_us(), &mut self.around);
        let is_of = |hosts: &BTreeMap<ServerId, Host>, server, process| {
            let host: Option<&Host> = hosts.get(server);
            host.and_then(|host| host.process.as_ref()).is_some_and(|running| running.number == process)
        };
        match happening {
            Happening::Flight(flight) => around.links.land(now_us, flight),
            Happening::Arrival(Arrival::Server(conn, number, what)) => {
                for (server, what) in around.wires.arrive_at_server(conn, number, what) {
                    self.with(server, |host, around| host.on_client(around, conn, what));
                }
            }
            Happening::Arrival(Arrival::Client(conn, number, what)) => {
                for (id, what) in around.wires.arrive_at_client(conn, number, what) {
                    self.on_client_arrival(id, conn, what);
                }
            }
            Happening::Job { server, process, job } if is_of(&self.hosts, &server, process) => {
                self.with(server, |host, around| host.on_job(around, job));
            }
            Happening::Deadline { server, process, at_us } if is_of(&self.hosts, &server, process) => {
                self.with(server, |host, around| host.on_deadline(around, at_us));
            }
            Happening::Turn { server, process } if is_of(&self.hosts, &server, process) => {
                self.with(server, Host::on_turn);
            }
            Happening::Closed { server, process, conn } if is_of(&self.hosts, &server, process) => {
                self.with(server, |host, around| host.on_closed(around, conn));
            }
            Happening::LinkClosed { server, process, peer, link } if is_of(&self.hosts, &server, process) => {
                self.with(server, |host, around| host.on_link_closed(around, peer, link));
            }
            Happening::Stop { server, process, until_us, lasts_us } if is_of(&self.hosts, &server, process) => {
                self.stop(server, process, until_us, lasts_us);
            }
            Happening::HangOver { server } => self.on_hang_over(server),
            Happening::Restore => self.on_restore(),
            Happening::Job { .. }
            | Happening::Deadline { .. }
            | Happening::Turn { .. }
            | Happening::Stop { .. }
            | Happening::Closed { .. }
            | Happening::LinkClosed { .. } => {}
            Happening::Client(id) => self.on_client_due(id),
            Happening::Start { server } => self.with(server, Host::start),
            Happening::Fault(fault) => self.strike(fault),
            Happening::Mend(number) => self.mend(number),
            Happening::Owner(due) => self.on_owner_due(due),
        }
    }

    /// Delivers something that reached a client's box.
    fn on_client_arrival(&mut self, id: ClientId, conn: ConnId, what: ToClient) {
        let now_us = self.now_us();
        let is_owned = self.clients.get(&id).is_some_and(Client::is_owned);
        if is_owned && !self.reads(id) {
            return self.owners.hold(id, conn, what);
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.on_arrival(now_us, conn, what, &mut self.around.wires, &mut self.around.witness);
            self.arm_client(id);
        }
    }

    /// Runs a client whose time has come.
    ///
    /// A client inside a server's process does nothing while that process is down or stopped. A
    /// client that is stopped itself does nothing either.
    fn on_client_due(&mut self, id: ClientId) {
        let (now_us, reads) = (self.now_us(), self.reads(id));
        let Self { around, clients, .. } = self;
        let Some(client) = clients.get_mut(&id) else { return };
        if reads {
            client.on_time(now_us, &mut around.wires, &mut around.witness);
            self.arm_client(id);
        } else {
            around.agenda.at(now_us + HELD_UP_US, Rank::Deadline, Happening::Client(id));
        }
    }

    /// Ends the clients inside processes that ended.
    pub(super) fn end_clients(&mut self) {
        let now_us = self.now_us();
        for server in std::mem::take(&mut self.around.ended) {
            self.around.wires.end_process(server);
            let owned = self.clients.iter().filter(|(_, client)| client.home() == Some(server) && client.is_owned());
            owned.for_each(|(&id, _)| self.owners.bury(id));
            let here = self.clients.iter_mut().filter(|(_, client)| client.home() == Some(server));
            let ended: Vec<_> = here
                .map(|(&id, client)| {
                    client.on_process_end(now_us, &mut self.around.witness);
                    id
                })
                .collect();
            self.around.witness.recorder.process_ended(now_us, server);
            ended.into_iter().for_each(|id| self.arm_client(id));
        }
    }

    pub(super) fn with(&mut self, server: ServerId, turn: impl FnOnce(&mut Host, &mut Around)) {
        if let Some(host) = self.hosts.get_mut(&server) {
            turn(host, &mut self.around);
        }
    }

    /// Lets processes hear everything that landed before they answer.
    ///
    /// Their answers may land at the same instant.
    fn hear(&mut self) {
        let mut heard = Vec::new();
        loop {
            while let Some(landed) = self.around.links.poll_landed() {
                let server = landed.at();
                self.with(server, |host, around| host.on_landed(around, landed));
                if !heard.contains(&server) {
                    heard.push(server);
                }
            }
            if heard.is_empty() {
                return;
            }
            for server in heard.drain(..) {
                self.with(server, Host::settle);
            }
        }
    }

    pub(super) fn arm_client(&mut self, id: ClientId) {
        if let Some(at_us) = self.clients.get_mut(&id).and_then(Client::arm) {
            self.around.agenda.at(at_us, Rank::Deadline, Happening::Client(id));
        }
    }
}
