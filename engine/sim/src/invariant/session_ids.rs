//! Session ids are never reused. Each is the zxid of the entry that created the session, or it is
//! negative and the session began local.
//!
//! ZooKeeper derives them from a clock that restarts at every boot. There, two clients could hold
//! one session, and each other's ephemerals.

use super::{Ghost, Invariant, Seen};
use std::collections::BTreeSet;
use zoolet_machine::record::key;
use zoolet_machine::txn::{self, Txn};
use zoolet_model::SessionId;
use zoolet_zab::{ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SessionIds {
    /// The newest id, which is also the only one in `begun`.
    newest: Zxid,
    begun: BTreeSet<Zxid>,
    upgraded: BTreeSet<SessionId>,
}

impl SessionIds {
    fn begin(&mut self, id: Zxid, by: Zxid) -> Result<(), String> {
        if id != by {
            return Err(format!("{by:?} begins session {id}"));
        }
        if id <= self.newest || !self.begun.insert(id) {
            return Err(format!("{by:?} begins session {id}, which there was before"));
        }
        self.newest = id;
        self.begun.retain(|begun| *begun >= id);
        Ok(())
    }
}

impl SessionIds {
    fn upgrade(&mut self, id: SessionId, payload: &[u8]) -> Result<(), String> {
        let is_asked = matches!(txn::decode(payload), Ok((_, Txn::UpgradeSession { session, .. })) if session == id);
        if !is_asked || !self.upgraded.insert(id) {
            return Err(format!("session {:#x} became global by another entry, or twice", id.0));
        }
        Ok(())
    }
}

impl Invariant for SessionIds {
    fn name(&self) -> &'static str {
        "session ids"
    }

    fn after(&mut self, ghost: &Ghost, _server: ServerId, _seen: &Seen<'_>) -> Result<(), String> {
        for entry in &ghost.newly_applied {
            let new = entry
                .applied
                .changes
                .iter()
                .filter(|(key, change)| key[0] == key::SESSION && change.after.is_some() && !change.existed);
            for (key, _) in new {
                let id = key.get(1..9).and_then(|id| id.try_into().ok()).map_or(0, u64::from_be_bytes);
                if SessionId(id as i64).began_local() {
                    self.upgrade(SessionId(id as i64), &entry.payload)?;
                    continue;
                }
                self.begin(Zxid::from_bits(id).unwrap_or(Zxid::ZERO), entry.zxid)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, commit, payload, zxid};
    use super::*;
    use zoolet_machine::seam::action::LogRecord;
    use zoolet_model::SessionSecret;

    #[test]
    fn session_id_equal_to_its_creating_zxid_is_fine() {
        let mut story = Story::of(SessionIds::default());
        story.reign(1, &[2]);
        let begin = Txn::CreateSession { timeout_ms: 4000, secret: SessionSecret([1; 16]), home: None };
        let end = Txn::CloseSession { session: SessionId(zxid(1, 1).as_i64()) };
        for (counter, txn) in (1..).zip([&begin, &end, &begin]) {
            story.write(1, &[LogRecord::Entry { zxid: zxid(1, counter), payload: payload(txn) }]);
            story.say(1, 2, &commit(1, zxid(1, counter)));
        }
        story.is_fine();
    }

    #[test]
    fn reused_or_invented_session_id_is_reported() {
        let mut ids = SessionIds::default();
        ids.begin(zxid(1, 1), zxid(1, 1)).unwrap();
        assert!(ids.begin(zxid(1, 1), zxid(1, 1)).unwrap_err().contains("there was before"));
        assert!(ids.begin(zxid(1, 1), zxid(2, 1)).unwrap_err().contains("2.1 begins session 0x10000000001"));
    }
}
