//! Conversion of requests to entries: values that depend on configuration or connection are
//! resolved here.

use crate::record::acl::Identity;
use crate::txn::{Op, Txn};
use bytes::Bytes;
use zoolet_model::{
    Class, Create, CreateKind, CreateMode, ErrorCode, Path, Request, SessionId, TTL_MAX_MS, Text, WriteOp, path,
};

/// Calls `then` with the entry for a request of this session.
///
/// Without `ttl_znodes`, creates with a time to live are refused.
pub(super) fn with_txn<R>(
    session: SessionId,
    identity: &Identity,
    request: &Request,
    ttl_znodes: bool,
    then: impl FnOnce(&Txn<'_>) -> R,
) -> R {
    match request.class() {
        Class::CloseSession => then(&Txn::CloseSession { session }),
        Class::Write(write) => {
            let acl = resolve_acl(identity, write);
            let op = op(session, write, &acl, ttl_znodes);
            then(&Txn::Write { session, identity: identity.clone(), op })
        }
        Class::Multi(writes) => {
            let acls: Vec<_> = writes.iter().map(|write| resolve_acl(identity, write)).collect();
            let ops = writes.iter().zip(&acls).map(|(write, acl)| op(session, write, acl, ttl_znodes)).collect();
            then(&Txn::Multi { session, identity: identity.clone(), ops })
        }
        Class::Refusal(code) => then(&refusal(session, code)),
        // Nothing else becomes an entry.
        Class::Read(_)
        | Class::Sync
        | Class::Ping
        | Class::SetWatches(_)
        | Class::Watches
        | Class::Identities
        | Class::Malformed
        | Class::Unknown => then(&refusal(session, ErrorCode::MarshallingError)),
    }
}

/// Returns the entry of a request that already failed. Applying it reports `code`.
pub(super) fn refusal(session: SessionId, code: ErrorCode) -> Txn<'static> {
    Txn::Write { session, identity: Identity::default(), op: Op::Refused(code) }
}

fn resolve_acl(identity: &Identity, write: &WriteOp) -> Result<Bytes, ErrorCode> {
    match write {
        WriteOp::Create(Create { acl, .. }) | WriteOp::SetAcl { acl, .. } => identity.resolve(acl.as_deref()),
        WriteOp::Delete { .. } | WriteOp::SetData { .. } | WriteOp::Check { .. } => Ok(Bytes::new()),
    }
}

/// Runs the checks that need no state, in ZooKeeper's order (surface 2.3). A failed request is
/// ordered all the same.
fn op<'a>(session: SessionId, write: &'a WriteOp, acl: &'a Result<Bytes, ErrorCode>, ttl_znodes: bool) -> Op<'a> {
    check_op(session, write, acl, ttl_znodes).unwrap_or_else(Op::Refused)
}

fn check_op<'a>(
    session: SessionId,
    write: &'a WriteOp,
    acl: &'a Result<Bytes, ErrorCode>,
    ttl_znodes: bool,
) -> Result<Op<'a>, ErrorCode> {
    let acl = |()| acl.as_deref().map_err(|code| *code);
    match write {
        WriteOp::Create(Create { path, data, mode, with_stat, .. }) => {
            let (kind, sequential) = match *mode {
                CreateMode::Unimplemented => return Err(ErrorCode::Unimplemented),
                CreateMode::Valid { kind: CreateKind::Ttl { .. }, .. } if !ttl_znodes => {
                    return Err(ErrorCode::Unimplemented);
                }
                // The client port has checked this; a session in this process comes without it.
                CreateMode::Valid { kind: CreateKind::Ttl { ttl_ms }, .. } if !(1..=TTL_MAX_MS).contains(&ttl_ms) => {
                    return Err(ErrorCode::BadArguments);
                }
                // A local session cannot own it. ZooKeeper says so before it looks at the path.
                CreateMode::Valid { kind: CreateKind::Ephemeral, .. } if session.is_named_local() => {
                    return Err(ErrorCode::EphemeralOnLocalSession);
                }
                CreateMode::Valid { kind, sequential } => (kind, sequential),
                CreateMode::BadArguments => return Err(ErrorCode::BadArguments),
                CreateMode::Mismatched => return Err(ErrorCode::MarshallingError),
            };
            let acl = glance(path).and_then(acl)?;
            Ok(Op::Create { path, data: data.as_deref(), acl, kind, sequential, with_stat: *with_stat })
        }
        WriteOp::Delete { path, version } => {
            glance(path)?;
            let reserved = [Path::ROOT, Path::ZOOKEEPER, Path::QUOTA, Path::CONFIG];
            if reserved.iter().any(|reserved| reserved.as_str() == path.as_str()) {
                return Err(ErrorCode::BadArguments);
            }
            Ok(Op::Delete { path, version: *version })
        }
        WriteOp::SetData { path, data, version } => {
            validate(path).map(|()| Op::SetData { path, data: data.as_deref(), version: *version })
        }
        WriteOp::SetAcl { path, version, .. } => {
            let acl = validate(path).and_then(acl)?;
            Ok(Op::SetAcl { path, acl, version: *version })
        }
        WriteOp::Check { path, version } => validate(path).map(|()| Op::Check { path, version: *version }),
    }
}

/// Applies the cheap path check that create and delete make before looking up the parent.
fn glance(path: &Text) -> Result<(), ErrorCode> {
    if path.contains('/') && !path.contains('\0') { Ok(()) } else { Err(ErrorCode::BadArguments) }
}

fn validate(path: &Text) -> Result<(), ErrorCode> {
    if path::is_valid(path) { Ok(()) } else { Err(ErrorCode::BadArguments) }
}
