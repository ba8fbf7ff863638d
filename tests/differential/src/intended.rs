//! The table of intended differences between zoolet and Debian's Apache ZooKeeper 3.8.
//!
//! No other difference is accepted. Each row names its rule of docs/reference/zookeeper.md and
//! applies to one precise situation. The comparison counts its uses.

use crate::compare::Names;
use crate::reply::{Atom, Item, Reply, What, connected};
use crate::script::{Action, Claim, Op};
use crate::value::{Value, parse_values};
use crate::watches::{Watches, path_of};

/// A row of the table.
pub struct Rule {
    /// The rule in docs/reference/zookeeper.md.
    pub surface: &'static str,
    /// The difference, and why it is right.
    pub reason: &'static str,
    /// Returns the items explained if this row explains the difference at hand.
    pub applies: fn(&Case<'_>) -> Option<Taken>,
}

/// A difference at hand.
pub struct Case<'a> {
    /// The action of the step.
    pub action: &'a Action,
    /// The request whose reply is at hand, if the item is a reply.
    pub op: Option<&'a Op>,
    /// Whether this connection acts in the step; others are only read.
    pub acts: bool,
    /// Whether the session has left this connection.
    pub left: bool,
    /// Whether servers have lost or found a leader during the play.
    pub roles_changed: bool,
    /// The root of the play.
    pub root: &'a str,
    /// The remaining items of Apache ZooKeeper in this step.
    pub theirs: &'a [Item],
    /// The remaining items of zoolet in this step.
    pub ours: &'a [Item],
    /// The earlier items of zoolet in this step.
    pub before_ours: &'a [Item],
    /// Our zxids of the changes of this step, as far as replies show them.
    pub change_zxids: &'a [i64],
    /// The watches of this connection.
    pub watches: &'a Watches,
    /// The watches of every connection.
    pub all_watches: &'a [Watches],
    /// Translates names between the servers.
    pub names: &'a Names,
}

/// Number of items on each side that a row explains.
pub struct Taken {
    /// Items of Apache ZooKeeper.
    pub theirs: usize,
    /// Items of zoolet.
    pub ours: usize,
    /// Whether Apache ZooKeeper spends a zxid here and zoolet does not.
    pub spends: bool,
    /// Whether Apache ZooKeeper spends a zxid here that no reply shows before the next one.
    pub hides: bool,
}

/// Returns the index of this rule's row.
pub fn row(surface: &str) -> usize {
    RULES.iter().position(|rule| rule.surface == surface).unwrap_or_else(|| panic!("the table has no row {surface}"))
}

const NOTHING: Taken = Taken { theirs: 0, ours: 0, spends: false, hides: false };
const PAIR: Taken = Taken { theirs: 1, ours: 1, ..NOTHING };
const THEIRS: Taken = Taken { theirs: 1, ..NOTHING };
const OURS: Taken = Taken { ours: 1, ..NOTHING };

/// The table.
pub const RULES: [Rule; 21] = [
    Rule {
        surface: "13.5",
        reason: "a session that comes back with another timeout has it under every later leader: zoolet spends a zxid on that, which `Comparison::anchored` allows for",
        applies: |_| None,
    },
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
            // The player's getData right behind it shows that READ is missing.
            let refused = matches!(&case.theirs.get(1)?.what, What::Reply(Reply { code: 4, error: -102, .. }));
            ((theirs.code, theirs.error, ours.error) == (3, 0, -102) && refused).then_some(PAIR)
        },
    },
    Rule {
        surface: "15 watches that only 3.8 has",
        reason: "set by an exists without READ, or left by a removeWatches of type 4 or 5: they may fire later",
        applies: |case| match &case.theirs.first()?.what {
            What::Event { kind, path, .. } if case.watches.only_theirs(*kind, path) => Some(THEIRS),
            _ => None,
        },
    },
    Rule {
        surface: "15 watch kinds on one path",
        reason: "3.8 keeps only the last mode set on a path; from 3.9 one-shot, persistent and recursive coexist",
        applies: |case| (!case.only_our_event()?).then_some(OURS),
    },
    Rule {
        surface: "15 removeWatches and checkWatches by type",
        reason: "3.8 takes any kind of watch for the kind asked for, checkWatches even that of another connection; 3.9 the exact one",
        applies: |case| {
            let (theirs, ours) = case.replies()?;
            let (path, kind) = case.watch_asked()?;
            let found = match theirs.code {
                17 => case.all_watches.iter().any(|watches| watches.theirs_has(&path, kind)),
                18 => case.watches.theirs_has(&path, kind),
                _ => false,
            };
            let missed = !case.watches.ours_has(&path, kind);
            (found && missed && (theirs.error, ours.error) == (0, -121)).then_some(PAIR)
        },
    },
    Rule {
        surface: "15 removeWatches and checkWatches by type: 4 and 5",
        reason: "3.8 knows the types 1 to 3 (-5 for others); 3.9 has types for persistent and recursive watches",
        applies: |case| {
            let (theirs, ours) = case.replies()?;
            let (path, kind) = case.watch_asked()?;
            let expected = if case.watches.ours_has(&path, kind) { 0 } else { -121 };
            let newer = matches!(kind, 4 | 5) && matches!(theirs.code, 17 | 18);
            (newer && (theirs.error, ours.error) == (-5, expected)).then_some(PAIR)
        },
    },
    Rule {
        surface: "15 removeWatches by type: what is left",
        reason: "the watch that 3.8 removed for want of an exact kind still fires here",
        applies: |case| case.only_our_event()?.then_some(OURS),
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
        surface: "15 malformed write",
        reason: "a null path inside a multi: 3.8 has no txn header by then, so it spends a zxid without an error txn, and -5 shows an older one with an empty result behind it; 3.9 always has the error txn",
        applies: |case| {
            let (theirs, ours) = case.replies()?;
            let null = |op: &Op| matches!(op.values.first(), Some(Value::Bytes(None)));
            let is_null = case.op.is_some_and(|op| op.code == 14 && op.subs.iter().flatten().any(null));
            let own = ours.parts.is_empty() && ours.zxid > case.names.ours_of(theirs.zxid);
            let empty = matches!(&theirs.parts[..], [part] if part[..] == [Atom::Text(NO_RESULTS.to_owned())]);
            (is_null && own && empty && (theirs.error, ours.error) == (-5, -5)).then_some(Taken { hides: true, ..PAIR })
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
        reason: "an internal request that 3.8 and 3.9 take from clients too, and answer as a handshake; refused, as an unknown request",
        applies: |case| {
            let Action::Fatal(ops) = case.action else { return None };
            let refused = matches!(&case.ours.first()?.what, What::Reply(Reply { code: -10, zxid: -1, error: -6, .. }));
            let closed = case.ours.get(1)?.what == What::Closed && case.ours.len() == 2;
            // ZooKeeper sends the answer to the handshake again in place of a reply, and the
            // connection goes on.
            let [Item { op: None, what: What::Unknown(frame) }, Item { op: None, what: What::Reply(alive) }] =
                case.theirs
            else {
                return None;
            };
            let [Value::Bytes(Some(frame))] = &parse_values(frame).ok()?[..] else { return None };
            let (id, _, What::Connected(atoms)) = connected(frame)? else { return None };
            let handshake = matches!(&atoms[..], [Atom::Text(start), Atom::Session(_), Atom::Password(true), Atom::Text(end)]
                if start.starts_with("version 0 timeout ") && matches!(end.as_str(), "then " | "then 00"));
            let lives = (alive.code, alive.error) == (11, 0);
            let accepted = id != 0 && handshake && lives;
            (ops.last()?.code == -10 && refused && closed && accepted).then_some(Taken {
                theirs: 2,
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
            // Any error or failed multi is a refusal.
            let What::Reply(reply) = &case.theirs.first()?.what else { return None };
            let failed = |part: &[Atom]| matches!(part.first(), Some(Atom::Text(text)) if text.starts_with("type -1 "));
            let late = reply.error != 0 || (reply.code == 14 && reply.parts.iter().all(|part| failed(part)));
            (closed && late).then_some(Taken { spends: true, ..THEIRS })
        },
    },
    Rule {
        surface: "13.24",
        reason: "ZooKeeper answers auth and sasl at once, and what a read-only server refuses, before earlier requests; here every reply has its turn",
        // The comparison applies this row before it begins.
        applies: |_| None,
    },
    Rule {
        surface: "13.48",
        reason: "3.8 and 3.9 may still judge a create in the root by the ACL that a setACL right before it has replaced; here by the new one",
        applies: |case| {
            let (theirs, ours) = case.replies()?;
            let op = case.theirs.first()?.op?;
            let (earlier, [create, ..]) = case.action.ops().split_at_checked(op)? else { return None };
            let in_root = matches!(create.values.first()?, Value::Bytes(Some(path))
                if path.first() == Some(&b'/') && path.iter().filter(|byte| **byte == b'/').count() == 1);
            let set = earlier.iter().rfind(|op| op.code == 7 && op.values.first() == Some(&Value::text("/")))?;
            let Value::List(entries) = set.values.get(1)? else { return None };
            let [[Value::Int(perms), ..]] = entries.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] else {
                return None;
            };
            // NodeExists is checked after NoAuth, so the outcomes differ while the trees stay
            // equal.
            let (allowed, refused) = (-110, -102);
            let expected = if perms & 4 != 0 { (refused, allowed) } else { (allowed, refused) };
            let create = matches!(create.code, 1 | 15 | 19);
            (create && in_root && (theirs.error, ours.error) == expected).then_some(PAIR)
        },
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
    Rule {
        surface: "10.7",
        reason: "ZooKeeper's server forgets its local sessions whenever it loses or finds a leader; here they go on",
        applies: |case| {
            let Action::Connect(connect) = case.action else { return None };
            let resumed = matches!(case.ours, [Item { what: What::Connected(atoms), .. }]
                if matches!(atoms[..], [_, Atom::Session(id), Atom::Password(true), _] if id != 0));
            let claims = connect.claim == Claim::Right && case.roles_changed;
            (claims && expired(case.theirs) && resumed).then_some(Taken { theirs: 2, ours: 1, ..NOTHING })
        },
    },
    Rule {
        surface: "10.6",
        reason: "ZooKeeper's read-only server says that a session unknown to it has expired; the others may know it, so the connection is closed here",
        applies: |case| {
            let Action::Connect(connect) = case.action else { return None };
            let claims = matches!(connect.claim, Claim::Right | Claim::Unknown) && case.roles_changed;
            let closed = matches!(case.ours, [Item { what: What::Closed, .. }]);
            (claims && expired(case.theirs) && closed).then_some(Taken { theirs: 2, ours: 1, ..NOTHING })
        },
    },
];

/// Returns whether a claim was answered as one of an expired session.
fn expired(items: &[Item]) -> bool {
    matches!(items, [Item { what: What::Connected(atoms), .. }, Item { what: What::Closed, .. }]
        if matches!(atoms[..], [_, Atom::Session(0), Atom::Password(false), _]))
}

/// The end of a multi's results, as the comparison shows a body behind an error.
const NO_RESULTS: &str = "undecoded ffffffff01ffffffff";

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
        // The Stat of a newborn znode is checked, although 3.8 leaves it out.
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

    /// Returns the path and the type of watch that the request at hand asks about.
    fn watch_asked(&self) -> Option<(String, i32)> {
        match self.op?.values.get(1)? {
            Value::Int(kind) => Some((path_of(self.op?, self.root).unwrap_or_default(), *kind)),
            _ => None,
        }
    }

    /// Returns whether our next event comes from a watch that 3.8 no longer has.
    ///
    /// `Some(true)`: 3.8 has removed the watch as one of another kind. `None`: no such event.
    fn only_our_event(&self) -> Option<bool> {
        let What::Event { zxid, kind, path, .. } = &self.ours.first()?.what else { return None };
        self.is_of_change(*zxid).then(|| self.watches.only_ours(*kind, path)).flatten()
    }

    /// Returns whether this zxid belongs to a change of this step.
    ///
    /// After `Vanish` or `Wait`, any positive zxid may be right: no reply showed the zxid.
    fn is_of_change(&self, zxid: i64) -> bool {
        self.change_zxids.contains(&zxid) || (zxid > 0 && matches!(self.action, Action::Vanish(_) | Action::Wait(_)))
    }
}
