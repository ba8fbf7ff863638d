//! A network namespace for each server, with a cable that can be pulled. Linux and root only.
//!
//! The relay only carries UDP, between servers that can be told where to find each other. Cables
//! carry any traffic. All cables end in one bridge, which clients use too. So a server that is cut
//! off is cut off from clients as well.

use crate::{Outcome, said};
use std::net::Ipv4Addr;
use std::process::Command;

/// The bridge, and a namespace for each server. Removed when dropped.
pub(super) struct Cables {
    /// Distinguishes this run from others on the same machine.
    mark: u32,
    servers: u8,
}

impl Cables {
    /// Creates the bridge and the namespaces.
    ///
    /// # Errors
    /// A call of `ip` fails.
    pub(super) fn lay(servers: u8) -> Outcome<Self> {
        let cables = Self { mark: std::process::id(), servers };
        let (bridge, own) = (cables.bridge(), cables.address(254));
        ip(&["link", "add", &bridge, "type", "bridge", "forward_delay", "0"])?;
        ip(&["addr", "add", &format!("{own}/24"), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for id in 1..=servers {
            cables.lay_one(id, &bridge)?;
        }
        Ok(cables)
    }

    fn lay_one(&self, id: u8, bridge: &str) -> Outcome<()> {
        let (namespace, cable, plug) = (self.namespace(id), self.cable(id), format!("{}p", self.cable(id)));
        let inside = |words: &[&str]| ip(&[&["-n", namespace.as_str()], words].concat());
        ip(&["netns", "add", &namespace])?;
        ip(&["link", "add", &cable, "type", "veth", "peer", "name", &plug])?;
        ip(&["link", "set", &plug, "netns", &namespace])?;
        ip(&["link", "set", &cable, "master", bridge])?;
        ip(&["link", "set", &cable, "up"])?;
        inside(&["addr", "add", &format!("{}/24", self.address(id)), "dev", &plug])?;
        inside(&["link", "set", &plug, "up"])?;
        inside(&["link", "set", "lo", "up"])
    }

    /// Returns the address of a server, or of the bridge with 254.
    ///
    /// 198.18.0.0/15 is reserved for measurements (RFC 2544).
    pub(super) fn address(&self, last: u8) -> Ipv4Addr {
        let [_, _, _, low] = self.mark.to_be_bytes();
        Ipv4Addr::new(198, 18, low, last)
    }

    /// Returns the name of a server's namespace.
    pub(super) fn namespace(&self, id: u8) -> String {
        format!("zl{}-{id}", self.mark)
    }

    fn bridge(&self) -> String {
        format!("zl{}", self.mark)
    }

    fn cable(&self, id: u8) -> String {
        format!("zl{}c{id}", self.mark)
    }

    /// Pulls a server's cable out of the bridge. Its own end stays up, so the server is not
    /// notified.
    pub(super) fn pull(&self, id: u8) -> Outcome<()> {
        ip(&["link", "set", &self.cable(id), "nomaster"])
    }

    /// Plugs the cable in again.
    pub(super) fn plug(&self, id: u8) -> Outcome<()> {
        ip(&["link", "set", &self.cable(id), "master", &self.bridge()])
    }

    /// Returns the bytes and packets that a server has sent, with Ethernet headers.
    pub(super) fn sent(&self, id: u8) -> Outcome<(u64, u64)> {
        let figure = |name: &str| {
            let path = format!("/sys/class/net/{}/statistics/{name}", self.cable(id));
            let text = std::fs::read_to_string(&path).map_err(said(&path))?;
            text.trim().parse::<u64>().map_err(said(&path))
        };
        // This end of the cable receives what the server sends.
        Ok((figure("rx_bytes")?, figure("rx_packets")?))
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for id in 1..=self.servers {
            // Parts that were never created cannot be deleted.
            let _ = ip(&["link", "del", &self.cable(id)]);
            let _ = ip(&["netns", "del", &self.namespace(id)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

fn ip(words: &[&str]) -> Outcome<()> {
    let output = Command::new("ip").args(words).output().map_err(said("ip (Debian: iproute2)"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
