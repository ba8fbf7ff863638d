//! Bases with valid checksums over which redb panics, because their contents make no sense.

use std::sync::Arc;
use zoolet_store::base::{Base, BaseError, Options};
use zoolet_store::disk::{Disk, DiskFile};

const BLOCK: usize = 4096;
/// Checksums in one block of the side file's table.
const ENTRIES: u64 = 1020;
/// Offset of a table block's own checksum.
const CHECKSUM: usize = BLOCK - 8;

/// Changes a byte of redb's file until the disk passes `is_enough`, and corrects its checksum.
///
/// Tries one byte at a time. Returns false if no change suffices; the base is then unchanged.
///
/// # Panics
/// If a read or write of the disk fails.
pub fn change_until(disk: &Arc<dyn Disk>, id: u64, mut is_enough: impl FnMut(&Arc<dyn Disk>) -> bool) -> bool {
    let open = |end: &str| disk.open(&format!("base-{id}.{end}")).expect("redb's files are there");
    let (file, side) = (open("redb"), open("crc"));
    let blocks = file.len().expect("it has a length") / BLOCK as u64;
    for block in 1..blocks {
        let mut sound = [0; BLOCK];
        file.read_at(block * BLOCK as u64, &mut sound).expect("it can be read");
        // Offsets of the page's kind, its number of entries, their ends, and the contents of the
        // first entry.
        for at in [0, 2, 3, 8, 12, 40, 64, 65] {
            let mut changed = sound;
            changed[at] ^= 0x11;
            replace(&*file, &*side, id, block, &changed);
            if is_enough(disk) {
                return true;
            }
        }
        replace(&*file, &*side, id, block, &sound);
    }
    false
}

/// Makes a base over which redb panics when it is opened; false if no change does that.
///
/// # Panics
/// As [`change_until`].
pub fn make_redb_panic(disk: &Arc<dyn Disk>, id: u64) -> bool {
    change_until(disk, id, |disk| is_redb_panic(&Base::open(Arc::clone(disk), id, Options::default())))
}

/// Returns whether the error is a caught panic of redb.
pub fn is_redb_panic<T>(outcome: &Result<T, BaseError>) -> bool {
    matches!(outcome, Err(BaseError::Damaged(what)) if what.contains("redb cannot make sense of its file"))
}

fn replace(file: &dyn DiskFile, side: &dyn DiskFile, id: u64, block: u64, bytes: &[u8]) {
    file.write_at(block * BLOCK as u64, bytes).expect("it can be written");
    let number = block / ENTRIES;
    // Replace both copies, because the newer one counts.
    for copy in [0, 1] {
        let place = (2 + 2 * number + copy) * BLOCK as u64;
        let mut table = [0; BLOCK];
        side.read_at(place, &mut table).expect("it can be read");
        let at = (block % ENTRIES) as usize * 4;
        table[at..at + 4].copy_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
        let seed = crc32c::crc32c_append(crc32c::crc32c(&id.to_le_bytes()), &number.to_le_bytes());
        let checksum = crc32c::crc32c_append(seed, &table[..CHECKSUM]);
        table[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
        side.write_at(place, &table).expect("it can be written");
    }
}
