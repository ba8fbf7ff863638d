//! Signals that this process receives, and signals that it sends.

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
pub(super) struct Signals(Vec<(Signal, tokio::signal::unix::Signal)>);

impl Signals {
    /// Registers the handlers; must be called inside a tokio runtime.
    ///
    /// A signal that the starter of this process ignores stays ignored: `nohup` ignores HUP, and a
    /// shell ignores INT of a job in the background. A handler would make COMMAND receive it.
    pub(super) fn new() -> io::Result<Self> {
        let ignored = ignored();
        let heard = Signal::PASSED_ON.into_iter().filter(|signal| ignored >> (signal.system().as_raw() - 1) & 1 == 0);
        let with_handler = |heard: Signal| Ok((heard, signal(SignalKind::from_raw(heard.system().as_raw()))?));
        heard.map(with_handler).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (signal, handler) in &mut self.0 {
                if handler.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Returns the set of ignored signals, signal 1 in the lowest bit; empty if it is unknown.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Ignores a signal from now on, in this process and in those that it starts later.
pub(super) fn ignore(signal: rustix::process::Signal) {
    #[allow(unsafe_code, reason = "the C library's function has no safe interface")]
    // SAFETY: `SIG_IGN` runs no code of this process.
    unsafe {
        libc::signal(signal.as_raw(), libc::SIG_IGN);
    }
}
