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
    let name = name.to_lowercase();
    let mut longer = known.iter().filter(|known| known.to_lowercase().starts_with(&name));
    let only = longer.next().filter(|_| longer.next().is_none());
    only.copied().filter(|_| name.chars().count() >= BEGINNING_MIN)
}

fn misspelt<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name: Vec<char> = name.to_lowercase().chars().collect();
    // In a name of three letters two others make another name.
    let most = (name.len() / 3).clamp(1, 3);
    let near = known.iter().map(|known| (distance(&name, &known.to_lowercase().chars().collect::<Vec<_>>()), *known));
    near.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// What to tell whoever wrote `name`: the one that is near, or else all there are.
pub fn meant(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("allowed are {}", known.join(", ")),
    }
}

/// How many letters must be put in, left out, replaced, or changed places with the next, to make one of the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
            assert_eq!((distance(&a, &b), distance(&b, &a)), (changes, changes), "{a:?} {b:?}");
        }
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
