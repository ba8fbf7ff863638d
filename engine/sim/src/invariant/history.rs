//! A history as the harness remembers it: each entry with the hash of its whole past.

use zoolet_zab::Zxid;

/// An entry and its whole past. Equal links stand for equal histories.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// The entry; [`Zxid::ZERO`] before the first.
    pub zxid: Zxid,
    /// The chain hash after it.
    pub chain: u128,
}

/// Consecutive links, oldest first.
///
/// Invariant: zxids strictly grow, and all are greater than the zxid of `floor`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    floor: Link,
    links: Vec<Link>,
}

impl History {
    /// Creates a history of which only the end is known, as after a snapshot.
    pub fn from(floor: Link) -> Self {
        Self { floor, links: Vec::new() }
    }

    /// Returns the last link.
    pub fn last(&self) -> Link {
        self.links.last().copied().unwrap_or(self.floor)
    }

    /// Returns the link below all links that are known individually.
    pub fn floor(&self) -> Link {
        self.floor
    }

    /// Returns all links that are known individually.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the links after `zxid`.
    pub fn after(&self, zxid: Zxid) -> &[Link] {
        &self.links[self.links.partition_point(|link| link.zxid <= zxid)..]
    }

    /// Returns the link of `zxid`, if it is known individually or is the floor.
    pub fn at(&self, zxid: Zxid) -> Option<Link> {
        if zxid == self.floor.zxid {
            return Some(self.floor);
        }
        let at = self.links.binary_search_by_key(&zxid, |link| link.zxid).ok()?;
        Some(self.links[at])
    }

    /// Appends an entry.
    ///
    /// # Panics
    /// If its zxid does not exceed the last one. The log itself refuses such an entry.
    pub fn push(&mut self, link: Link) {
        assert!(link.zxid > self.last().zxid, "{:?} after {:?}", link.zxid, self.last().zxid);
        self.links.push(link);
    }

    /// Removes every entry above `to`; returns false if `to` is not in the history.
    #[must_use]
    pub fn truncate(&mut self, to: Zxid) -> bool {
        let known = self.at(to).is_some();
        self.links.truncate(self.links.partition_point(|link| link.zxid <= to));
        known
    }

    /// Raises the floor to the last link at or below `to`. A long run need not remember its
    /// beginning.
    pub fn forget_below(&mut self, to: Zxid) {
        let at = self.links.partition_point(|link| link.zxid <= to);
        if at > 0 {
            self.floor = self.links[at - 1];
            self.links.drain(..at);
        }
    }

    /// Returns the first difference of two histories, in the part that both know individually.
    ///
    /// If the floors differ at the same zxid, they are the difference.
    pub fn first_difference(&self, other: &Self) -> Option<(Link, Link)> {
        let from = self.floor.zxid.max(other.floor.zxid);
        let pairs = self.after(from).iter().zip(other.after(from));
        let floors = self.at(from).zip(other.at(from)).filter(|(one, two)| one != two);
        floors.or_else(|| pairs.map(|(one, two)| (*one, *two)).find(|(one, two)| one != two))
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{link, links};
    use super::*;

    fn history(of: &[(u32, u64)]) -> History {
        let mut history = History::default();
        links(Link::default(), of).into_iter().for_each(|link| history.push(link));
        history
    }

    #[test]
    fn chain_hash_at_a_zxid_covers_all_earlier_entries() {
        let (one, two) = (history(&[(1, 0), (1, 1), (2, 0)]), history(&[(1, 0), (2, 0)]));
        let zxid = one.last().zxid;
        assert_eq!(zxid, two.last().zxid);
        assert_ne!(one.at(zxid), two.at(zxid));
        assert_eq!(one.at(link(1, 0).zxid), two.at(link(1, 0).zxid));
        assert!(one.first_difference(&two).is_some() && one.first_difference(&one).is_none());
    }

    #[test]
    fn history_drops_truncated_entries_and_keeps_its_end_when_forgetting() {
        let mut history = history(&[(1, 0), (1, 1), (1, 2)]);
        let last = history.last();
        assert!(history.truncate(link(1, 1).zxid));
        assert_eq!(history.at(last.zxid), None);
        assert!(!history.clone().truncate(link(3, 0).zxid));
        let end = history.last();
        history.forget_below(end.zxid);
        assert_eq!((history.last(), history.links().len()), (end, 0));
    }
}
