//! Watch fan-out: every connection watches one znode, which one more connection sets.
//!
//! A round lasts from the set until the last watcher has its event. Then all of them watch again,
//! and the next round begins.

use super::course::Course;
use super::ground::Places;
use super::link::Link;
use super::load::come_back;
use super::measured::Sort;
use super::requests::set;
use bytes::Bytes;
use std::cell::Cell;
use std::rc::Rc;
use tokio::sync::{Notify, watch};
use zoolet_model::{ErrorCode, Reply, Request};

/// State of a round, shared by the writer and its watchers.
pub(super) struct Round {
    watchers: usize,
    /// Watchers that the writer still waits for: first until they watch, then until their event.
    missing: Cell<usize>,
    all_there: Notify,
    set_at: Cell<u64>,
    last_event: Cell<u64>,
}

impl Round {
    /// Creates the first round, which waits for all watchers to watch.
    pub(super) fn new(watchers: usize) -> Self {
        let missing = Cell::new(watchers);
        Self { watchers, missing, all_there: Notify::new(), set_at: Cell::new(0), last_event: Cell::new(0) }
    }

    fn one_there(&self) {
        self.missing.set(self.missing.get() - 1);
        if self.missing.get() == 0 {
            self.all_there.notify_one();
        }
    }

    fn wait_for_all(&self) {
        self.missing.set(self.watchers);
    }
}

/// Sets the znode, round after round.
///
/// `rounds` counts them. When it is dropped, the watchers end.
///
/// # Errors
/// No server is reachable any more, or the server refuses.
pub(super) async fn write(
    course: Rc<Course>,
    mut link: Link,
    round: Rc<Round>,
    rounds: watch::Sender<u64>,
) -> Result<(), String> {
    let path = Places::of(&course.options).watched();
    let request = Request::Write(set(&path, &Bytes::from(vec![b'x'; course.options.size])));
    loop {
        all_there(&course, &mut link, &round).await?;
        let sent = course.now();
        if !course.admit(sent) {
            break;
        }
        round.wait_for_all();
        round.set_at.set(sent);
        let lost = set_surely(&course, &mut link, &request).await?;
        all_there(&course, &mut link, &round).await?;
        if course.counts(sent) {
            let mut measured = course.measured.borrow_mut();
            if lost { measured.lost += 1 } else { measured.answered(Sort::Write, 0, sent, round.last_event.get()) }
        }
        round.wait_for_all();
        rounds.send_modify(|rounds| *rounds += 1);
    }
    drop(rounds);
    link.close().await;
    Ok(())
}

async fn all_there(course: &Course, link: &mut Link, round: &Round) -> Result<(), String> {
    loop {
        match link.attend(round.all_there.notified()).await {
            Ok(()) => return Ok(()),
            Err(broken) => come_back(course, link, broken).await?,
        }
    }
}

/// Sets the znode, and returns whether the outcome of an attempt was lost.
///
/// The watchers wait for the event, so a set with an unknown outcome is repeated.
async fn set_surely(course: &Course, link: &mut Link, request: &Request) -> Result<bool, String> {
    let mut lost = false;
    loop {
        match link.ask(request).await {
            Ok(Ok(_)) => return Ok(lost),
            Ok(Err(error)) => return Err(refused(error)),
            Err(broken) => come_back(course, link, broken).await?,
        }
        lost = true;
    }
}

/// Watches until the writer ends.
///
/// # Errors
/// No server is reachable any more, or the server refuses.
pub(super) async fn watch(
    course: Rc<Course>,
    mut link: Link,
    round: Rc<Round>,
    mut rounds: watch::Receiver<u64>,
) -> Result<(), String> {
    let path = Places::of(&course.options).watched();
    let request = Request::GetData { path: path.as_str().into(), watch: true };
    loop {
        let version = arm(&course, &mut link, &request).await?;
        round.one_there();
        loop {
            match link.event_or(rounds.changed()).await {
                Ok(Some(_event)) => break,
                // The writer has ended.
                Ok(None) => {
                    link.close().await;
                    return Ok(());
                }
                Err(broken) => come_back(&course, &mut link, broken).await?,
            }
            // A new connection does not repeat events, but a changed version proves that the event
            // happened.
            if arm(&course, &mut link, &request).await? != version {
                break;
            }
        }
        let now = course.now();
        if course.counts(round.set_at.get()) {
            course.measured.borrow_mut().parts.record(now.saturating_sub(round.set_at.get()));
        }
        round.last_event.set(now);
        round.one_there();
        loop {
            match link.attend(rounds.changed()).await {
                Ok(Ok(())) => break,
                Ok(Err(_left)) => {
                    link.close().await;
                    return Ok(());
                }
                Err(broken) => come_back(&course, &mut link, broken).await?,
            }
        }
    }
}

/// Registers the watch and returns the version of the znode.
async fn arm(course: &Course, link: &mut Link, request: &Request) -> Result<i32, String> {
    loop {
        match link.ask(request).await {
            Ok(Ok(Reply::Data(_, stat))) => return Ok(stat.version),
            Ok(Ok(_)) => return Err(refused(ErrorCode::MarshallingError.code())),
            Ok(Err(error)) => return Err(refused(error)),
            Err(broken) => come_back(course, link, broken).await?,
        }
    }
}

fn refused(error: i32) -> String {
    format!("the watched znode: {}", super::ground::named(error))
}
