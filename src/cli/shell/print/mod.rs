//! Gives the results of commands a form, and writes them.

mod dump;
mod escaped;
mod json;
mod text;
mod time;

pub(super) use escaped::escaped;
pub(super) use json::{
    event as event_in_json, failure as failure_in_json, hex, of_acl as acl_in_json, of_stat as stat_in_json,
    text as json_text,
};
pub(super) use text::event;
use text::is_text;
pub(super) use time::instant;

use super::output::Output;
use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Where a part of a result goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    Out,
    /// Standard output, for bytes that the user wants as they are.
    Raw,
    Err,
}

/// A result in its form, in the order of its parts.
pub(super) type Printed = Vec<(Stream, Vec<u8>)>;

/// Returns the form of a result.
pub(super) fn form(output: &Output, is_json: bool) -> Printed {
    if is_json { json::lines(output) } else { text::lines(output) }
}

/// Writes a result; returns whether its reader is still there. A terminal gets it escaped.
///
/// A remark on standard error without a reader is lost, and hinders nothing: it may precede a write.
pub(super) fn write(printed: &Printed) -> io::Result<bool> {
    for (stream, bytes) in printed {
        let written = match stream {
            Stream::Out | Stream::Raw => {
                let mut out = io::stdout().lock();
                let escapes = *stream == Stream::Out && out.is_terminal();
                out.write_all(&for_stream(bytes, escapes)).and_then(|()| out.flush())
            }
            Stream::Err => {
                let mut err = io::stderr().lock();
                let escapes = err.is_terminal();
                err.write_all(&for_stream(bytes, escapes))
            }
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe && *stream == Stream::Err => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
            other => other?,
        }
    }
    Ok(true)
}

fn for_stream(bytes: &[u8], escapes: bool) -> Cow<'_, [u8]> {
    if !escapes {
        return Cow::Borrowed(bytes);
    }
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => match escaped(text) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        },
        Cow::Owned(text) => Cow::Owned(escaped(&text).into_owned().into_bytes()),
    }
}
