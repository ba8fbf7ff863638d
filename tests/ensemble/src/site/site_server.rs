//! One server as a process.

use super::config::Place;
use crate::product::Product;
use crate::{Outcome, etcd, said};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use zoolet_powercut::client::word;

/// Bound on a question about a server's state.
const WORD_PATIENCE: Duration = Duration::from_millis(1000);

/// Role of a server in its ensemble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Leads.
    Leader,
    /// Follows and votes.
    Follower,
    /// Follows and does not vote.
    Observer,
    /// Runs alone.
    Standalone,
}

/// Status that a server reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Role of the server.
    pub role: Role,
    /// Number of the leadership as the product counts it: an epoch or a term.
    pub epoch: u64,
    /// Newest zxid applied, or etcd's applied index; 0 if etcd does not report it.
    pub zxid: u64,
}

/// How a server's process is launched.
pub(super) struct Launch {
    /// Its network namespace, if it has one.
    pub(super) namespace: Option<String>,
    /// Extra environment variables.
    pub(super) environment: Vec<(String, OsString)>,
    /// A program with arguments that starts the server and becomes it; empty for none.
    pub(super) starter: Vec<OsString>,
}

/// A server, running or not. Its process is killed on drop.
pub struct Server {
    /// Its addresses and its data.
    pub place: Place,
    product: Product,
    config: PathBuf,
    /// Log file with the output of all its processes.
    pub log: PathBuf,
    launch: Launch,
    child: Option<Child>,
    is_frozen: bool,
}

impl Server {
    pub(super) fn new(product: Product, place: Place, config: PathBuf, launch: Launch) -> Self {
        let log = config.with_extension("log");
        Self { place, product, config, log, launch, child: None, is_frozen: false }
    }

    /// Returns the path of its configuration file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Returns its address for clients.
    pub fn client(&self) -> SocketAddr {
        self.place.client(&self.product)
    }

    /// Starts its process.
    ///
    /// # Errors
    /// The process runs already, or cannot be started.
    pub fn start(&mut self) -> Outcome<()> {
        if self.child.is_some() {
            return Err(format!("server {} runs", self.place.id));
        }
        let mut command = started_by(&self.launch.starter, self.product.command(&self.config)?);
        command.envs(self.launch.environment.iter().map(|(name, value)| (name, value)));
        if let Some(namespace) = &self.launch.namespace {
            // `ip` becomes the server.
            let starter = ["ip", "netns", "exec", namespace].map(OsString::from);
            command = started_by(&starter, command);
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log).map_err(said(self.log.display()))?;
        let error_log = log.try_clone().map_err(said("log"))?;
        command.stdin(Stdio::null()).stdout(log).stderr(error_log);
        self.child = Some(command.spawn().map_err(said(command.get_program().display()))?);
        Ok(())
    }

    /// Returns the id of its process.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Whether it has a process that is not frozen.
    pub fn is_up(&self) -> bool {
        self.child.is_some() && !self.is_frozen
    }

    /// Whether its process has ended by itself.
    pub fn has_ended(&self) -> bool {
        // An ended process is a zombie until it is waited for. Waiting here would take the status
        // away from a later caller.
        let stat = self.pid().and_then(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        stat.is_some_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
    }

    /// Sends SIGKILL, and waits for the end of the process.
    pub fn kill(&mut self) {
        self.send_kill();
        self.reap();
    }

    /// Sends SIGKILL without waiting, because a measurement begins here.
    pub fn send_kill(&mut self) {
        if let Some(child) = &mut self.child {
            // The process may have ended by itself.
            let _ = child.kill();
        }
    }

    /// Waits for the end of a process that was sent SIGKILL.
    pub fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        self.is_frozen = false;
    }

    /// Sends SIGSTOP.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
        self.is_frozen = true;
    }

    /// Sends SIGCONT.
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
        self.is_frozen = false;
    }

    /// Sends SIGTERM without waiting.
    pub fn send_terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Waits until the process ends by itself.
    ///
    /// # Errors
    /// The process does not run, or does not end within `patience`.
    pub fn wait_for_end(&mut self, patience: Duration) -> Outcome<ExitStatus> {
        let until = Instant::now() + patience;
        while let Some(child) = &mut self.child {
            if let Some(status) = child.try_wait().map_err(said("wait"))? {
                self.child = None;
                return Ok(status);
            }
            if Instant::now() > until {
                return Err(format!("server {} does not end within {patience:?}", self.place.id));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("server {} does not run", self.place.id))
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // The process may have ended by itself.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// Returns the status that the server reports; `None` while it does not serve.
    pub fn status(&self) -> Option<Status> {
        if !self.is_up() {
            return None;
        }
        if self.product == Product::Etcd {
            return etcd::status(self.client(), WORD_PATIENCE);
        }
        // ZooKeeper counts the writes of an epoch in 32 bits, zoolet in 40.
        let counter_bits = if self.product.is_zoolet() { 40 } else { 32 };
        status_of(&word(self.client(), "srvr", WORD_PATIENCE).ok()?, counter_bits)
    }

    /// Returns the figures of `mntr`, without the prefix `zk_`.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn figures(&self) -> Outcome<std::collections::BTreeMap<String, String>> {
        let text = word(self.client(), "mntr", WORD_PATIENCE).map_err(said(format!("server {}", self.place.id)))?;
        let pairs = text.lines().filter_map(|line| line.split_once('\t'));
        Ok(pairs.map(|(key, value)| (key.trim_start_matches("zk_").to_owned(), value.to_owned())).collect())
    }

    /// Returns the output of all its processes.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Deletes its data except `myid`. The server must not run.
    ///
    /// # Errors
    /// A file cannot be deleted or written.
    pub fn wipe(&self) -> Outcome<()> {
        let data = &self.place.data;
        let myid = fs::read(data.join("myid"));
        fs::remove_dir_all(data).and_then(|()| fs::create_dir(data)).map_err(said(data.display()))?;
        match myid {
            Ok(myid) => fs::write(data.join("myid"), myid).map_err(said(data.display())),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Wraps a command in a starter, which becomes the program and so keeps the process id.
fn started_by(starter: &[OsString], command: Command) -> Command {
    let Some((first, rest)) = starter.split_first() else { return command };
    let mut outer = Command::new(first);
    outer.args(rest).arg(command.get_program()).args(command.get_args());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer
}

fn status_of(srvr: &str, counter_bits: u32) -> Option<Status> {
    let value = |key: &str| srvr.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let role = match value("Mode:")? {
        "leader" => Role::Leader,
        "follower" => Role::Follower,
        "observer" => Role::Observer,
        "standalone" => Role::Standalone,
        _ => return None,
    };
    let zxid = u64::from_str_radix(value("Zxid:")?.trim_start_matches("0x"), 16).ok()?;
    Some(Status { role, epoch: zxid >> counter_bits, zxid })
}

/// Copies a directory with its contents.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_counts_as_serving_once_srvr_shows_a_mode() {
        let srvr = "Zookeeper version: 3.9.3\nLatency min/avg/max: 0/0.0/0\nZxid: 0x10000000a\nMode: follower\nNode count: 5\n";
        assert_eq!(status_of(srvr, 32), Some(Status { role: Role::Follower, epoch: 1, zxid: 0x1_0000_000a }));
        assert_eq!(status_of("This ZooKeeper instance is not currently serving requests\n", 32), None);
        assert_eq!(status_of("", 32), None);
    }
}
