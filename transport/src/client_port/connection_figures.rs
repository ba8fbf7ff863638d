//! Figures of a connection for operators, shown by `cons` and `stat`.

use super::listener::wall_ms;
use zoolet_model::{Request, SessionId, WriteOp};

/// The figures of one connection.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) session: SessionId,
    pub(super) timeout_ms: i32,
    pub(super) established_ms: i64,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) queued: u64,
    pub(super) paused: bool,
    pub(super) last_operation: &'static str,
    pub(super) last_xid: i32,
    pub(super) last_zxid: i64,
    /// Microseconds since the port's start.
    pub(super) last_response_us: u64,
    pub(super) answered: u64,
    pub(super) latency_us_last: u64,
    pub(super) latency_us_min: u64,
    pub(super) latency_us_max: u64,
    pub(super) latency_us_sum: u64,
}

impl Record {
    /// Returns the record of a connection that has just sent its handshake.
    pub(super) fn new() -> Self {
        Self {
            session: SessionId(0),
            timeout_ms: 0,
            established_ms: wall_ms(),
            received: 1,
            sent: 0,
            queued: 0,
            paused: false,
            last_operation: "NA",
            last_xid: -1,
            last_zxid: -1,
            last_response_us: 0,
            answered: 0,
            latency_us_last: 0,
            latency_us_min: 0,
            latency_us_max: 0,
            latency_us_sum: 0,
        }
    }

    /// Resets counts and latencies; keeps the session.
    pub(super) fn reset(&mut self) {
        (self.received, self.sent, self.answered) = (0, 0, 0);
        (self.latency_us_last, self.latency_us_min, self.latency_us_max, self.latency_us_sum) = (0, 0, 0, 0);
        (self.last_operation, self.last_xid, self.last_zxid, self.last_response_us) = ("NA", -1, -1, 0);
    }

    pub(super) fn on_answered(&mut self, now_us: u64, latency_us: u64) {
        self.latency_us_min = if self.answered == 0 { latency_us } else { self.latency_us_min.min(latency_us) };
        self.latency_us_max = self.latency_us_max.max(latency_us);
        self.latency_us_sum += latency_us;
        self.latency_us_last = latency_us;
        self.answered += 1;
        self.last_response_us = now_us;
    }
}

/// Returns the code by which `cons` shows a request.
pub(super) fn operation(request: &Request) -> &'static str {
    match request {
        Request::Write(WriteOp::Create(_)) => "CREA",
        Request::Write(WriteOp::Delete { .. }) => "DELE",
        Request::Write(WriteOp::SetData { .. }) => "SETD",
        Request::Write(WriteOp::SetAcl { .. }) => "SETA",
        Request::Write(WriteOp::Check { .. }) => "CHEC",
        Request::Multi(_) => "MULT",
        Request::Exists { .. } => "EXIS",
        Request::GetData { .. } => "GETD",
        Request::GetChildren { .. } => "GETC",
        Request::GetAcl { .. } => "GETA",
        Request::GetEphemerals { .. } => "GETE",
        Request::GetAllChildrenNumber { .. } => "GETACN",
        Request::GetTtl { .. } => "GTTL",
        Request::MultiRead(_) => "MLTR",
        Request::Sync { .. } => "SYNC",
        Request::Ping => "PING",
        Request::WhoAmI => "HOMI",
        Request::SetWatches(_) => "SETW",
        Request::AddWatch { .. } => "ADDW",
        Request::CheckWatches { .. } => "CHKW",
        Request::RemoveWatches { .. } => "REMW",
        Request::Reconfig => "RECO",
        Request::CloseSession => "CLOS",
        Request::Auth { .. } | Request::Sasl | Request::Malformed { .. } | Request::Unknown => "NA",
    }
}
