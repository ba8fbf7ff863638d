//! Troubles of a server's disk, other than lack of room.

use super::Status;
use crate::seam::health::{DiskTrouble, DiskTroubles};
use crate::status::DeviceWear;

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

/// Trouble of the base that scrubs found and that still lasts.
///
/// It ends with a sound scrub, and with another base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BaseTrouble {
    /// A scrub found bytes that differ from those written.
    Damaged,
    /// Consecutive scrubs met I/O errors.
    Unreadable,
}

/// Returns the disk troubles shown by a status whose fields of the driver are set.
pub fn disk_troubles(status: &Status) -> DiskTroubles {
    DiskTrouble::ALL.into_iter().filter(|&trouble| shows(status, trouble)).collect()
}

fn shows(status: &Status, trouble: DiskTrouble) -> bool {
    match trouble {
        DiskTrouble::Slow => slow_us(status).is_some(),
        DiskTrouble::Worn => {
            let device = status.flash.as_ref().and_then(|flash| flash.device.as_ref());
            device.and_then(DeviceWear::trouble).is_some()
        }
        DiskTrouble::OverBudget => status.flash.as_ref().is_some_and(|flash| flash.is_over_budget),
        DiskTrouble::Damaged => status.base_trouble.is_some(),
        DiskTrouble::Hangs => hangs_ms(status).is_some(),
        DiskTrouble::Gone => is_gone(status),
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
pub const DATA_DIRECTORY_GONE: &str = "the data directory, or a file in it, was removed, moved or replaced: the next start of this server will not find its present writes";

pub(super) fn is_gone(status: &Status) -> bool {
    counted(status, "data_directory_gone") > 0
}

fn counted(status: &Status, name: &str) -> u64 {
    status.disk.iter().find(|(key, _)| *key == name).map_or(0, |(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::FlashStatus;

    #[test]
    fn disk_troubles_are_derived_from_the_status_at_their_thresholds() {
        let of = |change: fn(&mut Status)| {
            let mut status = Status { flash: Some(FlashStatus::default()), ..Status::default() };
            change(&mut status);
            disk_troubles(&status).iter().collect::<Vec<_>>()
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
        assert_eq!(of(|status| status.disk = vec![("base_scrubs_failed", 1)]), [], "it may have been an I/O error");
        assert_eq!(of(|status| status.base_trouble = Some(BaseTrouble::Damaged)), [DiskTrouble::Damaged]);
        assert_eq!(of(|status| status.base_trouble = Some(BaseTrouble::Unreadable)), [DiskTrouble::Damaged]);
        assert_eq!(of(|status| status.disk = vec![("disk_awaited_ms", 2_000)]), [DiskTrouble::Hangs]);
        assert_eq!(of(|status| status.disk = vec![("disk_awaited_ms", 1_999)]), []);
        assert_eq!(of(|status| status.disk = vec![("data_directory_gone", 1)]), [DiskTrouble::Gone]);
        let with = |count, p99_us| {
            let status = Status { disk: syncs(count, p99_us), ..Status::default() };
            disk_troubles(&status).iter().collect::<Vec<_>>()
        };
        assert_eq!(
            (with(200, 500_001), with(199, 500_001), with(200, 500_000)),
            (vec![DiskTrouble::Slow], vec![], vec![])
        );
    }

    #[test]
    fn disk_troubles_have_distinct_bits_and_unknown_bits_are_kept() {
        let all: DiskTroubles = DiskTrouble::ALL.into_iter().collect();
        assert_eq!(all.bits().count_ones() as usize, DiskTrouble::ALL.len());
        let later = DiskTroubles::from_bits(0b1000_0001);
        assert_eq!((later.bits(), later.iter().collect::<Vec<_>>()), (0b1000_0001, vec![DiskTrouble::Slow]));
    }
}
