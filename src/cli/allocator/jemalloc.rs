//! jemalloc as the allocator, and its configuration.

use std::ptr::null_mut;
use std::time::Duration;
use tikv_jemalloc_sys::mallctl;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Configuration of jemalloc, which reads it before the first allocation.
///
/// One arena is enough: each thread caches some freed blocks of up to 1 KiB, so threads rarely wait
/// for the lock of the arena. Free pages go back to the kernel after about a second. Without this
/// delay, a server under load would return and request the same pages again and again. The target of
/// the link `/etc/_rjem_malloc.conf` and the environment variable `_RJEM_MALLOC_CONF` take
/// precedence.
#[allow(unsafe_code, reason = "jemalloc finds its configuration by the name of a symbol")]
// SAFETY: jemalloc lets a program define this symbol, once. Its type is a pointer to a static string
// that ends with a zero byte.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &[u8; 91] =
    b"narenas:1,tcache_max:1024,tcache_nslots_small_max:100,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

/// Interval between returns of free memory to the kernel, and its maximum while there is little to
/// return: each wake-up of an idle process costs energy.
const RETURN_EVERY: Duration = Duration::from_secs(5);
const RETURN_EVERY_MAX: Duration = Duration::from_secs(60);

/// Minimum number of free pages to return: 256 KiB.
const PAGES_MIN: usize = 64;

/// Returns free memory to the kernel at intervals; does not end.
///
/// jemalloc returns memory only in calls that allocate or free, so an idle process would keep it.
/// jemalloc's background thread would return it too, but at the cost of a thread.
pub(super) async fn return_free_memory() {
    let mut pause = RETURN_EVERY;
    loop {
        tokio::time::sleep(pause).await;
        pause = if return_free_pages() { RETURN_EVERY } else { (2 * pause).min(RETURN_EVERY_MAX) };
    }
}

/// Gives free pages back to the kernel if they are [`PAGES_MIN`] or more; returns whether they were.
///
/// Pages that were freed in the last moments before the call stay until the next call. After an error,
/// all stay until then.
fn return_free_pages() -> bool {
    let (mut pages, mut size, mut epoch) = (0_usize, size_of::<usize>(), 1_u64);
    // 4096 stands for all arenas (MALLCTL_ARENAS_ALL).
    let (refresh, count, decay) = (c"epoch", c"stats.arenas.4096.pdirty", c"arena.4096.decay");
    #[allow(unsafe_code, reason = "jemalloc's function has no safe interface")]
    // SAFETY: the names end with a zero byte. jemalloc reads a u64 for `epoch` and writes a size_t for
    // `pdirty`; each call passes a pointer to that type, and its size. A null pointer passes no value.
    unsafe {
        mallctl(refresh.as_ptr(), null_mut(), null_mut(), (&raw mut epoch).cast(), size_of::<u64>()) == 0
            && mallctl(count.as_ptr(), (&raw mut pages).cast(), &raw mut size, null_mut(), 0) == 0
            && pages >= PAGES_MIN
            && mallctl(decay.as_ptr(), null_mut(), null_mut(), null_mut(), 0) == 0
    }
}
