//! Network code of zoolet: the client port, ZooKeeper's codec, and links between servers.

#[cfg(feature = "port")]
pub mod client_port;
#[cfg(feature = "port")]
pub mod json;
#[cfg(feature = "peer")]
pub mod peer;
#[cfg(feature = "port")]
pub mod wire;
