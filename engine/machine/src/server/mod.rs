//! The server: one machine that routes each event to the part that decides on it.

mod admission;
mod connect;
mod cut_off;
mod derived;
mod due;
mod ephemerals;
mod fetches;
mod forward;
mod health;
mod history;
mod local;
mod membership;
mod ordered;
mod owners;
mod peers;
mod pipeline;
mod quotas;
mod read_only;
mod refusals;
mod replay;
mod snapshot;
mod state;
mod stream;
mod syncs;
mod touch;
mod upkeep;
mod waiting;

use crate::budget::{Budget, Part, watch_bytes_max};
use crate::limits::{Limits, Settings};
use crate::seam::action::Action;
use crate::seam::event::{Event, Now};
use crate::seam::ids::ConnId;
use crate::sessions::{Connection, Connections, LocalSessions, Phase, Secrets, SessionTable};
use crate::watch::WatchTable;
use fetches::Fetches;
use forward::Forwards;
use history::History;
use owners::Owners;
use peers::Peers;
use refusals::{Joining, Refusing};
use state::State;
use std::collections::{BTreeSet, VecDeque};
use touch::Touches;
use upkeep::Upkeep;
use xxhash_rust::xxh3::xxh3_128;
use zoolet_model::{ConnectReply, ErrorCode, Reply, ServerId, SessionId, WatchEvent, Zxid};
use zoolet_zab::{Config, Timing, Zab};

pub use derived::Counts;
pub use quotas::QuotaRefusals;
pub use refusals::{Refusals, Refused};
pub use state::BaseState;
pub use touch::liveness_delay_max_ms;

/// State and settings that a server starts from.
#[derive(Debug)]
pub struct Start {
    /// Resource bounds of the server.
    pub limits: Limits,
    /// Settings chosen by the operator.
    pub settings: Settings,
    /// Id of this member.
    pub id: ServerId,
    /// Members named by the configuration file. They count until the ensemble is born.
    pub members: Config,
    /// Timing of the protocol between servers.
    pub timing: Timing,
    /// Protocol state recovered from the log.
    pub recovered: zoolet_zab::Recovered,
    /// State found in the base; `None` if no checkpoint was ever written.
    pub base: Option<BaseState>,
    /// Chain hash after the last entry in the base; 0 without one.
    pub chain_at_base: u128,
    /// Entropy from the operating system, for session secrets and hash seeds.
    pub seed: [u8; 32],
    /// Log bytes in use by entries above the durable checkpoint.
    pub log_bytes_used: u64,
}

/// The whole server as one deterministic, sans-IO machine.
///
/// It has four kinds of methods:
/// 1. **handle**: [`Server::handle`] for each event, then [`Server::handle_deadline`] once
///    everything readable was handled. So silence is judged only after all pending input. Between two
///    portions of many events, [`Server::ping_on_time`].
/// 2. **commands**: [`Server::start`], once, after every entry of the log was handed in as
///    [`Event::Recovered`]; [`Server::hand_over`] before a stop; [`Server::reconfigure`].
/// 3. **poll**: [`Server::poll_action`] until it returns `None`. The caller carries out actions in
///    order.
/// 4. **getters**: [`Server::next_deadline`], [`Server::is_serving`], [`Server::unapplied`],
///    [`Server::digest`], [`Server::applied`], [`Server::sessions`], [`Server::sessions_taken`],
///    [`Server::refusals`], [`Server::quota_refusals`], [`Server::fetches_asked`], [`Server::account`], [`Server::counts`],
///    [`Server::derived`], [`Server::zab`], [`Server::leads`], [`Server::leader`],
///    [`Server::under_way`], [`Server::owes_answers`], [`Server::refusal`],
///    [`Server::refusing_writes`].
///
/// The server reads no clock, never blocks and spawns nothing. Equal events give equal actions.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    settings: Settings,
    now: Now,
    zab: Zab,
    history: History,
    state: State,
    sessions: SessionTable,
    locals: LocalSessions,
    connections: Connections,
    watches: WatchTable,
    fetches: Fetches,
    upkeep: Upkeep,
    due: due::DueReaper,
    quotas: quotas::Quotas,
    /// Requests accepted since the start.
    requests: u64,
    /// Connections whose pipelines may continue.
    ready: VecDeque<ConnId>,
    /// Connections whose next request waits for room.
    waiting_for_room: BTreeSet<ConnId>,
    /// Connections whose clients wait to be let in, in the order in which they came.
    newcomers: BTreeSet<ConnId>,
    /// Bytes of the identities of all connections.
    identity_bytes: usize,
    /// Bytes that completions in flight hold now and will hold once they are assembled.
    completing_bytes: u64,
    /// Connections waiting for a quorum's confirmation, or for entries to be applied.
    syncs: syncs::Syncs,
    peers: Peers,
    healths: health::Healths,
    forwards: Forwards,
    owners: Owners,
    touches: Touches,
    leaderless: read_only::Leaderless,
    joining: Joining,
    refusing: Refusing,
    /// Hash seed that keeps clients from choosing colliding names.
    seed: u64,
    secrets: Secrets,
    actions: VecDeque<Action>,
    /// Set with [`Action::Fail`]; the server does nothing afterwards.
    failed: bool,
}

impl Server {
    /// Creates a server from its recovered log and base. Every timeout starts at `now`.
    pub fn new(start: Start, now: Now) -> Self {
        let Start { limits, settings, id, members, timing, mut recovered, base, chain_at_base, seed, log_bytes_used } =
            start;
        if !recovered.config.is_born() {
            recovered.config = members;
        }
        let hash_seed = xxh3_128(&seed);
        let meta = base.as_ref().map(BaseState::meta);
        let cache_bytes_max = limits.record_cache_bytes as usize;
        let state = State::new(base, cache_bytes_max, settings.counted_at_once(), hash_seed as u64);
        // A standalone server sends no entries to peers.
        let is_alone = recovered.config.members().len() == 1;
        let kept_bytes_max = if is_alone { 0 } else { limits.outstanding_bytes_max as usize / 8 };
        let chain = (state.applied(), chain_at_base);
        let ensemble_ms = state.totals().ensemble_ms;
        let mut history = History::new(&limits, ensemble_ms, log_bytes_used, chain, kept_bytes_max, now);
        history.enforces_quotas = settings.enforce_quotas;
        // A damaged log may lack acknowledged entries: serve nothing before a snapshot has replaced
        // the state.
        history.is_replaced = !recovered.is_whole;
        let mut sessions = SessionTable::default();
        for (id, session) in state.sessions() {
            sessions.insert(id, session, now.mono_ms);
        }
        let secrets = Secrets::new(seed);
        Self {
            zab: Zab::new(id, timing, recovered, hash_seed as u64),
            history,
            upkeep: Upkeep::new(meta.map(|meta| (meta, chain_at_base)), now, settings.container_check_interval_ms),
            due: due::DueReaper::default(),
            quotas: quotas::Quotas::default(),
            state,
            sessions,
            locals: LocalSessions::new(id, &secrets),
            connections: Connections::default(),
            watches: WatchTable::new(limits.watches_max, watch_bytes_max(&limits) as usize, hash_seed),
            fetches: Fetches::default(),
            requests: 0,
            ready: VecDeque::new(),
            waiting_for_room: BTreeSet::new(),
            newcomers: BTreeSet::new(),
            identity_bytes: 0,
            completing_bytes: 0,
            syncs: syncs::Syncs::default(),
            peers: Peers::new(secrets.first_number()),
            healths: health::Healths::default(),
            forwards: Forwards::new(secrets.first_number()),
            owners: Owners::default(),
            touches: Touches::default(),
            leaderless: read_only::Leaderless::new(now.mono_ms),
            joining: Joining::default(),
            refusing: Refusing::default(),
            seed: hash_seed as u64,
            secrets,
            actions: VecDeque::new(),
            failed: false,
            limits,
            settings,
            now,
        }
    }

    /// Command: takes part in the ensemble.
    pub fn start(&mut self, now: Now) {
        self.now = now;
        self.zab.start(now.mono_ms);
        self.follow_zab();
    }

    /// Handle: processes one event.
    pub fn handle(&mut self, now: Now, event: Event) {
        self.on_time(now);
        if self.failed {
            return;
        }
        match event {
            Event::Connect { conn, peer, request } => self.on_connect(conn, peer, &request),
            Event::Request { conn, xid, request } => self.on_request(conn, xid, request),
            Event::Disconnected { conn } => self.on_disconnected(conn),
            Event::Persisted { seq, log_bytes_used, checkpoint } => self.on_persisted(seq, log_bytes_used, checkpoint),
            Event::Completed { bytes } => self.on_completed(bytes),
            Event::LogStalled { is_read_only } => self.on_log_stalled(is_read_only),
            Event::LogResumed => self.on_log_resumed(),
            Event::Fetched { id, result } => self.on_fetched(id, result),
            Event::Checkpointed { generation } => self.on_checkpointed(generation),
            Event::CheckpointFailed { reason } => self.on_checkpoint_failed(reason),
            Event::BaseDamaged { what } => drop(self.lose_base(&what)),
            Event::Space { shortage } => self.on_space(shortage),
            Event::DiskTroubles(troubles) => self.on_disk_troubles(troubles),
            Event::Recovered { zxid, payload } => self.on_recovered(zxid, payload),
            Event::Status { ticket } => self.on_status(ticket),
            Event::List { ticket, list } => self.on_list(ticket, list),
            Event::PeerUp { peer, link, disk } => self.on_peer_up(peer, link, disk),
            Event::PeerDown { peer, link } => self.on_peer_down(peer, link),
            Event::PeerMessage { peer, link, message } => self.on_peer_message(peer, link, message),
            Event::LogRead { id, result } => self.on_log_read(id, result),
            Event::LogFloor { floor } => self.on_log_floor(floor),
            Event::SnapshotSent { transfer, result } => self.on_snapshot_sent(transfer, result),
            Event::SnapshotReceived { peer, transfer, result } => self.on_snapshot_received(peer, transfer, result),
            Event::SnapshotInstalled { generation } => self.on_snapshot_installed(generation),
        }
        if !self.failed {
            self.run_ready();
            self.admit_newcomers_with_room();
        }
        #[cfg(feature = "mutations")]
        self.actions.extend(self.history.late_events.drain(..));
    }

    /// Handle: judges elapsed time, after everything readable was handled.
    pub fn handle_deadline(&mut self, now: Now) {
        self.on_time(now);
        if !self.failed {
            self.on_protocol_due();
            self.receive();
            self.apply_committed();
            self.on_sessions_due();
            self.send_waiting_on();
            self.on_upkeep_due();
            self.on_due();
            self.count_usages_if_due();
            self.run_ready();
            self.admit_newcomers_with_room();
        }
    }

    /// Handle: sends a leader's heartbeats that are due, while events are still unhandled.
    pub fn ping_on_time(&mut self, now: Now) {
        self.on_time(now);
        if !self.failed {
            self.zab.ping_on_time(now.mono_ms);
            self.follow_zab();
        }
    }

    /// Poll: returns the next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        while self.actions.is_empty() && !self.failed {
            self.follow_zab();
            if self.ready.is_empty() {
                break;
            }
            self.run_ready();
        }
        self.note_held_writes();
        // The append comes before any message that depends on it.
        self.next_append().or_else(|| self.actions.pop_front())
    }

    /// Returns when [`Server::handle_deadline`] must run, on [`Now::mono_ms`].
    ///
    /// The time is now or in the past while work is left.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.has_committed_work() {
            return Some(self.now.mono_ms);
        }
        let protocol = self.zab.next_deadline();
        let sessions = self.sessions_deadline();
        // Containers are reaped only by a leader that serves.
        let may_reap = self.is_serving() && self.leads();
        let upkeep = self.upkeep.next_deadline(may_reap, self.state.totals().reapable > 0);
        protocol
            .into_iter()
            .chain(sessions)
            .chain(upkeep)
            .chain(self.due_deadline())
            .chain(self.receive_at_ms())
            .chain(self.counting_deadline())
            .chain(self.cut_off_deadline())
            .min()
    }

    /// Returns whether clients are served.
    ///
    /// The server must lead, or follow an established leader, and have applied the first entry of
    /// the leader's epoch.
    pub fn is_serving(&self) -> bool {
        self.history.is_serving() && !self.failed
    }

    /// Returns the number of entries recovered or proposed and not yet applied.
    pub fn unapplied(&self) -> usize {
        self.history.len()
    }

    /// Returns the digest of the applied state.
    pub fn digest(&self) -> u128 {
        self.state.digest()
    }

    /// Returns the zxid of the last applied entry.
    pub fn applied(&self) -> Zxid {
        self.state.applied()
    }

    /// Returns the protocol machine, for inspection.
    pub fn zab(&self) -> &Zab {
        &self.zab
    }

    /// Returns the number of sessions, connected or not; local ones of this server included.
    pub fn sessions(&self) -> usize {
        self.sessions.len() + self.locals.table().len()
    }

    /// Returns the amount of unfinished work; 0 if nothing was left behind.
    ///
    /// It adds up connections, requests, fetches and their waiters, entries, and bytes of
    /// completions.
    pub fn under_way(&self) -> usize {
        let lacking_room = self.waiting_for_room.len() + self.newcomers.len();
        let waiting = self.ready.len() + lacking_room + self.syncs.len() + self.joining.len();
        let unanswered = self.fetches.len() + self.history.len() + self.completing_bytes as usize;
        let across = self.forwards.len() + self.owners.len() + self.peers.under_way();
        self.connections.len() + waiting + unanswered + across
    }

    /// Returns whether a client waits for an answer or for its session.
    ///
    /// A server that stops keeps its connections until it owes nothing. A client whose connection
    /// closes earlier does not learn whether its write is done.
    pub fn owes_answers(&self) -> bool {
        let waits = |connection: &Connection| match connection.phase {
            Phase::Joining | Phase::Leaving => true,
            Phase::Open => connection.outstanding() > 0,
            Phase::Closed => false,
        };
        self.completing_bytes > 0 || self.connections.values().any(waits)
    }

    /// Returns the number of fetches from the base since the start.
    pub fn fetches_asked(&self) -> u64 {
        self.fetches.asked
    }

    /// Charges every table and queue of the machine to its part of the budget, and bounds the spare
    /// cache by what the other parts leave.
    ///
    /// The caller invokes this once per turn.
    pub fn account(&mut self, budget: &Budget) {
        for (part, amount) in self.held() {
            budget.set(part, amount);
        }
        let spare = budget.spare_bytes_max(&self.limits);
        let memory = self.state.memory();
        memory.allow_spare(spare as usize);
        budget.allow(Part::SpareCache, spare);
        budget.set(Part::SpareCache, memory.spare_bytes() as u64);
    }

    /// Returns the amount held for each part of the budget that the machine uses.
    pub(crate) fn held(&self) -> [(Part, u64); 12] {
        let memory = self.state.memory_ref();
        [
            (Part::IdentityBytes, self.identity_bytes as u64),
            (Part::Sessions, self.sessions() as u64),
            (Part::SessionBytes, (self.sessions.bytes() + self.locals.table().bytes()) as u64),
            (Part::Watches, self.watches.watches().into()),
            (Part::WatchBytes, self.watches.bytes() as u64),
            (Part::Unapplied, (self.history.held_bytes() + self.forwards.held_bytes()) as u64),
            (Part::Peers, (self.history.kept_bytes() + self.peers.bytes()) as u64),
            (Part::Fetches, self.fetches.bytes() as u64),
            (Part::Completing, self.completing_bytes),
            (Part::Memtable, (memory.memtable_bytes() + memory.pool_bytes()) as u64),
            (Part::RecordCache, (memory.cache_bytes() + memory.weights_bytes()) as u64),
            (Part::Log, self.history.log.bytes_used()),
        ]
    }

    fn fail(&mut self, reason: String) {
        if !self.failed {
            self.failed = true;
            self.actions.push_back(Action::Fail(reason));
        }
    }

    /// Answers a request, unless its connection is already closed.
    fn reply(&mut self, conn: ConnId, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) {
        if self.is_open(conn) {
            self.actions.push_back(Action::Reply { conn, xid, zxid, result });
        }
    }

    fn notify(&mut self, conn: ConnId, event: WatchEvent) {
        if self.is_open(conn) {
            self.actions.push_back(Action::Notify { conn, event });
        }
    }

    fn connected(&mut self, conn: ConnId, reply: ConnectReply) {
        self.actions.push_back(Action::Connected { conn, reply });
    }

    fn refused(&mut self, conn: ConnId, read_only_byte: bool) {
        let secret = zoolet_model::SessionSecret([0; 16]);
        let read_only_ms = self.read_only_ms().filter(|_| self.is_reader(conn));
        self.connected(
            conn,
            ConnectReply { timeout_ms: 0, session: SessionId(0), secret, read_only_byte, read_only_ms },
        );
    }
}
