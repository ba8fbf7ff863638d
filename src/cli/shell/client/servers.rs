//! The servers of the list, in the order in which a session tries them.
//!
//! Each address of a name is a server of its own: the first one may be silent while another one serves.

use crate::cli::blocking::look_up;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

/// Bounds of the wait for one server.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(10);

/// One address of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Server {
    /// The name with the port, as the user wrote it.
    pub(super) name: String,
    pub(super) address: SocketAddr,
    /// Maximum wait for its answer to the handshake.
    pub(super) patience: Duration,
}

/// An attempt that failed.
#[derive(Debug)]
pub(super) struct Failed {
    name: String,
    /// `None` if the name does not resolve.
    address: Option<SocketAddr>,
    pub(super) error: io::Error,
}

/// The names of the list, and the servers that are left in the present round over it.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    names: Vec<String>,
    timeout: Duration,
    /// The name that is resolved next.
    at: usize,
    /// Names of this round that are not resolved yet.
    unresolved: usize,
    /// Servers of this round before the next name.
    left: VecDeque<Server>,
    /// The server that was tried last.
    last: Option<SocketAddr>,
    /// The server with which the next round begins.
    preferred: Option<Server>,
}

impl Servers {
    pub(super) fn new(names: Vec<String>, timeout: Duration) -> Self {
        Self { names, timeout, at: 0, unresolved: 0, left: VecDeque::new(), last: None, preferred: None }
    }

    /// Lets the next round begin with a server.
    pub(super) fn prefer(&mut self, server: Server) {
        self.preferred = Some(server);
    }

    /// Begins a round, at the name behind the one that was tried last.
    ///
    /// It resolves each name again, so that a changed DNS entry counts.
    pub(super) fn begin_round(&mut self) {
        self.unresolved = self.names.len();
        self.left = self.preferred.take().into_iter().collect();
    }

    /// Returns the next server; `None` at the end of the round.
    ///
    /// # Errors
    /// A name does not resolve. The round goes on.
    pub(super) async fn next(&mut self) -> Option<Result<Server, Failed>> {
        if self.left.is_empty() && self.unresolved > 0 {
            self.unresolved -= 1;
            let name = self.names[self.at].clone();
            self.at = (self.at + 1) % self.names.len();
            match look_up(&name, self.patience(1)).await {
                Ok(addresses) => self.take(&name, addresses),
                Err(error) => return Some(Err(Failed { name, address: None, error })),
            }
        }
        let server = self.left.pop_front()?;
        self.last = Some(server.address);
        Some(Ok(server))
    }

    /// Takes the addresses of a name as the next servers; the one that was tried last is the last one.
    pub(super) fn take(&mut self, name: &str, mut addresses: Vec<SocketAddr>) {
        addresses.sort_by_key(|address| Some(*address) == self.last);
        let patience = self.patience(addresses.len());
        self.left.extend(addresses.into_iter().map(|address| Server { name: name.to_owned(), address, patience }));
    }

    /// Returns the share of one address in the session timeout.
    fn patience(&self, addresses: usize) -> Duration {
        let shares = u32::try_from(self.names.len() * addresses).unwrap_or(u32::MAX).max(1);
        (self.timeout / shares).clamp(WAIT_MIN, WAIT_MAX)
    }
}

impl Server {
    pub(super) fn failed(self, error: io::Error) -> Failed {
        Failed { name: self.name, address: Some(self.address), error }
    }
}

impl Failed {
    fn text(&self, server: &str) -> String {
        match self.error.kind() {
            ErrorKind::ConnectionRefused => {
                format!("no server at {server}: connection refused; start one there, or name another with --server")
            }
            ErrorKind::InvalidData => format!("{server} does not speak ZooKeeper's protocol: {}", self.error),
            _ => format!("no session at {server}: {}", self.error),
        }
    }

    fn with_address(&self) -> String {
        let address = self.address.map_or_else(String::new, |address| format!(" ({address})"));
        self.text(&format!("{}{address}", self.name))
    }
}

/// Returns a line for each failure of a round; one for a name of which all addresses failed for the same reason.
pub(super) fn report(failed: &[Failed]) -> String {
    let mut lines = Vec::new();
    for of_name in failed.chunk_by(|one, next| one.name == next.name) {
        let mut texts: Vec<String> = of_name.iter().map(|failed| failed.text(&failed.name)).collect();
        texts.dedup();
        if texts.len() > 1 {
            texts = of_name.iter().map(Failed::with_address).collect();
        }
        lines.append(&mut texts);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    async fn round(servers: &mut Servers) -> Vec<String> {
        servers.begin_round();
        let mut round = Vec::new();
        while let Some(next) = servers.next().await {
            round.push(next.map_or_else(|failed| failed.name, |server| server.address.to_string()));
        }
        round
    }

    #[tokio::test]
    async fn round_begins_behind_the_last_server_and_has_each_once() {
        let names = ["127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"];
        let mut servers = Servers::new(names.map(str::to_owned).to_vec(), Duration::from_secs(6));
        assert_eq!(round(&mut servers).await, names);
        servers.begin_round();
        let first = servers.next().await.unwrap().unwrap();
        assert_eq!((first.name.as_str(), first.patience), (names[0], Duration::from_secs(2)));
        assert_eq!(round(&mut servers).await, [names[1], names[2], names[0]]);
        servers.prefer(first);
        assert_eq!(round(&mut servers).await, [names[0], names[1], names[2], names[0]]);
    }

    #[tokio::test]
    async fn each_address_of_a_name_is_tried_and_the_lost_one_last() {
        let mut servers = Servers::new(vec!["db:1".to_owned()], Duration::from_secs(6));
        let addresses = || vec![address("10.0.0.1:1"), address("10.0.0.2:1"), address("10.0.0.3:1")];
        servers.take("db:1", addresses());
        let silent = servers.next().await.unwrap().unwrap();
        assert_eq!((silent.address, silent.patience), (address("10.0.0.1:1"), Duration::from_secs(2)));
        assert_eq!(servers.next().await.unwrap().unwrap().address, address("10.0.0.2:1"));
        // The second one was served and then lost.
        servers.begin_round();
        servers.take("db:1", addresses());
        let order: Vec<_> = servers.left.iter().map(|server| server.address).collect();
        assert_eq!(order, [address("10.0.0.1:1"), address("10.0.0.3:1"), address("10.0.0.2:1")]);
    }

    #[test]
    fn addresses_with_the_same_failure_share_a_line() {
        let failed = |name: &str, text: &str, kind: ErrorKind| {
            let address = text.parse().ok();
            Failed { name: name.to_owned(), address, error: io::Error::new(kind, "no answer in 2 s") }
        };
        let refused = |address| failed("db:1", address, ErrorKind::ConnectionRefused);
        let advice = "connection refused; start one there, or name another with --server";
        assert_eq!(report(&[refused("10.0.0.1:1"), refused("10.0.0.2:1")]), format!("no server at db:1: {advice}"));
        let mixed = [
            failed("db:1", "10.0.0.1:1", ErrorKind::TimedOut),
            refused("[::1]:1"),
            failed("gw:1", "", ErrorKind::Other),
        ];
        let expected = format!(
            "no session at db:1 (10.0.0.1:1): no answer in 2 s\nno server at db:1 ([::1]:1): {advice}\n\
             no session at gw:1: no answer in 2 s"
        );
        assert_eq!(report(&mixed), expected);
    }
}
