//! How far away the other boxes are.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// So often each is asked.
const ROUNDS: usize = 10;
/// How long an answer is waited for, all rounds of one peer together.
const PATIENCE: Duration = Duration::from_secs(2);

/// A box, and how long a packet took there and back, microseconds: the median and the longest; or why nobody knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Peer {
    pub(super) address: String,
    pub(super) round_trip_us: Result<(u64, u64), String>,
}

/// Asks each for a connection: that it is refused takes a round trip as well, so nobody needs to listen there.
pub(super) fn ask(addresses: &[String]) -> Vec<Peer> {
    addresses.iter().map(|address| Peer { address: address.clone(), round_trip_us: round_trip(address) }).collect()
}

fn round_trip(address: &str) -> Result<(u64, u64), String> {
    let resolved = address.to_socket_addrs().map_err(|error| error.to_string())?.next();
    let to = resolved.ok_or_else(|| "the name has no address".to_owned())?;
    let (began, mut took) = (Instant::now(), Vec::with_capacity(ROUNDS));
    while took.len() < ROUNDS && began.elapsed() < PATIENCE {
        let asked = Instant::now();
        match TcpStream::connect_timeout(&to, PATIENCE) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error.to_string()),
        }
        took.push(u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    took.sort_unstable();
    Ok((took[took.len() / 2], took[took.len() - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_that_refuses_is_as_far_away_as_one_that_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listens = listener.local_addr().unwrap().to_string();
        let asked = ask(&[listens, "127.0.0.1:1".to_owned(), "nobody.invalid:1".to_owned()]);
        let known: Vec<bool> = asked.iter().map(|peer| peer.round_trip_us.is_ok()).collect();
        assert_eq!(known, [true, true, false]);
        let (median, longest) = asked[0].round_trip_us.clone().unwrap();
        assert!(0 < median && median <= longest);
    }
}
