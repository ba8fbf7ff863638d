//! Splits a line into words, as zkCli does, and writes words into a line.

use std::borrow::Cow;

/// The quotes that group words.
const QUOTES: [char; 2] = ['"', '\''];

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

/// Returns a word with letters directly behind its closing quote, where [`split`] begins another word.
pub(super) fn joined(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = first(rest);
        let is_quoted = word.len() + after.len() < rest.len();
        if is_quoted && !after.is_empty() && !after.starts_with(char::is_whitespace) {
            return Some(word);
        }
        rest = after.trim_start();
    }
    None
}

/// Splits off the first word of a text that begins with one.
fn first(text: &str) -> (&str, &str) {
    for quote in QUOTES {
        if let Some(inner) = text.strip_prefix(quote)
            && let Some((word, after)) = inner.split_once(quote)
        {
            return (word, after);
        }
    }
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

/// The word at the end of a line, for completion.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Last<'l> {
    /// The byte at which it begins, with its quote.
    pub(super) begin: usize,
    /// The word without quotes.
    pub(super) text: Cow<'l, str>,
    pub(super) quote: Option<char>,
}

/// Returns the word at the end of `line`; it is empty behind a space.
///
/// Its quote may still be open. Letters directly behind a closed quote go on with the word: [`split`] would begin
/// another one there, but the user continues a path that completion has quoted.
pub(super) fn last(line: &str) -> Last<'_> {
    let mut at = 0;
    loop {
        let begin = line.len() - line[at..].trim_start().len();
        let text = &line[begin..];
        let (word, after) = first(text);
        at = line.len() - after.len();
        let quote = text.chars().next().filter(|first| QUOTES.contains(first));
        match quote {
            Some(quote) if !text[1..].contains(quote) => {
                return Last { begin, text: Cow::Borrowed(&text[1..]), quote: Some(quote) };
            }
            Some(_) if !after.starts_with(QUOTES) && !after.contains(char::is_whitespace) => {
                return Last { begin, text: Cow::Owned(format!("{word}{after}")), quote };
            }
            None if after.is_empty() => return Last { begin, text: Cow::Borrowed(word), quote },
            _ => {}
        }
    }
}

/// Returns words as a line holds them, so that [`split`] finds them; `None` for a word that no line can hold.
///
/// If one word needs quotes, all have them, of the same kind if possible: candidates of a completion then begin alike.
/// `quote` is one that the user has typed.
pub(super) fn written(words: &[&str], quote: Option<char>) -> Vec<Option<String>> {
    if quote.is_none() && words.iter().all(|word| is_plain(word)) {
        return words.iter().map(|word| Some((*word).to_owned())).collect();
    }
    let quotes: Vec<char> = quote.into_iter().chain(QUOTES).collect();
    let common = quotes.iter().find(|quote| !words.iter().any(|word| word.contains(**quote)));
    let one = |word: &&str| {
        let quote = common.or_else(|| quotes.iter().find(|quote| !word.contains(**quote)));
        match quote {
            Some(quote) => Some(format!("{quote}{word}{quote}")),
            None => is_plain(word).then(|| (*word).to_owned()),
        }
    };
    words.iter().map(one).collect()
}

/// Returns whether a word needs no quotes.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && !word.starts_with(QUOTES) && !word.contains(char::is_whitespace)
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
    fn letters_behind_a_closing_quote_are_found() {
        for (line, word) in [
            ("deleteall \"/my app\"/old", Some("/my app")),
            ("deleteall '/my app''/old'", Some("/my app")),
            ("set /a 'x' y", None),
            ("set /a it's", None),
            ("get \"/my app", None),
            ("create /a \"\"", None),
        ] {
            assert_eq!(joined(line), word, "{line}");
        }
    }

    #[test]
    fn last_word_is_found_with_its_place() {
        for (line, begin, text, quote) in [
            ("", 0, "", None),
            ("ls", 0, "ls", None),
            ("ls ", 3, "", None),
            ("ls /a", 3, "/a", None),
            ("ls '/a b", 3, "/a b", Some('\'')),
            ("ls '/a b'", 3, "/a b", Some('\'')),
            ("ls \"/a b\"/c", 3, "/a b/c", Some('"')),
            ("ls '/a b' ", 10, "", None),
            ("ls '/a b' /c", 10, "/c", None),
            ("ls '/a b''/c d", 9, "/c d", Some('\'')),
            ("ls '/a b'/c /d", 12, "/d", None),
            ("ls \u{3000}/\u{fc}", 6, "/\u{fc}", None),
        ] {
            assert_eq!(last(line), Last { begin, text: text.into(), quote }, "{line:?}");
        }
    }

    #[test]
    fn written_words_are_split_again() {
        let all = ["/a", "/a b", "it's", "'a'", "a \"b\"", "back\\slash", "\u{fc}\u{a0}\u{3000}x", ""];
        for quote in [None, Some('"'), Some('\'')] {
            for word in all {
                let written = written(&[word], quote).remove(0).unwrap();
                assert_eq!(split(&format!("get {written} -s")), ["get", word, "-s"], "{written}");
            }
        }
        assert_eq!(written(&["a '\""], None), [None]);
        assert_eq!(written(&["/a'\"", "/b"], None), [Some("/a'\"".to_owned()), Some("/b".to_owned())]);
        assert_eq!(written(&["/b", "/a b"], None), [Some("\"/b\"".to_owned()), Some("\"/a b\"".to_owned())]);
    }
}
