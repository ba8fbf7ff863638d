//! Network code of zoolet: the client port, ZooKeeper's codec, and links between servers.

#[cfg(feature = "port")]
pub mod client_port;
#[cfg(feature = "port")]
pub mod json;
#[cfg(feature = "peer")]
pub mod peer;
#[cfg(feature = "port")]
pub mod wire;

/// Converts an IPv4-mapped IPv6 address to IPv4; returns other addresses unchanged.
///
/// A dual-stack socket reports IPv4 peers as IPv4-mapped.
#[cfg(any(feature = "peer", feature = "port"))]
fn canonical(address: std::net::SocketAddr) -> std::net::SocketAddr {
    std::net::SocketAddr::new(address.ip().to_canonical(), address.port())
}
