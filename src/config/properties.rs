//! Java's properties syntax, as `java.util.Properties.load` reads it.

use super::ConfigError;

/// A `key = value`, with the line that it starts on (from 1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Property {
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: String,
}

/// Returns every property in file order; keys may repeat.
///
/// # Errors
/// The line of the problem, which is one of:
/// - a malformed `\u` escape, the only invalid text in this syntax;
/// - a replacement character outside a comment, which stands for a byte that is not UTF-8.
pub(super) fn parse(text: &str) -> Result<Vec<Property>, (usize, ConfigError)> {
    // Some editors write a byte order mark.
    logical_lines(text.strip_prefix('\u{feff}').unwrap_or(text))?
        .into_iter()
        .map(|(line, text)| {
            let (key, value) = split(&text);
            let unescaped = |text| unescape(text).map_err(|error| (line, error));
            // ZooKeeper trims white space that the syntax would keep.
            Ok(Property { line, key: unescaped(key)?.trim().to_owned(), value: unescaped(value)?.trim().to_owned() })
        })
        .collect()
}

/// Joins continued lines, and drops blank lines and comments.
fn logical_lines(text: &str) -> Result<Vec<(usize, String)>, (usize, ConfigError)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let text = text.replace("\r\n", "\n");
    for (index, natural) in text.split(['\n', '\r']).enumerate() {
        let natural = natural.trim_start_matches([' ', '\t', '\u{c}']);
        if open.is_none() && (natural.is_empty() || natural.starts_with(['#', '!'])) {
            continue;
        }
        if natural.contains(char::REPLACEMENT_CHARACTER) {
            return Err((index + 1, not_utf_8()));
        }
        let continues = natural.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1;
        let part = if continues { &natural[..natural.len() - 1] } else { natural };
        let (_, joined) = open.get_or_insert_with(|| (index + 1, String::new()));
        joined.push_str(part);
        if !continues {
            lines.extend(open.take());
        }
    }
    lines.extend(open);
    Ok(lines)
}

fn not_utf_8() -> ConfigError {
    ConfigError::new("has a byte that is not UTF-8 text: save the file as UTF-8, or escape the letter, such as \\u00e9")
}

/// Splits a line into its key and value.
///
/// The key ends at the first unescaped `=`, `:` or white space. White space and one `=` or `:`
/// before the value are dropped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c| {
        let ends = !escaped && matches!(c, '=' | ':' | ' ' | '\t' | '\u{c}');
        escaped = c == '\\' && !escaped;
        ends
    });
    let Some(end) = end else { return (line, "") };
    let blank = [' ', '\t', '\u{c}'];
    let rest = line[end..].trim_start_matches(blank);
    let value = rest.strip_prefix(['=', ':']).map_or(rest, |rest| rest.trim_start_matches(blank));
    (&line[..end], value)
}

fn unescape(text: &str) -> Result<String, ConfigError> {
    let mut out = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let mut push = |c: char| out.extend_from_slice(c.encode_utf16(&mut [0; 2]));
        if c != '\\' {
            push(c);
            continue;
        }
        match chars.next() {
            Some('t') => push('\t'),
            Some('n') => push('\n'),
            Some('r') => push('\r'),
            Some('f') => push('\u{c}'),
            Some('u') => out.push(unicode_escape(&mut chars)?),
            Some(other) => push(other),
            None => {}
        }
    }
    Ok(String::from_utf16_lossy(&out))
}

/// Reads four hexadecimal digits as one UTF-16 unit.
///
/// Two escapes can form one character, as in Java.
fn unicode_escape(chars: &mut std::str::Chars<'_>) -> Result<u16, ConfigError> {
    let digits: String = chars.by_ref().take(4).collect();
    if digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        u16::from_str_radix(&digits, 16).map_err(|_| malformed())
    } else {
        Err(malformed())
    }
}

/// The error omits the characters that follow: they may be part of a password.
fn malformed() -> ConfigError {
    ConfigError::new("allowed are four hexadecimal digits after \\u")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap().into_iter().map(|property| (property.key, property.value)).collect()
    }

    #[test]
    fn byte_order_mark_is_not_part_of_the_first_key() {
        assert_eq!(pairs("\u{feff}tickTime=2000"), [("tickTime".to_owned(), "2000".to_owned())]);
    }

    #[test]
    fn separators_comments_and_continuations_follow_java_properties() {
        let text =
            "# a comment\n ! another\n\na=1\n  b : 2\nc 3\nd\t=\t4\ne = five \\\n   six\nf\ng==x\nh:=y\r\ni=last\\\\\n";
        let expected = [
            ("a", "1"),
            ("b", "2"),
            ("c", "3"),
            ("d", "4"),
            ("e", "five six"),
            ("f", ""),
            ("g", "=x"),
            ("h", "=y"),
            ("i", "last\\"),
        ];
        assert_eq!(pairs(text), expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn escapes_follow_java_properties() {
        assert_eq!(
            pairs(r"a\=b\ c = \u0041\u00e9\t|\:\q|\ud83d\ude00"),
            [("a=b c".to_owned(), "A\u{e9}\t|:q|\u{1f600}".to_owned())]
        );
        assert_eq!(parse("ok=1\nbad=\\u12").unwrap_err().0, 2);
    }

    #[test]
    fn a_comment_sign_inside_a_continued_line_is_text() {
        assert_eq!(pairs("a=1,\\\n#2"), [("a".to_owned(), "1,#2".to_owned())]);
    }

    #[test]
    fn property_line_number_is_its_first_line() {
        let lines: Vec<usize> = parse("a=1\\\n2\n#x\nb=3").unwrap().iter().map(|property| property.line).collect();
        assert_eq!(lines, [1, 4]);
    }
}
