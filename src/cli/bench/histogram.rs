//! Histogram of latencies, with a relative error of at most 1/128.
//!
//! The width of a bucket grows with its values. The number of buckets is fixed, so a long run takes
//! no more memory than a short one.

/// Values below this have a bucket each.
const EXACT: u64 = 256;
/// Buckets for each doubling above [`EXACT`].
const PER_DOUBLING: usize = 128;
const BUCKETS: usize = EXACT as usize + (u64::BITS as usize - 8) * PER_DOUBLING;

/// Counts of latencies, in nanoseconds.
#[derive(Clone)]
pub(super) struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns 0 while empty, as do the three methods below.
    pub(super) fn min(&self) -> u64 {
        self.min.min(self.max)
    }

    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    pub(super) fn mean(&self) -> u64 {
        u64::try_from(self.sum / u128::from(self.count.max(1))).unwrap_or(u64::MAX)
    }

    /// Returns the value that `rank` per mille of all values do not exceed.
    ///
    /// It is the upper end of that value's bucket, but at most the largest recorded value.
    pub(super) fn per_mille(&self, rank: u64) -> u64 {
        let wanted = u128::from(self.count) * u128::from(rank);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if u128::from(seen) * 1000 >= wanted && seen > 0 {
                return upper_end(bucket).min(self.max);
            }
        }
        self.max
    }

    pub(super) fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// Returns the bucket of a value.
///
/// Below [`EXACT`] it is the value itself. Above, the 7 bits after the leading bit select a bucket
/// in the row of that doubling.
const fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let doubling = value.ilog2() as usize - 8;
    EXACT as usize + doubling * PER_DOUBLING + ((value >> (doubling + 1)) as usize - PER_DOUBLING)
}

/// Returns the largest value of a bucket.
const fn upper_end(bucket: usize) -> u64 {
    if bucket < EXACT as usize {
        return bucket as u64;
    }
    let doubling = (bucket - EXACT as usize) / PER_DOUBLING;
    let leading = (PER_DOUBLING + (bucket - EXACT as usize) % PER_DOUBLING) as u64;
    (leading << (doubling + 1)) | ((1 << (doubling + 1)) - 1)
}

#[cfg(test)]
mod tests {
    use super::super::keys::Random;
    use super::*;

    #[test]
    fn histogram_buckets_are_contiguous() {
        let mut last = None;
        for bucket_number in 0..BUCKETS {
            let first = last.map_or(0, |last| last + 1);
            assert_eq!(bucket(first), bucket_number);
            assert_eq!(bucket(upper_end(bucket_number)), bucket_number);
            last = Some(upper_end(bucket_number));
        }
        assert_eq!(last, Some(u64::MAX));
    }

    #[test]
    fn histogram_percentiles_are_within_a_128th_of_the_exact_values() {
        let mut random = Random::new(7);
        for (count, shift) in [(1_usize, 40), (2, 0), (1000, 10), (1000, 64 - 9), (50_000, 30)] {
            let mut values: Vec<u64> = (0..count).map(|_| random.next() >> shift >> random.below(8)).collect();
            let mut histogram = Histogram::new();
            values.iter().for_each(|value| histogram.record(*value));
            values.sort_unstable();
            for rank in [0, 1, 500, 900, 990, 999, 1000] {
                let at = (count * rank).div_ceil(1000).max(1) - 1;
                let (exact, shown) = (values[at], histogram.per_mille(rank as u64));
                assert!(exact <= shown && shown <= exact + exact / 128, "{rank} of {count}: {exact} told as {shown}");
            }
            assert_eq!((histogram.min(), histogram.max()), (values[0], values[count - 1]));
            let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
            assert_eq!(u128::from(histogram.mean()), sum / count as u128);
        }
    }

    #[test]
    fn sum_of_two_histograms_equals_the_histogram_of_all_values() {
        let mut random = Random::new(8);
        let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
        for _ in 0..1000 {
            let value = random.next() >> random.below(64);
            if random.below(3) == 0 {
                left.record(value)
            } else {
                right.record(value)
            }
            both.record(value);
        }
        left.add(&right);
        assert_eq!(left.counts, both.counts);
        assert_eq!((left.count(), left.mean(), left.min(), left.max()), (1000, both.mean(), both.min(), both.max()));
    }

    #[test]
    fn empty_histogram_reports_zeros() {
        let histogram = Histogram::new();
        assert_eq!([histogram.min(), histogram.mean(), histogram.per_mille(500), histogram.max()], [0; 4]);
    }
}
