//! Translates requests to calls of the client, and its answers to replies.

use bytes::Bytes;
use std::time::Duration;
use zookeeper_client as zk;
use zoolet_model::{
    Class, Create, CreateKind, CreateMode, ErrorCode, Names, OpResult, Perms, Read, Reply, Request, RequestError,
    RequestedAcl, Stat, Text, WriteOp,
};

/// Default limit of a server for one request, in bytes.
///
/// ZooKeeper closes the connection of a client that exceeds it, and would again after every
/// reconnect.
const REQUEST_BYTES_MAX: usize = 0xf_ffff;

/// Bytes of an operation besides path and data: lengths, version, flags and header. The ACL is
/// counted apart.
const OP_BYTES: usize = 64;

/// Whether the request exceeds a server's default limit.
pub(super) fn is_too_large(request: &Request) -> bool {
    let bytes = |op: &WriteOp| {
        OP_BYTES
            + match op {
                WriteOp::Create(create) => {
                    create.path.len()
                        + create.data.as_ref().map_or(0, Bytes::len)
                        + create.acl.as_deref().map_or(0, acl_bytes)
                }
                WriteOp::SetData { path, data, .. } => path.len() + data.as_ref().map_or(0, Bytes::len),
                WriteOp::SetAcl { path, acl, .. } => path.len() + acl.as_deref().map_or(0, acl_bytes),
                WriteOp::Delete { path, .. } | WriteOp::Check { path, .. } => path.len(),
            }
    };
    request.ops().iter().map(bytes).sum::<usize>() > REQUEST_BYTES_MAX
}

fn acl_bytes(acl: &[RequestedAcl]) -> usize {
    let text = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.len());
    acl.iter().map(|entry| 12 + text(&entry.scheme) + text(&entry.id)).sum()
}

/// The outcome of a request.
pub(super) struct Performed {
    pub(super) answer: Result<Reply, RequestError>,
    /// Whether the answer came through the leader. A refusal by the client proves nothing about a
    /// server.
    pub(super) is_leaders: bool,
}

/// Performs one request. It is handed to the client before this is pending for the first time.
pub(super) async fn perform(client: &zk::Client, request: &Request) -> Performed {
    let (answer, is_through_leader) = match request {
        Request::Write(op) => (write(client, op).await, true),
        Request::Multi(ops) => match collected(client, ops) {
            Ok(writer) => (multi(writer, ops).await.map(Reply::Multi), !ops.is_empty()),
            Err(refused) => (refused.map(Reply::Multi), false),
        },
        Request::Sync { path } => {
            // The server only echoes the path, and the client cannot send null.
            let synced = client.sync(path.as_deref().unwrap_or("/")).await.map_err(error);
            (synced.map(|()| Reply::Synced(path.clone())), true)
        }
        other => (read(client, other).await, false),
    };
    Performed { is_leaders: is_through_leader && answer.is_ok(), answer }
}

async fn read(client: &zk::Client, request: &Request) -> Result<Reply, RequestError> {
    let Class::Read(read) = request.class() else { return Err(UNIMPLEMENTED) };
    match read {
        Read::Exists { path, .. } => match client.check_stat(path).await.map_err(error)? {
            Some(there) => Ok(Reply::Stat(stat(&there))),
            None => Err(RequestError::Refused(ErrorCode::NoNode)),
        },
        Read::GetData { path, .. } => {
            let (content, there) = client.get_data(path).await.map_err(error)?;
            Ok(Reply::Data(data(content), stat(&there)))
        }
        Read::GetChildren { path, with_stat: false, .. } => {
            client.list_children(path).await.map(|children| Reply::Names(names(children))).map_err(error)
        }
        Read::GetChildren { path, with_stat: true, .. } => {
            let (children, there) = client.get_children(path).await.map_err(error)?;
            Ok(Reply::NamesStat(names(children), stat(&there)))
        }
        Read::GetAcl { .. }
        | Read::GetEphemerals { .. }
        | Read::GetAllChildrenNumber { .. }
        | Read::GetTtl { .. }
        | Read::MultiRead(_) => Err(UNIMPLEMENTED),
    }
}

const UNIMPLEMENTED: RequestError = RequestError::Refused(ErrorCode::Unimplemented);

/// Performs a read that watches.
///
/// The watch is registered if the read succeeded, and for `Exists` also if there is no znode.
pub(super) async fn perform_watching(
    client: &zk::Client,
    request: &Request,
) -> (Result<Reply, RequestError>, Option<zk::OneshotWatcher>) {
    let answer = match request {
        Request::Exists { path, .. } => client.check_and_watch_stat(path).await.map(|(there, watcher)| {
            let answer = there.map(|there| Reply::Stat(stat(&there)));
            (answer.ok_or(RequestError::Refused(ErrorCode::NoNode)), Some(watcher))
        }),
        Request::GetData { path, .. } => client
            .get_and_watch_data(path)
            .await
            .map(|(content, there, watcher)| (Ok(Reply::Data(data(content), stat(&there))), Some(watcher))),
        Request::GetChildren { path, with_stat: false, .. } => client
            .list_and_watch_children(path)
            .await
            .map(|(children, watcher)| (Ok(Reply::Names(names(children))), Some(watcher))),
        Request::GetChildren { path, with_stat: true, .. } => client
            .get_and_watch_children(path)
            .await
            .map(|(children, there, watcher)| (Ok(Reply::NamesStat(names(children), stat(&there))), Some(watcher))),
        other => {
            debug_assert!(false, "{other:?} watches nothing");
            return (Err(UNIMPLEMENTED), None);
        }
    };
    answer.unwrap_or_else(|failed| (Err(error(failed)), None))
}

async fn write(client: &zk::Client, op: &WriteOp) -> Result<Reply, RequestError> {
    match op {
        WriteOp::Create(create) => {
            let acls = acls(create.acl.as_deref())?;
            let options = options(create, &acls)?;
            let content = create.data.as_deref().unwrap_or_default();
            let (made, sequence) = client.create(&create.path, content, &options).await.map_err(error)?;
            let path = match create.mode {
                CreateMode::Valid { sequential: true, .. } => format!("{}{sequence}", create.path).into(),
                _ => create.path.clone(),
            };
            Ok(if create.with_stat { Reply::PathStat(path, stat(&made)) } else { Reply::Path(path) })
        }
        WriteOp::Delete { path, version } => {
            client.delete(path, Some(*version)).await.map(|()| Reply::Empty).map_err(error)
        }
        WriteOp::SetData { path, data, version } => {
            let content = data.as_deref().unwrap_or_default();
            let there = client.set_data(path, content, Some(*version)).await.map_err(error)?;
            Ok(Reply::Stat(stat(&there)))
        }
        WriteOp::SetAcl { path, acl, version } => {
            let acls = acls(acl.as_deref())?;
            client.set_acl(path, &acls, Some(*version)).await.map(|there| Reply::Stat(stat(&there))).map_err(error)
        }
        // A server answers the same to a check that is alone.
        WriteOp::Check { .. } => Err(UNIMPLEMENTED),
    }
}

/// Collects the operations for sending. If the client refuses one, returns the same results as a
/// server would.
fn collected<'a>(
    client: &'a zk::Client,
    ops: &[WriteOp],
) -> Result<zk::MultiWriter<'a>, Result<Vec<OpResult>, RequestError>> {
    let mut writer = client.new_multi_writer();
    for (at, op) in ops.iter().enumerate() {
        add(&mut writer, op).map_err(|refused| match refused {
            RequestError::Refused(code) => Ok(failed(ops.len(), at, code)),
            error => Err(error),
        })?;
    }
    Ok(writer)
}

async fn multi(mut writer: zk::MultiWriter<'_>, ops: &[WriteOp]) -> Result<Vec<OpResult>, RequestError> {
    let results = match writer.commit().await {
        Ok(results) => results,
        Err(zk::MultiWriteError::RequestFailed { source }) => return Err(error(source)),
        Err(zk::MultiWriteError::OperationFailed { index, source }) => match error(source) {
            RequestError::Refused(code) => return Ok(failed(ops.len(), index, code)),
            error => return Err(error),
        },
    };
    let result = |(op, result): (&WriteOp, zk::MultiWriteResult)| match (op, result) {
        // Apache ZooKeeper gives no stat for a create in a multi, up to 3.8.0 at least.
        (WriteOp::Create(create), zk::MultiWriteResult::Create { path, stat: made })
            if create.with_stat && !made.is_invalid() =>
        {
            Ok(OpResult::CreateStat(path.into(), stat(&made)))
        }
        (_, zk::MultiWriteResult::Create { path, .. }) => Ok(OpResult::Create(path.into())),
        (_, zk::MultiWriteResult::SetData { stat: there }) => Ok(OpResult::SetData(stat(&there))),
        (_, zk::MultiWriteResult::Delete) => Ok(OpResult::Delete),
        (_, zk::MultiWriteResult::Check) => Ok(OpResult::Check),
        (_, _) => Err(RequestError::Refused(ErrorCode::MarshallingError)),
    };
    ops.iter().zip(results).map(result).collect()
}

/// Returns the results that a server gives for a multi whose operation `at` failed.
///
/// The client reports that operation alone. The results of the others follow from its position.
fn failed(ops: usize, at: usize, code: ErrorCode) -> Vec<OpResult> {
    let result = |op: usize| match op.cmp(&at) {
        std::cmp::Ordering::Less => None,
        std::cmp::Ordering::Equal => Some(code),
        std::cmp::Ordering::Greater => Some(ErrorCode::RuntimeInconsistency),
    };
    (0..ops).map(|op| OpResult::Failed(result(op))).collect()
}

fn add(writer: &mut zk::MultiWriter<'_>, op: &WriteOp) -> Result<(), RequestError> {
    match op {
        WriteOp::Create(create) => {
            let acls = acls(create.acl.as_deref())?;
            writer.add_create(&create.path, create.data.as_deref().unwrap_or_default(), &options(create, &acls)?)
        }
        WriteOp::Delete { path, version } => writer.add_delete(path, Some(*version)),
        WriteOp::SetData { path, data, version } => {
            writer.add_set_data(path, data.as_deref().unwrap_or_default(), Some(*version))
        }
        WriteOp::Check { path, version } => writer.add_check_version(path, *version),
        WriteOp::SetAcl { .. } => return Err(UNIMPLEMENTED),
    }
    .map_err(error)
}

fn options<'a>(create: &Create, acls: &'a [zk::Acl]) -> Result<zk::CreateOptions<'a>, RequestError> {
    let (kind, sequential) = match create.mode {
        CreateMode::Valid { kind, sequential } => (kind, sequential),
        CreateMode::BadArguments => return Err(RequestError::Refused(ErrorCode::BadArguments)),
        CreateMode::Unimplemented => return Err(UNIMPLEMENTED),
        CreateMode::Mismatched => return Err(RequestError::Refused(ErrorCode::MarshallingError)),
    };
    let mode = match (kind, sequential) {
        (CreateKind::Persistent | CreateKind::Ttl { .. }, false) => zk::CreateMode::Persistent,
        (CreateKind::Persistent | CreateKind::Ttl { .. }, true) => zk::CreateMode::PersistentSequential,
        (CreateKind::Ephemeral, false) => zk::CreateMode::Ephemeral,
        (CreateKind::Ephemeral, true) => zk::CreateMode::EphemeralSequential,
        (CreateKind::Container, false) => zk::CreateMode::Container,
        (CreateKind::Container, true) => return Err(RequestError::Refused(ErrorCode::BadArguments)),
    };
    let options = mode.with_acls(zk::Acls::new(acls));
    Ok(match kind {
        CreateKind::Ttl { ttl_ms } => options.with_ttl(Duration::from_millis(ttl_ms)),
        CreateKind::Persistent | CreateKind::Ephemeral | CreateKind::Container => options,
    })
}

/// A null vector is refused like an empty one, and a null scheme like an empty one.
fn acls(acl: Option<&[RequestedAcl]>) -> Result<Vec<zk::Acl>, RequestError> {
    let text = |text: &Option<Text>| text.as_ref().map_or(String::new(), |text| text.as_str().to_owned());
    let entry = |entry: &RequestedAcl| {
        let id = zk::AuthId::new(&text(&entry.scheme), &text(&entry.id));
        Ok(zk::Acl::new(permission(entry.perms)?, id))
    };
    acl.unwrap_or_default().iter().map(entry).collect()
}

/// Translates permission bits. The client knows only the five bits that have a meaning.
fn permission(perms: Perms) -> Result<zk::Permission, RequestError> {
    if perms.0 & !Perms::ALL.0 != 0 {
        return Err(UNIMPLEMENTED);
    }
    let all = [
        (Perms::READ, zk::Permission::READ),
        (Perms::WRITE, zk::Permission::WRITE),
        (Perms::CREATE, zk::Permission::CREATE),
        (Perms::DELETE, zk::Permission::DELETE),
        (Perms::ADMIN, zk::Permission::ADMIN),
    ];
    let asked = all.into_iter().filter(|(bit, _)| perms.intersects(*bit));
    Ok(asked.fold(zk::Permission::NONE, |sum, (_, permission)| sum | permission))
}

/// Reads empty data as `None`, because the client reads null as empty.
///
/// Recipes that look for the difference leave data undefined, and no recipe leaves it empty.
fn data(content: Vec<u8>) -> Option<Bytes> {
    (!content.is_empty()).then(|| content.into())
}

fn names(mut children: Vec<String>) -> Names {
    // ZooKeeper lists children in the order of a hash table.
    children.sort_unstable();
    children.iter().collect()
}

fn stat(stat: &zk::Stat) -> Stat {
    Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        ctime: stat.ctime,
        mtime: stat.mtime,
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner: stat.ephemeral_owner,
        data_length: stat.data_length,
        num_children: stat.num_children,
        pzxid: stat.pzxid,
    }
}

/// Translates the client's error.
///
/// When a connection ends, the client fails every request that it had accepted for that connection.
/// The errors differ, and some of the requests were never written. All such errors mean that the
/// outcome is unknown. A request that it had not accepted yet is sent on the next connection.
pub(super) fn error(error: zk::Error) -> RequestError {
    use zk::Error as E;
    RequestError::Refused(match error {
        E::NoNode => ErrorCode::NoNode,
        E::NoAuth => ErrorCode::NoAuth,
        E::BadVersion => ErrorCode::BadVersion,
        E::NoChildrenForEphemerals => ErrorCode::NoChildrenForEphemerals,
        E::NodeExists => ErrorCode::NodeExists,
        E::NotEmpty => ErrorCode::NotEmpty,
        E::InvalidAcl => ErrorCode::InvalidAcl,
        E::NotReadOnly => ErrorCode::NotReadOnly,
        E::NoWatcher => ErrorCode::NoWatcher,
        E::QuotaExceeded => ErrorCode::QuotaExceeded,
        E::MarshallingError => ErrorCode::MarshallingError,
        E::Unimplemented => ErrorCode::Unimplemented,
        E::ReconfigDisabled => ErrorCode::ReconfigDisabled,
        E::RuntimeInconsistent => ErrorCode::RuntimeInconsistency,
        E::BadArguments(_) => ErrorCode::BadArguments,
        // Codes that the client does not name, such as SYSTEMERROR, or does not know.
        E::UnexpectedErrorCode(code) => ErrorCode::from_code(code).unwrap_or(ErrorCode::RuntimeInconsistency),
        // The server is overloaded and dropped the request.
        E::Throttled => return RequestError::Busy,
        E::SessionExpired => return RequestError::Lost(zoolet_model::LostReason::Expired),
        E::AuthFailed => return RequestError::AuthFailed,
        E::ClientClosed => return RequestError::Closed,
        _ => return RequestError::ConnectionLoss,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_multi_gives_each_operation_the_servers_code() {
        let codes: Vec<_> = failed(3, 1, ErrorCode::BadVersion);
        let expected = [None, Some(ErrorCode::BadVersion), Some(ErrorCode::RuntimeInconsistency)];
        assert_eq!(codes, expected.map(OpResult::Failed));
    }

    #[test]
    fn error_codes_unknown_to_the_client_library_are_kept() {
        assert_eq!(error(zk::Error::UnexpectedErrorCode(-1)), RequestError::Refused(ErrorCode::SystemError));
        assert_eq!(error(zk::Error::UnexpectedErrorCode(-2)), RequestError::Refused(ErrorCode::RuntimeInconsistency));
        assert_eq!(error(zk::Error::ConnectionLoss), RequestError::ConnectionLoss);
        assert_eq!(error(zk::Error::SessionMoved), RequestError::ConnectionLoss);
    }

    #[test]
    fn permissions_convert_bit_by_bit() {
        assert_eq!(permission(Perms::ALL), Ok(zk::Permission::ALL));
        let two = permission(Perms::READ.union(Perms::ADMIN));
        assert_eq!(two, Ok(zk::Permission::READ | zk::Permission::ADMIN));
        assert_eq!(permission(Perms(32)), Err(UNIMPLEMENTED));
    }

    #[test]
    fn request_too_large_for_a_server_is_recognized() {
        let set = |bytes: usize| {
            Request::Write(WriteOp::SetData { path: "/a".into(), data: Some(vec![0; bytes].into()), version: -1 })
        };
        assert!(!is_too_large(&set(1_000_000)));
        assert!(is_too_large(&set(1 << 20)));
    }
}
