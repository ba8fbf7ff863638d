//! Simulated durations of disk operations.

use super::{MS, SECOND};
use crate::workload::Random;
use zoolet_store::log::BLOCK_BYTES;

/// Mean time between two hangs of an SD card.
const HANGS_APART: u64 = 3600 * SECOND;
/// Duration of such a hang.
const HANG: u64 = 5 * SECOND;
/// Maximum duration of one operation on a busy disk, outside hangs.
const SLOWEST_US: u64 = 5 * SECOND;

/// Measured durations of one durable write, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latencies {
    /// The median.
    pub p50_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
    /// The longest without a hang.
    pub max_us: u64,
    /// Duration of an occasional hang; 0 if the disk never hangs.
    pub hang_us: u64,
    /// Mean time between two hangs.
    pub hangs_apart_us: u64,
    /// Bytes written per second; 0 means that bytes take no time.
    pub bytes_per_second: u64,
}

impl Latencies {
    /// Draws the duration of one durable write, without hangs.
    ///
    /// - Mostly it is half of the median plus an exponential part.
    /// - One write in a hundred takes about the 99th percentile, as in [`DiskModel::Sd`].
    /// - Three writes in ten thousand take between half of the longest duration and the longest, as
    ///   in [`DiskModel::Nvme`].
    fn sync_us(self, random: &mut Random) -> u64 {
        if random.in_a_million(300) {
            return random.between(self.max_us / 2, self.max_us + 1).max(self.p99_us);
        }
        if random.in_a_million(10_500) {
            let steep = self.p99_us / 100 * 99 + random.exponential(self.p99_us / 11);
            return steep.min(self.max_us);
        }
        // The median of an exponential distribution is 0.69 of its mean.
        let half = self.p50_us / 2;
        (self.p50_us - half + random.exponential(half * 100 / 69)).min(self.p99_us)
    }

    /// Returns the extra time for bytes beyond the first block.
    ///
    /// The measured durations of syncs include one block.
    fn write_us(self, bytes: u64) -> u64 {
        let more = bytes.saturating_sub(BLOCK_BYTES.into());
        more.saturating_mul(SECOND).checked_div(self.bytes_per_second).unwrap_or(0)
    }
}

/// A kind of disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskModel {
    /// Takes no time.
    Instant,
    /// 40 to 400 us, at most 2 ms, and sometimes 50 to 108 ms, as measured on an idle NVMe.
    Nvme,
    /// 0.5 to 3 ms; one write in a hundred takes 10 to 60 ms.
    Emmc,
    /// Mean 1.3 ms, p99 100 ms, at most 500 ms, and a hang of 5 s about once an hour.
    Sd,
    /// A disk with these measured durations.
    Like(Latencies),
}

impl DiskModel {
    /// The models among which runs draw.
    pub const ALL: [Self; 4] = [Self::Instant, Self::Nvme, Self::Emmc, Self::Sd];

    /// Draws the duration of one durable write, without hangs, in microseconds.
    fn sync_us(self, random: &mut Random) -> u64 {
        match self {
            Self::Instant => 0,
            Self::Nvme if random.in_a_million(300) => random.between(50 * MS, 108 * MS),
            Self::Nvme => (40 + random.exponential(120)).min(2 * MS),
            Self::Emmc if random.in_a_million(10_000) => random.between(10 * MS, 60 * MS),
            Self::Emmc => (500 + random.exponential(700)).min(3 * MS),
            // The tail begins just below the 99th percentile and is steep. One per cent of the
            // operations contributes nearly all of the mean.
            Self::Sd if random.in_a_million(10_500) => (99 * MS + random.exponential(9 * MS)).min(500 * MS),
            Self::Sd => 80 + random.exponential(110),
            Self::Like(latencies) => latencies.sync_us(random),
        }
    }

    /// Returns the extra time of a sync that makes `bytes` durable.
    ///
    /// It is unknown, and taken as 0, for models that were not measured.
    fn write_us(self, bytes: u64) -> u64 {
        match self {
            Self::Instant | Self::Nvme | Self::Emmc | Self::Sd => 0,
            Self::Like(latencies) => latencies.write_us(bytes),
        }
    }

    /// Returns the approximate maximum duration of one durable write, hangs included.
    fn longest_us(self) -> u64 {
        match self {
            Self::Instant => 0,
            Self::Nvme => 108 * MS,
            Self::Emmc => 60 * MS,
            Self::Sd => HANG + 500 * MS,
            Self::Like(Latencies { max_us, hang_us, .. }) => hang_us + max_us,
        }
    }

    /// Returns the duration of a hang and the mean time between hangs; `None` if the disk never
    /// hangs.
    fn hangs(self) -> Option<(u64, u64)> {
        match self {
            Self::Instant | Self::Nvme | Self::Emmc => None,
            Self::Sd => Some((HANG, HANGS_APART)),
            Self::Like(Latencies { hang_us, hangs_apart_us, .. }) => (hang_us > 0).then_some((hang_us, hangs_apart_us)),
        }
    }

    fn read_us(self, random: &mut Random) -> u64 {
        match self {
            Self::Instant => 0,
            Self::Nvme => 10 + random.exponential(40),
            Self::Emmc => 100 + random.exponential(200),
            Self::Sd => 200 + random.exponential(500),
            // A read does not wait until flash cells are written.
            Self::Like(Latencies { p50_us, .. }) => p50_us / 4 + random.exponential(p50_us / 4),
        }
    }
}

/// The speed of one disk: a model, its next hang, and a factor for other load.
#[derive(Clone, Debug)]
pub struct Speed {
    model: DiskModel,
    random: Random,
    next_hang_us: u64,
    /// Nothing becomes durable before this time.
    hangs_until_us: u64,
    /// Factor by which the disk is slower than usual; 1 is usual.
    pub slower: u64,
}

impl Speed {
    /// Creates the speed of a disk at `now_us`.
    pub fn new(model: DiskModel, mut random: Random, now_us: u64) -> Self {
        let apart_us = model.hangs().map_or(HANGS_APART, |(_, apart_us)| apart_us);
        let next_hang_us = now_us + random.exponential(apart_us);
        Self { model, random, next_hang_us, hangs_until_us: 0, slower: 1 }
    }

    /// Returns the duration of a durable write that begins now, in microseconds.
    pub fn sync_us(&mut self, now_us: u64) -> u64 {
        let spent_us = self.model.sync_us(&mut self.random).saturating_mul(self.slower).min(SLOWEST_US);
        if let Some((hang_us, apart_us)) = self.model.hangs()
            && now_us >= self.next_hang_us
        {
            self.hangs_until_us = now_us + hang_us;
            self.next_hang_us = self.hangs_until_us + self.random.exponential(apart_us);
        }
        self.hangs_until_us.saturating_sub(now_us) + spent_us
    }

    /// Returns the extra time of a sync that makes `bytes` durable.
    pub fn write_us(&self, bytes: u64) -> u64 {
        self.model.write_us(bytes).saturating_mul(self.slower)
    }

    /// Returns the maximum duration of a durable write while no other load slows the disk.
    pub fn longest_us(&self) -> u64 {
        self.model.longest_us()
    }

    /// Returns the duration of a read that begins now, in microseconds.
    pub fn read_us(&mut self) -> u64 {
        self.model.read_us(&mut self.random).saturating_mul(self.slower).min(SLOWEST_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sd_model_syncs_have_sd_card_mean_p99_and_maximum() {
        let mut random = Random::new(7);
        let mut draws: Vec<u64> = (0..1_000_000).map(|_| DiskModel::Sd.sync_us(&mut random)).collect();
        draws.sort_unstable();
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        let (p99, max) = (draws[990_000], draws[999_999]);
        assert!((1200..1400).contains(&mean), "{mean}");
        assert!((95 * MS..105 * MS).contains(&p99), "{p99}");
        assert!((150 * MS..=500 * MS).contains(&max), "{max}");
    }

    #[test]
    fn modelled_disk_matches_its_measured_percentiles() {
        let like = Latencies {
            p50_us: 1300,
            p99_us: 100 * MS,
            max_us: 500 * MS,
            hang_us: 0,
            hangs_apart_us: 0,
            bytes_per_second: 0,
        };
        let mut random = Random::new(7);
        let mut draws: Vec<u64> = (0..1_000_000).map(|_| DiskModel::Like(like).sync_us(&mut random)).collect();
        draws.sort_unstable();
        assert!((1250..1350).contains(&draws[500_000]), "{}", draws[500_000]);
        assert!((95 * MS..105 * MS).contains(&draws[990_000]), "{}", draws[990_000]);
        assert!((450 * MS..=500 * MS).contains(&draws[999_999]), "{}", draws[999_999]);
    }

    #[test]
    fn write_time_grows_with_the_bytes_beyond_the_first_block() {
        let like =
            Latencies { p50_us: 1, p99_us: 1, max_us: 1, hang_us: 0, hangs_apart_us: 0, bytes_per_second: 4 << 20 };
        let mut speed = Speed::new(DiskModel::Like(like), Random::new(3), 0);
        assert_eq!(
            [0, 4096, 4096 + (1 << 20), 4096 + (8 << 20)].map(|bytes| speed.write_us(bytes)),
            [0, 0, SECOND / 4, 2 * SECOND]
        );
        speed.slower = 3;
        assert_eq!(speed.write_us(4096 + (4 << 20)), 3 * SECOND);
        assert_eq!(Speed::new(DiskModel::Sd, Random::new(3), 0).write_us(1 << 30), 0);
    }

    #[test]
    fn syncs_begun_during_a_hang_last_until_its_end() {
        let mut speed = Speed::new(DiskModel::Sd, Random::new(3), 0);
        let first_us = (0..).map(|second| second * SECOND).find(|&at_us| speed.sync_us(at_us) >= HANG).unwrap();
        assert!(speed.sync_us(first_us + 2 * SECOND) >= HANG - 2 * SECOND);
        assert!(speed.sync_us(first_us + HANG) < HANG / 2);
    }

    #[test]
    fn only_the_sd_model_hangs_and_about_once_an_hour() {
        let hangs = |model| {
            let mut speed = Speed::new(model, Random::new(3), 0);
            (0..100 * 3600).filter(|second| speed.sync_us(second * SECOND) >= HANG).count()
        };
        assert!((70..130).contains(&hangs(DiskModel::Sd)), "{}", hangs(DiskModel::Sd));
        assert_eq!((hangs(DiskModel::Nvme), hangs(DiskModel::Emmc)), (0, 0));
    }
}
