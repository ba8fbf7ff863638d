//! Connections between clients and servers.
//!
//! They keep the order in both directions, and are reset when a process dies while its box runs on.

use super::SECOND;
use super::client::ToClient;
use super::lane::Lane;
use crate::oracle::ClientId;
use crate::workload::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use zoolet_machine::ConnId;
use zoolet_model::{ConnectRequest, Request};
use zoolet_zab::ServerId;

/// A message of a client.
#[derive(Clone, Debug)]
pub(super) enum ToServer {
    /// The connection request.
    Connect(ConnectRequest),
    /// A request with its xid.
    Request(i32, Request),
    /// The client closes the connection.
    Fin,
}

#[derive(Debug)]
struct Wire {
    client: ClientId,
    server: ServerId,
    /// Both ends are in one process, with no network between them.
    is_in_process: bool,
    up: Lane<ToServer>,
    down: Lane<ToClient>,
}

/// Network path between a server and its clients.
#[derive(Clone, Debug)]
pub struct WirePath {
    /// Minimum latency, in microseconds.
    pub latency_us: u64,
    /// Mean additional latency, in microseconds.
    pub jitter_us: u64,
    /// Nothing gets through in either direction.
    pub is_cut: bool,
}

/// A message that reaches a box: connection, number in its direction, content.
#[derive(Debug)]
pub(super) enum Arrival {
    Server(ConnId, u64, ToServer),
    Client(ConnId, u64, ToClient),
}

/// All connections of clients.
#[derive(Debug)]
pub struct Wires {
    random: Random,
    paths: BTreeMap<ServerId, WirePath>,
    wires: BTreeMap<ConnId, Wire>,
    /// Clients that are cut from all servers.
    cut_off: BTreeSet<ClientId>,
    made: u64,
    arrivals: Vec<(u64, Arrival)>,
}

impl Wires {
    pub(super) fn new(servers: &[ServerId], are_local: bool, mut random: Random) -> Self {
        let mut path = || {
            let (drawn_us, jitter_us) = (random.logarithmic(30, 5000), 50);
            WirePath { latency_us: if are_local { 0 } else { drawn_us }, jitter_us, is_cut: false }
        };
        let paths = servers.iter().map(|&server| (server, path())).collect();
        Self { random, paths, wires: BTreeMap::new(), cut_off: BTreeSet::new(), made: 0, arrivals: Vec::new() }
    }

    /// Returns the messages sent since the last call, with their arrival times.
    pub(super) fn take_arrivals(&mut self) -> Vec<(u64, Arrival)> {
        std::mem::take(&mut self.arrivals)
    }

    /// Returns the client address that the server sees; `None` within its own process.
    pub(super) fn address_of(&self, conn: ConnId) -> Option<IpAddr> {
        let client = self.wires.get(&conn).filter(|wire| !wire.is_in_process)?.client;
        Some(IpAddr::from([127, 0, 0, 1 + (client.0 % 200) as u8]))
    }

    /// Opens a connection with a new number.
    pub(super) fn open(&mut self, client: ClientId, server: ServerId, is_in_process: bool) -> ConnId {
        self.made += 1;
        let conn = ConnId(self.made);
        self.wires.insert(conn, Wire { client, server, is_in_process, up: Lane::default(), down: Lane::default() });
        conn
    }

    pub(super) fn send_to_server(&mut self, now_us: u64, conn: ConnId, what: ToServer) {
        if let Some(wire) = self.wires.get_mut(&conn) {
            let number = wire.up.number();
            self.launch_up(now_us, conn, number, what);
        }
    }

    pub(super) fn send_to_client(&mut self, now_us: u64, conn: ConnId, what: ToClient) {
        if let Some(wire) = self.wires.get_mut(&conn) {
            let number = wire.down.number();
            self.launch_down(now_us, conn, number, what);
        }
    }

    /// Handles a message that reached the server's box, or would have without a cut.
    ///
    /// Returns everything that the server can now read in order.
    pub(super) fn arrive_at_server(&mut self, conn: ConnId, number: u64, what: ToServer) -> Vec<(ServerId, ToServer)> {
        let is_cut = self.wires.get(&conn).is_some_and(|wire| self.is_cut(wire));
        let Some(wire) = self.wires.get_mut(&conn) else { return Vec::new() };
        if is_cut {
            wire.up.park(number, what);
        } else {
            wire.up.arrive(number, what);
        }
        std::iter::from_fn(|| wire.up.read()).map(|what| (wire.server, what)).collect()
    }

    /// As [`Wires::arrive_at_server`], in the other direction.
    pub(super) fn arrive_at_client(&mut self, conn: ConnId, number: u64, what: ToClient) -> Vec<(ClientId, ToClient)> {
        let is_cut = self.wires.get(&conn).is_some_and(|wire| self.is_cut(wire));
        let Some(wire) = self.wires.get_mut(&conn) else { return Vec::new() };
        if is_cut {
            wire.down.park(number, what);
        } else {
            wire.down.arrive(number, what);
        }
        let client = wire.client;
        let read: Vec<_> = std::iter::from_fn(|| wire.down.read()).map(|what| (client, what)).collect();
        if read.iter().any(|(_, what)| matches!(what, ToClient::Fin | ToClient::Reset)) {
            self.wires.remove(&conn);
        }
        read
    }

    /// Returns whether no message to a client is in flight.
    pub(super) fn are_quiet(&self) -> bool {
        self.wires.values().all(|wire| wire.down.is_empty())
    }

    /// Returns the connections to a server that use the network.
    pub(super) fn of(&self, server: ServerId) -> Vec<ConnId> {
        let networked = |wire: &Wire| wire.server == server && !wire.is_in_process;
        self.wires.iter().filter(|(_, wire)| networked(wire)).map(|(&conn, _)| conn).collect()
    }

    /// Removes the connections within a process that has ended; their messages are lost.
    pub(super) fn end_process(&mut self, server: ServerId) {
        self.wires.retain(|_, wire| wire.server != server || !wire.is_in_process);
    }

    fn is_cut(&self, wire: &Wire) -> bool {
        !wire.is_in_process && (self.is_server_cut(wire.server) || self.cut_off.contains(&wire.client))
    }

    /// Returns whether a server is cut from all clients.
    pub(super) fn is_server_cut(&self, server: ServerId) -> bool {
        self.paths.get(&server).is_none_or(|path| path.is_cut)
    }

    /// Cuts a server from all clients, or ends that cut.
    pub(super) fn cut(&mut self, now_us: u64, server: ServerId, is_cut: bool) {
        if let Some(path) = self.paths.get_mut(&server) {
            path.is_cut = is_cut;
        }
        if !is_cut {
            let conns = self.of(server);
            self.send_again(now_us, conns);
        }
    }

    /// Cuts a client from all servers, or ends that cut.
    pub(super) fn cut_off(&mut self, now_us: u64, client: ClientId, is_cut: bool) {
        if is_cut {
            self.cut_off.insert(client);
        } else if self.cut_off.remove(&client) {
            let theirs = self.wires.iter().filter(|(_, wire)| wire.client == client && !wire.is_in_process);
            let conns = theirs.map(|(&conn, _)| conn).collect();
            self.send_again(now_us, conns);
        }
    }

    /// Sends the messages again that a cut held back. Another cut may hold them back again.
    fn send_again(&mut self, now_us: u64, conns: Vec<ConnId>) {
        for conn in conns {
            let Some(wire) = self.wires.get_mut(&conn) else { continue };
            let (up, down) = (wire.up.take_parked(), wire.down.take_parked());
            up.into_iter().for_each(|(number, what)| self.launch_up(now_us, conn, number, what));
            down.into_iter().for_each(|(number, what)| self.launch_down(now_us, conn, number, what));
        }
    }

    fn launch_up(&mut self, now_us: u64, conn: ConnId, number: u64, what: ToServer) {
        let is_cut = self.wires.get(&conn).is_some_and(|wire| self.is_cut(wire));
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        if is_cut {
            return wire.up.park(number, what);
        }
        let path = self.paths.get(&wire.server).filter(|_| !wire.is_in_process);
        let at_us = path.map_or(now_us + 1, |path| later(now_us, path, &mut self.random));
        self.arrivals.push((at_us, Arrival::Server(conn, number, what)));
    }

    fn launch_down(&mut self, now_us: u64, conn: ConnId, number: u64, what: ToClient) {
        let is_cut = self.wires.get(&conn).is_some_and(|wire| self.is_cut(wire));
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        if is_cut {
            return wire.down.park(number, what);
        }
        let path = self.paths.get(&wire.server).filter(|_| !wire.is_in_process);
        let at_us = path.map_or(now_us + 1, |path| later(now_us, path, &mut self.random));
        self.arrivals.push((at_us, Arrival::Client(conn, number, what)));
    }
}

fn later(now_us: u64, path: &WirePath, random: &mut Random) -> u64 {
    let slow_us = if random.in_a_million(2000) { random.between(SECOND / 50, SECOND / 2) } else { 0 };
    now_us + path.latency_us + random.exponential(path.jitter_us) + slow_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_held_back_by_a_cut_arrive_in_order_once_healed() {
        let server = ServerId::STANDALONE;
        let mut wires = Wires::new(&[server], false, Random::new(1));
        let conn = wires.open(ClientId(1), server, false);
        let xids = |arrivals: &[(u64, Arrival)]| -> Vec<(u64, i32)> {
            let xid = |(_, arrival): &(u64, Arrival)| match arrival {
                Arrival::Server(_, number, ToServer::Request(xid, _)) => Some((*number, *xid)),
                Arrival::Server(..) | Arrival::Client(..) => None,
            };
            arrivals.iter().filter_map(xid).collect()
        };
        wires.send_to_server(0, conn, ToServer::Request(1, Request::Ping));
        let in_the_air = xids(&wires.take_arrivals());
        wires.cut(1, server, true);
        wires.send_to_server(2, conn, ToServer::Request(2, Request::Ping));
        assert_eq!(in_the_air, [(0, 1)]);
        assert!(wires.arrive_at_server(conn, 0, ToServer::Request(1, Request::Ping)).is_empty());
        assert!(wires.take_arrivals().is_empty());
        wires.cut(100, server, false);
        let mut read = Vec::new();
        // The later message overtakes the earlier one.
        for (_, arrival) in wires.take_arrivals().into_iter().rev() {
            if let Arrival::Server(conn, number, what) = arrival {
                read.extend(wires.arrive_at_server(conn, number, what));
            }
        }
        let xids: Vec<_> = read.into_iter().map(|(_, what)| format!("{what:?}")).collect();
        assert_eq!(xids, ["Request(1, Ping)", "Request(2, Ping)"]);
    }
}
