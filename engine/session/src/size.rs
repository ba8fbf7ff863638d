//! The size of a request on the wire. In-process sessions obey the same bound as sockets.

use bytes::Bytes;
use zoolet_model::{ReadOp, Request, RequestedAcl, Text, WriteOp};

/// Wire bytes of a request's header and the fixed part of its body, rounded up.
const FIXED_BYTES: u64 = 32;

/// Returns the size of a request in bytes.
pub(super) fn request_bytes(request: &Request) -> u64 {
    FIXED_BYTES
        + match request {
            Request::Write(op) => op_bytes(op),
            Request::Multi(ops) => ops.iter().map(|op| FIXED_BYTES + op_bytes(op)).sum(),
            Request::MultiRead(reads) => reads
                .iter()
                .map(|read| match read {
                    ReadOp::GetData { path } | ReadOp::GetChildren { path } => FIXED_BYTES + text_bytes(path),
                    ReadOp::Unreadable => FIXED_BYTES,
                })
                .sum(),
            Request::Auth { scheme, auth } => optional(scheme.as_ref()) + data_bytes(auth.as_ref()),
            Request::SetWatches(watches) => {
                [&watches.data, &watches.exist, &watches.child, &watches.persistent, &watches.persistent_recursive]
                    .into_iter()
                    .flatten()
                    .map(text_bytes)
                    .sum()
            }
            // All others have one path at most.
            other => other.path().map_or(0, text_bytes),
        }
}

fn op_bytes(op: &WriteOp) -> u64 {
    match op {
        WriteOp::Create(create) => {
            text_bytes(&create.path) + data_bytes(create.data.as_ref()) + acl_bytes(create.acl.as_deref())
        }
        WriteOp::Delete { path, .. } | WriteOp::Check { path, .. } => text_bytes(path),
        WriteOp::SetData { path, data, .. } => text_bytes(path) + data_bytes(data.as_ref()),
        WriteOp::SetAcl { path, acl, .. } => text_bytes(path) + acl_bytes(acl.as_deref()),
    }
}

fn acl_bytes(acl: Option<&[RequestedAcl]>) -> u64 {
    acl.unwrap_or_default().iter().map(|entry| 4 + optional(entry.scheme.as_ref()) + optional(entry.id.as_ref())).sum()
}

fn text_bytes(text: &Text) -> u64 {
    4 + text.as_bytes().len() as u64
}

fn optional(text: Option<&Text>) -> u64 {
    text.map_or(4, text_bytes)
}

fn data_bytes(data: Option<&Bytes>) -> u64 {
    4 + data.map_or(0, |data| data.len() as u64)
}
