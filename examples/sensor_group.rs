//! Sensors announce themselves and what they measure; everybody sees who is there, who has gone, and who came again.
//!
//! `cargo run --example sensor_group -- DIRECTORY`; it ends when a sensor named `stop` has come.
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::recipes::{Change, Error, Group};
use zoolet::{Config, Node, Session, Wait, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    let (sensor, panel) = (node.session().wait()?, node.session().wait()?);
    let mut own = Group::new(sensor, path!("/sensors")).member("thermometer-4", "21.5")?;
    own.put().wait()?;
    watch(panel, |line| println!("{line}")).wait()?;
    drop(own);
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// Tells who comes, measures and goes.
pub async fn watch(session: Session, mut tell: impl FnMut(String)) -> Result<(), Error> {
    let mut sensors = Group::new(session, path!("/sensors")).watch().await?;
    loop {
        match sensors.next().await? {
            Change::Put { name, .. } if name == "stop" => return Ok(()),
            Change::Put { name, content: (data, stat) } => {
                let reading = String::from_utf8_lossy(data.as_deref().unwrap_or_default()).into_owned();
                // A sensor that came again has another czxid; one that measured again has another version.
                tell(format!("{name}: {reading} (since {:x}, reading {})", stat.czxid, stat.version));
            }
            Change::Gone { name } => tell(format!("{name} has gone")),
            Change::Gap => tell("missed something; what follows is what is different".to_owned()),
            Change::Complete => tell(format!("{} there", sensors.children().count())),
        }
    }
}
