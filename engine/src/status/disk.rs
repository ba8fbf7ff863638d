//! Troubles of a server's disk, other than lack of room.

use super::Status;
use crate::store::DeviceWear;

/// 99th percentile of sync times above which a disk is slow, microseconds.
///
/// A client waits for several syncs.
const SLOW_US: u64 = 500_000;

/// Time without an answer after which a disk hangs, milliseconds.
///
/// It is several times the latency of the slowest medium in a profile.
const HANGS_MS: u64 = 2_000;

/// Minimum number of syncs for a meaningful percentile.
const SYNCS_MIN: u64 = 200;

/// One trouble of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskTrouble {
    /// One sync in a hundred takes more than half a second.
    Slow,
    /// The medium has used up most of its life or of its spare blocks.
    Worn,
    /// More is written to the medium than its daily budget.
    OverBudget,
    /// A scrub of the base found bytes that differ from those written.
    Damaged,
    /// A log write or a base read has been unanswered for two seconds.
    Hangs,
    /// The data directory, or a file in it, was removed, moved away or replaced.
    Gone,
}

impl DiskTrouble {
    /// Every trouble.
    pub const ALL: [Self; 6] = [Self::Slow, Self::Worn, Self::OverBudget, Self::Damaged, Self::Hangs, Self::Gone];

    /// Returns the trouble's bit in messages between servers. A bit is never reused.
    const fn bit(self) -> u8 {
        match self {
            Self::Slow => 1,
            Self::Worn => 2,
            Self::OverBudget => 4,
            Self::Damaged => 8,
            Self::Hangs => 16,
            Self::Gone => 32,
        }
    }

    /// Returns whether the ensemble lacks a server while the trouble lasts.
    pub(super) const fn costs_a_server(self) -> bool {
        matches!(self, Self::Damaged | Self::Hangs | Self::Gone)
    }

    /// Returns the trouble for an operator, such as "its disk is slow".
    pub fn what(self) -> &'static str {
        match self {
            Self::Slow => "its disk is slow",
            Self::Worn => "its disk is nearly worn out",
            Self::OverBudget => "it writes more to its flash than the budget",
            Self::Damaged => "its base is damaged",
            Self::Hangs => "its disk does not answer",
            Self::Gone => "its data directory or a file in it is gone",
        }
    }

    fn is_in(self, status: &Status) -> bool {
        match self {
            Self::Slow => slow_us(status).is_some(),
            Self::Worn => {
                let device = status.flash.as_ref().and_then(|flash| flash.device.as_ref());
                device.and_then(DeviceWear::trouble).is_some()
            }
            Self::OverBudget => status.flash.as_ref().is_some_and(|flash| flash.is_over_budget),
            Self::Damaged => is_damaged(status),
            Self::Hangs => hangs_ms(status).is_some(),
            Self::Gone => is_gone(status),
        }
    }
}

/// A set of disk troubles.
///
/// It travels with the server's [`Health`](crate::peer::Health), so every other server reports it
/// too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskTroubles(u8);

impl DiskTroubles {
    /// Returns the troubles shown by a status whose `disk` and `flash` are set.
    pub fn of(status: &Status) -> Self {
        DiskTrouble::ALL.into_iter().filter(|trouble| trouble.is_in(status)).collect()
    }

    /// Decodes the set from a message. Bits unknown to this release are kept but not shown.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Encodes the set for a message.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether the set contains `trouble`.
    pub fn contains(self, trouble: DiskTrouble) -> bool {
        self.0 & trouble.bit() != 0
    }

    /// Returns the troubles that this release knows.
    pub fn iter(self) -> impl Iterator<Item = DiskTrouble> {
        DiskTrouble::ALL.into_iter().filter(move |&trouble| self.contains(trouble))
    }
}

impl FromIterator<DiskTrouble> for DiskTroubles {
    fn from_iter<T: IntoIterator<Item = DiskTrouble>>(troubles: T) -> Self {
        Self(troubles.into_iter().fold(0, |bits, trouble| bits | trouble.bit()))
    }
}

/// Returns the 99th percentile of sync times, microseconds; `None` while acceptable.
pub(super) fn slow_us(status: &Status) -> Option<u64> {
    let (syncs, p99_us) = (counted(status, "log_fdatasyncs"), counted(status, "fdatasync_us_p99"));
    (syncs >= SYNCS_MIN && p99_us > SLOW_US).then_some(p99_us)
}

/// Returns how long the disk has not answered, milliseconds; `None` while acceptable.
pub(super) fn hangs_ms(status: &Status) -> Option<u64> {
    let awaited_ms = counted(status, "disk_awaited_ms");
    (awaited_ms >= HANGS_MS).then_some(awaited_ms)
}

/// Alarm text for [`DiskTrouble::Gone`].
pub const DATA_DIRECTORY_GONE: &str = "the data directory, or a file in it, was removed, moved away or replaced: \
                                       the next start of this server will not find what it writes now";

pub(super) fn is_gone(status: &Status) -> bool {
    counted(status, "data_directory_gone") > 0
}

pub(super) fn is_damaged(status: &Status) -> bool {
    counted(status, "base_scrubs_failed") > 0
}

fn counted(status: &Status, name: &str) -> u64 {
    status.disk.iter().find(|(key, _)| *key == name).map_or(0, |(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::FlashStatus;

    #[test]
    fn a_status_has_the_troubles_that_it_shows_and_no_other() {
        let of = |change: fn(&mut Status)| {
            let mut status = Status { flash: Some(FlashStatus::default()), ..Status::default() };
            change(&mut status);
            DiskTroubles::of(&status).iter().collect::<Vec<_>>()
        };
        let syncs = |count, p99_us| vec![("log_fdatasyncs", count), ("fdatasync_us_p99", p99_us)];
        assert_eq!(of(|_| {}), []);
        assert_eq!(of(|status| status.flash = None), []);
        let worn = |status: &mut Status| {
            let device = DeviceWear { device: "mmcblk0".to_owned(), used_percent: Some(100), spare: None };
            status.flash.as_mut().unwrap().device = Some(device);
        };
        assert_eq!(of(worn), [DiskTrouble::Worn]);
        assert_eq!(of(|status| status.flash.as_mut().unwrap().is_over_budget = true), [DiskTrouble::OverBudget]);
        assert_eq!(of(|status| status.disk = vec![("base_scrubs_failed", 1)]), [DiskTrouble::Damaged]);
        assert_eq!(of(|status| status.disk = vec![("disk_awaited_ms", 2_000)]), [DiskTrouble::Hangs]);
        assert_eq!(of(|status| status.disk = vec![("disk_awaited_ms", 1_999)]), []);
        assert_eq!(of(|status| status.disk = vec![("data_directory_gone", 1)]), [DiskTrouble::Gone]);
        let with = |count, p99_us| {
            let status = Status { disk: syncs(count, p99_us), ..Status::default() };
            DiskTroubles::of(&status).iter().collect::<Vec<_>>()
        };
        assert_eq!(
            (with(200, 500_001), with(199, 500_001), with(200, 500_000)),
            (vec![DiskTrouble::Slow], vec![], vec![])
        );
    }

    #[test]
    fn each_trouble_has_a_bit_of_its_own_and_bits_of_a_later_release_are_kept() {
        let all: DiskTroubles = DiskTrouble::ALL.into_iter().collect();
        assert_eq!(all.bits().count_ones() as usize, DiskTrouble::ALL.len());
        let later = DiskTroubles::from_bits(0b1000_0001);
        assert_eq!((later.bits(), later.iter().collect::<Vec<_>>()), (0b1000_0001, vec![DiskTrouble::Slow]));
    }
}
