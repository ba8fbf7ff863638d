//! The sockets of a process, as the kernel reports them.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A socket that receives from others: a listening TCP or a bound UDP socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Open {
    pub(crate) protocol: &'static str,
    pub(crate) address: SocketAddr,
}

impl Open {
    /// Returns whether other machines can reach it.
    pub(crate) fn is_off_loopback(&self) -> bool {
        !self.address.ip().to_canonical().is_loopback()
    }
}

/// Returns all open sockets of `process`, sorted.
pub(crate) fn open(process: u32) -> Vec<Open> {
    let own = inodes(process);
    let mut found = Vec::new();
    for (table, protocol) in [("tcp", "TCP"), ("tcp6", "TCP"), ("udp", "UDP"), ("udp6", "UDP")] {
        // A kernel without IPv6 has no tcp6 and udp6.
        let text = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        let rows = text.lines().skip(1).map(Row::parse);
        let listening = rows.filter(|row| own.contains(&row.inode) && (protocol == "UDP" || row.is_listening));
        found.extend(listening.map(|row| Open { protocol, address: row.address }));
    }
    found.sort_unstable();
    found
}

/// Returns the inodes of its sockets.
fn inodes(process: u32) -> HashSet<u64> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    // A file may be closed during the scan.
    let links = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    let number = |name: &str| name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    links.filter_map(|link| number(link.to_str()?)).collect()
}

/// A line of the kernel's table, such as `0: 0100007F:0B48 00000000:0000 0A ...`.
///
/// The columns are slot, local address, remote address and state; the tenth is the inode.
struct Row {
    address: SocketAddr,
    is_listening: bool,
    inode: u64,
}

impl Row {
    fn parse(line: &str) -> Self {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = columns[1].split_once(':').unwrap();
        let address = (ip_address(ip), u16::from_str_radix(port, 16).unwrap()).into();
        Self { address, is_listening: columns[3] == "0A", inode: columns[9].parse().unwrap() }
    }
}

/// Parses 32-bit words in memory order, each printed as a number.
fn ip_address(hex: &str) -> IpAddr {
    let word = |at: usize| u32::from_str_radix(&hex[at..at + 8], 16).unwrap().to_ne_bytes();
    match hex.len() {
        8 => Ipv4Addr::from(word(0)).into(),
        _ => {
            let bytes: Vec<u8> = (0..4).flat_map(|place| word(place * 8)).collect();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()).into()
        }
    }
}
