//! Who writes down what happens: for oracles, for invariants, for people.

use super::Trace;
use crate::invariant::{self, Checks, Seen};
use crate::oracle::{History, Recorder};
use bytes::Bytes;
use std::collections::BTreeMap;
use zoolet_engine::action::Append;
use zoolet_engine::peer::{Entries, LinkId, PeerMessage};
use zoolet_engine::store::log::Facts;
use zoolet_zab::{AppendSeq, Config, Message, ServerId, Zab, Zxid};

/// What a server says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// The last entry it applied.
    pub applied: Zxid,
    /// The digest of its state after that.
    pub digest: u128,
    /// Whether it serves clients.
    pub is_serving: bool,
}

/// Steps after which the invariants count everything again.
const RECOUNT_EVERY: u64 = 5000;

/// Sees everything, changes nothing.
#[derive(Debug, Default)]
pub struct Witness {
    /// The last events, if anybody reads them.
    pub trace: Trace,
    /// What clients saw.
    pub recorder: Recorder,
    states: BTreeMap<ServerId, State>,
    /// Digests by entry, of whoever was there first.
    digests: BTreeMap<Zxid, (ServerId, u128)>,
    violations: Vec<String>,
    /// The invariants; of a run that nobody checks none.
    checks: Option<Checks>,
}

impl Witness {
    pub(super) fn new(trace: Trace, super_digest: Option<String>, founders: Config) -> Self {
        let checks = Some(Checks::new(founders, RECOUNT_EVERY));
        Self { trace, recorder: Recorder::new().with_super_digest(super_digest), checks, ..Self::default() }
    }

    /// The invariants judge what happened at a server.
    fn see(&mut self, server: ServerId, seen: Seen<'_>) {
        if let Some(checks) = &mut self.checks {
            checks.see(server, seen);
        }
    }

    /// What the invariants found becomes a violation.
    fn judge(&mut self, now_us: u64) {
        let wrong = self.checks.as_ref().and_then(|checks| checks.verdict().err()).map(ToString::to_string);
        if let Some(what) = wrong.filter(|what| !self.violations.contains(what)) {
            self.violation(now_us, what);
        }
    }

    /// The invariants count everything again.
    pub(super) fn recount(&mut self, now_us: u64) {
        if let Some(checks) = &mut self.checks {
            checks.recount();
        }
        self.judge(now_us);
    }

    /// What was wrong, the first first.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// What a running server last said of itself.
    pub fn said(&self, server: ServerId) -> Option<State> {
        self.states.get(&server).copied()
    }

    /// Something must not be.
    pub fn violation(&mut self, now_us: u64, what: String) {
        self.trace.note(now_us, "!!", || what.clone());
        self.violations.push(what);
    }

    pub(super) fn finish(self, now_us: u64, is_settled: bool) -> History {
        self.recorder.finish(now_us, is_settled)
    }

    pub(super) fn started(&mut self, now_us: u64, server: ServerId, process: u64, facts: &Facts) {
        let last = facts.last;
        self.trace.note(now_us, super::host::Who(server), || format!("process {process} begins with {last:?}"));
        self.see(server, Seen::Started { process, facts, is_damaged: false });
        self.judge(now_us);
    }

    pub(super) fn stopped(&mut self, server: ServerId) {
        self.states.remove(&server);
        self.see(server, Seen::Stopped);
    }

    pub(super) fn appended(&mut self, now_us: u64, server: ServerId, append: &Append) {
        self.see(server, Seen::Appended(append));
        self.judge(now_us);
    }

    pub(super) fn durable(&mut self, now_us: u64, server: ServerId, seq: AppendSeq) {
        self.see(server, Seen::Durable(seq));
        self.judge(now_us);
    }

    pub(super) fn told(&mut self, now_us: u64, server: ServerId, seq: AppendSeq) {
        self.see(server, Seen::Told(seq));
        self.judge(now_us);
    }

    pub(super) fn sent(&mut self, server: ServerId, peer: ServerId, link: LinkId, message: &PeerMessage) {
        if let Some(message) = of_protocol(message) {
            self.see(server, Seen::Sent { peer, link, message: &message });
        }
    }

    pub(super) fn received(&mut self, server: ServerId, peer: ServerId, message: &PeerMessage) {
        let process = self.checks.as_ref().and_then(|checks| checks.ghost.hosts.get(&peer)).map(|host| host.process);
        if let Some((message, process)) = of_protocol(message).zip(process) {
            self.see(server, Seen::Received { peer, process, message: &message });
        }
    }

    pub(super) fn checkpointed(&mut self, now_us: u64, server: ServerId, zxid: Zxid) {
        self.see(server, Seen::Checkpointed(zxid));
        self.judge(now_us);
    }

    pub(super) fn recycled(&mut self, now_us: u64, server: ServerId, zxid: Zxid) {
        self.see(server, Seen::Recycled(zxid));
        self.judge(now_us);
    }

    pub(super) fn committed(&mut self, now_us: u64, zxid: Zxid, payload: &Bytes) {
        self.recorder.committed(now_us, zxid, payload);
    }

    /// What a server says after a turn: equal histories make equal states, and nothing that was applied is taken back.
    /// Says whether it serves now and did not before, or the other way.
    pub(super) fn state(&mut self, now_us: u64, server: ServerId, state: State, zab: &Zab) -> bool {
        let said = invariant::State {
            role: zab.role(),
            epoch: zab.epoch(),
            committed: zab.committed(),
            applied: state.applied,
            digest: Some(state.digest),
        };
        self.see(server, Seen::State(said));
        self.judge(now_us);
        let before = self.states.insert(server, state);
        if before == Some(state) {
            return false;
        }
        if let Some(before) = before.filter(|before| before.applied > state.applied) {
            self.violation(now_us, format!("server {} went back: {before:?}, then {state:?}", server.as_u8()));
        }
        let (first, digest) = *self.digests.entry(state.applied).or_insert((server, state.digest));
        if digest != state.digest {
            let (a, b) = (first.as_u8(), server.as_u8());
            self.violation(now_us, format!("servers {a} and {b} differ in the state after {:?}", state.applied));
        }
        before.map(|before| before.is_serving) != Some(state.is_serving)
    }
}

/// What of it is the protocol's own.
fn of_protocol(message: &PeerMessage) -> Option<Message> {
    match message {
        PeerMessage::Zab(message) | PeerMessage::Snapshot { message, .. } => Some(Message::clone(message)),
        PeerMessage::Entries(Entries { attempt, epoch, from, to, committed, .. }) => {
            Some(Message::Proposal { attempt: *attempt, epoch: *epoch, from: *from, to: *to, committed: *committed })
        }
        PeerMessage::Forward { .. }
        | PeerMessage::Refused { .. }
        | PeerMessage::Revalidate { .. }
        | PeerMessage::Revalidated { .. }
        | PeerMessage::Moved { .. }
        | PeerMessage::Touch { .. }
        | PeerMessage::Digest { .. } => None,
    }
}
