//! The end of the shell by a signal: the session is closed first, and then the process dies of it.

use super::client::{Interrupts, Session};
use crate::cli::signals::{end_by, is_ignored};
use rustix::process::Signal;
use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// Maximum time for a running command to end, and for the server to close the session.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks at a command that repairs what it leaves.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// The signals that end the shell. At a terminal, Ctrl-C ends the command alone.
const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// The signal that ends this shell, and the session that is open until then.
#[derive(Default)]
pub(super) struct Ending {
    signal: Mutex<Option<Signal>>,
    /// The open session. Its taker closes it: the shell, or the task of a signal.
    session: Mutex<Option<Session>>,
    /// Whether the shell closes its session.
    is_closing: AtomicBool,
}

impl Ending {
    /// Notes a new session.
    pub(super) fn keep(&self, session: &Session) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
    }

    /// Closes a session, unless a signal does. Then this process ends meanwhile.
    pub(super) fn close(&self, session: Session) {
        // Set first: a signal that finds no session must find that the shell closes it.
        self.is_closing.store(true, Ordering::Relaxed);
        let is_left = self.take().is_some();
        if is_left {
            session.close();
        }
        self.is_closing.store(false, Ordering::Relaxed);
        if !is_left {
            std::thread::sleep(CLOSE_MAX);
        }
    }

    fn take(&self) -> Option<Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the signal that ends this shell.
    pub(super) fn signal(&self) -> Option<Signal> {
        *self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the signal; returns whether it is the first one.
    fn note(&self, signal: Signal) -> bool {
        let mut noted = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        noted.replace(signal).is_none()
    }
}

/// The parts of the shell on which a signal acts.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) ending: Arc<Ending>,
    pub(super) interrupts: Arc<Interrupts>,
    /// Whether a command runs.
    pub(super) is_busy: Arc<AtomicBool>,
    pub(super) is_interactive: bool,
}

impl Scene {
    /// Listens to the signals from now on.
    ///
    /// A script in the background goes on after Ctrl-C, and one of `nohup` after its terminal: the
    /// starter of the process lets it ignore these signals.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(super) fn listen(&self, handle: &Handle) -> io::Result<()> {
        let _inside = handle.enter();
        for heard in SIGNALS {
            let is_key = heard == Signal::INT && self.is_interactive;
            if is_ignored(heard) && !is_key {
                continue;
            }
            let mut signals = signal(SignalKind::from_raw(heard.as_raw()))?;
            let scene = self.clone();
            handle.spawn(async move {
                while signals.recv().await.is_some() {
                    scene.on_signal(heard, is_key).await;
                }
            });
        }
        Ok(())
    }

    async fn on_signal(&self, heard: Signal, is_key: bool) {
        if is_key {
            return self.interrupts.strike();
        }
        // Looked at first: a command that the interrupt ends still has to say so.
        let was_busy = self.is_busy.load(Ordering::Relaxed);
        let is_first = self.ending.note(heard);
        self.interrupts.strike();
        if was_busy {
            // The command ends with its message, and then the shell by itself.
            if heard == Signal::INT && is_first {
                return;
            }
            sleep(CLOSE_MAX).await;
            while self.interrupts.is_tidying() {
                sleep(LOOK_AFTER).await;
            }
        }
        if let Some(session) = self.ending.take() {
            session.close_within(CLOSE_MAX).await;
        }
        // The shell bounds the time for that.
        while self.ending.is_closing.load(Ordering::Relaxed) {
            sleep(LOOK_AFTER).await;
        }
        die_of(heard);
    }
}

/// Ends this process by a signal: a script that started it then ends too, unlike after an exit code.
pub(super) fn die_of(signal: Signal) -> ! {
    end_by(signal, false);
    // Only the first process of a container gets here.
    process::exit(128 + signal.as_raw())
}
