//! What ends a command that runs until it is told to.

use super::Exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing::info;

/// Ctrl-C and `kill`.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Inside a runtime.
    ///
    /// # Errors
    /// The system gives no signals.
    pub(super) fn new() -> Result<Self, Exit> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(Exit::failed)?,
            terminate: signal(SignalKind::terminate()).map_err(Exit::failed)?,
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The signals of a server, which are heard on a thread of their own from before its start. The first process of a
/// container ignores a signal that it does not handle: a server that waits for its disk there could not be stopped.
pub(super) struct Stop {
    is_serving: Arc<AtomicBool>,
    first: oneshot::Receiver<()>,
}

impl Stop {
    /// Begins to hear. Until [`Stop::serves`] a signal ends the process at once, with exit code `early`: no client has been served,
    /// and what is on the disk is as after a power cut. Later the first one is passed on, and the second ends the process.
    ///
    /// # Errors
    /// The system gives no signals, or no thread.
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
                    Signals::new()
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
                info!("ended by a signal before it served");
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

    /// From now on the first signal is passed on.
    pub(super) fn serves(&self) {
        self.is_serving.store(true, Ordering::Release);
    }

    /// The first signal.
    pub(super) async fn asked(self) {
        // The thread ends with the process only.
        let _ = self.first.await;
    }
}
