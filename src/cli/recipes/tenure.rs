//! Runs COMMAND while a grant stands, and ends it before another participant may have the grant.

use super::environment::Environment;
use super::running::{End, Event, Running};
use super::session::ended;
use super::{Exit, FAILED, NOT_EXECUTABLE, NOT_FOUND, Options, Signal, Signals, Work};
use crate::cli::complain;
use futures_core::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use zoolet_model::SessionState;
use zoolet_recipes::{Coordinator, Grant, Holding, Holdings, Instant, Leadership, Remote, remote};

/// Parts of the session's timeout before the safe instant: zoolet kills COMMAND at the first, the
/// watchdog at the second. A signal takes a moment to act on a busy machine.
const KILL_BEFORE_ONE_IN: u32 = 20;
const WATCHDOG_BEFORE_ONE_IN: u32 = 40;

/// The least part of the session's timeout that COMMAND has before it is told. COMMAND is not
/// started later.
const START_BEFORE_ONE_IN: u32 = 10;

/// The part of the session's timeout that the grace may take.
///
/// A healthy session is safe for at least half of its timeout. The grace and the parts above must
/// end before that, or COMMAND would never start.
pub(in crate::cli) const GRACE_ONE_IN: u32 = 5;

/// The grant or claim under which COMMAND runs.
#[derive(Clone, Copy)]
pub(super) enum Hold<'a> {
    /// A lock or a permit.
    Grant(&'a Grant<Remote>),
    Office(&'a Leadership<Remote>),
    /// A claim, which ends with its session.
    Session(&'a Remote),
}

/// How COMMAND ended.
pub(super) struct Ending {
    pub(super) code: u8,
    /// Whether zoolet ended COMMAND, or would have: the grant was in doubt or lost.
    pub(super) is_lost: bool,
    /// Whether the user or an init system asked for the end, by a signal.
    pub(super) is_asked_to_end: bool,
}

impl Ending {
    /// `signals` are those that this process got and passed on.
    pub(super) fn new(end: &End, is_lost: bool, signals: &mut Signals, passed_on: &[Signal]) -> Self {
        let keys = [Signal::Int, Signal::Quit];
        let key = keys.into_iter().find(|key| end.had_terminal && end.code == key.exit_code());
        if let Some(key) = key.filter(|key| end.died_of == Some(*key)) {
            // The terminal has sent it to COMMAND alone.
            signals.note_interrupt(key, true);
        }
        // HUP may also have asked COMMAND to read its configuration again.
        let is_end = |signal: &Signal| signal.ends() || end.died_of == Some(*signal);
        let is_asked_to_end = key.is_some() || passed_on.iter().chain(&end.signals).any(is_end);
        Self { code: if is_lost { FAILED } else { end.code }, is_lost, is_asked_to_end }
    }

    /// Returns whether this box cannot run COMMAND, by the exit code. Another box may.
    pub(super) fn is_not_run(&self) -> bool {
        matches!(self.code, NOT_EXECUTABLE | NOT_FOUND)
    }
}

impl Hold<'_> {
    fn safe_until(self) -> Instant {
        match self {
            Self::Grant(grant) => grant.safe_until().instant(),
            Self::Office(leadership) => leadership.safe_until().instant(),
            Self::Session(session) => session.safe_until(),
        }
    }

    fn changes(self) -> Changes {
        match self {
            Self::Grant(grant) => Changes::OfGrant(Box::new(grant.holdings())),
            Self::Office(leadership) => Changes::OfGrant(Box::new(leadership.holdings())),
            Self::Session(session) => Changes::OfSession(session.states()),
        }
    }
}

/// The states of that grant or claim.
enum Changes {
    OfGrant(Box<Holdings<Remote>>),
    OfSession(remote::States),
}

impl Changes {
    /// Returns the present state at first, then each change. Cancel-safe.
    async fn next(&mut self) -> Holding {
        let next = match self {
            Self::OfGrant(holdings) => poll_fn(|context| Pin::new(&mut **holdings).poll_next(context)).await,
            Self::OfSession(states) => {
                let state = poll_fn(|context| Pin::new(&mut *states).poll_next(context)).await;
                state.map(|state| match state {
                    SessionState::Connected => Holding::Held,
                    SessionState::Suspended | SessionState::ReadOnly => {
                        Holding::Doubtful { safe_until: Instant::START }
                    }
                    SessionState::Lost(_) | SessionState::AuthFailed | SessionState::Closed => Holding::Lost,
                })
            }
        };
        next.unwrap_or(Holding::Lost)
    }
}

/// Runs COMMAND under `hold`, with the variables of `environment`.
///
/// # Errors
/// COMMAND cannot be started, or the grant is lost before.
pub(super) async fn run(
    options: &Options,
    session: &Remote,
    hold: Hold<'_>,
    work: &Work,
    environment: &Environment,
    input: Option<&[u8]>,
    signals: &mut Signals,
) -> Result<Ending, Exit> {
    // The server may have granted a shorter timeout than requested.
    let grace = work.grace.min(session.session_timeout() / GRACE_ONE_IN);
    let mut tenure = Tenure { session, hold, work, grace, holding: Holding::Held, told: None, is_killed: false };
    let mut changes = hold.changes();
    // Before COMMAND starts, the session must be known to live for long enough.
    let margin = session.session_timeout() / START_BEFORE_ONE_IN;
    while session.now() >= tenure.tell_at().saturating_sub(margin) {
        let soon = session.now().saturating_add(session.session_timeout() / 100);
        tokio::select! {
            Holding::Lost = changes.next() => {
                return Err(Exit::new(FAILED, format!("{}: lost before COMMAND was started", options.path)));
            }
            exit = ended(signals) => return Err(exit),
            () = session.timer(soon) => {}
        }
    }
    let mut running = Running::prepare(&work.command, environment, input)?;
    // The watchdog learns when COMMAND must end before COMMAND begins.
    tenure.act(options, &mut running);
    running.go();
    let mut passed_on = Vec::new();
    loop {
        tenure.act(options, &mut running);
        tokio::select! {
            event = running.event() => match event {
                Event::Ended => break,
                Event::NeedsTerminal => tenure.refuse_terminal(options, &running),
            },
            signal = signals.next() => {
                passed_on.push(signal);
                running.signal(signal);
            }
            holding = changes.next(), if tenure.holding != Holding::Lost => tenure.change(holding, &running),
            () = session.timer(tenure.next()) => {}
        }
    }
    let grace = grace.min(tenure.kill_at().remaining(session.now()));
    // The grant may also end while the rest of COMMAND's group ends.
    let end = running.finish(options, grace, tenure.over(&mut changes), signals).await?;
    let is_lost = tenure.told.is_some() || tenure.is_over();
    if is_lost && tenure.told.is_none() {
        let (path, why) = (&options.path, tenure.why_over());
        complain(&format!("{path}: {why} before all processes of COMMAND had ended"));
    }
    Ok(Ending::new(&end, is_lost, signals, &passed_on))
}

/// COMMAND's time under a grant.
struct Tenure<'a> {
    session: &'a Remote,
    hold: Hold<'a>,
    work: &'a Work,
    /// Time between telling and killing COMMAND.
    grace: Duration,
    holding: Holding,
    /// When COMMAND was told that the grant may soon be over.
    told: Option<Instant>,
    is_killed: bool,
}

impl Tenure<'_> {
    /// Returns the instant at which COMMAND is killed, unless the session is heard of before.
    fn kill_at(&self) -> Instant {
        self.hold.safe_until().saturating_sub(self.session.session_timeout() / KILL_BEFORE_ONE_IN)
    }

    /// Returns the instant at which COMMAND is told, unless the session is heard of before.
    fn tell_at(&self) -> Instant {
        self.kill_at().saturating_sub(self.grace)
    }

    /// Returns whether no process of COMMAND may run on.
    fn is_over(&self) -> bool {
        self.holding == Holding::Lost || self.session.now() >= self.kill_at()
    }

    fn why_over(&self) -> &'static str {
        if self.holding == Holding::Lost { "lost" } else { "about to be lost" }
    }

    /// Waits until no process of COMMAND may run on.
    async fn over(&mut self, changes: &mut Changes) {
        while !self.is_over() {
            tokio::select! {
                holding = changes.next() => self.holding = holding,
                () = self.session.timer(self.kill_at()) => {}
            }
        }
    }

    /// Tells or kills COMMAND if it is time.
    fn act(&mut self, options: &Options, running: &mut Running) {
        let (now, timeout) = (self.session.now(), self.session.session_timeout());
        running.watchdog.allow_until(self.hold.safe_until().saturating_sub(timeout / WATCHDOG_BEFORE_ONE_IN));
        let path = &options.path;
        if self.is_over() || self.told.is_some_and(|told| now >= told.saturating_add(self.grace)) {
            if !self.is_killed {
                running.signal(Signal::Kill);
                self.is_killed = true;
                complain(&format!("{path}: {}: killed COMMAND", self.why_over()));
            }
            self.told.get_or_insert(now);
        } else if self.told.is_none() && now >= self.tell_at() {
            self.told = Some(now);
            running.signal(self.work.lost);
            if self.work.doubt == Some(Signal::Stop) {
                running.signal(Signal::Cont);
            }
            let (name, grace) = (self.work.lost.name(), self.grace.as_secs_f64());
            complain(&format!(
                "{path}: no server has answered for too long: sent {name} to COMMAND; KILL in {grace} s"
            ));
        }
    }

    /// Returns when to act next. The safe instant moves on meanwhile.
    fn next(&self) -> Instant {
        let soon = self.session.now().saturating_add(self.session.session_timeout() / 8);
        match self.told {
            _ if self.is_killed => soon,
            Some(told) => told.saturating_add(self.grace).min(self.kill_at()).min(soon),
            None => self.tell_at().min(soon),
        }
    }

    /// Ends COMMAND, because the terminal that it uses is another program's.
    ///
    /// Continued, it would only be stopped again, and keep the grant.
    fn refuse_terminal(&mut self, options: &Options, running: &Running) {
        if self.told.is_none() {
            self.told = Some(self.session.now());
            complain(&no_terminal(options));
            running.signal(Signal::Term);
            running.signal(Signal::Cont);
        }
    }

    /// Notes a change, and tells COMMAND of the beginning of a doubt.
    fn change(&mut self, holding: Holding, running: &Running) {
        let signal = self.work.doubt.filter(|_| self.told.is_none());
        if let Some(signal) = signal.and_then(|signal| signal_of_change(signal, self.holding, holding)) {
            running.signal(signal);
        }
        self.holding = holding;
    }
}

/// Tells why COMMAND was ended.
pub(super) fn no_terminal(options: &Options) -> String {
    let path = &options.path;
    format!(
        "{path}: COMMAND needs the terminal, but zoolet runs in the background: ended COMMAND; run zoolet in the \
         foreground, or give COMMAND all that it asks for in files or options"
    )
}

/// Returns the signal that COMMAND gets for a change, with `doubt` as the signal of a doubt.
fn signal_of_change(doubt: Signal, before: Holding, now: Holding) -> Option<Signal> {
    let is_doubtful = |holding| matches!(holding, Holding::Doubtful { .. });
    if !is_doubtful(before) && is_doubtful(now) {
        return Some(doubt);
    }
    // At a loss, COMMAND must not run once more before it is killed.
    let is_over = is_doubtful(before) && now == Holding::Held;
    (is_over && doubt == Signal::Stop).then_some(Signal::Cont)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_command_is_continued_only_while_its_grant_stands() {
        let doubtful = Holding::Doubtful { safe_until: Instant::START };
        for (doubt, before, now, expected) in [
            (Signal::Stop, Holding::Held, doubtful, Some(Signal::Stop)),
            (Signal::Stop, doubtful, doubtful, None),
            (Signal::Stop, doubtful, Holding::Held, Some(Signal::Cont)),
            (Signal::Stop, doubtful, Holding::Lost, None),
            (Signal::Usr1, Holding::Held, doubtful, Some(Signal::Usr1)),
            (Signal::Usr1, doubtful, Holding::Held, None),
        ] {
            assert_eq!(signal_of_change(doubt, before, now), expected, "{doubt:?}: {before:?} to {now:?}");
        }
    }
}
