//! Slow disks, and a check whether the machine itself stood still.

use crate::{Outcome, said};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zoolet_powercut::mount::{Mounted, SyncTimes};
use zoolet_powercut::random::Random;
use zoolet_powercut::volume::{Rules, Volume};

/// A mounted file system with slow syncs. Unmounted when dropped.
pub struct SlowDisk {
    mounted: Option<Mounted>,
    path: PathBuf,
}

impl SlowDisk {
    /// Mounts a disk below `directory`, with quick syncs at first.
    ///
    /// # Errors
    /// The system does not allow the mount: it needs root or fuse3, and /dev/fuse.
    pub fn mount(directory: &Path, number: u64) -> Outcome<Self> {
        let path = directory.join(format!("slow-{number}"));
        std::fs::create_dir_all(&path).map_err(said(path.display()))?;
        let quick = SyncTimes { us_max: 500, ..SyncTimes::default() };
        let mounted = Mounted::with_syncs(Volume::new(Rules::Journal), &path, None, quick, Random::new(number));
        Ok(Self { mounted: Some(mounted.map_err(said(path.display()))?), path })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the duration of syncs from now on.
    pub fn slow_down(&self, syncs: SyncTimes) {
        if let Some(mounted) = &self.mounted {
            mounted.slow_down(syncs);
        }
    }

    /// Refuses every change from now on, or accepts changes again.
    pub fn set_read_only(&self, is_read_only: bool) {
        if let Some(mounted) = &self.mounted {
            mounted.set_read_only(is_read_only);
        }
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.unmount();
        }
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Returns the longest delay of 10 ms sleeps during `watch`.
///
/// On a machine that does not run its processes, elections have a cause other than the one under
/// test.
pub fn longest_pause(watch: Duration) -> Duration {
    let (step, until) = (Duration::from_millis(10), Instant::now() + watch);
    let mut longest = Duration::ZERO;
    while Instant::now() < until {
        let began = Instant::now();
        std::thread::sleep(step);
        longest = longest.max(began.elapsed().saturating_sub(step));
    }
    longest
}
