//! Watches: each connection gets the events of its watches, and no others.
//!
//! Events come in the order of the entries. An answer with zxid z comes after the events of changes
//! up to z. A one-shot watch fires once. No event is lost while its connection lasts, and none
//! comes without a watch.
//!
//! A connection's script lists the events that it is owed between its answers. This oracle compares
//! the script with the messages that arrived.

use super::facts::Facts;
use super::history::{Connection, Received};
use super::request::has_place;
use super::violation::{Violation, clock};
use crate::reference::{Change, WatchKindOrd as Kind, concerns};
use std::collections::BTreeMap;
use zoolet_model::{EventKind, Text, WatcherType, path::parent_and_name};

/// The watches of all connections, according to the answers.
#[derive(Default)]
pub(super) struct Watches {
    by_path: BTreeMap<String, Vec<Watch>>,
    recursive: usize,
    matched: Vec<(usize, bool)>,
}

struct Watch {
    connection: usize,
    kind: Kind,
    /// False if the answer was that the base failed: the watch may have been set before that.
    is_certain: bool,
}

impl Watches {
    pub(super) fn add(&mut self, connection: usize, path: &str, kind: Kind, is_certain: bool) {
        if !self.by_path.contains_key(path) {
            self.by_path.insert(path.to_owned(), Vec::new());
        }
        let Some(watchers) = self.by_path.get_mut(path) else { return };
        if let Some(known) = watchers.iter_mut().find(|one| one.connection == connection && one.kind == kind) {
            known.is_certain |= is_certain;
            return;
        }
        watchers.push(Watch { connection, kind, is_certain });
        self.recursive += usize::from(kind == Kind::Recursive);
    }

    /// Returns whether a connection has a watch of this kind; `None` if that is uncertain.
    pub(super) fn has(&self, connection: usize, path: &str, kind: WatcherType) -> Option<bool> {
        let watchers = self.by_path.get(path).into_iter().flatten();
        let meant = watchers.filter(|one| one.connection == connection && one.kind.is_meant_by(kind));
        let (mut any, mut certain) = (false, false);
        for one in meant {
            any = true;
            certain |= one.is_certain;
        }
        if certain { Some(true) } else { (!any).then_some(false) }
    }

    pub(super) fn remove(&mut self, connection: usize, path: &str, kind: WatcherType) {
        if let Some(watchers) = self.by_path.get_mut(path) {
            watchers.retain(|one| {
                let goes = one.connection == connection && one.kind.is_meant_by(kind);
                self.recursive -= usize::from(goes && one.kind == Kind::Recursive);
                !goes
            });
        }
    }

    /// Removes all watches of these connections, which are over for good.
    pub(super) fn forget(&mut self, connections: &[usize]) {
        for watchers in self.by_path.values_mut() {
            watchers.retain(|one| {
                let goes = connections.contains(&one.connection);
                self.recursive -= usize::from(goes && one.kind == Kind::Recursive);
                !goes
            });
        }
    }

    /// Calls `tell` once for each connection that watches this change, and removes its one-shot
    /// watches.
    ///
    /// `tell` also gets whether the connection certainly had such a watch.
    pub(super) fn fire(&mut self, change: &Change, mut tell: impl FnMut(usize, bool)) {
        self.matched.clear();
        if let Some(watchers) = self.by_path.get_mut(&change.path) {
            watchers.retain(|one| {
                let hears = concerns(one.kind, &change.path, change);
                if hears {
                    self.matched.push((one.connection, one.is_certain));
                }
                !(hears && matches!(one.kind, Kind::Data | Kind::Child))
            });
        }
        if self.recursive > 0 && change.kind != EventKind::NodeChildrenChanged {
            let mut path = change.path.as_str();
            while let Some((above, _)) = parent_and_name(path) {
                let watchers = self.by_path.get(above).into_iter().flatten();
                let recursive = watchers.filter(|one| one.kind == Kind::Recursive);
                self.matched.extend(recursive.map(|one| (one.connection, one.is_certain)));
                path = above;
            }
        }
        // For each connection, the most certain match first.
        self.matched.sort_unstable_by_key(|&(connection, is_certain)| (connection, !is_certain));
        self.matched.dedup_by_key(|(connection, _)| *connection);
        self.matched.iter().for_each(|&(connection, is_certain)| tell(connection, is_certain));
    }
}

/// The messages that a connection must get, in order.
#[derive(Default)]
pub(super) struct Script {
    lines: Vec<Line>,
}

enum Line {
    Answer(usize),
    Event {
        kind: EventKind,
        path: String,
        zxid: i64,
        /// Whether the event may be missing.
        optional: bool,
    },
}

impl Script {
    pub(super) fn answer(&mut self, operation: usize) {
        self.lines.push(Line::Answer(operation));
    }

    /// Adds the event of a watch that fired.
    pub(super) fn owe(&mut self, zxid: i64, change: &Change, must: bool) {
        self.lines.push(Line::Event { kind: change.kind, path: change.path.clone(), zxid, optional: !must });
    }

    /// Adds the event of a change that setWatches found to be missed.
    pub(super) fn owe_made_up(&mut self, kind: EventKind, path: &Text, must: bool) {
        self.lines.push(Line::Event { kind, path: path.to_string(), zxid: -1, optional: !must });
    }
}

pub(super) fn check(facts: &Facts<'_>, scripts: &[Script]) -> Result<(), Violation> {
    facts.history.connections.iter().zip(scripts).try_for_each(|(one, script)| of_connection(facts, one, script))
}

fn of_connection(facts: &Facts<'_>, connection: &Connection, script: &Script) -> Result<(), Violation> {
    let mut at = 0;
    for received in &connection.received {
        match received {
            // An answer without a state has no place among the events. Answers without a request
            // are judged elsewhere.
            Received::Answer(operation) if !has_place(&facts.operation(*operation).request) => {}
            Received::Stray(..) => {}
            Received::Answer(operation) => {
                while let Some(Line::Event { optional: true, .. }) = script.lines.get(at) {
                    at += 1;
                }
                match script.lines.get(at) {
                    Some(Line::Answer(expected)) if expected == operation => at += 1,
                    Some(Line::Event { kind, path, zxid, .. }) => {
                        return Err(Violation::of("no answer shows a change before the event that tells of it")
                            .and_connection(connection)
                            .and(format!("is owed {kind:?} of {path} (zxid {zxid:#x}) before this answer:"))
                            .and_operation(facts.history, *operation));
                    }
                    Some(Line::Answer(_)) | None => {
                        return Err(Violation::of("answers come in the order of their states")
                            .and_connection(connection)
                            .and_operation(facts.history, *operation));
                    }
                }
            }
            Received::Event(moment, event) => {
                let is_it = |line: &Line| {
                    matches!(line, Line::Event { kind, path, zxid, .. }
                        if *kind == event.kind && path == event.path.as_str() && *zxid == event.zxid)
                };
                let mut next = at;
                while script
                    .lines
                    .get(next)
                    .is_some_and(|line| !is_it(line) && matches!(line, Line::Event { optional: true, .. }))
                {
                    next += 1;
                }
                if script.lines.get(next).is_some_and(is_it) {
                    at = next + 1;
                    continue;
                }
                let came = format!("at {} came {event:?}", clock(*moment));
                let rule = if script.lines[..at].iter().any(is_it) {
                    "a watch tells once, and before any answer that shows the change"
                } else if script.lines[at..].iter().any(is_it) {
                    "events come in the order of the entries, none is left out, and none overtakes an answer"
                } else {
                    "an event tells of a change that a watch of this connection waited for"
                };
                let broken = Violation::of(rule).and_connection(connection).and(came);
                return Err(match script.lines.get(at) {
                    Some(Line::Event { kind, path, zxid, .. }) => {
                        broken.and(format!("next it was owed {kind:?} of {path} (zxid {zxid:#x})"))
                    }
                    Some(Line::Answer(operation)) => {
                        broken.and("next it was owed this answer:").and_operation(facts.history, *operation)
                    }
                    None => broken.and("it was owed nothing more"),
                });
            }
        }
    }
    if facts.history.is_quiet && connection.ended.is_none() && connection.session().is_some() {
        let owed = script.lines[at..].iter().find(|line| matches!(line, Line::Event { optional: false, .. }));
        if let Some(Line::Event { kind, path, zxid, .. }) = owed {
            return Err(Violation::of("no event is lost while its connection lasts")
                .and_connection(connection)
                .and(format!("at the end it was still owed {kind:?} of {path} (zxid {zxid:#x})")));
        }
    }
    Ok(())
}
