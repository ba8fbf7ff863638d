//! Counters and durations of the threads' work.

use super::clock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use zoolet_store::{base, log};

/// Buckets per doubling.
const STEPS: u64 = 8;
/// Doublings covered, from 1 us to more than an hour.
const DOUBLINGS: u64 = 32;

/// A histogram of durations, of fixed size, with a relative error of at most 1/8.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: Box<[AtomicU64]>,
    max_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..STEPS * DOUBLINGS).map(|_| AtomicU64::new(0)).collect(), max_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub(super) fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(us)].fetch_add(1, Relaxed);
        self.max_us.fetch_max(us, Relaxed);
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let max_us = self.max_us.load(Relaxed);
        let at = |share: f64| {
            let rank = ((count as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|bucket| {
                seen += bucket;
                seen >= rank
            });
            Duration::from_micros(found.map_or(0, |bucket| upper_us(bucket).min(max_us)))
        };
        Percentiles { count, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: Duration::from_micros(max_us) }
    }
}

/// Returns the bucket of a duration in microseconds.
///
/// Below `STEPS` each microsecond has its bucket. Above, each doubling is divided into `STEPS`
/// equal buckets.
fn bucket_of(us: u64) -> usize {
    if us < STEPS {
        return us as usize;
    }
    let doubling = u64::from(us.ilog2());
    let step = (us >> (doubling - 3)) - STEPS;
    let bucket = (doubling - 2) * STEPS + step;
    bucket.min(STEPS * DOUBLINGS - 1) as usize
}

/// Returns the longest duration of a bucket, microseconds.
fn upper_us(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let doubling = bucket / STEPS + 2;
    let step = bucket % STEPS;
    ((STEPS + step + 1) << (doubling - 3)) - 1
}

/// How long an operation took, over all its runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Percentiles {
    /// Number of runs.
    pub count: u64,
    /// Half of the runs took at most this.
    pub p50: Duration,
    /// 99 in 100 runs took at most this.
    pub p99: Duration,
    /// 999 in 1,000 runs took at most this.
    pub p999: Duration,
    /// The longest run.
    pub max: Duration,
}

/// Since when a thread has been waiting for the disk.
#[derive(Debug, Default)]
pub(super) struct AtDisk {
    /// Start of the wait, on [`clock::mono_ms`]; 0 while the thread does not wait.
    since_ms: AtomicU64,
}

impl AtDisk {
    /// Begins a wait. Returns its beginning, on [`clock::mono_ms`].
    pub(super) fn begin(&self) -> u64 {
        let now_ms = clock::mono_ms();
        self.since_ms.store(now_ms, Relaxed);
        now_ms
    }

    pub(super) fn end(&self) {
        self.since_ms.store(0, Relaxed);
    }

    pub(super) fn age(&self) -> Duration {
        match self.since_ms.load(Relaxed) {
            0 => Duration::ZERO,
            since_ms => Duration::from_millis(clock::mono_ms().saturating_sub(since_ms)),
        }
    }
}

/// Use of the disk since the node started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Figures {
    /// Time of writing and syncing, for each batch of the log thread.
    pub fdatasync: Percentiles,
    /// How long the log, or a fetch from the base, has waited for the disk.
    ///
    /// Zero if neither waits.
    pub at_disk: Duration,
    /// Appends, batches, syncs and bytes by cause.
    pub log: log::Counters,
    /// Bytes and syncs of checkpoints, bytes of reads.
    pub base: base::Counters,
    /// Scrubs of the whole base that found everything sound.
    pub scrubs_sound: u64,
    /// Scrubs that found damage, or could not read.
    pub scrubs_failed: u64,
    /// Whether the data directory is not in its place any more.
    pub is_directory_gone: bool,
}

impl Figures {
    /// Returns names with units, and values, for metrics.
    pub(super) fn lines(&self, writes_acknowledged: u64) -> Vec<(&'static str, u64)> {
        let Self { fdatasync, at_disk, log, base, scrubs_sound, scrubs_failed, is_directory_gone } = self;
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        vec![
            ("log_appends", log.appends),
            ("log_batches", log.batches),
            ("log_fdatasyncs", log.fdatasyncs),
            ("log_entries", log.entries),
            ("log_entry_bytes", log.entry_bytes),
            ("log_fact_bytes", log.fact_bytes),
            ("log_padding_bytes", log.padding_bytes),
            ("log_prepared_bytes", log.prepared_bytes),
            ("writes_acknowledged_per_batch", writes_acknowledged.checked_div(log.batches).unwrap_or(0)),
            ("fdatasync_us_p50", us(fdatasync.p50)),
            ("fdatasync_us_p99", us(fdatasync.p99)),
            ("fdatasync_us_p999", us(fdatasync.p999)),
            ("fdatasync_us_max", us(fdatasync.max)),
            ("disk_awaited_ms", us(*at_disk) / 1000),
            ("base_bytes_written", base.base_bytes_written),
            ("base_merge_bytes_written", base.merge_bytes_written),
            ("base_syncs", base.syncs),
            ("base_bytes_read", base.base_bytes_read),
            ("base_runs", base.runs),
            ("base_reopenings", base.reopenings),
            ("base_scrubs_sound", *scrubs_sound),
            ("base_scrubs_failed", *scrubs_failed),
            ("data_directory_gone", u64::from(*is_directory_gone)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_upper_bound_exceeds_its_values_by_at_most_an_eighth() {
        for us in (0..100_000).chain([1 << 20, (1 << 33) - 1]) {
            let upper = upper_us(bucket_of(us));
            assert!(us <= upper && (upper - us) * 8 <= us, "{us} in a bucket up to {upper}");
        }
        assert_eq!(bucket_of(u64::MAX), (STEPS * DOUBLINGS - 1) as usize);
    }

    #[test]
    fn percentiles_come_from_the_recorded_durations() {
        let histogram = Histogram::default();
        assert_eq!(histogram.percentiles(), Percentiles::default());
        (1..=1000).for_each(|us| histogram.record(Duration::from_micros(us)));
        let percentiles = histogram.percentiles();
        let longest = Duration::from_micros(1000);
        assert_eq!((percentiles.count, percentiles.max, percentiles.p999), (1000, longest, longest));
        assert!((500..=563).contains(&percentiles.p50.as_micros()), "{percentiles:?}");
    }

    /// `mntr` prints the lines that the registry of metrics names, and no other.
    #[test]
    #[cfg(feature = "port")]
    fn the_registry_of_metrics_names_each_line_of_the_driver() {
        use crate::runtime::flash;
        use zoolet_machine::status::{DeviceWear, FlashStatus};
        use zoolet_machine::wear::Forecast;
        use zoolet_transport::client_port::metrics::METRICS;

        let device = DeviceWear { device: String::new(), used_percent: Some(1), spare: None };
        let forecast = Forecast { bytes_per_day: Some(1), ..Forecast::default() };
        let flash = FlashStatus { entry_bytes: 1, forecast, device: Some(device), ..FlashStatus::default() };
        let lines = [Figures::default().lines(0), flash::lines(&flash)].concat();
        let registered = METRICS.iter().filter(|metric| metric.is_of_driver()).map(|metric| metric.name);
        assert_eq!(lines.iter().map(|(name, _)| *name).collect::<Vec<_>>(), registered.collect::<Vec<_>>());
    }
}
