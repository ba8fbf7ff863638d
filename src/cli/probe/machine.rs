//! What the rest of the box is like, as far as the kernel shows it.

use crate::cli::memory;
use std::fs;
use std::path::Path;

/// What was found. `None`: the kernel does not say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Machine {
    pub(super) memory_bytes: Option<u64>,
    pub(super) processors: usize,
    /// Whether they have instructions for AES: links are encrypted.
    pub(super) has_aes: Option<bool>,
    /// What the kernel tells the time by.
    pub(super) clock: Option<String>,
    /// Whether there is a clock that goes on without power.
    pub(super) has_rtc: bool,
}

/// Looks below `root`, which is `/` but in tests.
pub(super) fn look(root: &Path) -> Machine {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    Machine {
        memory_bytes: memory::total_bytes(root),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        has_aes: text("proc/cpuinfo").as_deref().and_then(has_aes),
        clock: text("sys/devices/system/clocksource/clocksource0/current_clocksource")
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty()),
        has_rtc: root.join("sys/class/rtc/rtc0").exists(),
    }
}

/// x86 calls them flags, ARM features.
fn has_aes(cpuinfo: &str) -> Option<bool> {
    let is_list = |name: &str| ["flags", "Features"].contains(&name.trim());
    let list = cpuinfo.lines().find_map(|line| line.split_once(':').filter(|(name, _)| is_list(name)))?.1;
    Some(list.split_whitespace().any(|flag| flag == "aes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_shows_is_read_and_what_it_does_not_is_not_known() {
        assert_eq!(has_aes("processor\t: 0\nflags\t\t: fpu aes sse\n"), Some(true));
        assert_eq!(has_aes("processor\t: 0\nFeatures\t: half thumb neon\n"), Some(false));
        assert_eq!(has_aes("isa : rv64imafdc\n"), None);
        let nothing = look(Path::new("/nowhere"));
        assert_eq!((nothing.memory_bytes, nothing.has_aes, nothing.clock, nothing.has_rtc), (None, None, None, false));
        assert!(look(Path::new("/")).memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }
}
