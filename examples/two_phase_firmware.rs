//! Three devices switch to new firmware, or none does. The coordinator is killed in the middle: whoever comes next finishes what it began.
//!
//! `cargo run --example two_phase_firmware -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::recipes::{Error, Notification, Outcome, Participant, ParticipantLog, Record, Transaction, Vote};
use zoolet::{Config, Node, Path, Session, Wait, path};

const DEVICES: [&str; 3] = ["press", "oven", "robot"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    for (firmware, objector) in [("4.2", None), ("4.3", Some("oven"))] {
        println!("{firmware}: {:?}", roll_out(&node, firmware, objector)?);
    }
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// Gives what each device did.
pub fn roll_out(
    node: &Node,
    firmware: &str,
    objector: Option<&str>,
) -> Result<Vec<Outcome>, Box<dyn std::error::Error>> {
    let killed = node.session().wait()?;
    drop(Transaction::begin(killed.clone(), path!("/firmware"), firmware.to_owned(), &DEVICES).wait()?);
    // Here it is killed: the votes are not counted, nothing is decided.
    drop(killed);
    let sessions = DEVICES.map(|_| node.session().wait());
    std::thread::scope(|scope| {
        let device = |(device, session): (&'static str, Result<Session, zoolet::Error>)| {
            let vote = if objector == Some(device) { Vote::Abort } else { Vote::Commit };
            scope.spawn(move || switch(session?, device, vote).wait())
        };
        let devices: Vec<_> = DEVICES.into_iter().zip(sessions).map(device).collect();
        let successor = node.session().wait()?;
        let transaction = Transaction::open(successor, path!("/firmware")).wait()?.ok_or("it is over already")?;
        transaction.decide(Some(Duration::from_secs(60))).wait()?;
        transaction.finish().wait()?;
        devices.into_iter().map(|device| Ok(device.join().map_err(|_| "a device died")??)).collect()
    })
}

/// One device: votes when it has the image, waits for the outcome, switches or stays.
async fn switch(session: Session, device: &str, vote: Vote) -> Result<Outcome, Error> {
    let joined = Participant::join(session, path!("/firmware"), device, Notification::Coordinator, Journal).await?;
    let mut participant = joined.ok_or(Error::Lost)?;
    let Ok(_) = participant.vote(vote).await?;
    let outcome = participant.outcome().await?;
    // Here it switches its boot slot, or does not.
    let Ok(()) = participant.acknowledge(outcome).await?;
    Ok(outcome)
}

/// Where a real device writes to its own flash, and syncs, before it votes.
struct Journal;

impl ParticipantLog for Journal {
    type Error = std::convert::Infallible;

    fn record(&mut self, _transaction: &Path, _record: Record) -> Result<(), Self::Error> {
        Ok(())
    }
}
