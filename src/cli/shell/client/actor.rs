//! The task that owns a session: connections, requests in flight, watches and identities.

use super::link::{Greeted, Held, Link};
use super::probe::{self, Found};
use super::registered::Registered;
use super::rooted::Root;
use super::servers::{self, Failed, Server, Servers};
use super::{Connect, Event, Sink, State, Status, role};
use crate::cli::shell::failure::{Failure, code};
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::select;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zoolet_model::{AddWatchMode, EventKind, Reply, Request, Text, WatcherType};
use zoolet_transport::wire::client_side::{Header, Shape, decode_event, decode_reply, encode_request};
use zoolet_transport::wire::{Malformed, Opcode, XID_EVENT, XID_PING};

/// Xids that ZooKeeper reserves.
const XID_AUTH: i32 = -4;
const XID_SET_WATCHES: i32 = -8;
/// Maximum time for which requests wait for a server that is there but does not serve.
const ELECTION_MAX: Duration = Duration::from_secs(5);
/// Pause between two rounds over the list of servers.
const RETRY_AFTER: Duration = Duration::from_millis(500);

type Answer = oneshot::Sender<Result<Reply, Failure>>;

/// An order of a caller.
pub(super) enum Order {
    Ask {
        request: Request,
        path: Option<String>,
        answer: Answer,
    },
    Reconfigure {
        body: Bytes,
        answer: Answer,
    },
    Auth {
        scheme: Text,
        auth: Bytes,
        answer: oneshot::Sender<Result<(), Failure>>,
    },
    /// Asks the server of the connection for its role and kind, unless it was asked before.
    Introduce,
    /// Asks whether the session has identities beside its address.
    HasIdentity {
        answer: oneshot::Sender<bool>,
    },
    /// Lists the persistent watches of a znode.
    Watches {
        path: Text,
        answer: oneshot::Sender<Vec<AddWatchMode>>,
    },
    /// Forgets watches without the server; answers whether there were any.
    Forget {
        path: Text,
        kind: WatcherType,
        answer: oneshot::Sender<bool>,
    },
    Close {
        answer: oneshot::Sender<()>,
    },
}

/// A request that was sent.
struct Sent {
    xid: i32,
    shape: Shape,
    /// The request, if its answer may change the watches.
    request: Option<Request>,
    path: Option<String>,
    lists_paths: bool,
    answer: Answer,
}

pub(super) struct Actor {
    connect: Connect,
    sink: Sink,
    root: Root,
    inbox: mpsc::UnboundedReceiver<Order>,
    status: watch::Sender<Status>,
    servers: Servers,
    /// The pause before the next probe for a server that accepts writes.
    probe_pause: Duration,
    session: Option<Held>,
    last_zxid: i64,
    last_xid: i32,
    watches: Registered,
    identities: Vec<(Text, Bytes)>,
    sent: VecDeque<Sent>,
    /// Identities of which the server has not said whether it knows them.
    unproven: VecDeque<Option<oneshot::Sender<Result<(), Failure>>>>,
    /// Whether the server of this connection was asked for its role and kind.
    has_asked_server: bool,
    /// Answers when the session has ended.
    closing: Option<oneshot::Sender<()>>,
}

impl Actor {
    pub(super) fn new(
        connect: Connect,
        sink: Sink,
        root: Root,
        inbox: mpsc::UnboundedReceiver<Order>,
    ) -> (Self, watch::Receiver<Status>) {
        let (status, known) = watch::channel(Status {
            state: State::Connecting,
            connection: 0,
            server: String::new(),
            why: String::new(),
            introduction: None,
        });
        let servers = Servers::new(connect.address.servers.clone(), connect.timeout);
        let actor = Self {
            connect,
            sink,
            root,
            inbox,
            status,
            servers,
            probe_pause: probe::PAUSE_MIN,
            session: None,
            last_zxid: 0,
            last_xid: 0,
            watches: Registered::default(),
            identities: Vec::new(),
            sent: VecDeque::new(),
            unproven: VecDeque::new(),
            has_asked_server: false,
            closing: None,
        };
        (actor, known)
    }

    /// Runs until the session is closed.
    pub(super) async fn run(mut self) {
        while let Some(mut link) = self.reach().await {
            let broken = self.serve(&mut link).await;
            if self.closing.is_some() || self.inbox.is_closed() {
                break;
            }
            self.on_lost(&broken);
        }
        self.status.send_modify(|status| status.state = State::Closed);
        self.say("Closed", "None", None, -1);
        if let Some(answer) = self.closing.take() {
            let _ = answer.send(());
        }
    }

    /// Connects to the next server that answers; `None` once no caller is left.
    async fn reach(&mut self) -> Option<Link> {
        let began = Instant::now();
        loop {
            self.servers.begin_round();
            let failed = match self.try_round().await {
                Ok(link) => return Some(link),
                Err(failed) => failed,
            };
            let why = servers::report(&failed);
            self.status.send_modify(|status| status.why.clone_from(&why));
            // A server that closes connections is starting, or in an election.
            let has_closing = failed.iter().any(|failed| failed.error.kind() == io::ErrorKind::UnexpectedEof);
            if !has_closing || began.elapsed() > ELECTION_MAX {
                self.refuse_waiting(&why)?;
            }
            sleep(RETRY_AFTER).await;
        }
    }

    /// Tries the servers that are left in this round, up to the first that gives a session.
    async fn try_round(&mut self) -> Result<Link, Vec<Failed>> {
        let mut failed = Vec::new();
        while let Some(server) = self.servers.next().await {
            match self.try_server(server).await {
                Ok(link) => return Ok(link),
                Err(failure) => failed.push(failure),
            }
        }
        Err(failed)
    }

    async fn try_server(&mut self, server: Result<Server, Failed>) -> Result<Link, Failed> {
        let server = server?;
        let mut greeted = Link::open(&server, &self.connect, self.session.as_ref(), self.last_zxid).await;
        if matches!(greeted, Ok(Greeted::Expired))
            && let Some(held) = self.session.take()
        {
            // A read-only session had no ephemerals, and ends when its server has a leader.
            if !held.is_read_only {
                self.say("Expired", "None", None, -1);
            }
            greeted = Link::open(&server, &self.connect, None, self.last_zxid).await;
        }
        match greeted {
            Ok(Greeted::Session(link, held)) => Ok(self.on_connected(*link, held, server.name)),
            Ok(Greeted::Expired) => Err(server.failed(io::Error::other("it refuses a new session"))),
            Err(error) => Err(server.failed(error)),
        }
    }

    fn on_connected(&mut self, mut link: Link, held: Held, server: String) -> Link {
        let state = if held.is_read_only { State::ConnectedReadOnly } else { State::Connected };
        if state == State::Connected {
            self.probe_pause = probe::PAUSE_MIN;
        }
        for (scheme, auth) in &self.identities {
            encode_auth(scheme, auth, &mut link.out);
            self.unproven.push_back(None);
        }
        for watches in self.watches.again(self.last_zxid) {
            encode_request(XID_SET_WATCHES, &Request::SetWatches(watches), &mut link.out);
        }
        self.session = Some(held);
        let connection = self.status.borrow().connection + 1;
        self.status.send_replace(Status { state, connection, server, why: String::new(), introduction: None });
        self.has_asked_server = false;
        if self.connect.asks_role {
            self.ask_server(&link);
        }
        let name = if state == State::Connected { "SyncConnected" } else { "ConnectedReadOnly" };
        self.say(name, "None", None, -1);
        link
    }

    fn on_lost(&mut self, broken: &io::Error) {
        let server = self.status.borrow().server.clone();
        let why = format!("lost {server}: {broken}");
        for sent in std::mem::take(&mut self.sent) {
            let unknown = if is_write(&sent) { "; the change may have happened" } else { "" };
            let _ = sent.answer.send(Err(loss(sent.path, &format!("{why}{unknown}"))));
        }
        let unproven = std::mem::take(&mut self.unproven);
        let first = self.identities.len().saturating_sub(unproven.len());
        // Backwards, so that a removal moves none of those that are still to be looked at.
        for (place, answer) in unproven.into_iter().enumerate().rev() {
            let Some(answer) = answer else { continue };
            // A server may refuse an identity by closing: sent again, it would end each connection.
            self.identities.remove(first + place);
            let _ = answer.send(Err(loss(None, &format!("{why}; the identity is not used"))));
        }
        self.status.send_modify(|status| {
            status.state = State::Connecting;
            status.introduction = None;
            status.why = why;
        });
        self.say("Disconnected", "None", None, -1);
    }

    /// Refuses orders that wait for a connection; `None` once no caller is left.
    fn refuse_waiting(&mut self, why: &str) -> Option<()> {
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Ask { path, answer, .. }) => _ = answer.send(Err(loss(path, why))),
                Ok(Order::Reconfigure { answer, .. }) => _ = answer.send(Err(loss(None, why))),
                Ok(Order::Auth { answer, .. }) => _ = answer.send(Err(loss(None, why))),
                Ok(Order::Introduce) => {}
                Ok(Order::HasIdentity { answer }) => _ = answer.send(self.has_identity()),
                Ok(Order::Watches { path, answer }) => _ = answer.send(self.watches.persistent(&path)),
                Ok(Order::Forget { path, kind, answer }) => _ = answer.send(self.forget(&path, kind)),
                Ok(Order::Close { answer }) => {
                    self.closing = Some(answer);
                    return None;
                }
                Err(mpsc::error::TryRecvError::Empty) => return Some(()),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
            }
        }
    }

    /// Serves one connection until it breaks or the session is closed.
    async fn serve(&mut self, link: &mut Link) -> io::Error {
        let mut searches = self.search();
        loop {
            // A request in flight would lose its answer.
            let may_move = self.sent.is_empty() && self.unproven.is_empty() && self.closing.is_none();
            let frame = select! {
                Some(Ok(found)) = searches.join_next(), if may_move => return self.leave_for(found),
                order = self.inbox.recv() => {
                    match order {
                        Some(order) => self.on_order(order, link),
                        None => return io::ErrorKind::Interrupted.into(),
                    }
                    continue;
                }
                frame = link.frame() => frame,
            };
            let handled = match frame {
                Ok(frame) => self.on_frame(frame),
                Err(error) => return error,
            };
            if let Err(malformed) = handled {
                return io::Error::new(io::ErrorKind::InvalidData, malformed);
            }
        }
    }

    /// Begins to look for a server that accepts writes, if this one does not; dropping the result ends that.
    fn search(&self) -> JoinSet<Found> {
        let mut searches = JoinSet::new();
        if self.is_read_only() {
            searches.spawn(probe::find_writable(self.servers.clone(), self.probe_pause));
        }
        searches
    }

    /// Leaves this server for one that accepts writes; returns why the connection ends.
    fn leave_for(&mut self, found: Found) -> io::Error {
        // Only the server without a leader knows this session.
        self.session = None;
        self.probe_pause = found.pause;
        let why = format!("{} accepts writes, so the session moves there", found.server.name);
        self.servers.prefer(found.server);
        io::Error::other(why)
    }

    fn on_order(&mut self, order: Order, link: &mut Link) {
        match order {
            // The caller has given up: Ctrl-C.
            Order::Ask { answer, .. } if answer.is_closed() => {}
            Order::Reconfigure { answer, .. } if answer.is_closed() => {}
            // ZooKeeper closes a connection that sends this request.
            Order::Ask { request: Request::GetTtl { .. }, path, answer } if !self.serves_zoolet() => {
                let _ = answer.send(Err(refused(code::UNIMPLEMENTED, path)));
            }
            Order::Ask { request, path, answer } => {
                let xid = self.next_xid();
                encode_request(xid, &request, &mut link.out);
                let (shape, lists_paths) = (Shape::of(&request), matches!(request, Request::GetEphemerals { .. }));
                self.sent.push_back(Sent { xid, shape, request: Some(request), path, lists_paths, answer });
            }
            Order::Reconfigure { body, answer } => {
                let xid = self.next_xid();
                encode_reconfig(xid, &body, &mut link.out);
                let (path, shape) = (None, Shape::Data);
                self.sent.push_back(Sent { xid, shape, request: None, path, lists_paths: false, answer });
            }
            Order::Auth { scheme, auth, answer } => {
                encode_auth(&scheme, &auth, &mut link.out);
                self.identities.push((scheme, auth));
                self.unproven.push_back(Some(answer));
            }
            Order::Introduce => self.ask_server(link),
            Order::HasIdentity { answer } => _ = answer.send(self.has_identity()),
            Order::Watches { path, answer } => _ = answer.send(self.watches.persistent(&path)),
            Order::Forget { path, kind, answer } => _ = answer.send(self.forget(&path, kind)),
            Order::Close { answer } => {
                let xid = self.next_xid();
                encode_request(xid, &Request::CloseSession, &mut link.out);
                self.closing = Some(answer);
            }
        }
    }

    fn ask_server(&mut self, link: &Link) {
        if !std::mem::replace(&mut self.has_asked_server, true) {
            let connection = self.status.borrow().connection;
            tokio::spawn(role::learn(link.peer, connection, self.status.clone()));
        }
    }

    /// Returns whether the session has identities beside its address.
    fn has_identity(&self) -> bool {
        self.identities.iter().any(|(scheme, _)| scheme != "ip")
    }

    /// Returns whether the server of this connection is known to be zoolet.
    fn serves_zoolet(&self) -> bool {
        self.status.borrow().introduction.as_ref().is_some_and(|introduction| introduction.is_zoolet)
    }

    fn on_frame(&mut self, frame: Bytes) -> Result<(), Malformed> {
        let header = Header::of(&frame)?;
        match header.xid {
            XID_EVENT => self.on_event(frame)?,
            XID_PING | XID_SET_WATCHES => {}
            XID_AUTH => self.on_auth(header.error),
            _ => self.on_answer(header, frame)?,
        }
        Ok(())
    }

    fn on_event(&mut self, frame: Bytes) -> Result<(), Malformed> {
        let event = decode_event(frame)?;
        self.watches.fire(event.kind, &event.path);
        let kind = match event.kind {
            EventKind::NodeCreated => "NodeCreated",
            EventKind::NodeDeleted => "NodeDeleted",
            EventKind::NodeDataChanged => "NodeDataChanged",
            EventKind::NodeChildrenChanged => "NodeChildrenChanged",
        };
        self.say(self.connected_name(), kind, Some(self.root.inner(&event.path)), event.zxid);
        Ok(())
    }

    /// A refused identity also ends the connection, so it is not sent again.
    fn on_auth(&mut self, error: i32) {
        let waiting = self.unproven.len();
        let answer = self.unproven.pop_front().flatten();
        if error == 0 {
            answer.map(|answer| answer.send(Ok(())));
            return;
        }
        let place = self.identities.len().checked_sub(waiting);
        let refused = place.map(|place| self.identities.remove(place));
        self.say("AuthFailed", "None", None, -1);
        let scheme = refused.map_or_else(Text::default, |(scheme, _)| scheme);
        let why = format!("the server refuses this identity of the scheme {scheme}; it is not used any more");
        answer.map(|answer| answer.send(Err(Failure::Refused { code: code::AUTH_FAILED, path: None, why })));
    }

    fn on_answer(&mut self, header: Header, frame: Bytes) -> Result<(), Malformed> {
        self.last_zxid = self.last_zxid.max(header.zxid);
        // The answer to the end of the session is the last one, and nothing waits for it here.
        let Some(sent) = self.sent.pop_front() else { return Ok(()) };
        if sent.xid != header.xid {
            return Err(Malformed);
        }
        let answer = if header.error == 0 {
            decode_reply(frame, sent.shape)?.1.map_err(|code| refused(code.code(), sent.path.clone()))
        } else {
            Err(refused(header.error, sent.path.clone()))
        };
        if let Some(request) = &sent.request {
            self.note_watches(request, header.error);
        }
        let _ = sent.answer.send(answer.map(|reply| self.root.reply(sent.lists_paths, reply)));
        Ok(())
    }

    fn note_watches(&mut self, request: &Request, error: i32) {
        if error == 0
            && let Request::RemoveWatches { path, kind } = request
        {
            self.forget(path, *kind);
        } else if error == 0 || error == code::NO_NODE {
            self.watches.note(request, error == 0);
        }
    }

    /// Forgets the watches of a path, and reports each; returns whether there were any.
    fn forget(&mut self, path: &Text, kind: WatcherType) -> bool {
        let removed = self.watches.remove(path, kind);
        for kind in &removed {
            self.say(self.connected_name(), kind, Some(self.root.inner(path)), -1);
        }
        !removed.is_empty()
    }

    fn is_read_only(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_read_only)
    }

    fn connected_name(&self) -> &'static str {
        if self.is_read_only() { "ConnectedReadOnly" } else { "SyncConnected" }
    }

    fn say(&self, state: &'static str, kind: &'static str, path: Option<String>, zxid: i64) {
        (self.sink)(Event { state, kind, path, zxid });
    }

    fn next_xid(&mut self) -> i32 {
        self.last_xid = if self.last_xid == i32::MAX { 1 } else { self.last_xid + 1 };
        self.last_xid
    }
}

fn is_write(sent: &Sent) -> bool {
    matches!(sent.request, Some(Request::Write(_) | Request::Multi(_)) | None)
}

fn refused(code: i32, path: Option<String>) -> Failure {
    Failure::Refused { code, path, why: String::new() }
}

fn loss(path: Option<String>, why: &str) -> Failure {
    Failure::Refused { code: code::CONNECTION_LOSS, path, why: why.to_owned() }
}

fn encode_auth(scheme: &Text, auth: &Bytes, out: &mut BytesMut) {
    let request = Request::Auth { scheme: Some(scheme.clone()), auth: Some(auth.clone()) };
    encode_request(XID_AUTH, &request, out);
}

/// Appends a reconfiguration, whose lists the codec does not keep.
fn encode_reconfig(xid: i32, body: &Bytes, out: &mut BytesMut) {
    out.put_i32(i32::try_from(8 + body.len()).unwrap_or(i32::MAX));
    out.put_i32(xid);
    out.put_i32(Opcode::Reconfig.code());
    out.put_slice(body);
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, connect};
    use super::*;
    use std::sync::Arc;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn silent_address_does_not_hide_another_one_of_the_same_name() {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Fake::default().start().await;
        let (_orders, inbox) = mpsc::unbounded_channel();
        let connect = Connect { timeout: Duration::from_secs(2), ..connect(&[&fake]) };
        let (mut actor, status) = Actor::new(connect, Arc::new(|_| {}), Root::default(), inbox);
        actor.servers.take("db:2181", vec![mute.local_addr().unwrap(), fake.address]);
        let link = actor.try_round().await.ok().unwrap();
        assert_eq!((link.peer, status.borrow().server.as_str()), (fake.address, "db:2181"));
    }
}
