//! Files that commands read. A wait for a FIFO, a pipe or a terminal ends with Ctrl-C.

use super::client::Interrupts;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// The error of a read that Ctrl-C ended. Files give no such error themselves, and readers do not
/// repeat the read, as they would at [`ErrorKind::Interrupted`].
pub(super) const STRUCK: ErrorKind = ErrorKind::ConnectionAborted;
/// Longest time until a wait notices Ctrl-C.
const LOOK_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A file that is being read.
pub(super) struct Input {
    file: File,
    interrupts: Arc<Interrupts>,
}

impl Input {
    /// Opens a file; a FIFO needs no writer yet.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn open(name: &str, interrupts: &Arc<Interrupts>) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(name)?;
        Ok(Self { file, interrupts: interrupts.clone() })
    }

    /// Returns standard input. Its buffer is left out, so nothing else may read it.
    ///
    /// # Errors
    /// Standard input is closed.
    pub(super) fn standard(interrupts: &Arc<Interrupts>) -> io::Result<Self> {
        let file = io::stdin().as_fd().try_clone_to_owned()?.into();
        Ok(Self { file, interrupts: interrupts.clone() })
    }

    /// Returns whether a second opening reads the same bytes again.
    pub(super) fn can_be_read_again(&self) -> bool {
        self.file.metadata().is_ok_and(|facts| facts.is_file())
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.interrupts.is_struck() {
                return Err(STRUCK.into());
            }
            // A FIFO without a writer would seem to be at its end, so the wait precedes the read.
            let ready = match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK_AFTER)) {
                Err(rustix::io::Errno::INTR) => 0,
                other => other?,
            };
            if ready > 0 {
                match self.file.read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    other => return other,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn struck_interrupt_ends_a_read() {
        let interrupts = Interrupts::new();
        let mut input = Input::open("/dev/zero", &interrupts).unwrap();
        assert_eq!(input.read(&mut [1; 10]).unwrap(), 10);
        assert!(!input.can_be_read_again());
        interrupts.strike();
        assert_eq!(input.read(&mut [1; 10]).unwrap_err().kind(), STRUCK);
        assert!(input.read_to_end(&mut Vec::new()).is_err());
        interrupts.begin();
        assert_eq!(input.read(&mut [1; 10]).unwrap(), 10);
    }
}
