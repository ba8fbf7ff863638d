//! Three devices switch to new firmware, or none does.
//!
//! Two coordinators are killed, before and after the decision. The third finishes. Each device
//! restarts after its vote, which it knows from its log.
//! `cargo run --example two_phase_firmware -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::io::Write;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;
use zoolet::recipes::{Notification, Outcome, Participant, ParticipantLog, Record, Transaction, Vote};
use zoolet::{Config, Node, Path, Wait, path};

const DEVICES: [&str; 3] = ["press", "oven", "robot"];

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let directory: PathBuf = std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into()).into();
    let node = Node::start(Config::new(directory.join("node")))?;
    println!("4.2: {:?}", roll_out(&node, &directory, "4.2", None)?);
    println!("4.3: {:?}", roll_out(&node, &directory, "4.3", Some("oven"))?);
    Ok(node.shutdown(Duration::from_secs(5))?)
}

/// Rolls out one firmware; returns the outcome on each device. Each firmware has a path of its own.
pub fn roll_out(node: &Node, logs: &FilePath, name: &str, objector: Option<&str>) -> Result<Vec<Outcome>, Failure> {
    let path = &path!("/firmware").join(name)?;
    drop(Transaction::begin(node.session().wait()?, path, name, &DEVICES).wait()?);
    // The coordinator is killed here, before a decision.
    std::thread::scope(|scope| {
        let devices = DEVICES.map(|device| {
            let vote = if objector == Some(device) { Vote::Abort } else { Vote::Commit };
            scope.spawn(move || switch(node, path, device, vote, logs.join(device)))
        });
        let open =
            || Transaction::open(node.session().wait()?, path).wait()?.ok_or(Failure::from("it is over already"));
        open()?.decide(Some(Duration::from_secs(60))).wait()?;
        // The second coordinator is killed here, after the decision. The third carries it out.
        open()?.finish().wait()?;
        devices.into_iter().map(|device| device.join().map_err(|_| "a device died")?).collect()
    })
}

/// One device: votes once it has the image, waits for the outcome, and switches or stays.
fn switch(node: &Node, path: &Path, device: &str, vote: Vote, log: PathBuf) -> Result<Outcome, Failure> {
    let join = |path: &Path| {
        let (session, journal) = (node.session().wait()?, Journal(log.clone()));
        let joined = Participant::join(session, path, device, Notification::Coordinator, journal).wait()?;
        joined.ok_or(Failure::from("it is over already"))
    };
    join(path)?.vote(vote).wait()??;
    // The device restarts here. It must first learn the outcome of the transaction in its log.
    let participant = join(&Journal(log.clone()).promised().ok_or("it has promised nothing")?)?;
    let outcome = participant.outcome().wait()?;
    participant.acknowledge(outcome).wait()??;
    Ok(outcome)
}

/// A device's log: a file that is synced before any other process learns of an entry.
struct Journal(PathBuf);

impl Journal {
    /// Returns the transaction that the device voted in and has not carried out.
    fn promised(&self) -> Option<Path> {
        let logged = std::fs::read_to_string(&self.0).ok()?;
        let (path, _vote) = logged.lines().last()?.split_once(" Voting")?;
        path.parse().ok()
    }
}

impl ParticipantLog for Journal {
    type Error = std::io::Error;

    fn record(&mut self, transaction: &Path, record: Record) -> std::io::Result<()> {
        let mut file = std::fs::File::options().create(true).append(true).open(&self.0)?;
        writeln!(file, "{transaction} {record:?}")?;
        file.sync_all()
    }
}
