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
/// for its lock. Free pages go back to the kernel after about a second. Without this delay, a server
/// under load would return and request the same pages again and again. The target of the link
/// `/etc/_rjem_malloc.conf` and the environment variable `_RJEM_MALLOC_CONF` take precedence.
#[allow(unsafe_code, reason = "jemalloc finds its configuration by the name of a symbol")]
// SAFETY: jemalloc lets a program define this symbol, once. Its type is a pointer to a static string
// that ends with a zero byte.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &[u8; 91] =
    b"narenas:1,tcache_max:1024,tcache_nslots_small_max:100,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

/// Interval between returns of free memory to the kernel.
const RETURN_EVERY: Duration = Duration::from_secs(5);

/// Returns free memory to the kernel at intervals; does not end.
///
/// jemalloc returns memory only in calls that allocate or free, so an idle process would keep it.
/// With musl, jemalloc is built without its background thread. An error is ignored: then the memory
/// stays until the next interval.
pub(super) async fn return_free_memory() {
    loop {
        tokio::time::sleep(RETURN_EVERY).await;
        #[allow(unsafe_code, reason = "jemalloc's function has no safe interface")]
        // SAFETY: the name ends with a zero byte. Null pointers say that no value is read or written.
        // 4096 stands for all arenas (MALLCTL_ARENAS_ALL).
        let _ = unsafe { mallctl(c"arena.4096.decay".as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    }
}
