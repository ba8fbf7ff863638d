//! Makes a script from a seed.
//!
//! The generator tracks roughly which znodes exist, so that most requests find one. Where the
//! tracking is wrong, the request fails.

mod quota;
mod request;
mod value;

use crate::random::Random;
use crate::script::{Action, Claim, Connect, Op, Script, Step, code};
use crate::value::{Place, Value};
use std::collections::BTreeMap;
use value::open_acl;

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
    let kind = Kind::of(seed);
    let mut generator = Generator {
        random: Random::new(seed),
        seed,
        kind,
        sessions: shape.sessions,
        alive: vec![Life::Never; shape.sessions],
        tree: BTreeMap::from([("~".to_owned(), Znode::default())]),
        script: Script { settings: kind.settings(), ..Script::default() },
        operations: 0,
    };
    generator.begin();
    let outage = shape.operations / 10 * 7;
    while kind == Kind::Ensemble && generator.operations < outage {
        generator.next_step();
    }
    if kind == Kind::Ensemble {
        generator.outage(shape.operations / 10);
    }
    while generator.operations < shape.operations {
        generator.next_step();
    }
    generator.script
}

/// The servers that a script is for, and how their sessions begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A standalone server with global sessions.
    Standalone,
    /// The only server of an ensemble: a standalone ZooKeeper ignores localSessionsEnabled.
    Local,
    /// The same; creating an ephemeral makes a session global.
    Upgrading,
    /// Three servers, whose sessions begin local and become global. Two of them end for a while.
    Ensemble,
}

impl Kind {
    fn of(seed: u64) -> Self {
        match seed % 8 {
            1 | 5 => Self::Upgrading,
            3 => Self::Local,
            7 => Self::Ensemble,
            _ => Self::Standalone,
        }
    }

    fn settings(self) -> Vec<String> {
        let lines: &[&str] = match self {
            Self::Standalone => &[],
            Self::Local => &["servers=1", "localSessionsEnabled=true"],
            Self::Upgrading => &["servers=1", "localSessionsEnabled=true", "localSessionsUpgradingEnabled=true"],
            Self::Ensemble => &[
                "servers=3",
                "localSessionsEnabled=true",
                "localSessionsUpgradingEnabled=true",
                "readonlymode.enabled=true",
            ],
        };
        lines.iter().map(|line| (*line).to_owned()).collect()
    }
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
    kind: Kind,
    sessions: usize,
    alive: Vec<Life>,
    tree: BTreeMap<String, Znode>,
    script: Script,
    operations: usize,
}

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
        self.begin_quota();
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
            0..875 => self.send(session),
            875..925 => self.quota_step(session),
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
        // ZooKeeper decodes writes twice for a local session, the second time from where it failed.
        // An undecodable reconfig stops its leader.
        if self.kind != Kind::Standalone && matches!(op.code, 1 | 14 | 15 | 16) {
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
        let whole = Op { lacks: 0, ..op.clone() }.frame(0, Place { root: "", seen: &[] });
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
        let mut ops: Vec<Op> = (0..count).map(|_| self.write()).collect();
        if matches!(self.kind, Kind::Upgrading | Kind::Ensemble) {
            // With its connection zoolet drops a request that waits until its session is global.
            ops.iter_mut().for_each(make_persistent);
        }
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
            // A follower of ZooKeeper 3.8 that is sent a lone check loses its leader.
            1 if self.kind != Kind::Ensemble => {
                ops = vec![Op::new("check", vec![Value::text(self.path()), Value::Int(-1)])]
            }
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
        // Behind the end of a local session ZooKeeper may or may not serve a request.
        if self.kind == Kind::Standalone && self.random.percent(30) {
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
        if self.kind == Kind::Ensemble && self.random.percent(30) {
            self.elsewhere(session);
            return;
        }
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

    /// The session tries to continue at another server, where a local one has expired.
    fn elsewhere(&mut self, session: usize) {
        let server = self.random.below(3);
        self.push(session, Action::At(server));
        self.push(session, Action::Connect(connect(Claim::Right)));
        self.push(session, Action::Connect(connect(Claim::New)));
        self.alive[session] = Life::Connected;
    }

    /// All sessions meet at a server without peers, which serves readers, until the peers are back.
    fn outage(&mut self, operations: usize) {
        self.push(0, Action::At(0));
        self.push(0, Action::Alone);
        self.reconnect_all(1);
        let end = self.operations + operations;
        while self.operations < end {
            let session = self.random.below(self.sessions);
            self.send(session);
            if self.random.percent(10) {
                self.push(session, Action::Cut(None));
                let zxid = self.random.of(&[Value::Seen(0), Value::Long(0)]).clone();
                self.push(session, Action::Connect(Connect { zxid, read_only: Some(1), ..connect(Claim::Right) }));
            }
        }
        self.push(0, Action::Together);
        self.reconnect_all(0);
    }

    /// Every session continues at the first server, and then a new one takes its place.
    fn reconnect_all(&mut self, read_only: u8) {
        for session in 0..self.sessions {
            self.push(session, Action::At(0));
            for claim in [Claim::Right, Claim::New] {
                self.push(session, Action::Connect(Connect { read_only: Some(read_only), ..connect(claim) }));
            }
            self.alive[session] = Life::Connected;
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
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn connect(claim: Claim) -> Connect {
    Connect { claim, zxid: Value::Long(0), timeout_ms: 300_000, read_only: Some(0) }
}

fn make_persistent(op: &mut Op) {
    if let (1 | 15, Some(Value::Int(flags @ (1 | 3)))) = (op.code, op.values.get_mut(3)) {
        *flags -= 1;
    }
    op.subs.iter_mut().flatten().for_each(make_persistent);
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
    fn seed_determines_the_script_and_its_text_round_trips() {
        for seed in 0..20 {
            let script = generate(seed, SHAPE);
            assert_eq!(script, generate(seed, SHAPE));
            assert_eq!(Script::parse(&script.to_string()).as_ref(), Ok(&script), "seed {seed}");
        }
    }

    #[test]
    fn ten_seeds_send_every_request_type() {
        let ops: Vec<Op> =
            (0..10).flat_map(|seed| generate(seed, SHAPE).steps).flat_map(|step| step.action.ops().to_vec()).collect();
        for (code, name) in crate::script::NAMES {
            assert!(ops.iter().any(|op| op.code == *code), "{name}");
        }
    }

    #[test]
    fn only_an_ensemble_loses_servers_and_each_script_gets_them_back() {
        for seed in 0..16 {
            let script = generate(seed, SHAPE);
            let count = |action: &Action| script.steps.iter().filter(|step| step.action == *action).count();
            let outages = usize::from(script.servers() == Some(3));
            assert_eq!((count(&Action::Alone), count(&Action::Together)), (outages, outages), "seed {seed}");
        }
    }

    #[test]
    fn requests_that_crash_zookeeper_are_never_generated() {
        for seed in 0..50 {
            let script = generate(seed, SHAPE);
            assert!(!script.steps.iter().flat_map(|step| step.action.ops()).any(kills), "seed {seed}");
        }
    }
}
