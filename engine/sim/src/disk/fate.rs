//! The fate of unsynced changes.

use super::Random;

/// The effect of a power loss on each unsynced change.
pub(super) enum Fate {
    Nothing,
    Everything,
    Some(Random),
}

impl Fate {
    pub(super) const fn new(seed: u64) -> Self {
        match seed {
            0 => Self::Nothing,
            1 => Self::Everything,
            _ => Self::Some(Random::new(seed)),
        }
    }

    pub(super) fn keeps_whole(&mut self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Some(random) => random.coin(),
        }
    }

    /// Returns how many of `count` journaled changes survive; the journal keeps their order.
    pub(super) fn keeps_first(&mut self, count: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Everything => count,
            Self::Some(random) => usize::try_from(random.below(count as u64 + 1)).unwrap_or(count),
        }
    }

    /// Chooses which sectors of one write survive: none, all, or each by itself.
    pub(super) fn keeps_sectors(&mut self) -> SectorFate<'_> {
        match self {
            Self::Nothing => SectorFate::Same(false),
            Self::Everything => SectorFate::Same(true),
            Self::Some(random) => match random.below(4) {
                0 => SectorFate::Same(false),
                1 => SectorFate::Same(true),
                _ => SectorFate::Each(random),
            },
        }
    }
}

pub(super) enum SectorFate<'a> {
    Same(bool),
    Each(&'a mut Random),
}

impl SectorFate<'_> {
    pub(super) const fn keeps(&mut self) -> bool {
        match self {
            Self::Same(kept) => *kept,
            Self::Each(random) => random.coin(),
        }
    }
}
