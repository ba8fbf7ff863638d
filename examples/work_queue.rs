//! A work queue whose jobs are not lost.
//!
//! A worker claims a job. If the worker dies, the job is free for other workers. A job that kills
//! its workers is buried after three attempts. One transaction writes a job's result and removes
//! the job, so each result is written once.
//!
//! `cargo run --example work_queue -- DIRECTORY`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::recipes::{Change, ChildrenCache, Queue};
use zoolet::{Config, Error, Node, Op, Session, Wait, path};

/// Maximum attempts at a job; after that an operator has to look at it.
const ATTEMPTS_MAX: u32 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::start(Config::new(std::env::args().nth(1).unwrap_or_else(|| "zoolet-data".into())))?;
    let (session, workers) = (node.session().wait()?, node.client());
    // If the worker's session is lost, it works on with the next one.
    let working = std::thread::spawn(move || workers.run(|session| worker(session, weld)).wait());
    let queue = Queue::new(session.clone(), path!("/jobs"));
    for job in ["weld 17", "poison", "weld 18"] {
        queue.put(job).wait()?;
    }
    let mut buried = ChildrenCache::new(session, path!("/jobs-dead"));
    while !matches!(buried.next().wait()?, Change::Put { .. }) {}
    queue.put("stop").wait()?;
    println!("{:?} done, {} buried", working.join(), buried.children().count());
    node.shutdown(Duration::from_secs(5))?;
    Ok(())
}

fn weld(job: &[u8]) -> Option<Vec<u8>> {
    // A job that kills its worker would not get this far. To the queue, giving up the claim is the
    // same.
    (job != b"poison").then(|| job.to_vec())
}

/// Does jobs until a job is `stop`; returns the number of jobs done.
pub async fn worker(session: Session, work: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Result<u32, Error> {
    let queue = Queue::new(session.clone(), path!("/jobs"));
    session.ensure(path!("/results")).await?;
    let mut done = 0;
    loop {
        let claim = queue.claim().await?;
        if claim.attempts() > ATTEMPTS_MAX {
            claim.bury().await?;
        } else if claim.item() == "stop" {
            claim.complete([]).await?;
            return Ok(done);
        } else if let Some(result) = work(claim.item()) {
            let path = path!("/results").join(claim.token().to_string())?;
            match claim.complete([Op::create(&path, result)]).await {
                Ok(()) => done += 1,
                // The session was away for too long and another worker has the job: nothing was
                // written.
                Err(error) if error.is_grant_lost() => {}
                Err(error) => return Err(error),
            }
        }
        // Otherwise the claim is dropped here, and the job is free again.
    }
}
