//! Commands that show a subtree, or search it: `tree` and `find`.

use super::super::Shell;
use super::super::arguments::Arguments;
use super::super::depth_first::{DepthFirst, Found, Wants};
use super::super::failure::Failure;
use super::super::glob;
use super::super::output::{Output, Show};
use super::super::print;
use super::super::table::{Choice, Command, Operands, Origin};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zoolet_model::{Stat, Text};

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "tree",
        usage: "[-d N] [-l] [path]",
        options: &[
            Choice::value("d", "N", "show N levels below the path"),
            Choice::flag("l", "also show size, version, number of children and owner"),
        ],
        says: "show a subtree",
        origin: Origin::Zoolet,
        operands: Operands::Path,
        better: "",
        run: tree,
    },
    Command {
        name: "find",
        usage: "[--name GLOB] [--data TEXT] [--larger BYTES] [--older TIME] [--newer TIME] [--ephemeral] \
                [--owner SESSION] [path]",
        options: &[
            Choice::value("name", "GLOB", "its name matches; * stands for any text, ? for one character"),
            Choice::value("data", "TEXT", "its data contains TEXT"),
            Choice::value("larger", "BYTES", "it has more bytes of data"),
            Choice::value("older", "TIME", "its data has not changed for TIME, such as 30m or 7d"),
            Choice::value("newer", "TIME", "its data has changed within TIME"),
            Choice::flag("ephemeral", "it is ephemeral"),
            Choice::value("owner", "SESSION", "it is an ephemeral of this session, such as 0x100000000000001"),
        ],
        says: "list the znodes of a subtree for which all options hold",
        origin: Origin::Zoolet,
        operands: Operands::Path,
        better: "",
        run: find,
    },
];

fn tree(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let top = top(arguments)?;
    let depth = arguments.parsed("d", "-d must be followed by a number of levels")?;
    let is_long = arguments.has("l");
    let printer = shell.printer();
    let mut walk = DepthFirst::new(shell.session()?, &top, Wants { depth, ..Wants::default() });
    let (mut unread, mut branches) = (Unread::default(), Branches::default());
    while let Some(found) = walk.next()? {
        unread.note(&found);
        let line = branches.line(&found, is_long);
        printer.print(&Output::Own(Box::new(Branch { line, found })))?;
    }
    unread.outcome()
}

/// The lines in front of a tree's names.
#[derive(Default)]
struct Branches {
    /// For each level below the top, whether a sibling follows further down.
    continues: Vec<bool>,
}

impl Branches {
    fn line(&mut self, found: &Found, is_long: bool) -> String {
        let mut line = String::new();
        if let Some(level) = found.depth.checked_sub(1) {
            self.continues.truncate(level);
            line.extend(self.continues.iter().map(|continues| if *continues { "│   " } else { "    " }));
            line.push_str(if found.is_last { "└── " } else { "├── " });
            self.continues.push(!found.is_last);
            line.push_str(found.path.rsplit('/').next().unwrap_or_default());
        } else {
            line.push_str(&found.path);
        }
        let mut facts = if is_long { facts(&found.stat) } else { Vec::new() };
        if found.refusal.is_some() {
            facts.push("children not readable".to_owned());
        }
        if !facts.is_empty() {
            line = format!("{line} ({})", facts.join(", "));
        }
        line
    }
}

fn facts(stat: &Stat) -> Vec<String> {
    let mut facts = vec![format!("{} bytes", stat.data_length), format!("version {}", stat.version)];
    match stat.num_children {
        0 => {}
        1 => facts.push("1 child".to_owned()),
        count => facts.push(format!("{count} children")),
    }
    if stat.ephemeral_owner != 0 {
        facts.push(format!("ephemeral of {:#x}", stat.ephemeral_owner));
    }
    facts
}

/// One line of a tree.
struct Branch {
    line: String,
    found: Found,
}

impl Show for Branch {
    fn text(&self) -> Vec<u8> {
        format!("{}\n", self.line).into_bytes()
    }

    fn json(&self) -> Value {
        let Found { path, depth, stat, refusal, .. } = &self.found;
        json!({ "path": path, "depth": depth, "stat": print::stat_in_json(stat), "readable": refusal.is_none() })
    }
}

fn find(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let top = top(arguments)?;
    let conditions = Conditions::read(arguments)?;
    let printer = shell.printer();
    let wants = Wants { data: conditions.data.is_some(), ..Wants::default() };
    let mut walk = DepthFirst::new(shell.session()?, &top, wants);
    let mut unread = Unread::default();
    while let Some(found) = walk.next()? {
        unread.note(&found);
        if conditions.hold(&found) {
            printer.print(&Output::Path(found.path))?;
        }
    }
    unread.outcome()
}

/// The conditions of `find`; all must hold.
#[derive(Default, Debug)]
struct Conditions {
    name: Option<String>,
    data: Option<Vec<u8>>,
    larger: Option<i32>,
    /// Milliseconds since 1970 before which, and since which, the data changed last.
    before: Option<i64>,
    since: Option<i64>,
    is_ephemeral: bool,
    owner: Option<i64>,
}

impl Conditions {
    fn read(arguments: &Arguments) -> Result<Self, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ago = |name: &str| -> Result<Option<i64>, Failure> {
            let Some(text) = arguments.value(name) else { return Ok(None) };
            let time = time(text).ok_or_else(|| {
                Failure::Text(format!("--{name} {text}: allowed is a time with a unit, such as 90s, 30m, 12h or 7d"))
            })?;
            Ok(Some(i64::try_from(now.saturating_sub(time).as_millis()).unwrap_or(i64::MAX)))
        };
        Ok(Self {
            name: arguments.value("name").map(str::to_owned),
            data: arguments.value("data").map(|text| text.as_bytes().to_vec()),
            larger: arguments.parsed("larger", "--larger must be followed by a number of bytes")?,
            before: ago("older")?,
            since: ago("newer")?,
            is_ephemeral: arguments.has("ephemeral"),
            owner: arguments.value("owner").map(session).transpose()?,
        })
    }

    fn hold(&self, found: &Found) -> bool {
        let (stat, name) = (&found.stat, found.path.rsplit('/').next().unwrap_or_default());
        let contains = |wanted: &[u8]| {
            let data = found.data.as_deref().unwrap_or_default();
            wanted.is_empty() || data.windows(wanted.len()).any(|part| part == wanted)
        };
        // Without permission to read, the stat may be unknown.
        let is_known = stat.czxid != 0 || found.refusal.is_none();
        is_known
            && self.name.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
            && self.larger.is_none_or(|bytes| stat.data_length > bytes)
            && self.before.is_none_or(|time| stat.mtime < time)
            && self.since.is_none_or(|time| stat.mtime >= time)
            && (!self.is_ephemeral || stat.ephemeral_owner != 0)
            && self.owner.is_none_or(|owner| stat.ephemeral_owner == owner)
            && self.data.as_deref().is_none_or(contains)
    }
}

/// Parses the id of a session, in hexadecimal as everything shows it.
fn session(text: &str) -> Result<i64, Failure> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let id = u64::from_str_radix(digits, 16).ok().filter(|id| *id != 0);
    id.map(u64::cast_signed).ok_or_else(|| {
        Failure::Text(format!("--owner {text}: allowed is a session id in hexadecimal, as in ephemeralOwner of stat"))
    })
}

/// Parses a time such as `30m`.
fn time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}

/// Counts znodes that the session may not read.
#[derive(Default)]
struct Unread {
    count: u64,
    first: String,
}

impl Unread {
    fn note(&mut self, found: &Found) {
        if found.refusal.is_some() {
            if self.count == 0 {
                self.first.clone_from(&found.path);
            }
            self.count += 1;
        }
    }

    /// Fails if a part of the subtree is missing from the output.
    fn outcome(&self) -> Result<Output, Failure> {
        match self.count {
            0 => Ok(Output::Nothing),
            count => Err(Failure::Text(format!(
                "Insufficient permission : {}\nznodes not read: {count}; addauth SCHEME NAME:PASSWORD adds an identity \
                 to this session",
                self.first
            ))),
        }
    }
}

/// Returns the operand; the root without one.
fn top(arguments: &Arguments) -> Result<Text, Failure> {
    if arguments.count() == 0 { Ok("/".into()) } else { arguments.path(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, depth: usize, is_last: bool) -> Found {
        let stat = Stat { czxid: 1, mtime: 1000, data_length: 5, ..Stat::default() };
        Found { path: path.to_owned(), depth, is_last, stat, data: Some("hello".into()), acl: vec![], refusal: None }
    }

    #[test]
    fn branches_join_the_siblings_and_end_at_the_last_one() {
        let mut branches = Branches::default();
        let lines: Vec<String> = [
            found("/app", 0, true),
            found("/app/a", 1, false),
            found("/app/a/x", 2, false),
            found("/app/a/y", 2, true),
            found("/app/b", 1, true),
            found("/app/b/z", 2, true),
        ]
        .iter()
        .map(|found| branches.line(found, false))
        .collect();
        assert_eq!(lines, ["/app", "├── a", "│   ├── x", "│   └── y", "└── b", "    └── z"]);
        let mut owned = found("/app", 0, true);
        (owned.stat.ephemeral_owner, owned.refusal) = (16, Some(Failure::text("")));
        let line = Branches::default().line(&owned, true);
        assert_eq!(line, "/app (5 bytes, version 0, ephemeral of 0x10, children not readable)");
    }

    #[test]
    fn all_conditions_must_hold() {
        let znode = found("/app/name", 1, true);
        let none = Conditions::default();
        assert!(none.hold(&znode));
        let holding = [
            Conditions { name: Some("n*e".to_owned()), ..Conditions::default() },
            Conditions { data: Some(b"ell".to_vec()), larger: Some(4), ..Conditions::default() },
            Conditions { before: Some(1001), since: Some(1000), ..Conditions::default() },
        ];
        assert!(holding.iter().all(|conditions| conditions.hold(&znode)));
        let failing = [
            Conditions { name: Some("app".to_owned()), ..Conditions::default() },
            Conditions { data: Some(b"hallo".to_vec()), ..Conditions::default() },
            Conditions { larger: Some(5), ..Conditions::default() },
            Conditions { before: Some(1000), ..Conditions::default() },
            Conditions { since: Some(1001), ..Conditions::default() },
            Conditions { is_ephemeral: true, ..Conditions::default() },
            Conditions { owner: Some(7), ..Conditions::default() },
        ];
        assert!(failing.iter().all(|conditions| !conditions.hold(&znode)));
    }

    #[test]
    fn times_have_a_unit_and_sessions_are_hexadecimal() {
        assert_eq!((time("90s"), time("2d")), (Some(Duration::from_secs(90)), Some(Duration::from_secs(172_800))));
        let wrong = ["", "5", "m", "5 m", "-5s", "99999999999999999999s", "999999999999999999d"];
        assert!(wrong.iter().all(|text| time(text).is_none()));
        assert_eq!((session("0xff").unwrap(), session("ffffffffffffffff").unwrap()), (255, -1));
        assert!(session("0").is_err() && session("nothing").is_err());
    }
}
