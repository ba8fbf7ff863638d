//! Outgoing stream to one peer, in order: messages, and ranges of entries from memory or the log.

use super::Server;
use crate::derived::Derived;
use crate::record::chain_after;
use crate::seam::action::{Action, ReadLog};
use crate::seam::ids::{LinkId, ReadId};
use crate::seam::peer::{ENTRIES_BYTES_MAX, Entries, Lane, LogRange, LogReadFailure, PeerEntry, PeerMessage};
use bytes::Bytes;
use std::collections::VecDeque;
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::{Attempt, Epoch, Message};

/// Bytes that an entry takes besides its payload.
const ENTRY_BYTES: usize = size_of::<PeerEntry>();

/// An item waiting for its turn.
#[derive(Debug)]
enum Item {
    Message(PeerMessage),
    /// A Proposal.
    Range(Range),
    /// A Snap: a generation of the base that includes at least this entry.
    Snap {
        at_least: Zxid,
        message: Box<Message>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Range {
    attempt: Attempt,
    epoch: Epoch,
    from: Zxid,
    to: Zxid,
    committed: Zxid,
}

/// The outgoing stream to one peer.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) link: LinkId,
    /// The learner's attempt that this stream serves.
    attempt: Option<Attempt>,
    items: VecDeque<Item>,
    /// The last entry sent, or the last one the learner had before.
    cursor: Zxid,
    /// The log read in flight for this stream.
    reading: Option<ReadId>,
    /// Entries read and not yet sent, and the chain hash before them.
    read: VecDeque<(Zxid, Bytes)>,
    read_chain: u128,
    read_bytes: usize,
    /// Entries sent and not yet acknowledged: for each message its last zxid and its bytes.
    in_flight: VecDeque<(Zxid, usize)>,
    in_flight_bytes: usize,
}

impl Stream {
    pub(super) fn new(link: LinkId) -> Self {
        Self {
            link,
            attempt: None,
            items: VecDeque::new(),
            cursor: Zxid::ZERO,
            reading: None,
            read: VecDeque::new(),
            read_chain: 0,
            read_bytes: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
        }
    }

    /// Returns the bytes held by the stream.
    pub(super) fn bytes(&self) -> usize {
        self.in_flight_bytes + self.read_bytes
    }

    pub(super) fn derived(&self, derived: &mut Vec<Derived>) {
        let in_flight = self.in_flight.iter().map(|&(_, bytes)| bytes).sum();
        let read = self.read.iter().map(|(_, payload)| payload.len() + ENTRY_BYTES).sum();
        derived.extend([
            Derived::new("stream_in_flight_bytes", self.in_flight_bytes, in_flight),
            Derived::new("stream_read_bytes", self.read_bytes, read),
        ]);
    }

    /// Returns the number of waiting items.
    pub(super) fn len(&self) -> usize {
        self.items.len() + usize::from(self.reading.is_some())
    }

    /// Drops everything queued, because its purpose is gone.
    fn clear(&mut self) {
        *self = Self::new(self.link);
    }

    /// Enters a learner's new attempt; drops everything queued for an older one.
    fn enter(&mut self, attempt: Attempt) {
        if self.attempt != Some(attempt) {
            self.clear();
            self.attempt = Some(attempt);
        }
    }

    /// Handles an acknowledgement: the peer has everything up to `to` durably.
    pub(super) fn acked(&mut self, attempt: Attempt, to: Zxid) {
        if self.attempt != Some(attempt) {
            return;
        }
        while let Some(&(last, bytes)) = self.in_flight.front()
            && last <= to
        {
            self.in_flight.pop_front();
            self.in_flight_bytes -= bytes;
        }
    }

    fn take_read(&mut self) -> Option<(Zxid, Bytes)> {
        let (zxid, payload) = self.read.pop_front()?;
        self.read_bytes -= payload.len() + ENTRY_BYTES;
        self.read_chain = chain_after(self.read_chain, zxid, &payload);
        Some((zxid, payload))
    }

    fn drop_read(&mut self) {
        self.read.clear();
        self.read_bytes = 0;
    }
}

fn zab(message: Message) -> PeerMessage {
    PeerMessage::Zab(Box::new(message))
}

impl Server {
    /// Carries out one Send of the protocol.
    pub(super) fn say(&mut self, peer: ServerId, link: LinkId, message: Message) {
        if matches!(message, Message::NewLeader { .. }) {
            // The peer has been sent the whole initial history.
            if self.peers.snapshots.remove(&peer).is_some() {
                // A snapshot replaced the peer's state.
                self.peers.differs.remove(&peer);
            }
        }
        let Some(stream) = self.peers.stream(peer, link) else { return };
        let item = match message {
            // These may overtake: heartbeats are datagrams, and an election must not wait for a log
            // read.
            Message::Ping { .. } | Message::Pong { .. } | Message::Notification(_) => {
                return self.actions.push_back(Action::PeerSend { peer, link, message: zab(message) });
            }
            Message::Proposal { attempt, epoch, from, to, committed } => {
                stream.enter(attempt);
                Item::Range(Range { attempt, epoch, from, to, committed })
            }
            Message::Snap { attempt, at_least, .. } => {
                stream.enter(attempt);
                Item::Snap { at_least, message: Box::new(message) }
            }
            Message::Diff { attempt, from: to, .. } | Message::Trunc { attempt, to, .. } => {
                stream.enter(attempt);
                stream.cursor = to;
                Item::Message(zab(message))
            }
            Message::LeaderInfo { attempt, .. }
            | Message::NewLeader { attempt, .. }
            | Message::Commit { attempt, .. }
            | Message::Synced { attempt, .. }
            | Message::HandOver { attempt, .. } => {
                stream.enter(attempt);
                Item::Message(zab(message))
            }
            // This server is now the peer's learner and numbers the attempt. Messages queued as the
            // peer's leader are obsolete. Drop them: the peer no longer acknowledges them, and they
            // would block this message.
            Message::FollowerInfo { .. } => {
                stream.clear();
                Item::Message(zab(message))
            }
            Message::AckEpoch { .. } | Message::Ack { .. } | Message::Sync { .. } => Item::Message(zab(message)),
        };
        stream.items.push_back(item);
        self.peers.to_pump.insert(peer);
    }

    /// Queues a message behind everything sent before. Returns false without a link to the peer.
    pub(super) fn send_to(&mut self, peer: ServerId, message: PeerMessage) -> bool {
        let Some(stream) = self.peers.stream_of(peer) else { return false };
        let link = stream.link;
        // The learner must know what is committed before it handles this message.
        if message.lane() == Lane::Log
            && let Some(commit) = self.zab.take_commit(peer)
        {
            self.say(peer, link, commit);
        }
        let Some(stream) = self.peers.stream_of(peer) else { return false };
        stream.items.push_back(Item::Message(message));
        self.peers.to_pump.insert(peer);
        self.pump_streams();
        true
    }

    /// Drops all queued items, because this server stopped leading or does not know its leader.
    pub(super) fn clear_streams(&mut self) {
        self.peers.streams().for_each(Stream::clear);
        self.peers.snapshots.clear();
        // Only a leader receives digests. The next one compares anew.
        self.peers.differs.clear();
    }

    /// Sends everything that can go now.
    pub(super) fn pump_streams(&mut self) {
        while let Some(peer) = self.peers.to_pump.pop_first() {
            while self.pump_stream(peer) {}
        }
    }

    /// Sends the next item. Returns false if it must wait or the queue is empty.
    fn pump_stream(&mut self, peer: ServerId) -> bool {
        let window = self.window_bytes();
        let Some(stream) = self.peers.stream_of(peer) else { return false };
        let link = stream.link;
        match stream.items.front() {
            None => return false,
            Some(Item::Message(_)) => {
                if let Some(Item::Message(message)) = stream.items.pop_front() {
                    self.actions.push_back(Action::PeerSend { peer, link, message });
                }
            }
            Some(&Item::Snap { at_least, .. }) => {
                // While the Snap waited for a checkpoint, the membership may have changed, and the
                // checkpoint may include that change.
                let newest = self.zab.config().clone();
                let Some(source) = self.snapshot_of(at_least.max(newest.version)) else { return false };
                let Some(stream) = self.peers.stream_of(peer) else { return false };
                stream.cursor = source.meta.zxid;
                if let Some(Item::Snap { mut message, .. }) = stream.items.pop_front() {
                    if let Message::Snap { config, .. } = &mut *message {
                        *config = newest;
                    }
                    self.send_snapshot(peer, link, message, source);
                }
            }
            Some(&Item::Range(range)) => {
                if stream.in_flight_bytes > 0 && stream.in_flight_bytes >= window {
                    return false;
                }
                let Some(entries) = self.next_entries(peer, range) else { return false };
                let Some(stream) = self.peers.stream_of(peer) else { return false };
                let bytes = entries.entries.iter().map(|entry| entry.payload.len() + ENTRY_BYTES).sum();
                stream.cursor = entries.to;
                stream.in_flight.push_back((entries.to, bytes));
                stream.in_flight_bytes += bytes;
                match stream.items.front_mut() {
                    Some(Item::Range(range)) if entries.to < range.to => {
                        // A range lies within one epoch.
                        range.from = entries.to.next().unwrap_or(range.to);
                    }
                    _ => drop(stream.items.pop_front()),
                }
                self.actions.push_back(Action::PeerSend { peer, link, message: PeerMessage::Entries(entries) });
            }
        }
        true
    }

    /// Returns the first part of a range that fits one message. `None` while it is being read.
    fn next_entries(&mut self, peer: ServerId, range: Range) -> Option<Entries> {
        let Range { attempt, epoch, from, to, committed } = range;
        let mut sent = Entries { attempt, epoch, from, to: from, committed, chain_before: 0, entries: Vec::new() };
        let Self { peers, history, .. } = self;
        let stream = peers.stream_of(peer)?;
        let mut bytes = 0;
        let mut fits = |payload: &Bytes| {
            bytes += payload.len() + ENTRY_BYTES;
            bytes <= ENTRIES_BYTES_MAX || bytes == payload.len() + ENTRY_BYTES
        };
        if let Some((chain, held)) = history.held(from) {
            stream.drop_read();
            sent.chain_before = chain;
            for entry in held.take_while(|entry| entry.zxid <= to && fits(entry.payload)) {
                sent.entries.push(PeerEntry { zxid: entry.zxid, payload: entry.payload.clone() });
            }
        } else {
            while stream.read.front().is_some_and(|(zxid, _)| *zxid < from) {
                stream.take_read();
            }
            if stream.read.front().is_none_or(|(zxid, _)| *zxid != from) {
                self.read_log(peer, range);
                return None;
            }
            sent.chain_before = stream.read_chain;
            while let Some((zxid, payload)) = stream.read.front()
                && *zxid <= to
                && fits(payload)
            {
                let Some((zxid, payload)) = stream.take_read() else { break };
                sent.entries.push(PeerEntry { zxid, payload });
            }
        }
        sent.to = sent.entries.last()?.zxid;
        Some(sent)
    }

    /// Reads the start of a range from the log, up to the entries held in memory.
    fn read_log(&mut self, peer: ServerId, range: Range) {
        let oldest = self.history.oldest();
        let id = ReadId(self.peers.reads + 1);
        let bytes_max = (self.window_bytes() / 2).max(ENTRIES_BYTES_MAX);
        let Some(stream) = self.peers.stream_of(peer) else { return };
        if stream.reading.is_some() {
            return;
        }
        stream.drop_read();
        let before_memory = oldest.filter(|oldest| *oldest <= range.to).and_then(|oldest| {
            let counter = oldest.counter().checked_sub(1)?;
            Zxid::new(oldest.epoch(), counter)
        });
        let to = before_memory.unwrap_or(range.to);
        let read = ReadLog { id, after: stream.cursor, to, bytes_max };
        stream.reading = Some(id);
        self.peers.reads += 1;
        self.actions.push_back(Action::ReadLog(read));
    }

    pub(super) fn on_log_read(&mut self, id: ReadId, result: Result<LogRange, LogReadFailure>) {
        let Some((peer, stream)) = self.peers.iter_mut().find(|(_, stream)| stream.reading == Some(id)) else { return };
        stream.reading = None;
        match result {
            Ok(LogRange { chain_before, entries }) => {
                stream.read_chain = chain_before;
                stream.read_bytes = entries.iter().map(|(_, payload)| payload.len() + ENTRY_BYTES).sum();
                stream.read = entries.into();
            }
            // Entries that cannot be read are in a checkpoint: the peer gets that as a snapshot.
            Err(failure) => {
                let is_next = matches!(stream.items.front(), Some(Item::Range(_)));
                if let LogReadFailure::Unreadable(reason) = failure {
                    // The entries were applied, so a checkpoint can include them. The log does not
                    // report its damage, so raise its floor here.
                    if let Some(left_out) = self.peers.log_limit.admit("unreadable", self.now.mono_ms) {
                        tracing::warn!(
                            reason,
                            left_out,
                            "cannot read entries of the log; learners that need them get a snapshot"
                        );
                    }
                    self.zab.handle_log_floor(self.state.applied());
                }
                if is_next {
                    self.zab.handle_unreadable(self.now.mono_ms, peer);
                    return self.follow_zab();
                }
            }
        }
        self.peers.to_pump.insert(peer);
        self.pump_streams();
    }

    /// Returns the maximum bytes of entries in flight to one peer.
    fn window_bytes(&self) -> usize {
        self.limits.outstanding_bytes_max as usize / 2 / self.peers.len().max(1)
    }
}
