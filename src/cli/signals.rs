//! Signals that stop a long-running command.

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
