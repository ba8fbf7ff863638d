//! Everything of zoolet that moves bytes.

pub mod server;
pub mod wire;
