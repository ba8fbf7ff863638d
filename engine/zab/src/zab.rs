//! The protocol as one state machine.

use crate::{AppendSeq, Epoch, ServerId, Spans, Voters, Zxid};
use heapless::Deque;

/// Runs of appended and not yet persisted records that are told apart; a run ends where a fact stands between entries.
const RUNS_MAX: usize = 8;
/// Actions that may wait to be polled: the most that one call can cause.
const ACTIONS_MAX: usize = 16;

/// What this server's log says when it starts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// The newest epoch this server promised (f.p of the paper).
    pub accepted: Epoch,
    /// The newest epoch whose initial history it holds (f.a).
    pub current: Epoch,
    /// Every entry in the log, committed or not. They are durable: a log reports no tail that it did not sync.
    pub history: Spans,
    /// Entries up to here are known to be committed.
    pub committed: Zxid,
    /// The number of the last append; the next one is one more.
    pub appended: AppendSeq,
}

/// What a server does in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Knows no leader.
    Looking,
    /// Leads, and may propose.
    Leading,
}

/// Which acknowledgement of being the leader a linearizable read waits for. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Round(pub u64);

/// What the protocol wants done, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Append a fact to the log: this server will follow no leader of an older epoch.
    Promise {
        /// The number of this append.
        seq: AppendSeq,
        /// The promised epoch.
        epoch: Epoch,
    },
    /// Append a fact to the log: this server holds the initial history of this epoch.
    Epoch {
        /// The number of this append.
        seq: AppendSeq,
        /// The epoch.
        epoch: Epoch,
    },
    /// Append these entries; the first of an epoch (counter 0) is its no-op. Each entry takes one append number and `seq` is
    /// the last one's.
    Append {
        /// The number of the last of these appends.
        seq: AppendSeq,
        /// First entry.
        from: Zxid,
        /// Last entry, of the same epoch.
        to: Zxid,
    },
    /// Entries up to here are committed: apply them.
    Commit {
        /// The watermark.
        to: Zxid,
    },
    /// The role changed.
    Become(Role),
    /// A quorum confirmed, after the round was asked for, that this server leads.
    Confirmed {
        /// Which question.
        round: Round,
        /// A read that has applied this much is linearizable.
        up_to: Zxid,
    },
}

/// Why a command was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Only an established leader proposes and confirms.
    NotLeading,
    /// The zxids of this epoch are used up; a new epoch must begin.
    EpochFull,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotLeading => "this server does not lead",
            Self::EpochFull => "the zxids of this epoch are used up",
        })
    }
}

impl core::error::Error for Refused {}

/// A run of consecutive appends: all entries of one epoch, or one fact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    first: AppendSeq,
    last: AppendSeq,
    /// The entry appended as `first`; `None` when the run is a fact.
    entry: Option<Zxid>,
}

/// One server's part in Zab.
///
/// Four kinds of methods, to be called in this order in one turn:
/// 1. **handle**: [`Zab::handle_persisted`] tells what happened.
/// 2. **commands**: [`Zab::start`], [`Zab::propose`], [`Zab::confirm`].
/// 3. **poll**: [`Zab::poll_action`] until it says `None`. Commands are refused nothing by a late poll, but actions are
///    bounded: poll after every call.
/// 4. **getters**: the rest; they change nothing.
///
/// There is no state per entry: a history is [`Spans`], what is in flight is a few runs.
///
/// Invariant: `committed <= persisted <= history.last()`. Proposals are committed by the voters' acknowledgements alone, and this
/// server's own is built from [`Zab::handle_persisted`] and from nothing else, with one voter as with many.
///
/// This release runs with one voter. The predicates over voters are already joint ([`Voters`]).
#[derive(Debug)]
pub struct Zab {
    id: ServerId,
    voters: Voters,
    role: Role,
    accepted: Epoch,
    current: Epoch,
    history: Spans,
    persisted: Zxid,
    committed: Zxid,
    appended: AppendSeq,
    runs: Deque<Run, RUNS_MAX>,
    next_round: Round,
    actions: Deque<Action, ACTIONS_MAX>,
}

impl Zab {
    /// A server as its log left it.
    ///
    /// # Panics
    /// When `id` is not the only voter: more of them come with the whole protocol.
    pub fn new(id: ServerId, voters: Voters, recovered: Recovered) -> Self {
        assert!(voters.is_quorum(|voter| voter == id), "one voter, this one");
        let persisted = recovered.history.last();
        assert!(recovered.committed <= persisted, "a log holds what it says is committed");
        assert!(recovered.current <= recovered.accepted, "an epoch is promised before it is entered");
        Self {
            id,
            voters,
            role: Role::Looking,
            accepted: recovered.accepted,
            current: recovered.current,
            history: recovered.history,
            persisted,
            committed: recovered.committed,
            appended: recovered.appended,
            runs: Deque::new(),
            next_round: Round(0),
            actions: Deque::new(),
        }
    }

    /// This server.
    pub fn id(&self) -> ServerId {
        self.id
    }

    /// What it does now.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The newest epoch whose initial history it holds.
    pub fn epoch(&self) -> Epoch {
        self.current
    }

    /// The commit watermark.
    pub fn committed(&self) -> Zxid {
        self.committed
    }

    /// The newest entry, durable or not.
    pub fn last(&self) -> Zxid {
        self.history.last()
    }

    /// Command: take part. With one voter its own vote, promise and history are the quorum's, so the epoch, its fact and its
    /// no-op go out at once: nothing is sent to anybody before they are durable, because there is nobody.
    ///
    /// # Errors
    /// [`Refused::EpochFull`] when all 2^23 epochs were used.
    pub fn start(&mut self) -> Result<(), Refused> {
        assert_eq!(self.role, Role::Looking, "started once");
        let epoch = self.accepted.next().ok_or(Refused::EpochFull)?;
        self.accepted = epoch;
        let seq = self.append_fact();
        self.push(Action::Promise { seq, epoch });
        self.current = epoch;
        let seq = self.append_fact();
        self.push(Action::Epoch { seq, epoch });
        self.append_entry(Zxid::first_of(epoch));
        Ok(())
    }

    /// Command: the next entry. Its zxid comes back at once; it is committed when [`Action::Commit`] says so.
    ///
    /// # Errors
    /// [`Refused::NotLeading`] before the epoch's no-op is committed, [`Refused::EpochFull`] after 2^40 entries.
    pub fn propose(&mut self) -> Result<Zxid, Refused> {
        if self.role != Role::Leading {
            return Err(Refused::NotLeading);
        }
        let zxid = self.history.last().next().ok_or(Refused::EpochFull)?;
        self.append_entry(zxid);
        Ok(zxid)
    }

    /// Command: confirm with a quorum, from now on, that this server still leads.
    ///
    /// # Errors
    /// [`Refused::NotLeading`].
    pub fn confirm(&mut self) -> Result<Round, Refused> {
        if self.role != Role::Leading {
            return Err(Refused::NotLeading);
        }
        let round = self.next_round;
        self.next_round = Round(round.0 + 1);
        // One voter is a quorum of itself: nobody else can have been elected.
        self.push(Action::Confirmed { round, up_to: self.committed });
        Ok(round)
    }

    /// Everything appended up to `seq` is durable. Completions may be coalesced, late or repeated; only the newest counts.
    pub fn handle_persisted(&mut self, seq: AppendSeq) {
        assert!(seq <= self.appended, "nothing is durable before it is appended");
        while let Some(run) = self.runs.front_mut() {
            if seq < run.first {
                break;
            }
            let last = run.last.min(seq);
            if let Some(entry) = run.entry {
                let done = last.0 - run.first.0;
                self.persisted = Zxid::from_bits(entry.to_bits() + done).unwrap_or(self.persisted);
                run.entry = Zxid::from_bits(entry.to_bits() + done + 1);
            }
            if last == run.last {
                self.runs.pop_front();
            } else {
                run.first = last.next();
                break;
            }
        }
        self.maybe_commit();
    }

    /// Poll: the next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// An entry of the current epoch that a quorum holds commits all before it (Zab's commit rule; entries of older epochs are
    /// committed by this epoch's no-op alone).
    fn maybe_commit(&mut self) {
        let held = self.persisted;
        let quorum = self.voters.is_quorum(|voter| voter == self.id);
        if !quorum || held <= self.committed || held.epoch() != self.current {
            return;
        }
        self.committed = held;
        self.push(Action::Commit { to: held });
        if self.role == Role::Looking {
            self.role = Role::Leading;
            self.push(Action::Become(Role::Leading));
        }
    }

    fn append_fact(&mut self) -> AppendSeq {
        self.appended = self.appended.next();
        let run = Run { first: self.appended, last: self.appended, entry: None };
        self.push_run(run);
        self.appended
    }

    fn append_entry(&mut self, zxid: Zxid) {
        self.history.push(zxid);
        self.appended = self.appended.next();
        let seq = self.appended;
        match self.runs.back_mut() {
            // Consecutive numbers and consecutive zxids: the run grows.
            Some(run) if run.entry.is_some() => run.last = seq,
            _ => self.push_run(Run { first: seq, last: seq, entry: Some(zxid) }),
        }
        if let Some(Action::Append { seq: last, to, .. }) = self.actions.back_mut() {
            (*last, *to) = (seq, zxid);
        } else {
            self.push(Action::Append { seq, from: zxid, to: zxid });
        }
    }

    fn push_run(&mut self, run: Run) {
        let pushed = self.runs.push_back(run);
        assert!(pushed.is_ok(), "facts are appended one phase at a time");
    }

    fn push(&mut self, action: Action) {
        let pushed = self.actions.push_back(action);
        assert!(pushed.is_ok(), "actions are polled after every call");
    }
}

const _: () = assert!(size_of::<Zab>() <= 32 * 1024);

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> Voters {
        Voters::majority(&[ServerId::STANDALONE]).unwrap()
    }

    fn started(recovered: Recovered) -> Zab {
        let mut zab = Zab::new(ServerId::STANDALONE, alone(), recovered);
        zab.start().unwrap();
        zab
    }

    fn drain(zab: &mut Zab) -> std::vec::Vec<Action> {
        core::iter::from_fn(|| zab.poll_action()).collect()
    }

    extern crate std;

    #[test]
    fn one_voter_leads_only_after_its_epoch_is_durable() {
        let mut zab = started(Recovered::default());
        let epoch = Epoch::new(1).unwrap();
        let noop = Zxid::first_of(epoch);
        assert_eq!(
            drain(&mut zab),
            [
                Action::Promise { seq: AppendSeq(1), epoch },
                Action::Epoch { seq: AppendSeq(2), epoch },
                Action::Append { seq: AppendSeq(3), from: noop, to: noop },
            ]
        );
        zab.handle_persisted(AppendSeq(2));
        assert_eq!((zab.poll_action(), zab.propose()), (None, Err(Refused::NotLeading)));
        zab.handle_persisted(AppendSeq(3));
        assert_eq!(drain(&mut zab), [Action::Commit { to: noop }, Action::Become(Role::Leading)]);
    }

    #[test]
    fn an_old_tail_is_committed_by_the_new_epochs_no_op_and_not_before() {
        let mut history = Spans::EMPTY;
        let one = Epoch::new(1).unwrap();
        for counter in 0..=5 {
            history.push(Zxid::new(one, counter).unwrap());
        }
        let committed = Zxid::new(one, 3).unwrap();
        let mut zab = started(Recovered { accepted: one, current: one, history, committed, appended: AppendSeq(40) });
        drain(&mut zab);
        zab.handle_persisted(AppendSeq(42));
        assert_eq!(zab.committed(), committed);
        zab.handle_persisted(AppendSeq(43));
        assert_eq!(zab.committed(), Zxid::first_of(Epoch::new(2).unwrap()));
    }

    #[test]
    fn entries_commit_in_order_as_they_persist_and_not_before() {
        let mut zab = started(Recovered::default());
        drain(&mut zab);
        zab.handle_persisted(AppendSeq(3));
        drain(&mut zab);
        let zxids: std::vec::Vec<_> = (0..5).map(|_| zab.propose().unwrap()).collect();
        assert_eq!(drain(&mut zab), [Action::Append { seq: AppendSeq(8), from: zxids[0], to: zxids[4] }]);
        zab.handle_persisted(AppendSeq(5));
        assert_eq!(drain(&mut zab), [Action::Commit { to: zxids[1] }]);
        zab.handle_persisted(AppendSeq(4));
        assert_eq!(drain(&mut zab), [], "a late completion changes nothing");
        zab.propose().unwrap();
        zab.handle_persisted(AppendSeq(8));
        assert_eq!(zab.committed(), zxids[4]);
    }

    #[test]
    fn a_confirmation_is_asked_for_each_time_and_covers_what_was_committed() {
        let mut zab = started(Recovered::default());
        assert_eq!(zab.confirm(), Err(Refused::NotLeading));
        drain(&mut zab);
        zab.handle_persisted(AppendSeq(3));
        drain(&mut zab);
        let committed = zab.committed();
        zab.propose().unwrap();
        drain(&mut zab);
        let first = zab.confirm().unwrap();
        assert_eq!(drain(&mut zab), [Action::Confirmed { round: first, up_to: committed }]);
        assert_ne!(zab.confirm().unwrap(), first);
    }
}
