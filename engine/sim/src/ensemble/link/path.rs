//! One direction between two boxes.

use crate::ensemble::MS;
use crate::workload::Random;

/// How packets fare in one direction.
#[derive(Clone, Debug)]
pub struct Path {
    /// The least they take, microseconds.
    pub latency_us: u64,
    /// What they take longer, on average, microseconds.
    pub jitter_us: u64,
    /// How many of a million are lost. Of streams they are sent again, which takes a while.
    pub loss_ppm: u32,
    /// How many datagrams of a million arrive twice.
    pub twice_ppm: u32,
    /// Nothing gets through, and nobody is told.
    pub is_cut: bool,
    /// Whether the sender knows where to find the receiver. Of two boxes at least one should.
    pub is_dialled: bool,
}

impl Path {
    /// A cable between two boxes.
    pub fn lan() -> Self {
        Self { latency_us: 60, jitter_us: 40, loss_ppm: 0, twice_ppm: 0, is_cut: false, is_dialled: true }
    }

    /// As any site may have: mostly cables, some radio.
    pub fn drawn(random: &mut Random) -> Self {
        let mut path = Self::lan();
        if random.one_in(3) {
            path.latency_us = random.logarithmic(200, 20 * MS);
            path.jitter_us = random.logarithmic(100, path.latency_us.max(200) * 2);
            path.loss_ppm = random.logarithmic(100, 20_000) as u32;
            path.twice_ppm = random.logarithmic(10, 2000) as u32;
        }
        path
    }

    /// Whether nothing disturbs it that a protocol would notice.
    pub(super) fn is_well(&self) -> bool {
        !self.is_cut && self.loss_ppm <= 20_000 && self.latency_us + 4 * self.jitter_us <= 100 * MS
    }

    /// How long a packet takes.
    pub(super) fn packet_us(&self, random: &mut Random) -> u64 {
        self.latency_us + random.exponential(self.jitter_us)
    }

    /// How long it takes until it arrived, though it may have to be sent again: probes begin after about two round trips and double.
    pub(super) fn stream_us(&self, random: &mut Random) -> u64 {
        let (mut spent_us, mut probe_us) = (0, 4 * self.latency_us + 2 * self.jitter_us + 5 * MS);
        while random.in_a_million(self.loss_ppm.min(900_000)) {
            spent_us += probe_us;
            probe_us = probe_us.saturating_mul(2).min(500 * MS);
        }
        spent_us + self.packet_us(random)
    }
}
