//! Plays the same raw frames to Apache ZooKeeper and zoolet, and compares every answer.
//!
//! README.md beside this crate describes it.

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
