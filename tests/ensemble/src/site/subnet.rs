//! Loopback addresses that no other run uses.

use crate::Outcome;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Last byte and port whose holder owns the network. No product uses this port.
const CLAIM: (u8, u16) = (250, 2880);
/// Number of networks to try.
const ATTEMPTS: u32 = 64;

/// The addresses 127.x.y.1 to 127.x.y.249, reserved until dropped.
///
/// Other runs on this machine get other addresses, so fixed ports do not collide.
#[derive(Debug)]
pub struct Subnet {
    x: u8,
    y: u8,
    _claim: UdpSocket,
}

impl Subnet {
    /// Reserves a free network.
    ///
    /// # Errors
    /// No network is free. The system may have no loopback address but 127.0.0.1.
    pub fn claim() -> Outcome<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..ATTEMPTS {
            let number = std::process::id().wrapping_mul(37).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let [_, _, x, y] = number.to_be_bytes();
            // 127.0.y is left to programs with default addresses.
            let x = x.max(1);
            if let Ok(claim) = UdpSocket::bind((Ipv4Addr::new(127, x, y, CLAIM.0), CLAIM.1)) {
                return Ok(Self { x, y, _claim: claim });
            }
        }
        Err("no free addresses in 127.0.0.0/8".to_owned())
    }

    /// Returns the address that ends in `last`.
    pub fn address(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.x, self.y, last)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may unwrap")]
mod tests {
    use super::*;

    #[test]
    fn each_claimed_subnet_is_unique() {
        let subnets: Vec<_> = (0..10).map(|_| Subnet::claim().unwrap()).collect();
        let addresses: std::collections::BTreeSet<_> = subnets.iter().map(|subnet| subnet.address(1)).collect();
        assert_eq!(addresses.len(), 10);
    }
}
