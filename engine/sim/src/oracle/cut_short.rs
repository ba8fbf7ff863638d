//! A setWatches whose connection ended before its answer arrived.
//!
//! Such a setWatches may have delivered some of its synthetic events (zxid -1), which report
//! changes missed since the client's last zxid. The missing answer would have named the state that
//! the events were computed from. Without it, any state is accepted that the server can have been
//! in:
//!
//! - It is not older than the newest state that the client had seen when the first event arrived.
//! - It is not newer than the newest entry that any server had applied by then.
//! - The events received are the first ones that setWatches would report in that state.
//!
//! Only the remaining events and the answer may follow on the connection.

use super::facts::Facts;
use super::history::{Connection, Moment, Received};
use crate::reference::{Tree, listed, missed};
use zoolet_model::{Request, SetWatches, WatchEvent};

/// One setWatches that was cut short.
pub(super) struct CutShort<'h> {
    pub(super) connection: usize,
    pub(super) operation: usize,
    watches: &'h SetWatches,
    /// The synthetic events that arrived.
    pub(super) told: Vec<&'h WatchEvent>,
    /// The newest zxid that the client had seen before the first of `told`.
    from_zxid: i64,
    /// The newest zxid that any server had applied when the first of `told` arrived.
    to_zxid: i64,
}

impl<'h> CutShort<'h> {
    /// Finds all of them in a history. A connection has at most one.
    pub(super) fn all(facts: &Facts<'h>) -> Vec<Self> {
        let connections = facts.history.connections.iter().enumerate();
        connections.filter_map(|(at, connection)| Self::of(facts, at, connection)).collect()
    }

    fn of(facts: &Facts<'h>, at: usize, connection: &'h Connection) -> Option<Self> {
        let answers = connection.received.iter().rposition(|received| matches!(received, Received::Answer(_)));
        let (before, behind) = connection.received.split_at(answers.map_or(0, |last| last + 1));
        let first = behind.iter().position(|received| made_up(received).is_some())?;
        let told: Vec<_> = behind[first..].iter().map_while(made_up).collect();
        let &(came, _) = told.first()?;
        // Answers arrive in order, so no request after the oldest unanswered one has an outcome.
        let operation = connection.operations.iter().copied().find(|&at| facts.operation(at).answer.is_none())?;
        let Request::SetWatches(watches) = &facts.operation(operation).request else { return None };
        if facts.operation(operation).invoked > came {
            return None;
        }
        let seen = before.iter().chain(&behind[..first]).map(|received| seen(facts, received));
        Some(Self {
            connection: at,
            operation,
            watches,
            told: told.into_iter().map(|(_, event)| event).collect(),
            from_zxid: seen.fold(connection.request.last_zxid_seen, i64::max),
            to_zxid: facts.entries.iter().rfind(|entry| entry.at.us <= came.us).map_or(0, |entry| entry.zxid),
        })
    }

    /// Returns whether the setWatches may have been answered from this state.
    pub(super) fn fits(&self, tree: &Tree, zxid: i64) -> bool {
        let mut missed = listed(self.watches).filter_map(|(path, kind, absent)| {
            missed(tree, kind, absent, path, self.watches.relative_zxid).map(|kind| (kind, path))
        });
        (self.from_zxid..=self.to_zxid).contains(&zxid)
            && self.told.iter().all(|told| missed.next() == Some((told.kind, &told.path)))
    }
}

fn made_up(received: &Received) -> Option<(Moment, &WatchEvent)> {
    if let Received::Event(at, event) = received { (event.zxid == -1).then_some((*at, event)) } else { None }
}

/// Returns the zxid that this item showed to the client; 0 or -1 for items that name no state.
fn seen(facts: &Facts<'_>, received: &Received) -> i64 {
    match received {
        Received::Answer(operation) => facts.operation(*operation).answer.as_ref().map_or(0, |answer| answer.zxid),
        Received::Event(_, event) => event.zxid,
        Received::Stray(_, _, zxid) => *zxid,
    }
}

#[cfg(test)]
mod tests {
    use crate::oracle::{ClientId, End, Recorder, check};
    use bytes::BytesMut;
    use zoolet_machine::ConnId;
    use zoolet_machine::record::acl::Identity;
    use zoolet_machine::txn::{self, Header, Op, Txn};
    use zoolet_model::{
        ConnectReply, ConnectRequest, CreateKind, ErrorCode, EventKind, Reply, Request, ServerId, SessionId,
        SessionSecret, SetWatches, WatchEvent, WriteOp, Zxid,
    };

    const READER: ConnId = ConnId(1);
    const WRITER: ConnId = ConnId(2);
    const SECRET: SessionSecret = SessionSecret([3; 16]);

    /// Begins the session whose number equals the connection's.
    fn begin(recorder: &mut Recorder, conn: ConnId) {
        recorder.connecting(1, ClientId(conn.0 as u32), conn, ServerId::STANDALONE, None, first());
        commit(recorder, 1, conn.0, &Txn::CreateSession { timeout_ms: 9000, secret: SECRET, home: None });
        let session = SessionId(conn.0 as i64);
        recorder.connected(
            1,
            conn,
            ConnectReply { timeout_ms: 9000, session, secret: SECRET, read_only_byte: false, read_only_ms: None },
        );
    }

    fn first() -> ConnectRequest {
        ConnectRequest::for_new_session(9000)
    }

    fn commit(recorder: &mut Recorder, at_us: u64, zxid: u64, txn: &Txn<'_>) {
        let payload = txn::encode(Header::default(), txn, &mut BytesMut::new());
        recorder.committed(at_us, Zxid::from_bits(zxid).unwrap(), &payload);
    }

    /// The writer creates or deletes a znode. The answer is never delivered.
    fn change(recorder: &mut Recorder, at_us: u64, zxid: u64, path: &str, is_there: bool) {
        let (request, op) = if is_there {
            let kind = CreateKind::Persistent;
            let op = Op::Create { path, data: Some(b""), acl: &[], kind, sequential: false, with_stat: false };
            (crate::client::create(path, 0, kind), op)
        } else {
            (WriteOp::Delete { path: path.into(), version: -1 }, Op::Delete { path, version: -1 })
        };
        recorder.invoked(at_us, WRITER, zxid as i32, Request::Write(request));
        commit(recorder, at_us, zxid, &Txn::Write { session: SessionId(2), identity: Identity::default(), op });
    }

    fn make_b(recorder: &mut Recorder) {
        change(recorder, 5, 4, "/b", true);
    }

    fn ask_for_watches(recorder: &mut Recorder, at_us: u64) {
        let exist = vec!["/a".into(), "/b".into()];
        let watches = SetWatches { relative_zxid: 2, exist, ..SetWatches::default() };
        recorder.invoked(at_us, READER, 1, Request::SetWatches(watches));
    }

    fn tell(recorder: &mut Recorder, at_us: u64, kind: EventKind, path: &str, zxid: i64) {
        recorder.notified(at_us, READER, WatchEvent { kind, path: path.into(), zxid });
    }

    /// Returns the rule that a story breaks.
    ///
    /// At the beginning `/a` exists, with zxid 3. The story ends with the reader's connection.
    fn verdict(story: impl Fn(&mut Recorder)) -> Option<&'static str> {
        let mut recorder = Recorder::new();
        begin(&mut recorder, READER);
        begin(&mut recorder, WRITER);
        change(&mut recorder, 2, 3, "/a", true);
        story(&mut recorder);
        recorder.ended(9, READER, End::ByClient);
        recorder.ended(9, WRITER, End::Lost);
        check(&recorder.finish(9, true)).err().map(|violation| violation.rule)
    }

    const UNASKED: Option<&str> = Some("an event tells of a change that a watch of this connection waited for");
    const IN_ORDER: Option<&str> =
        Some("events come in the order of the entries, none is left out, and none overtakes an answer");

    /// Regression: seeds 98, 195 and 204 under faults, 11 without faults, and 46 of a single
    /// server. The answer was in flight for longer than the client stayed connected.
    #[test]
    fn cut_short_set_watches_may_deliver_only_its_first_synthetic_events() {
        for (count, expected) in [(0, None), (1, None), (2, None), (3, UNASKED)] {
            let told = |recorder: &mut Recorder| {
                make_b(recorder);
                ask_for_watches(recorder, 6);
                for path in ["/a", "/b", "/b"].into_iter().take(count) {
                    tell(recorder, 7, EventKind::NodeCreated, path, -1);
                }
            };
            assert_eq!(verdict(told), expected, "{count}");
        }
    }

    /// Only a server whose base failed may withhold events.
    #[test]
    fn refused_set_watches_delivers_all_missed_events() {
        const WITHHELD: Option<&str> = Some("no answer shows a change before the event that tells of it");
        for (count, base_fails, expected) in
            [(0, false, WITHHELD), (1, false, WITHHELD), (2, false, None), (3, false, UNASKED), (0, true, None)]
        {
            let told = |recorder: &mut Recorder| {
                make_b(recorder);
                recorder.refusing(5, ServerId::STANDALONE, base_fails);
                ask_for_watches(recorder, 6);
                for path in ["/a", "/b", "/c"].into_iter().take(count) {
                    tell(recorder, 7, EventKind::NodeCreated, path, -1);
                }
                recorder.answered(7, READER, 1, 4, Err(ErrorCode::SystemError));
            };
            assert_eq!(verdict(told), expected, "{count} events, base fails: {base_fails}");
        }
    }

    #[test]
    fn synthetic_events_must_fit_one_state_the_server_was_in() {
        let of_none = |recorder: &mut Recorder| {
            make_b(recorder);
            ask_for_watches(recorder, 6);
            tell(recorder, 7, EventKind::NodeCreated, "/b", -1);
        };
        assert_eq!(verdict(of_none), UNASKED, "in every state that has /b there is /a");
        let of_an_old_one = |recorder: &mut Recorder| {
            make_b(recorder);
            change(recorder, 5, 5, "/a", false);
            recorder.invoked(5, READER, 2, Request::Sync { path: None });
            recorder.answered(6, READER, 2, 5, Ok(Reply::Synced(None)));
            ask_for_watches(recorder, 6);
            tell(recorder, 7, EventKind::NodeCreated, "/a", -1);
        };
        assert_eq!(verdict(of_an_old_one), UNASKED, "it was shown that /a is gone");
        let of_a_later_one = |recorder: &mut Recorder| {
            ask_for_watches(recorder, 3);
            tell(recorder, 4, EventKind::NodeCreated, "/a", -1);
            tell(recorder, 4, EventKind::NodeCreated, "/b", -1);
            make_b(recorder);
        };
        assert_eq!(verdict(of_a_later_one), UNASKED, "there was no /b yet");
    }

    #[test]
    fn synthetic_events_follow_their_request_and_precede_its_reply() {
        let unasked = |recorder: &mut Recorder| {
            tell(recorder, 3, EventKind::NodeCreated, "/a", -1);
            ask_for_watches(recorder, 4);
            make_b(recorder);
        };
        assert_eq!(verdict(unasked), UNASKED);
        let overtakes = |recorder: &mut Recorder| {
            watch_root(recorder);
            ask_for_watches(recorder, 4);
            tell(recorder, 4, EventKind::NodeCreated, "/a", -1);
            make_b(recorder);
            tell(recorder, 6, EventKind::NodeChildrenChanged, "/", 4);
        };
        assert_eq!(verdict(overtakes), IN_ORDER);
    }

    /// A synthetic event shows a state, as an answer does. So events owed up to that state come
    /// first.
    #[test]
    fn owed_watch_events_precede_synthetic_events() {
        for (is_told, expected) in [(true, None), (false, IN_ORDER)] {
            let story = |recorder: &mut Recorder| {
                watch_root(recorder);
                make_b(recorder);
                ask_for_watches(recorder, 6);
                if is_told {
                    tell(recorder, 7, EventKind::NodeChildrenChanged, "/", 4);
                }
                tell(recorder, 7, EventKind::NodeCreated, "/a", -1);
                tell(recorder, 7, EventKind::NodeCreated, "/b", -1);
            };
            assert_eq!(verdict(story), expected);
        }
    }

    /// Sets a persistent watch, which hears of every child of the root.
    fn watch_root(recorder: &mut Recorder) {
        let mode = zoolet_model::AddWatchMode::Persistent;
        recorder.invoked(3, READER, 2, Request::AddWatch { path: "/".into(), mode });
        recorder.answered(3, READER, 2, 3, Ok(Reply::WatchAdded));
    }
}
