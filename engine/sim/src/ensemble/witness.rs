//! Who writes down what happens: for oracles, for invariants, for people.

use super::Trace;
use crate::oracle::{History, Recorder};
use bytes::Bytes;
use std::collections::BTreeMap;
use zoolet_engine::action::Append;
use zoolet_engine::peer::{LinkId, PeerMessage};
use zoolet_engine::store::log::Facts;
use zoolet_zab::{AppendSeq, ServerId, Zxid};

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
}

impl Witness {
    pub(super) fn new(trace: Trace, super_digest: Option<String>) -> Self {
        Self { trace, recorder: Recorder::new().with_super_digest(super_digest), ..Self::default() }
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
    }

    pub(super) fn stopped(&mut self, server: ServerId) {
        self.states.remove(&server);
    }

    pub(super) fn appended(&mut self, _now_us: u64, _server: ServerId, _append: &Append) {}

    pub(super) fn durable(&mut self, _now_us: u64, _server: ServerId, _seq: AppendSeq) {}

    pub(super) fn told(&mut self, _now_us: u64, _server: ServerId, _seq: AppendSeq) {}

    pub(super) fn sent(&mut self, _server: ServerId, _peer: ServerId, _link: LinkId, _message: &PeerMessage) {}

    pub(super) fn received(&mut self, _server: ServerId, _peer: ServerId, _link: LinkId, _message: &PeerMessage) {}

    pub(super) fn checkpointed(&mut self, _now_us: u64, _server: ServerId, _zxid: Zxid) {}

    pub(super) fn recycled(&mut self, _now_us: u64, _server: ServerId, _zxid: Zxid) {}

    pub(super) fn committed(&mut self, now_us: u64, zxid: Zxid, payload: &Bytes) {
        self.recorder.committed(now_us, zxid, payload);
    }

    /// What a server says after a turn: equal histories make equal states, and nothing that was applied is taken back.
    /// Says whether it serves now and did not before, or the other way.
    pub(super) fn state(&mut self, now_us: u64, server: ServerId, state: State) -> bool {
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
