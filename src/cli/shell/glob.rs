//! Patterns of names: `*` is any text, `?` one character.

/// Returns whether a whole name matches a pattern.
///
/// The time is at most the product of both lengths.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut read) = (0, 0);
    // The last star, and the first character that it does not cover yet.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(letter) if *letter == '?' || *letter == name[read] => {
                at += 1;
                read += 1;
            }
            _ => match &mut star {
                Some((place, covered)) => {
                    *covered += 1;
                    (at, read) = (*place + 1, *covered);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("", ""),
            ("*", ""),
            ("a", "a"),
            ("lock-*", "lock-0001"),
            ("*-*b", "a-bb-b"),
            ("?ü?", "xüy"),
            ("**a", "ba"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a", "ab"), ("?", ""), ("a*b", "a"), ("lock-*", "locks"), ("*a?", "ba")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
