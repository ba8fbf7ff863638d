//! Gives the results of commands a form, and writes them.

mod dump;
mod json;
mod text;
mod time;

pub(super) use json::{event as event_in_json, failure as failure_in_json, hex, of_stat as stat_in_json};
pub(super) use text::{event, is_text, permissions};
pub(super) use time::instant;

use super::output::Output;
use std::io::{self, ErrorKind, Write};

/// Where a part of a result goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    Out,
    Err,
}

/// A result in its form, in the order of its parts.
pub(super) type Printed = Vec<(Stream, Vec<u8>)>;

/// Returns the form of a result.
pub(super) fn form(output: &Output, is_json: bool) -> Printed {
    if is_json { json::lines(output) } else { text::lines(output) }
}

/// Writes a result; returns whether its reader is still there.
pub(super) fn write(printed: &Printed) -> io::Result<bool> {
    for (stream, bytes) in printed {
        let written = match stream {
            Stream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Stream::Err => io::stderr().lock().write_all(bytes),
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
            other => other?,
        }
    }
    Ok(true)
}
