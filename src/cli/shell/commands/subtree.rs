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
        options: &[Choice::value("b", "N", "delete at most N znodes at once (default 1000), or 64 KiB of requests")],
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
        origin: Origin::OldZooKeeper("deleteall"),
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
    let mut progress = Progress::default();
    if batch == 0 {
        for paths in paths.chunks(walk::WINDOW) {
            progress.note(one_by_one(session, paths.iter().map(String::as_str)))?;
        }
    } else {
        let mut paths = paths.iter().peekable();
        loop {
            let multis: Vec<Multi> = (0..MULTIS).map_while(|_| next_multi(&mut paths, batch)).collect();
            if multis.is_empty() {
                break;
            }
            let answers = session.ask_all(multis.iter().map(Multi::request).collect());
            progress.note(multis.iter().zip(answers).flat_map(|(multi, answer)| settled(session, multi, answer)))?;
        }
    }
    match progress.refused {
        None => Ok(Output::Nothing),
        Some(failure) => {
            shell.emit(&Output::Note("Failed to delete some node(s) in the subtree!".to_owned()))?;
            Err(failure)
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

/// A number of deletions that are carried out together, and their outcome.
type Outcome = (usize, Result<(), Failure>);

/// Deletes znodes, each by itself.
fn one_by_one<'a>(session: &Session, paths: impl Iterator<Item = &'a str>) -> Vec<Outcome> {
    let answers = session.ask_all(paths.map(|path| Request::Write(deletion(path))).collect());
    answers.into_iter().map(|answer| (1, answer.map(|_| ()))).collect()
}

/// Returns the outcome of a multi; deletes its znodes one by one if another client changed them.
fn settled(session: &Session, multi: &Multi, answer: Result<Reply, Failure>) -> Vec<Outcome> {
    match multi.outcome(answer) {
        // Servers differ in whether a failed multi has a code of its own.
        Err(Failure::Refused { code, .. }) if code <= -100 => one_by_one(session, multi.paths()),
        outcome => vec![(multi.count(), outcome)],
    }
}

/// The outcomes so far.
#[derive(Default)]
struct Progress {
    deleted: usize,
    /// The first refusal.
    refused: Option<Failure>,
}

impl Progress {
    /// Notes the outcomes of requests that were sent at once. A znode that is gone already is no refusal.
    ///
    /// # Errors
    /// The connection is lost, or Ctrl-C was struck: with the number of znodes that were deleted.
    fn note(&mut self, outcomes: impl IntoIterator<Item = Outcome>) -> Result<(), Failure> {
        let mut end = None;
        for (count, outcome) in outcomes {
            match outcome {
                Ok(()) => self.deleted += count,
                Err(failure) if failure.is(code::NO_NODE) => {}
                Err(failure @ Failure::Refused { .. }) if !failure.is(code::CONNECTION_LOSS) => {
                    self.refused.get_or_insert(failure);
                }
                Err(failure) => _ = end.get_or_insert(failure),
            }
        }
        let says = |failure: Failure| failure.because(&format!("znodes that were deleted before: {}", self.deleted));
        end.map_or(Ok(()), |failure| Err(says(failure)))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_deletion_tells_how_many_znodes_it_has_deleted() {
        let mut progress = Progress::default();
        let gone = Failure::Refused { code: code::NO_NODE, path: None, why: String::new() };
        assert_eq!(progress.note([(1000, Ok(())), (1, Err(gone))]), Ok(()));
        let failure = progress.note([(7, Ok(())), (1, Err(Failure::interrupted())), (1, Ok(()))]).unwrap_err();
        assert_eq!(failure.message(), "Interrupted\nznodes that were deleted before: 1008");
        assert_eq!(progress.refused, None);
    }
}
