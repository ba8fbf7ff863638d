//! Memory that the kernel holds a process to.

use crate::{Outcome, said};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A group of processes that together may take so much memory: caches of files are dropped at that bound, and a process that still wants more is
/// killed. Root only; gone when dropped.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    is_v2: bool,
}

impl Cgroup {
    /// One of that name below the group of this process; `None` where this machine lets nobody make any.
    ///
    /// # Errors
    /// A group that is there and takes no limit.
    pub fn new(name: &str, bytes: u64) -> Outcome<Option<Self>> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(said("/proc/self/cgroup"))?;
        // Of version 1 each controller has a tree of its own; of version 2 there is one.
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
        // The parent may give its children no controller of memory.
        if !group.bound(if is_v2 { "memory.max" } else { "memory.limit_in_bytes" }, bytes)? {
            return Ok(None);
        }
        // What is swapped out is taken all the same. A kernel that counts no swap has no such file.
        let (swap, most) = if is_v2 { ("memory.swap.max", 0) } else { ("memory.memsw.limit_in_bytes", bytes) };
        group.bound(swap, most)?;
        Ok(Some(group))
    }

    /// Sets a bound; whether there is such a one.
    fn bound(&self, name: &str, bytes: u64) -> Outcome<bool> {
        let path = self.path.join(name);
        // Not to be made: asked for that, the kernel forbids it where there is none.
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

    /// Where a process writes its number to be in it.
    pub fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// How many processes were killed because they wanted more.
    ///
    /// # Errors
    /// What the system says.
    pub fn kills(&self) -> Outcome<u64> {
        let path = self.path.join(if self.is_v2 { "memory.events" } else { "memory.oom_control" });
        let text = fs::read_to_string(&path).map_err(said(path.display()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|number| number.trim().parse().ok()).ok_or_else(|| format!("{}: {text}", path.display()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has ended may still be leaving.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
