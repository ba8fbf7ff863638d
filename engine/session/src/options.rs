//! Options of sessions.

use std::time::Duration;

/// Options for a session of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionOptions {
    /// The session timeout to request; `None` requests 10 s.
    ///
    /// The node moves a timeout outside its range to the nearest bound; by default the range is 4 s
    /// to 40 s. [`Session::session_timeout`](crate::Session::session_timeout) returns the
    /// negotiated value. The node keeps the session alive while the process runs and reaches the
    /// ensemble. So the timeout is how long ephemerals remain after the process dies, unless its node
    /// is back earlier.
    ///
    /// In an ensemble, a session with a timeout below 9.6 s sends three syncs to its leader per
    /// timeout. Requests behind a sync wait for its answer, which takes one round trip to the
    /// leader.
    pub timeout: Option<Duration>,
    /// Maximum time between calls of [`touch`](crate::Session::touch) before the session closes.
    ///
    /// `None` disables the watchdog: the session lives as long as the process. The watchdog is for
    /// daemons whose main loop may hang while the process and the node's threads live on. Their
    /// ephemerals and locks are then released, and the state becomes
    /// `Lost(`[`Untouched`](crate::LostReason::Untouched)`)`. The time counts from the moment the
    /// session is first connected.
    pub watchdog: Option<Duration>,
    /// Whether to read while the node's member has no leader, or a disk that accepts nothing.
    ///
    /// The node needs `read_only = true`. Then the session's state is
    /// [`ReadOnly`](crate::SessionState::ReadOnly): reads show the last applied state, and
    /// [`Session::outdated_for`](crate::Session::outdated_for) says how old it may be. Writes are
    /// refused with NotReadOnly. The session itself begins or goes on when there is a leader. So a
    /// session that was opened without one has the id 0 until then.
    pub read_only: bool,
}
