//! Counts which features were seen to work while which faults struck.
//!
//! Nothing is known of a feature that no fault ever met. Only observations at clients and between
//! servers count, not plans.

mod feature;
mod sightings;

pub use feature::Feature;
pub(super) use sightings::Sightings;

use super::{Kind, SECOND};
use std::collections::BTreeMap;
use std::fmt;

/// Time after a fault that still belongs to it, in microseconds.
const AFTERWARDS_US: u64 = 2 * SECOND;

/// Faults of each kind, and how many of them met each feature.
///
/// A fault meets a feature that is seen at any server during the fault or within two seconds after
/// it.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    cells: BTreeMap<(Feature, Kind), u64>,
    faults: BTreeMap<Kind, u64>,
}

/// Returns why a cell cannot be filled; all other cells must be filled.
fn impossible(feature: Feature, kind: Kind) -> Option<&'static str> {
    match (feature, kind) {
        (Feature::Birth, Kind::Wipe | Kind::Clone | Kind::Rot) => {
            Some("before birth there are no disks that count, and none is lost")
        }
        (Feature::Birth, Kind::Reconfigure) => Some("before birth nobody leads who could change the members"),
        (Feature::Birth, Kind::ProspectDies) => Some("before birth nobody leads who could be cut off"),
        _ => None,
    }
}

impl Coverage {
    /// Computes the coverage of a run; `spans` holds each fault's start and end.
    pub(super) fn of(sightings: &Sightings, spans: &[(Kind, u64, u64)]) -> Self {
        let mut coverage = Self::default();
        for &(kind, from_us, to_us) in spans {
            *coverage.faults.entry(kind).or_default() += 1;
            for feature in sightings.between(from_us, to_us + AFTERWARDS_US) {
                *coverage.cells.entry((feature, kind)).or_default() += 1;
            }
        }
        coverage
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (&cell, count) in &other.cells {
            *self.cells.entry(cell).or_default() += count;
        }
        for (&kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
    }

    /// Returns how many faults of each kind struck.
    pub fn faults(&self) -> &BTreeMap<Kind, u64> {
        &self.faults
    }

    /// Returns how many faults of the kind met the feature.
    pub fn cell(&self, feature: Feature, kind: Kind) -> u64 {
        self.cells.get(&(feature, kind)).copied().unwrap_or_default()
    }

    /// Returns the empty cells that could be filled.
    pub fn gaps(&self) -> Vec<(Feature, Kind)> {
        let all = Feature::ALL.into_iter().flat_map(|feature| Kind::ALL.map(|kind| (feature, kind)));
        all.filter(|&(feature, kind)| self.cell(feature, kind) == 0 && impossible(feature, kind).is_none()).collect()
    }
}

/// Writes a Markdown table, and below it the reasons for cells that must be empty.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, cell: &dyn Fn(Kind) -> String| {
            write!(f, "| {name} |")?;
            Kind::ALL.into_iter().try_for_each(|kind| write!(f, " {} |", cell(kind)))?;
            writeln!(f)
        };
        row(f, "", &|kind| kind.to_string())?;
        row(f, "---", &|_| "---".to_owned())?;
        row(f, "faults", &|kind| self.faults.get(&kind).copied().unwrap_or_default().to_string())?;
        let mut reasons: Vec<&'static str> = Vec::new();
        for feature in Feature::ALL {
            reasons.extend(Kind::ALL.into_iter().filter_map(|kind| impossible(feature, kind)));
            row(f, feature.name(), &|kind| match (self.cell(feature, kind), impossible(feature, kind)) {
                (0, Some(_)) => "-".to_owned(),
                (count, _) => count.to_string(),
            })?;
        }
        reasons.sort_unstable();
        reasons.dedup();
        if reasons.is_empty() { Ok(()) } else { writeln!(f, "\n-: {}", reasons.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_counts_once_per_fault_until_two_seconds_after_it() {
        let mut sightings = Sightings::default();
        for at_us in [1, 5 * SECOND, 6 * SECOND, 20 * SECOND] {
            sightings.see(at_us, Feature::Sync);
        }
        let spans = [
            (Kind::Pause, 4 * SECOND, 7 * SECOND),
            (Kind::Pause, 18 * SECOND, 18 * SECOND + 1),
            (Kind::Reset, 2 * SECOND, 2 * SECOND),
        ];
        let coverage = Coverage::of(&sightings, &spans);
        assert_eq!((coverage.cell(Feature::Sync, Kind::Pause), coverage.faults()[&Kind::Pause]), (2, 2));
        assert_eq!(coverage.cell(Feature::Sync, Kind::Reset), 0);
        assert!(coverage.gaps().contains(&(Feature::Sync, Kind::Reset)));
        assert!(!coverage.gaps().contains(&(Feature::Sync, Kind::Pause)));
    }

    #[test]
    fn coverage_table_has_a_row_per_feature_and_column_per_fault() {
        let table = Coverage::default().to_string();
        let rows: Vec<_> = table.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 3 + Feature::ALL.len());
        assert!(rows.iter().all(|row| row.matches('|').count() == Kind::ALL.len() + 2));
    }
}
