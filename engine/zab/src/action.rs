//! What comes out of the machine.

use crate::{AppendSeq, EnsembleId, Epoch, LinkId, Message, ServerId, Zxid};

/// What a server does in the protocol, as far as its clients are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Role {
    /// Knows no established leader.
    #[default]
    Looking,
    /// Leads, and may propose: its epoch's first entry is committed.
    Leading,
    /// Follows an established leader, and knows that its epoch's first entry is committed. It votes.
    Following(ServerId),
    /// The same of a server that does not count as a voter.
    Observing(ServerId),
}

/// Which question of [`crate::Zab::confirm`] is answered. Never reused in one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Round(pub u64);

/// What a link to a peer is dropped for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// Its disk belongs to another ensemble.
    WrongEnsemble,
    /// Nothing: it has fallen behind what the log still has, and shall ask again for a snapshot.
    Behind,
    /// It knows as committed what this leader does not have, or has entries of this leader's epoch that this leader did not give it. No correct disk
    /// comes to that: one of the two was put back to an older copy of itself.
    WentBack,
    /// It said what no correct server says in this state; what that was.
    Protocol(&'static str),
}

/// What the protocol wants done, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "nothing is allocated, so nothing is boxed")]
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
    /// Append a fact to the log: this disk belongs to this ensemble.
    Birth {
        /// The number of this append.
        seq: AppendSeq,
        /// The ensemble.
        ensemble: EnsembleId,
    },
    /// Append a fact to the log: this history is not what it should be. Until a SnapEnd this server starts as one that is not
    /// [whole](crate::Recovered::is_whole).
    Damaged {
        /// The number of this append.
        seq: AppendSeq,
    },
    /// Append a fact to the log: the configurations are now [`crate::Zab::config`] and [`crate::Zab::pending_config`].
    Configs {
        /// The number of this append.
        seq: AppendSeq,
    },
    /// Append a fact to the log: the history ends at `to`; entries after it go.
    Truncate {
        /// The number of this append.
        seq: AppendSeq,
        /// The last entry that stays.
        to: Zxid,
    },
    /// Append a fact to the log: the snapshot that was received, complete and durable, is the history up to `zxid` and replaces all state.
    SnapEnd {
        /// The number of this append.
        seq: AppendSeq,
        /// Its last entry.
        zxid: Zxid,
    },
    /// Append these entries, all of one epoch. Each takes one append number and `seq` is the last one's. A leader's own first entry of
    /// an epoch (counter 0) is made by whoever drives the machine: the birth of the ensemble when `config().version` is that zxid, else a no-op. A learner's entries are
    /// those that came with the Proposal just handled.
    Append {
        /// The number of the last of these appends.
        seq: AppendSeq,
        /// First entry.
        from: Zxid,
        /// Last entry.
        to: Zxid,
    },
    /// Entries up to here are committed and durable here: apply them.
    Commit {
        /// The watermark.
        to: Zxid,
    },
    /// The role changed. Whatever was asked of a former leader and is not answered has an unknown outcome.
    Become(Role),
    /// The answer to [`crate::Zab::confirm`].
    Confirmed {
        /// Which question.
        round: Round,
        /// A read that has applied this much is linearizable; `None`: this server lost its leader, ask again.
        up_to: Option<Zxid>,
    },
    /// Say this to a peer. Of a [`Message::Proposal`] the bytes are added: entries of its range, and the chain hash before the first. Of a
    /// [`Message::Snap`] a snapshot is sent as well.
    Send {
        /// To whom.
        peer: ServerId,
        /// On which link.
        link: LinkId,
        /// What.
        message: Message,
    },
    /// Drop the link to a peer.
    Close {
        /// Whose.
        peer: ServerId,
        /// Which.
        link: LinkId,
        /// Why.
        fault: Fault,
    },
}
