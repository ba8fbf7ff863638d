//! What is written down of grants, and what must hold of it.

use std::time::Duration;
use zoolet_model::{Error as SessionError, ErrorCode, Path, Text};
use zoolet_recipes::{Coordinator, Error, Grant, Holding, Mode};
use zoolet_session::Session;
use zoolet_sim::ensemble::{Next, Ran, Seat};

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
}

/// Holds a grant for a while, and acts on it as long as it is held.
pub(crate) async fn hold(seat: &Seat<Noted>, grant: Grant<Session>, mode: Mode) {
    let token = grant.token().0;
    seat.record(Noted::Granted(token, mode));
    for _ in 0..1 + seat.below(4) {
        if grant.holding() == Holding::Held {
            seat.record(Noted::Acted(token, mode));
            if mode == Mode::Exclusive {
                write(seat, &grant).await;
            }
        }
        seat.sleep(Duration::from_millis(seat.below(400))).await;
    }
    seat.record(Noted::Released(token));
    match seat.below(3) {
        0 => drop(grant),
        _ => {
            let _ = grant.release().await;
        }
    }
}

async fn write(seat: &Seat<Noted>, grant: &Grant<Session>) {
    let token = grant.token().0;
    let data = bytes::Bytes::from(token.to_string());
    match grant.fenced().set(&REGISTER, data.clone(), -1).await {
        Ok(stat) => seat.record(Noted::Wrote(token, stat.mzxid)),
        Err(Error::Session(SessionError::Refused(ErrorCode::NoNode))) => {
            let _ = grant.fenced().create(&REGISTER, data).await;
        }
        Err(_) => {}
    }
}

/// Notes every znode that this session has below `parent`.
pub(crate) async fn note_leaks(seat: &Seat<Noted>, parent: &'static str) {
    let session = &seat.session;
    // Whatever is still to be cleared away goes before this, or with the session.
    for _ in 0..100 {
        let Ok(names) = session.children(&Path::from_static(parent)).await else {
            if session.state().is_over() {
                return;
            }
            seat.sleep(Duration::from_millis(100)).await;
            continue;
        };
        for name in names.iter() {
            let path = Path::new(Text::from(format!("{parent}/{name}"))).unwrap();
            if let Ok(Some(stat)) = session.exists(&path).await
                && stat.ephemeral_owner == Coordinator::session(session).0
            {
                seat.record(Noted::Leaked(path.to_string()));
            }
        }
        return;
    }
}

/// What to do after an error: go on, or with another session.
pub(crate) fn is_over(seat: &Seat<Noted>) -> Option<Next> {
    seat.session.state().is_over().then_some(Next::AnotherSession)
}

/// Nobody acted on a grant after somebody else who minds was given a later one; tokens grow as grants are given; what was written fenced was written in
/// the order of tokens; nothing is left behind.
pub(crate) fn judge(ran: &Ran<Noted>) -> Result<(), String> {
    let mut granted: Vec<(i64, Mode, u64, usize)> = Vec::new();
    let mut writes: Vec<(i64, i64)> = Vec::new();
    for fact in &ran.facts {
        match fact.what {
            Noted::Granted(token, mode) => granted.push((token, mode, fact.at_us, fact.client)),
            Noted::Acted(token, mode) => {
                let minds = |other: Mode| mode == Mode::Exclusive || other == Mode::Exclusive;
                let later = granted.iter().find(|(other, kind, ..)| *other > token && minds(*kind));
                if let Some((other, _, at_us, client)) = later {
                    return Err(format!(
                        "client {} acts with token {token} at {} us, and client {client} has {other} since {at_us} us",
                        fact.client, fact.at_us
                    ));
                }
            }
            Noted::Wrote(token, zxid) => writes.push((zxid, token)),
            Noted::Released(_) => {}
            Noted::Leaked(ref path) => return Err(format!("client {} left {path} behind", fact.client)),
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
