//! Commands about the members of the ensemble.

use super::super::Shell;
use super::super::arguments::Arguments;
use super::super::client::{Interrupts, Reconfiguration, unexpected};
use super::super::config_text;
use super::super::failure::Failure;
use super::super::files;
use super::super::output::Output;
use super::super::table::{Choice, Command, Operands, Origin};
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use zoolet_model::{Reply, Request, Stat, TimeToLive};

pub(in crate::cli::shell) const CONFIG: &str = "/zookeeper/config";

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "config",
        usage: "[-c] [-w] [-s]",
        options: &[
            Choice::flag("c", "print the version, and the addresses for clients"),
            Choice::flag("w", "set a watch"),
            Choice::flag("s", "also print the stat"),
        ],
        says: "print the members of the ensemble",
        origin: Origin::ZooKeeper,
        operands: Operands::Nothing,
        better: "",
        run: config,
    },
    Command {
        name: "reconfig",
        usage: "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | [-add \
                serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
        options: &[
            Choice::flag("s", "also print the stat"),
            Choice::value("v", "VERSION", "refuse unless the configuration has this version (hexadecimal)"),
            Choice::value(
                "file",
                "FILE",
                "read the new members from FILE, with lines server.N, group.N and weight.N as in zoo.cfg",
            ),
            Choice::value("members", "SERVERS", "replace all members"),
            Choice::value("add", "SERVERS", "add or change members"),
            Choice::value("remove", "IDS", "remove members"),
        ],
        says: "change the members of an ensemble; a zoolet server refuses it",
        origin: Origin::ZooKeeper,
        operands: Operands::Nothing,
        better: "",
        run: reconfig,
    },
];

fn config(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let (text, stat) = shell.session()?.config(arguments.has("w"))?;
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let shown = if arguments.has("c") { config_text::clients(&text) } else { text };
    Ok(with_stat(shown, stat, arguments))
}

fn with_stat(text: String, stat: Stat, arguments: &Arguments) -> Output {
    let value = json!({ "path": CONFIG, "config": text });
    let text = Output::Text(text, value);
    if arguments.has("s") {
        Output::Many(vec![text, Output::Stat { path: CONFIG.to_owned(), stat, ttl: TimeToLive::default() }])
    } else {
        text
    }
}

fn reconfig(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let change = change(arguments, &shell.interrupts)?;
    let (text, stat): (Option<Bytes>, Stat) = shell.session()?.reconfigure(&change)?;
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let head = Output::Text("Committed new configuration:".to_owned(), serde_json::Value::Null);
    let body = with_stat(text, stat, arguments);
    Ok(if shell.options.json { body } else { Output::Many(vec![head, body]) })
}

/// Returns the change that the options describe.
fn change(arguments: &Arguments, interrupts: &Arc<Interrupts>) -> Result<Reconfiguration, Failure> {
    let list = |name| arguments.value(name).map(str::to_lowercase);
    let is_full = arguments.has("file") || arguments.has("members");
    let is_incremental = arguments.has("add") || arguments.has("remove");
    let version = match arguments.value("v") {
        None => -1,
        Some(text) => i64::from_str_radix(text, 16)
            .map_err(|_| Failure::text("-v must be followed by a long (configuration version)"))?,
    };
    if is_full && is_incremental {
        return Err(Failure::text(
            "Can't use -file or -members together with -add or -remove (mixing incremental and non-incremental modes \
             is not allowed)",
        ));
    }
    if arguments.has("file") && arguments.has("members") {
        return Err(Failure::text("Can't use -file and -members together (conflicting non-incremental modes)"));
    }
    let members = match arguments.value("file") {
        Some(file) => Some(members_of(file, interrupts)?),
        None => list("members"),
    };
    if members.is_none() && !is_incremental {
        return Err(arguments.usage());
    }
    Ok(Reconfiguration { joining: list("add"), leaving: list("remove"), members, version })
}

fn members_of(file: &str, interrupts: &Arc<Interrupts>) -> Result<String, Failure> {
    let bytes = files::read(file, interrupts).map_err(|failure| match failure {
        Failure::Text(why) => Failure::Text(format!("Error processing {file}: {why}")),
        other => other,
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let belongs = |line: &&str| ["server.", "group.", "weight."].iter().any(|key| line.starts_with(key));
    let members: Vec<&str> = text.lines().map(str::trim).filter(belongs).collect();
    if !members.iter().any(|line| line.starts_with("server.")) {
        return Err(Failure::Text(format!("Error processing {file}: it has no line server.N=HOST:PORT:PORT;PORT")));
    }
    Ok(members.join(",").to_lowercase())
}

impl super::super::client::Session {
    /// Reads the configuration, which has its path outside of the session's root.
    fn config(&self, watch: bool) -> Result<(Option<Bytes>, Stat), Failure> {
        match self.ask_outside(Request::GetData { path: CONFIG.into(), watch })? {
            Reply::Data(text, stat) => Ok((text, stat)),
            _ => Err(unexpected()),
        }
    }
}
