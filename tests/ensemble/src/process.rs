//! What the system says of a process: memory, processor time, bytes given to the disk.

use crate::{Outcome, said};
use std::time::Duration;

/// Ticks of the processor time in /proc, a second; Linux has had no other number for decades.
const TICKS_PER_S: u64 = 100;

/// Of one process, since it began where that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Resident memory, bytes.
    pub resident: u64,
    /// The most it ever was.
    pub resident_peak: u64,
    /// Processor time of all its threads, in user and in system mode.
    pub cpu: Duration,
    /// What it made the page cache write to a device.
    pub disk_bytes: u64,
}

impl Usage {
    /// Of the process with this number.
    ///
    /// # Errors
    /// When there is none, or its system is none of Linux.
    pub fn of(pid: u32) -> Outcome<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            std::fs::read_to_string(&path).map_err(said(path))
        };
        let (status, stat, io) = (read("status")?, read("stat")?, read("io")?);
        let kib = |key: &str| figure(&status, key).map(|kib| kib * 1024);
        Ok(Self {
            resident: kib("VmRSS:")?,
            resident_peak: kib("VmHWM:")?,
            cpu: cpu(&stat).ok_or_else(|| format!("/proc/{pid}/stat: {stat}"))?,
            disk_bytes: figure(&io, "write_bytes:")?,
        })
    }
}

fn figure(text: &str, key: &str) -> Outcome<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok());
    value.ok_or_else(|| format!("no {key} in /proc"))
}

/// Fields 14 and 15, counted behind the name, which may hold anything.
fn cpu(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(") ")?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / TICKS_PER_S))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may unwrap")]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu(stat), Some(Duration::from_secs(3)));
    }

    #[test]
    fn this_process_uses_something() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident > 1 << 20 && usage.resident_peak >= usage.resident, "{usage:?}");
    }
}
