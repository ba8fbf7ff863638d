//! Drives zoolet's engine on a virtual clock and disk.

pub mod client;
pub mod disk;
pub mod ensemble;
pub mod entries;
pub mod fuzz;
pub mod invariant;
pub mod machine;
pub mod one_server;
pub mod oracle;
pub mod panicking_base;
pub mod reference;
pub mod replica;
pub mod workload;
