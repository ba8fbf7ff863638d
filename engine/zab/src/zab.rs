//! The protocol as one state machine: its state, and the routing of events to phases.

use crate::appends::Appends;
use crate::discovery::{Promise, Prospect};
use crate::peer::{Learner, Peer};
use crate::sent_by_disk::SentByDisk;
use crate::synchronization::Learning;
use crate::{
    Action, AppendSeq, Attempt, Config, Credentials, EnsembleId, Epoch, Fault, Incarnation, LinkId, Message, Mutation,
    Recovered, Role, ServerId, Servers, Spans, Timing, Voters, Zxid, mutation,
};
use heapless::{Deque, Vec};

/// Maximum number of peers with a live link.
pub const PEERS_MAX: usize = 16;
/// Maximum actions waiting to be polled, messages excluded; one call can cause this many.
const TODO_MAX: usize = 32;

/// An action to poll before any message; small, because a queue holds many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Todo {
    Promise(AppendSeq, Epoch),
    Epoch(AppendSeq, Epoch),
    Birth(AppendSeq, EnsembleId),
    Damaged(AppendSeq),
    Configs(AppendSeq),
    Truncate(AppendSeq, Zxid),
    SnapEnd(AppendSeq, Zxid),
    Append(AppendSeq, Zxid, Zxid),
    Commit(Zxid),
    Become(Role),
    Confirmed(u64, Option<Zxid>),
    Close(ServerId, LinkId, Fault),
}

/// The server's current activity.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nothing is allocated, so nothing is boxed")]
pub(crate) enum State {
    /// Taking part in an election: election.rs.
    Looking {
        /// Back-off: the server does not stand for election before this time.
        stand_at_ms: u64,
        /// When the server repeats its notification.
        retry_at_ms: u64,
    },
    /// Leading: discovery.rs and broadcast.rs.
    Leading(Prospect),
    /// Joining or following a leader: synchronization.rs and heartbeat.rs.
    Learning(Learning),
}

/// One server's part in Zab, as a state machine.
///
/// It has four kinds of methods. `now` is in milliseconds of a clock that never goes back.
/// 1. **handle**: report an event. Call [`Zab::handle_deadline`] last, after every readable
///    message.
/// 2. **commands**: [`Zab::start`], [`Zab::propose`], [`Zab::confirm`], [`Zab::reconfigure`],
///    [`Zab::hand_over`], [`Zab::set_busy`], [`Zab::set_disk_refuses`], [`Zab::set_has_room`],
///    [`Zab::set_installing`], [`Zab::ping_on_time`], [`Zab::answer_learners`],
///    [`Zab::expect_leader`], [`Zab::expect_commit`], [`Zab::take_commit`].
/// 3. **poll**: after every call, call [`Zab::poll_action`] until it returns `None`. It returns
///    every message but the one of [`Zab::take_commit`].
/// 4. **getters**: the rest; they change nothing.
///
/// The machine keeps no state per entry. A history is [`Spans`], a peer is a few cursors, and
/// appends in flight are a few runs. Each message is made when it is polled, from the state at that
/// moment.
///
/// Invariants:
/// - `applied <= persisted <= history.last()`, except that `applied` may exceed `persisted` until
///   an installed snapshot is durable.
/// - `applied <= committed` and `current <= accepted`.
/// - The credentials and acks that this server sends describe durable state only.
#[derive(Debug)]
pub struct Zab {
    pub(crate) id: ServerId,
    pub(crate) disk: Incarnation,
    pub(crate) timing: Timing,
    pub(crate) ensemble: EnsembleId,
    pub(crate) voters: Voters,
    pub(crate) accepted: Epoch,
    pub(crate) current: Epoch,
    /// Newest epoch whose record was durable when `current` last changed.
    ///
    /// `epoch_seq` is the append that records `current`.
    pub(crate) current_durable: Epoch,
    pub(crate) epoch_seq: AppendSeq,
    pub(crate) history: Spans,
    pub(crate) appends: Appends,
    /// Append that records `accepted`.
    pub(crate) promise_seq: AppendSeq,
    pub(crate) committed: Zxid,
    /// Last entry the driver was told to apply.
    pub(crate) applied: Zxid,
    pub(crate) floor: Zxid,
    pub(crate) is_whole: bool,
    /// A snapshot replaces the state, so this server could not serve if it led.
    pub(crate) is_installing: bool,
    pub(crate) role: Role,
    pub(crate) state: State,
    pub(crate) peers: Vec<Peer, PEERS_MAX>,
    pub(crate) sent_by_disk: SentByDisk,
    pub(crate) todo: Deque<Todo, TODO_MAX>,
    pub(crate) is_started: bool,
    pub(crate) is_busy: bool,
    /// Number of the last attempt to join a leader.
    pub(crate) attempt: u32,
    /// Current back-off; doubles with each leadership that commits nothing.
    pub(crate) backoff_ms: u32,
    /// Newest round asked for with [`Zab::confirm`].
    pub(crate) asked: u64,
    /// Newest round that has its answer.
    pub(crate) answered: u64,
    /// Notification after the last event; a different one is a change to announce.
    pub(crate) stood: Option<crate::Notification>,
    pub(crate) random: u64,
}

impl Zab {
    /// Creates a server from its recovered log.
    ///
    /// `seed` is entropy for back-off and for the ensemble's id.
    pub fn new(id: ServerId, timing: Timing, recovered: Recovered, seed: u64) -> Self {
        let Recovered { disk, ensemble, accepted, current, config, pending, history, committed, appended, .. } =
            recovered;
        let last = history.last();
        let committed = if mutation::is_on(Mutation::ApplyUncommittedTail) { last } else { committed };
        assert!(committed <= last, "a log holds what it says is committed");
        assert!(current <= accepted, "an epoch is promised before it is entered");
        // The Configs record precedes its entry in the log. A crash between the two leaves the
        // record alone, and other entries may follow the record. So a pending configuration needs
        // its entry in the history.
        let pending = pending.filter(|pending| pending.version > config.version && history.contains(pending.version));
        let (config, pending) = match pending {
            Some(pending) if pending.version <= committed => (pending, None),
            pending => (config, pending),
        };
        Self {
            id,
            disk,
            timing,
            ensemble,
            voters: Voters::new(config, pending),
            accepted,
            current,
            current_durable: current,
            epoch_seq: appended,
            history,
            appends: Appends::new(appended, last),
            promise_seq: appended,
            committed,
            applied: committed,
            floor: recovered.floor,
            is_whole: recovered.is_whole,
            is_installing: false,
            role: Role::Looking,
            state: State::Looking { stand_at_ms: 0, retry_at_ms: 0 },
            peers: Vec::new(),
            todo: Deque::new(),
            is_started: false,
            is_busy: false,
            attempt: 0,
            backoff_ms: timing.backoff_ms,
            sent_by_disk: SentByDisk::default(),
            asked: 0,
            answered: 0,
            stood: None,
            random: seed ^ (disk.0 as u64) ^ u64::from(id.as_u8()).rotate_left(32),
        }
    }
}

/// Getters.
impl Zab {
    /// Returns this server's id.
    pub fn id(&self) -> ServerId {
        self.id
    }

    /// Returns this server's role as clients see it.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the leader, established or not; itself while it leads.
    ///
    /// `None` while this server is looking.
    pub fn leader(&self) -> Option<ServerId> {
        match &self.state {
            State::Looking { .. } => None,
            State::Leading(_) => Some(self.id),
            State::Learning(learning) => Some(learning.leader),
        }
    }

    /// Returns the configured durations.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Returns the newest epoch whose initial history this server holds.
    pub fn epoch(&self) -> Epoch {
        self.current
    }

    /// Returns the newest epoch this server promised.
    pub fn accepted(&self) -> Epoch {
        self.accepted
    }

    /// Returns the commit watermark known to this server.
    pub fn committed(&self) -> Zxid {
        self.committed
    }

    /// Returns the newest entry that is both committed and durable here.
    pub fn applicable(&self) -> Zxid {
        if mutation::is_on(Mutation::ReplyBeforePersist) && self.role == Role::Leading {
            return self.history.last();
        }
        self.committed.min(self.appends.persisted)
    }

    /// Returns the newest durable entry.
    pub fn persisted(&self) -> Zxid {
        self.appends.persisted
    }

    /// Returns the newest entry, durable or not.
    pub fn last(&self) -> Zxid {
        self.history.last()
    }

    /// Returns the remembered part of the history.
    pub fn history(&self) -> &Spans {
        &self.history
    }

    /// Returns the ensemble this disk belongs to.
    pub fn ensemble(&self) -> EnsembleId {
        self.ensemble
    }

    /// Returns this disk's incarnation.
    pub fn disk(&self) -> Incarnation {
        self.disk
    }

    /// Returns the newest configuration known to be committed.
    pub fn config(&self) -> &Config {
        self.voters.committed()
    }

    /// Returns the proposed configuration, if a change is in progress.
    pub fn pending_config(&self) -> Option<&Config> {
        self.voters.pending()
    }

    /// Returns whether this server counts as a voter.
    pub fn is_voter(&self) -> bool {
        self.is_whole && self.voters.counts(self.id, self.disk)
    }

    /// Returns when this server last heard its leader, in milliseconds.
    ///
    /// `None` without a leader; `now` while this server leads.
    pub fn leader_heard_ms(&self, now: u64) -> Option<u64> {
        match &self.state {
            State::Looking { .. } => None,
            State::Leading(_) => Some(now),
            // Silence is judged by `learning.heard_ms`, which excuses this server's own pauses.
            // Staleness is not excused, so the earlier of the two times counts.
            State::Learning(learning) => {
                let heard_ms = self.peer(learning.leader).and_then(|peer| peer.heard_ms);
                Some(heard_ms.map_or(learning.heard_ms, |heard_ms| heard_ms.min(learning.heard_ms)))
            }
        }
    }

    /// Returns the number of this server's last attempt to join a leader.
    pub fn attempt(&self) -> Attempt {
        Attempt(self.attempt)
    }

    /// Returns a peer's present attempt to join this leader; `None` unless it tries or has joined.
    pub fn attempt_of(&self, peer: ServerId) -> Option<Attempt> {
        Some(self.peer(peer)?.learner.as_ref()?.attempt)
    }

    /// Returns when the leader last heard a quorum, as far as this server knows, in milliseconds.
    ///
    /// No other leader can have been established before that time. `None` if this server has no leader,
    /// or leads without a quorum of learners.
    pub fn quorum_heard_ms(&self, now: u64) -> Option<u64> {
        if let State::Learning(learning) = &self.state {
            let heard_ms = self.leader_heard_ms(now)?;
            return Some(learning.quorum_heard_ms.map_or(heard_ms, |quorum_ms| quorum_ms.min(heard_ms)));
        }
        if self.role != Role::Leading {
            return None;
        }
        // `learner.heard_ms` excuses this server's own pauses, which do not count here.
        let heard_ms = |peer: &Peer| Some(peer.learner.as_ref()?.heard_ms.min(peer.heard_ms?));
        let times = core::iter::once(now).chain(self.peers.iter().filter_map(heard_ms));
        times.filter(|&at_ms| self.is_quorum(true, |peer| heard_ms(peer) >= Some(at_ms))).max()
    }

    /// Returns when a linked peer was last heard, in milliseconds.
    ///
    /// `None` without a link or before the peer's first message.
    pub fn heard_ms(&self, peer: ServerId) -> Option<u64> {
        self.peer(peer)?.heard_ms
    }

    /// Returns the learners of this server; empty unless it leads.
    ///
    /// Each item is the learner's id, its last entry known to be durable, and whether it has
    /// reached the stream of new entries.
    pub fn learners(&self) -> impl Iterator<Item = (ServerId, Zxid, bool)> {
        let leads = self.role == Role::Leading;
        let learners =
            self.peers.iter().filter_map(move |peer| peer.learner.as_ref().filter(|_| leads).map(|l| (peer.id, l)));
        learners.map(|(id, learner)| (id, learner.acked(), learner.is_synced()))
    }

    /// Returns whether this server and the learners that can acknowledge entries, and for which
    /// `holds` is true, form a quorum; `false` unless it leads.
    pub fn is_quorum_of_learners(&self, holds: impl Fn(ServerId) -> bool) -> bool {
        let stall_ms = self.timing.disk_stall_ms;
        let acks = |learner: &Learner| learner.is_synced() && !learner.is_missed && learner.disk_age_ms < stall_ms;
        let can_ack = |peer: &Peer| peer.learner.as_ref().is_some_and(acks);
        self.role == Role::Leading && self.is_quorum(true, |peer| can_ack(peer) && holds(peer.id))
    }

    /// Returns the disk of this server, or of a peer with a live link.
    pub fn disk_of(&self, id: ServerId) -> Option<Incarnation> {
        if id == self.id { Some(self.disk) } else { self.peer(id).map(|peer| peer.disk) }
    }

    /// Returns whether a linked peer belongs to an ensemble.
    ///
    /// An ensemble then exists, even if this disk belongs to none.
    pub fn meets_born(&self) -> bool {
        self.peers.iter().any(|peer| peer.said.as_ref().is_some_and(|(said, _)| said.ensemble != EnsembleId::UNBORN))
    }

    /// Returns this server's durable history, as reported to other servers.
    pub fn credentials(&self) -> Credentials {
        let last =
            if mutation::is_on(Mutation::ReportUnpersisted) { self.history.last() } else { self.appends.persisted };
        // An epoch without a durable record is not claimed: a crash could lose its history as well.
        let current = if self.appends.durable >= self.epoch_seq { self.current } else { self.current_durable };
        Credentials { current, last }
    }
}

/// Handle: events.
impl Zab {
    /// Reports a new link to a peer that has proved its identity.
    ///
    /// The link replaces an older one to the same peer. Beyond [`PEERS_MAX`] peers, the new link is
    /// closed.
    pub fn handle_link_up(&mut self, now: u64, peer: ServerId, link: LinkId, disk: Incarnation) {
        if peer == self.id {
            return;
        }
        if let Some(old) = self.peer(peer).map(|peer| peer.link) {
            self.handle_link_down(now, peer, old);
        }
        if self.peers.push(Peer::new(peer, link, disk)).is_err() {
            self.push(Todo::Close(peer, link, Fault::Protocol("more peers than an ensemble has")));
        }
        self.reconsider(now);
    }

    /// Reports that a link is gone.
    pub fn handle_link_down(&mut self, now: u64, peer: ServerId, link: LinkId) {
        let Some(at) = self.peers.iter().position(|known| known.id == peer && known.link == link) else { return };
        self.peers.swap_remove(at);
        match &self.state {
            // The stream is broken: nothing more of it arrives, and messages in flight are lost.
            State::Learning(learning) if learning.leader == peer => self.become_looking(now),
            State::Looking { .. } | State::Leading(_) | State::Learning(_) => {}
        }
        self.reconsider(now);
    }

    /// Handles a message from a peer.
    ///
    /// `config` is given if the message is a Proposal of a single entry and that entry is this
    /// configuration.
    pub fn handle_message(&mut self, now: u64, from: ServerId, link: LinkId, message: Message, config: Option<Config>) {
        let Some(peer) = self.peers.iter_mut().find(|known| known.id == from && known.link == link) else { return };
        peer.heard_ms = Some(now);
        let handled = match message {
            Message::Notification(notification) => self.on_notification(now, from, notification),
            Message::FollowerInfo { attempt, accepted, .. } => self.on_follower_info(now, from, attempt, accepted),
            Message::LeaderInfo { attempt, epoch } => self.on_leader_info(now, from, attempt, epoch),
            Message::AckEpoch { attempt, epoch, credentials, committed, tail, is_damaged } => {
                let promise = Promise { credentials, committed, is_damaged };
                self.on_ack_epoch(now, from, attempt, epoch, promise, &tail)
            }
            Message::Diff { attempt, epoch, from: at } => self.on_diff(now, from, attempt, epoch, at),
            Message::Trunc { attempt, epoch, to } => self.on_trunc(now, from, attempt, epoch, to),
            Message::Snap { attempt, epoch, at_least, config } => {
                self.on_snap(now, from, attempt, epoch, at_least, config)
            }
            Message::NewLeader { attempt, epoch, serves_from } => {
                self.on_new_leader(now, from, attempt, epoch, serves_from)
            }
            Message::Proposal { attempt, epoch, from: first, to, committed } => {
                self.on_proposal(now, from, attempt, epoch, (first, to), committed, config)
            }
            Message::Commit { attempt, epoch, to } => self.on_commit(now, from, attempt, epoch, to),
            Message::Ack { attempt, epoch, to } => self.on_ack(now, from, attempt, epoch, to),
            Message::Sync { attempt, epoch, round } => self.on_sync(now, from, attempt, epoch, round),
            Message::Synced { attempt, epoch, round, up_to } => self.on_synced(now, from, attempt, epoch, round, up_to),
            Message::HandOver { attempt, epoch, to, last } => self.on_hand_over(now, from, attempt, epoch, to, last),
            Message::Ping { attempt, epoch, round, interval_ms, quorum_age_ms } => {
                self.on_ping(now, from, attempt, epoch, round, (interval_ms, quorum_age_ms))
            }
            Message::Pong { attempt, epoch, round, disk_age_ms, has_room } => {
                self.on_pong(now, from, attempt, epoch, round, (disk_age_ms, has_room))
            }
        };
        if let Err(fault) = handled {
            self.push(Todo::Close(from, link, fault));
            self.handle_link_down(now, from, link);
        }
        self.reconsider(now);
    }

    /// Reports that every append up to `seq` is durable.
    ///
    /// Completions may be coalesced, late or repeated.
    pub fn handle_persisted(&mut self, now: u64, seq: AppendSeq) {
        self.appends.persisted(now, seq);
        self.on_persisted(now);
        self.reconsider(now);
    }

    /// Reports that entries at or below `floor` can no longer be read from the log.
    pub fn handle_log_floor(&mut self, floor: Zxid) {
        self.floor = self.floor.max(floor);
    }

    /// Reports that entries of a Proposal to `peer` can no longer be read.
    ///
    /// The link is closed, so the learner asks again in a new attempt. Otherwise an Ack in flight
    /// from this attempt could pass for the Ack of a snapshot. Before the learner asks again, the
    /// new floor must have been reported with [`Zab::handle_log_floor`].
    pub fn handle_unreadable(&mut self, now: u64, peer: ServerId) {
        if let Some(Peer { id, link, learner: Some(_), .. }) = self.peer(peer) {
            let (id, link) = (*id, *link);
            self.push(Todo::Close(id, link, Fault::Behind));
            self.handle_link_down(now, id, link);
        }
    }

    /// Judges elapsed time; call it after everything readable was handled.
    pub fn handle_deadline(&mut self, now: u64) {
        self.excuse_lateness(now);
        self.judge_silence(now);
        self.reconsider(now);
    }
}

/// Commands of every server; the other commands are in the files of their phases.
impl Zab {
    /// Command: starts taking part in the protocol.
    pub fn start(&mut self, now: u64) {
        assert!(!self.is_started, "started once");
        self.is_started = true;
        self.state = State::Looking { stand_at_ms: now, retry_at_ms: now };
        self.reconsider(now);
    }

    /// Command: sets whether heartbeats are frequent.
    ///
    /// They should be while writes or short sessions are live.
    pub fn set_busy(&mut self, now: u64, is_busy: bool) {
        if is_busy && !self.is_busy {
            self.hasten_pings(now);
        }
        self.is_busy = is_busy;
    }

    /// Command: sets whether the disk refuses all appends.
    ///
    /// Once that has lasted [`Timing::disk_stall_ms`](crate::Timing::disk_stall_ms), this server
    /// does not stand for election, and as leader it hands over to a faster voter. A server whose
    /// appends stall behaves the same, but a refusing disk counts even without a pending append.
    pub fn set_disk_refuses(&mut self, now: u64, refuses: bool) {
        self.appends.set_refused(now, refuses);
        self.reconsider(now);
    }

    /// Command: sets whether the disk has room for writes.
    ///
    /// A leader without room for [`Timing::disk_stall_ms`](crate::Timing::disk_stall_ms) hands over
    /// to a voter with room. If no voter has room, it keeps leading. A server without room still
    /// votes, acknowledges entries and may be elected.
    pub fn set_has_room(&mut self, now: u64, has_room: bool) {
        self.appends.set_room(now, has_room);
    }

    /// Command: sets whether a snapshot replaces this server's state.
    ///
    /// Meanwhile it could not serve if it led, so it does not stand for election. It acknowledges
    /// entries, and votes for a server with as much history.
    pub fn set_installing(&mut self, now: u64, is_installing: bool) {
        self.is_installing = is_installing;
        self.reconsider(now);
    }
}

/// Poll.
impl Zab {
    /// Returns the next action; `None` when nothing is left to do.
    pub fn poll_action(&mut self, now: u64) -> Option<Action> {
        if let Some(todo) = self.todo.pop_front() {
            return Some(match todo {
                Todo::Promise(seq, epoch) => Action::Promise { seq, epoch },
                Todo::Epoch(seq, epoch) => Action::Epoch { seq, epoch },
                Todo::Birth(seq, ensemble) => Action::Birth { seq, ensemble },
                Todo::Damaged(seq) => Action::Damaged { seq },
                Todo::Configs(seq) => Action::Configs { seq },
                Todo::Truncate(seq, to) => Action::Truncate { seq, to },
                Todo::SnapEnd(seq, zxid) => {
                    if self.voters.pending().is_some() {
                        // If the leader's history still holds the entry of this change, the entry
                        // arrives again.
                        self.voters.withdraw();
                        self.record_configs(now);
                    }
                    Action::SnapEnd { seq, zxid }
                }
                Todo::Append(seq, from, to) => Action::Append { seq, from, to },
                Todo::Commit(to) => Action::Commit { to },
                Todo::Become(role) => Action::Become(role),
                Todo::Confirmed(round, up_to) => Action::Confirmed { round: crate::Round(round), up_to },
                Todo::Close(peer, link, fault) => Action::Close { peer, link, fault },
            });
        }
        if !self.is_started {
            return None;
        }
        let next = (0..self.peers.len()).find_map(|at| {
            let message = self.message_to(now, at)?;
            let Peer { id, link, .. } = self.peers[at];
            Some(Action::Send { peer: id, link, message })
        });
        if next.is_none() && self.maybe_step_aside(now) {
            self.reconsider(now);
            return self.poll_action(now);
        }
        next
    }

    fn message_to(&mut self, now: u64, at: usize) -> Option<Message> {
        if core::mem::take(&mut self.peers[at].owes_notification) {
            return Some(Message::Notification(self.notification(now)));
        }
        match &self.state {
            State::Looking { .. } => None,
            State::Leading(_) => self.message_to_learner(now, at),
            State::Learning(learning) if learning.leader == self.peers[at].id => self.message_to_leader(now),
            State::Learning(_) => None,
        }
    }
}

/// Shared by all phases.
impl Zab {
    pub(crate) fn push(&mut self, todo: Todo) {
        // Consecutive entries of one call become one append, and consecutive commits one commit.
        match (self.todo.back_mut(), todo) {
            (Some(Todo::Append(last_seq, _, to)), Todo::Append(seq, first, last)) if to.next() == Some(first) => {
                (*last_seq, *to) = (seq, last);
                return;
            }
            (Some(Todo::Commit(to)), Todo::Commit(newer)) => {
                *to = newer;
                return;
            }
            _ => {}
        }
        let pushed = self.todo.push_back(todo);
        assert!(pushed.is_ok(), "actions are polled after every call");
    }

    pub(crate) fn peer(&self, id: ServerId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    pub(crate) fn learner(&mut self, id: ServerId) -> Option<&mut crate::peer::Learner> {
        self.peers.iter_mut().find(|peer| peer.id == id)?.learner.as_mut()
    }

    /// Returns whether the peer counts as a voter.
    pub(crate) fn counts(&self, peer: &Peer) -> bool {
        mutation::is_on(Mutation::IncarnationIgnored) || self.voters.counts(peer.id, peer.disk)
    }

    /// Returns whether the voters for which `holds` is true form a quorum.
    ///
    /// `me` says whether this server is one of them.
    pub(crate) fn is_quorum(&self, me: bool, holds: impl Fn(&Peer) -> bool) -> bool {
        self.voters.is_quorum(|id, disk| {
            let is_disk = |live: Incarnation| {
                disk == live || disk == Incarnation(0) || mutation::is_on(Mutation::IncarnationIgnored)
            };
            if id == self.id {
                return me && self.is_whole && is_disk(self.disk);
            }
            self.peer(id).is_some_and(|peer| is_disk(peer.disk) && holds(peer))
        })
    }

    /// Returns the peers heard within `fresh_ms`.
    ///
    /// A leader names exactly those of its learners whose pongs it does not miss.
    pub(crate) fn hears(&self, now: u64) -> Servers {
        let mut hears = Servers::NOBODY;
        let is_heard = |peer: &&Peer| match &peer.learner {
            Some(learner) => !learner.is_missed,
            None => peer.is_fresh(now, self.timing.fresh_ms),
        };
        self.peers.iter().filter(is_heard).for_each(|peer| hears.insert(peer.id));
        hears
    }

    pub(crate) fn tell_everybody(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.owes_notification = true);
    }

    pub(crate) fn set_role(&mut self, role: Role) {
        if self.role == role {
            return;
        }
        if self.answered < self.asked {
            // Callers with an open confirmation must ask again under the next role.
            self.answered = self.asked;
            self.push(Todo::Confirmed(self.asked, None));
        }
        self.role = role;
        self.push(Todo::Become(role));
    }

    /// Raises the commit watermark and queues newly applicable entries.
    ///
    /// A pending configuration at or below `to` is committed at once.
    pub(crate) fn commit(&mut self, now: u64, to: Zxid) {
        if to > self.committed {
            self.committed = to;
            if let Some(pending) = self.voters.pending().filter(|pending| pending.version <= to).cloned() {
                self.voters.commit(pending);
                self.record_configs(now);
            }
        }
        let applicable = self.applicable();
        if applicable > self.applied {
            self.applied = applicable;
            self.push(Todo::Commit(applicable));
        }
    }

    pub(crate) fn record_configs(&mut self, now: u64) {
        if mutation::is_on(Mutation::ConfigNotRecorded) {
            return;
        }
        let seq = self.appends.fact(now);
        self.push(Todo::Configs(seq));
    }

    pub(crate) fn promise(&mut self, now: u64, epoch: Epoch) {
        self.accepted = epoch;
        self.promise_seq = self.appends.fact(now);
        self.push(Todo::Promise(self.promise_seq, epoch));
    }

    pub(crate) fn is_promise_durable(&self) -> bool {
        self.appends.durable >= self.promise_seq
    }

    pub(crate) fn enter_epoch(&mut self, now: u64, epoch: Epoch) {
        self.current_durable = self.credentials().current;
        self.current = epoch;
        if !mutation::is_on(Mutation::EpochNotRecorded) {
            let seq = self.appends.fact(now);
            self.epoch_seq = seq;
            self.push(Todo::Epoch(seq, epoch));
        }
    }

    pub(crate) fn append(&mut self, now: u64, from: Zxid, to: Zxid) {
        self.history.push_range(from, to);
        let seq = self.appends.entries(now, from, to);
        self.push(Todo::Append(seq, from, to));
    }

    /// Returns a pseudo-random number below `bound`.
    pub(crate) fn random_below(&mut self, bound: u32) -> u64 {
        // SplitMix64: good enough for back-off, with one number as its whole state.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % u64::from(bound.max(1))
    }
}

const _: () = assert!(size_of::<Zab>() <= 32 * 1024);
