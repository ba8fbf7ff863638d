//! Requests that are encoded once; sending copies the bytes and fills in number and key.

use bytes::{Bytes, BytesMut};
use std::ops::Range;
use zoolet_model::{Create, CreateKind, CreateMode, Request, RequestedAcl, WriteOp};
use zoolet_transport::wire::client_side::encode_request;

/// Digits of a key in its path.
pub(super) const KEY_DIGITS: usize = 8;
/// Digits of a created znode's number: as many as ZooKeeper gives a sequential znode.
pub(super) const NUMBER_DIGITS: usize = 10;
/// Offset of the path in a frame.
///
/// Before it stand the frame's length, the xid, the opcode and the path's length.
const PATH_AT: usize = 16;
const XID: Range<usize> = 4..8;

/// A request whose path ends with a number.
pub(super) struct Template {
    bytes: Vec<u8>,
    digits: Range<usize>,
}

impl Template {
    /// Encodes the request that `request` returns for the path with all digits zero.
    pub(super) fn new(prefix: &str, digits: usize, request: impl FnOnce(&str) -> Request) -> Self {
        let path = numbered(prefix, digits, 0);
        let mut bytes = BytesMut::new();
        encode_request(0, &request(&path), &mut bytes);
        let end = PATH_AT + path.len();
        debug_assert_eq!(&bytes[PATH_AT..end], path.as_bytes());
        Self { bytes: bytes.to_vec(), digits: end - digits..end }
    }

    /// Appends the request with this xid, for the path that ends with `number`.
    pub(super) fn append(&self, xid: i32, mut number: u64, out: &mut BytesMut) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let frame = &mut out[start..];
        frame[XID].copy_from_slice(&xid.to_be_bytes());
        for digit in frame[self.digits.clone()].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
}

/// Returns the path that a template writes.
pub(super) fn numbered(prefix: &str, digits: usize, number: u64) -> String {
    if digits == 0 { prefix.to_owned() } else { format!("{prefix}{number:0digits$}") }
}

pub(super) fn create(path: &str, data: &Bytes, kind: CreateKind, sequential: bool) -> WriteOp {
    WriteOp::Create(Create {
        path: path.into(),
        data: Some(data.clone()),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind, sequential },
        with_stat: false,
    })
}

pub(super) fn set(path: &str, data: &Bytes) -> WriteOp {
    WriteOp::SetData { path: path.into(), data: Some(data.clone()), version: -1 }
}

pub(super) fn delete(path: &str) -> WriteOp {
    WriteOp::Delete { path: path.into(), version: -1 }
}

pub(super) fn children(path: &str) -> Request {
    Request::GetChildren { path: path.into(), watch: false, with_stat: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_same(prefix: &str, digits: usize, request: impl Fn(&str) -> Request) {
        let template = Template::new(prefix, digits, &request);
        let (mut copied, mut encoded) = (BytesMut::new(), BytesMut::new());
        for (xid, number) in [(1, 0), (i32::MAX, 99_999_999), (7, 1234)] {
            template.append(xid, number, &mut copied);
            encode_request(xid, &request(&numbered(prefix, digits, number)), &mut encoded);
        }
        assert_eq!(copied, encoded);
    }

    #[test]
    fn patched_request_template_equals_a_fresh_encoding() {
        let data = Bytes::from_static(b"0000000000");
        assert_same("/bench/keys/k", KEY_DIGITS, |path| Request::Write(set(path, &data)));
        assert_same("/0", KEY_DIGITS, |path| Request::GetData { path: path.into(), watch: false });
        assert_same("/b/c", NUMBER_DIGITS, |path| Request::Write(create(path, &data, CreateKind::Ephemeral, false)));
        assert_same("/b/c", NUMBER_DIGITS, |path| Request::Write(delete(path)));
        assert_same("/b/s", 0, |path| Request::Write(create(path, &data, CreateKind::Persistent, true)));
        assert_same("/bench/keys", 0, children);
    }
}
