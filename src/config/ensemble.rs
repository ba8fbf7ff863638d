//! Members of an ensemble, their addresses, and how they authenticate each other.

use super::address;
use super::{ConfigError, SiteKey};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
#[cfg(feature = "port")]
use zoolet_transport::client_port::ServerAddresses;
use zoolet_zab::{MEMBERS_MAX, ServerId, Timing};

/// UDP port of links between servers, for addresses without a port.
pub const DEFAULT_PEER_PORT: u16 = 2888;

/// The servers of an ensemble, listed alike in each server's file.
///
/// [`Config::server_id`](super::Config::server_id) says which of them this server is. Fields may be
/// set freely; [`Node::start`](crate::Node::start) checks them together.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Ensemble {
    /// All members, at most 16, in any order.
    ///
    /// Until the ensemble is born, this list decides the membership. From then on the ensemble
    /// itself does, and the list only gives members' addresses.
    pub members: Vec<Server>,
    /// How members authenticate each other.
    pub trust: TrustSource,
    /// UDP address on which links come in.
    ///
    /// `None`: the port of this member's first address, on every address of this machine. If all
    /// members are on loopback, only on that member's loopback address.
    pub listen: Option<SocketAddr>,
    /// Heartbeat intervals and timeouts, the same on all servers.
    pub timing: Timing,
}

/// One server of an ensemble.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Server {
    /// Id, 1 to 255.
    pub id: u8,
    /// UDP addresses for links to it, each `host:port`, tried in order.
    ///
    /// A host is a name, an IPv4 address, or an IPv6 address in brackets. Names are resolved at
    /// each attempt.
    pub addresses: Vec<String>,
    /// ZooKeeper's election port of each address, from a `zoo.cfg`. No server listens there; `conf`
    /// shows them.
    pub election_ports: Vec<u16>,
    /// Whether it is an observer, which learns commits and serves clients but does not vote.
    pub is_observer: bool,
    /// Public key that it must present (`zk1...`), as `zoolet keygen --data` prints it.
    ///
    /// `None`: any server with the site key or a certificate may be this member.
    pub key: Option<String>,
    /// Address `host:port` for clients, which `conf` shows.
    ///
    /// Clients connect to the addresses that `conf` shows, so it shows them only if every member
    /// has one.
    pub client: Option<String>,
}

/// How servers of an ensemble authenticate each other.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TrustSource {
    /// No authentication: all servers are on this machine's loopback address. Any program on the
    /// machine may join.
    Loopback,
    /// One shared secret.
    SiteKey(SiteKey),
    /// One shared secret in this file, made by [`SiteKey::write_new`] or `zoolet keygen`.
    ///
    /// Its mode must be 0600. The node reads it at its start.
    SiteKeyFile(PathBuf),
    /// The keys in [`Server::key`], which every member has.
    Pinned,
    /// Certificates of an operator's authority. All files are PEM.
    Ca {
        /// The authority's certificate.
        ca_file: PathBuf,
        /// This server's certificate.
        certificate_file: PathBuf,
        /// Private key of that certificate.
        key_file: PathBuf,
    },
}

impl Server {
    /// Returns a voter with one address: `host:port`, or a host for port 2888.
    #[must_use]
    pub fn new(id: u8, address: &str) -> Self {
        // `Ensemble::check` finds an invalid address, and names it.
        let address = address::with_port(address).unwrap_or_else(|| address.to_owned());
        let (addresses, election_ports) = (vec![address], Vec::new());
        Self { id, addresses, election_ports, is_observer: false, key: None, client: None }
    }

    /// Returns its addresses as `conf` shows them.
    #[cfg(feature = "port")]
    fn server_addresses(&self) -> ServerAddresses {
        let address = |(place, text): (usize, &String)| {
            let (host, port) = (text.rsplit_once(':').map_or("", |(host, _)| host), address::split(text)?.1);
            Some(format!("{host}:{port}:{}", self.election_port(place, port)))
        };
        let addresses = self.addresses.iter().enumerate().filter_map(address).collect();
        ServerAddresses { id: self.id, addresses, client: self.client.clone() }
    }

    /// Returns the election port that `conf` shows. No server listens there.
    ///
    /// It differs from `port`, because ZooKeeper's clients refuse a server line with two equal
    /// ports.
    #[cfg(feature = "port")]
    fn election_port(&self, place: usize, port: u16) -> u16 {
        let other = || port.checked_add(1000).unwrap_or_else(|| port - 1000);
        self.election_ports.get(place).copied().unwrap_or_else(other)
    }

    /// Returns whether one of its addresses is `text`, however it is written.
    fn has_address(&self, text: &str) -> bool {
        self.addresses.iter().any(|address| address::is_same(address, text))
    }

    /// Returns whether all its addresses are loopback addresses.
    ///
    /// `localhost` is one. Other names are not resolved, because their addresses may change.
    fn is_on_loopback(&self) -> bool {
        self.addresses.iter().all(|address| address::is_loopback(address))
    }
}

impl Ensemble {
    /// Returns an ensemble of these servers, with the default timing.
    #[must_use]
    pub fn new(members: impl Into<Vec<Server>>, trust: TrustSource) -> Self {
        Self { members: members.into(), trust, listen: None, timing: Timing::default() }
    }

    /// Returns whether all its servers have loopback addresses, without resolving names.
    #[must_use]
    pub fn is_on_loopback(&self) -> bool {
        self.members.iter().all(Server::is_on_loopback)
    }

    /// Returns the member with this id.
    #[must_use]
    pub fn member(&self, id: u8) -> Option<&Server> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Returns the number of voters.
    #[must_use]
    pub fn voters(&self) -> usize {
        self.members.iter().filter(|member| !member.is_observer).count()
    }

    /// Returns the UDP address on which server `own` listens for links.
    #[must_use]
    pub fn listen_address(&self, own: u8) -> SocketAddr {
        if let Some(listen) = self.listen {
            return listen;
        }
        let of_own = self.member(own).and_then(|member| member.addresses.first());
        let port = of_own.and_then(|text| address::split(text)).map_or(DEFAULT_PEER_PORT, |(_, port)| port);
        let speaks_v6 = self.members.iter().flat_map(|member| &member.addresses).any(|text| text.starts_with('['));
        let all: IpAddr = match (self.is_on_loopback(), speaks_v6) {
            // The member's address may be any of 127.0.0.0/8.
            (true, _) => of_own.and_then(|text| address::loopback(text)).unwrap_or(Ipv4Addr::LOCALHOST.into()),
            (false, false) => Ipv4Addr::UNSPECIFIED.into(),
            (false, true) => Ipv6Addr::UNSPECIFIED.into(),
        };
        (all, port).into()
    }

    /// Returns all members' addresses, for `conf`.
    #[cfg(feature = "port")]
    pub(crate) fn server_addresses(&self) -> Vec<ServerAddresses> {
        self.members.iter().map(Server::server_addresses).collect()
    }

    /// Returns ZooKeeper's `conf` lines about the ports of server `own`.
    #[cfg(feature = "port")]
    pub(crate) fn conf(&self, own: u8) -> [(&'static str, String); 2] {
        let port = self.listen_address(own).port();
        let election = self.member(own).map_or(port, |member| member.election_port(0, port));
        [("electionPort", election.to_string()), ("quorumPort", port.to_string())]
    }

    /// Returns warnings about a valid ensemble, one line each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let voters = self.voters();
        let mut lines = Vec::new();
        if voters.is_multiple_of(2) {
            let survives = |voters: usize| voters.saturating_sub(1) / 2;
            lines.push(format!(
                "{voters} voters survive {}, the same as {}; use an odd number, or make one an observer",
                failures(survives(voters)),
                voters - 1,
            ));
        }
        let silent = self.members.iter().filter(|member| member.client.is_none());
        let silent: Vec<String> = silent.map(|member| member.id.to_string()).collect();
        if !silent.is_empty() && silent.len() < self.members.len() {
            let who = if silent.len() == 1 { "server" } else { "servers" };
            lines.push(format!(
                "the client address of {who} {} is missing, so conf shows none; give it for all servers or for none",
                silent.join(", ")
            ));
        }
        for (place, member) in self.members.iter().enumerate() {
            let Some(client) = &member.client else { continue };
            // On machines of its own each server may have this address.
            if address::loopback(client).is_some() && !self.is_on_loopback() {
                continue;
            }
            let is_same = |other: &&Server| other.client.as_ref().is_some_and(|other| address::is_same(other, client));
            if let Some(other) = self.members[..place].iter().find(is_same) {
                lines.push(format!(
                    "servers {} and {} have the same client address, {client}: clients reach only one of them there",
                    other.id, member.id
                ));
            }
        }
        lines
    }

    /// Checks the fields together, for server `own`.
    ///
    /// # Errors
    /// The first problem found:
    /// - more than 16 servers, or no voter;
    /// - a wrong or repeated id, key or address;
    /// - no member with the id `own`;
    /// - missing authentication outside loopback, or a missing pinned key.
    pub fn check(&self, own: u8) -> Result<(), ConfigError> {
        let refuse = |line: String| Err(ConfigError::new(line));
        if self.members.len() > MEMBERS_MAX {
            return refuse(format!("{} servers: allowed are at most {MEMBERS_MAX}", self.members.len()));
        }
        if self.voters() == 0 {
            return refuse("no server votes: at least one must not be an observer".to_owned());
        }
        for (place, member) in self.members.iter().enumerate() {
            self.check_member(member, &self.members[..place])?;
        }
        if self.member(own).is_none() {
            let ids: Vec<String> = self.members.iter().map(|member| member.id.to_string()).collect();
            return refuse(format!(
                "no server has the id {own} of this server; the ids are {}: give one of them, or add this server to all files",
                ids.join(", ")
            ));
        }
        self.check_trust(own)
    }

    fn check_member(&self, member: &Server, before: &[Server]) -> Result<(), ConfigError> {
        let id = member.id;
        let refuse = |line: String| Err(ConfigError::new(line));
        if ServerId::new(id).is_none() {
            return refuse("server 0: allowed ids in an ensemble are 1 to 255".to_owned());
        }
        if before.iter().any(|other| other.id == id) {
            return refuse(format!("server {id} is listed twice: give every server a different id"));
        }
        if let Some(key) = &member.key
            && let Some(other) = before.iter().find(|other| other.key.as_ref() == Some(key))
        {
            return refuse(format!(
                "servers {} and {id} have the same key, {key}: give every server its own key",
                other.id
            ));
        }
        if member.addresses.is_empty() {
            return refuse(format!(
                "server {id} has no host: give its address for the others, such as host = \"gw-a\" under its [[server]]"
            ));
        }
        for text in &member.addresses {
            if address::split(text).is_none() {
                return refuse(format!("server {id}: address {text}: allowed is host:port, the port from 1 to 65535"));
            }
            if let Some(other) = before.iter().find(|other| other.has_address(text)) {
                return refuse(format!(
                    "servers {} and {id} have the same address, {text}: give every server a different one",
                    other.id
                ));
            }
        }
        Ok(())
    }

    fn check_trust(&self, own: u8) -> Result<(), ConfigError> {
        let refuse = |line: &str| Err(ConfigError::new(line));
        match self.trust {
            TrustSource::Loopback if !self.is_on_loopback() => {
                refuse("servers need a site key, pinned keys or certificates unless all are on 127.0.0.1 or ::1")
            }
            TrustSource::Loopback if !self.listen_address(own).ip().is_loopback() => {
                refuse("without a site key, pinned keys or certificates servers listen on 127.0.0.1 or ::1 only")
            }
            TrustSource::Pinned if self.members.iter().any(|member| member.key.is_none()) => {
                refuse("keys are pinned, but a server has none: pin the key of every server")
            }
            TrustSource::Loopback
            | TrustSource::SiteKey(_)
            | TrustSource::SiteKeyFile(_)
            | TrustSource::Pinned
            | TrustSource::Ca { .. } => Ok(()),
        }
    }
}

fn failures(count: usize) -> String {
    match count {
        0 => "no failure".to_owned(),
        1 => "one failure".to_owned(),
        more => format!("{more} failures"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensemble(addresses: &[&str], trust: TrustSource) -> Ensemble {
        let members = (1..).zip(addresses).map(|(id, address)| Server::new(id, address));
        Ensemble::new(members.collect::<Vec<_>>(), trust)
    }

    fn site_key() -> TrustSource {
        TrustSource::SiteKeyFile("site.key".into())
    }

    #[test]
    fn servers_on_loopback_listen_only_on_loopback() {
        let local = ensemble(&["127.0.0.1:1", "localhost:2", "[::1]:3"], TrustSource::Loopback);
        local.check(1).unwrap();
        let listens: Vec<_> = (1..=3).map(|id| local.listen_address(id).to_string()).collect();
        assert_eq!(listens, ["127.0.0.1:1", "127.0.0.1:2", "[::1]:3"]);
        let spread = ensemble(&["gw-a", "10.0.3.12:2889"], site_key());
        spread.check(2).unwrap();
        let listens: Vec<_> = (1..=2).map(|id| spread.listen_address(id).to_string()).collect();
        assert_eq!(listens, ["0.0.0.0:2888", "0.0.0.0:2889"]);
        let v6 = ensemble(&["gw-a", "fd00::7"], site_key());
        assert_eq!((v6.members[1].addresses[0].as_str(), v6.listen_address(2).port()), ("[fd00::7]:2888", 2888));
        assert!(v6.listen_address(1).is_ipv6());
    }

    #[test]
    fn servers_off_loopback_need_a_site_key_pins_or_certificates() {
        for (address, listen) in [("gw-b:2888", None), ("127.0.0.1:2", Some("0.0.0.0:2888"))] {
            let mut open = ensemble(&["127.0.0.1:1", address], TrustSource::Loopback);
            open.listen = listen.map(|text| text.parse().unwrap());
            let refused = open.check(1).unwrap_err().to_string();
            assert!(refused.contains("site key, pinned keys or certificates"), "{refused}");
            open.trust = site_key();
            open.check(1).unwrap();
        }
        // Names are not resolved.
        assert!(!ensemble(&["127.0.0.1.example.org:1"], TrustSource::Loopback).is_on_loopback());
    }

    #[test]
    #[cfg(feature = "port")]
    fn conf_shows_configured_election_ports_and_derives_missing_ones() {
        let mut ensemble = ensemble(&["gw-a", "[fd00::2]:65000"], site_key());
        ensemble.members[0].addresses.push("10.0.0.1:2889".to_owned());
        ensemble.members[0].election_ports = vec![3777];
        let shown = ensemble.server_addresses();
        assert_eq!(
            (shown[0].id, shown[0].addresses.as_slice()),
            (1, &["gw-a:2888:3777", "10.0.0.1:2889:3889"].map(str::to_owned)[..])
        );
        assert_eq!((shown[1].id, shown[1].addresses.as_slice()), (2, &["[fd00::2]:65000:64000".to_owned()][..]));
        let ports = |own| ensemble.conf(own).map(|(_, port)| port);
        assert_eq!((ports(1), ports(2)), (["3777", "2888"].map(str::to_owned), ["64000", "65000"].map(str::to_owned)));
        ensemble.listen = Some("0.0.0.0:888".parse().unwrap());
        assert_eq!(ensemble.conf(2).map(|(_, port)| port), ["1888", "888"].map(str::to_owned));
    }

    #[test]
    fn pinned_trust_requires_a_key_for_every_server() {
        let mut pinned = ensemble(&["gw-a", "gw-b"], TrustSource::Pinned);
        pinned.members[0].key = Some("zk1a".to_owned());
        assert!(pinned.check(1).unwrap_err().to_string().contains("a server has none"));
        pinned.members[1].key = Some("zk1b".to_owned());
        pinned.check(1).unwrap();
    }

    #[test]
    fn servers_of_several_machines_may_share_a_loopback_client_address() {
        let with = |client: &str| {
            let mut ensemble = ensemble(&["gw-a", "gw-b", "gw-c"], site_key());
            ensemble.members.iter_mut().for_each(|member| member.client = Some(client.to_owned()));
            ensemble.warnings()
        };
        assert_eq!(with("127.0.0.1:2181"), [""; 0]);
        assert_eq!(with("gw-a:2181").len(), 2);
    }

    #[test]
    fn each_invalid_ensemble_is_refused_with_its_mistake() {
        let wrong = |own: u8, change: fn(&mut Ensemble)| {
            let mut ensemble = ensemble(&["gw-a", "gw-b", "gw-c"], site_key());
            change(&mut ensemble);
            ensemble.check(own).unwrap_err().to_string()
        };
        for (error, expected) in [
            (wrong(4, |_| ()), "no server has the id 4 of this server; the ids are 1, 2, 3"),
            (wrong(1, |e| e.members[2].id = 1), "server 1 is listed twice"),
            (wrong(1, |e| e.members[2].id = 0), "allowed ids in an ensemble are 1 to 255"),
            (wrong(1, |e| e.members[1].addresses.clear()), "server 2 has no host: give its address for the others"),
            (wrong(1, |e| e.members[1].addresses.push("gw-b:0".to_owned())), "server 2: address gw-b:0: allowed is"),
            (
                wrong(1, |e| e.members[1].addresses.push("GW-A:2888".to_owned())),
                "servers 1 and 2 have the same address",
            ),
            (wrong(1, |e| e.members.iter_mut().for_each(|m| m.is_observer = true)), "no server votes"),
            (
                wrong(1, |e| e.members[1..].iter_mut().for_each(|m| m.key = Some("zk1a".to_owned()))),
                "servers 2 and 3 have the same key, zk1a",
            ),
            (
                wrong(1, |e| e.members.extend((4..=17).map(|id| Server::new(id, "x")))),
                "17 servers: allowed are at most 16",
            ),
        ] {
            assert!(error.contains(expected), "{error:?} lacks {expected:?}");
        }
    }

    #[test]
    fn even_number_of_voters_is_warned_of() {
        let warnings = |addresses: &[&str]| ensemble(addresses, site_key()).warnings();
        assert_eq!(warnings(&["a", "b", "c"]), [""; 0]);
        assert!(warnings(&["a", "b", "c", "d"])[0].starts_with("4 voters survive one failure, the same as 3;"));
        assert!(warnings(&["a", "b"])[0].starts_with("2 voters survive no failure, the same as 1;"));
        let mut with_observer = ensemble(&["a", "b", "c", "d"], site_key());
        with_observer.members[3].is_observer = true;
        assert_eq!(with_observer.warnings(), [""; 0]);
    }
}
