//! Exactly once: matches every entry to the request that caused it.
//!
//! An acknowledged write has exactly one entry, and a write of unknown outcome has at most one.
//! Every entry has an origin. A session's requests take effect in the order in which they were
//! made, across all its connections.

use super::facts::{Entry, Facts, Session};
use super::request::is_refused;
use super::violation::{Violation, clock};
use crate::reference::{Ids, Tree, Writer};
use std::collections::BTreeSet;
use zoolet_machine::record::acl::{self, Identity};
use zoolet_machine::txn::{Op, Txn};
use zoolet_model::{CreateMode, ErrorCode, Request, RequestedAcl, SessionId, WriteOp};

/// The origin of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The ensemble itself: a no-op, a changed timeout, a reaped znode, or meaningless bytes.
    Ensemble,
    /// A client that asked for a session.
    Session,
    /// This operation.
    Operation(usize),
    /// The session's end, without a request for it.
    Expiry,
}

/// The relation between entries and operations.
pub(super) struct Origins {
    /// For each entry, its origin.
    pub(super) of_entry: Vec<Origin>,
    /// For each operation, its entry.
    pub(super) effect: Vec<Option<usize>>,
}

/// Finds the operation of every entry.
///
/// # Errors
/// The first entry without a matching request, or the first request with more than one entry.
pub(super) fn check(facts: &Facts<'_>) -> Result<Origins, Violation> {
    let mut origins = Origins {
        of_entry: facts
            .entries
            .iter()
            .map(|entry| match entry.txn {
                Some(Txn::CreateSession { .. }) => Origin::Session,
                Some(Txn::CloseSession { .. }) => Origin::Expiry,
                // Writes without a request are found later, among their session's requests.
                Some(
                    Txn::NoOp
                    | Txn::Write { .. }
                    | Txn::Multi { .. }
                    | Txn::RenewSession { .. }
                    | Txn::UpgradeSession { .. }
                    | Txn::Reap { .. }
                    | Txn::CountUsage { .. }
                    | Txn::Membership(_),
                )
                | None => Origin::Ensemble,
            })
            .collect(),
        effect: vec![None; facts.history.operations.len()],
    };
    acknowledged_are_there(facts)?;
    for session in facts.sessions.values() {
        of_session(facts, session, &mut origins)?;
    }
    sessions_were_asked_for(facts)?;
    Ok(origins)
}

/// Returns the entry that an answer names.
fn named(facts: &Facts<'_>, operation: usize) -> Option<usize> {
    let asked = facts.operation(operation);
    let answer = asked.answer.as_ref().filter(|_| facts.is_ordered(operation) && !is_refused(asked))?;
    let entry = facts.entry_at(answer.zxid)?;
    // A client may be told without an entry that its session is gone.
    let told_gone = answer.result == Err(ErrorCode::SessionExpired);
    (!told_gone || matches(facts, operation, &facts.entries[entry])).then_some(entry)
}

fn acknowledged_are_there(facts: &Facts<'_>) -> Result<(), Violation> {
    for (at, operation) in facts.history.operations.iter().enumerate() {
        let Some(answer) = operation.answer.as_ref().filter(|_| facts.is_ordered(at)) else { continue };
        if is_refused(operation) || answer.result == Err(ErrorCode::SessionExpired) {
            continue;
        }
        let story = || Violation::of("an acknowledged write is in the history").and_operation(facts.history, at);
        let Some(entry) = facts.entry_at(answer.zxid).map(|entry| &facts.entries[entry]) else {
            return Err(story().and("no committed entry has this zxid"));
        };
        let session = facts.history.connection_of(operation).session();
        if entry.session() != session || !matches(facts, at, entry) {
            return Err(story().and(format!("the entry with this zxid is another: {:?}", entry.txn)));
        }
    }
    Ok(())
}

/// Matches a session's requests with its entries, both in order.
///
/// On each connection the acknowledged requests come first. Of the remaining ones, whose outcome is
/// unknown, a prefix took effect, because the stream to the leader breaks only once. But a server
/// may have refused some of them.
fn of_session(facts: &Facts<'_>, session: &Session, origins: &mut Origins) -> Result<(), Violation> {
    let writes: Vec<usize> =
        session.entries.iter().copied().filter(|&entry| !facts.entries[entry].is_close()).collect();
    let mut segment = Segment { facts, session, tails: Vec::new(), entries: &writes };
    let mut next = 0;
    let mut last: Option<usize> = None;
    for &connection in &session.connections {
        let mut tail = Vec::new();
        for &operation in &facts.connection(connection).operations {
            let asked = facts.operation(operation);
            if !facts.is_ordered(operation) || is_refused(asked) {
                continue;
            }
            let Some(entry) = named(facts, operation) else {
                if asked.answer.is_none() && asked.request != Request::CloseSession {
                    tail.push(operation);
                }
                continue;
            };
            let at = writes.partition_point(|&one| one < entry);
            if at < next {
                let broken = Violation::of("a session's writes take effect once, in the order in which it asked");
                let broken = broken.and_operation(facts.history, operation);
                return Err(match last {
                    Some(last) => broken
                        .and("its entry is not behind that of this one, which was asked earlier:")
                        .and_operation(facts.history, last),
                    None => broken,
                });
            }
            segment.entries = &writes[next..at];
            segment.account(origins)?;
            next = at + usize::from(writes.get(at) == Some(&entry));
            origins.claim(entry, operation);
            last = Some(operation);
        }
        segment.tails.push(tail);
    }
    segment.entries = &writes[next..];
    segment.account(origins)
}

impl Origins {
    fn claim(&mut self, entry: usize, operation: usize) {
        self.of_entry[entry] = Origin::Operation(operation);
        self.effect[operation] = Some(entry);
    }
}

/// A session's entries between two matched ones, and the requests that may have caused them.
struct Segment<'f, 'h> {
    facts: &'f Facts<'h>,
    session: &'f Session,
    /// For each connection, its unanswered requests.
    tails: Vec<Vec<usize>>,
    entries: &'f [usize],
}

impl Segment<'_, '_> {
    /// Matches the segment's entries with prefixes of its tails, then starts a new segment.
    ///
    /// Earlier tails get the longest possible prefix.
    fn account(&mut self, origins: &mut Origins) -> Result<(), Violation> {
        let mut taken = Vec::new();
        let mut hopeless = BTreeSet::new();
        if !self.search((0, 0), 0, &mut taken, &mut hopeless) {
            return Err(self.unaccounted(&hopeless));
        }
        taken.into_iter().for_each(|(operation, entry)| origins.claim(entry, operation));
        self.tails.clear();
        Ok(())
    }

    /// Tries to match the entries from index `from` on. `next` is a tail and an index in it.
    fn search(
        &self,
        next: (usize, usize),
        from: usize,
        taken: &mut Vec<(usize, usize)>,
        hopeless: &mut BTreeSet<(usize, usize, usize)>,
    ) -> bool {
        let (tail, at) = next;
        let Some(&entry) = self.entries.get(from) else { return true };
        let Some(asked) = self.tails.get(tail).filter(|_| !hopeless.contains(&(tail, at, from))) else {
            hopeless.insert((tail, at, from));
            return false;
        };
        if let Some(&operation) = asked.get(at) {
            if matches(self.facts, operation, &self.facts.entries[entry]) {
                taken.push((operation, entry));
                if self.search((tail, at + 1), from + 1, taken, hopeless) {
                    return true;
                }
                taken.pop();
            }
            if self.may_be_refused(operation, entry) && self.search((tail, at + 1), from, taken, hopeless) {
                return true;
            }
        }
        if self.search((tail + 1, 0), from, taken, hopeless) {
            return true;
        }
        hopeless.insert((tail, at, from));
        false
    }

    /// Returns whether a server may have refused this operation, so that a later one took effect.
    ///
    /// The refusing server is the operation's own or a leader. It must have refused before
    /// `behind`, the later operation's entry, was applied. A refusal is an outcome even if the
    /// client has left and never hears of it.
    fn may_be_refused(&self, operation: usize, behind: usize) -> bool {
        let (asked, behind) = (self.facts.operation(operation), &self.facts.entries[behind]);
        let history = self.facts.history;
        let own = history.refusing.get(&history.connection_of(asked).server);
        let spans = own.into_iter().flatten().chain(&history.leader_refusing);
        spans.into_iter().any(|span| span.from_us <= behind.at.us && asked.invoked.us <= span.to_us)
    }

    fn unaccounted(&self, hopeless: &BTreeSet<(usize, usize, usize)>) -> Violation {
        let furthest = hopeless.iter().map(|&(_, _, from)| from).max().unwrap_or(0);
        let entry = &self.facts.entries[self.entries[furthest]];
        let mut broken =
            Violation::of("a write has at most one entry, an entry is asked for, and nothing takes effect behind what was lost on the same connection")
                .and(format!(
                    "the entry with zxid {:#x}, applied first at {}, cannot come from any request of its session in this place: {:?}",
                    entry.zxid,
                    clock(entry.at),
                    entry.txn
                ));
        for operation in self.facts.operations_of(self.session) {
            if matches(self.facts, operation, entry) {
                broken = broken.and("the same was asked by:").and_operation(self.facts.history, operation);
            }
        }
        for operation in self.tails.iter().flatten() {
            broken = broken.and("of unknown outcome before it:").and_operation(self.facts.history, *operation);
        }
        broken
    }
}

/// Checks that a client asked for every session, with at most one session per request.
fn sessions_were_asked_for(facts: &Facts<'_>) -> Result<(), Violation> {
    let told: BTreeSet<_> = facts
        .history
        .connections
        .iter()
        .filter(|one| one.wants_new_session())
        .filter_map(|one| one.session())
        .collect();
    // Connections are in the order in which they were opened.
    let unanswered: Vec<_> =
        facts.history.connections.iter().filter(|one| one.wants_new_session() && one.reply.is_none()).collect();
    let mut unknown = 0;
    for entry in &facts.entries {
        if !matches!(entry.txn, Some(Txn::CreateSession { .. })) || told.contains(&SessionId(entry.zxid)) {
            continue;
        }
        let asked = unanswered.iter().take_while(|one| one.begun.us <= entry.at.us).count();
        unknown += 1;
        if unknown > asked {
            return Err(Violation::of("a session begins once for each time that one was asked for").and(format!(
                "{unknown} sessions were created whose clients were never told, the last one {:#x} at {}; but only {asked} \
                 clients had asked and not been answered",
                entry.zxid,
                clock(entry.at)
            )));
        }
    }
    Ok(())
}

/// Returns whether a request may have become this entry.
///
/// Everything that influences the effect must match. So if two requests match, either may be taken
/// as the origin.
pub(super) fn matches(facts: &Facts<'_>, operation: usize, entry: &Entry<'_>) -> bool {
    let request = &facts.operation(operation).request;
    let ids = facts.identities.of_operation(operation);
    match &entry.txn {
        Some(Txn::Write { session, op, identity }) => match (request, op) {
            (Request::Write(asked), op) => matches_op(*session, ids, asked, op) && is_asked_as(ids, identity),
            // A multi that is too large for an entry is refused as a whole. The load never sends
            // one, so it is not considered here. Otherwise a lost multi could pass for the entry of
            // a bad argument, and the reference would carry it out.
            (request, Op::Refused(code)) => refusal_of(request) == Some(*code),
            (_, Op::Create { .. } | Op::Delete { .. } | Op::SetData { .. } | Op::SetAcl { .. } | Op::Check { .. }) => {
                false
            }
        },
        Some(Txn::Multi { session, ops, identity }) => {
            let Request::Multi(asked) = request else { return false };
            let matches_op = |(asked, op): (&WriteOp, &Op<'_>)| matches_op(*session, ids, asked, op);
            let is_it = asked.len() == ops.len() && asked.iter().zip(ops).all(matches_op);
            is_it && is_asked_as(ids, identity)
        }
        Some(Txn::CloseSession { .. }) => *request == Request::CloseSession,
        Some(
            Txn::NoOp
            | Txn::CreateSession { .. }
            | Txn::RenewSession { .. }
            | Txn::UpgradeSession { .. }
            | Txn::Reap { .. }
            | Txn::CountUsage { .. }
            | Txn::Membership(_),
        )
        | None => false,
    }
}

/// Returns the error of a request that always fails.
///
/// Does not ask `Request::class`, for the reason in [`crate::reference`].
pub(super) fn refusal_of(request: &Request) -> Option<ErrorCode> {
    match request {
        Request::Reconfig => Some(ErrorCode::ReconfigDisabled),
        Request::Malformed { .. } => Some(ErrorCode::MarshallingError),
        Request::Write(_)
        | Request::Multi(_)
        | Request::Exists { .. }
        | Request::GetData { .. }
        | Request::GetChildren { .. }
        | Request::GetAcl { .. }
        | Request::GetEphemerals { .. }
        | Request::GetAllChildrenNumber { .. }
        | Request::GetTtl { .. }
        | Request::MultiRead(_)
        | Request::Sync { .. }
        | Request::Ping
        | Request::Auth { .. }
        | Request::Sasl
        | Request::WhoAmI
        | Request::SetWatches(_)
        | Request::AddWatch { .. }
        | Request::CheckWatches { .. }
        | Request::RemoveWatches { .. }
        | Request::CloseSession
        | Request::Unknown => None,
    }
}

/// Returns whether the entry names this client's identities.
fn is_asked_as(ids: &Ids, identity: &Identity) -> bool {
    let of = |scheme: &'static str| ids.iter().filter(move |id| id.scheme == scheme);
    of("super").next().is_some() == identity.is_super
        && of("ip").map(|id| id.id.to_string()).eq(identity.ip.map(|ip| ip.to_string()))
        && of("digest").eq(&identity.ids)
}

fn matches_acl(ids: &Ids, asked: Option<&[RequestedAcl]>, stored: &[u8]) -> bool {
    ids.resolve(asked).is_ok_and(|acl| acl::decode(stored) == Ok(acl))
}

fn matches_op(session: SessionId, ids: &Ids, asked: &WriteOp, op: &Op<'_>) -> bool {
    match op {
        Op::Create { path, data, acl, kind, sequential, with_stat } => {
            let WriteOp::Create(create) = asked else { return false };
            let mode = CreateMode::Valid { kind: *kind, sequential: *sequential };
            create.path.as_str() == *path
                && create.data.as_deref() == *data
                && create.mode == mode
                && create.with_stat == *with_stat
                && matches_acl(ids, create.acl.as_deref(), acl)
        }
        Op::Delete { path, version } => {
            matches!(asked, WriteOp::Delete { path: p, version: v } if p.as_str() == *path && v == version)
        }
        Op::SetData { path, data, version } => {
            matches!(asked, WriteOp::SetData { path: p, data: d, version: v }
                if p.as_str() == *path && d.as_deref() == *data && v == version)
        }
        Op::SetAcl { path, acl, version } => {
            matches!(asked, WriteOp::SetAcl { path: p, acl: a, version: v }
                if p.as_str() == *path && v == version && matches_acl(ids, a.as_deref(), acl))
        }
        Op::Check { path, version } => {
            matches!(asked, WriteOp::Check { path: p, version: v } if p.as_str() == *path && v == version)
        }
        // A request refused before it is ordered is refused in every state, including the empty
        // tree.
        Op::Refused(code) => {
            let writer = Writer { session: session.0, ids: ids.clone(), zxid: 0, wall_ms: 0, enforces_quotas: false };
            Tree::new().answer_write(&writer, asked, &mut Vec::new()) == Err(*code)
        }
    }
}

#[cfg(test)]
mod tests {
    //! Stories of one session on three connections. The client leaves the first two before any
    //! answer arrives. The answers on the third show whose write took effect.

    use crate::oracle::{ClientId, End, Recorder, check};
    use crate::reference::digest_of;
    use crate::workload::USERS;
    use bytes::{Bytes, BytesMut};
    use zoolet_machine::ConnId;
    use zoolet_machine::record::acl::{self, Identity};
    use zoolet_machine::txn::{self, Header, Op, Txn};
    use zoolet_model::{
        AclEntry, AuthId, ConnectReply, ConnectRequest, Create, CreateKind, CreateMode, ErrorCode, Names, Perms, Reply,
        Request, RequestedAcl, ServerId, SessionId, SessionSecret, Text, WriteOp, Zxid,
    };

    const SESSION: SessionId = SessionId(1);
    const SECRET: SessionSecret = SessionSecret([3; 16]);
    const READABLE: &[(Perms, &str, &str)] = &[(Perms::READ, "world", "anyone")];
    const OPEN: &[(Perms, &str, &str)] = &[(Perms::ALL, "world", "anyone")];

    struct Story {
        recorder: Recorder,
        conn: u64,
        xid: i32,
        last: Zxid,
        /// Time of the next step.
        at_us: u64,
    }

    impl Story {
        /// Begins the session on its first connection.
        fn begin() -> Self {
            let mut story = Self { recorder: Recorder::new(), conn: 0, xid: 0, last: Zxid::ZERO, at_us: 1 };
            story.connect(ConnectRequest::for_new_session(9000), |story| {
                story.commit(&Txn::CreateSession { timeout_ms: 9000, secret: SECRET, home: None });
            });
            story
        }

        fn connect(&mut self, request: ConnectRequest, meanwhile: impl FnOnce(&mut Self)) {
            self.conn += 1;
            let conn = ConnId(self.conn);
            self.recorder.connecting(self.at_us, ClientId(1), conn, ServerId::STANDALONE, None, request);
            meanwhile(self);
            let reply = ConnectReply {
                timeout_ms: 9000,
                session: SESSION,
                secret: SECRET,
                read_only_byte: false,
                read_only_ms: None,
            };
            self.recorder.connected(self.at_us, conn, reply);
        }

        /// The client leaves its connection and opens another.
        fn move_on(&mut self) {
            self.recorder.ended(self.at_us, ConnId(self.conn), End::ByClient);
            let password = Some(Bytes::copy_from_slice(&SECRET.0));
            let request = ConnectRequest { session: SESSION, password, ..ConnectRequest::for_new_session(9000) };
            self.connect(request, |_| ());
        }

        fn ask(&mut self, request: Request) {
            self.xid += 1;
            self.recorder.invoked(self.at_us, ConnId(self.conn), self.xid, request);
        }

        /// Answers the last request from the newest state.
        fn answer(&mut self, result: Result<Reply, ErrorCode>) {
            self.recorder.answered(self.at_us, ConnId(self.conn), self.xid, self.last.as_i64(), result);
        }

        fn commit(&mut self, txn: &Txn<'_>) {
            self.last = self.last.next().unwrap();
            let payload = txn::encode(Header::default(), txn, &mut BytesMut::new());
            self.recorder.committed(self.at_us, self.last, &payload);
        }

        fn write(&mut self, identity: Identity, op: Op<'_>) {
            self.commit(&Txn::Write { session: SESSION, identity, op });
        }

        /// A create that is answered.
        fn create(&mut self, path: &str, acl: &[(Perms, &str, &str)]) {
            self.ask(create(path, acl));
            self.write(Identity::default(), created(path, &stored(acl)));
            self.answer(Ok(Reply::Path(path.into())));
        }

        fn children(&mut self, path: &str, names: &[&str]) {
            self.ask(Request::GetChildren { path: path.into(), watch: false, with_stat: false });
            let names: Vec<Text> = names.iter().map(|name| (*name).into()).collect();
            self.answer(Ok(Reply::Names(Names::from(names))));
        }

        fn verdict(self) -> Option<&'static str> {
            check(&self.recorder.finish(self.at_us + 1, false)).err().map(|violation| violation.rule)
        }
    }

    fn create(path: &str, acl: &[(Perms, &str, &str)]) -> Request {
        let entry = |&(perms, scheme, id): &(Perms, &str, &str)| RequestedAcl {
            perms,
            scheme: Some(scheme.into()),
            id: Some(id.into()),
        };
        let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
        let (path, acl) = (path.into(), Some(acl.iter().map(entry).collect()));
        Request::Write(WriteOp::Create(Create { path, data: None, acl, mode, with_stat: false }))
    }

    fn stored(acl: &[(Perms, &str, &str)]) -> Bytes {
        let entry =
            |&(perms, scheme, id): &(Perms, &str, &str)| AclEntry { perms, scheme: scheme.into(), id: id.into() };
        acl::encode(&acl.iter().map(entry).collect::<Vec<_>>())
    }

    fn created<'a>(path: &'a str, acl: &'a [u8]) -> Op<'a> {
        Op::Create { path, data: None, acl, kind: CreateKind::Persistent, sequential: false, with_stat: false }
    }

    fn ann() -> (Request, Identity) {
        let auth = Some(Bytes::from_static(USERS[0].as_bytes()));
        let ids = vec![AuthId { scheme: "digest".into(), id: digest_of(USERS[0]).into() }];
        (Request::Auth { scheme: Some("digest".into()), auth }, Identity { ids, ..Identity::default() })
    }

    /// Regression: seed 85 under faults, when clients began to have several requests in flight.
    /// Only the reference carried out the multi.
    #[test]
    fn lost_multi_is_not_matched_to_a_refused_entry() {
        let mut story = Story::begin();
        let Request::Write(op) = create("/a", OPEN) else { unreachable!("a create is a write") };
        story.ask(Request::Multi(vec![op]));
        story.move_on();
        story.ask(Request::Write(WriteOp::SetData { path: "/..".into(), data: None, version: -1 }));
        story.write(Identity::default(), Op::Refused(ErrorCode::BadArguments));
        story.move_on();
        story.children("/", &["zookeeper"]);
        assert_eq!(story.verdict(), None);
    }

    #[test]
    fn lost_create_is_not_matched_to_an_entry_of_another_identity() {
        let (auth, ann) = ann();
        let mut story = Story::begin();
        let acl = [(Perms::READ, "world", "anyone"), (Perms::ALL, "digest", &digest_of(USERS[0]))];
        story.create("/a", &acl);
        story.ask(create("/a/b", OPEN));
        story.move_on();
        story.ask(auth);
        story.recorder.answered(1, ConnId(2), story.xid, 0, Ok(Reply::Empty));
        story.ask(create("/a/b", OPEN));
        story.write(ann, created("/a/b", b""));
        story.move_on();
        story.children("/a", &["b"]);
        assert_eq!(story.verdict(), None);
    }

    #[test]
    fn lost_create_is_not_matched_to_an_entry_with_another_acl() {
        let mut story = Story::begin();
        story.ask(create("/a", READABLE));
        story.move_on();
        story.ask(create("/a", OPEN));
        story.write(Identity::default(), created("/a", b""));
        story.move_on();
        story.create("/a/b", OPEN);
        assert_eq!(story.verdict(), None);
    }

    const RULE: &str = "a write has at most one entry, an entry is asked for, and nothing takes effect behind what was lost on the same connection";

    /// A client leaves while a create and a multi behind it wait.
    ///
    /// The create is refused and the multi takes effect. `refuses` records which server may have
    /// refused, between `from_us` and 1 us later.
    fn refused_after_its_client_left(from_us: u64, refuses: impl Fn(&mut Recorder, u64, bool)) -> Option<&'static str> {
        let mut story = Story::begin();
        story.ask(create("/a", OPEN));
        story.ask(Request::Multi(Vec::new()));
        story.move_on();
        let applied_us = 5;
        let refused = |story: &mut Story| {
            refuses(&mut story.recorder, from_us, true);
            refuses(&mut story.recorder, from_us + 1, false);
        };
        if from_us < applied_us {
            refused(&mut story);
        }
        story.at_us = applied_us;
        story.commit(&Txn::Multi { session: SESSION, identity: Identity::default(), ops: Vec::new() });
        if from_us > applied_us {
            refused(&mut story);
        }
        story.at_us = 8;
        story.children("/", &["zookeeper"]);
        story.verdict()
    }

    /// Regression: seed 7345701 under faults. The leader's base hung, its disk filled up, and it
    /// refused the create 2 s after the client had left. In seed 9105789 a learner refused, because
    /// its base hung until its log was full.
    #[test]
    fn write_may_be_refused_after_its_client_disconnects() {
        assert_eq!(refused_after_its_client_left(3, Recorder::leader_refusing), None);
        let own =
            |recorder: &mut Recorder, at_us, may_refuse| recorder.refusing(at_us, ServerId::STANDALONE, may_refuse);
        assert_eq!(refused_after_its_client_left(3, own), None);
    }

    #[test]
    fn server_that_refuses_only_later_does_not_excuse_a_lost_write() {
        assert_eq!(refused_after_its_client_left(6, Recorder::leader_refusing), Some(RULE));
    }

    #[test]
    fn only_the_leader_or_clients_server_can_excuse_a_lost_write() {
        let other = ServerId::new(9).unwrap();
        let elsewhere = |recorder: &mut Recorder, at_us, may_refuse| recorder.refusing(at_us, other, may_refuse);
        assert_eq!(refused_after_its_client_left(3, elsewhere), Some(RULE));
    }

    /// Clients do not wait for the answer to an auth packet, and a connection may end before it.
    #[test]
    fn client_gone_before_its_auth_reply_may_still_write_as_that_user() {
        let (auth, ann) = ann();
        let mut story = Story::begin();
        let acl = [(Perms::READ, "world", "anyone"), (Perms::ALL, "digest", &digest_of(USERS[0]))];
        story.create("/a", &acl);
        story.ask(auth);
        story.ask(create("/a/b", OPEN));
        story.write(ann, created("/a/b", b""));
        story.move_on();
        story.children("/a", &["b"]);
        assert_eq!(story.verdict(), None);
    }

    /// An entry states the writer's identity and its resolved ACL. Both must match the request.
    #[test]
    fn acked_write_needs_an_entry_with_its_identity_and_acl() {
        let rule = "an acknowledged write is in the history";
        let mut story = Story::begin();
        story.ask(create("/a", OPEN));
        story.write(ann().1, created("/a", b""));
        story.answer(Ok(Reply::Path("/a".into())));
        assert_eq!(story.verdict(), Some(rule));
        let mut story = Story::begin();
        story.ask(create("/a", OPEN));
        story.write(Identity::default(), created("/a", &stored(READABLE)));
        story.answer(Ok(Reply::Path("/a".into())));
        assert_eq!(story.verdict(), Some(rule));
    }
}
