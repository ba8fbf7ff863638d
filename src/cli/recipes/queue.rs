//! `zoolet queue`: puts items, and takes each for one consumer.

use super::barrier::within;
use super::holder::variables;
use super::session::{open, refused};
use super::tenure::{Hold, run};
use super::{Exit, Options, Signals, Work, failed};
use crate::cli::complain;
use std::io::{Read, Write};
use zoolet_recipes::{Error, Queue};

/// Bytes that an item may have; servers take requests of up to 1 MiB.
const ITEM_BYTES_MAX: usize = 1_000_000;

/// Puts an item: the argument, or standard input.
pub(super) async fn put(options: &Options, data: Option<&str>, signals: &mut Signals) -> Result<u8, Exit> {
    let item = match data {
        Some(data) => data.as_bytes().to_vec(),
        None => {
            let mut item = Vec::new();
            let limit = ITEM_BYTES_MAX as u64 + 1;
            std::io::stdin().lock().take(limit).read_to_end(&mut item).map_err(failed)?;
            item
        }
    };
    if item.len() > ITEM_BYTES_MAX {
        let path = &options.path;
        return Err(Exit::usage(format!("{path}: an item has at most {ITEM_BYTES_MAX} bytes; put the name of a file")));
    }
    let session = open(options, signals).await?;
    let queue = Queue::new(session, &options.path).map_err(|error| refused(options, error))?;
    within(options, queue.put(item), "not put", signals).await?;
    Ok(0)
}

/// Takes an item: prints it, or gives it to COMMAND.
pub(super) async fn take(
    options: &Options,
    work: Option<&Work>,
    attempts: Option<u32>,
    signals: &mut Signals,
) -> Result<u8, Exit> {
    let session = open(options, signals).await?;
    let queue = Queue::new(session.clone(), &options.path).map_err(|error| refused(options, error))?;
    let claim = within(options, queue.claim(), "no item came", signals).await?;
    let path = &options.path;
    let Some(work) = work else {
        let mut stdout = std::io::stdout().lock();
        // The item stays in the queue if it cannot be printed.
        let printed = stdout.write_all(claim.item()).and_then(|()| stdout.flush());
        printed.map_err(|error| failed(format!("standard output: {error}; the item stays in {path}")))?;
        claim.complete([]).await.map_err(|error| not_completed(options, error))?;
        return Ok(0);
    };
    let mut variables = variables(options, &session, claim.token().0);
    variables.push(("ZOOLET_ATTEMPT", claim.attempts().to_string()));
    let hold = Hold::Session(&session);
    let ending = run(options, &session, hold, work, &variables, Some(claim.item()), signals).await?;
    if ending.code == 0 {
        claim.complete([]).await.map_err(|error| not_completed(options, error))?;
    } else if !ending.is_lost && attempts.is_some_and(|attempts| claim.attempts() >= attempts) {
        let taken = claim.attempts();
        claim.bury().await.map_err(|error| refused(options, error))?;
        complain(&format!("{path}: COMMAND failed and the item was taken {taken} times: moved it below {path}-dead"));
    }
    // Otherwise dropping the claim returns the item.
    Ok(ending.code)
}

fn not_completed(options: &Options, error: Error) -> Exit {
    let path = &options.path;
    failed(format!("{path}: {error}; the item may be processed again"))
}
