//! The server's decoding of requests (surface 2).

use super::opcode::Opcode;
use super::reader::{Malformed, Read, Reader};
use bytes::Bytes;
use core::fmt;
use zoolet_model::{
    AddWatchMode, AskedAcl, Create, CreateKind, CreateMode, Perms, ReadOp, Request, RequestedAcl, SetWatches,
    TTL_MAX_MS, Text, WatcherType, WriteOp,
};

/// Optional features of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DecodeOptions {
    /// Whether znodes with a time to live may be created (zookeeper.extendedTypesEnabled).
    pub extended_types: bool,
}

/// The frame is too short for a request's header: the connection must close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooShort;

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("frame too short for a request")
    }
}

impl std::error::Error for TooShort {}

/// Decodes one request and its xid.
///
/// A malformed body and an unknown opcode are requests too, which the server answers with an error.
/// Bytes after the body are ignored.
///
/// # Errors
/// The header is cut short.
pub fn decode_request(frame: Bytes, options: &DecodeOptions) -> Result<(i32, Request), TooShort> {
    let mut reader = Reader::new(frame);
    let (Ok(xid), Ok(code)) = (reader.i32(), reader.i32()) else { return Err(TooShort) };
    let Some(opcode) = Opcode::from_code(code) else { return Ok((xid, Request::Unknown)) };
    let request = body(opcode, &mut reader, options);
    Ok((xid, request.unwrap_or(Request::Malformed { write: spends_a_zxid(opcode) })))
}

/// Whether a malformed request of this type still consumes a zxid.
///
/// ZooKeeper assigns the zxid to a write before it parses the write, except for reconfig (surface
/// 2.4).
fn spends_a_zxid(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Create
            | Opcode::Create2
            | Opcode::CreateContainer
            | Opcode::CreateTtl
            | Opcode::Delete
            | Opcode::SetData
            | Opcode::SetAcl
            | Opcode::Multi
    )
}

fn body(opcode: Opcode, reader: &mut Reader, options: &DecodeOptions) -> Read<Request> {
    Ok(match opcode {
        Opcode::Create | Opcode::Create2 | Opcode::CreateContainer | Opcode::CreateTtl => {
            let fields = CreateFields::read(opcode, reader)?;
            let mode = single_mode(opcode, &fields, options);
            Request::Write(WriteOp::Create(fields.with(mode, opcode != Opcode::Create)?))
        }
        Opcode::Delete => Request::Write(delete(reader)?),
        Opcode::SetData => Request::Write(set_data(path_or_none(reader)?, reader)?),
        Opcode::SetAcl => {
            Request::Write(WriteOp::SetAcl { path: path_or_none(reader)?, acl: acl(reader)?, version: reader.i32()? })
        }
        // A check outside a multi is refused since ZooKeeper 3.9.3; earlier releases never answered
        // it.
        Opcode::Check => Request::Unknown,
        Opcode::Multi => Request::Multi(multi(reader, options)?),
        Opcode::MultiRead => Request::MultiRead(multi_read(reader)?),
        Opcode::Exists => Request::Exists { path: reader.text()?, watch: reader.bool()? },
        Opcode::GetData => Request::GetData { path: reader.text()?, watch: reader.bool()? },
        Opcode::GetChildren => Request::GetChildren { path: reader.text()?, watch: reader.bool()?, with_stat: false },
        Opcode::GetChildren2 => Request::GetChildren { path: reader.text()?, watch: reader.bool()?, with_stat: true },
        Opcode::GetAcl => Request::GetAcl { path: reader.text()? },
        Opcode::GetEphemerals => Request::GetEphemerals { prefix: reader.nullable_text()? },
        Opcode::GetAllChildrenNumber => Request::GetAllChildrenNumber { path: reader.text()? },
        Opcode::GetTtl => Request::GetTtl { path: reader.text()? },
        Opcode::Sync => Request::Sync { path: reader.nullable_text()? },
        Opcode::Ping => Request::Ping,
        Opcode::Auth => {
            let _kind = reader.i32()?;
            Request::Auth { scheme: reader.nullable_text()?, auth: reader.buffer()? }
        }
        Opcode::Sasl => {
            reader.buffer()?;
            Request::Sasl
        }
        Opcode::WhoAmI => Request::WhoAmI,
        Opcode::SetWatches => Request::SetWatches(set_watches(reader)?),
        Opcode::SetWatches2 => Request::SetWatches(set_watches2(reader)?),
        Opcode::AddWatch => Request::AddWatch { path: path_or_none(reader)?, mode: add_watch_mode(reader)? },
        Opcode::CheckWatches => Request::CheckWatches { path: reader.text()?, kind: watcher_type(reader)? },
        Opcode::RemoveWatches => Request::RemoveWatches { path: path_or_none(reader)?, kind: watcher_type(reader)? },
        Opcode::Reconfig => {
            for _server_list in 0..3 {
                reader.skip_text()?;
            }
            reader.i64()?;
            Request::Reconfig
        }
        Opcode::CloseSession => Request::CloseSession,
    })
}

/// The fields common to all four creates.
struct CreateFields {
    path: Option<Text>,
    data: Option<Bytes>,
    acl: Option<AskedAcl>,
    flags: i32,
    /// -1 unless the opcode carries one.
    ttl_ms: i64,
}

impl CreateFields {
    fn read(opcode: Opcode, reader: &mut Reader) -> Read<Self> {
        let path = reader.nullable_text()?;
        Self::behind_path(path, opcode, reader)
    }

    fn behind_path(path: Option<Text>, opcode: Opcode, reader: &mut Reader) -> Read<Self> {
        Ok(Self {
            path,
            data: reader.buffer()?,
            acl: acl(reader)?,
            flags: reader.i32()?,
            ttl_ms: if opcode == Opcode::CreateTtl { reader.i64()? } else { -1 },
        })
    }

    /// Combines the fields and the mode into a create.
    ///
    /// # Errors
    /// The path is null and the mode is valid. An invalid mode is refused first.
    fn with(self, mode: CreateMode, with_stat: bool) -> Read<Create> {
        let path = match mode {
            CreateMode::Valid { .. } => self.path.ok_or(Malformed)?,
            CreateMode::BadArguments | CreateMode::Unimplemented | CreateMode::Mismatched => {
                self.path.unwrap_or_default()
            }
        };
        Ok(Create { path, data: self.data, acl: self.acl, mode, with_stat })
    }
}

/// Returns the mode of a create outside a multi (surface 2.2, 2.3).
///
/// The opcode decides the stored type, the flags decide ephemeral and sequential. The checks come
/// in ZooKeeper's order: flags, then whether times to live are enabled, then their range.
fn single_mode(opcode: Opcode, fields: &CreateFields, options: &DecodeOptions) -> CreateMode {
    let Some(flags) = Flags::from_code(fields.flags) else { return CreateMode::BadArguments };
    if flags.ttl {
        return ttl_mode(flags, fields.ttl_ms, options);
    }
    // CreateTtl with flags of another mode. ZooKeeper refuses this only if the time is not
    // negative; a negative one stops its server for good (surface 13.6).
    if opcode == Opcode::CreateTtl {
        return CreateMode::BadArguments;
    }
    let kind = match opcode {
        Opcode::CreateContainer => CreateKind::Container,
        _ if flags.ephemeral => CreateKind::Ephemeral,
        _ => CreateKind::Persistent,
    };
    CreateMode::Valid { kind, sequential: flags.sequential }
}

/// Returns the mode of a create inside a multi.
///
/// ZooKeeper 3.9 derives the opcode from the flags again.
fn multi_mode(opcode: Opcode, fields: &CreateFields, options: &DecodeOptions) -> CreateMode {
    let Some(flags) = Flags::from_code(fields.flags) else { return CreateMode::BadArguments };
    match flags {
        // ZooKeeper detects this only when the operation's turn comes, so an earlier failure hides
        // it.
        Flags { ttl: true, .. } if opcode != Opcode::CreateTtl => CreateMode::Mismatched,
        Flags { ttl: true, .. } => ttl_mode(flags, fields.ttl_ms, options),
        Flags { container: true, .. } => CreateMode::Valid { kind: CreateKind::Container, sequential: false },
        Flags { ephemeral: true, sequential, .. } => CreateMode::Valid { kind: CreateKind::Ephemeral, sequential },
        Flags { sequential, .. } => CreateMode::Valid { kind: CreateKind::Persistent, sequential },
    }
}

fn ttl_mode(flags: Flags, ttl_ms: i64, options: &DecodeOptions) -> CreateMode {
    if !options.extended_types {
        return CreateMode::Unimplemented;
    }
    match u64::try_from(ttl_ms) {
        Ok(ttl_ms) if (1..=TTL_MAX_MS).contains(&ttl_ms) => {
            CreateMode::Valid { kind: CreateKind::Ttl { ttl_ms }, sequential: flags.sequential }
        }
        _ => CreateMode::BadArguments,
    }
}

/// The create flags that name a mode.
#[derive(Clone, Copy)]
struct Flags {
    ephemeral: bool,
    sequential: bool,
    container: bool,
    ttl: bool,
}

impl Flags {
    fn from_code(flags: i32) -> Option<Self> {
        (0..=6).contains(&flags).then_some(Self {
            ephemeral: matches!(flags, 1 | 3),
            sequential: matches!(flags, 2 | 3 | 6),
            container: flags == 4,
            ttl: matches!(flags, 5 | 6),
        })
    }
}

fn delete(reader: &mut Reader) -> Read<WriteOp> {
    Ok(WriteOp::Delete { path: reader.text()?, version: reader.i32()? })
}

/// Reads a path; a null path becomes the empty one, which is invalid.
///
/// Used where ZooKeeper's parser tolerates a null path and the operation itself answers it (surface
/// 2.3).
fn path_or_none(reader: &mut Reader) -> Read<Text> {
    Ok(reader.nullable_text()?.unwrap_or_default())
}

fn set_data(path: Text, reader: &mut Reader) -> Read<WriteOp> {
    Ok(WriteOp::SetData { path, data: reader.buffer()?, version: reader.i32()? })
}

fn acl(reader: &mut Reader) -> Read<Option<AskedAcl>> {
    let entries = reader.vector(
        |reader| {
            reader.i32()?;
            reader.skip_text()?;
            reader.skip_text()
        },
        |reader| {
            Ok(RequestedAcl {
                perms: Perms(reader.i32()?),
                scheme: reader.nullable_text()?,
                id: reader.nullable_text()?,
            })
        },
    )?;
    Ok(entries.map(AskedAcl::from))
}

/// Reads the sub-requests of a multi, up to the header with `done`.
///
/// A sub-request that is not a write makes the whole multi malformed. So does a null path, because
/// ZooKeeper inspects all paths before the first operation (surface 2.4).
fn multi(reader: &mut Reader, options: &DecodeOptions) -> Read<Vec<WriteOp>> {
    let mut operations = Vec::new();
    while let Some(code) = multi_header(reader)? {
        let operation = match Opcode::from_code(code).ok_or(Malformed)? {
            opcode @ (Opcode::Create | Opcode::Create2 | Opcode::CreateContainer | Opcode::CreateTtl) => {
                let fields = CreateFields::read(opcode, reader)?;
                if fields.path.is_none() {
                    return Err(Malformed);
                }
                let mode = multi_mode(opcode, &fields, options);
                // The opcode derived from the flags decides whether the result has a Stat. A
                // create2 always has one.
                let flagged = matches!(
                    mode,
                    CreateMode::Valid { kind: CreateKind::Container | CreateKind::Ttl { .. }, .. }
                        | CreateMode::Unimplemented
                );
                WriteOp::Create(fields.with(mode, flagged || opcode == Opcode::Create2)?)
            }
            Opcode::Delete => delete(reader)?,
            Opcode::SetData => set_data(reader.text()?, reader)?,
            Opcode::Check => WriteOp::Check { path: reader.text()?, version: reader.i32()? },
            _ => return Err(Malformed),
        };
        operations.push(operation);
    }
    Ok(operations)
}

/// Reads the sub-requests of a multiRead, up to the header with `done`.
///
/// Their watch flags are ignored. ZooKeeper parses all of them before the first read, so a list
/// that does not parse, or that mixes reads and writes, is malformed. ZooKeeper detects a list of
/// writes alone, or a null path, only during execution, and breaks off there (surface 2.5).
fn multi_read(reader: &mut Reader) -> Read<Vec<ReadOp>> {
    let mut reads = Vec::new();
    let mut writes = None;
    while let Some(code) = multi_header(reader)? {
        let opcode = Opcode::from_code(code).ok_or(Malformed)?;
        let path = reader.nullable_text()?;
        let (write, read) = match opcode {
            Opcode::GetData | Opcode::GetChildren => {
                reader.bool()?;
                let read = match (opcode, path) {
                    (_, None) => ReadOp::Unreadable,
                    (Opcode::GetData, Some(path)) => ReadOp::GetData { path },
                    (_, Some(path)) => ReadOp::GetChildren { path },
                };
                (false, read)
            }
            Opcode::Create | Opcode::Create2 | Opcode::CreateContainer | Opcode::CreateTtl => {
                CreateFields::behind_path(path, opcode, reader)?;
                (true, ReadOp::Unreadable)
            }
            Opcode::Delete | Opcode::Check => {
                reader.i32()?;
                (true, ReadOp::Unreadable)
            }
            Opcode::SetData => {
                set_data(Text::EMPTY, reader)?;
                (true, ReadOp::Unreadable)
            }
            _ => return Err(Malformed),
        };
        if *writes.get_or_insert(write) != write {
            return Err(Malformed);
        }
        // Sub-requests behind an unreadable one are never carried out.
        if reads.last() != Some(&ReadOp::Unreadable) {
            reads.push(read);
        }
    }
    Ok(reads)
}

/// Reads a sub-request's header; returns its type, or `None` at the end.
fn multi_header(reader: &mut Reader) -> Read<Option<i32>> {
    let code = reader.i32()?;
    let done = reader.bool()?;
    reader.i32()?;
    Ok((!done).then_some(code))
}

fn set_watches(reader: &mut Reader) -> Read<SetWatches> {
    Ok(SetWatches {
        relative_zxid: reader.i64()?,
        data: reader.texts()?.ok_or(Malformed)?,
        exist: reader.texts()?.ok_or(Malformed)?,
        child: reader.texts()?.ok_or(Malformed)?,
        persistent: Vec::new(),
        persistent_recursive: Vec::new(),
    })
}

fn set_watches2(reader: &mut Reader) -> Read<SetWatches> {
    let one_shot = set_watches(reader)?;
    Ok(SetWatches {
        persistent: reader.texts()?.ok_or(Malformed)?,
        persistent_recursive: reader.texts()?.ok_or(Malformed)?,
        ..one_shot
    })
}

fn add_watch_mode(reader: &mut Reader) -> Read<AddWatchMode> {
    match reader.i32()? {
        0 => Ok(AddWatchMode::Persistent),
        1 => Ok(AddWatchMode::PersistentRecursive),
        _ => Err(Malformed),
    }
}

fn watcher_type(reader: &mut Reader) -> Read<WatcherType> {
    match reader.i32()? {
        1 => Ok(WatcherType::Children),
        2 => Ok(WatcherType::Data),
        3 => Ok(WatcherType::Any),
        4 => Ok(WatcherType::Persistent),
        5 => Ok(WatcherType::PersistentRecursive),
        _ => Err(Malformed),
    }
}
