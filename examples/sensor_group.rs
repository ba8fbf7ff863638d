//! Sensors announce themselves and their readings. A panel sees which sensors come, go and return.
//!
//! Both go on with the next session when one is lost.
//!
//! `cargo run --example sensor_group -- DIRECTORY`; it ends when a sensor named `stop` has come.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::recipes::{Change, OpenSession};
use zoolet::{Client, Config, CoordinatorExt, Error, Node, path};

const MEASURES_EVERY: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into());
    let node = Node::start_async(Config::new(directory)).await?;
    // One session for both, as in a box that has a sensor and a panel.
    let client = node.client();
    tokio::select! {
        ended = measure(client.clone(), || "21.5".to_owned()) => ended?,
        watched = watch(client, |line| println!("{line}")) => watched?,
    }
    node.shutdown_async(Duration::from_secs(5)).await?;
    Ok(())
}

/// Keeps a sensor in the group, over all sessions. Dropped, the sensor leaves.
///
/// # Errors
/// No session can be opened any more.
pub async fn measure<O: OpenSession>(client: Client<O>, mut read: impl FnMut() -> String) -> Result<(), Error> {
    let mut own = client.member(path!("/sensors"), "thermometer-4", "");
    loop {
        own.set(read()).await?;
        // Until the next reading, the znode is made again if another client deletes it or the
        // session is lost.
        client.session().await?.timeout(MEASURES_EVERY, own.keep()).await.transpose()?;
    }
}

/// Reports the sensors that come, measure and go, over all sessions.
///
/// # Errors
/// No session can be opened any more.
pub async fn watch<O: OpenSession>(client: Client<O>, mut tell: impl FnMut(String)) -> Result<(), Error> {
    let mut sensors = client.children(path!("/sensors"));
    loop {
        match sensors.next().await? {
            Change::Put { name, .. } if name == "stop" => return Ok(()),
            Change::Put { name, znode } => {
                let (reading, stat) = (znode.text().unwrap_or("no text"), znode.stat);
                // A sensor that came again has another czxid; a new reading has another version.
                tell(format!("{name}: {reading} (since {:x}, reading {})", stat.czxid, stat.version));
            }
            Change::Gone { name } => tell(format!("{name} has gone")),
            Change::Gap => tell("missed something; what follows is what is different".to_owned()),
            Change::Complete => {
                let there = sensors.recipe().children().count();
                tell(format!("{there} there"));
            }
            _ => {}
        }
    }
}
