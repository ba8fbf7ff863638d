//! What the machine holds while the log or whoever puts answers together stands still: driven to its bound, and then let go.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use std::collections::BTreeMap;
use zoolet_engine::action::{Append, Completion, FetchWhat, Generation};
use zoolet_engine::budget::Part;
use zoolet_engine::event::Fetched;
use zoolet_engine::store::key::Key;
use zoolet_engine::{Action, Budget, ConnId, Event, Limits, Server, Settings, Start};
use zoolet_model::{ConnectRequest, CreateKind, Request, ServerId, Zxid};
use zoolet_sim::client::{NOW, TIMEOUT_MS, create};
use zoolet_zab::{Config, Incarnation, Recovered, Timing};

const CONNECTIONS: u64 = 20;

/// A server whose log and whose completions answer only when they are told to.
struct Held {
    server: Server,
    budget: Budget,
    base: BTreeMap<Key, Bytes>,
    generation: u64,
    log_stands: bool,
    appends: Vec<Append>,
    completions: Vec<Completion>,
    /// Connections and xids, in order of their answers.
    replies: Vec<(ConnId, i32)>,
}

impl Held {
    fn start(limits: Limits) -> Self {
        let start = Start {
            limits,
            settings: Settings::default(),
            id: ServerId::STANDALONE,
            members: Config::standalone(ServerId::STANDALONE),
            timing: Timing::default(),
            recovered: Recovered::empty(Incarnation(1), Config::standalone(ServerId::STANDALONE)),
            base: None,
            chain_at_base: 0,
            seed: [7; 32],
            log_bytes_used: 0,
        };
        let mut held = Self {
            server: Server::new(start, NOW),
            budget: Budget::new(&limits),
            base: BTreeMap::new(),
            generation: 0,
            log_stands: false,
            appends: Vec::new(),
            completions: Vec::new(),
            replies: Vec::new(),
        };
        held.server.start(NOW);
        held.settle();
        for conn in 1..=CONNECTIONS {
            let request = ConnectRequest::for_new_session(TIMEOUT_MS);
            held.handle(Event::Connect { conn: ConnId(conn), peer: None, request });
        }
        held
    }

    fn handle(&mut self, event: Event) {
        self.server.handle(NOW, event);
        self.settle();
    }

    fn request(&mut self, conn: u64, xid: i32, request: Request) {
        self.handle(Event::Request { conn: ConnId(conn), xid, request });
    }

    fn settle(&mut self) {
        loop {
            while let Some(action) = self.server.poll_action() {
                self.carry_out(action);
            }
            self.server.account(&self.budget);
            if self.log_stands || self.server.unapplied() == 0 {
                return;
            }
            self.server.handle_deadline(NOW);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Append(append) => {
                self.appends.push(append);
                if !self.log_stands {
                    self.persist();
                }
            }
            Action::Fetch(fetch) => {
                let found = match fetch.what {
                    FetchWhat::Record(key) => Fetched::Record(self.base.get(&key).cloned()),
                    FetchWhat::KeysUnder(prefix) => {
                        Fetched::Keys(self.base.keys().filter(|key| key.starts_with(&prefix)).cloned().collect())
                    }
                };
                self.server.handle(NOW, Event::Fetched { id: fetch.id, result: Ok(found) });
            }
            Action::Checkpoint(checkpoint) => {
                for (key, record) in checkpoint.changes.iter() {
                    match record {
                        Some(record) => self.base.insert(key.clone(), record.clone()),
                        None => self.base.remove(key),
                    };
                }
                self.generation += 1;
                self.server.handle(NOW, Event::Checkpointed { generation: Generation(self.generation) });
            }
            Action::Complete(completion) => self.completions.push(*completion),
            Action::Reply { conn, xid, result, .. } => {
                result.unwrap();
                self.replies.push((conn, xid));
            }
            Action::Connected { .. } | Action::ReleaseGenerations { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// The oldest append that waits is durable.
    fn persist(&mut self) {
        let seq = self.appends.remove(0).seq;
        self.server.handle(NOW, Event::Persisted { seq, log_bytes_used: 0, checkpoint: Zxid::ZERO });
    }

    fn holds(&self, part: Part) -> u64 {
        self.budget.current(part)
    }
}

#[test]
fn entries_that_the_log_has_not_got_are_bounded_and_further_writes_wait_for_them_in_order() {
    const WRITES: i32 = 20;
    const BYTES: usize = 4 << 10;
    let limits = Limits { outstanding_bytes_max: 64 << 10, ..Limits::default() };
    let mut held = Held::start(limits);
    held.log_stands = true;
    for xid in 1..=WRITES {
        for conn in 1..=CONNECTIONS {
            let path = format!("/{conn}-{xid}");
            held.request(conn, xid, Request::Write(create(path, BYTES, CreateKind::Persistent)));
        }
    }
    let bound = held.budget.limit(Part::Unapplied);
    let at_most = bound + 2 * BYTES as u64;
    assert!((bound..at_most).contains(&held.holds(Part::Unapplied)), "{} of {bound}", held.holds(Part::Unapplied));
    assert_eq!(held.replies, [], "nothing is durable");
    // The log goes on, one append after the other.
    while !held.appends.is_empty() {
        held.persist();
        held.settle();
        assert!(held.holds(Part::Unapplied) < at_most);
    }
    assert_eq!((held.holds(Part::Unapplied), held.replies.len()), (0, CONNECTIONS as usize * WRITES as usize));
    for conn in 1..=CONNECTIONS {
        let of_conn = held.replies.iter().filter(|(to, _)| *to == ConnId(conn)).map(|(_, xid)| *xid);
        assert!(of_conn.eq(1..=WRITES), "each in order");
    }
}

#[test]
fn answers_that_are_put_together_elsewhere_are_bounded_and_further_reads_wait_for_them() {
    const READS: i32 = 20;
    const BYTES: usize = 16 << 10;
    let limits = Limits { outbound_bytes_max: 64 << 10, memtable_bytes: 8 << 10, ..Limits::default() };
    let mut held = Held::start(limits);
    held.request(1, 0, Request::Write(create("/large", BYTES, CreateKind::Persistent)));
    assert!(held.base.values().any(|record| record.len() == BYTES), "the data is in the base alone");
    for xid in 1..=READS {
        for conn in 1..=CONNECTIONS {
            held.request(conn, xid, Request::GetData { path: "/large".into(), watch: false });
        }
    }
    let bound = held.budget.limit(Part::Completing);
    let at_most = bound + BYTES as u64;
    assert!((bound..at_most).contains(&held.holds(Part::Completing)), "{} of {bound}", held.holds(Part::Completing));
    assert_eq!(held.completions.len() as u64, bound / BYTES as u64, "the other reads are not begun");
    let mut answered = BTreeMap::<ConnId, Vec<i32>>::new();
    while !held.completions.is_empty() {
        let completion = held.completions.remove(0);
        answered.entry(completion.conn).or_default().push(completion.xid);
        held.handle(Event::Completed { bytes: completion.bytes });
        assert!(held.holds(Part::Completing) < at_most);
    }
    assert_eq!(held.holds(Part::Completing), 0);
    assert_eq!(answered.len() as u64, CONNECTIONS);
    assert!(answered.into_values().all(|xids| xids.into_iter().eq(1..=READS)), "each in order");
}
