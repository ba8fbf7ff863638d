//! `zoolet elect`: COMMAND runs while this candidate leads.

use super::environment::Environment;
use super::holder::description;
use super::session::{PAUSE, Patience, Refusal, give_up, pause, told, within};
use super::tenure::{Ending, Hold, run};
use super::{Again, Exit, FAILED, Options, Signal, Signals, Work};
use crate::cli::complain;
use zoolet_recipes::{Coordinator, Election, ErrorKind, Leadership, Remote};

pub(super) async fn elect(options: &Options, work: &Work, again: Again, signals: &mut Signals) -> Result<u8, Exit> {
    signals.is_standby = again.forever;
    let mut patience = Patience::new(options, again.forever);
    loop {
        let now = patience.open(options, signals).await?;
        let election = Election::new(now.clone(), &options.path).naming(options.naming).described(description());
        let leadership = match within(options, &patience, election.campaign(), "not elected", signals).await {
            Ok(leadership) => leadership,
            Err(refusal) if refusal.is_passing(options, &now) => {
                refusal.let_pass(options, now, &mut patience, signals).await?;
                continue;
            }
            // A leader whose znode is deleted stands again too.
            Err(Refusal::Recipe(error)) if again.forever && error.kind() == ErrorKind::Broken => {
                complain(&format!("{}; it becomes a candidate again", told(options, &error)));
                patience.keep(now);
                pause(PAUSE, signals).await?;
                continue;
            }
            Err(refusal) => return Err(refusal.exit(options)),
        };
        patience.succeeded();
        let led = lead(options, &now, &leadership, work, again, signals).await;
        let signal = give_up(options, now.session_timeout(), leadership.resign(), signals).await;
        match led {
            led if signal.is_some_and(Signal::ends) => return led.map(|ending| ending.code),
            Ok(ending) if again.forever && !ending.is_asked_to_end => {}
            Err(exit) if again.forever && exit.code == FAILED => complain(&exit.line),
            led => return led.map(|ending| ending.code),
        }
        patience.keep(now);
        pause(PAUSE, signals).await?;
    }
}

/// Runs COMMAND until the office or the need for it ends.
///
/// A candidate that cannot run COMMAND does not keep others, which may, from leading.
async fn lead(
    options: &Options,
    session: &Remote,
    leadership: &Leadership<Remote>,
    work: &Work,
    again: Again,
    signals: &mut Signals,
) -> Result<Ending, Exit> {
    let environment = Environment::of_grant(options, session, leadership.token().0);
    loop {
        let ending = run(options, session, Hold::Office(leadership), work, &environment, None, signals).await?;
        if !again.restart || ending.is_lost || ending.is_asked_to_end || ending.is_not_run() {
            return Ok(ending);
        }
        tokio::select! {
            paused = pause(PAUSE, signals) => paused?,
            () = leadership.ended() => return Ok(Ending { code: FAILED, is_lost: true, ..ending }),
        }
    }
}
