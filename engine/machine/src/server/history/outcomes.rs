//! Outcomes of entries: replies to their requesters, and the session table.

use super::Origin;
use crate::seam::peer::Attachment;
use crate::server::Server;
use crate::tree::{self, OpOutcome, Outcome};
use zoolet_model::{ConnectReply, ErrorCode, OpResult, Reply, SessionId, Zxid};

impl Server {
    /// Answers the requester of an entry, and updates the session table.
    pub(super) fn finish_entry(&mut self, zxid: Zxid, origin: Origin, outcome: Outcome) {
        match outcome {
            Outcome::SessionCreated(session) => {
                let id = SessionId(zxid.as_i64());
                self.sessions.insert(id, session, self.now.mono_ms);
                self.on_session_began(id, zxid);
                self.note_busy();
                if let Origin::Connect { conn, read_only_byte } = origin {
                    let reply = ConnectReply {
                        timeout_ms: i32::try_from(session.timeout_ms).unwrap_or(i32::MAX),
                        session: id,
                        secret: session.secret,
                        read_only_byte,
                        read_only_ms: None,
                    };
                    self.on_session_created(conn, reply, zxid);
                }
                self.make_room_for_global();
            }
            Outcome::SessionUpgraded(id, session) => {
                self.sessions.insert(id, session, self.now.mono_ms);
                self.on_session_began(id, zxid);
                self.on_upgraded(id, Attachment::of_birth(zxid));
                self.note_busy();
                self.make_room_for_global();
            }
            Outcome::SessionRenewed(session, timeout_ms) => {
                if let Some(timeout_ms) = timeout_ms {
                    self.sessions.renew(session, timeout_ms, self.now.mono_ms);
                    self.note_busy();
                }
            }
            Outcome::SessionClosed(session) => self.on_session_closed(zxid, origin, session),
            Outcome::Write(result) => self.on_outcome(zxid, origin, result.map(reply_to_write)),
            Outcome::Multi(result) => self.on_outcome(zxid, origin, reply_to_multi(result)),
            Outcome::Counted(is_complete) => self.on_counted(is_complete),
            Outcome::Nothing | Outcome::Reaped(_) => {}
        }
    }

    fn on_outcome(&mut self, zxid: Zxid, origin: Origin, result: Result<Reply, ErrorCode>) {
        if let Origin::Request { conn, xid, number } = origin {
            self.history.acknowledged += 1;
            self.close_behind_a_lost_refusal(conn, number);
            self.reply(conn, xid, zxid.as_i64(), result);
            self.on_write_done(conn);
        }
    }
}

fn reply_to_write(outcome: OpOutcome) -> Reply {
    match outcome {
        OpOutcome::Created { path, stat, with_stat: true } => Reply::PathStat(path, stat),
        OpOutcome::Created { path, with_stat: false, .. } => Reply::Path(path),
        OpOutcome::Deleted | OpOutcome::Checked => Reply::Empty,
        OpOutcome::DataSet(stat) | OpOutcome::AclSet(stat) => Reply::Stat(stat),
    }
}

/// Builds the reply to a multi.
///
/// # Errors
/// [`ErrorCode::MarshallingError`] fails the whole multi, as in ZooKeeper (surface 2.4).
fn reply_to_multi(result: Result<Vec<OpOutcome>, tree::MultiFailure>) -> Result<Reply, ErrorCode> {
    let results = match result {
        Ok(outcomes) => outcomes.into_iter().map(result_of_op).collect(),
        Err(failure) if failure.code == ErrorCode::MarshallingError => return Err(failure.code),
        Err(failure) => (0..failure.ops).map(|at| OpResult::Failed(code_at(at, failure))).collect(),
    };
    Ok(Reply::Multi(results))
}

fn result_of_op(outcome: OpOutcome) -> OpResult {
    match outcome {
        OpOutcome::Created { path, stat, with_stat: true } => OpResult::CreateStat(path, stat),
        OpOutcome::Created { path, with_stat: false, .. } => OpResult::Create(path),
        OpOutcome::Deleted => OpResult::Delete,
        OpOutcome::DataSet(stat) | OpOutcome::AclSet(stat) => OpResult::SetData(stat),
        OpOutcome::Checked => OpResult::Check,
    }
}

/// Returns the error that one operation of a failed multi reports (surface 2.4).
fn code_at(at: usize, failure: tree::MultiFailure) -> Option<ErrorCode> {
    match at.cmp(&failure.at) {
        std::cmp::Ordering::Less => None,
        std::cmp::Ordering::Equal => Some(failure.code),
        std::cmp::Ordering::Greater => Some(ErrorCode::RuntimeInconsistency),
    }
}
