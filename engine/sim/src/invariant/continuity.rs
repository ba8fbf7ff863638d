//! INV-CONTINUITY: zxids grow in every log, without gaps within an epoch.
//!
//! The counters of an epoch are consecutive and begin with 0.
//!
//! A gap is silent data loss, because everything after it looks right. Known causes: two code paths
//! that append (A15), a stream from disk that skipped an entry (A23), and a truncation under an
//! open file (A7).

use super::{Ghost, Invariant, Seen};
use zoolet_machine::seam::action::LogRecord;
use zoolet_zab::{ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Continuity;

fn judge(before: Zxid, zxid: Zxid) -> Result<(), String> {
    let follows = if before.epoch() == zxid.epoch() {
        zxid.counter() == before.counter() + 1 && before != Zxid::ZERO
    } else {
        before.epoch() < zxid.epoch() && zxid.counter() == 0
    };
    if follows { Ok(()) } else { Err(format!("{zxid:?} after {before:?}")) }
}

impl Invariant for Continuity {
    fn name(&self) -> &'static str {
        "INV-CONTINUITY"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Record(_, LogRecord::Entry { zxid, .. }) = seen else { return Ok(()) };
        let last = ghost.host(server).tail.last.zxid;
        judge(last, *zxid).map_err(|what| format!("server {} appends {what}", server.as_u8()))
    }

    fn recount(&mut self, ghost: &Ghost) -> Result<(), String> {
        for (server, host) in &ghost.hosts {
            let mut before = host.history.floor().zxid;
            for link in host.history.links() {
                judge(before, link.zxid).map_err(|what| format!("server {} holds {what}", server.as_u8()))?;
                before = link.zxid;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, cut, entry};
    use super::*;

    #[test]
    fn next_counters_new_epochs_and_appends_after_truncation_are_fine() {
        let mut story = Story::of(Continuity);
        story.write(1, &[entry(1, 0), entry(1, 1), entry(4, 0), entry(4, 1), cut(1, 1), entry(5, 0)]);
        story.is_fine();
    }

    #[test]
    fn zxid_gaps_and_epochs_not_beginning_at_0_are_reported() {
        for (records, says) in [
            ([entry(1, 0), entry(1, 2)], "server 2 appends 1.2 after 1.0"),
            ([entry(1, 0), entry(2, 1)], "server 2 appends 2.1 after 1.0"),
            ([entry(0, 1), entry(1, 0)], "server 2 appends 0.1 after 0.0"),
        ] {
            let mut story = Story::of(Continuity);
            story.append(2, &records);
            story.is_wrong(&[says]);
        }
    }
}
