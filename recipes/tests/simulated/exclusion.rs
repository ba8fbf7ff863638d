//! What is written down of grants, and what must hold of it.

use crate::drawn::promises_time;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use zoolet_model::{Error as SessionError, ErrorCode, EventKind, Path, Text};
use zoolet_recipes::{Contention, Coordinator, Error, FencedWriter, Grant, Holding, Instant, Mode};
use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat};
use zoolet_sim::oracle::Changed;

/// What fenced writers write to that have something alone: their token.
pub(crate) const REGISTER: Path = Path::from_static("/register");
/// The same of those who share.
const SHARED: Path = Path::from_static("/shared");

/// Something about a grant, which its token names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// It was granted.
    Granted(i64, Mode),
    /// Its holder found it held, in this very moment.
    Acted(i64, Mode),
    /// A fenced write of its holder was done, with this zxid.
    Wrote(i64, i64),
    /// Its holder was told that nobody else has it before this time of the run, microseconds.
    Safe(i64, u64),
    /// Its owner, who asked for it at this time of the run, microseconds, has it again.
    Regained(i64, u64),
    /// Its holder is about to give it up.
    Released(i64),
    /// This znode of the own session should not be there any more.
    Leaked(String),
    /// The znode of a grant.
    Placed(i64, String),
    /// Somebody is about to delete this place, which is somebody else's.
    Breaking(String),
    /// Somebody is about to take away this place, which is somebody else's, once no instant that its holder was told of lies ahead.
    Withdrawing(String),
    /// An observer was told of the token of who is in office.
    Saw(Option<i64>),
    /// Its holder leads, and nobody is in office.
    NotInOffice(i64),
    /// What a page rules out.
    Wrong(String),
}

/// Holds a grant for a while, and acts on it as long as it is held.
pub(crate) async fn hold<C: Coordinator>(seat: &Seat<Noted>, grant: Grant<C>, mode: Mode) {
    act(seat, &grant, mode).await;
    give_up(seat, grant).await;
}

/// Acts on a grant as long as it is held. Half of the holders write on whatever they know of it: that is what fencing is for.
pub(crate) async fn act<C: Coordinator>(seat: &Seat<Noted>, grant: &Grant<C>, mode: Mode) {
    let token = grant.token().0;
    seat.record(Noted::Granted(token, mode));
    seat.record(Noted::Placed(token, grant.path().to_string()));
    let is_bold = seat.below(2) == 0;
    for _ in 0..1 + seat.below(4) {
        let is_held = note_holding(seat, token, mode, grant.holding());
        if is_held || is_bold {
            write_as(seat, token, mode, &grant.fenced()).await;
        }
        seat.sleep(Duration::from_millis(seat.below(400))).await;
    }
}

/// Writes down how a grant is, and says whether it is held.
pub(crate) fn note_holding(seat: &Seat<Noted>, token: i64, mode: Mode, holding: Holding) -> bool {
    if holding == Holding::Held {
        seat.record(Noted::Acted(token, mode));
    }
    let safe_until = match holding {
        Holding::Held => seat.session.safe_until(),
        Holding::Doubtful { safe_until } => safe_until,
        Holding::Lost => Instant::START,
    };
    if seat.now() < safe_until {
        seat.record(Noted::Safe(token, seat.true_us(safe_until)));
    }
    holding == Holding::Held
}

/// Gives it up in one of the ways there are.
pub(crate) async fn give_up<C: Coordinator>(seat: &Seat<Noted>, grant: Grant<C>) {
    seat.record(Noted::Released(grant.token().0));
    match seat.below(3) {
        0 => drop(grant),
        _ => {
            let _ = grant.release().await;
        }
    }
}

/// Writes to the register of those who have something alone, fenced.
pub(crate) async fn write<C: Coordinator>(seat: &Seat<Noted>, token: i64, fenced: &FencedWriter<'_, C>) {
    write_as(seat, token, Mode::Exclusive, fenced).await;
}

async fn write_as<C: Coordinator>(seat: &Seat<Noted>, token: i64, mode: Mode, fenced: &FencedWriter<'_, C>) {
    let register = if mode == Mode::Exclusive { &REGISTER } else { &SHARED };
    let data = bytes::Bytes::from(token.to_string());
    match fenced.set(register, data.clone(), -1).await {
        Ok(stat) => seat.record(Noted::Wrote(token, stat.mzxid)),
        Err(Error::Session(SessionError::Refused(ErrorCode::NoNode))) => {
            let _ = fenced.create(register, data).await;
        }
        Err(_) => {}
    }
}

/// An operator who takes away what those have or wait for who stand in these lines, while faults go on.
pub(crate) async fn break_some(seat: &Seat<Noted>, lines: &[&'static str]) -> Next {
    while seat.goes_on() {
        seat.sleep(Duration::from_millis(seat.below(1500))).await;
        if let Some(next) = is_over(seat) {
            return next;
        }
        let path = Path::from_static(lines[seat.below(lines.len() as u64) as usize]);
        let line = Contention::new(seat.session.clone(), &path);
        let Ok(contenders) = line.contenders().await else { continue };
        // Mostly one who holds.
        let chosen = if seat.below(3) > 0 { 0 } else { seat.below(contenders.len() as u64) as usize };
        let Some(chosen) = contenders.get(chosen) else { continue };
        seat.record(Noted::Breaking(chosen.path.to_string()));
        let patience = Duration::from_millis(seat.below(800));
        let _ = match seat.below(2) {
            0 => line.break_grant(chosen, "drawn").await,
            _ => line.revoke(chosen, patience, "drawn").await,
        };
    }
    Next::Done
}

/// Attempts, one after the other, until `least` of them had what they wanted and faults are over; each says whether it had. Then nothing of this session
/// may be left below `parents`.
pub(crate) async fn again_and_again(
    seat: &Seat<Noted>,
    least: u32,
    parents: &[&'static str],
    mut attempt: impl AsyncFnMut() -> Result<bool, Error>,
) -> Next {
    let mut had = 0;
    while had < least || seat.goes_on() {
        seat.sleep(Duration::from_millis(seat.below(500))).await;
        match attempt().await {
            Ok(has) => had += u32::from(has),
            Err(Error::Session(_) | Error::Disconnected) => {}
            Err(error) => panic!("{error}"),
        }
        if let Some(next) = is_over(seat) {
            return next;
        }
    }
    for parent in parents {
        note_leaks(seat, parent).await;
    }
    Next::Done
}

/// An attempt whose place somebody broke has nothing, and that is all.
pub(crate) fn unless_broken<T>(attempt: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    attempt.or_else(|error| if error == Error::Broken { Ok(None) } else { Err(error) })
}

/// What a future gives within this time.
pub(crate) async fn within<T>(seat: &Seat<Noted>, patience: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut timer) = (pin!(future), pin!(seat.sleep(patience)));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => timer.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Waits for this time of the run, in seconds: how clients that know nothing of each other take turns.
pub(crate) async fn until(seat: &Seat<Noted>, at_s: f64) {
    let now_us = seat.true_us(seat.now());
    seat.sleep(Duration::from_micros(((at_s * 1e6) as u64).saturating_sub(now_us))).await;
}

/// Notes every znode that this session still has below `parent` after a while: what nobody waits for goes in its own time.
pub(crate) async fn note_leaks(seat: &Seat<Noted>, parent: &'static str) {
    let mut left = Vec::new();
    // What a server could not do at once goes with the next ping, and there is none while a client asks more often than that: it looks less and less often.
    for pause_ms in [100, 200, 400, 800, 1600, 3200, 6000, 6000, 6000] {
        match own_below(seat, parent).await {
            Ok(own) if own.is_empty() => return,
            Ok(own) => left = own,
            Err(_) if seat.session.state().is_over() => return,
            Err(_) => {}
        }
        seat.sleep(Duration::from_millis(pause_ms)).await;
    }
    left.into_iter().for_each(|path| seat.record(Noted::Leaked(path)));
}

async fn own_below(seat: &Seat<Noted>, parent: &'static str) -> Result<Vec<String>, SessionError> {
    let session = &seat.session;
    let names = match session.children(&Path::from_static(parent)).await {
        Err(SessionError::Refused(ErrorCode::NoNode)) => return Ok(Vec::new()),
        names => names?,
    };
    let mut own = Vec::new();
    for name in names.iter() {
        let path = Path::new(Text::from(format!("{}/{name}", parent.trim_end_matches('/')))).unwrap();
        if session.exists(&path).await?.is_some_and(|stat| stat.ephemeral_owner == Coordinator::session(session).0) {
            own.push(path.to_string());
        }
    }
    Ok(own)
}

/// What to do after an error: go on, or with another session.
pub(crate) fn is_over(seat: &Seat<Noted>) -> Option<Next> {
    seat.session.state().is_over().then_some(Next::AnotherSession)
}

/// One grant.
struct Granted {
    token: i64,
    mode: Mode,
    at_us: u64,
    client: usize,
    life: u32,
    /// Its znode.
    path: String,
    /// When somebody was about to break it.
    broken_us: Option<u64>,
    /// When somebody was about to withdraw it.
    withdrawn_us: Option<u64>,
    /// When it was about to be given up.
    released_us: Option<u64>,
    /// How that went.
    end: Option<Changed>,
    /// When its holder began to share it.
    shared_us: Option<u64>,
}

impl Granted {
    fn minds(&self, other: &Self) -> bool {
        // What became another one is the same; a gate's znode is made again and again.
        let is_same = (&self.path, self.client, self.life) == (&other.path, other.client, other.life);
        !is_same && (self.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
    }

    /// Whether it lets another one in at that time, microseconds, because it shares.
    fn shares_with(&self, other: &Self) -> bool {
        other.mode == Mode::Shared && self.shared_us.is_some_and(|shared_us| shared_us <= other.at_us)
    }

    /// Whether it stands in the tree when another one is granted.
    fn stands_beside(&self, other: &Self) -> bool {
        let stands = |grant: &Self| grant.end.as_ref().is_none_or(|end| end.at_us > other.at_us);
        // Who is told late may have lost its own place before.
        stands(self) && stands(other)
    }
}

/// What the tree and its holders tell of each grant, in the order in which they heard of them.
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
            // Taken again by the same owner, or shared now.
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
    // One that became another one, with another token, is given up as that.
    let released: Vec<_> = grants.iter().map(|grant| (grant.path.clone(), grant.token, grant.released_us)).collect();
    for grant in &mut grants {
        let theirs = released.iter().filter(|(path, token, _)| *path == grant.path && *token >= grant.token);
        grant.released_us = theirs.filter_map(|(.., released_us)| *released_us).min();
    }
    Ok(grants)
}

/// Nothing is granted beside what minds it and stands in the tree; nobody acts on a grant, or is told that it is safe, when somebody else who minds has
/// a later one, unless somebody broke it; what was written fenced was written before the grant went, in the order of tokens; observers see later
/// terms only; nothing is left behind.
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

/// That, and no grant goes that nobody has given up or broken and whose session lives.
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

/// Whatever their holders know.
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

/// How many others stood in the tree when each was granted.
pub(crate) fn beside(ran: &Ran<Noted>) -> Result<Vec<usize>, String> {
    let grants = grants(ran, &ran.changed()?)?;
    let others = |at: usize| grants[..at].iter().filter(|other| other.stands_beside(&grants[at])).count();
    Ok((0..grants.len()).map(others).collect())
}

/// What was written fenced was written before the grant went, none goes that nobody has given up or broken, and nothing is left behind.
pub(crate) fn judge_fences(ran: &Ran<Noted>) -> Result<(), String> {
    let changes = ran.changed()?;
    let grants = grants(ran, &changes)?;
    are_fenced(ran, &grants, &changes)?;
    are_kept(&grants)?;
    nothing_else_is_wrong(ran, &grants)
}

/// As the tree has what was written, whether anybody was told of it or not.
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

/// Who has a grant knows until when nobody else has a later one.
fn know_how_they_are(ran: &Ran<Noted>, grants: &[Granted], changes: &[Changed]) -> Result<(), String> {
    for fact in &ran.facts {
        let (token, until_us) = match fact.what {
            Noted::Acted(token, _) => (token, fact.at_us),
            Noted::Safe(token, until_us) => (token, until_us),
            _ => continue,
        };
        let Some(grant) = grants.iter().find(|grant| grant.token == token) else { continue };
        let may_have_it = |other: &&Granted| {
            // Who was broken hears of it later; only its writes are prevented at once. And in a server's process a session dies with that.
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

/// How often somebody was told so of a grant that its session's end took away.
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
            // A leader that is broken hears of it later.
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
            | Noted::Regained(..)
            | Noted::Released(_)
            | Noted::Placed(..)
            | Noted::Breaking(_)
            | Noted::Withdrawing(_)
            | Noted::Saw(None) => {}
        }
    }
    Ok(())
}

/// Nothing broken, and sessions that pings alone keep out of doubt.
pub(crate) fn at_ease(seed: u64, clients: usize) -> Scenario {
    Scenario { timeouts_ms: (10_000, 16_000), ..Scenario::peaceful(seed, clients) }
}

/// The clients in the order in which they were granted something.
pub(crate) fn order(ran: &Ran<Noted>) -> Vec<usize> {
    let granted = |what: &Noted| matches!(what, Noted::Granted(..));
    ran.facts.iter().filter(|fact| granted(&fact.what)).map(|fact| fact.client).collect()
}

/// That no client heard more watch events, or asked for more lists of children, than this.
pub(crate) fn each_woke(ran: &Ran<Noted>, clients: usize, events: usize, lists: usize) -> Result<(), String> {
    for client in 0..clients {
        let (heard, listed) = (ran.events_of(client), ran.lists_of(client));
        if heard > events || listed > lists {
            return Err(format!("client {client} woke {heard} times and listed {listed} times"));
        }
    }
    Ok(())
}
