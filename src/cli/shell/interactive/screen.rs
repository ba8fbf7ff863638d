//! Prints events above the line being typed.
//!
//! rustyline can do so itself. But its editor then stops at keys that came in one read, such as a
//! pasted line or a key that is held down, until the next key.

use rustix::termios::tcgetwinsize;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use unicode_width::UnicodeWidthChar;

/// Columns of a terminal that does not tell them.
const COLUMNS: usize = 80;

/// The line that is being typed.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Typed {
    pub(super) prompt: String,
    /// The prompt with its colours.
    pub(super) styled: String,
    pub(super) line: String,
    /// The byte of the line before which the cursor stands.
    pub(super) at: usize,
}

/// The line that is being typed; `None` while a command runs.
#[derive(Clone, Default)]
pub(super) struct Line(Arc<Mutex<Option<Typed>>>);

impl Line {
    fn lock(&self) -> MutexGuard<'_, Option<Typed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a line behind a prompt.
    pub(super) fn begin(&self, prompt: &str, styled: &str) {
        let (prompt, styled) = (prompt.to_owned(), styled.to_owned());
        *self.lock() = Some(Typed { prompt, styled, ..Typed::default() });
    }

    /// Ends the line.
    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    /// Notes what is typed so far.
    pub(super) fn note(&self, line: &str, at: usize) {
        if let Some(typed) = self.lock().as_mut() {
            line.clone_into(&mut typed.line);
            typed.at = at;
        }
    }

    /// Prints text at once; the line moves below it.
    pub(super) fn print_above(&self, text: &str) {
        // Held while writing, so that the next line does not begin meanwhile.
        let typed = self.lock();
        let columns = tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col.into());
        let columns = if columns == 0 { COLUMNS } else { columns };
        let shown = typed.as_ref().map_or_else(|| text.to_owned(), |typed| above(text, typed, columns));
        let mut out = io::stdout().lock();
        // A terminal that is gone has no reader.
        let _ = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
    }
}

/// Returns what a terminal shows as `text` above the line, with the cursor where it was.
fn above(text: &str, typed: &Typed, columns: usize) -> String {
    let before = typed.line.get(..typed.at).unwrap_or(&typed.line);
    let cursor = place(&typed.prompt, before, columns);
    let end = place(&typed.prompt, &typed.line, columns);
    let mut shown = String::new();
    if cursor.0 > 0 {
        _ = write!(shown, "\x1b[{}A", cursor.0);
    }
    shown.push_str("\r\x1b[J");
    shown.push_str(&text.replace('\n', "\r\n"));
    shown.push_str(&typed.styled);
    shown.push_str(&typed.line.replace('\n', "\r\n"));
    // Behind a full row the terminal waits for the next letter before it goes on.
    if end.1 == 0 && end.0 > 0 && !typed.line.ends_with('\n') {
        shown.push_str("\r\n");
    }
    if end.0 > cursor.0 {
        _ = write!(shown, "\x1b[{}A", end.0 - cursor.0);
    }
    shown.push('\r');
    if cursor.1 > 0 {
        _ = write!(shown, "\x1b[{}C", cursor.1);
    }
    shown
}

/// Returns row and column behind a text that begins at the first column.
fn place(prompt: &str, line: &str, columns: usize) -> (usize, usize) {
    prompt.chars().chain(line.chars()).fold((0, 0), |(row, column), letter| {
        let width = letter.width().unwrap_or(0);
        match column + width {
            _ if letter == '\n' => (row + 1, 0),
            next if next > columns => (row + 1, width),
            next if next == columns => (row + 1, 0),
            next => (row, next),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str, at: usize) -> Typed {
        Typed { prompt: "> ".to_owned(), styled: "\x1b[1m> \x1b[0m".to_owned(), line: line.to_owned(), at }
    }

    #[test]
    fn line_is_written_again_below_the_text() {
        assert_eq!(above("event\n", &typed("ls /", 4), 80), "\r\x1b[Jevent\r\n\x1b[1m> \x1b[0mls /\r\x1b[6C");
        assert_eq!(above("e\n", &typed("ls /", 0), 80), "\r\x1b[Je\r\n\x1b[1m> \x1b[0mls /\r\x1b[2C");
        // 2 + 10 columns take two rows of 8, and the cursor stands in the second.
        let wrapped = above("e\n", &typed("0123456789", 10), 8);
        assert_eq!(wrapped, "\x1b[1A\r\x1b[Je\r\n\x1b[1m> \x1b[0m0123456789\r\x1b[4C");
        let in_first_row = above("e\n", &typed("0123456789", 1), 8);
        assert_eq!(in_first_row, "\r\x1b[Je\r\n\x1b[1m> \x1b[0m0123456789\x1b[1A\r\x1b[3C");
    }

    #[test]
    fn rows_are_counted_by_the_width_of_letters() {
        assert_eq!((place("> ", "abc", 8), place("> ", "abcdef", 8)), ((0, 5), (1, 0)));
        assert_eq!((place("> ", "a\nbc", 8), place("", "\u{4e2d}\u{4e2d}", 3)), ((1, 2), (1, 2)));
    }
}
