//! How long things may take, milliseconds.

/// Every duration of the protocol. Only liveness depends on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Between heartbeats while writes or short sessions are live.
    pub heartbeat_busy_ms: u32,
    /// Between heartbeats otherwise: a fixed 50 ms would cost an idle site of three servers 982 MB a day.
    pub heartbeat_idle_ms: u32,
    /// A server that looks for a leader repeats itself after this long.
    pub retry_ms: u32,
    /// What a peer said last counts in an election for so long.
    pub fresh_ms: u32,
    /// A learner that was not taken in leaves after so long a silence.
    pub join_ms: u32,
    /// A leader that cannot complete discovery or synchronization, without progress for so long, gives up; doubled by back-off.
    pub give_up_ms: u32,
    /// A leader that hears no quorum for so long steps down.
    pub quorum_ms: u32,
    /// The first back-off after an epoch that committed nothing; then doubled up to `backoff_max_ms`.
    pub backoff_ms: u32,
    /// The longest back-off.
    pub backoff_max_ms: u32,
    /// A leader whose log makes no progress for so long hands over, if another voter is clearly faster.
    pub disk_stall_ms: u32,
    /// A member whose disk was full tells its leader of room only after it has lasted this long. Two members that are full whenever they lead
    /// thus exchange the lead at most once in this time.
    pub room_ms: u32,
    /// For so long at most a leader that hands over takes no proposals.
    pub hand_over_ms: u32,
    /// Lateness of a deadline that is taken for a pause of this server: silence in that time is nobody's fault.
    pub late_ms: u32,
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
        }
    }
}
