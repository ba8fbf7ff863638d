//! What is written down of grants, and what must hold of it.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use zoolet_model::{Error as SessionError, ErrorCode, Path, Text};
use zoolet_recipes::{Coordinator, Error, FencedWriter, Grant, Holding, Mode};
use zoolet_sim::ensemble::{Next, Ran, Scenario, Seat};

/// What fenced writers write to.
pub(crate) const REGISTER: Path = Path::from_static("/register");

/// Something about a grant, which its token names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// It was granted.
    Granted(i64, Mode),
    /// Its holder found it held, in this very moment.
    Acted(i64, Mode),
    /// A fenced write of its holder was done, with this zxid.
    Wrote(i64, i64),
    /// Its holder is about to give it up.
    Released(i64),
    /// This znode of the own session should not be there any more.
    Leaked(String),
    /// The znode of a grant.
    Placed(i64, String),
    /// Somebody is about to delete this place, which is somebody else's.
    Breaking(String),
    /// An observer was told of the token of who is in office.
    Saw(Option<i64>),
    /// What a page rules out.
    Wrong(String),
}

/// Holds a grant for a while, and acts on it as long as it is held.
pub(crate) async fn hold<C: Coordinator>(seat: &Seat<Noted>, grant: Grant<C>, mode: Mode) {
    act(seat, &grant, mode).await;
    give_up(seat, grant).await;
}

/// Acts on a grant as long as it is held.
pub(crate) async fn act<C: Coordinator>(seat: &Seat<Noted>, grant: &Grant<C>, mode: Mode) {
    let token = grant.token().0;
    seat.record(Noted::Granted(token, mode));
    for _ in 0..1 + seat.below(4) {
        if grant.holding() == Holding::Held {
            seat.record(Noted::Acted(token, mode));
            if mode == Mode::Exclusive {
                write(seat, token, &grant.fenced()).await;
            }
        }
        seat.sleep(Duration::from_millis(seat.below(400))).await;
    }
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

/// Writes to the register, fenced.
pub(crate) async fn write<C: Coordinator>(seat: &Seat<Noted>, token: i64, fenced: &FencedWriter<'_, C>) {
    let data = bytes::Bytes::from(token.to_string());
    match fenced.set(&REGISTER, data.clone(), -1).await {
        Ok(stat) => seat.record(Noted::Wrote(token, stat.mzxid)),
        Err(Error::Session(SessionError::Refused(ErrorCode::NoNode))) => {
            let _ = fenced.create(&REGISTER, data).await;
        }
        Err(_) => {}
    }
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

/// Nobody acted on a grant after somebody else who minds was given a later one, unless somebody broke it; tokens grow as grants are given; what was
/// written fenced was written in the order of tokens; observers see later terms only; nothing is left behind.
pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let mut granted: Vec<(i64, Mode, u64, usize)> = Vec::new();
    let mut writes: Vec<(i64, i64)> = Vec::new();
    let mut places: BTreeMap<i64, &str> = BTreeMap::new();
    let mut broken: Vec<&str> = Vec::new();
    let mut seen: BTreeMap<(usize, u32), i64> = BTreeMap::new();
    for fact in &ran.facts {
        match &fact.what {
            &Noted::Granted(token, mode) => granted.push((token, mode, fact.at_us, fact.client)),
            &Noted::Acted(token, mode) => {
                let minds = |other: Mode| mode == Mode::Exclusive || other == Mode::Exclusive;
                let later = granted.iter().find(|(other, kind, ..)| *other > token && minds(*kind));
                // Who was broken hears of it later; only its writes are prevented at once.
                let is_broken = places.get(&token).is_some_and(|path| broken.contains(path));
                if let Some((other, _, at_us, client)) = later.filter(|_| !is_broken) {
                    return Err(format!(
                        "client {} acts with token {token} at {} us, and client {client} has {other} since {at_us} us",
                        fact.client, fact.at_us
                    ));
                }
            }
            &Noted::Wrote(token, zxid) => writes.push((zxid, token)),
            Noted::Released(_) => {}
            Noted::Leaked(path) => return Err(format!("client {} left {path} behind", fact.client)),
            Noted::Placed(token, path) => drop(places.insert(*token, path)),
            Noted::Breaking(path) => broken.push(path),
            Noted::Saw(None) => {}
            &Noted::Saw(Some(token)) => {
                let before = seen.insert((fact.client, fact.life), token);
                if let Some(before) = before.filter(|before| *before > token) {
                    return Err(format!("client {} sees {token} in office after {before}", fact.client));
                }
            }
            Noted::Wrong(what) => return Err(format!("client {} at {} us: {what}", fact.client, fact.at_us)),
        }
    }
    writes.sort_unstable();
    if let Some(pair) = writes.windows(2).find(|pair| pair[0].1 > pair[1].1) {
        return Err(format!(
            "written with zxid {} by token {}, then with {} by {}",
            pair[0].0, pair[0].1, pair[1].0, pair[1].1
        ));
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
