//! The role and the kind of a server, from its answer to a four-letter word.

use super::{Introduction, Status};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// The words that tell a server's version, in the order in which they are sent; `envi` tells no role.
///
/// A server answers only the words that its configuration allows.
const WORDS: [&[u8; 4]; 3] = [b"srvr", b"mntr", b"envi"];
/// Maximum wait for an answer: behind a satellite, a connection and an answer take more than 1 s.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum bytes read. Only ZooKeeper's `mntr` is longer; version and role are its first lines.
const BYTES_MAX: u64 = 1 << 14;

/// Asks the server of a connection, and writes its answer into the status of that connection.
///
/// `server` is the address of the peer: behind the same name, the next connection may have another.
pub(super) async fn learn(server: SocketAddr, connection: u64, status: watch::Sender<Status>) {
    let introduction = introduction(server).await;
    status.send_if_modified(|status| {
        let is_there = status.connection == connection && status.state.is_connected();
        if is_there {
            status.introduction = Some(introduction);
        }
        is_there
    });
}

/// Returns the answer to the first word that tells a version; an empty one if the server allows none.
async fn introduction(server: SocketAddr) -> Introduction {
    for word in WORDS {
        let Ok(answer) = timeout(PATIENCE, ask(server, word)).await else { break };
        let answer = answer.unwrap_or_default();
        if let Some(version) = value(&answer, ["Zookeeper version: ", "zk_version\t", "zookeeper.version="]) {
            return Introduction { role: role(&answer).to_owned(), is_zoolet: names_zoolet(version) };
        }
    }
    Introduction::default()
}

/// Returns the rest of the first line with one of these beginnings.
fn value<'a, const COUNT: usize>(answer: &'a str, beginnings: [&str; COUNT]) -> Option<&'a str> {
    answer.lines().find_map(|line| beginnings.iter().find_map(|beginning| line.strip_prefix(beginning)))
}

/// Returns whether a version is zoolet's: it follows the version of ZooKeeper.
fn names_zoolet(version: &str) -> bool {
    version.contains("-zoolet-")
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
    let role = value(answer, ["Mode: ", "zk_server_state\t"]).unwrap_or_default();
    if role.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') { role } else { "" }
}

#[cfg(test)]
mod tests {
    #[test]
    fn role_is_read_from_the_answer() {
        assert_eq!(super::role("Zookeeper version: 3.8\nMode: leader\nNode count: 5\n"), "leader");
        assert_eq!(super::role("zk_version\t3.8\nzk_server_state\tread-only\n"), "read-only");
        assert_eq!(super::role("Mode: \u{1b}[2J"), "");
        assert_eq!(super::role("srvr is not executed because it is not in the whitelist."), "");
    }
}
