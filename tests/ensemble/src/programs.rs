//! Client programs in other languages, one process each, that take commands and report lines.
//!
//! `tests/foreign/survivors/survivors.py` describes the lines.

use crate::{Outcome, said};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Call {
    /// Sets the value without a condition.
    Set,
    /// Reads the value.
    Get,
    /// Sets the value if its version is the one that the client read before.
    Conditional,
    /// Creates a sequential child.
    Create,
    /// Syncs.
    Sync,
    /// Reads the watched znode and registers a data watch.
    Arm,
    /// Sets the watched znode.
    Trigger,
}

const CALLS: [(&str, Call); 7] = [
    ("set", Call::Set),
    ("get", Call::Get),
    ("conditional", Call::Conditional),
    ("create", Call::Create),
    ("sync", Call::Sync),
    ("arm", Call::Arm),
    ("trigger", Call::Trigger),
];

/// The numbers of an answer: a version or a sequence number, and the data of the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Version of the znode or number of the sequential child; 0 for a sync.
    pub number: i64,
    /// Data of the value; 0 for other calls.
    pub data: i64,
}

/// One line of a client program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// The load of a run has begun.
    Begun {
        /// Number of the run.
        run: u32,
        /// The client's session.
        session: u64,
    },
    /// A call ended, with an answer or the name of its error.
    Call(Call, Result<Answer, String>),
    /// The connection changed; `true` if it is good now.
    State(bool),
    /// A data watch fired.
    Event,
    /// The load of a run has ended.
    Ended {
        /// Number of the run.
        run: u32,
        /// The client's session.
        session: u64,
        /// Owner of the run's ephemeral; 0 if it is missing, `None` if the client could not ask.
        owner: Option<u64>,
    },
}

impl Line {
    /// Parses a line; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let session = |word: &str| u64::from_str_radix(word, 16).ok();
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["begun", run, own] => Some(Self::Begun { run: run.parse().ok()?, session: session(own)? }),
            ["ended", run, own, owner] => {
                Some(Self::Ended { run: run.parse().ok()?, session: session(own)?, owner: session(owner) })
            }
            ["state", state] => Some(Self::State(state == "connected")),
            ["event"] => Some(Self::Event),
            [name, "failed", ..] => Some(Self::Call(call(name)?, Err(words[2..].join(" ")))),
            [name, "ok", ref numbers @ ..] => {
                let number = |place: usize| numbers.get(place).map_or(Some(0), |word| word.parse().ok());
                Some(Self::Call(call(name)?, Ok(Answer { number: number(0)?, data: number(1)? })))
            }
            _ => None,
        }
    }
}

fn call(name: &str) -> Option<Call> {
    CALLS.iter().find(|(own, _)| *own == name).map(|(_, call)| *call)
}

/// A running client program. It is killed on drop.
pub struct Program {
    /// Its client library.
    pub library: String,
    /// The server whose address it has.
    pub server: u8,
    child: Child,
    commands: ChildStdin,
    lines: Receiver<(Instant, String)>,
}

impl Program {
    /// Starts the program `directory/library` for a server.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(directory: &Path, library: &str, server: u8, address: SocketAddr) -> Outcome<Self> {
        let path = directory.join(library);
        let mut command = Command::new(&path);
        command.arg(address.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(said(path.display()))?;
        let (Some(commands), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{}: no pipes", path.display()));
        };
        let (sender, lines) = channel();
        // The time of a line is that of its arrival here, so all clients share one clock.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { library: library.to_owned(), server, child, commands, lines })
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The program has ended.
    pub fn command(&mut self, command: &str) -> Outcome<()> {
        writeln!(self.commands, "{command}").map_err(said(self.name()))
    }

    /// Returns the lines up to the first one that `is_last` accepts, or up to the time `until`.
    ///
    /// # Errors
    /// A line is malformed, or the program has ended.
    pub fn lines_until(&self, until: Instant, mut is_last: impl FnMut(&Line) -> bool) -> Outcome<Vec<(Instant, Line)>> {
        let mut lines = Vec::new();
        loop {
            let (at, text) = match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => return Ok(lines),
                Err(RecvTimeoutError::Disconnected) => return Err(format!("{} has ended", self.name())),
            };
            let line = Line::parse(&text).ok_or_else(|| format!("{}: {text}", self.name()))?;
            let is_over = is_last(&line);
            lines.push((at, line));
            if is_over {
                return Ok(lines);
            }
        }
    }

    /// Waits for the begin of a run, and returns the client's session.
    ///
    /// # Errors
    /// The run does not begin within `patience`, or a line is malformed.
    pub fn wait_for_begin(&self, run: u32, patience: Duration) -> Outcome<u64> {
        let is_begin = |line: &Line| matches!(line, Line::Begun { run: begun, .. } if *begun == run);
        match self.lines_until(Instant::now() + patience, is_begin)?.pop() {
            Some((_, Line::Begun { run: begun, session })) if begun == run => Ok(session),
            other => Err(format!("{} does not begin run {run} within {patience:?}: {other:?}", self.name())),
        }
    }

    /// Returns its library and server, for messages.
    pub fn name(&self) -> String {
        format!("{} at server {}", self.library, self.server)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let answer = |number, data| Ok(Answer { number, data });
        assert_eq!(Line::parse("begun 2 1f"), Some(Line::Begun { run: 2, session: 31 }));
        assert_eq!(Line::parse("ended 2 1f ?"), Some(Line::Ended { run: 2, session: 31, owner: None }));
        assert_eq!(Line::parse("get ok 7 5"), Some(Line::Call(Call::Get, answer(7, 5))));
        assert_eq!(Line::parse("create ok 7"), Some(Line::Call(Call::Create, answer(7, 0))));
        assert_eq!(Line::parse("sync ok "), Some(Line::Call(Call::Sync, answer(0, 0))));
        let timed_out = Err("operation timeout".to_owned());
        assert_eq!(Line::parse("set failed operation timeout"), Some(Line::Call(Call::Set, timed_out)));
        assert_eq!(Line::parse("state SUSPENDED"), Some(Line::State(false)));
        assert_eq!(Line::parse("set ok x"), None);
        assert_eq!(Line::parse(""), None);
    }
}
