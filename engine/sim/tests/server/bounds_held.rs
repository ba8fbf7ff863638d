//! The machine's memory while the log or the completions stand still.
//!
//! Each bound is reached, and then released.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use zoolet_machine::budget::{LENDERS, Part};
use zoolet_machine::record::key::{self, Key};
use zoolet_machine::seam::action::{Append, Completion, FIRST_KEYS_MAX, FetchWhat, FirstKeys, Generation};
use zoolet_machine::seam::event::Fetched;
use zoolet_machine::{Action, Budget, ConnId, Event, Limits, Now, Server, Settings, Start};
use zoolet_model::{ConnectRequest, CreateKind, ErrorCode, Request, ServerId, SetWatches, Zxid};
use zoolet_sim::client::{NOW, TIMEOUT_MS, create, delete};
use zoolet_zab::{Config, Incarnation, Recovered, Timing};

const CONNECTIONS: u64 = 20;

/// A server whose log and completions answer only on request.
struct Held {
    server: Server,
    budget: Budget,
    base: BTreeMap<Key, Bytes>,
    generation: u64,
    log_stands: bool,
    appends: Vec<Append>,
    completions: Vec<Completion>,
    /// Connections and xids of successful replies, in order.
    replies: Vec<(ConnId, i32)>,
    /// Connections whose request was refused, with the error.
    refused: Vec<(ConnId, ErrorCode)>,
    closed: Vec<ConnId>,
    /// Prefixes of which all keys were fetched.
    prefixes: Vec<Key>,
    now: Now,
}

impl Held {
    fn start(limits: Limits) -> Self {
        Self::start_with(limits, Settings::default())
    }

    fn start_with(limits: Limits, settings: Settings) -> Self {
        let start = Start {
            limits,
            settings,
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
            refused: Vec::new(),
            closed: Vec::new(),
            prefixes: Vec::new(),
            now: NOW,
        };
        held.server.start(NOW);
        held.settle();
        for conn in 1..=CONNECTIONS {
            held.connect(conn, None);
        }
        held
    }

    fn connect(&mut self, conn: u64, client: Option<IpAddr>) {
        let request = ConnectRequest::for_new_session(TIMEOUT_MS);
        self.handle(Event::Connect { conn: ConnId(conn), peer: client, request });
    }

    /// Begins sessions from these addresses, one after another, without closing them.
    ///
    /// Returns how many clients got a session.
    fn sessions(&mut self, conns: Range<u64>, client: impl Fn(u64) -> IpAddr) -> u64 {
        let before = self.server.sessions_taken();
        for conn in conns {
            self.connect(conn, Some(client(conn)));
            self.handle(Event::Disconnected { conn: ConnId(conn) });
        }
        (self.server.sessions_taken() - before) as u64
    }

    /// Lets time pass in steps.
    ///
    /// A jump would look like a pause of the process, after which every session gets its full
    /// timeout.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.now.mono_ms += 100;
            self.server.handle_deadline(self.now);
            self.settle();
        }
    }

    fn handle(&mut self, event: Event) {
        self.server.handle(self.now, event);
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
            self.server.handle_deadline(self.now);
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
                    FetchWhat::Weights { .. } => Fetched::Weights(Vec::new(), true),
                    FetchWhat::Record(key) => Fetched::Record(self.base.get(&key).cloned()),
                    FetchWhat::KeysUnder(prefix) => {
                        let found = self.base.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
                        self.prefixes.push(prefix);
                        Fetched::Keys(found)
                    }
                    FetchWhat::FirstKeys(from) => {
                        let has_tag = |key: &&Key| key[0] == from[0];
                        FirstKeys::of(self.base.range(from.clone()..).map(|(key, _)| key).take_while(has_tag))
                    }
                };
                self.server.handle(self.now, Event::Fetched { id: fetch.id, result: Ok(found) });
            }
            Action::Checkpoint(checkpoint) => {
                for (key, record) in checkpoint.changes.iter() {
                    match record {
                        Some(record) => self.base.insert(key.clone(), record.clone()),
                        None => self.base.remove(key),
                    };
                }
                self.generation += 1;
                self.server.handle(self.now, Event::Checkpointed { generation: Generation(self.generation) });
            }
            Action::Complete(completion) => self.completions.push(*completion),
            Action::Reply { conn, xid, result: Ok(_), .. } => self.replies.push((conn, xid)),
            Action::Reply { conn, result: Err(code), .. } => self.refused.push((conn, code)),
            Action::Close { conn } => self.closed.push(conn),
            Action::Connected { .. } | Action::ReleaseGenerations { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// Makes the oldest waiting append durable.
    fn persist(&mut self) {
        let seq = self.appends.remove(0).seq;
        self.server.handle(self.now, Event::Persisted { seq, log_bytes_used: 0, checkpoint: Zxid::ZERO });
    }

    fn holds(&self, part: Part) -> u64 {
        self.budget.current(part)
    }
}

#[test]
fn entries_waiting_for_the_log_are_bounded_and_later_writes_queue() {
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
    // The log continues, one append at a time.
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
fn pending_read_completions_are_bounded_and_later_reads_queue() {
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

/// Regression: the cache kept every record read since, as long as the request waited for room.
#[test]
fn request_waiting_for_room_does_not_keep_records_in_the_cache() {
    const ZNODES: i32 = 3000;
    const BYTES: usize = 16 << 10;
    let small = Limits { memtable_bytes: 8 << 10, record_cache_bytes: 64 << 10, ..Limits::default() };
    let mut held = Held::start(Limits { outbound_bytes_max: BYTES as u32, spare_cache_bytes: 0, ..small });
    let path = |number: i32| format!("/{number}");
    for number in 0..ZNODES {
        held.request(1, number, Request::Write(create(path(number), 100, CreateKind::Persistent)));
    }
    held.request(1, ZNODES, Request::Write(create("/large", BYTES, CreateKind::Persistent)));
    // The large data fills the room for replies while the base reads the znode whose children are
    // requested.
    held.request(2, -30, Request::Exists { path: "/large".into(), watch: false });
    let fetches = held.server.fetches_asked();
    let children = Request::GetChildren { path: path(0).into(), watch: false, with_stat: false };
    let large = Request::GetData { path: "/large".into(), watch: false };
    held.server.handle(NOW, Event::Request { conn: ConnId(1), xid: -10, request: children });
    held.request(2, -20, large);
    assert_eq!((held.completions.len(), held.server.fetches_asked() - fetches), (1, 1));
    let bound = held.budget.limit(Part::RecordCache);
    for number in 1..ZNODES {
        held.request(3, number, Request::Exists { path: path(number).into(), watch: false });
        assert!(held.holds(Part::RecordCache) <= bound + 1024, "{} at {number}", held.holds(Part::RecordCache));
    }
    assert_ne!(held.replies.last(), Some(&(ConnId(1), -10)));
    // The request reads its record again.
    let Completion { bytes, .. } = held.completions.remove(0);
    held.handle(Event::Completed { bytes });
    assert_eq!(held.replies.last(), Some(&(ConnId(1), -10)));
}

/// The cache grows again when links need less.
#[test]
fn spare_cache_shrinks_when_watches_or_links_grow() {
    const ZNODES: i32 = 8000;
    let small = Limits { memtable_bytes: 64 << 10, record_cache_bytes: 64 << 10, ..Limits::default() };
    let connections_max = CONNECTIONS as u32;
    let mut held = Held::start(Limits { spare_cache_bytes: 4 << 20, connections_max, ..small });
    let path = |number: i32| format!("/{number}");
    for number in 0..ZNODES {
        held.request(1, number, Request::Write(create(path(number), 300, CreateKind::Persistent)));
    }
    let fetched_by_reads = |held: &mut Held| {
        let before = held.server.fetches_asked();
        for number in 0..ZNODES {
            held.request(1, number, Request::GetData { path: path(number).into(), watch: false });
        }
        held.server.fetches_asked() - before
    };
    assert_eq!(fetched_by_reads(&mut held), 0, "all of them are in memory");

    let spare = held.holds(Part::SpareCache);
    let exist = (0..20_000).map(|number| format!("/absent-{number}").into()).collect();
    held.request(2, 1, Request::SetWatches(SetWatches { exist, ..SetWatches::default() }));
    let taken: u64 = LENDERS.map(|part| held.holds(part)).iter().sum();
    assert!(taken > 1 << 20 && held.holds(Part::SpareCache) < spare, "{taken}");
    assert!(held.holds(Part::SpareCache) + taken <= 4 << 20);
    assert!(fetched_by_reads(&mut held) > 0, "some are no longer in memory");

    held.budget.allow(Part::Links, 4 << 20);
    held.request(2, 2, Request::Ping);
    assert_eq!(held.holds(Part::SpareCache), 0);
    held.budget.allow(Part::Links, 0);
    held.request(2, 3, Request::Ping);
    fetched_by_reads(&mut held);
    assert!(held.holds(Part::SpareCache) > 1 << 20);
}

/// Regression: the paths were charged nothing, so one client could fill the memory with lists.
#[test]
fn ephemerals_list_is_charged_for_each_ephemeral_of_the_session() {
    const EPHEMERALS: i32 = 300;
    let mut held = Held::start(Limits { outbound_bytes_max: 64 << 10, memtable_bytes: 8 << 10, ..Limits::default() });
    for xid in 1..=EPHEMERALS {
        held.request(1, xid, Request::Write(create(format!("/{xid}"), 0, CreateKind::Ephemeral)));
    }
    // Their number is known, and few of them are newer than the base.
    let least = EPHEMERALS as u64 * 64;
    held.request(1, 1000, Request::GetEphemerals { prefix: None });
    let charged = held.holds(Part::Completing);
    assert!((least..2 * least).contains(&charged), "{charged}");
    for xid in 1001..1020 {
        held.request(1, xid, Request::GetEphemerals { prefix: None });
    }
    let at_most = held.budget.limit(Part::Completing) + charged;
    assert!(held.holds(Part::Completing) < at_most, "the other reads wait");
    assert!(held.completions.len() < 5);
    while !held.completions.is_empty() {
        let Completion { bytes, .. } = held.completions.remove(0);
        held.handle(Event::Completed { bytes });
    }
    held.request(2, 1, Request::GetEphemerals { prefix: None });
    assert!(held.holds(Part::Completing) < least, "this session owns none");
}

/// Regression: a count was charged nothing once the base held all znodes, so any number could wait.
#[test]
fn counts_waiting_for_the_base_are_bounded() {
    const COUNTS: i32 = 100;
    let mut held = Held::start(Limits { outbound_bytes_max: 64 << 10, memtable_bytes: 8 << 10, ..Limits::default() });
    held.request(1, 0, Request::Write(create("/a", 10 << 10, CreateKind::Persistent)));
    for xid in 1..=COUNTS {
        for conn in 1..=CONNECTIONS {
            held.request(conn, xid, Request::GetAllChildrenNumber { path: "/".into() });
        }
    }
    assert!(held.completions.len() <= 128, "{} are begun", held.completions.len());
    assert!(held.holds(Part::Completing) >= held.budget.limit(Part::Completing));
    let mut answered = 0;
    while !held.completions.is_empty() {
        let Completion { bytes, .. } = held.completions.remove(0);
        answered += 1;
        held.handle(Event::Completed { bytes });
    }
    assert_eq!((answered, held.holds(Part::Completing)), (COUNTS * CONNECTIONS as i32, 0));
}

/// Regression: one answer of the base named all containers, of which there may be millions.
#[test]
fn reaper_learns_containers_in_portions_and_reaps_all() {
    const CONTAINERS: usize = 5 * FIRST_KEYS_MAX + 1;
    let limits = Limits { memtable_bytes: 8 << 10, ..Limits::default() };
    let settings = Settings { container_check_interval_ms: 1000, ..Settings::default() };
    let mut held = Held::start_with(limits, settings);
    let mut xid = 0;
    let mut request = |held: &mut Held, request: Request| {
        xid += 1;
        held.request(1, xid, request);
    };
    let path = |number: usize| format!("/{number}");
    for number in 0..CONTAINERS {
        request(&mut held, Request::Write(create(path(number), 0, CreateKind::Container)));
        request(&mut held, Request::Write(create(path(number) + "/a", 0, CreateKind::Persistent)));
        request(&mut held, Request::Write(delete(path(number) + "/a")));
    }
    let marks = held.base.keys().filter(|key| key[0] == key::REAPABLE).count();
    assert!(marks > 4 * FIRST_KEYS_MAX, "{marks} are in the base");
    held.refused.clear();
    held.pass(5000);
    for number in 0..CONTAINERS {
        request(&mut held, Request::Exists { path: path(number).into(), watch: false });
    }
    assert_eq!(held.refused, [(ConnId(1), ErrorCode::NoNode); CONTAINERS]);
    let of_all: Key = [key::REAPABLE].into();
    assert!(!held.prefixes.contains(&of_all), "an answer named all containers");
}

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

/// Returns limits for 60 sessions beyond this process's, 20 per address.
fn with_shares() -> Limits {
    Limits { connections_per_address_max: 2, sessions_max: 80, ..Limits::default() }
}

#[test]
fn address_at_its_session_share_does_not_block_other_addresses() {
    let mut held = Held::start(with_shares());
    assert_eq!(held.sessions(100..200, |_| CLIENT), 20);
    assert_eq!(held.closed.len(), 80);
    assert_eq!(held.sessions(200..300, |_| OTHER), 20);
    let refusals = held.server.refusals();
    assert_eq!((refusals.sessions, refusals.sessions_of_address.count), (0, 160));
    assert_eq!(refusals.sessions_of_address.last, Some(OTHER));
    // When sessions of that address end, it may begin new ones.
    held.connect(300, Some(CLIENT));
    assert_eq!(held.closed.last(), Some(&ConnId(300)));
    held.pass(u64::from(TIMEOUT_MS as u32) + 1000);
    assert_eq!(held.sessions(301..400, |_| CLIENT), 20);
}

#[test]
fn addresses_of_one_ipv6_network_share_one_session_quota() {
    let mut held = Held::start(with_shares());
    let address = |network: u16, host: u64| {
        IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(network) << 64 | u128::from(host)))
    };
    assert_eq!(held.sessions(100..200, |conn| address(1, conn)), 20);
    assert_eq!(held.sessions(200..300, |conn| address(2, conn)), 20);
}

#[test]
fn sessions_being_created_count_against_total_and_address_bounds() {
    let mut held = Held::start(with_shares());
    held.log_stands = true;
    for conn in 100..130 {
        held.connect(conn, Some(CLIENT));
    }
    assert_eq!(held.closed.len(), 10);
    for conn in 130..230 {
        held.connect(conn, Some(IpAddr::from([10, 0, 1, conn as u8])));
    }
    assert_eq!(held.closed.len(), 70);
    // The log does not have these sessions yet, and the bound is reached.
    assert_eq!((held.server.sessions(), held.server.sessions_taken()), (20, 80));
    assert_eq!(held.server.refusals().sessions, 60);
}

#[test]
fn super_user_guesses_are_rate_limited_and_other_logins_are_not() {
    let right = b"super:test".as_slice();
    let super_digest = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned());
    let mut held = Held::start_with(Limits::default(), Settings { super_digest, ..Settings::default() });
    let mut conn = 100;
    let mut guess = |held: &mut Held, client, proof: &[u8]| {
        conn += 1;
        held.connect(conn, Some(client));
        let auth = Request::Auth { scheme: Some("digest".into()), auth: Some(Bytes::copy_from_slice(proof)) };
        held.request(conn, 1, auth);
        let is_refused = held.refused.last() == Some(&(ConnId(conn), ErrorCode::AuthFailed));
        assert_eq!(held.closed.last() == Some(&ConnId(conn)), is_refused);
        !is_refused
    };
    let taken = (0..100).filter(|number| guess(&mut held, CLIENT, format!("super:{number}").as_bytes())).count();
    assert_eq!(taken, 5, "a wrong one is answered as any other user's");
    assert!(!guess(&mut held, CLIENT, right), "an answer to a fast guess says nothing");
    assert!(guess(&mut held, CLIENT, b"somebody:else") && guess(&mut held, OTHER, right));
    let guesses = held.server.refusals().super_guesses;
    assert_eq!((guesses.count, guesses.last), (101, Some(CLIENT)));
    held.pass(10_000);
    assert!(guess(&mut held, CLIENT, right));
}
