//! Measures the round trip to other boxes.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Round trips measured per box.
const ROUNDS: usize = 10;
/// Maximum wait for all boxes together.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// A box with its round trip in microseconds, median and longest.
///
/// `Err` holds the reason for a missing answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Peer {
    pub(super) address: String,
    pub(super) round_trip_us: Result<(u64, u64), String>,
}

/// Measures all boxes in parallel by the time that a TCP connection attempt takes.
///
/// A refusal takes a round trip too, so the box needs no listener on that port. Threads without an
/// answer are left behind, because a waiting resolver cannot be cancelled.
pub(super) fn ask(addresses: &[String], patience: Duration) -> Vec<Peer> {
    let until = Instant::now() + patience;
    let (sender, answers) = mpsc::channel();
    for (number, address) in addresses.iter().cloned().enumerate() {
        let sender = sender.clone();
        // The receiver is gone when the time is up.
        thread::spawn(move || _ = sender.send((number, round_trip(&address, until))));
    }
    drop(sender);
    let silent =
        || format!("no answer within {} s: it is off or missing, or a firewall drops the packets", patience.as_secs());
    let peer = |address: &String| Peer { address: address.clone(), round_trip_us: Err(silent()) };
    let mut peers: Vec<Peer> = addresses.iter().map(peer).collect();
    while let Ok((number, answer)) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if !matches!(&answer, Err(error) if error.kind() == ErrorKind::TimedOut) {
            peers[number].round_trip_us = answer.map_err(|error| in_words(&error));
        }
    }
    peers
}

fn round_trip(address: &str, until: Instant) -> io::Result<(u64, u64)> {
    // A name may have an address that is unreachable from here.
    let mut last = io::Error::new(ErrorKind::AddrNotAvailable, "the name has no address");
    for to in address.to_socket_addrs()? {
        match rounds(to, until) {
            Err(error) => last = error,
            answered => return answered,
        }
    }
    Err(last)
}

fn rounds(to: SocketAddr, until: Instant) -> io::Result<(u64, u64)> {
    let mut took = Vec::with_capacity(ROUNDS);
    while took.len() < ROUNDS {
        let asked = Instant::now();
        let left = until.saturating_duration_since(asked);
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&to, left) {
            Err(error) if error.kind() != ErrorKind::ConnectionRefused => return Err(error),
            _ => took.push(u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX)),
        }
    }
    took.sort_unstable();
    match (took.get(took.len() / 2), took.last()) {
        (Some(median), Some(longest)) => Ok((*median, *longest)),
        _ => Err(ErrorKind::TimedOut.into()),
    }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::HostUnreachable => {
            "no box with this address answers in its network: it is off, or has another address".to_owned()
        }
        ErrorKind::NetworkUnreachable => {
            "no route to that network: check the addresses and routes of this box".to_owned()
        }
        // The error kind of a failed lookup is unstable in std, so only its text identifies it.
        _ if error.to_string().starts_with("failed to lookup address information") => {
            "cannot resolve the name: check DNS and /etc/hosts, or give an address".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    const LONG: Duration = Duration::from_secs(60);

    fn known(asked: &[Peer]) -> Vec<bool> {
        asked.iter().map(|peer| peer.round_trip_us.is_ok()).collect()
    }

    #[test]
    fn round_trip_is_measured_to_refusing_and_listening_peers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listens = listener.local_addr().unwrap().to_string();
        let words = [&listens, "127.0.0.1:1", "localhost:1", "gw a:1"].map(str::to_owned);
        let asked = ask(&words, LONG);
        assert_eq!(known(&asked), [true, true, true, false], "{asked:?}");
        let (median, longest) = asked[0].round_trip_us.clone().unwrap();
        assert!(0 < median && median <= longest);
    }

    /// Sixteen boxes that are off take no longer than one.
    #[test]
    fn silent_peers_do_not_delay_the_measurement_of_an_answering_peer() {
        // A full accept queue lets further connection attempts wait.
        let full = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = full.local_addr().unwrap();
        let queued: Vec<TcpStream> =
            (0..).map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect();
        assert!(!queued.is_empty());
        let refuses = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let words: Vec<String> = (0..16).map(|_| address.to_string()).chain([refuses.to_string()]).collect();
        let asked = ask(&words, Duration::from_secs(1));
        let (last, silent) = asked.split_last().unwrap();
        assert!(last.round_trip_us.is_ok(), "{last:?}");
        for peer in silent {
            assert!(peer.round_trip_us.as_ref().unwrap_err().starts_with("no answer within 1 s"), "{peer:?}");
        }
    }
}
