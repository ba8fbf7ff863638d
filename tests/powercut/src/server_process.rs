//! The binary, started on a directory.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    first_line: Receiver<String>,
}

impl Server {
    /// Starts the binary on a port that the system chooses.
    ///
    /// An empty `wrapper` starts it directly.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(wrapper: &[String], binary: &Path, config: &Path, data: &Path) -> std::io::Result<Self> {
        let mut command = match wrapper {
            [] => Command::new(binary),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(binary);
                command
            }
        };
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--config"]).arg(config);
        command.arg("--data").arg(data).stdin(Stdio::null()).stdout(Stdio::piped());
        let log = std::fs::File::create(config.with_extension("log"))?;
        let mut child = command.stderr(log).spawn()?;
        let (sender, first_line) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut line = String::new();
                if BufReader::new(out).read_line(&mut line).is_ok() {
                    // The receiver may have given up.
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Self { child, first_line })
    }

    /// Returns its address once it serves; `Ok(None)` when `is_over` says it never will.
    ///
    /// # Errors
    /// The server ends, or reports nothing for `patience`.
    pub fn address(&mut self, patience: Duration, is_over: impl Fn() -> bool) -> Result<Option<SocketAddr>, String> {
        let until = Instant::now() + patience;
        loop {
            match self.first_line.recv_timeout(Duration::from_millis(2)) {
                Ok(line) => {
                    let address =
                        line.split_whitespace().find_map(|word| word.trim_end_matches([';', ',']).parse().ok());
                    if address.is_none() && is_over() {
                        return Ok(None);
                    }
                    return address.map(Some).ok_or_else(|| format!("it said {line:?} and ended: {:?}", self.wait()));
                }
                Err(RecvTimeoutError::Timeout) if is_over() => return Ok(None),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Timeout) => return Err("it says nothing and does not end".to_owned()),
                Err(RecvTimeoutError::Disconnected) => return Err(format!("it ended: {:?}", self.wait())),
            }
        }
    }

    /// Returns whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Sends SIGKILL, and does not wait.
    pub fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
    }

    /// Waits until it has exited.
    pub fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().ok()
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = self.wait();
    }
}
