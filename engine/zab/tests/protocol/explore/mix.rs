//! Sizes, latencies and faults that a seed draws.

use crate::net::rng::Rng;

/// Parameters that a seed draws once.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    pub(super) voters: u8,
    /// Servers in no configuration file that may be added.
    pub(super) spares: u8,
    pub(super) stream_ms: (u64, u64),
    pub(super) disk_ms: (u64, u64),
    /// One in `lost` datagrams is lost; one in `repeated` arrives twice.
    pub(super) lost: u64,
    pub(super) repeated: u64,
    /// One in `hangs` appends hangs, for up to 4 s.
    pub(super) hangs: u64,
    /// Mean time between two faults.
    pub(super) fault_ms: u64,
    pub(super) faults: Vec<Fault>,
    pub(super) propose_ms: u64,
    pub(super) storm_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Crash,
    CrashAtAppend,
    CrashLeader,
    CrashAll,
    Reset,
    CutOneWay,
    Partition,
    Pause,
    Wipe,
    Rot,
    Floor,
    HandOver,
    Reconfigure,
}

const FAULTS: [Fault; 13] = [
    Fault::Crash,
    Fault::CrashAtAppend,
    Fault::CrashLeader,
    Fault::CrashAll,
    Fault::Reset,
    Fault::CutOneWay,
    Fault::Partition,
    Fault::Pause,
    Fault::Wipe,
    Fault::Rot,
    Fault::Floor,
    Fault::HandOver,
    Fault::Reconfigure,
];

impl Mix {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let range = |rng: &mut Rng, of: &[(u64, u64)]| *rng.pick(of).expect("some");
        let mut faults: Vec<Fault> = FAULTS.iter().copied().filter(|_| rng.once_in(2)).collect();
        if faults.is_empty() {
            faults.push(Fault::Crash);
        }
        Self {
            voters: *rng.pick(&[3, 3, 3, 4, 5, 2, 1]).expect("some"),
            spares: rng.below(3) as u8,
            stream_ms: range(rng, &[(0, 1), (0, 5), (1, 20), (5, 80)]),
            disk_ms: range(rng, &[(0, 1), (1, 5), (2, 40), (10, 200)]),
            lost: *rng.pick(&[1_000_000, 50, 10, 4]).expect("some"),
            repeated: *rng.pick(&[1_000_000, 30, 8]).expect("some"),
            hangs: *rng.pick(&[1_000_000, 1000, 100]).expect("some"),
            fault_ms: *rng.pick(&[50, 200, 700, 2000]).expect("some"),
            faults,
            propose_ms: *rng.pick(&[15, 60, 300]).expect("some"),
            storm_ms: rng.between(5, 25) * 1000,
        }
    }
}
