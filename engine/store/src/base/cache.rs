//! Cache of frequently requested blocks.

use super::{BaseError, run_id::RunId};
use crate::image::format::BLOCK;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use zoolet_machine::budget::allocated;

/// A block's address: the number of its run, and its number in the file.
type Address = (u64, u64);

/// A direct-mapped cache. Each block has one slot, and enters it when that slot misses on it twice
/// in a row.
///
/// So a walk through all blocks evicts nothing.
pub(super) struct BlockCache {
    slots: Box<[Mutex<Slot>]>,
    /// Number of slots that hold a block.
    blocks: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    /// The block that the slot last missed on.
    asked: Option<Address>,
    held: Option<(Address, Box<[u8; BLOCK]>)>,
}

impl BlockCache {
    pub(super) fn new(bytes: usize) -> Self {
        Self { slots: (0..bytes / BLOCK).map(|_| Mutex::default()).collect(), blocks: AtomicUsize::new(0) }
    }

    /// Returns bytes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.slots) + self.blocks.load(Ordering::Relaxed) * allocated(BLOCK)) as u64
    }

    /// Calls `look` with the block. On a miss, `read` fills in and checks the block first.
    pub(super) fn with<R>(
        &self,
        run: RunId,
        block: u64,
        read: impl FnOnce(&mut [u8; BLOCK]) -> Result<(), BaseError>,
        look: impl FnOnce(&[u8; BLOCK]) -> R,
    ) -> Result<R, BaseError> {
        let address = (run.number, block);
        if let Some(slot) = self.slot(address) {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, bytes)) = slot.held.as_ref().filter(|(held, _)| *held == address) {
                return Ok(look(bytes));
            }
            if slot.asked.replace(address) == Some(address) {
                // The slot is empty during the read, so that a failed read leaves no block in it.
                self.blocks.fetch_sub(usize::from(slot.held.is_some()), Ordering::Relaxed);
                let mut bytes = slot.held.take().map_or_else(|| Box::new([0; BLOCK]), |(_, bytes)| bytes);
                read(&mut bytes)?;
                let found = look(&bytes);
                slot.held = Some((address, bytes));
                self.blocks.fetch_add(1, Ordering::Relaxed);
                return Ok(found);
            }
        }
        let mut bytes = [0; BLOCK];
        read(&mut bytes)?;
        Ok(look(&bytes))
    }

    fn slot(&self, (run, block): Address) -> Option<&Mutex<Slot>> {
        let mixed = (run << 20 ^ block).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (u128::from(mixed) * self.slots.len() as u128) >> 64;
        self.slots.get(usize::try_from(at).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cache: &BlockCache, run: u64, block: u64, reads: &mut u32) -> u8 {
        let id = RunId { number: run, hash: 0 };
        let read = |bytes: &mut [u8; BLOCK]| {
            *reads += 1;
            bytes[0] = block as u8;
            Ok(())
        };
        cache.with(id, block, read, |bytes| bytes[0]).unwrap()
    }

    #[test]
    fn block_cache_keeps_repeated_blocks_over_blocks_requested_once() {
        let cache = BlockCache::new(BLOCK);
        let mut reads = 0;
        for _ in 0..10 {
            assert_eq!(ask(&cache, 1, 7, &mut reads), 7);
        }
        assert_eq!(reads, 2);
        assert_eq!(ask(&cache, 1, 8, &mut reads), 8);
        assert_eq!(ask(&cache, 2, 7, &mut reads), 7);
        assert_eq!(reads, 4);
        assert_eq!(ask(&cache, 1, 7, &mut reads), 7);
        assert_eq!(reads, 4);
    }

    #[test]
    fn block_cache_of_0_bytes_reads_each_time() {
        let cache = BlockCache::new(0);
        let mut reads = 0;
        assert_eq!((ask(&cache, 1, 7, &mut reads), ask(&cache, 1, 7, &mut reads), reads), (7, 7, 2));
    }
}
