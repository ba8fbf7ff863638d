//! Runs an embedder's code in the simulator.

use super::{ClientContext, Fact};
use crate::Client;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use zoolet_sim::ensemble::{Next, Opener, Ran, Scenario, Trace, run_judged};

/// Number of last events shown for a failing seed.
const LINES: usize = 200;

type Life<F> = Box<dyn Fn(ClientContext<F>) -> Pin<Box<dyn Future<Output = Next>>>>;
type Judge<F> = Box<dyn Fn(&[Fact<F>])>;

/// Clients of a simulated run, and its judges. `F` is the type of recorded facts.
///
/// ```
/// use zoolet::testing::{World, simulate};
///
/// simulate(3, |world: &mut World| {
///     world.client(|context| async move { drop(context.session.sync().await) });
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

impl<F: fmt::Debug + 'static> World<F> {
    /// Adds a client that outlives its sessions, and runs `life` with it.
    ///
    /// The client is done when `life` returns. If its process dies, `life` starts again.
    ///
    /// ```
    /// # use zoolet::testing::{World, simulate};
    /// # use zoolet::path;
    /// simulate(4, |world: &mut World| {
    ///     world.daemon(|context, client| async move {
    ///         let mut own = client.member(path!("/sensors"), context.number.to_string(), "");
    ///         drop(own.set("21.5").await);
    ///     });
    /// });
    /// ```
    pub fn daemon<W: Future<Output = ()> + 'static>(
        &mut self,
        life: impl Fn(ClientContext<F>, Client<Opener>) -> W + 'static,
    ) {
        self.clients.push(Box::new(move |context| {
            let client = Client::with_session(context.opener(), context.session.clone());
            let work = life(context, client);
            Box::pin(async move {
                work.await;
                Next::Done
            })
        }));
    }
}

impl<F> World<F> {
    /// Adds a client that runs `life` with its session.
    ///
    /// The client is done when `life` returns and the session is not over. If the session is over,
    /// or the process died, `life` starts again, as a daemon does. In some runs the client lives in
    /// a server's process.
    ///
    /// ```
    /// # use zoolet::testing::{World, simulate};
    /// # use zoolet::{CreateOptions, path};
    /// simulate(4, |world: &mut World| {
    ///     world.client(|context| async move {
    ///         let options = CreateOptions::ephemeral();
    ///         drop(context.session.create_with(path!("/alive"), None, &options).await);
    ///     });
    /// });
    /// ```
    pub fn client<W: Future<Output = ()> + 'static>(&mut self, life: impl Fn(ClientContext<F>) -> W + 'static) {
        self.clients.push(Box::new(move |context| {
            let (session, work) = (context.session.clone(), life(context));
            Box::pin(async move {
                work.await;
                if session.state().is_over() { Next::AnotherSession } else { Next::Done }
            })
        }));
    }

    /// Adds a judge, which checks the recorded facts by assertions.
    ///
    /// It runs when all clients are done and all promises of zoolet were found kept.
    ///
    /// ```
    /// # use zoolet::testing::{World, simulate};
    /// simulate(5, |world: &mut World<u8>| {
    ///     world.client(|context| async move { context.record(7) });
    ///     world.judge(|facts| assert!(facts.iter().all(|fact| fact.what == 7)));
    /// });
    /// ```
    pub fn judge(&mut self, judge: impl Fn(&[Fact<F>]) + 'static) {
        self.judges.push(Box::new(judge));
    }

    /// Disables all faults in this run, to see first whether the code works at all.
    ///
    /// ```
    /// # use zoolet::testing::{World, simulate};
    /// # use zoolet::path;
    /// simulate(6, |world: &mut World| {
    ///     world.in_peace();
    ///     world.client(|context| async move { assert!(context.session.exists(path!("/")).await.is_ok()) });
    /// });
    /// ```
    pub fn in_peace(&mut self) {
        self.is_peaceful = true;
    }
}

/// Runs clients under faults that a seed chooses.
///
/// A run has one to five servers and the clients of `set_up`. For about a minute of virtual time,
/// servers, disks, links and clocks fail. Clients' processes die or stand still, replies are lost,
/// and sessions expire.
///
/// Then all faults end, and all clients must be done within two minutes. Finally the oracles of
/// zoolet's own tests and [`World::judge`] judge all that was observed.
///
/// `set_up` must do the same at each call.
///
/// # Panics
/// A client is not done in time or panics, a judge panics, or zoolet breaks a promise. The run is
/// then repeated, and the message contains the last events before the failure.
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
///             world.client(|context| async move {
///                 context.sleep(Duration::from_millis(context.below(1000))).await;
///                 let counter = Counter::new(context.session.clone(), path!("/count"));
///                 if let Ok(count) = counter.add(1).await {
///                     context.record(count);
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
        run_judged(seed, &scenario, trace, &|context: ClientContext<F>| clients[context.number](context), judge)
    };
    let Err(failure) = run(Trace::off()) else { return };
    let trace = Trace::last(LINES);
    let what = failure.what.join("\n");
    match run(trace.clone()) {
        Err(again) if again.what == failure.what => panic!("{trace}\nseed {seed}: {what}"),
        again => panic!(
            "seed {seed}: {what}\nand when it was repeated: {again:?}. Whatever is run here must take its time and its \
             chance from its context"
        ),
    }
}
