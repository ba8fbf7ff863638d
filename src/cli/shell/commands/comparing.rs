//! The command that compares two subtrees.

use super::super::Shell;
use super::super::arguments::Arguments;
use super::super::exported::Entry;
use super::super::failure::Failure;
use super::super::output::{Output, Show};
use super::super::sources::{Pair, Pairs, Source};
use super::super::table::{Choice, Command, Operands, Origin};
use super::super::znode_path;
use serde_json::{Value, json};

/// In front of the name of an exported file.
const FILE: &str = "file:";

pub(in crate::cli::shell) const TABLE: &[Command] = &[Command {
    name: "diff",
    usage: "[-d] path|file:FILE path|file:FILE",
    options: &[Choice::flag("d", "compare data alone, not ACLs")],
    says: "compare two subtrees, of the server or of exported files; the exit code is 1 if they differ",
    origin: Origin::Zoolet,
    operands: Operands::Subtrees,
    better: "",
    run: diff,
}];

/// A difference between two subtrees, at one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Difference {
    /// Only the second has it.
    Added(String),
    /// Only the first has it.
    Removed(String),
    Changed {
        path: String,
        data: bool,
        acl: bool,
    },
}

impl Difference {
    /// Compares two znodes with the same path.
    pub(super) fn between(left: &Entry, right: &Entry) -> Option<Self> {
        let (data, acl) = (left.data != right.data, left.acl != right.acl);
        (data || acl).then(|| Self::Changed { path: left.path.clone(), data, acl })
    }
}

impl Show for Difference {
    fn text(&self) -> Vec<u8> {
        let line = match self {
            Self::Added(path) => format!("+ {path}\n"),
            Self::Removed(path) => format!("- {path}\n"),
            Self::Changed { path, data, acl } => {
                let what = if *data && *acl {
                    "data and ACL"
                } else if *data {
                    "data"
                } else {
                    "ACL"
                };
                format!("~ {path} ({what})\n")
            }
        };
        line.into_bytes()
    }

    fn json(&self) -> Value {
        match self {
            Self::Added(path) => json!({ "difference": "added", "path": path }),
            Self::Removed(path) => json!({ "difference": "removed", "path": path }),
            Self::Changed { path, data, acl } => {
                json!({ "difference": "changed", "path": path, "data": data, "acl": acl })
            }
        }
    }
}

fn diff(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let compares_acls = !arguments.has("d");
    let operands = [arguments.word(0)?, arguments.word(1)?];
    let [left, right] = operands.map(|operand| source(shell, operand, compares_acls));
    let printer = shell.printer();
    let mut pairs = Pairs::new(left?, right?);
    let mut differ = false;
    while let Some(pair) = pairs.next()? {
        let difference = match pair {
            Pair::Left(item) => Some(Difference::Removed(item.entry.path)),
            Pair::Right(item) => Some(Difference::Added(item.entry.path)),
            Pair::Both(mut left, right) => {
                if !compares_acls {
                    left.entry.acl.clone_from(&right.entry.acl);
                }
                Difference::between(&left.entry, &right.entry)
            }
        };
        if let Some(difference) = difference {
            differ = true;
            match printer.print(&Output::Own(Box::new(difference))) {
                // A script asks `diff .. | head -1` for the difference too, by `pipefail`.
                Err(Failure::ReaderGone) => return Err(differ_already_said()),
                printed => printed?,
            }
        }
    }
    let ephemerals = pairs.left.ephemerals() + pairs.right.ephemerals();
    if ephemerals > 0 {
        printer.print(&Output::Note(format!("ephemerals left out: {ephemerals}")))?;
    }
    if differ { Err(differ_already_said()) } else { Ok(Output::Nothing) }
}

/// Returns a failure without a message: the printed lines name the differences.
fn differ_already_said() -> Failure {
    Failure::Text(String::new())
}

fn source<'a>(shell: &'a Shell, operand: &str, reads_acls: bool) -> Result<Source<'a>, Failure> {
    if let Some(file) = operand.strip_prefix(FILE) {
        return Source::file(file, &shell.interrupts);
    }
    znode_path::check(operand).map_err(Failure::Text)?;
    Ok(Source::server(shell.session()?, operand, reads_acls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::{CreateKind, open_acl};

    #[test]
    fn differences_of_data_and_acl_are_told_apart() {
        let entry = |data: &'static str, acl| Entry {
            path: "/a".to_owned(),
            data: Some(data.into()),
            acl,
            kind: CreateKind::Persistent,
        };
        let line = |difference: Option<Difference>| String::from_utf8(difference.unwrap().text()).unwrap();
        let one = entry("x", open_acl());
        assert_eq!(Difference::between(&one, &one), None);
        assert_eq!(line(Difference::between(&one, &entry("y", open_acl()))), "~ /a (data)\n");
        assert_eq!(line(Difference::between(&one, &entry("x", vec![]))), "~ /a (ACL)\n");
        assert_eq!(line(Difference::between(&one, &entry("y", vec![]))), "~ /a (data and ACL)\n");
        assert_eq!(line(Some(Difference::Added("/b".to_owned()))), "+ /b\n");
    }
}
