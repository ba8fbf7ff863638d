//! Tracks the entries of the current epoch that a leader sent to each disk.
//!
//! A disk that holds more of the epoch shows that it, or the leader's disk, was put back to an
//! older copy.

use crate::zab::{PEERS_MAX, State};
use crate::{Incarnation, ServerId, Zab, Zxid};
use heapless::Vec;

/// Entries sent to one disk, in whichever server: operators move and copy SD cards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    disk: Incarnation,
    /// Last entry sent.
    ///
    /// `None` once a snapshot was sent, which may hold anything committed.
    to: Option<Zxid>,
}

/// Entries sent to every disk, over all links of one leadership.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SentByDisk {
    parts: Vec<Part, PEERS_MAX>,
    /// More disks were served than fit; nothing is known of the rest.
    is_full: bool,
    /// The server refused last, until it is taken in.
    refused: Option<ServerId>,
}

impl SentByDisk {
    fn note(&mut self, disk: Incarnation, to: Option<Zxid>) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.disk == disk) {
            part.to = part.to.zip(to).map(|(before, to)| before.max(to));
        } else if self.parts.push(Part { disk, to }).is_err() {
            self.is_full = true;
        }
    }

    fn may_have(&self, disk: Incarnation, last: Zxid) -> bool {
        match self.parts.iter().find(|part| part.disk == disk) {
            Some(part) => part.to.is_none_or(|to| last <= to),
            None => self.is_full,
        }
    }
}

/// Leader.
impl Zab {
    /// Notes that the peer at this index was sent entries up to `to`.
    ///
    /// `None` stands for a snapshot.
    pub(crate) fn note_sent(&mut self, at: usize, to: Option<Zxid>) {
        self.sent_by_disk.note(self.peers[at].disk, to);
    }

    /// Returns whether the peer at this index can have a history ending at `last`.
    ///
    /// It can have only those entries of this leader's epoch that this leader sent to it. Others
    /// come from another leader with the same epoch number. The peer's or this leader's disk has
    /// forgotten that leadership.
    pub(crate) fn can_have(&self, at: usize, last: Zxid) -> bool {
        let State::Leading(prospect) = &self.state else { return true };
        let is_of_epoch = prospect.epoch == Some(last.epoch());
        // A copy of this leader's disk, in another server, has this leader's entries.
        let is_own = self.peers[at].disk == self.disk;
        !is_of_epoch || is_own || self.sent_by_disk.may_have(self.peers[at].disk, last)
    }

    /// Notes that a peer was refused, or taken in (perhaps with an emptied disk).
    pub(crate) fn note_refusal(&mut self, id: ServerId, is_refused: bool) {
        if is_refused {
            self.sent_by_disk.refused = Some(id);
        } else if self.sent_by_disk.refused == Some(id) {
            self.sent_by_disk.refused = None;
        }
    }

    /// Returns the server that this leader refuses with
    /// [`Fault::WentBack`](crate::Fault::WentBack).
    ///
    /// `None` once that server has been taken in, or if this server does not lead.
    pub fn refused(&self) -> Option<ServerId> {
        if matches!(self.state, State::Leading(_)) { self.sent_by_disk.refused } else { None }
    }

    /// Returns whether this history should contain the committed entry, but does not.
    pub(crate) fn lacks(&self, committed: Zxid) -> bool {
        let is_remembered = self.history.oldest().is_none_or(|oldest| committed >= oldest);
        committed != Zxid::ZERO && is_remembered && !self.history.contains(committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    fn zxid(counter: u64) -> Zxid {
        Zxid::new(Epoch::new(2).unwrap(), counter).unwrap()
    }

    #[test]
    fn disk_may_hold_only_entries_that_were_sent_to_it() {
        let (disk, other) = (Incarnation(7), Incarnation(8));
        let mut sent_by_disk = SentByDisk::default();
        sent_by_disk.note(disk, Some(zxid(4)));
        sent_by_disk.note(disk, Some(zxid(2)));
        assert!(sent_by_disk.may_have(disk, zxid(4)) && !sent_by_disk.may_have(disk, zxid(5)));
        assert!(!sent_by_disk.may_have(other, zxid(0)));
        sent_by_disk.note(disk, None);
        sent_by_disk.note(disk, Some(zxid(1)));
        assert!(sent_by_disk.may_have(disk, zxid(9)));
    }

    #[test]
    fn disks_beyond_the_remembered_number_may_hold_any_entry() {
        let mut sent_by_disk = SentByDisk::default();
        for disk in 1..=PEERS_MAX as u128 + 1 {
            sent_by_disk.note(Incarnation(disk), Some(zxid(1)));
        }
        assert!(!sent_by_disk.may_have(Incarnation(1), zxid(2)));
        assert!(sent_by_disk.may_have(Incarnation(200), zxid(2)));
    }
}
