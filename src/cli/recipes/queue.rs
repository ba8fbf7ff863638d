//! `zoolet queue`: puts items, and takes each for one consumer.

use super::environment::Environment;
use super::session::{Patience, ended, refused, told, within};
use super::tenure::{Hold, run};
use super::{Exit, Options, Signals, Work, failed};
use crate::cli::blocking::on_a_thread;
use crate::cli::complain;
use std::future::Future;
use std::io::{Read, Write};
use zoolet_recipes::{Claim, Queue, Remote};

/// Bytes that an item may have; servers take requests of up to 1 MiB.
const ITEM_BYTES_MAX: usize = 1_000_000;

/// Puts an item: the argument, or standard input.
pub(super) async fn put(options: &Options, data: Option<&str>, signals: &mut Signals) -> Result<u8, Exit> {
    let item = match data {
        Some(data) => data.as_bytes().to_vec(),
        None => unless_ended(on_a_thread(read), signals).await?.unwrap_or_else(no_thread).map_err(failed)?,
    };
    if item.len() > ITEM_BYTES_MAX {
        let path = &options.path;
        return Err(Exit::usage(format!("{path}: an item has at most {ITEM_BYTES_MAX} bytes; put the name of a file")));
    }
    let mut patience = Patience::new(options, false);
    let session = patience.open(options, signals).await?;
    let queue = Queue::new(session, &options.path);
    within(options, &patience, queue.put(item), "not put", signals).await.map_err(|refusal| refusal.exit(options))?;
    Ok(0)
}

fn read() -> std::io::Result<Vec<u8>> {
    let (mut item, limit) = (Vec::new(), ITEM_BYTES_MAX as u64 + 1);
    std::io::stdin().lock().take(limit).read_to_end(&mut item)?;
    Ok(item)
}

fn no_thread<T>() -> std::io::Result<T> {
    Err(std::io::Error::other("no thread can be started"))
}

/// Waits for `done`, or for a signal.
async fn unless_ended<T>(done: impl Future<Output = T>, signals: &mut Signals) -> Result<T, Exit> {
    tokio::select! {
        done = done => Ok(done),
        exit = ended(signals) => Err(exit),
    }
}

/// Takes an item: prints it, or gives it to COMMAND.
pub(super) async fn take(
    options: &Options,
    work: Option<&Work>,
    attempts: Option<u32>,
    signals: &mut Signals,
) -> Result<u8, Exit> {
    let mut patience = Patience::new(options, false);
    loop {
        let session = patience.open(options, signals).await?;
        let queue = Queue::new(session.clone(), &options.path);
        match within(options, &patience, queue.claim(), "no item came", signals).await {
            Ok(claim) => {
                return match work {
                    Some(work) => carry_out(options, &session, claim, work, attempts, signals).await,
                    None => print(options, claim, signals).await,
                };
            }
            Err(refusal) if refusal.is_passing(options, &session) => {
                refusal.let_pass(options, session, &mut patience, signals).await?;
            }
            Err(refusal) => return Err(refusal.exit(options)),
        }
    }
}

/// Prints the item of `claim`, and removes it.
async fn print(options: &Options, claim: Claim<Remote>, signals: &mut Signals) -> Result<u8, Exit> {
    let item = claim.item().clone();
    // A reader that does not read must not stop the session.
    let printed = on_a_thread(move || {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&item).and_then(|()| stdout.flush())
    });
    let printed = unless_ended(printed, signals).await?.unwrap_or_else(no_thread);
    // The item stays in the queue if it cannot be printed.
    let path = &options.path;
    printed.map_err(|error| failed(format!("standard output: {error}; the item stays in {path}")))?;
    complete(options, claim, signals).await?;
    Ok(0)
}

/// Runs COMMAND with the item of `claim`.
async fn carry_out(
    options: &Options,
    session: &Remote,
    claim: Claim<Remote>,
    work: &Work,
    attempts: Option<u32>,
    signals: &mut Signals,
) -> Result<u8, Exit> {
    let path = &options.path;
    let mut environment = Environment::of_grant(options, session, claim.token().0);
    environment.attempt = Some(claim.attempts());
    let hold = Hold::Session(session);
    let ending = run(options, session, hold, work, &environment, Some(claim.item()), signals).await?;
    // A COMMAND that was ended, or that does not exist, says nothing about the item.
    let has_failed = !ending.is_lost && !ending.is_asked_to_end && !ending.is_not_run();
    if ending.code == 0 {
        complete(options, claim, signals).await?;
    } else if has_failed && attempts.is_some_and(|attempts| claim.attempts() >= attempts) {
        let taken = claim.attempts();
        unless_ended(claim.bury(), signals).await?.map_err(|error| refused(options, &error))?;
        complain(&format!("{path}: COMMAND failed and the item was taken {taken} times: moved it below {path}-dead"));
    }
    // Otherwise dropping the claim returns the item.
    Ok(ending.code)
}

/// Removes the item of `claim`, which is done.
async fn complete(options: &Options, claim: Claim<Remote>, signals: &mut Signals) -> Result<(), Exit> {
    let path = &options.path;
    let again = "the item may be processed again";
    match unless_ended(claim.complete([]), signals).await {
        Ok(done) => done.map_err(|error| failed(format!("{}; {again}", told(options, &error)))),
        Err(exit) => Err(Exit::new(exit.code, format!("{path}: interrupted; {again}"))),
    }
}
