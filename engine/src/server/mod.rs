//! The server: one machine that routes what happens to the parts that decide.

mod admission;
mod connect;
mod derived;
mod ephemerals;
mod fetches;
mod forward;
mod health;
mod history;
mod membership;
mod ordered;
mod owners;
mod peers;
mod pipeline;
mod refusals;
mod replay;
mod snapshot;
mod state;
mod stream;
mod syncs;
mod touch;
mod upkeep;

use crate::action::Action;
use crate::budget::{Budget, Part, watch_bytes_max};
use crate::event::{ConnId, Event, Now};
use crate::limits::{Limits, Settings};
use crate::session::{Connection, Secrets, SessionTable};
use crate::watch::WatchTable;
use fetches::Fetches;
use forward::Forwards;
use history::History;
use owners::Owners;
use peers::Peers;
use refusals::{Joining, Refusing};
use state::State;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use touch::Touches;
use upkeep::Upkeep;
use xxhash_rust::xxh3::xxh3_128;
use zoolet_model::{ConnectReply, ErrorCode, Reply, ServerId, SessionId, WatchEvent, Zxid};
use zoolet_zab::{Config, Timing, Zab};

pub use derived::{Counts, Derived};
pub use refusals::{Refusals, Refused};
pub use state::BaseState;
pub use touch::told_late_ms;

/// What a server starts from.
#[derive(Debug)]
pub struct Start {
    /// Its bounds.
    pub limits: Limits,
    /// What its operator decided.
    pub settings: Settings,
    /// Which member it is.
    pub id: ServerId,
    /// The members as the configuration file names them; they count until the ensemble is born.
    pub members: Config,
    /// How long things may take among servers.
    pub timing: Timing,
    /// What its log says of the protocol.
    pub recovered: zoolet_zab::Recovered,
    /// What its base holds; `None` when nothing was ever written there.
    pub base: Option<BaseState>,
    /// The chain hash after the last entry in the base; 0 when there is none.
    pub chain_at_base: u128,
    /// Entropy of the operating system: session secrets and hash seeds come from it.
    pub seed: [u8; 32],
    /// Log bytes in use by entries above the durable checkpoint.
    pub log_bytes_used: u64,
}

/// The whole server as one deterministic, sans-IO machine.
///
/// Four kinds of methods:
/// 1. **handle**: [`Server::handle`] for each thing that happened, then [`Server::handle_deadline`] once everything readable was handled: so
///    silence is judged only after whatever was said.
/// 2. **commands**: [`Server::start`], once, after every entry of the log was handed in as [`Event::Recovered`]; [`Server::hand_over`] before it is
///    stopped; [`Server::reconfigure`].
/// 3. **poll**: [`Server::poll_action`] until it says `None`. Actions are to be carried out in order.
/// 4. **getters**: [`Server::next_deadline`], [`Server::is_serving`], [`Server::unapplied`], [`Server::digest`], [`Server::applied`],
///    [`Server::sessions`], [`Server::sessions_taken`], [`Server::refusals`], [`Server::fetches_asked`], [`Server::account`],
///    [`Server::counts`], [`Server::derived`].
///
/// It reads no clock, blocks on nothing and spawns nothing; equal events give equal actions.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    settings: Settings,
    now: Now,
    zab: Zab,
    history: History,
    state: State,
    sessions: SessionTable,
    connections: BTreeMap<ConnId, Connection>,
    watches: WatchTable,
    fetches: Fetches,
    upkeep: Upkeep,
    /// Requests taken since the start.
    requests: u64,
    /// Connections whose pipelines may go on.
    ready: VecDeque<ConnId>,
    /// Connections whose next request waits for room.
    waiting_for_room: BTreeSet<ConnId>,
    /// What the identities of all connections take.
    identity_bytes: usize,
    /// What the completions under way hold, and will hold when they are put together.
    completing_bytes: u64,
    /// Syncs that wait for a confirmation, and what they then wait to be applied.
    syncs: syncs::Syncs,
    peers: Peers,
    healths: health::Healths,
    forwards: Forwards,
    owners: Owners,
    touches: Touches,
    joining: Joining,
    refusing: Refusing,
    /// Keeps clients from choosing colliding names.
    seed: u64,
    secrets: Secrets,
    actions: VecDeque<Action>,
    /// Set by [`Action::Fail`]: nothing more is done.
    failed: bool,
}

impl Server {
    /// A server as its log and base left it. `now` starts every timeout.
    pub fn new(start: Start, now: Now) -> Self {
        let Start { limits, settings, id, members, timing, mut recovered, base, chain_at_base, seed, log_bytes_used } =
            start;
        if !recovered.config.is_born() {
            recovered.config = members;
        }
        let hash_seed = xxh3_128(&seed);
        let meta = base.as_ref().map(BaseState::meta);
        let state = State::new(base, limits.record_cache_bytes as usize, hash_seed as u64);
        // A standalone server sends no entries to anybody.
        let is_alone = recovered.config.members().len() == 1;
        let kept_bytes_max = if is_alone { 0 } else { limits.outstanding_bytes_max as usize / 8 };
        let chain = (state.applied(), chain_at_base);
        let ensemble_ms = state.totals().ensemble_ms;
        let mut history = History::new(&limits, ensemble_ms, log_bytes_used, chain, kept_bytes_max, now);
        // What is here is not all that was acknowledged: nothing of it is shown before a snapshot has taken its place.
        history.is_replaced = !recovered.is_whole;
        let mut sessions = SessionTable::default();
        for (id, session) in state.sessions() {
            sessions.insert(id, session, now.mono_ms);
        }
        Self {
            zab: Zab::new(id, timing, recovered, hash_seed as u64),
            history,
            upkeep: Upkeep::new(meta.map(|meta| (meta, chain_at_base)), now, settings.container_check_interval_ms),
            state,
            sessions,
            connections: BTreeMap::new(),
            watches: WatchTable::new(limits.watches_max, watch_bytes_max(&limits) as usize, hash_seed),
            fetches: Fetches::default(),
            requests: 0,
            ready: VecDeque::new(),
            waiting_for_room: BTreeSet::new(),
            identity_bytes: 0,
            completing_bytes: 0,
            syncs: syncs::Syncs::default(),
            peers: Peers::default(),
            healths: health::Healths::default(),
            forwards: Forwards::default(),
            owners: Owners::default(),
            touches: Touches::default(),
            joining: Joining::default(),
            refusing: Refusing::default(),
            seed: hash_seed as u64,
            secrets: Secrets::new(seed),
            actions: VecDeque::new(),
            failed: false,
            limits,
            settings,
            now,
        }
    }

    /// Command: take part in the ensemble.
    pub fn start(&mut self, now: Now) {
        self.now = now;
        self.zab.start(now.mono_ms);
        self.follow_zab();
    }

    /// Handle: something happened.
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
        }
        #[cfg(feature = "mutations")]
        self.actions.extend(self.history.late_events.drain(..));
    }

    /// Handle: everything readable was handled; judge what time has passed.
    pub fn handle_deadline(&mut self, now: Now) {
        self.on_time(now);
        if !self.failed {
            self.on_protocol_due();
            self.receive();
            self.apply_committed();
            self.on_sessions_due();
            self.on_upkeep_due();
            self.run_ready();
        }
    }

    /// Poll: the next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        while self.actions.is_empty() && !self.failed {
            self.follow_zab();
            if self.ready.is_empty() {
                break;
            }
            self.run_ready();
        }
        // Before anything is said that follows from it.
        self.next_append().or_else(|| self.actions.pop_front())
    }

    /// When [`Server::handle_deadline`] wants to be called, on [`Now::mono_ms`]; now or earlier when there is work left.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.has_committed_work() {
            return Some(self.now.mono_ms);
        }
        let protocol = self.zab.next_deadline();
        let sessions = self.sessions_deadline();
        // Only a leader reaps containers, while it serves.
        let may_reap = self.is_serving() && self.leads();
        let upkeep = self.upkeep.next_deadline(may_reap, self.state.totals().reapable > 0);
        protocol.into_iter().chain(sessions).chain(upkeep).chain(self.receive_at_ms()).min()
    }

    /// Whether clients are served: this server leads, or follows an established leader, and its epoch's first entry is applied.
    pub fn is_serving(&self) -> bool {
        self.history.is_serving() && !self.failed
    }

    /// Entries handed in or proposed, and not yet applied.
    pub fn unapplied(&self) -> usize {
        self.history.len()
    }

    /// The digest of the applied state.
    pub fn digest(&self) -> u128 {
        self.state.digest()
    }

    /// The last applied entry.
    pub fn applied(&self) -> Zxid {
        self.state.applied()
    }

    /// The protocol's part, to look at.
    pub fn zab(&self) -> &Zab {
        &self.zab
    }

    /// Sessions, connected or not.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Everything that something is waited for with: connections, their requests, questions to the base and who waits for the
    /// answers, entries, bytes of completions. 0 when nothing was left behind.
    pub fn under_way(&self) -> usize {
        let waiting = self.ready.len() + self.waiting_for_room.len() + self.syncs.len() + self.joining.len();
        let unanswered = self.fetches.len() + self.history.len() + self.completing_bytes as usize;
        let across = self.forwards.len() + self.owners.len() + self.peers.under_way();
        self.connections.len() + waiting + unanswered + across
    }

    /// Questions put to the base since the start.
    pub fn fetches_asked(&self) -> u64 {
        self.fetches.asked
    }

    /// Charges every table and queue of the machine to its part of the budget. Whoever drives the machine calls this once a turn.
    pub fn account(&self, budget: &Budget) {
        for (part, amount) in self.held() {
            budget.set(part, amount);
        }
    }

    /// What the machine holds of each part that it holds.
    pub(crate) fn held(&self) -> [(Part, u64); 12] {
        let memory = self.state.memory_ref();
        [
            (Part::IdentityBytes, self.identity_bytes as u64),
            (Part::Sessions, self.sessions.len() as u64),
            (Part::SessionBytes, self.sessions.bytes() as u64),
            (Part::Watches, self.watches.watches().into()),
            (Part::WatchBytes, self.watches.bytes() as u64),
            (Part::Unapplied, (self.history.held_bytes() + self.forwards.held_bytes()) as u64),
            (Part::Peers, (self.history.kept_bytes() + self.peers.bytes()) as u64),
            (Part::Fetches, self.fetches.bytes() as u64),
            (Part::Completing, self.completing_bytes),
            (Part::Memtable, (memory.memtable_bytes() + memory.slate_bytes()) as u64),
            (Part::RecordCache, memory.cache_bytes() as u64),
            (Part::Log, self.history.log_bytes_used()),
        ]
    }

    fn fail(&mut self, reason: String) {
        if !self.failed {
            self.failed = true;
            self.actions.push_back(Action::Fail(reason));
        }
    }

    /// Answers a request, unless its connection is closed already.
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
        self.connected(conn, ConnectReply { timeout_ms: 0, session: SessionId(0), secret, read_only_byte });
    }
}
