//! Tests of a client that outlives its sessions.

use crate::drawn::drawn_of;
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::time::Duration;
use zoolet_model::{Path, SessionId, Version};
use zoolet_recipes::{Change, Client, Coordinator, Counter, Election, Error, Hold, Op, Queue, Update};
use zoolet_session::Session;
use zoolet_sim::ensemble::{ClientContext, Next, Opener, Ran, Scenario, run_seeds_of};

const GROUP: Path = Path::from_static("/daemons");
const ELECTION: Path = Path::from_static("/daemon-leader");
const COUNTER: Path = Path::from_static("/daemon-counter");
const SETTING: Path = Path::from_static("/daemon-setting");
const FINISHED: Path = Path::from_static("/daemon-finished");

pub(crate) const DAEMONS: usize = 3;

/// A fact that a daemon records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// A report of the members, over the session with this number; whether it was a gap.
    Reported(u64, bool),
    /// The daemon led with this token.
    Led(i64),
    /// The daemon has seen all members, and this setting.
    Saw(u32),
    /// The client has another session.
    Session(SessionId),
}

/// Waits for the first of several futures.
async fn any<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> T {
    std::future::poll_fn(|cx| {
        for future in &mut futures {
            if let std::task::Poll::Ready(output) = future.as_mut().poll(cx) {
                return std::task::Poll::Ready(output);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// Counts while it leads: each write is one more than the last one, whoever wrote it.
async fn count(context: ClientContext<Told>, term: Hold<Session>) -> Result<(), Error> {
    context.record(Told::Led(term.token().0));
    // An earlier leader may have written what this server has not applied yet.
    term.session().sync().await?;
    loop {
        let value: u64 = match term.session().get(&COUNTER).await {
            Err(error) if error.is_no_node() => 0,
            read => read?.text().and_then(|text| text.parse().ok()).expect("what a leader wrote"),
        };
        term.fenced().put(&COUNTER, (value + 1).to_string()).await?;
        context.sleep(Duration::from_millis(100 + context.below(400))).await;
    }
}

/// A daemon: a member that stands for election, follows the members and a setting, and is finished
/// once it has seen all others and the last setting.
pub(crate) async fn daemon(context: ClientContext<Told>) -> Next {
    let client = Client::with_session(context.opener(), context.session.clone());
    let ended = any(vec![
        Box::pin(keep(&context, &client)),
        Box::pin(lead(&context, &client)),
        Box::pin(follow_sessions(&context, &client)),
        Box::pin(finish(&context, &client)),
    ])
    .await;
    match ended {
        Ok(()) => Next::Done,
        Err(error) => panic!("{error}"),
    }
}

async fn keep(context: &ClientContext<Told>, client: &Client<Opener>) -> Result<(), Error> {
    let mut member = client.member(&GROUP, format!("daemon-{}", context.number), "");
    match member.keep().await? {}
}

async fn lead(context: &ClientContext<Told>, client: &Client<Opener>) -> Result<(), Error> {
    let election = |session| Election::new(session, &ELECTION).described(format!("daemon-{}", context.number));
    client.lead(election, |term| count(context.clone(), term)).await
}

async fn follow_sessions(context: &ClientContext<Told>, client: &Client<Opener>) -> Result<(), Error> {
    let mut events = client.events();
    let mut last = None;
    while let Some(event) = events.next().await {
        if last.replace(event.session) != Some(event.session) {
            context.record(Told::Session(event.session));
        }
    }
    panic!("no session can be opened any more")
}

/// Sees all members and the last setting, says so, and waits until all have.
async fn finish(context: &ClientContext<Told>, client: &Client<Opener>) -> Result<(), Error> {
    let mut members = client.children(&GROUP);
    let mut setting = client.configuration::<u32>(&SETTING, None);
    let mut is_all_there = false;
    if context.number == 0 {
        put(context, client, &SETTING, "1").await?;
    }
    while context.goes_on() || !is_all_there {
        let watching = async {
            let change = match members.next().await {
                Err(error) if error.is_temporary() => return pause(context).await,
                change => change?,
            };
            context.record(Told::Reported(members.session_number(), change == Change::Gap));
            Ok::<_, Error>(())
        };
        match any(vec![Box::pin(watching) as Pin<Box<dyn Future<Output = _>>>, Box::pin(pause(context))]).await {
            Ok(()) => {}
            Err(error) => return Err(error),
        }
        let there = members.recipe().children().count();
        is_all_there = there == DAEMONS;
    }
    if context.number == 0 {
        put(context, client, &SETTING, "2").await?;
    }
    while setting.recipe().value() != Some(&2) {
        match setting.next().await {
            Err(error) if error.is_temporary() => pause(context).await?,
            update => assert!(!matches!(update?, Update::Rejected(_))),
        }
    }
    context.record(Told::Saw(2));
    put(context, client, &FINISHED.join(context.number.to_string())?, "").await?;
    let mut finished = client.children(&FINISHED);
    while finished.recipe().children().count() < DAEMONS {
        if finished.next().await.is_err_and(|error| !error.is_temporary()) {
            panic!("no session can be opened any more");
        }
    }
    Ok(())
}

/// Puts a znode, and again until it is known to be there.
async fn put(context: &ClientContext<Told>, client: &Client<Opener>, path: &Path, data: &str) -> Result<(), Error> {
    client
        .run(async |session: Session| {
            loop {
                match session.put(path, data).await {
                    Err(error) if error.is_temporary() => pause(context).await?,
                    put => return put.map(drop),
                }
            }
        })
        .await
}

async fn pause(context: &ClientContext<Told>) -> Result<(), Error> {
    context.sleep(Duration::from_millis(500)).await;
    Ok(())
}

/// Checks what daemons recorded:
/// - The counter never goes backwards.
/// - After another session, members are reported only after a gap.
/// - Each session is another one.
pub(crate) fn judge_daemons(ran: &Ran<Told>) -> Result<(), String> {
    let mut newest = 0;
    for change in ran.changed()?.iter().filter(|change| change.path == COUNTER.as_str()) {
        let text = change.data.as_deref().and_then(|data| std::str::from_utf8(data).ok());
        let Some(value) = text.and_then(|text| text.parse::<u64>().ok()) else { continue };
        if value < newest {
            return Err(format!("the counter goes from {newest} back to {value}"));
        }
        newest = value;
    }
    let mut sessions: BTreeMap<(usize, u32), (u64, Vec<SessionId>)> = BTreeMap::new();
    for fact in &ran.facts {
        let (last, ids) = sessions.entry((fact.client, fact.life)).or_default();
        match &fact.what {
            Told::Reported(number, is_gap) => {
                if *last != 0 && number > last && !is_gap {
                    return Err(format!("client {} was not told of a gap: {:?}", fact.client, fact.what));
                }
                *last = *number;
            }
            Told::Session(id) if ids.contains(id) => return Err(format!("{id:?} came twice")),
            Told::Session(id) => ids.push(*id),
            Told::Led(_) | Told::Saw(_) => {}
        }
    }
    Ok(())
}

#[test]
fn daemons_go_on_over_all_their_sessions() {
    let statistics = drawn_of(40, |seed| Scenario::drawn(seed, DAEMONS), daemon, judge_daemons);
    assert!(statistics.runs > 0);
}

/// Work over a client is dropped with its session, and begun again with the next.
#[test]
fn run_begins_its_work_again_with_each_session() {
    use zoolet_sim::ensemble::{Fate, SECOND};
    let scenario = |seed| {
        let fates = (1..5).map(|at| (2 * SECOND + at * 8 * SECOND, Fate::Expiry)).collect();
        let mut scenario = Scenario { fates, timeouts_ms: (2000, 4000), ..Scenario::peaceful(seed, 1) };
        scenario.plan.safety_us = 60 * SECOND;
        scenario
    };
    let body = async |context: ClientContext<Told>| {
        let client = Client::with_session(context.opener(), context.session.clone());
        let counted = client
            .run(async |session: Session| {
                context.record(Told::Session(Coordinator::session(&session)));
                let counter = Counter::new(session.clone(), &COUNTER);
                counter.add(1).await?;
                // Never ready by itself while faults go on.
                while context.goes_on() {
                    session.sleep(Duration::from_millis(200)).await;
                }
                counter.value().await
            })
            .await;
        match counted {
            Ok(_) => Next::Done,
            Err(error) => panic!("{error}"),
        }
    };
    run_seeds_of(10, scenario, body, |ran| {
        let sessions = ran.facts.iter().filter(|fact| matches!(fact.what, Told::Session(_))).count();
        judge_daemons(ran)?;
        if sessions < 3 { Err(format!("{sessions} sessions")) } else { Ok(()) }
    });
}

/// A closed client gives no session, and calls that wait for one end.
#[test]
fn closed_client_ends_the_calls_that_wait() {
    use zoolet_recipes::ErrorKind;
    let body = async |context: ClientContext<Told>| {
        let client = Client::with_session(context.opener(), context.session.clone());
        let waiting = {
            let client = client.clone();
            client.close();
            let mut waiting = pin!(client.session());
            std::future::poll_fn(|cx| waiting.as_mut().poll(cx)).await
        };
        assert_eq!(waiting.map_err(|error| error.kind()).err(), Some(ErrorKind::Closed));
        assert_eq!(client.znode(&COUNTER).next().await.map_err(|error| error.kind()), Err(ErrorKind::Closed));
        assert_eq!(client.events().next().await, None);
        Next::Done
    };
    run_seeds_of(1, |seed| Scenario::peaceful(seed, 1), body, |_| Ok(()));
}

/// The replies to the leader's requests are lost again and again: it leads on.
#[test]
fn temporary_error_of_the_work_does_not_cost_the_office() {
    use zoolet_sim::ensemble::{Fate, SECOND};
    let scenario = |seed| {
        let fates = (1..20).map(|at| (2 * SECOND + at * SECOND, Fate::LostReply)).collect();
        let mut scenario = Scenario { fates, ..Scenario::peaceful(seed, 1) };
        scenario.plan.safety_us = 30 * SECOND;
        scenario
    };
    let body = async |context: ClientContext<Told>| {
        let client = Client::with_session(context.opener(), context.session.clone());
        let election = |session| Election::new(session, &ELECTION);
        let work = |term: Hold<Session>| {
            let context = context.clone();
            async move {
                context.record(Told::Led(term.token().0));
                while context.goes_on() {
                    // A plain write, whose reply may be lost.
                    term.fenced()
                        .set(&COUNTER, "1", Version::Any)
                        .await
                        .map(drop)
                        .or_else(|error| if error.is_no_node() { Ok(()) } else { Err(error) })?;
                    context.sleep(Duration::from_millis(50)).await;
                }
                Ok(())
            }
        };
        client.lead(election, work).await.unwrap();
        Next::Done
    };
    run_seeds_of(10, scenario, body, |ran| {
        let mut terms: Vec<i64> = ran.facts.iter().filter_map(|fact| led(&fact.what)).collect();
        let begun = terms.len();
        terms.dedup();
        if terms.len() == 1 && begun > 1 { Ok(()) } else { Err(format!("{begun} begun in the terms {terms:?}")) }
    });
}

/// The work of a leader and on a session ends with an error of the program, begun only once.
#[test]
fn work_ends_with_the_error_of_the_program() {
    let body = async |context: ClientContext<Told>| {
        let client = Client::with_session(context.opener(), context.session.clone());
        let jammed = |error: &Error| error.program_error().is_some_and(|error| error.is::<std::num::ParseIntError>());
        let mut begun = 0;
        let led: Result<(), Error> = client
            .lead(
                |session| Election::new(session, &ELECTION),
                |_| {
                    begun += 1;
                    async { "x".parse::<u64>().map(drop).map_err(Error::other) }
                },
            )
            .await;
        assert!(led.as_ref().is_err_and(jammed), "{led:?}");
        let ran: Result<(), Error> = client
            .run(|_| {
                begun += 1;
                async { "x".parse::<u64>().map(drop).map_err(Error::other) }
            })
            .await;
        assert!(ran.as_ref().is_err_and(jammed), "{ran:?}");
        assert_eq!(begun, 2);
        Next::Done
    };
    run_seeds_of(2, |seed| Scenario::peaceful(seed, 1), body, |_| Ok(()));
}

/// A job that is put again, as in the next session, is in the queue once.
#[test]
fn job_put_with_its_name_is_in_the_queue_once() {
    let body = async |context: ClientContext<Told>| {
        let session = context.session.clone();
        let queue = Queue::new(session.clone(), &Path::from_static("/jobs"));
        let name = Path::from_static("/jobs-put/7");
        let early = queue.put_with("job 7", [Op::create(&name, "")]).await.unwrap_err();
        assert!(early.is_no_node() && early.index() == Some(0), "{early}");
        session.ensure(&Path::from_static("/jobs-put")).await.unwrap();
        queue.put_with("job 7", [Op::create(&name, "")]).await.unwrap();
        let again = queue.put_with("job 7", [Op::create(&name, "")]).await.unwrap_err();
        assert!(again.is_node_exists() && again.path() == Some(name), "{again}");
        assert_eq!(queue.size().await.unwrap(), 1);
        Next::Done
    };
    run_seeds_of(2, |seed| Scenario::peaceful(seed, 1), body, |_| Ok(()));
}

fn led(told: &Told) -> Option<i64> {
    if let Told::Led(token) = told { Some(*token) } else { None }
}

/// Another client's member has the name. The second one waits, also after its first call was
/// dropped, and writes nothing to the first one's znode.
#[test]
fn member_never_writes_to_the_znode_of_another_session() {
    let body = async |context: ClientContext<Told>| {
        let client = Client::with_session(context.opener(), context.session.clone());
        let mut member = client.member(&GROUP, "same", format!("of {}", context.number));
        if context.number == 0 {
            member.set("first").await.unwrap();
            context.sleep(Duration::from_secs(20)).await;
            let znode = context.session.get(&GROUP.join("same").unwrap()).await.unwrap();
            assert_eq!(znode.text(), Some("first"));
            return Next::Done;
        }
        context.sleep(Duration::from_secs(5)).await;
        for content in ["second", "third"] {
            let put = context.session.timeout(Duration::from_secs(3), member.set(content)).await;
            assert!(put.is_none(), "{put:?}");
        }
        // The first client is done, and its session goes in the end.
        member.set("fourth").await.unwrap();
        Next::Done
    };
    run_seeds_of(5, |seed| Scenario::peaceful(seed, 2), body, |_| Ok(()));
}
