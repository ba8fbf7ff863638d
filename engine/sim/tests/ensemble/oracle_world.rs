//! The oracles find nothing wrong with one real machine that crashes.
//!
//! `ORACLE_SEED=n` runs one seed, `ORACLE_SEEDS=n` runs n seeds.
#![allow(clippy::print_stdout, reason = "how long it took, for people")]

use bytes::Bytes;
use std::time::{Duration, Instant};
use zoolet_machine::{ConnId, Limits, Settings};
use zoolet_model::{ConnectReply, ConnectRequest, Request, ServerId};
use zoolet_sim::{
    one_server::{Conditions, Sent, World},
    oracle::{self, ClientId, End, History, Promises, Recorder, Summary},
    reference::{COUNTED_AT_ONCE, digest_of},
    workload::{SUPER_USER, Workload},
};

const CLIENTS: usize = 5;
const SERVER: ServerId = ServerId::STANDALONE;

#[derive(Default)]
struct Client {
    session: Option<ConnectReply>,
    conn: Option<ConnId>,
    last_zxid: i64,
    /// The client sends nothing before this time, in milliseconds.
    silent_until_ms: u64,
}

struct Run {
    world: World,
    workload: Workload,
    recorder: Recorder,
    clients: Vec<Client>,
    /// Number of entries recorded so far.
    committed: usize,
    next_conn: u64,
    next_xid: i32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let super_digest = Some(digest_of(SUPER_USER));
        let settings = Settings {
            super_digest: super_digest.clone(),
            session_timeout_min_ms: 200,
            enforce_quotas: true,
            counted_at_once: COUNTED_AT_ONCE,
            ..Settings::default()
        };
        let limits = Limits { memtable_bytes: 60_000, record_cache_bytes: 8000, ..Limits::default() };
        let mut workload = Workload::new(seed);
        let persist_ms_max = workload.random().below(20);
        let conditions = Conditions { limits, settings, persist_ms_max, ..Conditions::default() };
        let mut world = World::new(conditions, seed);
        world.start();
        Self {
            world,
            workload,
            recorder: Recorder::new().with_super_digest(super_digest),
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            committed: 0,
            next_conn: 0,
            next_xid: 0,
        }
    }

    fn now_us(&self) -> u64 {
        self.world.now().mono_ms * 1000
    }

    fn go_on(&mut self, ms: u64) {
        for _ in 0..ms {
            self.world.run_for(1);
            self.hear();
        }
    }

    /// Records what happened since the last call.
    fn hear(&mut self) {
        let now_us = self.now_us();
        let applied = self.world.server().applied();
        for entry in &self.world.entries()[self.committed..] {
            if entry.zxid <= applied {
                self.recorder.committed(now_us, entry.zxid, &entry.payload);
                self.committed += 1;
            }
        }
        for client in &mut self.clients {
            let Some(conn) = client.conn else { continue };
            for sent in self.world.take(conn) {
                match sent {
                    Sent::Connected(reply) => {
                        self.recorder.connected(now_us, conn, reply);
                        client.session = (reply.session.0 != 0).then_some(reply);
                    }
                    Sent::Reply { xid, zxid, result } => {
                        client.last_zxid = client.last_zxid.max(zxid);
                        self.recorder.answered(now_us, conn, xid, zxid, result);
                    }
                    Sent::Event(event) => self.recorder.notified(now_us, conn, event),
                    Sent::Close => {
                        self.recorder.ended(now_us, conn, End::ByServer);
                        client.conn = None;
                    }
                }
            }
        }
    }

    fn step(&mut self) {
        let who = self.workload.random().below(CLIENTS as u64) as usize;
        let now_ms = self.world.now().mono_ms;
        let now_us = self.now_us();
        if self.clients[who].silent_until_ms > now_ms {
            return;
        }
        let Some(conn) = self.clients[who].conn else { return self.connect(who) };
        match self.workload.random().below(60) {
            0 => self.leave(who),
            1 => {
                let silence_ms = self.workload.random().below(1500);
                self.clients[who].silent_until_ms = now_ms + silence_ms;
            }
            choice => {
                if self.clients[who].session.is_none() {
                    return;
                }
                let request = match choice {
                    2 => self.workload.last_request(),
                    3 => self.workload.auth(),
                    4 => Request::Sync { path: None },
                    _ => self.workload.request(self.clients[who].last_zxid),
                };
                self.next_xid += 1;
                self.recorder.invoked(now_us, conn, self.next_xid, request.clone());
                self.world.request(conn, self.next_xid, request);
                self.hear();
            }
        }
    }

    fn leave(&mut self, who: usize) {
        if let Some(conn) = self.clients[who].conn.take() {
            self.recorder.ended(self.now_us(), conn, End::ByClient);
            self.world.disconnect(conn);
        }
    }

    fn connect(&mut self, who: usize) {
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        let client = &mut self.clients[who];
        let request = match &client.session {
            Some(reply) => ConnectRequest {
                last_zxid_seen: client.last_zxid,
                timeout_ms: reply.timeout_ms,
                session: reply.session,
                password: Some(Bytes::copy_from_slice(&reply.secret.0)),
                read_only: None,
            },
            None => ConnectRequest::for_new_session([300, 2000, 9000][who % 3]),
        };
        client.conn = Some(conn);
        let peer = Some([127, 0, 0, 1].into());
        self.recorder.connecting(self.now_us(), ClientId(who as u32), conn, SERVER, peer, request.clone());
        self.world.connect(conn, peer, request);
        self.hear();
    }

    fn crash(&mut self, power: bool) {
        self.recorder.serving(self.now_us(), SERVER, false);
        for client in &mut self.clients {
            if let Some(conn) = client.conn.take() {
                self.recorder.ended(self.world.now().mono_ms * 1000, conn, End::Lost);
            }
        }
        self.world.crash(power);
        self.recorder.serving(self.now_us(), SERVER, true);
    }

    fn finish(mut self) -> History {
        self.go_on(15_000);
        for who in 0..CLIENTS {
            self.leave(who);
        }
        self.recorder.healthy(self.now_us(), true);
        self.go_on(15_000);
        let ended_us = self.now_us();
        self.recorder.finish(ended_us, true)
    }
}

fn record(seed: u64, steps: u64) -> History {
    let mut run = Run::new(seed);
    run.recorder.serving(run.now_us(), SERVER, true);
    run.go_on(5);
    for _ in 0..steps {
        run.step();
        if run.workload.random().one_in(3) {
            let ms = run.workload.random().below(8);
            run.go_on(ms);
        }
        if run.workload.random().one_in(200) {
            let power = run.workload.random().one_in(2);
            run.crash(power);
        }
        if run.workload.random().one_in(100) {
            run.go_on(1000);
        }
    }
    run.finish()
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("ORACLE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ORACLE_SEEDS").unwrap_or(12),
    }
}

#[test]
fn oracles_accept_every_history_of_one_crashing_machine() {
    let promises = Promises {
        propagation_us: 0,
        expiry_us: 1_000_000,
        answer_us: 100_000,
        reap_us: Some(1_000_000),
        staleness_us: Some(0),
        ..Promises::default()
    };
    let (mut took, mut all) = (Duration::ZERO, Summary::default());
    for seed in seeds() {
        let history = record(seed, 2000);
        let started = Instant::now();
        let verdict = oracle::check_with(&history, &promises);
        took += started.elapsed();
        all += Summary::of(&history);
        if let Err(violation) = verdict {
            panic!("ORACLE_SEED={seed}: {violation}");
        }
    }
    println!("judged in {took:?}: {all:?}");
}
