//! The ordered form of a write: it is logged, replicated and applied.
//!
//! Everything that depends on configuration or on a connection is resolved before encoding and
//! travels as values. So applying is a function of the state and these bytes alone. Decoding
//! borrows from the bytes. The layout is in docs/reference/formats.md; integers are little-endian.

use crate::record::acl::{self, Identity};
use bytes::{BufMut, Bytes, BytesMut};
use std::net::IpAddr;
use zoolet_model::{AuthId, CreateKind, ErrorCode, ServerId, SessionId, SessionSecret, Text};

/// The header, which the leader fills in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Milliseconds since 1970; only displayed (ctime, mtime).
    pub wall_ms: i64,
    /// Ensemble time, milliseconds that never decrease.
    pub ensemble_ms: u64,
    /// Whether the leader refuses writes beyond a hard limit. Only writes carry it.
    pub enforces_quotas: bool,
    /// The learner that forwarded the entry. Only entries that a client requests carry it.
    pub forwarder: Option<Forwarder>,
}

/// A learner that forwards an entry, and its number for the entry.
///
/// The learner finds the waiting request by the number, whichever leader sends the entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forwarder {
    /// The learner.
    pub server: ServerId,
    /// A number that the learner uses once. The first one of each process is random.
    pub number: u64,
}

/// One operation on the tree, borrowed from the entry's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    /// Creates a znode.
    Create {
        /// Not validated, because other errors come first.
        path: &'a str,
        /// Data; `None` is null.
        data: Option<&'a [u8]>,
        /// An encoded ACL ([`acl::encode`]); empty means open.
        acl: &'a [u8],
        /// Kind of znode.
        kind: CreateKind,
        /// Whether the parent's counter is appended to the name.
        sequential: bool,
        /// Whether the result of a multi includes the Stat.
        with_stat: bool,
    },
    /// Deletes a znode.
    Delete {
        /// Not validated.
        path: &'a str,
        /// Expected version; -1 matches any.
        version: i32,
    },
    /// Replaces a znode's data.
    SetData {
        /// Valid.
        path: &'a str,
        /// Data; `None` is null.
        data: Option<&'a [u8]>,
        /// Expected version; -1 matches any.
        version: i32,
    },
    /// Replaces a znode's ACL.
    SetAcl {
        /// Valid.
        path: &'a str,
        /// An encoded ACL; empty means open.
        acl: &'a [u8],
        /// Expected aversion; -1 matches any.
        version: i32,
    },
    /// Fails unless the znode has this version.
    Check {
        /// Valid.
        path: &'a str,
        /// Expected version; -1 matches any.
        version: i32,
    },
    /// An operation that the client's server already knows to fail.
    ///
    /// It is ordered all the same: a failed write costs a zxid, and inside a multi the operations
    /// before it must be tried first.
    Refused(ErrorCode),
}

/// The decoded content of one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Txn<'a> {
    /// Opens an epoch.
    NoOp,
    /// One operation of a session.
    Write {
        /// Session that requests it, by [its name](SessionId::named_local) if it is local.
        session: SessionId,
        /// Identity of the session's connection.
        identity: Identity,
        /// The operation.
        op: Op<'a>,
    },
    /// Several operations of a session, all or nothing.
    Multi {
        /// Session that requests them, by [its name](SessionId::named_local) if it is local.
        session: SessionId,
        /// Identity of the session's connection.
        identity: Identity,
        /// In order.
        ops: Vec<Op<'a>>,
    },
    /// Begins a session; its id is this entry's zxid.
    CreateSession {
        /// Negotiated timeout, milliseconds.
        timeout_ms: u32,
        /// Secret that proves ownership of the session.
        secret: SessionSecret,
        /// Server whose process embeds the session's owner; `None` for a socket client.
        ///
        /// The session ends when that process does.
        home: Option<ServerId>,
    },
    /// Ends a session, closed or expired, with all its ephemerals.
    CloseSession {
        /// The session.
        session: SessionId,
    },
    /// Changes the timeout of a session whose owner came back.
    ///
    /// The timeout counts from this entry on, also under later leaders.
    RenewSession {
        /// The session.
        session: SessionId,
        /// Negotiated timeout, milliseconds.
        timeout_ms: u32,
    },
    /// Makes a local session global.
    UpgradeSession {
        /// The id that the session began with; it stays.
        session: SessionId,
        /// Negotiated timeout, milliseconds.
        timeout_ms: u32,
        /// Secret that proves ownership of the session.
        secret: SessionSecret,
    },
    /// Deletes a container that has had children and has none, or a TTL znode that is due.
    Reap {
        /// The znode's path.
        path: &'a str,
    },
    /// Counts more znodes of a subtree whose quota is new.
    CountUsage {
        /// Root of the subtree.
        path: &'a str,
    },
    /// Names or changes the ensemble's members. Used by the protocol, ignored by the tree.
    Membership(&'a [u8]),
}

/// These bytes are not an entry that this release knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undecodable;

mod tag {
    pub(super) const NO_OP: u8 = 0;
    pub(super) const WRITE: u8 = 1;
    pub(super) const MULTI: u8 = 2;
    pub(super) const CREATE_SESSION: u8 = 3;
    pub(super) const CLOSE_SESSION: u8 = 5;
    pub(super) const REAP: u8 = 6;
    pub(super) const MEMBERSHIP: u8 = 7;
    pub(super) const CREATE_SESSION_AT_HOME: u8 = 8;
    pub(super) const RENEW_SESSION: u8 = 9;
    pub(super) const UPGRADE_SESSION: u8 = 11;
    pub(super) const COUNT_USAGE: u8 = 12;

    /// Added to the tag of a write or multi under a leader that enforces quotas.
    pub(super) const ENFORCES_QUOTAS: u8 = 0x80;
    /// Added to the tag of an entry that a learner forwarded. The forwarder follows the tag.
    pub(super) const FORWARDED: u8 = 0x40;

    pub(super) const CREATE: u8 = 1;
    pub(super) const DELETE: u8 = 2;
    pub(super) const SET_DATA: u8 = 3;
    pub(super) const SET_ACL: u8 = 4;
    pub(super) const CHECK: u8 = 5;
    pub(super) const REFUSED: u8 = 6;

    pub(super) const SEQUENTIAL: u8 = 1;
    pub(super) const WITH_STAT: u8 = 2;

    pub(super) const PERSISTENT: u8 = 0;
    pub(super) const EPHEMERAL: u8 = 1;
    pub(super) const CONTAINER: u8 = 2;
    pub(super) const TTL: u8 = 3;
}

impl Header {
    /// Bytes of the header, before the tag.
    const BYTES: usize = 16;

    /// Encodes both times: wall clock, then ensemble time.
    fn times(self) -> [u8; Self::BYTES] {
        let mut times = [0; Self::BYTES];
        times[..8].copy_from_slice(&self.wall_ms.to_le_bytes());
        times[8..].copy_from_slice(&self.ensemble_ms.to_le_bytes());
        times
    }

    const fn quota_bit(self) -> u8 {
        if self.enforces_quotas { tag::ENFORCES_QUOTAS } else { 0 }
    }

    /// Writes the tag with its bits, and the forwarder.
    fn put_kind(self, pieces: &mut Pieces<'_>, tag: u8) {
        let quota_bit = if is_write(tag) { self.quota_bit() } else { 0 };
        match self.forwarder.filter(|_| is_requested(tag)) {
            None => pieces.put([tag | quota_bit]),
            Some(Forwarder { server, number }) => {
                pieces.put([tag | quota_bit | tag::FORWARDED, server.as_u8()]);
                pieces.put(number.to_le_bytes());
            }
        }
    }
}

/// Encodes an entry. It gathers short fields on the stack, because one write to a `BytesMut` costs
/// as much as several copies there.
struct Pieces<'a> {
    buffer: &'a mut BytesMut,
    gathered: [u8; GATHERED],
    count: usize,
}

/// Size of the place on the stack, in bytes.
const GATHERED: usize = 64;

impl<'a> Pieces<'a> {
    fn new(buffer: &'a mut BytesMut) -> Self {
        Self { buffer, gathered: [0; GATHERED], count: 0 }
    }

    /// Appends a field of fixed length.
    fn put<const N: usize>(&mut self, piece: [u8; N]) {
        const { assert!(N <= GATHERED) };
        if self.count + N > GATHERED {
            self.write_gathered();
        }
        if let Some(place) = self.gathered[self.count..].first_chunk_mut() {
            *place = piece;
            self.count += N;
        }
    }

    /// Appends a field of any length.
    fn put_slice(&mut self, bytes: &[u8]) {
        self.write_gathered();
        self.buffer.put_slice(bytes);
    }

    fn write_gathered(&mut self) {
        self.buffer.put_slice(&self.gathered[..self.count]);
        self.count = 0;
    }

    fn finish(mut self) -> Bytes {
        self.write_gathered();
        self.buffer.split().freeze()
    }
}

/// Encodes an entry. The caller can reuse `buffer` for the next one.
pub fn encode(header: Header, txn: &Txn<'_>, buffer: &mut BytesMut) -> Bytes {
    let mut entry = Pieces::new(buffer);
    entry.put(header.times());
    match txn {
        Txn::NoOp => header.put_kind(&mut entry, tag::NO_OP),
        Txn::Write { session, identity, op } => {
            header.put_kind(&mut entry, tag::WRITE);
            put_origin(&mut entry, *session, identity);
            put_op(&mut entry, op);
        }
        Txn::Multi { session, identity, ops } => {
            header.put_kind(&mut entry, tag::MULTI);
            put_origin(&mut entry, *session, identity);
            put_length(&mut entry, ops.len());
            ops.iter().for_each(|op| put_op(&mut entry, op));
        }
        Txn::CreateSession { timeout_ms, secret, home } => {
            match home {
                None => header.put_kind(&mut entry, tag::CREATE_SESSION),
                Some(home) => {
                    header.put_kind(&mut entry, tag::CREATE_SESSION_AT_HOME);
                    entry.put([home.as_u8()]);
                }
            }
            entry.put(timeout_ms.to_le_bytes());
            entry.put(secret.0);
        }
        Txn::CloseSession { session } => {
            header.put_kind(&mut entry, tag::CLOSE_SESSION);
            entry.put(session.0.to_le_bytes());
        }
        Txn::RenewSession { session, timeout_ms } => {
            header.put_kind(&mut entry, tag::RENEW_SESSION);
            entry.put(session.0.to_le_bytes());
            entry.put(timeout_ms.to_le_bytes());
        }
        Txn::UpgradeSession { session, timeout_ms, secret } => {
            header.put_kind(&mut entry, tag::UPGRADE_SESSION);
            entry.put(session.0.to_le_bytes());
            entry.put(timeout_ms.to_le_bytes());
            entry.put(secret.0);
        }
        Txn::Reap { path } => {
            header.put_kind(&mut entry, tag::REAP);
            put_bytes(&mut entry, path.as_bytes());
        }
        Txn::CountUsage { path } => {
            header.put_kind(&mut entry, tag::COUNT_USAGE);
            put_bytes(&mut entry, path.as_bytes());
        }
        Txn::Membership(config) => {
            header.put_kind(&mut entry, tag::MEMBERSHIP);
            put_bytes(&mut entry, config);
        }
    }
    entry.finish()
}

/// Copies an encoded entry, replacing its header by the leader's. The forwarder stays.
///
/// Appends to `buffer` and splits the copy off. Returns `None` when `payload` is shorter than a
/// header.
pub fn stamp(header: Header, payload: &[u8], buffer: &mut BytesMut) -> Option<Bytes> {
    let body = payload.get(Header::BYTES..)?;
    buffer.reserve(payload.len());
    buffer.put_slice(&header.times());
    match body.split_first() {
        Some((kind, rest)) if is_write(*kind) => {
            buffer.put_u8((kind & !tag::ENFORCES_QUOTAS) | header.quota_bit());
            buffer.put_slice(rest);
        }
        _ => buffer.put_slice(body),
    }
    Some(buffer.split().freeze())
}

/// Copies a forwarded entry, with another number of its forwarder.
///
/// Returns `None` for an entry without a forwarder.
pub fn renumbered(payload: &[u8], number: u64, buffer: &mut BytesMut) -> Option<Bytes> {
    forwarder(payload)?;
    const AT: usize = Header::BYTES + 2;
    buffer.reserve(payload.len());
    buffer.put_slice(payload.get(..AT)?);
    buffer.put_u64_le(number);
    buffer.put_slice(payload.get(AT + size_of::<u64>()..)?);
    Some(buffer.split().freeze())
}

/// Returns the learner that forwarded this entry; `None` for other entries.
pub fn forwarder(payload: &[u8]) -> Option<Forwarder> {
    let mut reader = Reader { rest: payload.get(Header::BYTES..)? };
    reader.kind().ok()?.1
}

/// Returns whether this is the tag of a write or multi, whatever its leader enforces.
const fn is_write(kind: u8) -> bool {
    matches!(kind & !(tag::ENFORCES_QUOTAS | tag::FORWARDED), tag::WRITE | tag::MULTI)
}

/// Removes the bit of an enforcing leader from the tag of a write or multi.
const fn without_quota_bit(kind: u8) -> u8 {
    if is_write(kind) { kind & !tag::ENFORCES_QUOTAS } else { kind }
}

/// Returns whether this is the tag of an entry that a client requests, without its bits.
const fn is_requested(tag: u8) -> bool {
    matches!(
        tag,
        tag::WRITE
            | tag::MULTI
            | tag::CREATE_SESSION
            | tag::CREATE_SESSION_AT_HOME
            | tag::CLOSE_SESSION
            | tag::UPGRADE_SESSION
    )
}

/// Returns whether this is the tag of a write or multi under a leader that enforces quotas.
const fn enforces_quotas(kind: u8) -> bool {
    is_write(kind) && kind & tag::ENFORCES_QUOTAS != 0
}

fn put_origin(entry: &mut Pieces<'_>, session: SessionId, identity: &Identity) {
    entry.put(session.0.to_le_bytes());
    entry.put([u8::from(identity.is_super)]);
    match identity.ip {
        None => entry.put([0]),
        Some(IpAddr::V4(ip)) => {
            entry.put([4]);
            entry.put(ip.octets());
        }
        Some(IpAddr::V6(ip)) => {
            entry.put([6]);
            entry.put(ip.octets());
        }
    }
    put_length(entry, identity.ids.len());
    for AuthId { scheme, id } in &identity.ids {
        put_bytes(entry, scheme.as_bytes());
        put_bytes(entry, id.as_bytes());
    }
}

fn put_op(entry: &mut Pieces<'_>, op: &Op<'_>) {
    match op {
        Op::Create { path, data, acl, kind, sequential, with_stat } => {
            let flags = (u8::from(*sequential) * tag::SEQUENTIAL) | (u8::from(*with_stat) * tag::WITH_STAT);
            entry.put([tag::CREATE, flags]);
            match kind {
                CreateKind::Persistent => entry.put([tag::PERSISTENT]),
                CreateKind::Ephemeral => entry.put([tag::EPHEMERAL]),
                CreateKind::Container => entry.put([tag::CONTAINER]),
                CreateKind::Ttl { ttl_ms } => {
                    entry.put([tag::TTL]);
                    entry.put(ttl_ms.to_le_bytes());
                }
            }
            put_bytes(entry, path.as_bytes());
            put_bytes(entry, acl);
            put_data(entry, *data);
        }
        Op::Delete { path, version } => put_versioned(entry, tag::DELETE, *version, path),
        Op::SetData { path, data, version } => {
            put_versioned(entry, tag::SET_DATA, *version, path);
            put_data(entry, *data);
        }
        Op::SetAcl { path, acl, version } => {
            put_versioned(entry, tag::SET_ACL, *version, path);
            put_bytes(entry, acl);
        }
        Op::Check { path, version } => put_versioned(entry, tag::CHECK, *version, path),
        Op::Refused(code) => {
            entry.put([tag::REFUSED]);
            entry.put(code.code().to_le_bytes());
        }
    }
}

fn put_versioned(entry: &mut Pieces<'_>, tag: u8, version: i32, path: &str) {
    entry.put([tag]);
    entry.put(version.to_le_bytes());
    put_bytes(entry, path.as_bytes());
}

fn put_length(entry: &mut Pieces<'_>, length: usize) {
    // Every length came from a frame, whose own length has 31 bits.
    entry.put(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(entry: &mut Pieces<'_>, bytes: &[u8]) {
    put_length(entry, bytes.len());
    if !bytes.is_empty() {
        entry.put_slice(bytes);
    }
}

fn put_data(entry: &mut Pieces<'_>, data: Option<&[u8]>) {
    entry.put([u8::from(data.is_some())]);
    put_bytes(entry, data.unwrap_or_default());
}

/// Decodes an entry. Total: any bytes give an entry or [`Undecodable`].
///
/// # Errors
/// [`Undecodable`] for bytes that [`encode`] does not write, including trailing ones.
pub fn decode(payload: &[u8]) -> Result<(Header, Txn<'_>), Undecodable> {
    let mut reader = Reader { rest: payload };
    let mut header = Header { wall_ms: reader.i64()?, ensemble_ms: reader.u64()?, ..Header::default() };
    let (kind, forwarder) = reader.kind()?;
    (header.enforces_quotas, header.forwarder) = (enforces_quotas(kind), forwarder);
    let txn = match without_quota_bit(kind) {
        tag::NO_OP => Txn::NoOp,
        tag::WRITE => {
            let (session, identity) = reader.origin()?;
            Txn::Write { session, identity, op: reader.op()? }
        }
        tag::MULTI => {
            let (session, identity) = reader.origin()?;
            let count = reader.u32()?;
            // Do not trust the count for the capacity: each operation takes at least five bytes.
            let mut ops = Vec::with_capacity((count as usize).min(reader.rest.len() / 5));
            for _ in 0..count {
                ops.push(reader.op()?);
            }
            Txn::Multi { session, identity, ops }
        }
        tag::CREATE_SESSION => reader.create_session(None)?,
        tag::CREATE_SESSION_AT_HOME => {
            let home = ServerId::new(reader.u8()?).ok_or(Undecodable)?;
            reader.create_session(Some(home))?
        }
        tag::CLOSE_SESSION => Txn::CloseSession { session: SessionId(reader.i64()?) },
        tag::RENEW_SESSION => Txn::RenewSession { session: SessionId(reader.i64()?), timeout_ms: reader.u32()? },
        tag::UPGRADE_SESSION => Txn::UpgradeSession {
            session: SessionId(reader.i64()?),
            timeout_ms: reader.u32()?,
            secret: SessionSecret(reader.array()?),
        },
        tag::REAP => Txn::Reap { path: reader.text()? },
        tag::COUNT_USAGE => Txn::CountUsage { path: reader.text()? },
        tag::MEMBERSHIP => Txn::Membership(reader.bytes()?),
        _ => return Err(Undecodable),
    };
    if reader.rest.is_empty() { Ok((header, txn)) } else { Err(Undecodable) }
}

/// Decodes only the header; the rest may be undecodable.
pub fn header(payload: &[u8]) -> Option<Header> {
    let mut reader = Reader { rest: payload.get(..Header::BYTES)? };
    let enforces_quotas = payload.get(Header::BYTES).is_some_and(|&kind| enforces_quotas(kind));
    let forwarder = forwarder(payload);
    Some(Header { wall_ms: reader.i64().ok()?, ensemble_ms: reader.u64().ok()?, enforces_quotas, forwarder })
}

/// Returns the encoded configuration in a membership entry; `None` for other entries.
pub fn membership(payload: &[u8]) -> Option<&[u8]> {
    // Check one byte first: this runs for every entry from a leader.
    let is_one = payload.get(Header::BYTES) == Some(&tag::MEMBERSHIP);
    match is_one.then(|| decode(payload)) {
        Some(Ok((_, Txn::Membership(config)))) => Some(config),
        Some(_) | None => None,
    }
}

/// Returns the session that requested a change of the tree; `None` for other entries.
pub fn writer(payload: &[u8]) -> Option<SessionId> {
    let mut reader = Reader { rest: payload.get(Header::BYTES..)? };
    match reader.kind().ok()? {
        (kind, _) if is_write(kind) => reader.i64().ok().map(SessionId),
        _ => None,
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Undecodable> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Undecodable)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Undecodable> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Undecodable)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads the tag, without the bit of a forwarded entry, and the forwarder.
    fn kind(&mut self) -> Result<(u8, Option<Forwarder>), Undecodable> {
        let kind = self.u8()?;
        if kind & tag::FORWARDED == 0 {
            return Ok((kind, None));
        }
        let kind = kind & !tag::FORWARDED;
        if !is_requested(without_quota_bit(kind)) {
            return Err(Undecodable);
        }
        let server = ServerId::new(self.u8()?).ok_or(Undecodable)?;
        Ok((kind, Some(Forwarder { server, number: self.u64()? })))
    }

    fn u8(&mut self) -> Result<u8, Undecodable> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, Undecodable> {
        self.array().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Result<i32, Undecodable> {
        self.array().map(i32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Undecodable> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, Undecodable> {
        self.array().map(i64::from_le_bytes)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Undecodable> {
        let count = self.u32()?;
        self.take(count as usize)
    }

    fn text(&mut self) -> Result<&'a str, Undecodable> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Undecodable)
    }

    fn data(&mut self) -> Result<Option<&'a [u8]>, Undecodable> {
        let present = self.u8()?;
        let bytes = self.bytes()?;
        match present {
            0 if bytes.is_empty() => Ok(None),
            1 => Ok(Some(bytes)),
            _ => Err(Undecodable),
        }
    }

    fn create_session(&mut self, home: Option<ServerId>) -> Result<Txn<'a>, Undecodable> {
        Ok(Txn::CreateSession { timeout_ms: self.u32()?, secret: SessionSecret(self.array()?), home })
    }

    /// Reads an encoded ACL and checks it, so that every stored ACL is readable.
    fn acl(&mut self) -> Result<&'a [u8], Undecodable> {
        let bytes = self.bytes()?;
        acl::check(bytes).map_err(|_| Undecodable)?;
        Ok(bytes)
    }

    fn origin(&mut self) -> Result<(SessionId, Identity), Undecodable> {
        let session = SessionId(self.i64()?);
        let is_super = self.u8()? != 0;
        let ip = match self.u8()? {
            0 => None,
            4 => Some(IpAddr::from(self.array::<4>()?)),
            6 => Some(IpAddr::from(self.array::<16>()?)),
            _ => return Err(Undecodable),
        };
        let mut ids = Vec::new();
        for _ in 0..self.u32()? {
            ids.push(AuthId { scheme: Text::from(self.text()?), id: Text::from(self.text()?) });
        }
        Ok((session, Identity { is_super, ip, ids }))
    }

    fn op(&mut self) -> Result<Op<'a>, Undecodable> {
        Ok(match self.u8()? {
            tag::CREATE => {
                let flags = self.u8()?;
                let kind = match self.u8()? {
                    tag::PERSISTENT => CreateKind::Persistent,
                    tag::EPHEMERAL => CreateKind::Ephemeral,
                    tag::CONTAINER => CreateKind::Container,
                    tag::TTL => CreateKind::Ttl { ttl_ms: self.u64()? },
                    _ => return Err(Undecodable),
                };
                let (path, acl, data) = (self.text()?, self.acl()?, self.data()?);
                let (sequential, with_stat) = (flags & tag::SEQUENTIAL != 0, flags & tag::WITH_STAT != 0);
                Op::Create { path, data, acl, kind, sequential, with_stat }
            }
            tag::DELETE => Op::Delete { version: self.i32()?, path: self.text()? },
            tag::SET_DATA => Op::SetData { version: self.i32()?, path: self.text()?, data: self.data()? },
            tag::SET_ACL => Op::SetAcl { version: self.i32()?, path: self.text()?, acl: self.acl()? },
            tag::CHECK => Op::Check { version: self.i32()?, path: self.text()? },
            tag::REFUSED => Op::Refused(ErrorCode::from_code(self.i32()?).ok_or(Undecodable)?),
            _ => return Err(Undecodable),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(txn: &Txn<'_>) {
        let header = Header { wall_ms: -5, ensemble_ms: 77, ..Header::default() };
        let bytes = encode(header, txn, &mut BytesMut::new());
        assert_eq!(decode(&bytes), Ok((header, txn.clone())));
        assert_eq!(super::header(&bytes), Some(header));
        let later = Header { wall_ms: 9, ensemble_ms: 80, ..Header::default() };
        let mut buffer = BytesMut::new();
        assert_eq!(decode(&stamp(later, &bytes, &mut buffer).unwrap()), Ok((later, txn.clone())));
        assert_eq!(stamp(later, &bytes[..Header::BYTES - 1], &mut buffer), None);
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), Err(Undecodable), "{txn:?} cut at {cut}");
        }
    }

    #[test]
    fn encoded_txns_round_trip_and_shorter_bytes_are_refused() {
        let identity = Identity {
            is_super: true,
            ip: Some([127, 0, 0, 1].into()),
            ids: vec![AuthId { scheme: "digest".into(), id: "u:h".into() }],
        };
        let create = Op::Create {
            path: "/a",
            data: Some(b""),
            acl: &[],
            kind: CreateKind::Ttl { ttl_ms: 9 },
            sequential: true,
            with_stat: true,
        };
        let ops = vec![
            create.clone(),
            Op::Delete { path: "/a", version: -1 },
            Op::SetData { path: "/b", data: None, version: 3 },
            Op::SetAcl { path: "/b", acl: &[], version: 3 },
            Op::Check { path: "/c", version: 0 },
            Op::Refused(ErrorCode::BadArguments),
        ];
        round_trip(&Txn::NoOp);
        round_trip(&Txn::Write { session: SessionId(7), identity: identity.clone(), op: create });
        round_trip(&Txn::Multi { session: SessionId(7), identity, ops });
        for home in [None, Some(ServerId::STANDALONE)] {
            round_trip(&Txn::CreateSession { timeout_ms: 4000, secret: SessionSecret([9; 16]), home });
        }
        round_trip(&Txn::CloseSession { session: SessionId(1) });
        round_trip(&Txn::RenewSession { session: SessionId(1), timeout_ms: 40_000 });
        let (session, secret) = (SessionId(i64::MIN + 5), SessionSecret([7; 16]));
        round_trip(&Txn::UpgradeSession { session, timeout_ms: 40_000, secret });
        round_trip(&Txn::Reap { path: "/c" });
        round_trip(&Txn::CountUsage { path: "/c" });
        round_trip(&Txn::Membership(b"three"));
    }

    /// More short fields in a row than the place on the stack holds.
    #[test]
    fn long_rows_of_short_fields_round_trip() {
        let ip = Some("2001:db8::7".parse().unwrap());
        let identity = Identity { is_super: false, ip, ids: Vec::new() };
        let session = SessionId(7);
        for count in 0..40 {
            let ops = vec![Op::Refused(ErrorCode::NoNode); count];
            round_trip(&Txn::Multi { session, identity: identity.clone(), ops });
        }
        let create = Op::Create {
            path: "/a",
            data: None,
            acl: &[],
            kind: CreateKind::Ttl { ttl_ms: 9 },
            sequential: false,
            with_stat: false,
        };
        let forwarder = Some(Forwarder { server: ServerId::STANDALONE, number: u64::MAX - 1 });
        let header = Header { wall_ms: 1, ensemble_ms: 2, enforces_quotas: true, forwarder };
        let txn = Txn::Write { session, identity, op: create };
        assert_eq!(decode(&encode(header, &txn, &mut BytesMut::new())), Ok((header, txn.clone())));
    }

    #[test]
    fn only_membership_entries_decode_as_memberships() {
        let mut buffer = BytesMut::new();
        let entry = encode(Header::default(), &Txn::Membership(b"three"), &mut buffer);
        assert_eq!(membership(&entry), Some(&b"three"[..]));
        assert_eq!(membership(&entry[..entry.len() - 1]), None);
        assert_eq!(membership(&encode(Header::default(), &Txn::NoOp, &mut buffer)), None);
        assert_eq!(membership(b""), None);
    }

    #[test]
    fn golden_bytes_of_a_renewal() {
        let header = Header { wall_ms: 1, ensemble_ms: 2, enforces_quotas: true, forwarder: None };
        let txn = Txn::RenewSession { session: SessionId(3), timeout_ms: 40_000 };
        let mut expected = Vec::new();
        expected.extend(1i64.to_le_bytes());
        expected.extend(2u64.to_le_bytes());
        expected.push(9);
        expected.extend(3i64.to_le_bytes());
        expected.extend(40_000u32.to_le_bytes());
        assert_eq!(encode(header, &txn, &mut BytesMut::new()), expected);
    }

    #[test]
    fn writes_carry_whether_their_leader_enforces_quotas() {
        let (lax, strict) = (Header::default(), Header { enforces_quotas: true, ..Header::default() });
        let op = Op::Delete { path: "/k", version: -1 };
        let identity = Identity::default();
        let write = Txn::Write { session: SessionId(1), identity: identity.clone(), op: op.clone() };
        let multi = Txn::Multi { session: SessionId(1), identity, ops: vec![op] };
        let mut buffer = BytesMut::new();
        for (txn, bit_and_tag) in [(&write, 0x81), (&multi, 0x82)] {
            let bytes = encode(strict, txn, &mut buffer);
            assert_eq!(bytes[16], bit_and_tag);
            assert_eq!(decode(&bytes), Ok((strict, txn.clone())));
            assert_eq!(writer(&bytes), Some(SessionId(1)));
            let stamped = stamp(lax, &bytes, &mut buffer).unwrap();
            assert_eq!(stamped, encode(lax, txn, &mut buffer), "the leader decides");
            assert_eq!(stamp(strict, &stamped, &mut buffer).unwrap(), bytes);
        }
        let reap = Txn::Reap { path: "/c" };
        assert_eq!(encode(strict, &reap, &mut buffer), encode(lax, &reap, &mut buffer));
    }

    #[test]
    fn requested_entries_carry_their_forwarder_and_others_do_not() {
        let learner = Forwarder { server: ServerId::new(3).unwrap(), number: 0x0102 };
        let forwarded = Header { forwarder: Some(learner), ..Header::default() };
        let (session, identity, secret) = (SessionId(1), Identity::default(), SessionSecret([9; 16]));
        let op = Op::Check { path: "/c", version: 0 };
        let mut buffer = BytesMut::new();
        for txn in [
            Txn::Write { session, identity: identity.clone(), op: op.clone() },
            Txn::Multi { session, identity, ops: vec![op] },
            Txn::CreateSession { timeout_ms: 4000, secret, home: None },
            Txn::CreateSession { timeout_ms: 4000, secret, home: Some(ServerId::STANDALONE) },
            Txn::CloseSession { session },
            Txn::UpgradeSession { session, timeout_ms: 4000, secret },
        ] {
            let bytes = encode(forwarded, &txn, &mut buffer);
            assert_eq!((decode(&bytes), forwarder(&bytes)), (Ok((forwarded, txn.clone())), Some(learner)));
            assert_eq!(header(&bytes), Some(forwarded));
            let stamp_header = Header { wall_ms: 5, ..Header::default() };
            let stamped = stamp(stamp_header, &bytes, &mut buffer).unwrap();
            assert_eq!(decode(&stamped), Ok((Header { wall_ms: 5, ..forwarded }, txn.clone())), "the forwarder stays");
            let again = Header { forwarder: Some(Forwarder { number: 9, ..learner }), ..Header::default() };
            assert_eq!(renumbered(&bytes, 9, &mut buffer).unwrap(), encode(again, &txn, &mut buffer));
            let direct = encode(Header::default(), &txn, &mut buffer);
            assert_eq!((forwarder(&direct), renumbered(&direct, 9, &mut buffer)), (None, None));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), Err(Undecodable), "{txn:?} cut at {cut}");
                assert!(renumbered(&bytes[..cut], 9, &mut buffer).is_none() || cut >= Header::BYTES + 10);
            }
        }
        for txn in [Txn::NoOp, Txn::Reap { path: "/c" }, Txn::Membership(b"three")] {
            let bytes = encode(forwarded, &txn, &mut buffer);
            assert_eq!(bytes, encode(Header::default(), &txn, &mut buffer));
            let mut hostile = bytes.to_vec();
            hostile[Header::BYTES] |= tag::FORWARDED;
            hostile.splice(Header::BYTES + 1..Header::BYTES + 1, [3, 0, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!((decode(&hostile), forwarder(&hostile), membership(&hostile)), (Err(Undecodable), None, None));
        }
    }

    #[test]
    fn golden_bytes_of_a_forwarded_close() {
        let learner = Forwarder { server: ServerId::new(3).unwrap(), number: 0x0102 };
        let header = Header { wall_ms: 1, ensemble_ms: 2, forwarder: Some(learner), ..Header::default() };
        let expected: [&[u8]; 5] = [
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[0x45, 3],
            &[2, 1, 0, 0, 0, 0, 0, 0],
            &[7, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(
            encode(header, &Txn::CloseSession { session: SessionId(7) }, &mut BytesMut::new()),
            expected.concat()
        );
    }

    #[test]
    fn golden_bytes_of_a_count() {
        let txn = Txn::CountUsage { path: "/k" };
        let expected: [&[u8]; 3] = [&[0; 16], &[12, 2, 0, 0, 0], b"/k"];
        assert_eq!(encode(Header::default(), &txn, &mut BytesMut::new()), expected.concat());
    }

    #[test]
    fn golden_bytes_of_an_upgrade() {
        let txn = Txn::UpgradeSession { session: SessionId(-3), timeout_ms: 9, secret: SessionSecret([7; 16]) };
        let mut expected = [1i64.to_le_bytes(), 2i64.to_le_bytes()].concat();
        expected.push(11);
        expected.extend((-3i64).to_le_bytes());
        expected.extend(9u32.to_le_bytes());
        expected.extend([7; 16]);
        assert_eq!(
            encode(Header { wall_ms: 1, ensemble_ms: 2, ..Header::default() }, &txn, &mut BytesMut::new()),
            expected
        );
    }

    #[test]
    fn golden_bytes_of_a_set() {
        let txn = Txn::Write {
            session: SessionId(0x0102),
            identity: Identity { is_super: false, ip: Some([127, 0, 0, 1].into()), ids: vec![] },
            op: Op::SetData { path: "/k", data: Some(b"v"), version: -1 },
        };
        let bytes = encode(Header { wall_ms: 3, ensemble_ms: 4, ..Header::default() }, &txn, &mut BytesMut::new());
        let expected: [&[u8]; 11] = [
            &[3, 0, 0, 0, 0, 0, 0, 0],
            &[4, 0, 0, 0, 0, 0, 0, 0],
            &[1],
            &[2, 1, 0, 0, 0, 0, 0, 0],
            &[0, 4, 127, 0, 0, 1],
            &[0, 0, 0, 0],
            &[3, 255, 255, 255, 255],
            &[2, 0, 0, 0],
            b"/k",
            &[1, 1, 0, 0, 0],
            b"v",
        ];
        assert_eq!(bytes, expected.concat());
    }
}
