//! Children of this process: those that it started, and the orphans that it adopts.
//!
//! Processes of COMMAND that lose their parent become children of this process. Some init processes
//! of containers reap none, so orphans are reaped here as soon as they end. An orphan may also have
//! left COMMAND's process group, as `timeout` and the jobs of an interactive shell do. It must not
//! outlive the grant either.

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid};
use std::convert::Infallible;
use std::fs::DirEntry;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The children that this process started. Their owners reap them.
static STARTED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn started() -> MutexGuard<'static, Vec<Pid>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process has had children that it did not start.
///
/// They were there before this program, which its process began to run by `exec`.
static HAS_FOREIGN: OnceLock<bool> = OnceLock::new();

/// Makes the orphans of COMMAND children of this process, from now on.
pub(super) fn adopt_orphans() {
    let kinds = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let has_children = || !matches!(rustix::process::waitid(WaitId::All, kinds), Err(rustix::io::Errno::CHILD));
    HAS_FOREIGN.get_or_init(has_children);
    // The first process of a container may not do that, and has them already.
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
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

/// Reaps a child if it has ended; returns whether it has. A tracer may still hold a zombie.
fn reap(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    matches!(rustix::process::waitid(WaitId::Pid(child), options), Ok(Some(_)))
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

/// The processes of a COMMAND.
#[derive(Default)]
pub(super) struct Members {
    /// Those of its process group that run.
    pub(super) living: Vec<Pid>,
    /// Whether zombies are in the group, its first process aside.
    pub(super) has_zombies: bool,
    /// Orphans that have left the group, but are no daemons.
    pub(super) orphans: Vec<Pid>,
}

/// Returns the processes of the COMMAND with this group, and reaps orphans that have ended; `None`
/// without `/proc`.
pub(super) fn members(group: Pid) -> Option<Members> {
    let (members, has_reaped) = look(group)?;
    // The look may have come too early for the children of one that ended meanwhile. A COMMAND that
    // makes orphans without end must not keep this process: the caller looks again.
    if has_reaped { look(group).map(|(members, _)| members) } else { Some(members) }
}

/// Looks at each process; also returns whether orphans were reaped.
fn look(group: Pid) -> Option<(Members, bool)> {
    let (mut members, mut has_reaped) = (Members::default(), false);
    for process in processes()? {
        if process.is_zombie && process.is_adopted() {
            has_reaped |= reap(process.pid);
        } else if process.is_in(group) {
            if !process.is_zombie {
                members.living.push(process.pid);
            }
            members.has_zombies |= process.is_zombie && process.pid != group;
        } else if process.is_orphan() {
            members.orphans.push(process.pid);
        }
    }
    Some((members, has_reaped))
}

/// Returns whether a process runs and is one of the COMMAND with this group.
pub(super) fn is_member(process: Pid, group: Pid) -> bool {
    Process::read(process).is_some_and(|process| !process.is_zombie && (process.is_in(group) || process.is_orphan()))
}

/// Returns whether this process can tell the orphans of COMMAND from its other children.
pub(super) fn knows_orphans() -> bool {
    HAS_FOREIGN.get() == Some(&false)
}

/// Returns the other children of the parent of this process that run and are no daemons.
pub(super) fn siblings(parent: Pid) -> Vec<Pid> {
    let Some(own) = Process::read(getpid()) else { return Vec::new() };
    let is_sibling = |process: &Process| {
        process.pid != own.pid
            && process.parent == parent.as_raw_nonzero().get()
            && process.session == own.session
            && !process.is_zombie
    };
    processes().into_iter().flatten().filter(is_sibling).map(|process| process.pid).collect()
}

/// Returns the processes that this one can see; `None` without `/proc`.
fn processes() -> Option<impl Iterator<Item = Process>> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let pid = |entry: io::Result<DirEntry>| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?);
    Some(entries.filter_map(pid).filter_map(Process::read))
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
    session: i32,
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
        Some(Self { pid, parent: number(1)?, group: number(2)?, session: number(3)?, is_zombie })
    }

    fn is_in(&self, group: Pid) -> bool {
        self.group == group.as_raw_nonzero().get()
    }

    fn is_adopted(&self) -> bool {
        self.parent == getpid().as_raw_nonzero().get() && !started().contains(&self.pid)
    }

    /// Returns whether it is an orphan of COMMAND and no daemon, which has a session of its own.
    fn is_orphan(&self) -> bool {
        let is_in_session = || Self::read(getpid()).is_some_and(|own| own.session == self.session);
        self.is_adopted() && knows_orphans() && is_in_session()
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
