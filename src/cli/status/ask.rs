//! Asks a server for its status with the four-letter word `zool`.

use crate::cli::blocking::look_up;
use serde_json::Value;
use std::fmt;
use std::io::{Error, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum time from connecting to the last byte of the answer, unless `--wait` leaves less.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Maximum bytes read; no server sends as many.
const BYTES_MAX: u64 = 1 << 20;

/// The only supported version of the answer.
const VERSION: u64 = 1;

/// Why a server's status is unknown, in one line.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::cli) enum Unheard {
    /// The server does not answer, or is not zoolet.
    Silent(String),
    /// The answer is in a version that this release does not understand.
    NotUnderstood(String),
}

impl fmt::Display for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) | Self::NotUnderstood(why) => f.write_str(why),
        }
    }
}

const CLOSED: &str = "closes the connection without an answer: its connections are all taken (some are \
                      reserved for its own machine: ask there), or it is not a zoolet server";

/// Returns the status of the server at `host:port`, waiting at most `patience`.
///
/// # Errors
/// The status is unknown; the error says why.
pub(super) async fn ask(server: &str, patience: Duration) -> Result<Value, Unheard> {
    let text = match timeout(patience, exchange(server, patience)).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(Unheard::Silent(silence(&error))),
        Err(_) => {
            return Err(Unheard::Silent(format!(
                "no answer in {:.0} s: the machine is off, a firewall drops packets to this port, or the server hangs",
                patience.as_secs_f64()
            )));
        }
    };
    read(&text)
}

fn read(text: &str) -> Result<Value, Unheard> {
    let silent = |why: &str| Err(Unheard::Silent(why.to_owned()));
    if text.contains("not in the whitelist") {
        return silent(
            "shows its status only on its own machine: ask there, or write four_letter_words = [\"srvr\", \
             \"zool\"] in the zoolet.toml of that server (4lw.commands.whitelist=srvr,zool in a zoo.cfg), and \
             restart it",
        );
    }
    if text.is_empty() {
        return silent(CLOSED);
    }
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else {
        return silent("answers, but is not a zoolet server");
    };
    match fields.get("version").and_then(Value::as_u64) {
        Some(VERSION)
            if fields.get("role").is_some_and(Value::is_string)
                && fields.get("alarms").is_some_and(Value::is_array) =>
        {
            Ok(printable(Value::Object(fields)))
        }
        Some(VERSION) => Err(Unheard::NotUnderstood("answers with a status without role or alarms".to_owned())),
        // An unknown version may give its fields another meaning, so nothing in it may count as
        // healthy.
        Some(version) => Err(Unheard::NotUnderstood(format!(
            "answers with version {version} of its status, but this zoolet understands {VERSION}: ask with the zoolet that runs there"
        ))),
        None => silent("answers, but is not a zoolet server"),
    }
}

/// Escapes characters that control a terminal: any program may listen at the address.
fn printable(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(escaped(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(printable).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (escaped(&key), printable(value))).collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_obeyed(letter) { shown.extend(letter.escape_unicode()) } else { shown.push(letter) }
    }
    shown
}

/// Returns whether a terminal obeys the character.
///
/// These are control characters, characters that change the writing direction, and invisible ones.
fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Explains a failed connection, with a remedy.
fn silence(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            "connection refused: check that the server runs, and that `clients` in its file is this address (127.0.0.1 is for its own machine only)"
                .to_owned()
        }
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            format!("unreachable ({error}): check that the machine is on, and its network")
        }
        // The server resets a connection that it closes before reading the word.
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => CLOSED.to_owned(),
        _ => error.to_string(),
    }
}

async fn exchange(server: &str, patience: Duration) -> Result<String, Error> {
    let addresses = look_up(server, patience).await.map_err(|error| {
        Error::other(format!("cannot resolve the name ({error}): check DNS and /etc/hosts, or give the address"))
    })?;
    let mut stream = TcpStream::connect(&*addresses).await?;
    stream.write_all(b"zool").await?;
    let mut bytes = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_a_status_answer_are_escaped() {
        let said = "{\"version\": 1, \"role\": \"\\u001b]0;owned\\u0007\u{9b}2J\\u007f\", \"site\": \"zo\u{f6}let\u{202e}\", \"alarms\": [], \
                    \"peers\": [{\"refusal\": \"a\\nb\\r\"}], \"x\\u001b\": 7}";
        let read = read(said).unwrap();
        assert_eq!(read["role"], "\\u{1b}]0;owned\\u{7}\\u{9b}2J\\u{7f}");
        assert_eq!(read["site"], "zo\u{f6}let\\u{202e}");
        assert_eq!(read["peers"][0]["refusal"], "a\\u{a}b\\u{d}");
        let shown = super::super::tests::answer(Ok(read));
        let texts = [super::super::show::text(std::slice::from_ref(&shown)), super::super::to_json(&[shown])];
        assert!(
            texts.iter().all(|text| !text.contains(|letter: char| is_obeyed(letter) && letter != '\n')),
            "{texts:?}"
        );
    }

    #[test]
    fn word_missing_from_the_whitelist_is_reported_with_its_remedy() {
        let Err(Unheard::Silent(why)) = read("zool is not executed because it is not in the whitelist.") else {
            panic!("it was taken for an answer")
        };
        assert!(
            why.contains("write four_letter_words = [\"srvr\", \"zool\"] in the zoolet.toml of that server"),
            "{why}"
        );
    }

    #[test]
    fn closed_or_reset_connection_is_reported_as_a_possibly_full_server() {
        let Err(Unheard::Silent(closed)) = read("") else { panic!("nothing was taken for an answer") };
        let reset = silence(&ErrorKind::ConnectionReset.into());
        assert_eq!((closed.as_str(), reset.as_str()), (CLOSED, CLOSED));
    }

    #[test]
    fn only_the_supported_status_version_is_accepted() {
        assert!(read(r#"{"version": 1, "role": "leader", "alarms": []}"#).is_ok());
        let line = |text: &str| match read(text) {
            Err(Unheard::NotUnderstood(line)) => line,
            other => panic!("{other:?}"),
        };
        assert!(line(r#"{"version": 2, "role": "leader"}"#).starts_with("answers with version 2 of its status"));
        assert!(line(r#"{"version": 0}"#).contains("this zoolet understands 1"));
        for partial in [
            r#"{"version": 1, "role": "leader"}"#,
            r#"{"version": 1, "role": 3, "alarms": []}"#,
            r#"{"version": 1, "alarms": []}"#,
        ] {
            assert_eq!(line(partial), "answers with a status without role or alarms");
        }
        for stranger in ["imok", "[]", "{}", r#"{"version": "1"}"#, r#"{"version": 1"#] {
            let Err(Unheard::Silent(why)) = read(stranger) else { panic!("{stranger} was taken for an answer") };
            assert_eq!(why, "answers, but is not a zoolet server");
        }
    }
}
