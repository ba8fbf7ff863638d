//! The state with which a server starts.

use crate::{AppendSeq, Config, EnsembleId, Epoch, Incarnation, Spans, Zxid};

/// State that a server recovers from its log at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// This disk's incarnation number.
    pub disk: Incarnation,
    /// Ensemble that this disk belongs to.
    pub ensemble: EnsembleId,
    /// Newest epoch this server promised (f.p of the paper).
    pub accepted: Epoch,
    /// Newest epoch whose initial history this server holds (f.a).
    pub current: Epoch,
    /// Newest configuration known to be committed.
    ///
    /// Before the log has one, it is the one from the configuration file.
    pub config: Config,
    /// A newer configuration whose commit is not known.
    pub pending: Option<Config>,
    /// Every entry in the log, committed or not.
    ///
    /// All entries are durable: a log reports no tail that it did not sync.
    pub history: Spans,
    /// Last entry known to be committed.
    pub committed: Zxid,
    /// Number of the last append; the next append takes the number after it.
    pub appended: AppendSeq,
    /// Entries above this zxid can be read from the log.
    pub floor: Zxid,
    /// Whether the log holds everything that this server acknowledged.
    ///
    /// False if the log is damaged below an acknowledged entry. Such a server counts in no quorum
    /// until a leader has repaired it.
    pub is_whole: bool,
}

impl Recovered {
    /// Returns the state of a new disk.
    pub fn empty(disk: Incarnation, config: Config) -> Self {
        Self {
            disk,
            ensemble: EnsembleId::UNBORN,
            accepted: Epoch::ZERO,
            current: Epoch::ZERO,
            config,
            pending: None,
            history: Spans::EMPTY,
            committed: Zxid::ZERO,
            appended: AppendSeq(0),
            floor: Zxid::ZERO,
            is_whole: true,
        }
    }
}
