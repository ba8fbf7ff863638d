//! The session of a command.

use super::{Exit, FAILED, Options, Signals, Wait, failed};
use crate::cli::blocking::look_up;
use crate::cli::complain;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zookeeper_client::Client;
use zoolet_model::{ErrorCode, SessionState};
use zoolet_recipes::{Coordinator, Error, ErrorKind, Remote};

/// Bounds the wait for the end of a session that is being closed.
const CLOSING_MAX: Duration = Duration::from_secs(2);
/// Bounds the search for the reason of a failure.
const PROBE: Duration = Duration::from_secs(1);
/// Maximum time for looking up the addresses of a name. Then the client looks it up when its turn
/// comes.
const LOOK_UP_MAX: Duration = Duration::from_secs(1);
/// The part of the session timeout for opening a session and for all requests, if a command must
/// not wait.
const AT_ONCE_ONE_IN: u32 = 2;
/// Time without an answer after which the user is told what zoolet waits for.
const SILENCE: Duration = Duration::from_secs(1);
/// Pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The time that a command waits, over all sessions that it opens meanwhile.
pub(super) struct Patience {
    began: Instant,
    /// Whether a failure to open a session ends the command.
    is_eager: bool,
    /// Whether the user knows that a server cannot carry out requests now.
    is_told_of_refusal: bool,
    /// The session of the attempt before, if it is not over.
    kept: Option<Remote>,
}

impl Patience {
    /// Without a bound of the wait, the first session must come within its timeout: otherwise the
    /// servers' names may be wrong. `forever` lifts that too.
    pub(super) fn new(options: &Options, forever: bool) -> Self {
        let is_eager = !forever && options.wait == Wait::Forever;
        Self { began: Instant::now(), is_eager, is_told_of_refusal: false, kept: None }
    }

    /// Returns what is left of the wait.
    pub(super) fn left(&self, options: &Options) -> Duration {
        let bound = match options.wait {
            Wait::NotAtAll => at_once(options),
            Wait::AtMost(patience) => patience,
            Wait::Forever => return Duration::MAX,
        };
        bound.saturating_sub(self.began.elapsed())
    }

    /// Lets the next attempt use this session, if it is not over.
    pub(super) fn keep(&mut self, session: Remote) {
        self.kept = Some(session);
    }

    /// Notes that an attempt succeeded, so that the user hears of the next refusal.
    pub(super) fn succeeded(&mut self) {
        self.is_told_of_refusal = false;
    }

    /// Returns the session that was kept, or opens one.
    ///
    /// # Errors
    /// The wait ends, no server opens the first session, or a signal comes.
    pub(super) async fn open(&mut self, options: &Options, signals: &mut Signals) -> Result<Remote, Exit> {
        if let Some(kept) = self.kept.take().filter(|kept| !is_over(kept)) {
            return Ok(kept);
        }
        let mut is_told = false;
        loop {
            let attempt = timeout(self.left(options), connect(options));
            let opened = tokio::select! {
                opened = attempt => opened,
                exit = ended(signals) => return Err(exit),
            };
            let failure = match opened {
                Ok(Ok(session)) => {
                    // A later session may take as long as an outage lasts.
                    self.is_eager = false;
                    return Ok(session);
                }
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            };
            let is_over = failure.is_none() || options.wait == Wait::NotAtAll;
            if is_told && !is_over {
                pause(PAUSE.min(self.left(options)), signals).await?;
                continue;
            }
            let why = tokio::select! {
                why = reason(&options.servers, failure.is_some()) => why,
                exit = ended(signals) => return Err(exit),
            };
            let why = why.or(failure.map(|error| error.to_string()));
            let why = why.unwrap_or_else(|| "no server has answered".to_owned());
            let path = &options.path;
            let line = match options.wait {
                Wait::NotAtAll => format!("{path}: no session at once: {why}"),
                Wait::AtMost(patience) if is_over => {
                    format!("{path}: no session within {} s: {why}", patience.as_secs_f64())
                }
                Wait::AtMost(_) | Wait::Forever => {
                    let (servers, waited) = (options.servers.join(","), options.session_timeout.as_secs_f64());
                    format!("{servers}: no session within {waited} s: {why}")
                }
            };
            if is_over {
                return Err(Exit::new(options.conflict, line));
            }
            if self.is_eager {
                return Err(failed(line));
            }
            complain(&format!("{line}; zoolet goes on trying"));
            is_told = true;
            pause(PAUSE, signals).await?;
        }
    }
}

/// Returns how long a command may take to find out that it would have to wait.
fn at_once(options: &Options) -> Duration {
    options.session_timeout / AT_ONCE_ONE_IN
}

/// Connects to one server after the other, for one session timeout.
async fn connect(options: &Options) -> Result<Remote, zookeeper_client::Error> {
    let connected = async {
        let mut connector = Client::connector().with_session_timeout(options.session_timeout);
        if options.wait == Wait::NotAtAll {
            connector = connector.with_fail_eagerly();
        }
        Remote::connect(connector, &resolved(&options.servers).await.join(",")).await
    };
    timeout(options.session_timeout, connected).await.unwrap_or(Err(zookeeper_client::Error::Timeout))
}

/// Returns the servers with each address of a name as a server of its own.
///
/// The client tries the addresses of one name in their order, and its time for the name ends at the
/// first address that does not answer.
async fn resolved(servers: &[String]) -> Vec<String> {
    if servers.iter().all(|server| server.parse::<SocketAddr>().is_ok()) {
        return servers.to_vec();
    }
    // A name whose look-up takes long must keep no other server waiting.
    let each = |server: &String| {
        let server = server.clone();
        tokio::spawn(async move {
            let addresses = look_up(&server, LOOK_UP_MAX).await.unwrap_or_default();
            each_address(server, &addresses)
        })
    };
    let tasks: Vec<_> = servers.iter().map(each).collect();
    let mut resolved = Vec::new();
    for task in tasks {
        resolved.extend(task.await.unwrap_or_default());
    }
    resolved
}

/// Returns the addresses of a server with several, and its name.
///
/// The name is for a later connection, when the server may have other addresses.
fn each_address(server: String, addresses: &[SocketAddr]) -> Vec<String> {
    let several = addresses.iter().filter(|_| addresses.len() > 1).map(SocketAddr::to_string);
    several.chain([server.clone()]).collect()
}

/// Waits for a signal that ends a command which does not hold anything yet.
pub(super) async fn ended(signals: &mut Signals) -> Exit {
    Exit::new(signals.end().await.exit_code(), "")
}

/// Waits for `time`.
///
/// # Errors
/// A signal asks this process to end.
pub(super) async fn pause(time: Duration, signals: &mut Signals) -> Result<(), Exit> {
    tokio::select! {
        () = tokio::time::sleep(time) => Ok(()),
        exit = ended(signals) => Err(exit),
    }
}

/// Returns the reason why no server opens a session. A server that accepts connections is named
/// first. If none does, the reason is the first server's connection error.
///
/// `is_complete` tells whether the client had a session timeout for its attempts. Otherwise it may not
/// have asked each server.
async fn reason(servers: &[String], is_complete: bool) -> Option<String> {
    // Dropping the set cancels the remaining probes.
    let mut attempts = JoinSet::new();
    for (number, server) in servers.iter().cloned().enumerate() {
        attempts.spawn(async move { (number, reach(&server).await) });
    }
    let mut first = None;
    while let Some(attempt) = attempts.join_next().await {
        match attempt.ok()? {
            (number, Ok(())) => {
                let server = servers.get(number)?;
                return Some(if is_complete {
                    format!(
                        "{server} accepts connections, but opens no session: it hangs, or has no quorum or no room; run \
                         zoolet status"
                    )
                } else {
                    format!("{server} accepts connections; wait longer, or run zoolet status")
                });
            }
            (0, Err(error)) => first = Some(error),
            (_, Err(_)) => {}
        }
    }
    let (server, error) = (servers.first()?, first?);
    let others = if servers.len() > 1 { ", and the other servers cannot be reached either" } else { "" };
    Some(format!(
        "{server}: {error}{others}; check that a server runs there, or name others with --server or ZOOLET_SERVER"
    ))
}

/// Opens a connection to a server.
async fn reach(server: &str) -> io::Result<()> {
    let silent = || {
        let line = format!("no connection within {} s", PROBE.as_secs_f64());
        io::Error::new(io::ErrorKind::TimedOut, line)
    };
    let connected = async {
        let addresses = look_up(server, PROBE).await?;
        TcpStream::connect(&*addresses).await
    };
    timeout(PROBE, connected).await.map_err(|_| silent())??;
    Ok(())
}

/// Why an attempt brought nothing.
pub(super) enum Refusal {
    Final(Exit),
    Recipe(Error),
}

impl Refusal {
    /// Returns whether another attempt may still bring it.
    ///
    /// A place in a line is lost with its session. A server may be able to carry out requests later.
    pub(super) fn is_passing(&self, options: &Options, session: &Remote) -> bool {
        let Self::Recipe(error) = self else { return false };
        (is_over(session) || is_unable(error)) && options.wait != Wait::NotAtAll
    }

    /// Waits before the next attempt if a server refused this one, and keeps the session for it. After a
    /// lost session, returns at once.
    ///
    /// # Errors
    /// The wait ends, or a signal asks this process to end.
    pub(super) async fn let_pass(
        self,
        options: &Options,
        session: Remote,
        patience: &mut Patience,
        signals: &mut Signals,
    ) -> Result<(), Exit> {
        match self {
            Self::Recipe(error) if is_unable(&error) => {
                let (line, left) = (told(options, &error), patience.left(options));
                if left <= PAUSE {
                    pause(left, signals).await?;
                    return Err(Exit::new(options.conflict, line));
                }
                if !std::mem::replace(&mut patience.is_told_of_refusal, true) {
                    complain(&format!("{line}; zoolet goes on trying"));
                }
                patience.keep(session);
                pause(PAUSE, signals).await
            }
            Self::Recipe(_) | Self::Final(_) => Ok(()),
        }
    }

    pub(super) fn exit(self, options: &Options) -> Exit {
        match self {
            Self::Final(exit) => exit,
            Self::Recipe(error) if options.wait == Wait::NotAtAll && is_unanswered(&error) => {
                Exit::new(options.conflict, told(options, &error))
            }
            Self::Recipe(error) => refused(options, &error),
        }
    }
}

/// Returns whether the servers have not answered, so that the grant may be free or not.
fn is_unanswered(error: &Error) -> bool {
    use ErrorKind as E;
    matches!(error.kind(), E::Disconnected | E::ConnectionLoss | E::Suspended | E::SessionLost(_) | E::Closed)
}

/// Waits for `attempt` for as long as the options say, or for a signal.
pub(super) async fn within<T>(
    options: &Options,
    patience: &Patience,
    attempt: impl Future<Output = Result<T, Error>>,
    missing: &str,
    signals: &mut Signals,
) -> Result<T, Refusal> {
    tokio::select! {
        // Dropping the attempt deletes its znode once a server answers. Otherwise the znode goes
        // with the session, which this process keeps alive no longer.
        done = timeout(patience.left(options), attempt) => match done {
            Ok(done) => done.map_err(Refusal::Recipe),
            Err(_) if options.wait == Wait::NotAtAll => {
                let (path, waited) = (&options.path, at_once(options).as_secs_f64());
                let line = format!("{path}: no server has answered within {waited} s");
                Err(Refusal::Final(Exit::new(options.conflict, line)))
            }
            Err(_) => Err(Refusal::Final(super::conflict(options, missing))),
        },
        exit = ended(signals) => Err(Refusal::Final(exit)),
    }
}

/// Waits until something is given up, for as long as it can matter.
///
/// Returns the signal that ended the wait. The last requests are on their way then.
pub(super) async fn give_up<T>(
    options: &Options,
    bound: Duration,
    giving_up: impl Future<Output = T>,
    signals: &mut Signals,
) -> Option<super::Signal> {
    let patient = async {
        let (began, mut giving_up) = (Instant::now(), pin!(giving_up));
        if timeout(SILENCE.min(bound), &mut giving_up).await.is_err() {
            // Without a connection it is free once its session ends.
            let (path, left) = (&options.path, bound.saturating_sub(began.elapsed()));
            complain(&format!(
                "{path}: no server confirms the release; zoolet waits up to {} s more; without a confirmation, the \
                 servers free it when they expire the session",
                left.as_secs_f64().ceil()
            ));
            let _ = timeout(left, giving_up).await;
        }
    };
    tokio::select! {
        () = patient => None,
        signal = signals.next() => Some(signal),
    }
}

/// Waits until the tasks of dropped sessions have closed them.
pub(super) async fn let_close() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let closed = async {
        while metrics.num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // A server that does not answer ends the session itself, after its timeout.
    let _ = tokio::time::timeout(CLOSING_MAX, closed).await;
}

/// Returns whether the session is over, so that only another session can go on.
pub(super) fn is_over(session: &Remote) -> bool {
    matches!(session.state(), SessionState::Lost(_) | SessionState::Closed)
}

/// Returns whether a server cannot carry out requests now.
fn is_unable(error: &Error) -> bool {
    error.code() == Some(ErrorCode::SystemError)
}

/// Converts a recipe's error.
pub(super) fn refused(options: &Options, error: &Error) -> Exit {
    Exit::new(FAILED, told(options, error))
}

/// Returns the message for a recipe's error. For a server's refusal it has the cause and the remedy.
pub(super) fn told(options: &Options, error: &Error) -> String {
    let (path, why) = (&options.path, why(error));
    match (error.operation(), error.path()) {
        // The user knows the path that the command was given, and the paths below it.
        (Some(operation), Some(at)) if at.starts_with(path) => format!("cannot {operation} {at}: {why}"),
        (Some(operation), Some(at)) => format!("{path}: cannot {operation} {at}: {why}"),
        _ => format!("{path}: {why}"),
    }
}

fn why(error: &Error) -> String {
    let Some(code) = error.code() else { return error.kind().to_string() };
    let why = match code {
        ErrorCode::SystemError => {
            "the server's disk is full, read-only or failing, or a bound is reached; run zoolet status"
        }
        ErrorCode::NoAuth => {
            "an ACL refuses this change; allow world:anyone there, or on its parent, with setAcl in zoolet shell, or use \
             another path"
        }
        ErrorCode::QuotaExceeded => {
            "a quota refuses this change; listquota in zoolet shell shows it, and setquota raises it"
        }
        ErrorCode::NoChildrenForEphemerals => "an ephemeral cannot have children; use another path",
        ErrorCode::NotReadOnly => "the server serves only readers, because it has no leader",
        other => return format!("the server answers {other}"),
    };
    format!("{why} ({code:?})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::Path;

    #[test]
    fn each_address_of_a_name_is_a_server_of_its_own() {
        let addresses = ["10.0.0.1:2181", "[fd00::1]:2181"].map(|address| address.parse().unwrap());
        let servers = |addresses: &[SocketAddr]| each_address("zk:2181".to_owned(), addresses).join(",");
        assert_eq!(servers(&addresses), "10.0.0.1:2181,[fd00::1]:2181,zk:2181");
        assert_eq!((servers(&addresses[..1]), servers(&[])), ("zk:2181".to_owned(), "zk:2181".to_owned()));
    }

    /// Opening the session and setting the permits had half of the timeout each.
    #[test]
    fn command_that_must_not_wait_has_one_bound_for_all_its_steps() {
        let options = Options { wait: Wait::NotAtAll, session_timeout: Duration::from_secs(10), ..Options::default() };
        let began = Instant::now().checked_sub(Duration::from_secs(4)).unwrap();
        let left = Patience { began, ..Patience::new(&options, false) }.left(&options);
        assert!(left <= Duration::from_secs(1), "{left:?}");
    }

    #[test]
    fn message_names_each_path_once() {
        let options = Options { path: Path::from_static("/locks/door"), ..Options::default() };
        let told = |error: Error| told(&options, &error);
        let refused = |path: &'static str| told(Error::at(ErrorCode::NoChildrenForEphemerals, "create", &path.into()));
        let why = "an ephemeral cannot have children; use another path (NoChildrenForEphemerals)";
        assert_eq!(refused("/locks/door/n-"), format!("cannot create /locks/door/n-: {why}"));
        assert_eq!(refused("/locks"), format!("/locks/door: cannot create /locks: {why}"));
        let broken = "/locks/door: another client deleted the znode of this participant";
        assert_eq!(told(ErrorKind::Broken.into()), broken);
    }
}
