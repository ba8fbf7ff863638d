//! What a leader has given of its epoch, and to which disk: nobody can have more of it, unless a disk went back in time.

use crate::zab::{PEERS_MAX, State};
use crate::{Incarnation, ServerId, Zab, Zxid};
use heapless::Vec;

/// To one disk, whichever server it was in: people move cards, and copy them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    disk: Incarnation,
    /// The last entry; `None` once a snapshot went out, which may hold whatever is committed.
    to: Option<Zxid>,
}

/// To all of them, over all links of one leadership.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Given {
    parts: Vec<Part, PEERS_MAX>,
    /// There were more disks than are remembered: of others nothing is known.
    is_full: bool,
    /// Who was refused last, and has not been taken in since.
    refused: Option<ServerId>,
}

impl Given {
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
    /// Entries up to `to` went out to the peer in this place; `None`: a snapshot.
    pub(crate) fn note_given(&mut self, at: usize, to: Option<Zxid>) {
        self.given.note(self.peers[at].disk, to);
    }

    /// Whether the peer in this place can have a history that ends at `last`: of this leader's epoch only what this leader gave it. More of it comes
    /// from another leader of an epoch with the same number, which one of the two disks has forgotten.
    pub(crate) fn can_have(&self, at: usize, last: Zxid) -> bool {
        let State::Leading(prospect) = &self.state else { return true };
        let is_of_epoch = prospect.epoch == Some(last.epoch());
        // A copy of this leader's own disk, in another server, has what is here.
        let is_own = self.peers[at].disk == self.disk;
        !is_of_epoch || is_own || self.given.may_have(self.peers[at].disk, last)
    }

    /// A peer is refused, or it is taken in: emptied, it may be.
    pub(crate) fn note_refusal(&mut self, id: ServerId, is_refused: bool) {
        if is_refused {
            self.given.refused = Some(id);
        } else if self.given.refused == Some(id) {
            self.given.refused = None;
        }
    }

    /// Whom this leader refuses since a disk went back in time ([`Fault::WentBack`](crate::Fault::WentBack)); `None` once it has been taken in.
    pub fn refused(&self) -> Option<ServerId> {
        if matches!(self.state, State::Leading(_)) { self.given.refused } else { None }
    }

    /// Whether an entry that is committed is not in this history, although all of its time is remembered.
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
    fn a_disk_has_what_it_was_given_and_another_nothing() {
        let (disk, other) = (Incarnation(7), Incarnation(8));
        let mut given = Given::default();
        given.note(disk, Some(zxid(4)));
        given.note(disk, Some(zxid(2)));
        assert!(given.may_have(disk, zxid(4)) && !given.may_have(disk, zxid(5)));
        assert!(!given.may_have(other, zxid(0)));
        given.note(disk, None);
        given.note(disk, Some(zxid(1)));
        assert!(given.may_have(disk, zxid(9)));
    }

    #[test]
    fn of_more_disks_than_are_remembered_nothing_is_said() {
        let mut given = Given::default();
        for disk in 1..=PEERS_MAX as u128 + 1 {
            given.note(Incarnation(disk), Some(zxid(1)));
        }
        assert!(!given.may_have(Incarnation(1), zxid(2)));
        assert!(given.may_have(Incarnation(200), zxid(2)));
    }
}
