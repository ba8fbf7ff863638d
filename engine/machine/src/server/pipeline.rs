//! Request pipelines: each request of a session is decided once, strictly in order.

use super::Server;
use super::admission::{Admission, need};
use super::ephemerals::{self, Room};
use super::fetches::Waiter;
use super::history::Origin;
use super::ordered;
use crate::budget::identity_bytes_max;
use crate::record::acl::Identity;
use crate::seam::action::{Action, Completion, FetchWhat};
use crate::seam::ids::ConnId;
use crate::sessions::{self, Connection, Phase, Waiting};
use crate::state::Stamp;
use crate::state::Stuck;
use crate::tree::{self, Determined, Need};
use crate::watch::WatchKind;
use std::collections::VecDeque;
use std::sync::Arc;
use zoolet_model::{AuthId, Class, ErrorCode, OneShot, Read, Reply, Request, SessionId, Text};
use zoolet_zab::{Mutation, Role, Round, mutation};

/// The xid of every ping reply, regardless of the request's xid (surface 13.1).
const PING_XID: i32 = -2;

/// Queue capacity that an idle connection keeps, in requests.
const IDLE_ROOM: usize = 16;

/// Maximum identities per connection; each of its writes carries them all.
const IDENTITIES_MAX: usize = 64;

/// Result of one step on the request at the head of a pipeline.
pub(super) enum Step {
    /// The request has an outcome or is proposed: continue with the next.
    Done,
    /// The request waits, and so do all behind it.
    Wait,
    /// Like `Wait`, but only the completion it waits for can unblock the pipeline.
    Block,
}

/// How the request at the head of a pipeline proceeds.
enum Turn {
    /// It proposes no entry: a read, watch, auth, ping or sync.
    Local,
    /// It takes its place in the order of writes: a write, a multi or the end of a session.
    Ordered,
    /// It is refused: its client is a reader, and read-only service does not include the request.
    RefuseToReader,
}

impl Server {
    pub(super) fn on_request(&mut self, conn: ConnId, xid: i32, request: Request) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if matches!(connection.phase, Phase::Leaving | Phase::Closed) {
            return;
        }
        self.requests += 1;
        connection.waiting.push_back(Waiting { number: self.requests, xid, request, done: 0, lacks_room: false });
        if self.locals.contains(connection.session) || connection.is_reader {
            self.locals.table_mut().touch(connection.session, self.now.mono_ms);
            return self.ready.push_back(conn);
        }
        self.sessions.touch(connection.session, self.now.mono_ms);
        if self.zab.role() != Role::Leading {
            connection.heard = true;
            self.touches.tell_soon(self.now.mono_ms);
        }
        self.ready.push_back(conn);
    }

    /// Runs every pipeline that has something new to do.
    pub(super) fn run_ready(&mut self) {
        if !self.touches.held_back.is_empty() && !self.is_outdated() {
            self.ready.extend(std::mem::take(&mut self.touches.held_back));
        }
        self.end_reading();
        self.resume_following();
        self.resume_after_hand_over();
        loop {
            while let Some(conn) = self.ready.pop_front() {
                let syncs = self.syncs.len();
                self.pump(conn);
                if self.syncs.len() > syncs {
                    // A server that decides alone has its answer at once.
                    self.follow_zab();
                }
            }
            let Some(conn) = self.history.waits_for_requests_of else { return };
            if self.has_requests_before_writes(conn) || self.is_next_refused(conn) {
                return;
            }
            self.history.waits_for_requests_of = None;
            self.apply_committed();
        }
    }

    fn has_requests_before_writes(&self, conn: ConnId) -> bool {
        self.connections.get(&conn).is_some_and(Connection::has_requests_before_writes)
    }

    /// Returns whether this connection's next entry may be applied.
    ///
    /// Every earlier request of the connection must have its outcome, which is usually the case
    /// already.
    pub(super) fn is_next_of(&mut self, conn: ConnId) -> bool {
        if !self.has_requests_before_writes(conn) && !self.is_next_refused(conn) {
            return true;
        }
        self.pump(conn);
        !self.has_requests_before_writes(conn) && !self.is_next_refused(conn)
    }

    fn pump(&mut self, conn: ConnId) {
        if self.is_outdated() && !self.is_reader(conn) {
            // The connection is closed when staleness is judged, unless the leader is heard first.
            self.touches.held_back.insert(conn);
            return;
        }
        self.determine(conn);
        if self.is_next_refused(conn) {
            self.answer_refused(conn);
            self.determine(conn);
        }
        self.look_ahead(conn);
    }

    /// Decides requests in order until one has to wait.
    ///
    /// A waiting request is judged many times, so it stays in the queue while it is judged.
    fn determine(&mut self, conn: ConnId) {
        loop {
            let Some(connection) = self.connections.get_mut(&conn) else { return };
            if connection.waiting.is_empty() && connection.waiting.capacity() > IDLE_ROOM {
                // Free the queue after a burst of thousands of requests: most connections are idle.
                connection.waiting = VecDeque::new();
            }
            let Some(turn) = self.connections.get(&conn).and_then(|connection| self.turn(connection)) else { return };
            let Some(connection) = self.connections.get_mut(&conn) else { return };
            let passed = connection.passed;
            let Some(mut head) = connection.pop() else { return };
            let writes_pending = !connection.proposed.is_empty();
            let step = match turn {
                Turn::Ordered => {
                    let identity = connection.identity.clone();
                    self.step_write(conn, &head, &identity, writes_pending)
                }
                Turn::Local => {
                    let identity = connection.identity.clone();
                    self.step_local(conn, &mut head, &identity)
                }
                Turn::RefuseToReader => {
                    let zxid = self.state.applied().as_i64();
                    self.done(conn, head.xid, zxid, Err(ErrorCode::NotReadOnly))
                }
            };
            let blocked = match step {
                Step::Done => continue,
                // It may wait for long, and asks for its records again then.
                Step::Wait => {
                    self.let_go(Waiter::Request(conn, head.number));
                    false
                }
                Step::Block => true,
            };
            if let Some(connection) = self.connections.get_mut(&conn) {
                connection.waiting.push_front(head);
                connection.passed = passed;
                connection.blocked = blocked;
            }
            return;
        }
    }

    /// Decides how the request at the head of a pipeline proceeds.
    ///
    /// Returns `None` if the request must wait, the pipeline is blocked or not open, or its queue is
    /// empty.
    fn turn(&self, connection: &Connection) -> Option<Turn> {
        let head = connection.waiting.front()?;
        if connection.phase != Phase::Open || connection.blocked {
            return None;
        }
        if connection.is_reader {
            if self.is_refused_to_reader(connection, &head.request) {
                return Some(Turn::RefuseToReader);
            }
        } else if self.touches.is_after_pause(head.number) || self.waits_for_leader(connection, head) {
            return None;
        }
        if head.request.class().is_ordered() {
            return Some(Turn::Ordered);
        }
        // A session sees its own earlier writes.
        (!connection.has_writes_before(head.number)).then_some(Turn::Local)
    }

    /// Proposes writes that stand behind reads which wait for an earlier write.
    ///
    /// Without this, a session that pipelines reads and writes would get one write into each log
    /// batch. The look-ahead passes over reads of a single record only, and over getData only if
    /// the data is known to be in memory. So at most a fetch of that record can delay those reads,
    /// and the entry behind them.
    fn look_ahead(&mut self, conn: ConnId) {
        loop {
            let Some(connection) = self.connections.get_mut(&conn) else { return };
            if connection.phase != Phase::Open || connection.proposed.is_empty() {
                return;
            }
            let at = connection.passed;
            let Some(Waiting { number, request, .. }) = connection.waiting.get(at) else { return };
            if self.touches.is_after_pause(*number) {
                return;
            }
            match request.class() {
                Class::Ping => connection.passed += 1,
                Class::Read(Read::Exists { path, .. } | Read::GetAcl { path } | Read::GetTtl { path }) => {
                    let missing = Need::Znode(path).missing_in(&mut self.state);
                    connection.passed += 1;
                    if let Some(what) = missing {
                        self.fetch_ahead(what);
                    }
                }
                Class::Read(Read::GetData { path, .. }) => match tree::waits_for_bytes(&mut self.state, path) {
                    Ok(false) => connection.passed += 1,
                    Ok(true) => return,
                    // Examined again at the next event of this connection.
                    Err(what) => return self.fetch_ahead(what),
                },
                Class::Write(_) | Class::Multi(_) | Class::Refusal(_) => {
                    let (births, need) = (ephemerals::births(request), need(request));
                    // The bound on ephemerals per session is checked when the write's turn comes.
                    if births > 0 || !self.takes_requests() || self.admission(need) != Admission::Go {
                        return;
                    }
                    let Some(connection) = self.connections.get_mut(&conn) else { return };
                    let (identity, write) = (connection.identity.clone(), connection.waiting.remove(at));
                    if let Some(write) = write {
                        self.propose_write(conn, &write, &identity, 0);
                    }
                }
                Class::Read(
                    Read::GetChildren { .. }
                    | Read::GetEphemerals { .. }
                    | Read::GetAllChildrenNumber { .. }
                    | Read::MultiRead(_),
                )
                | Class::CloseSession
                | Class::Sync
                | Class::SetWatches(_)
                | Class::Watches
                | Class::Identities
                | Class::Malformed
                | Class::Unknown => return,
            }
        }
    }

    /// Prefetches a record, unless too many fetches are in flight.
    fn fetch_ahead(&mut self, what: FetchWhat) {
        if !self.fetches_are_many() {
            self.fetch(what, Waiter::Nobody);
        }
    }

    /// Resumes the request at the head: its record has arrived.
    pub(super) fn unblock(&mut self, conn: ConnId, number: u64) {
        if let Some(connection) = self.connections.get_mut(&conn)
            && connection.waiting.front().is_some_and(|head| head.number == number)
        {
            connection.blocked = false;
            self.ready.push_back(conn);
        }
    }

    /// Refuses the request at the head: a record it needs cannot be read.
    pub(super) fn refuse_head(&mut self, conn: ConnId, number: u64) {
        self.let_go(Waiter::Request(conn, number));
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        // Its other fetches may fail too, after it was answered.
        if let Some(Waiting { xid, .. }) = connection.take_head(number) {
            connection.blocked = false;
            let zxid = self.state.applied().as_i64();
            self.reply(conn, xid, zxid, Err(ErrorCode::SystemError));
            self.ready.push_back(conn);
        }
    }

    /// Returns whether a request waits until requests that need a leader may go on.
    ///
    /// A ping before a proposed write does not: the write's entry waits for it, and with the entry
    /// everything that this server must apply before it serves.
    fn waits_for_leader(&self, connection: &Connection, head: &Waiting) -> bool {
        let holds_up_write = connection.proposed.back().is_some_and(|&write| head.number < write);
        head.request.class().needs_leader() && !self.takes_requests() && !holds_up_write
    }

    /// Returns whether requests that need a leader may go on.
    ///
    /// A leader that hands over lets them wait: if the hand-over fails it goes on, else its
    /// successor gets them.
    pub(super) fn takes_requests(&self) -> bool {
        self.is_serving() && !self.zab.is_handing_over()
    }

    pub(super) fn on_write_done(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.proposed.pop_front();
            if connection.proposed.is_empty() {
                connection.births = 0;
                if connection.proposed.capacity() > IDLE_ROOM {
                    connection.proposed = VecDeque::new();
                }
            }
            let is_turn = connection.proposed.is_empty() || connection.has_requests_before_writes();
            if is_turn && !connection.waiting.is_empty() {
                self.ready.push_back(conn);
            }
        }
    }

    fn step_write(&mut self, conn: ConnId, head: &Waiting, identity: &Identity, writes_pending: bool) -> Step {
        let session = self.connections.get(&conn).map_or(SessionId::NONE, |connection| connection.session);
        let is_local = self.locals.contains(session);
        if is_local && matches!(head.request, Request::CloseSession) {
            return self.close_local(conn, head);
        }
        let births = ephemerals::births(&head.request);
        let is_upgraded = self.settings.local_sessions_upgrade && !mutation::is_on(Mutation::LocalSeenAsGlobal);
        if is_local && births > 0 && is_upgraded {
            return self.upgrade(conn, head, writes_pending);
        }
        // A local session's request for ephemerals fails when it is applied.
        let births = if is_local { 0 } else { births };
        let admission = match head.request {
            // Ending a session needs almost no room and frees everything it held.
            Request::CloseSession => self.admission_of_end(),
            _ => self.admission(need(&head.request)),
        };
        match admission {
            Admission::Go => {}
            Admission::Wait => {
                self.waiting_for_room.insert(conn);
                return Step::Wait;
            }
            // Answers leave in order: this refusal waits for the writes before it.
            Admission::Refuse if writes_pending => return Step::Wait,
            Admission::Refuse => {
                // It may have waited for records before.
                self.let_go(Waiter::Request(conn, head.number));
                self.reply(conn, head.xid, self.state.applied().as_i64(), Err(ErrorCode::SystemError));
                return Step::Done;
            }
        }
        if births > 0 {
            let since = self.state.memory_ref().stamp();
            match self.room_for_ephemerals(conn, births) {
                Ok(Room::Enough) => self.let_go(Waiter::Request(conn, head.number)),
                Ok(Room::Perhaps) => return Step::Wait,
                Ok(Room::None) if writes_pending => return Step::Wait,
                Ok(Room::None) => {
                    self.let_go(Waiter::Request(conn, head.number));
                    self.reply(conn, head.xid, self.state.applied().as_i64(), Err(ErrorCode::SystemError));
                    return Step::Done;
                }
                // If the base fails this request is refused, and answers leave in order.
                Err(_) if writes_pending => return Step::Wait,
                Err(stuck) => return self.stuck(conn, head, stuck, since),
            }
        }
        self.propose_write(conn, head, identity, births);
        Step::Done
    }

    /// Proposes a write that asks for `births` ephemerals.
    fn propose_write(&mut self, conn: ConnId, write: &Waiting, identity: &Identity, births: u32) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.proposed.push_back(write.number);
        connection.births = connection.births.saturating_add(births);
        let session = self.locals.named_in_entries(connection.session);
        let is_leaving = matches!(write.request, Request::CloseSession);
        if is_leaving {
            connection.phase = Phase::Leaving;
            connection.clear();
        }
        let origin = Origin::Request { conn, xid: write.xid, number: write.number };
        let proposed = ordered::with_txn(session, identity, &write.request, self.settings.ttl_znodes, |txn| {
            let payload = self.encode(txn);
            if payload.len() > self.limits.payload_bytes_max() {
                // A small frame can produce a large entry: each `auth` ACL entry expands to one per
                // identity. No log segment could hold this one.
                return self.propose(&ordered::refusal(session, ErrorCode::BadArguments), origin);
            }
            self.propose_encoded(payload, txn, origin)
        });
        if !proposed {
            self.close(conn);
        } else if self.leads() {
            // For forwarded entries the leader records this.
            self.sessions.wrote(session, self.zab.last());
            if is_leaving {
                self.sessions.close(session);
            }
        }
    }

    /// Handles requests that propose nothing: reads, watches, auth, ping and sync.
    fn step_local(&mut self, conn: ConnId, head: &mut Waiting, identity: &Identity) -> Step {
        let zxid = self.state.applied().as_i64();
        let (xid, request) = (head.xid, &head.request);
        let (zxid, result) = match request {
            Request::Ping => return self.done(conn, PING_XID, zxid, Ok(Reply::Empty)),
            Request::Auth { scheme, auth } => return self.auth(conn, xid, scheme.as_deref(), auth.as_deref()),
            Request::Unknown => {
                self.reply(conn, xid, -1, Err(ErrorCode::Unimplemented));
                self.close(conn);
                return Step::Done;
            }
            Request::Sync { .. } => return self.sync(conn, head),
            Request::SetWatches(_) => return self.set_watches(conn, head),
            Request::Sasl => (0, Ok(Reply::NullToken)),
            Request::WhoAmI => (zxid, Ok(Reply::Ids(who(identity, self.settings.super_digest.as_deref())))),
            Request::AddWatch { path, mode } => {
                (zxid, self.watch(conn, path, (*mode).into()).map(|()| Reply::WatchAdded))
            }
            Request::CheckWatches { path, kind } => (zxid, found(self.watches.contains(conn, path, *kind))),
            Request::RemoveWatches { path, kind } => (zxid, found(self.watches.remove(conn, path, *kind))),
            Request::Malformed { .. } => (zxid, Err(ErrorCode::MarshallingError)),
            Request::Exists { .. }
            | Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::GetAcl { .. }
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::GetTtl { .. }
            | Request::MultiRead(_) => return self.read(conn, head, identity),
            Request::Write(_) | Request::Multi(_) | Request::Reconfig | Request::CloseSession => {
                // Unreachable: `determine` routes ordered requests to `step_write`.
                (zxid, Err(ErrorCode::SystemError))
            }
        };
        self.done(conn, xid, zxid, result)
    }

    pub(super) fn done(&mut self, conn: ConnId, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) -> Step {
        self.reply(conn, xid, zxid, result);
        Step::Done
    }

    fn read(&mut self, conn: ConnId, head: &Waiting, identity: &Identity) -> Step {
        // Sampled before the read, so that it is never newer than the data (surface 1.7).
        let zxid = self.state.applied().as_i64();
        let Class::Read(read) = head.request.class() else {
            return self.done(conn, head.xid, zxid, Err(ErrorCode::SystemError));
        };
        if self.completing_bytes >= u64::from(self.limits.outbound_bytes_max) && read.may_need_many_records() {
            // Completions in flight already fill one client's share of memory: wait until some were
            // sent.
            self.waiting_for_room.insert(conn);
            return Step::Wait;
        }
        let since = self.state.memory_ref().stamp();
        let Some(connection) = self.connections.get(&conn) else { return Step::Done };
        let ensemble_ms = self.history.header(self.now).ensemble_ms;
        let decided = match tree::read(&mut self.state, identity, connection.session, read, ensemble_ms) {
            Ok(decided) => decided,
            Err(stuck) => return self.stuck(conn, head, stuck, since),
        };
        self.let_go(Waiter::Request(conn, head.number));
        // The data may have become large after a write behind it was proposed. That write, and all
        // clients' writes after it, wait for this read. So this read may use twice the share: no
        // other read can claim the extra room.
        let all_wait_for_it = self.connections.get(&conn).is_some_and(|connection| !connection.proposed.is_empty());
        let room = u64::from(self.limits.outbound_bytes_max) * if all_wait_for_it { 2 } else { 1 };
        if matches!(decided, Ok(Determined::Pending(_))) && self.completing_bytes >= room {
            self.waiting_for_room.insert(conn);
            return Step::Wait;
        }
        let watched = head.request.one_shot_watch().filter(|(_, kind)| match &decided {
            Ok(_) => true,
            Err(ErrorCode::NoNode) => *kind == OneShot::Exist,
            Err(_) => false,
        });
        if let Some((path, kind)) = watched
            && let Err(full) = self.watch(conn, path, kind.into())
        {
            return self.done(conn, head.xid, zxid, Err(full));
        }
        match decided {
            Ok(Determined::Pending(mut pending)) => {
                pending.expect_paths(|| self.ephemerals_at_most(conn));
                let generation = self.state.generation();
                let bytes = pending.bytes();
                if bytes > u64::from(self.limits.outbound_bytes_max) && pending.is_many() {
                    return self.done(conn, head.xid, zxid, Err(ErrorCode::BadArguments));
                }
                self.completing_bytes += bytes;
                let completion = Completion { conn, xid: head.xid, zxid, generation, bytes, pending };
                self.actions.push_back(Action::Complete(Box::new(completion)));
                Step::Done
            }
            Ok(Determined::Reply(reply)) => self.done(conn, head.xid, zxid, Ok(reply)),
            Err(code) => self.done(conn, head.xid, zxid, Err(code)),
        }
    }

    pub(super) fn stuck(&mut self, conn: ConnId, head: &Waiting, stuck: Stuck, since: Stamp) -> Step {
        match stuck {
            Stuck::Missing(missing) => self.fetch_all(missing, Waiter::Request(conn, head.number), since),
            Stuck::Damaged(what) => self.fail(what.into()),
        }
        Step::Block
    }

    fn watch(&mut self, conn: ConnId, path: &str, kind: WatchKind) -> Result<(), ErrorCode> {
        self.watches.add(conn, path, kind).map_err(|_| ErrorCode::SystemError)
    }

    fn auth(&mut self, conn: ConnId, xid: i32, scheme: Option<&str>, proof: Option<&[u8]>) -> Step {
        let super_digest = self.settings.super_digest.as_deref();
        let names_super = sessions::names_super(scheme, proof, super_digest);
        let proved = sessions::prove(scheme, proof, super_digest);
        if names_super {
            let client = self.connections.get(&conn).and_then(|connection| connection.identity.ip);
            if !self.may_guess_super(client) {
                self.reply(conn, xid, 0, Err(ErrorCode::AuthFailed));
                self.close(conn);
                return Step::Done;
            }
            if !proved.as_ref().is_some_and(|proved| proved.is_super) {
                self.on_wrong_super(client);
            }
        }
        let bytes = |proved: &sessions::Proved| proved.id.as_ref().map_or(0, sessions::identity_bytes);
        let few = self.connections.get(&conn).is_some_and(|connection| connection.identity.ids.len() < IDENTITIES_MAX);
        let room = |proved: &sessions::Proved| {
            few && (self.identity_bytes + bytes(proved)) as u64 <= identity_bytes_max(&self.limits)
        };
        let Some(proved) = proved.filter(room) else {
            self.reply(conn, xid, 0, Err(ErrorCode::AuthFailed));
            self.close(conn);
            return Step::Done;
        };
        if let Some(connection) = self.connections.get_mut(&conn) {
            let identity = Arc::make_mut(&mut connection.identity);
            identity.is_super |= proved.is_super;
            if let Some(id) = proved.id.filter(|id| !identity.ids.contains(id)) {
                self.identity_bytes += sessions::identity_bytes(&id);
                identity.ids.push(id);
            }
        }
        self.done(conn, xid, 0, Ok(Reply::Empty))
    }

    /// Answers a sync once a quorum confirms the leader and its commits are applied here.
    ///
    /// The confirmation must start after the sync arrived. If the leader is lost meanwhile, the next
    /// one is asked.
    fn sync(&mut self, conn: ConnId, head: &Waiting) -> Step {
        let is_told = head.xid != PING_XID || self.tell_before_sync(conn);
        let Some(round) = self.confirm().filter(|_| is_told) else {
            self.close(conn);
            return Step::Done;
        };
        self.syncs.ask(conn, head.number, round);
        Step::Block
    }

    /// Starts a quorum confirmation of the leader. `None` if no leader is known.
    pub(super) fn confirm(&mut self) -> Option<Round> {
        self.zab.confirm(self.now.mono_ms).ok()
    }

    pub(super) fn is_open(&self, conn: ConnId) -> bool {
        self.connections.get(&conn).is_some_and(|connection| connection.phase != Phase::Closed)
    }

    pub(super) fn outstanding(&self) -> usize {
        self.connections.values().map(Connection::outstanding).sum()
    }
}

fn found(there: bool) -> Result<Reply, ErrorCode> {
    if there { Ok(Reply::Empty) } else { Err(ErrorCode::NoWatcher) }
}

/// Returns the identities that whoAmI shows. A digest is reduced to its user.
///
/// The super user is shown only to a client that has proved the digest. With skipACL every client
/// passes the checks, but that is no identity.
fn who(identity: &Identity, super_digest: Option<&str>) -> Vec<AuthId> {
    let entry = |scheme: &'static str, id: &str| AuthId { scheme: Text::from_static(scheme), id: id.into() };
    let mut ids: Vec<AuthId> = identity.ip.iter().map(|ip| entry("ip", &ip.to_string())).collect();
    ids.extend(identity.ids.iter().map(|AuthId { scheme, id }| {
        let shown = if *scheme == "digest" { id.split(':').next().unwrap_or_default() } else { id.as_str() };
        AuthId { scheme: scheme.clone(), id: shown.into() }
    }));
    if identity.ids.iter().any(|AuthId { scheme, id }| *scheme == "digest" && Some(&**id) == super_digest) {
        ids.push(entry("super", ""));
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_am_i_names_the_super_user_only_after_its_proof() {
        let digest = sessions::digest_id(b"super:secret");
        let id = |id: &str| AuthId { scheme: "digest".into(), id: id.into() };
        let shown = |identity: &Identity| {
            let ids = who(identity, Some(&digest)).into_iter();
            ids.map(|id| format!("{}:{}", id.scheme.as_str(), id.id.as_str())).collect::<Vec<_>>()
        };
        // With skipACL `is_super` is true from the first request.
        for is_super in [false, true] {
            let mut identity = Identity { is_super, ids: vec![id("u:x")], ..Identity::default() };
            assert_eq!(shown(&identity), ["digest:u"]);
            identity.ids.push(id(&digest));
            assert_eq!(shown(&identity), ["digest:u", "digest:super", "super:"]);
        }
    }
}
