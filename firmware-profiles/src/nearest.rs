//! Suggests the known name that a user probably meant.

/// Minimum length of a name that counts as an abbreviation, in characters.
const BEGINNING_MIN: usize = 4;

/// Returns the known name that `name` most likely means; `None` when none is close.
///
/// The known name differs from `name` by a typing mistake, ignoring case. Or it is the only known
/// name that begins with `name`.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let known: Vec<&str> = known.into_iter().collect();
    misspelt(name, &known).or_else(|| begun(name, &known))
}

/// Returns the only known name that begins with `name`.
fn begun<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let begins = |known: &&&str| known.get(..name.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(name));
    let mut longer = known.iter().filter(begins);
    let only = longer.next().filter(|_| longer.next().is_none());
    only.copied().filter(|_| name.chars().count() >= BEGINNING_MIN)
}

fn misspelt<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name: Vec<char> = name.to_lowercase().chars().collect();
    // In a name of three letters, two changes would make a different name.
    let most = (name.len() / 3).clamp(1, 3);
    let of_like_length = known.iter().filter(|known| has_like_length(&name, known, most));
    let near = of_like_length.filter_map(|known| {
        let letters: Vec<char> = known.to_lowercase().chars().collect();
        Some((distance(&name, &letters, most)?, *known))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// Returns the hint of an error message: the nearest name, or all names.
pub fn meant(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("allowed are {}", known.join(", ")),
    }
}

/// Returns the edit distance between two names; `None` above `most`.
///
/// A change inserts, omits or replaces a letter, or swaps it with the next one. For names without
/// resemblance it computes only about `most` rows of the distance table.
pub fn changes(a: &str, b: &str, most: usize) -> Option<usize> {
    let a: Vec<char> = a.chars().collect();
    let b = has_like_length(&a, b, most).then(|| b.chars().collect::<Vec<_>>())?;
    distance(&a, &b, most)
}

/// Compares the lengths first, because that is cheap.
fn has_like_length(a: &[char], b: &str, most: usize) -> bool {
    a.len().abs_diff(b.chars().count()) <= most
}

/// Returns the distance of `stem` to the nearest beginning of `name`; `None` above `most`.
pub fn changes_of_beginning(name: &str, stem: &str, most: usize) -> Option<usize> {
    let stem: Vec<char> = stem.chars().collect();
    let beginning: Vec<char> = name.chars().take(stem.len() + most).collect();
    last_row(&stem, &beginning, most)?.into_iter().min().filter(|changes| *changes <= most)
}

fn distance(a: &[char], b: &[char], most: usize) -> Option<usize> {
    last_row(a, b, most)?.pop().filter(|changes| *changes <= most)
}

/// Returns the distance of `a` to each beginning of `b`.
///
/// `None` as soon as all distances exceed `most`.
fn last_row(a: &[char], b: &[char], most: usize) -> Option<Vec<usize>> {
    let (mut above, mut last): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(above[j - 2] + 1);
            }
            row.push(least);
        }
        // A swap of two letters uses the row before the last, so both rows must exceed `most`.
        if row.iter().chain(&last).all(|changes| *changes > most) {
            return None;
        }
        (above, last) = (last, row);
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_missing_extra_wrong_and_swapped_letters() {
        for (a, b, changes) in
            [("", "", 0), ("", "abc", 3), ("data", "dta", 1), ("data", "dtaa", 1), ("kitten", "sitting", 3)]
        {
            let [a, b]: [Vec<char>; 2] = [a, b].map(|text| text.chars().collect());
            for most in 0..6 {
                let expected = (changes <= most).then_some(changes);
                assert_eq!((distance(&a, &b, most), distance(&b, &a, most)), (expected, expected), "{a:?} {b:?}");
            }
        }
        assert_eq!(changes_of_beginning("authproviders1", "authprovider", 2), Some(0));
        assert_eq!(changes_of_beginning("atuprovider1", "authprovider", 2), Some(2));
        assert_eq!(changes_of_beginning("authorization", "authprovider", 2), None);
    }

    #[test]
    fn only_near_names_are_suggested() {
        let known = ["serve", "status", "raspberry-pi-4", "raspberry-pi-5", "maxClientCnxns"];
        for (name, near) in [
            ("srve", Some("serve")),
            ("sevre", Some("serve")),
            ("Status", Some("status")),
            ("raspberry-pi4", Some("raspberry-pi-4")),
            ("maxclientconns", Some("maxClientCnxns")),
            ("start", None),
            ("maxCli", Some("maxClientCnxns")),
            ("max", None),
            ("raspberry", None),
            ("pi4", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), near, "{name}");
        }
        assert_eq!(meant("srve", &known), "did you mean serve?");
        assert_eq!(meant("x", &["a", "bcd"]), "did you mean a?");
        assert_eq!(meant("xyz", &["a", "bcd"]), "allowed are a, bcd");
    }
}
