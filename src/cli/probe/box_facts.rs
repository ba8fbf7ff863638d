//! Memory, processors and clocks of the box, as far as the kernel shows them.

use super::ciphers::Ciphers;
use super::clock::{self, Rtc};
use crate::cli::{cgroup, memory};
use std::fs;
use std::path::Path;

/// The findings; `None` where the kernel does not say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Machine {
    pub(super) memory_bytes: Option<u64>,
    /// This process's memory limit in bytes, and its origin.
    ///
    /// `None` if the limit is not below the machine's memory.
    pub(super) memory_allowed: Option<(u64, &'static str)>,
    /// Number of processors that this process may use.
    pub(super) processors: usize,
    /// Usable processor time, in hundredths of a processor; `None`: all of it.
    pub(super) processor_percent: Option<u64>,
    /// Whether they have AES instructions.
    pub(super) has_aes: Option<bool>,
    pub(super) ciphers: Ciphers,
    /// The kernel's clock source.
    pub(super) clock: Option<String>,
    /// The real-time clocks of the board.
    pub(super) rtcs: Vec<Rtc>,
}

/// Reads the kernel's files below `root`, which is `/` except in tests.
pub(super) fn look(root: &Path) -> Machine {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let memory_bytes = memory::total_bytes(root);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Machine {
        memory_bytes,
        memory_allowed: memory::allowed(root).filter(|(allowed, _)| memory_bytes.is_none_or(|all| *allowed < all)),
        processors,
        processor_percent: cgroup::processor_percent(root).filter(|percent| *percent < 100 * processors as u64),
        has_aes: text("proc/cpuinfo").as_deref().and_then(has_aes),
        ciphers: Ciphers::default(),
        clock: text("sys/devices/system/clocksource/clocksource0/current_clocksource")
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty()),
        rtcs: clock::rtcs(root),
    }
}

/// Finds the AES flag: x86 lists it under `flags`, ARM under `Features`.
fn has_aes(cpuinfo: &str) -> Option<bool> {
    let is_list = |name: &str| ["flags", "Features"].contains(&name.trim());
    let list = cpuinfo.lines().find_map(|line| line.split_once(':').filter(|(name, _)| is_list(name)))?.1;
    Some(list.split_whitespace().any(|flag| flag == "aes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cgroup::tests::Root;

    #[test]
    fn machine_facts_missing_from_the_kernel_are_unknown() {
        assert_eq!(has_aes("processor\t: 0\nflags\t\t: fpu aes sse\n"), Some(true));
        assert_eq!(has_aes("processor\t: 0\nFeatures\t: half thumb neon\n"), Some(false));
        assert_eq!(has_aes("isa : rv64imafdc\n"), None);
        let nothing = look(Path::new("/nowhere"));
        assert_eq!(
            (nothing.memory_bytes, nothing.has_aes, nothing.clock, nothing.rtcs),
            (None, None, None, Vec::new())
        );
        assert!(look(Path::new("/")).memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }

    /// On a large machine, a container with 64 MiB and half a processor counts as a small box.
    #[test]
    fn cgroup_limits_on_memory_and_processor_are_found() {
        let root = Root::new("machine");
        root.write("proc/meminfo", "MemTotal:       16000000 kB\n");
        assert_eq!(look(&root.0).processor_percent, None);
        root.write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        root.write("proc/self/cgroup", "0::/a/b\n").write("sys/fs/cgroup/a/b/memory.max", "max\n");
        root.write("sys/fs/cgroup/a/memory.max", "67108864\n").write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
        let machine = look(&root.0);
        assert_eq!(machine.memory_bytes, Some(16_000_000 << 10));
        assert_eq!(machine.memory_allowed, Some((64 << 20, "its cgroup allows")));
        assert_eq!(machine.processor_percent, Some(50));
    }
}
