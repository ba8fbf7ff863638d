//! The differences that are intended: the one place where zoolet may answer otherwise than Debian's Apache ZooKeeper 3.8.
//! Each row names its rule of docs/ZOOKEEPER.md, applies to one precise situation, and is counted when it is needed.

use crate::compare::Names;
use crate::reply::{Atom, Item, Reply, What, shortened};
use crate::script::{Action, Claim, Op};
use crate::value::{Place, Value};
use std::collections::HashMap;

/// A row of the table.
pub struct Rule {
    /// The rule in docs/ZOOKEEPER.md.
    pub surface: &'static str,
    /// What differs, and why that is right.
    pub reason: &'static str,
    /// Whether this row explains the difference at hand.
    pub applies: fn(&Case<'_>) -> Option<Taken>,
}

/// A difference at hand.
pub struct Case<'a> {
    /// What is being done.
    pub action: &'a Action,
    /// The request whose reply is at hand, if it is one.
    pub op: Option<&'a Op>,
    /// Whether this connection is the one that acts, not one that is only asked what it has heard.
    pub acts: bool,
    /// Whether it is a connection that the session has left.
    pub left: bool,
    /// The root of the play.
    pub root: &'a str,
    /// What Apache ZooKeeper sent from here on in this step.
    pub theirs: &'a [Item],
    /// What zoolet sent from here on.
    pub ours: &'a [Item],
    /// What zoolet sent before, in this step.
    pub before_ours: &'a [Item],
    /// Our zxids of the changes of this step, as far as their maker was told.
    pub change_zxids: &'a [i64],
    /// What this connection has watched.
    pub marks: &'a Marks,
    /// What every connection has watched.
    pub all_marks: &'a [Marks],
    /// How names translate.
    pub names: &'a Names,
}

/// How much of each side a row accounts for.
pub struct Taken {
    /// Items of Apache ZooKeeper.
    pub theirs: usize,
    /// Items of zoolet.
    pub ours: usize,
    /// A path that only Apache ZooKeeper watches from now on.
    pub only_theirs: Option<String>,
    /// A path whose watches Apache ZooKeeper has dropped too many of.
    pub loosened: Option<String>,
    /// Whether Apache ZooKeeper spends a zxid on it that zoolet does not.
    pub spends: bool,
}

const NOTHING: Taken = Taken { theirs: 0, ours: 0, only_theirs: None, loosened: None, spends: false };
const PAIR: Taken = Taken { theirs: 1, ours: 1, ..NOTHING };
const THEIRS: Taken = Taken { theirs: 1, ..NOTHING };
const OURS: Taken = Taken { ours: 1, ..NOTHING };

/// The table.
pub const RULES: [Rule; 16] = [
    Rule {
        surface: "15 event header zxid",
        reason: "3.8 sends -1; 3.9 sends the zxid of the change that fired the watch",
        applies: |case| match (&case.theirs.first()?.what, &case.ours.first()?.what) {
            (
                What::Event { zxid: -1, kind, state, path },
                What::Event { zxid, kind: our_kind, state: our_state, path: our_path },
            ) if (kind, state, path) == (our_kind, our_state, our_path) => case.is_of_change(*zxid).then_some(PAIR),
            _ => None,
        },
    },
    Rule {
        surface: "15 exists READ check",
        reason: "3.8 answers exists without READ permission; 3.9.2 refuses it and registers no watch",
        applies: |case| {
            let (theirs, ours) = case.replies()?;
            // The player's own getData right behind it shows that READ is indeed missing.
            let refused = matches!(&case.theirs.get(1)?.what, What::Reply(Reply { code: 4, error: -102, .. }));
            let watched = matches!(case.op?.values.get(1)?, Value::Byte(watch) if *watch != 0);
            let only_theirs = watched.then(|| case.path()).flatten();
            ((theirs.code, theirs.error, ours.error) == (3, 0, -102) && refused)
                .then_some(Taken { only_theirs, ..PAIR })
        },
    },
    Rule {
        surface: "15 watches that only 3.8 has",
        reason: "set by an exists without READ, or left by a removeWatches of type 4 or 5: they may fire later",
        applies: |case| match &case.theirs.first()?.what {
            What::Event { path, .. } if case.marks.is_only_theirs(path) => Some(THEIRS),
            _ => None,
        },
    },
    Rule {
        surface: "15 watch kinds on one path",
        reason: "3.8 keeps only the last mode set on a path; from 3.9 one-shot, persistent and recursive coexist",
        applies: |case| case.marks.is_mixed(&case.our_event(false)?).then_some(OURS),
    },
    Rule {
        surface: "15 removeWatches and checkWatches by type",
        reason: "3.8 takes any kind of watch for the kind asked for, checkWatches even that of another connection; 3.9 the exact one",
        applies: |case| {
            let (theirs, ours) = case.replies()?;
            let path = case.path()?;
            let watched = match theirs.code {
                17 => case.all_marks.iter().any(|marks| marks.is_watched(&path)),
                18 => case.marks.modes.contains_key(&path),
                _ => false,
            };
            let loosened = (theirs.code == 18).then(|| path.clone());
            (watched && (theirs.error, ours.error) == (0, -121)).then_some(Taken { loosened, ..PAIR })
        },
    },
    Rule {
        surface: "15 removeWatches and checkWatches by type: 4 and 5",
        reason: "3.8 knows the types 1 to 3 (-5 for others); 3.9 has types for persistent and recursive watches",
        applies: |case| {
            let (theirs, ours) = case.replies()?;
            let path = case.path().unwrap_or_default();
            let newer = matches!(case.op?.values.get(1)?, Value::Int(4 | 5)) && matches!(theirs.code, 17 | 18);
            let known = case.marks.modes.contains_key(&path);
            let only_theirs = (theirs.code == 18 && ours.error == 0).then(|| path.clone());
            // Found only where this connection has watched; without such a watch always refused.
            let right = ours.error == -121 || (ours.error == 0 && known);
            (newer && theirs.error == -5 && right).then_some(Taken { only_theirs, ..PAIR })
        },
    },
    Rule {
        surface: "15 removeWatches by type: what is left",
        reason: "the watch that 3.8 removed for want of an exact kind still fires here",
        applies: |case| case.marks.is_loosened(&case.our_event(false)?).then_some(OURS),
    },
    Rule {
        surface: "15 create2 inside multi",
        reason: "3.8 answers a create2 inside a multi as a create, without its Stat; 3.9 with type 15 and the Stat",
        applies: create2_inside_multi,
    },
    Rule {
        surface: "15 IPv6 in ip ACL",
        reason: "3.8 takes no IPv6 address in an ACL (-114); 3.9.4 does, and the next check has its turn",
        applies: |case| {
            let (theirs, ours) = case.replies()?;
            let Value::List(entries) = case.op?.values.get(1)? else { return None };
            let [_, Value::Bytes(Some(scheme)), Value::Bytes(Some(id))] = &entries.first()?[..] else { return None };
            let six = scheme == b"ip" && id.contains(&b':');
            (six && (theirs.code, theirs.error, ours.error) == (7, -114, -101)).then_some(PAIR)
        },
    },
    Rule {
        surface: "15 lone check",
        reason: "3.8.0 answers a check outside a multi only if it fails; 3.9.3 answers -6 and closes",
        applies: |case| {
            let Action::Fatal(ops) = case.action else { return None };
            let refused = matches!(&case.ours.first()?.what, What::Reply(Reply { code: 13, zxid: -1, error: -6, .. }));
            let closed = case.ours.get(1)?.what == What::Closed && case.ours.len() == 2;
            let lone = matches!(ops.last()?, Op { code: 13, .. });
            let failed =
                matches!(&case.theirs.first()?.what, What::Reply(Reply { code: 13, error, .. }) if *error != 0);
            let (theirs, rest) = if failed { (2, &case.theirs[1..]) } else { (1, case.theirs) };
            let silent = matches!(rest, [Item { op: None, what: What::Reply(Reply { code: 11, .. }) }]);
            (lone && refused && closed && silent).then_some(Taken { theirs, ours: 2, spends: true, ..NOTHING })
        },
    },
    Rule {
        surface: "13.6 deleteContainer",
        reason: "3.9 lets any client delete without permission (3.8 misreads the request: -8); refused, as an unknown request",
        applies: |case| {
            let Action::Fatal(ops) = case.action else { return None };
            let refused = matches!(&case.ours.first()?.what, What::Reply(Reply { code: 20, zxid: -1, error: -6, .. }));
            let closed = case.ours.get(1)?.what == What::Closed && case.ours.len() == 2;
            let misread = matches!(&case.theirs.first()?.what, What::Reply(Reply { code: 20, error: -8 | -5, .. }));
            (ops.last()?.code == 20 && refused && closed && misread && case.theirs.len() == 2).then_some(Taken {
                theirs: 2,
                ours: 2,
                spends: true,
                ..NOTHING
            })
        },
    },
    Rule {
        surface: "13.6 createSession",
        reason: "an internal request that 3.8 and 3.9 take from clients too; refused, as an unknown request",
        applies: |case| {
            let Action::Fatal(ops) = case.action else { return None };
            let refused = matches!(&case.ours.first()?.what, What::Reply(Reply { code: -10, zxid: -1, error: -6, .. }));
            let closed = case.ours.get(1)?.what == What::Closed && case.ours.len() == 2;
            (ops.last()?.code == -10 && refused && closed).then_some(Taken {
                theirs: case.theirs.len(),
                ours: 2,
                spends: true,
                ..NOTHING
            })
        },
    },
    Rule {
        surface: "13.20",
        reason: "a request behind closeSession is refused (-112 or what comes before that) by 3.8 and not at all by 3.9; the connection is closing",
        applies: |case| {
            let closed =
                case.before_ours.iter().any(|item| matches!(&item.what, What::Reply(reply) if reply.code == -11));
            // Whatever it says, it is a refusal.
            let What::Reply(reply) = &case.theirs.first()?.what else { return None };
            let failed = |part: &[Atom]| matches!(part.first(), Some(Atom::Text(text)) if text.starts_with("type -1 "));
            let late = reply.error != 0 || (reply.code == 14 && reply.parts.iter().all(|part| failed(part)));
            (closed && late).then_some(Taken { spends: true, ..THEIRS })
        },
    },
    Rule {
        surface: "13.24",
        reason: "ZooKeeper answers auth and sasl at once, before earlier requests; here every reply has its turn",
        // Applied by the comparison before it begins.
        applies: |_| None,
    },
    Rule {
        surface: "13.25",
        reason: "ZooKeeper ends a session's connection when somebody names its id with a wrong password; checked first here",
        applies: |case| {
            let Action::Connect(connect) = case.action else { return None };
            let wrong = matches!(connect.claim, Claim::Wrong | Claim::Derived) && case.left;
            let ended = matches!(case.theirs, [Item { what: What::Closed, .. }]);
            let lives = matches!(case.ours, [Item { op: None, what: What::Reply(Reply { code: 11, error: 0, .. }) }]);
            (wrong && ended && lives).then_some(Taken { theirs: 1, ours: 1, ..NOTHING })
        },
    },
    Rule {
        surface: "13.26",
        reason: "ZooKeeper's passwords follow from the session id, which every Stat of an ephemeral shows; here they are secrets",
        applies: |case| {
            let Action::Connect(connect) = case.action else { return None };
            let accepted = matches!(case.theirs, [Item { what: What::Connected(atoms), .. }]
                if matches!(atoms[..], [_, Atom::Session(id), Atom::Password(true), _] if id != 0));
            let refused = matches!(case.ours, [Item { what: What::Connected(atoms), .. }, Item { what: What::Closed, .. }]
                if matches!(atoms[..], [_, Atom::Session(0), Atom::Password(false), _]));
            (connect.claim == Claim::Derived && !case.left && accepted && refused).then_some(Taken {
                theirs: 1,
                ours: 2,
                ..NOTHING
            })
        },
    },
];

fn create2_inside_multi(case: &Case<'_>) -> Option<Taken> {
    let (theirs, ours) = case.replies()?;
    let subs = case.op?.subs.as_ref().filter(|_| case.op.is_some_and(|op| op.code == 14))?;
    if theirs.error != 0 || ours.error != 0 || case.names.ours_of(theirs.zxid) != ours.zxid {
        return None;
    }
    if theirs.parts.len() != ours.parts.len() || ours.parts.len() != subs.len() + 1 {
        return None;
    }
    let mut needed = false;
    for (number, (theirs, ours)) in theirs.parts.iter().zip(&ours.parts).enumerate() {
        if !case.names.would_differ(theirs, ours) {
            continue;
        }
        let sub = subs.get(number)?;
        let zxid = case.ours_zxid()?;
        // Its Stat is that of a znode as it is born: what 3.8 leaves out is checked all the same.
        let born = [Atom::Zxid(zxid), Atom::Zxid(zxid)];
        let same = matches!((&theirs[..], &ours[..]), ([Atom::Text(their_type), path], [Atom::Text(our_type), our_path, stat @ ..])
            if their_type == "type 1 done 0 error 0" && our_type == "type 15 done 0 error 0"
                && path == our_path && stat.len() == 8 && stat[..2] == born && stat[7] == born[0]);
        if sub.code != 15 || !same {
            return None;
        }
        needed = true;
    }
    needed.then_some(PAIR)
}

impl Case<'_> {
    fn replies(&self) -> Option<(&Reply, &Reply)> {
        let (theirs, ours) = (self.theirs.first()?, self.ours.first()?);
        match (&theirs.what, &ours.what) {
            (What::Reply(one), What::Reply(two)) if theirs.op == ours.op && one.code == two.code => Some((one, two)),
            _ => None,
        }
    }

    fn ours_zxid(&self) -> Option<i64> {
        self.replies().map(|(_, ours)| ours.zxid)
    }

    /// The path that the request at hand is about, as events show it.
    fn path(&self) -> Option<String> {
        self.op.and_then(|op| path_of(op, self.root))
    }

    /// The path of an event that is next on our side and not on theirs.
    fn our_event(&self, replayed: bool) -> Option<String> {
        let What::Event { zxid, path, .. } = &self.ours.first()?.what else { return None };
        (replayed || self.is_of_change(*zxid)).then(|| path.clone())
    }

    /// Whether this zxid is that of a change of this step. Who vanished was not told, so there any zxid may be right.
    fn is_of_change(&self, zxid: i64) -> bool {
        self.change_zxids.contains(&zxid) || (zxid > 0 && matches!(self.action, Action::Vanish(_)))
    }
}

/// What one connection has watched so far.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    modes: HashMap<String, u8>,
    only_theirs: Vec<String>,
    loosened: Vec<String>,
}

const ONE_SHOT: u8 = 1;
const PERSISTENT: u8 = 2;
const RECURSIVE: u8 = 4;

impl Marks {
    /// Notes what a request has registered.
    pub fn answered(&mut self, op: &Op, root: &str, theirs: &Reply, ours: &Reply) {
        let watched = matches!(op.values.get(1), Some(Value::Byte(watch)) if *watch != 0);
        let done = theirs.error == 0 || ours.error == 0;
        let lists = |from: usize, to: usize| op.values.get(from..to.min(op.values.len())).unwrap_or_default();
        match op.code {
            3 if watched && (done || ours.error == -101) => self.note(path_of(op, root), ONE_SHOT),
            4 | 8 | 12 if watched && done => self.note(path_of(op, root), ONE_SHOT),
            106 if done && op.values.get(1) == Some(&Value::Int(0)) => self.note(path_of(op, root), PERSISTENT),
            106 if done => self.note(path_of(op, root), RECURSIVE),
            101 | 105 if done => {
                lists(1, 4).iter().for_each(|list| self.note_list(list, root, ONE_SHOT));
                lists(4, 5).iter().for_each(|list| self.note_list(list, root, PERSISTENT));
                lists(5, 6).iter().for_each(|list| self.note_list(list, root, RECURSIVE));
            }
            _ => {}
        }
    }

    fn note_list(&mut self, list: &Value, root: &str, mode: u8) {
        let Value::List(elements) = list else { return };
        for value in elements.iter().flatten() {
            self.note(value.placed(Place { root, seen: 0 }).map(|path| shortened(&path)), mode);
        }
    }

    fn note(&mut self, path: Option<String>, mode: u8) {
        *self.modes.entry(path.unwrap_or_default()).or_default() |= mode;
    }

    /// From now on only Apache ZooKeeper watches this path.
    pub fn only_theirs(&mut self, path: String) {
        self.only_theirs.push(path);
    }

    /// From now on zoolet watches this path more than Apache ZooKeeper does.
    pub fn loosened(&mut self, path: String) {
        self.loosened.push(path);
    }

    /// Whether several modes have been set on what an event at this path may come from.
    fn is_mixed(&self, path: &str) -> bool {
        self.modes.iter().any(|(watched, modes)| modes.count_ones() > 1 && reaches(watched, *modes, path))
    }

    fn is_only_theirs(&self, path: &str) -> bool {
        self.only_theirs.iter().any(|watched| reaches(watched, self.modes_of(watched), path))
    }

    fn is_watched(&self, path: &str) -> bool {
        self.modes.iter().any(|(watched, modes)| reaches(watched, *modes, path))
    }

    fn modes_of(&self, watched: &str) -> u8 {
        self.modes.get(watched).copied().unwrap_or_default()
    }

    fn is_loosened(&self, path: &str) -> bool {
        self.loosened.iter().any(|watched| reaches(watched, self.modes_of(watched), path))
    }
}

/// Whether a watch of one of these modes on `watched` may give an event at `path`. Both are in quotes.
fn reaches(watched: &str, modes: u8, path: &str) -> bool {
    let inside = watched.trim_end_matches('"');
    let below = path.strip_prefix(inside).is_some_and(|rest| rest.starts_with('/') || inside.ends_with('/'));
    watched == path || (modes & RECURSIVE != 0 && below)
}

fn path_of(op: &Op, root: &str) -> Option<String> {
    op.values.first()?.placed(Place { root, seen: 0 }).map(|path| shortened(&path))
}
