//! The data of the parent znode of a line: lines of text that participants share.
//!
//! | text | meaning | written by |
//! |---|---|---|
//! | `session 0x.. of <name>: why` | a place or a grant was taken away | an operator |
//! | `held r <number>`, `held w <number>` | a holder of a lock with a preference | the holder |
//! | `next=<name>` | the next leader | a leader that hands over |
//!
//! A writer reads the data, changes its lines and names the version that it has read. The lines
//! that holders and leaders rely on are never cut: only the audit has a bound. If a holder's line
//! were lost, a second participant would take the lock.

use crate::Mode;
use bytes::Bytes;
use std::fmt::Write;

/// The start of an audit line.
const AUDIT: &str = "session ";
/// The start of a holder's line. `r` or `w` and the holder's number follow.
const HELD: &str = "held ";
/// The start of the line that names the next leader.
const NEXT: &str = "next=";

/// Maximum bytes of audit lines. The newest are kept.
const AUDIT_BYTES_MAX: usize = 1024;

/// The lines, by kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Board {
    /// Holders, present or former, of a lock with a preference.
    pub(crate) holders: Vec<(u32, Mode)>,
    /// The name of the znode that is to lead next.
    pub(crate) next: Option<String>,
    /// Audit lines, oldest first.
    audit: Vec<String>,
    /// Lines of other programs.
    others: Vec<String>,
}

impl Board {
    /// Parses the data of the znode.
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

    /// Returns the data with these lines.
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

    /// Whether an audit line says that this place was taken away.
    pub(crate) fn audits(&self, session: i64, name: &str) -> bool {
        let taken = taken(session, name);
        self.audit.iter().any(|line| line.starts_with(&taken))
    }

    /// Adds an audit line with at most 200 characters of `why`. Drops the oldest lines beyond the
    /// bound.
    pub(crate) fn audit(&mut self, session: i64, name: &str, why: &str) {
        let why: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
        self.audit.push(format!("{}{why}", taken(session, name)));
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

/// Returns the start of the audit line of a place that was taken away.
fn taken(session: i64, name: &str) -> String {
    format!("{AUDIT}{session:#x} of {name}: ")
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
    fn audit_keeps_its_newest_lines_whole() {
        let mut board = Board::default();
        for number in 0..100 {
            board = Board::of(&board.data());
            board.audit(0x15, "a-lock-0000000001", &format!("reason {number}\nof two lines"));
        }
        let text = said(&board);
        assert!(text.len() <= AUDIT_BYTES_MAX);
        assert!(text.lines().all(|line| line.starts_with("session 0x15 of a-lock-0000000001: reason ")), "{text}");
        assert!(text.ends_with("reason 99of two lines\n"), "{text}");
        let audits = |session, name| board.audits(session, name);
        assert!(
            audits(0x15, "a-lock-0000000001") && !audits(0x15, "a-lock-000000000") && !audits(1, "a-lock-0000000001")
        );
    }

    #[test]
    fn long_audit_displaces_only_audit_lines() {
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
    fn board_round_trips_through_its_text() {
        for text in ["", "word\nsession 0x1 of a: stuck\nheld r 2\nheld w 3\nnext=b\n"] {
            assert_eq!(said(&Board::of(text.as_bytes())), text);
        }
        assert_eq!(Board::of(b"next=old\nsession 0x1 of a: stuck\nnext=new\n").next.as_deref(), Some("new"));
        let strange = Board::of(b"held x 1\nheld w -\nnext=\nheld w 2");
        assert_eq!((strange.holders, strange.next), (vec![(2, Mode::Exclusive)], None));
        assert_eq!(strange.others, ["held x 1", "held w -"]);
    }
}
