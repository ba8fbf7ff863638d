//! `zoolet barrier`: processes wait until others let them continue, or have come.

use super::running::Running;
use super::session::{ended, open, refused};
use super::{Exit, Options, Signals, Wait, What, conflict};
use std::ffi::OsString;
use std::future::Future;
use std::time::Duration;
use zoolet_recipes::{Barrier, DoubleBarrier, Error};

/// Closes, opens, or waits for the barrier.
pub(super) async fn barrier(options: &Options, signals: &mut Signals) -> Result<u8, Exit> {
    let session = open(options, signals).await?;
    let barrier = Barrier::new(session, &options.path);
    let done = async {
        match options.what {
            What::Close => barrier.close().await.map(drop),
            What::Open => barrier.open().await.map(drop),
            _ => barrier.wait().await,
        }
    };
    within(options, done, "the barrier was not opened", signals).await?;
    Ok(0)
}

/// Waits for the parties, runs the command, and waits until all have left.
pub(super) async fn meet(
    options: &Options,
    parties: usize,
    command: &[OsString],
    signals: &mut Signals,
) -> Result<u8, Exit> {
    let session = open(options, signals).await?;
    let barrier = DoubleBarrier::new(session.clone(), &options.path, parties);
    let meeting = within(options, barrier.enter(), "not all parties came", signals).await?;
    if command.is_empty() {
        return Ok(0);
    }
    let variables = [("ZOOLET_PATH", options.path.to_string()), ("ZOOLET_SERVER", options.servers.join(","))];
    let mut running = Running::start(command, &variables, None)?;
    loop {
        tokio::select! {
            () = running.ended() => break,
            signal = signals.next() => running.signal(signal),
        }
    }
    let code = running.finish(options.session_timeout / 10).await?;
    if code != 0 {
        // Dropping the meeting leaves at once: the others do not wait for this party.
        return Ok(code);
    }
    tokio::select! {
        left = meeting.leave() => left.map_err(|error| refused(options, error))?,
        exit = ended(signals) => return Err(exit),
    }
    Ok(0)
}

/// Waits for `done` for as long as the options say, or for a signal.
pub(super) async fn within<T>(
    options: &Options,
    done: impl Future<Output = Result<T, Error>>,
    missing: &str,
    signals: &mut Signals,
) -> Result<T, Exit> {
    let patience = match options.wait {
        Wait::AtMost(patience) => patience,
        Wait::NotAtAll | Wait::Forever => Duration::MAX,
    };
    tokio::select! {
        done = tokio::time::timeout(patience, done) => match done {
            Ok(done) => done.map_err(|error| refused(options, error)),
            Err(_) => Err(conflict(options, missing)),
        },
        exit = ended(signals) => Err(exit),
    }
}
