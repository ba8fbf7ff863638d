//! The server's side of the handshake, which has no headers (surface 1.3, 1.4).

use super::reader::{Malformed, Reader};
use super::writer;
use bytes::{BufMut, Bytes, BytesMut};
use zoolet_model::{ConnectReply, ConnectRequest, SessionId};

/// Decodes the first frame of a connection.
///
/// As in ZooKeeper, the protocol version and the bytes after the read-only byte are ignored.
///
/// # Errors
/// A field is cut short: the connection must close.
pub fn decode_connect(frame: Bytes) -> Result<ConnectRequest, Malformed> {
    let mut reader = Reader::new(frame);
    let _protocol_version = reader.i32()?;
    Ok(ConnectRequest {
        last_zxid_seen: reader.i64()?,
        timeout_ms: reader.i32()?,
        session: SessionId(reader.i64()?),
        password: reader.buffer()?,
        // Clients before 3.4 end here.
        read_only: reader.bool().ok(),
    })
}

/// Appends the answer to a connect request.
///
/// The read-only byte at the end is present only if the client sent one. The C client always reads
/// 16 bytes of password and ignores the length field.
pub fn encode_connect_reply(reply: &ConnectReply, out: &mut BytesMut) {
    writer::frame(out, |out| {
        out.put_i32(0);
        out.put_i32(reply.timeout_ms);
        out.put_i64(reply.session.0);
        writer::buffer(out, Some(&reply.secret.0));
        if reply.read_only_byte {
            writer::bool(out, reply.read_only_ms.is_some());
        }
    });
}
