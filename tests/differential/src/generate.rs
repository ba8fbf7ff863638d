//! Makes a script from a seed.
//!
//! The generator tracks roughly which znodes exist, so that most requests find one. Where the
//! tracking is wrong, the request fails.

use crate::random::Random;
use crate::script::{Action, Claim, Connect, Op, Script, Step, code};
use crate::value::{Place, Value};
use std::collections::BTreeMap;

/// Size of a script.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Requests and handshakes.
    pub operations: usize,
    /// Sessions.
    pub sessions: usize,
}

/// Returns the script of a seed.
pub fn generate(seed: u64, shape: Shape) -> Script {
    let mut generator = Generator {
        random: Random::new(seed),
        seed,
        sessions: shape.sessions,
        alive: vec![Life::Never; shape.sessions],
        tree: BTreeMap::from([("~".to_owned(), Znode::default())]),
        script: Script::default(),
        operations: 0,
    };
    generator.begin();
    while generator.operations < shape.operations {
        generator.next_step();
    }
    generator.script
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Never,
    Connected,
    Away,
}

#[derive(Clone, Default)]
struct Znode {
    version: i32,
    aversion: i32,
    births: u32,
    ephemeral: bool,
}

struct Generator {
    random: Random,
    seed: u64,
    sessions: usize,
    alive: Vec<Life>,
    tree: BTreeMap<String, Znode>,
    script: Script,
    operations: usize,
}

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

const NAMES: &[&str] = &["a", "b", "c", "d", "e", "x", "yy", "a b", "\u{e9}", "..."];
const PREFIXES: &[&str] = &["s-", "q", "lock-", ""];

impl Generator {
    fn begin(&mut self) {
        for session in 0..self.sessions {
            self.push(session, Action::Connect(connect(Claim::New)));
            self.alive[session] = Life::Connected;
        }
        let root = Op::new("create", vec![Value::text("~"), Value::Bytes(None), open_acl(), Value::Int(0)]);
        self.push(0, Action::Send { pieces: 1, ops: vec![root] });
        for name in ["a", "b", "c"] {
            let path = format!("~/{name}");
            let op = Op::new("create", vec![Value::text(&path), Value::text("data"), open_acl(), Value::Int(0)]);
            self.push(0, Action::Send { pieces: 1, ops: vec![op] });
            self.born(&path, false);
        }
    }

    fn push(&mut self, session: usize, action: Action) {
        self.operations += action.ops().len().max(1);
        self.script.steps.push(Step { session, action });
    }

    fn next_step(&mut self) {
        let session = self.random.below(self.sessions);
        match self.alive[session] {
            Life::Connected => self.connected_step(session),
            Life::Away if self.random.percent(30) => self.come_back(session),
            Life::Never | Life::Away => self.next_step(),
        }
    }

    fn connected_step(&mut self, session: usize) {
        match self.random.below(1000) {
            0..925 => self.send(session),
            925..940 => self.cut(session),
            940..952 => self.vanish(session),
            952..966 => self.fatal(session),
            966..978 => self.close(session),
            978..992 => self.move_session(session),
            992..996 => self.steal(session),
            _ => self.stranger(session),
        }
    }

    fn send(&mut self, session: usize) {
        let count = match self.random.below(10) {
            0..4 => 1,
            4..7 => 2 + self.random.below(4),
            7..9 => 4 + self.random.below(12),
            _ => 10 + self.random.below(30),
        };
        let mut ops: Vec<Op> = (0..count).map(|_| self.op(session)).collect();
        if self.random.percent(3) {
            self.damage(&mut ops);
        }
        if self.random.percent(1) {
            let large = self.large();
            ops.push(large);
        }
        let pieces = if self.random.percent(15) { 2 + self.random.below(7) } else { 1 };
        // setACL ends its step: ZooKeeper may judge later requests by the old ACL (surface 13.48).
        for ops in ops.split_inclusive(|op| op.code == code("setACL")) {
            self.push(session, Action::Send { pieces, ops: ops.to_vec() });
        }
    }

    /// Makes a request undecodable in a way that the server survives.
    fn damage(&mut self, ops: &mut [Op]) {
        let Some(at) = (!ops.is_empty()).then(|| self.random.below(ops.len())) else { return };
        let op = &mut ops[at];
        // Auth is answered at once, and its failure ends the connection.
        if matches!(op.code, 100 | 102) || op.code == code("createTTL") {
            return;
        }
        match self.random.below(4) {
            0 => op.lacks = 1 + self.random.below(12),
            1 => op.values.insert(0, Value::Int(-7)),
            2 => {
                if let Some(first) = op.values.first_mut() {
                    *first = Value::Int(*self.random.of(&[-2, -100, i32::MIN, i32::MAX, 2_000_000]));
                }
            }
            _ => op.xid = Some(*self.random.of(&[0, -3, -77, i32::MIN, i32::MAX])),
        }
        // The header stays whole: without it the server would close the connection.
        let whole = Op { lacks: 0, ..op.clone() }.frame(0, Place { root: "", seen: 0 });
        op.lacks = op.lacks.min(whole.len() - 12);
    }

    fn large(&mut self) -> Op {
        let size = *self.random.of(&[1024, 1025, 4096, 65_536, 300_000, 1_000_000, 1_048_400]);
        let path = self.path();
        let data = Value::Bytes(Some(vec![b'x'; size]));
        if self.random.percent(50) {
            Op::new("setData", vec![Value::text(path), data, Value::Int(-1)])
        } else {
            self.born(&path, false);
            Op::new("create2", vec![Value::text(path), data, open_acl(), Value::Int(0)])
        }
    }

    fn cut(&mut self, session: usize) {
        let partial = self.random.percent(60).then(|| {
            let op = self.multi();
            let bytes = self.random.below(120);
            (op, bytes)
        });
        self.push(session, Action::Cut(partial));
        self.alive[session] = Life::Away;
    }

    fn vanish(&mut self, session: usize) {
        let count = 1 + self.random.below(8);
        let ops = (0..count).map(|_| self.write()).collect();
        self.push(session, Action::Vanish(ops));
        self.alive[session] = Life::Away;
    }

    fn write(&mut self) -> Op {
        match self.random.below(5) {
            0 => self.multi(),
            1 => self.delete(),
            2 => self.set_data(),
            _ => self.create("create"),
        }
    }

    fn fatal(&mut self, session: usize) {
        let mut ops: Vec<Op> = Vec::new();
        if self.random.percent(40) {
            let more = self.random.below(5);
            ops.extend((0..more).map(|_| self.write()));
        }
        match self.random.below(8) {
            // Sent alone: ZooKeeper refuses it at once, and earlier requests may lose their
            // replies.
            0 => {
                let code = *self.random.of(&[99, -1, 0, 10, 23, 108, 1000, i32::MAX, -12]);
                ops = vec![Op { code, ..Op::new("ping", vec![]) }];
            }
            1 => ops = vec![Op::new("check", vec![Value::text(self.path()), Value::Int(-1)])],
            2 => ops = vec![Op::new("deleteContainer", vec![Value::text(self.path())])],
            3 => ops = vec![Op::new("createSession", vec![Value::Int(30_000)])],
            4 | 5 => {
                let scheme = *self.random.of(&["world", "nobody", "auth", "super", "sasl", "x509", "Digest", ""]);
                ops = vec![Op::new("auth", vec![Value::Int(0), Value::text(scheme), Value::text("u:p")])];
            }
            6 => ops = vec![Op { lacks: 1 + self.random.below(8), ..Op::new("ping", vec![]) }],
            _ => {
                let payload = Value::Bytes(Some(vec![b'z'; 1_048_600]));
                ops = vec![Op::new("setData", vec![Value::text("~/a"), payload, Value::Int(-1)])];
            }
        }
        self.push(session, Action::Fatal(ops));
        self.alive[session] = Life::Away;
    }

    fn close(&mut self, session: usize) {
        let mut ops: Vec<Op> = Vec::new();
        if self.random.percent(40) {
            ops.push(self.create("create"));
        }
        ops.push(Op::new("closeSession", vec![]));
        if self.random.percent(30) {
            ops.push(self.write());
        }
        self.push(session, Action::Fatal(ops));
        self.alive[session] = Life::Away;
        // Sometimes a client tries to resume the ended session.
        if self.random.percent(30) {
            self.push(session, Action::Connect(connect(Claim::Right)));
        }
        let claim = *self.random.of(&[Claim::New, Claim::New, Claim::NewNull]);
        self.push(session, Action::Connect(connect(claim)));
        self.alive[session] = Life::Connected;
    }

    fn come_back(&mut self, session: usize) {
        if self.random.percent(15) {
            let claim = *self.random.of(&[Claim::Wrong, Claim::Derived, Claim::Unknown]);
            self.push(session, Action::Connect(connect(claim)));
        }
        if self.random.percent(5) {
            let future = Connect { zxid: Value::Long(i64::MAX), ..connect(Claim::Right) };
            self.push(session, Action::Connect(future));
        }
        let mut right = connect(if self.random.percent(10) { Claim::New } else { Claim::Right });
        right.zxid = self.random.of(&[Value::Seen(0), Value::Seen(0), Value::Long(0), Value::Long(-1)]).clone();
        right.timeout_ms = *self.random.of(&[300_000, 250_000, 0, -1, 200_001, i32::MAX, i32::MIN]);
        right.read_only = *self.random.of(&[Some(0), Some(0), Some(1), Some(7), None]);
        self.push(session, Action::Connect(right));
        self.alive[session] = Life::Connected;
        if self.random.percent(70) {
            let name = if self.random.percent(60) { "setWatches" } else { "setWatches2" };
            let watches = self.set_watches(name, session);
            self.push(session, Action::Send { pieces: 1, ops: vec![watches] });
        }
    }

    /// A second connection takes the session over while the first is still open.
    fn move_session(&mut self, session: usize) {
        let zxid = self.random.of(&[Value::Seen(0), Value::Long(0)]).clone();
        self.push(session, Action::Connect(Connect { zxid, ..connect(Claim::Right) }));
        if self.random.percent(70) {
            let watches = self.set_watches("setWatches2", session);
            self.push(session, Action::Send { pieces: 1, ops: vec![watches] });
        }
    }

    /// A connection claims the session with a wrong password while the first is still open.
    fn steal(&mut self, session: usize) {
        let claim = *self.random.of(&[Claim::Wrong, Claim::Derived]);
        self.push(session, Action::Connect(connect(claim)));
        self.alive[session] = Life::Away;
    }

    fn stranger(&mut self, session: usize) {
        let frames: &[&[u8]] = &[
            &[0, 0, 0, 0],
            &[0xff, 0xff, 0xff, 0xff],
            &[0x80, 0, 0, 0],
            &[0, 0x10, 0, 0],
            &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3],
            &[0, 0, 0, 4, 0, 0, 0, 0],
            &[0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 11],
            b"GET / HTTP/1.1\r\n\r\n",
            &[0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x75, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
        ];
        let bytes = self.random.of(frames).to_vec();
        self.push(session, Action::Stranger(bytes));
    }

    fn op(&mut self, session: usize) -> Op {
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
            "sync" => {
                let path = self.path();
                echoed(Op::new(name, vec![self.path_value(path)]))
            }
            "getEphemerals" => {
                let prefix = self.random.of(&["~", "~/", "~/a", "/", "", " ", "~/a/", "nothing"]).to_string();
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
                Op::new(name, vec![self.path_value(path), Value::Int(kind)])
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
                let user = *self.random.of(&["u1:p1", "u2:p2", "u1:p1", "u3", "u1:wrong:more", ""]);
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

    fn set_watches(&mut self, name: &str, session: usize) -> Op {
        let zxid =
            self.random.of(&[Value::Seen(0), Value::Seen(0), Value::Seen(-8), Value::Long(0), Value::Long(i64::MAX)]);
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

    fn create(&mut self, name: &str) -> Op {
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
        let mut values = vec![self.path_value(path), self.data(), self.acl(), Value::Int(flags)];
        if name == "createTTL" {
            // Always with TTL flags: without them the request stops Apache ZooKeeper for good
            // (surface 13.6).
            values.push(Value::Long(*self.random.of(&[1, 1000, 0, 1 << 40, i64::MAX])));
        }
        Op::new(name, values)
    }

    fn delete(&mut self) -> Op {
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

    fn set_data(&mut self) -> Op {
        let path = self.path();
        let version = self.version(&path, false);
        if let Some(znode) = self.tree.get_mut(&path) {
            znode.version += 1;
        }
        let path = self.path_value(path);
        Op::new("setData", vec![path, self.data(), version])
    }

    fn set_acl(&mut self) -> Op {
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

    fn check(&mut self) -> Op {
        let path = self.path();
        let version = self.version(&path, false);
        Op::new("check", vec![self.path_value(path), version])
    }

    fn multi(&mut self) -> Op {
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
        if self.random.percent(3) {
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
        if let Some(at) = subs.iter().position(stumbles) {
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
        if self.random.percent(5) {
            subs.push(self.check());
        }
        Op::multi("multiRead", subs)
    }

    /// Returns a path that mostly exists, sometimes could exist and is rarely invalid.
    fn path(&mut self) -> String {
        match self.random.below(100) {
            0..72 => self.existing(),
            72..92 => format!("{}/{}", self.existing(), self.random.of(NAMES)),
            92..97 => self.random.of(ODD_PATHS).to_string(),
            _ => {
                let existing = self.existing();
                format!("{existing}{}", self.random.of(ODD_ENDS))
            }
        }
    }

    /// Returns the path as bytes, sometimes with invalid UTF-8.
    fn path_value(&mut self, path: String) -> Value {
        if !self.random.percent(1) {
            return Value::text(path);
        }
        let bad = self.random.of::<&[u8]>(&[
            b"/\xff",
            b"/\xc0\x80",
            b"/\xe2\x82",
            b"/\xed\xa0\x80",
            b"/\xed\xa0\xbd\xed\xb8\x80",
            b"/\xf0\x9f\x98\x80",
            b"/\xf0\x9f\x98",
            b"/\xf8\x88\x80\x80\x80",
            b"/\xe2\x28\xa1",
            b"/a\0b",
        ]);
        if self.random.percent(30) { Value::Bytes(None) } else { Value::text([path.as_bytes(), bad].concat()) }
    }

    fn existing(&mut self) -> String {
        let at = self.random.below(self.tree.len());
        self.tree.keys().nth(at).cloned().unwrap_or_default()
    }

    fn has_children(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.tree.range(below.clone()..).next().is_some_and(|(other, _)| other.starts_with(&below))
    }

    fn born(&mut self, path: &str, ephemeral: bool) {
        let parent = self.tree.get_mut(parent_of(path));
        if let Some(parent) = parent.filter(|parent| !parent.ephemeral)
            && self.script.steps.len() > self.sessions
        {
            parent.births += 1;
            self.tree.entry(path.to_owned()).or_insert(Znode { ephemeral, ..Znode::default() });
        }
        // A small set, so that the same paths recur.
        while self.tree.len() > 60 {
            let at = 1 + self.random.below(self.tree.len() - 1);
            let Some(path) = self.tree.keys().nth(at).cloned() else { return };
            self.tree.remove(&path);
        }
    }

    fn version(&mut self, path: &str, of_acl: bool) -> Value {
        let znode = self.tree.get(path).cloned().unwrap_or_default();
        let right = if of_acl { znode.aversion } else { znode.version };
        Value::Int(match self.random.below(10) {
            0..5 => -1,
            5..8 => right,
            8 => self.random.below(4) as i32,
            _ => *self.random.of(&[-2, i32::MIN, i32::MAX, right + 1]),
        })
    }

    fn data(&mut self) -> Value {
        match self.random.below(20) {
            0..3 => Value::Bytes(None),
            3..5 => Value::text(""),
            5..18 => Value::text(format!("v{}", self.random.below(1000))),
            18 => Value::Bytes(Some(vec![0xff, 0, 0xfe])),
            _ => Value::Bytes(Some(vec![b'd'; *self.random.of(&[100, 1023, 1024, 1025, 5000])])),
        }
    }

    fn acl(&mut self) -> Value {
        if self.random.percent(80) {
            return open_acl();
        }
        match self.random.below(24) {
            0 => Value::Int(-1),
            1 => Value::List(vec![]),
            2 => Value::Int(-5),
            3 => acl(&[(31, "world", "somebody")]),
            4 => acl(&[(31, "nobody", "x")]),
            5 => acl(&[(31, "digest", "nocolon")]),
            6 => acl(&[(31, "digest", "a:b:c")]),
            7 => acl(&[(31, "ip", *self.random.of(&["300.1.1.1", "127.0.0.1/33", "localhost", "1.2.3", ""]))]),
            8 => Value::List(vec![vec![Value::Int(31), Value::Bytes(None), Value::text("anyone")]]),
            9 => Value::List(vec![vec![
                Value::Int(31),
                Value::text(*self.random.of(&["digest", "auth", "world", "ip"])),
                Value::Bytes(None),
            ]]),
            10 => acl(&[(31, *self.random.of(&["sasl", "x509", "super", "World", ""]), "x")]),
            11 => acl(&[(*self.random.of(&[0, 64, -1, 1 << 30]), "world", "anyone")]),
            12 => acl(&[(31, "world", "anyone"), (31, "world", "anyone"), (1, "world", "anyone")]),
            13..16 => acl(&[(31, "auth", *self.random.of(&["", "x"]))]),
            16..18 => acl(&[(31, "digest", "u1:fpT/y03U+EjItKZOSLGvjnJlyng="), (1, "world", "anyone")]),
            18 => acl(&[(31, "digest", "u2:o9NxcCGDPOlcV7JVhmKHOf5ctVE=")]),
            19 => acl(&[(31, "ip", *self.random.of(&["127.0.0.1", "127.0.0.0/8", "10.0.0.0/8", "127.0.0.1/32"]))]),
            20..22 => acl(&[(*self.random.of(&[1, 2, 4, 8, 16, 5, 30, 15]), "world", "anyone")]),
            _ => acl(&[(1, "digest", "u1:fpT/y03U+EjItKZOSLGvjnJlyng="), (31, "auth", ""), (16, "world", "anyone")]),
        }
    }
}

/// Paths for every rule of surface 7.4, and paths that servers reserve.
const ODD_PATHS: &[&str] = &[
    "",
    "/",
    "//",
    "~",
    "~/",
    "relative",
    "rel/ative",
    "/zookeeper",
    "/zookeeper/config",
    "/zookeeper/quota",
    "/zookeeper/config/x",
    "/zookeeper/nothing/x",
    ".",
    "/.",
];

const ODD_ENDS: &[&str] = &[
    "/",
    "//x",
    "/.",
    "/..",
    "/./x",
    "/../x",
    "/...",
    "/a.",
    "/ ",
    "/\u{1}",
    "/\u{1f}",
    "/\u{7f}",
    "/\u{80}",
    "/\u{9f}",
    "/\u{a0}",
    "/\u{d7ff}",
    "/\u{e000}",
    "/\u{f8ff}",
    "/\u{f900}",
    "/\u{ffef}",
    "/\u{fff0}",
    "/\u{fffd}",
    "/\u{1f600}",
    "/\0",
    "/x\0y",
    "/\u{65e5}\u{672c}",
    "/nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
    "/1/2/3/4/5/6/7/8/9",
];

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

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn connect(claim: Claim) -> Connect {
    Connect { claim, zxid: Value::Long(0), timeout_ms: 300_000, read_only: Some(0) }
}

fn acl(entries: &[(i32, &str, &str)]) -> Value {
    Value::List(
        entries
            .iter()
            .map(|(perms, scheme, id)| vec![Value::Int(*perms), Value::text(scheme), Value::text(id)])
            .collect(),
    )
}

fn open_acl() -> Value {
    acl(&[(31, "world", "anyone")])
}

/// Returns whether this request stops Apache ZooKeeper for good (surface 13.6).
pub fn kills(op: &Op) -> bool {
    let ttl_without_its_flags = op.code == code("createTTL") && !matches!(op.values.get(3), Some(Value::Int(5 | 6)));
    ttl_without_its_flags || op.subs.iter().flatten().any(kills)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { operations: 2000, sessions: 4 };

    #[test]
    fn a_seed_gives_one_script_and_its_text_gives_it_back() {
        for seed in 0..20 {
            let script = generate(seed, SHAPE);
            assert_eq!(script, generate(seed, SHAPE));
            assert_eq!(Script::parse(&script.to_string()).as_ref(), Ok(&script), "seed {seed}");
        }
    }

    #[test]
    fn a_few_seeds_send_every_request_there_is() {
        let ops: Vec<Op> =
            (0..10).flat_map(|seed| generate(seed, SHAPE).steps).flat_map(|step| step.action.ops().to_vec()).collect();
        for (code, name) in crate::script::NAMES {
            assert!(ops.iter().any(|op| op.code == *code), "{name}");
        }
    }

    #[test]
    fn what_stops_apache_zookeeper_is_never_sent() {
        for seed in 0..50 {
            let script = generate(seed, SHAPE);
            assert!(!script.steps.iter().flat_map(|step| step.action.ops()).any(kills), "seed {seed}");
        }
    }
}
