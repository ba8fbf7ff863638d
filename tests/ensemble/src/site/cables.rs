//! A network namespace for each server, with a cable that can be pulled. Linux and root only.
//!
//! The relay only carries UDP, between servers that can be told where to find each other. Cables
//! carry any traffic. All cables end in one bridge, which clients use too. So a server that is cut
//! off is cut off from clients as well. A cut way only concerns two servers, so clients go on.

use crate::{Outcome, said};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;

/// A hardware address that no interface has.
const NOWHERE: &str = "02:00:00:00:00:00";

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
        let (namespace, cable, plug) = (self.namespace(id), self.cable(id), self.plug_of(id));
        let inside = |words: &[&str]| self.inside(id, words);
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

    /// Returns the name of a cable's end in the server's namespace.
    fn plug_of(&self, id: u8) -> String {
        format!("{}p", self.cable(id))
    }

    /// Runs `ip` in a server's namespace.
    fn inside(&self, id: u8, words: &[&str]) -> Outcome<()> {
        ip(&[&["-n", self.namespace(id).as_str()], words].concat())
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

    /// Cuts the way from one server to another.
    ///
    /// The sender gets a false hardware address for the receiver. So its packets leave on its cable
    /// and no interface takes them, and the sender's socket sees no error. A rule that drops packets
    /// at the sender would return an error to the socket. Only ARP still passes.
    pub(super) fn cut_way(&self, from: u8, to: u8) -> Outcome<()> {
        let (address, plug) = (self.address(to).to_string(), self.plug_of(from));
        self.inside(from, &["neigh", "replace", &address, "lladdr", NOWHERE, "nud", "permanent", "dev", &plug])
    }

    /// Mends the way. The sender asks for the receiver's hardware address with its next packet.
    pub(super) fn mend_way(&self, from: u8, to: u8) -> Outcome<()> {
        self.inside(from, &["neigh", "del", &self.address(to).to_string(), "dev", &self.plug_of(from)])
    }

    /// Binds a UDP socket at a server's address, in its namespace.
    pub(super) fn bind(&self, id: u8, port: u16) -> Outcome<UdpSocket> {
        let path = PathBuf::from("/run/netns").join(self.namespace(id));
        let namespace = File::open(&path).map_err(said(path.display()))?;
        let address = (self.address(id), port);
        // A thread of its own enters the namespace. The socket stays there when the thread ends.
        let bound = std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            UdpSocket::bind(address)
        });
        bound.join().map_err(|_| "the thread that binds panicked".to_owned())?.map_err(said(format!("{address:?}")))
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
