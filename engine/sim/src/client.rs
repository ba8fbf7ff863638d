//! One client of a [`Machine`]: what it asks for, and the answer as soon as there is one.
//!
//! For tests of one claim at a time. They panic when the server stops or does not answer, because a test that cannot go on has failed.

use crate::disk::SimDisk;
use crate::machine::{Machine, Stopped, Told};
use bytes::Bytes;
use zoolet_engine::{ConnId, Event, Limits, Now};
use zoolet_model::{
    ConnectReply, ConnectRequest, Create, CreateKind, CreateMode, ErrorCode, Reply, Request, RequestedAcl, Text,
    WriteOp,
};

/// When a test begins.
pub const NOW: Now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };

/// The connection of a test that needs only one.
pub const CONN: ConnId = ConnId(1);

/// The session timeout that such a client asks for, milliseconds.
pub const TIMEOUT_MS: i32 = 9000;

impl Machine {
    /// Starts on what the disk holds, at [`NOW`], with a client on [`CONN`] that has a session of its own.
    pub fn connected(disk: &SimDisk, limits: Limits) -> Self {
        let mut machine = going_on(Self::start(disk, limits, NOW));
        machine.connect(CONN, ConnectRequest::for_new_session(TIMEOUT_MS));
        machine
    }

    /// Opens a connection; everything said before is forgotten.
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

    /// Asks on [`CONN`] and gives the answer; a write may have waited for a checkpoint.
    ///
    /// # Errors
    /// Whatever the server answered.
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

    /// [`Machine::ask`] for a write.
    ///
    /// # Errors
    /// Whatever the server answered.
    pub fn write(&mut self, op: WriteOp) -> Result<Reply, ErrorCode> {
        self.ask(Request::Write(op))
    }
}

fn going_on<T>(done: Result<T, Stopped>) -> T {
    done.unwrap_or_else(|Stopped(why)| panic!("the server stopped: {why}"))
}

/// A znode with this many bytes of data, open to everybody.
pub fn create(path: impl Into<Text>, bytes: usize, kind: CreateKind) -> WriteOp {
    WriteOp::Create(Create {
        path: path.into(),
        data: Some(Bytes::from(vec![b'x'; bytes])),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind, sequential: false },
        with_stat: false,
    })
}

/// Other data for a znode, whatever its version.
pub fn set(path: impl Into<Text>, bytes: usize) -> WriteOp {
    WriteOp::SetData { path: path.into(), data: Some(Bytes::from(vec![b'y'; bytes])), version: -1 }
}

/// The end of a znode, whatever its version.
pub fn delete(path: impl Into<Text>) -> WriteOp {
    WriteOp::Delete { path: path.into(), version: -1 }
}
