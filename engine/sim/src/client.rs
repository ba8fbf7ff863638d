//! A client of a [`Machine`] that sends one request at a time and waits for its answer.
//!
//! It is for tests of one claim at a time. Its methods panic when the server stops or does not
//! answer, because the test has then failed.

use crate::disk::SimDisk;
use crate::machine::{Machine, Stopped, Told};
use bytes::Bytes;
use zoolet_machine::{ConnId, Event, Limits, Now};
use zoolet_model::{
    ConnectReply, ConnectRequest, Create, CreateKind, CreateMode, ErrorCode, Reply, Request, RequestedAcl, Text,
    WriteOp,
};

/// The time at which a test begins.
pub const NOW: Now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };

/// The connection of a test that needs only one.
pub const CONN: ConnId = ConnId(1);

/// The session timeout that this client requests, in milliseconds.
pub const TIMEOUT_MS: i32 = 9000;

impl Machine {
    /// Starts from the disk's contents at [`NOW`], with a client on [`CONN`] that has a new
    /// session.
    pub fn connected(disk: &SimDisk, limits: Limits) -> Self {
        let mut machine = going_on(Self::start(disk, limits, NOW));
        machine.connect(CONN, ConnectRequest::for_new_session(TIMEOUT_MS));
        machine
    }

    /// Opens a connection, and discards all earlier messages.
    pub fn connect(&mut self, conn: ConnId, request: ConnectRequest) -> ConnectReply {
        self.told.clear();
        going_on(self.handle(Event::Connect { conn, peer: Some([127, 0, 0, 1].into()), request }));
        going_on(self.settle());
        let reply = self.told.drain(..).find_map(|told| match told {
            Told::Connected(_, reply) => Some(reply),
            Told::Reply(..) | Told::Closed(_) => None,
        });
        reply.expect("a session")
    }

    /// Sends a request on [`CONN`] and returns the answer. A write may have waited for a
    /// checkpoint.
    ///
    /// # Errors
    /// The server's error code.
    pub fn ask(&mut self, request: Request) -> Result<Reply, ErrorCode> {
        self.told.clear();
        going_on(self.handle(Event::Request { conn: CONN, xid: 1, request }));
        going_on(self.settle());
        let result = self.told.iter().find_map(|told| match told {
            Told::Reply(_, _, _, result) => Some(result.clone()),
            Told::Connected(..) | Told::Closed(_) => None,
        });
        result.expect("an answer")
    }

    /// As [`Machine::ask`], for a write.
    ///
    /// # Errors
    /// The server's error code.
    pub fn write(&mut self, op: WriteOp) -> Result<Reply, ErrorCode> {
        self.ask(Request::Write(op))
    }
}

fn going_on<T>(done: Result<T, Stopped>) -> T {
    done.unwrap_or_else(|Stopped(why)| panic!("the server stopped: {why}"))
}

/// Returns the read of a znode without a watch.
pub fn get(path: impl Into<Text>) -> Request {
    Request::GetData { path: path.into(), watch: false }
}

/// Returns the create of a znode with `bytes` bytes of data, open to every client.
pub fn create(path: impl Into<Text>, bytes: usize, kind: CreateKind) -> WriteOp {
    WriteOp::Create(Create {
        path: path.into(),
        data: Some(Bytes::from(vec![b'x'; bytes])),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind, sequential: false },
        with_stat: false,
    })
}

/// Returns a write of other data to a znode, for any version.
pub fn set(path: impl Into<Text>, bytes: usize) -> WriteOp {
    WriteOp::SetData { path: path.into(), data: Some(Bytes::from(vec![b'y'; bytes])), version: -1 }
}

/// Returns the delete of a znode, for any version.
pub fn delete(path: impl Into<Text>) -> WriteOp {
    WriteOp::Delete { path: path.into(), version: -1 }
}
