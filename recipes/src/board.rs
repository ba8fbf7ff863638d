//! What is written in the data of a line's own znode: lines of text of several kinds, by whoever has something to tell to all others.
//!
//! | line | says | by |
//! |---|---|---|
//! | `session 0x.. of <name>: why` | a place or a grant was taken away | an operator |
//! | `held r <number>`, `held w <number>` | who holds a lock of which one kind overtakes the other | whoever takes it |
//! | `next=<name>` | who leads next | a leader that hands over |
//!
//! Whoever writes reads it, changes its own lines and names the version that it has read. What holders and leaders rely on stays whole, whatever else is
//! written: only the audit has a bound. A lock of whose holder the line was gone would be taken by a second one.

use crate::Mode;
use bytes::Bytes;
use std::fmt::Write;

/// The start of a line of the audit.
const AUDIT: &str = "session ";
/// The start of a line about a holder: then `r` or `w`, and its number.
const HELD: &str = "held ";
/// The start of the line that says who leads next.
const NEXT: &str = "next=";

/// Lines of the audit are kept up to so many bytes, the newest.
const AUDIT_BYTES_MAX: usize = 1024;

/// The lines, by kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Board {
    /// Who holds a lock of which one kind overtakes the other, and some who did.
    pub(crate) holders: Vec<(u32, Mode)>,
    /// The name of the znode that was named to lead next.
    pub(crate) next: Option<String>,
    /// The oldest first.
    audit: Vec<String>,
    /// Of somebody else.
    others: Vec<String>,
}

impl Board {
    /// What this data says.
    pub(crate) fn of(data: &[u8]) -> Self {
        let mut board = Self::default();
        for line in String::from_utf8_lossy(data).lines() {
            if let Some(holder) = parse_held(line) {
                board.holders.push(holder);
            } else if let Some(next) = line.strip_prefix(NEXT) {
                board.next = Some(next.to_owned()).filter(|next| !next.is_empty());
            } else if line.starts_with(AUDIT) {
                board.audit.push(line.to_owned());
            } else {
                board.others.push(line.to_owned());
            }
        }
        board
    }

    /// The data that says it.
    pub(crate) fn data(&self) -> Bytes {
        let mut text = String::new();
        for line in self.others.iter().chain(&self.audit) {
            let _ = writeln!(text, "{line}");
        }
        for (number, mode) in &self.holders {
            let kind = if *mode == Mode::Shared { "r" } else { "w" };
            let _ = writeln!(text, "{HELD}{kind} {number}");
        }
        if let Some(next) = &self.next {
            let _ = writeln!(text, "{NEXT}{next}");
        }
        text.into()
    }

    /// One more line of the audit, and the oldest go if that is too much.
    pub(crate) fn audit(&mut self, session: i64, name: &str, why: &str) {
        let why: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
        self.audit.push(format!("{AUDIT}{session:#x} of {name}: {why}"));
        let mut room = AUDIT_BYTES_MAX;
        let is_kept = |line: &&String| {
            let left = room.checked_sub(line.len() + 1);
            room = left.unwrap_or(0);
            left.is_some()
        };
        let kept = self.audit.iter().rev().take_while(is_kept).count();
        self.audit.drain(..self.audit.len() - kept);
    }
}

fn parse_held(line: &str) -> Option<(u32, Mode)> {
    let (kind, number) = line.strip_prefix(HELD)?.split_once(' ')?;
    let mode = match kind {
        "r" => Mode::Shared,
        "w" => Mode::Exclusive,
        _ => return None,
    };
    Some((number.parse().ok()?, mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(board: &Board) -> String {
        String::from_utf8(board.data().to_vec()).unwrap()
    }

    #[test]
    fn an_audit_keeps_the_newest_lines_whole() {
        let mut board = Board::default();
        for number in 0..100 {
            board = Board::of(&board.data());
            board.audit(0x15, "a-lock-0000000001", &format!("reason {number}\nof two lines"));
        }
        let text = said(&board);
        assert!(text.len() <= AUDIT_BYTES_MAX);
        assert!(text.lines().all(|line| line.starts_with("session 0x15 of a-lock-0000000001: reason ")), "{text}");
        assert!(text.ends_with("reason 99of two lines\n"), "{text}");
    }

    #[test]
    fn nothing_but_the_audit_goes_when_there_is_much_of_it() {
        let rest = "somebody else's\nheld w 7\nheld r 8\nnext=b-n_0000000002\n";
        let mut board = Board::of(rest.as_bytes());
        for _ in 0..100 {
            board.audit(1, "a-n_0000000001", &"x".repeat(200));
        }
        let text = said(&board);
        assert!(rest.lines().all(|line| text.lines().any(|said| said == line)), "{text}");
        assert!(text.len() <= AUDIT_BYTES_MAX + rest.len());
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["", "word\nsession 0x1 of a: stuck\nheld r 2\nheld w 3\nnext=b\n"] {
            assert_eq!(said(&Board::of(text.as_bytes())), text);
        }
        assert_eq!(Board::of(b"next=old\nsession 0x1 of a: stuck\nnext=new\n").next.as_deref(), Some("new"));
        let strange = Board::of(b"held x 1\nheld w -\nnext=\nheld w 2");
        assert_eq!((strange.holders, strange.next), (vec![(2, Mode::Exclusive)], None));
        assert_eq!(strange.others, ["held x 1", "held w -"]);
    }
}
