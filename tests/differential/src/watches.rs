//! The watches of a connection, as 3.8 and as zoolet keep them (docs/reference/zookeeper.md 5.2).
//!
//! They are learned from replies and events alone. A watch is forgotten when it has fired, is
//! removed or its connection has ended. So an intended difference about watches excuses only events
//! that these watches explain.

use crate::reply::{Item, Reply, What, shortened};
use crate::script::Op;
use crate::value::{Place, Value};
use std::collections::{HashMap, HashSet};

/// The types of events.
const CREATED: i32 = 1;
const DELETED: i32 = 2;
const CHANGED: i32 = 3;
const CHILDREN: i32 = 4;

/// Mode of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    OneShot = 1,
    Persistent = 2,
    Recursive = 4,
}

/// The watches of one connection.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    theirs: Older,
    ours: Newer,
    /// Paths on which 3.8 has removed more watches than requested.
    loosened: HashSet<String>,
}

/// The watches of 3.8: the last mode set per path and side. Paths are as [`shortened`] returns
/// them.
#[derive(Clone, Debug, Default)]
struct Older {
    data: HashMap<String, Mode>,
    child: HashMap<String, Mode>,
}

/// The watches from 3.9 on: a set of modes per path. A recursive watch is on the data side alone.
#[derive(Clone, Debug, Default)]
struct Newer {
    data: HashMap<String, u8>,
    child: HashMap<String, u8>,
}

impl Watches {
    /// Returns whether only 3.8 has a watch that gives this event.
    pub fn only_theirs(&self, kind: i32, path: &str) -> bool {
        self.theirs.gives(kind, path) && !self.ours.gives(kind, path)
    }

    /// `Some` if only zoolet has a watch that gives this event.
    ///
    /// The value says whether 3.8 was told to remove the watch as another kind.
    pub fn only_ours(&self, kind: i32, path: &str) -> Option<bool> {
        let only = self.ours.gives(kind, path) && !self.theirs.gives(kind, path);
        only.then(|| self.loosened.iter().any(|watched| reaches(watched, true, path)))
    }

    /// Returns whether 3.8 finds a watch of this type (surface 5.1) on this path.
    pub fn theirs_has(&self, path: &str, watcher_type: i32) -> bool {
        self.theirs.has(path, watcher_type)
    }

    /// Returns whether zoolet finds a watch of this type on this path.
    pub fn ours_has(&self, path: &str, watcher_type: i32) -> bool {
        self.ours.has(path, watcher_type)
    }

    /// Removes the one-shot watches that these events use up.
    pub fn fired(&mut self, theirs: Option<&Item>, ours: Option<&Item>) {
        if let Some(What::Event { kind, path, .. }) = theirs.map(|item| &item.what) {
            self.theirs.fired(*kind, path);
        }
        if let Some(What::Event { kind, path, .. }) = ours.map(|item| &item.what) {
            self.ours.fired(*kind, path);
        }
        let Self { ours, loosened, .. } = self;
        loosened.retain(|path| ours.data.contains_key(path) || ours.child.contains_key(path));
    }

    /// Notes the watches that a request has registered or removed.
    ///
    /// `made_up` holds the events that setWatches gave instead of watches.
    pub fn answered(&mut self, op: &Op, root: &str, theirs: &Reply, ours: &Reply, made_up: &[Item]) {
        let path = path_of(op, root).unwrap_or_default();
        let watched = matches!(op.values.get(1), Some(Value::Byte(watch)) if *watch != 0);
        let sides = [theirs.error, ours.error];
        let done = sides.map(|error| error == 0);
        match op.code {
            3 if watched => self.data(&path, sides.map(|error| matches!(error, 0 | -101))),
            4 if watched => self.data(&path, done),
            8 | 12 if watched => self.child(&path, done),
            106 if op.values.get(1) == Some(&Value::Int(0)) => self.both(&path, Mode::Persistent, done),
            106 => self.both(&path, Mode::Recursive, done),
            101 | 105 if done == [true, true] => self.set_watches(op, root, made_up),
            18 => {
                let Some(Value::Int(watcher_type)) = op.values.get(1) else { return };
                if done[0] {
                    self.theirs.removed(&path, *watcher_type);
                }
                if done[1] {
                    self.ours.removed(&path, *watcher_type);
                }
                let left = self.ours.has(&path, 3) || self.ours.has(&path, 4) || self.ours.has(&path, 5);
                if left && done[0] {
                    self.loosened.insert(path);
                } else if !left {
                    self.loosened.remove(&path);
                }
            }
            _ => {}
        }
    }

    fn data(&mut self, path: &str, sides: [bool; 2]) {
        self.register(path, Mode::OneShot, [true, false], sides);
    }

    fn child(&mut self, path: &str, sides: [bool; 2]) {
        self.register(path, Mode::OneShot, [false, true], sides);
    }

    fn both(&mut self, path: &str, mode: Mode, sides: [bool; 2]) {
        self.register(path, mode, [true, true], sides);
    }

    fn register(&mut self, path: &str, mode: Mode, [data, child]: [bool; 2], [theirs, ours]: [bool; 2]) {
        if theirs && data {
            self.theirs.data.insert(path.to_owned(), mode);
        }
        if theirs && child {
            self.theirs.child.insert(path.to_owned(), mode);
        }
        if ours && data {
            *self.ours.data.entry(path.to_owned()).or_default() |= mode as u8;
        }
        if ours && child && mode != Mode::Recursive {
            *self.ours.child.entry(path.to_owned()).or_default() |= mode as u8;
        }
    }

    /// Registers or skips each path of setWatches, in the order of the lists.
    ///
    /// A path of the first three lists is either watched again or reported by an event.
    fn set_watches(&mut self, op: &Op, root: &str, made_up: &[Item]) {
        let mut told = made_up.iter().filter_map(|item| match &item.what {
            What::Event { kind, path, .. } => Some((*kind, path.as_str())),
            _ => None,
        });
        let mut next = told.next();
        for (number, list) in op.values.iter().skip(1).enumerate() {
            let Value::List(elements) = list else { continue };
            let kinds: &[i32] =
                [&[DELETED, CHANGED][..], &[CREATED], &[DELETED, CHILDREN]].get(number).unwrap_or(&&[][..]);
            for value in elements.iter().flatten() {
                let path = value.placed(Place { root, seen: &[] }).map(|path| shortened(&path)).unwrap_or_default();
                if next.is_some_and(|(kind, about)| about == path && kinds.contains(&kind)) {
                    next = told.next();
                    continue;
                }
                match number {
                    0 | 1 => self.data(&path, [true, true]),
                    2 => self.child(&path, [true, true]),
                    3 => self.both(&path, Mode::Persistent, [true, true]),
                    _ => self.both(&path, Mode::Recursive, [true, true]),
                }
            }
        }
    }
}

impl Older {
    fn gives(&self, kind: i32, path: &str) -> bool {
        let data = || is_watched(&self.data, path, |mode| *mode == Mode::Recursive);
        let child = || is_watched(&self.child, path, |mode| *mode == Mode::Recursive);
        match kind {
            CHILDREN => self.child.get(path).is_some_and(|mode| *mode != Mode::Recursive),
            DELETED => data() || child(),
            _ => data(),
        }
    }

    fn has(&self, path: &str, watcher_type: i32) -> bool {
        let (data, child) = (self.data.contains_key(path), self.child.contains_key(path));
        match watcher_type {
            1 => child,
            2 => data,
            3 => data || child,
            _ => false,
        }
    }

    fn fired(&mut self, kind: i32, path: &str) {
        let [data, child] = uses_up(kind);
        for (used, side) in [(data, &mut self.data), (child, &mut self.child)] {
            if used && side.get(path) == Some(&Mode::OneShot) {
                side.remove(path);
            }
        }
    }

    /// Removes watches of any kind.
    fn removed(&mut self, path: &str, watcher_type: i32) {
        if matches!(watcher_type, 1 | 3) {
            self.child.remove(path);
        }
        if matches!(watcher_type, 2 | 3) {
            self.data.remove(path);
        }
    }
}

impl Newer {
    fn gives(&self, kind: i32, path: &str) -> bool {
        let data = || is_watched(&self.data, path, |modes| modes & Mode::Recursive as u8 != 0);
        match kind {
            CHILDREN => self.child.contains_key(path),
            DELETED => data() || self.child.contains_key(path),
            _ => data(),
        }
    }

    fn has(&self, path: &str, watcher_type: i32) -> bool {
        let is = |side: &HashMap<String, u8>, modes: u8| side.get(path).is_some_and(|set| set & modes != 0);
        match watcher_type {
            1 => is(&self.child, Mode::OneShot as u8),
            2 => is(&self.data, Mode::OneShot as u8),
            3 => is(&self.data, u8::MAX) || is(&self.child, u8::MAX),
            4 => is(&self.data, Mode::Persistent as u8),
            5 => is(&self.data, Mode::Recursive as u8),
            _ => false,
        }
    }

    fn fired(&mut self, kind: i32, path: &str) {
        let sides = uses_up(kind);
        self.take(path, sides, Mode::OneShot as u8);
    }

    /// Removes only this kind of watch.
    fn removed(&mut self, path: &str, watcher_type: i32) {
        match watcher_type {
            1 => self.take(path, [false, true], Mode::OneShot as u8),
            2 => self.take(path, [true, false], Mode::OneShot as u8),
            4 => self.take(path, [true, true], Mode::Persistent as u8),
            5 => self.take(path, [true, true], Mode::Recursive as u8),
            _ => self.take(path, [true, true], u8::MAX),
        }
    }

    fn take(&mut self, path: &str, [data, child]: [bool; 2], modes: u8) {
        for (is_meant, side) in [(data, &mut self.data), (child, &mut self.child)] {
            if is_meant && let Some(set) = side.get_mut(path) {
                *set &= !modes;
                if *set == 0 {
                    side.remove(path);
                }
            }
        }
    }
}

/// The sides on which an event uses up one-shot watches: data, children.
fn uses_up(kind: i32) -> [bool; 2] {
    [kind != CHILDREN, matches!(kind, DELETED | CHILDREN)]
}

/// Returns whether the path is watched, directly or by a recursive watch above it.
fn is_watched<T>(side: &HashMap<String, T>, path: &str, recursive: impl Fn(&T) -> bool) -> bool {
    side.contains_key(path) || side.iter().any(|(watched, mode)| recursive(mode) && reaches(watched, true, path))
}

/// Returns whether a watch on `watched` may give an event at `path`.
///
/// Both are quoted. Of a long path only the beginning is known.
fn reaches(watched: &str, recursive: bool, path: &str) -> bool {
    if watched == path {
        return true;
    }
    let inside = watched.trim_end_matches('"');
    let below = |rest: &str| rest.starts_with('/') || inside == "\"/";
    let known = path.split_once("\"...(").map(|(known, _)| known);
    let hidden = known.is_some_and(|known| inside.starts_with(known));
    recursive && (hidden || path.strip_prefix(inside).is_some_and(below))
}

/// Returns the path that a request is about, as events show it.
pub fn path_of(op: &Op, root: &str) -> Option<String> {
    op.values.first()?.placed(Place { root, seen: &[] }).map(|path| shortened(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: i32, error: i32) -> Reply {
        Reply { code, xid: 1, zxid: 1, error, parts: Vec::new() }
    }

    fn event(kind: i32, path: &str) -> Item {
        Item { op: None, what: What::Event { zxid: 1, kind, state: 3, path: path.to_owned() } }
    }

    fn answer(watches: &mut Watches, name: &str, value: Value, errors: [i32; 2]) {
        let op = Op::new(name, vec![Value::text("~"), value]);
        let [theirs, ours] = errors.map(|error| reply(op.code, error));
        watches.answered(&op, "/d", &theirs, &ours, &[]);
    }

    #[test]
    fn one_shot_watch_explains_a_single_event() {
        let mut watches = Watches::default();
        answer(&mut watches, "exists", Value::Byte(1), [0, -102]);
        assert!(watches.only_theirs(CHANGED, "\"/d\""));
        watches.fired(Some(&event(CHANGED, "\"/d\"")), None);
        assert!(!watches.only_theirs(CHANGED, "\"/d\""));
    }

    #[test]
    fn newer_watch_mode_replaces_older_modes_only_in_zookeeper() {
        let mut watches = Watches::default();
        answer(&mut watches, "addWatch", Value::Int(1), [0, 0]);
        assert_eq!(watches.only_ours(CREATED, "\"/d/x\""), None, "both give it");
        answer(&mut watches, "getData", Value::Byte(1), [0, 0]);
        assert_eq!(watches.only_ours(CREATED, "\"/d/x\""), Some(false));
        assert_eq!(watches.only_ours(CREATED, "\"/dx\""), None, "nobody watches that");
        answer(&mut watches, "removeWatches", Value::Int(5), [-5, 0]);
        assert_eq!(watches.only_ours(CREATED, "\"/d/x\""), None, "it is removed");
    }

    #[test]
    fn watch_removed_only_in_zookeeper_explains_events_of_zoolet() {
        let mut watches = Watches::default();
        answer(&mut watches, "addWatch", Value::Int(0), [0, 0]);
        assert!(watches.theirs_has("\"/d\"", 2) && !watches.ours_has("\"/d\"", 2) && watches.ours_has("\"/d\"", 4));
        answer(&mut watches, "removeWatches", Value::Int(2), [0, -121]);
        assert_eq!(watches.only_ours(CHANGED, "\"/d\""), Some(true));
        assert_eq!(watches.only_ours(CHILDREN, "\"/d\""), None, "the other side is left in both");
        answer(&mut watches, "removeWatches", Value::Int(3), [0, 0]);
        assert_eq!(watches.only_ours(CHANGED, "\"/d\""), None);
    }
}
