//! Commands about watches.

use super::super::Shell;
use super::super::arguments::Arguments;
use super::super::failure::{Failure, code};
use super::super::output::Output;
use super::super::table::{Choice, Command, Operands, Origin};
use std::sync::atomic::Ordering;
use zoolet_model::{AddWatchMode, Request, WatcherType};

const KINDS: [(&str, WatcherType); 5] = [
    ("c", WatcherType::Children),
    ("d", WatcherType::Data),
    ("p", WatcherType::Persistent),
    ("r", WatcherType::PersistentRecursive),
    ("a", WatcherType::Any),
];

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "addWatch",
        usage: "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is \
                PERSISTENT_RECURSIVE",
        options: &[Choice::value("m", "MODE", "PERSISTENT, or PERSISTENT_RECURSIVE for the whole subtree (default)")],
        says: "set a watch that stays until it is removed",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "",
        run: add_watch,
    },
    Command {
        name: "removewatches",
        usage: "path [-c|-d|-p|-r|-a] [-l]",
        options: &[
            Choice::flag("c", "the watch on children"),
            Choice::flag("d", "the watch on data"),
            Choice::flag("p", "the persistent watch"),
            Choice::flag("r", "the persistent watch of the subtree"),
            Choice::flag("a", "all watches (default)"),
            Choice::flag(
                "l",
                "if the connection is lost, let this shell forget them, so that it does not set them again",
            ),
        ],
        says: "remove watches",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "",
        run: remove_watches,
    },
    Command {
        name: "printwatches",
        usage: "on|off",
        options: &[],
        says: "print watch events, or stop printing them; without a word, tell which",
        origin: Origin::ZooKeeper,
        operands: Operands::Words(&["on", "off"]),
        better: "",
        run: print_watches,
    },
];

fn add_watch(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.word(0)?;
    let mode = match arguments.value("m").map(str::to_uppercase).as_deref() {
        None | Some("PERSISTENT_RECURSIVE") => AddWatchMode::PersistentRecursive,
        Some("PERSISTENT") => AddWatchMode::Persistent,
        Some(_) => return Err(arguments.usage()),
    };
    super::super::znode_path::check(path).map_err(Failure::Text)?;
    shell.session()?.ask(Request::AddWatch { path: path.into(), mode })?;
    Ok(Output::Nothing)
}

fn remove_watches(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.path(0)?;
    let chosen = KINDS.iter().find(|(letter, _)| arguments.has(letter));
    let kind = chosen.map_or(WatcherType::Any, |(_, kind)| *kind);
    let session = shell.session()?;
    match session.ask(Request::RemoveWatches { path: path.clone(), kind }) {
        Err(failure) if arguments.has("l") && failure.is(code::CONNECTION_LOSS) => {
            if !session.forget_watches(&path, kind)? {
                let path = Some(path.to_string());
                return Err(Failure::Refused { code: code::NO_WATCHER, path, why: String::new() });
            }
        }
        other => _ = other?,
    }
    Ok(Output::Nothing)
}

fn print_watches(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let Some(word) = arguments.get(0) else {
        let state = if shell.prints_events.load(Ordering::Relaxed) { "on" } else { "off" };
        return Ok(Output::said(format!("printwatches is {state}")));
    };
    shell.prints_events.store(word == "on", Ordering::Relaxed);
    Ok(Output::Nothing)
}
