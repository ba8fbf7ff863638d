//! The unit that shares a bound: one IPv4 address or one IPv6 network.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU16;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Returns the network that `address` counts as.
///
/// An IPv4 address is its own network. An IPv6 host may choose among the 2^64 addresses of its
/// network, so a bound per address would be useless. An IPv4 address that a dual-stack socket shows
/// as IPv6 counts as IPv4.
pub fn network(address: IpAddr) -> IpAddr {
    const HOST: u128 = u64::MAX as u128;
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !HOST).into(),
        address => address,
    }
}

/// A network hashed to two bytes, so that storing it costs a session nothing.
///
/// Two networks collide with a chance of 1 in 65,535, and then share their bound. The seed is
/// secret and differs between processes, so a client cannot choose a collision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Source(NonZeroU16);

impl Source {
    /// Returns the source of every address in the network of `address`.
    pub fn of(address: IpAddr, seed: u64) -> Self {
        let hash = match network(address) {
            IpAddr::V4(address) => xxh3_64_with_seed(&address.octets(), seed),
            IpAddr::V6(address) => xxh3_64_with_seed(&address.octets(), seed),
        };
        let folded = (hash % u64::from(u16::MAX)) as u16;
        Self(NonZeroU16::MIN.saturating_add(folded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn network_is_a_whole_ipv4_address_or_an_ipv6_slash_64() {
        assert_eq!(network(parsed("10.0.0.1")), parsed("10.0.0.1"));
        assert_eq!(network(parsed("::ffff:10.0.0.1")), parsed("10.0.0.1"));
        assert_eq!(network(parsed("fd00:0:0:1:5::7")), parsed("fd00:0:0:1::"));
        assert_ne!(network(parsed("fd00:0:0:2::1")), parsed("fd00:0:0:1::"));
    }

    #[test]
    fn addresses_of_one_network_have_one_source_per_seed() {
        let source = |address| Source::of(parsed(address), 7);
        assert_eq!(source("fd00::1"), source("fd00::ffff:2"));
        assert_eq!(source("10.0.0.1"), source("::ffff:10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
        assert_ne!(source("10.0.0.1"), Source::of(parsed("10.0.0.1"), 8));
    }
}
