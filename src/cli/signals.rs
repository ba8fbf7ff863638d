//! Signals that stop a long-running command, and the end of a process by a signal.

use super::Exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing::info;

/// SIGINT (Ctrl-C) and SIGTERM (`kill`).
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Registers the handlers; must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The system refuses to register a handler.
    pub(super) fn new() -> Result<Self, Exit> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(Exit::failed)?,
            terminate: signal(SignalKind::terminate()).map_err(Exit::failed)?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The stop signals of a server, received on a separate thread from before its start.
///
/// The kernel does not deliver an unhandled signal to the first process of a container. Without
/// this thread, a server waiting for its disk there could not be stopped.
pub(super) struct Stop {
    is_serving: Arc<AtomicBool>,
    first: oneshot::Receiver<()>,
}

impl Stop {
    /// Starts to receive signals.
    ///
    /// Before [`Stop::serves`], a signal ends the process at once with exit code `early`. No client
    /// has been served yet, and the disk is as after a power cut. Afterwards the first signal is
    /// passed on, and the second ends the process.
    ///
    /// # Errors
    /// The system refuses the handlers or the thread.
    pub(super) fn listen(early: i32) -> Result<Self, Exit> {
        let (passed_on, first) = oneshot::channel();
        let (installed, are_installed) = mpsc::channel();
        let is_serving = Arc::new(AtomicBool::new(false));
        let serving = is_serving.clone();
        let hear = move || {
            let signals = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(Exit::failed);
            let signals = signals.and_then(|runtime| {
                let made = {
                    let _context = runtime.enter();
                    StopSignals::new()
                };
                made.map(|signals| (runtime, signals))
            });
            let (runtime, mut signals) = match signals {
                Ok(both) => both,
                Err(error) => return drop(installed.send(Err(error))),
            };
            let _ = installed.send(Ok(()));
            runtime.block_on(signals.next());
            if !serving.load(Ordering::Acquire) {
                info!("ended by a signal before serving");
                std::process::exit(early);
            }
            let _ = passed_on.send(());
            runtime.block_on(signals.next());
            std::process::exit(1);
        };
        std::thread::Builder::new().name("zoolet-signals".to_owned()).spawn(hear).map_err(Exit::failed)?;
        match are_installed.recv() {
            Ok(Ok(())) => Ok(Self { is_serving, first }),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(Exit::failed(error)),
        }
    }

    /// Passes the first signal on from now on, instead of ending the process.
    pub(super) fn serves(&self) {
        self.is_serving.store(true, Ordering::Release);
    }

    /// Waits for the first signal.
    pub(super) async fn asked(self) {
        // The sender cannot be dropped first: its thread lives as long as the process.
        let _ = self.first.await;
    }
}

/// Returns whether this process ignores a signal; `false` if that is unknown.
///
/// The starter of a process decides that: `nohup` ignores HUP, and a shell ignores INT of a job in
/// the background. A handler would replace the starter's wish.
#[cfg(feature = "tools")]
pub(super) fn is_ignored(signal: rustix::process::Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Signal 1 is the lowest bit.
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored >> (signal.as_raw() - 1) & 1 == 1
}

/// Ends this process by a signal, so that the shell which started it ends its script.
///
/// A shell goes on if a command ends with a code after Ctrl-C. `of_group` sends the signal to the
/// whole process group, for a Ctrl-C that has not reached the shell itself. Returns if the signal is
/// blocked, or if the kernel protects this process as the first one of a container.
#[cfg(feature = "tools")]
pub(super) fn end_by(signal: rustix::process::Signal, of_group: bool) {
    // QUIT would write a core file.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    #[allow(unsafe_code, reason = "the C library's function has no safe interface")]
    // SAFETY: `SIG_DFL` runs no code of this process.
    unsafe {
        libc::signal(signal.as_raw(), libc::SIG_DFL);
    }
    let _ = if of_group {
        rustix::process::kill_current_process_group(signal)
    } else {
        rustix::process::kill_process(rustix::process::getpid(), signal)
    };
}
