//! The command that follows the changes of a subtree.

use super::super::arguments::Arguments;
use super::super::client::{Event, Session};
use super::super::events::{Batch, Followed, Queue, Seen, now_ms};
use super::super::failure::{Failure, code};
use super::super::output::{Output, Show};
use super::super::print;
use super::super::table::{Choice, Command, Operands, Origin};
use super::super::walk;
use super::super::{Printer, Shell};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use zoolet_model::{AddWatchMode, Reply, Request, Stat, WatcherType};

/// Maximum wait for the server's answer when the watch is removed.
const REMOVAL_MAX: Duration = Duration::from_secs(1);

pub(in crate::cli::shell) const TABLE: &[Command] = &[Command {
    name: "watch",
    usage: "[-R|-1] path",
    options: &[
        Choice::flag("R", "follow the whole subtree (default)"),
        Choice::flag("1", "follow this znode and the list of its children, not the subtree"),
    ],
    says: "print each change of a subtree with its time and version, until Ctrl-C",
    origin: Origin::Zoolet,
    operands: Operands::Path,
    better: "",
    run: watch,
}];

/// A line of `watch`.
struct Line {
    /// Milliseconds since 1970 at which the event was received.
    ms: i64,
    what: &'static str,
    path: Option<String>,
    zxid: i64,
    /// `None` if the znode is gone, or may not be looked at.
    stat: Option<Stat>,
    /// Number of changes that were lost, because their lines were not taken in time.
    missed: u64,
}

impl Line {
    /// Returns the path whose stat the line has.
    fn path_with_stat(&self) -> Option<&str> {
        self.path.as_deref().filter(|_| self.what != "deleted")
    }
}

impl Show for Line {
    fn text(&self) -> Vec<u8> {
        let mut line = format!("{} {}", print::instant(self.ms), self.what);
        if let Some(path) = &self.path {
            line = format!("{line} {path}");
        }
        if let Some(stat) = &self.stat {
            line = format!(
                "{line} version {} cversion {} mzxid {:#x} {} bytes",
                stat.version, stat.cversion, stat.mzxid, stat.data_length
            );
        } else if self.zxid > 0 {
            line = format!("{line} zxid {:#x}", self.zxid);
        }
        if self.missed > 0 {
            line = format!("{line} {}", self.missed);
        }
        format!("{line}\n").into_bytes()
    }

    fn json(&self) -> Value {
        let mut value = json!({ "time": self.ms, "event": self.what, "path": self.path });
        if self.zxid > 0 {
            value["zxid"] = json!(print::hex(self.zxid));
        }
        if self.missed > 0 {
            value["missed"] = json!(self.missed);
        }
        if let Some(stat) = &self.stat {
            value["stat"] = print::stat_in_json(stat);
        }
        value
    }
}

fn watch(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.path(0)?;
    let (mode, kind) = if arguments.has("1") {
        (AddWatchMode::Persistent, WatcherType::Persistent)
    } else {
        (AddWatchMode::PersistentRecursive, WatcherType::PersistentRecursive)
    };
    let session = shell.session()?;
    let printer = shell.printer();
    // A watch on a znode that does not exist is legal; its user should know.
    match session.ask(Request::Exists { path: path.clone(), watch: false }) {
        Err(failure) if failure.is(code::NO_NODE) => {
            printer.print(&Output::Note(format!("{path} does not exist; its creation will be shown")))?;
        }
        other => _ = other?,
    }
    let earlier = session.persistent_watches(&path)?;
    let is_recursive = mode == AddWatchMode::PersistentRecursive;
    let changes = shell.follow(Followed { path: path.to_string(), is_recursive });
    let Err(failure) = session
        .ask(Request::AddWatch { path: path.clone(), mode })
        .map_err(explained)
        .and_then(|_| print_changes(session, &changes, printer));
    if !earlier.contains(&mode) {
        // Ctrl-C has ended the command, so the session's own waits would end at once.
        let asker = session.asker();
        if asker.remove_watches(&path, kind, REMOVAL_MAX) {
            // ZooKeeper before 3.9 keeps one watch of a session and path: that of `watch` has replaced it.
            for mode in earlier {
                asker.ask_within(Request::AddWatch { path: path.clone(), mode }, REMOVAL_MAX);
            }
        }
    }
    shell.unfollow();
    // At a prompt, Ctrl-C is the way to end this command.
    if shell.is_interactive && failure.is_interruption() { Ok(Output::Nothing) } else { Err(failure) }
}

/// Prints changes as they come, until one cannot be printed or Ctrl-C ends the wait.
fn print_changes(session: &Session, changes: &Queue, printer: Printer) -> Result<Infallible, Failure> {
    loop {
        let Batch { seen, missed } = session.until_struck(changes.take())?;
        for seen in seen.chunks(walk::WINDOW) {
            for line in lines(session, seen)? {
                printer.print(&Output::Own(Box::new(line)))?;
            }
        }
        if missed > 0 {
            let line = Line { ms: now_ms(), what: "missed", path: None, zxid: -1, stat: None, missed };
            printer.print(&Output::Own(Box::new(line)))?;
        }
    }
}

/// Returns the lines of changes, each with the stat that its znode has by now.
fn lines(session: &Session, seen: &[Seen]) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::with_capacity(seen.len());
    let mut requests = Vec::new();
    for Seen { ms, event } in seen {
        let Some(what) = name(event) else { continue };
        let line = Line { ms: *ms, what, path: event.path.clone(), zxid: event.zxid, stat: None, missed: 0 };
        if let Some(path) = line.path_with_stat() {
            requests.push(Request::Exists { path: path.into(), watch: false });
        }
        lines.push(line);
    }
    let mut answers = session.ask_all(requests).into_iter();
    for line in &mut lines {
        if line.path_with_stat().is_none() {
            continue;
        }
        match answers.next() {
            Some(Ok(Reply::Stat(stat))) => line.stat = Some(stat),
            Some(Err(failure)) if failure.is_interruption() => return Err(failure),
            _ => {}
        }
    }
    Ok(lines)
}

fn explained(failure: Failure) -> Failure {
    match failure {
        Failure::Refused { code: code::UNIMPLEMENTED, path, .. } => {
            let why = "this server cannot follow a subtree: that needs ZooKeeper 3.6 or newer, or zoolet".to_owned();
            Failure::Refused { code: code::UNIMPLEMENTED, path, why }
        }
        other => other,
    }
}

/// Returns the name of a change; `None` for other events.
fn name(event: &Event) -> Option<&'static str> {
    Some(match (event.kind, event.state) {
        ("NodeCreated", _) => "created",
        ("NodeDeleted", _) => "deleted",
        ("NodeDataChanged", _) => "changed",
        ("NodeChildrenChanged", _) => "children",
        // Changes are missed until the session is back.
        ("None", "Disconnected") => "disconnected",
        ("None", "SyncConnected" | "ConnectedReadOnly") => "connected",
        ("None", "Expired") => "expired",
        ("None", "Closed") => "closed",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_time_change_path_and_version() {
        let stat = Stat { version: 3, mzxid: 16, data_length: 5, ..Stat::default() };
        let line = |what, zxid, stat| {
            let line = Line { ms: 1_795_685_444_123, what, path: Some("/a".to_owned()), zxid, stat, missed: 0 };
            (String::from_utf8(line.text()).unwrap(), line.json().to_string())
        };
        let (text, json) = line("changed", -1, Some(stat));
        assert_eq!(text, "2026-11-26T09:30:44.123Z changed /a version 3 cversion 0 mzxid 0x10 5 bytes\n");
        assert!(json.starts_with("{\"event\":\"changed\",\"path\":\"/a\",\"stat\":{"), "{json}");
        assert!(json.ends_with("},\"time\":1795685444123}"), "{json}");
        assert_eq!(line("deleted", 255, None).0, "2026-11-26T09:30:44.123Z deleted /a zxid 0xff\n");
        let lost = Line { ms: 1_795_685_444_123, what: "missed", path: None, zxid: -1, stat: None, missed: 7 };
        assert_eq!(lost.text(), b"2026-11-26T09:30:44.123Z missed 7\n");
    }

    #[test]
    fn events_without_a_change_are_left_out() {
        let event = |state, kind| name(&Event { state, kind, path: None, zxid: -1 });
        assert_eq!(event("SyncConnected", "PersistentWatchRemoved"), None);
        assert_eq!(event("Disconnected", "None"), Some("disconnected"));
        assert_eq!(event("SyncConnected", "NodeChildrenChanged"), Some("children"));
    }
}
