//! COMMAND as a process: started in a process group of its own, and ended with all of the group.

use super::children::{Started, adopt_orphans, changes, is_member, members, name};
use super::environment::Environment;
use super::signals::disable_stop_key;
use super::terminal::Terminal;
use super::watchdog::Watchdog;
use super::{FAILED, NOT_EXECUTABLE, NOT_FOUND, Options, START, Signal, Signals, failed};
use crate::cli::{Exit, complain};
use rustix::io::FdFlags;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::future::Future;
use std::io::{ErrorKind, IsTerminal, PipeWriter, Read, Seek, Write, stdin, stdout};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::pin::pin;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Shortest and longest pause between two looks at a process group that is ending.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Time after KILL at which the user is told of processes that have not ended.
const KILL_WAIT: Duration = Duration::from_secs(1);

/// A command that runs.
pub(super) struct Running {
    process: Started,
    group: Pid,
    /// Yields when a child of this process has ended or stopped.
    changes: tokio::signal::unix::Signal,
    pub(super) watchdog: Watchdog,
    terminal: Option<Terminal>,
    /// COMMAND begins when it reads a byte, and never if this is dropped before.
    gate: Option<PipeWriter>,
}

/// An event of a command.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Event {
    Ended,
    /// It is stopped, because it used the terminal of another process group.
    NeedsTerminal,
}

/// How a command ended.
pub(super) struct End {
    pub(super) code: u8,
    /// The signal that ended it, of those that this process passes on.
    pub(super) died_of: Option<Signal>,
    /// Whether it had the terminal, so that this process did not receive Ctrl-C.
    pub(super) had_terminal: bool,
    /// The signals that came while the rest of its group ended.
    pub(super) signals: Vec<Signal>,
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
    /// Prepares `command` with the variables of its grant, and `input` on its standard input.
    /// [`Running::go`] lets it begin.
    ///
    /// Must be called by the main thread: the kernel ends the command with the thread that started
    /// it.
    pub(super) fn prepare(command: &[OsString], environment: &Environment, input: Option<&[u8]>) -> Result<Self, Exit> {
        adopt_orphans();
        let changes = changes().map_err(failed)?;
        // A stopped zoolet could not keep its session.
        disable_stop_key().map_err(failed)?;
        let (waits, gate) = std::io::pipe().map_err(failed)?;
        let mut starting = Command::new(this_program());
        starting.arg0("zoolet").arg(START).arg(getpid().as_raw_nonzero().to_string());
        starting.arg(waits.as_raw_fd().to_string());
        starting.args(command).process_group(0);
        environment.give(&mut starting);
        if let Some(input) = input {
            starting.stdin(Stdio::from(file_of(input).map_err(failed)?));
        }
        rustix::io::fcntl_setfd(&waits, FdFlags::empty()).map_err(failed)?;
        let process = Started::spawn(&mut starting).map_err(failed)?;
        drop(waits);
        let group = process.pid();
        match Watchdog::start(group) {
            Ok(watchdog) => {
                Ok(Self { process, group, changes, watchdog, terminal: Terminal::open(), gate: Some(gate) })
            }
            Err(error) => {
                // Unwatched, it could outlive the grant.
                process.kill();
                Err(failed(error))
            }
        }
    }

    /// Lets the command begin.
    pub(super) fn go(&mut self) {
        // In a pipeline, its neighbours may use the terminal too: it gets the terminal on demand.
        if stdin().is_terminal()
            && stdout().is_terminal()
            && let Some(terminal) = &mut self.terminal
        {
            terminal.hand_over(self.group);
        }
        if let Some(mut gate) = self.gate.take() {
            // It has ended if that fails.
            let _ = gate.write_all(b"x");
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn event(&mut self) -> Event {
        loop {
            self.watchdog.revive();
            let kinds = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            match rustix::process::waitid(WaitId::Pid(self.group), kinds) {
                Ok(Some(status)) if status.stopped() => {
                    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                    let _ = rustix::process::waitid(WaitId::Pid(self.group), stopped);
                    match status.stopping_signal() {
                        // It would keep the grant without working.
                        Some(libc::SIGTSTP) => self.signal(Signal::Cont),
                        Some(libc::SIGTTIN | libc::SIGTTOU) => {
                            let group = self.group;
                            if !self.terminal.as_mut().is_some_and(|terminal| terminal.hand_over(group)) {
                                return Event::NeedsTerminal;
                            }
                            self.signal(Signal::Cont);
                        }
                        _ => {}
                    }
                }
                Ok(Some(_)) => return Event::Ended,
                Ok(None) | Err(rustix::io::Errno::INTR) => {
                    self.changes.recv().await;
                }
                Err(_) => return Event::Ended,
            }
        }
    }

    /// Sends a signal to COMMAND and to all processes of its group.
    pub(super) fn signal(&self, signal: Signal) {
        // Until COMMAND is reaped, no other group can have the number of its group.
        let _ = kill_process_group(self.group, signal.system());
    }

    /// As [`Running::signal`], and to the orphans that have left the group.
    fn signal_all(&self, signal: Signal) {
        self.signal(signal);
        for orphan in members(self.group).unwrap_or_default().orphans {
            // Only this process could reap it, which would free its number.
            let _ = kill_process(orphan, signal.system());
        }
    }

    /// Ends the processes that COMMAND left. COMMAND must have ended.
    ///
    /// They get TERM, KILL after `grace` or once `over` is ready, and meanwhile the signals that
    /// this process gets. The watchdog hears of no renewal meanwhile: it may end them earlier.
    pub(super) async fn finish(
        mut self,
        options: &Options,
        grace: Duration,
        over: impl Future<Output = ()>,
        signals: &mut Signals,
    ) -> Result<End, Exit> {
        self.signal_all(Signal::Term);
        let (began, mut pause, mut heard) = (Instant::now(), PAUSE, Vec::new());
        let (mut is_killed, mut is_told, mut is_over) = (false, false, false);
        let (mut over, mut known) = (pin!(over), None);
        while let Some(left) = self.left(known) {
            known = Some(left);
            if is_over || began.elapsed() >= grace {
                if !is_killed {
                    (is_killed, pause) = (true, PAUSE);
                }
                // The children of an orphan that was killed are orphans themselves. Each look for them
                // reads all processes of the box, so the pause grows while KILL does not end a process.
                self.signal_all(Signal::Kill);
            }
            if !is_told && began.elapsed() >= grace + KILL_WAIT {
                is_told = true;
                let (path, pid, name) = (&options.path, left.as_raw_nonzero(), name(left));
                complain(&format!("{path}: process {pid} ({name}) of COMMAND has not ended: waiting for its end"));
            }
            let left_of_grace = grace.saturating_sub(began.elapsed()).max(PAUSE);
            tokio::select! {
                () = tokio::time::sleep(if is_killed { pause } else { pause.min(left_of_grace) }) => {}
                () = &mut over, if !is_over => is_over = true,
                signal = signals.next() => {
                    heard.push(signal);
                    self.signal(signal);
                }
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
        // For a process that the look has missed.
        self.signal(Signal::Kill);
        self.watchdog.dismiss();
        let status = self.process.reap();
        while !is_gone(self.group) {
            // A process of another user, which this one cannot see.
            tokio::select! {
                () = tokio::time::sleep(PAUSE_MAX) => {}
                () = &mut over, if !is_over => is_over = true,
                signal = signals.next() => heard.push(signal),
            }
        }
        let status = status.map_err(failed)?;
        let had_terminal = self.terminal.as_ref().is_some_and(Terminal::is_handed_over);
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(status.signal().is_some());
        }
        Ok(End { code: code_of(status), died_of: died_of(status), had_terminal, signals: heard })
    }

    /// Returns a process of COMMAND that runs: `known` while that does.
    ///
    /// A look at one process is cheap. On a box with many, a look at all of them is not.
    fn left(&self, known: Option<Pid>) -> Option<Pid> {
        known.filter(|known| is_member(*known, self.group)).or_else(|| {
            let members = members(self.group)?;
            members.living.first().or(members.orphans.first()).copied()
        })
    }
}

/// Returns whether a group has no process but zombies that others must reap.
///
/// Its first process must have been reaped.
fn is_gone(group: Pid) -> bool {
    while let Ok(Some(_)) = rustix::process::waitpgid(group, WaitOptions::NOHANG) {}
    // A process of another user, such as one under sudo, cannot be signalled but is there.
    rustix::process::test_kill_process_group(group) == Err(rustix::io::Errno::SRCH)
        || members(group).is_some_and(|members| members.living.is_empty() && members.has_zombies)
}

/// Returns a file without a name that holds `input`.
fn file_of(input: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("item", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(input)?;
    file.rewind()?;
    Ok(file)
}

fn code_of(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().and_then(|signal| u8::try_from(128 + signal).ok());
    status.code().and_then(|code| u8::try_from(code).ok()).or_else(by_signal).unwrap_or(FAILED)
}

fn died_of(status: ExitStatus) -> Option<Signal> {
    Signal::ALL.into_iter().find(|signal| status.signal() == Some(signal.system().as_raw()))
}

/// Becomes COMMAND, which the kernel then kills when zoolet's process ends.
///
/// The words are the process that asks for it, the number of the pipe that lets it begin, and
/// COMMAND. Returns only if COMMAND cannot be run.
pub(in crate::cli) fn start_command(words: &[OsString]) -> Exit {
    let [parent, gate, program, arguments @ ..] = words else {
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
    // Before that, zoolet has started the watchdog and told it when COMMAND must end.
    if !gate.to_str().and_then(|gate| gate.parse().ok()).is_some_and(is_opened) {
        return Exit::new(FAILED, "");
    }
    let error = Command::new(program).args(arguments).exec();
    not_run(program, &error)
}

/// Waits for the byte that lets COMMAND begin; `false` if zoolet has given it up.
fn is_opened(gate: i32) -> bool {
    #[allow(unsafe_code, reason = "the number of an inherited descriptor has no safe interface")]
    // SAFETY: the parent of this process has opened the descriptor for it, and nothing else has it.
    let mut gate = File::from(unsafe { OwnedFd::from_raw_fd(gate) });
    gate.read_exact(&mut [0]).is_ok()
}

fn not_run(program: &OsStr, error: &std::io::Error) -> Exit {
    let (code, remedy) = match error.kind() {
        ErrorKind::NotFound => (NOT_FOUND, "check its name, PATH, and the interpreter in its first line"),
        ErrorKind::PermissionDenied => (NOT_EXECUTABLE, "make it executable (chmod +x), or run it with sh"),
        _ => (NOT_EXECUTABLE, "check that it is a program for this machine, or begins with #!"),
    };
    Exit::new(code, format!("cannot run {}: {error}; {remedy}", program.display()))
}
