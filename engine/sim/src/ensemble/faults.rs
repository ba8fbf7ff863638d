//! The faults of a run.

use super::SECOND;
use crate::workload::Random;
use std::fmt;

/// An undisturbed ensemble is born by this time.
const BORN_US: u64 = 2 * SECOND;

/// Kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A process dies; the page cache of its box survives.
    Crash,
    /// A box loses power: unsynced writes are lost, torn or reordered.
    PowerLoss,
    /// All boxes lose power at once.
    PowerLossOfAll,
    /// A process dies in the middle of a disk step.
    CrashInStep,
    /// A box loses power in the middle of a disk step.
    PowerLossInStep,
    /// A process stands still while its box runs on.
    Pause,
    /// A box sleeps while its clocks count on. Simulated like [`Kind::Pause`].
    Suspend,
    /// The monotonic clock of a box runs fast or slow.
    Drift,
    /// A wall clock is set forward or back by 56 years.
    WallStep,
    /// A monotonic clock stands still.
    ClockFreeze,
    /// Writes and other changes of log files fail.
    LogError,
    /// Every operation on a file outside the log fails.
    BaseError,
    /// The disk is full.
    DiskFull,
    /// No write to the log ends any more.
    LogHang,
    /// No job ends any more except the log thread's: no read or write of the base, no log read for
    /// a peer.
    BaseHang,
    /// The disk is many times slower.
    DiskSlow,
    /// A server reaches no other server and is reached by none.
    Isolate,
    /// One box does not reach another.
    CutOneWay,
    /// The ensemble splits into two parts.
    Partition,
    /// A link breaks, and both ends notice.
    Reset,
    /// Packets from one box to another take longer, and many are lost.
    BadPath,
    /// The connections of a server's clients break.
    ClientReset,
    /// Clients and a server do not reach each other.
    ClientCut,
    /// A box comes back with an empty disk.
    Wipe,
    /// A box comes back with a copy of another box's disk, or with its previous disk.
    Clone,
    /// Bits flip on a disk.
    Rot,
    /// An operator stops a server; a leader hands over first.
    GracefulStop,
    /// A voter becomes an observer or the reverse, or a member leaves.
    Reconfigure,
    /// A leader is isolated, and its elected successor dies.
    ///
    /// The successor loses power as soon as a server has promised its epoch to it. Then the old
    /// leader reaches that server again.
    ProspectDies,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 29] = [
        Self::Crash,
        Self::PowerLoss,
        Self::PowerLossOfAll,
        Self::CrashInStep,
        Self::PowerLossInStep,
        Self::Pause,
        Self::Suspend,
        Self::Drift,
        Self::WallStep,
        Self::ClockFreeze,
        Self::LogError,
        Self::BaseError,
        Self::DiskFull,
        Self::LogHang,
        Self::BaseHang,
        Self::DiskSlow,
        Self::Isolate,
        Self::CutOneWay,
        Self::Partition,
        Self::Reset,
        Self::BadPath,
        Self::ClientReset,
        Self::ClientCut,
        Self::Wipe,
        Self::Clone,
        Self::Rot,
        Self::GracefulStop,
        Self::Reconfigure,
        Self::ProspectDies,
    ];

    /// Kinds that a leader does not survive, or after which it must be elected anew.
    pub const LEADER_LOSSES: [Self; 11] = [
        Self::Crash,
        Self::PowerLoss,
        Self::CrashInStep,
        Self::PowerLossInStep,
        Self::Pause,
        Self::LogHang,
        Self::Isolate,
        Self::CutOneWay,
        Self::Reset,
        Self::GracefulStop,
        Self::ProspectDies,
    ];

    /// Returns whether the fault makes sense with one server.
    pub fn is_for_one(self) -> bool {
        !matches!(
            self,
            Self::Isolate
                | Self::CutOneWay
                | Self::Partition
                | Self::Reset
                | Self::BadPath
                | Self::Wipe
                | Self::Clone
                | Self::Rot
                | Self::Reconfigure
                | Self::ProspectDies
        )
    }

    /// Returns whether the end of one fault would end the other one on the same server.
    pub(super) fn ends_like(self, other: Self) -> bool {
        let is_sleep = |kind| matches!(kind, Self::Pause | Self::Suspend);
        let is_step = |kind| matches!(kind, Self::CrashInStep | Self::PowerLossInStep);
        self == other || (is_sleep(self) && is_sleep(other)) || (is_step(self) && is_step(other))
    }

    /// Draws the time until the fault is healed, in microseconds; `None` for an instantaneous
    /// fault.
    fn duration_us(self, random: &mut Random) -> Option<u64> {
        let (from_us, to_us) = match self {
            Self::WallStep | Self::Drift | Self::Reset | Self::ClientReset | Self::Rot => return None,
            // For a process that dies at once, the time it stays away.
            Self::Crash | Self::CrashInStep | Self::GracefulStop => (SECOND / 20, 8 * SECOND),
            Self::PowerLoss | Self::PowerLossOfAll | Self::PowerLossInStep => (SECOND / 5, 15 * SECOND),
            Self::Wipe | Self::Clone | Self::Reconfigure | Self::ProspectDies => (SECOND, 10 * SECOND),
            Self::LogError | Self::LogHang | Self::BaseHang => (SECOND, 15 * SECOND),
            Self::Pause | Self::Suspend | Self::ClockFreeze => (SECOND / 100, 20 * SECOND),
            Self::BaseError | Self::DiskFull | Self::DiskSlow => (SECOND / 10, 15 * SECOND),
            Self::Isolate | Self::CutOneWay | Self::Partition | Self::BadPath | Self::ClientCut => {
                (SECOND / 50, 20 * SECOND)
            }
        };
        Some(random.logarithmic(from_us, to_us))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A fault with its time and duration. The victim is chosen when the fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Microseconds since the run began.
    pub at_us: u64,
    /// The kind of fault.
    pub kind: Kind,
    /// Microseconds until the fault is healed; `None` if nothing is to be healed.
    pub lasts_us: Option<u64>,
    /// Whether it strikes the leader, if there is one.
    pub at_leader: bool,
}

/// The kinds of faults of one run.
///
/// Runs differ in their kinds: without some faults a run gets further under the others.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Possible kinds, with their relative frequencies.
    weights: Vec<(Kind, u64)>,
}

impl Mix {
    /// Draws a third of `kinds`, on average, and at least one.
    pub fn drawn(kinds: &[Kind], random: &mut Random) -> Self {
        let chosen: Vec<_> = kinds.iter().copied().filter(|_| random.one_in(3)).collect();
        let mut weights: Vec<_> = chosen.into_iter().map(|kind| (kind, random.logarithmic(1, 16))).collect();
        if weights.is_empty() {
            weights.extend(kinds.first().map(|_| (*random.pick(kinds), 1)));
        }
        Self { weights }
    }

    /// Returns a mix of these kinds only, equally frequent.
    pub fn of(kinds: &[Kind]) -> Self {
        Self { weights: kinds.iter().map(|&kind| (kind, 1)).collect() }
    }

    /// Sets the weight of these kinds; drawn weights are from 1 to 16.
    pub fn with(mut self, kinds: &[Kind], weight: u64) -> Self {
        self.weights.retain(|(kind, _)| !kinds.contains(kind));
        self.weights.extend(kinds.iter().map(|&kind| (kind, weight)));
        self
    }

    /// Returns the kinds that may strike.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.weights.iter().map(|&(kind, _)| kind)
    }

    /// Draws `count` faults for a run that ends at `to_us`, in order. In two runs of three the
    /// ensemble is born before the first. In the third the first `early` ones strike before birth.
    pub fn faults_from_birth(&self, count: u64, early: usize, to_us: u64, random: &mut Random) -> Vec<Fault> {
        let mut faults = self.faults(count, BORN_US, to_us, random);
        if random.one_in(3) {
            faults.iter_mut().take(early).for_each(|fault| fault.at_us = random.below(BORN_US / 8));
            faults.sort_by_key(|fault| fault.at_us);
        }
        faults
    }

    /// Draws `count` faults between two times, in order.
    pub fn faults(&self, count: u64, from_us: u64, to_us: u64, random: &mut Random) -> Vec<Fault> {
        let all: u64 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut faults: Vec<Fault> = (0..if all == 0 { 0 } else { count })
            .filter_map(|_| {
                let mut left = random.below(all);
                let found = self.weights.iter().find(|(_, weight)| {
                    let is_it = left < *weight;
                    left = left.saturating_sub(*weight);
                    is_it
                });
                let kind = found?.0;
                let (at_us, lasts_us) = (random.between(from_us, to_us), kind.duration_us(random));
                Some(Fault { at_us, kind, lasts_us, at_leader: false })
            })
            .collect();
        faults.sort_by_key(|fault| fault.at_us);
        crowd(&mut faults, random);
        faults
    }
}

/// Moves a quarter of the faults so close to the preceding one that its effects are not over yet.
fn crowd(faults: &mut [Fault], random: &mut Random) {
    for at in 1..faults.len() {
        if random.one_in(4) {
            let next_us = faults[at - 1].at_us + random.logarithmic(SECOND / 1000, SECOND);
            faults[at].at_us = faults[at].at_us.min(next_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_draw_distinct_fault_mixes_that_cover_all_kinds() {
        let mixes: Vec<BTreeSet<Kind>> =
            (0..100).map(|seed| Mix::drawn(&Kind::ALL, &mut Random::new(seed)).kinds().collect()).collect();
        assert!(mixes.iter().collect::<BTreeSet<_>>().len() > 95);
        assert_eq!(mixes.iter().flatten().collect::<BTreeSet<_>>().len(), Kind::ALL.len());
        let pairs = mixes.iter().filter(|mix| mix.contains(&Kind::PowerLoss) && mix.contains(&Kind::Reset)).count();
        assert!(pairs > 3, "any two meet: {pairs}");
    }

    #[test]
    fn early_faults_strike_before_birth_in_a_third_of_runs_only() {
        let early = |seed| {
            let faults = Mix::of(&[Kind::Pause]).faults_from_birth(10, 4, 60 * SECOND, &mut Random::new(seed));
            assert_eq!(faults.len(), 10);
            assert!(faults.is_sorted_by_key(|fault| fault.at_us));
            faults.iter().filter(|fault| fault.at_us < BORN_US).count()
        };
        let counts: Vec<usize> = (0..300).map(early).collect();
        assert!(counts.iter().all(|&count| count == 0 || count == 4));
        assert!((70..130).contains(&counts.iter().filter(|&&count| count > 0).count()));
    }

    #[test]
    fn mix_yields_the_requested_number_of_faults_in_time_order() {
        let mut random = Random::new(3);
        let faults = Mix::of(&[Kind::Pause, Kind::Reset]).faults(50, SECOND, 60 * SECOND, &mut random);
        assert_eq!(faults.len(), 50);
        assert!(faults.is_sorted_by_key(|fault| fault.at_us));
        for fault in faults {
            assert!((SECOND..60 * SECOND).contains(&fault.at_us));
            assert_eq!(fault.kind == Kind::Pause, fault.lasts_us.is_some());
        }
    }
}
