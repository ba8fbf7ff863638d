//! Limits of the control groups of this process: its group and all groups around it.
//!
//! Supports versions 1 and 2, wherever they are mounted (cgroups(7)).

use std::fs;
use std::path::{Path, PathBuf};

/// Values from here on mean that there is no limit.
///
/// Version 1 writes the largest multiple of the page size then.
const UNBOUNDED: u64 = 1 << 62;

/// Returns the memory limit in bytes; `None` without a limit.
pub(super) fn memory_bytes(root: &Path) -> Option<u64> {
    // Above `memory.high` the kernel throttles a process to a standstill, so the lower of the two
    // counts.
    let second = ["memory.max", "memory.high"].into_iter().flat_map(|name| numbers(root, None, name));
    let first = numbers(root, Some("memory"), "memory.limit_in_bytes");
    second.chain(first).filter(|bytes| *bytes < UNBOUNDED).min()
}

/// Returns the limit of processor time, in hundredths of a processor; `None` without a limit.
#[cfg_attr(not(feature = "tools"), allow(dead_code, reason = "`probe` alone asks"))]
pub(super) fn processor_percent(root: &Path) -> Option<u64> {
    let second = texts(root, None, "cpu.max").filter_map(|text| {
        let (quota, period) = text.split_once(' ')?;
        percent(quota, period)
    });
    let quotas = texts(root, Some("cpu"), "cpu.cfs_quota_us");
    let first = quotas.zip(texts(root, Some("cpu"), "cpu.cfs_period_us")).filter_map(|(q, p)| percent(&q, &p));
    second.chain(first).min()
}

/// Returns quota / period in hundredths; `None` for no limit, written as `max` or -1.
fn percent(quota: &str, period: &str) -> Option<u64> {
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    Some((quota.checked_mul(100)?.checked_div(period)?).max(1))
}

fn numbers(root: &Path, controller: Option<&str>, name: &'static str) -> impl Iterator<Item = u64> {
    texts(root, controller, name).filter_map(|text| text.parse().ok())
}

/// Returns the text of this file in each group around this process that has it.
fn texts(root: &Path, controller: Option<&str>, name: &'static str) -> impl Iterator<Item = String> {
    let groups = groups(root, controller).unwrap_or_default();
    groups.into_iter().filter_map(move |group| Some(fs::read_to_string(group.join(name)).ok()?.trim().to_owned()))
}

/// Returns the directories of this process's group and the groups around it.
///
/// `controller` selects a hierarchy of version 1; `None` selects version 2.
fn groups(root: &Path, controller: Option<&str>) -> Option<Vec<PathBuf>> {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let mount = text("proc/self/mountinfo")?.lines().find_map(|line| Mount::read(line, controller))?;
    let own = text("proc/self/cgroup")?.lines().find_map(|line| own_path(line, controller))?;
    let top = root.join(mount.point.trim_start_matches('/'));
    // In a container the path may be the host's, although the group itself is mounted at the top.
    let below = Path::new(&own).strip_prefix(&mount.root).ok().filter(|below| top.join(below).is_dir());
    let own = top.join(below.unwrap_or(Path::new("")));
    Some(own.ancestors().take_while(|group| group.starts_with(&top)).map(Path::to_path_buf).collect())
}

/// Parses the path of a group: `4:memory:/a/b` in version 1, `0::/a/b` in version 2.
fn own_path(line: &str, controller: Option<&str>) -> Option<String> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let is_it = controllers.split(',').any(|name| name == controller.unwrap_or(""));
    is_it.then(|| path.to_owned())
}

/// A mounted hierarchy.
struct Mount {
    /// The path within the hierarchy that is mounted.
    root: String,
    point: String,
}

impl Mount {
    /// Parses a line of mountinfo (proc(5)); `None` if it mounts another file system.
    fn read(line: &str, controller: Option<&str>) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let (kind, options) = (file_system.next()?, file_system.nth(1)?);
        let is_it = match controller {
            None => kind == "cgroup2",
            Some(name) => kind == "cgroup" && options.split(',').any(|option| option == name),
        };
        let mut fields = mount.split(' ').skip(3).map(str::to_owned);
        is_it.then_some(Self { root: fields.next()?, point: fields.next()? })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A fake root with the kernel files that the code reads.
    pub(in crate::cli) struct Root(pub(in crate::cli) PathBuf);

    impl Root {
        pub(in crate::cli) fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("zoolet-root-{}-{name}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }

        pub(in crate::cli) fn write(&self, path: &str, text: &str) -> &Self {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn allowed(root: &Root) -> (Option<u64>, Option<u64>) {
        (memory_bytes(&root.0), processor_percent(&root.0))
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn smallest_limit_of_nested_version_2_cgroups_counts() {
        let root = Root::new("second");
        assert_eq!(allowed(&root), (None, None));
        root.write("proc/self/mountinfo", V2)
            .write("proc/self/cgroup", "1:name=old:/x\n0::/system.slice/zoolet.service\n");
        let (outer, own) = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/system.slice/zoolet.service");
        root.write(&format!("{own}/memory.max"), "max\n").write(&format!("{own}/cpu.max"), "max 100000\n");
        assert_eq!(allowed(&root), (None, None));
        root.write(&format!("{outer}/memory.max"), "67108864\n").write(&format!("{outer}/cpu.max"), "150000 100000\n");
        assert_eq!(allowed(&root), (Some(64 << 20), Some(150)));
        root.write(&format!("{own}/memory.high"), "33554432\n").write(&format!("{own}/cpu.max"), "2500 10000\n");
        assert_eq!(allowed(&root), (Some(32 << 20), Some(25)));
    }

    #[test]
    fn smallest_limit_of_nested_version_1_cgroups_counts() {
        let root = Root::new("first");
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        root.write("proc/self/mountinfo", mounts).write("proc/self/cgroup", "4:memory:/a/b\n1:cpu,cpuacct:/a\n0::/\n");
        root.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
        root.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
        root.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
        assert_eq!(allowed(&root), (None, None));
        root.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "134217728\n");
        root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
        root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        assert_eq!(allowed(&root), (Some(128 << 20), Some(50)));
    }

    /// The path in `/proc/self/cgroup` is the host's. The mount shows the group itself, or the
    /// hierarchy of its namespace.
    #[test]
    fn mounted_cgroup_counts_inside_a_container() {
        for (name, mount_root, own) in [("bind", "/docker/17", "/docker/17"), ("namespace", "/", "/docker/17")] {
            let root = Root::new(name);
            let mount =
                format!("35 31 0:32 {mount_root} /sys/fs/cgroup/memory ro master:11 - cgroup cgroup rw,memory\n");
            root.write("proc/self/mountinfo", &mount).write("proc/self/cgroup", &format!("4:memory:{own}\n"));
            root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
            assert_eq!(memory_bytes(&root.0), Some(256 << 20), "{name}");
        }
    }
}
