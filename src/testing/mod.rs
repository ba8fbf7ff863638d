//! Whole ensembles in a test's memory, on virtual time. The servers are real; their disks, links
//! and clocks are simulated.
//!
//! [`MemoryEnsemble`] is for tests that choose each fault and its moment. It opens no port and starts no
//! thread. An hour of virtual time takes only as long as computing its events. [`simulate()`] runs
//! an embedder's code for several clients while a seed chooses the faults. It checks all that
//! zoolet promises, and repeats a failing seed exactly.
//!
//! Only code that takes time and randomness from its session can run here, as every recipe does.
//! The calls are `session.timer(..)`, `session.now()` and `session.random_bits()` of
//! [`Coordinator`](crate::recipes::Coordinator), or those of a [`ClientContext`]. A future that
//! waits for another runtime, for a thread or for a socket is never ready.
//!
//! ```
//! use zoolet::testing::MemoryEnsemble;
//! use zoolet::{CreateOptions, path};
//!
//! let mut ensemble = MemoryEnsemble::in_memory(3);
//! let (daemon, observer) = (ensemble.session(), ensemble.session());
//! ensemble.run(daemon.create_with(path!("/alive"), None, &CreateOptions::ephemeral()))?;
//! let leader = ensemble.leader().expect("nothing hinders them");
//! ensemble.kill(leader);
//! ensemble.run(daemon.sync())?; // The session's server has survived, and waits for the next leader.
//! ensemble.expire(&daemon);
//! assert_eq!(ensemble.run(observer.exists(path!("/alive")))?, None);
//! # Ok::<(), zoolet::Error>(())
//! ```

mod memory_ensemble;
mod simulate;

pub use memory_ensemble::MemoryEnsemble;
pub use simulate::{World, simulate};
/// One life of a simulated client: its session, clock, randomness and journal.
///
/// The clock is that of the client's machine. All clients share one journal. A life ends when the
/// client's process dies or its session is lost. Then another life begins, with the next number.
///
/// ```
/// use std::time::Duration;
/// use zoolet::testing::{ClientContext, World, simulate};
/// use zoolet::path;
///
/// async fn come_and_go(context: ClientContext<u32>) {
///     let began = context.now();
///     context.sleep(Duration::from_millis(context.below(500))).await;
///     if context.session.exists(path!("/")).await.is_ok() {
///         context.record(context.life);
///     }
///     assert!(context.now() >= began);
/// }
///
/// simulate(2, |world: &mut World<u32>| world.client(come_and_go));
/// ```
pub use zoolet_sim::ensemble::ClientContext;
/// An entry that a client made with [`ClientContext::record`], with its time and its client.
///
/// Judges of a run receive all entries.
///
/// ```
/// use zoolet::testing::{Fact, World, simulate};
///
/// simulate(1, |world: &mut World<&str>| {
///     world.client(|context| async move { context.record("here") });
///     world.judge(|facts: &[Fact<&str>]| assert!(facts.iter().any(|fact| fact.client == 0 && fact.what == "here")));
/// });
/// ```
pub use zoolet_sim::ensemble::Fact;
/// Opens the sessions of a client of these ensembles, for a [`Client`](crate::Client).
pub use zoolet_sim::ensemble::Opener;
/// Number of a server, from 1.
///
/// ```
/// use zoolet::testing::{MemoryEnsemble, ServerId};
///
/// let ensemble = MemoryEnsemble::in_memory(3);
/// assert_eq!(ensemble.servers().first().copied(), ServerId::new(1));
/// ```
pub use zoolet_zab::ServerId;
