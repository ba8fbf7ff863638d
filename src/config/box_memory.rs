//! The memory of a box, and the bounds of a node that follow from it.

use zoolet_machine::Limits;

/// Memory of the box that a node runs on; decides its bounds of memory and disk.
///
/// A node uses at most half of the box's memory. The bounds are those of the server's profiles
/// `emmc/128m` to `emmc/2g`, and [`Config::limits`](super::Config::limits) changes each of them.
/// Only `spare_cache_bytes` is always 0: memory that the node does not need is for the program's own
/// work, and not every allocator returns to the system what such a cache frees.
///
/// ```
/// use zoolet::Config;
/// use zoolet::config::BoxMemory;
///
/// let config = Config::for_box("/var/lib/daemon/zoolet", BoxMemory::Mib512);
/// assert_eq!(config.limits.watches_max, 200_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[non_exhaustive]
pub enum BoxMemory {
    /// 128 MiB and more: 20,000 watches, 1,000 sessions, 13 MB of disk at the start.
    #[default]
    Mib128,
    /// 256 MiB and more: 60,000 watches, 4,000 sessions, 21 MB of disk at the start.
    Mib256,
    /// 512 MiB and more: 200,000 watches, 10,000 sessions, 42 MB of disk at the start.
    ///
    /// Servers with a configuration file have these bounds by default.
    Mib512,
    /// 2 GiB and more: 1,000,000 watches, 50,000 sessions, 143 MB of disk at the start.
    Gib2,
}

impl BoxMemory {
    /// All sizes, smallest first.
    pub const ALL: [Self; 4] = [Self::Mib128, Self::Mib256, Self::Mib512, Self::Gib2];

    /// Returns the name of the profile with these bounds.
    pub const fn profile(self) -> &'static str {
        match self {
            Self::Mib128 => "emmc/128m",
            Self::Mib256 => "emmc/256m",
            Self::Mib512 => "emmc/512m",
            Self::Gib2 => "emmc/2g",
        }
    }

    /// Returns the bounds of a node on such a box.
    pub fn limits(self) -> Limits {
        let usual = Limits::default();
        match self {
            Self::Mib128 => Limits {
                connections_max: 400,
                sessions_max: 1000,
                ephemerals_per_session_max: 2000,
                watches_max: 20_000,
                outstanding_bytes_max: 1 << 20,
                outbound_bytes_max: 1 << 20,
                outbound_bytes_total_max: 4 << 20,
                memtable_bytes: 2 << 20,
                record_cache_bytes: 1 << 20,
                base_cache_bytes: 1 << 20,
                disk_reserve_bytes: 8 << 20,
                log_segment_bytes: 2 << 20,
                log_segments: 32,
                ..usual
            },
            Self::Mib256 => Limits {
                connections_max: 1500,
                sessions_max: 4000,
                ephemerals_per_session_max: 5000,
                watches_max: 60_000,
                outstanding_bytes_max: 2 << 20,
                outbound_bytes_max: 2 << 20,
                outbound_bytes_total_max: 8 << 20,
                memtable_bytes: 4 << 20,
                record_cache_bytes: 2 << 20,
                base_cache_bytes: 2 << 20,
                disk_reserve_bytes: 16 << 20,
                log_segment_bytes: 2 << 20,
                log_segments: 32,
                ..usual
            },
            Self::Mib512 => usual,
            Self::Gib2 => Limits {
                connections_max: 10_000,
                sessions_max: 50_000,
                watches_max: 1_000_000,
                outstanding_bytes_max: 8 << 20,
                outbound_bytes_max: 8 << 20,
                outbound_bytes_total_max: 64 << 20,
                memtable_bytes: 32 << 20,
                record_cache_bytes: 32 << 20,
                base_cache_bytes: 32 << 20,
                disk_reserve_bytes: 128 << 20,
                ..usual
            },
        }
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::super::profile_defaults;
    use super::*;
    use crate::config::{Config, DEFAULT_PROFILE};
    use zoolet_profiles::Axis;

    #[test]
    fn bounds_of_each_box_equal_its_profile() {
        for memory in BoxMemory::ALL {
            let profile = profile_defaults::find(memory.profile(), None).unwrap();
            let (of_profile, _) = profile_defaults::numbers(&profile).unwrap();
            let node = Config::for_box("", memory);
            let without_spare_cache = Limits { spare_cache_bytes: 0, ..of_profile.limits };
            assert_eq!(node.limits, without_spare_cache, "{}", memory.profile());
            assert_eq!((node.medium, node.profile), (of_profile.medium, of_profile.profile));
        }
        assert_eq!(BoxMemory::Mib512.profile(), DEFAULT_PROFILE);
    }

    /// A node in a daemon shares the box with the daemon's own work.
    #[test]
    fn every_memory_profile_is_a_box_and_a_new_node_has_the_smallest() {
        let mut sizes: Vec<_> = zoolet_profiles::parts(Axis::Memory).unwrap().iter().map(|part| part.name).collect();
        let named = BoxMemory::ALL.map(|memory| memory.profile().split_once('/').unwrap().1);
        sizes.sort_unstable();
        let mut of_boxes = named;
        of_boxes.sort_unstable();
        assert_eq!(sizes, of_boxes);
        let bytes = BoxMemory::ALL
            .map(|memory| profile_defaults::find(memory.profile(), None).unwrap().get(zoolet_profiles::Key::BoxBytes));
        assert!(bytes.is_sorted(), "{bytes:?}");
        assert_eq!(Config::new("").limits, BoxMemory::ALL[0].limits());
    }
}
