//! Splits a line into words, as zkCli does.

/// Splits `line` at spaces; `'...'` and `"..."` group, and nothing escapes a quote.
///
/// A quote that nothing closes is an ordinary character. An empty pair of quotes is an empty word.
pub(super) fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = first(rest);
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

/// Splits off the first word of a text that begins with one.
fn first(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote)
            && let Some((word, after)) = inner.split_once(quote)
        {
            return (word, after);
        }
    }
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

/// Returns the word at the end of `line`, and the byte at which it begins, for completion.
///
/// The word is empty behind a space. An open quote belongs to the line, not to the word.
pub(super) fn last(line: &str) -> (usize, &str) {
    let mut at = 0;
    loop {
        let rest = &line[at..];
        let begin = at + (rest.len() - rest.trim_start().len());
        let text = &line[begin..];
        // A quote that is still open groups all that follows.
        if let Some(open) = text.chars().next().filter(|first| matches!(first, '"' | '\''))
            && !text[1..].contains(open)
        {
            return (begin + 1, &text[1..]);
        }
        let (word, after) = first(text);
        if after.is_empty() && text.len() == word.len() {
            return (begin, word);
        }
        at = line.len() - after.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_group_words_and_escape_nothing() {
        for (line, words) in [
            ("", &[][..]),
            ("  ls   /a\t/b ", &["ls", "/a", "/b"]),
            ("set /a 'two words'", &["set", "/a", "two words"]),
            ("set /a \"it's\" x", &["set", "/a", "it's", "x"]),
            ("create /a \"\"", &["create", "/a", ""]),
            ("get \"/p1", &["get", "\"/p1"]),
            ("set /a {\"a\":1}", &["set", "/a", "{\"a\":1}"]),
            ("set /a '{\"a\": 1}'", &["set", "/a", "{\"a\": 1}"]),
        ] {
            assert_eq!(split(line), words, "{line}");
        }
    }

    #[test]
    fn last_word_is_found_with_its_place() {
        for (line, last_word) in
            [("", (0, "")), ("ls", (0, "ls")), ("ls ", (3, "")), ("ls /a", (3, "/a")), ("ls '/a b", (4, "/a b"))]
        {
            assert_eq!(last(line), last_word, "{line:?}");
        }
    }
}
