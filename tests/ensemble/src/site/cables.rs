//! A network of its own for each server, with a cable that can be pulled: network namespaces, for root on Linux.
//!
//! The relay knows UDP and servers that can be told where to look for each other; this knows nothing of what it carries. All
//! cables end in one bridge, where clients are too, so whoever is cut off is cut off from them as well.

use crate::{Outcome, said};
use std::net::Ipv4Addr;
use std::process::Command;

/// The bridge, and a namespace for each server; taken down when dropped.
pub(super) struct Cables {
    /// Distinguishes this run from others of this machine.
    mark: u32,
    servers: u8,
}

impl Cables {
    /// Makes them.
    ///
    /// # Errors
    /// When the system does not let us.
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

    /// Of a server, or with 254 of the bridge. 198.18.0.0/15 is for measurements (RFC 2544).
    pub(super) fn address(&self, last: u8) -> Ipv4Addr {
        let [_, _, _, low] = self.mark.to_be_bytes();
        Ipv4Addr::new(198, 18, low, last)
    }

    /// Where its processes run.
    pub(super) fn namespace(&self, id: u8) -> String {
        format!("zl{}-{id}", self.mark)
    }

    fn bridge(&self) -> String {
        format!("zl{}", self.mark)
    }

    fn cable(&self, id: u8) -> String {
        format!("zl{}c{id}", self.mark)
    }

    /// Pulls a server's cable out of the bridge: its own end stays up, so nobody tells it.
    pub(super) fn pull(&self, id: u8) -> Outcome<()> {
        ip(&["link", "set", &self.cable(id), "nomaster"])
    }

    /// Plugs it in again.
    pub(super) fn plug(&self, id: u8) -> Outcome<()> {
        ip(&["link", "set", &self.cable(id), "master", &self.bridge()])
    }

    /// Bytes and packets that a server has sent, headers of Ethernet included.
    pub(super) fn sent(&self, id: u8) -> Outcome<(u64, u64)> {
        let figure = |name: &str| {
            let path = format!("/sys/class/net/{}/statistics/{name}", self.cable(id));
            let text = std::fs::read_to_string(&path).map_err(said(&path))?;
            text.trim().parse::<u64>().map_err(said(&path))
        };
        // What this end of the cable receives.
        Ok((figure("rx_bytes")?, figure("rx_packets")?))
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for id in 1..=self.servers {
            // What was never made need not go.
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
