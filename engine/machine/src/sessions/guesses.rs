//! Rate limit for guesses of the super user's password.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Burst of wrong guesses allowed to one network.
const AT_ONCE: u64 = 5;
/// Interval between further guesses, in milliseconds.
const EVERY_MS: u64 = 10_000;
/// Maximum networks remembered. While this many are guessing, attempts from any other network are
/// refused: a flood of addresses buys no guesses.
const NETWORKS_MAX: usize = 1024;

/// Recent wrong guesses by network.
///
/// A guess over the limit is refused rather than delayed: a refusal holds no connection, memory or
/// thread. It is refused before the password is checked, so the right password gets the same answer
/// and fast guessing reveals nothing.
#[derive(Debug, Default)]
pub struct Guesses {
    /// Time at which a network's wrong guesses stop counting, on the caller's clock.
    paid_ms: BTreeMap<IpAddr, u64>,
}

impl Guesses {
    /// Returns whether a guess from this network may be checked now.
    pub fn may_try(&mut self, network: IpAddr, now_ms: u64) -> bool {
        match self.paid_ms.get(&network) {
            Some(&paid_ms) => paid_ms.saturating_sub(now_ms) <= (AT_ONCE - 1) * EVERY_MS,
            None => {
                if self.paid_ms.len() >= NETWORKS_MAX {
                    self.paid_ms.retain(|_, paid_ms| *paid_ms > now_ms);
                }
                self.paid_ms.len() < NETWORKS_MAX
            }
        }
    }

    /// Records a wrong guess from this network.
    pub fn on_wrong(&mut self, network: IpAddr, now_ms: u64) {
        let paid_ms = self.paid_ms.entry(network).or_insert(now_ms);
        *paid_ms = (*paid_ms).max(now_ms) + EVERY_MS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    /// Makes `tries` wrong guesses; returns how many were checked.
    fn looked_at(guesses: &mut Guesses, network: IpAddr, tries: u64, now_ms: u64) -> u64 {
        let mut looked_at = 0;
        for _ in 0..tries {
            if guesses.may_try(network, now_ms) {
                guesses.on_wrong(network, now_ms);
                looked_at += 1;
            }
        }
        looked_at
    }

    #[test]
    fn network_gets_a_burst_of_guesses_and_then_a_slow_rate() {
        let mut guesses = Guesses::default();
        assert_eq!(looked_at(&mut guesses, A, 1000, 0), AT_ONCE);
        assert_eq!(looked_at(&mut guesses, A, 1000, EVERY_MS - 1), 0);
        assert_eq!(looked_at(&mut guesses, A, 1000, EVERY_MS), 1);
        assert_eq!(looked_at(&mut guesses, B, 1000, EVERY_MS), AT_ONCE, "another network has its own");
        assert_eq!(looked_at(&mut guesses, A, 1000, 100 * EVERY_MS), AT_ONCE);
    }

    #[test]
    fn full_table_of_guessing_networks_refuses_a_new_network_until_expiry() {
        let mut guesses = Guesses::default();
        let network = |number: usize| IpAddr::from((number as u32).to_be_bytes());
        for number in 0..NETWORKS_MAX {
            assert_eq!(looked_at(&mut guesses, network(number), 1, 0), 1);
        }
        assert_eq!(looked_at(&mut guesses, network(NETWORKS_MAX), 1, 0), 0);
        assert_eq!(looked_at(&mut guesses, network(NETWORKS_MAX), 1, EVERY_MS), 1);
        assert_eq!(guesses.paid_ms.len(), 1);
    }
}
