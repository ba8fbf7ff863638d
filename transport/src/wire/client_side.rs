//! The client's side of the codec, for measurements, tests and the shell.

use super::frame::{FrameError, announced};
use super::opcode::Opcode;
use super::reader::{Malformed, Read, Reader};
use super::writer::{self, Done};
use bytes::{BufMut, Bytes, BytesMut};
use zoolet_model::{
    AclEntry, AddWatchMode, AuthId, ConnectReply, ConnectRequest, Create, CreateKind, CreateMode, ErrorCode, EventKind,
    OpResult, Perms, ReadOp, ReadResult, Reply, Request, RequestedAcl, SessionId, SessionSecret, TimeToLive,
    WatchEvent, WatcherType, WriteOp,
};

/// Appends the first message of a connection.
pub fn encode_connect(request: &ConnectRequest, out: &mut BytesMut) {
    writer::frame(out, |out| {
        out.put_i32(0);
        out.put_i64(request.last_zxid_seen);
        out.put_i32(request.timeout_ms);
        out.put_i64(request.session.0);
        writer::buffer(out, request.password.as_deref());
        if let Some(read_only) = request.read_only {
            writer::bool(out, read_only);
        }
    });
}

/// Decodes the answer to Connect.
///
/// # Errors
/// A field is missing, or the password does not have 16 bytes.
pub fn decode_connect_reply(frame: Bytes) -> Result<ConnectReply, Malformed> {
    let mut reader = Reader::new(frame);
    let _protocol_version = reader.i32()?;
    let (timeout_ms, session) = (reader.i32()?, SessionId(reader.i64()?));
    let secret = reader.buffer()?.and_then(|bytes| bytes.as_ref().try_into().ok()).ok_or(Malformed)?;
    let is_read_only = reader.bool().ok();
    Ok(ConnectReply {
        timeout_ms,
        session,
        secret: SessionSecret(secret),
        read_only_byte: is_read_only.is_some(),
        // The wire does not say how old the state is.
        read_only_ms: is_read_only.filter(|is_on| *is_on).map(|_| 0),
    })
}

/// Appends a request.
///
/// [`Request::Malformed`] and [`Request::Unknown`] become bytes that a server decodes as such.
pub fn encode_request(xid: i32, request: &Request, out: &mut BytesMut) {
    writer::frame(out, |out| {
        out.put_i32(xid);
        out.put_i32(opcode(request));
        body(request, out);
    });
}

/// Returns a request's opcode; -1, which no client may send, for an unknown request.
fn opcode(request: &Request) -> i32 {
    let opcode = match request {
        Request::Write(operation) => write_opcode(operation),
        Request::Multi(_) | Request::Malformed { write: true } => Opcode::Multi,
        Request::Exists { .. } => Opcode::Exists,
        Request::GetData { .. } | Request::Malformed { write: false } => Opcode::GetData,
        Request::GetChildren { with_stat: false, .. } => Opcode::GetChildren,
        Request::GetChildren { with_stat: true, .. } => Opcode::GetChildren2,
        Request::GetAcl { .. } => Opcode::GetAcl,
        Request::GetEphemerals { .. } => Opcode::GetEphemerals,
        Request::GetAllChildrenNumber { .. } => Opcode::GetAllChildrenNumber,
        Request::GetTtl { .. } => Opcode::GetTtl,
        Request::MultiRead(_) => Opcode::MultiRead,
        Request::Sync { .. } => Opcode::Sync,
        Request::Ping => Opcode::Ping,
        Request::Auth { .. } => Opcode::Auth,
        Request::Sasl => Opcode::Sasl,
        Request::WhoAmI => Opcode::WhoAmI,
        Request::SetWatches(watches) if watches.persistent.is_empty() && watches.persistent_recursive.is_empty() => {
            Opcode::SetWatches
        }
        Request::SetWatches(_) => Opcode::SetWatches2,
        Request::AddWatch { .. } => Opcode::AddWatch,
        Request::CheckWatches { .. } => Opcode::CheckWatches,
        Request::RemoveWatches { .. } => Opcode::RemoveWatches,
        Request::Reconfig => Opcode::Reconfig,
        Request::CloseSession => Opcode::CloseSession,
        Request::Unknown => return -1,
    };
    opcode.code()
}

fn write_opcode(operation: &WriteOp) -> Opcode {
    match operation {
        WriteOp::Create(create) => create_opcode(create),
        WriteOp::Delete { .. } => Opcode::Delete,
        WriteOp::SetData { .. } => Opcode::SetData,
        WriteOp::SetAcl { .. } => Opcode::SetAcl,
        WriteOp::Check { .. } => Opcode::Check,
    }
}

fn create_opcode(create: &Create) -> Opcode {
    match create.mode {
        CreateMode::Valid { kind: CreateKind::Container, .. } => Opcode::CreateContainer,
        CreateMode::Valid { kind: CreateKind::Ttl { .. }, .. } | CreateMode::Unimplemented => Opcode::CreateTtl,
        CreateMode::Valid { kind: CreateKind::Persistent | CreateKind::Ephemeral, .. }
        | CreateMode::BadArguments
        | CreateMode::Mismatched => {
            if create.with_stat {
                Opcode::Create2
            } else {
                Opcode::Create
            }
        }
    }
}

fn create_flags(mode: CreateMode) -> i32 {
    match mode {
        CreateMode::Valid { kind: CreateKind::Persistent, sequential } => i32::from(sequential) * 2,
        CreateMode::Valid { kind: CreateKind::Ephemeral, sequential } => 1 + i32::from(sequential) * 2,
        CreateMode::Valid { kind: CreateKind::Container, sequential: false } => 4,
        CreateMode::Valid { kind: CreateKind::Container, sequential: true } => 2,
        CreateMode::Valid { kind: CreateKind::Ttl { .. }, sequential } => 5 + i32::from(sequential),
        CreateMode::Unimplemented | CreateMode::Mismatched => 5,
        CreateMode::BadArguments => 7,
    }
}

fn body(request: &Request, out: &mut BytesMut) {
    match request {
        Request::Write(operation) => write_op(operation, out),
        Request::Multi(operations) => {
            for operation in operations {
                writer::multi_header(out, write_opcode(operation).code(), Done::No, -1);
                write_op(operation, out);
            }
            writer::multi_end(out);
        }
        Request::MultiRead(reads) => {
            for read in reads {
                let (opcode, path) = match read {
                    ReadOp::GetData { path } => (Opcode::GetData, Some(path)),
                    ReadOp::GetChildren { path } => (Opcode::GetChildren, Some(path)),
                    ReadOp::Unreadable => (Opcode::GetData, None),
                };
                writer::multi_header(out, opcode.code(), Done::No, -1);
                writer::nullable_text(out, path);
                writer::bool(out, false);
            }
            writer::multi_end(out);
        }
        Request::Exists { path, watch }
        | Request::GetData { path, watch }
        | Request::GetChildren { path, watch, .. } => {
            writer::text(out, path);
            writer::bool(out, *watch);
        }
        Request::GetAcl { path } | Request::GetAllChildrenNumber { path } | Request::GetTtl { path } => {
            writer::text(out, path);
        }
        Request::GetEphemerals { prefix: path } | Request::Sync { path } => writer::nullable_text(out, path.as_ref()),
        Request::Auth { scheme, auth } => {
            out.put_i32(0);
            writer::nullable_text(out, scheme.as_ref());
            writer::buffer(out, auth.as_deref());
        }
        Request::SetWatches(watches) => {
            out.put_i64(watches.relative_zxid);
            for paths in [&watches.data, &watches.exist, &watches.child] {
                writer::texts(out, paths);
            }
            if !(watches.persistent.is_empty() && watches.persistent_recursive.is_empty()) {
                writer::texts(out, &watches.persistent);
                writer::texts(out, &watches.persistent_recursive);
            }
        }
        Request::AddWatch { path, mode } => {
            writer::text(out, path);
            out.put_i32(match mode {
                AddWatchMode::Persistent => 0,
                AddWatchMode::PersistentRecursive => 1,
            });
        }
        Request::CheckWatches { path, kind } | Request::RemoveWatches { path, kind } => {
            writer::text(out, path);
            out.put_i32(match kind {
                WatcherType::Children => 1,
                WatcherType::Data => 2,
                WatcherType::Any => 3,
                WatcherType::Persistent => 4,
                WatcherType::PersistentRecursive => 5,
            });
        }
        Request::Sasl => writer::buffer(out, None),
        Request::Reconfig => {
            for _server_list in 0..3 {
                writer::buffer(out, None);
            }
            out.put_i64(-1);
        }
        Request::Ping | Request::WhoAmI | Request::CloseSession | Request::Malformed { .. } | Request::Unknown => {}
    }
}

fn write_op(operation: &WriteOp, out: &mut BytesMut) {
    match operation {
        WriteOp::Create(create) => {
            writer::text(out, &create.path);
            writer::buffer(out, create.data.as_deref());
            acl(create.acl.as_deref(), out);
            out.put_i32(create_flags(create.mode));
            match create.mode {
                CreateMode::Valid { kind: CreateKind::Ttl { ttl_ms }, .. } => out.put_u64(ttl_ms),
                CreateMode::Unimplemented => out.put_u64(1),
                CreateMode::Valid { .. } | CreateMode::BadArguments | CreateMode::Mismatched => {}
            }
        }
        WriteOp::Delete { path, version } | WriteOp::Check { path, version } => {
            writer::text(out, path);
            out.put_i32(*version);
        }
        WriteOp::SetData { path, data, version } => {
            writer::text(out, path);
            writer::buffer(out, data.as_deref());
            out.put_i32(*version);
        }
        WriteOp::SetAcl { path, acl: entries, version } => {
            writer::text(out, path);
            acl(entries.as_deref(), out);
            out.put_i32(*version);
        }
    }
}

fn acl(entries: Option<&[RequestedAcl]>, out: &mut BytesMut) {
    match entries {
        Some(entries) => writer::vector(out, entries, |out, entry| {
            out.put_i32(entry.perms.0);
            writer::nullable_text(out, entry.scheme.as_ref());
            writer::nullable_text(out, entry.id.as_ref());
        }),
        None => out.put_i32(-1),
    }
}

/// Header of every server message after the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The request's xid; -1 for a watch event, -2 for a ping.
    pub xid: i32,
    /// The last zxid that the server had applied.
    pub zxid: i64,
    /// 0 or an error code. With an error, clients read no body.
    pub error: i32,
}

impl Header {
    /// Length in bytes.
    pub const BYTES: usize = 16;

    /// Reads the header at the start of `frame`.
    ///
    /// For clients that count answers without decoding the bodies.
    ///
    /// # Errors
    /// The header is cut short.
    pub fn of(frame: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; Self::BYTES] = frame.first_chunk().ok_or(Malformed)?;
        let [x0, x1, x2, x3, z0, z1, z2, z3, z4, z5, z6, z7, e0, e1, e2, e3] = *bytes;
        Ok(Self {
            xid: i32::from_be_bytes([x0, x1, x2, x3]),
            zxid: i64::from_be_bytes([z0, z1, z2, z3, z4, z5, z6, z7]),
            error: i32::from_be_bytes([e0, e1, e2, e3]),
        })
    }
}

/// Returns the first frame of `bytes` without its length; `None` while it is incomplete.
///
/// `bytes` is left unchanged.
///
/// # Errors
/// As [`split_frame`](super::split_frame).
pub fn first_frame(bytes: &[u8], max: usize) -> Result<Option<&[u8]>, FrameError> {
    Ok(announced(bytes, max)?.and_then(|length| bytes.get(4..4 + length)))
}

/// Reads the header and leaves the body.
///
/// # Errors
/// The header is cut short.
pub fn decode_header(reader: &mut Reader) -> Result<Header, Malformed> {
    Ok(Header { xid: reader.i32()?, zxid: reader.i64()?, error: reader.i32()? })
}

/// The form of a successful reply's body. It follows from the request; the wire does not name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of Reply's variants")]
pub enum Shape {
    Empty,
    Path,
    PathStat,
    Stat,
    Data,
    Names,
    NamesStat,
    Acl,
    Count,
    Ttl,
    Synced,
    NullToken,
    Ids,
    WatchAdded,
    Multi,
    MultiRead,
}

impl Shape {
    /// Returns the shape of a successful answer to `request`.
    pub fn of(request: &Request) -> Self {
        match request {
            Request::Write(WriteOp::Create(create)) if create_opcode(create) == Opcode::Create => Self::Path,
            Request::Write(WriteOp::Create(_)) => Self::PathStat,
            Request::Write(WriteOp::SetData { .. } | WriteOp::SetAcl { .. }) | Request::Exists { .. } => Self::Stat,
            Request::GetData { .. } => Self::Data,
            Request::GetChildren { with_stat: true, .. } => Self::NamesStat,
            Request::GetChildren { with_stat: false, .. } | Request::GetEphemerals { .. } => Self::Names,
            Request::GetAcl { .. } => Self::Acl,
            Request::GetAllChildrenNumber { .. } => Self::Count,
            Request::GetTtl { .. } => Self::Ttl,
            Request::Sync { .. } => Self::Synced,
            Request::Sasl => Self::NullToken,
            Request::WhoAmI => Self::Ids,
            Request::AddWatch { .. } => Self::WatchAdded,
            Request::Multi(_) => Self::Multi,
            Request::MultiRead(_) => Self::MultiRead,
            Request::Write(WriteOp::Delete { .. } | WriteOp::Check { .. })
            | Request::Ping
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. }
            | Request::Reconfig
            | Request::CloseSession
            | Request::Malformed { .. }
            | Request::Unknown => Self::Empty,
        }
    }
}

/// Decodes the reply to a request with the given shape.
///
/// Error codes that only other servers know become SYSTEMERROR.
///
/// # Errors
/// The body is cut short or contains an unknown value.
pub fn decode_reply(frame: Bytes, shape: Shape) -> Result<(Header, Result<Reply, ErrorCode>), Malformed> {
    let mut reader = Reader::new(frame);
    let header = decode_header(&mut reader)?;
    let result = if header.error == 0 { Ok(reply(shape, &mut reader)?) } else { Err(error_code(header.error)) };
    Ok((header, result))
}

/// Decodes a watch event: a message whose xid is -1.
///
/// # Errors
/// The message is not a watch event.
pub fn decode_event(frame: Bytes) -> Result<WatchEvent, Malformed> {
    let mut reader = Reader::new(frame);
    let header = decode_header(&mut reader)?;
    let kind = match (header.xid, reader.i32()?) {
        (super::XID_EVENT, 1) => EventKind::NodeCreated,
        (super::XID_EVENT, 2) => EventKind::NodeDeleted,
        (super::XID_EVENT, 3) => EventKind::NodeDataChanged,
        (super::XID_EVENT, 4) => EventKind::NodeChildrenChanged,
        _ => return Err(Malformed),
    };
    let _keeper_state = reader.i32()?;
    Ok(WatchEvent { kind, path: reader.text()?, zxid: header.zxid })
}

fn reply(shape: Shape, reader: &mut Reader) -> Read<Reply> {
    let names = |reader: &mut Reader| Ok(reader.texts()?.unwrap_or_default().into());
    Ok(match shape {
        Shape::Empty => Reply::Empty,
        Shape::Path => Reply::Path(reader.text()?),
        Shape::PathStat => Reply::PathStat(reader.text()?, reader.stat()?),
        Shape::Stat => Reply::Stat(reader.stat()?),
        Shape::Data => Reply::Data(reader.buffer()?, reader.stat()?),
        Shape::Names => Reply::Names(names(reader)?),
        Shape::NamesStat => Reply::NamesStat(names(reader)?, reader.stat()?),
        Shape::Acl => Reply::Acl(
            reader
                .vector(
                    |reader| {
                        reader.i32()?;
                        reader.skip_text()?;
                        reader.skip_text()
                    },
                    |reader| Ok(AclEntry { perms: Perms(reader.i32()?), scheme: reader.text()?, id: reader.text()? }),
                )?
                .unwrap_or_default(),
            reader.stat()?,
        ),
        Shape::Count => Reply::Count(reader.i32()?),
        // -1: none.
        Shape::Ttl => Reply::Ttl(TimeToLive {
            ttl_ms: u64::try_from(reader.i64()?).ok(),
            left_ms: u64::try_from(reader.i64()?).ok(),
        }),
        Shape::Synced => Reply::Synced(reader.nullable_text()?),
        Shape::NullToken => {
            reader.buffer()?;
            Reply::NullToken
        }
        Shape::Ids => Reply::Ids(
            reader
                .vector(
                    |reader| {
                        reader.skip_text()?;
                        reader.skip_text()
                    },
                    |reader| Ok(AuthId { scheme: reader.text()?, id: reader.text()? }),
                )?
                .unwrap_or_default(),
        ),
        Shape::WatchAdded => {
            reader.i32()?;
            Reply::WatchAdded
        }
        Shape::Multi => Reply::Multi(results(reader, op_result)?),
        Shape::MultiRead => Reply::MultiRead(results(reader, read_result)?),
    })
}

fn results<T>(reader: &mut Reader, result: fn(i32, &mut Reader) -> Read<T>) -> Read<Vec<T>> {
    let mut results = Vec::new();
    loop {
        let code = reader.i32()?;
        let done = reader.bool()?;
        let _error = reader.i32()?;
        if done {
            return Ok(results);
        }
        results.push(result(code, reader)?);
    }
}

fn op_result(code: i32, reader: &mut Reader) -> Read<OpResult> {
    if code == -1 {
        let error = reader.i32()?;
        return Ok(OpResult::Failed((error != 0).then(|| error_code(error))));
    }
    match Opcode::from_code(code) {
        Some(Opcode::Create) => Ok(OpResult::Create(reader.text()?)),
        Some(Opcode::Create2) => Ok(OpResult::CreateStat(reader.text()?, reader.stat()?)),
        Some(Opcode::Delete) => Ok(OpResult::Delete),
        Some(Opcode::SetData) => Ok(OpResult::SetData(reader.stat()?)),
        Some(Opcode::Check) => Ok(OpResult::Check),
        _ => Err(Malformed),
    }
}

fn read_result(code: i32, reader: &mut Reader) -> Read<ReadResult> {
    if code == -1 {
        return Ok(ReadResult::Failed(error_code(reader.i32()?)));
    }
    match Opcode::from_code(code) {
        Some(Opcode::GetData) => Ok(ReadResult::Data(reader.buffer()?, reader.stat()?)),
        Some(Opcode::GetChildren) => Ok(ReadResult::Children(reader.texts()?.unwrap_or_default().into())),
        _ => Err(Malformed),
    }
}

fn error_code(code: i32) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or(ErrorCode::SystemError)
}
