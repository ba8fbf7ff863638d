//! `zoolet barrier`: processes wait until others let them continue, or have come.

use super::environment::Environment;
use super::running::{Event, Running};
use super::session::{Patience, ended, refused, within};
use super::tenure::{Ending, no_terminal};
use super::{Exit, Options, Signal, Signals, What};
use crate::cli::complain;
use std::ffi::OsString;
use zoolet_recipes::{Barrier, Coordinator, DoubleBarrier, Guid};

/// Closes, opens, or waits for the barrier.
pub(super) async fn barrier(options: &Options, signals: &mut Signals) -> Result<u8, Exit> {
    let mut patience = Patience::new(options, false);
    loop {
        let session = patience.open(options, signals).await?;
        let barrier = Barrier::new(session.clone(), &options.path);
        let done = async {
            match options.what {
                What::Close => barrier.close().await.map(drop),
                What::Open => barrier.open().await.map(drop),
                _ => barrier.wait().await,
            }
        };
        match within(options, &patience, done, "the barrier was not opened", signals).await {
            Ok(()) => return Ok(0),
            // Repeated later, the others could undo what another process has done meanwhile.
            Err(refusal) if matches!(options.what, What::WaitOpen) && refusal.is_passing(options, &session) => {
                refusal.let_pass(options, session, &mut patience, signals).await?;
            }
            Err(refusal) => return Err(refusal.exit(options)),
        }
    }
}

/// Waits for the parties, runs the command, and waits until the commands of all have ended.
pub(super) async fn meet(
    options: &Options,
    parties: usize,
    command: &[OsString],
    signals: &mut Signals,
) -> Result<u8, Exit> {
    let (mut patience, mut party) = (Patience::new(options, false), None);
    let meeting = loop {
        let session = patience.open(options, signals).await?;
        // With another session, this process is still one party.
        let party = *party.get_or_insert_with(|| Guid::from_random_bits(session.random_bits()));
        let barrier = DoubleBarrier::new(session.clone(), &options.path, parties).of_party(party);
        match within(options, &patience, barrier.enter(), "not all parties came", signals).await {
            Ok(meeting) => break meeting,
            Err(refusal) if refusal.is_passing(options, &session) => {
                refusal.let_pass(options, session, &mut patience, signals).await?;
            }
            Err(refusal) => return Err(refusal.exit(options)),
        }
    };
    if command.is_empty() {
        return Ok(0);
    }
    let mut running = Running::prepare(command, &Environment::new(options), None)?;
    running.go();
    let (mut passed_on, mut is_refused) = (Vec::new(), false);
    loop {
        tokio::select! {
            event = running.event() => match event {
                Event::Ended => break,
                Event::NeedsTerminal => {
                    is_refused = true;
                    complain(&no_terminal(options));
                    running.signal(Signal::Kill);
                }
            },
            signal = signals.next() => {
                passed_on.push(signal);
                running.signal(signal);
            }
        }
    }
    let grace = options.session_timeout / 10;
    let end = running.finish(options, grace, std::future::pending(), signals).await?;
    let ending = Ending::new(&end, is_refused, signals, &passed_on);
    if ending.is_asked_to_end {
        // Dropping the meeting leaves at once: neither this party nor the others wait. Code 0 would
        // tell that all have ended.
        let signal = passed_on.iter().chain(&end.signals).find(|signal| signal.ends());
        let code = signal.filter(|_| ending.code == 0).map(|signal| signal.exit_code());
        return Ok(code.unwrap_or(ending.code));
    }
    // A COMMAND that failed has ended too. Its script must not go on beside the others' COMMANDs.
    tokio::select! {
        left = meeting.leave() => match left.map_err(|error| refused(options, &error)) {
            Err(exit) if ending.code == 0 => return Err(exit),
            Err(exit) => complain(&exit.line),
            Ok(()) => {}
        },
        exit = ended(signals) => return Err(exit),
    }
    Ok(ending.code)
}
