//! COMMAND as a process: started in a process group of its own, and ended with all of the group.

use super::signals::ignore;
use super::watchdog::Watchdog;
use super::{FAILED, NOT_EXECUTABLE, NOT_FOUND, START, Signal, failed};
use crate::cli::Exit;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpgrp, getpid, kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Seek, Write, stdin};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Pause between two looks at a process group that is ending.
const PAUSE: Duration = Duration::from_millis(5);
/// Bounds the wait of COMMAND for the terminal.
const TERMINAL_WAIT: Duration = Duration::from_secs(1);

/// A command that runs.
pub(super) struct Running {
    child: Child,
    group: Pid,
    ended: oneshot::Receiver<()>,
    pub(super) watchdog: Watchdog,
    /// Dropped when the command has ended.
    terminal: Option<Terminal>,
}

/// Returns this program, also if its file has been replaced.
pub(super) fn this_program() -> OsString {
    let link = "/proc/self/exe";
    if std::fs::exists(link).unwrap_or(false) {
        return link.into();
    }
    std::env::args_os().next().unwrap_or_else(|| "zoolet".into())
}

impl Running {
    /// Starts `command` with more variables in its environment, and `input` on its standard input.
    ///
    /// Must be called by the main thread: the kernel ends the command with the thread that started
    /// it.
    pub(super) fn start(
        command: &[OsString],
        variables: &[(&'static str, String)],
        input: Option<&[u8]>,
    ) -> Result<Self, Exit> {
        // Processes that lose their parent become children of this process, which can then reap
        // them. The first process of a container may not do that.
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
        let terminal = Terminal::of_this_process();
        let mut starting = Command::new(this_program());
        starting.arg0("zoolet").arg(START).arg(getpid().as_raw_nonzero().to_string());
        starting.arg(if terminal.is_some() { "terminal" } else { "" });
        starting.args(command).envs(variables.iter().map(|(name, value)| (name, value))).process_group(0);
        if let Some(input) = input {
            starting.stdin(Stdio::from(file_of(input).map_err(failed)?));
        }
        let mut child = starting.spawn().map_err(failed)?;
        let group = pid_of(&child);
        let (ended, watchdog) = match watched(group) {
            Ok(watched) => watched,
            Err(error) => {
                // Unwatched, it could outlive the grant.
                let _ = kill_process_group(group, rustix::process::Signal::KILL);
                let _ = child.wait();
                return Err(failed(error));
            }
        };
        if let Some(terminal) = &terminal {
            terminal.hand_over(group);
        }
        Ok(Self { watchdog, child, group, ended, terminal })
    }

    /// Waits until COMMAND has ended. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        // The thread sends before it ends.
        let _ = (&mut self.ended).await;
    }

    /// Sends a signal to COMMAND and to all processes of its group.
    pub(super) fn signal(&self, signal: Signal) {
        // The group is gone if COMMAND has ended meanwhile.
        let _ = kill_process_group(self.group, signal.system());
    }

    /// Ends the processes that COMMAND left in its group, and returns its exit code.
    ///
    /// They get TERM, and KILL after `grace`. COMMAND must have ended.
    pub(super) async fn finish(mut self, grace: Duration) -> Result<u8, Exit> {
        // Until COMMAND is reaped, no other group can have the number of its group.
        self.signal(Signal::Term);
        let status = self.child.wait().map_err(failed)?;
        let began = Instant::now();
        let mut is_killed = false;
        while self.has_members() {
            if !is_killed && began.elapsed() >= grace {
                self.signal(Signal::Kill);
                is_killed = true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.watchdog.dismiss();
        drop(self.terminal);
        Ok(code_of(status))
    }

    fn has_members(&self) -> bool {
        while let Ok(Some(_)) = rustix::process::waitpgid(self.group, WaitOptions::NOHANG) {}
        // A process of another user, such as one under sudo, cannot be signalled but is there.
        rustix::process::test_kill_process_group(self.group) != Err(rustix::io::Errno::SRCH)
    }
}

/// Starts the thread that waits for the end of a group's first process, and its watchdog.
fn watched(group: Pid) -> std::io::Result<(oneshot::Receiver<()>, Watchdog)> {
    let (ending, ended) = oneshot::channel();
    std::thread::Builder::new().name("zoolet-command".to_owned()).spawn(move || {
        wait_for_end(group);
        let _ = ending.send(());
    })?;
    Ok((ended, Watchdog::start(group)?))
}

fn pid_of(child: &Child) -> Pid {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.unwrap_or_else(getpid)
}

/// Returns a file without a name that holds `input`.
fn file_of(input: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("item", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(input)?;
    file.rewind()?;
    Ok(file)
}

/// Waits until the process has ended, without reaping it.
fn wait_for_end(pid: Pid) {
    loop {
        let kinds = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::Pid(pid), kinds) {
            Ok(Some(status)) if status.stopped() => {
                let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                let _ = rustix::process::waitid(WaitId::Pid(pid), stopped);
                let terminals = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
                // A command that its terminal has stopped would keep the grant without working.
                if status.stopping_signal().is_some_and(|signal| terminals.contains(&signal)) {
                    let _ = kill_process_group(pid, rustix::process::Signal::CONT);
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().and_then(|signal| u8::try_from(128 + signal).ok());
    status.code().and_then(|code| u8::try_from(code).ok()).or_else(by_signal).unwrap_or(FAILED)
}

/// The terminal of this process, if this process is in its foreground.
///
/// The group of COMMAND is put in the foreground, so that it reads what is typed and receives
/// Ctrl-C.
struct Terminal {
    own: Pid,
}

impl Terminal {
    fn of_this_process() -> Option<Self> {
        let own = getpgrp();
        (stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == own)).then_some(Self { own })
    }

    fn hand_over(&self, group: Pid) {
        // COMMAND runs in the background if that fails.
        let _ = tcsetpgrp(stdin(), group);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The kernel stops a process in the background that takes the terminal back, unless it
        // ignores this signal.
        ignore(rustix::process::Signal::TTOU);
        let _ = tcsetpgrp(stdin(), self.own);
    }
}

/// Becomes COMMAND, which the kernel then kills when zoolet's process ends.
///
/// The words are the process that asks for it, whether COMMAND gets the terminal, and COMMAND.
/// Returns only if COMMAND cannot be run.
pub(in crate::cli) fn start_command(words: &[OsString]) -> Exit {
    let [parent, terminal, program, arguments @ ..] = words else {
        return Exit::usage("this command is for zoolet itself; see zoolet lock --help");
    };
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)) {
        return failed(error);
    }
    // The parent may have ended before the line above.
    let is_parent = |pid: Pid| parent.to_str() == Some(&pid.as_raw_nonzero().to_string());
    if !rustix::process::getppid().is_some_and(is_parent) {
        return Exit::new(FAILED, "");
    }
    let began = Instant::now();
    while terminal == "terminal"
        && tcgetpgrp(stdin()).is_ok_and(|group| group != getpgrp())
        && began.elapsed() < TERMINAL_WAIT
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = Command::new(program).args(arguments).exec();
    not_run(program, &error)
}

fn not_run(program: &OsStr, error: &std::io::Error) -> Exit {
    let (code, remedy) = match error.kind() {
        ErrorKind::NotFound => (NOT_FOUND, "check its name, PATH, and the interpreter in its first line"),
        ErrorKind::PermissionDenied => (NOT_EXECUTABLE, "make it executable (chmod +x), or run it with sh"),
        _ => (NOT_EXECUTABLE, "check that it is a program for this machine, or begins with #!"),
    };
    Exit::new(code, format!("cannot run {}: {error}; {remedy}", program.display()))
}
