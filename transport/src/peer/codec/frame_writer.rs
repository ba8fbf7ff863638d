//! Writes little-endian values.

use super::Kind;
use bytes::{BufMut, BytesMut};
use zoolet_machine::seam::peer::Attachment;
use zoolet_model::{SessionId, Zxid};
use zoolet_zab::{Credentials, Epoch};

/// Appends one frame; fills in its length after the body is written.
pub(super) fn frame(out: &mut BytesMut, kind: Kind, body: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32_le(0);
    out.put_u8(kind.byte());
    body(out);
    let length = length(out.len() - start - 4);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

pub(super) fn bool(out: &mut BytesMut, value: bool) {
    out.put_u8(value.into());
}

/// Appends a flag and, if it is set, the value.
pub(super) fn option<T>(out: &mut BytesMut, value: Option<T>, write: impl FnOnce(&mut BytesMut, T)) {
    bool(out, value.is_some());
    if let Some(value) = value {
        write(out, value);
    }
}

pub(super) fn count(out: &mut BytesMut, count: usize) {
    out.put_u32_le(length(count));
}

/// Appends a length and the bytes.
pub(super) fn bytes(out: &mut BytesMut, bytes: &[u8]) {
    count(out, bytes.len());
    out.put_slice(bytes);
}

/// Appends text, truncated to `max` bytes at a character boundary. Omits control characters.
pub(super) fn text(out: &mut BytesMut, text: &str, max: usize) {
    let start = out.len();
    out.put_u16_le(0);
    for character in text.chars().filter(|character| !character.is_control()) {
        if out.len() - start - 2 + character.len_utf8() > max {
            break;
        }
        out.put_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    let length = (out.len() - start - 2) as u16;
    out[start..start + 2].copy_from_slice(&length.to_le_bytes());
}

pub(super) fn epoch(out: &mut BytesMut, epoch: Epoch) {
    out.put_u32_le(epoch.as_u32());
}

pub(super) fn zxid(out: &mut BytesMut, zxid: Zxid) {
    out.put_u64_le(zxid.to_bits());
}

pub(super) fn credentials(out: &mut BytesMut, credentials: Credentials) {
    epoch(out, credentials.current);
    zxid(out, credentials.last);
}

pub(super) fn session(out: &mut BytesMut, session: SessionId) {
    out.put_i64_le(session.0);
}

pub(super) fn attachment(out: &mut BytesMut, since: Attachment) {
    epoch(out, since.epoch);
    out.put_u64_le(since.round);
}

/// Converts a length or count. No message comes near 4 GiB, because log segments are smaller.
fn length(of: usize) -> u32 {
    debug_assert!(u32::try_from(of).is_ok());
    u32::try_from(of).unwrap_or(u32::MAX)
}
