//! Actions of the machine, with the checks that every one of them must pass.

use super::clients::Client;
use super::{Run, STATUS_TICKET};
use crate::one_server::Logged;
use zoolet_machine::budget::Part;
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_machine::{Action, Budget, ConnId, Event};
use zoolet_model::Zxid;
use zoolet_zab::AppendSeq;

/// Bytes of memory that one request may take beyond its bound.
///
/// The bound is checked before the request, which may hold hundreds of paths and need as many large
/// records.
const ONE_REQUEST_BYTES: u64 = 64 << 10;
impl Run {
    pub(super) fn happen(&mut self, event: Event) {
        self.server.handle(self.now, event);
        self.carry_out();
    }

    pub(super) fn carry_out(&mut self) {
        while let Some(action) = self.server.poll_action() {
            assert!(!self.failed, "a server that gave up wants {action:?}");
            if let Some(transcript) = &mut self.transcript {
                transcript.push(format!("{action:?}"));
            }
            self.obey(action);
        }
        self.follow();
        self.nothing_grows();
        if !self.failed {
            self.watch_the_listing();
        }
    }

    /// Checks that the machine's memory stays within its bounds, plus one request's share.
    fn nothing_grows(&mut self) {
        let budget = Budget::new(&self.conditions.limits);
        self.server.account(&budget);
        for part in Part::ALL.into_iter().filter(|part| *part != Part::Log) {
            let (held, limit) = (budget.current(part), budget.limit(part));
            let beyond = match part {
                Part::Sessions | Part::Watches => 0,
                // Room is checked when an entry is proposed. Entries in flight become records
                // later, and each record is larger than its entry.
                Part::Memtable => 8 * (u64::from(self.conditions.limits.outstanding_bytes_max) + ONE_REQUEST_BYTES),
                // The cache's tables, and the records that a single entry or request needs at once.
                Part::RecordCache => 4 * ONE_REQUEST_BYTES,
                _ => ONE_REQUEST_BYTES,
            };
            assert!(held <= limit + beyond, "{} holds {held} of {limit}", part.name());
        }
    }

    fn obey(&mut self, action: Action) {
        match action {
            Action::Append(append) => self.append(append),
            Action::Fetch(fetch) => {
                let twice = self.fetches.iter().any(|(other, _)| other.what == fetch.what || other.id == fetch.id);
                assert!(!twice, "{fetch:?} is under way already");
                let base = self.generations.get(&fetch.generation).expect("a generation in use is kept").clone();
                self.fetches.push((fetch, base));
            }
            Action::Checkpoint(checkpoint) => {
                assert!(checkpoint.meta.zxid <= self.durable_zxid, "only what is durable is checkpointed");
                assert!(self.checkpoint.replace(checkpoint).is_none(), "one checkpoint at a time");
            }
            Action::ReleaseGenerations { below, .. } => self.generations.retain(|&generation, _| generation >= below),
            Action::Connected { conn, reply } => {
                let durable = self.durable_zxid.as_i64();
                let client = self.client(conn);
                assert!(!std::mem::replace(&mut client.connected, true), "{conn:?} was answered before");
                if reply.timeout_ms != 0 {
                    assert!(reply.session.0 <= durable, "a session begins before it is durable");
                    client.session = reply.session;
                    if let Some(listing) = &mut self.listing {
                        // Its watches went with its other connection, and may be set again on this
                        // one.
                        listing.retain(|(session, _)| *session != reply.session);
                    }
                    self.tell(reply.session.0);
                    self.sessions.retain(|(session, _)| *session != reply.session);
                    self.sessions.push((reply.session, reply.secret));
                }
            }
            Action::Reply { conn, xid, zxid, .. } => self.reply(conn, xid, zxid),
            Action::Complete(completion) => {
                self.reply(completion.conn, completion.xid, completion.zxid);
                let base = self.generations.get(&completion.generation).expect("a generation in use is kept").clone();
                self.completions.push((*completion, base));
            }
            Action::Notify { conn, event } => {
                let client = self.client(conn);
                assert!(client.connected, "{conn:?} has no session and is told {event:?}");
                let session = client.session;
                if let Some(listing) = &mut self.listing {
                    listing.retain(|row| row.0 != session || row.1 != event.path);
                }
                self.tell(event.zxid);
            }
            Action::Close { conn } => self.client(conn).closed = true,
            Action::Status { ticket, .. } if ticket & STATUS_TICKET != 0 => {}
            Action::Status { ticket, status } => self.answered_list(ticket, status),
            Action::Fail(reason) => {
                assert!(self.harmed, "the server gave up for nothing: {reason}");
                self.failed = true;
            }
            peers @ (Action::PeerSend { .. }
            | Action::PeerClose { .. }
            | Action::ReadLog(_)
            | Action::HoldLog { .. }
            | Action::SendSnapshot { .. }
            | Action::ReceiveSnapshot { .. }
            | Action::DropSnapshot { .. }
            | Action::InstallSnapshot { .. }) => panic!("one voter has no peers: {peers:?}"),
        }
    }

    /// Returns the client of an outgoing message. It must be connected and not told of a close.
    fn client(&mut self, conn: ConnId) -> &mut Client {
        let client = self.clients.get_mut(&conn).unwrap_or_else(|| panic!("{conn:?} is not there"));
        assert!(!client.closed, "{conn:?} was told that it is closed");
        client
    }

    fn reply(&mut self, conn: ConnId, xid: i32, zxid: i64) {
        self.tell(zxid);
        let client = self.client(conn);
        assert!(client.connected, "{conn:?} is answered before it has a session");
        assert_eq!(
            client.unanswered.pop_front(),
            Some(xid),
            "the answer to {conn:?} is not that to its oldest request"
        );
    }

    /// Records that a client hears of everything up to `zxid`.
    fn tell(&mut self, zxid: i64) {
        let zxid = u64::try_from(zxid).ok().and_then(Zxid::from_bits).unwrap_or(Zxid::ZERO);
        assert!(zxid <= self.durable_zxid, "{zxid:?} is told and only {:?} is durable", self.durable_zxid);
        self.told = self.told.max(zxid);
    }

    fn append(&mut self, Append { seq, records, watermark, .. }: Append) {
        let before = self.log.last().map_or(0, |logged| logged.seq.0);
        assert_eq!(before + records.len() as u64, seq.0, "each record takes one number, without gaps");
        assert!(watermark <= self.durable_zxid, "what is not durable is not committed");
        for (number, record) in (before + 1..).zip(Vec::from(records)) {
            if let LogRecord::Entry { zxid, payload } = &record {
                assert!(self.entries.last().is_none_or(|(last, _)| last < zxid), "entries are appended in order");
                let bytes_max = self.conditions.limits.payload_bytes_max();
                assert!(payload.len() <= bytes_max, "an entry of {} bytes fits no segment", payload.len());
                self.entries.push((*zxid, payload.clone()));
            }
            self.log.push(Logged { seq: AppendSeq(number), records: vec![record], watermark });
        }
    }

    /// Checks that a replica that has only the entries reaches the same state.
    fn follow(&mut self) {
        let before = self.applied;
        while let Some((zxid, payload)) =
            self.entries.get(self.applied).filter(|entry| entry.0 <= self.server.applied())
        {
            self.replica.apply(*zxid, payload).unwrap_or_else(|what| panic!("{what}"));
            self.applied += 1;
        }
        assert!(self.server.applied() <= self.durable_zxid, "applied before it is durable");
        assert_eq!(self.replica.digest, self.server.digest(), "two replicas after {:?}", self.server.applied());
        let wrong = self.server.derived().into_iter().find(|number| !number.is_true());
        assert_eq!(wrong, None, "after {:?}", self.server.applied());
        if self.applied > before {
            let counted = self.replica.counts().unwrap_or_else(|what| panic!("{what}"));
            self.server.counts().agree(&counted).unwrap_or_else(|what| panic!("{what}"));
        }
    }
}
