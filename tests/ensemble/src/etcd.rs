//! The part of etcd's JSON gateway that sets a key and tells the leader.

use crate::site::{Role, Status};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Bound on the length of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A connection that is kept open.
pub struct Http {
    stream: BufReader<TcpStream>,
}

impl Http {
    /// Connects. `patience` also bounds each later wait.
    ///
    /// # Errors
    /// The connection fails.
    pub fn connect(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sets a key, and returns when that is acknowledged.
    ///
    /// # Errors
    /// The connection ends, or the answer is not a success.
    pub fn put(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let body = format!("{{\"key\":\"{}\",\"value\":\"{}\"}}", base64(key.as_bytes()), base64(value));
        self.post("/v3/kv/put", &body).map(drop)
    }

    /// Posts a request, and returns the body of a successful answer.
    fn post(&mut self, path: &str, body: &str) -> io::Result<String> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?;
        let mut length = 0;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(|_| invalid(&line))?;
            }
        }
        if length > ANSWER_BYTES_MAX {
            return Err(invalid("too long an answer"));
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if status.split(' ').nth(1) == Some("200") { Ok(answer) } else { Err(invalid(&format!("{status}: {answer}"))) }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Returns the status that a server reports; `None` without a leader or an answer.
pub(crate) fn status(address: SocketAddr, patience: Duration) -> Option<Status> {
    let answer = Http::connect(address, patience).ok()?.post("/v3/maintenance/status", "{}").ok()?;
    let (own, leader) = (quoted(&answer, "member_id")?, quoted(&answer, "leader")?);
    let role = if own == leader { Role::Leader } else { Role::Follower };
    let zxid = quoted(&answer, "raftAppliedIndex").and_then(|index| index.parse().ok()).unwrap_or(0);
    let epoch = quoted(&answer, "raftTerm")?.parse().ok()?;
    Some(Status { role, epoch, zxid })
}

/// Returns the value of `"key":"value"`.
fn quoted<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{key}\":\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * place)) as usize & 63];
            let _ = text.write_char(if place <= chunk.len() { digit as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_equals_the_rfc_4648_vectors() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        pairs.into_iter().for_each(|(plain, coded)| assert_eq!(base64(plain.as_bytes()), coded));
    }

    #[test]
    fn json_strings_are_found_by_field_name() {
        let json = "{\"header\":{\"cluster_id\":\"7\",\"member_id\":\"12\"},\"leader\":\"12\"}";
        assert_eq!(
            (quoted(json, "member_id"), quoted(json, "leader"), quoted(json, "x")),
            (Some("12"), Some("12"), None)
        );
    }
}
