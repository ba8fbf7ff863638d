//! Measures the write pattern of the log, in the directory where the log would be.
//!
//! Runs in a separate process. A thread that waits for a hanging disk cannot be ended, and its
//! process stays until the disk answers. The waiting process can leave at its deadline. This
//! process then finds its pipe closed, removes its file and ends.

use super::event::{Event, Phase};
use crate::cli::memory;
use crate::cli::probe::NAME;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoolet_store::disk::{Disk, DiskFile};
use zoolet_store::{FileSystem, FsDisk, Strategy};

/// Write unit of the log, in bytes.
pub(super) const BLOCK: u64 = 4096;
/// Bytes per write call while the file is laid out.
const CHUNK: u64 = 256 << 10;
/// Maximum bytes written in total.
const BYTES_MAX: u64 = 40 << 20;
/// Divisor of the free bytes; the quotient bounds the bytes written.
///
/// Other programs need room too.
const PART_OF_FREE: u64 = 4;
/// Divisor of the bytes written; the quotient is the share of single blocks.
const PART_SYNCED: u64 = 5;
/// Maximum number of blocks written and synced singly.
const SYNCS_MAX: u64 = 2000;
/// Minimum number of syncs for a meaningful 99th percentile.
pub(in crate::cli::probe) const SYNCS_MIN: u64 = 100;
/// Minimum free bytes; less has no room for [`SYNCS_MIN`] blocks.
const FREE_MIN: u64 = 8 << 20;
/// Time limits of the two writing phases.
pub(super) const LAYING_OUT_MAX: Duration = Duration::from_secs(7);
pub(super) const SYNCING_MAX: Duration = Duration::from_secs(12);
/// Intermediate syncs while the file is laid out, so that the reported time grows steadily.
///
/// A single sync would take most of the time at the end.
const SYNCS_WHILE_LAYING_OUT: u64 = 4;

/// Bounds of the data to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// Bytes written sequentially first, so that there are blocks to overwrite.
    pub(super) laid_out_bytes: u64,
    /// Blocks written and synced singly.
    pub(super) syncs: u64,
}

impl Plan {
    /// Returns the plan for `free` bytes; `None` if a server would not fit either.
    fn within(free: u64) -> Option<Self> {
        let bytes = BYTES_MAX.min(free / PART_OF_FREE);
        let syncs = SYNCS_MAX.min(bytes / PART_SYNCED / BLOCK);
        let laid_out_bytes = (bytes - syncs * BLOCK) / CHUNK * CHUNK;
        (free >= FREE_MIN).then_some(Self { laid_out_bytes, syncs })
    }

    /// Returns the bytes of both phases.
    pub(super) const fn bytes(self) -> u64 {
        self.laid_out_bytes + self.syncs * BLOCK
    }
}

/// Runs the internal command: measures below `data` and writes the events to stdout.
pub(in crate::cli) fn run(data: &Path) {
    let mut stdout = io::stdout().lock();
    let mut tell = |event: &Event| {
        use io::Write;
        stdout.write_all(&event.to_line()).and_then(|()| stdout.flush())
    };
    let end = match measure(data, &mut tell) {
        Ok(()) => Event::Done,
        Err(Stopped::NobodyListens) => return,
        Err(Stopped::Refused(line)) => Event::Failed { code: 2, line },
        Err(Stopped::Failed(line)) => Event::Failed { code: 1, line },
    };
    let _ = tell(&end);
}

enum Stopped {
    NobodyListens,
    Refused(String),
    Failed(String),
}

/// Sends an event; an error means that the reader is gone.
type Tell<'a> = dyn FnMut(&Event) -> io::Result<()> + 'a;

fn measure(data: &Path, tell: &mut Tell<'_>) -> Result<(), Stopped> {
    let directory = directory(data)?;
    let failed = |error: io::Error| Stopped::Failed(format!("{}: {}", directory.display(), in_words(&error)));
    let disk = FsDisk::shared(&directory).map_err(failed)?;
    let file_system = disk.file_system().map_err(failed)?;
    let room = room(&disk, file_system).map_err(failed)?;
    let plan = Plan::within(room).ok_or_else(|| {
        Stopped::Failed(format!(
            "{}: {} are free, but the measurement needs at least {}, and a server more",
            directory.display(),
            mebibytes(room),
            mebibytes(FREE_MIN)
        ))
    })?;
    let teller = Teller { tell };
    let place = Event::Place { file_system, free_bytes: room, plan, directory: directory.clone() };
    write(&disk, file_system.strategy(), plan, teller, &place).map_err(|error| match error {
        Error::NobodyListens => Stopped::NobodyListens,
        Error::Disk(error) => failed(error),
    })
}

/// Returns the directory itself, or the parent in which it would be created.
fn directory(data: &Path) -> Result<PathBuf, Stopped> {
    let whole = std::path::absolute(data).map_err(|error| Stopped::Failed(error.to_string()))?;
    // A server creates its directory, but no ancestors. A more distant ancestor may be on another
    // disk.
    let found = whole.ancestors().take(2).find(|place| place.exists());
    let refused = |why| Stopped::Refused(format!("--data = {}: {why}", data.display()));
    let found =
        found.ok_or_else(|| refused("neither it nor its parent directory exists; is its file system mounted?"))?;
    if found.is_dir() { Ok(found.to_path_buf()) } else { Err(refused("is not a directory")) }
}

/// Returns the bytes that may be used temporarily.
fn room(disk: &FsDisk, file_system: FileSystem) -> io::Result<u64> {
    let free = disk.free_bytes()?;
    let memory = memory::allowed(Path::new("/")).map(|(bytes, _)| bytes);
    // Files in tmpfs count as memory of this process's control group.
    Ok(if file_system == FileSystem::Tmpfs { free.min(memory.unwrap_or(free)) } else { free })
}

fn mebibytes(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, (bytes % (1 << 20) * 10) >> 20)
}

/// Describes an error of the disk, with a remedy.
fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "permission denied; run the probe as the user of the server, or as root".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => "the disk is read-only, so no server could store data there".to_owned(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk became full during the measurement; free space".to_owned()
        }
        _ => format!("the disk refuses this operation, which a server needs too: {error}"),
    }
}

enum Error {
    NobodyListens,
    Disk(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

struct Teller<'a, 'b> {
    tell: &'a mut Tell<'b>,
}

impl Teller<'_, '_> {
    fn tell(&mut self, event: &Event) -> Result<(), Error> {
        (self.tell)(event).map_err(|_| Error::NobodyListens)
    }
}

/// A temporary file that is removed in any case.
///
/// It has a name during the measurement, because some file systems sync unnamed files differently:
/// btrfs not at all, and f2fs with a checkpoint each time.
struct Named<'a> {
    disk: &'a dyn Disk,
    file: Arc<dyn DiskFile>,
}

impl<'a> Named<'a> {
    fn create(disk: &'a dyn Disk) -> io::Result<Self> {
        let file = match disk.create(NAME) {
            // A leftover of a writer that was killed, or whose disk hung until the power failed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                disk.remove(NAME)?;
                disk.create(NAME)?
            }
            other => other?,
        };
        Ok(Self { disk, file })
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        let _ = self.disk.remove(NAME);
    }
}

fn write(
    disk: &dyn Disk,
    strategy: Strategy,
    plan: Plan,
    mut teller: Teller<'_, '_>,
    place: &Event,
) -> Result<(), Error> {
    let named = Named::create(disk)?;
    teller.tell(place)?;
    let mut noise = Noise::new();
    teller.tell(&Event::Began(Phase::LayingOut))?;
    // The log too makes a segment's name durable before it uses the segment.
    named.file.sync()?;
    disk.sync_directory()?;
    let laid_out = lay_out(&*named.file, plan, &mut noise, &mut teller)?;
    teller.tell(&Event::Began(Phase::Syncing))?;
    sync_blocks(&*named.file, Blocks { laid_out, strategy, most: plan.syncs }, &mut noise, &mut teller)?;
    teller.tell(&Event::Began(Phase::Removing))?;
    drop(named);
    Ok(())
}

/// Lays the file out and returns its bytes; times only writing and syncing.
fn lay_out(file: &dyn DiskFile, plan: Plan, noise: &mut Noise, teller: &mut Teller<'_, '_>) -> Result<u64, Error> {
    let mut chunk = vec![0; CHUNK as usize];
    let sync_every = (plan.laid_out_bytes / SYNCS_WHILE_LAYING_OUT).next_multiple_of(CHUNK).max(CHUNK);
    let (began, mut written, mut took) = (Instant::now(), 0, Duration::ZERO);
    // At least one chunk is written in any case, because later blocks overwrite it.
    while written < plan.laid_out_bytes && (written == 0 || began.elapsed() < LAYING_OUT_MAX) {
        noise.fill(&mut chunk);
        let began = Instant::now();
        file.write_at(written, &chunk)?;
        written += CHUNK;
        if written.is_multiple_of(sync_every) {
            file.sync()?;
        }
        took += began.elapsed();
        teller.tell(&Event::LaidOut { bytes: written, us: micros(took) })?;
    }
    let began = Instant::now();
    file.sync()?;
    teller.tell(&Event::LaidOut { bytes: written, us: micros(took + began.elapsed()) })?;
    Ok(written)
}

/// The part of the file that the single blocks overwrite or extend.
struct Blocks {
    laid_out: u64,
    strategy: Strategy,
    most: u64,
}

fn sync_blocks(
    file: &dyn DiskFile,
    blocks: Blocks,
    noise: &mut Noise,
    teller: &mut Teller<'_, '_>,
) -> Result<(), Error> {
    let (mut block, began) = (vec![0; BLOCK as usize], Instant::now());
    for number in 0..blocks.most {
        if number > 0 && began.elapsed() >= SYNCING_MAX {
            break;
        }
        let place = match blocks.strategy {
            Strategy::Recycle => number * BLOCK % blocks.laid_out,
            Strategy::Append => blocks.laid_out + number * BLOCK,
        };
        noise.fill(&mut block);
        let began = Instant::now();
        file.write_at(place, &block)?;
        file.sync()?;
        teller.tell(&Event::Synced { us: micros(began.elapsed()) })?;
    }
    Ok(())
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// Pseudorandom bytes that cannot be compressed or deduplicated.
///
/// File systems and controllers that do so would look faster than they are. The generator is
/// xorshift64* (Vigna, An experimental exploration of Marsaglia's xorshift generators, scrambled).
struct Noise(u64);

impl Noise {
    /// Seeds from time and process id, for different blocks in each run.
    ///
    /// A second run must not find its blocks on the disk already.
    fn new() -> Self {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self((u64::from(since.subsec_nanos()) << 32 | u64::from(std::process::id())) | 1)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_exact_mut(8) {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            piece.copy_from_slice(&self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fs;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("zoolet-probe-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<std::ffi::OsString> {
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        }

        fn write(&self, strategy: Strategy, plan: Plan, tell: &mut Tell<'_>) -> Result<(), Error> {
            let disk = FsDisk::shared(&self.0).unwrap();
            let teller = Teller { tell };
            write(&disk, strategy, plan, teller, &Event::Began(Phase::Preparing))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const SMALL: Plan = Plan { laid_out_bytes: 2 * CHUNK, syncs: 3 };

    #[test]
    fn probe_writes_at_most_a_quarter_of_the_free_space() {
        let mib = |number: u64| number << 20;
        assert_eq!(Plan::within(mib(8) - 1), None);
        for free in [mib(8), mib(9), mib(13) + 17, mib(64), mib(79), mib(160), mib(5000), u64::MAX] {
            let plan = Plan::within(free).unwrap();
            assert!(plan.bytes() <= free / 4 && plan.bytes() <= BYTES_MAX, "{free}: {plan:?}");
            assert!(plan.syncs >= SYNCS_MIN && plan.laid_out_bytes >= 4 * CHUNK, "{free}: {plan:?}");
        }
        assert_eq!(Plan::within(mib(160)).unwrap(), Plan { laid_out_bytes: mib(32), syncs: SYNCS_MAX });
    }

    #[test]
    fn probe_removes_its_file_and_replaces_a_leftover_file() {
        let scratch = Scratch::new("left");
        fs::write(scratch.0.join(NAME), "of one that was killed").unwrap();
        for strategy in [Strategy::Recycle, Strategy::Append] {
            let (mut syncs, mut bytes) = (0, 0);
            let written = scratch.write(strategy, SMALL, &mut |event| {
                syncs += u64::from(matches!(event, Event::Synced { .. }));
                if *event == Event::Began(Phase::Removing) {
                    bytes = fs::metadata(scratch.0.join(NAME))?.len();
                }
                Ok(())
            });
            assert!(written.is_ok() && scratch.names().is_empty());
            let appended = if strategy == Strategy::Append { 3 * BLOCK } else { 0 };
            assert_eq!((syncs, bytes), (3, 2 * CHUNK + appended), "{strategy:?}");
        }
    }

    /// The waiting process has reached its deadline, or was killed.
    #[test]
    fn probe_writer_removes_its_file_when_its_reader_is_gone() {
        let scratch = Scratch::new("gone");
        for lines in 0..8 {
            let mut left = lines;
            let written = scratch.write(Strategy::Append, SMALL, &mut |_| {
                left -= 1;
                if left < 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
            });
            assert!(matches!(written, Err(Error::NobodyListens)) && scratch.names().is_empty(), "after {lines} lines");
        }
    }

    /// A disk that compresses or deduplicates would write less than it was given.
    #[test]
    fn probe_blocks_can_be_neither_compressed_nor_deduplicated() {
        let scratch = Scratch::new("noise");
        let mut blocks = HashSet::new();
        for _ in 0..2 {
            let written = scratch.write(Strategy::Append, SMALL, &mut |event| {
                if *event == Event::Began(Phase::Removing) {
                    let file = fs::read(scratch.0.join(NAME))?;
                    for block in file.chunks(BLOCK as usize) {
                        // In 4,096 random bytes, each of the 256 values is missing with a
                        // probability of e^-16.
                        assert!(block.iter().collect::<HashSet<_>>().len() > 250);
                        let pairs: HashSet<_> = block.windows(4).collect();
                        assert!(pairs.len() > block.len() - 10, "it repeats itself");
                        assert!(blocks.insert(block.to_vec()), "a block that was written already");
                    }
                }
                Ok(())
            });
            assert!(written.is_ok());
        }
        assert_eq!(blocks.len() as u64, 2 * (SMALL.bytes() / BLOCK));
    }
}
