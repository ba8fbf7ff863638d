//! A running `zoolet ensemble`.

use super::{Scratch, eventually, zoolet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// Attempts of this process to start an ensemble, each on other ports.
static ATTEMPTS: AtomicU16 = AtomicU16::new(0);

/// A running ensemble and its output.
pub(crate) struct Ensemble {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
    /// File that receives the command's standard error.
    errors: PathBuf,
    /// Client address of each server.
    pub(crate) clients: Vec<SocketAddr>,
    /// The process id of each server, and whether it leads.
    pub(crate) processes: Vec<(u32, bool)>,
}

impl Ensemble {
    /// Starts an ensemble; when another process holds a port, retries with other ports.
    ///
    /// Tests of this process never share ports, so none takes those of another test's ensemble while
    /// it restarts.
    pub(crate) fn start(scratch: &Scratch) -> Self {
        let first = 20_000 + (std::process::id() % 20_000) as u16;
        loop {
            let base = first + 11 * ATTEMPTS.fetch_add(1, Ordering::Relaxed);
            if let Some(ensemble) = Self::try_start(scratch, &["--base-port", &base.to_string()]) {
                return ensemble;
            }
            let _ = std::fs::remove_dir_all(scratch.join("zoolet-ensemble"));
        }
    }

    /// Starts a stopped ensemble again, on its former ports.
    ///
    /// Another process may hold one of them for a moment, so a refused start is repeated.
    pub(crate) fn restart(scratch: &Scratch) -> Self {
        let mut again = None;
        eventually("the ensemble starts again", || {
            again = Self::try_start(scratch, &[]);
            again.is_some()
        });
        again.unwrap()
    }

    /// Starts an ensemble; `None` if the command ends without a line, as it does when a port is in
    /// use.
    fn try_start(scratch: &Scratch, arguments: &[&str]) -> Option<Self> {
        let errors = scratch.join("ensemble.err");
        let mut command = zoolet(&["ensemble"]);
        command.args(arguments).current_dir(scratch.path());
        command.stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
        let mut child = command.spawn().unwrap();
        let mut ensemble = Self {
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            errors,
            clients: Vec::new(),
            processes: Vec::new(),
        };
        let first = ensemble.line()?;
        let clients = first.rsplit(' ').next().unwrap();
        ensemble.clients = clients.trim().split(',').map(|address| address.parse().unwrap()).collect();
        for _ in 0..ensemble.clients.len() {
            let line = ensemble.line().unwrap();
            let (_, process) = line.split_once("process ").unwrap();
            let process = process.split(',').next().unwrap().parse().unwrap();
            ensemble.processes.push((process, line.contains(": leader,")));
        }
        assert_eq!(ensemble.processes.iter().filter(|(_, leads)| *leads).count(), 1, "{:?}", ensemble.processes);
        assert!(ensemble.line().unwrap().starts_with("Ctrl-C stops it"));
        Some(ensemble)
    }

    /// Returns the next line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        (!line.is_empty()).then_some(line)
    }

    /// Returns the command's standard error so far.
    pub(crate) fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    pub(crate) fn signal(process: u32, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
        assert!(status.unwrap().success());
    }

    pub(crate) fn servers(&self) -> String {
        self.clients.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.clients.iter().all(|client| TcpStream::connect(client).is_err())
    }
}

impl Drop for Ensemble {
    #[allow(clippy::print_stderr, reason = "a failed test shows it")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A missing file must not panic here: in a failed test, a second panic aborts.
        eprint!("{}", fs::read_to_string(&self.errors).unwrap_or_default());
    }
}
