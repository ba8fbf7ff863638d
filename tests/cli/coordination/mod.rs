//! `zoolet lock`, `elect`, `semaphore`, `barrier` and `queue` with real servers and shell scripts.

mod documented;
mod doubt;
mod exclusion;
mod lock;
mod meeting;
mod naming;
mod outage;
mod processes;
mod queue;
mod terminal;

use crate::support::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A server on a fixed port, so that sessions find it again after a restart.
struct Fixed {
    child: Child,
    port: u16,
    scratch: Scratch,
}

impl Fixed {
    fn start() -> Self {
        let scratch = Scratch::new();
        std::fs::write(scratch.join("zoolet.toml"), SMALL).unwrap();
        let [port] = free_ports();
        Self { child: Self::spawn(&scratch, port), port, scratch }
    }

    fn spawn(scratch: &Scratch, port: u16) -> Child {
        let mut command = zoolet(&["serve", "--log", "error"]);
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--config").arg(scratch.join("zoolet.toml")).arg("--data").arg(scratch.join("server"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("127.0.0.1"), "{line:?}");
        child
    }

    fn client(&self) -> Client {
        Client::connect(([127, 0, 0, 1], self.port).into())
    }

    /// Ends the server with a signal, and starts it again.
    fn restart(&mut self, signal: &str) {
        self.signal(signal);
        self.child.wait().unwrap();
        self.child = Self::spawn(&self.scratch, self.port);
    }

    fn signal(&self, signal: &str) {
        kill(signal, self.child.id());
    }

    /// The command, in the scratch directory; `words` are split at spaces, and `script` is run by a
    /// shell if it is not empty.
    fn command(&self, words: &str, script: &str) -> Command {
        let mut command = zoolet(&words.split(' ').collect::<Vec<_>>());
        command.env("ZOOLET_SERVER", format!("127.0.0.1:{}", self.port)).current_dir(self.scratch.path());
        if !script.is_empty() {
            command.args(["--", "sh", "-c", script]);
        }
        command
    }

    /// Runs the command to its end; returns its exit code and what it printed.
    fn run(&self, words: &str, script: &str) -> (i32, String) {
        let output = self.command(words, script).stdin(Stdio::null()).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(printed).unwrap())
    }

    fn start_command(&self, words: &str, script: &str) -> Running {
        Running(self.command(words, script).stdin(Stdio::null()).spawn().unwrap())
    }

    /// Returns the lines of a file in the scratch directory; none if it does not exist.
    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.scratch.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for the first line of a file, and returns it as a process id.
    fn pid(&self, file: &str) -> u32 {
        eventually(&format!("a line in {file}"), || !self.lines(file).is_empty());
        self.lines(file)[0].parse().unwrap()
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command of zoolet that runs.
struct Running(Child);

impl Running {
    fn signal(&self, signal: &str) {
        kill(signal, self.0.id());
    }

    /// Waits for its end.
    fn status(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }

    /// Waits for its end, and returns the code that a shell tells.
    fn code(&mut self) -> i32 {
        code_of(self.status())
    }

    /// As [`Running::code`], but fails if it does not end soon.
    fn code_soon(&mut self) -> i32 {
        code_soon(&mut self.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn code_soon(child: &mut Child) -> i32 {
    let mut ended = None;
    eventually("the end of the process", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    code_of(ended.unwrap())
}

fn code_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap()
}

fn kill(signal: &str, process: u32) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &process.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -{signal} {process}");
}

/// Returns whether a process runs; a zombie does not.
fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

fn is_gone(process: u32) {
    eventually(&format!("the end of process {process}"), || !runs(process));
}

fn children_of(process: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}
