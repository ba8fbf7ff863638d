//! Plays the same raw frames to Apache ZooKeeper and to zoolet and compares every answer. See README.md beside this crate.

pub mod compare;
pub mod generate;
pub mod intended;
pub mod play;
pub mod random;
pub mod reply;
pub mod script;
pub mod servers;
pub mod shrink;
pub mod value;
pub mod watches;
