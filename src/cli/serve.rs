//! `zoolet serve`: starts a node and manages its signals and logs.

use super::{Exit, ServeOptions, allocator, memory, notify, open_files, say, signals::Stop};
use std::io::Read;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::{Level, error, info, warn};
use tracing_subscriber::{filter::filter_fn, layer::SubscriberExt, util::SubscriberInitExt};
use zoolet::config::{self, Config, DEFAULT_PROFILE, Loaded, Overrides, Populate};
use zoolet::{Failure, Node, PanicNote, ReadOnly, StartError, Wait};

/// Deadline of a clean shutdown.
///
/// An init system waits 10 s before it kills (procd 5 s).
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(4);

/// Maximum wait for clients to be served before the first line is printed.
const READY_PATIENCE: Duration = Duration::from_secs(2);

/// Interval between probes of a read-only disk and checks for the end of a wait.
const PAUSE: Duration = Duration::from_secs(1);

/// Interval between repeated log lines about a wait, and maximum back-off of start attempts.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// Maximum time that a panicking process waits for its note to reach the disk.
const NOTE_PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn serve(options: ServeOptions) -> Result<(), Exit> {
    allocator::keep_little();
    init_logs(&options);
    note_panics();
    if options.check {
        return check(&options);
    }
    // With `--create` or `--until-eof` the caller waits for the server to serve, so an earlier end
    // is a failure.
    let stop = Stop::listen((options.create || options.until_eof).into())?;
    let mut end_of_input = EndOfInput::new(options.until_eof);
    let (node, membership) = started(&options, &mut end_of_input)?;
    stop.serves();
    notify::ready();
    // The line says that the server serves, so it should be true when it is read. A slow disk
    // delays the line by [`READY_PATIENCE`] at most.
    let _ = node.ready().wait_timeout(READY_PATIENCE);
    // If the line cannot be written, the server serves all the same.
    let _ = say(&first_line(&node, &membership));
    run(node, end_of_input, stop)
}

/// Installs a panic hook that records a fatal panic inside redb for the next process.
///
/// The hook waits at most [`NOTE_PATIENCE`], so a hanging disk does not keep this process from
/// ending.
fn note_panics() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        if let Some(note) = PanicNote::due() {
            let (left, is_left) = std::sync::mpsc::channel();
            let leave = move || left.send(note.leave().is_ok());
            if std::thread::Builder::new().spawn(leave).is_ok() {
                let _ = is_left.recv_timeout(NOTE_PATIENCE);
            }
        }
    }));
}

fn check(options: &ServeOptions) -> Result<(), Exit> {
    let config = configured(options, &mut Vec::new())?;
    Node::check(&config).map_err(refused)?;
    let clients = config.clients.map_or(String::new(), |address| format!(", clients at {address}"));
    let file = options.config.as_ref().map_or("defaults".into(), |file| file.to_string_lossy());
    say(&format!(
        "{file}: valid: data in {}{clients}, profile {}{}\n",
        config.data.display(),
        config.profile,
        membership(&config)
    ))
}

/// Configures and starts the node; with `--keep-trying`, retries until the input ends.
///
/// Many obstacles vanish without a restart: an address or a disk appears later, or the operator
/// mends the configuration. An init system that restarted the process would log a line for each
/// attempt.
fn started(options: &ServeOptions, end_of_input: &mut EndOfInput) -> Result<(Node, String), Exit> {
    let (mut warned, mut hindrance, mut pause) = (Vec::new(), Hindrance::default(), PAUSE);
    loop {
        let attempt = configured(options, &mut warned).and_then(|config| {
            let membership = membership(&config);
            let node = start(config, end_of_input, &mut hindrance)?;
            Ok(node.map(|node| (node, membership)))
        });
        let line = match attempt {
            Ok(Some(started)) => return Ok(started),
            Ok(None) => return Err(hindrance.ended()),
            Err(exit) if options.keep_trying => exit.line,
            Err(exit) => return Err(exit),
        };
        if hindrance.tell(&line, "this server waits, then retries") {
            pause = PAUSE;
        }
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if hindrance.wait(end_of_input) {
                return Err(hindrance.ended());
            }
        }
        pause = (2 * pause).min(SAY_AGAIN);
    }
}

/// Starts the node, waiting while the disk is read-only; `None` if the input ended meanwhile.
///
/// With `read_only = true`, clients can read while it waits.
/// A process that ended instead would be restarted and find the same disk.
fn start(config: Config, end_of_input: &mut EndOfInput, hindrance: &mut Hindrance) -> Result<Option<Node>, Exit> {
    loop {
        let line = match Node::start(config.clone()) {
            Ok(node) => return Ok(Some(node)),
            Err(StartError::ReadOnly(line)) => line,
            Err(error) => return Err(refused(error)),
        };
        let waiting = ReadOnly::tell(&config).map_err(refused)?;
        let meanwhile = format!("this server waits until its disk is writable; meanwhile it {}", waiting.meanwhile());
        loop {
            hindrance.tell(&line, &meanwhile);
            if hindrance.wait(end_of_input) {
                return Ok(None);
            }
            if waiting.is_over(&config) {
                break;
            }
        }
    }
}

/// The current obstacle to a start.
///
/// It is logged when it changes, and once a minute while it lasts.
#[derive(Default)]
struct Hindrance {
    line: String,
    /// What the server does meanwhile.
    meanwhile: String,
    said: Option<Instant>,
}

impl Hindrance {
    /// Logs the obstacle if it is due, and returns whether it changed.
    fn tell(&mut self, line: &str, meanwhile: &str) -> bool {
        let is_new = self.line != line;
        let says_else = self.meanwhile != meanwhile;
        if is_new || says_else || self.said.is_none_or(|said| said.elapsed() >= SAY_AGAIN) {
            warn!("{line}: {meanwhile}");
            line.clone_into(&mut self.line);
            meanwhile.clone_into(&mut self.meanwhile);
            self.said = Some(Instant::now());
        }
        is_new
    }

    /// Waits one second and tells the init system why; returns whether the input has ended.
    fn wait(&self, end_of_input: &mut EndOfInput) -> bool {
        notify::waiting(self.line.lines().next().unwrap_or_default());
        std::thread::sleep(PAUSE);
        end_of_input.has_come()
    }

    fn ended(&self) -> Exit {
        Exit::failed(format!("{}; standard input ended before this server could start", self.line))
    }
}

fn init_logs(options: &ServeOptions) {
    let level = options.log;
    let logs = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(std::io::stderr);
    // Drops a line that cannot be written because the disk is full or the reader is gone. Reporting
    // that error would panic.
    let logs = logs.log_internal_errors(false);
    let for_operators =
        filter_fn(move |line| is_for_operators(line.target(), *line.level(), level)).with_max_level_hint(level);
    if options.log_json {
        logs.json().flatten_event(true).finish().with(for_operators).init();
    } else {
        logs.finish().with(for_operators).init();
    }
}

/// Filters out warnings of QUIC's crates.
///
/// The links log these problems themselves, once a minute per peer.
fn is_for_operators(target: &str, of: Level, wanted: Level) -> bool {
    of == Level::ERROR || wanted >= Level::DEBUG || !target.starts_with("quinn")
}

/// Returns the effective configuration, logging each new warning once.
fn configured(options: &ServeOptions, warned: &mut Vec<String>) -> Result<Config, Exit> {
    let mut warn = |line: String| {
        if !warned.contains(&line) {
            warn!("{line}");
            warned.push(line);
        }
    };
    let Loaded { mut config, warnings, memory_bytes_max, .. } = configure(options)?;
    warnings.into_iter().chain(memory::too_little(memory_bytes_max, &config.profile)).for_each(&mut warn);
    open_files::raise(&mut config).map_err(Exit::usage)?.into_iter().for_each(warn);
    Ok(config)
}

/// Reads the configuration file and applies the options over it.
fn configure(options: &ServeOptions) -> Result<Loaded, Exit> {
    let mut loaded = match &options.config {
        Some(file) => {
            let ServeOptions { data, id, profile, .. } = options;
            let over = Overrides { data: data.clone(), server_id: *id, profile: profile.clone() };
            config::load(file, &over).map_err(Exit::usage)?
        }
        None => {
            let profile = options.profile.as_deref().unwrap_or(DEFAULT_PROFILE);
            let mut loaded = config::alone(profile).map_err(Exit::usage)?;
            loaded.config.server_id = options.id.unwrap_or(loaded.config.server_id);
            loaded
        }
    };
    let config = &mut loaded.config;
    if let Some(data) = &options.data {
        config.data.clone_from(data);
        config.populate = Populate::IfEmpty;
    }
    if options.create {
        config.populate = Populate::IfEmpty;
    }
    if let Some(address) = &options.listen {
        config.clients = Some(config::client_address("--listen", address).map_err(Exit::usage)?);
    }
    Ok(loaded)
}

fn refused(error: StartError) -> Exit {
    if error.is_for_the_operator() { Exit::usage(error) } else { Exit::failed(error) }
}

/// Describes the server's place in its ensemble; empty for a standalone server.
fn membership(config: &Config) -> String {
    let Some(ensemble) = &config.ensemble else { return String::new() };
    let ids: Vec<String> = ensemble.members.iter().map(|member| member.id.to_string()).collect();
    let own = config.server_id;
    format!("; server {own} of {}, links on {} (UDP)", ids.join(", "), ensemble.listen_address(own))
}

/// Returns the line with the client address, its permitted clients, and the data directory.
fn first_line(node: &Node, membership: &str) -> String {
    let data = node.data().display();
    let version = env!("CARGO_PKG_VERSION");
    match node.client_address() {
        Some(address) if address.ip().is_loopback() => {
            format!(
                "zoolet {version} serves ZooKeeper clients of this machine on {address}; data in {data}{membership}\n"
            )
        }
        Some(address) => format!(
            "zoolet {version} serves ZooKeeper clients of any machine on {address}, unencrypted; data in {data}{membership}\n"
        ),
        None => format!("zoolet {version} opens no client port; data in {data}{membership}\n"),
    }
}

/// Runs until a signal, a failure, or the awaited end of the input.
///
/// The first signal shuts down cleanly. The second ends the process at once.
fn run(node: Node, end_of_input: EndOfInput, stop: Stop) -> Result<(), Exit> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(Exit::failed)?;
    let failure = runtime.block_on(async {
        tokio::select! {
            () = stop.asked() => None,
            () = end_of_input.wait() => None,
            () = notify::keep_notified(&node) => None,
            () = allocator::return_free_memory() => None,
            failure = node.stopped() => failure,
        }
    });
    if let Some(failure) = failure {
        return Err(failed(&failure));
    }
    notify::stopping();
    info!("shutting down; a second signal ends this process at once");
    node.shutdown(SHUTDOWN_DEADLINE).map_err(Exit::failed)
}

/// The end of standard input, which never comes unless `--until-eof` awaits it.
///
/// It shows that the process at the other end of the pipe is gone, even if that process was killed.
struct EndOfInput(Option<oneshot::Receiver<()>>);

impl EndOfInput {
    fn new(is_waited_for: bool) -> Self {
        if !is_waited_for {
            return Self(None);
        }
        let (ended, end) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let mut input = std::io::stdin().lock();
            let mut bytes = [0; 64];
            // The bytes themselves mean nothing.
            while input.read(&mut bytes).is_ok_and(|read| read > 0) {}
            let _ = ended.send(());
        });
        Self(Some(end))
    }

    fn has_come(&mut self) -> bool {
        self.0.as_mut().is_some_and(|end| end.try_recv() != Err(oneshot::error::TryRecvError::Empty))
    }

    async fn wait(self) {
        match self.0 {
            Some(end) => {
                let _ = end.await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Turns a failure into exit code 1; a broken assertion aborts the process instead.
///
/// The abort leaves a core dump, if the system and the unit permit one.
fn failed(failure: &Failure) -> Exit {
    if let Failure::Bug(what) = failure {
        error!("a bug in zoolet: {what}");
        std::process::abort();
    }
    Exit::failed(failure)
}
