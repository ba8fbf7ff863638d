//! The server's encoding of replies and watch events (surface 2).

use super::XID_EVENT;
use super::opcode::Opcode;
use super::writer::{self, Done};
use bytes::{BufMut, BytesMut};
use zoolet_model::{AclEntry, ErrorCode, OpResult, ReadResult, Reply, TimeToLive, WatchEvent};

/// KeeperState.SyncConnected, the only state that a server ever sends (surface 5.1).
const SYNC_CONNECTED: i32 = 3;

/// Appends the answer to one request.
///
/// An error is a header without a body, except for a multiRead that broke off.
pub fn encode_reply(xid: i32, zxid: i64, result: &Result<Reply, ErrorCode>, out: &mut BytesMut) {
    writer::frame(out, |out| match result {
        Ok(reply) => {
            let error = reply.error().map_or(0, ErrorCode::code);
            header(xid, zxid, error, out);
            body(reply, out);
        }
        Err(error) => header(xid, zxid, error.code(), out),
    });
}

/// Appends a watch event.
pub fn encode_event(event: &WatchEvent, out: &mut BytesMut) {
    writer::frame(out, |out| {
        header(XID_EVENT, event.zxid, 0, out);
        out.put_i32(event.kind as i32);
        out.put_i32(SYNC_CONNECTED);
        writer::text(out, &event.path);
    });
}

fn header(xid: i32, zxid: i64, error: i32, out: &mut BytesMut) {
    let mut bytes = [0; 16];
    let mut rest = &mut bytes[..];
    rest.put_i32(xid);
    rest.put_i64(zxid);
    rest.put_i32(error);
    out.put_slice(&bytes);
}

fn body(reply: &Reply, out: &mut BytesMut) {
    match reply {
        Reply::Empty => {}
        Reply::Path(path) => writer::text(out, path),
        Reply::PathStat(path, stat) => {
            writer::text(out, path);
            writer::stat(out, stat);
        }
        Reply::Stat(stat) => writer::stat(out, stat),
        Reply::Data(data, stat) => {
            writer::buffer(out, data.as_deref());
            writer::stat(out, stat);
        }
        Reply::Names(names) => writer::names(out, names),
        Reply::NamesStat(names, stat) => {
            writer::names(out, names);
            writer::stat(out, stat);
        }
        Reply::Acl(acl, stat) => {
            writer::vector(out, acl, acl_entry);
            writer::stat(out, stat);
        }
        Reply::Count(count) => out.put_i32(*count),
        Reply::Ttl(TimeToLive { ttl_ms, left_ms }) => {
            out.put_i64(optional(*ttl_ms));
            out.put_i64(optional(*left_ms));
        }
        Reply::Synced(path) => writer::nullable_text(out, path.as_ref()),
        Reply::NullToken => writer::buffer(out, None),
        Reply::Ids(ids) => writer::vector(out, ids, |out, id| {
            writer::text(out, &id.scheme);
            writer::text(out, &id.id);
        }),
        Reply::WatchAdded => out.put_i32(0),
        Reply::Multi(results) => {
            results.iter().for_each(|result| multi_result(result, out));
            writer::multi_end(out);
        }
        Reply::MultiRead(results) | Reply::MultiReadBroken(results) => {
            results.iter().for_each(|result| multi_read_result(result, out));
            writer::multi_end(out);
        }
    }
}

/// Returns a number of milliseconds; -1 for none.
fn optional(ms: Option<u64>) -> i64 {
    ms.map_or(-1, |ms| i64::try_from(ms).unwrap_or(i64::MAX))
}

fn acl_entry(out: &mut BytesMut, entry: &AclEntry) {
    out.put_i32(entry.perms.0);
    writer::text(out, &entry.scheme);
    writer::text(out, &entry.id);
}

fn multi_result(result: &OpResult, out: &mut BytesMut) {
    match result {
        OpResult::Create(path) => {
            done(Opcode::Create, out);
            writer::text(out, path);
        }
        OpResult::CreateStat(path, stat) => {
            done(Opcode::Create2, out);
            writer::text(out, path);
            writer::stat(out, stat);
        }
        OpResult::Delete => done(Opcode::Delete, out),
        OpResult::SetData(stat) => {
            done(Opcode::SetData, out);
            writer::stat(out, stat);
        }
        OpResult::Check => done(Opcode::Check, out),
        OpResult::Failed(error) => failed(error.map_or(0, ErrorCode::code), out),
    }
}

fn multi_read_result(result: &ReadResult, out: &mut BytesMut) {
    match result {
        ReadResult::Data(data, stat) => {
            done(Opcode::GetData, out);
            writer::buffer(out, data.as_deref());
            writer::stat(out, stat);
        }
        ReadResult::Children(names) => {
            done(Opcode::GetChildren, out);
            writer::names(out, names);
        }
        ReadResult::Failed(error) => failed(error.code(), out),
    }
}

fn done(opcode: Opcode, out: &mut BytesMut) {
    writer::multi_header(out, opcode.code(), Done::No, 0);
}

/// Appends a failed result. Its code appears twice: in the header and as the body.
fn failed(code: i32, out: &mut BytesMut) {
    writer::multi_header(out, -1, Done::No, code);
    out.put_i32(code);
}
