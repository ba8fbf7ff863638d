//! Actions of clients, and what each connection expects.

use super::Run;
use bytes::Bytes;
use std::collections::VecDeque;
use zoolet_machine::{ConnId, Event};
use zoolet_model::{ConnectRequest, Create, CreateKind, CreateMode, Request, SessionId, SetWatches, Text, WriteOp};

/// The expectations of one connection.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Xids of its unanswered requests, in order.
    pub(super) unanswered: VecDeque<i32>,
    /// Its first message was answered.
    pub(super) connected: bool,
    /// The server said that it closes the connection.
    pub(super) closed: bool,
    /// Its session, once it has one.
    pub(super) session: SessionId,
    /// Whether it may be removing watches and setting them again.
    pub(super) removes_watches: bool,
}

impl Run {
    /// Sends a request on any connection, in any state.
    pub(super) fn request(&mut self) {
        if self.clients.values().all(|client| client.closed) && !self.random().one_in(8) {
            return self.connect();
        }
        let conn = self.some_connection();
        let last = self.server.applied().as_i64();
        let request = match self.random().below(100) {
            0..=3 => self.input.auth(),
            4 => self.input.last_request(),
            5..=9 => self.large_request(),
            _ => self.input.request(last),
        };
        self.xid = self.xid.wrapping_add(1);
        let xid = match self.random().below(30) {
            0 => *self.random().pick(&[-1, -2, -4, -8, 0, i32::MIN, i32::MAX]),
            _ => self.xid,
        };
        if let Some(client) = self.clients.get_mut(&conn)
            && !client.closed
        {
            client.unanswered.push_back(if request == Request::Ping { -2 } else { xid });
            client.removes_watches |= matches!(request, Request::RemoveWatches { .. });
        }
        self.happen(Event::Request { conn, xid, request });
    }

    fn some_connection(&mut self) -> ConnId {
        // Mostly an open connection, sometimes one that was closed, is gone, or never existed.
        let open: Vec<ConnId> =
            self.clients.iter().filter(|(_, client)| !client.closed).map(|(&conn, _)| conn).collect();
        match open.is_empty() || self.random().one_in(20) {
            true => ConnId(self.connections.wrapping_add(1).wrapping_sub(self.random().below(100))),
            false => *self.random().pick(&open),
        }
    }

    fn large_request(&mut self) -> Request {
        let many = self.random().below(300);
        let path = |number: u64| Text::from(format!("/{number}"));
        match self.random().below(4) {
            0 => {
                let data = Bytes::from(vec![b'x'; *self.random().pick(&[1024, 1025, 7000, 8192, 20_000])]);
                Request::Write(WriteOp::SetData { path: "/a".into(), data: Some(data), version: -1 })
            }
            1 => {
                let create = |number| Create {
                    path: path(number),
                    data: None,
                    acl: Some(zoolet_model::RequestedAcl::open()),
                    mode: CreateMode::Valid { kind: CreateKind::Ephemeral, sequential: false },
                    with_stat: true,
                };
                Request::Multi((0..many).map(|number| WriteOp::Create(create(number))).collect())
            }
            2 => {
                let (data, child) = ((0..many).map(path).collect(), (0..many).map(path).collect());
                Request::SetWatches(SetWatches { data, child, ..SetWatches::default() })
            }
            _ => {
                Request::MultiRead((0..many).map(|_| zoolet_model::ReadOp::GetChildren { path: "/".into() }).collect())
            }
        }
    }

    /// Opens a connection, with or without a session, and with a right or wrong password.
    pub(super) fn connect(&mut self) {
        self.connections += 1;
        let conn = ConnId(self.connections);
        let (session, password) = match (self.random().below(6), self.sessions.len()) {
            (0..=2, 1..) => {
                let count = self.sessions.len();
                let at = self.below(count);
                let (session, secret) = self.sessions[at];
                let right = !self.random().one_in(4);
                (session, Some(Bytes::copy_from_slice(if right { &secret.0 } else { &secret.0[1..] })))
            }
            (3, _) => (SessionId(self.random().bits() as i64), None),
            _ => (SessionId(0), None),
        };
        let request = ConnectRequest {
            last_zxid_seen: if self.random().one_in(20) { self.random().bits() as i64 } else { 0 },
            timeout_ms: *self.random().pick(&[10_000, 40_000, 0, -1, i32::MAX, i32::MIN]),
            session,
            password,
            read_only: [None, Some(false), Some(true)][self.below(3)],
        };
        let peer = if self.random().one_in(4) { None } else { Some([127, 0, 0, 1].into()) };
        self.clients.insert(conn, Client::default());
        self.happen(Event::Connect { conn, peer, request });
    }

    /// Ends a connection, open or closed, or one that is unknown or already gone.
    pub(super) fn disconnect(&mut self) {
        let conn = self.some_connection();
        self.clients.remove(&conn);
        self.happen(Event::Disconnected { conn });
    }
}
