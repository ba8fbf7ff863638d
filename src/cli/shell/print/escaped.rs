//! Text from servers, made harmless for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns text whose control characters are escaped as in JSON, but for ends of lines and tabs.
///
/// Other clients choose data, ids and names. Raw, their characters may move the cursor, hide text or
/// rename the window. U+009B alone begins such a sequence.
pub(in crate::cli::shell) fn escaped(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\r' => shown.push_str("\\r"),
            c if is_harmful(c) => _ = write!(shown, "\\u{:04x}", u32::from(c)),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_move_nothing() {
        assert_eq!(escaped("two\nlines\tw\u{f6}rds"), "two\nlines\tw\u{f6}rds");
        assert_eq!(escaped("secret\rharmless"), "secret\\rharmless");
        assert_eq!(escaped("\u{1b}]0;title\u{7}\u{9b}2J\u{7f}"), "\\u001b]0;title\\u0007\\u009b2J\\u007f");
    }
}
