//! Commands about the shell itself: its session, its history, its help.

use super::super::arguments::Arguments;
use super::super::failure::Failure;
use super::super::output::Output;
use super::super::table::{self, Command, Operands, Origin};
use super::super::{Shell, help};
use crate::cli::Address;
use serde_json::json;
use zoolet_model::{Reply, Request};

const fn row(
    name: &'static str,
    usage: &'static str,
    says: &'static str,
    operands: Operands,
    run: table::Run,
) -> Command {
    Command { name, usage, options: &[], says, origin: Origin::ZooKeeper, operands, better: "", run }
}

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        better: "a failure has its reason, and the exit code 1; zkCli prints it as a result and exits with 0",
        ..row("sync", "path", "let this server catch up with the leader, before the next read", Operands::Path, sync)
    },
    row(
        "connect",
        "host:port",
        "end this session and open one at other servers; without an address, at the same ones",
        Operands::Nothing,
        connect,
    ),
    row("close", "", "end this session, and stay in the shell", Operands::Nothing, close),
    row("history", "", "list the last commands", Operands::Nothing, history),
    Command {
        better: "a word that is no number is an error, zkCli ends; the exit code is that of the repeated command, zkCli's is 0",
        ..row("redo", "cmdno", "repeat a command of the history", Operands::Nothing, redo)
    },
    row("version", "", "print the version of this shell", Operands::Nothing, version),
    Command {
        origin: Origin::Zoolet,
        ..row("help", "[command]", "list the commands, or explain one", Operands::Command, show_help)
    },
    row("quit", "", "end the session and the shell", Operands::Nothing, quit),
    row("exit", "", "end the session and the shell (ZooKeeper 3.10)", Operands::Nothing, quit),
];

fn sync(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    match shell.session()?.ask(Request::Sync { path: Some(arguments.path(0)?) }) {
        Ok(Reply::Synced(_)) => Ok(Output::said("Sync is OK")),
        Ok(_) => Err(super::super::client::unexpected()),
        Err(failure) => {
            if let Failure::Refused { code, .. } = &failure {
                shell.emit(&Output::Note(format!("Sync has failed. rc={code}")))?;
            }
            Err(failure)
        }
    }
}

fn connect(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let address = match arguments.get(0) {
        None if shell.options.address.servers.is_empty() => {
            return Err(Failure::text("connect HOST:PORT leaves the image for a server"));
        }
        None => shell.options.address.clone(),
        Some(text) => Address::parse(text).map_err(|mistake| Failure::Text(format!("{text}: {mistake}")))?,
    };
    shell.open(address);
    Ok(Output::Nothing)
}

fn close(shell: &mut Shell, _arguments: &Arguments) -> Result<Output, Failure> {
    shell.session()?;
    shell.close();
    Ok(Output::Nothing)
}

fn history(shell: &mut Shell, _arguments: &Arguments) -> Result<Output, Failure> {
    let recent = shell.lines.recent();
    let text: Vec<String> = recent.iter().map(|(number, line)| format!("{number} - {line}")).collect();
    let value = recent.iter().map(|(number, line)| json!({ "number": number, "line": line })).collect();
    Ok(Output::Text(text.join("\n"), value))
}

fn redo(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let number: usize = arguments.word(0)?.parse().map_err(|_| arguments.usage())?;
    let earlier = shell.lines.get(number).filter(|_| number + 1 < shell.lines.count());
    let line = earlier.ok_or_else(|| Failure::text("Command index out of range"))?.to_owned();
    let words = super::super::words::split(&line);
    if words.first().is_some_and(|first| first == "redo") {
        return Err(Failure::text("No redoing redos"));
    }
    shell.lines.replace_last(&line);
    shell.run(&words).map(|()| Output::Nothing)
}

fn version(_shell: &mut Shell, _arguments: &Arguments) -> Result<Output, Failure> {
    Ok(Output::said(concat!("zoolet shell ", env!("CARGO_PKG_VERSION"), ", commands of ZooKeeper CLI 3.9")))
}

fn show_help(_shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let text = match arguments.get(0) {
        None => help::overview(),
        Some(name) => help::of(table::find(name).ok_or_else(|| Failure::UnknownCommand(name.to_owned()))?),
    };
    Ok(Output::said(text.trim_end()))
}

fn quit(shell: &mut Shell, _arguments: &Arguments) -> Result<Output, Failure> {
    shell.leaves = true;
    Ok(Output::Nothing)
}
