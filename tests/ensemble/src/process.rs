//! Memory, processor time and disk writes of a process, as Linux reports them.

use crate::{Outcome, said};
use std::time::Duration;

/// Ticks of processor time per second in /proc; constant on Linux for decades.
const TICKS_PER_S: u64 = 100;

/// Resource usage of one process since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Resident memory, in bytes.
    pub resident: u64,
    /// Peak of the resident memory, in bytes.
    pub resident_peak: u64,
    /// Processor time of all threads, in user and system mode.
    pub cpu: Duration,
    /// Bytes that it made the page cache write to devices.
    pub disk_bytes: u64,
}

impl Usage {
    /// Reads the usage of the process with this id.
    ///
    /// # Errors
    /// There is no such process, or the system is not Linux.
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

/// Fields 14 and 15, counted after the name, which may contain anything.
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
    fn processor_time_is_parsed_after_any_process_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu(stat), Some(Duration::from_secs(3)));
    }

    #[test]
    fn memory_of_this_process_is_measured() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident > 1 << 20 && usage.resident_peak >= usage.resident, "{usage:?}");
    }
}
