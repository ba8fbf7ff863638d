//! A broken rule, with a readable story.

use super::history::{Connection, History, Moment, Operation};
use std::fmt;

/// A rule that a history breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule, as one sentence.
    pub rule: &'static str,
    /// The story, one line per event.
    pub story: Vec<String>,
}

impl Violation {
    /// Creates a violation of this rule.
    pub(super) fn of(rule: &'static str) -> Self {
        Self { rule, story: Vec::new() }
    }

    /// Adds a line to the story.
    #[must_use]
    pub(super) fn and(mut self, line: impl fmt::Display) -> Self {
        self.story.push(line.to_string());
        self
    }

    /// Adds an operation to the story.
    #[must_use]
    pub(super) fn and_operation(self, history: &History, operation: usize) -> Self {
        self.and(described(history, &history.operations[operation]))
    }

    /// Adds a connection to the story.
    #[must_use]
    pub(super) fn and_connection(self, connection: &Connection) -> Self {
        self.and(described_connection(connection))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {}", self.rule)?;
        self.story.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for Violation {}

/// Formats a time for readers.
pub(super) fn clock(at: Moment) -> String {
    format!("{}.{:06} s", at.us / 1_000_000, at.us % 1_000_000)
}

fn shortened(text: String) -> String {
    const SHOWN: usize = 400;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn described(history: &History, operation: &Operation) -> String {
    let connection = history.connection_of(operation);
    let answer = match &operation.answer {
        Some(answer) => format!("answered at {} with zxid {:#x}: {:?}", clock(answer.at), answer.zxid, answer.result),
        None => "never answered".to_owned(),
    };
    shortened(format!(
        "{:?} on {:?} of server {} in session {:#x}: xid {}, {:?}, asked at {}, {answer}",
        connection.client,
        connection.id,
        connection.server.as_u8(),
        connection.session().map_or(0, |session| session.0),
        operation.xid,
        operation.request,
        clock(operation.invoked),
    ))
}

fn described_connection(connection: &Connection) -> String {
    let reply = match &connection.reply {
        Some((at, reply)) => {
            format!("told session {:#x} of {} ms at {}", reply.session.0, reply.timeout_ms, clock(*at))
        }
        None => "told nothing".to_owned(),
    };
    let end = match connection.ended {
        Some((at, how)) => format!("ended {how:?} at {}", clock(at)),
        None => "open to the end".to_owned(),
    };
    format!(
        "{:?} begins {:?} to server {} at {} for session {:#x}, having seen {:#x}: {reply}, {end}",
        connection.client,
        connection.id,
        connection.server.as_u8(),
        clock(connection.begun),
        connection.request.session.0,
        connection.request.last_zxid_seen,
    )
}
