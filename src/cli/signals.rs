//! What ends a command that runs until it is told to.

use super::Exit;
use tokio::signal::unix::{Signal, SignalKind, signal};

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
