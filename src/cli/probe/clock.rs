//! The real-time clocks of the board, which may keep the time without power.
//!
//! No file says whether they do, because many boards have the circuit but no battery. The kernel
//! shows only whether a clock has a plausible time, and whether the system time was taken from it
//! at the start.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The first second of 2025, in seconds since 1970.
///
/// This program is newer than that. A clock with an earlier time was never set, or lost the time.
const EARLIEST_S: u64 = 1_735_689_600;

/// A real-time clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rtc {
    /// Its device, such as `rtc0`.
    pub(super) device: String,
    /// Its driver and place, such as `rtc-ds1307 1-0068`.
    pub(super) name: String,
    /// Its time in seconds since 1970; `None` if it has none.
    ///
    /// Some clocks have none after their battery was empty.
    pub(super) says_s: Option<u64>,
    /// The system time when the clock was read, in seconds since 1970.
    pub(super) system_s: u64,
    /// Whether the kernel took the system time from it at the start.
    pub(super) set_the_system: bool,
}

impl Rtc {
    /// Returns whether its time is plausible.
    pub(super) fn is_set(&self) -> bool {
        self.says_s.is_some_and(|says| says >= EARLIEST_S)
    }

    /// Describes the clock for people.
    pub(super) fn in_words(&self) -> String {
        let Self { device, name, .. } = self;
        let Some(says) = self.says_s else {
            return format!("{device} ({name}) has no time: its battery is empty or missing, or it was never set");
        };
        if !self.is_set() {
            // Off by one day at most.
            let year = 1970 + (says / 86_400 + 1) * 400 / 146_097;
            return format!("{device} ({name}) shows {year}: it was never set, or lost the time without power");
        }
        let off = says.abs_diff(self.system_s);
        let beside =
            if off <= 2 { "the time of the system".to_owned() } else { format!("a time {off} s off the system's") };
        let start = if self.set_the_system {
            "and set the clock of the system at the start"
        } else {
            "but did not set the clock of the system at the start"
        };
        format!(
            "{device} ({name}) shows {beside}, {start}; only a start without network shows whether a battery keeps the time"
        )
    }
}

/// Returns all real-time clocks, sorted by device.
pub(super) fn rtcs(root: &Path) -> Vec<Rtc> {
    let entries = fs::read_dir(root.join("sys/class/rtc")).into_iter().flatten().flatten();
    let mut found: Vec<Rtc> = entries.filter_map(|entry| look(&entry.path())).collect();
    found.sort_unstable_by(|a, b| a.device.cmp(&b.device));
    found
}

fn look(place: &Path) -> Option<Rtc> {
    let text = |name: &str| Some(fs::read_to_string(place.join(name)).ok()?.trim().to_owned());
    Some(Rtc {
        device: place.file_name()?.to_str()?.to_owned(),
        name: text("name").unwrap_or_else(|| "of a driver without a name".to_owned()),
        says_s: text("since_epoch").and_then(|seconds| seconds.parse().ok()),
        system_s: UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
        set_the_system: text("hctosys").is_some_and(|text| text == "1"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cgroup::tests::Root;

    #[test]
    fn clock_never_set_does_not_count_as_keeping_time() {
        let root = Root::new("rtc");
        assert_eq!(rtcs(&root.0), []);
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
        // rtc2: after 2038, a clock of 32 bits shows a time before 1970.
        for (device, since_epoch) in
            [("rtc0", "17\n"), ("rtc1", "946684800\n"), ("rtc2", "-5\n"), ("rtc3", &format!("{now}\n"))]
        {
            root.write(&format!("sys/class/rtc/{device}/name"), "rtc-ds1307 1-0068\n");
            root.write(&format!("sys/class/rtc/{device}/since_epoch"), since_epoch);
        }
        root.write("sys/class/rtc/rtc3/hctosys", "1\n").write("sys/class/rtc/rtc4/name", "rtc-pl031\n");
        let found = rtcs(&root.0);
        assert_eq!(found.iter().map(Rtc::is_set).collect::<Vec<_>>(), [false, false, false, true, false]);
        let said: Vec<String> = found.iter().map(Rtc::in_words).collect();
        assert_eq!(said[0], "rtc0 (rtc-ds1307 1-0068) shows 1970: it was never set, or lost the time without power");
        assert!(said[1].starts_with("rtc1 (rtc-ds1307 1-0068) shows 2000: it was never set"), "{said:?}");
        assert!(said[2].contains("has no time") && said[4].contains("(rtc-pl031) has no time"), "{said:?}");
        assert!(
            said[3].contains("and set the clock of the system at the start; only a start without network"),
            "{said:?}"
        );
        assert!(found[3].set_the_system && !found[4].set_the_system);
    }

    #[test]
    fn wrong_clock_is_described_with_its_offset() {
        let rtc = Rtc {
            device: "rtc0".to_owned(),
            name: "rtc_cmos".to_owned(),
            says_s: Some(EARLIEST_S + 7200),
            system_s: EARLIEST_S,
            set_the_system: false,
        };
        assert!(rtc.in_words().starts_with("rtc0 (rtc_cmos) shows a time 7200 s off the system's, but did not"));
    }
}
