//! Durations of the protocol, in milliseconds.

/// Every duration of the protocol; only liveness depends on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Heartbeat interval while writes or short sessions are live.
    pub heartbeat_busy_ms: u32,
    /// Heartbeat interval otherwise.
    ///
    /// A fixed 50 ms would cost an idle site of three servers 1.1 GB a day.
    pub heartbeat_idle_ms: u32,
    /// Delay before a server repeats that it is looking, or that it suspects its leader.
    pub retry_ms: u32,
    /// How long a peer's last message or notification counts.
    ///
    /// Elections, hand-overs and membership changes use it. It is also how long a server that hands
    /// over does not stand for election.
    pub fresh_ms: u32,
    /// Minimum silence before a learner that has not settled leaves its leader.
    pub join_ms: u32,
    /// Time without progress before a leader gives up discovery or synchronization.
    ///
    /// The current back-off is added to it.
    pub give_up_ms: u32,
    /// Time without hearing a quorum before a leader steps down.
    pub quorum_ms: u32,
    /// First back-off of a leader whose epoch committed nothing.
    ///
    /// It doubles with each further one, up to `backoff_max_ms`. A random delay of up to the same
    /// length is added.
    pub backoff_ms: u32,
    /// Maximum back-off, without the random delay.
    pub backoff_max_ms: u32,
    /// How long a leader's log may make no progress before it hands over.
    ///
    /// It hands over only to a voter that is clearly faster. A leader without disk room waits as
    /// long. A server whose log has stalled this long does not stand for election.
    pub disk_stall_ms: u32,
    /// How long room on a once full disk must last before a member reports it.
    ///
    /// So two members whose disks fill whenever they lead exchange the lead at most once in this
    /// time.
    pub room_ms: u32,
    /// Maximum time for which a leader that hands over refuses proposals.
    pub hand_over_ms: u32,
    /// Lateness of a deadline above which this server counts as paused.
    ///
    /// Peers are not blamed for silence in that time.
    pub late_ms: u32,
    /// Number of consecutive entries, each proposed within 2 ms of the commit before it, after which
    /// a Commit waits for the next Proposal.
    pub commit_hold_entries: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat_busy_ms: 50,
            heartbeat_idle_ms: 350,
            retry_ms: 100,
            fresh_ms: 500,
            join_ms: 500,
            give_up_ms: 1000,
            quorum_ms: 2000,
            backoff_ms: 50,
            backoff_max_ms: 2000,
            disk_stall_ms: 1000,
            room_ms: 10_000,
            hand_over_ms: 1000,
            late_ms: 50,
            commit_hold_entries: 256,
        }
    }
}
