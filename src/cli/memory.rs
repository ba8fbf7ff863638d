//! Compares the memory that this process may have with its maximum use.

use super::cgroup;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// Returns a warning if the server's maximum, `most` bytes, exceeds the allowed memory.
pub(super) fn too_little(most: u64, profile: &str) -> Option<String> {
    let (allowed, of) = allowed(Path::new("/"))?;
    (most > allowed).then(|| {
        // Rounded apart, so that the line never says that 64 MiB exceed 64 MiB.
        let (most, allowed) = (most.div_ceil(1 << 20), allowed >> 20);
        format!(
            "this server may take {most} MiB of memory, but {of} {allowed} MiB: choose a smaller profile than {profile} (zoolet profile list), or lower [limits]"
        )
    })
}

/// Returns the smallest limit on this process's memory, in bytes, and its origin.
///
/// The limits are the machine's memory, the control groups, and ulimits.
pub(super) fn allowed(root: &Path) -> Option<(u64, &'static str)> {
    let limit = |resource| getrlimit(resource).current;
    let all = [
        (total_bytes(root), "this machine has"),
        (cgroup::memory_bytes(root), "its cgroup allows"),
        (limit(Resource::As), "ulimit -v allows"),
        (limit(Resource::Data), "ulimit -d allows"),
    ];
    all.into_iter().filter_map(|(bytes, of)| Some((bytes?, of))).min()
}

/// Returns the machine's memory in bytes; `None` if the kernel does not report it.
pub(super) fn total_bytes(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::tests::Root;
    use super::*;

    #[test]
    fn allowed_memory_is_the_minimum_of_machine_and_cgroups() {
        let root = Root::new("memory");
        assert_eq!(total_bytes(&root.0), None);
        root.write("proc/meminfo", "MemTotal:         498680 kB\nMemFree: 1 kB\n");
        assert_eq!(allowed(&root.0), Some((498_680 << 10, "this machine has")));
        root.write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        root.write("proc/self/cgroup", "0::/a\n").write("sys/fs/cgroup/a/memory.max", "67108864\n");
        assert_eq!(allowed(&root.0), Some((64 << 20, "its cgroup allows")));
    }

    #[test]
    fn memory_warning_appears_only_above_the_allowed_memory() {
        assert_eq!(too_little(1 << 20, "emmc/128m"), None);
        let line = too_little(u64::MAX >> 1, "emmc/128m").unwrap();
        assert!(line.starts_with("this server may take 8796093022208 MiB of memory, but "), "{line}");
    }
}
