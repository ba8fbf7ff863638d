//! One direction between two boxes.

use crate::ensemble::MS;
use crate::workload::Random;

/// Behaviour of packets in one direction.
#[derive(Clone, Debug)]
pub struct Path {
    /// Minimum latency, in microseconds.
    pub latency_us: u64,
    /// Mean additional latency, in microseconds.
    pub jitter_us: u64,
    /// Lost packets per million. A stream retransmits them, which takes time.
    pub loss_ppm: u32,
    /// Duplicated datagrams per million.
    pub twice_ppm: u32,
    /// Nothing gets through, and neither end is told.
    pub is_cut: bool,
    /// Whether the sender knows the receiver's address. At least one of two boxes should.
    pub is_dialled: bool,
}

impl Path {
    /// Returns the path of a cable between two boxes.
    pub fn lan() -> Self {
        Self { latency_us: 60, jitter_us: 40, loss_ppm: 0, twice_ppm: 0, is_cut: false, is_dialled: true }
    }

    /// Draws a path of any site: two in three are cables, the others resemble radio links.
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

    /// Returns whether no disturbance is large enough for a protocol to notice.
    pub(super) fn is_well(&self) -> bool {
        !self.is_cut && self.loss_ppm <= 20_000 && self.latency_us + 4 * self.jitter_us <= 100 * MS
    }

    /// Draws the latency of a packet, in microseconds.
    pub(super) fn packet_us(&self, random: &mut Random) -> u64 {
        self.latency_us + random.exponential(self.jitter_us)
    }

    /// Draws the latency of a stream packet, retransmissions included, in microseconds.
    ///
    /// The first probe follows after about two round trips, and the interval doubles up to 500 ms.
    pub(super) fn stream_us(&self, random: &mut Random) -> u64 {
        let (mut spent_us, mut probe_us) = (0, 4 * self.latency_us + 2 * self.jitter_us + 5 * MS);
        while random.in_a_million(self.loss_ppm.min(900_000)) {
            spent_us += probe_us;
            probe_us = probe_us.saturating_mul(2).min(500 * MS);
        }
        spent_us + self.packet_us(random)
    }
}
