//! Actions that the machine hands to the program driving it (the driver).

use crate::{AppendSeq, EnsembleId, Epoch, LinkId, Message, ServerId, Zxid};

/// A server's role in the protocol, as its clients see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Role {
    /// Knows no established leader.
    #[default]
    Looking,
    /// Leads and may propose: its epoch's first entry is committed.
    Leading,
    /// Follows an established leader and votes.
    ///
    /// It knows that the first entry of the leader's epoch is committed.
    Following(ServerId),
    /// The same as `Following`, for a server that does not count as a voter.
    Observing(ServerId),
}

/// Identifies a question of [`crate::Zab::confirm`]; never reused in one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Round(pub u64);

/// Why a link to a peer is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// The peer's disk belongs to another ensemble.
    WrongEnsemble,
    /// No fault: a learner needs entries or state that can no longer be read.
    ///
    /// It must rejoin to get a snapshot.
    Behind,
    /// The learner's or the leader's disk was put back to an older copy.
    ///
    /// The learner knows of a commit that this leader lacks, or holds entries of this leader's
    /// epoch that this leader did not give it. No correct disk reaches this state.
    WentBack,
    /// The peer said something that no correct server says in this state.
    ///
    /// The text names it.
    Protocol(&'static str),
}

/// A step the driver has to carry out, in the order polled.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "nothing is allocated, so nothing is boxed")]
pub enum Action {
    /// Append a fact to the log: this server follows no leader of an older epoch.
    Promise {
        /// Number of this append.
        seq: AppendSeq,
        /// The promised epoch.
        epoch: Epoch,
    },
    /// Append a fact to the log: this server holds this epoch's initial history.
    Epoch {
        /// Number of this append.
        seq: AppendSeq,
        /// The epoch.
        epoch: Epoch,
    },
    /// Append a fact to the log: this disk belongs to this ensemble.
    Birth {
        /// Number of this append.
        seq: AppendSeq,
        /// The ensemble.
        ensemble: EnsembleId,
    },
    /// Append a fact to the log: this history is wrong.
    ///
    /// Until a SnapEnd, this server starts as one that is not [whole](crate::Recovered::is_whole).
    Damaged {
        /// Number of this append.
        seq: AppendSeq,
    },
    /// Append a fact to the log: the current configurations.
    ///
    /// They are [`crate::Zab::config`] and [`crate::Zab::pending_config`].
    Configs {
        /// Number of this append.
        seq: AppendSeq,
    },
    /// Append a fact to the log: entries after `to` are removed from the history.
    Truncate {
        /// Number of this append.
        seq: AppendSeq,
        /// Last entry that stays.
        to: Zxid,
    },
    /// Append a fact to the log: the received snapshot replaces all state.
    ///
    /// The snapshot is complete and durable, and is the history up to `zxid`.
    SnapEnd {
        /// Number of this append.
        seq: AppendSeq,
        /// Last entry of the snapshot.
        zxid: Zxid,
    },
    /// Append these entries, all of one epoch.
    ///
    /// Each entry takes one append number. The driver supplies the entries:
    /// - A leader's first entry of an epoch (counter 0) is the birth of the ensemble if
    ///   `config().version` is its zxid, else a no-op.
    /// - A learner's entries are the ones that came with the Proposal just handled.
    Append {
        /// Number of the last of these appends.
        seq: AppendSeq,
        /// First entry.
        from: Zxid,
        /// Last entry.
        to: Zxid,
    },
    /// Apply entries up to `to`; they are committed and durable here.
    Commit {
        /// The commit watermark.
        to: Zxid,
    },
    /// The role changed.
    ///
    /// Requests to a former leader without an answer have an unknown outcome.
    Become(Role),
    /// Answers [`crate::Zab::confirm`].
    Confirmed {
        /// The question; every earlier one is answered too.
        round: Round,
        /// A read that has applied this entry is linearizable.
        ///
        /// `None`: this server's role changed first; ask again.
        up_to: Option<Zxid>,
    },
    /// Send this message to a peer.
    ///
    /// The driver adds the bytes of a [`Message::Proposal`]: the entries of its range, and the
    /// chain hash before the first one. With a [`Message::Snap`] it also sends a snapshot.
    Send {
        /// The receiver.
        peer: ServerId,
        /// The link to use.
        link: LinkId,
        /// The message.
        message: Message,
    },
    /// Drop the link to a peer.
    Close {
        /// The peer.
        peer: ServerId,
        /// The link.
        link: LinkId,
        /// The reason.
        fault: Fault,
    },
}
