//! Bounds and settings that the bytes of a run choose.

use crate::machine::SPARE_CACHE_BYTES;
use crate::reference::COUNTED_AT_ONCE;
use crate::workload::Random;
use zoolet_machine::{Limits, Settings};

/// Returns bounds of which a handful of requests reaches some. If it reached all, a run would get
/// nowhere.
pub(super) fn tiny(random: &mut Random) -> Limits {
    let small = crate::machine::tiny_limits();
    let mut one_of = |usual: u32, others: &[u32]| if random.one_in(4) { *random.pick(others) } else { usual };
    let limits = Limits {
        sessions_max: one_of(8, &[1, 2]),
        watches_max: one_of(1000, &[0, 1, 5]),
        outstanding_bytes_max: one_of(1 << 16, &[1, 300, 4000]),
        outbound_bytes_max: one_of(1 << 16, &[1, 300, 4000]),
        memtable_bytes: one_of(small.memtable_bytes, &[1, 500, 64 << 10]),
        record_cache_bytes: one_of(small.record_cache_bytes, &[0, 300, 64 << 10]),
        // The configuration refuses fewer than six segments: three are kept free, and a checkpoint
        // starts when half of all segments are in use.
        log_segments: one_of(8, &[6, 7, 9]),
        ..small
    };
    Limits { spare_cache_bytes: spare_cache_bytes(&limits), ..limits }
}

/// Returns [`SPARE_CACHE_BYTES`] if the record cache has at most 300 bytes, otherwise 0.
fn spare_cache_bytes(limits: &Limits) -> u32 {
    if limits.record_cache_bytes <= 300 { SPARE_CACHE_BYTES } else { 0 }
}

pub(super) fn settings(random: &mut Random) -> Settings {
    Settings {
        enforce_quotas: true,
        counted_at_once: COUNTED_AT_ONCE,
        session_timeout_min_ms: *random.pick(&[4000, 4000, 4000, 0, 1, 60_000]),
        session_timeout_max_ms: *random.pick(&[40_000, 40_000, 40_000, 0, 10, u32::MAX]),
        super_digest: random.one_in(2).then(|| crate::reference::digest_of(crate::workload::SUPER_USER)),
        skip_acl: random.one_in(8),
        container_check_interval_ms: *random.pick(&[60_000, 1, 100]),
        containers_per_minute_max: *random.pick(&[10_000, 0, 1, u32::MAX]),
        ..Settings::default()
    }
}
