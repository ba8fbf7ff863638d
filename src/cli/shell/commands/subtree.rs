//! Commands that delete subtrees, and count them.

use super::super::Shell;
use super::super::arguments::Arguments;
use super::super::client::{Session, unexpected};
use super::super::depth_first::is_within;
use super::super::failure::{Failure, code};
use super::super::multi::{COUNT_MAX, Multi};
use super::super::output::Output;
use super::super::table::{Choice, Command, Operands, Origin};
use super::super::walk;
use std::iter::Peekable;
use std::slice;
use zoolet_model::{Reply, Request, WriteOp};

/// Multis in flight.
const MULTIS: usize = 10;

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "deleteall",
        usage: "path [-b batch size]",
        options: &[Choice::value("b", "N", "delete N znodes at once (default 1000)")],
        says: "delete a znode with its subtree",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "exits with 1 if a znode is left, and names the first; `deleteall /` deletes all but ZooKeeper's own \
                 znodes, zkCli's nothing",
        run: delete_all,
    },
    Command {
        name: "rmr",
        usage: "path",
        options: &[],
        says: "delete a znode with its subtree (ZooKeeper 3.4)",
        origin: Origin::OldZooKeeper,
        operands: Operands::Path,
        better: "",
        run: rmr,
    },
    Command {
        name: "getAllChildrenNumber",
        usage: "path",
        options: &[],
        says: "count the znodes below a znode",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "",
        run: count,
    },
    Command {
        name: "getEphemerals",
        usage: "[path]",
        options: &[],
        says: "list the ephemeral znodes of this session, below a path",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "the list is sorted",
        run: ephemerals,
    },
];

fn delete_all(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    arguments.word(0)?;
    let batch: i32 = arguments.parsed("b", "-b argument must be an int value")?.unwrap_or(1000);
    let path = arguments.path(0)?;
    delete(shell, &path, usize::try_from(batch).unwrap_or(0))
}

fn rmr(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.path(0)?;
    shell.emit(&Output::Note("The command 'rmr' has been deprecated. Please use 'deleteall' instead.".to_owned()))?;
    delete(shell, &path, COUNT_MAX)
}

/// Deletes a subtree from its end, in multis of `batch`, or one by one with 0.
fn delete(shell: &Shell, top: &str, batch: usize) -> Result<Output, Failure> {
    let session = shell.session()?;
    let mut paths = walk::subtree(session, top)?;
    paths.reverse();
    if top == "/" {
        // The root stays, and at the server's root ZooKeeper's own znodes.
        let is_whole_tree = session.outer(top) == "/";
        paths.retain(|path| path != "/" && !(is_whole_tree && is_within(path, "/zookeeper")));
    }
    let mut left = None;
    if batch == 0 {
        for paths in paths.chunks(walk::WINDOW) {
            let answers = session.ask_all(paths.iter().map(|path| Request::Write(deletion(path))).collect());
            note_first(&mut left, answers.into_iter().map(|answer| answer.map(|_| ())))?;
        }
    } else {
        let mut paths = paths.iter().peekable();
        loop {
            let multis: Vec<Multi> = (0..MULTIS).map_while(|_| next_multi(&mut paths, batch)).collect();
            if multis.is_empty() {
                break;
            }
            let answers = session.ask_all(multis.iter().map(Multi::request).collect());
            for (multi, answer) in multis.iter().zip(answers) {
                let outcome = settled(session, multi, answer);
                note_first(&mut left, std::iter::once(outcome))?;
            }
        }
    }
    match left {
        None => Ok(Output::Nothing),
        Some(failure) => {
            Err(Failure::Text(format!("Failed to delete some node(s) in the subtree!\n{}", failure.message(""))))
        }
    }
}

fn deletion(path: &str) -> WriteOp {
    WriteOp::Delete { path: path.into(), version: -1 }
}

/// Returns the next deletions that fit in one multi; `None` after the last one.
fn next_multi(paths: &mut Peekable<slice::Iter<'_, String>>, batch: usize) -> Option<Multi> {
    let mut multi = Multi::default();
    while let Some(path) = paths.next_if(|path| multi.has_room(&deletion(path), batch)) {
        multi.add(deletion(path));
    }
    (!multi.is_empty()).then_some(multi)
}

/// Returns the outcome of a multi; deletes its znodes one by one if another client changed them.
fn settled(session: &Session, multi: &Multi, answer: Result<Reply, Failure>) -> Result<(), Failure> {
    match multi.outcome(answer) {
        // Servers differ in whether a failed multi has a code of its own.
        Err(Failure::Refused { code, .. }) if code <= -100 => {
            let answers = session.ask_all(multi.paths().map(|path| Request::Write(deletion(path))).collect());
            let mut left = None;
            note_first(&mut left, answers.into_iter().map(|answer| answer.map(|_| ())))?;
            left.map_or(Ok(()), Err)
        }
        outcome => outcome,
    }
}

/// Keeps the first refusal; a znode that is gone already is none.
fn note_first(first: &mut Option<Failure>, outcomes: impl Iterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    for outcome in outcomes {
        match outcome {
            Ok(()) => {}
            Err(failure) if failure.is(code::NO_NODE) => {}
            Err(failure @ Failure::Refused { .. }) if !failure.is(code::CONNECTION_LOSS) => {
                first.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

fn count(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    match shell.session()?.ask(Request::GetAllChildrenNumber { path: arguments.path(0)? })? {
        Reply::Count(count) => Ok(Output::Count(count)),
        _ => Err(unexpected()),
    }
}

fn ephemerals(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let prefix = if arguments.count() == 0 { "/".into() } else { arguments.path(0)? };
    match shell.session()?.ask(Request::GetEphemerals { prefix: Some(prefix) })? {
        Reply::Names(paths) => {
            let mut paths: Vec<String> = paths.iter().map(str::to_owned).collect();
            paths.sort_unstable();
            Ok(Output::Paths(paths))
        }
        _ => Err(unexpected()),
    }
}
