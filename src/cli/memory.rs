//! How much memory this process may have, beside how much it may take.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// What to tell the operator of a server that may take `most` bytes, when that is more than it may have.
pub(super) fn too_little(most: u64, profile: &str) -> Option<String> {
    let (allowed, of) = allowed(Path::new("/"))?;
    (most > allowed).then(|| {
        // Not to say that 64 MiB are more than 64 MiB.
        let (most, allowed) = (most.div_ceil(1 << 20), allowed >> 20);
        format!(
            "this server may take {most} MiB of memory, and {of} {allowed} MiB: take a profile for less (it has {profile}; see zoolet profile list), or lower [limits]"
        )
    })
}

/// The least of what the machine has, and what this process may have of it, with whose word that is.
fn allowed(root: &Path) -> Option<(u64, &'static str)> {
    let limit = |resource| getrlimit(resource).current;
    let all = [
        (total_bytes(root), "this machine has"),
        (cgroup_bytes(root), "its cgroup allows"),
        (limit(Resource::As), "ulimit -v allows"),
        (limit(Resource::Data), "ulimit -d allows"),
    ];
    all.into_iter().filter_map(|(bytes, of)| Some((bytes?, of))).min()
}

/// What the machine has. `None`: the kernel does not say.
pub(super) fn total_bytes(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// What the cgroup of this process allows, and all that it is in.
fn cgroup_bytes(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |group: &Path| {
        let text = fs::read_to_string(root.join("sys/fs/cgroup").join(group).join("memory.max")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    Path::new(own).ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_what_machine_and_cgroups_allow_counts() {
        let root = std::env::temp_dir().join(format!("zoolet-memory-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!((total_bytes(&root), cgroup_bytes(&root)), (None, None));
        write("proc/meminfo", "MemTotal:         498680 kB\nMemFree: 1 kB\n");
        assert_eq!(allowed(&root), Some((498_680 << 10, "this machine has")));
        write("proc/self/cgroup", "1:name=old:/x\n0::/system.slice/zoolet.service\n");
        write("sys/fs/cgroup/system.slice/zoolet.service/memory.max", "max\n");
        assert_eq!(cgroup_bytes(&root), None);
        write("sys/fs/cgroup/system.slice/memory.max", "67108864\n");
        assert_eq!(allowed(&root), Some((64 << 20, "its cgroup allows")));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_fits_is_not_worth_a_word() {
        assert_eq!(too_little(1 << 20, "emmc/128m"), None);
        let line = too_little(u64::MAX >> 1, "emmc/128m").unwrap();
        assert!(line.starts_with("this server may take 8796093022208 MiB of memory, and "), "{line}");
    }
}
