//! A process that ends COMMAND if zoolet's own process cannot.
//!
//! zoolet tells it an instant again and again. The watchdog kills the process group of COMMAND at
//! that instant, so also while zoolet is stopped or hangs. It kills the group at once if zoolet
//! dies. While zoolet lives, it also kills the processes of COMMAND that have left the group and
//! are children of zoolet now.

use super::children::{Started, knows_orphans, siblings};
use super::running::this_program;
use super::signals::ignore;
use super::{WATCH, failed};
use crate::cli::Exit;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use rustix::time::{timerfd_create, timerfd_settime};
use std::ffi::OsString;
use std::io::{self, PipeWriter, Read, Write, stdin};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use zoolet_recipes::Instant;

/// Bytes of a message: an instant in nanoseconds.
const MESSAGE: usize = 8;
/// Rounds in which orphans are killed, and the pause between two. Each round makes orphans of the
/// children of those that it kills.
const ROUNDS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// The watchdog of a process group.
pub(super) struct Watchdog {
    group: Pid,
    process: Started,
    pipe: PipeWriter,
    told: Option<u64>,
}

impl Watchdog {
    /// Starts the watchdog of `group`.
    pub(super) fn start(group: Pid) -> io::Result<Self> {
        let (process, pipe) = start(group, None)?;
        Ok(Self { group, process, pipe, told: None })
    }

    /// Sets the instant at which it ends COMMAND.
    pub(super) fn allow_until(&mut self, instant: Instant) {
        let told = u64::try_from(instant.since_start().as_nanos()).unwrap_or(u64::MAX).max(1);
        if self.told != Some(told) {
            self.told = Some(told);
            // A watchdog that was killed meanwhile is revived by the next look at it.
            let _ = self.pipe.write_all(&told.to_le_bytes());
        }
    }

    /// Starts it again if another process has killed it.
    ///
    /// A watchdog that ends by itself has killed the group.
    pub(super) fn revive(&mut self) {
        if self.process.is_killed()
            && let Ok((process, pipe)) = start(self.group, self.told)
        {
            self.pipe = pipe;
            let _ = std::mem::replace(&mut self.process, process).reap();
        }
    }

    /// Ends the watchdog, because COMMAND has ended.
    pub(super) fn dismiss(self) {
        // Without its pipe it would end as well, but would first kill the group. A message would
        // not reach it if another process has stopped it.
        self.process.kill();
    }
}

/// Starts a process that finds its instant in the pipe: zoolet may be stopped at any time.
fn start(group: Pid, told: Option<u64>) -> io::Result<(Started, PipeWriter)> {
    let (input, mut pipe) = io::pipe()?;
    // A watchdog that another process has stopped reads nothing, and must not stop this one.
    rustix::io::ioctl_fionbio(&pipe, true)?;
    if let Some(told) = told {
        pipe.write_all(&told.to_le_bytes())?;
    }
    let mut command = Command::new(this_program());
    command.arg0("zoolet").arg(WATCH).arg(group.as_raw_nonzero().to_string());
    if knows_orphans() {
        command.arg(getpid().as_raw_nonzero().to_string());
    }
    command.process_group(0).stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
    Ok((Started::spawn(&mut command)?, pipe))
}

/// Runs the watchdog. The words are the process group, and zoolet's process if its children are
/// COMMAND's.
pub(in crate::cli) fn watch(words: &[OsString]) -> Result<(), Exit> {
    let process = |at: usize| words.get(at).and_then(|word| Pid::from_raw(word.to_str()?.parse().ok()?));
    let Some(group) = process(0) else {
        return Err(Exit::usage("this command is for zoolet itself; see zoolet lock --help"));
    };
    // An init system that stops a service signals all of its processes. This one is still needed
    // until COMMAND has ended.
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].into_iter().for_each(ignore);
    let waited = wait();
    let _ = kill_process_group(group, Signal::KILL);
    if let Some(zoolet) = process(1) {
        kill_orphans(zoolet);
    }
    waited.map_err(failed)
}

/// Kills the orphans that zoolet has adopted. Those of a dead zoolet have another parent.
fn kill_orphans(zoolet: Pid) {
    for _ in 0..ROUNDS_MAX {
        let orphans = siblings(zoolet);
        if orphans.is_empty() || getppid() != Some(zoolet) {
            return;
        }
        for orphan in orphans {
            let _ = kill_process(orphan, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits until COMMAND must end. A watchdog that is no longer needed is killed.
fn wait() -> io::Result<()> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let (mut input, mut bytes) = (stdin().lock(), [0; 512 * MESSAGE]);
    loop {
        let mut heard = [PollFd::new(&input, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
        match poll(&mut heard, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let (speaks, is_due) = (!heard[0].revents().is_empty(), !heard[1].revents().is_empty());
        if speaks {
            let count = input.read(&mut bytes)?;
            let Some(last) = bytes[..count].chunks_exact(MESSAGE).last() else { return Ok(()) };
            let told = last.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
            let at = Duration::from_nanos(told);
            let value =
                Timespec { tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX), tv_nsec: at.subsec_nanos().into() };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once)?;
        } else if is_due {
            return Ok(());
        }
    }
}
