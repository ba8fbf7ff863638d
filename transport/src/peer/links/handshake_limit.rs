//! Bounds concurrent handshakes of unproved peers, and their rate.
//!
//! A handshake costs this server a key exchange, a signature and a verification. On a small
//! processor that takes milliseconds, on the thread that also answers heartbeats. Permits bound the
//! concurrent handshakes. Allowances bound the rate, because a stranger that aborts each handshake
//! frees its permit at once.

use super::lock;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zoolet_machine::network::network;

/// With this many handshakes in progress, strangers must first validate their address.
///
/// A retry packet does that, and costs this server nothing.
const UNVALIDATED_MAX: usize = 4;
/// With this many handshakes of strangers in progress, further strangers are ignored.
const STRANGERS_MAX: usize = 32;
/// Maximum handshakes in progress per network. The whole ensemble may run on one machine.
const STRANGERS_OF_NETWORK_MAX: usize = 16;
/// Extra permits for each dialled address of a member, when strangers fill all others.
///
/// The member dials from that address too, and no other process on its machine can.
const OF_MEMBERS_ADDRESS: usize = 2;

/// Allowance of all strangers together.
const OF_ALL: Allowance = Allowance { at_once: 64, every: Duration::from_millis(31) };
/// Allowance of one network. A whole ensemble on one machine may start at once.
const OF_NETWORK: Allowance = Allowance { at_once: 32, every: Duration::from_millis(125) };
/// Extra allowance for each dialled address of a member, when strangers use up theirs.
const OF_MEMBER: Allowance = Allowance { at_once: 8, every: Duration::from_millis(500) };

/// Token bucket: the burst of handshakes, and the interval per further one.
///
/// Each handshake adds the interval to the debt of its origin.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    at_once: u32,
    every: Duration,
}

impl Allowance {
    /// Returns whether one more may begin. `debt` is the time until all earlier ones are paid off.
    fn is_left(self, debt: Duration) -> bool {
        debt + self.every <= self.every * self.at_once
    }

    /// Returns whether less than half of the burst is used.
    fn is_mostly_left(self, debt: Duration) -> bool {
        debt < self.every * self.at_once / 2
    }
}

/// Handshakes in progress, and the debts of recent ones, by origin.
#[derive(Debug, Default)]
pub(super) struct HandshakeLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    heard: HashMap<Origin, usize>,
    /// When each origin's debt is paid off.
    ///
    /// Times in the past are dropped, so `OF_ALL` bounds the size.
    paid: HashMap<Origin, Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Origin {
    /// All strangers together; only for the allowance.
    All,
    Stranger(IpAddr),
    Member(SocketAddr),
}

impl Origin {
    fn allowance(self) -> Allowance {
        match self {
            Self::All => OF_ALL,
            Self::Stranger(_) => OF_NETWORK,
            Self::Member(_) => OF_MEMBER,
        }
    }
}

impl State {
    fn handshakes_of(&self, origin: Origin) -> usize {
        self.heard.get(&origin).copied().unwrap_or_default()
    }

    fn places_of_strangers(&self) -> usize {
        let strangers = self.heard.iter().filter(|(origin, _)| matches!(origin, Origin::Stranger(_)));
        strangers.map(|(_, limit)| limit).sum()
    }

    fn debt(&self, origin: Origin, now: Instant) -> Duration {
        self.paid.get(&origin).map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now))
    }

    fn may_begin(&self, origin: Origin, now: Instant) -> bool {
        origin.allowance().is_left(self.debt(origin, now))
    }

    fn charge(&mut self, origin: Origin, now: Instant) {
        let paid = self.paid.entry(origin).or_insert(now);
        *paid = (*paid).max(now) + origin.allowance().every;
    }
}

/// A handshake in progress. Dropping it frees the permit.
pub(super) struct HandshakePermit {
    limit: Arc<HandshakeLimit>,
    origin: Origin,
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let heard = &mut lock(&self.limit.0).heard;
        if let Some(count) = heard.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                heard.remove(&self.origin);
            }
        }
    }
}

/// Decision about a connection attempt.
pub(super) enum Decision {
    Heard(HandshakePermit),
    /// The peer must first show that it receives packets at its address.
    Retried,
    /// Dropped without an answer.
    Ignored,
}

impl HandshakeLimit {
    /// Decides about a connection attempt. `is_members`: a member is dialled at `remote`.
    pub(super) fn decide(
        self: &Arc<Self>,
        remote: SocketAddr,
        is_members: bool,
        is_validated: bool,
        now: Instant,
    ) -> Decision {
        let mut state = lock(&self.0);
        state.paid.retain(|_, paid| *paid > now);
        let all: usize = state.heard.values().sum();
        let stranger = Origin::Stranger(network(remote.ip()));
        let member = Origin::Member(remote);
        let has_room =
            state.places_of_strangers() < STRANGERS_MAX && state.handshakes_of(stranger) < STRANGERS_OF_NETWORK_MAX;
        let charged = [stranger, Origin::All];
        let charged: &[Origin] = if has_room && charged.iter().all(|&origin| state.may_begin(origin, now)) {
            &charged
        } else if is_members && state.handshakes_of(member) < OF_MEMBERS_ADDRESS && state.may_begin(member, now) {
            &[member]
        } else {
            return Decision::Ignored;
        };
        // Anyone can forge a source address. An unvalidated address therefore uses at most half of
        // its network's allowance, and nothing of a member's.
        let may_be_forged = all < UNVALIDATED_MAX
            && charged.iter().all(|origin| match origin {
                Origin::Member(_) => false,
                Origin::All | Origin::Stranger(_) => origin.allowance().is_mostly_left(state.debt(*origin, now)),
            });
        if !may_be_forged && !is_validated {
            return Decision::Retried;
        }
        charged.iter().for_each(|&origin| state.charge(origin, now));
        let origin = charged[0];
        *state.heard.entry(origin).or_default() += 1;
        Decision::Heard(HandshakePermit { limit: self.clone(), origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the decision on each attempt, and holds the permits.
    struct Acceptor {
        limit: Arc<HandshakeLimit>,
        heard: Vec<HandshakePermit>,
        now: Instant,
    }

    impl Default for Acceptor {
        fn default() -> Self {
            Self { limit: Arc::default(), heard: Vec::new(), now: Instant::now() }
        }
    }

    impl Acceptor {
        fn decide(&mut self, remote: &str, is_members: bool, is_validated: bool) -> &'static str {
            match self.limit.decide(remote.parse().unwrap(), is_members, is_validated, self.now) {
                Decision::Heard(permit) => {
                    self.heard.push(permit);
                    "heard"
                }
                Decision::Retried => "retried",
                Decision::Ignored => "ignored",
            }
        }

        fn is_heard(&mut self, times: usize, remote: impl Fn(usize) -> String) -> bool {
            (0..times).all(|n| self.decide(&remote(n), false, true) == "heard")
        }
    }

    #[test]
    fn handshakes_of_strangers_are_bounded_and_release_their_places() {
        let mut acceptor = Acceptor::default();
        // The first few strangers need not validate their addresses.
        assert!((0..UNVALIDATED_MAX).all(|_| acceptor.decide("10.0.0.1:1", false, false) == "heard"));
        assert_eq!(acceptor.decide("10.0.0.1:1", false, false), "retried");
        assert!(acceptor.is_heard(STRANGERS_OF_NETWORK_MAX - UNVALIDATED_MAX, |port| format!("10.0.0.1:{port}")));
        assert_eq!(acceptor.decide("10.0.0.1:1", false, true), "ignored");
        assert!(acceptor.is_heard(STRANGERS_MAX - STRANGERS_OF_NETWORK_MAX, |_| "10.0.0.2:1".to_owned()));
        assert_eq!(acceptor.decide("10.0.0.3:1", false, true), "ignored");
        acceptor.heard.clear();
        assert!(lock(&acceptor.limit.0).heard.is_empty());
        assert_eq!(acceptor.decide("10.0.0.3:1", false, true), "heard");
    }

    /// Returns how many of `times` attempts are heard. Each stranger leaves at once.
    fn loops(acceptor: &mut Acceptor, times: usize, remote: impl Fn(usize) -> String) -> usize {
        let heard = (0..times).filter(|&n| {
            let is_heard = acceptor.decide(&remote(n), false, true) == "heard";
            acceptor.heard.clear();
            is_heard
        });
        heard.count()
    }

    #[test]
    fn network_looping_handshakes_gets_a_burst_and_then_8_per_second() {
        let mut acceptor = Acceptor::default();
        assert_eq!(loops(&mut acceptor, 1000, |port| format!("10.0.0.1:{}", port + 1)), OF_NETWORK.at_once as usize);
        assert_eq!(acceptor.decide("10.0.0.2:1", false, true), "heard", "another network has its own");
        acceptor.now += Duration::from_secs(1);
        assert_eq!(loops(&mut acceptor, 1000, |_| "10.0.0.1:1".to_owned()), 8);
        acceptor.now += Duration::from_secs(60);
        assert_eq!(acceptor.decide("10.0.0.1:1", false, false), "heard");
        assert_eq!(lock(&acceptor.limit.0).paid.len(), 2, "what is paid for is forgotten");
    }

    #[test]
    fn networks_looping_handshakes_leave_room_for_members() {
        let mut acceptor = Acceptor::default();
        assert_eq!(loops(&mut acceptor, 1000, |n| format!("10.0.{}.{}:1", n / 250, n % 250)), OF_ALL.at_once as usize);
        assert_eq!(acceptor.decide("10.1.0.1:2888", false, true), "ignored");
        assert_eq!(acceptor.decide("10.1.0.1:2888", true, false), "retried", "its address may be forged");
        assert_eq!(acceptor.decide("10.1.0.1:2888", true, true), "heard");
    }

    #[test]
    fn forged_addresses_use_at_most_half_of_their_networks_handshakes() {
        let mut acceptor = Acceptor::default();
        let forged = (0..1000).filter(|_| {
            let is_heard = acceptor.decide("10.0.0.1:1", false, false) == "heard";
            acceptor.heard.clear();
            is_heard
        });
        assert_eq!(forged.count(), OF_NETWORK.at_once as usize / 2);
        assert_eq!(acceptor.decide("10.0.0.1:1", false, true), "heard");
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_count_as_the_same_stranger() {
        let mut acceptor = Acceptor::default();
        assert!(acceptor.is_heard(STRANGERS_OF_NETWORK_MAX, |host| format!("[fd00:0:0:1:{host}::7]:1")));
        assert_eq!(acceptor.decide("[fd00:0:0:1:ffff::1]:2", false, true), "ignored");
        assert_eq!(acceptor.decide("[fd00:0:0:2::1]:2", false, true), "heard");
    }

    /// Regression: the extra places of members were counted as places of strangers.
    #[test]
    fn extra_places_of_members_leave_strangers_theirs() {
        let mut acceptor = Acceptor::default();
        assert!(acceptor.is_heard(STRANGERS_MAX, |n| format!("10.0.{n}.1:2888")));
        for member in 1..=3 {
            let remote = format!("10.1.0.{member}:2888");
            assert!((0..OF_MEMBERS_ADDRESS).all(|_| acceptor.decide(&remote, true, true) == "heard"));
        }
        acceptor.heard.remove(0);
        assert_eq!(acceptor.decide("10.2.0.1:1", false, true), "heard");
        assert_eq!(acceptor.decide("10.2.0.2:1", false, true), "ignored");
    }

    #[test]
    fn strangers_with_many_addresses_leave_room_for_members() {
        let mut acceptor = Acceptor::default();
        assert!(acceptor.is_heard(STRANGERS_MAX, |n| format!("10.0.{n}.1:2888")));
        assert_eq!(acceptor.decide("10.1.0.1:2888", false, true), "ignored");
        // A member's address can be forged.
        assert_eq!(acceptor.decide("10.1.0.1:2888", true, false), "retried");
        assert!((0..OF_MEMBERS_ADDRESS).all(|_| acceptor.decide("10.1.0.1:2888", true, true) == "heard"));
        assert_eq!(acceptor.decide("10.1.0.1:2888", true, true), "ignored");
        assert_eq!(acceptor.decide("10.1.0.2:2888", true, true), "heard");
    }
}
