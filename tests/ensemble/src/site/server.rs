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

/// How long a server is asked for its state.
const WORD_PATIENCE: Duration = Duration::from_millis(1000);

/// What a server is to its ensemble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It leads.
    Leader,
    /// It follows and votes.
    Follower,
    /// It follows and does not vote.
    Observer,
    /// It is alone.
    Standalone,
}

/// What a server says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Its role.
    pub role: Role,
    /// Which leadership this is, in the product's own count: an epoch, or a term.
    pub epoch: u64,
    /// What it has applied; 0 where that is not asked.
    pub zxid: u64,
}

/// In what a process runs.
pub(super) struct Surroundings {
    /// Its network, where that is its own.
    pub(super) namespace: Option<String>,
    /// What stands in its environment besides ours.
    pub(super) environment: Vec<(String, OsString)>,
    /// A program, with its arguments, that starts it and becomes it; empty: none.
    pub(super) starter: Vec<OsString>,
}

/// A server, running or not; killed when dropped.
pub struct Server {
    /// Where it is.
    pub place: Place,
    product: Product,
    config: PathBuf,
    /// Its output, of all its lives.
    pub log: PathBuf,
    surroundings: Surroundings,
    child: Option<Child>,
    is_frozen: bool,
}

impl Server {
    pub(super) fn new(product: Product, place: Place, config: PathBuf, surroundings: Surroundings) -> Self {
        let log = config.with_extension("log");
        Self { place, product, config, log, surroundings, child: None, is_frozen: false }
    }

    /// Its configuration file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Where clients connect.
    pub fn client(&self) -> SocketAddr {
        self.place.client(&self.product)
    }

    /// Starts its process, which must not run.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(&mut self) -> Outcome<()> {
        if self.child.is_some() {
            return Err(format!("server {} runs", self.place.id));
        }
        let mut command = started_by(&self.surroundings.starter, self.product.command(&self.config)?);
        command.envs(self.surroundings.environment.iter().map(|(name, value)| (name, value)));
        if let Some(namespace) = &self.surroundings.namespace {
            // `ip` becomes it.
            let starter = ["ip", "netns", "exec", namespace].map(OsString::from);
            command = started_by(&starter, command);
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log).map_err(said(self.log.display()))?;
        let error_log = log.try_clone().map_err(said("log"))?;
        command.stdin(Stdio::null()).stdout(log).stderr(error_log);
        self.child = Some(command.spawn().map_err(said(command.get_program().display()))?);
        Ok(())
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Whether it has a process that was not stopped in its tracks.
    pub fn is_up(&self) -> bool {
        self.child.is_some() && !self.is_frozen
    }

    /// Whether it has a process that is over, although nobody ended it.
    pub fn has_ended(&self) -> bool {
        // A process that nobody has waited for is a zombie; waiting would take the end away from who asks for its status.
        let stat = self.pid().and_then(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        stat.is_some_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
    }

    /// kill -9, and waits for its end.
    pub fn kill(&mut self) {
        self.send_kill();
        self.reap();
    }

    /// kill -9, and does not wait: what is measured begins here.
    pub fn send_kill(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
        }
    }

    /// Waits for the end of a process that was sent its kill.
    pub fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        self.is_frozen = false;
    }

    /// SIGSTOP.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
        self.is_frozen = true;
    }

    /// SIGCONT.
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
        self.is_frozen = false;
    }

    /// SIGTERM, and does not wait.
    pub fn send_terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Waits for its own end.
    ///
    /// # Errors
    /// When it does not come in time.
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
            // It may have ended by itself.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// What it says of itself; `None` while it does not serve.
    pub fn status(&self) -> Option<Status> {
        if !self.is_up() {
            return None;
        }
        if self.product == Product::Etcd {
            return etcd::status(self.client(), WORD_PATIENCE);
        }
        // ZooKeeper counts 32 bits of writes in an epoch, zoolet 40.
        let counter_bits = if self.product.is_zoolet() { 40 } else { 32 };
        status_of(&word(self.client(), "srvr", WORD_PATIENCE).ok()?, counter_bits)
    }

    /// The lines of `mntr`, without `zk_`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn figures(&self) -> Outcome<std::collections::BTreeMap<String, String>> {
        let text = word(self.client(), "mntr", WORD_PATIENCE).map_err(said(format!("server {}", self.place.id)))?;
        let pairs = text.lines().filter_map(|line| line.split_once('\t'));
        Ok(pairs.map(|(key, value)| (key.trim_start_matches("zk_").to_owned(), value.to_owned())).collect())
    }

    /// What it said, in all its lives.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Takes away its data, but for the number that ZooKeeper's form of configuration keeps there. It must not run.
    ///
    /// # Errors
    /// What the system says.
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

/// The same program, started by one that becomes it, so that it has the process that was started.
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

/// Copies a directory with all that is in it.
///
/// # Errors
/// What the system says.
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
    fn a_server_serves_when_it_has_a_mode() {
        let srvr = "Zookeeper version: 3.9.3\nLatency min/avg/max: 0/0.0/0\nZxid: 0x10000000a\nMode: follower\nNode count: 5\n";
        assert_eq!(status_of(srvr, 32), Some(Status { role: Role::Follower, epoch: 1, zxid: 0x1_0000_000a }));
        assert_eq!(status_of("This ZooKeeper instance is not currently serving requests\n", 32), None);
        assert_eq!(status_of("", 32), None);
    }
}
