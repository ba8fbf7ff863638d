//! Asks a server how it is: the four-letter word `zool`.

use serde_json::Value;
use std::fmt;
use std::io::{Error, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long a server may take, from the dialling to the last byte.
const PATIENCE: Duration = Duration::from_secs(3);

/// More than any server has to say.
const BYTES_MAX: u64 = 1 << 20;

/// The one version of the answer that is understood here.
const VERSION: u64 = 1;

/// Why nothing is known of a server, in one line.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::cli) enum Unheard {
    /// It does not answer, or not as a zoolet server does.
    Silent(String),
    /// It answers in words that this release does not know.
    NotUnderstood(String),
}

impl fmt::Display for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) | Self::NotUnderstood(why) => f.write_str(why),
        }
    }
}

/// What a server at `host:port` says of itself; otherwise why nothing is known of it.
pub(in crate::cli) async fn ask(server: &str) -> Result<Value, Unheard> {
    let text = match timeout(PATIENCE, exchange(server)).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(Unheard::Silent(silence(&error))),
        Err(_) => {
            return Err(Unheard::Silent(format!(
                "no answer in {} s: the machine is off, a firewall drops what comes to this port, or the server hangs",
                PATIENCE.as_secs()
            )));
        }
    };
    read(&text)
}

fn read(text: &str) -> Result<Value, Unheard> {
    let silent = |why: &str| Err(Unheard::Silent(why.to_owned()));
    if text.contains("not in the whitelist") {
        return silent("tells this to its own machine only: ask there, or allow the four-letter word zool");
    }
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else {
        return silent("answers, but is no zoolet server");
    };
    match fields.get("version").and_then(Value::as_u64) {
        Some(VERSION) => Ok(Value::Object(fields)),
        // What its fields mean is not known here, so nothing of it may pass for healthy.
        Some(version) => Err(Unheard::NotUnderstood(format!(
            "answers with version {version} of its status, and this zoolet understands {VERSION}: ask with the zoolet that runs there"
        ))),
        None => silent("answers, but is no zoolet server"),
    }
}

/// Why there is no answer, and what helps.
fn silence(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            "nobody listens there: see that the server runs, and that `clients` of its file is this address (127.0.0.1 is for its own machine only)"
                .to_owned()
        }
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            format!("no way leads there ({error}): see that the machine is on, and its network")
        }
        _ => error.to_string(),
    }
}

async fn exchange(server: &str) -> Result<String, Error> {
    let addresses = lookup_host(server).await.map_err(|error| {
        Error::other(format!(
            "nobody knows an address of this name ({error}): see DNS and /etc/hosts, or give the address"
        ))
    })?;
    let mut stream = TcpStream::connect(&*addresses.collect::<Vec<_>>()).await?;
    stream.write_all(b"zool").await?;
    let mut bytes = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_that_is_understood_is_taken_for_an_answer() {
        assert!(read(r#"{"version": 1, "server": 2}"#).is_ok());
        let line = |text: &str| match read(text) {
            Err(Unheard::NotUnderstood(line)) => line,
            other => panic!("{other:?}"),
        };
        assert!(line(r#"{"version": 2, "role": "leader"}"#).starts_with("answers with version 2 of its status"));
        assert!(line(r#"{"version": 0}"#).contains("this zoolet understands 1"));
        for stranger in ["", "imok", "[]", "{}", r#"{"version": "1"}"#, r#"{"version": 1"#] {
            let Err(Unheard::Silent(why)) = read(stranger) else { panic!("{stranger} was taken for an answer") };
            assert_eq!(why, "answers, but is no zoolet server");
        }
    }
}
