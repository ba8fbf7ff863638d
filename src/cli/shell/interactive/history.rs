//! The history over sessions, in a file that only its owner may read.

use super::super::{table, words};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The command whose words have a password, and the scheme that it names.
const ADD_AUTH: &str = "addauth";
const DIGEST: &str = "digest";
/// Lines that are kept.
pub(super) const LINES_MAX: usize = 1000;

/// The lines of earlier sessions, and the file to which new ones are added.
pub(super) struct History {
    lines: Vec<String>,
    /// The file, opened for each line: another shell may have replaced it by a shorter one.
    ///
    /// `None` if the history cannot be kept.
    file: Option<PathBuf>,
}

impl History {
    /// Opens the history of this user; without one the shell works all the same.
    pub(super) fn open() -> Self {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        match place(variable("XDG_STATE_HOME"), variable("HOME")) {
            Some(path) => Self::open_at(&path).unwrap_or(Self { lines: Vec::new(), file: None }),
            None => Self { lines: Vec::new(), file: None },
        }
    }

    fn open_at(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let text = fs::read(path).unwrap_or_default();
        let all: Vec<String> = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
        let lines = all[all.len().saturating_sub(LINES_MAX)..].to_vec();
        // Shorter only from time to time, since another shell may be adding lines.
        if all.len() > 2 * LINES_MAX {
            let shorter = path.with_extension("new");
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&shorter)?;
            file.write_all((lines.join("\n") + "\n").as_bytes())?;
            fs::rename(&shorter, path)?;
        }
        appendable(path)?.set_permissions(Permissions::from_mode(0o600))?;
        Ok(Self { lines, file: Some(path.to_owned()) })
    }

    /// Returns the lines of earlier sessions, the oldest first.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Adds a line, and returns whether it may be kept.
    ///
    /// A line that may have a password is not kept, nor one that begins with a space.
    pub(super) fn add(&self, line: &str) -> bool {
        let may = may_be_kept(line);
        if may && let Some(path) = &self.file {
            // A full disk costs the history, not the command.
            let _ = appendable(path).and_then(|mut file| file.write_all(format!("{}\n", line.trim()).as_bytes()));
        }
        may
    }
}

fn appendable(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn may_be_kept(line: &str) -> bool {
    let words = words::split(line);
    let Some((name, rest)) = words.split_first() else { return false };
    let has_secret = match table::find(name) {
        Some(command) => command.name == ADD_AUTH,
        // A mistyped line has the password too.
        None => table::resembles(name, ADD_AUTH) || names_digest(name, rest),
    };
    !line.starts_with(char::is_whitespace) && !has_secret
}

/// Returns whether an unknown command has the words of an identity, such as `digest NAME:PASSWORD`.
fn names_digest(name: &str, rest: &[String]) -> bool {
    let all: Vec<&str> = [name].into_iter().chain(rest.iter().map(String::as_str)).collect();
    all.windows(2).any(|pair| table::resembles(pair[0], DIGEST) && pair[1].contains(':'))
}

/// Returns the file of the history.
fn place(state: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let state = state.filter(|state| state.is_absolute());
    let state = state.or_else(|| home.filter(|home| home.is_absolute()).map(|home| home.join(".local/state")))?;
    Some(state.join("zoolet/shell_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_private_and_keeps_no_passwords() {
        let directory = std::env::temp_dir().join(format!("zoolet-shell-history-{}", std::process::id()));
        let file = directory.join("state/zoolet/shell_history");
        let history = History::open_at(&file).unwrap();
        assert!(history.add("ls /") && history.add("get /a "));
        assert!(!history.add("addauth digest a:secret") && !history.add(" ls /hidden") && !history.add(""));
        assert!(!history.add("'addauth' digest a:secret"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "ls /\nget /a\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&file, "x\n".repeat(2 * LINES_MAX) + "last\n").unwrap();
        let second = History::open_at(&file).unwrap();
        assert_eq!((second.lines().count(), second.lines().last()), (LINES_MAX, Some("last")));
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), LINES_MAX);
        // The first shell goes on in the shorter file.
        assert!(history.add("ls /later"));
        assert!(fs::read_to_string(&file).unwrap().ends_with("last\nls /later\n"));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn mistyped_line_with_a_password_is_not_kept() {
        for line in [
            "addaut digest a:secret",
            "adduath digest a:secret",
            "ADDAUTH digest a:secret",
            "addAuth digest a:secret",
            "add-auth digest a:secret",
            "#addauth digest a:secret",
            "addauth",
            "auth digest a:secret",
            "add auth digest a:secret",
            "digest a:secret",
            "authenticate Digset a:secret",
        ] {
            assert!(!may_be_kept(line), "{line}");
        }
        for line in ["addWatch /a", "addwatch /a", "create /digest a:b", "set /a digest", "lss /a", "gett /digest:a"] {
            assert!(may_be_kept(line), "{line}");
        }
    }

    #[test]
    fn history_lies_in_the_state_directory() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(place(path("/state"), path("/home/a")), path("/state/zoolet/shell_history"));
        assert_eq!(place(path("relative"), path("/home/a")), path("/home/a/.local/state/zoolet/shell_history"));
        assert_eq!(place(None, None), None);
    }
}
