//! The watchers of one path.

use super::WatchKind;
use crate::seam::ids::ConnId;
use std::{
    collections::BTreeMap,
    mem::size_of,
    ops::{BitAnd, BitOr, Bound},
};
use zoolet_model::WatcherType;

/// A set of watch kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KindSet(u8);

impl KindSet {
    pub(super) const EMPTY: Self = Self(0);
    pub(super) const ALL: Self = Self(0b1111);
    const RECURSIVE: u8 = 0b1000;

    pub(super) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns 1 when the set contains the recursive kind, else 0.
    pub(super) const fn recursive(self) -> u32 {
        (self.0 & Self::RECURSIVE).count_ones()
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl From<WatchKind> for KindSet {
    fn from(kind: WatchKind) -> Self {
        Self(match kind {
            WatchKind::Data => 0b0001,
            WatchKind::Child => 0b0010,
            WatchKind::Persistent => 0b0100,
            WatchKind::PersistentRecursive => Self::RECURSIVE,
        })
    }
}

impl From<WatcherType> for KindSet {
    fn from(kind: WatcherType) -> Self {
        match kind {
            WatcherType::Children => WatchKind::Child.into(),
            WatcherType::Data => WatchKind::Data.into(),
            WatcherType::Persistent => WatchKind::Persistent.into(),
            WatcherType::PersistentRecursive => WatchKind::PersistentRecursive.into(),
            WatcherType::Any => Self::ALL,
        }
    }
}

impl BitOr for KindSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for KindSet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Bytes per further watcher of a path; exact for a path with few watchers.
pub(super) const WATCHER_BYTES: usize = size_of::<Watcher>();

/// Maximum watchers in a sorted array; inserting into a longer one is slow.
const FEW_MAX: usize = 16;

/// The connections that watch a path, and how.
///
/// Most watched paths have one watcher, which is stored inline. A popular path may have as many
/// watchers as there are connections. So only a fire that tells them all may take time proportional
/// to their number.
#[derive(Debug)]
pub(super) enum Watchers {
    None,
    One(ConnId, KindSet),
    Several(Box<Several>),
}

/// Both are ordered by connection number.
#[derive(Debug)]
pub(super) enum Several {
    Few(Vec<Watcher>),
    Many(BTreeMap<ConnId, KindSet>),
}

type Watcher = (ConnId, KindSet);

const _: () = assert!(size_of::<Watchers>() == 16);

impl Watchers {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the kinds that `conn` watches.
    pub(super) fn kinds(&self, conn: ConnId) -> KindSet {
        match self {
            Self::None => KindSet::EMPTY,
            Self::One(watcher, kinds) => {
                if *watcher == conn {
                    *kinds
                } else {
                    KindSet::EMPTY
                }
            }
            Self::Several(several) => match &**several {
                Several::Few(few) => {
                    few.binary_search_by_key(&conn, |&(c, _)| c).map_or(KindSet::EMPTY, |at| few[at].1)
                }
                Several::Many(many) => many.get(&conn).copied().unwrap_or(KindSet::EMPTY),
            },
        }
    }

    /// Adds `kinds` to those of `conn`.
    pub(super) fn insert(&mut self, conn: ConnId, kinds: KindSet) {
        match self {
            Self::None => *self = Self::One(conn, kinds),
            Self::One(watcher, old) if *watcher == conn => *old = *old | kinds,
            Self::One(watcher, old) => {
                let mut few = vec![(*watcher, *old), (conn, kinds)];
                few.sort_unstable_by_key(|&(conn, _)| conn);
                *self = Self::Several(Box::new(Several::Few(few)));
            }
            Self::Several(several) => several.insert(conn, kinds),
        }
    }

    /// Removes `kinds` from those of `conn`.
    ///
    /// Returns the removed kinds, and whether `conn` stopped watching by that.
    pub(super) fn remove(&mut self, conn: ConnId, kinds: KindSet) -> (KindSet, bool) {
        let old = self.kinds(conn);
        let (taken, left) = (old & kinds, old.without(kinds));
        if taken == KindSet::EMPTY {
            return (taken, false);
        }
        match self {
            Self::None => {}
            Self::One(_, _) if left == KindSet::EMPTY => *self = Self::None,
            Self::One(_, kinds) => *kinds = left,
            Self::Several(several) => {
                several.set(conn, left);
                self.shrink();
            }
        }
        (taken, left == KindSet::EMPTY)
    }

    /// Calls `found` with each connection that watches one of `wanted`, in order.
    pub(super) fn each(&self, wanted: KindSet, found: &mut impl FnMut(ConnId)) {
        let mut visit = |conn: ConnId, kinds: KindSet| {
            if kinds.intersects(wanted) {
                found(conn);
            }
        };
        match self {
            Self::None => {}
            Self::One(conn, kinds) => visit(*conn, *kinds),
            Self::Several(several) => match &**several {
                Several::Few(few) => few.iter().for_each(|&(conn, kinds)| visit(conn, kinds)),
                Several::Many(many) => many.iter().for_each(|(&conn, &kinds)| visit(conn, kinds)),
            },
        }
    }

    /// Calls `found` with each connection above `after` and its kinds, until it returns false.
    ///
    /// Connections come in order.
    pub(super) fn each_after(&self, after: Option<ConnId>, found: &mut impl FnMut(ConnId, KindSet) -> bool) {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        match self {
            Self::None => {}
            Self::One(conn, kinds) => {
                if after.is_none_or(|after| *conn > after) {
                    found(*conn, *kinds);
                }
            }
            Self::Several(several) => match &**several {
                Several::Few(few) => {
                    let mut above = few.iter().filter(|(conn, _)| after.is_none_or(|after| *conn > after));
                    above.all(|&(conn, kinds)| found(conn, kinds));
                }
                Several::Many(many) => {
                    let mut above = many.range((first, Bound::Unbounded));
                    above.all(|(&conn, &kinds)| found(conn, kinds));
                }
            },
        }
    }

    /// Fires: calls `found` with each connection that watches one of `wanted`, in order.
    ///
    /// Removes `consumed` from its kinds. `found` also gets the removed kinds, and whether the
    /// connection stopped watching by that.
    pub(super) fn trigger(
        &mut self,
        wanted: KindSet,
        consumed: KindSet,
        found: &mut impl FnMut(ConnId, KindSet, bool),
    ) {
        let mut stays = |conn: ConnId, kinds: &mut KindSet| {
            if !kinds.intersects(wanted) {
                return true;
            }
            let taken = *kinds & consumed;
            *kinds = kinds.without(consumed);
            let gone = *kinds == KindSet::EMPTY;
            found(conn, taken, gone);
            !gone
        };
        match self {
            Self::None => {}
            Self::One(conn, kinds) => {
                if !stays(*conn, kinds) {
                    *self = Self::None;
                }
            }
            Self::Several(several) => {
                match &mut **several {
                    Several::Few(few) => few.retain_mut(|(conn, kinds)| stays(*conn, kinds)),
                    Several::Many(many) => many.retain(|conn, kinds| stays(*conn, kinds)),
                }
                self.shrink();
            }
        }
    }

    /// Returns to a smaller representation when few watchers are left.
    fn shrink(&mut self) {
        let Self::Several(several) = self else { return };
        match &mut **several {
            Several::Few(few) => match few[..] {
                [] => *self = Self::None,
                [(conn, kinds)] => *self = Self::One(conn, kinds),
                [..] => {}
            },
            Several::Many(many) if many.len() <= FEW_MAX / 2 => {
                let few = many.iter().map(|(&conn, &kinds)| (conn, kinds)).collect();
                **several = Several::Few(few);
                self.shrink();
            }
            Several::Many(_) => {}
        }
    }
}

impl Several {
    fn insert(&mut self, conn: ConnId, kinds: KindSet) {
        match self {
            Self::Few(few) => match few.binary_search_by_key(&conn, |&(c, _)| c) {
                Ok(at) => few[at].1 = few[at].1 | kinds,
                Err(at) if few.len() < FEW_MAX => few.insert(at, (conn, kinds)),
                Err(_) => {
                    let mut many: BTreeMap<_, _> = few.iter().copied().collect();
                    many.insert(conn, kinds);
                    *self = Self::Many(many);
                }
            },
            Self::Many(many) => {
                let old = many.entry(conn).or_insert(kinds);
                *old = *old | kinds;
            }
        }
    }

    /// Replaces the kinds of a connection that is present; empty removes it.
    fn set(&mut self, conn: ConnId, kinds: KindSet) {
        match self {
            Self::Few(few) => few.retain_mut(|(c, k)| {
                if *c == conn {
                    *k = kinds;
                }
                *k != KindSet::EMPTY
            }),
            Self::Many(many) => {
                if kinds == KindSet::EMPTY {
                    many.remove(&conn);
                } else {
                    many.insert(conn, kinds);
                }
            }
        }
    }
}
