//! The role and the kind of a server, from its answer to the four-letter word `srvr`.

use super::{Introduction, Status};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum wait for the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum bytes read; no server sends as many.
const BYTES_MAX: u64 = 1 << 14;

/// Asks the server of a connection, and writes its answer into the status of that connection.
///
/// `server` is the address of the peer: behind the same name, the next connection may have another.
pub(super) async fn learn(server: SocketAddr, connection: u64, status: watch::Sender<Status>) {
    let answer =
        timeout(PATIENCE, ask(server, b"srvr")).await.unwrap_or_else(|_| Ok(String::new())).unwrap_or_default();
    status.send_if_modified(|status| {
        let is_there = status.connection == connection && status.state.is_connected();
        if is_there {
            let (role, is_zoolet) = (role(&answer).to_owned(), names_zoolet(&answer));
            status.introduction = Some(Introduction { role, is_zoolet });
        }
        is_there
    });
}

/// Returns whether the version in an answer is zoolet's: it follows the version of ZooKeeper.
fn names_zoolet(answer: &str) -> bool {
    answer.lines().any(|line| line.starts_with("Zookeeper version: ") && line.contains("-zoolet-"))
}

/// Sends a four-letter word on a connection of its own, and returns the answer.
pub(super) async fn ask(server: SocketAddr, word: &[u8; 4]) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(word).await?;
    let mut bytes = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the role in an answer; empty if it has none.
fn role(answer: &str) -> &str {
    let role = answer.lines().find_map(|line| line.strip_prefix("Mode: ")).unwrap_or_default();
    if role.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') { role } else { "" }
}

#[cfg(test)]
mod tests {
    #[test]
    fn version_tells_zoolet_from_zookeeper() {
        assert!(super::names_zoolet("Zookeeper version: 3.9.5-zoolet-0.1.0, built on x\nMode: leader\n"));
        assert!(!super::names_zoolet("Zookeeper version: 3.9.5-abc, built on x\nMode: -zoolet-\n"));
    }

    #[test]
    fn role_is_read_from_the_answer() {
        assert_eq!(super::role("Zookeeper version: 3.8\nMode: leader\nNode count: 5\n"), "leader");
        assert_eq!(super::role("Mode: \u{1b}[2J"), "");
        assert_eq!(super::role("srvr is not executed because it is not in the whitelist."), "");
    }
}
