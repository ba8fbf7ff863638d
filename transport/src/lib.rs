//! Everything of zoolet that moves bytes.

#[cfg(feature = "port")]
pub mod json;
#[cfg(feature = "peer")]
pub mod peer;
#[cfg(feature = "port")]
pub mod server;
#[cfg(feature = "port")]
pub mod wire;
