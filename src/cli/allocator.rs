//! The allocator of the binary, and limits to the free memory that it keeps.
//!
//! A binary for Linux on x86-64 with the feature `jemalloc` uses jemalloc. Other binaries use the
//! allocator of the C library.

#[cfg(all(feature = "jemalloc", target_arch = "x86_64", target_os = "linux"))]
mod jemalloc;

/// Number of glibc's arenas.
///
/// By default each thread has an arena, and memory freed by another thread stays in the arena that
/// allocated it. A server under load kept half as much memory again
/// (docs/explanation/measurements.md, "Where the memory is"). With a single arena, threads wait for
/// each other's allocations.
#[cfg(target_env = "gnu")]
const ARENAS: i32 = 2;

/// Size from which allocations are mapped from the kernel, and returned to it when freed.
///
/// By default this threshold grows to the largest piece ever freed. A server with large frames
/// would then keep the holes that they leave.
#[cfg(target_env = "gnu")]
const MAPPED_FROM_BYTES: i32 = 128 << 10;

/// Configures glibc's allocator; must run before the process has other threads.
///
/// Does nothing if the environment configures it (`MALLOC_ARENA_MAX`, `MALLOC_MMAP_THRESHOLD_`,
/// `GLIBC_TUNABLES`), or with musl, whose allocator has no settings. With jemalloc it is needed
/// too: glibc itself still uses its own allocator.
pub(super) fn keep_little() {
    #[cfg(target_env = "gnu")]
    if !["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
    {
        #[allow(unsafe_code, reason = "the C library's function has no safe interface")]
        // SAFETY: `mallopt` takes no memory of ours, and is safe while no other thread allocates.
        // This is the only thread.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, ARENAS);
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
        }
    }
}

/// Lets jemalloc return free memory to the kernel at intervals; does not end.
///
/// Other allocators need no call.
pub(super) async fn return_free_memory() {
    #[cfg(all(feature = "jemalloc", target_arch = "x86_64", target_os = "linux"))]
    jemalloc::return_free_memory().await;
    std::future::pending().await
}
