//! Signals that this process receives, and signals that it sends.

use super::terminal::Terminal;
use crate::cli::signals::{end_by, is_ignored};
use std::io;
use std::task::Poll;
use tokio::signal::unix::{SignalKind, signal};

/// A signal that this process passes on or sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cli) enum Signal {
    Hup,
    Int,
    Quit,
    Usr1,
    Usr2,
    Term,
    Cont,
    Stop,
    Kill,
}

impl Signal {
    pub(in crate::cli) const ALL: [Self; 9] =
        [Self::Hup, Self::Int, Self::Quit, Self::Usr1, Self::Usr2, Self::Term, Self::Cont, Self::Stop, Self::Kill];

    /// The signals that this process passes on to COMMAND.
    const PASSED_ON: [Self; 6] = [Self::Hup, Self::Int, Self::Quit, Self::Usr1, Self::Usr2, Self::Term];

    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Self::Hup => "HUP",
            Self::Int => "INT",
            Self::Quit => "QUIT",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Term => "TERM",
            Self::Cont => "CONT",
            Self::Stop => "STOP",
            Self::Kill => "KILL",
        }
    }

    pub(super) fn system(self) -> rustix::process::Signal {
        use rustix::process::Signal as S;
        match self {
            Self::Hup => S::HUP,
            Self::Int => S::INT,
            Self::Quit => S::QUIT,
            Self::Usr1 => S::USR1,
            Self::Usr2 => S::USR2,
            Self::Term => S::TERM,
            Self::Cont => S::CONT,
            Self::Stop => S::STOP,
            Self::Kill => S::KILL,
        }
    }

    /// Returns whether its sender wants this process to end.
    pub(super) fn ends(self) -> bool {
        matches!(self, Self::Int | Self::Quit | Self::Term)
    }

    /// Returns the exit code of a process that the signal ends.
    pub(super) fn exit_code(self) -> u8 {
        128 + u8::try_from(self.system().as_raw()).unwrap_or(0)
    }
}

/// The signals that this process passes on.
pub(super) struct Signals {
    handlers: Vec<(Signal, tokio::signal::unix::Signal)>,
    /// Whether a signal for COMMAND is dropped while there is no COMMAND.
    pub(super) is_standby: bool,
    /// Whether this process began with a terminal. Its end sends HUP.
    has_terminal: bool,
    /// The signal of a terminal's key that ends this process.
    pub(super) interrupted: Option<Interrupt>,
}

/// A signal of a terminal's key.
#[derive(Clone, Copy)]
pub(super) struct Interrupt {
    pub(super) signal: Signal,
    /// Whether the terminal sent it to COMMAND instead of the group of this process.
    pub(super) is_commands: bool,
}

impl Signals {
    /// Registers the handlers; must be called inside a tokio runtime.
    ///
    /// A signal that the starter of this process ignores stays ignored: `nohup` ignores HUP, and a
    /// shell ignores INT of a job in the background. A handler would make COMMAND receive it.
    pub(super) fn new() -> io::Result<Self> {
        let heard = Signal::PASSED_ON.into_iter().filter(|signal| !is_ignored(signal.system()));
        let with_handler = |heard: Signal| Ok((heard, signal(SignalKind::from_raw(heard.system().as_raw()))?));
        Ok(Self {
            handlers: heard.map(with_handler).collect::<io::Result<_>>()?,
            is_standby: false,
            has_terminal: Terminal::open().is_some(),
            interrupted: None,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        let next = std::future::poll_fn(|context| {
            for (signal, handler) in &mut self.handlers {
                if handler.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await;
        self.note_interrupt(next, false);
        next
    }

    /// Waits for a signal that ends this process while it has no COMMAND. Cancel-safe.
    pub(super) async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            let is_end = signal.ends() || signal == Signal::Hup && self.has_terminal;
            if is_end || !self.is_standby {
                return signal;
            }
        }
    }

    /// Notes a signal if a key of a terminal sends it.
    pub(super) fn note_interrupt(&mut self, signal: Signal, is_commands: bool) {
        if matches!(signal, Signal::Int | Signal::Quit) {
            self.interrupted = Some(Interrupt { signal, is_commands });
        }
    }
}

/// Keeps a terminal's stop key from stopping this process, from now on.
///
/// Unlike an ignored signal, that does not pass to programs which this process starts.
pub(super) fn disable_stop_key() -> io::Result<()> {
    if !is_ignored(rustix::process::Signal::TSTP) {
        let _ = signal(SignalKind::from_raw(libc::SIGTSTP))?;
    }
    Ok(())
}

/// Ignores a signal from now on, in this process and in those that it starts later.
pub(super) fn ignore(signal: rustix::process::Signal) {
    #[allow(unsafe_code, reason = "the C library's function has no safe interface")]
    // SAFETY: `SIG_IGN` runs no code of this process.
    unsafe {
        libc::signal(signal.as_raw(), libc::SIG_IGN);
    }
}

/// Blocks or unblocks a signal in this thread.
pub(super) fn block(signal: rustix::process::Signal, is_blocked: bool) {
    let how = if is_blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    #[allow(unsafe_code, reason = "the C library's functions have no safe interface")]
    // SAFETY: a set of signals may be zero, and the functions write to nothing but this one.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal.as_raw());
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Ends this process as [`end_by`] does.
pub(super) fn die_of(Interrupt { signal, is_commands }: Interrupt) {
    end_by(signal.system(), is_commands);
}
