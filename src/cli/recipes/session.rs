//! The session of a command.

use super::{Exit, FAILED, Options, Signals, failed};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use zookeeper_client::Client;
use zoolet_model::SessionState;
use zoolet_recipes::{Coordinator, Error, Remote};

/// Bounds the wait for the end of a session that is being closed.
const CLOSING_MAX: Duration = Duration::from_secs(2);
/// Bounds the attempt that finds the reason of a failure.
const PROBE: Duration = Duration::from_secs(1);

/// Opens a session, trying each server for one session timeout.
///
/// # Errors
/// No server opens a session, or a signal ends the attempt.
pub(super) async fn open(options: &Options, signals: &mut Signals) -> Result<Remote, Exit> {
    let connector = Client::connector().with_session_timeout(options.session_timeout);
    let servers = options.servers.join(",");
    tokio::select! {
        opened = Remote::connect(connector, &servers) => opened.map_err(|error| {
            let why = reason(&options.servers).unwrap_or_else(|| error.to_string());
            let waited = options.session_timeout.as_secs_f64();
            failed(format!("{servers}: no session within {waited} s: {why}"))
        }),
        exit = ended(signals) => Err(exit),
    }
}

/// Waits for a signal that ends a command which does not hold anything yet.
pub(super) async fn ended(signals: &mut Signals) -> Exit {
    Exit::new(signals.next().await.exit_code(), "")
}

/// Returns why the first server cannot be reached; `None` if it accepts connections.
fn reason(servers: &[String]) -> Option<String> {
    let server = servers.first()?;
    let remedy = "check that a server runs there, or name others with --server or ZOOLET_SERVER";
    let address = match server.to_socket_addrs().map(|mut addresses| addresses.next()) {
        Ok(Some(address)) => address,
        Ok(None) => return Some(format!("{server} has no address; {remedy}")),
        Err(error) => return Some(format!("{server}: {error}; {remedy}")),
    };
    match TcpStream::connect_timeout(&address, PROBE) {
        Ok(_) => Some(format!(
            "{server} accepts connections, but opens no session: it has no quorum, or no room; ask zoolet status"
        )),
        Err(error) => Some(format!("{server}: {error}; {remedy}")),
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

/// Converts a recipe's error about the path.
pub(super) fn refused(options: &Options, error: Error) -> Exit {
    Exit::new(FAILED, format!("{}: {error}", options.path))
}
