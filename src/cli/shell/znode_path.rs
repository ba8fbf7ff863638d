//! Checks paths as ZooKeeper's own client does, before anything is sent.

/// Checks the path of a znode.
///
/// # Errors
/// The text of ZooKeeper's client for this mistake.
pub(super) fn check(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("Path length must be > 0".to_owned());
    }
    if !path.starts_with('/') {
        return Err("Path must start with / character".to_owned());
    }
    if path.len() == 1 {
        return Ok(());
    }
    if path.ends_with('/') {
        return Err("Path must not end with / character".to_owned());
    }
    match mistake(&path.encode_utf16().collect::<Vec<_>>()) {
        None => Ok(()),
        Some((at, reason)) => Err(format!("Invalid path string \"{path}\" caused by {reason} @{at}")),
    }
}

/// Checks the path of a create; that of a sequential znode may end with a slash.
///
/// # Errors
/// As [`check`].
pub(super) fn check_new(path: &str, sequential: bool) -> Result<(), String> {
    if sequential { check(&format!("{path}1")) } else { check(path) }
}

/// Returns the first mistake with its place, in the 16-bit units that ZooKeeper's client counts.
fn mistake(units: &[u16]) -> Option<(usize, &'static str)> {
    let is = |at: usize, letter: char| units.get(at).is_some_and(|unit| u32::from(*unit) == u32::from(letter));
    let ends = |at: usize| at + 1 == units.len() || is(at + 1, '/');
    (1..units.len()).find_map(|at| {
        let reason = match units[at] {
            0 => "null character not allowed",
            0x2f if is(at - 1, '/') => "empty node name specified",
            0x2e if is(at - 1, '.') => {
                let is_parent = at >= 2 && is(at - 2, '/') && ends(at);
                return is_parent.then_some((at, "relative paths not allowed"));
            }
            0x2e if is(at - 1, '/') && ends(at) => "relative paths not allowed",
            0x01..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0.. => "invalid character",
            _ => return None,
        };
        Some((at, reason))
    })
}

/// Returns the path of a child.
pub(super) fn child(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_the_text_of_zookeepers_client() {
        for (path, text) in [
            ("", "Path length must be > 0"),
            ("a", "Path must start with / character"),
            ("/a/", "Path must not end with / character"),
            ("/a//b", "Invalid path string \"/a//b\" caused by empty node name specified @3"),
            ("/a/.", "Invalid path string \"/a/.\" caused by relative paths not allowed @3"),
            ("/a/../b", "Invalid path string \"/a/../b\" caused by relative paths not allowed @4"),
            ("/a\0", "Invalid path string \"/a\0\" caused by null character not allowed @2"),
            ("/a\u{1}", "Invalid path string \"/a\u{1}\" caused by invalid character @2"),
            ("/\u{1f600}", "Invalid path string \"/\u{1f600}\" caused by invalid character @1"),
        ] {
            assert_eq!(check(path).unwrap_err(), text);
        }
        for path in ["/", "/a", "/a.b", "/a/..b", "/a/b..", "/.a", "/\u{fc}/x"] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
        assert!(check_new("/a/", true).is_ok() && check_new("/a/", false).is_err() && check_new("a", true).is_err());
        assert_eq!((child("/", "a"), child("/a", "b")), ("/a".to_owned(), "/a/b".to_owned()));
    }
}
