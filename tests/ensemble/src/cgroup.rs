//! Control groups that bound the memory of processes.

use crate::{Outcome, said};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A control group whose processes share a memory bound. Root only; removed when dropped.
///
/// At the bound the kernel drops page cache, and kills a process that still needs more.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    is_v2: bool,
}

impl Cgroup {
    /// Creates a group of this name below the group of this process.
    ///
    /// Returns `None` if this machine allows no such group.
    ///
    /// # Errors
    /// The group was created but accepts no limit, or a file cannot be read.
    pub fn new(name: &str, bytes: u64) -> Outcome<Option<Self>> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(said("/proc/self/cgroup"))?;
        // Version 1 has a tree for each controller; version 2 has one tree.
        let of = |controller: &str| {
            own.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                (controllers == controller).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let root = Path::new("/sys/fs/cgroup");
        let v1 = of("memory").map(|path| (root.join("memory").join(path), false));
        let v2 = of("").filter(|_| root.join("cgroup.controllers").is_file()).map(|path| (root.join(path), true));
        let Some((parent, is_v2)) = v1.or(v2) else { return Ok(None) };
        let path = parent.join(name);
        if fs::create_dir(&path).is_err() {
            return Ok(None);
        }
        let group = Self { path, is_v2 };
        // The parent may not enable the memory controller for its children.
        if !group.bound(if is_v2 { "memory.max" } else { "memory.limit_in_bytes" }, bytes)? {
            return Ok(None);
        }
        // Swapped memory counts as well. A kernel that does not count swap has no such file.
        let (swap, most) = if is_v2 { ("memory.swap.max", 0) } else { ("memory.memsw.limit_in_bytes", bytes) };
        group.bound(swap, most)?;
        Ok(Some(group))
    }

    /// Sets a bound, and returns whether its file exists.
    fn bound(&self, name: &str, bytes: u64) -> Outcome<bool> {
        let path = self.path.join(name);
        // Opened without `create`, with which the kernel would deny access to a missing file.
        match fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(bytes.to_string().as_bytes()))
        {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Returns the file into which a process writes its PID to join the group.
    pub fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Returns the number of processes killed at the bound.
    ///
    /// # Errors
    /// The file cannot be read, or has no count.
    pub fn kills(&self) -> Outcome<u64> {
        let path = self.path.join(if self.is_v2 { "memory.events" } else { "memory.oom_control" });
        let text = fs::read_to_string(&path).map_err(said(path.display()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|number| number.trim().parse().ok()).ok_or_else(|| format!("{}: {text}", path.display()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has ended may take a moment to leave the group.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
