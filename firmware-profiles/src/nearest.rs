//! What somebody meant who wrote a name that there is not.

/// Letters that a name must have to be taken for the beginning of a longer one.
const BEGINNING_MIN: usize = 4;

/// The one of `known` that `name` is but for a typing mistake, upper and lower case being one, or else the only one that
/// begins with it; `None` when none is near.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let known: Vec<&str> = known.into_iter().collect();
    misspelt(name, &known).or_else(|| begun(name, &known))
}

/// The only name that begins with `name`.
fn begun<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let begins = |known: &&&str| known.get(..name.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(name));
    let mut longer = known.iter().filter(begins);
    let only = longer.next().filter(|_| longer.next().is_none());
    only.copied().filter(|_| name.chars().count() >= BEGINNING_MIN)
}

fn misspelt<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name: Vec<char> = name.to_lowercase().chars().collect();
    // In a name of three letters two others make another name.
    let most = (name.len() / 3).clamp(1, 3);
    let of_like_length = known.iter().filter(|known| has_like_length(&name, known, most));
    let near = of_like_length.filter_map(|known| {
        let letters: Vec<char> = known.to_lowercase().chars().collect();
        Some((distance(&name, &letters, most)?, *known))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// What to tell whoever wrote `name`: the one that is near, or else all there are.
pub fn meant(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("allowed are {}", known.join(", ")),
    }
}

/// How many letters must be put in, left out, replaced, or change places with the next, to make one of the other; `None`
/// if they are more than `most`. Costs no more than `most` rows where nothing is alike.
pub fn changes(a: &str, b: &str, most: usize) -> Option<usize> {
    let a: Vec<char> = a.chars().collect();
    let b = has_like_length(&a, b, most).then(|| b.chars().collect::<Vec<_>>())?;
    distance(&a, &b, most)
}

/// Looked at first, since it costs nothing.
fn has_like_length(a: &[char], b: &str, most: usize) -> bool {
    a.len().abs_diff(b.chars().count()) <= most
}

/// The same for the beginning of `name` that is nearest to `stem`.
pub fn changes_of_beginning(name: &str, stem: &str, most: usize) -> Option<usize> {
    let stem: Vec<char> = stem.chars().collect();
    let beginning: Vec<char> = name.chars().take(stem.len() + most).collect();
    last_row(&stem, &beginning, most)?.into_iter().min().filter(|changes| *changes <= most)
}

fn distance(a: &[char], b: &[char], most: usize) -> Option<usize> {
    last_row(a, b, most)?.pop().filter(|changes| *changes <= most)
}

/// For each beginning of `b`, how many changes turn `a` into it; `None` once all of these are more than `most`.
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
        // Two letters that change places skip a row.
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
    fn letters_that_are_missing_too_many_wrong_or_out_of_place_are_forgiven() {
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
    fn only_what_is_near_was_meant() {
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
