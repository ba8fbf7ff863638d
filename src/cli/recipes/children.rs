//! Children of this process: those that it started, and the orphans that it adopts.
//!
//! Processes of COMMAND that lose their parent become children of this process, because some init
//! processes of containers reap none. They are reaped here as soon as they end.

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid};
use std::convert::Infallible;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The children that this process started. Their owners reap them.
static STARTED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn started() -> MutexGuard<'static, Vec<Pid>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that this one started.
pub(super) struct Started {
    child: Child,
    pid: Pid,
}

impl Started {
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        started().push(pid);
        Ok(Self { child, pid })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns whether a signal has ended it. Does not reap it.
    pub(super) fn is_killed(&self) -> bool {
        let kinds = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::Pid(self.pid), kinds);
        status.is_ok_and(|status| status.is_some_and(|status| status.killed() || status.dumped()))
    }

    /// Waits for its end, and frees its number.
    pub(super) fn reap(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Kills and reaps it.
    pub(super) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        started().retain(|pid| *pid != self.pid);
    }
}

/// Returns a stream that yields when a child has ended or stopped. Call it before starting one.
///
/// # Errors
/// The handler cannot be registered.
pub(super) fn changes() -> io::Result<Signal> {
    // A starter that ignores this signal would make the kernel reap children, and lose their exit
    // codes. The handler ends that.
    super::signals::block(rustix::process::Signal::CHILD, false);
    signal(SignalKind::child())
}

/// Reaps orphans for ever.
///
/// # Errors
/// The handler cannot be registered.
pub(super) async fn reap_orphans() -> io::Result<Infallible> {
    let mut changes = changes()?;
    loop {
        // A child that this process started hides later ones until its owner reaps it.
        while let Some(ended) = ended_child().filter(|ended| !started().contains(ended)) {
            reap(ended);
        }
        changes.recv().await;
    }
}

/// Reaps a child if it has ended.
fn reap(child: Pid) {
    let _ = rustix::process::waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

/// Returns a child that has ended and is not reaped; `None` if there is none.
#[allow(unsafe_code, reason = "rustix does not tell the process that it has found")]
fn ended_child() -> Option<Pid> {
    let kinds = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all of its fields may be zero.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes only to `found`.
    let is_done = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut found, kinds) } == 0;
    // SAFETY: `waitid` has set the field, or left it zero if it has found none.
    let pid = unsafe { found.si_pid() };
    Pid::from_raw(pid).filter(|_| is_done)
}

/// The processes of a group.
pub(super) struct Members {
    pub(super) living: Vec<Pid>,
    /// Whether zombies are among them, the group's first process aside.
    pub(super) has_zombies: bool,
}

/// Returns the processes of a group, and reaps those that are orphans; `None` without `/proc`.
pub(super) fn members(group: Pid) -> Option<Members> {
    let mut members = Members { living: Vec::new(), has_zombies: false };
    for entry in std::fs::read_dir("/proc").ok()? {
        let pid = entry.ok().and_then(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
        let Some(process) = pid.and_then(Process::read) else { continue };
        if process.is_zombie && process.parent == getpid().as_raw_nonzero().get() && !started().contains(&process.pid) {
            reap(process.pid);
        } else if process.group == group.as_raw_nonzero().get() {
            if !process.is_zombie {
                members.living.push(process.pid);
            }
            members.has_zombies |= process.is_zombie && process.pid != group;
        }
    }
    Some(members)
}

/// Returns whether a process runs and is in the group.
pub(super) fn is_member(process: Pid, group: Pid) -> bool {
    Process::read(process).is_some_and(|process| !process.is_zombie && process.group == group.as_raw_nonzero().get())
}

/// Returns the name of a process; empty if it is unknown.
pub(super) fn name(process: Pid) -> String {
    let name = std::fs::read(format!("/proc/{}/comm", process.as_raw_nonzero())).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii()).into_owned()
}

/// Facts of a process in `/proc`.
struct Process {
    pid: Pid,
    parent: i32,
    group: i32,
    is_zombie: bool,
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        let text = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(pid, &String::from_utf8_lossy(&text))
    }

    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        // The name before may have any characters.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |field: usize| fields.get(field)?.parse::<i32>().ok();
        // A process whose first thread has ended looks like a zombie, but has other threads.
        let is_zombie = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
        Some(Self { pid, parent: number(1)?, group: number(2)?, is_zombie })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombie_with_threads_is_a_living_process() {
        let process = |state: &str, threads: u32| {
            let rest = format!("7 9 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 100");
            Process::parse(getpid(), &format!("12 (a) Z (b) {state} {rest}")).unwrap()
        };
        for (state, threads, is_zombie) in [("S", 1, false), ("Z", 1, true), ("Z", 3, false), ("D", 1, false)] {
            let process = process(state, threads);
            assert_eq!((process.parent, process.group), (7, 9));
            assert_eq!(process.is_zombie, is_zombie, "{state} {threads}");
        }
    }
}
