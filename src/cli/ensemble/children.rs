//! The server processes of an ensemble.

use super::plan::{Plan, Planned};
use crate::cli::{Exit, complain};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Interval between checks whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Time before [`Children::stop`] names the servers that still run.
///
/// A leader takes up to 1.5 s to hand over.
const QUIET: Duration = Duration::from_secs(2);

/// Bytes at the end of a log that are searched for its last line.
const LINE_MAX: usize = 4096;

/// The running processes. Dropping it closes their standard input, which ends them.
pub(super) struct Children(Vec<Running>);

struct Running {
    id: u8,
    child: Child,
    log: PathBuf,
}

impl Children {
    /// Starts all servers.
    ///
    /// # Errors
    /// A process cannot be started. The processes started before it end.
    pub(super) fn start(plan: &Plan) -> Result<Self, Exit> {
        let program = std::env::current_exe().map_err(Exit::failed)?;
        let mut children = Self(Vec::new());
        for server in &plan.servers {
            let child = spawn(&program, plan, server)
                .map_err(|error| Exit::failed(format!("cannot start server {}: {error}", server.id)))?;
            children.0.push(Running { id: server.id, child, log: server.log.clone() });
        }
        Ok(children)
    }

    pub(super) fn are_gone(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the process id of a server; `None` if it does not run.
    pub(super) fn process(&self, id: u8) -> Option<u32> {
        self.0.iter().find(|running| running.id == id).map(|running| running.child.id())
    }

    /// Removes the processes that ended since the last call, and returns a line for each.
    pub(super) fn ended(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        self.0.retain_mut(|running| match running.child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                lines.push(obituary(running, status));
                false
            }
            Err(error) => {
                lines.push(format!("server {}: {error}", running.id));
                false
            }
        });
        lines
    }

    /// Sends SIGTERM to all processes, and waits for their end.
    ///
    /// After [`QUIET`] it names the servers that still run. `kill_at` is when the caller kills them.
    pub(super) async fn stop(&mut self, kill_at: Instant) {
        let mut name_at = Some(Instant::now() + QUIET);
        for running in &self.0 {
            if let Some(pid) = i32::try_from(running.child.id()).ok().and_then(Pid::from_raw) {
                // It fails only if the process has already ended.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        while !self.0.is_empty() {
            self.0.retain_mut(|running| matches!(running.child.try_wait(), Ok(None)));
            if !self.0.is_empty() && name_at.take_if(|at| *at <= Instant::now()).is_some() {
                complain(&still_running(&self.ids(), kill_at.saturating_duration_since(Instant::now())));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Kills the remaining processes, and names their servers.
    pub(super) fn kill(&mut self) {
        self.0.retain_mut(|running| matches!(running.child.try_wait(), Ok(None)));
        if !self.0.is_empty() {
            complain(&format!("killed: {}", servers(&self.ids())));
        }
        for mut running in self.0.drain(..) {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }

    fn ids(&self) -> Vec<u8> {
        self.0.iter().map(|running| running.id).collect()
    }
}

fn spawn(program: &Path, plan: &Plan, server: &Planned) -> io::Result<Child> {
    let log = File::create(&server.log)?;
    Command::new(program)
        .args(["serve", "--until-eof", "--id", &server.id.to_string(), "--listen", &server.client, "--config"])
        .arg(&plan.file)
        .arg("--data")
        .arg(&server.data)
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        // A terminal sends Ctrl-C to a whole process group. Only this process should receive it.
        .process_group(0)
        .spawn()
}

/// Returns the line about servers that have not ended yet. The caller kills them after `left`.
fn still_running(ids: &[u8], left: Duration) -> String {
    let seconds = left.as_secs_f64().round();
    format!("still running: {}; killed in {seconds} s, or now with Ctrl-C", servers(ids))
}

/// Returns "server 2" or "servers 2, 3".
fn servers(ids: &[u8]) -> String {
    let noun = if ids.len() == 1 { "server" } else { "servers" };
    let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
    format!("{noun} {}", ids.join(", "))
}

fn obituary(running: &Running, status: ExitStatus) -> String {
    let (id, log) = (running.id, running.log.display());
    match last_line(&running.log) {
        Some(last) => format!("server {id} ended ({status}): {last}; its log is {log}"),
        None => format!("server {id} ended ({status}); its log is {log}"),
    }
}

/// Returns the last line of a log, if it may explain the end of its server.
///
/// A server prints its first line when it serves, so that line explains no end. Lines of the
/// level `WARN` or lower do not either.
fn last_line(log: &Path) -> Option<String> {
    let bytes = fs::read(log).ok()?;
    let end = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LINE_MAX)..]).into_owned();
    let is_banner = |line: &str| line.starts_with(concat!("zoolet ", env!("CARGO_PKG_VERSION"), " "));
    let last = end.lines().rev().find(|line| !line.trim().is_empty() && !is_banner(line))?;
    let level = last.split_whitespace().nth(1);
    (!matches!(level, Some("TRACE" | "DEBUG" | "INFO" | "WARN"))).then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_still_run_are_named_with_the_time_they_have() {
        let line = still_running(&[2, 3], Duration::from_millis(8_990));
        assert_eq!(line, "still running: servers 2, 3; killed in 9 s, or now with Ctrl-C");
    }

    #[test]
    fn last_line_of_an_ended_servers_log_is_quoted_if_it_may_explain_the_end() {
        let banner =
            concat!("zoolet ", env!("CARGO_PKG_VERSION"), " serves ZooKeeper clients of this machine on 127.0.0.1:1");
        let log = std::env::temp_dir().join(format!("zoolet-obituary-{}", std::process::id()));
        for (said, last) in [
            (format!("{banner}\n"), None),
            (String::new(), None),
            (format!("{banner}\nzoolet: the disk failed\n\n"), Some("zoolet: the disk failed")),
            (format!("zoolet: the port is taken\n{banner}\n"), Some("zoolet: the port is taken")),
            (format!("{banner}\n2026-11-29T15:00:00.000000Z  INFO zoolet::peer: linked to server 2\n"), None),
            (
                "2026-11-29T15:00:00.000000Z ERROR zoolet: the log failed\n".to_owned(),
                Some("2026-11-29T15:00:00.000000Z ERROR zoolet: the log failed"),
            ),
        ] {
            fs::write(&log, &said).unwrap();
            assert_eq!(last_line(&log).as_deref(), last, "{said:?}");
        }
        fs::remove_file(&log).unwrap();
    }
}
