//! Dials a member as long as there is no link to it.

use super::Links;
use super::closing::{self, Closing, refusal_line};
use super::greeting::Failed;
use super::link_tasks::LASTING;
use super::members::Member;
use crate::canonical;
use crate::peer::trust::{Gate, RefusalReason};
use quinn::{Connecting, ConnectionError, Endpoint};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// First pause between attempts, and the maximum it grows to.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time for a server to answer the QUIC handshake.
const REPLY: Duration = Duration::from_secs(1);
/// Time for an answering server to become the link.
const GREETING: Duration = Duration::from_secs(3);
/// How long an address must fail before a warning is logged.
const SILENCE: Duration = Duration::from_secs(10);

/// Result of an attempt, the least informative first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The name does not resolve.
    NoSuchName(String),
    /// The system cannot send to the address, for this reason.
    NoWay(String),
    /// No answer.
    Silence,
    /// No answer from the address of the last link.
    Lost,
    /// A server answered, with any result.
    Answered,
    /// Another server answered, or this one; the line says which.
    Another(String),
}

/// Dials a member whenever there is no link to it, for ever.
pub(super) async fn keep_linked(links: Arc<Links>, member: Arc<Member>) {
    let mut pauses = Pauses::new(links.settings.process ^ u64::from(member.id.as_u8()));
    loop {
        if member.link().is_some() {
            let begun = Instant::now();
            member.unlinked().await;
            // The link lasted, so the first attempt at the next one is made at once.
            if begun.elapsed() >= LASTING {
                pauses.restart();
            } else {
                // Two servers that drop each new link at once must not do so in a busy loop.
                sleep(pauses.next()).await;
            }
        }
        let mut silence = Silence::default();
        while member.link().is_none() {
            tokio::select! {
                () = round(&links, &member, &mut silence) => {}
                // The member has dialled this server. Dropping the other future cancels the attempt
                // here.
                () = member.linked() => break,
            }
            tokio::select! {
                () = sleep(pauses.next()) => {}
                () = member.linked() => break,
            }
        }
    }
}

/// Tries a member's addresses once, learned ones last, until there is a link.
async fn round(links: &Arc<Links>, member: &Arc<Member>, silence: &mut Silence) {
    for name in &member.addresses {
        let outcome = try_name(links, member, name).await;
        if member.link().is_some() {
            return;
        }
        silence.note(links, member, name, &outcome);
        if let Outcome::Another(line) = outcome {
            links.note_refusal(member, line);
        }
    }
    // The outcome of a learned address says nothing about the configured ones.
    for name in &links.hints.of(member) {
        let outcome = try_name(links, member, name).await;
        if member.link().is_some() {
            return;
        }
        if let Outcome::Another(line) = outcome {
            tracing::debug!("dropped a learned address: {line}");
            links.hints.forget(member, name);
        }
    }
}

async fn try_name(links: &Arc<Links>, member: &Arc<Member>, name: &str) -> Outcome {
    let addresses = match links.names.resolve(name).await {
        Ok(addresses) => addresses,
        Err(error) => return Outcome::NoSuchName(error.to_string()),
    };
    // A name resolves to at least one address, so this value is always replaced.
    let mut outcome = Outcome::NoWay(String::new());
    for address in addresses {
        member.on_found(canonical(address));
        outcome = outcome.max(try_address(links, member, name, address).await);
        if member.link().is_some() {
            break;
        }
    }
    outcome
}

async fn try_address(links: &Arc<Links>, member: &Arc<Member>, name: &str, address: SocketAddr) -> Outcome {
    if is_own(&links.endpoint, address) {
        let id = member.id.as_u8();
        return Outcome::Another(format!(
            "{name}, configured for server {id}, is this server's own address: correct it"
        ));
    }
    links.table.dialled(member.id, address);
    let connecting = match connect(links, member, address) {
        Ok(connecting) => connecting,
        Err(why) => return Outcome::NoWay(why),
    };
    let connection = match timeout(REPLY, connecting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(ConnectionError::TimedOut)) | Err(_) => {
            let silence = if member.was_linked_at(canonical(address)) { Outcome::Lost } else { Outcome::Silence };
            return no_way(links, address).map_or(silence, Outcome::NoWay);
        }
        Ok(Err(error)) => {
            links.note_end(member, name, &error);
            return Outcome::Answered;
        }
    };
    match timeout(GREETING, links.dial(member, connection.clone(), name)).await {
        Ok(Ok(())) => {}
        Ok(Err(Failed::Over(error))) => links.note_end(member, name, &error),
        Ok(Err(Failed::Refused(refused))) => {
            closing::refuse(&connection, &refused);
            if matches!(refused.why, RefusalReason::AnswersForAnother { .. }) {
                return Outcome::Another(refused.to_string());
            }
            links.note_refusal(member, refused.to_string());
        }
        Err(_) => connection.close(0u32.into(), b""),
    }
    Outcome::Answered
}

/// Starts a connection attempt, or returns why that is impossible.
fn connect(links: &Links, member: &Member, address: SocketAddr) -> Result<Connecting, String> {
    let own = links.endpoint.local_addr().map_err(|error| error.to_string())?;
    if !speaks_to(own.ip(), address.ip()) {
        let family = if own.is_ipv4() { "IPv4" } else { "IPv6" };
        return Err(format!(
            "this server listens on {own}, {family} only: set `peers = \"[::]:{}\"` for both families",
            own.port()
        ));
    }
    let server = Gate::server_name(member.id);
    links.endpoint.connect_with(member.dialling.clone(), address, &server).map_err(|error| error.to_string())
}

/// Returns why the system cannot send to `address`; `None` if it can.
///
/// QUIC treats a packet that could not be sent as lost, so quinn reports only a timeout. Connecting
/// a UDP socket checks the route and sends nothing.
fn no_way(links: &Links, address: SocketAddr) -> Option<String> {
    let own = links.endpoint.local_addr().ok()?;
    let to = address.ip().to_canonical();
    // Whether a socket for all addresses speaks both families depends on the system. The endpoint's
    // own socket does, so this one is bound in the family of the destination.
    let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = if own.ip().is_unspecified() { any } else { own.ip() };
    let socket = UdpSocket::bind((from, 0)).ok()?;
    let to = if from.is_ipv4() { SocketAddr::new(to, address.port()) } else { address };
    socket.connect(to).err().map(|error| error.to_string())
}

/// Returns whether a socket bound to `own` can send to `to`.
fn speaks_to(own: IpAddr, to: IpAddr) -> bool {
    match (own.to_canonical(), to.to_canonical()) {
        (IpAddr::V6(own), IpAddr::V4(_)) => own.is_unspecified(),
        (own, to) => own.is_ipv4() == to.is_ipv4(),
    }
}

/// Returns whether this server itself listens at `address`.
fn is_own(endpoint: &Endpoint, address: SocketAddr) -> bool {
    let Ok(own) = endpoint.local_addr() else { return false };
    let (own_ip, ip) = (own.ip().to_canonical(), address.ip().to_canonical());
    // A socket for all addresses listens on every address that can be bound on this machine.
    let is_own_ip = || own_ip == ip || own_ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok();
    own.port() == address.port() && is_own_ip()
}

impl Links {
    /// Records an attempt that the peer or TLS ended.
    fn note_end(&self, member: &Member, name: &str, error: &ConnectionError) {
        match refusal_line(self, name, error) {
            Some(line) => self.note_refusal(member, line),
            None if matches!(Closing::of(error), Some(Closing::Duplicate | Closing::Going)) => {}
            None => tracing::debug!("no link to {name} of server {}: {error}", member.id.as_u8()),
        }
    }

    fn note_refusal(&self, member: &Member, line: String) {
        self.warnings.warn((member.id, &line), &line);
        self.table.refused(member.id, line);
    }
}

/// Since when each of a member's names has had no answer.
///
/// Kept per name, because another name that answers does not repair this one.
#[derive(Default)]
struct Silence {
    since: HashMap<String, Instant>,
}

impl Silence {
    fn note(&mut self, links: &Links, member: &Member, name: &str, outcome: &Outcome) {
        let id = member.id.as_u8();
        let line = match outcome {
            Outcome::Answered | Outcome::Another(_) => {
                self.since.remove(name);
                return;
            }
            Outcome::Silence => format!("no UDP reply from {name} (ZooKeeper used TCP here; open UDP {})", port(name)),
            // UDP passed earlier, so a firewall is not the likely cause.
            Outcome::Lost => {
                format!("no UDP reply from {name} since the link ended: server {id} is down or unreachable")
            }
            Outcome::NoWay(why) => format!("cannot dial server {id} at {name}: {why}"),
            Outcome::NoSuchName(error) => format!("cannot resolve {name}, the address of server {id}: {error}"),
        };
        let now = Instant::now();
        let since = *self.since.entry(name.to_owned()).or_insert(now);
        if now.duration_since(since) >= SILENCE {
            links.note_refusal(member, line);
        } else if matches!(outcome, Outcome::Lost) {
            // The status knows it at once. A log would have this line at every restart of a peer.
            links.table.refused(member.id, line);
        }
    }
}

/// Returns the port of "host:port".
fn port(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, port)| port)
}

/// Growing pauses with jitter, seeded differently on each server.
struct Pauses {
    random: u64,
    next: Duration,
}

impl Pauses {
    fn new(seed: u64) -> Self {
        // xorshift would stay at zero.
        Self { random: seed | 1, next: PAUSE_MIN }
    }

    fn restart(&mut self) {
        self.next = PAUSE_MIN;
    }

    /// Returns a random pause between half and all of the current one.
    fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (2 * pause).min(PAUSE_MAX);
        // xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        pause / 2 + pause / 2 * (self.random % 1024) as u32 / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_dials_its_own_ip_family_and_the_ipv6_wildcard_both() {
        let speaks = |own: &str, to: &str| speaks_to(own.parse().unwrap(), to.parse().unwrap());
        assert!(speaks("0.0.0.0", "10.0.0.1") && speaks("10.0.0.2", "::ffff:10.0.0.1"));
        assert!(!speaks("0.0.0.0", "fd00::1") && !speaks("10.0.0.2", "fd00::1"));
        assert!(speaks("::", "10.0.0.1") && speaks("::", "fd00::1"));
        assert!(!speaks("fd00::2", "10.0.0.1") && speaks("fd00::2", "fd00::1"));
        assert!(speaks("::ffff:10.0.0.2", "10.0.0.1"));
    }

    #[test]
    fn dial_pauses_grow_to_their_maximum_with_jitter() {
        let mut pauses = Pauses::new(7);
        let first: Vec<_> = (0..20).map(|_| pauses.next()).collect();
        assert!(first[0] >= PAUSE_MIN / 2 && first[0] <= PAUSE_MIN, "{first:?}");
        assert!(first[10..].iter().all(|pause| *pause >= PAUSE_MAX / 2 && *pause <= PAUSE_MAX), "{first:?}");
        assert!(first[10..].windows(2).any(|two| two[0] != two[1]), "{first:?}");
        pauses.restart();
        assert!(pauses.next() <= PAUSE_MIN);
    }
}
