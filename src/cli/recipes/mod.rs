//! `zoolet lock`, `elect`, `semaphore`, `barrier` and `queue`: coordination for shell scripts.
//!
//! Each command opens a session over TCP and uses a recipe of zoolet-recipes. Most of them run
//! another command meanwhile:
//! - [`running`] starts and ends that command, with its [`children`] and its [`terminal`].
//! - [`tenure`] decides when it must end.
//! - [`watchdog`] ends it if this process cannot.

mod barrier;
mod children;
mod elect;
mod environment;
mod holder;
mod queue;
mod running;
mod session;
mod signals;
mod tenure;
mod terminal;
mod watchdog;

pub(super) use running::start_command;
pub(super) use signals::Signal;
pub(super) use tenure::GRACE_ONE_IN;
pub(super) use watchdog::watch;

use super::{DEFAULT_SERVER, Exit, complain};
use signals::Signals;
use std::ffi::OsString;
use std::time::Duration;
use terminal::Terminal;
use zoolet_model::Path;
use zoolet_recipes::Naming;

/// Exit code if the grant did not come in time.
const CONFLICT: u8 = 124;
/// Exit code if zoolet failed, or had to end COMMAND.
const FAILED: u8 = 125;
/// Exit code if COMMAND cannot be run.
const NOT_EXECUTABLE: u8 = 126;
/// Exit code if there is no such COMMAND.
const NOT_FOUND: u8 = 127;

/// The internal command with which this process starts COMMAND.
pub(super) const START: &str = "start-command";
/// The internal command of the process that ends COMMAND if this process cannot.
pub(super) const WATCH: &str = "watch-command";

/// The options of a command that coordinates programs.
pub(super) struct Options {
    pub(super) servers: Vec<String>,
    /// The znode that is `/` for the user; empty for the servers' own root.
    pub(super) root: String,
    pub(super) session_timeout: Duration,
    /// The path, with the root in front.
    pub(super) path: Path,
    pub(super) naming: Naming,
    pub(super) wait: Wait,
    /// Exit code if the wait ends it.
    pub(super) conflict: u8,
    pub(super) what: What,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: vec![DEFAULT_SERVER.to_owned()],
            root: String::new(),
            session_timeout: Duration::from_secs(10),
            path: Path::from_static("/"),
            naming: Naming::Documented,
            wait: Wait::Forever,
            conflict: CONFLICT,
            what: What::WaitOpen,
        }
    }
}

impl Options {
    /// Returns a path of the servers as the user sees it.
    fn below_root(&self, path: &str) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).to_owned()
    }
}

/// The recipe that a command uses.
pub(super) enum What {
    Lock(Work),
    Elect(Work, Again),
    /// With the number of permits, and whether to change that number.
    Semaphore(Work, Option<u32>, bool),
    Close,
    Open,
    WaitOpen,
    /// With the number of parties, and a command that may be empty.
    Meet(usize, Vec<OsString>),
    /// With the item; `None` reads standard input.
    Put(Option<String>),
    /// With the attempts after which an item is buried.
    Take(Option<Work>, Option<u32>),
}

/// How long to wait for a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    Forever,
    AtMost(Duration),
    NotAtAll,
}

/// What an elected candidate does when COMMAND or its office ends.
#[derive(Clone, Copy)]
pub(super) struct Again {
    /// Starts COMMAND again.
    pub(super) restart: bool,
    /// Stands for election again.
    pub(super) forever: bool,
}

/// COMMAND, and the signals that warn it of the end of the grant.
pub(super) struct Work {
    pub(super) command: Vec<OsString>,
    /// Time between the signal `lost` and KILL.
    pub(super) grace: Duration,
    pub(super) lost: Signal,
    pub(super) doubt: Option<Signal>,
}

impl Default for Work {
    fn default() -> Self {
        Self { command: Vec::new(), grace: Duration::ZERO, lost: Signal::Term, doubt: None }
    }
}

/// The values of `--naming`.
pub(super) const NAMINGS: [(&str, Naming); 3] =
    [("documented", Naming::Documented), ("curator", Naming::Curator), ("kazoo", Naming::Kazoo)];

/// Runs the recipe.
///
/// # Errors
/// Every end with another exit code than 0; the line is empty if COMMAND chose the code.
pub(super) fn recipe(options: &Options) -> Result<(), Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (ended, interrupted) = runtime.block_on(async {
        let mut signals = match Signals::new() {
            Ok(signals) => signals,
            Err(error) => return (Err(failed(error)), None),
        };
        let ended = tokio::select! {
            ended = run(options, &mut signals) => ended,
            Err(error) = children::reap_orphans() => Err(failed(error)),
        };
        session::let_close().await;
        (ended, signals.interrupted)
    });
    // A name server that does not answer holds up no end.
    runtime.shutdown_background();
    let code = ended.as_ref().map_or_else(|exit| exit.code, |code| *code);
    if let Some(key) = interrupted.filter(|key| key.signal.exit_code() == code)
        && Terminal::open().is_some_and(|terminal| terminal.is_in_foreground())
    {
        if let Err(exit) = ended.as_ref()
            && !exit.line.is_empty()
        {
            complain(&exit.line);
        }
        signals::die_of(key);
    }
    match ended? {
        0 => Ok(()),
        code => Err(Exit::new(code, "")),
    }
}

async fn run(options: &Options, signals: &mut Signals) -> Result<u8, Exit> {
    match &options.what {
        What::Lock(work) => holder::lock(options, work, signals).await,
        What::Semaphore(work, permits, resize) => holder::semaphore(options, work, *permits, *resize, signals).await,
        What::Elect(work, again) => elect::elect(options, work, *again, signals).await,
        What::Close | What::Open | What::WaitOpen => barrier::barrier(options, signals).await,
        What::Meet(parties, command) => barrier::meet(options, *parties, command, signals).await,
        What::Put(data) => queue::put(options, data.as_deref(), signals).await,
        What::Take(work, attempts) => queue::take(options, work.as_ref(), *attempts, signals).await,
    }
}

/// An error of zoolet itself.
fn failed(why: impl std::fmt::Display) -> Exit {
    Exit::new(FAILED, why)
}

/// The end of a wait that brought nothing.
fn conflict(options: &Options, missing: &str) -> Exit {
    match options.wait {
        Wait::AtMost(patience) => {
            let patience = patience.as_secs_f64();
            Exit::new(options.conflict, format!("{}: {missing} within {patience} s", options.path))
        }
        Wait::NotAtAll | Wait::Forever => Exit::new(options.conflict, ""),
    }
}
