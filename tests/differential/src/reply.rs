//! Decodes server frames as far as the comparison needs, and marks values that may differ by name.

use crate::script::name;
use crate::value::quoted;
use std::fmt;

/// One thing that happened on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Index of the answered request in its step; `None` for requests of the player.
    pub op: Option<usize>,
    /// What happened.
    pub what: What,
}

/// Kinds of things that happen on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The answer to a handshake.
    Connected(Vec<Atom>),
    /// The reply to a request.
    Reply(Reply),
    /// A watch event.
    Event {
        /// The zxid in the header.
        zxid: i64,
        /// Type of the event, 1 to 4.
        kind: i32,
        /// State of the connection, always 3.
        state: i32,
        /// The path it is about.
        path: String,
    },
    /// The server closed the connection.
    Closed,
    /// Nothing came while the player waited.
    Silence,
    /// There was no connection to act on.
    NotConnected,
    /// Whether the requests of a vanished connection took effect.
    TookEffect(bool),
    /// A frame of none of these kinds.
    Unknown(String),
}

/// The reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The opcode of the request.
    pub code: i32,
    /// The xid, which the server echoes except for pings.
    pub xid: i32,
    /// The zxid in the header.
    pub zxid: i64,
    /// The error in the header.
    pub error: i32,
    /// The body: one part, or one part per operation of a multi.
    pub parts: Vec<Vec<Atom>>,
}

/// A piece of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Atom {
    /// Must be equal on both sides.
    Text(String),
    /// A zxid.
    Zxid(i64),
    /// A wall clock time in ms, and the zxid of the change it belongs to.
    Time(i64, i64),
    /// A session id.
    Session(i64),
    /// Whether a password is 16 bytes that are not all zero.
    Password(bool),
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Zxid(zxid) => write!(f, "zxid:{zxid:#x}"),
            Self::Time(time, _) => write!(f, "time:{time}"),
            Self::Session(id) => write!(f, "session:{id:#x}"),
            Self::Password(true) => f.write_str("password"),
            Self::Password(false) => f.write_str("zeros"),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Connected(atoms) => write!(f, "connected {}", spaced(atoms)),
            What::Reply(reply) => {
                write!(f, "{} xid {} zxid {:#x} ", name(reply.code), reply.xid, reply.zxid)?;
                if reply.error == 0 {
                    write!(f, "ok")?
                } else {
                    write!(f, "error {}", reply.error)?
                }
                reply.parts.iter().try_for_each(|part| write!(f, " ({})", spaced(part)))
            }
            What::Event { zxid, kind, state, path } => write!(f, "event {kind} state {state} {path} zxid {zxid:#x}"),
            What::Closed => f.write_str("closed by the server"),
            What::Silence => f.write_str("silence"),
            What::NotConnected => f.write_str("not connected"),
            What::TookEffect(true) => f.write_str("took effect"),
            What::TookEffect(false) => f.write_str("took no effect"),
            What::Unknown(text) => write!(f, "not understood: {text}"),
        }
    }
}

fn spaced(atoms: &[Atom]) -> String {
    atoms.iter().map(Atom::to_string).collect::<Vec<_>>().join(" ")
}

/// A reply header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Echoed; -1 for an event, -2 for a ping.
    pub xid: i32,
    /// See surface 1.7.
    pub zxid: i64,
    /// 0 or an error code.
    pub error: i32,
}

/// Splits a frame into its header and the rest.
pub fn header(frame: &[u8]) -> Option<(Header, &[u8])> {
    let mut reader = Reader(frame);
    let header = Header { xid: reader.int()?, zxid: reader.long()?, error: reader.int()? };
    Some((header, reader.0))
}

/// Decodes the body of an event.
pub fn event(header: Header, body: &[u8]) -> Option<What> {
    let mut reader = Reader(body);
    let (kind, state, path) = (reader.int()?, reader.int()?, reader.text()?);
    (reader.0.is_empty() && header.error == 0).then_some(What::Event { zxid: header.zxid, kind, state, path })
}

/// Decodes a handshake's answer: session id, password and comparable form.
pub fn connected(frame: &[u8]) -> Option<(i64, Vec<u8>, What)> {
    let mut reader = Reader(frame);
    let (version, timeout, id) = (reader.int()?, reader.int()?, reader.long()?);
    let password = reader.bytes()??.to_vec();
    let sound = password.len() == 16 && password.iter().any(|byte| *byte != 0);
    let mut atoms = vec![Atom::Text(format!("version {version} timeout {timeout}")), Atom::Session(id)];
    atoms.push(Atom::Password(sound));
    atoms.push(Atom::Text(format!("then {}", hexadecimal(reader.0))));
    Some((id, password, What::Connected(atoms)))
}

/// Returns the comparable form of a reply's body.
pub fn parts(code: i32, error: i32, body: &[u8]) -> Vec<Vec<Atom>> {
    if body.is_empty() {
        return Vec::new();
    }
    let mut reader = Reader(body);
    // An operation that is no read ends a multiRead: an error and the results so far follow.
    let decoded = if error == 0 || (code, error) == (22, -5) { reader.reply(code) } else { None };
    match decoded {
        Some(parts) if reader.0.is_empty() => parts,
        _ => vec![vec![Atom::Text(format!("undecoded {}", hexadecimal(body)))]],
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().take(200).map(|byte| format!("{byte:02x}")).collect()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// `Some(None)` is null.
    fn bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.int()? {
            -1 => Some(None),
            length => Some(Some(self.take(usize::try_from(length).ok()?)?)),
        }
    }

    fn text(&mut self) -> Option<String> {
        Some(self.bytes()?.map_or_else(|| "null".to_owned(), shortened))
    }

    /// Sorts children, ephemerals and identities: ZooKeeper sends them in the order of a hash
    /// table.
    fn sorted(&mut self, mut element: impl FnMut(&mut Self) -> Option<String>) -> Option<Vec<Atom>> {
        let count = self.int()?;
        let mut texts = (0..count).map(|_| element(self)).collect::<Option<Vec<_>>>()?;
        texts.sort();
        texts.insert(0, format!("{count}:"));
        Some(texts.into_iter().map(Atom::Text).collect())
    }

    fn stat(&mut self) -> Option<Vec<Atom>> {
        let (czxid, mzxid, ctime, mtime) = (self.long()?, self.long()?, self.long()?, self.long()?);
        let versions = format!("version {} cversion {} aversion {}", self.int()?, self.int()?, self.int()?);
        let owner = self.long()?;
        let sizes = format!("dataLength {} numChildren {}", self.int()?, self.int()?);
        let pzxid = self.long()?;
        let changed = [Atom::Zxid(czxid), Atom::Zxid(mzxid), Atom::Time(ctime, czxid), Atom::Time(mtime, mzxid)];
        let rest = [Atom::Text(versions), Atom::Session(owner), Atom::Text(sizes), Atom::Zxid(pzxid)];
        Some(changed.into_iter().chain(rest).collect())
    }

    fn path_and_stat(&mut self) -> Option<Vec<Atom>> {
        let mut atoms = vec![Atom::Text(self.text()?)];
        atoms.extend(self.stat()?);
        Some(atoms)
    }

    /// Sorts neighbouring digests with equal permissions.
    ///
    /// `auth` becomes the identities of the client, in the order of a hash table in ZooKeeper.
    fn acl_and_stat(&mut self) -> Option<Vec<Atom>> {
        let count = self.int()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push((self.int()?, self.text()?, self.text()?));
        }
        for run in entries.chunk_by_mut(|one, two| one.0 == two.0 && one.1 == two.1 && one.1 == "\"digest\"") {
            run.sort();
        }
        let mut atoms = vec![Atom::Text(format!("{count}:"))];
        atoms.extend(entries.into_iter().map(|(perms, scheme, id)| Atom::Text(format!("{perms} {scheme} {id}"))));
        atoms.extend(self.stat()?);
        Some(atoms)
    }

    fn children_and_stat(&mut self) -> Option<Vec<Atom>> {
        let mut atoms = self.sorted(Self::text)?;
        atoms.extend(self.stat()?);
        Some(atoms)
    }

    fn reply(&mut self, code: i32) -> Option<Vec<Vec<Atom>>> {
        let part = match code {
            1 | 9 | 102 => vec![Atom::Text(self.text()?)],
            15 | 19 | 21 | 4 | 16 => self.path_and_stat()?,
            3 | 5 | 7 => self.stat()?,
            6 => self.acl_and_stat()?,
            8 | 103 => self.sorted(Self::text)?,
            12 => self.children_and_stat()?,
            104 | 106 => vec![Atom::Text(self.int()?.to_string())],
            107 => self.sorted(|reader| Some(format!("{} {}", reader.text()?, reader.text()?)))?,
            14 | 22 => return self.results(),
            _ => return None,
        };
        Some(vec![part])
    }

    /// Decodes the results of a multi, each after its type and error.
    fn results(&mut self) -> Option<Vec<Vec<Atom>>> {
        let mut parts = Vec::new();
        loop {
            let (code, done, error) = (self.int()?, self.take(1)?[0], self.int()?);
            let mut part = vec![Atom::Text(format!("type {code} done {done} error {error}"))];
            if done != 0 {
                parts.push(part);
                return Some(parts);
            }
            part.extend(match code {
                -1 => vec![Atom::Text(self.int()?.to_string())],
                1 => vec![Atom::Text(self.text()?)],
                15 | 4 => self.path_and_stat()?,
                5 => self.stat()?,
                8 => self.sorted(Self::text)?,
                2 | 13 => Vec::new(),
                _ => return None,
            });
            parts.push(part);
        }
    }
}

/// Number of bytes that are shown in full.
const SHOWN_BYTES_MAX: usize = 100;

/// Quotes bytes; of longer ones only the start, the length and a hash.
pub fn shortened(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN_BYTES_MAX {
        return quoted(bytes);
    }
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{}...({} bytes, {hash:016x})", quoted(&bytes[..20]), bytes.len())
}
