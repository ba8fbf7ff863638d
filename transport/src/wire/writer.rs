//! Writers of jute's primitives (surface 1.2).

use bytes::{BufMut, BytesMut};
use zoolet_model::{Names, Stat, Text};

/// Appends one frame: a placeholder, the body, then the length in the placeholder.
pub(crate) fn frame(out: &mut BytesMut, body: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_i32(0);
    body(out);
    let length = length(out.len() - start - 4);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

pub(crate) fn bool(out: &mut BytesMut, value: bool) {
    out.put_u8(value.into());
}

pub(crate) fn buffer(out: &mut BytesMut, value: Option<&[u8]>) {
    match value {
        Some(bytes) => {
            out.put_i32(length(bytes.len()));
            out.put_slice(bytes);
        }
        None => out.put_i32(-1),
    }
}

pub(crate) fn text(out: &mut BytesMut, value: &Text) {
    buffer(out, Some(value.as_bytes()));
}

pub(crate) fn nullable_text(out: &mut BytesMut, value: Option<&Text>) {
    buffer(out, value.map(|text| text.as_bytes().as_ref()));
}

pub(crate) fn vector<T>(out: &mut BytesMut, elements: &[T], mut write: impl FnMut(&mut BytesMut, &T)) {
    out.put_i32(length(elements.len()));
    for element in elements {
        write(out, element);
    }
}

pub(crate) fn texts(out: &mut BytesMut, elements: &[Text]) {
    vector(out, elements, text);
}

/// Appends a vector of strings that is stored in its wire encoding.
pub(crate) fn names(out: &mut BytesMut, names: &Names) {
    out.put_i32(i32::try_from(names.len()).unwrap_or(i32::MAX));
    out.put_slice(names.encoded());
}

pub(crate) fn stat(out: &mut BytesMut, stat: &Stat) {
    // Assembled on the stack: one capacity check instead of eleven.
    let mut bytes = [0; 68];
    let mut rest = &mut bytes[..];
    rest.put_i64(stat.czxid);
    rest.put_i64(stat.mzxid);
    rest.put_i64(stat.ctime);
    rest.put_i64(stat.mtime);
    rest.put_i32(stat.version);
    rest.put_i32(stat.cversion);
    rest.put_i32(stat.aversion);
    rest.put_i64(stat.ephemeral_owner);
    rest.put_i32(stat.data_length);
    rest.put_i32(stat.num_children);
    rest.put_i64(stat.pzxid);
    out.put_slice(&bytes);
}

/// Appends a MultiHeader (surface 2.4).
pub(crate) fn multi_header(out: &mut BytesMut, kind: i32, done: Done, err: i32) {
    out.put_i32(kind);
    bool(out, matches!(done, Done::Yes));
    out.put_i32(err);
}

/// Whether a MultiHeader ends the list.
#[derive(Clone, Copy)]
pub(crate) enum Done {
    Yes,
    No,
}

/// Appends the header that ends a multi, in requests and replies.
pub(crate) fn multi_end(out: &mut BytesMut) {
    multi_header(out, -1, Done::Yes, -1);
}

/// Returns a length as the wire carries it. The limits of outbound bytes are far below 2 GiB.
fn length(bytes: usize) -> i32 {
    debug_assert!(i32::try_from(bytes).is_ok());
    i32::try_from(bytes).unwrap_or(i32::MAX)
}
