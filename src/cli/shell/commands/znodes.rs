//! Commands that read znodes.

use super::super::arguments::Arguments;
use super::super::client::unexpected;
use super::super::failure::Failure;
use super::super::files;
use super::super::output::{Content, Form, Output};
use super::super::table::{Choice, Command, Operands, Origin, dashed};
use super::super::walk;
use super::super::{Printer, Shell};
use serde_json::json;
use zoolet_model::{Reply, Request, Stat, Text};

const STAT: Choice = Choice::flag("s", "also print the stat");
const WATCH: Choice = Choice::flag("w", "set a watch");

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "ls",
        usage: "[-s] [-w] [-R] path",
        options: &[
            STAT,
            WATCH,
            Choice::flag("R", "list the whole subtree, one path a line"),
            Choice::flag("?", "first print the options, as zkCli does"),
        ],
        says: "list the children of a znode",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "`-R` keeps many requests in flight",
        run: ls,
    },
    Command {
        name: "get",
        usage: "[-s] [-w] [-b] [-x] path",
        options: &[
            STAT,
            WATCH,
            Choice::flag("b", "print the data as base64"),
            Choice::flag("x", "print the data as a table of bytes"),
            Choice::flag("hex", "print the data as hexadecimal digits"),
            Choice::flag("raw", "print the bytes as they are, without an end of line"),
            Choice::flag("json", "print a JSON value, as with zoolet shell --json"),
            Choice::value("o", "FILE", "write the bytes to a new FILE"),
            Choice::flag("force", "replace FILE if it exists"),
        ],
        says: "print the data of a znode",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "data that is no text is printed as base64, with a note; `--hex`, `--raw`, `--json`, `-o FILE`",
        run: get,
    },
    Command {
        name: "stat",
        usage: "[-w] path",
        options: &[WATCH],
        says: "print the stat of a znode",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "times are in UTC; a zoolet server that allows the word `srvr`, `mntr` or `envi` also tells how long a znode \
                 with a time to live has left",
        run: stat,
    },
    Command {
        name: "ls2",
        usage: "path [watch]",
        options: &[],
        says: "list the children of a znode and print its stat (ZooKeeper 3.4)",
        origin: Origin::OldZooKeeper("ls -s"),
        operands: Operands::Path,
        better: "",
        run: ls2,
    },
];

/// The answer of zkCli to `ls -?`.
const LS_HELP: &str = "usage: ls [options] path\n -?   help\n -R   recurse\n -s   stat\n -w   watch";

fn ls(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    if arguments.has("?") {
        shell.emit(&Output::said(LS_HELP))?;
    }
    let path = arguments.path(0)?;
    let watch = watches(shell, arguments, "'ls path [watch]' has been deprecated. Please use 'ls [-w] path' instead.")?;
    if arguments.has("R") {
        let printer = shell.printer();
        walk::siblings_first(shell.session()?, &path, watch, |path| printer.print(&Output::Path(path.to_owned())))?;
        return Ok(Output::Nothing);
    }
    list(shell, path, watch, arguments.has("s"))
}

fn ls2(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    shell.emit(&Output::Note("'ls2' has been deprecated. Please use 'ls [-s] path' instead.".to_owned()))?;
    list(shell, arguments.path(0)?, arguments.count() > 1, true)
}

fn list(shell: &Shell, path: Text, watch: bool, with_stat: bool) -> Result<Output, Failure> {
    let reply = shell.session()?.ask(Request::GetChildren { path: path.clone(), watch, with_stat })?;
    let (names, stat) = match reply {
        Reply::Names(names) => (names, None),
        Reply::NamesStat(names, stat) => (names, Some(stat)),
        _ => return Err(unexpected()),
    };
    let mut names: Vec<String> = names.iter().map(str::to_owned).collect();
    names.sort_unstable();
    Ok(Output::Children { path: path.to_string(), names, stat })
}

fn get(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.path(0)?;
    let deprecated = "'get path [watch]' has been deprecated. Please use 'get [-s] [-w] path' instead.";
    let watch = watches(shell, arguments, deprecated)?;
    let is_json = arguments.has("json") || shell.printer().is_json;
    refuse_contradiction(arguments, is_json)?;
    let forms = [("b", Form::Base64), ("x", Form::Hex), ("hex", Form::Digits), ("raw", Form::Raw)];
    let form = forms.into_iter().find(|(name, _)| arguments.has(name)).map_or(Form::Text, |(_, form)| form);
    let Reply::Data(data, stat) = shell.session()?.ask(Request::GetData { path: path.clone(), watch })? else {
        return Err(unexpected());
    };
    let output = if let Some(file) = arguments.value("o") {
        let bytes = data.unwrap_or_default();
        files::save(file, &bytes, arguments.has("force"))?;
        let value = json!({ "file": file, "bytes": bytes.len() });
        Output::Text(format!("wrote {} bytes to {file}", bytes.len()), value)
    } else {
        let stat: Option<Stat> = arguments.has("s").then_some(stat);
        Output::Data(Content { path: path.to_string(), data, form, stat })
    };
    if is_json {
        Printer { is_json }.print(&output)?;
        return Ok(Output::Nothing);
    }
    Ok(output)
}

/// Pairs of options of `get` that exclude each other: `get` would ignore the second. zkCli takes `-b`
/// with `-x`.
const EXCLUDED: [(&str, &[&str]); 3] =
    [("o", &["b", "x", "hex", "raw", "s"]), ("raw", &["b", "x", "hex", "s"]), ("hex", &["b", "x"])];
/// Forms that JSON does not have.
const TEXT_FORMS: [&str; 4] = ["b", "x", "hex", "raw"];

/// Refuses two options of `get` of which one would be ignored.
fn refuse_contradiction(arguments: &Arguments, is_json: bool) -> Result<(), Failure> {
    let excluded = EXCLUDED.iter().filter(|(one, _)| arguments.has(one)).find_map(|(one, others)| {
        let other = others.iter().find(|other| arguments.has(other))?;
        Some((*one, *other))
    });
    let no_json = TEXT_FORMS.into_iter().find(|form| is_json && arguments.has(form));
    let Some((one, other)) = no_json.map(|form| ("json", form)).or(excluded) else { return Ok(()) };
    Err(Failure::Text(format!("{} and {} exclude each other", dashed(one), dashed(other))))
}

fn stat(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.path(0)?;
    let watch =
        watches(shell, arguments, "'stat path [watch]' has been deprecated. Please use 'stat [-w] path' instead.")?;
    let session = shell.session()?;
    match session.ask(Request::Exists { path: path.clone(), watch })? {
        Reply::Stat(stat) => Ok(Output::Stat { path: path.to_string(), stat, ttl: session.time_to_live(path)? }),
        _ => Err(unexpected()),
    }
}

/// Returns whether to watch: with -w, or with the second operand of ZooKeeper 3.4.
fn watches(shell: &mut Shell, arguments: &Arguments, deprecated: &str) -> Result<bool, Failure> {
    if arguments.count() > 1 {
        shell.emit(&Output::Note(deprecated.to_owned()))?;
    }
    Ok(arguments.has("w") || arguments.count() > 1)
}
