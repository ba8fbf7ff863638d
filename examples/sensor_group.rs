//! Sensors announce themselves and their readings. A panel sees which sensors come, go and return.
//!
//! `cargo run --example sensor_group -- DIRECTORY`; it ends when a sensor named `stop` has come.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;
use zoolet::recipes::{Change, Coordinator, Error, Group};
use zoolet::{Config, Node, Session, Wait, path};

const MEASURES_EVERY: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    let (panel, has_ended) = (node.session().wait()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| stay(|| node.session().wait(), || (!has_ended.load(Relaxed)).then(|| "21.5".to_owned())));
        let watched = watch(panel, |line| println!("{line}")).wait();
        has_ended.store(true, Relaxed);
        watched
    })?;
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// Keeps a sensor in the group across sessions, until `measure` returns `None`.
///
/// # Errors
/// No session could be opened.
pub fn stay(
    mut session: impl FnMut() -> Result<Session, zoolet::Error>,
    mut measure: impl FnMut() -> Option<String>,
) -> Result<(), zoolet::Error> {
    while announce(session()?, &mut measure).wait().is_err() {}
    Ok(())
}

/// Keeps the sensor in the group while its session lives.
async fn announce(session: Session, measure: &mut impl FnMut() -> Option<String>) -> Result<(), Error> {
    let mut own = Group::new(session.clone(), path!("/sensors")).member("thermometer-4", "")?;
    while let Some(reading) = measure() {
        own.set(reading).await?;
        // Until the next reading, the znode is created again if another client deletes it.
        let (mut keep, mut next) = (pin!(own.keep()), session.timer(session.now() + MEASURES_EVERY));
        poll_fn(|context| match keep.as_mut().poll(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Pin::new(&mut next).poll(context).map(Ok),
        })
        .await?;
    }
    Ok(())
}

/// Reports the sensors that come, measure and go.
pub async fn watch(session: Session, mut tell: impl FnMut(String)) -> Result<(), Error> {
    let mut sensors = Group::new(session, path!("/sensors")).watch().await?;
    loop {
        match sensors.next().await? {
            Change::Put { name, .. } if name == "stop" => return Ok(()),
            Change::Put { name, content: (data, stat) } => {
                let reading = String::from_utf8_lossy(data.as_deref().unwrap_or_default()).into_owned();
                // A sensor that came again has another czxid; a new reading has another version.
                tell(format!("{name}: {reading} (since {:x}, reading {})", stat.czxid, stat.version));
            }
            Change::Gone { name } => tell(format!("{name} has gone")),
            Change::Gap => tell("missed something; what follows is what is different".to_owned()),
            Change::Complete => tell(format!("{} there", sensors.children().count())),
        }
    }
}
