//! What the disk takes: the pattern that the log writes, in the place where it would be.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoolet_engine::store::disk::{Disk, DiskFile};
use zoolet_engine::store::{DeviceWear, FileSystem, FsDisk, Strategy};

/// What the log writes at once.
const BLOCK: usize = 4096;
/// Written one behind the other, so that blocks are there to be overwritten.
pub(super) const LAID_OUT: u64 = 32 << 20;
/// Blocks that are written and synced, at most.
pub(super) const SYNCS_MAX: usize = 2000;
/// How long that takes at most.
const LAYING_OUT_MAX: Duration = Duration::from_secs(8);
const SYNCING_MAX: Duration = Duration::from_secs(12);
/// The fewest that say anything about the longest of a hundred.
const SYNCS_MIN: usize = 100;
/// Removed as soon as it is open: whatever happens, nothing is left.
const NAME: &str = "zoolet-probe.tmp";

/// What was found.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct DiskFound {
    pub(super) file_system: FileSystem,
    /// Bytes in a second, one block behind the other and synced once.
    pub(super) bytes_per_second: u64,
    /// How many blocks were written and synced, one by one.
    pub(super) syncs: usize,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) max_us: u64,
    /// All that was written.
    pub(super) written_bytes: u64,
    /// What the device says of its life.
    pub(super) wear: Option<DeviceWear>,
}

/// Bytes that are written at most.
pub(super) const fn bytes_max() -> u64 {
    LAID_OUT + (SYNCS_MAX * BLOCK) as u64
}

/// Measures the disk below a directory that is there. `progress` is told what is being done.
///
/// # Errors
/// What the file system says; no room for it.
pub(super) fn measure(directory: &Path, mut progress: impl FnMut(&str)) -> io::Result<DiskFound> {
    let disk = FsDisk::shared(directory)?;
    let file_system = disk.file_system()?;
    let free = disk.free_bytes()?;
    if free < 2 * bytes_max() {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("{} MiB are free: {} are needed", free >> 20, (2 * bytes_max()) >> 20),
        ));
    }
    let file = unnamed(&disk)?;
    progress("writing one block behind the other");
    let (laid_out, bytes_per_second) = lay_out(&*file)?;
    progress("writing and syncing block by block");
    let mut took = sync_blocks(&*file, laid_out, file_system.strategy())?;
    let syncs = took.len();
    took.sort_unstable();
    let at = |percent: usize| took[(syncs * percent / 100).min(syncs - 1)];
    Ok(DiskFound {
        file_system,
        bytes_per_second,
        syncs,
        p50_us: at(50),
        p99_us: at(99),
        max_us: at(100),
        written_bytes: laid_out + (syncs * BLOCK) as u64,
        wear: DeviceWear::below(directory),
    })
}

fn unnamed(disk: &FsDisk) -> io::Result<Arc<dyn DiskFile>> {
    let file = match disk.create(NAME) {
        // Of one that was killed between two calls.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            disk.remove(NAME)?;
            disk.create(NAME)?
        }
        other => other?,
    };
    disk.remove(NAME)?;
    Ok(file)
}

/// How much was written, and how much that would be in a second.
fn lay_out(file: &dyn DiskFile) -> io::Result<(u64, u64)> {
    let (chunk, began) = (vec![0x5a; 1 << 20], Instant::now());
    let mut written = 0;
    while written < LAID_OUT && began.elapsed() < LAYING_OUT_MAX {
        file.write_at(written, &chunk)?;
        written += chunk.len() as u64;
        // So that the time is seen as it passes, and not all at the end.
        if written.is_multiple_of(8 << 20) {
            file.sync()?;
        }
    }
    file.sync()?;
    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    Ok((written, written.saturating_mul(1_000_000) / micros))
}

/// How long each took, microseconds.
fn sync_blocks(file: &dyn DiskFile, laid_out: u64, strategy: Strategy) -> io::Result<Vec<u64>> {
    let (mut block, began) = (vec![0xa5; BLOCK], Instant::now());
    let mut took = Vec::with_capacity(SYNCS_MAX);
    while took.len() < SYNCS_MAX && (took.len() < SYNCS_MIN || began.elapsed() < SYNCING_MAX) {
        let number = took.len() as u64;
        let place = match strategy {
            Strategy::Recycle => number * BLOCK as u64 % laid_out,
            Strategy::Append => laid_out + number * BLOCK as u64,
        };
        // Other bytes each time: a controller may see that nothing changes.
        block[..8].copy_from_slice(&number.to_le_bytes());
        let began = Instant::now();
        file.write_at(place, &block)?;
        file.sync()?;
        took.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_and_what_was_left_is_no_obstacle() {
        let directory = std::env::temp_dir().join(format!("zoolet-probe-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(NAME), "of one that was killed").unwrap();
        let disk = FsDisk::shared(&directory).unwrap();
        let file = unnamed(&disk).unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        file.write_at(0, &[1; 3 * BLOCK]).unwrap();
        // As many as the disk takes in the time for it.
        let [_, appended] = [Strategy::Recycle, Strategy::Append].map(|strategy| {
            let syncs = sync_blocks(&*file, 3 * BLOCK as u64, strategy).unwrap().len();
            assert!((SYNCS_MIN..=SYNCS_MAX).contains(&syncs));
            syncs
        });
        assert_eq!(file.len().unwrap(), ((3 + appended) * BLOCK) as u64, "appended behind what was there");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
