//! Whole ensembles in the memory of a test, on virtual time: the servers are the real ones, their disks, links and clocks are simulated.
//!
//! [`Ensemble`] is for tests that say themselves what goes wrong, and when: no port is opened, no thread started, and an hour passes in as long as its
//! events take. [`simulate()`] runs an embedder's own code for several clients while a seed decides what goes wrong, judges all that zoolet promises, and
//! repeats a seed that fails exactly.
//!
//! Only code that takes its time and its chance from the session it works with can be run here: `session.timer(..)`, `session.now()` and
//! `session.random_bits()` of [`Coordinator`](crate::recipes::Coordinator), or those of a [`Seat`], as every recipe does. A future that waits for
//! another runtime, for a thread or for a socket is never ready.
//!
//! ```
//! use zoolet::testing::Ensemble;
//! use zoolet::{CreateOptions, path};
//!
//! let mut ensemble = Ensemble::in_memory(3);
//! let (daemon, observer) = (ensemble.session(), ensemble.session());
//! ensemble.run(daemon.create_with(path!("/alive"), None, &CreateOptions::ephemeral()))?;
//! let leader = ensemble.leader().expect("nothing hinders them");
//! ensemble.kill(leader);
//! assert!(ensemble.run(daemon.sync()).is_err(), "the connection may be gone, but the session moves to another server");
//! # ensemble.advance(std::time::Duration::from_secs(2));
//! ensemble.expire(&daemon);
//! assert_eq!(ensemble.run(observer.exists(path!("/alive")))?, None);
//! # Ok::<(), zoolet::Error>(())
//! ```

mod ensemble;
mod simulate;

pub use ensemble::Ensemble;
pub use simulate::{World, simulate};
/// Something that a client has written down with [`Seat::record`], when, and which client: what judges of a run are given.
///
/// ```
/// use zoolet::testing::{Fact, World, simulate};
///
/// simulate(1, |world: &mut World<&str>| {
///     world.client(|seat| async move { seat.record("here") });
///     world.judge(|facts: &[Fact<&str>]| assert!(facts.iter().any(|fact| fact.client == 0 && fact.what == "here")));
/// });
/// ```
pub use zoolet_sim::ensemble::Fact;
/// One life of one client of a simulated world: its session, the clock of its machine, its chance, and a journal that all clients share. A life ends when
/// its process dies or its session is lost; then another one begins, with the next number.
///
/// ```
/// use std::time::Duration;
/// use zoolet::testing::{Seat, World, simulate};
/// use zoolet::path;
///
/// async fn come_and_go(seat: Seat<u32>) {
///     let began = seat.now();
///     seat.sleep(Duration::from_millis(seat.below(500))).await;
///     if seat.session.exists(path!("/")).await.is_ok() {
///         seat.record(seat.life);
///     }
///     assert!(seat.now() >= began);
/// }
///
/// simulate(2, |world: &mut World<u32>| world.client(come_and_go));
/// ```
pub use zoolet_sim::ensemble::Seat;
/// The number of a server, from 1 on.
///
/// ```
/// use zoolet::testing::{Ensemble, ServerId};
///
/// let ensemble = Ensemble::in_memory(3);
/// assert_eq!(ensemble.servers().first().copied(), ServerId::new(1));
/// ```
pub use zoolet_zab::ServerId;
