//! A script that is played to both servers: plain data that can be printed and parsed back.

use crate::value::{Place, Value, joined, parse_values};
use std::fmt;

/// Steps in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// Lines of `zoo.cfg` for both sides, and `servers=N` for an ensemble of N servers.
    pub settings: Vec<String>,
    /// The steps, played one after the other.
    pub steps: Vec<Step>,
}

/// One action of one session.
///
/// The next step begins once the replies, and the events on other connections, have arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Index of the session. Over time it may stand for several sessions of the server.
    pub session: usize,
    /// The action.
    pub action: Action,
}

/// An action of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Opens a connection and shakes hands.
    Connect(Connect),
    /// Pipelines requests in a number of writes, and waits for every reply.
    Send {
        /// Number of writes that the bytes are split into.
        pieces: usize,
        /// The requests, in order.
        ops: Vec<Op>,
    },
    /// Sends requests, the last of which should end the connection, and waits for that end.
    ///
    /// If the server does not end the connection, the client does.
    Fatal(Vec<Op>),
    /// Sends requests and closes without waiting for a reply.
    Vanish(Vec<Op>),
    /// Closes the connection, optionally after this many bytes of a request's frame.
    Cut(Option<(Op, usize)>),
    /// Sends bytes that are no handshake on a separate connection.
    Stranger(Vec<u8>),
    /// Stays silent for this time in ms until the session expires; then waits for the end of its
    /// connection.
    Wait(u64),
    /// The next connections of the session are to this server of the ensemble.
    At(usize),
    /// Ends all servers but that of the session, and waits until that server is read-only.
    Alone,
    /// Starts the ended servers, and waits until all serve.
    Together,
}

/// A handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The session that the client claims.
    pub claim: Claim,
    /// `lastZxidSeen`.
    pub zxid: Value,
    /// The requested timeout, in ms.
    pub timeout_ms: i32,
    /// The trailing readOnly byte; clients before 3.4 send none.
    pub read_only: Option<u8>,
}

/// The session id and password of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// A new session, with 16 zero bytes.
    New,
    /// A new session, without a password.
    NewNull,
    /// The current session, with its password.
    Right,
    /// The current session, with another password.
    Wrong,
    /// The current session, with the password that Apache ZooKeeper derives from the id.
    Derived,
    /// An unknown id.
    Unknown,
}

const CLAIMS: [(Claim, &str); 6] = [
    (Claim::New, "new"),
    (Claim::NewNull, "new-null"),
    (Claim::Right, "right"),
    (Claim::Wrong, "wrong"),
    (Claim::Derived, "derived"),
    (Claim::Unknown, "unknown"),
];

/// One request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// Its opcode.
    pub code: i32,
    /// Its xid; `None` takes the next one.
    pub xid: Option<i32>,
    /// Its body, or values before the operations of a multi (none, if it is well formed).
    pub values: Vec<Value>,
    /// The operations of a multi or multiRead, which are encoded with their terminator.
    pub subs: Option<Vec<Op>>,
    /// Number of bytes cut off its end.
    pub lacks: usize,
}

/// Begins the setting that asks for an ensemble.
const SERVERS: &str = "servers=";

/// Requests with a name. Others are written `op99`.
pub const NAMES: &[(i32, &str)] = &[
    (1, "create"),
    (2, "delete"),
    (3, "exists"),
    (4, "getData"),
    (5, "setData"),
    (6, "getACL"),
    (7, "setACL"),
    (8, "getChildren"),
    (9, "sync"),
    (11, "ping"),
    (12, "getChildren2"),
    (13, "check"),
    (14, "multi"),
    (15, "create2"),
    (16, "reconfig"),
    (17, "checkWatches"),
    (18, "removeWatches"),
    (19, "createContainer"),
    (20, "deleteContainer"),
    (21, "createTTL"),
    (22, "multiRead"),
    (100, "auth"),
    (101, "setWatches"),
    (102, "sasl"),
    (103, "getEphemerals"),
    (104, "getAllChildrenNumber"),
    (105, "setWatches2"),
    (106, "addWatch"),
    (107, "whoAmI"),
    (-10, "createSession"),
    (-11, "closeSession"),
];

/// Returns the opcode of a named request.
///
/// # Panics
/// When no request has this name.
pub fn code(name: &str) -> i32 {
    code_of(name).unwrap_or_else(|| panic!("no request is called {name}"))
}

fn code_of(name: &str) -> Option<i32> {
    let known = NAMES.iter().find(|(_, known)| *known == name).map(|(code, _)| *code);
    known.or_else(|| name.strip_prefix("op")?.parse().ok())
}

/// Returns the name of a request, or `op` and its opcode.
pub fn name(code: i32) -> String {
    NAMES.iter().find(|(known, _)| *known == code).map_or_else(|| format!("op{code}"), |(_, name)| (*name).to_owned())
}

impl Op {
    /// A well-formed request with this body.
    pub fn new(name: &str, values: Vec<Value>) -> Self {
        Self { code: code(name), xid: None, values, subs: None, lacks: 0 }
    }

    /// A multi or multiRead.
    pub fn multi(name: &str, subs: Vec<Op>) -> Self {
        Self { subs: Some(subs), ..Self::new(name, Vec::new()) }
    }

    /// Returns the frame, including its length.
    pub fn frame(&self, xid: i32, place: Place<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(xid.to_be_bytes());
        body.extend(self.code.to_be_bytes());
        self.body(place, &mut body);
        body.truncate(body.len().saturating_sub(self.lacks));
        [&(body.len() as i32).to_be_bytes()[..], &body].concat()
    }

    fn body(&self, place: Place<'_>, out: &mut Vec<u8>) {
        self.values.iter().for_each(|value| value.encode(place, out));
        let Some(subs) = &self.subs else { return };
        for sub in subs {
            multi_header(sub.code, false, out);
            sub.body(place, out);
        }
        multi_header(-1, true, out);
    }

    /// Returns whether other sessions may see an effect of this request.
    pub fn is_write(&self) -> bool {
        matches!(self.code, 1 | 2 | 5 | 7 | 14 | 15 | 16 | 19 | 20 | 21 | -10 | -11)
    }
}

fn multi_header(code: i32, done: bool, out: &mut Vec<u8>) {
    out.extend(code.to_be_bytes());
    out.push(u8::from(done));
    out.extend((-1_i32).to_be_bytes());
}

impl Action {
    /// Returns the requests of this step.
    pub fn ops(&self) -> &[Op] {
        match self {
            Self::Send { ops, .. } | Self::Fatal(ops) | Self::Vanish(ops) => ops,
            Self::Connect(_) | Self::Cut(_) | Self::Stranger(_) | Self::Wait(_) => &[],
            Self::At(_) | Self::Alone | Self::Together => &[],
        }
    }

    /// Returns the requests of this step; `None` if its action has none.
    pub fn ops_mut(&mut self) -> Option<&mut Vec<Op>> {
        match self {
            Self::Send { ops, .. } | Self::Fatal(ops) | Self::Vanish(ops) => Some(ops),
            Self::Connect(_) | Self::Cut(_) | Self::Stranger(_) | Self::Wait(_) => None,
            Self::At(_) | Self::Alone | Self::Together => None,
        }
    }
}

impl Script {
    /// Counts the requests and handshakes.
    pub fn operations(&self) -> usize {
        self.steps.iter().map(|step| step.action.ops().len().max(1)).sum()
    }

    /// Returns the number of servers of an ensemble; `None` for a standalone server.
    pub fn servers(&self) -> Option<usize> {
        self.settings.iter().find_map(|line| line.strip_prefix(SERVERS)?.parse().ok())
    }

    /// Returns the lines of `zoo.cfg`.
    pub fn zoo_cfg(&self) -> Vec<&str> {
        self.settings.iter().map(String::as_str).filter(|line| !line.starts_with(SERVERS)).collect()
    }

    /// Counts the sessions it needs.
    pub fn sessions(&self) -> usize {
        self.steps.iter().map(|step| step.session + 1).max().unwrap_or(0)
    }

    /// Parses the output of `Display`. Lines that begin with `#` are comments, except `#!` and a
    /// setting.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut script = Self::default();
        for (number, line) in text.lines().enumerate() {
            script.line(line).map_err(|error| format!("line {}: {error}", number + 1))?;
        }
        Ok(script)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let trimmed = line.trim_start();
        if let Some(setting) = line.strip_prefix("#! ") {
            self.settings.push(setting.to_owned());
            return Ok(());
        }
        if trimmed.is_empty() || trimmed.starts_with('#') {
            return Ok(());
        }
        if let Some(sub) = trimmed.strip_prefix("| ") {
            let subs = self.last_ops()?.last_mut().and_then(|op| op.subs.as_mut()).ok_or("no multi before it")?;
            subs.push(parse_op(sub)?);
        } else if trimmed.len() < line.len() {
            let op = parse_op(trimmed)?;
            self.last_ops()?.push(op);
        } else {
            self.steps.push(parse_step(line)?);
        }
        Ok(())
    }

    fn last_ops(&mut self) -> Result<&mut Vec<Op>, String> {
        let step = self.steps.last_mut().ok_or("no step before it")?;
        step.action.ops_mut().ok_or_else(|| "the step before it has no requests".to_owned())
    }
}

fn parse_step(line: &str) -> Result<Step, String> {
    let mut words = line.splitn(3, ' ');
    let session = words.next().and_then(|word| word.strip_prefix('s')).and_then(|number| number.parse().ok());
    let session = session.ok_or("a step begins with its session, as in s0")?;
    let verb = words.next().unwrap_or_default();
    let rest = words.next().unwrap_or_default();
    let action = match verb {
        "connect" => Action::Connect(parse_connect(rest)?),
        "send" => Action::Send { pieces: if rest.is_empty() { 1 } else { number(rest)? }, ops: Vec::new() },
        "fatal" => Action::Fatal(Vec::new()),
        "vanish" => Action::Vanish(Vec::new()),
        "cut" if rest.is_empty() => Action::Cut(None),
        "cut" => {
            let (bytes, op) = rest.split_once(" of ").ok_or("cut N of REQUEST")?;
            let (op, subs) = op.split_once(" | ").map_or((op, None), |(op, subs)| (op, Some(subs)));
            let mut op = parse_op(op)?;
            for sub in subs.iter().flat_map(|subs| subs.split(" | ")) {
                op.subs.get_or_insert_default().push(parse_op(sub)?);
            }
            Action::Cut(Some((op, number(bytes)?)))
        }
        "stranger" => match parse_values(rest)?.as_slice() {
            [Value::Bytes(Some(bytes))] => Action::Stranger(bytes.clone()),
            _ => return Err("stranger \"BYTES\"".to_owned()),
        },
        "wait" => Action::Wait(rest.parse().map_err(|_| format!("not a number: {rest}"))?),
        "at" => Action::At(number(rest)?),
        "alone" => Action::Alone,
        "together" => Action::Together,
        _ => return Err(format!("nothing is called {verb}")),
    };
    Ok(Step { session, action })
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

fn parse_connect(text: &str) -> Result<Connect, String> {
    let (claim, values) = text.split_once(' ').ok_or("connect CLAIM ZXID TIMEOUT READONLY")?;
    let claim = CLAIMS.iter().find(|(_, name)| *name == claim).ok_or_else(|| format!("no claim is called {claim}"))?.0;
    let (zxid, timeout_ms, read_only) = match parse_values(values)?.as_slice() {
        [zxid, Value::Int(timeout)] => (zxid.clone(), *timeout, None),
        [zxid, Value::Int(timeout), Value::Byte(byte)] => (zxid.clone(), *timeout, Some(*byte)),
        _ => return Err("connect CLAIM ZXID TIMEOUT READONLY".to_owned()),
    };
    Ok(Connect { claim, zxid, timeout_ms, read_only })
}

fn parse_op(text: &str) -> Result<Op, String> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let code = code_of(name).ok_or_else(|| format!("no request is called {name}"))?;
    let mut op = Op { code, xid: None, values: Vec::new(), subs: None, lacks: 0 };
    let mut rest = rest;
    while let Some((key, after)) = rest.split_once('=').filter(|(key, _)| ["xid", "lacks", "subs"].contains(key)) {
        let (value, after) = after.split_once(' ').unwrap_or((after, ""));
        match key {
            "xid" => op.xid = Some(value.parse().map_err(|_| format!("not an xid: {value}"))?),
            "lacks" => op.lacks = number(value)?,
            _ => op.subs = Some(Vec::new()),
        }
        rest = after;
    }
    op.values = parse_values(rest)?;
    Ok(op)
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.iter().try_for_each(|setting| writeln!(f, "#! {setting}"))?;
        self.steps.iter().try_for_each(|step| step.fmt(f))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{} ", self.session)?;
        match &self.action {
            Action::Connect(connect) => writeln!(f, "connect {connect}")?,
            Action::Send { pieces: 1, .. } => writeln!(f, "send")?,
            Action::Send { pieces, .. } => writeln!(f, "send {pieces}")?,
            Action::Fatal(_) => writeln!(f, "fatal")?,
            Action::Vanish(_) => writeln!(f, "vanish")?,
            Action::Cut(None) => writeln!(f, "cut")?,
            Action::Cut(Some((op, bytes))) => {
                write!(f, "cut {bytes} of {op}")?;
                op.subs.iter().flatten().try_for_each(|sub| write!(f, " | {sub}"))?;
                writeln!(f)?;
            }
            Action::Wait(ms) => writeln!(f, "wait {ms}")?,
            Action::At(server) => writeln!(f, "at {server}")?,
            Action::Alone => writeln!(f, "alone")?,
            Action::Together => writeln!(f, "together")?,
            Action::Stranger(bytes) => writeln!(f, "stranger {}", Value::Bytes(Some(bytes.clone())))?,
        }
        for op in self.action.ops() {
            writeln!(f, "  {op}")?;
            op.subs.iter().flatten().try_for_each(|sub| writeln!(f, "  | {sub}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = CLAIMS.iter().find(|(claim, _)| *claim == self.claim).map_or("", |(_, name)| name);
        write!(f, "{claim} {} {}", self.zxid, self.timeout_ms)?;
        self.read_only.map_or(Ok(()), |byte| write!(f, " {byte}b"))
    }
}

/// Omits the operations of a multi, which stand on separate lines.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self.code))?;
        if let Some(xid) = self.xid {
            write!(f, " xid={xid}")?;
        }
        if self.lacks > 0 {
            write!(f, " lacks={}", self.lacks)?;
        }
        if self.subs.is_some() {
            write!(f, " subs=")?;
        }
        if self.values.is_empty() { Ok(()) } else { write!(f, " {}", joined(&self.values)) }
    }
}
