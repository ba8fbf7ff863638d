//! Tests of work that pauses in doubt.

use crate::drawn::{drawn_of, some_stay_away};
use crate::exclusion::{Noted, again_and_again, break_some, judge_drawn, judge_paused, write};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;
use zoolet_model::Path;
use zoolet_recipes::{Coordinator, Election, Error, ErrorKind, Grant, GrantEnd, Hold, Holding, Lock, Mode};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Fate, Next, Ran, SECOND, Scenario, run_seeds_of};

const PARENT: &str = "/locks/paused";
const ELECTION: &str = "/elections/paused";

/// Workers of [`broken`]; one more client breaks their grants.
const WORKERS: usize = 2;

/// Acts without asking whether the grant is held: the pause has to see to it.
async fn acts(context: &ClientContext<Noted>, hold: Hold<Session>, rounds: u64) {
    let token = hold.token().0;
    for _ in 0..rounds {
        context.record(Noted::Acted(token, Mode::Exclusive));
        write(context, token, &hold.fenced()).await;
        context.record(Noted::Acted(token, Mode::Exclusive));
        let safe_until = hold.safe_until();
        if !safe_until.has_passed(context.now()) {
            context.record(Noted::Safe(token, context.true_us(safe_until.instant())));
        }
        context.sleep(Duration::from_millis(context.below(300))).await;
    }
}

/// Does [`acts`] under a grant, by one of the two ways, and notes each doubt.
async fn work(context: &ClientContext<Noted>, grant: &Grant<Session>, rounds: u64) {
    let token = grant.token().0;
    let mut holdings = grant.holdings();
    let noting = async {
        while let Some(now) = holdings.next().await {
            if matches!(now, Holding::Doubtful { .. }) {
                context.record(Noted::Doubted(token));
            }
        }
        std::future::pending::<()>().await
    };
    let way = context.below(3);
    let working = async {
        let ended = match way {
            0 => grant.hold_restarting(|hold| acts(context, hold, rounds)).await,
            1 => grant.hold_for(|hold| acts(context, hold, rounds)).await,
            _ => run_again_and_again(context, grant, rounds).await,
        };
        match ended.map_err(|error| error.kind()) {
            Ok(()) => {}
            Err(ErrorKind::GrantLost(GrantEnd::Session)) if !context.session.state().is_over() => {
                context.record(Noted::Wrong("the grant ended with a session that lives".to_owned()));
            }
            Err(ErrorKind::GrantLost(_)) => {}
            Err(other) => context.record(Noted::Wrong(format!("work ended with {other:?}"))),
        }
    };
    let (mut noting, mut working) = (pin!(noting), pin!(working));
    // Polled first, so that a doubt is noted before the work goes on.
    std::future::poll_fn(|cx| {
        let _ = noting.as_mut().poll(cx);
        working.as_mut().poll(cx)
    })
    .await;
}

/// Runs work that ends in doubt, and runs it again as soon as the session is connected.
async fn run_again_and_again(context: &ClientContext<Noted>, grant: &Grant<Session>, rounds: u64) -> Result<(), Error> {
    loop {
        match grant.run(acts(context, grant.handle(), rounds)).await {
            Err(error) if error.kind() == ErrorKind::Doubtful => {
                if context.session.connected().await.is_err() {
                    return Err(ErrorKind::GrantLost(GrantEnd::Session).into());
                }
                context.sleep(Duration::from_millis(20)).await;
            }
            ended => return ended,
        }
    }
}

/// Polls `work`, but not at all while its task naps now and then, as on a busy executor.
async fn napping(context: &ClientContext<Noted>, token: i64, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    loop {
        let mut awake = pin!(context.sleep(Duration::from_millis(context.below(4000))));
        let ended = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => awake.as_mut().poll(cx).map(|()| false),
        })
        .await;
        if ended {
            return;
        }
        if !context.goes_on() {
            continue;
        }
        let gaps = context.session.gaps();
        context.sleep(Duration::from_millis(context.below(8000))).await;
        if context.session.gaps() != gaps {
            context.record(Noted::Woke(token));
        }
    }
}

async fn cycle(context: ClientContext<Noted>) -> Next {
    let lock = Lock::new(context.session.clone(), &Path::from_static(PARENT));
    again_and_again(&context, 6, &[PARENT], async || {
        let grant = lock.acquire().await?;
        context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
        context.record(Noted::Placed(grant.token().0, grant.path().to_string()));
        work(&context, &grant, context.below(20)).await;
        context.record(Noted::Released(grant.token().0));
        Ok(true)
    })
    .await
}

#[test]
fn work_paused_in_doubt_never_overlaps_the_next_holders() {
    drawn_of(40, |seed| some_stay_away(seed, 3), cycle, judge_drawn);
}

/// Returns a scenario with many cuts that sessions survive.
pub(crate) fn cut_often(seed: u64) -> Scenario {
    let mut scenario = Scenario::peaceful(seed, WORKERS + 1);
    scenario.timeouts_ms = (4000, 6000);
    scenario.homes = vec![None; WORKERS + 1];
    let cut = |at: u64| Fate::Cut(2 * SECOND + (seed * 5 + at * 11) % 16 * SECOND / 4);
    scenario.fates = (0..18).map(|at| (2 * SECOND + at * 2 * SECOND, cut(at))).collect();
    scenario.plan.safety_us = 40 * SECOND;
    scenario
}

/// Works under a lock, except that the last client breaks grants.
pub(crate) async fn broken(context: ClientContext<Noted>) -> Next {
    if context.number == WORKERS {
        return break_some(&context, &[PARENT]).await;
    }
    let lock = Lock::new(context.session.clone(), &Path::from_static(PARENT));
    again_and_again(&context, 2, &[PARENT], async || {
        let grant = match lock.acquire().await {
            Err(error) if error.kind() == ErrorKind::Broken => return Ok(false),
            acquired => acquired?,
        };
        context.record(Noted::Granted(grant.token().0, Mode::Exclusive));
        context.record(Noted::Placed(grant.token().0, grant.path().to_string()));
        let token = grant.token().0;
        match context.below(2) {
            0 => work(&context, &grant, 100).await,
            // Nothing else polls the grant, so nothing notes a doubt.
            _ => {
                let working = async {
                    let _ = grant.hold_for(|hold| acts(&context, hold, 100)).await;
                };
                napping(&context, token, working).await;
            }
        }
        context.record(Noted::Released(grant.token().0));
        Ok(true)
    })
    .await
}

/// How often work went on after a doubt.
fn resumed(ran: &Ran<Noted>) -> usize {
    let acts_after = |at: usize, token: i64| {
        ran.facts[at..].iter().any(|fact| matches!(fact.what, Noted::Acted(acted, _) if acted == token))
    };
    let doubts = ran.facts.iter().enumerate();
    doubts.filter(|(at, fact)| matches!(fact.what, Noted::Doubted(token) if acts_after(*at, token))).count()
}

#[test]
fn work_goes_on_after_a_doubt_only_if_its_grant_still_stands() {
    let all = AtomicUsize::new(0);
    let statistics = run_seeds_of(40, cut_often, broken, |ran| {
        all.fetch_add(resumed(ran), Relaxed);
        judge_paused(ran)
    });
    let all = all.load(Relaxed) as u64;
    assert!(all > statistics.runs / 4, "work went on {all} times");
}

#[test]
fn handles_to_a_grant_that_was_given_up_say_that_it_is_lost() {
    let body = async |context: ClientContext<Noted>| {
        let lock = Lock::new(context.session.clone(), &Path::from_static(PARENT));
        let grant = lock.acquire().await.unwrap();
        let hold = grant.handle();
        let mut instants = hold.safe_instants();
        let first = grant.hold_for(|_| async { instants.next().await }).await.unwrap();
        assert!(first.is_some_and(|safe_until| !safe_until.has_passed(context.now())));
        drop(grant);
        assert_eq!(hold.holding(), Holding::Lost);
        assert!(hold.safe_until().has_passed(context.now()), "no hardware may act");
        assert_eq!(instants.next().await, None);
        assert!(hold.fenced().put(&Path::from_static("/late"), "").await.unwrap_err().is_grant_lost());
        Next::Done
    };
    run_seeds_of(3, |seed| Scenario::peaceful(seed, 1), body, |_| Ok(()));
}

/// Leads until the end of the faults; [`Election::lead`] stands again after each loss.
async fn lead(context: ClientContext<Noted>) -> Next {
    let election = Election::new(context.session.clone(), &Path::from_static(ELECTION));
    let led = election
        .lead(|hold| {
            let context = context.clone();
            async move {
                context.record(Noted::Granted(hold.token().0, Mode::Exclusive));
                context.record(Noted::Placed(hold.token().0, hold.path().to_string()));
                acts(&context, hold.clone(), context.below(30)).await;
                context.record(Noted::Released(hold.token().0));
                context.goes_on()
            }
        })
        .await;
    match led.map_err(|error| error.kind()) {
        Ok(_) if !context.session.state().is_over() => Next::Done,
        Ok(_) | Err(ErrorKind::GrantLost(GrantEnd::Session) | ErrorKind::SessionLost(_)) => Next::AnotherSession,
        Err(_) if context.session.state().is_over() => Next::AnotherSession,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn candidates_that_lead_again_and_again_never_lead_at_once() {
    drawn_of(40, |seed| some_stay_away(seed, 3), lead, crate::exclusion::judge);
}

/// The daemon leads, and the ensemble elects another server leader: it leads on.
#[test]
fn work_survives_the_loss_of_the_server_leader() {
    use zoolet_sim::ensemble::{Kind, Mix};
    let scenario = |seed| {
        let mut scenario = Scenario::peaceful(seed, 1);
        scenario.plan.voters = 3;
        scenario.plan.observers = 0;
        scenario.timeouts_ms = (4000, 16_000);
        scenario.plan.mix = Mix::of(&[Kind::Crash]);
        scenario.plan.faults = (4, 8);
        scenario.plan.safety_us = 40 * SECOND;
        scenario.homes = vec![None];
        scenario
    };
    let body = async |context: ClientContext<Noted>| {
        let lock = Lock::new(context.session.clone(), &Path::from_static(PARENT));
        let Ok(grant) = lock.acquire().await else { return Next::AnotherSession };
        let rounds = async |hold: Hold<Session>| {
            while context.goes_on() {
                hold.session().timer(context.now() + Duration::from_millis(100)).await;
            }
        };
        match grant.hold_for(rounds).await.map_err(|error| error.kind()) {
            Ok(()) => Next::Done,
            Err(_) if context.session.state().is_over() => Next::AnotherSession,
            Err(other) => {
                context.record(Noted::Wrong(format!("{other:?} although the session lives")));
                Next::Done
            }
        }
    };
    run_seeds_of(20, scenario, body, |ran| {
        let wrong = ran.facts.iter().find(|fact| matches!(fact.what, Noted::Wrong(_)));
        wrong.map_or(Ok(()), |fact| Err(format!("{fact:?}")))
    });
}
