//! Operations that are carried out together, or not at all.

use super::client::{Session, unexpected};
use super::failure::{Failure, code};
use bytes::Bytes;
use zoolet_model::{
    AclEntry, AskedAcl, Create, CreateKind, CreateMode, Reply, Request, RequestedAcl, WriteOp, first_failure,
};

/// Bytes of one request that a server takes by default: `jute.maxbuffer`, `frame_bytes_max`.
pub(super) const FRAME_BYTES: usize = 1_048_575;
/// Bytes of an operation beside its path, data and ACL, at most.
const OVERHEAD: usize = 48;

/// Operations of one multi.
#[derive(Default)]
pub(super) struct Multi {
    operations: Vec<WriteOp>,
    bytes: usize,
}

impl Multi {
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the number of operations.
    pub(super) fn count(&self) -> usize {
        self.operations.len()
    }

    /// Returns the bytes of the request, at most.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, operation: WriteOp) {
        self.bytes += bytes(&operation);
        self.operations.push(operation);
    }

    /// Sends the operations, and waits for the answer.
    ///
    /// # Errors
    /// An operation is refused, with its path: nothing was changed. Or the connection is lost.
    pub(super) fn run(self, session: &Session) -> Result<(), Failure> {
        if self.operations.is_empty() {
            return Ok(());
        }
        let paths: Vec<String> = self.operations.iter().map(|operation| path(operation).to_owned()).collect();
        match session.ask(Request::Multi(self.operations)) {
            Ok(Reply::Multi(results)) => match first_failure(&results) {
                None => Ok(()),
                Some((at, code)) => {
                    let path = paths.get(at).cloned();
                    Err(Failure::Refused { code: code.code(), path, why: String::new() })
                }
            },
            Ok(_) => Err(unexpected()),
            Err(Failure::Refused { code: code::CONNECTION_LOSS, path, why }) => {
                let why = format!(
                    "{why}\nthe request had {} bytes; a server closes the connection if its frame_bytes_max or \
                     jute.maxbuffer is smaller",
                    self.bytes
                );
                Err(Failure::Refused { code: code::CONNECTION_LOSS, path, why })
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Returns an operation that creates a znode.
pub(super) fn creation(path: &str, data: Option<Bytes>, acl: &[AclEntry], kind: CreateKind) -> WriteOp {
    let mode = CreateMode::Valid { kind, sequential: false };
    WriteOp::Create(Create { path: path.into(), data, acl: Some(requested(acl)), mode, with_stat: false })
}

/// Returns an ACL as a client requests it.
pub(super) fn requested(acl: &[AclEntry]) -> AskedAcl {
    let entry = |entry: &AclEntry| RequestedAcl {
        perms: entry.perms,
        scheme: Some(entry.scheme.clone()),
        id: Some(entry.id.clone()),
    };
    acl.iter().map(entry).collect::<Vec<_>>().into()
}

fn path(operation: &WriteOp) -> &str {
    match operation {
        WriteOp::Create(Create { path, .. })
        | WriteOp::Delete { path, .. }
        | WriteOp::SetData { path, .. }
        | WriteOp::SetAcl { path, .. }
        | WriteOp::Check { path, .. } => path,
    }
}

fn bytes(operation: &WriteOp) -> usize {
    let acl_bytes = |acl: &Option<AskedAcl>| -> usize {
        let text = |text: &Option<zoolet_model::Text>| text.as_ref().map_or(0, |text| text.len());
        let entries = acl.as_deref().unwrap_or_default();
        entries.iter().map(|entry| 12 + text(&entry.scheme) + text(&entry.id)).sum()
    };
    let data_bytes = |data: &Option<Bytes>| data.as_ref().map_or(0, Bytes::len);
    let more = match operation {
        WriteOp::Create(create) => data_bytes(&create.data) + acl_bytes(&create.acl),
        WriteOp::SetData { data, .. } => data_bytes(data),
        WriteOp::SetAcl { acl, .. } => acl_bytes(acl),
        WriteOp::Delete { .. } | WriteOp::Check { .. } => 0,
    };
    OVERHEAD + path(operation).len() + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use zoolet_model::open_acl;
    use zoolet_transport::wire::client_side::encode_request;

    #[test]
    fn bytes_of_a_multi_are_at_least_those_of_its_frame() {
        let mut multi = Multi::default();
        for number in 0..50 {
            let path = format!("/some/path/{number}");
            multi.add(creation(
                &path,
                Some(Bytes::from(vec![7; number * 10])),
                &open_acl(),
                CreateKind::Ttl { ttl_ms: 5 },
            ));
            multi.add(creation(&path, None, &open_acl(), CreateKind::Persistent));
            multi.add(WriteOp::SetData {
                path: path.as_str().into(),
                data: Some(Bytes::from(vec![7; number])),
                version: 1,
            });
            multi.add(WriteOp::Check { path: path.as_str().into(), version: 1 });
            multi.add(WriteOp::Delete { path: path.as_str().into(), version: 1 });
        }
        let mut frame = BytesMut::new();
        encode_request(1, &Request::Multi(multi.operations.clone()), &mut frame);
        assert!(multi.bytes() >= frame.len() && multi.bytes() < frame.len() * 2, "{} {}", multi.bytes(), frame.len());
    }
}
