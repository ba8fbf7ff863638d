//! Draws requests.

use super::value::{NAMES, PREFIXES, acl, open_acl};
use super::{Generator, Kind, parent_of};
use crate::script::{Op, code};
use crate::value::Value;

/// Weights of the kinds of requests.
const MIX: &[(usize, &str)] = &[
    (26, "create"),
    (8, "create2"),
    (4, "createContainer"),
    (2, "createTTL"),
    (16, "delete"),
    (10, "exists"),
    (14, "getData"),
    (18, "setData"),
    (4, "getACL"),
    (5, "setACL"),
    (7, "getChildren"),
    (7, "getChildren2"),
    (3, "sync"),
    (2, "ping"),
    (14, "multi"),
    (4, "multiRead"),
    (1, "reconfig"),
    (3, "checkWatches"),
    (4, "removeWatches"),
    (2, "auth"),
    (3, "setWatches"),
    (2, "setWatches2"),
    (1, "sasl"),
    (3, "getEphemerals"),
    (3, "getAllChildrenNumber"),
    (9, "addWatch"),
    (2, "whoAmI"),
];

impl Generator {
    pub(super) fn op(&mut self, session: usize) -> Op {
        let name = *self.random.weighted(MIX);
        match name {
            "create" | "create2" | "createContainer" | "createTTL" => self.create(name),
            "delete" => self.delete(),
            "setData" => self.set_data(),
            "setACL" => self.set_acl(),
            "exists" | "getData" | "getChildren" | "getChildren2" => {
                let path = self.path();
                let watch = self.random.percent(45) && self.watched_as(session, &path, 0);
                let byte = if watch { *self.random.of(&[1, 1, 1, 0xff]) } else { 0 };
                Op::new(name, vec![self.path_value(path), Value::Byte(byte)])
            }
            "getACL" | "getAllChildrenNumber" => {
                let path = self.path();
                Op::new(name, vec![self.path_value(path)])
            }
            // See `settle` of the player.
            "sync" if self.kind == Kind::Ensemble => Op::new("ping", vec![]),
            "sync" => {
                let path = self.path();
                echoed(Op::new(name, vec![self.path_value(path)]))
            }
            "getEphemerals" => {
                let blank = ["/ ", " /\t", "\u{1}", "\u{a0}", "\u{3000}"];
                let prefix = *self.random.of(&["~", "~/", "~/a", "/", "", " ", "~/a/", "nothing", " ~"]);
                let prefix = if self.random.percent(30) { *self.random.of(&blank) } else { prefix }.to_owned();
                Op::new(name, vec![self.path_value(prefix)])
            }
            "ping" | "whoAmI" => Op::new(name, vec![]),
            "multi" => self.multi(),
            "multiRead" => self.multi_read(),
            "reconfig" => {
                let text = Value::text(*self.random.of(&["", "server.2=127.0.0.1:1:2", "nonsense"]));
                Op::new(name, vec![text, Value::Bytes(None), Value::Bytes(None), Value::Long(-1)])
            }
            "checkWatches" | "removeWatches" => {
                let kind = *self.random.of(&[1, 1, 2, 2, 3, 3, 3, 4, 5, 0, 6, 9, -1]);
                let path = self.path();
                // 3.8 fails on a relative path when it looks at the parents; 3.9 no longer does.
                let path = if path.starts_with(['/', '~']) { path } else { "~/a".to_owned() };
                // zoolet takes a null path for an empty one, which setWatches may have watched.
                let path = match self.path_value(path) {
                    Value::Bytes(None) if name == "removeWatches" => Value::text("/"),
                    path => path,
                };
                Op::new(name, vec![path, Value::Int(kind)])
            }
            "addWatch" => {
                let path = self.path();
                let mode = *self.random.of(&[0, 0, 0, 1, 1, 1, 2, -1, 7]);
                // Rarely several modes on one path: 3.8 keeps only one.
                let mode = match mode {
                    0 if !self.watched_as(session, &path, 1) => 1,
                    1 if !self.watched_as(session, &path, 2) => 0,
                    mode => mode,
                };
                let mode =
                    if matches!(mode, 0 | 1) && !self.watched_as(session, &path, mode as usize + 1) { 7 } else { mode };
                // Never null: ZooKeeper fails when it removes the watches, and then never closes
                // this connection.
                let path = match self.path_value(path) {
                    Value::Bytes(None) => Value::text(""),
                    path => path,
                };
                Op::new(name, vec![path, Value::Int(mode)])
            }
            "auth" => {
                let user =
                    *self.random.of(&["u1:p1", "u2:p2", "u1:p1", "u3", "u1:wrong:more", "", ":", ":p1", "u2::p"]);
                let user = if self.random.percent(4) { "super:secret" } else { user };
                let scheme = if self.random.percent(90) { "digest" } else { "ip" };
                let xid = self.random.percent(50).then_some(-4);
                Op { xid, ..Op::new(name, vec![Value::Int(0), Value::text(scheme), Value::text(user)]) }
            }
            "sasl" => Op::new(name, vec![Value::text("token")]),
            name => self.set_watches(name, session),
        }
    }

    /// Returns whether this session watches this path in this mode.
    ///
    /// The modes are 0 one-shot, 1 persistent, 2 recursive. Each pair of session and path has one
    /// mode, with few exceptions.
    fn watched_as(&mut self, session: usize, path: &str, mode: usize) -> bool {
        let mixed = path
            .bytes()
            .fold(self.seed ^ session as u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let usual = [0, 0, 1, 2][(mixed >> 20) as usize % 4];
        usual == mode || self.random.percent(2)
    }

    pub(super) fn set_watches(&mut self, name: &str, session: usize) -> Op {
        let zxid =
            self.random.of(&[Value::Seen(0), Value::Seen(0), Value::Seen(8), Value::Long(0), Value::Long(i64::MAX)]);
        let mut values = vec![zxid.clone()];
        let modes: &[usize] = if name == "setWatches" { &[0, 0, 0] } else { &[0, 0, 0, 1, 2] };
        for mode in modes {
            let mut paths = Vec::new();
            for _ in 0..self.random.below(6) {
                let path = self.path();
                if self.watched_as(session, &path, *mode) {
                    paths.push(path.into_bytes());
                }
            }
            values.push(Value::texts(paths));
        }
        if self.random.percent(2) {
            // All other lists are empty then: ZooKeeper acts on the lists before a null list, and
            // only then fails.
            values[1..].fill(Value::texts([]));
            let at = 1 + self.random.below(modes.len());
            values[at] = Value::Int(-1);
        }
        echoed(Op { xid: Some(-8), ..Op::new(name, values) })
    }

    pub(super) fn create(&mut self, name: &str) -> Op {
        let flags = match name {
            "createTTL" => *self.random.of(&[5, 6]),
            _ if self.random.percent(4) => *self.random.of(&[4, 5, 6, 7, -1, 100, i32::MIN]),
            "createContainer" => *self.random.of(&[4, 4, 4, 0, 2]),
            _ => *self.random.of(&[0, 0, 0, 0, 1, 1, 2, 3]),
        };
        let sequential = matches!(flags, 2 | 3 | 6);
        let parent = self.existing();
        let mut path = if self.random.percent(12) {
            self.path()
        } else if sequential {
            format!("{parent}/{}", self.random.of(PREFIXES))
        } else {
            format!("{parent}/{}", self.random.of(NAMES))
        };
        if path.matches('/').count() > 5 {
            path = format!("~/{}", self.random.of(NAMES));
        }
        if sequential {
            let births = self.tree.get(parent_of(&path)).map_or(0, |parent| parent.births);
            self.born(&format!("{path}{births:010}"), flags == 3);
        } else {
            self.born(&path, flags == 1);
        }
        // ZooKeeper looks at the flags before it looks for a path, if the session is local.
        let path = match self.path_value(path) {
            Value::Bytes(None) if self.kind != Kind::Standalone => Value::text("~"),
            path => path,
        };
        let mut values = vec![path, self.data(), self.acl(), Value::Int(flags)];
        if name == "createTTL" {
            // Always with TTL flags: without them the request stops Apache ZooKeeper for good
            // (surface 13.6).
            // The times are longer than any play.
            let longest = (1 << 40) - 1;
            values.push(Value::Long(*self.random.of(&[3_600_000, 7_200_000, longest, 0, -1, longest + 1, i64::MAX])));
        }
        Op::new(name, values)
    }

    pub(super) fn delete(&mut self) -> Op {
        let mut path = self.path();
        if self.random.percent(60) {
            let leaves: Vec<&String> = self.tree.keys().filter(|path| !self.has_children(path)).collect();
            if !leaves.is_empty() {
                path = leaves[self.random.below(leaves.len())].clone();
            }
        }
        if path == "~" {
            path = "~/a".to_owned();
        }
        let version = self.version(&path, false);
        if !self.has_children(&path) {
            self.tree.remove(&path);
        }
        Op::new("delete", vec![self.path_value(path), version])
    }

    pub(super) fn set_data(&mut self) -> Op {
        let path = self.path();
        let version = self.version(&path, false);
        if let Some(znode) = self.tree.get_mut(&path) {
            znode.version += 1;
        }
        let path = self.path_value(path);
        Op::new("setData", vec![path, self.data(), version])
    }

    pub(super) fn set_acl(&mut self) -> Op {
        if self.random.percent(3) {
            // On a missing znode: 3.8 rejects IPv6 addresses, so zoolet must change nothing either.
            let address = *self.random.of(&["::1", "::1/64", "2001:db8::/32"]);
            return Op::new("setACL", vec![Value::text("~/no/where"), acl(&[(31, "ip", address)]), Value::Int(-1)]);
        }
        let mut path = self.path();
        // The root stays open: a restricted root would make all later requests fail.
        if path == "~" || path == "/" || path.is_empty() || path.starts_with("/zookeeper") {
            path = "~/a".to_owned();
        }
        let version = self.version(&path, true);
        if let Some(znode) = self.tree.get_mut(&path) {
            znode.aversion += 1;
        }
        let path = self.path_value(path);
        Op::new("setACL", vec![path, self.acl(), version])
    }

    pub(super) fn check(&mut self) -> Op {
        let path = self.path();
        let version = self.version(&path, false);
        Op::new("check", vec![self.path_value(path), version])
    }

    pub(super) fn multi(&mut self) -> Op {
        let count = *self.random.of(&[0, 1, 2, 2, 3, 3, 4, 6, 12]);
        let mut subs: Vec<Op> = Vec::new();
        for _ in 0..count {
            subs.push(match self.random.below(16) {
                0..6 => self.create("create"),
                6 | 7 => self.create("create2"),
                8 => self.create("createContainer"),
                9..11 => self.delete(),
                11..14 => self.set_data(),
                _ => self.check(),
            });
        }
        if self.random.percent(40) {
            // A careful multi that can succeed as a whole.
            let name = self.random.of(NAMES).to_string();
            let path = format!("{}/{name}", self.existing());
            self.born(&path, false);
            let flags = *self.random.of(&[0, 0, 1, 2]);
            subs = vec![Op::new("create", vec![Value::text(&path), self.data(), open_acl(), Value::Int(flags)])];
            if flags != 2 {
                subs.push(Op::new("setData", vec![Value::text(&path), self.data(), Value::Int(0)]));
                subs.push(Op::new("check", vec![Value::text(&path), Value::Int(1)]));
            }
            if self.random.percent(50) {
                subs.push(Op::new("create2", vec![Value::text("~/a/t-"), self.data(), open_acl(), Value::Int(2)]));
            }
            if self.random.percent(50) && flags != 2 {
                subs.push(Op::new("delete", vec![Value::text(&path), Value::Int(1)]));
                self.tree.remove(&path);
            }
        }
        if self.kind == Kind::Standalone && self.random.percent(3) {
            let strange = *self.random.of(&["getData", "exists", "setACL", "multi", "ping", "createTTL", "auth"]);
            let at = self.random.below(subs.len() + 1);
            subs.insert(
                at,
                match strange {
                    "multi" => Op::multi("multi", vec![]),
                    "ping" => Op::new(strange, vec![]),
                    "createTTL" => self.create(strange),
                    strange => Op::new(strange, vec![Value::text("~/a"), Value::Byte(0)]),
                },
            );
        }
        // When ZooKeeper fails at such an operation, the changes before it stay pending there, and
        // later requests build on them. So the operation is sent alone.
        if self.kind != Kind::Standalone {
            // ZooKeeper's leader proposes no such multi, and its connection waits for ever.
            subs.retain(|op| !stumbles(op) && op.values.first() != Some(&Value::Bytes(None)));
            // Nor does it look for ephemerals behind flags that it does not know.
            subs.iter_mut().for_each(|op| {
                if let (1 | 15 | 19, Some(Value::Int(flags))) = (op.code, op.values.get_mut(3)) {
                    *flags = if (0..=4).contains(flags) { *flags } else { 0 };
                }
            });
        } else if let Some(at) = subs.iter().position(stumbles) {
            subs = vec![subs.swap_remove(at)];
        }
        Op::multi("multi", subs)
    }

    fn multi_read(&mut self) -> Op {
        let mut subs = Vec::new();
        for _ in 0..self.random.below(6) {
            let path = self.path();
            let name = *self.random.of(&["getData", "getChildren"]);
            subs.push(Op::new(name, vec![self.path_value(path), Value::Byte(u8::from(self.random.percent(20)))]));
        }
        if self.random.percent(8) {
            // Not readable by a multiRead: writes, other reads, and requests of no tree.
            let strange = *self.random.of(&[
                "check",
                "create",
                "create2",
                "delete",
                "setData",
                "exists",
                "getChildren2",
                "getACL",
                "multi",
                "whoAmI",
                "getEphemerals",
            ]);
            let sub = match strange {
                "check" => self.check(),
                "create" | "create2" => self.create(strange),
                "delete" => self.delete(),
                "setData" => self.set_data(),
                "multi" | "whoAmI" => Op::new(strange, vec![]),
                strange => Op::new(strange, vec![Value::text("~/a"), Value::Byte(0)]),
            };
            let at = self.random.below(subs.len() + 1);
            subs.insert(at, sub);
        }
        Op::multi("multiRead", subs)
    }
}

/// Returns whether ZooKeeper fails a whole multi at this operation (surface 2.4).
fn stumbles(op: &Op) -> bool {
    let without_id = |entry: &Vec<Value>| {
        let needs_one =
            |scheme: &Value| [b"digest".as_slice(), b"world", b"ip"].iter().any(|one| *scheme == Value::text(one));
        matches!(&entry[..], [_, scheme, Value::Bytes(None)] if needs_one(scheme))
    };
    let acl = matches!(op.values.get(2), Some(Value::List(entries)) if entries.iter().any(without_id));
    let flags = matches!(op.values.get(3), Some(Value::Int(5 | 6))) && op.code != code("createTTL");
    acl || flags
}

/// Replaces characters that ZooKeeper cannot echo.
///
/// ZooKeeper reads characters beyond U+FFFF but cannot write them, and counts lone surrogates
/// differently than Rust. So none stand in a text that the server echoes.
fn echoed(mut op: Op) -> Op {
    let lists = op.values.iter_mut().flat_map(|value| match value {
        Value::List(elements) => elements.iter_mut().flatten().collect(),
        value => vec![value],
    });
    for value in lists {
        if let Value::Bytes(Some(bytes)) = value {
            let surrogate = |pair: &[u8]| pair[0] == 0xED && pair[1] >= 0xA0;
            let halves: Vec<usize> = (1..bytes.len()).filter(|at| surrogate(&bytes[at - 1..=*at])).collect();
            halves.into_iter().for_each(|at| bytes[at - 1] = b'f');
            bytes.iter_mut().filter(|byte| **byte >= 0xF0).for_each(|byte| *byte = b'f');
        }
    }
    op
}
