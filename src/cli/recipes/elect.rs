//! `zoolet elect`: COMMAND runs while this candidate leads.

use super::holder::{description, left, variables};
use super::session::{ended, is_over, open, refused};
use super::tenure::{Ending, Hold, run};
use super::{Again, Exit, FAILED, Options, Signals, Wait, Work, conflict};
use crate::cli::complain;
use std::time::{Duration, Instant};
use zoolet_recipes::{Election, Leadership, Remote};

/// Pause before COMMAND is started again, or the candidate stands again.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn elect(options: &Options, work: &Work, again: Again, signals: &mut Signals) -> Result<u8, Exit> {
    let began = Instant::now();
    let mut session = None;
    loop {
        let now = match session.take().filter(|session| !is_over(session)) {
            Some(now) => now,
            None => match open(options, signals).await {
                Ok(now) => now,
                // No server answers now, but one may later.
                Err(exit) if again.forever && exit.code == FAILED => {
                    complain(&exit.line);
                    pause(signals).await?;
                    continue;
                }
                Err(exit) => return Err(exit),
            },
        };
        let election = Election::new(now.clone(), &options.path).naming(options.naming).described(description());
        let patience = match left(options.wait, began) {
            Wait::AtMost(patience) => patience,
            Wait::NotAtAll | Wait::Forever => Duration::MAX,
        };
        let leadership = tokio::select! {
            elected = tokio::time::timeout(patience, election.campaign()) => match elected {
                Err(_) => return Err(conflict(options, "not elected")),
                Ok(Ok(leadership)) => leadership,
                // Its place in the line is lost too.
                Ok(Err(_)) if is_over(&now) => continue,
                Ok(Err(error)) => return Err(refused(options, error)),
            },
            exit = ended(signals) => return Err(exit),
        };
        let led = lead(options, &now, &leadership, work, again, signals).await;
        // Without a connection the office is free once the session ends.
        let _ = tokio::time::timeout(options.session_timeout, leadership.resign()).await;
        match led {
            Ok(ending) if again.forever && !ending.is_asked_to_end => {}
            Err(exit) if again.forever && exit.code == FAILED => complain(&exit.line),
            led => return led.map(|ending| ending.code),
        }
        session = Some(now);
        pause(signals).await?;
    }
}

/// Runs COMMAND until the office or the need for it ends.
async fn lead(
    options: &Options,
    session: &Remote,
    leadership: &Leadership<Remote>,
    work: &Work,
    again: Again,
    signals: &mut Signals,
) -> Result<Ending, Exit> {
    let variables = variables(options, session, leadership.token().0);
    loop {
        let ending = run(options, session, Hold::Office(leadership), work, &variables, None, signals).await?;
        if !again.restart || ending.is_lost || ending.is_asked_to_end {
            return Ok(ending);
        }
        tokio::select! {
            paused = pause(signals) => paused?,
            () = leadership.ended() => return Ok(Ending { code: FAILED, is_lost: true, ..ending }),
        }
    }
}

/// Waits for a moment.
///
/// # Errors
/// A signal asks this process to end.
async fn pause(signals: &mut Signals) -> Result<(), Exit> {
    tokio::select! {
        () = tokio::time::sleep(PAUSE) => Ok(()),
        exit = ended(signals) => Err(exit),
    }
}
