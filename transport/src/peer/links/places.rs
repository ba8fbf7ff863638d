//! How many who have proved nothing are heard at a time.

use super::lock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

/// Connections that have not proved themselves: with more than this, strangers first have to show that they are where they say, at no cost here.
const UNVALIDATED_MAX: usize = 4;
/// With more than this, no other stranger is heard.
const STRANGERS_MAX: usize = 32;
/// The same of one network. On one machine the whole ensemble may knock.
const STRANGERS_OF_NETWORK_MAX: usize = 16;
/// When strangers have all places, so many are left for each address at which members are dialled. They dial from there too, and nobody else on their
/// machines can.
const OF_MEMBERS_ADDRESS: usize = 2;

/// Who is being heard, by where they are.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<Origin, usize>>);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Origin {
    Stranger(IpAddr),
    Member(SocketAddr),
}

/// A place among them.
pub(super) struct Place {
    places: Arc<Places>,
    origin: Origin,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = lock(&self.places.0);
        if let Some(count) = places.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                places.remove(&self.origin);
            }
        }
    }
}

/// What is done with a knock.
pub(super) enum Knock {
    Heard(Place),
    /// Asked to show that it gets answers where it says it is.
    Retried,
    /// Not answered.
    Ignored,
}

impl Places {
    /// `is_members`: a member is dialled there.
    pub(super) fn knock(self: &Arc<Self>, remote: SocketAddr, is_members: bool, is_validated: bool) -> Knock {
        let mut places = lock(&self.0);
        let all: usize = places.values().sum();
        let of = |origin| places.get(&origin).copied().unwrap_or_default();
        let stranger = Origin::Stranger(network(remote.ip()));
        let member = Origin::Member(remote);
        let origin = if all < STRANGERS_MAX && of(stranger) < STRANGERS_OF_NETWORK_MAX {
            stranger
        } else if is_members && of(member) < OF_MEMBERS_ADDRESS {
            member
        } else {
            return Knock::Ignored;
        };
        if all >= UNVALIDATED_MAX && !is_validated {
            return Knock::Retried;
        }
        *places.entry(origin).or_default() += 1;
        Knock::Heard(Place { places: self.clone(), origin })
    }
}

/// What one stranger may have for himself: an address, and of IPv6 the 2^64 of a network.
pub(super) fn network(address: IpAddr) -> IpAddr {
    const HOST: u128 = u64::MAX as u128;
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !HOST).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says of each knock what was done, and keeps the places.
    #[derive(Default)]
    struct Door {
        places: Arc<Places>,
        heard: Vec<Place>,
    }

    impl Door {
        fn knock(&mut self, remote: &str, is_members: bool, is_validated: bool) -> &'static str {
            match self.places.knock(remote.parse().unwrap(), is_members, is_validated) {
                Knock::Heard(place) => {
                    self.heard.push(place);
                    "heard"
                }
                Knock::Retried => "retried",
                Knock::Ignored => "ignored",
            }
        }

        fn is_heard(&mut self, times: usize, remote: impl Fn(usize) -> String) -> bool {
            (0..times).all(|n| self.knock(&remote(n), false, true) == "heard")
        }
    }

    #[test]
    fn strangers_are_bounded_and_leave_their_places() {
        let mut door = Door::default();
        // Whoever comes while there are few need not show where he is.
        assert!((0..UNVALIDATED_MAX).all(|_| door.knock("10.0.0.1:1", false, false) == "heard"));
        assert_eq!(door.knock("10.0.0.1:1", false, false), "retried");
        assert!(door.is_heard(STRANGERS_OF_NETWORK_MAX - UNVALIDATED_MAX, |port| format!("10.0.0.1:{port}")));
        assert_eq!(door.knock("10.0.0.1:1", false, true), "ignored");
        assert!(door.is_heard(STRANGERS_MAX - STRANGERS_OF_NETWORK_MAX, |_| "10.0.0.2:1".to_owned()));
        assert_eq!(door.knock("10.0.0.3:1", false, true), "ignored");
        door.heard.clear();
        assert!(lock(&door.places.0).is_empty());
        assert_eq!(door.knock("10.0.0.3:1", false, false), "heard");
    }

    #[test]
    fn all_addresses_of_one_ipv6_network_are_one_stranger() {
        let mut door = Door::default();
        assert!(door.is_heard(STRANGERS_OF_NETWORK_MAX, |host| format!("[fd00:0:0:1:{host}::7]:1")));
        assert_eq!(door.knock("[fd00:0:0:1:ffff::1]:2", false, true), "ignored");
        assert_eq!(door.knock("[fd00:0:0:2::1]:2", false, true), "heard");
        // An IPv4 address as a socket for both families shows it.
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), IpAddr::from([10, 0, 0, 1]));
    }

    #[test]
    fn strangers_with_many_addresses_leave_places_for_members() {
        let mut door = Door::default();
        assert!(door.is_heard(STRANGERS_MAX, |n| format!("10.0.{n}.1:2888")));
        assert_eq!(door.knock("10.1.0.1:2888", false, true), "ignored");
        // Anybody can write a member's address on a packet.
        assert_eq!(door.knock("10.1.0.1:2888", true, false), "retried");
        assert!((0..OF_MEMBERS_ADDRESS).all(|_| door.knock("10.1.0.1:2888", true, true) == "heard"));
        assert_eq!(door.knock("10.1.0.1:2888", true, true), "ignored");
        assert_eq!(door.knock("10.1.0.2:2888", true, true), "heard");
    }
}
