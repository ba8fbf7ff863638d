//! An embedder's own code in the simulator.

use super::{Fact, Seat};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use zoolet_sim::ensemble::{Next, Ran, Scenario, Trace, run_judged};

/// Events of a seed that failed that are shown.
const LINES: usize = 200;

type Life<F> = Box<dyn Fn(Seat<F>) -> Pin<Box<dyn Future<Output = Next>>>>;
type Judge<F> = Box<dyn Fn(&[Fact<F>])>;

/// Who takes part in a simulated run, and who judges it. `F` is what clients write down.
///
/// ```
/// use zoolet::testing::{World, simulate};
///
/// simulate(3, |world: &mut World| {
///     world.client(|seat| async move { drop(seat.session.sync().await) });
/// });
/// ```
pub struct World<F = ()> {
    clients: Vec<Life<F>>,
    judges: Vec<Judge<F>>,
    is_peaceful: bool,
}

impl<F> fmt::Debug for World<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("clients", &self.clients.len()).field("is_peaceful", &self.is_peaceful).finish()
    }
}

impl<F> World<F> {
    /// One more client, which does this with its session. It is done when that returns while the session is not over; with a session that is, or when the process died,
    /// it is begun again, as a daemon is. In some runs the client is in a server's own process.
    ///
    /// ```
    /// # use zoolet::testing::{World, simulate};
    /// # use zoolet::{CreateOptions, path};
    /// simulate(4, |world: &mut World| {
    ///     world.client(|seat| async move {
    ///         let options = CreateOptions::ephemeral();
    ///         drop(seat.session.create_with(path!("/alive"), None, &options).await);
    ///     });
    /// });
    /// ```
    pub fn client<W: Future<Output = ()> + 'static>(&mut self, life: impl Fn(Seat<F>) -> W + 'static) {
        self.clients.push(Box::new(move |seat| {
            let (session, work) = (seat.session.clone(), life(seat));
            Box::pin(async move {
                work.await;
                if session.state().is_over() { Next::AnotherSession } else { Next::Done }
            })
        }));
    }

    /// Judges what clients wrote down, by assertions, when all of them are done and everything that zoolet promises was found kept.
    ///
    /// ```
    /// # use zoolet::testing::{World, simulate};
    /// simulate(5, |world: &mut World<u8>| {
    ///     world.client(|seat| async move { seat.record(7) });
    ///     world.judge(|facts| assert!(facts.iter().all(|fact| fact.what == 7)));
    /// });
    /// ```
    pub fn judge(&mut self, judge: impl Fn(&[Fact<F>]) + 'static) {
        self.judges.push(Box::new(judge));
    }

    /// Nothing goes wrong in this run: for code that is to work at all, first.
    ///
    /// ```
    /// # use zoolet::testing::{World, simulate};
    /// # use zoolet::path;
    /// simulate(6, |world: &mut World| {
    ///     world.in_peace();
    ///     world.client(|seat| async move { assert!(seat.session.exists(path!("/")).await.is_ok()) });
    /// });
    /// ```
    pub fn in_peace(&mut self) {
        self.is_peaceful = true;
    }
}

/// One run, which its seed decides: one to five servers and the clients of `set_up`, for about a minute of virtual time under faults of servers, disks,
/// links and clocks and under what befalls clients: their processes die or stand still, answers get lost, sessions expire. Then everything is healed, all clients must
/// get done within two minutes, and everything seen is judged: by the oracles of zoolet's own tests, and by [`World::judge`].
///
/// `set_up` must say the same each time it is called.
///
/// # Panics
/// When a client does not get done, panics, or a judge does. The run is then repeated, and the last events before the failure are in the message.
///
/// ```
/// use std::time::Duration;
/// use zoolet::recipes::Counter;
/// use zoolet::testing::{World, simulate};
/// use zoolet::path;
///
/// for seed in 0..3 {
///     simulate(seed, |world: &mut World<i64>| {
///         for _ in 0..2 {
///             world.client(|seat| async move {
///                 seat.sleep(Duration::from_millis(seat.below(1000))).await;
///                 if let Ok(count) = Counter::new(seat.session.clone(), path!("/count")).add(1).await {
///                     seat.record(count);
///                 }
///             });
///         }
///         world.judge(|facts| assert!(facts.is_sorted_by_key(|fact| fact.at_us)));
///     });
/// }
/// ```
pub fn simulate<F: fmt::Debug + 'static>(seed: u64, set_up: impl Fn(&mut World<F>)) {
    let run = |trace: Trace| {
        let mut world = World { clients: Vec::new(), judges: Vec::new(), is_peaceful: false };
        set_up(&mut world);
        let World { clients, judges, is_peaceful } = world;
        let scenario = if is_peaceful { Scenario::peaceful } else { Scenario::drawn }(seed, clients.len());
        let judge = |ran: &Ran<F>| {
            judges.iter().for_each(|judge| judge(&ran.facts));
            Ok(())
        };
        run_judged(seed, &scenario, trace, &|seat: Seat<F>| clients[seat.number](seat), judge)
    };
    let Err(failure) = run(Trace::off()) else { return };
    let trace = Trace::last(LINES);
    let what = failure.what.join("\n");
    match run(trace.clone()) {
        Err(again) if again.what == failure.what => panic!("{trace}\nseed {seed}: {what}"),
        again => panic!(
            "seed {seed}: {what}\nand when it was repeated: {again:?}. Whatever is run here must take its time and its chance from its seat"
        ),
    }
}
