//! Records what happens, for the oracles, the invariants and people.

use super::coverage::{Feature, Sightings};
use super::{Epochs, Trace};
use crate::invariant::{self, Checks, Ghost, Queue, Seen};
use crate::oracle::{History, Recorder};
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::BTreeMap;
use zoolet_machine::Server;
use zoolet_machine::seam::action::Append;
use zoolet_machine::seam::peer::{Entries, LinkId, PeerMessage};
use zoolet_model::SessionId;
use zoolet_store::Health;
use zoolet_store::log::Facts;
use zoolet_zab::{AppendSeq, Config, Epoch, Message, Role, ServerId, Zxid};

/// Observations between two full recounts of the invariants.
const RECOUNT_EVERY: u64 = 50_000;
/// One entry in this many recounts the numbers that do not follow from applied entries.
const DERIVED_EVERY: u64 = 16;

/// State of a server, as the server reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// The last entry that it applied.
    pub applied: Zxid,
    /// The digest of its state after that entry.
    pub digest: u128,
    /// Whether it serves clients.
    pub is_serving: bool,
    /// Its role in the protocol.
    pub role: Role,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its commit watermark.
    pub committed: Zxid,
    /// Whether it refuses writes now.
    pub is_refusing: bool,
}

/// Observes everything and changes nothing.
#[derive(Debug)]
pub struct Witness {
    /// The last events, if the trace is on.
    pub trace: Trace,
    /// Observations of clients.
    pub recorder: Recorder,
    pub(super) sightings: Sightings,
    /// Leaders of the epochs.
    pub epochs: Epochs,
    states: BTreeMap<ServerId, State>,
    /// The digest after each entry, from the first server that reported it.
    digests: BTreeMap<Zxid, (ServerId, u128)>,
    violations: Vec<String>,
    checks: Checks,
    /// Violations of invariants that are already in `violations`.
    told: usize,
    /// Sender and receiver of the last promise since the last look.
    pub(super) promised: Option<(ServerId, ServerId)>,
}

impl Witness {
    pub(super) fn new(trace: Trace, super_digest: Option<String>, founders: Config) -> Self {
        Self {
            trace,
            recorder: Recorder::new().with_super_digest(super_digest),
            sightings: Sightings::default(),
            epochs: Epochs::default(),
            states: BTreeMap::new(),
            digests: BTreeMap::new(),
            violations: Vec::new(),
            checks: Checks::new(founders, RECOUNT_EVERY),
            told: 0,
            promised: None,
        }
    }

    /// Returns descriptions of the violations, in order.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Returns the contents of every disk, and the committed entries.
    pub(super) fn ghost(&self) -> &Ghost {
        &self.checks.ghost
    }

    /// Returns the last reported state of a running server.
    pub fn said(&self, server: ServerId) -> Option<State> {
        self.states.get(&server).copied()
    }

    /// Records a violation.
    pub fn violation(&mut self, now_us: u64, what: String) {
        self.trace.note(now_us, "!!", || what.clone());
        self.violations.push(what);
    }

    /// Makes every invariant recount everything.
    pub(super) fn recount(&mut self, now_us: u64) {
        self.checks.recount();
        self.judge(now_us);
    }

    pub(super) fn finish(self, now_us: u64, is_settled: bool) -> History {
        self.recorder.finish(now_us, is_settled)
    }

    /// Passes an observation to the invariants.
    fn see(&mut self, now_us: u64, server: ServerId, seen: Seen<'_>) {
        self.checks.see(server, seen);
        self.judge(now_us);
    }

    fn judge(&mut self, now_us: u64) {
        let new: Vec<_> = self.checks.violations()[self.told..].iter().map(ToString::to_string).collect();
        self.told += new.len();
        new.into_iter().for_each(|what| self.violation(now_us, what));
    }

    pub(super) fn started(&mut self, now_us: u64, server: ServerId, process: u64, facts: &Facts, is_damaged: bool) {
        let last = facts.last;
        self.trace.note(now_us, super::host::Who(server), || format!("process {process} begins with {last:?}"));
        self.see(now_us, server, Seen::Started { process, facts, is_damaged });
    }

    /// Checks a store's report of damage against what was really damaged.
    pub(super) fn found_damage(&mut self, now_us: u64, server: ServerId, health: &Health, is_damaged: bool) {
        self.trace.note(now_us, super::host::Who(server), || format!("finds damage: {health:?}"));
        if !is_damaged {
            let server = server.as_u8();
            self.violation(now_us, format!("nobody damaged the disk of server {server}, and it says {health:?}"));
        }
    }

    pub(super) fn stopped(&mut self, now_us: u64, server: ServerId, has_begun: bool) {
        self.states.remove(&server);
        self.sightings.role(now_us, server, Role::Looking);
        if has_begun {
            self.see(now_us, server, Seen::Stopped);
        }
    }

    pub(super) fn appended(&mut self, now_us: u64, server: ServerId, append: &Append) {
        self.sightings.appended(now_us, append);
        self.see(now_us, server, Seen::Appended(append));
    }

    pub(super) fn durable(&mut self, now_us: u64, server: ServerId, seq: AppendSeq) {
        self.see(now_us, server, Seen::Durable(seq));
    }

    pub(super) fn told(&mut self, now_us: u64, server: ServerId, seq: AppendSeq) {
        self.see(now_us, server, Seen::Told(seq));
    }

    pub(super) fn sent(&mut self, now_us: u64, server: ServerId, peer: ServerId, link: LinkId, message: &PeerMessage) {
        if let Some(message) = protocol(message) {
            if let Message::HandOver { epoch, to, .. } = *message {
                self.epochs.hands_over(epoch, to);
            }
            if let Message::AckEpoch { .. } = *message {
                self.promised = Some((server, peer));
            }
            self.see(now_us, server, Seen::Sent { peer, link, message: &message });
        }
    }

    pub(super) fn received(
        &mut self,
        now_us: u64,
        server: ServerId,
        peer: ServerId,
        process: u64,
        message: &PeerMessage,
    ) {
        self.sightings.received(now_us, server, message);
        if let Some(message) = protocol(message) {
            self.see(now_us, server, Seen::Received { peer, process, message: &message });
        }
    }

    /// Records that a link is gone or replaced.
    pub(super) fn parted(&mut self, now_us: u64, server: ServerId, peer: ServerId) {
        self.see(now_us, server, Seen::Parted { peer });
    }

    /// Records that a server closed a link by itself.
    pub(super) fn refused(&mut self, now_us: u64, server: ServerId, peer: ServerId, reason: &str) {
        self.see(now_us, server, Seen::Refused { peer, reason });
        self.parted(now_us, server, peer);
    }

    pub(super) fn checkpointed(&mut self, now_us: u64, server: ServerId, zxid: Zxid) {
        self.sightings.checkpointed(now_us);
        self.see(now_us, server, Seen::Checkpointed(zxid));
    }

    /// Records that a snapshot is the base now; the machine will hear of it.
    pub(super) fn installed(&mut self, now_us: u64, server: ServerId, zxid: Zxid) {
        self.see(now_us, server, Seen::Installed(zxid));
    }

    /// Records that the machine has heard of its new base.
    pub(super) fn heard_of_base(&mut self, now_us: u64, server: ServerId, zxid: Zxid) {
        self.see(now_us, server, Seen::Checkpointed(zxid));
    }

    pub(super) fn recycled(&mut self, now_us: u64, server: ServerId, zxid: Zxid) {
        self.see(now_us, server, Seen::Recycled(zxid));
    }

    pub(super) fn holds(&mut self, now_us: u64, server: ServerId, queue: Queue, held: u64, limit: u64) {
        self.see(now_us, server, Seen::Holds { queue, held, limit });
    }

    /// Passes the numbers that a server maintains to the invariants, after another entry is
    /// applied.
    pub(super) fn kept(&mut self, now_us: u64, server: ServerId, machine: &Server) {
        let (applied, counts) = (machine.applied(), machine.counts());
        // Computing these visits everything that the server holds. A number that has drifted stays
        // wrong, so an occasional check is enough.
        let derived = if applied.counter().is_multiple_of(DERIVED_EVERY) { machine.derived() } else { Vec::new() };
        self.see(now_us, server, Seen::Kept { applied, counts: &counts, derived: &derived });
    }

    /// Records that a leader sent a returning client away.
    pub(super) fn sent_away(&mut self, now_us: u64, server: ServerId, session: SessionId) {
        self.see(now_us, server, Seen::SentAway(session));
    }

    pub(super) fn committed(&mut self, now_us: u64, zxid: Zxid, payload: &Bytes) {
        self.recorder.committed(now_us, zxid, payload);
    }

    /// Records that a server asked a new leader for the writes of a lost one's time.
    pub(super) fn asked_again(&mut self, now_us: u64) {
        self.sightings.see(now_us, Feature::AskedAgain);
    }

    /// Records and checks the state of a server after a turn.
    ///
    /// Equal histories must give equal states, and an applied entry is never taken back. Returns
    /// whether the role, or whether the server serves or refuses writes, has changed.
    pub(super) fn state(&mut self, now_us: u64, server: ServerId, state: State) -> bool {
        let before = self.states.insert(server, state);
        if before == Some(state) {
            return false;
        }
        if let Some(before) = before.filter(|before| before.applied > state.applied) {
            self.violation(now_us, format!("server {} went back: {before:?}, then {state:?}", server.as_u8()));
        }
        let State { role, epoch, committed, applied, digest, .. } = state;
        if role == Role::Leading {
            self.epochs.leads(epoch, server);
        }
        let known = (applied > Zxid::ZERO).then_some(digest);
        self.see(now_us, server, Seen::State(invariant::State { role, epoch, committed, applied, digest: known }));
        let (first, expected) = *self.digests.entry(applied).or_insert((server, digest));
        if expected != digest && applied > Zxid::ZERO {
            let (a, b) = (first.as_u8(), server.as_u8());
            self.violation(now_us, format!("servers {a} and {b} differ in the state after {applied:?}"));
        }
        if before.is_none_or(|before| before.role != role) {
            self.sightings.role(now_us, server, role);
        }
        let told = |state: State| (state.is_serving, state.role, state.is_refusing);
        before.map(told) != Some(told(state))
    }
}

/// Returns the protocol part of a message, if it has one.
fn protocol(message: &PeerMessage) -> Option<Cow<'_, Message>> {
    match message {
        PeerMessage::Zab(message) | PeerMessage::Snapshot { message, .. } => Some(Cow::Borrowed(message)),
        PeerMessage::Entries(Entries { attempt, epoch, from, to, committed, .. }) => {
            Some(Cow::Owned(Message::Proposal {
                attempt: *attempt,
                epoch: *epoch,
                from: *from,
                to: *to,
                committed: *committed,
            }))
        }
        PeerMessage::Forward { .. }
        | PeerMessage::Refused { .. }
        | PeerMessage::Revalidate { .. }
        | PeerMessage::Revalidated { .. }
        | PeerMessage::Moved { .. }
        | PeerMessage::Touch { .. }
        | PeerMessage::Alive { .. }
        | PeerMessage::Digest { .. }
        | PeerMessage::Health(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Feature;
    use super::*;
    use zoolet_zab::EnsembleId;

    #[test]
    fn an_installed_snapshot_does_not_count_as_a_checkpoint() {
        let server = ServerId::STANDALONE;
        let member = zoolet_zab::Member { id: server, kind: zoolet_zab::Kind::Voter, disk: zoolet_zab::Incarnation(0) };
        let founders = Config::new(EnsembleId::UNBORN, Zxid::ZERO, &[member]).unwrap();
        let mut witness = Witness::new(Trace::off(), None, founders);
        let seen = |witness: &Witness| witness.sightings.between(0, 9).collect::<Vec<_>>();
        witness.started(0, server, 1, &Facts::default(), false);
        witness.installed(1, server, Zxid::ZERO);
        assert_eq!(seen(&witness), []);
        witness.checkpointed(2, server, Zxid::ZERO);
        assert_eq!(seen(&witness), [Feature::Checkpoint]);
    }
}
