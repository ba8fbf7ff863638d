//! `server.N = host:quorumPort:electionPort[:role][|...][;[clientHost:]clientPort]` of a `zoo.cfg`.

use super::{ConfigError, Server, address, own_entry};

const ALLOWED: &str = "host:port:port[:participant|observer][|host:port:port...][;[address:]clientPort]";

/// A `server.N` line.
///
/// Its first port is for links between servers, UDP here. Its second is for elections, which use
/// the same links here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ServerLine {
    pub(super) id: u8,
    /// `host:port`, at least one.
    pub(super) addresses: Vec<String>,
    /// ZooKeeper's election port of each address.
    pub(super) election_ports: Vec<u16>,
    pub(super) is_observer: bool,
    pub(super) clients: Option<ClientPart>,
}

/// The part after the semicolon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClientPart {
    /// `None`: any address of the server.
    pub(super) host: Option<String>,
    pub(super) port: u16,
}

/// Parses the value of a server line.
///
/// # Errors
/// Names the key, the value and what is allowed.
pub(super) fn parse(key: &str, id: &str, value: &str) -> Result<ServerLine, ConfigError> {
    let wrong = || ConfigError::value(key, value, ALLOWED);
    let id = id.parse().map_err(|_| ConfigError::value(key, value, "server.1 to server.255 as its key"))?;
    let (peers, clients) = match value.split_once(';') {
        Some((peers, clients)) => (peers, client_part(clients.trim()).ok_or_else(wrong)?),
        None => (value, None),
    };
    let mut addresses = Vec::new();
    let mut election_ports = Vec::new();
    let mut roles = Vec::new();
    for text in peers.split('|') {
        let (address, election_port, is_observer) = peer_address(text.trim()).ok_or_else(wrong)?;
        addresses.push(address);
        election_ports.push(election_port);
        roles.push(is_observer);
    }
    if roles.iter().any(|role| *role != roles[0]) {
        return Err(ConfigError::value(key, value, "one role for all addresses of a server"));
    }
    Ok(ServerLine { id, addresses, election_ports, is_observer: roles[0], clients })
}

/// Parses one address; returns `host:port`, the election port, and whether it is an observer.
fn peer_address(text: &str) -> Option<(String, u16, bool)> {
    let ports_at = text.find("]:").map_or_else(|| text.find(':'), |bracket| Some(bracket + 1))?;
    let (host, ports) = text.split_at(ports_at);
    let mut parts = ports[1..].split(':');
    let (port, election) = (parts.next()?, parts.next()?);
    let election = election.parse().ok()?;
    let is_observer = match parts.next().map(str::to_ascii_lowercase).as_deref() {
        None | Some("participant") => false,
        Some("observer") => true,
        Some(_) => return None,
    };
    let address = format!("{host}:{port}");
    (parts.next().is_none() && address::split(&address).is_some()).then_some((address, election, is_observer))
}

/// Parses the client part: `None` if malformed, `Some(None)` for port 0, "not set" in ZooKeeper.
#[allow(clippy::option_option, reason = "what is wrong, what is absent, what is there")]
fn client_part(text: &str) -> Option<Option<ClientPart>> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("0.0.0.0", text));
    let port: u16 = port.parse().ok()?;
    let host = match host {
        "0.0.0.0" | "[::]" => None,
        named => Some(named.to_owned()),
    };
    Some((port != 0).then_some(ClientPart { host, port }))
}

impl ServerLine {
    /// Returns the line as a member of server `own`'s ensemble.
    ///
    /// # Errors
    /// The unspecified address (0.0.0.0 or ::) in the line of another server.
    pub(super) fn to_member(&self, own: u8) -> Result<Server, ConfigError> {
        let addresses: Result<Vec<_>, _> = self.addresses.iter().map(|text| self.reachable(text, own)).collect();
        let addresses = addresses?;
        let first_host = addresses[0].rsplit_once(':').map_or("", |(host, _)| host);
        let client = self.clients.as_ref().map(|part| {
            let host = part.host.as_deref().unwrap_or(first_host);
            format!("{host}:{}", part.port)
        });
        let election_ports = self.election_ports.clone();
        Ok(Server { addresses, election_ports, is_observer: self.is_observer, client, ..Server::new(self.id, "") })
    }

    /// Returns the address at which servers reach this one.
    ///
    /// Operators write 0.0.0.0 in a server's own line to make it listen everywhere. The machine's
    /// name replaces it.
    fn reachable(&self, text: &str, own: u8) -> Result<String, ConfigError> {
        match text.strip_prefix("0.0.0.0:").or_else(|| text.strip_prefix("[::]:")) {
            None => Ok(text.to_owned()),
            Some(port) if self.id == own => Ok(format!("{}:{port}", own_entry::host_name())),
            Some(_) => Err(ConfigError::new(format!(
                "server.{} = {text}: allowed only for this server, server.{own}; name its host",
                self.id
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: &str) -> Result<ServerLine, String> {
        parse("server.3", "3", value).map_err(|error| error.to_string())
    }

    #[test]
    fn first_port_of_a_server_line_is_the_link_port() {
        let voter = line("gw-a:2888:3888").unwrap();
        assert_eq!((voter.id, voter.addresses.as_slice()), (3, &["gw-a:2888".to_owned()][..]));
        assert!(!voter.is_observer && voter.clients.is_none());
        let observer = line("[fd00::1]:2888:3888:Observer;[::1]:2181").unwrap();
        assert_eq!((observer.addresses[0].as_str(), observer.is_observer), ("[fd00::1]:2888", true));
        assert_eq!(observer.clients.unwrap().host.as_deref(), Some("[::1]"));
        let several = line("gw-a:1:2:participant|10.0.0.7:3:4").unwrap();
        assert_eq!(several.addresses, ["gw-a:1", "10.0.0.7:3"]);
        assert_eq!(
            (several.election_ports.as_slice(), several.to_member(1).unwrap().election_ports),
            (&[2, 4][..], vec![2, 4])
        );
    }

    #[test]
    fn client_part_of_a_server_line_gives_the_client_address() {
        let client = |value| line(value).unwrap().to_member(1).unwrap().client;
        assert_eq!(client("gw-a:1:2;2181").as_deref(), Some("gw-a:2181"));
        assert_eq!(client("gw-a:1:2;0.0.0.0:2181").as_deref(), Some("gw-a:2181"));
        assert_eq!(client("[fd00::1]:1:2;[::]:2181").as_deref(), Some("[fd00::1]:2181"));
        assert_eq!(client("gw-a:1:2;10.1.1.1:2181").as_deref(), Some("10.1.1.1:2181"));
        assert_eq!(client("gw-a:1:2"), None);
        assert_eq!(client("gw-a:1:2;0"), None);
    }

    #[test]
    fn wildcard_address_is_allowed_only_for_the_servers_own_line() {
        let any = line("0.0.0.0:2888:3888").unwrap();
        assert_eq!(any.to_member(3).unwrap().addresses, [format!("{}:2888", own_entry::host_name())]);
        assert!(any.to_member(1).unwrap_err().to_string().contains("name its host"));
    }

    #[test]
    fn malformed_server_line_is_refused_with_the_allowed_form() {
        for value in ["a", "a:1", "a:1:x", "a:0:1", "a:1:2:leader", "a:1:2:observer:x", "a:1:2;x", ":1:2", "a:1:2|b"] {
            let error = line(value).unwrap_err();
            assert!(error.contains("allowed is host:port:port"), "{value}: {error}");
        }
        assert!(line("a:1:2|b:1:2:observer").unwrap_err().contains("one role for all addresses"));
        assert!(parse("server.x", "x", "a:1:2").unwrap_err().to_string().contains("server.1 to server.255"));
    }
}
