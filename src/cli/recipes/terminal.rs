//! The terminal of this process, and who may read what is typed.

use super::signals::block;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use std::os::fd::OwnedFd;

/// The controlling terminal of this process.
///
/// The process group in its foreground reads what is typed, and receives Ctrl-C.
pub(super) struct Terminal {
    terminal: OwnedFd,
    own: Pid,
    /// The terminal's modes at the hand-over; `None` before it.
    modes: Option<Termios>,
}

impl Terminal {
    /// Returns the terminal; `None` if this process has none.
    pub(super) fn open() -> Option<Self> {
        // A serial line without a carrier would otherwise block.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        Some(Self { terminal, own: getpgrp(), modes: None })
    }

    pub(super) fn is_in_foreground(&self) -> bool {
        tcgetpgrp(&self.terminal).is_ok_and(|group| group == self.own)
    }

    /// Returns whether COMMAND has the terminal, or had it.
    pub(super) fn is_handed_over(&self) -> bool {
        self.modes.is_some()
    }

    /// Puts the group of COMMAND in the foreground.
    ///
    /// Returns whether it is there: this process can hand over only its own place.
    pub(super) fn hand_over(&mut self, group: Pid) -> bool {
        if !self.is_handed_over() && !self.is_in_foreground() {
            return false;
        }
        let Some(modes) = self.modes.take().or_else(|| tcgetattr(&self.terminal).ok()) else { return false };
        let is_done = self.put(group);
        self.modes = is_done.then_some(modes);
        is_done
    }

    /// Takes back what was handed over, with the former modes if COMMAND could not restore them.
    pub(super) fn take_back(&mut self, is_killed: bool) {
        let Some(modes) = self.modes.take() else { return };
        if self.put(self.own) && is_killed {
            let _ = tcsetattr(&self.terminal, OptionalActions::Now, &modes);
        }
    }

    fn put(&self, group: Pid) -> bool {
        // The kernel stops a process in the background that does this, unless it blocks the signal.
        block(Signal::TTOU, true);
        let is_done = tcsetpgrp(&self.terminal, group).is_ok();
        block(Signal::TTOU, false);
        is_done
    }
}
