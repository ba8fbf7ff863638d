//! How much of what is free the C library's allocator may keep.

/// Arenas of glibc's allocator, which gives each thread its own by default: what one thread frees stays in the arena of the one that took it, and a
/// server under load kept half as much again (docs/PERFORMANCE.md, "Where the memory is"). With one, threads wait for each other's allocations.
#[cfg(target_env = "gnu")]
const ARENAS: i32 = 2;

/// Larger pieces are the kernel's, and go back when they are freed. By default that bound grows to the largest piece ever freed, and a server
/// whose frames are large keeps the holes they leave.
#[cfg(target_env = "gnu")]
const MAPPED_FROM_BYTES: i32 = 128 << 10;

/// Before there are other threads. What the environment says (`MALLOC_ARENA_MAX`, `GLIBC_TUNABLES`) is left as it is. Does nothing where the C
/// library is another one: musl's has no arenas.
pub(super) fn keep_little() {
    #[cfg(target_env = "gnu")]
    if !["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
    {
        #[allow(unsafe_code, reason = "the C library's function has no safe interface")]
        // SAFETY: it takes no memory of ours, and may be called whenever no other thread allocates; this is the only one.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, ARENAS);
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
        }
    }
}
