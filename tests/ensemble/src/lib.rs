//! Ensembles of real processes under faults.
//!
//! The parts:
//! - [`site`] starts the servers of one [`product`] and applies faults.
//! - [`relay`] stands between servers; it loses, delays and cuts their traffic.
//! - [`load`] writes and reads through all servers and keeps every answer.
//! - [`history`] checks that the answers are linearizable.
//! - [`agreement`] checks that all servers hold the same state afterwards.
//! - [`gap`] measures how long no write was acknowledged.
//! - [`programs`] runs clients in other languages, [`visitors`] more clients in this process.
//! - [`notices`] judges what the clients of surviving servers noticed of a fault.
//! - [`arguments`] serves the programs that measure.
//!
//! `tests/ensemble/README.md` says how to run them.
//!
//! Linux only: each server has a separate loopback address.

pub mod agreement;
pub mod arguments;
pub mod cgroup;
pub mod etcd;
pub mod gap;
pub mod history;
pub mod load;
pub mod notices;
pub mod population;
pub mod process;
pub mod product;
pub mod programs;
pub mod relay;
pub mod siege;
pub mod site;
pub mod slow;
pub mod trial;
pub mod visitors;

/// A result whose error is text for people, because this is a test library.
pub type Outcome<T> = Result<T, String>;

/// Returns a function that prefixes an error with its context.
pub fn said<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}
