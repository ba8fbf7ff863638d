//! Ensembles of real processes under faults.
//!
//! The parts: a [`site`] starts the servers of one [`product`] and hurts them; a [`relay`] stands between servers and loses, delays and cuts what
//! they send; a [`load`] writes and reads through all of them and keeps every answer; a [`history`] says whether the answers may be; an
//! [`agreement`] says whether all servers hold the same afterwards; a [`gap`] is how long nobody's write was acknowledged.
//! `tests/ensemble/README.md` says how they are run.
//!
//! Linux only: each server has a loopback address of its own.

pub mod agreement;
pub mod cgroup;
pub mod etcd;
pub mod gap;
pub mod history;
pub mod load;
pub mod population;
pub mod process;
pub mod product;
pub mod relay;
pub mod siege;
pub mod site;
pub mod slow;
pub mod trial;

/// What went wrong, for people: these are tests.
pub type Outcome<T> = Result<T, String>;

/// Why something of the system's did not work.
pub fn said<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}
