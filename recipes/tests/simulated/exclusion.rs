//! Facts that clients record about grants, and the rules for them.

use crate::apart::has_no_answer;
use crate::drawn::promises_time;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use zoolet_model::{EventKind, Path, SessionId, Version};
use zoolet_recipes::{Contention, Coordinator, Error, ErrorKind, FencedWriter, Grant, Holding, Instant, Mode};
use zoolet_sim::ensemble::{ClientContext, Next, Ran, Scenario};
use zoolet_sim::oracle::Changed;

/// Time within which an undisturbed session hears of a deletion, microseconds.
const HEARS_WITHIN_US: u64 = 1_000_000;
/// Register for fenced writers with an exclusive grant; they write their token.
pub(crate) const REGISTER: Path = Path::from_static("/register");
/// Register for fenced writers with a shared grant.
const SHARED: Path = Path::from_static("/shared");

/// A fact about a grant. An `i64` alone, or the first one, is the grant's token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// The grant was given.
    Granted(i64, Mode),
    /// The holder found the grant held, at this moment.
    Acted(i64, Mode),
    /// A fenced write of the holder succeeded with this zxid.
    Wrote(i64, i64),
    /// The holder was told that the grant is safe until this time, in microseconds of the run.
    ///
    /// Until then no other client may have a conflicting grant.
    Safe(i64, u64),
    /// The holder was told that the grant is in doubt.
    Doubted(i64),
    /// The holder's work was not polled for a while, in which its session had a gap.
    Woke(i64),
    /// The owner asked for its grant again at this time of the run, in microseconds, and got it.
    Regained(i64, u64),
    /// The holder is about to give the grant up.
    Released(i64),
    /// This znode of the client's session was left behind.
    Leaked(String),
    /// Path of the grant's znode.
    Placed(i64, String),
    /// The client is about to delete this place of another client.
    Breaking(String),
    /// The client of this session was told that this place, which it was about to delete, was given
    /// up.
    ToldReleased(String, SessionId),
    /// The client is about to take away this place of another client safely.
    ///
    /// The place goes only after every instant that its holder was told has passed.
    Withdrawing(String),
    /// An observer was told the token of the leader in office.
    Saw(Option<i64>),
    /// The holder leads, and the office is vacant.
    NotInOffice(i64),
    /// A violation of the recipe's documentation.
    Wrong(String),
}

/// Holds a grant for a while and acts on it, then gives it up.
pub(crate) async fn hold<C: Coordinator>(context: &ClientContext<Noted>, grant: Grant<C>, mode: Mode) {
    act(context, &grant, mode).await;
    give_up(context, grant).await;
}

/// Acts on a grant a few times while it is held.
///
/// Half of the holders write even if they know that the grant is lost: fencing has to stop them.
pub(crate) async fn act<C: Coordinator>(context: &ClientContext<Noted>, grant: &Grant<C>, mode: Mode) {
    let token = grant.token().0;
    context.record(Noted::Granted(token, mode));
    context.record(Noted::Placed(token, grant.path().to_string()));
    let is_bold = context.below(2) == 0;
    for _ in 0..1 + context.below(4) {
        let is_held = note_holding(context, token, mode, grant.holding());
        if is_held || is_bold {
            write_as(context, token, mode, &grant.fenced()).await;
        }
        context.sleep(Duration::from_millis(context.below(400))).await;
    }
}

/// Records the state of a grant, and returns whether it is held.
pub(crate) fn note_holding(context: &ClientContext<Noted>, token: i64, mode: Mode, holding: Holding) -> bool {
    if holding == Holding::Held {
        context.record(Noted::Acted(token, mode));
    }
    let safe_until = match holding {
        Holding::Held => context.session.safe_until(),
        Holding::Doubtful { safe_until } => safe_until,
        Holding::Lost => Instant::START,
    };
    if context.now() < safe_until {
        context.record(Noted::Safe(token, context.true_us(safe_until)));
    }
    holding == Holding::Held
}

/// Gives a grant up, by a drop or a release.
pub(crate) async fn give_up<C: Coordinator>(context: &ClientContext<Noted>, grant: Grant<C>) {
    context.record(Noted::Released(grant.token().0));
    match context.below(3) {
        0 => drop(grant),
        _ => {
            let _ = grant.release().await;
        }
    }
}

/// Writes the token to [`REGISTER`], fenced.
pub(crate) async fn write<C: Coordinator>(context: &ClientContext<Noted>, token: i64, fenced: &FencedWriter<C>) {
    write_as(context, token, Mode::Exclusive, fenced).await;
}

async fn write_as<C: Coordinator>(context: &ClientContext<Noted>, token: i64, mode: Mode, fenced: &FencedWriter<C>) {
    let register = if mode == Mode::Exclusive { &REGISTER } else { &SHARED };
    match fenced.set(register, token.to_string(), Version::Any).await {
        Ok(stat) => context.record(Noted::Wrote(token, stat.mzxid)),
        Err(error) if error.is_no_node() => {
            let _ = fenced.create(register, token.to_string()).await;
        }
        Err(_) => {}
    }
}

/// Plays an operator that breaks and revokes places in these lines, while faults go on.
pub(crate) async fn break_some(context: &ClientContext<Noted>, lines: &[&'static str]) -> Next {
    while context.goes_on() {
        context.sleep(Duration::from_millis(context.below(1500))).await;
        if let Some(next) = is_over(context) {
            return next;
        }
        let path = Path::from_static(lines[context.below(lines.len() as u64) as usize]);
        let line = Contention::new(context.session.clone(), &path);
        let Ok(contenders) = line.contenders().await else { continue };
        // Chooses the holder in two of three cases, and any contender otherwise.
        let chosen = if context.below(3) > 0 { 0 } else { context.below(contenders.len() as u64) as usize };
        let Some(chosen) = contenders.get(chosen) else { continue };
        context.record(Noted::Breaking(chosen.path.to_string()));
        let patience = Duration::from_millis(context.below(800));
        let _ = match context.below(2) {
            0 => line.break_grant(chosen, "drawn").await,
            _ => line.revoke(chosen, patience, "drawn").await,
        };
    }
    Next::Done
}

/// Repeats `attempt` until at least `least` attempts succeeded and the faults are over.
///
/// An attempt returns whether it succeeded. At the end, no znode of this session may be left below
/// `parents`.
pub(crate) async fn again_and_again(
    context: &ClientContext<Noted>,
    least: u32,
    parents: &[&'static str],
    mut attempt: impl AsyncFnMut() -> Result<bool, Error>,
) -> Next {
    let mut had = 0;
    while had < least || context.goes_on() {
        context.sleep(Duration::from_millis(context.below(500))).await;
        match attempt().await {
            Ok(has) => had += u32::from(has),
            Err(error) if has_no_answer(&error) => {}
            Err(error) => panic!("{error}"),
        }
        if let Some(next) = is_over(context) {
            return next;
        }
    }
    for parent in parents {
        note_leaks(context, parent).await;
    }
    Next::Done
}

/// Turns [`ErrorKind::Broken`] into `None`: an attempt whose place was broken has no grant.
pub(crate) fn unless_broken<T>(attempt: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    attempt.or_else(|error| if error.kind() == ErrorKind::Broken { Ok(None) } else { Err(error) })
}

/// Returns the output of a future, or `None` if it takes longer than `patience`.
pub(crate) async fn within<T>(
    context: &ClientContext<Noted>,
    patience: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let (mut future, mut timer) = (pin!(future), pin!(context.sleep(patience)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Waits until this time of the run, in seconds. Clients take turns by it.
pub(crate) async fn until(context: &ClientContext<Noted>, at_s: f64) {
    let now_us = context.true_us(context.now());
    context.sleep(Duration::from_micros(((at_s * 1e6) as u64).saturating_sub(now_us))).await;
}

/// Records every znode of this session that stays below `parent`.
///
/// Errands delete the znodes of dropped attempts in the background, so the check waits for a while.
pub(crate) async fn note_leaks(context: &ClientContext<Noted>, parent: &'static str) {
    let mut left = Vec::new();
    // A session retries failed errands with its next ping, and pings only while it sends no
    // requests. So the pauses between the looks grow.
    for pause_ms in [100, 200, 400, 800, 1600, 3200, 6000, 6000, 6000] {
        match own_below(context, parent).await {
            Ok(own) if own.is_empty() => return,
            Ok(own) => left = own,
            Err(_) if context.session.state().is_over() => return,
            Err(_) => {}
        }
        context.sleep(Duration::from_millis(pause_ms)).await;
    }
    left.into_iter().for_each(|path| context.record(Noted::Leaked(path)));
}

async fn own_below(context: &ClientContext<Noted>, parent: &'static str) -> Result<Vec<String>, Error> {
    let session = &context.session;
    let names = match session.children(&Path::from_static(parent)).await {
        Err(error) if error.is_no_node() => return Ok(Vec::new()),
        names => names?,
    };
    let mut own = Vec::new();
    for name in names.iter() {
        let path = Path::new(format!("{}/{name}", parent.trim_end_matches('/'))).unwrap();
        if session.exists(&path).await?.is_some_and(|stat| stat.ephemeral_owner == Coordinator::session(session).0) {
            own.push(path.to_string());
        }
    }
    Ok(own)
}

/// Returns [`Next::AnotherSession`] if the session is over.
pub(crate) fn is_over(context: &ClientContext<Noted>) -> Option<Next> {
    context.session.state().is_over().then_some(Next::AnotherSession)
}

/// A grant, as the tree and its holder tell it. Times are in microseconds of the run.
struct Granted {
    token: i64,
    mode: Mode,
    at_us: u64,
    client: usize,
    life: u32,
    /// Path of its znode.
    path: String,
    /// Time at which an operator was about to break it.
    broken_us: Option<u64>,
    /// Time at which an operator was about to withdraw it.
    withdrawn_us: Option<u64>,
    /// Time at which its holder was about to give it up.
    released_us: Option<u64>,
    /// The deletion of its znode.
    end: Option<Changed>,
    /// Time at which its holder became a reader.
    shared_us: Option<u64>,
}

impl Granted {
    fn minds(&self, other: &Self) -> bool {
        // Another token of the same client at the same path is the same grant, downgraded. The path
        // alone does not tell: all passages of a gate have one path.
        let is_same = (&self.path, self.client, self.life) == (&other.path, other.client, other.life);
        !is_same && (self.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
    }

    /// Whether this grant, downgraded by then, may coexist with the shared grant `other`.
    fn shares_with(&self, other: &Self) -> bool {
        other.mode == Mode::Shared && self.shared_us.is_some_and(|shared_us| shared_us <= other.at_us)
    }

    /// Whether both places stand in the tree when `other` is granted.
    fn stands_beside(&self, other: &Self) -> bool {
        let stands = |grant: &Self| grant.end.as_ref().is_none_or(|end| end.at_us > other.at_us);
        // A client that learns of its grant late may have lost its place by then.
        stands(self) && stands(other)
    }
}

/// Collects the grants from the tree and the facts, in the order in which holders learned of them.
fn grants(ran: &Ran<Noted>, changes: &[Changed]) -> Result<Vec<Granted>, String> {
    let placed: BTreeMap<i64, &String> = ran
        .facts
        .iter()
        .filter_map(|fact| if let Noted::Placed(token, path) = &fact.what { Some((*token, path)) } else { None })
        .collect();
    let first_us =
        |is_it: &dyn Fn(&Noted) -> bool| ran.facts.iter().find(|fact| is_it(&fact.what)).map(|fact| fact.at_us);
    let mut grants: Vec<Granted> = Vec::new();
    for fact in &ran.facts {
        let Noted::Granted(token, mode) = fact.what else { continue };
        if let Some(other) = grants.iter().find(|other| other.token == token) {
            // The same owner took it again, or became a reader.
            if (other.client, other.life) == (fact.client, fact.life) {
                continue;
            }
            return Err(format!("clients {} and {} have the same token {token}", other.client, fact.client));
        }
        let made = || changes.iter().find(|change| change.zxid == token && change.kind == EventKind::NodeCreated);
        let path = placed.get(&token).map(|path| (*path).clone()).or_else(|| made().map(|change| change.path.clone()));
        let path = path.ok_or_else(|| format!("{token} is the token of nothing"))?;
        let mut later = changes.iter().filter(|change| change.zxid > token && change.path == path);
        let is_shared = |change: &Changed| change.data.as_ref().is_some_and(|data| data.starts_with(b"downgraded"));
        let shares = later.clone().find(|change| is_shared(change)).filter(|_| mode == Mode::Exclusive);
        grants.push(Granted {
            token,
            mode,
            at_us: fact.at_us,
            client: fact.client,
            life: fact.life,
            broken_us: first_us(&|what| matches!(what, Noted::Breaking(broken) if *broken == path)),
            withdrawn_us: first_us(&|what| matches!(what, Noted::Withdrawing(withdrawn) if *withdrawn == path)),
            released_us: first_us(&|what| *what == Noted::Released(token)),
            end: later.find(|change| change.kind == EventKind::NodeDeleted).cloned(),
            shared_us: shares.map(|change| change.at_us),
            path,
        });
    }
    // A downgraded grant has another token at the same path, and is released under that token.
    let released: Vec<_> = grants.iter().map(|grant| (grant.path.clone(), grant.token, grant.released_us)).collect();
    for grant in &mut grants {
        let theirs = released.iter().filter(|(path, token, _)| *path == grant.path && *token >= grant.token);
        grant.released_us = theirs.filter_map(|(.., released_us)| *released_us).min();
    }
    Ok(grants)
}

/// Checks the rules for grants:
/// - No grant is given while a conflicting one stands in the tree.
/// - While another client has a later, conflicting grant, no client acts on its own grant or is
///   told that it is safe. A broken grant is exempt.
/// - Fenced writes come before the end of their grant, and in token order.
/// - Observers see later terms only.
/// - No znode is left behind.
pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let changes = ran.changed()?;
    let grants = grants(ran, &changes)?;
    stand_alone(&grants)?;
    are_fenced(ran, &grants, &changes)?;
    if promises_time(ran) {
        know_how_they_are(ran, &grants, &changes)?;
    }
    nothing_else_is_wrong(ran, &grants)
}

/// Checks [`judge`]'s rules, and that no grant of a living session ends by itself.
///
/// It may end only after it was given up, broken or withdrawn.
pub(crate) fn judge_drawn(ran: &Ran<Noted>) -> Result<(), String> {
    judge(ran)?;
    are_kept(&grants(ran, &ran.changed()?)?)
}

fn are_kept(grants: &[Granted]) -> Result<(), String> {
    for grant in grants {
        let Some(end) = grant.end.as_ref().filter(|end| !end.is_end) else { continue };
        let until_us = grant.released_us.into_iter().chain(grant.broken_us).chain(grant.withdrawn_us).min();
        if until_us.is_none_or(|until_us| until_us > end.at_us) {
            return Err(format!(
                "{} of client {} is gone, and nobody has given it up: {end:?}",
                grant.path, grant.client
            ));
        }
    }
    Ok(())
}

/// Checks that conflicting grants never stand together, whatever their holders know.
fn stand_alone(grants: &[Granted]) -> Result<(), String> {
    for (at, grant) in grants.iter().enumerate() {
        let stands = |other: &&Granted| other.minds(grant) && other.stands_beside(grant) && !other.shares_with(grant);
        if let Some(other) = grants[..at].iter().find(stands) {
            return Err(format!(
                "client {} is granted {} at {} us while {} of client {} stands until {:?}",
                grant.client, grant.token, grant.at_us, other.token, other.client, other.end
            ));
        }
    }
    Ok(())
}

/// Returns for each grant how many others stood in the tree when it was given.
pub(crate) fn beside(ran: &Ran<Noted>) -> Result<Vec<usize>, String> {
    let grants = grants(ran, &ran.changed()?)?;
    let others = |at: usize| grants[..at].iter().filter(|other| other.stands_beside(&grants[at])).count();
    Ok((0..grants.len()).map(others).collect())
}

/// Checks [`judge`]'s rules, and that work which was paused goes on only if the grant still stood.
///
/// A grant whose znode was deleted before a doubt is never held after it. After a gap that the holder
/// slept through, the same holds for a znode that was deleted a while before the holder woke: by
/// then its session has heard of every deletion that is later than the gap.
pub(crate) fn judge_paused(ran: &Ran<Noted>) -> Result<(), String> {
    judge(ran)?;
    let grants = grants(ran, &ran.changed()?)?;
    for (at, fact) in ran.facts.iter().enumerate() {
        let Noted::Acted(token, _) = fact.what else { continue };
        let last = |what: &Noted| ran.facts[..at].iter().rev().find(|before| before.what == *what);
        let doubted_us = last(&Noted::Doubted(token)).map(|doubted| doubted.at_us);
        let woke_us = last(&Noted::Woke(token)).map(|woke| woke.at_us.saturating_sub(HEARS_WITHIN_US));
        let Some(known_us) = doubted_us.max(woke_us) else { continue };
        let grant = grants.iter().find(|grant| grant.token == token);
        if let Some(end) = grant.and_then(|grant| grant.end.as_ref()).filter(|end| end.at_us < known_us) {
            return Err(format!(
                "client {} acts at {} us with token {token}, checked since {known_us} us and gone since {} us",
                fact.client, fact.at_us, end.at_us
            ));
        }
    }
    Ok(())
}

/// Checks the rules for grants that do not depend on conflicts.
///
/// Fenced writes come before the end of their grant, no grant of a living session ends by itself,
/// and nothing is left behind.
pub(crate) fn judge_fences(ran: &Ran<Noted>) -> Result<(), String> {
    let changes = ran.changed()?;
    let grants = grants(ran, &changes)?;
    are_fenced(ran, &grants, &changes)?;
    are_kept(&grants)?;
    nothing_else_is_wrong(ran, &grants)
}

/// Checks the fenced writes in the tree, whether or not their writers learned of them.
fn are_fenced(ran: &Ran<Noted>, grants: &[Granted], changes: &[Changed]) -> Result<(), String> {
    let token = |change: &Changed| std::str::from_utf8(change.data.as_deref()?).ok()?.parse::<i64>().ok();
    let mut newest = 0;
    for change in changes {
        let is_alone = change.path == REGISTER.as_str();
        let (true, Some(token)) = (is_alone || change.path == SHARED.as_str(), token(change)) else { continue };
        let grant = grants.iter().find(|grant| grant.token == token).ok_or_else(|| format!("nobody had {token}"))?;
        if let Some(end) = grant.end.as_ref().filter(|end| end.zxid < change.zxid) {
            return Err(format!(
                "{token} of client {} wrote with zxid {}, and was over with {}",
                grant.client, change.zxid, end.zxid
            ));
        }
        if is_alone && token < newest {
            return Err(format!("{token} wrote with zxid {} after {newest}", change.zxid));
        }
        newest = if is_alone { token } else { newest };
    }
    for fact in &ran.facts {
        let Noted::Wrote(told, zxid) = fact.what else { continue };
        if !changes.iter().any(|change| change.zxid == zxid && token(change) == Some(told)) {
            return Err(format!("client {} was told that {told} wrote with {zxid}", fact.client));
        }
    }
    Ok(())
}

/// Checks that no later, conflicting grant is given before the safe instant that a holder was told.
fn know_how_they_are(ran: &Ran<Noted>, grants: &[Granted], changes: &[Changed]) -> Result<(), String> {
    for fact in &ran.facts {
        let (token, until_us) = match fact.what {
            Noted::Acted(token, _) => (token, fact.at_us),
            Noted::Safe(token, until_us) => (token, until_us),
            _ => continue,
        };
        let Some(grant) = grants.iter().find(|grant| grant.token == token) else { continue };
        let may_have_it = |other: &&Granted| {
            // The holder learns later that its grant was broken; only its writes are refused at
            // once. A session in a server's process ends with the process.
            let is_broken = grant.broken_us.is_some_and(|broken_us| broken_us <= other.at_us);
            let is_released = grant.released_us.is_some_and(|released_us| released_us <= other.at_us);
            let made = changes.iter().find(|change| change.path == grant.path && change.kind == EventKind::NodeCreated);
            let orphaned_us = made.and_then(|change| change.session).and_then(|session| ran.orphaned_us(session));
            let is_orphaned = orphaned_us.is_some_and(|orphaned_us| orphaned_us <= other.at_us);
            other.token > token
                && other.minds(grant)
                && other.at_us < until_us
                && !grant.shares_with(other)
                && !(is_broken || is_released || is_orphaned)
        };
        if let Some(other) = grants.iter().find(may_have_it) {
            return Err(format!(
                "client {} with token {token}: {:?} at {} us, and client {} has {} since {} us",
                fact.client, fact.what, fact.at_us, other.client, other.token, other.at_us
            ));
        }
    }
    Ok(())
}

/// Counts the `Safe` facts about grants that ended with their session.
pub(crate) fn put_to_the_test(ran: &Ran<Noted>) -> Result<usize, String> {
    let grants = grants(ran, &ran.changed()?)?;
    let ends = |token: i64| {
        let grant = grants.iter().find(|grant| grant.token == token)?;
        let end = grant.end.as_ref().filter(|end| end.is_end)?;
        Some(grant.released_us.is_none_or(|released_us| released_us > end.at_us))
    };
    let told =
        ran.facts.iter().filter_map(|fact| if let Noted::Safe(token, _) = fact.what { Some(token) } else { None });
    Ok(told.filter(|token| ends(*token) == Some(true)).count())
}

fn nothing_else_is_wrong(ran: &Ran<Noted>, grants: &[Granted]) -> Result<(), String> {
    let mut seen: BTreeMap<(usize, u32), i64> = BTreeMap::new();
    let is_broken =
        |path: &str| ran.facts.iter().any(|fact| matches!(&fact.what, Noted::Breaking(broken) if broken == path));
    for fact in &ran.facts {
        match &fact.what {
            // A broken leader learns of it later.
            &Noted::NotInOffice(token) => match grants.iter().find(|grant| grant.token == token) {
                Some(grant) if is_broken(&grant.path) => {}
                _ => return Err(format!("client {} leads with {token} and is not in office", fact.client)),
            },
            Noted::Leaked(path) => return Err(format!("client {} left {path} behind", fact.client)),
            &Noted::Saw(Some(token)) => {
                let before = seen.insert((fact.client, fact.life), token);
                if let Some(before) = before.filter(|before| *before > token) {
                    return Err(format!("client {} sees {token} in office after {before}", fact.client));
                }
            }
            Noted::Wrong(what) => return Err(format!("client {} at {} us: {what}", fact.client, fact.at_us)),
            Noted::Granted(..)
            | Noted::Acted(..)
            | Noted::Wrote(..)
            | Noted::Safe(..)
            | Noted::Doubted(_)
            | Noted::Woke(_)
            | Noted::Regained(..)
            | Noted::Released(_)
            | Noted::Placed(..)
            | Noted::Breaking(_)
            | Noted::ToldReleased(..)
            | Noted::Withdrawing(_)
            | Noted::Saw(None) => {}
        }
    }
    Ok(())
}

/// Returns a scenario without faults, where pings alone keep sessions out of doubt.
pub(crate) fn at_ease(seed: u64, clients: usize) -> Scenario {
    Scenario { timeouts_ms: (10_000, 16_000), ..Scenario::peaceful(seed, clients) }
}

/// Returns the clients in the order of their grants.
pub(crate) fn order(ran: &Ran<Noted>) -> Vec<usize> {
    let granted = |what: &Noted| matches!(what, Noted::Granted(..));
    ran.facts.iter().filter(|fact| granted(&fact.what)).map(|fact| fact.client).collect()
}

/// Checks that each client got at most `events` watch events and listed children at most `lists`
/// times.
pub(crate) fn each_woke(ran: &Ran<Noted>, clients: usize, events: usize, lists: usize) -> Result<(), String> {
    for client in 0..clients {
        let (heard, listed) = (ran.events_of(client), ran.lists_of(client));
        if heard > events || listed > lists {
            return Err(format!("client {client} woke {heard} times and listed {listed} times"));
        }
    }
    Ok(())
}
