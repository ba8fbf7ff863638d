//! The keys of a profile: each number's name, axis and unit.

use crate::unit::Unit;

/// The aspect of a box that one part of a profile describes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Axis {
    /// The storage medium of the data directory.
    Media,
    /// The memory of the box, and the server's share of it.
    Memory,
    /// The network between the servers of a site.
    Network,
}

impl Axis {
    /// Every axis, in the order of a profile's name.
    pub const ALL: [Self; 3] = [Self::Media, Self::Memory, Self::Network];

    /// Returns the name of the axis's directory, and of the key that names its part.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Media => "media",
            Self::Memory => "memory",
            Self::Network => "network",
        }
    }

    /// Returns the file name of a part of this axis.
    pub(crate) fn file(self, part: &str) -> String {
        format!("{}/{part}.toml", self.name())
    }
}

macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $axis:ident, $unit:ident;)+) => {
        /// A number of a profile.
        ///
        /// Its name ends with the unit in which [`Profile::get`](crate::Profile::get) returns it. A
        /// count has no unit.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Key {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Key {
            /// Every key, grouped by axis.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the key's name in files.
            ///
            /// A key that `zoolet.toml` has too has the same name there.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the axis whose parts set this number.
            pub const fn axis(self) -> Axis {
                match self { $(Self::$variant => Axis::$axis),+ }
            }

            /// Returns the unit of the number.
            pub const fn unit(self) -> Unit {
                match self { $(Self::$variant => Unit::$unit),+ }
            }
        }
    };
}

keys! {
    /// Median duration of one fdatasync after one block of the log was overwritten.
    SyncP50 = "sync_p50_us", Media, Micros;
    /// Duration of the slowest of 100 such syncs.
    SyncP99 = "sync_p99_us", Media, Micros;
    /// Longest such sync while the medium does nothing unusual.
    SyncMax = "sync_max_us", Media, Micros;
    /// Longest complete stall of the medium while it cleans up; 0: it never stalls.
    Hang = "hang_ms", Media, Millis;
    /// Average time between two such stalls; 0: the medium never stalls.
    HangInterval = "hang_interval_s", Media, Seconds;
    /// Sequential write rate, in bytes per second.
    WriteRate = "write_bytes_per_second", Media, Bytes;
    /// Bytes that reach the cells, in percent of the bytes written; 0: no cells.
    DeviceAmplification = "device_amplification_percent", Media, Percent;
    /// Bytes that the cells of a small device endure; 0: the medium does not wear.
    Endurance = "endurance_bytes", Media, Bytes;
    /// Daily write budget for a life of ten years; 0: the medium does not wear.
    FlashBudget = "flash_bytes_per_day", Media, Bytes;
    /// Size of the log ring, which holds every entry since the last checkpoints.
    LogBytes = "log_bytes", Media, Bytes;
    /// Maximum size of the data directory: the log ring, the reserve and two bases.
    ///
    /// 0: only the medium itself bounds it.
    DiskBytesMax = "disk_bytes_max", Media, Bytes;
    /// Time without progress of a leader's log before the leader hands over.
    ///
    /// It hands over to a voter with a faster disk.
    DiskStall = "disk_stall_ms", Media, Millis;

    /// Memory of the box.
    BoxBytes = "box_bytes", Memory, Bytes;
    /// Maximum memory of the server, with everything at its bound at once.
    CeilingBytes = "ceiling_bytes", Memory, Bytes;
    /// Memory of an empty server.
    ///
    /// It covers the binary, its threads' stacks, the endpoint of its links, and the frames that a
    /// checkpoint and a merge hold.
    FixedBytes = "fixed_bytes", Memory, Bytes;
    /// Largest number of servers in a site for which the ceiling holds.
    ///
    /// Each server adds memory, because messages for it may be queued.
    ServersMax = "servers_max", Memory, Count;
    /// Largest request frame (ZooKeeper's jute.maxbuffer); equal on all servers of a site.
    FrameBytesMax = "frame_bytes_max", Memory, Bytes;
    /// Size of one segment of the log ring; the largest entry fills one segment.
    LogSegmentBytes = "log_segment_bytes", Memory, Bytes;
    /// Maximum open client connections.
    ConnectionsMax = "connections_max", Memory, Count;
    /// Maximum open client connections from one address.
    ConnectionsPerAddressMax = "connections_per_address_max", Memory, Count;
    /// Maximum sessions, connected or not.
    SessionsMax = "sessions_max", Memory, Count;
    /// Maximum ephemerals of one session.
    EphemeralsPerSessionMax = "ephemerals_per_session_max", Memory, Count;
    /// Maximum watches of all connections.
    WatchesMax = "watches_max", Memory, Count;
    /// Maximum requests of one connection that are read but not answered.
    OutstandingMax = "outstanding_max", Memory, Count;
    /// Maximum bytes of requests of all connections that are read but not answered.
    ///
    /// The same bound holds for the bytes in flight to each other server.
    OutstandingBytesMax = "outstanding_bytes_max", Memory, Bytes;
    /// Maximum bytes waiting to be sent to one client.
    OutboundBytesMax = "outbound_bytes_max", Memory, Bytes;
    /// Maximum bytes waiting to be sent to all clients.
    OutboundBytesTotalMax = "outbound_bytes_total_max", Memory, Bytes;
    /// Size of the applied state newer than the base at which a checkpoint starts.
    ///
    /// Above twice this size, admission waits.
    MemtableBytes = "memtable_bytes", Memory, Bytes;
    /// Memory for recently used records.
    RecordCacheBytes = "record_cache_bytes", Memory, Bytes;
    /// Memory for a second record cache, less the memory that clients and links use; 0: none.
    SpareCacheBytes = "spare_cache_bytes", Memory, Bytes;
    /// Memory for blocks of the base.
    BaseCacheBytes = "base_cache_bytes", Memory, Bytes;
    /// Disk space reserved for deletions: four memtables, which a checkpoint may need.
    DiskReserveBytes = "disk_reserve_bytes", Memory, Bytes;

    /// Median round-trip time of a datagram.
    RoundTrip = "round_trip_us", Network, Micros;
    /// Longest round-trip time of 100 datagrams that are not lost.
    RoundTripP99 = "round_trip_p99_us", Network, Micros;
    /// Share of datagrams that are lost.
    Loss = "loss_percent", Network, Percent;
    /// Interval between heartbeats while writes or short sessions are live.
    HeartbeatBusy = "heartbeat_busy_ms", Network, Millis;
    /// Interval between heartbeats otherwise.
    HeartbeatIdle = "heartbeat_idle_ms", Network, Millis;
    /// How long a peer's last message counts in an election.
    Fresh = "fresh_ms", Network, Millis;
    /// Silence after which a learner leaves a leader that has not admitted it yet.
    Join = "join_ms", Network, Millis;
    /// Time without hearing a quorum after which a leader steps down.
    Quorum = "quorum_ms", Network, Millis;
    /// Time without hearing its leader after which a server serves no clients.
    StalenessMax = "staleness_max_ms", Network, Millis;
    /// Shortest session timeout granted.
    SessionTimeoutMin = "session_timeout_min_ms", Network, Millis;
    /// Longest session timeout granted.
    SessionTimeoutMax = "session_timeout_max_ms", Network, Millis;
}

impl Key {
    /// Returns the key with this name; `None` if no key has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }
}
