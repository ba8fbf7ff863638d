//! What a profile says: every number, where it belongs, and what it counts.

use crate::unit::Unit;

/// What a part of a profile describes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Axis {
    /// What the data directory is on.
    Media,
    /// How much memory the box has, and what of it is for the server.
    Memory,
    /// What the servers of a site are connected by.
    Network,
}

impl Axis {
    /// Every axis, in the order in which a profile's name has them.
    pub const ALL: [Self; 3] = [Self::Media, Self::Memory, Self::Network];

    /// The name of its directory, and of the key that names its part.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Media => "media",
            Self::Memory => "memory",
            Self::Network => "network",
        }
    }

    /// The file of the part of that name.
    pub(crate) fn file(self, part: &str) -> String {
        format!("{}/{part}.toml", self.name())
    }
}

macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $axis:ident, $unit:ident;)+) => {
        /// A number of a profile. Its name ends with the unit in which [`Profile::get`](crate::Profile::get) gives it, unless it counts things.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Key {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Key {
            /// Every number, part by part.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in files. Those that a `zoolet.toml` has too are called the same there.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The part that says it.
            pub const fn axis(self) -> Axis {
                match self { $(Self::$variant => Axis::$axis),+ }
            }

            /// What it counts.
            pub const fn unit(self) -> Unit {
                match self { $(Self::$variant => Unit::$unit),+ }
            }
        }
    };
}

keys! {
    /// One fdatasync after one block of the log was overwritten, the median.
    SyncP50 = "sync_p50_us", Media, Micros;
    /// The longest of a hundred.
    SyncP99 = "sync_p99_us", Media, Micros;
    /// The longest while the medium does nothing unusual.
    SyncMax = "sync_max_us", Media, Micros;
    /// The longest that it stands still altogether, cleaning up: 0 if it never does.
    Hang = "hang_ms", Media, Millis;
    /// Between two of those, on average; 0 if it never does.
    HangInterval = "hang_interval_s", Media, Seconds;
    /// What it writes in a second, one block behind the other.
    WriteRate = "write_bytes_per_second", Media, Bytes;
    /// What reaches the cells for what is written to the device; 0 for what has none.
    DeviceAmplification = "device_amplification_percent", Media, Percent;
    /// What the cells of a small one take before they wear out; 0 for what does not.
    Endurance = "endurance_bytes", Media, Bytes;
    /// What may be written to the device in a day, so that it lasts ten years; 0 for what does not wear.
    FlashBudget = "flash_bytes_per_day", Media, Bytes;
    /// The log's ring: everything since the last checkpoints.
    LogBytes = "log_bytes", Media, Bytes;
    /// What the data directory may take: the log's ring, the reserve, and two bases; 0 where the medium itself is the bound.
    DiskBytesMax = "disk_bytes_max", Media, Bytes;
    /// A leader whose log makes no progress for so long hands over to a voter whose disk is faster.
    DiskStall = "disk_stall_ms", Media, Millis;

    /// What the box has.
    BoxBytes = "box_bytes", Memory, Bytes;
    /// What the server takes of it at most, everything at its bound at once.
    CeilingBytes = "ceiling_bytes", Memory, Bytes;
    /// What it takes with nothing in it: the binary, its threads' stacks, the endpoint of its links.
    FixedBytes = "fixed_bytes", Memory, Bytes;
    /// Servers of a site with which the ceiling holds: for each there may be something waiting.
    ServersMax = "servers_max", Memory, Count;
    /// Largest request frame (ZooKeeper's jute.maxbuffer); the same on all servers of a site.
    FrameBytesMax = "frame_bytes_max", Memory, Bytes;
    /// One segment of the log's ring, which the largest entry fills.
    LogSegmentBytes = "log_segment_bytes", Memory, Bytes;
    /// Open client connections.
    ConnectionsMax = "connections_max", Memory, Count;
    /// Open client connections of one address.
    ConnectionsPerAddressMax = "connections_per_address_max", Memory, Count;
    /// Sessions, connected or not.
    SessionsMax = "sessions_max", Memory, Count;
    /// Ephemerals of one session.
    EphemeralsPerSessionMax = "ephemerals_per_session_max", Memory, Count;
    /// Watches, all connections together.
    WatchesMax = "watches_max", Memory, Count;
    /// Requests of one connection that are read and not answered.
    OutstandingMax = "outstanding_max", Memory, Count;
    /// Bytes of requests read and not answered, all connections together; and of what is under way to each other server.
    OutstandingBytesMax = "outstanding_bytes_max", Memory, Bytes;
    /// Bytes that wait to be sent to one client.
    OutboundBytesMax = "outbound_bytes_max", Memory, Bytes;
    /// The same, all clients together.
    OutboundBytesTotalMax = "outbound_bytes_total_max", Memory, Bytes;
    /// Applied state newer than the base: a checkpoint starts beyond it, and admission waits beyond twice as much.
    MemtableBytes = "memtable_bytes", Memory, Bytes;
    /// Recently used records.
    RecordCacheBytes = "record_cache_bytes", Memory, Bytes;
    /// Blocks of the base.
    BaseCacheBytes = "base_cache_bytes", Memory, Bytes;
    /// Disk space that only deletions use: four memtables, which is what a checkpoint may need.
    DiskReserveBytes = "disk_reserve_bytes", Memory, Bytes;

    /// A datagram there and back, the median.
    RoundTrip = "round_trip_us", Network, Micros;
    /// The longest of a hundred that are not lost.
    RoundTripP99 = "round_trip_p99_us", Network, Micros;
    /// Datagrams that are lost.
    Loss = "loss_percent", Network, Percent;
    /// Between heartbeats while writes or short sessions are live.
    HeartbeatBusy = "heartbeat_busy_ms", Network, Millis;
    /// Between heartbeats otherwise.
    HeartbeatIdle = "heartbeat_idle_ms", Network, Millis;
    /// What a peer said last counts in an election for so long.
    Fresh = "fresh_ms", Network, Millis;
    /// A learner that was not taken in leaves after so long a silence.
    Join = "join_ms", Network, Millis;
    /// A leader that hears no quorum for so long steps down.
    Quorum = "quorum_ms", Network, Millis;
    /// A server that has not heard its leader for so long serves no clients.
    StalenessMax = "staleness_max_ms", Network, Millis;
    /// Shortest session timeout granted.
    SessionTimeoutMin = "session_timeout_min_ms", Network, Millis;
    /// Longest session timeout granted.
    SessionTimeoutMax = "session_timeout_max_ms", Network, Millis;
}

impl Key {
    /// The number of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }
}
